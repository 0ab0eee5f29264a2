//! The Node objects of simulated nodes.

use crate::behaviour::BehaviourSettings;
use holdfast_core::object::yaml;
use holdfast_value::{Map, Value, json};
use holdfast_world::Time;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

/// The default port of kubelets.
pub const PORT: u16 = 10250;
/// If there are at most this many nodes, all Events of containers are written by default.
const TELLING_NODES_MAX: usize = 100;
/// The maximum number of nodes. Each node has 256 addresses for pods.
pub const NODES_MAX: u32 = 1 << 15;
pub use holdfast_core::kinds::{KWOK_NODE, SIMULATED_NODE as SIMULATED};
/// The OS image, as `kubectl describe node` shows it.
pub const OS_IMAGE: &str = "simulated by Holdfast: no container runs here";
/// The kubelet version of the nodes.
const KUBELET_VERSION: &str = "v1.35.0";

/// The properties of simulated nodes, in the format of the file of `--node-template`.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Template {
    /// The prefix of node names. The number of the node follows.
    pub name_prefix: String,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    pub taints: Vec<Taint>,
    pub capacity: BTreeMap<String, Amount>,
    /// The allocatable resources. By default they equal the capacity.
    pub allocatable: BTreeMap<String, Amount>,
    /// Nodes are distributed over these zones in turn.
    pub zones: Vec<String>,
    pub region: Option<String>,
    /// Whether all Events of containers and nodes are written. If this is not specified, all Events are written if
    /// there are few nodes.
    pub events: Option<bool>,
    /// The behaviour of pods on these nodes, unless the pods' annotations specify another behaviour.
    pub pods: BehaviourSettings,
    /// The port of the kubelet API, which this process serves for all its nodes. `address` is the address of the API,
    /// if it belongs to this machine.
    #[serde(skip)]
    pub port: u16,
    #[serde(skip)]
    pub address: Option<IpAddr>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Taint {
    pub key: String,
    #[serde(default)]
    pub value: Option<String>,
    pub effect: String,
}

/// A quantity. In YAML it may also be written as a number.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub enum Amount {
    Text(String),
    Number(serde_json::Number),
}

impl Amount {
    fn text(&self) -> String {
        match self {
            Amount::Text(text) => text.clone(),
            Amount::Number(number) => number.to_string(),
        }
    }
}

impl Default for Template {
    fn default() -> Template {
        let capacity = [("cpu", "32"), ("memory", "256Gi"), ("ephemeral-storage", "1Ti"), ("pods", "110")];
        Template {
            name_prefix: "node-".into(),
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            taints: Vec::new(),
            capacity: capacity.map(|(name, amount)| (name.to_owned(), Amount::Text(amount.to_owned()))).into(),
            allocatable: BTreeMap::new(),
            zones: Vec::new(),
            region: None,
            events: None,
            pods: BehaviourSettings::default(),
            port: PORT,
            address: None,
        }
    }
}

impl Template {
    /// Parses the file of `--node-template`. The error names the field with the fault.
    pub fn parse(text: &str) -> Result<Template, String> {
        let mut template: Template = yaml::read(text).map_err(|error| error.to_string())?;
        for (name, amount) in Template::default().capacity {
            template.capacity.entry(name).or_insert(amount);
        }
        for (name, amount) in template.capacity.iter().chain(&template.allocatable) {
            let text = amount.text();
            holdfast_core::schema::quantity::check(&text).map_err(|why| format!("{name}: {text:?}: {why}"))?;
        }
        for taint in &template.taints {
            if !matches!(taint.effect.as_str(), "NoSchedule" | "PreferNoSchedule" | "NoExecute") {
                let (key, effect) = (&taint.key, &taint.effect);
                return Err(format!("taint {key}: effect {effect:?}: it is NoSchedule, PreferNoSchedule or NoExecute"));
            }
        }
        match template.pods.mistakes().first() {
            Some(mistake) => Err(format!("pods: {mistake}")),
            None => Ok(template),
        }
    }

    /// Whether all Events are written if there are `nodes` nodes; otherwise only Events about failures are written.
    /// Even a pod without failures has several Events.
    pub fn writes_all_events(&self, nodes: usize) -> bool {
        self.events.unwrap_or(nodes <= TELLING_NODES_MAX)
    }

    /// The name of a node, by its number from 0.
    pub fn name(&self, number: u32) -> String {
        format!("{}{number}", self.name_prefix)
    }

    /// The number of a node, by its name.
    pub fn number(&self, name: &str) -> Option<u32> {
        let digits = name.strip_prefix(&self.name_prefix)?;
        let number: u32 = digits.parse().ok()?;
        (number.to_string() == digits).then_some(number)
    }

    /// The whole Node with this number. It is ready from the start.
    pub fn node(&self, number: u32, now: Time) -> Value {
        let name = self.name(number);
        let mut labels: Map = Map::new();
        for (label, value) in
            [("kubernetes.io/hostname", name.as_str()), ("kubernetes.io/os", "linux"), ("kubernetes.io/arch", "amd64")]
        {
            labels.insert(label, value.into());
        }
        if let Some(zone) = self.zones.get(number as usize % self.zones.len().max(1)) {
            labels.insert("topology.kubernetes.io/zone", zone.as_str().into());
        }
        if let Some(region) = &self.region {
            labels.insert("topology.kubernetes.io/region", region.as_str().into());
        }
        labels.extend(self.labels.iter().map(|(label, value)| (label.clone(), value.as_str().into())));
        let mut annotations: Map = Map::new();
        annotations.insert(SIMULATED, "true".into());
        annotations.extend(self.annotations.iter().map(|(name, value)| (name.clone(), value.as_str().into())));
        let mut spec = json!({"podCIDR": pod_range(number), "podCIDRs": [pod_range(number)]});
        if !self.taints.is_empty() {
            let taints = self.taints.iter().map(|taint| match &taint.value {
                Some(value) => json!({"key": taint.key, "value": value, "effect": taint.effect}),
                None => json!({"key": taint.key, "effect": taint.effect}),
            });
            spec["taints"] = taints.collect();
        }
        json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "labels": labels, "annotations": annotations},
            "spec": spec,
            "status": self.status(&json!({}), &name, &host_address(number).to_string(), now),
        })
    }

    /// The status of a Node. Fields that the old status already has stay as they are.
    pub fn status(&self, old: &Value, name: &str, address: &str, now: Time) -> Value {
        let amounts = |amounts: &BTreeMap<String, Amount>| -> Value {
            amounts.iter().map(|(name, amount)| (name.clone(), Value::from(amount.text()))).collect::<Map>().into()
        };
        let capacity = amounts(&self.capacity);
        let mut allocatable = capacity.clone();
        if let (Some(all), Value::Object(own)) = (allocatable.as_object_mut(), amounts(&self.allocatable)) {
            all.extend(own);
        }
        let address = self.address.map_or_else(|| address.to_owned(), |address| address.to_string());
        let or = |field: &str, otherwise: Value| match &old[field] {
            Value::Null => otherwise,
            told => told.clone(),
        };
        json!({
            "capacity": or("capacity", capacity.clone()),
            "allocatable": or("allocatable", match &old["capacity"] { Value::Null => allocatable, told => told.clone() }),
            "conditions": heartbeat(old, now),
            "addresses": or("addresses", json!([
                {"type": "InternalIP", "address": address}, {"type": "Hostname", "address": name}])),
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self.port}},
            "nodeInfo": node_info(&old["nodeInfo"], name),
        })
    }
}

fn node_info(old: &Value, name: &str) -> Value {
    use sha2::{Digest, Sha256};
    let id = crate::template::hex(&Sha256::digest(name));
    let uuid = format!("{}-{}-{}-{}-{}", &id[..8], &id[8..12], &id[12..16], &id[16..20], &id[20..32]);
    let runtime = concat!("simulated://", env!("CARGO_PKG_VERSION"));
    let mut info = Map::new();
    for (field, value) in [
        ("architecture", "amd64"),
        ("bootID", &uuid),
        ("containerRuntimeVersion", runtime),
        ("kernelVersion", "simulated"),
        ("kubeProxyVersion", ""),
        ("kubeletVersion", KUBELET_VERSION),
        ("machineID", &id[..32]),
        ("operatingSystem", "linux"),
        ("osImage", OS_IMAGE),
        ("systemUUID", &uuid),
    ] {
        let told = old[field].as_str().filter(|told| !told.is_empty());
        info.insert(field, told.unwrap_or(value).into());
    }
    info.into()
}

/// The conditions that a kubelet maintains: type, status, reason and message of each.
pub fn conditions() -> impl Iterator<Item = (&'static str, &'static str, &'static str, &'static str)> {
    [
        ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
        ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
    ]
    .into_iter()
}

/// The conditions of a node with `now` as their heartbeat time.
pub fn heartbeat(old: &Value, now: Time) -> Value {
    let find = |kind: &str| old["conditions"].as_array()?.iter().find(|condition| condition["type"] == kind);
    conditions()
        .map(|(kind, status, reason, message)| {
            let since = find(kind).filter(|old| old["status"] == status && old["lastTransitionTime"].is_string());
            let since = since.map_or_else(|| json!(now), |old| old["lastTransitionTime"].clone());
            json!({"type": kind, "status": status, "reason": reason, "message": message,
                "lastHeartbeatTime": now, "lastTransitionTime": since})
        })
        .collect()
}

/// The address of a node by its number. Node 0 has 172.16.0.1.
pub fn host_address(number: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(Ipv4Addr::new(172, 16, 0, 1).to_bits() + number % (1 << 20))
}

/// The pod CIDR of a node by its number. Node 0 has 10.128.0.0/24.
pub fn pod_range(number: u32) -> String {
    let base = Ipv4Addr::new(10, 128, 0, 0).to_bits() + ((number % NODES_MAX) << 8);
    format!("{}/24", Ipv4Addr::from_bits(base))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_says_that_it_is_simulated() {
        let template = Template::parse(
            "zones: [a, b]\nregion: r\nlabels: {x: y}\ncapacity: {cpu: 8}\ntaints: [{key: k, effect: NoSchedule}]\n",
        )
        .expect("a template");
        let node = template.node(3, Time::from_second(0));
        assert_eq!(node["metadata"]["name"], "node-3");
        assert_eq!(node["metadata"]["labels"]["topology.kubernetes.io/zone"], "b");
        assert_eq!(node["status"]["capacity"]["cpu"], "8");
        assert_eq!(node["status"]["allocatable"]["pods"], "110");
        assert_eq!(node["status"]["nodeInfo"]["osImage"], OS_IMAGE);
        assert_eq!(node["spec"]["podCIDR"], "10.128.3.0/24");
        assert_eq!(node["spec"]["taints"][0]["effect"], "NoSchedule");
        assert_eq!(
            (template.number("node-3"), template.number("node-03"), template.number("x")),
            (Some(3), None, None)
        );
        assert_eq!(host_address(NODES_MAX).to_string(), "172.16.128.1");
    }

    #[test]
    fn a_template_with_mistakes_is_refused() {
        for (text, complaint) in [
            ("capactiy: {}", "capactiy"),
            ("capacity: {cpu: much}", "cpu"),
            ("taints: [{key: k, effect: Never}]", "Never"),
            ("pods: {run-for: x}", "run-for"),
        ] {
            let error = Template::parse(text).expect_err(text);
            assert!(error.contains(complaint), "{text}: {error}");
        }
    }
}
