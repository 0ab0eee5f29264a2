//! The point in a round of mutating webhooks at which judging stopped to call a webhook.
//!
//! Judging starts again from the first stage with each answer. With many mutating webhooks, all earlier answers would
//! be processed again each time. Therefore a round resumes at the webhook that was called.

use crate::admission::Attributes;
use crate::admission::outcome::Pause;
use crate::pipeline::effect::{Effect, Stop};
use holdfast_value::Value;
use std::sync::Arc;

/// Resumes this round: returns the object at the start of the round, and the index of the webhook to continue with.
pub(super) fn resume(attributes: &mut Attributes) -> (Arc<Value>, usize) {
    let last = attributes.answers.pauses.of_round(attributes.reinvocation.round);
    let last = last.filter(|last| last.version == attributes.state.offset && *last.begun == attributes.object);
    let Some(last) = last.cloned() else { return (Arc::new(attributes.object.clone()), 0) };
    attributes.object = last.object;
    attributes.admitted = last.admitted;
    attributes.reinvocation = last.reinvocation;
    attributes.spent.set(last.spent);
    (last.begun, last.at)
}

/// Adds a pause to a stop before a webhook that must be called. There is no pause while an authorization webhook has
/// not answered, because its answer may change the results so far.
pub(super) fn pause(attributes: &mut Attributes, stop: Stop, begun: &Arc<Value>, at: usize) -> Stop {
    match stop {
        Stop::Needs(Effect::Review { calls, .. }) if !attributes.authorizer.consulted.is_open() => {
            let pause = Pause {
                version: attributes.state.offset,
                begun: begun.clone(),
                at,
                object: std::mem::take(&mut attributes.object),
                admitted: std::mem::take(&mut attributes.admitted),
                reinvocation: std::mem::take(&mut attributes.reinvocation),
                spent: attributes.spent.get(),
            };
            Stop::Needs(Effect::Review { calls, pause: Some(Box::new(pause)) })
        }
        other => other,
    }
}
