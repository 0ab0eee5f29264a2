//! The forks of a server, and the server's own identity if it is a fork.

use super::Transport;
use super::live::{ForkIdentity, Live};
use crate::forks::forker::Forker;
use std::sync::Arc;

/// The operator's settings of forks of a server.
pub struct ForkSettings {
    /// Makes forks on the disk; `None` if the log is not on a disk.
    pub forker: Option<Arc<dyn Forker>>,
    /// The maximum number of forks in memory at once.
    pub in_memory_max: u32,
}

pub(crate) struct Forks {
    /// Makes forks on the disk; `None` if the log is not on a disk.
    pub forker: Option<Arc<dyn Forker>>,
    /// The forks in memory, of this server and of its forks.
    pub in_memory: Arc<Live>,
    /// The identity of this server as a fork; `None` if this server is no fork.
    pub identity: Option<ForkIdentity>,
}

impl Forks {
    /// Makes the set of forks for a server that is no fork.
    pub fn new(ForkSettings { forker, in_memory_max }: ForkSettings) -> Forks {
        Forks { forker, in_memory: Arc::new(Live::new(in_memory_max)), identity: None }
    }

    /// Makes the set of forks for a server that is a fork of this server.
    pub fn beside(&self, identity: ForkIdentity) -> Forks {
        // A fork is in memory, and its administrators must not write to the disk.
        Forks { forker: None, in_memory: self.in_memory.clone(), identity: Some(identity) }
    }

    pub fn is_fork(&self) -> bool {
        self.identity.is_some()
    }

    /// The ancestors of a fork that is made of this server: the server's own ancestors, then the server.
    pub fn lineage(&self) -> Vec<Arc<str>> {
        let own = |identity: &ForkIdentity| identity.ancestors.iter().chain([&identity.name]).cloned().collect();
        self.identity.as_ref().map(own).unwrap_or_default()
    }

    /// The fork in memory that a path is for. Removes the fork's prefix from the path.
    pub fn find(&self, path: &mut String) -> Option<Arc<Transport>> {
        self.in_memory.find(path)
    }

    /// Ends all forks, because their server ends. If this server is a fork itself, other forks continue.
    pub fn end(&self) {
        if !self.is_fork() {
            self.in_memory.end_all();
        }
    }
}
