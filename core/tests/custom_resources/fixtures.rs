//! Tests each definition in `tests/fixtures/crds` with objects that are valid and objects that are not.

use super::world::{DEFINITIONS, OLD_DEFINITIONS, World, condition, words};
use holdfast_core::kinds::custom::Conversion;
use holdfast_core::object::decode;
use holdfast_core::refusal::Refusal;
use holdfast_core::request::{FieldValidation, Format, Verb};
use holdfast_value::{Value, json};
use std::path::PathBuf;
use std::sync::LazyLock;

const ALL: [&str; 9] = [
    "collectors",
    "compositestacks",
    "databases",
    "flows",
    "portalclasses",
    "portals",
    "seals",
    "serviceroutes",
    "signers",
];

struct Fixture {
    definition: String,
    good: Vec<Value>,
    bad: Vec<Value>,
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/crds")
}

fn read(name: &str) -> String {
    let path = folder().join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn yaml(text: &str) -> Value {
    let decoded = decode::yaml(text.as_bytes()).unwrap_or_else(|error| panic!("{error}: {text}"));
    assert!(decoded.duplicates.is_empty(), "{text}");
    decoded.value
}

fn fixture(name: &str) -> Fixture {
    let bad = yaml(&read(&format!("{name}.bad.yaml")));
    Fixture {
        definition: read(&format!("{name}.yaml")),
        good: read(&format!("{name}.good.yaml")).split("\n---\n").map(yaml).collect(),
        bad: bad.as_array().expect("a list of changes").clone(),
    }
}

#[test]
fn no_fixture_is_left_out() {
    let files = std::fs::read_dir(folder()).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = files
        .filter_map(|file| file.strip_suffix(".yaml").filter(|name| !name.contains('.')).map(str::to_owned))
        .collect();
    names.sort();
    assert_eq!(names, ALL);
}

/// The conversion webhook of the fixture `compositestacks`. It renames one field.
fn convert(conversion: &Conversion) -> Value {
    let mut object = conversion.object.clone();
    let (from, to) = if conversion.to.ends_with("/v1") { ("instances", "replicas") } else { ("replicas", "instances") };
    object["apiVersion"] = conversion.to.as_str().into();
    if let Some(value) = object["spec"].as_object_mut().and_then(|spec| spec.remove(from)) {
        object["spec"][to] = value;
    }
    object
}

/// A world with the definition of a fixture, and the spec of the definition in the newest version of
/// CustomResourceDefinition.
fn define(fixture: &Fixture) -> (World, Value) {
    let mut world = World::new();
    world.webhook = convert;
    let old = fixture.definition.contains("apiVersion: apiextensions.k8s.io/v1beta1");
    let path = if old { OLD_DEFINITIONS } else { DEFINITIONS };
    let mut request =
        world.request(Verb::Create, path, Format::Yaml, fixture.definition.clone().into_bytes()).expect("a path");
    request.options.field_validation = FieldValidation::Strict;
    let made = world.submit(&request).unwrap_or_else(|refusal| panic!("{}", words(&refusal)));
    let name = made["metadata"]["name"].as_str().expect("a name").to_owned();
    let read = world.get(&format!("{DEFINITIONS}/{name}")).expect("the definition");
    for (ty, reason) in [("NamesAccepted", "NoConflicts"), ("Established", "InitialNamesAccepted")] {
        let found = condition(&read, ty).map(|(status, reason, _)| (status, reason));
        assert_eq!(found, Some(("True".to_owned(), reason.to_owned())), "{name} {ty}");
    }
    assert_eq!(condition(&read, "NonStructuralSchema").is_some(), old, "{name}");
    let approved = condition(&read, "KubernetesAPIApprovalPolicyConformant").map(|(status, ..)| status);
    assert_eq!(approved, name.ends_with(".k8s.io").then(|| "True".to_owned()), "{name}");
    (world, read)
}

/// A world with the definition of a fixture, the path of the definition's objects, and objects that are valid.
pub fn defined(name: &str) -> (World, String, Vec<Value>) {
    let fixture = fixture(name);
    let (world, definition) = define(&fixture);
    let spec = &definition["spec"];
    let version = text(&fixture.good[0], "/apiVersion").rsplit('/').next().unwrap_or_default().to_owned();
    let path = base(text(spec, "/group"), &version, text(spec, "/names/plural"), spec["scope"] == "Namespaced");
    (world, path, fixture.good)
}

/// The definitions of fixtures that can be parsed quickly.
pub fn small_definitions() -> &'static [Value] {
    static SMALL: LazyLock<Vec<Value>> = LazyLock::new(|| {
        let small = ["compositestacks", "portalclasses", "portals", "seals", "signers"];
        small.map(|name| yaml(&fixture(name).definition)).into()
    });
    &SMALL
}

/// An object as it is validated: with the defaults of its schema.
pub fn with_defaults(path: &str, world: &World, object: &Value) -> Value {
    let target = world.target(path).expect("a served path");
    let layout =
        world.state.kind(target.kind).versions[target.version].custom.as_ref().expect("a custom kind").layout();
    let mut object = object.clone();
    layout.prune(&mut object);
    layout.schema.apply_defaults(&mut object).expect("few defaults");
    object
}

fn base(group: &str, version: &str, plural: &str, namespaced: bool) -> String {
    let place = if namespaced { "namespaces/shop/" } else { "" };
    format!("/apis/{group}/{version}/{place}{plural}")
}

fn text<'a>(value: &'a Value, path: &str) -> &'a str {
    value.pointer(path).and_then(Value::as_str).unwrap_or_default()
}

fn name_of(object: &Value) -> &str {
    text(object, "/metadata/name")
}

/// The example object `good` in another version, with a name of its own.
fn in_version(spec: &Value, good: &Value, version: &str, suffix: &str) -> Value {
    let to = format!("{}/{version}", text(spec, "/group"));
    let mut object = match spec["conversion"]["strategy"] == "Webhook" && good["apiVersion"] != to.as_str() {
        true => convert(&Conversion { to: to.clone(), object: good.clone() }),
        false => good.clone(),
    };
    object["apiVersion"] = to.into();
    object["metadata"]["name"] = format!("{}{suffix}", name_of(good)).into();
    object
}

fn good_objects(name: &str) {
    let fixture = fixture(name);
    let (mut world, definition) = define(&fixture);
    let spec = &definition["spec"];
    let (group, plural) = (text(spec, "/group"), text(spec, "/names/plural"));
    let namespaced = spec["scope"] == "Namespaced";
    let versions = spec["versions"].as_array().expect("versions");
    for version in versions {
        let version_name = text(version, "/name");
        let path = base(group, version_name, plural, namespaced);
        let has_status = !version["subresources"]["status"].is_null();
        for good in &fixture.good {
            let object = in_version(spec, good, version_name, "");
            let at = format!("{path}/{}", name_of(&object));
            let body = object.to_string().into_bytes();
            let mut request = world.request(Verb::Create, &path, Format::Json, body).expect("a served path");
            request.options.field_validation = FieldValidation::Strict;
            let made = world.submit(&request).unwrap_or_else(|refusal| panic!("{at}: {}", words(&refusal)));
            assert_eq!(made["metadata"]["generation"], 1, "{at}");
            let deprecated = version["deprecated"] == true;
            assert!(deprecated || world.warnings.is_empty(), "{at}: {:?}", world.warnings);
            assert_contains(&made["spec"], &object["spec"], &at);
            assert_eq!(made["status"].is_null(), has_status_gone(has_status, &object, &made), "{at}");
            for other in versions.iter().map(|version| text(version, "/name")) {
                let shown = world.get(&format!("{}/{}", base(group, other, plural, namespaced), name_of(&object)));
                let shown = shown.unwrap_or_else(|refusal| panic!("{at} in {other}: {}", words(&refusal)));
                assert_eq!(text(&shown, "/apiVersion"), format!("{group}/{other}"));
                assert_eq!(shown["metadata"]["uid"], made["metadata"]["uid"]);
                let expected = in_version(spec, &made, other, "");
                assert_contains(&shown["spec"], &expected["spec"], &format!("{at} in {other}"));
            }
            write_again(&mut world, &at, &made);
            let changed = world.get(&at).expect("the object");
            write_status(&mut world, &at, has_status, &changed, &object["status"]);
            world.delete(&at).unwrap_or_else(|refusal| panic!("{at}: {}", words(&refusal)));
            assert!(matches!(world.get(&at), Err(Refusal::NotFound(_))), "{at}");
            apply_by_two(&mut world, &at, &object);
        }
    }
    world.check_history();
}

/// Whether the create handled the status correctly. If the kind has a status subresource, the status is dropped, unless
/// defaults in the schema set it again. The examples of other kinds have no status.
fn has_status_gone(has_status: bool, object: &Value, made: &Value) -> bool {
    match has_status {
        true => made["status"].is_null() || made["status"] == object["status"],
        false => object["status"].is_null(),
    }
}

/// Asserts that `found` contains everything in `sent`. It may also contain defaults, and a null may be missing from it.
fn assert_contains(found: &Value, sent: &Value, at: &str) {
    match (found, sent) {
        (Value::Object(found), Value::Object(sent)) => {
            for (name, sent) in sent {
                match found.get(name) {
                    Some(found) => assert_contains(found, sent, &format!("{at}.{name}")),
                    None => assert!(sent.is_null(), "{at}.{name} is gone"),
                }
            }
        }
        (Value::Array(found), Value::Array(sent)) => {
            assert_eq!(found.len(), sent.len(), "{at}");
            for (index, (found, sent)) in found.iter().zip(sent).enumerate() {
                assert_contains(found, sent, &format!("{at}[{index}]"));
            }
        }
        _ => assert_eq!(found, sent, "{at}"),
    }
}

/// Writing an object unchanged must change nothing. A new label must not change the generation.
fn write_again(world: &mut World, at: &str, made: &Value) {
    let again = world.update(at, made).unwrap_or_else(|refusal| panic!("{at} again: {}", words(&refusal)));
    assert_eq!((&again, world.events), (made, 0), "{at} again");
    let mut labelled = made.clone();
    labelled["metadata"]["labels"]["changed"] = "yes".into();
    let labelled = world.update(at, &labelled).unwrap_or_else(|refusal| panic!("{at}: {}", words(&refusal)));
    assert_eq!(labelled["metadata"]["generation"], 1, "{at}");
    assert_eq!(world.events, 1, "{at}");
    let stale = world.update(at, made).expect_err("a write on an older version");
    assert!(matches!(stale, Refusal::Conflict { .. }), "{at}: {stale:?}");
    let unversioned = world.update(at, &without_version(made)).expect_err("a write that names no version");
    assert!(words(&unversioned).contains("metadata.resourceVersion: Invalid value: 0: "), "{at}: {unversioned:?}");
}

fn without_version(object: &Value) -> Value {
    let mut object = object.clone();
    object["metadata"].as_object_mut().expect("metadata").remove("resourceVersion");
    object
}

fn write_status(world: &mut World, at: &str, has_status: bool, made: &Value, status: &Value) {
    if status.is_null() {
        return;
    }
    let mut reported = made.clone();
    reported["status"] = status.clone();
    let path = if has_status { format!("{at}/status") } else { at.to_owned() };
    if has_status {
        // A write of the status must ignore changes outside the status, and a write of the object must ignore the
        // status.
        reported["metadata"]["annotations"]["ignored"] = "yes".into();
        reported["metadata"]["labels"] = json!({"ignored": "yes"});
        let mut elsewhere = made.clone();
        elsewhere["status"] = status.clone();
        let unchanged = world.update(at, &elsewhere).unwrap_or_else(|refusal| panic!("{at}: {}", words(&refusal)));
        assert_eq!(world.events, 0, "{at}: {unchanged}");
    } else {
        assert!(world.target(&format!("{at}/status")).is_none(), "{at} has no status of its own");
    }
    let written = world.update(&path, &reported).unwrap_or_else(|refusal| panic!("{path}: {}", words(&refusal)));
    assert_contains(&written["status"], status, &path);
    assert_eq!(written["spec"], made["spec"], "{path}");
    // If the kind has no status subresource, its status counts as desired state, so a change of it changes the
    // generation.
    let same = made["status"] == written["status"];
    let expected = made["metadata"]["generation"].as_i64().map(|count| count + i64::from(!has_status && !same));
    assert_eq!(written["metadata"]["generation"].as_i64(), expected, "{path}");
    if has_status {
        assert_eq!(written["metadata"]["labels"], made["metadata"]["labels"], "{path}");
    }
    let patched = world.merge(&path, &json!({"status": null}));
    patched.unwrap_or_else(|refusal| panic!("{path} without: {}", words(&refusal)));
}

/// Two managers apply the same value of a field and share it. Then they apply different values, which is a conflict.
fn apply_by_two(world: &mut World, at: &str, object: &Value) {
    let mut whole = object.clone();
    whole.as_object_mut().expect("an object").remove("status");
    let made = world.apply(at, &whole, "one").unwrap_or_else(|refusal| panic!("{at} applied: {}", words(&refusal)));
    assert_contains(&made["spec"], &object["spec"], at);
    let again = world.apply(at, &whole, "one").unwrap_or_else(|refusal| panic!("{at} applied: {}", words(&refusal)));
    assert_eq!((&again, world.events), (&made, 0), "{at} applied again");
    if let Some((pointer, value)) = scalar(&object["spec"], "/spec") {
        let mut part = json!({"apiVersion": object["apiVersion"], "kind": object["kind"], "metadata": {}});
        part["metadata"]["name"] = object["metadata"]["name"].clone();
        put(&mut part, &pointer, value.clone());
        // The required fields beside the shared field come from the object, because the merged object is validated as a
        // whole.
        let shared = world.apply(at, &part, "two").unwrap_or_else(|refusal| panic!("{at} shared: {}", words(&refusal)));
        assert_eq!(shared["spec"], made["spec"], "{at}");
        let other = match value {
            Value::String(text) => Value::from(format!("{text}x")),
            Value::Bool(flag) => Value::from(!flag),
            number => Value::from(number.as_i64().unwrap_or_default() + 1),
        };
        put(&mut part, &pointer, other);
        let refusal = world.apply(at, &part, "two").expect_err("a conflict");
        let field = pointer.replace('/', ".");
        assert!(matches!(refusal, Refusal::ApplyConflict { .. }), "{at}: {refusal:?}");
        assert!(words(&refusal).starts_with(&field), "{at}: {} does not begin with {field}", words(&refusal));
    }
    world.delete(at).unwrap_or_else(|refusal| panic!("{at}: {}", words(&refusal)));
}

/// The first scalar that is not inside a list.
fn scalar<'a>(value: &'a Value, pointer: &str) -> Option<(String, &'a Value)> {
    match value {
        Value::Object(fields) => {
            let plain = fields.iter().filter(|(name, _)| !name.contains(['/', '~', '.']));
            plain.into_iter().find_map(|(name, value)| scalar(value, &format!("{pointer}/{name}")))
        }
        Value::Null | Value::Array(_) => None,
        Value::Number(number) if !number.is_i64() => None,
        _ => Some((pointer.to_owned(), value)),
    }
}

fn put(object: &mut Value, pointer: &str, value: Value) {
    let mut at = object;
    for part in pointer.split('/').skip(1) {
        at = &mut at[part];
    }
    *at = value;
}

fn bad_objects(name: &str) {
    let fixture = fixture(name);
    let (mut world, definition) = define(&fixture);
    let spec = &definition["spec"];
    let storage = spec["versions"].as_array().into_iter().flatten().find(|version| version["storage"] == true);
    let version = text(storage.expect("a version that is stored"), "/name");
    let path = base(text(spec, "/group"), version, text(spec, "/names/plural"), spec["scope"] == "Namespaced");
    for good in &fixture.good {
        world.create(&path, good).unwrap_or_else(|refusal| panic!("{}", words(&refusal)));
    }
    let mut wrong = String::new();
    for row in &fixture.bad {
        let good = fixture.good.iter().find(|good| good["metadata"]["name"] == row["of"]);
        let good = good.unwrap_or_else(|| panic!("{name}: no such example: {row}"));
        let mut bad = good.clone();
        bad["metadata"]["name"] = format!("{}-bad", name_of(good)).into();
        change(&mut bad, text(row, "/at"), row.get("to"));
        let (field, message) = (text(row, "/field"), text(row, "/message"));
        let nowhere = row["where"] == "nowhere";
        let is_told = |refusal: &Refusal| match refusal {
            Refusal::Invalid { causes, .. } => {
                causes.iter().any(|cause| match nowhere {
                    true => cause.field == "<nil>" && cause.message.contains(&format!("{field:?} {message}")),
                    false => cause.field == field && cause.message.contains(message),
                }) || (nowhere
                    && causes.iter().any(|cause| {
                        cause.field == "<nil>"
                            && cause.message.contains(&format!("{field:?}"))
                            && cause.message.contains(message)
                    }))
            }
            _ => false,
        };
        let at = format!("{path}/{}", name_of(good));
        let live = world.get(&at).expect("the good object");
        let mut changed = bad.clone();
        changed["metadata"]["name"] = live["metadata"]["name"].clone();
        changed["metadata"]["resourceVersion"] = live["metadata"]["resourceVersion"].clone();
        let mut applied = bad.clone();
        applied.as_object_mut().expect("an object").remove("status");
        let status_only = text(row, "/at").starts_with("/status");
        let renamed = text(row, "/at") == "/metadata/name";
        for (verb, outcome) in
            [("created", Some(world.create(&path, &bad))), ("updated", (!renamed).then(|| world.update(&at, &changed)))]
        {
            match outcome {
                Some(Err(refusal)) if is_told(&refusal) => {}
                Some(outcome) => {
                    let found =
                        outcome.map_or_else(|refusal| words(&refusal), |made| format!("taken: {}", made["spec"]));
                    wrong += &format!("{verb} {row}\n    {found}\n");
                }
                None => {}
            }
        }
        if !renamed && !status_only {
            let outcome = world.apply(&format!("{path}/{}", name_of(&bad)), &applied, "one");
            if outcome.as_ref().is_ok() {
                wrong += &format!("applied {row}\n    taken\n");
            }
        }
    }
    assert!(wrong.is_empty(), "{name}:\n{wrong}");
    world.check_history();
}

/// Sets the value at a JSON pointer; without a value, removes what is there.
fn change(object: &mut Value, pointer: &str, to: Option<&Value>) {
    let (parent, last) = pointer.rsplit_once('/').expect("a JSON pointer");
    let parent = object.pointer_mut(parent).unwrap_or_else(|| panic!("nothing is at {pointer}"));
    match (parent, to) {
        (Value::Object(fields), Some(value)) => _ = fields.insert(last.to_owned(), value.clone()),
        (Value::Object(fields), None) => assert!(fields.remove(last).is_some(), "nothing is at {pointer}"),
        (Value::Array(items), Some(value)) => items[last.parse::<usize>().expect("an index")] = value.clone(),
        (parent, _) => panic!("{pointer} is within {parent}"),
    }
}

macro_rules! fixtures {
    ($($name:ident),*) => { $(mod $name {
        #[test]
        fn good_objects() {
            super::good_objects(stringify!($name));
        }

        #[test]
        fn bad_objects() {
            super::bad_objects(stringify!($name));
        }
    })* };
}

fixtures!(collectors, compositestacks, databases, flows, portalclasses, portals, seals, serviceroutes, signers);

/// Reading a definition in one version of CustomResourceDefinition and writing it back must change nothing.
#[test]
fn definitions_round_trip() {
    for name in ALL {
        let (mut world, definition) = define(&fixture(name));
        let name = name_of(&definition);
        for path in [DEFINITIONS, OLD_DEFINITIONS] {
            let at = format!("{path}/{name}");
            let read = world.get(&at).expect("the definition");
            world.update(&at, &read).unwrap_or_else(|refusal| panic!("{at}: {}", words(&refusal)));
            assert_eq!(world.events, 0, "{at}");
        }
        world.settle();
        assert_eq!(world.events, 0, "{name} is settled");
    }
}
