//! Writes objects into a new data folder, with the versions that they have in the source.

use super::{Destination, Meaning, Movable, Note, Prepared, Stopped, StoredPair, Unmovable};
use crate::shared::now_ms;
use holdfast_core::etcd::{read_event, renumbered};
use holdfast_core::event::{Actor, Offset, Operation, Record};
use holdfast_engine::Fault;
use holdfast_engine::log::sealing::Values;
use holdfast_storage_rocks::Migration;
use jiff::Timestamp;
use prost::Message;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// A folder that is new or empty, or a folder that the same migration has partly filled.
pub struct ToFolder {
    folder: PathBuf,
    /// Encrypts values; `None` if the folder's values are not encrypted.
    values: Option<Box<dyn Values + Sync>>,
    migration: Option<Migration>,
    /// The next free offset. It is given to an object whose version another object already has.
    free: Mutex<u64>,
}

impl ToFolder {
    pub fn new(folder: &Path, values: Option<Box<dyn Values + Sync>>) -> ToFolder {
        ToFolder { folder: folder.to_owned(), values, migration: None, free: Mutex::new(0) }
    }

    fn migration(&self) -> Result<&Migration, Stopped> {
        self.migration.as_ref().ok_or_else(|| Stopped::Refused("the migration has not begun".into()))
    }

    /// Several objects may have one version, because one transaction of etcd can write them. The first object keeps the
    /// version, and the other objects get free versions.
    fn with_own_version(&self, record: Record, taken: &BTreeSet<u64>) -> Result<Record, Stopped> {
        let is_other = |found: Record| found.resource != record.resource || found.key != record.key;
        let is_taken = taken.contains(&record.offset) || self.migration()?.read(record.offset())?.is_some_and(is_other);
        if !is_taken {
            return Ok(record);
        }
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let offset = *free;
        *free += 1;
        let object = renumbered(&record.key, &record.object, Offset(offset));
        let object = object.map_err(|why| Stopped::Unreadable(why.into()))?;
        Ok(Record { offset, object, ..record })
    }
}

/// Builds the event of an object from its value in etcd.
fn event(pair: StoredPair) -> Result<Option<Record>, Unmovable> {
    let (kind, resource, key) = match pair.meaning {
        Meaning::Object { kind, resource, key } => (kind, resource, key),
        Meaning::Derived(_) => return Ok(None),
        Meaning::Unknown(why) => {
            let key = String::from_utf8_lossy(&pair.found.key).into_owned();
            return Err(format!("the value stored under {key} cannot be read: {why}").into());
        }
    };
    let stored = String::from_utf8_lossy(&pair.found.key);
    let offset = pair.found.mod_revision;
    let (object, author) = read_event(kind, &stored, &pair.found.value, Offset(offset))?;
    let time_ms = author.time.parse::<Timestamp>().map_or_else(|_| now_ms(), |time| time.as_millisecond());
    Ok(Some(Record {
        offset,
        time_ms,
        resource,
        key,
        replaces: 0,
        operation: Operation::Put as i32,
        actor: Actor { manager: author.manager, ..Actor::default() },
        object,
    }))
}

impl Destination for ToFolder {
    type Ready = Record;

    fn name(&self) -> String {
        self.folder.display().to_string()
    }

    fn read_note(&mut self) -> Result<Option<Note>, Stopped> {
        if !Migration::has_begun(&self.folder)? {
            return Ok(None);
        }
        let migration = Migration::open(&self.folder)?;
        let note = migration.note()?.map(|note| Note::decode(note.as_slice())).transpose();
        let note = note.map_err(|error| Fault::io("read the migration's note", error))?;
        self.migration = Some(migration);
        Ok(note)
    }

    fn begin(&mut self, note: &Note) -> Result<(), Stopped> {
        let migration = match self.migration.take() {
            Some(migration) => migration,
            None => Migration::open(&self.folder)?,
        };
        migration.append(&[], &note.encode_to_vec())?;
        *self.free.lock().unwrap_or_else(PoisonError::into_inner) = migration.last()?.0.max(note.version) + 1;
        self.migration = Some(migration);
        Ok(())
    }

    fn prepare(&self, object: Movable) -> Result<Option<Prepared<Record>>, Unmovable> {
        let record = match object {
            Movable::Event(record) => Some(record),
            Movable::Pair(pair) => event(pair)?,
        };
        Ok(record.map(|ready| Prepared { bytes: ready.object.len(), ready }))
    }

    fn write(&self, batch: Vec<Record>, note: &Note) -> Result<(), Stopped> {
        let (mut records, mut taken) = (Vec::with_capacity(batch.len()), BTreeSet::new());
        for record in batch {
            let record = self.with_own_version(record, &taken)?;
            taken.insert(record.offset);
            records.push(match &self.values {
                Some(values) => values.seal(record)?,
                None => record,
            });
        }
        Ok(self.migration()?.append(&records, &note.encode_to_vec())?)
    }

    fn finish(&mut self) -> Result<u64, Stopped> {
        let migration = self.migration.take();
        let migration = migration.ok_or_else(|| Stopped::Refused("the migration has not begun".into()))?;
        let free = *self.free.lock().unwrap_or_else(PoisonError::into_inner);
        migration.finish(Offset(free - 1))?;
        Ok(free - 1)
    }
}
