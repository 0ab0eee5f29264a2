//! VolumeBinding: a node is feasible if the pod's bound volumes can be used on it, and if volumes for the pod's other
//! claims can be found or provisioned there.

use crate::object::volume::{Claim, Volume};
use crate::object::{Key, Kind, Text};
use crate::plugin::{Filter, Plugin, PreFilterResult, QueueingHint, SchedulingCycle};
use crate::snapshot::assume::Reservation;
use crate::snapshot::node_info::NodeInfo;
use crate::snapshot::{ClusterEvent, ObjectChange, Snapshot, Volumes};
use crate::status::{Code, Reason, Rejection};
use std::sync::Arc;

pub const NAME: &str = "VolumeBinding";

const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

#[derive(Debug)]
pub struct VolumeBinding {
    /// How many seconds a pod waits for its volumes to be bound, before its binding fails.
    pub bind_timeout_seconds: i64,
}

impl Default for VolumeBinding {
    fn default() -> Self {
        VolumeBinding { bind_timeout_seconds: 600 }
    }
}

impl Plugin for VolumeBinding {
    fn name(&self) -> &'static str {
        NAME
    }

    fn pre_filter(&self, cycle: SchedulingCycle<'_>) -> PreFilterResult {
        match PodClaims::new(cycle) {
            Err(reason) => PreFilterResult::Reject(Rejection::unresolvable(NAME, reason)),
            Ok(claims) if claims.bound.is_empty() && claims.waiting.is_empty() => PreFilterResult::Skip,
            Ok(claims) => PreFilterResult::filter(claims),
        }
    }

    fn pre_bind_timeout_seconds(&self) -> Option<i64> {
        Some(self.bind_timeout_seconds)
    }

    fn depends_on(&self, cycle: SchedulingCycle<'_>, kind: Kind, _: &Key) -> bool {
        let kinds = [
            Kind::PersistentVolume,
            Kind::PersistentVolumeClaim,
            Kind::StorageClass,
            Kind::CsiDriver,
            Kind::CsiNode,
            Kind::CsiStorageCapacity,
        ];
        !cycle.pod.template.volumes.is_empty() && kinds.contains(&kind)
    }

    fn queueing_hint(&self, cycle: SchedulingCycle<'_>, event: &ClusterEvent) -> QueueingHint {
        QueueingHint::queue_if(match &event.change {
            ObjectChange::Node(before, Some(after)) => {
                before.as_ref().is_none_or(|before| before.labels != after.labels)
            }
            ObjectChange::Volume(_, Some(volume)) => may_be_volume_of(cycle, volume),
            ObjectChange::StorageClass(before, Some(after)) => {
                uses_class(cycle, &event.key.name)
                    && before.as_ref().is_none_or(|before| before.topologies != after.topologies)
            }
            ObjectChange::CsiNode(before, Some(after)) => {
                before.as_ref().is_none_or(|before| before.migrated != after.migrated)
            }
            ObjectChange::CsiDriver(Some(before), Some(after)) => **before && !**after,
            ObjectChange::Capacity(before, Some(after)) => {
                uses_class(cycle, &after.class)
                    && before.as_ref().is_none_or(|before| after.free_bytes > before.free_bytes)
            }
            ObjectChange::Other { after: true, .. } if event.kind == Kind::PersistentVolumeClaim => {
                cycle.pod.volume_claims().any(|(own, _)| own == event.key)
            }
            _ => false,
        })
    }
}

/// Whether a volume is bound to one of the pod's claims, or may be bound to one of them.
pub(super) fn may_be_volume_of(cycle: SchedulingCycle<'_>, volume: &Volume) -> bool {
    cycle.pod.volume_claims().any(|(key, _)| {
        let claim = cycle.snapshot.volumes().claim(&key);
        let names = |claim: &Arc<Claim>| claim.volume.as_ref() == Some(&volume.name);
        let may = |claim: &Arc<Claim>| claim.volume.is_none() && claim.class_name() == &*volume.class;
        claim.is_some_and(names)
            || match &volume.claim {
                Some((holder, _)) => *holder == key,
                None => claim.is_some_and(may),
            }
    })
}

/// Whether one of the pod's claims has this StorageClass.
pub(super) fn uses_class(cycle: SchedulingCycle<'_>, class: &str) -> bool {
    let claims = cycle.pod.volume_claims().filter_map(|(key, _)| cycle.snapshot.volumes().claim(&key));
    claims.into_iter().any(|claim| claim.class_name() == class)
}

/// The claims of a pod, in groups that do not depend on a node.
#[derive(Clone)]
struct PodClaims {
    bound: Arc<[Arc<Claim>]>,
    /// Claims that are bound to a volume only after a node is chosen for the pod.
    waiting: Arc<[Arc<Claim>]>,
}

impl PodClaims {
    fn new(cycle: SchedulingCycle<'_>) -> Result<Self, String> {
        let (mut bound, mut waiting, mut immediate) = (Vec::new(), Vec::new(), false);
        for (key, ephemeral) in cycle.pod.volume_claims() {
            let Some(claim) = cycle.snapshot.volumes().claim(&key) else {
                let waiting = "waiting for ephemeral volume controller to create the persistentvolumeclaim";
                let name = &key.name;
                return Err(match ephemeral {
                    true => format!("{waiting} \"{name}\""),
                    false => format!("persistentvolumeclaim \"{name}\" not found"),
                });
            };
            if claim.lost {
                let volume = claim.volume.as_deref().unwrap_or("");
                let name = &key.name;
                return Err(format!(
                    "persistentvolumeclaim \"{name}\" bound to non-existent persistentvolume \"{volume}\""
                ));
            }
            if claim.deleting {
                return Err(format!("persistentvolumeclaim \"{}\" is being deleted", key.name));
            }
            if ephemeral && claim.owner.as_ref() != Some(&cycle.pod.uid) {
                let pod = &cycle.pod.key;
                return Err(format!("PVC {key} was not created for pod {pod} (pod is not owner)"));
            }
            if claim.bound {
                bound.push(claim.clone());
            } else if claim.volume.is_none() && waits_for_consumer(cycle.snapshot.volumes(), claim) {
                waiting.push(claim.clone());
            } else {
                immediate = true;
            }
        }
        if immediate {
            return Err("pod has unbound immediate PersistentVolumeClaims".into());
        }
        waiting.sort_by_key(|claim| claim.request);
        Ok(PodClaims { bound: bound.into(), waiting: waiting.into() })
    }
}

fn waits_for_consumer(volumes: &Volumes, claim: &Claim) -> bool {
    volumes.class(claim.class_name()).is_some_and(|class| class.waits_for_consumer)
}

/// How the claims of a pod can get volumes on a node, or why they cannot.
#[derive(Default)]
struct VolumeAssignment {
    reservation: Reservation,
    reasons: Vec<Reason>,
    error: Option<String>,
}

impl PodClaims {
    fn find(&self, volumes: &Volumes, node: &NodeInfo) -> VolumeAssignment {
        let mut assignment = VolumeAssignment::default();
        let mut missing = false;
        for claim in &*self.bound {
            match claim.volume.as_ref().and_then(|name| volumes.volume(name)) {
                None => {
                    missing = true;
                    break;
                }
                Some(volume) if !is_usable_on(volume, node) => {
                    assignment.reasons.push("node(s) didn't match PersistentVolume's node affinity".into());
                    break;
                }
                Some(_) => {}
            }
        }
        self.find_volumes(volumes, node, &mut assignment);
        if missing {
            assignment.reasons.push("node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)".into());
        }
        assignment
    }

    fn find_volumes(&self, volumes: &Volumes, node: &NodeInfo, assignment: &mut VolumeAssignment) {
        const NONE_FOUND: Reason = Reason::Borrowed("node(s) didn't find available persistent volumes to bind");
        if self.waiting.iter().any(|claim| claim.selected_node.as_ref().is_some_and(|one| *one != node.node.name)) {
            return assignment.reasons.push(NONE_FOUND);
        }
        let mut to_provision: Vec<&Claim> = Vec::new();
        let (selected, open): (Vec<_>, Vec<_>) = self.waiting.iter().partition(|claim| claim.selected_node.is_some());
        to_provision.extend(selected.iter().map(|claim| &***claim));
        let mut chosen: Vec<Text> = Vec::new();
        for claim in open {
            match matching_volume(volumes, claim, node, &chosen) {
                Some(volume) => {
                    chosen.push(volume.name.clone());
                    assignment.reservation.volumes.push((claim.key.clone(), Some(volume.name.clone())));
                }
                None => to_provision.push(claim),
            }
        }
        for claim in to_provision {
            match provisioning(volumes, claim, node) {
                Provisioning::Possible => assignment.reservation.volumes.push((claim.key.clone(), None)),
                Provisioning::Impossible => return assignment.reasons.push(NONE_FOUND),
                Provisioning::NotEnoughStorage => {
                    return assignment.reasons.push("node(s) did not have enough free storage".into());
                }
                Provisioning::Error(error) => return assignment.error = Some(error),
            }
        }
    }
}

/// Whether a volume's node affinity allows a node. As in Kubernetes only the node's labels count: a term over the
/// node's name never matches.
fn is_usable_on(volume: &Volume, node: &NodeInfo) -> bool {
    volume.node_affinity.as_ref().is_none_or(|affinity| affinity.matches(&Text::default(), &node.node.labels))
}

/// Whether the volume can be used on the node of this name; `true` if no node has the name.
pub fn is_usable_on_node(snapshot: &Snapshot, volume: &Volume, node: &str) -> bool {
    snapshot.node_named(node).is_none_or(|node| is_usable_on(volume, node))
}

/// The volume for a claim on a node: the volume that is reserved for the claim, or else the smallest volume that
/// matches the claim and can be used on the node.
fn matching_volume<'a>(
    volumes: &'a Volumes,
    claim: &Claim,
    node: &NodeInfo,
    chosen: &[Text],
) -> Option<&'a Arc<Volume>> {
    let reserved = |volume: &Volume| {
        volume.claim.as_ref().is_some_and(|(key, uid)| *key == claim.key && (uid.is_empty() || *uid == claim.uid))
    };
    let fits = |volume: &&Arc<Volume>| {
        *volume.class == *claim.class_name()
            && !chosen.contains(&volume.name)
            && !volume.deleting
            && volume.volume_mode == claim.volume_mode
            && volume.attributes_class == claim.attributes_class
            && volume.capacity >= claim.request
    };
    if let Some(volume) = volumes.volumes().filter(fits).find(|volume| reserved(volume)) {
        return is_usable_on(volume, node).then_some(volume);
    }
    let free = |volume: &&Arc<Volume>| {
        volume.claim.is_none()
            && volume.available
            && claim.selector.matches(&volume.labels)
            && claim.modes.iter().all(|mode| volume.modes.contains(mode))
            && is_usable_on(volume, node)
    };
    volumes.volumes().filter(fits).filter(free).min_by_key(|volume| volume.capacity)
}

enum Provisioning {
    Possible,
    Impossible,
    NotEnoughStorage,
    Error(String),
}

/// Whether a volume can be provisioned for a claim on a node.
fn provisioning(volumes: &Volumes, claim: &Claim, node: &NodeInfo) -> Provisioning {
    let name = claim.class_name();
    if name.is_empty() {
        return Provisioning::Error(format!("no class for claim \"{}\"", claim.key));
    }
    let Some(class) = volumes.class(name) else {
        return Provisioning::Error(format!("failed to find storage class \"{name}\""));
    };
    if matches!(&*class.provisioner, "" | NO_PROVISIONER) || !class.allows_node(&node.node.labels) {
        return Provisioning::Impossible;
    }
    let tracked = volumes.tracks_capacity(&class.provisioner);
    let free_bytes = || {
        let mut near = volumes.capacities().filter(|one| *one.class == *name && one.nodes.matches(&node.node.labels));
        near.any(|one| one.free_bytes.is_some_and(|free_bytes| free_bytes >= claim.request))
    };
    if tracked && !free_bytes() { Provisioning::NotEnoughStorage } else { Provisioning::Possible }
}

impl Filter for PodClaims {
    fn check(&self, cycle: SchedulingCycle<'_>, node: &NodeInfo) -> Result<(), Rejection> {
        let assignment = self.find(cycle.snapshot.volumes(), node);
        if let Some(error) = assignment.error {
            return Err(Rejection::error(NAME, error));
        }
        if assignment.reasons.is_empty() {
            return Ok(());
        }
        Err(Rejection { code: Code::UnschedulableAndUnresolvable, plugin: NAME, reasons: assignment.reasons })
    }

    fn reserve(
        &self,
        cycle: SchedulingCycle<'_>,
        node: &NodeInfo,
        reservation: &mut Reservation,
    ) -> Result<(), Rejection> {
        self.check(cycle, node)?;
        reservation.volumes.extend(self.find(cycle.snapshot.volumes(), node).reservation.volumes);
        Ok(())
    }

    fn clone_box(&self) -> Box<dyn Filter> {
        Box::new(self.clone())
    }
}
