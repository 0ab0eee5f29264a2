//! TaintToleration: taints repel pods that do not tolerate them, or make pods prefer other nodes.

use crate::object::terms::{Taint, tolerated, untolerated};
use crate::plugin::{Check, Cycle, Hint, Plugin, PreFilter, Scale, Score};
use crate::snapshot::node_info::NodeInfo;
use crate::snapshot::{Event, Seen};
use crate::status::Refusal;

pub const NAME: &str = "TaintToleration";

#[derive(Debug)]
pub struct TaintToleration;

impl Plugin for TaintToleration {
    fn name(&self) -> &'static str {
        NAME
    }

    fn pre_filter(&self, _: Cycle<'_>) -> PreFilter {
        PreFilter::judge(Check(|cycle, node| match untolerated(&node.node.taints, &cycle.pod.template.tolerations) {
            Some(_) => Err(Refusal::hard(NAME, "node(s) had untolerated taint(s)")),
            None => Ok(()),
        }))
    }

    fn score(&self, _: Cycle<'_>) -> Option<Box<dyn Score>> {
        Some(Box::new(Unwelcome))
    }

    fn hint(&self, cycle: Cycle<'_>, event: &Event) -> Hint {
        let untolerated = |taints: &[Taint]| untolerated(taints, &cycle.pod.template.tolerations).is_some();
        Hint::queue_if(match &event.seen {
            Seen::Node(before, Some(after)) => {
                before.as_ref().is_none_or(|before| untolerated(&before.taints)) && !untolerated(&after.taints)
            }
            Seen::Pod(Some(before), Some(after)) => {
                after.uid == cycle.pod.uid && before.template.tolerations != after.template.tolerations
            }
            _ => false,
        })
    }
}

/// The number of `PreferNoSchedule` taints that the pod does not tolerate.
struct Unwelcome;

impl Score for Unwelcome {
    fn score(&self, cycle: Cycle<'_>, node: &NodeInfo) -> i64 {
        // Only tolerations whose effect matches count.
        let unwelcome =
            |taint: &&Taint| &*taint.effect == "PreferNoSchedule" && !tolerated(taint, &cycle.pod.template.tolerations);
        i64::try_from(node.node.taints.iter().filter(unwelcome).count()).unwrap_or(i64::MAX)
    }

    fn scale(&self) -> Scale {
        Scale::ByHighestReversed
    }
}
