//! The body of a request: reading it to its end within bounds, and what one says of how something is deleted.

use bytes::{Buf, Bytes, BytesMut};
use futures_util::{Stream, StreamExt, stream};
use holdfast_core::Refusal;
use holdfast_core::authz::User;
use holdfast_core::object::decode;
use holdfast_core::pipeline::parsed;
use holdfast_core::refusal::{BadRequest, Cause, Plenty, Subject, Timeout, TooLarge, Unfit, Unrecognized};
use holdfast_core::request::{Body, DeleteOptions, Format, Options};
use holdfast_core::schema::{MessageId, check, schema};
use holdfast_core::wire::protobuf;
use holdfast_service::{Named, Share, Shares};
use holdfast_value::Value;
use http::HeaderMap;
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::task::Poll;
use std::time::Duration;

/// The largest body that is read.
const BODY_BYTES_MAX: usize = 3 << 20;

/// How long one may take to come.
const BODY_SECONDS_MAX: u64 = 60;
/// How many bytes of bodies are held at once.
const BODIES_BYTES_MAX: u64 = 256 << 20;
/// What a body counts for at least, so that many that never come are no cheaper than one that does.
const BODY_BYTES_MIN: u64 = 64 << 10;

/// How much of a body that nobody looks at is read, and how long it may take.
const PASSED_OVER_BYTES_MAX: usize = 256 << 10;
const PASSED_OVER_MAX: Duration = Duration::from_secs(1);

/// On an answer: the request's body has not been read to its end, so that nothing else can come on an HTTP/1.1 connection.
#[derive(Debug, Clone, Copy)]
pub struct Unread;

/// How far the body of a request has been read.
pub struct Progress(Option<Arc<AtomicBool>>);

impl Progress {
    pub fn is_unread(&self) -> bool {
        self.0.as_ref().is_some_and(|ended| !ended.load(Ordering::Relaxed))
    }
}

/// The body, and how far it has been read; one that the head of the request does not announce is read already.
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

/// Reads what nobody will look at, if it is not long: the connection of a client that is refused can then go on.
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
    // One that does not come soon is not waited for.
    let _ = tokio::time::timeout(PASSED_OVER_MAX, read).await;
}

/// Bodies that are being read, of all users. Nobody holds them all: a body takes room before its request takes a place.
/// Cloning gives the same room.
#[derive(Clone)]
pub struct Bodies {
    room: Shares,
}

/// A body that has come, and the room that it takes as long as this is kept.
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
    /// Reads a body to its end.
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

/// What a DELETE may have in its body.
const WANTED: &str = "DeleteOptions";

/// `DeleteOptions` may come in the body.
pub fn delete_options(named: &mut Named) -> Result<(), Refusal> {
    match options_body(&named.body)? {
        Some(body) => take(&mut named.options, &checked(body)?),
        None => Ok(()),
    }
}

/// An Eviction says in its body how to delete, and whether to at all. Whether it is one is found out later.
pub fn eviction(named: &mut Named) -> Result<(), Refusal> {
    match parsed(&named.body).as_ref().map(|body| &body["deleteOptions"]) {
        None | Some(Value::Null) => Ok(()),
        // What is of a wrong type is refused with the body.
        Some(options) => checked(options.clone()).map_or(Ok(()), |options| take(&mut named.options, &options)),
    }
}

fn take(options: &mut Options, body: &Value) -> Result<(), Refusal> {
    let (delete, dry_run) = parse(body, &options.delete)?;
    options.delete = delete;
    options.dry_run |= dry_run;
    Ok(())
}

/// The body of a request that is about how something goes, if it has one.
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

/// `DeleteOptions` from a body win over those of the query.
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
        is_collective: false,
    };
    Ok((options, !asked.is_empty()))
}

/// The options as their type has them.
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
