//! The definitions of the kinds, as data: names, versions, schema, subresources, columns, defaults and rules.
//!
//! One engine serves all kinds. Each group has a folder with a value for each kind; a CustomResourceDefinition makes
//! such a value at run time. This module does not handle requests.

pub mod admissionregistration;
mod allocate;
mod apart;
pub mod apiextensions;
pub mod apiregistration;
pub mod apps;
pub mod authentication;
pub mod authorization;
pub mod autoscaling;
pub mod batch;
mod build;
pub mod cells;
pub mod certificates;
mod connect;
pub mod conversion;
mod convert;
pub mod coordination;
pub mod core;
pub mod custom;
mod deprecations;
pub mod discovery;
pub mod events;
pub(crate) mod expressions;
pub mod extensions;
pub mod flowcontrol;
mod gated;
mod groups;
pub mod internal_apiserver;
pub mod known;
mod layouts;
mod lookup;
pub mod networking;
pub mod node;
pub mod offered;
mod parts;
pub mod policy;
pub mod rbac;
pub mod records;
mod registry;
pub mod resource;
pub(crate) mod rules;
pub mod scheduling;
mod shapes;
pub mod storage;
pub mod storagemigration;
pub mod structures;
mod unified;
mod versions;

pub use allocate::{Allocate, Allocator, Claims};
pub use connect::{
    CheckConnect, ConnectOptions, Destination, KWOK_NODE, Lead, Leading, Machine, Named, SIMULATED_NODE, is_global,
    leads_away, leads_to_node,
};
pub(crate) use connect::{connect_document, part_layout};
pub use deprecations::Deprecation;
pub use gated::{Gated, GatedRule, Judging, Observe, field_gates};
#[cfg(test)]
pub(crate) use groups::default_rules;
pub(crate) use groups::priorities;
pub use groups::{
    ApiGroup, apply_defaults, body_message, default, default_beside_nulls, default_change, show_zeros,
    show_zeros_of_change,
};
pub use known::Known;
pub(crate) use layouts::{layout, layout_of};
pub use parts::{
    Asking, Cell, ClaimRules, Column, Completed, ConnectRules, Convert, DeletionRules, Description, FieldPaths,
    Generation, KindInfluence, KindSelectors, KindStorage, MetadataOnUpdate, ObjectContent, ObjectRules, Question,
    Read, Registers, ScalePaths, Selectable, Shown, Subresource, Validate, Version, Warnings, WriteRules,
};
pub(crate) use registry::compare_versions;
pub use registry::{GroupVersions, KindId, Registry, registry};
pub(crate) use shapes::semantic_version;

/// A served kind: one stored object type, in any number of groups and versions.
///
/// The fields up to `custom` are the names under which clients find the kind, and the requests that it accepts. Each
/// further field is a part, which one step of a request reads.
pub struct Kind {
    /// The name of the kind: `Deployment`.
    pub kind: String,
    /// The plural in lower case: `deployments`.
    pub resource: String,
    pub singular: String,
    pub short_names: Vec<String>,
    pub categories: Vec<String>,
    pub scope: Scope,
    /// All group versions of the kind. The first version is the hub, in which objects are stored.
    pub versions: Vec<Version>,
    /// Discovery verbs of the main resource, ordered by name.
    pub verbs: Vec<&'static str>,
    pub subresources: Vec<Subresource>,
    /// Whether objects are stored. Objects of some kinds, such as `SubjectAccessReview`, are only posted.
    pub stored: bool,
    /// The question that a kind answers if it is never stored.
    pub question: Option<Question>,
    /// The data of a kind that a CustomResourceDefinition makes; `None` for a built-in kind.
    pub custom: Option<custom::Custom>,
    /// The place and the form in which objects are stored.
    pub storage: KindStorage,
    /// The fields by which lists and watches select objects.
    pub selectors: KindSelectors,
    /// The columns of tables.
    pub shown: Shown,
    /// The destinations of connect requests, such as `pods/exec`.
    pub connect: ConnectRules,
    /// How creates and updates make the stored object.
    pub writes: WriteRules,
    /// The values that only one object of the cluster may hold.
    pub claims: ClaimRules,
    /// The rules by which creates and updates refuse an object.
    pub rules: ObjectRules,
    /// How deletes remove an object.
    pub deletion: DeletionRules,
    /// The fields that admission, quotas and exports read.
    pub content: ObjectContent,
    /// How objects of this kind affect requests for other objects.
    pub influence: KindInfluence,
}

/// The text of a group version: `apps/v1`, or `v1` for the core group.
pub fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    Cluster,
    Namespaced,
}
