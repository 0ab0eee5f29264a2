//! Real clients, which are downloaded once, and the Go command, which compiles clients that are written in Go.

use std::env::{join_paths, split_paths, var_os};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The folder of the clients, which are downloaded if they are missing.
pub fn clients() -> &'static Path {
    static CLIENTS: OnceLock<PathBuf> = OnceLock::new();
    CLIENTS.get_or_init(|| {
        let folder =
            std::env::var_os("HOLDFAST_CLIENTS").map_or_else(|| crate::server::target().join("clients"), PathBuf::from);
        let complete = ["kubectl-1.37", "helm-4", "helm-3", "python/.pin", "node/.pin"];
        if !complete.iter().all(|file| folder.join(file).exists()) {
            let fetch = crate::folder().join("../scripts/fetch-clients.sh");
            let status = Command::new(fetch).arg(&folder).status().expect("run fetch-clients.sh");
            assert!(status.success(), "the clients could not be fetched");
        }
        folder
    })
}

/// Runs Go in a folder. If Go is not installed on the machine, `make test-long` has put it beside the other clients.
pub fn go(folder: &Path) -> Command {
    let path = var_os("PATH").unwrap_or_default();
    let folders = split_paths(&path).chain([clients().join("go/bin")]);
    let mut command = Command::new("go");
    command.current_dir(folder).env("PATH", join_paths(folders).expect("folders"));
    command
}
