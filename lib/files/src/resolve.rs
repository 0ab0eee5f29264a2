//! Resolving a path name by name, without following a link that another user has made.
//!
//! Only root and the user of this process are trusted. Their links are followed. The links in `/proc`, to which
//! `/dev/stdout` leads, are followed too: the kernel makes them for files that a process has open already.

use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat, fstat, fstatfs, openat, readlinkat, statat};
use rustix::io::Errno;
use rustix::process::{getegid, geteuid, getgroups};
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io::{Error, ErrorKind, Result};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

/// The maximum number of links that are followed for one path. The kernel has the same maximum.
const LINKS_MAX: usize = 40;
const PROC: u64 = 0x9fa0;
const ALL_WRITE: u32 = 0o002;
const GROUP_WRITES: u32 = 0o020;
const STICKY: u32 = 0o1000;
/// The owner that a user namespace shows for files of users outside the namespace.
const UNKNOWN_USER: u32 = 65534;

/// The file or folder to which a path leads. If it does not exist, the first name of the path that does not exist.
#[derive(Debug)]
pub struct PathEnd {
    /// The folder that contains the file or folder at the end of the path.
    pub folder: OwnedFd,
    pub folder_path: PathBuf,
    pub name: OsString,
    /// The metadata of the file or folder; `None` if it does not exist.
    pub found: Option<Stat>,
    /// Whether the path ends at a link of the kernel to an open file. Such a link must be followed.
    pub is_open_file: bool,
    /// The names that follow the first name that does not exist.
    pub missing: Vec<OsString>,
}

impl PathEnd {
    /// The path of the file or folder, without links.
    pub fn path(&self) -> PathBuf {
        if self.name == "." { self.folder_path.clone() } else { self.folder_path.join(&self.name) }
    }
}

/// Resolves a path to its end. The caller must check the file at the end.
pub fn find(path: &Path) -> Result<PathEnd> {
    let whole = std::path::absolute(path)?;
    let mut rest: VecDeque<OsString> = names(&whole).collect();
    let (mut folder, mut shown) = root()?;
    let mut links = 0;
    while let Some(name) = rest.pop_front() {
        let end = |folder, folder_path, found, is_open_file, missing: VecDeque<OsString>| PathEnd {
            folder,
            folder_path,
            name: name.clone(),
            found,
            is_open_file,
            missing: missing.into(),
        };
        let found = match statat(&folder, &name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) => found,
            Err(Errno::NOENT) => return Ok(end(folder, shown, None, false, rest)),
            Err(error) => return Err(error.into()),
        };
        let is_link = FileType::from_raw_mode(found.st_mode) == FileType::Symlink;
        let is_systems = is_link && fstatfs(&folder).is_ok_and(|system| system.f_type as u64 == PROC);
        if is_link && !is_systems {
            links += 1;
            if links > LINKS_MAX {
                return Err(Errno::LOOP.into());
            }
            if !is_trusted(found.st_uid) {
                return Err(refused(&shown.join(&name), &format!("is a link that {} has made", user(found.st_uid))));
            }
            let target = PathBuf::from(OsString::from_vec(readlinkat(&folder, &name, Vec::new())?.into_bytes()));
            if target.is_absolute() {
                (folder, shown) = root()?;
            }
            names(&target).rev().for_each(|name| rest.push_front(name));
            continue;
        }
        if rest.is_empty() && name != ".." {
            return Ok(end(folder, shown, Some(found), is_systems, rest));
        }
        let follow = if is_systems { OFlags::empty() } else { OFlags::NOFOLLOW };
        folder = openat(&folder, &name, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC | follow, Mode::empty())?;
        if name == ".." { _ = shown.pop() } else { shown.push(&name) }
    }
    let found = Some(fstat(&folder)?);
    Ok(PathEnd { folder, folder_path: shown, name: ".".into(), found, is_open_file: false, missing: Vec::new() })
}

/// Refuses a file, folder or socket if another user owns it, may write to it, or has made a link in the path. A file or
/// socket is also refused if another user could replace it, even if it is missing now.
pub fn check(path: &Path) -> Result<()> {
    let end = find(path)?;
    if end.is_open_file {
        return Ok(());
    }
    if let Some(found) = &end.found {
        check_found(&end.path(), found)?;
        if FileType::from_raw_mode(found.st_mode) == FileType::Directory {
            return Ok(());
        }
    }
    check_around(&end)
}

/// Refuses a path to which a file is about to be renamed, if another user could replace the file there or owns the file
/// there. The target of this user's own link does not matter, because the link is replaced.
pub fn check_place(path: &Path) -> Result<()> {
    let whole = std::path::absolute(path)?;
    let (Some(around), Some(name)) = (whole.parent(), whole.file_name()) else { return Ok(()) };
    let around = find(around)?;
    if around.found.is_none() {
        return Ok(());
    }
    let opened = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = openat(&around.folder, &around.name, opened, Mode::empty())?;
    let place = PathEnd {
        found: statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW).ok(),
        folder,
        folder_path: around.path(),
        name: name.to_owned(),
        is_open_file: false,
        missing: Vec::new(),
    };
    match &place.found {
        Some(found) if !is_trusted(found.st_uid) => Err(refused(&place.path(), &owned(found.st_uid))),
        _ => check_around(&place),
    }
}

/// The text of a refusal by this module. Other errors of a path are reported by the code that reads or writes it.
pub fn complaint(checked: Result<()>) -> Option<String> {
    checked.err().filter(|error| error.raw_os_error().is_none()).map(|error| error.to_string())
}

/// Refuses a folder that belongs to another user, or whose path goes through another user's link. The caller checks
/// whether other users may write into the folder.
pub fn check_owner(path: &Path) -> Result<()> {
    let end = find(path)?;
    match &end.found {
        Some(found) if !is_trusted(found.st_uid) => Err(refused(&end.path(), &owned(found.st_uid))),
        _ => Ok(()),
    }
}

/// Refuses a socket that any user could have made instead of the expected program. If the socket or a folder in its
/// path belongs to another user, the first such entry must be in a folder where not all users may write. So plug-ins
/// may run as users of their own.
pub fn check_socket(path: &Path) -> Result<()> {
    let end = find(path)?;
    if end.found.is_none() {
        return Ok(());
    }
    let path = end.path();
    let mut ways: Vec<&Path> = path.ancestors().collect();
    ways.reverse();
    for pair in ways.windows(2) {
        let owner = std::fs::symlink_metadata(pair[1])?.uid();
        if !is_trusted_on_the_way(owner) {
            return if is_shared(pair[0]) { Err(refused(pair[1], &owned(owner))) } else { Ok(()) };
        }
    }
    Ok(())
}

fn owned(owner: u32) -> String {
    format!("belongs to {}, who could change it", user(owner))
}

/// Refuses a folder in which another user could replace the file.
pub(crate) fn check_around(end: &PathEnd) -> Result<()> {
    let around = fstat(&end.folder)?;
    let shown = &end.folder_path;
    if !is_trusted_on_the_way(around.st_uid) {
        return Err(refused(
            shown,
            &format!("belongs to {}, who could replace {} in it", user(around.st_uid), end.name.display()),
        ));
    }
    if around.st_mode & ALL_WRITE != 0 && around.st_mode & STICKY == 0 {
        let why = format!(
            "may be written by everybody on this machine, who could replace {} in it; take that right away with: \
             chmod o-w {}",
            end.name.display(),
            shown.display()
        );
        return Err(refused(shown, &why));
    }
    Ok(())
}

/// Refuses a file that another user owns or may write to.
pub(crate) fn check_found(shown: &Path, found: &Stat) -> Result<()> {
    if !is_trusted(found.st_uid) {
        return Err(refused(shown, &owned(found.st_uid)));
    }
    let kind = FileType::from_raw_mode(found.st_mode);
    if matches!(kind, FileType::CharacterDevice | FileType::BlockDevice) {
        return Ok(());
    }
    let take_away = |from: &str| format!("take that right away with: chmod {from}-w {}", shown.display());
    if found.st_mode & ALL_WRITE != 0 {
        return Err(refused(shown, &format!("may be written by everybody on this machine; {}", take_away("o"))));
    }
    if found.st_mode & GROUP_WRITES != 0 && !is_own_group(found.st_gid) {
        let why =
            format!("may be written by the group {}, which is not of this process; {}", found.st_gid, take_away("g"));
        return Err(refused(shown, &why));
    }
    Ok(())
}

/// The user who owns the files that this process makes.
pub fn own_user() -> u32 {
    geteuid().as_raw()
}

/// Whether all users may make files in a folder, so that another user could take a name in it.
pub fn is_shared(folder: &Path) -> bool {
    std::fs::metadata(folder).is_ok_and(|metadata| metadata.mode() & ALL_WRITE != 0)
}

/// Whether the user is root or the user of this process.
fn is_trusted(user: u32) -> bool {
    user == 0 || user == own_user()
}

/// Whether the owner of a folder in a path is trusted. In a user namespace, folders of the real root, such as `/`, may
/// appear to have an unknown owner.
fn is_trusted_on_the_way(user: u32) -> bool {
    let knows_all = || {
        let known = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
        known.split_ascii_whitespace().nth(2).is_none_or(|count| count == "4294967295")
    };
    is_trusted(user) || user == UNKNOWN_USER && !knows_all()
}

fn is_own_group(group: u32) -> bool {
    group == getegid().as_raw() || getgroups().is_ok_and(|groups| groups.iter().any(|own| own.as_raw() == group))
}

/// The user's number, and the user's name if `/etc/passwd` has it, as error messages show them.
fn user(number: u32) -> String {
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let text = number.to_string();
    let line = users.lines().find(|line| line.split(':').nth(2) == Some(&text));
    match line.and_then(|line| line.split(':').next()) {
        Some(name) => format!("another user ({name}, number {number})"),
        None => format!("another user (number {number})"),
    }
}

pub(crate) fn refused(path: &Path, why: &str) -> Error {
    Error::new(ErrorKind::PermissionDenied, format!("{} {why}", path.display()))
}

fn root() -> Result<(OwnedFd, PathBuf)> {
    let folder = openat(CWD, "/", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    Ok((folder, PathBuf::from("/")))
}

fn names(path: &Path) -> impl DoubleEndedIterator<Item = OsString> + '_ {
    path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsStr::new("..").to_owned()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};

    const OTHER: u32 = 65534;

    fn set(path: &Path, mode: u32) {
        std::fs::set_permissions(path, Permissions::from_mode(mode)).expect("set");
    }

    /// Gives the file to another user; false if the tests may not do that.
    fn give_away(path: &Path) -> bool {
        lchown(path, Some(OTHER), Some(OTHER)).is_ok()
    }

    #[test]
    fn what_others_may_write_is_refused_and_own_links_are_followed() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("file"), "").expect("written");
        std::fs::create_dir(at("real")).expect("made");
        std::fs::write(at("real/file"), "").expect("written");
        symlink("real/../real", at("link")).expect("a link");
        symlink(at("link/file"), at("absolute")).expect("a link");
        symlink("loop", at("loop")).expect("a link");
        for fine in ["file", "link/file", "absolute", "real", "missing", "link/missing", "real/..", "missing/deep"] {
            check(&at(fine)).unwrap_or_else(|why| panic!("{fine}: {why}"));
        }
        assert_eq!(find(&at("absolute")).expect("found").path(), at("real/file").canonicalize().expect("a path"));
        for system in ["/dev/null", "/dev/stdout", "/proc/self/fd/1"] {
            check(Path::new(system)).unwrap_or_else(|why| panic!("{system}: {why}"));
        }
        assert!(check(&at("loop")).is_err());

        set(&at("real/file"), 0o666);
        let why = check(&at("absolute")).expect_err("refused").to_string();
        assert!(why.contains("real/file may be written by everybody") && why.contains("chmod o-w"), "{why}");
        set(&at("real/file"), 0o600);
        set(&at("real"), 0o777);
        let why = check(&at("link/file")).expect_err("refused").to_string();
        assert!(why.contains("real may be written by everybody") && why.contains("replace file"), "{why}");
        set(&at("real"), 0o1777);
        check(&at("link/file")).expect("in a folder where each keeps his own");
    }

    #[test]
    fn what_others_own_is_refused_by_name() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir(at("theirs")).expect("made");
        std::fs::write(at("theirs/file"), "").expect("written");
        std::fs::write(at("own"), "").expect("written");
        symlink(at("own"), at("link")).expect("a link");
        symlink(at("nowhere"), at("dangling")).expect("a link");
        symlink(folder.path(), at("around")).expect("a link");
        std::fs::write(at("group"), "").expect("written");
        set(&at("group"), 0o660);
        if !["theirs", "link", "dangling", "around"].iter().all(|name| give_away(&at(name))) {
            return;
        }
        chown(at("group"), None, Some(OTHER)).expect("given");
        for (theirs, why) in [
            ("theirs", "theirs belongs to another user (nobody, number 65534)"),
            ("theirs/file", "could replace file"),
            ("theirs/new", "could replace new"),
            ("link", "link is a link that another user"),
            ("dangling", "dangling is a link that another user"),
            ("around/own", "around is a link that another user"),
            ("group", "may be written by the group 65534"),
        ] {
            let told = check(&at(theirs)).expect_err(theirs).to_string();
            assert!(told.contains(why), "{theirs}: {told}");
        }
        for theirs in ["theirs", "theirs/file", "theirs/new", "link", "dangling", "around/own"] {
            let told = check_place(&at(theirs)).expect_err(theirs).to_string();
            assert!(told.contains("another user (nobody, number 65534)"), "{theirs}: {told}");
        }
        check_place(&at("new")).expect("nothing is there");
        check(&at("own")).expect("what is root's");

        // A plug-in's own folder is accepted if root has made it, and refused if any user could have made it.
        check_socket(&at("theirs/file")).expect("in a folder that was given to him");
        check_socket(&at("theirs/none")).expect("not there yet");
        set(folder.path(), 0o1777);
        let told = check_socket(&at("theirs/file")).expect_err("refused").to_string();
        assert!(told.contains("theirs belongs to another user"), "{told}");
    }
}
