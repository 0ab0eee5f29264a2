//! The writing side: one synced write for each batch, and the reads of a start.

use crate::fault::{FolderDamage, FolderFault, damage, fault, record, record_again};
use crate::folder::{check_entries, close, make_private};
use crate::forget::LetGo;
use crate::identity::{self, new_id, stage_secret};
use crate::key::{
    self, BY_RESOURCE, CURRENT, EVENTS, FAMILIES, HISTORY, META, META_FORMAT, META_OLDEST, META_REPAIRED, META_SECRET,
    META_SOURCE, Mark,
};
use crate::lock::FolderLock;
use crate::past;
use crate::room::{Reserve, Room, Standing};
use holdfast_core::event::{Offset, Record};
use holdfast_engine::log::{Identity, Lack, NUMBERED_ELSEWHERE};
use holdfast_engine::{Append, AsOf, Changed, Changes, Fault, Log, LogRead, Proposal, Size};
use rocksdb::{
    ColumnFamily, ColumnFamilyDescriptor, DB, DBRecoveryMode, Direction, IteratorMode, LogLevel, Options, ReadOptions,
    WriteBatch, WriteOptions,
};
use std::io::Write;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{RwLock, RwLockReadGuard};

/// The folder format that this release writes.
const FORMAT: u8 = 1;
/// The bytes that must fit on the disk before writes are accepted again after it was full.
const RECOVERY_PROBE_BYTES: usize = 4 << 20;

/// A scan of at least this many events reads ahead.
const LONG_SCAN: usize = 1024;
const READ_AHEAD_BYTES: usize = 1 << 20;
/// Within this many events stepping is cheaper than seeking.
const NEAR_EVENTS: usize = 16;

pub struct RocksLog {
    folder: PathBuf,
    /// The folder that faults name: this one, or the one that it is being copied from.
    told_as: PathBuf,
    /// `None` only between closing and opening again.
    db: RwLock<Option<DB>>,
    durability: Durability,
    let_go: LetGo,
    room: Room,
    /// Whether RocksDB compacts tables of events automatically.
    compacts: AtomicBool,
    _lock: FolderLock,
}

/// What an append waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// The disk: acknowledged events survive a power cut.
    Synced,
    /// The operating system: enough for a folder that is removed with its process.
    Unsynced,
}

impl RocksLog {
    /// Opens the log in `folder`, and makes both if they do not exist.
    pub fn open(folder: &Path) -> Result<RocksLog, FolderFault> {
        RocksLog::open_with(folder, Durability::Synced, Reserve::AsItIs)
    }

    /// Like [`RocksLog::open`], with a choice of durability and of the reserve.
    pub fn open_with(folder: &Path, durability: Durability, reserve: Reserve) -> Result<RocksLog, FolderFault> {
        make_private(folder)?;
        crate::whole::check_whole(folder)?;
        let opened = RocksLog::open_reserving(folder, folder, FolderLock::take(folder)?, reserve)?;
        let log = RocksLog { durability, ..opened };
        log.complete()?;
        log.room.settle(0);
        Ok(log)
    }

    /// Creates the name and the secret of a log without them: a new log, or one of an older release or an import.
    fn complete(&self) -> Result<(), Fault> {
        if self.identity()?.id.is_none() {
            self.name(&Identity { id: Some(new_id()?), origin: None })?;
        }
        if self.kept_secret()?.is_none() {
            let db = self.db()?;
            let mut batch = WriteBatch::default();
            stage_secret(&db, &mut batch)?;
            db.write_opt(batch, &self.writing()).map_err(|error| fault("write its secret", error))?;
        }
        Ok(())
    }

    /// Opens a log whose name is set by the caller.
    pub(crate) fn open_unnamed(folder: &Path, told_as: &Path, lock: FolderLock) -> Result<RocksLog, Fault> {
        RocksLog::open_reserving(folder, told_as, lock, Reserve::AsItIs)
    }

    fn open_reserving(folder: &Path, told_as: &Path, lock: FolderLock, reserve: Reserve) -> Result<RocksLog, Fault> {
        let log = folder.join("log");
        make_private(&log)?;
        check_entries(&log)?;
        close(&log);
        let room = Room::open(folder, reserve).map_err(|error| Fault::io("look at the room on the disk", error))?;
        // Opening writes the events in write-ahead logs to tables, which needs room.
        room.take_to_open(write_ahead_bytes(&log));
        let compacts = !room.standing().is_short;
        let db = open_with_reserve(folder, told_as, &room, compacts)?;
        Ok(RocksLog {
            folder: folder.to_owned(),
            told_as: told_as.to_owned(),
            db: RwLock::new(Some(db)),
            durability: Durability::Synced,
            let_go: LetGo::default(),
            room,
            compacts: AtomicBool::new(compacts),
            _lock: lock,
        })
    }

    pub(crate) fn name(&self, identity: &Identity) -> Result<(), Fault> {
        let db = self.db()?;
        let mut batch = WriteBatch::default();
        identity::stage(identity, &db, &mut batch)?;
        db.write_opt(batch, &self.writing()).map_err(|error| fault("write its id", error))
    }

    pub(crate) fn told_as(&self) -> &Path {
        &self.told_as
    }

    pub(crate) fn let_go(&self) -> &LetGo {
        &self.let_go
    }

    /// Runs short work on the store, which cannot be closed meanwhile.
    pub(crate) fn with<T>(&self, work: impl FnOnce(&DB, &Path) -> Result<T, Fault>) -> Result<T, Fault> {
        work(&*self.db()?, &self.told_as)
    }

    /// The state of the disk under the log.
    pub fn standing(&self) -> Standing {
        self.room.standing()
    }

    /// Allows or stops automatic compaction of tables of events, which may take more room than there is.
    pub(crate) fn let_compact(&self, compacts: bool) -> Result<(), Fault> {
        if self.compacts.swap(compacts, Ordering::Relaxed) == compacts {
            return Ok(());
        }
        let db = self.db()?;
        let off = if compacts { "false" } else { "true" };
        let set = db.set_options_cf(family(&db, EVENTS)?, &[("disable_auto_compactions", off)]);
        set.map_err(|error| {
            self.compacts.store(!compacts, Ordering::Relaxed);
            fault("change what is compacted", error)
        })
    }

    /// Whether automatic compaction is on. It does not change during work [with](Self::with) the store.
    pub(crate) fn compacts(&self) -> bool {
        self.compacts.load(Ordering::Relaxed)
    }

    /// Whether there is room for the compactions that RocksDB would begin if they were allowed.
    fn has_room_to_compact(&self) -> bool {
        let pending = self.with(|db, _| {
            let found = db.property_int_value_cf(family(db, EVENTS)?, "rocksdb.estimate-pending-compaction-bytes");
            found.map_err(|error| fault("tell what it would compact", error))
        });
        pending.is_ok_and(|pending| self.room.is_there(pending.unwrap_or(0)))
    }

    /// Whether a flush or a compaction failed since the store was opened. RocksDB may then start no other one, and
    /// retries the failed one, until the store is opened again.
    pub(crate) fn failed_in_background(&self) -> bool {
        let failures = self.with(|db, _| {
            db.property_int_value("rocksdb.background-errors").map_err(|error| fault("tell its failures", error))
        });
        failures.is_ok_and(|failures| failures.unwrap_or(0) > 0)
    }

    pub(crate) fn write_ahead_bytes(&self) -> u64 {
        write_ahead_bytes(&self.folder.join("log"))
    }

    /// Runs work that makes room. If it finds the disk full, the store refuses writes until it is opened again. The
    /// writer would not notice this, because it writes only when there is room.
    fn recovering(&self, work: impl FnOnce() -> Result<(), Fault>) -> Result<(), Fault> {
        let done = work();
        if done.as_ref().is_err_and(Fault::is_full) {
            self.recover()?;
        }
        done
    }

    /// The bytes in memory that have yet to be written to tables.
    pub(crate) fn in_memory_bytes(&self) -> u64 {
        let of = |db: &DB, name| {
            let found = db.property_int_value_cf(family(db, name)?, "rocksdb.cur-size-all-mem-tables");
            found.map_err(|error| fault("tell its size", error))
        };
        let all = self
            .with(|db, _| FAMILIES.iter().try_fold(0, |all, name| Ok::<u64, Fault>(all + of(db, name)?.unwrap_or(0))));
        all.unwrap_or(0)
    }

    pub(crate) fn room(&self) -> &Room {
        &self.room
    }

    fn writing(&self) -> WriteOptions {
        let mut options = WriteOptions::default();
        options.set_sync(self.durability == Durability::Synced);
        options
    }

    /// Notes from which offset on the log has all events, and up to which offset gaps were reported.
    pub fn note(&self, oldest: Offset, repaired: Offset) -> Result<(), Fault> {
        let db = self.db()?;
        let meta = family(&db, META)?;
        let mut batch = WriteBatch::default();
        for (name, offset) in [(META_OLDEST, oldest), (META_REPAIRED, repaired)] {
            if offset > Offset::ZERO {
                batch.put_cf(meta, name, key::offset(offset));
            }
        }
        db.write_opt(batch, &synced()).map_err(|error| fault("note its beginning", error))
    }

    /// The last value of [`keep_source_as`](Self::keep_source_as): the source of events that come from another log.
    pub fn source_kept(&self) -> Result<Option<Vec<u8>>, Fault> {
        let db = self.db()?;
        db.get_cf(family(&db, META)?, META_SOURCE).map_err(|error| fault("read where its events come from", error))
    }

    pub fn keep_source_as(&self, source: &[u8]) -> Result<(), Fault> {
        let db = self.db()?;
        db.put_cf_opt(family(&db, META)?, META_SOURCE, source, &self.writing())
            .map_err(|error| fault("note where its events come from", error))
    }

    fn kept_secret(&self) -> Result<Option<[u8; 32]>, Fault> {
        let db = self.db()?;
        let found = db.get_cf(family(&db, META)?, META_SECRET).map_err(|error| fault("read its secret", error))?;
        Ok(found.and_then(|bytes| bytes.try_into().ok()))
    }

    fn db(&self) -> Result<Guard<'_>, Fault> {
        let guard = self.db.read().unwrap_or_else(|poisoned| poisoned.into_inner());
        if guard.is_none() {
            return Err(Fault::io("use the log", std::io::Error::other("it is closed after a fault")));
        }
        Ok(Guard(guard))
    }
}

struct Guard<'a>(RwLockReadGuard<'a, Option<DB>>);

impl std::ops::Deref for Guard<'_> {
    type Target = DB;

    fn deref(&self) -> &DB {
        match self.0.as_ref() {
            Some(db) => db,
            None => unreachable!("a guard is made only while the log is open"),
        }
    }
}

pub(crate) fn options() -> Options {
    let mut options = Options::default();
    options.create_if_missing(true);
    options.create_missing_column_families(true);
    // A torn last record was never acknowledged; damage anywhere else is reported, not skipped.
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

/// Opens the store, and uses the whole reserve if that is needed.
fn open_with_reserve(folder: &Path, told_as: &Path, room: &Room, compacts: bool) -> Result<DB, Fault> {
    match open(folder, told_as, compacts) {
        Err(fault) if fault.is_full() && room.standing().reserve_bytes > 0 => {
            room.take_to_open(u64::MAX / 2);
            open(folder, told_as, compacts)
        }
        opened => opened,
    }
}

/// `compacts`: whether RocksDB compacts tables of events automatically, which begins while it is opened.
fn open(folder: &Path, told_as: &Path, compacts: bool) -> Result<DB, Fault> {
    let families = FAMILIES.iter().map(|name| {
        let mut options = family_options();
        options.set_disable_auto_compactions(*name == EVENTS && !compacts);
        ColumnFamilyDescriptor::new(*name, options)
    });
    let db = DB::open_cf_descriptors(&options(), folder.join("log"), families).map_err(|error| {
        // A store of a newer release cannot be opened either, which needs another message.
        let why = newer(folder, told_as);
        why.unwrap_or_else(|| damage("open", told_as, last_readable(folder), error))
    })?;
    if !check_format(&db, told_as)? {
        db.put_cf_opt(family(&db, META)?, META_FORMAT, [FORMAT], &synced())
            .map_err(|error| fault("write its format", error))?;
    }
    Ok(db)
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

/// Up to which offset gaps are explained: by `holdfast log repair`, or because another store numbers the events.
pub(crate) fn repaired(db: &DB) -> Result<Offset, Fault> {
    let source =
        db.get_cf(family(db, META)?, META_SOURCE).map_err(|error| fault("read where its events come from", error))?;
    if source.is_some() {
        return Ok(NUMBERED_ELSEWHERE);
    }
    let found = db.get_cf(family(db, META)?, META_REPAIRED).map_err(|error| fault("read its repairs", error))?;
    Ok(found.and_then(|offset| key::parse_offset(&offset)).unwrap_or(Offset::ZERO))
}

/// The offset from which on the log has all events.
pub(crate) fn oldest(db: &DB) -> Result<Offset, Fault> {
    let found = db.get_cf(family(db, META)?, META_OLDEST).map_err(|error| fault("read its beginning", error))?;
    Ok(found.and_then(|offset| key::parse_offset(&offset)).unwrap_or(Offset::ZERO))
}

pub(crate) fn synced() -> WriteOptions {
    let mut options = WriteOptions::default();
    options.set_sync(true);
    options
}

/// The last event before the damage that keeps a store from being opened.
fn last_readable(folder: &Path) -> Offset {
    let mut options = options();
    options.create_if_missing(false);
    options.set_wal_recovery_mode(DBRecoveryMode::PointInTime);
    let db = DB::open_cf_descriptors_read_only(&options, folder.join("log"), descriptors(), false);
    db.ok().and_then(|db| last(&db, folder).ok()).unwrap_or(Offset::ZERO)
}

/// The fault of a store that a newer release wrote, if it is one.
fn newer(folder: &Path, told_as: &Path) -> Option<Fault> {
    let mut options = options();
    options.create_if_missing(false);
    let db = DB::open_cf_descriptors_read_only(&options, folder.join("log"), descriptors(), false);
    db.ok().and_then(|db| check_format(&db, told_as).err())
}

/// Whether the store can be opened as a server would open it; nothing is changed.
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

/// Puts a record and its index entries into the batch.
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

/// The last offset in the log, even if its event was forgotten: no offset is used twice.
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

/// Options of a long scan: blocks are read ahead, and do not displace frequently read ones from the cache.
fn reading_on() -> ReadOptions {
    let mut reading = ReadOptions::default();
    reading.set_readahead_size(READ_AHEAD_BYTES);
    reading.fill_cache(false);
    reading
}

/// Visits the records after `after`; all are decoded into the same record.
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
    // In keys a zero byte follows the resource's name, so this bound is behind all of its keys.
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
    // Sorted by offset, so that neighbours are read together.
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

/// The offsets of one object's events.
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

impl LogRead for RocksLog {
    fn last(&self) -> Result<Offset, Fault> {
        last(&*self.db()?, &self.told_as)
    }

    fn read(&self, offset: Offset) -> Result<Option<Record>, Fault> {
        read(&*self.db()?, &self.told_as, offset)
    }

    fn current(&self, visit: &mut dyn FnMut(Record) -> Result<(), Fault>) -> Result<(), Fault> {
        current(&*self.db()?, &self.told_as, visit)
    }

    fn scan(&self, resource: Option<&str>, after: Offset, limit: usize) -> Result<Vec<Record>, Fault> {
        scan(&*self.db()?, &self.told_as, resource, after, limit)
    }

    fn each(&self, after: Offset, visit: &mut dyn FnMut(&Record) -> ControlFlow<()>) -> Result<(), Fault> {
        each(&*self.db()?, &self.told_as, after, visit)
    }

    fn changes(&self, asked: &Changes, limit: usize) -> Result<Changed, Fault> {
        past::changes(&*self.db()?, &self.told_as, asked, limit)
    }

    fn versions(&self, resource: &str, key: &str) -> Result<Vec<Offset>, Fault> {
        versions(&*self.db()?, &self.told_as, resource, key)
    }

    fn version_at(&self, resource: &str, key: &str, at: Offset) -> Result<Option<Offset>, Fault> {
        past::version_at(&*self.db()?, &self.told_as, resource, key, at)
    }

    fn as_of(&self, asked: &AsOf, visit: &mut dyn FnMut(&str, Offset) -> ControlFlow<()>) -> Result<(), Fault> {
        past::as_of(&*self.db()?, &self.told_as, asked, visit)
    }

    fn size(&self) -> Result<Size, Fault> {
        crate::forget::size(&*self.db()?, Some(&self.let_go))
    }

    fn identity(&self) -> Result<Identity, Fault> {
        identity::read(&*self.db()?)
    }

    fn oldest(&self) -> Result<Offset, Fault> {
        oldest(&*self.db()?)
    }

    fn repaired(&self) -> Result<Offset, Fault> {
        repaired(&*self.db()?)
    }
}

/// No other process appends to it, because the folder is locked.
impl Log for RocksLog {
    fn commit(&self, proposal: &Proposal) -> Result<Append, Fault> {
        let db = self.db()?;
        let mut writes = WriteBatch::default();
        for record in proposal.records {
            stage(&db, &mut writes, record)?;
        }
        db.write_opt(writes, &self.writing()).map_err(|error| fault("append", error))?;
        Ok(Append::Appended)
    }

    fn secret(&self) -> Result<[u8; 32], Fault> {
        self.kept_secret()?.ok_or_else(|| Fault::Unreadable { what: "the log has no secret".into() })
    }

    fn forget(&self, through: Offset) -> Result<(), Fault> {
        self.recovering(|| crate::forget::forget(self, through))
    }

    fn compact(&self, always: bool) -> Result<(), Fault> {
        self.recovering(|| self.with(|db, _| crate::forget::compact(db, always)))
    }

    fn lacks_room(&self, bytes: u64) -> Option<Lack> {
        self.room.lacks(bytes)
    }

    fn take_reserve(&self, bytes: u64) -> Result<(), Fault> {
        if self.room.take(bytes, || self.in_memory_bytes()) { Ok(()) } else { Err(Fault::Full { operation: "append" }) }
    }

    fn is_short_of_room(&self) -> bool {
        let is_short = self.room.is_short();
        if !is_short && !self.compacts() && self.has_room_to_compact() {
            // If this fails, the next check tries it again; until then reads are somewhat slower.
            let _ = self.let_compact(true);
        }
        is_short
    }

    fn make_room(&self) -> Result<(), Fault> {
        self.recovering(|| crate::reclaim::make_room(self))
    }

    fn recover(&self) -> Result<(), Fault> {
        let needed = self.write_ahead_bytes() + RECOVERY_PROBE_BYTES as u64;
        // Reopening is a start, so it may use the last part of the reserve.
        if !self.room.take_now(needed) {
            self.room.take_to_open(needed);
        }
        probe(&self.folder)?;
        // A compaction could run for long, and the store cannot be closed meanwhile.
        self.db()?.cancel_all_background_work(false);
        let mut db = self.db.write().unwrap_or_else(|poisoned| poisoned.into_inner());
        // After a failed write RocksDB refuses writes until it is opened again. Opening also decides whether the failed
        // batch is stored or not.
        *db = None;
        let compacts = !self.room.standing().is_short;
        self.compacts.store(compacts, Ordering::Relaxed);
        *db = Some(open_with_reserve(&self.folder, &self.told_as, &self.room, compacts)?);
        Ok(())
    }
}

/// The bytes of write-ahead logs that opening the log again may have to write to tables.
fn write_ahead_bytes(log: &Path) -> u64 {
    let logs = std::fs::read_dir(log).into_iter().flatten().flatten();
    let logs = logs.filter(|file| file.path().extension().is_some_and(|extension| extension == "log"));
    logs.filter_map(|file| file.metadata().ok()).map(|metadata| metadata.len()).sum()
}

/// Whether the disk accepts a few megabytes again.
fn probe(folder: &Path) -> Result<(), Fault> {
    let path = folder.join("probe");
    let tried = std::fs::File::create(&path).and_then(|mut file| {
        file.write_all(&vec![0u8; RECOVERY_PROBE_BYTES])?;
        file.sync_all()
    });
    let _ = std::fs::remove_file(&path);
    tried.map_err(|error| match error.kind() {
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded | std::io::ErrorKind::FileTooLarge => {
            Fault::Full { operation: "recover" }
        }
        _ => Fault::io("recover", error),
    })
}
