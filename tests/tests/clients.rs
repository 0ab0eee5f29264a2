//! Scripts of real clients, each against a server of its own.

use holdfast_tests::{Folder, Server, clients};
use std::process::Command;

/// A cluster in which pods can be moved between nodes.
const TWO_NODES: &[&str] = &["--controllers=*", "--nodes=2"];

#[test]
fn kubectl_1_37() {
    script("kubectl.sh", Some("kubectl-1.37"));
}

#[test]
fn kubectl_1_20() {
    script("kubectl.sh", Some("kubectl-1.20"));
}

#[test]
fn shop_with_kubectl_1_37() {
    script("shop.sh", Some("kubectl-1.37"));
}

#[test]
fn shop_with_kubectl_1_20() {
    script("shop.sh", Some("kubectl-1.20"));
}

#[test]
fn metrics_with_kubectl_1_37() {
    living_script("metrics.sh", Some("kubectl-1.37"));
}

#[test]
fn metrics_with_kubectl_1_20() {
    living_script("metrics.sh", Some("kubectl-1.20"));
}

#[test]
fn looking_into_containers_with_kubectl_1_37() {
    living_script("looking.sh", Some("kubectl-1.37"));
}

#[test]
fn looking_into_containers_with_kubectl_1_20() {
    living_script("looking.sh", Some("kubectl-1.20"));
}

#[test]
fn conformance_with_kubectl_1_37() {
    living_script("conformance.sh", Some("kubectl-1.37"));
}

#[test]
fn looking_into_containers_with_python() {
    living_script("looking.py", None);
}

#[test]
fn looking_into_containers_with_node() {
    living_script("looking.mjs", Some("node"));
}

#[test]
fn life_with_kubectl_1_37() {
    run("kubectl_living.sh", Some("kubectl-1.37"), TWO_NODES);
}

#[test]
fn life_with_kubectl_1_20() {
    run("kubectl_living.sh", Some("kubectl-1.20"), TWO_NODES);
}

#[test]
fn past_with_kubectl_1_37() {
    script("past.sh", Some("kubectl-1.37"));
}

#[test]
fn past_with_kubectl_1_20() {
    script("past.sh", Some("kubectl-1.20"));
}

#[test]
fn helm_4() {
    script("helm.sh", Some("helm-4"));
}

#[test]
fn helm_3() {
    script("helm.sh", Some("helm-3"));
}

#[test]
fn helm_4_waits_for_life() {
    living_script("helm_living.sh", Some("helm-4"));
}

#[test]
fn helm_3_waits_for_life() {
    living_script("helm_living.sh", Some("helm-3"));
}

#[test]
fn helm_4_with_a_chart_in_other_words() {
    living_script("helm_respelled.sh", Some("helm-4"));
}

#[test]
fn helm_3_with_a_chart_in_other_words() {
    living_script("helm_respelled.sh", Some("helm-3"));
}

#[test]
fn python() {
    script("python_client.py", None);
}

#[test]
fn operator_with_kopf() {
    living_script("kopf_operator.py", None);
}

#[test]
fn what_kopf_shows_in_its_examples() {
    living_script("kopf_examples.py", None);
}

#[test]
fn openapi() {
    script("openapi.py", None);
}

#[test]
fn node() {
    script("node_client.mjs", Some("node"));
}

#[test]
fn life_with_node() {
    living_script("node_living.mjs", Some("node"));
}

#[test]
fn bad_inputs() {
    script("bad_inputs.py", None);
}

/// Runs a script of `tests/clients` against a server without controllers.
fn script(name: &str, client: Option<&str>) {
    run(name, client, &[]);
}

/// Runs a script against a cluster with controllers and a node.
fn living_script(name: &str, client: Option<&str>) {
    run(name, client, &["--controllers=*"]);
}

/// Runs a script with a client as its argument; the script's output is printed if the script fails.
fn run(name: &str, client: Option<&str>, options: &[&str]) {
    let clients = clients();
    if let Some(client) = client
        && !clients.join(client).exists()
    {
        // Only kubectl 1.20 may be missing: not every Linux distribution has a package of it.
        assert_eq!(client, "kubectl-1.20", "{client} is not in {}", clients.display());
        return eprintln!("skipped: there is no {client} here");
    }
    let folder = Folder::new();
    let server = Server::start(&folder.join("data"), options);
    let interpreter = match name.rsplit_once('.') {
        Some((_, "sh")) => "bash".into(),
        Some((_, "mjs")) => "node".into(),
        _ => clients.join("python/bin/python"),
    };
    let home = folder.join("home");
    std::fs::create_dir_all(home.join("tmp")).unwrap();
    let mut command = Command::new(interpreter);
    command
        .arg(holdfast_tests::folder().join("clients").join(name))
        .args(client.map(|client| clients.join(client)))
        .env("KUBECONFIG", server.kubeconfig())
        .env("HOME", &home)
        .env("TMPDIR", home.join("tmp"))
        .env("KUBECACHEDIR", home.join("cache"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("KUBECTL", clients.join("kubectl-1.37"));
    let output = command.output().unwrap_or_else(|error| panic!("cannot run {command:?}: {error}"));
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{name} ended with {}\n{out}\n{err}", output.status);
    server.stop();
}
