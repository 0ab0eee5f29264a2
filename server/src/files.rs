//! Reads and checks files that options name.

use anyhow::{Context, Result, anyhow};
use holdfast_outbound::Dialer;
use holdfast_outbound::kubeconfig::Posting;
use std::path::Path;

/// The text of a file. An error names the file.
pub fn read(file: impl AsRef<Path>) -> Result<String> {
    let file = file.as_ref();
    std::fs::read_to_string(file).with_context(|| format!("read {}", file.display()))
}

/// Checks that a file is a kubeconfig with a server that requests can be posted to.
pub fn posting(file: &Path) -> Result<()> {
    kubeconfig(file)?;
    Posting::from_file(file, "", &Dialer::Direct).map(drop).map_err(|why| anyhow!(why))
}

/// Checks that a file is a kubeconfig.
fn kubeconfig(file: &Path) -> Result<()> {
    let told = |why: &dyn std::fmt::Display| {
        // Only the first line says what is wrong; the other lines show the place in the file.
        let why = why.to_string();
        anyhow!("{}: {}", file.display(), why.lines().next().unwrap_or_default())
    };
    kube::config::Kubeconfig::from_yaml(&read(file)?).map(drop).map_err(|why| match std::error::Error::source(&why) {
        Some(source) => told(&source),
        None => told(&why),
    })
}
