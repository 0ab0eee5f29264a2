//! `holdfast apiserver`: opens the log, starts the engine, and serves until told to stop.

use crate::clock::SystemClock;
use crate::flags::Args;
use crate::gates::ApiGates;
use crate::{aggregation, logging, pki, tls};
use anyhow::{Context, Result, anyhow};
use holdfast_core::authz::bootstrap::bootstrap_policy;
use holdfast_core::authz::bootstrap_objects::{bootstrap_objects, kubernetes_service};
use holdfast_core::authz::chain::Mode;
use holdfast_core::decide::Settings;
use holdfast_core::kinds::registry;
use holdfast_core::list::TokenKey;
use holdfast_engine::{Engine, EventLog, Options, bootstrap};
use holdfast_storage_rocks::RocksLog;
use holdfast_transport_http::Metrics;
use holdfast_transport_http::api::{Api, Features, Limits};
use holdfast_transport_http::authenticate::{Authenticator, static_tokens};
use holdfast_transport_http::conversion::Webhooks;
use holdfast_transport_http::paths::Documents;
use holdfast_transport_http::serve::{STREAMS_MAX, serve};
use holdfast_transport_http::tokens::ServiceAccountTokens;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// The issuer of tokens when none is named.
const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

pub fn run(args: Args) -> Result<()> {
    let _log = logging::init(&args.logging).map_err(|why| anyhow!(why))?;
    let bind = args.bind_address.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
    let (certificate, key) = match (&args.tls_cert_file, &args.tls_private_key_file) {
        (Some(certificate), Some(key)) => (certificate.clone(), key.clone()),
        _ => pki::self_signed(&args.cert_dir, &server_names(), &server_addresses(&args, bind))?,
    };
    let tls = tls::configure(&args, &certificate, &key)?;
    serve_until_stopped(args, bind, tls, Mode::AlwaysAllow, |address| {
        tracing::info!(%address, "serving");
        Ok(())
    })
}

/// Runs the server; `ready` is called once `/readyz` is ok.
pub fn serve_until_stopped(
    args: Args,
    bind: IpAddr,
    tls: holdfast_transport_http::serve::Tls,
    default_mode: Mode,
    ready: impl FnOnce(SocketAddr) -> Result<()>,
) -> Result<()> {
    let log = RocksLog::open(&args.data_dir)?;
    let settings = Settings {
        service_range: args.service_cluster_ip_range,
        node_ports: args.service_node_port_range,
        modes: args.authorization_mode.clone().map_or_else(|| vec![default_mode], |modes| modes.0),
        token_key: TokenKey(log.secret()?),
        event_ttl: Some(args.event_ttl).filter(|ttl| !ttl.is_zero()),
    };
    let log: Arc<dyn EventLog> = Arc::new(log);
    let options = Options { settings, clock: Arc::new(SystemClock) };
    let engine = Engine::open(log, Arc::new(registry().clone()), options)?;
    let runtime = crate::runtime()?;
    let outcome = runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let listener = TcpListener::bind((bind, args.secure_port))
            .await
            .with_context(|| format!("listen on {bind}:{}", args.secure_port))?;
        let address = listener.local_addr()?;
        let api = api(&args, engine.clone(), address)?;
        let streams = match args.http2_max_streams_per_connection {
            0 => STREAMS_MAX,
            streams => streams,
        };
        let serving = tokio::spawn(serve(api.clone(), listener, tls, streams));
        tokio::spawn(engine.clone().keep_house());
        make_objects(&args, &engine, address).await?;
        aggregation::keep(&args, &engine, &api).await?;
        api.ready.send_replace(true);
        ready(address)?;
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        api.stopping.send_replace(true);
        serving.await?.context("serve")
    });
    runtime.shutdown_timeout(std::time::Duration::from_secs(1));
    engine.close();
    outcome
}

fn api(args: &Args, engine: Arc<Engine>, address: SocketAddr) -> Result<Arc<Api>> {
    let modes = engine.settings().modes.clone();
    let mut anonymous = args.anonymous_auth;
    if anonymous && modes == [Mode::AlwaysAllow] {
        tracing::warn!("anonymous requests are refused, as everything is allowed to everybody");
        anonymous = false;
    }
    let authenticator = Authenticator {
        anonymous,
        static_tokens: match &args.token_auth_file {
            None => HashMap::new(),
            Some(file) => static_tokens(&read(file)?).map_err(|why| anyhow!("{}: {why}", file.display()))?,
        },
        service_accounts: service_accounts(args)?,
        request_headers: aggregation::request_headers(args),
    };
    let limits = Limits {
        reading_max: i64::from(args.max_requests_inflight),
        mutating_max: i64::from(args.max_mutating_requests_inflight),
        ..Limits::default()
    };
    let advertised = SocketAddr::new(advertised(args, address.ip()), address.port());
    let aggregator = Arc::new(aggregation::aggregator(args, engine.clone())?);
    engine.convert_with(Arc::new(Webhooks::new(&engine, aggregator.outbound())));
    Ok(Arc::new(Api {
        engine,
        aggregator,
        authenticator,
        modes,
        limits,
        features: features(args)?,
        metrics: Metrics::default(),
        documents: Documents::new(advertised.to_string()),
        stopping: watch::Sender::new(false),
        sockets: Default::default(),
        ready: watch::Sender::new(false),
    }))
}

fn features(args: &Args) -> Result<Features> {
    let gates = args.gates.gates().map_err(|why| anyhow!("--feature-gates: {why}"))?;
    let gates = ApiGates::from(&gates);
    Ok(Features {
        list_chunking: gates.list_chunking,
        response_compression: gates.response_compression,
        dry_run: gates.dry_run,
        remaining_item_count: gates.remaining_item_count,
        server_side_apply: gates.server_side_apply,
        self_links: !gates.remove_self_link,
    })
}

fn service_accounts(args: &Args) -> Result<Option<ServiceAccountTokens>> {
    let signing = args.service_account_signing_key_file.as_deref().map(read).transpose()?;
    let verifying: Vec<String> = args.service_account_key_file.iter().map(read).collect::<Result<_>>()?;
    if signing.is_none() && verifying.is_empty() {
        return Ok(None);
    }
    let issuers = if args.service_account_issuer.is_empty() {
        vec![ISSUER.to_owned()]
    } else {
        args.service_account_issuer.clone()
    };
    ServiceAccountTokens::new(issuers, args.api_audiences.clone(), signing.as_deref(), &verifying)
        .map(Some)
        .map_err(|why| anyhow!("service account keys: {why}"))
}

async fn make_objects(args: &Args, engine: &Arc<Engine>, address: SocketAddr) -> Result<()> {
    let mut objects = bootstrap_objects();
    let range = args.service_cluster_ip_range.to_string();
    let advertised = advertised(args, address.ip());
    // Endpoints never are in the loopback range. Without a network there are none to tell of.
    let reachable = if advertised.is_loopback() { own_address() } else { Some(advertised) };
    let shown = reachable.unwrap_or(advertised);
    let service = kubernetes_service(&[&range], shown, address.port()).map_err(|why| anyhow!(why))?;
    objects.extend(service.into_iter().filter(|object| reachable.is_some() || object["kind"] == "Service"));
    bootstrap::ensure(engine, objects, bootstrap_policy())
        .await
        .map_err(|refusal| anyhow!("the objects that every cluster has could not be made: {refusal:?}"))
}

/// The address under which the cluster reaches the server.
fn advertised(args: &Args, bound: IpAddr) -> IpAddr {
    match args.advertise_address {
        Some(address) => address,
        None if bound.is_unspecified() => own_address().unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        None => bound,
    }
}

/// The address that this machine would use towards others. Nothing is sent.
fn own_address() -> Option<IpAddr> {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    Some(socket.local_addr().ok()?.ip()).filter(|address| !address.is_unspecified())
}

/// Names that clients know the server by.
pub fn server_names() -> Vec<String> {
    let mut names: Vec<String> = [
        "localhost",
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
    ]
    .map(str::to_owned)
    .into();
    if let Ok(host) = std::fs::read_to_string("/proc/sys/kernel/hostname") {
        let host = host.trim();
        let plain = !host.is_empty() && host.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.'));
        if plain && !names.iter().any(|name| name == host) {
            names.push(host.to_owned());
        }
    }
    names
}

pub fn server_addresses(args: &Args, bind: IpAddr) -> Vec<IpAddr> {
    let mut addresses =
        vec![IpAddr::V4(Ipv4Addr::LOCALHOST), args.service_cluster_ip_range.address(1), advertised(args, bind)];
    if !bind.is_unspecified() {
        addresses.push(bind);
    }
    addresses.sort_unstable();
    addresses.dedup();
    addresses
}

pub fn read(file: impl AsRef<Path>) -> Result<String> {
    let file = file.as_ref();
    std::fs::read_to_string(file).with_context(|| format!("read {}", file.display()))
}
