//! Files with secrets, written so that no other user of the machine can read them or redirect them.
//!
//! A file that is written whole is first made under a random name in the same folder, private to its owner, and then
//! renamed over the previous file. A link of this user with that name is replaced, never followed.

pub use crate::resolve::check;
use crate::resolve::{check_around, check_found, check_place, find, refused};
use rustix::fs::{FileType, Mode, OFlags, fstat, openat};
use std::fs::{File, OpenOptions, Permissions};
use std::io::{Error, ErrorKind, Result, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::Path;

/// The users who may read the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readers {
    Owner,
    Everybody,
}

/// Whether files are synced to the disk after they are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteMode {
    /// Files are synced, so that they survive a power cut.
    Synced,
    /// Files are not synced, because their folder is removed with its process.
    Unsynced,
}

impl WriteMode {
    /// Writes a file whole or not at all.
    pub fn file(self, path: &Path, text: &str, readers: Readers) -> Result<()> {
        let mode = match readers {
            Readers::Owner => 0o600,
            Readers::Everybody => 0o644,
        };
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let written = (|| {
            check_place(path)?;
            let mut file = tempfile::Builder::new().prefix(".holdfast-").tempfile_in(folder)?;
            // The umask may have reduced the permissions with which the file was made.
            file.as_file().set_permissions(Permissions::from_mode(mode))?;
            file.write_all(text.as_bytes())?;
            if self == WriteMode::Synced {
                file.as_file().sync_all()?;
            }
            file.persist(path).map(drop).map_err(|error| error.error)
        })();
        written.map_err(|error: Error| Error::new(error.kind(), format!("write {}: {error}", path.display())))
    }
}

/// Opens a file for appending lines. If `keep` is false, the file is emptied. A missing file is made, private to its
/// owner, but the folder must exist. Links of this user and of root are followed (`/dev/stdout` is one), links of other
/// users are not.
pub fn open_growing(path: &Path, keep: bool) -> Result<File> {
    let end = find(path)?;
    let how = if keep { OFlags::APPEND } else { OFlags::TRUNC };
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC | how;
    let owner = Mode::RUSR | Mode::WUSR;
    if end.is_open_file {
        return Ok(openat(&end.folder, &end.name, flags, owner)?.into());
    }
    if let Some(found) = &end.found {
        check_found(&end.path(), found)?;
    }
    check_around(&end)?;
    if !end.missing.is_empty() {
        return Err(ErrorKind::NotFound.into());
    }
    // The file is checked before it is truncated.
    let file = openat(&end.folder, &end.name, flags.difference(OFlags::TRUNC) | OFlags::NOFOLLOW, owner)?;
    let found = fstat(&file)?;
    check_found(&end.path(), &found)?;
    if FileType::from_raw_mode(found.st_mode) == FileType::RegularFile && found.st_nlink > 1 {
        return Err(refused(&end.path(), "has another name, too, under which it would change as well"));
    }
    let file = File::from(file);
    if !keep && FileType::from_raw_mode(found.st_mode) == FileType::RegularFile {
        file.set_len(0)?;
    }
    Ok(file)
}

/// Opens a file private to its owner, and makes it if it is missing; with `new` it must be missing. A link is not
/// followed, and a file of another user is refused.
pub fn open_private(path: &Path, new: bool) -> Result<File> {
    let no_follow = OFlags::NOFOLLOW.bits().cast_signed();
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create_new(new).mode(0o600).custom_flags(no_follow).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() || metadata.uid() != rustix::process::geteuid().as_raw() {
        return Err(Error::new(ErrorKind::PermissionDenied, "it is no file of this user"));
    }
    file.set_permissions(Permissions::from_mode(0o600))?;
    Ok(file)
}

/// Listens on a socket that no other user can open. A socket of an earlier process at this path is replaced; any other
/// file there is refused.
pub fn private_socket(path: &Path) -> Result<UnixListener> {
    check_place(path)?;
    match std::fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => return Err(refused(path, "is there, and no socket")),
        _ => {}
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // The socket is made in a private folder, and its permissions are set before it is renamed to its path.
    let closed =
        tempfile::Builder::new().prefix(".hf").permissions(Permissions::from_mode(0o700)).tempdir_in(folder)?;
    let made = closed.path().join("s");
    let listener = UnixListener::bind(&made)?;
    std::fs::set_permissions(&made, Permissions::from_mode(0o600))?;
    std::fs::rename(&made, path)?;
    Ok(listener)
}

/// Removes other users' permissions from a file, if it exists: an older release or a copy may have left some.
pub fn close(file: &Path) {
    if std::fs::metadata(file).is_ok_and(|metadata| metadata.permissions().mode() & 0o077 != 0) {
        let _ = std::fs::set_permissions(file, Permissions::from_mode(0o600));
    }
}

/// Makes all new files of the process private to its owner by default, including files that libraries make.
pub fn keep_others_out() {
    rustix::process::umask(Mode::RWXG | Mode::RWXO);
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
        WriteMode::Synced.file(&secret, "new", Readers::Owner).expect("written");
        assert_eq!((mode(&secret), std::fs::read_to_string(&secret).expect("text").as_str()), (0o600, "new"));
        WriteMode::Unsynced.file(&secret, "shown", Readers::Everybody).expect("written");
        assert_eq!(mode(&secret), 0o644);

        // A write follows no link, neither at the path of the file nor at the temporary path that earlier releases
        // used.
        let prepared = secret.with_extension("new");
        std::fs::remove_file(&secret).expect("removed");
        symlink(&elsewhere, &secret).expect("a link");
        symlink(&elsewhere, &prepared).expect("a link");
        WriteMode::Synced.file(&secret, "key", Readers::Owner).expect("written");
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

    #[test]
    fn sockets_are_closed_to_others_from_the_beginning() {
        let folder = tempfile::tempdir().expect("a folder");
        let (socket, file) = (folder.path().join("socket"), folder.path().join("file"));
        for _ in 0..2 {
            let listener = private_socket(&socket).expect("made, also in the place of an old one");
            std::os::unix::net::UnixStream::connect(&socket).expect("connected");
            listener.accept().expect("accepted");
            assert_eq!((mode(&socket), std::fs::read_dir(folder.path()).expect("a folder").count()), (0o600, 1));
        }
        std::fs::write(&file, "text").expect("written");
        assert!(private_socket(&file).is_err());
        assert_eq!(std::fs::read_to_string(&file).expect("text"), "text");
    }

    #[test]
    fn lines_go_where_the_operator_has_them_go() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        symlink("real", at("link")).expect("a link");
        open_growing(&at("link"), true).expect("made").write_all(b"one").expect("written");
        open_growing(&at("real"), true).expect("opened").write_all(b"two").expect("written");
        assert_eq!((std::fs::read_to_string(at("real")).expect("text").as_str(), mode(&at("real"))), ("onetwo", 0o600));
        open_growing(&at("real"), false).expect("opened").write_all(b"new").expect("written");
        assert_eq!(std::fs::read_to_string(at("real")).expect("text"), "new");
        open_growing(Path::new("/dev/stderr"), true).expect("the system's own link");

        std::fs::hard_link(at("real"), at("again")).expect("a name");
        let why = open_growing(&at("real"), true).expect_err("refused").to_string();
        assert!(why.contains("has another name"), "{why}");
        std::fs::remove_file(at("again")).expect("removed");
        std::fs::set_permissions(at("real"), Permissions::from_mode(0o622)).expect("set");
        assert!(open_growing(&at("link"), false).is_err());
        assert_eq!(std::fs::read_to_string(at("real")).expect("text"), "new");
    }
}
