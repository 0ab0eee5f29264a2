//! What decisions rest on: nodes with their pods, and everything else that plug-ins look at, with the indexes that they
//! need. It is fed one object at a time ([`Snapshot::apply`]), in process from the log or from lists and watches.

mod apply;
pub mod assume;
pub mod changes;
mod event;
mod extended;
pub mod node_info;
pub mod numbers;

use crate::clock::Clock;
use crate::configuration::Configuration;
use crate::object::device;
use crate::object::labels::Labels;
use crate::object::pod::{Gang, Pod, Template};
use crate::object::taint_rule::TaintRule;
use crate::object::volume;
use crate::object::workload::{Budget, Selecting, Workload};
use crate::object::{Key, Kind, Pool, Text};
use crate::plugin::Point;
use crate::plugins::devices::pools::Pools;
use crate::plugins::devices::searches::Searches;
use crate::plugins::devices::taken::Taken;
use crate::plugins::legacy;
use changes::Changes;
use extended::Extended;
use node_info::{NodeId, NodeInfo};
use numbers::Numbers;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Mutex};

pub use event::{Event, Seen};

/// Objects by key, those of one namespace beside each other.
pub type Table<T> = BTreeMap<Key, Arc<T>>;

/// Pods, those that matter more before others.
type ByPriority = BTreeMap<(Reverse<i64>, Key), Arc<Pod>>;

#[derive(Debug, Default)]
pub struct Snapshot {
    pool: Pool,
    templates: HashMap<Arc<Template>, u64>,
    next_template: u64,
    /// The templates that the last pods came with, the shared ones equal to them, and their numbers.
    last_templates: VecDeque<(Arc<Template>, Arc<Template>, u64)>,
    sweep_templates_at: usize,

    nodes: Vec<Option<NodeInfo>>,
    free: Vec<NodeId>,
    by_name: HashMap<Text, NodeId>,
    /// Pods that lie on nodes which are not known, by the node's name.
    homeless: HashMap<Text, Vec<Arc<Pod>>>,
    pods: HashMap<Key, Arc<Pod>>,
    /// On how many nodes each label is.
    label_keys: HashMap<Text, usize>,
    /// The values of those labels by which somebody counts pods.
    numbers: Mutex<HashMap<Text, Numbers>>,
    /// Pods on nodes that say something about other pods, with their nodes, by the namespace of those others; those that
    /// may mean pods of any namespace under none.
    with_affinity: BTreeMap<Option<Text>, BTreeMap<Key, NodeId>>,
    /// Pods that wait for a place, by the node that they are nominated to.
    nominated: BTreeMap<Text, ByPriority>,
    /// Where pods lie that were placed here, until their own events say so.
    assumed: HashMap<Key, assume::Assumed>,
    /// The size of each image, and on how many nodes it is.
    images: HashMap<Text, (i64, i64)>,
    /// How many pods on known nodes use each volume claim.
    claim_users: HashMap<Key, usize>,
    /// Who waits or lies in each gang.
    gangs: BTreeMap<Gang, BTreeSet<Key>>,

    pub namespaces: Table<Labels>,
    pub services: Table<Selecting>,
    /// ReplicationControllers, ReplicaSets and StatefulSets.
    pub controllers: BTreeMap<Kind, Table<Selecting>>,
    pub budgets: Table<Budget>,
    pub volumes: Table<volume::Volume>,
    pub volume_claims: Table<volume::Claim>,
    pub storage_classes: Table<volume::Class>,
    pub csi_nodes: Table<volume::CsiNode>,
    /// CSI drivers that want room to be checked before volumes are made.
    pub csi_drivers: Table<bool>,
    pub capacities: Table<volume::Capacity>,
    pub attachments: Table<volume::Attachment>,
    pub device_claims: Table<device::Claim>,
    pub device_slices: Table<device::Slice>,
    pub device_classes: Table<device::Class>,
    pub device_taint_rules: Table<TaintRule>,
    pub workloads: Table<Workload>,
    /// Whether extended resources may be devices.
    pub extended_resources: bool,
    extended: Extended,
    /// The slices of devices by their pools, and which devices claims have: they follow from the tables.
    pub(crate) device_pools: Pools,
    pub(crate) devices_taken: Taken,
    /// For searches that must end in time.
    pub clock: Clock,
    /// What searches for devices leave to the ones after them.
    pub searches: Arc<Searches>,

    changes: Changes,
}

impl Snapshot {
    pub fn new() -> Self {
        Snapshot::default()
    }

    /// A snapshot of what is looked at with a configuration.
    pub fn with(configuration: &Configuration) -> Self {
        let mut snapshot = Snapshot::new();
        snapshot.extended_resources = configuration.extended_resources;
        if configuration.profiles.iter().any(|profile| profile.has(Point::Score, legacy::RESOURCE_LIMITS)) {
            snapshot.read_limits();
        }
        snapshot
    }

    /// Reads the limits of those pods that are told from now on, too.
    pub fn read_limits(&mut self) {
        self.pool.reads_limits = true;
    }

    /// The nodes, in an order that lasts as long as they do.
    pub fn nodes(&self) -> impl Iterator<Item = &NodeInfo> {
        self.nodes.iter().flatten()
    }

    pub fn node(&self, id: NodeId) -> Option<&NodeInfo> {
        self.nodes.get(id)?.as_ref()
    }

    pub fn node_named(&self, name: &str) -> Option<&NodeInfo> {
        self.node(*self.by_name.get(name)?)
    }

    pub fn node_count(&self) -> usize {
        self.by_name.len()
    }

    /// One more than the largest number of a node.
    pub fn node_bound(&self) -> usize {
        self.nodes.len()
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

    /// How many pods were given a place and do not say so yet.
    pub fn assumed_count(&self) -> usize {
        self.assumed.len()
    }

    /// The pods on nodes that may say something about pods of a namespace. What is said about pods of others costs
    /// nothing here.
    pub fn pods_with_affinity(&self, namespace: &Text) -> impl Iterator<Item = (NodeId, &Arc<Pod>)> {
        let places = [None, Some(namespace.clone())];
        let found = places.into_iter().filter_map(|place| self.with_affinity.get(&place)).flatten();
        found.filter_map(|(key, node)| Some((*node, self.pods.get(key)?)))
    }

    /// Whether any node has a label of this name: those that none has make no places.
    pub fn is_label_of_nodes(&self, key: &Text) -> bool {
        self.label_keys.contains_key(key)
    }

    /// Pods that wait, nominated to this node: those that matter at least as much as this before others.
    pub fn nominated_to(&self, node: &str, priority: i64) -> impl Iterator<Item = &Arc<Pod>> {
        let pods = self.nominated.get(node).into_iter().flatten();
        pods.map(|(_, pod)| pod).take_while(move |pod| pod.priority >= priority)
    }

    /// Pods that wait, nominated to this node, which matter less than this.
    pub fn nominated_below(&self, node: &str, priority: i64) -> impl Iterator<Item = &Arc<Pod>> {
        let pods = self.nominated.get(node).into_iter().flatten().rev();
        pods.map(|(_, pod)| pod).take_while(move |pod| pod.priority < priority)
    }

    /// The names of nodes to which pods that wait are nominated.
    pub fn nominations(&self) -> impl Iterator<Item = &Text> {
        self.nominated.keys()
    }

    /// The size of an image that is on some node, and on how many.
    pub fn image(&self, name: &str) -> Option<(i64, i64)> {
        self.images.get(name).copied()
    }

    /// How many pods on known nodes use a volume claim.
    pub fn claim_users(&self, claim: &Key) -> usize {
        self.claim_users.get(claim).copied().unwrap_or(0)
    }

    /// The labels of a namespace; none when it is not known.
    pub fn namespace_labels(&self, namespace: &Text) -> Arc<Labels> {
        let key = Key { namespace: "".into(), name: namespace.clone() };
        self.namespaces.get(&key).cloned().unwrap_or_default()
    }

    /// The members of a gang, waiting and placed.
    pub fn gang(&self, gang: &Gang) -> impl Iterator<Item = &Arc<Pod>> {
        self.gangs.get(gang).into_iter().flatten().filter_map(|key| self.pods.get(key))
    }

    /// How many times the slices of a pool of devices were looked through.
    pub fn pools_gathered(&self) -> u64 {
        self.device_pools.gathered()
    }

    pub fn changes(&self) -> &Changes {
        &self.changes
    }
}

/// The objects of a table in one namespace.
pub fn in_namespace<'a, T>(table: &'a Table<T>, namespace: &Text) -> impl Iterator<Item = (&'a Key, &'a Arc<T>)> {
    let first = Key { namespace: namespace.clone(), name: "".into() };
    let namespace = namespace.clone();
    table.range(first..).take_while(move |(key, _)| key.namespace == namespace)
}
