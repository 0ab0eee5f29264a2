//! A log that is being written from an export. Its folder is marked until the log is complete, and an interrupted
//! import can be resumed.

use crate::fault::FolderFault;
use crate::folder::make_private;
use crate::lock::FolderLock;
use crate::log::RocksLog;
use crate::making::Making;
use crate::whole::{check_new, check_whole};
use holdfast_core::event::{Offset, Record};
use holdfast_engine::log::Identity;
use holdfast_engine::{Append, Fault, Log, LogRead};
use std::path::{Path, PathBuf};

/// An import into a data folder. No other process can use the folder until the import is finished.
pub struct Import {
    folder: PathBuf,
    log: RocksLog,
}

impl Import {
    /// Begins an import in a folder that is new or empty, or resumes an interrupted import. `identity` is the identity
    /// in the export, because the import makes the same log in another place.
    pub fn open(folder: &Path, resume: bool, identity: &Identity) -> Result<Import, FolderFault> {
        let marked = Making::Import.is_marked(folder);
        if resume && !marked {
            return Err(FolderFault::NotBegun { path: folder.to_owned() });
        }
        if !resume {
            check_whole(folder)?;
            check_new(folder)?;
        }
        make_private(folder)?;
        // If two imports begin at the same time, the lock refuses one import.
        Making::Import.mark(folder)?;
        let log = RocksLog::open_unnamed(folder, folder, FolderLock::take(folder)?)?;
        let begun = log.identity()?;
        if begun == Identity::default() {
            log.name(identity)?;
        } else if begun.id != identity.id {
            let id = |identity: &Identity| identity.id.clone().unwrap_or_else(|| "that has no id".into());
            let shown = folder.display();
            return Err(Fault::Unreadable {
                what: format!(
                    "the import into {shown} was begun with an export of the log {}, and this is one of the log {}: \
                     continue with the other, or remove the folder and start again",
                    id(&begun),
                    id(identity)
                ),
            }
            .into());
        }
        Ok(Import { folder: folder.to_owned(), log })
    }

    /// The offset of the last durable event of the import.
    pub fn last(&self) -> Result<Offset, Fault> {
        self.log.last()
    }

    /// Up to `limit` durable events after `after`.
    pub fn scan(&self, after: Offset, limit: usize) -> Result<Vec<Record>, Fault> {
        self.log.scan(None, after, limit)
    }

    /// Makes the events durable. The offsets of the events may have gaps, which the export has reported.
    pub fn append(&self, records: &[Record]) -> Result<(), FolderFault> {
        match self.log.append(records)? {
            Append::Appended => Ok(()),
            Append::Behind | Append::Numbered(_) => {
                Err(FolderFault::InUse { path: self.folder.display().to_string(), holder: "another".into() })
            }
        }
    }

    /// Completes the import, after which the folder can be used like any other.
    pub fn finish(self, oldest: Offset, repaired: Offset) -> Result<(), Fault> {
        self.log.note(oldest, repaired)?;
        Making::Import.unmark(&self.folder)
    }
}
