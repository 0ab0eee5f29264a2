//! Flow control: so many requests are in progress at once, and no user keeps the others out.
//!
//! What lasts has no place: watches, and what is piped to nodes. A read that waits for a version gives its place back.

use super::{Layer, Next, Outcome, Passage, refused};
use crate::metrics::Metrics;
use crate::shares::{Share, Shares};
use crate::{Asked, Limits};
use futures_util::future::BoxFuture;
use holdfast_core::Refusal;
use holdfast_core::authz::User;
use holdfast_core::refusal::Plenty;
use holdfast_core::request::Verb;
use std::sync::Arc;

/// How many requests may wait for what is yet to come.
const WAITING_MAX: u64 = 4096;

pub struct FlowControl {
    metrics: Arc<Metrics>,
    reading: Shares,
    mutating: Shares,
    waiting: Shares,
}

/// Which places a call needs.
enum Needs {
    Nothing,
    Reading,
    Mutating,
}

impl FlowControl {
    /// The seed is drawn by the engine's clock, so that nothing here is random where that is not.
    pub fn new(limits: Limits, metrics: Arc<Metrics>, seed: u64) -> FlowControl {
        FlowControl {
            metrics,
            reading: Shares::seeded(limits.reading_max.into(), seed),
            mutating: Shares::seeded(limits.mutating_max.into(), seed),
            waiting: Shares::seeded(WAITING_MAX, seed),
        }
    }

    /// The same places, for the door of a fork: it has none of its own.
    pub fn beside(&self, metrics: Arc<Metrics>) -> FlowControl {
        let FlowControl { reading, mutating, waiting, .. } = self;
        FlowControl { metrics, reading: reading.clone(), mutating: mutating.clone(), waiting: waiting.clone() }
    }

    /// How many requests read and how many write at this moment.
    pub fn in_progress(&self) -> (u64, u64) {
        (self.reading.taken(), self.mutating.taken())
    }

    /// A place among those who wait.
    pub fn wait(&self, user: &User) -> Result<Option<Share>, Refusal> {
        let place = self.waiting.take(user, 1);
        if place.is_none() && !user.is_privileged() { Err(too_many()) } else { Ok(place) }
    }
}

impl Layer for Arc<FlowControl> {
    fn call<'a>(&'a self, passage: &'a mut Passage, next: Next<'a>) -> BoxFuture<'a, Outcome> {
        let places = match needs(&passage.asked) {
            Needs::Reading if !passage.own => &self.reading,
            Needs::Mutating if !passage.own => &self.mutating,
            _ => return next.call(passage),
        };
        passage.place = places.take(&passage.user, 1);
        // As in Kubernetes: who may do everything must be able to do it when the server is busy.
        if passage.place.is_none() && !passage.user.is_privileged() {
            self.metrics.rejected();
            return refused(too_many());
        }
        next.call(passage)
    }
}

fn needs(asked: &Asked) -> Needs {
    let (verb, subresource) = match asked {
        Asked::Named(named) => (named.verb.as_str(), named.path.subresource.as_str()),
        Asked::Found(request) => (request.verb.as_str(), request.target.subresource.as_deref().unwrap_or("")),
        Asked::Elsewhere { verb, path } => (*verb, path.subresource.as_str()),
        Asked::Path { verb, .. } | Asked::Everything { verb, .. } => (*verb, ""),
    };
    if verb == Verb::Watch.as_str() || matches!(subresource, "log" | "exec" | "attach" | "portforward" | "proxy") {
        Needs::Nothing
    } else if matches!(verb, "get" | "head" | "list" | "options") {
        Needs::Reading
    } else {
        Needs::Mutating
    }
}

fn too_many() -> Refusal {
    Refusal::TooManyRequests { what: Plenty::Requests, retry_after_seconds: 1 }
}
