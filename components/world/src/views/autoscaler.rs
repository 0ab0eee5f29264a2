//! Views of HorizontalPodAutoscalers.

use super::condition::Condition;
use crate::Time;
use crate::object::or_default;
use holdfast_value::Value;
use serde::Deserialize;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct HorizontalPodAutoscaler {
    pub spec: AutoscalerSpec,
    pub status: AutoscalerStatus,
}

crate::resource!(
    HorizontalPodAutoscaler,
    "autoscaling",
    "v2",
    "horizontalpodautoscalers",
    "HorizontalPodAutoscaler",
    namespaced
);

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AutoscalerSpec {
    pub scale_target_ref: ObjectRef,
    pub min_replicas: Option<i64>,
    pub max_replicas: i64,
    #[serde(deserialize_with = "or_default")]
    pub metrics: Vec<Metric>,
    pub behavior: Option<Behavior>,
}

/// A reference to another object in the namespace of the HorizontalPodAutoscaler.
#[derive(Debug, Default, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectRef {
    pub api_version: String,
    pub kind: String,
    pub name: String,
}

/// A metric and its target. The field that `type` names is present.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Metric {
    #[serde(rename = "type")]
    pub kind: String,
    pub resource: Option<ResourceMetric>,
    pub container_resource: Option<ResourceMetric>,
    pub pods: Option<NamedMetric>,
    pub object: Option<NamedMetric>,
    pub external: Option<NamedMetric>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct ResourceMetric {
    pub name: String,
    pub container: String,
    pub target: Target,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NamedMetric {
    pub metric: MetricName,
    pub described_object: ObjectRef,
    pub target: Target,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct MetricName {
    pub name: String,
    pub selector: Option<Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Target {
    #[serde(rename = "type")]
    pub kind: String,
    pub value: Option<String>,
    pub average_value: Option<String>,
    pub average_utilization: Option<i64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Behavior {
    pub scale_up: Option<Rules>,
    pub scale_down: Option<Rules>,
}

#[derive(Debug, Default, Clone, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Rules {
    pub stabilization_window_seconds: Option<i64>,
    pub select_policy: Option<String>,
    #[serde(deserialize_with = "or_default")]
    pub policies: Vec<Policy>,
    pub tolerance: Option<String>,
}

/// A limit of the change of the number of pods: `value` pods, or `value` percent, in `period_seconds`.
#[derive(Debug, Default, Clone, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Policy {
    #[serde(rename = "type")]
    pub kind: String,
    pub value: i64,
    pub period_seconds: i64,
}

#[derive(Debug, Default, Clone, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AutoscalerStatus {
    pub last_scale_time: Option<Time>,
    pub current_replicas: i64,
    pub desired_replicas: i64,
    pub current_metrics: Value,
    #[serde(deserialize_with = "or_default")]
    pub conditions: Vec<Condition>,
}
