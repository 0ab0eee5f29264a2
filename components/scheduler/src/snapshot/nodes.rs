//! The nodes by number and by name, the images on them, and the pods that are bound to nodes which the snapshot does
//! not have.

use super::node_info::{NodeId, NodeInfo};
use crate::object::node::Node;
use crate::object::pod::Pod;
use crate::object::{Key, Text};
use std::collections::HashMap;
use std::sync::Arc;

#[derive(Debug, Default)]
pub struct Nodes {
    by_id: Vec<Option<NodeInfo>>,
    free: Vec<NodeId>,
    by_name: HashMap<Text, NodeId>,
    /// The pods that are bound to nodes which the snapshot does not have, by the node's name.
    pods_on_unknown: HashMap<Text, Vec<Arc<Pod>>>,
    /// The size in bytes of each image, and the number of nodes that have it.
    images: HashMap<Text, (i64, i64)>,
}

impl Nodes {
    /// All nodes. As long as two nodes exist, their order stays the same.
    pub fn iter(&self) -> impl Iterator<Item = &NodeInfo> {
        self.by_id.iter().flatten()
    }

    pub fn get(&self, id: NodeId) -> Option<&NodeInfo> {
        self.by_id.get(id)?.as_ref()
    }

    pub fn named(&self, name: &str) -> Option<&NodeInfo> {
        self.get(self.id_of(name)?)
    }

    pub fn id_of(&self, name: &str) -> Option<NodeId> {
        self.by_name.get(name).copied()
    }

    pub fn count(&self) -> usize {
        self.by_name.len()
    }

    /// One more than the largest number that a node has had.
    pub fn bound(&self) -> usize {
        self.by_id.len()
    }

    /// The size in bytes of an image, and the number of nodes that have it; `None` if no node has the image.
    pub fn image(&self, name: &str) -> Option<(i64, i64)> {
        self.images.get(name).copied()
    }

    pub(super) fn get_mut(&mut self, id: NodeId) -> Option<&mut NodeInfo> {
        self.by_id.get_mut(id)?.as_mut()
    }

    /// Adds a node, without pods. Returns its number.
    pub(super) fn add(&mut self, node: &Arc<Node>) -> NodeId {
        let id = self.free.pop().unwrap_or_else(|| {
            self.by_id.push(None);
            self.by_id.len() - 1
        });
        self.by_id[id] = Some(NodeInfo::new(id, node.clone()));
        self.by_name.insert(node.name.clone(), id);
        self.count_images(node, 1);
        id
    }

    /// Replaces the object of a node, and returns the previous object.
    pub(super) fn replace(&mut self, id: NodeId, after: &Arc<Node>) -> Option<Arc<Node>> {
        let before = std::mem::replace(&mut self.get_mut(id)?.node, after.clone());
        if before.images != after.images {
            self.count_images(&before, -1);
            self.count_images(after, 1);
        }
        Some(before)
    }

    pub(super) fn remove(&mut self, id: NodeId) -> Option<NodeInfo> {
        let info = self.by_id[id].take()?;
        self.by_name.remove(&info.node.name);
        self.free.push(id);
        self.count_images(&info.node, -1);
        Some(info)
    }

    fn count_images(&mut self, node: &Node, by: i64) {
        for (name, size) in &node.images {
            // If nodes report different sizes for an image, the size that was reported first counts.
            let (_, nodes) = self.images.entry(name.clone()).or_insert((*size, 0));
            *nodes += by;
            if *nodes <= 0 {
                self.images.remove(name);
            }
        }
    }

    pub(super) fn add_pod_on_unknown(&mut self, node: &Text, pod: Arc<Pod>) {
        self.pods_on_unknown.entry(node.clone()).or_default().push(pod);
    }

    pub(super) fn remove_pod_on_unknown(&mut self, node: &Text, key: &Key) {
        if let Some(pods) = self.pods_on_unknown.get_mut(node) {
            pods.retain(|one| one.key != *key);
            if pods.is_empty() {
                self.pods_on_unknown.remove(node);
            }
        }
    }

    /// Keeps the pods of a removed node until a node of this name is added.
    pub(super) fn keep_pods_on_unknown(&mut self, info: NodeInfo) {
        if !info.pods.is_empty() {
            self.pods_on_unknown.insert(info.node.name.clone(), info.pods);
        }
    }

    /// Removes and returns the pods that were bound to this node before the snapshot had the node.
    pub(super) fn take_pods_on_unknown(&mut self, node: &Text) -> Vec<Arc<Pod>> {
        self.pods_on_unknown.remove(node).unwrap_or_default()
    }
}
