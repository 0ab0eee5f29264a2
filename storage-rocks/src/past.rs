//! Reads the state at a version from the index of versions. The cost does not grow with later events or with other
//! objects.

use crate::fault::damage;
use crate::key::{self, BY_RESOURCE, HISTORY, Mark};
use crate::store::{family, foreign, missing, read};
use holdfast_core::event::Offset;
use holdfast_engine::log::First;
use holdfast_engine::{AsOf, Changed, Changes, Fault};
use rocksdb::{DB, DBRawIterator, ReadOptions};
use std::ops::ControlFlow;
use std::path::Path;

/// The number of versions of one object that are read in sequence before seeking to the next object or version. Reading
/// the next row is far cheaper than a seek, and most objects have few versions.
const STEPS_MAX: usize = 8;
/// The number of events of a resource that are read in sequence before the events of the selected objects are looked up
/// instead. A watcher that was disconnected briefly has missed few events.
const LOOKS_MAX: usize = 1024;

/// The newest event on the object up to a version, unless it is a deletion.
pub fn version_at(db: &DB, folder: &Path, resource: &str, key: &str, at: Offset) -> Result<Option<Offset>, Fault> {
    let object = key::object(resource, key);
    let mut bounds = ReadOptions::default();
    bounds.set_iterate_lower_bound(key::versioned(&object, Offset::ZERO));
    let mut rows = db.raw_iterator_cf_opt(family(db, HISTORY)?, bounds);
    rows.seek_for_prev(key::versioned(&object, at));
    let Some((_, offset, mark)) = row(&rows, folder)? else { return Ok(None) };
    present(db, folder, offset, mark)
}

/// See [`LogRead::as_of`](holdfast_engine::LogRead::as_of).
pub fn as_of(
    db: &DB,
    folder: &Path,
    asked: &AsOf,
    visit: &mut dyn FnMut(&str, Offset) -> ControlFlow<()>,
) -> Result<(), Fault> {
    let AsOf { resource, prefix, after, at } = *asked;
    let root = key::object(resource, "");
    let mut bounds = ReadOptions::default();
    bounds.set_iterate_upper_bound(end_of(key::object(resource, prefix)));
    let mut rows = db.raw_iterator_cf_opt(family(db, HISTORY)?, bounds);
    match after.filter(|after| *after >= prefix) {
        Some(after) => rows.seek(behind(&key::object(resource, after))),
        None => rows.seek(key::object(resource, prefix)),
    }
    let mut object = Vec::new();
    while let Some((name, offset, mark)) = row(&rows, folder)? {
        object.clear();
        object.extend_from_slice(name);
        let newest = newest_of(&mut rows, folder, &object, (offset, mark), at)?;
        let Some((offset, mark)) = newest else { continue };
        let Some(offset) = present(db, folder, offset, mark)? else { continue };
        let key = std::str::from_utf8(&object[root.len()..]).map_err(|_| foreign(HISTORY, folder))?;
        if visit(key, offset).is_break() {
            break;
        }
    }
    Ok(())
}

/// See [`LogRead::changes`](holdfast_engine::LogRead::changes). If there are few events since `after`, uses the index
/// of the resource's events, otherwise the versions of each object.
pub fn changes(db: &DB, folder: &Path, asked: &Changes, limit: usize) -> Result<Changed, Fault> {
    if asked.after >= asked.until {
        return Ok(Changed { offsets: Vec::new(), through: asked.until });
    }
    let near = of_resource(db, folder, asked, limit)?;
    let is_enough = near.offsets.len() >= limit || near.through >= asked.until || asked.prefix.is_empty();
    if is_enough { Ok(near) } else { of_objects(db, folder, asked, limit) }
}

/// The first matching events of the resource, after skipping a bounded number of other events.
fn of_resource(db: &DB, folder: &Path, asked: &Changes, limit: usize) -> Result<Changed, Fault> {
    let name = asked.resource.as_bytes();
    let mut bounds = ReadOptions::default();
    bounds.set_iterate_upper_bound(key::versioned(name, asked.until.next()));
    let mut rows = db.raw_iterator_cf_opt(family(db, BY_RESOURCE)?, bounds);
    rows.seek(key::versioned(name, asked.after.next()));
    let looks_max = if asked.prefix.is_empty() { limit } else { LOOKS_MAX };
    let mut found = Changed { offsets: Vec::new(), through: asked.after };
    for _ in 0..looks_max {
        let Some((entry, object)) = rows.item() else {
            rows.status().map_err(|error| damage("read events", folder, found.through, error))?;
            return Ok(Changed { through: asked.until, ..found });
        };
        let (_, offset) = key::parse_versioned(entry).ok_or_else(|| foreign(BY_RESOURCE, folder))?;
        found.through = offset;
        if object.starts_with(asked.prefix.as_bytes()) {
            found.offsets.push(offset);
            if found.offsets.len() >= limit {
                break;
            }
        }
        rows.next();
    }
    Ok(found)
}

/// The first events on the matching objects, found in their versions.
fn of_objects(db: &DB, folder: &Path, asked: &Changes, limit: usize) -> Result<Changed, Fault> {
    let start = key::object(asked.resource, asked.prefix);
    let mut bounds = ReadOptions::default();
    bounds.set_iterate_upper_bound(end_of(start.clone()));
    let mut rows = db.raw_iterator_cf_opt(family(db, HISTORY)?, bounds);
    rows.seek(start);
    let (mut first, mut object, mut older) = (First::new(limit), Vec::new(), 0);
    while let Some((name, offset, _)) = row(&rows, folder)? {
        if offset > asked.after && offset <= asked.until {
            first.note(offset);
        }
        if name != object {
            object.clear();
            object.extend_from_slice(name);
            older = 0;
        }
        if offset > asked.until {
            rows.seek(behind(&object));
        } else if offset <= asked.after && older >= STEPS_MAX {
            rows.seek(key::versioned(&object, asked.after.next()));
        } else {
            older += 1;
            rows.next();
        }
    }
    Ok(first.changed(asked.until))
}

/// The newest row of an object up to a version. The iterator must be at the object's first row; afterwards it is after
/// the object's last row.
fn newest_of(
    rows: &mut DBRawIterator,
    folder: &Path,
    object: &[u8],
    first: (Offset, Mark),
    at: Offset,
) -> Result<Option<(Offset, Mark)>, Fault> {
    let mut newest = Some(first).filter(|first| first.0 <= at);
    for _ in 0..STEPS_MAX {
        rows.next();
        match row(rows, folder)? {
            Some((name, offset, mark)) if name == object => {
                if offset <= at {
                    newest = Some((offset, mark));
                }
            }
            _ => return Ok(newest),
        }
    }
    if newest.is_some() {
        rows.seek_for_prev(key::versioned(object, at));
        newest = row(rows, folder)?.map(|(_, offset, mark)| (offset, mark));
    }
    rows.seek(behind(object));
    Ok(newest)
}

fn present(db: &DB, folder: &Path, offset: Offset, mark: Mark) -> Result<Option<Offset>, Fault> {
    let there = match mark {
        Mark::Put => true,
        Mark::Delete => false,
        Mark::Untold => !read(db, folder, offset)?.ok_or_else(|| missing(folder, offset))?.is_delete(),
    };
    Ok(there.then_some(offset))
}

/// An object's name, the offset of one of its events, and the row's mark.
type IndexRow<'a> = (&'a [u8], Offset, Mark);

/// Reads the row at the position of the iterator; `None` if there is no row.
fn row<'a>(rows: &'a DBRawIterator, folder: &Path) -> Result<Option<IndexRow<'a>>, Fault> {
    let Some((entry, mark)) = rows.item() else {
        let ended = rows.status().map_err(|error| damage("read a history", folder, Offset::ZERO, error));
        return ended.map(|()| None);
    };
    let (name, offset) = key::parse_versioned(entry).ok_or_else(|| foreign(HISTORY, folder))?;
    Ok(Some((name, offset, Mark::parse(mark))))
}

/// A key after all versions of the object, and before every other object.
fn behind(object: &[u8]) -> Vec<u8> {
    let mut end = object.to_vec();
    end.push(1);
    end
}

/// The first key after all keys that begin with `start`, whose last byte must not be 255.
fn end_of(mut start: Vec<u8>) -> Vec<u8> {
    if let Some(last) = start.last_mut() {
        *last += 1;
    }
    start
}
