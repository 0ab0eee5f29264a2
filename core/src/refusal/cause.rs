//! The causes of a refusal. Each cause has a field, a reason and a message.

use super::cut::{Cut, cut, json_bytes};
use holdfast_value::Value;
use std::fmt;

/// The maximum number of bytes of one value that a message shows.
pub(crate) const SHOWN_BYTES_MAX: usize = 8 << 10;
pub(super) const MESSAGE_BYTES_MAX: usize = 12 << 10;
/// The maximum number of bytes of a path that a message shows. Names that a user chooses can make a path as long as a
/// body.
pub(crate) const PATH_BYTES_MAX: usize = 4 << 10;

/// One violated rule and the field that violates it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    pub reason: CauseReason,
    /// The dotted path of the field from the object's root: `spec.template.spec.containers[0].name`.
    pub field: String,
    /// The text after `<field>: `, for example `Required value: must be set`.
    pub message: String,
    /// The value that the message shows as JSON, if Kubernetes may print it in another form: null, a list or an object.
    value: Option<Box<Value>>,
    /// The old and the new value of the field, if the message must end with their difference.
    change: Option<Box<(Value, Value)>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CauseReason {
    NotFound,
    Required,
    Duplicate,
    Invalid,
    NotSupported,
    Forbidden,
    TooLong,
    TooMany,
    TypeInvalid,
    Internal,
    /// In server-side apply: another manager owns the field.
    FieldManagerConflict,
    UnexpectedServerResponse,
    NamespaceTerminating,
    /// A PodDisruptionBudget forbids the eviction.
    DisruptionBudget,
    ResourceVersionTooLarge,
}

impl CauseReason {
    /// The `reason` of a `StatusCause`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotFound => "FieldValueNotFound",
            Self::Required => "FieldValueRequired",
            Self::Duplicate => "FieldValueDuplicate",
            Self::Invalid => "FieldValueInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::TypeInvalid => "FieldValueTypeInvalid",
            Self::Internal => "InternalError",
            Self::FieldManagerConflict => "FieldManagerConflict",
            Self::UnexpectedServerResponse => "UnexpectedServerResponse",
            Self::NamespaceTerminating => "NamespaceTerminating",
            Self::DisruptionBudget => "DisruptionBudget",
            Self::ResourceVersionTooLarge => "ResourceVersionTooLarge",
        }
    }
}

impl Cause {
    /// A cause whose message the caller gives as a whole.
    pub fn told(reason: CauseReason, field: impl Into<String>, message: impl Into<String>) -> Self {
        let (field, message) = (cut(field.into(), PATH_BYTES_MAX), cut(message.into(), MESSAGE_BYTES_MAX));
        Self { reason, field, message, value: None, change: None }
    }

    pub fn required(field: impl Into<String>, detail: &str) -> Self {
        Self::told(CauseReason::Required, field, detailed("Required value", detail))
    }

    /// A cause whose message shows the value as JSON: strings in quotes, numbers without.
    pub fn invalid(field: impl Into<String>, value: &Value, detail: &str) -> Self {
        Self::showing(CauseReason::Invalid, field, "Invalid value", value, detail)
    }

    pub fn type_invalid(field: impl Into<String>, value: &Value, detail: &str) -> Self {
        Self::showing(CauseReason::TypeInvalid, field, "Invalid value", value, detail)
    }

    pub fn not_supported(field: impl Into<String>, value: &Value, supported: &[&str]) -> Self {
        let list = supported.iter().map(|s| format!("\"{s}\"")).collect::<Vec<_>>().join(", ");
        let detail = format!("supported values: {list}");
        Self::showing(CauseReason::NotSupported, field, "Unsupported value", value, &detail)
    }

    pub fn forbidden(field: impl Into<String>, detail: &str) -> Self {
        Self::told(CauseReason::Forbidden, field, detailed("Forbidden", detail))
    }

    /// A cause that forbids the change from `old` to `new`. `kinds::structures` appends the difference to the message.
    pub fn changed(field: impl Into<String>, detail: &str, old: &Value, new: &Value) -> Self {
        let change = Some(Box::new((old.clone(), new.clone())));
        Self { change, ..Self::forbidden(field, detail) }
    }

    pub fn duplicate(field: impl Into<String>, value: &Value) -> Self {
        Self::duplicate_of(field, value, "")
    }

    /// A cause for a value that occurs twice, with a detail after the value.
    pub fn duplicate_of(field: impl Into<String>, value: &Value, detail: &str) -> Self {
        Self::showing(CauseReason::Duplicate, field, "Duplicate value", value, detail)
    }

    pub fn not_found(field: impl Into<String>, value: &Value) -> Self {
        Self::showing(CauseReason::NotFound, field, "Not found", value, "")
    }

    pub fn too_long(field: impl Into<String>, bytes_max: usize) -> Self {
        Self::told(CauseReason::TooLong, field, format!("Too long: may not be more than {bytes_max} bytes"))
    }

    pub fn too_many(field: impl Into<String>, count: usize, count_max: usize) -> Self {
        let message = format!("Too many: {count}: must have at most {count_max} items");
        Self::told(CauseReason::TooMany, field, message)
    }

    /// The number of bytes of JSON that the cause adds to a `Status`.
    pub(super) fn size(&self) -> usize {
        json_bytes(&self.field) + json_bytes(&self.message)
    }

    /// The value that the message shows, if it is null, a list or an object.
    pub fn value(&self) -> Option<&Value> {
        self.value.as_deref()
    }

    /// Takes the old and the new value out of the cause, to append their difference to the message.
    pub fn take_change(&mut self) -> Option<Box<(Value, Value)>> {
        self.change.take()
    }

    /// Replaces the JSON of the value in the message by `text`.
    pub fn show(&mut self, text: String) {
        if let Some(value) = self.value.take() {
            self.message = self.message.replacen(&value.to_string(), &cut(text, SHOWN_BYTES_MAX), 1);
        }
    }

    fn showing(reason: CauseReason, field: impl Into<String>, head: &str, value: &Value, detail: &str) -> Self {
        let shown = Cut::json(value, SHOWN_BYTES_MAX);
        let message = detailed(&format!("{head}: {}", shown.text), detail);
        let is_plain = value.is_string() || value.is_number() || value.is_boolean();
        // A value that is cut in the form of JSON would also be cut in the form in which Go prints it.
        let value = (!is_plain && !shown.is_cut).then(|| Box::new(value.clone()));
        Self { value, ..Self::told(reason, field, message) }
    }
}

fn detailed(head: &str, detail: &str) -> String {
    if detail.is_empty() { head.to_owned() } else { format!("{head}: {detail}") }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_value::json;

    #[test]
    fn long_values_paths_and_texts_are_cut() {
        let list = Value::from(vec![json!({}); 1_000_000]);
        let cause = Cause::invalid("é".repeat(PATH_BYTES_MAX), &list, &"x".repeat(1 << 20));
        assert!(cause.field.len() <= PATH_BYTES_MAX + 3 && cause.field.ends_with('…'));
        assert!(cause.message.len() <= MESSAGE_BYTES_MAX + 3 && cause.message.ends_with('…'));
        assert!(cause.message.starts_with("Invalid value: [{},{},") && cause.value().is_none());
        let small = Cause::invalid("a", &json!([{}]), "x");
        assert_eq!((small.message.as_str(), small.value()), ("Invalid value: [{}]: x", Some(&json!([{}]))));
    }
}
