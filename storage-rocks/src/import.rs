//! A log that is being written from an export: marked until it is whole, so that nobody takes it for a log.

use crate::lock::FolderLock;
use crate::log::RocksLog;
use holdfast_core::event::{Offset, Record};
use holdfast_engine::{EventLog, Fault};
use std::fs::File;
use std::path::{Path, PathBuf};

/// The file that is in a data folder as long as an import into it is not finished.
const MARKER: &str = "import-in-progress";
const MARKER_TEXT: &str =
    "The log in this folder is half an import. Go on with `holdfast log import --resume`, or remove the folder.\n";

/// An import into a data folder, which nobody else can use until it is finished.
pub struct Import {
    folder: PathBuf,
    log: RocksLog,
}

impl Import {
    /// Begins in a folder that is new or empty, or goes on with an import that was begun.
    pub fn open(folder: &Path, resume: bool) -> Result<Import, Fault> {
        let marked = folder.join(MARKER).exists();
        let shown = folder.display();
        if resume && !marked {
            return Err(Fault::Unreadable { what: format!("no import into {shown} was begun: leave out --resume") });
        }
        if !resume {
            check_whole(folder)?;
            if !is_empty(folder).map_err(|error| Fault::io("look into the data folder", error))? {
                return Err(Fault::Unreadable {
                    what: format!("{shown} is not empty, and an import never adds to what is there: name a new folder"),
                });
            }
        }
        std::fs::create_dir_all(folder).map_err(|error| Fault::io("make the data folder", error))?;
        // Before anything of the log, so that no crash leaves a part of it that looks whole. Two that begin at the
        // same time meet at the lock.
        mark(folder).map_err(|error| Fault::io("mark the import", error))?;
        let log = RocksLog::open_with(folder, FolderLock::take(folder)?)?;
        Ok(Import { folder: folder.to_owned(), log })
    }

    /// The last event that is durable.
    pub fn last(&self) -> Result<Offset, Fault> {
        self.log.last()
    }

    /// Up to `limit` events that are durable, after `after`.
    pub fn scan(&self, after: Offset, limit: usize) -> Result<Vec<Record>, Fault> {
        self.log.scan(None, after, limit)
    }

    /// Makes the events durable. They may leave gaps, which the export has accounted for.
    pub fn append(&self, records: &[Record]) -> Result<(), Fault> {
        self.log.append(records)
    }

    /// All is there: from now on it is a log like any other.
    pub fn finish(self, oldest: Offset, repaired: Offset) -> Result<(), Fault> {
        self.log.note(oldest, repaired)?;
        let removed =
            std::fs::remove_file(self.folder.join(MARKER)).and_then(|()| File::open(&self.folder)?.sync_all());
        removed.map_err(|error| Fault::io("take the mark off the import", error))
    }
}

/// Refuses a folder in which an import is not finished.
pub fn check_whole(folder: &Path) -> Result<(), Fault> {
    if !folder.join(MARKER).exists() {
        return Ok(());
    }
    let folder = folder.display();
    Err(Fault::Unreadable {
        what: format!(
            "the import into {folder} is not finished: go on with `holdfast log import --resume --data-dir {folder} \
             FILE`, or remove the folder"
        ),
    })
}

fn is_empty(folder: &Path) -> std::io::Result<bool> {
    match std::fs::read_dir(folder) {
        Ok(mut entries) => Ok(entries.next().is_none()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(error),
    }
}

fn mark(folder: &Path) -> std::io::Result<()> {
    std::fs::write(folder.join(MARKER), MARKER_TEXT)?;
    File::open(folder.join(MARKER))?.sync_all()?;
    File::open(folder)?.sync_all()
}
