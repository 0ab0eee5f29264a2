//! Tests what a change of one object costs each controller: the number of plans that it makes and of objects that it
//! reads, in a cluster with many objects that the change does not concern.

use crate::Settings;
use holdfast_value::{Value, json};
use holdfast_world::{BackOff, Controller, Driver, ExtraKinds, Key, Resource, Stamp, TaskOutcome, Time};
use std::collections::{BTreeMap, BTreeSet};

/// How many idle objects of each kind that the tested controller reads are in the cluster.
const IDLE: usize = 240;
/// The numbers of objects of one kind in one namespace with which the test runs: a few, or all of them.
const SPREADS: [usize; 2] = [4, IDLE];
/// How many plans one change may cause: for the object, its owner and its dependents.
const PLANS_MAX: usize = 6;
/// How many objects may be read for one change.
const READS_MAX: u64 = 100;

/// Controllers that must read all objects of a kind by the nature of their work, each with the reason.
const BY_NATURE: [(&str, &str); 3] = [
    ("daemonset-controller", "a set is for every node, and a node for every set"),
    ("resourcequota-controller", "an object is counted by every quota of its namespace"),
    ("service-cidr-controller", "any range may lie in another"),
];

fn now() -> Time {
    Time::from_second(1_795_255_200)
}

/// Two resources that stand for all resources, in the worlds of controllers that read objects of all kinds.
fn some() -> [Resource; 2] {
    [
        Resource::new("", "v1", "configmaps", "ConfigMap", true),
        Resource::new("apps", "v1", "replicasets", "ReplicaSet", true),
    ]
}

fn key(resource: &Resource, number: usize, spread: usize) -> Key {
    let namespace = if resource.namespaced() { format!("space-{}", number / spread) } else { String::new() };
    Key::new(&namespace, &format!("o{number}"))
}

/// An object for which its controller has nothing to do.
fn object(resource: &Resource, key: &Key, number: usize, version: u64) -> String {
    let labels = json!({"app": key.name.to_string(), "version": version.to_string()});
    let selector = json!({"app": key.name.to_string()});
    let template = json!({"metadata": {"labels": selector}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let spec = match resource.plural() {
        "pods" => json!({"nodeName": format!("o{number}"), "containers": [{"name": "c", "image": "i"}],
            "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": key.name.to_string()}}]}),
        "services" => json!({"selector": selector, "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"],
            "ipFamilies": ["IPv4"], "ports": [{"port": 80, "protocol": "TCP"}]}),
        "replicationcontrollers" => json!({"replicas": 0, "selector": selector, "template": template}),
        "persistentvolumeclaims" => json!({"accessModes": ["ReadWriteOnce"], "storageClassName": format!("o{number}"),
            "resources": {"requests": {"storage": "1Gi"}}}),
        "persistentvolumes" => json!({"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
            "storageClassName": format!("o{number}")}),
        "horizontalpodautoscalers" => json!({"maxReplicas": 3,
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": key.name.to_string()}}),
        "resourcequotas" => json!({"hard": {"pods": "1", "count/configmaps": "10"}}),
        "cronjobs" => json!({"schedule": "0 0 1 1 *", "jobTemplate": {"spec": {"template": template}}}),
        // The DaemonSet's pods fit no node.
        "daemonsets" => {
            let mut template = template;
            template["spec"]["nodeSelector"] = json!({"on": "nowhere"});
            json!({"selector": {"matchLabels": selector}, "template": template})
        }
        _ => json!({"replicas": 0, "selector": {"matchLabels": selector}, "template": template}),
    };
    let document = json!({
        "apiVersion": resource.api_version(), "kind": resource.kind(),
        "metadata": {"name": key.name.to_string(), "namespace": key.namespace.to_string(),
            "uid": format!("{}-{number}", resource.plural()), "resourceVersion": version.to_string(),
            "generation": version, "labels": labels, "creationTimestamp": now()},
        "spec": spec, "status": {"phase": "Available"},
    });
    document.to_string()
}

/// A driver with one controller and idle objects. Each object was planned once, so that a later plan is caused by a
/// change.
fn idle(controller: Box<dyn Controller>, spread: usize) -> (Driver, BTreeSet<Resource>) {
    let mut resources: BTreeSet<Resource> = controller.resources().into_iter().collect();
    if controller.extra_kinds() == ExtraKinds::Everything {
        resources.extend(some());
    }
    let mut driver = Driver::new();
    driver.add(controller, 1, BackOff::default());
    for resource in &resources {
        let object = |number| {
            let key = key(resource, number, spread);
            let body = object(resource, &key, number, 1).into();
            (key, body, 1)
        };
        driver.replace(resource, (0..IDLE).map(object).collect(), 1, now());
    }
    driver.complete();
    rest(&mut driver);
    (driver, resources)
}

/// Makes plans until no key is left to plan now, without carrying the plans out. Returns the number of plans.
fn rest(driver: &mut Driver) -> usize {
    let mut plans = 0;
    // Keys that wait for a batch, or for a time that their plan named, are due after 1 or 60 seconds.
    for later in [0, 1, 60] {
        let time = now().plus_seconds(later);
        while let Some(task) = driver.next_task(|| Stamp { time, seed: 1 }) {
            plans += 1;
            for path in &task.plan.gets {
                let gone = holdfast_world::Refusal { reason: "NotFound".into(), ..Default::default() };
                driver.answered(task.controller_index, &task.key, path, Err(gone));
            }
            driver.finish(task.controller_index, task.key, TaskOutcome::default(), time);
        }
    }
    plans
}

fn settings() -> Settings {
    Settings {
        allocate_node_ranges: true,
        cluster_ranges: vec!["10.0.0.0/8".into()],
        device_taints: true,
        pod_certificates: true,
        ..Settings::default()
    }
}

/// Idle objects cost nothing: a change causes a few plans and reads a few objects, however many other objects exist in
/// its own namespace and in other namespaces.
#[test]
fn a_change_costs_what_it_concerns() {
    let mut dear = Vec::new();
    for spread in SPREADS {
        for controller in crate::all(&settings()) {
            let name = controller.name();
            let (mut driver, resources) = idle(controller, spread);
            for resource in resources {
                let before = driver.world().reads();
                let key = key(&resource, 7, spread);
                let body = object(&resource, &key, 7, 2).into();
                driver.apply(&resource, key, Some(body), 2, now());
                let plans = rest(&mut driver);
                let reads = driver.world().reads() - before;
                let by_nature = BY_NATURE.iter().any(|(known, _)| *known == name);
                if !by_nature && (plans > PLANS_MAX || reads > READS_MAX) {
                    let change = format!("a change of one of {resource}, {spread} to a namespace");
                    dear.push(format!("{name}, {change}: {plans} plans, {reads} objects"));
                }
            }
        }
    }
    assert!(dear.is_empty(), "{}", dear.join("\n"));
}

/// How many objects of each kind [`large`] creates.
const LARGE: usize = 10_000;

fn manifest(api_version: &str, kind: &str, name: &str, owner: Option<(&str, &str, &str)>, more: Value) -> Value {
    let owners = owner.map(|(api_version, kind, name)| {
        json!([{"apiVersion": api_version, "kind": kind, "name": name, "uid": format!("{kind}-{name}"), "controller": true}])
    });
    let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "namespace": "all",
        "uid": format!("{kind}-{name}"), "resourceVersion": "1", "generation": 1, "creationTimestamp": now(),
        "ownerReferences": owners}});
    object.as_object_mut().expect("fields").extend(more.as_object().expect("fields").clone());
    object
}

/// A namespace with [`LARGE`] finished Jobs, each with its pod, and [`LARGE`] idle ReplicaSets, ten for each
/// Deployment.
fn large() -> Vec<Value> {
    let condition = |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": now()});
    let pod = |phase: &str, conditions: Value| {
        json!({"spec": {"containers": [{"name": "c", "image": "i"}]},
            "status": {"phase": phase, "conditions": conditions}})
    };
    let mut objects = Vec::new();
    for number in 0..LARGE {
        let name = format!("j{number}");
        let labels = json!({"batch.kubernetes.io/controller-uid": format!("Job-{name}")});
        let status = json!({"succeeded": 1, "startTime": now(), "completionTime": now(),
            "conditions": [condition("SuccessCriteriaMet"), condition("Complete")]});
        let spec = json!({"parallelism": 1, "completions": 1, "selector": {"matchLabels": labels}});
        objects.push(manifest("batch/v1", "Job", &name, None, json!({"spec": spec, "status": status})));
        let mut pod =
            manifest("v1", "Pod", &format!("{name}-p"), Some(("batch/v1", "Job", &name)), pod("Succeeded", json!([])));
        pod["metadata"]["labels"] = labels;
        objects.push(pod);
    }
    for number in 0..LARGE {
        let (deployment, name) = (format!("d{}", number / 10), format!("r{number}"));
        let replicas = usize::from(number % 10 == 9);
        let labels = json!({"app": deployment, "pod-template-hash": name});
        let template = |labels: &Value| json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": name}]}});
        let spec = json!({"replicas": replicas, "selector": {"matchLabels": labels}, "template": template(&labels)});
        let status = json!({"replicas": replicas, "readyReplicas": replicas, "availableReplicas": replicas,
            "observedGeneration": 1});
        let owner = Some(("apps/v1", "Deployment", deployment.as_str()));
        objects.push(manifest("apps/v1", "ReplicaSet", &name, owner, json!({"spec": spec, "status": status})));
        if replicas == 1 {
            let labels_of_deployment = json!({"app": deployment});
            let spec = json!({"replicas": 1, "selector": {"matchLabels": labels_of_deployment},
                "template": template(&labels_of_deployment), "revisionHistoryLimit": 10});
            let status = json!({"replicas": 1, "updatedReplicas": 1, "readyReplicas": 1, "availableReplicas": 1,
                "observedGeneration": 1});
            let more = json!({"spec": spec, "status": status});
            objects.push(manifest("apps/v1", "Deployment", &deployment, None, more));
            let mut pod = manifest(
                "v1",
                "Pod",
                &format!("{name}-p"),
                Some(("apps/v1", "ReplicaSet", &name)),
                pod("Running", json!([condition("Ready")])),
            );
            pod["metadata"]["labels"] = labels;
            objects.push(pod);
        }
    }
    objects
}

/// Applies a new version of one object. Returns how many plans the change causes, and how many objects are read.
fn cost(driver: &mut Driver, object: &mut Value, version: u64) -> (usize, u64) {
    object["metadata"]["resourceVersion"] = version.to_string().into();
    let (resource, key) = place(driver, object);
    let before = driver.world().reads();
    driver.apply(&resource, key, Some(object.to_string().into()), version, now());
    let plans = rest(driver);
    (plans, driver.world().reads() - before)
}

fn place(driver: &Driver, object: &Value) -> (Resource, Key) {
    let part = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (group, version) = part("/apiVersion").split_once('/').unwrap_or(("", part("/apiVersion")));
    let resource = driver.world().find_kind(group, version, part("/kind")).expect("somebody looks at it").clone();
    (resource, Key::new(part("/metadata/namespace"), part("/metadata/name")))
}

/// All controllers together, in a cluster where most objects are finished: an idle object is planned once and never
/// again without a change, and a change among ten thousand objects reads no more objects than a change among ten.
#[test]
fn ten_thousand_that_are_at_rest_cost_nothing() {
    let mut driver = Driver::new();
    for controller in crate::all(&settings()) {
        driver.add(controller, 1, BackOff::default());
    }
    let mut objects = large();
    let mut lists: BTreeMap<Resource, Vec<_>> = BTreeMap::new();
    for object in &objects {
        let (resource, key) = place(&driver, object);
        lists.entry(resource).or_default().push((key, object.to_string().into(), 1));
    }
    for (resource, list) in lists {
        driver.replace(&resource, list, 1, now());
    }
    driver.complete();
    let plans = rest(&mut driver);
    assert!(plans <= 3 * objects.len(), "{plans} plans for {} objects", objects.len());

    // A day passes in which no object changes.
    let reads = driver.world().reads();
    let mut plans = 0;
    let end = now().plus_seconds(24 * 3600);
    while let Some(time) = driver.next_time().filter(|time| *time <= end) {
        while let Some(task) = driver.next_task(|| Stamp { time, seed: 1 }) {
            plans += 1;
            driver.finish(
                task.controller_index,
                task.key,
                TaskOutcome { requeue_at: task.plan.requeue_at, ..TaskOutcome::default() },
                time,
            );
        }
    }
    let reads = driver.world().reads() - reads;
    assert!(plans <= 10 && reads <= 10, "{plans} plans and {reads} objects looked at in a day");

    let mut dear = Vec::new();
    for (kind, name, field) in [
        ("ReplicaSet", "r77", "/metadata/generation"),
        ("ReplicaSet", "r79", "/status/readyReplicas"),
        ("Deployment", "d7", "/metadata/generation"),
        ("Job", "j77", "/metadata/generation"),
        ("Pod", "j77-p", "/metadata/generation"),
        ("Pod", "r79-p", "/status/conditions/0/status"),
    ] {
        let found = objects.iter_mut().find(|object| object["kind"] == kind && object["metadata"]["name"] == name);
        let object = found.expect("it is there");
        *object.pointer_mut(field).expect("a field") =
            if field.ends_with("status") { "False".into() } else { 2.into() };
        dear.push((format!("{field} of {kind} {name}"), cost(&mut driver, object, 2)));
    }
    let pod = json!({"spec": {"containers": [{"name": "c", "image": "i"}]}, "status": {"phase": "Pending"}});
    let mut bare = manifest("v1", "Pod", "bare", None, pod);
    bare["metadata"]["labels"] = json!({"app": "d7", "more": "x"});
    dear.push(("a pod of nobody's".to_owned(), cost(&mut driver, &mut bare, 3)));
    dear.retain(|(_, (plans, reads))| *plans > 2 * PLANS_MAX || *reads > READS_MAX);
    assert!(dear.is_empty(), "{dear:#?}");
}
