//! Removes parts of objects that do not depend on controllers.

use super::cluster::AGENT;
use super::path::sorted;
use super::text;
use serde_json::{Map, Value, json};

/// The object without the parts that do not depend on controllers.
pub fn reduce(object: &Value, walk: &dyn Fn(&Value) -> Value) -> Value {
    let mut object = object.clone();
    let managers = managers(&object["metadata"]["managedFields"]);
    let made_here = object["metadata"]["managedFields"].as_array().into_iter().flatten().any(|entry| {
        entry["manager"] == AGENT && entry["operation"] == "Update" && text(&entry["subresource"]).is_empty()
    });
    let generation = object["metadata"]["generation"].clone();
    if let Some(meta) = object["metadata"].as_object_mut() {
        for name in ["uid", "resourceVersion", "creationTimestamp", "managedFields", "selfLink", "generation"] {
            meta.remove(name);
        }
        if made_here && generation.as_i64().is_some_and(|generation| generation > 0) {
            meta.insert("generation".into(), generation.clone());
        }
        for name in ["ownerReferences", "finalizers"] {
            if let Some(Value::Array(items)) = meta.get_mut(name) {
                items.sort_by_key(sorted);
            }
        }
    }
    reduce_status(&mut object["status"], &generation);
    let kind = text(&object["kind"]);
    reduce_kind(&kind, &mut object, walk);
    if let Some(fields) = object.as_object_mut() {
        if fields.get("status").is_some_and(|status| status.is_null() || status.as_object().is_some_and(Map::is_empty))
        {
            fields.remove("status");
        }
        fields.insert("managers".into(), managers.into());
    }
    object
}

fn reduce_status(status: &mut Value, generation: &Value) {
    let Some(status) = status.as_object_mut() else { return };
    let current = |observed: Option<&Value>| !generation.is_null() && observed == Some(generation);
    if current(status.get("observedGeneration")) {
        status.insert("observedGeneration".into(), "current".into());
    }
    if let Some(Value::Array(conditions)) = status.get_mut("conditions") {
        for condition in conditions.iter_mut().filter_map(Value::as_object_mut) {
            if current(condition.get("observedGeneration")) {
                condition.insert("observedGeneration".into(), "current".into());
            }
        }
        conditions.sort_by_key(|condition| text(&condition["type"]));
    }
    for name in ["lastScheduleTime", "lastSuccessfulTime"] {
        if let Some(time) = status.get_mut(name) {
            *time = "<time>".into();
        }
    }
}

fn reduce_kind(kind: &str, object: &mut Value, walk: &dyn Fn(&Value) -> Value) {
    match kind {
        "Pod" => reduce_pod(object),
        "Node" => object["status"] = json!({"conditions": object["status"]["conditions"]}),
        "EndpointSlice" => {
            for (field, walked) in [("endpoints", true), ("ports", false)] {
                let mut items = object[field].as_array().cloned().unwrap_or_default();
                items.sort_by_key(|item| if walked { sorted(&walk(item)) } else { sorted(item) });
                object[field] = items.into();
            }
        }
        "Endpoints" => {
            let mut subsets = object["subsets"].as_array().cloned().unwrap_or_default();
            for subset in subsets.iter_mut().filter_map(Value::as_object_mut) {
                for field in ["addresses", "notReadyAddresses", "ports"] {
                    if let Some(Value::Array(items)) = subset.get_mut(field) {
                        items.sort_by_key(|item| sorted(&walk(item)));
                    }
                }
            }
            subsets.sort_by_key(|subset| sorted(&walk(subset)));
            object["subsets"] = subsets.into();
        }
        "Service" => {
            for field in ["clusterIP", "clusterIPs"] {
                let given = &object["spec"][field];
                if !given.is_null() && *given != "None" && *given != json!(["None"]) {
                    object["spec"][field] = "<ip>".into();
                }
            }
            for port in items(object, "/spec/ports") {
                if port["nodePort"].as_i64().is_some_and(|port| port > 0) {
                    port["nodePort"] = "<port>".into();
                }
            }
        }
        "Secret" if object["type"] == "kubernetes.io/service-account-token" => {
            for (name, value) in object.pointer_mut("/data").and_then(Value::as_object_mut).into_iter().flatten() {
                *value = format!("<{name}>").into();
            }
        }
        "CertificateSigningRequest" if object["status"]["certificate"].is_string() => {
            object["status"]["certificate"] = "<certificate>".into();
        }
        "PersistentVolume" => {
            if let Some(claim) = object.pointer_mut("/spec/claimRef").and_then(Value::as_object_mut) {
                claim.remove("resourceVersion");
            }
        }
        "CronJob" => {
            for active in items(object, "/status/active").filter_map(Value::as_object_mut) {
                active.remove("resourceVersion");
            }
        }
        _ => {}
    }
}

fn reduce_pod(object: &mut Value) {
    let going = object["metadata"]["deletionTimestamp"].is_string();
    let mut status = Map::new();
    for name in ["phase", "reason", "message", "conditions", "resourceClaimStatuses"] {
        if let Some(value) = object["status"].get(name) {
            status.insert(name.into(), value.clone());
        }
    }
    if let Some(Value::Array(conditions)) = status.get_mut("conditions") {
        conditions.retain(|condition| {
            condition["type"] != "PodScheduled" && (!going || condition["type"] == "DisruptionTarget")
        });
        for condition in conditions.iter_mut().filter_map(Value::as_object_mut) {
            for name in ["lastProbeTime", "lastTransitionTime", "observedGeneration"] {
                condition.remove(name);
            }
        }
        if conditions.is_empty() {
            status.remove("conditions");
        }
    }
    object["status"] = status.into();
}

/// The texts `manager operation subresource` of all managed fields, except those of nodes and schedulers.
fn managers(entries: &Value) -> Vec<String> {
    let mut managers: Vec<String> = Vec::new();
    for entry in entries.as_array().into_iter().flatten() {
        let (manager, subresource) = (text(&entry["manager"]), text(&entry["subresource"]));
        if ["kubelet", "kubemark", "hollow", "kube-scheduler"].iter().any(|other| manager.starts_with(other)) {
            continue;
        }
        let line = format!("{manager} {} {subresource}", text(&entry["operation"])).trim_end().to_owned();
        if !managers.contains(&line) {
            managers.push(line);
        }
    }
    managers.sort();
    managers
}

/// The items of a list, if it exists.
fn items<'v>(object: &'v mut Value, path: &str) -> impl Iterator<Item = &'v mut Value> {
    object.pointer_mut(path).and_then(Value::as_array_mut).into_iter().flatten()
}
