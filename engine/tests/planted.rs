//! Tests that every planted bug of a log to which several servers write is found, and that these seeds find nothing
//! without a planted bug.

#[path = "shared/model.rs"]
mod model;
#[expect(dead_code, reason = "other tests use the rest of it")]
#[path = "engine/stage.rs"]
mod stage;
#[path = "shared/world.rs"]
mod world;

use holdfast_engine::planted::{Bug, plant};

/// The maximum number of runs in which a bug may stay unnoticed.
const SEEDS: u64 = 200;

#[test]
fn every_planted_bug_of_shared_logs_is_found() {
    let mut unseen = Vec::new();
    for bug in Bug::SHARED {
        plant(Some(bug));
        let found = (1..=SEEDS).find_map(|seed| {
            let run = std::panic::catch_unwind(|| world::run(seed).0);
            let why = run.map_or_else(|_| Some("a panic".to_owned()), Result::err)?;
            Some((seed, why))
        });
        plant(None);
        match found {
            None => unseen.push(bug),
            Some((seed, why)) => println!("{bug:?} is found at seed {seed}: {why}"),
        }
    }
    assert!(unseen.is_empty(), "nothing finds {unseen:?}");
}
