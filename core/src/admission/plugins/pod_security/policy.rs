//! The standards for the pods of a namespace: from its labels, otherwise from the operator's defaults.

use crate::object::reader::Reader;
use crate::refusal::{Cause, Causes};
use holdfast_value::Value;
use std::fmt;

pub(super) const PREFIX: &str = "pod-security.kubernetes.io/";

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    Privileged,
    Baseline,
    Restricted,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    Latest,
    /// Kubernetes 1.x, where x is this number.
    Minor(u32),
}

/// A level as defined by one version of Kubernetes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standard {
    pub level: Level,
    pub version: Version,
}

/// The standards for refusal, audit annotations and warnings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    pub enforce: Standard,
    pub audit: Standard,
    pub warn: Standard,
}

impl Level {
    pub fn parse(text: &str) -> Option<Level> {
        match text {
            "privileged" => Some(Self::Privileged),
            "baseline" => Some(Self::Baseline),
            "restricted" => Some(Self::Restricted),
            _ => None,
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Privileged => "privileged",
            Self::Baseline => "baseline",
            Self::Restricted => "restricted",
        }
    }
}

impl Version {
    pub fn parse(text: &str) -> Option<Version> {
        if text == "latest" {
            return Some(Self::Latest);
        }
        let minor = text.strip_prefix("v1.")?;
        let is_number = minor == "0" || (!minor.starts_with('0') && minor.bytes().all(|byte| byte.is_ascii_digit()));
        minor.parse().ok().filter(|_| is_number).map(Self::Minor)
    }
}

impl Standard {
    pub const PRIVILEGED: Standard = Standard { level: Level::Privileged, version: Version::Latest };

    pub fn asks_nothing(&self) -> bool {
        self.level == Level::Privileged
    }
}

impl fmt::Display for Standard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.version {
            Version::Latest => write!(f, "{}:latest", self.level.as_str()),
            Version::Minor(minor) => write!(f, "{}:v1.{minor}", self.level.as_str()),
        }
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self { enforce: Standard::PRIVILEGED, audit: Standard::PRIVILEGED, warn: Standard::PRIVILEGED }
    }
}

impl Policy {
    /// The policy in a namespace's labels, and faults in them. An invalid `enforce` level counts as restricted.
    pub fn of_labels(labels: &Value, defaults: &Policy) -> (Policy, Causes) {
        let (mut policy, mut causes) = (*defaults, Causes::default());
        let label = |mode: &str| labels.get(format!("{PREFIX}{mode}"));
        for (mode, standard, otherwise) in [
            ("enforce", &mut policy.enforce, Level::Restricted),
            ("audit", &mut policy.audit, Level::Privileged),
            ("warn", &mut policy.warn, Level::Privileged),
        ] {
            let label = format!("{PREFIX}{mode}");
            if let Some(level) = labels.get(&label) {
                let parsed = level.as_str().and_then(Level::parse);
                standard.level = parsed.unwrap_or(otherwise);
                // Without a version label, the default version of the plug-in's configuration applies.
                if parsed.is_none() {
                    let why = "must be one of privileged, baseline, restricted";
                    causes.push(Cause::invalid(format!("metadata.labels[{label}]"), level, why));
                }
            }
            let label = format!("{label}-version");
            if let Some(version) = labels.get(&label) {
                let parsed = version.as_str().and_then(Version::parse);
                standard.version = parsed.unwrap_or(Version::Latest);
                if parsed.is_none() {
                    let why = "must be \"latest\" or \"v1.x\"";
                    causes.push(Cause::invalid(format!("metadata.labels[{label}]"), version, why));
                }
            }
        }
        // Unless labels set it, the warn level is raised to the enforced level. An invalid enforced level does not
        // affect warnings.
        let enforced = label("enforce").and_then(Value::as_str).and_then(Level::parse);
        if label("warn").is_none()
            && let Some(level) = enforced.filter(|level| *level > policy.warn.level)
        {
            policy.warn.level = level;
            if label("warn-version").is_none() {
                policy.warn.version = policy.enforce.version;
            }
        }
        (policy, causes)
    }

    /// The policy that a namespace's labels set, as text: `enforce=baseline:latest, warn=restricted:v1.25`. Modes
    /// without labels are left out.
    pub fn of_labels_shown(&self, labels: &Value) -> String {
        let is_named = |mode: &str| {
            [mode.to_owned(), format!("{mode}-version")]
                .iter()
                .any(|end| labels.get(format!("{PREFIX}{end}")).is_some())
        };
        let modes = [("enforce", self.enforce), ("audit", self.audit), ("warn", self.warn)];
        let named = modes.into_iter().filter(|(mode, standard)| !standard.asks_nothing() && is_named(mode));
        named.map(|(mode, standard)| format!("{mode}={standard}")).collect::<Vec<_>>().join(", ")
    }

    pub fn asks_nothing(&self) -> bool {
        [self.enforce, self.audit, self.warn].iter().all(Standard::asks_nothing)
    }

    /// Whether both policies have the same requirements. A privileged mode requires nothing, so its version does not
    /// matter.
    pub fn is_like(&self, other: &Policy) -> bool {
        let is_like = |a: Standard, b: Standard| a == b || (a.asks_nothing() && b.asks_nothing());
        is_like(self.enforce, other.enforce) && is_like(self.audit, other.audit) && is_like(self.warn, other.warn)
    }

    /// Reads the policy from the defaults in the plug-in's configuration.
    pub fn of_defaults(defaults: &Reader) -> Policy {
        let standard = |mode: &str| {
            let version_of = format!("{mode}-version");
            let text = |field: &str, unset: &'static str| {
                defaults.text(field).filter(|text| !text.is_empty()).unwrap_or(unset).to_owned()
            };
            let wrong = |field: &str, found: &str, why: &str| defaults.invalid(field, format!("{found:?}"), why);
            let (level, version) = (text(mode, "privileged"), text(&version_of, "latest"));
            let found = (Level::parse(&level), Version::parse(&version));
            if found.0.is_none() {
                wrong(mode, &level, "must be one of privileged, baseline, restricted");
            }
            if found.1.is_none() {
                wrong(&version_of, &version, "must be \"latest\" or \"v1.x\"");
            }
            Standard { level: found.0.unwrap_or(Level::Privileged), version: found.1.unwrap_or(Version::Latest) }
        };
        Policy { enforce: standard("enforce"), audit: standard("audit"), warn: standard("warn") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_value::json;

    #[test]
    fn labels_are_read_or_wrong() {
        let rows = [
            (json!({}), "privileged:latest privileged:latest privileged:latest", 0),
            (json!({"enforce": "baseline"}), "baseline:latest privileged:latest baseline:latest", 0),
            (
                json!({"enforce": "baseline", "warn": "privileged"}),
                "baseline:latest privileged:latest privileged:latest",
                0,
            ),
            (json!({"enforce": "x", "audit": "y"}), "restricted:latest privileged:latest privileged:latest", 2),
            (
                json!({"enforce": "baseline", "enforce-version": "v1.24"}),
                "baseline:v1.24 privileged:latest baseline:v1.24",
                0,
            ),
            (
                json!({"enforce": "baseline", "enforce-version": "v1.24", "warn-version": "v1.23"}),
                "baseline:v1.24 privileged:latest baseline:v1.23",
                0,
            ),
            (
                json!({"enforce-version": "v1.024", "audit-version": "v1.9"}),
                "privileged:latest privileged:v1.9 privileged:latest",
                1,
            ),
        ];
        for (labels, expected, faults) in rows {
            let prefixed = labels.as_object().expect("labels").iter();
            let prefixed: holdfast_value::Map =
                prefixed.map(|(key, value)| (format!("{PREFIX}{key}"), value.clone())).collect();
            let (policy, causes) = Policy::of_labels(&Value::Object(prefixed), &Policy::default());
            let found = format!("{} {} {}", policy.enforce, policy.audit, policy.warn);
            assert_eq!((found.as_str(), causes.len()), (expected, faults), "{labels}");
        }
    }

    #[test]
    fn what_is_ignored_is_told_by_its_labels() {
        let defaults =
            Policy { audit: Standard { level: Level::Baseline, version: Version::Latest }, ..Policy::default() };
        for (labels, expected) in [
            (json!({"warn": "baseline"}), "warn=baseline:latest"),
            (json!({"enforce": "baseline"}), "enforce=baseline:latest"),
            (json!({"enforce": "privileged", "audit-version": "v1.24"}), "audit=baseline:v1.24"),
            (
                json!({"enforce": "restricted", "audit": "baseline", "warn": "privileged"}),
                "enforce=restricted:latest, audit=baseline:latest",
            ),
        ] {
            let prefixed = labels.as_object().expect("labels").iter();
            let prefixed: holdfast_value::Map =
                prefixed.map(|(key, value)| (format!("{PREFIX}{key}"), value.clone())).collect();
            let prefixed = Value::Object(prefixed);
            let (policy, _) = Policy::of_labels(&prefixed, &defaults);
            assert_eq!(policy.of_labels_shown(&prefixed), expected, "{labels}");
        }
    }
}
