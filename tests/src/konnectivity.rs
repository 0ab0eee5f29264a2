//! A konnectivity server with its agent: it connects to any requested address, and records the addresses.

use crate::authority::Authority;
use crate::proxy::SeenRequests;
use bytes::{Buf, Bytes, BytesMut};
use h2::server::SendResponse;
use h2::{RecvStream, SendStream};
use http::{Request, Response};
use prost::Message;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::path::Path;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::sync::mpsc;

/// The length of the header of a message.
const HEAD: usize = 5;
const CONNECTION: i64 = 1;

/// The numbers of the kinds of packets.
const DIAL_RESPONSE: i32 = 1;
const CLOSE_REQUEST: i32 = 2;
const CLOSE_RESPONSE: i32 = 3;
const DATA: i32 = 4;

#[derive(Clone, PartialEq, Message)]
struct Packet {
    #[prost(int32, tag = "1")]
    kind: i32,
    #[prost(message, tag = "2")]
    dial_request: Option<DialRequest>,
    #[prost(message, tag = "3")]
    dial_response: Option<DialResponse>,
    #[prost(message, tag = "4")]
    data: Option<Data>,
    #[prost(message, tag = "5")]
    close_request: Option<ConnectionPacket>,
    #[prost(message, tag = "6")]
    close_response: Option<CloseResponse>,
}

#[derive(Clone, PartialEq, Message)]
struct DialRequest {
    #[prost(string, tag = "1")]
    protocol: String,
    #[prost(string, tag = "2")]
    address: String,
    #[prost(int64, tag = "3")]
    random: i64,
}

#[derive(Clone, PartialEq, Message)]
struct DialResponse {
    #[prost(string, tag = "1")]
    error: String,
    #[prost(int64, tag = "2")]
    connection: i64,
    #[prost(int64, tag = "3")]
    random: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Data {
    #[prost(int64, tag = "1")]
    connection: i64,
    #[prost(bytes = "vec", tag = "3")]
    data: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct ConnectionPacket {
    #[prost(int64, tag = "1")]
    connection: i64,
}

#[derive(Clone, PartialEq, Message)]
struct CloseResponse {
    #[prost(string, tag = "1")]
    error: String,
    #[prost(int64, tag = "2")]
    connection: i64,
}

/// Starts a server that listens on a Unix socket.
pub fn serve(path: &Path) -> SeenRequests {
    let (asked, listener) = (SeenRequests::default(), UnixListener::bind(path).expect("a socket"));
    let seen = asked.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(lead(stream, seen.clone()));
        }
    });
    asked
}

/// Serves on a port of this machine, over TLS: the certificate is for `127.0.0.1`, and clients must have a certificate
/// of `authority`. Like Go's gRPC servers, this server demands that the handshake agrees on `h2`.
pub async fn serve_tls(authority: &Authority) -> (SocketAddr, SeenRequests) {
    let (asked, listener) = (SeenRequests::default(), TcpListener::bind("127.0.0.1:0").await.expect("a port"));
    let (seen, address) = (asked.clone(), listener.local_addr().expect("an address"));
    let acceptor = authority.acceptor("127.0.0.1", &[b"h2"]);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, seen) = (acceptor.clone(), seen.clone());
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else { return };
                if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
                    lead(stream, seen).await;
                }
            });
        }
    });
    (address, asked)
}

async fn lead(stream: impl AsyncRead + AsyncWrite + Unpin, seen: SeenRequests) {
    let mut connection = h2::server::handshake(stream).await.expect("HTTP/2");
    while let Some(Ok((request, answer))) = connection.accept().await {
        tokio::spawn(tunnel(request, answer, seen.clone()));
    }
}

async fn tunnel(request: Request<RecvStream>, mut answer: SendResponse<Bytes>, seen: SeenRequests) {
    assert_eq!(request.uri().path(), "/ProxyService/Proxy");
    let head = Response::builder().header("content-type", "application/grpc").body(()).expect("a head");
    let mut stream = answer.send_response(head, false).expect("sent");
    let (mut body, mut bytes) = (request.into_body(), BytesMut::new());
    let dial = next(&mut body, &mut bytes).await.and_then(|packet| packet.dial_request).expect("whom to connect to");
    assert_eq!(dial.protocol, "tcp");
    let there = TcpStream::connect(&dial.address).await.expect("a server");
    seen.lock().expect("a list").push(dial.address);
    let (sender, mut packets) = mpsc::channel(16);
    tokio::spawn(async move {
        while let Some(packet) = packets.recv().await {
            if send(&mut stream, &packet).await.is_none() {
                break;
            }
        }
    });
    let told = DialResponse { error: String::new(), connection: CONNECTION, random: dial.random };
    let told = Packet { kind: DIAL_RESPONSE, dial_response: Some(told), ..Packet::default() };
    sender.send(told).await.expect("the stream is there");
    let (mut read, mut write) = there.into_split();
    let back = sender.clone();
    let closed = || {
        let closed = CloseResponse { error: String::new(), connection: CONNECTION };
        Packet { kind: CLOSE_RESPONSE, close_response: Some(closed), ..Packet::default() }
    };
    let reading = tokio::spawn(async move {
        let mut buffer = vec![0; 16 << 10];
        while let Ok(count @ 1..) = read.read(&mut buffer).await {
            let data = Data { connection: CONNECTION, data: buffer[..count].to_vec() };
            if back.send(Packet { kind: DATA, data: Some(data), ..Packet::default() }).await.is_err() {
                return;
            }
        }
        let _ = back.send(closed()).await;
    });
    while let Some(packet) = next(&mut body, &mut bytes).await {
        match (packet.kind, packet.data) {
            (DATA, Some(data)) => {
                assert_eq!(data.connection, CONNECTION);
                if write.write_all(&data.data).await.is_err() {
                    break;
                }
            }
            (CLOSE_REQUEST, None) => {
                reading.abort();
                let _ = sender.send(closed()).await;
                return;
            }
            other => panic!("{other:?}"),
        }
    }
}

async fn next(body: &mut RecvStream, bytes: &mut BytesMut) -> Option<Packet> {
    loop {
        if let Some(mut length) = bytes.get(1..HEAD) {
            let length = length.get_u32() as usize;
            if bytes.len() >= HEAD + length {
                bytes.advance(HEAD);
                return Some(Packet::decode(bytes.split_to(length)).expect("a packet"));
            }
        }
        let data = body.data().await?.ok()?;
        let _ = body.flow_control().release_capacity(data.len());
        bytes.extend_from_slice(&data);
    }
}

async fn send(stream: &mut SendStream<Bytes>, packet: &Packet) -> Option<()> {
    let message = packet.encode_to_vec();
    let length = u32::try_from(message.len()).expect("short").to_be_bytes();
    let mut bytes = Bytes::from([&[0][..], &length, &message].concat());
    while !bytes.is_empty() {
        stream.reserve_capacity(bytes.len());
        let room = poll_fn(|context| stream.poll_capacity(context)).await?.ok()?;
        stream.send_data(bytes.split_to(room.min(bytes.len())), false).ok()?;
    }
    Some(())
}
