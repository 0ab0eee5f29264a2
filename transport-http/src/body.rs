//! The body of a request: reading it to its end, and what one says of how something is deleted.

use bytes::{Buf, Bytes, BytesMut};
use futures_util::{Stream, StreamExt};
use holdfast_core::Refusal;
use holdfast_core::object::decode;
use holdfast_core::refusal::{Cause, Subject};
use holdfast_core::request::{DeleteOptions, Format, Request};
use holdfast_core::wire::protobuf;
use serde_json::Value;
use std::pin::pin;

/// The largest body that is read.
const BODY_BYTES_MAX: usize = 3 << 20;

/// Reads a body to its end.
pub async fn read<B, D, E>(body: B) -> Result<Bytes, Refusal>
where
    B: Stream<Item = Result<D, E>> + Send,
    D: Buf,
    E: std::fmt::Display,
{
    let mut body = pin!(body);
    let mut first: Option<Bytes> = None;
    let mut rest = BytesMut::new();
    while let Some(piece) = body.next().await {
        let mut piece = piece.map_err(|error| Refusal::BadRequest(format!("the body cannot be read: {error}")))?;
        let piece = piece.copy_to_bytes(piece.remaining());
        let length = first.as_ref().map_or(0, Bytes::len) + rest.len() + piece.len();
        if length > BODY_BYTES_MAX {
            return Err(Refusal::TooLarge { message: format!("Request entity too large: limit is {BODY_BYTES_MAX}") });
        }
        match &first {
            None => first = Some(piece),
            Some(begin) => {
                if rest.is_empty() {
                    rest.extend_from_slice(begin);
                    first = Some(Bytes::new());
                }
                rest.extend_from_slice(&piece);
            }
        }
    }
    Ok(if rest.is_empty() { first.unwrap_or_default() } else { rest.freeze() })
}

/// `DeleteOptions` may come in the body.
pub fn delete_options(request: &mut Request) -> Result<(), Refusal> {
    match options_body(request, "DeleteOptions")? {
        Some(body) => take(request, &body),
        None => Ok(()),
    }
}

/// An Eviction says in its body how to delete, and whether to at all.
pub fn eviction(request: &mut Request) -> Result<(), Refusal> {
    let Some(body) = options_body(request, "Eviction")? else { return Ok(()) };
    if body["metadata"]["name"].as_str().is_some_and(|name| name != request.name()) {
        return Err(Refusal::BadRequest("name in URL does not match name in Eviction object".into()));
    }
    match &body["deleteOptions"] {
        Value::Null => Ok(()),
        options => take(request, options),
    }
}

fn take(request: &mut Request, body: &Value) -> Result<(), Refusal> {
    let (options, dry_run) = parse(body, &request.options.delete)?;
    request.options.delete = options;
    request.options.dry_run |= dry_run;
    Ok(())
}

/// The body of a request that is about how something goes, if it has one.
fn options_body(request: &Request, wanted: &str) -> Result<Option<Value>, Refusal> {
    if request.body.bytes.is_empty() {
        return Ok(None);
    }
    let decoded = match request.body.format {
        Format::Yaml => decode::yaml(&request.body.bytes),
        Format::Protobuf => protobuf::codec()
            .decode_object(&request.body.bytes)
            .map(decode::Decoded::without_duplicates)
            .map_err(|error| decode::DecodeError(error.to_string())),
        _ => decode::json(&request.body.bytes),
    };
    let unrecognized = |why: &str| {
        Refusal::BadRequest(format!("the object provided is unrecognized (must be of type {wanted}): {why}"))
    };
    let body = decoded.map_err(|error| unrecognized(&error.to_string()))?.value;
    if !body.is_object() {
        return Err(unrecognized("it is not an object"));
    }
    let kind = body["kind"].as_str().unwrap_or(wanted);
    if kind != wanted {
        let version = body["apiVersion"].as_str().unwrap_or("v1");
        return Err(Refusal::BadRequest(format!(
            "decoded object cannot be converted to {wanted}: {version}, Kind={kind}"
        )));
    }
    Ok(Some(body))
}

/// `DeleteOptions` from a body win over those of the query.
fn parse(body: &Value, query: &DeleteOptions) -> Result<(DeleteOptions, bool), Refusal> {
    let wrong = |field: &str| {
        Refusal::BadRequest(format!(
            "DeleteOptions in version \"v1\" cannot be handled as a DeleteOptions: json: cannot unmarshal into Go \
             struct field DeleteOptions.{field}"
        ))
    };
    let text = |value: &Value, field: &str| match value {
        Value::Null => Ok(None),
        Value::String(text) => Ok(Some(text.clone()).filter(|text| !text.is_empty())),
        _ => Err(wrong(field)),
    };
    let grace = match &body["gracePeriodSeconds"] {
        Value::Null => None,
        value => Some(value.as_i64().ok_or_else(|| wrong("gracePeriodSeconds"))?),
    };
    let orphan = match &body["orphanDependents"] {
        Value::Null => None,
        value => Some(value.as_bool().ok_or_else(|| wrong("orphanDependents"))?),
    };
    let dry_run = match &body["dryRun"] {
        Value::Null => false,
        Value::Array(list) if list.is_empty() => false,
        Value::Array(list) if list.iter().all(|item| item == "All") => true,
        other => {
            return Err(Refusal::Invalid {
                subject: Subject::new("meta.k8s.io", "DeleteOptions", ""),
                causes: vec![Cause::not_supported("dryRun", other, &["All"])],
            });
        }
    };
    let options = DeleteOptions {
        grace_period_seconds: grace.or(query.grace_period_seconds),
        orphan_dependents: orphan.or(query.orphan_dependents),
        propagation_policy: text(&body["propagationPolicy"], "propagationPolicy")?.or(query.propagation_policy.clone()),
        precondition_uid: text(&body["preconditions"]["uid"], "preconditions.uid")?,
        precondition_resource_version: text(
            &body["preconditions"]["resourceVersion"],
            "preconditions.resourceVersion",
        )?,
    };
    Ok((options, dry_run))
}
