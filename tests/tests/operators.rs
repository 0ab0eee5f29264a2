//! Test suites of Go operators: the suites in `tests/clients/operators`, which follow kubebuilder's and Operator SDK's
//! guides, and the suites of controller-runtime itself; programs that use containers, through client-go and through
//! fabric8's client for Java; and simulated nodes behind Kubernetes' own API server.
//!
//! `make test-long` runs them: Go downloads about a hundred modules, and compiles them for minutes.

use holdfast_tests::authority::Authority;
use holdfast_tests::clients::go;
use holdfast_tests::envtest::free_port;
use holdfast_tests::server::binary;
use holdfast_tests::{Folder, Server, clients, envtest, etcd, kubelet};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The tests that are skipped: they download Kubernetes 1.28, and turn off a feature gate that later releases no longer
/// have. With the gate on, the same tests run.
const SKIPPED: &str = "^(TestLazyRestMapperProvider|TestApiMachinery)$/^aggregatedDiscovery=false$";

/// A Go file that turns off the metrics of one suite, which alone would serve metrics at port 8080. If another process
/// had the port, the suite would wait for ever.
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
    // The command downloads the version of controller-runtime to which the operators here are pinned.
    download.args(["mod", "download", "-json", "sigs.k8s.io/controller-runtime"]);
    let module: Value = serde_json::from_str(&succeeds(download)).expect("what go says of the module");
    // Downloaded modules are read-only, but suites write into their module's folder, and run scripts in it.
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

/// Simulated nodes behind Kubernetes' own API server, which is built from its modules and stores its objects in etcd.
/// The controllers and the scheduler are part of Holdfast.
#[test]
#[ignore = "takes minutes, and needs Go"]
fn nodes_of_kube_apiserver() {
    let Some(address) = kubelet::address().map(|address| address.to_string()) else { return };
    let folder = Folder::new();
    let program = folder.join("kube-apiserver");
    let mut build = go(&holdfast_tests::folder().join("clients/kube-apiserver"));
    build.args(["build", "-o"]).arg(&program).arg("k8s.io/kubernetes/cmd/kube-apiserver");
    succeeds(build);

    let authority = Authority::new("cluster");
    let write = |name: &str, text: &str| {
        std::fs::write(folder.join(name), text).expect("written");
        folder.join(name).display().to_string()
    };
    let sign = |user: &str| {
        let (certificate, key) = authority.client(user, &["system:masters"]).write(folder.path(), user);
        (certificate.display().to_string(), key.display().to_string())
    };
    let ca = write("ca.crt", authority.pem());
    let (accounts, account_key) = authority.server(&["accounts"]).write(folder.path(), "accounts");
    let (accounts, account_key) = (accounts.display(), account_key.display());
    let ((certificate, key), (own_certificate, own_key)) = (sign("admin"), sign("kube-apiserver"));
    let (etcd, port) = (etcd::Cluster::single(), free_port());
    let mut api = Command::new(program);
    api.args([
        &format!("--etcd-servers={}", etcd.urls()),
        &format!("--secure-port={port}"),
        "--bind-address=127.0.0.1",
        &format!("--advertise-address={address}"),
        &format!("--cert-dir={}", folder.join("certificates").display()),
        &format!("--client-ca-file={ca}"),
        &format!("--service-account-key-file={accounts}"),
        &format!("--service-account-signing-key-file={account_key}"),
        "--service-account-issuer=https://kubernetes.default.svc",
        "--service-cluster-ip-range=10.96.0.0/16",
        "--authorization-mode=Node,RBAC",
        &format!("--kubelet-client-certificate={own_certificate}"),
        &format!("--kubelet-client-key={own_key}"),
        "--kubelet-preferred-address-types=InternalIP",
        // The plug-in is off, because these tests may create a pod before its namespace has its default account.
        "--disable-admission-plugins=ServiceAccount",
    ]);
    let mut api = Process::run(api);
    let cluster = json!({"server": format!("https://127.0.0.1:{port}"), "insecure-skip-tls-verify": true});
    let config = json!({"apiVersion": "v1", "kind": "Config", "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": {"client-certificate": certificate, "client-key": key}}]});
    let config = write("kubeconfig", &config.to_string());
    let kubectl = clients().join("kubectl-1.37");
    let is_there = || {
        let mut get = Command::new(&kubectl);
        get.args(["get", "namespaces", "default", "kube-node-lease"]).env("KUBECONFIG", &config);
        get.output().expect("kubectl runs").status.success()
    };
    let deadline = Instant::now() + Duration::from_secs(180);
    while !is_there() {
        assert!(api.0.try_wait().expect("a process").is_none(), "kube-apiserver has ended");
        assert!(Instant::now() < deadline, "kube-apiserver does not answer");
        std::thread::sleep(Duration::from_secs(1));
    }

    let run = |options: &[&str]| {
        let mut component = Command::new(binary());
        component.args(options).arg("--kubeconfig").arg(&config);
        Process::run(component)
    };
    let account_key = format!("--service-account-private-key-file={account_key}");
    let root = format!("--root-ca-file={ca}");
    let (reached, port) = (format!("--kubelet-address={address}"), format!("--kubelet-port={}", free_port()));
    let _components = [
        run(&["controller-manager", "--secure-port=0", "--leader-elect=false", "--controllers=*", &account_key, &root]),
        run(&["scheduler", "--secure-port=0", "--leader-elect=false"]),
        run(&["nodes", "--count=1", &reached, &port]),
    ];
    let mut look = Command::new("bash");
    look.arg(holdfast_tests::folder().join("clients/looking.sh")).arg(&kubectl).env("KUBECONFIG", &config);
    look.env("HOME", folder.path()).env("TMPDIR", folder.path());
    succeeds(look);
}

/// A program that is killed with the test.
struct Process(Child);

impl Process {
    fn run(mut command: Command) -> Process {
        let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Process(quiet.spawn().unwrap_or_else(|error| panic!("cannot run {command:?}: {error}")))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

#[test]
#[ignore = "takes minutes, and needs Java and Maven"]
fn looking_into_containers_with_java() {
    let folder = Folder::new();
    let project = holdfast_tests::folder().join("clients/java");
    let mut fetch = Command::new("mvn");
    fetch.args(["--batch-mode", "--quiet", "dependency:copy-dependencies"]).current_dir(&project);
    fetch.arg(format!("-DoutputDirectory={}", folder.join("lib").display()));
    succeeds(fetch);
    let server = Server::start(&folder.join("data"), &["--controllers=*"]);
    let mut look = Command::new("java");
    look.arg("-cp").arg(folder.join("lib").join("*")).arg(project.join("Looking.java"));
    look.env("KUBECONFIG", server.kubeconfig());
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
