//! Defaults of webhooks and admission policies. Webhooks of `v1beta1` are more lenient.

use crate::schema::defaults::Rule;
use serde_json::json;

const VALIDATING: &[&str] = &["v1", "v1beta1", "v1alpha1"];
const MUTATING: &[&str] = &["v1beta1", "v1alpha1"];

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
        Rule::in_versions("api.admissionregistration", VALIDATING, "NamedRuleWithOperations").set("scope", "*"),
        Rule::in_versions("api.admissionregistration", VALIDATING, "ValidatingAdmissionPolicySpec")
            .set("failurePolicy", "Fail"),
        Rule::in_versions("api.admissionregistration", MUTATING, "MutatingAdmissionPolicySpec")
            .set("failurePolicy", "Fail"),
        Rule::in_versions("api.admissionregistration", VALIDATING, "MatchResources")
            .set("matchPolicy", "Equivalent")
            .set_object("namespaceSelector")
            .set_object("objectSelector"),
    ]);
    rules
}
