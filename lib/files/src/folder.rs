//! Private folders for secrets.
//!
//! The permissions of a private folder must not depend on the umask of the process, nor on the user who made the folder
//! first.

use crate::resolve::{PathEnd, check, check_around, check_found, find, own_user};
use rustix::fs::{Mode, OFlags, mkdirat, openat};
use rustix::io::Errno;
use std::fs::Permissions;
use std::io::{ErrorKind, Result};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

/// All permissions for the owner, and no permissions for other users.
pub const OWNER: u32 = 0o700;
const OTHERS: u32 = 0o077;
const GROUP_WRITES: u32 = 0o020;

/// Makes a folder for secrets, or checks that an existing folder can be trusted with secrets.
///
/// A new or empty folder becomes private to its owner. A folder with content keeps its permissions, because it may
/// contain files of other programs. To remove other users' permissions from a folder inside it that only this program
/// uses, call [`close`]. A folder is refused if another user owns it or may write to it, or if the path goes through
/// another user's link.
pub fn make_private(folder: &Path) -> Result<()> {
    let mut end = find(folder)?;
    if end.found.is_none() {
        make(&end)?;
        end = find(folder)?;
    }
    let Some(found) = &end.found else { return Err(ErrorKind::NotFound.into()) };
    let path = end.path();
    let is_own = found.st_uid == own_user();
    if is_own && std::fs::read_dir(&path)?.next().is_none() {
        close(&path);
        end = find(&path)?;
    }
    end.found.iter().try_for_each(|found| check_found(&path, found))
}

/// Makes the missing folders of this path. Existing folders may be shared with other users.
pub fn make_missing(folder: &Path) -> Result<()> {
    let end = find(folder)?;
    if end.found.is_none() { make(&end) } else { Ok(()) }
}

/// Makes the missing folders, private to their owner. If one of the folders has been made in the meantime, this
/// function stops without an error, so the caller must check the path.
fn make(end: &PathEnd) -> Result<()> {
    let owner = Mode::from_raw_mode(OWNER);
    let opened = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut above = None;
    for name in std::iter::once(&end.name).chain(&end.missing) {
        let folder = above.as_ref().unwrap_or(&end.folder);
        match mkdirat(folder, name, owner) {
            Ok(()) => {}
            Err(Errno::EXIST) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        above = Some(openat(folder, name, opened, Mode::empty())?);
    }
    Ok(())
}

/// Refuses a folder with an entry of another user, who may have put it there when other users could write to the
/// folder.
pub fn check_entries(folder: &Path) -> Result<()> {
    for entry in std::fs::read_dir(folder)? {
        match check(&entry?.path()) {
            // Other threads of this process may remove entries at the same time.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            checked => checked?,
        }
    }
    Ok(())
}

/// Removes other users' permissions from a folder. Not every file system has permissions: [`warning`] reports a folder
/// where other users keep permissions.
pub fn close(folder: &Path) {
    if mode(folder).is_ok_and(|mode| mode & OTHERS != 0) {
        let _ = std::fs::set_permissions(folder, Permissions::from_mode(OWNER));
    }
}

/// A warning about the access that other users have to `folder`, which the server uses nevertheless. `inner` is the
/// name of a folder with secrets inside `folder`.
pub fn warning(folder: &Path, inner: &str) -> Option<String> {
    let shown = folder.display();
    let rights = mode(folder).ok()?;
    if rights & GROUP_WRITES != 0 {
        return Some(format!(
            "the group of {shown} may write into it, and so could replace the log and its keys; take that right away \
             with: chmod g-w {shown}"
        ));
    }
    if let Err(why) = find(folder).and_then(|end| check_around(&end)) {
        return Some(format!("{why}: a folder elsewhere is safer"));
    }
    let is_open = rights & OTHERS != 0 && mode(&folder.join(inner)).ok()? & OTHERS != 0;
    is_open.then(|| format!("others on this machine may read the log in {shown}: this file system keeps nobody out"))
}

fn mode(folder: &Path) -> Result<u32> {
    Ok(std::fs::metadata(folder)?.mode())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{chown, symlink};

    fn folder(rights: u32) -> tempfile::TempDir {
        tempfile::Builder::new().permissions(Permissions::from_mode(rights)).tempdir().expect("a folder")
    }

    fn set(folder: &Path, rights: u32) {
        std::fs::set_permissions(folder, Permissions::from_mode(rights)).expect("set");
    }

    #[test]
    fn folders_are_their_owners_alone() {
        let around = folder(0o700);
        let new = around.path().join("a/b");
        make_private(&new).expect("made");
        assert_eq!([mode(&new).unwrap() & 0o777, mode(&around.path().join("a")).unwrap() & 0o777], [OWNER; 2]);

        // An empty folder is treated like a new folder, whatever its permissions were.
        set(&new, 0o777);
        make_private(&new).expect("taken");
        assert_eq!(mode(&new).unwrap() & 0o777, OWNER);

        // A folder with content keeps its permissions.
        std::fs::create_dir(new.join("log")).expect("made");
        set(&new, 0o755);
        set(&new.join("log"), 0o755);
        make_private(&new).expect("taken");
        assert_eq!(mode(&new).unwrap() & 0o777, 0o755);
        assert!(warning(&new, "log").expect("a warning").contains("may read"));
        close(&new.join("log"));
        assert_eq!((mode(&new.join("log")).unwrap() & 0o777, warning(&new, "log")), (OWNER, None));
        set(&new, 0o775);
        assert!(warning(&new, "log").expect("a warning").contains("chmod g-w"));
        set(&new, 0o777);
        let refused = make_private(&new).expect_err("a refusal").to_string();
        assert!(refused.contains("chmod o-w"), "{refused}");
    }

    #[test]
    fn folders_of_others_are_refused_and_own_links_lead_to_own_folders() {
        let around = folder(0o700);
        let at = |name: &str| around.path().join(name);
        symlink("disk", at("data")).expect("a link");
        make_private(&at("data/a")).expect("made behind the link");
        assert!(at("disk/a").is_dir());
        std::fs::write(at("disk/a/key"), "").expect("written");
        symlink("key", at("disk/a/named")).expect("a link");
        check_entries(&at("data/a")).expect("all are ours");
        if chown(at("disk/a/key"), Some(65534), None).is_err() {
            return;
        }
        let refused = check_entries(&at("data/a")).expect_err("a refusal").to_string();
        assert!(refused.contains("key belongs to another user"), "{refused}");
        chown(at("disk"), Some(65534), None).expect("given away");
        let refused = make_private(&at("data")).expect_err("a refusal").to_string();
        assert!(refused.contains("disk belongs to another user"), "{refused}");
        let warned = warning(&at("disk/a"), "log").expect("a warning");
        assert!(warned.contains("could replace a in it"), "{warned}");
    }
}
