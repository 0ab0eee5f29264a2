//! Where webhooks that change an object were left, when one of them had to be asked.
//!
//! Judging begins anew with each answer. With a webhook behind the other, all that the first ones have said would be gone
//! through again for each that follows; instead judging goes on with the one that was asked.

use crate::admission::Attributes;
use crate::admission::outcome::Pause;
use holdfast_value::Value;
use std::sync::Arc;

/// Goes on where this round was left: the object as the round began, and the number of the webhook to go on with.
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

/// Leaves this round before a webhook that has to be asked. What rests on an authorizer that was not asked yet may be
/// otherwise the next time.
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
