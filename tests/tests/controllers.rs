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

/// What no controller can make sense of, with the reason that is told of it as an Event, where there is one.
fn nonsense() -> Vec<(&'static str, Value, Option<&'static str>)> {
    let pod = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
    let cron = |name: &str, schedule: &str| {
        json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": name},
            "spec": {"schedule": schedule, "jobTemplate": {"spec": {"template": pod}}}})
    };
    let owned_by = |name: &str, api_version: &str, kind: &str| {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "ownerReferences": [
            {"apiVersion": api_version, "kind": kind, "name": "x", "uid": "nobodys"}]}})
    };
    let stage = json!({"apiVersion": "kwok.x-k8s.io/v1alpha1", "kind": "Stage", "metadata": {"name": "broken"},
        "spec": {"resourceRef": {"apiGroup": "v1", "kind": "Pod"},
            "selector": {"matchExpressions": [{"key": ".status[", "operator": "Exists"}]},
            "next": {"statusTemplate": "phase: {{ .nope"}}});
    let mut huge = replica_set("huge", 2_147_483_647);
    let annotations =
        json!({"controller.kubernetes.io/pod-deletion-cost": "1", "simulate.holdfast.dev/usage-cpu": "x"});
    huge["spec"]["template"]["metadata"]["annotations"] = annotations;
    let mut rival = replica_set("rival", 2);
    rival["spec"] = replica_set("huge", 2)["spec"].clone();
    let scaler = json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "h"},
        "spec": {"maxReplicas": 2_147_483_647, "scaleTargetRef": {"apiVersion": "no/v1", "kind": "X", "name": "x"}}});
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "many"},
        "spec": {"completions": 2_147_483_647, "parallelism": 2_147_483_647, "template": pod}});
    vec![
        ("/apis/kwok.x-k8s.io/v1alpha1/stages", stage, Some("NotUnderstood")),
        ("/apis/batch/v1/namespaces/default/cronjobs", cron("never", "0 0 30 2 *"), Some("InvalidSchedule")),
        ("/apis/batch/v1/namespaces/default/cronjobs", cron("past", "* * * * *"), None),
        (MAPS, owned_by("of-nobody", "v1", "ConfigMap"), None),
        (MAPS, owned_by("of-nothing", "example.com/v1", "Nothing"), None),
        (SETS, huge, Some("FailedCreate")),
        (SETS, rival, None),
        ("/apis/batch/v1/namespaces/default/jobs", job, Some("FailedCreate")),
        ("/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers", scaler, Some("FailedGetScale")),
    ]
}

#[tokio::test]
async fn what_makes_no_sense_is_told_and_stops_nobody() {
    let cluster = Cluster::start("--controllers=*");
    let admin = &cluster.admin;
    let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": {"pods": "6"}}});
    admin.post("/api/v1/namespaces/default/resourcequotas", &quota).await.expect(201);
    // The kind of Stages, and the account of the namespace.
    cluster.await_count("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "stages.", 1).await;
    cluster.await_count("/api/v1/namespaces/default/serviceaccounts", "default", 1).await;
    for (path, object, _) in nonsense() {
        eventually(PATIENCE, || async {
            let answer = admin.post(path, &object).await;
            if answer.code == 201 { Ok(()) } else { Err(answer.json()) }
        })
        .await;
    }
    // A cron job that has missed every minute since the first year, and two objects that own each other.
    let past = json!({"status": {"lastScheduleTime": "0001-01-01T00:00:00Z"}}).to_string();
    let merge = [("content-type", "application/merge-patch+json")];
    let status = "/apis/batch/v1/namespaces/default/cronjobs/past/status";
    admin.send(Method::PATCH, status, &merge, past).await.expect(200);
    let mut uids = Vec::new();
    for name in ["ring-a", "ring-b"] {
        let made = admin.post(MAPS, &json!({"metadata": {"name": name}})).await.expect(201).json();
        uids.push(made["metadata"]["uid"].clone());
    }
    for (name, owner, uid) in [("ring-a", "ring-b", &uids[1]), ("ring-b", "ring-a", &uids[0])] {
        let owner =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "name": owner, "uid": uid, "blockOwnerDeletion": true});
        let patch = json!({"metadata": {"ownerReferences": [owner]}}).to_string();
        admin.send(Method::PATCH, &format!("{MAPS}/{name}"), &merge, patch).await.expect(200);
    }
    let foreground = json!({"propagationPolicy": "Foreground"}).to_string();
    let plain = [("content-type", "application/json")];
    admin.send(Method::DELETE, &format!("{MAPS}/ring-a"), &plain, foreground).await.expect(200);
    cluster.await_count(MAPS, "ring-", 0).await;
    cluster.await_count(MAPS, "of-nobody", 0).await;
    cluster.await_count(MAPS, "of-nothing", 1).await;
    for (_, object, reason) in nonsense() {
        let (Some(reason), Some(name)) = (reason, object["metadata"]["name"].as_str()) else { continue };
        eventually(PATIENCE, || async {
            let path = format!("/api/v1/events?fieldSelector=reason={reason},involvedObject.name={name}");
            let list = admin.get(&path).await.expect(200).json();
            if list["items"].as_array().is_some_and(|items| !items.is_empty()) { Ok(()) } else { Err(reason) }
        })
        .await;
    }
    // Others go on.
    admin.post("/api/v1/namespaces", &json!({"metadata": {"name": "quiet"}})).await.expect(201);
    cluster.await_count("/api/v1/namespaces/quiet/serviceaccounts", "default", 1).await;
    let sets = "/apis/apps/v1/namespaces/quiet/replicasets";
    admin.post(sets, &replica_set("web", 3)).await.expect(201);
    cluster.await_count("/api/v1/namespaces/quiet/pods?fieldSelector=status.phase=Running", "web-", 3).await;
    assert_eq!(cluster.server.stderr().matches("panic").count(), 0, "{}", cluster.server.stderr());
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

/// Every controller by its own account, the scheduler and nodes, each a process of its own.
#[tokio::test]
async fn nobody_from_elsewhere_is_refused_anything() {
    let cluster = Cluster::start("--controllers=-*");
    let start = |options: &[&str]| {
        let mut command = Command::new(binary());
        command.args(options).arg("--kubeconfig").arg(cluster.server.kubeconfig());
        Manager(command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().expect("it runs"))
    };
    let _manager = start(&["controller-manager", "--secure-port=0", "--use-service-account-credentials"]);
    let _scheduler = start(&["scheduler", "--secure-port=0"]);
    let _nodes = start(&["nodes", "--count=2"]);
    let admin = &cluster.admin;
    admin.post("/api/v1/namespaces", &json!({"metadata": {"name": "shop"}})).await.expect(201);
    let (labels, containers) = (json!({"app": "a"}), json!([{"name": "c", "image": "i"}]));
    let template = json!({"metadata": {"labels": labels}, "spec": {"containers": containers}});
    let claim = json!({"metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    let body = |name: &str, spec: Value| json!({"metadata": {"name": name}, "spec": spec});
    let job = json!({"template": {"spec": {"restartPolicy": "Never", "containers": containers}}});
    let selected = json!({"replicas": 2, "selector": {"matchLabels": labels}, "template": template});
    let mut stateful = selected.clone();
    stateful["serviceName"] = "db".into();
    stateful["volumeClaimTemplates"] = json!([claim]);
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    for (path, object) in [
        ("apis/apps/v1/namespaces/shop/deployments", body("web", selected)),
        ("apis/apps/v1/namespaces/shop/statefulsets", body("db", stateful)),
        ("apis/batch/v1/namespaces/shop/jobs", body("once", job.clone())),
        (
            "apis/batch/v1/namespaces/shop/cronjobs",
            body("often", json!({"schedule": "* * * * *", "jobTemplate": {"spec": job}})),
        ),
        (
            "apis/autoscaling/v2/namespaces/shop/horizontalpodautoscalers",
            body("web", json!({"scaleTargetRef": target, "maxReplicas": 3})),
        ),
        (
            "apis/policy/v1/namespaces/shop/poddisruptionbudgets",
            body("web", json!({"minAvailable": 1, "selector": {"matchLabels": labels}})),
        ),
        ("api/v1/namespaces/shop/services", body("web", json!({"selector": labels, "ports": [{"port": 80}]}))),
        ("api/v1/namespaces/shop/resourcequotas", body("q", json!({"hard": {"pods": "100"}}))),
    ] {
        admin.post(&format!("/{path}"), &object).await.expect(201);
    }
    let pods = "/api/v1/namespaces/shop/pods";
    cluster.await_count(&format!("{pods}?fieldSelector=status.phase=Running"), "web-", 2).await;
    cluster.await_count(&format!("{pods}?fieldSelector=status.phase=Succeeded"), "once-", 1).await;
    cluster.await_count("/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices", "web-", 1).await;
    cluster.await_count("/api/v1/namespaces/shop/persistentvolumeclaims", "data-db-0", 1).await;
    admin.send(Method::DELETE, "/api/v1/namespaces/shop", &[], "").await.expect(200);
    cluster.await_count("/api/v1/namespaces", "shop", 0).await;
    // Who creates in a namespace that is going away is told so, and nothing else is refused.
    let metrics = admin.get("/metrics").await.expect(200).text();
    let is_meant = |line: &&str| {
        line.starts_with("apiserver_request_total{")
            && line.contains("code=\"403\"")
            && !line.contains("verb=\"POST\"")
            && !line.contains("resource=\"\"")
    };
    let refused: Vec<&str> = metrics.lines().filter(is_meant).collect();
    assert!(refused.is_empty(), "{refused:?}");
}

#[test]
fn options_that_cannot_be_met_are_refused_by_name() {
    for (options, parts) in [
        (&["--controllers=jobs"][..], &["\"jobs\" is not in the list of known controllers"][..]),
        (&["--controllers=selinux-warning-controller"], &["there is no selinux-warning-controller here", "SELinux"]),
        (&["--controllers=namespace"], &["namespace-controller", "itself"]),
        (&["--allocate-node-cidrs"], &["--cluster-cidr must say from which addresses"]),
        (&["--leader-migration-config=f"], &["--leader-migration-config", "nothing here would read it"]),
        (&["--cloud-provider=gce"], &["no cloud is built in"]),
        (&["--no-such-option"], &["--no-such-option"]),
    ] {
        fails(holdfast([&["controller-manager"], options].concat()), parts);
    }
}
