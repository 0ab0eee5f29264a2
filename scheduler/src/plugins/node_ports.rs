//! NodePorts: a host port belongs to one pod of a node.

use crate::object::pod::{Pod, Port};
use crate::plugin::{Check, Cycle, Hint, Plugin, PreFilter};
use crate::snapshot::{Event, Seen};
use crate::status::Refusal;

pub const NAME: &str = "NodePorts";

#[derive(Debug)]
pub struct NodePorts;

/// Whether a pod uses one of these ports, which are sorted.
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

    fn pre_filter(&self, cycle: Cycle<'_>) -> PreFilter {
        if cycle.pod.template.ports.is_empty() {
            return PreFilter::Skip;
        }
        PreFilter::judge(Check(|cycle, node| {
            if node.pods.iter().any(|pod| conflict(&cycle.pod.template.ports, pod)) {
                return Err(Refusal::soft(NAME, "node(s) didn't have free ports for the requested pod ports"));
            }
            Ok(())
        }))
    }

    fn hears(&self, event: &Event) -> bool {
        event.is_about_places()
    }

    fn hint(&self, cycle: Cycle<'_>, event: &Event) -> Hint {
        Hint::queue_if(match &event.seen {
            Seen::Pod(Some(gone), None) => gone.node_name.is_some() && conflict(&cycle.pod.template.ports, gone),
            Seen::Node(None, Some(_)) => true,
            _ => false,
        })
    }
}
