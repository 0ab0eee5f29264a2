//! Recorded behaviour of Kubernetes, case by case: compressed files of JSON lines in `tests/data`.

use flate2::read::GzDecoder;
use serde::de::DeserializeOwned;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

/// The cases of `tests/data/NAME.jsonl.gz` in order, without empty lines.
pub fn lines<T: DeserializeOwned>(name: &str) -> Vec<T> {
    // The tests of `core` include this file as well.
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data"));
    let path = folder.join(format!("{name}.jsonl.gz"));
    let file = File::open(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let lines = BufReader::new(GzDecoder::new(file)).lines().map(|line| line.expect("a line of text"));
    lines.filter(|line| !line.is_empty()).map(|line| serde_json::from_str(&line).expect("JSON")).collect()
}
