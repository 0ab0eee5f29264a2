//! An index of the pods that are nominated to nodes.

use crate::object::pod::Pod;
use crate::object::{Key, Text};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Pods by priority, the highest priority first.
type ByPriority = BTreeMap<(Reverse<i64>, Key), Arc<Pod>>;

/// The waiting pods that are nominated to a node, by the node's name.
#[derive(Debug, Default)]
pub struct Nominations(BTreeMap<Text, ByPriority>);

impl Nominations {
    /// The waiting pods that are nominated to this node and have at least this priority, the highest priority first.
    pub fn to(&self, node: &str, priority: i64) -> impl Iterator<Item = &Arc<Pod>> {
        let pods = self.0.get(node).into_iter().flatten();
        pods.map(|(_, pod)| pod).take_while(move |pod| pod.priority >= priority)
    }

    /// The waiting pods that are nominated to this node and have a lower priority than this, the lowest priority first.
    pub fn below(&self, node: &str, priority: i64) -> impl Iterator<Item = &Arc<Pod>> {
        let pods = self.0.get(node).into_iter().flatten().rev();
        pods.map(|(_, pod)| pod).take_while(move |pod| pod.priority < priority)
    }

    /// The names of the nodes to which waiting pods are nominated.
    pub fn nodes(&self) -> impl Iterator<Item = &Text> {
        self.0.keys()
    }

    pub(super) fn add(&mut self, pod: &Arc<Pod>, node: &Text) {
        self.0.entry(node.clone()).or_default().insert((Reverse(pod.priority), pod.key.clone()), pod.clone());
    }

    pub(super) fn remove(&mut self, pod: &Pod, node: &Text) {
        let Some(pods) = self.0.get_mut(node) else { return };
        pods.remove(&(Reverse(pod.priority), pod.key.clone()));
        if pods.is_empty() {
            self.0.remove(node);
        }
    }
}
