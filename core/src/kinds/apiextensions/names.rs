//! The accepted names of CustomResourceDefinitions, and their conditions.
//!
//! A name is a claim, so that two definitions never hold the same name. The conditions of the second definition report
//! the conflict. The second definition gets the name after the first definition is removed.

use super::approval::{self, approval};
use super::validate::{bundle_fault, structure_causes};
use crate::kinds::custom;
use crate::kinds::{Allocator, Claims};
use crate::object::meta::{self, Document, object_mut};
use crate::refusal::Causes;
use holdfast_value::{Value, json};
use std::collections::BTreeSet;

/// The finalizer that keeps a definition until its objects are deleted.
pub const FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

/// The name fields of a definition. Each row has the space of the claim, the field, and the reason of a conflict. In
/// each group, two definitions cannot have the same name in the same space.
const NAMES: [(&str, &str, &str); 5] = [
    ("resource", "plural", "PluralConflict"),
    ("resource", "singular", "SingularConflict"),
    ("resource", "shortNames", "ShortNamesConflict"),
    ("kind", "kind", "KindConflict"),
    ("kind", "listKind", "ListKindConflict"),
];

fn claim(space: &str, group: &str, name: &str) -> String {
    format!("custom-{space}/{group}/{name}")
}

fn texts(names: &Value, field: &str) -> Vec<String> {
    match &names[field] {
        Value::String(text) if !text.is_empty() => vec![text.to_string()],
        Value::Array(texts) => texts.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        _ => Vec::new(),
    }
}

/// The claims of a definition: its accepted names.
pub fn claims(definition: &Value) -> Vec<String> {
    let group = definition["spec"]["group"].as_str().unwrap_or_default();
    let names = &definition["status"]["acceptedNames"];
    let all = NAMES
        .iter()
        .flat_map(|(space, field, _)| texts(names, field).into_iter().map(move |name| claim(space, group, &name)));
    let distinct: BTreeSet<String> = all.collect();
    distinct.into_iter().collect()
}

/// Updates a definition's accepted names and conditions.
///
/// A definition with a conflicting name is stored nevertheless; its condition reports the conflict.
pub fn allocate(allocator: &Allocator, _: Option<&Value>, definition: &mut Value) -> Causes {
    let group = definition["spec"]["group"].as_str().unwrap_or_default().to_owned();
    let (accepted, conflict) = names(allocator, definition, &group);
    let now = allocator.stamp.rfc3339();
    let established = custom::holds(definition, "Established");
    let has_bad_bundle = bundle_fault(&definition["spec"]["conversion"]).is_some();
    let violations = violations(definition);
    let approved = approval(&group, &definition["metadata"]["annotations"]);
    let status = object_mut(meta::fields_mut(definition), "status");
    status.insert("acceptedNames", accepted.into());
    match &conflict {
        None => {
            set(status, &now, "NamesAccepted", true, "NoConflicts", "no conflicts found");
            if !established && has_bad_bundle {
                let why = "The conversion webhook CABundle is invalid";
                set(status, &now, "Established", false, "InvalidCABundle", why);
            } else if !established {
                let why = "the initial names have been accepted";
                set(status, &now, "Established", true, "InitialNamesAccepted", why);
            }
        }
        Some((reason, message)) => {
            set(status, &now, "NamesAccepted", false, reason, message);
            if !established {
                set(status, &now, "Established", false, "NotAccepted", "not all names are accepted");
            }
        }
    }
    if violations.is_empty() {
        unset(status, "NonStructuralSchema");
    } else {
        set(status, &now, "NonStructuralSchema", true, "Violations", &violations);
    }
    match approved {
        None => unset(status, "KubernetesAPIApprovalPolicyConformant"),
        Some((state, reason, message)) => {
            let holds = state == approval::State::Approved;
            set(status, &now, "KubernetesAPIApprovalPolicyConformant", holds, reason, &message);
        }
    }
    Causes::default()
}

/// The names that a definition gets, and the last conflict over a name that it does not get.
fn names(allocator: &Allocator, definition: &Value, group: &str) -> (Document, Option<(&'static str, String)>) {
    let wanted = &definition["spec"]["names"];
    let mut accepted = definition["status"]["acceptedNames"].as_object().cloned().unwrap_or_default();
    let mut conflict = None;
    for (space, field, reason) in NAMES {
        let names = texts(wanted, field);
        let taken: Vec<String> = names
            .iter()
            .filter(|name| !allocator.is_free(&claim(space, group, name)))
            .map(|name| format!("\"{name}\" is already in use"))
            .collect();
        if taken.is_empty() {
            put(&mut accepted, field, wanted.get(field));
        } else {
            conflict = Some((reason, taken.join(", ")));
        }
    }
    put(&mut accepted, "categories", wanted.get("categories"));
    // The schema requires these names, so they are present even if another definition has them.
    for field in ["plural", "kind"] {
        accepted.entry(field).or_insert_with(|| "".into());
    }
    (accepted, conflict)
}

/// The schema violations of a definition with `preserveUnknownFields`; empty for other definitions, whose schemas were
/// validated.
fn violations(definition: &Value) -> String {
    if definition["spec"]["preserveUnknownFields"] != true {
        return String::new();
    }
    let mut causes = vec!["spec.preserveUnknownFields: Invalid value: true: must be false".to_owned()];
    causes.extend(structure_causes(&definition["spec"]).iter().map(ToString::to_string));
    match causes.as_slice() {
        [one] => one.clone(),
        many => format!("[{}]", many.join(", ")),
    }
}

fn put(names: &mut Document, field: &str, value: Option<&Value>) {
    match value {
        Some(value) => _ = names.insert(field, value.clone()),
        None => _ = names.remove(field),
    }
}

/// Adds the finalizer that waits for the objects' deletion.
pub fn begin_delete(definition: &mut Document, now: &str) {
    let mut finalizers: Vec<String> = meta::finalizers(definition).into_iter().map(str::to_owned).collect();
    if !finalizers.iter().any(|finalizer| finalizer == FINALIZER) {
        finalizers.push(FINALIZER.into());
        meta::set_finalizers(definition, finalizers);
    }
    let why = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon";
    let status = object_mut(definition, "status");
    set(status, now, "Terminating", true, "InstanceDeletionPending", why);
}

/// The types of the conditions of a definition that the server sets.
const CONDITIONS: [&str; 5] =
    ["NamesAccepted", "Established", "NonStructuralSchema", "KubernetesAPIApprovalPolicyConformant", "Terminating"];

/// Sets `observedGeneration` in the status and in the server's conditions. Every write updates all of them.
pub fn observe(definition: &mut Document, generation: Option<i64>) {
    let Some(status) = definition.get_mut("status").and_then(Value::as_object_mut) else { return };
    let tell = |fields: &mut Document| match generation {
        Some(generation) => _ = fields.insert("observedGeneration", generation.into()),
        None => _ = fields.remove("observedGeneration"),
    };
    tell(status);
    let conditions = status.get_mut("conditions").and_then(Value::as_array_mut).into_iter().flatten();
    let own = conditions.filter(|condition| CONDITIONS.iter().any(|own| condition["type"] == *own));
    own.filter_map(Value::as_object_mut).for_each(tell);
}

/// Sets a condition. Its transition time changes only with its status.
fn set(status: &mut Document, now: &str, kind: &str, holds: bool, reason: &str, message: &str) {
    let list = status.entry("conditions").or_insert_with(|| json!([]));
    if !list.is_array() {
        *list = json!([]);
    }
    let Some(list) = list.as_array_mut() else { return };
    let holds = if holds { "True" } else { "False" };
    let known = list.iter().position(|condition| condition["type"] == kind);
    let since = known.map(|at| &list[at]).filter(|known| known["status"] == holds);
    let since = since.and_then(|known| known["lastTransitionTime"].as_str()).unwrap_or(now).to_owned();
    let condition =
        json!({"type": kind, "status": holds, "lastTransitionTime": since, "reason": reason, "message": message});
    match known {
        Some(at) => list[at] = condition,
        None => list.push(condition),
    }
}

fn unset(status: &mut Document, kind: &str) {
    if let Some(list) = status.get_mut("conditions").and_then(Value::as_array_mut) {
        list.retain(|condition| condition["type"] != kind);
    }
}

/// Whether all names in a definition's spec are free or already its own.
pub fn would_get_names(claims: &dyn Claims, owner: &str, definition: &Value) -> bool {
    let group = definition["spec"]["group"].as_str().unwrap_or_default();
    NAMES.iter().all(|(space, field, _)| {
        let mut names = texts(&definition["spec"]["names"], field).into_iter();
        names.all(|name| claims.claimant(&claim(space, group, &name)).is_none_or(|holder| **holder == *owner))
    })
}
