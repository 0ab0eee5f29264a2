//! Runs the fuzz targets as ordinary tests: over their seeds, over mutations of the seeds, and over random bytes.

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestError, TestRng, TestRunner};
use std::path::Path;

/// A function that panics if an invariant is violated for these bytes.
pub type FuzzTarget = fn(&[u8]);

/// The number of inputs of each sort (mutations and random bytes) for each target. Running all of them takes a few
/// seconds.
const CASES: u32 = 300;

/// The number in an environment variable. `HOLDFAST_FUZZ_CASES` sets the number of inputs for longer runs;
/// `HOLDFAST_FUZZ_SEED` selects other random inputs.
#[expect(clippy::disallowed_methods, reason = "who runs the test says how long")]
fn asked(name: &str) -> Option<u32> {
    std::env::var(name).ok()?.parse().ok()
}

/// The seeds of a target, by name.
fn seeds(target: &str) -> Vec<(String, Vec<u8>)> {
    // Packages at different depths of the repository compile this file.
    let ancestors = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let mut places = ancestors.map(|folder| folder.join("tools/fuzz/corpus-seeds"));
    let folder = places.find(|folder| folder.is_dir()).expect("the seeds of this repository").join(target);
    let files = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut seeds: Vec<_> = files
        .map(|file| {
            let file = file.expect("a readable folder");
            let bytes = std::fs::read(file.path()).expect("a readable seed");
            (file.file_name().to_string_lossy().into_owned(), bytes)
        })
        .collect();
    seeds.sort();
    assert!(!seeds.is_empty(), "{target} has no seeds");
    seeds
}

/// A change of a seed's bytes.
#[derive(Debug, Clone)]
enum Mutation {
    /// Replaces the byte at a position.
    Set(usize, u8),
    /// Removes a range of bytes.
    Cut(usize, usize),
    /// Repeats a range of bytes.
    Repeat(usize, usize),
    /// Inserts bytes that are special to some parser.
    Insert(usize, &'static [u8]),
    /// Inserts a range of bytes from another seed.
    Splice(usize, usize, usize),
}

fn mutation(meaningful: &'static [&'static [u8]]) -> impl Strategy<Value = Mutation> {
    prop_oneof![
        (any::<usize>(), any::<u8>()).prop_map(|(at, byte)| Mutation::Set(at, byte)),
        (any::<usize>(), 1..64usize).prop_map(|(at, length)| Mutation::Cut(at, length)),
        (any::<usize>(), 1..64usize).prop_map(|(at, length)| Mutation::Repeat(at, length)),
        (any::<usize>(), prop::sample::select(meaningful)).prop_map(|(at, bytes)| Mutation::Insert(at, bytes)),
        (any::<usize>(), any::<usize>(), any::<usize>()).prop_map(|(at, seed, from)| Mutation::Splice(at, seed, from)),
    ]
}

fn mutated(seeds: &[(String, Vec<u8>)], seed: usize, mutations: &[Mutation]) -> Vec<u8> {
    let mut bytes = seeds[seed % seeds.len()].1.clone();
    for mutation in mutations {
        let place = |at: usize| at % (bytes.len() + 1);
        match *mutation {
            Mutation::Set(at, byte) => {
                let at = place(at);
                if let Some(found) = bytes.get_mut(at) {
                    *found = byte;
                }
            }
            Mutation::Cut(at, length) => {
                let at = place(at);
                bytes.drain(at..bytes.len().min(at + length));
            }
            Mutation::Repeat(at, length) => {
                let at = place(at);
                let stretch = bytes[at..bytes.len().min(at + length)].to_vec();
                bytes.splice(at..at, stretch);
            }
            Mutation::Insert(at, meaningful) => {
                let at = place(at);
                bytes.splice(at..at, meaningful.iter().copied());
            }
            Mutation::Splice(at, other, from) => {
                let at = place(at);
                let other = &seeds[other % seeds.len()].1;
                let from = from % (other.len() + 1);
                let stretch = &other[from..other.len().min(from + 64)];
                bytes.splice(at..at, stretch.iter().copied());
            }
        }
    }
    bytes
}

pub fn holds_on_seeds(targets: &[(&str, FuzzTarget)]) {
    let mut failed = Vec::new();
    for (name, target) in targets {
        for (seed, bytes) in seeds(name) {
            if std::panic::catch_unwind(|| target(&bytes)).is_err() {
                failed.push(format!("{name}/{seed}"));
            }
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}

/// Checks that no target fails on mutations of its seeds. `meaningful` are bytes that are special to some target.
pub fn holds_on_mutations(targets: &[(&str, FuzzTarget)], meaningful: &'static [&'static [u8]]) {
    let mut failed = Vec::new();
    for (name, target) in targets {
        let seeds = seeds(name);
        let inputs = (any::<usize>(), prop::collection::vec(mutation(meaningful), 1..6));
        failed.extend(failure(name, *target, inputs.prop_map(|(seed, mutations)| mutated(&seeds, seed, &mutations))));
    }
    assert!(failed.is_empty(), "{failed:#?}");
}

/// Checks that no target fails on random bytes.
pub fn holds_on_noise(targets: &[(&str, FuzzTarget)]) {
    let inputs = || prop::collection::vec(any::<u8>(), 0..300);
    let failed: Vec<_> = targets.iter().filter_map(|(name, target)| failure(name, *target, inputs())).collect();
    assert!(failed.is_empty(), "{failed:#?}");
}

/// The smallest input that was found for which the target fails; `None` if the target fails for none.
fn failure(name: &str, target: FuzzTarget, inputs: impl Strategy<Value = Vec<u8>>) -> Option<String> {
    let cases = asked("HOLDFAST_FUZZ_CASES").unwrap_or(CASES);
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let generator = match asked("HOLDFAST_FUZZ_SEED") {
        Some(number) => TestRng::from_seed(RngAlgorithm::ChaCha, &number.to_le_bytes().repeat(8)),
        None => TestRng::deterministic_rng(RngAlgorithm::ChaCha),
    };
    let run = TestRunner::new_with_rng(config, generator).run(&inputs, |bytes| {
        target(&bytes);
        Ok(())
    });
    match run {
        Ok(()) => None,
        Err(TestError::Fail(why, bytes)) => Some(format!("{name}: {why}: {}", bytes.escape_ascii())),
        Err(TestError::Abort(why)) => Some(format!("{name}: {why}")),
    }
}
