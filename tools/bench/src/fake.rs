//! A minimal API server for tests. It stores ConfigMaps of one namespace in a map, and serves just enough of HTTP/2.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{RecvStream, SendStream};
use holdfast_value::{Value, json};
use http::{Method, Request, Response};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::ground::{DEFINITIONS, ObjectKind, PODS};
use crate::operation::PROTOBUF;

pub struct Fake {
    pub address: SocketAddr,
    store: Arc<Mutex<Store>>,
}

#[derive(Default)]
struct Store {
    version: u64,
    objects: BTreeMap<String, Value>,
    namespace: bool,
    watches: Vec<Watch>,
    gets: u64,
    /// The number of requests after which the server ends each connection.
    requests_of_connection: Option<u64>,
    refuse_every_second_get: bool,
}

struct Watch {
    /// The name of the only object that is watched; `None` for all objects.
    name: Option<String>,
    protobuf: bool,
    stream: SendStream<Bytes>,
}

pub async fn start() -> Fake {
    start_with(None).await
}

/// Starts with TLS, and returns the server's certificate in PEM.
pub async fn start_tls() -> (Fake, String) {
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let key = rustls_pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    (start_with(Some(TlsAcceptor::from(Arc::new(config)))).await, made.cert.pem())
}

async fn start_with(acceptor: Option<TlsAcceptor>) -> Fake {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let fake = Fake { address: listener.local_addr().unwrap(), store: Arc::default() };
    let store = fake.store.clone();
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let (acceptor, store) = (acceptor.clone(), store.clone());
            tokio::spawn(async move {
                match acceptor {
                    None => serve(socket, store).await,
                    // A client that does not trust the certificate disconnects here.
                    Some(acceptor) => {
                        if let Ok(socket) = acceptor.accept(socket).await {
                            serve(socket, store).await;
                        }
                    }
                }
            });
        }
    });
    fake
}

impl Fake {
    pub fn objects(&self) -> usize {
        self.store.lock().unwrap().objects.len()
    }

    /// Sends GOAWAY on each connection after `requests` requests.
    pub fn end_connections_after(&self, requests: u64) {
        self.store.lock().unwrap().requests_of_connection = Some(requests);
    }

    pub fn refuse_every_second_get(&self) {
        self.store.lock().unwrap().refuse_every_second_get = true;
    }
}

async fn serve(socket: impl AsyncRead + AsyncWrite + Unpin, store: Arc<Mutex<Store>>) {
    let mut connection = h2::server::handshake(socket).await.unwrap();
    let mut requests = 0;
    while let Some(Ok((request, respond))) = connection.accept().await {
        requests += 1;
        if store.lock().unwrap().requests_of_connection == Some(requests) {
            connection.graceful_shutdown();
        }
        tokio::spawn(answer(request, respond, store.clone()));
    }
}

async fn answer(request: Request<RecvStream>, mut respond: SendResponse<Bytes>, store: Arc<Mutex<Store>>) {
    let (parts, mut body) = request.into_parts();
    let mut sent = Vec::new();
    while let Some(Ok(chunk)) = body.data().await {
        sent.extend_from_slice(&chunk);
    }
    let path = parts.uri.path().to_owned();
    let query: BTreeMap<String, String> = parts
        .uri
        .query()
        .unwrap_or_default()
        .split('&')
        .filter_map(|pair| pair.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.replace("%3D", "=")))
        .collect();
    if query.contains_key("watch") {
        let stream = respond.send_response(Response::new(()), false).unwrap();
        let name = query.get("fieldSelector").and_then(|selector| selector.strip_prefix("metadata.name="));
        let protobuf = parts.headers["accept"] == PROTOBUF;
        store.lock().unwrap().watches.push(Watch { name: name.map(str::to_owned), protobuf, stream });
        return;
    }
    let (code, value) = store.lock().unwrap().handle(&parts.method, &path, &query, &sent);
    let response = Response::builder().status(code).body(()).unwrap();
    let mut stream = respond.send_response(response, false).unwrap();
    // Sending fails if the client has disconnected, which does not matter here.
    let _ = stream.send_data(Bytes::from(value.to_string()), true);
}

impl Store {
    fn handle(&mut self, method: &Method, path: &str, query: &BTreeMap<String, String>, body: &[u8]) -> (u16, Value) {
        let document: Value = serde_json::from_slice(body).unwrap_or_default();
        if path.starts_with(PODS) || path.starts_with(DEFINITIONS) {
            return (200, json!({}));
        }
        let name = path.strip_prefix(ObjectKind::ConfigMap.collection()).map(|rest| rest.trim_start_matches('/'));
        match (method.as_str(), name) {
            ("POST", Some("")) => {
                let name = document["metadata"]["name"].as_str().unwrap().to_owned();
                if self.objects.contains_key(&name) {
                    refusal(409, "AlreadyExists")
                } else {
                    self.write(name, document)
                }
            }
            ("POST", None) if self.namespace => refusal(409, "AlreadyExists"),
            ("POST", None) => {
                self.namespace = true;
                (201, document)
            }
            ("GET", Some("")) => (200, self.list(query)),
            ("GET", Some(name)) => {
                self.gets += 1;
                if self.refuse_every_second_get && self.gets.is_multiple_of(2) {
                    return refusal(429, "TooManyRequests");
                }
                self.objects.get(name).map_or_else(|| refusal(404, "NotFound"), |object| (200, object.clone()))
            }
            ("PATCH", Some(name)) => {
                let Some(mut object) = self.objects.get(name).cloned() else { return refusal(404, "NotFound") };
                for (key, value) in document["data"].as_object().unwrap() {
                    object["data"][key] = value.clone();
                }
                self.write(name.to_owned(), object)
            }
            ("DELETE", Some("")) => {
                self.objects.clear();
                (200, json!({}))
            }
            ("DELETE", None) if self.namespace => {
                self.namespace = false;
                (200, json!({}))
            }
            _ => refusal(404, "NotFound"),
        }
    }

    fn write(&mut self, name: String, mut object: Value) -> (u16, Value) {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let line = Bytes::from(format!("{}\n", json!({"type": "MODIFIED", "object": object})));
        // The client reads only one part of the Protobuf object, which is the map's entry with the time.
        let stamp = object["data"]["stamp"].as_str().unwrap_or_default();
        let entry = [&b"\x0a\x05stamp\x12"[..], &[stamp.len() as u8], stamp.as_bytes()].concat();
        let frame = Bytes::from([&(entry.len() as u32).to_be_bytes()[..], &entry].concat());
        self.watches.retain_mut(|watch| {
            let event = if watch.protobuf { frame.clone() } else { line.clone() };
            watch.name.as_ref().is_some_and(|only| *only != name) || watch.stream.send_data(event, false).is_ok()
        });
        self.objects.insert(name, object.clone());
        (200, object)
    }

    fn list(&self, query: &BTreeMap<String, String>) -> Value {
        let start: usize = query.get("continue").map_or(0, |token| token.parse().unwrap());
        let limit: usize = query.get("limit").map_or(usize::MAX, |limit| limit.parse().unwrap());
        let items: Vec<&Value> = self.objects.values().skip(start).take(limit).collect();
        let end = start + items.len();
        let token = if end < self.objects.len() { end.to_string() } else { String::new() };
        json!({"items": items, "metadata": {"resourceVersion": self.version.to_string(), "continue": token}})
    }
}

fn refusal(code: u16, reason: &str) -> (u16, Value) {
    (code, json!({"kind": "Status", "reason": reason, "code": code}))
}
