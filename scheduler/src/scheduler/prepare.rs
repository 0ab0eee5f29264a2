//! What is written before a pod is bound: the volumes of claims, the devices of claims, and the pods that use them.

use super::Scheduler;
use super::order::{DEVICE_CLAIMS, Purpose, VOLUME_CLAIMS, VOLUMES, patch_status};
use super::way::Way;
use crate::object::device::{Allocation, Claim, FINALIZER, Readiness};
use crate::object::extended::{ANNOTATION, Made};
use crate::object::pod::Pod;
use crate::object::volume::{BOUND_BY_CONTROLLER, SELECTED_NODE};
use crate::object::{Key, Text};
use crate::plugin::Cycle;
use crate::plugins::devices::special::base_of;
use crate::plugins::{dynamic_resources, volume_binding};
use crate::queue::Time;
use crate::snapshot::Snapshot;
use crate::snapshot::assume::Promise;
use holdfast_value::{Value, json};
use holdfast_world::{Action, Verb};
use std::collections::VecDeque;
use std::sync::Arc;

/// How far the volumes and devices that a pod waits for are.
pub(super) enum Progress {
    Waiting,
    Done,
    Failed(String),
    DevicesFailed(String),
}

/// A step of PreBind.
pub(super) enum Step {
    /// Independent writes, sent at the same time.
    Write(Vec<Action>),
    /// Writes the allocations into the claims, once all claims exist.
    Reserve,
    /// Adds the finalizer to claims that have devices now, so that they stay until the devices are released. It comes
    /// after the allocation: the controller that removes the finalizer from claims without devices would remove it at
    /// once.
    Protect,
}

impl Scheduler {
    /// The steps before the pod can be bound to the node, in order.
    pub(super) fn preparations(&self, pod: &Pod, node: &Text, promise: &Promise, now: Time) -> VecDeque<Step> {
        let snapshot = &self.snapshot;
        let volumes = promise.volumes.iter();
        let volumes = volumes.filter_map(|(claim, volume)| choose_volume(snapshot, claim, volume.as_ref(), node));
        let writes: Vec<Action> = volumes.chain(promise.made.as_ref().map(|made| make(pod, made))).collect();
        let mut steps = VecDeque::new();
        steps.extend((!writes.is_empty()).then_some(Step::Write(writes)));
        if promise.made.is_some() || !self.reservations(pod, promise, now).is_empty() {
            steps.push_back(Step::Reserve);
        }
        if !promise.devices.is_empty() {
            steps.push_back(Step::Protect);
        }
        steps
    }

    pub(super) fn protections(&self, promise: &Promise) -> Vec<Action> {
        promise.devices.iter().filter_map(|(claim, _)| protect(&self.snapshot, claim)).collect()
    }

    /// Whether the claim that is made for the pod exists.
    pub(super) fn is_made(&self, promise: &Promise) -> bool {
        let claim = promise.made.as_ref().map(|made| self.snapshot.device_claims.get(&made.claim.key));
        claim.is_none_or(|claim| claim.is_some_and(|claim| !claim.uid.is_empty()))
    }

    /// Writes the pod and the allocation into each of its claims; and into the pod's status, which container has what
    /// of a claim that was made for it.
    pub(super) fn reservations(&self, pod: &Pod, promise: &Promise, now: Time) -> Vec<Action> {
        let cycle = Cycle { snapshot: &self.snapshot, pod };
        let claims = dynamic_resources::used_claims(cycle);
        let claims = claims.filter_map(|key| Some((self.snapshot.device_claims.get(&key)?, key)));
        let reserve = |(claim, key): (&Arc<Claim>, Key)| {
            let allocation = promise.devices.iter().find(|(one, _)| *one == key).map(|(_, allocation)| allocation);
            if allocation.is_none() && claim.reserved_for.contains(&pod.uid) {
                return None;
            }
            let user = json!({"resource": "pods", "name": &*pod.key.name, "uid": &*pod.uid});
            let mut status = json!({"reservedFor": [user]});
            if let Some(allocation) = allocation {
                status["allocation"] = self.allocation(claim, allocation, now);
            }
            let patch = json!({"metadata": {"uid": &*claim.uid}, "status": status});
            Some(Action::new(&DEVICE_CLAIMS, key, Verb::StrategicPatch(patch)).subresource("status"))
        };
        let told = promise.made.as_ref().map(|made| {
            let mappings: Vec<Value> = made.mappings.iter().map(|mapping| mapping.encode()).collect();
            let told = json!({"resourceClaimName": &*made.claim.key.name, "requestMappings": mappings});
            patch_status(&pod.key, &pod.uid, json!({"extendedResourceClaimStatus": told}))
        });
        claims.filter_map(reserve).chain(told).collect()
    }

    fn allocation(&self, claim: &Claim, allocation: &Allocation, now: Time) -> Value {
        let class = |name: &Text| {
            let key = Key { namespace: "".into(), name: name.clone() };
            self.snapshot.device_classes.get(&key).cloned()
        };
        allocation.encode(claim, class, now)
    }

    /// Removes a pod that is not bound after all from its claims.
    pub(super) fn unreserve(&mut self, pod: &Pod, promise: &Promise) {
        for (key, _) in &promise.devices {
            let Some(claim) = self.snapshot.device_claims.get(key) else { continue };
            if claim.is_extended {
                self.deallocate(key);
                continue;
            }
            let gone = json!({"$patch": "delete", "uid": &*pod.uid});
            let patch = json!({"metadata": {"uid": &*claim.uid}, "status": {"reservedFor": [gone]}});
            let action = Action::new(&DEVICE_CLAIMS, key.clone(), Verb::StrategicPatch(patch)).subresource("status");
            self.order(action, Purpose::Nothing);
        }
    }

    /// Releases the devices of a claim, so that others can be found. A claim that was made for extended resources is
    /// deleted instead: the next attempt may need other devices.
    pub(super) fn deallocate(&mut self, key: &Key) {
        let Some(claim) = self.snapshot.device_claims.get(key).filter(|claim| !claim.uid.is_empty()) else { return };
        if claim.is_extended {
            let unprotected = json!({"uid": &*claim.uid, "$deleteFromPrimitiveList/finalizers": [FINALIZER]});
            let (uid, version, grace_seconds) = (Some(claim.uid.clone()), None, None);
            let unprotect = Verb::StrategicPatch(json!({"metadata": unprotected}));
            let verbs = [Verb::Delete { uid, version, propagation: None, grace_seconds }, unprotect];
            for verb in verbs {
                self.order(Action::new(&DEVICE_CLAIMS, key.clone(), verb), Purpose::Nothing);
            }
            return;
        }
        let status = json!({"allocation": null, "reservedFor": null, "devices": null});
        let patch = json!({"metadata": {"uid": &*claim.uid}, "status": status});
        let action = Action::new(&DEVICE_CLAIMS, key.clone(), Verb::MergePatch(patch)).subresource("status");
        self.order(action, Purpose::Nothing);
    }

    /// How far the volumes and devices of a pod in its binding cycle are.
    pub(super) fn progress(&self, key: &Key) -> Progress {
        let Some(way) = self.ways.get(key) else { return Progress::Done };
        let volumes = if way.promise.volumes.is_empty() { Progress::Done } else { self.volumes_progress(way) };
        match volumes {
            Progress::Done => self.devices_progress(&way.trying.pod),
            other => other,
        }
    }

    /// The claims of a pod whose devices have binding conditions.
    pub(super) fn awaited_devices(&self, pod: &Pod) -> Vec<Arc<Claim>> {
        let cycle = Cycle { snapshot: &self.snapshot, pod };
        let claims = dynamic_resources::used_claims(cycle);
        let claims = claims.filter_map(|key| self.snapshot.device_claims.get(&key).cloned());
        let waits = |claim: &Claim| {
            let devices = claim.allocation.iter().flat_map(|allocation| &allocation.devices);
            devices.into_iter().any(|device| !device.binding.conditions.is_empty())
        };
        claims.filter(|claim| waits(claim)).collect()
    }

    fn devices_progress(&self, pod: &Pod) -> Progress {
        let mut progress = Progress::Done;
        for claim in self.awaited_devices(pod) {
            match claim.readiness() {
                Readiness::Ready => {}
                Readiness::Waiting => progress = Progress::Waiting,
                Readiness::Failed(why) => return Progress::DevicesFailed(why),
            }
        }
        progress
    }

    /// Releases devices that did not become ready, unless another pod waits for them, too.
    pub(super) fn give_up_devices(&mut self, pod: &Pod) {
        for claim in self.awaited_devices(pod) {
            let is_own = claim.reserved_for.iter().all(|user| *user == pod.uid);
            if is_own && claim.readiness() != Readiness::Ready {
                self.deallocate(&claim.key);
            }
        }
    }

    fn volumes_progress(&self, way: &Way) -> Progress {
        let mut all = true;
        for (name, _) in way.trying.pod.volume_claims() {
            let Some(claim) = self.snapshot.volume_claims.get(&name) else {
                return Progress::Failed(format!("failed to get PVC {name}: persistentvolumeclaim not found"));
            };
            if claim.bound {
                let volume = Key { namespace: "".into(), name: claim.volume.clone().unwrap_or_default() };
                match self.snapshot.volumes.get(&volume) {
                    // The claim's event came before the volume's.
                    None => all = false,
                    Some(volume) if !volume_binding::reaches_node(&self.snapshot, volume, &way.node) => {
                        let volume = &volume.name;
                        return Progress::Failed(format!(
                            "pv \"{volume}\" node affinity doesn't match node \"{}\": no matching NodeSelectorTerms",
                            way.node
                        ));
                    }
                    Some(_) => {}
                }
                continue;
            }
            all = false;
            let to_be_made = way.promise.volumes.iter().any(|(one, volume)| *one == name && volume.is_none());
            if to_be_made && way.selected.contains(&name) && claim.selected_node.as_ref() != Some(&way.node) {
                return Progress::Failed(format!("provisioning failed for PVC \"{}\"", name.name));
            }
        }
        if all { Progress::Done } else { Progress::Waiting }
    }
}

/// Binds a volume to a claim, or has one provisioned for the node.
fn choose_volume(snapshot: &Snapshot, claim: &Key, volume: Option<&Text>, node: &Text) -> Option<Action> {
    let claim = snapshot.volume_claims.get(claim)?;
    let Some(name) = volume else {
        if claim.selected_node.as_ref() == Some(node) {
            return None;
        }
        let patch = json!({"metadata": {"uid": &*claim.uid, "annotations": {SELECTED_NODE: &**node}}});
        return Some(Action::new(&VOLUME_CLAIMS, claim.key.clone(), Verb::MergePatch(patch)));
    };
    let key = Key { namespace: "".into(), name: name.clone() };
    let volume = snapshot.volumes.get(&key)?;
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
    // Others who claim this volume send its resource version, too: one of the writes is refused.
    let metadata = json!({"resourceVersion": &*volume.version, "annotations": {BOUND_BY_CONTROLLER: "yes"}});
    let patch = json!({"metadata": metadata, "spec": {"claimRef": reference}});
    Some(Action::new(&VOLUMES, key, Verb::MergePatch(patch)))
}

/// Makes the claim for a pod's extended resources.
fn make(pod: &Pod, made: &Made) -> Action {
    let requests = made.claim.requests.iter().flat_map(|request| &request.alternatives).map(|ask| {
        let exactly = json!({"deviceClassName": &*ask.class, "allocationMode": "ExactCount", "count": ask.count});
        json!({"name": &*ask.name, "exactly": exactly})
    });
    let claim = json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "name": &*made.claim.key.name,
            "generateName": base_of(&pod.key.name),
            "namespace": &*pod.key.namespace,
            "annotations": {ANNOTATION: "true"},
            "ownerReferences": [{
                "apiVersion": "v1", "kind": "Pod", "name": &*pod.key.name, "uid": &*pod.uid, "controller": true,
            }],
        },
        "spec": {"devices": {"requests": requests.collect::<Vec<Value>>()}},
    });
    Action::new(&DEVICE_CLAIMS, made.claim.key.clone(), Verb::Create(claim))
}

fn protect(snapshot: &Snapshot, key: &Key) -> Option<Action> {
    let claim = snapshot.device_claims.get(key).filter(|claim| !claim.protected)?;
    let patch = json!({"metadata": {"uid": &*claim.uid, "finalizers": [FINALIZER]}});
    Some(Action::new(&DEVICE_CLAIMS, key.clone(), Verb::StrategicPatch(patch)))
}
