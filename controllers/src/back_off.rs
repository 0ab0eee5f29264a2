//! How soon a pod that failed is replaced after the one before it, where it is deleted first and nothing is left to count.

use holdfast_world::Time;
use std::collections::HashMap;

const FIRST_MILLIS: i64 = 1_000;

/// When pods of owners failed, by the owner's uid. Whoever starts anew begins with short waits.
pub struct BackOffs {
    /// How many in a row are replaced before there is a wait.
    at_once: u32,
    max_millis: i64,
    owners: HashMap<String, Failures>,
}

/// The failures of one owner, by the place of the pod: a node, an ordinal.
struct Failures {
    places: HashMap<String, Failure>,
    /// When what lies far back was forgotten last.
    swept: Time,
}

struct Failure {
    /// The version of the owner: another one may do better.
    generation: i64,
    at: Time,
    in_a_row: u32,
}

impl BackOffs {
    pub fn new(at_once: u32, max_millis: i64) -> BackOffs {
        BackOffs { at_once, max_millis, owners: HashMap::new() }
    }

    /// Notes a failure; or says until when the next is to be waited for.
    pub fn fail(&mut self, uid: &str, generation: i64, place: &str, now: Time) -> Result<(), Time> {
        let lately = |failure: &Failure| now.millis_since(failure.at) <= 2 * self.max_millis;
        let new = || Failures { places: HashMap::new(), swept: now };
        let failures = self.owners.entry(uid.to_owned()).or_insert_with(new);
        // Once for all that one plan asks about.
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
        failures.places.insert(place.to_owned(), Failure { generation, at: now, in_a_row });
        Ok(())
    }

    /// An owner that is gone needs nothing remembered.
    pub fn forget(&mut self, uid: &str) {
        self.owners.remove(uid);
    }
}

/// How long after so many failures the next is waited for: twice as long each time.
fn wait_millis(failures: u32, at_once: u32, max_millis: i64) -> i64 {
    let doublings = failures.checked_sub(at_once);
    doublings.map_or(0, |doublings| FIRST_MILLIS.saturating_mul(2_i64.saturating_pow(doublings)).min(max_millis))
}
