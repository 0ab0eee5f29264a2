//! Tests that the simulation finds every planted bug of the cloud controllers.

mod common;
mod simulation;

use holdfast_cloud::planted::{Bug, plant};

/// The maximum number of seeds that the simulation may need to find a bug.
const SEEDS: u64 = 200;

#[test]
fn every_planted_mistake_is_found() {
    let is_found = |bug: Bug| {
        plant(Some(bug));
        let found = (0..SEEDS).find_map(|seed| Some((seed, simulation::run(seed).err()?)));
        plant(None);
        found.inspect(|(seed, broken)| println!("{bug:?}: seed {seed}: {broken}")).is_some()
    };
    let unseen: Vec<Bug> = Bug::ALL.into_iter().filter(|bug| !is_found(*bug)).collect();
    assert!(unseen.is_empty(), "nothing finds {unseen:?}");
}
