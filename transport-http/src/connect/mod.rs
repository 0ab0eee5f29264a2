//! Answers of servers behind the API: a node's kubelet, a pod or a Service. The service has authorized the call and
//! found the destination; this module connects to the destination.
//!
//! `logs` reads a container's log. `upgrade` joins the client's connection with a connection to a kubelet, and
//! `translate` does so if the client and the kubelet speak different protocols. `relay` copies the bytes between the
//! two connections. `proxy` forwards ordinary requests, and `links` rewrites the links of pages. `paced` limits the
//! speed of connections.

mod client;
pub(crate) mod connections;
mod counts;
mod links;
mod logs;
mod paced;
mod proxy;
mod relay;
mod switch;
mod translate;
mod upgrade;

pub use connections::{Connections, KubeletGates};

use crate::authenticate::Authenticator;
use crate::respond::{self, Response, Shape};
use crate::transport::Transport;
use crate::transport::lifecycle::Lifecycle;
use crate::understood::Head;
use bytes::{Buf, Bytes, BytesMut};
use futures_util::{Stream, StreamExt};
use holdfast_audit::{RequestEnd, Trail};
use holdfast_core::Refusal;
use holdfast_core::kinds::Destination;
use holdfast_core::refusal::{Plenty, Ruling, RulingKind};
use holdfast_outbound::OutBody;
use holdfast_outbound::kubelets::{Kubelets, Unreached};
use holdfast_service::{Connecting, Share};
use holdfast_streams::upgrade::Refusal as NotUpgraded;
use holdfast_value::Value;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt, Empty};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;
use warp::Reply as _;

/// A client's request that a server behind the API is to answer.
struct Outing<'a> {
    connections: &'a Arc<Connections>,
    lifecycle: &'a Lifecycle,
    authenticator: &'a Authenticator,
    head: Head,
    way: &'a Connecting,
    /// The id of the client's request.
    id: &'a str,
    place: Arc<Share>,
}

/// Connects to the destination that the service has found, and returns the destination's answer.
pub(crate) async fn answer<B, D, E>(
    transport: &Arc<Transport>,
    head: Head,
    shape: Shape,
    mut way: Box<Connecting>,
    id: &str,
    body: Option<B>,
) -> Response
where
    B: Stream<Item = Result<D, E>> + Send + 'static,
    D: Buf,
    E: std::fmt::Display,
{
    let trail = way.trail.take();
    let going = async {
        let full = || Refusal::TooManyRequests { what: Plenty::NodeConnections, retry_after_seconds: 1 };
        let Transport { lifecycle, authenticator, other_servers, .. } = &**transport;
        let connections = &other_servers.connections;
        let place = Arc::new(connections.places.take(&way.user, 1).ok_or_else(full)?);
        let outing = Outing { connections, lifecycle, authenticator, head, way: &way, id, place };
        match (&way.destination, way.part.as_str()) {
            (Destination::Nowhere, _) => Ok(Answered::now(empty(StatusCode::NO_CONTENT))),
            (Destination::Kubelet { .. }, "log") => logs::answer(outing).await,
            (Destination::Kubelet { machine, path, query }, _) => upgrade::answer(outing, machine, path, query).await,
            (Destination::Node { .. } | Destination::Server { .. }, _) => proxy::answer(outing, body).await,
        }
    };
    match going.await {
        Ok(answered) => answered.told(trail).await,
        Err(refusal) => {
            if let Some(mut trail) = trail {
                let ended = crate::audit::ended(&refusal);
                trail.start(ended.clone()).await;
                trail.end(ended).await;
            }
            respond::refusal(&refusal, shape)
        }
    }
}

/// An answer whose body may continue for long after its head.
struct Answered {
    response: Response,
    /// Receives the request's audit trail, if the answer continues after its head.
    ends: Option<tokio::sync::oneshot::Sender<Box<Trail>>>,
}

impl Answered {
    fn now(response: Response) -> Answered {
        Answered { response, ends: None }
    }

    /// Records the beginning of the answer in the audit trail, and later its end.
    async fn told(self, trail: Option<Box<Trail>>) -> Response {
        let Answered { response, ends } = self;
        if let Some(mut trail) = trail {
            let ended = RequestEnd { code: response.status().as_u16(), ..RequestEnd::default() };
            trail.start(ended.clone()).await;
            match ends {
                // If the receiver no longer exists, the answer has ended, and dropping the trail records that.
                Some(ends) => _ = ends.send(trail),
                None => trail.end(ended).await,
            }
        }
        response
    }
}

/// The values that an answer needs until its end: its place and its audit trail.
struct Kept {
    _trail: tokio::sync::oneshot::Receiver<Box<Trail>>,
    _place: Arc<Share>,
}

/// Returns the response with a body that owns `kept` until its body has ended or is dropped.
fn keeping(response: Response, kept: Kept) -> Response {
    let (parts, body) = response.into_parts();
    let pieces = body.into_data_stream().inspect(move |_| {
        // This use moves `kept` into the stream, so that its values are dropped with the stream.
        let _ = &kept;
    });
    let (_, body) = warp::reply::stream(pieces).into_response().into_parts();
    Response::from_parts(parts, body)
}

fn empty(status: StatusCode) -> Response {
    let mut response = Response::new(Bytes::new().into());
    *response.status_mut() = status;
    response
}

/// A Status with this message and no reason. Kubernetes gives this answer when a node cannot be reached.
fn failed(message: impl Into<String>) -> Refusal {
    ruled(RulingKind::Internal, "", message)
}

fn ruled(kind: RulingKind, reason: &str, message: impl Into<String>) -> Refusal {
    let (reason, message) = (reason.to_owned(), message.into());
    Refusal::Ruled(Box::new(Ruling { kind, reason, message, details: Value::Null }))
}

fn unreached(why: Unreached) -> Refusal {
    match why {
        Unreached::NotAllowed => ruled(RulingKind::BadRequest, "BadRequest", why.to_string()),
        Unreached::Nowhere(why) => failed(why),
        Unreached::NotDialled(why) | Unreached::Unanswered(why) => failed(format!("error dialing backend: {why}")),
    }
}

/// The answer to an impossible upgrade. It is plain text, as the libraries of Kubernetes' server send it.
fn not_upgraded(refusal: NotUpgraded) -> Response {
    let (parts, text) = refusal.into_response().into_parts();
    Response::from_parts(parts, text.into())
}

/// How long the server waits for the body of a kubelet's error answer.
const WORDS_TIME: Duration = Duration::from_secs(10);

/// The first bytes of a kubelet's answer: at most `bytes_max`, and only the bytes that arrive in time. The answer may
/// have no end, or stop in the middle.
async fn beginning(body: hyper::body::Incoming, bytes_max: usize) -> Bytes {
    let (mut pieces, mut all) = (body.into_data_stream(), BytesMut::new());
    let reading = async {
        while let Some(Ok(piece)) = pieces.next().await
            && all.len() < bytes_max
        {
            all.extend_from_slice(&piece[..piece.len().min(bytes_max - all.len())]);
        }
    };
    _ = timeout(WORDS_TIME, reading).await;
    all.freeze()
}

fn without_body() -> OutBody {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

/// A request without a body to a server behind the API, with these headers.
fn request(method: http::Method, target: &str, headers: HeaderMap) -> Result<Request<OutBody>, Refusal> {
    let mut request = Request::new(without_body());
    *request.method_mut() = method;
    *request.uri_mut() = target.parse().map_err(|error| failed(format!("{target:?}: {error}")))?;
    *request.headers_mut() = headers;
    Ok(request)
}

impl Outing<'_> {
    fn kubelets(&self) -> &Arc<Kubelets> {
        &self.connections.kubelets
    }

    /// The values to keep until the end of the answer, and the channel for the audit trail.
    fn keep(&self) -> (tokio::sync::oneshot::Sender<Box<Trail>>, Kept) {
        let (sender, trail) = tokio::sync::oneshot::channel();
        (sender, Kept { _trail: trail, _place: self.place.clone() })
    }

    fn counts(&self) -> &counts::Counts {
        &self.connections.counts
    }

    /// The client's headers without the headers that are only for this server.
    fn headers(&self) -> HeaderMap {
        let mut headers = self.head.headers.clone();
        headers.remove(http::header::HOST);
        headers.remove(http::header::AUTHORIZATION);
        let own: Vec<_> = headers
            .keys()
            .filter(|name| name.as_str().starts_with("impersonate-") || name.as_str().starts_with("x-remote-"))
            .cloned()
            .collect();
        own.iter().for_each(|name| drop(headers.remove(name)));
        self.authenticator.request_headers.load().clear(&mut headers);
        headers
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_core::authz::User;

    #[test]
    fn nobody_has_all_connections_to_nodes() {
        let connections = Connections::new(Connections::default().kubelets, None, 10);
        let take = |name: &str| connections.places.take(&User::new(name, &[]), 1);
        let held: Vec<Share> = std::iter::from_fn(|| take("jane")).collect();
        assert_eq!(held.len(), 5, "half of all");
        assert!(take("joe").is_some());
        drop(held);
        assert!(take("jane").is_some());
    }
}
