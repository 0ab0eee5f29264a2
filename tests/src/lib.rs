//! The harness of tests of the whole system: starts and stops a real server, and connects clients to it.
//!
//! The tests are in `tests/tests`, one file for each topic; the scripts of real clients are in `tests/clients`. The
//! tests here use the server's folder, socket and output, and public interfaces of crates; a test that needs more
//! belongs in the crate that it tests.

pub mod authority;
pub mod backend;
pub mod clients;
pub mod clock;
pub mod controllers;
pub mod differences;
pub mod envtest;
pub mod etcd;
pub mod facts;
pub mod fixture;
pub mod histories;
pub mod hooks;
pub mod keys;
pub mod kms;
pub mod konnectivity;
pub mod kubelet;
pub mod large;
pub mod memory;
pub mod proxy;
pub mod recorded;
pub mod records;
pub mod scheduling;
pub mod scripts;
pub mod server;
pub mod webhook;
pub mod wire;

pub use clients::clients;
pub use server::{Folder, Server};

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The folder `tests` of this repository.
pub fn folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Repeats `attempt` until it succeeds; panics with the last error after `patience`.
pub async fn eventually<T, E, F>(patience: Duration, mut attempt: impl FnMut() -> F) -> T
where
    F: Future<Output = Result<T, E>>,
    E: std::fmt::Display,
{
    let deadline = Instant::now() + patience;
    loop {
        match attempt().await {
            Ok(found) => return found,
            Err(error) if Instant::now() > deadline => panic!("not within {patience:?}: {error}"),
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

/// Whether metrics show that a configuration of the API server was reloaded this many times with this outcome.
pub fn has_reloaded(metrics: &str, configuration: &str, status: &str, times: u64) -> bool {
    let name = format!("apiserver_{configuration}_config_controller_automatic_reloads_total");
    let (start, end) = (format!("{name}{{apiserver_id_hash=\"sha256:"), format!("\",status=\"{status}\"}} {times}"));
    metrics.lines().any(|line| line.starts_with(&start) && line.ends_with(&end))
}

/// The files below a folder that contain a text.
pub fn files_with(folder: &Path, text: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(files_with(&path, text));
        } else if std::fs::read(&path).expect("read").windows(text.len()).any(|window| window == text.as_bytes()) {
            found.push(path);
        }
    }
    found
}
