//! A log that a migration fills with the objects of another store. Its folder is marked until the log is complete, and
//! an interrupted migration can be resumed.

use crate::fault::{FolderFault, fault};
use crate::folder::make_private;
use crate::key::{META, META_MIGRATION};
use crate::lock::FolderLock;
use crate::log::RocksLog;
use crate::making::Making;
use crate::store::{family, stage, synced};
use crate::whole::{check_new, check_whole};
use holdfast_core::event::{Offset, Record};
use holdfast_engine::{Fault, LogRead};
use rocksdb::WriteBatch;
use std::path::{Path, PathBuf};

/// A migration into a data folder. No server can use the folder until the migration is finished.
pub struct Migration {
    folder: PathBuf,
    log: RocksLog,
}

impl Migration {
    /// Whether a migration into the folder has begun. If not, the folder must be empty.
    pub fn has_begun(folder: &Path) -> Result<bool, FolderFault> {
        if Making::Migration.is_marked(folder) {
            return Ok(true);
        }
        check_whole(folder)?;
        check_new(folder)?;
        Ok(false)
    }

    /// Begins a migration in a folder that is new or empty, or continues an interrupted migration.
    pub fn open(folder: &Path) -> Result<Migration, FolderFault> {
        Migration::has_begun(folder)?;
        make_private(folder)?;
        // If two migrations begin at the same time, the lock refuses one migration.
        Making::Migration.mark(folder)?;
        let log = RocksLog::open_unnamed(folder, folder, FolderLock::take(folder)?)?;
        Ok(Migration { folder: folder.to_owned(), log })
    }

    /// The last note about the progress of the migration, as passed to [`append`](Self::append).
    pub fn note(&self) -> Result<Option<Vec<u8>>, Fault> {
        self.log.with(|db, _| {
            db.get_cf(family(db, META)?, META_MIGRATION).map_err(|error| fault("read the migration's note", error))
        })
    }

    /// Makes the objects durable, together with a note of the progress.
    pub fn append(&self, records: &[Record], note: &[u8]) -> Result<(), Fault> {
        self.log.with(|db, _| {
            let mut batch = WriteBatch::default();
            for record in records {
                stage(db, &mut batch, record)?;
            }
            batch.put_cf(family(db, META)?, META_MIGRATION, note);
            db.write_opt(batch, &synced()).map_err(|error| fault("append", error))
        })
    }

    pub fn read(&self, offset: Offset) -> Result<Option<Record>, Fault> {
        self.log.read(offset)
    }

    pub fn last(&self) -> Result<Offset, Fault> {
        self.log.last()
    }

    /// Completes the migration: the log begins at a version, with the objects at that version.
    pub fn finish(self, version: Offset) -> Result<(), Fault> {
        self.log.note(version, version)?;
        self.log.with(|db, _| {
            let gone = db.delete_cf_opt(family(db, META)?, META_MIGRATION, &synced());
            gone.map_err(|error| fault("remove the migration's note", error))
        })?;
        Making::Migration.unmark(&self.folder)
    }
}
