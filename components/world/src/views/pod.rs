//! Views of Pods.

use super::condition::Condition;
use crate::interned::deserialize_interned;
use crate::object::or_default;
use crate::{InternedList, Meta, Time};
use holdfast_value::Value;
use serde::{Deserialize, Deserializer};
use std::collections::{BTreeMap, HashMap};

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Pod {
    pub spec: PodSpec,
    pub status: PodStatus,
}

crate::resource!(Pod, "", "v1", "pods", "Pod", namespaced);

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpec {
    pub node_name: String,
    pub restart_policy: String,
    pub hostname: String,
    pub subdomain: String,
    pub active_deadline_seconds: Option<i64>,
    #[serde(deserialize_with = "or_default")]
    pub readiness_gates: InternedList<ReadinessGate>,
    #[serde(deserialize_with = "or_default")]
    pub containers: InternedList<Container>,
    #[serde(deserialize_with = "or_default")]
    pub init_containers: InternedList<Container>,
    pub resources: Resources,
    #[serde(deserialize_with = "or_default")]
    pub volumes: InternedList<Volume>,
    #[serde(deserialize_with = "deserialize_interned")]
    pub tolerations: InternedList<Toleration>,
    #[serde(deserialize_with = "or_default")]
    pub resource_claims: InternedList<PodClaim>,
    /// The node that the pod's required node affinity names, as in the pods of DaemonSets; empty if there is none.
    #[serde(rename = "affinity", deserialize_with = "node_of_affinity")]
    pub affine_node: String,
}

/// A readiness gate: the type of a condition that another component must set before the pod is ready.
#[derive(Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReadinessGate {
    pub condition_type: String,
}

/// A volume of a pod, with the claim that it uses.
#[derive(Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Volume {
    pub name: String,
    pub persistent_volume_claim: Option<ClaimVolume>,
    pub secret: Option<SecretVolume>,
    /// The template from which the volume's claim is made, if the pod contains one.
    pub ephemeral: Option<EphemeralVolume>,
}

#[derive(Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SecretVolume {
    pub secret_name: String,
}

#[derive(Debug, Default, PartialEq, Eq, Hash, Deserialize)]
pub struct EphemeralVolume {}

/// The taints that a pod tolerates.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Toleration {
    pub key: String,
    pub operator: String,
    pub value: String,
    pub effect: String,
    pub toleration_seconds: Option<i64>,
}

impl Toleration {
    /// Whether the toleration tolerates a taint.
    pub fn tolerates(&self, taint: &super::node::Taint) -> bool {
        let effect = self.effect.is_empty() || self.effect == taint.effect;
        let key = self.key.is_empty() && self.operator == "Exists" || self.key == taint.key;
        let value = match self.operator.as_str() {
            "Exists" => true,
            "" | "Equal" => self.value == taint.value,
            _ => false,
        };
        effect && key && value
    }
}

/// An entry for a ResourceClaim in a pod: the name of a claim, or the name of a template.
#[derive(Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodClaim {
    pub name: String,
    pub resource_claim_name: Option<String>,
    pub resource_claim_template_name: Option<String>,
}

/// The claim that was made from a template for an entry of the pod. `resource_claim_name` is `None` if the entry needs
/// no claim.
#[derive(Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodClaimStatus {
    pub name: String,
    pub resource_claim_name: Option<String>,
}

/// The claim that was made for the pod's extended resources.
#[derive(Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ExtendedClaimStatus {
    pub resource_claim_name: String,
}

impl super::Pod {
    /// Whether the pod uses ResourceClaims: claims in its spec, or a claim for extended resources.
    pub fn claims_devices(&self) -> bool {
        !self.spec.resource_claims.is_empty() || self.status.extended_resource_claim_status.is_some()
    }

    /// The names of the ResourceClaims that the pod uses. A claim that was not made yet is left out.
    pub fn claim_names(&self) -> impl Iterator<Item = &str> {
        let made: HashMap<&str, Option<&str>> = match self.spec.resource_claims.is_empty() {
            true => HashMap::new(),
            // If two statuses have equal names, the first status counts.
            false => {
                let statuses = self.status.resource_claim_statuses.iter().rev();
                statuses.map(|status| (&*status.name, status.resource_claim_name.as_deref())).collect()
            }
        };
        let made = move |claim: &PodClaim| made.get(&*claim.name).copied().flatten();
        let named = self.spec.resource_claims.iter();
        let named = named.filter_map(move |claim| claim.resource_claim_name.as_deref().or_else(|| made(claim)));
        named.chain(self.status.extended_resource_claim_status.iter().map(|status| &*status.resource_claim_name))
    }
}

#[derive(Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimVolume {
    pub claim_name: String,
}

fn node_of_affinity<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let affinity = Value::deserialize(deserializer)?;
    let terms = &affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"];
    let fields = terms.as_array().into_iter().flatten().flat_map(|term| term["matchFields"].as_array());
    let by_name = fields.flatten().find(|field| field["key"] == "metadata.name" && field["operator"] == "In");
    Ok(by_name.and_then(|field| field["values"][0].as_str()).unwrap_or_default().to_owned())
}

#[derive(Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Container {
    pub name: String,
    #[serde(deserialize_with = "or_default")]
    pub command: InternedList<String>,
    #[serde(deserialize_with = "or_default")]
    pub args: InternedList<String>,
    #[serde(deserialize_with = "or_default")]
    pub ports: InternedList<ContainerPort>,
    pub startup_probe: Option<Probe>,
    pub liveness_probe: Option<Probe>,
    pub readiness_probe: Option<Probe>,
    /// `Always` for an init container that keeps running while the other containers run.
    pub restart_policy: String,
    #[serde(deserialize_with = "or_default")]
    pub resources: Resources,
}

/// A probe of a container. Only whether it runs a command is read.
#[derive(Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
pub struct Probe {
    pub exec: Option<Exec>,
}

/// A command of a probe. Only its presence is read.
#[derive(Debug, Default, PartialEq, Eq, Hash, Deserialize)]
pub struct Exec {}

#[derive(Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerPort {
    pub name: String,
    pub container_port: i64,
    pub protocol: String,
}

#[derive(Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
pub struct Resources {
    #[serde(deserialize_with = "or_default")]
    pub requests: BTreeMap<String, String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodStatus {
    pub phase: String,
    pub observed_generation: i64,
    pub reason: String,
    #[serde(deserialize_with = "deserialize_interned")]
    pub conditions: InternedList<Condition>,
    #[serde(rename = "podIP")]
    pub pod_ip: String,
    #[serde(rename = "podIPs", deserialize_with = "or_default")]
    pub pod_ips: InternedList<PodIp>,
    pub start_time: Option<Time>,
    #[serde(deserialize_with = "or_default")]
    pub resource_claim_statuses: InternedList<PodClaimStatus>,
    pub extended_resource_claim_status: Option<ExtendedClaimStatus>,
    #[serde(deserialize_with = "or_default")]
    pub container_statuses: InternedList<ContainerStatus>,
    #[serde(deserialize_with = "or_default")]
    pub init_container_statuses: InternedList<ContainerStatus>,
}

#[derive(Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
pub struct PodIp {
    pub ip: String,
}

#[derive(Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerStatus {
    pub name: String,
    pub restart_count: i64,
    pub ready: bool,
    pub state: ContainerState,
}

#[derive(Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
pub struct ContainerState {
    pub running: Option<Running>,
    pub terminated: Option<Terminated>,
}

/// The state of a running container. Its start time is not read.
#[derive(Debug, Default, PartialEq, Eq, Hash, Deserialize)]
pub struct Running {}

/// How a container ended.
#[derive(Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Terminated {
    pub exit_code: i64,
    pub finished_at: Option<Time>,
}

impl Pod {
    /// Whether no container of the pod will run again.
    pub fn is_finished(&self) -> bool {
        matches!(self.status.phase.as_str(), "Succeeded" | "Failed")
    }

    /// Whether the pod has not finished and is not being deleted.
    pub fn is_active(&self, meta: &Meta) -> bool {
        !self.is_finished() && !meta.is_deleting()
    }

    pub fn is_ready(&self) -> bool {
        Condition::is_true(&self.status.conditions, "Ready")
    }

    /// The time since which the pod has been ready; `None` if it is not ready.
    pub fn ready_since(&self) -> Option<Time> {
        Condition::find(&self.status.conditions, "Ready").filter(|_| self.is_ready())?.last_transition_time
    }

    /// Whether the pod is ready at `now`, and has been ready for `min_ready_seconds`.
    pub fn is_available(&self, min_ready_seconds: i64, now: Time) -> bool {
        self.is_ready() && (min_ready_seconds <= 0 || self.available_at(min_ready_seconds).is_some_and(|at| at <= now))
    }

    /// The time at which a ready pod becomes available if it stays ready; `None` if it is not ready.
    pub fn available_at(&self, min_ready_seconds: i64) -> Option<Time> {
        Some(self.ready_since()?.plus_seconds(min_ready_seconds))
    }
}
