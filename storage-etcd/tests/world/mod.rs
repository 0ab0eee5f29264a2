//! Two servers on the model of etcd with one seed. They write while answers get lost, members lag, servers restart,
//! etcd compacts, and a backup is restored. Afterwards the answers of the servers are compared with the events of the
//! model.

use bytes::Bytes;
use holdfast_core::etcd::Media;
use holdfast_core::event::{Actor, Offset, Operation, Record};
use holdfast_encryption::Live;
use holdfast_engine::log::{Decision, Expected, Receipt};
use holdfast_engine::{Append, Fault, Log, LogRead, Proposal};
use holdfast_storage_etcd::client::{Etcd, Event, KeyRange, Range};
use holdfast_storage_etcd::model::{Bugs, CallKind, Fate, Model};
use holdfast_storage_etcd::{EtcdLog, Kinds, Parts, Storing, Transactions};
use holdfast_storage_rocks::{Durability, Reserve, RocksLog};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const STEPS: usize = 60;
const NAMES: usize = 5;
/// The maximum number of attempts of a recovery, after which it counts as failed.
const RECOVERIES_MAX: usize = 200;
const WHO: &str = "/registry.holdfast/who/";
const PREFIX: &str = "/registry/configmaps/a/";

/// Runs the simulation with one seed. Returns the rule that was broken, if any, as an error.
pub fn run(seed: u64, transactions: Transactions) -> Result<(), String> {
    let mut world = World::new(seed, transactions)?;
    for _ in 0..STEPS {
        world.step()?;
    }
    world.end()
}

struct World {
    model: Model,
    transactions: Transactions,
    random: StdRng,
    servers: Vec<Server>,
    values: u64,
    /// The outcome of each proposed value, as the server told it.
    told: BTreeMap<u64, Told>,
    /// All events on objects by revision, collected before etcd compacts them.
    truth: BTreeMap<u64, Happened>,
    /// While this flag is set, no faults occur.
    is_calm: Arc<AtomicBool>,
}

/// The writes of one revision.
#[derive(Default)]
struct Happened {
    events: Vec<Event>,
    /// The value of the key that names the author of the write.
    who: String,
}

/// A proposed value, and the server's answer.
#[derive(Debug, Clone)]
struct Told {
    name: String,
    replaces: u64,
    counts_on: Option<(String, u64)>,
    outcome: Outcome,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    At(u64),
    No,
    /// The outcome as read from the server's log after it has recovered.
    ReadBack(Option<u64>),
}

struct Server {
    folder: tempfile::TempDir,
    log: Option<EtcdLog>,
}

fn told(fault: impl std::fmt::Display) -> String {
    fault.to_string()
}

impl World {
    fn new(seed: u64, transactions: Transactions) -> Result<World, String> {
        let model = Model::default();
        model.be_alone();
        if transactions == Transactions::Plain {
            model.be_plain();
        }
        let mut random = StdRng::seed_from_u64(seed);
        let repeats_events = random.random_ratio(1, 3);
        model.set_bugs(Bugs { repeats_events, ..Bugs::default() });
        let folder = || tempfile::tempdir().map_err(told);
        let servers = vec![Server { folder: folder()?, log: None }, Server { folder: folder()?, log: None }];
        let is_calm = Arc::new(AtomicBool::new(true));
        let (told, truth) = (BTreeMap::new(), BTreeMap::new());
        let mut world = World { model, transactions, random, servers, values: 0, told, truth, is_calm };
        for at in 0..world.servers.len() {
            world.open(at)?;
        }
        Ok(world)
    }

    fn open(&mut self, at: usize) -> Result<(), String> {
        self.open_as(at, false)
    }

    fn open_as(&mut self, at: usize, accepts_restored: bool) -> Result<(), String> {
        self.is_calm.store(true, Ordering::SeqCst);
        self.model.catch_up(at as u64);
        let random = Mutex::new(StdRng::seed_from_u64(self.random.random()));
        let is_calm = self.is_calm.clone();
        let chance = move |call| match is_calm.load(Ordering::SeqCst) {
            true => Fate::Answered,
            false => fate(call, &mut random.lock().expect("nobody panics here")),
        };
        let local = RocksLog::open_with(self.servers[at].folder.path(), Durability::Unsynced, Reserve::Bytes(0));
        let storing =
            Storing { media: Media::Protobuf, release: 36, news_ttl: None, lease_reuse: Duration::from_secs(60) };
        let parts = Parts {
            etcd: Arc::new(self.model.client(at as u64, Box::new(chance))),
            local: Arc::new(local.map_err(told)?),
            prefix: "/registry".into(),
            kinds: Kinds::All,
            storing,
            transactions: self.transactions,
            claims: None,
            keys: Live::none(),
            tells_progress: true,
            accepts_restored,
        };
        self.servers[at].log = Some(EtcdLog::open(parts).map_err(told)?);
        Ok(())
    }

    fn log(&self, at: usize) -> &EtcdLog {
        self.servers[at].log.as_ref().expect("a server that runs")
    }

    fn step(&mut self) -> Result<(), String> {
        let at = self.random.random_range(0..self.servers.len());
        match self.random.random_range(0..20) {
            0 => {
                self.servers[at].log = None;
                if self.random.random_ratio(1, 2) {
                    // The other server continues to write, and etcd compacts events that this server has missed.
                    self.commit(1 - at)?;
                    self.commit(1 - at)?;
                    self.note_truth();
                    let revision = self.model.revision();
                    // The revision may already be compacted, and then this call fails.
                    let _ = self.model.plain_client(9).compact(revision);
                }
                self.open(at)
            }
            1 => {
                self.model.lag(at as u64, self.random.random_range(1..20));
                self.commit(at)
            }
            2 => {
                self.model.set_full(true);
                let outcome = self.commit(at);
                self.model.set_full(false);
                outcome
            }
            3 => {
                self.model.change_leader();
                self.commit(at)
            }
            _ => self.commit(at),
        }
    }

    /// Commits some decisions, each based on the objects that this server has.
    fn commit(&mut self, at: usize) -> Result<(), String> {
        let current = self.current(at)?;
        let first = self.values + 1;
        let mut decisions: Vec<Decision> = Vec::new();
        let mut records: Vec<Record> = Vec::new();
        for _ in 0..self.random.random_range(1..4) {
            let name = format!("c{}", self.random.random_range(0..NAMES));
            if records.iter().any(|record| record.key == format!("a/{name}")) {
                continue;
            }
            self.values += 1;
            let known = current.get(&name).copied().unwrap_or(0);
            let is_delete = known > 0 && self.random.random_ratio(1, 4);
            let other = format!("c{}", self.random.random_range(0..NAMES));
            let counts_on = (other != name && self.random.random_ratio(1, 2))
                .then(|| (other.clone(), current.get(&other).copied().unwrap_or(0)));
            let expects = counts_on.iter().map(|(name, version)| Expected {
                resource: "configmaps".into(),
                key: format!("a/{name}").into(),
                version: Some(*version).filter(|version| *version > 0).map(Offset),
            });
            let place = records.len();
            decisions.push(Decision {
                records: place..place + 1,
                expects: expects.collect(),
                claims: Vec::new(),
                had: Vec::new(),
            });
            records.push(record(self.values, &name, known, is_delete));
            self.told.insert(self.values, Told { name, replaces: known, counts_on, outcome: Outcome::No });
        }
        self.is_calm.store(false, Ordering::SeqCst);
        let copies = || decisions.clone();
        let answer = self.log(at).commit(&Proposal::new(&records, &copies));
        let receipts = match answer {
            Ok(Append::Numbered(receipts)) => receipts,
            Ok(other) => return Err(format!("etcd numbers events, and the log says {other:?}")),
            Err(fault) => return Err(format!("a commit fails: {fault}")),
        };
        let mut unknown = Vec::new();
        for (value, receipt) in (first..).zip(receipts) {
            let outcome = match receipt {
                Receipt::At(offsets) => Outcome::At(offsets[0].0),
                Receipt::Overtaken | Receipt::Taken(_) | Receipt::Refused(_) => Outcome::No,
                Receipt::Unknown => {
                    unknown.push(value);
                    continue;
                }
            };
            self.told.get_mut(&value).expect("a value that was proposed").outcome = outcome;
        }
        if !unknown.is_empty() {
            self.recover(at)?;
        }
        for value in unknown {
            let found = self.event_with(at, value)?;
            self.told.get_mut(&value).expect("a value that was proposed").outcome = Outcome::ReadBack(found);
        }
        self.note_truth();
        Ok(())
    }

    fn recover(&mut self, at: usize) -> Result<(), String> {
        // Raising the fence is a write, which needs space in etcd.
        self.model.set_full(false);
        for _ in 0..RECOVERIES_MAX {
            if self.log(at).recover().is_ok() {
                return Ok(());
            }
        }
        // After the maximum number of attempts no more faults occur, so the recovery must succeed.
        self.is_calm.store(true, Ordering::SeqCst);
        self.log(at).recover().map_err(|fault| format!("it never recovers: {fault}"))
    }

    /// The names of the objects that a server has, with their versions.
    fn current(&self, at: usize) -> Result<BTreeMap<String, u64>, String> {
        let mut found = BTreeMap::new();
        let mut visit = |record: Record| -> Result<(), Fault> {
            found.insert(record.key.trim_start_matches("a/").to_owned(), record.offset);
            Ok(())
        };
        self.log(at).current(&mut visit).map_err(told)?;
        Ok(found)
    }

    fn event_with(&self, at: usize, value: u64) -> Result<Option<u64>, String> {
        let Told { name, replaces, .. } = &self.told[&value];
        let events = self.log(at).tail(Offset(*replaces)).map_err(told)?;
        let is_it = |record: &&Record| record.key == format!("a/{name}") && is_of(record, value);
        Ok(events.iter().find(is_it).map(|record| record.offset))
    }

    /// Collects the model's events since the last call.
    fn note_truth(&mut self) {
        for event in self.model.events() {
            let revision = event.now.mod_revision;
            if event.now.key.starts_with(WHO.as_bytes()) {
                self.truth.entry(revision).or_default().who = text(&event.now.value);
            }
            if !event.now.key.starts_with(PREFIX.as_bytes()) {
                continue;
            }
            let events = &mut self.truth.entry(revision).or_default().events;
            if !events.iter().any(|known| known.now.key == event.now.key) {
                events.push(event);
            }
        }
    }

    fn end(&mut self) -> Result<(), String> {
        self.is_calm.store(true, Ordering::SeqCst);
        self.model.settle();
        self.note_truth();
        for at in 0..self.servers.len() {
            self.model.catch_up(at as u64);
            self.recover(at)?;
        }
        self.judge_answers()?;
        for at in 0..self.servers.len() {
            self.judge_log(at)?;
        }
        self.judge_restore()
    }

    /// Compares the servers' answers with etcd's events.
    fn judge_answers(&self) -> Result<(), String> {
        for (revision, Happened { events, who }) in &self.truth {
            if events.len() > 1 {
                return Err(format!("revision {revision} has {} objects of one resource", events.len()));
            }
            // A full etcd accepts a deletion only without a put beside it.
            if events.len() == 1 && who.is_empty() && !events[0].is_delete && !self.is_plain() {
                return Err(format!("nobody knows who wrote revision {revision}"));
            }
        }
        for (value, Told { name, replaces, counts_on, outcome }) in &self.told {
            let is_it = |(at, happened): &(&u64, &Happened)| {
                let key = format!("{PREFIX}{name}");
                let is_bare = || happened.events.first().is_some_and(|event| event.is_delete && event.now.key == key);
                happened.who.contains(&marker(*value))
                    || *outcome == Outcome::At(**at) && happened.who.is_empty() && is_bare()
            };
            let done = match self.is_plain() {
                true => self.truth.iter().find(|(_, happened)| happened.is_of(*value, name, *replaces, outcome)),
                false => self.truth.iter().find(is_it),
            };
            let told = match outcome {
                Outcome::At(revision) => Some(*revision),
                Outcome::ReadBack(found) => *found,
                Outcome::No => None,
            };
            let happened = done.map(|(revision, _)| *revision);
            // A creation that arrives after the object was deleted again cannot be stopped.
            let is_late = self.is_plain() && *replaces == 0 && *outcome == Outcome::ReadBack(None);
            if told != happened && !is_late {
                return Err(format!("value {value} of {name}: told {outcome:?}, and etcd has it at {happened:?}"));
            }
            let Some((revision, Happened { events, .. })) = done else { continue };
            let Some(event) = events.first() else {
                return Err(format!("revision {revision} says who wrote it, and has no object"));
            };
            let before = event.before.as_ref().map_or(0, |before| before.mod_revision);
            if before != *replaces {
                return Err(format!("value {value} of {name} replaces {before}, and counted on {replaces}"));
            }
            if let Some((other, version)) = counts_on.as_ref().filter(|_| !self.is_plain()) {
                let stood = self.version_before(other, *revision);
                if stood != *version {
                    return Err(format!("value {value} counted on {other} at {version}, which was at {stood}"));
                }
            }
        }
        Ok(())
    }

    fn is_plain(&self) -> bool {
        self.transactions == Transactions::Plain
    }

    /// The version that an object had right before a revision; zero for none.
    fn version_before(&self, name: &str, revision: u64) -> u64 {
        let key = format!("{PREFIX}{name}");
        let of = |happened: &Happened| happened.events.iter().find(|event| event.now.key == key.as_bytes()).cloned();
        let last = self.truth.range(..revision).rev().find_map(|(_, happened)| of(happened));
        last.filter(|event| !event.is_delete).map_or(0, |event| event.now.mod_revision)
    }

    /// Checks that the server has all events that it claims to have, and the current objects.
    fn judge_log(&self, at: usize) -> Result<(), String> {
        let log = self.log(at);
        let found = self.model.plain_client(9).range(&Range::of(KeyRange::between(PREFIX, "/registry/configmaps/a0")));
        let expected: BTreeMap<String, u64> = found
            .map_err(told)?
            .found
            .iter()
            .map(|found| (String::from_utf8_lossy(&found.key[PREFIX.len()..]).into_owned(), found.mod_revision))
            .collect();
        let current = self.current(at)?;
        if current != expected {
            return Err(format!("server {at} has {current:?}, and etcd {expected:?}"));
        }
        let oldest = log.oldest().map_err(told)?.0;
        let events = log.tail(Offset(oldest)).map_err(told)?;
        let shown: Vec<(u64, String, bool)> =
            events.iter().map(|record| (record.offset, record.key.clone(), record.is_delete())).collect();
        let happened: Vec<(u64, String, bool)> = self
            .truth
            .range(oldest + 1..)
            .flat_map(|(revision, happened)| happened.events.iter().map(move |event| (revision, event)))
            .map(|(revision, event)| {
                let key = String::from_utf8_lossy(&event.now.key["/registry/configmaps/".len()..]).into_owned();
                (*revision, key, event.is_delete)
            })
            .collect();
        if shown != happened {
            return Err(format!("server {at} from {oldest} on shows\n{shown:?}\nand etcd\n{happened:?}"));
        }
        Ok(())
    }

    /// Checks that the server notices when an older etcd replaces the etcd of this run.
    fn judge_restore(&mut self) -> Result<(), String> {
        // The older etcd has the same cluster id, as if a snapshot of a disk was restored.
        let older = Model::default();
        older.be_alone();
        self.model.restore_same(&older);
        self.servers[0].log = None;
        match self.open(0) {
            Err(why) if why.contains("restored from a backup") => self.judge_accepted(),
            Err(why) => Err(format!("an etcd that was restored is refused otherwise: {why}")),
            Ok(()) => Err("an etcd that was restored is taken for the one that was there".into()),
        }
    }

    /// Checks that the older etcd, which is empty, can be accepted, and that the log then works like any other log.
    fn judge_accepted(&mut self) -> Result<(), String> {
        if self.transactions == Transactions::Plain {
            return Ok(());
        }
        self.open_as(0, true)?;
        let mut left = Vec::new();
        let visited = self.log(0).current(&mut |record| {
            left.push(record.key);
            Ok(())
        });
        visited.map_err(told)?;
        let oldest = self.log(0).oldest().map_err(told)?;
        let last = self.truth.keys().next_back().copied().unwrap_or(0);
        if !left.is_empty() || oldest.0 <= last {
            return Err(format!(
                "{left:?} are left of an etcd that was at {last}, and the new epoch begins at {oldest}"
            ));
        }
        self.servers[0].log = None;
        self.open(0)
    }
}

impl Happened {
    /// Whether this event wrote a value, in a store that does not record authors. Deletions of one version look the
    /// same, so each server whose deletion succeeded may be the author.
    fn is_of(&self, value: u64, name: &str, replaces: u64, outcome: &Outcome) -> bool {
        let Some(event) = self.events.first().filter(|event| event.now.key == format!("{PREFIX}{name}")) else {
            return false;
        };
        let at = event.now.mod_revision;
        let is_told = matches!(outcome, Outcome::At(told) | Outcome::ReadBack(Some(told)) if *told == at);
        match event.is_delete {
            true => is_told && event.before.as_ref().is_some_and(|before| before.mod_revision == replaces),
            // The object contains the value, followed by a dot.
            false => contains(&event.now.value, &marker(value)),
        }
    }
}

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

fn text(bytes: &Bytes) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn marker(value: u64) -> String {
    format!("value-{value}.")
}

/// Whether the write of this value made the event. Each event, even a deletion, names its author.
fn is_of(record: &Record, value: u64) -> bool {
    record.actor.request_id == marker(value)
}

fn record(value: u64, name: &str, replaces: u64, is_delete: bool) -> Record {
    let object = format!(
        "{{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{{\"name\":\"{name}\",\"namespace\":\"a\",\
         \"uid\":\"u\",\"resourceVersion\":\"{value}\"}},\"data\":{{\"v\":\"{}\"}}}}\n",
        marker(value)
    );
    let operation = if is_delete { Operation::Delete } else { Operation::Put };
    Record {
        // The log gives the event another offset, so the value of this offset does not matter.
        offset: 1_000_000 + value,
        time_ms: 1_795_000_000_000,
        resource: "configmaps".into(),
        key: format!("a/{name}"),
        replaces,
        operation: operation as i32,
        actor: Actor { request_id: marker(value), ..Actor::default() },
        object: object.into(),
    }
}

/// Draws the fate of a call while faults occur.
fn fate(call: CallKind, random: &mut StdRng) -> Fate {
    let is_rare = |random: &mut StdRng, one_of| random.random_ratio(1, one_of);
    match call {
        CallKind::Transact if is_rare(random, 12) => match random.random_range(0..5) {
            0 => Fate::Unreachable,
            1 => Fate::DoneUnanswered,
            2 => Fate::LostUnanswered,
            3 => Fate::DoneThoughFull,
            _ => Fate::DoneLater(random.random_range(1..12)),
        },
        CallKind::Range | CallKind::Watch if is_rare(random, 15) => Fate::Unreachable,
        CallKind::Next if is_rare(random, 25) => Fate::Unreachable,
        _ => Fate::Answered,
    }
}
