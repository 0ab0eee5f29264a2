//! Copies etcd's events to the local log, in order and each once.

use crate::client::{self, Event, Operation, Range, Txn, Watch, Watched};
use crate::local::Source;
use crate::places::Found;
use crate::planted::{Bug, planted};
use crate::restored::{self, Standing, known_through};
use crate::shared::{Seen, Shared, fault, now_ms, went_back, wrong_cluster};
use bytes::Bytes;
use holdfast_core::etcd::renumbered;
use holdfast_core::event::{self, Actor, Offset, Record};
use holdfast_core::kinds::registry;
use holdfast_engine::Fault;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// How many keys are read at a time.
const PAGE: u64 = 500;
/// How long to wait for events before checking whether a caller waits for them.
const PERIOD: Duration = Duration::from_millis(50);
/// The same while a caller waits.
const WANTED_PERIOD: Duration = Duration::from_millis(2);
/// The pause after a fault.
const RETRY: Duration = Duration::from_millis(200);
/// After so many signs in a row it is certain that etcd was restored from a backup. Some releases give one stale answer
/// after a pause of their process.
const SIGNS_MAX: u32 = 3;
/// After so many revisions without events the progress is saved, so that a restart does not ask for those revisions
/// again.
const QUIET_REVISIONS: u64 = 1000;

/// Copies events. A log has only one follower.
pub struct Follower {
    shared: Arc<Shared>,
    watch: Option<Box<dyn Watch>>,
    source: Source,
    /// The revision of the last event received.
    seen: u64,
    /// Events that have no offset yet, each with its revision.
    waiting: VecDeque<(u64, Record)>,
    /// While a restored etcd is taken over: the revisions of the writes by which that is done.
    restored: Option<HashSet<u64>>,
    /// How many times in a row this did not look like the etcd whose events the local log has.
    signs: AtomicU32,
}

impl Follower {
    pub fn new(shared: Arc<Shared>, source: Source) -> Follower {
        Follower {
            shared,
            watch: None,
            source,
            seen: 0,
            waiting: VecDeque::new(),
            restored: None,
            signs: AtomicU32::new(0),
        }
    }

    /// Follows until the log is closed.
    pub fn run(mut self) {
        let mut told = None;
        while !self.shared.closing.load(Ordering::Relaxed) {
            let is_wanted = self.shared.is_wanted();
            match self.step(if is_wanted { WANTED_PERIOD } else { PERIOD }, is_wanted) {
                Ok(()) if told.take().is_some() => tracing::info!("etcd's events are followed again"),
                Ok(()) => {}
                Err(fault) => {
                    let why = fault.to_string();
                    if told.as_ref() != Some(&why) {
                        tracing::warn!("etcd's events cannot be followed: {why}");
                    }
                    self.shared.in_trouble(why.clone());
                    told = Some(why);
                    self.watch = None;
                    if matches!(fault, Fault::Full { .. } | Fault::Io { .. }) {
                        // The local disk failed. The events that it did not take are requested again.
                        let _ = self.shared.local.recover();
                    }
                    std::thread::sleep(RETRY);
                }
            }
        }
    }

    /// Brings the local log up to etcd's current revision at least. The log has no readers yet.
    pub fn begin(&mut self) -> Result<(), Fault> {
        let shared = self.shared.clone();
        let newest = self.newest()?;
        let claims = Range::of(client::Keys::one(shared.places.claims()));
        let claimed = shared.etcd.range(&claims).map_err(fault)?.found.first().map_or(0, |found| found.mod_revision);
        shared.claimed.store(claimed, Ordering::Release);
        let through = if self.source.is_partial { 0 } else { known_through(shared.local.as_ref(), &self.source)? };
        if through == 0 {
            return self.fill(true);
        }
        self.seen = through;
        shared.come_to(through);
        while shared.through() < newest {
            self.step(WANTED_PERIOD, true)?;
        }
        Ok(())
    }

    /// Brings the local log to what a restored etcd has, after [`accept`](crate::restored::accept). The log has no
    /// readers yet.
    pub fn take_over(&mut self, written: HashSet<u64>) -> Result<(), Fault> {
        self.restored = Some(written);
        self.fill(false)?;
        self.restored = None;
        let newest = self.newest()?;
        while self.shared.through() < newest {
            self.step(WANTED_PERIOD, true)?;
        }
        Ok(())
    }

    /// etcd's revision, by a linearizable read, which sees every write that was answered before.
    fn newest(&self) -> Result<u64, Fault> {
        self.shared.check_epoch()?;
        let now = Standing::of(self.shared.etcd.as_ref(), &self.shared.places).map_err(fault)?;
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

    /// Waits up to `patience` for the next events, and copies them.
    pub fn step(&mut self, patience: Duration, is_wanted: bool) -> Result<(), Fault> {
        let shared = self.shared.clone();
        let watch = match &mut self.watch {
            Some(watch) => watch,
            None => {
                // A member of another cluster, or of one restored from a backup, has other events.
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
        match watch.next(patience) {
            Ok(Some(watched)) => self.take(watched),
            Ok(None) if is_wanted && shared.tells_progress => watch.ask_progress().map_err(|other| self.cut(other)),
            // etcd's progress cannot be trusted, so an event is written: when it arrives, all earlier events have
            // arrived.
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

    /// Drops the watch: after a fault it has no more events.
    fn cut(&mut self, why: client::Fault) -> Fault {
        self.watch = None;
        fault(why)
    }

    fn take(&mut self, watched: Watched) -> Result<(), Fault> {
        let shared = self.shared.clone();
        if watched.header.cluster != shared.cluster {
            return Err(Fault::Unreachable { why: wrong_cluster(watched.header.cluster, shared.cluster) });
        }
        let Some(last) = watched.events.last().map(|event| event.now.mod_revision) else {
            return self.quiet(watched.header.revision);
        };
        let (mut records, waited) = (Vec::with_capacity(watched.events.len()), self.waiting.clone());
        for events in watched.events.chunk_by(|one, other| one.now.mod_revision == other.now.mod_revision) {
            // Some releases of etcd send events twice.
            if events[0].now.mod_revision > self.seen {
                self.number(events, &mut records);
            }
        }
        if let Err(fault) = self.keep(&records) {
            // The events are received again.
            self.waiting = waited;
            return Err(fault);
        }
        self.seen = self.seen.max(last);
        shared.come_to(self.waiting.front().map_or(self.seen, |(revision, _)| revision - 1));
        if !records.is_empty() {
            shared.wake();
        }
        self.ask_numbers(self.waiting.len().saturating_sub(waited.len()));
        Ok(())
    }

    fn keep(&mut self, records: &[Record]) -> Result<(), Fault> {
        if !self.waiting.is_empty() && !self.source.is_partial {
            // If the process ends before these events have offsets, the next start compares all objects.
            self.keep_partial(true)?;
        }
        if !records.is_empty() {
            self.shared.local.append(records)?;
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

    /// Gives each event an offset of its own. Of several events with one revision, as when a lease expires, one gets
    /// the revision as its offset. The others get the revisions of tick writes, which are made for that and have no
    /// event in the log.
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
        let claims = self.shared.places.claims();
        if events.iter().any(|event| event.now.key == claims) {
            self.shared.claimed.store(revision, Ordering::Release);
        }
        let mut found = Vec::with_capacity(1);
        self.translate(events, &mut found);
        // An existing object must have its revision in etcd as its version. The version of a deleted object is not
        // asked for again, so deletions get the other offsets.
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
        let key = self.shared.places.tick(&self.shared.server);
        let put = || Operation::Put { key: key.clone(), value: Bytes::new(), lease: 0 };
        let txns = (0..count).map(|_| Txn { operations: vec![put()], ..Txn::default() }).collect();
        for answer in self.shared.etcd.transact(txns) {
            if let Err(fault) = answer {
                tracing::warn!(%fault, "an event waits for its number");
            }
        }
    }

    /// There are no events up to this revision.
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
        self.shared.come_to(revision);
        Ok(())
    }

    /// Converts the events of one revision to records.
    fn translate(&self, events: &[Event], records: &mut Vec<Record>) {
        let shared = &self.shared;
        let who = events.iter().find(|event| matches!(shared.places.find(registry(), &event.now.key), Ok(Found::Who)));
        let who = who.and_then(|event| Record::decode_record(&event.now.value).ok());
        for Event { is_delete, now, before } in events {
            let who = who.as_ref().filter(|who| shared.places.keys.at(&who.resource, &who.key).as_bytes() == &*now.key);
            let replaces = before.as_ref().map_or(0, |before| before.mod_revision);
            let record = match is_delete {
                false => shared.put(now, replaces, who, Seen::Now(now_ms())),
                true => self.deletion(now, before.as_ref(), who),
            };
            records.extend(record);
        }
    }

    /// The record of a deletion. The object comes from etcd, or from the local log if etcd has compacted it.
    fn deletion(
        &self,
        now: &client::KeyValue,
        before: Option<&client::KeyValue>,
        who: Option<&Record>,
    ) -> Option<Record> {
        let shared = &self.shared;
        let told = before.and_then(|before| {
            let last = client::KeyValue { mod_revision: now.mod_revision, key: now.key.clone(), ..before.clone() };
            shared.put(&last, before.mod_revision, who, Seen::Now(now_ms()))
        });
        let record = match told {
            Some(told) => told,
            None => {
                let (_, resource, key) = shared.object(&now.key)?;
                let local = &shared.local;
                let at = local.version_at(resource, key, Offset(now.mod_revision)).ok().flatten()?;
                gone(&local.read(at).ok().flatten()?, Offset(now.mod_revision), now_ms(), &Actor::default())?
            }
        };
        let time_ms = who.map_or_else(now_ms, |who| who.time_ms);
        let actor = who.map(|who| who.actor.clone()).unwrap_or_default();
        Some(Record { operation: event::Operation::Delete as i32, time_ms, actor, ..record })
    }

    /// Reads all objects at one revision, and copies those that the local log lacks: all of them at first; later those
    /// that changed since etcd compacted the events between. The log then begins at this revision, because the events
    /// between are unknown.
    fn fill(&mut self, is_unread: bool) -> Result<(), Fault> {
        let shared = self.shared.clone();
        let local = &shared.local;
        let known_through = self.source.through.max(local.last()?.0);
        self.waiting.clear();
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
                let Some((_, resource, key)) = shared.object(&found.key) else { continue };
                let before = known.remove(&(resource.to_owned(), key.to_owned())).unwrap_or(0);
                if before < found.mod_revision {
                    let who = Record { time_ms: now_ms(), actor: restored::actor(), ..Record::default() };
                    let is_restored = self.restored.as_ref().is_some_and(|all| all.contains(&found.mod_revision));
                    let who = Some(&who).filter(|_| is_restored);
                    waiting.extend(shared.put(found, before, who, Seen::Later(now_ms())));
                }
            }
            // While the log has no readers, the order of appended records does not matter.
            if is_unread {
                local.append(&waiting)?;
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
            // Some of these revisions were those of the deletions in etcd. A number that the local log has used is
            // skipped.
            let at = free.find_map(|at| match local.read(Offset(at)) {
                Ok(None) => Some(Ok(at)),
                Ok(Some(_)) => None,
                Err(fault) => Some(Err(fault)),
            });
            match at.transpose()? {
                Some(at) => waiting.extend(gone(&last, Offset(at), now_ms(), &actor)),
                None => {
                    self.waiting.extend(gone(&last, Offset(revision), now_ms(), &actor).map(|gone| (revision, gone)))
                }
            }
        }
        waiting.sort_by_key(|record| record.offset);
        local.append(&waiting)?;
        // A watch that resumed at an older version would miss the events between.
        local.begin_at(Offset(revision))?;
        self.source = Source { through: revision, is_partial: !self.waiting.is_empty(), ..self.source.clone() };
        local.keep_source(&self.source)?;
        let claims = Range::of(client::Keys::one(shared.places.claims())).at(revision);
        let claimed = shared.etcd.range(&claims).map_err(fault)?.found.first().map_or(0, |found| found.mod_revision);
        shared.claimed.store(claimed, Ordering::Release);
        self.seen = revision;
        shared.come_to(self.waiting.front().map_or(revision, |_| revision - 1));
        shared.wake();
        self.ask_numbers(self.waiting.len());
        Ok(())
    }
}

/// Revisions without a record, in descending order: some of them are the unknown deletions.
fn free_between(after: u64, through: u64, records: &[Record]) -> impl Iterator<Item = u64> + use<> {
    let taken: HashSet<u64> = records.iter().map(|record| record.offset).collect();
    (after + 1..=through).rev().filter(move |number| !taken.contains(number))
}

/// The deletion of an object, made from its last event.
fn gone(last: &Record, at: Offset, time_ms: i64, actor: &Actor) -> Option<Record> {
    let object = renumbered(&last.key, &last.object, at).ok()?;
    Some(Record {
        offset: at.0,
        time_ms,
        replaces: last.offset,
        operation: event::Operation::Delete as i32,
        actor: actor.clone(),
        object,
        ..last.clone()
    })
}
