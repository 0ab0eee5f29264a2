//! The loop that runs controllers. One task owns the world and makes plans; other tasks carry the plans out.

use crate::cloud::NoCloud;
use crate::metrics::{Metrics, QueueMetrics};
use crate::rates::Rates;
use crate::slots::Slots;
use crate::writer::EventWriter;
use crate::{Act, Cloud, Feed, News, heavy, run_on_own_thread};
use futures_util::FutureExt;
use futures_util::future::join_all;
use holdfast_value::Value;
use holdfast_world::cloud::{CloudAnswer, CloudCall, Fault};
use holdfast_world::{
    Action, ActionResult, Actor, Controller, Driver, FinishedPlan, Key, NextPlan, ParallelActions, Plan, PlannedEvent,
    Refusal, Refused, Resource, Stamp, Task, TaskOutcome, Time,
};
use jiff::Timestamp;
use std::collections::HashMap;
use std::num::NonZero;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::task::{JoinError, JoinSet};

/// How much work of planning is done before news is read again, in the units of `holdfast_world::work`: some two
/// hundred small plans, or one larger plan.
const WORK_AT_ONCE: u64 = 4096;
/// How many results of plans are handled before more plans are made.
const ANSWERS_AT_ONCE: usize = 1024;
/// The maximum number of actions at the same time, of all controllers together.
const ACTIONS_MAX: usize = 512;
/// The minimum interval, in milliseconds, between log lines about forbidden writes of one controller to one resource.
const FORBIDDEN_MS: i64 = 60_000;
/// The longest sleep of the loop. So a change of the system's clock is noticed after this time at the latest.
const SLEEP_MAX: Duration = Duration::from_secs(3600);

/// The source of the time and of random seeds.
pub trait Clock: Send + Sync + 'static {
    fn stamp(&self) -> Stamp;
}

/// The clock of the operating system.
#[derive(Debug, Default)]
pub struct WallClock;

impl Clock for WallClock {
    fn stamp(&self) -> Stamp {
        use std::hash::{BuildHasher, RandomState};
        Stamp { time: Time(Timestamp::now()), seed: RandomState::new().hash_one(0u8) }
    }
}

/// The controllers, and everything that is needed to run them.
pub struct Runtime {
    driver: Driver,
    controllers: Vec<ControllerIdentity>,
    act: Arc<dyn Act>,
    cloud: Arc<dyn Cloud>,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
    pace: Pace,
    /// The async runtime that carries out actions, if plans are made on a thread of their own.
    action_runtime: Option<Handle>,
    /// The time at which a forbidden write was last logged, by controller and resource.
    forbidden: HashMap<(usize, Resource), Time>,
}

/// Decides when an action may begin, by the slots and the rates of namespaces.
#[derive(Clone)]
struct Pace {
    slots: Arc<Slots>,
    rates: Arc<Rates>,
    metrics: Arc<Metrics>,
}

/// The names of a controller in metrics and in Events, and the actor that it uses for its requests.
struct ControllerIdentity {
    name: &'static str,
    queue: &'static str,
    component: &'static str,
    actor: Actor,
    counted: QueueMetrics,
}

/// The controller and the key of each running task. If the task panics, the key is planned again.
type TaskKeys = HashMap<tokio::task::Id, (usize, Key)>;

/// The running tasks, and the results that cannot be handled yet.
struct RunningTasks {
    carrying: JoinSet<CarriedOut>,
    task_keys: TaskKeys,
    /// Plans that are being made in the background.
    background: JoinSet<FinishedPlan>,
    /// The maximum number of plans in the background. Half of the processors stay free for other work.
    background_max: usize,
    /// Results for controllers that are making a plan in the background. They are handled when the plan is made.
    waiting: Vec<CarriedOut>,
    events: EventWriter,
    /// The async runtime for all work except planning.
    io_runtime: Handle,
}

/// The result of a plan that was carried out, at least in part.
struct CarriedOut {
    member: usize,
    key: Key,
    written: Vec<ActionResult>,
    refused: Vec<Refused>,
    events: Vec<PlannedEvent>,
    requeue_at: Option<Time>,
    since: Instant,
    /// The answers to the GET requests of the plan.
    answers: Vec<(String, Result<Value, Refusal>)>,
    reviews: Vec<(Value, Result<Value, Refusal>)>,
    calls: Vec<(CloudCall, Result<CloudAnswer, Fault>)>,
    unready: bool,
    /// Whether the plan was made by [`Controller::refused`]. The refusals of such a plan are not passed to `refused`
    /// again.
    is_last: bool,
}

impl Runtime {
    pub fn new(act: Arc<dyn Act>, clock: Arc<dyn Clock>, metrics: Arc<Metrics>) -> Runtime {
        let rates = Arc::<Rates>::default();
        let pace = Pace { slots: Slots::new(ACTIONS_MAX, rates.clone()), rates, metrics: metrics.clone() };
        let (driver, controllers, forbidden) = (Driver::new(), Vec::new(), HashMap::new());
        let cloud = Arc::new(NoCloud);
        Runtime { driver, controllers, act, cloud, clock, metrics, pace, action_runtime: None, forbidden }
    }

    /// Sets the cloud to which controllers make their calls.
    pub fn with_cloud(mut self, cloud: Arc<dyn Cloud>) -> Runtime {
        self.cloud = cloud;
        self
    }

    /// Limits the writes for a namespace by these rates. Other writers may share the rates.
    pub fn rated(mut self, rates: Arc<Rates>) -> Runtime {
        self.pace.slots = Slots::new(ACTIONS_MAX, rates.clone());
        self.pace.rates = rates;
        self
    }

    /// Adds a controller. It works on at most `workers` keys of a namespace at once, and makes its requests as this
    /// actor.
    pub fn add(&mut self, controller: Box<dyn Controller>, actor: Actor, workers: usize) {
        let (name, queue, component) = (controller.name(), controller.queue(), controller.component());
        self.metrics.runs(name, controller.manager());
        let counted = self.metrics.queue_metrics(queue);
        self.controllers.push(ControllerIdentity { name, queue, component, actor, counted });
        let back_off = controller.back_off();
        self.driver.add(controller, workers, back_off);
    }

    pub fn driver(&self) -> &Driver {
        &self.driver
    }

    /// Runs the controllers until the future is dropped.
    pub async fn run(self, feed: impl Feed) {
        self.run_until(feed, std::future::pending()).await;
    }

    /// Like [`Runtime::run`], but plans are made on a thread of their own, so that long plans do not delay other tasks
    /// on the caller's thread. The feed must not use sockets.
    pub async fn run_on_own_thread(mut self, feed: impl Feed) {
        self.action_runtime = Some(Handle::current());
        run_on_own_thread("controllers", move || self.run_until(feed, std::future::pending())).await;
    }

    /// Runs the controllers until `end`. Then the running actions are finished, and no new plans are made.
    pub async fn run_until(mut self, mut feed: impl Feed, end: impl Future<Output = ()>) {
        let mut end = std::pin::pin!(end);
        let mut ending = false;
        let io_runtime = self.action_runtime.clone().unwrap_or_else(Handle::current);
        let mut running = RunningTasks {
            carrying: JoinSet::new(),
            task_keys: HashMap::new(),
            background: JoinSet::new(),
            background_max: std::thread::available_parallelism().map_or(1, NonZero::get).div_ceil(2),
            waiting: Vec::new(),
            events: EventWriter::start(self.act.clone(), &io_runtime),
            io_runtime,
        };
        while !(ending && running.is_empty()) {
            if !ending {
                self.plan_some(&mut running);
            }
            for (member, controller) in self.controllers.iter_mut().enumerate() {
                controller.counted.report(self.driver.queue(member));
            }
            let now = self.now();
            let ready = !ending && self.driver.has_next(running.background_slots(), now);
            let sleep = if ready { Duration::ZERO } else { self.until_next() };
            tokio::select! {
                Some(carried) = running.carrying.join_next_with_id() => self.finish(carried, &mut running),
                Some(back) = running.background.join_next() => self.finish_background(back, &mut running),
                news = feed.next() => self.receive(news, &mut feed),
                () = &mut end, if !ending => ending = true,
                () = tokio::time::sleep(sleep) => {}
            }
            // All results and news that have arrived are handled before the next plan is made. Otherwise a controller
            // with few keys would wait for a plan of another controller before each of its results is handled.
            for _ in 0..ANSWERS_AT_ONCE {
                let Some(carried) = running.carrying.try_join_next_with_id() else { break };
                self.finish(carried, &mut running);
            }
            while let Some(back) = running.background.try_join_next() {
                self.finish_background(back, &mut running);
            }
            if let Some(news) = feed.next().now_or_never() {
                self.receive(news, &mut feed);
            }
        }
    }

    /// Makes plans up to a limit of work, and starts carrying them out.
    fn plan_some(&mut self, running: &mut RunningTasks) {
        let mut work = 0;
        while work < WORK_AT_ONCE {
            let clock = self.clock.clone();
            match self.driver.next_plan(|| clock.stamp(), running.background_slots()) {
                Some(NextPlan::Task(task)) => {
                    work += task.work;
                    self.begin(task, running);
                }
                Some(NextPlan::Background(background)) => {
                    _ = running.background.spawn_blocking_on(|| background.run(), &running.io_runtime)
                }
                None => break,
            }
        }
    }

    /// Handles the result of a plan that was made in the background, and puts its controller back in place.
    fn finish_background(&mut self, back: Result<FinishedPlan, JoinError>, running: &mut RunningTasks) {
        let back = match back {
            Ok(back) => back,
            // Panics within plans are caught, so this task ends early only when the process ends.
            Err(fault) => return tracing::error!(%fault, "a controller is lost"),
        };
        let task = self.driver.finish_background(back, self.now());
        if let Some(task) = task {
            self.begin(task, running);
        }
        for carried in std::mem::take(&mut running.waiting) {
            self.finish_carried(carried, running);
        }
    }

    /// Starts the task that carries out a plan.
    fn begin(&mut self, task: Task, running: &mut RunningTasks) {
        let (member, key) = (task.controller_index, task.key);
        let ControllerIdentity { name, queue, component, actor, .. } = &self.controllers[member];
        self.metrics.waited(queue, task.waited_ms);
        if task.plan.unready && !task.plan.skipped.is_empty() {
            tracing::debug!(controller = name, %key, left = ?task.plan.skipped, "a plan is not ready");
        }
        running.events.write_all(actor, component, &task.plan.events, self.now());
        if task.plan.is_idle() {
            let Plan { requeue_at, unready, .. } = task.plan;
            let outcome = TaskOutcome { failed: unready, requeue_at, ..TaskOutcome::default() };
            return self.driver.finish(member, key, outcome, self.now());
        }
        self.carry_out(running, (member, key), task.plan, None);
    }

    fn receive(&mut self, news: Vec<News>, feed: &mut impl Feed) {
        let now = self.now();
        let is_heavy = news.iter().any(News::is_heavy);
        let driver = &mut self.driver;
        let tell = move || news.into_iter().for_each(|news| news.apply_to(driver, now));
        if is_heavy {
            heavy(tell)
        } else {
            tell()
        }
        self.driver.release_written();
        feed.set_extra_kinds(self.driver.extra_kinds());
    }

    fn now(&self) -> Time {
        self.clock.stamp().time
    }

    fn until_next(&self) -> Duration {
        let Some(next) = self.driver.next_time() else { return SLEEP_MAX };
        // The wait is rounded up, so that the loop does not wake too early.
        let millis = next.millis_since(self.now()).saturating_add(1);
        Duration::from_millis(u64::try_from(millis).unwrap_or(0)).min(SLEEP_MAX)
    }

    fn carry_out(
        &self,
        running: &mut RunningTasks,
        (member, key): (usize, Key),
        plan: Plan,
        before: Option<CarriedOut>,
    ) {
        let is_last = before.is_some();
        let carried = before.unwrap_or_else(|| CarriedOut {
            member,
            key: key.clone(),
            written: Vec::new(),
            refused: Vec::new(),
            events: Vec::new(),
            requeue_at: None,
            answers: Vec::new(),
            reviews: Vec::new(),
            calls: Vec::new(),
            unready: plan.unready,
            since: Instant::now(),
            is_last,
        });
        let requeue_at = carried.requeue_at.into_iter().chain(plan.requeue_at).min();
        let carried = CarriedOut { requeue_at, is_last, ..carried };
        let (act, cloud) = (self.act.clone(), self.cloud.clone());
        let (actor, pace) = (self.controllers[member].actor.clone(), self.pace.clone());
        let work = carry_out((act, cloud), actor, pace, plan, carried);
        let id = running.carrying.spawn_on(work, &running.io_runtime).id();
        running.task_keys.insert(id, (member, key));
    }

    /// Handles the result of a plan that was carried out.
    fn finish(&mut self, carried: Result<(tokio::task::Id, CarriedOut), JoinError>, running: &mut RunningTasks) {
        let id = carried.as_ref().map_or_else(JoinError::id, |(id, _)| *id);
        let known = running.task_keys.remove(&id);
        match carried {
            Ok((_, carried)) => self.finish_carried(carried, running),
            // The task has panicked, so its key is planned again.
            Err(_) => {
                if let Some((member, key)) = known {
                    self.driver.finish(member, key, TaskOutcome { failed: true, ..TaskOutcome::default() }, self.now());
                }
            }
        }
    }

    fn finish_carried(&mut self, mut carried: CarriedOut, running: &mut RunningTasks) {
        if carried.is_for_controller() && self.driver.is_in_background(carried.member) {
            return running.waiting.push(carried);
        }
        let now = self.now();
        let (member, key) = (carried.member, carried.key.clone());
        let ControllerIdentity { name, queue, component, actor, .. } = &self.controllers[member];
        running.events.write_all(actor, component, &std::mem::take(&mut carried.events), now);
        if carried.has_new_refusals() {
            for Refused { action, refusal } in &carried.refused {
                tracing::debug!(controller = name, %key, ?action.resource, action = %action.key, refusal = %refusal.message,
                    "an action was refused");
            }
            let after = self.driver.refused(member, &key, &carried.refused, self.clock.stamp());
            // If an Event reports the refusal, the refusal is not logged as well.
            if after.events.is_empty() {
                log_forbidden(name, member, &carried.refused, &mut self.forbidden, now);
            }
            running.events.write_all(actor, component, &after.events, now);
            return self.carry_out(running, (member, key), after, Some(carried));
        }
        self.metrics.worked(queue, carried.since.elapsed());
        let CarriedOut { written, refused, answers, reviews, calls, unready, requeue_at: mut again, .. } = carried;
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
        self.driver.finish(
            member,
            key,
            TaskOutcome { written, failed, refused, awaits_answers: asked, requeue_at: again },
            now,
        );
    }
}

impl CarriedOut {
    /// Whether there are refusals that [`Controller::refused`] must handle.
    fn has_new_refusals(&self) -> bool {
        !self.refused.is_empty() && !self.is_last
    }

    fn is_for_controller(&self) -> bool {
        let was_answered = !self.answers.is_empty() || !self.reviews.is_empty() || !self.calls.is_empty();
        self.has_new_refusals() || was_answered
    }
}

impl RunningTasks {
    fn is_empty(&self) -> bool {
        self.carrying.is_empty() && self.background.is_empty()
    }

    /// How many more plans may be made in the background now.
    fn background_slots(&self) -> usize {
        self.background_max.saturating_sub(self.background.len())
    }
}

/// Logs the writes that the server forbids a controller. Without the log line, an operator could not find out why the
/// writes are missing.
fn log_forbidden(
    controller: &str,
    member: usize,
    refused: &[Refused],
    told: &mut HashMap<(usize, Resource), Time>,
    now: Time,
) {
    // In a namespace that is being deleted, every user is forbidden to create objects, which is not worth a log line.
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

/// Carries out the steps of a plan one after the other. The step with a refused action is the last one.
async fn carry_out(
    (act, cloud): (Arc<dyn Act>, Arc<dyn Cloud>),
    actor: Actor,
    pace: Pace,
    plan: Plan,
    mut carried: CarriedOut,
) -> CarriedOut {
    carried.calls = join_all(plan.calls.into_iter().map(async |call| {
        let answer = cloud.call(&call).await.and_then(|answer| call.check_answer(answer));
        (call, answer)
    }))
    .await;
    for review in plan.reviews {
        let answer = act.review(&actor, &review).await;
        carried.reviews.push((review, answer));
    }
    for path in plan.gets {
        let answer = act.get(&actor, &path).await;
        carried.answers.push((path, answer));
    }
    for step in plan.steps {
        let mut refused = Vec::new();
        for (action, done) in carry_out_step(&act, &actor, &pace, &carried.key, step).await {
            match done {
                Ok(done) => {
                    let Action { resource, key, event: told, .. } = action;
                    carried.events.extend(told.map(|planned| planned.with_object_name(&done.name)));
                    let key = Key { namespace: key.namespace, name: done.name.as_str().into() };
                    carried.written.push(ActionResult { resource, key, result: done.result });
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

type ActionOutcome = (Action, Result<crate::ActionDone, Refusal>);

/// Carries out the actions of a step at the same time. The results have the order of the actions.
async fn carry_out_step(
    act: &Arc<dyn Act>,
    actor: &Actor,
    pace: &Pace,
    key: &Key,
    step: ParallelActions,
) -> Vec<ActionOutcome> {
    if let [action] = step.as_slice() {
        let done = carry_out_action(act, actor, pace, key, action).await;
        return step.into_iter().zip([done]).collect();
    }
    let mut trying = JoinSet::new();
    let count = step.len();
    for (place, action) in step.into_iter().enumerate() {
        let (act, actor, pace, key) = (act.clone(), actor.clone(), pace.clone(), key.clone());
        trying.spawn(async move {
            let done = carry_out_action(&act, &actor, &pace, &key, &action).await;
            (place, (action, done))
        });
    }
    let mut tried: Vec<Option<ActionOutcome>> = (0..count).map(|_| None).collect();
    while let Some(done) = trying.join_next().await {
        match done {
            Ok((place, done)) => tried[place] = Some(done),
            Err(fault) => std::panic::resume_unwind(fault.into_panic()),
        }
    }
    tried.into_iter().flatten().collect()
}

/// Carries out an action of a key's plan as soon as its namespace's rate and a slot allow the action. An action on a
/// cluster-scoped object counts for the namespace of the key.
async fn carry_out_action(
    act: &Arc<dyn Act>,
    actor: &Actor,
    pace: &Pace,
    key: &Key,
    action: &Action,
) -> Result<crate::ActionDone, Refusal> {
    let namespace = if action.key.namespace.is_empty() { &key.namespace } else { &action.key.namespace };
    let expected = action.json_bytes();
    let wait = pace.rates.charge(namespace, expected);
    if !wait.is_zero() {
        pace.metrics.rated();
        tokio::time::sleep(wait).await;
    }
    let _slot = pace.slots.take(namespace).await;
    let done = act.act(actor, action).await;
    // Even a small patch writes the whole object, so the bytes of the object that the patch did not contain are
    // charged, too.
    if let Ok(done) = &done {
        pace.rates.charge(namespace, done.bytes.saturating_sub(expected));
    }
    done
}
