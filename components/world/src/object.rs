//! One object as components see it: its metadata, its view, and its bytes.

use crate::{Interned, InternedList, Time, View, interned, work};
use holdfast_core::object::Body;
use holdfast_value::Value;
use serde::{Deserialize, Deserializer};
use std::any::Any;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// A string that several values may share.
pub type Text = Arc<str>;

/// Identifies an object of a resource by its namespace (empty if the object is cluster-scoped) and its name.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Key {
    pub namespace: Text,
    pub name: Text,
}

impl Key {
    pub fn new(namespace: &str, name: &str) -> Key {
        Key { namespace: interned::text(namespace), name: name.into() }
    }

    /// The key of a cluster-scoped object.
    pub fn cluster(name: &str) -> Key {
        Key::new("", name)
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Key) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Key) -> Ordering {
        // Keys of one namespace mostly share one string for the namespace, so the pointers are compared before the
        // texts.
        let is_near = Arc::ptr_eq(&self.namespace, &other.namespace);
        let namespaces = if is_near { Ordering::Equal } else { self.namespace.cmp(&other.namespace) };
        namespaces.then_with(|| self.name.cmp(&other.name))
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() { f.write_str(&self.name) } else { write!(f, "{}/{}", self.namespace, self.name) }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// The metadata that every object has.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Meta {
    pub name: String,
    pub namespace: String,
    pub uid: String,
    pub resource_version: String,
    pub generation: i64,
    pub generate_name: String,
    pub creation_timestamp: Option<Time>,
    pub deletion_timestamp: Option<Time>,
    pub deletion_grace_period_seconds: Option<i64>,
    #[serde(deserialize_with = "interned::deserialize_interned")]
    pub labels: Interned<BTreeMap<String, String>>,
    #[serde(deserialize_with = "or_default")]
    pub annotations: Interned<BTreeMap<String, String>>,
    #[serde(deserialize_with = "interned::deserialize_interned")]
    pub owner_references: InternedList<OwnerReference>,
    #[serde(deserialize_with = "interned::deserialize_interned")]
    pub finalizers: InternedList<String>,
}

impl Meta {
    pub fn is_deleting(&self) -> bool {
        self.deletion_timestamp.is_some()
    }

    /// The owner that controls the object; `None` if no owner does. An object has at most one such owner.
    pub fn controller(&self) -> Option<&OwnerReference> {
        self.owner_references.iter().find(|owner| owner.controller)
    }

    pub fn is_controlled_by(&self, uid: &str) -> bool {
        self.controller().is_some_and(|owner| owner.uid == uid)
    }

    pub fn label(&self, name: &str) -> Option<&str> {
        self.labels.get(name).map(String::as_str)
    }

    pub fn annotation(&self, name: &str) -> Option<&str> {
        self.annotations.get(name).map(String::as_str)
    }

    pub fn has_finalizer(&self, name: &str) -> bool {
        self.finalizers.iter().any(|finalizer| finalizer == name)
    }
}

/// A reference to an owner of an object.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OwnerReference {
    pub api_version: String,
    pub kind: String,
    pub name: String,
    pub uid: String,
    pub controller: bool,
    pub block_owner_deletion: bool,
}

/// Deserializes the value of a field. If the value is null, the result is the type's default.
pub fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(deserializer: D) -> Result<T, D::Error> {
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

/// One version of an object, with its view. The resource determines the type of the view.
#[derive(Debug)]
pub struct Object {
    pub meta: Meta,
    /// When this version was received, by the clock of the caller that applies changes to the world.
    pub received_at: Time,
    /// The JSON of the object, in the API version that its [`crate::Resource`] names. Copies of the body share the
    /// bytes.
    pub body: Body,
    pub(crate) view: Box<dyn Any + Send + Sync>,
}

impl Object {
    pub fn key(&self) -> Key {
        Key::new(&self.meta.namespace, &self.meta.name)
    }

    /// The object's view; `None` if the object is of another kind.
    pub fn view<V: View>(&self) -> Option<&V> {
        self.view.downcast_ref()
    }

    /// The whole object as a document.
    pub fn document(&self) -> Value {
        let bytes = self.body.bytes();
        work::count_bytes(bytes.len());
        serde_json::from_slice(&bytes).unwrap_or_default()
    }
}
