//! The options of authentication besides certificates and static tokens, and the authenticator that they configure.

use crate::aggregation;
use crate::apiserver::read;
use crate::flags::Args;
use anyhow::{Context, Result, anyhow, bail};
use arc_swap::ArcSwap;
use clap::ArgAction;
use holdfast_authentication::configuration::{ALGORITHMS, Anonymous as AnonymousUsers, Configuration, Issuers, Server};
use holdfast_authentication::oidc::Settings;
use holdfast_authentication::oidc::claims::{Mapping, Rules, Source};
use holdfast_authentication::webhook::Webhook;
use holdfast_authentication::{Agnostic, Metrics, Others};
use holdfast_component::api::{Api, Place};
use holdfast_component::authentication::{self as delegated, Wanted};
use holdfast_component::options::joined;
use holdfast_component::values::{parse_bool, parse_duration};
use holdfast_core::authz::User;
use holdfast_outbound::Dialer;
use holdfast_outbound::kubeconfig::Posting;
use holdfast_outbound::reviews::Version;
use holdfast_service::Elsewhere;
use holdfast_tls::server::{LiveTls, Pem};
use holdfast_transport_http::authenticate::basic::Passwords;
use holdfast_transport_http::authenticate::{Anonymous, Authenticator, static_tokens};
use holdfast_transport_http::paths::API_VERSION;
use holdfast_transport_http::tokens::ServiceAccountTokens;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The default issuer of service account tokens.
const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";
/// The bounds of `--service-account-max-token-expiration`.
const TOKEN_SECONDS_MIN: u64 = 3600;
const TOKEN_SECONDS_MAX: u64 = 1 << 32;

#[derive(clap::Args, Debug, Clone)]
#[command(next_help_heading = "Authentication")]
pub struct AuthenticationArgs {
    /// Kubeconfig of another API server, which reviews the tokens that this server cannot authenticate itself, and from
    /// which it reads the CA certificates for client certificates and authenticating proxies.
    #[arg(long, alias = "authentication-coreconfig", value_name = "FILE")]
    pub authentication_kubeconfig: Option<PathBuf>,
    /// Do not read CA certificates from that server.
    #[arg(long, default_value = "false", num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set, value_parser = parse_bool, value_name = "BOOL")]
    pub authentication_skip_lookup: bool,
    /// Start even if CA certificates cannot be read from that server.
    #[arg(long, default_value = "false", num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set, value_parser = parse_bool, value_name = "BOOL")]
    pub authentication_tolerate_lookup_failure: bool,
    /// File of names and passwords (HTTP basic authentication, in Kubernetes until 1.18), with lines of
    /// `password,user,uid,"group,group"`.
    #[arg(long, value_name = "FILE")]
    pub basic_auth_file: Option<PathBuf>,
    /// Accept bootstrap tokens: Secrets of type bootstrap.kubernetes.io/token in kube-system.
    #[arg(long, default_value = "false", num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set, value_parser = parse_bool, value_name = "BOOL")]
    pub enable_bootstrap_token_auth: bool,
    /// An AuthenticationConfiguration: issuers of JWTs, and anonymous access. The server reloads the file when it
    /// changes.
    #[arg(long, value_name = "FILE")]
    pub authentication_config: Option<PathBuf>,
    /// Kubeconfig of a webhook that authenticates tokens.
    #[arg(long, value_name = "FILE")]
    pub authentication_token_webhook_config_file: Option<PathBuf>,
    /// Version of the TokenReviews that are sent to the webhook: v1 or v1beta1.
    #[arg(long, default_value = "v1beta1", value_parser = |text: &str| Version::parse("authentication webhook", text), value_name = "VERSION")]
    pub authentication_token_webhook_version: Version,
    /// How long the webhook's answers are cached; 0 for not at all.
    #[arg(long, default_value = "2m0s", value_parser = parse_duration, value_name = "DURATION")]
    pub authentication_token_webhook_cache_ttl: Duration,

    /// URL of an OpenID Connect issuer whose tokens are accepted; https only.
    #[arg(long, value_name = "URL")]
    pub oidc_issuer_url: Option<String>,
    /// Client ID that the issuer's tokens must be for.
    #[arg(long, value_name = "ID")]
    pub oidc_client_id: Option<String>,
    /// CA certificates for the issuer's server [default: the machine's].
    #[arg(long, value_name = "FILE")]
    pub oidc_ca_file: Option<PathBuf>,
    /// Claim that contains the user name.
    #[arg(long, default_value = "sub", value_name = "CLAIM")]
    pub oidc_username_claim: String,
    /// Prefix for user names; - for none [default: the issuer and #, unless the claim is email].
    #[arg(long, allow_hyphen_values = true, value_name = "PREFIX")]
    pub oidc_username_prefix: Option<String>,
    /// Claim that contains the user's groups.
    #[arg(long, value_name = "CLAIM")]
    pub oidc_groups_claim: Option<String>,
    /// Prefix for groups.
    #[arg(long, value_name = "PREFIX")]
    pub oidc_groups_prefix: Option<String>,
    /// Algorithms with which the issuer's tokens may be signed.
    #[arg(long, value_delimiter = ',', default_value = "RS256", value_name = "NAMES")]
    pub oidc_signing_algs: Vec<String>,
    /// Claims that the issuer's tokens must contain, with their values. Repeatable.
    #[arg(long, value_delimiter = ',', value_name = "CLAIM=VALUE")]
    pub oidc_required_claim: Vec<String>,

    /// Host name for this server in its OpenID discovery document.
    #[arg(long, value_name = "HOST")]
    pub external_hostname: Option<String>,
    /// URL of the public keys for service account tokens, as published in the discovery document [default: a path of
    /// this server].
    #[arg(long, value_name = "URL")]
    pub service_account_jwks_uri: Option<String>,
    /// Maximum lifetime of service account tokens; 0 for no limit but that of the API.
    #[arg(long, default_value = "0", value_parser = parse_duration, value_name = "DURATION")]
    pub service_account_max_token_expiration: Duration,
    /// Make tokens that kubelets request for pods valid for a year, for clients that never reload their token.
    #[arg(long, default_value = "true", num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set, value_parser = parse_bool, value_name = "BOOL")]
    pub service_account_extend_token_expiration: bool,
}

impl AuthenticationArgs {
    /// The longest lifetime of a token in seconds, if it is limited.
    pub fn token_seconds_max(&self) -> Result<Option<i64>> {
        match self.service_account_max_token_expiration.as_secs() {
            0 => Ok(None),
            seconds @ TOKEN_SECONDS_MIN..=TOKEN_SECONDS_MAX => Ok(Some(i64::try_from(seconds)?)),
            _ => bail!("the service-account-max-token-expiration must be between 1 hour and 2^32 seconds"),
        }
    }

    /// The URL of the keys that verify this server's tokens; `address` is the server's own.
    pub fn keys_url(&self, address: &str) -> Result<String> {
        if let Some(url) = &self.service_account_jwks_uri {
            let https = url.parse::<http::Uri>().is_ok_and(|url| url.scheme_str() == Some("https"));
            anyhow::ensure!(https, "service-account-jwks-uri requires https scheme, parsed as: {url}");
            return Ok(url.clone());
        }
        let port = address.rsplit_once(':').map_or("443", |(_, port)| port);
        let host = self.external_hostname.as_deref().filter(|host| !host.is_empty());
        let host = host.map_or_else(|| address.to_owned(), |host| format!("{host}:{port}"));
        Ok(format!("https://{host}/openid/v1/jwks"))
    }

    fn uses_oidc(&self) -> bool {
        self.oidc_issuer_url.is_some()
            || self.oidc_client_id.is_some()
            || self.oidc_ca_file.is_some()
            || self.oidc_username_claim != "sub"
            || self.oidc_username_prefix.is_some()
            || self.oidc_groups_claim.is_some()
            || self.oidc_groups_prefix.is_some()
            || self.oidc_signing_algs != ["RS256"]
            || !self.oidc_required_claim.is_empty()
    }

    /// The issuer that the `--oidc-*` options describe.
    fn issuer(&self) -> Result<Option<Settings>, Vec<String>> {
        if !self.uses_oidc() {
            return Ok(None);
        }
        let mut faults = Vec::new();
        let (url, client) = (self.oidc_issuer_url.clone(), self.oidc_client_id.clone());
        if url.is_none() || client.is_none() {
            faults.push(
                "oidc-issuer-url and oidc-client-id must be specified together when any oidc-* flags are set"
                    .to_owned(),
            );
        }
        let url = url.unwrap_or_default();
        if !url.is_empty() && !url.parse::<http::Uri>().is_ok_and(|url| url.scheme_str() == Some("https")) {
            faults.push(format!("oidc-issuer-url: {url:?}: URL scheme must be https"));
        }
        let unknown = self.oidc_signing_algs.iter().filter(|name| !ALGORITHMS.contains(&name.as_str()));
        faults.extend(unknown.map(|name| format!("oidc-signing-algs: oidc: unsupported signing alg: {name:?}")));
        let authority = self.oidc_ca_file.clone().map(Pem::File);
        if let Some(Err(why)) = authority.as_ref().map(Pem::certificates) {
            faults.push(format!("oidc-ca-file: {why}"));
        }
        let mut required = Vec::new();
        for pair in &self.oidc_required_claim {
            match pair.split_once('=') {
                Some((claim, value)) => required.push((claim.to_owned(), value.to_owned())),
                None => faults.push(format!("oidc-required-claim: {pair:?}: expected CLAIM=VALUE")),
            }
        }
        if !faults.is_empty() {
            return Err(faults);
        }
        let prefix = match (self.oidc_username_prefix.as_deref(), self.oidc_username_claim.as_str()) {
            (Some("-"), _) | (None | Some(""), "email") => String::new(),
            (None | Some(""), _) => format!("{url}#"),
            (Some(prefix), _) => prefix.to_owned(),
        };
        let groups = self
            .oidc_groups_claim
            .clone()
            .map(|name| Source::Claim { name, prefix: self.oidc_groups_prefix.clone().unwrap_or_default() });
        Ok(Some(Settings {
            url,
            discovery_url: None,
            authority,
            audiences: client.into_iter().collect(),
            algorithms: self.oidc_signing_algs.clone(),
            mapping: Mapping {
                username: Source::Claim { name: self.oidc_username_claim.clone(), prefix },
                groups,
                uid: None,
                extra: Vec::new(),
            },
            rules: Rules { required, ..Rules::default() },
            dialer: Dialer::Direct,
        }))
    }
}

/// All faults of the options and of the files that they name, found before the server starts.
pub fn faults(args: &Args) -> Vec<String> {
    let mut faults = Vec::new();
    let own = &args.authentication;
    let mut look = |option: &str, found: Result<()>| {
        faults.extend(
            found.err().map(|why| if option.is_empty() { format!("{why:#}") } else { format!("--{option}: {why:#}") }),
        );
    };
    look("", own.token_seconds_max().map(drop));
    look("", own.keys_url("localhost:6443").map(drop));
    look("token-auth-file", tokens(args).map(drop));
    look("basic-auth-file", passwords(args).map(drop));
    look("service-account-issuer", named_issuers(args));
    look("", service_accounts(args).map(drop));
    for (option, file) in [
        ("authentication-kubeconfig", &own.authentication_kubeconfig),
        ("authentication-token-webhook-config-file", &own.authentication_token_webhook_config_file),
    ] {
        look(option, file.as_ref().map_or(Ok(()), |file| posting(file)));
    }
    match told(args) {
        Ok(_) => {}
        Err(found) => faults.extend(found),
    }
    faults
}

/// Checks that each issuer of service account tokens has a name, and that no two are equal.
fn named_issuers(args: &Args) -> Result<()> {
    let all = &args.service_account_issuer;
    let mut faults = Vec::new();
    for (at, issuer) in all.iter().enumerate() {
        let url = !issuer.contains(':') || issuer.parse::<http::Uri>().is_ok_and(|url| url.scheme().is_some());
        for (is_wrong, why) in [
            (issuer.is_empty(), "it contains an empty string".to_owned()),
            (!url, format!("{issuer:?} contains a ':' and is not a URL")),
            (all[..at].contains(issuer), format!("{issuer:?} is there twice")),
        ] {
            faults.extend(is_wrong.then_some(why));
        }
    }
    anyhow::ensure!(faults.is_empty(), faults.join("; "));
    Ok(())
}

/// Checks that a file is a kubeconfig with a server that requests can be posted to.
pub fn posting(file: &Path) -> Result<()> {
    kubeconfig(file)?;
    Posting::from_file(file, "", &Dialer::Direct).map(drop).map_err(|why| anyhow!(why))
}

/// Checks that a file is a kubeconfig.
fn kubeconfig(file: &Path) -> Result<()> {
    let told = |why: &dyn std::fmt::Display| {
        // The other lines only show the place in the file.
        let why = why.to_string();
        anyhow!("{}: {}", file.display(), why.lines().next().unwrap_or_default())
    };
    kube::config::Kubeconfig::from_yaml(&read(file)?).map(drop).map_err(|why| match std::error::Error::source(&why) {
        Some(source) => told(&source),
        None => told(&why),
    })
}

fn tokens(args: &Args) -> Result<Arc<HashMap<String, Arc<User>>>> {
    let Some(file) = &args.token_auth_file else { return Ok(Arc::default()) };
    static_tokens(&read(file)?)
        .map(Arc::new)
        .map_err(|why| anyhow!("token file {:?}, {why}", file.display().to_string()))
}

fn passwords(args: &Args) -> Result<Arc<Passwords>> {
    let Some(file) = &args.authentication.basic_auth_file else { return Ok(Arc::default()) };
    Passwords::read(&read(file)?).map(Arc::new).map_err(|why| anyhow!("{}: {why}", file.display()))
}

/// Builds the authenticator and its metrics. `anonymous` is the value of `--anonymous-auth`.
pub async fn authenticator(args: &Args, anonymous: bool) -> Result<(Authenticator, Metrics)> {
    let (own, metrics) = (service_accounts(args)?, Metrics::default());
    let audiences = own.as_ref().map_or_else(Vec::new, |own| own.audiences.clone());
    let told = told(args).map_err(|faults| anyhow!(joined(&faults)))?;
    let mut all: Vec<Arc<dyn Elsewhere>> = Vec::new();
    if let Some(issuers) = followed(told.issuers, &told.file, &told.anonymous, this_server(args), &metrics) {
        all.push(Arc::new(Agnostic { inner: issuers, own: audiences.clone() }));
    }
    let (options, egress) = (&args.authentication, aggregation::egress(args)?);
    if let Some(file) = &options.authentication_token_webhook_config_file {
        let (version, ttl) =
            (options.authentication_token_webhook_version, options.authentication_token_webhook_cache_ttl);
        let asked = Webhook::new(file, version, ttl, &egress.control_plane, audiences.clone());
        all.push(Arc::new(
            asked.with_context(|| format!("--authentication-token-webhook-config-file={}", file.display()))?,
        ));
    }
    if let Some(file) = &options.authentication_kubeconfig {
        let asked = Webhook::of_api_server(file, &egress.control_plane, audiences);
        all.push(Arc::new(asked.with_context(|| format!("--authentication-kubeconfig={}", file.display()))?));
    }
    let anonymous = match told.anonymous {
        Some(AnonymousUsers { enabled: false, .. }) => Anonymous::Never,
        Some(AnonymousUsers { paths, .. }) if !paths.is_empty() => Anonymous::Paths(paths),
        _ if anonymous => Anonymous::Always,
        _ => Anonymous::Never,
    };
    let authenticator = Authenticator {
        anonymous,
        static_tokens: tokens(args)?,
        passwords: passwords(args)?,
        service_accounts: own.map(Arc::new),
        bootstrap_tokens: options.enable_bootstrap_token_auth,
        elsewhere: (!all.is_empty()).then(|| Arc::new(Others::new(all, metrics.clone())) as Arc<dyn Elsewhere>),
        request_headers: Arc::new(ArcSwap::from_pointee(aggregation::request_headers(args))),
    };
    Ok((authenticator, metrics))
}

/// Reads the client and front-proxy authorities that no option names from the API server of
/// `--authentication-kubeconfig`.
pub async fn look_up(args: &Args, tls: &Arc<LiveTls>, authenticator: &Authenticator) -> Result<()> {
    let options = &args.authentication;
    let wanted = Wanted {
        client_authorities: args.client_ca_file.is_none(),
        front_proxies: args.front_proxy.requestheader_client_ca_file.is_none(),
    };
    let Some(file) = &options.authentication_kubeconfig else { return Ok(()) };
    if options.authentication_skip_lookup || !(wanted.client_authorities || wanted.front_proxies) {
        return Ok(());
    }
    let agent = format!("kube-apiserver/{API_VERSION}");
    let place = Place { kubeconfig: Some(file), agent: &agent, ..Place::default() };
    let api = Arc::new(Api::new(kube::Client::try_from(place.config().await?)?));
    let tolerates = options.authentication_tolerate_lookup_failure;
    delegated::look_up(api, wanted, tls, &authenticator.request_headers, tolerates)
        .await
        .map_err(|why| anyhow!("--authentication-kubeconfig={}: {why}", file.display()))
}

/// The issuers and the anonymous users, from the options and from the file of `--authentication-config`.
struct Told {
    issuers: Vec<Settings>,
    anonymous: Option<AnonymousUsers>,
    /// The file with its text.
    file: Option<(PathBuf, String)>,
}

fn told(args: &Args) -> Result<Told, Vec<String>> {
    let options = &args.authentication;
    let Some(file) = &options.authentication_config else {
        let issuers = options.issuer()?.into_iter().collect();
        return Ok(Told { issuers, anonymous: None, file: None });
    };
    let mut faults = Vec::new();
    if options.uses_oidc() {
        faults.push("authentication-config file and oidc-* flags are mutually exclusive".to_owned());
    }
    let fault = |why: String| format!("--authentication-config: {}: {why}", file.display());
    let text = std::fs::read_to_string(file).map_err(|why| vec![why.to_string()]);
    let read = text.and_then(|text| Ok((Configuration::read(&text, &this_server(args))?, text)));
    let (configuration, text) = match read {
        Ok(read) if faults.is_empty() => read,
        Ok(_) => return Err(faults),
        Err(found) => return Err(faults.into_iter().chain(found.into_iter().map(fault)).collect()),
    };
    if args.anonymous_auth.is_some() && configuration.anonymous.is_some() {
        return Err(vec![
            "anonymous-auth cannot be set when the anonymous field is configured in the authentication-config file"
                .into(),
        ]);
    }
    let Configuration { issuers, anonymous } = configuration;
    Ok(Told { issuers, anonymous, file: Some((file.clone(), text)) })
}

/// Starts fetching the issuers' keys, and following the configuration file.
fn followed(
    issuers: Vec<Settings>,
    file: &Option<(PathBuf, String)>,
    anonymous: &Option<AnonymousUsers>,
    own: Server,
    metrics: &Metrics,
) -> Option<Arc<Issuers>> {
    if issuers.is_empty() && file.is_none() {
        return None;
    }
    let issuers = Issuers::start(issuers, metrics.clone());
    if let Some((file, text)) = file {
        tokio::spawn(issuers.clone().follow(file.clone(), text.clone(), anonymous.clone(), own));
    }
    Some(issuers)
}

/// The audiences of tokens that name none.
pub fn api_audiences(args: &Args) -> Vec<String> {
    match args.api_audiences.as_slice() {
        [] => own_issuers(args),
        audiences => audiences.to_vec(),
    }
}

/// What this server allows in the configuration of other issuers.
fn this_server(args: &Args) -> Server {
    let is_on = args.api_gates().is_ok_and(|gates| gates.egress_of_issuers);
    let egress = aggregation::egress(args).unwrap_or_default();
    Server { own_issuers: own_issuers(args), egress: is_on.then_some(egress) }
}

fn own_issuers(args: &Args) -> Vec<String> {
    match args.service_account_issuer.as_slice() {
        [] => vec![ISSUER.to_owned()],
        issuers => issuers.to_vec(),
    }
}

fn service_accounts(args: &Args) -> Result<Option<ServiceAccountTokens>> {
    let mut faults = Vec::new();
    let mut text = |option: &str, file: &PathBuf| {
        let text = read(file).map_err(|why| faults.push(format!("--{option}: {why:#}")));
        text.ok()
    };
    let signing = args.service_account_signing_key_file.as_ref();
    let signing = signing.and_then(|file| text("service-account-signing-key-file", file));
    let verifying: Vec<String> =
        args.service_account_key_file.iter().filter_map(|file| text("service-account-key-file", file)).collect();
    anyhow::ensure!(faults.is_empty(), faults.join("; "));
    if signing.is_none() && verifying.is_empty() {
        return Ok(None);
    }
    ServiceAccountTokens::new(own_issuers(args), args.api_audiences.clone(), signing.as_deref(), &verifying)
        .map(Some)
        .map_err(|why| {
            let options = "--service-account-signing-key-file, --service-account-key-file";
            anyhow!("{options}: service account keys: {why}")
        })
}
