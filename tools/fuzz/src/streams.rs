//! Targets for a SPDY connection, as bytes and as mostly well-formed frames with compressed headers, and for a
//! WebSocket that carries the streams of a command.

// Each fuzz target is a program that compiles this whole file and uses one of its functions.
#![allow(dead_code)]

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::BytesMut;
use holdfast_streams::ConnectionLimits;
use holdfast_streams::remote::{CommandStreams, Session};
use holdfast_streams::spdy::{Decoder, Encoder, Flaw, Frame, Headers, PIECE_BYTES_MAX};
use holdfast_streams::upgrade::{Agreed, UpgradeProtocol};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// A target and the name of its folder of seeds.
type Named = (&'static str, fn(&[u8]));

/// All targets for streams.
pub const TARGETS: [Named; 4] = [
    ("spdy", spdy),
    ("spdy_frames", spdy_frames),
    ("websocket", websocket),
    ("websocket_messages", websocket_messages),
];

const PROTOCOLS: [&str; 5] =
    ["v5.channel.k8s.io", "v4.channel.k8s.io", "v4.base64.channel.k8s.io", "channel.k8s.io", "base64.channel.k8s.io"];

/// The maximum number of bytes that the decoder may hold before it returns a frame.
const HELD_BYTES_MAX: usize = (64 << 10) + 1024;

/// Reads any bytes. The result must not depend on the pieces in which they arrive, and buffered input is bounded.
pub fn spdy(bytes: &[u8]) {
    let whole = read(bytes, bytes.len());
    for piece in [1, 2 + bytes.len() % 50] {
        assert_eq!(read(bytes, piece), whole, "in pieces of {piece}");
    }
}

/// Reads frames: one byte each for kind, stream and length, then data or header names.
pub fn spdy_frames(bytes: &[u8]) {
    let (mut encoder, mut wire) = (Encoder::new(), BytesMut::new());
    let (mut rest, mut headers_sent) = (bytes, Vec::new());
    while let [kind, stream, length, after @ ..] = rest {
        let (payload, after) = after.split_at(after.len().min(usize::from(*length)));
        let text: String = payload.iter().map(|byte| char::from(byte % 26 + b'a')).collect();
        let headers = Headers::new().with("streamType", text.as_str()).with(&text, "");
        let (id, fin) = (u32::from(*stream), kind & 8 != 0);
        let frame = match kind % 8 {
            0 => Frame::SynStream { id, fin, headers },
            1 => Frame::SynReply { id, fin, headers },
            2 => Frame::Headers { id, fin, headers },
            3 => Frame::Reset { id, status: u32::from(*length) },
            4 => Frame::Ping(id),
            5 => Frame::GoAway { last: id },
            _ => Frame::Data { id, fin, bytes: payload.to_vec().into() },
        };
        if let Frame::SynStream { headers, .. } | Frame::SynReply { headers, .. } | Frame::Headers { headers, .. } =
            &frame
        {
            headers_sent.push(headers.clone());
        }
        encoder.encode(&frame, &mut wire);
        rest = after;
    }
    let (mut decoder, mut input, mut headers_read) = (Decoder::new(), wire.clone(), Vec::new());
    while let Some(frame) = decoder.decode(&mut input).expect("what was written is read") {
        if let Frame::SynStream { headers, .. } | Frame::SynReply { headers, .. } | Frame::Headers { headers, .. } =
            frame
        {
            headers_read.push(headers);
        }
    }
    assert_eq!(headers_read, headers_sent);
    spdy(&wire);
}

/// Reads any bytes after an upgrade; the first byte chooses the subprotocol. The session must end when its client
/// disconnects.
pub fn websocket(bytes: &[u8]) {
    let (protocol, wire) = chosen(bytes);
    let stdin = input_of(protocol, wire.to_vec());
    assert!(stdin.len() <= wire.len(), "more is read than was sent");
}

/// Reads messages: one byte each for kind and length, then the payload. A command must read the payloads for its stdin
/// in the order in which they were sent.
pub fn websocket_messages(bytes: &[u8]) {
    let (protocol, mut rest) = chosen(bytes);
    let (mut wire, mut expected) = (Vec::new(), Vec::new());
    while let [kind, length, after @ ..] = rest {
        let (payload, after) = after.split_at(after.len().min(usize::from(*length)));
        let (opcode, content) = match kind % 5 {
            // A ping, a message without a channel, and the size of a terminal.
            0 => (9, payload[..payload.len().min(125)].to_vec()),
            1 => (2, Vec::new()),
            2 => (2, [b"\x04", payload].concat()),
            _ => {
                expected.extend_from_slice(payload);
                (2, [b"\0", payload].concat())
            }
        };
        let content = match (protocol.contains("base64"), opcode, content.split_first()) {
            (true, 2, Some((channel, content))) => {
                format!("{}{}", char::from(b'0' + channel), STANDARD.encode(content)).into_bytes()
            }
            _ => content,
        };
        wire.push(0x80 | opcode);
        match u8::try_from(content.len()) {
            Ok(short @ ..126) => wire.push(0x80 | short),
            _ => {
                wire.push(0x80 | 126);
                wire.extend_from_slice(&u16::try_from(content.len()).expect("short").to_be_bytes());
            }
        }
        // The mask of the message is zero, which leaves the content unchanged.
        wire.extend_from_slice(&[0; 4]);
        wire.extend_from_slice(&content);
        rest = after;
    }
    assert_eq!(input_of(protocol, wire), expected, "{protocol}");
}

fn chosen(bytes: &[u8]) -> (&'static str, &[u8]) {
    let (first, rest) = bytes.split_first().unwrap_or((&0, &[]));
    (PROTOCOLS[usize::from(*first) % PROTOCOLS.len()], rest)
}

/// The bytes that a command reads from its stdin over a WebSocket, until the client has sent `wire` and closed.
fn input_of(protocol: &str, wire: Vec<u8>) -> Vec<u8> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    runtime.block_on(async {
        let (near, far) = tokio::io::duplex(64 << 10);
        let (mut from, mut to) = tokio::io::split(far);
        let client = async {
            // The server may already have closed the connection, so errors do not matter.
            _ = to.write_all(&wire).await;
            _ = to.shutdown().await;
            _ = tokio::io::copy(&mut from, &mut tokio::io::sink()).await;
        };
        let server = async {
            let agreed = Agreed { wire: UpgradeProtocol::WebSocket, protocol: protocol.to_owned() };
            let wanted = CommandStreams { stdin: true, stdout: true, stderr: true, tty: true };
            let mut stdin = Vec::new();
            if let Ok(mut session) = Session::accept(near, &agreed, wanted, ConnectionLimits::default()).await {
                // This test does not read terminal sizes. Dropping their stream keeps the sizes from filling its
                // buffer.
                session.resize = None;
                if let Some(mut input) = session.stdin.take() {
                    _ = input.read_to_end(&mut stdin).await;
                }
            }
            stdin
        };
        tokio::join!(client, server).1
    })
}

/// The decoded frames, with adjacent data joined, and the flaw that ended decoding, if there was one.
fn read(bytes: &[u8], piece: usize) -> (Vec<String>, Option<Flaw>) {
    let (mut decoder, mut input) = (Decoder::new(), BytesMut::new());
    let (mut frames, mut data): (Vec<String>, Vec<u8>) = (Vec::new(), Vec::new());
    for piece in bytes.chunks(piece.max(1)) {
        input.extend_from_slice(piece);
        loop {
            match decoder.decode(&mut input) {
                Ok(None) => break,
                Ok(Some(Frame::Data { id, fin, bytes })) => {
                    assert!(bytes.len() <= PIECE_BYTES_MAX);
                    data.extend_from_slice(&bytes);
                    if fin {
                        frames.push(format!("data {id} to {}", data.len()));
                    }
                }
                Ok(Some(frame)) => frames.push(format!("{frame:?}")),
                Err(flaw) => return (frames, Some(flaw)),
            }
        }
        assert!(input.len() <= HELD_BYTES_MAX, "{} bytes are held", input.len());
    }
    frames.push(format!("{} bytes", data.len()));
    (frames, None)
}
