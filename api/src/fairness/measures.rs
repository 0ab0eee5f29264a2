//! Metrics of flow control, under Kubernetes' names.
//!
//! A flow's counters are looked up when the flow is configured, and removed when it is no longer configured. So no
//! request has to look up a counter, and clients cannot create labels.

use super::Kind;
use super::over_time::OverTime;
use crate::metrics::Histogram;
use holdfast_core::flowcontrol::seats::{Bounds, Demand};
use holdfast_core::flowcontrol::{Moment, Work};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use std::collections::BTreeSet;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelSet)]
struct OfFlow {
    priority_level: String,
    flow_schema: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Waited {
    priority_level: String,
    flow_schema: String,
    execute: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Rejected {
    priority_level: String,
    flow_schema: String,
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Executed {
    priority_level: String,
    flow_schema: String,
    r#type: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelSet)]
struct OfLevel {
    priority_level: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct InPhase {
    phase: &'static str,
    priority_level: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfKind {
    phase: &'static str,
    request_kind: &'static str,
}

/// Whether a request waits for seats or is being executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Waiting,
    Executing,
}

const PHASES: [&str; 2] = ["waiting", "executing"];
const KINDS: [&str; 2] = ["readOnly", "mutating"];

/// The reason why flow control refuses a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reason {
    QueueFull,
    ConcurrencyLimit,
    TimeOut,
    Cancelled,
}

const REASONS: [&str; 4] = ["queue-full", "concurrency-limit", "time-out", "cancelled"];
const TYPES: [&str; 2] = ["regular", "watch"];

type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;
type Numbers<L> = Family<L, OverTime, fn() -> OverTime>;
type Fraction = Gauge<f64, AtomicU64>;

/// All counters of flow control.
#[derive(Clone)]
pub struct Measures {
    dispatched: Family<OfFlow, Counter>,
    rejected: Family<Rejected, Counter>,
    waiting: Family<OfFlow, Gauge>,
    waiting_seats: Family<OfFlow, Gauge>,
    executing: Family<OfFlow, Gauge>,
    executing_seats: Family<OfFlow, Gauge>,
    waited: Histograms<Waited>,
    executed: Histograms<Executed>,
    queue_length: Histograms<OfFlow>,
    watchers: Histograms<OfFlow>,
    seats: Histograms<OfFlow>,
    nominal: Family<OfLevel, Gauge>,
    lower: Family<OfLevel, Gauge>,
    upper: Family<OfLevel, Gauge>,
    current: Family<OfLevel, Gauge>,
    demand_peak: Family<OfLevel, Gauge>,
    demand_average: Family<OfLevel, Fraction>,
    demand_deviation: Family<OfLevel, Fraction>,
    demand_smoothed: Family<OfLevel, Fraction>,
    target: Family<OfLevel, Fraction>,
    fair_part: Fraction,
    demand_over_time: Numbers<OfLevel>,
    seats_over_time: Numbers<InPhase>,
    requests_over_time: Numbers<InPhase>,
    kinds_over_time: Numbers<OfKind>,
    /// The flows and levels that have counters now.
    kept: Arc<Mutex<(BTreeSet<OfFlow>, BTreeSet<OfLevel>)>>,
}

fn durations() -> Histogram {
    Histogram::of_times(&[0.0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0])
}

fn lengths() -> Histogram {
    Histogram::of_numbers(&[0.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0])
}

fn watchers() -> Histogram {
    Histogram::of_numbers(&[0.0, 1.0, 10.0, 100.0, 1000.0, 10_000.0])
}

fn widths() -> Histogram {
    Histogram::of_numbers(&[1.0, 2.0, 4.0, 10.0])
}

fn demands() -> OverTime {
    OverTime::new(&[0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.4, 1.7, 2.0, 2.8, 4.0, 6.0])
}

fn seat_parts() -> OverTime {
    OverTime::new(&[0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0])
}

fn request_parts() -> OverTime {
    OverTime::new(&[0.0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.25, 0.5, 0.75, 1.0])
}

fn kinds() -> OverTime {
    OverTime::new(&[0.0, 0.001, 0.01, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0])
}

impl Default for Measures {
    fn default() -> Measures {
        let histograms = |make: fn() -> Histogram| Histograms::<OfFlow>::new_with_constructor(make);
        Measures {
            dispatched: Family::default(),
            rejected: Family::default(),
            waiting: Family::default(),
            waiting_seats: Family::default(),
            executing: Family::default(),
            executing_seats: Family::default(),
            waited: Histograms::new_with_constructor(durations),
            executed: Histograms::new_with_constructor(durations),
            queue_length: histograms(lengths),
            watchers: histograms(watchers),
            seats: histograms(widths),
            nominal: Family::default(),
            lower: Family::default(),
            upper: Family::default(),
            current: Family::default(),
            demand_peak: Family::default(),
            demand_average: Family::default(),
            demand_deviation: Family::default(),
            demand_smoothed: Family::default(),
            target: Family::default(),
            fair_part: Fraction::default(),
            demand_over_time: Numbers::new_with_constructor(demands),
            seats_over_time: Numbers::new_with_constructor(seat_parts),
            requests_over_time: Numbers::new_with_constructor(request_parts),
            kinds_over_time: Numbers::new_with_constructor(kinds),
            kept: Arc::default(),
        }
    }
}

impl Measures {
    pub(crate) fn register(&self, registry: &mut Registry) {
        let of = registry.sub_registry_with_prefix("apiserver_flowcontrol");
        of.register("dispatched_requests", "Requests that began", self.dispatched.clone());
        of.register("rejected_requests", "Requests refused by flow control", self.rejected.clone());
        of.register("current_inqueue_requests", "Requests in queues", self.waiting.clone());
        of.register("current_inqueue_seats", "Seats wanted by requests in queues", self.waiting_seats.clone());
        of.register("current_executing_requests", "Requests being carried out", self.executing.clone());
        of.register("current_executing_seats", "Seats taken, after the request too", self.executing_seats.clone());
        of.register("request_wait_duration_seconds", "Time in queues", self.waited.clone());
        of.register("request_execution_seconds", "Time from the begin to the end", self.executed.clone());
        of.register("request_queue_length_after_enqueue", "Requests in the queue", self.queue_length.clone());
        of.register("watch_count_samples", "Watchers of what is written", self.watchers.clone());
        of.register("work_estimated_seats", "Seats that requests were thought to need", self.seats.clone());
        of.register("nominal_limit_seats", "Seats by share", self.nominal.clone());
        of.register("lower_limit_seats", "Seats that are not lent", self.lower.clone());
        of.register("upper_limit_seats", "Seats with all that may be borrowed", self.upper.clone());
        of.register("current_limit_seats", "Seats now", self.current.clone());
        of.register("demand_seats_high_watermark", "Most seats wanted in the last period", self.demand_peak.clone());
        of.register("demand_seats_average", "Seats wanted in the last period", self.demand_average.clone());
        of.register("demand_seats_stdev", "Deviation of the seats wanted", self.demand_deviation.clone());
        of.register("demand_seats_smoothed", "Seats wanted lately", self.demand_smoothed.clone());
        of.register("target_seats", "Seats aimed at", self.target.clone());
        of.register("seat_fair_frac", "Part of what they want that levels get", self.fair_part.clone());
        of.register("demand_seats", "Seats wanted, by share, over time", self.demand_over_time.clone());
        of.register("priority_level_seat_utilization", "Seats taken, of those now", self.seats_over_time.clone());
        of.register("priority_level_request_utilization", "Requests, of the most", self.requests_over_time.clone());
        of.register("read_vs_write_current_requests", "Requests over time", self.kinds_over_time.clone());
    }

    /// Returns the counters of the flow of `level` and `schema`.
    pub(super) fn of_flow(&self, level: &str, schema: &str) -> FlowMeasures {
        let labels = OfFlow { priority_level: level.to_owned(), flow_schema: schema.to_owned() };
        let waited = |execute| self.waited.get_or_create_owned(&labels.waited(execute));
        let measures = FlowMeasures {
            dispatched: self.dispatched.get_or_create_owned(&labels),
            rejected: REASONS.map(|reason| self.rejected.get_or_create_owned(&labels.rejected(reason))),
            waiting: self.waiting.get_or_create_owned(&labels),
            waiting_seats: self.waiting_seats.get_or_create_owned(&labels),
            executing: self.executing.get_or_create_owned(&labels),
            executing_seats: self.executing_seats.get_or_create_owned(&labels),
            waited: waited("true"),
            gave_up: waited("false"),
            executed: TYPES.map(|of| self.executed.get_or_create_owned(&labels.executed(of))),
            queue_length: self.queue_length.get_or_create_owned(&labels),
            watchers: self.watchers.get_or_create_owned(&labels),
            seats: self.seats.get_or_create_owned(&labels),
        };
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).0.insert(labels);
        measures
    }

    /// Removes the counters of all flows and levels except the given flows and levels.
    pub(super) fn keep<'a>(
        &self,
        flows: impl Iterator<Item = (&'a str, &'a str)>,
        levels: impl Iterator<Item = &'a String>,
    ) {
        let flows: BTreeSet<(&str, &str)> = flows.collect();
        let levels: BTreeSet<&str> = levels.map(String::as_str).collect();
        let (known_flows, known_levels) = &mut *self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        known_flows.retain(|flow| {
            let stays = flows.contains(&(&*flow.priority_level, &*flow.flow_schema));
            if !stays {
                self.forget_flow(flow);
            }
            stays
        });
        known_levels.retain(|level| {
            let stays = levels.contains(&*level.priority_level);
            if !stays {
                self.forget_level(level);
            }
            stays
        });
    }

    fn forget_flow(&self, flow: &OfFlow) {
        self.dispatched.remove(flow);
        for gauge in [&self.waiting, &self.waiting_seats, &self.executing, &self.executing_seats] {
            gauge.remove(flow);
        }
        for histogram in [&self.queue_length, &self.watchers, &self.seats] {
            histogram.remove(flow);
        }
        for reason in REASONS {
            self.rejected.remove(&flow.rejected(reason));
        }
        for of in TYPES {
            self.executed.remove(&flow.executed(of));
        }
        for execute in ["true", "false"] {
            self.waited.remove(&flow.waited(execute));
        }
    }

    fn forget_level(&self, level: &OfLevel) {
        for gauge in [&self.nominal, &self.lower, &self.upper, &self.current, &self.demand_peak] {
            gauge.remove(level);
        }
        for gauge in [&self.demand_average, &self.demand_deviation, &self.demand_smoothed, &self.target] {
            gauge.remove(level);
        }
        self.demand_over_time.remove(level);
        for phase in PHASES {
            let level = InPhase { phase, priority_level: level.priority_level.clone() };
            self.seats_over_time.remove(&level);
            self.requests_over_time.remove(&level);
        }
    }

    /// Histograms over time of how full a level is.
    pub(super) fn fullness(&self, name: &str) -> Fullness {
        let level = self.level(name);
        let requests = |phase: Phase| {
            let labels = InPhase { phase: PHASES[phase as usize], priority_level: name.to_owned() };
            self.requests_over_time.get_or_create_owned(&labels)
        };
        let executing = InPhase { phase: PHASES[Phase::Executing as usize], priority_level: name.to_owned() };
        Fullness {
            demand: self.demand_over_time.get_or_create_owned(&level),
            seats: self.seats_over_time.get_or_create_owned(&executing),
            waiting: requests(Phase::Waiting),
            executing: requests(Phase::Executing),
        }
    }

    /// Histograms over time of the number of requests of each kind.
    pub(super) fn by_kind(&self) -> ByKind {
        let of = |phase, request_kind| self.kinds_over_time.get_or_create_owned(&OfKind { phase, request_kind });
        ByKind(PHASES.map(|phase| KINDS.map(|kind| of(phase, kind))))
    }

    fn level(&self, name: &str) -> OfLevel {
        let labels = OfLevel { priority_level: name.to_owned() };
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).1.insert(labels.clone());
        labels
    }

    pub(super) fn bounds(&self, name: &str, bounds: Bounds) {
        let level = self.level(name);
        self.nominal.get_or_create(&level).set(bounds.nominal.into());
        self.lower.get_or_create(&level).set(bounds.lower.into());
        self.upper.get_or_create(&level).set(bounds.upper.into());
    }

    pub(super) fn demand(&self, name: &str, demand: &Demand, smoothed: f64, bounds: Bounds) {
        let level = self.level(name);
        self.demand_peak.get_or_create(&level).set(i64::try_from(demand.max()).unwrap_or(i64::MAX));
        self.demand_average.get_or_create(&level).set(demand.average());
        self.demand_deviation.get_or_create(&level).set(demand.deviation());
        self.demand_smoothed.get_or_create(&level).set(smoothed);
        self.target.get_or_create(&level).set(smoothed.max(bounds.lower.into()));
    }

    pub(super) fn current_limit(&self, name: &str, seats: u32) {
        self.current.get_or_create(&self.level(name)).set(seats.into());
    }

    pub(super) fn fair_part(&self, part: f64) {
        self.fair_part.set(part);
    }
}

impl OfFlow {
    fn waited(&self, execute: &'static str) -> Waited {
        let OfFlow { priority_level, flow_schema } = self.clone();
        Waited { priority_level, flow_schema, execute }
    }

    fn rejected(&self, reason: &'static str) -> Rejected {
        let OfFlow { priority_level, flow_schema } = self.clone();
        Rejected { priority_level, flow_schema, reason }
    }

    fn executed(&self, r#type: &'static str) -> Executed {
        let OfFlow { priority_level, flow_schema } = self.clone();
        Executed { priority_level, flow_schema, r#type }
    }
}

/// The number of requests of each kind over time, by phase.
pub(super) struct ByKind([[OverTime; KINDS.len()]; PHASES.len()]);

impl ByKind {
    pub fn add(&self, now: Moment, phase: Phase, kind: Kind, by: i64) {
        self.0[phase as usize][usize::from(kind == Kind::Mutating)].add(now, by as f64);
    }

    pub fn bring_to(&self, now: Moment) {
        self.0.iter().flatten().for_each(|number| number.add(now, 0.0));
    }
}

/// Histograms over time of how full a level is, as fractions of its limits.
pub(super) struct Fullness {
    demand: OverTime,
    seats: OverTime,
    waiting: OverTime,
    executing: OverTime,
}

/// A level's seats and requests at a moment, and its limits.
#[derive(Debug, Default)]
pub(super) struct Level {
    pub demand: u64,
    pub seats: u64,
    pub waiting: usize,
    pub executing: usize,
    pub nominal: u32,
    pub seats_max: u32,
    pub waiting_max: u64,
}

impl Fullness {
    /// Records the values of the level that differ from `before`.
    pub fn note(&self, now: Moment, before: &Level, level: &Level) {
        let part = |(number, of): (u64, u64)| number as f64 / of.max(1) as f64;
        for (over_time, of) in [
            (&self.demand, (|level| (level.demand, level.nominal.into())) as fn(&Level) -> (u64, u64)),
            (&self.seats, |level| (level.seats, level.seats_max.into())),
            (&self.waiting, |level| (level.waiting as u64, level.waiting_max)),
            (&self.executing, |level| (level.executing as u64, level.seats_max.into())),
        ] {
            let now_is = of(level);
            if now_is != of(before) {
                over_time.set(now, part(now_is));
            }
        }
    }

    /// Adds the time since the last change of each number to the histograms.
    pub fn bring_to(&self, now: Moment) {
        for number in [&self.demand, &self.seats, &self.waiting, &self.executing] {
            number.add(now, 0.0);
        }
    }
}

/// The counters of one flow. They are stored here, so that no request has to look them up by their labels.
pub(crate) struct FlowMeasures {
    dispatched: Counter,
    rejected: [Counter; REASONS.len()],
    waiting: Gauge,
    waiting_seats: Gauge,
    executing: Gauge,
    executing_seats: Gauge,
    waited: Histogram,
    gave_up: Histogram,
    executed: [Histogram; TYPES.len()],
    queue_length: Histogram,
    watchers: Histogram,
    seats: Histogram,
}

impl FlowMeasures {
    pub(super) fn estimated(&self, work: &Work) {
        self.seats.observe(work.seats().into());
    }

    /// Observes the number of watchers that a write will notify.
    pub fn watched(&self, watchers: usize) {
        self.watchers.observe(watchers as u64);
    }

    pub(super) fn waits(&self, work: &Work, length: usize) {
        self.waiting.inc();
        self.waiting_seats.inc_by(work.seats().into());
        self.queue_length.observe(length as u64);
    }

    pub(super) fn stops_waiting(&self, work: &Work) {
        self.waiting.dec();
        self.waiting_seats.dec_by(work.seats().into());
    }

    pub(super) fn gives_up(&self, waited: Duration) {
        self.gave_up.took(waited);
    }

    pub(super) fn starts(&self, work: &Work, waited: Duration) {
        self.dispatched.inc();
        self.executing.inc();
        self.executing_seats.inc_by(work.seats().into());
        self.waited.took(waited);
    }

    pub(super) fn ends(&self, kind: Kind, took: Duration) {
        self.executing.dec();
        self.executed[usize::from(kind == Kind::Watching)].took(took);
    }

    pub(super) fn released(&self, seats: u32) {
        self.executing_seats.dec_by(seats.into());
    }

    pub(super) fn rejected(&self, reason: Reason) {
        self.rejected[reason as usize].inc();
    }
}
