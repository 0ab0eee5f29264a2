//! Targets for an HTTP/2 server: connections as bytes, and as frames that are mostly well formed.

// Each fuzz target is a program that compiles this whole file and uses one of its functions.
#![allow(dead_code)]

use bytes::Bytes;
use holdfast_http2::frame::{Head, PAYLOAD_BYTES_MAX, PREFACE};
use holdfast_http2::{Connection, Event, Limits, Reason, ResponseHead, StreamId};
use http::{HeaderMap, StatusCode};
use std::io::IoSlice;

/// A target and the name of its folder of seeds.
type Named = (&'static str, fn(&[u8]));

/// All HTTP/2 targets.
pub const TARGETS: [Named; 2] = [("http2", http2), ("http2_frames", http2_frames)];

const LIMITS: Limits =
    Limits { streams_max: 20, head_bytes_max: 20_000, stream_window: 70_000, connection_window: 100_000 };
/// A server stops reading while its output contains at least this many bytes.
const OUTPUT_BYTES_MAX: usize = 64 << 10;

/// Checks that the result does not depend on the pieces in which the bytes arrive.
pub fn http2(bytes: &[u8]) {
    let whole = told(bytes, bytes.len());
    for piece in [1, 2 + bytes.len() % 50] {
        assert_eq!(told(bytes, piece), whole, "in pieces of {piece}");
    }
    talk(&[bytes]);
}

/// Reads frames: one byte each for type, flags, stream and payload length, then the payload.
pub fn http2_frames(bytes: &[u8]) {
    let mut frames = vec![PREFACE.to_vec(), Head { length: 0, kind: 4, flags: 0, stream: 0 }.bytes().to_vec()];
    let mut rest = bytes;
    while let [kind, flags, stream, length, after @ ..] = rest {
        let (payload, after) = after.split_at(after.len().min(usize::from(*length)));
        let head = Head { length: payload.len(), kind: kind % 11, flags: *flags, stream: u32::from(*stream) };
        frames.push([&head.bytes()[..], payload].concat());
        rest = after;
    }
    talk(&frames.iter().map(Vec::as_slice).collect::<Vec<_>>());
    http2(&frames.concat());
}

/// The events of a server for this input, and all frames that the server sends by itself.
fn told(bytes: &[u8], piece: usize) -> (Vec<String>, Vec<u8>) {
    let (mut events, mut data, mut said) = (Vec::new(), Vec::new(), Vec::new());
    let mut server = Connection::new(LIMITS);
    for piece in bytes.chunks(piece.max(1)) {
        server.receive(piece, &mut |event| match event {
            Event::Request { stream, head, is_end } => events.push(format!("{stream:?} {head:?} {is_end}")),
            Event::Data { stream, data: more, is_end } => {
                data.extend_from_slice(more);
                events.push(format!("{stream:?} {} {is_end}", more.len()));
            }
            Event::Reset { stream, reason } => events.push(format!("{stream:?} {reason}")),
        });
        send(&mut server, usize::MAX, &mut said);
    }
    (events, said)
}

/// A server that answers every request, and a client that reads some of the output now and then.
fn talk(pieces: &[&[u8]]) {
    let mut server = Connection::new(LIMITS);
    let mut said = Vec::new();
    let mut streams: Vec<StreamId> = Vec::new();
    for (turn, piece) in pieces.iter().enumerate() {
        let mut asked = Vec::new();
        let mut read = 0;
        server.receive(piece, &mut |event| match event {
            Event::Request { stream, .. } => asked.push(stream),
            Event::Data { data, .. } => read += data.len(),
            Event::Reset { stream, .. } => streams.retain(|other| *other != stream),
        });
        server.release(read);
        for stream in asked {
            let headers = HeaderMap::new();
            let is_end = turn % 3 == 0;
            let answer =
                ResponseHead { status: StatusCode::OK, headers: &headers, date: None, length: Some(1), is_end };
            if server.answer(stream, &answer) && !is_end {
                server.send(stream, Bytes::from(vec![0; turn * 1_000 % 30_000]), turn % 3 == 1);
                streams.push(stream);
            }
        }
        if let Some(stream) = streams.get(turn % 7) {
            match turn % 4 {
                0 => server.reset(*stream, Reason::CANCEL),
                1 => server.release_of(*stream, 10_000),
                _ => _ = server.send(*stream, Bytes::from_static(b"more"), turn % 5 == 0),
            }
        }
        if turn % 11 == 10 {
            server.shut_down();
        }
        server.fill();
        while server.drained().is_some() {}
        assert!(server.streams() <= LIMITS.streams_max as usize);
        if turn % 2 == 0 || server.output_bytes() >= OUTPUT_BYTES_MAX {
            send(&mut server, 1_000 * turn, &mut said);
        }
        if server.output_bytes() >= OUTPUT_BYTES_MAX {
            break;
        }
        assert!(server.output_bytes() < OUTPUT_BYTES_MAX + PAYLOAD_BYTES_MAX);
    }
    send(&mut server, usize::MAX, &mut said);
    // The server's output must consist of whole frames.
    let mut rest = &said[..];
    while let Some(head) = Head::parse(rest) {
        assert!(head.length <= PAYLOAD_BYTES_MAX && rest.len() >= 9 + head.length);
        rest = &rest[9 + head.length..];
    }
    assert!(rest.is_empty());
}

fn send(server: &mut Connection, most: usize, said: &mut Vec<u8>) {
    let mut left = most;
    while server.output_bytes() > 0 && left > 0 {
        let mut slices = [IoSlice::new(&[]); 3];
        let count = server.output(&mut slices);
        let bytes: Vec<u8> = slices[..count].iter().flat_map(|slice| slice.iter().copied()).take(left).collect();
        server.sent(bytes.len());
        left -= bytes.len();
        said.extend_from_slice(&bytes);
    }
}
