//! Encryption at rest. The values of events are encrypted before a log stores them, and decrypted when the log is read.
//!
//! Start at [`SealedLog`], which wraps any log, and [`Keyring`], which selects the key of a value. The keyring has the
//! providers of an EncryptionConfiguration, which [`Configuration`] parses. [`Live`] reads the file with the
//! configuration again while the process runs. The name of the object, the time and the user of an event stay in plain
//! text, because the log is searched by them.
//!
//! As in Kubernetes, an encrypted value begins with `k8s:enc:`, its provider, the provider's version and the key's
//! name. No document begins with these bytes. The value is bound to its object and its event, so it cannot be decrypted
//! at another place.

mod cipher;
mod configuration;
mod keyring;
pub mod kms;
mod live;
mod locked;
mod metrics;
mod sealed;

pub use configuration::Configuration;
pub use keyring::{Keyring, OfflineKeyring};
pub use live::{Follow, Live};
pub use locked::{Locked, LockedValue};
pub use sealed::SealedLog;
