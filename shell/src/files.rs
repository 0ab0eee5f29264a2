//! A made-up file system: folders and files in memory, bounded.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

/// How many entries, and bytes of files and names, there may be.
pub const ENTRIES_MAX: usize = 2_000;
pub const BYTES_MAX: usize = 4 << 20;
/// The longest path.
const PATH_BYTES_MAX: usize = 4096;
/// What an entry counts for besides its path and content.
const ENTRY_BYTES: usize = 64;

/// Why a file could not be had, in the words of the system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trouble(pub &'static str);

pub const MISSING: Trouble = Trouble("No such file or directory");
pub const IS_FOLDER: Trouble = Trouble("Is a directory");
pub const NO_FOLDER: Trouble = Trouble("Not a directory");
pub const EXISTS: Trouble = Trouble("File exists");
pub const NOT_EMPTY: Trouble = Trouble("Directory not empty");
pub const READ_ONLY: Trouble = Trouble("Read-only file system");
pub const FULL: Trouble = Trouble("No space left on device");
pub const TOO_LONG: Trouble = Trouble("File name too long");

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// `None` for a folder.
    pub content: Option<Arc<Vec<u8>>>,
    pub mode: u32,
    pub changed_ms: i64,
}

/// Folders and files by their paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Files {
    entries: BTreeMap<String, Entry>,
    /// Folders below which nobody in the container may write.
    read_only: Vec<String>,
    bytes: usize,
    /// How often something was written.
    changes: u64,
}

impl Default for Files {
    /// The folders that most images have.
    fn default() -> Files {
        let mut files = Files { entries: BTreeMap::new(), read_only: Vec::new(), bytes: 0, changes: 0 };
        files.entries.insert("/".into(), Entry { content: None, mode: 0o755, changed_ms: 0 });
        for folder in ["/bin", "/dev", "/etc", "/home", "/root", "/run", "/tmp", "/usr/bin", "/var/log", "/var/run"] {
            let _ = files.make_folders(folder, 0);
        }
        if let Some(entry) = files.entries.get_mut("/tmp") {
            entry.mode = 0o1777;
        }
        files.changes = 0;
        files
    }
}

/// A path from the root, without `.` and `..`.
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

fn parent(path: &str) -> &str {
    match path.rfind('/') {
        Some(0) | None => "/",
        Some(at) => &path[..at],
    }
}

pub fn name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

impl Files {
    /// How often something was written since it was made.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// How many bytes it holds.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn entry(&self, path: &str) -> Option<&Entry> {
        self.entries.get(path)
    }

    pub fn is_folder(&self, path: &str) -> bool {
        self.entries.get(path).is_some_and(|entry| entry.content.is_none())
    }

    pub fn read(&self, path: &str) -> Result<Arc<Vec<u8>>, Trouble> {
        match self.entries.get(path) {
            Some(Entry { content: Some(content), .. }) => Ok(content.clone()),
            Some(_) => Err(IS_FOLDER),
            None if self.entries.get(parent(path)).is_some_and(|entry| entry.content.is_some()) => Err(NO_FOLDER),
            None => Err(MISSING),
        }
    }

    /// The names in a folder, in order.
    pub fn names<'a>(&'a self, folder: &str) -> impl Iterator<Item = &'a str> + use<'a> {
        let prefix = if folder == "/" { "/".to_owned() } else { format!("{folder}/") };
        let range = (Bound::Excluded(prefix.clone()), Bound::Unbounded);
        let below = self.entries.range(range);
        let length = prefix.len();
        below
            .take_while(move |(path, _)| path.starts_with(&prefix))
            .filter_map(move |(path, _)| path.get(length..).filter(|rest| !rest.contains('/')))
    }

    /// All paths below a folder, without it.
    pub fn below(&self, folder: &str) -> Vec<String> {
        let prefix = if folder == "/" { "/".to_owned() } else { format!("{folder}/") };
        let range = self.entries.range((Bound::Excluded(prefix.clone()), Bound::Unbounded));
        range.take_while(|(path, _)| path.starts_with(&prefix)).map(|(path, _)| path.clone()).collect()
    }

    fn may_write(&self, path: &str) -> Result<(), Trouble> {
        if path.len() > PATH_BYTES_MAX {
            return Err(TOO_LONG);
        }
        let inside = |folder: &String| {
            path == folder || path.strip_prefix(folder.as_str()).is_some_and(|rest| rest.starts_with('/'))
        };
        if self.read_only.iter().any(inside) { Err(READ_ONLY) } else { Ok(()) }
    }

    fn put(&mut self, path: &str, entry: Entry) -> Result<(), Trouble> {
        let size = |path: &str, entry: &Entry| {
            ENTRY_BYTES + path.len() + entry.content.as_ref().map_or(0, |content| content.len())
        };
        let old = self.entries.get(path).map_or(0, |old| size(path, old));
        let bytes = self.bytes - old + size(path, &entry);
        if bytes > BYTES_MAX || old == 0 && self.entries.len() >= ENTRIES_MAX {
            return Err(FULL);
        }
        self.bytes = bytes;
        self.changes += 1;
        self.entries.insert(path.to_owned(), entry);
        Ok(())
    }

    /// Replaces what a file holds, or makes it.
    pub fn write(&mut self, path: &str, content: Vec<u8>, now_ms: i64) -> Result<(), Trouble> {
        self.may_write(path)?;
        self.store(path, content, None, now_ms)
    }

    fn store(&mut self, path: &str, content: Vec<u8>, mode: Option<u32>, now_ms: i64) -> Result<(), Trouble> {
        let known = match self.entries.get(path) {
            Some(Entry { content: None, .. }) => return Err(IS_FOLDER),
            Some(entry) => Some(entry.mode),
            None => {
                self.needs_folder(parent(path))?;
                None
            }
        };
        let mode = mode.or(known).unwrap_or(0o644);
        self.put(path, Entry { content: Some(Arc::new(content)), mode, changed_ms: now_ms })
    }

    fn needs_folder(&self, path: &str) -> Result<(), Trouble> {
        match self.entries.get(path) {
            Some(Entry { content: None, .. }) => Ok(()),
            Some(_) => Err(NO_FOLDER),
            None => Err(MISSING),
        }
    }

    pub fn append(&mut self, path: &str, more: &[u8], now_ms: i64) -> Result<(), Trouble> {
        self.may_write(path)?;
        match self.entries.get_mut(path) {
            Some(Entry { content: Some(content), changed_ms, .. }) => {
                if self.bytes + more.len() > BYTES_MAX {
                    return Err(FULL);
                }
                self.bytes += more.len();
                self.changes += 1;
                *changed_ms = now_ms;
                Arc::make_mut(content).extend_from_slice(more);
                Ok(())
            }
            _ => self.write(path, more.to_vec(), now_ms),
        }
    }

    pub fn set_mode(&mut self, path: &str, mode: u32) -> Result<(), Trouble> {
        self.may_write(path)?;
        let entry = self.entries.get_mut(path).ok_or(MISSING)?;
        self.changes += u64::from(entry.mode != mode);
        entry.mode = mode;
        Ok(())
    }

    pub fn make_folder(&mut self, path: &str, now_ms: i64) -> Result<(), Trouble> {
        if self.entries.contains_key(path) {
            return Err(EXISTS);
        }
        self.may_write(path)?;
        self.needs_folder(parent(path))?;
        self.put(path, Entry { content: None, mode: 0o755, changed_ms: now_ms })
    }

    /// Makes a folder with those that it is in.
    pub fn make_folders(&mut self, path: &str, now_ms: i64) -> Result<(), Trouble> {
        let mut at = 0;
        while at < path.len() {
            at = path[at + 1..].find('/').map_or(path.len(), |slash| at + 1 + slash);
            match self.entries.get(&path[..at]) {
                Some(Entry { content: None, .. }) => {}
                Some(_) => return Err(NO_FOLDER),
                None => self.make_folder(&path[..at], now_ms)?,
            }
        }
        Ok(())
    }

    /// Removes a file, or a folder with all that is in it.
    pub fn remove(&mut self, path: &str, whole_folders: bool) -> Result<(), Trouble> {
        let entry = self.entries.get(path).ok_or(MISSING)?;
        if entry.content.is_none() && !whole_folders {
            return Err(IS_FOLDER);
        }
        self.may_write(path)?;
        let inside = self.below(path);
        // A folder that is mounted is not removed with the one that it is in.
        inside.iter().try_for_each(|path| self.may_write(path))?;
        for path in inside.iter().map(String::as_str).chain(Some(path).filter(|path| *path != "/")) {
            if let Some(entry) = self.entries.remove(path) {
                self.bytes -= ENTRY_BYTES + path.len() + entry.content.map_or(0, |content| content.len());
                self.changes += 1;
            }
        }
        Ok(())
    }

    /// Removes a folder that is empty.
    pub fn remove_folder(&mut self, path: &str) -> Result<(), Trouble> {
        match self.entries.get(path) {
            None => Err(MISSING),
            Some(Entry { content: Some(_), .. }) => Err(NO_FOLDER),
            Some(_) if self.names(path).next().is_some() => Err(NOT_EMPTY),
            Some(_) => self.remove(path, true),
        }
    }

    /// Puts a folder of files in, as a mount does, in place of what was there. Where it is read-only, only another mount
    /// changes it.
    pub fn mount(
        &mut self,
        folder: &str,
        files: &BTreeMap<String, (Vec<u8>, u32)>,
        is_read_only: bool,
        now_ms: i64,
    ) -> Result<(), Trouble> {
        let folder = &absolute("/", folder);
        let changes = self.changes;
        self.read_only.retain(|known| known != folder);
        self.make_folders(folder, now_ms)?;
        let wanted: Vec<String> = files.keys().map(|name| absolute(folder, name)).collect();
        if is_read_only {
            for path in self.below(folder) {
                let is_wanted = wanted.iter().any(|file| *file == path || file.starts_with(&format!("{path}/")));
                if !is_wanted && self.entries.contains_key(&path) {
                    self.remove(&path, true)?;
                }
            }
        }
        for (path, (content, mode)) in wanted.iter().zip(files.values()) {
            let same =
                self.entries.get(path).and_then(|entry| entry.content.as_ref()).is_some_and(|old| **old == *content);
            if !same {
                self.make_folders(parent(path), now_ms)?;
                self.store(path, content.clone(), Some(*mode), now_ms)?;
            }
        }
        if is_read_only {
            self.read_only.push(folder.clone());
        }
        // What a kubelet writes is none of the container's changes.
        self.changes = changes;
        Ok(())
    }

    /// Puts one file in, as a mount of one file does.
    pub fn mount_file(
        &mut self,
        path: &str,
        content: Vec<u8>,
        mode: u32,
        is_read_only: bool,
        now_ms: i64,
    ) -> Result<(), Trouble> {
        let path = &absolute("/", path);
        let changes = self.changes;
        self.read_only.retain(|known| known != path);
        self.make_folders(parent(path), now_ms)?;
        self.store(path, content, Some(mode), now_ms)?;
        if is_read_only {
            self.read_only.push(path.clone());
        }
        self.changes = changes;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let mut files = Files::default();
        let big = vec![0; BYTES_MAX / 2];
        files.write("/tmp/a", big.clone(), 0).expect("there is room");
        assert_eq!(files.write("/tmp/b", big.clone(), 0), Err(FULL));
        assert_eq!(files.append("/tmp/a", &big, 0), Err(FULL));
        files.write("/tmp/a", Vec::new(), 0).expect("it is replaced");
        files.write("/tmp/b", big, 0).expect("there is room again");
        let made = (0..ENTRIES_MAX).filter(|n| files.write(&format!("/tmp/{n}"), Vec::new(), 0).is_ok()).count();
        assert!(made < ENTRIES_MAX && files.entries.len() == ENTRIES_MAX, "{made}");
        files.remove("/tmp", true).expect("a folder goes whole");
        assert!(files.bytes() < 4096, "{}", files.bytes());
    }

    #[test]
    fn mounts_are_read_only_and_replaced() {
        let mut files = Files::default();
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
        assert_eq!(files.names("/etc/config").collect::<Vec<_>>(), ["a"]);
    }
}
