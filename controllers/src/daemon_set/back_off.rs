//! How soon a failed pod is replaced after the one before it.

use holdfast_world::views::DaemonSet;
use holdfast_world::{Seen, Time};
use std::collections::HashMap;

const FIRST_MILLIS: i64 = 1_000;
const MAX_MILLIS: i64 = 15 * 60 * 1_000;

/// When pods of a set failed on a node, by the set's uid. Whoever starts anew begins with short waits.
#[derive(Default)]
pub struct BackOffs(HashMap<String, HashMap<String, Failure>>);

struct Failure {
    /// The version of the set: another one may do better.
    generation: i64,
    at: Time,
    wait_millis: i64,
}

impl BackOffs {
    /// Notes a failure; or says until when the next is to be waited for.
    pub fn fail(&mut self, set: Seen<'_, DaemonSet>, node: &str, now: Time) -> Result<(), Time> {
        let generation = set.status.observed_generation;
        let nodes = self.0.entry(set.meta().uid.clone()).or_default();
        nodes.retain(|_, failure| now.millis_since(failure.at) <= 2 * MAX_MILLIS);
        let last = nodes.get(node).filter(|failure| failure.generation == generation);
        let wait_millis = match last {
            Some(last) if now.millis_since(last.at) < last.wait_millis => {
                return Err(last.at.plus_millis(last.wait_millis));
            }
            Some(last) => (2 * last.wait_millis).min(MAX_MILLIS),
            None => FIRST_MILLIS,
        };
        nodes.insert(node.to_owned(), Failure { generation, at: now, wait_millis });
        Ok(())
    }

    /// A set that is gone needs nothing remembered.
    pub fn forget(&mut self, uid: &str) {
        self.0.remove(uid);
    }
}
