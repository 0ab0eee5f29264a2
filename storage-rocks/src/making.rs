//! The mark on a data folder whose log is being made, so that no process uses an incomplete log.

use holdfast_engine::Fault;
use std::fs::File;
use std::path::Path;

/// The command that makes the log of a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Making {
    Import,
    Fork,
    Migration,
}

impl Making {
    pub(crate) const ALL: [Making; 3] = [Making::Import, Making::Fork, Making::Migration];

    /// The name of the file that marks the folder until its log is finished.
    fn marker(self) -> &'static str {
        match self {
            Self::Import => "import-in-progress",
            Self::Fork => "fork-in-progress",
            Self::Migration => "migration-in-progress",
        }
    }

    fn text(self) -> &'static str {
        match self {
            Self::Import => "The log in this folder is half an import. Resume the import, or remove the folder.\n",
            Self::Fork => "The log in this folder is half a fork. Remove the folder.\n",
            Self::Migration => {
                "The log in this folder has a part of the objects that are being moved here. Run the same `holdfast \
                 migrate` again, or remove the folder.\n"
            }
        }
    }

    pub(crate) fn description(self, path: &Path) -> String {
        match self {
            Self::Import => format!("the import into {} is not finished", path.display()),
            Self::Fork => format!("the fork in {} was interrupted before it was whole", path.display()),
            Self::Migration => format!("the migration into {} is not finished", path.display()),
        }
    }

    pub(crate) fn is_marked(self, folder: &Path) -> bool {
        folder.join(self.marker()).exists()
    }

    /// Makes the mark durable before any part of the log, so that no crash leaves an incomplete log without a mark.
    pub(crate) fn mark(self, folder: &Path) -> Result<(), Fault> {
        let marked = (|| {
            std::fs::write(folder.join(self.marker()), self.text())?;
            File::open(folder.join(self.marker()))?.sync_all()?;
            File::open(folder)?.sync_all()
        })();
        marked.map_err(|error| Fault::io("mark the folder as unfinished", error))
    }

    /// Removes the mark as the last step. After that, the log is like any other log.
    pub(crate) fn unmark(self, folder: &Path) -> Result<(), Fault> {
        let removed = std::fs::remove_file(folder.join(self.marker())).and_then(|()| File::open(folder)?.sync_all());
        removed.map_err(|error| Fault::io("take the mark off the folder", error))
    }
}
