//! The errors of a log, for all backends.

use holdfast_core::event::{Damage, Offset};

/// An error of one kind of log, or of a wrapper. A caller that uses only one kind of log can downcast the error to its
/// type.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;

/// The reason why an operation of the log failed.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    #[error("the disk under the log is full ({operation})")]
    Full { operation: &'static str },
    /// Another program or the disk changed or lost data of the log. The cause names the data and where it is.
    #[error(transparent)]
    Damaged(Cause),
    #[error("too old resource version: {asked} ({oldest})")]
    Forgotten { asked: Offset, oldest: Offset },
    /// This fault is no error. The kind was redefined or deleted, so watches must begin again.
    #[error("the kind was redefined or deleted")]
    Redefined,
    #[error("{what}")]
    Unreadable { what: String },
    /// The value of an event cannot be decrypted after reading, or cannot be encrypted for storage.
    #[error(transparent)]
    Sealed(Cause),
    /// The store did not answer, and it has written nothing.
    #[error("the log cannot be reached: {why}")]
    Unreachable { why: String },
    /// A write was sent but not answered. It may be in the log now, or later, or never.
    #[error("a write may or may not be in the log: {why}")]
    Unknown { why: String },
    /// The message contains the cause. `source()` must not return the cause as well, or it would be printed twice.
    #[error("the log cannot {operation}: {cause}")]
    Io { operation: &'static str, cause: Cause },
}

impl Fault {
    pub fn io(operation: &'static str, cause: impl std::error::Error + Send + Sync + 'static) -> Fault {
        Fault::Io { operation, cause: Box::new(cause) }
    }

    /// The fault of a damaged event, for a log that has no further cause to report.
    pub fn damaged(offset: Offset, damage: Damage) -> Fault {
        Fault::Damaged(Box::new(DamagedEvent { offset, damage }))
    }

    pub fn is_full(&self) -> bool {
        matches!(self, Self::Full { .. })
    }
}

/// An event whose stored bytes differ from the bytes that the log wrote.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the log's event {offset} is damaged: {damage}")]
pub struct DamagedEvent {
    pub offset: Offset,
    pub damage: Damage,
}
