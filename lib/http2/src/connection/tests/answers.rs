//! Tests that responses are sent within the windows, in turn, and to their end.

use super::*;
use crate::frame::PAYLOAD_BYTES_MAX;
use http::HeaderValue;

fn asked(requests: &[Vec<u8>]) -> Talk {
    let mut talk = Talk::open();
    requests.iter().for_each(|request| talk.receive(request));
    talk.lines();
    talk
}

#[test]
fn answers_have_what_headers_do_not_say() {
    let mut talk = asked(&[get(1), get(3)]);
    let (date, later) = (HeaderValue::from_static("then"), HeaderValue::from_static("now"));
    let mut headers = HeaderMap::new();
    headers.insert("content-type", HeaderValue::from_static("text/plain"));
    headers.insert("transfer-encoding", HeaderValue::from_static("chunked"));
    for request in 0..2 {
        let status = StatusCode::from_u16(201 + request as u16 * 203).unwrap();
        let answer = ResponseHead { status, headers: &headers, date: Some(&later), length: Some(5), is_end: false };
        talk.server.answer(talk.streams[request], &answer);
        headers.insert("date", date.clone());
        headers.insert("content-length", HeaderValue::from_static("7"));
    }
    talk.read();
    assert_eq!(
        talk.lines(),
        [
            "HEADERS 1 201 content-type=text/plain date=now content-length=5",
            "HEADERS 3 404 content-type=text/plain date=then content-length=7",
        ]
    );
}

#[test]
fn large_heads_go_on() {
    let mut talk = asked(&[get(1)]);
    let mut headers = HeaderMap::new();
    for name in ["a", "b", "c"] {
        headers.insert(name, HeaderValue::from_bytes(&[b'x'; 15_000]).unwrap());
    }
    let answer = ResponseHead { status: StatusCode::OK, headers: &headers, date: None, length: None, is_end: true };
    talk.server.answer(talk.streams[0], &answer);
    let sent = take(&mut talk.server, usize::MAX);
    let (mut rest, mut heads, mut block) = (&sent[..], Vec::new(), Vec::new());
    while let Some(head) = Head::parse(rest) {
        heads.push((head.kind, head.flags, head.length));
        block.extend_from_slice(&rest[9..9 + head.length]);
        rest = &rest[9 + head.length..];
    }
    let last = block.len() - 2 * PAYLOAD_BYTES_MAX;
    let expected = [
        (kind::HEADERS, flag::END_STREAM, PAYLOAD_BYTES_MAX),
        (kind::CONTINUATION, 0, PAYLOAD_BYTES_MAX),
        (kind::CONTINUATION, flag::END_HEADERS, last),
    ];
    assert_eq!(heads, expected);
    let mut fields = Fields(String::new());
    talk.decoder.decode(&block, &mut fields).unwrap();
    assert_eq!(fields.0.len(), " 200".len() + 3 * (15_000 + 3));
}

#[test]
fn small_answers_go_out_at_once() {
    let mut talk = asked(&[get(1), get(3), get(5)]);
    assert!(talk.answer(0, false) && talk.send(0, 10, true));
    assert!(talk.answer(1, false) && talk.send(1, 10, false) && talk.send(1, 0, true));
    assert!(talk.answer(2, true));
    assert!(!talk.answer(2, true), "the stream is gone");
    assert!(talk.send(2, 10, true), "and nobody waits");
    talk.read();
    let expected =
        ["HEADERS 1 200", "DATA 1 10 end", "HEADERS 3 200", "DATA 3 10", "DATA 3 0 end", "HEADERS 5 200 end"];
    assert_eq!(talk.lines(), expected);
    assert_eq!((talk.server.streams(), talk.server.drained()), (0, None));
}

#[test]
fn trailers_follow_the_body() {
    let mut talk = asked(&[get(1)]);
    talk.answer(0, false);
    let mut trailers = HeaderMap::new();
    trailers.insert("x-sum", HeaderValue::from_static("1"));
    talk.send(0, 20_000, false);
    assert!(talk.server.send_trailers(talk.streams[0], trailers));
    talk.read();
    assert_eq!(talk.lines(), ["HEADERS 1 200", "DATA 1 16384", "DATA 1 3616", "HEADERS 1 x-sum=1 end"]);
}

#[test]
fn windows_are_kept() {
    let mut talk = asked(&[settings([0, 4, 0, 0, 0, 100]), get(1)]);
    let stream = talk.streams[0];
    talk.answer(0, false);
    assert!(!talk.send(0, 250, false));
    talk.read();
    assert_eq!(talk.lines(), ["HEADERS 1 200", "DATA 1 100"]);
    assert_eq!(talk.server.drained(), None);
    talk.receive(&window_update(1, 50));
    assert_eq!(talk.lines(), ["DATA 1 50"]);
    // The new initial size makes the stream's window -100; the window update and a further initial size of 30 bring it
    // to 30.
    talk.receive(&settings([0, 4, 0, 0, 0, 0]));
    talk.receive(&window_update(1, 100));
    assert_eq!(talk.lines(), ["SETTINGS ack"]);
    talk.receive(&settings([0, 4, 0, 0, 0, 30]));
    assert_eq!(talk.lines(), ["SETTINGS ack", "DATA 1 30"]);
    talk.receive(&window_update(1, 1000));
    assert_eq!(talk.lines(), ["DATA 1 70"]);
    assert_eq!((talk.server.drained(), talk.server.drained()), (Some(stream), None));
    assert!(talk.send(0, 10, false), "there is room again");
    assert!(talk.send(0, 0, true));
}

#[test]
fn the_end_needs_no_window() {
    let mut talk = asked(&[settings([0, 4, 0, 0, 0, 10]), get(1)]);
    talk.answer(0, false);
    assert!(talk.send(0, 10, false));
    assert!(talk.send(0, 0, true));
    talk.read();
    assert_eq!(talk.lines(), ["HEADERS 1 200", "DATA 1 10", "DATA 1 0 end"]);
}

#[test]
fn streams_have_their_turns_within_the_window_of_all() {
    let mut talk = asked(&[settings([0, 4, 0, 0x10, 0, 0]), get(1), get(3), get(5)]);
    for request in 0..3 {
        talk.answer(request, false);
        talk.send(request, 40_000 + 30_000 * request, true);
    }
    let turns = |talk: &mut Talk| {
        let sent: Vec<String> = talk.lines().into_iter().filter(|line| line.starts_with("DATA")).collect();
        let words: Vec<Vec<&str>> = sent.iter().map(|line| line.split(' ').collect()).collect();
        let bytes: usize = words.iter().map(|words| words[2].parse::<usize>().unwrap()).sum();
        (words.iter().map(|words| words[1].to_owned()).collect::<Vec<_>>().join(""), bytes)
    };
    talk.read();
    // Stream 1 was first alone in the queue; stream 3 got the rest of the connection's window.
    assert_eq!(turns(&mut talk), ("11133".to_owned(), 65_535));
    talk.receive(&window_update(0, 1_000_000));
    assert_eq!(turns(&mut talk), ("3535355555".to_owned(), 210_000 - 65_535));
    assert_eq!(talk.server.streams(), 0);
    let mut drained = Vec::new();
    while let Some(stream) = talk.server.drained() {
        drained.push(stream.number());
    }
    drained.sort_unstable();
    assert_eq!(drained, [3, 5]);
}

#[test]
fn what_nobody_reads_is_not_made_frames_of() {
    let mut talk = asked(&[settings([0, 4, 0x7f, 0, 0, 0]), window_update(0, 0x7f00_0000), get(1), get(3)]);
    talk.answer(0, false);
    talk.answer(1, false);
    while talk.send(0, 50_000, false) {}
    while talk.send(1, 50_000, false) {}
    talk.server.fill();
    let bytes = talk.server.output_bytes();
    assert!((64 << 10..(64 << 10) + PAYLOAD_BYTES_MAX + 100).contains(&bytes), "{bytes}");
    talk.server.reset(talk.streams[0], Reason::CANCEL);
    talk.read();
    let lines = talk.lines();
    let place = |wanted: &str| lines.iter().position(|line| line.starts_with(wanted)).unwrap();
    assert!(lines[place("RST_STREAM 1")..].iter().all(|line| !line.starts_with("DATA 1")));
    assert_eq!(lines.last().map(|line| &line[..6]), Some("DATA 3"));
}

#[test]
fn what_the_client_still_sends_is_refused_behind_the_answer() {
    let mut talk = asked(&[post(1), data(1, "x")]);
    talk.answer(0, false);
    talk.send(0, 5, true);
    talk.receive(&[data(1, "y"), frame(kind::DATA, flag::END_STREAM, 1, b"z")].concat());
    assert_eq!(talk.lines(), ["HEADERS 1 200", "DATA 1 5 end", "RST_STREAM 1 NO_ERROR"]);
    assert_eq!(talk.server.streams(), 0);
}

#[test]
fn windows_grow_as_bodies_are_read() {
    let mut talk = asked(&[post(1), data(1, [0; 16_000]), data(1, [0; 16_000]), data(1, [0; 16_000])]);
    let stream = talk.streams[0];
    talk.server.release_of(stream, 20_000);
    talk.server.release(20_000);
    talk.read();
    assert_eq!(talk.lines(), Vec::<String>::new(), "half of a window is worth a frame");
    talk.server.release_of(stream, 28_000);
    talk.server.release(28_000);
    talk.read();
    assert_eq!(talk.lines(), ["WINDOW_UPDATE 1 48000"]);
    talk.server.release(10_000_000);
    talk.receive(&frame(kind::DATA, flag::END_STREAM, 1, [0; 16_000]));
    talk.server.release_of(stream, 16_000);
    talk.server.release(16_000);
    talk.read();
    assert_eq!(talk.lines(), ["data 1 16000 end", "WINDOW_UPDATE 0 64000"], "a stream that has ended needs no window");
}

#[test]
fn padding_is_given_back_at_once() {
    let mut talk = asked(&[post(1)]);
    for _ in 0..1_000 {
        let padded = [&[255u8][..], &[0; 255]].concat();
        talk.receive(&frame(kind::DATA, flag::PADDED, 1, padded));
    }
    assert_eq!(talk.server.failed(), None);
}

#[test]
fn a_connection_ends_in_two_steps() {
    let mut talk = asked(&[get(1)]);
    talk.server.shut_down();
    talk.server.shut_down();
    talk.read();
    assert_eq!(talk.lines(), ["GOAWAY 2147483647 NO_ERROR", "PING"]);
    // A request that the client sent before it received the GOAWAY frame is answered.
    talk.receive(&get(3));
    assert_eq!(talk.lines(), ["request 3 GET https://a/ end"]);
    talk.receive(&frame(kind::PING, flag::ACK, 0, b"farewell"));
    assert_eq!(talk.lines(), ["GOAWAY 3 NO_ERROR"]);
    // Frames of later streams are ignored, as the GOAWAY frame announced.
    talk.receive(&[post(5), data(5, "x"), window_update(5, 1), reset(5)].concat());
    assert_eq!(talk.lines(), Vec::<String>::new());
    talk.answer(0, true);
    assert!(!talk.server.is_finished());
    talk.answer(1, true);
    assert!(talk.server.is_finished());
    talk.read();
    assert_eq!(talk.lines(), ["HEADERS 1 200 end", "HEADERS 3 200 end"]);
}

#[test]
fn pings_ask_for_answers() {
    let mut talk = Talk::open();
    assert!(!talk.server.is_ping_due());
    talk.server.ping();
    talk.receive(&frame(kind::PING, flag::ACK, 0, b"whatever"));
    assert!(talk.server.is_ping_due());
    talk.receive(&frame(kind::PING, flag::ACK, 0, b"alive?\0\0"));
    assert!(!talk.server.is_ping_due());
    assert_eq!(talk.lines(), ["PING"]);
}

#[test]
fn the_peers_table_is_as_large_as_it_wants() {
    let mut talk = asked(&[get(1), get(3), get(5), get(7)]);
    let mut headers = HeaderMap::new();
    headers.insert("content-type", HeaderValue::from_static("application/json"));
    for (request, expected) in ["HEADERS 1", "HEADERS 3", "HEADERS 5", "HEADERS 7"].into_iter().enumerate() {
        if request == 2 {
            talk.receive(&settings([0, 1, 0, 0, 0, 0]));
            talk.receive(&settings([0, 1, 0, 0, 0x40, 0]));
            talk.lines();
        }
        let answer = ResponseHead { status: StatusCode::OK, headers: &headers, date: None, length: None, is_end: true };
        talk.server.answer(talk.streams[request], &answer);
        talk.read();
        assert_eq!(talk.lines(), [format!("{expected} 200 content-type=application/json end")]);
        // The encoder adds the field to the table at its second occurrence. After the settings have emptied the table,
        // the encoder adds the field again.
        assert_eq!(talk.decoder.table_bytes(), if request == 0 { 0 } else { 32 + 12 + 16 });
    }
}
