//! Query parameters as typed options; a malformed parameter is refused by name.

use crate::route::decode;
use holdfast_core::Refusal;
use holdfast_core::kinds::ConnectOptions;
use holdfast_core::refusal::{BadRequest, Cause, Causes, Subject};
use holdfast_core::request::{DeleteOptions, FieldValidation, IGNORES_READ_ERRORS, Options};

/// The maximum timeout, a year. The bound is needed because the largest number that a client can send would overflow a
/// time.
const TIMEOUT_SECONDS_MAX: u64 = 365 * 24 * 60 * 60;

/// The parameters of a query, in the order in which they were sent.
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

    /// The names and values of all parameters, as they were sent.
    pub fn pairs(&self) -> &[(String, String)] {
        &self.0
    }

    /// The value of the first parameter with this name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    /// The values of all parameters with this name.
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
        let Some(value) = self.get(name) else { return Ok(None) };
        value.parse().map(Some).map_err(|_| Refusal::BadRequest(BadRequest::NotANumber(value.to_owned())))
    }

    /// The options of a verb. `kind` is the kind of the options document, such as `CreateOptions`, which refusals name.
    /// A malformed number is reported before other invalid values. Parameters of other verbs are ignored.
    pub fn options(&self, kind: &str) -> Result<Options, Refusal> {
        let is = |kinds: &[&str]| kinds.contains(&kind);
        let number = |name: &str, kinds: &[&str]| if is(kinds) { self.number(name) } else { Ok(None) };
        let grace_period_seconds = number("gracePeriodSeconds", &["DeleteOptions"])?;
        let limit = number("limit", &["ListOptions", "DeleteOptions"])?;
        let timeout_seconds = number("timeoutSeconds", &["ListOptions", "DeleteOptions"])?;
        let connect = ConnectOptions {
            container: self.text("container"),
            limit_bytes: number("limitBytes", &["GetOptions"])?,
            since_seconds: number("sinceSeconds", &["GetOptions"])?,
            since_time: self.text("sinceTime"),
            tail_lines: number("tailLines", &["GetOptions"])?,
            parameters: Vec::new(),
        };

        let mut causes = Causes::default();
        let dry_run: Vec<&str> = self.all("dryRun").filter(|_| !is(&["GetOptions", "ListOptions"])).collect();
        if dry_run.iter().any(|stages| *stages != "All") {
            causes.push(Cause::not_supported("dryRun", &holdfast_value::json!(dry_run.clone()), &["All"]));
        }
        let has_fields = is(&["CreateOptions", "UpdateOptions", "PatchOptions"]);
        let field_validation = match self.get("fieldValidation").filter(|_| has_fields) {
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
            grace_period_seconds,
            orphan_dependents: self.optional_flag("orphanDependents"),
            propagation_policy: self.text("propagationPolicy"),
            ignores_read_errors: self.flag(IGNORES_READ_ERRORS),
            ..DeleteOptions::default()
        };
        Ok(Options {
            dry_run: !dry_run.is_empty(),
            field_manager: self.text("fieldManager"),
            names_manager: self.text("fieldManager").is_some(),
            field_validation,
            names_validation: self.text("fieldValidation").is_some(),
            force: self.optional_flag("force"),
            label_selector: self.text("labelSelector"),
            field_selector: self.text("fieldSelector"),
            limit: limit.and_then(|limit| u64::try_from(limit).ok()),
            continue_token: self.text("continue"),
            resource_version: self.text("resourceVersion"),
            resource_version_match: self.text("resourceVersionMatch"),
            timeout_seconds: timeout_seconds
                .and_then(|seconds| u64::try_from(seconds).ok())
                .map(|seconds| seconds.min(TIMEOUT_SECONDS_MAX)),
            watch: self.flag("watch"),
            allow_watch_bookmarks: self.flag("allowWatchBookmarks"),
            send_initial_events: self.optional_flag("sendInitialEvents"),
            delete,
            connect,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Query;
    use std::time::{Duration, Instant};

    #[test]
    fn each_verb_judges_what_it_knows() {
        let words = |kind: &str, raw: &str| Query::parse(raw).options(kind).err().map(|refusal| refusal.message());
        let dry_run = |kind: &str, raw: &str| Query::parse(raw).options(kind).map(|options| options.dry_run).ok();
        for (kind, raw, fault) in [
            (
                "CreateOptions",
                "dryRun=All&dryRun=x",
                r#"dryRun: Unsupported value: ["All","x"]: supported values: "All""#,
            ),
            ("UpdateOptions", "dryRun=", r#"dryRun: Unsupported value: [""]: supported values: "All""#),
            ("PatchOptions", "fieldValidation=x", r#"fieldValidation: Unsupported value: "x""#),
            ("ListOptions", "limit=", r#"strconv.ParseInt: parsing "": invalid syntax"#),
            ("ListOptions", "timeoutSeconds=x", r#"strconv.ParseInt: parsing "x": invalid syntax"#),
            ("DeleteOptions", "gracePeriodSeconds=&dryRun=x", r#"strconv.ParseInt: parsing "": invalid syntax"#),
            ("GetOptions", "tailLines=", r#"strconv.ParseInt: parsing "": invalid syntax"#),
        ] {
            let told = words(kind, raw).unwrap_or_default();
            assert!(told.contains(fault), "{kind}, {raw}: {told}");
        }
        for (kind, raw) in [
            ("GetOptions", "dryRun=x&fieldValidation=x&limit=x&gracePeriodSeconds=x"),
            ("ListOptions", "dryRun=x&fieldValidation=x&tailLines=x"),
            ("CreateOptions", "limit=x&timeoutSeconds=&gracePeriodSeconds=x&fieldValidation="),
            ("DeleteOptions", "fieldValidation=x&gracePeriodSeconds=0"),
        ] {
            assert_eq!(words(kind, raw), None, "{kind}, {raw}");
        }
        assert_eq!(dry_run("CreateOptions", "dryRun=All&dryRun=All"), Some(true));
        assert_eq!([dry_run("CreateOptions", ""), dry_run("GetOptions", "dryRun=All")], [Some(false); 2]);
    }

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
