//! Restricts access to a data folder. Only the folder's owner may read or change its content.
//!
//! The log contains every Secret, and the folder also contains keys.

use holdfast_engine::Fault;
use holdfast_files::folder;
pub use holdfast_files::folder::close;
use std::path::Path;

/// Makes a private folder, or checks that an existing folder can be trusted with secrets.
pub fn make_private(folder: &Path) -> Result<(), Fault> {
    folder::make_private(folder).map_err(|error| refused("make the data folder", error))
}

/// Refuses a folder that contains files or folders of another user.
pub fn check_entries(folder: &Path) -> Result<(), Fault> {
    folder::check_entries(folder).map_err(|error| refused("look into the data folder", error))
}

/// Refuses a folder that belongs to another user, or whose path contains another user's symbolic link.
pub fn check_owner(folder: &Path) -> Result<(), Fault> {
    holdfast_files::check_owner(folder).map_err(|error| refused("find the data folder", error))
}

/// A warning about the access that other users have to a folder that is used nevertheless.
pub fn warning(folder: &Path) -> Option<String> {
    folder::warning(folder, "log")
}

fn refused(operation: &'static str, error: std::io::Error) -> Fault {
    match error.raw_os_error() {
        Some(_) => Fault::io(operation, error),
        // An error without a code of the operating system has a text with advice to the operator, so the text is passed
        // on.
        None => Fault::Unreadable { what: error.to_string() },
    }
}
