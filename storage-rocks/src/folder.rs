//! Who may look into a data folder, and who may change what is in it: its owner alone.
//!
//! The log holds every Secret, and keys lie beside it.

use holdfast_engine::Fault;
use holdfast_files::folder;
pub use holdfast_files::folder::close;
use std::path::Path;

/// Makes a folder for secrets, or makes sure that the one that is there can be trusted with them.
pub fn make_private(folder: &Path) -> Result<(), Fault> {
    folder::make_private(folder).map_err(|error| refused("make the data folder", error))
}

/// Refuses a folder in which something is another user's.
pub fn check_entries(folder: &Path) -> Result<(), Fault> {
    folder::check_entries(folder).map_err(|error| refused("look into the data folder", error))
}

/// Refuses a folder of another user, or one that a link of his leads to.
pub fn check_owner(folder: &Path) -> Result<(), Fault> {
    holdfast_files::check_owner(folder).map_err(|error| refused("find the data folder", error))
}

/// What others may do with a data folder that is used all the same.
pub fn warning(folder: &Path) -> Option<String> {
    folder::warning(folder, "log")
}

fn refused(operation: &'static str, error: std::io::Error) -> Fault {
    match error.raw_os_error() {
        Some(_) => Fault::io(operation, error),
        // In words of ours, which say what to do.
        None => Fault::Unreadable { what: error.to_string() },
    }
}
