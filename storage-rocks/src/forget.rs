//! Forgets old events: the events that another event, up to a given version, has replaced.
//!
//! A pass reads the events between the version of the last pass and the new version, in order and in pieces. So the
//! cost depends on these events and not on the whole history, and writers do not wait. A replaced event is removed. The
//! event of a deletion is removed too, because nothing refers to it: an object that is created again has no link to it.
//! Up to the version there remains one event for each object that existed at the version, and the event of the version
//! itself, which contains the version's time.

use crate::fault::{damage, fault};
use crate::key::{self, BY_RESOURCE, EVENTS, FAMILIES, HISTORY, META, META_FORGOTTEN, META_OLDEST};
use crate::store::{family, last, oldest, synced};
use holdfast_core::event::{Offset, Record};
use holdfast_engine::{Fault, Size};
use rocksdb::{CompactOptions, DB, Direction, IteratorMode, ReadOptions, WriteBatch};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How many events a pass reads at a time, while no other pass can run.
const PIECE: usize = 1000;
/// Tables are compacted when more than 1/`GARBAGE_PART` of their bytes are forgotten, so each byte is rewritten only a
/// few times.
const GARBAGE_PART: u64 = 4;

/// The numbers of events and of bytes that were forgotten since the log was opened.
#[derive(Default)]
pub struct Forgotten {
    events: AtomicU64,
    bytes: AtomicU64,
    /// The lock that a pass holds, so that only one pass runs at a time.
    at_work: Mutex<()>,
}

impl Forgotten {
    /// Waits until no other pass runs. No pass begins while the guard exists.
    pub fn alone(&self) -> MutexGuard<'_, ()> {
        self.at_work.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Records that the log begins at `through`, and returns the version up to which a pass must read events.
pub fn begin(db: &DB, folder: &Path, through: Offset) -> Result<Offset, Fault> {
    let through = through.min(last(db, folder)?);
    if through > oldest(db)? {
        // This value is set first, so that no reader starts at a version that is about to be removed.
        db.put_cf_opt(family(db, META)?, META_OLDEST, key::offset(through), &synced())
            .map_err(|error| fault("note its beginning", error))?;
    }
    // The stored version is returned even if `through` is lower, so that an interrupted pass is completed.
    oldest(db)
}

/// The offset that forgetting has reached, and the number of bytes that wait for compaction.
#[derive(Clone, Copy, Default)]
pub(crate) struct ForgetProgress {
    at: Offset,
    pub garbage: u64,
}

impl ForgetProgress {
    pub fn read(db: &DB) -> Result<ForgetProgress, Fault> {
        let found = db.get_cf(family(db, META)?, META_FORGOTTEN).map_err(|error| fault("read its beginning", error))?;
        let read = |bytes: Vec<u8>| {
            let (at, garbage) = bytes.split_at_checked(8)?;
            Some(ForgetProgress { at: key::parse_offset(at)?, garbage: key::parse_offset(garbage)?.0 })
        };
        Ok(found.and_then(read).unwrap_or_default())
    }

    pub fn stage(self, db: &DB, batch: &mut WriteBatch) -> Result<(), Fault> {
        batch.put_cf(
            family(db, META)?,
            META_FORGOTTEN,
            [key::offset(self.at), key::offset(Offset(self.garbage))].concat(),
        );
        Ok(())
    }
}

/// Reads and forgets the next events up to `through`. Returns whether there may be more events to read.
pub fn piece(db: &DB, folder: &Path, through: Offset, let_go: &Forgotten) -> Result<bool, Fault> {
    let mut progress = ForgetProgress::read(db)?;
    if progress.at >= through {
        return Ok(false);
    }
    let events = family(db, EVENTS)?;
    let mut batch = WriteBatch::default();
    let (mut gone, mut bytes, mut seen) = (0, 0, 0);
    let mut remove = |record: &Record, offset: Offset, size: usize, batch: &mut WriteBatch| -> Result<(), Fault> {
        let object = key::object(&record.resource, &record.key);
        batch.delete_cf(events, key::offset(offset));
        batch.delete_cf(family(db, HISTORY)?, key::versioned(&object, offset));
        batch.delete_cf(family(db, BY_RESOURCE)?, key::versioned(record.resource.as_bytes(), offset));
        gone += 1;
        bytes += (size + 2 * object.len()) as u64;
        Ok(())
    };
    // The last event of the previous pass is read again: if it is a deletion, it was kept then and is removed now.
    let start = key::offset(progress.at);
    let mut bounds = ReadOptions::default();
    bounds.set_iterate_upper_bound(key::offset(through.next()));
    // These events are old and unlikely to be read again, so they must not fill the cache.
    bounds.fill_cache(false);
    for item in db.iterator_cf_opt(events, bounds, IteratorMode::From(&start, Direction::Forward)).take(PIECE) {
        let (offset, value) = item.map_err(|error| damage("read events", folder, progress.at, error))?;
        let offset = key::parse_offset(&offset).unwrap_or(progress.at);
        let record = crate::fault::record(folder, offset, &value)?;
        if record.replaces > 0 {
            let replaced = Offset(record.replaces);
            let found = db
                .get_pinned_cf(events, key::offset(replaced))
                .map_err(|error| damage("read an event", folder, progress.at, error))?;
            if let Some(found) = found {
                remove(&record, replaced, found.len(), &mut batch)?;
            }
        }
        if record.is_delete() && offset < through {
            remove(&record, offset, value.len(), &mut batch)?;
        }
        progress.at = offset;
        seen += 1;
    }
    let more = seen == PIECE;
    if !more {
        progress.at = through;
    }
    progress.garbage += bytes;
    progress.stage(db, &mut batch)?;
    // The write is not synced: if a crash restores events, a later pass forgets them again.
    db.write(batch).map_err(|error| fault("let go of old events", error))?;
    let_go.events.fetch_add(gone, Ordering::Relaxed);
    let_go.bytes.fetch_add(bytes, Ordering::Relaxed);
    Ok(more)
}

/// The size of the log on the disk without the bytes that wait for compaction, and the number of forgotten events and
/// bytes.
pub fn size(db: &DB, let_go: Option<&Forgotten>) -> Result<Size, Fault> {
    let garbage = ForgetProgress::read(db)?.garbage;
    let counted =
        |count: fn(&Forgotten) -> &AtomicU64| let_go.map_or(0, |let_go| count(let_go).load(Ordering::Relaxed));
    Ok(Size {
        bytes: tables(db)?.saturating_sub(garbage),
        let_go_events: counted(|let_go| &let_go.events),
        let_go_bytes: counted(|let_go| &let_go.bytes),
    })
}

fn tables(db: &DB) -> Result<u64, Fault> {
    let mut bytes = 0;
    for name in FAMILIES {
        for property in ["rocksdb.live-sst-files-size", "rocksdb.cur-size-all-mem-tables"] {
            let found = db.property_int_value_cf(family(db, name)?, property);
            bytes += found.map_err(|error| fault("tell its size", error))?.unwrap_or(0);
        }
    }
    Ok(bytes)
}

/// Compacts the tables of events whose keys are in a range.
pub fn compact_events(db: &DB, from: &[u8], through: &[u8]) -> Result<(), Fault> {
    compact_range(db, EVENTS, Some(from), Some(through))
}

fn compact_range(db: &DB, name: &str, from: Option<&[u8]>, through: Option<&[u8]>) -> Result<(), Fault> {
    let mut options = CompactOptions::default();
    // This compaction may run at the same time as the compactions that RocksDB begins by itself.
    options.set_exclusive_manual_compaction(false);
    let failures = || db.property_int_value("rocksdb.background-errors").ok().flatten().unwrap_or(0);
    let before = failures();
    db.compact_range_cf_opt(family(db, name)?, from, through, &options);
    // RocksDB does not return the failure, so the counter of background errors shows it. The usual cause is a full
    // disk.
    if failures() > before { Err(Fault::Full { operation: "compact" }) } else { Ok(()) }
}

/// Frees the disk space, if that is worth the work or if `always` is true.
pub fn compact(db: &DB, always: bool) -> Result<(), Fault> {
    let progress = ForgetProgress::read(db)?;
    let worth_it = progress.garbage > tables(db)? / GARBAGE_PART;
    if !worth_it && !always {
        return Ok(());
    }
    compact_events(db, &[], &key::offset(oldest(db)?.next()))?;
    for name in [HISTORY, BY_RESOURCE] {
        compact_range(db, name, None, None)?;
    }
    let mut batch = WriteBatch::default();
    let now = ForgetProgress::read(db)?;
    ForgetProgress { garbage: now.garbage.saturating_sub(progress.garbage), ..now }.stage(db, &mut batch)?;
    db.write(batch).map_err(|error| fault("note its compaction", error))
}
