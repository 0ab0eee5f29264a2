//! What the server counts, in Prometheus' form.
//!
//! Labels are verbs, and kinds and subresources that are served: what a stranger makes up is counted without a name,
//! or the table could be made to grow.

use crate::Reply;
use crate::admission_metrics::AdmissionMetrics;
use crate::decisions::Decisions;
use crate::fairness::{Flow, Measures};
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
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct RequestLabels {
    pub verb: String,
    pub group: String,
    pub version: String,
    pub resource: String,
    pub subresource: String,
    pub code: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct VerbLabels {
    verb: String,
}

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

pub struct Metrics {
    registry: Mutex<Registry>,
    requests: Family<RequestLabels, Counter>,
    durations: Family<VerbLabels, Histogram>,
    inflight: Family<KindLabels, Gauge>,
    watches: Gauge,
    objects: Family<ResourceLabels, Gauge>,
    offset: Gauge,
    oldest: Gauge,
    log_bytes: Gauge,
    let_go_events: Gauge,
    let_go_bytes: Gauge,
    rejected: Counter,
    terminations: Family<RequestLabels, Counter>,
    pub(crate) fairness: Measures,
    decisions: Decisions,
    // Kubernetes' names of these two do not end as those of counters must here.
    attempts: Family<ResultLabels, Gauge>,
    users: Family<UserLabels, Gauge>,
    authentications: Family<ResultLabels, Histogram>,
    admission: AdmissionMetrics,
}

/// One request as it is counted, when this is dropped. Without a code there was no answer to count.
#[derive(Default)]
pub struct Record {
    counting: Option<(Arc<Metrics>, Instant)>,
    pub(crate) labels: RequestLabels,
    /// Of flow control, where the request came that far.
    pub(crate) flow: Option<Arc<Flow>>,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::default();
        let requests = Family::default();
        let durations = Family::<VerbLabels, Histogram>::new_with_constructor(|| {
            Histogram::new([0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0, 60.0])
        });
        let inflight = Family::default();
        let watches = Gauge::default();
        let objects = Family::default();
        let offset = Gauge::default();
        let [oldest, log_bytes, let_go_events, let_go_bytes]: [Gauge; 4] = Default::default();
        let rejected = Counter::default();
        let terminations = Family::default();
        let (attempts, users) = (Family::default(), Family::default());
        let authentications = Family::<ResultLabels, Histogram>::new_with_constructor(|| {
            Histogram::new(std::iter::successors(Some(0.001), |bound| Some(bound * 2.0)).take(15))
        });
        registry.register("apiserver_request", "Requests answered", requests.clone());
        registry.register("apiserver_request_duration_seconds", "Time until the answer began", durations.clone());
        registry.register("apiserver_current_inflight_requests", "Requests in progress", inflight.clone());
        registry.register("apiserver_longrunning_requests", "Watches in progress", watches.clone());
        registry.register("apiserver_storage_objects", "Objects by resource", objects.clone());
        registry.register("holdfast_log_offset", "The last event of the log", offset.clone());
        registry.register("holdfast_log_oldest", "From this version on history is kept", oldest.clone());
        registry.register("holdfast_log_bytes", "What the log takes, without what was let go", log_bytes.clone());
        registry.register("holdfast_log_let_go_events", "Events let go since the start", let_go_events.clone());
        registry.register("holdfast_log_let_go_bytes", "What they took", let_go_bytes.clone());
        registry.register("apiserver_rejected_requests", "Requests over the in-flight limits", rejected.clone());
        let help = "Requests ended to protect the server";
        registry.register("apiserver_request_terminations", help, terminations.clone());
        let fairness = Measures::default();
        fairness.register(&mut registry);
        let decisions = Decisions::new(&mut registry);
        registry.register("authentication_attempts", "Requests whose user was looked for", attempts.clone());
        registry.register("authenticated_user_requests", "Requests whose user was found", users.clone());
        let what = "Time until the user was found, or not";
        registry.register("authentication_duration_seconds", what, authentications.clone());
        let admission = AdmissionMetrics::new(&mut registry);
        Metrics {
            registry: Mutex::new(registry),
            requests,
            durations,
            inflight,
            watches,
            objects,
            offset,
            oldest,
            log_bytes,
            let_go_events,
            let_go_bytes,
            rejected,
            terminations,
            fairness,
            decisions,
            attempts,
            users,
            authentications,
            admission,
        }
    }
}

impl Record {
    /// What flow control made of the request.
    pub fn flow(&self) -> Option<&Arc<Flow>> {
        self.flow.as_ref()
    }

    /// Says what the request came to; whoever renders the answer may know better.
    pub fn code(&mut self, code: u16) {
        self.labels.code = code;
    }

    /// Counts what admission told of the request.
    pub(crate) fn admitted(&self, told: &Told) {
        if let Some((metrics, _)) = &self.counting {
            metrics.admission.note(told, &self.labels);
        }
    }

    pub(crate) fn outcome(&mut self, outcome: Result<&Reply, &Refusal>) {
        self.code(outcome.map_or_else(holdfast_core::Refusal::code, Reply::code));
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        let Some((metrics, began)) = self.counting.take().filter(|_| self.labels.code != 0) else { return };
        let RequestLabels { verb, resource, code, .. } = &self.labels;
        let (apf_pl, apf_fs) = self.flow.as_ref().map_or(("", ""), |flow| (flow.level(), &*flow.schema));
        tracing::debug!(verb, resource, code, apf_pl, apf_fs, "answered");
        if verb != "watch" {
            let verb = VerbLabels { verb: verb.clone() };
            metrics.durations.get_or_create(&verb).observe(began.elapsed().as_secs_f64());
        }
        metrics.requests.get_or_create(&self.labels).inc();
    }
}

impl Metrics {
    pub fn with_registry(&self, put: impl FnOnce(&mut Registry)) {
        put(&mut self.registry.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Begins to count a request.
    pub fn begin(self: &Arc<Self>) -> Record {
        let counting = Some((self.clone(), Instant::now()));
        Record { counting, labels: RequestLabels::default(), flow: None }
    }

    /// Counts what authorization came to.
    pub fn authorized(&self, judged: &Judged, took: Duration) {
        self.decisions.count(judged, took);
    }

    /// Counts a request that is refused because there are too many.
    pub fn rejected(&self, record: &Record) {
        self.rejected.inc();
        self.terminations.get_or_create(&RequestLabels { code: 429, ..record.labels.clone() }).inc();
    }

    /// Counts how it was found out who asks, or not.
    pub fn authenticated(&self, found: &Result<Option<Arc<User>>, String>, time: Duration) {
        let result = match found {
            Ok(Some(_)) => "success",
            Ok(None) => "failure",
            Err(_) => "error",
        };
        let labels = ResultLabels { result };
        self.attempts.get_or_create(&labels).inc();
        self.authentications.get_or_create(&labels).observe(time.as_secs_f64());
        if let Ok(Some(user)) = found {
            self.users.get_or_create(&UserLabels { username: counted_as(&user.name).to_owned() }).inc();
        }
    }

    /// Counts a watch for as long as the result lives.
    pub fn watching(&self) -> Watching {
        self.watches.inc();
        Watching(self.watches.clone())
    }

    pub fn watches(&self) -> i64 {
        self.watches.get()
    }

    /// The exposition text, with what is read off the state at this moment.
    pub fn render(&self, state: &State, log: Option<(Offset, Size)>, reading: u64, mutating: u64) -> String {
        for (id, kind) in state.registry.iter().filter(|(_, kind)| kind.stored) {
            let group = &kind.hub().group;
            let resource = if group.is_empty() { kind.resource.clone() } else { format!("{}.{group}", kind.resource) };
            self.objects.get_or_create(&ResourceLabels { resource }).set(state.count(id) as i64);
        }
        self.offset.set(state.offset.0 as i64);
        // A log that cannot tell is faulty, which its health tells: what was last known stays.
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
        let _ = prometheus_client::encoding::text::encode(
            &mut text,
            &self.registry.lock().unwrap_or_else(PoisonError::into_inner),
        );
        text
    }
}

/// As whom a user is counted: few are by name, or the table could be made to grow.
fn counted_as(name: &str) -> &str {
    match name {
        "admin" | "client" | "kube_proxy" | "kubelet" | "system:serviceaccount:kube-system:default" => name,
        address if address.contains('@') => "email_id",
        _ => "other",
    }
}

/// A watch in progress.
pub struct Watching(Gauge);

impl Drop for Watching {
    fn drop(&mut self) {
        self.0.dec();
    }
}
