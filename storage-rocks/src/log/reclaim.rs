//! Frees the disk space of forgotten events, on a disk with little free space.
//!
//! A compaction writes the remaining events of tables before it removes the tables, and may need as much room as all
//! tables. So the steps that need no room are carried out first. Memory is flushed to tables, which removes write-ahead
//! logs, and tables without remaining events are dropped. Then tables with few remaining events are rewritten, a few at
//! a time. Last, all tables are compacted, range by range, as far as there is room for the remaining events of a range.

use super::RocksLog;
use crate::fault::fault;
use crate::forget::ForgetProgress;
use crate::key::{self, BY_RESOURCE, CURRENT, EVENTS, FAMILIES, HISTORY};
use crate::store::{family, oldest};
use holdfast_core::event::Offset;
use holdfast_engine::{Fault, Log};
use rocksdb::{DB, LiveFile, ReadOptions, WriteBatch, WriteOptions};
use std::thread::sleep;
use std::time::Duration;

/// The minimum number of forgotten bytes for which tables are compacted; fewer bytes are not worth the work.
const WORTH_BYTES: u64 = 4 << 20;
/// A table is rewritten if the events that remain have at most this many eighths of its bytes. There is one number for
/// each pass over the tables. The first pass rewrites the tables that free the most space for the work.
const LEFT_EIGHTHS: [u64; 2] = [4, 7];
/// The number of bytes of events that are rewritten at a time.
const PIECE_BYTES: u64 = 8 << 20;
/// The duration of one wait for running compactions to end.
const WAIT: Duration = Duration::from_millis(20);
/// The maximum number of waits for running compactions.
const WAITS: usize = 100;

pub fn make_room(log: &RocksLog) -> Result<(), Fault> {
    if log.write_ahead_bytes() >= WORTH_BYTES {
        // Files of other programs may have used the room that this flush needs.
        log.room().take_now(log.in_memory_bytes());
        log.with(flush)?;
        log.room().wake_waiters();
    }
    // Rewritten events stay in the newest level until the old tables are dropped. A compaction that runs before the old
    // tables are dropped could move these events into a table that is dropped later.
    log.let_compact(false)?;
    if log.failed_in_background() {
        log.recover()?;
    }
    if !becomes_still(log) || log.with(|db, _| garbage_of(db))? < WORTH_BYTES {
        return Ok(());
    }
    // The writes that forget an event are made durable before the table of the event is dropped.
    log.with(|db, _| db.flush_wal(true).map_err(|error| fault("sync the log", error)))?;
    while log.with(|db, _| drop_empty(db))? {}
    log.room().wake_waiters();
    for eighths in LEFT_EIGHTHS {
        let mut looked_at = Vec::new();
        while log.room().is_short() && log.with(|db, _| write_again(db, log, eighths, &mut looked_at))? {
            log.room().wake_waiters();
        }
    }
    compact_piecewise(log)
}

/// Compacts all old events, one range after another, until the disk is no longer short of room. The remaining events of
/// a range are written before its old tables are removed. The reserve may provide the room, and grows again when the
/// tables are removed.
fn compact_piecewise(log: &RocksLog) -> Result<(), Fault> {
    let mut from = Vec::new();
    let through = log.with(|db, _| oldest(db))?.next();
    while log.with(|db, _| garbage_of(db))? >= WORTH_BYTES {
        // A compaction rewrites the tables at both ends of the range completely, so the range may have only half of the
        // bytes for which there is room.
        let most = log.room().most_to_compact() / 2;
        let (to, left) = log.with(|db, _| range_with(db, &from, &key::offset(through), most))?;
        if to <= from || !log.room().take_to_compact(left) {
            break;
        }
        log.with(|db, _| {
            let before = taken(db)?;
            crate::forget::compact_events(db, &from, &to)?;
            discount(db, before.saturating_sub(taken(db)?))
        })?;
        log.room().wake_waiters();
        from = to;
        if !log.room().is_short() {
            break;
        }
    }
    Ok(())
}

/// The end of the longest range of events that starts at `from` and has at most `most` remaining bytes, and the number
/// of these bytes.
fn range_with(db: &DB, from: &[u8], end: &[u8], most: u64) -> Result<(Vec<u8>, u64), Fault> {
    let range = OldTable { start: from.to_vec(), end: end.to_vec(), bytes: 0 };
    let (mut last, mut bytes) = (Vec::new(), 0);
    let whole = left(db, &range, most, &mut |key, value| {
        last = key.to_vec();
        bytes += (key.len() + value.len()) as u64;
    })?;
    Ok((if whole.is_some() { range.end } else { last }, bytes))
}

/// Waits until no table is being compacted. Returns false if compactions still run after `WAITS` waits.
fn becomes_still(log: &RocksLog) -> bool {
    for _ in 0..WAITS {
        if is_still(log) {
            return true;
        }
        sleep(WAIT);
    }
    false
}

fn is_still(log: &RocksLog) -> bool {
    let running = log.with(|db, _| {
        db.property_int_value("rocksdb.num-running-compactions").map_err(|error| fault("tell what it does", error))
    });
    running.is_ok_and(|running| running.unwrap_or(0) == 0)
}

/// Flushes all column families, which removes older write-ahead logs.
fn flush(db: &DB, _: &std::path::Path) -> Result<(), Fault> {
    for name in FAMILIES {
        db.flush_cf(family(db, name)?).map_err(|error| fault("write tables", error))?;
    }
    Ok(())
}

fn garbage_of(db: &DB) -> Result<u64, Fault> {
    Ok(ForgetProgress::read(db)?.garbage)
}

/// The number of bytes in tables that a compaction would rewrite.
fn taken(db: &DB) -> Result<u64, Fault> {
    let mut bytes = 0;
    for name in [EVENTS, HISTORY, BY_RESOURCE, CURRENT] {
        let found = db.property_int_value_cf(family(db, name)?, "rocksdb.live-sst-files-size");
        bytes += found.map_err(|error| fault("tell its size", error))?.unwrap_or(0);
    }
    Ok(bytes)
}

/// A table of old events whose range overlaps no other table below the newest level. Deleting the file of such a table
/// removes its events completely.
struct OldTable {
    start: Vec<u8>,
    end: Vec<u8>,
    bytes: u64,
}

/// The tables of events that overlap no other table, in all levels except the newest.
fn tables(db: &DB) -> Result<Vec<OldTable>, Fault> {
    let files: Vec<LiveFile> = db.live_files().map_err(|error| fault("list its tables", error))?;
    let events: Vec<_> = files.into_iter().filter(|file| file.column_family_name == EVENTS && file.level > 0).collect();
    let mut ranges: Vec<(Vec<u8>, Vec<u8>, u64)> =
        events.into_iter().filter_map(|file| Some((file.start_key?, file.end_key?, file.size as u64))).collect();
    ranges.sort();
    let mut tables: Vec<OldTable> = Vec::new();
    let mut reaches: Option<Vec<u8>> = None;
    let mut overlaps = false;
    for (start, end, bytes) in ranges {
        if reaches.as_ref().is_some_and(|reaches| *reaches >= start) {
            // If two tables overlap, neither of them is usable as an [`OldTable`].
            if !overlaps {
                tables.pop();
            }
            overlaps = true;
        } else {
            tables.push(OldTable { start, end: end.clone(), bytes });
            overlaps = false;
        }
        reaches = reaches.max(Some(end));
    }
    Ok(tables)
}

/// The number of remaining bytes of the table's events; `None` if it exceeds `most`.
fn left(db: &DB, table: &OldTable, most: u64, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<Option<u64>, Fault> {
    let mut reading = ReadOptions::default();
    let mut end = table.end.clone();
    end.push(0);
    reading.set_iterate_upper_bound(end);
    reading.fill_cache(false);
    let mut entries = db.raw_iterator_cf_opt(family(db, EVENTS)?, reading);
    entries.seek(&table.start);
    let mut bytes = 0;
    while let Some((key, value)) = entries.item() {
        bytes += (key.len() + value.len()) as u64;
        if bytes > most {
            return Ok(None);
        }
        visit(key, value);
        entries.next();
    }
    entries.status().map_err(|error| fault("read events", error))?;
    Ok(Some(bytes))
}

/// Drops the tables without remaining events. Returns whether a table was dropped. If so, tables that overlapped a
/// dropped table may now overlap no other table.
fn drop_empty(db: &DB) -> Result<bool, Fault> {
    let mut dropped = 0;
    for table in tables(db)? {
        if is_old(db, &table)? && left(db, &table, 0, &mut |_, _| {})? == Some(0) {
            drop_table(db, &table)?;
            dropped += table.bytes;
        }
    }
    if dropped > 0 {
        discount(db, dropped)?;
    }
    Ok(dropped > 0)
}

/// Rewrites the remaining events of the next tables, and drops these tables. Returns whether there may be more tables.
/// `looked_at` is the end of the last table that was checked.
fn write_again(db: &DB, log: &RocksLog, eighths: u64, looked_at: &mut Vec<u8>) -> Result<bool, Fault> {
    // If compactions are allowed, the store was opened again in the meantime.
    if log.compacts() {
        return Ok(false);
    }
    let mut batch = WriteBatch::default();
    let (mut copied, mut dropped) = (0, Vec::new());
    let events = family(db, EVENTS)?;
    let mut more = false;
    for table in tables(db)?.into_iter().filter(|table| table.end > *looked_at).collect::<Vec<_>>() {
        if copied > PIECE_BYTES / 2 {
            more = true;
            break;
        }
        looked_at.clone_from(&table.end);
        let most = (table.bytes / 8 * eighths).min(PIECE_BYTES);
        if !is_old(db, &table)? {
            continue;
        }
        let mut kept = Vec::new();
        let found = left(db, &table, most, &mut |key, value| kept.push((key.to_vec(), value.to_vec())))?;
        if let Some(bytes) = found {
            kept.iter().for_each(|(key, value)| batch.put_cf(events, key, value));
            copied += bytes;
            dropped.push(table);
        }
    }
    if dropped.is_empty() || !log.room().is_there(copied) {
        return Ok(more);
    }
    // Before the old tables are dropped, the events are flushed to a table of the newest level, which is never dropped
    // here. Until then the old tables have the events, so the writes need no write-ahead log.
    let mut writing = WriteOptions::default();
    writing.disable_wal(true);
    db.write_opt(batch, &writing).map_err(|error| fault("write old events again", error))?;
    db.flush_cf(events).map_err(|error| fault("write old events again", error))?;
    for table in &dropped {
        drop_table(db, table)?;
    }
    discount(db, dropped.iter().map(|table| table.bytes).sum::<u64>().saturating_sub(copied))?;
    Ok(more)
}

/// Whether all events of a table are old enough to be forgotten.
fn is_old(db: &DB, table: &OldTable) -> Result<bool, Fault> {
    Ok(key::parse_offset(&table.end).unwrap_or(Offset(u64::MAX)) <= oldest(db)?)
}

fn drop_table(db: &DB, table: &OldTable) -> Result<(), Fault> {
    let dropped = db.delete_file_in_range_cf(family(db, EVENTS)?, &table.start, &table.end);
    dropped.map_err(|error| fault("drop a table", error))
}

/// Subtracts a number of bytes that no longer wait for compaction.
fn discount(db: &DB, bytes: u64) -> Result<(), Fault> {
    let mut progress = ForgetProgress::read(db)?;
    progress.garbage = progress.garbage.saturating_sub(bytes);
    let mut batch = WriteBatch::default();
    progress.stage(db, &mut batch)?;
    db.write(batch).map_err(|error| fault("note its compaction", error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::Durability;
    use crate::room::Reserve;
    use holdfast_core::event::{Operation, Record};
    use holdfast_engine::LogRead;
    use std::collections::BTreeMap;
    use std::sync::atomic::{AtomicBool, Ordering};

    const OBJECTS: u64 = 240;
    const BYTES: usize = 200_000;

    fn record(offset: u64, key: u64, replaces: u64, bytes: usize) -> Record {
        // Each object contains noise, which are bytes that compression cannot shrink.
        let mut seed = offset.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let noise = std::iter::repeat_with(|| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed as u8
        });
        let operation = if replaces > 0 { Operation::Delete } else { Operation::Put };
        Record {
            offset,
            resource: "configmaps".into(),
            key: format!("n/{key:04}"),
            replaces,
            operation: operation as i32,
            object: noise.take(bytes).collect::<Vec<u8>>().into(),
            ..Record::default()
        }
    }

    fn found(log: &RocksLog) -> BTreeMap<String, Record> {
        let mut found = BTreeMap::new();
        log.current(&mut |record| {
            found.insert(record.key.clone(), record);
            Ok(())
        })
        .expect("what is current");
        found
    }

    #[test]
    fn what_was_let_go_gives_its_room_back_and_nothing_else_goes() {
        let folder = tempfile::tempdir().expect("a folder");
        let log = RocksLog::open(folder.path()).expect("a log");
        let made: Vec<Record> = (1..=OBJECTS).map(|offset| record(offset, offset, 0, BYTES)).collect();
        for batch in made.chunks(10) {
            log.append(batch).expect("appended");
        }
        // All objects of the first third are deleted, two of three objects of the second third, and no object of the
        // last third.
        let third = OBJECTS / 3;
        let gone = (1..=third).chain((third + 1..2 * third).filter(|key| key % 3 > 0));
        let deleted: Vec<Record> = gone.zip(OBJECTS + 1..).map(|(key, offset)| record(offset, key, key, 100)).collect();
        log.append(&deleted).expect("appended");
        let expected = found(&log);
        log.forget(log.last().expect("the last")).expect("let go");
        log.with(flush).expect("written");
        let before = log.with(|db, _| taken(db)).expect("its size");
        let is_there = |log: &RocksLog| assert!(found(log) == expected, "what is current is there, and as it was");

        // Compactions are not allowed, so tables are only dropped and rewritten.
        log.let_compact(false).expect("stopped");
        assert!(becomes_still(&log));
        while log.with(|db, _| drop_empty(db)).expect("dropped") {}
        let dropped = log.with(|db, _| taken(db)).expect("its size");
        assert!(dropped < before, "{dropped} of {before}");
        is_there(&log);
        let mut looked_at = Vec::new();
        while log.with(|db, _| write_again(db, &log, 4, &mut looked_at)).expect("written again") {}
        let written = log.with(|db, _| taken(db)).expect("its size");
        assert!(written < dropped, "{written} of {dropped}");
        is_there(&log);

        // If the remaining events of a range exceed the room, the range is compacted in pieces.
        let end = key::offset(log.oldest().expect("the oldest").next());
        let (mut from, mut pieces) = (Vec::new(), 0);
        loop {
            let most = 20 * BYTES as u64;
            let (to, left) = log.with(|db, _| range_with(db, &from, &end, most)).expect("a range");
            assert!(left <= most);
            if to <= from {
                break;
            }
            log.with(|db, _| crate::forget::compact_events(db, &from, &to)).expect("compacted");
            (from, pieces) = (to, pieces + 1);
        }
        assert!(pieces > 3 && from == end, "{pieces}");
        let compacted = log.with(|db, _| taken(db)).expect("its size");
        assert!(compacted < written, "{compacted} of {written}");
        is_there(&log);

        make_room(&log).expect("made");
        let after = log.with(|db, _| taken(db)).expect("its size");
        assert!(after <= (expected.len() * BYTES) as u64 * 5 / 4, "{after} of {before}");
        is_there(&log);
        drop(log);
        is_there(&RocksLog::open(folder.path()).expect("the same"));
    }

    /// A thread that waits for room reads the number of bytes in memory from the store, while a thread that reopens the
    /// store checks the room. The two threads must not wait for each other.
    #[test]
    fn waiting_for_room_and_opening_anew_go_on_beside_each_other() {
        let folder = tempfile::tempdir().expect("a folder");
        let log = RocksLog::open_with(folder.path(), Durability::Synced, Reserve::Bytes(1 << 20)).expect("a log");
        let is_done = AtomicBool::new(false);
        std::thread::scope(|threads| {
            threads.spawn(|| {
                while !is_done.load(Ordering::Relaxed) {
                    log.take_reserve(0).expect("room");
                }
            });
            for _ in 0..20 {
                log.recover().expect("opened again");
            }
            is_done.store(true, Ordering::Relaxed);
        });
    }
}
