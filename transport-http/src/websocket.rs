//! A stream of events over a WebSocket: one message an event, text for JSON and binary for Protobuf.

use crate::respond::Response;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use holdfast_core::Refusal;
use http::header::{AUTHORIZATION, CONNECTION, HeaderValue, UPGRADE};
use http::{HeaderMap, HeaderName, StatusCode};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::sync::mpsc;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use tokio_util::task::TaskTracker;

const KEY: HeaderName = http::header::SEC_WEBSOCKET_KEY;
const ACCEPT: HeaderName = http::header::SEC_WEBSOCKET_ACCEPT;
const PROTOCOL: HeaderName = http::header::SEC_WEBSOCKET_PROTOCOL;
const VERSION: HeaderName = http::header::SEC_WEBSOCKET_VERSION;

/// Browsers cannot send an `Authorization` header along: their token comes as a protocol of this name.
const BEARER: &str = "base64url.bearer.authorization.k8s.io.";
/// Nobody sends anything long to a watch.
const INCOMING_BYTES_MAX: usize = 64 << 10;

/// A connection that the client wants to go on as a WebSocket.
pub struct Socket {
    upgrade: OnUpgrade,
    accept: String,
    /// The protocol that is spoken, when the client offered some.
    protocol: Option<String>,
}

impl Socket {
    /// What a request asks for; `None` when it is an ordinary one.
    pub fn asked(headers: &HeaderMap, upgrade: Option<OnUpgrade>) -> Result<Option<Socket>, Refusal> {
        if !is_upgrade(headers) {
            return Ok(None);
        }
        let bad = |why: &str| Refusal::BadRequest(format!("the WebSocket cannot be opened: {why}"));
        let upgrade = upgrade.ok_or_else(|| bad("this connection cannot be upgraded"))?;
        if headers.get(VERSION).is_none_or(|version| version != "13") {
            return Err(bad("Sec-WebSocket-Version must be 13"));
        }
        let key = headers.get(KEY).ok_or_else(|| bad("Sec-WebSocket-Key is missing"))?;
        let protocol = protocols(headers).find(|protocol| !protocol.starts_with(BEARER)).map(str::to_owned);
        Ok(Some(Socket { upgrade, accept: derive_accept_key(key.as_bytes()), protocol }))
    }

    /// Switches protocols, and sends what comes until there is no more or the client has gone.
    pub fn answer(self, tracker: &TaskTracker, mut pieces: mpsc::Receiver<Bytes>, binary: bool) -> Response {
        let Socket { upgrade, accept, protocol } = self;
        tracker.spawn(async move {
            let connection = match upgrade.await {
                Ok(connection) => TokioIo::new(connection),
                Err(error) => return tracing::debug!(%error, "a WebSocket was not opened"),
            };
            let config = WebSocketConfig::default().max_message_size(Some(INCOMING_BYTES_MAX));
            let socket = WebSocketStream::from_raw_socket(connection, Role::Server, Some(config)).await;
            let (mut outgoing, mut incoming) = socket.split();
            loop {
                tokio::select! {
                    piece = pieces.recv() => {
                        let Some(piece) = piece else { break };
                        if outgoing.send(message(piece, binary)).await.is_err() {
                            return;
                        }
                    }
                    // Reading answers pings, and tells when the client has gone. What else it says is not for a watch.
                    message = incoming.next() => match message {
                        None | Some(Err(_) | Ok(Message::Close(_))) => return,
                        Some(Ok(_)) => {}
                    }
                }
            }
            let _ = outgoing.send(Message::Close(None)).await;
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

fn message(piece: Bytes, binary: bool) -> Message {
    if binary {
        return Message::Binary(piece);
    }
    match String::from_utf8(piece.into()) {
        Ok(text) => Message::text(text),
        Err(error) => Message::Binary(error.into_bytes().into()),
    }
}

/// Takes the token out of the offered protocols, as if it had come in its own header.
pub fn take_token(headers: &mut HeaderMap) -> Result<(), Refusal> {
    if !is_upgrade(headers) || headers.contains_key(AUTHORIZATION) {
        return Ok(());
    }
    let Some(token) = protocols(headers).find_map(|protocol| protocol.strip_prefix(BEARER)) else { return Ok(()) };
    // An answer must name a protocol, and a token must not be repeated in one.
    if !protocols(headers).any(|protocol| !protocol.starts_with(BEARER)) {
        return Err(Refusal::Unauthorized);
    }
    let token = URL_SAFE_NO_PAD.decode(token).ok().and_then(|token| String::from_utf8(token).ok());
    let header = token.and_then(|token| HeaderValue::from_str(&format!("Bearer {token}")).ok());
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

    fn headers(protocols: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(CONNECTION, HeaderValue::from_static("keep-alive, Upgrade"));
        headers.insert(UPGRADE, HeaderValue::from_static("WebSocket"));
        headers.insert(PROTOCOL, HeaderValue::from_str(protocols).unwrap());
        headers
    }

    #[test]
    fn a_token_among_the_protocols_is_a_credential() {
        // base64url of "secret"
        let token = format!("{BEARER}c2VjcmV0");
        for (protocols, expected) in [
            (format!("{token}, base64.binary.k8s.io"), Ok(Some("Bearer secret"))),
            (format!("base64.binary.k8s.io,{token}"), Ok(Some("Bearer secret"))),
            ("base64.binary.k8s.io".to_owned(), Ok(None)),
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
}
