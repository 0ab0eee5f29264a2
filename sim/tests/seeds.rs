//! A bounded number of simulations on every run; `holdfast-sim --seeds 1..100000` runs as many as one likes.

use holdfast_sim::{Plan, Report, Sabotage, run};

fn simulate(seed: u64) -> Report {
    run(Plan::new(seed))
}

#[test]
fn the_oracles_find_nothing() {
    let mut events = 0;
    for seed in 1..=150 {
        let report = simulate(seed);
        events += report.events;
        if let Some(failure) = report.failure {
            panic!(
                "seed {seed} fails {failure}\n  rerun: cargo run --release -p holdfast-sim -- --seeds {seed} --trace"
            );
        }
    }
    // Simulations in which little happens prove little.
    assert!(events > 150 * 40, "{events}");
}

#[test]
fn a_seed_does_the_same_twice() {
    for seed in [1, 2, 3, 1_000_003] {
        assert_eq!(simulate(seed), simulate(seed));
    }
    assert_ne!(simulate(1).trace, simulate(2).trace);
}

/// A disk that breaks its promises is found out, and for the right reason.
#[test]
fn the_oracles_can_fail() {
    let cases = [
        (Sabotage::ForgetLast, "acknowledged and is lost"),
        (Sabotage::SkipOnScan, "should come"),
        (Sabotage::KeepDeleted, "is there, but should not be"),
        (Sabotage::DropByte, "differs"),
    ];
    for (sabotage, expected) in cases {
        let mut failures = (1..=40).filter_map(|seed| run(Plan { sabotage, ..Plan::new(seed) }).failure);
        assert!(failures.any(|failure| failure.contains(expected)), "{sabotage:?} goes unnoticed");
    }
}
