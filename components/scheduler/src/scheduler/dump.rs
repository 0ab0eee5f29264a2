//! Writes the scheduler's nodes and queue as text, for debugging.

use super::Scheduler;
use crate::object::pod::Pod;
use crate::object::resources::{CPU, Resources};
use crate::snapshot::node_info::NodeInfo;
use std::sync::Arc;

impl Scheduler {
    /// For each node a line with its allocatable and used resources, and with the pods that are on it or nominated to
    /// it.
    pub fn dump_nodes(&self) -> impl Iterator<Item = String> + '_ {
        self.snapshot.nodes().map(|node| self.dump_node(node))
    }

    fn dump_node(&self, node: &NodeInfo) -> String {
        let name = &node.node.name;
        let (requested, allocatable) = (amounts(&node.requested), amounts(&node.node.allocatable));
        let assumed = node.pods.iter().filter(|pod| self.snapshot.is_assumed(&pod.key)).count();
        let nominated: Vec<_> = self.snapshot.nominations().to(name, i64::MIN).collect();
        format!(
            "node {name}: requested {requested}; allocatable {allocatable}; {} of {} pods, {assumed} of them assumed: {}; \
             nominated: {}",
            node.pods.len(),
            node.node.allocatable.pods,
            keys(node.pods.iter()),
            keys(nominated.into_iter())
        )
    }

    /// For each pod of the queue a line with its part of the queue and its number of attempts.
    pub fn dump_queue(&self) -> impl Iterator<Item = String> + '_ {
        self.queue.dump()
    }
}

fn keys<'a>(pods: impl Iterator<Item = &'a Arc<Pod>>) -> String {
    let keys: Vec<String> = pods.map(|pod| pod.key.to_string()).collect();
    keys.join(" ")
}

fn amounts(resources: &Resources) -> String {
    let named = resources.names().map(|name| (name, resources.get(name))).filter(|(_, amount)| *amount != 0);
    let texts: Vec<String> = named
        .map(|(name, amount)| if name == CPU { format!("{name} {amount}m") } else { format!("{name} {amount}") })
        .collect();
    if texts.is_empty() { "nothing".to_owned() } else { texts.join(", ") }
}
