//! GangScheduling: the pods of a group of a Workload lie somewhere all together, or none does.

use crate::object::pod::Pod;
use crate::object::{Key, Kind};
use crate::plugin::{Cycle, Hint, Plugin};
use crate::snapshot::{Event, Seen, Snapshot};
use crate::status::Refusal;

pub const NAME: &str = "GangScheduling";

/// How long the first pods of a gang hold their places for the others, in seconds.
pub const PATIENCE_SECONDS: u64 = 300;

#[derive(Debug)]
pub struct GangScheduling;

/// The smallest number of pods of the gang that a pod is a member of.
fn least(snapshot: &Snapshot, pod: &Pod) -> Option<Result<usize, String>> {
    let (workload, group) = pod.template.gang.as_ref()?;
    let key = Key { namespace: pod.key.namespace.clone(), name: workload.clone() };
    match snapshot.workloads.get(&key) {
        None => Some(Err(format!("waiting for pods's workload \"{workload}\" to appear in scheduling queue"))),
        Some(workload) => workload.min_count(group).map(Ok),
    }
}

/// Whether a pod that has a place must hold it until others of its gang have theirs.
pub fn must_wait(snapshot: &Snapshot, pod: &Pod) -> bool {
    let (Some(Ok(least)), Some((workload, group))) = (least(snapshot, pod), &pod.template.gang) else { return false };
    let placed = snapshot.gang(&pod.key.namespace, workload, group).filter(|one| one.node_name.is_some()).count();
    placed < least
}

impl Plugin for GangScheduling {
    fn name(&self) -> &'static str {
        NAME
    }

    fn pre_enqueue(&self, cycle: Cycle<'_>) -> Option<Refusal> {
        let (workload, group) = cycle.pod.template.gang.as_ref()?;
        match least(cycle.snapshot, cycle.pod)? {
            Err(reason) => Some(Refusal::hard(NAME, reason)),
            Ok(least) => {
                let members = cycle.snapshot.gang(&cycle.pod.key.namespace, workload, group).count();
                (members < least)
                    .then(|| Refusal::hard(NAME, "waiting for minCount pods from a gang to appear in scheduling queue"))
            }
        }
    }

    fn hint(&self, cycle: Cycle<'_>, event: &Event) -> Hint {
        let Some(gang) = &cycle.pod.template.gang else { return Hint::Skip };
        let same_namespace = event.key.namespace == cycle.pod.key.namespace;
        Hint::queue_if(
            same_namespace
                && match &event.seen {
                    Seen::Pod(None, Some(pod)) => pod.template.gang.as_ref() == Some(gang),
                    Seen::Other { after: true, .. } => event.kind == Kind::Workload && event.key.name == gang.0,
                    _ => false,
                },
        )
    }
}
