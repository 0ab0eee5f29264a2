//! Measures the processor time that the planner needs for one pod. Run the benchmark with `cargo bench -p
//! holdfast-scheduler`; an argument sets the number of nodes.
//!
//! The benchmark measures the processor time of decoding, planning and placing, by the thread's own clock: the time of
//! a wall clock depends on the load of the machine.

use holdfast_scheduler::{Configuration, Key, Kind, PlanOutcome, Planner, Snapshot};
use holdfast_value::{Value, json};
use std::time::Duration;

fn main() {
    let numbers: Vec<usize> = std::env::args().skip(1).filter_map(|one| one.parse().ok()).collect();
    let nodes = numbers.first().copied().unwrap_or(5000);
    let pods = numbers.get(1).copied().unwrap_or(10_000);
    for (name, shape) in CASES {
        run(name, nodes, pods, empty_nodes(nodes), *shape);
    }
    run("a device each", nodes, pods.min(nodes), nodes_with_devices(nodes), |_| json!({"claims": true}));
    preempt(nodes, pods.min(nodes));
}

type Shape = fn(usize) -> Value;

const CASES: &[(&str, Shape)] = &[
    ("basic", |_| json!({})),
    ("ten templates", |at| json!({"tolerations": [{"key": format!("t{}", at % 10), "operator": "Exists"}]})),
    ("node affinity", |_| {
        let zones = json!({"key": "zone", "operator": "In", "values": ["z0", "z1"]});
        json!({"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [zones]}]}}}})
    }),
    ("spread, required", |_| json!({"topologySpreadConstraints": [spread("zone", 5, "DoNotSchedule")]})),
    ("spread, preferred", |_| json!({"topologySpreadConstraints": [spread("zone", 5, "ScheduleAnyway")]})),
    ("spread, default", |_| json!({"spreadByDefault": true})),
    ("pod affinity by zone", |_| json!({"affinity": {"podAffinity": {REQUIRED: [term("zone")]}}})),
    (
        "anti-affinity by host",
        |_| json!({"affinity": {"podAntiAffinity": {REQUIRED: [term("kubernetes.io/hostname")]}}}),
    ),
    (
        "preferred affinity",
        |_| json!({"affinity": {"podAffinity": {PREFERRED: [{"weight": 1, "podAffinityTerm": term("kubernetes.io/hostname")}]}}}),
    ),
];

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

fn spread(key: &str, skew: i64, action: &str) -> Value {
    json!({"topologyKey": key, "maxSkew": skew, "whenUnsatisfiable": action, "labelSelector": {"matchLabels": {"app": "a"}}})
}

fn term(key: &str) -> Value {
    json!({"topologyKey": key, "labelSelector": {"matchLabels": {"app": "a"}}})
}

fn empty_nodes(nodes: usize) -> Snapshot {
    let mut snapshot = Snapshot::new();
    for at in 0..nodes {
        let name = format!("node-{at}");
        let node = json!({
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "zone": format!("z{}", at % 3), "topology.kubernetes.io/zone": format!("z{}", at % 3)}},
            "status": {"allocatable": {"cpu": "4", "memory": "32Gi", "pods": "110"}},
        });
        snapshot.apply(Kind::Node, &Key::cluster(&name), Some(&node));
    }
    snapshot
}

/// Measures preemption: all nodes are full of pods of lower priority, and each pod to be scheduled preempts four of
/// them.
fn preempt(nodes: usize, pods: usize) {
    let mut snapshot = empty_nodes(nodes);
    let pod = |name: &str, priority: i64, cpu: &str, node: Option<String>| {
        json!({
            "metadata": {"name": name, "uid": name, "labels": {"app": "a"}},
            "spec": {"priority": priority, "nodeName": node, "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu, "memory": "500Mi"}}}]},
        })
    };
    for at in 0..nodes * 4 {
        let name = format!("low-{at}");
        let low = pod(&name, 0, "900m", Some(format!("node-{}", at / 4)));
        snapshot.apply(Kind::Pod, &Key::new("default", &name), Some(&low));
    }
    let configuration = Configuration::default();
    let profile = (0, &configuration.profiles[0]);
    let mut planner = Planner::new();
    let (mut finding, mut placing, mut bound) = (Duration::ZERO, Duration::ZERO, 0);
    for at in 0..pods {
        let name = format!("high-{at}");
        let key = Key::new("default", &name);
        snapshot.apply(Kind::Pod, &key, Some(&pod(&name, 10, "3", None)));
        let waiting = snapshot.pod(&key).unwrap().clone();
        let start = clock();
        let plan = planner.plan(&snapshot, profile, &waiting);
        finding += clock() - start;
        let PlanOutcome::Unschedulable(why) = plan.outcome else { continue };
        let Some(victims) = why.victims else { continue };
        let start = clock();
        snapshot.nominate(&key, Some(victims.node));
        for victim in &victims.pods {
            snapshot.apply(Kind::Pod, &victim.key, None);
        }
        let waiting = snapshot.pod(&key).unwrap().clone();
        let plan = planner.plan(&snapshot, profile, &waiting);
        if let PlanOutcome::Bind { node, reservation } = plan.outcome {
            snapshot.assume(&key, &node, &reservation);
            bound += 1;
        }
        placing += clock() - start;
    }
    let each = |time: Duration| time.as_secs_f64() * 1e6 / pods as f64;
    println!(
        "{:24} {nodes} nodes, {pods} pods, {bound} bound: {:7.1} µs a pod to find victims, {:.1} µs to place",
        "preemption",
        each(finding),
        each(placing),
    );
}

/// Nodes with two devices each.
fn nodes_with_devices(nodes: usize) -> Snapshot {
    let mut snapshot = empty_nodes(nodes);
    let class = json!({"spec": {"selectors": [{"cel": {"expression": "device.driver == 'd.example'"}}]}});
    snapshot.apply(Kind::DeviceClass, &Key::cluster("gpu"), Some(&class));
    for at in 0..nodes {
        let name = format!("node-{at}");
        let pool = json!({"name": name, "generation": 1, "resourceSliceCount": 1});
        let devices = json!([{"name": "a"}, {"name": "b"}]);
        let slice = json!({"spec": {"driver": "d.example", "nodeName": name, "pool": pool, "devices": devices}});
        snapshot.apply(Kind::ResourceSlice, &Key::cluster(&name), Some(&slice));
    }
    snapshot
}

fn run(name: &str, nodes: usize, pods: usize, mut snapshot: Snapshot, shape: Shape) {
    let configuration = Configuration::default();
    let mut planner = Planner::new();
    let (mut decoding, mut planning, mut placing, mut bound) = (Duration::ZERO, Duration::ZERO, Duration::ZERO, 0);
    for at in 0..pods {
        let name = format!("pod-{at}");
        let key = Key::new("default", &name);
        let mut pod = json!({
            "metadata": {"name": name, "uid": name, "labels": {"app": "a"}},
            "spec": {"containers": [{"name": "c", "image": "pause:1", "resources": {"requests": {"cpu": "100m", "memory": "500Mi"}}}]},
        });
        for (field, value) in shape(at).as_object().unwrap() {
            pod["spec"][field] = value.clone();
        }
        if pod["spec"]["spreadByDefault"] == true && at == 0 {
            let service = json!({"spec": {"selector": {"app": "a"}}});
            snapshot.apply(Kind::Service, &Key::new("default", "s"), Some(&service));
        }
        if pod["spec"]["claims"] == true {
            let claim = json!({"metadata": {"uid": name},
                "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}}});
            snapshot.apply(Kind::ResourceClaim, &key, Some(&claim));
            pod["spec"]["resourceClaims"] = json!([{"name": "c", "resourceClaimName": name}]);
        }
        let start = clock();
        snapshot.apply(Kind::Pod, &key, Some(&pod));
        decoding += clock() - start;
        let waiting = snapshot.pod(&key).unwrap().clone();
        let start = clock();
        let plan = planner.plan(&snapshot, (0, &configuration.profiles[0]), &waiting);
        planning += clock() - start;
        let PlanOutcome::Bind { node, reservation } = plan.outcome else { continue };
        bound += 1;
        let start = clock();
        snapshot.assume(&key, &node, &reservation);
        placing += clock() - start;
    }
    let each = |time: Duration| time.as_secs_f64() * 1e6 / pods as f64;
    println!(
        "{name:24} {nodes} nodes, {pods} pods, {bound} bound: {:7.1} µs a pod to plan, {:.1} µs to decode, {:.1} µs to place",
        each(planning),
        each(decoding),
        each(placing),
    );
}

/// The processor time that this thread has used so far.
fn clock() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
