//! The two stages of admission. Mutating admission runs before the server completes the object, validating admission
//! runs before the object is encoded.

use super::candidate::{Candidate, Old};
use super::endpoint::Part;
use super::{Context, Endpoint, Stop};
use crate::admission::{self, Attributes, Body, Operation};
use crate::authz::reviews;
use crate::kinds::Known;
use holdfast_value::Value;

/// Runs mutating admission on the object as the client wants it.
pub(super) fn mutate(context: &Context, endpoint: &Endpoint, object: &mut Candidate) -> Result<(), Stop> {
    if object.admitted {
        return Ok(());
    }
    let taken = if endpoint.part == Part::Deletion { Value::Null } else { object.new.take() };
    let mut attributes = attributes(context, endpoint, object, taken);
    let outcome = admission::mutate(&mut attributes);
    let Attributes { object: changed, admitted, .. } = attributes;
    context.admitted.borrow_mut().extend(admitted);
    if endpoint.part != Part::Deletion {
        object.new = changed;
    }
    outcome
}

/// Runs validating admission on the object as it would be stored.
pub(super) fn validate(context: &Context, endpoint: &Endpoint, object: &mut Candidate) -> Result<(), Stop> {
    if object.admitted {
        return Ok(());
    }
    let taken = if endpoint.part == Part::Deletion { Value::Null } else { object.new.take() };
    let mut attributes = attributes(context, endpoint, object, taken);
    let outcome = admission::validate(&mut attributes);
    let Attributes { object: seen, admitted, .. } = attributes;
    context.admitted.borrow_mut().extend(admitted);
    if endpoint.part != Part::Deletion {
        object.new = seen;
    }
    outcome
}

/// Runs mutating and validating admission on the body of a subresource, such as a Binding, which is not an object of
/// the path's kind. Returns the body as mutating admission leaves it.
pub(super) fn part(
    context: &Context,
    body: Known,
    operation: Operation,
    document: Value,
    old: &Value,
) -> Result<Value, Stop> {
    completed_update(context, body, operation, document, old, |_| Ok(()))
}

/// Like [`part`], for a new document. `complete` checks and completes it between mutating and validating admission.
pub(super) fn completed_part(
    context: &Context,
    body: Known,
    document: Value,
    complete: impl FnOnce(&mut Value) -> Result<(), Stop>,
) -> Result<Value, Stop> {
    completed_update(context, body, Operation::Create, document, &Value::Null, complete)
}

/// Like [`part`], for a document that replaces another document.
pub(super) fn completed_update(
    context: &Context,
    body: Known,
    operation: Operation,
    document: Value,
    old: &Value,
    complete: impl FnOnce(&mut Value) -> Result<(), Stop>,
) -> Result<Value, Stop> {
    both(context, of(context, operation, Body::Part(body), document, old), complete)
}

/// Runs mutating and validating admission on a posted document of the path's kind that is never stored, such as a
/// review.
pub(super) fn question(context: &Context, document: Value) -> Result<Value, Stop> {
    let body = Body::Object { version: context.request.target.version };
    let attributes = of(context, Operation::Create, body, document, &Value::Null);
    both(context, attributes, |document| Ok(reviews::check(context.kind, document)?))
}

/// Runs mutating admission, then `complete`, then validating admission.
fn both(
    context: &Context,
    mut attributes: Attributes,
    complete: impl FnOnce(&mut Value) -> Result<(), Stop>,
) -> Result<Value, Stop> {
    let outcome = admission::mutate(&mut attributes)
        .and_then(|()| complete(&mut attributes.object))
        .and_then(|()| admission::validate(&mut attributes));
    let Attributes { object, admitted, .. } = attributes;
    context.admitted.borrow_mut().extend(admitted);
    outcome.map(|()| object)
}

fn attributes<'a>(
    context: &'a Context,
    endpoint: &Endpoint,
    candidate: &'a Candidate,
    document: Value,
) -> Attributes<'a> {
    let operation = match (endpoint.part, &candidate.old) {
        (Part::Deletion, _) => Operation::Delete,
        (_, None) => Operation::Create,
        (_, Some(_)) => Operation::Update,
    };
    let old = candidate.old.as_ref().map_or(&Value::Null, |old: &Old| &old.document);
    let body = Body::Object { version: context.working_version() };
    let old_version = candidate.old.as_ref().map(|old| old.entry.offset);
    Attributes { old_version, ..of(context, operation, body, document, old) }
}

fn of<'a>(context: &'a Context, operation: Operation, body: Body, object: Value, old: &'a Value) -> Attributes<'a> {
    Attributes {
        state: context.state,
        admission: &context.settings.admission,
        authorizer: context.authorizer(),
        request: context.request,
        kind: context.kind,
        stamp: context.stamp,
        ticks: context.settings.ticks,
        answers: context.answers,
        operation,
        body,
        object,
        old,
        old_version: None,
        admitted: Default::default(),
        reinvocation: Default::default(),
        is_validating: false,
        spent: Default::default(),
    }
}
