//! Makes every Kubernetes `Status`, of a refusal or of a success.

use holdfast_core::object::meta::Document;
use holdfast_core::refusal::{Expired, Subject};
use holdfast_core::{Cause, Refusal};
use holdfast_value::{Map, Value, json};

/// A `Status` document with its HTTP code.
#[derive(Debug, Clone, PartialEq)]
pub struct Status {
    pub code: u16,
    pub document: Value,
    pub retry_after_seconds: Option<u32>,
}

impl From<&Refusal> for Status {
    fn from(refusal: &Refusal) -> Status {
        let retry_after_seconds = retry_after_seconds(refusal);
        let mut metadata = Map::new();
        if let Refusal::Expired(Expired::Inconsistent { continue_token }) = refusal {
            metadata.insert("continue", continue_token.as_str().into());
        }
        let mut document = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": metadata,
            "status": "Failure",
            "message": refusal.message(),
        });
        let reason = refusal.reason();
        if !reason.is_empty() {
            document["reason"] = reason.into();
        }
        let mut details = details_of(refusal);
        if let Some(seconds) = retry_after_seconds {
            details.insert("retryAfterSeconds", seconds.into());
        }
        if !details.is_empty()
            || matches!(
                refusal,
                Refusal::NoSuchPath
                    | Refusal::Unprocessable
                    | Refusal::Forbidden { .. }
                    | Refusal::MethodNotAllowed(_)
                    | Refusal::NotAcceptable { is_offered: false, .. }
            )
        {
            document["details"] = Value::Object(details);
        }
        let code = refusal.code();
        document["code"] = code.into();
        Status { code, document, retry_after_seconds }
    }
}

fn retry_after_seconds(refusal: &Refusal) -> Option<u32> {
    match refusal {
        Refusal::TooManyRequests { retry_after_seconds, .. } => Some(*retry_after_seconds),
        Refusal::DisruptionBudget { retry_after_seconds, .. } => {
            Some(*retry_after_seconds).filter(|seconds| *seconds > 0)
        }
        Refusal::Timeout(_) | Refusal::Unavailable(_) => Some(1),
        Refusal::Ruled(ruling) => {
            let seconds = ruling.details["retryAfterSeconds"].as_u64().filter(|seconds| *seconds > 0)?;
            u32::try_from(seconds).ok()
        }
        _ => None,
    }
}

fn details_of(refusal: &Refusal) -> Map {
    match refusal {
        Refusal::NotFound(subject) | Refusal::AlreadyExists { subject, .. } | Refusal::Conflict { subject, .. } => {
            details(subject, &[])
        }
        Refusal::Forbidden { subject, .. } | Refusal::Invalid { subject, .. } | Refusal::StoreRead { subject, .. } => {
            details(subject, &refusal.causes())
        }
        Refusal::Internal(fault) => causes(json!([{ "message": fault.to_string() }])),
        // The causes of these refusals name no field.
        Refusal::DisruptionBudget { .. } | Refusal::Timeout(_) => {
            let told = |cause: Cause| json!({"reason": cause.reason.as_str(), "message": cause.message});
            match refusal.causes() {
                none if none.is_empty() => Map::new(),
                some => causes(some.into_iter().map(told).collect()),
            }
        }
        Refusal::Ruled(ruling) => ruling.details.as_object().cloned().unwrap_or_default(),
        Refusal::ApplyConflict(_) => causes(cause_list(&refusal.causes())),
        _ => Map::new(),
    }
}

fn causes(list: Value) -> Map {
    Map::from_iter([("causes".to_owned(), list)])
}

fn details(subject: &Subject, causes: &[Cause]) -> Map {
    let mut details = Map::new();
    for (field, value) in [("name", &subject.name), ("group", &subject.group), ("kind", &subject.resource)] {
        if !value.is_empty() {
            details.insert(field, value.as_str().into());
        }
    }
    if !causes.is_empty() {
        details.insert("causes", cause_list(causes));
    }
    details
}

fn cause_list(causes: &[Cause]) -> Value {
    causes
        .iter()
        .map(|cause| json!({"reason": cause.reason.as_str(), "message": cause.message, "field": cause.field}))
        .collect()
}

/// `Status` Success for an object that was deleted. The uid of an object that could not be read is unknown. Then, as in
/// Kubernetes, the status also has a `code`.
pub fn deleted(subject: &Subject, uid: &str) -> Document {
    let mut details = details(subject, &[]);
    let mut status = success(200);
    if !uid.is_empty() {
        details.insert("uid", uid.into());
        status.remove("code");
    }
    status.insert("details", details.into());
    status
}

/// `Status` Success without details.
pub fn success(code: u16) -> Document {
    let mut status = Document::new();
    for (field, value) in [("kind", "Status"), ("apiVersion", "v1"), ("status", "Success")] {
        status.insert(field, value.into());
    }
    status.insert("metadata", json!({}));
    status.insert("code", code.into());
    status
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_core::refusal::Ruling;

    #[test]
    fn who_is_sent_away_for_a_while_is_told_for_how_long() {
        for (details, expected) in [
            (json!({"retryAfterSeconds": 7}), Some(7)),
            (json!({"retryAfterSeconds": 0}), None),
            (json!({"retryAfterSeconds": -1}), None),
            (json!({"name": "a"}), None),
            (Value::Null, None),
        ] {
            let ruling = Ruling { code: 429, reason: String::new(), message: "slow".into(), details: details.clone() };
            let status = Status::from(&Refusal::Ruled(Box::new(ruling)));
            assert_eq!(status.retry_after_seconds, expected, "{details}");
        }
    }
}
