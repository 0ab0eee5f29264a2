//! Calls from the server to other servers: to webhooks, and to servers that answer for parts of the API.
//!
//! [`Outbound`] pools connections, [`kubeconfig::Posting`] calls one server of a kubeconfig, and [`fetch`] gets one
//! document. [`Egress`] selects proxies. Errors have the wording of Go's client, because they appear in messages that
//! users know from Kubernetes.

mod connect;
pub mod conversion;
mod credentials;
pub mod deadline;
mod egress;
mod error_texts;
mod fetch;
mod identity;
mod konnectivity;
pub mod kubeconfig;
pub mod kubelets;
pub mod reviews;
pub mod trace;
pub mod trust;
mod wire;

use bytes::Bytes;
use connect::Connector;
pub use connect::{Inside, Link};
pub use credentials::{Credentials, Users};
pub use egress::{Dialer, Egress};
pub use fetch::fetch;
use futures_util::stream;
use holdfast_core::apiservices::resolve::{Address, Routing, Slices, resolve};
use holdfast_engine::Engine;
use http::header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue, USER_AGENT};
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, Limited, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
pub use identity::Identity;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;
use tokio::time::Instant;
use trace::Calling;
pub use trust::TlsTrust;
pub use wire::client_config;

/// The maximum size of an answer that is read into memory. The size is larger than any object together with the
/// additions of webhooks.
const ANSWER_BYTES_MAX: usize = 32 << 20;
/// The maximum number of pooled clients; see [`Profile`].
const CLIENTS_MAX: usize = 256;
const IDLE_MAX: Duration = Duration::from_secs(90);

pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
pub type OutBody = UnsyncBoxBody<Bytes, BoxError>;

/// The target of a call, and the trusted authorities.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallTarget {
    pub place: ServerAddress,
    pub trust: TlsTrust,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerAddress {
    /// A URL of the form `https://host:port/path`.
    Url(Uri),
    Service {
        namespace: String,
        name: String,
        port: u16,
        /// The path with its leading slash, followed by the query if the URL has a query.
        path: String,
    },
}

#[derive(Debug, thiserror::Error)]
pub enum OutboundError {
    /// The Service has no address.
    #[error("{0}")]
    Unresolved(String),
    /// The trusted authorities of the call cannot be read.
    #[error("{0}")]
    Unusable(String),
    /// The server gave no usable answer.
    #[error("{0}")]
    Unanswered(String),
    /// The answer has an error status.
    #[error("{message}")]
    Refused { code: StatusCode, message: String },
    #[error("context deadline exceeded")]
    TimedOut,
}

/// A path as client-go requests it: with a leading slash, one slash between names, and neither dots nor a trailing
/// slash. Go's servers answer any other form with a redirect, which is not followed.
pub(crate) fn cleaned(path: &str) -> String {
    let mut names: Vec<&str> = Vec::new();
    for name in path.split('/') {
        match name {
            "" | "." => {}
            ".." => _ = names.pop(),
            name => names.push(name),
        }
    }
    format!("/{}", names.join("/"))
}

/// A URL with its path [`cleaned`] and without its query, as in client-go.
pub(crate) fn cleaned_url(url: &str) -> Result<Uri, String> {
    let unreadable = |error: String| format!("the URL {url:?} cannot be read: {error}");
    let mut parts = url.parse::<Uri>().map_err(|error| unreadable(error.to_string()))?.into_parts();
    let path = cleaned(parts.path_and_query.as_ref().map_or("/", |path| path.path()));
    parts.path_and_query = Some(path.parse().map_err(|error| unreadable(format!("{error}")))?);
    Uri::from_parts(parts).map_err(|error| unreadable(error.to_string()))
}

impl CallTarget {
    pub fn service(namespace: &str, name: &str, port: u16, path: &str, trust: TlsTrust) -> CallTarget {
        let (namespace, name, path) = (namespace.to_owned(), name.to_owned(), path.to_owned());
        CallTarget { place: ServerAddress::Service { namespace, name, port, path }, trust }
    }

    /// The same target with a query in its URL or path.
    pub fn asking(self, query: &str) -> Result<CallTarget, String> {
        let place = match self.place {
            ServerAddress::Url(url) => {
                let text = url.to_string();
                let text = format!("{}?{query}", text.split('?').next().unwrap_or_default());
                ServerAddress::Url(text.parse().map_err(|error| format!("the URL {text:?} cannot be read: {error}"))?)
            }
            ServerAddress::Service { namespace, name, port, path } => {
                ServerAddress::Service { namespace, name, port, path: format!("{path}?{query}") }
            }
        };
        Ok(CallTarget { place, ..self })
    }

    /// The URL of the target, for messages.
    pub fn url(&self) -> String {
        match &self.place {
            ServerAddress::Url(url) => url.to_string(),
            ServerAddress::Service { port, path, .. } => format!("https://{}:{port}{path}", self.server_name()),
        }
    }

    /// Whether calls may share connections. As in Kubernetes, only calls to a webhook with a URL on this machine may
    /// share connections.
    fn shares_connections(&self) -> bool {
        let ServerAddress::Url(url) = &self.place else { return false };
        let host = url.host().unwrap_or_default().trim_matches(['[', ']']);
        host == "localhost" || host.parse().is_ok_and(|address: IpAddr| address.is_loopback())
    }

    /// The name for which the server's certificate must be valid.
    fn server_name(&self) -> String {
        match &self.place {
            ServerAddress::Url(url) => url.host().unwrap_or_default().trim_matches(['[', ']']).to_owned(),
            ServerAddress::Service { namespace, name, .. } => format!("{name}.{namespace}.svc"),
        }
    }
}

/// The pooled client for all calls to Services and URLs.
pub struct Outbound {
    resolver: Arc<Resolver>,
    identity: Option<Arc<Identity>>,
    clients: Mutex<HashMap<Profile, Client<Connector, OutBody>>>,
    inside: InProcessServices,
    egress: Egress,
}

/// The Services for which this process answers itself, by namespace and name. These Services need no Service objects.
pub type InProcessServices = HashMap<(String, String), Inside>;

/// Finds the addresses of Services.
pub(crate) struct Resolver {
    engine: Arc<Engine>,
    slices: Arc<RwLock<Slices>>,
    routing: Routing,
}

impl Resolver {
    fn address(&self, namespace: &str, name: &str, port: u16) -> Result<Address, OutboundError> {
        let slices = self.slices.read().unwrap_or_else(PoisonError::into_inner);
        let draw = self.engine.stamp().seed;
        resolve(&self.engine.snapshot(), &slices, (namespace, name, port), self.routing, draw)
            .map_err(OutboundError::Unresolved)
    }
}

/// The properties of a call that determine whether it can share a connection. Two calls with equal profiles may share a
/// connection.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Profile {
    server_name: String,
    trust: TlsTrust,
    /// The Service whose address is looked up for each connection; without a Service, the host of the URL is dialled.
    service: Option<(String, String, u16)>,
    http2: bool,
    /// The client certificate that the call presents.
    identity: Option<Arc<Identity>>,
    /// The number of changes of the client certificate. A changed certificate needs new connections.
    generation: u64,
}

impl Outbound {
    /// `slices` are the EndpointSlices of Services, which a watcher keeps up to date.
    pub fn new(
        engine: Arc<Engine>,
        slices: Arc<RwLock<Slices>>,
        routing: Routing,
        identity: Option<Arc<Identity>>,
        inside: InProcessServices,
    ) -> Outbound {
        let resolver = Arc::new(Resolver { engine, slices, routing });
        Outbound { resolver, identity, clients: Mutex::default(), inside, egress: Egress::default() }
    }

    /// This client, with connections that go through the proxies of `egress`.
    pub fn through(self, egress: Egress) -> Outbound {
        Outbound { egress, ..self }
    }

    fn inside(&self, namespace: &str, name: &str) -> Option<Inside> {
        self.inside.get(&(namespace.to_owned(), name.to_owned())).cloned()
    }

    /// Whether this process itself answers for a Service.
    pub fn is_inside(&self, namespace: &str, name: &str) -> bool {
        self.inside(namespace, name).is_some()
    }

    /// Posts a JSON document, given in pieces. Returns the body of a successful answer. `user` has the credentials, if
    /// there are any.
    pub async fn post_json(
        &self,
        target: &CallTarget,
        user: Option<&Credentials>,
        pieces: Vec<Bytes>,
        timeout: Duration,
    ) -> Result<Bytes, OutboundError> {
        let deadline = Instant::now() + timeout;
        let url = target.url();
        let said = |error: OutboundError| match error {
            OutboundError::Refused { .. } => error,
            other => OutboundError::Unanswered(format!("Post {url:?}: {other}")),
        };
        let call = async {
            let uri: Uri = url.parse().map_err(|error| OutboundError::Unresolved(format!("{error}")))?;
            let length: usize = pieces.iter().map(Bytes::len).sum();
            let frames = stream::iter(pieces.into_iter().map(|piece| Ok(Frame::data(piece))));
            let mut request = Request::new(StreamBody::new(frames).boxed_unsync());
            request.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(length));
            *request.method_mut() = Method::POST;
            *request.uri_mut() = uri;
            let json = HeaderValue::from_static("application/json");
            request.headers_mut().insert(CONTENT_TYPE, json.clone());
            request.headers_mut().insert(ACCEPT, HeaderValue::from_static("application/json, */*"));
            request.headers_mut().insert(USER_AGENT, HeaderValue::from_static("kube-apiserver-admission"));
            if let Some(user) = user {
                user.show(request.headers_mut()).map_err(OutboundError::Unusable)?;
            }
            let service = match &target.place {
                ServerAddress::Url(_) => None,
                ServerAddress::Service { namespace, name, port, .. } => Some((namespace.clone(), name.clone(), *port)),
            };
            let identity = user.and_then(|user| user.identity.clone());
            let mut calling = Calling::begin(&mut request);
            let response = self
                .client(target, target.shares_connections(), service, identity)?
                .request(request)
                .await
                .map_err(error_texts::of_client)?;
            followed(&mut calling, response.status());
            // The trace span ends when the whole answer is read.
            Ok((response.into_parts(), calling))
        };
        let begun = tokio::time::timeout_at(deadline, call).await;
        let ((parts, body), _calling) = begun.unwrap_or(Err(OutboundError::TimedOut)).map_err(said)?;
        let body = tokio::time::timeout_at(deadline, collect(body, ANSWER_BYTES_MAX)).await;
        let body = body.unwrap_or(Err(OutboundError::TimedOut)).map_err(error_texts::of_body)?;
        error_texts::of_answer(&parts, body)
    }

    /// Gets a whole document, which the target's path and the headers identify. Redirects are returned like other
    /// answers.
    pub async fn get(
        &self,
        target: &CallTarget,
        headers: HeaderMap,
        timeout: Duration,
    ) -> Result<Response<Bytes>, OutboundError> {
        let call = async {
            let mut request = Request::new(Empty::new().map_err(|never| match never {}).boxed_unsync());
            *request.headers_mut() = headers;
            let (parts, body) = self.forward(target, request).await?.into_parts();
            Ok(Response::from_parts(parts, collect(body, ANSWER_BYTES_MAX).await?))
        };
        tokio::time::timeout(timeout, call).await.unwrap_or(Err(OutboundError::TimedOut))
    }

    /// Forwards a request. Returns the answer as soon as it begins. The path of the target replaces the path of the
    /// request.
    pub async fn forward(
        &self,
        target: &CallTarget,
        mut request: Request<OutBody>,
    ) -> Result<Response<Incoming>, OutboundError> {
        *request.uri_mut() = self.located(target)?;
        let mut calling = Calling::begin(&mut request);
        let response = self.client(target, true, None, None)?.request(request).await.map_err(error_texts::of_client)?;
        followed(&mut calling, response.status());
        Ok(response)
    }

    /// Forwards a request that upgrades to another protocol, over a separate connection.
    pub async fn upgrade(
        &self,
        target: &CallTarget,
        mut request: Request<OutBody>,
    ) -> Result<Response<Incoming>, OutboundError> {
        let url = self.located(target)?;
        *request.uri_mut() = url.clone();
        let mut calling = Calling::begin(&mut request);
        let host = url.authority().map(|authority| authority.to_string()).unwrap_or_default();
        let stream = self
            .connector(target, None, None)?
            .connect(&url, false)
            .await
            .map_err(|error| OutboundError::Unanswered(format!("error dialing backend: {error}")))?;
        let path = url.path_and_query().map_or("/", |path| path.as_str());
        *request.uri_mut() = path.parse().map_err(|error| OutboundError::Unresolved(format!("{error}")))?;
        if let Ok(host) = HeaderValue::from_str(&host) {
            request.headers_mut().insert(http::header::HOST, host);
        }
        let failed = |error: hyper::Error| OutboundError::Unanswered(error_texts::of_hyper(&error));
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(failed)?;
        tokio::spawn(async move {
            if let Err(error) = connection.with_upgrades().await {
                tracing::debug!(%error, "an upgraded connection ended");
            }
        });
        let response = sender.send_request(request).await.map_err(failed)?;
        followed(&mut calling, response.status());
        Ok(response)
    }

    /// The URL of a call with the Service's address, for messages.
    pub fn shown(&self, target: &CallTarget) -> Result<String, OutboundError> {
        self.located(target).map(|url| url.to_string())
    }

    /// The host and port of a call.
    pub fn host(&self, target: &CallTarget) -> Result<String, OutboundError> {
        self.located(target).map(|url| url.authority().map(|host| host.to_string()).unwrap_or_default())
    }

    /// The URL of this call with the address to dial.
    fn located(&self, target: &CallTarget) -> Result<Uri, OutboundError> {
        match &target.place {
            ServerAddress::Url(url) => Ok(url.clone()),
            ServerAddress::Service { namespace, name, port, path } => {
                let Address { host, port } = match self.is_inside(namespace, name) {
                    true => Address { host: target.server_name(), port: *port },
                    false => self.resolver.address(namespace, name, *port)?,
                };
                let host = if host.contains(':') { format!("[{host}]") } else { host };
                let url = format!("https://{host}:{port}{path}");
                url.parse().map_err(|error| OutboundError::Unresolved(format!("{url:?}: {error}")))
            }
        }
    }

    fn client(
        &self,
        target: &CallTarget,
        http2: bool,
        service: Option<(String, String, u16)>,
        identity: Option<Arc<Identity>>,
    ) -> Result<Client<Connector, OutBody>, OutboundError> {
        let identity = identity.or_else(|| self.identity.clone().filter(|_| target.trust.identified));
        let generation = identity.as_ref().map_or(0, |identity| identity.generation());
        let (server_name, trust) = (target.server_name(), target.trust.clone());
        let profile = Profile { server_name, trust, service, http2, identity, generation };
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = clients.get(&profile) {
            return Ok(client.clone());
        }
        let connector = self.connector(target, profile.service.clone(), profile.identity.as_deref())?;
        let connector = if http2 { connector } else { connector.speaking_http1() };
        let client = Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_MAX)
            .http2_keep_alive_interval(Duration::from_secs(30))
            .http2_keep_alive_timeout(Duration::from_secs(15))
            .build(connector);
        if clients.len() >= CLIENTS_MAX {
            // Calls in progress keep their clients; new calls create clients again.
            clients.clear();
        }
        clients.insert(profile, client.clone());
        Ok(client)
    }

    fn connector(
        &self,
        target: &CallTarget,
        service: Option<(String, String, u16)>,
        identity: Option<&Identity>,
    ) -> Result<Connector, OutboundError> {
        let inside = match &target.place {
            ServerAddress::Service { namespace, name, .. } => self.inside(namespace, name),
            ServerAddress::Url(_) => None,
        };
        let own = self.identity.as_deref().filter(|_| target.trust.identified);
        let (identity, resolver) = (identity.or(own), self.resolver.clone());
        // Services are in the cluster; servers with a URL belong to the operator of the control plane.
        let dialer = match &target.place {
            ServerAddress::Service { .. } => &self.egress.cluster,
            ServerAddress::Url(_) => &self.egress.control_plane,
        };
        let connector = Connector::new(&target.server_name(), &target.trust, identity, service, resolver, inside);
        connector.map(|connector| connector.through(dialer)).map_err(OutboundError::Unusable)
    }
}

fn followed(calling: &mut Option<Calling>, status: StatusCode) {
    if let Some(calling) = calling {
        calling.answered(status);
    }
}

async fn collect(body: Incoming, bytes_max: usize) -> Result<Bytes, OutboundError> {
    let collected = Limited::new(body, bytes_max).collect().await;
    collected.map(|body| body.to_bytes()).map_err(|error| {
        OutboundError::Unanswered(error.downcast_ref().map_or_else(|| error.to_string(), error_texts::of_hyper))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_cleaned_as_client_go_does() {
        for (path, expected) in [
            ("", "/"),
            ("/", "/"),
            ("//", "/"),
            ("//mutate", "/mutate"),
            ("mutate", "/mutate"),
            ("/a//b///c/", "/a/b/c"),
            ("/a/./b/../c", "/a/c"),
            ("/../../a", "/a"),
            ("/a%20b", "/a%20b"),
        ] {
            assert_eq!(cleaned(path), expected, "{path}");
        }
        for (url, expected) in [
            ("https://127.0.0.1:9443//mutate", "https://127.0.0.1:9443/mutate"),
            ("https://[::1]:9443//a//", "https://[::1]:9443/a"),
            ("https://a", "https://a/"),
            ("https://a?x=y", "https://a/"),
        ] {
            assert_eq!(cleaned_url(url).map(|url| url.to_string()), Ok(expected.to_owned()), "{url}");
        }
        assert!(cleaned_url("a b").is_err());
        assert!(cleaned_url("/no/host").is_ok());
    }
}
