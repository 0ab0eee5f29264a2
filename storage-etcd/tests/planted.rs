//! Tests that the simulation finds every planted bug of the log on etcd, and that without a planted bug the simulation
//! finds nothing with the seeds that are tried.

mod world;

use holdfast_storage_etcd::Transactions;
use holdfast_storage_etcd::planted::{Bug, plant};

/// The maximum number of seeds that may be tried until a seed finds a planted bug.
const SEEDS: u64 = 100;

#[test]
fn every_planted_bug_of_the_log_on_etcd_is_found() {
    find(&Bug::ALL, Transactions::Full);
}

#[test]
fn those_of_plain_transactions_are_found_as_well() {
    let bugs = [
        Bug::UnknownTakenForFailure,
        Bug::UnknownTakenForDone,
        Bug::FenceNotRaised,
        Bug::ResumeSkips,
        Bug::FullTakenForFailure,
        Bug::DeletionsMissed,
        Bug::RestoreIgnored,
    ];
    find(&bugs, Transactions::Plain);
}

fn find(bugs: &[Bug], transactions: Transactions) {
    let mut unseen = Vec::new();
    for bug in bugs.iter().copied() {
        plant(Some(bug));
        let found = (1..=SEEDS).find_map(|seed| {
            let run = std::panic::catch_unwind(|| world::run(seed, transactions));
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
