//! A place in a document, as rules look at it.
//!
//! A place knows its path, which is written out only for what breaks a rule. A missing value reads as null, and a
//! value of the wrong type as unset: types are the schema's business.

use crate::refusal::{Cause, CauseReason};
use holdfast_value::Value;

/// A value of a document and where it stands.
#[derive(Clone, Copy)]
pub(crate) struct At<'a> {
    pub value: &'a Value,
    parent: Option<&'a At<'a>>,
    step: Step<'a>,
}

#[derive(Clone, Copy)]
enum Step<'a> {
    Root,
    Field(&'a str),
    Key(&'a str),
    Index(usize),
}

impl<'a> At<'a> {
    pub fn root(value: &'a Value) -> Self {
        Self { value, parent: None, step: Step::Root }
    }

    pub fn get<'b>(&'b self, field: &'b str) -> At<'b> {
        At { value: &self.value[field], parent: Some(self), step: Step::Field(field) }
    }

    /// An entry of a map: `data[key]`.
    pub fn key<'b>(&'b self, key: &'b str) -> At<'b> {
        At { value: &self.value[key], parent: Some(self), step: Step::Key(key) }
    }

    /// Another value at the same place.
    pub fn holding(self, value: &'a Value) -> Self {
        Self { value, ..self }
    }

    pub fn items<'b>(&'b self) -> impl Iterator<Item = At<'b>> + 'b {
        let list = self.value.as_array().map_or(&[][..], Vec::as_slice);
        list.iter().enumerate().map(|(at, value)| At { value, parent: Some(self), step: Step::Index(at) })
    }

    /// Names and places of a map's entries.
    pub fn entries<'b>(&'b self) -> impl Iterator<Item = (&'b str, At<'b>)> + 'b {
        self.value
            .as_object()
            .into_iter()
            .flatten()
            .map(|(key, value)| (key.as_str(), At { value, parent: Some(self), step: Step::Key(key) }))
    }

    pub fn text(&self) -> &'a str {
        self.value.as_str().unwrap_or("")
    }

    pub fn number(&self) -> Option<i64> {
        self.value.as_i64()
    }

    pub fn is_true(&self) -> bool {
        self.value == &Value::Bool(true)
    }

    pub fn is_set(&self) -> bool {
        !self.value.is_null()
    }

    /// Null, an empty string, or an empty list or map.
    pub fn is_empty(&self) -> bool {
        match self.value {
            Value::Null => true,
            Value::String(text) => text.is_empty(),
            Value::Array(list) => list.is_empty(),
            Value::Object(map) => map.is_empty(),
            _ => false,
        }
    }

    pub fn path(&self) -> String {
        let mut path = self.parent.map(At::path).unwrap_or_default();
        match self.step {
            Step::Root => {}
            Step::Field(name) if path.is_empty() => path.push_str(name),
            Step::Field(name) => path.extend([".", name]),
            Step::Key(name) => path.extend(["[", name, "]"]),
            Step::Index(at) => path.push_str(&format!("[{at}]")),
        }
        path
    }

    pub fn required(&self, detail: &str) -> Cause {
        Cause::required(self.path(), detail)
    }

    pub fn invalid(&self, detail: &str) -> Cause {
        Cause::invalid(self.path(), self.value, detail)
    }

    /// For a field that Kubernetes reports without its value.
    pub fn invalid_unshown(&self, detail: &str) -> Cause {
        Cause::invalid(self.path(), &Value::from(""), detail)
    }

    /// For a field that Kubernetes reports as nothing, whatever it holds.
    pub fn invalid_null(&self, detail: &str) -> Cause {
        Cause::told(CauseReason::Invalid, self.path(), format!("Invalid value: null: {detail}"))
    }

    pub fn forbidden(&self, detail: &str) -> Cause {
        Cause::forbidden(self.path(), detail)
    }

    pub fn duplicate(&self) -> Cause {
        Cause::duplicate(self.path(), self.value)
    }

    pub fn not_supported(&self, supported: &[&str]) -> Cause {
        let value = if self.value.is_null() { &Value::from("") } else { self.value };
        Cause::not_supported(self.path(), value, supported)
    }

    /// For a field that Kubernetes reports with another value than its own.
    pub fn invalid_as(&self, shown: impl Into<Value>, detail: &str) -> Cause {
        Cause::invalid(self.path(), &shown.into(), detail)
    }

    pub fn not_found(&self) -> Cause {
        Cause::not_found(self.path(), &Value::from(self.text()))
    }

    /// How many items or entries there are.
    pub fn len(&self) -> usize {
        match self.value {
            Value::Array(list) => list.len(),
            Value::Object(map) => map.len(),
            _ => 0,
        }
    }

    /// A number, of which none is zero.
    pub fn number_or_zero(&self) -> i64 {
        self.number().unwrap_or(0)
    }

    pub fn is_false(&self) -> bool {
        self.value == &Value::Bool(false)
    }
}
