//! Webhooks that answer as a scenario says, by path: reviews of admission, tokens, access and images, and plain
//! documents.

use crate::authority::Authority;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::Response;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

/// The behaviour of webhooks, and their calls so far.
#[derive(Default)]
struct HooksState {
    /// The behaviour by path, with the number of calls.
    behaviour: BTreeMap<String, (Value, usize)>,
    calls: Vec<Value>,
    /// The number of delayed calls that are in progress.
    waiting: usize,
    most_waiting: usize,
}

/// Running webhooks, which stop when this value is dropped.
pub struct Hooks {
    shared: Arc<Mutex<HooksState>>,
    /// The names in scenarios that stand for values of this run, each with its value.
    pub names: Vec<(&'static str, String)>,
    /// The authority of the webhooks' certificates, in PEM.
    pub authority: String,
    _tasks: JoinSet<()>,
}

impl Hooks {
    pub async fn start() -> Hooks {
        let shared: Arc<Mutex<HooksState>> = Arc::default();
        let (ours, others) = (Authority::new("hooks"), Authority::new("others"));
        let mut tasks = JoinSet::new();
        let port = serve(&ours, "127.0.0.1:0", &shared, &mut tasks).await;
        // The certificate is not valid for the address 127.0.0.2, so that scenarios can call a webhook whose
        // certificate clients reject.
        serve(&ours, &format!("127.0.0.2:{port}"), &shared, &mut tasks).await;
        let other = serve(&others, "127.0.0.1:0", &shared, &mut tasks).await;
        let closed = TcpListener::bind("127.0.0.1:0").await.expect("a port").local_addr().expect("an address").port();
        let encoded = |authority: &Authority| STANDARD.encode(authority.pem());
        let names = vec![
            ("<hook-other-name>", format!("127.0.0.2:{port}")),
            ("<hook-other-ca>", format!("127.0.0.1:{other}")),
            ("<hook>", format!("127.0.0.1:{port}")),
            ("<closed>", format!("127.0.0.1:{closed}")),
            ("<ca>", encoded(&ours)),
            ("<other-ca>", encoded(&others)),
        ];
        Hooks { shared, names, authority: ours.pem().to_owned(), _tasks: tasks }
    }

    pub fn behave(&self, path: &str, behaviour: Value) {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        shared.behaviour.insert(path.to_owned(), (behaviour, 0));
    }

    /// The maximum number of delayed calls that were in progress at the same time.
    pub fn most_waiting(&self) -> usize {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner).most_waiting
    }

    /// The calls since the last time, in order: `{path, query, authorization, body}`.
    pub fn take_calls(&self) -> Vec<Value> {
        std::mem::take(&mut self.shared.lock().unwrap_or_else(PoisonError::into_inner).calls)
    }
}

/// Serves webhooks at an address; returns the port.
async fn serve(authority: &Authority, address: &str, shared: &Arc<Mutex<HooksState>>, tasks: &mut JoinSet<()>) -> u16 {
    let pair = authority.server(&["localhost", "127.0.0.1"]);
    let chain = CertificateDer::pem_slice_iter(pair.certificate.as_bytes()).collect::<Result<Vec<_>, _>>().unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap())
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind(address).await.expect("a port");
    let port = listener.local_addr().unwrap().port();
    let shared = shared.clone();
    tasks.spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, shared) = (acceptor.clone(), shared.clone());
            tokio::spawn(async move {
                // A client that does not trust the certificate disconnects.
                let Ok(stream) = acceptor.accept(stream).await else { return };
                let service = service_fn(move |request| answer(request, shared.clone()));
                let server = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
                // If the connection breaks, the client reports the error, so it is ignored here.
                let _ = server.serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    port
}

async fn answer(
    request: http::Request<Incoming>,
    shared: Arc<Mutex<HooksState>>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (path, query) = (request.uri().path().to_owned(), request.uri().query().unwrap_or("").to_owned());
    let posted = request.method() == http::Method::POST;
    let authorization = request.headers().get("authorization").and_then(|value| value.to_str().ok());
    let authorization = authorization.map(str::to_owned);
    let body = request.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let review: Value = serde_json::from_slice(&body).unwrap_or_default();
    let behaviour = {
        let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
        if posted {
            shared.calls.push(json!({"path": path, "query": query, "authorization": authorization, "body": review}));
        }
        shared.behaviour.get_mut(&path).map(|(behaviour, asked)| {
            *asked += 1;
            match behaviour["sequence"].as_array() {
                Some(all) => all[(*asked - 1).min(all.len() - 1)].clone(),
                None => behaviour.clone(),
            }
        })
    };
    let Some(behaviour) = behaviour else { return Ok(response(404, "404 page not found".into())) };
    if let Some(seconds) = behaviour["delay"].as_f64() {
        let lock = || shared.lock().unwrap_or_else(PoisonError::into_inner);
        {
            let mut shared = lock();
            shared.waiting += 1;
            shared.most_waiting = shared.most_waiting.max(shared.waiting);
        }
        tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
        lock().waiting -= 1;
    }
    let code = behaviour["http"].as_u64().unwrap_or(200) as u16;
    let content_type = behaviour["contentType"].as_str().unwrap_or("application/json");
    let body = match behaviour["raw"].as_str() {
        Some(raw) => raw.to_owned(),
        None => reply(&behaviour, &review).to_string(),
    };
    let mut response = response(code, body);
    response.headers_mut().insert("content-type", content_type.parse().expect("a header"));
    if let Some(location) = behaviour["location"].as_str() {
        response.headers_mut().insert("location", location.parse().expect("a header"));
    }
    Ok(response)
}

fn response(code: u16, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = http::StatusCode::from_u16(code).expect("a status");
    response
}

/// The review with which a webhook answers.
fn reply(behaviour: &Value, review: &Value) -> Value {
    // A review of tokens, access or images is answered with the same document and a status, which may depend on the
    // user.
    let by_user = &behaviour["byUser"];
    let status = match review["spec"]["user"].as_str().and_then(|user| by_user.get(user)) {
        Some(status) => Some(status),
        None => behaviour.get("review").or_else(|| behaviour.get("default")),
    };
    if status.is_some() || by_user.is_object() {
        let mut reply = review.clone();
        reply["status"] = status.cloned().unwrap_or_else(|| json!({}));
        return reply;
    }
    let or = |field: &str, otherwise: Value| behaviour.get(field).cloned().unwrap_or(otherwise);
    let mut response =
        json!({"uid": or("uid", review["request"]["uid"].clone()), "allowed": or("allowed", true.into())});
    for field in ["status", "warnings", "auditAnnotations"] {
        if let Some(value) = behaviour.get(field) {
            response[field] = value.clone();
        }
    }
    let raw = behaviour["patchRaw"].as_str().map(str::to_owned);
    if let Some(patch) = behaviour.get("patch").map(Value::to_string).or(raw) {
        response["patch"] = STANDARD.encode(patch).into();
        response["patchType"] = "JSONPatch".into();
    }
    match behaviour.get("patchType") {
        None => {}
        Some(Value::Null) => _ = response.as_object_mut().and_then(|response| response.remove("patchType")),
        Some(kind) => response["patchType"] = kind.clone(),
    }
    let mut reply = json!({"apiVersion": or("apiVersion", review["apiVersion"].clone()),
        "kind": or("kind", "AdmissionReview".into()), "response": response});
    for omitted in behaviour["omit"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        let whole = reply.as_object_mut().expect("an object");
        if whole.remove(omitted).is_none() {
            _ = whole["response"].as_object_mut().and_then(|response| response.remove(omitted));
        }
    }
    reply
}
