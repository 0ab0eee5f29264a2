//! The engine as transports see it: snapshots to read, decisions to make durable, watches to follow.

use crate::forked::{ForkedLog, Holds, Room};
use crate::gather::{Expected, PATIENCE};
use crate::hub::Hub;
use crate::large::{Large, aside};
use crate::limits::Limits;
use crate::load::load;
use crate::log::sealing::{InPlain, Prepared, Sealing};
use crate::log::{Fault, Log};
use crate::newest::Newest;
use crate::past::{Memory, View};
use crate::pins::{Cut, Kept, Pins};
use crate::planted::{Bug, planted};
use crate::queue::{Health, Queue, Unsent};
use crate::read_memory::Reader;
use crate::reads::{Length, Reads};
use crate::turns::Turns;
use crate::watch::{Watch, WatchStart};
use crate::writer::{Command, Input, Rejection, Writer};
use arc_swap::ArcSwap;
use async_trait::async_trait;
use crossbeam::channel::Receiver;
use holdfast_core::Refusal;
use holdfast_core::admission::Call;
use holdfast_core::authz::Mode;
use holdfast_core::authz::webhook::{self, Question};
use holdfast_core::event::{Actor, Offset};
use holdfast_core::kinds::{Kind, Registry};
use holdfast_core::list::{Continue, Freshness, Selection, TokenKey};
use holdfast_core::object::meta::Document;
use holdfast_core::pipeline::{Expectation, Settings, SignedToken, TokenClaims, Write};
use holdfast_core::refusal::{Expired, Timeout, Unavailable};
use holdfast_core::stamp::Stamp;
use holdfast_core::state::{Entry, State};
use holdfast_value::Value;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use tokio::sync::oneshot;

/// How many decisions may wait for the writer before the server says that it is busy.
const QUEUE_COMMANDS_MAX: usize = 4096;
/// The same at a fork, where nothing waits for a disk, and hundreds have a queue each.
const FORK_COMMANDS_MAX: usize = 1024;
/// How long a read of a version that is not there yet waits for it.
const FUTURE_VERSION_WAIT: Duration = Duration::from_secs(3);

/// Where time and seeds come from.
pub trait Clock: Send + Sync + 'static {
    fn stamp(&self) -> Stamp;

    /// Resolves after this long. A clock that goes when it is told to may never let it.
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(tokio::time::sleep(duration))
    }
}

#[derive(Clone)]
pub struct Options {
    pub settings: Settings,
    pub clock: Arc<dyn Clock>,
    /// Who closes the values of the log's events, where somebody does.
    pub sealing: Option<Arc<dyn Sealing>>,
}

impl Options {
    /// For a log that keeps values as they are.
    pub fn new(settings: Settings, clock: Arc<dyn Clock>) -> Options {
        Options { settings, clock, sealing: None }
    }
}

/// What decisions need from outside, and only the shell can do.
#[async_trait]
pub trait Outside: Send + Sync + 'static {
    /// The objects in the version asked for, in the same order. `webhook` is the definition's
    /// `spec.conversion.webhook`.
    async fn convert(
        &self,
        kind: &Kind,
        webhook: &Value,
        to: &str,
        objects: Vec<Value>,
    ) -> Result<Vec<Document>, Refusal>;

    /// Asks a webhook what it thinks of a write: the body of its answer, or why there is none.
    async fn review(&self, call: &Call) -> Result<Vec<u8>, String>;

    /// Asks a webhook what a user may do.
    async fn authorize(&self, question: &Question) -> webhook::Answer;

    /// Asks whether images may run: the status of the ImageReview, or why there is none.
    async fn judge_images(&self, review: &Value) -> Result<Value, String> {
        let _ = review;
        Err("nobody is there to ask".into())
    }

    /// A token that says this.
    async fn sign(&self, claims: &TokenClaims) -> Result<SignedToken, Refusal>;
}

pub struct Engine {
    published: Arc<ArcSwap<State>>,
    hub: Arc<Hub>,
    log: Arc<dyn Log>,
    queue: Queue,
    pins: Arc<Pins>,
    past: Memory,
    reads: Reads,
    built_in: Arc<Registry>,
    options: Options,
    outside: OnceLock<Arc<dyn Outside>>,
    turns: Turns,
    large: Large,
    limits: Limits,
    newest: Newest,
    /// The versions that forks of it began at.
    holds: Holds,
}

impl Engine {
    /// Folds the log into a state and starts the writer.
    pub fn open(log: Arc<dyn Log>, registry: Arc<Registry>, options: Options) -> Result<Arc<Engine>, Fault> {
        Engine::open_patient(log, registry, options, PATIENCE)
    }

    /// The same with a writer that waits so long for requests that [`Engine::expect`] has told of.
    pub fn open_patient(
        log: Arc<dyn Log>,
        registry: Arc<Registry>,
        options: Options,
        patience: Duration,
    ) -> Result<Arc<Engine>, Fault> {
        let hub = Hub::default();
        let (engine, writer, queue) =
            Engine::assembled(log, registry, options, hub, (QUEUE_COMMANDS_MAX, Reads::default()))?;
        engine.queue.start(writer, queue, patience)?;
        Ok(engine)
    }

    /// The same without a thread: the caller takes commands from the queue, which holds so many at most, and hands them
    /// to the writer; the log is read where it is asked for.
    pub fn assemble(
        log: Arc<dyn Log>,
        registry: Arc<Registry>,
        options: Options,
        hub: Hub,
        commands_max: usize,
    ) -> Result<(Arc<Engine>, Writer, Receiver<Input>), Fault> {
        Engine::assembled(log, registry, options, hub, (commands_max, Reads::here()))
    }

    fn assembled(
        log: Arc<dyn Log>,
        registry: Arc<Registry>,
        options: Options,
        hub: Hub,
        how: (usize, Reads),
    ) -> Result<(Arc<Engine>, Writer, Receiver<Input>), Fault> {
        let state = load(log.as_ref(), registry.clone())?;
        Engine::over(log, (state, registry), options, hub, how)
    }

    /// Over a log whose state is known.
    fn over(
        log: Arc<dyn Log>,
        (mut state, built_in): (State, Arc<Registry>),
        mut options: Options,
        hub: Hub,
        (commands_max, reads): (usize, Reads),
    ) -> Result<(Arc<Engine>, Writer, Receiver<Input>), Fault> {
        options.settings.token_key = TokenKey(log.secret()?);
        if state.nodes.is_none() && options.settings.authorization.now().has(Mode::Node) {
            state.follow_nodes();
        }
        let hub = Arc::new(hub);
        hub.start_at(state.offset);
        let published = Arc::new(ArcSwap::from_pointee(state.clone()));
        let (queue, outputs) = Queue::new(commands_max);
        let pins = Pins::new(reads.memory().clone());
        let writer = Writer::new(state, log.clone(), published.clone(), hub.clone(), pins.clone());
        log.wake_by(queue.wake(&writer));
        let engine = Engine {
            published,
            hub,
            log,
            queue,
            pins,
            past: Memory::default(),
            reads,
            built_in,
            options,
            outside: OnceLock::new(),
            turns: Turns::default(),
            large: Large::default(),
            limits: Limits::default(),
            newest: Newest::default(),
            holds: Holds::default(),
        };
        Ok((Arc::new(engine), writer, outputs))
    }

    /// Another cluster in memory, which begins as this one is, or was at a version that the log remembers. It shares
    /// what the two have in common, and takes from `room` what it writes. Of the newest version it takes no time
    /// to speak of; an older one is folded from the log first.
    pub async fn fork(self: &Arc<Self>, at: Option<Offset>, room: &Room) -> Result<Arc<Engine>, Fault> {
        let newest = self.snapshot();
        let at = at.filter(|at| *at != newest.offset);
        let begin = at.unwrap_or(newest.offset);
        let held = self.holds.hold(begin);
        let id = self.stamp().uid(0);
        let secret = self.token_key().derived(&format!("fork {id}")).0;
        let log = ForkedLog::new(self.log.clone(), begin, Some(held), (id, secret), room.clone());
        let log: Arc<dyn Log> = Arc::new(log);
        let state = match at {
            None => State::clone(&newest),
            Some(_) => {
                let (forked, built_in) = (log.clone(), self.built_in.clone());
                self.reads.run(move || load(forked.as_ref(), built_in)).await?
            }
        };
        let oldest = self.log.oldest()?;
        if begin < oldest {
            return Err(Fault::Forgotten { asked: begin, oldest });
        }
        let hub = Hub::beside(&self.hub);
        let in_plain: Arc<dyn Sealing> = Arc::new(InPlain { base_encrypts: self.encrypts() });
        let options = Options { sealing: Some(in_plain), ..self.options.clone() };
        let how = (FORK_COMMANDS_MAX, self.reads.clone());
        let (engine, writer, queue) = Engine::over(log, (state, self.built_in.clone()), options, hub, how)?;
        engine.queue.turn_here(writer, queue);
        Ok(engine)
    }

    /// How far history may be let go.
    pub fn holds(&self) -> &Holds {
        &self.holds
    }

    /// Resolves when the writer has died, and says of what. Nothing can be written any more: the process should end.
    pub async fn died(&self) -> String {
        self.queue.died().await
    }

    /// Asks the writer how it is.
    pub async fn health(&self, patience: Duration) -> Health {
        self.queue.health(patience).await
    }

    /// Has the writer wait a moment for what this request may hand over, so that it shares a write to the disk with others.
    pub fn expect<F>(&self, request: F) -> Expected<F> {
        self.queue.expect(request)
    }

    /// Lets the writer finish what it was handed, and ends it: later writes are refused.
    pub fn close(&self) {
        self.queue.close();
    }

    /// The newest state. Costs a pointer.
    pub fn snapshot(&self) -> Arc<State> {
        self.published.load_full()
    }

    pub fn hub(&self) -> &Arc<Hub> {
        &self.hub
    }

    pub fn log(&self) -> &Arc<dyn Log> {
        &self.log
    }

    /// Whether the log keeps values of some resources encrypted. Whoever reads it here has them in plain.
    pub fn encrypts(&self) -> bool {
        self.sealing().is_some_and(|sealing| sealing.encrypts())
    }

    pub(crate) fn sealing(&self) -> Option<&Arc<dyn Sealing>> {
        self.options.sealing.as_ref()
    }

    /// Where the log is read, for whoever reads it.
    pub fn reads(&self) -> &Reads {
        &self.reads
    }

    pub fn stamp(&self) -> Stamp {
        self.options.clock.stamp()
    }

    pub fn settings(&self) -> &Settings {
        &self.options.settings
    }

    pub(crate) fn clock(&self) -> &dyn Clock {
        self.options.clock.as_ref()
    }

    /// Has work done that takes time in proportion to so many bytes, which are a user's: on the worker where they are
    /// few, else beside it, when it is the user's turn.
    pub async fn by_size<T>(&self, user: &str, bytes: usize, work: impl FnOnce() -> T) -> T {
        match self.large.turn(user, bytes).await {
            Some(_place) => aside(work),
            None => work(),
        }
    }

    pub(crate) fn large(&self) -> &Large {
        &self.large
    }

    pub(crate) fn turns(&self) -> &Turns {
        &self.turns
    }

    /// Has done there from now on what decisions need from outside. Whoever does it needs the engine first.
    pub fn set_outside(&self, outside: Arc<dyn Outside>) {
        // The first one stays; a server has one.
        let _ = self.outside.set(outside);
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    pub(crate) fn outside(&self) -> Option<&Arc<dyn Outside>> {
        self.outside.get()
    }

    /// Hands writes to the writer and waits until they are durable.
    pub(crate) async fn commit(
        &self,
        writes: Vec<Write>,
        expects: Vec<Expectation>,
        actor: Actor,
        stamp: Stamp,
    ) -> Result<Vec<Arc<Entry>>, Rejection> {
        if let Some(sealing) = self.sealing() {
            self.prepare_values(sealing.as_ref(), &writes).await?;
        }
        let (sender, receiver) = oneshot::channel();
        let command = Command { writes, expects, actor, time_ms: stamp.time.as_millisecond(), answer: sender };
        self.queue.hand_over(Input::Commit(Box::new(command))).map_err(|unsent| match unsent {
            Unsent::Full(_) => Rejection::Poisoned("too many writes are waiting; please try again".into()),
            Unsent::Gone(why) => Rejection::Poisoned(why),
        })?;
        let stopped = |_| Err(Rejection::Failed("the writer stopped before it answered".into()));
        receiver.await.unwrap_or_else(stopped)
    }

    /// Has fetched what it takes to close the values of the writes: the writer waits for nobody.
    async fn prepare_values(&self, sealing: &dyn Sealing, writes: &[Write]) -> Result<(), Rejection> {
        let prepared: Vec<Prepared> = {
            let state = self.snapshot();
            writes.iter().filter_map(|write| sealing.prepare(&state.kind(write.kind).storage)).collect()
        };
        for prepared in prepared {
            prepared.await.map_err(|fault| Rejection::Failed(fault.to_string()))?;
        }
        Ok(())
    }

    /// What seals continue tokens.
    pub fn token_key(&self) -> &TokenKey {
        &self.options.settings.token_key
    }

    /// What a list wants to read, and where in it to go on.
    pub async fn view_for(self: &Arc<Self>, freshness: Freshness, from: Option<&Continue>) -> Result<View, Refusal> {
        self.view_by(&Reader::SERVER, freshness, from).await
    }

    /// The same for somebody, whose turn and whose memory reads of the past take.
    pub async fn view_by(
        self: &Arc<Self>,
        reader: &Reader,
        freshness: Freshness,
        from: Option<&Continue>,
    ) -> Result<View, Refusal> {
        match (from, freshness) {
            (Some(token), _) => self.view_of(token, reader).await,
            (None, Freshness::Newest) if planted(Bug::StaleRead) && self.snapshot().offset.0 % 7 == 6 => {
                self.past(Offset(self.snapshot().offset.0 - 1)).await
            }
            (None, Freshness::Newest) => {
                if !planted(Bug::OthersUnread) {
                    self.catch_up().await?;
                }
                Ok(View::of(self.snapshot()))
            }
            (None, Freshness::NotOlderThan(offset)) => {
                self.reach(offset).await?;
                Ok(View::of(self.snapshot()))
            }
            (None, Freshness::Exact(offset)) => {
                self.reach(offset).await?;
                match self.kept(offset) {
                    Some(state) => Ok(View::of(state).named(true)),
                    None => self.past_for(offset, reader).await,
                }
            }
        }
    }

    /// What a list goes on with. One that began with the newest state must go on soon, whatever the log remembers.
    async fn view_of(self: &Arc<Self>, token: &Continue, reader: &Reader) -> Result<View, Refusal> {
        let offset = Offset(token.version);
        if planted(Bug::TokenOfNewest) {
            return Ok(View::of(self.snapshot()).named(token.past));
        }
        if let Some(state) = self.kept(offset) {
            return Ok(View::of(state).named(token.past));
        }
        let expired = || Refusal::Expired(Expired::List(offset));
        if offset > self.snapshot().offset {
            return Err(expired());
        }
        if !token.past {
            let log = self.log.clone();
            let since = self.reads.run_for(reader, Length::Short, move || log.next_time(offset)).await;
            let since = since.map_err(Refusal::fault)?;
            let limit_ms = self.stamp().time.as_millisecond() - crate::pins::LIFETIME.as_millis() as i64;
            if since.is_some_and(|(_, time_ms)| time_ms < limit_ms) {
                return Err(expired());
            }
        }
        Ok(self.past_for(offset, reader).await?.named(token.past))
    }

    /// The newest state or one that was kept, if it is of this version.
    pub(crate) fn kept(&self, offset: Offset) -> Option<Arc<State>> {
        let newest = self.snapshot();
        if newest.offset == offset { Some(newest) } else { self.pins.get(offset) }
    }

    pub(crate) fn past_memory(&self) -> &Memory {
        &self.past
    }

    /// The kinds that there are before any definition.
    pub(crate) fn built_in(&self) -> &Arc<Registry> {
        &self.built_in
    }

    /// Keeps the snapshot for the pages that follow, as the reader's.
    pub fn pin(&self, state: &Arc<State>, reader: &Reader) {
        self.pins.pin(state, reader);
    }

    /// Counts as the reader's what an answer made of the newest state keeps of it, and has it cut when others need the
    /// memory.
    pub fn keep(&self, reader: &Reader, cut: Weak<dyn Cut>) -> Result<Kept, Refusal> {
        self.pins.keep(&self.snapshot(), reader, Some(cut))
    }

    pub(crate) fn pins(&self) -> &Arc<Pins> {
        &self.pins
    }

    /// Whether other servers write to the log, so that the newest state here may be older than the log.
    pub fn is_shared(&self) -> bool {
        self.log.is_shared()
    }

    /// Sees to it that the state is no older than the log was when this was called. Costs nothing where this server alone
    /// writes to it.
    pub async fn catch_up(&self) -> Result<(), Refusal> {
        if !self.is_shared() {
            return Ok(());
        }
        let newest = self.newest.ask(&self.log, &self.reads).await.map_err(unreachable)?;
        self.reach(newest).await
    }

    /// Waits a little for a version that is yet to come.
    pub async fn reach(&self, offset: Offset) -> Result<(), Refusal> {
        let deadline = tokio::time::Instant::now() + FUTURE_VERSION_WAIT;
        loop {
            let committed = self.hub.committed().notified();
            let current = self.snapshot().offset;
            if current >= offset {
                return Ok(());
            }
            if tokio::time::timeout_at(deadline, committed).await.is_err() {
                return Err(Refusal::Timeout(Timeout::Version { asked: offset, newest: current }));
            }
        }
    }

    /// Follows what the selection picks.
    pub fn watch(self: &Arc<Self>, selection: Selection, start: WatchStart) -> Watch {
        Watch::new(self.clone(), selection, start)
    }

    /// Follows what the selection picks up to the version of the view, behind which nothing comes.
    pub async fn watch_past(
        self: &Arc<Self>,
        view: View,
        selection: Selection,
        start: WatchStart,
    ) -> Result<Watch, Refusal> {
        Watch::still(self.clone(), view, selection, start).await
    }
}

/// Why it cannot be asked how far the log is: nobody is told of a state that may be old.
fn unreachable(fault: Fault) -> Refusal {
    Refusal::Unavailable(Unavailable::Log(fault.to_string()))
}
