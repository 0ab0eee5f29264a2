//! The options of the audit log, and its webhook backend.

use crate::files::{posting, read};
use anyhow::{Result, bail};
use bytes::Bytes;
use clap::ArgAction;
use futures_util::future::BoxFuture;
use holdfast_audit::backend::{Batches, File, Format, Rotation, Sink, Throttle, Truncation};
use holdfast_audit::{Auditor, Backend, Event, Mode, Policy};
use holdfast_component::values::{parse_bool, parse_duration};
use holdfast_outbound::Dialer;
use holdfast_outbound::kubeconfig::Posting;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The only version in which events are written.
const VERSION: &str = "audit.k8s.io/v1";
/// The timeout of one request to the webhook; a request carries a list of events.
const WEBHOOK_PATIENCE: Duration = Duration::from_secs(30);
const WEBHOOK_TRIES: u32 = 5;
const WEBHOOK_FACTOR: f64 = 1.5;

/// Options of the audit log. Without a policy no request is logged, whatever the values of the other options.
#[derive(clap::Args, Debug, Clone)]
pub struct AuditArgs {
    /// Which requests are logged, and in how much detail: a Policy of audit.k8s.io. Without it no request is logged.
    #[arg(long, value_name = "FILE")]
    pub audit_policy_file: Option<PathBuf>,

    /// File for audit events; - for standard output.
    #[arg(long, value_name = "FILE")]
    pub audit_log_path: Option<String>,
    /// Format of an event: json, or legacy, which is one line of text.
    #[arg(long, default_value = "json")]
    pub audit_log_format: String,
    /// How many days to keep old files, counted from the time in their names; 0 for no limit.
    #[arg(long, default_value_t = 0, allow_negative_numbers = true, value_name = "DAYS")]
    pub audit_log_maxage: i64,
    /// How many old files to keep; 0 for all.
    #[arg(long, default_value_t = 0, allow_negative_numbers = true, value_name = "COUNT")]
    pub audit_log_maxbackup: i64,
    /// Size in megabytes at which a new file is started; 0 means 100.
    #[arg(long, default_value_t = 0, allow_negative_numbers = true, value_name = "MEGABYTES")]
    pub audit_log_maxsize: i64,
    /// Compress old files with gzip.
    #[arg(long, default_value_t = false, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set, value_parser = parse_bool)]
    pub audit_log_compress: bool,
    /// How events are written. batch: in the background. blocking: before the answer is sent; the event of a received
    /// request may wait some 5 ms to be written together with the next event. blocking-strict: like blocking, but a
    /// request starts only when its first event is written, and is refused if the event cannot be written.
    #[arg(long, default_value = "blocking", value_name = "MODE")]
    pub audit_log_mode: String,
    /// API version of the events.
    #[arg(long, default_value = VERSION)]
    pub audit_log_version: String,
    /// How many events may wait to be written; further events are lost.
    #[arg(long, default_value_t = 10_000, allow_negative_numbers = true)]
    pub audit_log_batch_buffer_size: i64,
    /// Maximum number of events in a batch.
    #[arg(long, default_value_t = 1, allow_negative_numbers = true)]
    pub audit_log_batch_max_size: i64,
    /// Maximum time that a batch waits to become full before it is written.
    #[arg(long, default_value = "0s", value_parser = parse_duration)]
    pub audit_log_batch_max_wait: Duration,
    /// Limit the rate at which batches are written, by the options for QPS and burst.
    #[arg(long, default_value_t = false, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set, value_parser = parse_bool)]
    pub audit_log_batch_throttle_enable: bool,
    /// Maximum number of batches a second.
    #[arg(long, default_value_t = 0.0)]
    pub audit_log_batch_throttle_qps: f32,
    /// Maximum number of batches in a burst, above the rate of --audit-log-batch-throttle-qps.
    #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
    pub audit_log_batch_throttle_burst: i64,
    /// Leave objects out of events that are too large.
    #[arg(long, default_value_t = false, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set, value_parser = parse_bool)]
    pub audit_log_truncate_enabled: bool,
    /// Maximum size of a batch; larger batches are split.
    #[arg(long, default_value_t = 10_485_760, allow_negative_numbers = true, value_name = "BYTES")]
    pub audit_log_truncate_max_batch_size: i64,
    /// Maximum size of an event with its objects; larger events are written without objects.
    #[arg(long, default_value_t = 102_400, allow_negative_numbers = true, value_name = "BYTES")]
    pub audit_log_truncate_max_event_size: i64,

    /// Kubeconfig of the server to which events are sent.
    #[arg(long, value_name = "FILE")]
    pub audit_webhook_config_file: Option<PathBuf>,
    /// How long to wait before the first retry.
    #[arg(long, default_value = "10s", value_parser = parse_duration)]
    pub audit_webhook_initial_backoff: Duration,
    /// How events are sent. batch: in the background. blocking: before the answer is sent. blocking-strict: like
    /// blocking, but a request is refused if its event cannot be sent.
    #[arg(long, default_value = "batch", value_name = "MODE")]
    pub audit_webhook_mode: String,
    /// API version of the events.
    #[arg(long, default_value = VERSION)]
    pub audit_webhook_version: String,
    /// How many events may wait to be written; further events are lost.
    #[arg(long, default_value_t = 10_000, allow_negative_numbers = true)]
    pub audit_webhook_batch_buffer_size: i64,
    /// Maximum number of events in a batch.
    #[arg(long, default_value_t = 400, allow_negative_numbers = true)]
    pub audit_webhook_batch_max_size: i64,
    /// Maximum time that a batch waits to become full before it is sent.
    #[arg(long, default_value = "30s", value_parser = parse_duration)]
    pub audit_webhook_batch_max_wait: Duration,
    /// Limit the rate at which batches are sent, by the options for QPS and burst.
    #[arg(long, default_value_t = true, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set, value_parser = parse_bool)]
    pub audit_webhook_batch_throttle_enable: bool,
    /// Maximum number of batches a second.
    #[arg(long, default_value_t = 10.0)]
    pub audit_webhook_batch_throttle_qps: f32,
    /// Maximum number of batches in a burst, above the rate of --audit-webhook-batch-throttle-qps.
    #[arg(long, default_value_t = 15, allow_negative_numbers = true)]
    pub audit_webhook_batch_throttle_burst: i64,
    /// Leave objects out of events that are too large.
    #[arg(long, default_value_t = false, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set, value_parser = parse_bool)]
    pub audit_webhook_truncate_enabled: bool,
    /// Maximum size of a batch; larger batches are split.
    #[arg(long, default_value_t = 10_485_760, allow_negative_numbers = true, value_name = "BYTES")]
    pub audit_webhook_truncate_max_batch_size: i64,
    /// Maximum size of an event with its objects; larger events are written without objects.
    #[arg(long, default_value_t = 102_400, allow_negative_numbers = true, value_name = "BYTES")]
    pub audit_webhook_truncate_max_event_size: i64,
}

/// The options that the log and the webhook backend have in common.
struct Feeding<'a> {
    backend: &'static str,
    mode: &'a str,
    version: &'a str,
    buffer_size: i64,
    size_max: i64,
    wait_max: Duration,
    throttle: Option<(f32, i64)>,
    truncation: Option<(i64, i64)>,
}

impl AuditArgs {
    /// Builds the auditor, or `None` if the options ask for none. One error lists all faults of the options.
    pub fn auditor(&self, dialer: &Dialer) -> Result<Option<Arc<Auditor>>> {
        let mut faults = Vec::new();
        let log = self.log(&mut faults);
        let webhook = self.webhook(dialer, &mut faults);
        let policy = self.policy_told(&mut faults);
        if !faults.is_empty() {
            bail!("{}", faults.join("; "));
        }
        let backends: Vec<Backend> = [log, webhook].into_iter().flatten().collect();
        match policy {
            Some(policy) if !backends.is_empty() => Ok(Some(Auditor::new(policy, backends))),
            Some(_) => {
                tracing::warn!(
                    "--audit-policy-file has no effect without --audit-log-path or --audit-webhook-config-file"
                );
                Ok(None)
            }
            None => {
                if !backends.is_empty() {
                    tracing::warn!("no request is logged, because --audit-policy-file is not given");
                }
                Ok(None)
            }
        }
    }

    /// Reads the policy file. Returns the policy with warnings about it, or all its faults.
    fn policy(&self) -> Result<Option<(Policy, Vec<String>)>, Vec<String>> {
        let Some(file) = &self.audit_policy_file else { return Ok(None) };
        let fault = |why: String| format!("--audit-policy-file: loading {}: {why}", file.display());
        let read = read(file).map_err(|error| vec![format!("{error:#}")]).and_then(|text| Policy::read(&text));
        read.map(Some).map_err(|found| found.into_iter().map(fault).collect())
    }

    /// Reads the policy and logs its warnings.
    fn policy_told(&self, faults: &mut Vec<String>) -> Option<Policy> {
        match self.policy() {
            Ok(read) => {
                let (policy, strange) = read?;
                for field in strange {
                    tracing::warn!("the file of --audit-policy-file has an {field}, which is passed over");
                }
                Some(policy)
            }
            Err(found) => {
                faults.extend(found);
                None
            }
        }
    }

    /// The faults of the options and the policy that can be found without connecting to a backend.
    pub fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        self.log_settings(&mut faults);
        self.webhook_settings(&mut faults);
        faults.extend(self.policy().err().into_iter().flatten());
        if let Some(file) = &self.audit_webhook_config_file {
            let read = posting(file).err();
            faults.extend(read.map(|why| format!("--audit-webhook-config-file: {why:#}")));
        }
        if let Some(path) = self.audit_log_path.as_deref().filter(|path| *path != "-") {
            let path = Path::new(path);
            let is_file = |above: &Path| above.exists() && !above.is_dir();
            if path.is_dir() {
                faults.push(format!("--audit-log-path: {} is a folder", path.display()));
            } else if let Some(above) = path.ancestors().skip(1).find(|above| is_file(above)) {
                faults.push(format!("--audit-log-path: {} is not a folder", above.display()));
            }
        }
        faults
    }

    fn log_settings(&self, faults: &mut Vec<String>) -> Option<(Fed, Format)> {
        let feeding = Feeding {
            backend: "log",
            mode: &self.audit_log_mode,
            version: &self.audit_log_version,
            buffer_size: self.audit_log_batch_buffer_size,
            size_max: self.audit_log_batch_max_size,
            wait_max: self.audit_log_batch_max_wait,
            throttle: self
                .audit_log_batch_throttle_enable
                .then_some((self.audit_log_batch_throttle_qps, self.audit_log_batch_throttle_burst)),
            truncation: self
                .audit_log_truncate_enabled
                .then_some((self.audit_log_truncate_max_event_size, self.audit_log_truncate_max_batch_size)),
        };
        let fed = feeding.check(faults);
        for (option, value) in [
            ("maxage", self.audit_log_maxage),
            ("maxbackup", self.audit_log_maxbackup),
            ("maxsize", self.audit_log_maxsize),
        ] {
            if value < 0 {
                faults.push(format!("--audit-log-{option} {value} can't be a negative number"));
            }
        }
        let format = match self.audit_log_format.as_str() {
            "json" => Some(Format::Json),
            "legacy" => Some(Format::Legacy),
            other => {
                faults.push(format!("invalid audit log format {other}, allowed formats are \"legacy,json\""));
                None
            }
        };
        Some((fed?, format?))
    }

    fn log(&self, faults: &mut Vec<String>) -> Option<Backend> {
        let ((mode, truncation), format) = self.log_settings(faults)?;
        let path = self.audit_log_path.as_ref()?;
        let megabytes = if self.audit_log_maxsize == 0 { 100 } else { self.audit_log_maxsize };
        let rotation = Rotation {
            bytes_max: u64::try_from(megabytes).unwrap_or(0).saturating_mul(1 << 20),
            days_max: u32::try_from(self.audit_log_maxage).unwrap_or(0),
            backups_max: usize::try_from(self.audit_log_maxbackup).unwrap_or(0),
            compress: self.audit_log_compress,
        };
        match File::open(path, format, rotation) {
            Ok(file) => Some(Backend::new(Box::new(file), mode, truncation)),
            Err(error) => {
                faults.push(format!("--audit-log-path: ensureLogFile: {path}: {error}"));
                None
            }
        }
    }

    fn webhook_settings(&self, faults: &mut Vec<String>) -> Option<Fed> {
        let feeding = Feeding {
            backend: "webhook",
            mode: &self.audit_webhook_mode,
            version: &self.audit_webhook_version,
            buffer_size: self.audit_webhook_batch_buffer_size,
            size_max: self.audit_webhook_batch_max_size,
            wait_max: self.audit_webhook_batch_max_wait,
            throttle: self
                .audit_webhook_batch_throttle_enable
                .then_some((self.audit_webhook_batch_throttle_qps, self.audit_webhook_batch_throttle_burst)),
            truncation: self
                .audit_webhook_truncate_enabled
                .then_some((self.audit_webhook_truncate_max_event_size, self.audit_webhook_truncate_max_batch_size)),
        };
        feeding.check(faults)
    }

    fn webhook(&self, dialer: &Dialer, faults: &mut Vec<String>) -> Option<Backend> {
        let (mode, truncation) = self.webhook_settings(faults)?;
        let file = self.audit_webhook_config_file.as_ref()?;
        match Posting::from_file(file, "", dialer) {
            Ok(posting) => {
                let webhook = Webhook { posting, first_wait: self.audit_webhook_initial_backoff };
                Some(Backend::new(Box::new(webhook), mode, truncation))
            }
            Err(why) => {
                faults.push(format!("--audit-webhook-config-file: {why}"));
                None
            }
        }
    }
}

/// A backend's mode, and its limits if events are truncated.
type Fed = (Mode, Option<Truncation>);

impl Feeding<'_> {
    fn check(&self, faults: &mut Vec<String>) -> Option<Fed> {
        let (backend, before) = (self.backend, faults.len());
        if self.version != VERSION {
            faults.push(format!("--audit-{backend}-version: invalid group version, allowed versions are [{VERSION}]"));
        }
        if !["batch", "blocking", "blocking-strict"].contains(&self.mode) {
            faults.push(format!(
                "invalid audit {backend} mode {}, allowed modes are \"batch,blocking,blocking-strict\"",
                self.mode
            ));
        }
        for (what, value) in [("buffer size", self.buffer_size), ("max batch size", self.size_max)] {
            if self.mode == "batch" && value <= 0 {
                faults.push(format!("invalid audit batch {backend} {what} {value}, must be a positive number"));
            }
        }
        if let Some((qps, burst)) = self.throttle.filter(|_| self.mode == "batch") {
            if qps.is_nan() || qps <= 0.0 {
                faults.push(format!("invalid audit batch {backend} throttle QPS {qps}, must be a positive number"));
            }
            if burst <= 0 {
                faults.push(format!("invalid audit batch {backend} throttle burst {burst}, must be a positive number"));
            }
        }
        if let Some((event, batch)) = self.truncation {
            if event <= 0 {
                faults.push(format!(
                    "invalid audit truncate {backend} max event size {event}, must be a positive number"
                ));
            }
            if batch < event {
                faults.push(format!(
                    "invalid audit truncate {backend} max batch size {batch}, must be greater than max event size ({event})"
                ));
            }
        }
        if faults.len() > before {
            return None;
        }
        let whole = |number: i64| usize::try_from(number).unwrap_or(usize::MAX);
        let batches = Batches {
            buffer_size: whole(self.buffer_size),
            size_max: whole(self.size_max),
            wait_max: self.wait_max,
            throttle: self
                .throttle
                .map(|(qps, burst)| Throttle { qps, burst: u32::try_from(burst).unwrap_or(u32::MAX) }),
        };
        let mode = match self.mode {
            "batch" => Mode::Batch(batches),
            "blocking" => Mode::Blocking,
            _ => Mode::BlockingStrict,
        };
        let truncation = self
            .truncation
            .map(|(event, batch)| Truncation { event_bytes_max: whole(event), batch_bytes_max: whole(batch) });
        Some((mode, truncation))
    }
}

/// A server that receives lists of events by POST.
struct Webhook {
    posting: Posting,
    first_wait: Duration,
}

impl Sink for Webhook {
    fn name(&self) -> &'static str {
        "webhook"
    }

    fn store<'a>(&'a self, events: &'a [Event]) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(async move {
            let mut body =
                format!("{{\"kind\":\"EventList\",\"apiVersion\":\"{VERSION}\",\"metadata\":{{}},\"items\":[");
            for (index, event) in events.iter().enumerate() {
                if index > 0 {
                    body.push(',');
                }
                body.push_str(std::str::from_utf8(&event.json_line()).unwrap_or_default().trim_end());
            }
            body.push_str("]}");
            let (mut wait, body) = (self.first_wait, Bytes::from(body));
            for _ in 1..WEBHOOK_TRIES {
                match self.posting.post("", body.clone(), WEBHOOK_PATIENCE).await {
                    Ok(_) => return Ok(()),
                    Err(why) => tracing::debug!(%why, "audit events are sent again"),
                }
                tokio::time::sleep(wait).await;
                wait = wait.mul_f64(WEBHOOK_FACTOR);
            }
            self.posting.post("", body, WEBHOOK_PATIENCE).await.map(drop).map_err(|why| why.to_string())
        })
    }

    fn is_concurrent(&self) -> bool {
        true
    }
}
