//! Defaults of network policies and ingresses.

use crate::schema::defaults::{Rule, is_empty, set_empty};
use holdfast_value::{Map, json};

pub fn rules() -> Vec<Rule> {
    vec![
        Rule::of("api.networking.v1.NetworkPolicySpec").run(policy_types),
        Rule::of("api.networking.v1.NetworkPolicyPort").set("protocol", "TCP"),
        Rule::of("api.networking.v1beta1.HTTPIngressPath").set("pathType", "ImplementationSpecific"),
        Rule::in_versions("api.networking", &["v1", "v1beta1"], "IngressClassParametersReference")
            .set("scope", "Cluster"),
    ]
}

/// A policy applies to incoming traffic. It also applies to outgoing traffic if it has rules for outgoing traffic.
pub(in crate::kinds) fn policy_types(spec: &mut Map) {
    let egress = spec.get("egress").is_some_and(|rules| !is_empty(rules));
    set_empty(spec, "policyTypes", if egress { json!(["Ingress", "Egress"]) } else { json!(["Ingress"]) });
}

#[cfg(test)]
mod tests {
    use crate::schema::defaults::testing::check;
    use expect_test::expect;
    use holdfast_value::json;

    #[test]
    fn a_network_policy() {
        check(
            "api.networking.v1.NetworkPolicy",
            json!({"spec": {"podSelector": {}, "egress": [{"ports": [{"port": 53}]}]}}),
            expect![[r#"
                spec.egress[0].ports[0].protocol = "TCP"
                spec.policyTypes = ["Ingress","Egress"]"#]],
        );
    }

    #[test]
    fn a_network_policy_for_everything() {
        check(
            "api.networking.v1.NetworkPolicy",
            json!({}),
            expect![[r#"
            spec.podSelector = {}
            spec.policyTypes = ["Ingress"]"#]],
        );
    }

    #[test]
    fn an_ingress() {
        check(
            "api.networking.v1.Ingress",
            json!({"spec": {"rules": [{"http": {"paths": [{"path": "/"}]}}]}}),
            expect![[r#"
                spec.rules[0].http.paths[0].backend = {}
                status.loadBalancer = {}"#]],
        );
    }

    #[test]
    fn an_old_ingress() {
        check(
            "api.networking.v1beta1.Ingress",
            json!({"spec": {"rules": [{"http": {"paths": [{"path": "/"}]}}]}}),
            expect![[r#"
                spec.rules[0].http.paths[0].backend = {}
                spec.rules[0].http.paths[0].pathType = "ImplementationSpecific"
                status.loadBalancer = {}"#]],
        );
    }

    #[test]
    fn an_ingress_class() {
        check(
            "api.networking.v1.IngressClass",
            json!({"spec": {"parameters": {"kind": "K", "name": "n"}}}),
            expect![[r#"spec.parameters.scope = "Cluster""#]],
        );
    }
}
