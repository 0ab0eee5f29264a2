//! Delays the replacement of failed pods, for controllers that delete a failed pod before they replace it: such a
//! controller cannot count the failed pods that exist.

use holdfast_world::Time;
use std::collections::HashMap;

const FIRST_MILLIS: i64 = 1_000;

/// The failures of pods, by the uid of the pods' owner. The failures are kept in memory only, so after a restart of the
/// controller the first waits are short again.
pub struct BackOffs {
    /// How many times in a row a failed pod is replaced without a wait.
    at_once: u32,
    /// The longest wait, in milliseconds.
    max_millis: i64,
    owners: HashMap<String, Failures>,
}

/// The failures of one owner's pods, by the place of the pod: the name of its node, or its ordinal.
struct Failures {
    places: HashMap<String, FailedPod>,
    /// The time at which old failures were last dropped.
    swept: Time,
}

struct FailedPod {
    /// The generation of the owner at the last failure: after a change of the owner, failures start at 0 again.
    generation: i64,
    at: Time,
    in_a_row: u32,
}

impl BackOffs {
    pub fn new(at_once: u32, max_millis: i64) -> BackOffs {
        BackOffs { at_once, max_millis, owners: HashMap::new() }
    }

    /// Records the failure of a pod. Returns `Err` with the time until which its replacement must wait, if there is a
    /// wait.
    pub fn fail(&mut self, uid: &str, generation: i64, place: &str, now: Time) -> Result<(), Time> {
        let lately = |failure: &FailedPod| now.millis_since(failure.at) <= 2 * self.max_millis;
        let new = || Failures { places: HashMap::new(), swept: now };
        let failures = self.owners.entry(uid.to_owned()).or_insert_with(new);
        // All failures that one plan records have the plan's time, so old failures are dropped once per plan.
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

/// How many milliseconds must pass between the last of `failures` failures in a row and the replacement of the next
/// failed pod: 0 if `failures` is below `at_once`, and [`FIRST_MILLIS`] if it equals `at_once`. The wait doubles with
/// each further failure, up to `max_millis`.
fn wait_millis(failures: u32, at_once: u32, max_millis: i64) -> i64 {
    let doublings = failures.checked_sub(at_once);
    doublings.map_or(0, |doublings| FIRST_MILLIS.saturating_mul(2_i64.saturating_pow(doublings)).min(max_millis))
}
