//! The engine's interface to encryption of values in a log.
//!
//! The interface of a log does not show whether its values are encrypted. So the code that opens an encrypted log also
//! gives the engine the [`Sealing`].

use super::Fault;
use holdfast_core::event::{Offset, Record};
use std::future::Future;
use std::pin::Pin;

/// Encrypts the values of a log's events before they are stored.
pub trait Sealing: Send + Sync + 'static {
    /// Whether the values of some resources are stored encrypted. Readers of the log get the decrypted values.
    fn encrypts(&self) -> bool;

    /// Work that must be awaited before an event of the resource can be appended; `None` if there is none. A key may
    /// have to be fetched, and an append must not wait for that. A fault of this work refuses only this write.
    fn prepare(&self, resource: &str) -> Option<Prepared>;

    /// Whether an event's value is stored in another form, such as with another key, than a new value would be. If so,
    /// the next write of the object is carried out even if it changes nothing.
    fn is_outdated(&self, offset: Offset) -> Result<bool, Fault>;
}

/// Work that must be awaited before an event can be appended; see [`Sealing::prepare`].
pub type Prepared = Pin<Box<dyn Future<Output = Result<(), Fault>> + Send>>;

/// Converts the values of events between their stored form and plain text.
pub trait Values {
    /// Returns the event with its value decrypted.
    fn open(&self, record: Record) -> Result<Record, Fault>;

    /// Returns the event with its value in the stored form.
    fn seal(&self, record: Record) -> Result<Record, Fault>;
}

/// The sealing of a fork in memory. The fork stores its values unencrypted, although the log that it continues may be
/// encrypted.
pub(crate) struct InPlain {
    pub base_encrypts: bool,
}

impl Sealing for InPlain {
    fn encrypts(&self) -> bool {
        self.base_encrypts
    }

    fn prepare(&self, _: &str) -> Option<Prepared> {
        None
    }

    fn is_outdated(&self, _: Offset) -> Result<bool, Fault> {
        Ok(false)
    }
}
