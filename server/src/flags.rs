//! The API server's options. Every option works; an option of what Kubernetes has removed is refused by name.

use crate::admission::AdmissionArgs;
use crate::audit::AuditArgs;
use crate::authentication::options::AuthenticationArgs;
use crate::authorization::AuthorizationArgs;
use crate::cluster::ClusterArgs;
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
use holdfast_core::kinds::core::ServiceRanges;
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
    /// Print the version and end: of what it is compatible with, or, with =raw, all that is known of it. With
    /// =v1.35.0-NAME the server says that it is this version.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = parse_version, value_name = "FORM")]
    pub version: Option<String>,
    /// Folder of the event log and, with `up`, of keys and certificates [default: ./holdfast-data].
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Addresses of etcd's members, http://HOST:PORT: the objects are there, for all servers that are given the same, and
    /// the data folder has this server's copy of their events. The address of `holdfast etcd`, for envtest, has the log in
    /// the folder of TLS certificates, or in memory.
    #[arg(long, value_delimiter = ',', value_name = "URL")]
    pub etcd_servers: Vec<String>,
    #[command(flatten)]
    pub etcd: EtcdArgs,

    /// Address of the secure port; 0.0.0.0 and :: mean all interfaces [default: 0.0.0.0, and 127.0.0.1 with up].
    #[arg(long)]
    pub bind_address: Option<IpAddr>,
    /// HTTPS port; 0 takes a free one [default: 6443].
    #[arg(long)]
    pub secure_port: Option<u16>,
    /// Address under which the cluster reaches the server [default: the bind address].
    #[arg(long)]
    pub advertise_address: Option<IpAddr>,
    /// Folder of TLS certificates, ignored when files are given. A pair that is there is served as it is.
    #[arg(long, default_value = "/var/run/kubernetes", value_name = "DIR")]
    pub cert_dir: PathBuf,
    /// Certificate of the server, with its authorities behind it.
    #[arg(long, requires = "tls_private_key_file", value_name = "FILE")]
    pub tls_cert_file: Option<PathBuf>,
    /// Private key of that certificate.
    #[arg(long, requires = "tls_cert_file", value_name = "FILE")]
    pub tls_private_key_file: Option<PathBuf>,
    /// Cipher suites by their names in Go [default: all that are safe].
    #[arg(long, value_delimiter = ',')]
    pub tls_cipher_suites: Vec<String>,
    /// Groups of key exchanges by Go's numbers: 23 is P-256, 24 P-384, 29 X25519 [default: all that are safe].
    #[arg(long, value_delimiter = ',', value_name = "NUMBERS")]
    pub tls_curve_preferences: Vec<u16>,
    /// VersionTLS10, VersionTLS11, VersionTLS12 or VersionTLS13. Nothing below TLS 1.2 is ever spoken.
    #[arg(long, default_value = "VersionTLS12")]
    pub tls_min_version: String,
    /// Certificate, key, and the domains they are for: `cert.pem,key.pem[:*.example.com,example.com]`. Repeatable.
    #[arg(long, value_name = "CERT,KEY[:DOMAINS]")]
    pub tls_sni_cert_key: Vec<String>,
    /// An EgressSelectorConfiguration: by way of which proxies nodes, webhooks, issuers and aggregated servers are
    /// reached.
    #[arg(long, value_name = "FILE")]
    pub egress_selector_config_file: Option<PathBuf>,
    /// Streams that a client may have open on one connection; 0 takes the default.
    #[arg(long, default_value_t = 0)]
    pub http2_max_streams_per_connection: u32,

    /// Client certificates that these authorities signed are users: the common name, organizations as groups.
    #[arg(long, value_name = "FILE")]
    pub client_ca_file: Option<PathBuf>,
    /// Requests without credentials are system:anonymous [default: true].
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set, value_parser = parse_bool, value_name = "BOOL")]
    pub anonymous_auth: Option<bool>,
    /// Lines of `token,user,uid,"group,group"`.
    #[arg(long, value_name = "FILE")]
    pub token_auth_file: Option<PathBuf>,
    /// PEM keys that verify service account tokens. Repeatable.
    #[arg(long, value_name = "FILE")]
    pub service_account_key_file: Vec<PathBuf>,
    /// PEM private key that signs service account tokens.
    #[arg(long, value_name = "FILE")]
    pub service_account_signing_key_file: Option<PathBuf>,
    /// Issuer of service account tokens. The first signs; all are accepted.
    #[arg(long, value_name = "URL")]
    pub service_account_issuer: Vec<String>,
    /// Audiences that tokens must be for [default: the issuer].
    #[arg(long, alias = "service-account-api-audiences", value_delimiter = ',')]
    pub api_audiences: Vec<String>,
    #[command(flatten)]
    pub authorization: AuthorizationArgs,
    #[command(flatten)]
    pub admission: AdmissionArgs,

    /// Addresses that services get: a range, or one of each family, the one first that services are of which do not say.
    #[arg(long, default_value = "10.0.0.0/24", value_name = "CIDR[,CIDR]")]
    pub service_cluster_ip_range: ServiceRanges,
    /// Ports that services of type NodePort get.
    #[arg(long, default_value = "30000-32767", value_parser = parse_ports, value_name = "FIRST-LAST")]
    pub service_node_port_range: (u16, u16),

    /// Allow privileged containers [default: false, and true with up].
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set, value_parser = parse_bool, value_name = "BOOL")]
    pub allow_privileged: Option<bool>,

    /// How long Events are kept after their last change; 0 for ever.
    #[arg(long, default_value = "1h0m0s", value_parser = parse_duration, value_name = "DURATION")]
    pub event_ttl: Duration,
    /// How long a namespace is left to whoever deleted it before its content is removed, unless somebody waits for its
    /// end [default: 0s, and 2s with --etcd-servers].
    #[arg(long, value_parser = parse_duration, value_name = "DURATION")]
    pub namespace_grace_period: Option<Duration>,

    /// How many bytes the objects of one namespace may be, but for namespaces of the cluster's own; a ResourceQuota that
    /// limits holdfast.dev/bytes says otherwise for its namespace [default: any number].
    #[arg(long, value_parser = crate::values::parse_bytes, value_name = "BYTES")]
    pub namespace_bytes: Option<u64>,

    /// Objects of a collection that are deleted at once; below 1 means 1 [default: 256].
    #[arg(long, allow_hyphen_values = true, value_name = "COUNT")]
    pub delete_collection_workers: Option<i64>,

    /// Requests wait for their turn by flow schemas and priority levels, and both limits together are the seats that
    /// levels share; false: a request over its limit is refused.
    #[arg(long, alias = "enable-inflight-quota-handler", default_value_t = true, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set, value_parser = parse_bool)]
    pub enable_priority_and_fairness: bool,
    /// Reading requests in progress at most; without priority and fairness 0 means no limit. Watches do not count.
    #[arg(long, default_value_t = 400)]
    pub max_requests_inflight: u32,
    /// Writing requests in progress at most; without priority and fairness 0 means no limit.
    #[arg(long, default_value_t = 200)]
    pub max_mutating_requests_inflight: u32,

    /// Memory that reads may make the server hold: the past, pages to come, answers that nobody has read yet; one user has
    /// at most half of it, and less when others want theirs [default: an eighth of the machine's memory, 512Mi at most].
    #[arg(long, value_parser = parse_bytes, value_name = "SIZE")]
    pub read_memory: Option<u64>,

    /// Forks in memory at most, each served below /forks/NAME; one user has at most half of them, and 0 allows none
    /// [default: 0, and 1024 with up].
    #[arg(long, value_name = "COUNT")]
    pub forks_max: Option<u32>,

    #[command(flatten)]
    pub audit: AuditArgs,
    #[command(flatten)]
    pub history: HistoryArgs,
    /// Room that a file in the data folder keeps aside so that, when the disk is full, deletes go through and the server
    /// starts: at most a quarter of what is free; 0 for none. With it most writes are refused, and the oldest history is
    /// let go, once less than 32 MiB, or an eighth of a small disk, are free.
    #[arg(long, default_value = "64Mi", value_parser = parse_bytes, value_name = "SIZE")]
    pub disk_reserve: u64,
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
    /// The cloud that keeps this cluster's load balancers, nodes and routes, with `up` alone: simulated, or external; see
    /// docs/CLOUDS.md. An API server by itself asks none, as in Kubernetes since 1.31, and takes any name.
    #[arg(long, hide = true, value_name = "NAME")]
    pub cloud_provider: Option<String>,
    /// With `up`: the file that describes that cloud, or says where its provider listens. An API server by itself reads
    /// none.
    #[arg(long, hide = true, value_name = "FILE")]
    pub cloud_config: Option<String>,
    #[command(flatten)]
    pub settled: Settled<settled::ApiServer>,
    #[command(flatten)]
    pub logging: LoggingArgs,
}

impl Args {
    pub fn data_dir(&self) -> &Path {
        self.data_dir.as_deref().unwrap_or(Path::new("./holdfast-data"))
    }

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

    pub fn port(&self) -> u16 {
        self.secure_port.unwrap_or(6443)
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

    /// Whether priority and fairness is on.
    pub fn is_fair(&self, gates: &ApiGates) -> bool {
        gates.priority_and_fairness && self.enable_priority_and_fairness
    }
}

/// Other servers that answer for parts of the API, and proxies in front of this one.
#[derive(clap::Args, Debug, Clone)]
pub struct FrontProxyArgs {
    /// Certificate by which this server proves to others that it may speak for its users.
    #[arg(long, requires = "proxy_client_key_file", value_name = "FILE")]
    pub proxy_client_cert_file: Option<PathBuf>,
    /// Private key of that certificate.
    #[arg(long, requires = "proxy_client_cert_file", value_name = "FILE")]
    pub proxy_client_key_file: Option<PathBuf>,
    /// Requests for other servers go to the endpoints of their services, not to the services' addresses.
    #[arg(long, default_value_t = false, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set, value_parser = parse_bool)]
    pub enable_aggregator_routing: bool,
    /// Redirects of other servers are not passed on to clients.
    #[arg(long, default_value_t = true, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set, value_parser = parse_bool)]
    pub aggregator_reject_forwarding_redirect: bool,

    /// A client with a certificate that these authorities signed is a proxy, which names the user in headers.
    #[arg(long, value_name = "FILE")]
    pub requestheader_client_ca_file: Option<PathBuf>,
    /// Common names that the certificate of a proxy may have [default: any].
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub requestheader_allowed_names: Vec<String>,
    /// Headers in which a proxy names the user: X-Remote-User is common.
    #[arg(long, value_delimiter = ',', value_name = "HEADERS")]
    pub requestheader_username_headers: Vec<String>,
    /// Headers with the user's uid: X-Remote-Uid.
    #[arg(long, value_delimiter = ',', value_name = "HEADERS")]
    pub requestheader_uid_headers: Vec<String>,
    /// Headers with the user's groups: X-Remote-Group.
    #[arg(long, value_delimiter = ',', value_name = "HEADERS")]
    pub requestheader_group_headers: Vec<String>,
    /// Beginnings of headers with more about the user: X-Remote-Extra-.
    #[arg(long, value_delimiter = ',', value_name = "PREFIXES")]
    pub requestheader_extra_headers_prefix: Vec<String>,
}

/// `true`, `false`, `raw`, or a version with the same numbers as this server's.
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
        Some(_) => Err(format!("{text:?} is no semantic version")),
        None => {
            Err(format!("{text:?} must be true, false, raw, or match major/minor/patch of version {API_VERSION:?}"))
        }
    }
}

fn parse_ports(text: &str) -> Result<(u16, u16), String> {
    let parse = |port: &str| port.trim().parse().map_err(|_| format!("{port:?} is no port"));
    let (first, last) = match (text.split_once('-'), text.split_once('+')) {
        (Some((first, last)), _) => (parse(first)?, parse(last)?),
        (None, Some((first, more))) => {
            let first: u16 = parse(first)?;
            (first, first.checked_add(parse(more)?).ok_or("the range ends behind port 65535")?)
        }
        (None, None) => (parse(text)?, parse(text)?),
    };
    if first == 0 || last < first {
        return Err(format!("{text:?} is no range of ports, such as 30000-32767"));
    }
    Ok((first, last))
}

/// Rewrites arguments to what clap expects: dashes for underscores in names, and `-v 4` for `-v=4`.
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

/// Removes path and text options with an empty value: scripts pass them so to mean the default.
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

/// Replaces placeholders in names. They stand for names of Kubernetes that other files cannot print.
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
    fn port_ranges_parse_or_say_why() {
        assert_eq!(parse_ports("30000-32767"), Ok((30000, 32767)));
        assert_eq!(parse_ports("30000+10"), Ok((30000, 30010)));
        assert!(parse_ports("9-8").is_err());
        assert!(parse_ports("0-8").is_err());
        assert!(parse_ports("x").is_err());
        assert!(parse_ports("65000+1000").is_err());
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
