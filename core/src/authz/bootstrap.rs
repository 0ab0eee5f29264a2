//! The default roles and bindings, and the update of an older store's roles and bindings when a server starts.
//!
//! The policy is data: `core/data/bootstrap-policy.txt`, whose head explains the format.

use super::aggregation::{ClusterRole, flattened, gathered};
use super::cover::uncovered;
use super::rule::{PolicyRule, compacted};
use super::table::{self, Block};
use holdfast_value::{Map, Value, json};
use imbl::OrdMap;
use std::sync::Arc;

const POLICY: &str = include_str!("../../data/bootstrap-policy.txt");
const GROUP: &str = "rbac.authorization.k8s.io";
const AUTOUPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";

/// Every default ClusterRole, ClusterRoleBinding, Role and RoleBinding, without UIDs and timestamps. Aggregated
/// ClusterRoles already contain the aggregated rules.
pub fn bootstrap_policy() -> Vec<Value> {
    let mut documents: Vec<Value> = table::blocks(POLICY).iter().flat_map(documents_of).collect();
    let cluster_roles: OrdMap<Arc<str>, Arc<ClusterRole>> = documents
        .iter()
        .filter(|document| document["kind"] == "ClusterRole")
        .map(|document| (Arc::from(text(&document["metadata"], "name")), Arc::new(ClusterRole::from_value(document))))
        .collect();
    for document in documents.iter_mut().filter(|document| document.get("aggregationRule").is_some()) {
        let rules = flattened(&gathered(text(&document["metadata"], "name"), &cluster_roles));
        document["rules"] = rules.iter().map(PolicyRule::to_value).collect();
    }
    documents
}

/// The object to write instead of `existing`, so that it grants at least the permissions of `wanted`; `None` if
/// `existing` already grants them, or if its annotation turns autoupdate off. Additions by users stay.
pub fn reconcile(existing: Option<&Value>, wanted: &Value) -> Option<Value> {
    let Some(existing) = existing else { return Some(wanted.clone()) };
    let autoupdate = existing.get("metadata").and_then(|metadata| metadata.get("annotations")?.get(AUTOUPDATE));
    if autoupdate.and_then(Value::as_str) == Some("false") {
        return None;
    }
    let mut result = existing.clone();
    add_missing_metadata(&mut result, wanted);
    if wanted.get("roleRef").is_some() {
        // The role of a binding is immutable, so a binding to another role is replaced.
        if role_ref(existing) != role_ref(wanted) {
            return Some(wanted.clone());
        }
        add_missing(&mut result, wanted, "subjects", |one, other| subject(one) == subject(other));
    } else if let Some(wanted_rule) = wanted.get("aggregationRule") {
        let rule = result.as_object_mut()?.entry("aggregationRule").or_insert_with(|| json!({}));
        add_missing(rule, wanted_rule, "clusterRoleSelectors", |one, other| one == other);
    } else {
        let missing = uncovered(&PolicyRule::list_from(existing), &PolicyRule::list_from(wanted));
        let missing: Vec<Value> = compacted(missing.rules).iter().map(PolicyRule::to_value).collect();
        append(&mut result, "rules", missing);
    }
    (result != *existing).then_some(result)
}

fn documents_of(block: &Block) -> Vec<Value> {
    let word = |at: usize| block.words[at].as_str();
    match word(0) {
        "clusterrole" => vec![role("ClusterRole", None, word(1), &block.words[2..], &block.lines)],
        "role" => vec![role("Role", Some(word(1)), word(2), &[], &block.lines)],
        "controller" => {
            let name = format!("system:controller:{}", word(1));
            let subjects = [format!("account=kube-system/{}", word(1))];
            vec![
                role("ClusterRole", None, &name, &[], &block.lines),
                binding("ClusterRoleBinding", None, &name, ("ClusterRole", &name), &subjects),
            ]
        }
        "clusterbinding" => {
            vec![binding("ClusterRoleBinding", None, word(1), ("ClusterRole", word(1)), &block.words[2..])]
        }
        "binding" => vec![binding("RoleBinding", Some(word(1)), word(2), ("Role", word(3)), &block.words[4..])],
        other => unreachable!("the policy table has no {other}"),
    }
}

fn role(kind: &str, namespace: Option<&str>, name: &str, labels: &[String], lines: &[Vec<String>]) -> Value {
    let mut document = document(kind, namespace, name);
    for label in labels {
        document["metadata"]["labels"][format!("{GROUP}/{label}")] = "true".into();
    }
    let gathered: Vec<&str> = lines.iter().filter(|line| line[0] == "gather").map(|line| line[1].as_str()).collect();
    let rules: Vec<Value> = lines.iter().filter(|line| line[0] != "gather").map(|line| rule(line).to_value()).collect();
    if !gathered.is_empty() {
        let selectors: Vec<Value> =
            gathered.iter().map(|label| json!({"matchLabels": {(format!("{GROUP}/{label}")): "true"}})).collect();
        document["aggregationRule"] = json!({"clusterRoleSelectors": selectors});
    }
    document["rules"] = rules.into();
    document
}

fn rule(line: &[String]) -> PolicyRule {
    let line = table::RuleLine::parse(line);
    let mut verbs = Vec::new();
    for verb in line.verbs {
        match verb.as_str() {
            "read" => verbs.extend(["get", "list", "watch"].map(str::to_owned)),
            "write" => verbs.extend(["create", "delete", "deletecollection", "patch", "update"].map(str::to_owned)),
            _ => verbs.push(verb),
        }
    }
    let sorted = |mut list: Vec<String>| {
        list.sort();
        list
    };
    PolicyRule {
        verbs: sorted(verbs),
        api_groups: sorted(line.groups),
        resources: sorted(line.resources),
        resource_names: sorted(line.names),
        non_resource_urls: sorted(line.paths),
    }
}

fn binding(kind: &str, namespace: Option<&str>, name: &str, role: (&str, &str), subjects: &[String]) -> Value {
    let mut document = document(kind, namespace, name);
    document["roleRef"] = json!({"apiGroup": GROUP, "kind": role.0, "name": role.1});
    if !subjects.is_empty() {
        let subjects = subjects.iter().map(|subject| match table::subject(subject) {
            ("user", name) => json!({"apiGroup": GROUP, "kind": "User", "name": name}),
            ("group", name) => json!({"apiGroup": GROUP, "kind": "Group", "name": name}),
            (_, account) => {
                let (namespace, name) = account.split_once('/').expect("accounts are namespace/name");
                json!({"kind": "ServiceAccount", "name": name, "namespace": namespace})
            }
        });
        document["subjects"] = subjects.collect();
    }
    document
}

fn document(kind: &str, namespace: Option<&str>, name: &str) -> Value {
    let mut metadata = json!({
        "name": name,
        "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
        "annotations": {AUTOUPDATE: "true"},
    });
    if let Some(namespace) = namespace {
        metadata["namespace"] = namespace.into();
    }
    json!({"apiVersion": format!("{GROUP}/v1"), "kind": kind, "metadata": metadata})
}

/// Adds the labels and annotations of `wanted` that the object lacks. Existing labels and annotations stay.
fn add_missing_metadata(result: &mut Value, wanted: &Value) {
    for part in ["labels", "annotations"] {
        let Some(wanted) = wanted.get("metadata").and_then(|metadata| metadata.get(part)?.as_object()) else {
            continue;
        };
        let Some(metadata) = result.get_mut("metadata").and_then(Value::as_object_mut) else { continue };
        let own = metadata.entry(part).or_insert_with(|| Value::Object(Map::new()));
        if own.is_null() {
            *own = json!({});
        }
        for (key, value) in wanted {
            if let Some(own) = own.as_object_mut() {
                own.entry(key.clone()).or_insert_with(|| value.clone());
            }
        }
    }
}

fn add_missing(result: &mut Value, wanted: &Value, list: &str, same: fn(&Value, &Value) -> bool) {
    let items = |value: &Value| value.get(list).and_then(Value::as_array).cloned().unwrap_or_default();
    let own = items(result);
    let missing = items(wanted).into_iter().filter(|item| !own.iter().any(|known| same(known, item))).collect();
    append(result, list, missing);
}

fn append(result: &mut Value, list: &str, items: Vec<Value>) {
    if items.is_empty() {
        return;
    }
    match result.get_mut(list).and_then(Value::as_array_mut) {
        Some(own) => own.extend(items),
        None => result[list] = items.into(),
    }
}

fn role_ref(binding: &Value) -> [&str; 3] {
    ["apiGroup", "kind", "name"].map(|key| text(&binding["roleRef"], key))
}

/// A user or group without an apiGroup has RBAC's group, the only group that defines these subjects.
fn subject(subject: &Value) -> [&str; 4] {
    let kind = text(subject, "kind");
    let group = match text(subject, "apiGroup") {
        "" if kind != "ServiceAccount" => GROUP,
        group => group,
    };
    [group, kind, text(subject, "namespace"), text(subject, "name")]
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
#[path = "bootstrap_tests.rs"]
mod tests;
