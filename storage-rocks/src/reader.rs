//! Reading a log beside the server that writes it: for the subcommands of `holdfast log` that only read.

use crate::fault::fault;
use crate::log::{check_format, current, descriptors, last, oldest, options, repaired, scan};
use holdfast_core::event::{Offset, Record};
use holdfast_engine::Fault;
use rocksdb::DB;
use std::path::{Path, PathBuf};

/// Follows the log of a data folder without taking its lock.
pub struct LogReader {
    folder: PathBuf,
    db: DB,
    /// RocksDB keeps a follower's own notes here.
    _notes: tempfile::TempDir,
}

impl LogReader {
    pub fn open(folder: &Path) -> Result<LogReader, Fault> {
        crate::import::check_whole(folder)?;
        let path = folder.join("log");
        if !path.join("CURRENT").exists() {
            return Err(Fault::Unreadable { what: format!("{} holds no Holdfast log", folder.display()) });
        }
        let notes = tempfile::tempdir().map_err(|error| Fault::io("make a temporary folder", error))?;
        let mut options = options();
        options.create_if_missing(false);
        // A follower keeps all files open, for the writer may remove one that it still reads.
        options.set_max_open_files(-1);
        let db = DB::open_cf_descriptors_as_secondary(&options, &path, &notes.path().to_owned(), descriptors())
            .map_err(|error| fault("open for reading", error))?;
        check_format(&db, folder)?;
        Ok(LogReader { folder: folder.to_owned(), db, _notes: notes })
    }

    /// Takes in what the server has written since.
    pub fn catch_up(&self) -> Result<(), Fault> {
        self.db.try_catch_up_with_primary().map_err(|error| fault("follow", error))
    }

    pub fn last(&self) -> Result<Offset, Fault> {
        last(&self.db, &self.folder)
    }

    /// From this version on everything is there; zero when nothing was ever let go.
    pub fn oldest(&self) -> Result<Offset, Fault> {
        oldest(&self.db)
    }

    /// Gaps up to this one were left by repairs, which told of them.
    pub fn repaired(&self) -> Result<Offset, Fault> {
        repaired(&self.db)
    }

    /// The newest record of every object that exists, as of the last time that this reader caught up.
    pub fn current(&self, visit: &mut dyn FnMut(Record) -> Result<(), Fault>) -> Result<(), Fault> {
        current(&self.db, &self.folder, visit)
    }

    pub fn scan(&self, after: Offset, limit: usize) -> Result<Vec<Record>, Fault> {
        scan(&self.db, &self.folder, None, after, limit)
    }
}
