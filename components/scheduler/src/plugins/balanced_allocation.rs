//! NodeResourcesBalancedAllocation: prefers nodes on which the pod makes the utilizations of the node's resources more
//! equal.

use super::allocation::{self, ResourceWeight, ScoredResource, default_resources};
use crate::object::resources::Resources;
use crate::object::{Key, Kind};
use crate::plugin::{MAX_SCORE, Plugin, SchedulingCycle, Score};
use crate::snapshot::node_info::NodeInfo;

pub const NAME: &str = "NodeResourcesBalancedAllocation";

#[derive(Debug)]
pub struct BalancedAllocation {
    pub resources: Vec<ResourceWeight>,
}

impl Default for BalancedAllocation {
    fn default() -> Self {
        BalancedAllocation { resources: default_resources() }
    }
}

impl Plugin for BalancedAllocation {
    fn name(&self) -> &'static str {
        NAME
    }

    fn score(&self, cycle: SchedulingCycle<'_>) -> Option<Box<dyn Score>> {
        let requested = &cycle.pod.template.requests;
        let nothing = self.resources.iter().all(|one| requested.get(&one.name) == 0);
        (!nothing).then(|| {
            Box::new(BalanceScore(ScoredResource::for_pod(cycle, &self.resources, requested))) as Box<dyn Score>
        })
    }

    fn depends_on(&self, cycle: SchedulingCycle<'_>, kind: Kind, _: &Key) -> bool {
        allocation::depends_on(cycle, &self.resources, kind)
    }
}

struct BalanceScore(Vec<ScoredResource>);

impl Score for BalanceScore {
    fn score(&self, cycle: SchedulingCycle<'_>, node: &NodeInfo) -> i64 {
        let requested = &cycle.pod.template.requests;
        let with = self.balance(cycle, node, requested, true);
        let without = self.balance(cycle, node, requested, false);
        MAX_SCORE / 2 + (MAX_SCORE / 2 + with - without) / 2
    }
}

impl BalanceScore {
    /// How equal the utilizations of the node's resources are, with the pod or without it: 100 if they are equal, and
    /// less the more they differ.
    fn balance(&self, cycle: SchedulingCycle<'_>, node: &NodeInfo, pod: &Resources, with: bool) -> i64 {
        let mut shares = [0.0; 8];
        let mut more = Vec::new();
        let mut count = 0;
        for resource in &self.0 {
            let requested = pod.get(&resource.name);
            let Some((allocatable, total)) = resource.amounts(cycle, node, &node.requested, requested) else {
                continue;
            };
            let total = if with { total } else { total.saturating_sub(requested) };
            let share = (total as f64 / allocatable as f64).clamp(0.0, 1.0);
            match shares.get_mut(count) {
                Some(slot) => *slot = share,
                None => more.push(share),
            }
            count += 1;
        }
        let all = || shares[..count.min(shares.len())].iter().chain(&more).copied();
        let deviation = match count {
            0 | 1 => 0.0,
            2 => (shares[0] - shares[1]).abs() / 2.0,
            _ => {
                let mean = all().sum::<f64>() / count as f64;
                (all().map(|share| (share - mean) * (share - mean)).sum::<f64>() / count as f64).sqrt()
            }
        };
        ((1.0 - deviation) * MAX_SCORE as f64) as i64
    }
}
