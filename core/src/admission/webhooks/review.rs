//! The AdmissionReview: the request to a webhook, and the interpretation of its answer.

use crate::admission::Attributes;
use crate::admission::asked::Documents;
use crate::admission::call::Call;
use crate::admission::registered::Webhook;
use crate::object::base64;
use crate::object::decode;
use crate::object::meta::type_name;
use crate::refusal::{GivenCode, Ruling, RulingKind, quoted};
use crate::schema;
use holdfast_value::{Map, Value};
use std::fmt;

/// Why a webhook's answer cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// The call failed, or its answer was not a review.
    Call(String),
    /// The review in the answer is invalid.
    Invalid(String),
    /// The answer's patch is not a list of operations.
    Undecodable(String),
    /// The answer uses a feature that the server does not support.
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

/// The content of a valid answer.
pub(super) struct Verdict {
    pub denial: Option<Denial>,
    pub patch: Option<Patch>,
    pub warnings: Vec<String>,
    pub annotations: Vec<(String, String)>,
}

/// A refusal by a webhook, and the code of its `Status`.
pub(super) struct Denial {
    pub code: GivenCode,
    pub ruling: Ruling,
}

/// A patch as received. It is decoded only if the webhook allowed the write: a denial holds even if the patch is
/// invalid.
pub(super) struct Patch {
    bytes: Vec<u8>,
    kind: String,
}

impl Patch {
    /// The operations of the patch; `None` if the patch is null or has no operations.
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

/// The index of the stamp's first UID for reviews. Lower UIDs are for the object and for objects that are made with it.
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

/// Interprets a webhook's answer: the body, or the reason why there is none.
pub(super) fn verdict(call: &Call, answer: &Result<Vec<u8>, String>, is_mutating: bool) -> Result<Verdict, Failure> {
    let body = answer.as_ref().map_err(|why| Failure::Call(why.clone()))?;
    let answer = parse(body, &call.api_version).map_err(Failure::Call)?;
    let response = &answer["response"];
    if !response.is_object() {
        return Err(Failure::Invalid("webhook response was absent".into()));
    }
    // As in Kubernetes, the UID and the type of an answer to a review before v1 are not checked.
    let is_newest = call.api_version.ends_with("/v1");
    if is_newest {
        check_identity(call, &answer)?;
    }
    let encoded = base64::decode(response["patch"].as_str().unwrap_or("")).map_err(Failure::Call)?;
    let patch = patch(encoded, response["patchType"].as_str(), is_newest, is_mutating)?;
    let text = |value: &Value| value.as_str().unwrap_or("").to_owned();
    let warnings = response["warnings"].as_array().into_iter().flatten();
    let annotations = response["auditAnnotations"].as_object().into_iter().flatten();
    Ok(Verdict {
        denial: (response["allowed"] != true).then(|| denial(&call.webhook, &response["status"])),
        patch,
        warnings: warnings.map(text).collect(),
        annotations: annotations.map(|(key, value)| (key.to_string(), text(value))).collect(),
    })
}

/// Checks that the answer is for this review, and is a review.
fn check_identity(call: &Call, answer: &Value) -> Result<(), Failure> {
    let text = |value: &'_ Value| value.as_str().unwrap_or("").to_owned();
    let (uid, expected) = (text(&answer["response"]["uid"]), text(&call.request["uid"]));
    if uid != expected {
        let (uid, expected) = (quoted(&uid), quoted(&expected));
        return Err(Failure::Invalid(format!("expected response.uid={expected}, got {uid}")));
    }
    let (wanted, version, kind) = (&call.api_version, text(&answer["apiVersion"]), text(&answer["kind"]));
    if version == *wanted && kind == REVIEW {
        return Ok(());
    }
    let version = if version.is_empty() { "/" } else { version.as_str() };
    Err(Failure::Invalid(format!("expected webhook response of {wanted}, Kind={REVIEW}, got {version}, Kind={kind}")))
}

const REVIEW: &str = "AdmissionReview";

/// Parses the body as a review and checks its field types.
fn parse(body: &[u8], wanted: &str) -> Result<Value, String> {
    let mut answer = read(body)?;
    let unfit = |field: &str, found: &Value| {
        let found = type_name(found);
        unreadable(&format!("json: cannot unmarshal {found} into Go struct field .{field} of type string"))
    };
    let text = |field: &str| match &answer[field] {
        Value::Null => Ok(String::new()),
        Value::String(text) => Ok(text.to_string()),
        other => Err(unfit(field, other)),
    };
    let (version, kind) = (text("apiVersion")?, text("kind")?);
    if version.matches('/').count() > 1 {
        return Err(format!("unexpected GroupVersion string: {version}"));
    }
    // An absent apiVersion or kind counts as correct.
    let version = if matches!(version.as_str(), "" | "/") { wanted } else { version.as_str() };
    let kind = if kind.is_empty() { REVIEW } else { kind.as_str() };
    let message = match (version, kind) {
        ("admission.k8s.io/v1", REVIEW) => "io.k8s.api.admission.v1.AdmissionReview",
        ("admission.k8s.io/v1beta1", REVIEW) => "io.k8s.api.admission.v1beta1.AdmissionReview",
        ("v1", "Status") => "io.k8s.apimachinery.pkg.apis.meta.v1.Status",
        _ => {
            return Err(format!(
                "no kind \"{kind}\" is registered for version \"{version}\" in scheme \"pkg/util/webhook/client.go:71\""
            ));
        }
    };
    let schema = schema::schema();
    let message = schema.id(message).ok_or("the schema lacks what webhooks answer")?;
    let other = (version != wanted || kind != REVIEW).then(|| {
        let package = |version: &str| version.rsplit('/').next().unwrap_or_default().to_owned();
        let (found, wanted) = (package(version), package(wanted));
        format!("converting ({found}.{kind}) to ({wanted}.{REVIEW}): unknown conversion")
    });
    schema::check(schema, message, &mut answer).map_err(|error| error.to_string())?;
    other.map_or(Ok(answer), Err)
}

fn unreadable(why: &str) -> String {
    format!("couldn't get version/kind; json parse error: {why}")
}

/// A body that does not begin like JSON is read as YAML.
fn read(body: &[u8]) -> Result<Value, String> {
    let is_json = body.trim_ascii_start().starts_with(b"{");
    let decoded = match is_json {
        true => decode::json(body).map_err(|fault| unreadable(&fault.to_string()))?,
        false => decode::yaml(body).map_err(|fault| fault.to_string())?,
    };
    match decoded.value {
        value @ Value::Object(_) => Ok(value),
        Value::Null => Ok(Value::Object(Map::new())),
        other => Err(unreadable(&format!(
            "json: cannot unmarshal {} into Go value of type struct {{ APIVersion string \
             \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}",
            type_name(&other)
        ))),
    }
}

/// The patch in an answer. Reviews before v1 have no patch type: it is always JSONPatch.
fn patch(bytes: Vec<u8>, kind: Option<&str>, is_newest: bool, is_mutating: bool) -> Result<Option<Patch>, Failure> {
    let invalid = |why: &str| Err(Failure::Invalid(why.into()));
    let is_there = !bytes.is_empty();
    if !is_mutating {
        return match kind {
            _ if !is_newest => Ok(None),
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

/// The code of a denial's `Status`. A code outside 400 to 999 is replaced by 400.
fn code_of(status: &Value) -> GivenCode {
    let code = status["code"].as_u64().and_then(|code| u16::try_from(code).ok());
    GivenCode(code.filter(|code| (400..=999).contains(code)).unwrap_or(400))
}

/// The refusal from a denial, with the webhook's name in the message.
fn denial(webhook: &str, status: &Value) -> Denial {
    let text = |field: &str| status[field].as_str().unwrap_or("");
    let code = code_of(status);
    let denied = format!("admission webhook \"{webhook}\" denied the request");
    let message = match (text("message"), text("reason")) {
        ("", "") => format!("{denied} without explanation"),
        ("", reason) => format!("{denied}: {reason}"),
        (message, _) => format!("{denied}: {message}"),
    };
    let (kind, reason) = (RulingKind::Given(code), text("reason").to_owned());
    Denial { code, ruling: Ruling { kind, reason, message, details: status["details"].clone() } }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use holdfast_value::json;

    fn call(version: &str) -> Call {
        Call {
            configuration: "c".into(),
            webhook: "w.example.com".into(),
            is_validating: false,
            client: Value::Null,
            timeout_seconds: 10,
            api_version: format!("admission.k8s.io/{version}"),
            request: json!({"uid": "u"}),
            object: Bytes::new(),
            old: Bytes::new(),
        }
    }

    /// The reason why an answer cannot be used; empty if the answer can be used.
    fn failure(version: &str, is_mutating: bool, body: &str) -> String {
        let verdict = verdict(&call(version), &Ok(body.as_bytes().to_vec()), is_mutating);
        verdict.err().map(|failure| failure.to_string()).unwrap_or_default()
    }

    fn review(version: &str, response: &Value) -> String {
        let api_version = format!("admission.k8s.io/{version}");
        json!({"apiVersion": api_version, "kind": REVIEW, "response": response}).to_string()
    }

    #[test]
    fn fields_of_other_types_are_no_answer() {
        let field = |field: &str, found: &str, ty: &str| {
            let (of, _) = field.rsplit_once('.').unwrap_or_default();
            let message = match of {
                "" => "AdmissionReview",
                "response" => "AdmissionResponse",
                "response.status" => "Status",
                _ => "StatusDetails",
            };
            format!(
                "failed to call webhook: json: cannot unmarshal {found} into Go struct field {message}.{field} of type {ty}"
            )
        };
        for (response, expected) in [
            (json!("x"), field("response", "string", "v1.AdmissionResponse")),
            (json!([]), field("response", "array", "v1.AdmissionResponse")),
            (json!({"allowed": "yes"}), field("response.allowed", "string", "bool")),
            (json!({"uid": 5}), field("response.uid", "number", "types.UID")),
            (json!({"status": "no"}), field("response.status", "string", "v1.Status")),
            (json!({"status": {"code": "403"}}), field("response.status.code", "string", "int32")),
            (json!({"status": {"code": 1.5}}), field("response.status.code", "number 1.5", "int32")),
            (json!({"status": {"reason": 1}}), field("response.status.reason", "number", "v1.StatusReason")),
            (
                json!({"status": {"details": {"retryAfterSeconds": "1"}}}),
                field("response.status.details.retryAfterSeconds", "string", "int32"),
            ),
            (json!({"warnings": "w"}), field("response.warnings", "string", "[]string")),
            (json!({"warnings": [1]}), field("response.warnings", "number", "string")),
            (json!({"auditAnnotations": []}), field("response.auditAnnotations", "array", "map[string]string")),
            (json!({"auditAnnotations": {"a": 1}}), field("response.auditAnnotations", "number", "string")),
            (json!({"patch": {}}), field("response.patch", "object", "[]uint8")),
            (json!({"patchType": 1}), field("response.patchType", "number", "v1.PatchType")),
            (json!({"patch": "a"}), "failed to call webhook: illegal base64 data at input byte 0".into()),
            // Nulls and unknown fields have no effect, so the answer can be used.
            (json!({"uid": "u", "allowed": true, "warnings": null, "Allowed": "yes", "more": 1}), String::new()),
        ] {
            assert_eq!(failure("v1", true, &review("v1", &response)), expected, "{response}");
        }
    }

    #[test]
    fn answers_are_held_against_the_review() {
        let good = json!({"uid": "u", "allowed": true});
        let patched = json!({"uid": "u", "allowed": true, "patch": "e30=", "patchType": "JSONPatch"});
        let stranger = json!({"uid": "other", "allowed": true});
        let invalid = |why: &str| format!("received invalid webhook response: {why}");
        let called = |why: &str| format!("failed to call webhook: {why}");
        let scheme = "in scheme \"pkg/util/webhook/client.go:71\"";
        let other = invalid("expected response.uid=\"u\", got \"other\"");
        let unnamed = |response: &Value, names: Value| {
            let mut review = names;
            review["response"] = response.clone();
            review.to_string()
        };
        let unlike = |found: &str| {
            invalid(&format!("expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got {found}"))
        };
        for (version, is_mutating, body, expected) in [
            ("v1", false, review("v1", &good), String::new()),
            ("v1", false, "{}".into(), invalid("webhook response was absent")),
            ("v1", false, "null".into(), invalid("webhook response was absent")),
            ("v1", false, r#"{"foo": 1, "response": null}"#.into(), invalid("webhook response was absent")),
            ("v1beta1", false, "{}".into(), invalid("webhook response was absent")),
            // The UID is checked before the type, so the wrong UID is reported even if the answer has no type.
            ("v1", false, review("v1", &stranger), other.clone()),
            ("v1", false, unnamed(&stranger, json!({})), other),
            ("v1", false, unnamed(&good, json!({})), unlike("/, Kind=")),
            ("v1", false, unnamed(&good, json!({"kind": REVIEW})), unlike("/, Kind=AdmissionReview")),
            (
                "v1",
                false,
                unnamed(&good, json!({"apiVersion": "admission.k8s.io/v1"})),
                unlike("admission.k8s.io/v1, Kind="),
            ),
            // For reviews of `v1beta1`, neither the UID and type of the answer nor the presence of a patch is checked.
            ("v1beta1", false, unnamed(&stranger, json!({})), String::new()),
            ("v1beta1", false, review("v1beta1", &patched), String::new()),
            ("v1", false, review("v1", &patched), invalid("validating webhook may not return response.patch")),
            (
                "v1",
                false,
                review("v1", &json!({"uid": "u", "patchType": ""})),
                invalid("validating webhook may not return response.patchType"),
            ),
            (
                "v1",
                true,
                review("v1beta1", &good),
                called("converting (v1beta1.AdmissionReview) to (v1.AdmissionReview): unknown conversion"),
            ),
            (
                "v1beta1",
                true,
                review("v1", &good),
                called("converting (v1.AdmissionReview) to (v1beta1.AdmissionReview): unknown conversion"),
            ),
            (
                "v1",
                true,
                r#"{"apiVersion": "v1", "kind": "Status", "status": "Success"}"#.into(),
                called("converting (v1.Status) to (v1.AdmissionReview): unknown conversion"),
            ),
            (
                "v1",
                true,
                r#"{"apiVersion": "v1", "response": {}}"#.into(),
                called(&format!("no kind \"AdmissionReview\" is registered for version \"v1\" {scheme}")),
            ),
            (
                "v1",
                true,
                r#"{"kind": "Pod"}"#.into(),
                called(&format!("no kind \"Pod\" is registered for version \"admission.k8s.io/v1\" {scheme}")),
            ),
            ("v1", true, r#"{"apiVersion": "a/b/c"}"#.into(), called("unexpected GroupVersion string: a/b/c")),
            (
                "v1",
                true,
                r#"{"apiVersion": 1}"#.into(),
                called(
                    "couldn't get version/kind; json parse error: json: cannot unmarshal number into Go struct field \
                     .apiVersion of type string",
                ),
            ),
            (
                "v1",
                true,
                r#"{"a": 1,}"#.into(),
                called(
                    "couldn't get version/kind; json parse error: invalid character '}' looking for beginning of object \
                     key string",
                ),
            ),
            (
                "v1",
                true,
                "kind: AdmissionReview\nresponse: {}".into(),
                invalid("expected response.uid=\"u\", got \"\""),
            ),
        ] {
            assert_eq!(failure(version, is_mutating, &body), expected, "{version} {body}");
        }
    }

    #[test]
    fn a_denial_has_the_code_that_it_says() {
        for (code, expected) in
            [(json!(null), 400), (json!(200), 400), (json!(403), 403), (json!(700), 700), (json!(1000), 400)]
        {
            let status = json!({"code": code, "message": "no", "details": {"retryAfterSeconds": 7, "more": 1}});
            let body = review("v1", &json!({"uid": "u", "status": status}));
            let verdict = verdict(&call("v1"), &Ok(body.into_bytes()), false).ok().and_then(|verdict| verdict.denial);
            let Denial { code: given, ruling } = verdict.expect("a denial");
            assert_eq!((given, ruling.kind), (GivenCode(expected), RulingKind::Given(given)), "{code}");
            assert_eq!(ruling.details, json!({"retryAfterSeconds": 7}), "{code}");
        }
    }
}
