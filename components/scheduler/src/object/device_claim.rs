//! ResourceClaims: the devices that pods request, and the allocated devices.

use super::device::{BindingConditions, Class, selectors};
use super::terms::{NodeSelector, Toleration};
use super::{Key, StringPool, Text, bytes, entries, items, nanoseconds, text};
use holdfast_value::{Value, json};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// The fields of a ResourceClaim that the scheduler reads.
#[derive(Debug, Clone, PartialEq)]
pub struct Claim {
    pub key: Key,
    pub uid: Text,
    pub deleting: bool,
    /// Whether the claim has the finalizer that keeps it until its devices are released.
    pub protected: bool,
    /// The claim's configuration for drivers, as its document contains it.
    pub config: Value,
    /// The uid of the pod for which the claim was made; `None` if the claim was not made for one pod.
    pub owner: Option<Text>,
    /// Whether the claim was made for the extended resources that its pod requests.
    pub is_extended: bool,
    pub requests: Vec<Request>,
    pub constraints: Vec<Constraint>,
    pub allocation: Option<Allocation>,
    /// The status that drivers have reported for each allocated device.
    pub device_statuses: Vec<AllocatedDeviceStatus>,
    /// The uids of the pods that may use the claim.
    pub reserved_for: Vec<Text>,
    /// Whether this scheduler has decided the allocation and the claim's own events do not show it yet.
    pub allocation_assumed: bool,
}

/// The status that a driver reports for an allocated device.
#[derive(Debug, Clone, PartialEq)]
pub struct AllocatedDeviceStatus {
    driver: Text,
    pool: Text,
    device: Text,
    /// The conditions that are true: the type, reason and message of each.
    true_conditions: Vec<(Text, Text, Text)>,
}

impl AllocatedDeviceStatus {
    fn decode(pool: &mut StringPool, one: &Value) -> Self {
        let true_conditions = items(&one["conditions"]).filter(|condition| text(&condition["status"]) == "True");
        let true_conditions = true_conditions
            .map(|one| (pool.field(&one["type"]), pool.field(&one["reason"]), pool.field(&one["message"])));
        AllocatedDeviceStatus {
            true_conditions: true_conditions.collect(),
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

/// A request for devices. If it has several alternatives, the best comes first.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    pub name: Text,
    pub alternatives: Vec<SubRequest>,
    /// Whether the alternatives have names of their own (`firstAvailable`).
    pub prioritized: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct SubRequest {
    pub name: Text,
    pub class: Text,
    pub selectors: Vec<Text>,
    /// How many devices are requested; `None` means all devices that match.
    pub count: Option<usize>,
    /// Whether admin access is requested, which also works for devices that other claims have.
    pub admin: bool,
    pub tolerations: Vec<Toleration>,
    /// The tolerations as the claim's document contains them. They are copied into the allocation, from which the
    /// controller of device taints reads them.
    pub written_tolerations: Value,
    /// The names of capacities, and how much of each is requested of a device.
    pub capacity: Vec<(Text, i128)>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Constraint {
    /// The names of the requests whose devices the constraint covers; if the list is empty, it covers the devices of
    /// all requests.
    pub requests: Vec<Text>,
    pub attribute: Text,
    /// Whether the attribute must have a different value on each of the devices; otherwise it must have one value on
    /// all devices.
    pub distinct: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Allocation {
    pub nodes: Option<NodeSelector>,
    /// The time of the allocation in nanoseconds since 1970; `None` if the allocation is not written into the claim
    /// yet.
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
    /// Whether other claims may also have shares of this device.
    pub shared: bool,
    /// The names of the device's capacities, and how much of each this claim has; empty for a device that is not
    /// shared.
    pub consumed: Vec<(Text, i128)>,
    pub binding: BindingConditions,
}

/// The finalizer that a claim has while devices are allocated to it.
pub const FINALIZER: &str = "resource.kubernetes.io/delete-protection";
/// The annotation of a claim that was made for a pod's extended resources.
pub const EXTENDED_RESOURCE_ANNOTATION: &str = "resource.kubernetes.io/extended-resource-claim";
/// How many pods may use one claim at the same time, which is a limit of the API.
pub const MAX_RESERVATIONS: usize = 256;
/// How many claims one pod may have. The limit is needed because the search for devices is recursive, one level per
/// claim.
pub const MAX_CLAIMS: usize = 64;
/// How many devices one claim may have, which is a limit of the API.
pub const MAX_DEVICES: usize = 32;

impl Claim {
    pub fn decode(pool: &mut StringPool, key: Key, object: &Value) -> Self {
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
            is_extended: text(&meta["annotations"][EXTENDED_RESOURCE_ANNOTATION]) == "true",
            requests: items(&devices["requests"]).map(|one| Request::decode(pool, one)).collect(),
            constraints: items(&devices["constraints"]).map(|one| Constraint::decode(pool, one)).collect(),
            allocation: allocation.is_object().then(|| Allocation::decode(pool, allocation)),
            reserved_for: items(&object["status"]["reservedFor"]).map(|one| pool.field(&one["uid"])).collect(),
            device_statuses: items(&object["status"]["devices"])
                .map(|one| AllocatedDeviceStatus::decode(pool, one))
                .collect(),
            allocation_assumed: false,
        }
    }

    /// Whether the claim's devices are ready, so that the pods that use the claim can be bound.
    pub fn readiness(&self) -> Readiness {
        let Some(allocation) = &self.allocation else { return Readiness::Waiting };
        let mut readiness = Readiness::Ready;
        for device in allocation.devices.iter().filter(|device| !device.binding.conditions.is_empty()) {
            let is_same_device = |status: &&AllocatedDeviceStatus| {
                (&status.driver, &status.pool, &status.device) == (&device.driver, &device.pool, &device.device)
            };
            let true_conditions = self
                .device_statuses
                .iter()
                .find(is_same_device)
                .map(|status| &status.true_conditions[..])
                .unwrap_or_default();
            if let Some((_, reason, message)) =
                true_conditions.iter().find(|(kind, ..)| device.binding.failures.contains(kind))
            {
                let name = &self.key.name;
                return Readiness::Failed(format!("claim {name} binding failed: reason={reason}, message={message:?}"));
            }
            if !device.binding.conditions.iter().all(|wanted| true_conditions.iter().any(|(kind, ..)| kind == wanted)) {
                readiness = Readiness::Waiting;
            }
        }
        readiness
    }
}

impl Request {
    fn decode(pool: &mut StringPool, request: &Value) -> Self {
        let name = pool.field(&request["name"]);
        let prioritized = request["firstAvailable"].is_array();
        let alternatives = if prioritized {
            items(&request["firstAvailable"]).map(|one| SubRequest::decode(pool, text(&one["name"]), one)).collect()
        } else {
            vec![SubRequest::decode(pool, &name, &request["exactly"])]
        };
        Request { name, alternatives, prioritized }
    }
}

impl SubRequest {
    /// A request for `count` devices of a class.
    pub fn exactly(name: Text, class: Text, count: usize) -> Self {
        SubRequest {
            name,
            class,
            selectors: Vec::new(),
            count: Some(count),
            admin: false,
            tolerations: Vec::new(),
            written_tolerations: Value::Null,
            capacity: Vec::new(),
        }
    }

    fn decode(pool: &mut StringPool, name: &str, sub_request: &Value) -> Self {
        let count = usize::try_from(sub_request["count"].as_u64().unwrap_or(1)).unwrap_or(usize::MAX);
        SubRequest {
            name: pool.text(name),
            class: pool.field(&sub_request["deviceClassName"]),
            selectors: selectors(pool, sub_request),
            count: (text(&sub_request["allocationMode"]) != "All").then_some(count),
            admin: sub_request["adminAccess"] == true,
            tolerations: Toleration::decode_all(pool, &sub_request["tolerations"]),
            written_tolerations: sub_request["tolerations"].clone(),
            capacity: entries(&sub_request["capacity"]["requests"])
                .map(|(name, amount)| (pool.text(name), bytes(amount)))
                .collect(),
        }
    }
}

/// Whether a result of an allocation belongs to this request, or to one of its alternatives.
fn is_for(result: &str, request: &str) -> bool {
    result == request || result.strip_prefix(request).is_some_and(|rest| rest.starts_with('/'))
}

/// A configuration for drivers in the form in which an allocation contains it, with its source: a class or the claim.
fn encode_config(config: &Value, source: &str, requests: Value) -> Value {
    let mut encoded = json!({"source": source, "opaque": config["opaque"]});
    if items(&requests).next().is_some() {
        encoded["requests"] = requests;
    }
    encoded
}

impl Allocated {
    /// The device as the claim's status contains it. `share` gives the ID of the claim's share, if the device is
    /// shared.
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

/// A UUID for a share of a device, different for each allocation.
fn share_id(claim: &Claim, device: &Allocated, at: usize, now: i128) -> String {
    let half = |salt: u64| {
        let mut hasher = DefaultHasher::new();
        (salt, &claim.uid, &device.driver, &device.pool, &device.device, at, now).hash(&mut hasher);
        hasher.finish()
    };
    let (high, low) = (half(0), half(1));
    // The UUID has version 8, which means that its bits are chosen by the program.
    let high = high & !0xf000 | 0x8000;
    let low = low & !(0b11 << 62) | (0b10 << 62);
    let (first, second, third) = (high >> 32, (high >> 16) & 0xffff, high & 0xffff);
    format!("{first:08x}-{second:04x}-{third:04x}-{:04x}-{:012x}", low >> 48, low & 0xffff_ffff_ffff)
}

impl Constraint {
    fn decode(pool: &mut StringPool, constraint: &Value) -> Self {
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
    /// The allocation as it is written into the claim's status. `class` finds a DeviceClass by name.
    pub fn encode(&self, claim: &Claim, class: impl Fn(&Text) -> Option<Arc<Class>>, now: i128) -> Value {
        let share = |at: usize| move |device: &Allocated| share_id(claim, device, at, now);
        let mut results: Vec<Value> = self.devices.iter().enumerate().map(|(at, one)| one.encode(share(at))).collect();
        let mut config = Vec::new();
        for (request, sub_request) in self.chosen(claim) {
            if items(&sub_request.written_tolerations).next().is_some() {
                let own = results.iter_mut().filter(|result| text(&result["request"]) == &*request);
                own.for_each(|result| result["tolerations"] = sub_request.written_tolerations.clone());
            }
            let class = class(&sub_request.class);
            for one in class.iter().flat_map(|class| items(&class.config)) {
                config.push(encode_config(one, "FromClass", json!([&*request])));
            }
        }
        for one in items(&claim.config) {
            let about: Vec<&str> = items(&one["requests"]).map(text).collect();
            // A configuration for alternatives is left out if none of these alternatives was chosen.
            let chosen = |name: &&str| self.devices.iter().any(|device| is_for(&device.request, name));
            if about.is_empty() || about.iter().any(chosen) {
                config.push(encode_config(one, "FromClaim", one["requests"].clone()));
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

    /// The alternatives that were chosen, each with the name that its results have.
    fn chosen<'a>(&'a self, claim: &'a Claim) -> impl Iterator<Item = (Text, &'a SubRequest)> {
        claim.requests.iter().flat_map(move |request| {
            request.alternatives.iter().filter_map(move |sub_request| {
                let name: Text = match request.prioritized {
                    true => format!("{}/{}", request.name, sub_request.name).into(),
                    false => request.name.clone(),
                };
                self.devices.iter().any(|device| device.request == name).then_some((name, sub_request))
            })
        })
    }

    fn decode(pool: &mut StringPool, allocation: &Value) -> Self {
        let device = |pool: &mut StringPool, one: &Value| Allocated {
            request: pool.field(&one["request"]),
            driver: pool.field(&one["driver"]),
            pool: pool.field(&one["pool"]),
            device: pool.field(&one["device"]),
            admin: one["adminAccess"] == true,
            shared: one["shareID"].is_string() || one["consumedCapacity"].is_object(),
            binding: BindingConditions::decode(pool, one),
            consumed: entries(&one["consumedCapacity"])
                .map(|(name, amount)| (pool.text(name), bytes(amount)))
                .collect(),
        };
        Allocation {
            nodes: NodeSelector::decode(pool, &allocation["nodeSelector"]),
            since: nanoseconds(text(&allocation["allocationTimestamp"])),
            devices: items(&allocation["devices"]["results"]).map(|one| device(pool, one)).collect(),
        }
    }
}
