//! Cluster events: changes of objects that may make waiting pods schedulable, and the names of these events in metrics.

use super::table::BeforeAfter;
use crate::object::node::Node;
use crate::object::pod::Pod;
use crate::object::{Key, Kind, device_claim, volume};
use std::sync::Arc;

/// The change of one object, which may make waiting pods schedulable.
#[derive(Debug, Clone)]
pub struct ClusterEvent {
    pub kind: Kind,
    pub key: Key,
    pub change: ObjectChange,
}

/// The object before and after its change; for most kinds only whether it existed before and exists now.
#[derive(Debug, Clone)]
pub enum ObjectChange {
    Pod(Option<Arc<Pod>>, Option<Arc<Pod>>),
    Node(Option<Arc<Node>>, Option<Arc<Node>>),
    Volume(Option<Arc<volume::Volume>>, Option<Arc<volume::Volume>>),
    StorageClass(Option<Arc<volume::Class>>, Option<Arc<volume::Class>>),
    CsiNode(Option<Arc<volume::CsiNode>>, Option<Arc<volume::CsiNode>>),
    CsiDriver(Option<Arc<bool>>, Option<Arc<bool>>),
    Capacity(Option<Arc<volume::Capacity>>, Option<Arc<volume::Capacity>>),
    DeviceClaim(Option<Arc<device_claim::Claim>>, Option<Arc<device_claim::Claim>>),
    Other { before: bool, after: bool },
}

impl ObjectChange {
    /// The change of an object of which queueing hints need only its existence.
    pub(super) fn other<T>((before, after): BeforeAfter<T>) -> ObjectChange {
        ObjectChange::Other { before: before.is_some(), after: after.is_some() }
    }

    /// The event for this change of an object; `None` if the object did not exist before and does not exist now.
    pub(super) fn event(self, kind: Kind, key: &Key) -> Option<ClusterEvent> {
        (self.presence() != (false, false)).then(|| ClusterEvent { kind, key: key.clone(), change: self })
    }

    /// Whether the object existed before, and whether it exists now.
    pub fn presence(&self) -> (bool, bool) {
        fn both<T>(one: &Option<T>, other: &Option<T>) -> (bool, bool) {
            (one.is_some(), other.is_some())
        }
        match self {
            ObjectChange::Pod(before, after) => both(before, after),
            ObjectChange::Node(before, after) => both(before, after),
            ObjectChange::Volume(before, after) => both(before, after),
            ObjectChange::StorageClass(before, after) => both(before, after),
            ObjectChange::CsiNode(before, after) => both(before, after),
            ObjectChange::CsiDriver(before, after) => both(before, after),
            ObjectChange::Capacity(before, after) => both(before, after),
            ObjectChange::DeviceClaim(before, after) => both(before, after),
            ObjectChange::Other { before, after } => (*before, *after),
        }
    }
}

/// The names in metrics of the events of one kind: for an object that was added, changed or deleted.
type EventLabels = [&'static str; 3];

impl ClusterEvent {
    /// Whether the event is about an object other than a pod, or about a pod that is or was on a node or nominated to a
    /// node.
    pub fn concerns_nodes(&self) -> bool {
        let is_on_node = |pod: &Arc<Pod>| pod.node_name.is_some() || pod.nominated.is_some();
        match &self.change {
            ObjectChange::Pod(before, after) => before.iter().chain(after).any(is_on_node),
            _ => true,
        }
    }

    /// The event's name in metrics. Returns `None` if no waiting pod reacts to such events.
    pub fn label(&self) -> Option<&'static str> {
        match &self.change {
            ObjectChange::Pod(before, after) => pod_label(before.as_deref(), after.as_deref()),
            ObjectChange::Node(Some(before), Some(after)) => node_label(before, after),
            change => {
                let (before, after) = change.presence();
                let at = match (before, after) {
                    (false, _) => 0,
                    (true, true) => 1,
                    (true, false) => 2,
                };
                labels(self.kind).map(|labels| labels[at])
            }
        }
    }
}

#[rustfmt::skip]
fn labels(kind: Kind) -> Option<EventLabels> {
    Some(match kind {
        Kind::Node => ["NodeAdd", "NodeUpdate", "NodeDelete"],
        Kind::Service => ["ServiceAdd", "ServiceUpdate", "ServiceDelete"],
        Kind::PersistentVolume => ["PersistentVolumeAdd", "PersistentVolumeUpdate", "PersistentVolumeDelete"],
        Kind::PersistentVolumeClaim =>
            ["PersistentVolumeClaimAdd", "PersistentVolumeClaimUpdate", "PersistentVolumeClaimDelete"],
        Kind::StorageClass =>
            ["storage.k8s.io/StorageClassAdd", "storage.k8s.io/StorageClassUpdate", "storage.k8s.io/StorageClassDelete"],
        Kind::CsiNode => ["storage.k8s.io/CSINodeAdd", "storage.k8s.io/CSINodeUpdate", "storage.k8s.io/CSINodeDelete"],
        Kind::CsiDriver =>
            ["storage.k8s.io/CSIDriverAdd", "storage.k8s.io/CSIDriverUpdate", "storage.k8s.io/CSIDriverDelete"],
        Kind::CsiStorageCapacity => [
            "storage.k8s.io/CSIStorageCapacityAdd",
            "storage.k8s.io/CSIStorageCapacityUpdate",
            "storage.k8s.io/CSIStorageCapacityDelete",
        ],
        Kind::VolumeAttachment => [
            "storage.k8s.io/VolumeAttachmentAdd",
            "storage.k8s.io/VolumeAttachmentUpdate",
            "storage.k8s.io/VolumeAttachmentDelete",
        ],
        Kind::ResourceClaim => [
            "resource.k8s.io/ResourceClaimAdd",
            "resource.k8s.io/ResourceClaimUpdate",
            "resource.k8s.io/ResourceClaimDelete",
        ],
        Kind::ResourceSlice => [
            "resource.k8s.io/ResourceSliceAdd",
            "resource.k8s.io/ResourceSliceUpdate",
            "resource.k8s.io/ResourceSliceDelete",
        ],
        // A DeviceTaintRule taints the devices of slices, so in metrics its change counts as a change of a slice.
        Kind::DeviceTaintRule => ["resource.k8s.io/ResourceSliceUpdate"; 3],
        Kind::DeviceClass =>
            ["resource.k8s.io/DeviceClassAdd", "resource.k8s.io/DeviceClassUpdate", "resource.k8s.io/DeviceClassDelete"],
        Kind::Workload =>
            ["scheduling.k8s.io/WorkloadAdd", "scheduling.k8s.io/WorkloadUpdate", "scheduling.k8s.io/WorkloadDelete"],
        _ => return None,
    })
}

/// The name in metrics of a node's change; `None` if nothing changed that matters to pods. If several properties
/// changed, the first in the list gives the name.
fn node_label(before: &Node, after: &Node) -> Option<&'static str> {
    let changes = [
        (before.unschedulable && !after.unschedulable, "NodeUpdateNodeTaint"),
        (before.allocatable != after.allocatable, "NodeUpdateNodeAllocatable"),
        (before.labels != after.labels, "NodeUpdateNodeLabel"),
        (before.taints != after.taints, "NodeUpdateNodeTaint"),
        (before.conditions != after.conditions, "NodeUpdateNodeCondition"),
    ];
    changes.into_iter().find(|(changed, _)| *changed).map(|(_, label)| label)
}

fn pod_label(before: Option<&Pod>, after: Option<&Pod>) -> Option<&'static str> {
    let is_assigned = |pod: &Pod| pod.node_name.is_some();
    let either =
        |pod: &Pod, assigned: &'static str, other: &'static str| if is_assigned(pod) { assigned } else { other };
    let (before, after) = match (before, after) {
        (None, None) => return None,
        (Some(pod), None) => return Some(either(pod, "AssignedPodDelete", "UnschedulablePodDelete")),
        (Some(before), Some(after)) if before.uid == after.uid && is_assigned(before) == is_assigned(after) => {
            (before, after)
        }
        (_, Some(pod)) => return Some(either(pod, "AssignedPodAdd", "UnschedulablePodAdd")),
    };
    let (was, is) = (&before.template, &after.template);
    let changes = [
        (was.labels != is.labels, "AssignedPodUpdatePodLabel", "UnschedulablePodUpdatePodLabel"),
        (
            after.effective_requests().is_less_in_any(before.effective_requests()),
            "AssignedPodUpdatePodScaleDown",
            "UnschedulablePodUpdatePodScaleDown",
        ),
        (
            !before.gates.is_empty() && after.gates.is_empty(),
            "AssignedPodUpdatePodSchedulingGatesEliminated",
            "UnschedulablePodUpdatePodSchedulingGatesEliminated",
        ),
        (was.tolerations != is.tolerations, "AssignedPodUpdatePodToleration", "UnschedulablePodUpdatePodToleration"),
        (
            before.generated_claims != after.generated_claims,
            "AssignedPodUpdatePodGeneratedResourceClaim",
            "UnschedulablePodUpdatePodGeneratedResourceClaim",
        ),
    ];
    let found = changes.into_iter().find(|(changed, ..)| *changed);
    let (_, assigned, other) = found.unwrap_or((true, "AssignedPodUpdate", "UnschedulablePodUpdate"));
    Some(either(after, assigned, other))
}
