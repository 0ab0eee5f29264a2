//! SchedulingGates: a pod waits until all of its gates are removed.

use crate::plugin::{Plugin, QueueingHint, SchedulingCycle};
use crate::snapshot::{ClusterEvent, ObjectChange};
use crate::status::Rejection;

pub const NAME: &str = "SchedulingGates";

#[derive(Debug)]
pub struct SchedulingGates;

impl Plugin for SchedulingGates {
    fn name(&self) -> &'static str {
        NAME
    }

    fn pre_enqueue(&self, cycle: SchedulingCycle<'_>) -> Option<Rejection> {
        let gates = &cycle.pod.gates;
        (!gates.is_empty())
            .then(|| Rejection::unresolvable(NAME, format!("waiting for scheduling gates: [{}]", gates.join(" "))))
    }

    fn queueing_hint(&self, cycle: SchedulingCycle<'_>, event: &ClusterEvent) -> QueueingHint {
        QueueingHint::queue_if(match &event.change {
            ObjectChange::Pod(_, Some(after)) => after.uid == cycle.pod.uid && after.gates.is_empty(),
            _ => false,
        })
    }
}
