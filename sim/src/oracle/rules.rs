//! Invariants that concern several objects: addresses, namespaces with their content, and the state at rest.

use super::{CheckResult, ensure};
use crate::custom;
use crate::shape::Sort;
use crate::twin::Twin;
use holdfast_value::Value;
use std::collections::BTreeMap;

/// Checks that no two Services have the same address or node port.
pub fn check_addresses(twin: &Twin) -> CheckResult {
    let mut holders: BTreeMap<String, &str> = BTreeMap::new();
    for (key, version) in twin.present(Sort::Service.storage()) {
        for held in held_by(&version.document) {
            if let Some(other) = holders.insert(held.clone(), key) {
                return Err(format!("services {other} and {key} both hold {held}"));
            }
        }
    }
    Ok(())
}

/// The addresses and node ports of a Service.
pub fn held_by(service: &Value) -> Vec<String> {
    let spec = &service["spec"];
    let mut held: Vec<String> = Vec::new();
    if let Some(address) = spec["clusterIP"].as_str().filter(|address| !address.is_empty() && *address != "None") {
        held.push(address.to_owned());
    }
    for port in spec["ports"].as_array().into_iter().flatten() {
        if let Some(number) = port["nodePort"].as_u64() {
            held.push(format!("node port {number}"));
        }
    }
    held
}

/// Checks that a deleted namespace leaves no objects.
pub fn check_gone(twin: &Twin, namespace: &str) -> CheckResult {
    let left = twin.all_at(u64::MAX).find(|(_, key, _)| key.split_once('/').is_some_and(|(home, _)| home == namespace));
    match left {
        Some((storage, key, _)) => Err(format!("{storage} {key} outlived its namespace")),
        None => Ok(()),
    }
}

/// Checks the state in which the janitor has nothing more to do. If an object that is being deleted still exists, a
/// finalizer or another object must keep it.
pub fn check_rest(twin: &Twin) -> CheckResult {
    let pods = Sort::Pod.storage();
    for (name, namespace) in twin.present(Sort::Namespace.storage()) {
        let shape = namespace.shape();
        if !shape.deleting {
            continue;
        }
        let mut content = 0;
        let within = |key: &str| key.split_once('/').is_some_and(|(home, _)| home == name);
        // While the pods of a namespace stop, the janitor keeps the other objects of the namespace.
        let stops = twin.present(pods).any(|(key, _)| within(key));
        for (storage, key, version) in twin.all_at(u64::MAX).filter(|(_, key, _)| within(key)) {
            content += 1;
            let may_stay = stops && storage != pods;
            ensure(may_stay || version.is_deleting(), || format!("{storage} {key} was not deleted with {name}"))?;
            if version.is_deleting() {
                held_back(storage, key, &version.document)?;
            }
        }
        ensure(content > 0 || !shape.finalizers.is_empty(), || format!("namespace {name} is empty and does not go"))?;
        ensure(content == 0 || shape.held, || format!("namespace {name} was finalized with content in it"))?;
    }
    for (name, definition) in twin.present(custom::DEFINITIONS).filter(|(_, version)| version.is_deleting()) {
        let mut left = 0;
        for (key, version) in twin.present(custom::STORAGE) {
            left += 1;
            ensure(version.is_deleting(), || format!("widget {key} was not deleted with {name}"))?;
            held_back(custom::STORAGE, key, &version.document)?;
        }
        ensure(left > 0, || format!("definition {name} has no objects and does not go"))?;
        let condition = definition.document["status"]["conditions"].as_array().into_iter().flatten();
        let told = condition.into_iter().any(|c| c["type"] == "Terminating" && c["status"] == "True");
        ensure(told, || format!("definition {name} does not say that it is going away"))?;
    }
    Ok(())
}

fn held_back(storage: &str, key: &str, object: &Value) -> CheckResult {
    let meta = &object["metadata"];
    let held = meta["finalizers"].as_array().is_some_and(|list| !list.is_empty());
    let stopping = meta["deletionGracePeriodSeconds"].as_i64().unwrap_or(0) > 0;
    ensure(held || stopping, || format!("{storage} {key} is held back by nothing"))
}
