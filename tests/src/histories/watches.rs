//! Checks the guarantees of watches: a watch shows all selected events since its beginning, in order, each event once,
//! and transactions as a whole.
//!
//! The events of the store itself are the truth. The guarantees are the guarantees that etcd gives for its watches, in
//! terms of Kubernetes' API.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// An event of a watch, or of the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    pub is: Is,
    /// The object's key, in the form `namespace/name`.
    pub key: String,
    pub version: u64,
    /// The value of the object, or its last one before deletion.
    pub value: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Is {
    Added,
    Modified,
    Deleted,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shown {
    Event(Event),
    Bookmark(u64),
}

/// One watch, which may have ended at any time.
#[derive(Debug, Clone)]
pub struct WatchRun {
    /// The name of the watch in messages.
    pub name: String,
    /// The watch should show all events after this version.
    pub from: u64,
    /// The watch selects the keys with this prefix.
    pub prefix: String,
    pub shown: Vec<Shown>,
}

/// The guarantees of a watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Guarantee {
    /// Events are about selected objects.
    Filter,
    /// Versions do not decrease.
    Ordered,
    /// No event is shown twice.
    Unique,
    /// All events of one transaction are shown before any later event.
    Atomic,
    /// No event between two shown events is missing.
    Reliable,
    /// The first shown event is the first written event after the version at which the watch begins.
    Resumable,
    /// A bookmark is shown after all events up to its version, and before all later events.
    Bookmarkable,
    /// A deletion shows the deleted object.
    Previous,
    /// The events of new objects are additions, and the events of existing objects are modifications.
    IsCreate,
    /// Every shown event was written.
    Known,
}

/// A violated guarantee, with a description.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    pub guarantee: Guarantee,
    pub told: String,
}

/// Checks watches against all events of the store, in order.
pub fn judge(truth: &[Event], watches: &[WatchRun]) -> Vec<Violation> {
    let by_place: BTreeMap<(u64, &str), &Event> =
        truth.iter().map(|event| ((event.version, event.key.as_str()), event)).collect();
    watches.iter().flat_map(|watch| Judge { watch, by_place: &by_place, violations: Vec::new() }.run()).collect()
}

struct Judge<'t> {
    watch: &'t WatchRun,
    by_place: &'t BTreeMap<(u64, &'t str), &'t Event>,
    violations: Vec<Violation>,
}

impl Judge<'_> {
    fn run(mut self) -> Vec<Violation> {
        let mut seen: BTreeMap<(u64, &str), ()> = BTreeMap::new();
        let (mut last, mut bookmark) = (self.watch.from, self.watch.from);
        let mut has_begun = false;
        for shown in &self.watch.shown {
            match shown {
                Shown::Bookmark(version) => {
                    if *version < last {
                        self.breaks(Guarantee::Bookmarkable, format!("a bookmark of {version} after {last}"));
                    }
                    for missing in self.missing(&seen, last, *version) {
                        self.breaks(Guarantee::Bookmarkable, format!("a bookmark of {version} without {missing}"));
                    }
                    bookmark = bookmark.max(*version);
                    last = last.max(*version);
                    has_begun = true;
                }
                Shown::Event(event) => {
                    self.judge_alone(event);
                    if event.version < last {
                        self.breaks(Guarantee::Ordered, format!("{event:?} after version {last}"));
                    }
                    if event.version <= bookmark {
                        let guarantee = if has_begun { Guarantee::Bookmarkable } else { Guarantee::Resumable };
                        self.breaks(guarantee, format!("{event:?} at or before {bookmark}"));
                    }
                    match seen.entry((event.version, &event.key)) {
                        Entry::Occupied(_) => self.breaks(Guarantee::Unique, format!("{event:?} twice")),
                        Entry::Vacant(entry) => drop(entry.insert(())),
                    }
                    // Events between the last version and the version of this event should have come before this event.
                    if event.version > last {
                        for missing in self.missing(&seen, last.max(bookmark + 1), event.version - 1) {
                            let guarantee = match missing.0 == last {
                                true if has_begun => Guarantee::Atomic,
                                _ if has_begun => Guarantee::Reliable,
                                _ => Guarantee::Resumable,
                            };
                            self.breaks(guarantee, format!("{event:?} without {missing:?}", missing = missing.1));
                        }
                    }
                    last = last.max(event.version);
                    has_begun = true;
                }
            }
        }
        self.violations
    }

    /// Selected events between two versions that were not shown, with their versions. Events at the watch's first
    /// version are not expected.
    fn missing(&self, seen: &BTreeMap<(u64, &str), ()>, from: u64, to: u64) -> Vec<Missing> {
        let from = from.max(self.watch.from + 1);
        if from > to {
            return Vec::new();
        }
        let between = self.by_place.range((from, "")..(to + 1, ""));
        let selected = between.filter(|((_, key), _)| key.starts_with(&self.watch.prefix));
        let missed = selected.filter(|((version, key), _)| !seen.contains_key(&(*version, *key)));
        missed.map(|((version, _), event)| Missing(*version, format!("{event:?}"))).collect()
    }

    fn judge_alone(&mut self, event: &Event) {
        if !event.key.starts_with(&self.watch.prefix) {
            self.breaks(Guarantee::Filter, format!("{event:?} is not below {:?}", self.watch.prefix));
        }
        let Some(written) = self.by_place.get(&(event.version, event.key.as_str())) else {
            return self.breaks(Guarantee::Known, format!("{event:?} was never written"));
        };
        if written.is != event.is {
            self.breaks(Guarantee::IsCreate, format!("{event:?} is {:?}", written.is));
        } else if written.value != event.value {
            let guarantee = if event.is == Is::Deleted { Guarantee::Previous } else { Guarantee::Known };
            self.breaks(guarantee, format!("{event:?} has the value {}", written.value));
        }
    }

    fn breaks(&mut self, guarantee: Guarantee, told: String) {
        self.violations.push(Violation { guarantee, told: format!("{}: {told}", self.watch.name) });
    }
}

/// The version of a missing event, and the event.
struct Missing(u64, String);

impl std::fmt::Display for Missing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(is: Is, key: &str, version: u64, value: u64) -> Event {
        Event { is, key: key.to_owned(), version, value }
    }

    /// Events with the versions 2 to 8. At version 5 two objects are written in one transaction.
    fn truth() -> Vec<Event> {
        vec![
            event(Is::Added, "a/x", 2, 1),
            event(Is::Added, "b/y", 3, 2),
            event(Is::Modified, "a/x", 4, 3),
            event(Is::Modified, "a/x", 5, 4),
            event(Is::Added, "a/z", 5, 5),
            event(Is::Deleted, "a/x", 6, 4),
            event(Is::Added, "a/x", 7, 6),
            event(Is::Modified, "a/z", 8, 7),
        ]
    }

    /// A correct watch, with a bookmark in the middle.
    fn watch(from: u64) -> WatchRun {
        let mut shown: Vec<Shown> = truth()
            .into_iter()
            .filter(|event| event.key.starts_with("a/") && event.version > from)
            .map(Shown::Event)
            .collect();
        let at = shown.iter().position(|shown| matches!(shown, Shown::Event(event) if event.version > 6));
        shown.insert(at.expect("a later event"), Shown::Bookmark(6));
        WatchRun { name: "watch".into(), from, prefix: "a/".into(), shown }
    }

    fn broken(change: impl FnOnce(&mut Vec<Shown>)) -> Vec<Guarantee> {
        let mut changed = watch(2);
        change(&mut changed.shown);
        let mut found: Vec<Guarantee> =
            judge(&truth(), &[changed]).into_iter().map(|violation| violation.guarantee).collect();
        found.sort();
        found.dedup();
        found
    }

    fn change(shown: &mut [Shown], version: u64, key: &str, change: impl FnOnce(&mut Event)) {
        let found = shown.iter_mut().find_map(|shown| match shown {
            Shown::Event(event) if event.version == version && event.key == key => Some(event),
            _ => None,
        });
        change(found.expect("an event"));
    }

    #[test]
    fn watches_that_keep_their_promises_are_right_wherever_they_begin_and_end() {
        for from in 0..6 {
            for length in 0..=watch(from).shown.len() {
                let mut short = watch(from);
                short.shown.truncate(length);
                assert_eq!(judge(&truth(), &[short]), [], "from {from}, {length} events");
            }
        }
    }

    // From 2 on it shows: 4 a/x, 5 a/x, 5 a/z, 6 a/x, bookmark 6, 7 a/x, 8 a/z.

    #[test]
    fn each_broken_promise_is_found_by_its_name() {
        let foreign = || Shown::Event(event(Is::Added, "b/y", 3, 2));
        assert_eq!(broken(|shown| shown.insert(0, foreign())), [Guarantee::Filter]);
        assert!(broken(|shown| shown.swap(0, 1)).contains(&Guarantee::Ordered));
        assert_eq!(broken(|shown| shown.insert(1, shown[0].clone())), [Guarantee::Unique]);
        assert_eq!(broken(|shown| drop(shown.remove(2))), [Guarantee::Atomic], "one of two that were written at once");
        assert_eq!(broken(|shown| drop(shown.drain(1..4))), [Guarantee::Bookmarkable], "lost before a bookmark");
        assert_eq!(broken(|shown| drop(shown.remove(5))), [Guarantee::Reliable]);
        assert_eq!(broken(|shown| drop(shown.remove(0))), [Guarantee::Resumable]);
        let older = || Shown::Event(event(Is::Added, "a/x", 2, 1));
        assert!(broken(|shown| shown.insert(0, older())).contains(&Guarantee::Resumable));
        assert_eq!(broken(|shown| shown.swap(4, 5)), [Guarantee::Bookmarkable], "an event before an older bookmark");
        assert!(broken(|shown| shown.swap(3, 4)).contains(&Guarantee::Bookmarkable), "and one after it");
        assert_eq!(broken(|shown| change(shown, 6, "a/x", |event| event.value = 3)), [Guarantee::Previous]);
        assert_eq!(broken(|shown| change(shown, 7, "a/x", |event| event.is = Is::Modified)), [Guarantee::IsCreate]);
        assert_eq!(broken(|shown| change(shown, 7, "a/x", |event| event.value = 9)), [Guarantee::Known]);
        let invented = || Shown::Event(event(Is::Modified, "a/q", 8, 9));
        assert_eq!(broken(|shown| shown.push(invented())), [Guarantee::Known]);
    }
}
