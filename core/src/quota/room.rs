//! The bytes stored in namespaces, and the quotas that limit them.

use crate::object::meta;
use crate::schema::quantity;
use holdfast_value::Value;
use imbl::OrdMap;
use std::ops::Bound;
use std::sync::Arc;

/// The resource name under which a ResourceQuota limits the stored bytes of its namespace.
pub const BYTES: &str = "holdfast.dev/bytes";

/// The stored bytes of each namespace, and the limits on them. Cluster-scoped objects do not count.
#[derive(Clone, Default)]
pub struct Room {
    /// The total size of each namespace's objects, in bytes.
    stored: OrdMap<Arc<str>, u64>,
    /// The limits in bytes, by the key (`namespace/name`) of the ResourceQuota that sets the limit.
    limits: OrdMap<Arc<str>, u64>,
    /// For each other log: the total size of each namespace's objects in that log, in bytes.
    apart: Vec<OrdMap<Arc<str>, u64>>,
}

impl Room {
    /// Updates the namespace's total when the size of an object changes. A size is `None` if the object does not exist.
    pub(crate) fn note(&mut self, key: &str, before: Option<usize>, after: Option<usize>) {
        let (Some(namespace), true) = (meta::split_key(key).0, before != after) else { return };
        let (less, more) = (before.unwrap_or(0) as u64, after.unwrap_or(0) as u64);
        let stored = self.stored.get(namespace).copied().unwrap_or(0);
        let stored = stored.saturating_add(more).saturating_sub(less);
        match (stored, self.stored.get_mut(namespace)) {
            (0, _) => _ = self.stored.remove(namespace),
            (_, Some(known)) => *known = stored,
            (_, None) => _ = self.stored.insert(namespace.into(), stored),
        }
    }

    /// Updates the limit that a ResourceQuota sets, from its newest state; `None` if the quota was deleted.
    pub(crate) fn note_quota(&mut self, key: &Arc<str>, document: Option<&Value>) {
        let limit = document.and_then(|document| quantity::whole(document["spec"]["hard"][BYTES].as_str()?));
        match limit {
            Some(limit) => _ = self.limits.insert(key.clone(), u64::try_from(limit.max(0)).unwrap_or(u64::MAX)),
            None => _ = self.limits.remove(key),
        }
    }

    /// Adds the objects of another log to the totals.
    pub(crate) fn join(&mut self, other: &Room) {
        self.apart.push(other.stored.clone());
    }

    /// The total size of a namespace's objects in all logs, in bytes.
    pub fn stored(&self, namespace: &str) -> u64 {
        let all = std::iter::once(&self.stored).chain(&self.apart);
        all.filter_map(|stored| stored.get(namespace)).sum()
    }

    /// The lowest limit in bytes that ResourceQuotas of a namespace set, and the name of the quota that sets it.
    pub fn limit<'a>(&'a self, namespace: &str) -> Option<(&'a str, u64)> {
        if self.limits.is_empty() {
            return None;
        }
        let first = meta::key(Some(namespace), "");
        let all = self.limits.range::<_, str>((Bound::Included(&*first), Bound::Unbounded));
        let own = all.map_while(|(key, limit)| Some((key.strip_prefix(&*first)?, *limit)));
        own.min_by_key(|(_, limit)| *limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_value::json;

    #[test]
    fn bytes_are_counted_by_namespace() {
        let mut room = Room::default();
        room.note("a/x", None, Some(100));
        room.note("a/y", None, Some(10));
        room.note("b/x", None, Some(1));
        room.note("node", None, Some(1000));
        room.note("a/x", Some(100), Some(70));
        assert_eq!((room.stored("a"), room.stored("b"), room.stored("node"), room.stored("")), (80, 1, 0, 0));
        room.note("a/x", Some(70), None);
        room.note("a/y", Some(10), None);
        assert_eq!((room.stored("a"), room.stored.len()), (0, 1));
    }

    #[test]
    fn the_narrowest_quota_of_a_namespace_counts() {
        let mut room = Room::default();
        assert_eq!(room.limit("a"), None);
        for (key, limit) in [("a/wide", "1Gi"), ("a/narrow", "1Mi"), ("ab/other", "1"), ("a/not-one", "x")] {
            room.note_quota(&key.into(), Some(&json!({"spec": {"hard": {(BYTES): limit}}})));
        }
        room.note_quota(&"a/pods".into(), Some(&json!({"spec": {"hard": {"pods": "1"}}})));
        assert_eq!(room.limit("a"), Some(("narrow", 1 << 20)));
        assert_eq!(room.limit("ab"), Some(("other", 1)));
        assert_eq!(room.limit("b"), None);
        room.note_quota(&"a/narrow".into(), None);
        assert_eq!(room.limit("a"), Some(("wide", 1 << 30)));
    }
}
