//! Carries out the actions of plans.

use crate::Rates;
use crate::slots::Slots;
use async_trait::async_trait;
use holdfast_value::Value;
use holdfast_world::{Action, Actor, Refusal, WriteResult};
use std::sync::Arc;

/// Carries out the actions of plans on a cluster.
#[async_trait]
pub trait Act: Send + Sync + 'static {
    /// Carries out one action as an actor.
    async fn act(&self, actor: &Actor, action: &Action) -> Result<ActionDone, Refusal>;

    /// Sends a GET request for a path as an actor, and returns the answer.
    async fn get(&self, actor: &Actor, path: &str) -> Result<Value, Refusal>;

    /// Sends a `SubjectAccessReview` as an actor, and returns the review with its status.
    async fn review(&self, actor: &Actor, review: &Value) -> Result<Value, Refusal>;
}

/// The result of an action that the server has accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActionDone {
    /// The name of the object, which the server may have generated.
    pub name: String,
    pub result: WriteResult,
    /// The size in bytes of the object that was written; 0 if no object was written.
    pub bytes: usize,
}

/// The maximum number of actions that [`Charged`] carries out at the same time. One namespace may have at most half of
/// them.
const ACTIONS_MAX: usize = 2048;

/// Carries out actions without waiting for a rate, and charges the written bytes to the namespace of the object. Other
/// writers that share the rates wait until the rate of this namespace allows the charged bytes. If more than
/// `ACTIONS_MAX` actions are requested at the same time, the namespaces take turns.
pub struct Charged<A> {
    act: A,
    rates: Arc<Rates>,
    slots: Arc<Slots>,
}

impl<A: Act> Charged<A> {
    pub fn new(act: A, rates: Arc<Rates>) -> Charged<A> {
        Charged { act, slots: Slots::new(ACTIONS_MAX, rates.clone()), rates }
    }
}

#[async_trait]
impl<A: Act> Act for Charged<A> {
    async fn act(&self, actor: &Actor, action: &Action) -> Result<ActionDone, Refusal> {
        let _slot = self.slots.take(&action.key.namespace).await;
        let done = self.act.act(actor, action).await?;
        self.rates.charge(&action.key.namespace, done.bytes);
        Ok(done)
    }

    async fn get(&self, actor: &Actor, path: &str) -> Result<Value, Refusal> {
        self.act.get(actor, path).await
    }

    async fn review(&self, actor: &Actor, review: &Value) -> Result<Value, Refusal> {
        self.act.review(actor, review).await
    }
}
