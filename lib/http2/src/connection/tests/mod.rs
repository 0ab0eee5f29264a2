//! How a connection reacts to clients: bytes in, events and frames out, written as lines of text.

mod answers;
mod properties;
mod table;

use super::{Connection, Event, ResponseHead};
use crate::frame::{Head, PREFACE, flag, kind};
use crate::hpack::{Decoder, Field, Name, Sink, Value};
use crate::limits::Limits;
use crate::reason::Reason;
use crate::stream::StreamId;
use http::{HeaderMap, StatusCode};
use std::borrow::Cow;
use std::io::IoSlice;

const LIMITS: Limits =
    Limits { streams_max: 100, head_bytes_max: 40_000, stream_window: 70_000, connection_window: 100_000 };

/// Requests in HPACK: method, scheme, path and authority; all but the last are static fields.
const GET: &[u8] = b"\x82\x87\x84\x41\x01a";
const POST: &[u8] = b"\x83\x87\x84\x41\x01a";

fn frame(kind: u8, flags: u8, stream: u32, payload: impl AsRef<[u8]>) -> Vec<u8> {
    let payload = payload.as_ref();
    let mut frame = Head { length: payload.len(), kind, flags, stream: 0 }.bytes().to_vec();
    // The mask does not clear the reserved bit of the stream number, because some tests set the bit.
    frame[5..].copy_from_slice(&stream.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

fn settings(payload: impl AsRef<[u8]>) -> Vec<u8> {
    frame(kind::SETTINGS, 0, 0, payload)
}

/// A request without a body.
fn get(stream: u32) -> Vec<u8> {
    frame(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, stream, GET)
}

/// The head of a request with a body.
fn post(stream: u32) -> Vec<u8> {
    frame(kind::HEADERS, flag::END_HEADERS, stream, POST)
}

fn data(stream: u32, bytes: impl AsRef<[u8]>) -> Vec<u8> {
    frame(kind::DATA, 0, stream, bytes)
}

fn reset(stream: u32) -> Vec<u8> {
    frame(kind::RST_STREAM, 0, stream, Reason::CANCEL.0.to_be_bytes())
}

fn window_update(stream: u32, by: u32) -> Vec<u8> {
    frame(kind::WINDOW_UPDATE, 0, stream, by.to_be_bytes())
}

/// A field in HPACK with its name and value as text.
fn field(name: &str, value: &str) -> Vec<u8> {
    let mut bytes = vec![0, name.len() as u8];
    bytes.extend_from_slice(name.as_bytes());
    bytes.push(value.len() as u8);
    bytes.extend_from_slice(value.as_bytes());
    bytes
}

/// A connection with a client that decodes all that the server sends.
struct Talk {
    server: Connection,
    lines: Vec<String>,
    /// The streams in the order of their requests.
    streams: Vec<StreamId>,
    decoder: Decoder,
    unparsed: Vec<u8>,
}

impl Talk {
    fn new(limits: Limits) -> Talk {
        let server = Connection::new(limits);
        let (lines, streams, unparsed) = Default::default();
        Talk { server, lines, streams, decoder: Decoder::new(4096), unparsed }
    }

    /// A connection on which client and server have already exchanged their settings.
    fn open() -> Talk {
        Talk::open_with(LIMITS)
    }

    fn open_with(limits: Limits) -> Talk {
        let mut talk = Talk::new(limits);
        talk.receive(PREFACE);
        talk.receive(&settings([]));
        talk.receive(&frame(kind::SETTINGS, flag::ACK, 0, []));
        assert!(talk.server.is_open() && talk.server.is_acknowledged());
        talk.lines.clear();
        talk
    }

    /// Passes these bytes to the server, then reads all output of the server.
    fn receive(&mut self, bytes: &[u8]) {
        let Talk { server, lines, streams, .. } = self;
        server.receive(bytes, &mut |event| {
            lines.push(match event {
                Event::Request { stream, head, is_end } => {
                    streams.push(stream);
                    let end = if is_end { " end" } else { "" };
                    format!("request {} {} {}{end}", stream.number(), head.method(), head.uri())
                }
                Event::Data { stream, data, is_end } => {
                    let end = if is_end { " end" } else { "" };
                    format!("data {} {}{end}", stream.number(), data.len())
                }
                Event::Reset { stream, reason } => format!("reset {} {reason}", stream.number()),
            });
        });
        self.read();
    }

    /// Reads all output of the server.
    fn read(&mut self) {
        self.server.fill();
        while self.server.output_bytes() > 0 {
            let sent = take(&mut self.server, usize::MAX);
            self.unparsed.extend_from_slice(&sent);
            self.server.fill();
        }
        while let Some(head) = Head::parse(&self.unparsed) {
            let frame: Vec<u8> = self.unparsed.drain(..9 + head.length).collect();
            let line = self.line(head, &frame[9..]);
            self.lines.push(line);
        }
    }

    fn line(&mut self, head: Head, payload: &[u8]) -> String {
        let number = |at: usize| u32::from_be_bytes(payload[at..at + 4].try_into().unwrap());
        let end = if head.has(flag::END_STREAM) { " end" } else { "" };
        let stream = head.stream;
        match head.kind {
            kind::DATA => format!("DATA {stream} {}{end}", payload.len()),
            kind::HEADERS => {
                assert!(head.has(flag::END_HEADERS));
                let mut fields = Fields(String::new());
                self.decoder.decode(payload, &mut fields).unwrap();
                format!("HEADERS {stream}{}{end}", fields.0)
            }
            kind::RST_STREAM => format!("RST_STREAM {stream} {}", Reason(number(0))),
            kind::SETTINGS if head.has(flag::ACK) => "SETTINGS ack".to_owned(),
            kind::SETTINGS => "SETTINGS".to_owned(),
            kind::PING if head.has(flag::ACK) => format!("PING ack {}", payload.escape_ascii()),
            kind::PING => "PING".to_owned(),
            kind::GOAWAY => format!("GOAWAY {} {}", number(0), Reason(number(4))),
            kind::WINDOW_UPDATE => format!("WINDOW_UPDATE {stream} {}", number(0)),
            other => panic!("a server does not send frames of type {other}"),
        }
    }

    /// The lines that were recorded since the last call of this method.
    fn lines(&mut self) -> Vec<String> {
        std::mem::take(&mut self.lines)
    }

    fn answer(&mut self, request: usize, is_end: bool) -> bool {
        let headers = HeaderMap::new();
        let answer = ResponseHead { status: StatusCode::OK, headers: &headers, date: None, length: None, is_end };
        self.server.answer(self.streams[request], &answer)
    }

    fn send(&mut self, request: usize, bytes: usize, is_end: bool) -> bool {
        self.server.send(self.streams[request], vec![b'x'; bytes].into(), is_end)
    }
}

/// Takes up to `most` bytes of the output.
fn take(server: &mut Connection, most: usize) -> Vec<u8> {
    let mut slices = [IoSlice::new(&[]); 4];
    let count = server.output(&mut slices);
    let sent: Vec<u8> = slices[..count].iter().flat_map(|slice| slice.iter().copied()).take(most).collect();
    server.sent(sent.len());
    sent
}

/// The fields of a block, in one line of text.
struct Fields(String);

impl Sink for Fields {
    fn take(&mut self, field: Cow<'_, Field>) {
        match (&field.name, &field.value) {
            (Name::Header(name), Value::Header(value)) => self.0 += &format!(" {name}={}", value.to_str().unwrap()),
            (Name::Pseudo(_), Value::Plain(value)) => self.0 += &format!(" {}", value.escape_ascii()),
            other => panic!("{other:?}"),
        }
    }
}
