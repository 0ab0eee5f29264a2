//! Tables of objects by key, and the change of one object in its table.

use crate::object::{Key, StringPool, Text};
use holdfast_value::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A table of objects, sorted by key, so that the objects of one namespace follow each other.
pub type Table<T> = BTreeMap<Key, Arc<T>>;

/// An object before and after a change; `None` if it does not exist at that time.
pub(super) type BeforeAfter<T> = (Option<Arc<T>>, Option<Arc<T>>);

/// The new state of one object, which is to be put into its table.
pub(super) struct TableUpdate<'a> {
    pub pool: &'a mut StringPool,
    pub key: &'a Key,
    pub object: Option<&'a Value>,
    /// Set when the object is put into its table: whether a field that the scheduler reads has changed. Most changes of
    /// statuses change no such field.
    pub changed: bool,
}

impl TableUpdate<'_> {
    /// Puts the object into its table, or removes it if it was deleted. Returns the object before and after the change.
    pub fn put<T: PartialEq>(
        &mut self,
        table: &mut Table<T>,
        decode: impl Fn(&mut StringPool, &Value) -> T,
    ) -> BeforeAfter<T> {
        let after = self.object.map(|object| Arc::new(decode(self.pool, object)));
        let before = match &after {
            Some(after) => table.insert(self.key.clone(), after.clone()),
            None => table.remove(self.key),
        };
        self.changed |= before != after;
        (before, after)
    }
}

/// The objects of a namespace in a table.
pub(super) fn in_namespace<'a, T>(table: &'a Table<T>, namespace: &Text) -> impl Iterator<Item = &'a Arc<T>> {
    let first = Key { namespace: namespace.clone(), name: "".into() };
    let namespace = namespace.clone();
    table.range(first..).take_while(move |(key, _)| key.namespace == namespace).map(|(_, object)| object)
}

/// The key of an object that is not namespaced.
pub(super) fn cluster_key(name: &Text) -> Key {
    Key { namespace: "".into(), name: name.clone() }
}
