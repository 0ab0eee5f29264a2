//! What a change costs each controller: plans, and objects that it looks at, among many that the change does not concern.

use crate::Settings;
use holdfast_world::{BackOff, Controller, Driver, Key, Outcome, Resource, Sight, Stamp, Time};
use serde_json::json;
use std::collections::BTreeSet;

/// How many objects of each kind that it looks at stand idle, a namespace for every four of them.
const IDLE: usize = 240;
/// How many plans one change may take: of the object, its owner and what it leads to.
const PLANS_MAX: usize = 6;
/// How many objects may be looked at for it.
const READS_MAX: u64 = 100;

/// Who has to look at as many objects as there are, and why; even so it plans for few.
const BY_NATURE: [(&str, &str); 2] = [
    ("daemonset-controller", "a set is for every node, and a node for every set"),
    ("service-cidr-controller", "any range may lie in another"),
];

fn now() -> Time {
    Time::from_second(1_795_255_200)
}

/// Resources that stand for all others where a controller looks at everything.
fn some() -> [Resource; 2] {
    [
        Resource::new("", "v1", "configmaps", "ConfigMap", true),
        Resource::new("apps", "v1", "replicasets", "ReplicaSet", true),
    ]
}

fn key(resource: &Resource, number: usize) -> Key {
    let namespace = if resource.namespaced() { format!("space-{}", number / 4) } else { String::new() };
    Key::new(&namespace, &format!("o{number}"))
}

/// An object that needs nothing, as far as its controller can tell from it alone.
fn object(resource: &Resource, number: usize, version: u64) -> String {
    let key = key(resource, number);
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
        // Its pods are for no node.
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

/// A driver of one controller over idle objects, with all of them planned once.
fn idle(controller: Box<dyn Controller>) -> (Driver, BTreeSet<Resource>) {
    let mut resources: BTreeSet<Resource> = controller.resources().into_iter().collect();
    if controller.sight() == Sight::Everything {
        resources.extend(some());
    }
    let mut driver = Driver::new();
    driver.add(controller, 1, BackOff::default());
    for resource in &resources {
        let objects = (0..IDLE).map(|number| (key(resource, number), object(resource, number, 1).into(), 1)).collect();
        driver.replace(resource, objects, 1, now());
    }
    driver.complete();
    rest(&mut driver);
    (driver, resources)
}

/// Plans until nothing is to be planned now, and carries nothing out. Answers how many plans that took.
fn rest(driver: &mut Driver) -> usize {
    let mut plans = 0;
    // What waits for a batch, or is to be looked at at a time, is due by then.
    for later in [0, 1, 60] {
        let time = now().plus_seconds(later);
        while let Some(task) = driver.take(|| Stamp { time, seed: 1 }) {
            plans += 1;
            for path in &task.plan.asks {
                let gone = holdfast_world::Refusal { code: 404, reason: "NotFound".into(), ..Default::default() };
                driver.answered(task.member, &task.key, path, Err(gone));
            }
            driver.done(task.member, task.key, Outcome::default(), time);
        }
    }
    plans
}

/// Idle objects cost nothing: a change takes a few plans, and looks at a few objects, however many there are.
#[test]
fn a_change_costs_what_it_concerns() {
    let settings = Settings {
        allocate_node_ranges: true,
        cluster_ranges: vec!["10.0.0.0/8".into()],
        device_taints: true,
        ..Settings::default()
    };
    let mut dear = Vec::new();
    for controller in crate::all(&settings) {
        let name = controller.name();
        let (mut driver, resources) = idle(controller);
        for resource in resources {
            let before = driver.world().reads();
            driver.change(&resource, key(&resource, 7), Some(object(&resource, 7, 2).into()), 2, now());
            let plans = rest(&mut driver);
            let reads = driver.world().reads() - before;
            let by_nature = BY_NATURE.iter().any(|(known, _)| *known == name);
            if plans > PLANS_MAX || reads > READS_MAX && !by_nature {
                dear.push(format!("{name}, a change of one of {resource}: {plans} plans, {reads} objects"));
            }
        }
    }
    assert!(dear.is_empty(), "{}", dear.join("\n"));
}
