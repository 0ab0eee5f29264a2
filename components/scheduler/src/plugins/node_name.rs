//! NodeName: only the node that the pod names is feasible.

use crate::plugin::{FilterFn, Plugin, PreFilterResult, QueueingHint, SchedulingCycle};
use crate::snapshot::{ClusterEvent, ObjectChange};
use crate::status::Rejection;

pub const NAME: &str = "NodeName";

#[derive(Debug)]
pub struct NodeName;

impl Plugin for NodeName {
    fn name(&self) -> &'static str {
        NAME
    }

    fn pre_filter(&self, _: SchedulingCycle<'_>) -> PreFilterResult {
        PreFilterResult::filter(FilterFn(|cycle, node| match &cycle.pod.node_name {
            Some(name) if *name != node.node.name => {
                Err(Rejection::unresolvable(NAME, "node(s) didn't match the requested node name"))
            }
            _ => Ok(()),
        }))
    }

    fn queueing_hint(&self, _: SchedulingCycle<'_>, event: &ClusterEvent) -> QueueingHint {
        QueueingHint::queue_if(matches!(event.change, ObjectChange::Node(None, Some(_))))
    }
}
