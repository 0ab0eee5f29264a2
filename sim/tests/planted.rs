//! Every deliberate bug in the engine is found, and without one the same seeds find nothing.

use holdfast_engine::planted::{Bug, plant};
use holdfast_sim::{Plan, simulate};

/// How many simulations a bug may hide in.
const SEEDS: u64 = 300;

#[test]
fn every_planted_bug_is_found() {
    let mut unseen = Vec::new();
    for bug in Bug::ALL {
        plant(Some(bug));
        let found = (1..=SEEDS).find_map(|seed| Some((seed, simulate(&Plan::new(seed)).failure?)));
        plant(None);
        match found {
            None => unseen.push(bug),
            Some((seed, failure)) => {
                let why = failure.why.lines().next().unwrap_or_default();
                println!("{bug:?} is found at seed {seed}, step {}: {why}", failure.step);
            }
        }
    }
    assert!(unseen.is_empty(), "nothing finds {unseen:?}");
}

#[test]
fn without_a_bug_nothing_is_found() {
    for seed in 1..=SEEDS {
        let failure = simulate(&Plan::new(seed)).failure;
        assert!(failure.is_none(), "seed {seed}: {failure:?}");
    }
}
