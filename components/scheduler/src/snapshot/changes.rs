//! A list of the snapshot's changes in their order, from which caches learn what they must compute again.

use super::node_info::NodeId;
use crate::object::pod::Pod;
use crate::object::{Key, Kind};
use std::collections::VecDeque;
use std::sync::Arc;

#[derive(Debug, Clone)]
pub enum SnapshotChange {
    /// A pod was added to a node.
    PodAdded(NodeId, Arc<Pod>),
    /// A pod was removed from a node.
    PodRemoved(NodeId, Arc<Pod>),
    /// The node's object changed in fields other than its labels and taints, or a pod's nomination to the node began or
    /// ended.
    NodeUpdated(NodeId),
    /// A pod on this node changed only in a field that decides in which order pods become victims.
    PodStarted(NodeId),
    /// A node was added or removed, or its labels or taints changed, so its pods count in other topology domains.
    TopologyChanged(NodeId),
    /// An object that is neither a pod nor a node changed in fields that plug-ins read.
    Object(Kind, Key),
}

/// The newest changes of a snapshot. A reader that has missed more changes than are kept must compute its results again
/// from the whole snapshot.
#[derive(Debug, Default)]
pub struct ChangeLog {
    next: u64,
    changes: VecDeque<SnapshotChange>,
}

const CHANGES_MAX: usize = 1 << 16;

impl ChangeLog {
    pub(super) fn push(&mut self, change: SnapshotChange) {
        if self.changes.len() == CHANGES_MAX {
            self.changes.pop_front();
        }
        self.changes.push_back(change);
        self.next += 1;
    }

    /// The number that the next change will get.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// The changes from the number `at` on; `None` if some of these changes are no longer kept.
    pub fn since(&self, at: u64) -> Option<impl Iterator<Item = &SnapshotChange>> {
        let missed = usize::try_from(self.next.checked_sub(at)?).ok()?;
        (missed <= self.changes.len()).then(|| self.changes.range(self.changes.len() - missed..))
    }
}
