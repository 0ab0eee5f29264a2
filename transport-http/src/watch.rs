//! A watch as a stream of frames, one event a line.

use crate::respond::{self, Encoding, Form, Response, Shape};
use crate::status::Status;
use crate::transport::Transport;
use crate::websocket::Socket;
use bytes::{Bytes, BytesMut};
use holdfast_core::Refusal;
use holdfast_core::event::Offset;
use holdfast_core::kinds::Kind;
use holdfast_core::object::encode;
use holdfast_core::wire::protobuf;
use holdfast_engine::hub::frame;
use holdfast_engine::{Delivery, Fault, Watch};
use holdfast_service::Watched;
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

/// Sends what a watch delivers, until it ends.
pub fn answer(transport: &Arc<Transport>, watched: Watched, shape: Shape, socket: Option<Socket>) -> Response {
    let Watched { snapshot: _, kind, version, watch, timeout, bookmarks, mark_initial_end } = watched;
    let (pieces, receiver) = mpsc::channel(PIECES_WAITING);
    let feeder = Feeder {
        transport: transport.clone(),
        kind,
        version,
        watch,
        shape,
        bookmarks,
        mark_initial_end,
        headers: true,
        messages: socket.is_some(),
        pieces,
    };
    tokio::spawn(feeder.run(Instant::now() + timeout));
    if let Some(socket) = socket {
        return socket.answer(&transport.sockets, receiver, shape.encoding == Encoding::Protobuf);
    }
    let frames = futures_util::stream::unfold(receiver, |mut receiver| async move {
        let piece: Bytes = receiver.recv().await?;
        Some((Ok::<_, Infallible>(piece), receiver))
    });
    let content_type = match shape.encoding {
        Encoding::Protobuf => "application/vnd.kubernetes.protobuf;stream=watch",
        Encoding::Json | Encoding::Yaml => respond::JSON,
    };
    respond::streamed(200, Box::pin(frames), content_type, false)
}

/// Turns events into pieces of the body.
struct Feeder {
    transport: Arc<Transport>,
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
        let _counted = self.transport.service.watching();
        let mut stopping = self.transport.stopping.subscribe();
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

    async fn send(&mut self, piece: Bytes) -> bool {
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
        self.transport.engine().prepare(&self.kind, self.version, std::slice::from_ref(&entry)).await?;
        let now = self.transport.engine().stamp().seconds();
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
