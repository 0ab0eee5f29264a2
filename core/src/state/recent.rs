//! The parsed documents of the last writes. Most objects are written again soon after a write; the second write then
//! needs no parsing.

use super::Entry;
use crate::cached::Cached;
use crate::object::meta;
use holdfast_value::Value;
use std::sync::{Arc, OnceLock, Weak};

/// The number of writes whose documents are cached: the last ones.
const WRITES_MAX: usize = 512;
/// The maximum number of bytes of memory that a cached document takes. It keeps the whole cache within 20 MiB for any
/// writes: a document with many small fields may take forty times the memory of its text. A larger document is not
/// cached.
const FOOTPRINT_MAX: usize = 40 << 10;
/// The maximum number of bytes of the text of a cached document. A document with a longer text always exceeds
/// `FOOTPRINT_MAX`, so its memory need not be measured.
const BYTES_MAX: usize = 16 << 10;

/// The documents of recently written objects. All states of one log share them, whatever their offsets are. A cached
/// document equals the document that results from parsing the object.
#[derive(Default)]
pub struct Recent {
    kept: OnceLock<Box<[Cached<Option<Kept>>]>>,
}

/// A version of an object, with its parsed document.
struct Kept {
    /// The version of the object. The pointer is weak, so that the bytes are freed when no state has the version any
    /// more.
    entry: Weak<Entry>,
    document: Value,
}

impl Recent {
    /// Whether a document may be cached: it and its text, which has `bytes` bytes, are small enough.
    pub fn has_room(bytes: usize, document: &Value) -> bool {
        bytes <= BYTES_MAX && document.footprint() <= FOOTPRINT_MAX
    }

    /// Caches the document of an entry: the result of [`Entry::document`], without `resourceVersion`.
    pub fn keep(&self, entry: &Arc<Entry>, document: Value) {
        let kept = self.kept.get_or_init(|| (0..WRITES_MAX).map(|_| Cached::default()).collect());
        let mut place = kept[place(entry)].lock();
        let before = place.replace(Kept { entry: Arc::downgrade(entry), document });
        drop(place);
        drop(before);
    }

    /// The document of an entry, without `resourceVersion`. It is taken from the cache, or parsed.
    pub fn document(&self, entry: &Arc<Entry>) -> Value {
        if let Some(document) = self.find(entry) {
            return document;
        }
        let mut document = entry.document();
        meta::metadata_mut(meta::fields_mut(&mut document)).remove("resourceVersion");
        document
    }

    /// The cached document without `resourceVersion`; `None` if it is not cached.
    pub fn find(&self, entry: &Arc<Entry>) -> Option<Value> {
        let kept = self.kept.get()?[place(entry)].lock();
        // Compares pointers and not offsets, because two forks may have different objects at the same offset. While the
        // weak pointer exists, no other entry can get the same address.
        kept.as_ref().filter(|kept| kept.entry.as_ptr() == Arc::as_ptr(entry)).map(|kept| kept.document.clone())
    }
}

/// The slot of a write in the cache, which depends on its offset. The last `WRITES_MAX` writes have different slots.
fn place(entry: &Entry) -> usize {
    (entry.offset.0 % WRITES_MAX as u64) as usize
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
    fn what_takes_much_memory_is_not_kept_however_short_it_is() {
        let small = json!({"metadata": {"name": "a"}});
        assert!(Recent::has_room(BYTES_MAX, &small));
        assert!(!Recent::has_room(BYTES_MAX + 1, &small));
        let swollen: Vec<Value> = (0..1000).map(|_| json!({"": 0})).collect();
        let swollen = Value::from(swollen);
        assert!(!Recent::has_room(swollen.to_string().len(), &swollen));
    }

    #[test]
    fn a_version_that_nobody_has_any_more_goes() {
        let recent = Recent::default();
        let only = entry(7, "only");
        let weak = Arc::downgrade(&only);
        recent.keep(&only, json!("kept"));
        drop(only);
        assert!(weak.upgrade().is_none());
    }

    #[test]
    fn an_object_of_a_fork_is_another_at_the_same_offset() {
        let recent = Recent::default();
        recent.keep(&entry(7, "ours"), json!("kept"));
        assert_eq!(recent.document(&entry(7, "theirs")), read("theirs"));
    }
}
