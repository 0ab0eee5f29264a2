//! Test suites of Go operators: those in `tests/clients/operators`, which follow kubebuilder's and Operator SDK's
//! guides, and controller-runtime's own; and a program that uses containers through client-go.
//!
//! `make test-long` runs them: Go downloads about a hundred modules, and compiles them for minutes.

use holdfast_tests::clients::go;
use holdfast_tests::{Folder, Server, envtest};
use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;

/// These tests download Kubernetes 1.28 and turn off a feature gate that later releases no longer have; with the gate
/// on, the same tests run.
const SKIPPED: &str = "^(TestLazyRestMapperProvider|TestApiMachinery)$/^aggregatedDiscovery=false$";

/// The only suite that would serve metrics at port 8080; if another process has the port, it would wait for ever.
const NO_METRICS: &str = r#"package recorder_test

import "sigs.k8s.io/controller-runtime/pkg/metrics/server"

func init() { server.DefaultBindAddress = "0" }
"#;

#[test]
#[ignore = "takes minutes, and needs Go"]
fn suites_of_operators() {
    let cache = Folder::new();
    let mut tests = go(&operators());
    tests.args(["test", "-count=1", "./..."]).env("KUBEBUILDER_ASSETS", envtest::assets(cache.path()));
    succeeds(tests);
}

#[test]
#[ignore = "takes minutes, and needs Go"]
fn suites_of_controller_runtime() {
    let folder = Folder::new();
    let mut download = go(&operators());
    // The version to which the operators here are pinned.
    download.args(["mod", "download", "-json", "sigs.k8s.io/controller-runtime"]);
    let module: Value = serde_json::from_str(&succeeds(download)).expect("what go says of the module");
    // Downloaded modules are read-only, and suites write into theirs and run it.
    let module = module["Dir"].as_str().expect("the module's folder");
    let own = folder.join("controller-runtime");
    let mut copy = Command::new("cp");
    copy.args(["-r", "--no-preserve=mode", module]).arg(&own);
    succeeds(copy);
    let mut allow = Command::new("find");
    allow.arg(&own).args(["-name", "*.sh", "-exec", "chmod", "+x", "{}", "+"]);
    succeeds(allow);

    std::fs::write(own.join("pkg/internal/recorder/no_metrics_test.go"), NO_METRICS).expect("written");

    let mut tests = go(&own);
    tests.args(["test", "-count=1", "-skip", SKIPPED, "./pkg/..."]);
    tests.env("KUBEBUILDER_ASSETS", envtest::assets(&folder.join("cache")));
    succeeds(tests);
}

#[test]
#[ignore = "takes minutes, and needs Go"]
fn looking_into_containers_with_go() {
    let folder = Folder::new();
    let server = Server::start(&folder.join("data"), &["--controllers=*"]);
    let mut look = go(&operators());
    look.args(["run", "./looking"]).env("KUBECONFIG", server.kubeconfig());
    succeeds(look);
    server.stop();
}

fn operators() -> PathBuf {
    holdfast_tests::folder().join("clients/operators")
}

/// The output of a command that must succeed.
fn succeeds(mut command: Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("cannot run {command:?}: {error}"));
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?} ended with {}\n{out}\n{err}", output.status);
    out.into_owned()
}
