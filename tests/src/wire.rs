//! HTTPS by hand: one connection per request, with access to every header and byte of the answer.

use crate::Server;
use crate::authority::Pair;
use bytes::Bytes;
use holdfast_core::object::yaml;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Version};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// A server's address, and the client's credentials.
#[derive(Clone)]
pub struct HttpClient {
    /// The host and port to which the client connects.
    pub address: String,
    /// The authority of the server's certificate, in PEM.
    pub authority: String,
    /// The server name in the TLS handshake.
    pub server_name: String,
    pub identity: Option<Arc<Pair>>,
    pub token: Option<String>,
    pub http2: bool,
    pub tls: &'static [&'static SupportedProtocolVersion],
}

pub struct Answer {
    pub code: u16,
    pub version: Version,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// The timeout of a whole answer, so that an answer which never ends fails its own test, and does not block all others.
const PATIENCE: Duration = Duration::from_secs(120);

type SendFailure = Box<dyn std::error::Error + Send + Sync>;

impl HttpClient {
    /// A client without credentials, over HTTP/2.
    pub fn anonymous(server: &Server) -> HttpClient {
        let config = kubeconfig(server);
        HttpClient {
            address: server.url().trim_start_matches("https://").to_owned(),
            authority: decoded(&config["clusters"][0]["cluster"]["certificate-authority-data"]),
            server_name: "localhost".into(),
            identity: None,
            token: None,
            http2: true,
            tls: rustls::ALL_VERSIONS,
        }
    }

    /// A client with the administrator's certificate.
    pub fn admin(server: &Server) -> HttpClient {
        let config = kubeconfig(server);
        let user = &config["users"][0]["user"];
        let pair =
            Pair { certificate: decoded(&user["client-certificate-data"]), key: decoded(&user["client-key-data"]) };
        HttpClient::anonymous(server).with_identity(pair)
    }

    pub fn with_identity(self, pair: Pair) -> HttpClient {
        HttpClient { identity: Some(Arc::new(pair)), ..self }
    }

    pub fn with_token(self, token: &str) -> HttpClient {
        HttpClient { identity: None, token: Some(token.to_owned()), ..self }
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, &[], "").await
    }

    /// Gets a path with an `Accept` header.
    pub async fn get_as(&self, path: &str, accept: &str) -> Answer {
        self.send(Method::GET, path, &[("accept", accept)], "").await
    }

    pub async fn post(&self, path: &str, body: &Value) -> Answer {
        self.send(Method::POST, path, &[("content-type", "application/json")], body.to_string()).await
    }

    pub async fn send(&self, method: Method, path: &str, headers: &[(&str, &str)], body: impl Into<Bytes>) -> Answer {
        let sent = self.try_send(method, path, headers, body.into()).await;
        sent.unwrap_or_else(|error| panic!("{path}: no answer: {error}"))
    }

    pub async fn try_send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> Result<Answer, SendFailure> {
        tokio::time::timeout(PATIENCE, self.whole(method, path, headers, body)).await?
    }

    async fn whole(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> Result<Answer, SendFailure> {
        let (response, connection) = self.exchange(method, path, headers, body).await?;
        let (parts, mut stream) = response.into_parts();
        let mut body = Vec::new();
        while let Some(frame) = stream.frame().await {
            if let Ok(data) = frame?.into_data() {
                body.extend_from_slice(&data);
            }
        }
        // Dropping the sender ends the connection, so that a server which is stopped next need not wait for the
        // connection.
        drop(stream);
        let _ = connection.await;
        Ok(Answer { code: parts.status.as_u16(), version: parts.version, headers: parts.headers, body: body.into() })
    }

    /// An answer whose body is read later, such as a watch.
    pub async fn open(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> Result<http::Response<Incoming>, SendFailure> {
        Ok(self.exchange(method, path, headers, body).await?.0)
    }

    /// The answer, and the task that serves its connection.
    async fn exchange(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> Result<(http::Response<Incoming>, JoinHandle<()>), SendFailure> {
        let stream = self.connect().await?;
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        for (name, value) in headers {
            let name: HeaderName = name.parse()?;
            request.headers_mut().append(name, HeaderValue::from_bytes(value.as_bytes())?);
        }
        if let Some(token) = &self.token {
            request.headers_mut().insert("authorization", format!("Bearer {token}").parse()?);
        }
        let io = TokioIo::new(stream);
        if self.http2 {
            *request.uri_mut() = format!("https://{}{path}", self.address).parse()?;
            let (mut sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await?;
            let connection = tokio::spawn(async move { drop(connection.await) });
            Ok((sender.send_request(request).await?, connection))
        } else {
            *request.uri_mut() = path.parse()?;
            request.headers_mut().entry("host").or_insert(self.address.parse()?);
            let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await?;
            let connection = tokio::spawn(async move { drop(connection.with_upgrades().await) });
            Ok((sender.send_request(request).await?, connection))
        }
    }

    /// Opens a connection, and completes its TLS handshake.
    pub async fn connect(&self) -> Result<TlsStream<TcpStream>, SendFailure> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(self.authority.as_bytes()) {
            roots.add(certificate?)?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(self.tls)?
            .with_root_certificates(roots);
        let mut config = match &self.identity {
            None => builder.with_no_client_auth(),
            Some(pair) => {
                let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pair.certificate.as_bytes()).collect();
                builder.with_client_auth_cert(chain?, PrivateKeyDer::from_pem_slice(pair.key.as_bytes())?)?
            }
        };
        config.alpn_protocols = vec![if self.http2 { b"h2".to_vec() } else { b"http/1.1".to_vec() }];
        let stream = TcpStream::connect(&self.address).await?;
        let name = ServerName::try_from(self.server_name.clone())?;
        Ok(TlsConnector::from(Arc::new(config)).connect(name, stream).await?)
    }
}

impl Answer {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("no JSON ({error}): {}", self.text()))
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("")
    }

    /// The answer, which must have this code.
    #[track_caller]
    pub fn expect(self, code: u16) -> Answer {
        assert_eq!(self.code, code, "{}", self.text());
        self
    }

    /// The answer as a `Status`, which must have this code and reason.
    #[track_caller]
    pub fn refused(self, code: u16, reason: &str) -> Value {
        let status = self.expect(code).json();
        assert_eq!(status["kind"], "Status", "{status}");
        assert_eq!(status["status"], "Failure", "{status}");
        assert_eq!(status["code"], code, "{status}");
        assert_eq!(status["reason"], reason, "{status}");
        status
    }
}

fn kubeconfig(server: &Server) -> Value {
    let text = std::fs::read_to_string(server.kubeconfig()).expect("read the kubeconfig");
    yaml::read(&text).expect("the kubeconfig is YAML")
}

fn decoded(value: &Value) -> String {
    use base64::Engine;
    let bytes = base64::engine::general_purpose::STANDARD.decode(value.as_str().expect("data in the kubeconfig"));
    String::from_utf8(bytes.expect("base64")).expect("PEM")
}
