//! The list of changes, in order, for caches of results that follow from a snapshot.

use super::node_info::NodeId;
use crate::object::pod::Pod;
use crate::object::{Key, Kind};
use std::collections::VecDeque;
use std::sync::Arc;

#[derive(Debug, Clone)]
pub enum Change {
    /// A pod came to a node.
    Placed(NodeId, Arc<Pod>),
    /// A pod left a node.
    Left(NodeId, Arc<Pod>),
    /// The node object changed, but not as [`Change::Reshaped`] says; or a pod was nominated to the node, or is no
    /// longer.
    Node(NodeId),
    /// A pod on this node changed in a field that decides only which victims go first.
    Pods(NodeId),
    /// A node was added or removed, or its labels or taints changed: its pods count in other topology domains.
    Reshaped(NodeId),
    /// An object that is neither a pod nor a node changed in fields that plug-ins read.
    Object(Kind, Key),
}

/// The newest changes. A reader that has missed more than are kept starts anew.
#[derive(Debug, Default)]
pub struct Changes {
    next: u64,
    kept: VecDeque<Change>,
}

const KEPT: usize = 1 << 16;

impl Changes {
    pub(super) fn push(&mut self, change: Change) {
        if self.kept.len() == KEPT {
            self.kept.pop_front();
        }
        self.kept.push_back(change);
        self.next += 1;
    }

    /// The number of the next change.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// The changes from number `at` on; `None`: some of them are no longer kept.
    pub fn since(&self, at: u64) -> Option<impl Iterator<Item = &Change>> {
        let missed = usize::try_from(self.next.checked_sub(at)?).ok()?;
        (missed <= self.kept.len()).then(|| self.kept.range(self.kept.len() - missed..))
    }
}
