//! Reads a log while a server writes it, for commands that read a data folder.

use crate::fault::{FolderFault, fault};
use crate::past;
use crate::store::{check_format, current, descriptors, each, last, oldest, options, read, repaired, scan, versions};
use crate::whole::check_log;
use holdfast_core::event::{Offset, Record};
use holdfast_engine::log::Identity;
use holdfast_engine::{AsOf, Changed, Changes, Fault, LogRead, Size};
use rocksdb::DB;
use std::fs::Permissions;
use std::ops::ControlFlow;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Follows the log of a data folder without taking its lock.
pub struct LogReader {
    folder: PathBuf,
    db: DB,
    /// The folder for the files that RocksDB itself writes for a secondary, which is a store that only reads the files
    /// of another store.
    _notes: tempfile::TempDir,
}

impl LogReader {
    pub fn open(folder: &Path) -> Result<LogReader, FolderFault> {
        check_log(folder)?;
        let path = folder.join("log");
        let owner = Permissions::from_mode(0o700);
        let notes = tempfile::Builder::new()
            .permissions(owner)
            .tempdir()
            .map_err(|error| Fault::io("make a temporary folder", error))?;
        let mut options = options();
        options.create_if_missing(false);
        // A secondary keeps all files open, because the writer may remove a file that the secondary is still reading.
        options.set_max_open_files(-1);
        let db = DB::open_cf_descriptors_as_secondary(&options, &path, &notes.path().to_owned(), descriptors())
            .map_err(|error| fault("open for reading", error))?;
        check_format(&db, folder)?;
        Ok(LogReader { folder: folder.to_owned(), db, _notes: notes })
    }

    /// Reads the events that the server has written since the last read.
    pub fn catch_up(&self) -> Result<(), Fault> {
        self.db.try_catch_up_with_primary().map_err(|error| fault("follow", error))
    }
}

/// Reads the log's state at the time of opening, or of the last [`catch_up`](LogReader::catch_up).
impl LogRead for LogReader {
    fn last(&self) -> Result<Offset, Fault> {
        last(&self.db, &self.folder)
    }

    fn read(&self, offset: Offset) -> Result<Option<Record>, Fault> {
        read(&self.db, &self.folder, offset)
    }

    fn current(&self, visit: &mut dyn FnMut(Record) -> Result<(), Fault>) -> Result<(), Fault> {
        current(&self.db, &self.folder, visit)
    }

    fn scan(&self, resource: Option<&str>, after: Offset, limit: usize) -> Result<Vec<Record>, Fault> {
        scan(&self.db, &self.folder, resource, after, limit)
    }

    fn each(&self, after: Offset, visit: &mut dyn FnMut(&Record) -> ControlFlow<()>) -> Result<(), Fault> {
        each(&self.db, &self.folder, after, visit)
    }

    fn changes(&self, asked: &Changes, limit: usize) -> Result<Changed, Fault> {
        past::changes(&self.db, &self.folder, asked, limit)
    }

    fn versions(&self, resource: &str, key: &str) -> Result<Vec<Offset>, Fault> {
        versions(&self.db, &self.folder, resource, key)
    }

    fn version_at(&self, resource: &str, key: &str, at: Offset) -> Result<Option<Offset>, Fault> {
        past::version_at(&self.db, &self.folder, resource, key, at)
    }

    fn as_of(&self, asked: &AsOf, visit: &mut dyn FnMut(&str, Offset) -> ControlFlow<()>) -> Result<(), Fault> {
        past::as_of(&self.db, &self.folder, asked, visit)
    }

    fn oldest(&self) -> Result<Offset, Fault> {
        oldest(&self.db)
    }

    fn size(&self) -> Result<Size, Fault> {
        crate::forget::size(&self.db, None)
    }

    fn identity(&self) -> Result<Identity, Fault> {
        crate::identity::read(&self.db)
    }

    fn repaired(&self) -> Result<Offset, Fault> {
        repaired(&self.db)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RocksLog;
    use holdfast_core::event::{Actor, Operation};
    use holdfast_engine::Log;

    fn put(offset: u64, resource: &str, key: &str) -> Record {
        Record {
            offset,
            resource: resource.into(),
            key: key.into(),
            operation: Operation::Put as i32,
            actor: Actor::default(),
            object: format!("{offset}").into(),
            ..Record::default()
        }
    }

    #[test]
    fn a_reader_beside_the_writer_sees_the_same() {
        let folder = tempfile::tempdir().expect("a folder");
        let log = RocksLog::open(folder.path()).expect("a log");
        // The keys have a common prefix. They are in two resources, whose names also have a common prefix.
        let names = [("pods", "a/b"), ("pods", "a/bc"), ("pods", "a/b"), ("podspecs", "a/b"), ("pods", "a/b")];
        let records: Vec<Record> =
            (1..).zip(names).map(|(offset, (resource, key))| put(offset, resource, key)).collect();
        assert!(log.append(&records[..3]).expect("written").is_appended());
        let reader = LogReader::open(folder.path()).expect("a reader");
        assert_eq!(reader.last().expect("a last event"), Offset(3));
        assert!(log.append(&records[3..]).expect("written").is_appended());
        reader.catch_up().expect("caught up");
        let logs: [&dyn LogRead; 2] = [&log, &reader];
        for log in logs {
            for (resource, key, expected) in [
                ("pods", "a/b", &[1, 3, 5][..]),
                ("pods", "a/bc", &[2]),
                ("podspecs", "a/b", &[4]),
                ("pods", "a", &[]),
                ("pod", "s/a/b", &[]),
            ] {
                let offsets: Vec<u64> = log.versions(resource, key).expect("versions").iter().map(|at| at.0).collect();
                assert_eq!(offsets, expected, "{resource}/{key}");
            }
            assert_eq!(log.scan(Some("pods"), Offset(1), 9).expect("events").len(), 3);
            assert_eq!(log.read(Offset(4)).expect("an event").as_ref(), Some(&records[3]));
            let mut current = Vec::new();
            log.current(&mut |record| {
                current.push(record.offset);
                Ok(())
            })
            .expect("objects");
            assert_eq!(current, [2, 4, 5]);
        }
        assert_eq!(log.last().expect("a last event"), Offset(5));
    }
}
