//! Measures how long the controllers take to read a cluster for the first time: 100 Deployments with 1,000 pods each,
//! from the first lists to the last plan made for them.
//!
//! Run it with `cargo bench --package holdfast-controllers --bench first_list`. A number as an argument sets how many
//! pods each Deployment has.

use holdfast_controllers::Settings;
use holdfast_core::object::Body;
use holdfast_value::{Value, json};
use holdfast_world::views::{Deployment, Node, Pod, ReplicaSet};
use holdfast_world::{BackOff, Driver, Key, Stamp, TaskOutcome, Time, View};

const DEPLOYMENTS: usize = 100;
const NODES: usize = 5000;

fn main() {
    let replicas = std::env::args().skip(1).find_map(|argument| argument.parse().ok()).unwrap_or(1000);
    let now = Time::from_second(1_795_255_200);
    let mut driver = Driver::new();
    for controller in holdfast_controllers::all(&Settings::default()) {
        driver.add(controller, 64, BackOff::default());
    }
    let owners = (0..DEPLOYMENTS).map(|number| [deployment(number, replicas), replica_set(number, replicas)]);
    let (deployments, sets): (Vec<_>, Vec<_>) =
        owners.map(|[deployment, set]| (listed(&deployment), listed(&set))).unzip();
    let pods: Vec<_> = (0..DEPLOYMENTS * replicas).map(|number| listed(&pod(number, replicas))).collect();
    let count = pods.len();
    let nodes = (0..NODES).map(|number| listed(&node(number))).collect();

    let began = processor_micros();
    driver.replace(Deployment::resource(), deployments, 1, now);
    driver.replace(ReplicaSet::resource(), sets, 1, now);
    driver.replace(Node::resource(), nodes, 1, now);
    driver.replace(Pod::resource(), pods, 1, now);
    tell("taken in", began, count);
    let began = processor_micros();
    driver.complete();
    tell("told to all", began, count);
    let (began, mut plans) = (processor_micros(), 0);
    while let Some(task) = driver.next_task(|| Stamp { time: now, seed: 1 }) {
        plans += 1;
        driver.finish(task.controller_index, task.key, TaskOutcome::default(), now);
    }
    tell(&format!("planned {plans} times"), began, count);
}

fn tell(what: &str, began: f64, count: usize) {
    println!("{what}: {:.2} µs a pod", (processor_micros() - began) / count as f64);
}

/// The processor time that this thread has used so far, in microseconds. Other work on the machine does not affect this
/// time.
fn processor_micros() -> f64 {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux tells");
    told.split(' ').next().and_then(|nanos| nanos.parse::<f64>().ok()).expect("a number") / 1000.0
}

fn listed(object: &Value) -> (Key, Body, u64) {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
    (Key::new(namespace, name), format!("{object}\n").into(), 1)
}

const MOMENT: &str = "2026-11-24T03:34:29Z";

fn manifest(
    api_version: &str,
    kind: &str,
    name: &str,
    labels: &Value,
    owner: Value,
    spec: Value,
    status: Value,
) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "metadata": {"creationTimestamp": MOMENT, "generation": 1,
        "labels": labels, "managedFields": managed(), "name": name, "namespace": "default", "ownerReferences": owner,
        "resourceVersion": "1", "uid": uid(kind, name)}, "spec": spec, "status": status})
}

/// The managed fields of an object, as many as a pod usually has.
fn managed() -> Value {
    let fields: holdfast_value::Map = (0..90).map(|number| (format!("f:field{number:02}"), json!({}))).collect();
    json!([{"apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": fields, "manager": "kubelet", "time": MOMENT}])
}

fn uid(kind: &str, name: &str) -> String {
    format!("{:-<36}", format!("{kind}-{name}"))
}

fn owner(kind: &str, name: &str) -> Value {
    json!([{"apiVersion": "apps/v1", "blockOwnerDeletion": true, "controller": true, "kind": kind, "name": name,
        "uid": uid(kind, name)}])
}

fn template(labels: &Value, volume: &str) -> Value {
    let tolerated =
        |key: &str| json!({"effect": "NoExecute", "key": key, "operator": "Exists", "tolerationSeconds": 300});
    let sources = json!([{"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        {"configMap": {"items": [{"key": "ca.crt", "path": "ca.crt"}], "name": "kube-root-ca.crt"}}]);
    json!({"metadata": {"labels": labels}, "spec": {
        "containers": [{"image": "registry.example/app:1", "imagePullPolicy": "IfNotPresent", "name": "c",
            "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
            "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
            "volumeMounts": [{"mountPath": "/var/run/secrets", "name": volume, "readOnly": true}]}],
        "dnsPolicy": "ClusterFirst", "restartPolicy": "Always", "schedulerName": "default-scheduler",
        "serviceAccountName": "default", "terminationGracePeriodSeconds": 30,
        "tolerations": [tolerated("node.kubernetes.io/not-ready"), tolerated("node.kubernetes.io/unreachable")],
        "volumes": [{"name": volume, "projected": {"defaultMode": 420, "sources": sources}}]}})
}

fn deployment(number: usize, replicas: usize) -> Value {
    let labels = json!({"app": format!("web-{number}")});
    let spec = json!({"replicas": replicas, "selector": {"matchLabels": labels}, "template": template(&labels, "v")});
    let status = json!({"replicas": replicas, "updatedReplicas": replicas, "readyReplicas": replicas,
        "availableReplicas": replicas, "observedGeneration": 1});
    manifest("apps/v1", "Deployment", &format!("web-{number}"), &labels, json!([]), spec, status)
}

fn of_set(number: usize) -> (String, Value) {
    let name = format!("web-{number}-5bbc7b7d9b");
    (name, json!({"app": format!("web-{number}"), "pod-template-hash": "5bbc7b7d9b"}))
}

fn replica_set(number: usize, replicas: usize) -> Value {
    let (name, labels) = of_set(number);
    let spec = json!({"replicas": replicas, "selector": {"matchLabels": labels}, "template": template(&labels, "v")});
    let status = json!({"replicas": replicas, "fullyLabeledReplicas": replicas, "readyReplicas": replicas,
        "availableReplicas": replicas, "terminatingReplicas": 0, "observedGeneration": 1});
    manifest("apps/v1", "ReplicaSet", &name, &labels, owner("Deployment", &format!("web-{number}")), spec, status)
}

fn pod(number: usize, replicas: usize) -> Value {
    let (set, labels) = of_set(number / replicas.max(1));
    let mut spec = template(&labels, &format!("kube-api-access-{number}"))["spec"].take();
    spec["nodeName"] = format!("node-{}", number % NODES).into();
    let moment = format!("2026-11-24T03:34:{:02}Z", number % 60);
    let condition = |kind: &str| json!({"lastProbeTime": null, "lastTransitionTime": moment, "observedGeneration": 1, "status": "True", "type": kind});
    let kinds = ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"];
    let container = json!({"containerID": format!("simulated://{number:064x}"), "image": "registry.example/app:1",
        "imageID": "registry.example/app@sha256:44026dc25579621c90d4ca974081985b6ef1ff7a58eb059c31ccd8368c6f55f3",
        "lastState": {}, "name": "c", "ready": true, "restartCount": 0, "started": true,
        "state": {"running": {"startedAt": moment}}});
    let ip = format!("10.{}.{}.{}", 128 + number / 65_536, number / 256 % 256, number % 256);
    let status = json!({"conditions": kinds.map(condition), "containerStatuses": [container], "hostIP": "172.16.0.2",
        "hostIPs": [{"ip": "172.16.0.2"}], "observedGeneration": 1, "phase": "Running", "podIP": ip,
        "podIPs": [{"ip": ip}], "qosClass": "Burstable", "startTime": moment});
    manifest("v1", "Pod", &format!("{set}-{number:05}"), &labels, owner("ReplicaSet", &set), spec, status)
}

fn node(number: usize) -> Value {
    let ready = json!({"type": "Ready", "status": "True", "lastHeartbeatTime": MOMENT, "lastTransitionTime": MOMENT});
    let status = json!({"conditions": [ready], "capacity": {"cpu": "32", "memory": "64Gi", "pods": "110"}});
    let mut node = manifest("v1", "Node", &format!("node-{number}"), &json!({}), json!([]), json!({}), status);
    node["metadata"]["namespace"].take();
    node
}
