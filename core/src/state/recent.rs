//! The documents that were written last, as they were judged. Most objects are written again within a moment of a write,
//! and then need not be read from their text.

use super::Entry;
use crate::object::meta;
use holdfast_value::Value;
use std::sync::{Arc, Mutex, OnceLock};

/// So many of the last writes.
const WRITES_MAX: usize = 512;
/// A larger object is read again: all that is kept stays within some 20 MiB, whoever writes what.
const BYTES_MAX: usize = 8 << 10;

/// What one log's states share, at whatever offset they are.
#[derive(Default)]
pub struct Recent {
    kept: OnceLock<Box<[Mutex<Option<Kept>>]>>,
}

/// An object at one version, and what its text says.
struct Kept {
    entry: Arc<Entry>,
    document: Value,
}

impl Recent {
    /// Whether an object of so many bytes would be kept.
    pub fn has_room(bytes: usize) -> bool {
        bytes <= BYTES_MAX
    }

    /// `document` is what [`Entry::document`] would give, but for its `resourceVersion`.
    pub fn keep(&self, entry: &Arc<Entry>, document: Value) {
        let kept = self.kept.get_or_init(|| (0..WRITES_MAX).map(|_| Mutex::default()).collect());
        let mut place = lock(&kept[place(entry)]);
        let before = place.replace(Kept { entry: entry.clone(), document });
        drop(place);
        drop(before);
    }

    /// What [`Entry::document`] gives, but for its `resourceVersion`.
    pub fn document(&self, entry: &Arc<Entry>) -> Value {
        if let Some(document) = self.find(entry) {
            return document;
        }
        let mut document = entry.document();
        meta::metadata_mut(meta::fields_mut(&mut document)).remove("resourceVersion");
        document
    }

    fn find(&self, entry: &Arc<Entry>) -> Option<Value> {
        let kept = lock(&self.kept.get()?[place(entry)]);
        // Two forks have different objects at one offset.
        kept.as_ref().filter(|kept| Arc::ptr_eq(&kept.entry, entry)).map(|kept| kept.document.clone())
    }
}

/// Each of the last writes has a place of its own.
fn place(entry: &Entry) -> usize {
    (entry.offset.0 % WRITES_MAX as u64) as usize
}

fn lock(kept: &Mutex<Option<Kept>>) -> std::sync::MutexGuard<'_, Option<Kept>> {
    kept.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Offset;
    use crate::object::Draft;
    use crate::state::Index;
    use holdfast_value::json;

    fn entry(offset: u64, name: &str) -> Arc<Entry> {
        let document = json!({"metadata": {"name": name}, "data": {"a": "b"}});
        let draft = Draft::new("v1", "ConfigMap", document.as_object().expect("an object"));
        let offset = Offset(offset);
        Arc::new(Entry::new(draft.seal(offset), draft.head(), offset, 0, Index::default()))
    }

    fn read(name: &str) -> Value {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "b"}})
    }

    #[test]
    fn what_is_kept_is_found_until_as_many_others_have_come() {
        let recent = Recent::default();
        let first = entry(7, "first");
        assert_eq!(recent.document(&first), read("first"));
        recent.keep(&first, json!("kept"));
        assert_eq!(recent.document(&first), json!("kept"));
        recent.keep(&entry(8, "next"), json!("another"));
        assert_eq!(recent.document(&first), json!("kept"));
        recent.keep(&entry(7 + WRITES_MAX as u64, "later"), json!("later"));
        assert_eq!(recent.document(&first), read("first"));
    }

    #[test]
    fn an_object_of_a_fork_is_another_at_the_same_offset() {
        let recent = Recent::default();
        recent.keep(&entry(7, "ours"), json!("kept"));
        assert_eq!(recent.document(&entry(7, "theirs")), read("theirs"));
    }
}
