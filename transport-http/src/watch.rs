//! A watch as a stream of frames, one event on each line.

use crate::held::CutOff;
use crate::respond::{self, Encoding, Form, OWN_BYTES_MIN, PIECE_BYTES, Response, Shape};
use crate::status::Status;
use crate::transport::Transport;
use crate::websocket::Socket;
use bytes::{Bytes, BytesMut};
use futures_util::{Stream, StreamExt};
use holdfast_audit::Trail;
use holdfast_core::Refusal;
use holdfast_core::authz::User;
use holdfast_core::event::Offset;
use holdfast_core::kinds::Kind;
use holdfast_core::refusal::Expired;
use holdfast_core::wire::{ordered::ordered, protobuf, table};
use holdfast_engine::hub::frame;
use holdfast_engine::{Charge, Delivery, Fault, Watch};
use holdfast_service::{RequestSlot, Watched, Watching};
use holdfast_value::Value;
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::{Instant, Sleep};

/// How long a watch keeps its seats while it catches up. A watch that is far behind has all seats of its priority
/// level, and a client that does not read would block the whole level. Later reads of the watch take turns with other
/// reads of the log.
const BEGINNING_MAX: Duration = Duration::from_millis(20);
/// How often a watch with bookmarks gets a bookmark.
const BOOKMARK_PERIOD: Duration = Duration::from_secs(60);
/// The number of bytes of the length before each event in a Protobuf watch.
const LENGTH_BYTES: usize = 4;

/// Makes the response that sends the events of a watch until the watch ends.
pub fn answer(
    transport: &Arc<Transport>,
    watched: Watched,
    shape: Shape,
    reader: Arc<User>,
    socket: Option<Socket>,
    place: Option<RequestSlot>,
) -> Response {
    let Watched { kind, version, watch, timeout, bookmarks, mark_initial_end, flaw, trail } = watched;
    // The watch keeps its seats while it reads the initial objects and the past.
    let beginning = watch.is_beginning() || watch.is_far_behind();
    let mut feeder = Feeder {
        transport: transport.clone(),
        kind,
        version,
        watch,
        shape,
        mark_initial_end,
        flaw: flaw.map(Box::new),
        beginning: place.filter(|_| beginning).map(kept_while_it_begins),
        headers: true,
        messages: socket.is_some(),
        bookmark_at: bookmarks.then(|| Box::pin(tokio::time::sleep(BOOKMARK_PERIOD))),
        deadline: Box::pin(tokio::time::sleep(timeout)),
        stopped: Box::pin(transport.lifecycle.watch_ends()),
        rest: VecDeque::new(),
        reader,
        room: None,
        ended: false,
        _counted: transport.service.watching(),
        _told: trail,
    };
    // One future serves the whole watch. A future for each event would have to be made each time, and the feeder would
    // have to be moved into it and back.
    let pieces = async_stream::stream! {
        while let Some(piece) = feeder.next().await {
            yield piece;
        }
    };
    if let Some(socket) = socket {
        return socket.answer(&transport.lifecycle, pieces, shape.encoding == Encoding::Protobuf);
    }
    let frames = Alone(Mutex::new(Box::pin(pieces.map(Ok::<_, CutOff>))));
    let content_type = match shape.encoding {
        Encoding::Protobuf => "application/vnd.kubernetes.protobuf;stream=watch",
        Encoding::Json | Encoding::Yaml => respond::JSON,
    };
    respond::streamed(200, Box::pin(frames), content_type, false)
}

/// Keeps the place of a watch until the result is dropped, at most for [`BEGINNING_MAX`].
fn kept_while_it_begins(place: RequestSlot) -> oneshot::Sender<()> {
    let (begun, has_begun) = oneshot::channel();
    tokio::spawn(async move {
        let _place = place;
        let _ = tokio::time::timeout(BEGINNING_MAX, has_begun).await;
    });
    begun
}

/// Makes a stream `Sync`, because bodies must be `Sync`. The stream is polled only through an exclusive reference.
struct Alone<S>(Mutex<Pin<Box<S>>>);

impl<S: Stream> Stream for Alone<S> {
    type Item = S::Item;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<S::Item>> {
        self.0.get_mut().unwrap_or_else(|poisoned| poisoned.into_inner()).as_mut().poll_next(context)
    }
}

/// Turns events into pieces of the body. The connection that sends the pieces polls the feeder, so the feeder's work
/// between two events is done for each watcher at each event.
struct Feeder {
    transport: Arc<Transport>,
    kind: Arc<Kind>,
    version: usize,
    watch: Watch,
    shape: Shape,
    mark_initial_end: bool,
    /// The reason why the watch cannot begin.
    flaw: Option<Box<Refusal>>,
    /// Releases the watch's place when it is dropped. That happens after the initial objects were sent and the watch
    /// has nearly caught up.
    beginning: Option<oneshot::Sender<()>>,
    /// Whether the next Table describes its columns.
    headers: bool,
    /// Whether each event is a message of its own. Then it needs no length prefix.
    messages: bool,
    /// The time of the next bookmark; `None` for a watch without bookmarks.
    bookmark_at: Option<Pin<Box<Sleep>>>,
    deadline: Pin<Box<Sleep>>,
    stopped: Pin<Box<dyn Future<Output = ()> + Send>>,
    /// The rest of a large piece. The connection receives only as much as it sends, so it keeps no copy.
    rest: VecDeque<Bytes>,
    reader: Arc<User>,
    /// Counts the memory of a large frame that is made only for this watch, until the frame is sent.
    room: Option<Charge>,
    /// Whether the last frame of the watch was returned.
    ended: bool,
    _counted: Watching,
    /// Records the end of the watch when it is dropped.
    _told: Option<Box<Trail>>,
}

/// The next thing that a watch has to do.
enum Step {
    Tell(Delivery),
    Bookmark,
    Fail(Fault),
    End,
}

impl Feeder {
    /// Makes the next piece of the body; `None` at the end of the body.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(piece) = self.rest.pop_front() {
                return Some(piece);
            }
            self.room = None;
            if self.ended || Instant::now() >= self.deadline.deadline() {
                return None;
            }
            if let Some(refusal) = self.flaw.take() {
                let piece = self.last_words(&refusal);
                return Some(self.cut(piece));
            }
            // The initial events have ended when no initial event waits any more.
            if let Some(offset) = self.watch.initial_events_ended() {
                self.beginning = None;
                if self.mark_initial_end {
                    let bookmark = self.bookmark(offset, true);
                    return Some(self.cut(bookmark));
                }
            }
            if self.beginning.is_some() && !self.watch.is_beginning() && !self.watch.is_far_behind() {
                self.beginning = None;
            }
            let gathered = match self.step().await {
                Step::Tell(delivery) => {
                    if !self.take_room(self.own_bytes(&delivery)).await {
                        return None;
                    }
                    self.gather(delivery).await
                }
                Step::Fail(fault) => Err(fault),
                Step::End => return None,
                Step::Bookmark => match self.watch.bookmark() {
                    Ok(Some(offset)) => Ok(Ok(self.bookmark(offset, false))),
                    // Events are waiting, or the next step will return the fault.
                    Ok(None) | Err(_) => continue,
                },
            };
            let piece = match gathered {
                Ok(Ok(piece)) => piece,
                Ok(Err(refusal)) => self.last_words(&refusal),
                // The client watches again, and then finds the current definition of the kind.
                Err(Fault::Redefined) => return None,
                Err(fault) => {
                    let refusal = match fault {
                        Fault::Forgotten { .. } => Refusal::Expired(Expired::Forgotten(fault.to_string())),
                        fault => Refusal::fault(fault),
                    };
                    self.last_words(&refusal)
                }
            };
            let piece = self.cut(piece);
            if piece.is_unique() && !self.take_room(piece.len()).await {
                return None;
            }
            if self.messages || piece.len() <= PIECE_BYTES {
                return Some(piece);
            }
            self.rest.extend(respond::slices(piece));
        }
    }

    /// Waits for the next step. Events have precedence: while events are available, only the deadline is checked.
    async fn step(&mut self) -> Step {
        let bookmark_due = async {
            match &mut self.bookmark_at {
                Some(bookmark_at) => {
                    bookmark_at.as_mut().await;
                    bookmark_at.as_mut().reset(Instant::now() + BOOKMARK_PERIOD);
                }
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            next = self.watch.next() => match next {
                Ok(delivery) => Step::Tell(delivery),
                Err(fault) => Step::Fail(fault),
            },
            () = &mut self.stopped => Step::End,
            () = &mut self.deadline => Step::End,
            () = bookmark_due => Step::Bookmark,
        }
    }

    fn last_words(&mut self, refusal: &Refusal) -> Bytes {
        self.ended = true;
        self.error(refusal)
    }

    /// Removes the length prefix of a Protobuf piece if the watch is sent over a WebSocket, whose messages already have
    /// a length of their own.
    fn cut(&self, piece: Bytes) -> Bytes {
        let skipped = if self.messages && self.is_protobuf() { LENGTH_BYTES.min(piece.len()) } else { 0 };
        piece.slice(skipped..)
    }

    /// This event and the events that are ready after it, in one piece. The frame of a single event is not copied,
    /// because other watches may share it. Fails if a conversion webhook fails.
    async fn gather(&mut self, first: Delivery) -> Result<Result<Bytes, Refusal>, Fault> {
        if let Some(begin) = self.large(&first) {
            return Ok(Ok(begin));
        }
        let first = match self.frame(&first).await {
            Ok(first) => first,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let mut piece: Option<BytesMut> = None;
        while !self.messages && piece.as_ref().map_or(first.len(), |piece| piece.len()) < PIECE_BYTES {
            let Some(delivery) = self.watch.next_ready()? else { break };
            if object_bytes(&delivery) > PIECE_BYTES {
                self.watch.put_back(delivery);
                break;
            }
            let frame = match self.frame(&delivery).await {
                Ok(frame) => frame,
                Err(refusal) => return Ok(Err(refusal)),
            };
            piece.get_or_insert_with(|| BytesMut::from(&first[..])).extend_from_slice(&frame);
        }
        Ok(Ok(piece.map_or(first, BytesMut::freeze)))
    }

    /// The size of a large event whose frame is made only for this watch; zero for other events.
    fn own_bytes(&self, delivery: &Delivery) -> usize {
        // Watches that got an event from the hub share its frame.
        let shared = self.is_shared() && Arc::strong_count(&delivery.event) > 1;
        let bytes = object_bytes(delivery);
        if bytes <= PIECE_BYTES || shared || self.is_sliced(delivery) { 0 } else { bytes }
    }

    /// Waits for the memory of a frame that is made only for this watch. Returns false if the watch's time ends first.
    async fn take_room(&mut self, bytes: usize) -> bool {
        // An event that was read from the log for this watch is already counted.
        if bytes <= OWN_BYTES_MIN || self.room.is_some() || self.watch.is_counted() {
            return true;
        }
        let room = self.transport.answers.room(&self.reader, bytes);
        match tokio::time::timeout_at(self.deadline.deadline(), room).await {
            Ok(room) => {
                self.room = Some(room);
                true
            }
            Err(_) => false,
        }
    }

    /// Whether the watch sends the frames that all watches of the version share.
    fn is_shared(&self) -> bool {
        let by_webhook = self.kind.custom.as_ref().is_some_and(|custom| custom.webhook.is_some());
        self.shape.form == Form::Object && !self.shape.links && !by_webhook
    }

    /// Whether the event shows stored bytes as they are, which can be sent without a copy.
    fn is_sliced(&self, delivery: &Delivery) -> bool {
        let raw = self.shape.form == Form::Object && !self.shape.links && !self.is_protobuf() && !self.messages;
        let offset = delivery.event.shown(delivery.change_type).offset;
        raw && self.version == 0 && !self.kind.is_stale(offset)
    }

    /// The beginning of a frame around a large object, whose stored bytes follow without a copy. Otherwise each watch
    /// that begins with the current objects would hold a copy.
    fn large(&mut self, delivery: &Delivery) -> Option<Bytes> {
        let entry = delivery.event.shown(delivery.change_type);
        let object = 0..entry.size() - 1;
        if object.len() <= PIECE_BYTES || !self.is_sliced(delivery) {
            return None;
        }
        self.rest.extend(respond::slices(entry.json().slice(object)));
        self.rest.push_back(Bytes::from_static(b"}\n"));
        Some(format!("{{\"type\":\"{}\",\"object\":", delivery.change_type.as_str()).into())
    }

    async fn frame(&mut self, delivery: &Delivery) -> Result<Bytes, Refusal> {
        if self.is_shared() {
            let shared = match self.is_protobuf() {
                true => delivery.event.protobuf_frame(&self.kind, self.version, delivery.change_type),
                false => Some(delivery.event.frame(&self.kind, self.version, delivery.change_type)),
            };
            if let Some(frame) = shared {
                return Ok(frame);
            }
        }
        let entry = delivery.event.shown(delivery.change_type);
        self.transport.engine().prepare(&self.kind, self.version, std::slice::from_ref(entry)).await?;
        let now = self.transport.engine().stamp().seconds();
        let headers = std::mem::replace(&mut self.headers, false);
        let (kind, version, shape) = (self.kind.clone(), self.version, self.shape);
        let (entry, bytes) = (entry.clone(), entry.size());
        let make = move || respond::form(&kind, version, &entry, shape, now, headers);
        let json = self.transport.answers.make(&self.reader, bytes, make).await;
        Ok(self.written(delivery.change_type.as_str(), json.into()))
    }

    fn is_protobuf(&self) -> bool {
        self.shape.encoding == Encoding::Protobuf
    }

    /// A frame in the watch's encoding. An object without a Protobuf form is JSON even in a Protobuf watch.
    fn written(&self, change: &str, json: Bytes) -> Bytes {
        if !self.is_protobuf() {
            return frame(change, &json);
        }
        let value: Value = serde_json::from_slice(&json).unwrap_or_default();
        let object = respond::protobuf_of(&value).unwrap_or_default();
        protobuf::watch_frame(change, &object).into()
    }

    fn bookmark(&mut self, offset: Offset, initial_end: bool) -> Bytes {
        let (kind, api_version) = match self.shape.form {
            Form::Object => (self.kind.kind.as_str(), self.kind.versions[self.version].api_version()),
            Form::Table(version, _) => ("Table", version.api_version().to_owned()),
            Form::Metadata(version) => ("PartialObjectMetadata", version.api_version().to_owned()),
        };
        let mark = if initial_end { ",\"annotations\":{\"k8s.io/initial-events-end\":\"true\"}" } else { "" };
        let version = format!("\"resourceVersion\":\"{offset}\"");
        let is_table = matches!(self.shape.form, Form::Table(..));
        let columns = match is_table && std::mem::replace(&mut self.headers, false) {
            true => String::from_utf8_lossy(table::column_definitions(self.kind.shown(self.version))),
            false => "null".into(),
        };
        let rest = match self.shape.form {
            // A Table has no annotations of its own, so the annotation that ends the initial events is on the object of
            // the Table's only row.
            Form::Table(..) => format!(
                "{{{version}}},\"columnDefinitions\":{columns},\"rows\":[{{\"cells\":[],\"object\":{{\
                 \"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"{api_version}\",\"metadata\":{{{version}{mark}}}}}}}]"
            ),
            _ => format!("{{{version}{mark}}}"),
        };
        let json = format!("{{\"kind\":\"{kind}\",\"apiVersion\":\"{api_version}\",\"metadata\":{rest}}}\n");
        self.written("BOOKMARK", json.into())
    }

    /// Makes an error event. The stream ends after this event.
    fn error(&self, refusal: &Refusal) -> Bytes {
        match Status::from(refusal).document {
            Value::Object(document) => self.written("ERROR", ordered(&document).into()),
            _ => Bytes::new(),
        }
    }
}

/// The approximate size of the object that an event shows.
fn object_bytes(delivery: &Delivery) -> usize {
    delivery.event.shown(delivery.change_type).size()
}
