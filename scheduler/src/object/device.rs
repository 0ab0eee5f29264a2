//! Devices: what drivers offer, and what pods claim of it.

use super::labels::Labels;
use super::terms::{NodeSelector, Taint, Toleration};
use super::volume::bytes;
use super::{Key, Pool, Text, entries, items, nanoseconds, text};
use holdfast_core::schema::quantity;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// A class of devices: expressions of which all must hold.
#[derive(Debug, Clone, PartialEq)]
pub struct Class {
    pub selectors: Vec<Text>,
    /// What drivers are told about devices of this class, as it stands there.
    pub config: Value,
    /// The extended resource that devices of this class stand for.
    pub extended_resource: Option<Text>,
}

impl Class {
    pub fn decode(pool: &mut Pool, object: &Value) -> Self {
        Class {
            config: object["spec"]["config"].clone(),
            selectors: selectors(pool, &object["spec"]),
            extended_resource: pool.optional(&object["spec"]["extendedResourceName"]),
        }
    }
}

fn selectors(pool: &mut Pool, value: &Value) -> Vec<Text> {
    items(&value["selectors"]).map(|one| pool.field(&one["cel"]["expression"])).collect()
}

/// Part of what a driver offers.
#[derive(Debug, Clone, PartialEq)]
pub struct Slice {
    pub driver: Text,
    pub pool: Text,
    pub generation: i64,
    /// How many slices the pool has.
    pub count: i64,
    pub place: Place,
    pub devices: Vec<Device>,
    /// Counters that devices share, by set and name.
    pub counters: Vec<(Text, Counters)>,
}

type Counters = BTreeMap<Text, i128>;

/// Where devices can be used.
#[derive(Debug, Clone, PartialEq)]
pub enum Place {
    Node(Text),
    Nodes(Option<NodeSelector>),
    Everywhere,
    /// Each device says it for itself.
    PerDevice,
    Nowhere,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Device {
    pub name: Text,
    pub place: Place,
    /// By their full names, domain and identifier.
    pub attributes: BTreeMap<(Text, Text), Attribute>,
    pub capacity: BTreeMap<(Text, Text), Capacity>,
    pub consumes: Vec<(Text, Counters)>,
    pub taints: Vec<Taint>,
    /// Whether several claims may share it.
    pub shared: bool,
    pub binding: Binding,
}

/// What is waited for after a device was given to a claim, before pods are bound that use it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Binding {
    /// Conditions of the device that must be true.
    pub conditions: Vec<Text>,
    /// Conditions of which none may be true.
    pub failures: Vec<Text>,
    /// Whether the claim is bound to the node that the device is prepared for, wherever else it can be used.
    pub to_node: bool,
}

impl Binding {
    fn decode(pool: &mut Pool, value: &Value) -> Self {
        Binding {
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
    /// Its name as the driver wrote it, with its domain or without.
    pub name: Text,
    pub value: Text,
    pub policy: Option<Policy>,
}

/// Which parts of a capacity can be asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    pub default: Option<i128>,
    pub values: Vec<i128>,
    /// The least, the most and the step between.
    pub range: Option<(i128, Option<i128>, Option<i128>)>,
}

impl Slice {
    pub fn decode(pool: &mut Pool, object: &Value) -> Self {
        let spec = &object["spec"];
        let driver = pool.field(&spec["driver"]);
        let place = Place::decode(pool, spec);
        Slice {
            pool: pool.field(&spec["pool"]["name"]),
            generation: spec["pool"]["generation"].as_i64().unwrap_or(0),
            count: spec["pool"]["resourceSliceCount"].as_i64().unwrap_or(1),
            place: if spec["perDeviceNodeSelection"] == true { Place::PerDevice } else { place },
            devices: items(&spec["devices"]).map(|one| Device::decode(pool, &driver, one)).collect(),
            counters: items(&spec["sharedCounters"]).map(|set| counters(pool, set, "name")).collect(),
            driver,
        }
    }
}

fn counters(pool: &mut Pool, set: &Value, name: &str) -> (Text, Counters) {
    let amounts = entries(&set["counters"]).map(|(counter, one)| (pool.text(counter), bytes(&one["value"]))).collect();
    (pool.field(&set[name]), amounts)
}

impl Place {
    fn decode(pool: &mut Pool, value: &Value) -> Self {
        if let Some(node) = pool.optional(&value["nodeName"]) {
            Place::Node(node)
        } else if value["nodeSelector"].is_object() {
            Place::Nodes(NodeSelector::decode(pool, &value["nodeSelector"]))
        } else if value["allNodes"] == true {
            Place::Everywhere
        } else {
            Place::Nowhere
        }
    }

    pub fn includes(&self, node: &Text, labels: &Labels) -> bool {
        match self {
            Place::Node(name) => name == node,
            Place::Nodes(selector) => selector.as_ref().is_some_and(|selector| selector.matches(node, labels)),
            Place::Everywhere => true,
            Place::PerDevice | Place::Nowhere => false,
        }
    }
}

impl Device {
    fn decode(pool: &mut Pool, driver: &Text, device: &Value) -> Self {
        let attributes = entries(&device["attributes"])
            .filter_map(|(name, value)| Some((full_name(pool, driver, name), Attribute::decode(pool, value)?)));
        let attributes = attributes.collect();
        let capacity = entries(&device["capacity"]).map(|(name, value)| {
            let policy = &value["requestPolicy"];
            let range = &policy["validRange"];
            let optional = |value: &Value| quantity::whole(text(value));
            let policy = policy.is_object().then(|| Policy {
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
            place: Place::decode(pool, device),
            attributes,
            capacity,
            consumes: items(&device["consumesCounters"]).map(|set| counters(pool, set, "counterSet")).collect(),
            taints: Taint::decode_all(pool, &device["taints"]),
            shared: device["allowMultipleAllocations"] == true,
            binding: Binding::decode(pool, device),
        }
    }
}

/// The domain and the identifier of a name. Where it says no domain, it is the driver's.
pub fn full_name(pool: &mut Pool, driver: &Text, name: &str) -> (Text, Text) {
    match name.split_once('/') {
        Some((domain, id)) => (pool.text(domain), pool.text(id)),
        None => (driver.clone(), pool.text(name)),
    }
}

impl Attribute {
    fn decode(pool: &mut Pool, value: &Value) -> Option<Self> {
        let text = |pool: &mut Pool, field: &str| value[field].as_str().map(|text| pool.text(text));
        if let Some(one) = text(pool, "string") {
            return Some(Attribute::Text(one));
        }
        if let Some(one) = text(pool, "version") {
            return Some(Attribute::Version(one));
        }
        value["int"].as_i64().map(Attribute::Int).or_else(|| value["bool"].as_bool().map(Attribute::Bool))
    }
}

/// A claim of devices.
#[derive(Debug, Clone, PartialEq)]
pub struct Claim {
    pub key: Key,
    pub uid: Text,
    pub deleting: bool,
    /// Whether it stays until its devices are given back.
    pub protected: bool,
    /// What drivers are told about its devices, as it stands there.
    pub config: Value,
    /// The uid of the pod that it was made for.
    pub owner: Option<Text>,
    pub requests: Vec<Request>,
    pub constraints: Vec<Constraint>,
    pub allocation: Option<Allocation>,
    /// What drivers say of the devices that it has.
    pub told: Vec<Told>,
    /// The uids of those who use it.
    pub reserved_for: Vec<Text>,
    /// Whether the allocation was decided here and is not written yet.
    pub promised: bool,
}

/// What a driver says of a device that a claim has.
#[derive(Debug, Clone, PartialEq)]
pub struct Told {
    driver: Text,
    pool: Text,
    device: Text,
    /// Its conditions that are true, each with reason and message.
    holds: Vec<(Text, Text, Text)>,
}

impl Told {
    fn decode(pool: &mut Pool, one: &Value) -> Self {
        let holds = items(&one["conditions"]).filter(|condition| text(&condition["status"]) == "True");
        let holds =
            holds.map(|one| (pool.field(&one["type"]), pool.field(&one["reason"]), pool.field(&one["message"])));
        Told {
            holds: holds.collect(),
            driver: pool.field(&one["driver"]),
            pool: pool.field(&one["pool"]),
            device: pool.field(&one["device"]),
        }
    }
}

/// Whether the devices of a claim are ready for the pods that use them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Readiness {
    Ready,
    Waiting,
    Failed(String),
}

/// A request, with the alternatives that will do, best first.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    pub name: Text,
    pub alternatives: Vec<Ask>,
    /// Whether the alternatives have names of their own.
    pub prioritized: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Ask {
    pub name: Text,
    pub class: Text,
    pub selectors: Vec<Text>,
    /// How many devices; `None`: all that there are.
    pub count: Option<usize>,
    pub admin: bool,
    pub tolerations: Vec<Toleration>,
    /// How much of each capacity.
    pub capacity: Vec<(Text, i128)>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Constraint {
    /// Requests that it is about; all where there are none.
    pub requests: Vec<Text>,
    pub attribute: Text,
    /// All different, in contrast to all the same.
    pub distinct: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Allocation {
    pub nodes: Option<NodeSelector>,
    /// When it was made, in nanoseconds since 1970; `None` as long as it is not written.
    pub since: Option<i128>,
    pub devices: Vec<Allocated>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allocated {
    pub request: Text,
    pub driver: Text,
    pub pool: Text,
    pub device: Text,
    pub admin: bool,
    /// Whether others may have a share of the device, too.
    pub shared: bool,
    /// What it consumes of a device that is shared.
    pub consumed: Vec<(Text, i128)>,
    pub binding: Binding,
}

/// Keeps a claim that has devices.
pub const FINALIZER: &str = "resource.kubernetes.io/delete-protection";
/// How many may use one claim.
pub const MAX_RESERVATIONS: usize = 256;
/// How many claims one pod may have: devices are found claim after claim, each a step deeper.
pub const MAX_CLAIMS: usize = 64;
/// As many devices as a claim may have.
pub const MAX_DEVICES: usize = 32;

impl Claim {
    pub fn decode(pool: &mut Pool, key: Key, object: &Value) -> Self {
        let devices = &object["spec"]["devices"];
        let meta = &object["metadata"];
        let allocation = &object["status"]["allocation"];
        Claim {
            key,
            uid: pool.field(&meta["uid"]),
            deleting: meta["deletionTimestamp"].is_string(),
            protected: items(&meta["finalizers"]).any(|one| text(one) == FINALIZER),
            config: devices["config"].clone(),
            owner: items(&meta["ownerReferences"])
                .find(|owner| owner["controller"] == true)
                .map(|owner| pool.field(&owner["uid"])),
            requests: items(&devices["requests"]).map(|one| Request::decode(pool, one)).collect(),
            constraints: items(&devices["constraints"]).map(|one| Constraint::decode(pool, one)).collect(),
            allocation: allocation.is_object().then(|| Allocation::decode(pool, allocation)),
            reserved_for: items(&object["status"]["reservedFor"]).map(|one| pool.field(&one["uid"])).collect(),
            told: items(&object["status"]["devices"]).map(|one| Told::decode(pool, one)).collect(),
            promised: false,
        }
    }

    /// Whether pods that use its devices can be bound.
    pub fn readiness(&self) -> Readiness {
        let Some(allocation) = &self.allocation else { return Readiness::Waiting };
        let mut readiness = Readiness::Ready;
        for device in allocation.devices.iter().filter(|device| !device.binding.conditions.is_empty()) {
            let is_it = |told: &&Told| {
                (&told.driver, &told.pool, &told.device) == (&device.driver, &device.pool, &device.device)
            };
            let holds = self.told.iter().find(is_it).map(|told| &told.holds[..]).unwrap_or_default();
            if let Some((_, reason, message)) = holds.iter().find(|(kind, ..)| device.binding.failures.contains(kind)) {
                let name = &self.key.name;
                return Readiness::Failed(format!("claim {name} binding failed: reason={reason}, message={message:?}"));
            }
            if !device.binding.conditions.iter().all(|wanted| holds.iter().any(|(kind, ..)| kind == wanted)) {
                readiness = Readiness::Waiting;
            }
        }
        readiness
    }
}

impl Request {
    fn decode(pool: &mut Pool, request: &Value) -> Self {
        let name = pool.field(&request["name"]);
        let prioritized = request["firstAvailable"].is_array();
        let alternatives = if prioritized {
            items(&request["firstAvailable"]).map(|one| Ask::decode(pool, text(&one["name"]), one)).collect()
        } else {
            vec![Ask::decode(pool, &name, &request["exactly"])]
        };
        Request { name, alternatives, prioritized }
    }
}

impl Ask {
    fn decode(pool: &mut Pool, name: &str, ask: &Value) -> Self {
        let count = usize::try_from(ask["count"].as_u64().unwrap_or(1)).unwrap_or(usize::MAX);
        Ask {
            name: pool.text(name),
            class: pool.field(&ask["deviceClassName"]),
            selectors: selectors(pool, ask),
            count: (text(&ask["allocationMode"]) != "All").then_some(count),
            admin: ask["adminAccess"] == true,
            tolerations: Toleration::decode_all(pool, &ask["tolerations"]),
            capacity: entries(&ask["capacity"]["requests"])
                .map(|(name, amount)| (pool.text(name), bytes(amount)))
                .collect(),
        }
    }
}

/// Whether a result is for a request, or for one of its alternatives.
fn is_for(result: &str, request: &str) -> bool {
    result == request || result.strip_prefix(request).is_some_and(|rest| rest.starts_with('/'))
}

/// What a driver is told, with where that comes from.
fn told(config: &Value, source: &str, requests: Value) -> Value {
    let mut told = json!({"source": source, "opaque": config["opaque"]});
    if items(&requests).next().is_some() {
        told["requests"] = requests;
    }
    told
}

impl Allocated {
    /// `share` tells its share of a device from those of others.
    fn encode(&self, share: impl FnOnce(&Allocated) -> String) -> Value {
        let mut result = json!({
            "request": &*self.request, "driver": &*self.driver, "pool": &*self.pool, "device": &*self.device,
        });
        if self.shared {
            result["shareID"] = share(self).into();
        }
        for (field, conditions) in
            [("bindingConditions", &self.binding.conditions), ("bindingFailureConditions", &self.binding.failures)]
        {
            if !conditions.is_empty() {
                result[field] = conditions.iter().map(|name| name.to_string()).collect();
            }
        }
        if self.admin {
            result["adminAccess"] = true.into();
        }
        if !self.consumed.is_empty() {
            let amounts = self.consumed.iter().map(|(name, amount)| (name.to_string(), amount.to_string().into()));
            result["consumedCapacity"] = Value::Object(amounts.collect());
        }
        result
    }
}

/// A UUID for a share of a device, another one for each allocation.
fn share_id(claim: &Claim, device: &Allocated, at: usize, now: i128) -> String {
    let half = |salt: u64| {
        let mut hasher = DefaultHasher::new();
        (salt, &claim.uid, &device.driver, &device.pool, &device.device, at, now).hash(&mut hasher);
        hasher.finish()
    };
    let (high, low) = (half(0), half(1));
    // Version 8: the bits are the maker's own.
    let high = high & !0xf000 | 0x8000;
    let low = low & !(0b11 << 62) | (0b10 << 62);
    let (first, second, third) = (high >> 32, (high >> 16) & 0xffff, high & 0xffff);
    format!("{first:08x}-{second:04x}-{third:04x}-{:04x}-{:012x}", low >> 48, low & 0xffff_ffff_ffff)
}

impl Constraint {
    fn decode(pool: &mut Pool, constraint: &Value) -> Self {
        let same = pool.optional(&constraint["matchAttribute"]);
        Constraint {
            requests: pool.list(&constraint["requests"]),
            distinct: same.is_none(),
            attribute: same.unwrap_or_else(|| pool.field(&constraint["distinctAttribute"])),
        }
    }

    pub fn is_about(&self, request: &Text, alternative: Option<&Text>) -> bool {
        let named = |name: &Text| {
            name == request || alternative.is_some_and(|alternative| **name == *format!("{request}/{alternative}"))
        };
        self.requests.is_empty() || self.requests.iter().any(named)
    }
}

impl Allocation {
    /// As the status of its claim shows it from now on. `class` finds the class of a name.
    pub fn encode(&self, claim: &Claim, class: impl Fn(&Text) -> Option<Arc<Class>>, now: i128) -> Value {
        let share = |at: usize| move |device: &Allocated| share_id(claim, device, at, now);
        let results: Vec<Value> = self.devices.iter().enumerate().map(|(at, one)| one.encode(share(at))).collect();
        let mut config = Vec::new();
        for (request, ask) in self.chosen(claim) {
            let class = class(&ask.class);
            for one in class.iter().flat_map(|class| items(&class.config)) {
                config.push(told(one, "FromClass", json!([&*request])));
            }
        }
        for one in items(&claim.config) {
            let about: Vec<&str> = items(&one["requests"]).map(text).collect();
            // What is said of an alternative that was not chosen is nobody's business.
            let chosen = |name: &&str| self.devices.iter().any(|device| is_for(&device.request, name));
            if about.is_empty() || about.iter().any(chosen) {
                config.push(told(one, "FromClaim", one["requests"].clone()));
            }
        }
        let mut devices = json!({"results": results});
        if !config.is_empty() {
            devices["config"] = config.into();
        }
        let mut allocation = json!({"devices": devices});
        if let Ok(now) = jiff::Timestamp::from_nanosecond(now) {
            allocation["allocationTimestamp"] = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string().into();
        }
        if let Some(nodes) = &self.nodes {
            allocation["nodeSelector"] = nodes.encode();
        }
        allocation
    }

    /// The alternatives that were chosen, with the names of their results.
    fn chosen<'a>(&'a self, claim: &'a Claim) -> impl Iterator<Item = (Text, &'a Ask)> {
        claim.requests.iter().flat_map(move |request| {
            request.alternatives.iter().filter_map(move |ask| {
                let name: Text = match request.prioritized {
                    true => format!("{}/{}", request.name, ask.name).into(),
                    false => request.name.clone(),
                };
                self.devices.iter().any(|device| device.request == name).then_some((name, ask))
            })
        })
    }

    fn decode(pool: &mut Pool, allocation: &Value) -> Self {
        let device = |pool: &mut Pool, one: &Value| Allocated {
            request: pool.field(&one["request"]),
            driver: pool.field(&one["driver"]),
            pool: pool.field(&one["pool"]),
            device: pool.field(&one["device"]),
            admin: one["adminAccess"] == true,
            shared: one["shareID"].is_string() || one["consumedCapacity"].is_object(),
            binding: Binding::decode(pool, one),
            consumed: entries(&one["consumedCapacity"])
                .map(|(name, amount)| (pool.text(name), bytes(amount)))
                .collect(),
        };
        Allocation {
            nodes: NodeSelector::decode(pool, &allocation["nodeSelector"]),
            since: nanoseconds(&allocation["allocationTimestamp"]),
            devices: items(&allocation["devices"]["results"]).map(|one| device(pool, one)).collect(),
        }
    }
}
