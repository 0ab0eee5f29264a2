//! VolumeRestrictions: some disks may be used by only one pod of a node, and some claims by only one pod of the
//! cluster.

use crate::object::pod::{Pod, Volume};
use crate::object::volume::{Disk, DiskSource};
use crate::object::{Key, Kind};
use crate::plugin::{Filter, Plugin, PreFilterResult, QueueingHint, SchedulingCycle};
use crate::snapshot::node_info::{NodeId, NodeInfo};
use crate::snapshot::{ClusterEvent, ObjectChange};
use crate::status::Rejection;

pub const NAME: &str = "VolumeRestrictions";

#[derive(Debug)]
pub struct VolumeRestrictions;

impl Plugin for VolumeRestrictions {
    fn name(&self) -> &'static str {
        NAME
    }

    fn pre_filter(&self, cycle: SchedulingCycle<'_>) -> PreFilterResult {
        let mut exclusive = Vec::new();
        for (claim, _) in cycle.pod.volume_claims().filter(|(_, ephemeral)| !ephemeral) {
            match cycle.snapshot.volumes().claim(&claim) {
                None => {
                    let reason = format!("persistentvolumeclaim \"{}\" not found", claim.name);
                    return PreFilterResult::Reject(Rejection::unresolvable(NAME, reason));
                }
                // A claim counts once, even if several volumes of the pod use it.
                Some(_) if exclusive.contains(&claim) => {}
                Some(found) if found.modes.iter().any(|mode| &**mode == "ReadWriteOncePod") => exclusive.push(claim),
                Some(_) => {}
            }
        }
        let restricted = disks(cycle.pod).any(|disk| disk.source.is_restricted());
        if !restricted && exclusive.is_empty() {
            return PreFilterResult::Skip;
        }
        let users = exclusive.iter().map(|claim| cycle.snapshot.volumes().claim_users(claim)).sum();
        PreFilterResult::filter(VolumeConflicts { restricted, exclusive, users })
    }

    fn depends_on(&self, cycle: SchedulingCycle<'_>, kind: Kind, _: &Key) -> bool {
        kind == Kind::PersistentVolumeClaim && !cycle.pod.template.volumes.is_empty()
    }

    fn concerns_other_pods(&self, event: &ClusterEvent) -> bool {
        event.concerns_nodes()
    }

    fn queueing_hint(&self, cycle: SchedulingCycle<'_>, event: &ClusterEvent) -> QueueingHint {
        let own = |claim: &Key| cycle.pod.volume_claims().any(|(own, _)| own == *claim);
        QueueingHint::queue_if(match &event.change {
            ObjectChange::Pod(Some(gone), None) if gone.node_name.is_some() => {
                gone.volume_claims().any(|(claim, _)| own(&claim)) || share_disk(cycle.pod, gone)
            }
            ObjectChange::Node(None, Some(_)) => true,
            ObjectChange::Other { before: false, after: true } => {
                event.kind == Kind::PersistentVolumeClaim && own(&event.key)
            }
            _ => false,
        })
    }
}

fn disks(pod: &Pod) -> impl Iterator<Item = &Disk> {
    pod.template.volumes.iter().filter_map(|volume| match volume {
        Volume::Disk(disk) => Some(disk),
        _ => None,
    })
}

fn share_disk(pod: &Pod, other: &Pod) -> bool {
    disks(pod).any(|disk| disks(other).any(|used| disk.conflicts(used)))
}

impl DiskSource {
    fn is_restricted(&self) -> bool {
        use DiskSource::*;
        matches!(self, GcePersistentDisk(_) | AwsElasticBlockStore(_) | Iscsi(_) | Rbd { .. })
    }
}

impl Disk {
    fn conflicts(&self, used: &Disk) -> bool {
        use DiskSource::*;
        let both_read = self.read_only && used.read_only;
        match (&self.source, &used.source) {
            (AwsElasticBlockStore(one), AwsElasticBlockStore(other)) => one == other,
            (GcePersistentDisk(one), GcePersistentDisk(other)) | (Iscsi(one), Iscsi(other)) => {
                one == other && !both_read
            }
            (Rbd { monitors, pool, image }, Rbd { monitors: other_monitors, pool: other_pool, image: other_image }) => {
                let overlap = monitors.iter().any(|one| other_monitors.contains(one));
                overlap && pool == other_pool && image == other_image && !both_read
            }
            _ => false,
        }
    }
}

#[derive(Clone)]
struct VolumeConflicts {
    restricted: bool,
    /// The pod's claims that no other pod may use (`ReadWriteOncePod`).
    exclusive: Vec<Key>,
    /// How many times other pods use these claims: one for each pod and each claim that it uses.
    users: usize,
}

impl VolumeConflicts {
    fn uses(&self, pod: &Pod) -> usize {
        let used = |(claim, _): &(Key, bool)| self.exclusive.contains(claim);
        pod.volume_claims().filter(used).count()
    }
}

impl Filter for VolumeConflicts {
    fn check(&self, cycle: SchedulingCycle<'_>, node: &NodeInfo) -> Result<(), Rejection> {
        if self.restricted && node.pods.iter().any(|pod| share_disk(cycle.pod, pod)) {
            return Err(Rejection::unschedulable(NAME, "node(s) had no available disk"));
        }
        if self.users > 0 {
            let reason = "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already \
                          in-use by another pod";
            return Err(Rejection::unschedulable(NAME, reason));
        }
        Ok(())
    }

    fn is_local(&self) -> bool {
        self.exclusive.is_empty()
    }

    fn is_idle(&self) -> bool {
        !self.restricted && self.users == 0
    }

    fn add_pod(&mut self, _: SchedulingCycle<'_>, pod: &Pod, _: NodeId) {
        self.users += self.uses(pod);
    }

    fn remove_pod(&mut self, _: SchedulingCycle<'_>, pod: &Pod, _: NodeId) {
        self.users = self.users.saturating_sub(self.uses(pod));
    }

    fn clone_box(&self) -> Box<dyn Filter> {
        Box::new(self.clone())
    }
}
