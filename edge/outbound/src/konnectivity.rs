//! Connections through a konnectivity server. Each is a stream of gRPC messages on a separate HTTP/2 connection.

use crate::error_texts::DialError;
use crate::wire::Wire;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use h2::client::ResponseFuture;
use h2::{RecvStream, SendStream};
use http::header::{CONTENT_TYPE, TE};
use http::{HeaderMap, Request};
use prost::Message;
use std::future::poll_fn;
use std::pin::pin;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

const METHOD: &str = "http://localhost/ProxyService/Proxy";
/// The maximum number of bytes that may wait in each direction of a connection through the proxy.
const WAITING_BYTES: usize = 64 << 10;
/// The payload bytes of one DATA message.
const PIECE_BYTES: usize = 32 << 10;
/// The largest message, as in gRPC.
const MESSAGE_BYTES_MAX: usize = 4 << 20;
/// The bytes before a message: whether it is compressed, and its length.
const HEAD_BYTES: usize = 5;
/// How long the proxy may take to confirm that the other end is closed.
const CLOSE_MAX: Duration = Duration::from_secs(10);

#[derive(Clone, PartialEq, Message)]
struct Packet {
    /// The type of the payload.
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
    let (mut outgoing, mut incoming) = open(wire).await?;
    let random = rand::random::<i64>() & i64::MAX;
    let asked = DialRequest { protocol: "tcp".into(), address: target.into(), random };
    outgoing.send(Payload::DialRequest(asked)).await?;
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
    let (near, far) = tokio::io::duplex(WAITING_BYTES);
    tokio::spawn(carry(outgoing, incoming, connect_id, far));
    Ok(near)
}

/// The error when the server cannot be reached, in gRPC's wording.
pub fn unavailable(why: &DialError) -> DialError {
    let why = format!("connection error: desc = \"transport: Error while dialing: {why}\"");
    DialError(format!("rpc error: code = Unavailable desc = {why}"))
}

async fn open(wire: Wire) -> Result<(Outgoing, Incoming), DialError> {
    let (sender, connection) = h2::client::handshake(wire).await.map_err(broken)?;
    tokio::spawn(async move {
        // Both ends of the stream receive the error, and nothing else uses this connection.
        let _ = connection.await;
    });
    let mut sender = sender.ready().await.map_err(broken)?;
    let head = Request::post(METHOD).header(CONTENT_TYPE, "application/grpc").header(TE, "trailers").body(());
    let head = head.map_err(|error| DialError(error.to_string()))?;
    let (answer, stream) = sender.send_request(head, false).map_err(broken)?;
    Ok((Outgoing(stream), Incoming { answer: Some(answer), body: None, bytes: BytesMut::new() }))
}

fn broken(error: h2::Error) -> DialError {
    DialError(format!("rpc error: code = Unavailable desc = {error}"))
}

struct Outgoing(SendStream<Bytes>);

impl Outgoing {
    async fn send(&mut self, payload: Payload) -> Result<(), DialError> {
        let packet = Packet { kind: payload.kind(), payload: Some(payload) };
        let mut bytes = BytesMut::with_capacity(HEAD_BYTES + packet.encoded_len());
        bytes.put_u8(0);
        bytes.put_u32(packet.encoded_len() as u32);
        packet.encode_raw(&mut bytes);
        let mut bytes = bytes.freeze();
        while !bytes.is_empty() {
            self.0.reserve_capacity(bytes.len());
            let room = poll_fn(|context| self.0.poll_capacity(context)).await;
            let room = room.ok_or(DialError("tunnel closed".into()))?.map_err(broken)?;
            let piece = bytes.split_to(room.min(bytes.len()));
            if !piece.is_empty() {
                self.0.send_data(piece, false).map_err(broken)?;
            }
        }
        Ok(())
    }
}

struct Incoming {
    /// The future that resolves to the head of the answer; `None` once the head has arrived. A server sends the head
    /// together with its first message.
    answer: Option<ResponseFuture>,
    body: Option<RecvStream>,
    /// The received bytes of an incomplete message.
    bytes: BytesMut,
}

impl Incoming {
    /// The next message; `None` at the end.
    async fn next(&mut self) -> Result<Option<Payload>, DialError> {
        if let Some(answer) = self.answer.take() {
            let (head, body) = answer.await.map_err(broken)?.into_parts();
            if head.status != 200 {
                let why = format!("unexpected HTTP status code received from server: {}", head.status.as_u16());
                return Err(DialError(format!("rpc error: code = Unknown desc = {why}")));
            }
            check(&head.headers)?;
            self.body = Some(body);
        }
        let Some(body) = &mut self.body else { return Ok(None) };
        loop {
            if let Some(packet) = whole(&mut self.bytes)? {
                return match packet.payload {
                    Some(payload) => Ok(Some(payload)),
                    None => continue,
                };
            }
            match body.data().await {
                Some(data) => {
                    let data = data.map_err(broken)?;
                    // `bytes` never has more than one incomplete message, so its capacity can be released at once.
                    let _ = body.flow_control().release_capacity(data.len());
                    self.bytes.extend_from_slice(&data);
                }
                None => {
                    let trailers = body.trailers().await.map_err(broken)?;
                    return trailers.as_ref().map_or(Ok(()), check).map(|()| None);
                }
            }
        }
    }
}

/// Removes a message from the bytes, if it is complete.
fn whole(bytes: &mut BytesMut) -> Result<Option<Packet>, DialError> {
    let Some(mut head) = bytes.get(..HEAD_BYTES) else { return Ok(None) };
    let (compressed, length) = (head.get_u8(), head.get_u32() as usize);
    if compressed != 0 || length > MESSAGE_BYTES_MAX {
        return Err(DialError(
            "rpc error: code = ResourceExhausted desc = a message is compressed, or too large".into(),
        ));
    }
    if bytes.len() < HEAD_BYTES + length {
        return Ok(None);
    }
    bytes.advance(HEAD_BYTES);
    let packet = Packet::decode(bytes.split_to(length).freeze());
    packet.map(Some).map_err(|error| DialError(format!("rpc error: code = Internal desc = {error}")))
}

/// Checks the gRPC status in headers or trailers.
fn check(headers: &HeaderMap) -> Result<(), DialError> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    match text("grpc-status") {
        None | Some("0") => Ok(()),
        Some(code) => {
            let why = text("grpc-message").unwrap_or_default();
            Err(DialError(format!("rpc error: code = Code({code}) desc = {why}")))
        }
    }
}

/// Copies bytes in both directions until one end has closed.
async fn carry(mut outgoing: Outgoing, mut incoming: Incoming, connect_id: i64, near: DuplexStream) {
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
    use http::Response;
    use std::path::{Path, PathBuf};
    use tokio::net::{UnixListener, UnixStream};

    /// A konnectivity server that echoes all data; `target` selects the outcome of dialling.
    async fn serve(listener: UnixListener) {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut connection = h2::server::handshake(stream).await.expect("HTTP/2");
                let (request, mut answer) = connection.accept().await.expect("a call").expect("a call");
                assert_eq!(
                    (request.uri().path(), &request.headers()["te"]),
                    ("/ProxyService/Proxy", &"trailers".parse().unwrap())
                );
                let body = request.into_body();
                tokio::spawn(async move { while connection.accept().await.is_some() {} });
                let head = Response::builder().header(CONTENT_TYPE, "application/grpc").body(()).unwrap();
                let mut outgoing = Outgoing(answer.send_response(head, false).expect("an answer"));
                let mut incoming = Incoming { answer: None, body: Some(body), bytes: BytesMut::new() };
                while let Ok(Some(asked)) = incoming.next().await {
                    let back = match asked {
                        Payload::DialRequest(DialRequest { address, random, .. }) => match address.as_str() {
                            "closed:1" => Payload::CloseDial(CloseDial { random }),
                            "gone:1" => return outgoing.0.send_reset(h2::Reason::CANCEL),
                            "refused:1" => {
                                Payload::DialResponse(DialResponse { error: "no way".into(), connect_id: 0, random })
                            }
                            _ => Payload::DialResponse(DialResponse { error: String::new(), connect_id: 7, random }),
                        },
                        Payload::Data(data) if data.data == "end"[..] => {
                            Payload::CloseResponse(CloseResponse { error: String::new(), connect_id: data.connect_id })
                        }
                        Payload::Data(data) => Payload::Data(data),
                        Payload::CloseRequest(CloseRequest { connect_id }) => {
                            Payload::CloseResponse(CloseResponse { error: String::new(), connect_id })
                        }
                        other => panic!("{other:?}"),
                    };
                    if outgoing.send(back).await.is_err() {
                        break;
                    }
                }
            });
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
        ] {
            let why = dialled(&path, target).await.expect_err("refused").to_string();
            assert!(why.starts_with(expected), "{target}: {why}");
        }
    }

    #[test]
    fn messages_are_taken_off_whole() {
        let mut bytes = BytesMut::from(&b"\0\0\0\0\x06\x08\x05\x3a\x02\x08\x09\0"[..]);
        let packet = whole(&mut bytes).expect("a message").expect("it is there");
        assert_eq!(packet, Packet { kind: 5, payload: Some(Payload::CloseDial(CloseDial { random: 9 })) });
        assert_eq!((whole(&mut bytes).expect("not whole"), bytes.len()), (None, 1));
        assert!(whole(&mut BytesMut::from(&b"\x01\0\0\0\0"[..])).is_err(), "compressed");
        assert!(whole(&mut BytesMut::from(&b"\0\xff\0\0\0"[..])).is_err(), "large");
    }
}
