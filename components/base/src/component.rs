//! Runs a component: serves its endpoints, and does its work while it leads.

use crate::api::{Api, ApiServer};
use crate::authentication::{self, Authenticator, NeededTrust};
use crate::authorization::Authorizer;
use crate::certificates::kept_pair;
use crate::election::run::identity;
use crate::election::{Election, ElectionOutcome, LockKind, Standing};
use crate::health::Health;
use crate::metrics::Metrics;
use crate::options::{AuthenticationArgs, ComponentArgs, ElectionSettings, ServingArgs, joined};
use crate::serving::paths::{PageHandler, Paths, Zpages, version};
use crate::serving::{self, Guard, SocketHandler};
use crate::throttle::Rate;
use anyhow::{Context, Result, anyhow};
use holdfast_tls::bounds::Bounds;
use holdfast_tls::generated;
use holdfast_tls::server::{LiveTls, Pem, TlsOptions};
use holdfast_value::Value;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use tokio::net::{TcpListener, TcpSocket};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// The maximum rate at which a component requests reviews of tokens and of access.
const REVIEW_RATE: Rate = Rate { qps: 200.0, burst: 400 };
/// The maximum number of connections that wait to be accepted.
const BACKLOG: u32 = 1024;

/// The properties of a component that its command determines.
pub struct ComponentKind {
    /// The component's name, such as `kube-scheduler`.
    pub name: &'static str,
    /// The version that the component reports, such as `v1.35.0`.
    pub version: &'static str,
    pub secure_port: u16,
    /// Whether the component, by default, starts even if it cannot read the published authorities. Options override
    /// this default.
    pub tolerates_lookup_failure: bool,
}

/// The parts of a component's configuration that decide what the component serves.
#[derive(Debug, Clone, Copy)]
pub struct Features {
    pub profiling: bool,
    pub leader_election: bool,
}

/// A component that is about to start.
pub struct Component {
    kind: ComponentKind,
    args: ComponentArgs,
    paths: Arc<Paths>,
    standing: Arc<Standing>,
    stopping: watch::Sender<bool>,
}

impl ComponentKind {
    /// The text to print for the option `--version`; `None` if the option is not given.
    pub fn version_text(&self, args: &ComponentArgs) -> Option<String> {
        match args.version.as_deref()? {
            "true" => Some(format!("Kubernetes {}", self.version)),
            "raw" => Some(version(self.version).to_string()),
            _ => None,
        }
    }
}

impl Component {
    /// Makes a component. `flags` are the options with their values, which operators can read on a page of the
    /// component.
    pub fn new(
        kind: ComponentKind,
        args: ComponentArgs,
        flags: Vec<(String, String)>,
        features: Features,
    ) -> Result<Component> {
        let gates = args.gates.gates().map_err(|why| anyhow!("--feature-gates: {why}"))?;
        let metrics = Arc::new(Metrics::new(args.metrics.shown().map_err(|faults| anyhow!(joined(&faults)))?));
        metrics.describe(kind.version, &gates);
        let (health, standing) = (Arc::new(Health::default()), Arc::new(Standing::default()));
        let stopping = watch::Sender::new(false);
        if features.leader_election {
            let seen = standing.clone();
            health.add("leaderElection", &["healthz", "readyz"], move || seen.check());
        }
        let seen = stopping.subscribe();
        health.add("shutdown", &["readyz"], move || match *seen.borrow() {
            false => Ok(()),
            true => Err("the process is shutting down".into()),
        });
        let paths = Paths {
            name: kind.name,
            version: kind.version.to_owned(),
            emulated: None,
            started: jiff::Timestamp::now(),
            health,
            metrics,
            profiling: features.profiling,
            shown: Zpages::of(&gates),
            flags,
            configz: RwLock::default(),
            pages: RwLock::default(),
        };
        Ok(Component { kind, args, paths: Arc::new(paths), standing, stopping })
    }

    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.paths.metrics
    }

    pub fn health(&self) -> &Arc<Health> {
        &self.paths.health
    }

    /// The shared record of whether this process leads. Some pages are served only while this process leads.
    pub fn standing(&self) -> &Arc<Standing> {
        &self.standing
    }

    /// Shows a part of the configuration under `/configz`.
    pub fn show(&self, name: &str, configuration: Value) {
        let mut configz = self.paths.configz.write().unwrap_or_else(PoisonError::into_inner);
        configz.insert(name.to_owned(), configuration);
    }

    /// Adds a page to the pages that only this component has.
    pub fn page(&self, path: &'static str, page: PageHandler) {
        self.paths.pages.write().unwrap_or_else(PoisonError::into_inner).insert(path, page);
    }

    /// A client of the API server for which the component works.
    pub async fn api(&self, kubeconfig: Option<&Path>, rate: Rate) -> Result<Api> {
        self.api_as(kubeconfig, "", None, rate).await
    }

    /// A client of the API server for one part of the component. The user agent contains `what`. If the part has a
    /// token of its own, `token` replaces the component's credentials.
    pub async fn api_as(&self, kubeconfig: Option<&Path>, what: &str, token: Option<&str>, rate: Rate) -> Result<Api> {
        let master = self.args.client.master.as_deref();
        let agent = self.agent(what);
        let place = ApiServer { kubeconfig, master, agent: &agent, token, rate: Some(rate) };
        Api::connect(&place, self.paths.metrics.clone()).await
    }

    /// A client of the API server for the watches of one part of the component.
    pub async fn api_to_watch(&self, kubeconfig: Option<&Path>, what: &str, rate: Rate) -> Result<Api> {
        let master = self.args.client.master.as_deref();
        let agent = self.agent(what);
        let place = ApiServer { kubeconfig, master, agent: &agent, token: None, rate: Some(rate) };
        Api::connect_to_watch(&place, self.paths.metrics.clone()).await
    }

    fn agent(&self, what: &str) -> String {
        let ComponentKind { name, version, .. } = self.kind;
        let (system, machine) = (std::env::consts::OS, go_name(std::env::consts::ARCH));
        format!("{name}/{version} ({system}/{machine}) holdfast{what}")
    }

    async fn connect(&self, kubeconfig: Option<&Path>, master: Option<&str>, what: &str, rate: Rate) -> Result<Api> {
        let agent = self.agent(what);
        let place = ApiServer { kubeconfig, master, agent: &agent, token: None, rate: Some(rate) };
        Api::connect(&place, self.paths.metrics.clone()).await
    }

    /// Starts to serve. The component then serves until the process ends.
    pub async fn serve(&self, insecure: &[(IpAddr, u16)]) -> Result<()> {
        let serving = &self.args.serving;
        let mut bounds = Bounds::of_connections(1_000);
        if let streams @ 1.. = serving.http2_max_streams_per_connection {
            bounds.streams_max = streams;
        }
        let port = serving.secure_port.unwrap_or(self.kind.secure_port);
        if port != 0 {
            let listener = listen(serving.bind_address, port, serving.permit_port_sharing)?;
            let tls = Arc::new(LiveTls::new(self.tls_options()?).map_err(|why| anyhow!(why))?);
            let guard = Arc::new(self.guard(&tls).await?);
            tokio::spawn(serving::follow(Arc::downgrade(&tls)));
            let address = listener.local_addr()?;
            tracing::info!(%address, "serving securely");
            let socket = SocketHandler { paths: self.paths.clone(), secured: Some((tls, guard)), bounds };
            tokio::spawn(socket.serve(listener));
        }
        for (address, port) in insecure {
            tracing::warn!(%address, port, "serving without TLS and without authentication, as options or the configuration ask");
            let listener = listen(*address, *port, serving.permit_port_sharing)?;
            let socket = SocketHandler { paths: self.paths.clone(), secured: None, bounds };
            tokio::spawn(socket.serve(listener));
        }
        Ok(())
    }

    fn tls_options(&self) -> Result<TlsOptions> {
        let ServingArgs { tls_cert_file, tls_private_key_file, cert_dir, .. } = &self.args.serving;
        let file = |path: &Path| Pem::File(path.to_owned());
        let (certificate, key) = match (tls_cert_file, tls_private_key_file) {
            (Some(certificate), Some(key)) => (file(certificate), file(key)),
            _ => self.own_pair(cert_dir.as_deref())?,
        };
        let files = |path: &Option<_>| path.as_deref().map(file).into_iter().collect();
        let AuthenticationArgs { client_ca_file, requestheader_client_ca_file, requestheader_allowed_names, .. } =
            &self.args.authentication;
        Ok(TlsOptions {
            certificate,
            key,
            named: self.args.serving.tls_sni_cert_key.clone(),
            cipher_suites: self.args.serving.tls_cipher_suites.clone(),
            curves: self.args.serving.tls_curve_preferences.clone(),
            min_version: self.args.serving.tls_min_version.clone(),
            http2: !self.args.serving.disable_http2_serving,
            client_authorities: files(client_ca_file),
            front_proxy_authorities: files(requestheader_client_ca_file),
            front_proxy_names: requestheader_allowed_names.clone(),
            certificate_uids: true,
        })
    }

    /// The certificate and the private key of a component whose options name none. Both are kept in `folder`, or in
    /// memory if there is no folder.
    fn own_pair(&self, folder: Option<&Path>) -> Result<(Pem, Pem)> {
        let mut addresses = vec![IpAddr::V4(Ipv4Addr::LOCALHOST)];
        addresses.extend(Some(self.args.serving.bind_address).filter(|address| !address.is_unspecified()));
        let names = ["localhost".to_owned()];
        match folder.filter(|folder| !folder.as_os_str().is_empty()) {
            None => {
                let made = generated::self_signed(self.kind.name, &names, &addresses)?;
                Ok((Pem::Text(made.certificate), Pem::Text(made.key)))
            }
            Some(folder) => {
                let (certificate, key) = kept_pair(folder, self.kind.name, self.kind.name, &names, &addresses)?;
                Ok((Pem::File(certificate), Pem::File(key)))
            }
        }
    }

    async fn guard(&self, tls: &Arc<LiveTls>) -> Result<Guard> {
        let (who, may) = (&self.args.authentication, &self.args.authorization);
        let reviewer = async |file: &Option<std::path::PathBuf>, option: &str| match file {
            None => Ok(None),
            Some(file) => {
                let api = self.connect(Some(file), None, "", REVIEW_RATE).await;
                api.map(|api| Some(Arc::new(api))).with_context(|| format!("{option}={}", file.display()))
            }
        };
        let authentication = reviewer(&who.authentication_kubeconfig, "--authentication-kubeconfig").await?;
        let authorization = reviewer(&may.authorization_kubeconfig, "--authorization-kubeconfig").await?;
        if authentication.is_none() {
            tracing::warn!("without --authentication-kubeconfig no token is accepted");
        }
        if authorization.is_none() {
            tracing::warn!("no --authorization-kubeconfig: only --authorization-always-allow-paths are open");
        }
        let ttl = who.authentication_token_webhook_cache_ttl;
        let authenticator = Arc::new(Authenticator::new(authentication, ttl, who.headers()));
        self.look_up_trust(tls, &authenticator).await?;
        let authorizer = Authorizer::new(
            authorization,
            may.authorization_always_allow_paths.clone(),
            may.authorization_webhook_cache_authorized_ttl,
            may.authorization_webhook_cache_unauthorized_ttl,
        );
        Ok(Guard { authenticator, authorizer })
    }

    /// Reads the published authorities that the options do not configure.
    async fn look_up_trust(&self, tls: &Arc<LiveTls>, authenticator: &Arc<Authenticator>) -> Result<()> {
        let args = &self.args.authentication;
        let wanted = NeededTrust {
            client_authorities: args.client_ca_file.is_none(),
            front_proxies: args.requestheader_client_ca_file.is_none(),
        };
        let Some(api) = authenticator.api.clone() else { return Ok(()) };
        if args.authentication_skip_lookup || !(wanted.client_authorities || wanted.front_proxies) {
            return Ok(());
        }
        let tolerates = args.authentication_tolerate_lookup_failure.unwrap_or(self.kind.tolerates_lookup_failure);
        authentication::look_up(api, wanted, tls, &authenticator.headers, tolerates).await.map_err(anyhow::Error::msg)
    }

    /// Waits until the process receives a signal to end.
    pub fn termination_signal(&self) -> impl Future<Output = ()> + use<> {
        let mut stopping = self.stopping.subscribe();
        async move { drop(stopping.wait_for(|stopping| *stopping).await) }
    }

    /// Runs `work` until the process [receives a signal to end](Self::termination_signal). If leader election is on,
    /// `work` runs only while this process leads. After the signal, the work may take the time `patience` to end by
    /// itself. If this function returns an error, the process must end at once.
    pub async fn run_while_leading<T>(
        &self,
        settings: &ElectionSettings,
        kubeconfig: Option<&Path>,
        rate: Rate,
        patience: Duration,
        work: impl Future<Output = Result<T>>,
    ) -> Result<Option<T>> {
        let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        let stop = async {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            self.stopping.send_replace(true);
            tracing::info!("requested to terminate, exiting");
            if !settings.leader_elect || self.standing.leads() {
                tokio::time::sleep(patience).await;
            }
        };
        if !settings.leader_elect {
            return tokio::select! {
                () = stop => Ok(None),
                done = work => done.map(Some),
            };
        }
        // The renewals of the lease have a client of their own, so that they do not wait for other requests.
        let api = self.connect(kubeconfig, self.args.client.master.as_deref(), "/leader-election", rate).await?;
        let election = Election {
            api: Arc::new(api),
            form: settings.resource_lock.parse::<LockKind>().map_err(|why| anyhow!(why))?,
            namespace: settings.resource_namespace.clone(),
            name: settings.resource_name.clone(),
            terms: settings.terms,
            identity: identity(),
            component: self.kind.name.to_owned(),
            metrics: self.paths.metrics.clone(),
            standing: self.standing.clone(),
        };
        match election.lead(work, stop).await {
            ElectionOutcome::Done(done) => done.map(Some),
            ElectionOutcome::Stopped => Ok(None),
            ElectionOutcome::Lost => Err(anyhow!("leaderelection lost")),
        }
    }
}

/// The name that Go gives to a machine architecture.
fn go_name(machine: &str) -> &str {
    match machine {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn listen(address: IpAddr, port: u16, shared: bool) -> Result<TcpListener> {
    let listen = || {
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        // `reuseaddr` lets this process listen although connections of an earlier process may still be closing.
        socket.set_reuseaddr(true)?;
        socket.set_reuseport(shared)?;
        socket.bind((address, port).into())?;
        socket.listen(BACKLOG)
    };
    listen().with_context(|| format!("failed to create listener: failed to listen on {address}:{port}"))
}
