//! Validation of flow schemas and priority levels. Clients cannot change the spec of the mandatory objects, except
//! `spec.exempt` of the priority level `exempt`.

use crate::authz::bootstrap_objects::bootstrap_objects;
use crate::kinds::rules::{At, Seen, named, need, need_name, same};
use crate::kinds::shapes::{at_least, count, exactly_one_of, no_more_than, positive, texts};
use crate::object::names;
use crate::refusal::{Cause, Causes};
use holdfast_value::Value;
use std::sync::LazyLock;

const MANDATORY: &[&str] = &["catch-all", "exempt"];
const PRECEDENCE_MAX: i64 = 10_000;
const QUEUES_MAX: i64 = 10_000_000;
/// The number of bits of the hash that selects a flow's queues.
const HASH_BITS: u32 = 60;
const VERBS: &[&str] = &["create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"];

pub fn schema(new: &Value, _: Option<&Value>) -> Causes {
    let mut causes = Causes::default();
    let root = At::root(new);
    let spec = root.get("spec");
    let precedence = spec.get("matchingPrecedence");
    positive(precedence, "must be a positive value", &mut causes);
    no_more_than(precedence, PRECEDENCE_MAX, &format!("must not be greater than {PRECEDENCE_MAX}"), &mut causes);
    if precedence.number() == Some(1) && new["metadata"]["name"] != "exempt" {
        causes.push(precedence.invalid("only the schema named 'exempt' may have matchingPrecedence 1"));
    }
    let method = spec.get("distinguisherMethod");
    if method.is_set() && !matches!(method.get("type").text(), "ByNamespace" | "ByUser") {
        let ty = method.get("type");
        causes.push(ty.holding(method.value).not_supported(&["ByNamespace", "ByUser"]));
    }
    let level = spec.get("priorityLevelConfiguration");
    let name = level.get("name");
    if name.is_empty() {
        causes.push(name.required("must reference a priority level"));
    } else {
        named(name, names::subdomain, &mut causes);
    }
    for rule in spec.get("rules").items() {
        rules(rule, &mut causes);
    }
    fixed(root, "FlowSchema", &mut causes);
    causes
}

fn rules(rule: At, causes: &mut Causes) {
    let (subjects, resources, urls) = (rule.get("subjects"), rule.get("resourceRules"), rule.get("nonResourceRules"));
    if subjects.is_empty() {
        causes.push(subjects.required("subjects must contain at least one value"));
    }
    for entry in subjects.items() {
        subject(entry, causes);
    }
    if resources.is_empty() && urls.is_empty() {
        causes.push(rule.required("at least one of resourceRules and nonResourceRules has to be non-empty"));
    }
    for entry in resources.items() {
        verbs(entry.get("verbs"), causes);
        wildcard(entry.get("apiGroups"), "resource rules must supply at least one api group", "api groups", causes);
        wildcard(entry.get("resources"), "resource rules must supply at least one resource", "resources", causes);
        let namespaces = entry.get("namespaces");
        if namespaces.is_empty() && !entry.get("clusterScope").is_true() {
            let detail = "resource rules that are not cluster scoped must supply at least one namespace";
            causes.push(namespaces.required(detail));
        } else if all_or_some(namespaces, "namespaces", causes) {
            for namespace in namespaces.items() {
                let intro = "each member of this list must be '*' or a DNS-1123 label; ";
                let messages = names::label(namespace.text());
                causes.extend(
                    messages.iter().map(|message| Cause::from(namespace.invalid(&format!("{intro}{message}")))),
                );
            }
        }
    }
    for entry in urls.items() {
        verbs(entry.get("verbs"), causes);
        let paths = entry.get("nonResourceURLs");
        if paths.is_empty() {
            causes.push(paths.required("nonResourceURLs must contain at least one value"));
        } else if all_or_some(paths, "non-resource URLs", causes) {
            causes.extend(paths.items().filter_map(|path| path_fault(path.text()).map(|fault| path.invalid(fault))));
        }
    }
}

fn verbs(list: At, causes: &mut Causes) {
    if list.is_empty() {
        causes.push(list.required("verbs must contain at least one value"));
    } else if all_or_some(list, "verbs", causes) && !texts(list).iter().all(|verb| VERBS.contains(verb)) {
        causes.push(list.not_supported(VERBS));
    }
}

fn wildcard(list: At, missing: &str, what: &str, causes: &mut Causes) {
    if list.is_empty() {
        causes.push(list.required(missing));
    }
    all_or_some(list, what, causes);
}

/// Checks that `*`, if present, is the only item of the list. Returns whether the list has no `*`.
fn all_or_some(list: At, what: &str, causes: &mut Causes) -> bool {
    let all = texts(list).contains("*");
    if all && count(list) > 1 {
        causes.push(list.invalid(&format!("if '*' is present, must not specify other {what}")));
    }
    !all
}

fn path_fault(path: &str) -> Option<&'static str> {
    let stars = path.matches('*').count();
    match path {
        "" => Some("must not be empty"),
        "/" => None,
        _ if !path.starts_with('/') => Some("must start with slash"),
        _ if path.contains(' ') => Some("must not contain white-space"),
        _ if path.contains("//") => Some("must not contain double slash"),
        _ if stars > 1 || (stars == 1 && !path.ends_with("/*")) => Some("wildcard can only do suffix matching"),
        _ => None,
    }
}

fn subject(subject: At, causes: &mut Causes) {
    const KINDS: &[(&str, &str)] = &[("Group", "group"), ("ServiceAccount", "serviceAccount"), ("User", "user")];
    let kind = subject.get("kind");
    if !KINDS.iter().any(|(known, _)| *known == kind.text()) {
        causes.push(kind.not_supported(&["Group", "ServiceAccount", "User"]));
        return;
    }
    for (known, field) in KINDS {
        let at = subject.get(field);
        match (*known == kind.text(), at.is_set()) {
            (false, true) => {
                causes.push(at.forbidden(&format!("{field} is forbidden when subject kind is not '{known}'")));
            }
            (true, false) => causes.push(at.required(&format!("{field} is required when subject kind is '{known}'"))),
            (true, true) if *known == "ServiceAccount" => account(at, causes),
            (true, true) => need(at.get("name"), causes),
            (false, false) => {}
        }
    }
}

fn account(at: At, causes: &mut Causes) {
    let (name, namespace) = (at.get("name"), at.get("namespace"));
    if name.text() != "*" {
        need_name(name, names::subdomain, causes);
    }
    if namespace.is_empty() {
        causes.push(namespace.required("must specify namespace for service account"));
    } else {
        named(namespace, names::label, causes);
    }
}

pub fn level(new: &Value, _: Option<&Value>) -> Causes {
    let mut causes = Causes::default();
    let root = At::root(new);
    let spec = root.get("spec");
    let (ty, limited, exempt) = (spec.get("type"), spec.get("limited"), spec.get("exempt"));
    if (new["metadata"]["name"] == "exempt") != (ty.text() == "Exempt") {
        let text = Value::from(ty.text());
        causes.push(ty.holding(&text).invalid("must be 'Exempt' if and only if `name` is 'exempt'"));
    }
    match ty.text() {
        "Exempt" => {
            if limited.is_set() {
                causes.push(limited.forbidden("must be nil if the type is not Limited"));
            }
            shares(exempt, &mut causes);
        }
        "Limited" => {
            if exempt.is_set() {
                causes.push(exempt.forbidden("must be nil if the type is Limited"));
            }
            if !limited.is_set() {
                causes.push(limited.required("must not be empty when type is Limited"));
            } else {
                shares(limited, &mut causes);
                let borrowed = limited.get("borrowingLimitPercent");
                at_least(borrowed, 0, "if specified, must be a non-negative integer", &mut causes);
                response(limited.get("limitResponse"), &mut causes);
            }
        }
        _ => exactly_one_of(ty, &["Exempt", "Limited"], &mut causes),
    }
    fixed(root, "PriorityLevelConfiguration", &mut causes);
    causes
}

fn shares(at: At, causes: &mut Causes) {
    at_least(at.get("nominalConcurrencyShares"), 0, "must be a non-negative integer", causes);
    let lent = at.get("lendablePercent");
    if lent.number().is_some_and(|percent| !(0..=100).contains(&percent)) {
        causes.push(lent.invalid("must be between 0 and 100, inclusive"));
    }
}

fn response(response: At, causes: &mut Causes) {
    let (ty, queuing) = (response.get("type"), response.get("queuing"));
    match ty.text() {
        "Reject" if queuing.is_set() => {
            causes.push(queuing.forbidden("must be nil if limited.limitResponse.type is not Limited"));
        }
        "Reject" => {}
        "Queue" if !queuing.is_set() => {
            causes.push(queuing.required("must not be empty if limited.limitResponse.type is Limited"));
        }
        "Queue" => queues(queuing, causes),
        _ => causes.push(ty.not_supported(&["Queue", "Reject"])),
    }
}

fn queues(queuing: At, causes: &mut Causes) {
    let (queues, hand) = (queuing.get("queues"), queuing.get("handSize"));
    positive(queuing.get("queueLengthLimit"), "must be positive", causes);
    positive(queues, "must be positive", causes);
    no_more_than(queues, QUEUES_MAX, &format!("must not be greater than {QUEUES_MAX}"), causes);
    positive(hand, "must be positive", causes);
    let (deck, size) = (queues.number().unwrap_or(0), hand.number().unwrap_or(0));
    if size <= 0 {
        return;
    }
    if size > deck {
        causes.push(hand.invalid(&format!("should not be greater than queues ({deck})")));
    } else if deals(deck, size).is_none_or(|deals| deals > 1 << HASH_BITS) {
        let detail = format!(
            "required entropy bits of deckSize {deck} and handSize {size} should not be greater than {HASH_BITS}"
        );
        causes.push(hand.invalid(&detail));
    }
}

/// An upper bound for the number of different hands of queues that can be dealt; `None` if it overflows.
fn deals(deck: i64, hand: i64) -> Option<u128> {
    u128::try_from(deck).ok()?.checked_pow(u32::try_from(hand).ok()?)
}

/// Validates the status of a flow schema or a priority level.
pub fn status(new: &Value, _: Option<&Value>) -> Causes {
    let mut causes = Causes::default();
    let root = At::root(new);
    let status = root.get("status");
    let mut seen = Seen::default();
    for condition in status.get("conditions").items() {
        let ty = condition.get("type");
        if seen.again(&Value::from(ty.text())) {
            causes.push(Cause::duplicate(ty.path(), &Value::from(ty.text())));
        }
        if ty.is_empty() {
            causes.push(ty.required(""));
        }
    }
    causes
}

/// Reports a mandatory object whose spec differs from the required spec. The field `exempt` of the level `exempt` may
/// differ.
fn fixed(root: At, kind: &str, causes: &mut Causes) {
    static OBJECTS: LazyLock<Vec<Value>> = LazyLock::new(|| {
        let mandatory =
            |object: &Value| object["metadata"]["name"].as_str().is_some_and(|name| MANDATORY.contains(&name));
        bootstrap_objects().into_iter().filter(mandatory).collect()
    });
    let name = &root.value["metadata"]["name"];
    let Some(wanted) = OBJECTS.iter().find(|one| one["kind"] == kind && &one["metadata"]["name"] == name) else {
        return;
    };
    let spec = root.get("spec");
    let (mut found, mut wanted) = (spec.value.clone(), wanted["spec"].clone());
    let mut free = "";
    if kind == "PriorityLevelConfiguration" && name == "exempt" {
        found["exempt"] = Value::Null;
        wanted["exempt"] = Value::Null;
        free = " except the 'spec.exempt' field";
    }
    if !same(&found, &wanted) {
        let name = name.as_str().unwrap_or("");
        causes.push(spec.invalid(&format!("spec of '{name}'{free} must equal the fixed value")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::rules::testing::{check_part, check_rows};
    use holdfast_value::json;

    #[test]
    fn schemas() {
        let rule = json!({
            "subjects": [{"kind": "User", "user": {"name": "u"}}],
            "resourceRules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "namespaces": ["*"]}],
        });
        let good = json!({
            "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "FlowSchema", "metadata": {"name": "a"},
            "spec": {"priorityLevelConfiguration": {"name": "l"}, "rules": [rule]},
        });
        let resource = "spec.rules[0].resourceRules[0]";
        let of = |rest: &str| format!("{resource}{rest}");
        let urls = |path: &str| json!([{"verbs": ["*"], "nonResourceURLs": [path]}]);
        let url = "spec.rules[0].nonResourceRules[0].nonResourceURLs[0]: Invalid value: ";
        check_rows(
            &good,
            &[
                (
                    "/spec/matchingPrecedence",
                    json!(-1),
                    "spec.matchingPrecedence: Invalid value: -1: must be a positive",
                ),
                (
                    "/spec/matchingPrecedence",
                    json!(10_001),
                    "spec.matchingPrecedence: Invalid value: 10001: must not be",
                ),
                (
                    "/spec/matchingPrecedence",
                    json!(1),
                    "spec.matchingPrecedence: Invalid value: 1: only the schema name",
                ),
                (
                    "/spec/priorityLevelConfiguration",
                    json!({}),
                    "spec.priorityLevelConfiguration.name: Required value: m",
                ),
                (
                    "/spec/distinguisherMethod",
                    json!({"type": "X"}),
                    "spec.distinguisherMethod.type: Unsupported value: {",
                ),
                (
                    "/spec/rules/0/subjects",
                    json!([]),
                    "spec.rules[0].subjects: Required value: subjects must contain at",
                ),
                (
                    "/spec/rules/0/subjects/0/group",
                    json!({"name": "g"}),
                    "spec.rules[0].subjects[0].group: Forbidden: gr",
                ),
                (
                    "/spec/rules/0/subjects/0/user",
                    Value::Null,
                    "spec.rules[0].subjects[0].user: Required value: user is",
                ),
                (
                    "/spec/rules/0/subjects/0/kind",
                    json!("Robot"),
                    "spec.rules[0].subjects[0].kind: Unsupported value: ",
                ),
                (
                    "/spec/rules/0/resourceRules",
                    json!([]),
                    "spec.rules[0]: Required value: at least one of resourceRule",
                ),
                (
                    "/spec/rules/0/resourceRules/0/verbs",
                    json!(["read"]),
                    &of(".verbs: Unsupported value: [\"read\"]: su"),
                ),
                (
                    "/spec/rules/0/resourceRules/0/verbs",
                    json!(["*", "get"]),
                    &of(".verbs: Invalid value: [\"*\",\"get\"]"),
                ),
                (
                    "/spec/rules/0/resourceRules/0/apiGroups",
                    json!([]),
                    &of(".apiGroups: Required value: resource rules"),
                ),
                (
                    "/spec/rules/0/resourceRules/0/namespaces",
                    json!([]),
                    &of(".namespaces: Required value: resource rule"),
                ),
                (
                    "/spec/rules/0/resourceRules/0/namespaces/0",
                    json!("A"),
                    &of(".namespaces[0]: Invalid value: \"A\": each"),
                ),
                ("/spec/rules/0/nonResourceRules", urls("a"), &format!("{url}\"a\": must start with slash")),
                (
                    "/spec/rules/0/nonResourceRules",
                    urls("/a//b"),
                    &format!("{url}\"/a//b\": must not contain double sla"),
                ),
                (
                    "/spec/rules/0/nonResourceRules",
                    urls("/a*"),
                    &format!("{url}\"/a*\": wildcard can only do suffix mat"),
                ),
                ("/spec/rules/0/nonResourceRules", urls("/a/*"), ""),
            ],
        );
        let twice = json!([{"type": "Dangling"}, {"type": "Dangling"}]);
        let fault = "status.conditions[1].type: Duplicate value: \"Dangling\"";
        check_part(&good, "status", &[("/status/conditions", twice, fault)]);
    }

    #[test]
    fn levels() {
        let good = json!({
            "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "PriorityLevelConfiguration",
            "metadata": {"name": "a"},
            "spec": {"type": "Limited", "limited": {"limitResponse": {"type": "Queue", "queuing": {}}}},
        });
        let queuing = "spec.limited.limitResponse.queuing";
        let of = |rest: &str| format!("{queuing}{rest}");
        check_rows(
            &good,
            &[
                ("/spec/type", json!("Exempt"), "spec.type: Invalid value: \"Exempt\": must be 'Exempt' if and only"),
                (
                    "/spec/type",
                    json!("Free"),
                    "spec.type: Unsupported value: \"Free\": supported values: \"Exempt\", \"Li",
                ),
                ("/spec/limited", Value::Null, "spec.limited: Required value: must not be empty when type is Limited"),
                ("/spec/exempt", json!({}), "spec.exempt: Forbidden: must be nil if the type is Limited"),
                (
                    "/spec/limited/nominalConcurrencyShares",
                    json!(-1),
                    "spec.limited.nominalConcurrencyShares: Invalid v",
                ),
                ("/spec/limited/nominalConcurrencyShares", json!(0), ""),
                (
                    "/spec/limited/lendablePercent",
                    json!(101),
                    "spec.limited.lendablePercent: Invalid value: 101: must b",
                ),
                (
                    "/spec/limited/borrowingLimitPercent",
                    json!(-1),
                    "spec.limited.borrowingLimitPercent: Invalid value: ",
                ),
                (
                    "/spec/limited/limitResponse/type",
                    json!("Reject"),
                    &of(": Forbidden: must be nil if limited.limitRes"),
                ),
                (
                    "/spec/limited/limitResponse/type",
                    json!("Drop"),
                    "spec.limited.limitResponse.type: Unsupported value",
                ),
                (
                    "/spec/limited/limitResponse/queuing",
                    Value::Null,
                    &of(": Required value: must not be empty if limite"),
                ),
                (
                    "/spec/limited/limitResponse/queuing/queues",
                    json!(-1),
                    &of(".queues: Invalid value: -1: must be posi"),
                ),
                (
                    "/spec/limited/limitResponse/queuing/queues",
                    json!(4),
                    &of(".handSize: Invalid value: 8: should not b"),
                ),
                ("/spec/limited/limitResponse/queuing/handSize", json!(10), ""),
                (
                    "/spec/limited/limitResponse/queuing/handSize",
                    json!(11),
                    &of(
                        ".handSize: Invalid value: 11: required entropy bits of deckSize 64 and handSize 11 should not",
                    ),
                ),
            ],
        );
    }

    #[test]
    fn the_mandatory_ones_stay() {
        let find = |kind: &str, name: &str| {
            let mut all = bootstrap_objects().into_iter();
            all.find(|one| one["kind"] == kind && one["metadata"]["name"] == name).expect("a mandatory object")
        };
        check_rows(
            &find("FlowSchema", "catch-all"),
            &[("/spec/matchingPrecedence", json!(9999), "spec: Invalid value: {")],
        );
        check_rows(
            &find("PriorityLevelConfiguration", "catch-all"),
            &[("/spec/limited/nominalConcurrencyShares", json!(6), "spec: Invalid value: {")],
        );
        check_rows(
            &find("PriorityLevelConfiguration", "exempt"),
            &[
                ("/spec/exempt/nominalConcurrencyShares", json!(10), ""),
                (
                    "/spec/exempt/lendablePercent",
                    json!(101),
                    "spec.exempt.lendablePercent: Invalid value: 101: must be b",
                ),
            ],
        );
    }
}
