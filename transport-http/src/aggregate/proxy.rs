//! Forwards a request to the server that serves it, in the name of the request's user.

use super::Server;
use crate::audit::FORWARDED_FOR;
use crate::respond::{self, Response};
use crate::route::Route;
use crate::transport::Transport;
use crate::transport::lifecycle::Lifecycle;
use crate::understood::Head;
use bytes::{Buf, Bytes};
use futures_util::{Stream, StreamExt};
use holdfast_core::Refusal;
use holdfast_core::authz::User;
use holdfast_core::refusal::Timeout;
use holdfast_core::request::Verb;
use holdfast_outbound::{OutBody, OutboundError};
use http::header::{self, HeaderName, HeaderValue};
use http::{HeaderMap, Method, Request, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, Empty, StreamBody};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use warp::Reply as _;

/// How long a server may take to begin its response, unless the request is a long-running one.
const ANSWER_MAX: Duration = Duration::from_secs(60);

const REMOTE_USER: HeaderName = HeaderName::from_static("x-remote-user");
const REMOTE_UID: HeaderName = HeaderName::from_static("x-remote-uid");
const REMOTE_GROUP: HeaderName = HeaderName::from_static("x-remote-group");
const REMOTE_EXTRA: &str = "x-remote-extra-";

/// The headers that concern only one connection, and are therefore not forwarded.
const OF_CONNECTION: &[&str] = &[
    "connection",
    "proxy-connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Forwards an authorized request of this user, with its request id.
pub async fn forward<B, D, E>(
    transport: &Arc<Transport>,
    server: &Server,
    route: &Route,
    wire: Head,
    user: &User,
    id: &str,
    body: Option<B>,
) -> Response
where
    B: Stream<Item = Result<D, E>> + Send + 'static,
    D: Buf,
    E: std::fmt::Display,
{
    if !server.service.available {
        return respond::plain_error(503, "service unavailable");
    }
    let path = match wire.query.is_empty() {
        true => wire.path.clone(),
        false => format!("{}?{}", wire.path, wire.query),
    };
    let endpoint = server.endpoint(&path);
    let outbound = transport.aggregator().outbound();
    let Ok(host) = outbound.host(&endpoint) else {
        return respond::plain_error(503, "service unavailable");
    };
    let upgrade = asked_upgrade(&wire.headers);
    let mut headers = wire.headers;
    strip(&mut headers, upgrade.is_some());
    headers.remove(header::HOST);
    // The other server trusts the headers that name the user, because this server presents a trusted client
    // certificate. So the client's credentials, and headers of this kind that the client sent, are removed before the
    // user's headers are added.
    headers.remove(header::AUTHORIZATION);
    let impersonating: Vec<HeaderName> =
        headers.keys().filter(|name| name.as_str().starts_with("impersonate-")).cloned().collect();
    impersonating.iter().for_each(|name| drop(headers.remove(name)));
    transport.authenticator.request_headers.load().clear(&mut headers);
    if let Err(name) = identify(&mut headers, user) {
        let message = format!("error trying to reach service: net/http: invalid header field value for {name:?}");
        return respond::plain_error(503, &message);
    }
    let mut set = |name: &'static str, value: &str| {
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(HeaderName::from_static(name), value);
        }
    };
    set("audit-id", id);
    if upgrade.is_none() {
        set("x-forwarded-uri", &wire.path);
        set("x-forwarded-host", &host);
        set("x-forwarded-proto", "https");
    }
    say_client(&mut headers, wire.client);
    let silent = matches!(wire.method, Method::GET | Method::HEAD | Method::OPTIONS);
    let body: OutBody = if let Some(body) = body.filter(|_| !silent) {
        let pieces = body.map(|piece| match piece {
            Ok(mut piece) => Ok(Frame::data(piece.copy_to_bytes(piece.remaining()))),
            Err(error) => Err(error.to_string().into()),
        });
        BodyExt::boxed_unsync(StreamBody::new(pieces))
    } else {
        headers.remove(header::CONTENT_LENGTH);
        Empty::new().map_err(|never| match never {}).boxed_unsync()
    };
    let mut request = Request::new(body);
    *request.method_mut() = wire.method;
    *request.headers_mut() = headers;
    if let Some(protocol) = upgrade {
        let request = upgrading(request, protocol);
        return match outbound.upgrade(&endpoint, request).await {
            Ok(response) => upgraded(&transport.lifecycle, response, wire.upgrade),
            Err(error) => respond::plain_error(503, &error.to_string()),
        };
    }
    let patient = is_patient(route);
    let answer = outbound.forward(&endpoint, request);
    let answer = if patient { Ok(answer.await) } else { tokio::time::timeout(ANSWER_MAX, answer).await };
    match answer {
        Ok(Ok(response)) if patient => {
            passed_on(response, transport.aggregator().settings.reject_redirects, Some(&transport.lifecycle))
        }
        Ok(Ok(response)) => passed_on(response, transport.aggregator().settings.reject_redirects, None),
        Ok(Err(OutboundError::Unusable(why))) => respond::plain_error(500, &why),
        Ok(Err(OutboundError::Unresolved(_))) => respond::plain_error(503, "service unavailable"),
        Ok(Err(error)) => respond::plain_error(503, &format!("error trying to reach service: {error}")),
        Err(_) => respond::refusal(&Refusal::Timeout(Timeout::Backend), respond::Shape::PLAIN),
    }
}

/// Whether the response may last for an unlimited time.
fn is_patient(route: &Route) -> bool {
    let Route::Resource { verb, path } = route else { return false };
    *verb == Some(Verb::Watch)
        || matches!(path.subresource.as_str(), "log" | "attach" | "exec" | "portforward" | "proxy")
}

/// A server's response, piece by piece as it arrives. A response that may last for ever ends when this server stops.
pub fn passed_on(response: http::Response<Incoming>, reject_redirects: bool, endless: Option<&Lifecycle>) -> Response {
    let (mut parts, body) = response.into_parts();
    if reject_redirects && parts.status.is_redirection() && parts.headers.contains_key(header::LOCATION) {
        let message = "the backend attempted to redirect this request, which is not permitted";
        return respond::text(502, message);
    }
    strip(&mut parts.headers, false);
    for name in ["credentials", "headers", "methods", "origin"] {
        parts.headers.remove(format!("access-control-allow-{name}"));
    }
    let length = parts.headers.get(header::CONTENT_LENGTH).cloned();
    let pieces = body.into_data_stream();
    let mut answer = match endless {
        None => warp::reply::stream(pieces).into_response(),
        Some(lifecycle) => {
            let stopped = Box::pin(lifecycle.stopped());
            warp::reply::stream(pieces.take_until(stopped)).into_response()
        }
    };
    *answer.status_mut() = parts.status;
    *answer.headers_mut() = parts.headers;
    if let Some(length) = length {
        answer.headers_mut().insert(header::CONTENT_LENGTH, length);
    }
    answer
}

/// Sets the headers that name the user, and removes such headers that the client sent. If a value cannot be sent as a
/// header, the error contains the header's name: without that header, the other server would identify another user.
pub fn identify(headers: &mut HeaderMap, user: &User) -> Result<(), String> {
    let said: Vec<HeaderName> = headers
        .keys()
        .filter(|name| {
            [REMOTE_USER, REMOTE_UID, REMOTE_GROUP].contains(name) || name.as_str().starts_with(REMOTE_EXTRA)
        })
        .cloned()
        .collect();
    said.iter().for_each(|name| drop(headers.remove(name)));
    let mut say = |name: HeaderName, value: &str| match HeaderValue::from_bytes(value.as_bytes()) {
        Ok(value) => {
            headers.append(name, value);
            Ok(())
        }
        Err(_) => Err(name.to_string()),
    };
    say(REMOTE_USER, &user.name)?;
    if !user.uid.is_empty() {
        say(REMOTE_UID, &user.uid)?;
    }
    for group in &user.groups {
        say(REMOTE_GROUP, group)?;
    }
    for (key, values) in &user.extra {
        let name = format!("{REMOTE_EXTRA}{}", escaped(&key.to_ascii_lowercase()));
        let header = HeaderName::try_from(&name).map_err(|_| name)?;
        for value in values {
            say(header.clone(), value)?;
        }
    }
    Ok(())
}

/// A header name in which illegal characters and the percent sign are percent-encoded.
fn escaped(key: &str) -> String {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$&'*+-.^_`|~".contains(&byte);
    key.bytes().map(|byte| if legal(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

/// The protocol to which the client wants to upgrade the connection, if it wants to upgrade.
fn asked_upgrade(headers: &HeaderMap) -> Option<HeaderValue> {
    let tokens = headers.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let asked = tokens.flat_map(|value| value.split(',')).any(|token| token.trim().eq_ignore_ascii_case("upgrade"));
    asked.then(|| headers.get(header::UPGRADE).cloned()).flatten()
}

fn upgrading(mut request: Request<OutBody>, protocol: HeaderValue) -> Request<OutBody> {
    request.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    request.headers_mut().insert(header::UPGRADE, protocol);
    request
}

/// Joins the connections of client and server, if the server has agreed to the upgrade.
fn upgraded(
    lifecycle: &Lifecycle,
    mut response: http::Response<Incoming>,
    client: Option<hyper::upgrade::OnUpgrade>,
) -> Response {
    let status = response.status();
    if status != StatusCode::SWITCHING_PROTOCOLS {
        if status.as_u16() < 400 {
            return respond::plain_error(503, &format!("invalid upgrade response: status code {}", status.as_u16()));
        }
        return passed_on(response, false, None);
    }
    let Some(client) = client else {
        return respond::plain_error(503, "request connection cannot be hijacked");
    };
    let server = hyper::upgrade::on(&mut response);
    let stopped = lifecycle.stopped();
    lifecycle.spawn_upgraded(async move {
        let (client, server) = match tokio::try_join!(client, server) {
            Ok(both) => both,
            Err(error) => return tracing::debug!(%error, "a connection was not upgraded"),
        };
        let (mut client, mut server) = (TokioIo::new(client), TokioIo::new(server));
        tokio::select! {
            _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
            () = stopped => {}
        }
    });
    let mut answer = Response::new(Bytes::new().into());
    *answer.status_mut() = status;
    *answer.headers_mut() = std::mem::take(response.headers_mut());
    answer
}

/// Removes the headers that concern only one connection.
pub fn strip(headers: &mut HeaderMap, upgrading: bool) {
    let named: Vec<String> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|name| name.trim().to_ascii_lowercase())
        .collect();
    if !upgrading {
        named.iter().for_each(|name| drop(headers.remove(name.as_str())));
    }
    OF_CONNECTION.iter().for_each(|name| drop(headers.remove(*name)));
}

/// Adds the client's address to the headers that name the addresses of client and proxies.
pub fn say_client(headers: &mut HeaderMap, client: Option<SocketAddr>) {
    if let Some(client) = client {
        add_forwarded_for(headers, &client.ip().to_string());
    }
}

fn add_forwarded_for(headers: &mut HeaderMap, client: &str) {
    let before: Vec<&str> = headers.get_all(FORWARDED_FOR).iter().filter_map(|value| value.to_str().ok()).collect();
    let all = before.into_iter().chain([client]).collect::<Vec<_>>().join(", ");
    if let Ok(all) = HeaderValue::from_str(&all) {
        headers.insert(FORWARDED_FOR, all);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_server_says_who_asks() {
        let mut headers = HeaderMap::new();
        for name in ["x-remote-user", "x-remote-group", "x-remote-extra-scopes", "x-remote-uid"] {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static("forged"));
        }
        let mut user = User::new("jane", &["a", "b"]);
        user.extra.insert("example.com/Scope %".into(), vec!["x".into(), "y".into()]);
        identify(&mut headers, &user).unwrap();
        let mut said: Vec<String> =
            headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
        said.sort();
        let expected = [
            "x-remote-extra-example.com%2Fscope%20%25: x",
            "x-remote-extra-example.com%2Fscope%20%25: y",
            "x-remote-group: a",
            "x-remote-group: b",
            "x-remote-user: jane",
        ];
        assert_eq!(said, expected.map(|line| line.replace("%2F", "%2f")));
        let unspeakable = User::new("a\nb", &[]);
        assert_eq!(identify(&mut headers, &unspeakable), Err("x-remote-user".into()));
    }

    #[test]
    fn headers_of_a_connection_stay_on_it() {
        let mut headers = HeaderMap::new();
        for (name, value) in [("connection", "close, X-Own"), ("x-own", "1"), ("te", "trailers"), ("accept", "*/*")] {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        strip(&mut headers, false);
        assert_eq!(headers.keys().map(HeaderName::as_str).collect::<Vec<_>>(), ["accept"]);
        add_forwarded_for(&mut headers, "10.0.0.1");
        add_forwarded_for(&mut headers, "10.0.0.2");
        assert_eq!(headers["x-forwarded-for"], "10.0.0.1, 10.0.0.2");
    }
}
