use crate::refusal::OwnedFields;
use holdfast_value::json;
use proptest::prelude::*;

use super::*;
use crate::merge::managed::track_update;
use crate::merge::testing;
use crate::schema::Schema;
use crate::schema::layout::Layout;

const ONE: &str = "2024-01-01T00:00:01Z";
const TWO: &str = "2024-01-01T00:00:02Z";
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

fn writer<'a>(schema: &'a Schema, manager: &'a str, now: &'a str) -> Writer<'a> {
    Writer {
        layout: Layout::Table(schema, schema.id("test.Root").unwrap()),
        api_version: "test/v1",
        manager,
        subresource: "",
        now,
        reset: &[],
        convert: None,
    }
}

fn applied(live: Option<&Value>, manager: &str, now: &str, config: Value, force: bool) -> Result<Value, Refusal> {
    let schema = testing::schema();
    apply(ApplyRequest { live, config: &config, force, writer: writer(&schema, manager, now) })
}

fn updated(live: Option<&Value>, manager: &str, now: &str, mut new: Value) -> Value {
    let schema = testing::schema();
    track_update(live, &mut new, &writer(&schema, manager, now));
    new
}

fn root(rest: Value) -> Value {
    let mut root = json!({"apiVersion": "test/v1", "kind": "Root", "metadata": {"name": "x", "namespace": "n"}});
    for (key, value) in rest.as_object().unwrap() {
        if key == "metadata" {
            for (key, value) in value.as_object().unwrap() {
                root["metadata"][key] = value.clone();
            }
        } else {
            root[key] = value.clone();
        }
    }
    root
}

/// For each entry of the managed fields, the manager and the paths of the fields that it owns.
fn owners(document: &Value) -> Vec<(String, Vec<String>)> {
    let entries = Entries::read(managed_fields(document)).unwrap();
    entries.iter().map(|entry| (entry.shown(), entry.set().paths().into_vec())).collect()
}

fn without_managed(mut document: Value) -> Value {
    take_managed_fields(&mut document);
    document
}

#[test]
fn the_first_apply_creates() {
    let created = applied(None, "me", ONE, root(json!({"data": {"a": "1"}})), false).unwrap();
    let managed = json!([{"manager": "me", "operation": "Apply", "apiVersion": "test/v1", "time": ONE,
        "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {"f:a": {}}}}]);
    assert_eq!(created, root(json!({"data": {"a": "1"}, "metadata": {"managedFields": managed}})));
}

#[test]
fn what_is_no_longer_applied_goes_unless_owned_by_others() {
    let live = applied(None, "me", ONE, root(json!({"data": {"a": "1", "b": "1", "c": "1"}})), false).unwrap();
    let live = applied(Some(&live), "you", ONE, root(json!({"data": {"b": "1"}})), false).unwrap();
    let live = updated(Some(&live), "ctl", ONE, {
        let mut new = live.clone();
        new["data"]["d"] = json!("4");
        new
    });
    let live = applied(Some(&live), "me", TWO, root(json!({"data": {"c": "1"}})), false).unwrap();
    assert_eq!(live["data"], json!({"b": "1", "c": "1", "d": "4"}));
    assert_eq!(
        owners(&live),
        [
            ("\"you\"".into(), vec![".data.b".into()]),
            ("\"me\"".into(), vec![".data.c".into()]),
            ("\"ctl\" using test/v1".into(), vec![".data.d".to_string()]),
        ]
    );
    // The last manager that owns a key of the map removes the key, and then the empty map is removed too.
    let only = applied(None, "me", ONE, root(json!({"data": {"a": "1"}})), false).unwrap();
    let none = applied(Some(&only), "me", TWO, root(json!({})), false).unwrap();
    assert_eq!(none, root(json!({})));
}

#[test]
fn elements_of_keyed_lists_come_and_go() {
    let containers = |list: Value| root(json!({"spec": {"containers": list}}));
    let live = applied(
        None,
        "me",
        ONE,
        containers(json!([{"name": "a", "image": "1"}, {"name": "b", "image": "1", "ports": [{"containerPort": 80}]}])),
        false,
    )
    .unwrap();
    // The server sets the default of `protocol`, which is a key of the list. The element has the same identity with and
    // without the default.
    let mut defaulted = live.clone();
    defaulted["spec"]["containers"][1]["ports"][0]["protocol"] = json!("TCP");
    let config =
        containers(json!([{"name": "b", "image": "2", "ports": [{"containerPort": 80}, {"containerPort": 81}]}]));
    let live = applied(Some(&defaulted), "me", TWO, config, false).unwrap();
    assert_eq!(
        live["spec"],
        json!({"containers": [{"name": "b", "image": "2",
            "ports": [{"containerPort": 80, "protocol": "TCP"}, {"containerPort": 81}]}]})
    );
}

#[test]
fn conflicts_name_every_field_and_its_owner() {
    let one = updated(None, "kubectl-client-side-apply", ONE, root(json!({"spec": {"replicas": 1}})));
    let refused = applied(Some(&one), "me", TWO, root(json!({"spec": {"replicas": 2}})), false).unwrap_err();
    let owner = "conflict with \"kubectl-client-side-apply\" using test/v1";
    assert_eq!(refused.message(), format!("Apply failed with 1 conflict: {owner}: .spec.replicas"));
    let owner = "\"kubectl-client-side-apply\" using test/v1".to_owned();
    assert_eq!(
        refused,
        Refusal::ApplyConflict(vec![OwnedFields { owner, fields: [".spec.replicas"].into_iter().collect() }])
    );

    let live = updated(None, "a", ONE, root(json!({"data": {"x": "1", "y": "1"}})));
    let live = applied(Some(&live), "b", ONE, root(json!({"metadata": {"labels": {"l": "1"}}})), false).unwrap();
    let config = root(json!({"data": {"x": "2", "y": "2"}, "metadata": {"labels": {"l": "2"}}}));
    let refused = applied(Some(&live), "me", TWO, config.clone(), false).unwrap_err();
    assert_eq!(
        refused.message(),
        "Apply failed with 3 conflicts: conflicts with \"a\" using test/v1:\n- .data.x\n- .data.y\n\
         conflicts with \"b\":\n- .metadata.labels.l"
    );
    assert_eq!(refused.causes().len(), 3);

    let forced = applied(Some(&live), "me", TWO, config, true).unwrap();
    assert_eq!(forced["data"], json!({"x": "2", "y": "2"}));
    assert_eq!(
        owners(&forced),
        [
            ("\"me\"".into(), vec![".data.x".into(), ".data.y".into(), ".metadata.labels.l".into()]),
            ("\"a\" using test/v1".to_string(), vec![".data".to_string()]),
        ]
    );
}

#[test]
fn the_same_value_is_shared_and_an_update_takes_it_from_all() {
    let config = root(json!({"spec": {"replicas": 3}}));
    let live = applied(None, "a", ONE, config.clone(), false).unwrap();
    let live = applied(Some(&live), "b", TWO, config, false).unwrap();
    assert_eq!(owners(&live).len(), 2);
    let mut scaled = live.clone();
    scaled["spec"]["replicas"] = json!(5);
    let scaled = updated(Some(&live), "scaler", TWO, scaled);
    assert_eq!(owners(&scaled), [("\"scaler\" using test/v1".to_string(), vec![".spec.replicas".to_string()])]);
}

#[test]
fn objects_that_nobody_tracked_belong_to_before_first_apply() {
    let live = root(json!({"data": {"a": "1"}}));
    let refused = applied(Some(&live), "me", ONE, root(json!({"data": {"a": "2"}})), false).unwrap_err();
    assert!(matches!(refused, Refusal::ApplyConflict(_)));
    assert_eq!(
        refused.message(),
        "Apply failed with 1 conflict: conflict with \"before-first-apply\" using test/v1: .data.a"
    );
}

#[test]
fn kubectl_takes_over_from_client_side_apply() {
    let mut config = root(json!({"data": {"a": "1", "b": "1"}}));
    let text = format!("{config}\n");
    config["metadata"]["annotations"] = json!({LAST_APPLIED: text});
    let live = updated(None, "kubectl-client-side-apply", ONE, config);
    // The user removes `b` and changes `a`. The same user had set both by client-side apply, so there is no conflict.
    let next = root(json!({"data": {"a": "2"}}));
    let live = applied(Some(&live), "kubectl", TWO, next.clone(), false).unwrap();
    // `b` stays until kubectl has moved the old ownership to apply, by a patch of its own.
    assert_eq!(live["data"], json!({"a": "2", "b": "1"}));
    assert_eq!(live["metadata"]["annotations"][LAST_APPLIED], json!(format!("{next}\n")));
    assert_eq!(owners(&live)[0], ("\"kubectl\"".to_string(), vec![".data.a".to_string()]));
    // A later change by another manager is still a conflict.
    let mut scaled = live.clone();
    scaled["data"]["a"] = json!("9");
    let scaled = updated(Some(&live), "other", TWO, scaled);
    assert!(applied(Some(&scaled), "kubectl", TWO, next, false).is_err());
}

#[test]
fn the_server_keeps_its_fields() {
    let schema = testing::schema();
    let mut live = updated(None, "a", ONE, root(json!({"status": {"type": "old"}})));
    live["metadata"]["creationTimestamp"] = json!(ONE);
    live["metadata"]["generation"] = json!(7);
    let config = root(json!({"metadata": {"creationTimestamp": null}, "status": {"type": "new"}, "data": {"a": "1"}}));
    let writer = Writer { reset: &[&["status"]], ..writer(&schema, "me", TWO) };
    let merged = apply(ApplyRequest { live: Some(&live), config: &config, force: false, writer }).unwrap();
    // The endpoint later resets the status and the server's metadata, so no manager becomes their owner.
    assert_eq!(merged["status"], json!({"type": "new"}));
    assert_eq!(merged["metadata"]["creationTimestamp"], json!(ONE));
    assert_eq!(merged["metadata"]["generation"], json!(7));
    assert_eq!(owners(&merged)[0], ("\"me\"".to_string(), vec![".data.a".to_string()]));
}

#[test]
fn broken_configurations_are_refused() {
    let refused = |config: Value| applied(None, "me", ONE, config, false).unwrap_err();
    let mut other = root(json!({}));
    other["apiVersion"] = json!("v1");
    assert_eq!(
        refused(other).message(),
        "Incorrect version specified in apply patch. Specified patch version: v1, expected: test/v1"
    );
    assert_eq!(
        refused(root(json!({"metadata": {"managedFields": []}}))).message(),
        "metadata.managedFields must be nil"
    );
    assert_eq!(
        refused(root(json!({"spec": {"foo": 1}}))).message(),
        "failed to create typed patch object (n/x; test/v1, Kind=Root): .spec.foo: field not declared in schema"
    );
    assert_eq!(
        refused(root(json!({"spec": {"foo": 1, "replicas": "x"}}))).message(),
        "failed to create typed patch object (n/x; test/v1, Kind=Root): errors:\n  .spec.foo: field not declared in \
         schema\n  .spec.replicas: expected numeric (int or float), got string"
    );
    assert!(matches!(refused(json!([])), Refusal::BadRequest(_)));
}

#[test]
fn fields_applied_in_another_version_are_pruned_through_conversion() {
    // Converts between two versions: the field `data` of v2 is `metadata.labels` in v1.
    let schema = testing::schema();
    let convert = |document: &Value, version: &str| {
        let mut other = document.clone();
        let to_second = version == "test/v2";
        if to_second != (document["apiVersion"] == "test/v2") {
            let taken = if to_second { other["metadata"]["labels"].take() } else { other["data"].take() };
            let place = if to_second { &mut other["data"] } else { &mut other["metadata"]["labels"] };
            *place = taken;
        }
        other["apiVersion"] = version.into();
        Some((other, Layout::Table(&schema, schema.id("test.Root").unwrap())))
    };
    let second = Writer { api_version: "test/v2", convert: Some(&convert), ..writer(&schema, "me", ONE) };
    let mut config = root(json!({"data": {"a": "1", "b": "1"}}));
    config["apiVersion"] = json!("test/v2");
    let live = apply(ApplyRequest { live: None, config: &config, force: false, writer: second }).unwrap();
    let (live, _) = convert(&live, "test/v1").unwrap();
    let first = Writer { convert: Some(&convert), ..writer(&schema, "me", TWO) };
    let config = root(json!({"metadata": {"labels": {"a": "1"}}}));
    let live = apply(ApplyRequest { live: Some(&live), config: &config, force: false, writer: first }).unwrap();
    assert_eq!(live["metadata"]["labels"], json!({"a": "1"}));
    assert_eq!(owners(&live), [("\"me\"".to_string(), vec![".metadata.labels.a".to_string()])]);
}

/// Two parts of one document that have no field in common.
fn any_disjoint_pair() -> impl Strategy<Value = (Value, Value)> {
    (testing::any_document(), 0..64u32).prop_map(|(document, choice)| {
        let (mut left, mut right) = (document.clone(), document);
        for (bit, path) in [
            "/data",
            "/metadata/labels",
            "/metadata/finalizers",
            "/spec/replicas",
            "/spec/containers",
            "/spec/selector",
        ]
        .into_iter()
        .enumerate()
        {
            let loser = if choice >> bit & 1 == 0 { &mut left } else { &mut right };
            let (parent, name) = path.rsplit_once('/').unwrap();
            loser.pointer_mut(parent).and_then(Value::as_object_mut).unwrap().remove(name);
        }
        for half in [&mut left, &mut right] {
            if half["spec"].as_object().is_some_and(Map::is_empty) {
                half.as_object_mut().unwrap().remove("spec");
            }
        }
        (left, right)
    })
}

/// Arbitrary JSON that uses the names and values that have a meaning in managed fields.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        Just(json!("test/v1")),
        Just(json!("FieldsV1")),
        Just(json!("Update")),
        "[a-b]".prop_map(Value::from),
        (0..3).prop_map(Value::from),
    ];
    let key = "apiVersion|metadata|managedFields|labels|finalizers|spec|containers|name|ports|containerPort|data|status|\
               operation|fieldsType|fieldsV1|f:spec|f:data|k:\\{\"name\":\"a\"\\}|v:\"a\"|i:0|\\.|:|f:";
    leaf.prop_recursive(6, 48, 4, move |inner| {
        prop_oneof![
            1 => prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            3 => prop::collection::btree_map(key, inner, 0..5).prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn nothing_panics(live in any_json(), new in any_json(), config in any_json(), managed in any_json()) {
        let (mut live, mut config) = (live, config);
        if let Some(metadata) = live.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.insert("managedFields", managed);
        }
        if let Some(config) = config.as_object_mut() {
            config.insert("apiVersion", json!("test/v1"));
        }
        updated(Some(&live), "a", ONE, new);
        let _ = applied(Some(&live), "kubectl", ONE, config, false);
    }

    #[test]
    fn applying_twice_changes_nothing(first in testing::any_document(), config in testing::any_document()) {
        let live = updated(None, "creator", ONE, first);
        let once = applied(Some(&live), "me", ONE, config.clone(), true).unwrap();
        let twice = applied(Some(&once), "me", TWO, config, false).unwrap();
        prop_assert_eq!(twice.to_string(), once.to_string());
    }

    #[test]
    fn disjoint_appliers_commute((left, right) in any_disjoint_pair()) {
        let run = |order: [(&str, &Value); 2]| {
            let live = applied(None, order[0].0, ONE, order[0].1.clone(), false).unwrap();
            applied(Some(&live), order[1].0, ONE, order[1].1.clone(), false).unwrap()
        };
        prop_assert_eq!(run([("l", &left), ("r", &right)]), run([("r", &right), ("l", &left)]));
    }

    #[test]
    fn applying_nothing_takes_back_what_was_applied(live in testing::any_document(), config in testing::any_document()) {
        let live = updated(None, "creator", ONE, live);
        let bare = root(json!({}));
        if let Ok(with) = applied(Some(&live), "me", ONE, config.clone(), false) {
            let mut config = bare;
            config["metadata"].as_object_mut().unwrap().remove("namespace");
            let back = applied(Some(&with), "me", TWO, config, false).unwrap();
            let typed_schema = testing::schema();
            let typed = writer(&typed_schema, "me", ONE).typed();
            prop_assert!(typed.difference(Some(&without_managed(live)), &without_managed(back)).is_empty());
        }
    }

    #[test]
    fn updates_never_leave_a_field_to_two_updaters(first in testing::any_document(), second in testing::any_document()) {
        let live = updated(None, "a", ONE, first);
        let next = updated(Some(&live), "b", TWO, second);
        let entries = Entries::read(managed_fields(&next)).unwrap();
        if let [a, b] = entries.as_slice() {
            prop_assert!(a.set().intersection(b.set()).is_empty());
        }
    }
}

/// A write: the index of the manager, whether the write is an apply, and the document.
fn any_write() -> impl Strategy<Value = (usize, bool, Value)> {
    (0..3usize, any::<bool>(), testing::any_document())
}

proptest! {
    #[test]
    fn everything_is_owned_by_who_wrote_it_and_nothing_else_is_owned(
        writes in prop::collection::vec(any_write(), 1..7),
    ) {
        const MANAGERS: [&str; 3] = ["a", "b", "c"];
        let schema = testing::schema();
        let mut live: Option<Value> = None;
        for (at, (manager, applies, document)) in writes.into_iter().enumerate() {
            let manager = MANAGERS[manager];
            let now = format!("2024-01-01T00:00:{at:02}Z");
            let writer = writer(&schema, manager, &now);
            let next = match applies {
                true => applied(live.as_ref(), manager, &now, document, true).unwrap(),
                false => updated(live.as_ref(), manager, &now, document),
            };
            let typed = writer.typed();
            let bare = without_managed(next.clone());
            let entries = Entries::read(managed_fields(&next)).unwrap();
            let there = typed.paths(&bare).with_members((), &|_, _| true, &|_, _| ());
            for entry in entries.iter() {
                let mut missing = entry.set().clone();
                missing.subtract(&there);
                prop_assert!(missing.is_empty(), "{} owns {:?}", entry.shown(), missing.paths());
            }
            let mut unowned = typed.paths(&bare);
            writer.strip(&mut unowned);
            // The document always has the field `spec`, so a manager that sets nothing in it does not own it.
            unowned.remove_member(&["spec"]);
            for entry in entries.iter() {
                unowned.subtract(entry.set());
            }
            // If an object has no managers at all, its fields have no owners until the first apply.
            prop_assert!(entries.is_empty() || unowned.is_empty(), "nobody owns {:?}", unowned.paths());
            let changed = writer.difference(live.clone().map(without_managed).as_ref(), &bare).changed;
            let operation = if applies { Operation::Apply } else { Operation::Update };
            for entry in entries.iter() {
                let is_writer = entry.manager == manager && entry.operation == operation;
                let foreign = entry.set().intersection(&changed);
                prop_assert!(is_writer || foreign.is_empty(), "{} owns {:?}", entry.shown(), foreign.paths());
            }
            live = Some(next);
        }
    }
}
