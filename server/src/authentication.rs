//! The options of authentication beyond certificates and static tokens, and who knows tokens by them.

use crate::aggregation;
use crate::apiserver::read;
use crate::flags::Args;
use anyhow::{Context, Result, anyhow, bail};
use clap::ArgAction;
use holdfast_authentication::Others;
use holdfast_authentication::configuration::{ALGORITHMS, Anonymous as AnonymousUsers, Configuration, Issuers};
use holdfast_authentication::oidc::Settings;
use holdfast_authentication::oidc::claims::{Mapping, Rules, Source};
use holdfast_authentication::webhook::{Version, Webhook};
use holdfast_component::values::{parse_bool, parse_duration};
use holdfast_service::Elsewhere;
use holdfast_tls::server::Pem;
use holdfast_transport_http::authenticate::{Anonymous, Authenticator, static_tokens};
use holdfast_transport_http::paths::API_VERSION;
use holdfast_transport_http::tokens::ServiceAccountTokens;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The issuer of tokens when none is named.
const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";
/// For how long tokens may be asked for, and at least must be.
const TOKEN_SECONDS_MIN: u64 = 3600;
const TOKEN_SECONDS_MAX: u64 = 1 << 32;

#[derive(clap::Args, Debug, Clone)]
#[command(next_help_heading = "Authentication")]
pub struct AuthenticationArgs {
    /// Secrets of type bootstrap.kubernetes.io/token in kube-system let their holders join.
    #[arg(long, default_value = "false", num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set, value_parser = parse_bool, value_name = "BOOL")]
    pub enable_bootstrap_token_auth: bool,
    /// Issuers of tokens and who may be anonymous: an AuthenticationConfiguration, which is followed.
    #[arg(long, value_name = "FILE")]
    pub authentication_config: Option<PathBuf>,
    /// Kubeconfig of a server that is asked about tokens.
    #[arg(long, value_name = "FILE")]
    pub authentication_token_webhook_config_file: Option<PathBuf>,
    /// Version of the TokenReview that it gets: v1 or v1beta1.
    #[arg(long, default_value = "v1beta1", value_name = "VERSION")]
    pub authentication_token_webhook_version: Version,
    /// How long its answers are good; 0 for not at all.
    #[arg(long, default_value = "2m0s", value_parser = parse_duration, value_name = "DURATION")]
    pub authentication_token_webhook_cache_ttl: Duration,

    /// URL of an issuer of OpenID Connect whose tokens are taken; https only.
    #[arg(long, value_name = "URL")]
    pub oidc_issuer_url: Option<String>,
    /// Client id that its tokens must be for.
    #[arg(long, value_name = "ID")]
    pub oidc_client_id: Option<String>,
    /// Who vouches for its server [default: whom the machine trusts].
    #[arg(long, value_name = "FILE")]
    pub oidc_ca_file: Option<PathBuf>,
    /// Claim that is the user name.
    #[arg(long, default_value = "sub", value_name = "CLAIM")]
    pub oidc_username_claim: String,
    /// What is put before it; - for nothing [default: the issuer and #, unless the claim is email].
    #[arg(long, allow_hyphen_values = true, value_name = "PREFIX")]
    pub oidc_username_prefix: Option<String>,
    /// Claim with the user's groups.
    #[arg(long, value_name = "CLAIM")]
    pub oidc_groups_claim: Option<String>,
    /// What is put before each of them.
    #[arg(long, value_name = "PREFIX")]
    pub oidc_groups_prefix: Option<String>,
    /// Algorithms that its tokens may be signed with.
    #[arg(long, value_delimiter = ',', default_value = "RS256", value_name = "NAMES")]
    pub oidc_signing_algs: Vec<String>,
    /// Claims that its tokens must have, with their values. Repeatable.
    #[arg(long, value_delimiter = ',', value_name = "CLAIM=VALUE")]
    pub oidc_required_claim: Vec<String>,

    /// Host by which the server names itself in what it tells of its issuer.
    #[arg(long, value_name = "HOST")]
    pub external_hostname: Option<String>,
    /// Where the keys of service account tokens are asked for [default: below the server's own address].
    #[arg(long, value_name = "URL")]
    pub service_account_jwks_uri: Option<String>,
    /// For how long service account tokens are given at most; 0 for as long as anybody may ask.
    #[arg(long, default_value = "0", value_parser = parse_duration, value_name = "DURATION")]
    pub service_account_max_token_expiration: Duration,
    /// Tokens that nodes get for pods are good for a year, so that clients go on that never read them again.
    #[arg(long, default_value = "true", num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set, value_parser = parse_bool, value_name = "BOOL")]
    pub service_account_extend_token_expiration: bool,
}

impl AuthenticationArgs {
    /// For how many seconds tokens are given at most, where it is limited.
    pub fn token_seconds_max(&self) -> Result<Option<i64>> {
        match self.service_account_max_token_expiration.as_secs() {
            0 => Ok(None),
            seconds @ TOKEN_SECONDS_MIN..=TOKEN_SECONDS_MAX => Ok(Some(i64::try_from(seconds)?)),
            _ => bail!("the service-account-max-token-expiration must be between 1 hour and 2^32 seconds"),
        }
    }

    /// Where the keys of tokens are asked for, of a server at an address.
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

    /// The issuer that options describe.
    fn issuer(&self) -> Result<Option<Settings>> {
        if !self.uses_oidc() {
            return Ok(None);
        }
        let (Some(url), Some(client)) = (&self.oidc_issuer_url, &self.oidc_client_id) else {
            bail!("oidc-issuer-url and oidc-client-id must be specified together when any oidc-* flags are set");
        };
        let https = url.parse::<http::Uri>().is_ok_and(|url| url.scheme_str() == Some("https"));
        anyhow::ensure!(https, "oidc-issuer-url: {url:?}: URL scheme must be https");
        if let Some(other) = self.oidc_signing_algs.iter().find(|name| !ALGORITHMS.contains(&name.as_str())) {
            bail!("oidc: unsupported signing alg: {other:?}");
        }
        let authority = self.oidc_ca_file.clone().map(Pem::File);
        if let Some(Err(why)) = authority.as_ref().map(Pem::certificates) {
            bail!("--oidc-ca-file: {why}");
        }
        let required = self.oidc_required_claim.iter().map(|pair| match pair.split_once('=') {
            Some((claim, value)) => Ok((claim.to_owned(), value.to_owned())),
            None => Err(anyhow!("--oidc-required-claim={pair}: expected CLAIM=VALUE")),
        });
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
            url: url.clone(),
            discovery_url: None,
            authority,
            audiences: vec![client.clone()],
            algorithms: self.oidc_signing_algs.clone(),
            mapping: Mapping {
                username: Source::Claim { name: self.oidc_username_claim.clone(), prefix },
                groups,
                uid: None,
                extra: Vec::new(),
            },
            rules: Rules { required: required.collect::<Result<_>>()?, ..Rules::default() },
        }))
    }
}

/// Who finds out who asks. `anonymous` is what options say.
pub async fn authenticator(args: &Args, anonymous: bool) -> Result<Authenticator> {
    let own = service_accounts(args)?;
    let own_issuers = own_issuers(args);
    let (issuers, told) = issuers(&args.authentication, &own_issuers)?;
    let mut all: Vec<Arc<dyn Elsewhere>> = Vec::new();
    all.extend(issuers.map(|issuers| issuers as Arc<dyn Elsewhere>));
    let webhook = &args.authentication;
    if let Some(file) = &webhook.authentication_token_webhook_config_file {
        let agent = format!("kube-apiserver/{API_VERSION}");
        let (version, ttl) =
            (webhook.authentication_token_webhook_version, webhook.authentication_token_webhook_cache_ttl);
        let asked = Webhook::new(file, version, ttl, &agent).await;
        all.push(Arc::new(
            asked.with_context(|| format!("--authentication-token-webhook-config-file={}", file.display()))?,
        ));
    }
    let anonymous = match told {
        Some(AnonymousUsers { enabled: false, .. }) => Anonymous::Never,
        Some(AnonymousUsers { paths, .. }) if !paths.is_empty() => Anonymous::Paths(paths),
        _ if anonymous => Anonymous::Always,
        _ => Anonymous::Never,
    };
    Ok(Authenticator {
        anonymous,
        static_tokens: match &args.token_auth_file {
            None => Arc::default(),
            Some(file) => {
                let tokens = static_tokens(&read(file)?).map_err(|why| anyhow!("{}: {why}", file.display()))?;
                Arc::new(tokens)
            }
        },
        service_accounts: own.map(Arc::new),
        bootstrap_tokens: args.authentication.enable_bootstrap_token_auth,
        elsewhere: (!all.is_empty()).then(|| Arc::new(Others::new(all)) as Arc<dyn Elsewhere>),
        request_headers: Arc::new(aggregation::request_headers(args)),
    })
}

/// The issuers that options or a file name, and whom the file lets be anonymous.
fn issuers(args: &AuthenticationArgs, own: &[String]) -> Result<(Option<Arc<Issuers>>, Option<AnonymousUsers>)> {
    let one = args.issuer()?;
    let Some(file) = &args.authentication_config else {
        return Ok((one.map(|one| Issuers::start(vec![one])), None));
    };
    anyhow::ensure!(one.is_none(), "authentication-config file and oidc-* flags are mutually exclusive");
    let text = read(file)?;
    let configuration = Configuration::read(&text, own)
        .map_err(|faults| anyhow!("{}: {}", file.display(), holdfast_component::options::joined(&faults)))?;
    let (issuers, anonymous) = (Issuers::start(configuration.issuers), configuration.anonymous);
    tokio::spawn(issuers.clone().follow(file.clone(), text, anonymous.clone(), own.to_vec()));
    Ok((Some(issuers), anonymous))
}

fn own_issuers(args: &Args) -> Vec<String> {
    match args.service_account_issuer.as_slice() {
        [] => vec![ISSUER.to_owned()],
        issuers => issuers.to_vec(),
    }
}

fn service_accounts(args: &Args) -> Result<Option<ServiceAccountTokens>> {
    let signing = args.service_account_signing_key_file.as_deref().map(read).transpose()?;
    let verifying: Vec<String> = args.service_account_key_file.iter().map(read).collect::<Result<_>>()?;
    if signing.is_none() && verifying.is_empty() {
        return Ok(None);
    }
    ServiceAccountTokens::new(own_issuers(args), args.api_audiences.clone(), signing.as_deref(), &verifying)
        .map(Some)
        .map_err(|why| anyhow!("service account keys: {why}"))
}
