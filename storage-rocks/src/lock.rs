//! The lock of a data folder, which allows one server at a time. The lock file contains the name of the holder.

use crate::fault::FolderFault;
use crate::folder::make_private;
use holdfast_files::check;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Holds the lock of a data folder until this value is dropped. The operating system releases the lock after a crash.
pub struct FolderLock {
    file: File,
}

impl FolderLock {
    pub fn take(folder: &Path) -> Result<FolderLock, FolderFault> {
        let path = folder.join("holder");
        let opened = check(&path).and_then(|()| {
            let no_follow = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
            let mut options = OpenOptions::new();
            options.create(true).read(true).write(true).truncate(false).mode(0o600).custom_flags(no_follow);
            options.open(&path)
        });
        let mut file = opened.map_err(|error| FolderFault::io("open the data folder's lock", error))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(std::fs::TryLockError::WouldBlock) => {
                let mut holder = String::new();
                let _ = file.read_to_string(&mut holder);
                let holder = match holder.trim() {
                    "" => "another process".to_owned(),
                    name => name.to_owned(),
                };
                return Err(FolderFault::InUse { path: folder.display().to_string(), holder });
            }
            Err(std::fs::TryLockError::Error(error)) => return Err(FolderFault::io("lock the data folder", error)),
        }
        let name = std::env::args().collect::<Vec<_>>().join(" ");
        let written = file
            .set_len(0)
            .and_then(|()| file.seek(SeekFrom::Start(0)))
            .and_then(|_| write!(file, "process {} ({name})", std::process::id()));
        // The name in the lock file only informs people, so a full disk must not prevent a server from starting.
        if let Err(error) = written
            && error.kind() != std::io::ErrorKind::StorageFull
        {
            return Err(FolderFault::io("write the data folder's lock", error));
        }
        Ok(FolderLock { file })
    }
}

/// An exclusive lock on the data folder of a server whose log is in memory. It makes no file, and is released on drop.
pub struct FolderInUse(File);

impl FolderInUse {
    pub fn take(folder: &Path) -> Result<FolderInUse, FolderFault> {
        make_private(folder)?;
        let file = File::open(folder).map_err(|error| FolderFault::io("open the folder in use", error))?;
        match file.try_lock() {
            Ok(()) => Ok(FolderInUse(file)),
            Err(std::fs::TryLockError::WouldBlock) => {
                Err(FolderFault::InUse { path: folder.display().to_string(), holder: "another process".into() })
            }
            Err(std::fs::TryLockError::Error(error)) => Err(FolderFault::io("lock the folder in use", error)),
        }
    }
}

impl Drop for FolderInUse {
    /// The file is unlocked explicitly, because a child process that is being started may have a copy of the file; see
    /// [`FolderLock`].
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}

impl Drop for FolderLock {
    /// Closing the file is not enough to release the lock: a child process that is being started has a copy of the file
    /// until it runs its program.
    fn drop(&mut self) {
        let _ = self.file.unlock();
    }
}
