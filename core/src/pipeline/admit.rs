//! The two admission stages: mutating before the server completes the object, validating before it is encoded.

use super::candidate::{Candidate, Old};
use super::endpoint::Part;
use super::{Context, Endpoint, Stop};
use crate::admission::{self, Attributes, Body, Operation};
use crate::authz::reviews;
use crate::kinds::Known;
use holdfast_value::Value;

/// Mutating admission, on the client's object.
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

/// Validating admission, on the object as it would be stored.
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

/// Both halves of admission, for the body of a subresource that is not an object of the path's kind. Returns the body
/// that results from mutating admission.
pub(super) fn part(
    context: &Context,
    body: Known,
    operation: Operation,
    document: Value,
    old: &Value,
) -> Result<Value, Stop> {
    completed_update(context, body, operation, document, old, |_| Ok(()))
}

/// Like [`part`], for a new document that `complete` checks and completes between the halves.
pub(super) fn completed_part(
    context: &Context,
    body: Known,
    document: Value,
    complete: impl FnOnce(&mut Value) -> Result<(), Stop>,
) -> Result<Value, Stop> {
    completed_update(context, body, Operation::Create, document, &Value::Null, complete)
}

/// Like [`part`], for a document that replaces another one.
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

/// Both halves of admission, for a document of the path's kind that is posted but never stored.
pub(super) fn question(context: &Context, document: Value) -> Result<Value, Stop> {
    let body = Body::Object { version: context.request.target.version };
    let attributes = of(context, Operation::Create, body, document, &Value::Null);
    both(context, attributes, |document| Ok(reviews::check(context.kind, document)?))
}

/// Runs both halves, with `complete` between them.
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
