//! Rules over several objects: addresses, namespaces and their content, and where everything comes to rest.

use super::{Verdict, ensure};
use crate::shape::Sort;
use crate::twin::Twin;
use serde_json::Value;
use std::collections::BTreeMap;

/// No two services hold one address or one node port.
pub fn check_addresses(twin: &Twin) -> Verdict {
    let mut holders: BTreeMap<String, String> = BTreeMap::new();
    for (key, version) in twin.present(Sort::Service.storage()) {
        for held in held_by(&version.document) {
            if let Some(other) = holders.insert(held.clone(), key.to_owned()) {
                return Err(format!("services {other} and {key} both hold {held}"));
            }
        }
    }
    Ok(())
}

/// The addresses and node ports of a service.
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

/// Whatever lives in a namespace lives in one that is there.
pub fn check_namespaces(twin: &Twin) -> Verdict {
    let names: Vec<&str> = twin.present(Sort::Namespace.storage()).map(|(name, _)| name).collect();
    for ((storage, key), _) in twin.present_everywhere() {
        if let Some((namespace, _)) = key.split_once('/') {
            ensure(names.contains(&namespace), || format!("{storage} {key} outlived its namespace"))?;
        }
    }
    Ok(())
}

/// When the janitor has no more to do, only what somebody else holds back is left of terminating namespaces.
pub fn check_rest(twin: &Twin) -> Verdict {
    for (name, namespace) in twin.present(Sort::Namespace.storage()) {
        let shape = namespace.shape(Sort::Namespace);
        if !shape.deleting {
            continue;
        }
        let prefix = format!("{name}/");
        let mut content = 0;
        for ((storage, key), version) in twin.present_everywhere().filter(|((_, key), _)| key.starts_with(&prefix)) {
            content += 1;
            let meta = &version.document["metadata"];
            ensure(!meta["deletionTimestamp"].is_null(), || format!("{storage} {key} was not deleted with {name}"))?;
            let held = meta["finalizers"].as_array().is_some_and(|list| !list.is_empty());
            let stopping = meta["deletionGracePeriodSeconds"].as_i64().unwrap_or(0) > 0;
            ensure(held || stopping, || format!("{storage} {key} is held back by nothing"))?;
        }
        ensure(content > 0 || !shape.finalizers.is_empty(), || format!("namespace {name} is empty and does not go"))?;
        ensure(content == 0 || shape.held, || format!("namespace {name} was finalized with content in it"))?;
    }
    Ok(())
}
