//! A client of a server's API for commands that send one request at a time: every call waits for its answer.

use super::RemoteServer;
use anyhow::{Context, Result, anyhow};
use bytes::Bytes;
use holdfast_value::Value;
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt;
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use std::error::Error as _;
use std::fmt;
use tokio::runtime::Runtime;

pub struct Client {
    // The client is declared first, so that it is dropped before the runtime that runs its tasks.
    client: kube::Client,
    runtime: Runtime,
    /// The server's address, for messages.
    pub server: String,
}

/// An answer with an error status.
#[derive(Debug, Clone)]
pub struct Refused {
    pub code: u16,
    pub reason: String,
    pub message: String,
    /// The whole `Status`; null if the answer was not a `Status`.
    pub status: Value,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Refused {}

/// Why a request failed: the server answered with an error, or no answer could be read.
#[derive(Debug)]
pub enum RequestFailure {
    Refused(Box<Refused>),
    Unanswered(anyhow::Error),
}

impl From<RequestFailure> for anyhow::Error {
    fn from(failure: RequestFailure) -> anyhow::Error {
        match failure {
            RequestFailure::Refused(refused) => anyhow::Error::new(*refused),
            RequestFailure::Unanswered(error) => error,
        }
    }
}

impl RequestFailure {
    pub fn code(&self) -> Option<u16> {
        match self {
            RequestFailure::Refused(refused) => Some(refused.code),
            RequestFailure::Unanswered(_) => None,
        }
    }
}

impl Client {
    pub fn connect(server: &RemoteServer) -> Result<Client> {
        let runtime = crate::runtime()?;
        let (client, server) = runtime.block_on(connect(server))?;
        Ok(Client { client, runtime, server })
    }

    /// A client of a service in this process, whose tasks run on the runtime.
    pub fn inside(client: kube::Client, runtime: Runtime, name: String) -> Client {
        Client { client, runtime, server: name }
    }

    /// The namespace of the kubeconfig's context.
    pub fn namespace(&self) -> &str {
        self.client.default_namespace()
    }

    /// Gets the document at a path.
    pub fn get(&self, path: &str) -> Result<Value, RequestFailure> {
        self.send(Method::GET, path, None)
    }

    pub fn send(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value, RequestFailure> {
        self.runtime.block_on(send(&self.client, &self.server, method, path, body))
    }

    /// Passes the body of an answer to `take`, piece by piece.
    pub fn stream(&self, path: &str, mut take: impl FnMut(&[u8]) -> Result<()>) -> Result<(), RequestFailure> {
        self.runtime.block_on(async {
            let answer = ask(&self.client, &self.server, Method::GET, path, None).await?;
            let mut body = answer.into_body();
            while let Some(frame) = body.frame().await {
                let frame = frame.map_err(|error| self.unanswered(error))?;
                if let Some(data) = frame.data_ref() {
                    take(data).map_err(RequestFailure::Unanswered)?;
                }
            }
            Ok(())
        })
    }

    fn unanswered(&self, error: kube::Error) -> RequestFailure {
        RequestFailure::Unanswered(unreachable(&self.server, &error))
    }
}

/// A client of the server in a kubeconfig, and the address of the server.
pub async fn connect(server: &RemoteServer) -> Result<(kube::Client, String)> {
    let kubeconfig = match &server.kubeconfig {
        Some(file) => Kubeconfig::read_from(file).with_context(|| format!("the kubeconfig {}", file.display()))?,
        None => Kubeconfig::read().context("the kubeconfig")?,
    };
    if let Some(context) = &server.context {
        let known: Vec<&str> = kubeconfig.contexts.iter().map(|context| context.name.as_str()).collect();
        if !known.contains(&context.as_str()) {
            return Err(anyhow!("the kubeconfig has no context {context:?}: it has {}", listed(&known)));
        }
    }
    let options = KubeConfigOptions { context: server.context.clone(), ..KubeConfigOptions::default() };
    let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await.context("the kubeconfig")?;
    // The client does not retry, because the command reports each refusal.
    config.default_retry = false;
    let url = config.cluster_url.to_string().trim_end_matches('/').to_owned();
    Ok((kube::Client::try_from(config).context("the kubeconfig")?, url))
}

fn listed(names: &[&str]) -> String {
    if names.is_empty() { "none".into() } else { names.join(", ") }
}

/// Sends a request, and reads the document that answers it.
pub async fn send(
    client: &kube::Client,
    server: &str,
    method: Method,
    path: &str,
    body: Option<&Value>,
) -> Result<Value, RequestFailure> {
    exchange(client, server, method, path, body).await.map(|(_, document)| document)
}

/// Like [`send`], and also returns the status code of the answer.
pub async fn exchange(
    client: &kube::Client,
    server: &str,
    method: Method,
    path: &str,
    body: Option<&Value>,
) -> Result<(u16, Value), RequestFailure> {
    let answer = ask(client, server, method, path, body).await?;
    let code = answer.status().as_u16();
    let bytes =
        answer.into_body().collect().await.map_err(|error| RequestFailure::Unanswered(unreachable(server, &error)))?;
    let document = serde_json::from_slice(&bytes.to_bytes())
        .map_err(|error| RequestFailure::Unanswered(anyhow!("{server} answered {path} with no JSON ({error})")))?;
    Ok((code, document))
}

/// Sends a request, and fails if the answer has an error status.
async fn ask(
    client: &kube::Client,
    server: &str,
    method: Method,
    path: &str,
    body: Option<&Value>,
) -> Result<http::Response<Body>, RequestFailure> {
    let mut request = Request::builder().method(method).uri(path).header("accept", "application/json");
    request = request.header("user-agent", concat!("holdfast/", env!("CARGO_PKG_VERSION")));
    if body.is_some() {
        request = request.header("content-type", "application/json");
    }
    let bytes = body.map(|body| Bytes::from(body.to_string())).unwrap_or_default();
    let request = request.body(Body::from(bytes)).map_err(|error| RequestFailure::Unanswered(error.into()))?;
    let answer = client.send(request).await.map_err(|error| RequestFailure::Unanswered(unreachable(server, &error)))?;
    if answer.status().is_success() {
        return Ok(answer);
    }
    let code = answer.status();
    let body =
        answer.into_body().collect().await.map_err(|error| RequestFailure::Unanswered(unreachable(server, &error)))?;
    Err(RequestFailure::Refused(Box::new(refused(code, &body.to_bytes()))))
}

fn refused(code: StatusCode, body: &[u8]) -> Refused {
    let status: Value = serde_json::from_slice(body).unwrap_or_default();
    let text = |field: &str| status[field].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    let words = || {
        let text: String = String::from_utf8_lossy(body).chars().take(200).collect();
        format!("the server answered {code}: {}", text.trim()).trim_end_matches([' ', ':']).to_owned()
    };
    Refused {
        code: code.as_u16(),
        reason: text("reason").unwrap_or_default(),
        message: text("message").unwrap_or_else(words),
        status,
    }
}

/// The reason why a server gave no answer: the innermost cause of the error.
fn unreachable(server: &str, error: &kube::Error) -> anyhow::Error {
    let mut cause = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        // Every layer repeats the message of the layer below, so the innermost message is enough.
        cause = inner.to_string();
        source = inner.source();
    }
    anyhow!("{server} cannot be reached: {cause}")
}

/// Percent-encodes a part of a path or of a query.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(byte as char),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_told_in_the_servers_words() {
        for (body, expected) in [
            (r#"{"kind":"Status","message":"pods is forbidden","reason":"Forbidden"}"#, "pods is forbidden"),
            ("no route\n", "the server answered 403 Forbidden: no route"),
            ("", "the server answered 403 Forbidden"),
        ] {
            assert_eq!(refused(StatusCode::FORBIDDEN, body.as_bytes()).to_string(), expected);
        }
        assert_eq!(escaped("a b/é:2026+1"), "a%20b%2F%C3%A9%3A2026%2B1");
    }
}
