//! One controller of a driver, with its queue and its work in progress.

use super::task::ActionResult;
use crate::{Change, Controller, ExtraKinds, Key, Keys, Text, Time, WorkQueue, World};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};

pub(super) struct ManagedController {
    pub(super) controller: Box<dyn Controller>,
    /// The kinds that the controller needs in addition to the resources that it names.
    pub(super) extra_kinds: ExtraKinds,
    /// Whether the controller is making a plan in the background. Until the plan is made, a placeholder takes the
    /// controller's place.
    pub(super) is_in_background: bool,
    /// The changes that have happened since the controller began its plan in the background.
    pub(super) missed_changes: Vec<Change>,
    /// The keys whose last plan was expensive.
    pub(super) expensive: HashSet<Key>,
    pub(super) queue: WorkQueue,
    /// How many keys of one namespace the controller may plan and act on at once.
    pub(super) workers: usize,
    /// How many keys the controller is working on, by namespace.
    pub(super) in_progress: HashMap<Text, usize>,
    /// The keys whose plans were carried out and whose writes the world does not contain yet, each with the results of
    /// its writes.
    pub(super) awaited_writes: BTreeMap<Key, Vec<ActionResult>>,
}

impl ManagedController {
    /// Whether the next key of a namespace may be taken. With `even_expensive`, it may be taken even if its plan is
    /// expensive.
    pub(super) fn may_plan(&self, namespace: &str, even_expensive: bool) -> bool {
        let is_expensive = || self.queue.first(namespace).is_some_and(|key| self.expensive.contains(key));
        !self.is_in_background
            && self.in_progress.get(namespace).is_none_or(|working| *working < self.workers)
            && (even_expensive || !is_expensive())
    }

    pub(super) fn notify(&mut self, world: &World, change: &Change, now: Time) {
        if self.is_in_background {
            return self.missed_changes.push(change.clone());
        }
        let mut keys = Keys::default();
        let notified = catch_unwind(AssertUnwindSafe(|| self.controller.concerns(world, change, &mut keys)));
        if notified.is_ok() {
            self.queue.add_all(keys, now);
        }
    }
}
