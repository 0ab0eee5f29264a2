//! The simulated file system: folders and files in memory. Its size is limited, and shared volumes can be mounted in
//! it.

pub use crate::tree::{BUSY, EXISTS, FULL, IS_FOLDER, MISSING, NO_FOLDER, NOT_EMPTY, READ_ONLY, TOO_LONG};
pub use crate::tree::{TreeEntry, Trouble, Volume};

use crate::tree::{GrowthLimit, Tree, parent};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The maximum number of files and folders. `BYTES_MAX` is the maximum number of bytes of files and names.
pub const ENTRIES_MAX: usize = 2_000;
pub const BYTES_MAX: usize = 4 << 20;
/// The longest path, in bytes.
const PATH_BYTES_MAX: usize = 4096;

/// The folders and files of a container, by their paths.
#[derive(Debug, Clone)]
pub struct FileSystem {
    own: Tree,
    /// The volumes that are mounted in the file system.
    volumes: Vec<Mounted>,
    /// The folders in which the container cannot write.
    read_only: Vec<String>,
    /// The path of the only file outside of mounted volumes that the container can write; `None` if the root file
    /// system is writable.
    closed: Option<String>,
}

#[derive(Debug, Clone)]
struct Mounted {
    path: String,
    /// The folder of the volume that is visible at the path.
    folder: String,
    volume: Volume,
}

impl Mounted {
    /// The path within the volume for a path in the container; `None` if the path is outside of the volume.
    fn inner(&self, path: &str) -> Option<String> {
        let rest = path.strip_prefix(self.path.as_str())?;
        let folder = if self.folder == "/" { "" } else { self.folder.as_str() };
        match rest {
            "" => Some(self.folder.clone()),
            rest if rest.starts_with('/') => Some(format!("{folder}{rest}")),
            _ => None,
        }
    }

    /// The path in the container for a path within the volume.
    fn outer(&self, inner: &str) -> String {
        let folder = if self.folder == "/" { "" } else { self.folder.as_str() };
        format!("{}{}", self.path, inner.strip_prefix(folder).unwrap_or_default())
    }
}

impl Default for FileSystem {
    /// A file system with the folders that most images have.
    fn default() -> FileSystem {
        let mut files = FileSystem { own: Tree::default(), volumes: Vec::new(), read_only: Vec::new(), closed: None };
        for folder in ["/bin", "/dev", "/etc", "/home", "/root", "/run", "/tmp", "/usr/bin", "/var/log", "/var/run"] {
            let _ = files.make_folders(folder, 0);
        }
        let _ = files.own.set_mode("/tmp", 0o1777);
        files.own.changes = 0;
        files
    }
}

/// The absolute path of a path that is relative to `folder`, without `.` and `..`.
pub fn absolute(folder: &str, path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    let begin = if path.starts_with('/') { "" } else { folder };
    for part in begin.split('/').chain(path.split('/')) {
        match part {
            "" | "." => {}
            ".." => _ = parts.pop(),
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

pub fn name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

impl FileSystem {
    /// The number of writes since the file system was made.
    pub fn changes(&self) -> u64 {
        self.own.changes + self.volumes.iter().map(|mounted| mounted.volume.lock().changes).sum::<u64>()
    }

    /// The number of bytes of all files, including the files in volumes.
    pub fn bytes(&self) -> usize {
        self.own.bytes() + self.volumes.iter().map(|mounted| mounted.volume.lock().bytes()).sum::<usize>()
    }

    fn room(&self) -> GrowthLimit {
        let count = self.own.count() + self.volumes.iter().map(|mounted| mounted.volume.lock().count()).sum::<usize>();
        GrowthLimit { entries: ENTRIES_MAX.saturating_sub(count), bytes: BYTES_MAX.saturating_sub(self.bytes()) }
    }

    /// Calls `look` with the tree that contains the path: a volume, or the container's own tree. The path that `look`
    /// gets is the path within that tree.
    fn at<T>(&self, path: &str, look: impl FnOnce(&Tree, &str) -> T) -> T {
        match self.mounted(path) {
            Some((mounted, inner)) => look(&mounted.volume.lock(), &inner),
            None => look(&self.own, path),
        }
    }

    fn change<T>(&mut self, path: &str, change: impl FnOnce(&mut Tree, &str, GrowthLimit) -> T) -> T {
        let room = self.room();
        match self.mounted(path) {
            Some((mounted, inner)) => change(&mut mounted.volume.lock(), &inner, room),
            None => change(&mut self.own, path, room),
        }
    }

    fn mounted(&self, path: &str) -> Option<(&Mounted, String)> {
        let within = self.volumes.iter().filter_map(|mounted| Some((mounted, mounted.inner(path)?)));
        within.max_by_key(|(mounted, _)| mounted.path.len())
    }

    pub fn entry(&self, path: &str) -> Option<TreeEntry> {
        self.at(path, |tree, path| tree.entry(path).cloned())
    }

    pub fn is_folder(&self, path: &str) -> bool {
        self.entry(path).is_some_and(|entry| entry.content.is_none())
    }

    pub fn read(&self, path: &str) -> Result<Arc<Vec<u8>>, Trouble> {
        match self.entry(path) {
            Some(TreeEntry { content: Some(content), .. }) => Ok(content),
            Some(_) => Err(IS_FOLDER),
            None if self.entry(parent(path)).is_some_and(|entry| entry.content.is_some()) => Err(NO_FOLDER),
            None => Err(MISSING),
        }
    }

    /// The names of the files and folders in a folder, sorted.
    pub fn names(&self, folder: &str) -> Vec<String> {
        let own = |tree: &Tree, folder: &str| {
            let length = if folder == "/" { 1 } else { folder.len() + 1 };
            let names = tree.below(folder).filter_map(|path| path.get(length..).filter(|rest| !rest.contains('/')));
            names.map(str::to_owned).collect()
        };
        self.at(folder, own)
    }

    /// The paths of all files and folders below a folder, sorted. The folder itself is not among them.
    pub fn below(&self, folder: &str) -> Vec<String> {
        let all = match self.mounted(folder) {
            Some((mounted, inner)) => mounted.volume.lock().below(&inner).map(|path| mounted.outer(path)).collect(),
            None => self.own.below(folder).map(str::to_owned).collect(),
        };
        let mut all: Vec<String> = all;
        // The paths of volumes that are mounted below the folder are added to the result.
        let inside = |mounted: &&Mounted| {
            let rest = mounted.path.strip_prefix(if folder == "/" { "" } else { folder });
            mounted.path != folder && rest.is_some_and(|rest| rest.starts_with('/'))
        };
        for mounted in self.volumes.iter().filter(inside) {
            all.extend(mounted.volume.lock().below(&mounted.folder).map(|path| mounted.outer(path)));
        }
        all.sort_unstable();
        all.dedup();
        all
    }

    fn may_write(&self, path: &str) -> Result<(), Trouble> {
        if path.len() > PATH_BYTES_MAX {
            return Err(TOO_LONG);
        }
        let inside = |folder: &String| {
            path == folder || path.strip_prefix(folder.as_str()).is_some_and(|rest| rest.starts_with('/'))
        };
        let is_closed = self.closed.as_ref().is_some_and(|open| open != path) && self.mounted(path).is_none();
        if is_closed || self.read_only.iter().any(inside) { Err(READ_ONLY) } else { Ok(()) }
    }

    /// From now on, the container can write only in mounted volumes and to the file `open`. The kubelet can still
    /// change all files by mounting.
    pub fn close_root(&mut self, open: &str) {
        self.closed = Some(absolute("/", open));
    }

    /// Makes a change as the kubelet, which can write to all paths.
    fn as_kubelet<T>(&mut self, change: impl FnOnce(&mut FileSystem) -> T) -> T {
        let closed = self.closed.take();
        let changed = change(self);
        self.closed = closed;
        changed
    }

    /// Writes a file, and creates it if it does not exist.
    pub fn write(&mut self, path: &str, content: Vec<u8>, now_ms: i64) -> Result<(), Trouble> {
        self.may_write(path)?;
        self.store(path, content, None, now_ms)
    }

    fn store(&mut self, path: &str, content: Vec<u8>, mode: Option<u32>, now_ms: i64) -> Result<(), Trouble> {
        self.change(path, |tree, path, room| tree.store(path, content, mode, now_ms, room))
    }

    pub fn append(&mut self, path: &str, more: &[u8], now_ms: i64) -> Result<(), Trouble> {
        self.may_write(path)?;
        match self.change(path, |tree, path, room| tree.append(path, more, now_ms, room))? {
            true => Ok(()),
            false => self.write(path, more.to_vec(), now_ms),
        }
    }

    pub fn set_mode(&mut self, path: &str, mode: u32) -> Result<(), Trouble> {
        self.may_write(path)?;
        self.change(path, |tree, path, _| tree.set_mode(path, mode))
    }

    pub fn make_folder(&mut self, path: &str, now_ms: i64) -> Result<(), Trouble> {
        if self.entry(path).is_some() {
            return Err(EXISTS);
        }
        self.may_write(path)?;
        self.change(path, |tree, path, room| tree.make_folder(path, now_ms, room))
    }

    /// Creates a folder, and the folders that contain it.
    pub fn make_folders(&mut self, path: &str, now_ms: i64) -> Result<(), Trouble> {
        let mut at = 0;
        while at < path.len() {
            at = path[at + 1..].find('/').map_or(path.len(), |slash| at + 1 + slash);
            match self.entry(&path[..at]) {
                Some(TreeEntry { content: None, .. }) => {}
                Some(_) => return Err(NO_FOLDER),
                None => self.make_folder(&path[..at], now_ms)?,
            }
        }
        Ok(())
    }

    /// Removes a file. With `whole_folders`, also removes a folder with all its content.
    pub fn remove(&mut self, path: &str, whole_folders: bool) -> Result<(), Trouble> {
        let entry = self.entry(path).ok_or(MISSING)?;
        if entry.content.is_none() && !whole_folders {
            return Err(IS_FOLDER);
        }
        self.may_write(path)?;
        let inside = self.below(path);
        // A folder that contains a mounted volume cannot be removed.
        inside.iter().try_for_each(|path| self.may_write(path))?;
        if self.volumes.iter().any(|mounted| mounted.path == path || inside.contains(&mounted.path)) {
            return Err(BUSY);
        }
        for path in inside.iter().map(String::as_str).chain([path]) {
            self.change(path, |tree, path, _| tree.remove(path));
        }
        Ok(())
    }

    /// Removes an empty folder.
    pub fn remove_folder(&mut self, path: &str) -> Result<(), Trouble> {
        match self.entry(path) {
            None => Err(MISSING),
            Some(TreeEntry { content: Some(_), .. }) => Err(NO_FOLDER),
            Some(_) if !self.names(path).is_empty() => Err(NOT_EMPTY),
            Some(_) => self.remove(path, true),
        }
    }

    /// Replaces a folder by the given files, like a mount. If the folder is read-only, only another mount can change
    /// it.
    pub fn mount(
        &mut self,
        folder: &str,
        files: &BTreeMap<String, (Vec<u8>, u32)>,
        is_read_only: bool,
        now_ms: i64,
    ) -> Result<(), Trouble> {
        self.as_kubelet(|own| own.mount_as_kubelet(folder, files, is_read_only, now_ms))
    }

    fn mount_as_kubelet(
        &mut self,
        folder: &str,
        files: &BTreeMap<String, (Vec<u8>, u32)>,
        is_read_only: bool,
        now_ms: i64,
    ) -> Result<(), Trouble> {
        let folder = &absolute("/", folder);
        let changes = self.own.changes;
        self.read_only.retain(|known| known != folder);
        self.make_folders(folder, now_ms)?;
        let wanted: Vec<String> = files.keys().map(|name| absolute(folder, name)).collect();
        if is_read_only {
            for path in self.below(folder) {
                let is_wanted = wanted.iter().any(|file| *file == path || file.starts_with(&format!("{path}/")));
                if !is_wanted && self.entry(&path).is_some() {
                    self.remove(&path, true)?;
                }
            }
        }
        for (path, (content, mode)) in wanted.iter().zip(files.values()) {
            let same = self.entry(path).and_then(|entry| entry.content).is_some_and(|old| *old == *content);
            if !same {
                self.make_folders(parent(path), now_ms)?;
                self.store(path, content.clone(), Some(*mode), now_ms)?;
            }
        }
        if is_read_only {
            self.read_only.push(folder.clone());
        }
        // The files that the kubelet writes do not count as changes that the container has made.
        self.own.changes = changes;
        Ok(())
    }

    /// Mounts a folder of a volume at a path. The files that were at this path are replaced.
    pub fn mount_volume(&mut self, path: &str, volume: &Volume, folder: &str, is_read_only: bool, now_ms: i64) {
        let (path, folder) = (absolute("/", path), absolute("/", folder));
        let is_there = self.volumes.iter().any(|mounted| mounted.path == path);
        if path == "/" || is_there || self.as_kubelet(|own| own.make_folders(&path, now_ms)).is_err() {
            return;
        }
        for inside in self.below(&path) {
            self.change(&inside, |tree, inside, _| tree.remove(inside));
        }
        let mut whole = FileSystem { own: Tree::default(), volumes: Vec::new(), read_only: Vec::new(), closed: None };
        whole.volumes.push(Mounted { path: String::new(), folder: "/".to_owned(), volume: volume.clone() });
        _ = whole.make_folders(&folder, now_ms);
        if is_read_only {
            self.read_only.push(path.clone());
        }
        self.volumes.push(Mounted { path, folder, volume: volume.clone() });
    }

    /// Mounts a single file at a path.
    pub fn mount_file(
        &mut self,
        path: &str,
        content: Vec<u8>,
        mode: u32,
        is_read_only: bool,
        now_ms: i64,
    ) -> Result<(), Trouble> {
        let path = &absolute("/", path);
        let changes = self.own.changes;
        self.read_only.retain(|known| known != path);
        self.as_kubelet(|own| own.make_folders(parent(path), now_ms))?;
        self.store(path, content, Some(mode), now_ms)?;
        if is_read_only {
            self.read_only.push(path.clone());
        }
        self.own.changes = changes;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_root_leaves_volumes_and_one_file_open() {
        let mut files = FileSystem::default();
        let pair = |text: &str| (text.as_bytes().to_vec(), 0o644);
        let settings = |names: &[&str]| names.iter().map(|name| ((*name).to_owned(), pair(name))).collect();
        files.mount("/etc/settings", &settings(&["a", "b"]), true, 1).expect("there is room");
        files.mount_volume("/data", &Volume::default(), "", false, 1);
        files.mount_file("/dev/termination-log", Vec::new(), 0o666, false, 1).expect("there is room");
        files.close_root("/dev/termination-log");
        assert_eq!(files.write("/file", vec![1], 2), Err(READ_ONLY));
        assert_eq!(files.make_folder("/tmp/x", 2), Err(READ_ONLY));
        assert_eq!(files.remove("/etc/hostname", false), Err(MISSING));
        assert_eq!(files.remove("/tmp", true), Err(READ_ONLY));
        files.write("/data/file", vec![1], 2).expect("a volume is open");
        files.append("/dev/termination-log", b"it ends", 2).expect("it is open");
        files.mount("/etc/settings", &settings(&["b", "c"]), true, 3).expect("the kubelet may");
        assert_eq!(files.names("/etc/settings"), ["b", "c"]);
        assert_eq!(files.write("/file", vec![1], 4), Err(READ_ONLY));
    }

    #[test]
    fn paths_are_made_whole() {
        for (folder, path, expected) in
            [("/", "a", "/a"), ("/a/b", "../c", "/a/c"), ("/a", "/x/./y/", "/x/y"), ("/", "../..", "/")]
        {
            assert_eq!(absolute(folder, path), expected);
        }
    }

    #[test]
    fn files_are_bounded() {
        let mut files = FileSystem::default();
        let big = vec![0; BYTES_MAX / 2];
        files.write("/tmp/a", big.clone(), 0).expect("there is room");
        assert_eq!(files.write("/tmp/b", big.clone(), 0), Err(FULL));
        assert_eq!(files.append("/tmp/a", &big, 0), Err(FULL));
        files.write("/tmp/a", Vec::new(), 0).expect("it is replaced");
        files.write("/tmp/b", big, 0).expect("there is room again");
        let made = (0..ENTRIES_MAX).filter(|n| files.write(&format!("/tmp/{n}"), Vec::new(), 0).is_ok()).count();
        assert!(made < ENTRIES_MAX && files.own.count() == ENTRIES_MAX, "{made}");
        files.remove("/tmp", true).expect("a folder goes whole");
        assert!(files.bytes() < 4096, "{}", files.bytes());
    }

    #[test]
    fn mounts_are_read_only_and_replaced() {
        let mut files = FileSystem::default();
        let content = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(name, text)| ((*name).to_owned(), (text.as_bytes().to_vec(), 0o644))).collect()
        };
        files.mount("/etc/config", &content(&[("a", "1"), ("d/b", "2")]), true, 0).expect("mounted");
        assert_eq!(files.write("/etc/config/a", Vec::new(), 0), Err(READ_ONLY));
        assert_eq!(files.remove("/etc", true), Err(READ_ONLY));
        files.mount("/etc/config", &content(&[("a", "3")]), true, 0).expect("mounted anew");
        assert_eq!(files.read("/etc/config/a").map(|read| read.to_vec()), Ok(b"3".to_vec()));
        assert_eq!(files.read("/etc/config/d/b"), Err(MISSING));
        assert_eq!(files.changes(), 0);
        assert_eq!(files.names("/etc/config"), ["a"]);
    }

    #[test]
    fn volumes_are_shared() {
        let (volume, [mut one, mut other]) = (Volume::default(), [FileSystem::default(), FileSystem::default()]);
        one.mount_volume("/data", &volume, "", false, 0);
        other.mount_volume("/mnt/x", &volume, "", true, 0);
        one.write("/data/a", b"1".to_vec(), 5).expect("written");
        one.make_folders("/data/d/e", 5).expect("made");
        assert_eq!(other.read("/mnt/x/a").map(|read| read.to_vec()), Ok(b"1".to_vec()));
        assert_eq!((other.names("/mnt/x"), other.names("/mnt")), (vec!["a".into(), "d".into()], vec!["x".into()]));
        assert_eq!(other.below("/mnt"), ["/mnt/x", "/mnt/x/a", "/mnt/x/d", "/mnt/x/d/e"]);
        assert_eq!(other.write("/mnt/x/b", Vec::new(), 5), Err(READ_ONLY));
        assert_eq!(one.remove("/data", true), Err(BUSY));
        one.remove("/data/d", true).expect("removed");
        assert_eq!(other.below("/mnt/x"), ["/mnt/x/a"]);
        // The container `part` mounts only one folder of the volume.
        let mut part = FileSystem::default();
        part.mount_volume("/p", &volume, "sub/y", false, 0);
        part.write("/p/z", b"2".to_vec(), 6).expect("written");
        assert_eq!(one.read("/data/sub/y/z").map(|read| read.to_vec()), Ok(b"2".to_vec()));
        assert_eq!(part.below("/p"), ["/p/z"]);
        // The content of the volume counts in the limit of every container that mounts the volume.
        one.write("/data/big", vec![0; BYTES_MAX / 2], 7).expect("there is room");
        assert_eq!(part.write("/tmp/big", vec![0; BYTES_MAX / 2], 7), Err(FULL));
    }
}
