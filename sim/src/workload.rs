//! What simulated clients ask for: few names in few namespaces, so that they get in each other's way.

use crate::random::Dice;
use crate::shape::{Act, Edit, PatchFormat, SORTS, Shape, Sort};
use crate::twin::Place;
use holdfast_core::authz::User;
use holdfast_core::namespace::Step;
use holdfast_core::object::meta;
use holdfast_core::request::{Body, Format, Options, Request, Target, Verb};
use holdfast_core::state::{Entry, State};
use serde_json::{Value, json};
use std::sync::Arc;

/// Clients make, fill and delete these; `default` is there from the beginning and stays.
pub const NAMESPACES: [&str; 4] = ["default", "n1", "n2", "n3"];
const NAMES: [&str; 3] = ["a", "b", "c"];
const FINALIZERS: [&str; 2] = ["sim.dev/a", "sim.dev/b"];
pub const VALUES: [&str; 3] = ["red", "green", "blue"];
pub const NODES: [&str; 2] = ["node-1", "node-2"];

/// One request, and what it is meant to do.
#[derive(Debug, Clone)]
pub struct Order {
    pub sort: Sort,
    /// Kinds that clients do not touch, which the janitor empties all the same, have none of the checks by shape.
    pub place: Place,
    pub act: Act,
    pub request: Request,
}

impl Order {
    pub fn namespace(&self) -> Option<&str> {
        self.request.namespace()
    }

    /// Where the object is whose name the server chose.
    pub fn place_of(&self, name: &str) -> Place {
        (self.sort.storage().to_owned(), meta::key(self.namespace(), name))
    }

    pub fn describe(&self) -> String {
        let Request { id, verb, options, .. } = &self.request;
        let dry = if options.dry_run { " (dry run)" } else { "" };
        format!("{id} {}{dry} {} {} {:?}", verb.as_str(), self.place.0, self.place.1, self.act)
    }
}

/// Draws a request of a client that looks at `seen`.
pub fn order(dice: &mut Dice, seen: &State, id: String) -> Order {
    let sort = dice.weighted(&[
        (25, Sort::ConfigMap),
        (20, Sort::Deployment),
        (20, Sort::Service),
        (20, Sort::Pod),
        (8, Sort::Lease),
        (7, Sort::Namespace),
    ]);
    let namespace = (sort != Sort::Namespace).then(|| dice.pick(&NAMESPACES).to_owned());
    let mut name = match &namespace {
        Some(_) => dice.pick(&NAMES).to_owned(),
        None => dice.pick(&NAMESPACES).to_owned(),
    };
    if dice.chance(15) {
        // One whose name the server may have generated.
        let prefix = holdfast_core::state::prefix(namespace.as_deref());
        let keys: Vec<&str> = seen.scan(kind_of(seen, sort).0, &prefix, None).map(|(key, _)| &**key).collect();
        if !keys.is_empty() {
            name = meta::split_key(dice.pick(&keys)).1.to_owned();
        }
    }
    let key = meta::key(namespace.as_deref(), &name);
    let entry = seen.get(kind_of(seen, sort).0, &key).cloned();
    let mut draft = draft(dice, sort, namespace.as_deref(), &name, entry.as_deref(), &id);
    let managers = ["kubectl", "helm"];
    draft.options.field_manager = dice.chance(80).then(|| dice.pick(&managers).to_owned());
    draft.options.dry_run = dice.chance(4);
    let generated = matches!(draft.act, Act::Create { generated: true, .. });
    let (kind, version) = kind_of(seen, sort);
    let named = draft.verb != Verb::Create || draft.subresource.is_some();
    let target = Target {
        kind,
        version,
        namespace,
        name: named.then_some(name),
        subresource: draft.subresource.map(str::to_owned),
    };
    let bytes = if draft.body.is_null() { Vec::new() } else { draft.body.to_string().into_bytes() };
    let request = Request {
        user: Arc::new(User::new("sim", &[])),
        verb: draft.verb,
        target,
        options: draft.options,
        body: Body { bytes: bytes.into(), format: draft.format },
        id,
    };
    let place = (sort.storage().to_owned(), if generated { String::new() } else { key });
    Order { sort, place, act: draft.act, request }
}

/// A request that makes a namespace at the very beginning.
pub fn bootstrap(state: &State, name: &str) -> Order {
    let document = fresh_document(Sort::Namespace, None, name, "red", "bootstrap");
    let (kind, version) = kind_of(state, Sort::Namespace);
    let request = Request {
        user: Arc::new(User::new("sim", &[])),
        verb: Verb::Create,
        target: Target { kind, version, namespace: None, name: None, subresource: None },
        options: Options::default(),
        body: Body { bytes: document.to_string().into_bytes().into(), format: Format::Json },
        id: format!("bootstrap-{name}"),
    };
    let act = Act::Create { wanted: expected(Sort::Namespace, &document), generated: false };
    Order { sort: Sort::Namespace, place: (Sort::Namespace.storage().into(), name.into()), act, request }
}

/// The janitor's request as an order; `None` for kinds that clients do not use.
pub fn house(state: &State, step: Step, id: String) -> Option<Order> {
    let mut request = step.request;
    request.id = id;
    let storage = &state.kind(request.target.kind).storage;
    let sort = SORTS.into_iter().find(|sort| sort.storage() == storage)?;
    let body: Value = serde_json::from_slice(&request.body.bytes).unwrap_or(Value::Null);
    let version = body["metadata"]["resourceVersion"].as_str().and_then(|version| version.parse().ok());
    let act = match request.target.subresource.as_deref() {
        Some("finalize") => Act::Finalize { version },
        Some(_) => Act::Tell { version },
        None => Act::Delete { grace: None, policy: None, uid: None, version: None },
    };
    Some(Order { sort, place: (storage.clone(), request.key()), act, request })
}

fn kind_of(state: &State, sort: Sort) -> (holdfast_core::kinds::KindId, usize) {
    let (group, version, resource) = sort.path();
    state.registry.find(group, version, resource).unwrap_or_else(|| panic!("{resource} is built in"))
}

struct Draft {
    act: Act,
    verb: Verb,
    subresource: Option<&'static str>,
    body: Value,
    format: Format,
    options: Options,
}

#[derive(Debug, Clone, Copy)]
enum Choice {
    Create,
    Replace,
    Change,
    Status,
    Scale,
    Bind,
    Delete,
}

fn draft(dice: &mut Dice, sort: Sort, namespace: Option<&str>, name: &str, seen: Option<&Entry>, id: &str) -> Draft {
    let create_weight = if seen.is_none() { 300 } else { 10 };
    let special = match sort {
        Sort::Deployment => [(20, Choice::Status), (20, Choice::Scale)],
        Sort::Pod => [(25, Choice::Status), (20, Choice::Bind)],
        _ => [(0, Choice::Status), (0, Choice::Scale)],
    };
    let delete_weight = if sort == Sort::Namespace { 40 } else { 35 };
    let choice = dice.weighted(&[
        (create_weight, Choice::Create),
        (30, Choice::Replace),
        (50, Choice::Change),
        (delete_weight, Choice::Delete),
        special[0],
        special[1],
    ]);
    let document = seen.map(Entry::document);
    match (choice, document) {
        (Choice::Replace, Some(document)) => replace(dice, sort, document),
        (Choice::Create | Choice::Replace, _) => create(dice, sort, namespace, name, id),
        (Choice::Change, document) => change(dice, sort, document.as_ref()),
        (Choice::Status, document) => status(dice, sort, document),
        (Choice::Scale, document) => scale(dice, namespace, name, document.as_ref()),
        (Choice::Bind, _) => bind(dice, name),
        (Choice::Delete, document) => delete(dice, document.as_ref()),
    }
}

fn create(dice: &mut Dice, sort: Sort, namespace: Option<&str>, name: &str, id: &str) -> Draft {
    let mut document = fresh_document(sort, namespace, name, dice.pick(&VALUES), id);
    let generated = sort != Sort::Namespace && dice.chance(20);
    if generated {
        document["metadata"]["name"] = Value::Null;
        document["metadata"]["generateName"] = "gen-".into();
    }
    if dice.chance(30) {
        let count = 1 + dice.below(2);
        document["metadata"]["finalizers"] = json!(FINALIZERS[..count]);
    }
    if sort == Sort::Service {
        if dice.chance(40) {
            document["spec"]["type"] = "NodePort".into();
        } else if dice.chance(15) {
            document["spec"]["clusterIP"] = format!("10.0.0.{}", 1 + dice.below(6)).into();
        }
    }
    let act = Act::Create { wanted: expected(sort, &document), generated };
    Draft {
        act,
        verb: Verb::Create,
        subresource: None,
        body: document,
        format: Format::Json,
        options: Options::default(),
    }
}

fn fresh_document(sort: Sort, namespace: Option<&str>, name: &str, value: &str, id: &str) -> Value {
    let (group, version, _) = sort.path();
    let api_version = holdfast_core::kinds::api_version(group, version);
    let mut document = json!({
        "apiVersion": api_version,
        "kind": format!("{sort:?}"),
        "metadata": {"name": name, "labels": {"app": value}, "annotations": {"origin": id}},
    });
    if let Some(namespace) = namespace {
        document["metadata"]["namespace"] = namespace.into();
    }
    let containers = json!([{"name": "main", "image": "registry.example/app:1"}]);
    match sort {
        Sort::ConfigMap => document["data"] = json!({"k0": value}),
        Sort::Deployment => {
            document["spec"] = json!({
                "replicas": 1,
                "selector": {"matchLabels": {"run": "x"}},
                "template": {"metadata": {"labels": {"run": "x"}}, "spec": {"containers": containers}},
            });
        }
        Sort::Service => document["spec"] = json!({"ports": [{"port": 80}], "selector": {"run": "x"}}),
        Sort::Pod => document["spec"] = json!({"containers": containers}),
        Sort::Lease => document["spec"] = json!({"holderIdentity": value}),
        Sort::Namespace => {}
    }
    document
}

/// The shape of a new object.
fn expected(sort: Sort, document: &Value) -> Shape {
    let mut shape = Shape::of(sort, document);
    match sort {
        Sort::Pod => shape.status = Some("Pending".into()),
        Sort::Namespace => {
            shape.status = Some("Active".into());
            shape.held = true;
            let name = document["metadata"]["name"].as_str().unwrap_or("");
            shape.labels.insert("kubernetes.io/metadata.name".into(), name.into());
        }
        _ => {}
    }
    shape
}

fn edit(dice: &mut Dice, sort: Sort, seen: Option<&Value>) -> Edit {
    let value = |dice: &mut Dice| dice.pick(&VALUES).to_owned();
    let special = match sort {
        Sort::ConfigMap => (40, 3),
        Sort::Deployment => (25, 4),
        Sort::Lease => (40, 5),
        _ => (0, 0),
    };
    match dice.weighted(&[(30, 0), (20, 1), (35, 2), special]) {
        0 if dice.chance(60) => Edit::Label("app", Some(value(dice))),
        0 => Edit::Label("tier", dice.chance(60).then(|| value(dice))),
        1 => Edit::Note("note", dice.chance(70).then(|| value(dice))),
        3 => Edit::Data(["k1", "k2"][dice.below(2)], dice.chance(70).then(|| value(dice))),
        4 => Edit::Replicas(dice.below(5) as i64),
        5 => Edit::Holder(value(dice)),
        _ => {
            // Mostly taken away, so that what was deleted goes in the end.
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

/// A read, a change and a PUT.
fn replace(dice: &mut Dice, sort: Sort, mut document: Value) -> Draft {
    let edit = edit(dice, sort, Some(&document));
    edit.make(&mut document);
    // A pod is bound but once: a PUT made from an older version would take it back.
    let versioned = sort == Sort::Pod || dice.chance(if sort == Sort::Lease { 90 } else { 60 });
    let version = version_of(&document).filter(|_| versioned);
    let mut uid = document["metadata"]["uid"].as_str().unwrap_or("").to_owned();
    if let Some(meta) = document["metadata"].as_object_mut() {
        meta.remove("managedFields");
        if version.is_none() {
            meta.remove("resourceVersion");
        }
        if sort != Sort::Pod && dice.chance(25) {
            // A document from a file: it knows nothing of the object's identity.
            uid.clear();
            for field in ["uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"] {
                meta.remove(field);
            }
        }
    }
    let act = Act::Replace { wanted: Shape::of(sort, &document), version, uid };
    Draft {
        act,
        verb: Verb::Update,
        subresource: None,
        body: document,
        format: Format::Json,
        options: Options::default(),
    }
}

fn change(dice: &mut Dice, sort: Sort, seen: Option<&Value>) -> Draft {
    let format = dice.pick(&[PatchFormat::Merge, PatchFormat::Strategic, PatchFormat::Json]);
    let mut edit = edit(dice, sort, seen);
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
    let act = Act::Change { edit, format, version, test };
    Draft { act, verb: Verb::Patch, subresource: None, body: patch, format: wire, options: Options::default() }
}

/// What a kubelet or a controller reports: by PUT of all it knows, or by a patch of the status alone.
fn status(dice: &mut Dice, sort: Sort, seen: Option<Value>) -> Draft {
    let (status, shown) = match sort {
        Sort::Pod => {
            let phase = dice.pick(&["Running", "Running", "Succeeded", "Failed"]);
            (phase.to_owned(), json!({"phase": phase}))
        }
        _ => {
            let generation = dice.below(20) as i64;
            (generation.to_string(), json!({"observedGeneration": generation}))
        }
    };
    let subresource = Some("status");
    match seen {
        Some(mut document) if dice.chance(50) => {
            let version = version_of(&document);
            for (field, value) in shown.as_object().into_iter().flatten() {
                document["status"][field] = value.clone();
            }
            // The status endpoint must not let this through.
            document["spec"]["replicas"] = json!(99);
            let act = Act::Status { status, version };
            let options = Options::default();
            Draft { act, verb: Verb::Update, subresource, body: document, format: Format::Json, options }
        }
        _ => Draft {
            act: Act::Status { status, version: None },
            verb: Verb::Patch,
            subresource,
            body: json!({"status": shown, "spec": {"paused": true}}),
            format: Format::MergePatch,
            options: Options::default(),
        },
    }
}

fn scale(dice: &mut Dice, namespace: Option<&str>, name: &str, seen: Option<&Value>) -> Draft {
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
    let act = Act::Scale { replicas, version };
    Draft { act, verb, subresource: Some("scale"), body, format, options: Options::default() }
}

fn bind(dice: &mut Dice, name: &str) -> Draft {
    let node = dice.pick(&NODES).to_owned();
    let body = json!({
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    });
    let act = Act::Bind { node };
    let options = Options::default();
    Draft { act, verb: Verb::Create, subresource: Some("binding"), body, format: Format::Json, options }
}

fn delete(dice: &mut Dice, seen: Option<&Value>) -> Draft {
    let grace = match dice.below(4) {
        0 => Some(0),
        1 => Some(10),
        _ => None,
    };
    let policy = match dice.below(8) {
        0 => Some("Orphan"),
        1 => Some("Foreground"),
        2 | 3 => Some("Background"),
        _ => None,
    };
    let uid = seen.and_then(|seen| seen["metadata"]["uid"].as_str()).filter(|_| dice.chance(25)).map(str::to_owned);
    let version = seen.and_then(version_of).filter(|_| dice.chance(15));
    let mut options = Options::default();
    options.delete.grace_period_seconds = grace;
    options.delete.propagation_policy = policy.map(str::to_owned);
    options.delete.precondition_uid = uid.clone();
    options.delete.precondition_resource_version = version.map(|version| version.to_string());
    let act = Act::Delete { grace, policy, uid, version };
    Draft { act, verb: Verb::Delete, subresource: None, body: Value::Null, format: Format::Json, options }
}
