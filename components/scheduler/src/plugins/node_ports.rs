//! NodePorts: on one node, only one pod can use a host port.

use crate::object::pod::{Pod, Port};
use crate::plugin::{FilterFn, Plugin, PreFilterResult, QueueingHint, SchedulingCycle};
use crate::snapshot::{ClusterEvent, ObjectChange};
use crate::status::Rejection;

pub const NAME: &str = "NodePorts";

#[derive(Debug)]
pub struct NodePorts;

/// Whether a pod uses one of these host ports, which are sorted.
fn conflict(own: &[Port], pod: &Pod) -> bool {
    pod.template.ports.iter().any(|used| {
        let from = own.partition_point(|port| port.port < used.port);
        own[from..].iter().take_while(|port| port.port == used.port).any(|port| port.conflicts(used))
    })
}

impl Plugin for NodePorts {
    fn name(&self) -> &'static str {
        NAME
    }

    fn pre_filter(&self, cycle: SchedulingCycle<'_>) -> PreFilterResult {
        if cycle.pod.template.ports.is_empty() {
            return PreFilterResult::Skip;
        }
        PreFilterResult::filter(FilterFn(|cycle, node| {
            if node.pods.iter().any(|pod| conflict(&cycle.pod.template.ports, pod)) {
                return Err(Rejection::unschedulable(
                    NAME,
                    "node(s) didn't have free ports for the requested pod ports",
                ));
            }
            Ok(())
        }))
    }

    fn concerns_other_pods(&self, event: &ClusterEvent) -> bool {
        event.concerns_nodes()
    }

    fn queueing_hint(&self, cycle: SchedulingCycle<'_>, event: &ClusterEvent) -> QueueingHint {
        QueueingHint::queue_if(match &event.change {
            ObjectChange::Pod(Some(gone), None) => {
                gone.node_name.is_some() && conflict(&cycle.pod.template.ports, gone)
            }
            ObjectChange::Node(None, Some(_)) => true,
            _ => false,
        })
    }
}
