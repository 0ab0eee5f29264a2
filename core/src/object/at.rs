//! A value of a document and its path, for validation rules.
//!
//! The path is printed only for violations. A value that does not exist reads as null. A value of the wrong type reads
//! as unset, because the schema has already refused wrong types.

use crate::refusal::{Cause, CauseReason, Causes, Cut, PATH_BYTES_MAX};
use holdfast_value::Value;

/// A value in a document, with the path that leads to it.
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

    /// The value of a map's entry, at the path `data[key]`.
    pub fn key<'b>(&'b self, key: &'b str) -> At<'b> {
        At { value: &self.value[key], parent: Some(self), step: Step::Key(key) }
    }

    /// Another value at the same path, for a rule that judges a changed copy of the value.
    pub fn holding(self, value: &'a Value) -> Self {
        Self { value, ..self }
    }

    pub fn items<'b>(&'b self) -> impl Iterator<Item = At<'b>> + 'b {
        let list = self.value.as_array().map_or(&[][..], Vec::as_slice);
        list.iter().enumerate().map(|(at, value)| At { value, parent: Some(self), step: Step::Index(at) })
    }

    /// Each entry of a map: its key, and its value with its path.
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

    /// Whether the value is null, an empty string, or an empty list or map.
    pub fn is_empty(&self) -> bool {
        match self.value {
            Value::Null => true,
            Value::String(text) => text.is_empty(),
            Value::Array(list) => list.is_empty(),
            Value::Object(map) => map.is_empty(),
            _ => false,
        }
    }

    /// The path as text. It is cut at a limit, because users choose names in it, which may be as long as a request
    /// body.
    pub fn path(&self) -> String {
        let mut path = Cut::at(PATH_BYTES_MAX);
        self.write(&mut path);
        path.text
    }

    fn write(&self, path: &mut Cut) {
        if let Some(parent) = self.parent {
            parent.write(path);
        }
        let parts = match self.step {
            Step::Root => return,
            Step::Field(name) if path.text.is_empty() => ["", name, ""],
            Step::Field(name) => [".", name, ""],
            Step::Key(name) => ["[", name, "]"],
            Step::Index(at) => ["[", &at.to_string(), "]"],
        };
        parts.iter().for_each(|part| _ = path.add(part));
    }

    pub fn required<'f>(&self, detail: &'f str) -> Fault<'f>
    where
        'a: 'f,
    {
        Fault { at: *self, tells: Tells::Required(detail) }
    }

    pub fn invalid<'f>(&self, detail: &'f str) -> Fault<'f>
    where
        'a: 'f,
    {
        Fault { at: *self, tells: Tells::Invalid(detail) }
    }

    /// The fault of a field that Kubernetes reports with an empty value.
    pub fn invalid_unshown<'f>(&self, detail: &'f str) -> Fault<'f>
    where
        'a: 'f,
    {
        self.invalid_as("", detail)
    }

    /// The fault of a field that Kubernetes always reports with a null value.
    pub fn invalid_null<'f>(&self, detail: &'f str) -> Fault<'f>
    where
        'a: 'f,
    {
        Fault { at: *self, tells: Tells::InvalidNull(detail) }
    }

    pub fn forbidden<'f>(&self, detail: &'f str) -> Fault<'f>
    where
        'a: 'f,
    {
        Fault { at: *self, tells: Tells::Forbidden(detail) }
    }

    pub fn duplicate(&self) -> Fault<'a> {
        Fault { at: *self, tells: Tells::Duplicate }
    }

    pub fn not_supported<'f>(&self, supported: &'f [&'f str]) -> Fault<'f>
    where
        'a: 'f,
    {
        Fault { at: *self, tells: Tells::NotSupported(supported) }
    }

    /// The fault of a field that Kubernetes reports with the value `shown` in place of the field's own value.
    pub fn invalid_as<'f>(&self, shown: impl Into<Value>, detail: &'f str) -> Fault<'f>
    where
        'a: 'f,
    {
        Fault { at: *self, tells: Tells::InvalidAs(shown.into(), detail) }
    }

    pub fn not_found(&self) -> Fault<'a> {
        Fault { at: *self, tells: Tells::NotFound }
    }

    /// The number of items of a list or of entries of a map; zero for other values.
    pub fn len(&self) -> usize {
        match self.value {
            Value::Array(list) => list.len(),
            Value::Object(map) => map.len(),
            _ => 0,
        }
    }

    /// The number; zero if the value is not an integer.
    pub fn number_or_zero(&self) -> i64 {
        self.number().unwrap_or(0)
    }

    pub fn is_false(&self) -> bool {
        self.value == &Value::Bool(false)
    }
}

/// A fault at a path. It becomes a [`Cause`] only when it is reported, so that unreported faults cost nothing.
#[must_use]
pub(crate) struct Fault<'a> {
    at: At<'a>,
    tells: Tells<'a>,
}

enum Tells<'a> {
    Required(&'a str),
    Invalid(&'a str),
    InvalidAs(Value, &'a str),
    InvalidNull(&'a str),
    Forbidden(&'a str),
    Duplicate,
    NotSupported(&'a [&'a str]),
    NotFound,
}

impl From<Fault<'_>> for Cause {
    fn from(Fault { at, tells }: Fault) -> Cause {
        let (path, value) = (at.path(), at.value);
        match tells {
            Tells::Required(detail) => Cause::required(path, detail),
            Tells::Invalid(detail) => Cause::invalid(path, value, detail),
            Tells::InvalidAs(shown, detail) => Cause::invalid(path, &shown, detail),
            Tells::InvalidNull(detail) => {
                Cause::told(CauseReason::Invalid, path, format!("Invalid value: null: {detail}"))
            }
            Tells::Forbidden(detail) => Cause::forbidden(path, detail),
            Tells::Duplicate => Cause::duplicate(path, value),
            Tells::NotSupported(supported) if value.is_null() => Cause::not_supported(path, &"".into(), supported),
            Tells::NotSupported(supported) => Cause::not_supported(path, value, supported),
            Tells::NotFound => Cause::not_found(path, &Value::from(at.text())),
        }
    }
}

impl From<Fault<'_>> for Causes {
    fn from(fault: Fault) -> Causes {
        Cause::from(fault).into()
    }
}
