//! Controllers with the real binary: in the server's process, in forks of the server, and as a process of their own.

use holdfast_tests::server::{binary, fails, holdfast};
use holdfast_tests::wire::HttpClient;
use holdfast_tests::{Folder, Server, eventually};
use http::Method;
use serde_json::{Value, json};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PODS: &str = "/api/v1/namespaces/default/pods";
const SETS: &str = "/apis/apps/v1/namespaces/default/replicasets";
/// The controllers under test.
const SOME: &str = "--controllers=replicaset,garbagecollector";

struct Cluster {
    _folder: Folder,
    server: Server,
    admin: HttpClient,
}

impl Cluster {
    fn start(controllers: &str) -> Cluster {
        let folder = Folder::new();
        let server = Server::start(&folder.join("data"), &[controllers]);
        let admin = HttpClient::admin(&server);
        Cluster { _folder: folder, server, admin }
    }

    /// Waits until the list has `count` objects whose names begin with `begin`.
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
async fn a_new_cluster_complains_of_nothing() {
    let folder = Folder::new();
    let server = Server::start(&folder.join("data"), &["--controllers=*", "--nodes=3"]);
    let cluster = Cluster { _folder: folder, admin: HttpClient::admin(&server), server };
    cluster.admin.post(SETS, &replica_set("web", 3)).await.expect(201);
    cluster.await_count(&format!("{PODS}?fieldSelector=status.phase=Running"), "web-", 3).await;
    let complaints: Vec<String> = cluster.server.stderr().lines().map(str::to_owned).collect();
    assert!(complaints.iter().all(|line| !line.starts_with(['W', 'E'])), "{complaints:#?}");
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
    // The server empties namespaces itself, which takes longer than a controller would.
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

/// Objects that no controller can handle, each with the reason of the Event about the object, if a controller writes an
/// Event.
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
    // Wait for the definition of Stages and for the namespace's default service account, because the objects below need
    // both.
    cluster.await_count("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "stages.", 1).await;
    cluster.await_count("/api/v1/namespaces/default/serviceaccounts", "default", 1).await;
    for (path, object, _) in nonsense() {
        eventually(PATIENCE, || async {
            let answer = admin.post(path, &object).await;
            if answer.code == 201 { Ok(()) } else { Err(answer.json()) }
        })
        .await;
    }
    // A CronJob that has missed every minute since the year 1, and two objects that own each other.
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
    // Objects in another namespace are handled as usual, although the controllers cannot handle the objects above.
    admin.post("/api/v1/namespaces", &json!({"metadata": {"name": "quiet"}})).await.expect(201);
    cluster.await_count("/api/v1/namespaces/quiet/serviceaccounts", "default", 1).await;
    let sets = "/apis/apps/v1/namespaces/quiet/replicasets";
    admin.post(sets, &replica_set("web", 3)).await.expect(201);
    cluster.await_count("/api/v1/namespaces/quiet/pods?fieldSelector=status.phase=Running", "web-", 3).await;
    assert_eq!(cluster.server.stderr().matches("panic").count(), 0, "{}", cluster.server.stderr());
}

/// A controller manager, killed with the test.
struct Manager(Child);

impl Drop for Manager {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Stages can change ConfigMaps from the start, and custom kinds once a role for nodes allows it.
#[tokio::test]
async fn stages_act_within_the_roles_of_nodes() {
    let cluster = Cluster::start("--controllers=*");
    let definition = json!({"metadata": {"name": "widgets.example.com"}, "spec": {
        "group": "example.com", "scope": "Namespaced", "names": {"kind": "Widget", "plural": "widgets"},
        "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}});
    cluster.admin.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition).await.expect(201);
    const STAGES: &str = "/apis/kwok.x-k8s.io/v1alpha1/stages";
    eventually(PATIENCE, || async {
        match cluster.admin.get(STAGES).await.code {
            200 => Ok(()),
            code => Err(code),
        }
    })
    .await;
    for (name, api, kind) in [("w", "example.com/v1", "Widget"), ("m", "v1", "ConfigMap"), ("s", "v1", "Secret")] {
        let stage = json!({"apiVersion": "kwok.x-k8s.io/v1alpha1", "kind": "Stage", "metadata": {"name": name}, "spec": {
            "resourceRef": {"apiGroup": api, "kind": kind},
            "selector": {"matchLabels": {"staged": "yes"},
                "matchExpressions": [{"key": ".metadata.annotations.done", "operator": "DoesNotExist"}]},
            "next": {"patches": [{"root": "metadata", "type": "merge", "template": "annotations: {done: 'yes'}"}]}}});
        cluster.admin.post(STAGES, &stage).await.expect(201);
    }
    let object = json!({"metadata": {"name": "o", "labels": {"staged": "yes"}}});
    let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": object["metadata"]});
    const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";
    const SECRETS: &str = "/api/v1/namespaces/default/secrets";
    cluster.admin.post(MAPS, &object).await.expect(201);
    cluster.admin.post(SECRETS, &object).await.expect(201);
    cluster.admin.post(WIDGETS, &widget).await.expect(201);
    let done = async |path: String| {
        let object = cluster.admin.get(&path).await.expect(200).json();
        object["metadata"]["annotations"]["done"] == "yes"
    };
    let awaited = async |path: String| {
        eventually(PATIENCE, || async { if done(path.clone()).await { Ok(()) } else { Err("is not done") } }).await;
    };
    awaited(format!("{MAPS}/o")).await;
    cluster.await_count("/api/v1/namespaces/default/events?fieldSelector=reason=StageFailed", "o.", 2).await;
    assert!(!done(format!("{WIDGETS}/o")).await && !done(format!("{SECRETS}/o")).await);
    let role = json!({"metadata": {"name": "stages-of-widgets",
            "labels": {"simulate.holdfast.dev/aggregate-to-nodes": "true"}},
        "rules": [{"apiGroups": ["example.com"], "resources": ["widgets"], "verbs": ["get", "patch"]}]});
    cluster.admin.post("/apis/rbac.authorization.k8s.io/v1/clusterroles", &role).await.expect(201);
    awaited(format!("{WIDGETS}/o")).await;
    assert!(!done(format!("{SECRETS}/o")).await, "nobody has allowed that");
}

/// Controllers that are off by default have the rights that they need.
#[tokio::test]
async fn what_is_gone_is_forgotten_and_labels_that_clash_are_told() {
    let cluster = Cluster::start("--controllers=*,storage-version-gc,selinux-warning-controller");
    const VERSIONS: &str = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions";
    cluster.admin.post(VERSIONS, &json!({"metadata": {"name": "apps.deployments"}, "spec": {}})).await.expect(201);
    let status = json!({"status": {"commonEncodingVersion": "v1", "storageVersions": [{"apiServerID": "gone",
        "encodingVersion": "v1", "decodableVersions": ["v1"], "servedVersions": ["v1"]}]}});
    let path = format!("{VERSIONS}/apps.deployments");
    let kind = [("content-type", "application/merge-patch+json")];
    cluster.admin.send(Method::PATCH, &format!("{path}/status"), &kind, status.to_string()).await.expect(200);
    cluster.await_count(VERSIONS, "apps.", 0).await;
    let volume =
        json!({"name": "v", "iscsi": {"targetPortal": "10.0.0.9", "iqn": "iqn.2001-04.com.example:d", "lun": 0}});
    for (name, level) in [("one", "s0:c1"), ("other", "s0:c2")] {
        let pod = json!({"metadata": {"name": name}, "spec": {"securityContext": {"seLinuxOptions": {"level": level}},
            "volumes": [volume],
            "containers": [{"name": "c", "image": "i", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}]}});
        cluster.admin.post(PODS, &pod).await.expect(201);
    }
    let told = "/api/v1/namespaces/default/events?fieldSelector=reason=SELinuxLabelConflict";
    cluster.await_count(told, "o", 2).await;
}

/// A claim without a class gets a volume, a StatefulSet with claims becomes ready, and volumes are deleted with their
/// claims.
#[tokio::test]
async fn claims_are_bound_by_the_default_class() {
    let cluster = Cluster::start("--controllers=*");
    const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
    const VOLUMES: &str = "/api/v1/persistentvolumes";
    cluster.await_count("/apis/storage.k8s.io/v1/storageclasses", "standard", 1).await;
    let spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    cluster.admin.post(CLAIMS, &json!({"metadata": {"name": "alone"}, "spec": spec})).await.expect(201);
    let labels = json!({"app": "db"});
    let set = json!({"metadata": {"name": "db"}, "spec": {"replicas": 2, "serviceName": "db",
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete", "whenScaled": "Retain"},
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
        "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": spec}]}});
    const STATEFUL: &str = "/apis/apps/v1/namespaces/default/statefulsets";
    cluster.admin.post(STATEFUL, &set).await.expect(201);
    eventually(PATIENCE, || async {
        let set = cluster.admin.get(&format!("{STATEFUL}/db")).await.expect(200).json();
        if set["status"]["readyReplicas"] == 2 { Ok(()) } else { Err(set["status"].clone()) }
    })
    .await;
    let volumes = cluster.await_count(VOLUMES, "pvc-", 3).await;
    for volume in &volumes {
        let path = volume["spec"]["hostPath"]["path"].as_str().expect("a folder");
        assert!(!std::path::Path::new(path).exists(), "nothing is written on this machine: {path}");
    }
    let delete = async |path: String| cluster.admin.send(Method::DELETE, &path, &[], "").await.expect(200);
    delete(format!("{STATEFUL}/db")).await;
    delete(format!("{CLAIMS}/alone")).await;
    cluster.await_count(VOLUMES, "pvc-", 0).await;
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

    // The garbage collector learns of a kind that is defined while it runs: it deletes the dependents of the kind's
    // objects together with the objects.
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
        (&["--allocate-node-cidrs"], &["--allocate-node-cidrs needs --cluster-cidr"]),
        (&["--leader-migration-config=f"], &["--leader-migration-config", "this server does not read it"]),
        (&["--cloud-provider=gce"], &["\"gce\" is not built in"]),
        (&["--no-such-option"], &["--no-such-option"]),
    ] {
        fails(holdfast([&["controller-manager"], options].concat()), parts);
    }
}
