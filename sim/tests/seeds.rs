//! A bounded number of simulations on every run; `holdfast sim --seeds 1..100000` runs as many as one likes.

use holdfast_sim::{Coverage, Plan, Report, Sabotage, simulate};

fn of_seed(seed: u64) -> Report {
    simulate(&Plan::new(seed))
}

#[test]
fn the_oracles_find_nothing() {
    let mut events = 0;
    let mut coverage = Coverage::default();
    for seed in 1..=150 {
        let report = of_seed(seed);
        events += report.events;
        coverage.add(&report.coverage);
        if let Some(failure) = report.failure {
            panic!("seed {seed} fails at step {}: {}\n  rerun: holdfast sim --seeds {seed}", failure.step, failure.why);
        }
    }
    assert!(coverage.missing().is_empty(), "what never happens is not tested: {:?}", coverage.missing());
    // Simulations in which little happens prove little.
    assert!(events > 150 * 40, "{events}");
}

#[test]
fn a_seed_does_the_same_twice() {
    let traced = |seed| simulate(&Plan { trace: true, ..Plan::new(seed) });
    for seed in [1, 2, 3, 1_000_003] {
        assert_eq!(traced(seed), traced(seed));
    }
    assert_ne!(traced(1).trace, traced(2).trace);
}

/// A disk that breaks its promises is found out, and for the right reason.
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
        let mut failures = (1..=60).filter_map(|seed| simulate(&Plan { sabotage, ..Plan::new(seed) }).failure);
        assert!(failures.any(|failure| failure.why.contains(expected)), "{sabotage:?} goes unnoticed");
    }
}
