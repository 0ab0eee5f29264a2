//! Lets go of old events: what a later one has replaced, up to a version.

use crate::fault::fault;
use crate::key::{self, BY_RESOURCE, CURRENT, EVENTS, HISTORY, META, META_OLDEST};
use crate::log::{family, last, oldest, read, synced};
use holdfast_core::event::Offset;
use holdfast_engine::Fault;
use rocksdb::{DB, IteratorMode, WriteBatch};
use std::path::Path;

/// How many events go at a time.
const PIECE: usize = 1000;

pub fn forget(db: &DB, folder: &Path, through: Offset) -> Result<(), Fault> {
    let through = through.min(last(db, folder)?);
    if through <= oldest(db)? {
        return Ok(());
    }
    // First of all, so that nobody counts on what a crash may leave half gone.
    db.put_cf_opt(family(db, META)?, META_OLDEST, key::offset(through), &synced())
        .map_err(|error| fault("note its beginning", error))?;
    let mut object = Object::default();
    let mut gone = Vec::new();
    for item in db.iterator_cf(family(db, HISTORY)?, IteratorMode::Start) {
        let (entry, _) = item.map_err(|error| fault("read its history", error))?;
        let Some((name, offset)) = key::parse_versioned(&entry) else { continue };
        if object.name != name {
            object.end(db, &mut gone)?;
            object = Object { name: name.to_vec(), ..Object::default() };
        }
        if offset <= through {
            gone.extend(object.newest.replace(offset));
        } else {
            object.goes_on = true;
        }
        if gone.len() >= PIECE {
            remove(db, folder, &mut gone)?;
        }
    }
    object.end(db, &mut gone)?;
    remove(db, folder, &mut gone)
}

/// One object's events, in their order.
#[derive(Default)]
struct Object {
    name: Vec<u8>,
    /// The newest event up to the version: what it was like then.
    newest: Option<Offset>,
    /// There are events behind the version, which need the one before them.
    goes_on: bool,
}

impl Object {
    /// An object that was deleted by then leaves nothing.
    fn end(&mut self, db: &DB, gone: &mut Vec<Offset>) -> Result<(), Fault> {
        if self.goes_on || self.newest.is_none() {
            return Ok(());
        }
        let current =
            db.get_cf(family(db, CURRENT)?, &self.name).map_err(|error| fault("read what is current", error))?;
        if current.is_none() {
            gone.extend(self.newest.take());
        }
        Ok(())
    }
}

fn remove(db: &DB, folder: &Path, gone: &mut Vec<Offset>) -> Result<(), Fault> {
    let mut batch = WriteBatch::default();
    for offset in gone.drain(..) {
        let Some(record) = read(db, folder, offset)? else { continue };
        let object = key::object(&record.resource, &record.key);
        batch.delete_cf(family(db, EVENTS)?, key::offset(offset));
        batch.delete_cf(family(db, HISTORY)?, key::versioned(&object, offset));
        batch.delete_cf(family(db, BY_RESOURCE)?, key::versioned(record.resource.as_bytes(), offset));
    }
    db.write(batch).map_err(|error| fault("let go of old events", error))
}
