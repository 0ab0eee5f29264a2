//! The loop that drives controllers: one task holds the world and plans, others carry out.

use crate::metrics::{Metrics, QueueMetrics};
use crate::writer::EventWriter;
use crate::{Act, Feed, News, heavy};
use holdfast_value::Value;
use holdfast_world::{
    Action, Actor, Controller, Driver, Key, Note, Outcome, Plan, Refusal, Refused, Resource, Stamp, Step, Time, Written,
};
use jiff::Timestamp;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;
use tokio::task::{JoinError, JoinSet};

/// How many plans are made before news is looked at again.
const PLANS_AT_ONCE: usize = 64;
/// How many actions are under way at once, of all controllers.
const ACTIONS_MAX: usize = 512;
/// How long nothing more is logged of what one controller may not do to objects of one resource.
const FORBIDDEN_MS: i64 = 60_000;
/// The longest sleep: a clock that is set is noticed after it.
const SLEEP_MAX: Duration = Duration::from_secs(3600);

/// Where time and seeds come from.
pub trait Clock: Send + Sync + 'static {
    fn stamp(&self) -> Stamp;
}

/// The clock of the machine.
#[derive(Debug, Default)]
pub struct System;

impl Clock for System {
    fn stamp(&self) -> Stamp {
        use std::hash::{BuildHasher, RandomState};
        Stamp { time: Time(Timestamp::now()), seed: RandomState::new().hash_one(0u8) }
    }
}

/// Controllers, and what they need to run.
pub struct Runtime {
    driver: Driver,
    crew: Vec<Crew>,
    act: Arc<dyn Act>,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
    permits: Arc<Semaphore>,
    /// When it was last logged that a controller may not do something to objects of a resource.
    forbidden: HashMap<(usize, Resource), Time>,
}

/// Who a controller is to others.
struct Crew {
    name: &'static str,
    queue: &'static str,
    component: &'static str,
    actor: Actor,
    counted: QueueMetrics,
}

/// A plan that was carried out, as far as it could be.
struct Carried {
    member: usize,
    key: Key,
    written: Vec<Written>,
    refused: Vec<Refused>,
    told: Vec<Note>,
    again: Option<Time>,
    since: Instant,
    /// What was asked for.
    answers: Vec<(String, Result<Value, Refusal>)>,
    reviews: Vec<(Value, Result<Value, Refusal>)>,
    unready: bool,
    /// Whether this was what a controller says of refusals, which nothing follows.
    is_last: bool,
}

impl Runtime {
    pub fn new(act: Arc<dyn Act>, clock: Arc<dyn Clock>, metrics: Arc<Metrics>) -> Runtime {
        let permits = Arc::new(Semaphore::new(ACTIONS_MAX));
        let (driver, crew, forbidden) = (Driver::new(), Vec::new(), HashMap::new());
        Runtime { driver, crew, act, clock, metrics, permits, forbidden }
    }

    /// Takes in one more controller, which works on so many keys at once and acts as this actor.
    pub fn add(&mut self, controller: Box<dyn Controller>, actor: Actor, workers: usize) {
        let (name, queue, component) = (controller.name(), controller.queue(), controller.component());
        self.metrics.runs(name, controller.manager());
        let counted = self.metrics.of_queue(queue);
        self.crew.push(Crew { name, queue, component, actor, counted });
        let back_off = controller.back_off();
        self.driver.add(controller, workers, back_off);
    }

    pub fn driver(&self) -> &Driver {
        &self.driver
    }

    /// Runs until it is dropped.
    pub async fn run(self, feed: impl Feed) {
        self.run_until(feed, std::future::pending()).await;
    }

    /// Runs until it is asked to end; then what is being carried out is carried out to its end, and nothing is begun.
    pub async fn run_until(mut self, mut feed: impl Feed, end: impl Future<Output = ()>) {
        let mut end = std::pin::pin!(end);
        let mut ending = false;
        let mut events = EventWriter::start(self.act.clone());
        let mut carrying: JoinSet<Carried> = JoinSet::new();
        let mut lost: Vec<(tokio::task::Id, usize, Key)> = Vec::new();
        while !(ending && carrying.is_empty()) {
            for _ in 0..if ending { 0 } else { PLANS_AT_ONCE } {
                let clock = self.clock.clone();
                let Some(task) = self.driver.take(|| clock.stamp()) else { break };
                let (member, key) = (task.member, task.key.clone());
                self.metrics.waited(self.crew[member].queue, task.waited_ms);
                events.tell_all(&self.crew[member].actor, self.crew[member].component, &task.plan.notes, self.now());
                if task.plan.is_idle() {
                    let Plan { again, unready, .. } = task.plan;
                    let outcome = Outcome { failed: unready, again, ..Outcome::default() };
                    self.driver.done(member, key, outcome, self.now());
                    continue;
                }
                let id = self.carry_out(&mut carrying, (member, key.clone()), task.plan, None);
                lost.push((id, member, key));
            }
            for (member, crew) in self.crew.iter_mut().enumerate() {
                crew.counted.note(self.driver.queue(member));
            }
            let ready = !ending && (0..self.driver.len()).any(|member| self.driver.can_take(member));
            let sleep = if ready { Duration::ZERO } else { self.until_next() };
            tokio::select! {
                Some(carried) = carrying.join_next_with_id(), if !carrying.is_empty() => {
                    self.finish(carried, &mut carrying, &mut lost, &mut events);
                }
                news = feed.next() => {
                    let now = self.now();
                    let is_heavy = news.iter().any(News::is_heavy);
                    let driver = &mut self.driver;
                    let tell = move || news.into_iter().for_each(|news| news.tell(driver, now));
                    if is_heavy { heavy(tell) } else { tell() }
                    self.driver.settle();
                    feed.look(self.driver.sight());
                }
                () = &mut end, if !ending => ending = true,
                () = tokio::time::sleep(sleep) => {}
            }
        }
    }

    fn now(&self) -> Time {
        self.clock.stamp().time
    }

    fn until_next(&self) -> Duration {
        let Some(next) = self.driver.next_time() else { return SLEEP_MAX };
        // A little later rather than a little too early.
        let millis = next.millis_since(self.now()).saturating_add(1);
        Duration::from_millis(u64::try_from(millis).unwrap_or(0)).min(SLEEP_MAX)
    }

    fn carry_out(
        &self,
        carrying: &mut JoinSet<Carried>,
        (member, key): (usize, Key),
        plan: Plan,
        before: Option<Carried>,
    ) -> tokio::task::Id {
        let is_last = before.is_some();
        let carried = before.unwrap_or_else(|| Carried {
            member,
            key,
            written: Vec::new(),
            refused: Vec::new(),
            told: Vec::new(),
            again: None,
            answers: Vec::new(),
            reviews: Vec::new(),
            unready: plan.unready,
            since: Instant::now(),
            is_last,
        });
        let again = carried.again.into_iter().chain(plan.again).min();
        let carried = Carried { again, is_last, ..carried };
        let (act, actor, permits) = (self.act.clone(), self.crew[member].actor.clone(), self.permits.clone());
        carrying.spawn(carry_out(act, actor, permits, plan, carried)).id()
    }

    /// Takes in what came of a plan.
    fn finish(
        &mut self,
        carried: Result<(tokio::task::Id, Carried), JoinError>,
        carrying: &mut JoinSet<Carried>,
        lost: &mut Vec<(tokio::task::Id, usize, Key)>,
        events: &mut EventWriter,
    ) {
        let now = self.now();
        let id = carried.as_ref().map_or_else(JoinError::id, |(id, _)| *id);
        let place = lost.iter().position(|(known, ..)| *known == id);
        let known = place.map(|place| lost.swap_remove(place));
        let Ok((_, mut carried)) = carried else {
            // Whoever acts has panicked: the key is planned again.
            if let Some((_, member, key)) = known {
                self.driver.done(member, key, Outcome { failed: true, ..Outcome::default() }, now);
            }
            return;
        };
        let (member, key) = (carried.member, carried.key.clone());
        let Crew { name, queue, component, actor, .. } = &self.crew[member];
        events.tell_all(actor, component, &std::mem::take(&mut carried.told), now);
        if !carried.refused.is_empty() && !carried.is_last {
            for Refused { action, refusal } in &carried.refused {
                tracing::debug!(controller = name, %key, ?action.resource, action = %action.key, refusal = %refusal.message,
                    "an action was refused");
            }
            let after = self.driver.refused(member, &key, &carried.refused, self.clock.stamp());
            // What people are told by an Event need not be in the log, too.
            if after.notes.is_empty() {
                tell_of_forbidden(name, member, &carried.refused, &mut self.forbidden, now);
            }
            events.tell_all(actor, component, &after.notes, now);
            let id = self.carry_out(carrying, (member, key.clone()), after, Some(carried));
            lost.push((id, member, key));
            return;
        }
        self.metrics.worked(queue, carried.since.elapsed());
        let Carried { written, refused, answers, reviews, unready, mut again, .. } = carried;
        for (review, answer) in reviews {
            self.driver.reviewed(member, &key, &review, answer);
            again = Some(now);
        }
        for (path, answer) in answers {
            self.driver.answered(member, &key, &path, answer);
            again = Some(now);
        }
        let failed = unready || !refused.is_empty();
        let refused = refused.iter().any(|refused| !refused.refusal.is_stale());
        self.driver.done(member, key, Outcome { written, failed, refused, again }, now);
    }
}

/// Logs what a controller has no right to do: nobody who waits for it would find out otherwise.
fn tell_of_forbidden(
    controller: &str,
    member: usize,
    refused: &[Refused],
    told: &mut HashMap<(usize, Resource), Time>,
    now: Time,
) {
    // What is to be in a namespace that goes away is refused to everybody, and nobody waits for it.
    let is_going = |refusal: &Refusal| refusal.causes.iter().any(|cause| cause == "NamespaceTerminating");
    let is_told = |refusal: &Refusal| matches!(refusal.code, 401 | 403) && !is_going(refusal);
    for Refused { action, refusal } in refused.iter().filter(|refused| is_told(&refused.refusal)) {
        let last = told.entry((member, action.resource.clone())).or_insert(Time::from_second(i64::MIN));
        if now.millis_since(*last) >= FORBIDDEN_MS {
            *last = now;
            tracing::warn!(controller, resource = %action.resource, object = %action.key, why = refusal.message,
                "a write was refused");
        }
    }
}

/// Carries out steps one after the other, up to the first with a refused action.
async fn carry_out(
    act: Arc<dyn Act>,
    actor: Actor,
    permits: Arc<Semaphore>,
    plan: Plan,
    mut carried: Carried,
) -> Carried {
    for review in plan.reviews {
        let answer = act.review(&actor, &review).await;
        carried.reviews.push((review, answer));
    }
    for path in plan.asks {
        let answer = act.ask(&actor, &path).await;
        carried.answers.push((path, answer));
    }
    for step in plan.steps {
        let mut refused = Vec::new();
        for (action, done) in carry_out_step(&act, &actor, &permits, step).await {
            match done {
                Ok(done) => {
                    let Action { resource, key, told, .. } = action;
                    carried.told.extend(told.map(|note| note.naming(&done.name)));
                    let key = Key { namespace: key.namespace, name: done.name.as_str().into() };
                    carried.written.push(Written { resource, key, came: done.came });
                }
                Err(refusal) => refused.push(Refused { action, refusal }),
            }
        }
        if !refused.is_empty() {
            carried.refused.extend(refused);
            break;
        }
    }
    carried
}

type Tried = (Action, Result<crate::Done, Refusal>);

/// Carries out the actions of a step at once; the answers are in their order.
async fn carry_out_step(act: &Arc<dyn Act>, actor: &Actor, permits: &Arc<Semaphore>, step: Step) -> Vec<Tried> {
    if let [action] = step.as_slice() {
        let done = one(act, actor, permits, action).await;
        return step.into_iter().zip([done]).collect();
    }
    let mut trying = JoinSet::new();
    let count = step.len();
    for (place, action) in step.into_iter().enumerate() {
        let (act, actor, permits) = (act.clone(), actor.clone(), permits.clone());
        trying.spawn(async move {
            let done = one(&act, &actor, &permits, &action).await;
            (place, (action, done))
        });
    }
    let mut tried: Vec<Option<Tried>> = (0..count).map(|_| None).collect();
    while let Some(done) = trying.join_next().await {
        match done {
            Ok((place, done)) => tried[place] = Some(done),
            Err(fault) => std::panic::resume_unwind(fault.into_panic()),
        }
    }
    tried.into_iter().flatten().collect()
}

async fn one(
    act: &Arc<dyn Act>,
    actor: &Actor,
    permits: &Arc<Semaphore>,
    action: &Action,
) -> Result<crate::Done, Refusal> {
    let _permit = permits.acquire().await;
    act.act(actor, action).await
}
