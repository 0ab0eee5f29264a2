//! Who may look into a data folder, and who may change what is in it: its owner alone.
//!
//! The log holds every Secret, and keys lie beside it. Their rights must not depend on the umask of whoever started the
//! server, nor on who made the folder first.

use holdfast_engine::Fault;
use std::fs::{DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::Path;

/// All rights of the owner, and none of anybody else.
const OWNER: u32 = 0o700;
const OTHERS: u32 = 0o077;
const GROUP_WRITES: u32 = 0o020;
const ALL_WRITE: u32 = 0o002;

/// Makes a folder for secrets, or makes sure that the one that is there can be trusted with them.
///
/// One that is new or empty becomes its owner's alone. One that holds something keeps its rights, since other things may
/// be in it: [`close`] what is ours there.
pub fn make_private(folder: &Path) -> Result<(), Fault> {
    let failed = |error| Fault::io("make the data folder", error);
    DirBuilder::new().recursive(true).mode(OWNER).create(folder).map_err(failed)?;
    let metadata = std::fs::metadata(folder).map_err(failed)?;
    let (shown, own) = (folder.display(), rustix::process::geteuid().as_raw());
    // Root may use anybody's folder, and everybody trusts root's.
    if ![own, 0].contains(&metadata.uid()) && own != 0 {
        let what = format!(
            "{shown} belongs to another user (number {}), who could replace the log and its keys: use another data \
             folder",
            metadata.uid()
        );
        return Err(Fault::Unreadable { what });
    }
    if std::fs::read_dir(folder).map_err(failed)?.next().is_none() {
        close(folder);
    }
    if mode(folder).map_err(failed)? & ALL_WRITE != 0 {
        let what = format!(
            "everybody on this machine may write into {shown}, and so could replace the log and its keys: use another \
             data folder, or take that right away with: chmod o-w {shown}"
        );
        return Err(Fault::Unreadable { what });
    }
    Ok(())
}

/// Takes everybody else's rights to a folder away. Not every file system has rights: [`warning`] tells where some are
/// left.
pub fn close(folder: &Path) {
    if mode(folder).is_ok_and(|mode| mode & OTHERS != 0) {
        let _ = std::fs::set_permissions(folder, Permissions::from_mode(OWNER));
    }
}

/// What others may do with a data folder that is used all the same.
pub fn warning(folder: &Path) -> Option<String> {
    let shown = folder.display();
    let rights = mode(folder).ok()?;
    if rights & GROUP_WRITES != 0 {
        return Some(format!(
            "the group of {shown} may write into it, and so could replace the log and its keys; take that right away \
             with: chmod g-w {shown}"
        ));
    }
    let is_open = rights & OTHERS != 0 && mode(&folder.join("log")).ok()? & OTHERS != 0;
    is_open.then(|| format!("others on this machine may read the log in {shown}: this file system keeps nobody out"))
}

fn mode(folder: &Path) -> io::Result<u32> {
    Ok(std::fs::metadata(folder)?.mode())
}

#[cfg(test)]
mod tests {
    use super::*;

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

        // An empty one is as good as new, whatever it allowed.
        set(&new, 0o777);
        make_private(&new).expect("taken");
        assert_eq!(mode(&new).unwrap() & 0o777, OWNER);

        // One that holds something stays as it is.
        std::fs::create_dir(new.join("log")).expect("made");
        set(&new, 0o755);
        set(&new.join("log"), 0o755);
        make_private(&new).expect("taken");
        assert_eq!(mode(&new).unwrap() & 0o777, 0o755);
        assert!(warning(&new).expect("a warning").contains("may read"));
        close(&new.join("log"));
        assert_eq!((mode(&new.join("log")).unwrap() & 0o777, warning(&new)), (OWNER, None));
        set(&new, 0o775);
        assert!(warning(&new).expect("a warning").contains("chmod g-w"));
        set(&new, 0o777);
        let refused = make_private(&new).expect_err("a refusal").to_string();
        assert!(refused.contains("chmod o-w"), "{refused}");
    }
}
