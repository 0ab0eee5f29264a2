//! `holdfast up`: a whole cluster on one machine, or with etcd on several machines, secure from the start.

use crate::apiserver::{Lasting, Server, Signals, check, server_addresses, server_names};
use crate::clouds::ChosenCloud;
use crate::components::{self, Components};
use crate::host::host_name;
use crate::pki::Pki;
use crate::shared_keys::SharedKeys;
use crate::{flags, on_etcd, pki, tls};
use anyhow::{Context, Result, anyhow, ensure};
use holdfast_component::files::{Readers, WriteMode, keep_others_out};
use holdfast_component::logging;
use holdfast_component::options::joined;
use holdfast_core::authz::chain::Mode;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

/// Admission plug-ins that are off if their controllers do not run. Then nothing creates the default ServiceAccounts
/// that pods would need, and nothing removes the finalizer that protects storage in use.
const WITHOUT_CONTROLLERS: &[&str] = &["ServiceAccount", "StorageObjectInUseProtection"];
/// The default limit of forks in memory.
const FORKS_MAX: u32 = 1024;

#[derive(clap::Args)]
#[group(skip)]
pub struct Args {
    #[command(flatten)]
    pub server: flags::Args,
    #[command(flatten)]
    pub components: components::Args,
    /// The same as --secure-port.
    #[arg(long)]
    pub port: Option<u16>,
    /// File for the administrator's kubeconfig [default: DIR/admin.kubeconfig].
    #[arg(long, value_name = "OUTPUT")]
    pub kubeconfig: Option<PathBuf>,
}

impl Args {
    /// All faults of the server's options that parsing them does not show.
    pub fn faults(&self) -> Vec<String> {
        let mut faults = self.server.faults();
        faults.extend(self.components.election.faults());
        faults.extend(self.cloud().err().map(|why| why.to_string()));
        faults
    }
}

impl Args {
    /// The chosen cloud; `None` if the options name none.
    fn cloud(&self) -> Result<Option<ChosenCloud>> {
        let (provider, config) = (&self.server.cloud.cloud_provider, &self.server.cloud.cloud_config);
        let provider = provider.as_deref().unwrap_or_default();
        match (provider, config.as_deref().unwrap_or_default()) {
            ("", "") => Ok(None),
            ("", _) => Err(anyhow!("--cloud-config needs --cloud-provider, the name of the cloud")),
            (provider, config) => {
                let named = ChosenCloud::parse(provider, config)?;
                named.check()?;
                Ok(Some(named))
            }
        }
    }
}

pub fn run(args: Args, flags: Vec<(String, String)>) -> Result<()> {
    if let Some(text) = args.server.version_text() {
        println!("{text}");
        return Ok(());
    }
    let _log = logging::init(&args.server.logging).map_err(|why| anyhow!(why))?;
    keep_others_out();
    let (server, admin) = prepare(args, flags, Lasting::Kept, "*")?;
    server.serve(async |address, signals: &mut Signals| {
        let url = admin.welcome(address)?;
        println!("ready {url} kubeconfig {}", admin.kubeconfig.display());
        signals.next().await;
        Ok(())
    })
}

/// The administrator's access to a prepared server.
pub struct Admin {
    pub kubeconfig: PathBuf,
    bind: IpAddr,
    pki: Pki,
    writing: WriteMode,
}

impl Admin {
    /// Writes the kubeconfig; returns the server's URL.
    pub fn welcome(&self, address: SocketAddr) -> Result<String> {
        let host = if self.bind.is_unspecified() { IpAddr::V4(Ipv4Addr::LOCALHOST) } else { self.bind };
        let url = format!("https://{}", SocketAddr::new(host, address.port()));
        match self.writing.file(&self.kubeconfig, &pki::kubeconfig(&self.pki, &url)?, Readers::Owner) {
            Err(error) if error.kind() == std::io::ErrorKind::StorageFull => {
                tracing::error!(%error, "the kubeconfig is left as it was");
            }
            written => written?,
        }
        Ok(url)
    }
}

/// Creates the missing certificates of a data folder, and a server from the options. `controllers` run if no option
/// names any.
pub fn prepare(
    args: Args,
    flags: Vec<(String, String)>,
    lasting: Lasting,
    controllers: &str,
) -> Result<(Server, Admin)> {
    let cloud = args.cloud()?;
    let Args { mut server, components, port, kubeconfig } = args;
    server.network.secure_port = port.or(server.network.secure_port);
    // Programs such as network plug-ins run in this cluster and need privileged pods, so privileged pods are allowed.
    server.objects.allow_privileged.get_or_insert(true);
    check(&server)?;
    let faults = components.election.faults();
    ensure!(faults.is_empty(), joined(&faults));
    // Check the log before anything is written to the folder.
    holdfast_storage_rocks::check_whole(server.storage.data_dir())?;
    let bind = server.network.bind_address.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let writing = match lasting {
        Lasting::Kept => WriteMode::Synced,
        Lasting::Fleeting | Lasting::InMemory => WriteMode::Unsynced,
    };
    let connected = on_etcd::connect(&server)?;
    let pki = Pki::of(server.storage.data_dir());
    let is_own_key = server.credentials.service_account_signing_key_file.is_none();
    let shared_keys =
        connected.as_ref().map(|connected| SharedKeys::new(connected.cluster(), &pki, host_name(), is_own_key));
    // The keys are checked before `up` makes any key file, because this server must not make keys that differ from the
    // keys of the cluster.
    shared_keys.as_ref().map_or(Ok(()), SharedKeys::check).with_context(|| on_etcd::named(&server))?;
    pki::ensure(&pki, server.storage.data_dir(), &server_names(), &server_addresses(&server, bind), writing)?;
    if let Some(shared_keys) = shared_keys.filter(|_| lasting == Lasting::Kept) {
        shared_keys.agree().with_context(|| on_etcd::named(&server))?;
    }
    server.credentials.client_ca_file.get_or_insert(pki.authority.clone());
    let gates = server.gates()?;
    let token_key = server.credentials.service_account_signing_key_file.get_or_insert(pki.service_account_key.clone());
    let components = Components::new(&components, &gates, controllers, &pki, token_key, cloud, connected.is_some())?;
    if server.kubelets.kubelet_client_certificate.is_none() {
        server.kubelets.kubelet_client_certificate = Some(pki.kubelet_client_certificate.clone());
        server.kubelets.kubelet_client_key = Some(pki.kubelet_client_key.clone());
    }
    let knows_uids = server.api_gates()?.request_header_uid;
    trust_front_proxy(&mut server.front_proxy, &pki, knows_uids);
    let certificate = server.network.tls.tls_cert_file.clone().unwrap_or(pki.server_certificate.clone());
    let key = server.network.tls.tls_private_key_file.clone().unwrap_or(pki.server_key.clone());
    let tls = tls::configure(&server, &certificate, &key)?;
    let kubeconfig = kubeconfig.unwrap_or_else(|| server.storage.data_dir().join("admin.kubeconfig"));
    let kubeconfig = std::path::absolute(&kubeconfig).unwrap_or(kubeconfig);
    let server = Server {
        args: server,
        bind,
        tls,
        default_mode: Mode::Rbac,
        default_forks_max: FORKS_MAX,
        lasting,
        plugins_left_out: if components.make_accounts() { &[] } else { WITHOUT_CONTROLLERS },
        components,
        flags,
        has_identity: false,
        connected,
    };
    Ok((server, Admin { kubeconfig, bind, pki, writing }))
}

/// Makes this server the front proxy that other servers trust, unless options name another front proxy.
fn trust_front_proxy(options: &mut flags::FrontProxyArgs, pki: &Pki, knows_uids: bool) {
    if options.proxy_client_cert_file.is_none() {
        options.proxy_client_cert_file = Some(pki.front_proxy_certificate.clone());
        options.proxy_client_key_file = Some(pki.front_proxy_key.clone());
    }
    if options.requestheader_client_ca_file.is_some() {
        return;
    }
    options.requestheader_client_ca_file = Some(pki.front_proxy_authority.clone());
    let unless_given = |names: &mut Vec<String>, name: &str| {
        if names.is_empty() {
            names.push(name.to_owned());
        }
    };
    unless_given(&mut options.requestheader_allowed_names, pki::FRONT_PROXY);
    unless_given(&mut options.requestheader_username_headers, "X-Remote-User");
    if knows_uids {
        unless_given(&mut options.requestheader_uid_headers, "X-Remote-Uid");
    }
    unless_given(&mut options.requestheader_group_headers, "X-Remote-Group");
    unless_given(&mut options.requestheader_extra_headers_prefix, "X-Remote-Extra-");
}
