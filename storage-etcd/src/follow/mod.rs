//! Copies etcd's events to the local log, in order and each event exactly once.

mod retry;

use crate::client::{self, Event, Operation, Range, Transactions, Txn, Watch, Watched};
use crate::key_space::KeyMeaning;
use crate::local::Source;
use crate::planted::{Bug, planted};
use crate::restored::{self, Standing, known_through};
use crate::shared::{Placed, Seen, Shared, fault, now_ms, went_back, wrong_cluster};
use crate::transaction::plain;
use bytes::Bytes;
use holdfast_core::etcd::{nothing_but, renumbered};
use holdfast_core::event::{self, Offset, Record};
use holdfast_core::kinds::registry;
use holdfast_engine::{Fault, LogRead};
use retry::Retry;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// The maximum number of keys that are read from etcd at a time.
const PAGE: u64 = 500;
/// The maximum duration of one wait for events, after which the follower checks whether a caller waits for them.
const PERIOD: Duration = Duration::from_millis(50);
/// The maximum duration of one wait for events while a caller waits for them.
const WANTED_PERIOD: Duration = Duration::from_millis(2);
/// The pause after a fault, before the follower tries again.
const RETRY: Duration = Duration::from_millis(200);
/// After this many consecutive checks that found a sign of a restored etcd, the server concludes that etcd was restored
/// from a backup. A single sign proves nothing: some releases give one stale answer after a pause of their process.
const SIGNS_MAX: u32 = 3;
/// The maximum time for which a watch may deliver nothing while etcd has events. Then the watch is opened again, at the
/// member that answers requests now. The keepalive alone would detect a silently cut connection only after 40 seconds.
const SILENCE_MAX: Duration = Duration::from_secs(3);
/// After this many revisions without events the progress is saved, so that a restart does not request those revisions
/// again.
const QUIET_REVISIONS: u64 = 1000;

/// Copies etcd's events to the local log. A log has only one follower.
pub struct Follower {
    shared: Arc<Shared>,
    watch: Option<Box<dyn Watch>>,
    source: Source,
    /// The time since which a caller waits for events that the watch does not deliver.
    silent: Option<Instant>,
    /// The revision of the last event that the follower has received.
    seen: u64,
    /// Events that have no offset yet, each with its revision.
    waiting: VecDeque<(u64, Record)>,
    /// The revisions of the writes that took over a restored etcd. `None` except during a take-over.
    restored: Option<HashSet<u64>>,
    /// The number of consecutive checks that found a sign that the etcd is not the etcd whose events the local log has.
    signs: AtomicU32,
    retry: Retry,
}

impl Follower {
    pub fn new(shared: Arc<Shared>, source: Source) -> Follower {
        let retry = Retry::new(shared.keys.keyring());
        Follower {
            shared,
            watch: None,
            source,
            silent: None,
            seen: 0,
            waiting: VecDeque::new(),
            restored: None,
            signs: AtomicU32::new(0),
            retry,
        }
    }

    /// Follows etcd's events until the log is closed.
    pub fn run(mut self) {
        let mut told = None;
        while !self.shared.closing.load(Ordering::Relaxed) {
            let is_wanted = self.shared.is_wanted();
            self.shared.end_waiting();
            self.retry_unread();
            match self.step(if is_wanted { WANTED_PERIOD } else { PERIOD }, is_wanted) {
                Ok(()) if told.take().is_some() => tracing::info!("etcd's events are followed again"),
                Ok(()) => {}
                Err(fault) => {
                    let why = fault.to_string();
                    if told.as_ref() != Some(&why) {
                        tracing::warn!("etcd's events cannot be followed: {why}");
                    }
                    self.shared.report_failure(why.clone());
                    told = Some(why);
                    self.watch = None;
                    if matches!(fault, Fault::Full { .. } | Fault::Io { .. }) {
                        // The local disk failed. Events that are not stored will be requested again.
                        let _ = self.shared.local.recover();
                    }
                    std::thread::sleep(RETRY);
                }
            }
        }
        self.shared.end_waiting();
    }

    /// Brings the local log at least up to etcd's current revision. Called before the log has readers.
    pub fn begin(&mut self) -> Result<(), Fault> {
        let shared = self.shared.clone();
        let newest = self.newest()?;
        let claims = Range::of(client::KeyRange::one(shared.places.claims()));
        let claimed = shared.etcd.range(&claims).map_err(fault)?.found.first().map_or(0, |found| found.mod_revision);
        shared.claimed.store(claimed, Ordering::Release);
        let through = if self.source.is_partial { 0 } else { known_through(shared.local.as_ref(), &self.source)? };
        // If `--etcd-servers-overrides` changed, the log lacks objects of kinds that moved into this etcd, and has
        // objects of kinds that moved to another etcd.
        let kinds = shared.places.kinds.to_string();
        if through == 0 || self.source.kinds != kinds {
            self.have_kinds(kinds);
            return self.fill(true);
        }
        self.seen = through;
        shared.reach(through);
        while shared.through() < newest {
            self.step(WANTED_PERIOD, true)?;
        }
        if self.source.has_unread { self.find_unread() } else { Ok(()) }
    }

    /// Records the kinds that the log will have after the next [`fill`](Self::fill).
    fn have_kinds(&mut self, kinds: String) {
        if self.source.kinds != kinds {
            // This value is a marker until `fill` sets the revision.
            self.source.same_kinds_after = u64::MAX;
        }
        self.source.kinds = kinds;
    }

    /// Brings the local log to the state of a restored etcd, after [`accept`](crate::restored::accept). Called before
    /// the log has readers.
    pub fn take_over(&mut self, written: HashSet<u64>) -> Result<(), Fault> {
        self.restored = Some(written);
        self.have_kinds(self.shared.places.kinds.to_string());
        self.fill(false)?;
        self.restored = None;
        let newest = self.newest()?;
        while self.shared.through() < newest {
            self.step(WANTED_PERIOD, true)?;
        }
        Ok(())
    }

    /// etcd's revision, by a linearizable read, which reflects every write that was answered earlier.
    fn newest(&self) -> Result<u64, Fault> {
        self.shared.check_epoch()?;
        let now = Standing::of(self.shared.etcd.as_ref(), &self.shared.places).map_err(fault)?;
        // An answer of a store with plain transactions may be older than the events that its watch has delivered.
        if self.shared.transactions == Transactions::Plain {
            self.shared.check_cluster(now.cluster)?;
            return Ok(now.revision);
        }
        match restored::sign(&self.shared, &self.source, &now)? {
            Some(sign) => {
                let why = format!("{sign}. Start this server again, and decide there");
                if self.signs.fetch_add(1, Ordering::Relaxed) + 1 >= SIGNS_MAX {
                    self.shared.end_epoch(why.clone());
                }
                Err(Fault::Unreachable { why })
            }
            None => {
                self.signs.store(0, Ordering::Relaxed);
                Ok(now.revision)
            }
        }
    }

    /// Waits up to `patience` for the next events, and copies these events to the local log.
    pub fn step(&mut self, patience: Duration, is_wanted: bool) -> Result<(), Fault> {
        let shared = self.shared.clone();
        let watch = match &mut self.watch {
            Some(watch) => watch,
            None => {
                // A member of another cluster, or of a cluster that was restored from a backup, has other events.
                let newest = self.newest()?;
                if newest < self.seen {
                    return Err(Fault::Unreachable { why: went_back(newest, self.seen) });
                }
                let from = self.seen + if planted(Bug::ResumeSkips) { 2 } else { 1 };
                match shared.etcd.watch(&shared.places.watched(), from) {
                    Ok(watch) => self.watch.insert(watch),
                    Err(client::Fault::Compacted(_)) => return self.fill(false),
                    Err(other) => return Err(fault(other)),
                }
            }
        };
        let next = watch.next(patience);
        match next {
            Ok(None) if is_wanted => _ = self.silent.get_or_insert_with(Instant::now),
            _ => self.silent = None,
        }
        match next {
            Ok(Some(watched)) => self.apply(watched),
            Ok(None) if self.silent.is_some_and(|since| since.elapsed() > SILENCE_MAX) => {
                self.silent = None;
                Err(self.cut(client::Fault::Unreachable("the watch receives nothing".into())))
            }
            Ok(None) if is_wanted && shared.tells_progress => watch.ask_progress().map_err(|other| self.cut(other)),
            // etcd's progress notifications cannot be trusted, so the server writes an event: when this event arrives,
            // all earlier events have arrived.
            Ok(None) if is_wanted => {
                self.ask_numbers(1);
                Ok(())
            }
            Ok(None) => Ok(()),
            Err(client::Fault::Compacted(_)) => {
                self.watch = None;
                self.fill(false)
            }
            Err(other) => Err(self.cut(other)),
        }
    }

    /// Drops the watch, because it has no more events after a fault.
    fn cut(&mut self, why: client::Fault) -> Fault {
        self.watch = None;
        fault(why)
    }

    fn apply(&mut self, watched: Watched) -> Result<(), Fault> {
        let shared = self.shared.clone();
        if watched.header.cluster != shared.cluster {
            return Err(Fault::Unreachable { why: wrong_cluster(watched.header.cluster, shared.cluster) });
        }
        let Some(last) = watched.events.last().map(|event| event.now.mod_revision) else {
            return self.quiet(watched.header.revision);
        };
        let (mut records, waited) = (Vec::with_capacity(watched.events.len()), self.waiting.clone());
        for events in watched.events.chunk_by(|one, other| one.now.mod_revision == other.now.mod_revision) {
            // Some releases of etcd send events twice, so events that were already received are skipped.
            if events[0].now.mod_revision > self.seen {
                self.number(events, &mut records);
            }
        }
        if let Err(fault) = self.shared.unread.check().and_then(|()| self.append(&records)) {
            // The events were not stored. The watch will be opened again, and then delivers them again.
            self.waiting = waited;
            return Err(fault);
        }
        self.seen = self.seen.max(last);
        shared.reach(self.waiting.front().map_or(self.seen, |(revision, _)| revision - 1));
        if !records.is_empty() || shared.unread.has_news() {
            shared.wake();
        }
        self.ask_numbers(self.waiting.len().saturating_sub(waited.len()));
        Ok(())
    }

    fn append(&mut self, records: &[Record]) -> Result<(), Fault> {
        if !self.waiting.is_empty() && !self.source.is_partial {
            // If the process ends before these events have offsets, the next start compares all objects.
            self.keep_partial(true)?;
        }
        if !self.source.has_unread && !self.shared.unread.is_empty() {
            // The log has no event of the values that could not be read, so the next start must look for these values.
            self.source.has_unread = true;
            self.shared.local.keep_source(&self.source)?;
        }
        if !records.is_empty() {
            self.shared.append(records)?;
        }
        if self.waiting.is_empty() && self.source.is_partial {
            self.keep_partial(false)?;
        }
        Ok(())
    }

    fn keep_partial(&mut self, is_partial: bool) -> Result<(), Fault> {
        self.source.is_partial = is_partial;
        self.shared.local.keep_source(&self.source)
    }

    /// Gives each event an offset of its own. Several events have one revision when a lease expires, for example. Then
    /// the first event gets the revision as its offset. The other events wait for the revisions of tick writes, which
    /// exist for this purpose and have no event in the log.
    fn number(&mut self, events: &[Event], records: &mut Vec<Record>) {
        let revision = events[0].now.mod_revision;
        let tick = self.shared.places.tick(&self.shared.server);
        if events.iter().any(|event| event.now.key == tick) {
            let waited = self.waiting.pop_front();
            records.extend(waited.and_then(|(_, record)| {
                let object = renumbered(&record.key, &record.object, Offset(revision)).ok()?;
                Some(Record { offset: revision, object, ..record })
            }));
            return;
        }
        if let Some(claims) = &self.shared.claims {
            let ports = claims.ports_key();
            for event in events.iter().filter(|event| event.now.key == ports) {
                claims.note_ports(revision, (!event.is_delete).then(|| &event.now.value[..]));
            }
        }
        let claims = self.shared.places.claims();
        if events.iter().any(|event| event.now.key == claims) {
            self.shared.claimed.store(revision, Ordering::Release);
        }
        let mut found = Vec::with_capacity(1);
        self.translate(events, &mut found);
        // Only the first event of a revision gets the revision as its offset. An existing object must have its revision
        // in etcd as its version, so its event comes first. Deletions follow and get new offsets, because nobody reads
        // the version of a deleted object again.
        found.sort_by_key(Record::is_delete);
        let mut found = found.into_iter();
        records.extend(found.next());
        for record in found {
            if !record.is_delete() {
                tracing::warn!(
                    revision,
                    "{}/{} was written in one transaction with another object: until it changes again it has a version \
                     here that etcd does not know",
                    record.resource,
                    record.key
                );
            }
            self.waiting.push_back((revision, record));
        }
    }

    /// Makes one tick write for each event that waits for an offset.
    fn ask_numbers(&self, count: usize) {
        if self.shared.transactions == Transactions::Plain {
            return (0..count).for_each(|_| self.tick_plainly());
        }
        let key = self.shared.places.tick(&self.shared.server);
        let put = || Operation::Put { key: key.clone(), value: Bytes::new(), lease: 0 };
        let txns = (0..count).map(|_| Txn { operations: vec![put()], ..Txn::default() }).collect();
        for answer in self.shared.etcd.transact(txns) {
            if let Err(fault) = answer {
                tracing::warn!(%fault, "an event waits for its number");
            }
        }
    }

    /// Makes a tick write in a store with plain transactions.
    fn tick_plainly(&self) {
        let (etcd, key) = (&self.shared.etcd, self.shared.places.tick(&self.shared.server));
        let written = etcd.range(&Range::of(client::KeyRange::one(key.clone())).limit(1)).and_then(|found| {
            let replaces = found.found.first().map_or(0, |found| found.mod_revision);
            let put = Operation::Put { key, value: Bytes::new(), lease: 0 };
            etcd.transact(vec![plain(replaces, put)]).pop().unwrap_or(Ok(Default::default()))
        });
        if let Err(fault) = written {
            tracing::warn!(%fault, "an event waits for its number");
        }
    }

    /// Handles the report of the watch that there are no events up to this revision.
    fn quiet(&mut self, revision: u64) -> Result<(), Fault> {
        if !self.shared.tells_progress {
            return Ok(());
        }
        if !self.waiting.is_empty() {
            self.ask_numbers(1);
            return Ok(());
        }
        if revision > self.source.through.max(self.shared.local.last()?.0) + QUIET_REVISIONS {
            self.source.through = revision;
            self.shared.local.keep_source(&self.source)?;
        }
        self.shared.reach(revision);
        Ok(())
    }

    /// Converts the events of one revision to records.
    fn translate(&self, events: &[Event], records: &mut Vec<Record>) {
        let shared = &self.shared;
        let who =
            events.iter().find(|event| matches!(shared.places.find(registry(), &event.now.key), Ok(KeyMeaning::Who)));
        let who = who.and_then(|event| Record::decode_record(&event.now.value).ok());
        for event @ Event { is_delete, now, before } in events {
            let own = shared.sent.author_of(event);
            let who = own
                .as_ref()
                .or(who.as_ref())
                .filter(|who| shared.places.keys.at(&who.resource, &who.key).as_bytes() == &*now.key);
            let replaces = before.as_ref().map_or(0, |before| before.mod_revision);
            let record = match is_delete {
                false => shared.put(now, replaces, who, Seen::Now(now_ms())),
                true => self.deletion(now, before.as_ref(), who),
            };
            records.extend(record);
        }
    }

    /// The record of a deletion. The object is read from etcd, or from the local log if etcd has compacted it.
    fn deletion(
        &self,
        now: &client::KeyValue,
        before: Option<&client::KeyValue>,
        who: Option<&Record>,
    ) -> Option<Record> {
        let shared = &self.shared;
        let placed = shared.placed(&now.key)?;
        shared.unread.forget(&placed.resource, &placed.key);
        if placed.is_stray {
            return None;
        }
        // A deleted object is stored with the version of its deletion, because Kubernetes' watch events show this
        // version.
        let told = before.and_then(|before| {
            let last = client::KeyValue { mod_revision: now.mod_revision, ..before.clone() };
            Some((shared.read(&placed, &last).ok()?.0, before.mod_revision))
        });
        let Placed { resource, key, .. } = &placed;
        let (object, replaces) = match told {
            Some(told) => told,
            None => {
                let at = shared.local.version_at(resource, key, Offset(now.mod_revision)).ok().flatten()?;
                let last = shared.log.read(at).ok().flatten();
                let object = last.and_then(|last| renumbered(key, &last.object, Offset(now.mod_revision)).ok());
                (object.unwrap_or_else(|| nothing_but_names(&placed, Offset(now.mod_revision))), at.0)
            }
        };
        Some(Record {
            offset: now.mod_revision,
            time_ms: who.map_or_else(now_ms, |who| who.time_ms),
            resource: resource.clone(),
            key: key.clone(),
            replaces,
            operation: event::Operation::Delete as i32,
            actor: who.map(|who| who.actor.clone()).unwrap_or_default(),
            object,
        })
    }

    /// Reads all objects at one revision, and copies the objects that the local log lacks. A new log lacks all objects;
    /// an older log lacks the objects whose events etcd has compacted. The log then begins at this revision, because
    /// the events between its last event and this revision are unknown.
    fn fill(&mut self, is_unread: bool) -> Result<(), Fault> {
        let shared = self.shared.clone();
        let local = &shared.local;
        let known_through = self.source.through.max(local.last()?.0);
        self.waiting.clear();
        shared.unread.begin_round();
        tracing::info!(known_through, "all objects are read from etcd");
        let mut known: HashMap<(String, String), u64> = HashMap::new();
        local.current(&mut |record| {
            known.insert((record.resource, record.key), record.offset);
            Ok(())
        })?;
        if is_unread {
            self.source = Source { is_partial: true, ..self.source.clone() };
            local.keep_source(&self.source)?;
        }
        let mut keys = shared.places.objects();
        let (mut revision, mut waiting) = (0, Vec::new());
        loop {
            let page = shared.etcd.range(&Range::of(keys.clone()).at(revision).limit(PAGE)).map_err(fault)?;
            shared.check(&page.header)?;
            if revision == 0 {
                revision = page.header.revision;
            }
            for found in &page.found {
                let Some(placed) = shared.placed(&found.key) else {
                    shared.note_stray(&found.key);
                    continue;
                };
                let object = (placed.resource, placed.key);
                let before = known.remove(&object).unwrap_or(0);
                match before < found.mod_revision {
                    true => {
                        let of_restore = Record { time_ms: now_ms(), actor: restored::actor(), ..Record::default() };
                        let is_restored = self.restored.as_ref().is_some_and(|all| all.contains(&found.mod_revision));
                        let who = match is_restored {
                            true => Some(of_restore),
                            false => shared.sent.author_of_value(&found.key, before, Some(&found.value)),
                        };
                        waiting.extend(shared.put(found, before, who.as_ref(), Seen::Later(now_ms())));
                    }
                    false => shared.unread.confirm(&object.0, &object.1),
                }
            }
            shared.unread.check()?;
            // While the log has no readers, the order of appended records does not matter.
            if is_unread {
                shared.append(&waiting)?;
                waiting.clear();
            }
            let Some(last) = page.found.last().filter(|_| page.more) else { break };
            keys.from = [&last.key[..], &[0]].concat().into();
        }
        let actor = self.restored.as_ref().map(|_| restored::actor()).unwrap_or_default();
        let mut free = free_between(if is_unread { 0 } else { known_through }, revision, &waiting);
        for ((resource, key), offset) in known.into_iter().filter(|_| !planted(Bug::DeletionsMissed)) {
            let last = local.read(Offset(offset))?.filter(|last| last.resource == resource && last.key == key);
            let Some(last) = last else { continue };
            let gone = |at| Record { actor: actor.clone(), ..gone(&shared, &last, at) };
            // The deletions in etcd had some of these revisions. A revision that the local log has used for another
            // event is skipped.
            let at = free.find_map(|at| match local.read(Offset(at)) {
                Ok(None) => Some(Ok(at)),
                Ok(Some(_)) => None,
                Err(fault) => Some(Err(fault)),
            });
            match at.transpose()? {
                Some(at) => waiting.push(gone(Offset(at))),
                None => self.waiting.push_back((revision, gone(Offset(revision)))),
            }
        }
        waiting.sort_by_key(|record| record.offset);
        shared.append(&waiting)?;
        shared.unread.end_round();
        // A watch that resumed at an older version would miss the events between that version and this revision, so the
        // log begins at this revision.
        local.begin_at(Offset(revision))?;
        let (is_partial, has_unread) = (!self.waiting.is_empty(), !shared.unread.is_empty());
        let same_kinds_after = self.source.same_kinds_after.min(revision);
        self.source = Source { through: revision, is_partial, has_unread, same_kinds_after, ..self.source.clone() };
        local.keep_source(&self.source)?;
        let claims = Range::of(client::KeyRange::one(shared.places.claims())).at(revision);
        let claimed = shared.etcd.range(&claims).map_err(fault)?.found.first().map_or(0, |found| found.mod_revision);
        shared.claimed.store(claimed, Ordering::Release);
        self.seen = revision;
        shared.reach(self.waiting.front().map_or(revision, |_| revision - 1));
        shared.wake();
        self.ask_numbers(self.waiting.len());
        Ok(())
    }
}

/// The revisions between two revisions that have no record, in descending order. The deletions whose events are unknown
/// happened at some of these revisions.
fn free_between(after: u64, through: u64, records: &[Record]) -> impl Iterator<Item = u64> + use<> {
    let taken: HashSet<u64> = records.iter().map(|record| record.offset).collect();
    (after + 1..=through).rev().filter(move |number| !taken.contains(number))
}

/// The deletion of an object, made from its last event. `last` has the value as it is on disk, perhaps encrypted.
fn gone(shared: &Shared, last: &Record, at: Offset) -> Record {
    let Record { resource, key, .. } = last;
    let object = shared.log.read(last.offset()).ok().flatten();
    let object = object.and_then(|last| renumbered(key, &last.object, at).ok());
    let object = object.unwrap_or_else(|| {
        let kind = registry().by_storage(resource).map(|id| registry().get(id));
        nothing_but_names(&Placed { kind, resource: resource.clone(), key: key.clone(), is_stray: false }, at)
    });
    Record {
        offset: at.0,
        time_ms: now_ms(),
        replaces: last.offset,
        operation: event::Operation::Delete as i32,
        actor: Default::default(),
        object,
        ..last.clone()
    }
}

/// The last state of a deleted object whose value cannot be read. It contains only the object's names.
fn nothing_but_names(placed: &Placed, version: Offset) -> Bytes {
    let names = placed.kind.map(|kind| (kind.versions[0].api_version(), kind.kind.to_string()));
    // A custom kind's group is in its storage path; its versions are not known here.
    let (api_version, kind) = names.unwrap_or_else(|| {
        let group = placed.resource.split('/').next().unwrap_or_default();
        (format!("{group}/unknown"), "Unknown".into())
    });
    nothing_but(&api_version, &kind, &placed.key, version)
}
