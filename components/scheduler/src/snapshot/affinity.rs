//! The index of bound pods with pod (anti-)affinity.

use super::node_info::NodeId;
use crate::object::pod::Pod;
use crate::object::{Key, Text};
use std::collections::BTreeMap;

/// Bound pods with pod (anti-)affinity and their nodes, by the namespace that their terms select; `None` means any
/// namespace.
#[derive(Debug, Default)]
pub(super) struct AffinityIndex(BTreeMap<Option<Text>, BTreeMap<Key, NodeId>>);

impl AffinityIndex {
    /// Adds a pod that was added to a node.
    pub fn add(&mut self, pod: &Pod, node: NodeId) {
        for namespace in pod.template.pod_affinity.scope.index_keys() {
            self.0.entry(namespace).or_default().insert(pod.key.clone(), node);
        }
    }

    /// Removes a pod that was removed from a node.
    pub fn remove(&mut self, pod: &Pod) {
        for namespace in pod.template.pod_affinity.scope.index_keys() {
            if let Some(pods) = self.0.get_mut(&namespace) {
                pods.remove(&pod.key);
                if pods.is_empty() {
                    self.0.remove(&namespace);
                }
            }
        }
    }

    /// The pods whose terms may select pods of this namespace.
    pub fn selecting(&self, namespace: &Text) -> impl Iterator<Item = (&Key, NodeId)> {
        let namespaces = [None, Some(namespace.clone())];
        let found = namespaces.into_iter().filter_map(|namespace| self.0.get(&namespace)).flatten();
        found.map(|(key, node)| (key, *node))
    }
}
