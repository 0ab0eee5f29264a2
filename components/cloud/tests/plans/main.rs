//! Tests of the cloud controllers with a trial cluster and a simulated cloud. At the end of each script, the trial
//! plans every key once more and expects no step, because the cluster and the cloud must agree by then.

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

/// The objects of the cluster and the resources of the cloud agree in the end, whichever process crashes at whatever
/// time.
#[test]
fn no_seed_leaves_anything_behind() {
    for seed in 0..60 {
        simulation::run(seed).unwrap_or_else(|broken| panic!("seed {seed}: {broken}"));
    }
}
