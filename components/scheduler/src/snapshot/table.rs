//! Tables of objects by key, and the change of one object in its table.

use crate::object::{Key, StringPool, Text};
use holdfast_value::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Objects by key. The objects of one namespace are neighbours.
pub type Table<T> = BTreeMap<Key, Arc<T>>;

/// An object before and after a change; `None` if it is absent.
pub(super) type BeforeAfter<T> = (Option<Arc<T>>, Option<Arc<T>>);

/// One object's new state, before it is put into its table.
pub(super) struct TableUpdate<'a> {
    pub pool: &'a mut StringPool,
    pub key: &'a Key,
    pub object: Option<&'a Value>,
    /// Whether the change affects a field that the scheduler reads: most changes of statuses do not.
    pub changed: bool,
}

impl TableUpdate<'_> {
    /// Puts the object into its table, or removes it.
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

/// The objects of a table in one namespace.
pub(super) fn in_namespace<'a, T>(table: &'a Table<T>, namespace: &Text) -> impl Iterator<Item = &'a Arc<T>> {
    let first = Key { namespace: namespace.clone(), name: "".into() };
    let namespace = namespace.clone();
    table.range(first..).take_while(move |(key, _)| key.namespace == namespace).map(|(_, object)| object)
}

/// The key of a cluster-scoped object.
pub(super) fn cluster_key(name: &Text) -> Key {
    Key { namespace: "".into(), name: name.clone() }
}
