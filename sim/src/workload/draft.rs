//! Drafts of requests. A draft is a change of an object that a client knows, and the document that makes the change.

use super::fresh::{bare_document, expected, fresh_document};
use super::{FINALIZERS, MANAGERS};
use crate::act::{Act, Edit, PatchFormat};
use crate::custom::VARIANTS;
use crate::owners::{ContestedField, FIELDS};
use crate::pick::{NODES, VALUES};
use crate::random::Dice;
use crate::rights;
use crate::shape::{ObjectShape, Sort};
use holdfast_core::request::{Format, Options, Verb};
use holdfast_value::{Value, json};
use std::collections::BTreeMap;

pub struct Draft {
    pub act: Act,
    pub verb: Verb,
    pub subresource: Option<&'static str>,
    pub body: Value,
    pub format: Format,
    pub options: Options,
}

impl Draft {
    fn new(act: Act, verb: Verb, body: Value, format: Format) -> Draft {
        Draft { act, verb, subresource: None, body, format, options: Options::default() }
    }

    fn on(self, subresource: &'static str) -> Draft {
        Draft { subresource: Some(subresource), ..self }
    }
}

#[derive(Debug, Clone, Copy)]
enum Choice {
    Create,
    Replace,
    Change,
    Apply,
    Status,
    Scale,
    Bind,
    Delete,
}

pub fn draft(
    dice: &mut Dice,
    sort: Sort,
    namespace: Option<&str>,
    name: &str,
    seen: Option<&Value>,
    id: &str,
) -> Draft {
    let create = if seen.is_none() { 300 } else { 10 };
    let (status, scale, bind) = match sort {
        Sort::Deployment | Sort::Widget => (20, 20, 0),
        Sort::Pod => (25, 0, 20),
        _ => (0, 0, 0),
    };
    let delete = match sort {
        Sort::Namespace => 40,
        // Definitions are deleted less often, so that they live long enough to be changed.
        Sort::CustomResourceDefinition => 15,
        _ => 35,
    };
    let apply = match sort {
        Sort::Namespace | Sort::CustomResourceDefinition => 0,
        _ => 30,
    };
    let choice = dice.weighted(&[
        (create, Choice::Create),
        (30, Choice::Replace),
        (50, Choice::Change),
        (apply, Choice::Apply),
        (delete, Choice::Delete),
        (status, Choice::Status),
        (scale, Choice::Scale),
        (bind, Choice::Bind),
    ]);
    match (choice, seen) {
        (Choice::Replace, Some(seen)) => replace(dice, sort, seen.clone()),
        (Choice::Create, None) if sort.creates_on_update() && dice.chance(30) => {
            put_new(dice, sort, namespace, name, id)
        }
        (Choice::Create | Choice::Replace, _) => create_one(dice, sort, namespace, name, id),
        (Choice::Change, seen) => change(dice, sort, seen),
        (Choice::Apply, seen) => apply_some(dice, sort, namespace, name, seen),
        (Choice::Status, seen) => report(dice, sort, namespace, name, seen),
        (Choice::Scale, seen) => rescale(dice, namespace, name, seen),
        (Choice::Bind, _) => bind_to_node(dice, name),
        (Choice::Delete, seen) if sort == Sort::Pod && dice.chance(20) => evict(dice, namespace, name, seen),
        (Choice::Delete, seen) => delete_one(dice, sort, seen),
    }
}

fn create_one(dice: &mut Dice, sort: Sort, namespace: Option<&str>, name: &str, id: &str) -> Draft {
    let mut document = fresh_document(sort, namespace, name, dice.pick(&VALUES), id);
    if sort == Sort::CustomResourceDefinition {
        document["spec"]["versions"] = dice.pick(&VARIANTS).versions();
    }
    let generated = sort.is_namespaced() && dice.chance(20);
    if generated {
        document["metadata"]["name"] = Value::Null;
        document["metadata"]["generateName"] = rights::GENERATED.into();
        if sort == Sort::RoleBinding {
            document["subjects"][0]["name"] = rights::owner(rights::GENERATED).into();
        }
    }
    if dice.chance(30) && sort != Sort::CustomResourceDefinition {
        let count = 1 + dice.below(2);
        document["metadata"]["finalizers"] = json!(FINALIZERS[..count]);
    }
    match sort {
        Sort::Service if dice.chance(40) => document["spec"]["type"] = "NodePort".into(),
        Sort::Service if dice.chance(25) => {
            document["spec"]["clusterIP"] = format!("10.0.0.{}", 1 + dice.below(6)).into();
        }
        Sort::Widget if dice.chance(30) => document["spec"]["tier"] = dice.pick(&VALUES).into(),
        _ => {}
    }
    let act = Act::Create { wanted: expected(sort, &document), generated };
    Draft::new(act, Verb::Create, document, Format::Json)
}

fn edit(dice: &mut Dice, sort: Sort, seen: Option<&Value>) -> Edit {
    let value = |dice: &mut Dice| dice.pick(&VALUES).to_owned();
    let special = match sort {
        Sort::ConfigMap => (40, 3),
        Sort::Deployment => (25, 4),
        Sort::Lease => (40, 5),
        Sort::Widget => (50, 6),
        Sort::CustomResourceDefinition => (90, 7),
        _ => (0, 0),
    };
    let finalizers = if sort == Sort::CustomResourceDefinition { 0 } else { 35 };
    match dice.weighted(&[(30, 0), (20, 1), (finalizers, 2), special]) {
        0 if dice.chance(60) => Edit::Label("app", Some(value(dice))),
        0 => Edit::Label("tier", dice.chance(60).then(|| value(dice))),
        1 => Edit::Note("note", dice.chance(70).then(|| value(dice))),
        3 => Edit::Data(["k1", "k2"][dice.below(2)], dice.chance(70).then(|| value(dice))),
        4 => Edit::Replicas(dice.below(5) as i64),
        5 => Edit::Holder(value(dice)),
        6 if dice.chance(50) => Edit::Tier(dice.chance(60).then(|| value(dice))),
        6 if dice.chance(30) => Edit::Holder(value(dice)),
        6 => Edit::Replicas(dice.below(5) as i64),
        7 => Edit::Define(dice.pick(&VARIANTS)),
        _ => {
            // Finalizers are removed more often than they are added, so that deleted objects are gone in the end.
            let mut finalizers: Vec<String> = seen
                .and_then(|seen| seen["metadata"]["finalizers"].as_array())
                .into_iter()
                .flatten()
                .filter_map(|finalizer| finalizer.as_str().map(str::to_owned))
                .collect();
            if !finalizers.is_empty() && dice.chance(75) {
                finalizers.remove(dice.below(finalizers.len()));
            } else {
                finalizers = FINALIZERS[..dice.below(3)].iter().map(|finalizer| (*finalizer).to_owned()).collect();
            }
            Edit::Finalizers(finalizers)
        }
    }
}

fn version_of(document: &Value) -> Option<u64> {
    document["metadata"]["resourceVersion"].as_str()?.parse().ok()
}

/// A PUT of a document that the client has read and changed.
fn replace(dice: &mut Dice, sort: Sort, mut document: Value) -> Draft {
    let edit = edit(dice, sort, Some(&document));
    edit.make(&mut document);
    // A PUT of a pod without a version may be based on an old version. It would undo the binding of the pod, and a pod
    // is bound only once.
    let careful = matches!(sort, Sort::Pod | Sort::CustomResourceDefinition);
    let versioned = careful || dice.chance(if sort.needs_version() { 90 } else { 60 });
    let version = version_of(&document).filter(|_| versioned);
    let mut uid = document["metadata"]["uid"].as_str().unwrap_or("").to_owned();
    if let Some(meta) = document["metadata"].as_object_mut() {
        meta.remove("managedFields");
        if version.is_none() {
            meta.remove("resourceVersion");
        }
        if sort != Sort::Pod && dice.chance(25) {
            // The document of a client that keeps it in a file does not contain the identity of the object.
            uid.clear();
            for field in ["uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"] {
                meta.remove(field);
            }
        }
    }
    let act = Act::Replace { wanted: ObjectShape::of(sort, &document), version, uid };
    Draft::new(act, Verb::Update, document, Format::Json)
}

/// A PUT to a name of which the client knows no object.
fn put_new(dice: &mut Dice, sort: Sort, namespace: Option<&str>, name: &str, id: &str) -> Draft {
    let mut document = fresh_document(sort, namespace, name, dice.pick(&VALUES), id);
    let version = dice.chance(10).then(|| 1 + dice.below(50) as u64);
    if let Some(version) = version {
        document["metadata"]["resourceVersion"] = version.to_string().into();
    }
    let act = Act::Replace { wanted: expected(sort, &document), version, uid: String::new() };
    Draft::new(act, Verb::Update, document, Format::Json)
}

fn change(dice: &mut Dice, sort: Sort, seen: Option<&Value>) -> Draft {
    let format = dice.pick(&[PatchFormat::Merge, PatchFormat::Strategic, PatchFormat::Json]);
    // Custom kinds have no strategic merge patch. A few requests send a strategic merge patch nevertheless.
    let format = if sort.is_custom() && !dice.chance(5) && format == PatchFormat::Strategic {
        PatchFormat::Merge
    } else {
        format
    };
    let mut edit = edit(dice, sort, seen);
    if matches!(edit, Edit::Tier(None)) && format == PatchFormat::Json {
        // The defaults of the definition decide whether the object has a field to remove, so the field is set instead.
        edit = Edit::Tier(Some(dice.pick(&VALUES).to_owned()));
    }
    if edit.patch(format).is_none() {
        let name = dice.pick(&FINALIZERS);
        edit = if dice.chance(30) { Edit::AddFinalizer(name) } else { Edit::DropFinalizer(name) };
    }
    let mut patch = edit.patch(format).unwrap_or_else(|| json!({}));
    let version = seen.and_then(version_of).filter(|_| dice.chance(20));
    let test = (format == PatchFormat::Json && dice.chance(40)).then(|| dice.pick(&VALUES).to_owned());
    match &mut patch {
        Value::Array(operations) => {
            if let Some(value) = &test {
                operations.insert(0, json!({"op": "test", "path": "/metadata/labels/app", "value": value}));
            }
            if let Some(version) = version {
                let value = version.to_string();
                operations.push(json!({"op": "replace", "path": "/metadata/resourceVersion", "value": value}));
            }
        }
        patch => {
            if let Some(version) = version {
                patch["metadata"]["resourceVersion"] = version.to_string().into();
            }
        }
    }
    let wire = match format {
        PatchFormat::Merge => Format::MergePatch,
        PatchFormat::Strategic => Format::StrategicMergePatch,
        PatchFormat::Json => Format::JsonPatch,
    };
    Draft::new(Act::Change { edit, format, version, test }, Verb::Patch, patch, wire)
}

/// A server-side apply of all fields that a manager wants to have.
fn apply_some(dice: &mut Dice, sort: Sort, namespace: Option<&str>, name: &str, seen: Option<&Value>) -> Draft {
    let mut body = bare_document(sort, namespace, name);
    let mut fields = BTreeMap::new();
    for field in FIELDS {
        let fits = match field {
            ContestedField::Label(_) | ContestedField::Note(_) => true,
            ContestedField::Data(_) => sort == Sort::ConfigMap,
            ContestedField::Replicas => sort.is_scaled(),
            ContestedField::Holder => sort == Sort::Lease,
            ContestedField::Tier => sort == Sort::Widget,
        };
        if !fits || dice.chance(60) {
            continue;
        }
        // The applied value is often the value that the field already has, so that several managers own the field.
        let there = seen.map(|seen| field.of(seen).clone()).filter(|value| !value.is_null());
        let value = match (there, field) {
            (Some(there), _) if dice.chance(50) => there,
            (_, ContestedField::Replicas) => json!(dice.below(5)),
            _ => json!(dice.pick(&VALUES)),
        };
        field.put(&mut body, value.clone());
        fields.insert(field, value);
    }
    let (manager, force) = (dice.pick(&MANAGERS).to_owned(), dice.chance(30));
    let act = Act::Apply { fields, manager: manager.clone(), force };
    let mut draft = Draft::new(act, Verb::Patch, body, Format::ApplyPatch);
    draft.options.field_manager = Some(manager);
    draft.options.force = (force || dice.chance(30)).then_some(force);
    draft
}

/// An update of the status by a kubelet or a controller: a PUT of the whole object, or a patch in any format.
fn report(dice: &mut Dice, sort: Sort, namespace: Option<&str>, name: &str, seen: Option<&Value>) -> Draft {
    let (status, shown) = match sort {
        Sort::Deployment => {
            // The generation is at least 1, because the core omits a generation of 0.
            let generation = 1 + dice.below(20) as i64;
            (generation.to_string(), json!({"observedGeneration": generation}))
        }
        _ => {
            let phase = dice.pick(&["Running", "Running", "Succeeded", "Failed"]);
            (phase.to_owned(), json!({"phase": phase}))
        }
    };
    match seen {
        Some(seen) if dice.chance(50) => {
            let mut document = seen.clone();
            let version = version_of(&document);
            for (field, value) in shown.as_object().into_iter().flatten() {
                document["status"][field] = value.clone();
            }
            // The document also changes the spec, because an update of the status must ignore this change.
            document["spec"]["replicas"] = json!(99);
            Draft::new(Act::Status { status, version }, Verb::Update, document, Format::Json).on("status")
        }
        _ => {
            let spec = if sort == Sort::Widget { json!({"replicas": 98}) } else { json!({"paused": true}) };
            let act = Act::Status { status, version: None };
            let format = dice.weighted(&[
                (5, Format::MergePatch),
                (if sort.is_custom() { 0 } else { 2 }, Format::StrategicMergePatch),
                (2, Format::JsonPatch),
                (2, Format::ApplyPatch),
            ]);
            // As in Kubernetes, an update of a status can change no other part of the object, except a pod's labels.
            let outside = match sort {
                Sort::Pod => ("/spec/hostname", json!("other")),
                _ => ("/metadata/labels", json!({"app": "none"})),
            };
            let body = match format {
                Format::JsonPatch => json!([
                    {"op": "add", "path": "/status", "value": shown},
                    {"op": "add", "path": outside.0, "value": outside.1},
                ]),
                Format::ApplyPatch => {
                    let mut body = bare_document(sort, namespace, name);
                    body["status"] = shown;
                    body
                }
                _ => json!({"status": shown, "spec": spec}),
            };
            let mut draft = Draft::new(act, Verb::Patch, body, format).on("status");
            if format == Format::ApplyPatch {
                draft.options.field_manager = Some(dice.pick(&MANAGERS).to_owned());
                draft.options.force = Some(true);
            }
            draft
        }
    }
}

fn rescale(dice: &mut Dice, namespace: Option<&str>, name: &str, seen: Option<&Value>) -> Draft {
    let replicas = dice.below(6) as i64;
    let version = seen.and_then(version_of).filter(|_| dice.chance(50));
    let put = dice.chance(50);
    let mut body = json!({"metadata": {}, "spec": {"replicas": replicas}});
    if let Some(version) = version {
        body["metadata"]["resourceVersion"] = version.to_string().into();
    }
    if put {
        body["kind"] = "Scale".into();
        body["apiVersion"] = "autoscaling/v1".into();
        body["metadata"]["name"] = name.into();
        body["metadata"]["namespace"] = namespace.unwrap_or("").into();
    }
    let (verb, format) = if put { (Verb::Update, Format::Json) } else { (Verb::Patch, Format::MergePatch) };
    Draft::new(Act::Scale { replicas, version }, verb, body, format).on("scale")
}

fn bind_to_node(dice: &mut Dice, name: &str) -> Draft {
    let node = dice.pick(&NODES).to_owned();
    let body = json!({
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    });
    Draft::new(Act::Bind { node }, Verb::Create, body, Format::Json).on("binding")
}

/// An eviction of a pod. The simulation has no PodDisruptionBudgets, so an eviction is a deletion.
fn evict(dice: &mut Dice, namespace: Option<&str>, name: &str, seen: Option<&Value>) -> Draft {
    let grace = dice.chance(30).then_some(0);
    let uid = seen.and_then(|seen| seen["metadata"]["uid"].as_str()).filter(|_| dice.chance(25)).map(str::to_owned);
    let body = json!({
        "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": namespace},
    });
    let act = Act::Delete { grace, policy: None, uid: uid.clone(), version: None };
    let mut draft = Draft::new(act, Verb::Create, body, Format::Json).on("eviction");
    // For an eviction, the transport reads these options from the body of the request.
    draft.options.delete.grace_period_seconds = grace;
    draft.options.delete.precondition_uid = uid;
    draft
}

fn delete_one(dice: &mut Dice, sort: Sort, seen: Option<&Value>) -> Draft {
    let grace = match dice.below(4) {
        0 => Some(0),
        1 => Some(10),
        _ => None,
    };
    let policy = match dice.below(8) {
        // Only the server may remove the finalizer of a CustomResourceDefinition.
        _ if sort == Sort::CustomResourceDefinition => None,
        0 => Some("Orphan"),
        1 => Some("Foreground"),
        2 | 3 => Some("Background"),
        _ => None,
    };
    let uid = seen.and_then(|seen| seen["metadata"]["uid"].as_str()).filter(|_| dice.chance(25)).map(str::to_owned);
    let version = seen.and_then(version_of).filter(|_| dice.chance(15));
    let mut draft =
        Draft::new(Act::Delete { grace, policy, uid: uid.clone(), version }, Verb::Delete, Value::Null, Format::Json);
    let options = &mut draft.options.delete;
    options.grace_period_seconds = grace;
    options.propagation_policy = policy.map(str::to_owned);
    options.precondition_uid = uid;
    options.precondition_resource_version = version.map(|version| version.to_string());
    draft
}
