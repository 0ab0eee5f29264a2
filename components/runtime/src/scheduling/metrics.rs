//! The metrics of the scheduler, under the names of kube-scheduler's metrics.

use holdfast_scheduler::plugin::QueueingHint;
use holdfast_scheduler::queue::HintCall;
use holdfast_scheduler::scheduler::{MetricSample, Scheduler};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use std::time::Duration;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AttemptLabels {
    profile: String,
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct QueueLabel {
    queue: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct IncomingLabels {
    queue: &'static str,
    event: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StatusLabel {
    status: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RejectorLabels {
    plugin: &'static str,
    profile: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EventLabel {
    event: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OperationLabel {
    operation: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PointLabels {
    extension_point: &'static str,
    status: &'static str,
    profile: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PluginLabels {
    plugin: &'static str,
    extension_point: &'static str,
    status: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct HintLabels {
    plugin: &'static str,
    event: &'static str,
    hint: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EvaluationLabels {
    plugin: &'static str,
    extension_point: &'static str,
    profile: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AttemptsLabel {
    attempts: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CacheLabel {
    r#type: &'static str,
}

type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

pub struct Metrics {
    attempts: Family<AttemptLabels, Counter>,
    attempt_seconds: Histograms<AttemptLabels>,
    algorithm_seconds: Histogram,
    pending: Family<QueueLabel, Gauge>,
    incoming: Family<IncomingLabels, Counter>,
    pod_attempts: Histogram,
    pod_seconds: Histograms<AttemptsLabel>,
    unschedulable_pods: Family<RejectorLabels, Gauge>,
    in_flight_events: Family<EventLabel, Gauge>,
    goroutines: Family<OperationLabel, Gauge>,
    victims: Histogram,
    preemptions: Counter,
    evictions: Family<ResultLabel, Counter>,
    eviction_seconds: Histograms<ResultLabel>,
    permit_seconds: Histograms<ResultLabel>,
    event_seconds: Histograms<EventLabel>,
    point_seconds: Histograms<PointLabels>,
    plugin_seconds: Histograms<PluginLabels>,
    evaluations: Family<EvaluationLabels, Counter>,
    hint_seconds: Histograms<HintLabels>,
    volume_failures: Family<OperationLabel, Counter>,
    claims_created: Family<StatusLabel, Counter>,
    after_flush: Counter,
    cache: Family<CacheLabel, Gauge>,
}

fn attempt_buckets() -> Histogram {
    Histogram::new(exponential_buckets(0.001, 2.0, 15))
}

fn pod_buckets() -> Histogram {
    Histogram::new(exponential_buckets(0.01, 2.0, 20))
}

fn event_buckets() -> Histogram {
    Histogram::new(exponential_buckets(0.0001, 2.0, 12))
}

fn plugin_buckets() -> Histogram {
    Histogram::new(exponential_buckets(0.00001, 1.5, 20))
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics {
            attempts: Family::default(),
            attempt_seconds: Family::new_with_constructor(attempt_buckets),
            algorithm_seconds: attempt_buckets(),
            pending: Family::default(),
            incoming: Family::default(),
            pod_attempts: Histogram::new(exponential_buckets(1.0, 2.0, 5)),
            pod_seconds: Family::new_with_constructor(pod_buckets),
            unschedulable_pods: Family::default(),
            in_flight_events: Family::default(),
            goroutines: Family::default(),
            victims: Histogram::new(exponential_buckets(1.0, 2.0, 7)),
            preemptions: Counter::default(),
            evictions: Family::default(),
            eviction_seconds: Family::new_with_constructor(pod_buckets),
            permit_seconds: Family::new_with_constructor(attempt_buckets),
            event_seconds: Family::new_with_constructor(event_buckets),
            point_seconds: Family::new_with_constructor(event_buckets),
            plugin_seconds: Family::new_with_constructor(plugin_buckets),
            evaluations: Family::default(),
            hint_seconds: Family::new_with_constructor(plugin_buckets),
            volume_failures: Family::default(),
            claims_created: Family::default(),
            after_flush: Counter::default(),
            cache: Family::default(),
        }
    }
}

impl Metrics {
    /// Registers all metrics of the scheduler. The registry appends `_total` to the names of counters.
    pub fn register(&self, registry: &mut Registry) {
        let own = registry.sub_registry_with_prefix("scheduler");
        own.register("schedule_attempts", "Attempts to schedule pods, by result", self.attempts.clone());
        own.register(
            "scheduling_attempt_duration_seconds",
            "How long attempts took, binding included",
            self.attempt_seconds.clone(),
        );
        own.register(
            "scheduling_algorithm_duration_seconds",
            "How long it took to find a place",
            self.algorithm_seconds.clone(),
        );
        own.register("pending_pods", "Pods that wait, by queue", self.pending.clone());
        own.register("queue_incoming_pods", "Pods that came to a queue, by event", self.incoming.clone());
        own.register("pod_scheduling_attempts", "Attempts until a pod was scheduled", self.pod_attempts.clone());
        own.register(
            "pod_scheduling_sli_duration_seconds",
            "Time from when a pod could first be tried until it was scheduled",
            self.pod_seconds.clone(),
        );
        own.register(
            "unschedulable_pods",
            "Pods that wait, by the plug-ins that refused them",
            self.unschedulable_pods.clone(),
        );
        own.register(
            "inflight_events",
            "Events kept for pods that are being tried or bound",
            self.in_flight_events.clone(),
        );
        own.register("goroutines", "What is under way, by what it is", self.goroutines.clone());
        own.register("preemption_victims", "Pods that go for another", self.victims.clone());
        own.register("preemption_attempts", "Preemptions so far", self.preemptions.clone());
        own.register("preemption_goroutines_execution", "Evictions, by result", self.evictions.clone());
        own.register(
            "preemption_goroutines_duration_seconds",
            "How long evictions took",
            self.eviction_seconds.clone(),
        );
        own.register(
            "permit_wait_duration_seconds",
            "How long pods waited for their gang",
            self.permit_seconds.clone(),
        );
        own.register(
            "event_handling_duration_seconds",
            "How long it took to take a change in",
            self.event_seconds.clone(),
        );
        own.register(
            "framework_extension_point_duration_seconds",
            "How long it took to pass a point on the way to a node, of one attempt in ten",
            self.point_seconds.clone(),
        );
        own.register(
            "plugin_execution_duration_seconds",
            "How long a plug-in took at a point, of one attempt in ten",
            self.plugin_seconds.clone(),
        );
        own.register("plugin_evaluation", "How often plug-ins were asked, by point", self.evaluations.clone());
        own.register(
            "queueing_hint_execution_duration_seconds",
            "How long a plug-in was asked what it hopes for from an event",
            self.hint_seconds.clone(),
        );
        own.register(
            "volume_scheduling_stage_error",
            "Failures to have volumes for pods, by stage",
            self.volume_failures.clone(),
        );
        own.register(
            "resourceclaim_creates",
            "Claims that were to be made for extended resources of pods, by what came of it",
            self.claims_created.clone(),
        );
        own.register(
            "pod_scheduled_after_flush",
            "Pods that were scheduled after they had waited for too long without an event that gave hope",
            self.after_flush.clone(),
        );
        own.register("cache_size", "Nodes and pods that are known", self.cache.clone());
    }

    pub(super) fn observe(&self, sample: &MetricSample) {
        match sample {
            MetricSample::Attempt { profile, result, began, ended } => {
                let labels = AttemptLabels { profile: profile.to_string(), result };
                self.attempts.get_or_create(&labels).inc();
                self.attempt_seconds.get_or_create(&labels).observe(seconds(ended - began));
            }
            MetricSample::Bound { attempts, first_active, flushed, at } => {
                self.after_flush.inc_by(u64::from(*flushed));
                self.pod_attempts.observe(f64::from(*attempts));
                let attempts = if *attempts < 15 { attempts.to_string() } else { "15+".to_owned() };
                self.pod_seconds.get_or_create(&AttemptsLabel { attempts }).observe(seconds(at - first_active));
            }
            MetricSample::PreemptionAttempted => _ = self.preemptions.inc(),
            MetricSample::Preemption { victims } => self.victims.observe(*victims as f64),
            MetricSample::Evicted { success, began, ended } => {
                let result = ResultLabel { result: if *success { "success" } else { "error" } };
                self.evictions.get_or_create(&result).inc();
                self.eviction_seconds.get_or_create(&result).observe(seconds(ended - began));
            }
            MetricSample::ExtensionPoint { profile, point, plugin, success, began, ended } => {
                let (extension_point, status) = (*point, if *success { "Success" } else { "Error" });
                let took = seconds(ended - began);
                let labels = PointLabels { extension_point, status, profile: profile.to_string() };
                self.point_seconds.get_or_create(&labels).observe(took);
                self.plugin_seconds.get_or_create(&PluginLabels { plugin, extension_point, status }).observe(took);
            }
            MetricSample::HintCall(HintCall { plugin, event, hint, took }) => {
                let hint = if *hint == QueueingHint::Queue { "Queue" } else { "QueueSkip" };
                self.hint_seconds.get_or_create(&HintLabels { plugin, event, hint }).observe(took.as_secs_f64());
            }
            MetricSample::VolumeBindingFailed => {
                self.volume_failures.get_or_create(&OperationLabel { operation: "bind" }).inc();
            }
            MetricSample::ClaimCreated { success } => {
                let status = if *success { "success" } else { "failure" };
                self.claims_created.get_or_create(&StatusLabel { status }).inc();
            }
            MetricSample::PermitWait { result, began, ended } => {
                self.permit_seconds.get_or_create(&ResultLabel { result }).observe(seconds(ended - began));
            }
        }
    }

    pub(super) fn observe_planning(&self, took: Duration) {
        self.algorithm_seconds.observe(took.as_secs_f64());
    }

    pub(super) fn observe_event(&self, event: &'static str, took: Duration) {
        self.event_seconds.get_or_create(&EventLabel { event }).observe(took.as_secs_f64());
    }

    pub(super) fn observe_queue(&self, scheduler: &mut Scheduler) {
        for (profile, extension_point, plugin, count) in scheduler.evaluations() {
            let label = EvaluationLabels { plugin, extension_point, profile: profile.to_string() };
            let counter = self.evaluations.get_or_create(&label);
            counter.inc_by(count.saturating_sub(counter.get()));
        }

        let pending = scheduler.pending_pods();
        let queues = [
            ("active", pending.active),
            ("backoff", pending.backoff),
            ("unschedulable", pending.unschedulable),
            ("gated", pending.gated),
        ];
        for (queue, pods) in queues {
            self.pending.get_or_create(&QueueLabel { queue }).set(gauge(pods));
        }
        for (queue, event, count) in scheduler.incoming_pods() {
            let counter = self.incoming.get_or_create(&IncomingLabels { queue, event });
            counter.inc_by(count.saturating_sub(counter.get()));
        }
        for (plugin, scheduler, pods) in scheduler.unschedulable_pods() {
            self.unschedulable_pods
                .get_or_create(&RejectorLabels { plugin, profile: scheduler.to_string() })
                .set(gauge(pods));
        }
        for (event, count) in scheduler.in_flight_event_counts() {
            self.in_flight_events.get_or_create(&EventLabel { event }).set(gauge(count));
        }
        self.goroutines.get_or_create(&OperationLabel { operation: "binding" }).set(gauge(scheduler.binding_count()));
        let snapshot = scheduler.snapshot();
        let sizes = [
            ("nodes", snapshot.node_count()),
            ("pods", snapshot.pod_count()),
            ("assumed_pods", snapshot.assumed_count()),
        ];
        for (r#type, size) in sizes {
            self.cache.get_or_create(&CacheLabel { r#type }).set(gauge(size));
        }
    }
}

fn gauge(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn seconds(nanoseconds: i128) -> f64 {
    nanoseconds as f64 / 1e9
}
