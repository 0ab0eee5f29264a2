//! Which users may make a policy read objects as its parameters.
//!
//! The values that expressions compute from parameters are shown to users whose writes the policy judges, and in the
//! audit log. So with a policy of their own, users could read any object that the policy reads. So the policy's author
//! must be allowed to read them.

use crate::authz::ResourceTarget;
use crate::authz::escalation::Grant;
use crate::refusal::{Refusal, quoted};
use holdfast_value::Value;

const ALL: &str = "*";

/// For a policy of either type: its bindings may refer to any object of the kind.
pub fn policy(grant: &Grant<'_>) -> Result<(), Refusal> {
    let wanted = |document: &Value| document["spec"]["paramKind"].clone();
    let kind = wanted(grant.new);
    if !kind.is_object() || !grant.subresource.is_empty() || grant.old.map(wanted).as_ref() == Some(&kind) {
        return Ok(());
    }
    let text = |field: &str| kind[field].as_str().unwrap_or_default();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    check(grant, "paramKind", (api_version, kind), ("get", ALL, ALL), |user| {
        format!(
            "user {user} must have \"get\" permission on all objects of the referenced paramKind (kind={kind}, \
             apiVersion={api_version})"
        )
    })
}

pub fn validating_binding(grant: &Grant<'_>) -> Result<(), Refusal> {
    binding(grant, |policy| grant.elsewhere.validating_parameters(policy))
}

pub fn mutating_binding(grant: &Grant<'_>) -> Result<(), Refusal> {
    binding(grant, |policy| grant.elsewhere.mutating_parameters(policy))
}

/// A binding reads the objects that it refers to, of the kind in its policy. If the policy does not exist yet, its kind
/// is unknown, so permission on all kinds is required.
fn binding<'a>(grant: &Grant<'a>, parameters: impl FnOnce(&str) -> Option<(&'a str, &'a str)>) -> Result<(), Refusal> {
    let wanted = |document: &Value| (document["spec"]["paramRef"].clone(), document["spec"]["policyName"].clone());
    let (reference, of) = wanted(grant.new);
    if !reference.is_object() || grant.old.map(wanted).is_some_and(|old| old == (reference.clone(), of.clone())) {
        return Ok(());
    }
    let text = |field: &str| reference[field].as_str().unwrap_or_default();
    let kind = parameters(of.as_str().unwrap_or_default()).unwrap_or((ALL, ALL));
    let (namespace, name) = (text("namespace"), text("name"));
    // Without a name a selector finds the objects, which needs `list`.
    let verb = if name.is_empty() { "list" } else { "get" };
    check(grant, "paramRef", kind, (verb, namespace, name), |user| {
        format!("user {user} does not have \"{verb}\" permission on the object referenced by paramRef")
    })
}

fn check(
    grant: &Grant<'_>,
    field: &str,
    (api_version, kind): (&str, &str),
    (verb, namespace, name): (&str, &str, &str),
    words: impl FnOnce(String) -> String,
) -> Result<(), Refusal> {
    let (group, version) = match api_version {
        ALL => (ALL, ALL),
        _ => api_version.split_once('/').unwrap_or(("", api_version)),
    };
    let resource = grant.elsewhere.resource(group, version, kind).unwrap_or(ALL);
    let target = ResourceTarget { group, version, resource, namespace, name, ..ResourceTarget::default() };
    let judged = grant.judged(verb, target);
    if judged.is_allowed() {
        return Ok(());
    }
    let why = judged.error().unwrap_or_else(|| words(quoted(&grant.user.name)));
    Err(grant.invalid(&format!("spec.{field}"), &why))
}
