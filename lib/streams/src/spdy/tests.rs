use super::frame::{Decoder, Encoder, Frame};
use super::{ConnectionLimits, Headers, Spdy};
use bytes::{Bytes, BytesMut};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::time::timeout;

fn pair() -> (Spdy, Spdy, super::Incoming) {
    let (near, far) = duplex(1000);
    let (client, _) = Spdy::client(near, ConnectionLimits::default());
    let (server, incoming) = Spdy::server(far, ConnectionLimits::default());
    (client, server, incoming)
}

fn named(name: &str) -> Headers {
    Headers::new().with("streamType", name)
}

#[tokio::test]
async fn streams_carry_bytes_both_ways_with_half_closes() {
    let (client, server, mut incoming) = pair();
    let echo = tokio::spawn(async move {
        while let Some(asked) = incoming.next().await {
            assert_eq!(asked.headers().get("streamtype"), Some("data"));
            let mut stream = asked.accept().await.expect("accepted");
            tokio::spawn(async move {
                let mut all = Vec::new();
                stream.read_to_end(&mut all).await.expect("to the half-close");
                stream.write_all(&all).await.expect("sent back");
                stream.shutdown().await.expect("ended");
            });
        }
    });
    let sent: Vec<u8> = (0..200_000u32).map(|at| at.to_le_bytes()[1]).collect();
    let mut streams = Vec::new();
    for _ in 0..5 {
        streams.push(client.open(named("data")).await.expect("opened"));
    }
    for mut stream in streams {
        stream.write_all(&sent).await.expect("sent");
        stream.shutdown().await.expect("half-closed");
        let mut back = Vec::new();
        stream.read_to_end(&mut back).await.expect("read");
        assert!(back == sent, "{} bytes", back.len());
    }
    let closed = server.closed();
    drop((client, server));
    timeout(Duration::from_secs(30), closed.cancelled()).await.expect("nobody holds the connection");
    timeout(Duration::from_secs(30), echo).await.expect("ends").expect("no panic");
}

#[tokio::test]
async fn what_was_written_arrives_though_all_is_dropped_at_once() {
    let (client, server, mut incoming) = pair();
    tokio::spawn(async move {
        let mut stream = incoming.next().await.expect("asked").accept().await.expect("accepted");
        stream.write_all(&[7; 100_000]).await.expect("sent");
        drop((stream, incoming, server));
    });
    let mut stream = client.open(named("data")).await.expect("opened");
    let mut all = Vec::new();
    stream.read_to_end(&mut all).await.expect("to the end");
    assert_eq!(all.len(), 100_000);
}

#[tokio::test]
async fn what_is_not_accepted_is_refused() {
    let (client, _server, mut incoming) = pair();
    tokio::spawn(async move { drop(incoming.next().await) });
    let refused = client.open(named("data")).await.err().expect("refused");
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionReset);
    // The receiver of new streams was dropped, so the other side accepts no more streams.
    assert!(client.open(named("data")).await.is_err());
}

#[tokio::test]
async fn a_reset_fails_the_other_side() {
    let (client, _server, mut incoming) = pair();
    let mut near = {
        let accepting = tokio::spawn(async move { incoming.next().await.expect("asked").accept().await });
        let near = client.open(named("data")).await.expect("opened");
        drop(accepting.await.expect("no panic").expect("accepted"));
        near
    };
    // The half-close of a dropped writer is sent first.
    let mut all = Vec::new();
    near.read_to_end(&mut all).await.expect("an end");
    let failed = async {
        while near.write_all(&[0; 1000]).await.is_ok() {
            tokio::task::yield_now().await;
        }
    };
    timeout(Duration::from_secs(30), failed).await.expect("writing fails once the reset has come");
}

#[tokio::test]
async fn a_reader_that_does_not_read_slows_the_sender() {
    let (client, _server, mut incoming) = pair();
    let accepting = tokio::spawn(async move { incoming.next().await.expect("asked").accept().await });
    let mut near = client.open(named("data")).await.expect("opened");
    let mut far = accepting.await.expect("no panic").expect("accepted");
    let mut sent = 0;
    while let Ok(Ok(())) = timeout(Duration::from_millis(300), near.write_all(&[0; 1000])).await {
        sent += 1000;
        assert!(sent < 1 << 20, "somebody holds it all");
    }
    let mut some = vec![0; 200_000];
    far.read_exact(&mut some).await.expect("what was sent");
    timeout(Duration::from_secs(30), near.write_all(&[0; 1000])).await.expect("there is room again").expect("sent");
}

#[tokio::test]
async fn nobody_waits_for_ever() {
    let (near, far) = duplex(1000);
    let short = Duration::from_millis(50);
    let (client, _) =
        Spdy::client(near, ConnectionLimits { reply: short, idle: 4 * short, ..ConnectionLimits::default() });
    let late = client.open(named("data")).await.err().expect("no answer comes");
    assert_eq!(late.kind(), std::io::ErrorKind::TimedOut);
    let closed = client.closed();
    closed.cancelled().await;
    drop(far);
}

/// The other side of a connection, frame by frame.
struct Peer {
    socket: DuplexStream,
    encoder: Encoder,
    decoder: Decoder,
    input: BytesMut,
}

impl Peer {
    fn new(socket: DuplexStream) -> Peer {
        Peer { socket, encoder: Encoder::new(), decoder: Decoder::new(), input: BytesMut::new() }
    }

    async fn send(&mut self, frames: &[Frame]) {
        let mut output = BytesMut::new();
        frames.iter().for_each(|frame| self.encoder.encode(frame, &mut output));
        self.socket.write_all(&output).await.expect("sent");
    }

    async fn next(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = self.decoder.decode(&mut self.input).expect("frames") {
                return Some(frame);
            }
            if self.socket.read_buf(&mut self.input).await.unwrap_or(0) == 0 {
                return None;
            }
        }
    }
}

fn asks(id: u32) -> Frame {
    Frame::SynStream { id, fin: false, headers: named("data") }
}

fn data(id: u32, text: &'static str) -> Frame {
    Frame::Data { id, fin: false, bytes: Bytes::from_static(text.as_bytes()) }
}

#[tokio::test]
async fn frames_for_streams_that_do_not_exist_are_passed_over() {
    let (near, far) = duplex(100_000);
    let (_server, mut incoming) = Spdy::server(far, ConnectionLimits::default());
    let mut peer = Peer::new(near);
    let reset = |id| Frame::Reset { id, status: 5 };
    let reply = Frame::SynReply { id: 4, fin: true, headers: Headers::new() };
    peer.send(&[data(9, "x"), reset(7), reply, Frame::Headers { id: 3, fin: true, headers: named("a") }]).await;
    peer.send(&[Frame::Ping(2), Frame::Ping(5), asks(1), data(1, "hello"), reset(1), data(1, "late"), asks(3)]).await;
    assert_eq!(peer.next().await, Some(Frame::Ping(5)), "and not the other, which would be our own");
    let mut first = incoming.next().await.expect("asked").accept().await.expect("accepted");
    let mut text = Vec::new();
    assert!(first.read_to_end(&mut text).await.is_err(), "it was reset");
    assert_eq!(text, b"hello");
    assert_eq!(incoming.next().await.map(|asked| asked.id()), Some(3));
    assert_eq!(peer.next().await, Some(Frame::Reset { id: 3, status: 5 }), "no answer to a stream that is over");
}

#[tokio::test]
async fn numbers_that_cannot_be_end_the_connection() {
    for frames in [vec![asks(2)], vec![asks(0)], vec![asks(3), asks(3)], vec![asks(3), asks(1)]] {
        let (near, far) = duplex(100_000);
        let (server, _incoming) = Spdy::server(far, ConnectionLimits::default());
        let mut peer = Peer::new(near);
        peer.send(&frames).await;
        timeout(Duration::from_secs(30), server.closed().cancelled()).await.expect("the connection ends");
    }
}

#[tokio::test]
async fn more_streams_than_allowed_are_refused() {
    let (near, far) = duplex(100_000);
    let (_server, mut incoming) = Spdy::server(far, ConnectionLimits { streams: 2, ..ConnectionLimits::default() });
    let mut peer = Peer::new(near);
    peer.send(&[asks(1), asks(3), asks(5)]).await;
    assert_eq!(peer.next().await, Some(Frame::Reset { id: 5, status: 3 }));
    drop(incoming.next().await);
    assert_eq!(peer.next().await, Some(Frame::Reset { id: 1, status: 5 }));
    peer.send(&[asks(7)]).await;
    assert_eq!(incoming.next().await.map(|asked| asked.id()), Some(3));
    assert_eq!(incoming.next().await.map(|asked| asked.id()), Some(7));
}

#[tokio::test]
async fn what_was_sent_before_the_other_side_left_is_read() {
    // The pieces exceed what a connection buffers at a time.
    const PIECES: usize = 60;
    let (near, far) = duplex(1 << 20);
    let (server, mut incoming) = Spdy::server(far, ConnectionLimits::default());
    let mut peer = Peer::new(near);
    peer.send(&[asks(1)]).await;
    let mut stream = incoming.next().await.expect("asked").accept().await.expect("accepted");
    let piece = Frame::Data { id: 1, fin: false, bytes: Bytes::from(vec![b'x'; 10_000]) };
    peer.send(&vec![piece; PIECES]).await;
    peer.send(&[Frame::Ping(5), data(1, "end")]).await;
    drop(peer);
    // The other side has stopped reading, so sending this output fails.
    stream.write_all(b"output").await.expect("queued");
    server.closed().cancelled().await;
    let mut all = Vec::new();
    stream.read_to_end(&mut all).await.expect("an end");
    assert_eq!(all.len(), PIECES * 10_000 + 3);
}

#[tokio::test]
async fn the_last_input_is_not_kept_for_a_server_that_does_not_read() {
    let (near, far) = duplex(1000);
    let limits = ConnectionLimits { drain: Duration::from_millis(50), ..ConnectionLimits::default() };
    let (client, incoming) = Spdy::client(near, limits);
    let mut peer = Peer::new(far);
    let opening = async {
        assert!(matches!(peer.next().await, Some(Frame::SynStream { id: 1, .. })));
        peer.send(&[Frame::SynReply { id: 1, fin: false, headers: Headers::new() }]).await;
    };
    let (stream, ()) = tokio::join!(client.open(named("data")), opening);
    let mut stream = stream.expect("opened");
    stream.write_all(&[0; 30_000]).await.expect("queued");
    let closed = client.closed();
    drop((client, incoming, stream));
    timeout(Duration::from_secs(30), closed.cancelled()).await.expect("it ends");
}

#[tokio::test]
async fn frames_that_come_too_late_are_passed_over() {
    let (near, far) = duplex(100_000);
    let (_server, mut incoming) = Spdy::server(far, ConnectionLimits::default());
    let mut peer = Peer::new(near);
    let last = |id| Frame::Data { id, fin: true, bytes: Bytes::from_static(b"!") };
    // After the end of the stream come more data, another end, headers, and a reset of a stream that has ended.
    peer.send(&[asks(1), data(1, "hello"), last(1), data(1, "late"), last(1)]).await;
    peer.send(&[Frame::Headers { id: 1, fin: true, headers: named("a") }, Frame::GoAway { last: 0 }, asks(3)]).await;
    let mut first = incoming.next().await.expect("asked").accept().await.expect("accepted");
    let mut text = Vec::new();
    first.read_to_end(&mut text).await.expect("an end");
    assert_eq!(text, b"hello!");
    first.write_all(b"back").await.expect("the other half is open");
    assert_eq!(incoming.next().await.map(|asked| asked.id()), Some(3), "the connection goes on");
}
