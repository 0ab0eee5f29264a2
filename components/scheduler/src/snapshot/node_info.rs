//! A node with its pods and the sums of their resources.

use crate::object::Key;
use crate::object::node::Node;
use crate::object::pod::Pod;
use crate::object::resources::Resources;
use std::sync::Arc;

/// The number of a node in a snapshot. If a node is removed, its number is used again for a new node.
pub type NodeId = usize;

/// A node, its pods, and the sums of their resources.
#[derive(Debug, Clone)]
pub struct NodeInfo {
    pub id: NodeId,
    pub node: Arc<Node>,
    /// The pods on the node, in the order in which they were added.
    pub pods: Vec<Arc<Pod>>,
    /// The sum of the pods' requests, as filters use them.
    pub requested: Resources,
    /// The sum of the pods' requests, as scores use them.
    pub non_zero_requested: Resources,
}

impl NodeInfo {
    pub(super) fn new(id: NodeId, node: Arc<Node>) -> Self {
        NodeInfo {
            id,
            node,
            pods: Vec::new(),
            requested: Resources::default(),
            non_zero_requested: Resources::default(),
        }
    }

    pub fn add(&mut self, pod: Arc<Pod>) {
        self.requested.add(pod.effective_requests());
        self.non_zero_requested.add(pod.effective_non_zero_requests());
        self.pods.push(pod);
    }

    pub fn remove(&mut self, key: &Key) -> Option<Arc<Pod>> {
        let at = self.pods.iter().position(|pod| pod.key == *key)?;
        let pod = self.pods.remove(at);
        if self.requested.is_saturated() || self.non_zero_requested.is_saturated() {
            self.recompute_sums();
        } else {
            self.requested.subtract(pod.effective_requests());
            self.non_zero_requested.subtract(pod.effective_non_zero_requests());
        }
        Some(pod)
    }

    /// Computes the sums of requests from all pods again. If a sum does not fit into 64 bits, it is the largest number
    /// that fits; subtracting a removed pod's requests from such a sum would lose requests of the other pods.
    fn recompute_sums(&mut self) {
        (self.requested, self.non_zero_requested) = Default::default();
        for pod in &self.pods {
            self.requested.add(pod.effective_requests());
            self.non_zero_requested.add(pod.effective_non_zero_requests());
        }
    }
}
