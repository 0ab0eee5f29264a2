//! Pods, as controllers look at them.

use crate::Time;
use crate::object::or_default;
use serde::Deserialize;

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
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodStatus {
    pub phase: String,
    pub reason: String,
    #[serde(deserialize_with = "or_default")]
    pub conditions: Vec<Condition>,
    #[serde(rename = "podIP")]
    pub pod_ip: String,
    pub start_time: Option<Time>,
}

/// A condition, as most kinds have them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Condition {
    #[serde(rename = "type")]
    pub kind: String,
    pub status: String,
    pub reason: String,
    pub message: String,
    pub last_transition_time: Option<Time>,
    pub last_update_time: Option<Time>,
    pub last_probe_time: Option<Time>,
}

impl Condition {
    pub fn find<'a>(conditions: &'a [Condition], kind: &str) -> Option<&'a Condition> {
        conditions.iter().find(|condition| condition.kind == kind)
    }

    pub fn is_true(conditions: &[Condition], kind: &str) -> bool {
        Condition::find(conditions, kind).is_some_and(|condition| condition.status == "True")
    }
}

impl Pod {
    /// Whether none of its containers will run again.
    pub fn is_finished(&self) -> bool {
        matches!(self.status.phase.as_str(), "Succeeded" | "Failed")
    }

    pub fn is_ready(&self) -> bool {
        Condition::is_true(&self.status.conditions, "Ready")
    }
}
