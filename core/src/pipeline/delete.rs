//! Delete, in two phases: an object that something holds back is marked first, and goes when it is released.

use super::{Answer, Context, Decision, View, Write, lifecycle, update};
use crate::object::meta::{self, Document, FOREGROUND_FINALIZER, ORPHAN_FINALIZER, metadata, metadata_mut};
use crate::refusal::{Cause, Refusal, Subject};
use crate::request::DeleteOptions;
use crate::select::LabelSelector;
use crate::stamp::rfc3339;
use crate::state::Entry;
use jiff::SignedDuration;
use serde_json::Value;
use std::sync::Arc;

/// Kinds whose delete answers with the object that was.
const ANSWERS_WITH_OBJECT: &[&str] = &[
    "Pod",
    "Service",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "ServiceAccount",
    "PodTemplate",
    "ResourceQuota",
    "VolumeAttachment",
    "StorageClass",
    "CSIDriver",
    "CSINode",
    "PodSecurityPolicy",
];

pub(super) fn decide(context: &Context) -> Result<Decision, Refusal> {
    validate(&context.request.options.delete)?;
    lifecycle::admit_delete(context)?;
    let (key, entry) = context.existing()?;
    delete(context, key, entry)
}

fn delete(context: &Context, key: Arc<str>, entry: Arc<Entry>) -> Result<Decision, Refusal> {
    let options = &context.request.options.delete;
    let old = context.old(&entry)?;
    let fixed = preconditions(context, options, &entry, &old)?;
    let mut released = old.clone();
    imply_finalizers(options, &mut released);
    let mut new = released.clone();
    let already = meta::is_deleting(&old);
    if !already {
        mark(context, &mut new, grace_seconds(context, options, &old));
        super::definition::terminate(context, &mut new);
    } else if let Some(grace) = options.grace_period_seconds {
        shorten(&mut new, not_negative(grace));
    }
    let gone = update::is_released(&new);
    if !gone && update::same(context, &new, &old) {
        return Ok(Decision::unchanged(entry, 200, Vec::new()));
    }
    let uid = meta::uid(&new).to_owned();
    // Without a second phase nobody sees the object being deleted, but for a pod, which always has one.
    let unmarked = gone && !already && context.kind.built_in_name() != "Pod";
    let last = if unmarked { released } else { new };
    let write = context.write(key, Some(entry.offset), last, gone)?;
    let mut decision = Decision::one(write, 200, fixed, Vec::new());
    if gone && !ANSWERS_WITH_OBJECT.contains(&context.kind.built_in_name()) {
        decision.answer = Answer::Deleted { subject: context.subject(context.request.name()), uid };
    } else if gone {
        decision.answer = Answer::Written { index: 0, code: 200, view: View::Object };
    }
    Ok(decision)
}

/// Options that contradict themselves or name what does not exist.
pub fn validate(options: &DeleteOptions) -> Result<(), Refusal> {
    let mut causes = Vec::new();
    if options.orphan_dependents.is_some() && options.propagation_policy.is_some() {
        causes.push(Cause::invalid(
            "propagationPolicy",
            &options.propagation_policy.clone().into(),
            "orphanDependents and deletionPropagation cannot be both set",
        ));
    }
    if let Some(policy) = &options.propagation_policy
        && !matches!(policy.as_str(), "Orphan" | "Background" | "Foreground" | "")
    {
        let supported = ["Foreground", "Background", "Orphan"];
        causes.push(Cause::not_supported("propagationPolicy", &policy.as_str().into(), &supported));
    }
    if causes.is_empty() {
        return Ok(());
    }
    Err(Refusal::Invalid { subject: Subject::new("meta.k8s.io", "DeleteOptions", ""), causes })
}

/// True when the client fixed the version.
fn preconditions(context: &Context, options: &DeleteOptions, entry: &Entry, old: &Document) -> Result<bool, Refusal> {
    let conflict = |what: &str, wanted: &str, found: &str, since: &str| Refusal::Conflict {
        subject: context.kind_subject(context.request.name()),
        message: format!(
            "the {what} in the precondition ({wanted}) does not match the {what} in record ({found}). The object might \
             have been {since}"
        ),
    };
    if let Some(uid) = &options.precondition_uid
        && uid != meta::uid(old)
    {
        return Err(conflict("UID", uid, meta::uid(old), "deleted and then recreated"));
    }
    let found = entry.offset.to_string();
    match &options.precondition_resource_version {
        None => Ok(false),
        Some(version) if *version == found => Ok(true),
        Some(version) => Err(conflict("ResourceVersion", version, &found, "modified")),
    }
}

/// The finalizers that the propagation policy asks for, and only these two, are added or removed.
fn imply_finalizers(options: &DeleteOptions, document: &mut Document) {
    let wanted = match (options.orphan_dependents, options.propagation_policy.as_deref()) {
        (Some(true), _) | (_, Some("Orphan")) => Some(ORPHAN_FINALIZER),
        (_, Some("Foreground")) => Some(FOREGROUND_FINALIZER),
        (Some(false), _) | (_, Some("Background")) => None,
        // Unset: what the object carries already decides.
        _ => return,
    };
    let ours = [ORPHAN_FINALIZER, FOREGROUND_FINALIZER];
    let mut finalizers: Vec<String> =
        meta::finalizers(document).into_iter().filter(|f| !ours.contains(f)).map(str::to_owned).collect();
    finalizers.extend(wanted.map(str::to_owned));
    meta::set_finalizers(document, finalizers);
}

/// Only a pod that runs on a node has time to stop; everything else goes at once.
fn grace_seconds(context: &Context, options: &DeleteOptions, old: &Document) -> i64 {
    if context.kind.built_in_name() != "Pod" {
        return 0;
    }
    let spec = old.get("spec");
    let field = |parent: Option<&Value>, name: &str| parent.and_then(|value| value.get(name)).cloned();
    let scheduled = field(spec, "nodeName").is_some_and(|node| node.as_str().is_some_and(|node| !node.is_empty()));
    let phase = field(old.get("status"), "phase");
    let finished = matches!(phase.as_ref().and_then(Value::as_str), Some("Succeeded" | "Failed"));
    if !scheduled || finished {
        return 0;
    }
    options
        .grace_period_seconds
        .or_else(|| field(spec, "terminationGracePeriodSeconds").and_then(|value| value.as_i64()))
        .map_or(30, not_negative)
}

/// Less than no time counts as a second.
fn not_negative(seconds: i64) -> i64 {
    if seconds < 0 { 1 } else { seconds }
}

/// Starts the deletion.
fn mark(context: &Context, document: &mut Document, grace: i64) {
    let time = context.stamp.time.checked_add(SignedDuration::from_secs(grace)).unwrap_or(context.stamp.time);
    let meta = metadata_mut(document);
    meta.insert("deletionTimestamp".into(), rfc3339(time).into());
    meta.insert("deletionGracePeriodSeconds".into(), grace.into());
    if context.kind.generation {
        let generation = meta.get("generation").and_then(Value::as_i64).unwrap_or(0);
        meta.insert("generation".into(), (generation + 1).into());
    }
    if context.request.target.kind == context.state.registry.namespaces() {
        meta::set_path(document, "status.phase", "Terminating".into());
    }
}

/// A second delete may only shorten the time that the first one gave.
fn shorten(document: &mut Document, grace: i64) {
    let meta = metadata_mut(document);
    let now = meta.get("deletionGracePeriodSeconds").and_then(Value::as_i64).unwrap_or(0);
    if grace >= now {
        return;
    }
    let earlier = meta
        .get("deletionTimestamp")
        .and_then(Value::as_str)
        .and_then(|time| time.parse::<jiff::Timestamp>().ok())
        .and_then(|time| time.checked_sub(SignedDuration::from_secs(now - grace)).ok());
    if let Some(time) = earlier {
        meta.insert("deletionTimestamp".into(), rfc3339(time).into());
    }
    meta.insert("deletionGracePeriodSeconds".into(), grace.into());
}

/// Disruption budgets count pods that run; the others may always go.
fn is_protected(pod: &Document) -> bool {
    let phase = pod.get("status").and_then(|status| status["phase"].as_str()).unwrap_or("");
    !meta::is_deleting(pod) && !matches!(phase, "Pending" | "Succeeded" | "Failed" | "")
}

/// Takes one disruption from the budget that covers the pod, or says that there is none left.
fn spend(context: &Context, pod: &Document) -> Result<Option<Write>, Refusal> {
    let Some((kind, _)) = context.state.registry.find_kind("policy", "v1", "PodDisruptionBudget") else {
        return Ok(None);
    };
    let labels = metadata(pod).get("labels").and_then(Value::as_object).cloned().unwrap_or_default();
    let prefix = crate::state::prefix(context.request.namespace());
    let covers = |budget: &Value| {
        let selector = &budget["spec"]["selector"];
        LabelSelector::from_object(selector).is_ok_and(|selector| selector.matches(&labels))
    };
    let mut budgets = context.state.scan(kind, &prefix, None).filter(|(_, entry)| covers(&entry.document()));
    let Some((key, entry)) = budgets.next() else { return Ok(None) };
    if budgets.next().is_some() {
        let why = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
        return Err(Refusal::Internal(why.into()));
    }
    let mut budget = entry.document().as_object().cloned().unwrap_or_default();
    metadata_mut(&mut budget).remove("resourceVersion");
    let number = |parent: &str, field: &str| budget.get(parent).and_then(|v| v[field].as_i64()).unwrap_or(0);
    let generation = metadata(&budget).get("generation").and_then(Value::as_i64).unwrap_or(0);
    let allowed = number("status", "disruptionsAllowed");
    if allowed <= 0 || number("status", "observedGeneration") < generation {
        return Err(Refusal::TooManyRequests {
            message: "Cannot evict pod as it would violate the pod's disruption budget.".into(),
            retry_after_seconds: 10,
        });
    }
    let status = meta::object_mut(&mut budget, "status");
    status.insert("disruptionsAllowed".into(), (allowed - 1).into());
    let disrupted = meta::object_mut(status, "disruptedPods");
    disrupted.insert(context.request.name().into(), context.stamp.rfc3339().into());
    let hub = context.state.kind(kind);
    let draft = crate::object::Draft::new(&hub.versions[0].api_version(), &hub.kind, &budget);
    let index = crate::state::Index::new(hub, &Value::Object(budget));
    Ok(Some(Write { kind, key: key.clone(), expect: Some(entry.offset), draft, index, delete: false }))
}

/// Deleting through a subresource (eviction) is deleting, within the disruption budget.
pub(super) fn evict(context: &Context) -> Result<Decision, Refusal> {
    let (key, entry) = context.existing()?;
    let pod = context.old(&entry)?;
    let budget = if is_protected(&pod) { spend(context, &pod)? } else { None };
    let mut decision = delete(context, key, entry)?;
    decision.writes.extend(budget);
    let mut status = Document::new();
    status.insert("kind".into(), "Status".into());
    status.insert("apiVersion".into(), "v1".into());
    status.insert("metadata".into(), Value::Object(Document::new()));
    status.insert("status".into(), "Success".into());
    status.insert("code".into(), 201.into());
    decision.answer = Answer::Document { document: status, code: 201 };
    Ok(decision)
}
