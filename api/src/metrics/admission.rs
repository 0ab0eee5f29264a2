//! Metrics of admission, under Kubernetes' names.

use super::{Histogram, RequestLabels};
use crate::AnswerCode;
use holdfast_core::admission::plugins::PLUGINS;
use holdfast_core::admission::{End, Half, Observation, Operation, Timing, Told};
use prometheus_client::encoding::{EncodeLabelSet, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::{MetricType, TypedMetric};
use prometheus_client::registry::Registry;
use std::sync::{LazyLock, OnceLock};
use std::time::Instant;

/// Nanoseconds since the first call in this process.
pub fn ticks() -> u64 {
    static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);
    u64::try_from(BEGAN.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StepLabels {
    r#type: &'static str,
    operation: &'static str,
    rejected: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct NamedLabels {
    name: String,
    r#type: &'static str,
    operation: &'static str,
    rejected: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AnswerLabels {
    name: String,
    r#type: &'static str,
    operation: &'static str,
    code: AnswerCode,
    rejected: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RejectionLabels {
    name: String,
    r#type: &'static str,
    operation: &'static str,
    error_type: &'static str,
    rejection_code: AnswerCode,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FailOpenLabels {
    name: String,
    r#type: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ConditionLabels {
    name: String,
    kind: &'static str,
    r#type: &'static str,
    operation: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct VerdictLabels {
    policy: String,
    policy_binding: String,
    error_type: &'static str,
    enforcement_action: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct MutationLabels {
    policy: String,
    policy_binding: String,
    error_type: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SecurityLabels {
    decision: &'static str,
    mode: &'static str,
    policy_level: String,
    policy_version: String,
    request_operation: &'static str,
    resource: &'static str,
    subresource: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ExemptionLabels {
    request_operation: &'static str,
    resource: &'static str,
    subresource: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ErrorLabels {
    fatal: &'static str,
    request_operation: &'static str,
    resource: &'static str,
    subresource: String,
}

/// Makes histograms with the given upper bounds of buckets.
#[derive(Clone)]
struct Buckets(&'static [f64]);

impl MetricConstructor<Histogram> for Buckets {
    fn new_metric(&self) -> Histogram {
        Histogram::of_times(self.0)
    }
}

type Durations<L> = Family<L, Histogram, Buckets>;

const OF_STEPS: &[f64] = &[0.005, 0.025, 0.1, 0.5, 1.0, 2.5];
const OF_WEBHOOKS: &[f64] = &[0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 25.0];
const OF_CONDITIONS: &[f64] = &[0.001, 0.005, 0.01, 0.025, 0.1, 0.2, 0.25];
const OF_POLICIES: &[f64] = &[0.000_000_5, 0.001, 0.01, 0.1, 1.0];

/// A counter whose name does not end with `_total`.
#[derive(Debug, Clone, Default)]
struct PlainCounter(Counter);

impl EncodeMetric for PlainCounter {
    fn encode(&self, mut encoder: MetricEncoder) -> std::fmt::Result {
        encoder.encode_gauge(&self.0.get())
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Unknown
    }
}

impl TypedMetric for PlainCounter {
    const TYPE: MetricType = MetricType::Unknown;
}

/// The number of rows of one plug-in. A plug-in has a row for each half of admission (mutating, validating), each of
/// four operations, and each result (rejected or not).
const ROWS_OF_ONE: usize = 2 * 4 * 2;

pub struct AdmissionMetrics {
    /// Returns the status code that metrics show for a call of a webhook, by the end of the call.
    code_of: fn(End) -> AnswerCode,
    steps: Durations<StepLabels>,
    plugins: Durations<NamedLabels>,
    /// The histograms of plug-ins and of whole halves, by index. A request observes about thirty of them, so they are
    /// not looked up by their labels.
    found: Vec<OnceLock<Histogram>>,
    webhooks: Durations<NamedLabels>,
    answers: Family<AnswerLabels, Counter>,
    rejections: Family<RejectionLabels, PlainCounter>,
    failed_open: Family<FailOpenLabels, PlainCounter>,
    conditions: Durations<ConditionLabels>,
    exclusions: Family<ConditionLabels, Counter>,
    condition_errors: Family<ConditionLabels, Counter>,
    verdicts: Family<VerdictLabels, Counter>,
    verdict_durations: Durations<VerdictLabels>,
    mutations: Family<MutationLabels, Counter>,
    mutation_durations: Durations<MutationLabels>,
    evaluations: Family<SecurityLabels, Counter>,
    exemptions: Family<ExemptionLabels, Counter>,
    security_errors: Family<ErrorLabels, Counter>,
}

impl AdmissionMetrics {
    pub fn new(registry: &mut Registry, code_of: fn(End) -> AnswerCode) -> AdmissionMetrics {
        let metrics = AdmissionMetrics {
            code_of,
            steps: Family::new_with_constructor(Buckets(OF_STEPS)),
            plugins: Family::new_with_constructor(Buckets(OF_STEPS)),
            found: (0..(PLUGINS.len() + 1) * ROWS_OF_ONE).map(|_| OnceLock::new()).collect(),
            webhooks: Family::new_with_constructor(Buckets(OF_WEBHOOKS)),
            answers: Family::default(),
            rejections: Family::default(),
            failed_open: Family::default(),
            conditions: Family::new_with_constructor(Buckets(OF_CONDITIONS)),
            exclusions: Family::default(),
            condition_errors: Family::default(),
            verdicts: Family::default(),
            verdict_durations: Family::new_with_constructor(Buckets(OF_POLICIES)),
            mutations: Family::default(),
            mutation_durations: Family::new_with_constructor(Buckets(OF_POLICIES)),
            evaluations: Family::default(),
            exemptions: Family::default(),
            security_errors: Family::default(),
        };
        let mut put = |name: &str, help: &str, metric: Box<dyn Registered>| metric.register(registry, name, help);
        let of_admission = |name: &str| format!("apiserver_admission_{name}");
        put(&of_admission("step_admission_duration_seconds"), "Halves of admission", Box::new(metrics.steps.clone()));
        put(&of_admission("controller_admission_duration_seconds"), "Plug-ins", Box::new(metrics.plugins.clone()));
        put(&of_admission("webhook_admission_duration_seconds"), "Webhooks", Box::new(metrics.webhooks.clone()));
        put(&of_admission("webhook_request"), "Requests to webhooks", Box::new(metrics.answers.clone()));
        put(&of_admission("webhook_rejection_count"), "Rejections by webhooks", Box::new(metrics.rejections.clone()));
        put(&of_admission("webhook_fail_open_count"), "Failures forgiven", Box::new(metrics.failed_open.clone()));
        put(&of_admission("match_condition_evaluation_seconds"), "Conditions", Box::new(metrics.conditions.clone()));
        put(
            &of_admission("match_condition_exclusions"),
            "Not asked by conditions",
            Box::new(metrics.exclusions.clone()),
        );
        let errors = Box::new(metrics.condition_errors.clone());
        put(&of_admission("match_condition_evaluation_errors"), "Conditions that cannot be told", errors);
        let validating = |name: &str| format!("apiserver_validating_admission_policy_{name}");
        put(&validating("check"), "What policies said", Box::new(metrics.verdicts.clone()));
        put(&validating("check_duration_seconds"), "How long that took", Box::new(metrics.verdict_durations.clone()));
        let mutating = |name: &str| format!("apiserver_mutating_admission_policy_{name}");
        put(&mutating("check"), "Mutations by policies", Box::new(metrics.mutations.clone()));
        put(&mutating("check_duration_seconds"), "How long they took", Box::new(metrics.mutation_durations.clone()));
        put("pod_security_evaluations", "Pods held against a standard", Box::new(metrics.evaluations.clone()));
        put("pod_security_exemptions", "Pods that are exempt", Box::new(metrics.exemptions.clone()));
        put("pod_security_errors", "Standards that cannot be read", Box::new(metrics.security_errors.clone()));
        metrics
    }

    /// Records the durations and observations that admission reported about a request.
    pub(crate) fn note(&self, told: &Told, request: &RequestLabels) {
        let Some(operation) = told.operation else { return };
        for timing in &told.timings {
            self.duration(timing, operation).observe(timing.nanos);
        }
        for observation in &told.observations {
            self.observe(observation, operation, request);
        }
    }

    fn duration(&self, timing: &Timing, operation: Operation) -> &Histogram {
        let Timing { plugin, half, is_rejected, .. } = *timing;
        let row = plugin.map_or(PLUGINS.len(), usize::from);
        let at = ((row * 2 + half as usize) * 4 + operation as usize) * 2 + usize::from(is_rejected);
        self.found[at].get_or_init(|| {
            let (r#type, operation, rejected) = (kind_of(half, false), operation.as_str(), flag(is_rejected));
            match plugin.and_then(|plugin| PLUGINS.get(usize::from(plugin))) {
                None => self.steps.get_or_create_owned(&StepLabels { r#type, operation, rejected }),
                Some(plugin) => {
                    let name = plugin.name.to_owned();
                    self.plugins.get_or_create_owned(&NamedLabels { name, r#type, operation, rejected })
                }
            }
        })
    }

    fn observe(&self, observation: &Observation, operation: Operation, request: &RequestLabels) {
        match observation {
            Observation::Webhook { name, half, end, nanos } => self.webhook(name, *half, *end, *nanos, operation),
            Observation::Conditions { name, of, half, hold, nanos } => {
                let r#type = kind_of(*half, *of == "webhook");
                let labels = ConditionLabels { name: name.clone(), kind: of, r#type, operation: operation.as_str() };
                self.conditions.get_or_create(&labels).observe(*nanos);
                match hold {
                    Some(true) => {}
                    Some(false) => _ = self.exclusions.get_or_create(&labels).inc(),
                    None => _ = self.condition_errors.get_or_create(&labels).inc(),
                }
            }
            Observation::Validated { policy, binding, error, action, nanos } => {
                let (policy, policy_binding) = (policy.to_string(), binding.to_string());
                let labels = VerdictLabels { policy, policy_binding, error_type: error, enforcement_action: action };
                self.verdicts.get_or_create(&labels).inc();
                self.verdict_durations.get_or_create(&labels).observe(*nanos);
            }
            Observation::Mutated { policy, binding, error, nanos } => {
                let (policy, policy_binding) = (policy.to_string(), binding.to_string());
                let labels = MutationLabels { policy, policy_binding, error_type: error };
                self.mutations.get_or_create(&labels).inc();
                self.mutation_durations.get_or_create(&labels).observe(*nanos);
            }
            Observation::PodSecurity { is_allowed, mode, level, version } => {
                let labels = SecurityLabels {
                    decision: if *is_allowed { "allow" } else { "deny" },
                    mode,
                    policy_level: level.clone(),
                    policy_version: version.clone(),
                    request_operation: operation.word(),
                    resource: sort_of(request),
                    subresource: request.subresource.clone(),
                };
                self.evaluations.get_or_create(&labels).inc();
            }
            Observation::PodSecurityExemption => {
                let (request_operation, resource) = (operation.word(), sort_of(request));
                let subresource = request.subresource.clone();
                let labels = ExemptionLabels { request_operation, resource, subresource };
                self.exemptions.get_or_create(&labels).inc();
            }
            Observation::PodSecurityError { is_fatal } => {
                let (request_operation, resource) = (operation.word(), sort_of(request));
                let subresource = request.subresource.clone();
                let labels = ErrorLabels { fatal: flag(*is_fatal), request_operation, resource, subresource };
                self.security_errors.get_or_create(&labels).inc();
            }
        }
    }

    fn webhook(&self, name: &str, half: Half, end: End, nanos: u64, operation: Operation) {
        let (r#type, operation) = (kind_of(half, true), operation.as_str());
        let code = (self.code_of)(end);
        let error_type = match end {
            End::Admitted | End::Failed { is_ignored: true } => None,
            End::Rejected(_) => Some("no_error"),
            End::Failed { is_ignored: false } => Some("calling_webhook_error"),
            End::Unusable => Some("apiserver_internal_error"),
        };
        let rejected = flag(error_type.is_some());
        let name = name.to_owned();
        let labels = AnswerLabels { name: name.clone(), r#type, operation, code, rejected };
        self.answers.get_or_create(&labels).inc();
        let labels = NamedLabels { name: name.clone(), r#type, operation, rejected };
        self.webhooks.get_or_create(&labels).observe(nanos);
        if let Some(error_type) = error_type {
            let labels = RejectionLabels { name: name.clone(), r#type, operation, error_type, rejection_code: code };
            self.rejections.get_or_create(&labels).0.inc();
        }
        if end == (End::Failed { is_ignored: true }) {
            self.failed_open.get_or_create(&FailOpenLabels { name, r#type }).0.inc();
        }
    }
}

/// A metric of any type that can be registered under a name.
trait Registered {
    fn register(self: Box<Self>, registry: &mut Registry, name: &str, help: &str);
}

impl<M: prometheus_client::registry::Metric> Registered for M {
    fn register(self: Box<Self>, registry: &mut Registry, name: &str, help: &str) {
        registry.register(name, help, *self);
    }
}

fn flag(value: bool) -> &'static str {
    if value { "true" } else { "false" }
}

/// Kubernetes' name of the mutating or the validating part of admission, as a label. Validating webhooks have another
/// name than validating plug-ins.
fn kind_of(half: Half, of_webhook: bool) -> &'static str {
    match half {
        Half::Mutating => "admit",
        Half::Validating if of_webhook => "validating",
        Half::Validating => "validate",
    }
}

/// Returns the value of the label `resource` of pod security metrics.
fn sort_of(request: &RequestLabels) -> &'static str {
    match request.resource.as_str() {
        "pods" => "pod",
        "namespaces" => "namespace",
        _ => "controller",
    }
}
