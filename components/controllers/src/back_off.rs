//! Back-off before a failed pod is replaced, for controllers that delete the failed pod first, so that no failed pods
//! are left to count.

use holdfast_world::Time;
use std::collections::HashMap;

const FIRST_MILLIS: i64 = 1_000;

/// Failures of pods by the owner's uid. They are kept in memory only: after a restart waits are short again.
pub struct BackOffs {
    /// How many consecutive failures are replaced without a wait.
    at_once: u32,
    max_millis: i64,
    owners: HashMap<String, Failures>,
}

/// The failures of one owner, by the node or ordinal of the pod.
struct Failures {
    places: HashMap<String, FailedPod>,
    /// When old failures were last dropped.
    swept: Time,
}

struct FailedPod {
    /// The generation of the owner: after a change of the template, failures start at 0 again.
    generation: i64,
    at: Time,
    in_a_row: u32,
}

impl BackOffs {
    pub fn new(at_once: u32, max_millis: i64) -> BackOffs {
        BackOffs { at_once, max_millis, owners: HashMap::new() }
    }

    /// Records a failure; `Err` with the time until which the replacement must wait.
    pub fn fail(&mut self, uid: &str, generation: i64, place: &str, now: Time) -> Result<(), Time> {
        let lately = |failure: &FailedPod| now.millis_since(failure.at) <= 2 * self.max_millis;
        let new = || Failures { places: HashMap::new(), swept: now };
        let failures = self.owners.entry(uid.to_owned()).or_insert_with(new);
        // Old failures are dropped once per plan, whose time is the same for all of its pods.
        if failures.swept != now {
            failures.places.retain(|_, failure| lately(failure));
            failures.swept = now;
        }
        let last = failures.places.get(place).filter(|failure| failure.generation == generation);
        if let Some(last) = last
            && let until = last.at.plus_millis(wait_millis(last.in_a_row, self.at_once, self.max_millis))
            && now < until
        {
            return Err(until);
        }
        let in_a_row = last.map_or(1, |last| last.in_a_row.saturating_add(1));
        failures.places.insert(place.to_owned(), FailedPod { generation, at: now, in_a_row });
        Ok(())
    }

    /// Drops the failures of a deleted owner.
    pub fn forget(&mut self, uid: &str) {
        self.owners.remove(uid);
    }
}

/// The wait after `failures` failures in a row. It doubles with each failure.
fn wait_millis(failures: u32, at_once: u32, max_millis: i64) -> i64 {
    let doublings = failures.checked_sub(at_once);
    doublings.map_or(0, |doublings| FIRST_MILLIS.saturating_mul(2_i64.saturating_pow(doublings)).min(max_millis))
}
