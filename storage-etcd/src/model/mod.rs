//! A model of etcd for simulations, with revisions, transactions, compaction, watches and leases. Answers may get lost,
//! calls may be delayed, members may lag, and backups may be restored.
//!
//! The model does nothing by itself and is not random. [`Chance`] decides the fate of each call, [`Model::advance`]
//! advances the clock, and [`Model::catch_up`] lets members catch up.

mod store;
#[cfg(test)]
mod tests;

use crate::client::{
    Decided, Etcd, Event, Expected, Fault, Header, KeyRange, Lease, Operation, Range, Ranged, Status, Txn,
};
use crate::client::{Watch, Watched};
use crate::compaction::COMPACT_REV_KEY;
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use store::Store;

/// What happens to a call of a client and to its answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Fate {
    #[default]
    Answered,
    /// The call does not reach etcd, and the caller receives an error that proves this.
    Unreachable,
    /// The call is carried out, and its answer is lost.
    DoneUnanswered,
    /// The answer is lost. The call is carried out only after this many other calls, which may change its result.
    DoneLater(u32),
    /// The call is lost, and the caller cannot tell whether it was carried out.
    LostUnanswered,
    /// The call is carried out although the quota is used up, and the answer reports that it was not carried out.
    DoneThoughFull,
}

/// The kinds of calls, by which [`Chance`] chooses fates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallKind {
    Range,
    Transact,
    Watch,
    /// The next events of a watch. Any other fate than `Answered` ends the watch.
    Next,
    Compact,
    Grant,
}

/// Decides the fate of each call of a client.
pub type Chance = Box<dyn FnMut(CallKind) -> Fate + Send>;

/// Known bugs of releases of etcd, which a model may have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Bugs {
    /// A lagging member answers linearizable reads with old data (etcd#20418).
    pub stale_reads: bool,
    /// A watch that is opened right behind the compacted revision misses the first event (etcd#19179).
    pub loses_first_event: bool,
    /// A watch sends events twice.
    pub repeats_events: bool,
    /// A watch reports progress that it has not made (etcd#15220).
    pub early_progress: bool,
}

/// A modelled etcd cluster. Each client is connected to one of its members.
#[derive(Clone)]
pub struct Model(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    /// Notifies waiting watches of writes, and of members that caught up.
    moved: Condvar,
}

struct State {
    store: Store,
    cluster: u64,
    term: u64,
    now: u64,
    version: String,
    bugs: Bugs,
    /// The revision of each lagging member, and the number of accesses after which it catches up.
    lagging: BTreeMap<u64, (u64, u32)>,
    /// Whether a single thread makes all calls. Then a call must not wait for events, because no other thread would
    /// produce events.
    is_alone: bool,
    late: Vec<(u32, Txn)>,
    /// Whether the model refuses transactions that Kubernetes does not make, as kine does.
    is_plain: bool,
}

/// A client of the model, connected to one member.
pub struct ModelClient {
    shared: Arc<Shared>,
    member: u64,
    chance: Mutex<Chance>,
}

impl Default for Model {
    fn default() -> Model {
        let state = State {
            store: Store::new(),
            cluster: 1,
            term: 1,
            now: 0,
            version: "3.6.16".into(),
            bugs: Bugs::default(),
            lagging: BTreeMap::new(),
            is_alone: false,
            late: Vec::new(),
            is_plain: false,
        };
        Model(Arc::new(Shared { state: Mutex::new(state), moved: Condvar::new() }))
    }
}

impl Model {
    /// A client whose calls have the fates that `chance` decides.
    pub fn client(&self, member: u64, chance: Chance) -> ModelClient {
        ModelClient { shared: self.0.clone(), member, chance: Mutex::new(chance) }
    }

    /// A client whose calls are all answered.
    pub fn plain_client(&self, member: u64) -> ModelClient {
        self.client(member, Box::new(|_| Fate::Answered))
    }

    pub fn set_bugs(&self, bugs: Bugs) {
        self.0.lock().bugs = bugs;
    }

    /// Sets the version that members report. The default is `3.6.16`.
    pub fn set_version(&self, version: &str) {
        version.clone_into(&mut self.0.lock().version);
    }

    /// Makes the model refuse transactions that Kubernetes does not make, as kine does.
    pub fn be_plain(&self) {
        self.0.lock().is_plain = true;
    }

    pub fn set_full(&self, is_full: bool) {
        self.0.lock().store.is_full = is_full;
    }

    /// Advances the model's clock by `seconds`.
    pub fn advance(&self, seconds: u64) {
        let mut state = self.0.lock();
        state.now += seconds;
        let now = state.now;
        state.store.expire(now);
        self.0.moved.notify_all();
    }

    /// Declares that all calls come from one thread, so that no call waits.
    pub fn be_alone(&self) {
        self.0.lock().is_alone = true;
    }

    /// Makes a member lag: it stays at its revision for `looks` accesses. Meanwhile its watches receive no events, and
    /// its reads fail, unless the model has the bug of stale reads.
    pub fn lag(&self, member: u64, looks: u32) {
        let mut state = self.0.lock();
        let revision = state.store.revision;
        state.lagging.entry(member).or_insert((revision, looks));
    }

    pub fn catch_up(&self, member: u64) {
        self.0.lock().lagging.remove(&member);
        self.0.moved.notify_all();
    }

    /// Elects another leader, which increments the term.
    pub fn change_leader(&self) {
        self.0.lock().term += 1;
    }

    /// Carries out all delayed calls at once.
    pub fn settle(&self) {
        let mut state = self.0.lock();
        for (_, late) in std::mem::take(&mut state.late) {
            // The callers no longer wait for the answers.
            let _ = state.store.transact(&late);
        }
        self.0.moved.notify_all();
    }

    /// A new cluster with the current content of this cluster, as from a backup. Delayed calls to this cluster do not
    /// reach the new cluster.
    pub fn backup(&self) -> Model {
        let state = self.0.lock();
        let backup = Model::default();
        {
            let mut restored = backup.0.lock();
            restored.cluster = state.cluster + 1;
            restored.now = state.now;
            restored.is_alone = state.is_alone;
            restored.is_plain = state.is_plain;
            restored.store = state.store.clone();
        }
        backup
    }

    /// Replaces the content of this cluster and keeps its id, as if the disks of its members were restored.
    pub fn restore_same(&self, backup: &Model) {
        let store = backup.0.lock().store.clone();
        let mut state = self.0.lock();
        state.store = store;
        state.late.clear();
        state.lagging.clear();
        self.0.moved.notify_all();
    }

    /// Replaces this cluster by a backup, as `etcdutl snapshot restore` does.
    pub fn restore(&self, backup: &Model) {
        let (store, cluster) = {
            let from = backup.0.lock();
            (from.store.clone(), from.cluster)
        };
        let mut state = self.0.lock();
        state.store = store;
        state.cluster = cluster;
        state.late.clear();
        state.lagging.clear();
        self.0.moved.notify_all();
    }

    pub fn revision(&self) -> u64 {
        self.0.lock().store.revision
    }

    /// Every event since the last compaction, for the oracles of simulations.
    pub fn events(&self) -> Vec<Event> {
        let state = self.0.lock();
        state.store.events(&KeyRange::between(&b"\0"[..], &b"\xff"[..]), 0, state.store.revision)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn header(&self, member: u64) -> Header {
        Header { cluster: self.cluster, member, revision: self.applied(member), term: self.term }
    }

    /// The revision up to which a member has applied the cluster's writes.
    fn applied(&self, member: u64) -> u64 {
        self.lagging.get(&member).map_or(self.store.revision, |(revision, _)| *revision)
    }

    /// Counts one access to a lagging member.
    fn look(&mut self, member: u64) {
        if let Some((_, looks)) = self.lagging.get_mut(&member) {
            *looks = looks.saturating_sub(1);
            if *looks == 0 {
                self.lagging.remove(&member);
            }
        }
    }

    /// Counts one more call, and carries out the delayed calls that are due.
    fn pass(&mut self) {
        let mut due = Vec::new();
        for (calls, late) in std::mem::take(&mut self.late) {
            match calls.checked_sub(1) {
                Some(calls) => self.late.push((calls, late)),
                None => due.push(late),
            }
        }
        for late in due {
            let _ = self.store.transact(&late);
        }
    }
}

/// Whether Kubernetes makes such a transaction: create, update, delete, or the mark of a compaction.
fn is_plain(asked: &Txn) -> bool {
    let ([compare], [operation]) = (asked.compares.as_slice(), asked.operations.as_slice()) else { return false };
    let otherwise = asked.otherwise.as_ref().map(|keys| (&keys.from, keys.to.is_empty()));
    let reads_it = otherwise == Some((&compare.key, true));
    let is_form = match (compare.is, operation) {
        (Expected::ModRevision(0), Operation::Put { .. }) => otherwise.is_none() || reads_it,
        (Expected::ModRevision(_), _) => reads_it,
        (Expected::Version(_), Operation::Put { key, .. }) => reads_it && *key == COMPACT_REV_KEY,
        (Expected::Version(_), Operation::Delete { .. }) => false,
    };
    is_form && *operation.key() == compare.key
}

fn lost() -> Fault {
    Fault::Unknown("etcdserver: request timed out".into())
}

fn unreachable() -> Fault {
    Fault::Unreachable("etcdserver: no leader".into())
}

impl ModelClient {
    fn fate(&self, call: CallKind) -> Fate {
        (self.chance.lock().unwrap_or_else(PoisonError::into_inner))(call)
    }

    fn transact_one(&self, asked: Txn) -> Result<Decided, Fault> {
        let fate = self.fate(CallKind::Transact);
        let mut state = self.shared.lock();
        state.pass();
        if state.is_plain && !is_plain(&asked) {
            return Err(Fault::Refused("etcdserver: unsupported operations in txn request".into()));
        }
        let outcome = match fate {
            Fate::Unreachable => return Err(unreachable()),
            Fate::LostUnanswered => return Err(lost()),
            Fate::DoneLater(calls) => {
                state.late.push((calls, asked));
                return Err(lost());
            }
            Fate::DoneThoughFull => {
                let was_full = std::mem::replace(&mut state.store.is_full, false);
                let done = state.store.transact(&asked);
                state.store.is_full = was_full;
                done.and_then(|_| Err(Fault::NoSpace("etcdserver: mvcc: database space exceeded".into())))
            }
            Fate::Answered | Fate::DoneUnanswered => state.store.transact(&asked),
        };
        self.shared.moved.notify_all();
        let held = outcome?;
        if fate == Fate::DoneUnanswered {
            return Err(lost());
        }
        let found = match (&asked.otherwise, held) {
            (Some(keys), false) => state.store.range(&Range::of(keys.clone()), state.store.revision).keys,
            _ => Vec::new(),
        };
        // The member that answers a write has applied it.
        let revision = state.store.revision;
        Ok(Decided { header: Header { revision, ..state.header(self.member) }, held, found })
    }
}

impl Etcd for ModelClient {
    fn range(&self, asked: &Range) -> Result<Ranged, Fault> {
        let fate = self.fate(CallKind::Range);
        let mut state = self.shared.lock();
        state.pass();
        if fate != Fate::Answered {
            // A read has no effect, so it need not be carried out if its answer is lost.
            return Err(unreachable());
        }
        let is_stale = state.lagging.contains_key(&self.member);
        if is_stale && !state.bugs.stale_reads && asked.revision == 0 {
            state.look(self.member);
            return Err(unreachable());
        }
        let header = state.header(self.member);
        let revision = if asked.revision == 0 { header.revision } else { asked.revision };
        if revision > header.revision {
            return Err(Fault::Refused("etcdserver: mvcc: required revision is a future revision".into()));
        }
        if revision < state.store.compacted {
            return Err(Fault::Compacted(state.store.compacted));
        }
        let found = state.store.range(asked, revision);
        let more = asked.limit > 0 && found.count > asked.limit;
        Ok(Ranged { header, found: found.keys, more, count: found.count })
    }

    fn transact(&self, transactions: Vec<Txn>) -> Vec<Result<Decided, Fault>> {
        transactions.into_iter().map(|asked| self.transact_one(asked)).collect()
    }

    fn watch(&self, keys: &KeyRange, from_revision: u64) -> Result<Box<dyn Watch>, Fault> {
        let fate = self.fate(CallKind::Watch);
        let mut state = self.shared.lock();
        state.pass();
        if fate != Fate::Answered {
            return Err(unreachable());
        }
        let mut next = if from_revision == 0 { state.applied(self.member) + 1 } else { from_revision };
        if next <= state.store.compacted {
            return Err(Fault::Compacted(state.store.compacted));
        }
        if state.bugs.loses_first_event && next == state.store.compacted + 1 {
            next += 1;
        }
        let fates: Vec<Fate> = std::iter::repeat_with(|| self.fate(CallKind::Next)).take(FATES_AHEAD).collect();
        Ok(Box::new(Watching {
            shared: self.shared.clone(),
            member: self.member,
            cluster: state.cluster,
            keys: keys.clone(),
            next,
            fates: fates.into_iter(),
            has_repeated: false,
            wants_progress: false,
            has_ended: false,
        }))
    }

    fn compact(&self, revision: u64) -> Result<Header, Fault> {
        let fate = self.fate(CallKind::Compact);
        let mut state = self.shared.lock();
        state.pass();
        match fate {
            Fate::Unreachable => return Err(unreachable()),
            Fate::LostUnanswered | Fate::DoneLater(_) => return Err(lost()),
            Fate::Answered | Fate::DoneUnanswered | Fate::DoneThoughFull => state.store.compact(revision)?,
        }
        if fate == Fate::DoneUnanswered { Err(lost()) } else { Ok(state.header(self.member)) }
    }

    fn grant(&self, seconds: u64) -> Result<Lease, Fault> {
        let fate = self.fate(CallKind::Grant);
        let mut state = self.shared.lock();
        state.pass();
        match fate {
            Fate::Unreachable => return Err(unreachable()),
            Fate::LostUnanswered | Fate::DoneLater(_) => return Err(lost()),
            Fate::Answered | Fate::DoneUnanswered | Fate::DoneThoughFull => {}
        }
        let ends = state.now + seconds;
        let id = state.store.grant(ends)?;
        if fate == Fate::DoneUnanswered {
            Err(lost())
        } else {
            Ok(Lease { header: state.header(self.member), id, seconds })
        }
    }

    fn status(&self) -> Vec<(String, Result<Status, Fault>)> {
        let state = self.shared.lock();
        let status = Status {
            header: state.header(self.member),
            version: state.version.clone(),
            leader: 1,
            errors: if state.store.is_full { vec!["alarm:NOSPACE".into()] } else { Vec::new() },
            ..Status::default()
        };
        vec![(format!("member {}", self.member), Ok(status))]
    }
}

/// The number of fates that are drawn for a watch when it is opened. After these, all its calls are answered.
const FATES_AHEAD: usize = 256;

struct Watching {
    shared: Arc<Shared>,
    member: u64,
    cluster: u64,
    keys: KeyRange,
    /// The first revision that the watch has not delivered yet.
    next: u64,
    fates: std::vec::IntoIter<Fate>,
    has_repeated: bool,
    wants_progress: bool,
    has_ended: bool,
}

impl Watch for Watching {
    fn next(&mut self, patience: Duration) -> Result<Option<Watched>, Fault> {
        if self.fates.next().unwrap_or_default() != Fate::Answered {
            self.has_ended = true;
        }
        let deadline = Instant::now() + patience;
        let shared = self.shared.clone();
        let mut state = shared.lock();
        loop {
            if self.has_ended || state.cluster != self.cluster {
                self.has_ended = true;
                return Err(Fault::Unreachable("the watch was cut".into()));
            }
            if let Some(watched) = self.watched(&state)? {
                return Ok(Some(watched));
            }
            state.look(self.member);
            if state.is_alone {
                return Ok(None);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            state = shared.moved.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn ask_progress(&mut self) -> Result<(), Fault> {
        if self.has_ended {
            return Err(Fault::Unreachable("the watch was cut".into()));
        }
        self.wants_progress = true;
        Ok(())
    }
}

impl Watching {
    /// The next answer of the watch: events up to the revision of its member, or the progress.
    fn watched(&mut self, state: &State) -> Result<Option<Watched>, Fault> {
        if self.next <= state.store.compacted {
            self.has_ended = true;
            return Err(Fault::Compacted(state.store.compacted));
        }
        let header = state.header(self.member);
        if state.bugs.early_progress && std::mem::take(&mut self.wants_progress) {
            return Ok(Some(Watched {
                header: Header { revision: state.store.revision, ..header },
                events: Vec::new(),
            }));
        }
        let events = state.store.events(&self.keys, self.next, header.revision);
        if !events.is_empty() {
            let last = events.last().map_or(self.next, |event| event.now.mod_revision);
            self.has_repeated = state.bugs.repeats_events && !self.has_repeated;
            self.next = if self.has_repeated { last } else { last + 1 };
            return Ok(Some(Watched { header, events }));
        }
        self.next = self.next.max(header.revision + 1);
        let told = std::mem::take(&mut self.wants_progress);
        Ok(told.then_some(Watched { header, events: Vec::new() }))
    }
}
