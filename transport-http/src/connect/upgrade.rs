//! The client's connection and a server's become one. Where both speak the same, bytes are passed on as they are; where
//! they do not, [`translate`](super::translate) goes between.

use super::switch::{spawn, spdy_headers, switched};
use super::{Answered, Kept, Outing, failed, not_upgraded, request, ruled, translate, unreached};
use crate::connect::paced::Paced;
use crate::respond::Response;
use bytes::Bytes;
use holdfast_core::Refusal;
use holdfast_core::kinds::Machine;
use holdfast_outbound::Link;
use holdfast_outbound::kubelets::send;
use holdfast_streams::upgrade::{self, STREAM_PROTOCOL, TUNNEL, Wire};
use holdfast_streams::websocket::Tunnel;
use http::header::{CONNECTION, HeaderValue, UPGRADE};
use http::{HeaderMap, Method, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, copy, split};
use tokio::time::timeout;
use warp::Reply as _;

/// How long a refusal of an upgrade may take to come.
const REFUSAL_MAX: Duration = Duration::from_secs(10);
const REFUSAL_BYTES_MAX: usize = 1 << 20;
/// How long it may take to say that a connection has ended.
const END_MAX: Duration = Duration::from_secs(5);

pub async fn answer(outing: Outing<'_>, machine: &Machine, path: &str, query: &str) -> Result<Answered, Refusal> {
    // Over HTTP/2 there is no connection to go on with.
    let Some(wire) = upgrade::wire(&outing.head.headers).filter(|_| outing.head.upgrade.is_some()) else {
        return Err(ruled(400, "BadRequest", "Upgrade request required"));
    };
    let target = if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") };
    let is_forward = outing.way.part == "portforward";
    let gates = outing.transport.connections.gates;
    // With the gate off, a WebSocket request is passed to the node like any other upgrade.
    let is_looked_at = wire == Wire::WebSocket && if is_forward { gates.tunnels } else { gates.translates };
    let wants = |wanted: fn(&str) -> bool| {
        let is_passed_on = machine.takes_websockets && gates.passes_on;
        is_looked_at && !is_passed_on && upgrade::offered(&outing.head.headers).any(wanted)
    };
    if is_forward && wants(|offered| offered.starts_with(TUNNEL)) {
        outing.counts().websocket(&outing.way.part, true);
        return tunnel(outing, machine, &target).await;
    }
    if !is_forward && wants(|offered| offered == "v5.channel.k8s.io") {
        outing.counts().websocket(&outing.way.part, true);
        return translate::answer(outing, machine, &target).await;
    }
    if is_looked_at {
        outing.counts().websocket(&outing.way.part, false);
    }
    let kubelet = outing.kubelets().find(machine).map_err(unreached)?;
    let link = kubelet.dial(false).await.map_err(unreached)?;
    // A node of this process is told by the host which one it is.
    let host = kubelet.is_inside().then(|| kubelet.authority());
    pass(outing, link, &target, host.as_deref()).await
}

/// The client's request as it is, at another place. Its host stays what the client says, unless another one is named.
pub async fn pass(mut outing: Outing<'_>, link: Link, target: &str, host: Option<&str>) -> Result<Answered, Refusal> {
    let mut headers = outing.headers();
    if let Some(protocol) = outing.head.headers.get(UPGRADE) {
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(UPGRADE, protocol.clone());
    }
    crate::aggregate::say_client(&mut headers, outing.head.client);
    let own = outing.head.headers.get(http::header::HOST).and_then(|host| host.to_str().ok());
    let host = host.or(own).unwrap_or("localhost").to_owned();
    let request = request(outing.head.method.clone(), target, headers)?;
    let response = send(link, Some(&host), request, false).await.map_err(unreached)?;
    let client = outing.head.upgrade.take();
    match response.status() {
        StatusCode::SWITCHING_PROTOCOLS => joined(&outing, response, client),
        _ => refused(response).await,
    }
}

/// What a server says that does not want to switch protocols.
async fn refused(response: http::Response<Incoming>) -> Result<Answered, Refusal> {
    let status = response.status().as_u16();
    if status < 400 {
        return Err(failed(format!("invalid upgrade response: status code {status}")));
    }
    let (mut parts, body) = response.into_parts();
    let words = http_body_util::Limited::new(body, REFUSAL_BYTES_MAX).collect();
    let words = tokio::time::timeout(REFUSAL_MAX, words).await.ok().and_then(Result::ok);
    for name in ["connection", "transfer-encoding", "content-length", "upgrade", "keep-alive"] {
        parts.headers.remove(name);
    }
    let words: Bytes = words.map(|words| words.to_bytes()).unwrap_or_default();
    Ok(Answered::now(Response::from_parts(parts, words.into())))
}

/// Both connections become one. As in Kubernetes, the first side to end ends both.
fn joined(
    outing: &Outing<'_>,
    mut response: http::Response<Incoming>,
    client: Option<OnUpgrade>,
) -> Result<Answered, Refusal> {
    let client = client.ok_or_else(|| failed("unable to upgrade: the connection cannot be taken over"))?;
    let server = hyper::upgrade::on(&mut response);
    let (ends, kept) = outing.keep();
    let pace = outing.transport.connections.bytes_a_second;
    spawn(outing, kept, async move {
        let (client, server) = match tokio::try_join!(client, server) {
            Ok(both) => both,
            Err(error) => return tracing::debug!(%error, "a connection was not upgraded"),
        };
        join(TokioIo::new(client), Paced::new(TokioIo::new(server), pace)).await;
    });
    let mut answer = warp::reply().into_response();
    *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    *answer.headers_mut() = std::mem::take(response.headers_mut());
    Ok(Answered { response: answer, ends: Some(ends) })
}

/// Copies both ways until either side ends.
async fn join(client: impl AsyncRead + AsyncWrite, server: impl AsyncRead + AsyncWrite) {
    let ((mut from_client, mut to_client), (mut from_server, mut to_server)) = (split(client), split(server));
    tokio::select! {
        _ = copy(&mut from_client, &mut to_server) => {}
        _ = copy(&mut from_server, &mut to_client) => {}
    }
    _ = timeout(END_MAX, async { tokio::join!(to_client.shutdown(), to_server.shutdown()) }).await;
}

/// A WebSocket that carries the bytes of a SPDY connection, which goes on behind.
async fn tunnel(mut outing: Outing<'_>, machine: &Machine, target: &str) -> Result<Answered, Refusal> {
    let offered = upgrade::offered(&outing.head.headers).filter_map(|offered| offered.strip_prefix(TUNNEL));
    let headers = spdy_headers(offered);
    let kubelet = outing.kubelets().find(machine).map_err(unreached)?;
    let link = kubelet.dial(false).await.map_err(unreached)?;
    let asked = request(Method::GET, target, headers)?;
    let mut response = send(link, Some(&kubelet.authority()), asked, false).await.map_err(unreached)?;
    outing.counts().tunnelled(response.status().as_u16());
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        return refused(response).await;
    }
    let chosen = response.headers().get(STREAM_PROTOCOL).and_then(|chosen| chosen.to_str().ok()).unwrap_or_default();
    let protocol = format!("{TUNNEL}{chosen}");
    let answer = match upgrade::websocket_answer(&outing.head.headers, &protocol) {
        Ok(answer) => answer,
        Err(refusal) => return Ok(Answered::now(not_upgraded(refusal))),
    };
    let client = outing.head.upgrade.take();
    let client = client.ok_or_else(|| failed("unable to upgrade: the connection cannot be taken over"))?;
    let server = hyper::upgrade::on(&mut response);
    let (ends, kept) = outing.keep();
    let pace = outing.transport.connections.bytes_a_second;
    spawn(&outing, kept, async move {
        let (client, server) = match tokio::try_join!(client, server) {
            Ok(both) => both,
            Err(error) => return tracing::debug!(%error, "a connection was not upgraded"),
        };
        let client = Tunnel::server(TokioIo::new(client)).await;
        join(client, Paced::new(TokioIo::new(server), pace)).await;
    });
    Ok(Answered { response: switched(answer), ends: Some(ends) })
}
