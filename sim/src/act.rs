//! What a simulated client wants to do with a request, and a simple model of the effect that the client may expect.

use crate::custom::{self, CLEANUP, Law, Variant};
use crate::owners;
use crate::pick::Pick;
use crate::shape::{ObjectShape, Sort};
use crate::twin::ObjectVersion;
use holdfast_value::{Value, json};
use std::collections::BTreeMap;

/// One change of an object, apart from its status.
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
    Tier(Option<String>),
    Define(Variant),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatchFormat {
    Merge,
    Strategic,
    Json,
}

/// What a client wants to do with a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    Create {
        wanted: ObjectShape,
        generated: bool,
    },
    /// A PUT of a document that the client has read and changed.
    Replace {
        wanted: ObjectShape,
        version: Option<u64>,
        uid: String,
    },
    /// A patch with one edit. With `test`, a JSON patch takes effect only if a label has a certain value.
    Change {
        edit: Edit,
        format: PatchFormat,
        version: Option<u64>,
        test: Option<String>,
    },
    /// A server-side apply of these fields, and of the fields that every apply of the simulation has.
    Apply {
        fields: BTreeMap<owners::ContestedField, Value>,
        manager: String,
        force: bool,
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
    /// Deletes each object of a selection, independently of the other objects.
    DeleteAll {
        pick: Pick,
        limit: Option<u64>,
        policy: Option<&'static str>,
    },
    /// The last step of the server in the deletion of a namespace: it removes the namespace's finalizer.
    Finalize {
        version: Option<u64>,
    },
    /// The last step of the server in the deletion of a definition: it removes the definition's finalizer.
    Release {
        version: Option<u64>,
    },
    /// The server writes to an object's status why the deletion of the object does not continue.
    Tell {
        version: Option<u64>,
    },
}

impl Edit {
    /// The edit as a patch of this format; `None` if the format cannot express the edit.
    pub fn patch(&self, format: PatchFormat) -> Option<Value> {
        let merge = matches!(format, PatchFormat::Merge | PatchFormat::Strategic);
        let pointer = |path: &str, value: &Option<String>| match value {
            Some(value) => json!([{"op": "add", "path": path, "value": value}]),
            None => json!([{"op": "remove", "path": path}]),
        };
        Some(match self {
            Edit::Label(key, value) if merge => json!({"metadata": {"labels": {(*key): value}}}),
            Edit::Label(key, value) => pointer(&format!("/metadata/labels/{key}"), value),
            Edit::Note(key, value) if merge => json!({"metadata": {"annotations": {(*key): value}}}),
            Edit::Note(key, value) => pointer(&format!("/metadata/annotations/{key}"), value),
            Edit::Data(key, value) if merge => json!({"data": {(*key): value}}),
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
            Edit::Replicas(replicas) => json!([{"op": "add", "path": "/spec/replicas", "value": replicas}]),
            Edit::Holder(holder) if merge => json!({"spec": {"holderIdentity": holder}}),
            Edit::Holder(holder) => json!([{"op": "add", "path": "/spec/holderIdentity", "value": holder}]),
            Edit::Tier(tier) if merge => json!({"spec": {"tier": tier}}),
            Edit::Tier(tier) => pointer("/spec/tier", tier),
            Edit::Define(variant) if merge => json!({"spec": {"versions": variant.versions()}}),
            Edit::Define(variant) => json!([{"op": "replace", "path": "/spec/versions", "value": variant.versions()}]),
        })
    }

    /// Applies the edit directly to a document, while `patch` expresses the edit as a patch. The edits `AddFinalizer`
    /// and `DropFinalizer` change nothing here.
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
            Edit::Tier(tier) => put(&mut document["spec"], "tier", tier),
            Edit::Define(variant) => document["spec"]["versions"] = variant.versions(),
        }
    }

    pub fn edited(&self, shape: ObjectShape) -> ObjectShape {
        let mut shape = shape;
        let set = |map: &mut BTreeMap<String, String>, key: &str, value: &Option<String>| match value {
            Some(value) => drop(map.insert(key.to_owned(), value.clone())),
            None => drop(map.remove(key)),
        };
        match self {
            Edit::Label(key, value) => set(&mut shape.labels, key, value),
            Edit::Note(key, value) => set(&mut shape.notes, key, value),
            Edit::Data(key, value) => set(&mut shape.data, key, value),
            Edit::Finalizers(list) => shape.finalizers = list.clone(),
            Edit::AddFinalizer(name) => shape.finalizers.push((*name).to_owned()),
            Edit::DropFinalizer(name) => shape.finalizers.retain(|finalizer| finalizer != name),
            Edit::Replicas(replicas) => shape.replicas = Some(*replicas),
            Edit::Holder(holder) => shape.holder = Some(holder.clone()),
            Edit::Tier(tier) => shape.tier = tier.clone(),
            Edit::Define(variant) => shape.defines = Some(variant.fingerprint()),
        }
        shape.finalizers.sort();
        shape.finalizers.dedup();
        shape
    }
}

impl Act {
    /// The version that the object must have so that the act is accepted; `None` if the client does not require a
    /// version.
    pub fn fixed_version(&self) -> Option<u64> {
        match self {
            Act::Replace { version, .. }
            | Act::Change { version, .. }
            | Act::Status { version, .. }
            | Act::Scale { version, .. }
            | Act::Delete { version, .. }
            | Act::Finalize { version }
            | Act::Release { version }
            | Act::Tell { version } => *version,
            Act::Create { .. } | Act::Bind { .. } | Act::Apply { .. } | Act::DeleteAll { .. } => None,
        }
    }

    /// The UID that the object must have so that the act is accepted; `None` if the client does not require a UID.
    pub fn fixed_uid(&self) -> Option<&str> {
        match self {
            Act::Replace { uid, .. } => Some(uid.as_str()).filter(|uid| !uid.is_empty()),
            Act::Delete { uid, .. } => uid.as_deref(),
            _ => None,
        }
    }

    fn deletes(&self) -> bool {
        matches!(self, Act::Delete { .. } | Act::DeleteAll { .. })
    }
}

/// The shape with the defaults that the definition `law` gives.
pub fn lawful(sort: Sort, shape: ObjectShape, law: Option<Law>) -> ObjectShape {
    let mut shape = shape;
    if sort.is_custom() && shape.tier.is_none() {
        shape.tier = law.and_then(|law| law.tier).map(str::to_owned);
    }
    shape
}

/// The effect of an accepted act on an object: the object's shape after the act, or `None` if the act deletes the
/// object. An error says why the server must not have accepted the act.
pub fn predict(
    sort: Sort,
    act: &Act,
    before: Option<&ObjectVersion>,
    law: Option<Law>,
) -> Result<Option<ObjectShape>, String> {
    let lawful = |shape: ObjectShape| lawful(sort, shape, law);
    let version = match (act, before) {
        (Act::Create { wanted, .. }, None) => return Ok(Some(lawful(wanted.clone()))),
        (Act::Create { .. }, Some(_)) => return Err("a create met an object that was there".into()),
        (Act::Replace { wanted, version: None, .. }, None) if sort.creates_on_update() => {
            return Ok(Some(ObjectShape { deleting: false, grace: 0, ..wanted.clone() }));
        }
        (Act::Apply { fields, .. }, None) => {
            let created = owners::set(created(sort, fields), fields);
            return Ok(Some(lawful(created)));
        }
        (_, None) => return Err("a change met no object".into()),
        (_, Some(version)) => version,
    };
    // An object that was stored before the last change of its CustomResourceDefinition is read with the defaults of the
    // present definition.
    let before = lawful(version.shape());
    let mut after = before.clone();
    match act {
        Act::Create { .. } => unreachable!("handled above"),
        Act::Replace { wanted, .. } => {
            let ObjectShape { status, deleting, grace, held, .. } = before.clone();
            after = ObjectShape { status, deleting, grace, held, ..wanted.clone() };
        }
        Act::Change { edit, test, .. } => {
            if let Some(value) = test
                && after.labels.get("app") != Some(value)
            {
                return Err("a JSON patch passed a test that did not hold".into());
            }
            after = edit.edited(after);
        }
        Act::Apply { fields, manager, force } => {
            let document = &custom::managed(law, &version.document);
            let conflicts = owners::conflicts(document, fields, manager);
            if !conflicts.is_empty() && !force {
                return Err(format!("an apply took {conflicts:?} from others without force"));
            }
            after = owners::applied(after, document, fields, manager);
            if sort == Sort::Deployment {
                after.replicas = after.replicas.or(Some(1));
            }
        }
        Act::Status { status, .. } => after.status = Some(status.clone()),
        Act::Scale { replicas, .. } => after.replicas = Some(*replicas),
        Act::Bind { node } => {
            if after.node.is_some() || after.deleting {
                return Err("a pod was bound twice, or while it was being deleted".into());
            }
            after.node = Some(node.clone());
        }
        Act::Delete { grace, policy, .. } => after = deleted(sort, after, *grace, *policy),
        Act::DeleteAll { policy, .. } => after = deleted(sort, after, None, *policy),
        Act::Finalize { .. } => after.held = false,
        Act::Release { .. } => after.finalizers.retain(|finalizer| finalizer != CLEANUP),
        Act::Tell { .. } => {}
    }
    after = lawful(after);
    let added = |finalizer: &&String| !before.finalizers.contains(finalizer);
    if before.deleting && !act.deletes() && after.finalizers.iter().any(|f| added(&f)) {
        return Err("an object that is being deleted got a new finalizer".into());
    }
    Ok(if after.deleting && after.is_released() { None } else { Some(after) })
}

/// The shape of a new object of this kind, with only the values that the server sets. `fields` are the fields that the
/// client sets; the server sets `replicas` only if the client does not.
fn created(sort: Sort, fields: &BTreeMap<owners::ContestedField, Value>) -> ObjectShape {
    let mut shape = ObjectShape::default();
    match sort {
        Sort::Pod => shape.status = Some("Pending".into()),
        Sort::Deployment if !fields.contains_key(&owners::ContestedField::Replicas) => shape.replicas = Some(1),
        _ => {}
    }
    shape
}

fn deleted(sort: Sort, before: ObjectShape, grace: Option<i64>, policy: Option<&str>) -> ObjectShape {
    let mut after = before;
    if policy.is_some() {
        after.finalizers.retain(|finalizer| finalizer != "orphan" && finalizer != "foregroundDeletion");
    }
    match policy {
        Some("Orphan") => after.finalizers.push("orphan".into()),
        Some("Foreground") => after.finalizers.push("foregroundDeletion".into()),
        _ => {}
    }
    if !after.deleting {
        if sort == Sort::Namespace {
            after.status = Some("Terminating".into());
        }
        if sort == Sort::CustomResourceDefinition {
            after.finalizers.push(CLEANUP.into());
        }
    }
    after.finalizers.sort();
    after.finalizers.dedup();
    after.grace = match (after.deleting, grace) {
        (true, Some(grace)) => after.grace.min(grace),
        (true, None) => after.grace,
        (false, grace) if after.is_running(sort) => grace.unwrap_or(30),
        (false, _) => 0,
    };
    after.deleting = true;
    after
}
