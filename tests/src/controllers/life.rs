//! Describes changes of objects in words.

use super::cluster::SeenChange;
use super::path::at;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Formats values in Python's syntax, like the recording.
fn shown(value: &Value) -> String {
    match value {
        Value::Null => "None".into(),
        Value::Bool(true) => "True".into(),
        Value::Bool(false) => "False".into(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// The words for a change; none if nothing relevant has changed.
pub fn changes(seen: &SeenChange) -> Vec<String> {
    if seen.deleted {
        return vec!["deleted".into()];
    }
    let (kind, object) = (seen.resource.plural, &*seen.object);
    let Some(before) = seen.before.as_deref().filter(|before| before["metadata"]["uid"] == object["metadata"]["uid"])
    else {
        return vec![match kind {
            "replicasets" | "replicationcontrollers" => {
                format!("added replicas {}", shown(at(object, "spec.replicas")))
            }
            "controllerrevisions" => format!("added revision {}", shown(&object["revision"])),
            _ => "added".into(),
        }];
    };
    let mut words = Words { before, object, words: Vec::new() };
    words.of_kind(kind);
    words.of_all(kind);
    words.words
}

struct Words<'a> {
    before: &'a Value,
    object: &'a Value,
    words: Vec<String>,
}

impl Words<'_> {
    fn on(&mut self, path: &str, name: &str) {
        self.changed(at(self.before, path), at(self.object, path), name);
    }

    fn changed(&mut self, before: &Value, after: &Value, name: &str) {
        if before != after {
            self.words.push(format!("{name} {}", shown(after)));
        }
    }

    /// Adds a word if a field was set or removed.
    fn set(&mut self, path: &str, name: &str) {
        let is_set = |object: &Value| !matches!(at(object, path), Value::Null) && *at(object, path) != "";
        let (before, after) = (is_set(self.before), is_set(self.object));
        if before != after {
            self.words.push(format!("{name} {}", if after { "set" } else { "removed" }));
        }
    }

    fn of_kind(&mut self, kind: &str) {
        if matches!(kind, "replicasets" | "replicationcontrollers" | "statefulsets" | "deployments") {
            let (before, after) = (at(self.before, "spec.replicas"), at(self.object, "spec.replicas"));
            if before != after {
                self.words.push(format!("replicas {} to {}", shown(before), shown(after)));
            }
        }
        if matches!(kind, "replicasets" | "deployments") {
            let revision =
                |object: &Value| object["metadata"]["annotations"]["deployment.kubernetes.io/revision"].clone();
            self.changed(&revision(self.before), &revision(self.object), "revision");
        }
        if kind == "controllerrevisions" {
            self.on("revision", "revision");
        }
        if kind == "statefulsets" {
            self.on("status.currentRevision", "currentRevision");
        }
        if matches!(
            kind,
            "jobs"
                | "deployments"
                | "certificatesigningrequests"
                | "namespaces"
                | "poddisruptionbudgets"
                | "servicecidrs"
        ) {
            self.conditions(kind != "poddisruptionbudgets");
        }
        if kind == "jobs" {
            self.on("spec.suspend", "suspend");
        }
        if matches!(kind, "persistentvolumes" | "persistentvolumeclaims" | "namespaces") {
            self.on("status.phase", "phase");
        }
        if kind == "persistentvolumes" {
            self.set("spec.claimRef", "claimRef");
        }
        if kind == "persistentvolumeclaims" {
            self.set("spec.volumeName", "volumeName");
        }
        if kind == "nodes" {
            self.node();
        }
        if kind == "pods" {
            self.pod();
        }
    }

    fn conditions(&mut self, reasons: bool) {
        let told = |object: &Value| -> BTreeMap<String, String> {
            let conditions = at(object, "status.conditions").as_array().into_iter().flatten();
            let text = |condition: &Value| {
                let status = condition["status"].as_str().unwrap_or_default();
                let reason = condition["reason"].as_str().unwrap_or_default();
                if reasons { format!("{status} {reason}") } else { status.to_owned() }
            };
            conditions
                .map(|condition| (condition["type"].as_str().unwrap_or_default().to_owned(), text(condition)))
                .collect()
        };
        self.differing(&told(self.before), &told(self.object), |kind, text| format!("condition {kind} {text}"));
    }

    fn differing(
        &mut self,
        before: &BTreeMap<String, String>,
        after: &BTreeMap<String, String>,
        word: impl Fn(&str, &str) -> String,
    ) {
        let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
        for name in names {
            if before.get(name) != after.get(name) {
                self.words.push(word(name, after.get(name).map_or("None", String::as_str)));
            }
        }
    }

    fn node(&mut self) {
        let taints = |object: &Value| -> BTreeSet<String> {
            let taints = object["spec"]["taints"]
                .as_array()
                .into_iter()
                .flatten()
                .filter(|taint| taint["key"] != "controllers-diff");
            taints.map(|taint| format!("{}:{}", shown(&taint["key"]), shown(&taint["effect"]))).collect()
        };
        let (before, after) = (taints(self.before), taints(self.object));
        let first = before.iter().eq(["node.kubernetes.io/not-ready:NoSchedule"]);
        let not_ready = at(self.before, "status.conditions[type=Ready].reason") == "KubeletNotReady";
        if before != after && (!after.is_empty() || !first || not_ready) {
            self.words.push(format!("taints {}", after.into_iter().collect::<Vec<_>>().join(",")));
        }
        if at(self.before, "status.conditions[type=Ready].status").is_string() {
            self.on("status.conditions[type=Ready].status", "ready");
        }
    }

    fn pod(&mut self) {
        let going = self.object["metadata"]["deletionTimestamp"].is_string();
        let ready = |object: &Value| at(object, "status.conditions[type=Ready].status") == "True";
        if ready(self.before) != ready(self.object) && !going {
            self.words.push(if ready(self.object) { "ready" } else { "unready" }.into());
        }
        let phase = at(self.object, "status.phase");
        if at(self.before, "status.phase") != phase && (phase == "Succeeded" || phase == "Failed") && !going {
            self.words.push(format!("phase {}", shown(phase)));
        }
    }

    fn of_all(&mut self, kind: &str) {
        let (before, after) = (&self.before["metadata"], &self.object["metadata"]);
        if matches!(kind, "pods" | "replicasets") {
            let labels = |meta: &Value| -> BTreeMap<String, String> {
                let labels = meta["labels"].as_object().into_iter().flatten();
                labels.map(|(name, value)| (name.clone(), shown(value))).collect()
            };
            self.differing(&labels(before), &labels(after), |name, value| format!("label {name}={value}"));
        }
        let owners = |meta: &Value| -> Vec<String> {
            let owners = meta["ownerReferences"].as_array().into_iter().flatten();
            let text = |owner: &Value| {
                let end = if owner["controller"] == true { "" } else { " (not controller)" };
                format!("{}/{}{end}", shown(&owner["kind"]), shown(&owner["name"]))
            };
            let mut owners: Vec<String> = owners.map(text).collect();
            owners.sort();
            owners
        };
        let finalizers = |meta: &Value| -> Vec<String> {
            let mut finalizers: Vec<String> = meta["finalizers"].as_array().into_iter().flatten().map(shown).collect();
            finalizers.sort();
            finalizers
        };
        for (word, before, after) in
            [("owners", owners(before), owners(after)), ("finalizers", finalizers(before), finalizers(after))]
        {
            if before != after {
                self.words.push(format!("{word} {}", after.join(", ")));
            }
        }
        if after["deletionTimestamp"].is_string() && !before["deletionTimestamp"].is_string() {
            self.words.push("terminating".into());
        }
    }
}
