//! A log in memory that several engines write to, like a store of a cluster of servers. It numbers events itself and
//! leaves gaps, compares the versions that each decision requires, shows events to each engine late, and sometimes
//! gives no answer to a write.

use holdfast_core::event::{Offset, Record};
use holdfast_engine::log::{Decision, Receipt, Wake};
use holdfast_engine::{Append, Fault, Log, LogRead, Proposal};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

/// Random numbers that follow from a seed.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Dice {
        Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Draws one number of `0..count`.
    pub fn below(&mut self, count: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % count
    }

    pub fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }
}

/// How often each kind of fault and race happened in a run, so that a test can check that each kind happened.
#[derive(Debug, Default, Clone, Copy)]
pub struct Seen {
    pub behind: u64,
    pub overtaken: u64,
    pub unreachable: u64,
    pub refused: u64,
    pub unknown_applied: u64,
    pub unknown_late: u64,
    pub unknown_lost: u64,
    pub others_between: u64,
}

type Place = (String, String);

pub struct Store {
    dice: Dice,
    events: BTreeMap<u64, Record>,
    /// The last number that an event or something else in the store (a gap) has used.
    newest: u64,
    objects: BTreeMap<Place, Held>,
    servers: Vec<Server>,
    /// Writes that may still arrive though their servers have given up waiting for them.
    late: Vec<(usize, Vec<Record>, Decision)>,
    /// While this flag is set, the store has no faults.
    pub calm: bool,
    pub seen: Seen,
}

struct Held {
    offset: u64,
    claims: Vec<Arc<str>>,
}

#[derive(Default)]
struct Server {
    /// The tail of this server has the events up to this number.
    through: u64,
    cut_off: bool,
    wake: Option<Wake>,
}

impl Store {
    pub fn new(seed: u64, servers: usize) -> Arc<Mutex<Store>> {
        Arc::new(Mutex::new(Store {
            dice: Dice::new(seed),
            events: BTreeMap::new(),
            newest: 0,
            objects: BTreeMap::new(),
            servers: (0..servers).map(|_| Server::default()).collect(),
            late: Vec::new(),
            calm: true,
            seen: Seen::default(),
        }))
    }

    pub fn events(&self) -> impl Iterator<Item = &Record> {
        self.events.values()
    }

    /// The offset of the last event in the store; zero if there is none.
    pub fn last(&self) -> u64 {
        self.events.keys().next_back().copied().unwrap_or(0)
    }

    pub fn cut(&mut self, server: usize, cut_off: bool) {
        self.servers[server].cut_off = cut_off;
    }

    /// Shows a server more of the tail. Returns the function that wakes it.
    pub fn show(&mut self, server: usize, all: bool) -> Option<Wake> {
        let last = self.last();
        let (from, dice) = (self.servers[server].through, &mut self.dice);
        let through = if all { last } else { from + dice.below(last.saturating_sub(from) + 1) };
        let server = &mut self.servers[server];
        if server.cut_off || through <= from {
            return None;
        }
        server.through = through;
        server.wake.clone()
    }

    /// Carries out a write whose server had given up waiting for the answer.
    pub fn deliver_late(&mut self) {
        if !self.late.is_empty() {
            let nth = self.dice.below(self.late.len() as u64) as usize;
            let (_, records, decision) = self.late.remove(nth);
            self.apply(&records, &decision);
        }
    }

    /// Stores a decision if all versions that it was judged on still hold.
    fn apply(&mut self, records: &[Record], decision: &Decision) -> Option<Offset> {
        let version = |resource: &str, key: &str| {
            self.objects.get(&(resource.to_owned(), key.to_owned())).map_or(0, |held| held.offset)
        };
        let is_as_seen = records.iter().all(|record| version(&record.resource, &record.key) == record.replaces)
            && decision.expects.iter().all(|expected| {
                version(&expected.resource, &expected.key) == expected.version.map_or(0, |version| version.0)
            });
        let place = |nth: usize| place(&records[nth - decision.records.start]);
        let is_taken = decision.claims.iter().any(|(nth, claim)| {
            self.objects.iter().any(|(held, by)| *held != place(*nth) && by.claims.contains(claim))
        });
        if !is_as_seen || is_taken {
            return None;
        }
        let first = self.newest + 1 + self.dice.below(3);
        for (offset, (nth, record)) in (first..).zip(decision.records.clone().zip(records)) {
            let text = String::from_utf8_lossy(&record.object).replacen(
                &format!("\"resourceVersion\":\"{}\"", record.offset),
                &format!("\"resourceVersion\":\"{offset}\""),
                1,
            );
            let written = Record { offset, object: text.into_bytes().into(), ..record.clone() };
            let claims = decision.claims.iter().filter(|(of, _)| *of == nth).map(|(_, claim)| claim.clone()).collect();
            match record.is_delete() {
                true => drop(self.objects.remove(&place(nth))),
                false => drop(self.objects.insert(place(nth), Held { offset, claims })),
            }
            self.events.insert(offset, written);
            self.newest = offset;
        }
        Some(Offset(first))
    }

    fn decide(&mut self, server: usize, records: &[Record], decision: Decision) -> Receipt {
        let fate = if self.calm { 99 } else { self.dice.below(30) };
        match fate {
            0 => {
                self.seen.unknown_applied += 1;
                self.apply(records, &decision);
                Receipt::Unknown
            }
            1 => {
                self.seen.unknown_late += 1;
                self.late.push((server, records.to_vec(), decision));
                Receipt::Unknown
            }
            2 => {
                self.seen.unknown_lost += 1;
                Receipt::Unknown
            }
            3 => {
                self.seen.refused += 1;
                Receipt::Refused(unreachable())
            }
            _ => match self.apply(records, &decision) {
                Some(first) => Receipt::At((first.0..).zip(records).map(|(offset, _)| Offset(offset)).collect()),
                None => {
                    self.seen.overtaken += 1;
                    Receipt::Overtaken
                }
            },
        }
    }
}

fn place(record: &Record) -> Place {
    (record.resource.clone(), record.key.clone())
}

fn unreachable() -> Fault {
    Fault::Unreachable { why: "the line is cut".into() }
}

/// The log of one server: that server's view of the store.
pub struct SharedLog {
    pub store: Arc<Mutex<Store>>,
    pub server: usize,
}

impl SharedLog {
    fn lock(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn reached(&self) -> Result<MutexGuard<'_, Store>, Fault> {
        let mut store = self.lock();
        if store.servers[self.server].cut_off {
            store.seen.unreachable += 1;
            return Err(unreachable());
        }
        Ok(store)
    }
}

impl LogRead for SharedLog {
    fn last(&self) -> Result<Offset, Fault> {
        Ok(Offset(self.reached()?.last()))
    }

    fn read(&self, offset: Offset) -> Result<Option<Record>, Fault> {
        Ok(self.lock().events.get(&offset.0).cloned())
    }

    fn current(&self, visit: &mut dyn FnMut(Record) -> Result<(), Fault>) -> Result<(), Fault> {
        let store = self.lock();
        let current: Vec<Record> = store.objects.values().map(|held| store.events[&held.offset].clone()).collect();
        drop(store);
        current.into_iter().try_for_each(visit)
    }

    fn scan(&self, resource: Option<&str>, after: Offset, limit: usize) -> Result<Vec<Record>, Fault> {
        let store = self.lock();
        let wanted = store.events.range(after.0 + 1..=store.servers[self.server].through.max(after.0 + 1));
        let wanted = wanted.map(|(_, record)| record).filter(|record| resource.is_none_or(|of| of == record.resource));
        Ok(wanted.take(limit).cloned().collect())
    }

    fn oldest(&self) -> Result<Offset, Fault> {
        Ok(Offset::ZERO)
    }
}

impl Log for SharedLog {
    fn commit(&self, proposal: &Proposal) -> Result<Append, Fault> {
        let mut store = self.reached()?;
        let decisions = proposal.decisions();
        let count: usize = decisions.iter().map(|decision| decision.records.len()).sum();
        assert_eq!(count, proposal.records.len(), "each record is of a decision");
        let last = store.last();
        let is_behind = store.servers[self.server].through < last;
        if is_behind && !store.calm && store.dice.one_in(4) {
            store.seen.behind += 1;
            store.servers[self.server].through = last;
            return Ok(Append::Behind);
        }
        store.seen.others_between += u64::from(is_behind);
        let receipts = decisions
            .into_iter()
            .map(|decision| {
                let records = &proposal.records[decision.records.clone()];
                store.decide(self.server, records, decision)
            })
            .collect();
        let last = store.last();
        store.servers[self.server].through = last;
        Ok(Append::Numbered(receipts))
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn tail(&self, after: Offset) -> Result<Vec<Record>, Fault> {
        let mut store = self.lock();
        let limit = 1 + store.dice.below(5) as usize;
        let through = store.servers[self.server].through;
        let records = store.events.range(after.0 + 1..).take_while(|(offset, _)| **offset <= through);
        Ok(records.map(|(_, record)| record.clone()).take(limit).collect())
    }

    fn wake_by(&self, wake: Wake) {
        self.lock().servers[self.server].wake = Some(wake);
    }

    fn secret(&self) -> Result<[u8; 32], Fault> {
        Ok([7; 32])
    }

    fn forget(&self, _: Offset) -> Result<(), Fault> {
        Ok(())
    }

    fn recover(&self) -> Result<(), Fault> {
        let mut store = self.reached()?;
        // A recovery makes outcomes certain: earlier writes of this server that have not arrived yet will never arrive.
        store.late.retain(|(server, ..)| *server != self.server);
        let last = store.last();
        store.servers[self.server].through = last;
        Ok(())
    }
}
