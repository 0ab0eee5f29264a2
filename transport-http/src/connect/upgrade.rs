//! Joins the client's connection with a connection to a server. If client and server speak the same protocol, bytes are
//! copied unchanged; otherwise [`translate`](super::translate) converts them.

use super::client::upgraded;
use super::relay::relay;
use super::switch::{spawn, spdy_headers, switched};
use super::{Answered, Outing, beginning, failed, not_upgraded, request, ruled, translate, unreached};
use crate::connect::paced::Paced;
use crate::respond::Response;
use holdfast_core::Refusal;
use holdfast_core::kinds::Machine;
use holdfast_core::refusal::RulingKind;
use holdfast_outbound::Link;
use holdfast_outbound::kubelets::send;
use holdfast_streams::upgrade::{self, STREAM_PROTOCOL, TUNNEL, UpgradeProtocol};
use holdfast_streams::websocket::Tunnel;
use http::header::{CONNECTION, HeaderValue, UPGRADE};
use http::{Method, StatusCode};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use warp::Reply as _;

/// The maximum number of bytes of a refusal that are passed on.
const REFUSAL_BYTES_MAX: usize = 1 << 20;

pub async fn answer(outing: Outing<'_>, machine: &Machine, path: &str, query: &str) -> Result<Answered, Refusal> {
    // HTTP/2 has no connection that could be upgraded, so `upgrade` is `None`.
    let Some(wire) = upgrade::wire(&outing.head.headers).filter(|_| outing.head.upgrade.is_some()) else {
        return Err(ruled(RulingKind::BadRequest, "BadRequest", "Upgrade request required"));
    };
    let target = if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") };
    let is_forward = outing.way.part == "portforward";
    let gates = outing.connections.gates;
    // If the feature gate for a request of this kind is off, a WebSocket request is passed to the node like any other
    // upgrade.
    let is_looked_at = wire == UpgradeProtocol::WebSocket && if is_forward { gates.tunnels } else { gates.translates };
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
    // All nodes of this process share a listener, which finds the node by the `Host` header.
    let host = kubelet.is_inside().then(|| kubelet.authority());
    pass(outing, link, &target, host.as_deref()).await
}

/// Forwards the client's request to another target. The client's `Host` header is kept unless `host` is given.
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

/// Converts the answer of a server that refuses the upgrade into the answer or refusal for the client.
async fn refused(response: http::Response<Incoming>) -> Result<Answered, Refusal> {
    let status = response.status().as_u16();
    if status < 400 {
        return Err(failed(format!("invalid upgrade response: status code {status}")));
    }
    let (mut parts, body) = response.into_parts();
    let words = beginning(body, REFUSAL_BYTES_MAX).await;
    for name in ["connection", "transfer-encoding", "content-length", "upgrade", "keep-alive"] {
        parts.headers.remove(name);
    }
    Ok(Answered::now(Response::from_parts(parts, words.into())))
}

/// Joins the connections of client and server. As in Kubernetes, both connections end when the first side has ended and
/// its last bytes are delivered.
fn joined(
    outing: &Outing<'_>,
    mut response: http::Response<Incoming>,
    client: Option<OnUpgrade>,
) -> Result<Answered, Refusal> {
    let client = client.ok_or_else(|| failed("unable to upgrade: the connection cannot be taken over"))?;
    let server = hyper::upgrade::on(&mut response);
    let (ends, kept) = outing.keep();
    let pace = outing.connections.bytes_a_second;
    spawn(outing, kept, async move {
        let (client, server) = match tokio::try_join!(upgraded(client), server) {
            Ok(both) => both,
            Err(error) => return tracing::debug!(%error, "a connection was not upgraded"),
        };
        relay(client, Paced::new(TokioIo::new(server), pace)).await;
    });
    let mut answer = warp::reply().into_response();
    *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    *answer.headers_mut() = std::mem::take(response.headers_mut());
    Ok(Answered { response: answer, ends: Some(ends) })
}

/// Forwards ports over a WebSocket, which carries the bytes of a SPDY connection. These bytes are passed on to the
/// kubelet.
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
    let pace = outing.connections.bytes_a_second;
    spawn(&outing, kept, async move {
        let (client, server) = match tokio::try_join!(upgraded(client), server) {
            Ok(both) => both,
            Err(error) => return tracing::debug!(%error, "a connection was not upgraded"),
        };
        let client = Tunnel::server(client).await;
        relay(client, Paced::new(TokioIo::new(server), pace)).await;
    });
    Ok(Answered { response: switched(answer), ends: Some(ends) })
}
