//! The AdmissionReview: what a webhook gets, and what its answer comes to.

use crate::admission::Attributes;
use crate::admission::asked::Documents;
use crate::admission::call::Call;
use crate::admission::registered::Webhook;
use crate::object::decode;
use crate::object::meta::type_name;
use crate::refusal::Ruling;
use crate::schema::base64;
use serde_json::Value;
use std::fmt;

/// Why a webhook has no say in a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// It could not be called, or answered something else than a review.
    Call(String),
    /// Its review is not as it must be.
    Invalid(String),
    /// Its patch is no list of operations.
    Undecodable(String),
    /// It asks for what nobody can do.
    Unsupported(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Call(why) => write!(f, "failed to call webhook: {why}"),
            Self::Invalid(why) => write!(f, "received invalid webhook response: {why}"),
            Self::Undecodable(why) => write!(f, "received undecodable patch in webhook response: {why}"),
            Self::Unsupported(why) => write!(f, "{why}"),
        }
    }
}

/// What a webhook says.
pub(super) struct Verdict {
    pub refusal: Option<Ruling>,
    pub patch: Option<Patch>,
    pub warnings: Vec<String>,
    pub annotations: Vec<(String, String)>,
}

/// A patch as it came. It is decoded only when the webhook has let the write pass: a denial holds whatever the patch
/// beside it is like.
pub(super) struct Patch {
    bytes: Vec<u8>,
    kind: String,
}

impl Patch {
    /// The operations, if there are any.
    pub fn operations(&self) -> Result<Option<Value>, Failure> {
        let patch = decode::json(&self.bytes).map_err(|fault| Failure::Undecodable(fault.to_string()))?.value;
        let unfit = |found: &Value, wanted: &str| {
            let found = type_name(found);
            Failure::Undecodable(format!("json: cannot unmarshal {found} into Go value of type jsonpatch.{wanted}"))
        };
        match patch {
            Value::Null => Ok(None),
            Value::Array(operations) if operations.is_empty() => Ok(None),
            Value::Array(operations) => {
                match operations.iter().find(|operation| !operation.is_object() && !operation.is_null()) {
                    Some(other) => Err(unfit(other, "Operation")),
                    None => Ok(Some(Value::Array(operations))),
                }
            }
            other => Err(unfit(&other, "Patch")),
        }
    }

    pub fn check_type(&self) -> Result<(), Failure> {
        match self.kind.as_str() {
            "JSONPatch" => Ok(()),
            other => Err(Failure::Unsupported(format!("unsupported patch type \"{other}\""))),
        }
    }
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
    let encoded = base64::decode(answer["response"]["patch"].as_str().unwrap_or("")).map_err(Failure::Call)?;
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
    let patch = patch(encoded, response["patchType"].as_str(), is_newest, is_mutating)?;
    let is_allowed = response["allowed"] == true;
    Ok(Verdict {
        refusal: (!is_allowed).then(|| ruling(&call.webhook, &response["status"])),
        patch,
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

/// Reviews of before v1 name no type: theirs is always the same.
fn patch(bytes: Vec<u8>, kind: Option<&str>, is_newest: bool, is_mutating: bool) -> Result<Option<Patch>, Failure> {
    let invalid = |why: &str| Err(Failure::Invalid(why.into()));
    let is_there = !bytes.is_empty();
    if !is_mutating {
        return match kind {
            _ if is_there => invalid("validating webhook may not return response.patch"),
            Some(_) => invalid("validating webhook may not return response.patchType"),
            None => Ok(None),
        };
    }
    let kind = match kind {
        _ if !is_newest => "JSONPatch",
        None if is_there => return invalid("webhook returned response.patch but not response.patchType"),
        Some(_) if !is_there => return invalid("webhook returned response.patchType but not response.patch"),
        Some("") => return invalid("webhook returned invalid response.patchType of \"\""),
        kind => kind.unwrap_or_default(),
    };
    Ok(is_there.then(|| Patch { bytes, kind: kind.to_owned() }))
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
