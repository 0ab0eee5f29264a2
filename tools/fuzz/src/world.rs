//! A small cluster for requests, and the invariants after each request.

use super::edges::NUMBERS;
use super::input::{self, Choices};
use holdfast_core::apply::apply;
use holdfast_core::authz::User;
use holdfast_core::event::{Operation, Record};
use holdfast_core::kinds::{Kind, registry};
use holdfast_core::object::Draft;
use holdfast_core::pipeline::{Basis, Decision, Settings, actor, decide};
use holdfast_core::refusal::Refusal;
use holdfast_core::request::{Body, DeleteOptions, FieldValidation, Format, Options, Request, Target, Verb};
use holdfast_core::schema::layout::Layout;
use holdfast_core::schema::schema;
use holdfast_core::stamp::Stamp;
use holdfast_core::state::{Change, Entry, Recent, State};
use holdfast_core::wire::table::{
    Form, IncludeObject, ListMeta, MetaVersion, Source, cells, partial_object_metadata, table,
};
use holdfast_value::{Value, json};
use std::sync::{Arc, LazyLock};

/// The objects of the cluster before the first request: path and body of each create.
fn first_objects() -> Vec<(&'static str, Value)> {
    let pod = json!({"containers": [{"name": "web", "image": "nginx"}]});
    let deployment = json!({
        "metadata": {"name": "web", "labels": {"app": "web"}},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": pod},
        },
    });
    let service = json!({
        "metadata": {"name": "web"},
        "spec": {"type": "NodePort", "selector": {"app": "web"}, "ports": [{"port": 80, "nodePort": 30001}]},
    });
    let scaler = json!({
        "metadata": {"name": "web"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "maxReplicas": 5,
            "behavior": {"scaleDown": {"stabilizationWindowSeconds": 3}},
            "metrics": [{
                "type": "Resource",
                "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}},
            }],
        },
    });
    let definition = json!({
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com",
            "names": {"plural": "widgets", "kind": "Widget"},
            "scope": "Namespaced",
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object"}}}},
            }],
        },
    });
    let rule = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]});
    let data = json!({"metadata": {"name": "web", "annotations": {"a": "1"}}, "data": {"k": "v"}});
    let subject = json!({"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "jane"});
    let role_ref = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "web"});
    vec![
        ("v1 namespaces -", json!({"metadata": {"name": "default"}})),
        ("v1 namespaces -", json!({"metadata": {"name": "other"}})),
        ("v1 configmaps default", data),
        ("v1 pods default", json!({"metadata": {"name": "web", "finalizers": ["example.com/a"]}, "spec": pod})),
        // The pod is bound to a node, so a deletion gives the pod a grace period.
        (
            "v1 pods default",
            json!({"metadata": {"name": "a"}, "spec": {"nodeName": "n", "containers": [{"name": "a", "image": "a"}]}}),
        ),
        ("v1 services default", service),
        ("apps/v1 deployments default", deployment),
        ("autoscaling/v2 horizontalpodautoscalers default", scaler),
        ("apiextensions.k8s.io/v1 customresourcedefinitions -", definition),
        ("rbac.authorization.k8s.io/v1 roles default", json!({"metadata": {"name": "web"}, "rules": [rule]})),
        (
            "rbac.authorization.k8s.io/v1 rolebindings default",
            json!({"metadata": {"name": "web"}, "roleRef": role_ref, "subjects": [subject]}),
        ),
    ]
}

/// The cluster with which every input begins.
pub fn world() -> World {
    static FIRST: LazyLock<World> = LazyLock::new(|| {
        let mut world = World { state: State::new(Arc::new(registry().clone())), requests: 0 };
        for (path, body) in first_objects() {
            let line = format!("create json {path}");
            let request = request(&world.state, &line, body.to_string().as_bytes());
            world.submit(&request).unwrap_or_else(|refusal| panic!("{path}: {refusal:?}"));
        }
        world
    });
    FIRST.clone()
}

#[derive(Clone)]
pub struct World {
    pub state: State,
    requests: u64,
}

impl World {
    /// Decides a request and applies the decision.
    pub fn submit(&mut self, request: &Request) -> Result<(), Refusal> {
        self.requests += 1;
        let time = jiff::Timestamp::from_second(1_795_000_000 + self.requests as i64).expect("within range");
        let stamp = Stamp { time, seed: self.requests };
        let decision = decide(Basis::without_authorization(&self.state, &Settings::default()), request, stamp)?;
        self.carry_out(request, decision, stamp);
        Ok(())
    }

    fn carry_out(&mut self, request: &Request, decision: Decision, stamp: Stamp) {
        let seen = self.state.clone();
        for write in decision.writes {
            let kind = self.state.kind(write.kind);
            assert_eq!(seen.version_of(write.kind, &write.key), write.expect, "decided on the newest state");
            let offset = self.state.offset.next();
            let json = write.draft.seal(offset);
            let operation = if write.delete { Operation::Delete } else { Operation::Put };
            let record = Record {
                offset: offset.0,
                time_ms: stamp.time.as_millisecond(),
                resource: kind.storage.path.clone(),
                key: write.key.to_string(),
                replaces: self.state.version_of(write.kind, &write.key).map_or(0, |offset| offset.0),
                operation: operation as i32,
                actor: actor(request),
                object: json.clone(),
            };
            let entry = Arc::new(Entry::new(json, write.draft.head(), offset, 0, write.index));
            check_entry(kind, &entry);
            if let Some(document) = write.document {
                assert_eq!(document, Recent::default().document(&entry), "what is kept is what is stored");
                self.state.recent.keep(&entry, document);
            }
            let read = Record::decode_record(&record.encode_record()).expect("a record reads back");
            let replayed = Change::from_record(&self.state.registry, &read).expect("the kind is known");
            assert_eq!(replayed.entry.index, entry.index, "replay sees what the decision saw");
            assert_eq!(replayed.entry.hub_item(), entry.hub_item());

            let change = Change { offset, kind: write.kind, key: write.key, entry, deleted: write.delete };
            apply(&mut self.state, &change);
        }
    }
}

/// Checks the invariants of a stored object.
fn check_entry(kind: &Kind, entry: &Entry) {
    let document = entry.document();
    let map = document.as_object().expect("an object");
    let again = Draft::new(&kind.versions[0].api_version(), &kind.kind, map);
    assert!(again.is(&entry.json(), entry.offset), "stored JSON is canonical: {document}");
    // An object that was stored before its definition changed need not fit the new definition.
    if !kind.is_stale(entry.offset) {
        let layout = kind.layout(0).expect("every kind has a layout");
        let mut checked = document.clone();
        let unknown = layout.check(&mut checked);
        assert_eq!(unknown.as_deref(), Ok(&[][..]), "a stored object fits its schema: {document}");
        if let Layout::Table(_, message) = layout {
            holdfast_core::kinds::show_zeros(message, &mut checked);
        }
        assert_eq!(checked, document, "a stored object is as its schema shows it");
        let mut defaulted = document.clone();
        let _ = holdfast_core::kinds::default(layout, &mut defaulted);
        let _ = holdfast_core::kinds::default(layout, &mut defaulted.clone());
    }

    for version in 0..kind.versions.len() {
        let shown: Value = serde_json::from_slice(&entry.json_in(kind, version)).expect("every form is JSON");
        let layout = kind.layout(version).expect("every version has a layout");
        let unknown = layout.check(&mut shown.clone());
        assert_eq!(unknown.as_deref(), Ok(&[][..]), "{} fits its schema: {shown}", kind.versions[version].message);
    }
    let form = Form { version: MetaVersion::V1, include: IncludeObject::Object, headers: true };
    let source = Source { hub: entry.json(), served: entry.json() };
    let shown = table(kind.shown(0), [source], 1_795_000_000, form, &ListMeta::default());
    let shown = serde_json::from_slice::<Value>(&shown).expect("a table is JSON");
    let cells = cells(&kind.shown(0).columns, &document, 1_795_000_000);
    assert_eq!(shown["rows"][0]["cells"], Value::Array(cells), "a glance is enough");
    let partial = partial_object_metadata(&entry.json(), None, MetaVersion::V1);
    serde_json::from_slice::<Value>(&partial).expect("a partial object is JSON");

    let moved = entry.at_version(entry.offset.next());
    let moved = moved.document();
    let mut expected = document.clone();
    expected["metadata"]["resourceVersion"] = entry.offset.next().to_string().into();
    assert_eq!(moved, expected, "only the version moves");
}

/// The words of verbs and formats in a request line. Any other verb means a patch, and any other format means JSON.
const VERBS: [(&str, Verb); 5] = [
    ("create", Verb::Create),
    ("update", Verb::Update),
    ("patch", Verb::Patch),
    ("delete", Verb::Delete),
    ("get", Verb::Get),
];
const FORMATS: [(&str, Format); 7] = [
    ("json", Format::Json),
    ("yaml", Format::Yaml),
    ("protobuf", Format::Protobuf),
    ("json-patch", Format::JsonPatch),
    ("merge", Format::MergePatch),
    ("strategic", Format::StrategicMergePatch),
    ("apply", Format::ApplyPatch),
];

/// A request from a line such as `patch apply apps/v1 deployments/scale default web strict force as=kubectl`.
pub fn request(state: &State, line: &str, body: &[u8]) -> Request {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let word = |at: usize| words.get(at).copied().filter(|word| *word != "-");
    let verb = VERBS.iter().find(|(name, _)| word(0) == Some(name)).map_or(Verb::Patch, |(_, verb)| *verb);
    let format = FORMATS.iter().find(|(name, _)| word(1) == Some(name)).map_or(Format::Json, |(_, format)| *format);
    let (group, version) = match word(2).unwrap_or("v1") {
        api_version if api_version.contains('/') => api_version.split_once('/').unwrap_or_default(),
        version => ("", version),
    };
    let (resource, subresource) = match word(3).unwrap_or_default().split_once('/') {
        Some((resource, subresource)) => (resource, Some(subresource.to_owned())),
        None => (word(3).unwrap_or_default(), None),
    };
    let (kind, version) = state.registry.find(group, version, resource).unwrap_or_else(|| {
        let (id, _, version) = input::kind(&state.registry, line);
        (id, version)
    });
    let known = state.kind(kind);
    let is_namespaced = known.is_namespaced();
    // Unknown subresources are left out, because the server refuses their paths before any decision.
    let subresource = subresource.filter(|name| known.subresource(0, name).is_some());
    let name = word(5).map(str::to_owned).or_else(|| (verb != Verb::Create).then(|| "web".to_owned()));
    let mut options =
        Options { field_validation: FieldValidation::Ignore, field_manager: Some("fuzz".into()), ..Options::default() };
    for word in words.iter().skip(6) {
        match *word {
            "strict" => options.field_validation = FieldValidation::Strict,
            "warn" => options.field_validation = FieldValidation::Warn,
            "force" => options.force = Some(true),
            "foreground" => options.delete.propagation_policy = Some("Foreground".into()),
            "orphan" => options.delete = DeleteOptions { orphan_dependents: Some(true), ..DeleteOptions::default() },
            other => {
                if let Some(manager) = other.strip_prefix("as=") {
                    options.field_manager = Some(manager.to_owned());
                } else if let Ok(seconds) = other.parse() {
                    options.delete.grace_period_seconds = Some(seconds);
                }
            }
        }
    }
    Request {
        user: Arc::new(User::new("jane", &["system:authenticated"])),
        verb,
        target: Target {
            kind,
            version,
            namespace: is_namespaced.then(|| word(4).unwrap_or("default").to_owned()),
            name,
            subresource,
        },
        options,
        body: Body { content: body.to_vec().into(), format },
        id: "fuzz".into(),
    }
}

/// A generated request that is valid enough to pass the first checks.
pub fn chosen_request(state: &State, choices: &mut Choices) -> Request {
    const BUSY: [(&str, &str); 8] = [
        ("v1", "pods"),
        ("v1", "services"),
        ("v1", "configmaps"),
        ("v1", "namespaces"),
        ("apps/v1", "deployments"),
        ("autoscaling/v1", "horizontalpodautoscalers"),
        ("apiextensions.k8s.io/v1beta1", "customresourcedefinitions"),
        ("rbac.authorization.k8s.io/v1", "clusterroles"),
    ];
    let (kind, version) = if choices.one_in(2) {
        let (api_version, resource) = choices.pick(&BUSY);
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        state.registry.find(group, version, resource).expect("a built-in kind")
    } else {
        let number = choices.below(1 << 16);
        let (id, _, version) = input::nth_kind(&state.registry, number);
        (id, version)
    };
    let known = state.kind(kind);
    let verb = VERBS[choices.below(4)].1;
    let format = if verb == Verb::Patch { FORMATS[3 + choices.below(4)].1 } else { Format::Json };
    let parts = known.subresources(version);
    let subresource = if !parts.is_empty() && verb != Verb::Delete && choices.one_in(4) {
        Some(parts[choices.below(parts.len())].name.clone())
    } else {
        None
    };
    let name = choices.pick(&["web", "default", "a", "a/b", "widgets.example.com"]).to_owned();
    // Custom resources get a pod template's fields, which their definition probably lacks.
    let message = schema().id(&known.versions[version].message).or(schema().id("io.k8s.api.core.v1.PodTemplate"));
    let message = message.expect("a pod template has a message");
    let body = if format == Format::JsonPatch {
        let operations = choices.below(5);
        (0..operations).map(|_| json_patch_operation(choices)).collect::<Vec<_>>().into()
    } else {
        let mut body = choices.document(schema(), message);
        if !choices.one_in(8) {
            body.insert("apiVersion", known.versions[version].api_version().into());
            body.insert("kind", known.kind.as_str().into());
        }
        if let Some(Value::Object(meta)) = body.get_mut("metadata") {
            meta.insert("name", name.as_str().into());
            // These fields would make nearly every request invalid.
            for field in ["namespace", "resourceVersion", "uid"] {
                if !choices.one_in(8) {
                    meta.remove(field);
                }
            }
            if format == Format::ApplyPatch {
                meta.remove("managedFields");
            }
        }
        Value::Object(body)
    };
    Request {
        user: Arc::new(User::new("jane", &["system:authenticated"])),
        verb,
        target: Target {
            kind,
            version,
            namespace: known.is_namespaced().then(|| "default".to_owned()),
            name: (verb != Verb::Create || choices.one_in(8)).then_some(name),
            subresource,
        },
        options: Options {
            field_manager: Some(choices.pick(&["kubectl", "fuzz", "kubectl-client-side-apply"]).to_owned()),
            field_validation: FieldValidation::Ignore,
            force: (format == Format::ApplyPatch).then(|| choices.one_in(2)),
            delete: DeleteOptions {
                grace_period_seconds: choices.one_in(2).then(|| choices.pick(&NUMBERS)),
                ..DeleteOptions::default()
            },
            ..Options::default()
        },
        body: Body { content: body.to_string().into(), format },
        id: "fuzz".into(),
    }
}

pub fn json_patch_operation(choices: &mut Choices) -> Value {
    const PARTS: [&str; 16] = [
        "metadata",
        "labels",
        "annotations",
        "finalizers",
        "spec",
        "template",
        "containers",
        "ports",
        "data",
        "0",
        "-",
        "-1",
        "~1a",
        "",
        "name",
        "99999999999999999999",
    ];
    let pointer = |choices: &mut Choices| {
        let parts = choices.below(5);
        (0..parts).map(|_| format!("/{}", choices.pick(&PARTS))).collect::<String>()
    };
    let operation = choices.pick(&["add", "remove", "replace", "move", "copy", "test"]);
    json!({"op": operation, "path": pointer(choices), "from": pointer(choices), "value": choices.anything(8)})
}
