//! Defaults of the workloads. Older versions differ in what they assume.

use crate::kinds::core::defaults::{set_labels, template_labels};
use crate::schema::defaults::{Rule, is_absent, object, objects, set_absent, text};
use serde_json::{Map, Value, json};

const ALL: &[&str] = &["v1", "v1beta2", "v1beta1"];
const WITH_DAEMON_SETS: &[&str] = &["v1", "v1beta2"];

pub fn rules() -> Vec<Rule> {
    let mut rules = deployments();
    rules.extend(stateful_sets());
    rules.extend([
        Rule::in_versions("api.apps", WITH_DAEMON_SETS, "DaemonSetSpec").set("revisionHistoryLimit", 10),
        Rule::in_versions("api.apps", WITH_DAEMON_SETS, "DaemonSetUpdateStrategy")
            .set("type", "RollingUpdate")
            .run(rolling_update),
        Rule::in_versions("api.apps", WITH_DAEMON_SETS, "RollingUpdateDaemonSet")
            .set("maxUnavailable", 1)
            .set("maxSurge", 0),
        Rule::in_versions("api.apps", WITH_DAEMON_SETS, "ReplicaSetSpec").set("replicas", 1),
    ]);
    rules
}

fn deployments() -> Vec<Rule> {
    let spec = |versions: &[&str], history: i64| {
        Rule::in_versions("api.apps", versions, "DeploymentSpec")
            .set("replicas", 1)
            .set("revisionHistoryLimit", history)
            .set("progressDeadlineSeconds", 600)
    };
    vec![
        Rule::of("api.apps.v1beta1.Deployment").run(select_template),
        spec(&["v1", "v1beta2"], 10),
        spec(&["v1beta1"], 2),
        Rule::in_versions("api.apps", ALL, "DeploymentStrategy").set("type", "RollingUpdate").run(rolling_update),
        Rule::in_versions("api.apps", ALL, "RollingUpdateDeployment")
            .set("maxUnavailable", "25%")
            .set("maxSurge", "25%"),
    ]
}

fn stateful_sets() -> Vec<Rule> {
    vec![
        Rule::of("api.apps.v1beta1.StatefulSet").run(select_template),
        Rule::in_versions("api.apps", ALL, "StatefulSetSpec")
            .set("podManagementPolicy", "OrderedReady")
            .set("replicas", 1)
            .set("revisionHistoryLimit", 10)
            .set_object("persistentVolumeClaimRetentionPolicy")
            .run(name_claim_templates),
        Rule::in_versions("api.apps", ALL, "StatefulSetPersistentVolumeClaimRetentionPolicy")
            .set("whenDeleted", "Retain")
            .set("whenScaled", "Retain"),
        Rule::in_versions("api.apps", &["v1", "v1beta2"], "StatefulSetUpdateStrategy").run(stateful_set_strategy),
        Rule::of("api.apps.v1beta1.StatefulSetUpdateStrategy").set("type", "OnDelete"),
        Rule::in_versions("api.apps", ALL, "RollingUpdateStatefulSetStrategy")
            .set("partition", 0)
            .set("maxUnavailable", 1),
    ]
}

/// The first versions select, and label the object with, what the template is labelled with.
pub(in crate::kinds) fn select_template(workload: &mut Map<String, Value>) {
    let Some(labels) = template_labels(workload) else { return };
    if let Some(spec) = object(workload, "spec") {
        set_absent(spec, "selector", json!({ "matchLabels": labels.clone() }));
    }
    set_labels(workload, labels);
}

/// A rolling update has parameters, which have defaults of their own.
pub(in crate::kinds) fn rolling_update(strategy: &mut Map<String, Value>) {
    if text(strategy, "type") == "RollingUpdate" {
        set_absent(strategy, "rollingUpdate", Map::new());
    }
}

/// Only a strategy that is not named gets parameters: one that is named may go without.
fn stateful_set_strategy(strategy: &mut Map<String, Value>) {
    if text(strategy, "type").is_empty() {
        strategy.insert("type".to_owned(), Value::from("RollingUpdate"));
        if is_absent(strategy, "rollingUpdate") {
            strategy.insert("rollingUpdate".to_owned(), json!({}));
        }
    }
}

fn name_claim_templates(spec: &mut Map<String, Value>) {
    for template in objects(spec, "volumeClaimTemplates") {
        template.insert("apiVersion".to_owned(), Value::from("v1"));
        template.insert("kind".to_owned(), Value::from("PersistentVolumeClaim"));
    }
}
