//! The single writer. The order of a commit is described here.
//!
//! 1. Check each decision's expectations against the newest state, including earlier decisions of the batch, and number
//!    the writes of the decisions that hold ([`Batch::check`]).
//! 2. Append these writes to the log and make them durable, with one fsync for the batch. If another server appended
//!    first, read its events and begin again with 1. A log that numbers events itself reports the outcome of each
//!    decision. Then the writer reads all events, of this server and of other servers, from the log's tail in the log's
//!    order ([`crate::awaited`]).
//! 3. Publish the new state.
//! 4. Wake the watchers.
//! 5. Answer the requests.
//!
//! No decision is answered, shown to a reader or sent to a watcher before it is durable. The writer runs no rules: it
//! only compares versions and claims. The request of a stale decision is judged again.

use crate::awaited::Awaited;
use crate::commit::{Command, Contested, Outcome, Rejection, Step};
use crate::fill::Fill;
use crate::gather::Gathering;
use crate::hub::Hub;
use crate::log::{Append, Decision, Expected, Fault, Lack, Log, Proposal, Receipt};
use crate::numbering::number;
use crate::pins::Pins;
use crate::planted::{Bug, order, planted};
use arc_swap::ArcSwap;
use crossbeam::channel::{Receiver, RecvTimeoutError};
use holdfast_core::apply::{apply, replay};
use holdfast_core::event::Record;
use holdfast_core::object::{Body, Packer};
use holdfast_core::pipeline::{self, Expectation, Write};
use holdfast_core::state::{Change, Entry, State};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::oneshot;

/// The maximum number of commands that share one fsync.
const BATCH_COMMANDS_MAX: usize = 512;
/// The maximum number of bytes of objects in a batch, which shares one fsync.
const BATCH_BYTES_MAX: usize = 8 << 20;
/// The maximum number of times that a batch is proposed while other servers append first.
const ROUNDS_MAX: usize = 16;
/// How long an idle writer waits before it checks whether a faulty log has recovered.
const RECOVERY_PERIOD: Duration = Duration::from_millis(500);

/// An input of the writer.
pub enum Input {
    /// The command is boxed, because a queue has room for many inputs.
    Commit(Box<Command>),
    /// Other servers have appended to the log.
    Tail,
    /// Asks why writes are refused. The answer is `None` if writes are accepted.
    Ask(oneshot::Sender<Option<String>>),
    /// Ends the writer after all earlier inputs are served.
    Stop,
}

const ORDER: [Step; 4] = [Step::Append, Step::Publish, Step::Deliver, Step::Answer];

/// Owns the newest state. Nothing else changes the newest state.
pub struct Writer {
    state: State,
    log: Arc<dyn Log>,
    published: Arc<ArcSwap<State>>,
    hub: Arc<Hub>,
    /// Receives the replaced objects, to count their memory.
    pins: Arc<Pins>,
    /// Whether other servers have appended. The flag is cleared before the tail is read, and an append during the read
    /// sets it again.
    others: Arc<AtomicBool>,
    /// The reason why nothing can be appended to the log; `None` if the log works.
    poison: Option<Poison>,
    /// Decisions that are or may be in the log, but whose events the log's tail has not shown yet.
    awaited: Awaited,
    /// Decisions that turned out not to be in the log. They are proposed again.
    unwritten: Vec<Command>,
    /// The commands of the present batch. It is empty between two batches, and its memory is reused.
    batch: Vec<Command>,
    /// The bytes that each namespace wrote recently.
    fill: Fill,
    /// Packs objects that have not changed for a while, to save memory.
    packer: Packer,
}

#[derive(Debug, Clone)]
struct Poison {
    is_full: bool,
    /// Whether it is certain that nothing of the proposed batch is in the log.
    is_unwritten: bool,
    why: String,
}

impl From<&Fault> for Poison {
    fn from(fault: &Fault) -> Poison {
        let is_unwritten = fault.is_full() || matches!(fault, Fault::Unreachable { .. });
        Poison { is_full: fault.is_full(), is_unwritten, why: fault.to_string() }
    }
}

impl Poison {
    /// The rejection of a write that is not proposed to the log, because the log is faulty.
    fn rejection(&self) -> Rejection {
        if self.is_full { Rejection::Full(self.why.clone()) } else { Rejection::Poisoned(self.why.clone()) }
    }

    /// The rejection of a write that was proposed when the log failed.
    fn rejection_of_tried(&self) -> Rejection {
        if self.is_unwritten { self.rejection() } else { Rejection::Failed(self.why.clone()) }
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
        Writer {
            state,
            log,
            published,
            hub,
            pins,
            others: Arc::default(),
            poison: None,
            awaited: Awaited::default(),
            unwritten: Vec::new(),
            batch: Vec::new(),
            fill: Fill::default(),
            packer: Packer::default(),
        }
    }

    /// The flag that is set by the log's wake function when other servers have appended.
    pub fn others(&self) -> &Arc<AtomicBool> {
        &self.others
    }

    /// Serves commands until it receives `Stop` or all senders are dropped. Waits at most `patience` for requests on
    /// their way.
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
                    self.look_after_log();
                }
            }
        }
    }

    /// Called while there is nothing to write. Recovers a faulty log, and reads the events of other servers.
    pub fn look_after_log(&mut self) {
        self.heal();
        self.follow();
        if !self.unwritten.is_empty() {
            self.commit(&mut Vec::new());
        }
    }

    /// Serves this input and as many waiting inputs as fit into a batch. Returns false after `Stop`.
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
            // The caller may have stopped waiting for this answer.
            let _ = answer.send(self.trouble());
        }
        self.batch = batch;
        !stop
    }

    /// Commits a batch and answers every command in it.
    pub fn commit(&mut self, commands: &mut Vec<Command>) {
        self.heal();
        self.follow();
        commands.splice(0..0, self.unwritten.drain(..));
        if let Some(poison) = &self.poison {
            commands.drain(..).for_each(|command| command.answer(Err(poison.rejection())));
            return;
        }
        let bytes = commands.iter().map(|command| command.bytes() as u64).sum();
        match self.log.lacks_room(bytes) {
            None => {}
            Some(Lack::Soon { left, why }) => self.refuse_who_fills(commands, left, &why),
            Some(Lack::Now { why }) => self.leave_what_makes_room(commands, &why),
        }
        for command in commands.iter() {
            self.fill.note(command.namespace(), command.bytes() as u64);
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
        // This work follows the answers, so that no client waits for it.
        self.pins.count_late();
        fresh.iter().for_each(|body| self.packer.note(body));
    }

    fn makes_room(&self, command: &Command) -> bool {
        pipeline::makes_room(&self.state, &command.writes, &command.actor, command.time_ms)
    }

    /// Refuses writes to namespaces whose share of the recently written bytes is too large, except writes that make
    /// room.
    fn refuse_who_fills(&self, commands: &mut Vec<Command>, left: u64, why: &str) {
        for command in std::mem::take(commands) {
            let namespace = command.namespace();
            match self.fill.too_much(namespace, left).filter(|_| !self.makes_room(&command)) {
                None => commands.push(command),
                Some((wrote, all)) => {
                    let (wrote, all) = (wrote >> 20, all >> 20);
                    let stored = self.state.room.stored(namespace) >> 20;
                    let why = format!(
                        "{why}: namespaces that wrote most of it recently are refused first, and namespace {namespace} \
                         wrote {wrote} MiB of the last {all} MiB and stores {stored} MiB. Deletes are still accepted; \
                         --namespace-bytes limits how much a namespace may store"
                    );
                    command.answer(Err(Rejection::Full(why)));
                }
            }
        }
    }

    /// Refuses writes that do not make room on the disk, and takes the disk's reserve for writes that make room.
    fn leave_what_makes_room(&self, commands: &mut Vec<Command>, why: &str) {
        let (mut kept, refused): (Vec<_>, Vec<_>) = commands.drain(..).partition(|command| self.makes_room(command));
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

    /// Reads the events that other servers have appended, if there are any.
    pub fn follow(&mut self) {
        if self.others.swap(false, Ordering::AcqRel)
            && self.poison.is_none()
            && let Err(fault) = self.take_over()
        {
            tracing::error!(%fault, "events that other servers appended to the log cannot be read: writes are refused");
            self.poison = Some(Poison::from(&fault));
        }
    }

    /// The reason why writes are refused; `None` if writes are accepted.
    pub fn trouble(&self) -> Option<String> {
        self.poison.as_ref().map(|poison| poison.why.clone())
    }

    /// Makes the batch durable, and makes the state with its writes the newest state. If other servers appended first,
    /// the decisions are checked again, so in the end fewer decisions or none may be appended.
    fn append(&mut self, mut batch: Batch) -> Result<Batch, ()> {
        for _ in 0..ROUNDS_MAX {
            let appended = match batch.records.is_empty() {
                true => Ok(Append::Appended),
                false => self.log.commit(&Proposal::new(&batch.records, &|| batch.decisions())),
            };
            match appended.and_then(|appended| self.after(appended)) {
                Ok(Append::Behind) if !planted(Bug::OvertakenAcknowledged) => {
                    batch = Batch::check(&self.state, batch.take_back());
                }
                Ok(Append::Numbered(receipts)) if !planted(Bug::NumbersOfOwn) => {
                    let again = self.settle(batch, receipts)?;
                    batch = Batch::check(&self.state, again.into_iter());
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
        let why = "other servers wrote to the log first each time; please try again";
        batch.take_back().for_each(|command| command.answer(Err(Rejection::Poisoned(why.into()))));
        Err(())
    }

    /// If another server appended first, reads its events.
    fn after(&mut self, appended: Append) -> Result<Append, Fault> {
        if appended.is_behind() {
            self.take_over()?;
        }
        Ok(appended)
    }

    /// Handles the receipts of a log that numbers events itself, and reads its tail with the events of the decisions.
    /// Returns the decisions that must be checked again: the overtaken decisions, and the decisions that failed the
    /// check within the batch, because the decision with which they conflicted may itself have been overtaken.
    fn settle(&mut self, batch: Batch, receipts: Vec<Receipt>) -> Result<Vec<Command>, ()> {
        let (mut receipts, mut again, mut refused) = (receipts.into_iter(), Vec::new(), Vec::new());
        for (command, outcome) in batch.decided {
            let receipt =
                if outcome.is_ok() { receipts.next().unwrap_or(Receipt::Unknown) } else { Receipt::Overtaken };
            if planted(Bug::UnknownTakenForDone) && matches!(receipt, Receipt::Unknown)
                || planted(Bug::ReceiptAnswered) && matches!(receipt, Receipt::At(_))
            {
                command.answer(outcome);
                continue;
            }
            let command = command.taken_back(outcome);
            match receipt {
                Receipt::At(offsets) => self.awaited.written(command, offsets),
                Receipt::Unknown if planted(Bug::UnknownTakenForLost) => again.push(command),
                Receipt::Unknown => self.awaited.unsure(command),
                Receipt::Overtaken => again.push(command),
                Receipt::Taken(claim) => refused.push((command, Rejection::Stale(Contested::Claim(claim)))),
                Receipt::Refused(fault) => refused.push((command, Poison::from(&fault).rejection_of_tried())),
            }
        }
        // The tail is read before refused commands are answered. A request that lost a claim is judged again, and must
        // then see the event of the object that has the claim.
        let taken = self.take_over();
        for (command, rejection) in refused {
            command.answer(Err(rejection));
        }
        if let Err(fault) = taken {
            tracing::error!(%fault, "the log cannot be read, so the outcome of writes is not known yet: writes are refused");
            self.poison = Some(Poison::from(&fault));
        } else if !self.awaited.is_empty() {
            let fault = Fault::Unknown { why: "the log did not report the outcome".into() };
            tracing::warn!("{fault}; the log is read to find out");
            self.poison = Some(Poison::from(&fault));
            self.heal();
            again.append(&mut self.unwritten);
        }
        match &self.poison {
            None => Ok(again),
            Some(poison) => {
                again.into_iter().for_each(|command| command.answer(Err(poison.rejection())));
                Err(())
            }
        }
    }

    /// Rejects a batch that the log refused or did not acknowledge.
    fn refuse(&mut self, mut batch: Batch, fault: &Fault) {
        tracing::error!(%fault, "a batch of {} events could not be appended to the log", batch.records.len());
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
                Ok(_) => poison.rejection_of_tried(),
                // The decision in the batch with which this decision conflicted was not written either.
                Err(_) => poison.rejection(),
            }));
        }
        self.poison = Some(poison);
    }

    /// After a fault, recovers the log if possible, and reads the events that became durable nevertheless.
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
                tracing::info!(offset = %self.state.offset, "the log accepts writes again");
                self.poison = None;
                // After a recovery, awaited decisions that are not in the log will never be in the log, so they are
                // proposed again.
                self.unwritten.extend(self.awaited.absent());
            }
            Err(fault) => self.poison = Some(Poison::from(&fault)),
        }
    }

    /// Folds the log's new events into the state, and publishes and delivers them.
    fn take_over(&mut self) -> Result<(), Fault> {
        loop {
            let records = self.log.tail(self.state.offset)?;
            for resource in self.log.newly_unreadable() {
                if let Some(kind) = self.state.registry.by_storage(&resource) {
                    self.hub.let_go(kind);
                }
            }
            if records.is_empty() {
                return Ok(());
            }
            let mut next = self.state.clone();
            let mut changes = Vec::with_capacity(records.len());
            let mut shown = Vec::new();
            for record in &records {
                if planted(Bug::TailSkips) && record.offset % 11 == 0 {
                    next.offset = record.offset();
                    continue;
                }
                let change = match self.awaited.own(&next, record) {
                    Some((place, nth, change)) => {
                        shown.push((place, nth, change.entry.clone()));
                        change
                    }
                    None => match Change::from_record(&next.registry, record) {
                        Ok(change) => change,
                        // Another server may write objects of a kind whose definition is deleted, or not read yet.
                        Err(_) => {
                            replay(&mut next, record)
                                .map_err(|unknown| Fault::Unreadable { what: unknown.to_string() })?;
                            continue;
                        }
                    },
                };
                changes.push(fold(&mut next, change));
            }
            self.state = next;
            self.published.store(Arc::new(self.state.clone()));
            bodies(&changes).iter().for_each(|body| self.packer.note(body));
            self.pins.replaced(&changes);
            self.pins.count_late();
            self.hub.deliver(&self.state, changes);
            self.awaited.shown(shown);
        }
    }
}

/// Checked decisions, and the writes of the valid decisions.
struct Batch {
    /// The state that results from all writes of the batch.
    next: State,
    records: Vec<Record>,
    /// The changes of the batch, each with the object as it was before the change.
    changes: Vec<(Change, Option<Arc<Entry>>)>,
    /// The commands with their outcomes. Even rejections are answered only after the batch is durable, because another
    /// decision in this batch may be the reason why a decision is stale.
    decided: Vec<(Command, Outcome)>,
}

impl Batch {
    /// Checks each decision against the state and the decisions before it, and numbers the writes of the valid
    /// decisions.
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

    /// Gives the writes their offsets, and folds them into the state.
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

    /// The commands of all decisions, in the form that the callers sent.
    fn take_back(self) -> std::vec::IntoIter<Command> {
        let commands = self.decided.into_iter().map(|(command, outcome)| command.taken_back(outcome));
        commands.collect::<Vec<_>>().into_iter()
    }

    /// The valid decisions with the versions that they require, for a log that compares versions.
    fn decisions(&self) -> Vec<Decision> {
        let mut next = 0;
        let holds = self.decided.iter().filter_map(|(command, outcome)| Some((command, outcome.as_ref().ok()?)));
        let decision = |(command, entries): (&Command, &Vec<Arc<Entry>>)| {
            let records = next..next + entries.len();
            next = records.end;
            let expected = |expectation: &Expectation| Expected {
                resource: self.next.kind(expectation.kind).storage.path.clone(),
                key: expectation.key.clone(),
                version: expectation.version,
            };
            let written =
                command.writes.iter().zip(entries).zip(records.clone()).filter(|((write, _), _)| !write.delete);
            let claims = written
                .flat_map(|((_, entry), place)| entry.index.claims.iter().map(move |claim| (place, claim.clone())));
            let had = records.clone().flat_map(|place| {
                let before = self.changes.get(place).and_then(|(_, before)| before.as_ref());
                before
                    .into_iter()
                    .flat_map(move |before| before.index.claims.iter().map(move |claim| (place, claim.clone())))
            });
            Decision {
                claims: claims.collect(),
                had: had.collect(),
                expects: command.expects.iter().map(expected).collect(),
                records,
            }
        };
        holds.map(decision).collect()
    }

    fn answer(&mut self) {
        self.decided.drain(..).for_each(|(command, outcome)| command.answer(outcome));
    }
}

/// The objects that exist after these changes, as bodies that may be packed later.
fn bodies(changes: &[(Change, Option<Arc<Entry>>)]) -> Vec<Body> {
    let there = changes.iter().filter(|(change, _)| !change.deleted);
    there.map(|(change, _)| change.entry.body().clone()).collect()
}

/// Folds a change into the state. Returns the change, and the object before it.
fn fold(state: &mut State, change: Change) -> (Change, Option<Arc<Entry>>) {
    let previous = apply(state, &change);
    (change, previous)
}

/// The first object, claim or kind that the decision requires unchanged but that has changed.
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

/// Returns a claim of the write that another object holds; `None` if all its claims are free.
fn taken(state: &State, write: &Write) -> Option<Arc<str>> {
    if write.delete || write.index.claims.is_empty() || planted(Bug::ClaimsUnchecked) {
        return None;
    }
    let owner = state.owner(write.kind, &write.key);
    let is_taken = |claim: &&Arc<str>| state.claimant(claim).is_some_and(|claimant| *claimant != owner);
    write.index.claims.iter().find(is_taken).cloned()
}
