//! The index of nominated pods.

use crate::object::pod::Pod;
use crate::object::{Key, Text};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Pods, higher priority first.
type ByPriority = BTreeMap<(Reverse<i64>, Key), Arc<Pod>>;

/// Waiting pods, by the node that they are nominated to.
#[derive(Debug, Default)]
pub struct Nominations(BTreeMap<Text, ByPriority>);

impl Nominations {
    /// Waiting pods nominated to this node with at least this priority, higher priority first.
    pub fn to(&self, node: &str, priority: i64) -> impl Iterator<Item = &Arc<Pod>> {
        let pods = self.0.get(node).into_iter().flatten();
        pods.map(|(_, pod)| pod).take_while(move |pod| pod.priority >= priority)
    }

    /// Waiting pods nominated to this node with a lower priority, lowest first.
    pub fn below(&self, node: &str, priority: i64) -> impl Iterator<Item = &Arc<Pod>> {
        let pods = self.0.get(node).into_iter().flatten().rev();
        pods.map(|(_, pod)| pod).take_while(move |pod| pod.priority < priority)
    }

    /// The names of nodes that waiting pods are nominated to.
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
