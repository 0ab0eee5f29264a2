//! The single writer: the order of a commit, written once.
//!
//! 1. Check each decision's expectations against the newest state, decisions before it in the batch included.
//! 2. Number the writes that hold.
//! 3. Append them to the log, durable, with one fsync for the batch.
//! 4. Publish the new state.
//! 5. Wake the watchers.
//! 6. Answer.
//!
//! Nothing is answered, shown to a reader or sent to a watcher before it is durable.

use crate::hub::Hub;
use crate::log::{EventLog, Fault};
#[cfg(feature = "planted")]
use crate::planted::{Bug, is};
use arc_swap::ArcSwap;
use crossbeam::channel::{Receiver, RecvTimeoutError};
use holdfast_core::apply::apply;
use holdfast_core::event::{Actor, Operation, Record};
use holdfast_core::pipeline::{Expectation, Write};
use holdfast_core::state::{Change, Entry, State};
use std::sync::Arc;
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
    Commit(Command),
    /// After what was handed over before.
    Stop,
}

/// A decision on its way into the log.
pub struct Command {
    pub work: Work,
    pub actor: Actor,
    pub time_ms: i64,
    pub answer: oneshot::Sender<Outcome>,
}

pub enum Work {
    /// Decided on a snapshot, and good as long as what was counted on is still so.
    Decided { writes: Vec<Write>, expects: Vec<Expectation> },
    /// To be decided by the writer, on the newest state: for requests that lost too many races against others.
    /// Nothing can come in between, and all other commands wait meanwhile.
    Undecided(Decide),
}

/// Makes the writes of a state.
pub type Decide = Box<dyn FnOnce(&State) -> Vec<Write> + Send>;

/// Why a decision did not make it into the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rejection {
    /// Something it counted on has changed: decide again.
    Stale,
    /// The disk is full.
    Full(String),
    /// The log failed; it is not known whether the write is durable.
    Failed(String),
    /// The log failed before, and writes wait until it works again.
    Poisoned(String),
}

/// Owns the newest state and is alone in changing it.
pub struct Writer {
    state: State,
    log: Arc<dyn EventLog>,
    published: Arc<ArcSwap<State>>,
    hub: Arc<Hub>,
    /// Why the log may not be appended to; `None` when all is well.
    poison: Option<(bool, String)>,
}

impl Writer {
    pub fn new(state: State, log: Arc<dyn EventLog>, published: Arc<ArcSwap<State>>, hub: Arc<Hub>) -> Writer {
        Writer { state, log, published, hub, poison: None }
    }

    /// Serves commands until it is told to stop or every sender is gone.
    pub fn run(mut self, commands: Receiver<Input>) {
        let mut batch = Vec::with_capacity(BATCH_COMMANDS_MAX);
        loop {
            match commands.recv_timeout(RECOVERY_PERIOD) {
                Ok(Input::Commit(command)) => batch.push(command),
                Ok(Input::Stop) => return,
                Err(RecvTimeoutError::Timeout) => {
                    self.heal();
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => return,
            }
            let mut bytes = 0;
            let mut stop = false;
            while batch.len() < BATCH_COMMANDS_MAX && bytes < BATCH_BYTES_MAX {
                match commands.try_recv() {
                    Ok(Input::Commit(command)) => {
                        if let Work::Decided { writes, .. } = &command.work {
                            bytes += writes.iter().map(|write| write.draft.len()).sum::<usize>();
                        }
                        batch.push(command);
                    }
                    Ok(Input::Stop) => {
                        stop = true;
                        break;
                    }
                    Err(_) => break,
                }
            }
            self.commit(&mut batch);
            if stop {
                return;
            }
        }
    }

    /// Commits a batch and answers every command in it.
    pub fn commit(&mut self, batch: &mut Vec<Command>) {
        self.heal();
        if let Some((full, why)) = &self.poison {
            for command in batch.drain(..) {
                let rejection = if *full { Rejection::Full(why.clone()) } else { Rejection::Poisoned(why.clone()) };
                let _ = command.answer.send(Err(rejection));
            }
            return;
        }
        let mut next = self.state.clone();
        let mut records = Vec::with_capacity(batch.len());
        let mut changes = Vec::with_capacity(batch.len());
        let mut answers = Vec::with_capacity(batch.len());
        for command in batch.drain(..) {
            let writes = match command.work {
                Work::Undecided(decide) => decide(&next),
                Work::Decided { writes, .. } if writes.iter().any(|write| !next.registry.serves(write.kind)) => {
                    answers.push((command.answer, Err(Rejection::Stale)));
                    continue;
                }
                Work::Decided { writes, expects } if holds(&next, &writes, &expects) => writes,
                Work::Decided { .. } => {
                    // Told only when the batch is durable: what made it stale may be in this very batch.
                    answers.push((command.answer, Err(Rejection::Stale)));
                    continue;
                }
            };
            let mut entries = Vec::with_capacity(writes.len());
            for write in writes {
                let (record, change) = number(&next, write, &command.actor, command.time_ms);
                let previous = next.get(change.kind, &change.key).cloned();
                apply(&mut next, &change);
                entries.push(change.entry.clone());
                records.push(record);
                changes.push((change, previous));
            }
            answers.push((command.answer, Ok(entries)));
        }
        if records.is_empty() {
            answer_all(answers);
            return;
        }
        #[cfg(feature = "planted")]
        {
            if is(Bug::AnswerBeforeAppend) {
                answer_all(std::mem::take(&mut answers));
            }
            if is(Bug::PublishBeforeAppend) {
                self.published.store(Arc::new(next.clone()));
            }
        }
        if let Err(fault) = self.log.append(&records) {
            tracing::error!(%fault, "the log did not take a batch of {} events", records.len());
            #[cfg(feature = "planted")]
            {
                if is(Bug::HalfBatchAfterFault) {
                    apply(&mut self.state, &changes[0].0);
                    self.published.store(Arc::new(self.state.clone()));
                }
                if is(Bug::FaultAcknowledged) {
                    answer_all(std::mem::take(&mut answers));
                }
            }
            let why = fault.to_string();
            self.poison = Some((fault.is_full(), why.clone()));
            for (answer, outcome) in answers {
                let rejection = match outcome {
                    _ if fault.is_full() => Rejection::Full(why.clone()),
                    Ok(_) => Rejection::Failed(why.clone()),
                    Err(_) => Rejection::Poisoned(why.clone()),
                };
                let _ = answer.send(Err(rejection));
            }
            return;
        }
        self.state = next;
        #[cfg(feature = "planted")]
        {
            if is(Bug::DeliverBeforePublish) {
                self.hub.deliver(&self.state, std::mem::take(&mut changes));
            }
            if is(Bug::AnswerBeforePublish) {
                answer_all(std::mem::take(&mut answers));
            }
        }
        self.published.store(Arc::new(self.state.clone()));
        self.hub.deliver(&self.state, changes);
        answer_all(answers);
    }

    /// After a fault: makes the log work again if it can, and takes over what had become durable after all.
    fn heal(&mut self) {
        if self.poison.is_none() {
            return;
        }
        match self.catch_up() {
            Ok(()) => {
                tracing::info!(offset = %self.state.offset, "the log takes writes again");
                self.poison = None;
            }
            Err(fault) => self.poison = Some((fault.is_full(), fault.to_string())),
        }
    }

    fn catch_up(&mut self) -> Result<(), Fault> {
        self.log.recover()?;
        #[cfg(feature = "planted")]
        if is(Bug::OffsetsReused) {
            return Ok(());
        }
        loop {
            let records = self.log.scan(None, self.state.offset, BATCH_COMMANDS_MAX)?;
            if records.is_empty() {
                return Ok(());
            }
            let mut next = self.state.clone();
            let mut changes = Vec::with_capacity(records.len());
            for record in &records {
                let change = Change::from_record(&next.registry, record)
                    .map_err(|unknown| Fault::Unreadable { what: unknown.to_string() })?;
                let previous = next.get(change.kind, &change.key).cloned();
                apply(&mut next, &change);
                changes.push((change, previous));
            }
            self.state = next;
            self.published.store(Arc::new(self.state.clone()));
            self.hub.deliver(&self.state, changes);
        }
    }
}

/// What becomes of a decision.
pub type Outcome = Result<Vec<Arc<Entry>>, Rejection>;

fn answer_all(answers: Vec<(oneshot::Sender<Outcome>, Outcome)>) {
    for (answer, outcome) in answers {
        // A client that has gone away does not mind.
        let _ = answer.send(outcome);
    }
}

/// Whether everything the decision counted on is still so.
fn holds(state: &State, writes: &[Write], expects: &[Expectation]) -> bool {
    let unchanged =
        |expectation: &Expectation| state.version_of(expectation.kind, &expectation.key) == expectation.version;
    let free =
        |write: &Write| {
            write.delete
                || write.index.claims.is_empty()
                || write.index.claims.iter().all(|claim| {
                    state.claimant(claim).is_none_or(|owner| *owner == state.owner(write.kind, &write.key))
                })
        };
    #[cfg(feature = "planted")]
    match () {
        () if is(Bug::LostUpdate) => return expects.iter().all(unchanged) && writes.iter().all(free),
        () if is(Bug::ClaimsUnchecked) => {
            let current = |write: &Write| state.version_of(write.kind, &write.key) == write.expect;
            return expects.iter().all(unchanged) && writes.iter().all(current);
        }
        () if is(Bug::ExpectationsUnchecked) => {
            let current = |write: &Write| state.version_of(write.kind, &write.key) == write.expect && free(write);
            return writes.iter().all(current);
        }
        () => {}
    }
    expects.iter().all(unchanged)
        && writes.iter().all(|write| state.version_of(write.kind, &write.key) == write.expect && free(write))
}

/// Gives the write its offset.
fn number(state: &State, write: Write, actor: &Actor, time_ms: i64) -> (Record, Change) {
    let offset = state.offset.next();
    let json = write.draft.seal(offset);
    #[cfg(feature = "planted")]
    let write = match is(Bug::FinalizersIgnored) && is_deleting(&json) {
        true => Write { delete: true, ..write },
        false => write,
    };
    let operation = if write.delete { Operation::Delete } else { Operation::Put };
    let record = Record {
        offset: offset.0,
        time_ms,
        resource: state.kind(write.kind).storage.clone(),
        key: write.key.to_string(),
        replaces: write.expect.map_or(0, |offset| offset.0),
        operation: operation as i32,
        actor: actor.clone(),
        object: json.clone(),
    };
    let entry = Arc::new(Entry::new(json, write.draft.head(), offset, time_ms, write.index));
    (record, Change { offset, kind: write.kind, key: write.key, entry, deleted: write.delete })
}

/// Whether an object is being deleted, as far as a planted bug needs to know.
#[cfg(feature = "planted")]
fn is_deleting(json: &[u8]) -> bool {
    String::from_utf8_lossy(json).contains("\"deletionTimestamp\"")
}
