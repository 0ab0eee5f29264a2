//! A version of a kind, and its documents' difference from the hub version.

use super::Validate;
use crate::kinds::{Deprecation, custom};
use crate::schema::MessageId;
use holdfast_value::Map;
use std::sync::OnceLock;

pub struct Version {
    pub group: String,
    pub version: String,
    /// The name of the schema message: `io.k8s.api.apps.v1.Deployment`.
    pub message: String,
    /// The schema message, looked up on first use.
    pub(in crate::kinds) message_id: OnceLock<Option<MessageId>>,
    /// Converts documents between this version and the hub; `None` if they differ only in `apiVersion`.
    pub convert: Option<Convert>,
    /// The rules for writes through this version, if they differ from the kind's rules.
    pub validate: Option<Validate>,
    /// Whether a delete through this version orphans dependents by default.
    pub orphans_dependents: bool,
    /// The deprecation of a version of the built-in API; `None` if the version is not deprecated.
    pub deprecation: Option<&'static Deprecation>,
    /// The data of a custom kind's version; `None` for built-in kinds.
    pub custom: Option<Box<custom::CustomVersion>>,
}

/// Converts whole documents in place. The caller sets `apiVersion` and `kind`.
#[derive(Clone, Copy)]
pub struct Convert {
    pub to_hub: fn(&mut Map),
    pub from_hub: fn(&mut Map),
}
