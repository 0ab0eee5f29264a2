//! Objects that concern pods: Services and controllers that select them, disruption budgets that protect them, and
//! Workloads that group them.

use super::labels::Labels;
use super::selector::Selector;
use super::{StringPool, Text, entries, items};
use holdfast_value::Value;

/// An object that selects pods: a Service, or a controller that owns them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodSelector {
    /// The selector of a Service or a ReplicationController, which is a map of labels; `None` if it selects no pod.
    pub labels: Option<Labels>,
    /// The label selector of a ReplicaSet or a StatefulSet.
    pub selector: Selector,
}

impl PodSelector {
    pub fn by_labels(pool: &mut StringPool, object: &Value) -> Self {
        let selector = &object["spec"]["selector"];
        PodSelector {
            labels: selector.is_object().then(|| Labels::decode(pool, selector)),
            selector: Selector::nothing(),
        }
    }

    pub fn by_selector(pool: &mut StringPool, object: &Value) -> Self {
        PodSelector { labels: None, selector: Selector::decode(pool, &object["spec"]["selector"]) }
    }
}

/// The fields of a PodDisruptionBudget that the scheduler reads.
#[derive(Debug, Clone, PartialEq)]
pub struct DisruptionBudget {
    pub selector: Selector,
    pub allowed: i64,
    /// The names of the pods whose eviction the budget's status has already counted.
    pub disrupted: Vec<Text>,
}

impl DisruptionBudget {
    pub fn decode(pool: &mut StringPool, object: &Value) -> Self {
        DisruptionBudget {
            selector: Selector::decode(pool, &object["spec"]["selector"]),
            allowed: object["status"]["disruptionsAllowed"].as_i64().unwrap_or(0),
            disrupted: entries(&object["status"]["disruptedPods"]).map(|(name, _)| pool.text(name)).collect(),
        }
    }
}

/// The fields of a Workload that the scheduler reads: how many pods of each group must get nodes together.
#[derive(Debug, Clone, PartialEq)]
pub struct Workload {
    /// The name of each group, and how many of its pods must get nodes together; `None` if its pods are placed one by
    /// one.
    pub groups: Vec<(Text, Option<usize>)>,
}

impl Workload {
    pub fn decode(pool: &mut StringPool, object: &Value) -> Self {
        let groups = items(&object["spec"]["podGroups"]).map(|group| {
            let min_count =
                group["policy"]["gang"]["minCount"].as_u64().map(|count| usize::try_from(count).unwrap_or(usize::MAX));
            (pool.field(&group["name"]), min_count)
        });
        Workload { groups: groups.collect() }
    }

    /// How many pods of a group must get nodes together; `Some(None)` if the group's pods are placed one by one.
    /// Returns `None` if the group does not exist.
    pub fn min_count(&self, group: &str) -> Option<Option<usize>> {
        self.groups.iter().find(|(name, _)| &**name == group).map(|(_, min_count)| *min_count)
    }
}
