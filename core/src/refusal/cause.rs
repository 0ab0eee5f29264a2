//! The causes that a refusal names: a field each, the rule that it breaks, and what is told of it.

use std::fmt;

/// One broken rule and the field that breaks it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    pub reason: CauseReason,
    /// Dotted path from the object's root: `spec.template.spec.containers[0].name`.
    pub field: String,
    /// What follows `<field>: `, for example `Required value: must be set`.
    pub message: String,
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
    /// Another manager owns the field (server-side apply).
    FieldManagerConflict,
    UnexpectedServerResponse,
    NamespaceTerminating,
    /// The budget that protects a pod from eviction.
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
    pub fn required(field: impl Into<String>, detail: &str) -> Self {
        Self::with_detail(CauseReason::Required, field, "Required value".into(), detail)
    }

    /// `value` is shown as JSON: strings quoted, numbers bare.
    pub fn invalid(field: impl Into<String>, value: &serde_json::Value, detail: &str) -> Self {
        Self::with_detail(CauseReason::Invalid, field, format!("Invalid value: {}", shown(value)), detail)
    }

    pub fn type_invalid(field: impl Into<String>, value: &serde_json::Value, detail: &str) -> Self {
        Self::with_detail(CauseReason::TypeInvalid, field, format!("Invalid value: {}", shown(value)), detail)
    }

    pub fn not_supported(field: impl Into<String>, value: &serde_json::Value, supported: &[&str]) -> Self {
        let list = supported.iter().map(|s| format!("\"{s}\"")).collect::<Vec<_>>().join(", ");
        let message = format!("Unsupported value: {}: supported values: {list}", shown(value));
        Self { reason: CauseReason::NotSupported, field: field.into(), message }
    }

    pub fn forbidden(field: impl Into<String>, detail: &str) -> Self {
        Self::with_detail(CauseReason::Forbidden, field, "Forbidden".into(), detail)
    }

    pub fn duplicate(field: impl Into<String>, value: &serde_json::Value) -> Self {
        Self {
            reason: CauseReason::Duplicate,
            field: field.into(),
            message: format!("Duplicate value: {}", shown(value)),
        }
    }

    pub fn not_found(field: impl Into<String>, value: &serde_json::Value) -> Self {
        Self { reason: CauseReason::NotFound, field: field.into(), message: format!("Not found: {}", shown(value)) }
    }

    pub fn too_long(field: impl Into<String>, bytes_max: usize) -> Self {
        let message = format!("Too long: may not be more than {bytes_max} bytes");
        Self { reason: CauseReason::TooLong, field: field.into(), message }
    }

    pub fn too_many(field: impl Into<String>, count: usize, count_max: usize) -> Self {
        let message = format!("Too many: {count}: must have at most {count_max} items");
        Self { reason: CauseReason::TooMany, field: field.into(), message }
    }

    fn with_detail(reason: CauseReason, field: impl Into<String>, head: String, detail: &str) -> Self {
        let message = if detail.is_empty() { head } else { format!("{head}: {detail}") };
        Self { reason, field: field.into(), message }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

fn shown(value: &serde_json::Value) -> String {
    value.to_string()
}
