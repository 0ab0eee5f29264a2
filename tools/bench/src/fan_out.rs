//! Measures watches: writes an object, and measures the time until the watchers have received the event.
//!
//! A write costs the server more than notifying a watcher. So the same writes are measured first without watchers, and
//! their cost is subtracted.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::RecvStream;
use http::Method;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Interval;

use crate::client::{Client, OperationFailure, Pool, next_chunk, text_field};
use crate::ground::{ObjectKind, json};
use crate::load::{self, LoadLimits, Operation, Tally};
use crate::operation::{MERGE_PATCH, PROTOBUF, object};
use crate::report::ReportRow;
use crate::{Bench, process::ProcessUsage};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Audience {
    /// Each watcher watches its own object by name.
    One,
    /// Each watcher watches all objects.
    All,
    /// Each watcher watches all objects, and receives Protobuf.
    AllInProtobuf,
    /// Each watcher watches all objects. Objects change so rarely that no event waits behind another.
    AllPaced,
}

/// The interval between changes in the paced mode: 50 a second.
const PACE: Duration = Duration::from_millis(20);
/// The maximum number of undelivered events if every watcher gets every event. With more, events would only wait in the
/// queue.
const EVENTS_UNDER_WAY_MAX_ALL: u16 = 4;
/// How long the last events may take to arrive.
const ARRIVAL_TIME_MAX: Duration = Duration::from_secs(10);

pub async fn measure(bench: &Bench<'_>, name: &'static str, audience: Audience) -> anyhow::Result<ReportRow> {
    let watchers = u64::from(bench.args.watchers);
    let (writers, fan_out) = match audience {
        Audience::One => (bench.args.workers, 1),
        Audience::All | Audience::AllInProtobuf | Audience::AllPaced => {
            (bench.args.workers.min(EVENTS_UNDER_WAY_MAX_ALL), watchers)
        }
    };
    make_objects(bench, watchers).await?;
    let pace = (audience == Audience::AllPaced).then_some(PACE);
    let hall = Arc::new(Hall::new(writers, fan_out, pace));
    let limits = bench.limits();
    let write = |worker| Write { client: bench.pool.pick(worker), hall: hall.clone(), objects: watchers };

    // The first measurement gives the cost of the writes. It runs without watchers, for as long as the measurement with
    // watchers.
    let before = bench.processes.usage()?;
    let alone = load::drive(writers, limits, |worker| write(worker).not_awaited()).await;
    let alone_usage = bench.processes.since(before)?;

    let pool = Pool::connect(&bench.access, bench.args.watch_connections).await?;
    let version = newest_version(&bench.pool.pick(0)).await?;
    let mut tasks = JoinSet::new();
    for watcher in 0..watchers {
        let selector = match audience {
            Audience::One => format!("&fieldSelector=metadata.name%3D{}", object_name(watcher)),
            Audience::All | Audience::AllInProtobuf | Audience::AllPaced => String::new(),
        };
        let path = format!(
            "{}?watch=true&resourceVersion={version}&timeoutSeconds=3600{selector}",
            ObjectKind::ConfigMap.collection()
        );
        let client = pool.pick(watcher as usize);
        let framing = if audience == Audience::AllInProtobuf { Framing::Lengths } else { Framing::Lines };
        let client = if framing == Framing::Lengths { client.accepting(PROTOBUF) } else { client };
        let stream = client.stream(&path).await;
        let stream = stream.map_err(|failure| anyhow::anyhow!("cannot open watch {watcher}: {failure}"))?;
        tasks.spawn(listen(stream, framing, hall.clone()));
    }

    let before = bench.processes.usage()?;
    let written = load::drive(writers, limits, write).await;
    let expected = written.count() * fan_out;
    hall.wait_for(expected).await;
    let usage = bench.processes.since(before)?;
    tasks.shutdown().await;

    let mut seen = std::mem::take(&mut *hall.seen.lock().expect("no listener panics"));
    seen.elapsed = written.elapsed;
    for (failure, count) in &written.failures {
        *seen.failures.entry(failure.clone()).or_default() += count;
    }
    let missing = expected.saturating_sub(seen.count());
    if missing > 0 {
        seen.failures.insert("event did not arrive".into(), missing);
    }
    let net = usage.map(|usage| net_of_writes(usage, &written, alone_usage, &alone));
    Ok(ReportRow::new(name, &seen, net))
}

/// The usage without the cost of the writes, which was measured without watchers.
pub fn net_of_writes(
    usage: ProcessUsage,
    written: &Tally,
    alone_usage: Option<ProcessUsage>,
    alone: &Tally,
) -> ProcessUsage {
    let alone_time = alone_usage.unwrap_or_default().processor_time;
    let per_write = alone_time.as_secs_f64() / alone.count().max(1) as f64;
    let writes = Duration::from_secs_f64(per_write * written.count() as f64);
    ProcessUsage { processor_time: usage.processor_time.saturating_sub(writes), ..usage }
}

fn object_name(number: u64) -> String {
    format!("watched-{number:06}")
}

async fn make_objects(bench: &Bench<'_>, count: u64) -> anyhow::Result<()> {
    let limits = LoadLimits { count: Some(count), duration: Duration::from_secs(600) };
    let tally = load::drive(bench.args.workers, limits, |worker| Make(bench.pool.pick(worker))).await;
    anyhow::ensure!(tally.errors() == 0, "could not create the watched objects: {}", tally.errors_text());
    Ok(())
}

struct Make(Client);

impl Operation for Make {
    async fn run(&mut self, ticket: u64) -> Result<u64, OperationFailure> {
        let body = object(ObjectKind::ConfigMap, &object_name(ticket));
        match self.0.send(Method::POST, ObjectKind::ConfigMap.collection(), json(body)).await {
            Ok(answer) => Ok(answer.body_bytes),
            // The object exists already, because an earlier watch mode has created it.
            Err(OperationFailure::Refused { code: 409, .. }) => Ok(0),
            Err(failure) => Err(failure),
        }
    }
}

async fn newest_version(client: &Client) -> anyhow::Result<String> {
    let answer = client.send(Method::GET, &format!("{}?limit=1", ObjectKind::ConfigMap.collection()), None).await?;
    let version = answer.metadata_text("resourceVersion");
    Ok(version.ok_or_else(|| anyhow::anyhow!("the list has no resourceVersion"))?.to_owned())
}

/// The state that writers and watchers share.
struct Hall {
    opened: Instant,
    fan_out: u64,
    delivered: AtomicU64,
    /// One permit for each event that may be undelivered.
    under_way: Semaphore,
    seen: Mutex<Tally>,
    /// Ticks when the next object may be changed, in the paced mode.
    pace: Option<tokio::sync::Mutex<Interval>>,
}

impl Hall {
    fn new(events_under_way_max: u16, fan_out: u64, pace: Option<Duration>) -> Self {
        Self {
            opened: Instant::now(),
            fan_out,
            delivered: AtomicU64::new(0),
            under_way: Semaphore::new(events_under_way_max.into()),
            seen: Mutex::default(),
            pace: pace.map(|pace| tokio::sync::Mutex::new(tokio::time::interval(pace))),
        }
    }

    fn arrived(&self, event: &[u8], framing: Framing) {
        let stamp = match framing {
            Framing::Lines => text_field(event, "stamp"),
            Framing::Lengths => protobuf_stamp(event),
        };
        let Some(stamp) = stamp.and_then(|stamp| stamp.parse().ok()) else { return };
        let latency = self.opened.elapsed().saturating_sub(Duration::from_micros(stamp));
        self.seen.lock().expect("no listener panics").succeeded(latency, event.len() as u64);
        // The watcher that counts an event's last delivery permits the next event.
        let delivered = self.delivered.fetch_add(1, Ordering::Relaxed) + 1;
        if delivered.is_multiple_of(self.fan_out) {
            self.under_way.add_permits(1);
        }
    }

    fn failed(&self, failure: &OperationFailure) {
        self.seen.lock().expect("no listener panics").failed(failure);
    }

    async fn wait_for(&self, deliveries: u64) {
        let until = Instant::now() + ARRIVAL_TIME_MAX;
        while self.delivered.load(Ordering::Relaxed) < deliveries && Instant::now() < until {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

struct Write {
    client: Client,
    hall: Arc<Hall>,
    objects: u64,
}

impl Write {
    fn not_awaited(self) -> WriteAlone {
        WriteAlone(self)
    }

    async fn write(&self, ticket: u64) -> Result<u64, OperationFailure> {
        if let Some(pace) = &self.hall.pace {
            pace.lock().await.tick().await;
        }
        let path = format!("{}/{}", ObjectKind::ConfigMap.collection(), object_name(ticket % self.objects));
        let stamp = self.hall.opened.elapsed().as_micros();
        let patch = Bytes::from(format!(r#"{{"data":{{"stamp":"{stamp}"}}}}"#));
        let answer = self.client.send(Method::PATCH, &path, Some((MERGE_PATCH, patch))).await?;
        Ok(answer.body_bytes)
    }
}

impl Operation for Write {
    async fn run(&mut self, ticket: u64) -> Result<u64, OperationFailure> {
        let permit = tokio::time::timeout(ARRIVAL_TIME_MAX, self.hall.under_way.acquire()).await;
        match permit {
            Ok(permit) => permit.expect("the semaphore is never closed").forget(),
            Err(_) => return Err(OperationFailure::Watch("no event arrived for too long".into())),
        }
        let written = self.write(ticket).await;
        if written.is_err() {
            self.hall.under_way.add_permits(1);
        }
        written
    }
}

/// A write that no watcher observes.
struct WriteAlone(Write);

impl Operation for WriteAlone {
    async fn run(&mut self, ticket: u64) -> Result<u64, OperationFailure> {
        self.0.write(ticket).await
    }
}

/// How events are separated in a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// JSON, with one event on each line.
    Lines,
    /// Protobuf, where each event follows its length in four bytes.
    Lengths,
}

/// The value of the map's entry `stamp`, found without decoding the rest of the message.
fn protobuf_stamp(event: &[u8]) -> Option<&str> {
    const KEY: &[u8] = b"stamp\x12";
    let at = event.windows(KEY.len()).position(|window| window == KEY)? + KEY.len();
    let (length, rest) = event[at..].split_first()?;
    std::str::from_utf8(rest.get(..usize::from(*length))?).ok()
}

/// Splits the stream into events until it ends; the end of a watch is an error here.
async fn listen(mut stream: RecvStream, framing: Framing, hall: Arc<Hall>) {
    let mut events = Events::new(framing);
    loop {
        match next_chunk(&mut stream).await {
            Ok(Some(chunk)) => events.push(&chunk, |event| {
                if event.starts_with(br#"{"type":"ERROR""#) {
                    let reason = text_field(event, "reason").unwrap_or("error").to_owned();
                    hall.failed(&OperationFailure::Watch(reason));
                } else {
                    hall.arrived(event, framing);
                }
            }),
            Ok(None) => return hall.failed(&OperationFailure::Watch("ended early".into())),
            Err(failure) => return hall.failed(&failure),
        }
    }
}

impl Framing {
    /// The start and end of the first event, and the start of the event after it; `None` if the first event is
    /// incomplete.
    fn first(self, bytes: &[u8]) -> Option<(usize, usize, usize)> {
        match self {
            Framing::Lines => bytes.iter().position(|byte| *byte == b'\n').map(|end| (0, end, end + 1)),
            Framing::Lengths => {
                let (length, rest) = bytes.split_first_chunk::<4>()?;
                let length = u32::from_be_bytes(*length) as usize;
                (rest.len() >= length).then_some((4, 4 + length, 4 + length))
            }
        }
    }
}

/// Extracts events from chunks; whole events within a chunk are not copied.
pub struct Events {
    framing: Framing,
    rest: Vec<u8>,
}

impl Events {
    pub fn new(framing: Framing) -> Events {
        Events { framing, rest: Vec::new() }
    }

    pub fn push(&mut self, chunk: &[u8], mut each: impl FnMut(&[u8])) {
        let mut joined = std::mem::take(&mut self.rest);
        let mut bytes = if joined.is_empty() {
            chunk
        } else {
            joined.extend_from_slice(chunk);
            &joined
        };
        while let Some((begin, end, next)) = self.framing.first(bytes) {
            each(&bytes[begin..end]);
            bytes = &bytes[next..];
        }
        self.rest = bytes.to_vec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_the_same_however_they_are_cut() {
        let lines: &[u8] = b"one\ntwo\n\nlonger line\nrest";
        let lengths: &[u8] = b"\0\0\0\x03one\0\0\0\x03two\0\0\0\0\0\0\0\x0blonger line\0\0\0\x09rest";
        for (framing, bytes, rest) in
            [(Framing::Lines, lines, &b"rest"[..]), (Framing::Lengths, lengths, &b"\0\0\0\x09rest"[..])]
        {
            for size in 1..bytes.len() {
                let mut events = Events { framing, rest: Vec::new() };
                let mut seen = Vec::new();
                bytes.chunks(size).for_each(|chunk| events.push(chunk, |event| seen.push(event.to_vec())));
                assert_eq!(seen, [b"one".to_vec(), b"two".to_vec(), b"".to_vec(), b"longer line".to_vec()], "{size}");
                assert_eq!(events.rest, rest);
            }
        }
    }

    #[test]
    fn a_stamp_is_found_in_both_forms() {
        assert_eq!(protobuf_stamp(b"\x0a\x05stamp\x12\x0242tail"), Some("42"));
        assert_eq!(protobuf_stamp(b"\x0a\x05stamp\x12\x0942"), None);
        assert_eq!(protobuf_stamp(b"nothing"), None);
    }

    #[test]
    fn the_writes_share_is_taken_off() {
        let tally = |count| {
            let mut tally = Tally::default();
            (0..count).for_each(|_| tally.succeeded(Duration::from_millis(1), 0));
            tally
        };
        let spent = |milliseconds| ProcessUsage {
            processor_time: Duration::from_millis(milliseconds),
            ..ProcessUsage::default()
        };
        let net = net_of_writes(spent(900), &tally(100), Some(spent(1_000)), &tally(200));
        assert_eq!(net.processor_time, Duration::from_millis(400));
        let nothing_left = net_of_writes(spent(100), &tally(100), Some(spent(1_000)), &tally(200));
        assert_eq!(nothing_left.processor_time, Duration::ZERO);
    }

    #[test]
    fn a_permit_comes_back_when_the_whole_audience_has_seen_the_event() {
        let hall = Hall::new(0, 3, None);
        let line = br#"{"type":"MODIFIED","object":{"data":{"stamp":"5"}}}"#;
        hall.arrived(line, Framing::Lines);
        hall.arrived(line, Framing::Lines);
        hall.arrived(br#"{"type":"BOOKMARK","object":{}}"#, Framing::Lines);
        assert_eq!(hall.under_way.available_permits(), 0);
        hall.arrived(line, Framing::Lines);
        assert_eq!(hall.under_way.available_permits(), 1);
        assert_eq!(hall.seen.lock().unwrap().count(), 3);
    }
}
