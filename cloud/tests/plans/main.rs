//! The controllers of a cloud over a cluster in memory and a simulated cloud. Each script ends with nothing left to do: a
//! trial plans every key once more and expects no step.

#[path = "../common/mod.rs"]
mod common;
mod costs;
mod health;
mod nodes;
mod routes;
mod services;
mod simulated;
#[path = "../simulation/mod.rs"]
mod simulation;

/// Whoever crashes where, everything is as it should be in the end.
#[test]
fn no_seed_leaves_anything_behind() {
    for seed in 0..60 {
        simulation::run(seed).unwrap_or_else(|broken| panic!("seed {seed}: {broken}"));
    }
}
