//! The parts of a [`Kind`](super::Kind): each has the data, the functions and the rules that one step of a request
//! reads, and the methods by which that step uses them.
//!
//! The builder in `build.rs` fills the parts. All functions work on the hub version.

mod claims;
mod connect;
mod content;
mod deletion;
mod influence;
mod question;
mod rules;
mod selectors;
mod shown;
mod storage;
mod subresource;
mod version;
mod writes;

pub use claims::ClaimRules;
pub use connect::ConnectRules;
pub use content::ObjectContent;
pub use deletion::DeletionRules;
pub use influence::{KindInfluence, Registers};
pub use question::Question;
pub use rules::{MetadataOnUpdate, ObjectRules, Validate, Warnings};
pub use selectors::{KindSelectors, Read, Selectable};
#[cfg(test)]
pub(in crate::kinds) use shown::glance_of;
pub use shown::{Cell, Column, Completed, Description, Shown};
pub use storage::KindStorage;
pub use subresource::{FieldPaths, ScalePaths, Subresource};
pub use version::{Convert, Version};
pub use writes::{Asking, Generation, WriteRules};
