//! Checks that a definition's schema is structural: it declares every type exactly once, so that objects can be pruned,
//! defaulted and merged with it.
//!
//! As in Kubernetes there are two walks. `structure` checks the properties that make a schema structural. Defaults are
//! checked only if `structure` finds no fault. `words` checks each keyword by itself.

mod rules;
mod words;

use super::path::{Path, Step};
use super::rules::{OBJECT_COST_MAX, Run};
use super::{Complaints, Structural, invariants, is_meta, pattern};
use crate::object::at::{self, At};
use crate::refusal::{Cause, Causes};
use holdfast_value::{Value, json};
use words::{Context, words};

/// A fault in the schema of a definition. The group decides whether an update may keep the fault.
pub(crate) struct Fault {
    pub group: Group,
    pub cause: Cause,
}

/// The groups of rules for schemas. Except for `Always`, an update must follow the rules of a group only if the old
/// definition followed them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Group {
    Always,
    Structure,
    /// The rules for defaults. They are not checked if the definition needs no structural schema.
    Defaults,
    PrunedDefaults,
    Types,
    SetItems,
    MapKeys,
}

impl AsRef<Cause> for Fault {
    fn as_ref(&self) -> &Cause {
        &self.cause
    }
}

type Faults = Complaints<Fault>;

/// The faults of the schema of a version. `has_status` says whether the version has a status subresource, and
/// `is_unchanged` says whether an update leaves the schema unchanged.
pub(crate) fn faults(schema: At, has_status: bool, is_unchanged: bool) -> Vec<Fault> {
    let mut faults = Faults::default();
    root(schema, has_status, &mut faults);
    let parsed = Structural::parse(schema.value);
    let mut is_sound = false;
    if let Ok(parsed) = &parsed {
        let before = faults.all.len();
        structure(schema, Level::Root, &mut faults);
        complete_junctors(schema, schema, &mut faults);
        faults.all[before..].sort_by_cached_key(|fault| fault.cause.to_string());
        if faults.all.len() == before {
            let mut tried = Defaults { faults: &mut faults, left: Some(OBJECT_COST_MAX) };
            tried.walk(parsed, schema, true, None);
            is_sound = faults.all.len() == before;
        }
    }
    let before = faults.all.len();
    words(schema, Context::ROOT, true, &mut faults);
    if let (true, Ok(parsed)) = (is_sound, &parsed) {
        rules::rules(parsed, schema, before, is_unchanged, &mut faults);
    }
    if let (true, Err(causes)) = (faults.all.is_empty(), parsed) {
        for cause in &causes {
            add(&mut faults, Group::Structure, || schema.invalid_as("", cause.message.trim_start_matches(UNSHOWN)));
        }
    }
    faults.all
}

/// The beginning of each message of [`Structural::parse`].
const UNSHOWN: &str = "Invalid value: \"\": ";

fn add<C: Into<Cause>>(faults: &mut Faults, group: Group, cause: impl FnOnce() -> C) {
    faults.add(|| Fault { group, cause: cause().into() });
}

/// The keywords that may occur beside `properties` at the root of a schema if the version has a status subresource, and
/// the names that Go has for them in the message.
const ROOT_FIELDS: &[(&str, &str)] = &[
    ("description", "Description"),
    ("type", "Type"),
    ("format", "Format"),
    ("title", "Title"),
    ("maximum", "Maximum"),
    ("exclusiveMaximum", "ExclusiveMaximum"),
    ("minimum", "Minimum"),
    ("exclusiveMinimum", "ExclusiveMinimum"),
    ("maxLength", "MaxLength"),
    ("minLength", "MinLength"),
    ("pattern", "Pattern"),
    ("maxItems", "MaxItems"),
    ("minItems", "MinItems"),
    ("uniqueItems", "UniqueItems"),
    ("multipleOf", "MultipleOf"),
    ("required", "Required"),
    ("items", "Items"),
    ("properties", "Properties"),
    ("externalDocs", "ExternalDocs"),
    ("example", "Example"),
    ("x-kubernetes-preserve-unknown-fields", "XPreserveUnknownFields"),
    ("x-kubernetes-validations", "XValidations"),
];

fn root(schema: At, has_status: bool, faults: &mut Faults) {
    if has_status {
        let ty = schema.get("type");
        if !ty.is_empty() && ty.text() != "object" {
            let detail = "only \"object\" is allowed as the type at the root of the schema if the status subresource \
                          is enabled";
            add(faults, Group::Always, || ty.invalid(detail));
        }
        let allowed = |name: &str| ROOT_FIELDS.iter().any(|(field, _)| *field == name);
        if schema.entries().any(|(name, at)| !is_zero(&at) && !allowed(name)) {
            let names: Vec<&str> = ROOT_FIELDS.iter().map(|(_, name)| *name).collect();
            let detail = format!(
                "only [{}] fields are allowed at the root of the schema if the status subresource is enabled",
                names.join(" ")
            );
            add(faults, Group::Always, || schema.invalid(&detail));
        }
    }
    if schema.get("nullable").is_true() {
        add(faults, Group::Always, || schema.get("nullable").forbidden("nullable cannot be true at the root"));
    }
}

fn is_zero(at: &At) -> bool {
    at.is_empty() || at.is_false()
}

/// Where a schema is inside the whole schema. The message about a missing type depends on it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Item,
    Field,
}

/// Checks the properties that make a schema structural.
fn structure(schema: At, level: Level, faults: &mut Faults) {
    let mut say = |fault: at::Fault| add(faults, Group::Structure, || fault);
    let (ty, items, properties) = (schema.get("type"), schema.get("items"), schema.get("properties"));
    let additional = schema.get("additionalProperties");
    let (preserve, embedded) =
        (schema.get("x-kubernetes-preserve-unknown-fields"), schema.get("x-kubernetes-embedded-resource"));
    let int_or_string = schema.get("x-kubernetes-int-or-string").is_true();
    let is_resource = level == Level::Root || embedded.is_true();

    if ty.text() == "array" && !items.is_set() {
        say(items.required("must be specified"));
    }
    if additional.is_set() && level == Level::Root {
        say(additional.forbidden("must not be used at the root"));
    }
    for extension in [preserve, embedded].iter().filter(|extension| int_or_string && extension.is_true()) {
        say(extension.invalid("must be false if x-kubernetes-int-or-string is true"));
    }
    if embedded.is_true() && ty.text() != "object" {
        let detail = "must be object if x-kubernetes-embedded-resource is true";
        say(if ty.is_empty() { ty.required(detail) } else { ty.invalid(detail) });
    } else if ty.is_empty() && !int_or_string && !preserve.is_true() {
        say(ty.required(match level {
            Level::Root => "must not be empty at the root",
            Level::Item => "must not be empty for specified array items",
            Level::Field => "must not be empty for specified object fields",
        }));
    }
    if embedded.is_true() && additional.is_set() {
        say(additional.forbidden("must not be used if x-kubernetes-embedded-resource is set"));
    }
    if level == Level::Root && !ty.is_empty() && ty.text() != "object" {
        say(ty.invalid("must be object at the root"));
    }
    for (name, expected) in [("kind", "string"), ("apiVersion", "string"), ("metadata", "object")] {
        let property = properties.key(name);
        let ty = property.get("type");
        if is_resource && property.is_set() && ty.text() != expected {
            say(ty.invalid_as(ty.text(), &format!("must be {expected}")));
        }
    }
    if level == Level::Root && !says_only_names(properties.key("metadata")) {
        let detail = "must not specify anything other than name and generateName, but metadata is implicitly specified";
        say(properties.key("metadata").forbidden(detail));
    }
    if embedded.is_true() && !preserve.is_true() && properties.is_empty() {
        let detail = "must not be empty if x-kubernetes-embedded-resource is true without \
                      x-kubernetes-preserve-unknown-fields";
        say(properties.required(detail));
    }

    let any_of = schema.get("anyOf");
    junctors(schema, is_number_or_text(any_of), true, faults);
    if items.is_set() {
        structure(items, Level::Item, faults);
    }
    for (_, property) in properties.entries() {
        structure(property, Level::Field, faults);
    }
    if additional.value.is_object() {
        structure(additional, Level::Field, faults);
    }
}

/// Whether a schema for an object's metadata restricts only names. It may do no more, because all other metadata is the
/// same for all kinds.
fn says_only_names(metadata: At) -> bool {
    metadata.entries().all(|(field, at)| match field {
        "type" | "default" | "externalDocs" | "example" => true,
        "properties" => at.entries().all(|(name, _)| matches!(name, "name" | "generateName")),
        _ => is_zero(&at),
    })
}

/// Whether `anyOf` has the form that `x-kubernetes-int-or-string` allows: an integer or a string. No other junctor may
/// contain types.
fn is_number_or_text(any_of: At) -> bool {
    let only = |at: &At, ty: &str| at.len() == 1 && at.get("type").text() == ty;
    let items: Vec<At> = any_of.items().take(3).collect();
    matches!(items.as_slice(), [one, other] if only(one, "integer") && only(other, "string"))
}

const JUNCTORS: [&str; 3] = ["allOf", "anyOf", "oneOf"];

/// Checks the schemas inside junctors. If `skips` is true, `anyOf` is not checked, because it has the form that
/// `x-kubernetes-int-or-string` allows. At the top of a schema, that `anyOf` may also be in the first item of `allOf`.
fn junctors(schema: At, skips: bool, is_top: bool, faults: &mut Faults) {
    for word in JUNCTORS.iter().filter(|word| !(skips && **word == "anyOf")) {
        for (index, nested) in schema.get(word).items().enumerate() {
            let skips = is_top && *word == "allOf" && index == 0 && is_number_or_text(nested.get("anyOf"));
            within_junctor(nested, skips, faults);
        }
    }
    let not = schema.get("not");
    if not.is_set() {
        within_junctor(not, false, faults);
    }
    let pattern = schema.get("pattern");
    if !pattern.is_empty()
        && let Err(error) = pattern::check(pattern.text())
    {
        let detail = format!("must be a valid regular expression, but isn't: {error}");
        add(faults, Group::Structure, || pattern.invalid(&detail));
    }
}

/// The keywords that must not occur inside junctors. Each has the word with which the message says that it must be
/// absent.
const NOT_WITHIN_JUNCTORS: &[(&str, &str)] = &[
    ("type", "empty"),
    ("additionalProperties", "undefined"),
    ("default", "undefined"),
    ("title", "empty"),
    ("description", "empty"),
    ("nullable", "false"),
    ("x-kubernetes-preserve-unknown-fields", "false"),
    ("x-kubernetes-embedded-resource", "false"),
    ("x-kubernetes-int-or-string", "false"),
    ("x-kubernetes-list-map-keys", "empty"),
    ("x-kubernetes-list-type", "undefined"),
    ("x-kubernetes-map-type", "undefined"),
    ("x-kubernetes-validations", "empty"),
];

fn within_junctor(schema: At, skips: bool, faults: &mut Faults) {
    junctors(schema, skips, false, faults);
    let (items, properties) = (schema.get("items"), schema.get("properties"));
    if items.is_set() {
        within_junctor(items, false, faults);
    }
    for (_, property) in properties.entries() {
        within_junctor(property, false, faults);
    }
    for (word, expected) in NOT_WITHIN_JUNCTORS {
        let at = schema.get(word);
        let is_there = if *expected == "undefined" { at.is_set() } else { !is_zero(&at) };
        if is_there {
            add(faults, Group::Structure, || {
                Cause::from(at.forbidden(&format!("must be {expected} to be structural")))
            });
        }
    }
    let metadata = properties.key("metadata");
    if metadata.is_set() {
        add(faults, Group::Structure, || metadata.forbidden("must not be specified in a nested context"));
    }
}

/// Checks that each field in the schemas inside junctors is also declared outside of the junctors.
fn complete_junctors(nested: At, schema: At, faults: &mut Faults) {
    let not = nested.get("not");
    if not.is_set() {
        complete(not, schema, faults);
    }
    for word in JUNCTORS {
        for nested in nested.get(word).items() {
            complete(nested, schema, faults);
        }
    }
}

fn complete(nested: At, schema: At, faults: &mut Faults) {
    if !schema.is_set() {
        add(faults, Group::Structure, || {
            Cause::from(schema.required(&format!("because it is defined in {}", nested.path())))
        });
        return;
    }
    complete_junctors(nested, schema, faults);
    let items = nested.get("items");
    if items.is_set() {
        complete(items, schema.get("items"), faults);
    }
    let (properties, known) = (nested.get("properties"), schema.get("properties"));
    for (name, property) in properties.entries() {
        complete(property, known.key(name), faults);
    }
}

/// Checks that the defaults in a schema are valid values. As in Kubernetes, defaults inside maps are not checked.
struct Defaults<'f> {
    faults: &'f mut Faults,
    /// The cost that the rules may still have for all defaults together; `None` after the budget was exceeded.
    left: Option<u64>,
}

impl Defaults<'_> {
    /// Walks a schema. `meta` is the path from the resource if the walk is inside the fields that every resource has.
    fn walk(&mut self, schema: &Structural, at: At, is_root: bool, meta: Option<&Path>) {
        let is_resource = is_root || schema.embedded_resource;
        let meta = meta.filter(|_| !schema.embedded_resource);
        let default = at.get("default");
        if default.is_set() {
            self.value(schema, default, is_root, meta);
        }
        if let Some(items) = schema.items.as_deref() {
            let meta = meta.map(|path| path.then(Step::Index(0)));
            self.walk(items, at.get("items"), false, meta.as_ref());
        }
        let properties = at.get("properties");
        for (name, property) in &schema.properties {
            let meta = meta.or((is_resource && is_meta(name)).then_some(&Path::ROOT));
            let meta = meta.map(|path| path.then(Step::Field(name)));
            self.walk(property, properties.key(name), false, meta.as_ref());
        }
    }

    fn value(&mut self, schema: &Structural, default: At, is_root: bool, meta: Option<&Path>) {
        let path = default.path();
        let mut causes = match meta {
            Some(way) => {
                let causes = invariants::resource_causes(&around(way, default.value));
                let words: Vec<String> = causes.iter().map(Cause::to_string).collect();
                let words = if words.len() == 1 { words.concat() } else { format!("[{}]", words.join(", ")) };
                let detail = format!("must result in valid metadata: {words}");
                let invalid = || Cause::from(default.invalid(&detail));
                if causes.is_empty() { Causes::default() } else { invalid().into() }
            }
            None => {
                let mut pruned = default.value.clone();
                if !schema.prune_value(&mut pruned, is_root).is_empty() {
                    add(self.faults, Group::PrunedDefaults, || default.invalid("must not have unknown fields"));
                }
                schema.embedded_causes(default.value, &path)
            }
        };
        if causes.is_empty() {
            causes = schema.validate_value(default.value, None, Some(&path));
        }
        if causes.is_empty() && schema.has_rules() {
            let mut run = Run::new(self.left);
            run.default_value(schema, default.value, &path, is_root || schema.embedded_resource);
            self.left = run.left;
            causes = run.causes;
        }
        for cause in &causes {
            add(self.faults, Group::Defaults, || cause.clone());
        }
    }
}

/// A resource in which only the value at this path is set.
fn around(way: &Path, value: &Value) -> Value {
    let mut value = value.clone();
    let mut next = Some(way);
    while let Some(path) = next {
        value = match path.step {
            Step::Field(name) | Step::Extra(name) | Step::Key(name) => json!({name: value}),
            Step::Index(_) => json!([value]),
            Step::Root => value,
        };
        next = path.parent;
    }
    for (field, text) in [("apiVersion", "validation/v1"), ("kind", "Validation")] {
        if value[field].is_null() {
            value[field] = text.into();
        }
    }
    value
}

#[cfg(test)]
mod tests;
