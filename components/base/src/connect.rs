//! The connection to an API server: one connection, over HTTP/2 if the server supports it, for all requests of a
//! component.
//!
//! `kube`'s own client uses HTTP/1.1, which needs a connection for each request in progress, and a system call for each
//! request and each response. The layers around the connection (address, credentials, headers, retries) are still the
//! layers of `kube`.

use anyhow::{Context, Result, anyhow};
use http::{Request, Response};
use hyper::body::Incoming;
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::retry::RetryPolicy;
use kube::client::{Body, ClientBuilder, ConfigExt};
use std::time::Duration;
use tower::retry::RetryLayer;
use tower::util::BoxService;
use tower::{BoxError, ServiceBuilder, ServiceExt};

/// The interval at which the client pings the server. `PONG` is how long the server may take to answer a ping. Go's
/// client has the same values.
const PING_PERIOD: Duration = Duration::from_secs(30);
const PONG: Duration = Duration::from_secs(15);

/// The HTTP service on which a client of `kube` is built.
pub type Stack = BoxService<Request<Body>, Response<Incoming>, BoxError>;

/// The builder of a client for a configuration, on a connection of this module.
pub fn builder(config: kube::Config) -> Result<ClientBuilder<Stack>> {
    // The error message has the wording of the crate `kube`. No proxy of any kind is supported.
    if let Some(proxy) = &config.proxy_url {
        return Err(anyhow!("proxy-url {proxy} is not supported"));
    }
    let auth = config.auth_layer().context("credentials")?;
    let headers = config.extra_headers_layer().context("headers")?;
    let retry = config.default_retry.then(|| RetryLayer::new(RetryPolicy::server_retry()));
    let client = Client::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .http2_keep_alive_interval(PING_PERIOD)
        .http2_keep_alive_timeout(PONG)
        .build(connector(&config)?);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(retry)
        .option_layer(auth)
        .layer(headers)
        .map_err(BoxError::from)
        .service(client);
    Ok(ClientBuilder::new(service.boxed(), config.default_namespace))
}

/// A client for a configuration.
pub fn client(config: kube::Config) -> Result<kube::Client> {
    Ok(builder(config)?.build())
}

fn connector(config: &kube::Config) -> Result<HttpsConnector<HttpConnector>> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(config.connect_timeout);
    let tls = config.rustls_client_config().context("certificates")?;
    let mut https = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
    if let Some(name) = &config.tls_server_name {
        let name = name.clone().try_into().with_context(|| format!("tls-server-name {name}"))?;
        https = https.with_server_name_resolver(FixedServerNameResolver::new(name));
    }
    Ok(https.enable_all_versions().wrap_connector(tcp))
}
