//! The point in a round of mutating webhooks at which judging stopped to call a webhook.
//!
//! Judging starts again from the first stage with each answer. With many mutating webhooks, all earlier answers would
//! be processed again each time. Therefore a round resumes at the webhook that was called.

use crate::admission::Attributes;
use crate::admission::outcome::Pause;
use holdfast_value::Value;
use std::sync::Arc;

/// Resumes this round: returns the object at the start of the round, and the index of the webhook to continue with.
pub(super) fn resume(attributes: &mut Attributes) -> (Arc<Value>, usize) {
    let answers = attributes.answers;
    let pauses = answers.pauses.lock();
    let left = pauses.get(attributes.reinvocation.round as usize).and_then(Option::as_ref);
    let left = left.filter(|left| left.version == attributes.state.offset && *left.begun == attributes.object);
    let Some(left) = left.cloned() else { return (Arc::new(attributes.object.clone()), 0) };
    drop(pauses);
    attributes.object = left.object;
    attributes.admitted = left.admitted;
    attributes.reinvocation = left.reinvocation;
    attributes.spent.set(left.spent);
    (left.begun, left.at)
}

/// Saves this round before a webhook that must be called. Nothing is saved while an authorization webhook has not
/// answered, because the results may differ then.
pub(super) fn pause(attributes: &mut Attributes, begun: &Arc<Value>, at: usize) {
    if attributes.answers.consulted.is_open() {
        return;
    }
    let pause = Pause {
        version: attributes.state.offset,
        begun: begun.clone(),
        at,
        object: std::mem::take(&mut attributes.object),
        admitted: std::mem::take(&mut attributes.admitted),
        reinvocation: std::mem::take(&mut attributes.reinvocation),
        spent: attributes.spent.get(),
    };
    let round = pause.reinvocation.round as usize;
    if let Some(place) = attributes.answers.pauses.lock().get_mut(round) {
        *place = Some(pause);
    }
}
