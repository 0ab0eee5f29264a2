//! Serves metrics.k8s.io for simulated nodes, behind an APIService like any metrics server.

use bytes::Bytes;
use holdfast_engine::Engine;
use holdfast_nodes::Template;
use holdfast_nodes::metrics::{self, SERVICE, Selection};
use holdfast_outbound::{InProcessServices, Inside};
use holdfast_transport_http::query::Query;
use holdfast_world::Time;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::sync::Arc;

/// The simulated metrics server, which this process reaches without the network, by the namespace and name of its
/// Service.
pub fn inside(template: Template) -> InProcessServices {
    let template = Arc::new(template);
    let serve: Inside = Arc::new(move |engine, stream| {
        let (engine, template) = (Arc::downgrade(engine), template.clone());
        let service = service_fn(move |request: Request<Incoming>| {
            let response = match engine.upgrade() {
                Some(engine) => answer(&engine, &template, &request),
                None => empty(StatusCode::SERVICE_UNAVAILABLE),
            };
            std::future::ready(Ok::<_, Infallible>(response))
        });
        tokio::spawn(async move {
            let connection = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection to the simulated metrics ended");
            }
        });
    });
    let (namespace, name) = SERVICE;
    InProcessServices::from([((namespace.to_owned(), name.to_owned()), serve)])
}

fn answer(engine: &Engine, template: &Template, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return empty(StatusCode::METHOD_NOT_ALLOWED);
    }
    let query = Query::parse(request.uri().query().unwrap_or_default());
    let parameter = |name: &str| query.get(name).unwrap_or_default();
    let selection = Selection::parse(parameter("labelSelector"), parameter("fieldSelector"));
    let now = Time(engine.stamp().time);
    let (code, document) = metrics::answer(&engine.snapshot(), template, request.uri().path(), selection, now);
    let mut response = Response::new(Full::from(document.to_string()));
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn empty(code: StatusCode) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = code;
    response
}
