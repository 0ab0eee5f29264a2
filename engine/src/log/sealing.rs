//! Logs that keep values otherwise than they tell them: what the engine has to know of that, beside the log.
//!
//! A log knows nothing of it. Whoever puts a sealed log into an engine hands over with it who [`Sealing`] is.

use super::Fault;
use holdfast_core::event::{Offset, Record};
use std::future::Future;
use std::pin::Pin;

/// Who closes the values of a log's events before they are kept.
pub trait Sealing: Send + Sync + 'static {
    /// Whether values of some resources are encrypted where they are kept. Whoever reads the log has them in plain.
    fn encrypts(&self) -> bool;

    /// What has to be awaited before an event of the resource can be appended, where there is anything: a key may have to
    /// be asked for, and an append asks nobody. A fault refuses the write alone.
    fn prepare(&self, resource: &str) -> Option<Prepared>;

    /// Whether an event's value is kept otherwise than it would be now, so that the next write of its object is to be
    /// a real one even when it changes nothing.
    fn is_outdated(&self, offset: Offset) -> Result<bool, Fault>;
}

/// See [`Sealing::prepare`].
pub type Prepared = Pin<Box<dyn Future<Output = Result<(), Fault>> + Send>>;

/// How the values of events are kept, beside what is told of them in plain.
pub trait Values {
    /// The event with its value in plain.
    fn open(&self, record: Record) -> Result<Record, Fault>;

    /// The event as it is to be kept.
    fn seal(&self, record: Record) -> Result<Record, Fault>;
}

/// Of a fork in memory, which keeps values in plain, and begins with what another log keeps closed.
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
