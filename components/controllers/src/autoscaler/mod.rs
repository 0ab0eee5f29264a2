//! The controller of HorizontalPodAutoscalers, which scale a target to the number of pods that its usage needs.
//!
//! Each autoscaler is evaluated every fifteen seconds. Its target's scale and its metrics are read with GETs. Past
//! recommendations and changes are kept in memory; after a restart the memory starts with the present size.

mod calculation;
mod limits;
mod metrics;
mod sync;

#[cfg(test)]
mod tests;

use crate::get_answers::{self, GetAnswers, NeedsGet};
use crate::settings::{AutoscalingSettings, Settings};
use crate::subject::Subject;
use holdfast_value::Value;
use holdfast_world::views::{Definition, HorizontalPodAutoscaler, Pod};
use holdfast_world::{
    Change, Controller, Key, Keys, Plan, Refusal, Refused, Resource, Selector, Stamp, Time, View as _, World,
};
use limits::ScalingHistory;
use std::collections::BTreeMap;
use sync::{Rescale, SyncInputs};

#[derive(Default)]
pub struct Autoscalers {
    settings: AutoscalingSettings,
    answers: GetAnswers,
    known: BTreeMap<Key, AutoscalerState>,
}

impl Autoscalers {
    pub fn new(settings: &Settings) -> Autoscalers {
        Autoscalers { settings: settings.autoscaling, ..Autoscalers::default() }
    }
}

/// What the controller remembers about one autoscaler between evaluations.
#[derive(Default)]
struct AutoscalerState {
    next: Option<Time>,
    memory: ScalingHistory,
    selector: Option<Selector>,
    /// The last change of size that was requested. If the server refuses the request, this change is reported and
    /// undone.
    rescale: Option<Rescale>,
}

impl Controller for Autoscalers {
    fn name(&self) -> &'static str {
        "horizontal-pod-autoscaler-controller"
    }

    fn queue(&self) -> &'static str {
        "horizontalpodautoscaler"
    }

    fn account(&self) -> &'static str {
        "horizontal-pod-autoscaler"
    }

    fn component(&self) -> &'static str {
        "horizontal-pod-autoscaler"
    }

    fn resources(&self) -> Vec<Resource> {
        vec![HorizontalPodAutoscaler::resource().clone(), Pod::resource().clone(), Definition::resource().clone()]
    }

    fn indexes(&self, world: &mut World) {
        world.index_labels::<Pod>();
        get_answers::index(world);
    }

    fn concerns(&mut self, _: &World, change: &Change, keys: &mut Keys) {
        if change.is_of::<HorizontalPodAutoscaler>() {
            keys.add(change.key.clone());
        }
    }

    fn plan(&mut self, world: &World, key: &Key, stamp: Stamp) -> Plan {
        let Some(autoscaler) = world.get::<HorizontalPodAutoscaler>(key) else {
            self.known.remove(key);
            self.answers.forget(key);
            return Plan::default();
        };
        let mut known = self.known.remove(key).unwrap_or_default();
        let mut plan = Plan::default();
        let view =
            SyncInputs { world, read: self.answers.of(world, key), others: &self.known, settings: self.settings };
        match known.next.filter(|next| stamp.time < *next) {
            Some(next) => plan.requeue_at(next),
            None => match sync::sync(&view, autoscaler, &mut known, stamp.time) {
                Err(NeedsGet(path)) => plan.gets.push(path),
                Ok(made) => {
                    plan = made;
                    let next = stamp.time.plus_millis(self.settings.period_millis.max(1));
                    known.next = Some(next);
                    plan.requeue_at(next);
                    self.answers.forget(key);
                }
            },
        }
        self.known.insert(key.clone(), known);
        plan
    }

    fn answered(&mut self, key: &Key, path: &str, answer: Result<Value, Refusal>) {
        self.answers.store(key, path, answer);
    }

    fn refused(&mut self, world: &World, key: &Key, refused: &[Refused], stamp: Stamp) -> Plan {
        let mut plan = Plan::default();
        let known = self.known.get_mut(key);
        let (Some(autoscaler), Some(known)) = (world.get::<HorizontalPodAutoscaler>(key), known) else { return plan };
        let scale = refused.iter().find(|refused| refused.action.subresource == "scale");
        let (Some(Refused { refusal, .. }), Some(rescale)) = (scale, known.rescale.take()) else { return plan };
        known.memory.undo_last();
        let Rescale { current, desired, reason } = rescale;
        let message = format!("New size: {desired}; reason: {reason}; error: {}", refusal.message);
        plan.events.push(Subject::from(autoscaler).warning("FailedRescale", message));
        let fault = format!("the HPA controller was unable to update the target scale: {}", refusal.message);
        let action = sync::failed_status(autoscaler, current, &fault, stamp.time);
        plan.steps.extend(action.map(|action| vec![action]));
        plan
    }
}
