//! The state on which decisions are based: nodes with their pods, and all other objects that plug-ins read, with
//! indexes. [`Snapshot::apply`] updates the state by one object at a time, from the API server's log in the same
//! process, or from lists and watches over HTTP.
//!
//! Each part of the snapshot has its own file, and only the code in that file changes the part's tables and indexes. A
//! plug-in reads only the parts that it needs, for example [`Volumes`] or [`Devices`].

mod affinity;
mod apply;
pub mod assume;
pub mod changes;
pub mod devices;
mod event;
mod gangs;
pub mod node_info;
pub mod node_labels;
mod nodes;
mod nominations;
mod selectors;
mod table;
mod templates;
mod volumes;

use crate::clock::Clock;
use crate::object::pod::{Gang, Pod};
use crate::object::{Key, StringPool, Text};
use affinity::AffinityIndex;
use assume::AssumedPod;
use changes::ChangeLog;
use node_info::{NodeId, NodeInfo};
use node_labels::NodeLabels;
use std::collections::HashMap;
use std::sync::Arc;
use templates::Templates;

pub use devices::Devices;
pub use event::{ClusterEvent, ObjectChange};
pub use gangs::Gangs;
pub use nodes::Nodes;
pub use nominations::Nominations;
pub use selectors::PodSelectors;
pub use volumes::Volumes;

#[derive(Debug, Default)]
pub struct Snapshot {
    pool: StringPool,
    templates: Templates,
    nodes: Nodes,
    node_labels: NodeLabels,
    pods: HashMap<Key, Arc<Pod>>,
    affinity: AffinityIndex,
    nominations: Nominations,
    /// The pods that count as bound: a node was chosen for them, and their own events do not show the node yet.
    assumed: HashMap<Key, AssumedPod>,
    gangs: Gangs,
    selectors: PodSelectors,
    volumes: Volumes,
    devices: Devices,
    /// The clock by which searches with a time limit measure their time.
    pub clock: Clock,
    changes: ChangeLog,
}

impl Snapshot {
    pub fn new() -> Self {
        Snapshot::default()
    }

    /// Makes the snapshot read not only the requests but also the limits of pods that are added after this call.
    pub fn read_limits(&mut self) {
        self.pool.reads_limits = true;
    }

    /// Turns the feature gate DRAExtendedResource on or off: whether devices may satisfy extended resources.
    pub fn set_extended_resources(&mut self, is_on: bool) {
        self.devices.satisfy_extended_resources = is_on;
    }

    /// All nodes. As long as two nodes exist, their order stays the same.
    pub fn nodes(&self) -> impl Iterator<Item = &NodeInfo> {
        self.nodes.iter()
    }

    pub fn node(&self, id: NodeId) -> Option<&NodeInfo> {
        self.nodes.get(id)
    }

    pub fn node_named(&self, name: &str) -> Option<&NodeInfo> {
        self.nodes.named(name)
    }

    pub fn node_count(&self) -> usize {
        self.nodes.count()
    }

    /// One more than the largest number that a node has had.
    pub fn node_bound(&self) -> usize {
        self.nodes.bound()
    }

    /// The size in bytes of an image, and the number of nodes that have it; `None` if no node has the image.
    pub fn image(&self, name: &str) -> Option<(i64, i64)> {
        self.nodes.image(name)
    }

    /// Whether any node has a label with this key. A key that no node has defines no topology domain.
    pub fn is_label_of_nodes(&self, key: &Text) -> bool {
        self.node_labels.has_key(key)
    }

    /// For each node, by the node's number, the number of its value for a label.
    pub fn label_numbers(&self, key: &Text) -> Vec<u32> {
        self.node_labels.numbers(&self.nodes, key)
    }

    /// The number of a node's value for a label.
    pub fn label_number(&self, key: &Text, node: NodeId) -> u32 {
        self.node_labels.number(&self.nodes, key, node)
    }

    pub fn pod(&self, key: &Key) -> Option<&Arc<Pod>> {
        self.pods.get(key)
    }

    pub fn pods(&self) -> impl Iterator<Item = &Arc<Pod>> {
        self.pods.values()
    }

    pub fn pod_count(&self) -> usize {
        self.pods.len()
    }

    /// How many pods are assumed.
    pub fn assumed_count(&self) -> usize {
        self.assumed.len()
    }

    /// The bound pods whose affinity terms may select pods of this namespace. Pods whose terms select only other
    /// namespaces are not visited.
    pub fn pods_with_affinity(&self, namespace: &Text) -> impl Iterator<Item = (NodeId, &Arc<Pod>)> {
        self.affinity.selecting(namespace).filter_map(|(key, node)| Some((node, self.pods.get(key)?)))
    }

    /// The pods of a gang, with and without a node.
    pub fn gang(&self, gang: &Gang) -> impl Iterator<Item = &Arc<Pod>> {
        self.gangs.members(gang).filter_map(|key| self.pods.get(key))
    }

    pub fn gangs(&self) -> &Gangs {
        &self.gangs
    }

    pub fn nominations(&self) -> &Nominations {
        &self.nominations
    }

    pub fn selectors(&self) -> &PodSelectors {
        &self.selectors
    }

    pub fn volumes(&self) -> &Volumes {
        &self.volumes
    }

    pub fn devices(&self) -> &Devices {
        &self.devices
    }

    pub fn changes(&self) -> &ChangeLog {
        &self.changes
    }
}
