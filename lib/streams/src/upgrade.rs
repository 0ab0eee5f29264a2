//! Reads the streaming protocol that a request asks for, and makes the response that switches to it.

use http::header::{CONNECTION, HeaderName, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, UPGRADE};
use http::header::{SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION};
use http::{HeaderMap, Response, StatusCode};
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

/// The header that names protocols over SPDY.
pub const STREAM_PROTOCOL: HeaderName = HeaderName::from_static("x-stream-protocol-version");
const ACCEPTED_PROTOCOLS: HeaderName = HeaderName::from_static("x-accepted-stream-protocol-versions");
/// The name of SPDY in `Upgrade`.
pub const SPDY: &str = "SPDY/3.1";
/// The prefix of WebSocket subprotocols that carry the bytes of a SPDY connection.
pub const TUNNEL: &str = "SPDY/3.1+";
/// The subprotocol that carries a browser's token, because browsers cannot add an `Authorization` header.
const BEARER: &str = "base64url.bearer.authorization.k8s.io.";
/// The maximum number of values of a header that are read.
const PROTOCOLS_MAX: usize = 64;

/// The protocol of the connection after the upgrade.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpgradeProtocol {
    Spdy,
    WebSocket,
}

/// The negotiated protocols.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agreed {
    pub wire: UpgradeProtocol,
    /// The stream protocol; empty for a WebSocket that named none.
    pub protocol: String,
}

/// The reason why there is no upgrade, as a response in plain text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub status: StatusCode,
    pub message: String,
    /// The protocols that the server would have accepted.
    pub accepted: Vec<&'static str>,
}

impl Refusal {
    fn new(status: StatusCode, message: impl Into<String>) -> Refusal {
        Refusal { status, message: message.into(), accepted: Vec::new() }
    }

    /// Makes the response that refuses the upgrade, with the reason as its body.
    pub fn into_response(self) -> Response<String> {
        let mut response = Response::new(self.message);
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(http::header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        for protocol in self.accepted {
            headers.append(ACCEPTED_PROTOCOLS, HeaderValue::from_static(protocol));
        }
        response
    }
}

/// The versions of remote commands over SPDY, newest first.
pub const REMOTE_COMMAND_SPDY: &[&str] =
    &["v4.channel.k8s.io", "v3.channel.k8s.io", "v2.channel.k8s.io", "channel.k8s.io"];
/// The versions of remote commands over WebSockets.
pub const REMOTE_COMMAND_WEBSOCKET: &[&str] = &[
    "",
    "channel.k8s.io",
    "base64.channel.k8s.io",
    "v4.channel.k8s.io",
    "v4.base64.channel.k8s.io",
    "v5.channel.k8s.io",
];
pub const PORT_FORWARD_SPDY: &[&str] = &["portforward.k8s.io"];
pub const PORT_FORWARD_WEBSOCKET: &[&str] =
    &["", "v4.channel.k8s.io", "v4.base64.channel.k8s.io", "SPDY/3.1+portforward.k8s.io"];
/// The subprotocols of a log over a WebSocket. A log is a single stream, so its messages begin with no channel byte.
pub const LOG_WEBSOCKET: &[&str] = &["", "binary.k8s.io", "base64.binary.k8s.io"];

/// The protocol that the request asks for; `None` for an ordinary request.
pub fn wire(headers: &HeaderMap) -> Option<UpgradeProtocol> {
    let wants = |name: &HeaderName, wanted: &str| tokens(headers, name).any(|token| token.eq_ignore_ascii_case(wanted));
    // Go's servers search for the word within a token.
    let is_upgrade = tokens(headers, &CONNECTION).any(|token| token.to_ascii_lowercase().contains("upgrade"));
    if !is_upgrade {
        return None;
    }
    if wants(&UPGRADE, "websocket") {
        return Some(UpgradeProtocol::WebSocket);
    }
    wants(&UPGRADE, SPDY).then_some(UpgradeProtocol::Spdy)
}

/// Negotiates the protocol of exec or attach.
pub fn remote_command(headers: &HeaderMap) -> Result<(Response<()>, Agreed), Refusal> {
    agree(headers, REMOTE_COMMAND_SPDY, REMOTE_COMMAND_WEBSOCKET)
}

/// Negotiates the protocol of port forwarding.
pub fn port_forward(headers: &HeaderMap) -> Result<(Response<()>, Agreed), Refusal> {
    agree(headers, PORT_FORWARD_SPDY, PORT_FORWARD_WEBSOCKET)
}

/// Chooses the first of the client's protocols that is supported.
pub fn agree(
    headers: &HeaderMap,
    over_spdy: &[&'static str],
    over_websocket: &[&'static str],
) -> Result<(Response<()>, Agreed), Refusal> {
    match wire(headers) {
        Some(UpgradeProtocol::Spdy) => spdy(headers, over_spdy),
        Some(UpgradeProtocol::WebSocket) => websocket(headers, over_websocket),
        None => Err(Refusal::new(StatusCode::BAD_REQUEST, "Upgrade request required")),
    }
}

fn spdy(headers: &HeaderMap, known: &[&'static str]) -> Result<(Response<()>, Agreed), Refusal> {
    let mut offered = tokens(headers, &STREAM_PROTOCOL).take(PROTOCOLS_MAX).peekable();
    if offered.peek().is_none() {
        let count = headers.keys_len();
        let message = format!(
            "unable to upgrade: header X-Stream-Protocol-Version does not exist in request with {count} headers"
        );
        return Err(Refusal::new(StatusCode::BAD_REQUEST, message));
    }
    let Some(protocol) = offered.find_map(|offered| known.iter().find(|known| **known == offered)) else {
        let offered: Vec<&str> = tokens(headers, &STREAM_PROTOCOL).take(PROTOCOLS_MAX).collect();
        let message = format!(
            "unable to upgrade: unable to negotiate protocol: client supports [{}], server accepts [{}]",
            offered.join(" "),
            known.join(" ")
        );
        return Err(Refusal { accepted: known.to_vec(), ..Refusal::new(StatusCode::FORBIDDEN, message) });
    };
    let mut response = switching(SPDY);
    response.headers_mut().insert(STREAM_PROTOCOL, HeaderValue::from_static(protocol));
    Ok((response, Agreed { wire: UpgradeProtocol::Spdy, protocol: (*protocol).to_owned() }))
}

/// The subprotocols that a WebSocket client offers, except the subprotocols that carry a token.
pub fn offered(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    tokens(headers, &SEC_WEBSOCKET_PROTOCOL).filter(|token| !token.starts_with(BEARER)).take(PROTOCOLS_MAX)
}

fn websocket(headers: &HeaderMap, known: &[&'static str]) -> Result<(Response<()>, Agreed), Refusal> {
    let mut offered = offered(headers).peekable();
    let protocol = match offered.peek() {
        None => known.iter().find(|known| known.is_empty()),
        Some(_) => offered.find_map(|offered| known.iter().find(|known| **known == offered)),
    };
    let protocol = protocol.ok_or_else(|| {
        Refusal::new(StatusCode::FORBIDDEN, "unable to upgrade: the client offers no WebSocket subprotocol of ours")
    })?;
    let response = websocket_answer(headers, protocol)?;
    Ok((response, Agreed { wire: UpgradeProtocol::WebSocket, protocol: (*protocol).to_owned() }))
}

/// The answer that switches to a WebSocket with this subprotocol.
pub fn websocket_answer(headers: &HeaderMap, protocol: &str) -> Result<Response<()>, Refusal> {
    let bad = |message: &str| Refusal::new(StatusCode::BAD_REQUEST, message);
    if headers.get(SEC_WEBSOCKET_VERSION).is_none_or(|version| version != "13") {
        return Err(bad("missing or bad WebSocket Version"));
    }
    let key = headers.get(SEC_WEBSOCKET_KEY).ok_or_else(|| bad("mandatory Sec-WebSocket-Key header is missing"))?;
    let accept = HeaderValue::try_from(derive_accept_key(key.as_bytes())).map_err(|_| bad("bad Sec-WebSocket-Key"))?;
    let mut response = switching("websocket");
    response.headers_mut().insert(SEC_WEBSOCKET_ACCEPT, accept);
    if !protocol.is_empty() {
        let protocol = HeaderValue::from_str(protocol).map_err(|_| bad("bad Sec-WebSocket-Protocol"))?;
        response.headers_mut().insert(SEC_WEBSOCKET_PROTOCOL, protocol);
    }
    Ok(response)
}

fn switching(protocol: &'static str) -> Response<()> {
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    response.headers_mut().insert(UPGRADE, HeaderValue::from_static(protocol));
    response
}

/// The values of a header, which may be repeated and may hold several values separated by commas.
fn tokens<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> + use<'a> {
    let values = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim).filter(|token| !token.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        headers
    }

    const WEBSOCKET: [(&str, &str); 4] = [
        ("connection", "Upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ];

    #[test]
    fn the_first_protocol_that_both_know_is_taken() {
        for (offered, agreed) in [
            ("v5.channel.k8s.io,v4.channel.k8s.io, v3.channel.k8s.io", Some("v4.channel.k8s.io")),
            ("v3.channel.k8s.io, v4.channel.k8s.io", Some("v3.channel.k8s.io")),
            ("channel.k8s.io", Some("channel.k8s.io")),
            ("v9.channel.k8s.io", None),
        ] {
            let asked = [("connection", "Upgrade"), ("upgrade", "SPDY/3.1"), ("x-stream-protocol-version", offered)];
            let found = remote_command(&headers(&asked));
            assert_eq!(found.as_ref().ok().map(|(_, agreed)| agreed.protocol.as_str()), agreed, "{offered}");
            let answer = found.map(|(answer, _)| answer).map_err(Refusal::into_response);
            let accepted = answer.as_ref().err().map(|refusal| {
                (refusal.status().as_u16(), refusal.headers().get_all(ACCEPTED_PROTOCOLS).iter().count())
            });
            assert_eq!(accepted, agreed.is_none().then_some((403, 4)));
            if let Ok(answer) = answer {
                assert_eq!(answer.headers()[STREAM_PROTOCOL], agreed.unwrap_or_default());
            }
        }
    }

    #[test]
    fn what_is_missing_is_told() {
        let spdy = [("connection", "Upgrade"), ("upgrade", "SPDY/3.1")];
        let message = |pairs: &[(&'static str, &'static str)]| {
            remote_command(&headers(pairs)).err().map(|refusal| (refusal.status.as_u16(), refusal.message))
        };
        let told = "unable to upgrade: header X-Stream-Protocol-Version does not exist in request with 2 headers";
        assert_eq!(message(&spdy), Some((400, told.to_owned())));
        assert_eq!(message(&[("upgrade", "SPDY/3.1")]), Some((400, "Upgrade request required".to_owned())));
        assert_eq!(message(&WEBSOCKET), None);
        assert_eq!(message(&WEBSOCKET[..3]).map(|(code, _)| code), Some(400));
        assert_eq!(message(&WEBSOCKET[..2]).map(|(code, _)| code), Some(400));
    }

    #[test]
    fn tokens_are_no_protocols() {
        let with = |protocols: &'static str| {
            let mut all = WEBSOCKET.to_vec();
            all.push(("sec-websocket-protocol", protocols));
            remote_command(&headers(&all))
        };
        let (answer, agreed) =
            with("base64url.bearer.authorization.k8s.io.YQ, v4.base64.channel.k8s.io").expect("agreed");
        assert_eq!(agreed.protocol, "v4.base64.channel.k8s.io");
        assert_eq!(answer.headers()[SEC_WEBSOCKET_PROTOCOL], "v4.base64.channel.k8s.io");
        assert_eq!(answer.headers()[SEC_WEBSOCKET_ACCEPT], "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        assert_eq!(with("rubbish").map(|_| ()).map_err(|refusal| refusal.status.as_u16()), Err(403));
        let (answer, _) = with("base64url.bearer.authorization.k8s.io.YQ").expect("agreed");
        assert!(!answer.headers().contains_key(SEC_WEBSOCKET_PROTOCOL));
    }
}
