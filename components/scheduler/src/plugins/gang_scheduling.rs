//! GangScheduling: the pods of one group of a Workload get nodes all together, or none of them gets a node.

use crate::object::pod::{Gang, Pod};
use crate::object::{Key, Kind};
use crate::plugin::{Plugin, QueueingHint, SchedulingCycle};
use crate::snapshot::{ClusterEvent, Gangs, ObjectChange, Snapshot};
use crate::status::Rejection;

pub const NAME: &str = "GangScheduling";

/// How many seconds the pods of a gang that have nodes wait for the other pods of the gang.
pub const PERMIT_TIMEOUT_SECONDS: u64 = 300;

#[derive(Debug)]
pub struct GangScheduling;

/// Why it is unknown how many pods a gang needs.
enum MissingGang {
    Workload,
    Group,
}

/// How many pods of a gang must get nodes together; `None` if the pods of the group are scheduled one by one.
fn min_count(gangs: &Gangs, gang: &Gang) -> Result<Option<usize>, MissingGang> {
    let key = Key { namespace: gang.namespace.clone(), name: gang.workload.clone() };
    let workload = gangs.workload(&key).ok_or(MissingGang::Workload)?;
    workload.min_count(&gang.group).ok_or(MissingGang::Group)
}

fn no_group(gang: &Gang) -> String {
    format!("pod group \"{}\" doesn't exist for a workload \"{}\"", gang.group, gang.workload)
}

/// Whether a pod with a chosen node must wait until enough other pods of its gang have nodes. Fails if the gang's
/// Workload or group does not exist.
pub fn must_wait(snapshot: &Snapshot, pod: &Pod) -> Result<bool, String> {
    let Some(gang) = &pod.template.gang else { return Ok(false) };
    match min_count(snapshot.gangs(), gang) {
        Ok(None) => Ok(false),
        Ok(Some(min_count)) => Ok(snapshot.gang(gang).filter(|one| one.node_name.is_some()).count() < min_count),
        Err(MissingGang::Group) => Err(no_group(gang)),
        Err(MissingGang::Workload) => {
            let Gang { namespace, workload, .. } = gang;
            let why = format!("workload.scheduling.k8s.io \"{workload}\" not found");
            Err(format!("failed to get workload {namespace}/{workload}: {why}"))
        }
    }
}

impl Plugin for GangScheduling {
    fn name(&self) -> &'static str {
        NAME
    }

    fn pre_enqueue(&self, cycle: SchedulingCycle<'_>) -> Option<Rejection> {
        let gang = cycle.pod.template.gang.as_ref()?;
        let reason = match min_count(cycle.snapshot.gangs(), gang) {
            Err(MissingGang::Workload) => {
                format!("waiting for pods's workload \"{}\" to appear in scheduling queue", gang.workload)
            }
            Err(MissingGang::Group) => no_group(gang),
            Ok(Some(min_count)) if cycle.snapshot.gang(gang).count() < min_count => {
                "waiting for minCount pods from a gang to appear in scheduling queue".into()
            }
            Ok(_) => return None,
        };
        Some(Rejection::unresolvable(NAME, reason))
    }

    fn concerns_other_pods(&self, _: &ClusterEvent) -> bool {
        true
    }

    fn queueing_hint(&self, cycle: SchedulingCycle<'_>, event: &ClusterEvent) -> QueueingHint {
        let Some(gang) = &cycle.pod.template.gang else { return QueueingHint::Skip };
        QueueingHint::queue_if(match &event.change {
            ObjectChange::Pod(before, Some(pod)) => {
                let is_new_member =
                    before.as_ref().is_none_or(|before| before.node_name.is_none() && pod.node_name.is_some());
                is_new_member && pod.template.gang.as_ref() == Some(gang)
            }
            ObjectChange::Other { before: false, after: true } => {
                event.kind == Kind::Workload && event.key.namespace == gang.namespace && event.key.name == gang.workload
            }
            _ => false,
        })
    }
}
