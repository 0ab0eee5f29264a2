//! VolumeZone: a volume with a label for a zone or region can be used only on nodes of that zone or region.

use super::volume_binding;
use crate::object::pod::Pod;
use crate::object::{Key, Kind, Text};
use crate::plugin::{Filter, Plugin, PreFilterResult, QueueingHint, SchedulingCycle};
use crate::snapshot::node_info::NodeInfo;
use crate::snapshot::{ClusterEvent, ObjectChange, Volumes};
use crate::status::Rejection;
use std::sync::Arc;

pub const NAME: &str = "VolumeZone";

/// The labels of volumes that name a zone or region, each with the label of nodes that means the same today.
const LABELS: [(&str, &str); 4] = [
    ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"),
    ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"),
    ("topology.kubernetes.io/zone", "topology.kubernetes.io/zone"),
    ("topology.kubernetes.io/region", "topology.kubernetes.io/region"),
];

#[derive(Debug)]
pub struct VolumeZone;

impl Plugin for VolumeZone {
    fn name(&self) -> &'static str {
        NAME
    }

    fn pre_filter(&self, cycle: SchedulingCycle<'_>) -> PreFilterResult {
        match zones(cycle.snapshot.volumes(), cycle.pod) {
            Err(reason) => PreFilterResult::Reject(Rejection::unresolvable(NAME, reason)),
            Ok(zones) if zones.is_empty() => PreFilterResult::Skip,
            Ok(zones) => PreFilterResult::filter(ZoneFilter(zones.into())),
        }
    }

    fn depends_on(&self, cycle: SchedulingCycle<'_>, kind: Kind, _: &Key) -> bool {
        let kinds = [Kind::PersistentVolume, Kind::PersistentVolumeClaim, Kind::StorageClass];
        !cycle.pod.template.volumes.is_empty() && kinds.contains(&kind)
    }

    fn queueing_hint(&self, cycle: SchedulingCycle<'_>, event: &ClusterEvent) -> QueueingHint {
        QueueingHint::queue_if(match &event.change {
            ObjectChange::Node(before, Some(after)) => {
                before.as_ref().is_none_or(|before| before.labels != after.labels)
            }
            ObjectChange::StorageClass(None, Some(class)) => {
                class.waits_for_consumer && volume_binding::uses_class(cycle, &event.key.name)
            }
            ObjectChange::Volume(before, Some(after)) => {
                before.as_ref().is_none_or(|before| before.labels != after.labels)
                    && volume_binding::may_be_volume_of(cycle, after)
            }
            ObjectChange::Other { after: true, .. } if event.kind == Kind::PersistentVolumeClaim => {
                cycle.pod.volume_claims().any(|(own, _)| own == event.key)
            }
            _ => false,
        })
    }
}

/// A label of nodes, and the values of which a node must have one.
type Zone = (&'static str, Vec<Text>);

fn zones(volumes: &Volumes, pod: &Pod) -> Result<Vec<Zone>, String> {
    let mut zones = Vec::new();
    for (key, _) in pod.volume_claims().filter(|(_, ephemeral)| !ephemeral) {
        let not_found = |kind: &str, name: &str| format!("{kind} \"{name}\" not found");
        let claim = volumes.claim(&key).ok_or_else(|| not_found("persistentvolumeclaim", &key.name))?;
        let Some(volume) = &claim.volume else {
            if claim.class_name().is_empty() {
                return Err("PersistentVolumeClaim had no pv name and storageClass name".into());
            }
            let class = volumes.class(claim.class_name());
            let class = class.ok_or_else(|| not_found("storageclass.storage.k8s.io", claim.class_name()))?;
            if class.waits_for_consumer {
                continue;
            }
            return Err("PersistentVolume had no name".into());
        };
        let volume = volumes.volume(volume).ok_or_else(|| not_found("persistentvolume", volume))?;
        for (label, _) in LABELS {
            let Some(value) = volume.labels.get(label) else { continue };
            let values: Vec<Text> = value.split("__").map(|zone| zone.trim().into()).collect();
            // A label value whose list of zones has an empty item is ignored.
            if values.iter().all(|zone| !zone.is_empty()) {
                zones.push((label, values));
            }
        }
    }
    Ok(zones)
}

#[derive(Clone)]
struct ZoneFilter(Arc<[Zone]>);

impl Filter for ZoneFilter {
    fn check(&self, _: SchedulingCycle<'_>, node: &NodeInfo) -> Result<(), Rejection> {
        let labels = &node.node.labels;
        if LABELS.iter().all(|(label, _)| labels.get(label).is_none()) {
            return Ok(());
        }
        let today = |label: &str| LABELS.iter().find(|(name, _)| *name == label).map_or("", |(_, today)| *today);
        let matches = |(label, values): &Zone| {
            labels.get(label).or_else(|| labels.get(today(label))).is_some_and(|value| values.contains(value))
        };
        if self.0.iter().all(matches) {
            return Ok(());
        }
        Err(Rejection::unresolvable(NAME, "node(s) had no available volume zone"))
    }

    fn clone_box(&self) -> Box<dyn Filter> {
        Box::new(self.clone())
    }
}
