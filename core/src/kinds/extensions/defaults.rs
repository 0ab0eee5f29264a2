//! Defaults of `extensions`, the first group that had workloads and network kinds.

use crate::kinds::apps::defaults::{rolling_update, select_template};
use crate::kinds::networking::defaults::policy_types;
use crate::schema::defaults::Rule;

/// Deployments of this version keep all revisions and have no progress deadline.
const NO_LIMIT: i32 = i32::MAX;

pub fn rules() -> Vec<Rule> {
    vec![
        Rule::of("api.extensions.v1beta1.DaemonSet").run(select_template),
        Rule::of("api.extensions.v1beta1.DaemonSetSpec").set("revisionHistoryLimit", 10),
        Rule::of("api.extensions.v1beta1.DaemonSetUpdateStrategy").set("type", "OnDelete").run(rolling_update),
        Rule::of("api.extensions.v1beta1.RollingUpdateDaemonSet").set("maxUnavailable", 1).set("maxSurge", 0),
        Rule::of("api.extensions.v1beta1.Deployment").run(select_template),
        Rule::of("api.extensions.v1beta1.DeploymentSpec")
            .set("replicas", 1)
            .set("revisionHistoryLimit", NO_LIMIT)
            .set("progressDeadlineSeconds", NO_LIMIT),
        Rule::of("api.extensions.v1beta1.DeploymentStrategy").set("type", "RollingUpdate").run(rolling_update),
        Rule::of("api.extensions.v1beta1.RollingUpdateDeployment").set("maxUnavailable", 1).set("maxSurge", 1),
        Rule::of("api.extensions.v1beta1.ReplicaSet").run(select_template),
        Rule::of("api.extensions.v1beta1.ReplicaSetSpec").set("replicas", 1),
        Rule::of("api.extensions.v1beta1.HTTPIngressPath").set("pathType", "ImplementationSpecific"),
        Rule::of("api.extensions.v1beta1.NetworkPolicySpec").run(policy_types),
        Rule::of("api.extensions.v1beta1.NetworkPolicyPort").set("protocol", "TCP"),
    ]
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
            "api.extensions.v1beta1.Deployment",
            json!({"spec": {"template": template()}}),
            expect![[r#"
                metadata.labels.a = "b"
                spec.progressDeadlineSeconds = 2147483647
                spec.replicas = 1
                spec.revisionHistoryLimit = 2147483647
                spec.selector.matchLabels.a = "b"
                spec.strategy.rollingUpdate.maxSurge = 1
                spec.strategy.rollingUpdate.maxUnavailable = 1
                spec.strategy.type = "RollingUpdate"
                spec.template.spec.containers = null
                status = {}"#]],
        );
    }

    #[test]
    fn a_daemon_set() {
        check(
            "api.extensions.v1beta1.DaemonSet",
            json!({"spec": {"template": template()}}),
            expect![[r#"
                metadata.labels.a = "b"
                spec.revisionHistoryLimit = 10
                spec.selector.matchLabels.a = "b"
                spec.template.spec.containers = null
                spec.updateStrategy.type = "OnDelete"
                status.currentNumberScheduled = 0
                status.desiredNumberScheduled = 0
                status.numberMisscheduled = 0
                status.numberReady = 0"#]],
        );
    }

    #[test]
    fn a_replica_set() {
        check(
            "api.extensions.v1beta1.ReplicaSet",
            json!({"spec": {"selector": {"matchLabels": {"own": "x"}}, "template": template()}}),
            expect![[r#"
                metadata.labels.a = "b"
                spec.replicas = 1
                spec.template.spec.containers = null
                status.replicas = 0"#]],
        );
    }

    #[test]
    fn an_ingress() {
        check(
            "api.extensions.v1beta1.Ingress",
            json!({"spec": {"rules": [{"http": {"paths": [{"path": "/", "backend": {}}]}}]}}),
            expect![[r#"
                spec.rules[0].http.paths[0].pathType = "ImplementationSpecific"
                status.loadBalancer = {}"#]],
        );
    }

    #[test]
    fn a_network_policy() {
        check(
            "api.extensions.v1beta1.NetworkPolicy",
            json!({"spec": {"podSelector": {}, "ingress": [{"ports": [{"port": 80}]}]}}),
            expect![[r#"
                spec.ingress[0].ports[0].protocol = "TCP"
                spec.policyTypes = ["Ingress"]"#]],
        );
    }
}
