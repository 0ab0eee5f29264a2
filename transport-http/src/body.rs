//! The body of a request: reading it within bounds, and parsing the options in the body of a deletion.

use bytes::{Buf, Bytes, BytesMut};
use futures_util::{Stream, StreamExt, stream};
use holdfast_core::Refusal;
use holdfast_core::authz::User;
use holdfast_core::object::decode;
use holdfast_core::pipeline::parsed;
use holdfast_core::refusal::{BadRequest, Cause, Plenty, Subject, Timeout, TooLarge, Unfit, Unrecognized};
use holdfast_core::request::{Body, DeleteOptions, Format, IGNORES_READ_ERRORS, Options};
use holdfast_core::schema::{MessageId, check, schema};
use holdfast_core::wire::protobuf;
use holdfast_service::{ResourceRequest, Share, Shares};
use holdfast_value::Value;
use http::HeaderMap;
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::task::Poll;
use std::time::Duration;

/// The maximum number of bytes in the body of a request.
const BODY_BYTES_MAX: usize = 3 << 20;

/// The longest time that a body may take to arrive, in seconds.
const BODY_SECONDS_MAX: u64 = 60;
/// The maximum number of bytes of all bodies in memory at once.
const BODIES_BYTES_MAX: u64 = 256 << 20;
/// Each body counts at least this many bytes, so that the limit also applies to many bodies that never arrive.
const BODY_BYTES_MIN: u64 = 64 << 10;

/// The maximum number of bytes that are read of an unwanted body, which is the body of a request that the server does
/// not need.
const PASSED_OVER_BYTES_MAX: usize = 256 << 10;
/// How long the reading of an unwanted body may take.
const PASSED_OVER_MAX: Duration = Duration::from_secs(1);

/// Marks a response whose request body was not read to its end, so that an HTTP/1.1 connection cannot be used again.
#[derive(Debug, Clone, Copy)]
pub struct Unread;

/// Shows whether the body of a request was read to its end.
pub struct Progress(Option<Arc<AtomicBool>>);

impl Progress {
    pub fn is_unread(&self) -> bool {
        self.0.as_ref().is_some_and(|ended| !ended.load(Ordering::Relaxed))
    }
}

/// The body, and its progress. If the head announces no body, the body counts as read.
pub fn followed<B: Stream>(headers: &HeaderMap, body: B) -> (impl Stream<Item = B::Item> + use<B>, Progress) {
    let announced = headers.contains_key(TRANSFER_ENCODING)
        || headers.get(CONTENT_LENGTH).is_some_and(|length| length.as_bytes() != b"0");
    let ended: Option<Arc<AtomicBool>> = announced.then(Arc::default);
    let progress = Progress(ended.clone());
    let end = stream::poll_fn(move |_| {
        ended.iter().for_each(|ended| ended.store(true, Ordering::Relaxed));
        Poll::Ready(None)
    });
    (body.chain(end), progress)
}

/// Reads an unwanted body if it is short, so that the connection of a refused client can be used again.
pub async fn pass_over<B, D, E>(body: B)
where
    B: Stream<Item = Result<D, E>> + Send,
    D: Buf,
{
    let mut body = pin!(body);
    let read = async {
        let mut length = 0;
        while let Some(Ok(piece)) = body.next().await {
            length += piece.remaining();
            if length > PASSED_OVER_BYTES_MAX {
                return;
            }
        }
    };
    // If the body does not arrive in time, the rest of it stays unread.
    let _ = tokio::time::timeout(PASSED_OVER_MAX, read).await;
}

/// The memory for the bodies that are being read. Each user has a fair share of this memory. A body takes memory before
/// its request takes a place among the requests in progress. Clones share the same memory.
#[derive(Clone)]
pub struct Bodies {
    room: Shares,
}

/// A body that was read, and its memory, which counts until this value is dropped.
#[derive(Default)]
pub struct Received {
    pub bytes: Bytes,
    room: Option<Share>,
}

impl Default for Bodies {
    fn default() -> Bodies {
        Bodies { room: Shares::new(BODIES_BYTES_MAX) }
    }
}

impl Bodies {
    /// Reads a body to its end, and counts its memory. Refuses a body that is too large or too slow.
    pub async fn read<B, D, E>(&self, user: &User, body: B) -> Result<Received, Refusal>
    where
        B: Stream<Item = Result<D, E>> + Send,
        D: Buf,
        E: std::fmt::Display,
    {
        let reading = Received { bytes: Bytes::new(), room: self.room.take(user, BODY_BYTES_MIN) };
        if reading.room.is_none() && !user.is_privileged() {
            return Err(no_room());
        }
        let limit = Duration::from_secs(BODY_SECONDS_MAX);
        match tokio::time::timeout(limit, read(reading, user.is_privileged(), body)).await {
            Ok(read) => read,
            Err(_) => Err(Refusal::Timeout(Timeout::Body { seconds: BODY_SECONDS_MAX })),
        }
    }
}

fn no_room() -> Refusal {
    Refusal::TooManyRequests { what: Plenty::Requests, retry_after_seconds: 1 }
}

async fn read<B, D, E>(mut received: Received, privileged: bool, body: B) -> Result<Received, Refusal>
where
    B: Stream<Item = Result<D, E>> + Send,
    D: Buf,
    E: std::fmt::Display,
{
    let mut body = pin!(body);
    let mut first: Option<Bytes> = None;
    let mut rest = BytesMut::new();
    let mut counted = BODY_BYTES_MIN;
    while let Some(piece) = body.next().await {
        let mut piece = piece.map_err(|error| Refusal::BadRequest(BadRequest::BrokenBody(error.to_string())))?;
        let piece = piece.copy_to_bytes(piece.remaining());
        let length = first.as_ref().map_or(0, Bytes::len) + rest.len() + piece.len();
        if length > BODY_BYTES_MAX {
            return Err(Refusal::TooLarge(TooLarge::Body { bytes_max: BODY_BYTES_MAX }));
        }
        while counted < length as u64 {
            if let Some(room) = &mut received.room
                && !room.grow(BODY_BYTES_MIN)
                && !privileged
            {
                return Err(no_room());
            }
            counted += BODY_BYTES_MIN;
        }
        // Most bodies arrive in one piece, which is kept without a copy.
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
    received.bytes = if rest.is_empty() { first.unwrap_or_default() } else { rest.freeze() };
    Ok(received)
}

/// The kind that a document in the body of a DELETE must have.
const WANTED: &str = "DeleteOptions";

/// Reads the `DeleteOptions` in the body of a DELETE into the options of the request.
pub fn delete_options(named: &mut ResourceRequest) -> Result<(), Refusal> {
    match options_body(&named.body)? {
        Some(body) => take(&mut named.options, &checked(body)?),
        None => Ok(()),
    }
}

/// Reads the delete options in the body of an Eviction, so that a dry run is known before the request is judged. Later
/// code checks whether the body is an Eviction.
pub fn eviction(named: &mut ResourceRequest) -> Result<(), Refusal> {
    match parsed(&named.body).as_ref().map(|body| &body["deleteOptions"]) {
        None | Some(Value::Null) => Ok(()),
        // Later code refuses options of a wrong type, together with the body.
        Some(options) => checked(options.clone()).map_or(Ok(()), |options| take(&mut named.options, &options)),
    }
}

fn take(options: &mut Options, body: &Value) -> Result<(), Refusal> {
    let (delete, dry_run) = parse(body, &options.delete)?;
    options.delete = delete;
    options.dry_run |= dry_run;
    Ok(())
}

/// The options in the body of a deletion, if it has any.
fn options_body(body: &Body) -> Result<Option<Value>, Refusal> {
    if body.content.is_empty() {
        return Ok(None);
    }
    let decoded = match body.format {
        Format::Yaml => body.content.yaml(),
        Format::Protobuf => protobuf::codec()
            .decode_object(&body.content.bytes())
            .map(decode::Decoded::without_duplicates)
            .map_err(|error| decode::DecodeError(error.to_string())),
        _ => body.content.json(),
    };
    let unrecognized = |why: Unrecognized| Refusal::BadRequest(BadRequest::Unrecognized { wanted: WANTED.into(), why });
    let body = decoded.map_err(|error| unrecognized(Unrecognized::Options(error.to_string())))?.value;
    if body.is_null() {
        return Ok(None);
    }
    if !body.is_object() {
        return Err(unrecognized(Unrecognized::OptionsAreNoObject));
    }
    let kind = body["kind"].as_str().unwrap_or(WANTED);
    if kind != WANTED {
        let (version, kind) = (body["apiVersion"].as_str().unwrap_or("v1").to_owned(), kind.to_owned());
        return Err(Refusal::BadRequest(BadRequest::OtherOptions { wanted: WANTED, version, kind }));
    }
    Ok(Some(body))
}

/// `DeleteOptions` in a body take precedence over the options in the query.
fn parse(body: &Value, query: &DeleteOptions) -> Result<(DeleteOptions, bool), Refusal> {
    let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    let asked = body["dryRun"].as_array().map(Vec::as_slice).unwrap_or_default();
    if asked.iter().any(|item| item != "All") {
        return Err(Refusal::Invalid {
            subject: Subject::new("meta.k8s.io", WANTED, ""),
            causes: Cause::not_supported("dryRun", &body["dryRun"], &["All"]).into(),
        });
    }
    let options = DeleteOptions {
        grace_period_seconds: body["gracePeriodSeconds"].as_i64().or(query.grace_period_seconds),
        orphan_dependents: body["orphanDependents"].as_bool().or(query.orphan_dependents),
        propagation_policy: text(&body["propagationPolicy"]).or(query.propagation_policy.clone()),
        precondition_uid: text(&body["preconditions"]["uid"]),
        precondition_resource_version: text(&body["preconditions"]["resourceVersion"]),
        ignores_read_errors: body[IGNORES_READ_ERRORS].as_bool().unwrap_or(query.ignores_read_errors),
        is_collective: false,
    };
    Ok((options, !asked.is_empty()))
}

/// Returns the options after checking them against the schema of their type.
fn checked(mut body: Value) -> Result<Value, Refusal> {
    static MESSAGE: LazyLock<MessageId> = LazyLock::new(|| {
        schema().id("io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions").expect("deletions have options")
    });
    check(schema(), *MESSAGE, &mut body).map_err(|error| {
        let (wanted, kind, version) = (WANTED.into(), WANTED.into(), "v1".into());
        Refusal::BadRequest(BadRequest::Unfit { wanted, kind, version, why: Unfit::Layout(error.to_string()) })
    })?;
    Ok(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deletion_may_say_nothing_of_how() {
        for (content, says) in
            [("", Some(false)), ("null", Some(false)), (" null\n", Some(false)), ("{}", Some(true)), ("[]", None)]
        {
            let body = Body { content: Bytes::from_static(content.as_bytes()).into(), ..Body::default() };
            assert_eq!(options_body(&body).ok().map(|options| options.is_some()), says, "{content}");
        }
    }

    #[test]
    fn options_have_their_types() {
        let unfit = |why: &str| {
            format!(
                "DeleteOptions in version \"v1\" cannot be handled as a DeleteOptions: json: cannot unmarshal {why}"
            )
        };
        let rows = [
            (r#"{"dryRun": ["All"], "gracePeriodSeconds": 0, "foo": 1}"#, Ok(true)),
            (r#"{"dryRun": [], "preconditions": null, "kind": "DeleteOptions", "apiVersion": "v1"}"#, Ok(false)),
            (r#"{"dryRun": null, "orphanDependents": false}"#, Ok(false)),
            (
                r#"{"dryRun": "All"}"#,
                Err(unfit("string into Go struct field DeleteOptions.dryRun of type []string")),
            ),
            (r#"{"dryRun": [1]}"#, Err(unfit("number into Go struct field DeleteOptions.dryRun of type string"))),
            (
                r#"{"gracePeriodSeconds": "5"}"#,
                Err(unfit("string into Go struct field DeleteOptions.gracePeriodSeconds of type int64")),
            ),
            (
                r#"{"gracePeriodSeconds": 1.5}"#,
                Err(unfit("number 1.5 into Go struct field DeleteOptions.gracePeriodSeconds of type int64")),
            ),
            (
                r#"{"orphanDependents": "true"}"#,
                Err(unfit("string into Go struct field DeleteOptions.orphanDependents of type bool")),
            ),
            (
                r#"{"preconditions": "x"}"#,
                Err(unfit("string into Go struct field DeleteOptions.preconditions of type v1.Preconditions")),
            ),
            (
                r#"{"dryRun": ["All", "none"]}"#,
                Err("DeleteOptions.meta.k8s.io \"\" is invalid: dryRun: Unsupported value: [\"All\",\"none\"]: supported \
                     values: \"All\""
                    .to_owned()),
            ),
        ];
        for (content, expected) in rows {
            let body = Body { content: Bytes::from_static(content.as_bytes()).into(), ..Body::default() };
            let taken = options_body(&body).and_then(|body| checked(body.unwrap_or_default()));
            let taken = taken.and_then(|body| parse(&body, &DeleteOptions::default()));
            assert_eq!(taken.map(|(_, dry_run)| dry_run).map_err(|refusal| refusal.message()), expected, "{content}");
        }
    }
}
