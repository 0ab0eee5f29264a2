//! Reads metrics, and computes the size that each kind of metric proposes.

use super::calculation::{PodUsage, Proposal, Sample, Samples, by_ratio, milli, per_pod, quantity_text};
use super::limits::Tolerance;
use crate::disruption::selector_text;
use crate::get_answers::{NeedsGet, PlanInput, escape};
use crate::settings::AutoscalingSettings;
use holdfast_core::schema::duration_nanos;
use holdfast_value::{Value, json};
use holdfast_world::views::Pod;
use holdfast_world::views::autoscaler::{Metric, NamedMetric, ObjectRef, ResourceMetric, Target};
use holdfast_world::{Refusal, Selector, Time, Viewed};

/// The message of client-go if the server does not serve an API at all.
const NOT_SERVED: &str = "the server could not find the requested resource";
const CUSTOM: &str = "/apis/custom.metrics.k8s.io";
const MINUTE_MILLIS: i64 = 60_000;

/// The size that one metric proposes, with the texts that report it.
pub struct MetricProposal {
    pub size: i64,
    /// The metric's name in messages.
    pub name: String,
    /// The metric as an item of the autoscaler's `status.currentMetrics`.
    pub status: Value,
}

/// Why a metric cannot be read: the reason, with one message for the autoscaler's condition and another for the Event.
pub struct Fault {
    pub reason: &'static str,
    pub condition: String,
    pub event: String,
}

/// Everything from which the proposal of one metric is computed.
pub struct MetricInputs<'a> {
    pub namespace: &'a str,
    pub selector: &'a str,
    pub pods: &'a [Viewed<'a, Pod>],
    pub tolerance: Tolerance,
    /// The number of pods that the target's scale requests.
    pub wanted: i64,
    /// The number of pods that the target's scale reports as existing.
    pub existing: i64,
    pub now: Time,
    pub read: PlanInput<'a>,
    pub settings: AutoscalingSettings,
}

pub fn evaluate(scene: &MetricInputs<'_>, metric: &Metric) -> Result<Result<MetricProposal, Fault>, NeedsGet> {
    match (metric.kind.as_str(), metric) {
        ("Resource", Metric { resource: Some(of), .. }) => scene.resource(of, false),
        ("ContainerResource", Metric { container_resource: Some(of), .. }) => scene.resource(of, true),
        ("Pods", Metric { pods: Some(of), .. }) => scene.pods(of),
        ("Object", Metric { object: Some(of), .. }) => scene.object(of),
        ("External", Metric { external: Some(of), .. }) => scene.external(of),
        (kind, _) => {
            let why = format!("unknown metric source type {}", Value::from(kind));
            Ok(Err(Fault { reason: "InvalidMetricSourceType", condition: why.clone(), event: why }))
        }
    }
}

/// The result of one step of a metric's evaluation: a value, a message about a failure, or [`NeedsGet`] if the step
/// must read from the server first.
type StepResult<T> = Result<Result<T, String>, NeedsGet>;

macro_rules! known {
    ($step:expr) => {
        match $step {
            Ok(value) => value,
            Err(why) => return Ok(Err(why)),
        }
    };
}

impl MetricInputs<'_> {
    fn usage(&self, samples: Samples) -> PodUsage<'_> {
        PodUsage {
            pods: self.pods,
            samples,
            current: self.wanted,
            tolerance: self.tolerance,
            now: self.now,
            settings: self.settings,
        }
    }

    fn resource(&self, of: &ResourceMetric, of_container: bool) -> Result<Result<MetricProposal, Fault>, NeedsGet> {
        let (kind, field, reason) = match of_container {
            false => ("Resource", "resource", "FailedGetResourceMetric"),
            true => ("ContainerResource", "containerResource", "FailedGetContainerResourceMetric"),
        };
        let outer = match of_container {
            false => format!("failed to get {} resource metric value", of.name),
            true => format!("failed to get {} container metric value", of.container),
        };
        Ok(match self.resource_proposal(of)? {
            Ok(proposal) => {
                let mut current = json!({"averageValue": quantity_text(proposal.milli)});
                let mut name = format!("{} resource", of.name);
                if let Some(percent) = proposal.percent {
                    current["averageUtilization"] = percent.into();
                    let container = if of_container { "container " } else { "" };
                    name = format!("{} {container}resource utilization (percentage of request)", of.name);
                }
                let mut status = json!({"name": of.name, "current": current});
                if of_container {
                    status["container"] = of.container.as_str().into();
                }
                Ok(MetricProposal { size: proposal.size, name, status: json!({"type": kind, field: status}) })
            }
            Err(why) => Err(Fault { reason, event: format!("{outer}: {why}"), condition: why }),
        })
    }

    fn resource_proposal(&self, of: &ResourceMetric) -> StepResult<Proposal> {
        let measured = if of.target.average_value.is_some() { "usage" } else { "utilization" };
        let within = |why: String| format!("failed to get {} {measured}: {why}", of.name);
        let samples = match self.resource_samples(of)? {
            Ok(samples) => samples,
            Err(why) => return Ok(Err(within(format!("unable to get metrics for resource {}: {why}", of.name)))),
        };
        let usage = self.usage(samples);
        let target = &of.target;
        Ok(match (&target.average_value, target.average_utilization) {
            (Some(value), _) => usage.of_average(milli(value), &of.name).map_err(within),
            (None, Some(percent)) => usage.of_requests(percent, &of.name, &of.container).map_err(within),
            (None, None) => {
                Err("invalid resource metric source: neither an average utilization target nor an average \
                                 value (usage) target was set"
                    .into())
            }
        })
    }

    /// The usage of each pod, summed over all its containers or over the named container alone.
    fn resource_samples(&self, of: &ResourceMetric) -> StepResult<Samples> {
        let path = format!(
            "/apis/metrics.k8s.io/v1beta1/namespaces/{}/pods?labelSelector={}",
            self.namespace,
            escape(self.selector)
        );
        let list = match self.read.get(&path)? {
            Ok(list) => list,
            Err(refusal) => return Ok(Err(unable("resource", refusal, "pods.metrics.k8s.io"))),
        };
        let mut samples = Samples::new();
        for item in items(list) {
            let containers = item["containers"].as_array().into_iter().flatten();
            let mut meant =
                containers.filter(|container| of.container.is_empty() || container["name"] == of.container.as_str());
            // A pod is skipped if one of its containers has no usage.
            let sum = meant.try_fold(0i64, |sum, container| {
                Some(sum.saturating_add(milli(container["usage"][&of.name].as_str()?)))
            });
            let window = item["window"].as_str().and_then(|text| duration_nanos(text).ok());
            if let (Some(milli), Some(name)) = (sum, item["metadata"]["name"].as_str()) {
                let window_millis = window.map_or(MINUTE_MILLIS, |nanos| nanos / 1_000_000);
                samples.insert(name.to_owned(), Sample { milli, time: time(item, self.now), window_millis });
            }
        }
        if samples.is_empty() {
            return Ok(Err("no metrics returned from resource metrics API".into()));
        }
        Ok(Ok(samples))
    }

    fn pods(&self, of: &NamedMetric) -> Result<Result<MetricProposal, Fault>, NeedsGet> {
        Ok(match self.pods_proposal(of)? {
            Ok(proposal) => Ok(MetricProposal {
                size: proposal.size,
                name: format!("pods metric {}", of.metric.name),
                status: json!({"type": "Pods", "pods": {
                    "metric": identifier(of), "current": {"averageValue": quantity_text(proposal.milli)}}}),
            }),
            Err(why) => Err(Fault {
                reason: "FailedGetPodsMetric",
                event: format!("failed to get pods metric value: {why}"),
                condition: why,
            }),
        })
    }

    fn pods_proposal(&self, of: &NamedMetric) -> StepResult<Proposal> {
        let within = |why: String| format!("unable to get metric {}: {why}", of.metric.name);
        let version = known!(self.custom_version()?.map_err(within));
        let path = format!(
            "{CUSTOM}/{version}/namespaces/{}/pods/*/{}?labelSelector={}{}",
            self.namespace,
            escape(&of.metric.name),
            escape(self.selector),
            metric_selector(of, "&metricLabelSelector=")
        );
        let list = match self.read.get(&path)? {
            Ok(list) => list,
            Err(refusal) => return Ok(Err(within(unable("custom", refusal, "pods.custom.metrics.k8s.io *")))),
        };
        let sample = |item: &Value| {
            let name = item["describedObject"]["name"].as_str()?.to_owned();
            let window = item["windowSeconds"].as_i64().map_or(MINUTE_MILLIS, |seconds| seconds.saturating_mul(1000));
            let milli = milli(item["value"].as_str()?);
            Some((name, Sample { milli, time: time(item, self.now), window_millis: window }))
        };
        let samples: Samples = items(list).filter_map(sample).collect();
        if samples.is_empty() {
            return Ok(Err(within("no metrics returned from custom metrics API".into())));
        }
        let target = of.target.average_value.as_deref().map_or(0, milli);
        Ok(self.usage(samples).of_average(target, ""))
    }

    /// The newest version in which the server serves the API of custom metrics.
    fn custom_version(&self) -> StepResult<String> {
        Ok(match self.read.get(CUSTOM)? {
            Ok(group) => {
                let served = group["versions"].as_array().into_iter().flatten();
                let served: Vec<&str> = served.filter_map(|version| version["version"].as_str()).collect();
                let known = ["v1beta2", "v1beta1"].into_iter().find(|known| served.contains(known));
                Ok(known.unwrap_or("v1beta1").to_owned())
            }
            Err(refusal) if refusal.is_not_found() || refusal.is_no_such_path() => {
                Err("unable to fetch metrics from custom metrics API: no custom \
                                                           metrics API (custom.metrics.k8s.io) registered"
                    .to_owned())
            }
            Err(refusal) => Err(unable("custom", refusal, "")),
        })
    }

    fn object(&self, of: &NamedMetric) -> Result<Result<MetricProposal, Fault>, NeedsGet> {
        let fault = |condition: String, inner: Option<String>| Fault {
            reason: "FailedGetObjectMetric",
            event: format!("failed to get object metric value: {}", inner.unwrap_or_else(|| condition.clone())),
            condition,
        };
        let value = match self.object_value(of)? {
            Ok(value) => value,
            Err(why) => {
                let inner = of.target.average_value.as_ref();
                let inner = inner.map(|_| format!("failed to get {} object metric: {why}", of.metric.name));
                return Ok(Err(fault(why, inner)));
            }
        };
        let name = format!("{} metric {}", of.described_object.kind, of.metric.name);
        let status = |current: Value| {
            json!({"type": "Object", "object": {
                "describedObject": reference(&of.described_object), "metric": identifier(of), "current": current}})
        };
        let names = [name, external_name(of)];
        Ok(self.by_target("object", &of.target, value, names, status).map_err(|why| fault(why, None)))
    }

    fn object_value(&self, of: &NamedMetric) -> StepResult<i64> {
        let object = &of.described_object;
        // Kubernetes passes the object and the error to its format string in the wrong order; this message has the same
        // order.
        let place = format!("{} on {} {}", object.kind, self.namespace, object.name);
        let within = |why: String| format!("unable to get metric {}: {place}/{why}", of.metric.name);
        let version = known!(self.custom_version()?.map_err(within));
        let objects = if object.kind == "Namespace" && !object.api_version.contains('/') {
            "metrics".to_owned()
        } else {
            let group = object.api_version.split_once('/').map_or("", |(group, _)| group);
            let dot = if group.is_empty() { "" } else { "." };
            let Some((_, plural)) = self.read.served(&object.api_version, &object.kind)? else {
                let (of_kind, of_group) = (quoted(&object.kind), quoted(group));
                let why = format!("no matches for kind {of_kind} in group {of_group}");
                let why = format!("unable to map kind {}{dot}{group} to resource: {why}", object.kind);
                return Ok(Err(within(format!("unable to fetch metrics from custom metrics API: {why}"))));
            };
            format!("{plural}{dot}{group}/{}", escape(&object.name))
        };
        let path = format!(
            "{CUSTOM}/{version}/namespaces/{}/{objects}/{}{}",
            self.namespace,
            escape(&of.metric.name),
            metric_selector(of, "?metricLabelSelector=")
        );
        Ok(match self.read.get(&path)? {
            Ok(list) => match items(list).next().and_then(|item| item["value"].as_str()) {
                Some(value) => Ok(milli(value)),
                None => Err(within("no metrics returned from custom metrics API".into())),
            },
            Err(refusal) => Err(within(unable("custom", refusal, &objects))),
        })
    }

    fn external(&self, of: &NamedMetric) -> Result<Result<MetricProposal, Fault>, NeedsGet> {
        let name = &of.metric.name;
        let fault = |why: String| {
            let inner = match of.target.average_value {
                Some(_) => format!("failed to get {name} external metric: {why}"),
                None => format!("failed to get external metric {name}: {why}"),
            };
            Fault {
                reason: "FailedGetExternalMetric",
                event: format!("failed to get {name} external metric value: {inner}"),
                condition: why,
            }
        };
        let value = match self.external_value(of)? {
            Ok(value) => value,
            Err(why) => return Ok(Err(fault(why))),
        };
        let status =
            |current: Value| json!({"type": "External", "external": {"metric": identifier(of), "current": current}});
        let names = [external_name(of), external_name(of)];
        Ok(self.by_target("external", &of.target, value, names, status).map_err(fault))
    }

    fn external_value(&self, of: &NamedMetric) -> StepResult<i64> {
        let name = &of.metric.name;
        let within =
            |why: String| format!("unable to get external metric {}/{name}/{}: {why}", self.namespace, selector(of));
        let path = format!(
            "/apis/external.metrics.k8s.io/v1beta1/namespaces/{}/{}{}",
            self.namespace,
            escape(name),
            metric_selector(of, "?labelSelector=")
        );
        let list = match self.read.get(&path)? {
            Ok(list) => list,
            Err(refusal) => {
                return Ok(Err(within(unable("external", refusal, &format!("{name}.external.metrics.k8s.io")))));
            }
        };
        let mut values = items(list).filter_map(|item| item["value"].as_str()).map(milli).peekable();
        if values.peek().is_none() {
            return Ok(Err(within("no metrics returned from external metrics API".into())));
        }
        Ok(Ok(values.fold(0, i64::saturating_add)))
    }

    /// The size that one metric's value proposes. The target is either a value for all pods together, or an average
    /// value for each pod; messages name the metric differently in each case.
    fn by_target(
        &self,
        source: &str,
        target: &Target,
        value: i64,
        [name, name_per_pod]: [String; 2],
        status: impl Fn(Value) -> Value,
    ) -> Result<MetricProposal, String> {
        if let Some(average) = target.average_value.as_deref().map(milli) {
            let (size, each) = per_pod(value, average, self.existing, self.tolerance);
            let status = status(json!({"averageValue": quantity_text(each)}));
            return Ok(MetricProposal { size, name: name_per_pod, status });
        }
        let Some(whole) = target.value.as_deref().map(milli) else {
            let why = "neither a value target nor an average value target was set";
            return Err(format!("invalid {source} metric source: {why}"));
        };
        let size = by_ratio(self.pods, self.wanted, value as f64 / whole as f64, self.tolerance)?;
        Ok(MetricProposal { size, name, status: status(json!({"value": quantity_text(value)})) })
    }
}

fn unable(api: &str, refusal: &Refusal, resource: &str) -> String {
    let request = if refusal.message == NOT_SERVED && !resource.is_empty() {
        format!(" (get {resource})")
    } else {
        String::new()
    };
    format!("unable to fetch metrics from {api} metrics API: {}{request}", refusal.message)
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list["items"].as_array().into_iter().flatten()
}

fn time(item: &Value, now: Time) -> Time {
    item["timestamp"].as_str().and_then(Time::parse).unwrap_or(now)
}

fn quoted(text: &str) -> Value {
    Value::from(text)
}

fn identifier(of: &NamedMetric) -> Value {
    let mut metric = json!({"name": of.metric.name});
    if let Some(selector) = &of.metric.selector {
        metric["selector"] = selector.clone();
    }
    metric
}

fn reference(object: &ObjectRef) -> Value {
    let mut reference = json!({"kind": object.kind, "name": object.name});
    if !object.api_version.is_empty() {
        reference["apiVersion"] = object.api_version.as_str().into();
    }
    reference
}

fn selector(of: &NamedMetric) -> String {
    of.metric.selector.as_ref().map_or_else(|| "nil".to_owned(), selector_text)
}

fn external_name(of: &NamedMetric) -> String {
    format!("external metric {}({})", of.metric.name, selector(of))
}

fn metric_selector(of: &NamedMetric, parameter: &str) -> String {
    match &of.metric.selector {
        Some(selector) => format!("{parameter}{}", escape(&Selector::of(selector).to_string())),
        None => String::new(),
    }
}
