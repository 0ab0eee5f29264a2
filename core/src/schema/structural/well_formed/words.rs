//! Checks each keyword of a schema by itself, at every level of the schema.

use super::{Faults, Group, JUNCTORS, add};
use crate::object::at::{self, At};
use crate::refusal::Cause;
use crate::schema::structural::field_path::FieldPath;
use crate::schema::structural::{Structural, is_meta};
use holdfast_value::Value;
use std::collections::BTreeSet;

/// The properties of the place of a schema inside the whole schema, which determine the allowed keywords.
#[derive(Clone, Copy)]
pub(super) struct Context<'a> {
    /// The reason why the schema must not have a default, for a message; `None` if it may have one.
    no_default: Option<(&'static str, &'a str)>,
    /// Whether the schema is inside the fields that every resource has.
    in_meta: bool,
}

impl Context<'_> {
    pub const ROOT: Context<'static> = Context { no_default: None, in_meta: false };
}

const TYPES: &[&str] = &["array", "boolean", "integer", "number", "object", "string"];
/// The keywords that are not supported, and whether a keyword with an empty value counts as used.
const UNSUPPORTED: &[(&str, bool)] = &[
    ("id", false),
    ("additionalItems", true),
    ("patternProperties", false),
    ("definitions", false),
    ("dependencies", true),
    ("$ref", true),
];

/// Checks the keywords of a schema, and of the schemas below it.
pub(super) fn words(schema: At, context: Context, is_root: bool, faults: &mut Faults) {
    let mut say = |fault: at::Fault| add(faults, Group::Always, || fault);
    let (ty, items, properties) = (schema.get("type"), schema.get("items"), schema.get("properties"));
    let (additional, embedded) = (schema.get("additionalProperties"), schema.get("x-kubernetes-embedded-resource"));
    if let (Some((reason, name)), true) = (context.no_default, schema.get("default").is_set()) {
        say(schema.get("default").forbidden(&format!("must not be set {reason}{name}")));
    }
    for (word, _) in UNSUPPORTED.iter().filter(|(word, empty)| {
        let at = schema.get(word);
        if *empty { at.is_set() } else { !at.is_empty() }
    }) {
        say(schema.get(word).forbidden(&format!("{word} is not supported")));
    }
    if ty.text() == "null" {
        say(ty.forbidden("type cannot be set to null, use nullable as an alternative"));
    }
    if items.value.is_array() && !items.is_empty() {
        say(items.forbidden("items must be a schema object and not an array"));
    }
    if context.in_meta && embedded.is_true() {
        say(embedded.forbidden("must not be used inside of resource meta"));
    }
    if schema.get("uniqueItems").is_true() {
        let detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        say(schema.get("uniqueItems").forbidden(detail));
    }
    if !properties.is_empty() && (additional.is_false() || additional.value.is_object()) {
        say(additional.forbidden("additionalProperties and properties are mutual exclusive"));
    }
    if schema.get("x-kubernetes-preserve-unknown-fields").is_false() {
        say(schema.get("x-kubernetes-preserve-unknown-fields").invalid("must be true or undefined"));
    }
    let map_type = schema.get("x-kubernetes-map-type");
    if map_type.is_set() {
        need_type(ty, "object", "x-kubernetes-map-type", &mut say);
        if !["atomic", "granular"].contains(&map_type.text()) {
            say(map_type.not_supported(&["atomic", "granular"]));
        }
    }
    let rules = schema.get("x-kubernetes-validations");
    for rule in rules.items() {
        validation_rule(rule, &mut say);
    }
    let mut paths = rules.items().map(|rule| rule.value["fieldPath"].as_str().unwrap_or_default());
    if paths.any(|path| !path.is_empty())
        && let Ok(parsed) = Structural::parse(schema.value)
    {
        for rule in rules.items() {
            let path = rule.get("fieldPath");
            if !path.is_empty() && FieldPath::parse(path.text(), &parsed, true).is_err() {
                say(path.invalid("must be a valid path"));
            }
        }
    }
    if !ty.is_empty() && !TYPES.contains(&ty.text()) {
        add(faults, Group::Types, || ty.not_supported(TYPES));
    }
    lists(schema, faults);
    below(schema, context, is_root, faults);
}

/// Checks the schemas directly inside a schema.
fn below(schema: At, context: Context, is_root: bool, faults: &mut Faults) {
    let additional = schema.get("additionalProperties");
    if additional.value.is_object() {
        let no_default = Some(("inside additionalProperties applying to object metadata", ""));
        let context = if context.in_meta { Context { no_default, ..context } } else { context };
        words(additional, context, false, faults);
    }
    let is_resource = is_root || schema.get("x-kubernetes-embedded-resource").is_true();
    for (name, property) in schema.get("properties").entries() {
        let mut context = context;
        if is_resource && is_meta(name) {
            context.in_meta = true;
            context.no_default = if is_root { Some(("in top-level ", name)) } else { context.no_default };
        }
        words(property, context, false, faults);
    }
    let not = schema.get("not");
    if not.is_set() {
        words(not, context, false, faults);
    }
    for word in JUNCTORS {
        schema.get(word).items().for_each(|at| words(at, context, false, faults));
    }
    for word in ["definitions", "dependencies"] {
        schema.get(word).entries().filter(|(_, at)| at.value.is_object()).for_each(|(_, at)| {
            words(at, context, false, faults);
        });
    }
    let items = schema.get("items");
    if items.value.is_object() {
        words(items, context, false, faults);
    }
    items.items().for_each(|at| words(at, context, false, faults));
}

fn need_type(ty: At, expected: &str, word: &str, say: &mut impl FnMut(at::Fault)) {
    let detail = format!("must be {expected} if {word} is specified");
    if ty.is_empty() {
        say(ty.required(&detail));
    } else if ty.text() != expected {
        say(ty.invalid(&detail));
    }
}

/// Checks the type of a list, and the names of the fields that identify its items.
fn lists(schema: At, faults: &mut Faults) {
    let (list_type, keys) = (schema.get("x-kubernetes-list-type"), schema.get("x-kubernetes-list-map-keys"));
    let (ty, items) = (schema.get("type"), schema.get("items"));
    let kind = list_type.text();
    let is_map = kind == "map";
    if list_type.is_set() {
        need_type(ty, "array", "x-kubernetes-list-type", &mut |cause| add(faults, Group::Always, || cause));
        if !["atomic", "set", "map"].contains(&kind) {
            add(faults, Group::Always, || Cause::from(list_type.not_supported(&["atomic", "set", "map"])));
        }
    }
    if !keys.is_empty() && !is_map {
        let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
        let cause = || if list_type.is_set() { list_type.invalid(detail) } else { list_type.required(detail) };
        add(faults, Group::Always, cause);
    }
    if kind == "set" && ty.text() == "array" {
        for (ty, word, absent_is_bad) in
            [("array", "x-kubernetes-list-type", false), ("object", "x-kubernetes-map-type", true)]
        {
            let at = items.get(word);
            let is_bad = if at.is_set() { at.text() != "atomic" } else { absent_is_bad };
            if items.get("type").text() == ty && is_bad {
                let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
                add(faults, Group::SetItems, || at.invalid(detail));
            }
        }
    }
    if is_map {
        map_keys(keys, items, faults);
    }
    if (is_map || kind == "set") && items.get("nullable").is_true() {
        let detail = format!("cannot be nullable when x-kubernetes-list-type is {kind}");
        add(faults, Group::MapKeys, || items.get("nullable").forbidden(&detail));
    }
}

fn map_keys(keys: At, items: At, faults: &mut Faults) {
    let mut say = |group: Group, fault: at::Fault| add(faults, group, || fault);
    if keys.is_empty() {
        say(Group::Always, keys.required("must not be empty if x-kubernetes-list-type is map"));
    }
    if !items.is_set() {
        say(Group::Always, items.required("must have a schema if x-kubernetes-list-type is map"));
        return;
    }
    if items.value.is_array() {
        say(Group::Always, items.invalid("must only have a single schema if x-kubernetes-list-type is map"));
        return;
    }
    let (ty, properties) = (items.get("type"), items.get("properties"));
    let is_object = ty.text() == "object";
    if !is_object {
        let detail = "must be object if parent array's x-kubernetes-list-type is map";
        say(Group::Always, ty.invalid_as(ty.text(), detail));
    }
    let required: BTreeSet<&str> =
        items.value["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let mut seen = BTreeSet::new();
    for key in keys.items() {
        let name = key.text();
        let property = properties.key(name);
        if !seen.insert(name.to_owned()) && is_object {
            say(Group::Always, keys.invalid("must not contain duplicate entries"));
        }
        if !property.is_set() {
            if is_object {
                say(Group::Always, keys.invalid("entries must all be names of item properties"));
            }
            continue;
        }
        if is_object && matches!(property.get("type").text(), "array" | "object") {
            let detail = "must be a scalar type if parent array's x-kubernetes-list-type is map";
            say(Group::Always, property.get("type").invalid_as("object", detail));
        }
        if !required.contains(name) && !property.get("default").is_set() {
            let detail = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required \
                          property";
            say(Group::MapKeys, property.get("default").required(detail));
        }
        if property.get("nullable").is_true() {
            let detail = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
            say(Group::MapKeys, property.get("nullable").forbidden(detail));
        }
    }
}

const REASONS: &[&str] = &["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];

/// Checks the fields of a validation rule, except the expression, which the module `rules` compiles.
fn validation_rule(at: At, say: &mut impl FnMut(at::Fault)) {
    let (rule, message) = (at.get("rule"), at.get("message"));
    let has_breaks = |text: &str| text.trim().contains(['\n', '\r']);
    if rule.text().trim().is_empty() {
        say(rule.required("rule is not specified"));
    } else if !message.is_empty() && message.text().trim().is_empty() {
        say(message.invalid("must be non-empty if specified"));
    } else if has_breaks(message.text()) {
        say(message.invalid("must not contain line breaks"));
    } else if has_breaks(rule.text()) && message.is_empty() {
        say(message.required("message must be specified if rule contains line breaks"));
    }
    let (expression, reason, path) = (at.get("messageExpression"), at.get("reason"), at.get("fieldPath"));
    if !expression.is_empty() && expression.text().trim().is_empty() {
        say(expression.required("messageExpression must be non-empty if specified"));
    }
    if reason.is_set() && !REASONS.contains(&reason.text()) {
        say(reason.not_supported(REASONS));
    }
    if !path.is_empty() && path.text().trim().is_empty() {
        say(path.invalid("must be non-empty if specified"));
    }
    if path.text().contains(['\n', '\r']) {
        say(path.invalid("must not contain line breaks"));
    }
}
