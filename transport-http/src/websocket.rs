//! Sends a watch over a WebSocket, as one message for each event. A message is text for JSON and binary for Protobuf.

use crate::respond::Response;
use crate::transport::lifecycle::Lifecycle;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use futures_util::{SinkExt, Stream, StreamExt};
use holdfast_core::Refusal;
use holdfast_core::refusal::{BadRequest, WebSocketFault};
use http::header::{AUTHORIZATION, CONNECTION, HeaderValue, UPGRADE};
use http::{HeaderMap, HeaderName, StatusCode};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use std::pin::pin;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

const KEY: HeaderName = http::header::SEC_WEBSOCKET_KEY;
const ACCEPT: HeaderName = http::header::SEC_WEBSOCKET_ACCEPT;
const PROTOCOL: HeaderName = http::header::SEC_WEBSOCKET_PROTOCOL;
const VERSION: HeaderName = http::header::SEC_WEBSOCKET_VERSION;

/// The prefix of a protocol that contains a token. Browsers cannot set an `Authorization` header, so they send the
/// token in this form.
const BEARER: &str = "base64url.bearer.authorization.k8s.io.";
/// The longest message from a client. A watch expects no long messages.
const INCOMING_BYTES_MAX: usize = 64 << 10;
/// The bound of unsent bytes. One event is sent before the next is made, so the largest object and a ping fit.
const OUTGOING_BYTES_MAX: usize = 16 << 20;
/// The interval at which the client is pinged.
const PING_PERIOD: Duration = Duration::from_secs(30);

/// A connection that the client wants to upgrade to a WebSocket.
pub struct Socket {
    upgrade: OnUpgrade,
    accept: String,
    /// The protocol that this server chose; `None` if the client offered no protocol.
    protocol: Option<String>,
}

impl Socket {
    /// The WebSocket that a request asks for; `None` for an ordinary request.
    pub fn asked(headers: &HeaderMap, upgrade: Option<OnUpgrade>) -> Result<Option<Socket>, Refusal> {
        if !is_upgrade(headers) {
            return Ok(None);
        }
        let bad = |fault: WebSocketFault| Refusal::BadRequest(BadRequest::WebSocket(fault));
        let upgrade = upgrade.ok_or_else(|| bad(WebSocketFault::NoUpgrade))?;
        if headers.get(VERSION).is_none_or(|version| version != "13") {
            return Err(bad(WebSocketFault::OtherVersion));
        }
        let key = headers.get(KEY).ok_or_else(|| bad(WebSocketFault::NoKey))?;
        let protocol = protocols(headers).find(|protocol| !protocol.starts_with(BEARER)).map(str::to_owned);
        Ok(Some(Socket { upgrade, accept: derive_accept_key(key.as_bytes()), protocol }))
    }

    /// Switches protocols, and sends the pieces of the watch until the watch ends or the client has disconnected.
    pub fn answer(
        self,
        lifecycle: &Lifecycle,
        pieces: impl Stream<Item = Bytes> + Send + 'static,
        binary: bool,
    ) -> Response {
        let Socket { upgrade, accept, protocol } = self;
        lifecycle.spawn_upgraded(async move {
            match upgrade.await {
                Ok(connection) => speak(TokioIo::new(connection), pieces, binary, PING_PERIOD).await,
                Err(error) => tracing::debug!(%error, "a WebSocket was not opened"),
            }
        });
        let mut response = Response::new(Bytes::new().into());
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        let headers = response.headers_mut();
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
        let texts = [(ACCEPT, Some(accept)), (PROTOCOL, protocol)];
        for (name, text) in texts {
            if let Some(value) = text.and_then(|text| HeaderValue::from_str(&text).ok()) {
                headers.insert(name, value);
            }
        }
        response
    }
}

/// Sends the pieces. A client counts as disconnected when it sends nothing for two ping periods, or stops in the middle
/// of a frame. The stream to which this function writes detects a client that does not read.
async fn speak(
    connection: impl AsyncRead + AsyncWrite + Unpin,
    pieces: impl Stream<Item = Bytes>,
    binary: bool,
    ping_period: Duration,
) {
    let config = WebSocketConfig::default()
        .max_message_size(Some(INCOMING_BYTES_MAX))
        .max_frame_size(Some(INCOMING_BYTES_MAX))
        .max_write_buffer_size(OUTGOING_BYTES_MAX);
    let socket = WebSocketStream::from_raw_socket(connection, Role::Server, Some(config)).await;
    let (mut outgoing, mut incoming) = socket.split();
    let mut pieces = pin!(pieces);
    let mut ping_at = pin!(tokio::time::sleep(ping_period));
    let mut heard = true;
    loop {
        let sent = tokio::select! {
            piece = pieces.next() => match piece {
                Some(piece) => outgoing.send(message(piece, binary)).await,
                None => break,
            },
            // Reading answers pings, and shows when the client has disconnected. Other messages are ignored.
            message = incoming.next() => match message {
                None | Some(Err(_) | Ok(Message::Close(_))) => return,
                Some(Ok(_)) => {
                    heard = true;
                    Ok(())
                }
            },
            () = ping_at.as_mut() => {
                if !std::mem::take(&mut heard) {
                    return tracing::debug!("the other side of a WebSocket is silent");
                }
                ping_at.as_mut().reset(Instant::now() + ping_period);
                outgoing.send(Message::Ping(Bytes::new())).await
            }
        };
        if sent.is_err() {
            return;
        }
    }
    let _ = outgoing.send(Message::Close(None)).await;
}

fn message(piece: Bytes, binary: bool) -> Message {
    if binary {
        return Message::Binary(piece);
    }
    match String::from_utf8(piece.into()) {
        Ok(text) => Message::text(text),
        Err(error) => Message::Binary(error.into_bytes().into()),
    }
}

/// Moves the token from the offered protocols into the `Authorization` header.
pub fn take_token(headers: &mut HeaderMap) -> Result<(), Refusal> {
    let tokens = protocols(headers).filter_map(|protocol| protocol.strip_prefix(BEARER));
    let tokens: Vec<String> = tokens.map(str::to_owned).collect();
    let Some(token) = tokens.first() else { return Ok(()) };
    let others = protocols(headers).filter(|protocol| !protocol.starts_with(BEARER)).collect::<Vec<_>>().join(", ");
    // The token is removed from the protocols, so that neither the response nor a forwarded request shows it.
    let others = HeaderValue::from_str(&others).ok().filter(|others| !others.is_empty());
    headers.remove(PROTOCOL);
    let is_answerable = others.is_some();
    others.map(|others| headers.insert(PROTOCOL, others));
    if !is_upgrade(headers) || headers.contains_key(AUTHORIZATION) {
        return Ok(());
    }
    // The response must name a protocol. With two tokens the user would be ambiguous.
    if !is_answerable || tokens.len() > 1 {
        return Err(Refusal::Unauthorized);
    }
    let token = URL_SAFE_NO_PAD.decode(token).ok().and_then(|token| String::from_utf8(token).ok());
    let header = token.and_then(|token| HeaderValue::from_bytes(format!("Bearer {token}").as_bytes()).ok());
    headers.insert(AUTHORIZATION, header.ok_or(Refusal::Unauthorized)?);
    Ok(())
}

fn is_upgrade(headers: &HeaderMap) -> bool {
    let names = |header: HeaderName, wanted: &str| {
        let values = headers.get_all(header);
        values
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','))
            .any(|token| token.trim().eq_ignore_ascii_case(wanted))
    };
    names(UPGRADE, "websocket") && names(CONNECTION, "upgrade")
}

fn protocols(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    headers
        .get_all(PROTOCOL)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .filter(|protocol| !protocol.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[test]
    fn the_token_is_taken_out_of_the_protocols() {
        const TOKEN: &str = "base64url.bearer.authorization.k8s.io.dG9r";
        let with = |lines: &[(&'static str, &str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in lines {
                headers.append(*name, HeaderValue::from_str(value).expect("a value"));
            }
            let taken = take_token(&mut headers).is_ok();
            let left = |name: HeaderName| headers.get(name).map(|value| value.to_str().expect("text").to_owned());
            (taken, left(PROTOCOL), left(AUTHORIZATION))
        };
        let text = |text: &str| Some(text.to_owned());
        let upgrade = [("upgrade", "websocket"), ("connection", "upgrade")];
        let offered = format!("a, {TOKEN}, b");
        let asked = |more: &[(&'static str, &str)]| with(&[&upgrade[..], more].concat());
        assert_eq!(asked(&[("sec-websocket-protocol", &offered)]), (true, text("a, b"), text("Bearer tok")));
        let lines = [("sec-websocket-protocol", "a"), ("sec-websocket-protocol", TOKEN)];
        assert_eq!(asked(&lines), (true, text("a"), text("Bearer tok")));
        let other = [("authorization", "Bearer other"), ("sec-websocket-protocol", TOKEN)];
        assert_eq!(asked(&other), (true, None, text("Bearer other")));
        assert_eq!(asked(&[("sec-websocket-protocol", TOKEN)]), (false, None, None));
        assert_eq!(with(&[("sec-websocket-protocol", TOKEN)]), (true, None, None), "no WebSocket");
        assert_eq!(asked(&[("sec-websocket-protocol", "a")]), (true, text("a"), None));
    }

    fn headers(protocols: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(CONNECTION, HeaderValue::from_static("keep-alive, Upgrade"));
        headers.insert(UPGRADE, HeaderValue::from_static("WebSocket"));
        headers.insert(PROTOCOL, HeaderValue::from_str(protocols).unwrap());
        headers
    }

    #[test]
    fn a_token_among_the_protocols_is_a_credential() {
        // The token is "secret" in base64url.
        let token = format!("{BEARER}c2VjcmV0");
        for (protocols, expected) in [
            (format!("{token}, base64.binary.k8s.io"), Ok(Some("Bearer secret"))),
            (format!("base64.binary.k8s.io,{token}"), Ok(Some("Bearer secret"))),
            ("base64.binary.k8s.io".to_owned(), Ok(None)),
            (format!("{token}, base64.binary.k8s.io, {token}"), Err(())),
            (token, Err(())),
            (format!("{BEARER}%%%, base64.binary.k8s.io"), Err(())),
        ] {
            let mut headers = headers(&protocols);
            let taken = take_token(&mut headers).map_err(|_| ());
            let found = taken.map(|()| headers.get(AUTHORIZATION).map(|value| value.to_str().unwrap()));
            assert_eq!(found, expected, "{protocols}");
        }
    }

    #[test]
    fn only_an_upgrade_is_one() {
        let mut headers = headers("x");
        assert!(is_upgrade(&headers));
        headers.insert(CONNECTION, HeaderValue::from_static("keep-alive"));
        assert!(!is_upgrade(&headers));
    }

    #[tokio::test]
    async fn who_is_silent_is_let_go() {
        let (near, mut far) = tokio::io::duplex(1 << 16);
        // The client sends half a frame, and nothing after it.
        far.write_all(&[0x81, 0xfe, 0x01]).await.unwrap();
        speak(near, futures_util::stream::pending(), false, Duration::from_millis(5)).await;
        let mut read = Vec::new();
        far.read_to_end(&mut read).await.unwrap();
        assert_eq!(read, [0x89, 0], "one ping");
    }

    #[tokio::test]
    async fn a_large_message_ends_it() {
        let (near, mut far) = tokio::io::duplex(1 << 16);
        // The client sends the head of a masked text of a million bytes, but none of these bytes.
        let head = [&[0x81, 0xff][..], &1_000_000_u64.to_be_bytes(), &[0; 4]].concat();
        far.write_all(&head).await.unwrap();
        speak(near, futures_util::stream::pending(), false, Duration::from_secs(3600)).await;
    }
}
