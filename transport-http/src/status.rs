//! The one place where a refusal becomes a Kubernetes `Status`.

use holdfast_core::object::meta::Document;
use holdfast_core::refusal::Subject;
use holdfast_core::{Cause, Refusal};
use serde_json::{Map, Value, json};

/// A `Status` document with its HTTP code.
#[derive(Debug, Clone, PartialEq)]
pub struct Status {
    pub code: u16,
    pub document: Value,
    pub retry_after_seconds: Option<u32>,
}

struct Parts {
    reason: &'static str,
    message: String,
    details: Map<String, Value>,
    retry_after_seconds: Option<u32>,
    continue_token: Option<String>,
}

impl From<&Refusal> for Status {
    fn from(refusal: &Refusal) -> Status {
        let parts = parts(refusal);
        let mut metadata = Map::new();
        if let Some(token) = parts.continue_token {
            metadata.insert("continue".into(), token.into());
        }
        let mut document = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": metadata,
            "status": "Failure",
            "message": parts.message,
        });
        if !parts.reason.is_empty() {
            document["reason"] = parts.reason.into();
        }
        let mut details = parts.details;
        if let Some(seconds) = parts.retry_after_seconds {
            details.insert("retryAfterSeconds".into(), seconds.into());
        }
        if !details.is_empty() || matches!(refusal, Refusal::NoSuchPath | Refusal::Unprocessable { .. }) {
            document["details"] = Value::Object(details);
        }
        let code = holdfast_service::code(refusal);
        document["code"] = code.into();
        Status { code, document, retry_after_seconds: parts.retry_after_seconds }
    }
}

fn parts(refusal: &Refusal) -> Parts {
    let plain = |reason, message: String| Parts {
        reason,
        message,
        details: Map::new(),
        retry_after_seconds: None,
        continue_token: None,
    };
    match refusal {
        Refusal::BadRequest(message) => plain("BadRequest", message.clone()),
        Refusal::Unauthorized => plain("Unauthorized", "Unauthorized".into()),
        Refusal::Forbidden { subject, message, causes } => {
            let text = match (subject.resource.is_empty(), subject.name.is_empty()) {
                (true, _) => format!("forbidden: {message}"),
                (false, true) => format!("{} is forbidden: {message}", subject.qualified()),
                (false, false) => format!("{subject} is forbidden: {message}"),
            };
            Parts { details: details(subject, causes), ..plain("Forbidden", text) }
        }
        Refusal::NotFound(subject) => {
            Parts { details: details(subject, &[]), ..plain("NotFound", format!("{subject} not found")) }
        }
        Refusal::NoSuchPath => plain("NotFound", "the server could not find the requested resource".into()),
        Refusal::MethodNotAllowed { message } => plain("MethodNotAllowed", message.clone()),
        Refusal::AlreadyExists(subject) => {
            let message = format!("{subject} already exists");
            Parts { details: details(subject, &[]), ..plain("AlreadyExists", message) }
        }
        Refusal::Conflict { subject, message } => {
            let message = format!("Operation cannot be fulfilled on {subject}: {message}");
            Parts { details: details(subject, &[]), ..plain("Conflict", message) }
        }
        Refusal::ApplyConflict { message, causes } => {
            let mut details = Map::new();
            details.insert("causes".into(), cause_list(causes));
            Parts { details, ..plain("Conflict", message.clone()) }
        }
        Refusal::Invalid { subject, causes } => {
            let message = format!("{} \"{}\" is invalid: {}", subject.qualified(), subject.name, aggregate(causes));
            Parts { details: details(subject, causes), ..plain("Invalid", message) }
        }
        Refusal::Unprocessable { message } => plain("Invalid", message.clone()),
        Refusal::NotAcceptable { message } => plain("NotAcceptable", message.clone()),
        Refusal::UnsupportedMediaType { message } => plain("UnsupportedMediaType", message.clone()),
        Refusal::TooLarge { message } => plain("RequestEntityTooLarge", message.clone()),
        Refusal::Expired { message, continue_token } => {
            Parts { continue_token: continue_token.clone(), ..plain("Expired", message.clone()) }
        }
        Refusal::TooManyRequests { message, retry_after_seconds } => {
            Parts { retry_after_seconds: Some(*retry_after_seconds), ..plain("TooManyRequests", message.clone()) }
        }
        Refusal::DisruptionBudget { cause, retry_after_seconds } => {
            let message = "Cannot evict pod as it would violate the pod's disruption budget.".into();
            let mut details = Map::new();
            details.insert("causes".into(), json!([{"reason": cause.reason.as_str(), "message": cause.message}]));
            let retry_after_seconds = Some(*retry_after_seconds).filter(|seconds| *seconds > 0);
            Parts { details, retry_after_seconds, ..plain("TooManyRequests", message) }
        }
        Refusal::Timeout { message, retry_after_seconds } => {
            let mut details = Map::new();
            if message.starts_with("Too large resource version") {
                let cause = json!([{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]);
                details.insert("causes".into(), cause);
            }
            Parts {
                details,
                retry_after_seconds: Some(*retry_after_seconds),
                ..plain("Timeout", format!("Timeout: {message}"))
            }
        }
        Refusal::Internal(message) => {
            let mut details = Map::new();
            details.insert("causes".into(), json!([{ "message": message }]));
            Parts { details, ..plain("InternalError", format!("Internal error occurred: {message}")) }
        }
        Refusal::Unreasoned(message) => plain("", message.clone()),
        Refusal::Unavailable(message) => {
            Parts { retry_after_seconds: Some(1), ..plain("ServiceUnavailable", message.clone()) }
        }
        Refusal::InsufficientStorage(message) => plain(
            "InternalError",
            format!(
                "Internal error occurred: {message}: nothing was written; reads go on, and writes will once there is room"
            ),
        ),
    }
}

fn details(subject: &Subject, causes: &[Cause]) -> Map<String, Value> {
    let mut details = Map::new();
    for (field, value) in [("name", &subject.name), ("group", &subject.group), ("kind", &subject.resource)] {
        if !value.is_empty() {
            details.insert(field.into(), value.as_str().into());
        }
    }
    if !causes.is_empty() {
        details.insert("causes".into(), cause_list(causes));
    }
    details
}

fn cause_list(causes: &[Cause]) -> Value {
    causes
        .iter()
        .map(|cause| json!({"reason": cause.reason.as_str(), "message": cause.message, "field": cause.field}))
        .collect()
}

/// One error as it is, several in brackets, each once.
fn aggregate(causes: &[Cause]) -> String {
    let mut texts: Vec<String> = Vec::new();
    for cause in causes {
        let text = cause.to_string();
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    match texts.as_slice() {
        [one] => one.clone(),
        many => format!("[{}]", many.join(", ")),
    }
}

/// `Status` Success for an object that is gone.
pub fn deleted(subject: &Subject, uid: &str) -> Document {
    let mut details = details(subject, &[]);
    details.insert("uid".into(), uid.into());
    let mut status = success(200);
    status.remove("code");
    status.insert("details".into(), details.into());
    status
}

/// `Status` Success where there is nothing to tell besides.
pub fn success(code: u16) -> Document {
    let mut status = Document::new();
    for (field, value) in [("kind", "Status"), ("apiVersion", "v1"), ("status", "Success")] {
        status.insert(field.into(), value.into());
    }
    status.insert("metadata".into(), json!({}));
    status.insert("code".into(), code.into());
    status
}
