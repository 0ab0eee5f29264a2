//! Tests rules of plug-ins that no recorded scenario covers.

use holdfast_scheduler::object::pod::Pod;
use holdfast_scheduler::plan::Plan;
use holdfast_scheduler::{Configuration, Key, Kind, PlanOutcome, Planner, Profile, Snapshot, plan};
use holdfast_value::{Value, json};
use std::sync::Arc;

struct World {
    snapshot: Snapshot,
    configuration: Configuration,
}

impl World {
    fn new() -> World {
        World::with(json!({}))
    }

    fn with(profile: Value) -> World {
        let mut document =
            json!({"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"});
        document["profiles"] = json!([profile]);
        let configuration = Configuration::of(&document).unwrap_or_else(|faults| panic!("{faults:?}"));
        World { snapshot: configuration.new_snapshot(), configuration }
    }

    fn put(&mut self, kind: Kind, key: Key, object: Value) -> &mut World {
        self.snapshot.apply(kind, &key, Some(&object).filter(|object| !object.is_null()));
        self
    }

    fn node(&mut self, name: &str, labels: Value) -> &mut World {
        let node = json!({"metadata": {"name": name, "labels": labels},
            "status": {"allocatable": {"cpu": "4", "memory": "4Gi", "pods": "10"}}});
        self.put(Kind::Node, Key::cluster(name), node)
    }

    fn pod(&mut self, name: &str, meta: Value, spec: Value) -> Arc<Pod> {
        let mut object = json!({"metadata": meta, "spec": spec});
        object["metadata"]["uid"] = name.into();
        let key = Key::new("default", name);
        self.put(Kind::Pod, key.clone(), object);
        self.snapshot.pod(&key).unwrap().clone()
    }

    fn profile(&self) -> &Profile {
        &self.configuration.profiles[0]
    }

    /// The plan for a pod. Makes it with the cached planner and with the plain search, which must agree.
    fn plan(&self, pod: &Pod) -> Plan {
        let slow = plan(&self.snapshot, self.profile(), pod);
        let fast = Planner::new().plan(&self.snapshot, (0, self.profile()), pod);
        assert_eq!(message(&slow), message(&fast));
        slow
    }

    /// A plug-in's scores of the feasible nodes, by node name.
    fn scores(&self, pod: &Pod, plugin: &str) -> Vec<(String, i64)> {
        let explanation = self.plan(pod).explanation;
        let scores = explanation.scores.iter().find(|scores| scores.plugin == plugin).expect("scores");
        let names = explanation.feasible.iter().map(|name| name.to_string());
        names.zip(scores.raw.iter().copied()).collect()
    }
}

fn message(plan: &Plan) -> String {
    match &plan.outcome {
        PlanOutcome::Bind { .. } => String::new(),
        PlanOutcome::Unschedulable(why) => format!("{}: {}", why.reason, why.message),
    }
}

#[test]
fn a_comparison_with_a_non_number_fails_scoring() {
    let mut world = World::new();
    let term = |value: &str| {
        let expressions =
            json!([{"key": "a", "operator": "Exists"}, {"key": "n", "operator": "Gt", "values": [value]}]);
        json!({"weight": 3, "preference": {"matchExpressions": expressions}})
    };
    let prefers = |terms: Value| json!({"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}}});
    let one = world.pod("one", json!({}), prefers(json!([term("7"), term("abc")])));
    let two = world.pod("two", json!({}), prefers(json!([term("x"), term("1.5")])));
    let none = world.pod("none", json!({}), prefers(json!([{"weight": 0, "preference": term("x")["preference"]}])));
    world.node("a", json!({}));
    for pod in [&one, &two, &none] {
        assert_eq!(message(&world.plan(pod)), "", "a single node is not scored");
    }
    world.node("b", json!({}));
    let why = |at: usize, value: &str| {
        let why = "for 'Gt', 'Lt' operators, the value must be an integer";
        format!("[{at}].matchExpressions[1].values[0]: Invalid value: \"{value}\": {why}")
    };
    let running = "SchedulerError: running PreScore plugin \"NodeAffinity\": ";
    assert_eq!(message(&world.plan(&one)), format!("{running}{}", why(1, "abc")));
    assert_eq!(message(&world.plan(&two)), format!("{running}[{}, {}]", why(0, "x"), why(1, "1.5")));
    assert_eq!(message(&world.plan(&none)), "");
}

/// The API accepts a preferred node affinity term whose values are no valid label values. Scoring must then fail.
#[test]
fn a_preference_for_an_invalid_label_value_fails_scoring() {
    let mut world = World::new();
    world.node("a", json!({})).node("b", json!({}));
    let told = |world: &mut World, operator: &str, values: Vec<&str>| {
        let expressions = json!([{"key": "disk", "operator": operator, "values": values}]);
        let terms = json!([{"weight": 3, "preference": {"matchExpressions": expressions}}]);
        let affinity = json!({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}});
        let pod = world.pod("p", json!({}), json!({"affinity": affinity}));
        message(&world.plan(&pod))
    };
    let running = "SchedulerError: running PreScore plugin \"NodeAffinity\": ";
    let wrong = "Invalid value: \"a b\": a valid label must be an empty string or consist of alphanumeric characters";
    for (operator, values, expected) in [
        ("In", vec!["ssd", ""], None),
        ("In", vec!["ssd", "a b"], Some(format!("{running}[0].matchExpressions[0].values[1][disk]: {wrong}"))),
        ("NotIn", vec!["a b"], Some(format!("{running}[0].matchExpressions[0].values[0][disk]: {wrong}"))),
        ("Gt", vec!["a b"], Some(format!("{running}[[0].matchExpressions[0].values[0]: Invalid value: \"a b\": for"))),
    ] {
        let told = told(&mut world, operator, values);
        assert!(expected.as_ref().map_or(told.is_empty(), |expected| told.starts_with(expected)), "{operator}: {told}");
    }
    let many = told(&mut world, "In", vec!["a b"; 100_000]);
    assert_eq!(many.matches("Invalid value").count(), 32, "nobody fills the log with what is wrong");
}

#[test]
fn zone_labels_of_a_volume_are_a_list() {
    let zone = "topology.kubernetes.io/zone";
    for (value, expected) in [("b", false), ("a__b", true), ("b____c", true), ("", true), ("__", true), ("b__c", false)]
    {
        let mut world = World::new();
        world.node("n", json!({zone: "a"}));
        world.put(
            Kind::PersistentVolume,
            Key::cluster("v"),
            json!({"metadata": {"labels": {zone: value}}, "spec": {}}),
        );
        let bound = json!({"pv.kubernetes.io/bind-completed": "yes"});
        world.put(
            Kind::PersistentVolumeClaim,
            Key::new("default", "c"),
            json!({"metadata": {"annotations": bound}, "spec": {"volumeName": "v"}}),
        );
        let spec = json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]});
        let pod = world.pod("p", json!({}), spec);
        assert_eq!(world.plan(&pod).node().is_some(), expected, "{value:?}");
    }
}

#[test]
fn a_read_write_once_pod_claim_is_free_once_the_users_node_is_gone() {
    let mut world = World::new();
    world.node("n", json!({})).node("m", json!({}));
    let claim = json!({"metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
        "spec": {"volumeName": "v", "accessModes": ["ReadWriteOncePod"]}});
    world.put(Kind::PersistentVolumeClaim, Key::new("default", "c"), claim);
    world.put(Kind::PersistentVolume, Key::cluster("v"), json!({"spec": {}}));
    let spec = || json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]});
    let mut lies = spec();
    lies["nodeName"] = "n".into();
    world.pod("first", json!({}), lies.clone());
    let pod = world.pod("p", json!({}), spec());
    let in_use = "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use";
    assert!(message(&world.plan(&pod)).contains(in_use));
    world.put(Kind::Node, Key::cluster("n"), Value::Null);
    assert_eq!(message(&world.plan(&pod)), "");
    world.node("n", json!({}));
    assert!(message(&world.plan(&pod)).contains(in_use));
    world.put(Kind::Pod, Key::new("default", "first"), Value::Null);
    assert_eq!(message(&world.plan(&pod)), "");
}

#[test]
fn host_spread_counts_each_node_whatever_its_hostname_label() {
    let mut world = World::new();
    let host = "kubernetes.io/hostname";
    world.node("a", json!({host: "same"})).node("b", json!({host: "same"})).node("c", json!({host: "c"}));
    world.pod("there", json!({"labels": {"app": "x"}}), json!({"nodeName": "a"}));
    let constraint = json!({"topologyKey": host, "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"app": "x"}}});
    let pod = world.pod("p", json!({"labels": {"app": "x"}}), json!({"topologySpreadConstraints": [constraint]}));
    let scores = world.scores(&pod, "PodTopologySpread");
    assert!(scores[0].1 > 0, "{scores:?}");
    assert_eq!((scores[1].1, scores[2].1), (0, 0), "{scores:?}");
}

/// A node may list an image name twice, with different sizes. The image counts once, with the size that is listed
/// first.
#[test]
fn an_image_listed_twice_counts_once() {
    let mut world = World::new();
    let images = |sizes: &[i64]| -> Value {
        sizes.iter().map(|mebibytes| json!({"names": ["app:1", "app:1"], "sizeBytes": mebibytes << 20})).collect()
    };
    for (name, sizes) in [("a", &[500, 900][..]), ("b", &[])] {
        let status = json!({"allocatable": {"cpu": "4", "pods": "10"}, "images": images(sizes)});
        world.put(Kind::Node, Key::cluster(name), json!({"metadata": {"name": name}, "status": status}));
    }
    let pod = world.pod("p", json!({}), json!({"containers": [{"name": "c", "image": "app:1"}]}));
    // The score counts half of the image's 500 MiB, because one of two nodes has the image.
    let expected = 100 * (250 - 23) / (1000 - 23);
    assert_eq!(world.scores(&pod, "ImageLocality"), [("a".into(), expected), ("b".into(), 0)]);
}

/// A pod without spread constraints is spread together with the other pods of its owner, but only if the scheduler
/// reads the owner's kind in the owner's API version.
#[test]
fn owners_are_matched_by_api_version() {
    for (api_version, kind, spreads) in [
        ("apps/v1", "ReplicaSet", true),
        ("v1", "ReplicaSet", false),
        ("extensions/v1beta1", "ReplicaSet", false),
        ("apps.kruise.io/v1beta1", "StatefulSet", false),
        ("v1", "ReplicationController", true),
    ] {
        let mut world = World::new();
        world.node("a", json!({"kubernetes.io/hostname": "a"})).node("b", json!({"kubernetes.io/hostname": "b"}));
        let labels = || json!({"app": "x"});
        let selector = json!({"spec": {"selector": {"matchLabels": labels()}}});
        for kind in [Kind::ReplicaSet, Kind::StatefulSet] {
            world.put(kind, Key::new("default", "o"), selector.clone());
        }
        world.put(Kind::ReplicationController, Key::new("default", "o"), json!({"spec": {"selector": labels()}}));
        world.pod("there", json!({"labels": labels()}), json!({"nodeName": "a"}));
        let owner = json!({"apiVersion": api_version, "kind": kind, "name": "o", "uid": "o", "controller": true});
        let pod = world.pod("p", json!({"labels": labels(), "ownerReferences": [owner]}), json!({}));
        let explanation = world.plan(&pod).explanation;
        let scored = explanation.scores.iter().any(|scores| scores.plugin == "PodTopologySpread");
        assert_eq!(scored, spreads, "{api_version} {kind}");
    }
}

#[test]
fn nodes_with_room_for_a_pods_limits_score_higher() {
    let scores = json!({"score": {"disabled": [{"name": "*"}], "enabled": [{"name": "NodeResourceLimits"}]}});
    let mut world = World::with(json!({"plugins": scores}));
    world.node("a", json!({})).node("b", json!({}));
    let small =
        json!({"metadata": {"name": "b"}, "status": {"allocatable": {"cpu": "1", "memory": "1Gi", "pods": "9"}}});
    world.put(Kind::Node, Key::cluster("b"), small);
    for (limits, expected) in [
        (json!({"cpu": "2"}), [1, 0]),
        (json!({"cpu": "1"}), [1, 1]),
        (json!({"cpu": "9", "memory": "2Gi"}), [1, 0]),
        (json!({"cpu": "9", "memory": "9Gi"}), [0, 0]),
        (json!({}), [0, 0]),
    ] {
        let pod = world.pod("p", json!({}), json!({"containers": [{"resources": {"limits": limits}}]}));
        let found: Vec<i64> = world.scores(&pod, "NodeResourceLimits").into_iter().map(|(_, score)| score).collect();
        assert_eq!(found, expected, "{limits}");
    }
}

/// The sum of a pod's requests may exceed 64 bits, and any user may create such a pod. When it is removed, the node's
/// sum must still contain the requests of the other pods.
#[test]
fn removing_a_pod_with_saturating_requests_keeps_the_requests_of_others() {
    let mut world = World::new();
    world.node("n", json!({}));
    let asks = |cpu: &str| json!({"nodeName": "n", "containers": [{"resources": {"requests": {"cpu": cpu}}}]});
    world.pod("other", json!({}), asks("3"));
    for name in ["huge", "more"] {
        world.pod(name, json!({}), asks("9223372036854775807E"));
    }
    for name in ["huge", "more"] {
        world.put(Kind::Pod, Key::new("default", name), Value::Null);
    }
    let late = json!({"containers": [{"resources": {"requests": {"cpu": "2"}}}]});
    let late = world.pod("late", json!({}), late);
    assert_eq!(message(&world.plan(&late)).split(": ").nth(1), Some("0/1 nodes are available"), "it has room for one");
}

/// The planner caches scores. When a pod gets devices that satisfy an extended resource, the cached scores for the next
/// pod must change.
#[test]
fn scores_use_the_devices_in_use() {
    let resources = json!([{"name": "example.com/gpu"}]);
    let strategy = json!({"scoringStrategy": {"type": "LeastAllocated", "resources": resources}});
    let only = json!({"score": {"disabled": [{"name": "*"}], "enabled": [{"name": "NodeResourcesFit"}]},
        "multiPoint": {"disabled": [{"name": "DynamicResources"}]}});
    let config = json!([{"name": "NodeResourcesFit", "args": strategy}]);
    let mut world = World::with(json!({"plugins": only, "pluginConfig": config}));
    world.snapshot.set_extended_resources(true);
    world.put(Kind::DeviceClass, Key::cluster("gpu"), json!({"spec": {"extendedResourceName": "example.com/gpu"}}));
    for node in ["a", "b"] {
        let pool = json!({"name": node, "generation": 1, "resourceSliceCount": 1});
        let spec = json!({"driver": "d", "nodeName": node, "pool": pool, "devices": [{"name": "x"}, {"name": "y"}]});
        world.node(node, json!({})).put(Kind::ResourceSlice, Key::cluster(node), json!({"spec": spec}));
    }
    let mut planner = Planner::new();
    for (at, used, expected) in [(0, "a", [0, 50]), (1, "b", [50, 0]), (2, "a", [0, 50])] {
        let result = json!({"request": "r", "driver": "d", "pool": used, "device": "x"});
        let claim = json!({"status": {"allocation": {"devices": {"results": [result]}}}});
        world.put(Kind::ResourceClaim, Key::new("default", "c"), claim);
        let asks = json!({"resources": {"requests": {"example.com/gpu": "1"}}});
        let pod = world.pod(&format!("p{at}"), json!({}), json!({"containers": [asks]}));
        let scores: Vec<i64> = world.scores(&pod, "NodeResourcesFit").into_iter().map(|(_, score)| score).collect();
        assert_eq!(scores, expected, "with a device of {used} in use");
        let plan = planner.plan(&world.snapshot, (0, world.profile()), &pod);
        assert_ne!(plan.node().map(|node| &**node), Some(used));
    }
}

#[test]
fn a_missing_claim_is_reported_by_the_plug_in_that_reads_it() {
    let disabled = ["VolumeRestrictions", "VolumeBinding", "VolumeZone"].map(|name| json!({"name": name}));
    let mut world = World::with(json!({"plugins": {"multiPoint": {"disabled": disabled}}}));
    world.node("n", json!({}));
    let pod = json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]});
    let pod = world.pod("p", json!({}), pod);
    let told = message(&world.plan(&pod));
    let why = "1 looking up PVC default/c: persistentvolumeclaim \"c\" not found.";
    assert!(told.starts_with(&format!("Unschedulable: 0/1 nodes are available: {why}")), "{told}");
}

#[test]
fn a_pod_that_needs_none_of_its_claims_gets_the_message_of_pods_without_claims() {
    for (status, skipped, told) in [
        (json!([{"name": "a"}]), true, "no new claims to deallocate"),
        (json!([]), false, "pod \"default/p\": ResourceClaim not created yet. no new claims to deallocate"),
        (json!([{"name": "a", "resourceClaimName": "c"}]), false, "still not schedulable"),
    ] {
        let mut world = World::new();
        world.node("n", json!({}));
        let owner = json!([{"kind": "Pod", "name": "p", "uid": "p", "controller": true}]);
        world.put(Kind::ResourceClaim, Key::new("default", "c"), json!({"metadata": {"ownerReferences": owner}}));
        let mut object = json!({"metadata": {"uid": "p"}, "status": {"resourceClaimStatuses": status}});
        let claims = json!([{"name": "a", "resourceClaimTemplateName": "t"}]);
        let asks = json!({"requests": {"cpu": "9"}});
        object["spec"] = json!({"resourceClaims": claims, "containers": [{"resources": asks}]});
        let key = Key::new("default", "p");
        world.put(Kind::Pod, key.clone(), object);
        let pod = world.snapshot.pod(&key).unwrap().clone();
        let plan = world.plan(&pod);
        assert!(message(&plan).contains(&format!(" {told}, preemption: ")), "{}", message(&plan));
        assert_eq!(plan.explanation.skipped.contains(&"DynamicResources"), skipped, "{status}");
    }
}

/// A world in which the pods of a Service must be on nodes with equal values for the labels `same`, and should be on
/// nodes with different values for the labels `different`.
fn world_with_service_affinity(same: Value, different: Value) -> World {
    // NodeAffinity is disabled, so that no plug-in other than ServiceAffinity applies the node selector.
    let disabled = json!([{"name": "NodeAffinity"}]);
    let plugins = json!({"multiPoint": {"enabled": [{"name": "ServiceAffinity"}], "disabled": disabled}});
    let args = json!({"affinityLabels": same, "antiAffinityLabelsPreference": different});
    World::with(json!({"plugins": plugins, "pluginConfig": [{"name": "ServiceAffinity", "args": args}]}))
}

impl World {
    fn pod_in(&mut self, namespace: &str, name: &str, labels: Value, spec: Value) -> &mut World {
        let object = json!({"metadata": {"uid": name, "labels": labels}, "spec": spec});
        self.put(Kind::Pod, Key::new(namespace, name), object)
    }

    fn service(&mut self, namespace: &str, name: &str, selector: Value) -> &mut World {
        self.put(Kind::Service, Key::new(namespace, name), json!({"spec": {"selector": selector}}))
    }
}

/// Each case is a node selector, a change of the world, and the feasible nodes for a pod of the application `x`.
#[test]
fn service_affinity_follows_the_first_peer() {
    let (x, more) = (json!({"app": "x"}), json!({"app": "x", "more": "1"}));
    let at = |node: &str| json!({"nodeName": node});
    let all = ["a1", "a2", "b1", "bare"];
    let served = |world: &mut World| _ = world.service("default", "s", json!({"app": "x"}));
    type Prepare<'a> = &'a dyn Fn(&mut World);
    let cases: [(&str, Value, Prepare, &[&str]); 14] = [
        ("nobody is there", json!({}), &|_| {}, &all),
        ("its own word", json!({"zone": "a"}), &|_| {}, &["a1", "a2"]),
        ("its own word about both", json!({"zone": "a", "row": "2"}), &|_| {}, &["a2"]),
        ("a label that nobody asked about", json!({"disk": "d"}), &|_| {}, &all),
        ("no Service", json!({}), &|world| _ = world.pod_in("default", "q", x.clone(), at("a1")), &all),
        (
            "a Service and a pod",
            json!({}),
            &|world| served(world.pod_in("default", "q", more.clone(), at("a1"))),
            &["a1"],
        ),
        (
            "its own word before that of others",
            json!({"row": "2"}),
            &|world| served(world.pod_in("default", "q", x.clone(), at("a1"))),
            &["a2"],
        ),
        (
            "the first by name",
            json!({}),
            &|world| {
                served(world.pod_in("default", "r", x.clone(), at("a1")).pod_in("default", "q", x.clone(), at("b1")))
            },
            &["b1"],
        ),
        (
            "a node without labels",
            json!({}),
            &|world| served(world.pod_in("default", "q", x.clone(), at("bare"))),
            &all,
        ),
        ("another namespace", json!({}), &|world| served(world.pod_in("other", "q", x.clone(), at("a1"))), &all),
        ("fewer labels", json!({}), &|world| served(world.pod_in("default", "q", json!({}), at("a1"))), &all),
        ("an unknown node", json!({}), &|world| served(world.pod_in("default", "q", x.clone(), at("c"))), &all),
        (
            "a Service of others",
            json!({}),
            &|world| {
                world.pod_in("default", "q", x.clone(), at("a1")).service("other", "s", json!({"app": "x"}));
                world.service("default", "s", json!({"app": "y"})).service("default", "t", json!({}));
            },
            &all,
        ),
        (
            "a pod that is nominated",
            json!({}),
            &|world| {
                let status = json!({"nominatedNodeName": "a1"});
                let object = json!({"metadata": {"uid": "q", "labels": x}, "spec": {"priority": 9}, "status": status});
                served(world.put(Kind::Pod, Key::new("default", "q"), object));
            },
            &all,
        ),
    ];
    for (what, selector, prepare, expected) in cases {
        let mut world = world_with_service_affinity(json!(["zone", "row"]), json!([]));
        world.node("a1", json!({"zone": "a", "row": "1"})).node("a2", json!({"zone": "a", "row": "2"}));
        world.node("b1", json!({"zone": "b", "row": "1", "disk": "d"})).node("bare", json!({}));
        prepare(&mut world);
        let pod = world.pod("p", json!({"labels": x}), json!({"nodeSelector": selector}));
        let found: Vec<_> = world.plan(&pod).explanation.feasible.iter().map(|name| name.to_string()).collect();
        assert_eq!(found, expected, "{what}");
    }
}

#[test]
fn service_affinity_rejects_nodes_with_other_label_values() {
    let mut world = world_with_service_affinity(json!(["zone"]), json!([]));
    world.node("a", json!({"zone": "a"})).node("b", json!({"zone": "b"})).service("default", "s", json!({"app": "x"}));
    let spec = |node: &str, priority: i64| {
        let asks = json!({"requests": {"cpu": "4"}});
        json!({"nodeName": node, "priority": priority, "containers": [{"resources": asks}]})
    };
    world.pod_in("default", "first", json!({"app": "x"}), spec("a", 1));
    let mut own = spec("", 5);
    own["nodeName"] = Value::Null;
    let pod = world.pod("p", json!({"labels": {"app": "x"}}), own);
    let plan = world.plan(&pod);
    let why = "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) didn't match service affinity.";
    assert!(message(&plan).contains(why), "{}", message(&plan));
    let PlanOutcome::Unschedulable(told) = &plan.outcome else { panic!("it lies nowhere") };
    let goes: Vec<_> = told.victims.iter().flat_map(|victims| &victims.pods).map(|pod| &*pod.key.name).collect();
    assert_eq!((goes, &told.rejectors[..]), (vec!["first"], &["NodeResourcesFit", "ServiceAffinity"][..]));
    // If the pod `first` were evicted, service affinity would still require the zone of the pod `second`, which has a
    // higher priority and cannot be evicted. So evicting `first` does not help.
    world.pod_in("default", "second", json!({"app": "x"}), spec("b", 9));
    let plan = world.plan(&pod);
    let why = "1 No preemption victims found for incoming pod, 1 node(s) didn't match service affinity.";
    assert!(message(&plan).contains(&format!("preemption: 0/2 nodes are available: {why}")), "{}", message(&plan));
}

#[test]
fn service_anti_affinity_spreads_pods_by_node_labels() {
    let x = || json!({"app": "x"});
    for (labels, selector, raw, normalized) in [
        (json!(["zone"]), Some(x()), [2, 1, 1, 0, 0], [25, 25, 75, 100, 0]),
        (json!(["zone", "rack"]), Some(x()), [2, 1, 1, 0, 0], [37, 37, 62, 50, 50]),
        // A label that is listed twice counts twice.
        (json!(["zone", "zone", "rack"]), Some(x()), [2, 1, 1, 0, 0], [33, 33, 66, 66, 33]),
        (json!(["zone"]), None, [0; 5], [100, 100, 100, 100, 0]),
        (json!(["zone"]), Some(json!({"app": "y"})), [0; 5], [100, 100, 100, 100, 0]),
        (json!(["nothing"]), Some(x()), [2, 1, 1, 0, 0], [0; 5]),
    ] {
        let mut world = world_with_service_affinity(json!([]), labels.clone());
        world.node("a1", json!({"zone": "a", "rack": "1"})).node("a2", json!({"zone": "a", "rack": "2"}));
        world.node("b", json!({"zone": "b", "rack": "2"})).node("c", json!({"zone": "c"}));
        world.node("bare", json!({"rack": "3"}));
        for (at, node) in ["a1", "a1", "a2", "b"].iter().enumerate() {
            world.pod_in("default", &format!("q{at}"), x(), json!({"nodeName": node}));
        }
        // Three pods on node `c` do not count: one is in another namespace, one lacks the label `app`, and one is being
        // deleted.
        let there = || json!({"nodeName": "c"});
        world.pod_in("other", "q", x(), there()).pod_in("default", "r", json!({}), there());
        let mut leaves = json!({"metadata": {"uid": "l", "labels": x()}, "spec": there()});
        leaves["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        world.put(Kind::Pod, Key::new("default", "l"), leaves);
        if let Some(selector) = selector {
            // Several Services select the pod, so the first of them by name decides.
            world.service("default", "s", selector).service("default", "t", json!({"more": "1"}));
        }
        let pod = world.pod("p", json!({"labels": {"app": "x", "more": "1"}}), json!({}));
        let explanation = world.plan(&pod).explanation;
        let scores = explanation.scores.iter().find(|scores| scores.plugin == "ServiceAffinity").expect("scores");
        assert_eq!((&scores.raw[..], &scores.normalized[..]), (&raw[..], &normalized[..]), "{labels}");
    }
}
