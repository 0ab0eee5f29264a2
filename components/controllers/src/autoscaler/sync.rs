//! One evaluation of an autoscaler: its target's scale, its metrics, the new size, its status and Events.

use super::AutoscalerState;
use super::limits::{Tolerance, limit};
use super::metrics::{Fault, MetricInputs, evaluate};
use crate::get_answers::{NeedsGet, PlanInput, scale_path};
use crate::planted::{Bug, planted};
use crate::settings::AutoscalingSettings;
use crate::subject::{Subject, count};
use holdfast_value::{Map, Value, json};
use holdfast_world::views::{HorizontalPodAutoscaler, Pod};
use holdfast_world::{Action, Key, Plan, PlannedEvent, Resource, Selector, Time, Verb, Viewed, World};
use std::collections::BTreeMap;

const ABLE: &str = "AbleToScale";
const ACTIVE: &str = "ScalingActive";
const LIMITED: &str = "ScalingLimited";

/// A change of the target's size from `current` to `desired` pods.
pub struct Rescale {
    pub current: i64,
    pub desired: i64,
    pub reason: String,
}

struct Sync<'w> {
    autoscaler: Viewed<'w, HorizontalPodAutoscaler>,
    owner: Subject<'w>,
    now: Time,
    /// The conditions to be set: type, whether the condition is true, reason, message.
    conditions: Vec<(&'static str, bool, String, String)>,
    notes: Vec<PlannedEvent>,
    metrics: Value,
}

/// The sizes that the status shows after an evaluation, in pods, and whether the size was changed.
struct Sizes {
    current: i64,
    desired: i64,
    rescaled: bool,
}

/// Everything that an evaluation of one autoscaler reads.
pub struct SyncInputs<'a> {
    pub world: &'a World,
    pub read: PlanInput<'a>,
    /// What the controller remembers about the other autoscalers.
    pub others: &'a BTreeMap<Key, AutoscalerState>,
    pub settings: AutoscalingSettings,
}

pub fn sync(
    view: &SyncInputs<'_>,
    autoscaler: Viewed<'_, HorizontalPodAutoscaler>,
    known: &mut AutoscalerState,
    now: Time,
) -> Result<Plan, NeedsGet> {
    let owner = Subject::from(autoscaler);
    let mut sync = Sync { autoscaler, owner, now, conditions: Vec::new(), notes: Vec::new(), metrics: Value::Null };
    let target = match target(autoscaler, view.read)? {
        Ok(target) => target,
        Err(why) => return Ok(sync.without_scale(&why)),
    };
    sync.set(ABLE, true, "SucceededGetScale", "the HPA controller was able to get the target's current scale");
    let spec = &autoscaler.view.spec;
    let (min, max) = (spec.min_replicas.unwrap_or(1), spec.max_replicas);
    let current = target.scale["spec"]["replicas"].as_i64().unwrap_or(0);
    known.memory.begin(now, current);
    let (desired, reason) = if current == 0 && min != 0 {
        let message = "scaling is disabled since the replica count of the target is zero";
        sync.set(ACTIVE, false, "ScalingDisabled", message);
        (0, String::new())
    } else if current > max {
        (max, "Current number of replicas above Spec.MaxReplicas".to_owned())
    } else if current < min {
        (min, "Current number of replicas below Spec.MinReplicas".to_owned())
    } else {
        match sync.measure(view, &target, current, known)? {
            Ok((size, name)) => sync.limit(view.settings, known, current, size, &name),
            Err(why) => {
                sync.notes.push(owner.warning("FailedComputeMetricsReplicas", why));
                let desired = autoscaler.view.status.desired_replicas;
                return Ok(sync.end(Plan::default(), Sizes { current, desired, rescaled: false }));
            }
        }
    };
    let mut plan = Plan::default();
    if desired != current {
        let note = owner.normal("SuccessfulRescale", format!("New size: {desired}; reason: {reason}"));
        let message = format!("the HPA controller was able to update the target scale to {desired}");
        sync.set(ABLE, true, "SucceededRescale", &message);
        plan.then(target.resized(desired).with_event(note));
        known.memory.change(now, desired - current);
        known.rescale = Some(Rescale { current, desired, reason });
    }
    Ok(sync.end(plan, Sizes { current, desired, rescaled: desired != current }))
}

/// The object that an autoscaler scales, with the data of its scale.
struct ScaleTarget {
    resource: Resource,
    key: Key,
    scale: Value,
}

impl ScaleTarget {
    fn resized(&self, replicas: i64) -> Action {
        let mut scale = self.scale.clone();
        scale["spec"]["replicas"] = replicas.into();
        Action::new(&self.resource, self.key.clone(), Verb::Update(scale)).subresource("scale")
    }
}

fn target(
    autoscaler: Viewed<'_, HorizontalPodAutoscaler>,
    read: PlanInput<'_>,
) -> Result<Result<ScaleTarget, String>, NeedsGet> {
    let reference = &autoscaler.view.spec.scale_target_ref;
    let namespace = &autoscaler.meta().namespace;
    let group = reference.api_version.split_once('/').map_or("", |(group, _)| group);
    let Some((served, plural)) = read.served(&reference.api_version, &reference.kind)? else {
        let (kind, group) = (Value::from(reference.kind.as_str()), Value::from(group));
        return Ok(Err(format!("no matches for kind {kind} in group {group}")));
    };
    let path = scale_path(&served, namespace, &plural, &reference.name);
    let version = served.rsplit('/').next().unwrap_or_default();
    Ok(match read.get(&path)? {
        Ok(scale) => Ok(ScaleTarget {
            resource: Resource::new(group, version, &plural, &reference.kind, true),
            key: Key::new(namespace, &reference.name),
            scale: scale.clone(),
        }),
        Err(refusal) => Err(refusal.message.clone()),
    })
}

impl Sync<'_> {
    fn set(&mut self, kind: &'static str, holds: bool, reason: &str, message: &str) {
        self.conditions.retain(|(known, ..)| *known != kind);
        self.conditions.push((kind, holds, reason.to_owned(), message.to_owned()));
    }

    fn without_scale(mut self, why: &str) -> Plan {
        let message = format!("the HPA controller was unable to get the target's current scale: {why}");
        self.set(ABLE, false, "FailedGetScale", &message);
        self.notes.push(self.owner.warning("FailedGetScale", why.to_owned()));
        let status = &self.autoscaler.view.status;
        let sizes = Sizes { current: status.current_replicas, desired: status.desired_replicas, rescaled: false };
        self.metrics = status.current_metrics.clone();
        self.end(Plan::default(), sizes)
    }

    /// Evaluates all metrics; returns the largest size that a metric proposes, and that metric's name.
    fn measure(
        &mut self,
        view: &SyncInputs<'_>,
        target: &ScaleTarget,
        current: i64,
        known: &mut AutoscalerState,
    ) -> Result<Result<(i64, String), String>, NeedsGet> {
        let text = target.scale["status"]["selector"].as_str().unwrap_or_default();
        let (namespace, name) = (&self.autoscaler.meta().namespace, &self.autoscaler.meta().name);
        let selector = Selector::parse(text);
        if text.is_empty() {
            self.set(ACTIVE, false, "InvalidSelector", "the HPA target's scale is missing a selector");
            return Ok(Err(self.add_event("SelectorRequired", "selector is required".into())));
        }
        if let Some(fault) = selector.fault() {
            let why = format!("couldn't convert selector into a corresponding internal selector object: {fault}");
            self.set(ACTIVE, false, "InvalidSelector", &why);
            return Ok(Err(self.add_event("InvalidSelector", why)));
        }
        let pods = view.world.select::<Pod>(namespace, &selector);
        // Pods of one template share their labels, and usually follow each other in the list, so equal labels are
        // tested once.
        let mut labelled: Vec<_> = pods.iter().map(|pod| pod.meta()).collect();
        labelled.dedup_by(|one, other| one.labels.is_same(&other.labels));
        let selects = |other: &AutoscalerState| {
            other.selector.as_ref().is_some_and(|other| labelled.iter().any(|meta| other.matches(meta)))
        };
        let rivals = view.others.iter().filter(|(key, other)| *key.namespace == **namespace && selects(other));
        let mut rivals: Vec<&str> = rivals.map(|(key, _)| &*key.name).collect();
        known.selector = Some(selector);
        if !rivals.is_empty() {
            rivals.push(name);
            rivals.sort_unstable();
            let all: Vec<String> = rivals.iter().map(|name| format!("{{{name} {namespace}}}")).collect();
            let why = format!("pods by selector {text} are controlled by multiple HPAs: [{}]", all.join(" "));
            self.set(ACTIVE, false, "AmbiguousSelector", &why);
            return Ok(Err(self.add_event("AmbiguousSelector", why)));
        }
        let scene = MetricInputs {
            namespace,
            selector: text,
            pods: &pods,
            tolerance: Tolerance::of(self.autoscaler.view.spec.behavior.as_ref(), view.settings.tolerance),
            wanted: current,
            existing: target.scale["status"]["replicas"].as_i64().unwrap_or(0),
            now: self.now,
            read: view.read,
            settings: view.settings,
        };
        self.evaluate(&scene)
    }

    fn add_event(&mut self, reason: &'static str, why: String) -> String {
        self.notes.push(self.owner.warning(reason, why.clone()));
        why
    }

    fn evaluate(&mut self, scene: &MetricInputs<'_>) -> Result<Result<(i64, String), String>, NeedsGet> {
        let metrics = &self.autoscaler.view.spec.metrics;
        let (mut best, mut faults, mut statuses): (Option<(i64, String)>, Vec<Fault>, Vec<Value>) = Default::default();
        for metric in metrics {
            match evaluate(scene, metric)? {
                Ok(found) => {
                    statuses.push(found.status);
                    if best.as_ref().is_none_or(|(size, _)| found.size > *size) {
                        best = Some((found.size, found.name));
                    }
                }
                Err(fault) => {
                    statuses.push(json!({"type": ""}));
                    self.notes.push(self.owner.warning(fault.reason, fault.condition.clone()));
                    faults.push(fault);
                }
            }
        }
        self.metrics = statuses.into();
        let count = faults.len();
        let fault = faults.into_iter().next().map(|fault| {
            let event =
                format!("invalid metrics ({count} invalid out of {}), first error is: {}", metrics.len(), fault.event);
            (event, fault)
        });
        match (best, fault) {
            // Another metric, which cannot be read, might propose a larger size than the metrics that can be read, so
            // the size is not reduced.
            (Some((size, _)), Some((event, fault))) if size < scene.wanted => Ok(Err(self.inactive(event, &fault))),
            (Some((size, name)), _) => {
                let message = format!("the HPA was able to successfully calculate a replica count from {name}");
                self.set(ACTIVE, true, "ValidMetricFound", &message);
                Ok(Ok((size, name)))
            }
            (None, Some((event, fault))) => Ok(Err(self.inactive(event, &fault))),
            (None, None) => Ok(Err("invalid metrics (0 invalid out of 0), first error is: none".into())),
        }
    }

    fn inactive(&mut self, event: String, fault: &Fault) -> String {
        let message = format!("the HPA was unable to compute the replica count: {}", fault.condition);
        self.set(ACTIVE, false, fault.reason, &message);
        event
    }

    /// The proposed size after all limits, and the reason for the change of size.
    fn limit(
        &mut self,
        settings: AutoscalingSettings,
        known: &mut AutoscalerState,
        current: i64,
        size: i64,
        metric: &str,
    ) -> (i64, String) {
        let reason = match size.cmp(&current) {
            std::cmp::Ordering::Greater => format!("{metric} above target"),
            std::cmp::Ordering::Less => "All metrics below target".to_owned(),
            std::cmp::Ordering::Equal => String::new(),
        };
        let limited =
            limit(&self.autoscaler.view.spec, settings.down_window_seconds, &mut known.memory, current, size, self.now);
        self.set(ABLE, true, limited.stable.0, limited.stable.1);
        self.set(LIMITED, limited.is_limited, limited.limit.0, limited.limit.1);
        (if planted(Bug::BoundsIgnored) { size } else { limited.size }, reason)
    }

    fn end(self, mut plan: Plan, sizes: Sizes) -> Plan {
        let action = self.owner.status(|status| {
            count(status, "currentReplicas", sizes.current);
            status.insert("desiredReplicas", sizes.desired.into());
            status.insert("currentMetrics", self.metrics.clone());
            if sizes.rescaled {
                status.insert("lastScaleTime", self.now.to_string().into());
            }
            for (kind, holds, reason, message) in &self.conditions {
                set_condition(status, kind, *holds, reason, message, self.now);
            }
        });
        plan.steps.extend(action.map(|action| vec![action]));
        plan.events = self.notes;
        plan
    }
}

/// The status after the target could not be resized.
pub fn failed_status(
    autoscaler: Viewed<'_, HorizontalPodAutoscaler>,
    current: i64,
    message: &str,
    now: Time,
) -> Option<Action> {
    Subject::from(autoscaler).status(|status| {
        count(status, "currentReplicas", current);
        status.entry("desiredReplicas").or_insert(0.into());
        status.entry("currentMetrics").or_insert(Value::Null);
        set_condition(status, ABLE, false, "FailedUpdateScale", message, now);
    })
}

fn set_condition(status: &mut Map, kind: &str, holds: bool, reason: &str, message: &str, now: Time) {
    let value = if holds { "True" } else { "False" };
    let mut condition =
        json!({"type": kind, "status": value, "reason": reason, "message": message, "lastTransitionTime": now});
    let conditions = status.entry("conditions").or_insert_with(|| json!([]));
    let Some(conditions) = conditions.as_array_mut() else { return };
    match conditions.iter_mut().find(|condition| condition["type"] == kind) {
        Some(known) => {
            if known["status"] == value {
                condition["lastTransitionTime"] = known["lastTransitionTime"].clone();
            }
            *known = condition;
        }
        None => conditions.push(condition),
    }
}
