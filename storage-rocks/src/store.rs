//! The column families of RocksDB and their records: reads and writes that all parts of the log share.

use crate::fault::{FolderDamage, damage, fault, record, record_again};
use crate::key::{
    self, BY_RESOURCE, CURRENT, EVENTS, FAMILIES, HISTORY, META, META_FORMAT, META_OLDEST, META_REPAIRED, META_SOURCE,
    Mark,
};
use holdfast_core::event::{Offset, Record};
use holdfast_engine::Fault;
use holdfast_engine::log::NUMBERED_ELSEWHERE;
use rocksdb::{
    ColumnFamily, ColumnFamilyDescriptor, DB, DBRecoveryMode, Direction, IteratorMode, LogLevel, Options, ReadOptions,
    WriteBatch, WriteOptions,
};
use std::ops::ControlFlow;
use std::path::Path;

/// The folder format that this release writes.
pub(crate) const FORMAT: u8 = 1;
/// A scan of at least this many events reads ahead from the disk.
const LONG_SCAN: usize = 1024;
const READ_AHEAD_BYTES: usize = 1 << 20;
/// Up to this distance in events, reading on is cheaper than seeking.
const NEAR_EVENTS: usize = 16;

pub(crate) fn options() -> Options {
    let mut options = Options::default();
    options.create_if_missing(true);
    options.create_missing_column_families(true);
    // A torn record at the end of a write-ahead log was never acknowledged, so it is dropped. Damage anywhere else is
    // reported, not skipped.
    options.set_wal_recovery_mode(DBRecoveryMode::TolerateCorruptedTailRecords);
    options.set_paranoid_checks(true);
    options.set_db_write_buffer_size(24 << 20);
    options.set_max_total_wal_size(64 << 20);
    options.set_max_background_jobs(2);
    options.set_max_open_files(256);
    options.set_log_level(LogLevel::Warn);
    options.set_keep_log_file_num(2);
    options.set_stats_dump_period_sec(0);
    options
}

pub(crate) fn family_options() -> Options {
    let mut options = Options::default();
    options.set_write_buffer_size(8 << 20);
    options.set_max_write_buffer_number(2);
    options.set_arena_block_size(256 << 10);
    options
}

pub(crate) fn descriptors() -> Vec<ColumnFamilyDescriptor> {
    FAMILIES.iter().map(|name| ColumnFamilyDescriptor::new(*name, family_options())).collect()
}

/// Whether the folder's format is set; a format that this release cannot read is a fault.
pub(crate) fn check_format(db: &DB, folder: &Path) -> Result<bool, Fault> {
    match db.get_cf(family(db, META)?, META_FORMAT).map_err(|error| fault("read its format", error))? {
        None => Ok(false),
        Some(found) if found.first().is_some_and(|format| *format <= FORMAT) => Ok(true),
        Some(found) => Err(Fault::Unreadable {
            what: format!(
                "the data folder {} has format {}, which a newer release wrote; this release reads up to format \
                 {FORMAT}",
                folder.display(),
                found.first().copied().unwrap_or_default()
            ),
        }),
    }
}

/// Gaps up to this offset are expected, because `holdfast log repair` has made them, or because another store numbers
/// the events.
pub(crate) fn repaired(db: &DB) -> Result<Offset, Fault> {
    let source =
        db.get_cf(family(db, META)?, META_SOURCE).map_err(|error| fault("read where its events come from", error))?;
    if source.is_some() {
        return Ok(NUMBERED_ELSEWHERE);
    }
    let found = db.get_cf(family(db, META)?, META_REPAIRED).map_err(|error| fault("read its repairs", error))?;
    Ok(found.and_then(|offset| key::parse_offset(&offset)).unwrap_or(Offset::ZERO))
}

/// The oldest offset at which the log is complete: no event after it is missing.
pub(crate) fn oldest(db: &DB) -> Result<Offset, Fault> {
    let found = db.get_cf(family(db, META)?, META_OLDEST).map_err(|error| fault("read its beginning", error))?;
    Ok(found.and_then(|offset| key::parse_offset(&offset)).unwrap_or(Offset::ZERO))
}

pub(crate) fn synced() -> WriteOptions {
    let mut options = WriteOptions::default();
    options.set_sync(true);
    options
}

/// Whether a server could open the store. The store is not changed.
pub(crate) fn check(folder: &Path) -> bool {
    let mut options = options();
    options.create_if_missing(false);
    DB::open_cf_descriptors_read_only(&options, folder.join("log"), descriptors(), false).is_ok()
}

pub(crate) fn family<'a>(db: &'a DB, name: &str) -> Result<&'a ColumnFamily, Fault> {
    db.cf_handle(name).ok_or_else(|| Fault::Unreadable {
        what: format!("the log has no column family {name:?}: it is not a Holdfast log"),
    })
}

/// Adds a record and its index entries to the batch.
pub(crate) fn stage(db: &DB, batch: &mut WriteBatch, record: &Record) -> Result<(), Fault> {
    let offset = record.offset();
    let object = key::object(&record.resource, &record.key);
    batch.put_cf(family(db, EVENTS)?, key::offset(offset), record.encode_record());
    batch.put_cf(family(db, HISTORY)?, key::versioned(&object, offset), Mark::of(record).as_bytes());
    batch.put_cf(family(db, BY_RESOURCE)?, key::versioned(record.resource.as_bytes(), offset), record.key.as_bytes());
    if record.is_delete() {
        batch.delete_cf(family(db, CURRENT)?, object);
    } else {
        batch.put_cf(family(db, CURRENT)?, object, key::offset(offset));
    }
    Ok(())
}

/// The last offset in the log, even if its event was forgotten, because no offset may be used twice.
pub(crate) fn last(db: &DB, folder: &Path) -> Result<Offset, Fault> {
    let last = match db.iterator_cf(family(db, EVENTS)?, IteratorMode::End).next() {
        None => Offset::ZERO,
        Some(Ok((found, _))) => key::parse_offset(&found).ok_or_else(|| foreign(EVENTS, folder))?,
        Some(Err(error)) => return Err(damage("read its end", folder, Offset::ZERO, error)),
    };
    Ok(last.max(oldest(db)?))
}

pub(crate) fn read(db: &DB, folder: &Path, offset: Offset) -> Result<Option<Record>, Fault> {
    match db.get_cf(family(db, EVENTS)?, key::offset(offset)) {
        Ok(None) => Ok(None),
        Ok(Some(bytes)) => record(folder, offset, &bytes).map(Some),
        Err(error) => Err(damage("read an event", folder, Offset(offset.0.saturating_sub(1)), error)),
    }
}

/// The options of a long scan: blocks are read ahead, and do not displace frequently used blocks from the cache.
fn reading_on() -> ReadOptions {
    let mut reading = ReadOptions::default();
    reading.set_readahead_size(READ_AHEAD_BYTES);
    reading.fill_cache(false);
    reading
}

/// Visits the records after `after`. All records are decoded into one value, to reuse its memory.
pub(crate) fn each(
    db: &DB,
    folder: &Path,
    after: Offset,
    visit: &mut dyn FnMut(&Record) -> ControlFlow<()>,
) -> Result<(), Fault> {
    let mut found = Record { offset: after.0, ..Record::default() };
    let mut entries = db.raw_iterator_cf_opt(family(db, EVENTS)?, reading_on());
    entries.seek(key::offset(after.next()));
    while let Some((offset, bytes)) = entries.item() {
        let offset = key::parse_offset(offset).ok_or_else(|| foreign(EVENTS, folder))?;
        record_again(folder, offset, bytes, &mut found)?;
        if visit(&found).is_break() {
            return Ok(());
        }
        entries.next();
    }
    entries.status().map_err(|error| damage("read events", folder, found.offset(), error))
}

pub(crate) fn scan(
    db: &DB,
    folder: &Path,
    resource: Option<&str>,
    after: Offset,
    limit: usize,
) -> Result<Vec<Record>, Fault> {
    let mut found = Vec::new();
    let from = after.next();
    let Some(resource) = resource else {
        let reading = if limit >= LONG_SCAN { reading_on() } else { ReadOptions::default() };
        let mut entries = db.raw_iterator_cf_opt(family(db, EVENTS)?, reading);
        entries.seek(key::offset(from));
        while found.len() < limit
            && let Some((offset, bytes)) = entries.item()
        {
            let offset = key::parse_offset(offset).ok_or_else(|| foreign(EVENTS, folder))?;
            found.push(record(folder, offset, bytes)?);
            entries.next();
        }
        let last = found.last().map_or(after, Record::offset);
        entries.status().map_err(|error| damage("read events", folder, last, error))?;
        return Ok(found);
    };
    let start = key::versioned(resource.as_bytes(), from);
    let mut bounds = ReadOptions::default();
    let mut end = resource.as_bytes().to_vec();
    // In keys a zero byte follows the name of the resource, so this bound is after all of its keys.
    end.push(1);
    bounds.set_iterate_upper_bound(end);
    let mode = IteratorMode::From(&start, Direction::Forward);
    for item in db.iterator_cf_opt(family(db, BY_RESOURCE)?, bounds, mode).take(limit) {
        let last = found.last().map_or(after, Record::offset);
        let (entry, _) = item.map_err(|error| damage("read events", folder, last, error))?;
        let (_, offset) = key::parse_versioned(&entry).ok_or_else(|| foreign(BY_RESOURCE, folder))?;
        found.push(read(db, folder, offset)?.ok_or_else(|| missing(folder, offset))?);
    }
    Ok(found)
}

/// Visits the newest record of every existing object.
pub(crate) fn current(db: &DB, folder: &Path, visit: &mut dyn FnMut(Record) -> Result<(), Fault>) -> Result<(), Fault> {
    let mut offsets = Vec::new();
    for item in db.iterator_cf(family(db, CURRENT)?, IteratorMode::Start) {
        let (_, offset) = item.map_err(|error| damage("read what is current", folder, Offset::ZERO, error))?;
        offsets.push(key::parse_offset(&offset).ok_or_else(|| foreign(CURRENT, folder))?);
    }
    // The offsets are sorted, so that neighbouring events are read together.
    offsets.sort_unstable();
    let mut reading = ReadOptions::default();
    reading.fill_cache(false);
    let mut entries = db.raw_iterator_cf_opt(family(db, EVENTS)?, reading);
    for offset in offsets {
        let wanted = key::offset(offset);
        for _ in 0..NEAR_EVENTS {
            match entries.key() {
                Some(key) if *key < wanted[..] => entries.next(),
                _ => break,
            }
        }
        if entries.key().is_none_or(|key| *key < wanted[..]) {
            entries.seek(wanted);
        }
        match entries.item() {
            Some((key, bytes)) if *key == wanted[..] => visit(record(folder, offset, bytes)?)?,
            _ => {
                entries.status().map_err(|error| damage("read an object", folder, Offset(offset.0 - 1), error))?;
                return Err(missing(folder, offset));
            }
        }
    }
    Ok(())
}

/// The offsets of all events of one object, in order.
pub(crate) fn versions(db: &DB, folder: &Path, resource: &str, key: &str) -> Result<Vec<Offset>, Fault> {
    let object = key::object(resource, key);
    let start = key::versioned(&object, Offset::ZERO);
    let mut end = object;
    end.push(1);
    let mut bounds = ReadOptions::default();
    bounds.set_iterate_upper_bound(end);
    let mut found = Vec::new();
    for item in db.iterator_cf_opt(family(db, HISTORY)?, bounds, IteratorMode::From(&start, Direction::Forward)) {
        let last = found.last().copied().unwrap_or(Offset::ZERO);
        let (entry, _) = item.map_err(|error| damage("read a history", folder, last, error))?;
        found.push(key::parse_versioned(&entry).ok_or_else(|| foreign(HISTORY, folder))?.1);
    }
    Ok(found)
}

pub(crate) fn foreign(family: &str, folder: &Path) -> Fault {
    Fault::Unreadable { what: format!("{family:?} in {} holds a key that Holdfast did not write", folder.display()) }
}

pub(crate) fn missing(folder: &Path, offset: Offset) -> Fault {
    let what = format!("event {offset} is pointed at, and is not there");
    FolderDamage::Store { after: Offset(offset.0 - 1), what, folder: folder.to_owned() }.into()
}
