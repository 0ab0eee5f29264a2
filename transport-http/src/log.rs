//! The event log over HTTP, for users that may read everything: the reads of `LogRead`.
//!
//! Paths are below [`PATH`]. A user needs `get` on the path, and `get`, `list` and `watch` on all objects of all kinds
//! in all namespaces (`cluster-admin` has these):
//!
//! | path | parameters | answer |
//! | --- | --- | --- |
//! | | | the log's name, its oldest and its last version, as JSON |
//! | `/version` | `at`: a version, a time, or a duration back | the version that `at` means, as JSON |
//! | `/versions` | `resource`, `key` | the versions of one object, as JSON |
//! | `/records` | `after`, `limit`, `resource`, `wait` (seconds, for the next event when there is none) | records |
//! | `/records` | `offsets`: up to 1024, separated by commas | the records that exist at these offsets |
//! | `/current` | | the newest record of every object |
//!
//! Some kinds may have a log of their own. The parameter `of` of each path selects such a log by one of its kinds
//! (`of=events`), and the first path lists these kinds. Without the parameter all paths are about the main log.
//!
//! Records are sent as they are read, in the form that [`frame`] writes, and an end mark follows. A response without
//! the end mark was cut short.

use crate::query::Query;
use crate::respond::{self, Frames, Response, Shape};
use crate::transport::Transport;
use crate::transport::lifecycle::Lifecycle;
use bytes::{Buf, Bytes, BytesMut};
use futures_util::stream;
use holdfast_core::Refusal;
use holdfast_core::authz::User;
use holdfast_core::event::{Damage, Offset, Record};
use holdfast_core::history::moment::{self, Moment};
use holdfast_core::kinds::KindId;
use holdfast_core::refusal::{BadRequest, MethodNotAllowed};
use holdfast_engine::log::Identity;
use holdfast_engine::moment::at_time;
use holdfast_engine::{Engine, Fault, LogRead};
use holdfast_service::RequestSlot;
use holdfast_value::{Value, json};
use http::Method;
use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

pub const PATH: &str = crate::route::LOG;
pub const RECORDS: &str = "application/vnd.holdfast.records";
/// The maximum number of offsets in one request for `/records`.
pub const OFFSETS_MAX: usize = 1024;
/// The longest wait for the next event, in seconds.
pub const WAIT_SECONDS_MAX: u64 = 30;

/// How many records are read from the log at a time.
const PIECE: usize = 256;
/// How many bytes of records are sent at a time.
const PIECE_BYTES: usize = 256 << 10;
/// This value instead of a length means that the log failed; the text of the fault follows.
const FAILED: u32 = u32::MAX;
/// The maximum length of a frame in bytes. A reader refuses longer frames. No record is as long as this bound.
const FRAME_BYTES_MAX: u32 = 256 << 20;

/// The user, and the request's place among the requests in progress. The request releases the place while it waits.
pub(crate) struct Waiter<'a> {
    pub user: &'a User,
    pub place: Option<RequestSlot>,
}

/// Answers a path below [`PATH`]; `path` is without that prefix.
pub(crate) async fn answer(
    transport: &Transport,
    method: &Method,
    path: &str,
    query: &Query,
    shape: Shape,
    waiter: Waiter<'_>,
) -> Response {
    if !matches!(*method, Method::GET | Method::HEAD) {
        return respond::refusal(&Refusal::MethodNotAllowed(MethodNotAllowed::OnResource), shape);
    }
    let answer = async {
        let engine = &asked(transport, query)?;
        match path {
            "" => {
                let (encrypts, apart) = (engine.encrypts(), apart(transport.engine()));
                told(engine, shape, move |log| about(log, encrypts, apart)).await
            }
            "version" => version(engine, query, shape).await,
            "versions" => versions(engine, query, shape).await,
            "records" => records(transport, engine, query, waiter).await,
            "current" => current(engine),
            _ => Err(Refusal::NoSuchPath),
        }
    };
    answer.await.unwrap_or_else(|refusal| respond::refusal(&refusal, shape))
}

/// The engine of the requested log: the main engine, or the engine of the kind whose storage resource `of` names.
fn asked(transport: &Transport, query: &Query) -> Result<Arc<Engine>, Refusal> {
    let Some(storage) = query.get("of") else { return Ok(transport.engine().clone()) };
    let kind = transport.engine().own_snapshot().registry.by_storage(storage);
    let unknown = || Refusal::BadRequest(BadRequest::Undecodable(format!("of: nothing is stored as {storage:?}")));
    Ok(transport.engine().of(kind.ok_or_else(unknown)?).clone())
}

/// For each log of some kinds, the storage resources of these kinds.
fn apart(engine: &Engine) -> Vec<Vec<String>> {
    let registry = &engine.own_snapshot().registry;
    let storage = |kind: &KindId| registry.get(*kind).storage.path.clone();
    engine.apart().map(|kinds| kinds.iter().map(storage).collect()).collect()
}

/// Reads from the log, and answers with the result as JSON.
async fn told(
    engine: &Engine,
    shape: Shape,
    read: impl FnOnce(&dyn LogRead) -> Result<Value, Fault> + Send + 'static,
) -> Result<Response, Refusal> {
    let log = engine.log().clone();
    let told = engine.reads().run(move || read(log.as_ref())).await.map_err(Refusal::fault)?;
    Ok(respond::bytes(200, told.to_string().into(), shape))
}

fn about(log: &dyn LogRead, encrypts: bool, apart: Vec<Vec<String>>) -> Result<Value, Fault> {
    let first = log.next_time(Offset::ZERO)?;
    let Identity { id, origin } = log.identity()?;
    let origin = origin.map(|origin| json!({"id": origin.id, "version": origin.version.0}));
    Ok(json!({
        "kind": "Log",
        "apiVersion": "holdfast/v1",
        "id": id,
        "origin": origin,
        "first": first.map_or(0, |(first, _)| first.0),
        "last": log.last()?.0,
        "oldest": log.oldest()?.0,
        "repaired": log.repaired()?.0,
        "encrypted": encrypts,
        "apart": apart,
    }))
}

async fn version(engine: &Engine, query: &Query, shape: Shape) -> Result<Response, Refusal> {
    let at = required(query, "at")?;
    let moment = moment::parse(at, engine.stamp().time);
    let moment = moment.map_err(|unclear| Refusal::BadRequest(BadRequest::Undecodable(unclear.to_string())))?;
    let newest = engine.own_snapshot().offset;
    let version = move |log: &dyn LogRead| {
        let version = match moment {
            Moment::Version(version) => version,
            Moment::Time(time) => at_time(log, time.as_millisecond(), newest)?,
        };
        Ok(json!({"version": version.0}))
    };
    told(engine, shape, version).await
}

async fn versions(engine: &Engine, query: &Query, shape: Shape) -> Result<Response, Refusal> {
    let (resource, key) = (required(query, "resource")?.to_owned(), required(query, "key")?.to_owned());
    let versions = move |log: &dyn LogRead| {
        let versions: Vec<u64> = log.versions(&resource, &key)?.iter().map(|version| version.0).collect();
        Ok(json!({ "versions": versions }))
    };
    told(engine, shape, versions).await
}

async fn records(
    transport: &Transport,
    engine: &Arc<Engine>,
    query: &Query,
    waiter: Waiter<'_>,
) -> Result<Response, Refusal> {
    if let Some(offsets) = query.get("offsets") {
        let offsets: VecDeque<Offset> =
            offsets.split(',').map(|offset| Ok(Offset(number("offsets", offset)?))).collect::<Result<_, Refusal>>()?;
        if offsets.len() > OFFSETS_MAX {
            let (found, count_max) = (offsets.len(), OFFSETS_MAX);
            return Err(Refusal::BadRequest(BadRequest::TooManyOffsets { found, count_max }));
        }
        return Ok(streamed(engine, Source { log: engine.log().clone(), rest: Rest::Offsets(offsets) }));
    }
    let optional = |name: &str| query.get(name).map(|text| number(name, text)).transpose();
    let after = Offset(optional("after")?.unwrap_or(0));
    let limit = optional("limit")?.unwrap_or(u64::MAX);
    let wait = Duration::from_secs(optional("wait")?.unwrap_or(0).min(WAIT_SECONDS_MAX));
    if !wait.is_zero() {
        let Waiter { user, place } = waiter;
        drop(place);
        let _waiting = transport.service.wait(user)?;
        let _ = tokio::time::timeout(wait, passed(&transport.lifecycle, engine, after)).await;
    }
    let resource = query.get("resource").map(str::to_owned);
    Ok(streamed(engine, Source { log: engine.log().clone(), rest: Rest::After { resource, after, limit } }))
}

/// Ends when there is an event after this version, or when the server stops.
async fn passed(lifecycle: &Lifecycle, engine: &Engine, after: Offset) {
    let mut stopped = pin!(lifecycle.stopped());
    loop {
        // The waiter is registered before the state is read, so that it notices a commit between the two.
        let committed = engine.hub().committed().notified();
        if engine.own_snapshot().offset > after {
            return;
        }
        tokio::select! {
            () = committed => {}
            () = &mut stopped => return,
        }
    }
}

fn current(engine: &Engine) -> Result<Response, Refusal> {
    // The snapshot has the newest offset of every object, so no event is read to find the offsets.
    let state = engine.own_snapshot();
    let mut offsets: Vec<Offset> = Vec::new();
    for (_, collection) in state.collections() {
        offsets.extend(collection.iter().map(|(_, entry)| entry.offset));
    }
    offsets.sort_unstable();
    Ok(streamed(engine, Source { log: engine.log().clone(), rest: Rest::Offsets(offsets.into()) }))
}

/// The records of a response that are not sent yet.
struct Source {
    log: Arc<dyn LogRead>,
    rest: Rest,
}

enum Rest {
    After { resource: Option<String>, after: Offset, limit: u64 },
    Offsets(VecDeque<Offset>),
    Nothing,
}

impl Source {
    /// The next records, and the source of the records after them. If there are no more records, returns the end mark.
    fn piece(mut self) -> (Bytes, Source) {
        let mut out = Vec::new();
        let rest = std::mem::replace(&mut self.rest, Rest::Nothing);
        match self.read(rest, &mut out) {
            Ok(Rest::Nothing) => out.extend_from_slice(&0u32.to_le_bytes()),
            Ok(rest) => self.rest = rest,
            Err(fault) => {
                let text = fault.to_string();
                out.extend_from_slice(&FAILED.to_le_bytes());
                out.extend_from_slice(&(text.len() as u32).to_le_bytes());
                out.extend_from_slice(text.as_bytes());
            }
        }
        (out.into(), self)
    }

    fn read(&self, rest: Rest, out: &mut Vec<u8>) -> Result<Rest, Fault> {
        match rest {
            Rest::Nothing => Ok(Rest::Nothing),
            Rest::After { resource: None, after, limit } if limit > PIECE as u64 => {
                let (mut at, mut count) = (after, 0);
                let mut is_end = true;
                self.log.each(after, &mut |record| {
                    if count == limit {
                        return ControlFlow::Break(());
                    }
                    if out.len() >= PIECE_BYTES {
                        is_end = false;
                        return ControlFlow::Break(());
                    }
                    frame(record, out);
                    (at, count) = (record.offset(), count + 1);
                    ControlFlow::Continue(())
                })?;
                Ok(if is_end { Rest::Nothing } else { Rest::After { resource: None, after: at, limit: limit - count } })
            }
            Rest::After { resource, after, limit } => {
                let piece = PIECE.min(usize::try_from(limit).unwrap_or(PIECE));
                let records = self.log.scan(resource.as_deref(), after, piece)?;
                records.iter().for_each(|record| frame(record, out));
                let limit = limit - records.len() as u64;
                match records.last() {
                    Some(last) if records.len() == piece && limit > 0 => {
                        Ok(Rest::After { resource, after: last.offset(), limit })
                    }
                    _ => Ok(Rest::Nothing),
                }
            }
            Rest::Offsets(mut offsets) => {
                for offset in offsets.drain(..offsets.len().min(PIECE)) {
                    if let Some(record) = self.log.read(offset)? {
                        frame(&record, out);
                    }
                }
                Ok(if offsets.is_empty() { Rest::Nothing } else { Rest::Offsets(offsets) })
            }
        }
    }
}

fn streamed(engine: &Engine, source: Source) -> Response {
    let reads = engine.reads().clone();
    let frames = stream::unfold(Some(source), move |source| {
        let read = reads.run(move || source.map(Source::piece));
        async move {
            let (piece, source) = read.await?;
            let is_end = matches!(source.rest, Rest::Nothing);
            Some((Ok(piece), Some(source).filter(|_| !is_end)))
        }
    });
    let frames: Frames = Box::pin(frames);
    respond::streamed(200, frames, RECORDS, false)
}

/// A record on the wire: its length in four bytes, little endian, then the record as the log stores it, with its
/// checksum. A length of zero is the end mark.
pub fn frame(record: &Record, out: &mut Vec<u8>) {
    let bytes = record.encode_record();
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(&bytes);
}

/// Parses the records of a response as its bytes arrive.
#[derive(Debug, Default)]
pub struct Unframed {
    bytes: BytesMut,
    ended: bool,
}

/// The reason why a response has no more records.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Broken {
    #[error("the answer was cut short")]
    CutShort,
    #[error("the server could not read on: {0}")]
    Failed(String),
    #[error("a record in the answer is damaged: {0}")]
    Damaged(Damage),
}

impl Unframed {
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Returns the next record, if all its bytes have arrived.
    pub fn next_record(&mut self) -> Result<Option<Record>, Broken> {
        let Some(length) = self.length(0).filter(|_| !self.ended) else { return Ok(None) };
        match length {
            0 => {
                self.bytes.advance(4);
                self.ended = true;
                Ok(None)
            }
            FAILED => match self.length(4) {
                Some(length) if self.bytes.len() >= 8 + length as usize => {
                    Err(Broken::Failed(String::from_utf8_lossy(&self.bytes[8..8 + length as usize]).into_owned()))
                }
                _ => Ok(None),
            },
            FRAME_BYTES_MAX.. => Err(Broken::Damaged(Damage::Body(format!("a record of {length} bytes")))),
            length if self.bytes.len() >= 4 + length as usize => {
                self.bytes.advance(4);
                let record = self.bytes.split_to(length as usize);
                Record::decode_record(&record).map(Some).map_err(Broken::Damaged)
            }
            _ => Ok(None),
        }
    }

    /// Returns an error if the end mark has not arrived. It is called when there are no more bytes to push.
    pub fn finish(&self) -> Result<(), Broken> {
        if self.ended { Ok(()) } else { Err(Broken::CutShort) }
    }

    fn length(&self, at: usize) -> Option<u32> {
        let bytes = self.bytes.get(at..at + 4)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?))
    }
}

fn required<'q>(query: &'q Query, name: &str) -> Result<&'q str, Refusal> {
    let found = query.get(name).filter(|text| !text.is_empty());
    found.ok_or_else(|| Refusal::BadRequest(BadRequest::MissingParameter(name.to_owned())))
}

fn number(name: &str, text: &str) -> Result<u64, Refusal> {
    let fault = || BadRequest::NoCount { parameter: name.to_owned(), text: text.to_owned() };
    text.parse().map_err(|_| Refusal::BadRequest(fault()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_core::event::{Actor, Operation};
    use holdfast_engine::Log;
    use holdfast_engine::memory::MemoryLog;

    fn record(offset: u64) -> Record {
        Record {
            offset,
            time_ms: 1_795_000_000_000 + offset as i64,
            resource: if offset.is_multiple_of(2) { "pods" } else { "configmaps" }.into(),
            key: format!("default/{offset}"),
            replaces: 0,
            operation: Operation::Put as i32,
            actor: Actor::default(),
            // The text is so long that a few hundred records exceed one piece.
            object: format!("{{\"offset\":{offset},\"text\":\"{}\"}}", "x".repeat(1000)).into(),
        }
    }

    fn log(last: u64) -> Arc<dyn LogRead> {
        let log = MemoryLog::default();
        log.append(&(1..=last).map(record).collect::<Vec<_>>()).expect("a log in memory takes records");
        Arc::new(log)
    }

    /// All bytes that are sent, and the number of pieces.
    fn sent(rest: Rest) -> (Vec<u8>, usize) {
        let mut source = Source { log: log(600), rest };
        let (mut out, mut pieces) = (Vec::new(), 0);
        loop {
            let (piece, next) = source.piece();
            out.extend_from_slice(&piece);
            pieces += 1;
            source = next;
            if matches!(source.rest, Rest::Nothing) {
                return (out, pieces);
            }
        }
    }

    fn received(bytes: &[u8], at_a_time: usize) -> (Vec<u64>, Result<(), Broken>) {
        let (mut unframed, mut offsets) = (Unframed::default(), Vec::new());
        for piece in bytes.chunks(at_a_time) {
            unframed.push(piece);
            loop {
                match unframed.next_record() {
                    Ok(Some(found)) => {
                        assert_eq!(found, record(found.offset));
                        offsets.push(found.offset);
                    }
                    Ok(None) => break,
                    Err(broken) => return (offsets, Err(broken)),
                }
            }
        }
        (offsets, unframed.finish())
    }

    #[test]
    fn records_arrive_as_they_were_however_they_are_cut() {
        let after = |resource: Option<&str>, after, limit| {
            let resource = resource.map(str::to_owned);
            Rest::After { resource, after: Offset(after), limit }
        };
        for (rest, expected, pieces) in [
            (after(None, 0, u64::MAX), (1..=600).collect(), 3),
            (after(None, 590, u64::MAX), (591..=600).collect(), 1),
            (after(None, 600, u64::MAX), Vec::new(), 1),
            (after(None, 0, 0), Vec::new(), 1),
            (after(None, 0, 256), (1..=256).collect(), 1),
            (after(Some("pods"), 3, 300), (2..=300).map(|half| half * 2).collect(), 2),
            (Rest::Offsets([3, 700, 5].map(Offset).into()), vec![3, 5], 1),
        ] {
            let (bytes, count) = sent(rest);
            for at_a_time in [1, 7, 1 << 20] {
                assert_eq!(received(&bytes, at_a_time), (Vec::clone(&expected), Ok(())));
            }
            assert_eq!(count, pieces);
        }
    }

    #[test]
    fn what_is_cut_short_or_damaged_is_told() {
        let (bytes, _) = sent(Rest::Offsets([1, 2].map(Offset).into()));
        for end in 0..bytes.len() {
            assert_eq!(received(&bytes[..end], 16).1, Err(Broken::CutShort), "cut at {end}");
        }
        let mut damaged = bytes.clone();
        damaged[20] ^= 1;
        assert!(matches!(received(&damaged, 16).1, Err(Broken::Damaged(Damage::Checksum { .. }))));
        let endless = received(&(FAILED - 1).to_le_bytes(), 16).1;
        assert!(matches!(endless, Err(Broken::Damaged(Damage::Body(_)))), "{endless:?}");
        let failure = [&FAILED.to_le_bytes()[..], &4u32.to_le_bytes(), b"disk"].concat();
        assert_eq!(received(&failure, 5).1, Err(Broken::Failed("disk".into())));
    }
}
