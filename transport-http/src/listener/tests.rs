//! Tests the limits of the resources that clients can occupy, on a server with a trivial service.

use super::*;
use bytes::Bytes;
use futures_util::{Stream, stream};
use holdfast_tls::bounds::Bounds;
use holdfast_tls::peer::PeerVerifier;
use holdfast_tls::server::Tls;
use http_body_util::StreamBody;
use http_body_util::combinators::BoxBody;
use hyper::body::Frame;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::io::AsyncWriteExt;
use tokio::sync::watch;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream as ClientStream;

const SHORT: Duration = Duration::from_millis(20);
/// This time is longer than any deadline of these tests, so a missing deadline makes a test hang.
const LONG: Duration = Duration::from_secs(3600);
/// The type of HEADERS, and then the types of further HTTP/2 frames, in the protocol's names.
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;
const END_HEADERS: u8 = 4;
/// The headers of `GET https://a/` in HPACK: three static fields, and a host.
const GET: &[u8] = b"\x82\x87\x84\x41\x01a";

type Answer = http::Response<BoxBody<Bytes, Infallible>>;

/// A server with a service that answers `/refused` without reading the body, `/endless` with a body that never ends,
/// `/wait` with a body that stays empty, and `/never` not at all.
struct Server {
    address: SocketAddr,
    authority: CertificateDer<'static>,
    stop: watch::Sender<bool>,
    accepting: tokio::task::JoinHandle<TaskTracker>,
}

fn bounds() -> Bounds {
    Bounds { handshake: LONG, head: LONG, idle: LONG, ping_period: LONG, pong: LONG, unread: LONG, ..Bounds::default() }
}

async fn answer(request: Request<Received>) -> Result<Answer, Infallible> {
    let body: std::pin::Pin<Box<dyn Stream<Item = Bytes> + Send + Sync>> = match request.uri().path() {
        "/endless" => Box::pin(stream::repeat(Bytes::from_static(&[b'x'; 10_000]))),
        "/wait" => Box::pin(stream::pending()),
        "/large" => Box::pin(stream::iter([Bytes::from_static(&[b'x'; 60_000])])),
        "/never" => std::future::pending().await,
        _ => Box::pin(stream::iter([Bytes::from_static(b"fine")])),
    };
    let frames = futures_util::StreamExt::map(body, |piece| Ok(Frame::data(piece)));
    let mut answer = http::Response::new(BoxBody::new(StreamBody::new(frames)));
    if request.uri().path() == "/refused" {
        answer.extensions_mut().insert(Unread);
    }
    Ok(answer)
}

impl Server {
    async fn start(bounds: Bounds) -> Server {
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = rcgen::CertificateParams::new(vec!["localhost".into()]).unwrap().self_signed(&key).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], PrivateKeyDer::try_from(key.serialize_der()).unwrap())
            .unwrap();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let verifier = Arc::new(PeerVerifier::new(Vec::new(), None).unwrap());
        let (stop, stopping) = watch::channel(false);
        let served = Listener {
            tls: Arc::new(Tls::of(Arc::new(config), verifier).into()),
            service: tower::service_fn(answer),
            is_quick: |request| matches!(request.uri().path(), "/" | "/large" | "/wait"),
            guests: Guests::new(bounds),
            certified: Arc::new(|_| ()),
            stopping,
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let accepting = tokio::spawn(served.accept(listener));
        Server { address, authority: certificate.der().clone(), stop, accepting }
    }

    async fn connect(&self, protocol: &str) -> std::io::Result<ClientStream<TcpStream>> {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(self.authority.clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
        let stream = TcpStream::connect(self.address).await?;
        TlsConnector::from(Arc::new(config)).connect(ServerName::try_from("localhost").unwrap(), stream).await
    }

    /// A connection after both sides' HTTP/2 settings, with a window of `window` bytes for every response.
    async fn begin(&self, window: u32) -> ClientStream<TcpStream> {
        let mut connection = self.connect("h2").await.unwrap();
        connection.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
        let mut setting = vec![0, 4];
        setting.extend(window.to_be_bytes());
        connection.write_all(&frame(SETTINGS, 0, 0, &setting)).await.unwrap();
        connection
    }

    /// Stops the server, and waits until its connections have ended.
    async fn ended(self) {
        self.stop.send_replace(true);
        self.accepting.await.unwrap().wait().await;
    }
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// A request for a path shorter than 127 bytes.
fn get(stream: u32, path: &str) -> Vec<u8> {
    let mut head = b"\x82\x87\x41\x01a\x04".to_vec();
    head.push(path.len() as u8);
    head.extend(path.as_bytes());
    frame(HEADERS, END_HEADERS | 1, stream, &head)
}

/// The type, the stream and the payload of the next frame; `None` when the connection has ended. Pings are answered.
async fn next_frame(connection: &mut ClientStream<TcpStream>) -> Option<(u8, u32, Vec<u8>)> {
    let mut head = [0; 9];
    connection.read_exact(&mut head).await.ok()?;
    let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
    connection.read_exact(&mut payload).await.ok()?;
    if head[3] == PING && head[4] == 0 {
        connection.write_all(&frame(PING, 1, 0, &payload)).await.ok()?;
    }
    Some((head[3], u32::from_be_bytes([head[5], head[6], head[7], head[8]]), payload))
}

/// Waits for a frame of this type; fails if the connection ends before.
async fn wait_for(connection: &mut ClientStream<TcpStream>, kind: u8) -> (u32, Vec<u8>) {
    while let Some((found, stream, payload)) = next_frame(connection).await {
        if found == kind {
            return (stream, payload);
        }
    }
    panic!("the connection ended before a frame of type {kind}");
}

/// Reads until the other side closes the connection.
async fn wait_for_end(connection: &mut (impl tokio::io::AsyncRead + Unpin)) {
    let mut buffer = [0; 1024];
    while connection.read(&mut buffer).await.is_ok_and(|read| read > 0) {}
}

#[tokio::test]
async fn a_handshake_has_a_deadline() {
    let server = Server::start(Bounds { handshake: SHORT, ..bounds() }).await;
    let mut connection = TcpStream::connect(server.address).await.unwrap();
    connection.write_all(b"\x16\x03\x01").await.unwrap();
    wait_for_end(&mut connection).await;
    server.ended().await;
}

#[tokio::test]
async fn the_newest_connection_of_an_address_takes_the_place_of_its_oldest() {
    let server = Server::start(Bounds { strangers_of_one_max: 2, ..bounds() }).await;
    // One client has not begun the handshake, and the other client has finished it.
    let mut silent = TcpStream::connect(server.address).await.unwrap();
    let mut idle = server.connect("http/1.1").await.unwrap();
    let mut newer = Vec::new();
    newer.push(server.connect("h2").await.unwrap());
    wait_for_end(&mut silent).await;
    newer.push(server.connect("h2").await.unwrap());
    wait_for_end(&mut idle).await;
    drop((silent, idle, newer));
    server.ended().await;
}

#[tokio::test]
async fn handshakes_wait_for_their_turn_and_nobody_keeps_it() {
    let server = Server::start(Bounds { handshakes_max: 1, ..bounds() }).await;
    let mut stuck = Vec::new();
    for begun in [&b""[..], b"\x16\x03\x01"].iter().cycle().take(10) {
        let mut connection = TcpStream::connect(server.address).await.unwrap();
        connection.write_all(begun).await.unwrap();
        stuck.push(connection);
    }
    let connected = futures_util::future::join_all((0..20).map(|_| server.connect("h2"))).await;
    assert!(connected.iter().all(Result::is_ok));
    drop((stuck, connected));
    server.ended().await;
}

#[tokio::test]
async fn the_head_of_a_request_has_a_deadline() {
    let server = Server::start(Bounds { head: SHORT, ..bounds() }).await;
    for (protocol, begun) in
        [("http/1.1", ""), ("http/1.1", "GET / HTTP/1.1\r\nhost: a\r\n"), ("h2", ""), ("h2", "PRI * H")]
    {
        let mut connection = server.connect(protocol).await.unwrap();
        connection.write_all(begun.as_bytes()).await.unwrap();
        wait_for_end(&mut connection).await;
    }
    // The deadline must also end a connection that sends no further request after the first response.
    let mut connection = server.connect("http/1.1").await.unwrap();
    connection.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    wait_for_end(&mut connection).await;
    server.ended().await;
}

#[tokio::test]
async fn the_head_of_a_request_has_a_size() {
    let server = Server::start(bounds()).await;
    let mut connection = server.connect("http/1.1").await.unwrap();
    let written = async {
        connection.write_all(b"GET / HTTP/1.1\r\n").await?;
        for number in 0.. {
            connection.write_all(format!("x-{number}: {}\r\n", "x".repeat(10_000)).as_bytes()).await?;
        }
        std::io::Result::Ok(())
    };
    assert!(written.await.is_err(), "it never ends otherwise");
    server.ended().await;
}

#[tokio::test]
async fn continued_headers_end() {
    let server = Server::start(bounds()).await;
    let mut connection = server.begin(1 << 16).await;
    connection.write_all(&frame(HEADERS, 0, 1, GET)).await.unwrap();
    // The header differs each time, so that no compression table has it.
    let header = [&b"\x00\x01a\x7f\x81\x00"[..], &[b'x'; 256]].concat();
    while connection.write_all(&frame(CONTINUATION, 0, 1, &header)).await.is_ok() {}
    server.ended().await;
}

#[tokio::test]
async fn who_opens_streams_and_resets_them_is_let_go() {
    let server = Server::start(bounds()).await;
    let mut connection = server.begin(1 << 16).await;
    let flood = (0..5_000).flat_map(|number| {
        let stream = 2 * number + 1;
        [get(stream, "/never"), frame(RST_STREAM, 0, stream, &8u32.to_be_bytes())].concat()
    });
    let _ = connection.write_all(&flood.collect::<Vec<u8>>()).await;
    let (_, goaway) = wait_for(&mut connection, GOAWAY).await;
    assert_eq!(goaway[4..8], 11u32.to_be_bytes(), "ENHANCE_YOUR_CALM");
    wait_for_end(&mut connection).await;
    server.ended().await;
}

#[tokio::test]
async fn an_idle_connection_ends() {
    let server = Server::start(Bounds { idle: SHORT, ..bounds() }).await;
    let mut connection = server.begin(1 << 16).await;
    wait_for(&mut connection, GOAWAY).await;
    while next_frame(&mut connection).await.is_some() {}
    let mut busy = server.begin(1 << 16).await;
    busy.write_all(&[get(1, "/wait"), get(3, "/never")].concat()).await.unwrap();
    assert_eq!(wait_for(&mut busy, HEADERS).await.0, 1);
    // While the other connection waits for its responses, this connection becomes idle, because it has no requests.
    let mut connection = server.begin(1 << 16).await;
    wait_for(&mut connection, GOAWAY).await;
    busy.write_all(&get(5, "/")).await.unwrap();
    assert_eq!(wait_for(&mut busy, HEADERS).await.0, 5);
    drop((busy, connection));
    server.ended().await;
}

#[tokio::test]
async fn who_does_not_answer_pings_is_let_go() {
    let server = Server::start(Bounds { ping_period: SHORT, pong: SHORT, ..bounds() }).await;
    let mut connection = server.begin(1 << 16).await;
    connection.write_all(&get(1, "/wait")).await.unwrap();
    // The client sends half a frame, so the rest of the input counts as the payload of this frame.
    connection.write_all(&frame(HEADERS, 0, 3, &[0; 100])[..50]).await.unwrap();
    wait_for_end(&mut connection).await;
    server.ended().await;
}

#[tokio::test]
async fn who_does_not_acknowledge_settings_is_let_go() {
    let server = Server::start(Bounds { head: SHORT, ..bounds() }).await;
    let mut connection = server.begin(1 << 16).await;
    connection.write_all(&get(1, "/wait")).await.unwrap();
    let (_, goaway) = wait_for(&mut connection, GOAWAY).await;
    assert_eq!(goaway[4..8], 4u32.to_be_bytes(), "SETTINGS_TIMEOUT");
    wait_for_end(&mut connection).await;
    server.ended().await;
}

#[tokio::test]
async fn an_unread_answer_ends_and_the_connection_goes_on() {
    let server = Server::start(Bounds { unread: SHORT, ..bounds() }).await;
    let mut connection = server.begin(100).await;
    connection.write_all(&get(1, "/endless")).await.unwrap();
    assert_eq!(wait_for(&mut connection, RST_STREAM).await.0, 1);
    connection.write_all(&get(3, "/")).await.unwrap();
    assert_eq!(wait_for(&mut connection, HEADERS).await.0, 3);
    drop(connection);
    server.ended().await;
}

#[tokio::test]
async fn who_reads_nothing_is_let_go() {
    let server = Server::start(Bounds { unread: SHORT, ..bounds() }).await;
    for protocol in ["http/1.1", "h2"] {
        let mut connection = match protocol {
            "h2" => server.begin(1 << 30).await,
            _ => server.connect(protocol).await.unwrap(),
        };
        let request = match protocol {
            "h2" => [frame(8, 0, 0, &(1u32 << 30).to_be_bytes()), get(1, "/endless")].concat(),
            _ => b"GET /endless HTTP/1.1\r\nhost: a\r\n\r\n".to_vec(),
        };
        connection.write_all(&request).await.unwrap();
        connection.flush().await.unwrap();
        // The client does not read, so it notices the end of the connection only when a write fails.
        let note: &[u8] = if protocol == "h2" { &frame(PING, 1, 0, &[0; 8]) } else { b"GET / HTTP/1.1\r\n" };
        while connection.write_all(note).await.is_ok() && connection.flush().await.is_ok() {
            tokio::time::sleep(SHORT).await;
        }
    }
    server.ended().await;
}

#[tokio::test]
async fn requests_in_progress_end_before_the_server() {
    let server = Server::start(bounds()).await;
    let mut connection = server.begin(1 << 16).await;
    connection.write_all(&get(1, "/")).await.unwrap();
    let mut other = server.connect("http/1.1").await.unwrap();
    other.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    assert_eq!(wait_for(&mut connection, HEADERS).await.0, 1);
    let mut buffer = [0; 12];
    other.read_exact(&mut buffer).await.unwrap();
    assert_eq!(&buffer, b"HTTP/1.1 200");
    server.stop.send_replace(true);
    wait_for(&mut connection, GOAWAY).await;
    while next_frame(&mut connection).await.is_some() {}
    wait_for_end(&mut other).await;
    drop((connection, other));
    server.ended().await;
}

#[tokio::test]
async fn who_is_answered_before_the_body_was_read_is_told_and_gets_the_answer() {
    let server = Server::start(bounds()).await;
    let mut connection = server.connect("http/1.1").await.unwrap();
    connection.write_all(b"POST /refused HTTP/1.1\r\nhost: a\r\ncontent-length: 2000000\r\n\r\n").await.unwrap();
    // The server may close its side before all bytes have arrived.
    let _ = connection.write_all(&[b'x'; 1_999_999]).await;
    let mut answer = Vec::new();
    connection.read_to_end(&mut answer).await.unwrap();
    let answer = String::from_utf8(answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains("fine"), "{answer}");
    assert!(answer.contains("connection: close\r\n"), "{answer}");

    // HTTP/2 has no such header. Instead the stream is reset after the response, and the connection continues.
    let mut connection = server.begin(65_535).await;
    const POST: &[u8] = b"\x83\x87\x44\x08/refused\x41\x01a";
    connection.write_all(&frame(HEADERS, END_HEADERS, 1, POST)).await.unwrap();
    let (stream, reason) = wait_for(&mut connection, RST_STREAM).await;
    assert_eq!((stream, reason), (1, vec![0; 4]), "there is no error");
    drop(connection);
    server.ended().await;
}

#[tokio::test]
async fn the_last_piece_of_an_answer_has_a_deadline_too() {
    let server = Server::start(Bounds { unread: SHORT, ..bounds() }).await;
    // The window of the client has room only for the beginning of the response.
    let mut connection = server.begin(1).await;
    connection.write_all(&get(1, "/large")).await.unwrap();
    assert_eq!(wait_for(&mut connection, RST_STREAM).await.0, 1);
    connection.write_all(&get(3, "/large")).await.unwrap();
    assert_eq!(wait_for(&mut connection, RST_STREAM).await.0, 3);
    drop(connection);
    server.ended().await;
}

#[tokio::test]
async fn who_does_not_read_the_last_small_answers_is_let_go() {
    let server = Server::start(Bounds { idle: SHORT, unread: SHORT, ..bounds() }).await;
    let mut connection = server.begin(1).await;
    connection.write_all(&get(1, "/")).await.unwrap();
    wait_for_end(&mut connection).await;
    server.ended().await;
}
