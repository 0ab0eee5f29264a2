//! The server's metrics, in Prometheus' form.
//!
//! Labels are verbs, and the kinds and subresources that are served. Requests for anything else are counted without a
//! name, because clients could otherwise create any number of labels.

mod admission;
mod decisions;
mod histogram;
mod joined;
mod queues;
mod requests;

use crate::fairness::{Flow, Measures};
use crate::{AnswerCode, Reply, Statuses};
use admission::AdmissionMetrics;
pub use admission::ticks;
use decisions::Decisions;
pub use histogram::Histogram;
use holdfast_core::Refusal;
use holdfast_core::admission::Told;
use holdfast_core::authz::{Judged, User};
use holdfast_core::event::Offset;
use holdfast_core::state::State;
use holdfast_engine::Size;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
pub use queues::Queued;
use queues::Queues;
pub use requests::{RequestLabels, RowKey};
use requests::{Requests, Row};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabels {
    request_kind: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabels {
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct UserLabels {
    username: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResourceLabels {
    resource: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EndLabels {
    component: &'static str,
    code: AnswerCode,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct NameLabels {
    name: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabels {
    name: String,
    reason: &'static str,
}

pub struct Metrics {
    pub(crate) statuses: Statuses,
    registry: Mutex<Registry>,
    requests: Requests,
    queues: Queues,
    terminations: Family<EndLabels, Counter>,
    certificates: Histogram,
    unavailable: Family<NameLabels, Gauge>,
    became_unavailable: Family<ReasonLabels, Counter>,
    inflight: Family<KindLabels, Gauge>,
    watches: Gauge,
    objects: Family<ResourceLabels, Gauge>,
    offset: Gauge,
    oldest: Gauge,
    log_bytes: Gauge,
    selector_bytes: Gauge,
    let_go_events: Gauge,
    let_go_bytes: Gauge,
    rejected: Counter,
    pub(crate) fairness: Measures,
    decisions: Decisions,
    // These metrics are gauges: the metrics library requires that the names of counters end in `_total`, and
    // Kubernetes' names for these metrics do not.
    attempts: Family<ResultLabels, Gauge>,
    users: Family<UserLabels, Gauge>,
    authentications: Family<ResultLabels, Histogram, fn() -> Histogram>,
    /// The counters for successful authentication. They are already looked up, because nearly all requests need them
    /// and few users are counted by name.
    found: (Gauge, Histogram, Gauge),
    admission: AdmissionMetrics,
}

/// The buckets for the time until clients' certificates expire, in seconds.
const CERTIFICATE_BUCKETS: [f64; 15] = [
    0.0,
    1_800.0,
    3_600.0,
    7_200.0,
    21_600.0,
    43_200.0,
    86_400.0,
    172_800.0,
    345_600.0,
    604_800.0,
    2_592_000.0,
    7_776_000.0,
    15_552_000.0,
    31_104_000.0,
    62_208_000.0,
];

/// The buckets for the duration of authentication, in seconds.
const AUTHENTICATION_BUCKETS: [f64; 15] =
    [0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096, 8.192, 16.384];

/// Counts one request when this value is dropped. Without a code the request had no answer and is not counted.
#[derive(Default)]
pub struct Record {
    counting: Option<(Arc<Metrics>, Instant)>,
    /// The row that counts the request; `None` until the row is found.
    row: Option<Arc<Row>>,
    code: AnswerCode,
    /// The flow of the request, if the request reached flow control.
    pub(crate) flow: Option<Arc<Flow>>,
}

impl Metrics {
    pub fn new(statuses: Statuses) -> Metrics {
        let mut registry = Registry::default();
        let requests = Requests::default();
        let (terminations, unavailable, became_unavailable) = Default::default();
        // This histogram counts whole seconds, because a sum of years in nanoseconds would overflow 64 bits.
        let certificates = Histogram::of_numbers(&CERTIFICATE_BUCKETS);
        let inflight = Family::default();
        let watches = Gauge::default();
        let objects = Family::default();
        let offset = Gauge::default();
        let [oldest, log_bytes, selector_bytes, let_go_events, let_go_bytes]: [Gauge; 5] = Default::default();
        let rejected = Counter::default();
        registry.register_collector(Box::new(requests.clone()));
        let queues = Queues::default();
        queues.register(&mut registry);
        let ended = "Requests that ended without the answer that they asked for";
        registry.register("apiserver_request_terminations", ended, Family::clone(&terminations));
        let good_for = "For how long certificates of clients were still good";
        registry.register("apiserver_client_certificate_expiration_seconds", good_for, certificates.clone());
        let not_there = "Whether an APIService is not available";
        registry.register("aggregator_unavailable_apiservice", not_there, Family::clone(&unavailable));
        let gone = "How often an APIService was found not to be available";
        registry.register("aggregator_unavailable_apiservice", gone, Family::clone(&became_unavailable));
        let (attempts, users) = (Family::default(), Family::default());
        let authentications: Family<ResultLabels, Histogram, fn() -> Histogram> =
            Family::new_with_constructor(|| Histogram::of_times(&AUTHENTICATION_BUCKETS));
        let success = ResultLabels { result: "success" };
        let found = (
            Family::<ResultLabels, Gauge>::get_or_create_owned(&attempts, &success),
            authentications.get_or_create_owned(&success),
            Family::<UserLabels, Gauge>::get_or_create_owned(&users, &UserLabels { username: OTHER_USER.to_owned() }),
        );
        registry.register("apiserver_current_inflight_requests", "Requests in progress", inflight.clone());
        registry.register("apiserver_longrunning_requests", "Watches in progress", watches.clone());
        registry.register("apiserver_storage_objects", "Objects by resource", objects.clone());
        registry.register("holdfast_log_offset", "The last event of the log", offset.clone());
        registry.register("holdfast_log_oldest", "The oldest version in the history", oldest.clone());
        registry.register("holdfast_log_bytes", "Size of the log, without removed history", log_bytes.clone());
        let selectors = "Memory of the selectors of all watches";
        registry.register("holdfast_watch_selector_bytes", selectors, selector_bytes.clone());
        registry.register(
            "holdfast_log_let_go_events",
            "Events removed from the history since the start",
            let_go_events.clone(),
        );
        registry.register(
            "holdfast_log_let_go_bytes",
            "Size of the events removed since the start",
            let_go_bytes.clone(),
        );
        registry.register("apiserver_rejected_requests", "Requests over the in-flight limits", rejected.clone());
        let fairness = Measures::default();
        fairness.register(&mut registry);
        let decisions = Decisions::new(&mut registry);
        registry.register("authentication_attempts", "Requests whose user was looked for", attempts.clone());
        registry.register("authenticated_user_requests", "Requests whose user was found", users.clone());
        let what = "Time until the user was found, or not";
        registry.register("authentication_duration_seconds", what, authentications.clone());
        let admission = AdmissionMetrics::new(&mut registry, statuses.code_of_webhook);
        Metrics {
            statuses,
            registry: Mutex::new(registry),
            requests,
            queues,
            terminations,
            certificates,
            unavailable,
            became_unavailable,
            inflight,
            watches,
            objects,
            offset,
            oldest,
            log_bytes,
            selector_bytes,
            let_go_events,
            let_go_bytes,
            rejected,
            fairness,
            decisions,
            attempts,
            users,
            authentications,
            found,
            admission,
        }
    }
}

impl Record {
    /// The flow of the request, by which priority and fairness serves it.
    pub fn flow(&self) -> Option<&Arc<Flow>> {
        self.flow.as_ref()
    }

    /// Sets the code of the answer. The transport may set another code when it renders the answer.
    pub fn code(&mut self, code: AnswerCode) {
        self.code = code;
    }

    /// Records the durations and observations that admission reported.
    pub(crate) fn admitted(&self, told: &Told) {
        if let (Some((metrics, _)), Some(row)) = (&self.counting, &self.row) {
            metrics.admission.note(told, &row.labels);
        }
    }

    /// Sets the labels under which the request is counted.
    pub(crate) fn about(&mut self, labels: &RequestLabels) {
        self.row = self.counting.as_ref().map(|(metrics, _)| metrics.requests.row_of(labels));
    }

    /// Sets the row of a served kind; `labels` is called only for a new row.
    pub(crate) fn about_kind(&mut self, key: RowKey, labels: impl FnOnce() -> RequestLabels) {
        self.row = self.counting.as_ref().map(|(metrics, _)| metrics.requests.row(key, labels));
    }

    pub(crate) fn outcome(&mut self, outcome: Result<&Reply, &Refusal>) {
        let Some((metrics, _)) = &self.counting else { return };
        self.code = (metrics.statuses.code)(outcome);
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        let Some((_, began)) = self.counting.take().filter(|_| self.code != AnswerCode::default()) else { return };
        let Some(row) = &self.row else { return };
        let RequestLabels { verb, resource, .. } = &row.labels;
        let (apf_pl, apf_fs) = self.flow.as_ref().map_or(("", ""), |flow| (flow.level(), &*flow.schema));
        tracing::debug!(verb, resource, code = self.code.0, apf_pl, apf_fs, "answered");
        row.count(self.code, began.elapsed());
    }
}

impl Metrics {
    /// Begins to count a request. The request is counted when the returned value is dropped.
    pub fn begin(self: &Arc<Self>) -> Record {
        let counting = Some((self.clone(), Instant::now()));
        Record { counting, row: None, code: AnswerCode::default(), flow: None }
    }

    /// Counts a request that the server ended because its time was over, or because no place was free.
    pub fn terminated(&self, refusal: &Refusal) {
        let code = (self.statuses.code)(Err(refusal));
        self.terminations.get_or_create(&EndLabels { component: "apiserver", code }).inc();
    }

    /// Counts an item of the server's own work in a queue of this name.
    pub fn queued(&self, name: &'static str) -> Queued {
        self.queues.add(name)
    }

    /// Counts a request with a client certificate that expires after this time.
    pub fn certified(&self, good_for: Duration) {
        self.certificates.observe(good_for.as_secs());
    }

    /// Sets whether the server behind an APIService is available. `missing` is the reason why it is not.
    pub fn available(&self, name: &str, missing: Option<&'static str>) {
        let name = name.to_owned();
        let before = self.unavailable.get_or_create(&NameLabels { name: name.clone() }).set(missing.is_some().into());
        if let Some(reason) = missing.filter(|_| before == 0) {
            self.became_unavailable.get_or_create(&ReasonLabels { name, reason }).inc();
        }
    }

    /// Lets another part of the server register metrics in the same registry.
    pub fn with_registry(&self, put: impl FnOnce(&mut Registry)) {
        put(&mut self.registry.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Counts the result of the authorization of one call, which took the time `took`.
    pub fn authorized(&self, judged: &Judged, took: Duration) {
        self.decisions.count(judged, took);
    }

    /// Counts a request that is refused because there are too many requests.
    pub fn rejected(&self, refusal: &Refusal) {
        self.rejected.inc();
        self.terminated(refusal);
    }

    /// Counts the result of the authentication of one request, which took the time `time`.
    pub fn authenticated(&self, found: &Result<Option<Arc<User>>, String>, time: Duration) {
        let result = match found {
            Ok(Some(user)) => return self.recognized(user, time),
            Ok(None) => "failure",
            Err(_) => "error",
        };
        let labels = ResultLabels { result };
        self.attempts.get_or_create(&labels).inc();
        self.authentications.get_or_create(&labels).took(time);
    }

    fn recognized(&self, user: &User, time: Duration) {
        let (attempts, times, others) = &self.found;
        attempts.inc();
        times.took(time);
        match counted_as(&user.name) {
            OTHER_USER => others.inc(),
            name => self.users.get_or_create(&UserLabels { username: name.to_owned() }).inc(),
        };
    }

    /// Counts a watch as in progress until the returned value is dropped.
    pub fn watching(&self) -> Watching {
        self.watches.inc();
        Watching(self.watches.clone())
    }

    pub fn watches(&self) -> i64 {
        self.watches.get()
    }

    /// Sets the metric that shows how many bytes the selectors of all watches have.
    pub fn selectors_take(&self, bytes: usize) {
        self.selector_bytes.set(bytes as i64);
    }

    /// The metrics as text, including the numbers that are read from the current state.
    pub fn render(&self, state: &State, log: Option<(Offset, Size)>, reading: u64, mutating: u64) -> String {
        for (id, kind) in state.registry.iter().filter(|(_, kind)| kind.stored) {
            let group = &kind.hub().group;
            let resource = if group.is_empty() { kind.resource.clone() } else { format!("{}.{group}", kind.resource) };
            self.objects.get_or_create(&ResourceLabels { resource }).set(state.count(id) as i64);
        }
        self.offset.set(state.offset.0 as i64);
        // A log that returns no size is faulty, which the health checks report. The last known numbers stay.
        if let Some((oldest, size)) = log {
            self.oldest.set(oldest.0 as i64);
            self.log_bytes.set(size.bytes as i64);
            self.let_go_events.set(size.let_go_events as i64);
            self.let_go_bytes.set(size.let_go_bytes as i64);
        }
        for (kind, value) in [("readOnly", reading), ("mutating", mutating)] {
            self.inflight.get_or_create(&KindLabels { request_kind: kind.into() }).set(value as i64);
        }
        let mut text = String::new();
        // Writing to a String cannot fail.
        let registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = prometheus_client::encoding::text::encode(&mut text, &registry);
        joined::joined(&text)
    }
}

/// The label of a user. Only few users are counted by name, because clients could otherwise create any number of
/// labels.
fn counted_as(name: &str) -> &str {
    match name {
        "admin" | "client" | "kube_proxy" | "kubelet" | "system:serviceaccount:kube-system:default" => name,
        address if address.contains('@') => "email_id",
        _ => OTHER_USER,
    }
}

/// The value of the label `username` for users that are counted neither by name nor as e-mail addresses.
const OTHER_USER: &str = "other";

/// A watch that is counted as in progress until this value is dropped.
pub struct Watching(Gauge);

impl Drop for Watching {
    fn drop(&mut self) {
        self.0.dec();
    }
}
