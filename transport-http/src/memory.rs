//! The transport without a socket: an HTTP service in the same process, for controllers and tests.
//!
//! `kube::Client::new(memory::service(transport, user), "default")` is a client of the whole server.

use crate::authenticate::Peer;
use crate::respond::Response;
use crate::serve::filter;
use crate::transport::Transport;
use bytes::Buf;
use holdfast_core::authz::User;
use http::Request;
use std::convert::Infallible;
use std::sync::Arc;
use tower::{Service, ServiceExt};

/// The server as seen by `user`, who needs no credentials.
pub fn service<B>(
    transport: Arc<Transport>,
    user: Arc<User>,
) -> impl Service<Request<B>, Response = Response, Error = Infallible, Future: Send> + Clone + Send + 'static
where
    B: http_body::Body + Send + Sync + Unpin + 'static,
    B::Data: Buf + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let peer = Peer::Internal(user);
    warp::service(filter(transport)).map_request(move |mut request: Request<B>| {
        request.extensions_mut().insert(peer.clone());
        request
    })
}
