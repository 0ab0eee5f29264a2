//! Determines whether the server behind an APIService is available, as the APIService's status shows it.
//!
//! This module looks only at the state. If the state shows no problem, the caller asks the server and reports the
//! result.

use super::resolve::{self, Slices};
use super::{ApiService, Backend, kind, write};
use crate::namespace::Step;
use crate::object::meta::object_mut;
use crate::request::{Target, Verb};
use crate::stamp::Stamp;
use crate::state::State;
use holdfast_value::{Value, json};

/// The type of the only condition that an APIService has.
pub const TYPE: &str = "Available";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    pub holds: bool,
    pub reason: &'static str,
    pub message: String,
}

/// The result of looking only at the state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    Known(Condition),
    /// The caller must ask the server for the resources of the APIService's group version.
    Ask,
}

impl Condition {
    fn fails(reason: &'static str, message: String) -> Finding {
        Finding::Known(Condition { holds: false, reason, message })
    }

    pub fn local() -> Condition {
        Condition { holds: true, reason: "Local", message: "Local APIServices are always available".into() }
    }

    pub fn passed() -> Condition {
        Condition { holds: true, reason: "Passed", message: "all checks passed".into() }
    }

    /// The condition after a discovery request that got no answer.
    pub fn unanswered(message: String) -> Condition {
        Condition { holds: false, reason: "FailedDiscoveryCheck", message }
    }
}

/// Determines, from the state alone, whether the Service behind an APIService exists and has a ready endpoint.
pub fn check(state: &State, slices: &Slices, service: &ApiService) -> Finding {
    let Some(Backend { namespace, name, port, .. }) = &service.backend else {
        return Finding::Known(Condition::local());
    };
    let shown = format!("service/{name} in {namespace:?}");
    let Some(found) = resolve::service(state, namespace, name) else {
        return Condition::fails("ServiceNotFound", format!("{shown} is not present"));
    };
    if found.pointer("/spec/type").and_then(Value::as_str).unwrap_or("ClusterIP") != "ClusterIP" {
        return Finding::Ask;
    }
    let Some(port_name) = resolve::port_name(&found, *port) else {
        return Condition::fails("ServicePortError", format!("{shown} is not listening on port {port}"));
    };
    let endpoints = resolve::endpoints(state, slices, namespace, name, &port_name);
    if !endpoints.known {
        return Condition::fails("EndpointsNotFound", format!("cannot find endpointslices for {shown}"));
    }
    if endpoints.ready.is_empty() {
        let message = format!("endpointslices for {shown} have no addresses with port name {port_name:?}");
        return Condition::fails("MissingEndpoints", message);
    }
    Finding::Ask
}

/// The step that writes the condition into the status of the APIService; `None` if the status already has the
/// condition.
pub fn report(state: &State, name: &str, condition: &Condition, stamp: Stamp) -> Option<Step> {
    let (kind, version) = kind(state)?;
    let Value::Object(mut document) = state.get(kind, name)?.document() else { return None };
    let status = if condition.holds { "True" } else { "False" };
    let conditions = object_mut(&mut document, "status").entry("conditions").or_insert_with(|| json!([]));
    let conditions = conditions.as_array_mut()?;
    let found = conditions.iter().position(|old| old["type"] == TYPE);
    let same = found.map(|at| &conditions[at]).filter(|old| old["status"] == status);
    let since = same.and_then(|old| old["lastTransitionTime"].as_str()).map_or_else(|| stamp.rfc3339(), str::to_owned);
    let wanted = json!({
        "type": TYPE,
        "status": status,
        "reason": condition.reason,
        "message": condition.message,
        "lastTransitionTime": since,
    });
    match found {
        Some(at) if conditions[at] == wanted => return None,
        Some(at) => conditions[at] = wanted,
        None => conditions.push(wanted),
    }
    let target =
        Target { kind, version, namespace: None, name: Some(name.to_owned()), subresource: Some("status".into()) };
    Some(write(target, Verb::Update, Some(&document)))
}
