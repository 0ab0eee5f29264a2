//! The AdmissionReview: what a webhook gets, and what its answer comes to.

use crate::admission::Attributes;
use crate::admission::asked::Documents;
use crate::admission::call::Call;
use crate::admission::registered::Webhook;
use crate::object::decode;
use crate::object::meta::type_name;
use crate::refusal::Ruling;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use std::fmt;

/// Why a webhook has no say in a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// It could not be called, or answered something else than a review.
    Call(String),
    /// Its review is not as it must be.
    Invalid(String),
    /// It asks for what nobody can do.
    Unsupported(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Call(why) => write!(f, "failed to call webhook: {why}"),
            Self::Invalid(why) => write!(f, "received invalid webhook response: {why}"),
            Self::Unsupported(why) => write!(f, "{why}"),
        }
    }
}

/// What a webhook says.
pub(super) struct Verdict {
    pub refusal: Option<Ruling>,
    pub patch: Option<Value>,
    pub warnings: Vec<String>,
    pub annotations: Vec<(String, String)>,
}

/// Uids of reviews begin here: those before are the object's and what belongs to it.
const FIRST_UID: u64 = 100;

pub(super) fn call(
    attributes: &Attributes,
    configuration: &str,
    webhook: &Webhook,
    documents: &Documents,
    index: usize,
) -> Call {
    let nth = FIRST_UID + 2 * index as u64 + u64::from(attributes.reinvocation.round);
    let nth = if attributes.is_validating { nth.saturating_add(1 << 32) } else { nth };
    let mut request = documents.request.clone();
    request["uid"] = attributes.stamp.uid(nth).into();
    Call {
        configuration: configuration.to_owned(),
        webhook: webhook.name.clone(),
        is_validating: attributes.is_validating,
        client: webhook.client.clone(),
        timeout_seconds: webhook.timeout_seconds,
        api_version: format!("admission.k8s.io/{}", webhook.review_version),
        request,
        object: documents.object.json(),
        old: documents.old.json(),
    }
}

/// What an answer comes to: the body that came back, or why none did.
pub(super) fn verdict(call: &Call, answer: &Result<Vec<u8>, String>, is_mutating: bool) -> Result<Verdict, Failure> {
    let body = answer.as_ref().map_err(|why| Failure::Call(why.clone()))?;
    let answer = parse(body).map_err(Failure::Call)?;
    let text = |field: &str| answer[field].as_str().unwrap_or("");
    let wanted = call.api_version.as_str();
    if text("apiVersion") != wanted || text("kind") != "AdmissionReview" {
        let found = if text("apiVersion").is_empty() { "/" } else { text("apiVersion") };
        return Err(Failure::Invalid(format!(
            "expected webhook response of {wanted}, Kind=AdmissionReview, got {found}, Kind={}",
            text("kind")
        )));
    }
    let response = &answer["response"];
    if !response.is_object() {
        return Err(Failure::Invalid("webhook response was absent".into()));
    }
    let is_newest = wanted.ends_with("/v1");
    let (uid, expected) = (response["uid"].as_str().unwrap_or(""), call.request["uid"].as_str().unwrap_or(""));
    if is_newest && uid != expected {
        return Err(Failure::Invalid(format!("expected response.uid=\"{expected}\", got \"{uid}\"")));
    }
    let texts = |list: &Value| -> Vec<String> {
        list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let annotations = response["auditAnnotations"].as_object().into_iter().flatten();
    let patch = patch(response, is_newest, is_mutating)?;
    let is_allowed = response["allowed"] == true;
    Ok(Verdict {
        refusal: (!is_allowed).then(|| ruling(&call.webhook, &response["status"])),
        patch: patch.filter(|_| is_allowed),
        warnings: texts(&response["warnings"]),
        annotations: annotations.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect(),
    })
}

/// Whatever is sent is read as YAML is, which JSON is, too.
fn parse(body: &[u8]) -> Result<Value, String> {
    let unreadable = |why: String| format!("couldn't get version/kind; json parse error: {why}");
    let value = match serde_json::from_slice::<Value>(body) {
        Ok(value) => value,
        Err(error) => decode::yaml(body).map(|decoded| decoded.value).map_err(|_| unreadable(error.to_string()))?,
    };
    if !value.is_object() {
        return Err(unreadable(format!(
            "json: cannot unmarshal {} into Go value of type struct {{ APIVersion string \
             \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}",
            type_name(&value)
        )));
    }
    let text = |field: &str| value[field].as_str().unwrap_or("");
    let (version, kind) = (text("apiVersion"), text("kind"));
    let is_status = (version, kind) == ("v1", "Status");
    let is_review = matches!(version, "admission.k8s.io/v1" | "admission.k8s.io/v1beta1") && kind == "AdmissionReview";
    if version.is_empty() || kind.is_empty() || is_status || is_review {
        return Ok(value);
    }
    Err(format!(
        "no kind \"{kind}\" is registered for version \"{version}\" in scheme \"pkg/util/webhook/client.go:71\""
    ))
}

fn patch(response: &Value, is_newest: bool, is_mutating: bool) -> Result<Option<Value>, Failure> {
    let invalid = |why: &str| Failure::Invalid(format!("webhook returned {why}"));
    let encoded = response["patch"].as_str().filter(|patch| !patch.is_empty());
    let kind = response["patchType"].as_str();
    if !is_mutating {
        return match (encoded, kind) {
            (Some(_), _) => Err(Failure::Invalid("validating webhook may not return response.patch".into())),
            (_, Some(_)) => Err(Failure::Invalid("validating webhook may not return response.patchType".into())),
            _ => Ok(None),
        };
    }
    match (encoded, kind) {
        (Some(_), None) if is_newest => return Err(invalid("response.patch but not response.patchType")),
        (None, Some(_)) if is_newest => return Err(invalid("response.patchType but not response.patch")),
        (Some(_), Some(kind)) if is_newest && kind != "JSONPatch" => {
            return Err(Failure::Unsupported(format!("unsupported patch type \"{kind}\"")));
        }
        _ => {}
    }
    let Some(encoded) = encoded else { return Ok(None) };
    let bytes = STANDARD.decode(encoded).map_err(|error| Failure::Call(format!("illegal base64 data: {error}")))?;
    let patch: Value = serde_json::from_slice(&bytes).map_err(|error| Failure::Call(error.to_string()))?;
    match patch {
        Value::Array(operations) if operations.is_empty() => Ok(None),
        patch @ Value::Array(_) => Ok(Some(patch)),
        other => {
            let found = type_name(&other);
            Err(Failure::Call(format!("json: cannot unmarshal {found} into Go value of type jsonpatch.Patch")))
        }
    }
}

/// A rejection has a code that is none of success, and says whose it is.
fn ruling(webhook: &str, status: &Value) -> Ruling {
    let text = |field: &str| status[field].as_str().unwrap_or("");
    let code = status["code"].as_u64().and_then(|code| u16::try_from(code).ok());
    let code = code.filter(|code| (400..=599).contains(code)).unwrap_or(400);
    let denied = format!("admission webhook \"{webhook}\" denied the request");
    let message = match (text("message"), text("reason")) {
        ("", "") => format!("{denied} without explanation"),
        ("", reason) => format!("{denied}: {reason}"),
        (message, _) => format!("{denied}: {message}"),
    };
    Ruling { code, reason: text("reason").to_owned(), message, details: status["details"].clone() }
}
