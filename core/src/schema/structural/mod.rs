//! Structural schemas: what a version of a custom resource looks like, as its definition says it.
//!
//! [`Structural::parse`] compiles the definition's JSON once. Custom objects are then pruned, given defaults and
//! validated by it; `well_formed` judges the definition itself, on its JSON, since only there the paths are known.
//!
//! A schema within `allOf`, `anyOf`, `oneOf` or `not` is of the same type; it only has fewer fields in use.

mod correlate;
pub(super) mod default;
pub(crate) mod field_path;
pub(crate) mod formats;
mod invariants;
mod parse;
mod path;
pub(crate) mod pattern;
mod prune;
mod rules;
mod validate;
pub(crate) mod well_formed;

#[cfg(test)]
mod properties;

use crate::refusal::Cause;
use formats::Format;
use holdfast_value::Value;
use pattern::Pattern;
use rules::Rules;
use std::collections::{BTreeMap, BTreeSet};
pub use validate::Judged;

/// What a value must look like, and what becomes of the values in it.
#[derive(Debug, Clone, Default)]
pub struct Structural {
    /// None for what may be anything, and within junctors.
    pub ty: Option<Type>,
    pub int_or_string: bool,
    pub nullable: bool,
    pub preserve_unknown_fields: bool,
    pub embedded_resource: bool,
    pub properties: BTreeMap<String, Structural>,
    pub additional_properties: Option<Additional>,
    pub items: Option<Box<Structural>>,
    pub default: Option<Value>,
    /// None is atomic, too, but lets an update's items be compared one by one.
    pub list_type: Option<ListType>,
    pub atomic_map: bool,
    rules: Option<Box<Rules>>,
    /// Whether there are rules here or anywhere below, so that nobody need look for them.
    has_rules: bool,
    checks: Option<Box<Checks>>,
    /// How long the default is as JSON.
    default_bytes: usize,
    /// The properties that have a default: an item without any field costs no more than these.
    defaulted: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Type {
    Array,
    Boolean,
    Integer,
    Number,
    Object,
    String,
}

/// What the fields are that `properties` does not name.
#[derive(Debug, Clone)]
pub enum Additional {
    Anything,
    Nothing,
    Like(Box<Structural>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListType {
    Atomic,
    Set,
    /// Keyed by these fields of its items.
    Map(Vec<String>),
}

/// What is checked of a value besides its type.
#[derive(Debug, Clone, Default)]
struct Checks {
    format: Option<Format>,
    members: Option<Members>,
    pattern: Option<Pattern>,
    minimum: Option<Bound>,
    maximum: Option<Bound>,
    multiple_of: Option<f64>,
    length: Limits,
    items: Limits,
    properties: Limits,
    unique_items: bool,
    required: Vec<String>,
    all_of: Vec<Structural>,
    any_of: Vec<Structural>,
    one_of: Vec<Structural>,
    not: Option<Box<Structural>>,
}

#[derive(Debug, Clone, Copy)]
struct Bound {
    limit: f64,
    exclusive: bool,
}

#[derive(Debug, Clone, Copy, Default)]
struct Limits {
    min: Option<i64>,
    max: Option<i64>,
}

/// Of an `enum`: as they are shown, and as they are looked up.
#[derive(Debug, Clone)]
struct Members {
    shown: Vec<String>,
    keys: BTreeSet<String>,
}

impl Type {
    pub const ALL: [Type; 6] = [Type::Array, Type::Boolean, Type::Integer, Type::Number, Type::Object, Type::String];

    pub fn as_str(self) -> &'static str {
        match self {
            Type::Array => "array",
            Type::Boolean => "boolean",
            Type::Integer => "integer",
            Type::Number => "number",
            Type::Object => "object",
            Type::String => "string",
        }
    }
}

impl Additional {
    fn schema(&self) -> Option<&Structural> {
        match self {
            Additional::Like(schema) => Some(schema),
            Additional::Anything | Additional::Nothing => None,
        }
    }
}

impl Structural {
    /// Lets everything be, and keeps it.
    pub fn anything() -> Structural {
        Structural { preserve_unknown_fields: true, ..Structural::default() }
    }

    /// The schema of an object's field.
    pub fn field(&self, name: &str) -> Option<&Structural> {
        self.properties.get(name).or_else(|| self.additional_properties.as_ref()?.schema())
    }

    /// Whether there are rules that are expressions, here or anywhere below.
    pub fn has_rules(&self) -> bool {
        self.has_rules
    }
}

/// Fields that every resource has, whatever its schema says.
const META_FIELDS: [&str; 3] = ["apiVersion", "kind", "metadata"];

fn is_meta(field: &str) -> bool {
    META_FIELDS.contains(&field)
}

/// Complaints, as far as anyone would read them: many of them about a place with a long name would take far more
/// memory than the document that they are about.
#[derive(Debug)]
struct Complaints<T> {
    all: Vec<T>,
    bytes: usize,
}

const COMPLAINTS_BYTES_MAX: usize = 1 << 20;

impl<T> Default for Complaints<T> {
    fn default() -> Self {
        Self { all: Vec::new(), bytes: 0 }
    }
}

impl<T: AsRef<Cause>> Complaints<T> {
    fn add(&mut self, complaint: impl FnOnce() -> T) {
        if self.bytes < COMPLAINTS_BYTES_MAX {
            let complaint = complaint();
            let cause = complaint.as_ref();
            self.bytes += cause.field.len() + cause.message.len();
            self.all.push(complaint);
        }
    }
}

impl AsRef<Cause> for Cause {
    fn as_ref(&self) -> &Cause {
        self
    }
}
