//! The AuthorizationConfiguration: the authorizers, their order, and the settings of webhooks.

use crate::webhook::Connection;
use holdfast_core::authz::chain::Mode;
use holdfast_core::authz::webhook::{Condition, OnFailure, Webhook};
use holdfast_core::object::names;
use holdfast_core::object::reader::{Reader, read_text};
use holdfast_outbound::reviews::ReviewVersion;
use holdfast_value::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

const GROUP: &str = "apiserver.config.k8s.io";
const VERSIONS: [&str; 3] = ["v1", "v1beta1", "v1alpha1"];
const KIND: &str = "AuthorizationConfiguration";
const AUTHORIZERS_MAX: usize = 64;
const CONDITIONS_MAX: usize = 64;
const TIMEOUT_MAX: Duration = Duration::from_secs(30);
const ALLOWED_TIME: Duration = Duration::from_secs(300);
const OTHER_TIME: Duration = Duration::from_secs(30);
/// The types of authorizers, as the error about an unknown type lists them.
const TYPES: [&str; 6] = ["ABAC", "AlwaysAllow", "AlwaysDeny", "Node", "RBAC", "Webhook"];

/// A parsed AuthorizationConfiguration.
#[derive(Debug)]
pub struct Configuration {
    pub authorizers: Vec<Authorizer>,
}

#[derive(Debug)]
pub enum Authorizer {
    Of(Mode),
    Webhook { webhook: Webhook, connection: Connection },
}

impl Authorizer {
    pub fn mode(&self) -> Mode {
        match self {
            Self::Of(mode) => *mode,
            Self::Webhook { .. } => Mode::Webhook,
        }
    }
}

impl Configuration {
    /// Parses a document in YAML or JSON; all errors are returned at once.
    pub fn read(text: &str) -> Result<Configuration, Vec<String>> {
        Ok(Configuration { authorizers: read_text(text, read)? })
    }
}

fn read(reader: &Reader<'_>) -> Vec<Authorizer> {
    let (kind, version) = (reader.text("kind").unwrap_or(""), reader.text("apiVersion").unwrap_or(""));
    let known = version.strip_prefix(GROUP).and_then(|rest| rest.strip_prefix('/'));
    if kind != KIND || !known.is_some_and(|known| VERSIONS.contains(&known)) {
        reader.fault("", format!("no kind {kind:?} is registered for version {version:?}"));
    }
    let list = reader.list("authorizers").unwrap_or_default();
    if list.is_empty() {
        reader.required("authorizers", "at least one authorization mode must be defined");
    }
    if list.len() > AUTHORIZERS_MAX {
        reader.fault("authorizers", format!("Too many: {}: must have at most {AUTHORIZERS_MAX} items", list.len()));
    }
    let mut seen = UsedNames::default();
    list.iter().take(AUTHORIZERS_MAX).filter_map(|one| authorizer(one, &mut seen)).collect()
}

#[derive(Default)]
struct UsedNames {
    modes: BTreeSet<Mode>,
    names: BTreeSet<String>,
}

fn authorizer(one: &Reader<'_>, seen: &mut UsedNames) -> Option<Authorizer> {
    let (kind, name) = (one.text("type").unwrap_or(""), one.text("name").unwrap_or(""));
    let webhook = one.child("webhook");
    let Some(mode) = Mode::named(kind) else {
        if kind.is_empty() {
            one.required("type", "");
        } else {
            not_supported(one, "type", kind, &TYPES);
        }
        // Further fields are not checked, because they depend on the type.
        webhook.map(Reader::lenient);
        return None;
    };
    if !seen.modes.insert(mode) && mode != Mode::Webhook {
        one.fault("type", format!("Duplicate value: {kind:?}"));
    }
    check_name(one, mode, name, seen);
    match (mode, webhook) {
        (Mode::Webhook, None) => {
            one.required("webhook", "required when type=Webhook");
            None
        }
        (Mode::Webhook, Some(own)) => webhook_of(&own, name),
        (mode, None) => Some(Authorizer::Of(mode)),
        (_, Some(own)) => {
            drop(own.lenient());
            one.invalid("webhook", "\"non-null\"", "may only be specified when type=Webhook");
            None
        }
    }
}

fn check_name(one: &Reader<'_>, mode: Mode, name: &str, seen: &mut UsedNames) {
    if name.is_empty() {
        return one.required("name", "");
    }
    if !seen.names.insert(name.to_owned()) {
        one.fault("name", format!("Duplicate value: {name:?}"));
    }
    let faults = names::subdomain(name);
    if !faults.is_empty() {
        let why = format!("authorizer name is invalid: {}", faults.join(", "));
        return one.invalid("name", format!("{name:?}"), &why);
    }
    let own = mode.name().to_ascii_lowercase();
    if mode != Mode::Webhook && name != own {
        one.invalid("name", format!("{name:?}"), &format!("must be {own:?} when type={mode}"));
    }
}

fn not_supported(one: &Reader<'_>, field: &str, value: &str, supported: &[&str]) {
    let supported: Vec<String> = supported.iter().map(|value| format!("{value:?}")).collect();
    one.fault(field, format!("Unsupported value: {value:?}: supported values: {}", supported.join(", ")));
}

fn webhook_of(own: &Reader<'_>, name: &str) -> Option<Authorizer> {
    let timeout = time(own, "timeout", None);
    let timeout = timeout.filter(|timeout| {
        let fits = *timeout <= TIMEOUT_MAX;
        if !fits {
            own.invalid("timeout", shown(own, "timeout"), "must be > 0s and <= 30s");
        }
        fits
    });
    let allowed = kept(own, "authorizedTTL", "cacheAuthorizedRequests", ALLOWED_TIME);
    let other = kept(own, "unauthorizedTTL", "cacheUnauthorizedRequests", OTHER_TIME);
    let version = own.text("subjectAccessReviewVersion").unwrap_or("");
    let parsed = ReviewVersion::parse("webhook", version).ok();
    match version {
        "" => own.required("subjectAccessReviewVersion", ""),
        other if parsed.is_none() => not_supported(own, "subjectAccessReviewVersion", other, &["v1", "v1beta1"]),
        _ => {}
    }
    let on_failure = match own.text("failurePolicy").unwrap_or("") {
        "NoOpinion" => Some(OnFailure::NoOpinion),
        "Deny" => Some(OnFailure::Deny),
        "" => {
            own.required("failurePolicy", "");
            None
        }
        other => {
            not_supported(own, "failurePolicy", other, &["Deny", "NoOpinion"]);
            None
        }
    };
    let conditions = conditions(own);
    let kubeconfig = kubeconfig(own);
    let (timeout, version, on_failure, kubeconfig) = (timeout?, parsed?, on_failure?, kubeconfig?);
    let (allowed_time, other_time) = (allowed?, other?);
    Some(Authorizer::Webhook {
        webhook: Webhook { name: name.to_owned(), conditions, on_failure },
        connection: Connection { kubeconfig, path: "", version, timeout, allowed_time, other_time, on_failure },
    })
}

fn shown(own: &Reader<'_>, field: &str) -> String {
    own.get(field).map(Value::to_string).unwrap_or_default()
}

/// Reads a field that must be a duration above zero.
fn time(own: &Reader<'_>, field: &str, default: Option<Duration>) -> Option<Duration> {
    if own.get(field).is_none() {
        if default.is_none() {
            own.required(field, "");
        }
        return default;
    }
    let seconds = own.seconds(field)?;
    let time = Duration::try_from_secs_f64(seconds).ok().filter(|time| !time.is_zero());
    if time.is_none() {
        own.invalid(
            field,
            shown(own, field),
            if default.is_none() { "must be > 0s and <= 30s" } else { "must be > 0s" },
        );
    }
    time
}

/// The time for which answers are cached; zero if the field `switch` is false.
fn kept(own: &Reader<'_>, field: &str, switch: &str, default: Duration) -> Option<Duration> {
    let time = time(own, field, Some(default));
    if own.bool(switch).unwrap_or(true) { time } else { time.map(|_| Duration::ZERO) }
}

fn conditions(own: &Reader<'_>) -> Vec<Condition> {
    let list = own.list("matchConditions").unwrap_or_default();
    match own.text("matchConditionSubjectAccessReviewVersion").unwrap_or("") {
        "" if !list.is_empty() => {
            let why = "required if match conditions are specified";
            own.required("matchConditionSubjectAccessReviewVersion", why);
        }
        "" | "v1" => {}
        other => not_supported(own, "matchConditionSubjectAccessReviewVersion", other, &["v1"]),
    }
    if list.len() > CONDITIONS_MAX {
        let why = format!("Too many: {}: must have at most {CONDITIONS_MAX} items", list.len());
        own.fault("matchConditions", why);
        list.into_iter().for_each(|one| drop(one.lenient()));
        return Vec::new();
    }
    let mut seen = BTreeSet::new();
    let mut conditions = Vec::new();
    for one in &list {
        let text = one.text("expression").unwrap_or("");
        if text.trim().is_empty() {
            one.required("expression", "");
        } else if !seen.insert(text) {
            one.fault("expression", format!("Duplicate value: {text:?}"));
        } else {
            match Condition::new(text) {
                Ok(condition) => conditions.push(condition),
                Err(why) => one.invalid("expression", format!("{text:?}"), &why),
            }
        }
    }
    conditions
}

fn kubeconfig(own: &Reader<'_>) -> Option<PathBuf> {
    let Some(connection) = own.child("connectionInfo") else {
        own.required("connectionInfo.type", "");
        return None;
    };
    let file = connection.text("kubeConfigFile").unwrap_or("");
    match connection.text("type").unwrap_or("") {
        "KubeConfigFile" => {}
        "" => {
            connection.required("type", "");
            return None;
        }
        "InClusterConfig" => {
            if !file.is_empty() {
                let why = "can only be set when type=KubeConfigFile";
                connection.invalid("kubeConfigFile", format!("{file:?}"), why);
            }
            connection.invalid("type", "\"InClusterConfig\"", "cannot be used when authorization-config is specified");
            return None;
        }
        other => {
            not_supported(&connection, "type", other, &["InClusterConfig", "KubeConfigFile"]);
            return None;
        }
    }
    let path = Path::new(file);
    let why = match path.metadata() {
        _ if file.is_empty() => {
            connection.required("kubeConfigFile", "");
            return None;
        }
        _ if !path.is_absolute() => "must be an absolute path".into(),
        Err(error) => format!("error loading file: {error}"),
        Ok(found) if !found.is_file() => "must be a regular file".into(),
        Ok(_) => return Some(path.to_owned()),
    };
    connection.invalid("kubeConfigFile", format!("{file:?}"), &why);
    None
}

#[cfg(test)]
#[path = "configuration_tests.rs"]
mod tests;
