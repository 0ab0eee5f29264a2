//! Tests properties that hold for any schema and any object, by judging whole requests.

use super::fixtures;
use super::lifecycle::definition;
use super::world::{DEFINITIONS, World, words};
use holdfast_core::refusal::{Cause, CauseReason, Refusal};
use holdfast_value::{Map, Value, json};
use proptest::prelude::*;
use std::sync::LazyLock;

const PATH: &str = "/apis/things.fixtures.example";

fn name() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["a", "b", "c", "d.e"]).prop_map(str::to_owned)
}

fn named<S: Strategy<Value = Value>>(of: S) -> impl Strategy<Value = Map> {
    prop::collection::btree_map(name(), of, 0..4).prop_map(|map| map.into_iter().collect())
}

/// Generates structural schemas. The default of a field has the field's type.
fn schema() -> impl Strategy<Value = Value> {
    let leaf = prop::sample::select(vec![
        json!({"type": "string"}),
        json!({"type": "string", "default": "a", "pattern": "^[ab]*$"}),
        json!({"type": "string", "maxLength": 2, "nullable": true}),
        json!({"type": "integer", "minimum": 0, "default": 1}),
        json!({"type": "integer", "nullable": true, "default": 2}),
        json!({"type": "number", "maximum": 2}),
        json!({"type": "boolean", "default": false}),
        json!({"x-kubernetes-int-or-string": true, "default": 2}),
        json!({"x-kubernetes-preserve-unknown-fields": true}),
        json!({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"}),
        json!({"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true}),
        json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k", "l"],
            "items": {"type": "object", "required": ["k"], "properties": {
                "k": {"type": "string"}, "l": {"type": "integer", "default": 1}, "v": {"type": "boolean", "default": true}}}}),
    ]);
    leaf.prop_recursive(4, 20, 4, |inner| {
        let extra = prop::sample::select(vec![
            json!({}),
            json!({"default": {}}),
            json!({"nullable": true}),
            json!({"x-kubernetes-preserve-unknown-fields": true}),
            json!({"maxProperties": 5}),
            json!({"x-kubernetes-map-type": "atomic"}),
        ]);
        prop_oneof![
            3 => (named(inner.clone()), extra).prop_map(|(of, extra)| {
                let mut schema = json!({"type": "object", "properties": of});
                schema.as_object_mut().expect("an object").extend(extra.as_object().expect("an object").clone());
                schema
            }),
            1 => inner.clone().prop_map(|of| json!({"type": "array", "items": of})),
            1 => inner.prop_map(|of| json!({"type": "object", "additionalProperties": of})),
        ]
    })
}

fn anything() -> impl Strategy<Value = Value> {
    let scalar = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3..4i64).prop_map(Value::from),
        prop::sample::select(vec![0.5, -2.5, 1e300]).prop_map(Value::from),
        "[ab1.]{0,3}".prop_map(Value::from),
    ];
    scalar.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            named(inner.clone()).prop_map(Value::from),
            prop::collection::vec(inner, 0..4).prop_map(Value::from)
        ]
    })
}

/// Generates a value that mostly matches the schema.
fn fitting(schema: &Value) -> BoxedStrategy<Value> {
    let good: BoxedStrategy<Value> = if schema["x-kubernetes-embedded-resource"] == true {
        named(anything())
            .prop_map(|fields| {
                let mut object = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}});
                object.as_object_mut().expect("an object").extend(fields);
                object
            })
            .boxed()
    } else if schema["x-kubernetes-int-or-string"] == true {
        prop_oneof![Just(json!(1)), Just(json!("50%"))].boxed()
    } else {
        match schema["type"].as_str() {
            Some("string") => "[ab]{0,2}".prop_map(Value::from).boxed(),
            Some("integer") => (0..3i64).prop_map(Value::from).boxed(),
            Some("number") => prop_oneof![Just(json!(1)), Just(json!(0.5))].boxed(),
            Some("boolean") => any::<bool>().prop_map(Value::from).boxed(),
            Some("array") => prop::collection::vec(fitting(&schema["items"]), 0..3).prop_map(Value::from).boxed(),
            Some("object") => {
                let each = schema["properties"].as_object().cloned().unwrap_or_default();
                let required =
                    |name: &str| schema["required"].as_array().is_some_and(|list| list.contains(&name.into()));
                let fields: Vec<_> = each
                    .iter()
                    .map(|(name, schema)| {
                        let there = if required(name) { 0.97 } else { 0.6 };
                        (Just(name.clone()), prop::option::weighted(there, fitting(schema)))
                    })
                    .collect();
                let more = match &schema["additionalProperties"] {
                    Value::Null => {
                        prop::option::weighted(0.1, anything()).prop_map(|one| one.map(|one| ("z".into(), one))).boxed()
                    }
                    of => prop::option::weighted(0.8, fitting(of))
                        .prop_map(|one| one.map(|one| ("z".into(), one)))
                        .boxed(),
                };
                (fields, more)
                    .prop_map(|(fields, more)| {
                        let fields = fields.into_iter().filter_map(|(name, value)| Some((name, value?)));
                        fields.chain(more).collect::<Map>().into()
                    })
                    .boxed()
            }
            _ => anything().boxed(),
        }
    };
    prop_oneof![30 => good, 1 => anything(), 1 => Just(Value::Null)].boxed()
}

fn schema_and_object() -> impl Strategy<Value = (Value, Value)> {
    schema().prop_flat_map(|schema| {
        let object = fitting(&schema);
        (Just(schema), object)
    })
}

fn without(object: &Value, field: &str) -> Value {
    let mut object = object.clone();
    object["metadata"].as_object_mut().expect("metadata").remove(field);
    object
}

static EMPTY: LazyLock<World> = LazyLock::new(World::new);

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// An object that the server accepted and that is written back unchanged must stay the same, in any version.
    #[test]
    fn what_is_accepted_stays((schema, spec) in schema_and_object()) {
        let version = |name: &str| json!({"name": name, "served": true, "storage": false, "schema": {"openAPIV3Schema":
            {"type": "object", "properties": {"spec": schema}}}});
        let mut world = EMPTY.clone();
        let made = world.create(DEFINITIONS, &definition("widgets", "Widget", &[], &[version("v1"), version("v2")]));
        let made = made.map_err(|refusal| TestCaseError::fail(format!("{schema}: {}", words(&refusal))))?;
        let (one, two) = (format!("{PATH}/v1/namespaces/shop/widgets"), format!("{PATH}/v2/namespaces/shop/widgets"));
        let object = |version: &str, name: &str| json!({"apiVersion": format!("things.fixtures.example/{version}"),
            "kind": "Widget", "metadata": {"name": name}, "spec": spec});
        match (world.create(&one, &object("v1", "a")), world.create(&two, &object("v2", "b"))) {
            (Ok(first), Ok(second)) => {
                prop_assert_eq!(first.get("spec"), second.get("spec"));
                let read = world.get(&format!("{one}/a")).expect("an object");
                prop_assert_eq!(&read, &first);
                let again = world.update(&format!("{one}/a"), &read).expect("no change");
                prop_assert_eq!((&again, world.events), (&read, 0));
                // Writes the object back in the other version, and then reads it in the version in which it was
                // created.
                let there = world.get(&format!("{two}/a")).expect("an object");
                prop_assert_eq!(there.get("spec"), first.get("spec"));
                world.update(&format!("{two}/a"), &there).expect("no change");
                prop_assert_eq!(world.events, 0);
                // Adding a label stores the object again. A new definition with the same schema must then show the
                // object unchanged.
                world.merge(&format!("{two}/a"), &json!({"metadata": {"labels": {"a": "b"}}})).expect("a label");
                let touched = world.get(&format!("{one}/a")).expect("an object");
                prop_assert_eq!(touched.get("spec"), first.get("spec"));
                let categories = json!({"spec": {"names": {"categories": ["all"]}}});
                let definition = made["metadata"]["name"].as_str().expect("a name");
                world.merge(&format!("{DEFINITIONS}/{definition}"), &categories).expect("a new definition");
                prop_assert_eq!(&world.get(&format!("{one}/a")).expect("an object"), &touched);
                // Applying the object as it is stored must change only the owners of its fields.
                let bare = ["managedFields", "uid", "creationTimestamp", "generation", "resourceVersion"];
                let applied = bare.iter().fold(touched.clone(), |object, field| without(&object, field));
                let applied = world.apply(&format!("{one}/a"), &applied, "applier");
                let applied = applied.map_err(|refusal| TestCaseError::fail(words(&refusal)))?;
                prop_assert_eq!(applied.get("spec"), first.get("spec"));
                prop_assert_eq!(&applied["metadata"]["generation"], &touched["metadata"]["generation"]);
                world.check_history();
            }
            (Err(Refusal::Invalid { causes, .. }), Err(Refusal::Invalid { causes: others, .. })) => {
                prop_assert_eq!(&causes, &others);
                for cause in &causes {
                    prop_assert!(is_about(&object("v1", "a"), cause), "{} in {}", cause, spec);
                }
            }
            (one, two) => prop_assert!(false, "{one:?} {two:?}"),
        }
    }
}

/// Whether the field that a cause names exists in the document, or is a required field that is missing.
fn is_about(document: &Value, cause: &Cause) -> bool {
    if cause.field == "<nil>" {
        return true;
    }
    // Kubernetes reports some missing values as invalid and shows them as empty.
    let empty = ["Invalid value: \"\"", "Invalid value: null"].iter().any(|head| cause.message.starts_with(head));
    let missing = matches!(cause.reason, CauseReason::Required) || empty;
    is_there(document, &cause.field, missing) || is_there(document, &in_a_version(&cause.field), missing)
}

/// The name that a field of a v1beta1 definition has in v1. For a field that all versions share, causes name the place
/// at the top of the spec, where v1beta1 has it.
fn in_a_version(field: &str) -> String {
    const SHARED: [(&str, &str); 6] = [
        ("spec.validation", "spec.versions[0].schema"),
        ("spec.subresources", "spec.versions[0].subresources"),
        ("spec.additionalPrinterColumns", "spec.versions[0].additionalPrinterColumns"),
        ("spec.selectableFields", "spec.versions[0].selectableFields"),
        ("spec.conversion.webhookClientConfig", "spec.conversion.webhook.clientConfig"),
        ("spec.conversion.conversionReviewVersions", "spec.conversion.webhook.conversionReviewVersions"),
    ];
    let moved = SHARED.iter().find_map(|(top, each)| Some(format!("{each}{}", field.strip_prefix(top)?)));
    moved.unwrap_or_else(|| field.to_owned()).replace("JSONPath", "jsonPath")
}

/// Whether a path leads to a value. Keys may contain dots, so each prefix of the path is tried as a key. If `missing`
/// is true, the last step of the path need not exist.
fn is_there(value: &Value, path: &str, missing: bool) -> bool {
    let path = path.strip_prefix('.').unwrap_or(path);
    if path.is_empty() {
        return true;
    }
    if let Some((key, rest)) = path.strip_prefix('[').and_then(|path| path.split_once(']')) {
        let next = key.parse::<usize>().ok().and_then(|index| value.get(index)).or_else(|| value.get(key));
        return next.is_some_and(|next| is_there(next, rest, missing)) || (missing && rest.is_empty());
    }
    let continues = |rest: &str| rest.is_empty() || rest.starts_with(['.', '[']);
    let deeper = value.as_object().is_some_and(|fields| {
        fields.iter().any(|(name, value)| {
            path.strip_prefix(name.as_str()).is_some_and(|rest| continues(rest) && is_there(value, rest, missing))
        })
    });
    // A field with null counts as absent.
    deeper || (missing && (value.is_null() || value.is_object()) && !path.contains('['))
}

/// A change of one value in a document: what it becomes.
#[derive(Debug, Clone)]
enum Edit {
    Replace(Value),
    Remove,
    Repeat,
    Add(Value),
}

fn change() -> impl Strategy<Value = (prop::sample::Index, Edit)> {
    let change = prop_oneof![
        3 => anything().prop_map(Edit::Replace),
        2 => Just(Edit::Remove),
        1 => Just(Edit::Repeat),
        1 => anything().prop_map(Edit::Add),
    ];
    (any::<prop::sample::Index>(), change)
}

fn pointers(value: &Value, at: &str, all: &mut Vec<String>) {
    let mut below = |step: &str, value: &Value| {
        let at = format!("{at}/{}", step.replace('~', "~0").replace('/', "~1"));
        all.push(at.clone());
        pointers(value, &at, all);
    };
    match value {
        Value::Object(fields) => fields.iter().for_each(|(name, value)| below(name, value)),
        Value::Array(items) => items.iter().enumerate().for_each(|(index, value)| below(&index.to_string(), value)),
        _ => {}
    }
}

/// The document with these changes, all of them below the path `within`.
fn changed(document: &Value, within: &str, changes: &[(prop::sample::Index, Edit)]) -> Value {
    let mut document = document.clone();
    for (index, change) in changes {
        let mut all = Vec::new();
        pointers(document.pointer(within).unwrap_or(&Value::Null), within, &mut all);
        if all.is_empty() {
            break;
        }
        let pointer = &all[index.index(all.len())];
        let (parent, last) = pointer.rsplit_once('/').expect("a pointer");
        let last = last.replace("~1", "/").replace("~0", "~");
        let value = document.pointer(pointer).cloned().unwrap_or_default();
        let Some(parent) = document.pointer_mut(parent) else { continue };
        match (parent, change) {
            (Value::Object(fields), Edit::Replace(value)) => _ = fields.insert(last, value.clone()),
            (Value::Object(fields), Edit::Remove) => _ = fields.remove(&last),
            (Value::Object(fields), Edit::Repeat) => _ = fields.insert(format!("{last}2"), value),
            (Value::Object(fields), Edit::Add(value)) => _ = fields.insert("added", value.clone()),
            (Value::Array(items), Edit::Replace(value)) => {
                items[last.parse::<usize>().expect("an index")] = value.clone()
            }
            (Value::Array(items), Edit::Remove) => _ = items.remove(last.parse().expect("an index")),
            (Value::Array(items), Edit::Repeat) => items.push(value),
            (Value::Array(items), Edit::Add(value)) => items.insert(last.parse().expect("an index"), value.clone()),
            _ => {}
        }
    }
    document
}

/// For each of some fixtures: a world with its definition, the path of the definition's objects, and objects that are
/// valid.
static DEFINED: LazyLock<Vec<(World, String, Vec<Value>)>> =
    LazyLock::new(|| ["compositestacks", "portals", "seals", "serviceroutes", "flows"].map(fixtures::defined).into());

proptest! {
    #![proptest_config(ProptestConfig { cases: 250, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn refusals_of_objects_name_what_is_there(
        (which, example) in any::<(prop::sample::Index, prop::sample::Index)>(),
        changes in prop::collection::vec(change(), 1..4),
    ) {
        let (world, path, good) = &DEFINED[which.index(DEFINED.len())];
        let mut world = world.clone();
        let object = &good[example.index(good.len())];
        let bad = changed(object, "/spec", &changes);
        let created = world.create(path, &bad);
        if let Err(Refusal::Invalid { causes, .. }) = &created {
            for cause in causes {
                // The client sees neither what was pruned nor what defaults added. So each cause must be about the
                // object that the client sent, or about that object with its defaults.
                prop_assert!(is_about(&bad, cause) || is_about(&fixtures::with_defaults(path, &world, &bad), cause),
                    "{} in {}", cause, bad);
            }
        } else {
            let made = created.map_err(|refusal| TestCaseError::fail(words(&refusal)))?;
            let at = format!("{path}/{}", made["metadata"]["name"].as_str().expect("a name"));
            let again = world.update(&at, &made).map_err(|refusal| TestCaseError::fail(words(&refusal)))?;
            prop_assert_eq!((&again, world.events), (&made, 0));
        }
        // Sends the same change as an update and as an apply. Neither request may panic.
        let mut world = DEFINED[which.index(DEFINED.len())].0.clone();
        let first = world.create(path, object).expect("a good object");
        let at = format!("{path}/{}", first["metadata"]["name"].as_str().expect("a name"));
        let _ = world.update(&at, &changed(&first, "/spec", &changes));
        let _ = world.apply(&at, &bad, "applier");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn refusals_of_definitions_name_what_is_there(
        which in any::<prop::sample::Index>(),
        changes in prop::collection::vec(change(), 1..4),
    ) {
        let all = fixtures::small_definitions();
        let bad = changed(&all[which.index(all.len())], "/spec", &changes);
        let mut world = EMPTY.clone();
        if let Err(Refusal::Invalid { causes, .. }) = world.create(DEFINITIONS, &bad) {
            for cause in &causes {
                // The server derives the values of these fields from other fields, so a cause may name them although
                // the client did not set them.
                let filled = ["status.", "metadata.name", "spec.names.singular", "spec.names.listKind"];
                let named = filled.iter().any(|field| cause.field.starts_with(field));
                prop_assert!(named || is_about(&bad, cause), "{}", cause);
            }
        }
    }
}
