//! Validation of a job's policies for failure, replacement and success.

use super::indexes;
use crate::kinds::rules::{At, Seen, not_negative};
use crate::kinds::shapes::{at_most, count, no_more_than, not_longer, qualified, without_value};
use crate::refusal::Causes;
use holdfast_value::Value;
use std::collections::BTreeSet;

const ACTIONS: &[&str] = &["Count", "FailIndex", "FailJob", "Ignore"];
const OPERATORS: &[&str] = &["In", "NotIn"];
const STATUSES: &[&str] = &["False", "True", "Unknown"];
const RULES_MAX: usize = 20;
const EXIT_CODES_MAX: usize = 255;
const PATTERNS_MAX: usize = 20;
const INDEXES_BYTES_MAX: usize = 64 * 1024;

/// Validates `podFailurePolicy` of a job.
pub(super) fn failure(spec: At, causes: &mut Causes) {
    let policy = spec.get("podFailurePolicy");
    let rules = policy.get("rules");
    let pods = &spec.value["template"]["spec"];
    let containers: BTreeSet<&str> = ["containers", "initContainers"]
        .into_iter()
        .flat_map(|field| pods[field].as_array().into_iter().flatten())
        .filter_map(|container| container["name"].as_str())
        .collect();
    at_most(rules, RULES_MAX, causes);
    for rule in rules.items() {
        let action = rule.get("action");
        if action.text() == "FailIndex" {
            if !spec.get("backoffLimitPerIndex").is_set() {
                causes.push(action.invalid("requires the backoffLimitPerIndex to be set"));
            }
        } else {
            choice(action, ACTIONS, causes);
        }
        let (codes, conditions) = (rule.get("onExitCodes"), rule.get("onPodConditions"));
        if codes.is_set() {
            exit_codes(codes, &containers, causes);
        }
        at_most(conditions, PATTERNS_MAX, causes);
        for pattern in conditions.items() {
            qualified(pattern.get("type"), causes);
            choice(pattern.get("status"), STATUSES, causes);
        }
        match (codes.is_set(), conditions.is_empty()) {
            (true, false) => {
                let detail = "specifying both OnExitCodes and OnPodConditions is not supported";
                causes.push(without_value(rule, detail));
            }
            (false, true) => {
                let detail = "specifying one of OnExitCodes and OnPodConditions is required";
                causes.push(without_value(rule, detail));
            }
            _ => {}
        }
    }
}

fn exit_codes(at: At, containers: &BTreeSet<&str>, causes: &mut Causes) {
    let operator = at.get("operator");
    choice(operator, OPERATORS, causes);
    let container = at.get("containerName");
    if container.is_set() && !containers.contains(container.text()) {
        causes.push(container.invalid("must be one of the container or initContainer names in the pod template"));
    }
    let values = at.get("values");
    if values.is_empty() {
        causes.push(values.invalid("at least one value is required"));
    }
    at_most(values, EXIT_CODES_MAX, causes);
    let mut seen = Seen::default();
    let mut ordered = true;
    let mut last = i64::MIN;
    for value in values.items() {
        let code = value.number().unwrap_or(0);
        if operator.text() == "In" && code == 0 {
            causes.push(value.invalid("must not be 0 for the In operator"));
        }
        if seen.again(value.value) {
            causes.push(value.duplicate());
        }
        ordered &= last <= code;
        last = code;
    }
    if !ordered {
        causes.push(values.invalid("must be ordered"));
    }
}

/// Checks a required enum. The messages list the supported values.
fn choice(at: At, supported: &[&str], causes: &mut Causes) {
    if at.is_empty() {
        let words: Vec<String> = supported.iter().map(|word| Value::from(*word).to_string()).collect();
        causes.push(at.required(&format!("valid values: [{}]", words.join(" "))));
    } else if !supported.contains(&at.text()) {
        causes.push(at.not_supported(supported));
    }
}

/// Validates `podReplacementPolicy` of a job.
pub(super) fn replacement(spec: At, causes: &mut Causes) {
    let at = spec.get("podReplacementPolicy");
    let supported: &[&str] =
        if spec.get("podFailurePolicy").is_set() { &["Failed"] } else { &["Failed", "TerminatingOrFailed"] };
    if at.is_set() && !supported.contains(&at.text()) {
        causes.push(at.not_supported(supported));
    }
}

/// Validates `successPolicy` of a job.
pub(super) fn success(spec: At, causes: &mut Causes) {
    let policy = spec.get("successPolicy");
    if spec.get("completionMode").text() != "Indexed" {
        causes.push(policy.invalid("requires indexed completion mode"));
        return;
    }
    let rules = policy.get("rules");
    let completions = spec.get("completions").number().unwrap_or(0);
    if count(rules) == 0 {
        causes.push(rules.required("at least one rules must be specified when the successPolicy is specified"));
    }
    at_most(rules, RULES_MAX, causes);
    for rule in rules.items() {
        let (number, list) = (rule.get("succeededCount"), rule.get("succeededIndexes"));
        if !number.is_set() && !list.is_set() {
            causes.push(rule.required("at least one of succeededCount or succeededIndexes must be specified"));
        }
        not_longer(list, INDEXES_BYTES_MAX, causes);
        let listed = indexes::count(list.text(), completions);
        if let Err(fault) = &listed {
            causes.push(list.invalid(&format!("error parsing succeededIndexes: {fault}")));
        }
        not_negative(number, causes);
        let detail = format!("must be less than or equal to {completions} (the number of specified completions)");
        no_more_than(number, completions, &detail, causes);
        if list.is_set() {
            let listed = listed.unwrap_or(0);
            let detail = format!(
                "must be less than or equal to {listed} (the number of indexes in the specified succeededIndexes field)"
            );
            no_more_than(number, listed, &detail, causes);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::kinds::rules::testing::check_rows;
    use holdfast_value::{Value, json};

    fn job() -> Value {
        let pods = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "a:1"}]}});
        json!({
            "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a"},
            "spec": {
                "manualSelector": true, "selector": {"matchLabels": {"a": "b"}}, "template": pods,
                "completionMode": "Indexed", "completions": 10, "parallelism": 10,
            },
        })
    }

    #[test]
    fn policies_for_failed_pods() {
        let mut good = job();
        good["spec"]["template"]["metadata"] = json!({"labels": {"a": "b"}});
        let codes = json!({"operator": "In", "values": [1, 2]});
        good["spec"]["podFailurePolicy"] = json!({"rules": [{"action": "FailJob", "onExitCodes": codes}]});
        let rule = "spec.podFailurePolicy.rules[0]";
        let of = |rest: &str| format!("{rule}{rest}");
        check_rows(
            &good,
            &[
                (
                    "/spec/podFailurePolicy/rules/0/action",
                    json!(""),
                    &of(".action: Required value: valid values: [\"Count\" \"FailIndex\" \"FailJob\" \"Ignore\"]"),
                ),
                (
                    "/spec/podFailurePolicy/rules/0/action",
                    json!("Go"),
                    &of(".action: Unsupported value: \"Go\": suppo"),
                ),
                (
                    "/spec/podFailurePolicy/rules/0/action",
                    json!("FailIndex"),
                    &of(".action: Invalid value: \"FailIndex\": requires the backoffLimitPerIndex to be set"),
                ),
                (
                    "/spec/podFailurePolicy/rules/0/onExitCodes/values",
                    json!([0, 1]),
                    &of(".onExitCodes.values[0]: Invalid value: 0: must not be 0 for the In operator"),
                ),
                (
                    "/spec/podFailurePolicy/rules/0/onExitCodes/values",
                    json!([2, 1]),
                    &of(".onExitCodes.values: Invalid value: [2,1]: must be ordered"),
                ),
                (
                    "/spec/podFailurePolicy/rules/0/onExitCodes/values",
                    json!([1, 1]),
                    &of(".onExitCodes.values[1]: Duplicate value: 1"),
                ),
                (
                    "/spec/podFailurePolicy/rules/0/onExitCodes/values",
                    json!([]),
                    &of(".onExitCodes.values: Invalid value: []: at least one value is required"),
                ),
                (
                    "/spec/podFailurePolicy/rules/0/onExitCodes/values",
                    json!((1..=256).collect::<Vec<_>>()),
                    &of(".onExitCodes.values: Too many: 256: must have at most 255 items"),
                ),
                (
                    "/spec/podFailurePolicy/rules/0/onExitCodes/containerName",
                    json!("b"),
                    &of(
                        ".onExitCodes.containerName: Invalid value: \"b\": must be one of the container or initContain",
                    ),
                ),
                (
                    "/spec/podFailurePolicy/rules/0/onExitCodes/operator",
                    json!("Is"),
                    &of(".onExitCodes.operator: Unsupported value: \"Is\": supported values: \"In\", \"NotIn\""),
                ),
                (
                    "/spec/podFailurePolicy/rules/0/onPodConditions",
                    json!([{"type": "Ready"}]),
                    &of(": Invalid value: specifying both OnExitCodes and OnPodConditions is not supported"),
                ),
                (
                    "/spec/podFailurePolicy/rules/0/onExitCodes",
                    Value::Null,
                    &of(": Invalid value: specifying one of OnExitCodes and OnPodConditions is required"),
                ),
                (
                    "/spec/podFailurePolicy/rules/0",
                    json!({"action": "Count", "onPodConditions": [{"type": "Ready", "status": "No"}]}),
                    &of(".onPodConditions[0].status: Unsupported value: \"No\": supported values: \"False\", \"True\""),
                ),
                (
                    "/spec/podReplacementPolicy",
                    json!("TerminatingOrFailed"),
                    "spec.podReplacementPolicy: Unsupported value: \"TerminatingOrFailed\": supported values: \"Failed\"",
                ),
                (
                    "/spec/template/spec/restartPolicy",
                    json!("OnFailure"),
                    "spec.template.spec.restartPolicy: Invalid value: \"OnFailure\": only \"Never\" is supported when pod",
                ),
            ],
        );
    }

    #[test]
    fn policies_for_success() {
        let mut good = job();
        good["spec"]["template"]["metadata"] = json!({"labels": {"a": "b"}});
        good["spec"]["successPolicy"] = json!({"rules": [{"succeededIndexes": "0-3", "succeededCount": 2}]});
        let rule = "spec.successPolicy.rules[0]";
        check_rows(
            &good,
            &[
                (
                    "/spec/successPolicy/rules",
                    json!([]),
                    "spec.successPolicy.rules: Required value: at least one rules must be specified when the successPol",
                ),
                (
                    "/spec/successPolicy/rules/0",
                    json!({}),
                    &format!("{rule}: Required value: at least one of succeededCount or succeededIndexes must be spec"),
                ),
                (
                    "/spec/successPolicy/rules/0/succeededCount",
                    json!(5),
                    &format!(
                        "{rule}.succeededCount: Invalid value: 5: must be less than or equal to 4 (the number of i"
                    ),
                ),
                (
                    "/spec/successPolicy/rules/0/succeededCount",
                    json!(11),
                    &format!(
                        "{rule}.succeededCount: Invalid value: 11: must be less than or equal to 10 (the number of"
                    ),
                ),
                (
                    "/spec/successPolicy/rules/0/succeededIndexes",
                    json!("3-1"),
                    &format!(
                        "{rule}.succeededIndexes: Invalid value: \"3-1\": error parsing succeededIndexes: non-incr"
                    ),
                ),
                ("/spec/completionMode", json!("NonIndexed"), "spec.successPolicy: Invalid value: {\"rules\":"),
            ],
        );
    }
}
