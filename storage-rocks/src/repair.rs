//! Repairs a damaged log: a new store is made from everything that can still be read of the old store.
//!
//! Every record has a checksum, so the repair need not trust any other part of the old store: damaged records are
//! omitted. If the newest event of an object is damaged, the object's last intact version is written again as a new
//! event at the end of the log, so that caches notice the change. The old store stays beside the new store.

use crate::fault::{FolderFault, fault, record};
use crate::folder::{close, make_private};
use crate::key::{
    self, EVENTS, HISTORY, META, META_FORGOTTEN, META_ID, META_OLDEST, META_ORIGIN, META_REPAIRED, META_SECRET,
};
use crate::lock::FolderLock;
use crate::store::{check_format, descriptors, family, options, stage, synced};
use holdfast_core::event::{Actor, Damage, FORMAT, Offset, Operation, Record};
use holdfast_core::state::{Entry, Index};
use holdfast_engine::Fault;
use holdfast_engine::log::sealing::Values;
use rocksdb::{DB, DBRecoveryMode, Direction, IteratorMode, ReadOptions, WriteBatch};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// One finding of a repair, or one change that it made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Repair {
    /// The newest version of the object was damaged. The object again has the content of the version `intact`.
    PutBack { object: String, damaged: Offset, intact: Offset },
    /// No version of the object could be read, so the object is lost.
    Lost { object: String, damaged: Offset },
    /// An old version of an object, or a version of a deleted object, is lost.
    Forgotten { object: String, damaged: Offset },
    /// The event could not be read, and its object is unknown.
    Unknown { damaged: Offset },
    /// The end of the store could not be read, so later events, if there were any, are lost.
    End { after: Offset },
    /// The folder in which the old store is kept.
    Kept { folder: PathBuf },
}

impl std::fmt::Display for Repair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::PutBack { object, damaged, intact } => {
                write!(f, "event {damaged} is damaged: {object} is put back to its version {intact}")
            }
            Self::Lost { object, damaged } => {
                write!(f, "event {damaged} is damaged: {object} had no other version and is lost")
            }
            Self::Forgotten { object, damaged } => {
                write!(f, "event {damaged} is damaged: an old version of {object} is forgotten")
            }
            Self::Unknown { damaged } => write!(f, "event {damaged} is lost, and what it was about is not known"),
            Self::End { after } => {
                write!(f, "the end of the store was damaged: events after {after}, if there were any, are lost")
            }
            Self::Kept { folder } => write!(f, "the damaged store is kept in {}", folder.display()),
        }
    }
}

/// If the end of the old store is damaged, the repaired log skips this many versions after the last readable version,
/// so that lost versions are not assigned again.
const GAP: u64 = 1000;
/// The number of records that are written to the new store at a time.
const PIECE: usize = 1000;

/// Repairs the log of a data folder that no server uses. An intact log is not changed. `values` decrypts and encrypts
/// the records that are written again.
pub fn repair(folder: &Path, time_ms: i64, values: &dyn Values) -> Result<Vec<Repair>, FolderFault> {
    crate::whole::check_log(folder)?;
    let _lock = FolderLock::take(folder)?;
    let path = folder.join("log");
    let opens = crate::store::check(folder);
    let old = open_distrustful(&path)?;
    if let Err(newer @ Fault::Unreadable { .. }) = check_format(&old, folder) {
        return Err(newer.into());
    }
    let found = StoreDamage::read(&old, folder)?;
    if opens && found.damaged.is_empty() {
        return Ok(Vec::new());
    }
    let fresh = folder.join("log.repaired");
    let _ = std::fs::remove_dir_all(&fresh);
    make_private(&fresh)?;
    let mut repairs =
        found.rebuild(&old, folder, &fresh, &|intact, end| restored_event(intact, end, time_ms, values), !opens)?;
    drop(old);
    let kept = (1..).map(|nth| folder.join(format!("log.damaged-{nth}"))).find(|path| !path.exists());
    let kept = kept.unwrap_or_else(|| folder.join("log.damaged"));
    std::fs::rename(&path, &kept).map_err(|error| Fault::io("put the damaged store aside", error))?;
    close(&kept);
    std::fs::rename(&fresh, &path).map_err(|error| Fault::io("put the new store in its place", error))?;
    repairs.push(Repair::Kept { folder: kept });
    Ok(repairs)
}

/// Opens a store even if it is damaged, without changing its readable content.
fn open_distrustful(path: &Path) -> Result<DB, Fault> {
    let mut options = options();
    options.create_if_missing(false);
    options.set_paranoid_checks(false);
    options.set_wal_recovery_mode(DBRecoveryMode::SkipAnyCorruptedRecord);
    DB::open_cf_descriptors_read_only(&options, path, descriptors(), false)
        .map_err(|error| fault("open even for repair; restore the folder from a backup", error))
}

/// What is damaged in a store.
struct StoreDamage {
    /// Offsets of damaged and missing events, each with its object if that is known.
    damaged: BTreeMap<Offset, Option<String>>,
    last: Offset,
}

impl StoreDamage {
    fn read(db: &DB, folder: &Path) -> Result<StoreDamage, Fault> {
        let mut damaged = BTreeMap::new();
        let mut last = Offset::ZERO;
        let repaired = crate::store::repaired(db).unwrap_or(Offset::ZERO);
        // Events that were forgotten are not missing, so the check begins after them.
        let repaired = repaired.max(crate::store::oldest(db).unwrap_or(Offset::ZERO));
        each(db, EVENTS, |offset, bytes| {
            let Some(offset) = key::parse_offset(offset).filter(|offset| *offset > last) else { return Ok(()) };
            // Offsets have no gaps, except the gaps that an earlier repair left.
            if offset > repaired {
                damaged.extend((last.max(repaired).0 + 1..offset.0).map(|missing| (Offset(missing), None)));
            }
            last = offset;
            match record(folder, offset, bytes) {
                Ok(_) => {}
                // A record of a newer release is not damaged.
                Err(newer) if is_of_newer_release(bytes) => return Err(newer),
                Err(_) => {
                    damaged.insert(offset, None);
                }
            }
            Ok(())
        })?;
        each(db, HISTORY, |entry, _| {
            if let Some((object, offset)) = key::parse_versioned(entry) {
                let object = String::from_utf8_lossy(object).into_owned();
                if offset > last {
                    damaged.insert(offset, Some(object));
                } else if let Some(known) = damaged.get_mut(&offset) {
                    *known = Some(object);
                }
            }
            Ok(())
        })?;
        Ok(StoreDamage { damaged, last })
    }

    /// Writes a store with all intact events, and with new events for the objects that return to an intact version.
    fn rebuild(
        &self,
        old: &DB,
        folder: &Path,
        fresh: &Path,
        again: &dyn Fn(&Record, Offset) -> Result<Record, Fault>,
        end_damaged: bool,
    ) -> Result<Vec<Repair>, Fault> {
        let new = DB::open_cf_descriptors(&options(), fresh, descriptors())
            .map_err(|error| fault("make a new store", error))?;
        let mut newest: BTreeMap<String, Record> = BTreeMap::new();
        let mut piece = Vec::new();
        each(old, EVENTS, |offset, bytes| {
            let Some(offset) = key::parse_offset(offset) else { return Ok(()) };
            let Ok(found) = record(folder, offset, bytes) else { return Ok(()) };
            let object = String::from_utf8_lossy(&key::object(&found.resource, &found.key)).into_owned();
            newest.insert(object, found.clone());
            piece.push(found);
            if piece.len() >= PIECE { write(&new, &mut piece) } else { Ok(()) }
        })?;
        write(&new, &mut piece)?;

        let mut end = Offset(self.last.0 + if end_damaged { GAP } else { 0 });
        let mut repairs = Vec::new();
        for (damaged, object) in &self.damaged {
            let damaged = *damaged;
            let Some(object) = object.clone() else {
                repairs.push(Repair::Unknown { damaged });
                continue;
            };
            match newest.get(&object) {
                None => repairs.push(Repair::Lost { object, damaged }),
                Some(intact) if intact.offset() > damaged || intact.is_delete() => {
                    repairs.push(Repair::Forgotten { object, damaged });
                }
                Some(intact) => {
                    end = end.next();
                    let again = again(intact, end)?;
                    repairs.push(Repair::PutBack { object: object.clone(), damaged, intact: intact.offset() });
                    piece.push(again.clone());
                    newest.insert(object, again);
                }
            }
        }
        if end_damaged {
            repairs.push(Repair::End { after: self.last });
            if end.0 == self.last.0 + GAP
                && let Some(object) = newest.values().filter(|record| !record.is_delete()).max_by_key(|r| r.offset)
            {
                piece.push(again(object, end)?);
            }
        }
        write(&new, &mut piece)?;
        // The repaired log keeps its identity: its name, its secret, and the record of forgotten events.
        let mut batch = WriteBatch::default();
        let meta = family(&new, META)?;
        for name in [META_ID, META_ORIGIN, META_SECRET, META_OLDEST, META_FORGOTTEN] {
            if let Ok(Some(value)) = old.get_cf(family(old, META)?, name) {
                batch.put_cf(meta, name, value);
            }
        }
        batch.put_cf(meta, META_REPAIRED, key::offset(end));
        new.write_opt(batch, &synced()).map_err(|error| fault("write the repair", error))?;
        Ok(repairs)
    }
}

/// Whether the record has a newer format, and is intact.
fn is_of_newer_release(bytes: &[u8]) -> bool {
    let mut readable = bytes.to_vec();
    matches!(Record::decode_record(bytes), Err(Damage::NewerFormat { .. })) && {
        readable[0] = FORMAT;
        !matches!(Record::decode_record(&readable), Err(Damage::Checksum { .. }))
    }
}

/// Makes a new event with the content of an intact version.
fn restored_event(intact: &Record, offset: Offset, time_ms: i64, values: &dyn Values) -> Result<Record, Fault> {
    let intact = values.open(intact.clone())?;
    let entry =
        Entry::new(intact.object.clone(), 1, intact.offset(), intact.time_ms, Index::default()).at_version(offset);
    values.seal(Record {
        offset: offset.0,
        time_ms,
        resource: intact.resource.clone(),
        key: intact.key.clone(),
        replaces: intact.offset,
        operation: Operation::Put as i32,
        actor: Actor { user: "holdfast".into(), verb: "repair".into(), ..Actor::default() },
        object: entry.json(),
    })
}

fn write(db: &DB, piece: &mut Vec<Record>) -> Result<(), Fault> {
    let mut batch = WriteBatch::default();
    for record in piece.drain(..) {
        stage(db, &mut batch, &record)?;
    }
    // The batch does not contain the folder's format, which is written when the new store is first opened.
    db.write_opt(batch, &synced()).map_err(|error| fault("write the new store", error))
}

/// Visits every entry that can be read. A block of events that cannot be read is skipped.
fn each(db: &DB, name: &str, mut visit: impl FnMut(&[u8], &[u8]) -> Result<(), Fault>) -> Result<(), Fault> {
    let end = match db.iterator_cf(family(db, name)?, IteratorMode::End).next() {
        Some(Ok((key, _))) if name == EVENTS => key::parse_offset(&key).unwrap_or_default(),
        _ => Offset::ZERO,
    };
    let mut from: Vec<u8> = Vec::new();
    loop {
        let mut distrust = ReadOptions::default();
        // Records have checksums of their own. Without the checksum of the block, a block with one flipped bit still
        // gives all other records.
        distrust.set_verify_checksums(false);
        let mut reached = key::parse_offset(&from).unwrap_or_default();
        let mut failed = false;
        for item in db.iterator_cf_opt(family(db, name)?, distrust, IteratorMode::From(&from, Direction::Forward)) {
            let Ok((key, value)) = item else {
                failed = true;
                break;
            };
            visit(&key, &value)?;
            reached = key::parse_offset(&key).unwrap_or(reached);
        }
        if !failed || reached >= end {
            return Ok(());
        }
        from = key::offset(reached.next()).to_vec();
    }
}
