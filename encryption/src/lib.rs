//! Encryption at rest: the values of events are encrypted before a log keeps them, and decrypted when it is read.
//!
//! Start at [`SealedLog`], which any log can be put into, and [`Keyring`], which says which key a value is encrypted
//! with: the providers of an EncryptionConfiguration, read by [`Configuration`]. [`Live`] follows its file. What is told
//! of an event in plain (which object, when, by whom) stays so: it is what a log is searched by.
//!
//! An encrypted value begins with `k8s:enc:`, its provider, the provider's version and the key's name, as Kubernetes
//! writes them; no document does. It is bound to its object and its event: put elsewhere, it does not open.

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
