//! The way out of damage: objects whose newest event cannot be read go back to their last intact version.
//!
//! Nothing intact is touched, and what was put back is a new event at the log's end, so that caches notice.

use crate::fault::{fault, record};
use crate::key::{self, BY_RESOURCE, CURRENT, EVENTS, HISTORY};
use crate::lock::FolderLock;
use crate::log::{descriptors, family, last, options, stage};
use holdfast_core::event::{Actor, Offset, Operation, Record};
use holdfast_core::state::{Entry, Index};
use holdfast_engine::Fault;
use rocksdb::{DB, Direction, IteratorMode, WriteBatch, WriteOptions};
use std::collections::BTreeSet;
use std::path::Path;

/// What was done to one damaged event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Repair {
    /// The object is as it was at `intact`, again.
    PutBack { object: String, damaged: Offset, intact: Offset },
    /// No version of the object could be read: it is gone.
    Lost { object: String, damaged: Offset },
    /// An old version of an object; the newest one is intact.
    Forgotten { damaged: Offset },
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
            Self::Forgotten { damaged } => {
                write!(f, "event {damaged} is damaged: it is forgotten; no object is concerned")
            }
        }
    }
}

/// Repairs the log of a data folder that no server uses.
pub fn repair(folder: &Path, time_ms: i64) -> Result<Vec<Repair>, Fault> {
    let _lock = FolderLock::take(folder)?;
    let path = folder.join("log");
    let db = match DB::open_cf_descriptors(&options(), &path, descriptors()) {
        Ok(db) => db,
        Err(_) => {
            // The store itself is damaged: it salvages what its own checksums vouch for.
            DB::repair(&options(), &path).map_err(|error| fault("repair", error))?;
            DB::open_cf_descriptors(&options(), &path, descriptors()).map_err(|error| fault("open", error))?
        }
    };
    let damaged = find_damaged(&db, folder)?;
    let mut end = last(&db, folder)?;
    let mut repairs = Vec::new();
    let mut batch = WriteBatch::default();
    let mut pointed_at: BTreeSet<Offset> = damaged.iter().copied().collect();
    for item in db.iterator_cf(family(&db, CURRENT)?, IteratorMode::Start) {
        let (object, offset) = item.map_err(|error| fault("read what is current", error))?;
        let Some(offset) = key::parse_offset(&offset) else { continue };
        let intact = !damaged.contains(&offset)
            && db.get_cf(family(&db, EVENTS)?, key::offset(offset)).map_err(|error| fault("read", error))?.is_some();
        if intact {
            continue;
        }
        pointed_at.remove(&offset);
        let name = String::from_utf8_lossy(&object).into_owned();
        match last_intact(&db, folder, &object, offset)? {
            Some(before) => {
                end = end.next();
                let entry = Entry::new(before.object.clone(), 1, before.offset(), Index::default()).at_version(end);
                let actor = Actor { user: "holdfast".into(), verb: "repair".into(), ..Actor::default() };
                let put = Record {
                    offset: end.0,
                    time_ms,
                    replaces: before.offset,
                    operation: Operation::Put as i32,
                    actor,
                    object: entry.json,
                    resource: before.resource.clone(),
                    key: before.key.clone(),
                };
                stage(&db, &mut batch, &put)?;
                repairs.push(Repair::PutBack { object: name, damaged: offset, intact: before.offset() });
            }
            None => {
                batch.delete_cf(family(&db, CURRENT)?, &object);
                repairs.push(Repair::Lost { object: name, damaged: offset });
            }
        }
    }
    repairs.extend(pointed_at.into_iter().map(|damaged| Repair::Forgotten { damaged }));
    forget(&db, &mut batch, &damaged)?;
    let mut sync = WriteOptions::default();
    sync.set_sync(true);
    db.write_opt(batch, &sync).map_err(|error| fault("write the repair", error))?;
    Ok(repairs)
}

fn find_damaged(db: &DB, folder: &Path) -> Result<BTreeSet<Offset>, Fault> {
    let mut damaged = BTreeSet::new();
    for item in db.iterator_cf(family(db, EVENTS)?, IteratorMode::Start) {
        let (offset, bytes) = item.map_err(|error| fault("read events", error))?;
        let Some(offset) = key::parse_offset(&offset) else { continue };
        if record(folder, offset, &bytes).is_err() {
            damaged.insert(offset);
        }
    }
    Ok(damaged)
}

/// The object's newest version before `before` that can be read and was no deletion.
fn last_intact(db: &DB, folder: &Path, object: &[u8], before: Offset) -> Result<Option<Record>, Fault> {
    let start = key::versioned(object, Offset(before.0.saturating_sub(1)));
    for item in db.iterator_cf(family(db, HISTORY)?, IteratorMode::From(&start, Direction::Reverse)) {
        let (entry, _) = item.map_err(|error| fault("read history", error))?;
        match key::parse_versioned(&entry) {
            Some((name, offset)) if name == object => {
                let bytes =
                    db.get_cf(family(db, EVENTS)?, key::offset(offset)).map_err(|error| fault("read", error))?;
                match bytes.map(|bytes| record(folder, offset, &bytes)) {
                    Some(Ok(found)) if !found.is_delete() => return Ok(Some(found)),
                    Some(Ok(_)) => return Ok(None),
                    Some(Err(_)) | None => {}
                }
            }
            _ => return Ok(None),
        }
    }
    Ok(None)
}

/// Removes damaged events and all that points at them.
fn forget(db: &DB, batch: &mut WriteBatch, damaged: &BTreeSet<Offset>) -> Result<(), Fault> {
    for offset in damaged {
        batch.delete_cf(family(db, EVENTS)?, key::offset(*offset));
    }
    if damaged.is_empty() {
        return Ok(());
    }
    for name in [HISTORY, BY_RESOURCE] {
        for item in db.iterator_cf(family(db, name)?, IteratorMode::Start) {
            let (entry, _) = item.map_err(|error| fault("read", error))?;
            if key::parse_versioned(&entry).is_some_and(|(_, offset)| damaged.contains(&offset)) {
                batch.delete_cf(family(db, name)?, entry);
            }
        }
    }
    Ok(())
}
