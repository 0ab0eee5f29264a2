//! Clients call the service, the writer commits, and the oracles check the answers and the events that have become
//! durable.

use super::World;
use crate::act::Act;
use crate::coverage::{Mark, saw, saw_accepted, saw_refused};
use crate::custom;
use crate::disk::Died;
use crate::door::{self, DoorReply};
use crate::oracle::{self, CheckResult, Instant, Window, ensure};
use crate::server::PLACES;
use crate::shape::Sort;
use crate::workload::{self, Order};
use holdfast_core::Refusal;
use holdfast_core::event::Offset;
use holdfast_core::pipeline::{self, Basis};
use holdfast_core::refusal::Internal;
use holdfast_core::state::State;
use holdfast_engine::commit::Rejection;
use holdfast_engine::numbering::numbered;
use holdfast_engine::{Clock, LogRead};
use holdfast_service::{Call, Reply};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// A request that is in progress.
pub struct Pending {
    pub id: String,
    pub from: u64,
    since: usize,
    began: Instant,
    way: RequestRoute,
    /// The newest version when the request was first polled, which is when the service authorizes it; `None` before the
    /// first poll.
    judged_at: Option<u64>,
    /// Whether the engine spawns further futures to carry out the request.
    mass: bool,
    future: Pin<Box<dyn Future<Output = ReplyOutcome>>>,
}

/// How a request reaches the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RequestRoute {
    Door,
    /// Through the service, as a request of the server itself.
    OwnPlan,
    /// Directly to the writer, past the service. It is a decision that another thread would have made on an older
    /// snapshot.
    Behind,
}

pub enum ReplyOutcome {
    Told(DoorReply),
    Count(u64),
    /// A reply that no request may get. The text describes it.
    Nonsense(String),
    Refusal(Refusal),
    Rejection(Rejection),
}

impl World {
    /// Calls the service for a client that has read the state `seen`. The service authorizes the request when it is
    /// first polled.
    pub fn ask(&mut self, order: Order, seen: &State) {
        let request = order.request.clone();
        let call = match order.through {
            None => door::call(seen, request),
            Some(namespace) => door::call_through(seen, request, namespace),
        };
        self.ask_at_door(order, RequestRoute::Door, call);
    }

    /// Lets the server carry out a step of its own plans.
    pub fn run_housekeeping(&mut self, order: Order) {
        let call = Call::own(order.request.clone());
        self.ask_at_door(order, RequestRoute::OwnPlan, call);
    }

    fn ask_at_door(&mut self, order: Order, way: RequestRoute, call: Call) {
        self.note(|_| order.describe());
        let service = self.server.service.clone();
        let future = Box::pin(async move { ReplyOutcome::at_door(service.call(call).await.reply) });
        self.enlist(order, self.server.engine.snapshot().offset.0, way, future);
    }

    /// Passes a decision directly to the writer. The snapshot on which it was made may be stale.
    pub fn ask_behind(&mut self, order: Order, seen: Arc<State>) -> CheckResult {
        if order.request.options.dry_run {
            self.ask(order, &seen);
            return self.poll(self.pending.len() - 1);
        }
        self.note(|_| format!("{} on version {}", order.describe(), seen.offset));
        let engine = self.server.engine.clone();
        if matches!(order.act, Act::DeleteAll { .. }) {
            let request = order.request.clone();
            let future = Box::pin(async move {
                let deleted = engine.delete_collection(&request).await;
                deleted.map_or_else(ReplyOutcome::Refusal, |deleted| {
                    ReplyOutcome::Count(deleted.page.entries.len() as u64)
                })
            });
            self.enlist(order, self.server.engine.snapshot().offset.0, RequestRoute::Behind, future);
            return self.poll(self.pending.len() - 1);
        }
        let stamp = self.clock.stamp();
        let window = Window { from: seen.offset.0, to: seen.offset.0, trouble: false, full: false };
        let basis = Basis { state: &seen, settings: engine.settings(), chain: &engine.authorizers() };
        match pipeline::decide(basis, &order.request, stamp) {
            Err(refusal) => {
                self.commands += 1;
                saw_refused(&refusal);
                oracle::check_refusal(&self.twin, &order, &refusal, window)
                    .map_err(|why| format!("{why}\n  asked by {}", order.describe()))
            }
            Ok(decision) => {
                let request = order.request.clone();
                let state = seen.clone();
                let future = Box::pin(async move {
                    let submitted = engine.submit(&state, &request, decision, stamp).await;
                    submitted
                        .map_or_else(ReplyOutcome::Rejection, |reply| ReplyOutcome::Told(DoorReply::by_engine(reply)))
                });
                self.enlist(order, seen.offset.0, RequestRoute::Behind, future);
                Ok(())
            }
        }
    }

    fn enlist(
        &mut self,
        order: Order,
        from: u64,
        way: RequestRoute,
        future: Pin<Box<dyn Future<Output = ReplyOutcome>>>,
    ) {
        self.commands += 1;
        let id = order.request.id.clone();
        let mass = matches!(order.act, Act::DeleteAll { .. });
        self.orders.insert(id.clone(), order);
        let began = self.history.now();
        self.pending.push(Pending { id, from, since: self.step, began, way, judged_at: None, mass, future });
    }

    /// Polls a request of a client. The first poll makes the decision.
    pub fn poll(&mut self, at: usize) -> CheckResult {
        let newest = self.server.engine.snapshot().offset.0;
        let pending = &mut self.pending[at];
        pending.judged_at.get_or_insert(newest);
        let polled = match pending.mass {
            true => self.server.drive(&mut pending.future),
            false => pending.future.as_mut().poll(&mut Context::from_waker(&self.fuse.waker())),
        };
        match polled {
            Poll::Pending => {
                self.note(|world| format!("{} waits", world.pending[at].id));
                Ok(())
            }
            Poll::Ready(outcome) => {
                let pending = self.pending.swap_remove(at);
                let to = self.server.engine.snapshot().offset.0;
                let trouble = self.last_trouble >= pending.since || !self.disk.is_healthy();
                self.judge(&pending, &outcome, to, trouble)
            }
        }
    }

    /// The requests whose answers were ready when the server crashed, with these answers. All other requests get no
    /// answer.
    pub fn last_answers(&mut self) -> Vec<(Pending, ReplyOutcome)> {
        let mut answered = Vec::new();
        for mut pending in std::mem::take(&mut self.pending) {
            // If the service has not authorized a request yet, the request gets no answer.
            if pending.mass || pending.judged_at.is_none() {
                continue;
            }
            let polled = pending.future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            match polled {
                Poll::Ready(
                    ReplyOutcome::Refusal(Refusal::Internal(_)) | ReplyOutcome::Rejection(Rejection::Failed(_)),
                ) => {}
                Poll::Ready(outcome) => answered.push((pending, outcome)),
                Poll::Pending => {}
            }
        }
        answered
    }

    /// Checks that the events of the log explain an answer.
    pub fn judge(&mut self, pending: &Pending, outcome: &ReplyOutcome, to: u64, trouble: bool) -> CheckResult {
        let Pending { id, from, way, .. } = pending;
        let full = trouble && self.last_full >= pending.since;
        let window = Window { from: *from, to, trouble, full };
        self.note(|_| format!("{id} is told: {}", told(outcome)));
        // After an internal error, the write may or may not be durable. After any other refusal, it must never become
        // durable.
        let refused = match outcome {
            ReplyOutcome::Refusal(refusal) => !matches!(refusal, Refusal::Internal(_)) && !pending.mass,
            ReplyOutcome::Rejection(rejection) => !matches!(rejection, Rejection::Failed(_)),
            ReplyOutcome::Told(_) | ReplyOutcome::Count(_) | ReplyOutcome::Nonsense(_) => false,
        };
        if refused {
            let early = self.twin.of_request(id).first();
            ensure(early.is_none(), || format!("event {early:?} comes of {id}, which was refused"))?;
            self.refused.insert(id.clone());
        }
        let order = &self.orders[id];
        let blame = |why: String| format!("{why}\n  asked by {}", order.describe());
        if self.judge_at_door(pending, outcome, to).map_err(blame)? {
            return Ok(());
        }
        let order = &self.orders[id];
        let verdict = match outcome {
            ReplyOutcome::Told(told) => {
                self.told = self.told.max(self.twin.of_request(id).last().copied().unwrap_or(0));
                oracle::check_reply(&self.twin, order, told, window)
            }
            ReplyOutcome::Nonsense(why) => Err(why.clone()),
            ReplyOutcome::Count(count) => oracle::check_count(&self.twin, order, *count, window),
            ReplyOutcome::Refusal(refusal) if pending.mass => {
                let redefined = matches!(refusal, Refusal::NoSuchPath) && order.sort.is_custom();
                ensure(trouble || redefined, || format!("a mass deletion fails: {refusal:?}"))
            }
            ReplyOutcome::Refusal(refusal) => oracle::check_refusal(&self.twin, order, refusal, window),
            ReplyOutcome::Rejection(rejection) => {
                let explained = trouble || matches!(rejection, Rejection::Stale(_)) && *way == RequestRoute::Behind;
                ensure(explained, || format!("nothing explains the rejection {rejection:?}"))
            }
        };
        verdict
            .and_then(|()| self.remember_answer(pending, outcome))
            .map_err(|why| format!("{why}\n  asked by {}", self.orders[id].describe()))
    }

    /// Checks the answers that the service gives without the engine. Returns true if this check explains the answer
    /// completely.
    fn judge_at_door(&self, pending: &Pending, outcome: &ReplyOutcome, to: u64) -> Result<bool, String> {
        let refusal = match outcome {
            ReplyOutcome::Refusal(refusal) => Some(refusal),
            _ => None,
        };
        if matches!(refusal, Some(Refusal::Internal(Internal::Panicked))) {
            return Err("a request made the server panic".into());
        }
        let Some(judged_at) = pending.judged_at.filter(|_| pending.way == RequestRoute::Door) else { return Ok(false) };
        if let Some(Refusal::TooManyRequests { .. }) = refusal {
            let holds = |other: &&Pending| {
                other.way == RequestRoute::Door && other.judged_at.is_some() && other.id != pending.id
            };
            let busy = self.pending.iter().filter(holds).count();
            saw(Mark::TooManyRequests);
            return ensure(busy >= PLACES as usize / 2, || format!("{busy} requests are too many")).map(|()| true);
        }
        oracle::check_rights(&self.twin, &self.orders[&pending.id], refusal, judged_at..=to)
    }

    /// Records an answer, and checks that it agrees with all answers before it.
    fn remember_answer(&mut self, pending: &Pending, outcome: &ReplyOutcome) -> CheckResult {
        let order = &self.orders[&pending.id];
        let event = self.twin.of_request(&pending.id).last().and_then(|offset| self.twin.event(*offset));
        match outcome {
            ReplyOutcome::Told(told) => {
                saw_accepted(order, event.map(|event| event.record.replaces == 0));
                let place = event.map(|event| (event.record.resource.as_str(), event.record.key.as_str()));
                let insisted = order.act.fixed_version();
                match (told, place) {
                    (DoorReply::Object(entry), Some(place)) => {
                        self.history.wrote(place, pending.began, (entry.offset.0, Some(entry)), insisted)?;
                    }
                    // A Scale contains the version of the object, but not the object's content.
                    (DoorReply::Document(scale), Some(place)) => {
                        let version = oracle::version_of(scale);
                        self.history.wrote(place, pending.began, (version, None), insisted)?;
                    }
                    // If the decision was made on an old snapshot, the answer may show an object of that snapshot. So
                    // such an answer is not recorded as a read of the newest version.
                    (DoorReply::Object(entry), None)
                        if !order.request.options.dry_run && pending.way != RequestRoute::Behind =>
                    {
                        let place = (order.place.0.as_str(), order.place.1.as_str());
                        self.history.read(place, pending.began, entry)?;
                    }
                    _ => {}
                }
            }
            ReplyOutcome::Count(_) => saw_accepted(order, None),
            ReplyOutcome::Refusal(refusal) => saw_refused(refusal),
            ReplyOutcome::Rejection(Rejection::Stale(_)) => saw(Mark::Stale),
            ReplyOutcome::Rejection(_) | ReplyOutcome::Nonsense(_) => {}
        }
        Ok(())
    }

    /// Lets a client write through another server, which appends to the same log: at once, or just before the next
    /// batch of this server.
    pub fn append_from_other_server(&mut self) -> CheckResult {
        let seen = self.server.engine.snapshot();
        let id = self.id("o");
        let order = workload::order(&mut self.dice, &seen, &self.twin, id.clone()).of_admin();
        let is_mass = matches!(order.act, Act::DeleteAll { .. });
        if !self.disk.is_at(seen.offset) || is_mass || order.request.options.dry_run {
            return Ok(());
        }
        let stamp = self.clock.stamp();
        let engine = &self.server.engine;
        let basis = Basis { state: &seen, settings: engine.settings(), chain: &engine.authorizers() };
        let Ok(decision) = pipeline::decide(basis, &order.request, stamp) else { return Ok(()) };
        if decision.writes.is_empty() {
            return Ok(());
        }
        let records = numbered(&seen, decision.writes, &pipeline::actor(&order.request), stamp.time.as_millisecond());
        let at_once = self.dice.chance(50);
        self.note(|_| format!("{} on another server, at once: {at_once}", order.describe()));
        self.orders.insert(id, order);
        if !at_once {
            self.disk.be_overtaken(records);
            return Ok(());
        }
        self.disk.append_as_other(&records);
        saw(Mark::OthersAppended);
        self.learn()?;
        // Usually the writer reads the tail of the log soon, so that it does not read the tail only before its next
        // batch.
        if self.dice.chance(60) { self.commit(0) } else { Ok(()) }
    }

    /// Lets the writer take up to `count` decisions and commit them as one batch.
    pub fn commit(&mut self, count: usize) -> CheckResult {
        let mut batch = self.server.commands(count);
        let decisions = batch.len();
        if !self.disk.is_healthy() {
            self.last_trouble = self.step;
        }
        if self.disk.is_full() {
            self.last_full = self.step;
        }
        // The fuse may have been woken early because another request gave up its turn, when other servers had already
        // appended. So an early wake-up before the commit is ignored.
        self.fuse.early();
        let writer = &mut self.server.writer;
        match catch_unwind(AssertUnwindSafe(|| writer.commit(&mut batch))) {
            Ok(()) => {}
            Err(panic) if panic.is::<Died>() => {
                self.note(|_| format!("the server dies while it commits {decisions} decisions"));
                drop(batch);
                return self.crash();
            }
            Err(panic) => resume_unwind(panic),
        }
        if decisions > 0 {
            self.note(|world| format!("{decisions} decisions: {}", world.server.engine.snapshot().offset));
        }
        self.remember_snapshot();
        self.learn()?;
        self.fuse.early().map_or(Ok(()), Err)?;
        self.fresh()
    }

    /// Checks that readers see only durable events and whole batches, and no state older than an answer that any client
    /// has received.
    pub fn fresh(&self) -> CheckResult {
        let shown = self.server.engine.snapshot().offset.0;
        self.whole(shown)?;
        ensure(shown <= self.twin.last(), || format!("version {shown} is shown of {}", self.twin.last()))?;
        ensure(shown >= self.told, || format!("version {shown} is shown after {} was told", self.told))
    }

    /// Checks that readers see the newest batch completely, or not at all.
    fn whole(&self, last: u64) -> CheckResult {
        let (first, end) = self.disk.newest_batch();
        ensure(last < first || last >= end, || format!("half of a batch is there: {last} of {first} to {end}"))
    }

    /// Reads the events that have become durable, and checks each of them.
    pub fn learn(&mut self) -> CheckResult {
        let last = self.disk.last().map_err(|fault| fault.to_string())?.0;
        self.whole(last)?;
        if last == self.twin.last() {
            return Ok(());
        }
        let records = self.disk.scan(None, Offset(self.twin.last()), usize::MAX).map_err(|fault| fault.to_string())?;
        for record in records {
            let offset = record.offset;
            let object = serde_json::from_slice(&record.object)
                .map_err(|error| format!("event {offset} holds no JSON: {error}"))?;
            let id = &record.actor.request_id;
            oracle::check_record(&self.twin, &record, &object, self.orders.get(id))?;
            ensure(!self.refused.contains(id), || format!("event {offset} comes of a request that was refused"))?;
            let service = record.resource == Sort::Service.storage();
            let home = (record.resource == Sort::Namespace.storage() && record.is_delete()).then(|| record.key.clone());
            if record.resource == custom::DEFINITIONS {
                let what = if record.is_delete() { "goes" } else { "changes" };
                self.note(|_| format!("the definition {what} at {offset}"));
            }
            self.twin.push(record, object);
            if service {
                oracle::check_addresses(&self.twin)?;
            }
            if let Some(home) = home {
                oracle::check_gone(&self.twin, &home)?;
            }
        }
        Ok(())
    }
}

impl ReplyOutcome {
    fn at_door(reply: Result<Reply, Refusal>) -> ReplyOutcome {
        match reply.map(DoorReply::by_door) {
            Ok(Ok(told)) => ReplyOutcome::Told(told),
            Ok(Err(why)) => ReplyOutcome::Nonsense(why),
            Err(refusal) => ReplyOutcome::Refusal(refusal),
        }
    }
}

fn told(outcome: &ReplyOutcome) -> String {
    match outcome {
        ReplyOutcome::Told(told) => told.to_string(),
        ReplyOutcome::Count(count) => format!("{count} objects"),
        ReplyOutcome::Nonsense(why) => why.clone(),
        ReplyOutcome::Refusal(refusal) => format!("{refusal:?}"),
        ReplyOutcome::Rejection(rejection) => format!("{rejection:?}"),
    }
}
