use super::*;
use crate::plugins::{
    dynamic_resources, inter_pod_affinity, node_affinity, node_resources_fit, node_volume_limits, pod_topology_spread,
    service_affinity, taint_toleration, volume_binding,
};
use holdfast_value::{Value, json};

/// The default time after which a pod that waits for an event is tried again without an event.
const UNSCHEDULABLE_MAX: Time = 300 * SECOND;

struct Scene {
    snapshot: Snapshot,
    configuration: Configuration,
    queue: Queue,
}

impl Scene {
    fn new() -> Self {
        let configuration = Configuration::default();
        Scene { queue: Queue::new(&configuration), snapshot: Snapshot::new(), configuration }
    }

    fn tell(&mut self, kind: Kind, key: &Key, object: Option<Value>, now: Time) {
        let event = self.snapshot.apply(kind, key, object.as_ref());
        let context = QueueContext { snapshot: &self.snapshot, configuration: &self.configuration };
        if let Some(event) = event {
            self.queue.handle_event(context, event, now);
        }
    }

    fn pod(&mut self, name: &str, spec: Value, now: Time) {
        self.pod_in("default", name, spec, now);
    }

    fn pod_in(&mut self, namespace: &str, name: &str, spec: Value, now: Time) {
        let object = json!({"metadata": {"uid": name}, "spec": spec});
        self.tell(Kind::Pod, &Key::new(namespace, name), Some(object), now);
    }

    fn flush(&mut self, now: Time) {
        self.queue.flush(QueueContext { snapshot: &self.snapshot, configuration: &self.configuration }, now);
    }

    fn pop(&mut self, now: Time) -> Option<String> {
        self.queue.pop(now).map(|(key, _)| key.name.to_string())
    }

    fn requeue_failed(&mut self, name: &str, rejectors: &[&'static str], now: Time) {
        let context = QueueContext { snapshot: &self.snapshot, configuration: &self.configuration };
        let failure =
            if rejectors.is_empty() { AttemptFailure::Error } else { AttemptFailure::Rejected(rejectors.to_vec()) };
        self.queue.requeue_failed(context, &Key::new("default", name), failure, now);
    }

    fn node(&mut self, cpu: &str, taints: Value, now: Time) {
        let object = json!({"spec": {"taints": taints}, "status": {"allocatable": {"cpu": cpu, "pods": "10"}}});
        self.tell(Kind::Node, &Key::cluster("n"), Some(object), now);
    }
}

fn asks(cpu: &str) -> Value {
    json!({"containers": [{"resources": {"requests": {"cpu": cpu}}}]})
}

#[test]
fn pods_are_popped_by_priority_and_then_by_time() {
    let mut scene = Scene::new();
    scene.pod("first", json!({}), 1);
    scene.pod("second", json!({}), 2);
    scene.pod("urgent", json!({"priority": 5}), 3);
    scene.pod("anothers", json!({"schedulerName": "another"}), 4);
    scene.pod("placed", json!({"nodeName": "n"}), 5);
    let order: Vec<_> = std::iter::from_fn(|| scene.pop(6)).collect();
    assert_eq!(order, ["urgent", "first", "second"]);
}

#[test]
fn a_namespace_with_thousands_of_pods_does_not_delay_others() {
    let mut scene = Scene::new();
    for number in 0..3 * TURN_PODS {
        scene.pod_in("crowd", &format!("{number:05}"), json!({}), 1);
    }
    scene.pod("mine", json!({}), 2);
    scene.pod_in("crowd", "urgent", json!({"priority": 5}), 3);
    let order: Vec<_> = std::iter::from_fn(|| scene.pop(4)).collect();
    assert_eq!(order.iter().position(|name| name == "mine"), Some(1 + TURN_PODS));
    let others = order.iter().filter(|name| *name != "mine");
    let first = std::iter::once("urgent".to_owned());
    assert!(others.eq(first.chain((0..3 * TURN_PODS).map(|number| format!("{number:05}"))).collect::<Vec<_>>().iter()));
    assert!(scene.queue.active_by_namespace.is_empty());
}

#[test]
fn expensive_pods_count_as_several() {
    let mut scene = Scene::new();
    let tolerations: Vec<_> =
        (0..TURN_PODS * WEIGHT_TERMS).map(|number| json!({"key": format!("k{number}")})).collect();
    for number in 0..3 {
        scene.pod_in("crowd", &format!("large-{number}"), json!({"tolerations": tolerations}), 1);
    }
    scene.pod("mine", json!({}), 2);
    // The pod's weight has decreased while it was active. When the pod leaves, its namespace's count must decrease by
    // the weight with which the pod was counted.
    scene.pod_in("crowd", "large-2", json!({"tolerations": []}), 3);
    let order: Vec<_> = std::iter::from_fn(|| scene.pop(4)).collect();
    assert_eq!(order, ["large-0", "mine", "large-1", "large-2"]);
    assert!(scene.queue.active_by_namespace.is_empty());
}

#[test]
fn a_pod_that_waited_longer_is_tried_before_newer_pods() {
    for by_flush in [false, true] {
        let mut scene = Scene::new();
        scene.pod("old", asks("1"), 0);
        scene.pop(0);
        scene.requeue_failed("old", &[node_resources_fit::NAME], SECOND);
        let later = if by_flush { UNSCHEDULABLE_MAX + 10 * SECOND } else { 20 * SECOND };
        for name in ["new1", "new2"] {
            scene.pod(name, asks("1"), later);
        }
        if by_flush {
            scene.flush(later + SECOND)
        } else {
            scene.node("1", json!([]), later + SECOND)
        }
        let order: Vec<_> = std::iter::from_fn(|| scene.pop(later + SECOND)).collect();
        assert_eq!(order, ["old", "new1", "new2"], "{by_flush}");
    }
    // A pod with a scheduling gate is in the queue, too, in the part for gated pods.
    let mut scene = Scene::new();
    scene.pod("gated", json!({"schedulingGates": [{"name": "g"}]}), 0);
    scene.pod("new", json!({}), 1);
    scene.pod("gated", json!({}), 2);
    let order: Vec<_> = std::iter::from_fn(|| scene.pop(3)).collect();
    assert_eq!(order, ["gated", "new"]);
}

#[test]
fn the_first_attempt_counts_from_when_a_pod_became_active() {
    let mut scene = Scene::new();
    scene.pod("p", json!({"schedulingGates": [{"name": "g"}]}), 0);
    scene.pod("p", json!({}), 5);
    let first_active = |scene: &mut Scene, now: Time| scene.queue.pop(now).map(|(_, attempt)| attempt.first_active);
    assert_eq!(first_active(&mut scene, 9), Some(5));
    scene.requeue_failed("p", &[], 10);
    assert_eq!(first_active(&mut scene, 60 * SECOND), Some(5));
}

#[test]
fn a_pod_that_became_gated_is_not_tried_again() {
    let claim = Key::new("default", "c");
    let spec =
        || json!({"containers": asks("1")["containers"], "resourceClaims": [{"name": "c", "resourceClaimName": "c"}]});
    for failure in [&[node_resources_fit::NAME][..], &[]] {
        let mut scene = Scene::new();
        scene.tell(Kind::ResourceClaim, &claim, Some(json!({"spec": {}})), 0);
        scene.pod("p", spec(), 0);
        assert_eq!(scene.pop(0).as_deref(), Some("p"));
        scene.tell(Kind::ResourceClaim, &claim, None, 0);
        // The node is added while the pod is in flight. That event may help the pod, so it is tried again.
        scene.node("1", json!([]), 0);
        scene.requeue_failed("p", failure, 0);
        assert_eq!((scene.queue.pending_pods().gated, scene.pop(60 * SECOND)), (1, None), "{failure:?}");
        scene.tell(Kind::ResourceClaim, &claim, Some(json!({"spec": {}})), 61 * SECOND);
        assert_eq!(scene.pop(61 * SECOND).as_deref(), Some("p"));
    }
}

#[test]
fn a_pod_whose_claim_is_deleted_is_gated() {
    let mut scene = Scene::new();
    let going = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "spec": {}});
    scene.tell(Kind::ResourceClaim, &Key::new("default", "c"), Some(going), 0);
    scene.pod("p", json!({"resourceClaims": [{"name": "c", "resourceClaimName": "c"}]}), 0);
    assert_eq!((scene.queue.pending_pods().gated, scene.pop(1)), (1, None));
}

#[test]
fn a_claim_that_needs_no_object_is_skipped() {
    let mut scene = Scene::new();
    scene.tell(Kind::ResourceClaim, &Key::new("default", "ok"), Some(json!({"spec": {}})), 0);
    let claims = json!([{"name": "a", "resourceClaimTemplateName": "t"}, {"name": "b", "resourceClaimName": "ok"}]);
    let object = json!({"metadata": {"uid": "p"}, "spec": {"resourceClaims": claims},
        "status": {"resourceClaimStatuses": [{"name": "a"}]}});
    scene.tell(Kind::Pod, &Key::new("default", "p"), Some(object), 0);
    assert_eq!(scene.pop(1).as_deref(), Some("p"));
}

/// Events have the names that Kubernetes gives them.
#[test]
fn events_have_names() {
    let mut snapshot = Snapshot::new();
    let mut label = |kind: Kind, object: Value| {
        let key = if kind == Kind::Pod { Key::new("default", "p") } else { Key::cluster("x") };
        snapshot.apply(kind, &key, Some(&object).filter(|object| !object.is_null())).and_then(|event| event.label())
    };
    let node = |label: &str, cpu: &str, taints: Value, ready: &str| {
        json!({"metadata": {"labels": {"l": label}}, "spec": {"taints": taints},
            "status": {"allocatable": {"cpu": cpu}, "conditions": [{"type": "Ready", "status": ready}]}})
    };
    let taint = || json!([{"key": "k", "effect": "NoSchedule"}]);
    let mut unschedulable = node("b", "2", taint(), "False");
    unschedulable["spec"]["unschedulable"] = true.into();
    let pod = |spec: Value, labels: Value, status: Value| json!({"metadata": {"uid": "p", "labels": labels}, "spec": spec, "status": status});
    let placed = |cpu: &str| {
        let mut spec = asks(cpu);
        spec["nodeName"] = "n".into();
        spec
    };
    let none = || json!({});
    let gated = json!({"schedulingGates": [{"name": "g"}]});
    let tolerant = json!({"tolerations": [{"operator": "Exists"}]});
    let made = json!({"resourceClaimStatuses": [{"name": "a", "resourceClaimName": "b"}]});
    for (kind, object, expected) in [
        (Kind::Node, node("a", "1", json!([]), "True"), Some("NodeAdd")),
        (Kind::Node, node("a", "1", json!([]), "True"), None),
        (Kind::Node, node("a", "1", json!([]), "False"), Some("NodeUpdateNodeCondition")),
        (Kind::Node, node("a", "1", taint(), "False"), Some("NodeUpdateNodeTaint")),
        (Kind::Node, node("b", "1", taint(), "False"), Some("NodeUpdateNodeLabel")),
        (Kind::Node, node("c", "2", taint(), "False"), Some("NodeUpdateNodeAllocatable")),
        (Kind::Node, node("b", "2", taint(), "False"), Some("NodeUpdateNodeLabel")),
        (Kind::Node, unschedulable, None),
        (Kind::Node, node("c", "3", taint(), "False"), Some("NodeUpdateNodeTaint")),
        (Kind::Node, Value::Null, Some("NodeDelete")),
        (Kind::Pod, pod(gated, none(), none()), Some("UnschedulablePodAdd")),
        (Kind::Pod, pod(none(), none(), none()), Some("UnschedulablePodUpdatePodSchedulingGatesEliminated")),
        (Kind::Pod, pod(none(), none(), made.clone()), Some("UnschedulablePodUpdatePodGeneratedResourceClaim")),
        (Kind::Pod, pod(tolerant, none(), made), Some("UnschedulablePodUpdatePodToleration")),
        (Kind::Pod, pod(placed("2"), none(), none()), Some("AssignedPodAdd")),
        (Kind::Pod, pod(placed("2"), none(), json!({"phase": "Running"})), Some("AssignedPodUpdate")),
        (Kind::Pod, pod(placed("2"), json!({"a": "b"}), none()), Some("AssignedPodUpdatePodLabel")),
        (Kind::Pod, pod(placed("1"), json!({"a": "b"}), none()), Some("AssignedPodUpdatePodScaleDown")),
        (Kind::Pod, Value::Null, Some("AssignedPodDelete")),
        (Kind::StorageClass, none(), Some("storage.k8s.io/StorageClassAdd")),
        (Kind::CsiNode, none(), Some("storage.k8s.io/CSINodeAdd")),
        (Kind::DeviceClass, none(), Some("resource.k8s.io/DeviceClassAdd")),
        (Kind::DeviceClass, none(), Some("resource.k8s.io/DeviceClassUpdate")),
        (Kind::DeviceClass, Value::Null, Some("resource.k8s.io/DeviceClassDelete")),
        (Kind::Namespace, none(), None),
        (Kind::Service, none(), Some("ServiceAdd")),
    ] {
        assert_eq!(label(kind, object.clone()), expected, "{kind:?} {object}");
    }
}

#[test]
fn scheduling_gates_hold_a_pod_until_they_are_removed() {
    let mut scene = Scene::new();
    scene.pod("p", json!({"schedulingGates": [{"name": "g"}]}), 0);
    assert_eq!((scene.pop(1), scene.queue.pending_pods().gated), (None, 1));
    scene.node("4", json!([]), 2);
    assert_eq!(scene.pop(3), None);
    scene.pod("p", json!({}), 4);
    assert_eq!(scene.pop(5).as_deref(), Some("p"));
}

#[test]
fn incoming_pods_are_counted_by_event() {
    let mut scene = Scene::new();
    let gated = |gates: &[&str]| {
        let gates: Value = gates.iter().map(|name| json!({"name": name})).collect();
        json!({"schedulingGates": gates, "containers": asks("2")["containers"]})
    };
    scene.pod("p", gated(&["a", "b"]), 0);
    // Of the pod's two gates one is removed: the pod stays gated until the other gate is removed, too.
    scene.pod("p", gated(&["b"]), 1);
    scene.pod("p", gated(&[]), 2);
    scene.pop(3);
    scene.requeue_failed("p", &[taint_toleration::NAME], 4);
    let mut tolerant = asks("2");
    tolerant["tolerations"] = json!([{"operator": "Exists"}]);
    // The pod's own update moves the pod to back-off. No pod is active, so the pod is popped before its back-off is
    // over.
    scene.pod("p", tolerant, 5);
    assert_eq!(scene.pop(6).as_deref(), Some("p"));
    let counted: Vec<_> = scene.queue.incoming_pods().collect();
    assert_eq!(
        counted,
        [
            ("active", "PopFromBackoffQ", 1),
            ("active", "UnschedulablePodUpdatePodSchedulingGatesEliminated", 1),
            ("backoff", "UnschedulablePodUpdatePodToleration", 1),
            ("gated", "UnschedulablePodAdd", 1),
            ("unschedulable", "ScheduleAttemptFailure", 1),
        ]
    );
}

#[test]
fn a_higher_attach_limit_wakes_pods_with_too_many_volumes() {
    let csi = |limits: &[(&str, u32)]| {
        let driver = |(name, count): &(&str, u32)| json!({"name": name, "allocatable": {"count": count}});
        json!({"spec": {"drivers": limits.iter().map(driver).collect::<Vec<_>>()}})
    };
    for (after, wakes) in [
        (vec![("d", 2)], false),
        (vec![("d", 1)], false),
        (vec![("d", 3)], true),
        (vec![("d", 2), ("e", 1)], true),
        (vec![], true),
    ] {
        let mut scene = Scene::new();
        scene.tell(Kind::CsiNode, &Key::cluster("n"), Some(csi(&[("d", 2)])), 0);
        scene.pod("p", json!({}), 0);
        assert_eq!(scene.pop(0).as_deref(), Some("p"));
        scene.requeue_failed("p", &[node_volume_limits::NAME], 0);
        scene.tell(Kind::CsiNode, &Key::cluster("n"), Some(csi(&after)), 20 * SECOND);
        assert_eq!(scene.pop(20 * SECOND).is_some(), wakes, "{after:?}");
    }
}

#[test]
fn a_pods_own_label_change_wakes_it_if_constraints_count_it_differently() {
    let selector = json!({"matchLabels": {"app": "x"}});
    let constraint =
        json!({"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector});
    for (labels, wakes) in [(json!({"app": "x", "other": "1"}), false), (json!({"app": "y"}), true), (json!({}), true)]
    {
        let mut scene = Scene::new();
        let told = |scene: &mut Scene, labels: Value, now: Time| {
            let spec = json!({"topologySpreadConstraints": [constraint]});
            let pod = json!({"metadata": {"uid": "p", "labels": labels}, "spec": spec});
            scene.tell(Kind::Pod, &Key::new("default", "p"), Some(pod), now);
        };
        told(&mut scene, json!({"app": "x"}), 0);
        assert_eq!(scene.pop(0).as_deref(), Some("p"));
        scene.requeue_failed("p", &[pod_topology_spread::NAME], 0);
        told(&mut scene, labels.clone(), 20 * SECOND);
        assert_eq!(scene.pop(20 * SECOND).is_some(), wakes, "{labels}");
    }
}

#[test]
fn new_nodes_wake_pods_with_affinity() {
    let term = json!([{"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "x"}}}]);
    let required = json!({"requiredDuringSchedulingIgnoredDuringExecution": term});
    let (with, without) = (json!({"podAffinity": required}), json!({"podAntiAffinity": required}));
    let (here, nowhere) = (json!({"zone": "a"}), json!({"rack": "r"}));
    for (affinity, labels, wakes) in [
        (&with, &here, true),
        (&with, &nowhere, false),
        (&without, &nowhere, true),
        (&json!({"podAffinity": required, "podAntiAffinity": required}), &nowhere, true),
        (&json!({}), &nowhere, true),
    ] {
        let mut scene = Scene::new();
        scene.pod("p", json!({"affinity": affinity}), 0);
        assert_eq!(scene.pop(0).as_deref(), Some("p"));
        scene.requeue_failed("p", &[inter_pod_affinity::NAME], 0);
        scene.tell(Kind::Node, &Key::cluster("n"), Some(json!({"metadata": {"labels": labels}})), 20 * SECOND);
        assert_eq!(scene.pop(20 * SECOND).is_some(), wakes, "{affinity} {labels}");
    }
}

/// Events of Services have a label only if the old plug-in ServiceAffinity is enabled.
#[test]
fn changes_of_peers_wake_pods_with_service_affinity() {
    let plugins = json!({"multiPoint": {"enabled": [{"name": service_affinity::NAME}]}});
    let config = json!([{"name": service_affinity::NAME, "args": {"affinityLabels": ["zone"]}}]);
    let document = json!({"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
        "profiles": [{"plugins": plugins, "pluginConfig": config}]});
    let (ours, theirs, none) = (json!({"app": "x"}), json!({"app": "y"}), json!({}));
    let pod = |name: &str, labels: &Value| {
        let spec = json!({"nodeName": "n", "containers": []});
        (Kind::Pod, Key::new("default", name), json!({"metadata": {"uid": name, "labels": labels}, "spec": spec}))
    };
    let node = |name: &str, labels: Value| (Kind::Node, Key::cluster(name), json!({"metadata": {"labels": labels}}));
    let gone = |(kind, key, _)| (kind, key, Value::Null);
    let service = |namespace: &str, name: &str, labels: &Value| {
        (Kind::Service, Key::new(namespace, name), json!({"spec": {"selector": labels}}))
    };
    let (zoned, shelved) = (json!({"zone": "a"}), json!({"zone": "b", "shelf": "1"}));
    for ((kind, key, object), wakes) in [
        (pod("new", &ours), true),
        (pod("new", &theirs), false),
        (pod("there", &ours), false),
        (pod("there", &theirs), true),
        (gone(pod("there", &none)), true),
        (node("new", none.clone()), true),
        (node("n", shelved), false),
        (node("n", zoned), true),
        (gone(node("n", none.clone())), true),
        (service("default", "new", &ours), false),
        (service("default", "s", &theirs), true),
        (gone(service("default", "s", &none)), true),
        (gone(service("other", "s", &none)), false),
    ] {
        let mut scene = Scene { configuration: Configuration::of(&document).expect("it is right"), ..Scene::new() };
        let first = [node("n", json!({"zone": "b"})), pod("there", &ours), service("default", "s", &ours)];
        for (kind, key, object) in first.into_iter().chain([service("other", "s", &ours)]) {
            scene.tell(kind, &key, Some(object), 0);
        }
        let own = json!({"metadata": {"uid": "p", "labels": ours}});
        scene.tell(Kind::Pod, &Key::new("default", "p"), Some(own), 0);
        assert_eq!(scene.pop(0).as_deref(), Some("p"));
        scene.requeue_failed("p", &[service_affinity::NAME], 0);
        scene.tell(kind, &key, Some(object.clone()).filter(|object| !object.is_null()), 20 * SECOND);
        assert_eq!(scene.pop(20 * SECOND).is_some(), wakes, "{kind:?} {key:?} {object}");
    }
    let mut usual = Scene::new();
    usual.pod("p", json!({}), 0);
    usual.pop(0);
    usual.requeue_failed("p", &["Extender"], 0);
    let (kind, key, object) = service("default", "s", &ours);
    usual.tell(kind, &key, Some(object), 20 * SECOND);
    assert_eq!(usual.pop(20 * SECOND), None);
}

#[test]
fn only_an_event_with_a_queue_hint_wakes_a_pod() {
    let mut scene = Scene::new();
    scene.pod("p", asks("2"), 0);
    scene.pop(0);
    scene.requeue_failed("p", &[node_resources_fit::NAME], 0);
    scene.node("1", json!([]), 5 * SECOND);
    assert_eq!(scene.queue.pending_pods().unschedulable, 1, "the node is too small");
    scene.node("4", json!([]), 6 * SECOND);
    assert_eq!(scene.pop(6 * SECOND).as_deref(), Some("p"));
}

#[test]
fn events_during_an_attempt_are_not_missed() {
    let mut scene = Scene::new();
    scene.node("4", json!([{"key": "k", "effect": "NoSchedule"}]), 0);
    scene.pod("p", json!({}), 0);
    scene.pop(0);
    scene.node("4", json!([]), 1);
    scene.requeue_failed("p", &[taint_toleration::NAME], 2);
    assert_eq!(scene.queue.pending_pods().backoff, 1);
    assert_eq!(scene.pop(3).as_deref(), Some("p"), "with nobody else there, it need not wait");
}

#[test]
fn errors_wait_for_their_back_off_even_if_no_pod_is_active() {
    let mut scene = Scene::new();
    scene.pod("p", json!({}), 0);
    scene.pop(0);
    scene.requeue_failed("p", &[], 0);
    assert_eq!(scene.pop(SECOND), None);
    assert_eq!(scene.queue.next_flush(), Some(2 * SECOND));
    assert_eq!(scene.pop(2 * SECOND).as_deref(), Some("p"));
}

#[test]
fn a_pod_that_waits_too_long_is_tried_again() {
    let mut scene = Scene::new();
    scene.pod("p", asks("2"), 0);
    scene.pop(0);
    scene.requeue_failed("p", &[node_resources_fit::NAME], 0);
    scene.flush(UNSCHEDULABLE_MAX);
    assert_eq!(scene.pop(UNSCHEDULABLE_MAX), None);
    let now = UNSCHEDULABLE_MAX + FLUSH_EVERY + 1;
    scene.flush(now);
    let tried = |scene: &mut Scene, now| scene.queue.pop(now).map(|(key, attempt)| (key.name, attempt.flushed));
    assert_eq!(tried(&mut scene, now), Some(("p".into(), true)));
    scene.requeue_failed("p", &[node_resources_fit::NAME], now);
    scene.node("4", json!([]), now + 60 * SECOND);
    assert_eq!(tried(&mut scene, now + 60 * SECOND), Some(("p".into(), false)), "an event gave hope");
}

#[test]
fn bound_and_deleted_pods_leave_nothing_behind() {
    let mut scene = Scene::new();
    for name in ["bound", "deleted", "refused"] {
        scene.pod(name, asks("2"), 0);
        scene.pop(0);
    }
    scene.pod("bound", json!({"nodeName": "n"}), 1);
    scene.tell(Kind::Pod, &Key::new("default", "deleted"), None, 1);
    scene.requeue_failed("deleted", &[node_resources_fit::NAME], 1);
    scene.requeue_failed("refused", &[node_resources_fit::NAME], 1);
    scene.tell(Kind::Pod, &Key::new("default", "refused"), None, 2);
    assert_eq!(scene.queue.pending_pods(), PendingPods::default());
    assert!(scene.queue.in_flight_events.is_empty() && scene.queue.entries.is_empty());
}

#[test]
fn volumes_and_devices_of_other_pods_wake_no_pod() {
    let mut scene = Scene::new();
    let claim = |class: &str| Some(json!({"metadata": {"uid": "c"}, "spec": {"storageClassName": class}}));
    for at in 0..20 {
        let (pod, name, class) = (format!("p{at}"), format!("c{at}"), format!("s{}", at % 2));
        scene.tell(Kind::PersistentVolumeClaim, &Key::new("default", &name), claim(&class), 0);
        scene.pod(&pod, json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": name}}]}), 0);
        scene.pop(0);
        scene.requeue_failed(&pod, &[volume_binding::NAME], 0);
    }
    scene.tell(Kind::ResourceClaim, &Key::new("default", "d"), Some(json!({"spec": {}})), 0);
    scene.pod("d", json!({"resourceClaims": [{"name": "d", "resourceClaimName": "d"}]}), 0);
    scene.pop(0);
    scene.requeue_failed("d", &[dynamic_resources::NAME], 0);
    let mut volumes = 0;
    let mut woken = |scene: &mut Scene, spec: Value| {
        let before = scene.queue.pending_pods().unschedulable;
        volumes += 1;
        scene.tell(Kind::PersistentVolume, &Key::cluster(&format!("v{volumes}")), Some(json!({"spec": spec})), 0);
        before - scene.queue.pending_pods().unschedulable
    };
    let held = |claim: &str| json!({"storageClassName": "s0", "claimRef": {"namespace": "default", "name": claim}});
    assert_eq!(woken(&mut scene, held("another")), 0, "a volume of somebody else");
    assert_eq!(woken(&mut scene, json!({"storageClassName": "other"})), 0, "a free volume of a class nobody asks for");
    assert_eq!(woken(&mut scene, held("c4")), 1, "a volume held for one of them");
    assert_eq!(woken(&mut scene, json!({"storageClassName": "s0"})), 9, "a free volume for all others of its class");
    let unschedulable = scene.queue.pending_pods().unschedulable;
    for class in ["other", "another"] {
        scene.tell(Kind::StorageClass, &Key::cluster(class), Some(json!({"provisioner": "p"})), 0);
    }
    scene.tell(Kind::PersistentVolumeClaim, &Key::new("default", "x"), claim("s1"), 0);
    scene.tell(Kind::ResourceClaim, &Key::new("default", "x"), Some(json!({"spec": {}})), 0);
    assert_eq!(scene.queue.pending_pods().unschedulable, unschedulable, "classes and claims of others");
    scene.tell(Kind::StorageClass, &Key::cluster("s1"), Some(json!({"provisioner": "p"})), 0);
    assert_eq!(scene.queue.pending_pods().unschedulable, 1, "the class of all that still wait for volumes");
    scene.tell(Kind::ResourceClaim, &Key::new("default", "d"), Some(json!({"spec": {}})), 0);
    assert_eq!(scene.queue.pending_pods().unschedulable, 0, "its own claim");
}

#[test]
fn the_claim_made_for_a_pod_wakes_it_among_equal_pods() {
    let mut scene = Scene::new();
    let asks = || json!({"containers": [{"name": "c", "resources": {"requests": {"example.com/gpu": "1"}}}]});
    scene.snapshot.set_extended_resources(true);
    scene.tell(
        Kind::DeviceClass,
        &Key::cluster("gpu"),
        Some(json!({"spec": {"extendedResourceName": "example.com/gpu"}})),
        0,
    );
    let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "b", "uid": "b", "controller": true});
    let meta = json!({"uid": "c", "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"},
        "ownerReferences": [owner]});
    let made = Key::new("default", "b-extended-resources-x");
    scene.tell(Kind::ResourceClaim, &made, Some(json!({"metadata": meta, "spec": {}})), 0);
    for name in ["a", "b"] {
        scene.pod(name, asks(), 0);
        scene.pop(0);
        scene.requeue_failed(name, &[dynamic_resources::NAME], 0);
    }
    assert_eq!(scene.queue.pending_pods().unschedulable, 2);
    scene.tell(Kind::ResourceClaim, &made, None, SECOND);
    assert_eq!(
        scene.queue.pending_pods().unschedulable,
        0,
        "the first of those that are alike is not the one it was made for"
    );
}

/// The pods of a StatefulSet all differ in their template, so a hint may have to be computed for each of any number of
/// pods.
#[test]
fn hints_are_not_computed_for_events_that_cannot_concern_other_pods() {
    let mut scene = Scene::new();
    for number in 0..50 {
        let name = format!("p{number}");
        scene.pod(&name, json!({"nodeSelector": {"no": name}}), 0);
        scene.pop(0).expect("it comes to be tried");
        let plugin = if number % 2 == 0 { node_affinity::NAME } else { node_resources_fit::NAME };
        scene.requeue_failed(&name, &[plugin], 0);
    }
    scene.queue.take_hint_calls();
    // The event of a waiting pod cannot help other pods.
    scene.pod("other", json!({}), SECOND);
    scene.tell(Kind::Pod, &Key::new("default", "other"), None, SECOND);
    assert_eq!(scene.queue.take_hint_calls().len(), 0);
    // If a bound pod is deleted, its node has more free resources, but the node's labels have not changed.
    scene.pod("placed", json!({"nodeName": "n"}), SECOND);
    scene.queue.take_hint_calls();
    scene.tell(Kind::Pod, &Key::new("default", "placed"), None, SECOND);
    assert_eq!(
        scene.queue.take_hint_calls().iter().filter(|hint_calls| hint_calls.plugin == node_affinity::NAME).count(),
        0
    );
    assert_eq!(scene.queue.unschedulable.len(), 25, "there is room for the others");
    scene.node("4", json!([]), SECOND);
    assert_eq!(scene.queue.take_hint_calls().len(), 25);
}
