//! Checks that the clients of several engines on one log, which numbers events itself, see one history.

mod model;
#[expect(dead_code, reason = "other tests use the rest of it")]
#[path = "../engine/stage.rs"]
mod stage;
mod world;

use model::Seen;

const SEEDS: u64 = 200;

impl Seen {
    fn counts(&mut self) -> [&mut u64; 8] {
        let Seen { behind, overtaken, unreachable, refused, unknown_applied, unknown_late, unknown_lost, .. } = self;
        let others_between = &mut self.others_between;
        [behind, overtaken, unreachable, refused, unknown_applied, unknown_late, unknown_lost, others_between]
    }

    fn add(&mut self, other: &Seen) {
        let mut other = *other;
        self.counts().into_iter().zip(other.counts()).for_each(|(count, more)| *count += *more);
    }

    /// The smallest of the counts of all kinds of events.
    fn least(mut self) -> u64 {
        self.counts().into_iter().map(|count| *count).min().unwrap_or(0)
    }
}

#[test]
fn clients_of_two_servers_see_one_history() {
    let mut all = Seen::default();
    for seed in 1..=SEEDS {
        let (outcome, seen) = world::run(seed);
        assert_eq!(outcome, Ok(()), "seed {seed}");
        all.add(&seen);
    }
    // Every kind of fault must happen, otherwise the test does not cover it.
    assert!(all.least() > 20, "{all:?}");
}
