//! The flow control layer limits the requests in progress, so that one user cannot block the other users.
//!
//! With priority and fairness, requests wait for their turn. Without it, a request over the limit is refused.
//! Long-running requests hold no place, except that with priority and fairness a watch holds a place while it begins.
//! A read that waits for a future version releases its place. The server's own requests need no place, because the
//! plans of the server's work limit how many requests they contain.

use super::authorization::asked_for;
use super::stages::{CallParts, Dispatched, Identified};
use super::{Layer, Next, Outcome, RequestContext, refused};
use crate::fairness::{Caller, Entered, Fairness, FlowMeasures, Seat, Wanted};
use crate::metrics::Metrics;
use crate::shares::{Share, Shares};
use crate::{CallSubject, Limits, ResourceRequest, Service};
use futures_util::future::BoxFuture;
use holdfast_audit::Spent;
use holdfast_core::Refusal;
use holdfast_core::authz::User;
use holdfast_core::flowcontrol::Work;
use holdfast_core::kinds::{KindId, known};
use holdfast_core::refusal::Plenty;
use holdfast_core::request::Verb;
use holdfast_core::state::State;
use std::sync::Arc;
use std::time::Instant;

/// The maximum number of requests that wait for a future version.
const WAITING_MAX: u64 = 4096;
/// The cost of reading one object of the past. All costs are measured in objects of a list: a cost of 2 is the cost of
/// a list of two objects.
const READS_OF_PAST: usize = 2;
/// The cost of a discovery or OpenAPI document about the past, in objects of a list.
const PAST_DOCUMENT: usize = 500;
/// The cost of an access review about the past, in objects of a list.
const PAST_REVIEW: usize = 300;
/// The number of missed events that cost a watch as much as one object. The number is high, because most events do not
/// concern the watcher.
const EVENTS_AN_OBJECT: usize = 64;

pub struct FlowControl {
    metrics: Arc<Metrics>,
    way: Way,
    waiting: Shares,
}

/// How requests get places among the requests in progress.
#[derive(Clone)]
enum Way {
    Fairness(Arc<Fairness>),
    InFlight { reading: Shares, mutating: Shares },
}

/// A request's place among the requests in progress. The place is freed when this value is dropped.
pub enum RequestSlot {
    Seat(Seat),
    Share(Share),
}

/// The kind of place that a call needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Needs {
    /// The call needs no place, because its client decides how long the call lasts.
    Nothing,
    Reading,
    Mutating,
    Watching,
}

impl FlowControl {
    /// The caller takes `seed` from the engine's clock, so that a simulation stays reproducible.
    pub fn new(limits: Limits, fairness: Option<Arc<Fairness>>, metrics: Arc<Metrics>, seed: u64) -> FlowControl {
        let way = match fairness {
            Some(fairness) => Way::Fairness(fairness),
            None => Way::InFlight {
                reading: Shares::seeded(limits.reading_max.into(), seed),
                mutating: Shares::seeded(limits.mutating_max.into(), seed),
            },
        };
        FlowControl { metrics, way, waiting: Shares::seeded(WAITING_MAX, seed) }
    }

    /// The flow control of a fork's service. It shares the places of this service.
    pub fn beside(&self, metrics: Arc<Metrics>) -> FlowControl {
        FlowControl { metrics, way: self.way.clone(), waiting: self.waiting.clone() }
    }

    pub fn fairness(&self) -> Option<&Arc<Fairness>> {
        match &self.way {
            Way::Fairness(fairness) => Some(fairness),
            Way::InFlight { .. } => None,
        }
    }

    /// The current numbers of reading and of writing requests that have places.
    pub fn in_progress(&self) -> (u64, u64) {
        match &self.way {
            Way::Fairness(fairness) => fairness.in_progress(),
            Way::InFlight { reading, mutating } => (reading.taken(), mutating.taken()),
        }
    }

    /// Takes a place among the requests that wait for a future version.
    pub fn wait(&self, user: &User) -> Result<Option<Share>, Refusal> {
        let place = self.waiting.take(user, 1);
        if place.is_none() && !user.is_privileged() { Err(too_many()) } else { Ok(place) }
    }
}

impl Layer for Arc<FlowControl> {
    type Takes = Identified;
    type Gives = Dispatched;

    fn call<'a>(
        &'a self,
        context: &'a mut RequestContext,
        call: Identified,
        next: Next<'a, Dispatched>,
    ) -> BoxFuture<'a, Outcome> {
        let Identified { parts, own } = call;
        let needs = needs(&parts.subject);
        if own || needs == Needs::Nothing {
            return next.call(context, Dispatched { parts });
        }
        let places = match (&self.way, needs) {
            (Way::Fairness(fairness), _) => return self.in_turn(fairness, context, parts, next),
            (Way::InFlight { reading, .. }, Needs::Reading) => reading,
            (Way::InFlight { mutating, .. }, Needs::Mutating) => mutating,
            (Way::InFlight { .. }, Needs::Watching | Needs::Nothing) => {
                return next.call(context, Dispatched { parts });
            }
        };
        context.place = places.take(&parts.user, 1).map(RequestSlot::Share);
        // As in Kubernetes, a privileged user is served even if the server is busy.
        if context.place.is_none() && !parts.user.is_privileged() {
            let refusal = too_many();
            self.metrics.rejected(&refusal);
            return refused(refusal);
        }
        next.call(context, Dispatched { parts })
    }
}

impl FlowControl {
    fn in_turn<'a>(
        &'a self,
        fairness: &Arc<Fairness>,
        context: &'a mut RequestContext,
        parts: Box<CallParts>,
        next: Next<'a, Dispatched>,
    ) -> BoxFuture<'a, Outcome> {
        let state = next.service().engine().snapshot();
        // If the kind is no longer served, a later layer refuses the call, which costs nothing.
        let Some(attributes) = asked_for(&state, &parts.subject) else {
            return next.call(context, Dispatched { parts });
        };
        let flow = fairness.flow(&parts.user, &attributes);
        let caller = caller(&parts);
        let is_past = parts.at.is_some();
        let estimate = |seats_max, measures: &FlowMeasures| {
            estimate(next.service(), &state, (&parts.subject, is_past), seats_max, measures)
        };
        let entered = fairness.enter(flow.clone(), &attributes, caller, estimate);
        context.record.flow = Some(flow);
        match entered {
            Entered::Seated(seat) => {
                context.place = Some(RequestSlot::Seat(seat));
                next.call(context, Dispatched { parts })
            }
            Entered::Refused(refusal) => {
                self.metrics.rejected(&refusal);
                refused(refusal)
            }
            Entered::Waiting(waiting) => Box::pin(async move {
                let began = Instant::now();
                let seat = waiting.turn().await;
                if let Some(trail) = &mut context.trail {
                    trail.spent(Spent::Queue, began.elapsed());
                }
                match seat {
                    Ok(seat) => context.place = Some(RequestSlot::Seat(seat)),
                    Err(refusal) => {
                        self.metrics.rejected(&refusal);
                        return Err(refusal);
                    }
                }
                next.call(context, Dispatched { parts }).await
            }),
        }
    }
}

/// The call in the form that dumps of the requests in progress show.
fn caller(parts: &CallParts) -> Caller {
    let (verb, asked) = match &parts.subject {
        CallSubject::Named(named) => (named.verb.as_str(), Wanted::Resource(named.path.clone())),
        CallSubject::Elsewhere { verb, path } => (*verb, Wanted::Resource(path.clone())),
        CallSubject::Found(request) => (request.verb.as_str(), Wanted::Path(String::new())),
        CallSubject::Path { verb, path } | CallSubject::Everything { verb, path } => {
            (*verb, Wanted::Path(path.clone()))
        }
    };
    Caller { user: parts.user.clone(), verb, asked }
}

/// The estimated cost of a call. It depends on the number of objects in a list, the number of watchers that a write
/// notifies, and the reads of the past.
fn estimate(
    service: &Service,
    state: &State,
    (asked, is_past): (&CallSubject, bool),
    seats_max: u32,
    measures: &FlowMeasures,
) -> Work {
    let CallSubject::Named(named) = asked else {
        return if is_past { Work::list(PAST_DOCUMENT, seats_max) } else { Work::LEAST };
    };
    let path = &named.path;
    let Some((kind, _)) = state.registry.find(&path.group, &path.version, &path.resource) else { return Work::LEAST };
    if !state.kind(kind).stored {
        return if is_past { Work::list(PAST_REVIEW, seats_max) } else { Work::LEAST };
    }
    if let Some(work) = reading(state, kind, (named, is_past), seats_max) {
        return work;
    }
    match named.verb {
        Verb::Create | Verb::Update | Verb::Patch | Verb::Delete | Verb::DeleteCollection => {
            let of_account = path.resource == known::SERVICE_ACCOUNT.resource && path.group.is_empty();
            if of_account && path.subresource == "token" {
                return Work::LEAST;
            }
            let namespace = path.within.then_some(path.namespace.as_str());
            let watchers = service.engine().of(kind).hub().watchers_of(kind, namespace, &path.name);
            measures.watched(watchers);
            Work::write(watchers, seats_max)
        }
        _ => Work::LEAST,
    }
}

/// The cost of reading the present or the past; `None` for a write to the present.
fn reading(state: &State, kind: KindId, (named, is_past): (&ResourceRequest, bool), seats_max: u32) -> Option<Work> {
    let path = &named.path;
    Some(match named.verb {
        // A dry run in the past is judged on the whole state of that version.
        Verb::Create | Verb::Update | Verb::Patch | Verb::Delete if is_past => Work::list(usize::MAX, seats_max),
        Verb::Create | Verb::Update | Verb::Patch | Verb::Delete | Verb::DeleteCollection => return None,
        Verb::Watch if !begins_with_all(named) => match named.options.resource_version.as_deref().map(str::parse) {
            Some(Ok(version)) => Work::list(behind(state, version) / EVENTS_AN_OBJECT, seats_max),
            _ => Work::LEAST,
        },
        Verb::List | Verb::Watch if named.name().is_empty() => {
            let prefix = if path.within { format!("{}/", path.namespace) } else { String::new() };
            let reads = if is_past || named.at.is_some() || is_exact(named) { READS_OF_PAST } else { 1 };
            let count = state.count_of(kind, &prefix, None).saturating_mul(reads);
            let options = &named.options;
            let selects = |selector: &Option<String>| selector.as_ref().is_some_and(|text| !text.is_empty());
            let all = selects(&options.label_selector) || selects(&options.field_selector);
            let page = options.limit.filter(|limit| *limit > 0 && !all);
            let page = page.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
            Work::list(count.min(page), seats_max)
        }
        _ => Work::LEAST,
    })
}

/// The number of events by which a watch that begins at this version is behind.
fn behind(state: &State, version: u64) -> usize {
    usize::try_from(state.offset.0.saturating_sub(version)).unwrap_or(usize::MAX)
}

/// Whether a list requests an exact version, which may be in the past.
fn is_exact(named: &ResourceRequest) -> bool {
    named.options.resource_version_match.as_deref() == Some("Exact")
}

/// Whether a watch begins with the current objects.
fn begins_with_all(named: &ResourceRequest) -> bool {
    let from_now = matches!(named.options.resource_version.as_deref(), None | Some("" | "0"));
    named.options.send_initial_events.unwrap_or(from_now)
}

fn needs(asked: &CallSubject) -> Needs {
    let (verb, subresource) = match asked {
        CallSubject::Named(named) => (named.verb.as_str(), named.path.subresource.as_str()),
        CallSubject::Found(request) => (request.verb.as_str(), request.target.subresource.as_deref().unwrap_or("")),
        CallSubject::Elsewhere { verb, path } => (*verb, path.subresource.as_str()),
        CallSubject::Path { verb, path } if path.starts_with("/debug/pprof/") => (*verb, "proxy"),
        CallSubject::Path { verb, .. } | CallSubject::Everything { verb, .. } => (*verb, ""),
    };
    if verb == "proxy" || matches!(subresource, "log" | "exec" | "attach" | "portforward" | "proxy") {
        Needs::Nothing
    } else if verb == Verb::Watch.as_str() {
        Needs::Watching
    } else if matches!(verb, "get" | "head" | "list" | "options") {
        Needs::Reading
    } else {
        Needs::Mutating
    }
}

fn too_many() -> Refusal {
    Refusal::TooManyRequests { what: Plenty::Requests, retry_after_seconds: 1 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_core::event::Offset;
    use holdfast_core::kinds::registry;
    use holdfast_core::request::{Body, Options};

    #[test]
    fn reads_of_the_past_are_paid_for() {
        let mut state = State::new(Arc::new(registry().clone()));
        state.offset = Offset(100_000);
        let (kind, _) = state.registry.find("", "v1", "pods").expect("a built-in kind");
        let seats = |verb: Verb, version: Option<&str>, is_past: bool| {
            let options = Options { resource_version: version.map(str::to_owned), ..Options::default() };
            let named = ResourceRequest { verb, path: Arc::default(), options, body: Body::default(), at: None };
            reading(&state, kind, (&named, is_past), 10).map(|work| work.seats())
        };
        for (verb, version, is_past, expected) in [
            (Verb::Watch, Some("99000"), false, Some(1)),
            (Verb::Watch, Some("90000"), false, Some(2)),
            (Verb::Watch, Some("1"), false, Some(10)),
            (Verb::Watch, Some("200000"), false, Some(1)),
            (Verb::Watch, Some("?"), false, Some(1)),
            (Verb::List, None, true, Some(1)),
            (Verb::Create, None, true, Some(10)),
            (Verb::Create, None, false, None),
            (Verb::Get, None, true, Some(1)),
        ] {
            assert_eq!(seats(verb, version, is_past), expected, "{verb:?} {version:?} {is_past}");
        }
    }
}
