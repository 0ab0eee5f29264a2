//! The definitions of the kinds, as data: names, versions, schema, subresources, columns, defaults and rules.
//!
//! One engine serves all kinds. Each group has a folder with a value for each kind; a CustomResourceDefinition makes
//! the same value at run time. Nothing here handles requests.

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
use crate::object::Packer;
use crate::object::glance::Glance;
use crate::object::meta::Document;
use crate::object::names::NameRule;
use crate::quota::Measure;
use crate::refusal::{Causes, Texts};
use crate::schema::MessageId;
use holdfast_value::{Map, Value};
use std::sync::{Mutex, OnceLock};

/// A served kind: one stored object type, in any number of groups and versions.
pub struct Kind {
    /// `Deployment`.
    pub kind: String,
    /// Plural, lower case: `deployments`.
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
    /// False for kinds that are only ever posted (`SubjectAccessReview`): nothing is stored.
    pub stored: bool,
    /// Discovery verbs of the main resource, ordered by name.
    pub verbs: Vec<&'static str>,
    pub subresources: Vec<Subresource>,
    /// Fields for field selectors besides `metadata.name` and `metadata.namespace`.
    pub selectable: Vec<Selectable>,
    /// The error for an unknown selector field names the kind.
    pub names_itself_in_selectors: bool,
    /// The fields that selectors and claims need; loading the log parses only these.
    pub indexed: Glance,
    pub shown: Shown,
    pub generation: Generation,
    /// The fields that a write of the object itself resets, so that the writer does not become their owner; `None`: the
    /// status.
    pub reset_fields: Option<FieldPaths>,
    /// A PUT to a name that does not exist creates the object.
    pub create_on_update: bool,
    /// Whether objects of this kind are deleted first in a terminating namespace.
    pub deleted_first: bool,
    /// Whether an update may leave out `resourceVersion`. Then it overwrites any version of the object.
    pub unconditional_update: bool,
    /// A delete returns the deleted object; otherwise a Status.
    pub returns_deleted: bool,
    /// The rule for the names of its objects.
    pub name_rule: NameRule,
    /// Metadata rules beyond those for all objects.
    pub metadata: MetadataRules,
    /// The warning when a delete orphans dependents by default, without a propagation policy.
    pub orphan_warning: Option<&'static str>,
    /// Names of objects that are never deleted.
    pub immortal: &'static [&'static str],
    /// A description and the names of objects that the system needs: they cannot be deleted by name.
    pub system: Option<(&'static str, &'static [&'static str])>,
    /// Whether objects are deleted some time after their last change.
    pub expires: bool,
    /// The server names an object without a name.
    pub named_by_server: bool,
    /// Whether objects of this kind never have dependents, so that a deletion adds no finalizers for them.
    pub independent: bool,
    /// The kind's part in role-based access control.
    pub role: Option<RoleKind>,
    /// How the kind's objects determine which nodes may read which objects.
    pub relation: Option<Relation>,
    /// Set if objects of this kind register webhooks or policies. Webhooks and policies do not get writes of these
    /// objects.
    pub registers: Option<Registers>,
    /// The question that a kind answers if it is never stored.
    pub question: Option<Question>,
    /// The JSON pointer to the pod spec in its objects.
    pub pods_at: Option<&'static str>,
    /// The amounts that quotas count in addition to the number of objects.
    pub measure: &'static Measure,
    pub hooks: Hooks,
    /// Present for a kind that a CustomResourceDefinition makes.
    pub custom: Option<custom::Custom>,
    /// Packs the converted forms of its objects.
    pub(super) packer: Mutex<Packer>,
}

/// The changes that `metadata.generation` counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Generation {
    /// Nothing: the creator's value stays.
    Nothing,
    /// Changes of the desired state and of these metadata fields, starting at 1.
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

/// `apps/v1`, or `v1` for the core group.
pub fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

/// Metadata rules of a kind beyond those for all objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MetadataRules {
    /// Finalizers without a domain must be among Kubernetes' own.
    pub standard_finalizers: bool,
    pub on_update: MetadataOnUpdate,
}

/// Which metadata rules the kind's own validation repeats on update; clients see both messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetadataOnUpdate {
    /// The rules for updates.
    Change,
    /// The rules for new objects.
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
    /// Name of the schema message: `io.k8s.api.apps.v1.Deployment`.
    pub message: String,
    /// The message with that name, looked up on first use.
    pub(super) message_id: OnceLock<Option<MessageId>>,
    /// How this version differs from the hub beyond `apiVersion`.
    pub convert: Option<Convert>,
    /// The rules for writes through this version, if different from the kind's.
    pub validate: Option<Validate>,
    /// A delete through this version orphans dependents by default.
    pub orphans_dependents: bool,
    /// Set for a deprecated version of the built-in API.
    pub deprecation: Option<&'static Deprecation>,
    /// Set for versions of custom kinds.
    pub custom: Option<Box<custom::CustomVersion>>,
}

/// Conversion of whole documents, in place. `apiVersion` and `kind` are set by the caller.
#[derive(Clone, Copy)]
pub struct Convert {
    pub to_hub: fn(&mut Map),
    pub from_hub: fn(&mut Map),
}

#[derive(Clone)]
pub struct Subresource {
    /// `status`, `scale`, `log`, `binding`…
    pub name: String,
    /// The kind of its body if different from the parent: `Scale` in `autoscaling/v1`.
    pub body: Option<(String, String, String)>,
    /// Discovery verbs: `get`, `patch`, `update`, `create`.
    pub verbs: Vec<&'static str>,
    /// Set for `scale`.
    pub scale: Option<ScalePaths>,
    /// The rules for a write through the subresource, if they differ from the rules for a new object: `(new, old)`.
    pub validate: Option<Validate>,
    /// The fields that a write through it resets, so that the writer does not become their owner.
    pub reset_fields: FieldPaths,
}

/// Paths of fields: `&[&["metadata", "labels"]]`.
pub type FieldPaths = &'static [&'static [&'static str]];

/// The kind of webhooks, policy or binding that an object registers.
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
    /// Assigns a pod to a node, posted as a separate object.
    Binding,
    /// The health of cluster components.
    ComponentStatus,
    /// The user of a token.
    TokenReview,
    /// The requesting user.
    SelfSubjectReview,
    /// Whether a user may do something.
    SubjectAccessReview,
    /// The same within the namespace of the path.
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
    /// The label selector of the status, as an object or a map of labels; `None`: no selector.
    pub selector: Option<String>,
}

pub struct Selectable {
    /// The name of the field in selectors: `spec.nodeName`.
    pub field: String,
    /// The only group in whose requests this name is valid; `None`: all. Event has other names in each group.
    pub group: Option<String>,
    /// Reads the field's value in the hub version, as text; empty if unset.
    pub read: Read,
}

pub enum Read {
    With(fn(&Value) -> String),
    /// A scalar at a path, and the value if it is unset.
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
    /// Says whether an object is shown as completed: reason and message of the row's condition `Completed`.
    pub completed: Option<Completed>,
    /// An annotation that represents a field of other versions, and is not shown in metadata alone.
    pub left_out: Option<&'static str>,
    /// The message that the columns read, for their descriptions; empty if they describe metadata only.
    pub message: String,
    /// The column definitions as JSON, made with the first table since that takes milliseconds.
    pub definitions: OnceLock<Vec<u8>>,
}

/// Returns reason and message for a hub document.
pub type Completed = fn(&Value) -> Option<(&'static str, &'static str)>;

/// One column of the Table form.
pub struct Column {
    /// The name in the header; if it is empty, rows have the cell but the header does not name it.
    pub name: String,
    /// `string`, `integer`, `date`, `boolean`, `number`.
    pub ty: &'static str,
    /// `name` for the first column.
    pub format: &'static str,
    pub description: Description,
    /// Columns with priority 0 are always shown, those with 1 only with `-o wide`.
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
    /// Reads the hub document; the time is the request's stamp, in seconds since the epoch.
    Read(fn(&Value, i64) -> Value),
    /// A JSONPath, for custom resources.
    Path(String),
}

/// Warnings about an object that is written.
pub type Warnings = fn(&Kind, &Document, Option<&Document>) -> Texts;

/// Rules of one kind: `(new, old on update)`.
pub type Validate = fn(&Value, Option<&Value>) -> Causes;

/// Functions specific to the kind. All work on the hub version.
#[derive(Default, Clone, Copy)]
pub struct Hooks {
    /// After defaults: makes older and newer forms of a field agree.
    pub agree: Option<fn(&mut Value)>,
    /// Before create: fields that the client may not set are set or cleared (status, phases).
    /// `None`: `status` is dropped when the kind has a status subresource.
    pub prepare_create: Option<fn(&mut Value)>,
    /// Before update of the main resource: `(new, old)`.
    /// `None`: `status` is taken from the old object when the kind has a status subresource.
    pub prepare_update: Option<fn(&mut Value, &Value)>,
    /// After both, and before writes of subresources: records facts about the request in the object, overriding the
    /// client: `(new, old on update, asking)`.
    pub note: Option<fn(&mut Value, Option<&Value>, &Asking)>,
    /// Rules beyond the schema: `(new, old on update)`.
    pub validate: Option<Validate>,
    /// Rules for a new object that depend on the labels of its namespace.
    pub in_namespace: Option<fn(&Value, &Value) -> Causes>,
    /// Permissions that a write needs beyond its verb on the object, in all write paths: `escalate`, `bind`, `approve`.
    pub authorize: Option<Authorize>,
    /// Warnings about a valid object on create or update.
    pub warnings: Option<Warnings>,
    /// The claims of an object, as text: `ip/10.0.0.1`.
    pub claims: Option<fn(&Value) -> Vec<String>>,
    /// Before every write: allocates claims for the object.
    pub allocate: Option<Allocate>,
    /// The grace period of a delete in seconds, given the requested one. With this hook, every object is first marked
    /// and then removed; without it, an object without finalizers is removed at once.
    pub grace_period: Option<fn(&Document, Option<i64>) -> i64>,
    /// Further changes when a deletion begins, at the request's time.
    pub begin_delete: Option<fn(&mut Document, &str)>,
    /// Whether something other than metadata finalizers keeps an object that is being deleted.
    pub is_held: Option<fn(&Document) -> bool>,
    /// The destination of subresources answered outside the API server: `proxy`, `log`.
    pub leads: Option<Lead>,
    /// Checks the options of such a subresource before any look-up.
    pub connect_options: Option<CheckConnect>,
    /// Removes values specific to this cluster from an export.
    pub export: Option<fn(&mut Document)>,
    /// Fields that depend on feature gates.
    pub gated: &'static [Gated],
    /// Rules that depend on feature gates.
    pub gated_rules: &'static [GatedRule],
    /// Sets `observedGeneration` after the generation is counted, or removes it while this gate is off.
    pub observe: Option<(&'static str, Observe)>,
}
