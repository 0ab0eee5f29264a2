//! Defaults of webhooks and admission policies. The defaults of `v1beta1` webhooks make them more lenient than `v1`
//! webhooks.

use crate::schema::defaults::Rule;
use holdfast_value::json;

const VERSIONS: &[&str] = &["v1", "v1beta1", "v1alpha1"];

pub fn rules() -> Vec<Rule> {
    let mut rules = Vec::new();
    for webhook in ["ValidatingWebhook", "MutatingWebhook"] {
        rules.push(
            Rule::in_versions("api.admissionregistration", &["v1"], webhook)
                .set("failurePolicy", "Fail")
                .set("matchPolicy", "Equivalent")
                .set("timeoutSeconds", 10),
        );
        rules.push(
            Rule::in_versions("api.admissionregistration", &["v1beta1"], webhook)
                .set("failurePolicy", "Ignore")
                .set("matchPolicy", "Exact")
                .set("timeoutSeconds", 30)
                .set("sideEffects", "Unknown")
                .set("admissionReviewVersions", json!(["v1beta1"])),
        );
        rules.push(
            Rule::in_versions("api.admissionregistration", &["v1", "v1beta1"], webhook)
                .set_object("namespaceSelector")
                .set_object("objectSelector"),
        );
    }
    rules.extend([
        Rule::in_versions("api.admissionregistration", &["v1", "v1beta1"], "MutatingWebhook")
            .set("reinvocationPolicy", "Never"),
        Rule::in_versions("api.admissionregistration", &["v1", "v1beta1"], "ServiceReference").set("port", 443),
        Rule::in_versions("api.admissionregistration", &["v1"], "RuleWithOperations").set("scope", "*"),
        Rule::in_versions("api.admissionregistration", VERSIONS, "NamedRuleWithOperations").set("scope", "*"),
        Rule::in_versions("api.admissionregistration", VERSIONS, "ValidatingAdmissionPolicySpec")
            .set("failurePolicy", "Fail"),
        Rule::in_versions("api.admissionregistration", VERSIONS, "MutatingAdmissionPolicySpec")
            .set("failurePolicy", "Fail"),
        Rule::in_versions("api.admissionregistration", VERSIONS, "MatchResources")
            .set("matchPolicy", "Equivalent")
            .set_object("namespaceSelector")
            .set_object("objectSelector"),
    ]);
    rules
}

#[cfg(test)]
mod tests {
    use crate::schema::defaults::testing::check;
    use expect_test::expect;
    use holdfast_value::json;

    #[test]
    fn a_webhook() {
        check(
            "api.admissionregistration.v1.MutatingWebhookConfiguration",
            json!({
                "webhooks": [
                    {"name": "w", "clientConfig": {"service": {"name": "s"}}, "rules": [{"operations": ["*"]}]},
                ],
            }),
            expect![[r#"
                webhooks[0].admissionReviewVersions = null
                webhooks[0].clientConfig.service.namespace = ""
                webhooks[0].clientConfig.service.port = 443
                webhooks[0].failurePolicy = "Fail"
                webhooks[0].matchPolicy = "Equivalent"
                webhooks[0].namespaceSelector = {}
                webhooks[0].objectSelector = {}
                webhooks[0].reinvocationPolicy = "Never"
                webhooks[0].rules[0].scope = "*"
                webhooks[0].timeoutSeconds = 10"#]],
        );
    }

    #[test]
    fn a_validating_webhook() {
        check(
            "api.admissionregistration.v1.ValidatingWebhook",
            json!({"timeoutSeconds": 0, "failurePolicy": "Ignore"}),
            expect![[r#"
                admissionReviewVersions = null
                clientConfig = {}
                matchPolicy = "Equivalent"
                name = ""
                namespaceSelector = {}
                objectSelector = {}"#]],
        );
    }

    #[test]
    fn an_old_webhook() {
        check(
            "api.admissionregistration.v1beta1.ValidatingWebhook",
            json!({"rules": [{"operations": ["*"]}]}),
            expect![[r#"
                admissionReviewVersions = ["v1beta1"]
                clientConfig = {}
                failurePolicy = "Ignore"
                matchPolicy = "Exact"
                name = ""
                namespaceSelector = {}
                objectSelector = {}
                rules[0].scope = "*"
                sideEffects = "Unknown"
                timeoutSeconds = 30"#]],
        );
    }

    #[test]
    fn a_policy() {
        check(
            "api.admissionregistration.v1.ValidatingAdmissionPolicy",
            json!({"spec": {"matchConstraints": {"resourceRules": [{"operations": ["*"]}]}}}),
            expect![[r#"
                spec.failurePolicy = "Fail"
                spec.matchConstraints.matchPolicy = "Equivalent"
                spec.matchConstraints.namespaceSelector = {}
                spec.matchConstraints.objectSelector = {}
                spec.matchConstraints.resourceRules[0].scope = "*"
                status = {}"#]],
        );
    }

    #[test]
    fn a_mutating_policy() {
        check(
            "api.admissionregistration.v1beta1.MutatingAdmissionPolicy",
            json!({}),
            expect![[r#"spec.failurePolicy = "Fail""#]],
        );
    }
}
