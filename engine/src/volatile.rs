//! The log of a cluster in memory, which ends with the process.
//!
//! This log has the same indexes as a log on a disk, so that reads of the past cost the same kind of work. This log
//! shares the bytes of objects with the state.

use crate::log::{Append, AsOf, Changed, Changes, Fault, First, Log, LogRead, Proposal, Size};
use holdfast_core::event::{Offset, Record};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::{Bound, ControlFlow};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The number of events that are read under one lock while old events are removed, so that no writer waits for long.
const PIECE: usize = 1000;
/// The maximum number of a resource's events that are scanned for the wanted objects. If there are more, the events of
/// the wanted objects are looked up in the index.
const LOOKS_MAX: usize = 256;

#[derive(Default)]
pub struct VolatileLog {
    inner: RwLock<Inner>,
    /// This lock is held while old events are removed, so that only one caller removes events at a time.
    forgetting: Mutex<()>,
    secret: OnceLock<[u8; 32]>,
}

#[derive(Default)]
struct Inner {
    records: BTreeMap<u64, Arc<Record>>,
    resources: HashMap<String, Resource>,
    last: u64,
    oldest: Offset,
    size: Size,
}

/// The events on the objects of one resource.
#[derive(Default)]
struct Resource {
    offsets: BTreeSet<u64>,
    /// The offsets of each object's events, by the object's key.
    objects: BTreeMap<String, BTreeSet<u64>>,
}

impl Resource {
    /// The keys that `asked` selects, each with the offsets of its object's events.
    fn asked<'a>(&'a self, asked: &'a AsOf<'a>) -> impl Iterator<Item = (&'a String, &'a BTreeSet<u64>)> {
        let start = match asked.after {
            Some(after) if after >= asked.prefix => Bound::Excluded(after),
            _ => Bound::Included(asked.prefix),
        };
        let objects = self.objects.range::<str, _>((start, Bound::Unbounded));
        objects.take_while(|(key, _)| key.starts_with(asked.prefix))
    }
}

impl VolatileLog {
    /// A log whose first event comes after `last`. The earlier events are in another log.
    pub fn after(last: Offset) -> VolatileLog {
        let inner = Inner { last: last.0, ..Inner::default() };
        VolatileLog { inner: RwLock::new(inner), ..VolatileLog::default() }
    }

    /// The newest event of an object up to `at`, and whether it is a deletion.
    pub(crate) fn newest(&self, resource: &str, key: &str, at: Offset) -> Option<(Offset, bool)> {
        let inner = self.read_inner();
        inner.newest(inner.resources.get(resource)?.objects.get(key)?, at)
    }

    /// Like [`Self::newest`], for each object that `asked` selects and that has an event in this log.
    pub(crate) fn written(&self, asked: &AsOf) -> Vec<(String, Offset, bool)> {
        let inner = self.read_inner();
        let Some(resource) = inner.resources.get(asked.resource) else { return Vec::new() };
        let newest = |(key, versions): (&String, _)| {
            inner.newest(versions, asked.at).map(|(offset, is_delete)| (key.clone(), offset, is_delete))
        };
        resource.asked(asked).filter_map(newest).collect()
    }

    /// [Removes](Log::forget) old events, and returns the number of bytes that were freed. The bytes of concurrent
    /// appends are not subtracted.
    pub(crate) fn let_go(&self, through: Offset) -> u64 {
        let _alone = self.forgetting.lock().unwrap_or_else(PoisonError::into_inner);
        let (begin, through, gone_before) = {
            let mut inner = self.write_inner();
            let through = through.min(Offset(inner.last));
            let begin = inner.oldest;
            // The beginning is set first, so that no reader starts to read versions that are about to be removed.
            inner.oldest = begin.max(through);
            (begin, through, inner.size.let_go_bytes)
        };
        // The first event of the log is read again, because it may be a deletion that the last call left, which this
        // call removes.
        let mut from = Some(begin.0).filter(|begin| *begin <= through.0);
        while let Some(next) = from {
            from = self.write_inner().forget_piece(next, through.0);
        }
        self.read_inner().size.let_go_bytes - gone_before
    }

    fn read_inner(&self) -> RwLockReadGuard<'_, Inner> {
        self.inner.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_inner(&self) -> RwLockWriteGuard<'_, Inner> {
        self.inner.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn push(&mut self, record: &Record) {
        debug_assert_eq!(record.offset, self.last + 1, "offsets are dense");
        self.last = record.offset;
        self.size.bytes += record.encoded_bytes() as u64;
        let resource = self.resources.entry(record.resource.clone()).or_default();
        resource.offsets.insert(record.offset);
        resource.objects.entry(record.key.clone()).or_default().insert(record.offset);
        self.records.insert(record.offset, Arc::new(record.clone()));
    }

    fn remove(&mut self, offset: u64) {
        let Some(record) = self.records.remove(&offset) else { return };
        let bytes = record.encoded_bytes() as u64;
        self.size.bytes -= bytes;
        self.size.let_go_bytes += bytes;
        self.size.let_go_events += 1;
        let Some(resource) = self.resources.get_mut(&record.resource) else { return };
        resource.offsets.remove(&offset);
        if let Some(versions) = resource.objects.get_mut(&record.key) {
            versions.remove(&offset);
            if versions.is_empty() {
                resource.objects.remove(&record.key);
            }
        }
    }

    /// The newest event of an object up to a version, and whether it is a deletion.
    fn newest(&self, versions: &BTreeSet<u64>, at: Offset) -> Option<(Offset, bool)> {
        let newest = self.records.get(versions.range(..=at.0).next_back()?)?;
        Some((newest.offset(), newest.is_delete()))
    }

    /// The newest event of an object up to a version; `None` if it is a deletion.
    fn present(&self, versions: &BTreeSet<u64>, at: Offset) -> Option<Offset> {
        self.newest(versions, at).filter(|(_, is_delete)| !is_delete).map(|(offset, _)| offset)
    }

    /// Removes the events that the next events, from `from` to `through`, replaced. Returns the beginning of the next
    /// piece.
    fn forget_piece(&mut self, from: u64, through: u64) -> Option<u64> {
        let piece: Vec<Arc<Record>> = self.records.range(from..=through).take(PIECE).map(|(_, r)| r.clone()).collect();
        for record in &piece {
            self.remove(record.replaces);
            if record.is_delete() && record.offset < through {
                self.remove(record.offset);
            }
        }
        piece.last().filter(|last| last.offset < through).map(|last| last.offset + 1)
    }
}

fn behind(after: Offset) -> (Bound<u64>, Bound<u64>) {
    (Bound::Excluded(after.0), Bound::Unbounded)
}

impl LogRead for VolatileLog {
    fn last(&self) -> Result<Offset, Fault> {
        Ok(Offset(self.read_inner().last))
    }

    fn read(&self, offset: Offset) -> Result<Option<Record>, Fault> {
        Ok(self.read_inner().records.get(&offset.0).map(|record| record.as_ref().clone()))
    }

    fn current(&self, visit: &mut dyn FnMut(Record) -> Result<(), Fault>) -> Result<(), Fault> {
        let newest: Vec<Arc<Record>> = {
            let inner = self.read_inner();
            let objects = inner.resources.values().flat_map(|resource| resource.objects.values());
            let newest = objects.filter_map(|versions| inner.records.get(versions.last()?));
            newest.filter(|record| !record.is_delete()).cloned().collect()
        };
        newest.into_iter().try_for_each(|record| visit(Arc::unwrap_or_clone(record)))
    }

    fn scan(&self, resource: Option<&str>, after: Offset, limit: usize) -> Result<Vec<Record>, Fault> {
        let inner = self.read_inner();
        let found: Vec<Record> = match resource {
            None => inner.records.range(behind(after)).take(limit).map(|(_, record)| record.as_ref().clone()).collect(),
            Some(resource) => {
                let offsets = inner.resources.get(resource).map(|resource| resource.offsets.range(behind(after)));
                let records = offsets.into_iter().flatten().filter_map(|offset| inner.records.get(offset));
                records.take(limit).map(|record| record.as_ref().clone()).collect()
            }
        };
        Ok(found)
    }

    fn changes(&self, asked: &Changes, limit: usize) -> Result<Changed, Fault> {
        let inner = self.read_inner();
        let Some(resource) = inner.resources.get(asked.resource) else {
            return Ok(Changed { offsets: Vec::new(), through: asked.until });
        };
        let looks = if asked.prefix.is_empty() { limit.saturating_add(1) } else { LOOKS_MAX };
        let seen = resource.offsets.range(behind(asked.after));
        let seen = seen.filter_map(|offset| Some((Offset(*offset), inner.records.get(offset)?.key.as_str())));
        let found = asked.pick(seen.take(looks), limit, false);
        let is_end = found.through >= resource.offsets.last().map_or(Offset::ZERO, |last| Offset(*last));
        if is_end || found.through >= asked.until || found.offsets.len() >= limit || asked.prefix.is_empty() {
            return Ok(if is_end { Changed { through: asked.until, ..found } } else { found });
        }
        let mut first = First::new(limit);
        let objects = resource.objects.range::<str, _>((Bound::Included(asked.prefix), Bound::Unbounded));
        for (_, versions) in objects.take_while(|(key, _)| key.starts_with(asked.prefix)) {
            let between = (Bound::Excluded(asked.after.0), Bound::Included(asked.until.0));
            versions.range(between).for_each(|version| first.note(Offset(*version)));
        }
        Ok(first.changed(asked.until))
    }

    fn versions(&self, resource: &str, key: &str) -> Result<Vec<Offset>, Fault> {
        let inner = self.read_inner();
        let versions = inner.resources.get(resource).and_then(|resource| resource.objects.get(key));
        Ok(versions.into_iter().flatten().map(|version| Offset(*version)).collect())
    }

    fn version_at(&self, resource: &str, key: &str, at: Offset) -> Result<Option<Offset>, Fault> {
        let inner = self.read_inner();
        let versions = inner.resources.get(resource).and_then(|resource| resource.objects.get(key));
        Ok(versions.and_then(|versions| inner.present(versions, at)))
    }

    fn as_of(&self, asked: &AsOf, visit: &mut dyn FnMut(&str, Offset) -> ControlFlow<()>) -> Result<(), Fault> {
        let inner = self.read_inner();
        let Some(resource) = inner.resources.get(asked.resource) else { return Ok(()) };
        for (key, versions) in resource.asked(asked) {
            if let Some(offset) = inner.present(versions, asked.at)
                && visit(key, offset).is_break()
            {
                break;
            }
        }
        Ok(())
    }

    fn oldest(&self) -> Result<Offset, Fault> {
        Ok(self.read_inner().oldest)
    }

    fn size(&self) -> Result<Size, Fault> {
        Ok(self.read_inner().size)
    }
}

impl Log for VolatileLog {
    fn commit(&self, proposal: &Proposal) -> Result<Append, Fault> {
        let mut inner = self.write_inner();
        proposal.records.iter().for_each(|record| inner.push(record));
        Ok(Append::Appended)
    }

    fn secret(&self) -> Result<[u8; 32], Fault> {
        if let Some(secret) = self.secret.get() {
            return Ok(*secret);
        }
        let mut secret = [0; 32];
        getrandom::fill(&mut secret).map_err(|error| Fault::io("make its secret", std::io::Error::other(error)))?;
        Ok(*self.secret.get_or_init(|| secret))
    }

    fn forget(&self, through: Offset) -> Result<(), Fault> {
        self.let_go(through);
        Ok(())
    }

    fn recover(&self) -> Result<(), Fault> {
        Ok(())
    }
}

/// The log ends with its process, so the suite cannot close it, and continues with the same log instead.
#[cfg(test)]
impl crate::log::suite::Backend for VolatileLog {
    fn fresh() -> Self {
        VolatileLog::default()
    }

    fn log(&self) -> &dyn Log {
        self
    }

    fn reopened(self) -> Self {
        self
    }
}

#[cfg(test)]
mod suite {
    crate::storage_suite!(crate::volatile::VolatileLog);
}
