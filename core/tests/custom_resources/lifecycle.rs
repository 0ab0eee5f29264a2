//! Tests what happens to definitions and their objects when definitions are created, want the same names, change and
//! are deleted.

use super::world::{DEFINITIONS, World, condition, words};
use holdfast_core::refusal::Refusal;
use holdfast_core::request::{Format, Verb};
use holdfast_value::{Value, json};

const GROUP: &str = "things.fixtures.example";

/// A definition with these versions. Objects are stored in the first version.
pub fn definition(plural: &str, kind: &str, short_names: &[&str], versions: &[Value]) -> Value {
    let mut definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{GROUP}")},
        "spec": {
            "group": GROUP, "scope": "Namespaced", "versions": versions,
            "names": {"plural": plural, "singular": kind.to_lowercase(), "kind": kind, "shortNames": short_names},
        },
    });
    definition["spec"]["versions"][0]["storage"] = true.into();
    definition
}

/// A served version of a definition. The spec of its objects has these fields.
pub fn version(name: &str, fields: &Value) -> Value {
    json!({
        "name": name, "served": true, "storage": false, "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {
            "spec": {"type": "object", "properties": fields},
            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        }}},
    })
}

fn colored() -> Value {
    version("v1", &json!({"color": {"type": "string"}, "size": {"type": "integer"}}))
}

fn things(version: &str, plural: &str) -> String {
    format!("/apis/{GROUP}/{version}/namespaces/shop/{plural}")
}

fn of(plural: &str) -> String {
    format!("{DEFINITIONS}/{plural}.{GROUP}")
}

fn thing(version: &str, kind: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": format!("{GROUP}/{version}"), "kind": kind, "metadata": {"name": name}, "spec": spec})
}

fn held(definition: &Value, name: &str, expected: &str) {
    let found = condition(definition, name).map(|(status, reason, message)| format!("{status} {reason}: {message}"));
    assert_eq!(found.unwrap_or_default(), expected, "{name}");
}

trait Good {
    fn good(self) -> Value;
}

impl Good for Result<Value, Refusal> {
    #[track_caller]
    fn good(self) -> Value {
        self.unwrap_or_else(|refusal| panic!("{}", words(&refusal)))
    }
}

/// A custom kind with the name of a built-in kind behaves like any custom kind.
#[test]
fn a_kind_with_the_name_of_a_built_in_one_is_a_custom_kind_like_others() {
    let mut world = World::new();
    let text = json!({"type": "string"});
    let fields = json!({"type": text, "clusterIP": text, "finalizers": {"type": "array", "items": text}});
    for (plural, kind) in [("services", "Service"), ("namespaces", "Namespace"), ("pods", "Pod")] {
        world.create(DEFINITIONS, &definition(plural, kind, &[], &[version("v1", &fields)])).good();
        let spec = json!({"type": "LoadBalancer", "finalizers": ["kubernetes"]});
        let mut object = thing("v1", kind, "kube-system", &spec);
        object["status"] = json!({"phase": "Terminating"});
        let created = world.create(&things("v1", plural), &object).good();
        assert_eq!(created["spec"], spec, "{kind}: nothing is allocated");
        assert!(created.get("status").is_none(), "{kind}");
        let name = format!("{}/kube-system", things("v1", plural));
        world.merge(&name, &json!({"metadata": {"finalizers": ["example.com/hold"]}})).good();
        world.delete(&name).expect("nothing is immortal but the namespaces of the cluster");
        let deleting = world.get(&name).good();
        assert!(deleting.get("status").is_none(), "{kind}: deleting changes the metadata alone");
        assert_eq!(deleting["metadata"]["deletionGracePeriodSeconds"], 0);
        world.merge(&name, &json!({"metadata": {"finalizers": null}})).good();
        assert!(matches!(world.get(&name), Err(Refusal::NotFound(_))), "{kind}: its spec holds nothing back");
    }
    world.check_history();
}

#[test]
fn names_belong_to_the_first_and_are_freed_when_it_goes() {
    let mut world = World::new();
    world.create(DEFINITIONS, &definition("widgets", "Widget", &["w"], &[colored()])).good();
    let second = definition("gadgets", "Widget", &["w", "g"], &[colored()]);
    let second = world.create(DEFINITIONS, &second).good();
    held(&second, "NamesAccepted", "False ListKindConflict: \"WidgetList\" is already in use");
    held(&second, "Established", "False NotAccepted: not all names are accepted");
    assert_eq!(second["status"]["acceptedNames"], json!({"plural": "gadgets", "kind": ""}));
    assert!(world.target(&things("v1", "gadgets")).is_none());
    // Two definitions wait for the names of the deleted definition. One of them gets the names.
    let third = definition("gizmos", "Gizmo", &["g", "w"], &[colored()]);
    held(
        &world.create(DEFINITIONS, &third).good(),
        "NamesAccepted",
        "False ShortNamesConflict: \"w\" is already in use",
    );
    world.settle();
    assert!(world.target(&things("v1", "gizmos")).is_none());

    world.delete(&of("widgets")).expect("a deletion");
    world.settle();
    assert!(matches!(world.get(&of("widgets")), Err(Refusal::NotFound(_))));
    let second = world.get(&of("gadgets")).good();
    held(&second, "NamesAccepted", "True NoConflicts: no conflicts found");
    held(&second, "Established", "True InitialNamesAccepted: the initial names have been accepted");
    let third = world.get(&of("gizmos")).good();
    assert_eq!(condition(&third, "NamesAccepted").expect("a condition").0, "False");
    world.create(&things("v1", "gadgets"), &thing("v1", "Widget", "a", &json!({"color": "red"}))).good();

    // The definition no longer wants names that another definition has, so it gets its names at once.
    world.merge(&of("gizmos"), &json!({"spec": {"names": {"shortNames": ["gz"]}}})).good();
    world.create(&things("v1", "gizmos"), &thing("v1", "Gizmo", "a", &json!({}))).good();
    world.check_history();
}

#[test]
fn a_definition_waits_for_somebody_to_trust() {
    let mut world = World::new();
    let mut widgets = definition("widgets", "Widget", &[], &[colored()]);
    let client = json!({"url": "https://example.test/convert", "caBundle": "Cg=="});
    widgets["spec"]["conversion"] =
        json!({"strategy": "Webhook", "webhook": {"clientConfig": client, "conversionReviewVersions": ["v1"]}});
    let widgets = world.create(DEFINITIONS, &widgets).good();
    held(&widgets, "NamesAccepted", "True NoConflicts: no conflicts found");
    held(&widgets, "Established", "False InvalidCABundle: The conversion webhook CABundle is invalid");
    assert!(world.target(&things("v1", "widgets")).is_none());
    let trusted = json!({"spec": {"conversion": {"webhook": {"clientConfig": {"caBundle": null}}}}});
    let widgets = world.merge(&of("widgets"), &trusted).good();
    held(&widgets, "Established", "True InitialNamesAccepted: the initial names have been accepted");
    assert!(world.target(&things("v1", "widgets")).is_some());
}

#[test]
fn who_is_established_keeps_the_names_that_it_has() {
    let mut world = World::new();
    world.create(DEFINITIONS, &definition("widgets", "Widget", &["w"], &[colored()])).good();
    world.create(DEFINITIONS, &definition("gizmos", "Gizmo", &["g"], &[colored()])).good();
    let asked = json!({"spec": {"names": {"shortNames": ["w", "x"], "categories": ["all"]}}});
    let gizmos = world.merge(&of("gizmos"), &asked).good();
    held(&gizmos, "NamesAccepted", "False ShortNamesConflict: \"w\" is already in use");
    held(&gizmos, "Established", "True InitialNamesAccepted: the initial names have been accepted");
    let target = world.target(&things("v1", "gizmos")).expect("still served");
    assert_eq!(world.state.kind(target.kind).short_names, ["g"]);
    assert_eq!(world.state.kind(target.kind).categories, ["all"]);
    for (change, expected) in [
        (json!({"spec": {"scope": "Cluster"}}), "spec.scope: Invalid value: \"Cluster\": field is immutable"),
        (
            json!({"spec": {"names": {"kind": "Other"}}}),
            "spec.names.kind: Invalid value: \"Other\": field is immutable",
        ),
        (
            json!({"spec": {"group": "other.example"}}),
            "spec.group: Invalid value: \"other.example\": field is immutable",
        ),
    ] {
        let refusal = world.merge(&of("gizmos"), &change).expect_err("a change of what stays");
        assert!(words(&refusal).contains(expected), "{}", words(&refusal));
    }
    world.delete(&of("widgets")).expect("a deletion");
    world.settle();
    let target = world.target(&things("v1", "gizmos")).expect("still served");
    assert_eq!(world.state.kind(target.kind).short_names, ["w", "x"]);
    world.check_history();
}

/// When the manager that owns the last owned field of the metadata removes the field, the metadata must not disappear:
/// the object keeps its name.
#[test]
fn the_last_field_of_the_metadata_can_be_taken_back() {
    let mut world = World::new();
    world.create(DEFINITIONS, &definition("things", "Thing", &[], &[colored()])).good();
    let at = format!("{}/a", things("v1", "things"));
    let mut wanted = thing("v1", "Thing", "a", &json!({"color": "red"}));
    wanted["metadata"]["labels"] = json!({"app": "web"});
    world.apply(&at, &wanted, "one").good();
    wanted["metadata"].as_object_mut().expect("metadata").remove("labels");
    let left = world.apply(&at, &wanted, "one").good();
    assert_eq!(left["metadata"]["name"], "a");
    assert_eq!(left["metadata"].get("labels"), None);
}

#[test]
fn a_definition_goes_after_its_objects_and_can_come_again() {
    let mut world = World::new();
    let widgets = definition("widgets", "Widget", &[], &[colored()]);
    let first = world.create(DEFINITIONS, &widgets).good();
    let path = things("v1", "widgets");
    world.create(&path, &thing("v1", "Widget", "plain", &json!({}))).good();
    let mut held_back = thing("v1", "Widget", "held", &json!({"size": 1}));
    held_back["metadata"]["finalizers"] = json!(["things.fixtures.example/hold"]);
    world.create(&path, &held_back).good();

    world.delete(&of("widgets")).expect("a deletion");
    let going = world.get(&of("widgets")).good();
    assert_eq!(going["metadata"]["finalizers"], json!(["customresourcecleanup.apiextensions.k8s.io"]));
    assert_eq!(condition(&going, "Terminating").expect("a condition").1, "InstanceDeletionPending");
    let refusal = world.create(&path, &thing("v1", "Widget", "late", &json!({}))).expect_err("a late create");
    assert!(matches!(refusal, Refusal::Forbidden { .. }), "{refusal:?}");
    world.settle();
    assert_eq!(world.list(&path, "").expect("a list"), ["held"]);
    let waiting = world.get(&of("widgets")).good();
    assert_eq!(condition(&waiting, "Terminating").expect("a condition").1, "InstanceDeletionInProgress");
    world.merge(&format!("{path}/held"), &json!({"spec": {"size": 2}})).good();
    world.merge(&format!("{path}/held"), &json!({"metadata": {"finalizers": null}})).good();
    world.settle();
    assert!(matches!(world.get(&of("widgets")), Err(Refusal::NotFound(_))));
    assert!(world.target(&path).is_none());

    let second = world.create(DEFINITIONS, &widgets).good();
    assert_ne!(first["metadata"]["uid"], second["metadata"]["uid"]);
    assert_eq!(world.list(&path, "").expect("a list"), Vec::<String>::new());
    world.create(&path, &thing("v1", "Widget", "plain", &json!({}))).good();
    world.check_history();
}

#[test]
fn objects_whose_definition_was_torn_away_wait_for_the_next() {
    let mut world = World::new();
    world.create(DEFINITIONS, &definition("widgets", "Widget", &[], &[colored()])).good();
    let path = things("v1", "widgets");
    world.create(&path, &thing("v1", "Widget", "a", &json!({"color": "red"}))).good();
    world.delete(&of("widgets")).expect("a deletion");
    world.merge(&of("widgets"), &json!({"metadata": {"finalizers": null}})).good();
    assert!(matches!(world.get(&of("widgets")), Err(Refusal::NotFound(_))));
    assert!(world.target(&path).is_none());
    world.settle();

    let mut again =
        version("v1", &json!({"color": {"type": "string"}, "shape": {"type": "string", "default": "round"}}));
    again["selectableFields"] = json!([{"jsonPath": ".spec.color"}]);
    world.create(DEFINITIONS, &definition("widgets", "Widget", &[], &[again])).good();
    let found = world.get(&format!("{path}/a")).good();
    assert_eq!(found["spec"], json!({"color": "red", "shape": "round"}));
    assert_eq!(world.list(&path, "spec.color=red").expect("a list"), ["a"]);
    world.merge(&format!("{path}/a"), &json!({"spec": {"color": "blue"}})).good();
    world.delete(&of("widgets")).expect("a deletion");
    world.settle();
    assert!(world.target(&path).is_none());
    world.check_history();
}

#[test]
fn versions_that_objects_are_stored_in_stay() {
    let mut world = World::new();
    let second = version("v2", &json!({"color": {"type": "string"}}));
    let versions = |stored: usize| -> Vec<Value> {
        let mut versions = [colored(), second.clone()];
        versions[stored]["storage"] = true.into();
        versions.into()
    };
    world.create(DEFINITIONS, &definition("widgets", "Widget", &[], &versions(0))).good();
    let (old, new) = (things("v1", "widgets"), things("v2", "widgets"));
    world.create(&old, &thing("v1", "Widget", "a", &json!({"color": "red", "size": 1}))).good();
    let moved = world.merge(&of("widgets"), &json!({"spec": {"versions": versions(1)}})).good();
    assert_eq!(moved["status"]["storedVersions"], json!(["v1", "v2"]));
    // The object is stored in one version and can be read in both.
    assert_eq!(world.get(&format!("{old}/a")).good()["spec"], json!({"color": "red", "size": 1}));
    let shown = world.get(&format!("{new}/a")).good();
    assert_eq!(shown["spec"], json!({"color": "red"}));

    let only_second = json!({"spec": {"versions": [versions(1)[1]]}});
    let refusal = world.merge(&of("widgets"), &only_second).expect_err("objects may be stored in v1");
    let expected = "status.storedVersions[0]: Invalid value: \"v1\": missing from spec.versions; v1 was previously a storage version";
    assert!(words(&refusal).contains(expected), "{}", words(&refusal));

    // Any write, even a write that changes nothing, stores the object in the new version.
    world.update(&format!("{new}/a"), &shown).good();
    assert_eq!(world.events, 1, "an object is stored in its new version");
    let done = json!({"status": {"storedVersions": ["v2"]}});
    world.merge(&format!("{}/status", of("widgets")), &done).good();
    world.merge(&of("widgets"), &only_second).good();
    assert!(world.target(&old).is_none());
    assert_eq!(world.get(&format!("{new}/a")).good()["spec"], json!({"color": "red"}));
    world.check_history();
}

#[test]
fn a_new_default_shows_at_once_and_is_stored_with_the_next_write() {
    let mut world = World::new();
    let with = |default: Option<&str>| {
        let mut version = colored();
        version["selectableFields"] = json!([{"jsonPath": ".spec.color"}]);
        if let Some(default) = default {
            version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["color"]["default"] =
                default.into();
        }
        definition("widgets", "Widget", &[], &[version])["spec"]["versions"].clone()
    };
    let mut widgets = definition("widgets", "Widget", &[], &[colored()]);
    widgets["spec"]["versions"] = with(None);
    world.create(DEFINITIONS, &widgets).good();
    let path = things("v1", "widgets");
    for name in ["a", "b"] {
        world.create(&path, &thing("v1", "Widget", name, &json!({"size": 1}))).good();
    }
    world.merge(&of("widgets"), &json!({"spec": {"versions": with(Some("blue"))}})).good();
    let read = world.get(&format!("{path}/a")).good();
    assert_eq!(read["spec"], json!({"color": "blue", "size": 1}));
    assert_eq!(world.list(&path, "spec.color=blue").expect("a list"), ["a", "b"]);
    let written = world.update(&format!("{path}/a"), &read).good();
    assert_eq!((&written["spec"], world.events), (&read["spec"], 1));
    assert_eq!(written["metadata"]["generation"], 1, "what everybody saw has not changed");
    // The schema now has another default. Object `a` was written while `blue` was the default, so it keeps `blue`.
    world.merge(&of("widgets"), &json!({"spec": {"versions": with(Some("green"))}})).good();
    assert_eq!(world.get(&format!("{path}/a")).good()["spec"]["color"], "blue");
    assert_eq!(world.get(&format!("{path}/b")).good()["spec"]["color"], "green");
    world.check_history();
}

#[test]
fn a_field_that_is_lost_hides_and_goes_with_the_next_write() {
    let mut world = World::new();
    world.create(DEFINITIONS, &definition("widgets", "Widget", &[], &[colored()])).good();
    let path = things("v1", "widgets");
    for name in ["a", "b"] {
        world.create(&path, &thing("v1", "Widget", name, &json!({"color": "red", "size": 1}))).good();
    }
    let without = version("v1", &json!({"size": {"type": "integer"}}));
    let versions =
        |version: Value| json!({"spec": {"versions": definition("", "", &[], &[version])["spec"]["versions"]}});
    world.merge(&of("widgets"), &versions(without)).good();
    for name in ["a", "b"] {
        assert_eq!(world.get(&format!("{path}/{name}")).good()["spec"], json!({"size": 1}));
    }
    let mut again = thing("v1", "Widget", "c", &json!({"color": "red"}));
    world.create(&path, &again).good();
    assert_eq!(world.warnings, ["unknown field \"spec.color\""]);
    again["metadata"]["name"] = "d".into();
    let mut request = world.request(Verb::Create, &path, Format::Json, again.to_string().into_bytes()).expect("a path");
    request.options.field_validation = holdfast_core::request::FieldValidation::Strict;
    let refusal = world.submit(&request).expect_err("an unknown field");
    assert!(words(&refusal).contains("strict decoding error: unknown field \"spec.color\""), "{}", words(&refusal));
    world.merge(&format!("{path}/a"), &json!({"spec": {"size": 2}})).good();
    world.merge(&of("widgets"), &versions(colored())).good();
    assert_eq!(world.get(&format!("{path}/a")).good()["spec"], json!({"size": 2}));
    assert_eq!(world.get(&format!("{path}/b")).good()["spec"], json!({"color": "red", "size": 1}));
    world.check_history();
}

#[test]
fn generations_count_what_is_desired() {
    for has_status in [true, false] {
        let mut world = World::new();
        let mut one = colored();
        if !has_status {
            one["subresources"] = Value::Null;
        }
        world.create(DEFINITIONS, &definition("widgets", "Widget", &[], &[one])).good();
        let path = things("v1", "widgets");
        let mut object = thing("v1", "Widget", "a", &json!({"size": 1}));
        object["status"] = json!({"phase": "New"});
        object["metadata"]["generation"] = 7.into();
        let made = world.create(&path, &object).good();
        assert_eq!(made["metadata"]["generation"], 1);
        assert_eq!(made["status"].is_null(), has_status);
        let at = format!("{path}/a");
        let mut expected = 1;
        for (change, counts) in [
            (json!({"metadata": {"labels": {"a": "b"}}}), false),
            (json!({"spec": {"size": 2}}), true),
            (json!({"spec": {"size": 2}}), false),
            (json!({"status": {"phase": "Old"}}), !has_status),
            (json!({"metadata": {"generation": 9}}), false),
        ] {
            let found = world.merge(&at, &change).good();
            expected += i64::from(counts);
            assert_eq!(found["metadata"]["generation"], expected, "{change} {has_status}");
        }
        if has_status {
            let found = world.merge(&format!("{at}/status"), &json!({"status": {"phase": "Up"}, "spec": {"size": 5}}));
            let found = found.good();
            assert_eq!((&found["metadata"]["generation"], &found["spec"]), (&json!(2), &json!({"size": 2})));
            assert_eq!(found["status"], json!({"phase": "Up"}));
        }
        world.check_history();
    }
}

#[test]
fn a_definition_says_which_generation_was_seen_while_its_gate_is_on() {
    const GATE: &str = "CRDObservedGenerationTracking";
    let mut world = World::new();
    let seen = |definition: &Value| {
        let status = &definition["status"];
        let conditions = status["conditions"].as_array().expect("conditions").iter();
        let all: Vec<Value> = conditions.chain([status]).map(|told| told["observedGeneration"].clone()).collect();
        assert!(all.len() >= 3 && all.iter().all(|one| *one == all[0]), "{status}");
        all[0].clone()
    };
    let made = world.create(DEFINITIONS, &definition("widgets", "Widget", &[], &[colored()])).good();
    assert_eq!(seen(&made), Value::Null, "the gate is off as in Kubernetes");
    world.settings.gates_off.remove(GATE);
    let names = |short: &str| json!({"spec": {"names": {"shortNames": [short]}}});
    let changed = world.merge(&of("widgets"), &names("w")).good();
    assert_eq!((&changed["metadata"]["generation"], seen(&changed)), (&json!(2), json!(2)));
    // The server must not change conditions that other programs set.
    let mut status = json!({"status": changed["status"].clone()});
    let own = json!({"type": "Theirs", "status": "True", "observedGeneration": 1});
    status["status"]["conditions"].as_array_mut().expect("conditions").push(own.clone());
    let told = world.merge(&format!("{}/status", of("widgets")), &status).good();
    let mut kept = told["status"]["conditions"].as_array().expect("conditions").iter();
    let kept = kept.rfind(|condition| condition["type"] == "Theirs").expect("it is kept");
    assert_eq!(kept["observedGeneration"], own["observedGeneration"]);
    status["status"]["conditions"].as_array_mut().expect("conditions").pop();
    world.merge(&format!("{}/status", of("widgets")), &status).good();
    world.settings.gates_off.insert(GATE);
    let changed = world.merge(&of("widgets"), &names("x")).good();
    assert_eq!(seen(&changed), Value::Null, "what was seen is wiped");
    world.check_history();
}

#[test]
fn fields_can_be_selected_where_a_version_says_so() {
    let mut world = World::new();
    let fields = json!({
        "color": {"type": "string"}, "size": {"type": "integer"}, "on": {"type": "boolean"},
        "in": {"type": "object", "properties": {"side": {"type": "string", "default": "left"}}},
    });
    let (mut one, two) = (version("v1", &fields), version("v2", &fields));
    one["selectableFields"] = json!([{"jsonPath": ".spec.color"}, {"jsonPath": ".spec.size"}, {"jsonPath": ".spec.on"}, {"jsonPath": ".spec.in.side"}]);
    world.create(DEFINITIONS, &definition("widgets", "Widget", &[], &[one, two])).good();
    let path = things("v1", "widgets");
    for (name, spec) in [
        ("a", json!({"color": "red", "size": 1, "on": true, "in": {}})),
        ("b", json!({"color": "red", "size": 10, "in": {"side": "right"}})),
        ("c", json!({})),
    ] {
        world.create(&path, &thing("v1", "Widget", name, &spec)).good();
    }
    for (selector, expected) in [
        ("spec.color=red", &["a", "b"][..]),
        ("spec.color!=red", &["c"]),
        ("spec.color=", &["c"]),
        ("spec.size=10", &["b"]),
        ("spec.on=true", &["a"]),
        ("spec.in.side=left", &["a"]),
        ("spec.color=red,spec.size=1,metadata.name=a", &["a"]),
    ] {
        assert_eq!(world.list(&path, selector).expect(selector), expected, "{selector}");
    }
    for (version, selector) in [("v1", "spec.other=1"), ("v1", "spec.in=1"), ("v2", "spec.color=red")] {
        let refusal = world.list(&things(version, "widgets"), selector).expect_err(selector);
        assert!(words(&refusal).contains("field label not supported"), "{}", words(&refusal));
    }
    world.check_history();
}

#[test]
fn a_scale_is_a_view_of_the_object() {
    let mut world = World::new();
    let mut one = version("v1", &json!({"run": {"type": "object", "properties": {"count": {"type": "integer"}}}}));
    one["subresources"]["scale"] = json!({
        "specReplicasPath": ".spec.run.count", "statusReplicasPath": ".status.count", "labelSelectorPath": ".status.selector",
    });
    world.create(DEFINITIONS, &definition("widgets", "Widget", &[], &[one])).good();
    let path = things("v1", "widgets");
    world.create(&path, &thing("v1", "Widget", "a", &json!({"run": {"count": 2}}))).good();
    let at = format!("{path}/a");
    world.merge(&format!("{at}/status"), &json!({"status": {"count": 1, "selector": "a=b,c!=d"}})).good();
    let mut scale = world.get(&format!("{at}/scale")).good();
    assert_eq!(scale["spec"], json!({"replicas": 2}));
    assert_eq!(scale["status"], json!({"replicas": 1, "selector": "a=b,c!=d"}));
    scale["spec"]["replicas"] = 5.into();
    let scaled = world.update(&format!("{at}/scale"), &scale).good();
    assert_eq!(scaled["spec"], json!({"replicas": 5}));
    let object = world.get(&at).good();
    assert_eq!((&object["spec"], &object["metadata"]["generation"]), (&json!({"run": {"count": 5}}), &json!(2)));
    assert!(matches!(world.update(&format!("{at}/scale"), &scale), Err(Refusal::Conflict { .. })));
    world.merge(&format!("{at}/scale"), &json!({"spec": {"replicas": 3}})).good();
    for (change, expected) in [
        (json!({"metadata": {"namespace": "elsewhere"}}), "the namespace of the provided object does not match"),
        (json!({"metadata": {"name": "other"}}), "the name of the object (other) does not match the name on the URL"),
    ] {
        let refusal = world.merge(&format!("{at}/scale"), &change).expect_err("the Scale of another object");
        assert!(words(&refusal).contains(expected), "{}", words(&refusal));
    }
    assert_eq!(world.get(&at).good()["spec"], json!({"run": {"count": 3}}));
    let refusal = world.merge(&format!("{at}/scale"), &json!({"spec": {"replicas": -1}})).expect_err("too few");
    assert!(words(&refusal).contains(".spec.run.count: Invalid value: -1: should be a non-negative integer"));
    world.check_history();
}

#[test]
fn a_scale_obeys_the_schema_and_the_rules_of_its_object() {
    let mut world = World::new();
    let count = json!({"type": "integer", "maximum": 10});
    let run = json!({
        "type": "object",
        "properties": {"count": count, "mode": {"type": "string", "default": "slow"}},
        "x-kubernetes-validations": [{"rule": "self.count != 7", "message": "seven is bad luck"}],
    });
    let mut one = version("v1", &json!({"run": run}));
    one["subresources"]["scale"] =
        json!({"specReplicasPath": ".spec.run.count", "statusReplicasPath": ".status.count"});
    world.create(DEFINITIONS, &definition("widgets", "Widget", &[], &[one])).good();
    let path = things("v1", "widgets");
    world.create(&path, &thing("v1", "Widget", "a", &json!({"run": {"count": 2}}))).good();
    world.create(&path, &thing("v1", "Widget", "bare", &json!({}))).good();
    let scale = format!("{path}/a/scale");
    for (replicas, words_of_it) in [(11, "should be less than or equal to 10"), (7, "seven is bad luck")] {
        let refusal = world.merge(&scale, &json!({"spec": {"replicas": replicas}})).expect_err("against the rules");
        assert!(words(&refusal).contains(words_of_it), "{refusal:?}");
    }
    world.merge(&scale, &json!({"spec": {"replicas": 10}})).good();
    assert_eq!(world.get(&format!("{path}/a")).good()["spec"]["run"]["count"], 10);
    // When the write creates parts of the object, these parts get their defaults.
    world.merge(&format!("{path}/bare/scale"), &json!({"spec": {"replicas": 1}})).good();
    let spec = world.get(&format!("{path}/bare")).good()["spec"].clone();
    assert_eq!(spec, json!({"run": {"count": 1, "mode": "slow"}}));
    world.check_history();
}

#[test]
fn without_a_webhook_versions_differ_in_name_only() {
    let mut world = World::new();
    let first = version("v1", &json!({"both": {"type": "string"}, "one": {"type": "string", "default": "1"}}));
    let mut second = version("v2", &json!({"both": {"type": "string"}, "two": {"type": "string", "default": "2"}}));
    second["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["both"]["maxLength"] = 3.into();
    world.create(DEFINITIONS, &definition("widgets", "Widget", &[], &[first, second])).good();
    let (old, new) = (things("v1", "widgets"), things("v2", "widgets"));
    let made = world.create(&old, &thing("v1", "Widget", "a", &json!({"both": "long enough"}))).good();
    assert_eq!(made["spec"], json!({"both": "long enough", "one": "1"}));
    let mut shown = world.get(&format!("{new}/a")).good();
    assert_eq!(shown["apiVersion"], format!("{GROUP}/v2"));
    assert_eq!(shown["spec"]["both"], "long enough");
    assert_eq!(shown["spec"].get("one"), None);
    // The rules of the version in which the object is written apply. Violations that existed before may stay.
    let refusal = world.create(&new, &thing("v2", "Widget", "b", &json!({"both": "long"}))).expect_err("too long");
    assert!(words(&refusal).contains("spec.both: Too long: may not be more than 3 bytes"), "{}", words(&refusal));
    shown["spec"]["two"] = "3".into();
    let written = world.update(&format!("{new}/a"), &shown).good();
    assert_eq!(written["spec"]["both"], "long enough");
    // Objects are stored in v1, whose schema does not have this field, so its value is lost.
    assert_ne!(written["spec"]["two"], "3");
    assert_eq!(world.get(&format!("{old}/a")).good()["spec"], json!({"both": "long enough", "one": "1"}));
    world.check_history();
}

#[test]
fn a_version_may_be_stored_and_not_served() {
    let mut world = World::new();
    let mut first = colored();
    first["served"] = false.into();
    let second = version("v2", &json!({"color": {"type": "string"}, "size": {"type": "integer"}}));
    world.create(DEFINITIONS, &definition("widgets", "Widget", &[], &[first, second])).good();
    let (old, new) = (things("v1", "widgets"), things("v2", "widgets"));
    assert!(matches!(world.get(&format!("{old}/a")), Err(Refusal::NoSuchPath)));
    let made = world.create(&new, &thing("v2", "Widget", "a", &json!({"color": "red"}))).good();
    assert_eq!(made["apiVersion"], format!("{GROUP}/v2"));
    world.merge(&format!("{new}/a"), &json!({"spec": {"size": 1}})).good();
    world.delete(&format!("{new}/a")).expect("a deletion");
    // If no version of the definition is served, its objects cannot be reached. They are there again when a version is
    // served again.
    world.create(&new, &thing("v2", "Widget", "b", &json!({"color": "red"}))).good();
    world
        .merge(
            &of("widgets"),
            &json!({"spec": {"versions": [
                {"name": "v1", "served": false, "storage": true, "schema": colored()["schema"]},
            ]}}),
        )
        .good();
    assert!(world.target(&old).is_none() && world.target(&new).is_none());
    world
        .merge(
            &of("widgets"),
            &json!({"spec": {"versions": definition("", "", &[], &[colored()])["spec"]["versions"]}}),
        )
        .good();
    assert_eq!(world.get(&format!("{old}/b")).good()["spec"], json!({"color": "red"}));
    world.check_history();
}

#[test]
fn a_request_from_before_a_change_goes_to_the_kind_as_it_is_now() {
    let mut world = World::new();
    world.create(DEFINITIONS, &definition("widgets", "Widget", &[], &[colored()])).good();
    let body = thing("v1", "Widget", "a", &json!({})).to_string().into_bytes();
    let request = world.request(Verb::Create, &things("v1", "widgets"), Format::Json, body).expect("a path");
    world.merge(&of("widgets"), &json!({"spec": {"names": {"categories": ["all"]}}})).good();
    assert_eq!(world.submit(&request), Err(Refusal::NoSuchPath));
    // The kind has a new definition, and in the registry the same number as before.
    let kind = world.state.registry.share(request.target.kind);
    let request = request.retarget(&world.state.registry, &kind).expect("it is still served").into_owned();
    world.submit(&request).good();
    world.delete(&of("widgets")).expect("it goes");
    world.settle();
    let kind = world.state.registry.share(request.target.kind);
    assert_eq!(request.retarget(&world.state.registry, &kind).err(), Some(Refusal::NoSuchPath));
}
