//! Assumed pods: pods for which a node was chosen and whose own events do not show the binding yet, with the volumes
//! and devices that are reserved for them.

use super::Snapshot;
use super::changes::SnapshotChange;
use crate::object::device_claim::Allocation;
use crate::object::extended::NewClaim;
use crate::object::pod::Pod;
use crate::object::{Key, Kind, Text};
use std::sync::Arc;

/// The node, volumes and devices that are reserved for an assumed pod.
#[derive(Debug, Clone)]
pub(super) struct AssumedPod {
    uid: Text,
    node: Text,
    volumes: Vec<(Key, Option<Text>)>,
    devices: Vec<Key>,
}

/// The volumes and devices that a pod gets together with its node.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Reservation {
    /// Each volume claim of the pod that is not bound yet, and the volume that it gets; `None` means that a volume must
    /// be provisioned for the claim.
    pub volumes: Vec<(Key, Option<Text>)>,
    /// Each ResourceClaim of the pod that has no allocation yet, and the devices that it gets.
    pub devices: Vec<(Key, Allocation)>,
    /// The claim in `devices` that does not exist in the cluster yet, if there is such a claim.
    pub new_claim: Option<Arc<NewClaim>>,
}

impl Snapshot {
    /// Counts a pod as bound to a node, until its own events show the binding or [`Snapshot::forget`] is called.
    pub fn assume(&mut self, key: &Key, node: &Text, reservation: &Reservation) {
        let Some(pod) = self.pods.get(key) else { return };
        let assumed = AssumedPod {
            uid: pod.uid.clone(),
            node: node.clone(),
            volumes: reservation.volumes.clone(),
            devices: reservation.devices.iter().map(|(claim, _)| claim.clone()).collect(),
        };
        let mut placed = Pod::clone(pod);
        placed.node_name = Some(node.clone());
        self.assumed.insert(key.clone(), assumed);
        self.put_pod(key, Some(Arc::new(placed)));
        for (claim, volume) in &reservation.volumes {
            self.volumes.assume(claim, volume.as_ref(), node);
        }
        self.devices.assume(reservation.new_claim.as_deref(), &reservation.devices);
        let devices = reservation.devices.iter().map(|(claim, _)| claim);
        self.log_reservation_changes(&reservation.volumes, devices);
    }

    /// Ends the assumption that a pod is on a node, because its binding failed.
    pub fn forget(&mut self, key: &Key) {
        let Some(assumed) = self.assumed.remove(key) else { return };
        if let Some(pod) = self.pods.get(key) {
            let mut waiting = Pod::clone(pod);
            waiting.node_name = None;
            self.put_pod(key, Some(Arc::new(waiting)));
        }
        self.release(&assumed);
    }

    /// Frees the volumes and devices that are reserved for an assumed pod.
    fn release(&mut self, assumed: &AssumedPod) {
        for (claim, volume) in &assumed.volumes {
            self.volumes.forget(claim, volume.as_ref());
        }
        for claim in &assumed.devices {
            self.devices.forget(claim);
        }
        self.log_reservation_changes(&assumed.volumes, assumed.devices.iter());
    }

    fn log_reservation_changes<'k>(&mut self, volumes: &[(Key, Option<Text>)], devices: impl Iterator<Item = &'k Key>) {
        for (claim, _) in volumes {
            self.changes.push(SnapshotChange::Object(Kind::PersistentVolumeClaim, claim.clone()));
        }
        for claim in devices {
            self.changes.push(SnapshotChange::Object(Kind::ResourceClaim, claim.clone()));
        }
    }

    pub fn is_assumed(&self, key: &Key) -> bool {
        self.assumed.contains_key(key)
    }

    /// Records that a pod's nomination begins, changes or ends, before the pod's status shows it.
    pub fn nominate(&mut self, key: &Key, node: Option<Text>) {
        let Some(pod) = self.pods.get(key).filter(|pod| pod.nominated != node) else { return };
        let mut nominated = Pod::clone(pod);
        nominated.nominated = node;
        self.put_pod(key, Some(Arc::new(nominated)));
    }

    /// Handles a change of an assumed pod. A change that does not show the pod's node yet keeps the assumption; a
    /// change that shows the node ends the assumption, because it has come true.
    pub(super) fn keep_assumption(&mut self, pod: &mut Pod) {
        let Some(assumed) = self.assumed.get(&pod.key) else { return };
        if pod.uid != assumed.uid || pod.node_name.as_ref().is_some_and(|node| *node != assumed.node) {
            self.drop_assumption(&pod.key);
        } else if pod.node_name.is_none() {
            pod.node_name = Some(assumed.node.clone());
        } else {
            self.assumed.remove(&pod.key);
        }
    }

    /// Frees the volumes and devices that are reserved for an assumed pod, because the pod was deleted or is bound to
    /// another node.
    pub(super) fn drop_assumption(&mut self, key: &Key) {
        if let Some(assumed) = self.assumed.remove(key) {
            self.release(&assumed);
        }
    }
}
