use super::*;
use crate::plugins::{dynamic_resources, node_resources_fit, taint_toleration, volume_binding};
use serde_json::{Value, json};

/// How long a pod waits for an event when nothing else is configured.
const WAIT_MAX: Time = 300 * SECOND;

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
        let world = World { snapshot: &self.snapshot, configuration: &self.configuration };
        if let Some(event) = event {
            self.queue.event(world, event, now);
        }
    }

    fn pod(&mut self, name: &str, spec: Value, now: Time) {
        let object = json!({"metadata": {"uid": name}, "spec": spec});
        self.tell(Kind::Pod, &Key::new("default", name), Some(object), now);
    }

    fn pop(&mut self, now: Time) -> Option<String> {
        self.queue.pop(now).map(|(key, _)| key.name.to_string())
    }

    fn failed(&mut self, name: &str, rejectors: &[&'static str], now: Time) {
        let world = World { snapshot: &self.snapshot, configuration: &self.configuration };
        let failure = if rejectors.is_empty() { Failure::Error } else { Failure::Refused(rejectors.to_vec()) };
        self.queue.failed(world, &Key::new("default", name), failure, now);
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
fn pods_are_taken_by_priority_and_then_by_time() {
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
fn gates_keep_a_pod_away_until_they_are_gone() {
    let mut scene = Scene::new();
    scene.pod("p", json!({"schedulingGates": [{"name": "g"}]}), 0);
    assert_eq!((scene.pop(1), scene.queue.lengths().gated), (None, 1));
    scene.node("4", json!([]), 2);
    assert_eq!(scene.pop(3), None);
    scene.pod("p", json!({}), 4);
    assert_eq!(scene.pop(5).as_deref(), Some("p"));
}

#[test]
fn only_an_event_that_gives_hope_wakes_a_pod() {
    let mut scene = Scene::new();
    scene.pod("p", asks("2"), 0);
    scene.pop(0);
    scene.failed("p", &[node_resources_fit::NAME], 0);
    scene.node("1", json!([]), 5 * SECOND);
    assert_eq!(scene.queue.lengths().unschedulable, 1, "the node is too small");
    scene.node("4", json!([]), 6 * SECOND);
    assert_eq!(scene.pop(6 * SECOND).as_deref(), Some("p"));
}

#[test]
fn what_happens_while_a_pod_is_tried_is_not_missed() {
    let mut scene = Scene::new();
    scene.node("4", json!([{"key": "k", "effect": "NoSchedule"}]), 0);
    scene.pod("p", json!({}), 0);
    scene.pop(0);
    scene.node("4", json!([]), 1);
    scene.failed("p", &[taint_toleration::NAME], 2);
    assert_eq!(scene.queue.lengths().backoff, 1);
    assert_eq!(scene.pop(3).as_deref(), Some("p"), "with nobody else there, it need not wait");
}

#[test]
fn errors_wait_for_their_back_off_even_alone() {
    let mut scene = Scene::new();
    scene.pod("p", json!({}), 0);
    scene.pop(0);
    scene.failed("p", &[], 0);
    assert_eq!(scene.pop(SECOND), None);
    assert_eq!(scene.queue.wakes_at(), Some(2 * SECOND));
    assert_eq!(scene.pop(2 * SECOND).as_deref(), Some("p"));
}

#[test]
fn who_waits_too_long_is_tried_again() {
    let mut scene = Scene::new();
    scene.pod("p", asks("2"), 0);
    scene.pop(0);
    scene.failed("p", &[node_resources_fit::NAME], 0);
    scene.queue.tick(WAIT_MAX);
    assert_eq!(scene.pop(WAIT_MAX), None);
    let now = WAIT_MAX + FLUSH_EVERY + 1;
    scene.queue.tick(now);
    let tried = |scene: &mut Scene, now| scene.queue.pop(now).map(|(key, attempt)| (key.name, attempt.flushed));
    assert_eq!(tried(&mut scene, now), Some(("p".into(), true)));
    scene.failed("p", &[node_resources_fit::NAME], now);
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
    scene.failed("deleted", &[node_resources_fit::NAME], 1);
    scene.failed("refused", &[node_resources_fit::NAME], 1);
    scene.tell(Kind::Pod, &Key::new("default", "refused"), None, 2);
    assert_eq!(scene.queue.lengths(), Lengths::default());
    assert!(scene.queue.missed.is_empty() && scene.queue.entries.is_empty());
}

#[test]
fn what_happens_to_the_volumes_and_devices_of_others_wakes_nobody() {
    let mut scene = Scene::new();
    let claim = |class: &str| Some(json!({"metadata": {"uid": "c"}, "spec": {"storageClassName": class}}));
    for at in 0..20 {
        let (pod, name, class) = (format!("p{at}"), format!("c{at}"), format!("s{}", at % 2));
        scene.tell(Kind::PersistentVolumeClaim, &Key::new("default", &name), claim(&class), 0);
        scene.pod(&pod, json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": name}}]}), 0);
        scene.pop(0);
        scene.failed(&pod, &[volume_binding::NAME], 0);
    }
    scene.tell(Kind::ResourceClaim, &Key::new("default", "d"), Some(json!({"spec": {}})), 0);
    scene.pod("d", json!({"resourceClaims": [{"name": "d", "resourceClaimName": "d"}]}), 0);
    scene.pop(0);
    scene.failed("d", &[dynamic_resources::NAME], 0);
    let mut volumes = 0;
    let mut woken = |scene: &mut Scene, spec: Value| {
        let before = scene.queue.lengths().unschedulable;
        volumes += 1;
        scene.tell(Kind::PersistentVolume, &Key::cluster(&format!("v{volumes}")), Some(json!({"spec": spec})), 0);
        before - scene.queue.lengths().unschedulable
    };
    let held = |claim: &str| json!({"storageClassName": "s0", "claimRef": {"namespace": "default", "name": claim}});
    assert_eq!(woken(&mut scene, held("another")), 0, "a volume of somebody else");
    assert_eq!(woken(&mut scene, json!({"storageClassName": "other"})), 0, "a free volume of a class nobody asks for");
    assert_eq!(woken(&mut scene, held("c4")), 1, "a volume held for one of them");
    assert_eq!(woken(&mut scene, json!({"storageClassName": "s0"})), 9, "a free volume for all others of its class");
    let unschedulable = scene.queue.lengths().unschedulable;
    for class in ["other", "another"] {
        scene.tell(Kind::StorageClass, &Key::cluster(class), Some(json!({"provisioner": "p"})), 0);
    }
    scene.tell(Kind::PersistentVolumeClaim, &Key::new("default", "x"), claim("s1"), 0);
    scene.tell(Kind::ResourceClaim, &Key::new("default", "x"), Some(json!({"spec": {}})), 0);
    assert_eq!(scene.queue.lengths().unschedulable, unschedulable, "classes and claims of others");
    scene.tell(Kind::StorageClass, &Key::cluster("s1"), Some(json!({"provisioner": "p"})), 0);
    assert_eq!(scene.queue.lengths().unschedulable, 1, "the class of all that still wait for volumes");
    scene.tell(Kind::ResourceClaim, &Key::new("default", "d"), Some(json!({"spec": {}})), 0);
    assert_eq!(scene.queue.lengths().unschedulable, 0, "its own claim");
}

#[test]
fn the_claim_that_was_made_for_a_pod_wakes_it_whoever_is_like_it() {
    let mut scene = Scene::new();
    let asks = || json!({"containers": [{"name": "c", "resources": {"requests": {"example.com/gpu": "1"}}}]});
    scene.snapshot.extended_resources = true;
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
        scene.failed(name, &[dynamic_resources::NAME], 0);
    }
    assert_eq!(scene.queue.lengths().unschedulable, 2);
    scene.tell(Kind::ResourceClaim, &made, None, SECOND);
    assert_eq!(
        scene.queue.lengths().unschedulable,
        0,
        "the first of those that are alike is not the one it was made for"
    );
}
