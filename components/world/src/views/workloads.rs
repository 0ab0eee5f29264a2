//! Views of ReplicaSets, ReplicationControllers, Deployments, StatefulSets, DaemonSets and ControllerRevisions.
//!
//! The views do not contain the pod templates. A controller that makes pods reads the template from the whole object.

use super::condition::Condition;
use crate::Selector;
use crate::object::or_default;
use holdfast_value::Value;
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct ReplicaSet {
    pub spec: ReplicasSpec,
    pub status: ReplicasStatus,
}

crate::resource!(ReplicaSet, "apps", "v1", "replicasets", "ReplicaSet", namespaced);

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct ReplicationController {
    pub spec: ReplicasSpec,
    pub status: ReplicasStatus,
}

crate::resource!(ReplicationController, "", "v1", "replicationcontrollers", "ReplicationController", namespaced);

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReplicasSpec {
    pub replicas: Option<i64>,
    pub min_ready_seconds: i64,
    #[serde(deserialize_with = "selector_or_labels")]
    pub selector: Selector,
    #[serde(deserialize_with = "or_default")]
    pub template: TemplateLabels,
}

/// A pod template, of which only the labels are read.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct TemplateLabels {
    pub metadata: TemplateMeta,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct TemplateMeta {
    #[serde(deserialize_with = "or_default")]
    pub labels: BTreeMap<String, String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReplicasStatus {
    pub replicas: i64,
    pub ready_replicas: i64,
    pub available_replicas: i64,
    pub terminating_replicas: Option<i64>,
    pub observed_generation: i64,
    #[serde(deserialize_with = "or_default")]
    pub conditions: Vec<Condition>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Deployment {
    pub spec: DeploymentSpec,
    pub status: DeploymentStatus,
}

crate::resource!(Deployment, "apps", "v1", "deployments", "Deployment", namespaced);

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeploymentSpec {
    pub replicas: Option<i64>,
    pub selector: Selector,
    pub strategy: Strategy,
    pub min_ready_seconds: i64,
    pub revision_history_limit: Option<i64>,
    pub paused: bool,
    pub progress_deadline_seconds: Option<i64>,
}

/// How pods with an old template are replaced.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Strategy {
    #[serde(rename = "type")]
    pub kind: String,
    pub rolling_update: Option<RollingUpdate>,
}

/// The settings of rolling updates, with the fields of all kinds that have rolling updates.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RollingUpdate {
    pub max_surge: Option<IntOrPercent>,
    pub max_unavailable: Option<IntOrPercent>,
    pub partition: Option<i64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeploymentStatus {
    pub replicas: i64,
    pub updated_replicas: i64,
    pub ready_replicas: i64,
    pub available_replicas: i64,
    pub observed_generation: i64,
    pub collision_count: Option<i64>,
    #[serde(deserialize_with = "or_default")]
    pub conditions: Vec<Condition>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct StatefulSet {
    pub spec: StatefulSetSpec,
    pub status: StatefulSetStatus,
}

crate::resource!(StatefulSet, "apps", "v1", "statefulsets", "StatefulSet", namespaced);

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StatefulSetSpec {
    pub replicas: Option<i64>,
    pub selector: Selector,
    pub service_name: String,
    pub pod_management_policy: String,
    pub update_strategy: Strategy,
    pub revision_history_limit: Option<i64>,
    pub min_ready_seconds: i64,
    pub ordinals: Option<Ordinals>,
    pub persistent_volume_claim_retention_policy: RetentionPolicy,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Ordinals {
    pub start: i64,
}

/// What happens to the claims of a StatefulSet when the set is deleted or scaled down.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RetentionPolicy {
    pub when_deleted: String,
    pub when_scaled: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StatefulSetStatus {
    pub current_replicas: i64,
    pub current_revision: String,
    pub collision_count: Option<i64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct DaemonSet {
    pub spec: DaemonSetSpec,
    pub status: DaemonSetStatus,
}

crate::resource!(DaemonSet, "apps", "v1", "daemonsets", "DaemonSet", namespaced);

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DaemonSetSpec {
    pub selector: Selector,
    pub update_strategy: Strategy,
    pub revision_history_limit: Option<i64>,
    pub min_ready_seconds: i64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DaemonSetStatus {
    pub desired_number_scheduled: i64,
    pub updated_number_scheduled: i64,
    pub number_misscheduled: i64,
    pub observed_generation: i64,
    pub collision_count: Option<i64>,
}

/// The present pod template of a StatefulSet or a DaemonSet, or a template that the set had before.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct ControllerRevision {
    pub data: Value,
    pub revision: i64,
}

crate::resource!(ControllerRevision, "apps", "v1", "controllerrevisions", "ControllerRevision", namespaced);

/// A number of objects, or a percentage of another number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IntOrPercent {
    Number(i64),
    Percent(i64),
}

impl IntOrPercent {
    /// The number of objects that this value means if there are `total` objects. A fraction is rounded up if `round_up`
    /// is true, otherwise down.
    pub fn of(self, total: i64, round_up: bool) -> i64 {
        match self {
            IntOrPercent::Number(number) => number,
            IntOrPercent::Percent(percent) => {
                let hundredths = i128::from(percent) * i128::from(total) + if round_up { 99 } else { 0 };
                i64::try_from(hundredths.div_euclid(100)).unwrap_or(i64::MAX)
            }
        }
    }
}

impl<'de> Deserialize<'de> for IntOrPercent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<IntOrPercent, D::Error> {
        Ok(match Value::deserialize(deserializer)? {
            Value::String(text) => {
                IntOrPercent::Percent(text.strip_suffix('%').and_then(|digits| digits.parse().ok()).unwrap_or(0))
            }
            other => IntOrPercent::Number(other.as_i64().unwrap_or(0)),
        })
    }
}

/// Deserializes a label selector, or labels without expressions as in a ReplicationController. A map that is not empty
/// and has only strings as values contains labels.
fn selector_or_labels<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Selector, D::Error> {
    let value = Value::deserialize(deserializer)?;
    let labels: Option<BTreeMap<String, String>> = holdfast_value::from_value(value.clone()).ok();
    Ok(match labels.filter(|labels| !labels.is_empty()) {
        Some(labels) => Selector::all_of(&labels),
        None => Selector::of(&value),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_value::json;

    fn amount(value: Value) -> IntOrPercent {
        holdfast_value::from_value(value).expect("an amount")
    }

    #[test]
    fn shares_are_rounded_as_asked() {
        assert_eq!(amount(json!("25%")).of(10, true), 3);
        assert_eq!(amount(json!("25%")).of(10, false), 2);
        assert_eq!(amount(json!("100%")).of(3, true), 3);
        assert_eq!(amount(json!("0%")).of(3, true), 0);
        assert_eq!(amount(json!(7)).of(3, true), 7);
        assert_eq!(IntOrPercent::Percent(i64::MAX).of(i64::MAX, true), i64::MAX);
    }

    #[test]
    fn both_forms_of_selectors_are_read() {
        let spec = |selector: Value| {
            holdfast_value::from_value::<ReplicasSpec>(json!({"selector": selector})).expect("a spec")
        };
        assert_eq!(spec(json!({"app": "a"})).selector, spec(json!({"matchLabels": {"app": "a"}})).selector);
        assert_eq!(spec(json!({"matchExpressions": [{"key": "a", "operator": "Exists"}]})).selector.to_string(), "a");
        assert!(spec(json!({})).selector.is_everything());
    }
}
