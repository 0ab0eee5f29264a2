//! The options of authentication.

use anyhow::{Result, bail};
use clap::ArgAction;
use holdfast_authentication::configuration::ALGORITHMS;
use holdfast_authentication::oidc::Settings;
use holdfast_authentication::oidc::claims::{Mapping, Rules, TextSource};
use holdfast_component::values::{parse_bool, parse_duration};
use holdfast_outbound::Dialer;
use holdfast_outbound::reviews::ReviewVersion;
use holdfast_tls::server::Pem;
use std::path::PathBuf;
use std::time::Duration;

/// The minimum of `--service-account-max-token-expiration`, unless it is zero.
const TOKEN_SECONDS_MIN: u64 = 3600;
/// The maximum of `--service-account-max-token-expiration`.
const TOKEN_SECONDS_MAX: u64 = 1 << 32;

// Certificates, static tokens, and service account tokens.
#[derive(clap::Args, Debug, Clone)]
#[group(skip)]
pub struct CredentialArgs {
    /// CA certificates for client certificates: the common name is the user, the organizations are the groups.
    #[arg(long, value_name = "FILE")]
    pub client_ca_file: Option<PathBuf>,
    /// Accept requests without credentials, as the user system:anonymous [default: true].
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set, value_parser = parse_bool, value_name = "BOOL")]
    pub anonymous_auth: Option<bool>,
    /// File of static tokens, with lines of `token,user,uid,"group,group"`.
    #[arg(long, value_name = "FILE")]
    pub token_auth_file: Option<PathBuf>,
    /// Keys that verify service account tokens, in PEM. Repeatable.
    #[arg(long, value_name = "FILE")]
    pub service_account_key_file: Vec<PathBuf>,
    /// Private key that signs service account tokens, in PEM.
    #[arg(long, value_name = "FILE")]
    pub service_account_signing_key_file: Option<PathBuf>,
    /// Issuer of service account tokens. Repeatable: new tokens name the first issuer, tokens of all these issuers are
    /// accepted.
    #[arg(long, value_name = "URL")]
    pub service_account_issuer: Vec<String>,
    /// Audiences of the API: a service account token must be for one of them [default: the issuer].
    #[arg(long, alias = "service-account-api-audiences", value_delimiter = ',')]
    pub api_audiences: Vec<String>,
}

#[derive(clap::Args, Debug, Clone)]
#[command(next_help_heading = "Authentication")]
pub struct AuthenticationArgs {
    /// Kubeconfig of another API server, which reviews the tokens that this server cannot authenticate itself, and from
    /// which it reads the CA certificates for client certificates and authenticating proxies.
    #[arg(long, alias = "authentication-coreconfig", value_name = "FILE")]
    pub authentication_kubeconfig: Option<PathBuf>,
    /// Do not read CA certificates from the server of --authentication-kubeconfig.
    #[arg(long, default_value = "false", num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set, value_parser = parse_bool, value_name = "BOOL")]
    pub authentication_skip_lookup: bool,
    /// Start even if CA certificates cannot be read from the server of --authentication-kubeconfig.
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
    #[arg(long, default_value = "v1beta1", value_parser = |text: &str| ReviewVersion::parse("authentication webhook", text), value_name = "VERSION")]
    pub authentication_token_webhook_version: ReviewVersion,
    /// How long the webhook's answers are cached; 0 for not at all.
    #[arg(long, default_value = "2m0s", value_parser = parse_duration, value_name = "DURATION")]
    pub authentication_token_webhook_cache_ttl: Duration,

    /// URL of an OpenID Connect issuer whose tokens are accepted; https only.
    #[arg(long, value_name = "URL")]
    pub oidc_issuer_url: Option<String>,
    /// Client ID that the issuer's tokens must be for.
    #[arg(long, value_name = "ID")]
    pub oidc_client_id: Option<String>,
    /// CA certificates for the issuer's server [default: the CA certificates of the machine].
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
    /// Maximum lifetime of service account tokens; 0 for no limit except the limit of the API.
    #[arg(long, default_value = "0", value_parser = parse_duration, value_name = "DURATION")]
    pub service_account_max_token_expiration: Duration,
    /// Make the tokens that kubelets request for pods valid for a year, because some clients never reload their token.
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

    /// The URL of the keys that verify this server's tokens; `address` is the server's own address.
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

    pub(super) fn uses_oidc(&self) -> bool {
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
    pub fn issuer(&self) -> Result<Option<Settings>, Vec<String>> {
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
            .map(|name| TextSource::Claim { name, prefix: self.oidc_groups_prefix.clone().unwrap_or_default() });
        Ok(Some(Settings {
            url,
            discovery_url: None,
            authority,
            audiences: client.into_iter().collect(),
            algorithms: self.oidc_signing_algs.clone(),
            mapping: Mapping {
                username: TextSource::Claim { name: self.oidc_username_claim.clone(), prefix },
                groups,
                uid: None,
                extra: Vec::new(),
            },
            rules: Rules { required, ..Rules::default() },
            dialer: Dialer::Direct,
        }))
    }
}
