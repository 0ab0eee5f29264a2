mod devices;
mod events;
mod extenders;
mod gangs;
mod statuses;
mod volumes;

use super::*;
use holdfast_value::{Value, json};
use holdfast_world::{Action, Refusal, Verb};

const SECONDS: Time = crate::queue::SECOND;

/// A scheduler, with the requests that it has made and that the test answers.
struct Scene {
    scheduler: Scheduler,
    requests: Vec<OutgoingRequest>,
    now: Time,
}

impl Scene {
    fn new() -> Scene {
        Scene::with(json!({}))
    }

    fn with(configuration: Value) -> Scene {
        let mut document =
            json!({"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"});
        for (field, value) in configuration.as_object().unwrap() {
            document[field] = value.clone();
        }
        let configuration = Configuration::of(&document).unwrap_or_else(|faults| panic!("{faults:?}"));
        Scene { scheduler: Scheduler::new(Arc::new(configuration)), requests: Vec::new(), now: 100 * SECONDS }
    }

    fn apply_object(&mut self, kind: Kind, key: Key, object: Value) {
        self.scheduler.apply_object(kind, &key, Some(&object).filter(|object| !object.is_null()), self.now);
    }

    fn node(&mut self, name: &str, cpu: &str) {
        let node = json!({"metadata": {"name": name}, "status": {"allocatable": {"cpu": cpu, "pods": "10"}}});
        self.apply_object(Kind::Node, Key::cluster(name), node);
    }

    fn pod(&mut self, name: &str, spec: Value) {
        self.apply_object(Kind::Pod, Key::new("default", name), pod(name, spec));
    }

    /// Tries pods until no pod can be tried, and collects the requests that the scheduler makes.
    fn run(&mut self) -> &mut Self {
        while self.scheduler.schedule_one(self.now) {}
        self.requests.extend(self.scheduler.take_requests(self.now));
        self
    }

    /// Removes and returns the first request whose text contains `text`. The text of a request is `verb
    /// resource/name/subresource`.
    fn take(&mut self, text: &str) -> OutgoingRequest {
        let shown: Vec<String> = self.requests.iter().map(show).collect();
        let at = shown.iter().position(|shown| shown.contains(text));
        self.requests.remove(at.unwrap_or_else(|| panic!("no {text} in {shown:#?}")))
    }

    fn done(&mut self, text: &str) -> OutgoingRequest {
        let request = self.take(text);
        self.scheduler.handle_outcome(request.number, RequestOutcome::Succeeded(Value::Null), self.now);
        self.run();
        request
    }

    fn unschedulable_pods(&mut self, text: &str, reason: &str) {
        let request = self.take(text);
        let refusal = Refusal { reason: reason.into(), message: "no".into(), causes: Vec::new() };
        self.scheduler.handle_outcome(request.number, RequestOutcome::Refused(refusal), self.now);
        self.run();
    }

    /// Reports `answer` as the outcome of the first request whose text contains `text`.
    fn answer(&mut self, text: &str, answer: RequestOutcome) -> OutgoingRequest {
        let request = self.take(text);
        self.scheduler.handle_outcome(request.number, answer, self.now);
        self.run();
        request
    }

    fn shown(&self) -> Vec<String> {
        self.requests.iter().map(show).collect()
    }

    /// Reports success for all writes of statuses, including the writes that the scheduler makes afterwards.
    fn write_statuses(&mut self) {
        while let Some(at) = self.shown().iter().position(|request| request.contains("/status")) {
            let request = self.requests.remove(at);
            self.scheduler.handle_outcome(request.number, RequestOutcome::Succeeded(Value::Null), self.now);
            self.run();
        }
    }

    /// The reason and message of the condition `PodScheduled` in the pending write of the pod's status; the write then
    /// succeeds.
    fn refusal_of(&mut self, pod: &str) -> (String, String) {
        let request = self.done(&format!("patch pods/{pod}/status"));
        let condition = &body(&request)["status"]["conditions"][0];
        let text = |field: &str| condition[field].as_str().unwrap_or_default().to_owned();
        (text("reason"), text("message"))
    }
}

fn pod(name: &str, spec: Value) -> Value {
    json!({"metadata": {"name": name, "namespace": "default", "uid": format!("{name}-uid")}, "spec": spec})
}

fn asks(cpu: &str) -> Value {
    json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]})
}

fn bound(name: &str, cpu: &str, node: &str) -> Value {
    let mut spec = asks(cpu);
    spec["nodeName"] = node.into();
    pod(name, spec)
}

fn action(request: &OutgoingRequest) -> &Action {
    let RequestContent::Api(action) = &request.content else { panic!("{request:?} is none for the API server") };
    action
}

fn body(request: &OutgoingRequest) -> &Value {
    match &action(request).verb {
        Verb::Create(body) | Verb::MergePatch(body) | Verb::StrategicPatch(body) => body,
        other => panic!("{other:?} has no body"),
    }
}

fn show(request: &OutgoingRequest) -> String {
    match &request.content {
        RequestContent::Extender { extender, verb, body } => format!("extender {extender} {verb} {body}"),
        RequestContent::Api(action) => {
            let (verb, body) = match &action.verb {
                Verb::Create(body) => ("create", body.to_string()),
                Verb::MergePatch(body) | Verb::StrategicPatch(body) => ("patch", body.to_string()),
                Verb::Delete { .. } => ("delete", String::new()),
                other => panic!("{other:?}"),
            };
            let subresource = if action.subresource.is_empty() { "" } else { "/" };
            let name = action.key.name.split('.').next().unwrap_or_default();
            format!("{verb} {}/{name}{subresource}{} {body}", action.resource, action.subresource)
        }
    }
}

#[test]
fn a_bound_pod_gets_an_event() {
    let mut scene = Scene::new();
    scene.node("n", "4");
    scene.pod("p", asks("1"));
    scene.run();
    let request = scene.done("create pods/p/binding");
    assert_eq!(body(&request)["target"]["name"], "n");
    assert_eq!(body(&request)["metadata"]["uid"], "p-uid");
    let told = scene.take("create events.events.k8s.io/p");
    assert_eq!(body(&told)["note"], "Successfully assigned default/p to n");
    assert_eq!(body(&told)["action"], "Binding");
    scene.apply_object(Kind::Pod, Key::new("default", "p"), bound("p", "1", "n"));
    assert!(scene.scheduler.binding_cycles.is_empty() && scene.run().requests.is_empty());
    assert_eq!(scene.scheduler.snapshot().assumed_count(), 0);
}

#[test]
fn an_event_names_its_reporter_and_the_pods_version() {
    let mut scene = Scene::new();
    scene.scheduler.set_host("machine");
    scene.node("n", "4");
    let mut object = pod("p", asks("1"));
    object["metadata"]["resourceVersion"] = "17".into();
    scene.apply_object(Kind::Pod, Key::new("default", "p"), object);
    scene.run();
    scene.done("create pods/p/binding");
    let told = scene.take("create events.events.k8s.io/p");
    let event = body(&told);
    assert_eq!(event["reportingController"], "default-scheduler");
    assert_eq!(event["reportingInstance"], "default-scheduler-machine");
    let regarding = json!({"apiVersion": "v1", "kind": "Pod", "namespace": "default", "name": "p", "uid": "p-uid",
        "resourceVersion": "17"});
    assert_eq!(event["regarding"], regarding);
}

#[test]
fn every_search_for_victims_is_counted() {
    let mut scene = Scene::new();
    scene.node("n", "1");
    scene.apply_object(Kind::Pod, Key::new("default", "low"), bound("low", "1", "n"));
    let counted = |scene: &mut Scene| {
        let samples = scene.scheduler.take_samples();
        let tried = samples.iter().filter(|one| **one == MetricSample::PreemptionAttempted).count();
        (tried, samples.iter().filter(|one| matches!(one, MetricSample::Preemption { .. })).count())
    };
    for name in ["a", "b"] {
        scene.pod(name, asks("1"));
        scene.run();
        assert_eq!(counted(&mut scene), (1, 0), "{name}: in vain");
    }
    let mut urgent = asks("1");
    urgent["priority"] = 10.into();
    scene.pod("urgent", urgent);
    scene.run();
    assert_eq!(counted(&mut scene), (1, 1));
}

#[test]
fn nodes_and_queue_can_be_dumped() {
    let mut scene = Scene::new();
    scene.node("n", "1");
    scene.pod("a", asks("1"));
    scene.pod("b", asks("500m"));
    scene.run();
    let shown: Vec<String> = scene.scheduler.dump_nodes().chain(scene.scheduler.dump_queue()).collect();
    assert_eq!(
        shown,
        [
            "node n: requested cpu 1000m; allocatable cpu 1000m; 1 of 10 pods, 1 of them assumed: default/a; nominated: ",
            "pod default/b: Unschedulable, priority 0, attempts 1, refused by: NodeResourcesFit",
            "pod default/a: InFlight, priority 0, attempts 1, refused by: ",
        ]
    );
}

#[test]
fn a_pod_is_nominated_to_its_expected_node_unless_the_gate_is_off() {
    for tells in [true, false] {
        let mut configuration = Configuration::default();
        configuration.apply_feature_gates(|gate| tells || gate != "NominatedNodeNameForExpectation");
        let scheduler = Scheduler::new(Arc::new(configuration));
        let mut scene = Scene { scheduler, requests: Vec::new(), now: 100 * SECONDS };
        scene.node("n", "4");
        storage(&mut scene);
        scene.run();
        assert_eq!(scene.shown().iter().any(|request| request.contains("nominatedNodeName")), tells);
        if tells {
            scene.done("patch pods/p/status");
        }
        scene.take("patch persistentvolumeclaims/c");
    }
}

#[test]
fn reserved_resources_are_not_free() {
    let mut scene = Scene::new();
    scene.node("n", "1");
    scene.pod("a", asks("1"));
    scene.pod("b", asks("1"));
    scene.run();
    scene.take("create pods/a/binding");
    let told = scene.take("patch pods/b/status");
    let condition = &body(&told)["status"]["conditions"][0];
    assert_eq!(condition["reason"], "Unschedulable");
    assert!(condition["message"].as_str().unwrap().starts_with("0/1 nodes are available: 1 Insufficient cpu."));
    assert_eq!(condition["lastTransitionTime"], "1970-01-01T00:01:40Z");
}

#[test]
fn a_refused_binding_frees_the_node_and_the_pod_is_tried_again() {
    let mut scene = Scene::new();
    scene.node("n", "1");
    scene.pod("a", asks("1"));
    scene.run();
    scene.pod("b", asks("1"));
    // The pod is changed by somebody else while its binding is pending. That change does not end its binding cycle.
    let mut changed = pod("a", asks("1"));
    changed["metadata"]["labels"] = json!({"new": "label"});
    scene.apply_object(Kind::Pod, Key::new("default", "a"), changed);
    scene.unschedulable_pods("create pods/a/binding", "InternalError");
    let told = scene.take("patch pods/a/status");
    assert_eq!(body(&told)["status"]["conditions"][0]["reason"], "SchedulerError");
    scene.take("create pods/b/binding");
    scene.scheduler.handle_outcome(told.number, RequestOutcome::Succeeded(Value::Null), scene.now);
    scene.now += 2 * SECONDS;
    scene.run();
    // The pod `b` got the node after the binding of the pod `a` had failed. So `a` is unschedulable, which its status
    // reports.
    assert!(scene.shown().iter().any(|request| request.starts_with("patch pods/a/status")), "{:#?}", scene.shown());
}

#[test]
fn a_pod_bound_by_another_scheduler_is_left_alone() {
    let mut scene = Scene::new();
    scene.node("n", "1");
    scene.node("m", "1");
    scene.pod("a", asks("1"));
    scene.run();
    let request = scene.take("create pods/a/binding");
    let other = if body(&request)["target"]["name"] == "n" { "m" } else { "n" };
    scene.apply_object(Kind::Pod, Key::new("default", "a"), bound("a", "1", other));
    let refusal = Refusal { reason: "Conflict".into(), ..Refusal::default() };
    scene.scheduler.handle_outcome(request.number, RequestOutcome::Refused(refusal), scene.now);
    assert!(scene.run().requests.is_empty(), "{:#?}", scene.shown());
    scene.pod("b", asks("1"));
    scene.run();
    let request = scene.take("create pods/b/binding");
    assert_ne!(body(&request)["target"]["name"], other, "what is full is full");
}

#[test]
fn one_write_of_a_status_is_under_way_at_a_time() {
    let mut scene = Scene::new();
    scene.node("n", "1");
    scene.pod("p", asks("2"));
    scene.run();
    let first = scene.take("patch pods/p/status");
    scene.node("n", "2");
    scene.run();
    assert!(!scene.shown().iter().any(|request| request.contains("binding")), "{:#?}", scene.shown());
    scene.scheduler.handle_outcome(first.number, RequestOutcome::Succeeded(Value::Null), scene.now);
    scene.run();
    scene.done("create pods/p/binding");
}

#[test]
fn repeated_events_become_a_count() {
    let mut scene = Scene::new();
    scene.node("n", "1");
    scene.pod("p", asks("2"));
    scene.run();
    scene.done("patch pods/p/status");
    scene.done("create events.events.k8s.io/p");
    let mut refused = pod("p", asks("2"));
    let message = "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, preemption: 0/1 nodes are \
                   available: 1 Preemption is not helpful for scheduling.";
    refused["status"]["conditions"] =
        json!([{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}]);
    scene.apply_object(Kind::Pod, Key::new("default", "p"), refused);
    scene.now += 400 * SECONDS;
    scene.run();
    scene.take("create events.events.k8s.io/p");
    scene.now += 400 * SECONDS;
    scene.run();
    scene.take("create events.events.k8s.io/p");
    assert!(scene.requests.is_empty(), "the condition stands there already: {:#?}", scene.shown());
    let Scheduler { snapshot, configuration, queue, .. } = &mut scene.scheduler;
    queue.activate(QueueContext { snapshot, configuration }, &Key::new("default", "p"), scene.now);
    scene.run();
    let request = scene.take("patch events.events.k8s.io/p");
    assert_eq!(body(&request)["series"]["count"], 2);
}

#[test]
fn victims_are_evicted_before_the_preemptor_is_tried_again() {
    let mut scene = Scene::new();
    scene.node("n", "2");
    for name in ["a", "b"] {
        scene.apply_object(Kind::Pod, Key::new("default", name), bound(name, "1", "n"));
    }
    let mut urgent = asks("2");
    urgent["priority"] = 10.into();
    scene.pod("urgent", urgent);
    scene.run();
    let nominated = scene.done("patch pods/urgent/status");
    assert_eq!(body(&nominated)["status"]["nominatedNodeName"], "n");
    // Two pods are victims. One is evicted at first, and the other one only after the deletion of the first was
    // accepted.
    let victims: Vec<String> =
        scene.shown().into_iter().filter(|request| request.contains("DisruptionTarget")).collect();
    assert_eq!(victims.len(), 1, "{victims:#?}");
    for _ in 0..2 {
        let told = scene.done("DisruptionTarget");
        let message = &body(&told)["status"]["conditions"][0]["message"];
        assert_eq!(message, "default-scheduler: preempting to accommodate a higher priority pod");
        let name = action(&told).key.name.to_string();
        scene.done(&format!("delete pods/{name}"));
        let event = scene.take(&format!("create events.events.k8s.io/{name}"));
        assert_eq!(body(&event)["note"], "Preempted by pod urgent-uid on node n");
        assert_eq!(body(&event)["related"]["name"], "urgent");
        scene.apply_object(Kind::Pod, Key::new("default", &name), Value::Null);
    }
    // The deletion of the first victim made the pod active, and it was tried again. The eviction of the second victim
    // was in progress then, and was not requested again.
    scene.done("patch pods/urgent/status");
    assert!(scene.shown().iter().all(|request| !request.contains("DisruptionTarget")), "{:#?}", scene.shown());
    scene.now += 2 * SECONDS;
    scene.run();
    scene.done("create pods/urgent/binding");
    assert!(scene.scheduler.evictions.is_empty());
}

#[test]
fn waiting_pods_are_counted_by_rejector() {
    let mut scene = Scene::new();
    scene.node("n", "1");
    scene.pod("large", asks("2"));
    let mut gated = asks("1");
    gated["schedulingGates"] = json!([{"name": "g.io/g"}]);
    scene.pod("gated", gated);
    scene.run();
    let counts = |scene: &Scene| -> Vec<String> {
        scene
            .scheduler
            .unschedulable_pods()
            .map(|(plugin, scheduler, pods)| format!("{plugin} {scheduler} {pods}"))
            .collect()
    };
    assert_eq!(counts(&scene), ["NodeResourcesFit default-scheduler 1", "SchedulingGates default-scheduler 1"]);
    let pending = scene.scheduler.pending_pods();
    assert_eq!((pending.unschedulable, pending.gated), (1, 1));
    scene.done("patch pods/large/status");
    scene.now += 2 * SECONDS;
    scene.node("n", "4");
    scene.pod("gated", asks("1"));
    scene.run();
    assert_eq!(counts(&scene), ["NodeResourcesFit default-scheduler 0", "SchedulingGates default-scheduler 0"]);
}

#[test]
fn a_victim_of_two_pods_is_deleted_once() {
    let mut scene = Scene::new();
    scene.node("n", "1");
    let victim = Key::new("default", "victim");
    scene.apply_object(Kind::Pod, victim.clone(), bound("victim", "1", "n"));
    let urgent = |priority: i64| {
        let mut spec = asks("1");
        spec["priority"] = priority.into();
        spec
    };
    let requests = |scene: &Scene, of: &str| scene.shown().iter().filter(|request| request.contains(of)).count();
    scene.pod("urgent", urgent(10));
    scene.run();
    scene.pod("more", urgent(20));
    scene.run();
    assert_eq!(requests(&scene, "DisruptionTarget"), 1, "{:#?}", scene.shown());
    scene.done("DisruptionTarget");
    scene.pod("most", urgent(30));
    scene.run();
    scene.done("delete pods/victim");
    // The victim's deletion was accepted, and the victim's own events do not show it yet. A further pod with the same
    // victim must not evict it again.
    scene.pod("utmost", urgent(40));
    scene.run();
    assert_eq!(requests(&scene, "DisruptionTarget") + requests(&scene, "delete"), 0, "{:#?}", scene.shown());
    assert_eq!(requests(&scene, "Preempted by pod urgent-uid"), 1);
    assert_eq!(requests(&scene, "Preempted by pod"), 1);
    scene.write_statuses();
    scene.apply_object(Kind::Pod, victim, Value::Null);
    scene.now += 2 * SECONDS;
    scene.run();
    assert!(scene.scheduler.evictions.is_empty());
    scene.done("create pods/utmost/binding");
}

#[test]
fn a_victim_in_its_binding_cycle_is_taken_back() {
    let mut scene = Scene::with(json!({"profiles": [{"schedulerName": "default-scheduler",
        "plugins": {"multiPoint": {"enabled": [{"name": "GangScheduling"}]}}}]}));
    scene.node("n", "1");
    let workload = json!({"spec": {"podGroups": [{"name": "g", "policy": {"gang": {"minCount": 2}}}]}});
    scene.apply_object(Kind::Workload, Key::new("default", "w"), workload);
    for name in ["one", "two"] {
        let mut spec = asks("1");
        spec["workloadRef"] = json!({"name": "w", "podGroup": "g"});
        scene.pod(name, spec);
    }
    scene.run();
    assert!(scene.shown().iter().all(|request| !request.contains("binding")), "one alone is not bound");
    let mut urgent = asks("1");
    urgent["priority"] = 10.into();
    scene.pod("urgent", urgent);
    scene.run();
    let note = scene.take("in kube-scheduler memory");
    assert_eq!(body(&note)["reason"], "Preempted");
    assert!(!scene.shown().iter().any(|request| request.contains("delete")));
    while let Some(at) = scene.shown().iter().position(|request| request.contains("/status")) {
        let request = scene.requests.remove(at);
        scene.scheduler.handle_outcome(request.number, RequestOutcome::Succeeded(Value::Null), scene.now);
        scene.now += 2 * SECONDS;
        scene.run();
    }
    scene.take("create pods/urgent/binding");
}

fn storage(scene: &mut Scene) {
    let class = json!({"provisioner": "p", "volumeBindingMode": "WaitForFirstConsumer"});
    scene.apply_object(Kind::StorageClass, Key::cluster("late"), class);
    scene.apply_object(Kind::PersistentVolumeClaim, Key::new("default", "c"), claim(None, None));
    let mut spec = asks("1");
    spec["volumes"] = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]);
    scene.pod("p", spec);
}

fn claim(node: Option<&str>, volume: Option<&str>) -> Value {
    let mut annotations = json!({});
    if let Some(node) = node {
        annotations["volume.kubernetes.io/selected-node"] = node.into();
    }
    if volume.is_some() {
        annotations["pv.kubernetes.io/bind-completed"] = "yes".into();
    }
    json!({"metadata": {"uid": "c-uid", "annotations": annotations}, "spec": {"storageClassName": "late",
        "volumeName": volume, "resources": {"requests": {"storage": "1Gi"}}}})
}

#[test]
fn a_pod_is_bound_once_its_volumes_are_bound() {
    let mut scene = Scene::new();
    scene.node("n", "4");
    storage(&mut scene);
    scene.run();
    let told = scene.done("patch pods/p/status");
    assert_eq!(body(&told)["status"]["nominatedNodeName"], "n");
    let chosen = scene.done("patch persistentvolumeclaims/c");
    assert_eq!(body(&chosen)["metadata"]["annotations"]["volume.kubernetes.io/selected-node"], "n");
    scene.apply_object(Kind::PersistentVolumeClaim, Key::new("default", "c"), claim(Some("n"), None));
    assert!(scene.run().requests.is_empty());
    scene.apply_object(Kind::PersistentVolume, Key::cluster("v"), json!({"spec": {}}));
    scene.apply_object(Kind::PersistentVolumeClaim, Key::new("default", "c"), claim(Some("n"), Some("v")));
    scene.run();
    scene.done("create pods/p/binding");
    assert!(scene.scheduler.binding_cycles.has_no_waits());
}

#[test]
fn a_pod_whose_volumes_are_not_bound_in_time_is_tried_again() {
    for gives_up in [true, false] {
        let mut scene = Scene::new();
        scene.node("n", "4");
        storage(&mut scene);
        scene.run();
        scene.done("patch pods/p/status");
        scene.done("patch persistentvolumeclaims/c");
        scene.apply_object(Kind::PersistentVolumeClaim, Key::new("default", "c"), claim(Some("n"), None));
        if gives_up {
            scene.apply_object(Kind::PersistentVolumeClaim, Key::new("default", "c"), claim(None, None));
        } else {
            assert_eq!(scene.scheduler.next_wakeup(), Some(scene.now + 600 * SECONDS));
            scene.now += 600 * SECONDS;
        }
        scene.run();
        let told = scene.done("patch pods/p/status");
        let why = if gives_up { "provisioning failed for PVC \"c\"" } else { "timed out waiting for the condition" };
        let message = format!("running PreBind plugin \"VolumeBinding\": binding volumes: {why}");
        assert_eq!(body(&told)["status"]["conditions"][0]["message"], message.as_str());
        assert_eq!(body(&told)["status"]["nominatedNodeName"], Value::Null);
        assert_eq!(scene.scheduler.snapshot().assumed_count(), 0);
        scene.now += 2 * SECONDS;
        scene.run();
        scene.done("patch pods/p/status");
        if gives_up {
            scene.take("patch persistentvolumeclaims/c");
        }
    }
}

#[test]
fn a_pod_deleted_in_its_binding_cycle_leaves_nothing_behind() {
    let mut scene = Scene::new();
    scene.node("n", "4");
    storage(&mut scene);
    scene.run();
    scene.done("patch pods/p/status");
    scene.done("patch persistentvolumeclaims/c");
    scene.apply_object(Kind::Pod, Key::new("default", "p"), Value::Null);
    scene.run();
    let scheduler = &scene.scheduler;
    assert!(scheduler.binding_cycles.is_empty());
    assert_eq!((scheduler.snapshot().assumed_count(), scheduler.pending_pods()), (0, PendingPods::default()));
}

#[test]
fn allocations_are_written_before_the_pod_is_bound() {
    let mut scene = Scene::new();
    scene.node("n", "4");
    let class = json!({"spec": {"config": [{"opaque": {"driver": "d", "parameters": {"a": 1}}}]}});
    scene.apply_object(Kind::DeviceClass, Key::cluster("gpu"), class);
    let slice = json!({"spec": {"driver": "d", "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1},
        "nodeName": "n", "devices": [{"name": "g0"}]}});
    scene.apply_object(Kind::ResourceSlice, Key::cluster("s"), slice);
    let claim = json!({"metadata": {"uid": "c-uid"}, "spec": {"devices": {"requests": [{"name": "r",
        "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}}]}}});
    scene.apply_object(Kind::ResourceClaim, Key::new("default", "c"), claim);
    let mut spec = asks("1");
    spec["resourceClaims"] = json!([{"name": "r", "resourceClaimName": "c"}]);
    scene.pod("p", spec);
    scene.run();
    scene.done("patch pods/p/status");
    let request = scene.done("patch resourceclaims.resource.k8s.io/c/status");
    scene.done("patch resourceclaims.resource.k8s.io/c {\"metadata\":{\"finalizers\"");
    let status = &body(&request)["status"];
    assert_eq!(status["reservedFor"], json!([{"resource": "pods", "name": "p", "uid": "p-uid"}]));
    let devices = &status["allocation"]["devices"];
    assert_eq!(devices["results"], json!([{"request": "r", "driver": "d", "pool": "n", "device": "g0"}]));
    let opaque = json!({"driver": "d", "parameters": {"a": 1}});
    assert_eq!(devices["config"], json!([{"source": "FromClass", "requests": ["r"], "opaque": opaque}]));
    let name = json!({"key": "metadata.name", "operator": "In", "values": ["n"]});
    assert_eq!(status["allocation"]["nodeSelector"], json!({"nodeSelectorTerms": [{"matchFields": [name]}]}));
    scene.unschedulable_pods("create pods/p/binding", "InternalError");
    let back = scene.take("$patch");
    assert_eq!(body(&back)["status"]["reservedFor"], json!([{"$patch": "delete", "uid": "p-uid"}]));
}
