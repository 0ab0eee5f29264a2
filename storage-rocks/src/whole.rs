//! Refuses data folders whose log is missing or incomplete, and new folders that are not empty.

use crate::fault::FolderFault;
use crate::making::Making;
use holdfast_engine::Fault;
use std::fs::File;
use std::io::ErrorKind;
use std::path::Path;

/// Refuses a folder whose log is incomplete, because the import, fork or migration that makes it has not finished.
pub fn check_whole(folder: &Path) -> Result<(), FolderFault> {
    let Some(making) = Making::ALL.into_iter().find(|making| making.is_marked(folder)) else { return Ok(()) };
    Err(FolderFault::Unfinished { making, path: folder.to_owned() })
}

/// Refuses a folder that is not empty.
pub fn check_new(folder: &Path) -> Result<(), FolderFault> {
    let refused = |why| Err(FolderFault::Occupied { path: folder.to_owned(), why });
    match std::fs::read_dir(folder) {
        Ok(mut entries) => match entries.next() {
            None => Ok(()),
            Some(_) => refused("is not empty"),
        },
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotADirectory => refused("is a file"),
        Err(error) => Err(FolderFault::io("look into the folder", error)),
    }
}

/// Refuses a folder without a log.
pub fn check_log(folder: &Path) -> Result<(), FolderFault> {
    check_whole(folder)?;
    match File::open(folder.join("log").join("CURRENT")) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            let shown = folder.display();
            let what = format!("the log in {shown} may be read by the user alone that its server runs as");
            Err(Fault::Unreadable { what }.into())
        }
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Err(FolderFault::NoLog { path: folder.to_owned() })
        }
        Err(error) => Err(FolderFault::io("look into the folder", error)),
    }
}
