//! A component's own requests to an API server: for authentication, leader election and configuration.

use crate::connect;
use crate::metrics::Metrics;
use crate::throttle::{Rate, Throttle, Watched};
use anyhow::{Context, Result};
use holdfast_value::Value;
use http::{HeaderValue, Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use kube::client::{Body, ClientBuilder};
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The largest response that a client reads, in bytes.
const ANSWER_BYTES_MAX: usize = 4 << 20;
/// How long a response may take if the caller sets no other limit.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// Why a request failed.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    /// The HTTP status of the response; `None` if there was no response.
    pub code: Option<u16>,
    pub message: String,
}

impl ApiError {
    pub fn local(message: impl Into<String>) -> ApiError {
        ApiError { code: None, message: message.into() }
    }
}

/// The address of an API server, and the client's identity.
#[derive(Debug, Clone, Default)]
pub struct ApiServer<'a> {
    pub kubeconfig: Option<&'a Path>,
    /// The server's URL, which overrides the URL in the kubeconfig.
    pub master: Option<&'a str>,
    /// The program's user agent.
    pub agent: &'a str,
    /// A token that is used instead of the credentials in the kubeconfig.
    pub token: Option<&'a str>,
    pub rate: Option<Rate>,
}

impl ApiServer<'_> {
    /// The client configuration that the kubeconfig specifies. Without a kubeconfig, the configuration of the service
    /// account of this pod.
    pub async fn config(&self) -> Result<kube::Config> {
        let master = self.master.filter(|master| !master.is_empty());
        let master = master.map(|url| url.parse().with_context(|| format!("--master={url}"))).transpose()?;
        let mut config = match (self.kubeconfig, &master) {
            (Some(file), _) => {
                let text = std::fs::read_to_string(file).with_context(|| format!("read {}", file.display()))?;
                let read = Kubeconfig::from_yaml(&text).with_context(|| format!("read {}", file.display()))?;
                kube::Config::from_custom_kubeconfig(read, &KubeConfigOptions::default())
                    .await
                    .with_context(|| format!("use {}", file.display()))?
            }
            (None, Some(url)) => kube::Config::new(http::Uri::clone(url)),
            (None, None) => kube::Config::incluster()
                .context("neither --kubeconfig nor --master was given, and this is no pod with a service account")?,
        };
        config.cluster_url = master.unwrap_or(config.cluster_url);
        if let Some(token) = self.token {
            config.auth_info = AuthInfo { token: Some(token.to_owned().into()), ..AuthInfo::default() };
        }
        let agent = HeaderValue::from_str(self.agent).context("name of the program")?;
        config.headers.push((header::USER_AGENT, agent));
        Ok(config)
    }

    fn watched(&self, config: &kube::Config, metrics: Arc<Metrics>) -> Watched {
        let host = config.cluster_url.authority().map_or("", |authority| authority.as_str());
        Watched { host: host.into(), metrics, throttle: self.rate.and_then(Throttle::new).map(Arc::new) }
    }
}

/// A client of an API server.
#[derive(Clone)]
pub struct Api {
    client: kube::Client,
    answer_max: Duration,
}

impl Api {
    pub async fn connect(place: &ApiServer<'_>, metrics: Arc<Metrics>) -> Result<Api> {
        let config = place.config().await?;
        let watched = place.watched(&config, metrics);
        Ok(Api::new(connect::builder(config).context("make a client")?.with_layer(&watched).build()))
    }

    /// Like [`Api::connect`], for long-running requests. Each request has a connection of its own, so that these
    /// requests do not use up the streams that a server allows on one connection.
    pub async fn connect_to_watch(place: &ApiServer<'_>, metrics: Arc<Metrics>) -> Result<Api> {
        let config = place.config().await?;
        let watched = place.watched(&config, metrics);
        Ok(Api::new(ClientBuilder::try_from(config).context("make a client")?.with_layer(&watched).build()))
    }

    /// Uses an existing client, which may belong to a server in this process.
    pub fn new(client: kube::Client) -> Api {
        Api { client, answer_max: ANSWER_MAX }
    }

    /// Returns this client with another time limit for responses.
    pub fn patient(self, answer_max: Duration) -> Api {
        Api { answer_max, ..self }
    }

    pub fn client(&self) -> &kube::Client {
        &self.client
    }

    pub async fn get(&self, path: &str) -> Result<Value, ApiError> {
        self.call(Method::GET, path, None).await
    }

    /// Requests `path`, and returns the body of the response as text.
    pub async fn text(&self, path: &str) -> Result<String, ApiError> {
        let answered = tokio::time::timeout(self.answer_max, self.send(&Method::GET, path, None)).await;
        let (code, bytes) = answered.map_err(|_| ApiError::local("context deadline exceeded"))??;
        match code.is_success() {
            true => String::from_utf8(bytes).map_err(|error| ApiError::local(error.to_string())),
            false => Err(ApiError { code: Some(code.as_u16()), message: format!("the server answered {code}") }),
        }
    }

    pub async fn post(&self, path: &str, body: &Value) -> Result<Value, ApiError> {
        self.call(Method::POST, path, Some(body)).await
    }

    pub async fn put(&self, path: &str, body: &Value) -> Result<Value, ApiError> {
        self.call(Method::PUT, path, Some(body)).await
    }

    async fn call(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value, ApiError> {
        let answered = tokio::time::timeout(self.answer_max, self.send(&method, path, body)).await;
        let (code, bytes) = answered.map_err(|_| ApiError::local("context deadline exceeded"))??;
        let document: Value = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        if code.is_success() {
            return Ok(document);
        }
        let message = match document["message"].as_str() {
            Some(message) => message.to_owned(),
            None => format!("the server answered {code}"),
        };
        Err(ApiError { code: Some(code.as_u16()), message })
    }

    async fn send(&self, method: &Method, path: &str, body: Option<&Value>) -> Result<(StatusCode, Vec<u8>), ApiError> {
        let mut request = Request::builder().method(method).uri(path).header(header::ACCEPT, "application/json");
        if body.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        let body = Body::from(body.map(|body| body.to_string().into_bytes()).unwrap_or_default());
        let request = request.body(body).map_err(|error| ApiError::local(error.to_string()))?;
        let answer = self.client.send(request).await.map_err(|error| ApiError::local(chain(&error)))?;
        let code = answer.status();
        let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
        let body = body.map_err(|error| ApiError { code: Some(code.as_u16()), message: error.to_string() })?;
        Ok((code, body.to_bytes().to_vec()))
    }
}

/// The text of an error, followed by the texts of its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let why = error.to_string();
        if !text.contains(&why) {
            text = format!("{text}: {why}");
        }
        cause = error.source();
    }
    text
}
