//! Exec, attach and port forwarding, in every version and over both protocols, as clients use them.

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use holdfast_streams::forward::{Forwards, connect};
use holdfast_streams::remote::{CommandOutcome, CommandStreams, ProtocolVersion, Remote, Resizes, Session, Size};
use holdfast_streams::spdy::{Headers, Spdy};
use holdfast_streams::upgrade::{Agreed, UpgradeProtocol};
use holdfast_streams::websocket::{MessageForm, Tunnel, send_all};
use holdfast_streams::{ConnectionLimits, Input};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;

const ALL: CommandStreams = CommandStreams { stdin: true, stdout: true, stderr: true, tty: false };

fn agreed(wire: UpgradeProtocol, protocol: &str) -> Agreed {
    Agreed { wire, protocol: protocol.to_owned() }
}

/// Echoes stdin, reports it on stderr, and ends with exit code 3.
async fn command(socket: DuplexStream, agreed: Agreed, wanted: CommandStreams) {
    let mut session = Session::accept(socket, &agreed, wanted, ConnectionLimits::default()).await.expect("a session");
    let (stdin, stdout, stderr) = (session.stdin.take(), session.stdout.take(), session.stderr.take());
    let (mut stdin, mut stdout, mut stderr) = (stdin.expect("in"), stdout.expect("out"), stderr.expect("err"));
    let copied = tokio::io::copy(&mut stdin, &mut stdout).await.expect("copied");
    stderr.write_all(format!("{copied} bytes").as_bytes()).await.expect("told");
    drop((stdin, stdout, stderr));
    let outcome = CommandOutcome::exit(3, "error executing command [false], exit code 3");
    session.finish(&outcome).await.expect("finished");
}

async fn all(input: Option<Input>) -> String {
    let mut text = String::new();
    // Reading may fail, because the other side may reset a stream after its end.
    _ = input.expect("a stream").read_to_string(&mut text).await;
    text
}

#[tokio::test]
async fn commands_over_spdy_give_all_output_before_their_outcome() {
    for (protocol, outcome) in [
        ("channel.k8s.io", "error executing command [false], exit code 3"),
        ("v2.channel.k8s.io", "error executing command [false], exit code 3"),
        ("v3.channel.k8s.io", "error executing command [false], exit code 3"),
        (
            "v4.channel.k8s.io",
            r#"{"details":{"causes":[{"message":"3","reason":"ExitCode"}]},"message":"command terminated with non-zero exit code: error executing command [false], exit code 3","metadata":{},"reason":"NonZeroExitCode","status":"Failure"}"#,
        ),
    ] {
        let (near, far) = duplex(4096);
        let running = tokio::spawn(command(far, agreed(UpgradeProtocol::Spdy, protocol), ALL));
        let remote =
            Remote::open(near, ProtocolVersion::of(protocol), ALL, ConnectionLimits::default()).await.expect("streams");
        let mut stdin = remote.stdin.expect("stdin");
        let text = "hello ".repeat(50_000);
        let sent = text.clone();
        tokio::spawn(async move {
            stdin.write_all(sent.as_bytes()).await.expect("sent");
            stdin.shutdown().await.expect("half-closed");
        });
        let (stdout, stderr, error) = tokio::join!(all(remote.stdout), all(remote.stderr), all(Some(remote.error)));
        assert!(stdout == text, "{protocol}: {} bytes", stdout.len());
        assert_eq!((stderr.as_str(), error.as_str()), ("300000 bytes", outcome), "{protocol}");
        running.await.expect("no panic");
    }
}

async fn client(socket: DuplexStream) -> WebSocketStream<DuplexStream> {
    WebSocketStream::from_raw_socket(socket, Role::Client, None).await
}

/// All messages until the server ends the connection.
async fn messages(socket: &mut WebSocketStream<DuplexStream>) -> Vec<Bytes> {
    messages_and_end(socket).await.0
}

/// All messages, and the code of the close message.
async fn messages_and_end(socket: &mut WebSocketStream<DuplexStream>) -> (Vec<Bytes>, Option<u16>) {
    let (mut all, mut end) = (Vec::new(), None);
    while let Some(Ok(message)) = socket.next().await {
        match message {
            Message::Binary(bytes) => all.push(bytes),
            Message::Text(text) => all.push(text.into()),
            Message::Close(frame) => end = frame.map(|frame| frame.code.into()),
            _ => {}
        }
    }
    (all, end)
}

#[tokio::test]
async fn a_channel_of_version_5_can_be_ended() {
    let (near, far) = duplex(4096);
    let running = tokio::spawn(command(far, agreed(UpgradeProtocol::WebSocket, "v5.channel.k8s.io"), ALL));
    let mut socket = client(near).await;
    for message in [&b"\0hello "[..], b"\x09ignored", b"", b"\0", b"\0you", b"\xff\0", b"\0late"] {
        socket.send(Message::Binary(Bytes::from_static(message))).await.expect("sent");
    }
    let (all, end) = messages_and_end(&mut socket).await;
    assert_eq!(end, Some(1000), "clients take any other end for a fault");
    let texts: Vec<_> = all.iter().map(|bytes| String::from_utf8_lossy(bytes)).collect();
    assert_eq!(texts[0], "\u{1}", "the greeting");
    let stdout: String = texts.iter().filter_map(|text| text.strip_prefix('\u{1}')).collect();
    assert_eq!(stdout, "hello you");
    assert_eq!(texts[texts.len() - 2], "\u{2}9 bytes");
    assert!(texts[texts.len() - 1].starts_with("\u{3}{") && texts[texts.len() - 1].contains("NonZeroExitCode"));
    running.await.expect("no panic");
}

#[tokio::test]
async fn version_4_and_those_before_it_have_no_ends() {
    for (protocol, send, stdout, last) in [
        ("v4.channel.k8s.io", Message::Binary(Bytes::from_static(b"\0hi")), "\u{1}hi", "\u{3}{"),
        ("v4.base64.channel.k8s.io", Message::Text("0aGk=".into()), "1aGk=", "3eyJ"),
        ("channel.k8s.io", Message::Binary(Bytes::from_static(b"\0hi")), "\u{1}hi", "\u{3}gone"),
        ("", Message::Binary(Bytes::from_static(b"\0hi")), "\u{1}hi", "\u{3}gone"),
        ("base64.channel.k8s.io", Message::Text("0aGk=".into()), "1aGk=", "3Z29uZQ=="),
    ] {
        let (near, far) = duplex(4096);
        let agreed = agreed(UpgradeProtocol::WebSocket, protocol);
        tokio::spawn(async move {
            let mut session = Session::accept(far, &agreed, ALL, ConnectionLimits::default()).await.expect("a session");
            let mut two = [0; 2];
            session.stdin.as_mut().expect("stdin").read_exact(&mut two).await.expect("read");
            session.stdout.take().expect("stdout").write_all(&two).await.expect("written");
            session.finish(&CommandOutcome::failed("gone")).await.expect("finished");
        });
        let mut socket = client(near).await;
        socket.send(send).await.expect("sent");
        let all = messages(&mut socket).await;
        let texts: Vec<_> = all.iter().map(|bytes| String::from_utf8_lossy(bytes).into_owned()).collect();
        assert_eq!((texts.len(), texts[1].as_str()), (3, stdout), "{protocol}");
        assert!(texts[2].starts_with(last), "{protocol}: {}", texts[2]);
    }
}

#[tokio::test]
async fn messages_that_make_no_sense_end_the_connection() {
    for (protocol, message) in [
        ("v5.channel.k8s.io", Message::Binary(Bytes::from_static(b"\xff"))),
        ("v5.channel.k8s.io", Message::Binary(Bytes::from_static(b"\xff\0\0"))),
        ("v5.channel.k8s.io", Message::Binary(Bytes::from_static(b"\xff\x09"))),
        ("v4.base64.channel.k8s.io", Message::Text("0!".into())),
        ("v4.channel.k8s.io", Message::Binary(Bytes::from(vec![0; 5 << 20]))),
    ] {
        let (near, far) = duplex(4096);
        let agreed = agreed(UpgradeProtocol::WebSocket, protocol);
        let session = tokio::spawn(async move {
            Session::accept(far, &agreed, ALL, ConnectionLimits::default()).await.expect("a session")
        });
        let mut socket = client(near).await;
        let session = session.await.expect("no panic");
        _ = timeout(Duration::from_secs(10), socket.send(message)).await.expect("not for ever");
        timeout(Duration::from_secs(10), session.closed().cancelled()).await.expect("it ends");
    }
}

#[tokio::test]
async fn pings_are_answered_though_nobody_reads_what_was_sent() {
    let (near, far) = duplex(1 << 20);
    let agreed = agreed(UpgradeProtocol::WebSocket, "v5.channel.k8s.io");
    let limits = ConnectionLimits { pong: Duration::from_millis(20), ..ConnectionLimits::default() };
    let session = tokio::spawn(async move { Session::accept(far, &agreed, ALL, limits).await.expect("a session") });
    let mut socket = client(near).await;
    let _session = session.await.expect("no panic");
    socket.send(Message::Ping(Bytes::from_static(b"there?"))).await.expect("sent");
    for _ in 0..20 {
        socket.send(Message::Binary(Bytes::from(vec![0; 30_000]))).await.expect("sent");
    }
    let mut pongs = 0;
    while pongs < 5 {
        let message = timeout(Duration::from_secs(60), socket.next()).await.expect("an answer").expect("open");
        pongs += u32::from(matches!(message.expect("no fault"), Message::Pong(text) if &text[..] == b"there?"));
    }
}

#[tokio::test]
async fn sizes_of_a_terminal_come_one_by_one() {
    let wanted = CommandStreams { stdin: true, stdout: true, stderr: true, tty: true };
    let (near, far) = duplex(4096);
    let accepting = tokio::spawn(async move {
        Session::accept(far, &agreed(UpgradeProtocol::Spdy, "v4.channel.k8s.io"), wanted, ConnectionLimits::default())
            .await
    });
    let remote = Remote::open(near, ProtocolVersion::V4, wanted, ConnectionLimits::default()).await.expect("streams");
    let mut session = accepting.await.expect("no panic").expect("a session");
    assert!(session.stderr.is_none() && remote.stderr.is_none(), "a terminal has one output");
    let mut resize = remote.resize.expect("a terminal has a size");
    resize.write_all(b"{\"Width\":80,\"Height\":24}\n{\"Width\":1").await.expect("sent");
    let mut sizes = Resizes::new(session.resize.take().expect("sizes"));
    assert_eq!(sizes.next().await, Some(Size { width: 80, height: 24 }));
    resize.write_all(b"00,\"Height\":30}rubbish").await.expect("sent");
    assert_eq!(sizes.next().await, Some(Size { width: 100, height: 30 }));
    assert_eq!(sizes.next().await, None);
    let mut sizes = Resizes::new(Box::new(std::io::Cursor::new(" ".repeat(1 << 20))));
    assert_eq!(sizes.next().await, None, "no end of it");
}

/// A client may resize its terminal at any time: also while nobody reads the sizes, or after invalid data.
#[tokio::test]
async fn sizes_of_a_closed_terminal_are_dropped() {
    const SIZE: &[u8] = b"\x04{\"Width\":80,\"Height\":24}";
    let wanted = CommandStreams { stdin: true, stdout: true, stderr: false, tty: true };
    for protocol in ["v5.channel.k8s.io", "v4.channel.k8s.io"] {
        let (near, far) = duplex(1 << 20);
        let agreed = agreed(UpgradeProtocol::WebSocket, protocol);
        let accepting =
            tokio::spawn(async move { Session::accept(far, &agreed, wanted, ConnectionLimits::default()).await });
        let mut socket = client(near).await;
        let mut session = accepting.await.expect("no panic").expect("a session");
        session.resize = None;
        // The client sends more sizes than the memory for unread data can contain. Nobody reads the sizes, so they are
        // dropped.
        for _ in 0..20_000 {
            socket.send(Message::Binary(Bytes::from_static(SIZE))).await.expect("sent");
        }
        socket.send(Message::Binary(Bytes::from_static(b"\0hello"))).await.expect("sent");
        let mut five = [0; 5];
        session.stdin.take().expect("stdin").read_exact(&mut five).await.expect("read");
        assert_eq!(&five, b"hello", "{protocol}");
    }
    let (near, far) = duplex(1 << 20);
    let agreed = agreed(UpgradeProtocol::Spdy, "v4.channel.k8s.io");
    let accepting =
        tokio::spawn(async move { Session::accept(far, &agreed, wanted, ConnectionLimits::default()).await });
    let mut remote =
        Remote::open(near, ProtocolVersion::V4, wanted, ConnectionLimits::default()).await.expect("streams");
    let mut session = accepting.await.expect("no panic").expect("a session");
    session.resize = None;
    let mut resize = remote.resize.take().expect("a terminal has a size");
    for _ in 0..20_000 {
        // The session has dropped the stream of sizes, which resets the stream, so the client's write may fail.
        _ = resize.write_all(&SIZE[1..]).await;
    }
    remote.stdin.take().expect("stdin").write_all(b"hello").await.expect("sent");
    let mut five = [0; 5];
    session.stdin.take().expect("stdin").read_exact(&mut five).await.expect("read");
    assert_eq!(&five, b"hello");
}

#[tokio::test]
async fn a_client_that_opens_too_few_streams_is_not_waited_for() {
    let (near, far) = duplex(4096);
    let (spdy, _) = Spdy::client(near, ConnectionLimits::default());
    let accepting = tokio::spawn(async move {
        let limits = ConnectionLimits { reply: Duration::from_millis(500), ..ConnectionLimits::default() };
        Session::accept(far, &agreed(UpgradeProtocol::Spdy, "v4.channel.k8s.io"), ALL, limits).await
    });
    let kind = |kind: &str| Headers::new().with("streamType", kind);
    let _error = spdy.open(kind("error")).await.expect("opened");
    assert!(spdy.open(kind("error")).await.is_err(), "there is one");
    assert!(spdy.open(kind("rubbish")).await.is_err());
    let late = accepting.await.expect("no panic").err().expect("no session");
    assert_eq!(late.to_string(), "timed out waiting for client to create streams");
}

/// Port 7 echoes; nothing listens on other ports.
async fn ports(socket: DuplexStream, agreed: Agreed, ports: &[u16]) {
    let mut forwards = Forwards::accept(socket, &agreed, ports, ConnectionLimits::default()).await.expect("accepted");
    while let Some(mut forward) = forwards.next().await {
        tokio::spawn(async move {
            if forward.port != 7 {
                let why = format!("nobody listens on {}", forward.port);
                return forward.fail(&why).await;
            }
            let mut all = Vec::new();
            forward.data.read_to_end(&mut all).await.expect("read");
            forward.data.write_all(&all).await.expect("written");
        });
    }
}

async fn forwards(spdy: &Spdy) {
    for at in 0..20 {
        let (mut data, mut error) = connect(spdy, 7, &at.to_string()).await.expect("connected");
        data.write_all(b"hello").await.expect("sent");
        data.shutdown().await.expect("half-closed");
        let (mut text, mut why) = (String::new(), String::new());
        data.read_to_string(&mut text).await.expect("read");
        error.read_to_string(&mut why).await.expect("read");
        assert_eq!((text.as_str(), why.as_str()), ("hello", ""));
    }
    let (_data, mut error) = connect(spdy, 9, "x").await.expect("connected");
    let mut why = String::new();
    error.read_to_string(&mut why).await.expect("read");
    assert_eq!(why, "nobody listens on 9");
}

#[tokio::test]
async fn ports_are_forwarded_over_spdy() {
    let (near, far) = duplex(4096);
    let serving = tokio::spawn(ports(far, agreed(UpgradeProtocol::Spdy, "portforward.k8s.io"), &[]));
    let (spdy, _) = Spdy::client(near, ConnectionLimits::default());
    forwards(&spdy).await;
    let headers = Headers::new().with("streamType", "error").with("port", "70000");
    assert!(spdy.open(headers).await.is_err(), "no such port");
    // The oldest clients send no request id.
    let headers = |kind: &str| Headers::new().with("streamType", kind).with("port", "7");
    let _error = spdy.open(headers("error")).await.expect("opened");
    let mut data = spdy.open(headers("data")).await.expect("opened");
    data.write_all(b"old").await.expect("sent");
    data.shutdown().await.expect("half-closed");
    let mut text = String::new();
    data.read_to_string(&mut text).await.expect("read");
    assert_eq!(text, "old");
    drop((data, _error, spdy));
    timeout(Duration::from_secs(30), serving).await.expect("it ends").expect("no panic");
}

#[tokio::test]
async fn ports_are_forwarded_in_a_tunnel() {
    let (near, far) = duplex(4096);
    let serving = tokio::spawn(ports(far, agreed(UpgradeProtocol::WebSocket, "SPDY/3.1+portforward.k8s.io"), &[]));
    let (spdy, _) = Spdy::client(Tunnel::client(near).await, ConnectionLimits::default());
    forwards(&spdy).await;
    drop(spdy);
    timeout(Duration::from_secs(30), serving).await.expect("it ends").expect("no panic");
}

#[tokio::test]
async fn a_text_message_ends_a_tunnel() {
    let (near, far) = duplex(4096);
    let serving = tokio::spawn(ports(far, agreed(UpgradeProtocol::WebSocket, "SPDY/3.1+portforward.k8s.io"), &[]));
    let mut socket = client(near).await;
    socket.send(Message::Text("x".into())).await.expect("sent");
    timeout(Duration::from_secs(30), serving).await.expect("it ends").expect("no panic");
}

#[tokio::test]
async fn ports_are_forwarded_as_channels() {
    let (near, far) = duplex(4096);
    tokio::spawn(async move {
        let agreed = agreed(UpgradeProtocol::WebSocket, "v4.channel.k8s.io");
        let mut forwards =
            Forwards::accept(far, &agreed, &[7, 0x1234], ConnectionLimits::default()).await.expect("accepted");
        let mut first = forwards.next().await.expect("the first");
        let mut five = [0; 5];
        first.data.read_exact(&mut five).await.expect("read");
        first.data.write_all(&five).await.expect("written");
        let second = forwards.next().await.expect("the second");
        second.fail("nobody listens").await;
        // The WebSocket is closed when the last of its forwarded connections is dropped.
        drop(first);
        assert!(forwards.next().await.is_none());
    });
    let mut socket = client(near).await;
    socket.send(Message::Binary(Bytes::from_static(b"\0hello"))).await.expect("sent");
    let mut all = Vec::new();
    while all.len() < 6 {
        match socket.next().await.expect("open").expect("no fault") {
            Message::Binary(bytes) => all.push(bytes),
            other => panic!("{other:?}"),
        }
    }
    let ports = [&b"\0\x07\0"[..], b"\x01\x07\0", b"\x02\x34\x12", b"\x03\x34\x12"];
    assert_eq!(all[..4], ports);
    assert_eq!(all[4..], [&b"\0hello"[..], b"\x03nobody listens"]);
    assert!(matches!(socket.next().await, Some(Ok(Message::Close(_)))));
    let (_, far) = duplex(10);
    let agreed = agreed(UpgradeProtocol::WebSocket, "");
    let refused = Forwards::accept(far, &agreed, &[1; 128], ConnectionLimits::default()).await.err().expect("too many");
    assert_eq!(refused.to_string(), "between 1 and 127 ports can be forwarded, not 128");
}

#[tokio::test]
async fn a_client_that_says_goodbye_is_answered() {
    let (near, far) = duplex(4096);
    tokio::spawn(ports(far, agreed(UpgradeProtocol::WebSocket, "v4.channel.k8s.io"), &[80]));
    let mut socket = client(near).await;
    socket.send(Message::Close(None)).await.expect("sent");
    let mut last = None;
    // If the server closed the connection without a close message, `next` would return an error.
    while let Some(message) = socket.next().await {
        last = Some(message.expect("an end as both sides have agreed"));
    }
    assert!(matches!(last, Some(Message::Close(_))), "{last:?}");
}

#[tokio::test]
async fn what_was_sent_before_the_other_side_left_is_read() {
    // The pieces exceed what a connection buffers at a time.
    const PIECES: usize = 60;
    for (protocol, says_goodbye) in
        [("v4.channel.k8s.io", true), ("v4.channel.k8s.io", false), ("v5.channel.k8s.io", false)]
    {
        let (near, far) = duplex(1 << 20);
        let agreed = agreed(UpgradeProtocol::WebSocket, protocol);
        let accepting =
            tokio::spawn(async move { Session::accept(far, &agreed, ALL, ConnectionLimits::default()).await });
        let mut socket = client(near).await;
        let mut session = accepting.await.expect("no panic").expect("a session");
        let piece = Bytes::from([&[0][..], &[b'x'; 10_000]].concat());
        for _ in 0..PIECES {
            socket.send(Message::Binary(piece.clone())).await.expect("sent");
        }
        // The client has already disconnected when the server answers this ping.
        socket.send(Message::Ping(Bytes::from_static(b"there?"))).await.expect("sent");
        socket.send(Message::Binary(Bytes::from_static(b"\0end"))).await.expect("sent");
        if says_goodbye {
            socket.send(Message::Close(None)).await.expect("sent");
        }
        drop(socket);
        session.stdout.take().expect("stdout").write_all(b"output").await.expect("queued");
        if !says_goodbye {
            session.closed().cancelled().await;
        }
        let mut all = Vec::new();
        session.stdin.take().expect("stdin").read_to_end(&mut all).await.expect("an end");
        assert_eq!(all.len(), PIECES * 10_000 + 3, "{protocol} {says_goodbye}");
    }
}

#[tokio::test]
async fn logs_are_one_channel() {
    for (form, expected) in [(MessageForm::Binary, "a line\n"), (MessageForm::Base64, "YSBsaW5lCg==")] {
        let (near, far) = duplex(4096);
        let sending = tokio::spawn(send_all(far, form, &b"a line\n"[..], ConnectionLimits::default()));
        let all = messages(&mut client(near).await).await;
        assert_eq!(all, [expected.as_bytes()]);
        sending.await.expect("no panic");
    }
}
