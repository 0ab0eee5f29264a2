//! The part of an object that the simulation reasons about, and what each act should do to it, naively.
//!
//! Nothing here is shared with the core: a [`Shape`] is read from plain JSON, and [`predict`] is the simplest
//! statement of what a client may expect. The oracles hold the core's events against it.

use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The kinds that clients work with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sort {
    ConfigMap,
    Deployment,
    Service,
    Pod,
    Lease,
    Namespace,
}

pub const SORTS: [Sort; 6] =
    [Sort::ConfigMap, Sort::Deployment, Sort::Service, Sort::Pod, Sort::Lease, Sort::Namespace];

/// What of an object matters here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Shape {
    pub labels: BTreeMap<String, String>,
    pub notes: BTreeMap<String, String>,
    pub data: BTreeMap<String, String>,
    /// Sorted.
    pub finalizers: Vec<String>,
    pub replicas: Option<i64>,
    pub holder: Option<String>,
    /// What the status says: a phase, or the generation that was observed.
    pub status: Option<String>,
    pub node: Option<String>,
    pub deleting: bool,
    pub grace: i64,
    /// A namespace that is not finalized.
    pub held: bool,
}

/// One change of an object's main part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Edit {
    Label(&'static str, Option<String>),
    Note(&'static str, Option<String>),
    Data(&'static str, Option<String>),
    Finalizers(Vec<String>),
    AddFinalizer(&'static str),
    DropFinalizer(&'static str),
    Replicas(i64),
    Holder(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatchFormat {
    Merge,
    Strategic,
    Json,
}

/// What a request wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    Create {
        wanted: Shape,
        generated: bool,
    },
    /// PUT of a document that the client had read and changed.
    Replace {
        wanted: Shape,
        version: Option<u64>,
        uid: String,
    },
    /// `test` makes a JSON patch depend on a label's value.
    Change {
        edit: Edit,
        format: PatchFormat,
        version: Option<u64>,
        test: Option<String>,
    },
    Status {
        status: String,
        version: Option<u64>,
    },
    Scale {
        replicas: i64,
        version: Option<u64>,
    },
    Bind {
        node: String,
    },
    Delete {
        grace: Option<i64>,
        policy: Option<&'static str>,
        uid: Option<String>,
        version: Option<u64>,
    },
    /// The server's own last step in the deletion of a namespace.
    Finalize {
        version: Option<u64>,
    },
    /// The server tells why a namespace does not go.
    Tell {
        version: Option<u64>,
    },
}

impl Sort {
    /// Group, version and plural name, as paths have them.
    pub fn path(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::ConfigMap => ("", "v1", "configmaps"),
            Self::Deployment => ("apps", "v1", "deployments"),
            Self::Service => ("", "v1", "services"),
            Self::Pod => ("", "v1", "pods"),
            Self::Lease => ("coordination.k8s.io", "v1", "leases"),
            Self::Namespace => ("", "v1", "namespaces"),
        }
    }

    /// Where the log keeps objects of this kind.
    pub fn storage(self) -> &'static str {
        match self {
            Self::Service => "services/specs",
            _ => self.path().2,
        }
    }

    /// A PUT to a free name creates.
    pub fn creates_on_update(self) -> bool {
        matches!(self, Self::Service | Self::Lease)
    }

    /// A PUT must name the version that it was made from.
    pub fn needs_version(self) -> bool {
        self == Self::Lease
    }
}

impl Shape {
    pub fn of(sort: Sort, object: &Value) -> Shape {
        let meta = &object["metadata"];
        let texts = |value: &Value| -> BTreeMap<String, String> {
            let pairs = value.as_object().into_iter().flatten();
            pairs.map(|(key, value)| (key.clone(), value.as_str().unwrap_or_default().to_owned())).collect()
        };
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let mut finalizers: Vec<String> =
            meta["finalizers"].as_array().into_iter().flatten().filter_map(text).collect();
        finalizers.sort();
        let status = &object["status"];
        Shape {
            labels: texts(&meta["labels"]),
            notes: texts(&meta["annotations"]),
            data: if sort == Sort::ConfigMap { texts(&object["data"]) } else { BTreeMap::new() },
            finalizers,
            replicas: object["spec"]["replicas"].as_i64().filter(|_| sort == Sort::Deployment),
            holder: text(&object["spec"]["holderIdentity"]),
            status: match sort {
                Sort::Pod | Sort::Namespace => text(&status["phase"]),
                Sort::Deployment => status["observedGeneration"].as_i64().map(|generation| generation.to_string()),
                _ => None,
            },
            node: text(&object["spec"]["nodeName"]),
            deleting: !meta["deletionTimestamp"].is_null(),
            grace: meta["deletionGracePeriodSeconds"].as_i64().unwrap_or(0),
            held: object["spec"]["finalizers"].as_array().is_some_and(|list| !list.is_empty()),
        }
    }

    pub fn edited(mut self, edit: &Edit) -> Shape {
        let set = |map: &mut BTreeMap<String, String>, key: &str, value: &Option<String>| match value {
            Some(value) => drop(map.insert(key.to_owned(), value.clone())),
            None => drop(map.remove(key)),
        };
        match edit {
            Edit::Label(key, value) => set(&mut self.labels, key, value),
            Edit::Note(key, value) => set(&mut self.notes, key, value),
            Edit::Data(key, value) => set(&mut self.data, key, value),
            Edit::Finalizers(list) => self.finalizers = list.clone(),
            Edit::AddFinalizer(name) => self.finalizers.push((*name).to_owned()),
            Edit::DropFinalizer(name) => self.finalizers.retain(|finalizer| finalizer != name),
            Edit::Replicas(replicas) => self.replicas = Some(*replicas),
            Edit::Holder(holder) => self.holder = Some(holder.clone()),
        }
        self.finalizers.sort();
        self.finalizers.dedup();
        self
    }

    /// Nothing is left that keeps a deleted object.
    fn is_released(&self) -> bool {
        self.finalizers.is_empty() && self.grace == 0 && !self.held
    }

    /// Only a pod that runs on a node gets time to stop.
    fn is_running(&self, sort: Sort) -> bool {
        sort == Sort::Pod && self.node.is_some() && !matches!(self.status.as_deref(), Some("Succeeded" | "Failed"))
    }
}

impl Edit {
    /// The change as a patch, or nothing where the format has no word for it.
    pub fn patch(&self, format: PatchFormat) -> Option<Value> {
        let merge = matches!(format, PatchFormat::Merge | PatchFormat::Strategic);
        let pointer = |path: &str, value: &Option<String>| match value {
            Some(value) => json!([{"op": "add", "path": path, "value": value}]),
            None => json!([{"op": "remove", "path": path}]),
        };
        Some(match self {
            Edit::Label(key, value) if merge => json!({"metadata": {"labels": {*key: value}}}),
            Edit::Label(key, value) => pointer(&format!("/metadata/labels/{key}"), value),
            Edit::Note(key, value) if merge => json!({"metadata": {"annotations": {*key: value}}}),
            Edit::Note(key, value) => pointer(&format!("/metadata/annotations/{key}"), value),
            Edit::Data(key, value) if merge => json!({"data": {*key: value}}),
            Edit::Data(key, value) => pointer(&format!("/data/{key}"), value),
            Edit::Finalizers(list) => match format {
                PatchFormat::Merge => json!({"metadata": {"finalizers": list}}),
                PatchFormat::Json => json!([{"op": "add", "path": "/metadata/finalizers", "value": list}]),
                PatchFormat::Strategic => return None,
            },
            Edit::AddFinalizer(name) => match format {
                PatchFormat::Strategic => json!({"metadata": {"finalizers": [name]}}),
                _ => return None,
            },
            Edit::DropFinalizer(name) => match format {
                PatchFormat::Strategic => json!({"metadata": {"$deleteFromPrimitiveList/finalizers": [name]}}),
                _ => return None,
            },
            Edit::Replicas(replicas) if merge => json!({"spec": {"replicas": replicas}}),
            Edit::Replicas(replicas) => json!([{"op": "replace", "path": "/spec/replicas", "value": replicas}]),
            Edit::Holder(holder) if merge => json!({"spec": {"holderIdentity": holder}}),
            Edit::Holder(holder) => json!([{"op": "add", "path": "/spec/holderIdentity", "value": holder}]),
        })
    }

    /// The same change made to a whole document.
    pub fn make(&self, document: &mut Value) {
        let put = |place: &mut Value, key: &str, value: &Option<String>| match (place.as_object_mut(), value) {
            (Some(map), Some(value)) => drop(map.insert(key.to_owned(), json!(value))),
            (Some(map), None) => drop(map.remove(key)),
            (None, value) => *place = json!({key: value}),
        };
        match self {
            Edit::Label(key, value) => put(&mut document["metadata"]["labels"], key, value),
            Edit::Note(key, value) => put(&mut document["metadata"]["annotations"], key, value),
            Edit::Data(key, value) => put(&mut document["data"], key, value),
            Edit::Finalizers(list) => document["metadata"]["finalizers"] = json!(list),
            Edit::AddFinalizer(_) | Edit::DropFinalizer(_) => {}
            Edit::Replicas(replicas) => document["spec"]["replicas"] = json!(replicas),
            Edit::Holder(holder) => document["spec"]["holderIdentity"] = json!(holder),
        }
    }
}

/// What an accepted act makes of an object: its shape afterwards, `None` when it goes.
/// An error says why the act could not have been accepted.
pub fn predict(sort: Sort, act: &Act, before: Option<&Shape>) -> Result<Option<Shape>, String> {
    let before = match (act, before) {
        (Act::Create { wanted, .. }, None) => return Ok(Some(wanted.clone())),
        (Act::Create { .. }, Some(_)) => return Err("a create met an object that was there".into()),
        (Act::Replace { wanted, version: None, .. }, None) if sort.creates_on_update() => {
            return Ok(Some(Shape { deleting: false, grace: 0, ..wanted.clone() }));
        }
        (_, None) => return Err("a change met no object".into()),
        (_, Some(before)) => before.clone(),
    };
    let mut after = before.clone();
    match act {
        Act::Create { .. } => unreachable!("handled above"),
        Act::Replace { wanted, .. } => {
            let Shape { status, deleting, grace, held, .. } = before;
            after = Shape { status, deleting, grace, held, ..wanted.clone() };
        }
        Act::Change { edit, test, .. } => {
            if let Some(value) = test
                && after.labels.get("app") != Some(value)
            {
                return Err("a JSON patch passed a test that did not hold".into());
            }
            after = after.edited(edit);
        }
        Act::Status { status, .. } => after.status = Some(status.clone()),
        Act::Scale { replicas, .. } => after.replicas = Some(*replicas),
        Act::Bind { node } => {
            if after.node.is_some() || after.deleting {
                return Err("a pod was bound twice, or while it was being deleted".into());
            }
            after.node = Some(node.clone());
        }
        Act::Delete { grace, policy, .. } => {
            if policy.is_some() {
                after.finalizers.retain(|finalizer| finalizer != "orphan" && finalizer != "foregroundDeletion");
            }
            match *policy {
                Some("Orphan") => after.finalizers.push("orphan".into()),
                Some("Foreground") => after.finalizers.push("foregroundDeletion".into()),
                _ => {}
            }
            after.finalizers.sort();
            after.grace = match (after.deleting, grace) {
                (true, Some(grace)) => after.grace.min(*grace),
                (true, None) => after.grace,
                (false, grace) if after.is_running(sort) => grace.unwrap_or(30),
                (false, _) => 0,
            };
            if sort == Sort::Namespace && !after.deleting {
                after.status = Some("Terminating".into());
            }
            after.deleting = true;
        }
        Act::Finalize { .. } => after.held = false,
        Act::Tell { .. } => {}
    }
    let added = |finalizer: &&String| !before.finalizers.contains(finalizer);
    if before.deleting && !matches!(act, Act::Delete { .. }) && after.finalizers.iter().any(|f| added(&f)) {
        return Err("an object that is being deleted got a new finalizer".into());
    }
    Ok(if after.deleting && after.is_released() { None } else { Some(after) })
}
