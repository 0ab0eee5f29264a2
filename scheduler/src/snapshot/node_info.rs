//! A node with the pods on it and their sums.

use crate::object::Key;
use crate::object::node::Node;
use crate::object::pod::Pod;
use crate::object::resources::Resources;
use std::sync::Arc;

/// The number of a node in a snapshot. A node that goes leaves its number to one that comes.
pub type NodeId = usize;

/// A node, what lies on it, and what that comes to.
#[derive(Debug, Clone)]
pub struct NodeInfo {
    pub id: NodeId,
    pub node: Arc<Node>,
    /// In the order in which they came.
    pub pods: Vec<Arc<Pod>>,
    /// What the pods hold, as filters count it.
    pub held: Resources,
    /// What the pods hold, as scores by allocation count it.
    pub held_scored: Resources,
}

impl NodeInfo {
    pub(super) fn new(id: NodeId, node: Arc<Node>) -> Self {
        NodeInfo { id, node, pods: Vec::new(), held: Resources::default(), held_scored: Resources::default() }
    }

    pub fn add(&mut self, pod: Arc<Pod>) {
        self.held.add(pod.held());
        self.held_scored.add(pod.held_scored());
        self.pods.push(pod);
    }

    pub fn remove(&mut self, key: &Key) -> Option<Arc<Pod>> {
        let at = self.pods.iter().position(|pod| pod.key == *key)?;
        let pod = self.pods.remove(at);
        if self.held.is_beyond_count() || self.held_scored.is_beyond_count() {
            self.sum_up();
        } else {
            self.held.subtract(pod.held());
            self.held_scored.subtract(pod.held_scored());
        }
        Some(pod)
    }

    /// Anybody may make a pod that asks for more than fits into a number. When it goes, what others hold must not be
    /// forgotten with it.
    fn sum_up(&mut self) {
        (self.held, self.held_scored) = Default::default();
        for pod in &self.pods {
            self.held.add(pod.held());
            self.held_scored.add(pod.held_scored());
        }
    }
}
