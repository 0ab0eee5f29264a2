//! The log on etcd: decisions are written as transactions, and the watch delivers the writes of all servers to the
//! local log.

use crate::claims::{Allocations, Taking};
use crate::client::{
    self, Decided, Etcd, Expected, KeyRange, KeyValue, Operation, Range, RangeContent, Ranged, Transactions, Txn,
};
use crate::first;
use crate::follow::Follower;
use crate::key_space::{KeySpace, Kinds};
use crate::local::Local;
use crate::planted::{Bug, planted};
use crate::restored::{self, Standing};
use crate::shared::{Shared, Storing, fault, went_back, wrong_cluster};
use crate::strays::Strays;
use crate::transaction::{ObjectWrite, order};
use bytes::Bytes;
use holdfast_core::event::{Actor, Offset, Record};
use holdfast_encryption::{Keyring, Live, Locked};
use holdfast_engine::log::sealing::{Prepared, Sealing, Values};
use holdfast_engine::log::{Decision, Identity, Lack, LastFound, Receipt, Unreadable, Wake};
use holdfast_engine::{Append, AsOf, Changed, Changes, Fault, Log, LogRead, Proposal, Size};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The maximum time for which a write or a read waits until the local log has events that etcd has.
const EVENTS_MAX: Duration = Duration::from_secs(10);

/// The maximum number of answers in one commit that report a missing lease. Each such write is retried with a new
/// lease. Many objects may share a revoked lease.
const LEASES_LOST_MAX: usize = 1024;

/// The maximum number of reads of etcd's revision in a row. A read is repeated if its answer is older than the events
/// that etcd's watch has already delivered.
const TRIES_MAX: usize = 10;

/// The parts from which a log on etcd is made.
#[derive(Clone)]
pub struct Parts {
    pub etcd: Arc<dyn Etcd>,
    pub local: Arc<dyn Local>,
    /// The prefix of the cluster's keys in etcd: the option `--etcd-prefix`.
    pub prefix: String,
    /// The kinds whose objects are in this etcd.
    pub kinds: Kinds,
    pub storing: Storing,
    pub transactions: Transactions,
    /// Reserves addresses and node ports. `None` means that addresses and node ports are reserved with a key that only
    /// Holdfast's servers use.
    pub claims: Option<Arc<Allocations>>,
    /// The keys that encrypt values, in etcd and on the server's own disk.
    pub keys: Arc<Live>,
    /// Whether the progress notifications of all members can be trusted.
    pub tells_progress: bool,
    /// `--etcd-accept-restored`: whether an etcd that was restored from a backup is accepted.
    pub accepts_restored: bool,
}

pub struct EtcdLog {
    pub(crate) shared: Arc<Shared>,
    secret: [u8; 32],
    /// The follower of etcd's events; `Some` until [`Log::wake_by`] starts the thread that runs the follower.
    follower: Mutex<Option<Follower>>,
    following: Mutex<Option<JoinHandle<()>>>,
}

impl EtcdLog {
    /// Opens the log, and brings the local log up to etcd's revision.
    pub fn open(parts: Parts) -> Result<EtcdLog, Fault> {
        let Parts { etcd, local, prefix, kinds, storing, transactions, claims, keys, tells_progress, accepts_restored } =
            parts;
        let places = KeySpace::new(&prefix, kinds, transactions);
        let mut source = local.source()?;
        let root = places.keys.root();
        if source.prefix.is_empty() && local.last()? > Offset::ZERO {
            return Err(Fault::Unreadable {
                what: "the data folder has a log of its own, whose events are not in etcd: use another data folder"
                    .into(),
            });
        }
        if !source.prefix.is_empty() && source.prefix != root {
            let what = format!(
                "the data folder has events of the prefix {}, and --etcd-prefix is {root}: use another data folder",
                source.prefix
            );
            return Err(Fault::Unreadable { what });
        }
        root.clone_into(&mut source.prefix);
        let asked = Range::of(KeyRange::one(places.migration())).only(RangeContent::Count);
        let answer = etcd.range(&asked).map_err(fault)?;
        if answer.count > 0 {
            let what = format!(
                "a migration into etcd, below {root}, is not finished: go on by running the same `holdfast migrate` again"
            );
            return Err(Fault::Unreadable { what });
        }
        let now = Standing::of(etcd.as_ref(), &places).map_err(fault)?;
        let server = local.identity()?.id.unwrap_or_default();
        let shared = Arc::new(Shared::new(
            etcd,
            local,
            keys,
            places,
            (storing, transactions, claims),
            (server, now.cluster),
            tells_progress,
        ));
        let restored = restored::sign(&shared, &source, &now)?;
        // Taking over a restored etcd needs transactions of several keys.
        let accepts_restored = accepts_restored && transactions == Transactions::Full;
        if let (Some(sign), false) = (&restored, accepts_restored) {
            return Err(Fault::Unreadable {
                what: format!(
                    "{sign}. Start once with --etcd-accept-restored to take over what the store has now (only with etcd \
                     itself), or with a new data folder"
                ),
            });
        }
        if restored.is_none() {
            (source.cluster, source.epoch) = (now.cluster, now.epoch.clone());
            shared.local.keep_source(&source)?;
        }
        let secret = agreed_secret(&shared, shared.local.secret()?)?;
        if transactions == Transactions::Full {
            raise_fence(&shared)?;
        }
        let written = match restored {
            Some(_) => Some(restored::accept(&shared, &mut source, &now)?),
            None => None,
        };
        let mut follower = Follower::new(shared.clone(), source);
        match written {
            Some(written) => follower.take_over(written)?,
            None => follower.begin()?,
        }
        Ok(EtcdLog { shared, secret, follower: Mutex::new(Some(follower)), following: Mutex::default() })
    }

    /// Whether a separate thread follows etcd's events.
    fn is_followed(&self) -> bool {
        self.follower.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    /// The keys under the prefix that the log ignores.
    pub fn strays(&self) -> Arc<Strays> {
        self.shared.strays.clone()
    }

    /// Waits until the local log has all events up to a revision.
    pub(crate) fn wait_through(&self, revision: u64) -> Result<(), Fault> {
        let mut follower = self.follower.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *follower {
            Some(follower) => {
                let deadline = Instant::now() + EVENTS_MAX;
                while self.shared.through() < revision {
                    if Instant::now() > deadline {
                        return Err(Fault::Unreachable { why: "etcd's events do not come".into() });
                    }
                    follower.step(Duration::from_millis(20), true)?;
                }
                Ok(())
            }
            None => {
                drop(follower);
                self.shared.wait_through(revision, EVENTS_MAX)
            }
        }
    }

    /// The next transaction that a decision needs; `None` if all its transactions were sent.
    fn next(&self, going: &PendingDecision, records: &[Record]) -> Result<Option<Txn>, Fault> {
        let shared = &self.shared;
        let Some(nth) = going.order.get(going.written.len()) else { return Ok(None) };
        let record = &records[*nth];
        let (who_wrote, fence) = self.author_and_fence(record);
        let step = ObjectWrite {
            record,
            replaces: going.revision_of(records, record.replaces),
            value: if record.is_delete() { None } else { Some(shared.value(record)?) },
            lease: shared.lease(record)?,
            who: who_wrote,
            fence,
            claims: going
                .claims
                .map(|revision| (shared.places.claims(), going.written.values().copied().max().unwrap_or(revision))),
        };
        if shared.transactions == Transactions::Plain {
            let txn = step.plain(&shared.places.keys);
            shared.sent.note(step.replaces, &txn.operations[0], author_record(record));
            return Ok(Some(txn));
        }
        let is_written = |resource: &str, key: &str| {
            going.written.keys().any(|nth| records[*nth].resource == resource && records[*nth].key == key)
        };
        let txn = step.transaction(&going.decision, &shared.places.keys, is_written);
        txn.map(Some).map_err(|why| Fault::Unreadable { what: why.to_string() })
    }

    /// The author record that is written together with a record, and the fence key with the revision that it must still
    /// have.
    pub(crate) fn author_and_fence(&self, record: &Record) -> ((Bytes, Bytes), (Bytes, u64)) {
        let shared = &self.shared;
        let who = (shared.places.who(&shared.server), author_record(record).encode_record().into());
        (who, (shared.places.fence(&shared.server), shared.fence.load(Ordering::Acquire)))
    }

    /// Writes independent decisions. Each round sends one transaction of each decision. Returns the revision up to
    /// which there are events.
    fn drive(&self, going: &mut [PendingDecision], records: &[Record]) -> u64 {
        let (mut through, mut leases_lost) = (0, 0);
        loop {
            let (mut sent, mut txns) = (Vec::new(), Vec::new());
            for (place, decision) in going.iter_mut().enumerate().filter(|(_, decision)| decision.is_to_go_on()) {
                match self.next(decision, records) {
                    Ok(Some(txn)) => {
                        sent.push(place);
                        txns.push(txn);
                    }
                    Ok(None) => decision.receipt = Some(Receipt::At(Vec::new())),
                    Err(fault) => decision.receipt = Some(Receipt::Refused(fault)),
                }
            }
            if txns.is_empty() {
                return through;
            }
            // An answer of a store other than etcd may be older than the events that its watch has delivered.
            let is_etcd = self.shared.transactions == Transactions::Full;
            let known = if is_etcd { self.shared.through() } else { 0 };
            let answers = self.shared.etcd.transact(txns.clone());
            for ((place, txn), answer) in sent.into_iter().zip(txns).zip(answers) {
                let answer = match answer {
                    Err(client::Fault::NoSpace(why)) => self.without_space(&txn, why),
                    // The lease no longer exists, so nothing was written. The next attempt uses a new lease.
                    Err(client::Fault::NoLease(_)) if leases_lost < LEASES_LOST_MAX => {
                        leases_lost += 1;
                        self.shared.forget_leases(&txn.operations);
                        continue;
                    }
                    Err(client::Fault::Unknown(why)) if self.shared.transactions == Transactions::Plain => {
                        self.shared.sent.unsure(txn);
                        Err(client::Fault::Unknown(why))
                    }
                    answer => answer,
                };
                if let Ok(decided) = &answer
                    && decided.held
                    && decided.header.revision <= known
                {
                    self.shared.end_epoch(went_back(decided.header.revision, known));
                }
                through = through.max(going[place].take(answer, self.shared.cluster, known));
            }
        }
    }

    /// Writes decisions with claims, one after another, as long as no other server has made a claim since `known`, the
    /// revision up to which these decisions were checked.
    fn claim(&self, going: &mut [PendingDecision], records: &[Record], known: u64) -> u64 {
        let (mut through, mut claimed) = (0, self.shared.claimed.load(Ordering::Acquire));
        for decision in going.iter_mut().filter(|decision| decision.receipt.is_none()) {
            if through == 0 && claimed > known {
                // Other servers have made claims, so the local log needs their events first.
                return claimed;
            }
            decision.claims = Some(claimed);
            let at = self.drive(std::slice::from_mut(decision), records);
            through = through.max(at);
            match &decision.receipt {
                Some(Receipt::At(_)) => claimed = decision.written.values().copied().max().unwrap_or(claimed),
                // The write had an unexpected outcome, so its events must be read first.
                _ => return through,
            }
        }
        through
    }

    /// The result of a transaction when etcd is full. A deletion is retried without the puts in its transaction,
    /// because only puts need space.
    pub(crate) fn without_space(&self, txn: &Txn, why: String) -> Result<Decided, client::Fault> {
        let Some(delete @ Operation::Delete { .. }) = txn.operations.last() else { return self.read_back(txn, why) };
        let bare = Txn { operations: vec![delete.clone()], ..txn.clone() };
        match self.shared.etcd.transact(vec![bare]).pop() {
            // Another write was carried out first, or the deletion had succeeded: etcd may delete and then report that
            // it is full.
            Some(Ok(decided)) if !decided.held => Err(client::Fault::Unknown(why)),
            Some(answer) => answer,
            None => Err(client::Fault::NoSpace(why)),
        }
    }

    /// Sends all transactions without an answer again, until each has an answer. An object never has the same revision
    /// twice, so afterwards none of the first copies can succeed. A creation is the exception: if its first copy
    /// arrives after the object was created and deleted, the object exists again.
    fn send_again(&self) -> Result<u64, Fault> {
        let (shared, unsure) = (&self.shared, self.shared.sent.all_unsure());
        for (txn, answer) in unsure.iter().zip(shared.etcd.transact(unsure.clone())) {
            let answer = match answer {
                Err(client::Fault::NoSpace(why)) => self.without_space(txn, why),
                answer => answer,
            };
            match answer {
                Ok(decided) => shared.check(&decided.header)?,
                Err(why @ (client::Fault::Unknown(_) | client::Fault::Unreachable(_))) => return Err(fault(why)),
                // etcd has refused the transaction, and would also refuse the next attempt, so there is none.
                Err(_) => {}
            }
        }
        newest(shared)
    }

    /// Finds out whether a write happened although etcd reported that it is full.
    fn read_back(&self, txn: &Txn, why: String) -> Result<Decided, client::Fault> {
        let write = txn.operations.last().filter(|_| !planted(Bug::FullTakenForFailure));
        let Some(write) = write else { return Err(client::Fault::NoSpace(why)) };
        let expected = txn.compares.iter().find(|compare| compare.key == *write.key());
        let before = expected.map_or(0, |compare| match compare.is {
            Expected::ModRevision(revision) | Expected::Version(revision) => revision,
        });
        let unknown = |fault: client::Fault| client::Fault::Unknown(fault.to_string());
        let answer = self.shared.etcd.range(&Range::of(KeyRange::one(write.key().clone()))).map_err(unknown)?;
        let found = answer.found.into_iter().next();
        if found.as_ref().map_or(0, |found| found.mod_revision) == before {
            return Err(client::Fault::NoSpace(why));
        }
        match (write, found) {
            (Operation::Put { value, .. }, Some(KeyValue { value: found, mod_revision, .. })) if found == *value => {
                let header = client::Header { revision: mod_revision, ..answer.header };
                Ok(Decided { header, held: true, found: Vec::new() })
            }
            // The key was written or deleted after the request, by this write or by another write.
            _ => Err(client::Fault::Unknown(why)),
        }
    }
}

/// A decision that is being written.
pub(crate) struct PendingDecision {
    pub decision: Decision,
    /// The positions of the decision's records, in the order in which the records are written.
    order: Vec<usize>,
    /// The revisions at which the decision's records were written, by the positions of the records.
    written: BTreeMap<usize, u64>,
    /// The revision of the last claim in the cluster, if the decision has claims.
    claims: Option<u64>,
    /// The addresses and node ports that the decision reserves and releases.
    pub taking: Option<Taking>,
    pub receipt: Option<Receipt>,
}

impl PendingDecision {
    fn of(decision: Decision, records: &[Record]) -> PendingDecision {
        let first = decision.records.start;
        let order = order(&records[decision.records.clone()]).into_iter().map(|nth| first + nth).collect();
        PendingDecision { decision, order, written: BTreeMap::new(), claims: None, taking: None, receipt: None }
    }

    /// Whether the next transaction of the decision may be sent. A decision with claims waits until earlier claims are
    /// known.
    fn is_to_go_on(&self) -> bool {
        self.receipt.is_none() && (self.claims.is_some() || self.decision.claims.is_empty())
    }

    /// The revision that a record replaces. If the replaced record belongs to the same decision, its revision is known
    /// only after it was written.
    fn revision_of(&self, records: &[Record], replaces: u64) -> u64 {
        let own = self.written.iter().find(|(nth, _)| records[**nth].offset == replaces);
        own.map_or(replaces, |(_, revision)| *revision)
    }

    /// Applies an answer, and returns the revision up to which the watch will deliver events. All revisions up to
    /// `known` were assigned before the transaction was sent.
    fn take(&mut self, answer: Result<Decided, client::Fault>, cluster: u64, known: u64) -> u64 {
        let receipt = match answer {
            Ok(decided) if decided.header.cluster != cluster => {
                Receipt::Refused(Fault::Unreachable { why: wrong_cluster(decided.header.cluster, cluster) })
            }
            // The decision was written before etcd was restored from a backup. In the restored etcd this revision
            // belongs to another event.
            Ok(decided) if decided.held && decided.header.revision <= known => Receipt::Unknown,
            Ok(decided) if decided.held => {
                let nth = self.order[self.written.len()];
                self.written.insert(nth, decided.header.revision);
                if self.written.len() == self.order.len() {
                    self.receipt = Some(Receipt::At(self.written.values().map(|at| Offset(*at)).collect()));
                }
                return decided.header.revision;
            }
            Ok(decided) => {
                self.receipt = Some(Receipt::Overtaken);
                return decided.header.revision;
            }
            Err(client::Fault::Unknown(why)) if planted(Bug::UnknownTakenForFailure) => {
                Receipt::Refused(Fault::Unreachable { why })
            }
            Err(client::Fault::Unknown(_)) if planted(Bug::UnknownTakenForDone) => {
                Receipt::At(self.order.iter().map(|_| Offset(1)).collect())
            }
            Err(client::Fault::Unknown(why)) => {
                tracing::warn!("{}", client::Fault::Unknown(why));
                Receipt::Unknown
            }
            Err(other) => Receipt::Refused(fault(other)),
        };
        self.receipt = Some(receipt);
        0
    }
}

/// The author and the time of a record's object, as a separate record.
fn author_record(record: &Record) -> Record {
    let Record { time_ms, resource, key, actor, .. } = record;
    let (resource, key, actor) = (resource.clone(), key.clone(), actor.clone());
    Record { time_ms: *time_ms, resource, key, actor, ..Record::default() }
}

/// Writes the server's fence again. After this write, transactions that this server has sent and that etcd has not yet
/// carried out will fail.
fn raise_fence(shared: &Shared) -> Result<u64, Fault> {
    shared.check_epoch()?;
    let known = shared.through();
    let put = Operation::Put { key: shared.places.fence(&shared.server), value: Bytes::new(), lease: 0 };
    let txn = Txn { operations: vec![put], ..Txn::default() };
    let answers = shared.etcd.transact(vec![txn]);
    let decided = answers.into_iter().next().unwrap_or_else(|| Err(client::Fault::Unknown("no answer".into())));
    let header = decided.map_err(fault)?.header;
    shared.check(&header)?;
    // Every write raises etcd's revision. A lower revision means that etcd was restored from an older copy.
    if header.revision <= known {
        shared.end_epoch(went_back(header.revision, known));
        shared.check_epoch()?;
    }
    shared.fence.store(header.revision, Ordering::Release);
    Ok(header.revision)
}

/// Finds etcd's revision without blocking, and then the last offset once the local log has all events up to that
/// revision. Repeats the request after an answer that is older than the watch, up to `tries` times.
fn find_last(shared: Arc<Shared>, tries: usize, done: LastFound) {
    if let Err(fault) = shared.check_epoch() {
        return done(Err(fault));
    }
    let (nothing, etcd) = (Range::of(KeyRange::one(shared.places.secret())).limit(1), shared.etcd.clone());
    let known = shared.through();
    let answered = move |answer: Result<Ranged, client::Fault>| {
        let header = match answer.map_err(fault).and_then(|answer| shared.check(&answer.header).map(|()| answer.header))
        {
            Ok(header) => header,
            Err(fault) => return done(Err(fault)),
        };
        let found = header.revision;
        if found < known && shared.transactions == Transactions::Full {
            return match tries {
                1.. => find_last(shared, tries - 1, done),
                0 => done(Err(Fault::Unreachable { why: went_back(found, known) })),
            };
        }
        let log = shared.clone();
        shared.when_through(found, EVENTS_MAX, Box::new(move |reached| done(reached.and_then(|()| log.last()))));
    };
    etcd.range_later(&nothing, Box::new(answered));
}

/// etcd's revision, by a linearizable read, which reflects every write that was answered earlier.
fn newest(shared: &Shared) -> Result<u64, Fault> {
    shared.check_epoch()?;
    let nothing = Range::of(KeyRange::one(shared.places.secret())).limit(1);
    let (mut known, mut found) = (0, 0);
    // Some releases give stale answers after a pause of their process.
    for _ in 0..TRIES_MAX {
        known = shared.through();
        let header = shared.etcd.range(&nothing).map_err(fault)?.header;
        shared.check(&header)?;
        found = header.revision;
        // An answer of a store other than etcd may be older than the events that its watch has delivered.
        if found >= known || shared.transactions == Transactions::Plain {
            return Ok(found);
        }
    }
    Err(Fault::Unreachable { why: went_back(found, known) })
}

/// The secret of the cluster. Writes `own` if no server has written a secret yet.
fn agreed_secret(shared: &Shared, own: [u8; 32]) -> Result<[u8; 32], Fault> {
    let key = shared.places.secret();
    let found = first::agree(shared.etcd.as_ref(), &key, own.to_vec().into()).map_err(fault)?;
    let damaged = |_| Fault::Unreadable { what: format!("{} holds no secret", String::from_utf8_lossy(&key)) };
    <[u8; 32]>::try_from(&*found).map_err(damaged)
}

impl LogRead for EtcdLog {
    /// The offset of the last event in etcd. Returns it once the event is in the local log.
    fn last(&self) -> Result<Offset, Fault> {
        if self.is_followed() {
            self.wait_through(newest(&self.shared)?)?;
        }
        self.shared.local.last()
    }

    fn read(&self, offset: Offset) -> Result<Option<Record>, Fault> {
        self.shared.log.read(offset)
    }

    fn current(&self, visit: &mut dyn FnMut(Record) -> Result<(), Fault>) -> Result<(), Fault> {
        let (shared, keyring) = (&self.shared, self.shared.keys.keyring());
        shared.local.current(&mut |record| {
            if !keyring.is_configured() && !Keyring::is_sealed(&record) {
                return visit(record);
            }
            match keyring.open(record.clone()) {
                Ok(record) => visit(record),
                Err(fault) => match Locked::of(&fault) {
                    None | Some(Locked::Unreachable(_)) => Err(fault),
                    // The other objects are served, as with a value in etcd that cannot be read.
                    Some(why) => {
                        shared.note_locked(&record, why);
                        Ok(())
                    }
                },
            }
        })
    }

    fn scan(&self, resource: Option<&str>, after: Offset, limit: usize) -> Result<Vec<Record>, Fault> {
        self.shared.log.scan(resource, after, limit)
    }

    fn changes(&self, asked: &Changes, limit: usize) -> Result<Changed, Fault> {
        self.shared.local.changes(asked, limit)
    }

    fn next_time(&self, after: Offset) -> Result<Option<(Offset, i64)>, Fault> {
        self.shared.local.next_time(after)
    }

    fn each(&self, after: Offset, visit: &mut dyn FnMut(&Record) -> ControlFlow<()>) -> Result<(), Fault> {
        self.shared.log.each(after, visit)
    }

    fn versions(&self, resource: &str, key: &str) -> Result<Vec<Offset>, Fault> {
        self.shared.local.versions(resource, key)
    }

    fn version_at(&self, resource: &str, key: &str, at: Offset) -> Result<Option<Offset>, Fault> {
        self.shared.local.version_at(resource, key, at)
    }

    fn as_of(&self, asked: &AsOf, visit: &mut dyn FnMut(&str, Offset) -> ControlFlow<()>) -> Result<(), Fault> {
        self.shared.local.as_of(asked, visit)
    }

    fn oldest(&self) -> Result<Offset, Fault> {
        self.shared.local.oldest()
    }

    fn size(&self) -> Result<Size, Fault> {
        self.shared.local.size()
    }

    fn identity(&self) -> Result<Identity, Fault> {
        self.shared.local.identity()
    }

    fn repaired(&self) -> Result<Offset, Fault> {
        self.shared.local.repaired()
    }
}

impl Log for EtcdLog {
    fn commit(&self, proposal: &Proposal) -> Result<Append, Fault> {
        self.shared.check_epoch()?;
        let records = proposal.records;
        let decisions = proposal.decisions();
        let mut going: Vec<PendingDecision> =
            decisions.into_iter().map(|decision| PendingDecision::of(decision, records)).collect();
        // The decisions were checked against all events before their records.
        let known = records.first().map_or(0, |record| record.offset.saturating_sub(1));
        let taken = self.reserve_shares(&mut going, records);
        if self.shared.transactions == Transactions::Plain {
            // The store cannot compare a second key, so it cannot check the claims, and they are removed from the
            // decisions.
            going.iter_mut().for_each(|going| going.decision.claims.clear());
        }
        let through = taken.max(self.drive(&mut going, records)).max(self.claim(&mut going, records, known));
        let through = through.max(self.release_shares(&going, records));
        let shown = self.wait_through(through);
        let receipt = |going: PendingDecision| match going.receipt {
            // The events of the write have not arrived, so its outcome is reported as unknown. The caller finds it out
            // when the watch delivers events again.
            Some(Receipt::At(_)) if shown.is_err() => Receipt::Unknown,
            Some(receipt) => receipt,
            // The decision was not sent: events of another server's claim, or of an earlier decision of this commit, must
            // be read first.
            None => Receipt::Overtaken,
        };
        let receipts: Vec<Receipt> = going.into_iter().map(receipt).collect();
        if !receipts.iter().any(|receipt| matches!(receipt, Receipt::Unknown)) {
            self.shared.sent.clear();
        }
        Ok(Append::Numbered(receipts))
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn find_last(&self, done: LastFound) {
        match self.is_followed() {
            true => find_last(self.shared.clone(), TRIES_MAX - 1, done),
            false => done(self.shared.local.last()),
        }
    }

    fn tail(&self, after: Offset) -> Result<Vec<Record>, Fault> {
        self.shared.log.tail(after)
    }

    fn unreadable(&self, resource: &str, prefix: &str, limit: usize) -> Vec<Unreadable> {
        self.shared.unread.of(resource, prefix, limit)
    }

    fn delete_unreadable(&self, object: &Unreadable, actor: Actor, time_ms: i64) -> Result<bool, Fault> {
        self.delete_unread(object, actor, time_ms)
    }

    fn newly_unreadable(&self) -> Vec<String> {
        self.shared.unread.news()
    }

    /// Starts the thread that follows etcd's events.
    fn wake_by(&self, wake: Wake) {
        self.shared.wake_by(wake);
        let Some(follower) = self.follower.lock().unwrap_or_else(PoisonError::into_inner).take() else { return };
        let thread = std::thread::Builder::new().name("etcd-events".into()).spawn(move || follower.run());
        match thread {
            Ok(thread) => *self.following.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread),
            Err(error) => self.shared.report_failure(format!("no thread follows etcd's events: {error}")),
        }
    }

    fn secret(&self) -> Result<[u8; 32], Fault> {
        Ok(self.secret)
    }

    fn forget(&self, through: Offset) -> Result<(), Fault> {
        self.shared.local.forget(through)
    }

    fn compact(&self, always: bool) -> Result<(), Fault> {
        self.shared.local.compact(always)
    }

    fn lacks_room(&self, bytes: u64) -> Option<Lack> {
        self.shared.local.lacks_room(bytes)
    }

    fn take_reserve(&self, bytes: u64) -> Result<(), Fault> {
        self.shared.local.take_reserve(bytes)
    }

    fn is_short_of_room(&self) -> bool {
        self.shared.local.is_short_of_room()
    }

    fn make_room(&self) -> Result<(), Fault> {
        self.shared.local.make_room()
    }

    fn recover(&self) -> Result<(), Fault> {
        let known = match self.shared.transactions {
            _ if planted(Bug::FenceNotRaised) => newest(&self.shared)?,
            Transactions::Full => raise_fence(&self.shared)?,
            Transactions::Plain => self.send_again()?,
        };
        self.wait_through(known)?;
        self.shared.sent.clear();
        self.free_unwritten();
        Ok(())
    }
}

impl Sealing for EtcdLog {
    fn encrypts(&self) -> bool {
        self.shared.keys.keyring().is_configured()
    }

    fn prepare(&self, resource: &str) -> Option<Prepared> {
        self.shared.keys.keyring().prepare(resource)
    }

    /// Reads the value in etcd, because the copy on this server's disk may be encrypted with another key.
    fn is_outdated(&self, offset: Offset) -> Result<bool, Fault> {
        let shared = &self.shared;
        let Some(record) = shared.local.read(offset)? else { return Ok(false) };
        let key = shared.places.keys.at(&record.resource, &record.key);
        let answer = shared.etcd.range(&Range::of(KeyRange::one(key))).map_err(fault)?;
        shared.check(&answer.header)?;
        let found = answer.found.first().filter(|found| found.mod_revision == offset.0);
        Ok(found.is_some_and(|found| shared.keys.keyring().is_outdated_value(&record.resource, &found.value)))
    }
}

impl Drop for EtcdLog {
    fn drop(&mut self) {
        self.shared.closing.store(true, Ordering::Relaxed);
        if let Some(thread) = self.following.lock().unwrap_or_else(PoisonError::into_inner).take() {
            // The thread checks `closing` again and again, so it ends soon.
            let _ = thread.join();
        }
    }
}
