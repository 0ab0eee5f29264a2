//! The objects whose values in etcd cannot be read, because they are encrypted with a missing key, are damaged, or
//! contain no object.

use holdfast_core::event::Offset;
use holdfast_engine::Fault;
use holdfast_engine::log::Unreadable;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// If there are more unreadable values than this, the configuration must be wrong, not the values.
const MAX: usize = 100_000;

/// The known unreadable objects. Every request checks this list, so the check of an empty list costs only one atomic
/// load.
#[derive(Default)]
pub struct Unread {
    all: RwLock<UnreadObjects>,
    count: AtomicUsize,
}

#[derive(Default)]
struct UnreadObjects {
    objects: BTreeMap<(String, String), Noted>,
    /// The number of complete readings of all objects so far.
    round: u64,
    /// An unreadable object that was found when there were already [`MAX`] of them.
    beyond: Option<Unreadable>,
    /// The resources of objects that were added since the last call of [`Unread::news`].
    news: BTreeSet<String>,
}

struct Noted {
    unreadable: Unreadable,
    /// Whether a retry may succeed, because a KMS plug-in with the key does not answer at present.
    may_pass: bool,
    round: u64,
}

impl Unread {
    fn read(&self) -> RwLockReadGuard<'_, UnreadObjects> {
        self.all.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, UnreadObjects> {
        self.all.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// Adds an unreadable object, and writes its name to the server's log.
    pub fn note(&self, unreadable: Unreadable, may_pass: bool) {
        let mut known = self.write();
        let (round, is_full) = (known.round, known.objects.len() >= MAX);
        match known.objects.entry((unreadable.resource.clone(), unreadable.key.clone())) {
            Entry::Occupied(mut noted) => {
                let is_told = noted.get().unreadable == unreadable;
                noted.insert(Noted { unreadable: unreadable.clone(), may_pass, round });
                if is_told {
                    return;
                }
            }
            Entry::Vacant(_) if is_full => {
                known.beyond.get_or_insert(unreadable);
                return;
            }
            Entry::Vacant(room) => {
                room.insert(Noted { unreadable: unreadable.clone(), may_pass, round });
            }
        }
        known.news.insert(unreadable.resource.clone());
        self.count.store(known.objects.len(), Ordering::Release);
        drop(known);
        let Unreadable { place, version, flaw, .. } = unreadable;
        tracing::error!(
            revision = version.0,
            "the value stored under {place} cannot be read: {flaw}; it stays in etcd unchanged, and requests for it fail"
        );
    }

    /// The resources of objects that were added since the last call.
    pub fn news(&self) -> Vec<String> {
        match self.is_empty() {
            true => Vec::new(),
            false => std::mem::take(&mut self.write().news).into_iter().collect(),
        }
    }

    pub fn has_news(&self) -> bool {
        !self.is_empty() && !self.read().news.is_empty()
    }

    /// Removes an object from the list, because it was written again or deleted.
    pub fn forget(&self, resource: &str, key: &str) {
        if self.is_empty() {
            return;
        }
        let mut known = self.write();
        known.objects.remove(&(resource.to_owned(), key.to_owned()));
        self.count.store(known.objects.len(), Ordering::Release);
    }

    /// Records that a reading of all objects begins.
    pub fn begin_round(&self) {
        let mut known = self.write();
        known.round += 1;
        known.beyond = None;
    }

    /// Records that the current reading found a known unreadable object, and that its value is unchanged.
    pub fn confirm(&self, resource: &str, key: &str) {
        if self.is_empty() {
            return;
        }
        let mut known = self.write();
        let round = known.round;
        if let Some(noted) = known.objects.get_mut(&(resource.to_owned(), key.to_owned())) {
            noted.round = round;
        }
    }

    /// Records that a reading of all objects has ended. Objects that were neither added nor confirmed since
    /// [`Self::begin_round`] no longer exist.
    pub fn end_round(&self) {
        let mut known = self.write();
        let round = known.round;
        known.objects.retain(|_, noted| noted.round == round);
        self.count.store(known.objects.len(), Ordering::Release);
    }

    /// Fails if there are too many unreadable objects.
    pub fn check(&self) -> Result<(), Fault> {
        if self.count.load(Ordering::Acquire) < MAX {
            return Ok(());
        }
        match &self.read().beyond {
            None => Ok(()),
            Some(Unreadable { place, flaw, .. }) => Err(Fault::Unreadable {
                what: format!(
                    "more than {MAX} values in etcd cannot be read, such as that of {place}: {flaw}: check \
                     --encryption-provider-config and --etcd-prefix"
                ),
            }),
        }
    }

    /// See [`holdfast_engine::Log::unreadable`].
    pub fn of(&self, resource: &str, prefix: &str, limit: usize) -> Vec<Unreadable> {
        if self.is_empty() {
            return Vec::new();
        }
        let known = self.read();
        let from = known.objects.range((resource.to_owned(), prefix.to_owned())..);
        let those = from.take_while(|((other, key), _)| other == resource && key.starts_with(prefix));
        those.take(limit).map(|(_, noted)| noted.unreadable.clone()).collect()
    }

    /// At most `limit` objects to retry after `after`: all objects, or only objects whose reason may be temporary.
    pub fn to_retry(&self, all: bool, after: &(String, String), limit: usize) -> Vec<Again> {
        let known = self.read();
        let from = known.objects.range((std::ops::Bound::Excluded(after.clone()), std::ops::Bound::Unbounded));
        let those = from.filter(|(_, noted)| all || noted.may_pass).take(limit);
        those
            .map(|(object, noted)| Again {
                object: object.clone(),
                place: noted.unreadable.place.clone(),
                version: noted.unreadable.version,
                may_pass: noted.may_pass,
            })
            .collect()
    }
}

/// An unreadable object that is to be read again.
pub struct Again {
    pub object: (String, String),
    pub place: String,
    pub version: Offset,
    /// Whether a retry may succeed without a change of the keys, because a KMS plug-in may answer.
    pub may_pass: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_engine::log::Flaw;

    fn unreadable(resource: &str, key: &str, version: u64) -> Unreadable {
        let place = format!("/registry/{resource}/{key}");
        let (resource, key, flaw) = (resource.to_owned(), key.to_owned(), Flaw::Malformed("it is empty".into()));
        Unreadable { resource, key, place, version: Offset(version), flaw }
    }

    fn keys(unread: &Unread, resource: &str, prefix: &str) -> Vec<String> {
        unread.of(resource, prefix, 10).into_iter().map(|one| one.key).collect()
    }

    #[test]
    fn objects_are_found_by_resource_and_prefix_until_they_are_gone() {
        let unread = Unread::default();
        assert!(unread.is_empty() && keys(&unread, "secrets", "").is_empty());
        for (resource, key) in [("secrets", "b/x"), ("secrets", "a/y"), ("secrets", "a/x"), ("pods", "a/x")] {
            unread.note(unreadable(resource, key, 7), false);
        }
        assert_eq!(keys(&unread, "secrets", ""), ["a/x", "a/y", "b/x"]);
        assert_eq!(keys(&unread, "secrets", "a/"), ["a/x", "a/y"]);
        assert_eq!(unread.of("secrets", "", 2).len(), 2);
        assert!(keys(&unread, "secret", "").is_empty() && keys(&unread, "secretsx", "").is_empty());
        unread.forget("secrets", "a/x");
        assert_eq!(keys(&unread, "secrets", "a/"), ["a/y"]);
        // A complete reading removes the objects that no longer exist.
        unread.begin_round();
        unread.confirm("secrets", "a/y");
        unread.note(unreadable("pods", "a/x", 9), false);
        unread.end_round();
        assert_eq!(keys(&unread, "secrets", ""), ["a/y"]);
        assert_eq!(unread.of("pods", "", 10)[0].version, Offset(9));
    }

    #[test]
    fn too_many_are_an_error_that_names_the_options() {
        let unread = Unread::default();
        (0..MAX as u64).for_each(|nth| unread.note(unreadable("secrets", &format!("a/{nth}"), nth), false));
        assert!(unread.check().is_ok());
        unread.note(unreadable("secrets", "b/more", 1), false);
        let why = unread.check().expect_err("too many").to_string();
        assert!(why.contains("/registry/secrets/b/more") && why.contains("--encryption-provider-config"), "{why}");
        unread.begin_round();
        unread.end_round();
        assert!(unread.check().is_ok() && unread.is_empty());
    }

    #[test]
    fn those_that_may_be_read_later_are_told_in_turn() {
        let unread = Unread::default();
        unread.note(unreadable("secrets", "a/x", 7), true);
        unread.note(unreadable("secrets", "a/y", 8), false);
        unread.note(unreadable("secrets", "a/z", 9), true);
        let names = |all, after: &(String, String), limit| -> Vec<String> {
            unread.to_retry(all, after, limit).into_iter().map(|again| again.object.1).collect()
        };
        let start = <(String, String)>::default();
        assert_eq!(names(false, &start, 10), ["a/x", "a/z"]);
        assert_eq!(names(true, &start, 2), ["a/x", "a/y"]);
        assert_eq!(names(true, &("secrets".into(), "a/y".into()), 10), ["a/z"]);
    }
}
