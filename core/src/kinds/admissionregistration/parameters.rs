//! Checks that a user who writes a policy or a binding may read the parameters of the policy.
//!
//! The values that expressions compute from parameters are shown to users whose writes the policy judges, and in the
//! audit log. Without this check, users could write a policy of their own to read any object as a parameter. So the
//! author of a policy or a binding needs permission to read the parameters.

use crate::authz::ResourceTarget;
use crate::authz::escalation::Grant;
use crate::refusal::{Refusal, quoted};
use holdfast_value::Value;

const ALL: &str = "*";

/// Checks a policy of either type. Its bindings may refer to any object of the parameters' kind, so the user needs
/// permission to get all of them.
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

/// Checks a binding: the user needs permission to read the objects that the binding refers to, of the kind that its
/// policy names. If the policy does not exist yet, the kind is unknown, so permission on all kinds is required.
fn binding<'a>(grant: &Grant<'a>, parameters: impl FnOnce(&str) -> Option<(&'a str, &'a str)>) -> Result<(), Refusal> {
    let wanted = |document: &Value| (document["spec"]["paramRef"].clone(), document["spec"]["policyName"].clone());
    let (reference, of) = wanted(grant.new);
    if !reference.is_object() || grant.old.map(wanted).is_some_and(|old| old == (reference.clone(), of.clone())) {
        return Ok(());
    }
    let text = |field: &str| reference[field].as_str().unwrap_or_default();
    let kind = parameters(of.as_str().unwrap_or_default()).unwrap_or((ALL, ALL));
    let (namespace, name) = (text("namespace"), text("name"));
    // A reference without a name selects its objects by labels, which needs `list`.
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
