//! The API on a socket, and its clean shutdown.

use crate::expecting::Expecting;
use crate::listener::{Guest, Listener};
use crate::requests::WireRequest;
use crate::respond::Response;
use crate::target::PathsOnly;
use crate::transport::Transport;
use holdfast_tls::guests::Guests;
use holdfast_tls::peer::Peer;
use holdfast_tls::server::LiveTls;
use http::{HeaderMap, Method, Request};
use hyper::upgrade::OnUpgrade;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use warp::Filter;
use warp::filters::path::FullPath;

/// How long connections may take to end after their last request when the server stops.
const DRAIN_MAX: Duration = Duration::from_secs(5);

/// The API as a warp filter, for the socket and for callers within the process.
pub fn filter(
    transport: Arc<Transport>,
) -> impl Filter<Extract = (Response,), Error = Infallible> + Clone + Send + Sync + 'static {
    let query = warp::query::raw().or(warp::any().map(String::new)).unify();
    let peer = warp::ext::optional::<Peer>();
    let guest = warp::ext::optional::<Guest>();
    let upgrade = warp::ext::optional::<OnUpgrade>();
    warp::method()
        .and(warp::path::full())
        .and(query)
        .and(warp::header::headers_cloned())
        .and(peer)
        .and(guest)
        .and(upgrade)
        .and(warp::body::stream())
        .and_then(
            move |method: Method,
                  path: FullPath,
                  query,
                  headers: HeaderMap,
                  peer: Option<Peer>,
                  guest,
                  upgrade,
                  body| {
                let transport = transport.clone();
                async move {
                    let peer = peer.unwrap_or(Peer::Unknown);
                    let wire = WireRequest {
                        method,
                        path: path.as_str().to_owned(),
                        query,
                        headers,
                        peer,
                        guest,
                        upgrade,
                        body,
                    };
                    // The future is boxed, because the HTTP libraries move a future several times before they poll it.
                    Ok::<Response, warp::Rejection>(Box::pin(transport.handle(wire)).await)
                }
            },
        )
        .recover(|_: warp::Rejection| async { Ok::<_, Infallible>(crate::respond::text(400, "bad request\n")) })
        .unify()
}

/// Serves until the server stops, then lets requests in progress finish.
pub async fn serve(
    transport: Arc<Transport>,
    listener: TcpListener,
    tls: Arc<LiveTls>,
    guests: Arc<Guests>,
) -> std::io::Result<()> {
    let stopping = transport.lifecycle.closing();
    let service = PathsOnly { service: warp::service(filter(transport.clone())) };
    let service = Expecting { service, engine: transport.engine().clone() };
    let counters = transport.service().counters().clone();
    let certified = Arc::new(move |good_for| counters.certified(good_for));
    let served = Listener { tls, service, is_quick, guests, certified, stopping };
    let connections = served.accept(listener).await;
    transport.wait_for_requests().await;
    let ended = async { tokio::join!(connections.wait(), transport.lifecycle.wait_for_upgraded()) };
    let _ = tokio::time::timeout(DRAIN_MAX + transport.lifecycle.settings.watch_grace, ended).await;
    Ok(())
}

/// Whether a response takes little work, no matter how much is stored, because it has a single object or is the version
/// page. The connection makes such a response at once, without a task.
fn is_quick(request: &Request<()>) -> bool {
    const PARTS_MAX: usize = 7;
    if request.method() != Method::GET || request.uri().query().is_some_and(|query| query.contains("watch")) {
        return false;
    }
    let mut parts = [""; PARTS_MAX];
    let mut count = 0;
    for part in request.uri().path().split('/').skip(1) {
        let Some(place) = parts.get_mut(count).filter(|_| !part.is_empty()) else { return false };
        *place = part;
        count += 1;
    }
    match parts.get(..count).unwrap_or_default() {
        ["version"] => true,
        ["api", _, object @ ..] | ["apis", _, _, object @ ..] => {
            matches!(object, [resource, _] if *resource != "watch") || matches!(object, ["namespaces", _, _, _])
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use futures_util::stream::Empty;

    fn size_of_output<F>(_: impl FnOnce(Arc<Transport>, WireRequest<Empty<Result<Bytes, Infallible>>>) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn single_objects_are_quick_and_lists_are_not() {
        for (method, target, quick) in [
            ("GET", "/api/v1/namespaces/a/pods/b", true),
            ("GET", "/api/v1/namespaces/a", true),
            ("GET", "/api/v1/nodes/a?pretty=1", true),
            ("GET", "/apis/apps/v1/namespaces/a/deployments/b", true),
            ("GET", "/version", true),
            ("POST", "/api/v1/namespaces", false),
            ("PUT", "/api/v1/nodes/a", false),
            ("GET", "/api/v1/nodes", false),
            ("GET", "/api/v1/nodes/", false),
            ("GET", "/api/v1/namespaces/a/pods", false),
            ("GET", "/api/v1/namespaces/a/pods/b/log", false),
            ("GET", "/api/v1/namespaces/a/pods/b?watch=1", false),
            ("GET", "/api/v1/watch/nodes", false),
            ("GET", "/apis/apps/v1/watch/namespaces/a/deployments/b", false),
            ("GET", "/apis/apps/v1/watch/deployments", false),
            ("GET", "/apis", false),
            ("GET", "/openapi/v2", false),
            ("GET", "/forks/a/api/v1/nodes/b", false),
            ("GET", "*", false),
        ] {
            let request = Request::builder().method(method).uri(target).body(()).expect("a request");
            assert_eq!(is_quick(&request), quick, "{method} {target}");
        }
    }

    /// The future that answers a request is made and moved for each request. If a future contains another future twice,
    /// the size doubles with each such step.
    #[test]
    fn what_every_request_brings_into_being_is_small() {
        let size = size_of_output(|transport, wire| transport.handle(wire));
        assert!(size <= 6 << 10, "{size} bytes");
    }
}
