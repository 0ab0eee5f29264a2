//! The state on which decisions are based: nodes with their pods, and all other objects that plug-ins read, with the
//! indexes that they need. [`Snapshot::apply`] updates it by one object at a time, from the log in the same process or
//! from lists and watches.

mod apply;
pub mod assume;
pub mod changes;
mod event;
mod extended;
pub mod node_info;
pub mod numbers;

use crate::clock::Clock;
use crate::object::device;
use crate::object::device_claim;
use crate::object::labels::Labels;
use crate::object::pod::{Gang, Pod, Template};
use crate::object::taint_rule::TaintRule;
use crate::object::volume;
use crate::object::workload::{DisruptionBudget, PodSelector, Workload};
use crate::object::{Key, Kind, StringPool, Text};
use crate::plugins::devices::in_use::DevicesInUse;
use crate::plugins::devices::pools::Pools;
use crate::plugins::devices::searches::SharedSearchState;
use changes::ChangeLog;
use extended::ExtendedResources;
use node_info::{NodeId, NodeInfo};
use numbers::LabelNumbers;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Mutex};

pub use event::{ClusterEvent, ObjectChange};

/// Objects by key. The objects of one namespace are neighbours.
pub type Table<T> = BTreeMap<Key, Arc<T>>;

/// Pods, higher priority first.
type ByPriority = BTreeMap<(Reverse<i64>, Key), Arc<Pod>>;

#[derive(Debug, Default)]
pub struct Snapshot {
    pool: StringPool,
    templates: HashMap<Arc<Template>, u64>,
    next_template: u64,
    /// The templates of the last pods, the shared templates equal to them, and the numbers of the shared templates.
    last_templates: VecDeque<(Arc<Template>, Arc<Template>, u64)>,
    sweep_templates_at: usize,

    nodes: Vec<Option<NodeInfo>>,
    free: Vec<NodeId>,
    by_name: HashMap<Text, NodeId>,
    /// Pods bound to unknown nodes, by the node's name.
    pods_on_unknown_nodes: HashMap<Text, Vec<Arc<Pod>>>,
    pods: HashMap<Key, Arc<Pod>>,
    /// For each label key, the number of nodes that have it.
    label_keys: HashMap<Text, usize>,
    /// Numbers for the values of the label keys by which some plug-in counts pods.
    numbers: Mutex<HashMap<Text, LabelNumbers>>,
    /// Bound pods with pod (anti-)affinity and their nodes, by the namespace that their terms select; `None`: any
    /// namespace.
    with_affinity: BTreeMap<Option<Text>, BTreeMap<Key, NodeId>>,
    /// Waiting pods, by the node that they are nominated to.
    nominated: BTreeMap<Text, ByPriority>,
    /// Pods for which a node was chosen and whose own events do not show the node yet.
    assumed: HashMap<Key, assume::AssumedPod>,
    /// The size of each image, and the number of nodes that have it.
    images: HashMap<Text, (i64, i64)>,
    /// How many pods on known nodes use each volume claim.
    claim_users: HashMap<Key, usize>,
    /// The members of each gang, waiting and placed.
    gangs: BTreeMap<Gang, BTreeSet<Key>>,

    pub namespaces: Table<Labels>,
    pub services: Table<PodSelector>,
    /// ReplicationControllers, ReplicaSets and StatefulSets.
    pub controllers: BTreeMap<Kind, Table<PodSelector>>,
    pub budgets: Table<DisruptionBudget>,
    pub volumes: Table<volume::Volume>,
    pub volume_claims: Table<volume::Claim>,
    pub storage_classes: Table<volume::Class>,
    pub csi_nodes: Table<volume::CsiNode>,
    /// For each CSI driver, whether its capacity is checked before volumes are provisioned.
    pub csi_drivers: Table<bool>,
    pub capacities: Table<volume::Capacity>,
    pub attachments: Table<volume::Attachment>,
    pub device_claims: Table<device_claim::Claim>,
    pub device_slices: Table<device::Slice>,
    pub device_classes: Table<device::Class>,
    pub device_taint_rules: Table<TaintRule>,
    pub workloads: Table<Workload>,
    /// Whether extended resources may be satisfied by devices.
    pub extended_resources: bool,
    extended: ExtendedResources,
    /// The ResourceSlices by their pools, and the devices that claims have: indexes of the tables above.
    pub(crate) device_pools: Pools,
    pub(crate) devices_in_use: DevicesInUse,
    /// The clock of searches that have a time limit.
    pub clock: Clock,
    /// Results that a search for devices leaves to later searches.
    pub searches: Arc<SharedSearchState>,

    changes: ChangeLog,
}

impl Snapshot {
    pub fn new() -> Self {
        Snapshot::default()
    }

    /// Makes the snapshot read the limits of later pods, too.
    pub fn read_limits(&mut self) {
        self.pool.reads_limits = true;
    }

    /// The nodes. Their order stays the same as long as they exist.
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

    /// How many pods are assumed.
    pub fn assumed_count(&self) -> usize {
        self.assumed.len()
    }

    /// The bound pods whose affinity terms may select pods of this namespace. Pods whose terms select only other
    /// namespaces cost nothing here.
    pub fn pods_with_affinity(&self, namespace: &Text) -> impl Iterator<Item = (NodeId, &Arc<Pod>)> {
        let index_keys = [None, Some(namespace.clone())];
        let found = index_keys.into_iter().filter_map(|index_key| self.with_affinity.get(&index_key)).flatten();
        found.filter_map(|(key, node)| Some((*node, self.pods.get(key)?)))
    }

    /// Whether any node has a label of this key: a key that no node has defines no topology domain.
    pub fn is_label_of_nodes(&self, key: &Text) -> bool {
        self.label_keys.contains_key(key)
    }

    /// Waiting pods nominated to this node with at least this priority, higher priority first.
    pub fn nominated_to(&self, node: &str, priority: i64) -> impl Iterator<Item = &Arc<Pod>> {
        let pods = self.nominated.get(node).into_iter().flatten();
        pods.map(|(_, pod)| pod).take_while(move |pod| pod.priority >= priority)
    }

    /// Waiting pods nominated to this node with a lower priority, lowest first.
    pub fn nominated_below(&self, node: &str, priority: i64) -> impl Iterator<Item = &Arc<Pod>> {
        let pods = self.nominated.get(node).into_iter().flatten().rev();
        pods.map(|(_, pod)| pod).take_while(move |pod| pod.priority < priority)
    }

    /// The names of nodes that waiting pods are nominated to.
    pub fn nominations(&self) -> impl Iterator<Item = &Text> {
        self.nominated.keys()
    }

    /// The size of an image that some node has, and the number of nodes that have it.
    pub fn image(&self, name: &str) -> Option<(i64, i64)> {
        self.images.get(name).copied()
    }

    /// How many pods on known nodes use a volume claim.
    pub fn claim_users(&self, claim: &Key) -> usize {
        self.claim_users.get(claim).copied().unwrap_or(0)
    }

    /// The labels of a namespace; empty if the namespace is unknown.
    pub fn namespace_labels(&self, namespace: &Text) -> Arc<Labels> {
        let key = Key { namespace: "".into(), name: namespace.clone() };
        self.namespaces.get(&key).cloned().unwrap_or_default()
    }

    /// The members of a gang, waiting and placed.
    pub fn gang(&self, gang: &Gang) -> impl Iterator<Item = &Arc<Pod>> {
        self.gangs.get(gang).into_iter().flatten().filter_map(|key| self.pods.get(key))
    }

    /// How often the slices of a device pool were scanned.
    pub fn pool_scans(&self) -> u64 {
        self.device_pools.scans()
    }

    pub fn changes(&self) -> &ChangeLog {
        &self.changes
    }
}

/// The objects of a table in one namespace.
pub fn in_namespace<'a, T>(table: &'a Table<T>, namespace: &Text) -> impl Iterator<Item = (&'a Key, &'a Arc<T>)> {
    let first = Key { namespace: namespace.clone(), name: "".into() };
    let namespace = namespace.clone();
    table.range(first..).take_while(move |(key, _)| key.namespace == namespace)
}
