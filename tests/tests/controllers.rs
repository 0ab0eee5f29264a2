//! Controllers with the real binary: in the server's process, in forks of it, and as a process of their own.

use holdfast_tests::server::{binary, fails, holdfast};
use holdfast_tests::wire::Wire;
use holdfast_tests::{Folder, Server, eventually};
use http::Method;
use serde_json::{Value, json};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PODS: &str = "/api/v1/namespaces/default/pods";
const SETS: &str = "/apis/apps/v1/namespaces/default/replicasets";
/// Those that the tests are about.
const SOME: &str = "--controllers=replicaset,garbagecollector";

struct Cluster {
    _folder: Folder,
    server: Server,
    admin: Wire,
}

impl Cluster {
    fn start(controllers: &str) -> Cluster {
        let folder = Folder::new();
        let server = Server::start(&folder.join("data"), &[controllers]);
        let admin = Wire::admin(&server);
        Cluster { _folder: folder, server, admin }
    }

    /// Waits until the list has so many objects of which this name is the beginning.
    async fn await_count(&self, path: &str, begin: &str, count: usize) -> Vec<Value> {
        eventually(PATIENCE, || async {
            let list = self.admin.get(path).await.expect(200).json();
            let items = list["items"].as_array().cloned().unwrap_or_default();
            let is_meant = |item: &Value| item["metadata"]["name"].as_str().is_some_and(|name| name.starts_with(begin));
            let items: Vec<Value> = items.into_iter().filter(is_meant).collect();
            if items.len() == count { Ok(items) } else { Err(format!("{} of {count}", items.len())) }
        })
        .await
    }
}

fn replica_set(name: &str, replicas: u32) -> Value {
    let labels = json!({"app": name});
    json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": name},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
        },
    })
}

#[tokio::test]
async fn a_set_gets_its_pods_and_loses_them_with_it() {
    let cluster = Cluster::start(SOME);
    cluster.admin.post(SETS, &replica_set("web", 3)).await.expect(201);
    let pods = cluster.await_count(PODS, "web-", 3).await;
    let owner = &pods[0]["metadata"]["ownerReferences"][0];
    assert_eq!((&owner["kind"], &owner["controller"]), (&json!("ReplicaSet"), &json!(true)));
    let managers = pods[0]["metadata"]["managedFields"].as_array().expect("managed fields");
    assert_eq!(managers[0]["manager"], "kube-controller-manager");
    let events =
        cluster.await_count("/api/v1/namespaces/default/events?fieldSelector=reason=SuccessfulCreate", "web.", 3);
    let event = &events.await[0];
    assert_eq!(event["source"]["component"], "replicaset-controller");
    assert_eq!(event["involvedObject"]["kind"], "ReplicaSet");
    cluster.admin.send(Method::DELETE, &format!("{SETS}/web"), &[], "").await.expect(200);
    cluster.await_count(PODS, "web-", 0).await;
}

#[tokio::test]
async fn a_fork_runs_what_its_server_runs() {
    let cluster = Cluster::start(SOME);
    let made = cluster.admin.post("/holdfast/v1/forks", &json!({})).await.expect(201).json();
    let fork = made["path"].as_str().expect("a path");
    cluster.admin.post(&format!("{fork}{SETS}"), &replica_set("forked", 2)).await.expect(201);
    cluster.await_count(&format!("{fork}{PODS}"), "forked-", 2).await;
    cluster.await_count(PODS, "forked-", 0).await;
}

#[tokio::test]
async fn without_controllers_nothing_happens_by_itself() {
    let cluster = Cluster::start("--controllers=-*");
    cluster.admin.post(SETS, &replica_set("web", 1)).await.expect(201);
    let owner = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "u"}]);
    let map = json!({"metadata": {"name": "owned", "ownerReferences": owner}});
    cluster.admin.post(MAPS, &map).await.expect(201);
    let namespace = "/api/v1/namespaces/shop";
    cluster.admin.post("/api/v1/namespaces", &json!({"metadata": {"name": "shop"}})).await.expect(201);
    cluster.admin.send(Method::DELETE, namespace, &[], "").await.expect(200);
    // The server empties namespaces itself, and that takes longer than a controller would.
    eventually(PATIENCE, || async {
        match cluster.admin.get(namespace).await.code {
            404 => Ok(()),
            code => Err(code),
        }
    })
    .await;
    cluster.await_count(PODS, "web-", 0).await;
    cluster.await_count(MAPS, "owned", 1).await;
}

/// A controller manager, ended with the test.
struct Manager(Child);

impl Drop for Manager {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn a_controller_manager_works_from_elsewhere() {
    let cluster = Cluster::start("--controllers=-*");
    let mut command = Command::new(binary());
    command.args(["controller-manager", "--secure-port=0", "--use-service-account-credentials", SOME]);
    command.arg("--kubeconfig").arg(cluster.server.kubeconfig());
    let _manager = Manager(command.stdin(Stdio::null()).spawn().expect("it runs"));
    cluster.admin.post(SETS, &replica_set("web", 3)).await.expect(201);
    cluster.await_count(PODS, "web-", 3).await;
    let lease = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-controller-manager";
    assert_ne!(cluster.admin.get(lease).await.expect(200).json()["spec"]["holderIdentity"], Value::Null);
    let accounts = "/api/v1/namespaces/kube-system/serviceaccounts";
    cluster.await_count(accounts, "replicaset-controller", 1).await;

    // A definition that comes while it runs: what its objects own goes with them.
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let version = json!({"name": "v1", "served": true, "storage": true, "schema": schema});
    let names = json!({"plural": "widgets", "kind": "Widget"});
    let spec = json!({"group": "shop.example.com", "scope": "Namespaced", "versions": [version], "names": names});
    let definition = json!({"metadata": {"name": "widgets.shop.example.com"}, "spec": spec});
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    cluster.admin.post(definitions, &definition).await.expect(201);
    let widgets = "/apis/shop.example.com/v1/namespaces/default/widgets";
    let widget = json!({"apiVersion": "shop.example.com/v1", "kind": "Widget", "metadata": {"name": "w"}});
    let widget = eventually(PATIENCE, || async {
        let answer = cluster.admin.post(widgets, &widget).await;
        if answer.code == 201 { Ok(answer.json()) } else { Err(answer.code) }
    })
    .await;
    let owner = json!([{
        "apiVersion": "shop.example.com/v1", "kind": "Widget", "name": "w", "uid": widget["metadata"]["uid"],
    }]);
    cluster.admin.post(MAPS, &json!({"metadata": {"name": "owned", "ownerReferences": owner}})).await.expect(201);
    cluster.admin.send(Method::DELETE, &format!("{widgets}/w"), &[], "").await.expect(200);
    cluster.await_count(MAPS, "owned", 0).await;
}

#[test]
fn options_that_cannot_be_met_are_refused_by_name() {
    for (options, parts) in [
        (&["--controllers=jobs"][..], &["\"jobs\" is not in the list of known controllers"][..]),
        (&["--controllers=selinux-warning-controller"], &["selinux-warning-controller is not built yet"]),
        (&["--controllers=namespace"], &["namespace-controller", "itself"]),
        (&["--allocate-node-cidrs"], &["--allocate-node-cidrs is not built yet"]),
        (&["--cloud-provider=gce"], &["no cloud is built in"]),
        (&["--no-such-option"], &["--no-such-option"]),
    ] {
        fails(holdfast([&["controller-manager"], options].concat()), parts);
    }
}
