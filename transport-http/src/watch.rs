//! A watch as a stream of frames, one event a line.

use crate::api::Api;
use crate::past::{Scene, too_large};
use crate::respond::{self, Encoding, Form, Response, Shape};
use crate::status::Status;
use crate::websocket::Socket;
use bytes::{Bytes, BytesMut};
use holdfast_core::Refusal;
use holdfast_core::event::Offset;
use holdfast_core::kinds::Kind;
use holdfast_core::list::{Selection, parse_version};
use holdfast_core::object::encode;
use holdfast_core::refusal::{Cause, Subject};
use holdfast_core::request::Request;
use holdfast_core::wire::protobuf;
use holdfast_engine::hub::frame;
use holdfast_engine::{Delivery, Fault, Watch, WatchStart};
use serde_json::Value;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// How often a watcher that asked for it is told how far it has come.
const BOOKMARK_PERIOD: Duration = Duration::from_secs(60);
/// Ready events go out together, up to this size.
const PIECE_BYTES: usize = 64 << 10;
/// Pieces that may wait for the connection before the watcher stops taking events.
const PIECES_WAITING: usize = 4;

/// What stands before a Protobuf event in a stream.
const LENGTH_BYTES: usize = 4;

/// Answers a watch.
pub async fn watch(
    api: &Arc<Api>,
    scene: &Scene,
    kind: &Arc<Kind>,
    request: &Request,
    shape: Shape,
    socket: Option<Socket>,
) -> Result<Response, Refusal> {
    let snapshot = match scene {
        Scene::Past(view) => view.state().clone(),
        Scene::Present(_) | Scene::Read(..) => api.engine.snapshot(),
    };
    let request = &*request.retarget(&snapshot.registry, kind)?;
    let selection = Selection::new(&snapshot, request)?;
    let reach = async |version: &str| {
        let version = parse_version(version)?;
        match scene {
            Scene::Past(view) if version > view.offset() => return Err(too_large(version, view.offset())),
            Scene::Past(_) => {}
            Scene::Present(_) | Scene::Read(..) => api.engine.reach(version).await?,
        }
        Ok(version)
    };
    let options = &request.options;
    let initial = options.send_initial_events;
    validate(initial, options.resource_version_match.as_deref().unwrap_or(""), options.allow_watch_bookmarks)?;
    let start = match options.resource_version.as_deref().unwrap_or("") {
        _ if initial == Some(true) => {
            let version = options.resource_version.as_deref().unwrap_or("");
            if !version.is_empty() && version != "0" {
                reach(version).await?;
            }
            WatchStart::Now
        }
        "" | "0" if initial == Some(false) => WatchStart::After(snapshot.offset),
        "" | "0" => WatchStart::Now,
        version => WatchStart::After(reach(version).await?),
    };
    let timeout = match options.timeout_seconds {
        Some(seconds) if seconds > 0 => Duration::from_secs(seconds),
        // Spread over half an hour, so that clients do not all come back at once.
        _ => Duration::from_secs(1800 + api.engine.stamp().seed % 1800),
    };
    let watch = match scene {
        Scene::Past(view) => api.engine.watch_past(view.clone(), selection, start).await?,
        Scene::Present(_) | Scene::Read(..) => api.engine.watch(selection, start),
    };
    let (pieces, receiver) = mpsc::channel(PIECES_WAITING);
    let feeder = Feeder {
        api: api.clone(),
        kind: snapshot.registry.share(request.target.kind),
        version: request.target.version,
        watch,
        shape,
        bookmarks: options.allow_watch_bookmarks,
        mark_initial_end: initial == Some(true),
        headers: true,
        messages: socket.is_some(),
        pieces,
    };
    tokio::spawn(feeder.run(Instant::now() + timeout));
    if let Some(socket) = socket {
        return Ok(socket.answer(&api.sockets, receiver, shape.encoding == Encoding::Protobuf));
    }
    let frames = futures_util::stream::unfold(receiver, |mut receiver| async move {
        let piece: Bytes = receiver.recv().await?;
        Some((Ok::<_, Infallible>(piece), receiver))
    });
    let content_type = match shape.encoding {
        Encoding::Protobuf => "application/vnd.kubernetes.protobuf;stream=watch",
        Encoding::Json | Encoding::Yaml => respond::JSON,
    };
    Ok(respond::streamed(200, Box::pin(frames), content_type, false))
}

fn validate(initial: Option<bool>, matching: &str, bookmarks: bool) -> Result<(), Refusal> {
    let invalid = |field: &str, why: &str| {
        let subject = Subject::new("meta.k8s.io", "ListOptions", "");
        Err(Refusal::Invalid { subject, causes: vec![Cause::forbidden(field, why)] })
    };
    match initial {
        Some(true) if matching != "NotOlderThan" => {
            invalid("resourceVersionMatch", "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan")
        }
        Some(true) if !bookmarks => {
            invalid("allowWatchBookmarks", "sendInitialEvents requires setting allowWatchBookmarks to true")
        }
        None if !matching.is_empty() => invalid(
            "resourceVersionMatch",
            "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
        ),
        _ => Ok(()),
    }
}

/// Turns events into pieces of the body.
struct Feeder {
    api: Arc<Api>,
    kind: Arc<Kind>,
    version: usize,
    watch: Watch,
    shape: Shape,
    bookmarks: bool,
    mark_initial_end: bool,
    /// The next Table describes its columns.
    headers: bool,
    /// Each event is a piece of its own, whose length needs no telling.
    messages: bool,
    pieces: mpsc::Sender<Bytes>,
}

impl Feeder {
    async fn run(mut self, deadline: Instant) {
        let _counted = self.api.metrics.watching();
        let mut stopping = self.api.stopping.subscribe();
        let mut bookmark_at = Instant::now() + BOOKMARK_PERIOD;
        loop {
            // Initial events have ended when none of them waits any more.
            if let Some(offset) = self.watch.initial_events_ended()
                && self.mark_initial_end
                && !self.send(self.bookmark(offset, true)).await
            {
                return;
            }
            let next = tokio::select! {
                next = self.watch.next() => next,
                () = self.pieces.closed() => return,
                () = async { drop(stopping.wait_for(|stopping| *stopping).await) } => return,
                () = tokio::time::sleep_until(deadline) => return,
                () = tokio::time::sleep_until(bookmark_at), if self.bookmarks => {
                    bookmark_at = Instant::now() + BOOKMARK_PERIOD;
                    if let Ok(Some(offset)) = self.watch.bookmark()
                        && !self.send(self.bookmark(offset, false)).await
                    {
                        return;
                    }
                    continue;
                }
            };
            let gathered = match next {
                Ok(delivery) => self.gather(delivery).await,
                Err(fault) => Err(fault),
            };
            let piece = match gathered {
                Ok(Ok(piece)) => piece,
                Ok(Err(refusal)) => {
                    self.send(self.error(&refusal)).await;
                    return;
                }
                // The client comes back, and finds the kind as it is now.
                Err(Fault::Redefined) => return,
                Err(fault) => {
                    let message = fault.to_string();
                    let refusal = match fault {
                        Fault::Forgotten { .. } => Refusal::Expired { message, continue_token: None },
                        _ => Refusal::Internal(message),
                    };
                    self.send(self.error(&refusal)).await;
                    return;
                }
            };
            if !self.send(piece).await {
                return;
            }
        }
    }

    async fn send(&self, piece: Bytes) -> bool {
        let skipped = if self.messages && self.is_protobuf() { LENGTH_BYTES.min(piece.len()) } else { 0 };
        self.pieces.send(piece.slice(skipped..)).await.is_ok()
    }

    /// This event and those that are ready behind it. A single one is the frame that all watchers share.
    /// Fails where a webhook does.
    async fn gather(&mut self, first: Delivery) -> Result<Result<Bytes, Refusal>, Fault> {
        let first = match self.frame(&first).await {
            Ok(first) => first,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let mut piece: Option<BytesMut> = None;
        while !self.messages && piece.as_ref().map_or(first.len(), |piece| piece.len()) < PIECE_BYTES {
            let Some(delivery) = self.watch.next_ready()? else { break };
            let frame = match self.frame(&delivery).await {
                Ok(frame) => frame,
                Err(refusal) => return Ok(Err(refusal)),
            };
            piece.get_or_insert_with(|| BytesMut::from(&first[..])).extend_from_slice(&frame);
        }
        Ok(Ok(piece.map_or(first, BytesMut::freeze)))
    }

    async fn frame(&mut self, delivery: &Delivery) -> Result<Bytes, Refusal> {
        let by_webhook = self.kind.custom.as_ref().is_some_and(|custom| custom.webhook.is_some());
        if self.shape.form == Form::Object && !self.shape.links && !by_webhook {
            let shared = match self.is_protobuf() {
                true => delivery.event.protobuf_frame(&self.kind, self.version, delivery.change_type),
                false => Some(delivery.event.frame(&self.kind, self.version, delivery.change_type)),
            };
            if let Some(frame) = shared {
                return Ok(frame);
            }
        }
        let entry = delivery.event.shown(delivery.change_type);
        self.api.engine.prepare(&self.kind, self.version, std::slice::from_ref(&entry)).await?;
        let now = self.api.engine.stamp().seconds();
        let headers = std::mem::replace(&mut self.headers, false);
        let json = respond::form(&self.kind, self.version, &entry, self.shape, now, headers);
        Ok(self.written(delivery.change_type.as_str(), json.into()))
    }

    fn is_protobuf(&self) -> bool {
        self.shape.encoding == Encoding::Protobuf
    }

    /// A frame in the watcher's encoding; what has no Protobuf form stays JSON within none.
    fn written(&self, change: &str, json: Bytes) -> Bytes {
        if !self.is_protobuf() {
            return frame(change, &json);
        }
        let value: Value = serde_json::from_slice(&json).unwrap_or_default();
        let object = respond::protobuf_of(&value).unwrap_or_default();
        protobuf::watch_frame(change, &object).into()
    }

    fn bookmark(&self, offset: Offset, initial_end: bool) -> Bytes {
        let (kind, api_version) = match self.shape.form {
            Form::Object => (self.kind.kind.as_str(), self.kind.versions[self.version].api_version()),
            Form::Table(version, _) => ("Table", version.api_version().to_owned()),
            Form::Metadata(version) => ("PartialObjectMetadata", version.api_version().to_owned()),
        };
        let mark = if initial_end { ",\"annotations\":{\"k8s.io/initial-events-end\":\"true\"}" } else { "" };
        let metadata = format!("{{\"resourceVersion\":\"{offset}\"{mark}}}");
        let rows = match self.shape.form {
            // Tables carry the mark on the object of their one row.
            Form::Table(..) => format!(
                ",\"columnDefinitions\":null,\"rows\":[{{\"cells\":[],\"object\":{{\"kind\":\"PartialObjectMetadata\",\
                 \"apiVersion\":\"{api_version}\",\"metadata\":{metadata}}}}}]"
            ),
            _ => String::new(),
        };
        let json = format!("{{\"kind\":\"{kind}\",\"apiVersion\":\"{api_version}\",\"metadata\":{metadata}{rows}}}\n");
        self.written("BOOKMARK", json.into())
    }

    /// An error that ends the stream.
    fn error(&self, refusal: &Refusal) -> Bytes {
        match Status::from(refusal).document {
            Value::Object(document) => self.written("ERROR", encode::document(&document).into()),
            _ => Bytes::new(),
        }
    }
}
