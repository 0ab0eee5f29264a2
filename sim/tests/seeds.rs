//! A limited number of simulations in every test run. `holdfast sim --seeds 1..100000` runs any number of them.

use holdfast_sim::{Coverage, Report, RunPlan, Sabotage, SimulatedPart, simulate};

/// The number of simulations of the server in every test run. Each mark must be recorded in at least one of them.
const SEEDS: u64 = 400;
/// The number of simulations of the scheduler in every test run.
const SCHEDULING_SEEDS: u64 = 60;
const SCHEDULING_STEPS: usize = 400;
/// The number of simulations of the controllers in every test run.
const CONTROLLERS_SEEDS: u64 = 40;

/// The number of simulations of admission in every test run.
const ADMISSION_SEEDS: u64 = 40;

/// Runs a simulation in which the oracles must find nothing, and returns its report.
fn clean(seed: u64, steps: usize) -> Report {
    let report = simulate(&RunPlan { steps, ..RunPlan::new(seed) });
    if let Some(failure) = &report.failure {
        let again = format!("holdfast sim --seeds {seed} --steps {steps}");
        panic!("seed {seed} fails at step {}: {}\n  rerun: {again}", failure.step, failure.why);
    }
    report
}

#[test]
fn what_was_found_once_is_not_found_again() {
    let list = include_str!("../regressions.txt").lines().filter(|line| !line.starts_with('#'));
    for line in list {
        let mut words = line.split(' ');
        let mut number = || words.next().and_then(|word| word.parse().ok()).expect("a seed and a number of steps");
        let (seed, steps) = (number(), number());
        clean(seed, steps as usize);
    }
}

#[test]
fn the_oracles_find_nothing() {
    let mut events = 0;
    let mut coverage = Coverage::default();
    for seed in 1..=SEEDS {
        let report = clean(seed, RunPlan::STEPS);
        events += report.events;
        coverage.add(&report.coverage);
    }
    assert!(coverage.missing().is_empty(), "what never happens is not tested: {:?}", coverage.missing());
    // The simulations must make many events, because a simulation in which little happens proves little.
    assert!(events > SEEDS * 40, "{events}");
}

/// Pods and nodes are created and deleted, and schedulers crash. In the end, every pod for which there is room must
/// have a node.
#[test]
fn the_oracles_of_scheduling_find_nothing() {
    let mut commands = 0;
    for seed in 1..=SCHEDULING_SEEDS {
        let report =
            simulate(&RunPlan { scene: SimulatedPart::Scheduling, steps: SCHEDULING_STEPS, ..RunPlan::new(seed) });
        if let Some(failure) = &report.failure {
            let again = format!("holdfast sim scheduling --seeds {seed} --steps {SCHEDULING_STEPS}");
            panic!("seed {seed} fails at step {}: {}\n  rerun: {again}", failure.step, failure.why);
        }
        commands += report.commands;
    }
    assert!(commands > SCHEDULING_SEEDS * 50, "{commands}");
}

/// Managers crash, pods fail, and users change their objects. In the end, the cluster must be as the users have
/// requested.
#[test]
fn the_oracles_of_controllers_find_nothing() {
    let mut commands = 0;
    for seed in 1..=CONTROLLERS_SEEDS {
        let report = simulate(&RunPlan { scene: SimulatedPart::Controllers, ..RunPlan::new(seed) });
        if let Some(failure) = &report.failure {
            let again = format!("holdfast sim controllers --seeds {seed}");
            panic!("seed {seed} fails at step {}: {}\n  rerun: {again}", failure.step, failure.why);
        }
        commands += report.commands;
    }
    assert!(commands > CONTROLLERS_SEEDS * 100, "{commands}");
}

/// Clients compete for quotas. Webhooks and policies are registered and removed, fail, and answer late. Each must be
/// called while it is registered.
#[test]
fn the_oracles_of_admission_find_nothing() {
    let (mut commands, mut events) = (0, 0);
    for seed in 1..=ADMISSION_SEEDS {
        let report = simulate(&RunPlan { scene: SimulatedPart::Admission, ..RunPlan::new(seed) });
        if let Some(failure) = &report.failure {
            let again = format!("holdfast sim admission --seeds {seed}");
            panic!("seed {seed} fails at step {}: {}\n  rerun: {again}", failure.step, failure.why);
        }
        (commands, events) = (commands + report.commands, events + report.events);
    }
    assert!(commands > ADMISSION_SEEDS * 100 && events > ADMISSION_SEEDS * 100, "{commands} {events}");
}

#[test]
fn a_seed_does_the_same_twice() {
    let admitted =
        |seed| simulate(&RunPlan { trace: true, scene: SimulatedPart::Admission, steps: 400, ..RunPlan::new(seed) });
    assert_eq!(admitted(1), admitted(1));
    let controlled =
        |seed| simulate(&RunPlan { trace: true, scene: SimulatedPart::Controllers, steps: 400, ..RunPlan::new(seed) });
    assert_eq!(controlled(1), controlled(1));
    let scheduled =
        |seed| simulate(&RunPlan { trace: true, scene: SimulatedPart::Scheduling, steps: 200, ..RunPlan::new(seed) });
    assert_eq!(scheduled(1), scheduled(1));
    let traced = |seed| simulate(&RunPlan { trace: true, ..RunPlan::new(seed) });
    for seed in [1, 2, 3, 1_000_003] {
        assert_eq!(traced(seed), traced(seed));
    }
    assert_ne!(traced(1).trace, traced(2).trace);
}

/// If a disk violates its contract, the oracles must find a violation, and describe it with the right reason.
#[test]
fn the_oracles_can_fail() {
    let cases = [
        (Sabotage::ForgetLast, "was durable and is lost"),
        (Sabotage::SkipOnScan, "should come"),
        (Sabotage::KeepDeleted, "is there, but should not be"),
        (Sabotage::DropByte, "differs"),
        (Sabotage::SkipSync, "is lost"),
        (Sabotage::KeepTornBatch, "half of a batch"),
        (Sabotage::ForgetTooMuch, "is lost"),
    ];
    for (sabotage, expected) in cases {
        let mut failures = (1..=60).filter_map(|seed| simulate(&RunPlan { sabotage, ..RunPlan::new(seed) }).failure);
        assert!(failures.any(|failure| failure.why.contains(expected)), "{sabotage:?} goes unnoticed");
    }
}
