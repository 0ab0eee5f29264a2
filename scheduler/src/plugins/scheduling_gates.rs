//! SchedulingGates: a pod waits until all of its gates are removed.

use crate::plugin::{Cycle, Hint, Plugin};
use crate::snapshot::{Event, Seen};
use crate::status::Refusal;

pub const NAME: &str = "SchedulingGates";

#[derive(Debug)]
pub struct SchedulingGates;

impl Plugin for SchedulingGates {
    fn name(&self) -> &'static str {
        NAME
    }

    fn pre_enqueue(&self, cycle: Cycle<'_>) -> Option<Refusal> {
        let gates = &cycle.pod.gates;
        (!gates.is_empty()).then(|| Refusal::hard(NAME, format!("waiting for scheduling gates: [{}]", gates.join(" "))))
    }

    fn hint(&self, cycle: Cycle<'_>, event: &Event) -> Hint {
        Hint::queue_if(match &event.seen {
            Seen::Pod(_, Some(after)) => after.uid == cycle.pod.uid && after.gates.is_empty(),
            _ => false,
        })
    }
}
