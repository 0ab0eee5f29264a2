//! The engine as transports use it: snapshots to read, decisions to make durable, watches to follow.

use crate::commit::{Command, Rejection};
use crate::forked::{ForkedLog, Holds, Room};
use crate::gather::{Expected, PATIENCE};
use crate::hub::Hub;
use crate::large::Large;
use crate::limits::Limits;
use crate::load::load;
use crate::log::sealing::{InPlain, Prepared, Sealing};
use crate::log::{Fault, Log, Unreadable};
use crate::newest::Newest;
use crate::past_cache::PastCache;
use crate::pins::{Cut, Kept, Pins};
use crate::queue::{Health, Queue, Unsent};
use crate::read_memory::Reader;
use crate::reads::Reads;
use crate::turns::Turns;
use crate::writer::{Input, Writer};
use arc_swap::ArcSwap;
use async_trait::async_trait;
use crossbeam::channel::Receiver;
use futures_util::future::select_all;
use holdfast_background::run_low_priority;
use holdfast_core::Refusal;
use holdfast_core::admission::Call;
use holdfast_core::authz::chain::Way;
use holdfast_core::authz::webhook::{self, Question};
use holdfast_core::authz::{Chain, Mode};
use holdfast_core::event::{Actor, Offset};
use holdfast_core::kinds::{Kind, Registry};
use holdfast_core::list::TokenKey;
use holdfast_core::object::meta::Document;
use holdfast_core::pipeline::{self, Expectation, Settings, SignedToken, TokenClaims, Write};
use holdfast_core::refusal::{Timeout, Unavailable};
use holdfast_core::request::Request;
use holdfast_core::stamp::Stamp;
use holdfast_core::state::{Entry, State};
use holdfast_value::Value;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use tokio::sync::oneshot;

mod apart;

pub use apart::Apart;
use apart::Family;

/// The maximum number of decisions that wait for the writer. If there are more, the server answers that it is busy.
const QUEUE_COMMANDS_MAX: usize = 4096;
/// The maximum number of waiting decisions of a fork. A fork does not wait for a disk, and a process may have hundreds
/// of forks with a queue each.
const FORK_COMMANDS_MAX: usize = 1024;
/// How long a read waits for a version that is not written yet.
const FUTURE_VERSION_WAIT: Duration = Duration::from_secs(3);

/// The source of time and of random seeds.
pub trait Clock: Send + Sync + 'static {
    fn stamp(&self) -> Stamp;

    /// Resolves after `duration`. A simulated clock advances only when the test advances it, so this may never resolve.
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(tokio::time::sleep(duration))
    }
}

#[derive(Clone)]
pub struct Options {
    pub settings: Settings,
    /// How requests are authorized. A reload of the configuration file replaces the chain; each judgement uses the
    /// chain that is current when the request is judged.
    pub authorization: Arc<ArcSwap<Chain>>,
    pub clock: Arc<dyn Clock>,
    /// Encrypts the values of the log's events; `None` if they are stored unencrypted.
    pub sealing: Option<Arc<dyn Sealing>>,
}

impl Options {
    /// Options for an engine that allows every request, and for a log that stores values unencrypted.
    pub fn new(settings: Settings, clock: Arc<dyn Clock>) -> Options {
        let authorization = Arc::new(ArcSwap::new(Chain::always_allow().clone()));
        Options { settings, authorization, clock, sealing: None }
    }

    /// These options, with `way` as the only authorizer.
    pub fn authorized_by(self, way: Way) -> Options {
        Options { authorization: Arc::new(ArcSwap::from_pointee(Chain::new(vec![way]))), ..self }
    }
}

/// Effects outside the core that a decision needs, such as webhook calls. The server implements them.
#[async_trait]
pub trait Outside: Send + Sync + 'static {
    /// Converts objects into the requested version, in the same order. `webhook` is the definition's
    /// `spec.conversion.webhook`.
    async fn convert(
        &self,
        kind: &Kind,
        webhook: &Value,
        to: &str,
        objects: Vec<Value>,
    ) -> Result<Vec<Document>, Refusal>;

    /// Sends an admission review to a webhook. Returns the body of the answer, or the reason why there is none.
    async fn review(&self, call: &Call) -> Result<Vec<u8>, String>;

    /// Asks an authorization webhook whether a user may do something.
    async fn authorize(&self, question: &Question) -> webhook::Answer;

    /// Asks whether images may run. Returns the status of the ImageReview, or the reason why there is none.
    async fn judge_images(&self, review: &Value) -> Result<Value, String> {
        let _ = review;
        Err("no image policy webhook is configured".into())
    }

    /// Signs a token with these claims.
    async fn sign(&self, claims: &TokenClaims) -> Result<SignedToken, Refusal>;
}

pub struct Engine {
    published: Arc<ArcSwap<State>>,
    hub: Arc<Hub>,
    log: Arc<dyn Log>,
    queue: Queue,
    pins: Arc<Pins>,
    past: PastCache,
    reads: Reads,
    built_in: Arc<Registry>,
    options: Options,
    outside: OnceLock<Arc<dyn Outside>>,
    turns: Turns,
    large: Large,
    limits: Limits,
    newest: Arc<Newest>,
    /// The versions at which forks of this engine's log begin. Retention must not remove the history after these
    /// versions.
    holds: Holds,
    /// The relation to other engines, if objects of some kinds are in logs of their own.
    family: OnceLock<Family>,
}

impl Engine {
    /// Opens an engine over a log: folds the log into a state, and starts the writer.
    pub fn open(log: Arc<dyn Log>, registry: Arc<Registry>, options: Options) -> Result<Arc<Engine>, Fault> {
        Engine::open_patient(log, registry, options, PATIENCE)
    }

    /// Like [`Engine::open`], but also sets how long the writer waits at most, before it writes a batch, for requests
    /// that [`Engine::expect`] announced.
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

    /// Like [`Engine::open`], but without a thread: the caller takes commands from the queue, which holds at most
    /// `commands_max`, and passes them to the writer. Reads of the log run on the calling thread.
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

    /// Builds the engine over a log whose state is already loaded.
    fn over(
        log: Arc<dyn Log>,
        (mut state, built_in): (State, Arc<Registry>),
        mut options: Options,
        hub: Hub,
        (commands_max, reads): (usize, Reads),
    ) -> Result<(Arc<Engine>, Writer, Receiver<Input>), Fault> {
        options.settings.token_key = TokenKey(log.secret()?);
        if state.nodes.is_none() && options.authorization.load().has(Mode::Node) {
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
            past: PastCache::default(),
            reads,
            built_in,
            options,
            outside: OnceLock::new(),
            turns: Turns::default(),
            large: Large::default(),
            limits: Limits::default(),
            newest: Arc::default(),
            holds: Holds::default(),
            family: OnceLock::new(),
        };
        Ok((Arc::new(engine), writer, outputs))
    }

    /// An engine over another log of the same server. The new engine shares this engine's threads for reads and the
    /// limits of reads, and its commits wake the requests that wait for commits of this engine.
    pub(crate) fn open_beside(
        &self,
        log: Arc<dyn Log>,
        sealing: Option<Arc<dyn Sealing>>,
    ) -> Result<Arc<Engine>, Fault> {
        let state = load(log.as_ref(), self.built_in.clone())?;
        let how = (QUEUE_COMMANDS_MAX, self.reads.clone());
        let parts = (state, self.built_in.clone());
        let options = Options { sealing, ..self.options.clone() };
        let (engine, writer, queue) = Engine::over(log, parts, options, Hub::of_part(&self.hub), how)?;
        engine.queue.start(writer, queue, PATIENCE)?;
        Ok(engine)
    }

    /// Forks the cluster. The fork is another cluster in memory that begins with this cluster's present state, or with
    /// the state at a version that the log still has. The fork shares the events up to that version; the events that it
    /// writes count against `room`. Forking the newest version takes almost no time; an older version must first be
    /// folded from the log.
    pub async fn fork(self: &Arc<Self>, at: Option<Offset>, room: &Room) -> Result<Arc<Engine>, Fault> {
        let newest = self.own_snapshot();
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

    /// The versions at which forks begin. Forks need the history after these versions.
    pub fn holds(&self) -> &Holds {
        &self.holds
    }

    /// Resolves with the reason when the writer has died. After the writer's death no write can succeed, so the process
    /// should end.
    pub async fn died(&self) -> String {
        let all = std::iter::once(self).chain(self.parts().iter().map(|part| &*part.engine));
        select_all(all.map(|engine| Box::pin(engine.queue.died()))).await.0
    }

    /// Asks the writers for their health. A part whose log refuses writes does not make the whole engine read-only.
    pub async fn health(&self, patience: Duration) -> Health {
        for part in self.parts() {
            if let dead @ Health::Dead(_) = part.engine.queue.health(patience).await {
                return dead;
            }
        }
        self.queue.health(patience).await
    }

    /// Announces a request that may send a decision to the writer. The writer waits briefly for the request, so that
    /// several decisions share one write to the disk.
    pub fn expect<F>(&self, request: F) -> Expected<F> {
        self.queue.expect(request)
    }

    /// Whether the writer waits at this moment for requests that [`Engine::expect`] announced. For tests.
    pub fn is_gathering(&self) -> bool {
        self.queue.is_gathering()
    }

    /// Lets the writer finish the commands in its queue and then ends the writer. Later writes are refused.
    pub fn close(&self) {
        self.parts().iter().for_each(|part| part.engine.queue.close());
        self.queue.close();
    }

    /// The newest state of this engine's own log. Costs one pointer clone.
    pub fn own_snapshot(&self) -> Arc<State> {
        self.published.load_full()
    }

    pub fn hub(&self) -> &Arc<Hub> {
        &self.hub
    }

    pub fn log(&self) -> &Arc<dyn Log> {
        &self.log
    }

    /// Whether the log stores values of some resources encrypted. Reads through the engine return them decrypted.
    pub fn encrypts(&self) -> bool {
        self.sealing().is_some_and(|sealing| sealing.encrypts())
    }

    pub(crate) fn sealing(&self) -> Option<&Arc<dyn Sealing>> {
        self.options.sealing.as_ref()
    }

    /// The pool that runs reads of the log.
    pub fn reads(&self) -> &Reads {
        &self.reads
    }

    pub fn stamp(&self) -> Stamp {
        self.options.clock.stamp()
    }

    pub fn settings(&self) -> &Settings {
        &self.options.settings
    }

    /// The chain of the current authorizers, in the order in which they are asked.
    pub fn authorizers(&self) -> Arc<Chain> {
        self.options.authorization.load_full()
    }

    pub(crate) fn clock(&self) -> &dyn Clock {
        self.options.clock.as_ref()
    }

    /// Runs `work`, whose duration grows with `bytes`, for a user. If `bytes` is small, the work runs on the calling
    /// worker. Otherwise it waits for the user's turn and runs on a thread of its own.
    pub async fn by_size<T: Send>(&self, user: &str, bytes: usize, work: impl FnOnce() -> T + Send) -> T {
        match self.large.turn(user, bytes).await {
            Some(_place) => run_low_priority(work),
            None => work(),
        }
    }

    pub(crate) fn large(&self) -> &Large {
        &self.large
    }

    pub(crate) fn turns(&self) -> &Turns {
        &self.turns
    }

    /// Sets the implementation of effects outside the core. The implementation is set after the engine is built,
    /// because the implementation needs the engine.
    pub fn set_outside(&self, outside: Arc<dyn Outside>) {
        // Only the first call has an effect. A server calls this once.
        let _ = self.outside.set(outside);
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    pub(crate) fn outside(&self) -> Option<&Arc<dyn Outside>> {
        self.outside.get()
    }

    /// Sends writes to this engine's writer and waits until they are durable.
    pub(crate) async fn commit_here(
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

    /// Fetches the encryption keys that the writes need. The keys are fetched before the writes are sent to the writer,
    /// because the writer must not wait.
    async fn prepare_values(&self, sealing: &dyn Sealing, writes: &[Write]) -> Result<(), Rejection> {
        let prepared: Vec<Prepared> = {
            let state = self.own_snapshot();
            writes.iter().filter_map(|write| sealing.prepare(&state.kind(write.kind).storage.path)).collect()
        };
        for prepared in prepared {
            prepared.await.map_err(|fault| Rejection::Failed(fault.to_string()))?;
        }
        Ok(())
    }

    /// The key that seals continue tokens.
    pub fn token_key(&self) -> &TokenKey {
        &self.options.settings.token_key
    }

    /// The state of this version, if the version is the newest or is pinned.
    pub(crate) fn kept(&self, offset: Offset) -> Option<Arc<State>> {
        let newest = self.own_snapshot();
        if newest.offset == offset { Some(newest) } else { self.pins.get(offset) }
    }

    pub(crate) fn past_cache(&self) -> &PastCache {
        &self.past
    }

    /// The registry of the built-in kinds, without kinds that CustomResourceDefinitions define.
    pub(crate) fn built_in(&self) -> &Arc<Registry> {
        &self.built_in
    }

    /// Pins the snapshot for the next pages of a list. Its memory counts as memory of the reader.
    pub fn pin(&self, state: &Arc<State>, reader: &Reader) {
        self.pins.pin(state, reader);
    }

    /// Counts, as the reader's memory, the objects of the newest state that an answer references. If other users need
    /// the memory, `cut` ends the answer.
    pub fn keep(&self, reader: &Reader, cut: Weak<dyn Cut>) -> Result<Kept, Refusal> {
        self.pins.keep(&self.own_snapshot(), reader, Some(cut))
    }

    pub(crate) fn pins(&self) -> &Arc<Pins> {
        &self.pins
    }

    /// The objects of a resource below a key prefix that this log, or the log of a part, cannot read. See
    /// [`Log::unreadable`].
    pub fn unreadable(&self, resource: &str, prefix: &str, limit: usize) -> Vec<Unreadable> {
        let parts = self.parts().iter().flat_map(|part| part.engine.unreadable(resource, prefix, limit));
        self.log.unreadable(resource, prefix, limit).into_iter().chain(parts).collect()
    }

    /// Deletes an object that the log cannot read. See [`Log::delete_unreadable`]. The object must be in the engine's
    /// own log.
    pub async fn delete_unreadable(&self, object: Unreadable, request: &Request) -> Result<bool, Refusal> {
        let (log, actor, time_ms) = (self.log.clone(), pipeline::actor(request), self.stamp().time.as_millisecond());
        let delete = move || log.delete_unreadable(&object, actor, time_ms);
        self.reads.run(delete).await.map_err(|fault| match fault {
            Fault::Unreachable { .. } | Fault::Unknown { .. } => unreachable(fault),
            Fault::Full { .. } => Refusal::InsufficientStorage(fault.to_string()),
            other => Refusal::fault(other),
        })
    }

    /// Whether other servers append to the log, so that this server's newest state may be older than the log.
    pub fn is_shared(&self) -> bool {
        self.log.is_shared()
    }

    /// Waits until the state is at least as new as the log was at the time of the call. If only this server writes to
    /// the log, this function returns at once.
    pub async fn catch_up(&self) -> Result<(), Refusal> {
        if !self.is_shared() {
            return Ok(());
        }
        let log = self.log.clone();
        let newest = self.newest.ask(move |done| log.find_last(done)).await.map_err(unreachable)?;
        self.reach(newest).await
    }

    /// Waits for a version that is not written yet, for a limited time.
    pub async fn reach(&self, offset: Offset) -> Result<(), Refusal> {
        let deadline = tokio::time::Instant::now() + FUTURE_VERSION_WAIT;
        loop {
            let committed = self.hub.committed().notified();
            let current = self.own_snapshot().offset;
            if current >= offset {
                return Ok(());
            }
            if tokio::time::timeout_at(deadline, committed).await.is_err() {
                return Err(Refusal::Timeout(Timeout::Version { asked: offset, newest: current }));
            }
        }
    }
}

/// The refusal if the log's last offset cannot be read. The state may then be old, so no request is answered from the
/// state.
fn unreachable(fault: Fault) -> Refusal {
    Refusal::Unavailable(Unavailable::Log(fault.to_string()))
}
