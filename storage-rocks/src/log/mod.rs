//! The log on RocksDB: one synced write for each batch, and the reads of a start.

mod reclaim;

use crate::fault::{FolderFault, damage, fault};
use crate::folder::{check_entries, close, make_private};
use crate::forget::{self, Forgotten};
use crate::identity::{self, new_id, stage_secret};
use crate::key::{self, EVENTS, FAMILIES, META, META_FORMAT, META_OLDEST, META_REPAIRED, META_SECRET, META_SOURCE};
use crate::lock::FolderLock;
use crate::past;
use crate::room::{DiskReserve, Reserve, Standing};
use crate::store::{
    FORMAT, check_format, current, descriptors, each, family, family_options, last, oldest, options, read, repaired,
    scan, stage, synced, versions,
};
use holdfast_core::event::{Offset, Record};
use holdfast_engine::log::{Identity, Lack};
use holdfast_engine::{Append, AsOf, Changed, Changes, Fault, Log, LogRead, Proposal, Size};
use rocksdb::{ColumnFamilyDescriptor, DB, DBRecoveryMode, WriteBatch, WriteOptions};
use std::io::Write;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{RwLock, RwLockReadGuard};

/// The number of bytes that must fit on a disk that was full before writes are accepted again.
const RECOVERY_PROBE_BYTES: usize = 4 << 20;

pub struct RocksLog {
    folder: PathBuf,
    /// The folder that faults name. It is the folder of this log, or the folder from which this log is being copied.
    reported_path: PathBuf,
    /// The store; `None` only while it is closed and opened again.
    db: RwLock<Option<DB>>,
    durability: Durability,
    forgotten: Forgotten,
    room: DiskReserve,
    /// Whether RocksDB compacts tables of events automatically.
    compacts: AtomicBool,
    _lock: FolderLock,
}

/// Where the events of an append must be before the append succeeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// The events are on the disk: acknowledged events survive a power cut.
    Synced,
    /// The operating system has received the events. That is enough for a folder that is removed when its process ends.
    Unsynced,
}

impl RocksLog {
    /// Opens the log in `folder`, and makes the folder and the log first if they do not exist.
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

    /// Creates the name and the secret of a log that lacks them: a new log, or a log of an older release or an import.
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

    /// Opens a log whose name the caller sets.
    pub(crate) fn open_unnamed(folder: &Path, told_as: &Path, lock: FolderLock) -> Result<RocksLog, Fault> {
        RocksLog::open_reserving(folder, told_as, lock, Reserve::AsItIs)
    }

    fn open_reserving(folder: &Path, told_as: &Path, lock: FolderLock, reserve: Reserve) -> Result<RocksLog, Fault> {
        let log = folder.join("log");
        make_private(&log)?;
        check_entries(&log)?;
        close(&log);
        let room =
            DiskReserve::open(folder, reserve).map_err(|error| Fault::io("look at the room on the disk", error))?;
        // Opening writes the events of write-ahead logs to tables, which needs room on the disk.
        room.take_to_open(write_ahead_bytes(&log));
        let compacts = !room.standing().is_short;
        let db = open_with_reserve(folder, told_as, &room, compacts)?;
        Ok(RocksLog {
            folder: folder.to_owned(),
            reported_path: told_as.to_owned(),
            db: RwLock::new(Some(db)),
            durability: Durability::Synced,
            forgotten: Forgotten::default(),
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
        &self.reported_path
    }

    /// Runs short work on the store. The store cannot be closed until the work ends.
    pub(crate) fn with<T>(&self, work: impl FnOnce(&DB, &Path) -> Result<T, Fault>) -> Result<T, Fault> {
        work(&*self.db()?, &self.reported_path)
    }

    /// The free room on the disk of the log, and the reserve.
    pub fn standing(&self) -> Standing {
        self.room.standing()
    }

    /// Allows or stops automatic compaction of tables of events, which may need more room than the disk has.
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

    /// Whether a flush or a compaction has failed since the store was opened. RocksDB then retries the failed flush or
    /// compaction, and may start no other until the store is opened again.
    pub(crate) fn failed_in_background(&self) -> bool {
        let failures = self.with(|db, _| {
            db.property_int_value("rocksdb.background-errors").map_err(|error| fault("tell its failures", error))
        });
        failures.is_ok_and(|failures| failures.unwrap_or(0) > 0)
    }

    pub(crate) fn write_ahead_bytes(&self) -> u64 {
        write_ahead_bytes(&self.folder.join("log"))
    }

    /// Runs work that makes room. If the work finds the disk full, the store refuses writes until it is opened again,
    /// so this function opens it again. The writer would not notice this, because it writes only when there is room.
    fn recovering(&self, work: impl FnOnce() -> Result<(), Fault>) -> Result<(), Fault> {
        let done = work();
        if done.as_ref().is_err_and(Fault::is_full) {
            self.recover()?;
        }
        done
    }

    /// The number of bytes in memory that have yet to be written to tables.
    pub(crate) fn in_memory_bytes(&self) -> u64 {
        let of = |db: &DB, name| {
            let found = db.property_int_value_cf(family(db, name)?, "rocksdb.cur-size-all-mem-tables");
            found.map_err(|error| fault("tell its size", error))
        };
        let all = self
            .with(|db, _| FAMILIES.iter().try_fold(0, |all, name| Ok::<u64, Fault>(all + of(db, name)?.unwrap_or(0))));
        all.unwrap_or(0)
    }

    pub(crate) fn room(&self) -> &DiskReserve {
        &self.room
    }

    fn writing(&self) -> WriteOptions {
        let mut options = WriteOptions::default();
        options.set_sync(self.durability == Durability::Synced);
        options
    }

    /// Records the offset from which the log has all events, and the offset up to which gaps were reported.
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

    /// The last value of [`keep_source_as`](Self::keep_source_as): the source of events that were copied from another
    /// log.
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

/// Opens the store. If there is too little room otherwise, opening uses the whole reserve.
fn open_with_reserve(folder: &Path, told_as: &Path, room: &DiskReserve, compacts: bool) -> Result<DB, Fault> {
    match open(folder, told_as, compacts) {
        Err(fault) if fault.is_full() && room.standing().reserve_bytes > 0 => {
            room.take_to_open(u64::MAX / 2);
            open(folder, told_as, compacts)
        }
        opened => opened,
    }
}

/// If `compacts` is true, RocksDB compacts tables of events automatically, and begins to do so while it opens the
/// store.
fn open(folder: &Path, told_as: &Path, compacts: bool) -> Result<DB, Fault> {
    let families = FAMILIES.iter().map(|name| {
        let mut options = family_options();
        options.set_disable_auto_compactions(*name == EVENTS && !compacts);
        ColumnFamilyDescriptor::new(*name, options)
    });
    let db = DB::open_cf_descriptors(&options(), folder.join("log"), families).map_err(|error| {
        // A store of a newer release cannot be opened either, but needs another message.
        let why = newer(folder, told_as);
        why.unwrap_or_else(|| damage("open", told_as, last_readable(folder), error))
    })?;
    if !check_format(&db, told_as)? {
        db.put_cf_opt(family(&db, META)?, META_FORMAT, [FORMAT], &synced())
            .map_err(|error| fault("write its format", error))?;
    }
    Ok(db)
}

/// The last event before the damage that prevents opening the store.
fn last_readable(folder: &Path) -> Offset {
    let mut options = options();
    options.create_if_missing(false);
    options.set_wal_recovery_mode(DBRecoveryMode::PointInTime);
    let db = DB::open_cf_descriptors_read_only(&options, folder.join("log"), descriptors(), false);
    db.ok().and_then(|db| last(&db, folder).ok()).unwrap_or(Offset::ZERO)
}

/// The fault of a store that a newer release wrote; `None` for any other store.
fn newer(folder: &Path, told_as: &Path) -> Option<Fault> {
    let mut options = options();
    options.create_if_missing(false);
    let db = DB::open_cf_descriptors_read_only(&options, folder.join("log"), descriptors(), false);
    db.ok().and_then(|db| check_format(&db, told_as).err())
}

impl LogRead for RocksLog {
    fn last(&self) -> Result<Offset, Fault> {
        last(&*self.db()?, &self.reported_path)
    }

    fn read(&self, offset: Offset) -> Result<Option<Record>, Fault> {
        read(&*self.db()?, &self.reported_path, offset)
    }

    fn current(&self, visit: &mut dyn FnMut(Record) -> Result<(), Fault>) -> Result<(), Fault> {
        current(&*self.db()?, &self.reported_path, visit)
    }

    fn scan(&self, resource: Option<&str>, after: Offset, limit: usize) -> Result<Vec<Record>, Fault> {
        scan(&*self.db()?, &self.reported_path, resource, after, limit)
    }

    fn each(&self, after: Offset, visit: &mut dyn FnMut(&Record) -> ControlFlow<()>) -> Result<(), Fault> {
        each(&*self.db()?, &self.reported_path, after, visit)
    }

    fn changes(&self, asked: &Changes, limit: usize) -> Result<Changed, Fault> {
        past::changes(&*self.db()?, &self.reported_path, asked, limit)
    }

    fn versions(&self, resource: &str, key: &str) -> Result<Vec<Offset>, Fault> {
        versions(&*self.db()?, &self.reported_path, resource, key)
    }

    fn version_at(&self, resource: &str, key: &str, at: Offset) -> Result<Option<Offset>, Fault> {
        past::version_at(&*self.db()?, &self.reported_path, resource, key, at)
    }

    fn as_of(&self, asked: &AsOf, visit: &mut dyn FnMut(&str, Offset) -> ControlFlow<()>) -> Result<(), Fault> {
        past::as_of(&*self.db()?, &self.reported_path, asked, visit)
    }

    fn size(&self) -> Result<Size, Fault> {
        forget::size(&*self.db()?, Some(&self.forgotten))
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

/// No other process appends to this log, because the folder is locked.
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
        self.recovering(|| {
            let _alone = self.forgotten.alone();
            let through = self.with(|db, folder| forget::begin(db, folder, through))?;
            while self.with(|db, folder| forget::piece(db, folder, through, &self.forgotten))? {}
            Ok(())
        })
    }

    fn compact(&self, always: bool) -> Result<(), Fault> {
        self.recovering(|| self.with(|db, _| forget::compact(db, always)))
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
            // If this call fails, the next check of the room calls the function again. Until then reads are somewhat
            // slower, because tables are not compacted.
            let _ = self.let_compact(true);
        }
        is_short
    }

    fn make_room(&self) -> Result<(), Fault> {
        self.recovering(|| reclaim::make_room(self))
    }

    fn recover(&self) -> Result<(), Fault> {
        let needed = self.write_ahead_bytes() + RECOVERY_PROBE_BYTES as u64;
        // Reopening counts as a start, so it may use the last part of the reserve.
        if !self.room.take_now(needed) {
            self.room.take_to_open(needed);
        }
        probe(&self.folder)?;
        // The store cannot be closed before a running compaction ends, which may take long.
        self.db()?.cancel_all_background_work(false);
        let mut db = self.db.write().unwrap_or_else(|poisoned| poisoned.into_inner());
        // After a failed write RocksDB refuses writes until the store is opened again. Opening also decides whether the
        // failed batch is stored or not.
        *db = None;
        let compacts = !self.room.standing().is_short;
        self.compacts.store(compacts, Ordering::Relaxed);
        *db = Some(open_with_reserve(&self.folder, &self.reported_path, &self.room, compacts)?);
        Ok(())
    }
}

/// The number of bytes in write-ahead logs that opening the log again may have to write to tables.
fn write_ahead_bytes(log: &Path) -> u64 {
    let logs = std::fs::read_dir(log).into_iter().flatten().flatten();
    let logs = logs.filter(|file| file.path().extension().is_some_and(|extension| extension == "log"));
    logs.filter_map(|file| file.metadata().ok()).map(|metadata| metadata.len()).sum()
}

/// Writes a few megabytes to a file, to check whether the disk accepts writes again.
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
