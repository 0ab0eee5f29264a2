//! What Kubernetes did, recorded case by case: files of JSON lines under `tests/data`, compressed.

use flate2::read::GzDecoder;
use serde::de::DeserializeOwned;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

/// The cases of `tests/data/NAME.jsonl.gz`, in their order. Empty lines are left out.
pub fn lines<T: DeserializeOwned>(name: &str) -> Vec<T> {
    // The tests of the core read them as well.
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data"));
    let path = folder.join(format!("{name}.jsonl.gz"));
    let file = File::open(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let lines = BufReader::new(GzDecoder::new(file)).lines().map(|line| line.expect("a line of text"));
    lines.filter(|line| !line.is_empty()).map(|line| serde_json::from_str(&line).expect("JSON")).collect()
}
