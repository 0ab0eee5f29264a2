//! Operators in Go, with their suites as kubebuilder's and Operator SDK's guides have them, in `tests/clients/operators`.

use holdfast_tests::{Folder, clients, envtest};
use std::env::{join_paths, split_paths, var_os};
use std::process::Command;

/// `make test-long` runs it: Go fetches some hundred modules, and compiles them for minutes.
#[test]
#[ignore = "takes minutes, and needs Go"]
fn suites_of_operators() {
    let cache = Folder::new();
    let path = var_os("PATH").unwrap_or_default();
    // Where there is no Go, `make test-long` has put one beside the other clients.
    let folders = split_paths(&path).chain([clients().join("go/bin")]);
    let output = Command::new("go")
        .args(["test", "-count=1", "./..."])
        .current_dir(holdfast_tests::folder().join("clients/operators"))
        .env("PATH", join_paths(folders).expect("folders"))
        .env("KUBEBUILDER_ASSETS", envtest::assets(cache.path()))
        .output()
        .expect("run go");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "go test ended with {}\n{out}\n{err}", output.status);
}
