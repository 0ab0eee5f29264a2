//! The test kits for other languages, each by its own tests. The kit for Rust is a package of the workspace.

use holdfast_tests::{Folder, clients, server};
use std::path::{Path, PathBuf};
use std::process::Command;

fn kit(name: &str) -> PathBuf {
    holdfast_tests::folder().join("../clients").join(name)
}

#[test]
fn python() {
    let folder = Folder::new();
    let mut command = Command::new(clients().join("python/bin/python"));
    command
        .args(["-m", "pytest", "-q", "-p", "no:cacheprovider"])
        .arg(format!("--basetemp={}", folder.join("pytest").display()))
        .current_dir(kit("python"))
        .env("PYTHONPATH", std::fs::canonicalize(kit("python/src")).expect("the package"))
        // Names the plug-in, because pytest finds it by its entry point only in an installed package.
        .env("PYTEST_PLUGINS", "pytest_holdfast.plugin")
        .env("PYTHONDONTWRITEBYTECODE", "1");
    passes(command, &folder);
}

#[test]
fn node() {
    let folder = Folder::new();
    let client = clients().join("node/node_modules/@kubernetes/client-node/dist/index.js");
    let mut command = Command::new("node");
    command.args(["--test", "test/"]).current_dir(kit("node")).env("HOLDFAST_NODE_CLIENT", client);
    passes(command, &folder);
}

#[track_caller]
fn passes(mut command: Command, folder: &Folder) {
    let temporary: &Path = &folder.join("tmp");
    std::fs::create_dir_all(temporary).expect("a folder");
    command.env("HOLDFAST_BINARY", server::binary()).env("TMPDIR", temporary);
    let output = command.output().unwrap_or_else(|error| panic!("cannot run {command:?}: {error}"));
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?} ended with {}\n{out}\n{err}", output.status);
}
