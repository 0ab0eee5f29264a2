//! Makes the HTTP code of every outcome, and the Kubernetes `Status` of a refusal or of a success.

use holdfast_core::admission::End;
use holdfast_core::object::meta::Document;
use holdfast_core::refusal::{Expired, GivenCode, Ruling, RulingKind, Subject};
use holdfast_core::{Cause, Refusal};
use holdfast_service::{AnswerCode, Reply, Statuses};
use holdfast_value::{Map, Value, json};

/// A `Status` document with the HTTP code of its response.
#[derive(Debug, Clone, PartialEq)]
pub struct Status {
    pub code: u16,
    pub document: Value,
    pub retry_after_seconds: Option<u32>,
}

/// The functions that the service gets for its metrics and its audit events.
pub const STATUSES: Statuses = Statuses {
    code: |outcome| AnswerCode(code(outcome)),
    code_of_webhook: |end| AnswerCode(code_of_webhook(end)),
    status: |refusal| Status::from(refusal).document,
};

/// The HTTP code of an outcome. No other function gives a reply or a refusal its code.
pub fn code(outcome: Result<&Reply, &Refusal>) -> u16 {
    let refusal = match outcome {
        Ok(reply) => return if reply.is_created() { 201 } else { 200 },
        Err(refusal) => refusal,
    };
    match refusal {
        Refusal::BadRequest(_) => 400,
        Refusal::Unauthorized => 401,
        Refusal::Forbidden { .. } => 403,
        Refusal::NotFound(_) | Refusal::NoSuchPath => 404,
        Refusal::MethodNotAllowed { .. } => 405,
        Refusal::NotAcceptable { .. } => 406,
        Refusal::AlreadyExists { .. } | Refusal::Conflict { .. } | Refusal::ApplyConflict { .. } => 409,
        Refusal::Expired { .. } => 410,
        Refusal::TooLarge { .. } => 413,
        Refusal::UnsupportedMediaType { .. } => 415,
        Refusal::Invalid { .. } | Refusal::Unprocessable => 422,
        Refusal::TooManyRequests { .. } | Refusal::DisruptionBudget { .. } => 429,
        Refusal::Internal(_) | Refusal::Unreasoned(_) | Refusal::StoreRead { .. } => 500,
        Refusal::Unavailable(_) => 503,
        Refusal::Timeout { .. } => 504,
        Refusal::InsufficientStorage(_) => 507,
        Refusal::Ruled(ruling) => code_of_ruling(ruling),
    }
}

fn code_of_ruling(ruling: &Ruling) -> u16 {
    match ruling.kind {
        RulingKind::BadRequest => 400,
        RulingKind::Unauthorized => 401,
        RulingKind::Forbidden => 403,
        RulingKind::TooLarge => 413,
        RulingKind::Invalid => 422,
        RulingKind::TooManyRequests => 429,
        RulingKind::Internal => 500,
        RulingKind::Unavailable => 503,
        RulingKind::Given(GivenCode(code)) => code,
    }
}

/// The code that Kubernetes' metrics show for a call of a webhook: 0 if the answer could not be used.
fn code_of_webhook(end: End) -> u16 {
    match end {
        End::Admitted => 200,
        End::Rejected(GivenCode(code)) => code,
        End::Failed { .. } => 500,
        End::Unusable => 0,
    }
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
        let code = code(Err(refusal));
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

/// A `Status` that reports success without details.
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
    use holdfast_core::refusal::{
        BadRequest, Causes, Conflict, Forbidden, Internal, MethodNotAllowed, Plenty, Timeout, TooLarge, Unavailable,
        Unreasoned, Withheld,
    };

    #[test]
    fn every_refusal_has_the_code_of_kubernetes() {
        let (subject, causes) = (Subject::default, Causes::default);
        let ruled = |kind: RulingKind| {
            let (reason, message) = ("Invalid".to_owned(), "no".to_owned());
            Refusal::Ruled(Box::new(Ruling { kind, reason, message, details: Value::Null }))
        };
        let budget =
            || Refusal::DisruptionBudget { budget: "b".into(), why: Withheld::Unprocessed, retry_after_seconds: 0 };
        for (refusal, reason, expected) in [
            (Refusal::BadRequest(BadRequest::NoToken), "BadRequest", 400),
            (Refusal::Unauthorized, "Unauthorized", 401),
            (Refusal::Forbidden { subject: subject(), why: Forbidden::NegativeBudget }, "Forbidden", 403),
            (Refusal::NotFound(subject()), "NotFound", 404),
            (Refusal::NoSuchPath, "NotFound", 404),
            (Refusal::MethodNotAllowed(MethodNotAllowed::OnResource), "MethodNotAllowed", 405),
            (Refusal::NotAcceptable { offered: "", is_offered: false }, "NotAcceptable", 406),
            (Refusal::AlreadyExists { subject: subject(), is_deleting: false }, "AlreadyExists", 409),
            (Refusal::Conflict { subject: subject(), why: Conflict::Modified }, "Conflict", 409),
            (Refusal::ApplyConflict(Vec::new()), "Conflict", 409),
            (Refusal::Expired(Expired::ForeignContinue), "Expired", 410),
            (Refusal::TooLarge(TooLarge::Body { bytes_max: 1 }), "RequestEntityTooLarge", 413),
            (Refusal::UnsupportedMediaType { accepted: "" }, "UnsupportedMediaType", 415),
            (Refusal::Invalid { subject: subject(), causes: causes() }, "Invalid", 422),
            (Refusal::Unprocessable, "Invalid", 422),
            (Refusal::TooManyRequests { what: Plenty::Requests, retry_after_seconds: 1 }, "TooManyRequests", 429),
            (budget(), "TooManyRequests", 429),
            (Refusal::Internal(Internal::Panicked), "InternalError", 500),
            (Refusal::Unreasoned(Unreasoned::SeveralBudgets), "", 500),
            (Refusal::StoreRead { subject: subject(), causes: causes() }, "StorageReadError", 500),
            (Refusal::Unavailable(Unavailable::Redefined), "ServiceUnavailable", 503),
            (Refusal::Timeout(Timeout::Backend), "Timeout", 504),
            (Refusal::InsufficientStorage(String::new()), "InternalError", 507),
            (ruled(RulingKind::BadRequest), "Invalid", 400),
            (ruled(RulingKind::Unauthorized), "Invalid", 401),
            (ruled(RulingKind::Forbidden), "Invalid", 403),
            (ruled(RulingKind::TooLarge), "Invalid", 413),
            (ruled(RulingKind::Invalid), "Invalid", 422),
            (ruled(RulingKind::TooManyRequests), "Invalid", 429),
            (ruled(RulingKind::Internal), "Invalid", 500),
            (ruled(RulingKind::Unavailable), "Invalid", 503),
            (ruled(RulingKind::Given(GivenCode(777))), "Invalid", 777),
        ] {
            let status = Status::from(&refusal);
            assert_eq!((refusal.reason(), code(Err(&refusal))), (reason, expected), "{refusal:?}");
            assert_eq!((status.code, &status.document["code"]), (expected, &json!(expected)), "{refusal:?}");
        }
    }

    #[test]
    fn what_was_created_has_a_code_of_its_own() {
        assert_eq!(code(Ok(&Reply::Success { created: true })), 201);
        assert_eq!(code(Ok(&Reply::Success { created: false })), 200);
        let document = |created| Reply::Document { document: Document::new(), created };
        assert_eq!([true, false].map(|created| code(Ok(&document(created)))), [201, 200]);
        assert_eq!(code(Ok(&Reply::Deleted { subject: Subject::default(), uid: String::new() })), 200);
    }

    #[test]
    fn a_call_of_a_webhook_is_counted_under_its_code() {
        for (end, expected) in [
            (End::Admitted, 200),
            (End::Rejected(GivenCode(403)), 403),
            (End::Failed { is_ignored: true }, 500),
            (End::Failed { is_ignored: false }, 500),
            (End::Unusable, 0),
        ] {
            assert_eq!(code_of_webhook(end), expected, "{end:?}");
        }
    }

    #[test]
    fn who_is_sent_away_for_a_while_is_told_for_how_long() {
        for (details, expected) in [
            (json!({"retryAfterSeconds": 7}), Some(7)),
            (json!({"retryAfterSeconds": 0}), None),
            (json!({"retryAfterSeconds": -1}), None),
            (json!({"name": "a"}), None),
            (Value::Null, None),
        ] {
            let (reason, message) = (String::new(), "slow".to_owned());
            let ruling = Ruling { kind: RulingKind::TooManyRequests, reason, message, details: details.clone() };
            let status = Status::from(&Refusal::Ruled(Box::new(ruling)));
            assert_eq!(status.retry_after_seconds, expected, "{details}");
        }
    }
}
