//! What a log can say of what went wrong, whatever it is kept in.

use holdfast_core::event::{Damage, Offset};

/// What only one kind of log, or a wrapper of one, can tell of. Whoever knows that log knows its type.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;

/// The log failed.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    #[error("the disk under the log is full ({operation})")]
    Full { operation: &'static str },
    /// What the log holds was changed or lost behind its back. The cause says what, and where it lies.
    #[error(transparent)]
    Damaged(Cause),
    #[error("too old resource version: {asked} ({oldest})")]
    Forgotten { asked: Offset, oldest: Offset },
    /// Nothing failed: the kind was redefined or went away, and who follows it begins anew.
    #[error("the kind is no longer what it was")]
    Redefined,
    #[error("{what}")]
    Unreadable { what: String },
    /// The value of an event cannot be opened, or closed, as it is to be kept.
    #[error(transparent)]
    Sealed(Cause),
    /// Whoever keeps the log did not answer, and has written nothing.
    #[error("the log cannot be reached: {why}")]
    Unreachable { why: String },
    /// A write was sent, and nobody said what came of it: it may be in the log now, or later, or never.
    #[error("it is not known whether the log took a write: {why}")]
    Unknown { why: String },
    /// The cause is part of what is told, so that who tells of causes, too, does not say it twice.
    #[error("the log cannot {operation}: {cause}")]
    Io { operation: &'static str, cause: Cause },
}

impl Fault {
    pub fn io(operation: &'static str, cause: impl std::error::Error + Send + Sync + 'static) -> Fault {
        Fault::Io { operation, cause: Box::new(cause) }
    }

    /// An event that is damaged, in a log of which there is nothing else to say.
    pub fn damaged(offset: Offset, damage: Damage) -> Fault {
        Fault::Damaged(Box::new(DamagedEvent { offset, damage }))
    }

    pub fn is_full(&self) -> bool {
        matches!(self, Self::Full { .. })
    }
}

/// An event whose bytes are no longer those that were written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the log's event {offset} is damaged: {damage}")]
pub struct DamagedEvent {
    pub offset: Offset,
    pub damage: Damage,
}
