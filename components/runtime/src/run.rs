//! The loop that runs controllers: one task owns the world and makes plans; other tasks carry plans out.

use crate::cloud::NoCloud;
use crate::metrics::{Metrics, QueueMetrics};
use crate::rates::Rates;
use crate::slots::Slots;
use crate::writer::EventWriter;
use crate::{Act, Cloud, Feed, News, apart, heavy};
use futures_util::FutureExt;
use futures_util::future::join_all;
use holdfast_value::Value;
use holdfast_world::cloud::{Answer, Call, Fault};
use holdfast_world::{
    Action, Actor, Controller, Driver, FinishedPlan, Key, NextPlan, Note, Outcome, Plan, Refusal, Refused, Resource,
    Stamp, Step, Task, Time, Written,
};
use jiff::Timestamp;
use std::collections::HashMap;
use std::num::NonZero;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::task::{JoinError, JoinSet};

/// How much work of planning is done before news is read again: some two hundred small plans, or one larger plan.
const WORK_AT_ONCE: u64 = 4096;
/// How many results of plans are handled before more plans are made.
const ANSWERS_AT_ONCE: usize = 1024;
/// The maximum number of actions at the same time, for all controllers.
const ACTIONS_MAX: usize = 512;
/// The minimum interval between log lines about forbidden writes of one controller to one resource.
const FORBIDDEN_MS: i64 = 60_000;
/// The longest sleep. A changed system clock is noticed after it.
const SLEEP_MAX: Duration = Duration::from_secs(3600);

/// The source of time and seeds.
pub trait Clock: Send + Sync + 'static {
    fn stamp(&self) -> Stamp;
}

/// The system's clock.
#[derive(Debug, Default)]
pub struct System;

impl Clock for System {
    fn stamp(&self) -> Stamp {
        use std::hash::{BuildHasher, RandomState};
        Stamp { time: Time(Timestamp::now()), seed: RandomState::new().hash_one(0u8) }
    }
}

/// Controllers, and the parts that run them.
pub struct Runtime {
    driver: Driver,
    crew: Vec<Crew>,
    act: Arc<dyn Act>,
    cloud: Arc<dyn Cloud>,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
    pace: Pace,
    /// The runtime that carries out actions, if plans are made on another thread.
    apart: Option<Handle>,
    /// When a forbidden write was last logged, by controller and resource.
    forbidden: HashMap<(usize, Resource), Time>,
}

/// Decides when an action may begin.
#[derive(Clone)]
struct Pace {
    slots: Arc<Slots>,
    rates: Arc<Rates>,
    metrics: Arc<Metrics>,
}

/// The names and the user of a controller: in metrics, as an actor, in Events.
struct Crew {
    name: &'static str,
    queue: &'static str,
    component: &'static str,
    actor: Actor,
    counted: QueueMetrics,
}

/// The keys of running tasks, which are planned again if the task panics.
type Lost = HashMap<tokio::task::Id, (usize, Key)>;

/// The running tasks, and the work that waits for them.
struct Going {
    carrying: JoinSet<Carried>,
    lost: Lost,
    /// Plans that are being made in the background.
    beside: JoinSet<FinishedPlan>,
    /// The maximum number of plans in the background: half of the processors are left for other work.
    beside_max: usize,
    /// Results for controllers that are making a plan in the background.
    waiting: Vec<Carried>,
    events: EventWriter,
    /// The runtime for all work except planning.
    hands: Handle,
}

/// A plan that was carried out, at least in part.
struct Carried {
    member: usize,
    key: Key,
    written: Vec<Written>,
    refused: Vec<Refused>,
    told: Vec<Note>,
    again: Option<Time>,
    since: Instant,
    /// The answers to the plan's GETs.
    answers: Vec<(String, Result<Value, Refusal>)>,
    reviews: Vec<(Value, Result<Value, Refusal>)>,
    calls: Vec<(Call, Result<Answer, Fault>)>,
    unready: bool,
    /// Whether this plan is the plan from [`Controller::refused`], whose refusals are not handled again.
    is_last: bool,
}

impl Runtime {
    pub fn new(act: Arc<dyn Act>, clock: Arc<dyn Clock>, metrics: Arc<Metrics>) -> Runtime {
        let rates = Arc::<Rates>::default();
        let pace = Pace { slots: Slots::new(ACTIONS_MAX, rates.clone()), rates, metrics: metrics.clone() };
        let (driver, crew, forbidden) = (Driver::new(), Vec::new(), HashMap::new());
        let cloud = Arc::new(NoCloud);
        Runtime { driver, crew, act, cloud, clock, metrics, pace, apart: None, forbidden }
    }

    /// Lets controllers call this cloud.
    pub fn with_cloud(mut self, cloud: Arc<dyn Cloud>) -> Runtime {
        self.cloud = cloud;
        self
    }

    /// Limits writes for a namespace by these rates, which other writers may share.
    pub fn rated(mut self, rates: Arc<Rates>) -> Runtime {
        self.pace.slots = Slots::new(ACTIONS_MAX, rates.clone());
        self.pace.rates = rates;
        self
    }

    /// Adds a controller that works on `workers` keys of a namespace at once and acts as this actor.
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

    /// Runs until the future is dropped.
    pub async fn run(self, feed: impl Feed) {
        self.run_until(feed, std::future::pending()).await;
    }

    /// As [`Runtime::run`], with planning on a thread of its own, so that long plans do not delay other tasks of the
    /// caller's thread. The feed must not use sockets.
    pub async fn run_apart(mut self, feed: impl Feed) {
        self.apart = Some(Handle::current());
        apart("controllers", move || self.run_until(feed, std::future::pending())).await;
    }

    /// Runs until `end`. Then the running actions are finished, and no new plans are made.
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
                Some(back) = going.beside.join_next() => self.finish_background(back, &mut going),
                news = feed.next() => self.hear(news, &mut feed),
                () = &mut end, if !ending => ending = true,
                () = tokio::time::sleep(sleep) => {}
            }
            // All results and news that have arrived are handled before the next plan, so that a controller with few
            // keys does not wait for one plan of another controller per result.
            for _ in 0..ANSWERS_AT_ONCE {
                let Some(carried) = going.carrying.try_join_next_with_id() else { break };
                self.finish(carried, &mut going);
            }
            while let Some(back) = going.beside.try_join_next() {
                self.finish_background(back, &mut going);
            }
            if let Some(news) = feed.next().now_or_never() {
                self.hear(news, &mut feed);
            }
        }
    }

    /// Makes plans up to a limit of work, and starts carrying them out.
    fn plan_some(&mut self, going: &mut Going) {
        let mut work = 0;
        while work < WORK_AT_ONCE {
            let clock = self.clock.clone();
            match self.driver.take_or_background(|| clock.stamp(), going.places()) {
                Some(NextPlan::Task(task)) => {
                    work += task.work;
                    self.begin(task, going);
                }
                Some(NextPlan::Background(beside)) => _ = going.beside.spawn_blocking_on(|| beside.run(), &going.hands),
                None => break,
            }
        }
    }

    /// Handles the end of a plan in the background, and gets its controller back.
    fn finish_background(&mut self, back: Result<FinishedPlan, JoinError>, going: &mut Going) {
        let back = match back {
            Ok(back) => back,
            // Panics in plans are caught, so such a task ends early only when the process ends.
            Err(fault) => return tracing::error!(%fault, "a controller is lost"),
        };
        let task = self.driver.finish_background(back, self.now());
        if let Some(task) = task {
            self.begin(task, going);
        }
        for carried in std::mem::take(&mut going.waiting) {
            self.conclude(carried, going);
        }
    }

    /// Begins to carry out a plan.
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
        feed.set_extra_kinds(self.driver.extra_kinds());
    }

    fn now(&self) -> Time {
        self.clock.stamp().time
    }

    fn until_next(&self) -> Duration {
        let Some(next) = self.driver.next_time() else { return SLEEP_MAX };
        // Rounded up, so as not to wake too early.
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
            calls: Vec::new(),
            unready: plan.unready,
            since: Instant::now(),
            is_last,
        });
        let again = carried.again.into_iter().chain(plan.again).min();
        let carried = Carried { again, is_last, ..carried };
        let (act, cloud) = (self.act.clone(), self.cloud.clone());
        let (actor, pace) = (self.crew[member].actor.clone(), self.pace.clone());
        let work = carry_out((act, cloud), actor, pace, plan, carried);
        let id = going.carrying.spawn_on(work, &going.hands).id();
        going.lost.insert(id, (member, key));
    }

    /// Handles the result of a plan.
    fn finish(&mut self, carried: Result<(tokio::task::Id, Carried), JoinError>, going: &mut Going) {
        let id = carried.as_ref().map_or_else(JoinError::id, |(id, _)| *id);
        let known = going.lost.remove(&id);
        match carried {
            Ok((_, carried)) => self.conclude(carried, going),
            // The task has panicked: the key is planned again.
            Err(_) => {
                if let Some((member, key)) = known {
                    self.driver.done(member, key, Outcome { failed: true, ..Outcome::default() }, self.now());
                }
            }
        }
    }

    fn conclude(&mut self, mut carried: Carried, going: &mut Going) {
        if carried.is_for_controller() && self.driver.is_in_background(carried.member) {
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
            // A refusal that an Event reports need not be logged, too.
            if after.notes.is_empty() {
                tell_of_forbidden(name, member, &carried.refused, &mut self.forbidden, now);
            }
            going.events.tell_all(actor, component, &after.notes, now);
            return self.carry_out(going, (member, key), after, Some(carried));
        }
        self.metrics.worked(queue, carried.since.elapsed());
        let Carried { written, refused, answers, reviews, calls, unready, mut again, .. } = carried;
        let asked = !answers.is_empty() || !reviews.is_empty() || !calls.is_empty();
        for (call, answer) in calls {
            self.driver.called(member, &key, &call, answer, now);
            again = Some(now);
        }
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
        self.driver.done(member, key, Outcome { written, failed, refused, asked, again }, now);
    }
}

impl Carried {
    /// Whether [`Controller::refused`] must handle the refusals.
    fn is_to_be_told(&self) -> bool {
        !self.refused.is_empty() && !self.is_last
    }

    fn is_for_controller(&self) -> bool {
        let was_answered = !self.answers.is_empty() || !self.reviews.is_empty() || !self.calls.is_empty();
        self.is_to_be_told() || was_answered
    }
}

impl Going {
    fn is_empty(&self) -> bool {
        self.carrying.is_empty() && self.beside.is_empty()
    }

    /// How many more plans may be made in the background.
    fn places(&self) -> usize {
        self.beside_max.saturating_sub(self.beside.len())
    }
}

/// Logs writes that a controller has no permission for. A person who waits for them would otherwise not learn of it.
fn tell_of_forbidden(
    controller: &str,
    member: usize,
    refused: &[Refused],
    told: &mut HashMap<(usize, Resource), Time>,
    now: Time,
) {
    // In a terminating namespace every user is forbidden to create objects, which is not worth a log line.
    let is_going = |refusal: &Refusal| refusal.causes.iter().any(|cause| cause == "NamespaceTerminating");
    let is_told =
        |refusal: &Refusal| ["Unauthorized", "Forbidden"].contains(&refusal.reason.as_str()) && !is_going(refusal);
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
    (act, cloud): (Arc<dyn Act>, Arc<dyn Cloud>),
    actor: Actor,
    pace: Pace,
    plan: Plan,
    mut carried: Carried,
) -> Carried {
    carried.calls = join_all(plan.calls.into_iter().map(async |call| {
        let answer = cloud.ask(&call).await.and_then(|answer| call.judge(answer));
        (call, answer)
    }))
    .await;
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
                    carried.written.push(Written { resource, key, result: done.result });
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

/// Carries out the actions of a step at the same time; the results are in the order of the actions.
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

/// Carries out an action of a key's plan, once its namespace's rate and a slot allow it. An action on a cluster-scoped
/// object counts for the namespace of the key.
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
    // A small patch of a large object writes the whole object.
    if let Ok(done) = &done {
        pace.rates.charge(namespace, done.bytes.saturating_sub(expected));
    }
    done
}
