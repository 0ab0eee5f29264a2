//! Encryption at rest: the values of events are encrypted before a log stores them, and decrypted when it is read.
//!
//! Start at [`SealedLog`], which wraps any log, and [`Keyring`], which determines the key of a value: it has the
//! providers of an EncryptionConfiguration, parsed by [`Configuration`]. [`Live`] follows the file. An event's object,
//! time and user stay in plain, because the log is searched by them.
//!
//! An encrypted value begins with `k8s:enc:`, its provider, the provider's version and the key's name, as in
//! Kubernetes; no document begins so. It is bound to its object and its event: at another place it cannot be decrypted.

mod cipher;
mod configuration;
mod keyring;
pub mod kms;
mod live;
mod locked;
mod metrics;
mod sealed;

pub use configuration::Configuration;
pub use keyring::{Keyring, Patient};
pub use live::{Follow, Live};
pub use locked::{Locked, LockedValue};
pub use sealed::SealedLog;
