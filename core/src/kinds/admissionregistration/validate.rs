//! Validation of webhook configurations.

use super::matching::{MATCH_POLICIES, conditions, rule};
use crate::kinds::expressions::Admission;
use crate::kinds::rules::{At, Seen, distinct, selector};
use crate::kinds::shapes::{exactly_one_of, fully_qualified_name, texts, webhook_service, webhook_url};
use crate::object::names;
use crate::refusal::Causes;
use holdfast_value::Value;

pub(super) const FAILURE_POLICIES: &[&str] = &["Fail", "Ignore"];
pub(super) const REINVOCATION_POLICIES: &[&str] = &["IfNeeded", "Never"];
/// Supported AdmissionReview versions.
const REVIEW_VERSIONS: &[&str] = &["v1", "v1beta1"];
const NO_SIDE_EFFECTS: &[&str] = &["None", "NoneOnDryRun"];
const SIDE_EFFECTS: &[&str] = &["None", "NoneOnDryRun", "Some", "Unknown"];

/// Violations that the old object has, which an update may keep.
#[derive(Clone, Copy)]
struct Strictness {
    side_effects: &'static [&'static str],
    review_version: bool,
    unique_names: bool,
}

pub fn validating(new: &Value, old: Option<&Value>) -> Causes {
    configuration(new, old, false)
}

pub fn mutating(new: &Value, old: Option<&Value>) -> Causes {
    configuration(new, old, true)
}

fn configuration(new: &Value, old: Option<&Value>, mutating: bool) -> Causes {
    let mut causes = Causes::default();
    let root = At::root(new);
    let hooks = root.get("webhooks");
    let strict = strictness(old);
    if strict.unique_names {
        distinct(hooks, "name", &mut causes);
    }
    for (index, hook) in hooks.items().enumerate() {
        let before = old.map(|old| &old["webhooks"][index]["matchConditions"]);
        webhook(hook, strict, before, &mut causes);
        let policy = hook.get("reinvocationPolicy");
        if mutating && policy.is_set() {
            exactly_one_of(policy, REINVOCATION_POLICIES, &mut causes);
        }
    }
    causes
}

fn strictness(old: Option<&Value>) -> Strictness {
    let strict = Strictness { side_effects: NO_SIDE_EFFECTS, review_version: true, unique_names: true };
    let Some(old) = old else { return strict };
    let root = At::root(old);
    let hooks = root.get("webhooks");
    let mut seen = Seen::default();
    Strictness {
        side_effects: match hooks.items().all(|hook| NO_SIDE_EFFECTS.contains(&hook.get("sideEffects").text())) {
            true => NO_SIDE_EFFECTS,
            false => SIDE_EFFECTS,
        },
        review_version: hooks.items().all(|hook| speaks(hook.get("admissionReviewVersions"))),
        unique_names: !hooks.items().any(|hook| seen.again(hook.get("name").value)),
    }
}

fn speaks(versions: At) -> bool {
    versions.is_empty() || texts(versions).iter().any(|version| REVIEW_VERSIONS.contains(version))
}

fn webhook(hook: At, strict: Strictness, before: Option<&Value>, causes: &mut Causes) {
    fully_qualified_name(hook.get("name"), causes);
    for entry in hook.get("rules").items() {
        rule(entry, causes);
    }
    for (field, supported) in [("failurePolicy", FAILURE_POLICIES), ("matchPolicy", MATCH_POLICIES)] {
        if hook.get(field).is_set() {
            exactly_one_of(hook.get(field), supported, causes);
        }
    }
    let effects = hook.get("sideEffects");
    if effects.is_set() {
        exactly_one_of(effects, strict.side_effects, causes);
    } else {
        causes.push(effects.required(&format!("must specify one of {}", strict.side_effects.join(", "))));
    }
    let timeout = hook.get("timeoutSeconds");
    if timeout.number().is_some_and(|seconds| !(1..=30).contains(&seconds)) {
        causes.push(timeout.invalid("the timeout value must be between 1 and 30 seconds"));
    }
    selector(hook.get("namespaceSelector"), causes);
    selector(hook.get("objectSelector"), causes);
    let config = hook.get("clientConfig");
    let (url, service) = (config.get("url"), config.get("service"));
    match (url.is_set(), service.is_set()) {
        (true, false) => webhook_url(url, causes),
        (false, true) => webhook_service(service, causes),
        _ => causes.push(config.required("exactly one of url or service is required")),
    }
    let matching = hook.get("matchConditions");
    if before != Some(matching.value) {
        conditions(matching, &Admission::new(false), causes);
    }
    review_versions(hook.get("admissionReviewVersions"), strict.review_version, causes);
}

fn review_versions(versions: At, must_be_known: bool, causes: &mut Causes) {
    let known = REVIEW_VERSIONS.join(", ");
    if versions.is_empty() {
        causes.push(versions.required(&format!("must specify one of {known}")));
        return;
    }
    let mut seen = Seen::default();
    for version in versions.items() {
        if seen.again(version.value) {
            causes.push(version.invalid("duplicate version"));
        } else {
            causes.extend(names::label_1035(version.text()).iter().map(|message| version.invalid(message)));
        }
    }
    if must_be_known && !speaks(versions) {
        causes.push(versions.invalid(&format!("must include at least one of {known}")));
    }
}

#[cfg(test)]
mod tests {
    use crate::kinds::rules::testing::{check_rows, check_updates};
    use holdfast_value::{Value, json};

    fn good(kind: &str) -> Value {
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": "a"},
            "webhooks": [{
                "name": "check.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
                "clientConfig": {"service": {"name": "s", "namespace": "n", "path": "/check"}},
                "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}],
            }],
        })
    }

    #[test]
    fn webhooks() {
        let of = |rest: &str| format!("webhooks[0]{rest}");
        for kind in ["ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"] {
            let good = good(kind);
            let hook = good["webhooks"][0].clone();
            check_rows(
                &good,
                &[
                    ("/webhooks/0/name", json!(""), &of(".name: Required value")),
                    (
                        "/webhooks/0/name",
                        json!("check"),
                        &of(".name: Invalid value: \"check\": should be a domain with a"),
                    ),
                    ("/webhooks/1", hook, "webhooks[1].name: Duplicate value: \"check.example.com\""),
                    (
                        "/webhooks/0/clientConfig",
                        json!({}),
                        &of(".clientConfig: Required value: exactly one of url or s"),
                    ),
                    (
                        "/webhooks/0/clientConfig/url",
                        json!("https://h"),
                        &of(".clientConfig: Required value: exactly on"),
                    ),
                    (
                        "/webhooks/0/clientConfig",
                        json!({"url": "http://h"}),
                        &of(".clientConfig.url: Invalid value: \"http\": 'https' is the only allowed URL scheme"),
                    ),
                    (
                        "/webhooks/0/clientConfig/service/name",
                        json!(""),
                        &of(".clientConfig.service.name: Required value: service name is required"),
                    ),
                    (
                        "/webhooks/0/clientConfig/service/path",
                        json!("check"),
                        &of(".clientConfig.service.path: Invalid value: \"check\": must start with a '/'"),
                    ),
                    (
                        "/webhooks/0/sideEffects",
                        json!("Some"),
                        &of(".sideEffects: Unsupported value: \"Some\": supporte"),
                    ),
                    (
                        "/webhooks/0/sideEffects",
                        Value::Null,
                        &of(".sideEffects: Required value: must specify one of No"),
                    ),
                    (
                        "/webhooks/0/timeoutSeconds",
                        json!(0),
                        &of(".timeoutSeconds: Invalid value: 0: the timeout value"),
                    ),
                    (
                        "/webhooks/0/timeoutSeconds",
                        json!(31),
                        &of(".timeoutSeconds: Invalid value: 31: the timeout valu"),
                    ),
                    ("/webhooks/0/timeoutSeconds", json!(30), ""),
                    (
                        "/webhooks/0/failurePolicy",
                        json!("Retry"),
                        &of(".failurePolicy: Unsupported value: \"Retry\": sup"),
                    ),
                    (
                        "/webhooks/0/matchPolicy",
                        json!("Near"),
                        &of(".matchPolicy: Unsupported value: \"Near\": supporte"),
                    ),
                    (
                        "/webhooks/0/admissionReviewVersions",
                        json!([]),
                        &of(".admissionReviewVersions: Required value: mu"),
                    ),
                    (
                        "/webhooks/0/admissionReviewVersions",
                        json!(["v9"]),
                        &of(".admissionReviewVersions: Invalid value"),
                    ),
                    ("/webhooks/0/admissionReviewVersions", json!(["v9", "v1"]), ""),
                    (
                        "/webhooks/0/admissionReviewVersions",
                        json!(["v1", "v1"]),
                        &of(".admissionReviewVersions[1]: Invalid value: \"v1\": duplicate version"),
                    ),
                    (
                        "/webhooks/0/namespaceSelector",
                        json!({"matchLabels": {"a": "b c"}}),
                        &of(".namespaceSelector.matchLabels: Invalid value: \"b c\""),
                    ),
                    ("/webhooks/0/rules/0/operations", json!([]), &of(".rules[0].operations: Required value")),
                    (
                        "/webhooks/0/matchConditions",
                        json!([{"name": "a", "expression": " "}]),
                        &of(".matchConditions[0].expression: Required value"),
                    ),
                ],
            );
        }
        let policy =
            of(".reinvocationPolicy: Unsupported value: \"Always\": supported values: \"IfNeeded\", \"Never\"");
        let row = ("/webhooks/0/reinvocationPolicy", json!("Always"), policy.as_str());
        check_rows(&good("MutatingWebhookConfiguration"), &[row]);
    }

    #[test]
    fn what_was_let_through_once_stays() {
        let mut old = good("ValidatingWebhookConfiguration");
        old["webhooks"][0]["sideEffects"] = json!("Unknown");
        old["webhooks"][0]["admissionReviewVersions"] = json!(["v9"]);
        check_updates(
            &old,
            &[
                ("/webhooks/0/sideEffects", json!("Some"), ""),
                ("/webhooks/0/failurePolicy", json!("Ignore"), ""),
                ("/webhooks/0/sideEffects", json!("All"), "webhooks[0].sideEffects: Unsupported value: \"All\""),
            ],
        );
    }
}
