//! Files that hold secrets, written so that no other user of the machine can read them or have them written elsewhere.
//!
//! A file is made under a name that nobody can guess, beside the place where it belongs, for its owner alone; then it
//! takes the place of what was there. A link that somebody has put there is replaced, never followed.

use anyhow::{Context, Result};
use std::fs::{File, OpenOptions, Permissions};
use std::io::{Error, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// Who may read a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readers {
    Owner,
    Everybody,
}

/// How files are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writing {
    /// So that they survive a power cut.
    Synced,
    /// For a folder that goes away with its process.
    Unsynced,
}

impl Writing {
    /// Writes a file whole or not at all.
    pub fn file(self, path: &Path, text: &str, readers: Readers) -> Result<()> {
        let mode = match readers {
            Readers::Owner => 0o600,
            Readers::Everybody => 0o644,
        };
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let written = (|| {
            let mut file = tempfile::Builder::new().prefix(".holdfast-").tempfile_in(folder)?;
            // What a file is made with is less than this where the umask says so.
            file.as_file().set_permissions(Permissions::from_mode(mode))?;
            file.write_all(text.as_bytes())?;
            if self == Writing::Synced {
                file.as_file().sync_all()?;
            }
            file.persist(path).map(drop).map_err(|error| error.error)
        })();
        written.with_context(|| format!("write {}", path.display()))
    }
}

/// Opens a file that grows over time, for its owner alone; one that is to be `new` must not be there yet. A link is not
/// followed, and a file of another user not written to.
pub fn open_private(path: &Path, new: bool) -> std::io::Result<File> {
    let no_follow = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create_new(new).mode(0o600).custom_flags(no_follow).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() || metadata.uid() != rustix::process::geteuid().as_raw() {
        return Err(Error::new(ErrorKind::PermissionDenied, "it is no file of this user"));
    }
    file.set_permissions(Permissions::from_mode(0o600))?;
    Ok(file)
}

/// Takes everybody else's rights to a file away, if it is there: an older release, or a copy, may have left some.
pub fn close(file: &Path) {
    if std::fs::metadata(file).is_ok_and(|metadata| metadata.permissions().mode() & 0o077 != 0) {
        let _ = std::fs::set_permissions(file, Permissions::from_mode(0o600));
    }
}

/// What a process makes from now on is its owner's alone, wherever nothing else says so: the files of libraries, too.
pub fn keep_others_out() {
    rustix::process::umask(rustix::fs::Mode::RWXG | rustix::fs::Mode::RWXO);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).expect("a file").mode() & 0o777
    }

    #[test]
    fn a_file_is_private_whatever_was_there_before() {
        let folder = tempfile::tempdir().expect("a folder");
        let (secret, elsewhere) = (folder.path().join("secret"), folder.path().join("elsewhere"));
        std::fs::write(&elsewhere, "theirs").expect("written");
        std::fs::write(&secret, "old").expect("written");
        std::fs::set_permissions(&secret, Permissions::from_mode(0o666)).expect("set");
        Writing::Synced.file(&secret, "new", Readers::Owner).expect("written");
        assert_eq!((mode(&secret), std::fs::read_to_string(&secret).expect("text").as_str()), (0o600, "new"));
        Writing::Unsynced.file(&secret, "shown", Readers::Everybody).expect("written");
        assert_eq!(mode(&secret), 0o644);

        // Links at the place itself, and where a file was made first in former times, lead nowhere.
        let prepared = secret.with_extension("new");
        std::fs::remove_file(&secret).expect("removed");
        symlink(&elsewhere, &secret).expect("a link");
        symlink(&elsewhere, &prepared).expect("a link");
        Writing::Synced.file(&secret, "key", Readers::Owner).expect("written");
        assert_eq!(std::fs::read_to_string(&elsewhere).expect("text"), "theirs");
        assert!(secret.symlink_metadata().expect("a file").is_file());
        assert_eq!(mode(&secret), 0o600);
        let left = std::fs::read_dir(folder.path()).expect("a folder").count();
        assert_eq!(left, 3, "nothing is left of the making");
    }

    #[test]
    fn growing_files_follow_no_link() {
        let folder = tempfile::tempdir().expect("a folder");
        let (file, elsewhere) = (folder.path().join("export.part"), folder.path().join("elsewhere"));
        std::fs::write(&elsewhere, "theirs").expect("written");
        symlink(&elsewhere, &file).expect("a link");
        assert!(open_private(&file, true).is_err() && open_private(&file, false).is_err());
        std::fs::remove_file(&file).expect("removed");
        open_private(&file, true).expect("made");
        assert_eq!(mode(&file), 0o600);
        std::fs::set_permissions(&file, Permissions::from_mode(0o644)).expect("set");
        assert!(open_private(&file, true).is_err());
        open_private(&file, false).expect("opened");
        assert_eq!(mode(&file), 0o600);
    }
}
