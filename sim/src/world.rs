//! The simulated world: one server, its disk, clients, watchers and listers, and one small step after another.

use crate::clock::SimulatedClock;
use crate::disk::{Disk, Sabotage};
use crate::follower::Follower;
use crate::lister::{Lister, check_past};
use crate::oracle::{self, Verdict, Window};
use crate::random::Dice;
use crate::twin::Twin;
use crate::workload::{self, NAMESPACES, Order};
use crossbeam::channel::Receiver;
use holdfast_core::Refusal;
use holdfast_core::decide::{self, Settings};
use holdfast_core::event::{Offset, Record};
use holdfast_core::kinds::registry;
use holdfast_core::namespace;
use holdfast_core::state::State;
use holdfast_engine::memory::Planned;
use holdfast_engine::writer::{Command, Input, Rejection, Writer};
use holdfast_engine::{Clock, Engine, EventLog, Hub, Options, Reply};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// What to simulate.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    pub seed: u64,
    pub steps: usize,
    pub clients: usize,
    pub watchers: usize,
    pub sabotage: Sabotage,
}

impl Plan {
    pub fn new(seed: u64) -> Plan {
        Plan { seed, steps: 600, clients: 6, watchers: 8, sabotage: Sabotage::None }
    }
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Every step, in words.
    pub trace: Vec<String>,
    pub events: u64,
    pub crashes: usize,
    /// What an oracle found wrong.
    pub failure: Option<String>,
}

/// Runs one simulation to its end, or to the first violation.
pub fn run(plan: Plan) -> Report {
    let mut world = World::new(plan);
    // An assertion that fails within the engine is a finding like any other.
    let outcome = catch_unwind(AssertUnwindSafe(|| world.live())).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        Err(format!("panic: {}", text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("without words")))
    });
    let failure = outcome.err().map(|why| format!("after step {}: {why}", world.trace.len()));
    Report { trace: world.trace, events: world.twin.last(), crashes: world.crashes, failure }
}

/// How many events may wait for a watcher: few, so that watchers fall behind.
const QUEUE_EVENTS: usize = 4;
/// How many past snapshots clients may still be looking at.
const SNAPSHOTS: usize = 12;

struct World {
    plan: Plan,
    dice: Dice,
    clock: Arc<SimulatedClock>,
    disk: Arc<Disk>,
    server: Server,
    twin: Twin,
    /// Requests by id, also the ones whose outcome nobody learned.
    orders: BTreeMap<String, Order>,
    pending: Vec<Pending>,
    followers: Vec<Follower>,
    listers: Vec<Lister>,
    /// Snapshots of this server's life that somebody may still look at.
    seen: VecDeque<Arc<State>>,
    /// Events that some client was told of.
    acknowledged: BTreeMap<u64, Record>,
    /// Requests that were refused for good: nothing may come of them.
    refused: BTreeSet<String>,
    next_id: u64,
    /// The last step at which the log was, or was about to be, in trouble.
    last_trouble: usize,
    crashes: usize,
    trace: Vec<String>,
}

/// One life of the server, from start to crash.
struct Server {
    engine: Arc<Engine>,
    writer: Writer,
    queue: Receiver<Input>,
}

struct Pending {
    id: String,
    from: u64,
    since: usize,
    /// Made from an old snapshot and sent without a second try.
    direct: bool,
    future: Pin<Box<dyn Future<Output = Outcome>>>,
}

enum Outcome {
    Reply(Reply),
    Refusal(Refusal),
    Rejection(Rejection),
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Ask,
    AskDirectly,
    Poll,
    Commit,
    Read,
    Bookmark,
    NewFollower,
    Cut,
    List,
    Past,
    Janitor,
    Wait,
    Fault,
    Crash,
}

const STEPS: [(usize, Step); 14] = [
    (240, Step::Ask),
    (60, Step::AskDirectly),
    (200, Step::Poll),
    (300, Step::Commit),
    (90, Step::Read),
    (25, Step::Bookmark),
    (12, Step::NewFollower),
    (12, Step::Cut),
    (30, Step::List),
    (6, Step::Past),
    (35, Step::Janitor),
    (12, Step::Wait),
    (10, Step::Fault),
    (5, Step::Crash),
];

impl World {
    fn new(plan: Plan) -> World {
        let clock = Arc::new(SimulatedClock::new(plan.seed));
        let disk = Arc::new(Disk::new(plan.sabotage));
        let server = Server::start(&disk, &clock).unwrap_or_else(|why| panic!("an empty log opens: {why}"));
        World {
            plan,
            dice: Dice::new(plan.seed),
            clock,
            disk,
            server,
            twin: Twin::default(),
            orders: BTreeMap::new(),
            pending: Vec::new(),
            followers: Vec::new(),
            listers: Vec::new(),
            seen: VecDeque::new(),
            acknowledged: BTreeMap::new(),
            refused: BTreeSet::new(),
            next_id: 0,
            last_trouble: 0,
            crashes: 0,
            trace: Vec::new(),
        }
    }

    /// The whole simulation: a beginning, many steps, and coming to rest.
    fn live(&mut self) -> Verdict {
        for name in NAMESPACES {
            let order = workload::bootstrap(&self.server.engine.snapshot(), name);
            self.ask(order);
        }
        self.settle()?;
        for _ in 0..self.plan.watchers {
            self.followers.push(Follower::draw(&mut self.dice, &self.server.engine));
        }
        for _ in 0..self.plan.steps {
            let step = self.dice.weighted(&STEPS);
            self.step(step)?;
        }
        self.rest()
    }

    fn step(&mut self, step: Step) -> Verdict {
        match step {
            Step::Ask if self.pending.len() < self.plan.clients => {
                let seen = self.some_snapshot();
                let id = self.id("c");
                let order = workload::order(&mut self.dice, &seen, id);
                self.ask(order);
                // Mostly it is decided at once; else the decision comes later than others'.
                if self.dice.chance(80) { self.poll(self.pending.len() - 1) } else { Ok(()) }
            }
            Step::AskDirectly if self.pending.len() < self.plan.clients => {
                let seen = self.some_snapshot();
                let id = self.id("d");
                let order = workload::order(&mut self.dice, &seen, id);
                self.ask_directly(order, seen)
            }
            Step::Ask | Step::AskDirectly | Step::Poll => {
                if self.pending.is_empty() {
                    return Ok(());
                }
                let at = self.dice.below(self.pending.len());
                self.poll(at)
            }
            Step::Commit => {
                let count = 1 + self.dice.below(5);
                self.commit(count)
            }
            Step::Read => self.with_follower(|follower, twin, dice| {
                let count = 1 + dice.below(6);
                follower.read(twin, count).map(drop)
            }),
            Step::Bookmark => self.with_follower(|follower, twin, _| follower.bookmark(twin)),
            Step::NewFollower => {
                let at = self.dice.below(self.plan.watchers);
                self.followers[at] = Follower::draw(&mut self.dice, &self.server.engine);
                self.note(format!("watcher {at} starts"));
                Ok(())
            }
            Step::Cut => {
                let at = self.dice.below(self.followers.len());
                if self.followers[at].is_cut() {
                    self.followers[at].resume(&self.server.engine);
                } else {
                    self.followers[at].cut();
                }
                self.note(format!("watcher {at} is cut: {}", self.followers[at].is_cut()));
                Ok(())
            }
            Step::List => self.list(),
            Step::Past => {
                let newest = self.server.engine.snapshot().offset.0;
                let offset = 1 + self.dice.below(newest as usize) as u64;
                self.note(format!("reads version {offset}"));
                check_past(&self.server.engine, &self.twin, offset)
            }
            Step::Janitor => {
                self.tidy();
                Ok(())
            }
            Step::Wait => {
                let milliseconds = if self.dice.chance(10) { 400_000 } else { 1 + self.dice.below(20_000) as i64 };
                self.clock.advance(milliseconds);
                self.note(format!("{milliseconds} ms pass"));
                Ok(())
            }
            Step::Fault => {
                let fault = self.dice.pick(&[Planned::Full, Planned::Lost, Planned::Unacknowledged]);
                let recoveries = self.dice.below(4);
                self.disk.log.plan(fault);
                self.disk.log.refuse_recoveries(recoveries);
                self.note(format!("the next append meets {fault:?}, and {recoveries} recoveries fail"));
                Ok(())
            }
            Step::Crash => {
                if self.dice.chance(40) {
                    // In the middle of a commit: durable, or not, but nobody was told.
                    let fault = self.dice.pick(&[Planned::Lost, Planned::Unacknowledged]);
                    self.disk.log.plan(fault);
                    self.commit(4)?;
                }
                self.crash()
            }
        }
    }

    fn id(&mut self, who: &str) -> String {
        self.next_id += 1;
        format!("{who}{}", self.next_id)
    }

    fn note(&mut self, line: String) {
        self.trace.push(line);
    }

    /// The newest snapshot, or one that somebody has looked at for too long.
    fn some_snapshot(&mut self) -> Arc<State> {
        if self.seen.is_empty() || self.dice.chance(60) {
            return self.server.engine.snapshot();
        }
        let at = self.dice.below(self.seen.len());
        self.seen[at].clone()
    }

    /// A client asks the engine, which decides as soon as it is polled.
    fn ask(&mut self, order: Order) {
        self.note(order.describe());
        let engine = self.server.engine.clone();
        let request = order.request.clone();
        let future = Box::pin(async move {
            match engine.mutate(&request).await {
                Ok(reply) => Outcome::Reply(reply),
                Err(refusal) => Outcome::Refusal(refusal),
            }
        });
        self.enlist(order, self.server.engine.snapshot().offset.0, false, future);
    }

    /// A decision on a snapshot that may be stale, handed to the writer as it is.
    fn ask_directly(&mut self, order: Order, seen: Arc<State>) -> Verdict {
        self.note(format!("{} on version {}", order.describe(), seen.offset));
        let engine = self.server.engine.clone();
        let stamp = self.clock.stamp();
        let window = Window { from: seen.offset.0, to: seen.offset.0, trouble: false };
        if order.request.options.dry_run {
            return Ok(());
        }
        match decide::decide(&seen, engine.settings(), &order.request, stamp) {
            Err(refusal) => oracle::check_refusal(&self.twin, &order, &refusal, window)
                .map_err(|why| format!("{why}\n  asked by {}", order.describe())),
            Ok(decision) => {
                let actor = decide::actor(&order.request);
                let future = Box::pin(async move {
                    match engine.submit(decision, actor, stamp).await {
                        Ok(reply) => Outcome::Reply(reply),
                        Err(rejection) => Outcome::Rejection(rejection),
                    }
                });
                self.enlist(order, seen.offset.0, true, future);
                Ok(())
            }
        }
    }

    fn enlist(&mut self, order: Order, from: u64, direct: bool, future: Pin<Box<dyn Future<Output = Outcome>>>) {
        let id = order.request.id.clone();
        self.orders.insert(id.clone(), order);
        self.pending.push(Pending { id, from, since: self.trace.len(), direct, future });
    }

    /// One client looks whether its answer is there; the first look makes the decision.
    fn poll(&mut self, at: usize) -> Verdict {
        let pending = &mut self.pending[at];
        let Poll::Ready(outcome) = pending.future.as_mut().poll(&mut Context::from_waker(Waker::noop())) else {
            let line = format!("{} waits", pending.id);
            self.note(line);
            return Ok(());
        };
        let Pending { id, from, since, direct, .. } = self.pending.swap_remove(at);
        let to = self.server.engine.snapshot().offset.0;
        let trouble = self.last_trouble >= since || !self.disk.log.is_healthy();
        let window = Window { from, to, trouble };
        let order = self.orders[&id].clone();
        let judged = match &outcome {
            Outcome::Reply(reply) => {
                self.note(format!("{id} is told {}", told(reply)));
                self.acknowledge(&id);
                oracle::check_reply(&self.twin, &order, reply, window)
            }
            Outcome::Refusal(refusal) => {
                self.note(format!("{id} is refused: {refusal:?}"));
                // After a failure nobody knows whether it is durable; any other refusal is final.
                if !matches!(refusal, Refusal::Internal(_)) {
                    self.refused.insert(id.clone());
                }
                oracle::check_refusal(&self.twin, &order, refusal, window)
            }
            Outcome::Rejection(rejection) => {
                self.note(format!("{id} is rejected: {rejection:?}"));
                if !matches!(rejection, Rejection::Failed(_)) {
                    self.refused.insert(id.clone());
                }
                match rejection {
                    Rejection::Stale if direct => Ok(()),
                    _ if trouble => Ok(()),
                    _ => Err(format!("nothing explains the rejection {rejection:?}")),
                }
            }
        };
        judged.map_err(|why| format!("{why}\n  asked by {}", order.describe()))
    }

    fn acknowledge(&mut self, id: &str) {
        for offset in self.twin.by_request.get(id).into_iter().flatten() {
            if let Some(record) = self.twin.record(*offset) {
                self.acknowledged.insert(*offset, record.clone());
            }
        }
    }

    /// The writer takes up to `count` decisions and commits them as one batch.
    fn commit(&mut self, count: usize) -> Verdict {
        let mut batch: Vec<Command> = std::iter::from_fn(|| self.server.queue.try_recv().ok())
            .filter_map(|input| match input {
                Input::Commit(command) => Some(command),
                Input::Stop => None,
            })
            .take(count)
            .collect();
        let decisions = batch.len();
        if !self.disk.log.is_healthy() {
            self.last_trouble = self.trace.len();
        }
        self.server.writer.commit(&mut batch);
        self.note(format!("{decisions} decisions: {}", self.server.engine.snapshot().offset));
        self.remember_snapshot();
        self.learn()
    }

    fn remember_snapshot(&mut self) {
        self.seen.push_back(self.server.engine.snapshot());
        if self.seen.len() > SNAPSHOTS {
            self.seen.pop_front();
        }
    }

    /// Reads what became durable and judges it.
    fn learn(&mut self) -> Verdict {
        let records =
            self.disk.log.scan(None, Offset(self.twin.last()), usize::MAX).map_err(|fault| fault.to_string())?;
        for record in records {
            let order = self.orders.get(&record.actor.request_id);
            oracle::check_record(&self.twin, &record, order)?;
            let refused = self.refused.contains(&record.actor.request_id);
            let (offset, touches_many) = (record.offset, record.is_delete() || record.replaces == 0);
            let service = record.resource == crate::shape::Sort::Service.storage();
            self.twin.push(record)?;
            if refused {
                return Err(format!("event {offset} comes of a request that was refused"));
            }
            if service {
                oracle::check_addresses(&self.twin)?;
            }
            if touches_many {
                oracle::check_namespaces(&self.twin)?;
            }
        }
        Ok(())
    }

    fn with_follower(&mut self, act: impl FnOnce(&mut Follower, &Twin, &mut Dice) -> Verdict) -> Verdict {
        let at = self.dice.below(self.followers.len());
        act(&mut self.followers[at], &self.twin, &mut self.dice)?;
        self.note(format!("watcher {at} reads"));
        Ok(())
    }

    fn list(&mut self) -> Verdict {
        if self.listers.len() < 3 {
            self.listers.push(Lister::draw(&mut self.dice));
        }
        let at = self.dice.below(self.listers.len());
        let done = self.listers[at].turn(&self.server.engine, &self.twin, self.clock.now_ms())?;
        if done {
            self.listers.swap_remove(at);
        }
        self.note(format!("lister {at} turns a page, done: {done}"));
        Ok(())
    }

    /// The janitor makes a few of the steps that its plan has now.
    fn tidy(&mut self) -> usize {
        let seen = self.some_snapshot();
        let steps = namespace::plan(&seen, self.clock.stamp());
        let count = steps.len();
        for step in steps.into_iter().take(4) {
            let id = self.id("house");
            if let Some(order) = workload::house(&seen, step, id) {
                self.ask(order);
            }
        }
        count
    }

    /// The server dies with all that it had not made durable, and starts again.
    fn crash(&mut self) -> Verdict {
        self.crashes += 1;
        let before = self.server.engine.snapshot();
        oracle::check_state(&self.twin, &before).map_err(|why| format!("before the crash: {why}"))?;
        self.pending.clear();
        self.seen.clear();
        self.followers.iter_mut().for_each(Follower::cut);
        self.disk = Arc::new(self.disk.survivor().map_err(|fault| fault.to_string())?);
        self.server = Server::start(&self.disk, &self.clock)?;
        let after = self.server.engine.snapshot();
        self.note(format!("crash at {}, restart at {}", before.offset, after.offset));
        for (offset, record) in &self.acknowledged {
            let found = self.disk.log.read(Offset(*offset)).map_err(|fault| fault.to_string())?;
            if found.as_ref() != Some(record) {
                return Err(format!("event {offset} was acknowledged and is lost"));
            }
        }
        self.learn()?;
        if after.offset.0 != self.twin.last() {
            return Err(format!("it restarts at {} where the log ends at {}", after.offset, self.twin.last()));
        }
        oracle::check_state(&self.twin, &after).map_err(|why| format!("after the restart: {why}"))?;
        for follower in &mut self.followers {
            follower.resume(&self.server.engine);
        }
        Ok(())
    }

    /// Lets everything that is under way end.
    fn settle(&mut self) -> Verdict {
        for _ in 0..1000 {
            if self.pending.is_empty() {
                return Ok(());
            }
            for at in (0..self.pending.len()).rev() {
                self.poll(at)?;
            }
            self.commit(3)?;
        }
        Err(format!("{} requests never end", self.pending.len()))
    }

    /// No more requests: the janitor finishes, watchers catch up, and after one more crash all is as it was.
    fn rest(&mut self) -> Verdict {
        self.settle()?;
        for round in 0.. {
            self.commit(1)?;
            self.seen.clear();
            if self.tidy() == 0 && !self.disk.log.is_broken() {
                break;
            }
            if round > 200 {
                return Err("the janitor never ends".into());
            }
            self.settle()?;
        }
        self.settle()?;
        oracle::check_rest(&self.twin)?;
        let published = self.server.engine.snapshot().offset.0;
        if published != self.twin.last() {
            return Err(format!("{published} is published, and the log ends at {}", self.twin.last()));
        }
        for follower in &mut self.followers {
            if follower.is_cut() {
                follower.resume(&self.server.engine);
            }
            while !follower.read(&self.twin, 16)? {}
            follower.check(&self.twin, published)?;
        }
        self.crash()
    }
}

impl Server {
    fn start(disk: &Arc<Disk>, clock: &Arc<SimulatedClock>) -> Result<Server, String> {
        let settings = Settings {
            service_range: "10.0.0.0/29".parse()?,
            node_ports: (30000, 30000 + oracle::NODE_PORTS as u16 - 1),
            ..Settings::default()
        };
        let options = Options { settings, clock: clock.clone() };
        let registry = Arc::new(registry().clone());
        let (engine, writer, queue) = Engine::assemble(disk.clone(), registry, options, Hub::with_queues(QUEUE_EVENTS))
            .map_err(|fault| format!("the server does not start: {fault}"))?;
        Ok(Server { engine, writer, queue })
    }
}

fn told(reply: &Reply) -> String {
    match reply {
        Reply::Object { entry, code, .. } => format!("{code}, version {}", entry.offset),
        Reply::Document { code, .. } => format!("{code}"),
        Reply::Deleted { subject, .. } => format!("that {subject} is gone"),
    }
}
