//! Connections through a konnectivity server. Each connection is a stream of gRPC messages on a separate HTTP/2
//! connection.

use crate::error_texts::DialError;
use crate::wire::Wire;
use bytes::{Bytes, BytesMut};
use futures_util::stream;
use holdfast_grpc::{Failure, channel_over, client};
use http::uri::PathAndQuery;
use prost::Message;
use std::pin::pin;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::sync::mpsc;
use tonic::transport::Channel;
use tonic::{Status, Streaming};
use tonic_prost::ProstCodec;

const METHOD: &str = "/ProxyService/Proxy";
/// The maximum number of bytes that may wait in each direction of a connection through the proxy.
const WAITING_BYTES: u32 = 64 << 10;
/// The payload bytes of one DATA message.
const PIECE_BYTES: usize = 32 << 10;
/// The maximum size of a message in bytes, which is the default of gRPC.
const MESSAGE_BYTES_MAX: usize = 4 << 20;
/// How long the proxy may take to confirm that the other end is closed.
const CLOSE_MAX: Duration = Duration::from_secs(10);

#[derive(Clone, PartialEq, Message)]
struct Packet {
    /// The type of the packet's payload.
    #[prost(int32, tag = "1")]
    kind: i32,
    #[prost(oneof = "Payload", tags = "2, 3, 4, 5, 6, 7")]
    payload: Option<Payload>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum Payload {
    #[prost(message, tag = "2")]
    DialRequest(DialRequest),
    #[prost(message, tag = "3")]
    DialResponse(DialResponse),
    #[prost(message, tag = "4")]
    Data(Data),
    #[prost(message, tag = "5")]
    CloseRequest(CloseRequest),
    #[prost(message, tag = "6")]
    CloseResponse(CloseResponse),
    #[prost(message, tag = "7")]
    CloseDial(CloseDial),
}

#[derive(Clone, PartialEq, Message)]
struct DialRequest {
    #[prost(string, tag = "1")]
    protocol: String,
    #[prost(string, tag = "2")]
    address: String,
    /// A random number that the answer repeats.
    #[prost(int64, tag = "3")]
    random: i64,
}

#[derive(Clone, PartialEq, Message)]
struct DialResponse {
    #[prost(string, tag = "1")]
    error: String,
    #[prost(int64, tag = "2")]
    connect_id: i64,
    #[prost(int64, tag = "3")]
    random: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Data {
    #[prost(int64, tag = "1")]
    connect_id: i64,
    #[prost(string, tag = "2")]
    error: String,
    #[prost(bytes = "bytes", tag = "3")]
    data: Bytes,
}

#[derive(Clone, PartialEq, Message)]
struct CloseRequest {
    #[prost(int64, tag = "1")]
    connect_id: i64,
}

#[derive(Clone, PartialEq, Message)]
struct CloseResponse {
    #[prost(string, tag = "1")]
    error: String,
    #[prost(int64, tag = "2")]
    connect_id: i64,
}

#[derive(Clone, PartialEq, Message)]
struct CloseDial {
    #[prost(int64, tag = "1")]
    random: i64,
}

impl Payload {
    fn kind(&self) -> i32 {
        match self {
            Payload::DialRequest(_) => 0,
            Payload::DialResponse(_) => 1,
            Payload::CloseRequest(_) => 2,
            Payload::CloseResponse(_) => 3,
            Payload::Data(_) => 4,
            Payload::CloseDial(_) => 5,
        }
    }
}

/// A connection to `target` through the konnectivity server at the other end of `wire`.
pub async fn dial(wire: Wire, target: &str) -> Result<DuplexStream, DialError> {
    let random = rand::random::<i64>() & i64::MAX;
    let asked = DialRequest { protocol: "tcp".into(), address: target.into(), random };
    let (outgoing, mut incoming) = open(wire, Payload::DialRequest(asked)).await?;
    let connect_id = loop {
        match incoming.next().await? {
            Some(Payload::DialResponse(answer)) if answer.random == random => match answer.error.as_str() {
                "" => break answer.connect_id,
                error => return Err(DialError(error.to_owned())),
            },
            Some(Payload::CloseDial(closed)) if closed.random == random => {
                return Err(DialError("dial closed".into()));
            }
            Some(_) => {}
            None => return Err(DialError("tunnel closed".into())),
        }
    };
    let (near, far) = tokio::io::duplex(WAITING_BYTES as usize);
    tokio::spawn(carry(outgoing, incoming, connect_id, far));
    Ok(near)
}

/// The error when the server cannot be reached, in gRPC's wording.
pub fn unavailable(why: &DialError) -> DialError {
    DialError(Failure::dialing(why).to_string())
}

/// Opens a stream whose first message is `first`: a server sends the head of its answer together with its answer to
/// this message.
async fn open(wire: Wire, first: Payload) -> Result<(Outgoing, Incoming), DialError> {
    let endpoint =
        holdfast_grpc::local().initial_stream_window_size(WAITING_BYTES).initial_connection_window_size(WAITING_BYTES);
    let channel = channel_over(&endpoint, wire);
    let mut client = client(&channel, MESSAGE_BYTES_MAX).await.map_err(|status| broken(&status))?;
    let (sender, receiver) = mpsc::channel(1);
    let outgoing = Outgoing(sender);
    outgoing.send(first).await?;
    let packets = stream::unfold(receiver, async |mut receiver| Some((receiver.recv().await?, receiver)));
    let codec: ProstCodec<Packet, Packet> = ProstCodec::default();
    let opened = client.streaming(tonic::Request::new(packets), PathAndQuery::from_static(METHOD), codec).await;
    let packets = opened.map_err(|status| broken(&status))?.into_inner();
    Ok((outgoing, Incoming { packets, _channel: channel }))
}

fn broken(status: &Status) -> DialError {
    DialError(Failure::of(status, "a message is compressed, or too large").to_string())
}

struct Outgoing(mpsc::Sender<Packet>);

impl Outgoing {
    async fn send(&self, payload: Payload) -> Result<(), DialError> {
        let packet = Packet { kind: payload.kind(), payload: Some(payload) };
        self.0.send(packet).await.map_err(|_| DialError("tunnel closed".into()))
    }
}

struct Incoming {
    packets: Streaming<Packet>,
    /// The stream's connection, which closes when no channel is left.
    _channel: Channel,
}

impl Incoming {
    /// The next message; `None` at the end.
    async fn next(&mut self) -> Result<Option<Payload>, DialError> {
        loop {
            match self.packets.message().await {
                Ok(Some(Packet { payload: None, .. })) => {}
                Ok(packet) => return Ok(packet.and_then(|packet| packet.payload)),
                Err(status) => return Err(broken(&status)),
            }
        }
    }
}

/// Copies bytes in both directions until one end has closed.
async fn carry(outgoing: Outgoing, mut incoming: Incoming, connect_id: i64, near: DuplexStream) {
    let (mut read, mut write) = tokio::io::split(near);
    let mut up = pin!(async move {
        let mut buffer = BytesMut::new();
        loop {
            buffer.reserve(PIECE_BYTES);
            match (&mut read).take(PIECE_BYTES as u64).read_buf(&mut buffer).await {
                Ok(1..) => {
                    let data = Data { connect_id, error: String::new(), data: buffer.split().freeze() };
                    outgoing.send(Payload::Data(data)).await?;
                }
                Ok(0) | Err(_) => {
                    outgoing.send(Payload::CloseRequest(CloseRequest { connect_id })).await?;
                    return Ok::<_, DialError>(outgoing);
                }
            }
        }
    });
    let mut down = pin!(async move {
        while let Some(payload) = incoming.next().await? {
            match payload {
                Payload::Data(data) if data.connect_id == connect_id => {
                    write.write_all(&data.data).await.map_err(|error| DialError(error.to_string()))?;
                }
                Payload::CloseResponse(closed) if closed.connect_id == connect_id => break,
                _ => {}
            }
        }
        let _ = write.shutdown().await;
        Ok::<_, DialError>(())
    });
    tokio::select! {
        ended = &mut down => {
            if let Err(error) = ended {
                tracing::debug!(%error, "a tunnel ended");
            }
        }
        closing = &mut up => {
            // The stream stays open until the proxy has confirmed that the other end is closed.
            if closing.is_ok() {
                let _ = tokio::time::timeout(CLOSE_MAX, &mut down).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::{Buf, BufMut};
    use h2::{Reason, RecvStream, SendStream};
    use http::Response;
    use std::path::{Path, PathBuf};
    use tokio::net::{UnixListener, UnixStream};

    /// The number of bytes before each message, which state whether the message is compressed, and how long it is.
    const HEAD_BYTES: usize = 5;

    /// A konnectivity server that echoes all data; `target` selects the outcome of dialling.
    async fn serve(listener: UnixListener) {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut connection = h2::server::handshake(stream).await.expect("HTTP/2");
                let (request, mut answer) = connection.accept().await.expect("a call").expect("a call");
                let te = &request.headers()["te"];
                assert_eq!((request.uri().path(), te), ("/ProxyService/Proxy", &"trailers".parse().unwrap()));
                let mut body = request.into_body();
                tokio::spawn(async move { while connection.accept().await.is_some() {} });
                let head = Response::builder().header("content-type", "application/grpc").body(()).unwrap();
                let mut outgoing = answer.send_response(head, false).expect("an answer");
                let mut bytes = BytesMut::new();
                while let Some(asked) = next(&mut body, &mut bytes).await {
                    match answered(asked) {
                        Ok(back) => send(&mut outgoing, back).await,
                        Err(reason) => return outgoing.send_reset(reason),
                    }
                }
            });
        }
    }

    fn answered(asked: Payload) -> Result<Payload, Reason> {
        let dialled = |error: &str, connect_id, random| {
            Payload::DialResponse(DialResponse { error: error.into(), connect_id, random })
        };
        let closed = |connect_id| Payload::CloseResponse(CloseResponse { error: String::new(), connect_id });
        Ok(match asked {
            Payload::DialRequest(DialRequest { address, random, .. }) => match address.as_str() {
                "closed:1" => Payload::CloseDial(CloseDial { random }),
                "gone:1" => return Err(Reason::CANCEL),
                "large:1" => dialled(&"x".repeat(MESSAGE_BYTES_MAX), 0, random),
                "refused:1" => dialled("no way", 0, random),
                _ => dialled("", 7, random),
            },
            Payload::Data(data) if data.data == "end"[..] => closed(data.connect_id),
            Payload::Data(data) => Payload::Data(data),
            Payload::CloseRequest(CloseRequest { connect_id }) => closed(connect_id),
            other => panic!("{other:?}"),
        })
    }

    async fn next(body: &mut RecvStream, bytes: &mut BytesMut) -> Option<Payload> {
        loop {
            if let Some(mut length) = bytes.get(1..HEAD_BYTES) {
                let length = length.get_u32() as usize;
                if bytes.len() >= HEAD_BYTES + length {
                    bytes.advance(HEAD_BYTES);
                    return Packet::decode(bytes.split_to(length).freeze()).expect("a packet").payload;
                }
            }
            let data = body.data().await?.ok()?;
            let _ = body.flow_control().release_capacity(data.len());
            bytes.extend_from_slice(&data);
        }
    }

    async fn send(stream: &mut SendStream<Bytes>, payload: Payload) {
        let packet = Packet { kind: payload.kind(), payload: Some(payload) }.encode_to_vec();
        let mut bytes = BytesMut::from(&[0][..]);
        bytes.put_u32(packet.len() as u32);
        bytes.extend_from_slice(&packet);
        while !bytes.is_empty() {
            stream.reserve_capacity(bytes.len());
            // The client may have disconnected, in which case the stream has no capacity.
            let Some(Ok(room)) = std::future::poll_fn(|context| stream.poll_capacity(context)).await else { return };
            let _ = stream.send_data(bytes.split_to(room.min(bytes.len())).freeze(), false);
        }
    }

    fn served() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("socket");
        tokio::spawn(serve(UnixListener::bind(&path).expect("a socket")));
        (folder, path)
    }

    async fn dialled(path: &Path, target: &str) -> Result<DuplexStream, DialError> {
        dial(Wire::Unix(UnixStream::connect(path).await.expect("a server")), target).await
    }

    #[tokio::test]
    async fn bytes_go_there_and_come_back_however_many_they_are() {
        let (_folder, path) = served();
        let sent: Vec<u8> = (0..3_000_000u32).map(|number| (number % 251) as u8).collect();
        let (mut read, mut write) = tokio::io::split(dialled(&path, "a:1").await.expect("a connection"));
        let wanted = sent.clone();
        let writing = tokio::spawn(async move {
            write.write_all(&wanted).await.expect("all of it");
            write
        });
        let mut got = vec![0; sent.len()];
        read.read_exact(&mut got).await.expect("all of it");
        assert!(got == sent);
        let mut write = writing.await.expect("it ends");
        write.write_all(b"end").await.expect("a word");
        assert_eq!(read.read(&mut [0]).await.expect("the end"), 0, "the other end has closed");
    }

    #[tokio::test]
    async fn whoever_closes_here_closes_there() {
        let (_folder, path) = served();
        let mut tunnel = dialled(&path, "a:1").await.expect("a connection");
        tunnel.write_all(b"x").await.expect("a byte");
        tunnel.shutdown().await.expect("closed");
        let mut got = Vec::new();
        tunnel.read_to_end(&mut got).await.expect("the end");
        assert_eq!(got, b"x");
    }

    #[tokio::test]
    async fn what_cannot_be_reached_says_why() {
        let (_folder, path) = served();
        for (target, expected) in [
            ("refused:1", "no way"),
            ("closed:1", "dial closed"),
            ("gone:1", "rpc error: code = Unavailable desc = stream error received"),
            ("large:1", "rpc error: code = ResourceExhausted desc = a message is compressed, or too large"),
        ] {
            let why = dialled(&path, target).await.expect_err("refused").to_string();
            assert!(why.starts_with(expected), "{target}: {why}");
        }
    }
}
