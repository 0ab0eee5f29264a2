//! A log in memory, for tests and as a simple model of the real logs. A test can plan faults of the log and appends by
//! another process.

use crate::log::{Append, Fault, Lack, Log, LogRead, Proposal, Size, Wake};
use holdfast_core::event::{Offset, Record};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, OnceLock};

#[derive(Default)]
pub struct MemoryLog {
    inner: Mutex<Inner>,
    wake: Mutex<Option<Wake>>,
    secret: Secret,
}

type Secret = Arc<OnceLock<[u8; 32]>>;

#[derive(Default)]
struct Inner {
    /// The durable records in encoded form, in the order of their offsets.
    records: Vec<Vec<u8>>,
    /// The offsets of records that were removed.
    forgotten: BTreeSet<u64>,
    oldest: Offset,
    let_go_bytes: u64,
    fault: Option<Planned>,
    broken: bool,
    /// The number of recoveries that will fail before one succeeds.
    recoveries_refused: usize,
    /// Whether the disk was full when the log broke.
    full: bool,
    /// `Some` if there is room only for writes that make room. The value is true if a reserve for these writes exists.
    short: Option<bool>,
    /// The `left` of [`Lack::Soon`], if the log reports that room is little.
    soon_short: Option<u64>,
    /// The offset of the last event that another process appended.
    others: u64,
    /// Makes the records that another process appends just before the next batch.
    first: Option<First>,
}

/// Makes the next records of the other process. The argument is the last offset, which the records must follow.
type First = Box<dyn FnOnce(Offset) -> Vec<Record> + Send>;

/// A fault that the next append will have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Planned {
    /// Nothing of the batch becomes durable, and the writer gets the error that the disk is full.
    Full,
    /// Nothing of the batch becomes durable, and the writer gets an error.
    Lost,
    /// All of the batch becomes durable, but the writer gets an error.
    Unacknowledged,
    /// The log panics, and nothing of the batch becomes durable.
    Panic,
}

impl MemoryLog {
    /// Plans a fault for the next append.
    pub fn plan(&self, fault: Planned) {
        self.lock().fault = Some(fault);
    }

    /// Lets the next `count` recoveries fail, as if the disk stayed full.
    pub fn refuse_recoveries(&self, count: usize) {
        self.lock().recoveries_refused = count;
    }

    /// Leaves room only for writes that make room. If `kept` is false, there is no room for these writes either.
    pub fn be_short_of_room(&self, kept: bool) {
        self.lock().short = Some(kept);
    }

    /// Makes the log report [`Lack::Soon`] with this value of `left`.
    pub fn be_soon_short_of_room(&self, left: u64) {
        self.lock().soon_short = Some(left);
    }

    /// Whether appends work, and no fault is planned for the next append.
    pub fn is_healthy(&self) -> bool {
        let inner = self.lock();
        !inner.broken && inner.fault.is_none()
    }

    /// Whether a fault occurred, so that appends wait for a recovery.
    pub fn is_broken(&self) -> bool {
        self.lock().broken
    }

    /// A log with a copy of the durable records, as a server finds it after a crash.
    pub fn survivor(&self) -> MemoryLog {
        let inner = self.lock();
        let (records, forgotten) = (inner.records.clone(), inner.forgotten.clone());
        let survivor = Inner { records, forgotten, oldest: inner.oldest, ..Inner::default() };
        MemoryLog { inner: Mutex::new(survivor), wake: Mutex::default(), secret: self.secret.clone() }
    }

    /// Appends as another process would, and wakes the writer that follows the tail. The records' offsets must follow
    /// the last offset.
    pub fn append_as_other(&self, records: &[Record]) {
        self.lock().push_of_other(records);
        let wake = self.wake.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone();
        if let Some(wake) = wake {
            wake();
        }
    }

    /// Lets another process append just before the next batch. The append of that batch then returns that the writer is
    /// behind.
    pub fn be_overtaken(&self, records: impl FnOnce(Offset) -> Vec<Record> + Send + 'static) {
        self.lock().first = Some(Box::new(records));
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Inner {
    /// The indexes of the records after `after` that were not removed.
    fn kept(&self, after: Offset) -> impl Iterator<Item = usize> {
        (after.0 as usize..self.records.len()).filter(|index| !self.forgotten.contains(&(*index as u64 + 1)))
    }

    fn decode(&self, index: usize) -> Result<Record, Fault> {
        Record::decode_record(&self.records[index]).map_err(|damage| Fault::damaged(Offset(index as u64 + 1), damage))
    }

    fn push(&mut self, record: &Record) {
        assert_eq!(record.offset, self.records.len() as u64 + 1, "offsets are dense");
        self.records.push(record.encode_record());
    }

    fn push_of_other(&mut self, records: &[Record]) {
        records.iter().for_each(|record| self.push(record));
        self.others = self.records.len() as u64;
    }
}

impl LogRead for MemoryLog {
    fn last(&self) -> Result<Offset, Fault> {
        Ok(Offset(self.lock().records.len() as u64))
    }

    fn read(&self, offset: Offset) -> Result<Option<Record>, Fault> {
        let inner = self.lock();
        match offset.0 {
            0 => Ok(None),
            offset if offset as usize > inner.records.len() || inner.forgotten.contains(&offset) => Ok(None),
            offset => inner.decode(offset as usize - 1).map(Some),
        }
    }

    fn current(&self, visit: &mut dyn FnMut(Record) -> Result<(), Fault>) -> Result<(), Fault> {
        let mut newest = BTreeMap::new();
        let inner = self.lock();
        for index in inner.kept(Offset::ZERO) {
            let record = inner.decode(index)?;
            let key = (record.resource.clone(), record.key.clone());
            if record.is_delete() {
                newest.remove(&key)
            } else {
                newest.insert(key, record)
            };
        }
        drop(inner);
        newest.into_values().try_for_each(visit)
    }

    fn scan(&self, resource: Option<&str>, after: Offset, limit: usize) -> Result<Vec<Record>, Fault> {
        let inner = self.lock();
        let mut found = Vec::new();
        for index in inner.kept(after) {
            if found.len() >= limit {
                break;
            }
            let record = inner.decode(index)?;
            if resource.is_none_or(|resource| resource == record.resource) {
                found.push(record);
            }
        }
        Ok(found)
    }

    fn size(&self) -> Result<Size, Fault> {
        let inner = self.lock();
        let bytes = inner.kept(Offset::ZERO).map(|index| inner.records[index].len() as u64).sum();
        Ok(Size { bytes, let_go_events: inner.forgotten.len() as u64, let_go_bytes: inner.let_go_bytes })
    }

    fn oldest(&self) -> Result<Offset, Fault> {
        Ok(self.lock().oldest)
    }
}

impl Log for MemoryLog {
    fn commit(&self, proposal: &Proposal) -> Result<Append, Fault> {
        let mut inner = self.lock();
        let failed = || Fault::io("append", std::io::Error::other("planned fault"));
        if inner.broken {
            return Err(failed());
        }
        if let Some(first) = inner.first.take() {
            let records = first(Offset(inner.records.len() as u64));
            inner.push_of_other(&records);
        }
        if proposal.records.first().is_some_and(|record| record.offset <= inner.others) {
            return Ok(Append::Behind);
        }
        let fault = inner.fault.take();
        assert!(fault != Some(Planned::Panic), "planned panic");
        if !matches!(fault, Some(Planned::Full | Planned::Lost)) {
            proposal.records.iter().for_each(|record| inner.push(record));
        }
        inner.broken = fault.is_some();
        inner.full = fault == Some(Planned::Full);
        match fault {
            None => Ok(Append::Appended),
            Some(Planned::Full) => Err(Fault::Full { operation: "append" }),
            Some(_) => Err(failed()),
        }
    }

    fn wake_by(&self, wake: Wake) {
        *self.wake.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(wake);
    }

    fn secret(&self) -> Result<[u8; 32], Fault> {
        Ok(*self.secret.get_or_init(|| {
            let mut secret = [0; 32];
            for piece in secret.chunks_mut(8) {
                piece.copy_from_slice(&RandomState::new().hash_one(0).to_le_bytes());
            }
            secret
        }))
    }

    fn forget(&self, through: Offset) -> Result<(), Fault> {
        let mut inner = self.lock();
        let through = through.min(Offset(inner.records.len() as u64));
        let begin = inner.oldest;
        // The log's first event may be a deletion that the last call left. This call removes that deletion.
        let first = Offset(begin.0.saturating_sub(1));
        let passed: Vec<usize> = inner.kept(first).take_while(|index| (*index as u64) < through.0).collect();
        for index in passed {
            let record = inner.decode(index)?;
            let deleted = (record.is_delete() && record.offset < through.0).then_some(record.offset);
            let replaced = Some(record.replaces).filter(|replaced| *replaced > 0);
            for gone in deleted.into_iter().chain(replaced) {
                if inner.forgotten.insert(gone) {
                    inner.let_go_bytes += inner.records[gone as usize - 1].len() as u64;
                }
            }
        }
        inner.oldest = begin.max(through);
        Ok(())
    }

    fn lacks_room(&self, _: u64) -> Option<Lack> {
        let inner = self.lock();
        let now = inner.short.map(|_| Lack::Now { why: "there is little room".into() });
        now.or(inner.soon_short.map(|left| Lack::Soon { left, why: "there is some room".into() }))
    }

    fn take_reserve(&self, _: u64) -> Result<(), Fault> {
        match self.lock().short {
            Some(false) => Err(Fault::Full { operation: "append" }),
            _ => Ok(()),
        }
    }

    fn recover(&self) -> Result<(), Fault> {
        let mut inner = self.lock();
        if inner.broken && inner.recoveries_refused > 0 {
            inner.recoveries_refused -= 1;
            return Err(match inner.full {
                true => Fault::Full { operation: "recover" },
                false => Fault::io("recover", std::io::Error::other("planned fault")),
            });
        }
        inner.broken = false;
        Ok(())
    }
}

#[cfg(test)]
impl crate::log::suite::Backend for MemoryLog {
    fn fresh() -> Self {
        MemoryLog::default()
    }

    fn log(&self) -> &dyn Log {
        self
    }

    fn reopened(self) -> Self {
        self.survivor()
    }

    fn append_as_other(&self, records: &[Record]) -> bool {
        MemoryLog::append_as_other(self, records);
        true
    }
}

#[cfg(test)]
mod suite {
    crate::storage_suite!(crate::memory::MemoryLog);
}
