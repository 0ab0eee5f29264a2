//! Defaults of the workloads. Older versions have other defaults.

use crate::kinds::core::defaults::{set_labels, template_labels};
use crate::schema::defaults::{Rule, is_absent, object, objects, set_absent, text};
use holdfast_value::{Map, Value, json};

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
        Rule::in_versions("api.apps", ALL, "RollingUpdateStatefulSetStrategy").set("partition", 0),
    ]
}

/// Sets the selector and the object's labels from the template's labels, as old versions do.
pub(in crate::kinds) fn select_template(workload: &mut Map) {
    let Some(labels) = template_labels(workload) else { return };
    if let Some(spec) = object(workload, "spec") {
        set_absent(spec, "selector", json!({ "matchLabels": labels.clone() }));
    }
    set_labels(workload, labels);
}

/// Gives RollingUpdate its parameters, which have defaults of their own.
pub(in crate::kinds) fn rolling_update(strategy: &mut Map) {
    if text(strategy, "type") == "RollingUpdate" {
        set_absent(strategy, "rollingUpdate", Map::new());
    }
}

/// Sets the strategy and its parameters if the strategy is unset. A strategy that the client sets may have no
/// parameters.
fn stateful_set_strategy(strategy: &mut Map) {
    if text(strategy, "type").is_empty() {
        strategy.insert("type".to_owned(), Value::from("RollingUpdate"));
        if is_absent(strategy, "rollingUpdate") {
            strategy.insert("rollingUpdate".to_owned(), json!({}));
        }
    }
}

fn name_claim_templates(spec: &mut Map) {
    for template in objects(spec, "volumeClaimTemplates") {
        template.insert("apiVersion".to_owned(), Value::from("v1"));
        template.insert("kind".to_owned(), Value::from("PersistentVolumeClaim"));
    }
}

#[cfg(test)]
mod tests {
    use crate::schema::defaults::testing::check;
    use expect_test::expect;
    use holdfast_value::{Value, json};

    /// A template that needs no defaults itself.
    fn template() -> Value {
        json!({
            "metadata": {"labels": {"a": "b"}},
            "spec": {
                "dnsPolicy": "Default", "restartPolicy": "Always", "schedulerName": "s", "securityContext": {},
                "terminationGracePeriodSeconds": 1,
            },
        })
    }

    #[test]
    fn a_deployment() {
        check(
            "api.apps.v1.Deployment",
            json!({"spec": {"selector": {}, "template": template()}}),
            expect![[r#"
                spec.progressDeadlineSeconds = 600
                spec.replicas = 1
                spec.revisionHistoryLimit = 10
                spec.strategy.rollingUpdate.maxSurge = "25%"
                spec.strategy.rollingUpdate.maxUnavailable = "25%"
                spec.strategy.type = "RollingUpdate"
                spec.template.spec.containers = null
                status = {}"#]],
        );
    }

    #[test]
    fn a_deployment_that_recreates() {
        check(
            "api.apps.v1.Deployment",
            json!({"spec": {"replicas": 0, "strategy": {"type": "Recreate"}, "template": template()}}),
            expect![[r#"
                spec.progressDeadlineSeconds = 600
                spec.revisionHistoryLimit = 10
                spec.template.spec.containers = null
                status = {}"#]],
        );
    }

    #[test]
    fn a_deployment_with_half_a_strategy() {
        check(
            "api.apps.v1.DeploymentStrategy",
            json!({"rollingUpdate": {"maxSurge": 0}}),
            expect![[r#"
            rollingUpdate.maxUnavailable = "25%"
            type = "RollingUpdate""#]],
        );
    }

    #[test]
    fn an_old_deployment() {
        check(
            "api.apps.v1beta1.Deployment",
            json!({"spec": {"template": template()}}),
            expect![[r#"
                metadata.labels.a = "b"
                spec.progressDeadlineSeconds = 600
                spec.replicas = 1
                spec.revisionHistoryLimit = 2
                spec.selector.matchLabels.a = "b"
                spec.strategy.rollingUpdate.maxSurge = "25%"
                spec.strategy.rollingUpdate.maxUnavailable = "25%"
                spec.strategy.type = "RollingUpdate"
                spec.template.spec.containers = null
                status = {}"#]],
        );
    }

    #[test]
    fn an_oldish_deployment() {
        check(
            "api.apps.v1beta2.Deployment",
            json!({"spec": {"template": template()}}),
            expect![[r#"
                spec.progressDeadlineSeconds = 600
                spec.replicas = 1
                spec.revisionHistoryLimit = 10
                spec.strategy.rollingUpdate.maxSurge = "25%"
                spec.strategy.rollingUpdate.maxUnavailable = "25%"
                spec.strategy.type = "RollingUpdate"
                spec.template.spec.containers = null
                status = {}"#]],
        );
    }

    #[test]
    fn a_replica_set() {
        check(
            "api.apps.v1.ReplicaSet",
            json!({"spec": {"template": template()}}),
            expect![[r#"
                spec.replicas = 1
                spec.template.spec.containers = null
                status.replicas = 0"#]],
        );
    }

    #[test]
    fn a_daemon_set() {
        check(
            "api.apps.v1.DaemonSet",
            json!({"spec": {"template": template()}}),
            expect![[r#"
                spec.revisionHistoryLimit = 10
                spec.template.spec.containers = null
                spec.updateStrategy.rollingUpdate.maxSurge = 0
                spec.updateStrategy.rollingUpdate.maxUnavailable = 1
                spec.updateStrategy.type = "RollingUpdate"
                status.currentNumberScheduled = 0
                status.desiredNumberScheduled = 0
                status.numberMisscheduled = 0
                status.numberReady = 0"#]],
        );
    }

    #[test]
    fn a_stateful_set() {
        check(
            "api.apps.v1.StatefulSet",
            json!({"spec": {"template": template(), "volumeClaimTemplates": [{"metadata": {"name": "d"}}]}}),
            expect![[r#"
                spec.persistentVolumeClaimRetentionPolicy.whenDeleted = "Retain"
                spec.persistentVolumeClaimRetentionPolicy.whenScaled = "Retain"
                spec.podManagementPolicy = "OrderedReady"
                spec.replicas = 1
                spec.revisionHistoryLimit = 10
                spec.serviceName = ""
                spec.template.spec.containers = null
                spec.updateStrategy.rollingUpdate.partition = 0
                spec.updateStrategy.type = "RollingUpdate"
                spec.volumeClaimTemplates[0].apiVersion = "v1"
                spec.volumeClaimTemplates[0].kind = "PersistentVolumeClaim"
                spec.volumeClaimTemplates[0].spec.resources = {}
                spec.volumeClaimTemplates[0].spec.volumeMode = "Filesystem"
                spec.volumeClaimTemplates[0].status.phase = "Pending"
                status.availableReplicas = 0
                status.replicas = 0"#]],
        );
    }

    #[test]
    fn a_stateful_set_that_names_its_strategy() {
        check(
            "api.apps.v1.StatefulSetSpec",
            json!({
                "template": template(), "updateStrategy": {"type": "RollingUpdate"},
                "persistentVolumeClaimRetentionPolicy": {"whenScaled": "Delete"},
            }),
            expect![[r#"
                persistentVolumeClaimRetentionPolicy.whenDeleted = "Retain"
                podManagementPolicy = "OrderedReady"
                replicas = 1
                revisionHistoryLimit = 10
                serviceName = ""
                template.spec.containers = null"#]],
        );
    }

    #[test]
    fn an_old_stateful_set() {
        check(
            "api.apps.v1beta1.StatefulSet",
            json!({"metadata": {"labels": {"own": "x"}}, "spec": {"template": template()}}),
            expect![[r#"
                spec.persistentVolumeClaimRetentionPolicy.whenDeleted = "Retain"
                spec.persistentVolumeClaimRetentionPolicy.whenScaled = "Retain"
                spec.podManagementPolicy = "OrderedReady"
                spec.replicas = 1
                spec.revisionHistoryLimit = 10
                spec.selector.matchLabels.a = "b"
                spec.serviceName = ""
                spec.template.spec.containers = null
                spec.updateStrategy.type = "OnDelete"
                status.availableReplicas = 0
                status.replicas = 0"#]],
        );
    }
}
