//! The fields of objects that the scheduler reads, as small typed structs, which are decoded once per event.
//!
//! Decoding never fails. The API server has validated the object; a field that is missing, or not of the expected type,
//! counts as absent.

pub mod device;
pub mod device_claim;
pub mod extended;
pub mod labels;
pub mod node;
pub mod pod;
pub mod requests;
pub mod resources;
pub mod selector;
mod stored_pod;
pub mod taint_rule;
pub mod terms;
pub mod volume;
pub mod workload;

use holdfast_core::object::glance::Glance;
use holdfast_core::schema::quantity;
use holdfast_value::{CompactString, Value};
use std::collections::HashSet;
use std::sync::{Arc, LazyLock};

use holdfast_world::Resource;
pub use holdfast_world::{Key, Text};

/// The kinds of objects on which the scheduler's decisions are based.
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
    DeviceTaintRule,
    Workload,
}

/// How a kind is listed and watched: its group, version, plural and name.
#[derive(Debug, Clone, Copy)]
pub struct KindInfo {
    pub kind: Kind,
    pub group: &'static str,
    /// The API version in which the scheduler reads objects of the kind.
    pub version: &'static str,
    pub plural: &'static str,
    pub name: &'static str,
    pub namespaced: bool,
}

const fn kind_info(
    kind: Kind,
    group: &'static str,
    version: &'static str,
    plural: &'static str,
    name: &'static str,
    namespaced: bool,
) -> KindInfo {
    KindInfo { kind, group, version, plural, name, namespaced }
}

#[rustfmt::skip]
pub const KINDS: [KindInfo; 20] = [
    kind_info(Kind::Pod, "", "v1", "pods", "Pod", true),
    kind_info(Kind::Node, "", "v1", "nodes", "Node", false),
    kind_info(Kind::Namespace, "", "v1", "namespaces", "Namespace", false),
    kind_info(Kind::Service, "", "v1", "services", "Service", true),
    kind_info(Kind::ReplicationController, "", "v1", "replicationcontrollers", "ReplicationController", true),
    kind_info(Kind::ReplicaSet, "apps", "v1", "replicasets", "ReplicaSet", true),
    kind_info(Kind::StatefulSet, "apps", "v1", "statefulsets", "StatefulSet", true),
    kind_info(Kind::PodDisruptionBudget, "policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", true),
    kind_info(Kind::PersistentVolume, "", "v1", "persistentvolumes", "PersistentVolume", false),
    kind_info(Kind::PersistentVolumeClaim, "", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", true),
    kind_info(Kind::StorageClass, "storage.k8s.io", "v1", "storageclasses", "StorageClass", false),
    kind_info(Kind::CsiNode, "storage.k8s.io", "v1", "csinodes", "CSINode", false),
    kind_info(Kind::CsiDriver, "storage.k8s.io", "v1", "csidrivers", "CSIDriver", false),
    kind_info(Kind::CsiStorageCapacity, "storage.k8s.io", "v1", "csistoragecapacities", "CSIStorageCapacity", true),
    kind_info(Kind::VolumeAttachment, "storage.k8s.io", "v1", "volumeattachments", "VolumeAttachment", false),
    kind_info(Kind::ResourceClaim, "resource.k8s.io", "v1", "resourceclaims", "ResourceClaim", true),
    kind_info(Kind::ResourceSlice, "resource.k8s.io", "v1", "resourceslices", "ResourceSlice", false),
    kind_info(Kind::DeviceClass, "resource.k8s.io", "v1", "deviceclasses", "DeviceClass", false),
    kind_info(Kind::DeviceTaintRule, "resource.k8s.io", "v1alpha3", "devicetaintrules", "DeviceTaintRule", false),
    kind_info(Kind::Workload, "scheduling.k8s.io", "v1alpha1", "workloads", "Workload", true),
];

impl KindInfo {
    pub fn resource(&self) -> Resource {
        Resource::new(self.group, self.version, self.plural, self.name, self.namespaced)
    }

    /// Whether the kind is read in this API version. `api_version` is `v1`, or with a group `apps/v1`.
    pub fn has_api_version(&self, api_version: &str) -> bool {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        group == self.group && version == self.version
    }
}

impl Kind {
    /// The kind of this name; `None` if the scheduler reads no kind of this name.
    pub fn named(name: &str) -> Option<Kind> {
        KINDS.iter().find(|kind| kind.name == name).map(|kind| kind.kind)
    }

    /// The paths of the fields that decoding reads from an object. For pods most fields are left out: pods are the most
    /// numerous objects, and most of a pod does not concern the scheduler.
    pub fn glance(self) -> &'static Glance {
        static POD: LazyLock<Glance> = LazyLock::new(|| Glance::only_at(pod::FIELDS));
        match self {
            Kind::Pod => &POD,
            _ => &WHOLE,
        }
    }
}

/// A glance that reads all fields except the managed fields.
pub static WHOLE: LazyLock<Glance> = LazyLock::new(Glance::default);

/// The strings of all objects. Equal strings are stored once. Each time the number of strings has doubled, the strings
/// that no object uses any more are dropped.
#[derive(Debug, Default)]
pub struct StringPool {
    strings: HashSet<Text>,
    sweep_at: usize,
    /// Whether the limits of pods are decoded, which only few plug-ins use.
    pub reads_limits: bool,
    templates: stored_pod::DecodedTemplates,
}

impl StringPool {
    pub fn text(&mut self, text: &str) -> Text {
        if let Some(known) = self.strings.get(text) {
            return known.clone();
        }
        if self.strings.len() >= self.sweep_at {
            self.strings.retain(|text| Arc::strong_count(text) > 1);
            self.sweep_at = (self.strings.len() * 2).max(1024);
        }
        let text: Text = text.into();
        self.strings.insert(text.clone());
        text
    }

    /// The shared string of a field; empty if the field is absent.
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

/// The string of a field; empty if the field is absent.
pub(crate) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("")
}

/// The items of a list; none if the list is absent.
pub(crate) fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().map(Vec::as_slice).unwrap_or_default().iter()
}

/// The entries of a map; none if the map is absent.
pub(crate) fn entries(value: &Value) -> impl Iterator<Item = (&CompactString, &Value)> {
    value.as_object().into_iter().flatten()
}

/// The value of a quantity in whole units, such as bytes; 0 if the quantity is absent or invalid.
pub(crate) fn bytes(value: &Value) -> i128 {
    quantity::whole(text(value)).unwrap_or(0)
}

/// A timestamp as nanoseconds since 1970; `None` if the text is no timestamp.
pub(crate) fn nanoseconds(time: &str) -> Option<i128> {
    let time: jiff::Timestamp = time.parse().ok()?;
    Some(time.as_nanosecond())
}
