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
pub use lookup::Near;
pub(crate) use registry::compare_versions;
pub use registry::{GroupVersions, KindId, Registry, registry};
pub(crate) use shapes::semantic_version;

use crate::authz::escalation::Authorize;
use crate::authz::nodes::Relation;
use crate::authz::role::RoleKind;
use crate::authz::user::User;
use crate::cached::Cached;
use crate::object::Packer;
use crate::object::glance::Glance;
use crate::object::meta::Document;
use crate::object::names::NameRule;
use crate::quota::Measure;
use crate::refusal::{Causes, Texts};
use crate::schema::MessageId;
use holdfast_value::{Map, Value};
use std::sync::OnceLock;

/// A served kind: one stored object type, in any number of groups and versions.
pub struct Kind {
    /// The name of the kind: `Deployment`.
    pub kind: String,
    /// The plural in lower case: `deployments`.
    pub resource: String,
    pub singular: String,
    pub short_names: Vec<String>,
    pub categories: Vec<String>,
    pub scope: Scope,
    /// The storage path below the prefix: `deployments`, `services/specs`.
    pub storage: String,
    /// The hub group's version in which stores shared with Kubernetes contain the objects up to a minor release, if it
    /// differs from [`Kind::stored_version`].
    pub stored_in: Option<(&'static str, u32)>,
    /// Whether stores that are shared with Kubernetes always contain the objects in JSON, even if another media type is
    /// configured.
    pub stored_as_json: bool,
    /// All group versions of the kind. The first is the hub, in which objects are stored.
    pub versions: Vec<Version>,
    /// Whether objects are stored. Objects of some kinds, such as `SubjectAccessReview`, are only posted.
    pub stored: bool,
    /// Discovery verbs of the main resource, ordered by name.
    pub verbs: Vec<&'static str>,
    pub subresources: Vec<Subresource>,
    /// Fields for field selectors, in addition to `metadata.name` and `metadata.namespace`.
    pub selectable: Vec<Selectable>,
    /// Whether the error for an unknown selector field names the kind.
    pub names_itself_in_selectors: bool,
    /// The fields that selectors and claims need. When the log is loaded, only these fields are parsed.
    pub indexed: Glance,
    pub shown: Shown,
    pub generation: Generation,
    /// The fields that a write of the object itself resets, so that the writer does not become their owner. `None`
    /// means the status.
    pub reset_fields: Option<FieldPaths>,
    /// Whether a PUT to a name that does not exist creates the object.
    pub create_on_update: bool,
    /// Whether objects of this kind are deleted first in a terminating namespace.
    pub deleted_first: bool,
    /// Whether an update may leave out `resourceVersion`. Such an update overwrites any version of the object.
    pub unconditional_update: bool,
    /// Whether a delete returns the deleted object. Otherwise it returns a Status.
    pub returns_deleted: bool,
    /// The rule for the names of objects.
    pub name_rule: NameRule,
    /// Metadata rules in addition to the rules for all objects.
    pub metadata: MetadataRules,
    /// The warning for a delete without a propagation policy that orphans dependents by default.
    pub orphan_warning: Option<&'static str>,
    /// Names of objects that are never deleted.
    pub immortal: &'static [&'static str],
    /// The objects that the system needs, as a description and names. Objects with these names cannot be deleted by
    /// name.
    pub system: Option<(&'static str, &'static [&'static str])>,
    /// Whether objects are deleted some time after their last change.
    pub expires: bool,
    /// Whether the server names objects that are created without a name.
    pub named_by_server: bool,
    /// Whether objects of this kind never have dependents, so that a deletion adds no finalizers for them.
    pub independent: bool,
    /// The kind's part in role-based access control.
    pub role: Option<RoleKind>,
    /// How the kind's objects determine which nodes may read which objects.
    pub relation: Option<Relation>,
    /// Whether, and how, objects of this kind register webhooks or policies. Webhooks and policies do not get writes of
    /// such objects.
    pub registers: Option<Registers>,
    /// The question that a kind answers if it is never stored.
    pub question: Option<Question>,
    /// The JSON pointer to the pod spec in objects of this kind.
    pub pods_at: Option<&'static str>,
    /// The amounts that quotas count in addition to the number of objects.
    pub measure: &'static Measure,
    pub hooks: Hooks,
    /// The data of a kind that a CustomResourceDefinition makes; `None` for a built-in kind.
    pub custom: Option<custom::Custom>,
    /// Packs the converted forms of objects of this kind.
    pub(super) packer: Cached<Packer>,
}

/// The changes that `metadata.generation` counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Generation {
    /// `metadata.generation` counts nothing: the creator's value stays.
    Nothing,
    /// Changes of the desired state and of these metadata fields. The count starts at 1.
    Changes { metadata: &'static [&'static str] },
    /// Like [`Generation::Changes`], but a new object has no generation.
    LaterChanges,
}

/// The user, time and version of a request.
pub struct Asking<'a> {
    pub user: &'a User,
    pub now: &'a str,
    pub version: &'a Version,
    pub subresource: &'a str,
}

/// The text of a group version: `apps/v1`, or `v1` for the core group.
pub fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

/// Metadata rules of a kind in addition to the rules for all objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MetadataRules {
    /// Whether a finalizer without a domain must be one of Kubernetes' own.
    pub standard_finalizers: bool,
    pub on_update: MetadataOnUpdate,
}

/// The metadata rules that the kind's own validation repeats on update. Clients see both messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetadataOnUpdate {
    /// The rules for updates are repeated.
    Change,
    /// The rules for new objects are repeated.
    New,
    Nothing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    Cluster,
    Namespaced,
}

pub struct Version {
    pub group: String,
    pub version: String,
    /// The name of the schema message: `io.k8s.api.apps.v1.Deployment`.
    pub message: String,
    /// The schema message, looked up on first use.
    pub(super) message_id: OnceLock<Option<MessageId>>,
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

#[derive(Clone)]
pub struct Subresource {
    /// The name in paths: `status`, `scale`, `log`, `binding`.
    pub name: String,
    /// The group, version and kind of the body, if they differ from the parent's: `Scale` in `autoscaling/v1`.
    pub body: Option<(String, String, String)>,
    /// The verbs in discovery: `get`, `patch`, `update`, `create`.
    pub verbs: Vec<&'static str>,
    /// The fields that `scale` shows; `None` for other subresources.
    pub scale: Option<ScalePaths>,
    /// The rules for a write through the subresource, if they differ from the rules for a new object.
    pub validate: Option<Validate>,
    /// The fields that a write through the subresource resets, so that the writer does not become their owner.
    pub reset_fields: FieldPaths,
}

/// Paths of fields: `&[&["metadata", "labels"]]`.
pub type FieldPaths = &'static [&'static [&'static str]];

/// The type of webhooks, policies or bindings that an object registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Registers {
    MutatingWebhooks,
    ValidatingWebhooks,
    ValidatingPolicy,
    ValidatingBinding,
    MutatingPolicy,
    MutatingBinding,
}

/// The question that a kind answers if it is never stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Question {
    /// The assignment of a pod to a node, posted as a separate object.
    Binding,
    /// The health of cluster components.
    ComponentStatus,
    /// The user of a token.
    TokenReview,
    /// The requesting user.
    SelfSubjectReview,
    /// Whether a user may do something.
    SubjectAccessReview,
    /// Whether a user may do something in the namespace of the path.
    LocalSubjectAccessReview,
    /// Whether the requesting user may do something.
    SelfSubjectAccessReview,
    /// All rules of the requesting user in a namespace.
    SelfSubjectRulesReview,
}

/// The fields shown in `/scale`, as dotted paths.
#[derive(Debug, Clone)]
pub struct ScalePaths {
    pub spec_replicas: String,
    pub status_replicas: String,
    /// The label selector of the status, as an object or a map of labels; `None` if there is no selector.
    pub selector: Option<String>,
}

pub struct Selectable {
    /// The name of the field in selectors: `spec.nodeName`.
    pub field: String,
    /// The only group whose requests may use this name; `None` for all groups. Each group has its own names for the
    /// fields of Event.
    pub group: Option<String>,
    /// Reads the field's value in the hub version, as text. An unset field gives an empty text.
    pub read: Read,
}

pub enum Read {
    With(fn(&Value) -> String),
    /// A scalar at a path, and the value that an unset field has.
    At {
        path: Vec<String>,
        unset: &'static str,
    },
}

/// How a kind is shown in a Table. Without columns of its own it shows Name and Created At.
#[derive(Default)]
pub struct Shown {
    pub columns: Vec<Column>,
    /// The fields that the columns read.
    pub glance: Glance,
    /// Decides whether an object is shown as completed. Returns reason and message of the row's condition `Completed`.
    pub completed: Option<Completed>,
    /// An annotation that represents a field of other versions. It is left out when only metadata is shown.
    pub left_out: Option<&'static str>,
    /// The message whose field descriptions the columns use; empty if the columns describe metadata only.
    pub message: String,
    /// The column definitions as JSON. They are made for the first table, because making them takes milliseconds.
    pub definitions: OnceLock<Vec<u8>>,
}

/// The reason and message for a hub document that is completed; `None` for other documents.
pub type Completed = fn(&Value) -> Option<(&'static str, &'static str)>;

/// One column of the Table form.
pub struct Column {
    /// The name in the header; if it is empty, rows have the cell but the header does not name it.
    pub name: String,
    /// The type of the cells: `string`, `integer`, `date`, `boolean`, `number`.
    pub ty: &'static str,
    /// The format of the cells: `name` for the first column.
    pub format: &'static str,
    pub description: Description,
    /// Columns with priority 0 are always shown, and columns with priority 1 only with `-o wide`.
    pub priority: i32,
    pub cell: Cell,
}

/// A column's description.
pub enum Description {
    Words(String),
    /// The OpenAPI description of the hub version's field at this path.
    Field(&'static str),
}

impl From<&str> for Description {
    fn from(words: &str) -> Self {
        Self::Words(words.into())
    }
}

pub enum Cell {
    /// Reads the hub document. The second argument is the time of the request in seconds since the epoch.
    Read(fn(&Value, i64) -> Value),
    /// A JSONPath, for custom resources.
    Path(String),
}

/// Warnings about an object that is written.
pub type Warnings = fn(&Kind, &Document, Option<&Document>) -> Texts;

/// The rules of one kind. The arguments are the new object and, on update, the old object.
pub type Validate = fn(&Value, Option<&Value>) -> Causes;

/// Functions specific to the kind. All of them work on the hub version.
#[derive(Default, Clone, Copy)]
pub struct Hooks {
    /// Runs after defaults: makes older and newer forms of a field agree.
    pub agree: Option<fn(&mut Value)>,
    /// Runs before a create: sets or clears fields that the client may not set, such as status and phase. `None`: the
    /// status is dropped if the kind has a status subresource.
    pub prepare_create: Option<fn(&mut Value)>,
    /// Runs before an update of the main resource, with the new and the old object. `None`: the status is taken from
    /// the old object if the kind has a status subresource.
    pub prepare_update: Option<fn(&mut Value, &Value)>,
    /// Runs after `prepare_create` or `prepare_update`, and before writes of subresources: records facts about the
    /// request in the object and overrides the client. The arguments are the new object, the old object on update, and
    /// the request.
    pub note: Option<fn(&mut Value, Option<&Value>, &Asking)>,
    /// Rules beyond the schema. The arguments are the new object and, on update, the old object.
    pub validate: Option<Validate>,
    /// Rules for a new object that depend on the labels of its namespace.
    pub in_namespace: Option<fn(&Value, &Value) -> Causes>,
    /// Checks permissions that a write needs beyond its verb on the object, in all write paths: `escalate`, `bind`,
    /// `approve`.
    pub authorize: Option<Authorize>,
    /// Warnings about a valid object on create or update.
    pub warnings: Option<Warnings>,
    /// The claims of an object, as text: `ip/10.0.0.1`.
    pub claims: Option<fn(&Value) -> Vec<String>>,
    /// Runs before every write: allocates claims for the object.
    pub allocate: Option<Allocate>,
    /// The grace period of a delete in seconds; the second argument is the requested period. With this hook, every
    /// object is first marked and then removed. Without it, an object without finalizers is removed at once.
    pub grace_period: Option<fn(&Document, Option<i64>) -> i64>,
    /// Makes further changes when a deletion begins, at the request's time.
    pub begin_delete: Option<fn(&mut Document, &str)>,
    /// Whether something other than metadata finalizers keeps an object that is being deleted.
    pub is_held: Option<fn(&Document) -> bool>,
    /// The destination of subresources that are answered outside the API server: `proxy`, `log`.
    pub leads: Option<Lead>,
    /// Checks the options of a subresource that is answered outside the API server, before any look-up.
    pub connect_options: Option<CheckConnect>,
    /// Removes values specific to this cluster from an export.
    pub export: Option<fn(&mut Document)>,
    /// Fields that depend on feature gates.
    pub gated: &'static [Gated],
    /// Rules that depend on feature gates.
    pub gated_rules: &'static [GatedRule],
    /// Sets `observedGeneration` after the generation is counted. While this gate is off, it removes the field.
    pub observe: Option<(&'static str, Observe)>,
}
