//! The authenticator that options configure.

pub mod options;

use crate::aggregation;
use crate::files::{posting, read};
use crate::flags::Args;
use anyhow::{Context, Result, anyhow};
use arc_swap::ArcSwap;
use holdfast_authentication::configuration::{
    Anonymous as AnonymousUsers, Configuration, Issuers, ServerAuthentication,
};
use holdfast_authentication::oidc::Settings;
use holdfast_authentication::webhook::Webhook;
use holdfast_authentication::{Agnostic, Metrics, VerifierChain};
use holdfast_component::api::{Api, ApiServer};
use holdfast_component::authentication::{self as delegated, NeededTrust};
use holdfast_component::options::joined;
use holdfast_core::authz::User;
use holdfast_service::Elsewhere;
use holdfast_tls::server::LiveTls;
use holdfast_transport_http::authenticate::basic::Passwords;
use holdfast_transport_http::authenticate::{Anonymous, Authenticator, static_tokens};
use holdfast_transport_http::paths::API_VERSION;
use holdfast_transport_http::tokens::ServiceAccountTokens;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

/// The default issuer of service account tokens.
const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

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

/// Checks that no issuer of service account tokens is empty, an invalid URL, or named twice.
fn named_issuers(args: &Args) -> Result<()> {
    let all = &args.credentials.service_account_issuer;
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

fn tokens(args: &Args) -> Result<Arc<HashMap<String, Arc<User>>>> {
    let Some(file) = &args.credentials.token_auth_file else { return Ok(Arc::default()) };
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
        elsewhere: (!all.is_empty()).then(|| Arc::new(VerifierChain::new(all, metrics.clone())) as Arc<dyn Elsewhere>),
        request_headers: Arc::new(ArcSwap::from_pointee(aggregation::request_headers(args))),
    };
    Ok((authenticator, metrics))
}

/// Reads the client and front-proxy authorities that no option names from the API server of
/// `--authentication-kubeconfig`.
pub async fn look_up(args: &Args, tls: &Arc<LiveTls>, authenticator: &Authenticator) -> Result<()> {
    let options = &args.authentication;
    let wanted = NeededTrust {
        client_authorities: args.credentials.client_ca_file.is_none(),
        front_proxies: args.front_proxy.requestheader_client_ca_file.is_none(),
    };
    let Some(file) = &options.authentication_kubeconfig else { return Ok(()) };
    if options.authentication_skip_lookup || !(wanted.client_authorities || wanted.front_proxies) {
        return Ok(());
    }
    let agent = format!("kube-apiserver/{API_VERSION}");
    let place = ApiServer { kubeconfig: Some(file), agent: &agent, ..ApiServer::default() };
    let api = Arc::new(Api::new(kube::Client::try_from(place.config().await?)?));
    let tolerates = options.authentication_tolerate_lookup_failure;
    delegated::look_up(api, wanted, tls, &authenticator.request_headers, tolerates)
        .await
        .map_err(|why| anyhow!("--authentication-kubeconfig={}: {why}", file.display()))
}

/// The issuers and the anonymous users, from the options and from the file of `--authentication-config`.
struct IssuerSettings {
    issuers: Vec<Settings>,
    anonymous: Option<AnonymousUsers>,
    /// The file of `--authentication-config`, with its text.
    file: Option<(PathBuf, String)>,
}

fn told(args: &Args) -> Result<IssuerSettings, Vec<String>> {
    let options = &args.authentication;
    let Some(file) = &options.authentication_config else {
        let issuers = options.issuer()?.into_iter().collect();
        return Ok(IssuerSettings { issuers, anonymous: None, file: None });
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
    if args.credentials.anonymous_auth.is_some() && configuration.anonymous.is_some() {
        return Err(vec![
            "anonymous-auth cannot be set when the anonymous field is configured in the authentication-config file"
                .into(),
        ]);
    }
    let Configuration { issuers, anonymous } = configuration;
    Ok(IssuerSettings { issuers, anonymous, file: Some((file.clone(), text)) })
}

/// Starts fetching the issuers' keys, and following the configuration file.
fn followed(
    issuers: Vec<Settings>,
    file: &Option<(PathBuf, String)>,
    anonymous: &Option<AnonymousUsers>,
    own: ServerAuthentication,
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
    match args.credentials.api_audiences.as_slice() {
        [] => own_issuers(args),
        audiences => audiences.to_vec(),
    }
}

/// The settings of this server with which the configuration of issuers must be compatible.
fn this_server(args: &Args) -> ServerAuthentication {
    let is_on = args.api_gates().is_ok_and(|gates| gates.egress_of_issuers);
    let egress = aggregation::egress(args).unwrap_or_default();
    ServerAuthentication { own_issuers: own_issuers(args), egress: is_on.then_some(egress) }
}

fn own_issuers(args: &Args) -> Vec<String> {
    match args.credentials.service_account_issuer.as_slice() {
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
    let signing = args.credentials.service_account_signing_key_file.as_ref();
    let signing = signing.and_then(|file| text("service-account-signing-key-file", file));
    let verifying: Vec<String> = args
        .credentials
        .service_account_key_file
        .iter()
        .filter_map(|file| text("service-account-key-file", file))
        .collect();
    anyhow::ensure!(faults.is_empty(), faults.join("; "));
    if signing.is_none() && verifying.is_empty() {
        return Ok(None);
    }
    ServiceAccountTokens::new(own_issuers(args), args.credentials.api_audiences.clone(), signing.as_deref(), &verifying)
        .map(Some)
        .map_err(|why| {
            let options = "--service-account-signing-key-file, --service-account-key-file";
            anyhow!("{options}: service account keys: {why}")
        })
}
