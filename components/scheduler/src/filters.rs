//! The filters of one search for a node, and the nominated pods that the search must take into account.

use crate::object::pod::Pod;
use crate::plugin::{Filter, SchedulingCycle};
use crate::snapshot::node_info::{NodeId, NodeInfo};
use crate::status::Rejection;
use std::sync::Arc;

/// The filters of one search, in their order.
pub struct Filters {
    pub list: Vec<Box<dyn Filter>>,
    /// Whether every filter checks a node, even after one has rejected it.
    pub check_all: bool,
}

impl Filters {
    pub fn clone_box(&self) -> Self {
        Filters { list: self.list.iter().map(|filter| filter.clone_box()).collect(), check_all: self.check_all }
    }

    pub fn add_pod(&mut self, cycle: SchedulingCycle<'_>, pod: &Pod, node: NodeId) {
        self.list.iter_mut().for_each(|filter| filter.add_pod(cycle, pod, node));
    }

    pub fn remove_pod(&mut self, cycle: SchedulingCycle<'_>, pod: &Pod, node: NodeId) {
        self.list.iter_mut().for_each(|filter| filter.remove_pod(cycle, pod, node));
    }

    /// Whether a node is feasible: it must pass the filters both with and without the nominated pods that have at least
    /// this pod's priority.
    pub fn check(&mut self, cycle: SchedulingCycle<'_>, node: &NodeInfo) -> Result<(), Rejection> {
        if let Some(full_node) = with_nominated_pods(cycle, node) {
            let nominated = &full_node.pods[node.pods.len()..];
            nominated.iter().for_each(|pod| self.add_pod(cycle, pod, node.id));
            let checked = self.check_alone(cycle, &full_node);
            nominated.iter().for_each(|pod| self.remove_pod(cycle, pod, node.id));
            checked?;
        }
        self.check_alone(cycle, node)
    }

    fn check_alone(&self, cycle: SchedulingCycle<'_>, node: &NodeInfo) -> Result<(), Rejection> {
        if !self.check_all {
            return self.list.iter().try_for_each(|filter| filter.check(cycle, node));
        }
        let rejections = self.list.iter().filter_map(|filter| filter.check(cycle, node).err());
        let merged = rejections.reduce(|one, other| Rejection {
            code: one.code.max(other.code),
            plugin: one.plugin,
            reasons: one.reasons.into_iter().chain(other.reasons).collect(),
        });
        merged.map_or(Ok(()), Err)
    }
}

/// The pods that are nominated to a node and must be taken into account: their priority is at least the priority of the
/// pod to be scheduled. At most as many pods are returned as the node may have, because with so many pods the node is
/// full.
pub fn nominated_pods_ahead<'a>(cycle: SchedulingCycle<'a>, node: &NodeInfo) -> impl Iterator<Item = &'a Arc<Pod>> {
    let most = usize::try_from(node.node.allocatable.pods).unwrap_or(0).max(1);
    let SchedulingCycle { snapshot, pod } = cycle;
    snapshot.nominations().to(&node.node.name, pod.priority).filter(|one| one.uid != pod.uid).take(most)
}

/// The node with the nominated pods of [`nominated_pods_ahead`] added; `None` if there are none.
pub fn with_nominated_pods(cycle: SchedulingCycle<'_>, node: &NodeInfo) -> Option<NodeInfo> {
    let mut nominated = nominated_pods_ahead(cycle, node).peekable();
    nominated.peek()?;
    let mut full_node = node.clone();
    nominated.for_each(|pod| full_node.add(pod.clone()));
    Some(full_node)
}
