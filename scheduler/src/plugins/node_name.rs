//! NodeName: a pod with a node name goes to that node only.

use crate::plugin::{Check, Cycle, Hint, Plugin, PreFilter};
use crate::snapshot::{Event, Seen};
use crate::status::Refusal;

pub const NAME: &str = "NodeName";

#[derive(Debug)]
pub struct NodeName;

impl Plugin for NodeName {
    fn name(&self) -> &'static str {
        NAME
    }

    fn pre_filter(&self, _: Cycle<'_>) -> PreFilter {
        PreFilter::judge(Check(|cycle, node| match &cycle.pod.node_name {
            Some(name) if *name != node.node.name => {
                Err(Refusal::hard(NAME, "node(s) didn't match the requested node name"))
            }
            _ => Ok(()),
        }))
    }

    fn hint(&self, _: Cycle<'_>, event: &Event) -> Hint {
        Hint::queue_if(matches!(event.seen, Seen::Node(None, Some(_))))
    }
}
