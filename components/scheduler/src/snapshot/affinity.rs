//! An index of the bound pods that have terms of pod affinity or anti-affinity.

use super::node_info::NodeId;
use crate::object::pod::Pod;
use crate::object::{Key, Text};
use std::collections::BTreeMap;

/// The bound pods with terms of pod affinity or anti-affinity and the numbers of their nodes, by the namespaces that
/// the terms may select; `None` stands for any namespace.
#[derive(Debug, Default)]
pub(super) struct AffinityIndex(BTreeMap<Option<Text>, BTreeMap<Key, NodeId>>);

impl AffinityIndex {
    /// Adds a pod to the index, when the pod was added to a node.
    pub fn add(&mut self, pod: &Pod, node: NodeId) {
        for namespace in pod.template.pod_affinity.scope.index_keys() {
            self.0.entry(namespace).or_default().insert(pod.key.clone(), node);
        }
    }

    /// Removes a pod from the index, when the pod was removed from its node.
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

    /// The pods whose terms may select pods of this namespace, with the numbers of their nodes.
    pub fn selecting(&self, namespace: &Text) -> impl Iterator<Item = (&Key, NodeId)> {
        let namespaces = [None, Some(namespace.clone())];
        let found = namespaces.into_iter().filter_map(|namespace| self.0.get(&namespace)).flatten();
        found.map(|(key, node)| (key, *node))
    }
}
