//! Managed fields: records which manager wrote which field, in the version of the request.

use super::candidate::Candidate;
use super::{Context, Stop};
use crate::kinds;
use crate::merge::managed;
use crate::object::meta::{self, metadata_mut, text};
use crate::refusal::{Cause, Causes, Internal, Refusal, Subject};
use crate::request::{Format, Request, Verb};
use crate::schema::layout::Layout;
use holdfast_value::Value;
use std::cell::RefCell;

/// Checks the options `fieldManager`, which apply requires, and `force`, which only apply may use.
pub(super) fn check_options(request: &Request) -> Result<(), Refusal> {
    let options = match request.verb {
        Verb::Create => "CreateOptions",
        Verb::Update => "UpdateOptions",
        Verb::Patch => "PatchOptions",
        _ => return Ok(()),
    };
    let manager = request.options.field_manager.as_deref().unwrap_or("");
    let is_apply = request.body.format == Format::ApplyPatch;
    let mut causes = Causes::default();
    if request.verb == Verb::Patch && !is_apply && request.options.force.is_some() {
        causes.push(Cause::forbidden("force", "may not be specified for non-apply patch"));
    }
    causes.append(managed::field_manager_faults(manager, is_apply));
    if causes.is_empty() {
        return Ok(());
    }
    Err(Refusal::Invalid { subject: Subject::new("meta.k8s.io", options, ""), causes })
}

/// Makes the request's manager the owner of the fields that the request changes.
pub(super) fn track(context: &Context, object: &mut Candidate) -> Result<(), Stop> {
    // Apply and scale have already recorded the owners, before defaults were set. For other writes this runs after
    // defaults are set, so the manager also owns the defaults that its write adds.
    if !object.tracked {
        let version = context.request.target.version;
        match version == context.working_version() {
            true => update(context, object.old.as_ref().map(|old| &old.document), &mut object.new)?,
            false => track_in_version(context, version, object)?,
        }
    }
    Ok(())
}

/// Makes the request's manager the owner of all fields of a document that is never stored.
pub(super) fn note_new(context: &Context, document: &mut Value) -> Result<(), Refusal> {
    match update(context, None, document) {
        Ok(()) => Ok(()),
        Err(Stop::Refused(refusal)) => Err(refusal),
        Err(Stop::Needs(effect)) => Err(Refusal::Internal(Internal::NobodyToAsk { what: effect.what() })),
    }
}

/// If the write changes nothing but the times of managed fields, restores the old times, so that nothing needs to be
/// written.
pub(super) fn keep_times(object: &mut Candidate) {
    if let Some(old) = &object.old {
        managed::keep_times(old.fields(), meta::fields_mut(&mut object.new));
    }
}

/// Compares the old and the new document after converting both from the hub version to the version of the request.
fn track_in_version(context: &Context, version: usize, object: &mut Candidate) -> Result<(), Stop> {
    let shown = |document: &Value| {
        let mut shown = document.clone();
        context.kind.from_hub(version, meta::fields_mut(&mut shown));
        shown
    };
    let old = object.old.as_ref().map(|old| shown(&old.document));
    let mut new = shown(&object.new);
    update(context, old.as_ref(), &mut new)?;
    let fields = metadata_mut(meta::fields_mut(&mut new)).remove("managedFields");
    super::reset::put(metadata_mut(object.fields_mut()), "managedFields", fields);
    Ok(())
}

fn update(context: &Context, old: Option<&Value>, new: &mut Value) -> Result<(), Stop> {
    let missing = RefCell::new(None);
    let convert = |document: &Value, api_version: &str| convert(context, document, api_version, &missing);
    managed::track_update(
        old,
        new,
        &managed::Writer {
            layout: context.layout()?,
            api_version: &context.version().api_version(),
            manager: context.request.options.field_manager.as_deref().unwrap_or("unknown"),
            subresource: context.request.target.subresource.as_deref().unwrap_or(""),
            now: &context.stamp.rfc3339(),
            reset: context.reset_fields(),
            convert: Some(&convert),
        },
    );
    match missing.take() {
        None => Ok(()),
        // To compare the fields of managers in other versions, a webhook must convert the object. If the webhook fails,
        // managed fields stay unchanged. No other part of this write needs the webhook.
        Some(Stop::Refused(_)) => {
            let owners = old.and_then(|old| old["metadata"].get("managedFields")).cloned();
            super::reset::put(metadata_mut(meta::fields_mut(new)), "managedFields", owners);
            Ok(())
        }
        Some(needs) => Err(needs),
    }
}

/// Converts a document to another served version of its kind. Returns `None` if there is no such version, or if the
/// conversion stopped; `missing` then has the reason: the webhook that must be called first, or a refusal.
pub(super) fn convert<'a>(
    context: &'a Context,
    value: &Value,
    api_version: &str,
    missing: &RefCell<Option<Stop>>,
) -> Option<(Value, Layout<'a>)> {
    let to = context.kind.version_named(api_version)?;
    let from = text(value.as_object()?, "apiVersion");
    let from = context.kind.version_named(from).unwrap_or(context.request.target.version);
    match context.converted(value.clone(), from, to) {
        Ok(document) => Some((document, kinds::layout(context.kind, to).ok()?)),
        Err(stop) => {
            missing.borrow_mut().get_or_insert(stop);
            None
        }
    }
}
