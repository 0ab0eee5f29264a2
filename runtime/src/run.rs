//! The loop that drives controllers: one task holds the world and plans, others carry out.

use crate::metrics::{Metrics, QueueMetrics};
use crate::rates::Rates;
use crate::slots::Slots;
use crate::writer::EventWriter;
use crate::{Act, Feed, News, apart, heavy};
use futures_util::FutureExt;
use holdfast_value::Value;
use holdfast_world::{
    Action, Actor, Back, Controller, Driver, Key, Note, Outcome, Plan, Refusal, Refused, Resource, Stamp, Step, Taken,
    Task, Time, Written,
};
use jiff::Timestamp;
use std::collections::HashMap;
use std::num::NonZero;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::task::{JoinError, JoinSet};

/// How much work plans are before news is looked at again: that of some two hundred small ones, or of one that takes
/// longer.
const WORK_AT_ONCE: u64 = 4096;
/// How many answers are taken in before plans are made again.
const ANSWERS_AT_ONCE: usize = 1024;
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
    pace: Pace,
    /// Where actions are carried out, where that is not where plans are made.
    apart: Option<Handle>,
    /// When it was last logged that a controller may not do something to objects of a resource.
    forbidden: HashMap<(usize, Resource), Time>,
}

/// When an action may begin.
#[derive(Clone)]
struct Pace {
    slots: Arc<Slots>,
    rates: Arc<Rates>,
    metrics: Arc<Metrics>,
}

/// Who a controller is to others.
struct Crew {
    name: &'static str,
    queue: &'static str,
    component: &'static str,
    actor: Actor,
    counted: QueueMetrics,
}

/// Whose keys are planned again though whoever carried their plans out has panicked.
type Lost = HashMap<tokio::task::Id, (usize, Key)>;

/// What is under way.
struct Going {
    carrying: JoinSet<Carried>,
    lost: Lost,
    /// Plans that are made beside the others.
    beside: JoinSet<Back>,
    /// How many there are at most: half of the processors are for others.
    beside_max: usize,
    /// What came of plans whose controllers make another one beside the others.
    waiting: Vec<Carried>,
    events: EventWriter,
    /// Where work is done that is no planning.
    hands: Handle,
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
        let rates = Arc::<Rates>::default();
        let pace = Pace { slots: Slots::new(ACTIONS_MAX, rates.clone()), rates, metrics: metrics.clone() };
        let (driver, crew, forbidden) = (Driver::new(), Vec::new(), HashMap::new());
        Runtime { driver, crew, act, clock, metrics, pace, apart: None, forbidden }
    }

    /// Writes no faster for a namespace than these allow, together with whoever else has them.
    pub fn rated(mut self, rates: Arc<Rates>) -> Runtime {
        self.pace.slots = Slots::new(ACTIONS_MAX, rates.clone());
        self.pace.rates = rates;
        self
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

    /// The same, with plans made on a thread of their own: however long they take, those who share this one go on. The
    /// feed knows no sockets.
    pub async fn run_apart(mut self, feed: impl Feed) {
        self.apart = Some(Handle::current());
        apart("controllers", move || self.run_until(feed, std::future::pending())).await;
    }

    /// Runs until it is asked to end; then what is being carried out is carried out to its end, and nothing is begun.
    pub async fn run_until(mut self, mut feed: impl Feed, end: impl Future<Output = ()>) {
        let mut end = std::pin::pin!(end);
        let mut ending = false;
        let hands = self.apart.clone().unwrap_or_else(Handle::current);
        let mut going = Going {
            carrying: JoinSet::new(),
            lost: HashMap::new(),
            beside: JoinSet::new(),
            beside_max: std::thread::available_parallelism().map_or(1, NonZero::get).div_ceil(2),
            waiting: Vec::new(),
            events: EventWriter::start(self.act.clone(), &hands),
            hands,
        };
        while !(ending && going.is_empty()) {
            if !ending {
                self.plan_some(&mut going);
            }
            for (member, crew) in self.crew.iter_mut().enumerate() {
                crew.counted.note(self.driver.queue(member));
            }
            let now = self.now();
            let ready = !ending && self.driver.can_take(going.places(), now);
            let sleep = if ready { Duration::ZERO } else { self.until_next() };
            tokio::select! {
                Some(carried) = going.carrying.join_next_with_id() => self.finish(carried, &mut going),
                Some(back) = going.beside.join_next() => self.take_back(back, &mut going),
                news = feed.next() => self.hear(news, &mut feed),
                () = &mut end, if !ending => ending = true,
                () = tokio::time::sleep(sleep) => {}
            }
            // Whatever has come meanwhile is taken in before anything is planned: who has few keys does not wait for one
            // plan of another with each of its answers.
            for _ in 0..ANSWERS_AT_ONCE {
                let Some(carried) = going.carrying.try_join_next_with_id() else { break };
                self.finish(carried, &mut going);
            }
            while let Some(back) = going.beside.try_join_next() {
                self.take_back(back, &mut going);
            }
            if let Some(news) = feed.next().now_or_never() {
                self.hear(news, &mut feed);
            }
        }
    }

    /// Makes plans up to some work, and has them carried out.
    fn plan_some(&mut self, going: &mut Going) {
        let mut work = 0;
        while work < WORK_AT_ONCE {
            let clock = self.clock.clone();
            match self.driver.take_beside(|| clock.stamp(), going.places()) {
                Some(Taken::Task(task)) => {
                    work += task.work;
                    self.begin(task, going);
                }
                Some(Taken::Beside(beside)) => _ = going.beside.spawn_blocking_on(|| beside.run(), &going.hands),
                None => break,
            }
        }
    }

    /// A controller is back from a plan that was made beside the others.
    fn take_back(&mut self, back: Result<Back, JoinError>, going: &mut Going) {
        let back = match back {
            Ok(back) => back,
            // Plans are caught where they panic, and nobody else ends such work: the process does.
            Err(fault) => return tracing::error!(%fault, "a controller is lost"),
        };
        let task = self.driver.take_back(back, self.now());
        if let Some(task) = task {
            self.begin(task, going);
        }
        for carried in std::mem::take(&mut going.waiting) {
            self.conclude(carried, going);
        }
    }

    /// Has a plan carried out.
    fn begin(&mut self, task: Task, going: &mut Going) {
        let (member, key) = (task.member, task.key);
        let Crew { name, queue, component, actor, .. } = &self.crew[member];
        self.metrics.waited(queue, task.waited_ms);
        if task.plan.unready && !task.plan.left.is_empty() {
            tracing::debug!(controller = name, %key, left = ?task.plan.left, "a plan is not ready");
        }
        going.events.tell_all(actor, component, &task.plan.notes, self.now());
        if task.plan.is_idle() {
            let Plan { again, unready, .. } = task.plan;
            let outcome = Outcome { failed: unready, again, ..Outcome::default() };
            return self.driver.done(member, key, outcome, self.now());
        }
        self.carry_out(going, (member, key), task.plan, None);
    }

    fn hear(&mut self, news: Vec<News>, feed: &mut impl Feed) {
        let now = self.now();
        let is_heavy = news.iter().any(News::is_heavy);
        let driver = &mut self.driver;
        let tell = move || news.into_iter().for_each(|news| news.tell(driver, now));
        if is_heavy {
            heavy(tell)
        } else {
            tell()
        }
        self.driver.settle();
        feed.look(self.driver.sight());
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

    fn carry_out(&self, going: &mut Going, (member, key): (usize, Key), plan: Plan, before: Option<Carried>) {
        let is_last = before.is_some();
        let carried = before.unwrap_or_else(|| Carried {
            member,
            key: key.clone(),
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
        let (act, actor, pace) = (self.act.clone(), self.crew[member].actor.clone(), self.pace.clone());
        let work = carry_out(act, actor, pace, plan, carried);
        let id = going.carrying.spawn_on(work, &going.hands).id();
        going.lost.insert(id, (member, key));
    }

    /// Takes in what came of a plan.
    fn finish(&mut self, carried: Result<(tokio::task::Id, Carried), JoinError>, going: &mut Going) {
        let id = carried.as_ref().map_or_else(JoinError::id, |(id, _)| *id);
        let known = going.lost.remove(&id);
        match carried {
            Ok((_, carried)) => self.conclude(carried, going),
            // Whoever acts has panicked: the key is planned again.
            Err(_) => {
                if let Some((member, key)) = known {
                    self.driver.done(member, key, Outcome { failed: true, ..Outcome::default() }, self.now());
                }
            }
        }
    }

    fn conclude(&mut self, mut carried: Carried, going: &mut Going) {
        if carried.is_for_controller() && self.driver.is_away(carried.member) {
            return going.waiting.push(carried);
        }
        let now = self.now();
        let (member, key) = (carried.member, carried.key.clone());
        let Crew { name, queue, component, actor, .. } = &self.crew[member];
        going.events.tell_all(actor, component, &std::mem::take(&mut carried.told), now);
        if carried.is_to_be_told() {
            for Refused { action, refusal } in &carried.refused {
                tracing::debug!(controller = name, %key, ?action.resource, action = %action.key, refusal = %refusal.message,
                    "an action was refused");
            }
            let after = self.driver.refused(member, &key, &carried.refused, self.clock.stamp());
            // What people are told by an Event need not be in the log, too.
            if after.notes.is_empty() {
                tell_of_forbidden(name, member, &carried.refused, &mut self.forbidden, now);
            }
            going.events.tell_all(actor, component, &after.notes, now);
            return self.carry_out(going, (member, key), after, Some(carried));
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

impl Carried {
    /// Whether the controller is to say what it makes of refusals.
    fn is_to_be_told(&self) -> bool {
        !self.refused.is_empty() && !self.is_last
    }

    fn is_for_controller(&self) -> bool {
        self.is_to_be_told() || !self.answers.is_empty() || !self.reviews.is_empty()
    }
}

impl Going {
    fn is_empty(&self) -> bool {
        self.carrying.is_empty() && self.beside.is_empty()
    }

    /// How many more plans may be made beside the others.
    fn places(&self) -> usize {
        self.beside_max.saturating_sub(self.beside.len())
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
async fn carry_out(act: Arc<dyn Act>, actor: Actor, pace: Pace, plan: Plan, mut carried: Carried) -> Carried {
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
        for (action, done) in carry_out_step(&act, &actor, &pace, &carried.key, step).await {
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
async fn carry_out_step(act: &Arc<dyn Act>, actor: &Actor, pace: &Pace, key: &Key, step: Step) -> Vec<Tried> {
    if let [action] = step.as_slice() {
        let done = one(act, actor, pace, key, action).await;
        return step.into_iter().zip([done]).collect();
    }
    let mut trying = JoinSet::new();
    let count = step.len();
    for (place, action) in step.into_iter().enumerate() {
        let (act, actor, pace, key) = (act.clone(), actor.clone(), pace.clone(), key.clone());
        trying.spawn(async move {
            let done = one(&act, &actor, &pace, &key, &action).await;
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

/// Carries out an action of the plan for a key, when it is the turn of the namespace for which that is done.
async fn one(
    act: &Arc<dyn Act>,
    actor: &Actor,
    pace: &Pace,
    key: &Key,
    action: &Action,
) -> Result<crate::Done, Refusal> {
    let namespace = if action.key.namespace.is_empty() { &key.namespace } else { &action.key.namespace };
    let expected = action.json_bytes();
    let wait = pace.rates.charge(namespace, expected);
    if !wait.is_zero() {
        pace.metrics.rated();
        tokio::time::sleep(wait).await;
    }
    let _slot = pace.slots.take(namespace).await;
    let done = act.act(actor, action).await;
    // A small patch of a large object writes all of it.
    if let Ok(done) = &done {
        pace.rates.charge(namespace, done.bytes.saturating_sub(expected));
    }
    done
}
