//! The options that components share, in groups that a command flattens into its own.
//!
//! Each option works as in Kubernetes' components. Some options also accept a spelling with a placeholder for a
//! product's name (`coreconfig`).

use crate::authorization::OpenPath;
use crate::election::{LockKind, Terms};
use crate::gates::GateArgs;
use crate::logging::LoggingArgs;
use crate::metrics::ShownMetrics;
use crate::values::{parse_bool, parse_duration};
use clap::parser::ValueSource;
use clap::{ArgAction, ArgMatches};
use holdfast_files::{check, check_owner, check_place, complaint};
use holdfast_tls::front_proxy::RequestHeaders;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The options that all components have.
#[derive(clap::Args, Debug, Clone)]
pub struct ComponentArgs {
    /// Print the version of Kubernetes that the component is compatible with, and exit; with =raw, print all details.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = ["true", "false", "raw"], value_name = "FORM")]
    pub version: Option<String>,
    #[command(flatten)]
    pub serving: ServingArgs,
    #[command(flatten)]
    pub authentication: AuthenticationArgs,
    #[command(flatten)]
    pub authorization: AuthorizationArgs,
    #[command(flatten)]
    pub client: ClientArgs,
    #[command(flatten)]
    pub election: ElectionArgs,
    #[command(flatten)]
    pub debugging: DebuggingArgs,
    #[command(flatten)]
    pub metrics: MetricsArgs,
    #[command(flatten)]
    pub gates: GateArgs,
    #[command(flatten)]
    pub logging: LoggingArgs,
}

#[derive(clap::Args, Debug, Clone)]
#[command(next_help_heading = "Secure serving")]
pub struct ServingArgs {
    /// Address of the HTTPS port; 0.0.0.0 and :: mean all interfaces.
    #[arg(long, default_value = "0.0.0.0")]
    pub bind_address: IpAddr,
    /// HTTPS port; 0 turns HTTPS off.
    #[arg(long)]
    pub secure_port: Option<u16>,
    /// Folder for the self-signed certificate that is used if none is given [default: kept in memory].
    #[arg(long, value_name = "DIR")]
    pub cert_dir: Option<PathBuf>,
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
    #[arg(long, default_value = "", hide_default_value = true)]
    pub tls_min_version: String,
    /// Certificate and key for some domains (SNI): `cert.pem,key.pem[:*.example.com,example.com]`. Repeatable.
    #[arg(long, value_name = "CERT,KEY[:DOMAINS]")]
    pub tls_sni_cert_key: Vec<String>,
    /// Maximum number of open HTTP/2 streams on one connection; 0 for the server's default.
    #[arg(long, default_value_t = 0)]
    pub http2_max_streams_per_connection: u32,
    /// Serve HTTP/1.1 only.
    #[arg(long, default_value = "false", num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set, value_parser = parse_bool, value_name = "BOOL")]
    pub disable_http2_serving: bool,
    /// Allow other processes to listen on the same port (SO_REUSEPORT).
    #[arg(long, default_value = "false", num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set, value_parser = parse_bool, value_name = "BOOL")]
    pub permit_port_sharing: bool,
    /// Listen even if old connections to the address are still closing (SO_REUSEADDR). No effect: this is always on.
    #[arg(long, default_value = "false", num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set, value_parser = parse_bool, value_name = "BOOL")]
    pub permit_address_sharing: bool,
}

/// A port without TLS, for old command lines that still request it.
#[derive(clap::Args, Debug, Clone)]
#[command(next_help_heading = "Insecure serving")]
pub struct InsecureArgs {
    /// Deprecated: address of the HTTP port; use --bind-address.
    #[arg(long)]
    pub address: Option<IpAddr>,
    /// Deprecated: port for HTTP without TLS, authentication and authorization; 0 for none; use --secure-port.
    #[arg(long)]
    pub port: Option<u16>,
}

impl InsecureArgs {
    /// The address and port without TLS; `None` if the options name none.
    pub fn address(&self, usual_port: u16) -> Option<(IpAddr, u16)> {
        let asked = self.address.is_some() || self.port.is_some();
        let place = (self.address.unwrap_or(Ipv4Addr::UNSPECIFIED.into()), self.port.unwrap_or(usual_port));
        Some(place).filter(|(_, port)| asked && *port != 0)
    }
}

#[derive(clap::Args, Debug, Clone)]
#[command(next_help_heading = "Authentication")]
pub struct AuthenticationArgs {
    /// Kubeconfig of the API server. That server reviews tokens, and this component reads from it the CA certificates
    /// for client certificates and authenticating proxies. Without it no token is accepted.
    #[arg(long, alias = "authentication-coreconfig", value_name = "FILE")]
    pub authentication_kubeconfig: Option<PathBuf>,
    /// Do not read CA certificates from the API server.
    #[arg(long, default_value = "false", num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set, value_parser = parse_bool, value_name = "BOOL")]
    pub authentication_skip_lookup: bool,
    /// Start even if CA certificates cannot be read from the API server [default: true for the scheduler, false for
    /// others].
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set, value_parser = parse_bool, value_name = "BOOL")]
    pub authentication_tolerate_lookup_failure: Option<bool>,
    /// How long reviews of tokens are cached; 0 for not at all.
    #[arg(long, default_value = "10s", value_parser = parse_duration, value_name = "DURATION")]
    pub authentication_token_webhook_cache_ttl: Duration,
    /// CA certificates for client certificates: the common name is the user, the organizations are the groups.
    #[arg(long, value_name = "FILE")]
    pub client_ca_file: Option<PathBuf>,
    /// CA certificates for authenticating proxies: a client with such a certificate names the user in headers.
    #[arg(long, value_name = "FILE")]
    pub requestheader_client_ca_file: Option<PathBuf>,
    /// Common names that are allowed in the certificate of an authenticating proxy [default: any].
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub requestheader_allowed_names: Vec<String>,
    /// Headers in which an authenticating proxy names the user.
    #[arg(long, value_delimiter = ',', default_value = "x-remote-user", value_name = "HEADERS")]
    pub requestheader_username_headers: Vec<String>,
    /// Headers in which an authenticating proxy sends the user's uid, such as x-remote-uid.
    #[arg(long, value_delimiter = ',', value_name = "HEADERS")]
    pub requestheader_uid_headers: Vec<String>,
    /// Headers in which an authenticating proxy sends the user's groups.
    #[arg(long, value_delimiter = ',', default_value = "x-remote-group", value_name = "HEADERS")]
    pub requestheader_group_headers: Vec<String>,
    /// Prefixes of the headers in which an authenticating proxy sends more about the user.
    #[arg(long, value_delimiter = ',', default_value = "x-remote-extra-", value_name = "PREFIXES")]
    pub requestheader_extra_headers_prefix: Vec<String>,
}

impl AuthenticationArgs {
    pub fn headers(&self) -> RequestHeaders {
        RequestHeaders {
            usernames: self.requestheader_username_headers.clone(),
            uids: self.requestheader_uid_headers.clone(),
            groups: self.requestheader_group_headers.clone(),
            extra_prefixes: self.requestheader_extra_headers_prefix.clone(),
        }
    }
}

#[derive(clap::Args, Debug, Clone)]
#[command(next_help_heading = "Authorization")]
pub struct AuthorizationArgs {
    /// Kubeconfig of the API server that authorizes requests. Without it only the paths of
    /// --authorization-always-allow-paths are served.
    #[arg(long, alias = "authorization-coreconfig", value_name = "FILE")]
    pub authorization_kubeconfig: Option<PathBuf>,
    /// Paths that need no authorization; a trailing `*` allows every path with this prefix.
    #[arg(long, value_delimiter = ',', default_value = "/healthz,/readyz,/livez", value_name = "PATHS")]
    pub authorization_always_allow_paths: Vec<OpenPath>,
    /// How long answers that allow a request are cached.
    #[arg(long, default_value = "10s", value_parser = parse_duration, value_name = "DURATION")]
    pub authorization_webhook_cache_authorized_ttl: Duration,
    /// How long answers that deny a request are cached.
    #[arg(long, default_value = "10s", value_parser = parse_duration, value_name = "DURATION")]
    pub authorization_webhook_cache_unauthorized_ttl: Duration,
}

/// The API server that the component works for. These options override the configuration file.
#[derive(clap::Args, Debug, Clone, Default)]
#[command(next_help_heading = "API server")]
pub struct ClientArgs {
    /// Kubeconfig of the API server. Without it and --master, the component uses the service account of the pod that it
    /// runs in.
    #[arg(long, alias = "coreconfig", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// URL of the API server; overrides the URL in the kubeconfig.
    #[arg(long, value_name = "URL")]
    pub master: Option<String>,
    /// Maximum number of requests a second to the API server.
    #[arg(long, alias = "core-api-qps")]
    pub kube_api_qps: Option<f64>,
    /// Maximum number of requests in a burst, above the rate of --kube-api-qps.
    #[arg(long, alias = "core-api-burst")]
    pub kube_api_burst: Option<i64>,
    /// Content type of requests to the API server. No effect: requests are always JSON.
    #[arg(long, alias = "core-api-content-type", value_name = "TYPE")]
    pub kube_api_content_type: Option<String>,
}

/// Options of leader election, which override the configuration file.
#[derive(clap::Args, Debug, Clone, Default)]
#[command(next_help_heading = "Leader election")]
pub struct ElectionArgs {
    /// Work only as the elected leader among all processes of this kind [default: true].
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set, value_parser = parse_bool, value_name = "BOOL")]
    pub leader_elect: Option<bool>,
    /// How long other candidates wait for a leader that does not renew its lease [default: 15s].
    #[arg(long, value_parser = parse_duration, value_name = "DURATION")]
    pub leader_elect_lease_duration: Option<Duration>,
    /// How long a leader tries to renew its lease before it gives up [default: 10s].
    #[arg(long, value_parser = parse_duration, value_name = "DURATION")]
    pub leader_elect_renew_deadline: Option<Duration>,
    /// How long to wait between two attempts to acquire or renew the lease [default: 2s].
    #[arg(long, value_parser = parse_duration, value_name = "DURATION")]
    pub leader_elect_retry_period: Option<Duration>,
    /// Kind of the lock object: leases, or one of old releases: endpoints, configmaps, endpointsleases,
    /// configmapsleases [default: leases].
    #[arg(long, value_name = "KIND")]
    pub leader_elect_resource_lock: Option<String>,
    /// Name of the lock object.
    #[arg(long, value_name = "NAME")]
    pub leader_elect_resource_name: Option<String>,
    /// Namespace of the lock object [default: kube-system].
    #[arg(long, value_name = "NAMESPACE")]
    pub leader_elect_resource_namespace: Option<String>,
}

/// The settings of leader election, from the configuration file and the options.
#[derive(Debug, Clone, PartialEq)]
pub struct ElectionSettings {
    pub leader_elect: bool,
    pub terms: Terms,
    pub resource_lock: String,
    pub resource_name: String,
    pub resource_namespace: String,
}

impl ElectionSettings {
    pub fn usual(resource_name: &str) -> ElectionSettings {
        ElectionSettings {
            leader_elect: true,
            terms: Terms {
                lease: Duration::from_secs(15),
                renew: Duration::from_secs(10),
                retry: Duration::from_secs(2),
            },
            resource_lock: "leases".into(),
            resource_name: resource_name.into(),
            resource_namespace: "kube-system".into(),
        }
    }

    /// The errors in the settings, each with the path of its field.
    pub fn faults(&self, path: &str) -> Vec<String> {
        let Terms { lease, renew, retry } = self.terms;
        if !self.leader_elect {
            return Vec::new();
        }
        let mut faults = Vec::new();
        let mut fault = |field: &str, message: String| faults.push(format!("{path}.{field}: {message}"));
        let shown = |duration: Duration| format!("{duration:?}");
        for (field, duration) in [("leaseDuration", lease), ("renewDeadline", renew), ("retryPeriod", retry)] {
            if duration.is_zero() {
                fault(field, format!("Invalid value: {:?}: must be greater than zero", "0s"));
            }
        }
        if lease <= renew {
            fault(
                "leaseDuration",
                format!("Invalid value: {:?}: LeaseDuration must be greater than RenewDeadline", shown(lease)),
            );
        }
        if renew <= retry.mul_f64(crate::election::elector::JITTER) {
            let message = "RenewDeadline must be greater than RetryPeriod*JitterFactor";
            fault("renewDeadline", format!("Invalid value: {:?}: {message}", shown(renew)));
        }
        if lease < Duration::from_secs(1) {
            fault("leaseDuration", format!("Invalid value: {:?}: must be at least a second", shown(lease)));
        }
        if self.resource_lock.parse::<LockKind>().is_err() {
            let known = "\"leases\", \"endpoints\", \"configmaps\", \"endpointsleases\", \"configmapsleases\"";
            fault("resourceLock", format!("Unsupported value: {:?}: supported values: {known}", self.resource_lock));
        }
        for (field, text) in [("resourceName", &self.resource_name), ("resourceNamespace", &self.resource_namespace)] {
            if text.is_empty() {
                fault(field, format!("Required value: {field} is required"));
            }
        }
        faults
    }
}

impl ElectionArgs {
    /// Overrides the settings by the options that are given.
    pub fn apply(&self, settings: &mut ElectionSettings) {
        let set = |from: &Option<Duration>, to: &mut Duration| *to = from.unwrap_or(*to);
        settings.leader_elect = self.leader_elect.unwrap_or(settings.leader_elect);
        set(&self.leader_elect_lease_duration, &mut settings.terms.lease);
        set(&self.leader_elect_renew_deadline, &mut settings.terms.renew);
        set(&self.leader_elect_retry_period, &mut settings.terms.retry);
        for (from, to) in [
            (&self.leader_elect_resource_lock, &mut settings.resource_lock),
            (&self.leader_elect_resource_name, &mut settings.resource_name),
            (&self.leader_elect_resource_namespace, &mut settings.resource_namespace),
        ] {
            if let Some(from) = from {
                to.clone_from(from);
            }
        }
    }
}

#[derive(clap::Args, Debug, Clone, Default)]
#[command(next_help_heading = "Debugging")]
pub struct DebuggingArgs {
    /// Serve debugging pages below /debug [default: true].
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set, value_parser = parse_bool, value_name = "BOOL")]
    pub profiling: Option<bool>,
    /// Profile locks [default: true]. No effect: only a Go runtime has such profiles.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set, value_parser = parse_bool, value_name = "BOOL")]
    pub contention_profiling: Option<bool>,
}

#[derive(clap::Args, Debug, Clone, Default)]
#[command(next_help_heading = "Metrics")]
pub struct MetricsArgs {
    /// Names of metrics to leave out.
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub disabled_metrics: Vec<String>,
    /// Show the metrics that were hidden after this release. Only 1.34 is accepted, and the option has no effect,
    /// because no metric is hidden.
    #[arg(long, value_parser = parse_previous_minor, value_name = "MAJOR.MINOR")]
    pub show_hidden_metrics_for_version: Option<String>,
    /// Allowed values of a metric's label; all others are shown as `unexpected`. Repeatable.
    #[arg(long, value_name = "METRIC,LABEL='VALUE,...'")]
    pub allow_metric_labels: Vec<String>,
    /// File with allowed values of labels: a map from METRIC,LABEL to VALUE,VALUE.
    #[arg(long, value_name = "FILE")]
    pub allow_metric_labels_manifest: Option<PathBuf>,
}

impl MetricsArgs {
    /// Which metrics are shown by these options, or all errors in them.
    pub fn shown(&self) -> Result<ShownMetrics, Vec<String>> {
        let mut shown = ShownMetrics::new(self.disabled_metrics.iter().cloned());
        let said = self.allow_metric_labels.iter().map(|text| ("--allow-metric-labels", shown.allow(text)));
        let mut faults: Vec<String> =
            said.filter_map(|(option, read)| read.err().map(|why| format!("{option}: {why}"))).collect();
        if let Some(Err(why)) = self.allow_metric_labels_manifest.as_ref().map(|file| shown.allow_file(file)) {
            faults.push(format!("--allow-metric-labels-manifest: {why}"));
        }
        if faults.is_empty() { Ok(shown) } else { Err(faults) }
    }
}

fn parse_previous_minor(text: &str) -> Result<String, String> {
    match text {
        "" | "1.34" => Ok(text.to_owned()),
        _ => {
            Err("--show-hidden-metrics-for-version must be omitted or have the value '1.34'. Only the previous minor \
                  version is allowed"
                .into())
        }
    }
}

impl ComponentArgs {
    /// The errors in the options that the parser of each single option does not find, such as empty names of headers.
    pub fn faults(&self) -> Vec<String> {
        let names = &self.authentication;
        let lists = [
            ("requestheader-allowed-names", &names.requestheader_allowed_names),
            ("requestheader-username-headers", &names.requestheader_username_headers),
            ("requestheader-uid-headers", &names.requestheader_uid_headers),
            ("requestheader-group-headers", &names.requestheader_group_headers),
            ("requestheader-extra-headers-prefix", &names.requestheader_extra_headers_prefix),
        ];
        let blank = lists.iter().filter(|(_, list)| list.iter().any(|name| name.trim().is_empty()));
        let mut faults: Vec<String> = blank.map(|(name, _)| format!("empty value in {name:?}")).collect();
        faults.extend(self.metrics.shown().err().into_iter().flatten());
        faults.extend(self.gates.gates().err().map(|why| format!("--feature-gates: {why}")));
        faults
    }
}

/// All errors as one text: a single error without brackets, several errors in brackets.
pub fn joined(faults: &[String]) -> String {
    match faults {
        [one] => one.clone(),
        all => format!("[{}]", all.join(", ")),
    }
}

/// The options of a command, each with its value, sorted by name.
pub fn values(command: &clap::Command, matches: &ArgMatches) -> Vec<(String, String)> {
    let named = command.get_arguments().filter_map(|arg| Some((arg.get_id().as_str(), arg.get_long()?)));
    let mut values: Vec<(String, String)> = named
        .map(|(id, name)| {
            let given = matches.try_get_raw(id).ok().flatten().into_iter().flatten();
            let given: Vec<_> = given.map(|value| value.to_string_lossy().into_owned()).collect();
            (name.to_owned(), given.join(","))
        })
        .collect();
    values.sort();
    values
}

/// The files and folders in a command's options that another user of the machine owns, may write to, or reaches by a
/// link on the way. Options that name files are recognized by the names of their values.
pub fn untrusted(command: &clap::Command, matches: &ArgMatches) -> Vec<String> {
    let mut faults = Vec::new();
    for argument in command.get_arguments() {
        let Some(option) = argument.get_long() else { continue };
        let id = argument.get_id().as_str();
        let names = argument.get_value_names().and_then(|names| names.first()).map_or("", |name| name.as_str());
        let is_given = matches.value_source(id).is_some_and(|source| source != ValueSource::DefaultValue);
        if !is_given || !["FILE", "OUTPUT", "DIR", "CERT,KEY[:DOMAINS]"].contains(&names) {
            continue;
        }
        let values = matches.try_get_raw(id).ok().flatten().into_iter().flatten();
        for value in values.filter(|value| !value.is_empty() && *value != "-") {
            let checked = match (names, value.to_str()) {
                ("DIR", _) => check_owner(Path::new(value)),
                ("OUTPUT", _) => check_place(Path::new(value)),
                ("FILE", _) | (_, None) => check(Path::new(value)),
                (_, Some(pair)) => {
                    let mut files = pair.split_once(':').map_or(pair, |(files, _)| files).split(',');
                    files.try_for_each(|file| check(Path::new(file)))
                }
            };
            faults.extend(complaint(checked).map(|why| format!("--{option}: {why}")));
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{CommandFactory, Parser};

    #[derive(Parser, Debug)]
    #[command(args_override_self = true)]
    struct Cli {
        #[command(flatten)]
        component: ComponentArgs,
        #[command(flatten)]
        insecure: InsecureArgs,
    }

    fn parse(options: &[&str]) -> Result<Cli, String> {
        Cli::try_parse_from(["holdfast"].iter().chain(options)).map_err(|error| error.to_string())
    }

    #[test]
    fn spellings_of_the_requirement_are_taken() {
        let cli = parse(&[
            "--authentication-coreconfig=a",
            "--authorization-coreconfig=b",
            "--coreconfig=c",
            "--core-api-qps=3.5",
            "--core-api-burst=7",
            "--core-api-content-type=application/json",
            "--leader-elect=false",
            "--profiling",
        ])
        .unwrap();
        let ComponentArgs { authentication, authorization, client, election, debugging, .. } = cli.component;
        assert_eq!(authentication.authentication_kubeconfig, Some("a".into()));
        assert_eq!(authorization.authorization_kubeconfig, Some("b".into()));
        assert_eq!((client.kubeconfig, client.kube_api_qps), (Some("c".into()), Some(3.5)));
        assert_eq!((election.leader_elect, debugging.profiling), (Some(false), Some(true)));
        assert_eq!(authentication.requestheader_username_headers, ["x-remote-user"]);
        let allowed: Vec<OpenPath> = ["/healthz", "/readyz", "/livez"].map(|path| path.parse().unwrap()).into();
        assert_eq!(authorization.authorization_always_allow_paths, allowed);
    }

    #[test]
    fn the_insecure_port_is_there_when_asked_for() {
        let place = |options: &[&str]| parse(options).unwrap().insecure.address(10251);
        let any = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        assert_eq!(place(&[]), None);
        assert_eq!(place(&["--port=0"]), None);
        assert_eq!(place(&["--port=7"]), Some((any, 7)));
        assert_eq!(place(&["--address=127.0.0.1"]), Some((Ipv4Addr::LOCALHOST.into(), 10251)));
    }

    #[test]
    fn all_faults_come_at_once() {
        let cli = parse(&[
            "--requestheader-allowed-names=a,",
            "--requestheader-group-headers=",
            "--feature-gates=StorageVersionHash=false",
        ]);
        let faults = cli.unwrap().component.faults();
        assert_eq!(faults.len(), 3, "{faults:?}");
        assert!(joined(&faults).starts_with("[empty value in \"requestheader-allowed-names\", empty value in"));
        for (option, why) in [
            ("--authorization-always-allow-paths=/a*b", "only trailing * allowed"),
            ("--show-hidden-metrics-for-version=1.2", "Only the previous minor version"),
            ("--leader-elect-retry-period=5", "missing unit"),
            ("--tls-cert-file=x", "tls-private-key-file"),
        ] {
            assert!(parse(&[option]).unwrap_err().contains(why), "{option}");
        }
    }

    #[test]
    fn elections_are_checked_together() {
        let mut settings = ElectionSettings::usual("x");
        assert_eq!(settings.faults("leaderElection"), Vec::<String>::new());
        let options = [
            "--leader-elect-lease-duration=10s",
            "--leader-elect-retry-period=9s",
            "--leader-elect-resource-lock=nodes",
            "--leader-elect-resource-name=",
        ];
        parse(&options).unwrap().component.election.apply(&mut settings);
        let faults = settings.faults("leaderElection");
        assert_eq!(faults.len(), 4, "{faults:#?}");
        assert!(faults[0].starts_with("leaderElection.leaseDuration: Invalid value: \"10s\": LeaseDuration must be"));
        settings.leader_elect = false;
        assert!(settings.faults("leaderElection").is_empty());
    }

    #[test]
    fn options_show_the_values_they_have() {
        let command = Cli::command();
        let matches = command.clone().try_get_matches_from(["holdfast", "--secure-port=7", "-v=3"]).unwrap();
        let values = values(&command, &matches);
        for (name, value) in [("secure-port", "7"), ("v", "3"), ("bind-address", "0.0.0.0"), ("kubeconfig", "")] {
            assert!(values.contains(&(name.into(), value.into())), "{name}={value} in {values:?}");
        }
    }
}
