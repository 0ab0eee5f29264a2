//! What each kind is, as data: names, versions, schema, subresources, columns, defaults and rules.
//!
//! There is one engine for all kinds. A folder a group holds one value a kind; a custom resource makes the
//! same value at run time. Nothing here handles a request.

pub mod admissionregistration;
mod allocate;
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

/// A kind that the server serves: one stored object type, however many groups and versions show it.
pub struct Kind {
    /// `Deployment`.
    pub kind: String,
    /// Plural, lower case: `deployments`.
    pub resource: String,
    pub singular: String,
    pub short_names: Vec<String>,
    pub categories: Vec<String>,
    pub scope: Scope,
    /// Where objects of this kind stand below the storage prefix: `deployments`, `services/specs`.
    pub storage: String,
    /// The version of the hub's group in which stores that are shared with Kubernetes hold them up to a minor release,
    /// where that is not the one that [`Kind::stored_version`] finds.
    pub stored_in: Option<(&'static str, u32)>,
    /// Such stores hold them in JSON, whatever is asked for.
    pub stored_as_json: bool,
    /// Every group and version that serves this kind. The first one is the hub: objects are stored in it.
    pub versions: Vec<Version>,
    /// False for kinds that are only ever posted (`SubjectAccessReview`): nothing is stored.
    pub stored: bool,
    /// Discovery verbs of the main resource, ordered by name.
    pub verbs: Vec<&'static str>,
    pub subresources: Vec<Subresource>,
    /// Fields that a field selector may name beside `metadata.name` and `metadata.namespace`.
    pub selectable: Vec<Selectable>,
    /// Who selects by another field is told of which kind it is none.
    pub names_itself_in_selectors: bool,
    /// What selectors and claims look at: of stored objects a start reads that and no more.
    pub indexed: Glance,
    pub shown: Shown,
    pub generation: Generation,
    /// What a write of the object itself leaves as it was, so that nobody comes to own it by that; `None`: the status.
    pub reset_fields: Option<FieldPaths>,
    /// A PUT to a name that is free creates the object.
    pub create_on_update: bool,
    /// A namespace that goes away is rid of these before of anything else.
    pub deleted_first: bool,
    /// An update may leave out `resourceVersion`, and then overwrites whatever is there.
    pub unconditional_update: bool,
    /// A delete answers with the object that was; else with a Status.
    pub returns_deleted: bool,
    /// Which rule the names of its objects obey.
    pub name_rule: NameRule,
    /// What it asks of metadata beyond what all objects do.
    pub metadata: MetadataRules,
    /// What whoever deletes an object is to know when what it owns stays because they did not say otherwise.
    pub orphan_warning: Option<&'static str>,
    /// Names of objects that are never deleted.
    pub immortal: &'static [&'static str],
    /// What is said of objects that the system itself needs, and their names: nobody deletes them one by one.
    pub system: Option<(&'static str, &'static [&'static str])>,
    /// Its objects go some time after their last change.
    pub expires: bool,
    /// An object without a name gets one.
    pub named_by_server: bool,
    /// Nothing depends on its objects, so a deletion says nothing of dependents.
    pub independent: bool,
    /// Its part in role-based access control.
    pub role: Option<RoleKind>,
    /// What its objects say of the nodes that may see them and others.
    pub relation: Option<Relation>,
    /// Its objects say who looks at writes; writes of them nobody else looks at.
    pub registers: Option<Registers>,
    /// What a kind that is never stored asks for.
    pub question: Option<Question>,
    /// Where its objects hold the spec of a pod, as a JSON pointer.
    pub pods_at: Option<&'static str>,
    /// What quotas count of its objects, beside their number.
    pub measure: &'static Measure,
    pub hooks: Hooks,
    /// Present for a kind that a CustomResourceDefinition makes.
    pub custom: Option<custom::Custom>,
    /// What the other forms of its objects say alike is kept once.
    pub(super) packer: Mutex<Packer>,
}

/// What `metadata.generation` counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Generation {
    /// Nothing: it stays what whoever made the object wrote.
    Nothing,
    /// Changes of the desired state, from 1 on, and of these fields of the metadata.
    Changes { metadata: &'static [&'static str] },
    /// The same, but a new object has none yet.
    LaterChanges,
}

/// Who asks, when, in which version of the kind and through which subresource, which is empty for none.
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

/// What a kind asks of metadata beyond what all objects do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MetadataRules {
    /// Finalizers without a domain are the few that Kubernetes knows.
    pub standard_finalizers: bool,
    pub on_update: MetadataOnUpdate,
}

/// What a kind's own rules say of the metadata that an update brings, after those of all objects: clients see both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetadataOnUpdate {
    /// The same once more.
    Change,
    /// What they say of a new object's.
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
    /// The message of that name, looked up on first use.
    pub(super) message_id: OnceLock<Option<MessageId>>,
    /// How this version differs from the hub, where more than `apiVersion` does.
    pub convert: Option<Convert>,
    /// The rules for writes through this version, where they are not the kind's.
    pub validate: Option<Validate>,
    /// A delete through this version leaves what the object owns, unless the request says otherwise.
    pub orphans_dependents: bool,
    /// Present for a version of the built-in API that clients should leave.
    pub deprecation: Option<&'static Deprecation>,
    /// Present for the versions of a kind that a CustomResourceDefinition makes.
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
    /// Kind of its body, where it is not the parent's: `Scale` in `autoscaling/v1`.
    pub body: Option<(String, String, String)>,
    /// Discovery verbs: `get`, `patch`, `update`, `create`.
    pub verbs: Vec<&'static str>,
    /// Present for `scale`.
    pub scale: Option<ScalePaths>,
    /// Rules for a write through it, where they are not those of a new object: `(new, old)`.
    pub validate: Option<Validate>,
    /// What a write through it leaves as it was, so that nobody comes to own it by that.
    pub reset_fields: FieldPaths,
}

/// Fields, each as the names that lead to it: `&[&["metadata", "labels"]]`.
pub type FieldPaths = &'static [&'static [&'static str]];

/// Who comes to look at writes by an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Registers {
    MutatingWebhooks,
    ValidatingWebhooks,
    ValidatingPolicy,
    ValidatingBinding,
    MutatingPolicy,
    MutatingBinding,
}

/// What a kind that is never stored asks for: whoever answers it is told by this which kind it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Question {
    /// A pod's assignment to a node, posted as an object of its own.
    Binding,
    /// Whether the cluster's parts are healthy.
    ComponentStatus,
    /// Whose token this is.
    TokenReview,
    /// Who asks.
    SelfSubjectReview,
    /// Whether somebody may do something.
    SubjectAccessReview,
    /// The same within the namespace of the path.
    LocalSubjectAccessReview,
    /// Whether who asks may do something.
    SelfSubjectAccessReview,
    /// All that who asks may do in a namespace.
    SelfSubjectRulesReview,
}

/// Where a kind keeps what `/scale` shows, as dotted paths.
#[derive(Debug, Clone)]
pub struct ScalePaths {
    pub spec_replicas: String,
    pub status_replicas: String,
    /// The label selector of the status, as an object or a map of labels; `None`: no selector.
    pub selector: Option<String>,
}

pub struct Selectable {
    /// As the selector names it: `spec.nodeName`.
    pub field: String,
    /// The one group whose requests may use this name; `None`: all. An Event has other names in each group.
    pub group: Option<String>,
    /// Its value in the hub version, as text; empty when unset.
    pub read: Read,
}

pub enum Read {
    With(fn(&Value) -> String),
    /// A scalar at these fields, one within the other, and what it means that it is not there.
    At {
        path: Vec<String>,
        unset: &'static str,
    },
}

/// How a kind looks in a Table. Without columns of its own it shows Name and Created At.
#[derive(Default)]
pub struct Shown {
    pub columns: Vec<Column>,
    /// What the columns look at.
    pub glance: Glance,
    /// Whether a row is of an object that has run to its end: reason and message of the row's condition `Completed`.
    pub completed: Option<Completed>,
    /// An annotation that stands for a field of other versions, which metadata alone does not show.
    pub left_out: Option<&'static str>,
    /// The schema's name of what the columns read, for their descriptions; empty where they describe metadata alone.
    pub message: String,
    /// What the columns tell of themselves, as JSON: made when the first table is, since it takes milliseconds.
    pub definitions: OnceLock<Vec<u8>>,
}

/// Reason and message, read from the hub document.
pub type Completed = fn(&Value) -> Option<(&'static str, &'static str)>;

/// One column of the Table form.
pub struct Column {
    /// Empty: rows have its cell, but the headers do not name it.
    pub name: String,
    /// `string`, `integer`, `date`, `boolean`, `number`.
    pub ty: &'static str,
    /// `name` for the first column.
    pub format: &'static str,
    pub description: Description,
    /// 0 shows always, 1 only with `-o wide`.
    pub priority: i32,
    pub cell: Cell,
}

/// What a column tells of itself.
pub enum Description {
    Words(String),
    /// The words that the field at this dotted path of the hub version has in OpenAPI.
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

/// What is to be told of an object that is written.
pub type Warnings = fn(&Kind, &Document, Option<&Document>) -> Texts;

/// Rules of one kind: `(new, old on update)`.
pub type Validate = fn(&Value, Option<&Value>) -> Causes;

/// The few functions that only this kind needs. All work on the hub version.
#[derive(Default, Clone, Copy)]
pub struct Hooks {
    /// Behind the defaults: fields that say the same in an older and a newer way are made to agree.
    pub agree: Option<fn(&mut Value)>,
    /// Before create: fields that the client may not set are set or cleared (status, phases).
    /// `None`: `status` is dropped when the kind has a status subresource.
    pub prepare_create: Option<fn(&mut Value)>,
    /// Before update of the main resource: `(new, old)`.
    /// `None`: `status` is taken from the old object when the kind has a status subresource.
    pub prepare_update: Option<fn(&mut Value, &Value)>,
    /// Behind both, and before writes through subresources: what the request tells beside its body is noted in the
    /// object, whatever it says itself: `(new, old on update, asking)`.
    pub note: Option<fn(&mut Value, Option<&Value>, &Asking)>,
    /// Rules beyond the schema: `(new, old on update)`.
    pub validate: Option<Validate>,
    /// Rules of a new object that ask for the labels of its namespace.
    pub in_namespace: Option<fn(&Value, &Value) -> Causes>,
    /// What a write needs beside its verb on the object, on all paths that write: `escalate`, `bind`, `approve`.
    pub authorize: Option<Authorize>,
    /// What whoever creates or updates the object is to know, though nothing is wrong with it.
    pub warnings: Option<Warnings>,
    /// What only one object of the cluster may hold, as text: `ip/10.0.0.1`.
    pub claims: Option<fn(&Value) -> Vec<String>>,
    /// Before every write: completes the object with what it is to hold of that.
    pub allocate: Option<Allocate>,
    /// Seconds that a delete leaves an object to stop, of what the request asks for. With it every object is first
    /// marked and then removed; without it an object goes at once, unless a finalizer holds it.
    pub grace_period: Option<fn(&Document, Option<i64>) -> i64>,
    /// When a deletion begins: what it changes beside the metadata. With the time of the request.
    pub begin_delete: Option<fn(&mut Document, &str)>,
    /// Whether something beside the finalizers of the metadata holds back an object that is being deleted.
    pub is_held: Option<fn(&Document) -> bool>,
    /// Where subresources lead that are answered by something behind the API: `proxy`, `log`.
    pub leads: Option<Lead>,
    /// Checks the options of such a subresource before anything is looked up.
    pub connect_options: Option<CheckConnect>,
    /// What an export leaves out, because this one cluster had given it.
    pub export: Option<fn(&mut Document)>,
    /// Fields that hang on gates.
    pub gated: &'static [Gated],
    /// Rules that do.
    pub gated_rules: &'static [GatedRule],
    /// Says which generation the server has seen, once it is counted, or takes that away while this gate is off.
    pub observe: Option<(&'static str, Observe)>,
}
