//! From options to the chain of authorizers.

use crate::apiserver::{read, server_id_hash};
use anyhow::{Context, Result, anyhow};
use holdfast_authorization::{Authorizer, Configuration, Connection, Followed, Version, Webhooks, chain};
use holdfast_component::options::joined;
use holdfast_component::values::parse_duration;
use holdfast_core::authz::abac::Policies;
use holdfast_core::authz::chain::{Chain, Configured, Mode, Way};
use holdfast_core::authz::paths::OpenPath;
use holdfast_core::authz::webhook::{OnFailure, Webhook};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// How long a webhook that options name may take.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The same of a server that decides for this one, and how long its answers are good.
const DELEGATED_TIMEOUT: Duration = Duration::from_secs(10);
const DELEGATED_TIME: Duration = Duration::from_secs(10);
const ALLOWED_TIME: Duration = Duration::from_secs(300);
const OTHER_TIME: Duration = Duration::from_secs(30);
/// What is asked of a server that decides for this one.
const REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
/// Open where another server decides.
const OPEN_PATHS: [&str; 3] = ["/healthz", "/readyz", "/livez"];

/// Who may do what.
#[derive(clap::Args, Debug, Clone)]
#[command(next_help_heading = "Authorization")]
pub struct AuthorizationArgs {
    /// AlwaysAllow, AlwaysDeny, ABAC, Webhook, RBAC and Node, asked in this order [default: AlwaysAllow, and RBAC with up].
    #[arg(long, value_parser = parse_modes, value_name = "MODES")]
    pub authorization_mode: Option<Modes>,
    /// An AuthorizationConfiguration, which names the authorizers and their order, and is followed while the server runs.
    #[arg(long, value_name = "FILE")]
    pub authorization_config: Option<PathBuf>,
    /// Policies of the mode ABAC, a line each.
    #[arg(long, value_name = "FILE")]
    pub authorization_policy_file: Option<PathBuf>,
    /// Kubeconfig of the server that the mode Webhook asks.
    #[arg(long, value_name = "FILE")]
    pub authorization_webhook_config_file: Option<PathBuf>,
    /// Version of the SubjectAccessReviews that it gets: v1beta1 or v1 [default: v1beta1].
    #[arg(long, value_name = "VERSION")]
    pub authorization_webhook_version: Option<Version>,
    /// How long its answers are good that allow; 0 for not at all [default: 5m0s, and 10s with --authorization-kubeconfig].
    #[arg(long, value_parser = parse_duration, value_name = "DURATION")]
    pub authorization_webhook_cache_authorized_ttl: Option<Duration>,
    /// How long its other answers are good; 0 for not at all [default: 30s, and 10s with --authorization-kubeconfig].
    #[arg(long, value_parser = parse_duration, value_name = "DURATION")]
    pub authorization_webhook_cache_unauthorized_ttl: Option<Duration>,
    /// Kubeconfig of another API server, which is asked about all that no mode decides.
    #[arg(long, value_name = "FILE")]
    pub authorization_kubeconfig: Option<PathBuf>,
    /// Paths that everybody may ask for, with a trailing * all that begin so
    /// [default: none, and /healthz,/readyz,/livez with --authorization-kubeconfig].
    #[arg(long, value_delimiter = ',', value_name = "PATHS")]
    pub authorization_always_allow_paths: Option<Vec<OpenPath>>,
}

/// Authorization modes in their order.
#[derive(Debug, Clone)]
pub struct Modes(pub Vec<Mode>);

fn parse_modes(text: &str) -> Result<Modes, String> {
    Mode::parse_list(text).map(Modes)
}

/// The chain, and what belongs to it.
pub struct Authorization {
    pub chain: Configured,
    pub webhooks: Arc<Webhooks>,
    pub followed: Option<Followed>,
    /// Whether there are lines in the policy file that say no version.
    pub has_unversioned: bool,
}

impl AuthorizationArgs {
    /// What options and files say; all that is wrong with the options at once.
    pub fn authorization(&self, default: Mode) -> Result<Authorization> {
        let faults = self.contradictions();
        if !faults.is_empty() {
            return Err(anyhow!(joined(&faults)));
        }
        let (authorizers, text) = match &self.authorization_config {
            Some(file) => {
                let text = read(file).with_context(|| format!("--authorization-config={}", file.display()))?;
                let configuration = Configuration::read(&text);
                let configuration = configuration
                    .map_err(|faults| anyhow!("--authorization-config={}: {}", file.display(), joined(&faults)))?;
                (configuration.authorizers, Some((file.clone(), text)))
            }
            None => (self.by_options(default), None),
        };
        let has_abac = authorizers.iter().any(|authorizer| authorizer.mode() == Mode::Abac);
        if self.authorization_policy_file.is_some() && !has_abac {
            return Err(anyhow!("cannot specify --authorization-policy-file without mode ABAC"));
        }
        let policies = self.authorization_policy_file.as_deref().map(policies).transpose();
        // A file that cannot be read is no reason to tell less of the others.
        let (none, mut faults) = (Arc::default(), Vec::new());
        let chained = chain(authorizers, policies.as_ref().map_or(Some(&none), Option::as_ref));
        let option = match (&self.authorization_config, &self.authorization_webhook_config_file) {
            (Some(_), _) => "authorization-config",
            (None, Some(_)) => "authorization-webhook-config-file",
            (None, None) => "authorization-kubeconfig",
        };
        let policies = policies.map_err(|why| faults.push(format!("{why:#}")));
        let chained = chained.map_err(|why| faults.push(format!("--{option}: {why}")));
        let (Ok(policies), Ok((chain, webhooks))) = (policies, chained) else { return Err(anyhow!(joined(&faults))) };
        let has_unversioned = policies.as_ref().is_some_and(|policies| policies.has_unversioned);
        let chain: Configured = self.with_open_paths(chain).into();
        let webhooks = Webhooks::new(webhooks, server_id_hash());
        let followed = text.map(|(file, text)| {
            let (chain, webhooks) = (chain.clone(), webhooks.clone());
            Followed { file, text, policies, chain, webhooks }
        });
        Ok(Authorization { chain, webhooks, followed, has_unversioned })
    }

    fn modes(&self) -> &[Mode] {
        self.authorization_mode.as_ref().map_or(&[], |modes| &modes.0)
    }

    /// All that is wrong with the options and the files that they name.
    pub fn faults(&self) -> Vec<String> {
        let faults = self.contradictions();
        if !faults.is_empty() {
            return faults;
        }
        // Whether all is well does not hang on the mode that options do not name.
        self.authorization(Mode::AlwaysAllow).err().map(|why| format!("{why:#}")).into_iter().collect()
    }

    fn contradictions(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let has = |mode| self.modes().contains(&mode);
        let webhook = self.authorization_webhook_config_file.is_some();
        if self.authorization_config.is_some() {
            let others = webhook
                || self.authorization_mode.is_some()
                || self.authorization_webhook_version.is_some()
                || self.authorization_webhook_cache_authorized_ttl.is_some()
                || self.authorization_webhook_cache_unauthorized_ttl.is_some();
            if others {
                faults.push(
                    "--authorization-config can not be specified when --authorization-mode or \
                     --authorization-webhook-* flags are defined"
                        .into(),
                );
            }
            for (option, given) in [
                ("authorization-kubeconfig", self.authorization_kubeconfig.is_some()),
                ("authorization-always-allow-paths", self.authorization_always_allow_paths.is_some()),
            ] {
                if given {
                    faults.push(format!("--{option} can not be specified together with --authorization-config"));
                }
            }
            return faults;
        }
        if has(Mode::Abac) && self.authorization_policy_file.is_none() {
            faults.push("authorization-mode ABAC's authorization policy file not passed".into());
        }
        if !has(Mode::Abac) && self.authorization_policy_file.is_some() {
            faults.push("cannot specify --authorization-policy-file without mode ABAC".into());
        }
        if has(Mode::Webhook) && !webhook {
            faults.push("authorization-mode Webhook's authorization config file not passed".into());
        }
        if !has(Mode::Webhook) && webhook {
            faults.push("cannot specify --authorization-webhook-config-file without mode Webhook".into());
        }
        faults
    }

    fn by_options(&self, default: Mode) -> Vec<Authorizer> {
        let modes = match (&self.authorization_mode, &self.authorization_kubeconfig) {
            (Some(modes), _) => modes.0.clone(),
            // Another server decides.
            (None, Some(_)) => Vec::new(),
            (None, None) => vec![default],
        };
        let of_mode = |mode| match (mode, &self.authorization_webhook_config_file) {
            (Mode::Webhook, Some(file)) => self.webhook(file),
            (mode, _) => Authorizer::Of(mode),
        };
        let mut authorizers: Vec<Authorizer> = modes.into_iter().map(of_mode).collect();
        authorizers.extend(self.authorization_kubeconfig.as_deref().map(|file| self.delegated(file)));
        authorizers
    }

    fn webhook(&self, file: &Path) -> Authorizer {
        let connection = Connection {
            kubeconfig: file.to_owned(),
            path: "",
            version: self.authorization_webhook_version.unwrap_or(Version::V1Beta1),
            timeout: TIMEOUT,
            allowed_time: self.authorization_webhook_cache_authorized_ttl.unwrap_or(ALLOWED_TIME),
            other_time: self.authorization_webhook_cache_unauthorized_ttl.unwrap_or(OTHER_TIME),
            on_failure: OnFailure::NoOpinion,
        };
        named("webhook", connection)
    }

    fn delegated(&self, file: &Path) -> Authorizer {
        let connection = Connection {
            kubeconfig: file.to_owned(),
            path: REVIEWS,
            version: Version::V1,
            timeout: DELEGATED_TIMEOUT,
            allowed_time: self.authorization_webhook_cache_authorized_ttl.unwrap_or(DELEGATED_TIME),
            other_time: self.authorization_webhook_cache_unauthorized_ttl.unwrap_or(DELEGATED_TIME),
            on_failure: OnFailure::NoOpinion,
        };
        named("delegated", connection)
    }

    fn with_open_paths(&self, chain: Chain) -> Chain {
        let open = match (&self.authorization_always_allow_paths, &self.authorization_kubeconfig) {
            (Some(paths), _) => paths.clone(),
            (None, Some(_)) => OPEN_PATHS.iter().filter_map(|path| path.parse().ok()).collect(),
            (None, None) => return chain,
        };
        chain.behind(Way::Paths(open))
    }
}

fn named(name: &str, connection: Connection) -> Authorizer {
    let webhook = Webhook { name: name.to_owned(), conditions: Vec::new(), on_failure: connection.on_failure };
    Authorizer::Webhook { webhook, connection }
}

fn policies(file: &Path) -> Result<Arc<Policies>> {
    let text = read(file).with_context(|| format!("--authorization-policy-file={}", file.display()))?;
    let policies = Policies::read(&file.display().to_string(), &text);
    let policies = policies.map_err(|why| anyhow!("--authorization-policy-file: {why}"))?;
    Ok(Arc::new(policies))
}
