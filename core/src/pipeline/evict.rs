//! Eviction: deletes a pod if the PodDisruptionBudget that covers it allows it.

use super::candidate::{Made, Old};
use super::decision::Write;
use super::{Context, Endpoint, Stop, admit, body, decode, delete};
use crate::kinds::known::EVICTION;
use crate::kinds::{KindId, known};
use crate::object::meta::{self, Document};
use crate::refusal::{BadRequest, Forbidden, Refusal, Subject, Unreasoned, Withheld};
use crate::select::LabelSelector;
use crate::state::{Entry, prefix};
use holdfast_value::{Value, json};
use std::sync::Arc;

/// The condition of a PodDisruptionBudget that says whether evictions are allowed.
const ALLOWED: &str = "DisruptionAllowed";
/// The maximum number of evictions in a budget's status that the disruption controller has not processed yet.
const DISRUPTED_PODS_MAX: usize = 2000;
/// The number of seconds after which a client should retry if the status of the budget is out of date.
const BEHIND_RETRY_SECONDS: u32 = 10;

pub(super) fn evict(context: &Context, _: &Endpoint) -> Result<Made, Stop> {
    let eviction = posted(context)?;
    admit::completed_part(context, EVICTION, eviction, |eviction| {
        let is_of_path = eviction["metadata"]["name"] == context.request.name();
        if is_of_path { Ok(()) } else { Err(Refusal::BadRequest(BadRequest::OtherNameInEviction).into()) }
    })?;
    let pod = context.existing()?;
    let budget = if is_protected(pod.fields()) { take_disruption(context, &pod)? } else { None };
    let mut candidate = delete::deleting(context, pod)?;
    candidate.besides.extend(budget);
    tell_pod(context, candidate.fields_mut());
    candidate.admitted = true;
    Ok(candidate.into())
}

/// The Eviction in the body, which may have any version in which Kubernetes serves Evictions.
fn posted(context: &Context) -> Result<Value, Refusal> {
    const OLD: &str = "v1beta1";
    let is_old = decode::parsed(&context.request.body)
        .is_some_and(|sent| sent["apiVersion"] == crate::kinds::api_version(EVICTION.group, OLD));
    let version = if is_old { OLD } else { EVICTION.version };
    let layout = decode::layout_of(&format!("io.k8s.api.policy.{version}.Eviction"))?;
    let mut eviction = context.decode_as(EVICTION.group, version, EVICTION.kind, layout)?;
    let fields = meta::fields_mut(&mut eviction);
    body::match_namespace(context, meta::metadata_mut(fields))?;
    fields.insert("apiVersion", EVICTION.api_version().into());
    fields.insert("kind", EVICTION.kind.into());
    Ok(eviction)
}

/// Sets the pod's condition DisruptionTarget. It shows the pod's owner that the pod was evicted and did not fail.
fn tell_pod(context: &Context, pod: &mut Document) {
    let condition = json!({
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
        "lastProbeTime": null,
        "lastTransitionTime": context.stamp.rfc3339(),
    });
    let conditions = meta::object_mut(pod, "status").entry("conditions").or_insert_with(|| json!([]));
    let Some(conditions) = conditions.as_array_mut() else { return };
    match conditions.iter_mut().find(|known| known["type"] == condition["type"]) {
        Some(known) if known["status"] == "True" => {}
        Some(known) => *known = condition,
        None => conditions.push(condition),
    }
}

/// Whether a budget protects the pod. Budgets count only running pods, so other pods may always be evicted.
fn is_protected(pod: &Document) -> bool {
    let phase = pod.get("status").and_then(|status| status["phase"].as_str()).unwrap_or("");
    !meta::is_deleting(pod) && !matches!(phase, "Pending" | "Succeeded" | "Failed" | "")
}

/// Takes one disruption from the budget that covers the pod, or refuses the eviction.
fn take_disruption(context: &Context, pod: &Old) -> Result<Option<Write>, Refusal> {
    let Some((kind, _)) = context.state.registry.known(known::POD_DISRUPTION_BUDGET) else {
        return Ok(None);
    };
    let Some(Budget { key, entry, mut document }) = covering(context, kind, pod)? else { return Ok(None) };
    if !is_ready(pod.fields()) && lets_unhealthy_go(&document) {
        return Ok(None);
    }
    check_budget(meta::fields(&document))?;
    let status = meta::object_mut(meta::fields_mut(&mut document), "status");
    let allowed = status.get("disruptionsAllowed").and_then(Value::as_i64).unwrap_or(0) - 1;
    status.insert("disruptionsAllowed", allowed.into());
    if allowed == 0 {
        tell_exhausted(status, &context.stamp.rfc3339());
    }
    let disrupted = meta::object_mut(status, "disruptedPods");
    disrupted.insert(context.request.name(), context.stamp.rfc3339().into());
    Write::of_status(context.state, kind, key, &entry, document, &context.stamp.rfc3339()).map(Some)
}

/// Sets the budget's condition, which then says that no more disruptions are allowed.
fn tell_exhausted(status: &mut Document, now: &str) {
    let mut condition = json!({"type": ALLOWED, "status": "False", "reason": "InsufficientPods", "message": "",
        "lastTransitionTime": now});
    if let Some(generation) = status.get("observedGeneration").filter(|generation| generation.as_i64() != Some(0)) {
        condition["observedGeneration"] = generation.clone();
    }
    let conditions = status.entry("conditions").or_insert_with(|| json!([]));
    let Some(conditions) = conditions.as_array_mut() else { return };
    match conditions.iter_mut().find(|known| known["type"] == ALLOWED) {
        Some(known) => {
            if known["status"] == "False" {
                condition["lastTransitionTime"] = known["lastTransitionTime"].clone();
            }
            *known = condition;
        }
        None => conditions.push(condition),
    }
}

fn is_ready(pod: &Document) -> bool {
    let conditions = pod.get("status").and_then(|status| status["conditions"].as_array()).into_iter().flatten();
    conditions.into_iter().any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

/// Whether the budget lets unready pods be evicted: always, or only while enough other pods are ready, as its policy
/// says.
fn lets_unhealthy_go(budget: &Value) -> bool {
    let number = |field: &str| budget["status"][field].as_i64().unwrap_or(0);
    let policy = &budget["spec"]["unhealthyPodEvictionPolicy"];
    let is_met = number("desiredHealthy") > 0 && number("currentHealthy") >= number("desiredHealthy");
    policy == "AlwaysAllow" || is_met
}

struct Budget {
    key: Arc<str>,
    entry: Arc<Entry>,
    document: Value,
}

/// The budget that covers the pod, if any. If several budgets cover the pod, the eviction is refused.
fn covering(context: &Context, kind: KindId, pod: &Old) -> Result<Option<Budget>, Refusal> {
    let labels = pod.metadata().get("labels").and_then(Value::as_object).cloned().unwrap_or_default();
    let prefix = prefix(context.request.namespace());
    let covers = |budget: &Value| {
        LabelSelector::from_object(&budget["spec"]["selector"]).is_ok_and(|selector| selector.matches(&labels))
    };
    let budgets = context.state.scan(kind, &prefix, None);
    let read = |(key, entry): (&Arc<str>, &Arc<Entry>)| Budget {
        key: key.clone(),
        entry: entry.clone(),
        document: entry.document(),
    };
    let mut budgets = budgets.map(read).filter(|budget| covers(&budget.document));
    let budget = budgets.next();
    if budgets.next().is_some() {
        return Err(Refusal::Unreasoned(Unreasoned::SeveralBudgets));
    }
    Ok(budget)
}

/// The reason why the budget allows no disruption, as far as its status gives one.
fn why_none(status: &Value) -> Withheld {
    let number = |field: &str| status[field].as_i64().unwrap_or(0);
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let mut told = conditions.filter(|condition| condition["type"] == ALLOWED && condition["status"] == "False");
    let text = |condition: &Value, field: &str| condition[field].as_str().unwrap_or_default().to_owned();
    let told = told.next().map(|condition| (text(condition, "reason"), text(condition, "message")));
    match told.filter(|(_, message)| !message.is_empty()) {
        // The last sync of the budget failed, so the numbers in its status may be wrong.
        Some((reason, why)) if reason == "SyncFailed" => Withheld::NotSynced { why },
        told => {
            let (healthy_needed, healthy) = (number("desiredHealthy"), number("currentHealthy"));
            let lacks = healthy <= healthy_needed;
            if lacks { Withheld::Needed { healthy_needed, healthy } } else { Withheld::Condition { told } }
        }
    }
}

/// Checks that the budget allows one more disruption.
fn check_budget(budget: &Document) -> Result<(), Refusal> {
    let name = meta::name(budget);
    let status = budget.get("status").unwrap_or(&Value::Null);
    let number = |field: &str| status[field].as_i64().unwrap_or(0);
    let withhold = |retry_after_seconds: u32, why: Withheld| {
        Err(Refusal::DisruptionBudget { budget: name.into(), why, retry_after_seconds })
    };
    let forbid = |why: Forbidden| {
        let subject = Subject::new("policy", "poddisruptionbudget", name);
        Err(Refusal::Forbidden { subject, why })
    };
    let generation = meta::metadata(budget).get("generation").and_then(Value::as_i64).unwrap_or(0);
    if number("observedGeneration") < generation {
        return withhold(BEHIND_RETRY_SECONDS, Withheld::Unprocessed);
    }
    match number("disruptionsAllowed") {
        ..0 => return forbid(Forbidden::NegativeBudget),
        0 => return withhold(0, why_none(status)),
        1.. => {}
    }
    if status["disruptedPods"].as_object().is_some_and(|pods| pods.len() > DISRUPTED_PODS_MAX) {
        return forbid(Forbidden::TooManyEvictions);
    }
    Ok(())
}
