//! Why a value cannot be decrypted or encrypted.

use holdfast_core::event::Offset;
use holdfast_engine::Fault;

/// The value of an event cannot be decrypted, or cannot be encrypted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{object} (event {offset}): {why}")]
pub struct LockedValue {
    pub offset: Offset,
    pub object: String,
    pub why: Locked,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Locked {
    #[error("its value is encrypted, and no configuration says how to read it")]
    NoConfiguration,
    #[error("its value is encrypted, and the configuration has no provider for its prefix {prefix:?}")]
    NoProvider { prefix: String },
    #[error("its value is not encrypted, and the configuration has no identity provider that would read it")]
    Plain,
    #[error(
        "its value cannot be decrypted with the key {prefix:?}: the key is another, or the value was changed or moved"
    )]
    Changed { prefix: String },
    /// The plug-in with the key cannot be reached at the moment.
    #[error("{0}")]
    Unreachable(String),
}

impl Locked {
    /// The fault about the value of an object in the event `offset`. The event is in the log, or about to be appended.
    pub fn fault(self, offset: Offset, object: String) -> Fault {
        Fault::Sealed(Box::new(LockedValue { offset, object, why: self }))
    }

    /// The reason in a fault, if the fault is about an encrypted value.
    pub fn of(fault: &Fault) -> Option<&Locked> {
        match fault {
            Fault::Sealed(cause) => cause.downcast_ref::<LockedValue>().map(|value| &value.why),
            _ => None,
        }
    }
}
