//! Options of connections to nodes: the authorities that this server trusts, the certificate that it shows, and the
//! addresses of kubelets.

use crate::limits;
use anyhow::{Result, anyhow};
use clap::ArgAction;
use holdfast_component::gates::ApiGates;
use holdfast_component::values::{parse_bool, parse_duration};
use holdfast_outbound::kubelets::{ADDRESS_TYPES, Kubelets, Settings};
use holdfast_outbound::trust::ServerVerifier;
use holdfast_outbound::{Dialer, Identity, TlsTrust};
use holdfast_transport_http::connect::{Connections, KubeletGates};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

#[derive(clap::Args, Debug, Clone)]
#[group(skip)]
pub struct KubeletArgs {
    /// CA certificates for kubelets' serving certificates. The server reloads the file when it changes [default:
    /// certificates are not verified].
    #[arg(long, alias = "nodeagent-certificate-authority", value_name = "FILE")]
    pub kubelet_certificate_authority: Option<PathBuf>,
    /// Client certificate for kubelets [default: none; with up, a certificate of the cluster's own CA].
    #[arg(long, alias = "nodeagent-client-certificate", requires = "kubelet_client_key", value_name = "FILE")]
    pub kubelet_client_certificate: Option<PathBuf>,
    /// Private key of the certificate in --kubelet-client-certificate.
    #[arg(long, alias = "nodeagent-client-key", requires = "kubelet_client_certificate", value_name = "FILE")]
    pub kubelet_client_key: Option<PathBuf>,
    /// Use TLS for connections to kubelets.
    #[arg(long, alias = "nodeagent-https", default_value_t = true, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set, value_parser = parse_bool)]
    pub kubelet_https: bool,
    /// Port of a kubelet whose Node does not report a port.
    #[arg(long, alias = "nodeagent-port", default_value_t = 10250, value_parser = clap::value_parser!(u16).range(1..))]
    pub kubelet_port: u16,
    /// The kubelets' old port without authentication. No effect: the server never connects to it.
    #[arg(long, alias = "nodeagent-read-only-port", default_value_t = 10255, value_name = "PORT")]
    pub kubelet_read_only_port: u16,
    /// Types of node addresses to connect to, in order of preference.
    #[arg(long, alias = "nodeagent-preferred-address-types", value_delimiter = ',', default_values_t = ADDRESS_TYPES.map(str::to_owned), value_name = "TYPES")]
    pub kubelet_preferred_address_types: Vec<String>,
    /// Timeout for connecting to a kubelet.
    #[arg(long, alias = "nodeagent-timeout", default_value = "5s", value_parser = parse_duration, value_name = "DURATION")]
    pub kubelet_timeout: Duration,
    /// Maximum number of bytes a second, each way, of one connection for exec, attach, port forwarding or an upgraded
    /// proxy; 0 for no limit.
    #[arg(long, default_value_t = 0, value_name = "BYTES")]
    pub max_connection_bytes_per_sec: u64,
}

impl KubeletArgs {
    /// All faults of the options.
    pub fn faults(&self) -> Vec<String> {
        let authorities = self.kubelet_certificate_authority.as_deref().and_then(|file| trust(file).err());
        let identity = self.identity().and_then(Result::err);
        let timeout = self.kubelet_timeout.is_zero().then(|| anyhow!("--kubelet-timeout: must be greater than 0"));
        [authorities, identity, timeout].into_iter().flatten().map(|why| format!("{why:#}")).collect()
    }

    fn identity(&self) -> Option<Result<Identity>> {
        let (certificate, key) = (self.kubelet_client_certificate.as_ref()?, self.kubelet_client_key.as_ref()?);
        let told = |why| anyhow!("--kubelet-client-certificate={}: {why}", certificate.display());
        Some(Identity::of_files(certificate, key).map_err(told))
    }
}

fn trust(file: &Path) -> Result<()> {
    let told = |why: String| anyhow!("--kubelet-certificate-authority={}: {why}", file.display());
    let authorities = std::fs::read(file).map_err(|error| told(error.to_string()))?;
    if authorities.is_empty() {
        return Err(told("the file is empty".to_owned()));
    }
    let trust = TlsTrust { authorities, insecure: false, identified: true };
    ServerVerifier::new(&trust).map(|_| ()).map_err(told)
}

/// The connections to kubelets and to Services in the cluster, which `dialer` makes. `own_port` is the port on which
/// this server listens.
pub fn connections(options: &KubeletArgs, dialer: Dialer, gates: &ApiGates, own_port: u16) -> Result<Connections> {
    let settings = Settings {
        preferred: options.kubelet_preferred_address_types.clone(),
        port: options.kubelet_port,
        is_secure: options.kubelet_https,
        timeout: options.kubelet_timeout,
        authorities: options.kubelet_certificate_authority.clone(),
        identity: options.identity().transpose()?.map(Arc::new),
    };
    let kubelets = Kubelets::new(settings, dialer, Arc::default());
    kubelets.note_own_port(own_port);
    let bytes_a_second = Some(options.max_connection_bytes_per_sec).filter(|bytes| *bytes > 0);
    // The limit on clients' connections leaves a part of the allowed open files unused, and connections to nodes may
    // use most of this part.
    let most = (limits::files() / 10).clamp(64, 16_384);
    let gates = KubeletGates {
        translates: gates.translated_websockets,
        tunnels: gates.tunnelled_ports,
        passes_on: gates.websockets_to_kubelets,
        may_trust_any: gates.insecure_backends,
    };
    Ok(Connections::new(Arc::new(kubelets), bytes_a_second, most).obeying(gates))
}
