//! Structural schemas: the schema of a version of a custom resource, from its CustomResourceDefinition.
//!
//! [`Structural::parse`] compiles the definition's JSON once. Custom objects are pruned, defaulted and validated by the
//! result. `well_formed` validates the definition itself. It works on the definition's JSON, because only the JSON has
//! the paths that messages show.
//!
//! Schemas inside the junctors `allOf`, `anyOf`, `oneOf` and `not` have the same Rust type, but use fewer of its
//! fields.

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

/// A compiled schema: checks, defaults and list types.
#[derive(Debug, Clone, Default)]
pub struct Structural {
    /// The type of the values; `None` if any type is allowed. Schemas inside junctors have no type.
    pub ty: Option<Type>,
    pub int_or_string: bool,
    pub nullable: bool,
    pub preserve_unknown_fields: bool,
    pub embedded_resource: bool,
    pub properties: BTreeMap<String, Structural>,
    pub additional_properties: Option<Additional>,
    pub items: Option<Box<Structural>>,
    pub default: Option<Value>,
    /// A list without a type (`None`) is treated as atomic.
    pub list_type: Option<ListType>,
    pub atomic_map: bool,
    rules: Option<Box<Rules>>,
    /// Whether this schema or a schema below it has validation rules, so that other schemas are skipped quickly.
    has_rules: bool,
    checks: Option<Box<Checks>>,
    /// The number of bytes that the default takes in JSON.
    default_bytes: usize,
    /// The names of the properties with a default. When defaults are set, only these are looked for in each object,
    /// even in an empty one.
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

/// How fields are treated that `properties` does not have.
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
    /// A list whose items are identified by these fields.
    Map(Vec<String>),
}

/// The checks that a value must pass in addition to the check of its type.
#[derive(Debug, Clone, Default)]
struct Checks {
    format: Option<Format>,
    members: Option<Members>,
    pattern: Option<Pattern>,
    minimum: Option<Bound>,
    maximum: Option<Bound>,
    multiple_of: Option<f64>,
    length: ValueBounds,
    items: ValueBounds,
    properties: ValueBounds,
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
struct ValueBounds {
    min: Option<i64>,
    max: Option<i64>,
}

/// The values of an `enum`: as texts for messages, and as keys by which a value is found.
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
    /// A schema that accepts and preserves everything.
    pub fn anything() -> Structural {
        Structural { preserve_unknown_fields: true, ..Structural::default() }
    }

    /// The schema of a field of an object; `None` if the schema does not describe the field.
    pub fn field(&self, name: &str) -> Option<&Structural> {
        self.properties.get(name).or_else(|| self.additional_properties.as_ref()?.schema())
    }

    /// Whether this schema or a schema below it has validation rules.
    pub fn has_rules(&self) -> bool {
        self.has_rules
    }
}

/// The fields that every resource has, whatever its schema is.
const META_FIELDS: [&str; 3] = ["apiVersion", "kind", "metadata"];

fn is_meta(field: &str) -> bool {
    META_FIELDS.contains(&field)
}

/// Complaints up to a size limit, because many complaints with a long path could take far more memory than the
/// document.
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
