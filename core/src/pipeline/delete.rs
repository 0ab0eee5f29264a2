//! Delete, in two phases: an object that something holds back is marked first, and goes when it is released.

use super::candidate::{Candidate, Made, Old};
use super::{Context, Endpoint, Stop, encode};
use crate::kinds::{Kind, Version};
use crate::object::meta::{self, Document, FOREGROUND_FINALIZER, ORPHAN_FINALIZER, metadata_mut};
use crate::refusal::{Cause, Causes, Conflict, Forbidden, Mismatch, Refusal, Subject};
use crate::request::DeleteOptions;
use crate::stamp::rfc3339;
use holdfast_value::Value;
use jiff::{SignedDuration, Timestamp};

pub(super) fn delete(context: &Context, _: &Endpoint) -> Result<Made, Stop> {
    let options = &context.request.options.delete;
    validate_options(options)?;
    context.warn(warning(context.kind, context.version(), options));
    if !options.is_collective {
        check_not_of_system(context)?;
    }
    Ok(deleting(context, context.existing()?)?.into())
}

/// What the system needs is not deleted by its name, whether it is there or not.
fn check_not_of_system(context: &Context) -> Result<(), Refusal> {
    let name = context.request.name();
    match context.kind.system {
        Some((what, names)) if names.contains(&name) => {
            Err(Refusal::Forbidden { subject: context.subject(name), why: Forbidden::OfSystem { what } })
        }
        _ => Ok(()),
    }
}

/// The candidate of an object that is to go: marked, or as it is when it goes at once.
pub(super) fn deleting(context: &Context, old: Old) -> Result<Candidate, Refusal> {
    let options = &context.request.options.delete;
    let fixed = preconditions(context, options, &old)?;
    let mut new = old.document.clone();
    if !context.kind.independent && context.settings.garbage_collection {
        imply_finalizers(options, context.version().orphans_dependents, meta::fields_mut(&mut new));
    }
    // Only kinds without a second phase may go as they were.
    let released = context.kind.hooks.grace_period.is_none().then(|| new.clone());
    let marked = meta::fields_mut(&mut new);
    let already = meta::is_deleting(old.fields());
    if !already {
        let grace_period = context.kind.hooks.grace_period;
        mark(context, marked, grace_period.map_or(0, |period| period(old.fields(), options.grace_period_seconds)));
        if let Some(begin_delete) = context.kind.hooks.begin_delete {
            // Such a kind goes its own way, on which nobody waits for anybody to stop.
            metadata_mut(marked).remove("deletionGracePeriodSeconds");
            begin_delete(marked, &context.stamp.rfc3339());
        }
    } else if let Some(grace) = options.grace_period_seconds {
        shorten(marked, not_negative(grace));
    }
    let removed = encode::is_released(context, marked);
    // Without a second phase nobody sees the object being deleted. Where there may be one, there always is.
    let last = released.filter(|_| removed && !already).unwrap_or(new);
    Ok(Candidate { removed, fixed, tracked: true, ..Candidate::replacing(context, old, last) })
}

/// What whoever deletes objects of the kind is told, whether they are there or not.
pub fn warning(kind: &Kind, version: &Version, options: &DeleteOptions) -> Option<String> {
    let unsaid = options.orphan_dependents.is_none() && options.propagation_policy.is_none();
    kind.orphan_warning.filter(|_| unsaid && version.orphans_dependents).map(str::to_owned)
}

/// Options that contradict themselves or name what does not exist.
pub fn validate_options(options: &DeleteOptions) -> Result<(), Refusal> {
    let mut causes = Causes::default();
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
        let supported = ["Foreground", "Background", "Orphan", "nil"];
        causes.push(Cause::not_supported("propagationPolicy", &policy.as_str().into(), &supported));
    }
    if causes.is_empty() {
        return Ok(());
    }
    Err(Refusal::Invalid { subject: Subject::new("meta.k8s.io", "DeleteOptions", ""), causes })
}

/// True when the client fixed the version.
fn preconditions(context: &Context, options: &DeleteOptions, old: &Old) -> Result<bool, Refusal> {
    let name = context.request.name();
    let conflict = |why: Conflict| match context.kind.hooks.begin_delete {
        // Kubernetes' own code for such kinds has words of its own.
        Some(_) => Refusal::Conflict { subject: context.subject(name), why: Conflict::Precondition(Box::new(why)) },
        None => Refusal::Conflict { subject: context.kind_subject(name), why },
    };
    if let Some(uid) = &options.precondition_uid
        && uid != meta::uid(old.fields())
    {
        return Err(conflict(Conflict::UidPrecondition(Mismatch::new(uid, meta::uid(old.fields())))));
    }
    let found = old.entry.offset.to_string();
    match &options.precondition_resource_version {
        None => Ok(false),
        Some(version) if *version == found => Ok(true),
        Some(version) => Err(conflict(Conflict::VersionPrecondition(Mismatch::new(version, found)))),
    }
}

/// The finalizers that the propagation policy asks for, and only these two, are added or removed.
fn imply_finalizers(options: &DeleteOptions, orphans: bool, document: &mut Document) {
    let ours = [ORPHAN_FINALIZER, FOREGROUND_FINALIZER];
    let wanted = match (options.orphan_dependents, options.propagation_policy.as_deref()) {
        (Some(true), _) | (_, Some("Orphan")) => Some(ORPHAN_FINALIZER),
        (_, Some("Foreground")) => Some(FOREGROUND_FINALIZER),
        (Some(false), _) | (_, Some("Background")) => None,
        // Unset: what the object carries already decides.
        _ if !orphans || meta::finalizers(document).iter().any(|finalizer| ours.contains(finalizer)) => return,
        _ => Some(ORPHAN_FINALIZER),
    };
    let mut finalizers: Vec<String> =
        meta::finalizers(document).into_iter().filter(|f| !ours.contains(f)).map(str::to_owned).collect();
    finalizers.extend(wanted.map(str::to_owned));
    meta::set_finalizers(document, finalizers);
}

/// Less than no time counts as a second.
fn not_negative(seconds: i64) -> i64 {
    if seconds < 0 { 1 } else { seconds }
}

/// Starts the deletion.
fn mark(context: &Context, document: &mut Document, grace: i64) {
    // Beyond the year 9999 no reader follows.
    let time = context.stamp.time.checked_add(SignedDuration::from_secs(grace)).unwrap_or(Timestamp::MAX);
    let meta = metadata_mut(document);
    meta.insert("deletionTimestamp", rfc3339(time).into());
    meta.insert("deletionGracePeriodSeconds", grace.into());
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
        .and_then(|time| time.parse::<Timestamp>().ok())
        .and_then(|time| time.checked_sub(SignedDuration::from_secs(now.saturating_sub(grace))).ok())
        // Where the first time was beyond the last year, the second one cannot be told from it.
        .filter(|time| *time >= Timestamp::UNIX_EPOCH);
    if let Some(time) = earlier {
        meta.insert("deletionTimestamp", rfc3339(time).into());
    }
    meta.insert("deletionGracePeriodSeconds", grace.into());
}
