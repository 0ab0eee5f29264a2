//! The parts of an HTTP request that are read before its body.

use crate::aggregate;
use crate::body::Received;
use crate::query::Query;
use crate::respond::Shape;
use crate::route::Route;
use crate::websocket::Socket;
use holdfast_core::Refusal;
use http::{HeaderMap, Method};
use hyper::upgrade::OnUpgrade;
use std::net::SocketAddr;
use std::sync::Arc;

/// A request without its body and its client.
pub(crate) struct Head {
    pub method: Method,
    pub path: String,
    pub query: String,
    pub headers: HeaderMap,
    pub client: Option<SocketAddr>,
    pub upgrade: Option<OnUpgrade>,
}

/// The route of a request, and the form of its response.
pub(crate) struct Understood {
    pub route: Route,
    pub at: Option<String>,
    pub query: Query,
    pub shape: Shape,
    /// The refusal if the client accepts no available form.
    pub negotiated: Result<(), Refusal>,
    /// The aggregated server that serves the request; `None` if this server serves it.
    pub server: Option<Arc<aggregate::Server>>,
}

/// The parts of a request that the transport keeps, and does not pass to the service.
#[derive(Default)]
pub(crate) struct Kept {
    pub body: Received,
    pub socket: Option<Socket>,
}
