//! `holdfast apiserver`: opens the log, starts the engine, and serves until a signal stops it.

use crate::authorization::Authorization;
use crate::components::Components;
use crate::etcd::{self, Membership};
use crate::etcd_upkeep::Upkeep;
use crate::flags::Args;
use crate::host::{host_name, server_id_hash};
use crate::offered::Releases;
use crate::on_etcd::{self, Connected, OnEtcd};
use crate::{
    admission, aggregation, authentication, checks, disk, encryption, image_policy, kubelets, otlp, pages, pki,
    read_memory, tls,
};
use anyhow::{Context, Result, anyhow, ensure};
use holdfast_audit::Auditor;
use holdfast_authorization::Webhooks;
use holdfast_chronicle::clock::SystemClock;
use holdfast_chronicle::fork::ForkHere;
use holdfast_component::files::keep_others_out;
use holdfast_component::gates::ApiGates;
use holdfast_component::options::joined;
use holdfast_component::serving::paths::Zpages;
use holdfast_component::{certificates, logging, serving};
use holdfast_core::Refusal;
use holdfast_core::authz::bootstrap::bootstrap_policy;
use holdfast_core::authz::bootstrap_objects::{bootstrap_objects, kubernetes_service};
use holdfast_core::authz::chain::Mode;
use holdfast_core::kinds::{known, registry};
use holdfast_core::pipeline;
use holdfast_core::presence::Settings;
use holdfast_encryption::{Live, SealedLog};
use holdfast_engine::retention::{self, Retention};
use holdfast_engine::volatile::VolatileLog;
use holdfast_engine::{Apart, Engine, Log, Options, Sealing};
use holdfast_service::housekeeping::presence::{self, Presence};
use holdfast_service::housekeeping::{self, bootstrap, elections};
use holdfast_service::{Limits, Meter, Options as ServiceOptions, Service};
use holdfast_storage_rocks::{Durability, FolderInUse, Reserve, RocksLog, folder};
use holdfast_tls::guests::Guests;
use holdfast_tls::server::LiveTls;
use holdfast_transport_http::forks::Forker;
use holdfast_transport_http::pages::Pages;
use holdfast_transport_http::paths::git_version;
use holdfast_transport_http::serve::serve;
use holdfast_transport_http::transport::ShownMetrics;
use holdfast_transport_http::{
    Builder, Features, ForkSettings, OtherServersSettings, ServerInfoSettings, ServerVersion, Transport,
};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinSet;

/// The default limit of a log in memory, in bytes, including its history.
const MEMORY_MAX: u64 = 64 << 20;
/// How long a stopping server waits for audit events that are not written yet.
const AUDIT_CLOSE_MAX: Duration = Duration::from_secs(5);
/// The default grace period of deleted namespaces under envtest, for suites that finish the deletion themselves.
const ENVTEST_NAMESPACE_GRACE: Duration = Duration::from_secs(2);

/// Refuses options and their files if they are invalid or contradict each other. One error lists all faults. Warns of
/// options that have no effect.
pub fn check(args: &Args) -> Result<()> {
    let faults = args.faults();
    ensure!(faults.is_empty(), joined(&faults));
    args.settled.warn();
    for note in args.gates()?.notes() {
        tracing::warn!("--feature-gates: {note}");
    }
    Ok(())
}

pub fn run(mut args: Args, flags: Vec<(String, String)>) -> Result<()> {
    if let Some(text) = args.version_text() {
        println!("{text}");
        return Ok(());
    }
    let _log = logging::init(&args.logging).map_err(|why| anyhow!(why))?;
    keep_others_out();
    check(&args)?;
    for (option, given) in [("cloud-provider", &args.cloud.cloud_provider), ("cloud-config", &args.cloud.cloud_config)]
    {
        if given.as_deref().is_some_and(|given| !given.is_empty()) {
            tracing::warn!(
                "Flag --{option} has been deprecated, it has no effect: only holdfast up connects to a cloud"
            );
        }
    }
    let (membership, lasting) = store(&mut args)?;
    let bind = args.network.bind_address.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
    let (certificate, key) = match args.network.tls.pair() {
        Some((certificate, key)) => (certificate.to_owned(), key.to_owned()),
        None => certificates::kept_pair(
            &args.network.tls.cert_dir,
            "apiserver",
            "kube-apiserver",
            &server_names(),
            &server_addresses(&args, bind),
        )?,
    };
    let tls = tls::configure(&args, &certificate, &key)?;
    if args.credentials.service_account_signing_key_file.is_none()
        && args.credentials.service_account_key_file.is_empty()
    {
        holdfast_storage_rocks::check_whole(args.storage.data_dir())?;
        args.credentials.service_account_signing_key_file = Some(pki::account_key(args.storage.data_dir())?);
    }
    let connected = on_etcd::connect(&args)?;
    let server = Server {
        args,
        bind,
        tls,
        default_mode: Mode::AlwaysAllow,
        default_forks_max: 0,
        lasting,
        components: Components::none(),
        plugins_left_out: &[],
        flags,
        has_identity: true,
        connected,
    };
    let served = server.serve(async |address, signals: &mut Signals| {
        tracing::info!(%address, "serving");
        signals.next().await;
        Ok(())
    });
    drop(membership);
    served
}

/// Determines where the events are stored (in the data folder or on etcd), and how durably. A server that joins
/// `holdfast etcd`, which replaces envtest's etcd, stores them as durably as that command demands.
fn store(args: &mut Args) -> Result<(Option<Membership>, Lasting)> {
    let membership = match args.storage.etcd_servers.as_slice() {
        [] => return Ok((None, Lasting::Kept)),
        [url] => match etcd::join(url)? {
            Some(membership) => membership,
            None => return Ok((None, Lasting::Kept)),
        },
        _ => return Ok((None, Lasting::Kept)),
    };
    ensure!(
        args.storage.etcd.etcd_servers_overrides.is_empty(),
        "--etcd-servers-overrides is about etcd, and --etcd-servers names `holdfast etcd`, which stores nothing"
    );
    args.storage.etcd_servers.clear();
    args.storage.data_dir.get_or_insert_with(|| args.network.tls.cert_dir.clone());
    args.objects.namespace_grace_period.get_or_insert(ENVTEST_NAMESPACE_GRACE);
    let lasting = if membership.fsync { Lasting::Kept } else { Lasting::InMemory };
    Ok((Some(membership), lasting))
}

/// A server that is configured and not started yet.
pub struct Server {
    pub args: Args,
    pub bind: IpAddr,
    pub tls: Arc<LiveTls>,
    /// The authorization mode if `--authorization-mode` is not given.
    pub default_mode: Mode,
    /// The limit of forks in memory without `--forks-max`.
    pub default_forks_max: u32,
    pub lasting: Lasting,
    /// The components that run beside the server, and beside each of its forks.
    pub components: Components,
    /// Admission plug-ins that are on by default and off in this server.
    pub plugins_left_out: &'static [&'static str],
    /// The options with their values, as `/flagz` shows them.
    pub flags: Vec<(String, String)>,
    /// Whether the server publishes an identity Lease when no option asks for an identity Lease.
    pub has_identity: bool,
    /// The etcd of `--etcd-servers`, to which the server has connected.
    pub connected: Option<Connected>,
}

/// The fate of the data folder at the server's end, and the durability of writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lasting {
    /// The folder outlives the server; acknowledged writes survive a power failure.
    Kept,
    /// The folder is deleted when the server ends, so writes need no fsync, and the server ends without a grace period
    /// for clients.
    Fleeting,
    /// The log is only in memory, and the server ends without a grace period for clients.
    InMemory,
}

/// The signals that ask the process to end.
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn catch() -> Result<Signals> {
        Ok(Signals { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Waits for the next signal.
    pub async fn next(&mut self) -> SignalKind {
        tokio::select! {
            _ = self.terminate.recv() => SignalKind::terminate(),
            _ = self.interrupt.recv() => SignalKind::interrupt(),
        }
    }
}

impl Server {
    /// Starts the server, runs `work` once `/readyz` is ok, and ends the server when `work` is done.
    pub fn serve<T>(self, work: impl AsyncFnOnce(SocketAddr, &mut Signals) -> Result<T>) -> Result<T> {
        let Server { args, bind, tls, default_mode, default_forks_max, lasting, components, .. } = self;
        let (plugins_left_out, flags, has_identity) = (self.plugins_left_out, self.flags, self.has_identity);
        let gates = args.api_gates()?;
        let (keys, follow) = args.encryption.live(&gates)?;
        let opened = open(&args, lasting, self.connected, &keys)?;
        let Opened { log, parts, sealing, disk, forker, retention, etcd, _lock } = opened;
        let (mut offer, releases) = args.offered.offer().map_err(|faults| anyhow!(joined(&faults)))?;
        let egress = aggregation::egress(&args)?;
        let Authorization { chain, webhooks, followed, has_unversioned } = args
            .authorization
            .authorization(default_mode, &egress.control_plane)
            .map_err(|faults| anyhow!(joined(&faults)))?;
        if has_unversioned {
            tracing::warn!("some lines of the file of --authorization-policy-file say no version");
        }
        for kind in &gates.kinds_off {
            offer.asked.entry((*kind).to_owned()).or_insert(false);
        }
        let settings = pipeline::Settings {
            service_ranges: args.services.service_cluster_ip_range,
            node_ports: args.services.service_node_port_range,
            ports_elsewhere: etcd.as_ref().map(Upkeep::ports).unwrap_or_default(),
            allow_privileged: args.objects.allow_privileged.unwrap_or(false),
            admission: admission::chain(&args.admission, plugins_left_out)
                .map_err(|faults| anyhow!(joined(&faults)))?
                .without(&gates.plugins_off)
                .with_gates_off(&gates.fields_off),
            // If the objects are in etcd, etcd's leases make Events expire.
            event_ttl: Some(args.objects.event_ttl).filter(|ttl| !ttl.is_zero() && etcd.is_none()),
            namespace_grace: args.objects.namespace_grace_period.unwrap_or_default(),
            api_audiences: authentication::api_audiences(&args),
            token_seconds_max: args.authentication.token_seconds_max()?,
            extend_tokens: args.authentication.service_account_extend_token_expiration,
            ticks: holdfast_service::ticks,
            deletions_max: args
                .objects
                .delete_collection_workers
                .map_or(pipeline::Settings::default().deletions_max, |workers| {
                    usize::try_from(workers).unwrap_or(0).max(1)
                }),
            namespace_bytes: args.objects.namespace_bytes,
            garbage_collection: args.cluster.enable_garbage_collector,
            unsafe_deletion: gates.unsafe_deletion,
            gates_off: gates.fields_off.clone(),
            ..pipeline::Settings::default()
        };
        let options =
            Options { authorization: chain, sealing: Some(sealing), ..Options::new(settings, Arc::new(SystemClock)) };
        let registry = Arc::new(offer.registry(registry()));
        let engine = encryption::open_patiently(|| Engine::open(log.clone(), registry.clone(), options.clone()))?;
        engine.open_parts(parts)?;
        engine.reads().memory().set_bytes_max(args.limits.read_memory.unwrap_or_else(read_memory::of_machine));
        let runtime = holdfast_chronicle::runtime()?;
        let background = holdfast_background::runtime()?;
        let served = async {
            let mut signals = Signals::catch()?;
            let listener = args.serving.listen(bind, args.network.port())?;
            let address = listener.local_addr()?;
            let forks_max = args.limits.forks_max.unwrap_or(default_forks_max);
            let mut bounds = args.serving.bounds().map_err(|faults| anyhow!(joined(&faults)))?;
            if let streams @ 1.. = args.network.http2_max_streams_per_connection {
                bounds.streams_max = streams;
            }
            let guests = Guests::new(bounds);
            let auditor = args.audit.auditor(&egress.control_plane)?;
            let profiling = args.debugging.profiling.unwrap_or(true);
            let pages = pages::pages(flags, releases, profiling, Zpages::of(&args.gates()?));
            if let Some(path) = &args.serving.debug_socket_path {
                pages::serve_socket(path, pages.clone())?;
            }
            let (auditor_of_door, keys_of_door) = (auditor.clone(), keys.clone());
            let elections = components.elections().clone();
            let beside = Beside {
                forker,
                forks_max,
                auditor: auditor_of_door,
                components,
                background: background.handle().clone(),
                pages,
                releases,
                webhooks,
                keys: keys_of_door,
                guests: guests.clone(),
                disk,
                etcd: etcd.as_ref(),
            };
            if let Some(followed) = followed {
                tokio::spawn(followed.follow());
            }
            let transport = transport(&args, engine.clone(), address, &tls, beside).await?;
            let service = transport.service();
            pages::describe_process(service, &args.gates()?, args.shown_version());
            tokio::spawn(serving::follow(Arc::downgrade(&tls)));
            let serving = tokio::spawn(serve(transport.clone(), listener, tls, guests));
            keys.start();
            if let Some(follow) = follow {
                tokio::spawn(keys.follow(follow));
            }
            for engine in engine.all() {
                tokio::spawn(retention::run(Arc::downgrade(engine), retention));
            }
            let presence = presence_of(&args, address);
            despite_a_full_disk(make_objects(service, &presence).await)
                .map_err(|refusal| anyhow!("the objects that every cluster has could not be made: {refusal:?}"))?;
            // Housekeeping starts after these objects are made: it aggregates roles as a service account, whose role
            // and binding are among the objects.
            tokio::spawn(housekeeping::run(service.clone()));
            let mut kept = JoinSet::new();
            if let Some(etcd) = &etcd {
                etcd.start(service, &mut kept);
            }
            let presence = Presence { settings: presence, servers: etcd.as_ref().map(Upkeep::servers) };
            presence::ensure_service(service, &presence, true).await;
            kept.spawn(presence::keep_service(service.clone(), presence.clone()));
            let identity = args.cluster.identity(has_identity, host_name(), engine.stamp());
            if let Some((identity, period)) = identity.filter(|_| gates.identity) {
                kept.spawn(presence::keep_lease(service.clone(), identity, period));
            }
            if gates.coordinated_election {
                let (term, period) = args.cluster.term(&host_name(), engine.stamp());
                kept.spawn(elections::run(service.clone(), term, period));
            }
            despite_a_full_disk(transport.keep_registered(&mut kept).await)
                .map_err(|refusal| anyhow!("the server's APIServices could not be made: {refusal:?}"))?;
            transport.set_ready();
            transport.start_components(&mut kept);
            let done = work(address, &mut signals).await?;
            elections.leave().await;
            presence.withdraw().await;
            if let Some(etcd) = &etcd {
                etcd.withdraw().await;
            }
            if lasting == Lasting::Kept {
                // A second signal ends the process at once.
                tokio::spawn(async move {
                    signals.next().await;
                    std::process::exit(1);
                });
                transport.begin_shutdown();
                tokio::time::sleep(args.serving.shutdown_delay_duration).await;
                transport.shut_down().await;
                serving.await?.context("serve")?;
            }
            if let Some(auditor) = auditor {
                auditor.close(AUDIT_CLOSE_MAX).await;
            }
            Ok(done)
        };
        let outcome = runtime.block_on(while_it_writes(&engine, served));
        // Tasks that still run are dropped before the log is closed. Only a task in a blocking call can make one of
        // these waits last a second.
        runtime.shutdown_timeout(std::time::Duration::from_secs(1));
        background.shutdown_timeout(std::time::Duration::from_secs(1));
        engine.close();
        outcome
    }
}

/// An opened log, with the parts of the server that depend on whether the log is in a folder, in memory or in etcd.
struct Opened {
    log: Arc<dyn Log>,
    /// Logs of kinds whose objects are in an etcd of their own.
    parts: Vec<Apart>,
    /// The log on this machine's disk.
    disk: Option<Arc<RocksLog>>,
    /// Encrypts the log's values.
    sealing: Arc<dyn Sealing>,
    forker: Option<Arc<dyn Forker>>,
    retention: Retention,
    /// The upkeep of etcd, if the log is on etcd.
    etcd: Option<Upkeep>,
    /// The lock of the data folder, if the log itself does not lock it.
    _lock: Option<FolderInUse>,
}

fn open(args: &Args, lasting: Lasting, connected: Option<Connected>, keys: &Arc<Live>) -> Result<Opened> {
    let (folder, mut retention) = (args.storage.data_dir(), args.history.retention());
    let durability = match lasting {
        Lasting::Kept => Durability::Synced,
        Lasting::Fleeting => Durability::Unsynced,
        Lasting::InMemory => {
            retention.bytes.get_or_insert(MEMORY_MAX);
            let log = Arc::new(SealedLog::new(Arc::new(VolatileLog::default()), keys.clone()));
            let _lock = Some(FolderInUse::take(folder)?);
            let (sealing, parts) = (log.clone(), Vec::new());
            return Ok(Opened { log, parts, sealing, disk: None, forker: None, retention, etcd: None, _lock });
        }
    };
    // The log of a server whose folder is deleted needs no disk reserve.
    let reserve = if lasting == Lasting::Kept { args.disk.disk_reserve } else { 0 };
    // etcd has the events: after a crash the local copy receives them again, so it needs no fsync.
    let durability = if connected.is_none() { durability } else { Durability::Unsynced };
    let log = Arc::new(RocksLog::open_with(folder, durability, Reserve::Bytes(reserve))?);
    if let Some(warning) = folder::warning(folder) {
        tracing::warn!("{warning}");
    }
    let forker: Arc<dyn Forker> = Arc::new(ForkHere { log: log.clone(), data_dir: folder.to_owned() });
    let disk = Some(log.clone());
    let forker = Some(forker);
    let Some(connected) = connected else {
        let log = Arc::new(SealedLog::new(log, keys.clone()));
        let (sealing, parts) = (log.clone(), Vec::new());
        return Ok(Opened { log, parts, sealing, disk, forker, retention, etcd: None, _lock: None });
    };
    let OnEtcd { log, parts, upkeep } = on_etcd::open(args, connected, log, keys)?;
    Ok(Opened { sealing: log.clone(), log, parts, disk, forker, retention, etcd: Some(upkeep), _lock: None })
}

/// Runs `work` to its end, or fails when the writer panics: then nothing can be written any more, and the process
/// should end.
async fn while_it_writes<T>(engine: &Engine, work: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::select! {
        done = work => done,
        why = engine.died() => Err(anyhow!("{why}. Nothing can be written any more, so the server ends")),
    }
}

/// The parts of a server besides its transport.
struct Beside<'e> {
    forker: Option<Arc<dyn Forker>>,
    forks_max: u32,
    auditor: Option<Arc<Auditor>>,
    components: Components,
    /// The runtime on which `components` run.
    background: Handle,
    pages: Pages,
    releases: Releases,
    keys: Arc<Live>,
    webhooks: Arc<Webhooks>,
    guests: Arc<Guests>,
    disk: Option<Arc<RocksLog>>,
    etcd: Option<&'e Upkeep>,
}

async fn transport(
    args: &Args,
    engine: Arc<Engine>,
    address: SocketAddr,
    tls: &Arc<LiveTls>,
    beside: Beside<'_>,
) -> Result<Arc<Transport>> {
    let Beside {
        forker,
        forks_max,
        auditor,
        components,
        background,
        pages,
        releases,
        webhooks,
        keys,
        guests,
        disk,
        etcd,
    } = beside;
    let gates = args.api_gates()?;
    let anonymous = args.credentials.anonymous_auth.unwrap_or(true) && !everybody_may(&engine);
    let (authenticator, counted) = authentication::authenticator(args, anonymous).await?;
    authentication::look_up(args, tls, &authenticator).await?;
    let images = match engine.settings().admission.configuration.image_policy.clone() {
        Some(policy) => Some(image_policy::Webhook::open(policy)?),
        None => None,
    };
    let connections =
        kubelets::connections(&args.kubelets, aggregation::egress(args)?.cluster, &gates, address.port())?;
    let address = SocketAddr::new(advertised(args, address.ip()), address.port()).to_string();
    let authorities = [&args.credentials.client_ca_file, &args.front_proxy.requestheader_client_ca_file];
    let follows_tls = args.network.tls.names_files() || authorities.into_iter().any(Option::is_some);
    let reloads = tls.clone();
    let followed = [
        args.authentication
            .authentication_config
            .is_some()
            .then(|| ("authentication-config", counted.reloads.trouble())),
        args.authorization.authorization_config.is_some().then(|| ("authorization-config", webhooks.trouble())),
        follows_tls.then(|| ("tls-cert-file", tls.trouble.clone())),
    ];
    let followed = followed.into_iter().flatten().map(|(name, trouble)| checks::of_files(name, trouble));
    let aggregation = aggregation::settings(args, components.inside())?;
    let trust = Some(aggregation::trust(args)?);
    let keys_url = gates.issuer_discovery.then(|| args.authentication.keys_url(&address)).transpose()?;
    let speakers = admission::speakers(&engine.settings().admission).map_err(|faults| anyhow!(joined(&faults)))?;
    let manners = args.serving.manners().map_err(|faults| anyhow!(joined(&faults)))?;
    let tracer = args.serving.tracing()?.as_ref().map(otlp::tracer);
    let checks = encryption::checks(&keys)
        .into_iter()
        .chain(followed)
        .chain(disk.as_ref().map(disk::check))
        .chain(etcd.map(Upkeep::checks).into_iter().flatten());
    let own_meters: [Meter; 3] = [
        encryption::meter(&keys, server_id_hash()),
        Arc::new(move || reloads.metrics()),
        Arc::new(move || guests.metrics()),
    ];
    let meters = own_meters.into_iter().chain(disk.as_ref().map(disk::meter)).chain(etcd.map(Upkeep::meter));
    let builder = Builder {
        authenticator,
        service: ServiceOptions {
            limits: Limits {
                reading_max: args.limits.max_requests_inflight,
                mutating_max: args.limits.max_mutating_requests_inflight,
            },
            fairness: fairness(args, &gates),
            auditor,
            watch_min: args.serving.watch_min(),
            meters: meters.collect(),
            authorities: Some(webhooks),
            upgrades_need_create: gates.upgrades_need_create,
            ..ServiceOptions::default()
        },
        features: features(&gates),
        manners,
        lifecycle: args.serving.lifecycle(),
        other_servers: OtherServersSettings { aggregation, trust, connections, images, speakers },
        forks: ForkSettings { forker, in_memory_max: forks_max },
        server_info: ServerInfoSettings {
            address,
            keys_url,
            version: ServerVersion {
                git_version: args.shown_version().unwrap_or_else(git_version),
                emulated_minor: releases.emulated,
                min_compatible_minor: releases.min_compatible,
            },
            pages: Some(pages),
            shown_metrics: shown_metrics(args)?,
            checks: checks.collect(),
        },
        components: Some(Arc::new(move |transport, tasks| {
            let _in_background = background.enter();
            components.start(transport, tasks);
        })),
        tracer,
        ..Builder::new(engine)
    };
    let transport = builder.build();
    transport.service().with_registry(|registry| counted.register(registry, server_id_hash()));
    Ok(transport)
}

/// Removes one metric from a text of metrics.
fn without_metric(text: &str, name: &str) -> String {
    let is_of = |line: &str| {
        let line = ["# HELP ", "# TYPE ", "# UNIT "].iter().find_map(|head| line.strip_prefix(head)).unwrap_or(line);
        line.strip_prefix(name).is_some_and(|rest| rest.starts_with([' ', '{']))
    };
    text.lines().filter(|line| !is_of(line)).flat_map(|line| [line, "\n"]).collect()
}

/// How long a request may wait in a queue of priority and fairness: a quarter of the request timeout. Returns `None` if
/// requests do not queue.
fn fairness(args: &Args, gates: &ApiGates) -> Option<Duration> {
    args.limits.is_fair(gates).then_some(args.serving.request_timeout / 4)
}

/// Whether the mode AlwaysAllow is on; warns if it is, because anonymous requests are then refused, as in Kubernetes.
fn everybody_may(engine: &Engine) -> bool {
    let allowed = engine.authorizers().has(Mode::AlwaysAllow);
    if allowed {
        tracing::warn!(
            "anonymous requests are refused whatever --anonymous-auth says, because --authorization-mode has AlwaysAllow: \
             use another mode"
        );
    }
    allowed
}

fn features(gates: &ApiGates) -> Features {
    Features {
        list_chunking: gates.list_chunking,
        response_compression: gates.response_compression,
        dry_run: gates.dry_run,
        remaining_item_count: gates.remaining_item_count,
        server_side_apply: gates.server_side_apply,
        self_links: !gates.remove_self_link,
        constrained_impersonation: gates.constrained_impersonation,
        unauthenticated_http2_dos_mitigation: gates.unauthenticated_http2_dos_mitigation,
        watch_list: gates.watch_list,
    }
}

/// The filter that `/metrics` applies to its text, by the options about metrics.
fn shown_metrics(args: &Args) -> Result<Option<ShownMetrics>> {
    let shown = args.metrics.shown().map_err(|faults| anyhow!(joined(&faults)))?;
    let counts = args.storage.etcd.counts_objects();
    Ok(Some(Arc::new(move |text| {
        let text = shown.apply(text);
        if counts { text } else { without_metric(&text, "apiserver_storage_objects") }
    })))
}

/// The settings with which the server publishes its address in the Service `kubernetes`.
fn presence_of(args: &Args, bound: SocketAddr) -> Settings {
    let advertised = advertised(args, bound.ip());
    // Endpoints must not be in the loopback range. A machine without a network has no other address to publish.
    let reached = if advertised.is_loopback() { own_address() } else { Some(advertised) };
    args.cluster.settings(args.services.service_cluster_ip_range, reached, bound)
}

/// Ignores the refusal of a write on a full disk, so that the server starts and clients can read and delete.
fn despite_a_full_disk(made: Result<(), Refusal>) -> Result<(), Refusal> {
    match made {
        Err(Refusal::InsufficientStorage(why)) => {
            tracing::error!(%why, "objects that every cluster has are not created or repaired until the disk has room");
            Ok(())
        }
        made => made,
    }
}

async fn make_objects(service: &Arc<Service>, presence: &Settings) -> Result<(), Refusal> {
    let mut objects = bootstrap_objects();
    let shown = presence.address.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let own = kubernetes_service(&presence.ranges, shown, presence.port);
    // The Service `kubernetes` and its endpoints are kept up to date while the server runs, so they are not made here.
    let kept = [known::SERVICE, known::ENDPOINTS, known::ENDPOINT_SLICE];
    objects.extend(own.into_iter().filter(|object| !kept.iter().any(|known| known.is_kind_of(object))));
    bootstrap::ensure(service, objects, bootstrap_policy()).await
}

/// The address at which the cluster reaches the server.
fn advertised(args: &Args, bound: IpAddr) -> IpAddr {
    match args.network.advertise_address {
        Some(address) => address,
        None if bound.is_unspecified() => own_address().unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        None => bound,
    }
}

/// The address from which this machine would send to other hosts. The function sends no packet.
fn own_address() -> Option<IpAddr> {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    Some(socket.local_addr().ok()?.ip()).filter(|address| !address.is_unspecified())
}

/// The names for which the server's certificate is valid.
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
    let host = host_name();
    let plain = !host.is_empty() && host.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.'));
    if plain && !names.contains(&host) {
        names.push(host);
    }
    names
}

pub fn server_addresses(args: &Args, bind: IpAddr) -> Vec<IpAddr> {
    let mut addresses = vec![
        IpAddr::V4(Ipv4Addr::LOCALHOST),
        args.services.service_cluster_ip_range.first.address(1),
        advertised(args, bind),
    ];
    if !bind.is_unspecified() {
        addresses.push(bind);
    }
    addresses.sort_unstable();
    addresses.dedup();
    addresses
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_core::authz::User;
    use holdfast_core::request::{Body, Format, Options as RequestOptions, Request, Target, Verb};
    use holdfast_engine::memory::{MemoryLog, Planned};

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn the_server_ends_with_an_error_when_its_writer_dies() {
        let log = Arc::new(MemoryLog::default());
        let options = Options::new(pipeline::Settings::default(), Arc::new(SystemClock));
        let registry = Arc::new(registry().clone());
        let (kind, _) = registry.iter().find(|(_, kind)| kind.resource == "namespaces").expect("namespaces");
        let engine = Engine::open(log.clone(), registry, options).expect("it opens");
        assert_eq!(while_it_writes(&engine, async { Ok(7) }).await.expect("it goes on"), 7);
        log.plan(Planned::Panic);
        let request = Request {
            user: Arc::new(User::new("jane", &[])),
            verb: Verb::Create,
            target: Target { kind, version: 0, namespace: None, name: None, subresource: None },
            options: RequestOptions::default(),
            body: Body { content: r#"{"metadata":{"name":"n"}}"#.into(), format: Format::Json },
            id: "one".into(),
        };
        assert!(engine.mutate(&request).await.is_err());
        let ended = while_it_writes(&engine, std::future::pending::<Result<()>>()).await;
        let why = ended.expect_err("it ends").to_string();
        assert!(why.contains("the writer died: planned panic") && why.contains("the server ends"), "{why}");
    }
}
