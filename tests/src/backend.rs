//! An aggregated API server: it serves a group with one resource, and records its requests.

use crate::authority::Pair;
use bytes::Bytes;
use http::header::{ACCEPT, CONNECTION, CONTENT_TYPE, LOCATION, UPGRADE};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::RootCertStore;
use rustls::server::WebPkiClientVerifier;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::broadcast;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

pub const GROUP: &str = "things.example.com";

/// A running server of `things.example.com/v1`. When dropped, it stops and closes its connections.
pub struct ThingsServer {
    pub port: u16,
    shared: Arc<ServerState>,
    task: JoinHandle<()>,
}

struct ServerState {
    /// Whether the server serves aggregated discovery.
    aggregated: bool,
    events: broadcast::Sender<Value>,
    seen: Mutex<Vec<ReceivedRequest>>,
    connections: Mutex<Vec<JoinHandle<()>>>,
}

/// A request that the server has received.
#[derive(Clone, Debug)]
pub struct ReceivedRequest {
    pub method: Method,
    pub path: String,
    pub headers: HeaderMap,
    pub body: Bytes,
}

type ResponseBody = BoxBody<Bytes, Infallible>;

impl ThingsServer {
    /// Starts a server that serves only clients with a certificate of the authorities in `front_proxies`.
    pub async fn start(pair: &Pair, front_proxies: &str, aggregated: bool) -> ThingsServer {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(front_proxies.as_bytes()) {
            roots.add(certificate.expect("PEM")).expect("a certificate");
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build().unwrap();
        let chain = CertificateDer::pem_slice_iter(pair.certificate.as_bytes()).collect::<Result<Vec<_>, _>>().unwrap();
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(clients)
            .with_single_cert(chain, PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap())
            .unwrap();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("0.0.0.0:0").await.expect("a port");
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(ServerState {
            aggregated,
            events: broadcast::Sender::new(16),
            seen: Mutex::default(),
            connections: Mutex::default(),
        });
        let serving = shared.clone();
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, shared) = (acceptor.clone(), serving.clone());
                let connection = tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let service = service_fn(move |request| answer(shared.clone(), request));
                    let builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
                    let _ = builder.serve_connection_with_upgrades(TokioIo::new(stream), service).await;
                });
                serving.connections.lock().unwrap().push(connection);
            }
        });
        ThingsServer { port, shared, task }
    }

    /// Sends an event about a new object to the watchers of this server.
    pub fn tell(&self, name: &str) {
        self.shared.events.send(json!({"type": "ADDED", "object": thing(name)})).expect("somebody watches");
    }

    /// The requests so far whose path begins with `path`.
    pub fn seen(&self, path: &str) -> Vec<ReceivedRequest> {
        self.shared.seen.lock().unwrap().iter().filter(|seen| seen.path.starts_with(path)).cloned().collect()
    }
}

impl Drop for ThingsServer {
    fn drop(&mut self) {
        self.task.abort();
        self.shared.connections.lock().unwrap().iter().for_each(JoinHandle::abort);
    }
}

fn thing(name: &str) -> Value {
    let metadata = json!({"name": name, "namespace": "default", "creationTimestamp": "2026-01-01T00:00:00Z"});
    json!({"apiVersion": format!("{GROUP}/v1"), "kind": "Thing", "metadata": metadata})
}

async fn answer(
    shared: Arc<ServerState>,
    mut request: Request<Incoming>,
) -> Result<Response<ResponseBody>, Infallible> {
    let upgrade = hyper::upgrade::on(&mut request);
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let path = parts.uri.path_and_query().map(|path| path.to_string()).unwrap_or_default();
    let (method, headers) = (parts.method.clone(), parts.headers.clone());
    shared.seen.lock().unwrap().push(ReceivedRequest { method, path, headers, body: body.clone() });
    let accept = parts.headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or("");
    let things = format!("/apis/{GROUP}/v1/namespaces/default/things");
    let path = parts.uri.path();
    let watching = parts.uri.query().unwrap_or("").contains("watch=");
    if path == format!("{things}/one/echo") {
        return Ok(echo(upgrade));
    }
    if path == things && watching {
        return Ok(events(&shared));
    }
    let list = json!({"kind": "ThingList", "apiVersion": format!("{GROUP}/v1"), "metadata": {"resourceVersion": "5"},
        "items": [thing("one"), thing("two")]});
    let verbs = json!(["create", "get", "list", "watch"]);
    let found = match path {
        "/apis" if shared.aggregated && accept.contains("as=APIGroupDiscoveryList") => {
            let kind = json!({"group": GROUP, "version": "v1", "kind": "Thing"});
            let resource = json!({"resource": "things", "responseKind": kind, "scope": "Namespaced",
                "singularResource": "thing", "verbs": verbs, "shortNames": ["th"]});
            let version = json!({"version": "v1", "resources": [resource], "freshness": "Current"});
            let document = json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2",
                "items": [{"metadata": {"name": GROUP}, "versions": [version]}]});
            let form = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
            return Ok(json_answer(200, &document, form));
        }
        path if path == format!("/apis/{GROUP}/v1") => {
            let resource = json!({"name": "things", "singularName": "thing", "namespaced": true, "kind": "Thing",
                "verbs": verbs, "shortNames": ["th"]});
            Some(json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": format!("{GROUP}/v1"),
                "resources": [resource]}))
        }
        path if path == things && parts.method == Method::POST => {
            return Ok(json_answer(201, &serde_json::from_slice(&body).unwrap_or_default(), "application/json"));
        }
        path if path == things || path == format!("/apis/{GROUP}/v1/things") => Some(list),
        path if path == format!("{things}/one") => Some(thing("one")),
        path if path == format!("{things}/moved") => {
            let mut response = json_answer(302, &json!({}), "application/json");
            response.headers_mut().insert(LOCATION, "https://elsewhere.example.com/".parse().unwrap());
            return Ok(response);
        }
        "/openapi/v2" => Some(json!({
            "swagger": "2.0",
            "paths": {format!("/apis/{GROUP}/v1/things"): {"get": {"responses": {"200": {"description": "OK",
                "schema": {"$ref": "#/definitions/com.example.Thing"}}}}}, "/version/": {}},
            "definitions": {"com.example.Thing": {"type": "object"}, "com.example.Unused": {"type": "object"}},
        })),
        "/openapi/v3" => {
            let url = format!("/openapi/v3/apis/{GROUP}/v1?hash=ABC");
            Some(json!({"paths": {format!("apis/{GROUP}/v1"): {"serverRelativeURL": url}}}))
        }
        path if path == format!("/openapi/v3/apis/{GROUP}/v1") => Some(json!({"openapi": "3.0.0", "paths": {}})),
        _ => None,
    };
    Ok(match found {
        Some(document) => json_answer(200, &document, "application/json"),
        None => json_answer(404, &json!({"kind": "Status", "code": 404}), "application/json"),
    })
}

fn json_answer(code: u16, document: &Value, form: &str) -> Response<ResponseBody> {
    let mut response = Response::new(Full::new(Bytes::from(document.to_string())).boxed());
    *response.status_mut() = StatusCode::from_u16(code).unwrap();
    response.headers_mut().insert(CONTENT_TYPE, form.parse().unwrap());
    response
}

/// A watch: it sends one event at once, and further events when [`ThingsServer::tell`] is called. The watch does not
/// end.
fn events(shared: &ServerState) -> Response<ResponseBody> {
    let first = json!({"type": "ADDED", "object": thing("one")});
    let queue = shared.events.subscribe();
    let later = futures_util::stream::unfold(queue, async |mut queue| {
        let event = queue.recv().await.ok()?;
        Some((event, queue))
    });
    let all = futures_util::StreamExt::chain(futures_util::stream::iter([first]), later);
    let frames = futures_util::StreamExt::map(all, |event| Ok(Frame::data(Bytes::from(format!("{event}\n")))));
    let mut response = Response::new(BodyExt::boxed(StreamBody::new(SyncStream(Box::pin(frames)))));
    response.headers_mut().insert(CONTENT_TYPE, "application/json".parse().unwrap());
    response
}

type Frames = std::pin::Pin<Box<dyn futures_util::Stream<Item = Result<Frame<Bytes>, Infallible>> + Send + Sync>>;

struct SyncStream(Frames);

impl futures_util::Stream for SyncStream {
    type Item = Result<Frame<Bytes>, Infallible>;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        self.0.as_mut().poll_next(cx)
    }
}

/// Upgrades the connection, and echoes all data in upper case.
fn echo(upgrade: hyper::upgrade::OnUpgrade) -> Response<ResponseBody> {
    tokio::spawn(async move {
        let Ok(connection) = upgrade.await else { return };
        let mut connection = TokioIo::new(connection);
        let mut buffer = [0; 256];
        while let Ok(length) = connection.read(&mut buffer).await {
            if length == 0 || connection.write_all(&buffer[..length].to_ascii_uppercase()).await.is_err() {
                return;
            }
        }
    });
    let mut response = Response::new(Full::default().boxed());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    response.headers_mut().insert(CONNECTION, "Upgrade".parse().unwrap());
    response.headers_mut().insert(UPGRADE, "CAPITALS/1".parse().unwrap());
    response
}
