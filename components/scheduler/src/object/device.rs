//! Devices that drivers offer. The claims of pods are in [`super::device_claim`].

use super::labels::Labels;
use super::terms::{NodeSelector, Taint};
use super::{StringPool, Text, bytes, entries, items, nanoseconds, text};
use holdfast_core::schema::quantity;
use holdfast_value::Value;
use std::collections::BTreeMap;

/// A DeviceClass: a device must satisfy all of its selectors, which are CEL expressions.
#[derive(Debug, Clone, PartialEq)]
pub struct Class {
    pub selectors: Vec<Text>,
    /// The class's configuration for drivers, as its document contains it.
    pub config: Value,
    /// The extended resource that devices of this class satisfy.
    pub extended_resource: Option<Text>,
    /// The creation time in nanoseconds since 1970. If several classes satisfy one extended resource, the newest class
    /// is used.
    pub created: i128,
}

impl Class {
    pub fn decode(pool: &mut StringPool, object: &Value) -> Self {
        Class {
            config: object["spec"]["config"].clone(),
            selectors: selectors(pool, &object["spec"]),
            extended_resource: pool.optional(&object["spec"]["extendedResourceName"]),
            created: nanoseconds(text(&object["metadata"]["creationTimestamp"])).unwrap_or(0),
        }
    }
}

pub(super) fn selectors(pool: &mut StringPool, value: &Value) -> Vec<Text> {
    items(&value["selectors"]).map(|one| pool.field(&one["cel"]["expression"])).collect()
}

/// A ResourceSlice: some of a driver's devices, as the driver publishes them.
#[derive(Debug, Clone, PartialEq)]
pub struct Slice {
    pub driver: Text,
    pub pool: Text,
    pub generation: i64,
    /// How many slices the pool has in total, as this slice says.
    pub count: i64,
    pub node_selection: NodeSelection,
    pub devices: Vec<Device>,
    /// The counters that devices of the pool share, by the name of the counter set.
    pub counters: Vec<(Text, Counters)>,
}

pub type Counters = BTreeMap<Text, i128>;

/// On which nodes devices can be used.
#[derive(Debug, Clone, PartialEq)]
pub enum NodeSelection {
    Node(Text),
    Nodes(Option<NodeSelector>),
    AllNodes,
    /// Each device of the slice has a node selection of its own.
    PerDevice,
    NoNode,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Device {
    pub name: Text,
    pub node_selection: NodeSelection,
    /// The attributes by their full names: domain and identifier.
    pub attributes: BTreeMap<(Text, Text), Attribute>,
    pub capacity: BTreeMap<(Text, Text), Capacity>,
    pub consumes: Vec<(Text, Counters)>,
    pub taints: Vec<Taint>,
    /// Whether several claims may have shares of the device at the same time.
    pub shared: bool,
    pub binding: BindingConditions,
}

/// Conditions that a driver sets on an allocated device. A pod that uses the device is bound only when they are met.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BindingConditions {
    /// The types of the conditions that must be true before the pod is bound.
    pub conditions: Vec<Text>,
    /// The types of the conditions that mean that the device failed; none of them may be true.
    pub failures: Vec<Text>,
    /// Whether the allocation restricts the claim to the node that was chosen, even if the device can be used on more
    /// nodes.
    pub to_node: bool,
}

impl BindingConditions {
    pub(super) fn decode(pool: &mut StringPool, value: &Value) -> Self {
        BindingConditions {
            conditions: pool.list(&value["bindingConditions"]),
            failures: pool.list(&value["bindingFailureConditions"]),
            to_node: value["bindsToNode"] == true,
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub enum Attribute {
    Text(Text),
    Int(i64),
    Bool(bool),
    Version(Text),
}

#[derive(Debug, Clone, PartialEq)]
pub struct Capacity {
    /// The capacity's name as the driver wrote it, with a domain or without.
    pub name: Text,
    pub value: Text,
    pub policy: Option<CapacityPolicy>,
}

/// Which amounts of a capacity a claim can get.
#[derive(Debug, Clone, PartialEq)]
pub struct CapacityPolicy {
    pub default: Option<i128>,
    pub values: Vec<i128>,
    /// The minimum, the maximum if there is one, and the step between two allowed amounts if there is one.
    pub range: Option<(i128, Option<i128>, Option<i128>)>,
}

impl Slice {
    pub fn decode(pool: &mut StringPool, object: &Value) -> Self {
        let spec = &object["spec"];
        let driver = pool.field(&spec["driver"]);
        let node_selection = NodeSelection::decode(pool, spec);
        Slice {
            pool: pool.field(&spec["pool"]["name"]),
            generation: spec["pool"]["generation"].as_i64().unwrap_or(0),
            count: spec["pool"]["resourceSliceCount"].as_i64().unwrap_or(1),
            node_selection: if spec["perDeviceNodeSelection"] == true {
                NodeSelection::PerDevice
            } else {
                node_selection
            },
            devices: items(&spec["devices"]).map(|one| Device::decode(pool, &driver, one)).collect(),
            counters: items(&spec["sharedCounters"]).map(|set| counters(pool, set, "name")).collect(),
            driver,
        }
    }

    /// Where a device of this slice can be used: the selection of the slice, or the device's own.
    pub fn node_selection_of<'a>(&'a self, device: &'a Device) -> &'a NodeSelection {
        if let NodeSelection::PerDevice = self.node_selection { &device.node_selection } else { &self.node_selection }
    }
}

fn counters(pool: &mut StringPool, set: &Value, name: &str) -> (Text, Counters) {
    let amounts = entries(&set["counters"]).map(|(counter, one)| (pool.text(counter), bytes(&one["value"]))).collect();
    (pool.field(&set[name]), amounts)
}

impl NodeSelection {
    fn decode(pool: &mut StringPool, value: &Value) -> Self {
        if let Some(node) = pool.optional(&value["nodeName"]) {
            NodeSelection::Node(node)
        } else if value["nodeSelector"].is_object() {
            NodeSelection::Nodes(NodeSelector::decode(pool, &value["nodeSelector"]))
        } else if value["allNodes"] == true {
            NodeSelection::AllNodes
        } else {
            NodeSelection::NoNode
        }
    }

    pub fn includes(&self, node: &Text, labels: &Labels) -> bool {
        match self {
            NodeSelection::Node(name) => name == node,
            NodeSelection::Nodes(selector) => selector.as_ref().is_some_and(|selector| selector.matches(node, labels)),
            NodeSelection::AllNodes => true,
            NodeSelection::PerDevice | NodeSelection::NoNode => false,
        }
    }
}

impl Device {
    fn decode(pool: &mut StringPool, driver: &Text, device: &Value) -> Self {
        let attributes = entries(&device["attributes"])
            .filter_map(|(name, value)| Some((full_name(pool, driver, name), Attribute::decode(pool, value)?)));
        let attributes = attributes.collect();
        let capacity = entries(&device["capacity"]).map(|(name, value)| {
            let policy = &value["requestPolicy"];
            let range = &policy["validRange"];
            let optional = |value: &Value| quantity::whole(text(value));
            let policy = policy.is_object().then(|| CapacityPolicy {
                default: optional(&policy["default"]),
                values: items(&policy["validValues"]).filter_map(optional).collect(),
                range: optional(&range["min"]).map(|min| (min, optional(&range["max"]), optional(&range["step"]))),
            });
            let value = pool.field(&value["value"]);
            (full_name(pool, driver, name), Capacity { name: pool.text(name), value, policy })
        });
        let capacity = capacity.collect();
        Device {
            name: pool.field(&device["name"]),
            node_selection: NodeSelection::decode(pool, device),
            attributes,
            capacity,
            consumes: items(&device["consumesCounters"]).map(|set| counters(pool, set, "counterSet")).collect(),
            taints: Taint::decode_all(pool, &device["taints"]),
            shared: device["allowMultipleAllocations"] == true,
            binding: BindingConditions::decode(pool, device),
        }
    }
}

/// The full name of an attribute or capacity: a domain and an identifier. If a name has no domain, the driver's name is
/// the domain.
pub fn full_name(pool: &mut StringPool, driver: &Text, name: &str) -> (Text, Text) {
    match name.split_once('/') {
        Some((domain, id)) => (pool.text(domain), pool.text(id)),
        None => (driver.clone(), pool.text(name)),
    }
}

impl Attribute {
    fn decode(pool: &mut StringPool, value: &Value) -> Option<Self> {
        let text = |pool: &mut StringPool, field: &str| value[field].as_str().map(|text| pool.text(text));
        if let Some(one) = text(pool, "string") {
            return Some(Attribute::Text(one));
        }
        if let Some(one) = text(pool, "version") {
            return Some(Attribute::Version(one));
        }
        value["int"].as_i64().map(Attribute::Int).or_else(|| value["bool"].as_bool().map(Attribute::Bool))
    }
}
