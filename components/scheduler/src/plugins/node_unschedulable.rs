//! NodeUnschedulable: rejects nodes with `spec.unschedulable`, unless the pod tolerates the taint that Kubernetes gives
//! such nodes.

use crate::object::pod::Pod;
use crate::object::terms::{Taint, tolerated};
use crate::plugin::{FilterFn, Plugin, PreFilterResult, QueueingHint, SchedulingCycle};
use crate::snapshot::{ClusterEvent, ObjectChange};
use crate::status::Rejection;

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

    fn pre_filter(&self, _: SchedulingCycle<'_>) -> PreFilterResult {
        PreFilterResult::filter(FilterFn(|cycle, node| {
            if node.node.unschedulable && !tolerates(cycle.pod) {
                return Err(Rejection::unresolvable(NAME, "node(s) were unschedulable"));
            }
            Ok(())
        }))
    }

    fn queueing_hint(&self, cycle: SchedulingCycle<'_>, event: &ClusterEvent) -> QueueingHint {
        QueueingHint::queue_if(match &event.change {
            ObjectChange::Node(before, Some(after)) => {
                !after.unschedulable && before.as_ref().is_none_or(|before| before.unschedulable)
            }
            ObjectChange::Pod(Some(before), Some(after)) => {
                after.uid == cycle.pod.uid && !tolerates(before) && tolerates(after)
            }
            _ => false,
        })
    }
}
