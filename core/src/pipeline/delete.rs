//! Delete in two phases: an object with finalizers or a grace period is marked first, and removed when no finalizer and
//! no grace period is left.

use super::candidate::{Candidate, Made, Old};
use super::{Context, Endpoint, Stop, encode};
use crate::kinds::{Kind, Version};
use crate::object::meta::{self, Document, FOREGROUND_FINALIZER, ORPHAN_FINALIZER, metadata_mut};
use crate::refusal::{Cause, Causes, Conflict, Forbidden, Mismatch, Refusal, Subject};
use crate::request::{DeleteOptions, IGNORES_READ_ERRORS};
use crate::stamp::rfc3339;
use holdfast_value::Value;
use jiff::{SignedDuration, Timestamp};

pub(super) fn delete(context: &Context, _: &Endpoint) -> Result<Made, Stop> {
    let options = &context.request.options.delete;
    validate_options(options, context.request.options.dry_run)?;
    context.warn(warning(context.kind, context.version(), options));
    if !options.is_collective {
        check_not_of_system(context)?;
    }
    Ok(deleting(context, context.existing()?)?.into())
}

/// Refuses to delete an object whose name is in the list of objects that the system needs, whether or not the object
/// exists.
fn check_not_of_system(context: &Context) -> Result<(), Refusal> {
    let name = context.request.name();
    match context.kind.deletion.of_system(name) {
        Some(what) => Err(Refusal::Forbidden { subject: context.subject(name), why: Forbidden::OfSystem { what } }),
        None => Ok(()),
    }
}

/// The candidate of a delete: the object marked as being deleted. If it is removed at once, the object without the
/// mark.
pub(super) fn deleting(context: &Context, old: Old) -> Result<Candidate, Refusal> {
    let (options, rules) = (&context.request.options.delete, &context.kind.deletion);
    let fixed = preconditions(context, options, &old)?;
    let mut new = old.document.clone();
    if !rules.independent && context.settings.garbage_collection {
        imply_finalizers(options, context.version().orphans_dependents, meta::fields_mut(&mut new));
    }
    // Only an object of a kind without a grace period may be removed without being marked.
    let released = (!rules.is_gradual()).then(|| new.clone());
    let marked = meta::fields_mut(&mut new);
    let already = meta::is_deleting(old.fields());
    if !already {
        mark(context, marked, rules.grace_period(old.fields(), options.grace_period_seconds));
        rules.begin(marked, &context.stamp.rfc3339());
    } else if let Some(grace) = options.grace_period_seconds {
        shorten(marked, not_negative(grace));
    }
    let removed = encode::is_released(context, marked);
    // If the object is removed at once, no client sees it marked, so the unmarked document is used. Kinds with a grace
    // period are never removed at once.
    let last = released.filter(|_| removed && !already).unwrap_or(new);
    Ok(Candidate { removed, fixed, tracked: true, ..Candidate::replacing(context, old, last) })
}

/// The warning that a delete of an object of this kind gets, whether or not the object exists.
pub fn warning(kind: &Kind, version: &Version, options: &DeleteOptions) -> Option<String> {
    let unsaid = options.orphan_dependents.is_none() && options.propagation_policy.is_none();
    kind.deletion.orphan_warning(version).filter(|_| unsaid).map(str::to_owned)
}

/// Checks that the delete options are known and do not conflict.
pub fn validate_options(options: &DeleteOptions, dry_run: bool) -> Result<(), Refusal> {
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
    let has_preconditions = options.precondition_uid.is_some() || options.precondition_resource_version.is_some();
    for (other, is_set) in [
        ("dryRun", dry_run),
        ("propagationPolicy", options.propagation_policy.is_some()),
        ("orphanDependents", options.orphan_dependents.is_some()),
        ("gracePeriodSeconds", options.grace_period_seconds.is_some()),
        ("preconditions", has_preconditions),
    ] {
        if options.ignores_read_errors && is_set {
            let why = format!("cannot be set together with .{other}");
            causes.push(Cause::invalid(IGNORES_READ_ERRORS, &true.into(), &why));
        }
    }
    if causes.is_empty() {
        return Ok(());
    }
    Err(Refusal::Invalid { subject: Subject::new("meta.k8s.io", "DeleteOptions", ""), causes })
}

/// Like [`validate_options`], for the delete of a collection. Also refuses an option that only the delete of a single
/// object may have.
pub fn validate_options_of_many(options: &DeleteOptions, dry_run: bool) -> Result<(), Refusal> {
    validate_options(options, dry_run)?;
    if !options.ignores_read_errors {
        return Ok(());
    }
    let why = "is not allowed with DELETECOLLECTION, try again after removing the option";
    let causes = Cause::invalid(IGNORES_READ_ERRORS, &true.into(), why).into();
    Err(Refusal::Invalid { subject: Subject::new("meta.k8s.io", "DeleteOptions", ""), causes })
}

/// Checks the preconditions of a delete. Returns whether the client named the object's resourceVersion.
fn preconditions(context: &Context, options: &DeleteOptions, old: &Old) -> Result<bool, Refusal> {
    let name = context.request.name();
    let conflict = |why: Conflict| match context.kind.deletion.has_terminating_phase() {
        // Kubernetes deletes namespaces and CustomResourceDefinitions by separate code, which has another message.
        true => Refusal::Conflict { subject: context.subject(name), why: Conflict::Precondition(Box::new(why)) },
        false => Refusal::Conflict { subject: context.kind_subject(name), why },
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

/// Adds or removes the two finalizers of the propagation policy. Other finalizers stay.
fn imply_finalizers(options: &DeleteOptions, orphans: bool, document: &mut Document) {
    let ours = [ORPHAN_FINALIZER, FOREGROUND_FINALIZER];
    let wanted = match (options.orphan_dependents, options.propagation_policy.as_deref()) {
        (Some(true), _) | (_, Some("Orphan")) => Some(ORPHAN_FINALIZER),
        (_, Some("Foreground")) => Some(FOREGROUND_FINALIZER),
        (Some(false), _) | (_, Some("Background")) => None,
        // If the request names no policy and the object has one of the two finalizers already, the finalizers stay as
        // they are.
        _ if !orphans || meta::finalizers(document).iter().any(|finalizer| ours.contains(finalizer)) => return,
        _ => Some(ORPHAN_FINALIZER),
    };
    let mut finalizers: Vec<String> =
        meta::finalizers(document).into_iter().filter(|f| !ours.contains(f)).map(str::to_owned).collect();
    finalizers.extend(wanted.map(str::to_owned));
    meta::set_finalizers(document, finalizers);
}

/// The grace period of a request. As in Kubernetes, a negative period counts as one second.
fn not_negative(seconds: i64) -> i64 {
    if seconds < 0 { 1 } else { seconds }
}

/// Sets the deletion timestamp and the grace period in the object's metadata.
fn mark(context: &Context, document: &mut Document, grace: i64) {
    // A time after the year 9999 cannot be written, so the deletion timestamp is limited to that year.
    let time = context.stamp.time.checked_add(SignedDuration::from_secs(grace)).unwrap_or(Timestamp::MAX);
    let meta = metadata_mut(document);
    meta.insert("deletionTimestamp", rfc3339(time).into());
    meta.insert("deletionGracePeriodSeconds", grace.into());
}

/// Changes the grace period of an object that is already being deleted. It may become shorter, never longer.
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
        // A deletion timestamp that was limited to the year 9999 does not show when the deletion began, so the new time
        // may be before 1970. The old timestamp then stays.
        .filter(|time| *time >= Timestamp::UNIX_EPOCH);
    if let Some(time) = earlier {
        meta.insert("deletionTimestamp", rfc3339(time).into());
    }
    meta.insert("deletionGracePeriodSeconds", grace.into());
}
