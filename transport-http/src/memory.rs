//! The transport without a socket: an HTTP service in the same process, for controllers and tests.
//!
//! `kube::Client::new(memory::service(transport, user), "default")` is a client of the whole server.

use crate::respond::Response;
use crate::serve::filter;
use crate::transport::Transport;
use bytes::Bytes;
use holdfast_core::authz::User;
use holdfast_tls::peer::Peer;
use http::header::{ACCEPT, USER_AGENT};
use http::{HeaderValue, Request};
use http_body_util::{BodyExt, Full, Limited};
use std::sync::Arc;
use tower::{Service, ServiceExt};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Sends a GET by this user to the server, and returns the response, which is in JSON. Fails if the body has more than
/// `bytes_max` bytes.
pub async fn get(
    transport: Arc<Transport>,
    user: Arc<User>,
    path: &str,
    bytes_max: usize,
) -> Result<http::Response<Bytes>, BoxError> {
    let request = Request::get(path).header(ACCEPT, "application/json").body(Full::<Bytes>::default())?;
    let (parts, body) = service(transport, user).oneshot(request).await?.into_parts();
    let body = Limited::new(body, bytes_max).collect().await?;
    Ok(http::Response::from_parts(parts, body.to_bytes()))
}

/// Like [`service`], for a client whose user agent is `agent`.
pub fn service_called<B>(
    transport: Arc<Transport>,
    user: Arc<User>,
    agent: &'static str,
) -> impl Service<Request<B>, Response = Response, Error = BoxError, Future: Send> + Clone + Send + 'static
where
    B: http_body::Body<Data: Send, Error: Into<BoxError>> + Send + 'static,
{
    service(transport, user).map_request(move |mut request: Request<B>| {
        request.headers_mut().insert(USER_AGENT, HeaderValue::from_static(agent));
        request
    })
}

/// The server as an HTTP service for `user`, whose requests need no credentials. A request's body is read completely
/// before it is sent.
pub fn service<B>(
    transport: Arc<Transport>,
    user: Arc<User>,
) -> impl Service<Request<B>, Response = Response, Error = BoxError, Future: Send> + Clone + Send + 'static
where
    B: http_body::Body<Data: Send, Error: Into<BoxError>> + Send + 'static,
{
    let (service, peer) = (warp::service(filter(transport)), Peer::Internal(user));
    tower::service_fn(move |request: Request<B>| {
        let (service, peer) = (service.clone(), peer.clone());
        async move {
            let (mut parts, body) = request.into_parts();
            parts.extensions.insert(peer);
            let body = body.collect().await.map_err(Into::into)?.to_bytes();
            let answer = service.oneshot(Request::from_parts(parts, Full::new(body))).await;
            Ok(answer.unwrap_or_else(|never| match never {}))
        }
    })
}
