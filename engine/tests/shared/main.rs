//! Several engines on one log that numbers events itself: clients of all of them see one history.

mod model;
#[expect(dead_code, reason = "other tests use the rest of it")]
#[path = "../engine/stage.rs"]
mod stage;
mod world;

const SEEDS: u64 = 200;

#[test]
fn clients_of_two_servers_see_one_history() {
    let mut all = model::Seen::default();
    for seed in 1..=SEEDS {
        let (outcome, seen) = world::run(seed);
        assert_eq!(outcome, Ok(()), "seed {seed}");
        all.add(&seen);
    }
    // What never happens is not tested.
    assert!(all.least() > 20, "{all:?}");
}
