//! Caches the states, kinds and objects that reads of the past need.

use holdfast_core::event::Offset;
use holdfast_core::kinds::Registry;
use holdfast_core::state::{Entry, State};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

/// The maximum number of past versions whose kinds are cached.
const VERSIONS_MAX: usize = 16;
/// The maximum number of past sets of kinds that are cached.
const REGISTRIES_MAX: usize = 4;
/// The maximum number of bytes of past objects in each of the two generations of the cache.
const GENERATION_BYTES_MAX: usize = 8 << 20;
/// The states, kinds and objects that reads of the past have found.
#[derive(Default)]
pub(crate) struct PastCache(Mutex<Cached>);

#[derive(Default)]
struct Cached {
    /// States of past versions, with the kinds of the version and without objects. The newest addition is last.
    versions: VecDeque<Arc<State>>,
    /// Past sets of kinds. The key is the event on a definition by which the set became outdated.
    registries: VecDeque<(Offset, Arc<Registry>)>,
    young: Generation,
    old: Generation,
}

/// Entries of the past. The key is the entry's event, and the event of the definition by which it was decoded.
#[derive(Default)]
struct Generation {
    entries: HashMap<(Offset, Offset), Arc<Entry>>,
    bytes: usize,
}

impl PastCache {
    fn lock(&self) -> MutexGuard<'_, Cached> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The state of a past version, with its kinds and without objects.
    pub fn version(&self, at: Offset) -> Option<Arc<State>> {
        self.lock().versions.iter().find(|state| state.offset == at).cloned()
    }

    pub fn keep_version(&self, state: Arc<State>) {
        push(&mut self.lock().versions, state, VERSIONS_MAX);
    }

    /// The set of kinds that this event on a definition made outdated.
    pub fn registry(&self, ended: Offset) -> Option<Arc<Registry>> {
        let cached = self.lock();
        cached.registries.iter().find(|(until, _)| *until == ended).map(|(_, registry)| registry.clone())
    }

    pub fn keep_registry(&self, ended: Offset, registry: Arc<Registry>) {
        push(&mut self.lock().registries, (ended, registry), REGISTRIES_MAX);
    }

    /// A past entry, by the offset of its event and the offset of the definition's event with which it was decoded.
    pub fn entry(&self, name: (Offset, Offset)) -> Option<Arc<Entry>> {
        self.lock().entry(name)
    }

    pub fn keep_entry(&self, name: (Offset, Offset), entry: Arc<Entry>) {
        self.lock().keep_entry(name, entry);
    }
}

impl Cached {
    fn entry(&mut self, name: (Offset, Offset)) -> Option<Arc<Entry>> {
        if let Some(entry) = self.young.entries.get(&name) {
            return Some(entry.clone());
        }
        let entry = self.old.entries.get(&name)?.clone();
        self.keep_entry(name, entry.clone());
        Some(entry)
    }

    /// Adds an entry. Entries that were not read during a whole generation are dropped.
    fn keep_entry(&mut self, name: (Offset, Offset), entry: Arc<Entry>) {
        if self.young.bytes > GENERATION_BYTES_MAX {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.bytes += entry.size() + size_of::<Entry>();
        self.young.entries.insert(name, entry);
    }
}

fn push<T>(queue: &mut VecDeque<T>, item: T, max: usize) {
    queue.push_back(item);
    while queue.len() > max {
        queue.pop_front();
    }
}
