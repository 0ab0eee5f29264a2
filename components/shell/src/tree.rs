//! A tree of folders and files in memory, by their paths. The caller limits the size of the tree.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// An error of a file operation, in the wording of the operating system.
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
pub const BUSY: Trouble = Trouble("Device or resource busy");

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeEntry {
    /// The content of a file; `None` if the entry is a folder.
    pub content: Option<Arc<Vec<u8>>>,
    pub mode: u32,
    pub changed_ms: i64,
}

/// How many bytes an entry adds to [`Tree::bytes`], in addition to its path and its content.
const ENTRY_BYTES: usize = 64;

/// A tree of folders and files.
#[derive(Debug, Clone)]
pub struct Tree {
    entries: BTreeMap<String, TreeEntry>,
    bytes: usize,
    /// The number of writes to the tree so far.
    pub changes: u64,
}

impl Default for Tree {
    /// A tree that contains only an empty root folder.
    fn default() -> Tree {
        let root = TreeEntry { content: None, mode: 0o755, changed_ms: 0 };
        Tree { entries: BTreeMap::from([("/".to_owned(), root)]), bytes: 0, changes: 0 }
    }
}

/// How much more a tree may contain.
#[derive(Debug, Clone, Copy)]
pub struct GrowthLimit {
    pub entries: usize,
    pub bytes: usize,
}

fn size(path: &str, entry: &TreeEntry) -> usize {
    ENTRY_BYTES + path.len() + entry.content.as_ref().map_or(0, |content| content.len())
}

pub(crate) fn parent(path: &str) -> &str {
    match path.rfind('/') {
        Some(0) | None => "/",
        Some(at) => &path[..at],
    }
}

impl Tree {
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn count(&self) -> usize {
        self.entries.len()
    }

    pub fn entry(&self, path: &str) -> Option<&TreeEntry> {
        self.entries.get(path)
    }

    /// The paths of all files and folders below a folder, sorted. The folder itself is not among them.
    pub fn below<'a>(&'a self, folder: &str) -> impl Iterator<Item = &'a str> + use<'a> {
        let prefix = if folder == "/" { "/".to_owned() } else { format!("{folder}/") };
        let range = self.entries.range((Bound::Excluded(prefix.clone()), Bound::Unbounded));
        range.map(|(path, _)| path.as_str()).take_while(move |path| path.starts_with(&prefix))
    }

    pub fn needs_folder(&self, path: &str) -> Result<(), Trouble> {
        match self.entries.get(path) {
            Some(TreeEntry { content: None, .. }) => Ok(()),
            Some(_) => Err(NO_FOLDER),
            None => Err(MISSING),
        }
    }

    fn put(&mut self, path: &str, entry: TreeEntry, room: GrowthLimit) -> Result<(), Trouble> {
        let old = self.entries.get(path).map_or(0, |old| size(path, old));
        let new = size(path, &entry);
        if new > old && new - old > room.bytes || old == 0 && room.entries == 0 {
            return Err(FULL);
        }
        self.bytes = self.bytes - old + new;
        self.changes += 1;
        self.entries.insert(path.to_owned(), entry);
        Ok(())
    }

    /// Writes a file, and creates it if it does not exist.
    pub fn store(
        &mut self,
        path: &str,
        content: Vec<u8>,
        mode: Option<u32>,
        now_ms: i64,
        room: GrowthLimit,
    ) -> Result<(), Trouble> {
        let known = match self.entries.get(path) {
            Some(TreeEntry { content: None, .. }) => return Err(IS_FOLDER),
            Some(entry) => Some(entry.mode),
            None => {
                self.needs_folder(parent(path))?;
                None
            }
        };
        let mode = mode.or(known).unwrap_or(0o644);
        self.put(path, TreeEntry { content: Some(Arc::new(content)), mode, changed_ms: now_ms }, room)
    }

    /// Appends bytes to a file. Returns false if there is no such file.
    pub fn append(&mut self, path: &str, more: &[u8], now_ms: i64, room: GrowthLimit) -> Result<bool, Trouble> {
        let Some(TreeEntry { content: Some(content), changed_ms, .. }) = self.entries.get_mut(path) else {
            return Ok(false);
        };
        if more.len() > room.bytes {
            return Err(FULL);
        }
        self.bytes += more.len();
        self.changes += 1;
        *changed_ms = now_ms;
        Arc::make_mut(content).extend_from_slice(more);
        Ok(true)
    }

    pub fn set_mode(&mut self, path: &str, mode: u32) -> Result<(), Trouble> {
        let entry = self.entries.get_mut(path).ok_or(MISSING)?;
        self.changes += u64::from(entry.mode != mode);
        entry.mode = mode;
        Ok(())
    }

    pub fn make_folder(&mut self, path: &str, now_ms: i64, room: GrowthLimit) -> Result<(), Trouble> {
        self.needs_folder(parent(path))?;
        self.put(path, TreeEntry { content: None, mode: 0o755, changed_ms: now_ms }, room)
    }

    /// Removes one entry. The root is never removed.
    pub fn remove(&mut self, path: &str) {
        if path != "/"
            && let Some(entry) = self.entries.remove(path)
        {
            self.bytes -= size(path, &entry);
            self.changes += 1;
        }
    }
}

/// A folder that several containers of a pod share.
#[derive(Debug, Clone, Default)]
pub struct Volume(Arc<Mutex<Tree>>);

impl Volume {
    pub fn lock(&self) -> MutexGuard<'_, Tree> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
