//! Defaults of the group that workloads and network kinds first lived in.

use crate::kinds::apps::defaults::{rolling_update, select_template};
use crate::kinds::networking::defaults::policy_types;
use crate::schema::defaults::Rule;

/// Deployments of this version keep all revisions and never run out of time.
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
