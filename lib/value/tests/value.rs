//! Compares documents with `serde_json`'s values, because both types must behave alike.

use holdfast_value::{CompactString, Map, Value, from_value, json, to_value};
use proptest::prelude::*;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

fn documents() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        any::<u64>().prop_map(Into::into),
        (-1e9..1e9_f64).prop_map(Into::into),
        "[a-z~/\\\\\"é]{0,6}".prop_map(Into::into),
    ];
    leaf.prop_recursive(4, 64, 8, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Into::into),
            prop::collection::vec(("[a-d~/]{0,2}", inner), 0..8)
                .prop_map(|fields| serde_json::Value::Object(fields.into_iter().collect())),
        ]
    })
}

/// A change of an object's fields.
#[derive(Debug, Clone)]
enum Act {
    Insert(u8, i64),
    Remove(u8),
    Change(u8, i64),
    Entry(u8, i64),
    Retain(i64),
    /// Continues with a copy, and keeps the original to check that it does not change.
    Copy,
    Clear,
    Append(Vec<(u8, i64)>),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        12 => (any::<u8>(), any::<i64>()).prop_map(|(name, value)| Act::Insert(name, value)),
        3 => any::<u8>().prop_map(Act::Remove),
        3 => (any::<u8>(), any::<i64>()).prop_map(|(name, value)| Act::Change(name, value)),
        3 => (any::<u8>(), any::<i64>()).prop_map(|(name, value)| Act::Entry(name, value)),
        1 => any::<i64>().prop_map(Act::Retain),
        3 => Just(Act::Copy),
        1 => Just(Act::Clear),
        2 => prop::collection::vec((any::<u8>(), any::<i64>()), 0..80).prop_map(Act::Append),
    ];
    prop::collection::vec(act, 0..120)
}

fn name(number: u8) -> String {
    format!("n{number}")
}

fn same(map: &Map, twin: &BTreeMap<String, i64>) {
    assert_eq!(map.len(), twin.len());
    assert_eq!(map.is_empty(), twin.is_empty());
    assert!(
        map.iter()
            .map(|(name, value)| (name.as_str(), value.as_i64().unwrap()))
            .eq(twin.iter().map(|(n, v)| (n.as_str(), *v)))
    );
    assert!(map.keys().rev().map(|name| name.as_str()).eq(twin.keys().rev().map(|name| name.as_str())));
    assert!(map.values().map(|value| value.as_i64().unwrap()).eq(twin.values().copied()));
    assert!(map.clone().into_iter().map(|(name, _)| name).eq(twin.keys().map(|name| name.as_str())));
    let built: Map = twin.iter().rev().map(|(name, value)| (name.clone(), Value::from(*value))).collect();
    assert_eq!(*map, built);
    for number in 0..=u8::MAX {
        assert_eq!(map.get(&name(number)).and_then(Value::as_i64), twin.get(&name(number)).copied());
    }
}

proptest! {
    #[test]
    fn fields_are_as_in_a_tree(acts in acts()) {
        let (mut map, mut twin) = (Map::new(), BTreeMap::new());
        let mut originals = Vec::new();
        for act in acts {
            match act {
                Act::Insert(number, value) => {
                    let before = map.insert(name(number), value.into());
                    assert_eq!(before.and_then(|value| value.as_i64()), twin.insert(name(number), value));
                }
                Act::Remove(number) => {
                    let before = map.remove(&name(number));
                    assert_eq!(before.and_then(|value| value.as_i64()), twin.remove(&name(number)));
                }
                Act::Change(number, value) => {
                    if let Some(here) = map.get_mut(&name(number)) {
                        *here = value.into();
                    }
                    twin.entry(name(number)).and_modify(|here| *here = value);
                }
                Act::Entry(number, value) => {
                    map.entry(name(number)).and_modify(|here| *here = 1.into()).or_insert_with(|| value.into());
                    twin.entry(name(number)).and_modify(|here| *here = 1).or_insert(value);
                }
                Act::Retain(least) => {
                    map.retain(|_, value| value.as_i64() >= Some(least));
                    twin.retain(|_, value| *value >= least);
                }
                Act::Copy => {
                    let copy = map.clone();
                    assert!(copy.is_same(&map));
                    originals.push((std::mem::replace(&mut map, copy), twin.clone()));
                }
                Act::Clear => {
                    map.clear();
                    twin.clear();
                }
                Act::Append(more) => {
                    let mut other: Map = more.iter().map(|(number, value)| (name(*number), (*value).into())).collect();
                    map.append(&mut other);
                    assert!(other.is_empty());
                    twin.extend(more.into_iter().map(|(number, value)| (name(number), value)));
                }
            }
        }
        same(&map, &twin);
        for (map, twin) in &originals {
            same(map, twin);
        }
    }

    #[test]
    fn documents_are_read_and_written_alike(theirs in documents(), others in documents()) {
        let ours = Value::from(theirs.clone());
        assert_eq!(ours.to_string(), theirs.to_string());
        assert_eq!(format!("{ours:#}"), format!("{theirs:#}"));
        assert_eq!(theirs.to_string().parse::<Value>().unwrap(), ours);
        assert_eq!(serde_json::Value::from(ours.clone()), theirs);
        assert_eq!(to_value(&theirs).unwrap(), ours);
        assert_eq!(from_value::<serde_json::Value>(ours.clone()).unwrap(), theirs);
        assert_eq!(serde_json::Value::deserialize(&ours).unwrap(), theirs);
        assert_eq!(ours == Value::from(others.clone()), theirs == others);
    }

    #[test]
    fn pointers_lead_to_the_same(theirs in documents(), pointer in "(/([a-d]{0,2}|~0|~1|0|1|01|-|\\+1)){0,4}|a") {
        let mut ours = Value::from(theirs.clone());
        let found = theirs.pointer(&pointer).cloned().map(Value::from);
        assert_eq!(ours.pointer(&pointer).cloned(), found);
        assert_eq!(ours.pointer_mut(&pointer).cloned(), found);
        assert_eq!(ours, Value::from(theirs));
    }
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Everything {
    text: String,
    none: Option<u8>,
    some: Option<i16>,
    list: Vec<Choice>,
    map: BTreeMap<u32, f64>,
    pair: (bool, char),
    unit: (),
    newtype: Newtype,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Newtype(u64);

#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum Choice {
    Unit,
    Newtype(i64),
    Tuple(u8, u8),
    Struct { a: bool },
}

#[test]
fn types_of_ones_own() {
    let everything = Everything {
        text: "t".into(),
        none: None,
        some: Some(-3),
        list: vec![Choice::Unit, Choice::Newtype(-1), Choice::Tuple(1, 2), Choice::Struct { a: true }],
        map: BTreeMap::from([(7, 1.5), (1, 2.0)]),
        pair: (true, 'x'),
        unit: (),
        newtype: Newtype(u64::MAX),
    };
    let ours = to_value(&everything).unwrap();
    assert_eq!(ours, Value::from(serde_json::to_value(&everything).unwrap()));
    assert_eq!(Everything::deserialize(&ours).unwrap(), everything);
    assert_eq!(from_value::<Everything>(ours).unwrap(), everything);
}

#[test]
fn what_does_not_fit_is_told_alike() {
    let rows = [
        json!({"text": 1}),
        json!([1]),
        json!("x"),
        json!({"text": "t", "some": 70000}),
        json!({"text": "t", "some": 1, "list": [{"Tuple": [1]}]}),
        json!({"text": "t", "some": 1, "list": ["Other"]}),
        json!({"text": "t", "some": 1, "list": [{"Unit": null, "Newtype": 1}]}),
        json!({"text": "t", "some": 1, "list": [3]}),
    ];
    for row in rows {
        let theirs = serde_json::from_value::<Everything>(row.clone().into()).unwrap_err().to_string();
        assert_eq!(Everything::deserialize(&row).unwrap_err().to_string(), theirs, "{row}");
        assert_eq!(from_value::<Everything>(row.clone()).unwrap_err().to_string(), theirs, "{row}");
    }
}

#[test]
fn written_among_code() {
    let (name, text, document) = ("key".to_owned(), "t", json!({"deep": [1]}));
    let written = json!({
        "null": null, "true": true, "list": [null, 1, -2.5, "x", [], {}, text, document,],
        (name.clone()): Some(1), "call": i32::max(3, 4), "none": None::<u8>, "tree": BTreeMap::from([("a", 1)]),
        "twice": 1, "twice": 2, "document": &document,
    });
    let theirs = serde_json::json!({
        "null": null, "true": true, "list": [null, 1, -2.5, "x", [], {}, text, {"deep": [1]}],
        "key": 1, "call": 4, "none": null, "tree": {"a": 1}, "twice": 2, "document": {"deep": [1]},
    });
    assert_eq!(written, Value::from(theirs));
    let (Value::Object(one), Value::Object(other)) = (&document, &written["document"]) else { panic!("objects") };
    assert!(one.is_same(other), "a document among JSON is a copy that shares");
}

#[test]
fn indexing() {
    let mut value = json!({"a": [{"b": 1}]});
    assert_eq!(value["a"][0]["b"], 1);
    assert_eq!(value["a"][1]["b"], Value::Null);
    assert_eq!(value["x"]["y"], Value::Null);
    let before = value.clone();
    value["a"][0]["b"] = "text".into();
    value["c"]["d"] = true.into();
    assert_eq!(value, json!({"a": [{"b": "text"}], "c": {"d": true}}));
    assert_eq!(before, json!({"a": [{"b": 1}]}));
    assert_eq!(value["c"].take(), json!({"d": true}));
    assert_eq!(value["c"], Value::Null);
    assert_eq!(
        (value["a"][0]["b"] == "text", json!(1) == 1_u8, json!(1.5) == 1.5, json!(-1) == 1),
        (true, true, true, false)
    );
}

/// The sender of an object chooses the number and the order of its fields, so an unfavourable order must not be slow.
#[test]
fn many_fields_in_the_worst_order() {
    let mut map = Map::new();
    for number in (0..300_000).rev() {
        map.insert(format!("{number:06}"), Value::Null);
    }
    assert_eq!(map.len(), 300_000);
    assert_eq!(map.keys().next().unwrap(), "000000");
    assert_eq!(map.into_iter().next_back().unwrap().0, "299999");
}

#[test]
fn a_footprint_is_what_lies_outside_of_the_value() {
    for value in [json!(null), json!(1.5), json!("twenty-four bytes inside"), json!([]), json!({})] {
        assert_eq!(value.footprint(), 0, "{value}");
    }
    assert!(json!("twenty-five bytes outside").footprint() >= 25);
    let place = size_of::<(CompactString, Value)>();
    assert!(json!({"a": 1, "b": 2}).footprint() >= 2 * place);
    let many: Value = (0..1000).map(|number| (name_of(number), number)).collect();
    assert!(many.footprint() >= 1000 * place);
    let nested = json!({"many": many, "again": [many]});
    assert!(nested.footprint() >= 2 * many.footprint());
}

fn name_of(number: i64) -> String {
    format!("field-{number}")
}
