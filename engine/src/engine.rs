//! The engine as transports see it: snapshots to read, decisions to make durable, watches to follow.

use crate::hub::Hub;
use crate::log::{EventLog, Fault};
use crate::past::{Memory, View};
use crate::pins::Pins;
#[cfg(feature = "planted")]
use crate::planted::{Bug, is};
use crate::watch::{Watch, WatchStart};
use crate::writer::{Command, Input, Rejection, Work, Writer};
use arc_swap::ArcSwap;
use async_trait::async_trait;
use crossbeam::channel::{Receiver, Sender, TrySendError, bounded};
use holdfast_core::Refusal;
use holdfast_core::apply::hold;
use holdfast_core::event::{Actor, Offset};
use holdfast_core::kinds::custom::is_storage;
use holdfast_core::kinds::{Kind, Registry};
use holdfast_core::list::{Continue, Freshness, Selection, TokenKey};
use holdfast_core::object::meta::{Document, metadata_mut};
use holdfast_core::pipeline::{self, Answer, Conversions, Decision, Settings, View as Shown};
use holdfast_core::refusal::Subject;
use holdfast_core::request::{Request, Verb};
use holdfast_core::stamp::Stamp;
use holdfast_core::state::{Change, Entry, State};
use serde_json::Value;
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::oneshot;

/// How many decisions may wait for the writer before the server says that it is busy.
const QUEUE_COMMANDS_MAX: usize = 4096;
/// How often a decision that has gone stale is made again before the writer is asked to make it.
const RACES_MAX: usize = 4;
/// How many objects a webhook is given at a time.
const CONVERSIONS_MAX: usize = 500;
/// How long a read of a version that is not there yet waits for it.
const FUTURE_VERSION_WAIT: Duration = Duration::from_secs(3);

/// Where time and seeds come from.
pub trait Clock: Send + Sync + 'static {
    fn stamp(&self) -> Stamp;
}

pub struct Options {
    pub settings: Settings,
    pub clock: Arc<dyn Clock>,
}

/// Brings objects into another version of their kind where only a webhook can.
#[async_trait]
pub trait Converter: Send + Sync + 'static {
    /// The objects in the version asked for, in the same order. `webhook` is the definition's
    /// `spec.conversion.webhook`.
    async fn convert(
        &self,
        kind: &Kind,
        webhook: &Value,
        to: &str,
        objects: Vec<Value>,
    ) -> Result<Vec<Document>, Refusal>;
}

pub struct Engine {
    published: Arc<ArcSwap<State>>,
    hub: Arc<Hub>,
    log: Arc<dyn EventLog>,
    commands: Sender<Input>,
    writer: Mutex<Option<JoinHandle<()>>>,
    pins: Pins,
    past: Memory,
    built_in: Arc<Registry>,
    options: Options,
    converter: OnceLock<Arc<dyn Converter>>,
}

/// What a mutation came to.
pub enum Reply {
    Object { entry: Arc<Entry>, code: u16, view: Shown, warnings: Vec<String> },
    Document { document: Document, code: u16, warnings: Vec<String> },
    Deleted { subject: Subject, uid: String, warnings: Vec<String> },
}

impl Engine {
    /// Folds the log into a state and starts the writer.
    pub fn open(log: Arc<dyn EventLog>, registry: Arc<Registry>, options: Options) -> Result<Arc<Engine>, Fault> {
        let (engine, writer, queue) = Engine::assemble(log, registry, options, Hub::default(), QUEUE_COMMANDS_MAX)?;
        let writer = std::thread::Builder::new()
            .name("writer".into())
            .spawn(move || writer.run(queue))
            .map_err(|error| Fault::io("start the writer", error))?;
        *engine.writer.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(writer);
        Ok(engine)
    }

    /// The same without a thread: the caller takes commands from the queue, which holds so many at most, and hands them
    /// to the writer.
    pub fn assemble(
        log: Arc<dyn EventLog>,
        registry: Arc<Registry>,
        options: Options,
        hub: Hub,
        commands_max: usize,
    ) -> Result<(Arc<Engine>, Writer, Receiver<Input>), Fault> {
        let built_in = registry.clone();
        let state = load(log.as_ref(), registry)?;
        let hub = Arc::new(hub);
        hub.start_at(state.offset);
        let published = Arc::new(ArcSwap::from_pointee(state.clone()));
        let (commands, queue) = bounded(commands_max);
        let writer = Writer::new(state, log.clone(), published.clone(), hub.clone());
        let engine = Engine {
            published,
            hub,
            log,
            commands,
            writer: Mutex::new(None),
            pins: Pins::default(),
            past: Memory::default(),
            built_in,
            options,
            converter: OnceLock::new(),
        };
        Ok((Arc::new(engine), writer, queue))
    }

    /// Lets the writer finish what it was handed, and ends it: later writes are refused.
    pub fn close(&self) {
        let writer = self.writer.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take();
        if let Some(writer) = writer
            && self.commands.send(Input::Stop).is_ok()
        {
            // A writer that panicked has nothing left to finish.
            let _ = writer.join();
        }
    }

    /// The newest state. Costs a pointer.
    pub fn snapshot(&self) -> Arc<State> {
        self.published.load_full()
    }

    pub fn hub(&self) -> &Arc<Hub> {
        &self.hub
    }

    pub fn log(&self) -> &Arc<dyn EventLog> {
        &self.log
    }

    pub fn stamp(&self) -> Stamp {
        self.options.clock.stamp()
    }

    pub fn settings(&self) -> &Settings {
        &self.options.settings
    }

    /// What seals continue tokens.
    pub fn token_key(&self) -> &TokenKey {
        &self.options.settings.token_key
    }

    /// Judges a mutation and makes it durable, deciding again whenever the state moved on in between.
    pub async fn mutate(&self, request: &Request) -> Result<Reply, Refusal> {
        let stamp = self.stamp();
        let mut conversions = Conversions::default();
        let mut races = 0;
        while races < RACES_MAX {
            let snapshot = self.snapshot();
            let decision = self.decide(&snapshot, request, stamp, &mut conversions).await?;
            #[cfg(feature = "planted")]
            let rehearses = request.options.dry_run && !is(Bug::DryRunWrites);
            #[cfg(not(feature = "planted"))]
            let rehearses = request.options.dry_run;
            if rehearses {
                return Ok(rehearse(decision));
            }
            races += 1;
            let fixed = decision.fixed;
            #[cfg(feature = "planted")]
            let fixed = fixed || is(Bug::RaceRefused);
            match self.submit(decision, pipeline::actor(request), stamp).await {
                Ok(reply) => return Ok(reply),
                Err(Rejection::Stale) if !self.snapshot().registry.serves(request.target.kind) => continue,
                Err(Rejection::Stale) if fixed => return Err(stale(&snapshot, request)),
                Err(Rejection::Stale) => continue,
                Err(rejection) => return Err(refusal(rejection)),
            }
        }
        self.mutate_in_turn(request, stamp, conversions).await
    }

    /// Has webhooks called from now on: whoever calls them needs the engine to find them.
    pub fn convert_with(&self, converter: Arc<dyn Converter>) {
        // The first one stays; a server has one.
        let _ = self.converter.set(converter);
    }

    async fn convert(&self, kind: &Kind, to: &str, objects: Vec<Value>) -> Result<Vec<Document>, Refusal> {
        let webhook = kind.custom.as_ref().and_then(|custom| custom.webhook.as_ref());
        match webhook.zip(self.converter.get()) {
            Some((webhook, converter)) => converter.convert(kind, webhook, to, objects).await,
            None => Err(Refusal::Unreasoned(format!(
                "conversion webhook for {to}, Kind={} failed: no webhook can be called from here",
                kind.kind
            ))),
        }
    }

    /// Has everything converted that is not yet, so that the objects can be shown in this version.
    pub async fn prepare(&self, kind: &Kind, version: usize, entries: &[Arc<Entry>]) -> Result<(), Refusal> {
        if kind.custom.as_ref().is_none_or(|custom| custom.webhook.is_none()) {
            return Ok(());
        }
        for batch in entries.chunks(CONVERSIONS_MAX) {
            let (mut waiting, mut objects, mut to) = (Vec::new(), Vec::new(), String::new());
            for entry in batch {
                if let Some(conversion) = entry.awaits(kind, version) {
                    waiting.push(entry);
                    objects.push(conversion.object);
                    to = conversion.to;
                }
            }
            if waiting.is_empty() {
                continue;
            }
            let converted = self.convert(kind, &to, objects).await?;
            waiting.iter().zip(&converted).for_each(|(entry, converted)| entry.keep(kind, version, converted));
        }
        Ok(())
    }

    /// The same for a document in the version that objects are stored in, which nobody keeps.
    pub async fn prepare_document(&self, kind: &Kind, version: usize, document: Document) -> Result<Document, Refusal> {
        if version == 0 || kind.custom.as_ref().is_none_or(|custom| custom.webhook.is_none()) {
            let mut document = document;
            if version != 0 {
                pipeline::from_hub(kind, version, &mut document);
            }
            return Ok(document);
        }
        let to = kind.versions[version].api_version();
        let converted = self.convert(kind, &to, vec![Value::Object(document)]).await?;
        converted.into_iter().next().ok_or_else(|| Refusal::Internal("the webhook converted nothing".into()))
    }

    /// Lets the writer decide, where no race can be lost.
    async fn mutate_in_turn(
        &self,
        request: &Request,
        stamp: Stamp,
        conversions: Conversions,
    ) -> Result<Reply, Refusal> {
        let (told, tells) = oneshot::channel();
        let (settings, undecided) = (self.options.settings.clone(), request.clone());
        let work = Work::Undecided(Box::new(move |state| {
            let decided = pipeline::decide_with(state, &settings, &undecided, stamp, &conversions);
            let (writes, told_of) = match decided {
                Ok(Decision { writes, answer, warnings, .. }) => (writes, Ok((answer, warnings))),
                Err(refusal) => (Vec::new(), Err(refusal)),
            };
            // A client that has gone away does not mind.
            let _ = told.send(told_of);
            writes
        }));
        let entries = self.commit(work, pipeline::actor(request), stamp).await.map_err(refusal)?;
        let told_of = tells.await.map_err(|_| Refusal::Internal("the writer did not decide".into()))?;
        match told_of {
            // Others changed it again, and the writer cannot wait for a webhook.
            Err(Refusal::Unconverted(_)) => Err(Refusal::TooManyRequests {
                message: "the object changes faster than its webhook converts it; please try again".into(),
                retry_after_seconds: 1,
            }),
            told_of => told_of.map(|(answer, warnings)| reply(answer, &entries, warnings)),
        }
    }

    /// Hands a decision to the writer and waits until it is durable.
    pub async fn submit(&self, decision: Decision, actor: Actor, stamp: Stamp) -> Result<Reply, Rejection> {
        let Decision { writes, expects, answer, warnings, .. } = decision;
        if writes.is_empty() {
            return Ok(reply(answer, &[], warnings));
        }
        let entries = self.commit(Work::Decided { writes, expects }, actor, stamp).await?;
        Ok(reply(answer, &entries, warnings))
    }

    async fn commit(&self, work: Work, actor: Actor, stamp: Stamp) -> Result<Vec<Arc<Entry>>, Rejection> {
        let (sender, receiver) = oneshot::channel();
        let command = Command { work, actor, time_ms: stamp.time.as_millisecond(), answer: sender };
        self.commands.try_send(Input::Commit(command)).map_err(|error| match error {
            TrySendError::Full(_) => Rejection::Poisoned("too many writes are waiting; please try again".into()),
            TrySendError::Disconnected(_) => Rejection::Poisoned("the server is stopping".into()),
        })?;
        match receiver.await {
            Ok(result) => result,
            Err(_) => Err(Rejection::Failed("the writer stopped before it answered".into())),
        }
    }

    /// Deletes what the selection picks, each object as its own event; what goes meanwhile is no error.
    pub async fn delete_collection(self: &Arc<Self>, request: &Request) -> Result<u64, Refusal> {
        pipeline::validate_delete_options(&request.options.delete)?;
        let snapshot = self.snapshot();
        if !snapshot.registry.serves(request.target.kind) {
            #[cfg(feature = "planted")]
            if is(Bug::MassDeletionOfOldKind) {
                return Ok(0);
            }
            return Err(Refusal::Redefined);
        }
        let selection = Selection::new(&snapshot, request)?;
        let page = holdfast_core::list::page(&snapshot, &selection, request.options.limit, None);
        #[cfg(feature = "planted")]
        let page = {
            let mut page = page;
            if is(Bug::MassDeletionMissesLast) {
                page.entries.pop();
            }
            page
        };
        let mut deletions = tokio::task::JoinSet::new();
        let mut count = 0;
        for entry in page.entries {
            let document = entry.document();
            let meta = &document["metadata"];
            let mut one = request.clone();
            one.verb = Verb::Delete;
            one.target.name = meta["name"].as_str().map(str::to_owned);
            one.target.namespace = meta["namespace"].as_str().map(str::to_owned);
            let engine = self.clone();
            deletions.spawn(async move { engine.mutate(&one).await });
            count += 1;
            if deletions.len() >= 256 {
                settle(deletions.join_next().await)?;
            }
        }
        while let Some(result) = deletions.join_next().await {
            settle(Some(result))?;
        }
        Ok(count)
    }

    /// What a list wants to read, and where in it to go on.
    pub async fn view_for(self: &Arc<Self>, freshness: Freshness, from: Option<&Continue>) -> Result<View, Refusal> {
        match (from, freshness) {
            (Some(token), _) => self.view_of(token),
            #[cfg(feature = "planted")]
            (None, Freshness::Newest) if is(Bug::StaleRead) && self.snapshot().offset.0 % 7 == 6 => {
                self.past(Offset(self.snapshot().offset.0 - 1))
            }
            (None, Freshness::Newest) => Ok(View::of(self.snapshot())),
            (None, Freshness::NotOlderThan(offset)) => {
                self.reach(offset).await?;
                Ok(View::of(self.snapshot()))
            }
            (None, Freshness::Exact(offset)) => {
                self.reach(offset).await?;
                self.kept(offset).map_or_else(|| self.past(offset), |state| Ok(View::of(state).named(true)))
            }
        }
    }

    /// What a list goes on with. One that began with the newest state must go on soon, whatever the log remembers.
    fn view_of(self: &Arc<Self>, token: &Continue) -> Result<View, Refusal> {
        let offset = Offset(token.version);
        #[cfg(feature = "planted")]
        if is(Bug::TokenOfNewest) {
            return Ok(View::of(self.snapshot()).named(token.past));
        }
        if let Some(state) = self.kept(offset) {
            return Ok(View::of(state).named(token.past));
        }
        let expired = || Refusal::Expired {
            message: format!("The provided resource version {offset} is too old to be listed at."),
            continue_token: None,
        };
        if offset > self.snapshot().offset {
            return Err(expired());
        }
        if !token.past {
            let since = self.log.scan(None, offset, 1).map_err(|fault| Refusal::Internal(fault.to_string()))?;
            let limit_ms = self.stamp().time.as_millisecond() - crate::pins::LIFETIME.as_millis() as i64;
            if since.first().is_some_and(|record| record.time_ms < limit_ms) {
                return Err(expired());
            }
        }
        Ok(self.past(offset)?.named(token.past))
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

    /// Keeps the snapshot for the pages that follow.
    pub fn pin(&self, state: &Arc<State>) {
        self.pins.pin(state);
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
                return Err(Refusal::Timeout {
                    message: format!("Too large resource version: {offset}, current: {current}"),
                    retry_after_seconds: 1,
                });
            }
        }
    }

    /// Follows what the selection picks.
    pub fn watch(self: &Arc<Self>, selection: Selection, start: WatchStart) -> Watch {
        Watch::new(self.clone(), selection, start)
    }

    /// Follows what the selection picks up to the version of the view, behind which nothing comes.
    pub fn watch_past(self: &Arc<Self>, view: View, selection: Selection, start: WatchStart) -> Result<Watch, Refusal> {
        Watch::still(self.clone(), view, selection, start)
    }

    /// What a mutation would come to in this state.
    pub async fn rehearse(&self, state: &State, request: &Request) -> Result<Reply, Refusal> {
        let mut conversions = Conversions::default();
        self.decide(state, request, self.stamp(), &mut conversions).await.map(rehearse)
    }

    /// Judges a mutation, and has converted what only a webhook can.
    async fn decide(
        &self,
        state: &State,
        request: &Request,
        stamp: Stamp,
        conversions: &mut Conversions,
    ) -> Result<Decision, Refusal> {
        loop {
            match pipeline::decide_with(state, &self.options.settings, request, stamp, conversions) {
                Err(Refusal::Unconverted(conversion)) => {
                    let kind = state.kind(request.target.kind);
                    let object = conversion.object.clone();
                    let converted = self.convert(kind, &conversion.to, vec![object]).await?;
                    converted.into_iter().for_each(|converted| conversions.add(*conversion.clone(), converted));
                }
                decided => return decided,
            }
        }
    }

    /// Cleans up behind namespaces that are going away and Events that are old, for as long as the engine lives.
    pub async fn keep_house(self: Arc<Self>) {
        if let Some(ttl) = self.options.settings.event_ttl {
            tokio::spawn(crate::janitor::expire(Arc::downgrade(&self), ttl));
        }
        crate::janitor::run(self).await;
    }
}

/// Folds what the log holds now.
pub fn load(log: &dyn EventLog, registry: Arc<Registry>) -> Result<State, Fault> {
    let mut changes = Vec::new();
    let mut custom = Vec::new();
    let mut orphans = 0;
    log.current(&mut |record| {
        match Change::from_record(&registry, &record) {
            Ok(change) => changes.push(change),
            // Of a kind that one of the definitions makes.
            Err(_) if is_storage(&record.resource) => custom.push(record),
            Err(unknown) => return Err(Fault::Unreadable { what: unknown.to_string() }),
        }
        Ok(())
    })?;
    changes.sort_unstable_by_key(|change| change.offset);
    #[cfg(feature = "planted")]
    if is(Bug::LoadMissesLast) {
        changes.pop();
    }
    let mut state = State::new(registry);
    for change in &changes {
        hold(&mut state, change);
    }
    custom.sort_unstable_by_key(|record| record.offset);
    for record in &custom {
        match Change::from_record(&state.registry, record) {
            Ok(change) => {
                hold(&mut state, &change);
            }
            Err(_) => {
                orphans += 1;
                state.hold_orphan(record);
            }
        }
    }
    if orphans > 0 {
        tracing::warn!(orphans, "objects are kept whose kinds nothing defines; a definition brings them back");
    }
    state.offset = log.last()?;
    Ok(state)
}

fn settle(result: Option<Result<Result<Reply, Refusal>, tokio::task::JoinError>>) -> Result<(), Refusal> {
    match result {
        Some(Ok(Err(Refusal::NotFound(_)))) | Some(Ok(Ok(_))) | None => Ok(()),
        Some(Ok(Err(refusal))) => Err(refusal),
        Some(Err(error)) => Err(Refusal::Internal(error.to_string())),
    }
}

/// The same answer, from a decision that is thrown away.
fn rehearse(decision: Decision) -> Reply {
    let entries: Vec<Arc<Entry>> = decision
        .writes
        .into_iter()
        .map(|write| {
            let version = write.expect.unwrap_or(Offset::ZERO);
            Arc::new(Entry::new(write.draft.seal(version), write.draft.head(), version, 0, write.index))
        })
        .collect();
    match reply(decision.answer, &entries, decision.warnings) {
        // What was never stored has no version.
        Reply::Object { entry, code, view: Shown::Object, warnings } if entry.offset == Offset::ZERO => {
            let mut document = match entry.document() {
                Value::Object(document) => document,
                _ => Document::new(),
            };
            metadata_mut(&mut document).remove("resourceVersion");
            Reply::Document { document, code, warnings }
        }
        other => other,
    }
}

fn reply(answer: Answer, entries: &[Arc<Entry>], warnings: Vec<String>) -> Reply {
    match answer {
        Answer::Written { index, code, view } => Reply::Object { entry: entries[index].clone(), code, view, warnings },
        Answer::Entry { entry, code, view } => Reply::Object { entry, code, view, warnings },
        Answer::Document { document, code } => Reply::Document { document, code, warnings },
        Answer::Deleted { subject, uid } => Reply::Deleted { subject, uid, warnings },
    }
}

/// A decision on a version that the client fixed has gone stale.
fn stale(snapshot: &State, request: &Request) -> Refusal {
    let kind = snapshot.kind(request.target.kind);
    let group = &kind.versions[request.target.version].group;
    Refusal::Conflict {
        subject: Subject::new(group, &kind.resource, request.name()),
        message: "the object has been modified; please apply your changes to the latest version and try again".into(),
    }
}

fn refusal(rejection: Rejection) -> Refusal {
    match rejection {
        Rejection::Full(why) => Refusal::InsufficientStorage(why),
        Rejection::Failed(why) => Refusal::Internal(why),
        Rejection::Poisoned(why) => Refusal::Unavailable(why),
        Rejection::Stale => Refusal::Internal("a stale decision is decided again".into()),
    }
}
