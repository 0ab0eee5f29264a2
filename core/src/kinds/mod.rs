//! What each kind is, as data: names, versions, schema, subresources, columns, defaults and rules.
//!
//! There is one engine for all kinds. A folder a group holds one value a kind; a custom resource makes the
//! same value at run time. Nothing here handles a request.

pub mod admissionregistration;
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
pub mod conversion;
mod convert;
pub mod coordination;
pub mod core;
pub mod custom;
pub mod discovery;
pub mod events;
pub mod extensions;
pub mod flowcontrol;
pub mod internal_apiserver;
pub mod networking;
pub mod node;
pub mod policy;
pub mod rbac;
mod registry;
pub mod resource;
pub(crate) mod rules;
pub mod scheduling;
mod shapes;
pub mod storage;
pub mod storagemigration;

pub(crate) use registry::compare_versions;
pub use registry::{GroupVersions, KindId, Registry, body_message, registry};

use crate::authz::User;
use crate::authz::escalation::Authorize;
use crate::object::glance::Glance;
use crate::refusal::Cause;
use serde_json::{Map, Value};

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
    /// Every group and version that serves this kind. The first one is the hub: objects are stored in it.
    pub versions: Vec<Version>,
    /// False for kinds that are only ever posted (`SubjectAccessReview`): nothing is stored.
    pub stored: bool,
    /// Discovery verbs of the main resource, ordered by name.
    pub verbs: Vec<&'static str>,
    pub subresources: Vec<Subresource>,
    /// Fields that a field selector may name beside `metadata.name` and `metadata.namespace`.
    pub selectable: Vec<Selectable>,
    /// What selectors and claims look at: of stored objects a start reads that and no more.
    pub indexed: Glance,
    pub shown: Shown,
    /// Whether `metadata.generation` counts changes of the desired state.
    pub generation: bool,
    /// A PUT to a name that is free creates the object.
    pub create_on_update: bool,
    /// A namespace that goes away is rid of these before of anything else.
    pub deleted_first: bool,
    /// An update may leave out `resourceVersion`, and then overwrites whatever is there.
    pub unconditional_update: bool,
    pub hooks: Hooks,
    /// Present for a kind that a CustomResourceDefinition makes.
    pub custom: Option<custom::Custom>,
}

/// `apps/v1`, or `v1` for the core group.
pub fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
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
    /// How this version differs from the hub, where more than `apiVersion` does.
    pub convert: Option<Convert>,
    /// Present for the versions of a kind that a CustomResourceDefinition makes.
    pub custom: Option<Box<custom::CustomVersion>>,
}

/// Conversion of whole documents, in place. `apiVersion` and `kind` are set by the caller.
#[derive(Clone, Copy)]
pub struct Convert {
    pub to_hub: fn(&mut Map<String, Value>),
    pub from_hub: fn(&mut Map<String, Value>),
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
}

/// One column of the Table form.
pub struct Column {
    pub name: String,
    /// `string`, `integer`, `date`, `boolean`, `number`.
    pub ty: &'static str,
    /// `name` for the first column.
    pub format: &'static str,
    pub description: String,
    /// 0 shows always, 1 only with `-o wide`.
    pub priority: i32,
    pub cell: Cell,
}

pub enum Cell {
    /// Reads the hub document; the time is the request's stamp, in seconds since the epoch.
    Read(fn(&Value, i64) -> Value),
    /// A JSONPath, for custom resources.
    Path(String),
}

/// Rules of one kind: `(new, old on update)`.
pub type Validate = fn(&Value, Option<&Value>) -> Vec<Cause>;

/// The few functions that only this kind needs. All work on the hub version.
#[derive(Default, Clone, Copy)]
pub struct Hooks {
    /// Before create: fields that the client may not set are set or cleared (status, phases).
    /// `None`: `status` is dropped when the kind has a status subresource.
    pub prepare_create: Option<fn(&mut Value)>,
    /// Before create: who asks is written into the object, whatever it says itself.
    pub sign: Option<fn(&mut Value, &User)>,
    /// Before update of the main resource: `(new, old)`.
    /// `None`: `status` is taken from the old object when the kind has a status subresource.
    pub prepare_update: Option<fn(&mut Value, &Value)>,
    /// Rules beyond the schema: `(new, old on update)`.
    pub validate: Option<Validate>,
    /// What a write needs beside its verb on the object, on all paths that write: `escalate`, `bind`, `approve`.
    pub authorize: Option<Authorize>,
    /// What only one object of the cluster may hold, as text: `ip/10.0.0.1`.
    pub claims: Option<fn(&Value) -> Vec<String>>,
}
