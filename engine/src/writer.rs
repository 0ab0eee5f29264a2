//! The single writer: the order of a commit, written once.
//!
//! 1. Check each decision's expectations against the newest state, decisions before it in the batch included, and
//!    number the writes of those that hold ([`Batch::check`]).
//! 2. Append them to the log, durable, with one fsync for the batch. Where somebody else was first, take over what
//!    they wrote and begin again with 1.
//! 3. Publish the new state.
//! 4. Wake the watchers.
//! 5. Answer.
//!
//! Nothing is answered, shown to a reader or sent to a watcher before it is durable. The writer runs no rules: it
//! compares versions and claims, and what went stale is decided again by who asked for it.

use crate::gather::Gathering;
use crate::hub::Hub;
use crate::log::{Append, Fault, Log};
use crate::pins::Pins;
use crate::planted::{Bug, order, planted};
use arc_swap::ArcSwap;
use crossbeam::channel::{Receiver, RecvTimeoutError};
use holdfast_core::apply::apply;
use holdfast_core::event::{Actor, Operation, Record};
use holdfast_core::kinds::KindId;
use holdfast_core::object::{Body, Packer};
use holdfast_core::pipeline::{self, Expectation, Write};
use holdfast_core::state::{Change, Entry, State};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::oneshot;

/// How many commands share one fsync at most.
const BATCH_COMMANDS_MAX: usize = 512;
/// How many bytes of objects share one fsync at most.
const BATCH_BYTES_MAX: usize = 8 << 20;
/// How long a writer without work waits before it looks whether a faulty log has recovered.
const RECOVERY_PERIOD: Duration = Duration::from_millis(500);

/// What the writer is handed.
pub enum Input {
    /// Apart, because a queue has room for many.
    Commit(Box<Command>),
    /// Others have appended to the log.
    Tail,
    /// Why writes are not taken, if they are not.
    Ask(oneshot::Sender<Option<String>>),
    /// After what was handed over before.
    Stop,
}

/// A decision on its way into the log: good as long as what it counted on is still so.
pub struct Command {
    pub writes: Vec<Write>,
    pub expects: Vec<Expectation>,
    pub actor: Actor,
    pub time_ms: i64,
    pub answer: oneshot::Sender<Outcome>,
}

/// What becomes of a decision.
pub type Outcome = Result<Vec<Arc<Entry>>, Rejection>;

/// Why a decision did not make it into the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rejection {
    /// Something it counted on has changed: decide again.
    Stale(Contested),
    /// The disk is full.
    Full(String),
    /// The log failed; it is not known whether the write is durable.
    Failed(String),
    /// The log failed before, and writes wait until it works again.
    Poisoned(String),
}

/// What a decision lost to another.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Contested {
    /// The object has another version, or is there, or is gone.
    Object { kind: KindId, key: Arc<str> },
    /// Another object holds it.
    Claim(Arc<str>),
    /// The kind was redefined, or is gone.
    Kind(KindId),
}

impl Contested {
    pub(crate) fn is_redefined(&self) -> bool {
        matches!(self, Contested::Kind(_))
    }
}

/// A step of a commit, once its batch is numbered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    Append,
    Publish,
    Deliver,
    Answer,
}

const ORDER: [Step; 4] = [Step::Append, Step::Publish, Step::Deliver, Step::Answer];

/// Owns the newest state and is alone in changing it.
pub struct Writer {
    state: State,
    log: Arc<dyn Log>,
    published: Arc<ArcSwap<State>>,
    hub: Arc<Hub>,
    /// Told of what is replaced.
    pins: Arc<Pins>,
    /// Set when others have appended, and taken back before the tail is read.
    others: Arc<AtomicBool>,
    /// Why the log may not be appended to; `None` when all is well.
    poison: Option<Poison>,
    /// Empty between two batches: its room is used again.
    batch: Vec<Command>,
    /// Keeps objects that have not changed for a while in less room.
    packer: Packer,
}

#[derive(Debug, Clone)]
struct Poison {
    is_full: bool,
    why: String,
}

impl From<&Fault> for Poison {
    fn from(fault: &Fault) -> Poison {
        Poison { is_full: fault.is_full(), why: fault.to_string() }
    }
}

impl Poison {
    /// For a write that was not tried.
    fn rejection(&self) -> Rejection {
        if self.is_full { Rejection::Full(self.why.clone()) } else { Rejection::Poisoned(self.why.clone()) }
    }
}

impl Writer {
    pub(crate) fn new(
        state: State,
        log: Arc<dyn Log>,
        published: Arc<ArcSwap<State>>,
        hub: Arc<Hub>,
        pins: Arc<Pins>,
    ) -> Writer {
        let packer = Packer::default();
        Writer { state, log, published, hub, pins, others: Arc::default(), poison: None, batch: Vec::new(), packer }
    }

    /// Set by whoever sees that others have appended.
    pub fn others(&self) -> &Arc<AtomicBool> {
        &self.others
    }

    /// Serves commands until it is told to stop or every sender is gone. It waits so long for those who are on their way.
    pub fn run(mut self, inputs: &Receiver<Input>, gathering: &Gathering, patience: Duration) {
        loop {
            match inputs.recv_timeout(RECOVERY_PERIOD) {
                Ok(input) => {
                    if matches!(input, Input::Commit(_)) {
                        gathering.wait(patience);
                    }
                    if !self.serve(input, inputs) {
                        return;
                    }
                }
                Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => {
                    self.heal();
                    self.follow();
                }
            }
        }
    }

    /// Takes this input and those that wait behind it, as many as fit into a batch; false when it is told to stop.
    pub fn serve(&mut self, first: Input, inputs: &Receiver<Input>) -> bool {
        let (mut next, mut batch) = (Some(first), std::mem::take(&mut self.batch));
        let (mut bytes, mut questions, mut stop) = (0, Vec::new(), false);
        while let Some(input) = next {
            match input {
                Input::Commit(command) => {
                    bytes += command.bytes();
                    batch.push(*command);
                }
                Input::Tail => {}
                Input::Ask(answer) => questions.push(answer),
                Input::Stop => stop = true,
            }
            let has_room = !stop && batch.len() < BATCH_COMMANDS_MAX && bytes < BATCH_BYTES_MAX;
            next = if has_room { inputs.try_recv().ok() } else { None };
        }
        if batch.is_empty() {
            self.follow()
        } else {
            self.commit(&mut batch)
        }
        for answer in questions {
            // Who asked may have lost patience.
            let _ = answer.send(self.trouble());
        }
        self.batch = batch;
        !stop
    }

    /// Commits a batch and answers every command in it.
    pub fn commit(&mut self, commands: &mut Vec<Command>) {
        self.heal();
        self.follow();
        if let Some(poison) = &self.poison {
            commands.drain(..).for_each(|command| command.answer(Err(poison.rejection())));
            return;
        }
        let bytes = commands.iter().map(|command| command.bytes() as u64).sum();
        if let Some(why) = self.log.lacks_room(bytes) {
            self.leave_what_makes_room(commands, &why);
        }
        let mut batch = Batch::check(&self.state, commands.drain(..));
        if batch.records.is_empty() {
            return batch.answer();
        }
        let fresh = bodies(&batch.changes);
        for step in order(ORDER) {
            match step {
                Step::Append => match self.append(batch) {
                    Ok(appended) => batch = appended,
                    Err(()) => return,
                },
                Step::Publish => self.published.store(Arc::new(batch.next.clone())),
                Step::Deliver => {
                    self.pins.replaced(&batch.changes);
                    self.hub.deliver(&batch.next, std::mem::take(&mut batch.changes));
                }
                Step::Answer => batch.answer(),
            }
        }
        // While nobody waits.
        self.pins.count_late();
        fresh.iter().for_each(|body| self.packer.note(body));
    }

    /// Refuses what makes no room, and has room taken for the rest from what is kept aside.
    fn leave_what_makes_room(&self, commands: &mut Vec<Command>, why: &str) {
        let goes_through =
            |command: &Command| pipeline::makes_room(&self.state, &command.writes, &command.actor, command.time_ms);
        let (mut kept, refused): (Vec<_>, Vec<_>) = commands.drain(..).partition(goes_through);
        refused.into_iter().for_each(|command| command.answer(Err(Rejection::Full(why.to_owned()))));
        let bytes = kept.iter().map(|command| command.bytes() as u64).sum();
        if !kept.is_empty()
            && let Err(fault) = self.log.take_reserve(bytes)
        {
            let full = |command: Command| command.answer(Err(Rejection::Full(fault.to_string())));
            kept.drain(..).for_each(full);
        }
        *commands = kept;
    }

    /// Takes over what others have appended, if there is any.
    pub fn follow(&mut self) {
        if self.others.swap(false, Ordering::AcqRel)
            && self.poison.is_none()
            && let Err(fault) = self.take_over()
        {
            tracing::error!(%fault, "what others appended to the log cannot be read");
            self.poison = Some(Poison::from(&fault));
        }
    }

    /// Why writes are not taken, if they are not.
    pub fn trouble(&self) -> Option<String> {
        self.poison.as_ref().map(|poison| poison.why.clone())
    }

    /// Makes the batch durable, and the state with it the newest. Decisions that others were faster than are checked
    /// again, so what is appended in the end may be less.
    fn append(&mut self, mut batch: Batch) -> Result<Batch, ()> {
        loop {
            let appended = match batch.records.is_empty() {
                true => Ok(Append::Appended),
                false => self.log.append(&batch.records),
            };
            match appended.and_then(|appended| self.after(appended)) {
                Ok(Append::Behind) if !planted(Bug::OvertakenAcknowledged) => {
                    batch = Batch::check(&self.state, batch.take_back());
                }
                Ok(_) => {
                    self.state = batch.next.clone();
                    return Ok(batch);
                }
                Err(fault) => {
                    self.refuse(batch, &fault);
                    return Err(());
                }
            }
        }
    }

    /// After a write that somebody else was faster than, what they wrote is taken over first.
    fn after(&mut self, appended: Append) -> Result<Append, Fault> {
        if appended == Append::Behind {
            self.take_over()?;
        }
        Ok(appended)
    }

    /// The log did not take the batch, or did not say so.
    fn refuse(&mut self, mut batch: Batch, fault: &Fault) {
        tracing::error!(%fault, "the log did not take a batch of {} events", batch.records.len());
        if planted(Bug::HalfBatchAfterFault) {
            apply(&mut self.state, &batch.changes[0].0);
            self.published.store(Arc::new(self.state.clone()));
        }
        if planted(Bug::FaultAcknowledged) {
            batch.answer();
        }
        let poison = Poison::from(fault);
        for (command, outcome) in batch.decided {
            command.answer(Err(match outcome {
                Ok(_) if !poison.is_full => Rejection::Failed(poison.why.clone()),
                // What it clashed with in the batch has not happened either.
                _ => poison.rejection(),
            }));
        }
        self.poison = Some(poison);
    }

    /// After a fault: makes the log work again if it can, and takes over what had become durable after all.
    fn heal(&mut self) {
        if self.poison.is_none() {
            return;
        }
        let healed = self.log.recover().and_then(|()| match planted(Bug::OffsetsReused) {
            true => Ok(()),
            false => self.take_over(),
        });
        match healed {
            Ok(()) => {
                tracing::info!(offset = %self.state.offset, "the log takes writes again");
                self.poison = None;
            }
            Err(fault) => self.poison = Some(Poison::from(&fault)),
        }
    }

    /// Folds in what is in the log and not in the state yet, and shows it.
    fn take_over(&mut self) -> Result<(), Fault> {
        loop {
            let records = self.log.tail(self.state.offset)?;
            if records.is_empty() {
                return Ok(());
            }
            let mut next = self.state.clone();
            let mut changes = Vec::with_capacity(records.len());
            for record in &records {
                let change = Change::from_record(&next.registry, record)
                    .map_err(|unknown| Fault::Unreadable { what: unknown.to_string() })?;
                changes.push(fold(&mut next, change));
            }
            self.state = next;
            self.published.store(Arc::new(self.state.clone()));
            bodies(&changes).iter().for_each(|body| self.packer.note(body));
            self.pins.replaced(&changes);
            self.pins.count_late();
            self.hub.deliver(&self.state, changes);
        }
    }
}

impl Command {
    fn bytes(&self) -> usize {
        self.writes.iter().map(|write| write.draft.len()).sum()
    }

    fn answer(self, outcome: Outcome) {
        // A client that has gone away does not mind.
        let _ = self.answer.send(outcome);
    }
}

/// Decisions that were checked, and the writes of those that hold.
struct Batch {
    /// The state with all writes of the batch.
    next: State,
    records: Vec<Record>,
    /// Each with what was there before.
    changes: Vec<(Change, Option<Arc<Entry>>)>,
    /// Told only when the batch is durable: what made a decision stale may be in this very batch.
    decided: Vec<(Command, Outcome)>,
}

impl Batch {
    /// Checks each decision against the state and those before it, and numbers the writes of those that hold.
    fn check(state: &State, commands: impl ExactSizeIterator<Item = Command>) -> Batch {
        let count = commands.len();
        let mut batch = Batch {
            next: state.clone(),
            records: Vec::with_capacity(count),
            changes: Vec::with_capacity(count),
            decided: Vec::with_capacity(count),
        };
        for mut command in commands {
            let outcome = match contested(&batch.next, &command) {
                Some(contested) => Err(Rejection::Stale(contested)),
                None => Ok(batch.number(&mut command)),
            };
            batch.decided.push((command, outcome));
        }
        batch
    }

    /// Gives the writes their offsets, and folds them in.
    fn number(&mut self, command: &mut Command) -> Vec<Arc<Entry>> {
        let mut entries = Vec::with_capacity(command.writes.len());
        for write in &mut command.writes {
            let (record, change) = number(&self.next, write, &command.actor, command.time_ms);
            entries.push(change.entry.clone());
            self.records.push(record);
            self.changes.push(fold(&mut self.next, change));
        }
        entries
    }

    /// The decisions once more, as they were handed over.
    fn take_back(self) -> std::vec::IntoIter<Command> {
        let whole = |(mut command, outcome): (Command, Outcome)| {
            for (write, entry) in command.writes.iter_mut().zip(outcome.unwrap_or_default()) {
                write.index = entry.index.clone();
            }
            command
        };
        self.decided.into_iter().map(whole).collect::<Vec<_>>().into_iter()
    }

    fn answer(&mut self) {
        self.decided.drain(..).for_each(|(command, outcome)| command.answer(outcome));
    }
}

/// A decision's records as they would follow the state: for whoever appends beside the writer.
pub fn numbered(state: &State, mut writes: Vec<Write>, actor: &Actor, time_ms: i64) -> Vec<Record> {
    let mut next = state.clone();
    let number = |write: &mut Write| {
        let (record, change) = number(&next, write, actor, time_ms);
        apply(&mut next, &change);
        record
    };
    writes.iter_mut().map(number).collect()
}

/// The objects that are there after these changes.
fn bodies(changes: &[(Change, Option<Arc<Entry>>)]) -> Vec<Body> {
    let there = changes.iter().filter(|(change, _)| !change.deleted);
    there.map(|(change, _)| change.entry.body().clone()).collect()
}

/// Folds a change in; with it goes what was there before.
fn fold(state: &mut State, change: Change) -> (Change, Option<Arc<Entry>>) {
    let previous = apply(state, &change);
    (change, previous)
}

/// The first thing that the decision counted on and that is no longer so.
fn contested(state: &State, command: &Command) -> Option<Contested> {
    let Command { writes, expects, .. } = command;
    if let Some(write) = writes.iter().find(|write| !state.registry.serves(write.kind)) {
        return Some(Contested::Kind(write.kind));
    }
    let changed = |expectation: &&Expectation| {
        !planted(Bug::ExpectationsUnchecked)
            && state.version_of(expectation.kind, &expectation.key) != expectation.version
    };
    if let Some(Expectation { kind, key, .. }) = expects.iter().find(changed) {
        return Some(Contested::Object { kind: *kind, key: key.clone() });
    }
    writes.iter().find_map(|write| {
        if !planted(Bug::LostUpdate) && state.version_of(write.kind, &write.key) != write.expect {
            return Some(Contested::Object { kind: write.kind, key: write.key.clone() });
        }
        taken(state, write).map(Contested::Claim)
    })
}

/// A claim of the write that another object holds.
fn taken(state: &State, write: &Write) -> Option<Arc<str>> {
    if write.delete || write.index.claims.is_empty() || planted(Bug::ClaimsUnchecked) {
        return None;
    }
    let owner = state.owner(write.kind, &write.key);
    let is_taken = |claim: &&Arc<str>| state.claimant(claim).is_some_and(|claimant| *claimant != owner);
    write.index.claims.iter().find(is_taken).cloned()
}

/// Gives the write its offset. Its index goes into the entry.
fn number(state: &State, write: &mut Write, actor: &Actor, time_ms: i64) -> (Record, Change) {
    let offset = state.offset.next();
    let json = write.draft.seal(offset);
    let deleted = write.delete || planted(Bug::FinalizersIgnored) && is_deleting(&json);
    let operation = if deleted { Operation::Delete } else { Operation::Put };
    let record = Record {
        offset: offset.0,
        time_ms,
        resource: state.kind(write.kind).storage.clone(),
        key: write.key.to_string(),
        // What the decision expects, or what it wrote of the same object just before.
        replaces: state.version_of(write.kind, &write.key).map_or(0, |offset| offset.0),
        operation: operation as i32,
        actor: actor.clone(),
        object: json.clone(),
    };
    let index = std::mem::take(&mut write.index);
    let entry = Arc::new(Entry::new(json, write.draft.head(), offset, time_ms, index));
    (record, Change { offset, kind: write.kind, key: write.key.clone(), entry, deleted })
}

/// Whether an object is being deleted, as far as a planted bug needs to know.
fn is_deleting(json: &[u8]) -> bool {
    String::from_utf8_lossy(json).contains("\"deletionTimestamp\"")
}
