//! What changed, in order, for those who keep something that they worked out from a snapshot.

use super::node_info::NodeId;
use crate::object::pod::Pod;
use crate::object::{Key, Kind};
use std::collections::VecDeque;
use std::sync::Arc;

#[derive(Debug, Clone)]
pub enum Change {
    /// A pod came to lie on a node.
    Placed(NodeId, Arc<Pod>),
    /// A pod left a node.
    Left(NodeId, Arc<Pod>),
    /// What a node says about itself, aside from what [`Change::Reshaped`] means; or a pod was, or is no more, nominated to it.
    Node(NodeId),
    /// A pod on this node says something else about itself of which no more hangs than who goes first.
    Pods(NodeId),
    /// A node came, went, or has other labels or taints: what counts pods by place counts those on it elsewhere.
    Reshaped(NodeId),
    /// What plug-ins look at of an object of this kind, which is neither a pod nor a node.
    Object(Kind, Key),
}

/// The newest changes. Who has missed more than are kept starts anew.
#[derive(Debug, Default)]
pub struct Changes {
    next: u64,
    kept: VecDeque<Change>,
}

/// How many changes are kept.
const KEPT: usize = 1 << 16;

impl Changes {
    pub(super) fn push(&mut self, change: Change) {
        if self.kept.len() == KEPT {
            self.kept.pop_front();
        }
        self.kept.push_back(change);
        self.next += 1;
    }

    /// Where the next change will be.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// The changes from `at` on; `None` when some of them are no longer kept.
    pub fn since(&self, at: u64) -> Option<impl Iterator<Item = &Change>> {
        let missed = usize::try_from(self.next.checked_sub(at)?).ok()?;
        (missed <= self.kept.len()).then(|| self.kept.range(self.kept.len() - missed..))
    }
}
