//! NodeUnschedulable: refuses nodes marked `unschedulable`, unless the pod tolerates that taint.

use crate::object::pod::Pod;
use crate::object::terms::{Taint, tolerated};
use crate::plugin::{Check, Cycle, Hint, Plugin, PreFilter};
use crate::snapshot::{Event, Seen};
use crate::status::Refusal;

pub const NAME: &str = "NodeUnschedulable";

#[derive(Debug)]
pub struct NodeUnschedulable;

fn tolerates(pod: &Pod) -> bool {
    let taint = Taint { key: "node.kubernetes.io/unschedulable".into(), value: "".into(), effect: "NoSchedule".into() };
    tolerated(&taint, &pod.template.tolerations)
}

impl Plugin for NodeUnschedulable {
    fn name(&self) -> &'static str {
        NAME
    }

    fn pre_filter(&self, _: Cycle<'_>) -> PreFilter {
        PreFilter::judge(Check(|cycle, node| {
            if node.node.unschedulable && !tolerates(cycle.pod) {
                return Err(Refusal::hard(NAME, "node(s) were unschedulable"));
            }
            Ok(())
        }))
    }

    fn hint(&self, cycle: Cycle<'_>, event: &Event) -> Hint {
        Hint::queue_if(match &event.seen {
            Seen::Node(before, Some(after)) => {
                !after.unschedulable && before.as_ref().is_none_or(|before| before.unschedulable)
            }
            Seen::Pod(Some(before), Some(after)) => {
                after.uid == cycle.pod.uid && !tolerates(before) && tolerates(after)
            }
            _ => false,
        })
    }
}
