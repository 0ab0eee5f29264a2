//! Tests how much work a change causes the planner. The work is counted in calls, so the results do not depend on the
//! machine.

use holdfast_scheduler::plugin::ExtensionPoint;
use holdfast_scheduler::scheduler::MetricSample;
use holdfast_scheduler::{Clock, Configuration, Key, Kind, PlanOutcome, Planner, Scheduler, Snapshot};
use holdfast_value::{Value, json};
use std::time::Duration;

const NODES: usize = 300;

struct Cluster {
    snapshot: Snapshot,
    planner: Planner,
    configuration: Configuration,
    pods: usize,
    /// Fields that are added to the specs of all pods.
    more: Value,
}

impl Cluster {
    fn new() -> Cluster {
        let mut snapshot = Snapshot::new();
        for at in 0..NODES {
            let name = format!("node-{at}");
            let node = json!({"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "zone": format!("z{}", at % 3)}},
                "status": {"allocatable": {"cpu": "64", "memory": "64Gi", "pods": "110"}}});
            snapshot.apply(Kind::Node, &Key::cluster(&name), Some(&node));
        }
        Cluster { snapshot, planner: Planner::new(), configuration: Configuration::default(), pods: 0, more: json!({}) }
    }

    fn set(&mut self, name: &str, replicas: u32, ready: u32, app: &str) {
        let set = json!({"metadata": {"name": name, "namespace": "default", "resourceVersion": ready.to_string()},
            "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": app}}}, "status": {"readyReplicas": ready}});
        self.snapshot.apply(Kind::ReplicaSet, &Key::new("default", name), Some(&set));
    }

    /// Plans one more pod of a ReplicaSet, and binds it to the chosen node.
    fn place(&mut self, set: &str) {
        self.pods += 1;
        let name = format!("{set}-{}", self.pods);
        let key = Key::new("default", &name);
        let owner = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": set, "uid": set, "controller": true});
        let mut pod: Value = json!({"metadata": {"name": name, "namespace": "default", "uid": name, "labels": {"app": set},
            "ownerReferences": [owner]}, "spec": {"containers": [{"name": "c", "image": "pause"}]}});
        pod["spec"].as_object_mut().expect("a spec").extend(self.more.as_object().cloned().unwrap_or_default());
        self.snapshot.apply(Kind::Pod, &key, Some(&pod));
        let waiting = self.snapshot.pod(&key).expect("the pod").clone();
        let plan = self.planner.plan(&self.snapshot, (0, &self.configuration.profiles[0]), &waiting);
        let PlanOutcome::Bind { node, reservation } = plan.outcome else { panic!("{name} has no place") };
        self.snapshot.assume(&key, &node, &reservation);
    }

    fn service(&mut self, namespace: &str) {
        let service = json!({"metadata": {"name": "s", "namespace": namespace}, "spec": {"selector": {"app": "a"}}});
        self.snapshot.apply(Kind::Service, &Key::new(namespace, "s"), Some(&service));
    }
}

#[test]
fn caches_are_rebuilt_only_for_objects_that_the_pods_depend_on() {
    let mut cluster = Cluster::new();
    cluster.set("a", 50, 0, "a");
    cluster.set("b", 50, 0, "b");
    for ready in 1..20 {
        cluster.place("a");
        cluster.place("b");
        cluster.set("a", 50, ready, "a");
        cluster.set("b", 50, ready, "b");
    }
    assert_eq!(cluster.planner.full_evaluations(), 2, "statuses are nothing to go by");
    cluster.set("c", 1, 0, "c");
    cluster.service("elsewhere");
    cluster.place("a");
    cluster.place("b");
    assert_eq!(cluster.planner.full_evaluations(), 2, "nor are others' owners");
    cluster.set("a", 50, 20, "other");
    cluster.place("a");
    cluster.place("b");
    assert_eq!(cluster.planner.full_evaluations(), 3, "another selector is for its own pods");
    cluster.service("default");
    cluster.place("a");
    cluster.place("b");
    assert_eq!(cluster.planner.full_evaluations(), 5, "a Service is for whoever it may select");
}

#[test]
fn nodes_are_compared_by_group() {
    let selector = json!({"matchLabels": {"app": "a"}});
    let spread = |key: &str, action: &str| json!({"topologySpreadConstraints": [{"topologyKey": key, "maxSkew": 1, "whenUnsatisfiable": action, "labelSelector": selector}]});
    let term = |key: &str| json!({"topologyKey": key, "labelSelector": selector});
    let (must, may) =
        ("requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution");
    let host = "kubernetes.io/hostname";
    let cases = [
        ("by allocation alone", json!({}), 1),
        ("hard spread over zones", spread("zone", "DoNotSchedule"), 3),
        ("soft spread over zones", spread("zone", "ScheduleAnyway"), 3),
        ("hard spread over hosts", spread(host, "DoNotSchedule"), 2),
        ("soft spread over hosts", spread(host, "ScheduleAnyway"), 2),
        ("near others by zone", json!({"affinity": {"podAffinity": {must: [term("zone")]}}}), 3),
        ("far from others by host", json!({"affinity": {"podAntiAffinity": {must: [term(host)]}}}), 4),
        (
            "rather near others by host",
            json!({"affinity": {"podAffinity": {may: [{"weight": 1, "podAffinityTerm": term(host)}]}}}),
            3,
        ),
    ];
    for (name, more, groups) in cases {
        let mut cluster = Cluster::new();
        cluster.more = more;
        for _ in 0..100 {
            cluster.place("a");
        }
        let groups_compared = cluster.planner.groups_compared();
        assert!(groups_compared <= 100 * groups, "{name}: {groups_compared} groups of {NODES} nodes for 100 pods");
    }
}

#[test]
fn plug_ins_are_called_for_changed_nodes_only() {
    let mut cluster = Cluster::new();
    for _ in 0..10 {
        cluster.place("a");
    }
    let asked = |planner: &mut Planner, point: ExtensionPoint, plugin: &'static str| {
        planner.evaluations().get(&(0, point, plugin)).copied().unwrap_or(0)
    };
    let planner = &mut cluster.planner;
    // The filter checks all nodes for the first pod. For each further pod it checks only the node on which the previous
    // pod was placed.
    assert_eq!(asked(planner, ExtensionPoint::Filter, "NodeResourcesFit"), NODES as u64 + 9);
    for (point, plugin) in [
        (ExtensionPoint::PreFilter, "NodeResourcesFit"),
        (ExtensionPoint::PreScore, "NodeAffinity"),
        (ExtensionPoint::Score, "ImageLocality"),
    ] {
        let wanted = if plugin == "NodeAffinity" { 0 } else { 10 };
        assert_eq!(asked(planner, point, plugin), wanted, "{plugin}");
    }
    assert_eq!(asked(planner, ExtensionPoint::Filter, "NodePorts"), 0, "it has nothing to say");
}

#[test]
fn topology_keys_that_no_node_has_cost_nothing_per_node() {
    let mut cluster = Cluster::new();
    let selector = json!({"matchLabels": {"app": "a"}});
    let terms: Vec<Value> = (0..300)
        .map(|at| json!({"weight": 1, "podAffinityTerm": {"topologyKey": format!("k{at}"), "labelSelector": selector}}))
        .collect();
    let far: Vec<Value> =
        (0..300).map(|at| json!({"topologyKey": format!("f{at}"), "labelSelector": selector})).collect();
    cluster.more = json!({"affinity": {
        "podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms},
        "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": far},
    }});
    for _ in 0..10 {
        cluster.place("a");
    }
    assert_eq!(cluster.planner.groups_compared(), 10, "they tell no node from another");
}

#[test]
fn affinity_within_a_namespace_costs_other_namespaces_nothing() {
    let mut cluster = Cluster::new();
    let labels = json!({"matchLabels": {"app": "a"}});
    let term = |at: usize, more: &Value| {
        let mut term = json!({"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": format!("x{at}")}}});
        term.as_object_mut().expect("a term").extend(more.as_object().cloned().expect("fields"));
        term
    };
    // Several pods of the namespace `tenant` have thousands of affinity terms each, and one pod has a term that selects
    // pods of all namespaces.
    for (name, terms, more) in
        [("p", 2000, json!({})), ("q", 2000, json!({})), ("r", 3, json!({"namespaceSelector": {}}))]
    {
        let terms: Vec<Value> = (0..terms).map(|at| term(at, &more)).collect();
        let pod = json!({"metadata": {"name": name, "namespace": "tenant", "uid": name}, "spec": {"nodeName": "node-0",
            "containers": [{"name": "c"}],
            "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}});
        cluster.snapshot.apply(Kind::Pod, &Key::new("tenant", name), Some(&pod));
    }
    let about = |snapshot: &Snapshot, namespace: &str| {
        let namespace = namespace.into();
        let pods = snapshot.pods_with_affinity(&namespace);
        pods.map(|(_, pod)| pod.key.name.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(about(&cluster.snapshot, "default"), ["r"]);
    assert_eq!(about(&cluster.snapshot, "tenant"), ["r", "p", "q"]);
    // If a pod is deleted or its node is removed, its terms no longer count; if the node is added again, they count
    // again.
    cluster.snapshot.apply(Kind::Pod, &Key::new("tenant", "q"), None);
    cluster.snapshot.apply(Kind::Node, &Key::cluster("node-0"), None);
    assert!(about(&cluster.snapshot, "tenant").is_empty());
    let node = json!({"metadata": {"name": "node-0"}, "status": {"allocatable": {"cpu": "1", "pods": "9"}}});
    cluster.snapshot.apply(Kind::Node, &Key::cluster("node-0"), Some(&node));
    assert_eq!(about(&cluster.snapshot, "tenant"), ["r", "p"]);
    cluster.more = json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
        [{"topologyKey": "kubernetes.io/hostname", "labelSelector": labels}]}}});
    cluster.place("a");
}

/// A snapshot of nodes that have devices of one DeviceClass each.
fn with_devices(nodes: usize, devices: usize) -> Snapshot {
    let mut snapshot = Snapshot::new();
    snapshot.apply(Kind::DeviceClass, &Key::cluster("gpu"), Some(&json!({"spec": {}})));
    for at in 0..nodes {
        let name = format!("node-{at}");
        let node = json!({"metadata": {"name": name}, "status": {"allocatable": {"cpu": "64", "pods": "110"}}});
        snapshot.apply(Kind::Node, &Key::cluster(&name), Some(&node));
        slice(&mut snapshot, at, devices);
    }
    snapshot
}

fn slice(snapshot: &mut Snapshot, node: usize, devices: usize) {
    let devices: Vec<Value> = (0..devices).map(|at| json!({"name": format!("d{at}")})).collect();
    let name = format!("node-{node}");
    let pool = json!({"name": name, "generation": 1, "resourceSliceCount": 1});
    let slice = json!({"spec": {"driver": "d.example", "nodeName": name, "pool": pool, "devices": devices}});
    snapshot.apply(Kind::ResourceSlice, &Key::cluster(&name), Some(&slice));
}

/// Adds a pod with a claim for one device that satisfies a CEL expression; returns the pod's key.
fn claims_a_device(snapshot: &mut Snapshot, namespace: &str, name: &str, expression: &str) -> Key {
    let exactly = json!({"deviceClassName": "gpu", "selectors": [{"cel": {"expression": expression}}]});
    let claim = json!({"metadata": {"name": name, "namespace": namespace, "uid": name},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}});
    snapshot.apply(Kind::ResourceClaim, &Key::new(namespace, name), Some(&claim));
    let pod = json!({"metadata": {"name": name, "namespace": namespace, "uid": name}, "spec": {"containers": [{"name": "c"}],
        "resourceClaims": [{"name": "x", "resourceClaimName": name}]}});
    snapshot.apply(Kind::Pod, &Key::new(namespace, name), Some(&pod));
    Key::new(namespace, name)
}

fn try_to_place(snapshot: &Snapshot, planner: &mut Planner, pod: &Key) -> PlanOutcome {
    let configuration = Configuration::default();
    let pod = snapshot.pod(pod).expect("the pod").clone();
    planner.plan(snapshot, (0, &configuration.profiles[0]), &pod).outcome
}

#[test]
fn an_expression_is_evaluated_once_for_each_version_of_a_device() {
    let (mut snapshot, mut planner) = (with_devices(20, 4), Planner::new());
    let absent = "'model' in device.attributes['d.example']";
    for attempt in 0..3 {
        for name in ["a", "b", "c"] {
            let pod = claims_a_device(&mut snapshot, "default", name, absent);
            assert!(matches!(try_to_place(&snapshot, &mut planner, &pod), PlanOutcome::Unschedulable(_)));
        }
        assert_eq!(snapshot.devices().searches().evaluated(), 80, "in attempt {attempt}");
        assert_eq!(planner.full_evaluations(), 0, "nodes are searched once for a pod that claims devices");
    }
    slice(&mut snapshot, 7, 4);
    let pod = claims_a_device(&mut snapshot, "other", "d", absent);
    try_to_place(&snapshot, &mut planner, &pod);
    assert_eq!(snapshot.devices().searches().evaluated(), 84, "one slice is a new one");
    let pod = claims_a_device(&mut snapshot, "default", "e", "device.driver == 'd.example'");
    assert!(matches!(try_to_place(&snapshot, &mut planner, &pod), PlanOutcome::Bind { .. }));
    assert_eq!(
        snapshot.devices().searches().evaluated(),
        104,
        "another expression, which holds for the first device of each node"
    );
}

#[test]
fn device_pools_are_scanned_once_for_each_version() {
    let (mut snapshot, mut planner) = (with_devices(20, 1), Planner::new());
    for at in 0..20 {
        let pod = claims_a_device(&mut snapshot, "default", &format!("p{at}"), "true");
        let PlanOutcome::Bind { node, reservation } = try_to_place(&snapshot, &mut planner, &pod) else {
            panic!("a place")
        };
        snapshot.assume(&pod, &node, &reservation);
        assert_eq!(snapshot.devices().pool_scans(), 20, "for pod {at}");
    }
    slice(&mut snapshot, 7, 2);
    let pod = claims_a_device(&mut snapshot, "default", "last", "true");
    let PlanOutcome::Bind { node, .. } = try_to_place(&snapshot, &mut planner, &pod) else { panic!("a place") };
    assert_eq!((&*node, snapshot.devices().pool_scans()), ("node-7", 21), "all other devices are in use");
}

#[test]
fn endless_searches_of_one_namespace_do_not_delay_others() {
    let (mut snapshot, mut planner) = (with_devices(100, 12), Planner::new());
    snapshot.clock = Clock::new(|| Duration::from_secs(1));
    let requests = |counts: &[i64]| -> Vec<Value> {
        let ask = |(at, count): (usize, &i64)| json!({"name": format!("r{at}"), "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count}});
        counts.iter().enumerate().map(ask).collect()
    };
    let mut place = |namespace: &str, name: &str, counts: &[i64]| {
        let pod = claims_a_device(&mut snapshot, namespace, name, "true");
        let claim = json!({"metadata": {"name": name, "namespace": namespace, "uid": name},
            "spec": {"devices": {"requests": requests(counts)}}});
        snapshot.apply(Kind::ResourceClaim, &Key::new(namespace, name), Some(&claim));
        let outcome = try_to_place(&snapshot, &mut planner, &pod);
        (outcome, snapshot.devices().searches().tries())
    };
    let mut tried = 0;
    for at in 0..40 {
        // The devices for the first claim can be chosen in hundreds of ways, and no choice leaves enough devices for
        // the second claim. So the search tries all ways.
        let (outcome, so_far) = place("hostile", &format!("p{at}"), &[6, 7]);
        assert!(matches!(outcome, PlanOutcome::Unschedulable(why) if why.rejectors.is_empty()), "p{at}");
        tried = so_far;
    }
    assert!(tried < 700_000, "{tried}");
    let (outcome, _) = place("other", "q", &[6, 6]);
    assert!(matches!(outcome, PlanOutcome::Bind { .. }));
}

#[test]
fn costly_expressions_of_one_namespace_do_not_delay_others() {
    let (mut snapshot, mut planner) = (with_devices(100, 10), Planner::new());
    // This is a real clock for the limits, but its time stands still, so budgets do not refill.
    snapshot.clock = Clock::new(|| Duration::from_secs(1));
    let ten = "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]";
    let costly = |at: usize| format!("!{ten}.all(a, {ten}.all(b, {ten}.all(c, a + b + c < {})))", 100 + at);
    for at in 0..40 {
        let pod = claims_a_device(&mut snapshot, "hostile", &format!("p{at}"), &costly(at));
        let PlanOutcome::Unschedulable(why) = try_to_place(&snapshot, &mut planner, &pod) else {
            panic!("it has a place")
        };
        let spent = why.message.contains("too much was searched for devices of this namespace lately");
        assert_eq!((why.rejectors.is_empty(), spent), (true, true), "p{at}: {}", why.message);
    }
    let evaluated = snapshot.devices().searches().evaluated();
    assert!((10..2000).contains(&evaluated), "{evaluated} of 40,000");
    let pod = claims_a_device(&mut snapshot, "other", "q", "device.driver == 'd.example'");
    assert!(matches!(try_to_place(&snapshot, &mut planner, &pod), PlanOutcome::Bind { .. }));
}

/// A scheduler with nodes and a pod on each node. The requests that it has made so far are dropped.
fn at_work(nodes: usize) -> Scheduler {
    let mut scheduler = Scheduler::new(Configuration::default().into());
    for at in 0..nodes {
        heartbeat(&mut scheduler, at, 0);
        let (name, node) = (format!("p{at}"), format!("node-{at}"));
        let pod = json!({"metadata": {"name": name, "namespace": "default", "uid": name}, "spec": {"nodeName": node,
            "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}});
        scheduler.apply_object(Kind::Pod, &Key::new("default", &name), Some(&pod), 0);
    }
    scheduler
}

/// Applies a heartbeat of a node, which changes only times in the node's status.
fn heartbeat(scheduler: &mut Scheduler, at: usize, second: usize) {
    let name = format!("node-{at}");
    let ready =
        json!({"type": "Ready", "status": "True", "lastHeartbeatTime": format!("2026-01-01T00:00:{second:02}Z")});
    let node = json!({"metadata": {"name": name, "resourceVersion": second.to_string(), "labels": {"zone": "z"}},
        "status": {"allocatable": {"cpu": "4", "pods": "110"}, "conditions": [ready]}});
    scheduler.apply_object(Kind::Node, &Key::cluster(&name), Some(&node), 0);
}

fn waiting(name: &str, cpu: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "default", "uid": name},
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}})
}

fn attempts(scheduler: &mut Scheduler) -> usize {
    while scheduler.schedule_one(0) {}
    scheduler.take_samples().iter().filter(|samples| matches!(samples, MetricSample::Attempt { .. })).count()
}

#[test]
fn an_idle_cluster_costs_nothing() {
    let mut scheduler = at_work(NODES);
    let before = scheduler.snapshot().changes().next();
    for second in 1..4 {
        (0..NODES).for_each(|at| heartbeat(&mut scheduler, at, second));
    }
    assert_eq!(scheduler.snapshot().changes().next(), before, "heartbeats change nothing that is looked at");
    assert!(!scheduler.schedule_one(0) && scheduler.next_wakeup().is_none(), "there is nothing to wake up for");
    assert!(scheduler.take_requests(0).is_empty() && scheduler.take_samples().is_empty());
}

#[test]
fn a_pod_that_cannot_fit_is_tried_again_when_it_might() {
    let mut scheduler = at_work(NODES);
    scheduler.apply_object(Kind::Pod, &Key::new("default", "big"), Some(&waiting("big", "8")), 0);
    assert_eq!(attempts(&mut scheduler), 1);
    for at in 0..NODES {
        heartbeat(&mut scheduler, at, 1);
        let name = format!("q{at}");
        let mut pod = waiting(&name, "1");
        pod["spec"]["nodeName"] = format!("node-{at}").into();
        scheduler.apply_object(Kind::Pod, &Key::new("default", &name), Some(&pod), 0);
        let labels = json!({"metadata": {"name": name, "labels": {"a": name}}});
        scheduler.apply_object(Kind::Namespace, &Key::cluster(&name), Some(&labels), 0);
        let node = json!({"metadata": {"name": "small", "labels": {"at": name}},
            "status": {"allocatable": {"cpu": "4", "pods": "110"}}});
        scheduler.apply_object(Kind::Node, &Key::cluster("small"), Some(&node), 0);
    }
    assert_eq!(attempts(&mut scheduler), 0, "nothing of that makes room for it");
    let node = json!({"metadata": {"name": "small"}, "status": {"allocatable": {"cpu": "16", "pods": "110"}}});
    scheduler.apply_object(Kind::Node, &Key::cluster("small"), Some(&node), 0);
    while scheduler.schedule_one(0) {}
    assert_eq!(scheduler.snapshot().assumed_count(), 1, "this does");
}

#[test]
fn an_event_on_one_node_costs_the_work_of_one_node() {
    let selector = json!({"matchLabels": {"app": "a"}});
    let spread = |key: &str, action: &str| json!({"topologyKey": key, "maxSkew": 9, "whenUnsatisfiable": action, "labelSelector": selector});
    let term = |key: &str| json!({"topologyKey": key, "labelSelector": selector});
    let (must, may) =
        ("requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution");
    let host = "kubernetes.io/hostname";
    let cases = [
        ("by allocation alone", json!({})),
        (
            "hard spread",
            json!({"topologySpreadConstraints": [spread("zone", "DoNotSchedule"), spread(host, "DoNotSchedule")]}),
        ),
        (
            "soft spread",
            json!({"topologySpreadConstraints": [spread("zone", "ScheduleAnyway"), spread(host, "ScheduleAnyway")]}),
        ),
        (
            "near and far",
            json!({"affinity": {"podAffinity": {must: [term("zone")]}, "podAntiAffinity": {must: [term(host)]}}}),
        ),
        ("rather near", json!({"affinity": {"podAffinity": {may: [{"weight": 1, "podAffinityTerm": term("zone")}]}}})),
    ];
    for (name, more) in cases {
        let mut cluster = Cluster::new();
        cluster.more = more;
        cluster.set("a", 100, 0, "a");
        cluster.place("a");
        let looked = |cluster: &mut Cluster| {
            cluster.planner.evaluations().get(&(0, ExtensionPoint::Filter, "NodeResourcesFit")).copied().unwrap_or(0)
        };
        let before = looked(&mut cluster);
        assert_eq!((before, cluster.planner.full_evaluations()), (NODES as u64, 1), "{name}");
        // In 40 changes, nodes get a taint, move to another zone, pull an image, and are added and removed.
        for at in 0..40 {
            let node = if at % 5 < 3 { format!("node-{at}") } else { "node-that-comes".to_owned() };
            let zone = format!("z{}", if at % 5 == 1 { at + 1 } else { at } % 3);
            let taints = if at % 5 == 0 { json!([{"key": "t", "effect": "PreferNoSchedule"}]) } else { json!([]) };
            let images =
                if at % 5 == 2 { json!([{"names": ["pause:latest"], "sizeBytes": 300_000_000}]) } else { json!([]) };
            let object = json!({"metadata": {"name": node, "labels": {host: node, "zone": zone}}, "spec": {"taints": taints},
                "status": {"allocatable": {"cpu": "32", "memory": "64Gi", "pods": "110"}, "images": images}});
            cluster.snapshot.apply(Kind::Node, &Key::cluster(&node), (at % 5 < 4).then_some(&object));
            cluster.place("a");
        }
        let asked = looked(&mut cluster) - before;
        assert_eq!(cluster.planner.full_evaluations(), 1, "{name}: all nodes were counted anew");
        assert!(asked <= 100, "{name}: {asked} nodes were looked at for 40 events and 40 pods");
    }
}

#[test]
fn a_topology_key_is_counted_once_a_node_has_it() {
    let mut cluster = Cluster::new();
    let term = json!({"topologyKey": "rack", "labelSelector": {"matchLabels": {"app": "a"}}});
    cluster.more = json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}});
    cluster.place("a");
    let rack = |cluster: &mut Cluster, node: usize, label: &str| {
        let name = format!("node-{node}");
        let object = json!({"metadata": {"name": name, "labels": {label: "r"}},
            "status": {"allocatable": {"cpu": "64", "memory": "64Gi", "pods": "110"}}});
        cluster.snapshot.apply(Kind::Node, &Key::cluster(&name), Some(&object));
        cluster.place("a");
    };
    for node in 10..20 {
        rack(&mut cluster, node, &format!("other-{node}"));
    }
    assert_eq!(cluster.planner.full_evaluations(), 1, "of these labels nobody speaks");
    for node in 20..30 {
        rack(&mut cluster, node, "rack");
    }
    assert_eq!(cluster.planner.full_evaluations(), 2);
}

/// A cluster in which `to_each` pods of higher priority are nominated to each of the first `nodes` nodes.
fn with_nominated_pods(nodes: usize, to_each: usize, more: &Value) -> Cluster {
    let mut cluster = Cluster::new();
    cluster.more = more.clone();
    for at in 0..nodes * to_each {
        let (name, node) = (format!("nominated-{at}"), format!("node-{}", at % nodes));
        let mut pod = json!({"metadata": {"name": name, "namespace": "default", "uid": name, "labels": {"app": "a"}},
            "spec": {"priority": 10, "containers": [{"name": "c", "resources": {"requests": {"cpu": "1m"}}}]},
            "status": {"nominatedNodeName": node}});
        pod["spec"].as_object_mut().expect("a spec").extend(more.as_object().cloned().unwrap_or_default());
        cluster.snapshot.apply(Kind::Pod, &Key::new("default", &name), Some(&pod));
    }
    cluster
}

#[test]
fn nodes_with_nominated_pods_are_compared_by_group() {
    let selector = json!({"matchLabels": {"app": "a"}});
    let spread = json!({"topologySpreadConstraints": [{"topologyKey": "zone", "maxSkew": 900, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}]});
    let term = json!({"topologyKey": "zone", "labelSelector": selector});
    let near = json!({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}});
    for (name, more) in [("spread", spread), ("near others", near)] {
        let mut cluster = with_nominated_pods(NODES - 10, 3, &more);
        for _ in 0..20 {
            cluster.place("a");
        }
        let groups_compared = cluster.planner.groups_compared();
        assert!(groups_compared <= 20 * 9, "{name}: {groups_compared} groups of {NODES} nodes for 20 pods");
        assert_eq!(cluster.planner.full_evaluations(), 1, "{name}");
    }
}

#[test]
fn checks_respect_at_most_as_many_nominated_pods_as_fit() {
    // 2,000 pods are nominated to one node, but the node has room for 110 pods, so only so many of them are looked at.
    let mut cluster = with_nominated_pods(1, 2000, &json!({}));
    let asked = |cluster: &mut Cluster| {
        cluster.planner.evaluations().get(&(0, ExtensionPoint::Filter, "NodeResourcesFit")).copied().unwrap_or(0)
    };
    cluster.place("a");
    let before = asked(&mut cluster);
    let try_one = |cluster: &mut Cluster, at: usize| {
        let key = Key::new("default", &format!("nominated-{at}"));
        let pod = cluster.snapshot.pod(&key).expect("the pod").clone();
        let plan = cluster.planner.plan(&cluster.snapshot, (0, &cluster.configuration.profiles[0]), &pod);
        let PlanOutcome::Bind { node, reservation } = plan.outcome else { panic!("it has a place") };
        cluster.snapshot.assume(&key, &node, &reservation);
    };
    for at in 0..100 {
        try_one(&mut cluster, at);
    }
    assert_eq!(cluster.planner.full_evaluations(), 2, "once for each of the two templates");
    let asked = asked(&mut cluster) - before;
    assert!(asked <= (NODES + 400) as u64, "{asked} nodes were looked at for 100 pods");
}
