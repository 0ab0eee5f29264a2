//! Tests that the work for judging a body with many items in one field grows in proportion to the length of the body.
//! Every list and map of the schema table is tested, in every kind and version, with different items.
//!
//! The work is measured in allocations and allocated bytes, for one body and for a body four times as long. The tests
//! also check that a refusal is at most ten times as long as the body, plus 64 KiB.
#![cfg(not(debug_assertions))]

#[path = "custom_resources/world.rs"]
#[allow(dead_code)]
mod world;

use holdfast_core::kinds::{Kind, KindId, registry};
use holdfast_core::pipeline::{Answer, Answers, Basis, Judgement, judge};
use holdfast_core::refusal::Refusal;
use holdfast_core::request::{FieldValidation, Format, Verb};
use holdfast_core::schema::{Field, Message, MessageId, Shape, Type, schema};
use holdfast_core::stamp::Stamp;
use holdfast_value::{Map, Value, json};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use std::alloc::System;
use std::collections::BTreeSet;
use world::{DEFINITIONS, World};

const FEW: usize = 400;
const TIMES: usize = 4;
/// The maximum factor by which the work may grow if there are four times as many items. It is more than four, because
/// some sets are trees.
const WORK_TIMES: usize = 6;
/// The number of allocated bytes that may be added to the allowed growth. It covers limits that only the longer body
/// reaches.
const BYTES_BESIDE: usize = 1 << 20;
/// The number of allocations that may be added to the allowed growth.
const PIECES_BESIDE: usize = 4_000;
/// The maximum number of allocated bytes for each byte of a body. The most are needed for autoscalers in an old
/// version: an empty item of three bytes in the metrics is converted, gets defaults and is validated.
const BYTES_A_BYTE: usize = 2_500;
const ANSWER_TIMES: usize = 10;
/// The maximum number of bytes in the answer to an accepted object, for each byte of the body. The answer has all
/// fields that are always shown; the conditions of nodes have the most such fields.
const OBJECT_TIMES: usize = 30;
const ANSWER_BESIDE: usize = 64 << 10;
const DEPTH_MAX: usize = 9;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// What the items of a list are.
#[derive(Debug, Clone, Copy)]
enum Items {
    /// Each item is `{}`, `""` or `0`, which violates every rule that requires a value.
    Empty,
    /// The items differ, and have a value in each scalar field.
    Distinct,
    /// The items are equal, and have a value in each scalar field.
    Alike,
}

/// The work for judging a body, and the length of the answer.
#[derive(Debug, Clone, Copy)]
struct Taken {
    pieces: usize,
    bytes: usize,
    answer: usize,
    is_object: bool,
}

#[test]
fn work_and_answers_are_in_proportion_to_what_is_sent() {
    let mut world = World::new();
    let (mut fields, mut faults) = (0, Vec::new());
    let custom = define(&mut world);
    let world = &world;
    for (_, kind) in registry().iter() {
        for version in 0..kind.versions.len() {
            let Some(message) = schema().id(&kind.versions[version].message) else { continue };
            let mut places = Places { seen: BTreeSet::new(), found: Vec::new() };
            places.of(schema().message(message), &mut Vec::new());
            fields += places.found.len();
            for place in &places.found {
                // The rules are the same in all versions of a kind. The defaults differ, so other versions are tested
                // with empty items only.
                let each = [Items::Empty, Items::Distinct, Items::Alike];
                for &items in &each[..if version == 0 { each.len() } else { 1 }] {
                    let told = |fault: &str| {
                        let version = kind.versions[version].api_version();
                        format!("{version} {} {} {items:?}: {fault}", kind.kind, place.path())
                    };
                    let body = |count: usize| place.body(kind, version, items, count);
                    faults.extend(check(world, kind, version, body).map(|fault| told(&fault)));
                }
            }
        }
    }
    let kind = world.state.kind(custom);
    for (field, _) in FIELDS {
        for item in
            ["{}", "{\"key\":\"NUMBER\"}", "{\"key\":\"same\"}", "\"NUMBER\"", "\"same\"", "NUMBER", "null", "[]"]
        {
            let body = |count: usize| {
                let each: Vec<String> = (0..count).map(|number| item.replace("NUMBER", &number.to_string())).collect();
                let value = match field {
                    "map" => {
                        let entries = each.iter().enumerate().map(|(number, item)| format!("\"k{number}\":{item}"));
                        format!("{{{}}}", entries.collect::<Vec<_>>().join(","))
                    }
                    _ => format!("[{}]", each.join(",")),
                };
                format!(
                    "{{\"apiVersion\":\"example.com/v1\",\"kind\":\"Widget\",\"metadata\":{{\"name\":\"x\"}},\
                     \"spec\":{{\"{field}\":{value}}}}}"
                )
            };
            faults.extend(check(world, kind, 0, body).map(|fault| format!("Widget {field} of {item}: {fault}")));
        }
    }
    assert!(fields > 1_000, "only {fields} fields");
    assert!(faults.is_empty(), "{} of {fields} fields:\n{}", faults.len(), faults.join("\n"));
}

/// The fields of a custom kind that are lists and maps: keyed lists, sets, lists without duplicates, fields with rules,
/// fields with defaults, and fields whose items have many required fields.
const FIELDS: [(&str, &str); 8] = [
    ("keyed", r#"{"type":"array","items":ITEM,"x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["key"]}"#),
    ("set", r#"{"type":"array","items":{"type":"string"},"x-kubernetes-list-type":"set"}"#),
    ("atomic", r#"{"type":"array","items":ITEM,"x-kubernetes-list-type":"atomic"}"#),
    ("members", r#"{"type":"array","items":{"type":"string","enum":["a","b"],"pattern":"^a*$"}}"#),
    (
        "alternatives",
        r#"{"type":"array","items":{"x-kubernetes-int-or-string":true,"anyOf":[{"type":"integer"},{"type":"string"}]}}"#,
    ),
    (
        "rules",
        r#"{"type":"array","maxItems":5000,"items":{"type":"object","properties":{"key":{"type":"string","maxLength":9}},
            "x-kubernetes-validations":[{"rule":"has(self.key) && self.key == 'never'"}]}}"#,
    ),
    ("wide", r#"{"type":"array","items":WIDE}"#),
    ("map", r#"{"type":"object","additionalProperties":ITEM}"#),
];

/// Creates a custom kind with the fields [`FIELDS`].
fn define(world: &mut World) -> KindId {
    let item = r#"{"type":"object","required":["key"],"properties":{"key":{"type":"string"},
                   "more":{"type":"string","default":"ten characters"}}}"#;
    let names: Vec<String> = (0..500).map(|number| format!("\"f{number}\"")).collect();
    let each: Vec<String> = names.iter().map(|name| format!("{name}:{{\"type\":\"string\"}}")).collect();
    let wide = format!(r#"{{"type":"object","required":[{}],"properties":{{{}}}}}"#, names.join(","), each.join(","));
    let fields = FIELDS.iter().map(|(name, schema)| {
        let schema = schema.replace("ITEM", item).replace("WIDE", &wide);
        (*name, schema.parse::<Value>().unwrap_or_else(|error| panic!("{name}: {error}")))
    });
    let spec = json!({"type": "object", "properties": fields.collect::<Map>()});
    let schema = json!({"type": "object", "properties": {"spec": spec}});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    });
    world.create(DEFINITIONS, &definition).unwrap_or_else(|refusal| panic!("{}", refusal.message()));
    world.settle();
    world.state.registry.find("example.com", "v1", "widgets").expect("the kind is served").0
}

fn check(world: &World, kind: &Kind, version: usize, body: impl Fn(usize) -> String) -> Option<String> {
    let (few, many) = (body(FEW), body(TIMES * FEW));
    let (one, four) = (taken(world, kind, version, &few)?, taken(world, kind, version, &many)?);
    let told = format!("{} and {} bytes take {one:?} and {four:?}", few.len(), many.len());
    let grows = |few: usize, many: usize, beside: usize| many > few * WORK_TIMES + beside;
    for (body, taken) in [(&few, one), (&many, four)] {
        let times = if taken.is_object { OBJECT_TIMES } else { ANSWER_TIMES };
        if taken.answer > body.len() * times + ANSWER_BESIDE {
            return Some(format!("the answer is too long: {told}"));
        }
        if taken.bytes > body.len() * BYTES_A_BYTE + BYTES_BESIDE {
            return Some(format!("too much is allocated: {told}"));
        }
    }
    if grows(one.bytes, four.bytes, BYTES_BESIDE) || grows(one.pieces, four.pieces, PIECES_BESIDE) {
        return Some(format!("the work grows faster than the body: {told}"));
    }
    None
}

/// Measures the work for judging a body; `None` if an object of the kind cannot be created without effects.
fn taken(world: &World, kind: &Kind, version: usize, body: &str) -> Option<Taken> {
    let named = &kind.versions[version];
    let root = if named.group.is_empty() { "/api".to_owned() } else { format!("/apis/{}", named.group) };
    let namespace = if kind.is_namespaced() { "/namespaces/shop" } else { "" };
    let path = format!("{root}/{}{namespace}/{}", named.version, kind.resource);
    let mut request = world.request(Verb::Create, &path, Format::Json, body.as_bytes().to_vec()).ok()?;
    request.options.field_validation = FieldValidation::Warn;
    request.options.dry_run = true;
    let stamp = Stamp { time: jiff::Timestamp::from_second(1_795_000_000).expect("within range"), seed: 1 };
    let region = Region::new(ALLOCATOR);
    let (answer, is_object) = match judge(
        Basis::without_authorization(&world.state, &world.settings),
        &request,
        stamp,
        &Answers::default(),
    ) {
        Judgement::Done(Ok(decision), told) => {
            let warnings: usize = decision.warnings.iter().chain(told.warnings.iter()).map(String::len).sum();
            let of_answer = match &decision.answer {
                Answer::Written { index, .. } => decision.writes[*index].draft.size(),
                Answer::Document { document, .. } => serde_json::to_string(document).map_or(0, |text| text.len()),
                _ => 0,
            };
            (of_answer + warnings, true)
        }
        Judgement::Done(Err(refusal), told) => {
            (length(&refusal) + told.warnings.iter().map(String::len).sum::<usize>(), false)
        }
        Judgement::Need(_) => return None,
    };
    let taken = region.change();
    Some(Taken { pieces: taken.allocations + taken.reallocations, bytes: taken.bytes_allocated, answer, is_object })
}

/// The number of bytes of the Status that reports the refusal.
fn length(refusal: &Refusal) -> usize {
    let escaped = |text: &str| serde_json::to_string(text).map_or(0, |text| text.len());
    let cause = |field: &str, message: &str| escaped(field) + escaped(message) + 60;
    let causes = refusal.causes();
    escaped(&refusal.message()) + causes.iter().map(|one| cause(&one.field, &one.message)).sum::<usize>() + 200
}

/// A list or map in the objects of a kind, and the path that leads to it.
struct Place {
    /// The steps of the path: names of fields, `*` for an item of a list, and `@` for an entry of a map.
    steps: Vec<String>,
    shape: Shape,
    ty: Type,
}

struct Places {
    /// The message and the field of each list or map that was already found in this kind. The same rules apply to it
    /// wherever it is, so it is tested once.
    seen: BTreeSet<(String, String)>,
    found: Vec<Place>,
}

impl Places {
    fn of(&mut self, message: &'static Message, steps: &mut Vec<String>) {
        if steps.len() > DEPTH_MAX {
            return;
        }
        for field in &message.fields {
            if field.json == "managedFields" && message.name.ends_with("ObjectMeta") {
                continue;
            }
            if self.seen.insert((message.name.clone(), field.json.clone())) {
                self.field(field, steps);
            }
        }
    }

    fn field(&mut self, field: &'static Field, steps: &mut Vec<String>) {
        let before = steps.len();
        steps.push(field.json.clone());
        let is_any = matches!(field.ty, Type::RawExtension | Type::Json | Type::StringList);
        if field.shape != Shape::Single || is_any {
            let shape = if field.shape == Shape::Single { Shape::List } else { field.shape };
            let ty = if field.shape == Shape::Single { Type::String } else { field.ty };
            self.found.push(Place { steps: steps.clone(), shape, ty });
        }
        match field.shape {
            Shape::Single => {}
            Shape::List => steps.push("*".to_owned()),
            Shape::Map => steps.push("@".to_owned()),
        }
        if let Type::Message(id) = field.ty {
            self.of(schema().message(id), steps);
        }
        steps.truncate(before);
    }
}

impl Place {
    fn path(&self) -> String {
        self.steps.join(".")
    }

    fn body(&self, kind: &Kind, version: usize, items: Items, count: usize) -> String {
        let each = (0..count).map(|number| {
            let number = if matches!(items, Items::Alike) { 1 } else { number };
            let item = item(self.ty, items, number, 0);
            if self.shape == Shape::Map { format!("\"k{number}\":{item}") } else { item }
        });
        let each = each.collect::<Vec<_>>().join(",");
        let mut body = if self.shape == Shape::Map { format!("{{{each}}}") } else { format!("[{each}]") };
        for step in self.steps.iter().rev() {
            body = match step.as_str() {
                "*" => format!("[{body}]"),
                "@" => format!("{{\"k\":{body}}}"),
                name => format!("{{\"{name}\":{body}}}"),
            };
        }
        let namespace = if kind.is_namespaced() { ",\"namespace\":\"shop\"" } else { "" };
        let metadata = format!("\"name\":\"x\"{namespace}");
        let head = format!("\"apiVersion\":\"{}\",\"kind\":\"{}\"", kind.versions[version].api_version(), kind.kind);
        match body.strip_prefix("{\"metadata\":{") {
            Some(rest) if self.steps[0] == "metadata" => format!("{{{head},\"metadata\":{{{metadata},{rest}"),
            _ => format!("{{{head},\"metadata\":{{{metadata}}},{}", &body[1..]),
        }
    }
}

fn item(ty: Type, items: Items, number: usize, depth: usize) -> String {
    let is_empty = matches!(items, Items::Empty);
    match ty {
        Type::Message(_) if is_empty => "{}".to_owned(),
        Type::Message(id) => made(id, items, number, depth),
        Type::String | Type::Bytes | Type::IntOrString if is_empty => "\"\"".to_owned(),
        Type::Bytes => "\"YQ==\"".to_owned(),
        Type::String | Type::IntOrString => format!("\"n{number}\""),
        Type::Bool => "true".to_owned(),
        Type::Int32 | Type::Int64 | Type::Double => if is_empty { 0 } else { number % 60_000 + 1 }.to_string(),
        Type::Quantity => "\"1\"".to_owned(),
        Type::Time => "\"2026-01-01T00:00:00Z\"".to_owned(),
        Type::MicroTime => "\"2026-01-01T00:00:00.000000Z\"".to_owned(),
        Type::Duration => "\"1s\"".to_owned(),
        Type::StringList => "[]".to_owned(),
        _ => "{}".to_owned(),
    }
}

/// A message as JSON, with a value in each scalar field. It contains inner messages down to two levels.
fn made(id: MessageId, items: Items, number: usize, depth: usize) -> String {
    let fields = schema().message(id).fields.iter().filter(|field| field.shape == Shape::Single);
    let is_shown = |field: &&Field| depth < 2 || !matches!(field.ty, Type::Message(_));
    let fields =
        fields.filter(is_shown).map(|field| format!("\"{}\":{}", field.json, item(field.ty, items, number, depth + 1)));
    format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
}
