//! A watch on a separate gRPC stream. A task reads the stream all the time, because some releases of etcd lose events
//! of a watch that is not read.

use super::faults::fault_of_read;
use super::{ANSWER_BYTES_MAX, header, key_value, unsigned};
use crate::client::{Event, Fault, Watch, Watched};
use crate::wire;
use crossbeam::channel::TrySendError;
use futures_util::stream;
use holdfast_grpc::client;
use http::uri::PathAndQuery;
use std::time::Duration;
use tokio::sync::mpsc::{Sender, channel};
use tonic::metadata::AsciiMetadataValue;
use tonic::transport::Channel;
use tonic_prost::ProstCodec;

const WATCH: &str = "/etcdserverpb.Watch/Watch";
/// The maximum number of etcd's answers that wait in the channel until they are read.
const AHEAD: usize = 64;
const ASKED_MAX: usize = 4;
/// The number of events that are read at a time, unless etcd sends more in one answer.
const EVENTS_MAX: usize = 512;

pub struct Stream {
    asking: Sender<wire::WatchRequest>,
    answers: crossbeam::channel::Receiver<Result<Watched, Fault>>,
    /// The answer that follows the events that were returned last. It is returned next.
    held: Option<Result<Watched, Fault>>,
}

/// Opens a watch, and waits until the member has confirmed it.
pub async fn open(channel_: &Channel, asked: wire::WatchCreateRequest) -> Result<Stream, Fault> {
    let (asking, questions) = channel(ASKED_MAX);
    let create = wire::WatchRequest { request_union: Some(wire::WatchUnion::Create(asked)) };
    let questions = stream::unfold((Some(create), questions), |(first, mut questions)| async move {
        let next = match first {
            Some(first) => first,
            None => questions.recv().await?,
        };
        Some((next, (None, questions)))
    });
    let mut request = tonic::Request::new(questions);
    // With this header, a member without a leader ends the watch. Otherwise the watch would stay open without events.
    request.metadata_mut().insert("hasleader", AsciiMetadataValue::from_static("true"));
    let mut calling = client(channel_, ANSWER_BYTES_MAX).await.map_err(|status| fault_of_read(&status))?;
    let codec: ProstCodec<wire::WatchRequest, wire::WatchResponse> = ProstCodec::default();
    let opened = calling.streaming(request, PathAndQuery::from_static(WATCH), codec).await;
    let mut events = opened.map_err(|status| fault_of_read(&status))?.into_inner();
    let ended = || Fault::Unreachable("the watch has ended".into());
    let first = events.message().await.map_err(|status| fault_of_read(&status))?.ok_or_else(ended)?;
    if !first.created || first.canceled {
        return Err(refusal(&first));
    }
    let (answer, answers) = crossbeam::channel::bounded(AHEAD);
    tokio::spawn(async move {
        loop {
            let next = match events.message().await {
                Ok(Some(said)) if said.canceled => Err(refusal(&said)),
                Ok(Some(said)) => Ok(watched(said)),
                Ok(None) => Err(ended()),
                Err(status) => Err(fault_of_read(&status)),
            };
            let is_last = next.is_err();
            let is_read = match answer.try_send(next) {
                Ok(()) => true,
                // The reader is slower than etcd, so further answers wait in the connection.
                Err(TrySendError::Full(next)) => tokio::task::block_in_place(|| answer.send(next)).is_ok(),
                Err(TrySendError::Disconnected(_)) => false,
            };
            if is_last || !is_read {
                return;
            }
        }
    });
    Ok(Stream { asking, answers, held: None })
}

impl Watch for Stream {
    fn next(&mut self, patience: Duration) -> Result<Option<Watched>, Fault> {
        use crossbeam::channel::RecvTimeoutError::{Disconnected, Timeout};
        if let Some(held) = self.held.take() {
            return held.map(Some);
        }
        match self.answers.recv_timeout(patience) {
            Ok(answer) => answer.map(|watched| Some(self.with_more(watched))),
            Err(Timeout) => Ok(None),
            Err(Disconnected) => Err(Fault::Unreachable("the watch has ended".into())),
        }
    }

    fn ask_progress(&mut self) -> Result<(), Fault> {
        let progress = wire::WatchUnion::Progress(wire::WatchProgressRequest {});
        // If the channel is full, requests for progress have already been sent, so an answer will arrive.
        let _ = self.asking.try_send(wire::WatchRequest { request_union: Some(progress) });
        Ok(())
    }
}

impl Stream {
    /// Appends the events that have already arrived. etcd sends the events of each transaction in a separate answer,
    /// and storing many events at a time is cheaper.
    fn with_more(&mut self, mut watched: Watched) -> Watched {
        while !watched.events.is_empty() && watched.events.len() < EVENTS_MAX {
            match self.answers.try_recv() {
                Ok(Ok(mut more)) if !more.events.is_empty() => {
                    watched.events.append(&mut more.events);
                    watched.header = more.header;
                }
                Ok(other) => {
                    self.held = Some(other);
                    break;
                }
                Err(_) => break,
            }
        }
        watched
    }
}

fn refusal(said: &wire::WatchResponse) -> Fault {
    match (said.compact_revision, said.cancel_reason.as_str()) {
        (0, "") => Fault::Unreachable("the watch was cancelled".into()),
        (0, why) if why.contains("no leader") => Fault::Unreachable(why.to_owned()),
        (0, why) => Fault::Refused(why.to_owned()),
        (revision, _) => Fault::Compacted(unsigned(revision)),
    }
}

fn watched(said: wire::WatchResponse) -> Watched {
    let event = |event: wire::Event| {
        let is_delete = event.r#type() == wire::EventType::Delete;
        Some(Event { is_delete, now: key_value(event.kv?), before: event.prev_kv.map(key_value) })
    };
    Watched { header: header(said.header), events: said.events.into_iter().filter_map(event).collect() }
}
