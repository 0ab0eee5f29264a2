//! The EncryptionConfiguration: the encrypted resources, the providers that encrypt them, and the keys.
//!
//! The configuration is parsed strictly, and all errors are reported at once, each with the path of its field. Errors
//! never contain secrets.

use crate::cipher::Cipher;
use crate::kms::client::Endpoint;
use crate::kms::{Settings, Version};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use holdfast_core::object::reader::{Reader, read_text};
use std::collections::BTreeSet;
use std::fmt::{self, Display};
use std::time::Duration;

const KINDS: [(&str, &str); 2] =
    [("apiserver.config.k8s.io/v1", "EncryptionConfiguration"), ("v1", "EncryptionConfig")];
const TIMEOUT: f64 = 3.0;
/// The maximum timeout in seconds. Kubernetes has no such bound, but no sensible timeout is longer.
const TIMEOUT_MAX: f64 = 3600.0;
const CACHE_SIZE: i64 = 1000;

/// A parsed EncryptionConfiguration. It contains keys, so it has no `Debug`.
pub struct Configuration {
    pub(crate) entries: Vec<ResourceEntry>,
}

pub(crate) struct ResourceEntry {
    pub resources: Vec<Pattern>,
    pub providers: Vec<Provider>,
}

pub(crate) enum Provider {
    Identity,
    Keys { cipher: Cipher, keys: Vec<(String, Vec<u8>)> },
    Kms(Settings),
}

/// A resource or a set of resources that an entry of the configuration covers.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Pattern {
    /// `*.*`, which covers all resources.
    Everything,
    /// `*.apps`, and `*.` for the core group.
    Group(String),
    Resource {
        resource: String,
        group: String,
    },
}

impl Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Pattern::Everything => f.write_str("*.*"),
            Pattern::Group(group) => write!(f, "*.{group}"),
            Pattern::Resource { resource, group } if group.is_empty() => f.write_str(resource),
            Pattern::Resource { resource, group } => write!(f, "{resource}.{group}"),
        }
    }
}

impl Pattern {
    pub fn parse(text: &str) -> Pattern {
        match text.split_once('.') {
            Some(("*", "*")) => Pattern::Everything,
            Some(("*", group)) => Pattern::Group(group.into()),
            Some((resource, group)) => Pattern::Resource { resource: resource.into(), group: group.into() },
            None => Pattern::Resource { resource: text.into(), group: String::new() },
        }
    }

    /// Whether this pattern covers everything that `other` covers.
    fn masks(&self, other: &Pattern) -> bool {
        match (self, other) {
            (Pattern::Everything, _) => true,
            (Pattern::Group(own), Pattern::Group(group) | Pattern::Resource { group, .. }) => own == group,
            _ => self == other,
        }
    }

    pub fn covers(&self, resource: &str, group: &str) -> bool {
        self.masks(&Pattern::Resource { resource: resource.into(), group: group.into() })
    }

    /// A resource and group that this pattern covers and no narrower pattern does. A `*` in the result is safe, because
    /// no resource or group has this name.
    pub fn example(&self) -> (&str, &str) {
        match self {
            Pattern::Everything => ("*", "*"),
            Pattern::Group(group) => ("*", group),
            Pattern::Resource { resource, group } => (resource, group),
        }
    }
}

impl Configuration {
    /// Reads a document in YAML or JSON. KMS version 1 is accepted only if `may_use_kms_v1` is true.
    pub fn read(text: &str, may_use_kms_v1: bool) -> Result<Configuration, Vec<String>> {
        if text.trim().is_empty() {
            return Err(vec!["the encryption provider configuration file is empty".into()]);
        }
        let entries = read_text(text, |reader| read(reader, may_use_kms_v1))?;
        Ok(Configuration { entries })
    }
}

fn read(reader: &Reader<'_>, may_use_kms_v1: bool) -> Vec<ResourceEntry> {
    let (kind, version) = (reader.text("kind").unwrap_or(""), reader.text("apiVersion").unwrap_or(""));
    if !KINDS.contains(&(version, kind)) {
        reader.fault("", format!("no kind {kind:?} is registered for version {version:?}"));
    }
    // The field `metadata` is allowed and ignored.
    let _ = reader.get("metadata");
    let list = reader.list("resources").unwrap_or_default();
    if list.is_empty() {
        reader.required("resources", "at least one resource is required");
    }
    let mut names = BTreeSet::new();
    let mut before: Vec<Pattern> = Vec::new();
    let mut entries = Vec::new();
    for one in &list {
        let resources = resources(one, &before);
        before.extend(resources.iter().cloned());
        let providers = one.list("providers").unwrap_or_default();
        if providers.is_empty() {
            one.required("providers", "at least one provider is required");
        }
        let providers =
            providers.iter().filter_map(|provider| self::provider(provider, may_use_kms_v1, &mut names)).collect();
        entries.push(ResourceEntry { resources, providers });
    }
    entries
}

/// The resources of an entry. `before` has the resources of the earlier entries.
fn resources(one: &Reader<'_>, before: &[Pattern]) -> Vec<Pattern> {
    let texts = one.texts("resources").unwrap_or_default();
    if texts.is_empty() {
        one.required("resources", "at least one resource is required");
    }
    let mut patterns: Vec<Pattern> = Vec::new();
    for (at, text) in texts.into_iter().enumerate() {
        let field = format!("resources[{at}]");
        let pattern = Pattern::parse(text);
        let group = match &pattern {
            Pattern::Group(group) | Pattern::Resource { group, .. } => group.as_str(),
            Pattern::Everything => "",
        };
        let overlaps = |other: &Pattern| (other.masks(&pattern) || pattern.masks(other)) && *other != pattern;
        let masks = |other: &&Pattern| other.masks(&pattern) && **other != pattern;
        let why = if text.chars().any(char::is_uppercase) {
            "resource name should not contain capital letters".to_owned()
        } else if text == "*" {
            "use '*.' to encrypt all the resources from core API group or *.* to encrypt all resources".into()
        } else if text.is_empty() || text.starts_with('.') {
            "resource name should not be empty".into()
        } else if text != "*.*" && text.chars().skip(1).any(|c| c == '*') {
            "encrypting the same resource across groups is not supported".into()
        } else if group == "events.k8s.io" {
            "'*.events.k8s.io' objects are stored using the 'events' API group in etcd. Use 'events' instead in the \
             config file"
                .into()
        } else if group == "extensions" {
            "'extensions' group has been removed and cannot be used for encryption".into()
        } else if patterns.contains(&pattern) {
            "the same resource cannot be specified multiple times".into()
        } else if patterns.iter().any(overlaps) {
            "using overlapping resources such as 'secrets' and '*.' in the same resource list is not allowed as they \
             will be masked"
                .into()
        } else if before.iter().any(|other| masks(&other)) {
            "resource is masked by an earlier rule".into()
        } else {
            patterns.push(pattern);
            continue;
        };
        one.invalid(&field, format!("{text:?}"), &why);
    }
    patterns
}

fn provider(one: &Reader<'_>, may_use_kms_v1: bool, names: &mut BTreeSet<String>) -> Option<Provider> {
    const ALL: [&str; 5] = ["aesgcm", "aescbc", "secretbox", "identity", "kms"];
    let named: Vec<&str> = ALL.into_iter().filter(|name| one.get(name).is_some()).collect();
    let [name] = named[..] else {
        match named.is_empty() {
            true => one.invalid(
                "",
                "{}",
                "provider does not contain any of the expected providers: KMS, AESGCM, AESCBC, Secretbox, Identity",
            ),
            false => one.invalid(
                "",
                format!("{named:?}"),
                "more than one provider specified in a single element, should split into different list elements",
            ),
        }
        return None;
    };
    let settings = one.child(name)?;
    match name {
        "aesgcm" => Some(keys(&settings, Cipher::AesGcm)),
        "aescbc" => Some(keys(&settings, Cipher::AesCbc)),
        "secretbox" => Some(keys(&settings, Cipher::Secretbox)),
        "kms" => kms(&settings, may_use_kms_v1, names),
        _ => Some(Provider::Identity),
    }
}

fn keys(settings: &Reader<'_>, cipher: Cipher) -> Provider {
    let list = settings.list("keys").unwrap_or_default();
    if list.is_empty() {
        settings.required("keys", "at least one keys is required");
    }
    let mut keys: Vec<(String, Vec<u8>)> = Vec::new();
    for one in list {
        let name = one.text("name").unwrap_or("");
        if name.is_empty() {
            one.required("name", "name is a mandatory field for a key");
        } else if name.contains(':') || name.len() > 253 {
            one.invalid("name", format!("{name:?}"), "must not contain ':', and be no longer than 253 bytes");
        }
        // Errors never show the secret.
        let text = one.text("secret").unwrap_or("");
        if text.is_empty() {
            one.required("secret", "secret is a mandatory field for a key");
            continue;
        }
        let Ok(secret) = STANDARD.decode(text) else {
            one.invalid("secret", "\"REDACTED\"", "secrets must be base64 encoded");
            continue;
        };
        if !cipher.key_lengths().contains(&secret.len()) {
            let lengths = cipher.key_lengths().iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
            let (length, why) = (secret.len(), "secret is not of the expected length");
            one.invalid("secret", "\"REDACTED\"", &format!("{why}, got {length}, expected one of [{lengths}]"));
            continue;
        }
        keys.push((name.to_owned(), secret));
    }
    Provider::Keys { cipher, keys }
}

fn kms(settings: &Reader<'_>, may_use_kms_v1: bool, names: &mut BTreeSet<String>) -> Option<Provider> {
    let name = settings.text("name").unwrap_or("").to_owned();
    if name.is_empty() {
        settings.required("name", "name is a mandatory field for a provider");
    } else if name.contains(':') || name.len() > 253 {
        settings.invalid(
            "name",
            format!("{name:?}"),
            &format!("invalid KMS provider name {name}, must not contain ':'"),
        );
    }
    let version = match settings.text("apiVersion").unwrap_or("v1") {
        "v1" => Some(Version::V1),
        "v2" => Some(Version::V2),
        other => {
            let why = format!("unsupported apiVersion {other} for KMS provider, only v1 and v2 are supported");
            settings.invalid("apiVersion", format!("{other:?}"), &why);
            None
        }
    };
    if version == Some(Version::V1) && !may_use_kms_v1 {
        let why = "KMSv1 is deprecated and will only receive security updates going forward. Use KMSv2 instead. Set \
                   --feature-gates=KMSv1=true to use the deprecated KMSv1 feature";
        settings.fault("apiVersion", format!("Forbidden: {why}"));
    }
    // Only KMS version 2 requires unique names; the configuration of version 1 may repeat names.
    if version == Some(Version::V2) && !name.is_empty() && !names.insert(name.clone()) {
        let why = format!("duplicate KMS provider name {name}, names must be unique");
        settings.invalid("name", format!("{name:?}"), &why);
    }
    let timeout = match settings.get("timeout") {
        None => TIMEOUT,
        Some(_) => settings.seconds("timeout").unwrap_or(TIMEOUT),
    };
    if timeout <= 0.0 {
        settings.invalid("timeout", format!("\"{timeout}s\""), "timeout should be a positive value");
    }
    if timeout > TIMEOUT_MAX {
        settings.invalid("timeout", format!("\"{timeout}s\""), "timeout should be at most 1h");
    }
    let cache_size = settings.int("cachesize");
    match (cache_size, version) {
        (Some(size), Some(Version::V2)) => settings.invalid("cachesize", size, "cachesize is not supported in v2"),
        (Some(0), _) => {
            settings.invalid("cachesize", 0, "cachesize should be a positive value, or negative to disable");
        }
        (Some(size), _) if size > 1 << 20 => settings.invalid("cachesize", size, "cachesize should be at most 1048576"),
        _ => {}
    }
    let endpoint = endpoint(settings);
    Some(Provider::Kms(Settings {
        name,
        version: version?,
        endpoint: endpoint?,
        timeout: Duration::from_secs_f64(timeout.clamp(0.001, TIMEOUT_MAX)),
        cache_size: cache_size.unwrap_or(CACHE_SIZE),
    }))
}

fn endpoint(settings: &Reader<'_>) -> Option<Endpoint> {
    let text = settings.text("endpoint").unwrap_or("");
    if text.is_empty() {
        settings.required("endpoint", "endpoint is a mandatory field for a provider");
        return None;
    }
    let Some((scheme, rest)) = text.split_once("://") else {
        settings.invalid("endpoint", format!("{text:?}"), "invalid endpoint for kms provider, error: it is not a URL");
        return None;
    };
    if scheme != "unix" {
        let why = format!("unsupported scheme {scheme:?} for KMS provider, only unix is supported");
        settings.invalid("endpoint", format!("{text:?}"), &why);
        return None;
    }
    let path = rest.find('/').map(|at| &rest[at..]).filter(|path| path.len() > 1 && !path.contains('\0'));
    if path.is_none() {
        settings.invalid("endpoint", format!("{text:?}"), "invalid endpoint for kms provider, error: it has no path");
    }
    path.map(Endpoint::of_path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(resources: &str) -> Vec<String> {
        let text = format!("apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\n{resources}\n");
        Configuration::read(&text, false).err().unwrap_or_default()
    }

    /// An entry for these resources, in JSON.
    fn on(resources: &[&str]) -> String {
        format!("{{resources: {resources:?}, providers: [{{identity: {{}}}}]}}")
    }

    #[test]
    fn which_resources_may_stand_where() {
        for (entries, expected) in [
            (vec![on(&["secrets", "configmaps", "widgets.example.com", "*.apps"])], None),
            (
                vec![on(&["secrets"]), on(&["secrets", "*.*"])],
                Some("resources[1].resources[1]: Invalid value: \"*.*\": using over"),
            ),
            (vec![on(&["secrets"]), on(&["secrets"]), on(&["*."]), on(&["*.*"])], None),
            (vec![on(&["*"])], Some("resources[0].resources[0]: Invalid value: \"*\": use '*.' to encrypt")),
            (vec![on(&["Secrets"])], Some("should not contain capital letters")),
            (vec![on(&["*.events.k8s.io"])], Some("Use 'events' instead")),
            (vec![on(&["ingresses.extensions"])], Some("'extensions' group has been removed")),
            (vec![on(&["secrets", "secrets"])], Some("cannot be specified multiple times")),
            (vec![on(&["secrets", "*."])], Some("overlapping resources")),
            (vec![on(&["secrets.*"])], Some("across groups")),
            (vec![on(&[""])], Some("should not be empty")),
            (
                vec![on(&["*.*"]), on(&["secrets"])],
                Some("resources[1].resources[0]: Invalid value: \"secrets\": resource is masked"),
            ),
            (vec![on(&["*."]), on(&["secrets"])], Some("masked")),
            (vec![on(&["*.apps"]), on(&["secrets"])], None),
            (vec![], Some("resources: Required value: at least one resource")),
        ] {
            let told = faults(&format!("resources: [{}]", entries.join(", ")));
            match expected {
                None => assert!(told.is_empty(), "{entries:?}: {told:?}"),
                Some(part) => assert!(told.iter().any(|one| one.contains(part)), "{entries:?}: {told:?}"),
            }
        }
    }

    #[test]
    fn everything_wrong_is_told_at_once_and_no_secret_is_shown() {
        let told = faults(
            r#"resources:
- resources: [secrets]
  providers:
  - aesgcm: {keys: [{name: "", secret: aGVsbG8=}, {name: a, secret: "?hush?"}, {name: b}]}
    identity: {}
  - aescbc: {keys: [{name: "", secret: aGVsbG8=}, {name: "a:b", secret: "?hush?"}, {name: b}], more: 1}
  - secretbox: {keys: []}
  - kms: {name: "a:b", endpoint: "tcp://x", apiVersion: v3, timeout: -1s, cachesize: 0}
  - kms: {name: one, endpoint: "unix:///one"}
  - kms: {name: two, apiVersion: v2, endpoint: "unix:///one", cachesize: 5}
  - kms: {name: two, apiVersion: v2, endpoint: "unix://"}
  - {}"#,
        );
        for part in [
            "resources[0].providers[0]: Invalid value: [\"aesgcm\", \"identity\"]: more than one provider",
            "providers[1].aescbc.keys[0].name: Required value: name is a mandatory field for a key",
            "providers[1].aescbc.keys[0].secret: Invalid value: \"REDACTED\": secret is not of the expected length, got 5, expected one of [16 24 32]",
            "providers[1].aescbc.keys[1].name: Invalid value: \"a:b\"",
            "providers[1].aescbc.keys[1].secret: Invalid value: \"REDACTED\": secrets must be base64 encoded",
            "providers[1].aescbc.keys[2].secret: Required value: secret is a mandatory",
            "unknown field \"resources[0].providers[1].aescbc.more\"",
            "providers[2].secretbox.keys: Required value",
            "providers[3].kms.name: Invalid value: \"a:b\": invalid KMS provider name a:b, must not contain ':'",
            "providers[3].kms.endpoint: Invalid value: \"tcp://x\": unsupported scheme \"tcp\"",
            "providers[3].kms.apiVersion: Invalid value: \"v3\": unsupported apiVersion v3",
            "providers[3].kms.timeout: Invalid value: \"-1s\": timeout should be a positive value",
            "providers[3].kms.cachesize: Invalid value: 0: cachesize should be a positive value, or negative",
            "providers[4].kms.apiVersion: Forbidden: KMSv1 is deprecated",
            "providers[5].kms.cachesize: Invalid value: 5: cachesize is not supported in v2",
            "providers[6].kms.name: Invalid value: \"two\": duplicate KMS provider name two",
            "providers[6].kms.endpoint: Invalid value: \"unix://\": invalid endpoint",
            "providers[7]: Invalid value: {}: provider does not contain any",
        ] {
            assert!(told.iter().any(|one| one.contains(part)), "{part:?} is not in {told:#?}");
        }
        assert!(!told.concat().contains("hush"), "{told:#?}");
    }

    #[test]
    fn other_documents_are_refused() {
        for (text, expected) in [
            ("", "is empty"),
            ("[]", "must be an object"),
            ("kind: EncryptionConfig\napiVersion: v2", "no kind \"EncryptionConfig\" is registered for version \"v2\""),
            ("{", "did not find expected"),
        ] {
            let told = Configuration::read(text, true).err().expect(text).concat();
            assert!(told.contains(expected), "{text:?}: {told}");
        }
        let old = format!("kind: EncryptionConfig\napiVersion: v1\nresources: [{}]", on(&["secrets"]));
        assert!(Configuration::read(&old, true).is_ok());
    }
}
