//! Errors that clients may make, and their consequences: the cases of RFC 9113 that h2spec also tests, and others.

use super::*;
use crate::frame::PAYLOAD_BYTES_MAX;

/// A title, the frames that a client sends, and the expected lines.
type Case<'a> = (&'a str, Vec<Vec<u8>>, &'a [&'a str]);

/// Sends all frames on an open connection, and expects these lines.
fn check(cases: &[Case<'_>]) {
    for (title, frames, expected) in cases {
        let mut talk = Talk::open();
        frames.iter().for_each(|frame| talk.receive(frame));
        assert_eq!(talk.lines(), *expected, "{title}");
        let has_failed = expected.last().is_some_and(|line| line.starts_with("GOAWAY"));
        assert_eq!((talk.server.failed().is_some(), talk.server.is_finished()), (has_failed, has_failed), "{title}");
    }
}

/// Checks requests on an open connection whose heads end with `block`.
fn check_heads(cases: &[(&str, Vec<u8>, &[&str])]) {
    for (title, block, expected) in cases {
        let mut talk = Talk::open();
        talk.receive(&frame(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, 1, block));
        assert_eq!(talk.lines(), *expected, "{title}");
    }
}

#[test]
fn prefaces() {
    let whole = [PREFACE.as_slice(), &settings([])].concat();
    let cases: [(&[u8], &[&str]); 6] = [
        (&whole, &["SETTINGS", "WINDOW_UPDATE 0 34465", "SETTINGS ack"]),
        (b"GET / HTTP/1.1\r\n", &["SETTINGS", "WINDOW_UPDATE 0 34465", "GOAWAY 0 PROTOCOL_ERROR"]),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\rx", &["SETTINGS", "WINDOW_UPDATE 0 34465", "GOAWAY 0 PROTOCOL_ERROR"]),
        (b"PRI * HTTP/2.0\r\n\r\nS", &["SETTINGS", "WINDOW_UPDATE 0 34465"]),
        (&[PREFACE.as_slice(), &get(1)].concat(), &["SETTINGS", "WINDOW_UPDATE 0 34465", "GOAWAY 0 PROTOCOL_ERROR"]),
        (
            &[PREFACE.as_slice(), &frame(kind::SETTINGS, flag::ACK, 0, [])].concat(),
            &["SETTINGS", "WINDOW_UPDATE 0 34465", "GOAWAY 0 PROTOCOL_ERROR"],
        ),
    ];
    for (bytes, expected) in cases {
        let mut talk = Talk::new(LIMITS);
        talk.read();
        talk.receive(bytes);
        assert_eq!(talk.lines(), expected, "{}", bytes.escape_ascii());
        assert_eq!(talk.server.is_open(), expected.contains(&"SETTINGS ack"));
    }
}

#[test]
fn frames_of_any_kind() {
    let large = vec![0; PAYLOAD_BYTES_MAX + 1];
    let ping = frame(kind::PING, 0, 0, b"12345678");
    check(&[
        (
            "an unknown type",
            vec![frame(0xff, 0xff, 1, b"x"), frame(0x16, 0, 0, b""), ping.clone()],
            &["PING ack 12345678"],
        ),
        ("unknown flags", vec![frame(kind::PING, 0xfe, 0, b"12345678")], &["PING ack 12345678"]),
        ("the reserved bit", vec![frame(kind::PING, 0, 0x8000_0000, b"12345678")], &["PING ack 12345678"]),
        ("a frame that is too large", vec![frame(0xff, 0, 0, &large)], &["GOAWAY 0 FRAME_SIZE_ERROR"]),
        ("the head of one alone", vec![frame(kind::DATA, 0, 1, &large)[..9].to_vec()], &["GOAWAY 0 FRAME_SIZE_ERROR"]),
        ("nothing behind a failure", vec![frame(0, 0, 0, b""), ping.clone()], &["GOAWAY 0 PROTOCOL_ERROR"]),
        (
            "a promise",
            vec![frame(kind::PUSH_PROMISE, flag::END_HEADERS, 1, b"\0\0\0\x02")],
            &["GOAWAY 0 PROTOCOL_ERROR"],
        ),
        ("a client that goes", vec![frame(kind::GOAWAY, 0, 0, [0; 8]), ping], &["PING ack 12345678"]),
        ("a GOAWAY on a stream", vec![frame(kind::GOAWAY, 0, 1, [0; 8])], &["GOAWAY 0 PROTOCOL_ERROR"]),
        ("a GOAWAY that is cut off", vec![frame(kind::GOAWAY, 0, 0, [0; 7])], &["GOAWAY 0 FRAME_SIZE_ERROR"]),
    ]);
}

#[test]
fn streams_in_their_states() {
    let request = "request 1 GET https://a/ end";
    let open = "request 1 POST https://a/";
    check(&[
        ("idle: data", vec![data(1, "x")], &["GOAWAY 0 PROTOCOL_ERROR"]),
        ("idle: a reset", vec![reset(1)], &["GOAWAY 0 PROTOCOL_ERROR"]),
        ("idle: a window", vec![window_update(1, 1)], &["GOAWAY 0 PROTOCOL_ERROR"]),
        ("idle: a CONTINUATION", vec![frame(kind::CONTINUATION, 4, 1, GET)], &["GOAWAY 0 PROTOCOL_ERROR"]),
        ("idle: a priority", vec![frame(kind::PRIORITY, 0, 1, b"\0\0\0\0\x10"), get(1)], &[request]),
        ("skipped: data", vec![get(5), data(3, "x")], &["request 5 GET https://a/ end", "RST_STREAM 3 STREAM_CLOSED"]),
        (
            "half closed: data",
            vec![get(1), data(1, "x")],
            &[request, "reset 1 STREAM_CLOSED", "RST_STREAM 1 STREAM_CLOSED"],
        ),
        (
            "half closed: a head",
            vec![get(1), get(1)],
            &[request, "reset 1 STREAM_CLOSED", "RST_STREAM 1 STREAM_CLOSED"],
        ),
        ("half closed: a window", vec![get(1), window_update(1, 1)], &[request]),
        (
            "half closed: a CONTINUATION",
            vec![get(1), frame(kind::CONTINUATION, 4, 1, GET)],
            &[request, "GOAWAY 1 PROTOCOL_ERROR"],
        ),
        ("reset: data", vec![post(1), reset(1), data(1, "x")], &[open, "reset 1 CANCEL", "RST_STREAM 1 STREAM_CLOSED"]),
        ("reset: a head", vec![post(1), reset(1), get(1)], &[open, "reset 1 CANCEL", "GOAWAY 1 STREAM_CLOSED"]),
        (
            "reset: what says nothing any more",
            vec![post(1), reset(1), window_update(1, 5), reset(1), frame(kind::PRIORITY, 0, 1, [0; 5])],
            &[open, "reset 1 CANCEL"],
        ),
        ("even numbers", vec![get(2)], &["GOAWAY 0 PROTOCOL_ERROR"]),
        (
            "even numbers that were skipped",
            vec![get(5), get(2)],
            &["request 5 GET https://a/ end", "GOAWAY 5 PROTOCOL_ERROR"],
        ),
        ("data on them", vec![get(5), data(2, "x")], &["request 5 GET https://a/ end", "GOAWAY 5 PROTOCOL_ERROR"]),
        ("lower numbers", vec![get(5), get(3)], &["request 5 GET https://a/ end", "GOAWAY 5 STREAM_CLOSED"]),
        ("the highest number", vec![get(0x7fff_ffff)], &["request 2147483647 GET https://a/ end"]),
    ]);
}

#[test]
fn what_is_on_its_way_to_a_stream_that_we_reset_is_no_mistake() {
    let mut talk = Talk::open();
    talk.receive(&post(1));
    talk.server.reset(talk.streams[0], Reason::CANCEL);
    talk.receive(&[data(1, "x"), window_update(1, 1), reset(1)].concat());
    let trailers = frame(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, 1, field("a", "b"));
    talk.receive(&trailers);
    assert_eq!(talk.lines(), ["request 1 POST https://a/", "RST_STREAM 1 CANCEL"]);
}

#[test]
fn data_and_padding() {
    let open = "request 1 POST https://a/";
    let padded = |payload: &[u8]| frame(kind::DATA, flag::PADDED, 1, payload);
    check(&[
        ("none", vec![post(1), data(1, "abc")], &[open, "data 1 3"]),
        ("some", vec![post(1), padded(b"\x02abc\0\0")], &[open, "data 1 3"]),
        ("nothing else", vec![post(1), padded(b"\x02\0\0")], &[open, "data 1 0"]),
        ("too much", vec![post(1), padded(b"\x03\0\0")], &[open, "GOAWAY 1 PROTOCOL_ERROR"]),
        ("cut off", vec![post(1), padded(b"")], &[open, "GOAWAY 1 FRAME_SIZE_ERROR"]),
        ("data of the connection", vec![frame(kind::DATA, 0, 0, b"x")], &["GOAWAY 0 PROTOCOL_ERROR"]),
        (
            "the end",
            vec![post(1), frame(kind::DATA, flag::END_STREAM, 1, b"x"), data(1, "y")],
            &[open, "data 1 1 end", "reset 1 STREAM_CLOSED", "RST_STREAM 1 STREAM_CLOSED"],
        ),
    ]);
}

#[test]
fn heads_in_pieces() {
    let (begin, rest) = GET.split_at(3);
    let piece = |flags: u8, payload: &[u8]| frame(kind::CONTINUATION, flags, 1, payload);
    let begun = frame(kind::HEADERS, flag::END_STREAM, 1, begin);
    let request = "request 1 GET https://a/ end";
    let failed: &[&str] = &["GOAWAY 0 PROTOCOL_ERROR"];
    check(&[
        ("two", vec![begun.clone(), piece(4, rest)], &[request]),
        ("many", vec![begun.clone(), piece(0, &rest[..1]), piece(0, b""), piece(4, &rest[1..])], &[request]),
        ("another frame between", vec![begun.clone(), frame(kind::PING, 0, 0, [0; 8])], failed),
        ("a priority between", vec![begun.clone(), frame(kind::PRIORITY, 0, 1, [0; 5])], failed),
        ("an unknown frame between", vec![begun.clone(), frame(0x42, 0, 1, b"")], failed),
        ("another head between", vec![begun.clone(), get(3)], failed),
        ("of another stream", vec![begun.clone(), frame(kind::CONTINUATION, 4, 3, rest)], failed),
        ("of the connection", vec![begun.clone(), frame(kind::CONTINUATION, 4, 0, rest)], failed),
        ("behind the end", vec![begun.clone(), piece(4, rest), piece(4, rest)], &[request, "GOAWAY 1 PROTOCOL_ERROR"]),
        ("on and on", [vec![begun.clone()], vec![piece(0, b""); 65]].concat(), &["GOAWAY 0 ENHANCE_YOUR_CALM"]),
        ("too much", [vec![begun], vec![piece(0, &[0; 14_000]); 3]].concat(), &["GOAWAY 0 ENHANCE_YOUR_CALM"]),
        ("of the connection", vec![frame(kind::HEADERS, 5, 0, GET)], failed),
        ("broken", vec![frame(kind::HEADERS, 5, 1, b"\x82\x80")], &["GOAWAY 1 COMPRESSION_ERROR"]),
        ("padded", vec![frame(kind::HEADERS, 0x2d, 1, [b"\x01\0\0\0\0\x10", GET, b"\0"].concat())], &[request]),
        ("too much padding", vec![frame(kind::HEADERS, 0x0d, 1, [b"\x07", GET].concat())], failed),
        (
            "a priority that is cut off",
            vec![frame(kind::HEADERS, 0x25, 1, b"\0\0\0\0")],
            &["GOAWAY 0 FRAME_SIZE_ERROR"],
        ),
        (
            "a stream that depends on itself",
            vec![frame(kind::HEADERS, 0x25, 1, [b"\0\0\0\x01\x10", GET].concat())],
            &[request],
        ),
    ]);
}

#[test]
fn what_a_request_may_look_like() {
    const BAD: &[&str] = &["RST_STREAM 1 PROTOCOL_ERROR"];
    let fine: &[&str] = &["request 1 GET https://a/ end"];
    let with = |name: &str, value: &str| [GET, &field(name, value)].concat();
    let path = |path: &str| [&b"\x82\x87\x41\x01a"[..], &field(":path", path)].concat();
    check_heads(&[
        ("all of it", GET.to_vec(), fine),
        ("no authority", b"\x82\x87\x84".to_vec(), &["request 1 GET / end"]),
        ("in any order", b"\x41\x01a\x84\x87\x82".to_vec(), fine),
        ("a query", path("/x?y=z"), &["request 1 GET https://a/x?y=z end"]),
        (
            "another method",
            [&field(":method", "PATCH")[..], b"\x87\x84\x41\x01a"].concat(),
            &["request 1 PATCH https://a/ end"],
        ),
        (
            "all of a server",
            [&field(":method", "OPTIONS")[..], b"\x87\x41\x01a", &field(":path", "*")].concat(),
            &["request 1 OPTIONS https://a* end"],
        ),
        ("all of a server, with GET", path("*"), BAD),
        ("no method", b"\x87\x84\x41\x01a".to_vec(), BAD),
        ("no scheme", b"\x82\x84\x41\x01a".to_vec(), BAD),
        ("no path", b"\x82\x87\x41\x01a".to_vec(), BAD),
        ("an empty path", path(""), BAD),
        ("a path without a slash", path("x"), BAD),
        ("a path with a blank", path("/a b"), BAD),
        ("an empty method", [&field(":method", "")[..], b"\x87\x84"].concat(), BAD),
        ("a method with a blank", [&field(":method", "A B")[..], b"\x87\x84"].concat(), BAD),
        ("an authority with a user", [&b"\x82\x87\x84"[..], &field(":authority", "me@a")].concat(), BAD),
        ("an authority with a path", [&b"\x82\x87\x84"[..], &field(":authority", "a/b")].concat(), BAD),
        ("the method twice", [b"\x82", GET].concat(), BAD),
        ("the path twice", [b"\x84", GET].concat(), BAD),
        ("a status", [b"\x88", GET].concat(), BAD),
        ("an unknown pseudo header", [&field(":test", "ok")[..], GET].concat(), BAD),
        ("a pseudo header behind a header", [&b"\x82\x87"[..], &field("a", "b"), b"\x84"].concat(), BAD),
        ("upper case", with("X-Test", "ok"), BAD),
        ("a name with a blank", with("a b", "ok"), BAD),
        ("no name", with("", "ok"), BAD),
        ("a value with a line feed", with("a", "b\nc: d"), BAD),
        ("a value with a zero", with("a", "b\0"), BAD),
        ("a value that begins with a blank", with("a", " b"), BAD),
        ("an empty value", with("a", ""), fine),
        ("connection", with("connection", "keep-alive"), BAD),
        ("keep-alive", with("keep-alive", "5"), BAD),
        ("proxy-connection", with("proxy-connection", "keep-alive"), BAD),
        ("transfer-encoding", with("transfer-encoding", "chunked"), BAD),
        ("upgrade", with("upgrade", "websocket"), BAD),
        ("te", with("te", "gzip"), BAD),
        ("te with trailers", with("te", "trailers"), fine),
        ("a length", with("content-length", "0"), fine),
        ("a length and no body", with("content-length", "1"), BAD),
        ("a length that is none", with("content-length", "-1"), BAD),
        ("a length beyond 64 bits", with("content-length", "18446744073709551616"), BAD),
        ("two lengths", [with("content-length", "0"), field("content-length", "1")].concat(), BAD),
        ("one length twice", [with("content-length", "0"), field("content-length", "0")].concat(), fine),
        ("a tunnel", [field(":method", "CONNECT"), field(":authority", "a:1")].concat(), &["HEADERS 1 405 end"]),
        ("a tunnel with a path", [&field(":method", "CONNECT")[..], b"\x84\x41\x01a"].concat(), BAD),
        ("a tunnel to nowhere", field(":method", "CONNECT"), BAD),
    ]);
}

#[test]
fn cookies_are_joined() {
    let block = [GET, &field("cookie", "a=b"), &field("x", "y"), &field("cookie", "c=d")].concat();
    let mut talk = Talk::open();
    let mut cookies = Vec::new();
    talk.server.receive(&frame(kind::HEADERS, 5, 1, block), &mut |event| {
        if let Event::Request { head, .. } = event {
            cookies = head.headers().get_all("cookie").iter().cloned().collect();
        }
    });
    assert_eq!(cookies, ["a=b; c=d"]);
}

#[test]
fn heads_that_are_too_large() {
    let mut talk = Talk::open();
    // A field of the table, repeated: each occurrence is small on the wire and counts in full in the list.
    let kept = [&b"\x40\x01a\x7f\xa1\x1e"[..], &[b'x'; 4000]].concat();
    talk.receive(&frame(kind::HEADERS, 5, 1, [GET, &kept, &[0xbe; 8]].concat()));
    assert_eq!(talk.lines(), ["request 1 GET https://a/ end"]);
    talk.receive(&frame(kind::HEADERS, 5, 3, [GET, &kept, &[0xbe; 12_000]].concat()));
    assert_eq!(talk.lines(), ["HEADERS 3 431 end"]);
    // The client's and the server's tables still agree.
    talk.receive(&frame(kind::HEADERS, 4, 5, [POST, b"\xbf\x7f\x00\x01y"].concat()));
    assert_eq!(talk.lines(), ["request 5 POST https://a/"]);
    talk.receive(&frame(kind::HEADERS, 4, 7, [POST, &kept, &[0xbe; 12_000]].concat()));
    assert_eq!(talk.lines(), ["HEADERS 7 431 end", "RST_STREAM 7 NO_ERROR"]);
    assert_eq!(talk.server.streams(), 2);
}

#[test]
fn bodies_and_what_follows_them() {
    let open = "request 1 POST https://a/";
    let ending = |bytes: &str| frame(kind::DATA, flag::END_STREAM, 1, bytes);
    let announced = frame(kind::HEADERS, 4, 1, [POST, &field("content-length", "4")].concat());
    let trailers = |flags: u8, block: &[u8]| frame(kind::HEADERS, flags, 1, block);
    let refused: &[&str] = &[open, "reset 1 PROTOCOL_ERROR", "RST_STREAM 1 PROTOCOL_ERROR"];
    let (fine, secret) = (field("x-sum", "1"), field(":path", "/"));
    check(&[
        ("as announced", vec![announced.clone(), data(1, "ab"), ending("cd")], &[open, "data 1 2", "data 1 2 end"]),
        ("an empty end", vec![announced.clone(), data(1, "abcd"), ending("")], &[open, "data 1 4", "data 1 0 end"]),
        ("more", vec![announced.clone(), data(1, "abcde")], refused),
        ("less", vec![announced.clone(), ending("abc")], refused),
        ("less, and trailers", vec![announced.clone(), trailers(5, &fine)], refused),
        ("trailers", vec![post(1), data(1, "ab"), trailers(5, &fine)], &[open, "data 1 2", "data 1 0 end"]),
        (
            "trailers as announced",
            vec![announced, data(1, "abcd"), trailers(5, &fine)],
            &[open, "data 1 4", "data 1 0 end"],
        ),
        ("trailers that are not the end", vec![post(1), trailers(4, &fine)], refused),
        ("a path in trailers", vec![post(1), trailers(5, &secret)], refused),
        ("upper case in trailers", vec![post(1), trailers(5, &field("X", "1"))], refused),
    ]);
}

#[test]
fn small_frames_of_a_fixed_size() {
    let request = "request 1 GET https://a/ end";
    let size: &[&str] = &["GOAWAY 0 FRAME_SIZE_ERROR"];
    check(&[
        ("a ping", vec![frame(kind::PING, 0, 0, [0; 7])], size),
        ("a large ping", vec![frame(kind::PING, 0, 0, [0; 9])], size),
        ("a ping on a stream", vec![get(1), frame(kind::PING, 0, 1, [0; 8])], &[request, "GOAWAY 1 PROTOCOL_ERROR"]),
        ("an answer to no ping", vec![frame(kind::PING, flag::ACK, 0, [0; 8])], &[]),
        ("a reset", vec![get(1), frame(kind::RST_STREAM, 0, 1, [0; 3])], &[request, "GOAWAY 1 FRAME_SIZE_ERROR"]),
        ("a reset of the connection", vec![frame(kind::RST_STREAM, 0, 0, [0; 4])], &["GOAWAY 0 PROTOCOL_ERROR"]),
        (
            "a priority",
            vec![get(1), frame(kind::PRIORITY, 0, 1, [0; 4])],
            &[request, "reset 1 FRAME_SIZE_ERROR", "RST_STREAM 1 FRAME_SIZE_ERROR"],
        ),
        ("a priority of the connection", vec![frame(kind::PRIORITY, 0, 0, [0; 5])], &["GOAWAY 0 PROTOCOL_ERROR"]),
        ("a window", vec![frame(kind::WINDOW_UPDATE, 0, 0, [0; 3])], size),
        ("settings", vec![settings([0; 5])], size),
        ("settings on a stream", vec![frame(kind::SETTINGS, 0, 1, [])], &["GOAWAY 0 PROTOCOL_ERROR"]),
        ("settings in an acknowledgement", vec![frame(kind::SETTINGS, flag::ACK, 0, [0; 6])], size),
        ("settings that make no sense", vec![settings([0, 2, 0, 0, 0, 2])], &["GOAWAY 0 PROTOCOL_ERROR"]),
        ("a window setting beyond 31 bits", vec![settings([0, 4, 0x80, 0, 0, 0])], &["GOAWAY 0 FLOW_CONTROL_ERROR"]),
        ("unknown settings", vec![settings([0, 99, 1, 2, 3, 4])], &["SETTINGS ack"]),
    ]);
}

#[test]
fn windows() {
    let request = "request 1 GET https://a/ end";
    let most = 0x7fff_ffff - 65_535;
    let raised = settings([0, 4, 0x7f, 0xff, 0xff, 0xff]);
    check(&[
        ("by nothing", vec![window_update(0, 0)], &["GOAWAY 0 PROTOCOL_ERROR"]),
        ("as far as it goes", vec![window_update(0, most)], &[]),
        ("too far", vec![window_update(0, most), window_update(0, 1)], &["GOAWAY 0 FLOW_CONTROL_ERROR"]),
        (
            "a stream's by nothing",
            vec![get(1), window_update(1, 0)],
            &[request, "reset 1 PROTOCOL_ERROR", "RST_STREAM 1 PROTOCOL_ERROR"],
        ),
        (
            "a stream's too far",
            vec![get(1), window_update(1, most + 1)],
            &[request, "reset 1 FLOW_CONTROL_ERROR", "RST_STREAM 1 FLOW_CONTROL_ERROR"],
        ),
        (
            "a stream's too far by a setting",
            vec![get(1), window_update(1, 1), raised],
            &[request, "GOAWAY 1 FLOW_CONTROL_ERROR"],
        ),
    ]);
}

#[test]
fn more_than_the_windows_we_gave() {
    let piece = |stream: u32| data(stream, [0; 14_000]);
    let mut talk = Talk::open();
    talk.receive(&[post(1), piece(1), piece(1), piece(1), piece(1), piece(1)].concat());
    talk.lines();
    talk.receive(&data(1, "x"));
    assert_eq!(talk.lines(), ["reset 1 FLOW_CONTROL_ERROR", "RST_STREAM 1 FLOW_CONTROL_ERROR"]);
    talk.receive(&[post(3), piece(3), piece(3)].concat());
    talk.lines();
    talk.receive(&data(3, [0; 1_999]));
    assert_eq!(talk.lines(), ["data 3 1999"]);
    talk.receive(&data(3, [0; 2]));
    assert_eq!(talk.lines(), ["GOAWAY 3 FLOW_CONTROL_ERROR"], "the byte that came too much had been given back");
}

#[test]
fn streams_at_a_time() {
    let mut talk = Talk::open_with(Limits { streams_max: 2, ..LIMITS });
    talk.receive(&[get(1), get(3), get(5)].concat());
    let (first, second) = ("request 1 GET https://a/ end", "request 3 GET https://a/ end");
    assert_eq!(talk.lines(), [first, second, "RST_STREAM 5 REFUSED_STREAM"]);
    talk.answer(0, true);
    talk.receive(&get(7));
    assert_eq!(talk.lines(), ["request 7 GET https://a/ end", "HEADERS 1 200 end"]);
}

#[test]
fn floods() {
    let idle = |frame: Vec<u8>| (frame, "GOAWAY 1 ENHANCE_YOUR_CALM");
    for (frame, expected) in [
        idle(frame(kind::PING, 0, 0, [0; 8])),
        idle(frame(kind::PING, flag::ACK, 0, [0; 8])),
        idle(settings([])),
        idle(frame(kind::SETTINGS, flag::ACK, 0, [])),
        idle(frame(kind::PRIORITY, 0, 1, [0; 5])),
        idle(frame(0x42, 0, 1, [])),
        idle(data(1, "")),
        idle(frame(kind::DATA, flag::PADDED, 1, [0])),
        idle(window_update(0, 1)),
        idle(window_update(1, 1)),
        idle(frame(kind::GOAWAY, 0, 0, [0; 8])),
    ] {
        let mut talk = Talk::open();
        talk.receive(&post(1));
        for _ in 0..9_900 {
            talk.receive(&frame);
        }
        assert_eq!(talk.server.failed(), None);
        talk.server.tick();
        for _ in 0..9_900 {
            talk.receive(&frame);
        }
        assert_eq!(talk.server.failed(), None, "that was another period");
        for _ in 0..200 {
            talk.receive(&frame);
        }
        assert_eq!(talk.lines().last().unwrap(), expected, "{frame:?}");
    }
}

#[test]
fn streams_that_are_opened_and_reset() {
    let mut talk = Talk::open_with(Limits { streams_max: 10, ..LIMITS });
    for number in 0..74 {
        talk.receive(&[get(2 * number + 1), reset(2 * number + 1)].concat());
    }
    // A client that lets enough requests be answered may cancel further requests.
    talk.receive(&get(201));
    talk.answer(74, true);
    talk.receive(&[get(203), reset(203)].concat());
    assert_eq!(talk.server.failed(), None);
    // If the client cancels a request whose answer has begun, the request does not count as cancelled.
    talk.receive(&get(205));
    talk.answer(76, false);
    talk.receive(&reset(205));
    assert_eq!(talk.server.failed(), None);
    talk.receive(&[get(207), reset(207)].concat());
    assert_eq!(talk.lines().last().unwrap(), "GOAWAY 207 ENHANCE_YOUR_CALM");
}

#[test]
fn many_mistakes() {
    let mut talk = Talk::open();
    let bad = |number: u32| frame(kind::HEADERS, 5, number, b"\x82");
    (0..1_024).for_each(|number| talk.receive(&bad(2 * number + 1)));
    talk.server.tick();
    (1_024..2_048).for_each(|number| talk.receive(&bad(2 * number + 1)));
    assert_eq!(talk.server.failed(), None, "they are counted anew in each period");
    talk.receive(&bad(4_097));
    assert_eq!(talk.lines().last().unwrap(), "GOAWAY 4097 ENHANCE_YOUR_CALM");
}
