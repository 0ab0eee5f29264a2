//! The log of the simulated server: batches of records in a simulated file, with every fault that a disk may have.
//!
//! A batch consists of a header (magic, count, length) and of the frames of its records, which have checksums. A batch
//! is valid only if it is complete. [`Disk::recover`] cuts the file at the first incomplete batch, and syncs the rest.
//! Other servers append to the same log at any time. If another server appends just before a batch of this server, this
//! server's batch is overtaken. A disk can be sabotaged, to prove that the oracles detect violations of its contract.

use crate::coverage::{Mark, saw};
use crate::file::File;
use crate::random::Dice;
use holdfast_core::event::{Offset, Record};
use holdfast_engine::log::Wake;
use holdfast_engine::{Append, AsOf, Fault, Log, LogRead, Proposal};
use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::{Mutex, MutexGuard};

/// How a sabotaged disk violates its contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sabotage {
    None,
    /// A crash loses the last event, even if the event was acknowledged.
    ForgetLast,
    /// A scan of the log skips every seventh event.
    SkipOnScan,
    /// After a crash, objects that were deleted exist again.
    KeepDeleted,
    /// An object loses a byte when it is written.
    DropByte,
    /// An append returns before the sync has made the batch durable.
    SkipSync,
    /// A recovery keeps the readable records of a batch that was torn.
    KeepTornBatch,
    /// When replaced versions are forgotten, newer versions are removed as well.
    ForgetTooMuch,
}

/// The point within an append at which the server crashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AppendPoint {
    BeforeWrite,
    BetweenWriteAndSync,
    AfterSync,
    /// The recovery after a failed append, while the remains of the append are cut off.
    Recovery,
}

/// What happens to the next append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Planned {
    /// The batch does not fit on the disk as a whole, but its beginning may be written.
    Full,
    /// The write fails, and nothing of the batch is on the disk.
    WriteFails,
    /// The sync fails, and the written pages are dropped. Any part of the batch may be on the disk.
    SyncFails,
    /// The sync is reported as failed, but the whole batch is on the disk.
    SyncSaysItFails,
    /// The server crashes at this point of the append.
    Crash(AppendPoint),
}

/// The payload of the panic that stands for a crash of the server. Such a panic is not printed.
pub struct Died;

pub fn die() -> ! {
    std::panic::resume_unwind(Box::new(Died))
}

pub struct Disk {
    inner: Mutex<DiskState>,
    wake: Mutex<Option<Wake>>,
    sabotage: Sabotage,
}

#[derive(Default)]
struct DiskState {
    file: File,
    /// The position in the file at which the next batch is written.
    end: usize,
    /// The first part of the file, which was complete when it was last read and was not written after that: the
    /// position of its end, and the number of its records.
    proven: (usize, usize),
    /// The records by offset. A record that the log has forgotten is `None`.
    records: Vec<Option<Record>>,
    by_resource: BTreeMap<String, Vec<u64>>,
    by_key: BTreeMap<String, BTreeMap<String, Vec<u64>>>,
    oldest: Offset,
    planned: Option<Planned>,
    broken: bool,
    full: bool,
    /// How many recoveries still fail before one succeeds.
    recoveries_refused: usize,
    /// How many recoveries have failed since the last fault of an append.
    refused: usize,
    /// Whether the server crashes in the next recovery.
    dies_recovering: bool,
    /// The seed that decides how pages are torn.
    seed: u64,
    /// A batch that another server will append just before the next batch of this server; `None` if there is none.
    first: Option<Vec<Record>>,
    /// The offset of the last event that another server has appended.
    others: u64,
    /// The offsets of the first and the last event of the newest batch that was given to the disk.
    newest: (u64, u64),
    /// The part of the file into which the newest batch is written; `None` after its append has succeeded.
    unsure: Option<(usize, usize)>,
}

const MAGIC: u32 = 0x484f_4c44;
const HEADER_BYTES: usize = 12;

impl Disk {
    pub fn new(sabotage: Sabotage) -> Disk {
        Disk { inner: Mutex::default(), wake: Mutex::default(), sabotage }
    }

    /// Plans what happens to the next append, and how many recoveries fail after it.
    pub fn plan(&self, planned: Planned, recoveries_refused: usize, seed: u64) {
        let mut inner = self.lock();
        inner.seed = seed;
        if planned == Planned::Crash(AppendPoint::Recovery) {
            (inner.dies_recovering, inner.recoveries_refused) = (true, 0);
        } else {
            (inner.planned, inner.recoveries_refused) = (Some(planned), recoveries_refused);
        }
    }

    /// Appends a batch of another server, and wakes the followers of the log's tail.
    pub fn append_as_other(&self, records: &[Record]) {
        self.lock().append_as_other(records);
        let wake = self.wake.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone();
        if let Some(wake) = wake {
            wake();
        }
    }

    /// Plans that another server appends this batch just before the next batch of this server.
    pub fn be_overtaken(&self, records: Vec<Record>) {
        self.lock().first = Some(records);
    }

    /// Whether the log ends at this version, so that another server may append a decision that was made on this
    /// version.
    pub fn is_at(&self, offset: Offset) -> bool {
        let inner = self.lock();
        !inner.broken && inner.first.is_none() && inner.records.len() as u64 == offset.0
    }

    /// Whether appends succeed at present: nothing is broken, and no fault is planned.
    pub fn is_healthy(&self) -> bool {
        let inner = self.lock();
        !inner.broken && inner.planned.is_none()
    }

    /// Whether a fault has occurred, so that appends fail until the log has recovered.
    pub fn is_broken(&self) -> bool {
        self.lock().broken
    }

    /// Whether the disk is full, or the next append will find it full.
    pub fn is_full(&self) -> bool {
        let inner = self.lock();
        inner.broken && inner.full || inner.planned == Some(Planned::Full)
    }

    /// The offsets of the first and the last event of the newest batch that was given to the disk.
    pub fn newest_batch(&self) -> (u64, u64) {
        self.lock().newest
    }

    /// The power fails and comes back. The pages that were not synced are torn, and the log is read again.
    pub fn crash(&self, seed: u64) -> Result<(), Fault> {
        let mut inner = self.lock();
        inner.file.tear(&mut Dice::new(seed));
        (inner.planned, inner.broken, inner.recoveries_refused, inner.dies_recovering) = (None, false, 0, false);
        inner.first = None;
        inner.reread(self.sabotage == Sabotage::KeepTornBatch);
        if self.sabotage == Sabotage::ForgetLast && inner.records.len() > 1 {
            inner.records.pop();
            let last = inner.records.len() as u64;
            inner.truncate_indexes(last);
            inner.proven.1 = inner.records.len();
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, DiskState> {
        self.inner.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

fn failed(operation: &'static str) -> Fault {
    Fault::io(operation, std::io::Error::other("the simulated disk failed"))
}

fn frames(batch: &[Record]) -> Vec<u8> {
    let mut bytes = vec![0; HEADER_BYTES];
    for record in batch {
        let frame = record.encode_record();
        bytes.extend((frame.len() as u32).to_le_bytes());
        bytes.extend(frame);
    }
    let length = (bytes.len() - HEADER_BYTES) as u32;
    for (at, field) in [MAGIC, batch.len() as u32, length].into_iter().enumerate() {
        bytes[at * 4..at * 4 + 4].copy_from_slice(&field.to_le_bytes());
    }
    bytes
}

/// The offsets of the first and of the last event of a batch.
fn extent(batch: &[Record]) -> (u64, u64) {
    (batch.first().map_or(0, |record| record.offset), batch.last().map_or(0, |record| record.offset))
}

fn number(bytes: &[u8], at: usize) -> Option<usize> {
    let field = bytes.get(at..at + 4)?;
    Some(u32::from_le_bytes([field[0], field[1], field[2], field[3]]) as usize)
}

/// The batch at the position `at`, and the position of its end; `None` if the batch is not completely readable.
fn batch_at(bytes: &[u8], at: usize, torn_too: bool) -> Option<(Vec<Record>, usize)> {
    let (magic, count, length) = (number(bytes, at)?, number(bytes, at + 4)?, number(bytes, at + 8)?);
    let end = (at + HEADER_BYTES).checked_add(length)?;
    if magic != MAGIC as usize || end > bytes.len() {
        return None;
    }
    let mut records = Vec::with_capacity(count.min(512));
    let mut next = at + HEADER_BYTES;
    for _ in 0..count {
        let record = number(bytes, next)
            .and_then(|length| bytes.get(next + 4..next + 4 + length))
            .and_then(|frame| Record::decode_record(frame).ok());
        match record {
            Some(record) => records.push(record),
            None if torn_too && !records.is_empty() => return Some((records, next)),
            None => return None,
        }
        next += 4 + number(bytes, next)?;
    }
    (next == end).then_some((records, end))
}

impl DiskState {
    /// Reads the file from the end of the proven part on, cuts off an incomplete batch, and syncs the rest.
    fn reread(&mut self, torn_too: bool) {
        let (mut end, count) = self.proven;
        let before = self.records.len();
        let mut found: Vec<Record> = Vec::new();
        while let Some((records, next)) = batch_at(self.file.bytes(), end, torn_too) {
            found.extend(records);
            end = next;
        }
        if let Some((from, to)) = self.unsure.take() {
            let lost = self.file.bytes().get(from..to).is_none_or(|bytes| bytes.iter().all(|byte| *byte == 0));
            saw(match end > from {
                true => Mark::BatchFoundWhole,
                false if lost => Mark::BatchLostWhole,
                false => Mark::BatchTorn,
            });
        }
        self.records.truncate(count + found.len());
        for (at, record) in found.into_iter().enumerate() {
            // The first `before` records are already in the indexes, and the log may have forgotten some of them since.
            if count + at >= before {
                self.push(record);
            }
        }
        let last = self.records.len() as u64;
        self.truncate_indexes(last);
        self.file.cut(end);
        if std::mem::take(&mut self.dies_recovering) {
            die();
        }
        self.file.sync();
        self.end = end;
        self.proven = (end, self.records.len());
    }

    fn push(&mut self, record: Record) {
        assert_eq!(record.offset, self.records.len() as u64 + 1, "offsets are dense");
        match (self.by_resource.get_mut(&record.resource), self.by_key.get_mut(&record.resource)) {
            (Some(offsets), Some(keys)) => {
                offsets.push(record.offset);
                keys.entry(record.key.clone()).or_default().push(record.offset);
            }
            _ => {
                self.by_resource.insert(record.resource.clone(), vec![record.offset]);
                let keys = [(record.key.clone(), vec![record.offset])].into();
                self.by_key.insert(record.resource.clone(), keys);
            }
        }
        self.records.push(Some(record));
    }

    /// Appends a batch completely and durably, because the planned faults of this server do not affect another server.
    fn append_as_other(&mut self, records: &[Record]) {
        let bytes = frames(records);
        let at = self.end;
        self.file.write(at, &bytes);
        self.file.sync();
        self.end += bytes.len();
        records.iter().for_each(|record| self.push(record.clone()));
        self.others = self.records.len() as u64;
        self.newest = extent(records);
    }

    /// Removes the entries after the offset `last` from the indexes. Usually there are no such entries.
    fn truncate_indexes(&mut self, last: u64) {
        let keys = self.by_key.values_mut().flat_map(BTreeMap::values_mut);
        for offsets in self.by_resource.values_mut().chain(keys) {
            while offsets.last().is_some_and(|offset| *offset > last) {
                offsets.pop();
            }
        }
    }

    /// The offset of the newest of these events up to a version; `None` if that event deleted the object or was
    /// forgotten.
    fn newest(&self, offsets: &[u64], at: Offset) -> Option<Offset> {
        let found = offsets.partition_point(|offset| *offset <= at.0).checked_sub(1)?;
        self.at(offsets[found]).filter(|record| !record.is_delete()).map(Record::offset)
    }

    fn at(&self, offset: u64) -> Option<&Record> {
        self.records.get(offset.checked_sub(1)? as usize)?.as_ref()
    }
}

impl LogRead for Disk {
    fn last(&self) -> Result<Offset, Fault> {
        Ok(Offset(self.lock().records.len() as u64))
    }

    fn read(&self, offset: Offset) -> Result<Option<Record>, Fault> {
        Ok(self.lock().at(offset.0).cloned())
    }

    fn current(&self, visit: &mut dyn FnMut(Record) -> Result<(), Fault>) -> Result<(), Fault> {
        let mut newest: BTreeMap<(&str, &str), &Record> = BTreeMap::new();
        let inner = self.lock();
        for record in inner.records.iter().flatten() {
            let place = (record.resource.as_str(), record.key.as_str());
            if !record.is_delete() {
                newest.insert(place, record);
            } else if self.sabotage != Sabotage::KeepDeleted {
                newest.remove(&place);
            }
        }
        newest.into_values().cloned().try_for_each(visit)
    }

    fn scan(&self, resource: Option<&str>, after: Offset, limit: usize) -> Result<Vec<Record>, Fault> {
        let inner = self.lock();
        Ok(match resource {
            None => inner.records.iter().skip(after.0 as usize).flatten().take(limit).cloned().collect(),
            Some(resource) => {
                let offsets = inner.by_resource.get(resource).map(Vec::as_slice).unwrap_or_default();
                let from = offsets.partition_point(|offset| *offset <= after.0);
                let skips =
                    |record: &&Record| self.sabotage != Sabotage::SkipOnScan || !record.offset.is_multiple_of(7);
                let records = offsets[from..].iter().filter_map(|offset| inner.at(*offset)).filter(skips);
                records.take(limit).cloned().collect()
            }
        })
    }

    fn version_at(&self, resource: &str, key: &str, at: Offset) -> Result<Option<Offset>, Fault> {
        let inner = self.lock();
        let offsets = inner.by_key.get(resource).and_then(|keys| keys.get(key));
        Ok(offsets.and_then(|offsets| inner.newest(offsets, at)))
    }

    fn as_of(&self, asked: &AsOf, visit: &mut dyn FnMut(&str, Offset) -> ControlFlow<()>) -> Result<(), Fault> {
        let AsOf { resource, prefix, after, at } = *asked;
        let inner = self.lock();
        let start = match after {
            Some(after) if after >= prefix => Bound::Excluded(after),
            _ => Bound::Included(prefix),
        };
        let Some(keys) = inner.by_key.get(resource) else { return Ok(()) };
        let found = keys.range::<str, _>((start, Bound::Unbounded)).take_while(|(key, _)| key.starts_with(prefix));
        for (key, offsets) in found {
            if let Some(offset) = inner.newest(offsets, at)
                && visit(key, offset).is_break()
            {
                break;
            }
        }
        Ok(())
    }

    fn oldest(&self) -> Result<Offset, Fault> {
        Ok(self.lock().oldest)
    }
}

impl Log for Disk {
    fn commit(&self, proposal: &Proposal) -> Result<Append, Fault> {
        let mut changed = Vec::new();
        let batch = match self.sabotage {
            Sabotage::DropByte => {
                changed.extend_from_slice(proposal.records);
                for record in &mut changed {
                    let text = String::from_utf8_lossy(&record.object).replacen("\"v1\"", "\"v\"", 2);
                    record.object = text.into_bytes().into();
                }
                &changed
            }
            _ => proposal.records,
        };
        let mut inner = self.lock();
        if inner.broken {
            return Err(failed("append"));
        }
        if let Some(first) = inner.first.take() {
            inner.append_as_other(&first);
        }
        if batch.first().is_some_and(|record| record.offset <= inner.others) {
            saw(Mark::OthersWereFirst);
            return Ok(Append::Behind);
        }
        let planned = inner.planned.take();
        inner.newest = extent(batch);
        let fails = |inner: &mut DiskState, mark: Mark| {
            saw(mark);
            let full = mark == Mark::Full;
            (inner.broken, inner.full, inner.refused) = (true, full, 0);
            Err(if full { Fault::Full { operation: "append" } } else { failed("append") })
        };
        match planned {
            Some(Planned::WriteFails) => return fails(&mut inner, Mark::WriteFailed),
            Some(Planned::Crash(AppendPoint::BeforeWrite)) => die(),
            _ => {}
        }
        let bytes = frames(batch);
        let at = inner.end;
        inner.unsure = Some((at, at + bytes.len()));
        if planned == Some(Planned::Full) {
            let fits = Dice::new(inner.seed).below(bytes.len());
            inner.file.write(at, &bytes[..fits]);
            return fails(&mut inner, Mark::Full);
        }
        inner.file.write(at, &bytes);
        match planned {
            Some(Planned::Crash(AppendPoint::BetweenWriteAndSync)) => die(),
            Some(Planned::SyncFails) => {
                let mut dice = Dice::new(inner.seed);
                inner.file.tear(&mut dice);
                return fails(&mut inner, Mark::SyncFailed);
            }
            Some(Planned::SyncSaysItFails) => {
                inner.file.keep();
                return fails(&mut inner, Mark::SyncFalselyFailed);
            }
            _ => {}
        }
        if self.sabotage != Sabotage::SkipSync {
            inner.file.sync();
        }
        if planned == Some(Planned::Crash(AppendPoint::AfterSync)) {
            die();
        }
        inner.unsure = None;
        inner.end += bytes.len();
        for record in batch {
            inner.push(record.clone());
        }
        Ok(Append::Appended)
    }

    fn wake_by(&self, wake: Wake) {
        *self.wake.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(wake);
    }

    fn secret(&self) -> Result<[u8; 32], Fault> {
        Ok([7; 32])
    }

    fn forget(&self, through: Offset) -> Result<(), Fault> {
        let mut inner = self.lock();
        let through = through.0.min(inner.records.len() as u64);
        for at in inner.oldest.0.saturating_sub(1)..through {
            let Some(record) = &inner.records[at as usize] else { continue };
            let (replaced, gone) = (record.replaces, record.is_delete() && at + 1 < through);
            if let Some(index) = replaced.checked_sub(1) {
                inner.records[index as usize] = None;
            }
            if gone || self.sabotage == Sabotage::ForgetTooMuch && at % 5 == 0 {
                inner.records[at as usize] = None;
            }
        }
        inner.oldest = inner.oldest.max(Offset(through));
        Ok(())
    }

    fn recover(&self) -> Result<(), Fault> {
        let mut inner = self.lock();
        if !inner.broken {
            return Ok(());
        }
        if inner.recoveries_refused > 0 {
            inner.recoveries_refused -= 1;
            inner.refused += 1;
            if inner.full && inner.refused == 6 {
                saw(Mark::FullForLong);
            }
            return Err(if inner.full { Fault::Full { operation: "recover" } } else { failed("recover") });
        }
        inner.reread(self.sabotage == Sabotage::KeepTornBatch);
        inner.broken = false;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(first: u64, count: u64) -> Vec<Record> {
        let record = |offset| Record {
            offset,
            resource: "configmaps".into(),
            key: format!("n/{offset}"),
            object: vec![b'x'; 300].into(),
            ..Record::default()
        };
        (first..first + count).map(record).collect()
    }

    #[test]
    fn a_crash_keeps_synced_batches_and_no_half_of_another() {
        let mut lasts = std::collections::BTreeSet::new();
        for seed in 0..300 {
            let disk = Disk::new(Sabotage::None);
            disk.append(&batch(1, 3)).unwrap();
            disk.plan(Planned::SyncFails, 0, seed);
            disk.append(&batch(4, 4)).unwrap_err();
            disk.recover().unwrap();
            let last = disk.last().unwrap().0;
            lasts.insert(last);
            disk.append(&batch(last + 1, 2)).unwrap();
            disk.crash(seed).unwrap();
            assert_eq!(disk.last().unwrap().0, last + 2);
            assert_eq!(disk.read(Offset(2)).unwrap(), Some(batch(2, 1).remove(0)));
        }
        assert_eq!(lasts.into_iter().collect::<Vec<_>>(), [3, 7]);
    }

    #[test]
    fn what_was_replaced_is_let_go() {
        let disk = Disk::new(Sabotage::None);
        let mut records = batch(1, 3);
        records[1].replaces = 1;
        disk.append(&records).unwrap();
        disk.forget(Offset(2)).unwrap();
        assert_eq!(disk.read(Offset(1)).unwrap(), None);
        assert!(disk.read(Offset(2)).unwrap().is_some());
        disk.crash(1).unwrap();
        assert_eq!((disk.read(Offset(1)).unwrap(), disk.last().unwrap()), (None, Offset(3)));
    }
}
