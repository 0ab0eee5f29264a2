//! Properties that hold whatever a client sends.

use super::*;
use crate::connection::sending::OUTPUT_BYTES;
use crate::frame::{NUMBER_MAX, PAYLOAD_BYTES_MAX};
use bytes::Bytes;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// One step of the client or the server on a connection.
#[derive(Debug, Clone)]
enum ConnectionStep {
    /// The client sends these bytes.
    Receive(Vec<u8>),
    /// The server answers one of the client's requests or sends more of the body, and may end it.
    Answer(usize, usize, bool),
    Reset(usize),
    Release(usize, usize),
    /// The client receives up to this number of bytes.
    Take(usize),
    ShutDown,
    Ping,
    Tick,
}

fn block() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => Just(GET.to_vec()),
        4 => Just(POST.to_vec()),
        1 => (0..50u8, "[ -~]{0,20}").prop_map(|(length, value)| {
            [POST, &field("content-length", &length.to_string()), &[0x40, 1, b'x', value.len() as u8], value.as_bytes()].concat()
        }),
        1 => Just(field("x", "y")),
        1 => Just(b"\xbe".to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..30),
    ]
}

/// Frames that are mostly valid.
fn any_frame() -> impl Strategy<Value = Vec<u8>> {
    let stream = prop_oneof![8 => 0..12u32, 1 => any::<u32>()];
    let bytes = || prop::collection::vec(any::<u8>(), 0..40);
    let exact = |bytes: usize| prop::collection::vec(any::<u8>(), bytes);
    let increment = prop_oneof![0..100_000u32, any::<u32>()].prop_map(|by| by.to_be_bytes().to_vec());
    let setting = (0..8u16, prop_oneof![0..100_000u32, any::<u32>()])
        .prop_map(|(name, value)| [&name.to_be_bytes()[..], &value.to_be_bytes()].concat());
    let settings = prop::collection::vec(setting, 0..4).prop_map(|settings| settings.concat());
    let typed = prop_oneof![
        6 => (Just(kind::HEADERS), block()),
        2 => (Just(kind::CONTINUATION), block()),
        4 => (Just(kind::DATA), prop_oneof![bytes(), Just(vec![0; 16_384])]),
        4 => (Just(kind::WINDOW_UPDATE), increment),
        2 => (Just(kind::SETTINGS), settings),
        2 => (Just(kind::RST_STREAM), exact(4)),
        1 => (Just(kind::PING), prop_oneof![exact(8), Just(b"farewell".to_vec()), Just(b"alive?\0\0".to_vec())]),
        1 => (Just(kind::PRIORITY), exact(5)),
        1 => (Just(kind::GOAWAY), exact(8)),
        1 => (any::<u8>(), bytes()),
    ];
    let flags = prop_oneof![6 => Just(4u8), 6 => Just(5u8), 2 => Just(0), 1 => Just(1), 1 => any::<u8>()];
    (typed, flags, stream).prop_map(|((kind, payload), flags, stream)| {
        let of_connection = matches!(kind, kind::SETTINGS | kind::PING | kind::GOAWAY);
        frame(kind, flags, if of_connection { 0 } else { stream }, payload)
    })
}

fn step() -> impl Strategy<Value = ConnectionStep> {
    prop_oneof![
        12 => any_frame().prop_map(ConnectionStep::Receive),
        1 => prop::collection::vec(any::<u8>(), 0..20).prop_map(ConnectionStep::Receive),
        6 => (any::<usize>(), 0..40_000usize, any::<bool>()).prop_map(|(at, bytes, end)| ConnectionStep::Answer(at, bytes, end)),
        1 => any::<usize>().prop_map(ConnectionStep::Reset),
        3 => (any::<usize>(), 0..200_000usize).prop_map(|(at, bytes)| ConnectionStep::Release(at, bytes)),
        6 => (0..100_000usize).prop_map(ConnectionStep::Take),
        1 => Just(ConnectionStep::ShutDown),
        1 => Just(ConnectionStep::Ping),
        1 => Just(ConnectionStep::Tick),
    ]
}

/// Checks the frames that the server sent, as a client without knowledge of the server does.
#[derive(Default)]
struct FrameChecker {
    unparsed: Vec<u8>,
    /// The bytes of data that were sent on each stream.
    sent: BTreeMap<u32, u64>,
    ended: BTreeMap<u32, bool>,
    all_sent: u64,
}

impl FrameChecker {
    fn read(&mut self, bytes: &[u8]) {
        self.unparsed.extend_from_slice(bytes);
        while let Some(head) = Head::parse(&self.unparsed) {
            assert!(head.length <= PAYLOAD_BYTES_MAX);
            if self.unparsed.len() < 9 + head.length {
                break;
            }
            self.unparsed.drain(..9 + head.length);
            if matches!(head.kind, kind::DATA | kind::HEADERS) {
                assert!(!self.ended.contains_key(&head.stream), "nothing follows the end of a stream");
                if head.has(flag::END_STREAM) {
                    self.ended.insert(head.stream, true);
                }
            }
            match head.kind {
                kind::DATA => {
                    *self.sent.entry(head.stream).or_default() += head.length as u64;
                    self.all_sent += head.length as u64;
                }
                kind::RST_STREAM => _ = self.ended.insert(head.stream, true),
                _ => {}
            }
        }
    }
}

/// An upper bound of the bytes that the client has allowed the server to send.
#[derive(Default)]
struct Allowed {
    all: u64,
    streams: BTreeMap<u32, u64>,
    initial: u64,
}

impl Allowed {
    fn note(&mut self, frame: &[u8]) {
        let Some(head) = Head::parse(frame) else { return };
        let payload = &frame[9..];
        match head.kind {
            kind::WINDOW_UPDATE if payload.len() == 4 => {
                let by = u64::from(u32::from_be_bytes(payload.try_into().unwrap()) & NUMBER_MAX);
                if head.stream == 0 {
                    self.all += by;
                } else {
                    *self.streams.entry(head.stream).or_default() += by;
                }
            }
            kind::SETTINGS if !head.has(flag::ACK) => {
                for setting in payload.chunks_exact(6).filter(|setting| setting[..2] == [0, 4]) {
                    // The largest initial size so far is an upper bound.
                    let value = u64::from(u32::from_be_bytes(setting[2..].try_into().unwrap()));
                    self.initial = self.initial.max(value);
                }
            }
            _ => {}
        }
    }
}

/// The bytes that a connection holds in addition to its output.
fn held(server: &Connection) -> usize {
    let block = server.block.as_ref().map_or(0, |block| block.bytes.capacity());
    server.partial.capacity() + block + server.line.capacity() * 8 + server.drained.capacity() * 8
}

fn run(steps: &[ConnectionStep], limits: Limits) {
    let mut server = Connection::new(limits);
    let (mut reader, mut allowed) =
        (FrameChecker::default(), Allowed { all: 65_535, initial: 65_535, ..Default::default() });
    let mut streams = Vec::new();
    let mut queued = 0;
    let begin = [PREFACE.as_slice(), &settings([])].concat();
    server.receive(&begin, &mut |_| ());
    for step in steps {
        match step {
            // A driver stops reading while the output is full.
            ConnectionStep::Receive(bytes) if server.output_bytes() < OUTPUT_BYTES => {
                allowed.note(bytes);
                server.receive(bytes, &mut |event| match event {
                    Event::Request { stream, .. } => streams.push(stream),
                    Event::Data { stream, .. } | Event::Reset { stream, .. } => assert!(streams.contains(&stream)),
                });
            }
            ConnectionStep::Receive(_) => {}
            ConnectionStep::Answer(at, bytes, is_end) if !streams.is_empty() => {
                let stream = streams[at % streams.len()];
                let headers = HeaderMap::new();
                let answer =
                    ResponseHead { status: StatusCode::OK, headers: &headers, date: None, length: None, is_end: false };
                if server.streams.get_mut(stream).is_some_and(|stream| !stream.is_answered) {
                    server.answer(stream, &answer);
                }
                // A driver sends the next piece on a stream only after the previous piece was sent.
                if server.streams.get_mut(stream).is_some_and(|stream| stream.queued_bytes == 0 && stream.end.is_none())
                {
                    queued += bytes;
                    server.send(stream, Bytes::from(vec![0; *bytes]), *is_end);
                }
            }
            ConnectionStep::Reset(at) if !streams.is_empty() => {
                server.reset(streams[at % streams.len()], Reason::CANCEL)
            }
            ConnectionStep::Release(at, bytes) if !streams.is_empty() => {
                server.release_of(streams[at % streams.len()], *bytes);
                server.release(*bytes);
            }
            ConnectionStep::Take(most) => reader.read(&take(&mut server, *most)),
            ConnectionStep::ShutDown => server.shut_down(),
            ConnectionStep::Ping => server.ping(),
            ConnectionStep::Tick => server.tick(),
            _ => {}
        }
        server.fill();
        while server.drained().is_some() {}
        assert!(server.streams() <= limits.streams_max as usize);
        assert!(server.output_bytes() < OUTPUT_BYTES + 2 * PAYLOAD_BYTES_MAX + 40_000, "{}", server.output_bytes());
        assert!(held(&server) < 100_000, "{}", held(&server));
    }
    while server.output_bytes() > 0 {
        reader.read(&take(&mut server, usize::MAX));
    }
    assert!(reader.unparsed.is_empty());
    assert!(reader.all_sent <= allowed.all && reader.all_sent <= queued as u64);
    for (stream, sent) in reader.sent {
        let most = allowed.initial + allowed.streams.get(&stream).copied().unwrap_or_default();
        assert!(sent <= most, "stream {stream} got {sent} bytes of {most}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_panics_and_all_is_bounded(steps in prop::collection::vec(step(), 0..80), streams_max in 1..20u32) {
        run(&steps, Limits { streams_max, ..LIMITS });
    }

    /// The result does not depend on how the bytes are split.
    #[test]
    fn pieces_make_no_difference(
        frames in prop::collection::vec(any_frame(), 0..20),
        begin in prop::bool::weighted(0.9),
        sizes in prop::collection::vec(1..50usize, 1..50),
    ) {
        let mut bytes = if begin { [PREFACE.as_slice(), &settings([])].concat() } else { Vec::new() };
        frames.iter().for_each(|frame| bytes.extend_from_slice(frame));
        let mut whole = Talk::new(LIMITS);
        whole.receive(&bytes);
        let expected = told(&mut whole);
        let mut bytewise = Talk::new(LIMITS);
        bytes.chunks(1).for_each(|byte| bytewise.receive(byte));
        prop_assert_eq!(&told(&mut bytewise), &expected);
        let mut piecewise = Talk::new(LIMITS);
        let mut rest = &bytes[..];
        for size in sizes.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (piece, after) = rest.split_at((*size).min(rest.len()));
            piecewise.receive(piece);
            rest = after;
        }
        prop_assert_eq!(&told(&mut piecewise), &expected);
    }
}

/// The events and the frames that were sent, each in order.
fn told(talk: &mut Talk) -> (Vec<String>, Vec<String>) {
    talk.read();
    talk.lines().into_iter().partition(|line| line.starts_with(char::is_lowercase))
}
