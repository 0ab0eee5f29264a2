//! Defaults of network policies and ingresses.

use crate::schema::defaults::{Rule, is_empty, set_empty};
use serde_json::{Map, Value, json};

pub fn rules() -> Vec<Rule> {
    vec![
        Rule::of("api.networking.v1.NetworkPolicySpec").run(policy_types),
        Rule::of("api.networking.v1.NetworkPolicyPort").set("protocol", "TCP"),
        Rule::of("api.networking.v1beta1.HTTPIngressPath").set("pathType", "ImplementationSpecific"),
        Rule::in_versions("api.networking", &["v1", "v1beta1"], "IngressClassParametersReference")
            .set("scope", "Cluster"),
    ]
}

/// A policy is about incoming traffic, and about outgoing traffic where it has rules for it.
pub(in crate::kinds) fn policy_types(spec: &mut Map<String, Value>) {
    let egress = spec.get("egress").is_some_and(|rules| !is_empty(rules));
    set_empty(spec, "policyTypes", if egress { json!(["Ingress", "Egress"]) } else { json!(["Ingress"]) });
}
