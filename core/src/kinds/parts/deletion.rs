//! How objects of a kind are deleted.

use super::Version;
use crate::object::meta::{Document, metadata_mut};

/// What a delete of a kind's objects does. The stages that start from `pipeline/delete.rs` read these rules. Emptying a
/// namespace reads `deleted_first`, and the removal of old Events reads `expires`.
#[derive(Default)]
pub struct DeletionRules {
    /// Whether objects of this kind are deleted first in a terminating namespace.
    pub deleted_first: bool,
    /// Whether objects are deleted some time after their last change.
    pub expires: bool,
    /// Whether objects of this kind never have dependents, so that a deletion adds no finalizers for them.
    pub independent: bool,
    /// Whether a delete returns the deleted object. Otherwise it returns a Status.
    pub returns_deleted: bool,
    /// The warning for a delete without a propagation policy that orphans dependents by default.
    pub(in crate::kinds) orphan_warning: Option<&'static str>,
    /// Names of objects that are never deleted.
    pub(in crate::kinds) immortal: &'static [&'static str],
    /// The objects that the system needs, as a description and names. Objects with these names cannot be deleted by
    /// name.
    pub(in crate::kinds) system: Option<(&'static str, &'static [&'static str])>,
    /// The grace period of a delete in seconds; the second argument is the requested period. With this function, every
    /// object is first marked and then removed. Without it, an object without finalizers is removed at once.
    pub(in crate::kinds) grace_period: Option<fn(&Document, Option<i64>) -> i64>,
    /// Makes further changes when a deletion begins, at the request's time.
    pub(in crate::kinds) begin: Option<fn(&mut Document, &str)>,
    /// Whether something other than metadata finalizers keeps an object that is being deleted.
    pub(in crate::kinds) is_held: Option<fn(&Document) -> bool>,
}

impl DeletionRules {
    /// Whether the object with this name is never deleted.
    pub fn is_immortal(&self, name: &str) -> bool {
        self.immortal.contains(&name)
    }

    /// The description of the objects that the system needs, if the object with this name is one of them.
    pub fn of_system(&self, name: &str) -> Option<&'static str> {
        self.system.filter(|(_, names)| names.contains(&name)).map(|(what, _)| what)
    }

    /// The warning for a delete through this version that does not name a propagation policy.
    pub fn orphan_warning(&self, version: &Version) -> Option<&'static str> {
        self.orphan_warning.filter(|_| version.orphans_dependents)
    }

    /// Whether a delete always sets the deletion timestamp first, so that only a later write removes the object.
    pub fn is_gradual(&self) -> bool {
        self.grace_period.is_some()
    }

    /// The grace period of an object, in seconds. `asked` is the period in the delete options. The grace period is zero
    /// for a kind without grace periods.
    pub fn grace_period(&self, object: &Document, asked: Option<i64>) -> i64 {
        self.grace_period.map_or(0, |period| period(object, asked))
    }

    /// Whether the objects of this kind have a phase in which they terminate, as namespaces have. The beginning of this
    /// phase takes the place of a grace period.
    pub fn has_terminating_phase(&self) -> bool {
        self.begin.is_some()
    }

    /// Begins the terminating phase of an object that has just been marked, if the kind has such a phase. `now` is the
    /// time of the request.
    pub fn begin(&self, marked: &mut Document, now: &str) {
        if let Some(begin) = self.begin {
            metadata_mut(marked).remove("deletionGracePeriodSeconds");
            begin(marked, now);
        }
    }

    /// Whether something other than metadata finalizers and the grace period keeps an object that is being deleted.
    pub fn is_held(&self, object: &Document) -> bool {
        self.is_held.is_some_and(|is_held| is_held(object))
    }
}
