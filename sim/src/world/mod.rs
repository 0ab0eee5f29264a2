//! The simulated world: one server, its disk, clients, watchers and readers, which take one small step after another.

use crate::clock::SimulatedClock;
use crate::coverage::{self, Mark, saw};
use crate::disk::Disk;
use crate::door;
use crate::follower::Follower;
use crate::fuse::Fuse;
use crate::oracle::{CheckResult, History, ensure};
use crate::past;
use crate::pick::NAMESPACES;
use crate::random::{Dice, step_seed};
use crate::reader::{Lister, Sight};
use crate::rights;
use crate::run::{Report, RunPlan, SimulationFailure};
use crate::server::SimulatedServer;
use crate::shape::Sort;
use crate::twin::Twin;
use crate::workload::{self, Order};
use holdfast_core::Refusal;
use holdfast_core::event::Offset;
use holdfast_core::namespace::Emptying;
use holdfast_core::pipeline::Clearing;
use holdfast_core::request::{Options, Verb};
use holdfast_core::state::State;
use holdfast_engine::forked::Holds;
use holdfast_engine::retention::{Retention, pass};
use holdfast_engine::{Clock, Log, LogRead};
use holdfast_service::{Listed, Reply};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Borrows only those parts of a world that readers use, so that other parts can be changed meanwhile.
macro_rules! sight {
    ($world:ident) => {
        Sight {
            engine: &$world.server.engine,
            service: &$world.server.service,
            twin: &$world.twin,
            told: $world.told,
            now_ms: $world.clock.now_ms(),
            crashes: $world.crashes,
        }
    };
}

mod asking;
mod ending;
mod steps;

use asking::Pending;

/// How many old snapshots are kept for clients to use.
const SNAPSHOTS: usize = 12;

/// Simulates the server until the end of the plan, or until the first violation.
pub fn simulate(plan: &RunPlan) -> Report {
    let mut world = World::new(plan.clone());
    // A failed assertion within the engine counts as a violation, too.
    let outcome = catch_unwind(AssertUnwindSafe(|| world.live())).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        Err(format!("panic: {}", text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("without words")))
    });
    let failure = outcome.err().map(|why| SimulationFailure { step: world.step, why });
    let World { trace, commands, crashes, .. } = world;
    Report { trace, commands, events: world.twin.last(), crashes, coverage: coverage::take(), failure }
}

struct World {
    plan: RunPlan,
    dice: Dice,
    clock: Arc<SimulatedClock>,
    disk: Arc<Disk>,
    server: SimulatedServer,
    fuse: Arc<Fuse>,
    twin: Twin,
    /// All requests by id, including requests whose outcome is unknown.
    orders: BTreeMap<String, Order>,
    pending: Vec<Pending>,
    followers: Vec<Follower>,
    listers: Vec<Lister>,
    /// The readers that wait for a state as new as a version which may not exist yet.
    waiting: Vec<WaitingReader>,
    /// All answers that clients have received.
    history: History,
    /// Snapshots that were taken since the server's start and that clients may still use.
    seen: VecDeque<Arc<State>>,
    /// The newest version that an answer has shown to a client since the server's start.
    told: u64,
    /// Every event up to this offset is known to have survived a crash.
    outlived: u64,
    /// The ids of requests that were refused for good, so that they must have no effect.
    refused: BTreeSet<String>,
    /// The number of the current step.
    step: usize,
    /// How many ids were given in the current step.
    named: usize,
    /// The last step at which the log had a fault, or was about to have one. `last_full` is the last such step with a
    /// full disk.
    last_trouble: usize,
    last_full: usize,
    commands: u64,
    crashes: u64,
    trace: Vec<String>,
}

type Listing = Pin<Box<dyn Future<Output = Result<Reply, Refusal>>>>;

/// A reader that waits for a state which is at least as new as the version `wanted`.
struct WaitingReader {
    wanted: u64,
    future: Listing,
}

#[derive(Debug, Clone, Copy)]
enum WorldStep {
    Ask,
    /// Pass a decision that was made on an older snapshot to the writer.
    AskBehind,
    /// Give a namespace to its next owner.
    HandOver,
    Poll,
    Commit,
    Get,
    Read,
    Bookmark,
    NewFollower,
    Cut,
    List,
    Await,
    PastWhole,
    PastWatch,
    PastTime,
    Janitor,
    Others,
    Wait,
    Fault,
    Forget,
    Crash,
}

const STEPS: [(usize, WorldStep); 21] = [
    (220, WorldStep::Ask),
    (50, WorldStep::AskBehind),
    (20, WorldStep::HandOver),
    (140, WorldStep::Poll),
    (200, WorldStep::Commit),
    (440, WorldStep::Get),
    (110, WorldStep::Read),
    (25, WorldStep::Bookmark),
    (12, WorldStep::NewFollower),
    (12, WorldStep::Cut),
    (150, WorldStep::List),
    (15, WorldStep::Await),
    (2, WorldStep::PastWhole),
    (6, WorldStep::PastWatch),
    (6, WorldStep::PastTime),
    (30, WorldStep::Janitor),
    (20, WorldStep::Others),
    (10, WorldStep::Wait),
    (6, WorldStep::Fault),
    (3, WorldStep::Forget),
    (4, WorldStep::Crash),
];

impl World {
    fn new(plan: RunPlan) -> World {
        let clock = Arc::new(SimulatedClock::new(plan.seed));
        let disk = Arc::new(Disk::new(plan.sabotage));
        let server = SimulatedServer::start(&disk, &clock).unwrap_or_else(|why| panic!("an empty log opens: {why}"));
        World {
            dice: Dice::new(plan.seed),
            plan,
            clock,
            disk,
            server,
            fuse: Arc::default(),
            twin: Twin::default(),
            orders: BTreeMap::new(),
            pending: Vec::new(),
            followers: Vec::new(),
            listers: Vec::new(),
            waiting: Vec::new(),
            history: History::default(),
            seen: VecDeque::new(),
            told: 0,
            outlived: 0,
            refused: BTreeSet::new(),
            step: 0,
            named: 0,
            last_trouble: 0,
            last_full: 0,
            commands: 0,
            crashes: 0,
            trace: Vec::new(),
        }
    }

    /// Runs the whole simulation: the start, the steps, and the end, at which everything comes to rest.
    fn live(&mut self) -> CheckResult {
        self.enter(0);
        self.fuse.watch(&self.server.engine);
        self.establish()?;
        for _ in 0..self.plan.watchers {
            let follower = Follower::draw(&mut self.dice, sight!(self))?;
            self.followers.push(follower);
        }
        let only = self.plan.only.take();
        let all = 1..=self.plan.steps;
        let steps: Box<dyn Iterator<Item = usize>> = match &only {
            None => Box::new(all),
            Some(only) => Box::new(only.iter().map(|step| *step as usize).filter(move |step| all.contains(step))),
        };
        for step in steps {
            self.enter(step);
            let step = self.dice.weighted(&STEPS);
            self.run_step(step)?;
        }
        self.enter(self.plan.steps + 1);
        self.rest()
    }

    /// Creates the roles and namespaces that the clients need.
    fn establish(&mut self) -> CheckResult {
        let seen = self.server.engine.snapshot();
        let service = self.server.service.clone();
        let creations = rights::policy().iter().map(|document| door::creation(&seen, document));
        let mut creations: Vec<_> = creations.map(|call| Box::pin(service.call(call))).collect();
        let mut context = Context::from_waker(Waker::noop());
        for creation in &mut creations {
            ensure(creation.as_mut().poll(&mut context).is_pending(), || "a role is made before it is durable".into())?;
        }
        self.commit(creations.len())?;
        for mut creation in creations {
            match creation.as_mut().poll(&mut context) {
                Poll::Ready(answer) => drop(answer.reply.map_err(|refusal| format!("no roles: {refusal:?}"))?),
                Poll::Pending => return Err("a role is never made".into()),
            }
        }
        for name in NAMESPACES {
            let seen = self.server.engine.snapshot();
            let order = workload::bootstrap(&seen, name);
            self.ask(order, &seen);
        }
        self.drain()
    }

    /// Begins a step. From now on, all random numbers come from the seed of this step.
    fn enter(&mut self, step: usize) {
        let seed = step_seed(self.plan.seed, step as u64);
        self.dice = Dice::new(seed);
        self.clock.enter(seed);
        (self.step, self.named) = (step, 0);
    }

    fn id(&mut self, who: &str) -> String {
        self.named += 1;
        match self.named {
            1 => format!("{who}{}", self.step),
            nth => format!("{who}{}-{nth}", self.step),
        }
    }

    fn note(&mut self, line: impl FnOnce(&World) -> String) {
        if self.plan.trace {
            let line = format!("{:5} {}", self.step, line(self));
            self.trace.push(line);
        }
    }

    /// The newest snapshot, or an old snapshot such as a client with a stale cache has.
    fn some_snapshot(&mut self) -> Arc<State> {
        if self.seen.is_empty() || self.dice.chance(60) {
            return self.server.engine.snapshot();
        }
        let at = self.dice.below(self.seen.len());
        self.seen[at].clone()
    }

    fn remember_snapshot(&mut self) {
        let newest = self.server.engine.snapshot();
        if self.seen.back().is_some_and(|last| last.offset == newest.offset) {
            return;
        }
        self.seen.push_back(newest);
        if self.seen.len() > SNAPSHOTS {
            self.seen.pop_front();
        }
    }

    fn list(&mut self) -> CheckResult {
        self.commands += 1;
        self.fresh()?;
        if self.listers.len() < 3 {
            let newest = self.server.engine.snapshot().offset.0;
            self.listers.push(Lister::draw(&mut self.dice, newest, self.crashes));
        }
        let at = self.dice.below(self.listers.len());
        let sight = sight!(self);
        let done = self.listers[at].turn(sight, &mut self.history)?;
        if done {
            self.listers.swap_remove(at);
        }
        self.note(|_| format!("lister {at} turns a page, done: {done}"));
        Ok(())
    }

    /// Lets the janitor carry out a few steps of its current plans.
    fn tidy(&mut self) -> usize {
        let seen = self.some_snapshot();
        // The plan is made by a new janitor, because most steps of the earlier plans were not carried out in this
        // simulation.
        let stamp = self.clock.stamp();
        let mut steps = Emptying::default().plan(&seen, stamp).steps;
        steps.extend(Clearing::default().plan(&seen, stamp).steps);
        let count = steps.len();
        let from = if count > 4 { self.dice.below(count - 3) } else { 0 };
        for step in steps.into_iter().skip(from).take(4) {
            let id = self.id("house");
            if let Some(order) = workload::house(&seen, step, id) {
                self.run_housekeeping(order);
            }
        }
        count
    }

    /// Lets the log forget the versions that were replaced before a random moment.
    fn forget(&mut self) -> CheckResult {
        let last = self.twin.last();
        let through = last.saturating_sub(self.dice.below(60) as u64).max(self.twin.forgotten);
        if self.disk.is_broken() || through == 0 {
            return Ok(());
        }
        let retention = match self.dice.below(5) {
            0 | 1 => Retention { age: Some(Duration::from_millis(self.dice.below(600_000) as u64)), bytes: None },
            2 => Retention { age: None, bytes: Some(self.dice.below(400_000) as u64) },
            _ => {
                self.note(|_| format!("what was replaced up to {through} is let go"));
                self.disk.forget(Offset(through)).map_err(|fault| fault.to_string())?;
                self.twin.forgotten = self.twin.forgotten.max(through);
                saw(Mark::Forgotten);
                return Ok(());
            }
        };
        self.note(|_| format!("history is kept by {retention:?}"));
        let before = Offset(self.twin.forgotten);
        let now_ms = self.clock.now_ms();
        let size = self.disk.size().map_err(|fault| fault.to_string())?;
        let oldest =
            pass(self.disk.as_ref(), retention, now_ms, &Holds::default()).map_err(|fault| fault.to_string())?.oldest;
        self.twin.forgotten = oldest.0;
        ensure(oldest >= before && oldest.0 <= last, || format!("history from {before} on begins at {oldest} now"))?;
        if oldest == before {
            return Ok(());
        }
        saw(if retention.age.is_some() { Mark::ForgottenByAge } else { Mark::ForgottenBySize });
        if let Some(age) = retention.age {
            past::is_moment(&self.twin, now_ms - age.as_millis() as i64, oldest.0)?;
        }
        let most = retention.bytes.unwrap_or(0);
        ensure(size.bytes > most, || format!("{} bytes are not too many, and {oldest} is let go", size.bytes))
    }

    /// Begins a read that needs a state at least as new as a version which may not exist yet, or polls such a read.
    fn wait_for_version(&mut self) -> CheckResult {
        if self.waiting.len() < 2 {
            self.commands += 1;
            let service = self.server.service.clone();
            let wanted = self.server.engine.snapshot().offset.0 + self.dice.below(4) as u64;
            let options = Options {
                resource_version: Some(wanted.to_string()),
                resource_version_match: Some("NotOlderThan".into()),
                ..Options::default()
            };
            let call = door::read(&rights::admin(), Sort::Namespace, Verb::List, (None, None), options);
            let future = Box::pin(async move { service.call(call).await.reply });
            self.waiting.push(WaitingReader { wanted, future });
        }
        // The request has a timeout. The runtime's clock does not advance, so the timeout never ends.
        let _time = SimulatedServer::timeless().enter();
        let shown = self.server.engine.snapshot().offset.0;
        let mut verdict = Ok(());
        self.waiting.retain_mut(|WaitingReader { wanted, future }| {
            let polled = future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            let Poll::Ready(reply) = polled else {
                if *wanted <= shown {
                    verdict = Err(format!("a reader waits for {wanted}, and {shown} is there"));
                }
                return true;
            };
            saw(Mark::WaitedForVersion);
            match reply {
                Ok(Reply::List(Listed { page, .. })) if page.offset.0 == shown && shown >= *wanted => {}
                other => verdict = Err(format!("a reader who wants {wanted} gets {other:?} of {shown}")),
            }
            false
        });
        verdict
    }
}
