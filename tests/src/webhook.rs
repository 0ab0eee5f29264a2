//! Servers that answer documents with documents, and a conversion webhook for custom resources.

use crate::authority::Authority;
use bytes::Bytes;
use http::Response;
use http_body_util::{BodyExt, Full};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

/// A TLS server that answers documents with documents. When dropped, it stops.
pub struct Site {
    port: u16,
    calls: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Site {
    /// `answer` gets the site's URL, the path, and the document sent; `None` means that the path does not exist.
    pub async fn start(
        authority: &Authority,
        answer: impl Fn(&str, &str, &Value) -> Option<Value> + Send + Sync + 'static,
    ) -> Site {
        let pair = authority.server(&["localhost", "127.0.0.1"]);
        let chain = CertificateDer::pem_slice_iter(pair.certificate.as_bytes()).collect::<Result<Vec<_>, _>>().unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap())
            .unwrap();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().unwrap().port();
        let calls = Arc::new(AtomicUsize::new(0));
        let (counted, answer) = (calls.clone(), Arc::new(answer));
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, counted, answer) = (acceptor.clone(), counted.clone(), answer.clone());
                tokio::spawn(async move {
                    // A client that does not trust the certificate disconnects.
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let service = service_fn(move |request: http::Request<hyper::body::Incoming>| {
                        counted.fetch_add(1, Ordering::Relaxed);
                        let answer = answer.clone();
                        async move {
                            let path = request.uri().path().to_owned();
                            let body =
                                request.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
                            let body = serde_json::from_slice(&body).unwrap_or_default();
                            let answer = answer(&format!("https://localhost:{port}"), &path, &body);
                            let mut response = Response::new(Full::new(Bytes::new()));
                            match answer {
                                Some(answer) => *response.body_mut() = Full::new(Bytes::from(answer.to_string())),
                                None => *response.status_mut() = http::StatusCode::NOT_FOUND,
                            }
                            Ok::<_, Infallible>(response)
                        }
                    });
                    let server = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
                    // A broken connection is reported by the client.
                    let _ = server.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Site { port, calls, task }
    }

    pub fn url(&self) -> String {
        format!("https://localhost:{}", self.port)
    }

    /// The number of requests that the server has received.
    pub fn calls(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A running webhook. It stops when this value is dropped.
pub struct Webhook(Site);

impl Webhook {
    /// `convert` gets an object and the desired version.
    pub async fn start(
        authority: &Authority,
        convert: impl Fn(&Value, &str) -> Result<Value, String> + Send + Sync + 'static,
    ) -> Webhook {
        Webhook(Site::start(authority, move |_, _, review| Some(answer(review, &convert))).await)
    }

    pub fn url(&self) -> String {
        format!("{}/convert", self.0.url())
    }

    /// The number of requests that the webhook has received.
    pub fn calls(&self) -> usize {
        self.0.calls()
    }
}

fn answer(review: &Value, convert: impl Fn(&Value, &str) -> Result<Value, String>) -> Value {
    let request = &review["request"];
    let to = request["desiredAPIVersion"].as_str().unwrap_or_default();
    let objects = request["objects"].as_array().map(Vec::as_slice).unwrap_or_default();
    let converted: Result<Vec<Value>, String> = objects.iter().map(|object| convert(object, to)).collect();
    let (objects, result) = match converted {
        Ok(objects) => (objects, json!({"status": "Success"})),
        Err(message) => (Vec::new(), json!({"status": "Failed", "message": message})),
    };
    json!({
        "kind": review["kind"],
        "apiVersion": review["apiVersion"],
        "response": {"uid": request["uid"], "convertedObjects": objects, "result": result},
    })
}
