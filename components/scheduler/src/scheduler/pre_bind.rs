//! PreBind: before a pod is bound, binds volumes to its PersistentVolumeClaims or requests new volumes, and writes the
//! allocated devices into its ResourceClaims.

use super::Scheduler;
use super::requests::{DEVICE_CLAIMS, Purpose, VOLUME_CLAIMS, VOLUMES, status_patch};
use crate::object::device_claim::{Allocation, Claim, EXTENDED_RESOURCE_ANNOTATION, FINALIZER, Readiness};
use crate::object::extended::NewClaim;
use crate::object::pod::Pod;
use crate::object::volume::{BOUND_BY_CONTROLLER, SELECTED_NODE};
use crate::object::{Key, Text};
use crate::plugin::SchedulingCycle;
use crate::plugins::devices::extended_resources::base_of;
use crate::plugins::{dynamic_resources, volume_binding};
use crate::queue::Time;
use crate::snapshot::Snapshot;
use crate::snapshot::assume::Reservation;
use holdfast_value::{Value, json};
use holdfast_world::{Action, Verb};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

/// Whether the volumes and devices for which a pod waits are ready.
pub(super) enum PreBindProgress {
    Waiting,
    Done,
    Failed(String),
    DevicesFailed(String),
}

/// A step of PreBind.
pub(super) enum PreBindStep {
    /// Writes that do not depend on each other, and are sent at the same time.
    Write(Vec<Action>),
    /// Writes the allocations into the claims, once all claims exist.
    WriteAllocations,
    /// Adds the finalizer to claims that have devices now, so that the claims stay until the devices are released. This
    /// step follows the allocation: otherwise the controller that removes the finalizer from claims without devices
    /// would remove the finalizer at once.
    AddFinalizers,
}

impl Scheduler {
    /// The steps before the pod can be bound to the node, in order.
    pub(super) fn pre_bind_steps(
        &self,
        pod: &Pod,
        node: &Text,
        reservation: &Reservation,
        now: Time,
    ) -> VecDeque<PreBindStep> {
        let snapshot = &self.snapshot;
        let volumes = reservation.volumes.iter();
        let volumes = volumes.filter_map(|(claim, volume)| volume_write(snapshot, claim, volume.as_ref(), node));
        let writes: Vec<Action> =
            volumes.chain(reservation.new_claim.as_ref().map(|new_claim| new_claim_write(pod, new_claim))).collect();
        let mut steps = VecDeque::new();
        steps.extend((!writes.is_empty()).then_some(PreBindStep::Write(writes)));
        if reservation.new_claim.is_some() || !self.allocation_writes(pod, reservation, now).is_empty() {
            steps.push_back(PreBindStep::WriteAllocations);
        }
        if !reservation.devices.is_empty() {
            steps.push_back(PreBindStep::AddFinalizers);
        }
        steps
    }

    pub(super) fn finalizer_writes(&self, reservation: &Reservation) -> Vec<Action> {
        reservation.devices.iter().filter_map(|(claim, _)| finalizer_write(&self.snapshot, claim)).collect()
    }

    /// Whether the claim for the pod's extended resources exists; `true` if the pod needs none.
    pub(super) fn new_claim_exists(&self, reservation: &Reservation) -> bool {
        let claim = reservation.new_claim.as_ref().map(|new_claim| self.snapshot.devices().claim(&new_claim.claim.key));
        claim.is_none_or(|claim| claim.is_some_and(|claim| !claim.uid.is_empty()))
    }

    /// Writes the pod and the allocation into the status of each of its claims. If a claim was made for the pod's
    /// extended resources, also writes into the pod's status which request of the claim each container uses.
    pub(super) fn allocation_writes(&self, pod: &Pod, reservation: &Reservation, now: Time) -> Vec<Action> {
        let cycle = SchedulingCycle { snapshot: &self.snapshot, pod };
        let claims = dynamic_resources::used_claims(cycle);
        let claims = claims.filter_map(|key| Some((self.snapshot.devices().claim(&key)?, key)));
        let reserve = |(claim, key): (&Arc<Claim>, Key)| {
            let allocation = reservation.devices.iter().find(|(one, _)| *one == key).map(|(_, allocation)| allocation);
            if allocation.is_none() && claim.reserved_for.contains(&pod.uid) {
                return None;
            }
            let user = json!({"resource": "pods", "name": &*pod.key.name, "uid": &*pod.uid});
            let mut status = json!({"reservedFor": [user]});
            if let Some(allocation) = allocation {
                status["allocation"] = self.encoded_allocation(claim, allocation, now);
            }
            let patch = json!({"metadata": {"uid": &*claim.uid}, "status": status});
            Some(Action::new(&DEVICE_CLAIMS, key, Verb::StrategicPatch(patch)).subresource("status"))
        };
        let status_write = reservation.new_claim.as_ref().map(|new_claim| {
            let mappings: Vec<Value> = new_claim.mappings.iter().map(|mapping| mapping.encode()).collect();
            let status = json!({"resourceClaimName": &*new_claim.claim.key.name, "requestMappings": mappings});
            status_patch(&pod.key, &pod.uid, json!({"extendedResourceClaimStatus": status}))
        });
        claims.filter_map(reserve).chain(status_write).collect()
    }

    fn encoded_allocation(&self, claim: &Claim, allocation: &Allocation, now: Time) -> Value {
        let class = |name: &Text| self.snapshot.devices().class(name).cloned();
        allocation.encode(claim, class, now)
    }

    /// Removes a pod whose binding failed from the field `reservedFor` of its ResourceClaims.
    pub(super) fn unreserve(&mut self, pod: &Pod, reservation: &Reservation) {
        for (key, _) in &reservation.devices {
            let Some(claim) = self.snapshot.devices().claim(key) else { continue };
            if claim.is_extended {
                self.deallocate(key);
                continue;
            }
            let gone = json!({"$patch": "delete", "uid": &*pod.uid});
            let patch = json!({"metadata": {"uid": &*claim.uid}, "status": {"reservedFor": [gone]}});
            let action = Action::new(&DEVICE_CLAIMS, key.clone(), Verb::StrategicPatch(patch)).subresource("status");
            self.requests.send_action(action, Purpose::Ignored);
        }
    }

    /// Releases the devices of a claim, so that the next attempt can find other devices. A claim that was made for
    /// extended resources is deleted instead: the next attempt may need other devices.
    pub(super) fn deallocate(&mut self, key: &Key) {
        let Some(claim) = self.snapshot.devices().claim(key).filter(|claim| !claim.uid.is_empty()) else { return };
        if claim.is_extended {
            let unprotected = json!({"uid": &*claim.uid, "$deleteFromPrimitiveList/finalizers": [FINALIZER]});
            let (uid, version, grace_seconds) = (Some(claim.uid.clone()), None, None);
            let unprotect = Verb::StrategicPatch(json!({"metadata": unprotected}));
            let verbs = [Verb::Delete { uid, version, propagation: None, grace_seconds }, unprotect];
            for verb in verbs {
                self.requests.send_action(Action::new(&DEVICE_CLAIMS, key.clone(), verb), Purpose::Ignored);
            }
            return;
        }
        let status = json!({"allocation": null, "reservedFor": null, "devices": null});
        let patch = json!({"metadata": {"uid": &*claim.uid}, "status": status});
        let action = Action::new(&DEVICE_CLAIMS, key.clone(), Verb::MergePatch(patch)).subresource("status");
        self.requests.send_action(action, Purpose::Ignored);
    }

    /// Whether the volumes and devices of a pod that is in its binding cycle are ready.
    pub(super) fn pre_bind_progress(&self, key: &Key) -> PreBindProgress {
        let Some(binding) = self.binding_cycles.get(key) else { return PreBindProgress::Done };
        let volumes = match binding.reservation.volumes.is_empty() {
            true => PreBindProgress::Done,
            false => {
                let pod = &binding.attempt.pod;
                self.volumes_progress(pod, &binding.node, &binding.reservation, &binding.annotated_claims)
            }
        };
        match volumes {
            PreBindProgress::Done => self.devices_progress(&binding.attempt.pod),
            other => other,
        }
    }

    /// Those claims of a pod whose allocated devices have binding conditions.
    pub(super) fn claims_with_binding_conditions(&self, pod: &Pod) -> Vec<Arc<Claim>> {
        let cycle = SchedulingCycle { snapshot: &self.snapshot, pod };
        let claims = dynamic_resources::used_claims(cycle);
        let claims = claims.filter_map(|key| self.snapshot.devices().claim(&key).cloned());
        let waits = |claim: &Claim| {
            let devices = claim.allocation.iter().flat_map(|allocation| &allocation.devices);
            devices.into_iter().any(|device| !device.binding.conditions.is_empty())
        };
        claims.filter(|claim| waits(claim)).collect()
    }

    fn devices_progress(&self, pod: &Pod) -> PreBindProgress {
        let mut progress = PreBindProgress::Done;
        for claim in self.claims_with_binding_conditions(pod) {
            match claim.readiness() {
                Readiness::Ready => {}
                Readiness::Waiting => progress = PreBindProgress::Waiting,
                Readiness::Failed(why) => return PreBindProgress::DevicesFailed(why),
            }
        }
        progress
    }

    /// Releases those devices of a pod that did not become ready. Devices for which another pod waits, too, are not
    /// released.
    pub(super) fn release_unready_devices(&mut self, pod: &Pod) {
        for claim in self.claims_with_binding_conditions(pod) {
            let is_own = claim.reserved_for.iter().all(|user| *user == pod.uid);
            if is_own && claim.readiness() != Readiness::Ready {
                self.deallocate(&claim.key);
            }
        }
    }

    fn volumes_progress(
        &self,
        pod: &Pod,
        node: &Text,
        reservation: &Reservation,
        annotated_claims: &BTreeSet<Key>,
    ) -> PreBindProgress {
        let mut all = true;
        for (name, _) in pod.volume_claims() {
            let Some(claim) = self.snapshot.volumes().claim(&name) else {
                return PreBindProgress::Failed(format!("failed to get PVC {name}: persistentvolumeclaim not found"));
            };
            if claim.bound {
                match claim.volume.as_ref().and_then(|name| self.snapshot.volumes().volume(name)) {
                    // The event that binds the claim has arrived before the event of its volume.
                    None => all = false,
                    Some(volume) if !volume_binding::is_usable_on_node(&self.snapshot, volume, node) => {
                        let volume = &volume.name;
                        return PreBindProgress::Failed(format!(
                            "pv \"{volume}\" node affinity doesn't match node \"{}\": no matching NodeSelectorTerms",
                            node
                        ));
                    }
                    Some(_) => {}
                }
                continue;
            }
            all = false;
            let to_be_provisioned = reservation.volumes.iter().any(|(one, volume)| *one == name && volume.is_none());
            if to_be_provisioned && annotated_claims.contains(&name) && claim.selected_node.as_ref() != Some(node) {
                return PreBindProgress::Failed(format!("provisioning failed for PVC \"{}\"", name.name));
            }
        }
        if all { PreBindProgress::Done } else { PreBindProgress::Waiting }
    }
}

/// The write that binds a volume to a claim, or, without a volume, that requests a volume to be provisioned for the
/// node.
fn volume_write(snapshot: &Snapshot, claim: &Key, volume: Option<&Text>, node: &Text) -> Option<Action> {
    let claim = snapshot.volumes().claim(claim)?;
    let Some(name) = volume else {
        if claim.selected_node.as_ref() == Some(node) {
            return None;
        }
        let patch = json!({"metadata": {"uid": &*claim.uid, "annotations": {SELECTED_NODE: &**node}}});
        return Some(Action::new(&VOLUME_CLAIMS, claim.key.clone(), Verb::MergePatch(patch)));
    };
    let volume = snapshot.volumes().volume(name)?;
    if volume.claim.as_ref().is_some_and(|(_, uid)| *uid == claim.uid) {
        return None;
    }
    let reference = json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": &*claim.key.namespace,
        "name": &*claim.key.name,
        "uid": &*claim.uid,
        "resourceVersion": &*claim.version,
    });
    // A write for another claim of this volume names the same resource version, so one of the two writes is refused.
    let metadata = json!({"resourceVersion": &*volume.version, "annotations": {BOUND_BY_CONTROLLER: "yes"}});
    let patch = json!({"metadata": metadata, "spec": {"claimRef": reference}});
    Some(Action::new(&VOLUMES, Key::cluster(name), Verb::MergePatch(patch)))
}

/// The request that creates the claim for a pod's extended resources.
fn new_claim_write(pod: &Pod, new_claim: &NewClaim) -> Action {
    let requests = new_claim.claim.requests.iter().flat_map(|request| &request.alternatives).map(|sub_request| {
        let exactly =
            json!({"deviceClassName": &*sub_request.class, "allocationMode": "ExactCount", "count": sub_request.count});
        json!({"name": &*sub_request.name, "exactly": exactly})
    });
    let claim = json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "name": &*new_claim.claim.key.name,
            "generateName": base_of(&pod.key.name),
            "namespace": &*pod.key.namespace,
            "annotations": {EXTENDED_RESOURCE_ANNOTATION: "true"},
            "ownerReferences": [{
                "apiVersion": "v1", "kind": "Pod", "name": &*pod.key.name, "uid": &*pod.uid, "controller": true,
            }],
        },
        "spec": {"devices": {"requests": requests.collect::<Vec<Value>>()}},
    });
    Action::new(&DEVICE_CLAIMS, new_claim.claim.key.clone(), Verb::Create(claim))
}

fn finalizer_write(snapshot: &Snapshot, key: &Key) -> Option<Action> {
    let claim = snapshot.devices().claim(key).filter(|claim| !claim.protected)?;
    let patch = json!({"metadata": {"uid": &*claim.uid, "finalizers": [FINALIZER]}});
    Some(Action::new(&DEVICE_CLAIMS, key.clone(), Verb::StrategicPatch(patch)))
}

/// The name of the plug-in that writes these volumes and devices at the point PreBind; `None` if there are none.
pub(super) fn plugin_of(reservation: &Reservation) -> Option<&'static str> {
    match (reservation.volumes.is_empty(), reservation.devices.is_empty()) {
        (true, true) => None,
        (false, _) => Some(volume_binding::NAME),
        (true, false) => Some(dynamic_resources::NAME),
    }
}
