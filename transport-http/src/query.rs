//! Query parameters become typed options; a parameter that makes no sense is refused by name.

use crate::route::decode;
use holdfast_core::Refusal;
use holdfast_core::kinds::ConnectOptions;
use holdfast_core::refusal::{BadRequest, Cause, Subject};
use holdfast_core::request::{DeleteOptions, FieldValidation, Options};

/// A year. No clock counts as far as the largest number that a client can ask for.
const TIMEOUT_SECONDS_MAX: u64 = 365 * 24 * 60 * 60;

/// The parameters in the order they were sent.
#[derive(Debug, Clone, Default)]
pub struct Query(Vec<(String, String)>);

impl Query {
    pub fn parse(raw: &str) -> Query {
        let plus = |text: &str| match text.contains('+') {
            true => decode(&text.replace('+', " ")).into_owned(),
            false => decode(text).into_owned(),
        };
        let pairs = raw.split('&').filter(|pair| !pair.is_empty()).map(|pair| match pair.split_once('=') {
            Some((name, value)) => (plus(name), plus(value)),
            None => (plus(pair), String::new()),
        });
        Query(pairs.collect())
    }

    /// Names and values as they were sent.
    pub fn pairs(&self) -> &[(String, String)] {
        &self.0
    }

    /// The first value of a parameter.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    /// All values of a parameter.
    pub fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.0.iter().filter(move |(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    fn text(&self, name: &str) -> Option<String> {
        self.get(name).filter(|value| !value.is_empty()).map(str::to_owned)
    }

    /// Whether a boolean parameter is set; as in Kubernetes anything but `false` and `0` is true.
    pub fn flag(&self, name: &str) -> bool {
        self.optional_flag(name).unwrap_or(false)
    }

    fn optional_flag(&self, name: &str) -> Option<bool> {
        self.get(name).map(|value| !matches!(value.to_ascii_lowercase().as_str(), "false" | "0"))
    }

    fn number(&self, name: &str) -> Result<Option<i64>, Refusal> {
        match self.get(name) {
            None | Some("") => Ok(None),
            Some(value) => {
                value.parse().map(Some).map_err(|_| Refusal::BadRequest(BadRequest::NotANumber(value.to_owned())))
            }
        }
    }

    /// All of them; `kind` names the options document in refusals (`CreateOptions`).
    pub fn options(&self, kind: &str) -> Result<Options, Refusal> {
        let mut causes = Vec::new();
        let dry_run = match self.get("dryRun") {
            None | Some("") => false,
            Some("All") => true,
            Some(other) => {
                causes.push(Cause::not_supported("dryRun", &holdfast_value::json!([other]), &["All"]));
                false
            }
        };
        let field_validation = match self.get("fieldValidation") {
            None | Some("" | "Warn") => FieldValidation::Warn,
            Some("Ignore") => FieldValidation::Ignore,
            Some("Strict") => FieldValidation::Strict,
            Some(other) => {
                let supported = ["", "Ignore", "Strict", "Warn"];
                causes.push(Cause::not_supported("fieldValidation", &other.into(), &supported));
                FieldValidation::Warn
            }
        };
        if !causes.is_empty() {
            return Err(Refusal::Invalid { subject: Subject::new("meta.k8s.io", kind, ""), causes });
        }
        let delete = DeleteOptions {
            grace_period_seconds: self.number("gracePeriodSeconds")?,
            orphan_dependents: self.optional_flag("orphanDependents"),
            propagation_policy: self.text("propagationPolicy"),
            ..DeleteOptions::default()
        };
        Ok(Options {
            dry_run,
            field_manager: self.text("fieldManager"),
            names_manager: self.text("fieldManager").is_some(),
            field_validation,
            names_validation: self.text("fieldValidation").is_some(),
            force: self.optional_flag("force"),
            label_selector: self.text("labelSelector"),
            field_selector: self.text("fieldSelector"),
            limit: self.number("limit")?.and_then(|limit| u64::try_from(limit).ok()),
            continue_token: self.text("continue"),
            resource_version: self.text("resourceVersion"),
            resource_version_match: self.text("resourceVersionMatch"),
            timeout_seconds: self
                .number("timeoutSeconds")?
                .and_then(|seconds| u64::try_from(seconds).ok())
                .map(|seconds| seconds.min(TIMEOUT_SECONDS_MAX)),
            watch: self.flag("watch"),
            allow_watch_bookmarks: self.flag("allowWatchBookmarks"),
            send_initial_events: self.optional_flag("sendInitialEvents"),
            delete,
            connect: ConnectOptions {
                container: self.text("container"),
                limit_bytes: self.number("limitBytes")?,
                since_seconds: self.number("sinceSeconds")?,
                since_time: self.text("sinceTime"),
                tail_lines: self.number("tailLines")?,
                parameters: Vec::new(),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Query;
    use std::time::{Duration, Instant};

    #[test]
    fn a_deadline_can_be_counted_whatever_is_asked_for() {
        for (asked, counted) in
            [("9223372036854775807", true), ("30", true), ("-1", false), ("0", true), ("9223372036854775808", false)]
        {
            let options = Query::parse(&format!("watch=1&timeoutSeconds={asked}")).options("ListOptions");
            let seconds = options.ok().and_then(|options| options.timeout_seconds);
            assert_eq!(seconds.is_some(), counted, "{asked}");
            let deadline = Instant::now().checked_add(Duration::from_secs(seconds.unwrap_or_default()));
            assert!(deadline.is_some(), "{asked}");
        }
    }
}
