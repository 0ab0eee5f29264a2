//! The service. Every call passes its layers. A panic in one call ends only that call.

use crate::fairness::Fairness;
use crate::layers::{self, CallParts, FlowControl, Layers, Outcome, Received, RequestContext};
use crate::metrics::{Metrics, Watching};
use crate::reply::Answer;
use crate::tokens::{NoTokens, Tokens};
use crate::{AnswerCode, Authorities, Call, CallSubject, RequestId, Share, Source, Statuses};
use futures_util::FutureExt;
use holdfast_audit::{Auditor, RequestEnd};
use holdfast_core::Refusal;
use holdfast_core::admission::Told;
use holdfast_core::authz::webhook::Question;
use holdfast_core::authz::{Authorizer, Consulted, Opinions, User};
use holdfast_core::event::Offset;
use holdfast_core::kinds::Kind;
use holdfast_core::refusal::Internal;
use holdfast_core::state::State;
use holdfast_engine::Engine;
use holdfast_engine::planted::{Bug, planted};
use holdfast_engine::read_memory::Told as ReadMemory;
use prometheus_client::registry::Registry;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The service. A server has one service, which all transports and all callers in the process share.
pub struct Service {
    engine: Arc<Engine>,
    layers: Box<dyn Layers<Received>>,
    metrics: Arc<Metrics>,
    flow: Arc<FlowControl>,
    tokens: Arc<dyn Tokens>,
    auditor: Option<Arc<Auditor>>,
    watch_min: Duration,
    meters: Vec<Meter>,
    authorities: Option<Arc<dyn Authorities>>,
    constrained_impersonation: bool,
    upgrades_need_create: bool,
    /// This server has written the rules of aggregated roles according to all events up to this version.
    gathered: AtomicU64,
    components: OnceLock<&'static [&'static str]>,
}

/// The operator's settings of the service.
pub struct Options {
    pub limits: Limits,
    /// The maximum time that a request waits for its turn under priority and fairness. With `None`, requests over the
    /// limits are refused instead.
    pub fairness: Option<Duration>,
    /// Verifies the tokens in TokenReviews.
    pub tokens: Arc<dyn Tokens>,
    /// Writes audit events of requests; `None` if requests are not audited.
    pub auditor: Option<Arc<Auditor>>,
    /// The minimum duration of a watch whose client names no duration. Such a watch lasts up to twice as long.
    pub watch_min: Duration,
    /// Metrics of other parts of the server, which are appended to the metrics of the service.
    pub meters: Vec<Meter>,
    /// The authorization webhooks, if there are any.
    pub authorities: Option<Arc<dyn Authorities>>,
    /// Whether constrained impersonation is enabled, that is, verbs that allow impersonation only for some requests.
    pub constrained_impersonation: bool,
    /// Whether a GET to a pod's `exec`, `attach` or `portforward` also requires permission for the verb `create` on the
    /// subresource.
    pub upgrades_need_create: bool,
    /// The functions with which the transport makes status codes and `Status` documents.
    pub statuses: Statuses,
}

/// The default of [`Options::watch_min`]: half an hour. The durations of watches are spread between this time and twice
/// this time, so that clients do not all reconnect at once.
pub const WATCH_MIN: Duration = Duration::from_secs(1800);

/// Returns metrics in Prometheus' text format, without the final line `# EOF`.
pub type Meter = Arc<dyn Fn() -> String + Send + Sync>;

/// The maximum numbers of requests in progress; zero for no limit. Watches do not count as requests in progress.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    pub reading_max: u32,
    pub mutating_max: u32,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            limits: Limits::default(),
            fairness: None,
            tokens: Arc::new(NoTokens),
            auditor: None,
            meters: Vec::new(),
            authorities: None,
            constrained_impersonation: false,
            upgrades_need_create: true,
            watch_min: WATCH_MIN,
            statuses: Statuses::default(),
        }
    }
}

impl Service {
    pub fn new(engine: Arc<Engine>, options: Options) -> Arc<Service> {
        let metrics = Arc::new(Metrics::new(options.statuses));
        let Limits { reading_max, mutating_max } = options.limits;
        let fairness = options.fairness.map(|wait_max| {
            let seats = reading_max.saturating_add(mutating_max);
            Fairness::new(seats, wait_max, &engine.snapshot(), metrics.fairness.clone())
        });
        let flow = FlowControl::new(options.limits, fairness, metrics.clone(), engine.stamp().seed);
        Service::of(engine, metrics, flow, options)
    }

    /// The service of a fork. Its calls count against the limits of this service.
    pub fn beside(&self, engine: Arc<Engine>, tokens: Arc<dyn Tokens>) -> Arc<Service> {
        let metrics = Arc::new(Metrics::new(self.statuses()));
        let flow = self.flow.beside(metrics.clone());
        let began = engine.snapshot().offset;
        let (auditor, authorities) = (self.auditor.clone(), self.authorities.clone());
        let options = Options {
            tokens,
            auditor,
            authorities,
            watch_min: self.watch_min,
            constrained_impersonation: self.constrained_impersonation,
            upgrades_need_create: self.upgrades_need_create,
            statuses: self.statuses(),
            ..Options::default()
        };
        let service = Service::of(engine, metrics, flow, options);
        // The rules that this service wrote after the fork began are not in the fork.
        service.note_gathered(Some(self.gathered()).filter(|gathered| *gathered <= began).unwrap_or_default());
        service
    }

    fn of(engine: Arc<Engine>, metrics: Arc<Metrics>, flow: FlowControl, options: Options) -> Arc<Service> {
        let flow = Arc::new(flow);
        let layers = layers::all(&flow, &options);
        let Options { tokens, auditor, meters, authorities, watch_min, .. } = options;
        let Options { constrained_impersonation, upgrades_need_create, .. } = options;
        let gathered = AtomicU64::default();
        Arc::new(Service {
            engine,
            layers,
            metrics,
            flow,
            tokens,
            auditor,
            meters,
            authorities,
            watch_min,
            constrained_impersonation,
            upgrades_need_create,
            gathered,
            components: OnceLock::new(),
        })
    }

    /// This server has written the rules of aggregated roles according to all events up to this version.
    pub(crate) fn gathered(&self) -> Offset {
        Offset(self.gathered.load(Ordering::Relaxed))
    }

    pub(crate) fn note_gathered(&self, offset: Offset) {
        self.gathered.store(offset.0, Ordering::Relaxed);
    }

    /// Carries out a call. A fault, even a panic, ends only this call.
    pub async fn call(self: &Arc<Self>, call: Call) -> Answer {
        let Call { user, acting_as, id, at, asked, flaw, source, told, own } = call;
        let mut context = RequestContext::new(id.unwrap_or_else(|| self.new_id()), self.metrics.begin(), told);
        let parts = Box::new(CallParts { user, at, subject: asked, flaw });
        let answered = self.layers.call(self, &mut context, Received { parts, acting_as, own, source });
        let reply = caught(answered).await.and_then(|reply| reply);
        layers::ended(&mut context, &reply);
        let RequestContext { id, warnings, record, trail, mut place, .. } = context;
        if planted(Bug::PlaceKept) && reply.is_err() {
            std::mem::forget(place.take());
        }
        Answer { reply, warnings, id, record, trail, place }
    }

    /// Carries out a request of the server itself, and returns only the result.
    pub async fn act(self: &Arc<Self>, request: holdfast_core::request::Request) -> Outcome {
        let Answer { reply, trail, .. } = self.call(Call::own(request)).await;
        if let Some(trail) = trail {
            let AnswerCode(code) = (self.statuses().code)(reply.as_ref());
            trail.end(RequestEnd { code, ..RequestEnd::default() }).await;
        }
        reply
    }

    /// Counts and audits a call that the transport refused before the layers, for example because its user could not be
    /// authenticated.
    pub async fn turned_away(
        &self,
        asked: &CallSubject,
        id: Option<RequestId>,
        source: Option<Box<Source>>,
        refusal: Refusal,
        told: Told,
    ) -> Answer {
        let mut record = self.metrics.begin();
        layers::describe(&mut record, &self.engine.snapshot(), asked);
        record.outcome(Err(&refusal));
        let id = id.unwrap_or_else(|| self.new_id());
        if let Some(auditor) = &self.auditor {
            let (state, nobody) = (self.engine.snapshot(), Arc::new(User::new("", &[])));
            let Statuses { code, status, .. } = self.statuses();
            let (AnswerCode(code), status) = (code(Err(&refusal)), status(&refusal));
            let ended = RequestEnd { code, object: Some(status.clone()), status: Some(status) };
            let ruling = layers::audited(auditor, &state, &nobody, asked);
            let begun = || layers::begun(&state, id.as_str(), &nobody, asked, source);
            auditor.record_unauthenticated(ruling, begun, &told.annotations, ended).await;
        }
        Answer { reply: Err(refusal), warnings: Vec::new(), id, record, trail: None, place: None }
    }

    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// Sets the control plane components that run in this process, for ComponentStatuses.
    pub fn note_components(&self, names: &'static [&'static str]) {
        // If the names were already set, this call has no effect.
        let _ = self.components.set(names);
    }

    /// The control plane components that run in this process.
    pub fn components(&self) -> &'static [&'static str] {
        self.components.get().copied().unwrap_or_default()
    }

    /// The functions with which the transport makes status codes and `Status` documents.
    fn statuses(&self) -> Statuses {
        self.metrics.statuses
    }

    pub fn tokens(&self) -> &Arc<dyn Tokens> {
        &self.tokens
    }

    /// Whether requests are audited.
    pub fn is_audited(&self) -> bool {
        self.auditor.is_some()
    }

    /// The authorization webhooks.
    pub fn authorities(&self) -> Option<Arc<dyn Authorities>> {
        self.authorities.clone()
    }

    pub(crate) fn auditor(&self) -> Option<&Arc<Auditor>> {
        self.auditor.as_ref()
    }

    /// Calls `judge` with an authorizer for the roles of this state, and calls the webhooks whose answers `judge`
    /// needs.
    pub async fn judged<T>(&self, state: &State, judge: impl Fn(&Authorizer<'_>) -> T) -> T {
        let mut opinions = Opinions::new();
        loop {
            match self.judged_so_far(state, &opinions, &judge) {
                Ok(judged) => return judged,
                Err(open) => self.engine.consult(&mut opinions, open).await,
            }
        }
    }

    /// Like [`Self::judged`], without waiting. The error contains the questions that webhooks must answer first.
    pub fn judged_so_far<T>(
        &self,
        state: &State,
        opinions: &Opinions,
        judge: impl Fn(&Authorizer<'_>) -> T,
    ) -> Result<T, Vec<Question>> {
        let (chain, consulted) = (self.engine.authorizers(), Consulted::of(opinions));
        let judged = judge(&state.authorizer(&chain, &consulted));
        match consulted.take_open() {
            open if open.is_empty() => Ok(judged),
            open => Err(open),
        }
    }

    pub(crate) fn counts(&self) -> &Metrics {
        &self.metrics
    }

    /// Priority and fairness; `None` if requests over the limits are refused instead of waiting for their turn.
    pub fn fairness(&self) -> Option<&Arc<Fairness>> {
        self.flow.fairness()
    }

    /// A place among the requests that wait for a future version. The places are limited, so that the requests of one
    /// user cannot take all of them.
    pub fn wait(&self, user: &User) -> Result<Option<Share>, Refusal> {
        self.flow.wait(user)
    }

    /// Lets another part of this server register metrics.
    pub fn with_registry(&self, put: impl FnOnce(&mut Registry)) {
        self.metrics.with_registry(put);
    }

    /// All metrics of the server in Prometheus' text format.
    pub async fn metrics(&self) -> String {
        let (reading, mutating) = self.flow.in_progress();
        let log = self.engine.log().clone();
        let told = self.engine.reads().run(move || Some((log.oldest().ok()?, log.size().ok()?))).await;
        self.metrics.selectors_take(self.engine.hub().selector_bytes());
        let mut text = self.metrics.render(&self.engine.snapshot(), told, reading, mutating);
        let beside = [
            self.auditor.as_ref().map(|auditor| auditor.metrics()),
            self.authorities.as_ref().map(|authorities| authorities.metrics()),
            Some(read_memory(self.engine.reads().memory().told())),
        ];
        let meters = self.meters.iter().map(|meter| meter());
        for more in beside.into_iter().flatten().chain(meters) {
            let end = text.rfind("# EOF").unwrap_or(text.len());
            text.insert_str(end, &more);
        }
        text
    }

    /// The duration of a watch whose client names no duration. Durations are spread, so that clients do not all
    /// reconnect at once.
    pub(crate) fn watch_time(&self) -> Duration {
        let least = self.watch_min.as_secs();
        Duration::from_secs(least + self.engine.stamp().seed % least.max(1))
    }

    pub fn counters(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// Counts a request that the transport ended before it had an answer.
    pub fn cut_off(&self, refusal: &Refusal) {
        self.metrics.terminated(refusal);
    }

    /// Counts the result of authentication.
    pub fn count_authentication(&self, found: &Result<Option<Arc<User>>, String>, time: Duration) {
        self.metrics.authenticated(found, time);
    }

    /// The number of watches in progress.
    pub fn watches(&self) -> i64 {
        self.metrics.watches()
    }

    /// Counts a watch as in progress until the returned value is dropped.
    pub fn watching(&self) -> Watching {
        self.metrics.watching()
    }

    /// Converts the object if it is not yet converted, so that it can be shown in this version.
    pub(crate) async fn prepare(
        &self,
        kind: &Kind,
        version: usize,
        entry: &Arc<holdfast_core::state::Entry>,
    ) -> Result<(), Refusal> {
        self.engine.prepare(kind, version, std::slice::from_ref(entry)).await
    }

    /// Makes an id for a request that has none.
    pub fn new_id(&self) -> RequestId {
        RequestId::made(self.engine.stamp().uid(u64::MAX))
    }
}

/// The metrics of the memory that reads use, as text.
fn read_memory(told: ReadMemory) -> String {
    let rows = [
        ("bytes", "gauge", "", "Memory that reads hold", told.bytes),
        ("max_bytes", "gauge", "", "Memory that reads may hold together", told.bytes_max),
        ("largest_bytes", "gauge", "", "Memory that the reads of one user hold, at most", told.largest),
        ("holders", "gauge", "", "Users whose reads hold memory", told.holders),
        ("refused", "counter", "_total", "Reads refused for lack of memory", told.refused),
        ("gave_way", "counter", "_total", "How often a cached state was dropped to free memory", told.gave_way),
    ];
    let text = |(name, form, end, help, value): (&str, &str, &str, &str, u64)| {
        let name = format!("holdfast_read_memory_{name}");
        format!("# HELP {name} {help}.\n# TYPE {name} {form}\n{name}{end} {value}\n")
    };
    rows.map(text).concat()
}

/// Runs the work of one request. A panic in the work becomes a refusal.
pub async fn caught<T>(work: impl Future<Output = T>) -> Result<T, Refusal> {
    AssertUnwindSafe(work).catch_unwind().await.map_err(|panic| panicked(panic.as_ref()))
}

/// The refusal that the client gets for a panic. The details are logged.
pub fn panicked(panic: &(dyn std::any::Any + Send)) -> Refusal {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
    tracing::error!(panic = text, "a request was stopped by a fault of the server");
    Refusal::Internal(Internal::Panicked)
}
