//! Tests that the planner and the plain search agree. The node that the planner chooses must have the highest score in
//! the plain search, and the planner must find no node exactly if the plain search finds no node.

use holdfast_scheduler::object::Text;
use holdfast_scheduler::object::pod::Pod;
use holdfast_scheduler::plan::Plan;
use holdfast_scheduler::plugin::SchedulingCycle;
use holdfast_scheduler::plugins::default_preemption::{DefaultPreemption, Victims};
use holdfast_scheduler::{Configuration, Key, Kind, PlanOutcome, Planner, Snapshot, plan};
use holdfast_value::{Value, json};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// A step of a test: a change of the cluster, or the planning of pods.
#[derive(Debug, Clone)]
enum Step {
    /// A node is added or changed.
    Node(u8, NodeShape),
    NodeGone(u8),
    /// A pod is added that is bound to a node already.
    Placed(u8, u8, PodShape, u8),
    PodGone(u8),
    /// A waiting pod is nominated to a node.
    Nominated(u8, u8, PodShape, u8),
    Service(u8, bool),
    /// A disruption budget for the pods of an application gets this number of allowed disruptions, or is deleted.
    DisruptionBudget(u8, Option<u8>),
    /// A bound pod gets a time at which it started.
    Started(u8, u8),
    Namespace(u8),
    /// A bound pod begins to be deleted because it was preempted.
    Leaves(u8),
    /// A pod that is nominated to a node is planned again.
    Retried(u8),
    /// Pods are planned, and bound if a node is feasible. The fields are their kind, their number and their priority.
    Plan(usize, u8, u8),
}

#[derive(Debug, Clone)]
struct NodeShape {
    cpu: u8,
    zone: u8,
    taint: u8,
    disk: u8,
    image: u8,
    pods: u8,
    unschedulable: bool,
}

#[derive(Debug, Clone)]
struct PodShape {
    app: u8,
    cpu: u8,
    affinity: u8,
    spread: u8,
    toleration: u8,
    prefers: u8,
    port: bool,
    namespace: u8,
}

fn node_shape() -> impl Strategy<Value = NodeShape> {
    (1..9u8, 0..4u8, 0..5u8, 0..3u8, 0..3u8, 1..8u8, prop::bool::weighted(0.1)).prop_map(
        |(cpu, zone, taint, disk, image, pods, unschedulable)| NodeShape {
            cpu,
            zone,
            taint,
            disk,
            image,
            pods,
            unschedulable,
        },
    )
}

fn pod_shape() -> impl Strategy<Value = PodShape> {
    let affinity = prop_oneof![4 => Just(0u8), 3 => 1..10u8];
    let spread = prop_oneof![3 => Just(0u8), 2 => 1..7u8];
    (0..3u8, 0..6u8, affinity, spread, 0..3u8, 0..3u8, prop::bool::weighted(0.1), 0..2u8).prop_map(
        |(app, cpu, affinity, spread, toleration, prefers, port, namespace)| PodShape {
            app,
            cpu,
            affinity,
            spread,
            toleration,
            prefers,
            port,
            namespace,
        },
    )
}

/// How many kinds of pods are planned. There are few, so that a kind's cache still exists after nodes have changed.
const KINDS: usize = 3;

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..10u8, node_shape()).prop_map(|(node, shape)| Step::Node(node, shape)),
        1 => (0..10u8).prop_map(Step::NodeGone),
        5 => (0..60u8, 0..10u8, pod_shape(), 0..3u8).prop_map(|(pod, node, shape, priority)| Step::Placed(pod, node, shape, priority)),
        2 => (0..60u8).prop_map(Step::PodGone),
        2 => (0..60u8, 0..9u8).prop_map(|(pod, second)| Step::Started(pod, second)),
        1 => (0..3u8, prop::option::of(0..2u8)).prop_map(|(app, left)| Step::DisruptionBudget(app, left)),
        1 => (0..60u8, 0..10u8, pod_shape(), 0..3u8).prop_map(|(pod, node, shape, priority)| Step::Nominated(pod, node, shape, priority)),
        1 => (0..60u8).prop_map(Step::Leaves),
        4 => (0..60u8).prop_map(Step::Retried),
        1 => (0..3u8, any::<bool>()).prop_map(|(app, there)| Step::Service(app, there)),
        1 => (0..2u8).prop_map(Step::Namespace),
        8 => (0..KINDS, 1..5u8, 0..2u8).prop_map(|(kind, count, priority)| Step::Plan(kind, count, priority)),
    ]
}

fn node(name: &str, shape: &NodeShape) -> Value {
    let mut labels = json!({"kubernetes.io/hostname": name});
    if shape.zone > 0 {
        labels["topology.kubernetes.io/zone"] = format!("z{}", shape.zone).into();
    }
    if shape.disk > 0 {
        labels["disk"] = format!("d{}", shape.disk).into();
    }
    let taints = match shape.taint {
        1 => json!([{"key": "ded", "value": "x", "effect": "NoSchedule"}]),
        2 => json!([{"key": "soft", "effect": "PreferNoSchedule"}]),
        3 => json!([{"key": "soft", "effect": "PreferNoSchedule"}, {"key": "other", "effect": "PreferNoSchedule"}]),
        _ => json!([]),
    };
    let images = match shape.image {
        0 => json!([]),
        size => json!([{"names": ["app:1"], "sizeBytes": 300_000_000 * i64::from(size)}]),
    };
    json!({
        "metadata": {"name": name, "labels": labels},
        "spec": {"taints": taints, "unschedulable": shape.unschedulable},
        "status": {
            "allocatable": {"cpu": shape.cpu, "memory": "16Gi", "pods": shape.pods},
            "images": images,
        },
    })
}

fn pod(name: &str, shape: &PodShape, priority: u8) -> Value {
    let selector = |app: u8| json!({"matchLabels": {"app": format!("a{app}")}});
    let term = |key: &str, app: u8| json!({"topologyKey": key, "labelSelector": selector(app)});
    let (host, zone) = ("kubernetes.io/hostname", "topology.kubernetes.io/zone");
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    let preferred = "preferredDuringSchedulingIgnoredDuringExecution";
    let mut affinity = match shape.affinity {
        1 => json!({"podAffinity": {required: [term(zone, shape.app)]}}),
        2 => json!({"podAntiAffinity": {required: [term(host, shape.app)]}}),
        3 => json!({"podAntiAffinity": {required: [term(zone, 1)]}}),
        4 => json!({"podAffinity": {preferred: [{"weight": 30, "podAffinityTerm": term(zone, 0)}]}}),
        5 => json!({"podAntiAffinity": {preferred: [{"weight": 7, "podAffinityTerm": term(host, shape.app)}]}}),
        6 => {
            json!({"podAffinity": {required: [term(host, 2)]}, "podAntiAffinity": {preferred: [{"weight": 9, "podAffinityTerm": term(zone, 1)}]}})
        }
        7 => json!({"podAffinity": {preferred: [{"weight": 5, "podAffinityTerm": {
            "topologyKey": zone, "labelSelector": selector(1), "namespaceSelector": {"matchLabels": {"team": "t0"}}}}]}}),
        8 => {
            json!({"podAntiAffinity": {required: [{"topologyKey": host, "labelSelector": selector(0), "namespaceSelector": {}}]}})
        }
        9 => {
            json!({"podAffinity": {preferred: [{"weight": 3, "podAffinityTerm": term(host, 0)}, {"weight": 4, "podAffinityTerm": term("disk", 1)}]},
                "podAntiAffinity": {preferred: [{"weight": 5, "podAffinityTerm": term(zone, shape.app)}]}})
        }
        _ => json!({}),
    };
    if shape.prefers == 1 {
        let term = json!({"matchExpressions": [{"key": "disk", "operator": "In", "values": ["d1"]}]});
        affinity["nodeAffinity"] = json!({preferred: [{"weight": 40, "preference": term}]});
    }
    let constraint = |key: &str, skew: u8, action: &str| json!({"topologyKey": key, "maxSkew": skew, "whenUnsatisfiable": action, "labelSelector": selector(shape.app)});
    let spread = match shape.spread {
        1 => json!([constraint(zone, 1, "DoNotSchedule")]),
        2 => json!([constraint(zone, 2, "DoNotSchedule"), constraint(host, 1, "ScheduleAnyway")]),
        3 => json!([constraint(zone, 1, "ScheduleAnyway")]),
        4 => {
            let mut one = constraint(host, 1, "DoNotSchedule");
            one["nodeTaintsPolicy"] = "Honor".into();
            one["minDomains"] = 3.into();
            json!([one])
        }
        6 => json!([constraint("disk", 2, "DoNotSchedule"), constraint(zone, 2, "ScheduleAnyway")]),
        5 => json!([constraint(zone, 1, "ScheduleAnyway"), constraint(host, 2, "ScheduleAnyway")]),
        _ => json!([]),
    };
    let tolerations = match shape.toleration {
        1 => json!([{"key": "ded", "operator": "Exists"}]),
        2 => json!([{"operator": "Exists"}]),
        _ => json!([]),
    };
    let ports = if shape.port { json!([{"hostPort": 80}]) } else { json!([]) };
    let requests = match shape.cpu {
        0 => json!({}),
        cpu => json!({"cpu": format!("{}m", 300 * u32::from(cpu)), "memory": "256Mi"}),
    };
    json!({
        "metadata": {"name": name, "uid": format!("uid-{name}"), "labels": {"app": format!("a{}", shape.app)}},
        "spec": {
            "priority": priority,
            "affinity": affinity,
            "topologySpreadConstraints": spread,
            "tolerations": tolerations,
            "nodeSelector": if shape.prefers == 2 { json!({"disk": "d2"}) } else { json!({}) },
            "containers": [{"name": "c", "image": "app:1", "ports": ports, "resources": {"requests": requests}}],
        },
    })
}

struct World {
    snapshot: Snapshot,
    planner: Planner,
    configuration: Configuration,
    planned: usize,
    placed: BTreeMap<u8, (Key, Value)>,
    kinds: Vec<PodShape>,
}

impl World {
    fn key(shape: &PodShape, name: &str) -> Key {
        Key::new(&format!("ns{}", shape.namespace), name)
    }

    fn gone(&mut self, name: &str) {
        for namespace in ["ns0", "ns1"] {
            self.snapshot.apply(Kind::Pod, &Key::new(namespace, name), None);
        }
    }

    fn take(&mut self, step: Step) -> Result<(), TestCaseError> {
        match step {
            Step::Node(at, shape) => {
                let name = format!("n{at}");
                self.snapshot.apply(Kind::Node, &Key::cluster(&name), Some(&node(&name, &shape)));
            }
            Step::NodeGone(at) => {
                self.snapshot.apply(Kind::Node, &Key::cluster(&format!("n{at}")), None);
            }
            Step::Placed(at, on, shape, priority) => {
                let name = format!("e{at}");
                self.gone(&name);
                let mut object = pod(&name, &shape, priority);
                object["spec"]["nodeName"] = format!("n{on}").into();
                let key = World::key(&shape, &name);
                self.snapshot.apply(Kind::Pod, &key, Some(&object));
                self.placed.insert(at, (key, object));
            }
            Step::Started(at, second) => {
                let Some((key, object)) = self.placed.get_mut(&at) else { return Ok(()) };
                object["status"]["startTime"] = format!("2026-01-01T00:00:0{second}Z").into();
                if self.snapshot.pod(key).is_some_and(|pod| pod.node_name.is_some()) {
                    self.snapshot.apply(Kind::Pod, key, Some(object));
                }
            }
            Step::DisruptionBudget(app, left) => {
                let selector = json!({"matchLabels": {"app": format!("a{app}")}});
                let object =
                    left.map(|left| json!({"spec": {"selector": selector}, "status": {"disruptionsAllowed": left}}));
                let key = Key::new("ns0", &format!("b{app}"));
                self.snapshot.apply(Kind::PodDisruptionBudget, &key, object.as_ref());
            }
            Step::PodGone(at) => self.gone(&format!("e{at}")),
            Step::Nominated(at, to, shape, priority) => {
                let name = format!("e{at}");
                self.gone(&name);
                let mut object = pod(&name, &shape, priority);
                object["status"]["nominatedNodeName"] = format!("n{to}").into();
                let key = World::key(&shape, &name);
                self.snapshot.apply(Kind::Pod, &key, Some(&object));
                self.placed.insert(at, (key, object));
            }
            Step::Leaves(at) => {
                let Some((key, object)) = self.placed.get_mut(&at) else { return Ok(()) };
                object["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
                let reason = "PreemptionByScheduler";
                object["status"]["conditions"] =
                    json!([{"type": "DisruptionTarget", "status": "True", "reason": reason}]);
                if self.snapshot.pod(key).is_some_and(|pod| pod.node_name.is_some()) {
                    self.snapshot.apply(Kind::Pod, key, Some(object));
                }
            }
            Step::Retried(at) => {
                let Some((key, _)) = self.placed.get(&at).cloned() else { return Ok(()) };
                if self.snapshot.pod(&key).is_some_and(|pod| pod.node_name.is_none() && pod.nominated.is_some()) {
                    self.compare(&key)?;
                }
            }
            Step::Service(app, there) => {
                let object = json!({"spec": {"selector": {"app": format!("a{app}")}}});
                self.snapshot.apply(Kind::Service, &Key::new("ns0", &format!("s{app}")), there.then_some(&object));
            }
            Step::Namespace(at) => {
                let object = json!({"metadata": {"labels": {"team": "t0"}}});
                self.snapshot.apply(Kind::Namespace, &Key::cluster(&format!("ns{at}")), Some(&object));
            }
            Step::Plan(kind, count, priority) => {
                let shape = self.kinds[kind].clone();
                for _ in 0..count {
                    self.planned += 1;
                    let name = format!("p{}", self.planned);
                    let key = World::key(&shape, &name);
                    self.snapshot.apply(Kind::Pod, &key, Some(&pod(&name, &shape, priority)));
                    self.compare(&key)?;
                }
            }
        }
        Ok(())
    }

    fn compare(&mut self, key: &Key) -> Result<(), TestCaseError> {
        let pod = self.snapshot.pod(key).unwrap().clone();
        let profile = &self.configuration.profiles[0];
        let slow = plan(&self.snapshot, profile, &pod);
        let fast = self.planner.plan(&self.snapshot, (0, profile), &pod);
        self.compare_nodes(&slow, &pod)?;
        match (&slow.outcome, &fast.outcome) {
            (PlanOutcome::Bind { .. }, PlanOutcome::Bind { node, reservation }) => {
                let good = good(&slow);
                prop_assert!(good.contains(&&**node), "{node} is not one of the best {good:?}");
                self.snapshot.assume(key, node, reservation);
            }
            (PlanOutcome::Unschedulable(slow), PlanOutcome::Unschedulable(fast)) => {
                prop_assert_eq!(&slow.message, &fast.message);
                prop_assert_eq!(&slow.rejectors, &fast.rejectors);
                prop_assert_eq!(&slow.nomination, &fast.nomination);
                prop_assert_eq!(&slow.deallocate, &fast.deallocate);
                let told = |victims: &Victims| {
                    let pods: Vec<_> = victims.pods.iter().map(|pod| pod.key.clone()).collect();
                    (victims.node.clone(), pods, victims.clear_nominations.clone())
                };
                let (slow, fast) = (slow.victims.as_ref().map(told), fast.victims.as_ref().map(told));
                prop_assert_eq!(&slow, &fast);
                self.snapshot.apply(Kind::Pod, key, None);
                // The victims of every second plan are deleted, so that other pods can get their nodes.
                for victim in
                    fast.filter(|_| self.planned.is_multiple_of(2)).map(|(_, pods, _)| pods).into_iter().flatten()
                {
                    self.snapshot.apply(Kind::Pod, &victim, None);
                }
            }
            _ => prop_assert!(false, "slow: {:?}\nfast: {:?}", slow.outcome, fast.outcome),
        }
        Ok(())
    }
}

/// The default configuration, or with `has_service_affinity` a configuration that also enables ServiceAffinity.
fn configuration(has_service_affinity: bool) -> Configuration {
    let mut document = json!({"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"});
    if has_service_affinity {
        let (zone, disk) = ("topology.kubernetes.io/zone", "disk");
        let args = json!({"affinityLabels": [zone, disk], "antiAffinityLabelsPreference": [disk, zone]});
        let plugins = json!({"multiPoint": {"enabled": [{"name": "ServiceAffinity", "weight": 3}]}});
        let config = json!([{"name": "ServiceAffinity", "args": args}]);
        document["profiles"] = json!([{"plugins": plugins, "pluginConfig": config}]);
    }
    Configuration::of(&document).expect("it is right")
}

/// The plug-ins that count pods over many nodes, so their rejections are not in the cache of single nodes.
const COUNTING: [&str; 3] = ["PodTopologySpread", "InterPodAffinity", "ServiceAffinity"];

impl World {
    /// Compares what the planner has cached for each node with the plain search, which counts all pods again for each
    /// planned pod: the rejections and each plug-in's scores must be equal.
    fn compare_nodes(&self, slow: &Plan, pod: &Pod) -> Result<(), TestCaseError> {
        let (cycle, explanation) = (SchedulingCycle { snapshot: &self.snapshot, pod }, &slow.explanation);
        let id = |name: &Text| self.snapshot.node_named(name).unwrap().id;
        let feasible: Vec<_> = explanation.feasible.iter().map(id).collect();
        let Some((rejected, scores)) = self.planner.cached_results(0, cycle, &feasible) else { return Ok(()) };
        // If the pod's nominated node is feasible, the plain search has checked no other node, and there is nothing to
        // compare.
        let all = explanation.feasible.len() + explanation.diagnosis.rejected.len() == self.snapshot.node_count();
        if all && explanation.diagnosis.pre_filter_message.is_none() {
            let found = explanation.diagnosis.rejected.iter().map(|(name, rejection)| (id(name), rejection.clone()));
            let mut found: Vec<_> = found.collect();
            found.sort_by_key(|(node, _)| *node);
            prop_assert_eq!(rejected, found);
        }
        for node in self.snapshot.nodes().filter(|_| pod.nominated.is_none()) {
            let Some(cached) = self.planner.is_cached_feasible(0, pod, node.id) else { continue };
            match explanation.diagnosis.rejected.iter().find(|(name, _)| *name == node.node.name) {
                None => prop_assert!(cached, "{} will do", node.node.name),
                Some((_, rejection)) if COUNTING.contains(&rejection.plugin) => {}
                Some((_, rejection)) => prop_assert!(!cached, "{} is rejected: {rejection:?}", node.node.name),
            }
        }
        if !explanation.scores.is_empty() {
            // If all pods that a score counted are gone, the score is 0 for all nodes. Such scores are left out of both
            // lists before the lists are compared.
            let counts = |scores: &Vec<i64>| scores.iter().any(|score| *score != 0);
            let scores: Vec<_> = scores.into_iter().filter(counts).collect();
            let found: Vec<_> =
                explanation.scores.iter().map(|scores| scores.normalized.clone()).filter(counts).collect();
            prop_assert_eq!(scores, found);
        }
        Ok(())
    }
}

fn good(slow: &Plan) -> Vec<&str> {
    if slow.explanation.totals.is_empty() {
        return slow.node().map(|node| &**node).into_iter().collect();
    }
    slow.best().iter().map(|node| &***node).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_fast_planner_agrees_with_the_plain_one(
        kinds in prop::collection::vec(pod_shape(), KINDS),
        steps in prop::collection::vec(step(), 10..80),
        enough in prop::option::of(1..4i64),
        has_service_affinity in prop::bool::weighted(0.4),
    ) {
        let mut configuration = configuration(has_service_affinity);
        if let Some(min_candidate_nodes_absolute) = enough {
            let preemption = DefaultPreemption { min_candidate_nodes_percentage: 10, min_candidate_nodes_absolute };
            configuration.profiles[0].preemption = Some(preemption);
        }
        let (snapshot, planner) = (Snapshot::new(), Planner::new());
        let mut world = World { snapshot, planner, configuration, planned: 0, placed: BTreeMap::new(), kinds };
        for step in steps {
            world.take(step)?;
        }
    }
}
