//! Makes forks of a log. A fork is a new log that begins with the events of another log up to a version. The time to
//! make a fork does not grow with the log.
//!
//! RocksDB's tables never change, so both logs share the tables as hard links. Data younger than the tables is copied.
//! Then the events after the version are removed, at a cost that depends only on these events. The folder is marked
//! until the whole new log is durable.

use crate::fault::{FolderFault, damage, fault};
use crate::folder::{check_entries, check_owner, make_private};
use crate::identity::{self, new_id, stage_secret};
use crate::key::{self, BY_RESOURCE, CURRENT, EVENTS, HISTORY, META, META_FORGOTTEN, META_OLDEST, META_REPAIRED};
use crate::lock::FolderLock;
use crate::log::RocksLog;
use crate::making::Making;
use crate::store::{family, foreign, last, oldest, read, repaired, synced};
use crate::whole::{check_log, check_new};
use holdfast_core::event::Offset;
use holdfast_engine::log::{Identity, Origin};
use holdfast_engine::{Fault, LogRead};
use rocksdb::checkpoint::Checkpoint;
use rocksdb::{DB, Direction, IteratorMode, ReadOptions, WriteBatch};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The maximum number of attempts to copy from a running server. A copy must fall between two changes of the server's
/// files.
const TRIES_MAX: usize = 50;
/// The maximum number of changes to the new log that are written at a time.
const PIECE: usize = 10_000;

/// A fork that is being made. The fork is a copy of the whole log until [`finish`](Fork::finish). If the fork is
/// dropped before it is finished, the copy is removed.
pub struct Fork {
    folder: PathBuf,
    log: Option<RocksLog>,
    /// The outermost folder that was made for the fork. It is removed if the fork fails; folders that existed earlier
    /// stay.
    made: Option<PathBuf>,
    finished: bool,
}

/// The identity of a finished fork.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forked {
    /// The name of the new log.
    pub id: String,
    /// The last event that the original log and the new log share.
    pub version: Offset,
}

impl Fork {
    /// Forks a data folder on this machine, whether a server uses it or not. Nothing in that folder is changed.
    pub fn of_folder(from: &Path, to: &Path) -> Result<Fork, FolderFault> {
        check_log(from)?;
        let source = from.join("log");
        // The fork shares tables with the other folder, whose owner could still change them.
        check_owner(from)?;
        check_entries(&source)?;
        Fork::make(to, from, |log| {
            let copied = link_between_changes(&source, log).map_err(|error| match error.kind() {
                ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Fault::Unreadable {
                    what: format!(
                        "there is no room for the fork {}: name a folder on the disk that {} is on, where forks share \
                         its files, or one with as much room as it takes",
                        to.display(),
                        from.display()
                    ),
                },
                _ => Fault::io("copy the log", error),
            })?;
            if copied { Ok(()) } else { Err(FolderFault::Restless) }
        })
    }

    /// Forks a log that this process has open.
    pub fn of_log(log: &RocksLog, to: &Path) -> Result<Fork, FolderFault> {
        Fork::make(to, log.told_as(), |into| {
            log.with(|db, _| {
                let checkpoint = Checkpoint::new(db).map_err(|error| fault("make a checkpoint", error))?;
                // Data in memory is copied with the write-ahead log, so that a fork causes no flush.
                let made = checkpoint.create_checkpoint_with_log_size(into, u64::MAX);
                made.map_err(|error| fault("make a checkpoint", error))
            })?;
            Ok(())
        })
    }

    fn make(to: &Path, from: &Path, copy: impl FnOnce(&Path) -> Result<(), FolderFault>) -> Result<Fork, FolderFault> {
        check_new(to)?;
        let made = to.ancestors().take_while(|folder| !folder.as_os_str().is_empty() && !folder.exists()).last();
        let made = made.map(Path::to_owned);
        make_private(to)?;
        // If two forks begin at the same time, the lock refuses one fork before it changes the files of the other fork.
        let lock = FolderLock::take(to)?;
        let mut fork = Fork { folder: to.to_owned(), log: None, made, finished: false };
        Making::Fork.mark(to)?;
        copy(&to.join("log"))?;
        fork.log = Some(RocksLog::open_unnamed(to, from, lock)?);
        Ok(fork)
    }

    /// The whole log as it was copied, for finding the requested version.
    pub fn log(&self) -> &dyn LogRead {
        self.rocks()
    }

    fn rocks(&self) -> &RocksLog {
        match &self.log {
            Some(log) => log,
            None => unreachable!("a fork is handed out with its log"),
        }
    }

    /// Removes the events after the version, and completes the new log.
    pub fn finish(mut self, at: Offset) -> Result<Forked, Fault> {
        let forked = self.rocks().with(|db, from| cut(db, from, at))?;
        let synced = File::open(self.folder.join("log")).and_then(|log| log.sync_all());
        synced.map_err(|error| Fault::io("write the fork", error))?;
        // The log is closed before the mark is removed, because another process may open a folder without a mark.
        self.log = None;
        Making::Fork.unmark(&self.folder)?;
        self.finished = true;
        Ok(forked)
    }
}

impl Drop for Fork {
    fn drop(&mut self) {
        if self.finished {
            return;
        }
        self.log = None;
        // If not all of the fork can be removed, the mark stays, and its text contains advice to the operator.
        let _ = match &self.made {
            Some(made) => remove(&self.folder, made),
            None => empty(&self.folder),
        };
    }
}

/// Removes a folder, and then the folders above it, up to `outermost`, that become empty.
fn remove(folder: &Path, outermost: &Path) -> std::io::Result<()> {
    std::fs::remove_dir_all(folder)?;
    let mut around = folder.ancestors().skip(1).take_while(|around| around.starts_with(outermost));
    around.try_for_each(std::fs::remove_dir)
}

fn empty(folder: &Path) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        match entry.file_type()?.is_dir() {
            true => std::fs::remove_dir_all(entry.path())?,
            false => std::fs::remove_file(entry.path())?,
        }
    }
    Ok(())
}

/// Copies the files of a store between two of its changes. RocksDB never deletes or replaces a file without changing
/// the manifest or the names in the folder. If the manifest and the names are the same before and after the copy, the
/// copy equals the files after a crash at that moment. Returns false if no attempt fell between two changes.
fn link_between_changes(from: &Path, to: &Path) -> std::io::Result<bool> {
    for _ in 0..TRIES_MAX {
        std::fs::create_dir_all(to)?;
        let before = Listing::of(from)?;
        let copied = before.copy(from, to);
        let unchanged = Listing::of(from)? == before;
        match copied {
            Ok(()) if unchanged => return Ok(true),
            // A file that was removed during the copy counts as a change.
            Err(error) if unchanged || error.kind() != ErrorKind::NotFound => return Err(error),
            _ => std::fs::remove_dir_all(to)?,
        }
    }
    Ok(false)
}

/// The names of the files of a store at one moment.
#[derive(PartialEq, Eq)]
struct Listing {
    tables: BTreeSet<String>,
    /// Write-ahead logs in the order in which they were written.
    write_ahead: BTreeSet<String>,
    /// The content of `CURRENT`, and the length of the manifest that it names.
    manifest: (String, u64),
}

impl Listing {
    fn of(folder: &Path) -> std::io::Result<Listing> {
        let current = std::fs::read_to_string(folder.join("CURRENT"))?;
        let length = std::fs::metadata(folder.join(current.trim_end()))?.len();
        let mut listing =
            Listing { tables: BTreeSet::new(), write_ahead: BTreeSet::new(), manifest: (current, length) };
        for entry in std::fs::read_dir(folder)? {
            let Ok(name) = entry?.file_name().into_string() else { continue };
            match Path::new(&name).extension().and_then(|extension| extension.to_str()) {
                Some("sst") => listing.tables.insert(name),
                Some("log") => listing.write_ahead.insert(name),
                _ => continue,
            };
        }
        Ok(listing)
    }

    fn copy(&self, from: &Path, to: &Path) -> std::io::Result<()> {
        for name in &self.tables {
            let (source, target) = (from.join(name), to.join(name));
            match std::fs::hard_link(&source, &target) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::NotFound => return Err(error),
                // A hard link is impossible, because the file is on another file system or another user owns it. So the
                // file is copied.
                Err(_) => std::fs::copy(&source, &target).map(|_| ())?,
            }
        }
        let (current, length) = &self.manifest;
        let manifest = current.trim_end();
        std::fs::copy(from.join(manifest), to.join(manifest))?;
        File::options().write(true).open(to.join(manifest))?.set_len(*length)?;
        std::fs::write(to.join("CURRENT"), current)?;
        // Write-ahead logs are copied last, so that they have all data that the tables lack. The end of the newest
        // write-ahead log may be torn, as after a crash.
        for name in &self.write_ahead {
            std::fs::copy(from.join(name), to.join(name))?;
        }
        Ok(())
    }
}

/// Completes the new log in the copy: removes the events after the version, and sets the log's name and secret.
fn cut(db: &DB, folder: &Path, at: Offset) -> Result<Forked, Fault> {
    let version = newest_up_to(db, folder, at)?;
    if version < last(db, folder)? {
        remove_after(db, folder, version)?;
    }
    let meta = family(db, META)?;
    let mut batch = WriteBatch::default();
    for (name, offset) in [(META_OLDEST, oldest(db)?), (META_REPAIRED, repaired(db)?)] {
        if offset > version {
            batch.put_cf(meta, name, key::offset(version));
        }
    }
    // In the fork an interrupted pass of forgetting starts from the beginning, because fewer events may have to be
    // forgotten.
    batch.delete_cf(meta, META_FORGOTTEN);
    let id = new_id()?;
    let origin = Origin { id: identity::read(db)?.id, version };
    identity::stage(&Identity { id: Some(id.clone()), origin: Some(origin) }, db, &mut batch)?;
    stage_secret(db, &mut batch)?;
    db.write_opt(batch, &synced()).map_err(|error| fault("write the fork", error))?;
    Ok(Forked { id, version })
}

/// The newest version with an event up to `at`. The event at `at` itself may be lost or forgotten.
fn newest_up_to(db: &DB, folder: &Path, at: Offset) -> Result<Offset, Fault> {
    let mut bounds = ReadOptions::default();
    bounds.set_iterate_upper_bound(key::offset(at.next()));
    let newest = db.iterator_cf_opt(family(db, EVENTS)?, bounds, IteratorMode::End).next();
    let newest = newest.transpose().map_err(|error| damage("read its events", folder, Offset::ZERO, error))?;
    let newest = newest.and_then(|(key, _)| key::parse_offset(&key)).unwrap_or(Offset::ZERO);
    Ok(newest.max(oldest(db)?))
}

/// Removes every event after the version, and makes `current` point to the older events again.
fn remove_after(db: &DB, folder: &Path, version: Offset) -> Result<(), Fault> {
    let (current, history) = (family(db, CURRENT)?, family(db, HISTORY)?);
    let (events, by_resource) = (family(db, EVENTS)?, family(db, BY_RESOURCE)?);
    let mut batch = WriteBatch::default();
    let mut changed = BTreeSet::new();
    for resource in resources(db, folder)? {
        let from = key::versioned(&resource, version.next());
        let mut any = false;
        let mut bounds = ReadOptions::default();
        bounds.set_iterate_upper_bound(key::behind(&resource));
        for item in db.iterator_cf_opt(by_resource, bounds, IteratorMode::From(&from, Direction::Forward)) {
            let (entry, name) = item.map_err(|error| damage("read events", folder, version, error))?;
            let (_, offset) = key::parse_versioned(&entry).ok_or_else(|| foreign(BY_RESOURCE, folder))?;
            let object = key::object(&String::from_utf8_lossy(&resource), &String::from_utf8_lossy(&name));
            batch.delete_cf(history, key::versioned(&object, offset));
            changed.insert(object);
            any = true;
            flush(db, &mut batch, PIECE)?;
        }
        if any {
            batch.delete_range_cf(by_resource, from, key::behind(&resource));
        }
    }
    for object in changed {
        match newest(db, folder, &object, version)? {
            Some(offset) => batch.put_cf(current, &object, key::offset(offset)),
            None => batch.delete_cf(current, &object),
        }
        flush(db, &mut batch, PIECE)?;
    }
    // No event has the largest offset, at which this range ends.
    batch.delete_range_cf(events, key::offset(version.next()), key::offset(Offset(u64::MAX)));
    flush(db, &mut batch, 0)
}

/// Writes the batch if it is long. The write need not be durable yet, because the fork is synced at its end.
fn flush(db: &DB, batch: &mut WriteBatch, longest: usize) -> Result<(), Fault> {
    if batch.len() <= longest {
        return Ok(());
    }
    db.write(std::mem::take(batch)).map_err(|error| fault("take out later events", error))
}

/// Every resource that has events in the log.
fn resources(db: &DB, folder: &Path) -> Result<Vec<Vec<u8>>, Fault> {
    let mut found: Vec<Vec<u8>> = Vec::new();
    let mut entries = db.raw_iterator_cf(family(db, BY_RESOURCE)?);
    entries.seek_to_first();
    while let Some(entry) = entries.key() {
        let (resource, _) = key::parse_versioned(entry).ok_or_else(|| foreign(BY_RESOURCE, folder))?;
        let resource = resource.to_vec();
        entries.seek(key::behind(&resource));
        found.push(resource);
    }
    entries.status().map_err(|error| damage("read events", folder, Offset::ZERO, error))?;
    Ok(found)
}

/// The newest event of an object up to the version, unless it is a deletion.
fn newest(db: &DB, folder: &Path, object: &[u8], version: Offset) -> Result<Option<Offset>, Fault> {
    let mut bounds = ReadOptions::default();
    bounds.set_iterate_lower_bound(key::versioned(object, Offset::ZERO));
    let from = key::versioned(object, version);
    let mut entries = db.iterator_cf_opt(family(db, HISTORY)?, bounds, IteratorMode::From(&from, Direction::Reverse));
    let Some(entry) = entries.next() else { return Ok(None) };
    let (entry, mark) = entry.map_err(|error| damage("read a history", folder, version, error))?;
    let (_, offset) = key::parse_versioned(&entry).ok_or_else(|| foreign(HISTORY, folder))?;
    let deleted = match &*mark {
        b"+" => false,
        b"-" => true,
        _ => read(db, folder, offset)?.is_some_and(|record| record.is_delete()),
    };
    Ok((!deleted).then_some(offset))
}
