//! A cluster made of recorded objects. Each object is completed as an API server completes it before a scheduler reads
//! it.

use holdfast_scheduler::{ClusterEvent, Key, Kind, Snapshot};
use holdfast_value::{Map, Value, json};
use std::collections::BTreeMap;

#[derive(Default)]
pub struct Cluster {
    pub snapshot: Snapshot,
    pub objects: BTreeMap<(String, Key), Value>,
    uids: usize,
}

const CLUSTER_SCOPED: [&str; 10] = [
    "Node",
    "Namespace",
    "PersistentVolume",
    "StorageClass",
    "CSINode",
    "CSIDriver",
    "VolumeAttachment",
    "DeviceClass",
    "ResourceSlice",
    "PriorityClass",
];

pub fn key_of(kind: &str, object: &Value) -> Key {
    let name = object["metadata"]["name"].as_str().or(object["name"].as_str()).unwrap_or("");
    if CLUSTER_SCOPED.contains(&kind) || kind == "RuntimeClass" {
        return Key::cluster(name);
    }
    let namespace = object["metadata"]["namespace"].as_str().or(object["namespace"].as_str());
    Key::new(namespace.unwrap_or("default"), name)
}

impl Cluster {
    pub fn create(&mut self, object: &Value) -> Vec<ClusterEvent> {
        let kind = object["kind"].as_str().unwrap_or("").to_owned();
        let key = key_of(&kind, object);
        let mut object = object.clone();
        self.fill(&mut object);
        self.uids += 1;
        object["metadata"]["uid"] = format!("uid-{}", self.uids).into();
        if kind == "Pod" {
            self.admit(&mut object);
        }
        self.objects.insert((kind.clone(), key.clone()), object);
        self.apply(&kind, &key)
    }

    pub fn delete(&mut self, kind: &str, key: &Key) -> Vec<ClusterEvent> {
        self.objects.remove(&(kind.into(), key.clone()));
        self.apply(kind, key)
    }

    /// Changes an object and applies the change to the snapshot.
    pub fn change(&mut self, kind: &str, key: &Key, change: impl FnOnce(&mut Value)) -> Vec<ClusterEvent> {
        if let Some(object) = self.objects.get_mut(&(kind.into(), key.clone())) {
            change(object);
        }
        self.apply(kind, key)
    }

    fn apply(&mut self, kind: &str, key: &Key) -> Vec<ClusterEvent> {
        let object = self.objects.get(&(kind.to_owned(), key.clone()));
        let Some(kind) = Kind::named(kind) else { return Vec::new() };
        // The snapshot gets only the fields that the scheduler reads.
        let seen = object.map(|object| kind.glance().look(object.to_string().as_bytes()).document);
        self.snapshot.apply(kind, key, seen.as_ref()).into_iter().collect()
    }

    /// Replaces each text `@uid:kind/namespace/name` in `value` by the uid of this object.
    fn fill(&self, value: &mut Value) {
        match value {
            Value::String(text) => {
                if let Some(object) = text.strip_prefix("@uid:") {
                    let (kind, rest) = object.split_once('/').unwrap_or((object, ""));
                    let key =
                        rest.split_once('/').map_or(Key::cluster(rest), |(namespace, name)| Key::new(namespace, name));
                    let found = self.objects.get(&(kind.to_owned(), key));
                    *value = found
                        .map_or("00000000-0000-0000-0000-000000000001".into(), |one| one["metadata"]["uid"].clone());
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.fill(item)),
            Value::Object(fields) => fields.values_mut().for_each(|field| self.fill(field)),
            _ => {}
        }
    }

    /// Changes a new pod as the API server's defaults and admission plug-ins do.
    fn admit(&self, pod: &mut Value) {
        let class = |kind: &str, name: &Value| {
            self.objects.get(&(kind.to_owned(), Key::cluster(name.as_str().unwrap_or("")))).cloned().unwrap_or_default()
        };
        let priority = class("PriorityClass", &pod["spec"]["priorityClassName"]);
        let runtime = class("RuntimeClass", &pod["spec"]["runtimeClassName"]);
        let spec = &mut pod["spec"];
        spec["priority"] = priority["value"].as_i64().unwrap_or(0).into();
        if priority["preemptionPolicy"].is_string() {
            spec["preemptionPolicy"] = priority["preemptionPolicy"].clone();
        }
        if runtime["overhead"]["podFixed"].is_object() {
            spec["overhead"] = runtime["overhead"]["podFixed"].clone();
        }
        for (key, value) in runtime["scheduling"]["nodeSelector"].as_object().into_iter().flatten() {
            spec["nodeSelector"][key] = value.clone();
        }
        for toleration in runtime["scheduling"]["tolerations"].as_array().into_iter().flatten() {
            push(&mut spec["tolerations"], toleration.clone());
        }
        let host_network = spec["hostNetwork"] == true;
        for list in ["containers", "initContainers"] {
            for container in spec[list].as_array_mut().into_iter().flatten() {
                complete_container(container, host_network);
            }
        }
        if spec["initContainers"].is_null() {
            spec.as_object_mut().unwrap().remove("initContainers");
        }
        complete_whole(spec);
        let labels = pod["metadata"]["labels"].clone();
        merge_label_keys(pod, &labels);
    }
}

fn push(list: &mut Value, item: Value) {
    match list.as_array_mut() {
        Some(list) => list.push(item),
        None => *list = json!([item]),
    }
}

fn complete_container(container: &mut Value, host_network: bool) {
    let limits = container["resources"]["limits"].as_object().cloned().unwrap_or_default();
    for (name, amount) in limits {
        if container["resources"]["requests"][&name].is_null() {
            container["resources"]["requests"][&name] = amount;
        }
    }
    if host_network {
        for port in container["ports"].as_array_mut().into_iter().flatten() {
            if port["hostPort"].is_null() {
                port["hostPort"] = port["containerPort"].clone();
            }
        }
    }
}

/// Fills in pod-level requests: if a pod sets a pod-level limit but no request, the limit is also the request, unless a
/// container requests the resource.
fn complete_whole(spec: &mut Value) {
    let limits: Map = spec["resources"]["limits"].as_object().cloned().unwrap_or_default();
    for (name, amount) in limits {
        let asked = |container: &Value| !container["resources"]["requests"][&name].is_null();
        let by_containers = spec["containers"].as_array().into_iter().flatten().any(asked);
        if spec["resources"]["requests"][&name].is_null() && !by_containers {
            spec["resources"]["requests"][&name] = amount;
        }
    }
}

/// Puts `matchLabelKeys` and `mismatchLabelKeys` of affinity terms into the terms' selectors, as the API server does.
fn merge_label_keys(pod: &mut Value, labels: &Value) {
    for side in ["podAffinity", "podAntiAffinity"] {
        if pod["spec"]["affinity"][side].is_null() {
            continue;
        }
        let side = &mut pod["spec"]["affinity"][side];
        for term in side["requiredDuringSchedulingIgnoredDuringExecution"].as_array_mut().into_iter().flatten() {
            merge_term(term, labels);
        }
        for one in side["preferredDuringSchedulingIgnoredDuringExecution"].as_array_mut().into_iter().flatten() {
            merge_term(&mut one["podAffinityTerm"], labels);
        }
    }
}

fn merge_term(term: &mut Value, labels: &Value) {
    for (field, operator) in [("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")] {
        for key in term[field].as_array().cloned().unwrap_or_default() {
            let value = &labels[key.as_str().unwrap_or("")];
            if value.is_string() && term["labelSelector"].is_object() {
                let requirement = json!({"key": key, "operator": operator, "values": [value]});
                push(&mut term["labelSelector"]["matchExpressions"], requirement);
            }
        }
    }
}

/// Applies a JSON merge patch to `target`.
pub fn merge(target: &mut Value, patch: &Value) {
    let Some(patch) = patch.as_object() else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    let fields = target.as_object_mut().unwrap();
    for (key, value) in patch {
        if value.is_null() {
            fields.remove(key);
        } else {
            merge(fields.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}
