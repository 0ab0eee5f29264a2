//! The API server's options. Every option works; an option of a feature that Kubernetes has removed is refused
//! by name.

use crate::admission::AdmissionArgs;
use crate::audit::AuditArgs;
use crate::authentication::options::{AuthenticationArgs, CredentialArgs};
use crate::authorization::AuthorizationArgs;
use crate::clouds::CloudArgs;
use crate::cluster::{ClusterArgs, ServiceArgs};
use crate::disk::DiskArgs;
use crate::encryption::EncryptionArgs;
use crate::etcd_options::EtcdArgs;
use crate::kubelets::KubeletArgs;
use crate::offered::OfferArgs;
use crate::serving::ServingArgs;
use crate::settled::{self, Settled};
use anyhow::{Result, anyhow};
use clap::{ArgAction, Command};
use holdfast_chronicle::log::HistoryArgs;
use holdfast_component::gates::{ApiGates, GateArgs, Gates};
use holdfast_component::logging::LoggingArgs;
use holdfast_component::options::{DebuggingArgs, MetricsArgs};
use holdfast_component::serving::paths::version;
use holdfast_component::values::{parse_bool, parse_bytes, parse_duration};
use holdfast_core::kinds::offered::NEWEST;
use holdfast_transport_http::paths::API_VERSION;
use std::ffi::OsString;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Options of `holdfast apiserver`; `holdfast up` takes them too.
#[derive(clap::Args, Debug, Clone)]
#[group(skip)]
pub struct Args {
    /// Print the version of Kubernetes that the server is compatible with, and exit; with =raw, print all details. With
    /// =v1.35.0-NAME the server starts, and reports this version.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = parse_version, value_name = "FORM")]
    pub version: Option<String>,
    #[command(flatten)]
    pub storage: StorageArgs,
    #[command(flatten)]
    pub network: NetworkArgs,
    #[command(flatten)]
    pub credentials: CredentialArgs,
    #[command(flatten)]
    pub authorization: AuthorizationArgs,
    #[command(flatten)]
    pub admission: AdmissionArgs,

    #[command(flatten)]
    pub services: ServiceArgs,
    #[command(flatten)]
    pub objects: ObjectArgs,
    #[command(flatten)]
    pub limits: LimitArgs,
    #[command(flatten)]
    pub audit: AuditArgs,
    #[command(flatten)]
    pub history: HistoryArgs,
    #[command(flatten)]
    pub disk: DiskArgs,
    #[command(flatten)]
    pub encryption: EncryptionArgs,
    #[command(flatten)]
    pub authentication: AuthenticationArgs,
    #[command(flatten)]
    pub front_proxy: FrontProxyArgs,
    #[command(flatten)]
    pub kubelets: KubeletArgs,
    #[command(flatten)]
    pub offered: OfferArgs,
    #[command(flatten)]
    pub serving: ServingArgs,
    #[command(flatten)]
    pub cluster: ClusterArgs,
    #[command(flatten)]
    pub debugging: DebuggingArgs,
    #[command(flatten)]
    pub metrics: MetricsArgs,
    #[command(flatten)]
    pub gates: GateArgs,
    #[command(flatten)]
    pub cloud: CloudArgs,
    #[command(flatten)]
    pub settled: Settled<settled::ApiServer>,
    #[command(flatten)]
    pub logging: LoggingArgs,
}

impl Args {
    /// The output of `--version`, if it is given as a switch.
    pub fn version_text(&self) -> Option<String> {
        match self.version.as_deref()? {
            "true" => Some(format!("Kubernetes {API_VERSION}")),
            "raw" => Some(version(API_VERSION).to_string()),
            _ => None,
        }
    }

    /// The version that the server reports, if `--version` sets one.
    pub fn shown_version(&self) -> Option<String> {
        self.version.clone().filter(|version| version.starts_with('v'))
    }

    /// Every feature gate with its value for the emulated release.
    pub fn gates(&self) -> Result<Gates> {
        let release = self.offered.offer().map_or(NEWEST, |(offer, _)| offer.release);
        self.gates.gates_of(release).map_err(|why| anyhow!("--feature-gates: {why}"))
    }

    /// The gates that the API server reads.
    pub fn api_gates(&self) -> Result<ApiGates> {
        Ok(ApiGates::from(&self.gates()?))
    }
}

// Comments of options are texts of the help, and a doc comment of their struct would become the help of the whole
// command.

// Where objects are stored.
#[derive(clap::Args, Debug, Clone)]
#[group(skip)]
pub struct StorageArgs {
    /// Folder for the event log and, with `up`, for keys and certificates [default: ./holdfast-data].
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// URLs of etcd's members, http://HOST:PORT. Objects are stored in this etcd and shared by all servers that use it;
    /// the data folder keeps this server's copy of the events. The option may also have the URL of `holdfast etcd`,
    /// which envtest starts: then the log is in --data-dir, by default --cert-dir, or in memory if `holdfast etcd` has
    /// --unsafe-no-fsync.
    #[arg(long, value_delimiter = ',', value_name = "URL")]
    pub etcd_servers: Vec<String>,
    #[command(flatten)]
    pub etcd: EtcdArgs,
}

impl StorageArgs {
    pub fn data_dir(&self) -> &Path {
        self.data_dir.as_deref().unwrap_or(Path::new("./holdfast-data"))
    }
}

// Where clients reach the server, and the proxies through which it reaches other servers.
#[derive(clap::Args, Debug, Clone)]
#[group(skip)]
pub struct NetworkArgs {
    /// Address of the HTTPS port; 0.0.0.0 and :: mean all interfaces [default: 0.0.0.0, and 127.0.0.1 with up].
    #[arg(long)]
    pub bind_address: Option<IpAddr>,
    /// HTTPS port; 0 chooses a free port [default: 6443].
    #[arg(long)]
    pub secure_port: Option<u16>,
    /// Address at which the cluster reaches the server [default: the bind address].
    #[arg(long)]
    pub advertise_address: Option<IpAddr>,
    #[command(flatten)]
    pub tls: TlsArgs,
    /// An EgressSelectorConfiguration: the proxies through which the server connects to nodes, webhooks, issuers and
    /// aggregated servers.
    #[arg(long, value_name = "FILE")]
    pub egress_selector_config_file: Option<PathBuf>,
    /// Maximum number of open HTTP/2 streams on one connection; 0 for the server's default.
    #[arg(long, default_value_t = 0)]
    pub http2_max_streams_per_connection: u32,
}

impl NetworkArgs {
    pub fn port(&self) -> u16 {
        self.secure_port.unwrap_or(6443)
    }
}

/// The server's certificates, and the TLS versions, cipher suites and key exchange groups that it accepts.
#[derive(clap::Args, Debug, Clone)]
#[group(skip)]
pub struct TlsArgs {
    /// Folder for TLS certificates; not used if certificate files are given. A certificate and key that the folder
    /// already has are used.
    #[arg(long, default_value = "/var/run/kubernetes", value_name = "DIR")]
    pub cert_dir: PathBuf,
    /// Certificate of the server, followed by its intermediate certificates, in PEM.
    #[arg(long, requires = "tls_private_key_file", value_name = "FILE")]
    pub tls_cert_file: Option<PathBuf>,
    /// Private key of the certificate in --tls-cert-file.
    #[arg(long, requires = "tls_cert_file", value_name = "FILE")]
    pub tls_private_key_file: Option<PathBuf>,
    /// Cipher suites, by their Go names [default: all safe ones].
    #[arg(long, value_delimiter = ',')]
    pub tls_cipher_suites: Vec<String>,
    /// Key exchange groups, by their Go numbers: 23 is P-256, 24 P-384, 29 X25519 [default: all safe ones].
    #[arg(long, value_delimiter = ',', value_name = "NUMBERS")]
    pub tls_curve_preferences: Vec<u16>,
    /// Oldest TLS version to accept: VersionTLS10, VersionTLS11, VersionTLS12 or VersionTLS13. The server never uses a
    /// version below TLS 1.2.
    #[arg(long, default_value = "VersionTLS12")]
    pub tls_min_version: String,
    /// Certificate and key for some domains (SNI): `cert.pem,key.pem[:*.example.com,example.com]`. Repeatable.
    #[arg(long, value_name = "CERT,KEY[:DOMAINS]")]
    pub tls_sni_cert_key: Vec<String>,
}

impl TlsArgs {
    /// The files of the server's certificate and its key, if options name them.
    pub fn pair(&self) -> Option<(&Path, &Path)> {
        self.tls_cert_file.as_deref().zip(self.tls_private_key_file.as_deref())
    }

    /// Whether options name files of certificates, which may be replaced while the server runs.
    pub fn names_files(&self) -> bool {
        self.tls_cert_file.is_some() || !self.tls_sni_cert_key.is_empty()
    }
}

// How the server handles the objects that clients write.
#[derive(clap::Args, Debug, Clone)]
#[group(skip)]
pub struct ObjectArgs {
    /// Allow privileged containers [default: false, and true with up].
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set, value_parser = parse_bool, value_name = "BOOL")]
    pub allow_privileged: Option<bool>,

    /// How long an Event is kept after its last change; 0 keeps it for ever.
    #[arg(long, default_value = "1h0m0s", value_parser = parse_duration, value_name = "DURATION")]
    pub event_ttl: Duration,
    /// How long the server waits before it removes the content of a deleted namespace, so that the client that deleted
    /// the namespace can finalize it first. The wait ends when a client watches this namespace by name [default: 0s,
    /// and 2s for envtest].
    #[arg(long, value_parser = parse_duration, value_name = "DURATION")]
    pub namespace_grace_period: Option<Duration>,

    /// Maximum total size of the objects in one namespace. The cluster's own namespaces are exempt, and a ResourceQuota
    /// for holdfast.dev/bytes sets another limit for its namespace [default: no limit].
    #[arg(long, value_parser = crate::values::parse_bytes, value_name = "BYTES")]
    pub namespace_bytes: Option<u64>,

    /// How many objects of a collection are deleted at the same time; below 1 means 1 [default: 256].
    #[arg(long, allow_hyphen_values = true, value_name = "COUNT")]
    pub delete_collection_workers: Option<i64>,
}

// The limits of requests in progress, of the memory for reads, and of forks in memory.
#[derive(clap::Args, Debug, Clone)]
#[group(skip)]
pub struct LimitArgs {
    /// Queue requests by flow schemas and priority levels, which share the sum of both in-flight limits as seats; with
    /// false, a request over its limit is refused.
    #[arg(long, alias = "enable-inflight-quota-handler", default_value_t = true, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set, value_parser = parse_bool)]
    pub enable_priority_and_fairness: bool,
    /// Maximum number of reading requests in progress, not counting watches; 0 means no limit, if
    /// --enable-priority-and-fairness is false.
    #[arg(long, default_value_t = 400)]
    pub max_requests_inflight: u32,
    /// Maximum number of writing requests in progress; 0 means no limit, if --enable-priority-and-fairness
    /// is false.
    #[arg(long, default_value_t = 200)]
    pub max_mutating_requests_inflight: u32,

    /// Maximum memory for reads: states of the past, further pages of lists, and answers that clients have not received
    /// yet. One user gets at most half of it, and less while other users need some [default: an eighth of the machine's
    /// memory, 512Mi at most].
    #[arg(long, value_parser = parse_bytes, value_name = "SIZE")]
    pub read_memory: Option<u64>,

    /// Maximum number of forks in memory, each served below /forks/NAME; one user may have half of them, and 0 turns
    /// them off [default: 0, and 1024 with up].
    #[arg(long, value_name = "COUNT")]
    pub forks_max: Option<u32>,
}

impl LimitArgs {
    /// Whether priority and fairness is on.
    pub fn is_fair(&self, gates: &ApiGates) -> bool {
        gates.priority_and_fairness && self.enable_priority_and_fairness
    }
}

/// Other servers that answer for parts of the API, and proxies in front of this one.
#[derive(clap::Args, Debug, Clone)]
pub struct FrontProxyArgs {
    /// Client certificate with which this server authenticates to aggregated servers, on behalf of its users.
    #[arg(long, requires = "proxy_client_key_file", value_name = "FILE")]
    pub proxy_client_cert_file: Option<PathBuf>,
    /// Private key of the certificate in --proxy-client-cert-file.
    #[arg(long, requires = "proxy_client_cert_file", value_name = "FILE")]
    pub proxy_client_key_file: Option<PathBuf>,
    /// Send requests for aggregated servers to the endpoints of their Services instead of the Services' addresses.
    #[arg(long, default_value_t = false, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set, value_parser = parse_bool)]
    pub enable_aggregator_routing: bool,
    /// Do not pass redirects of aggregated servers on to clients.
    #[arg(long, default_value_t = true, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set, value_parser = parse_bool)]
    pub aggregator_reject_forwarding_redirect: bool,

    /// CA certificates for authenticating proxies: a client with such a certificate names the user in headers.
    #[arg(long, value_name = "FILE")]
    pub requestheader_client_ca_file: Option<PathBuf>,
    /// Common names that are allowed in the certificate of an authenticating proxy [default: any].
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub requestheader_allowed_names: Vec<String>,
    /// Headers in which an authenticating proxy names the user, such as X-Remote-User.
    #[arg(long, value_delimiter = ',', value_name = "HEADERS")]
    pub requestheader_username_headers: Vec<String>,
    /// Headers in which an authenticating proxy sends the user's uid, such as X-Remote-Uid.
    #[arg(long, value_delimiter = ',', value_name = "HEADERS")]
    pub requestheader_uid_headers: Vec<String>,
    /// Headers in which an authenticating proxy sends the user's groups, such as X-Remote-Group.
    #[arg(long, value_delimiter = ',', value_name = "HEADERS")]
    pub requestheader_group_headers: Vec<String>,
    /// Prefixes of the headers in which an authenticating proxy sends more about the user, such as X-Remote-Extra-.
    #[arg(long, value_delimiter = ',', value_name = "PREFIXES")]
    pub requestheader_extra_headers_prefix: Vec<String>,
}

/// `true`, `false`, `raw`, or a version with the same numbers as the version of this server.
fn parse_version(text: &str) -> Result<String, String> {
    if ["true", "false", "raw"].contains(&text) {
        return Ok(text.into());
    }
    let rest = text.strip_prefix(API_VERSION);
    let is_custom = |rest: &str| {
        let marks = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '+');
        rest.is_empty() || rest.starts_with(['-', '+']) && rest.len() > 1 && rest.chars().all(marks)
    };
    match rest {
        Some(rest) if is_custom(rest) => Ok(text.into()),
        Some(_) => Err(format!("{text:?} is not a semantic version")),
        None => {
            Err(format!("{text:?} must be true, false, raw, or match major/minor/patch of version {API_VERSION:?}"))
        }
    }
}

/// Rewrites the names of options to the form that clap expects: dashes for underscores, real names for placeholders.
pub fn normalized(arguments: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut rest = false;
    let normalize = |argument: OsString| {
        let Some(text) = argument.to_str() else { return argument };
        rest |= text == "--";
        if rest || !text.starts_with("--") {
            return argument;
        }
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (text, None),
        };
        let name = real(name);
        value.map_or_else(|| name.clone(), |value| format!("{name}={value}")).into()
    };
    arguments.map(normalize).collect()
}

/// Removes path and text options with an empty value, because scripts pass empty values to mean the default.
pub fn without_empty(arguments: Vec<OsString>, command: &Command) -> Vec<OsString> {
    let is_optional = |name: &str| {
        let arg = command.get_arguments().find(|arg| arg.get_long() == Some(name));
        arg.is_some_and(crate::arguments::is_optional)
    };
    let mut kept = Vec::with_capacity(arguments.len());
    let mut arguments = arguments.into_iter().peekable();
    while let Some(argument) = arguments.next() {
        if argument == "--" {
            kept.push(argument);
            kept.extend(arguments);
            break;
        }
        let option = argument.to_str().and_then(|text| text.strip_prefix("--")).unwrap_or_default();
        match option.split_once('=') {
            Some((name, "")) if is_optional(name) => {}
            None if arguments.peek().is_some_and(|next| next.is_empty()) && is_optional(option) => _ = arguments.next(),
            _ => kept.push(argument),
        }
    }
    kept
}

/// Replaces placeholders in option names, such as `<cloud>`, by the real names.
fn real(name: &str) -> String {
    PLACEHOLDERS.iter().fold(name.replace('_', "-"), |name, (placeholder, real)| name.replace(placeholder, real))
}

const PLACEHOLDERS: [(&str, &str); 2] = [("<vendor>-", "kubernetes-"), ("<cloud>", "gce")];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_this_one_with_a_name() {
        for good in ["true", "raw", "v1.35.0", "v1.35.0-own.1", "v1.35.0-own+build.7"] {
            assert_eq!(parse_version(good).as_deref(), Ok(good));
        }
        for bad in ["v1.34.0", "v1.35", "v1.35.01", "v1.35.0-", "v1.35.0-a b", "yes", ""] {
            assert!(parse_version(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_is_given_as_empty_is_not_given() {
        use clap::{CommandFactory, Parser};
        #[derive(Parser)]
        struct Cli {
            #[command(flatten)]
            args: Args,
        }
        let given = [
            "--token-auth-file=",
            "--authorization-mode=",
            "--runtime-config",
            "",
            "--v=",
            "--service-account-issuer=",
            "--",
            "--token-auth-file=",
        ];
        let kept = without_empty(given.map(OsString::from).into(), &Cli::command());
        assert_eq!(kept, ["--authorization-mode=", "--v=", "--service-account-issuer=", "--", "--token-auth-file="]);
    }

    #[test]
    fn names_may_be_written_with_underscores() {
        let vendor = "--<vendor>-service-node-port=1";
        let given = ["holdfast", "up", "--data_dir=/a_b", vendor, "--", "--x_y"].map(OsString::from);
        let real = "--kubernetes-service-node-port=1";
        let expected = ["holdfast", "up", "--data-dir=/a_b", real, "--", "--x_y"].map(OsString::from);
        assert_eq!(normalized(given.into_iter()), expected);
    }
}
