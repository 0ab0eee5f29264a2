//! TaintToleration: a node's taints keep away pods that do not tolerate them, or make other nodes better for such pods.

use crate::object::terms::{Taint, tolerated, untolerated};
use crate::plugin::{FilterFn, Normalization, Plugin, PreFilterResult, QueueingHint, SchedulingCycle, Score};
use crate::snapshot::node_info::NodeInfo;
use crate::snapshot::{ClusterEvent, ObjectChange};
use crate::status::Rejection;

pub const NAME: &str = "TaintToleration";

#[derive(Debug)]
pub struct TaintToleration;

impl Plugin for TaintToleration {
    fn name(&self) -> &'static str {
        NAME
    }

    fn pre_filter(&self, _: SchedulingCycle<'_>) -> PreFilterResult {
        PreFilterResult::filter(FilterFn(|cycle, node| {
            match untolerated(&node.node.taints, &cycle.pod.template.tolerations) {
                Some(_) => Err(Rejection::unresolvable(NAME, "node(s) had untolerated taint(s)")),
                None => Ok(()),
            }
        }))
    }

    fn score(&self, _: SchedulingCycle<'_>) -> Option<Box<dyn Score>> {
        Some(Box::new(UntoleratedTaints))
    }

    fn queueing_hint(&self, cycle: SchedulingCycle<'_>, event: &ClusterEvent) -> QueueingHint {
        let untolerated = |taints: &[Taint]| untolerated(taints, &cycle.pod.template.tolerations).is_some();
        QueueingHint::queue_if(match &event.change {
            ObjectChange::Node(before, Some(after)) => {
                before.as_ref().is_none_or(|before| untolerated(&before.taints)) && !untolerated(&after.taints)
            }
            ObjectChange::Pod(Some(before), Some(after)) => {
                after.uid == cycle.pod.uid && before.template.tolerations != after.template.tolerations
            }
            _ => false,
        })
    }
}

/// Scores a node by how many of its `PreferNoSchedule` taints the pod does not tolerate.
struct UntoleratedTaints;

impl Score for UntoleratedTaints {
    fn score(&self, cycle: SchedulingCycle<'_>, node: &NodeInfo) -> i64 {
        // A toleration with another effect does not tolerate such a taint.
        let counts =
            |taint: &&Taint| &*taint.effect == "PreferNoSchedule" && !tolerated(taint, &cycle.pod.template.tolerations);
        i64::try_from(node.node.taints.iter().filter(counts).count()).unwrap_or(i64::MAX)
    }

    fn normalization(&self) -> Normalization {
        Normalization::ByHighestReversed
    }
}
