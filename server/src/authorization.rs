//! Builds the chain of authorizers from the options.

use crate::files::read;
use crate::host::server_id_hash;
use anyhow::{Context, Result, anyhow};
use arc_swap::ArcSwap;
use holdfast_authorization::{Authorizer, ChainFault, ChainFile, Configuration, Connection, Webhooks, chain};
use holdfast_component::options::joined;
use holdfast_component::values::parse_duration;
use holdfast_core::authz::abac::Policies;
use holdfast_core::authz::chain::{Chain, Mode, Way};
use holdfast_core::authz::paths::OpenPath;
use holdfast_core::authz::webhook::{OnFailure, Webhook};
use holdfast_outbound::Dialer;
use holdfast_outbound::reviews::ReviewVersion;
use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

/// The timeout of a webhook that options name.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The timeout of a delegated authorization request.
const DELEGATED_TIMEOUT: Duration = Duration::from_secs(10);
/// How long answers of delegated authorization are cached by default.
const DELEGATED_TIME: Duration = Duration::from_secs(10);
/// How long the webhook's answers that allow a request are cached by default.
const ALLOWED_TIME: Duration = Duration::from_secs(300);
/// How long all other answers of the webhook are cached by default.
const OTHER_TIME: Duration = Duration::from_secs(30);
/// The path to which delegated authorization requests are posted.
const REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
/// Paths that need no authorization by default when another server authorizes.
const OPEN_PATHS: [&str; 3] = ["/healthz", "/readyz", "/livez"];

/// The options of authorization.
#[derive(clap::Args, Debug, Clone)]
#[command(next_help_heading = "Authorization")]
pub struct AuthorizationArgs {
    /// Authorization modes, asked in the given order: AlwaysAllow, AlwaysDeny, ABAC, Webhook, RBAC, Node [default:
    /// AlwaysAllow, and RBAC with up].
    #[arg(long, value_delimiter = ',', value_name = "MODES")]
    pub authorization_mode: Option<Vec<ModeName>>,
    /// An AuthorizationConfiguration: the authorizers and their order. The server reloads the file when it changes.
    #[arg(long, value_name = "FILE")]
    pub authorization_config: Option<PathBuf>,
    /// Policies for the mode ABAC, one on each line.
    #[arg(long, value_name = "FILE")]
    pub authorization_policy_file: Option<PathBuf>,
    /// Kubeconfig of the webhook for the mode Webhook.
    #[arg(long, value_name = "FILE")]
    pub authorization_webhook_config_file: Option<PathBuf>,
    /// Version of the SubjectAccessReviews that are sent to the webhook: v1beta1 or v1 [default: v1beta1].
    #[arg(long, value_parser = |text: &str| ReviewVersion::parse("webhook authorizer", text), value_name = "VERSION")]
    pub authorization_webhook_version: Option<ReviewVersion>,
    /// How long the webhook's answers that allow a request are cached; 0 for not at all [default: 5m0s, and 10s with
    /// --authorization-kubeconfig].
    #[arg(long, value_parser = parse_duration, value_name = "DURATION")]
    pub authorization_webhook_cache_authorized_ttl: Option<Duration>,
    /// How long the webhook's answers that do not allow a request are cached; 0 for not at all [default: 30s, and 10s
    /// with --authorization-kubeconfig].
    #[arg(long, value_parser = parse_duration, value_name = "DURATION")]
    pub authorization_webhook_cache_unauthorized_ttl: Option<Duration>,
    /// Kubeconfig of another API server, which authorizes the requests that no mode has decided.
    #[arg(long, alias = "authorization-coreconfig", value_name = "FILE")]
    pub authorization_kubeconfig: Option<PathBuf>,
    /// Paths that need no authorization; a trailing * allows every path with this prefix [default: none, and
    /// /healthz,/readyz,/livez with --authorization-kubeconfig].
    #[arg(long, value_delimiter = ',', value_name = "PATHS")]
    pub authorization_always_allow_paths: Option<Vec<OpenPath>>,
}

/// The name of an authorization mode, not checked yet: the option may be given several times, and all names are checked
/// together.
#[derive(Debug, Clone)]
pub struct ModeName(String);

impl FromStr for ModeName {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<ModeName, Infallible> {
        Ok(ModeName(text.to_owned()))
    }
}

/// The chain of authorizers with its webhooks and the files that are followed.
pub struct Authorization {
    pub chain: Arc<ArcSwap<Chain>>,
    pub webhooks: Arc<Webhooks>,
    pub followed: Option<ChainFile>,
    /// Whether the policy file has lines without a version.
    pub has_unversioned: bool,
}

impl AuthorizationArgs {
    /// Builds the chain from options and files; the error lists all their faults.
    pub fn authorization(&self, default: Mode, dialer: &Dialer) -> Result<Authorization, Vec<String>> {
        let mut faults = self.contradictions();
        let configured = match &self.authorization_config {
            Some(file) => configuration(file).map(|(authorizers, text)| (authorizers, Some((file.clone(), text)))),
            None => Ok((self.by_options(default), None)),
        };
        let policies = self.authorization_policy_file.as_deref().map(policies).transpose();
        // A file that cannot be read must not hide the faults of the other files.
        let (none, mut wrong) = (Arc::default(), Vec::new());
        let (authorizers, text) = configured.map_err(|found| wrong.extend(found)).unwrap_or_default();
        let is_read = wrong.is_empty();
        let has_abac = authorizers.iter().any(|authorizer| authorizer.mode() == Mode::Abac);
        if is_read && self.authorization_policy_file.is_some() && !has_abac {
            wrong.push("cannot specify --authorization-policy-file without mode ABAC".into());
        }
        let policies = policies.map_err(|why| wrong.push(format!("{why:#}")));
        let known = policies.as_ref().map_or(Some(&none), Option::as_ref);
        let chained = chain(authorizers, known, dialer);
        let option = match (&self.authorization_config, &self.authorization_webhook_config_file) {
            (Some(_), _) => "authorization-config",
            (None, Some(_)) => "authorization-webhook-config-file",
            (None, None) => "authorization-kubeconfig",
        };
        let chained = chained.map_err(|found| {
            wrong.extend(found.iter().map(|why| match why {
                ChainFault::NoPolicies => why.to_string(),
                ChainFault::Webhook(_) => format!("--{option}: {why}"),
            }))
        });
        for why in wrong {
            if !faults.contains(&why) {
                faults.push(why);
            }
        }
        let (Ok(policies), Ok((chain, webhooks)), true) = (policies, chained, faults.is_empty()) else {
            return Err(faults);
        };
        let has_unversioned = policies.as_ref().is_some_and(|policies| policies.has_unversioned);
        let chain = Arc::new(ArcSwap::from_pointee(self.with_open_paths(chain)));
        let webhooks = Webhooks::new(webhooks, server_id_hash());
        let followed = text.map(|(file, text)| {
            let (chain, webhooks, dialer) = (chain.clone(), webhooks.clone(), dialer.clone());
            ChainFile { file, text, policies, chain, webhooks, dialer }
        });
        Ok(Authorization { chain, webhooks, followed, has_unversioned })
    }

    /// The modes of `--authorization-mode`, if it is given.
    fn modes(&self) -> Result<Option<Vec<Mode>>, String> {
        let Some(names) = &self.authorization_mode else { return Ok(None) };
        let names: Vec<&str> = names.iter().map(|ModeName(name)| name.as_str()).collect();
        Mode::parse_list(&names).map(Some)
    }

    /// All faults of the options and of the files that they name.
    pub fn faults(&self, dialer: &Dialer) -> Vec<String> {
        // The default mode does not change which faults there are.
        self.authorization(Mode::AlwaysAllow, dialer).err().unwrap_or_default()
    }

    fn contradictions(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let modes = self.modes().unwrap_or_else(|why| {
            faults.push(why);
            None
        });
        let has = |mode| modes.as_ref().is_some_and(|modes| modes.contains(&mode));
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
        if !faults.is_empty() {
            // The modes are unknown, so the options cannot be checked against them.
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
        let modes = match (self.modes(), &self.authorization_kubeconfig) {
            (Ok(Some(modes)), _) => modes,
            // Another server authorizes, or `contradictions` has reported the fault.
            (Ok(None), Some(_)) | (Err(_), _) => Vec::new(),
            (Ok(None), None) => vec![default],
        };
        let of_mode = |mode| match (mode, &self.authorization_webhook_config_file) {
            (Mode::Webhook, Some(file)) => Some(self.webhook(file)),
            // `contradictions` reports the missing file.
            (Mode::Webhook, None) => None,
            (mode, _) => Some(Authorizer::Of(mode)),
        };
        let mut authorizers: Vec<Authorizer> = modes.into_iter().filter_map(of_mode).collect();
        authorizers.extend(self.authorization_kubeconfig.as_deref().map(|file| self.delegated(file)));
        authorizers
    }

    fn webhook(&self, file: &Path) -> Authorizer {
        let connection = Connection {
            kubeconfig: file.to_owned(),
            path: "",
            version: self.authorization_webhook_version.unwrap_or(ReviewVersion::V1Beta1),
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
            version: ReviewVersion::V1,
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

/// Reads an AuthorizationConfiguration; returns its authorizers and its text.
fn configuration(file: &Path) -> Result<(Vec<Authorizer>, String), Vec<String>> {
    let text = read(file).map_err(|why| vec![format!("--authorization-config={}: {why:#}", file.display())])?;
    match Configuration::read(&text) {
        Ok(configuration) => Ok((configuration.authorizers, text)),
        Err(faults) => Err(vec![format!("--authorization-config={}: {}", file.display(), joined(&faults))]),
    }
}

fn policies(file: &Path) -> Result<Arc<Policies>> {
    let text = read(file).with_context(|| format!("--authorization-policy-file={}", file.display()))?;
    let policies = Policies::read(&file.display().to_string(), &text);
    let policies = policies.map_err(|why| anyhow!("--authorization-policy-file: {why}"))?;
    Ok(Arc::new(policies))
}
