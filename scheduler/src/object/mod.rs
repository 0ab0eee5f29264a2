//! What the scheduler reads of objects: small typed views, decoded once an event.
//!
//! Decoding never fails. The API server has judged the object; a field that is not there, or not of the type that it
//! should have, counts as absent.

pub mod device;
pub mod labels;
pub mod node;
pub mod pod;
pub mod requests;
pub mod resources;
pub mod selector;
pub mod terms;
pub mod volume;
pub mod workload;

use serde_json::Value;
use std::collections::HashSet;
use std::sync::Arc;

pub use holdfast_world::{Key, Text};

/// The kinds that decisions rest on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    Pod,
    Node,
    Namespace,
    Service,
    ReplicationController,
    ReplicaSet,
    StatefulSet,
    PodDisruptionBudget,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    CsiNode,
    CsiDriver,
    CsiStorageCapacity,
    VolumeAttachment,
    ResourceClaim,
    ResourceSlice,
    DeviceClass,
    Workload,
}

/// Each kind with its API group, its plural and its name, for whoever lists and watches.
pub const KINDS: [(Kind, &str, &str, &str); 19] = [
    (Kind::Pod, "", "pods", "Pod"),
    (Kind::Node, "", "nodes", "Node"),
    (Kind::Namespace, "", "namespaces", "Namespace"),
    (Kind::Service, "", "services", "Service"),
    (Kind::ReplicationController, "", "replicationcontrollers", "ReplicationController"),
    (Kind::ReplicaSet, "apps", "replicasets", "ReplicaSet"),
    (Kind::StatefulSet, "apps", "statefulsets", "StatefulSet"),
    (Kind::PodDisruptionBudget, "policy", "poddisruptionbudgets", "PodDisruptionBudget"),
    (Kind::PersistentVolume, "", "persistentvolumes", "PersistentVolume"),
    (Kind::PersistentVolumeClaim, "", "persistentvolumeclaims", "PersistentVolumeClaim"),
    (Kind::StorageClass, "storage.k8s.io", "storageclasses", "StorageClass"),
    (Kind::CsiNode, "storage.k8s.io", "csinodes", "CSINode"),
    (Kind::CsiDriver, "storage.k8s.io", "csidrivers", "CSIDriver"),
    (Kind::CsiStorageCapacity, "storage.k8s.io", "csistoragecapacities", "CSIStorageCapacity"),
    (Kind::VolumeAttachment, "storage.k8s.io", "volumeattachments", "VolumeAttachment"),
    (Kind::ResourceClaim, "resource.k8s.io", "resourceclaims", "ResourceClaim"),
    (Kind::ResourceSlice, "resource.k8s.io", "resourceslices", "ResourceSlice"),
    (Kind::DeviceClass, "resource.k8s.io", "deviceclasses", "DeviceClass"),
    (Kind::Workload, "scheduling.k8s.io", "workloads", "Workload"),
];

impl Kind {
    /// The kind of this name; `None` for kinds that the scheduler does not look at.
    pub fn named(name: &str) -> Option<Kind> {
        KINDS.iter().find(|row| row.3 == name).map(|row| row.0)
    }
}

/// Text seen before, so that equal text is kept once. What nobody holds any more goes when the pool has doubled.
#[derive(Debug, Default)]
pub struct Pool {
    seen: HashSet<Text>,
    sweep_at: usize,
}

impl Pool {
    pub fn text(&mut self, text: &str) -> Text {
        if let Some(known) = self.seen.get(text) {
            return known.clone();
        }
        if self.seen.len() >= self.sweep_at {
            self.seen.retain(|text| Arc::strong_count(text) > 1);
            self.sweep_at = (self.seen.len() * 2).max(1024);
        }
        let text: Text = text.into();
        self.seen.insert(text.clone());
        text
    }

    /// The text of a field; empty where there is none.
    pub fn field(&mut self, value: &Value) -> Text {
        self.text(text(value))
    }

    pub fn optional(&mut self, value: &Value) -> Option<Text> {
        value.as_str().filter(|text| !text.is_empty()).map(|text| self.text(text))
    }

    pub fn list(&mut self, value: &Value) -> Vec<Text> {
        items(value).filter_map(Value::as_str).map(|text| self.text(text)).collect()
    }
}

/// A field's text, empty where there is none.
pub(crate) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("")
}

/// The items of a list, none where there is no list.
pub(crate) fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().map(Vec::as_slice).unwrap_or_default().iter()
}

/// The entries of a map, none where there is no map.
pub(crate) fn entries(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

/// Nanoseconds since 1970 of a timestamp.
pub(crate) fn nanoseconds(value: &Value) -> Option<i128> {
    let time: jiff::Timestamp = value.as_str()?.parse().ok()?;
    Some(time.as_nanosecond())
}
