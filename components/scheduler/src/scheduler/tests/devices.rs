//! Tests of devices with binding conditions, and of devices that several claims share.

use super::*;

fn slice(device: Value) -> Value {
    json!({"spec": {"driver": "d.example", "nodeName": "n", "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
        "devices": [device]}})
}

fn claim(name: &str, exactly: Value, status: Value) -> Value {
    json!({"metadata": {"name": name, "namespace": "default", "uid": format!("{name}-uid")},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}, "status": status})
}

fn uses(name: &str) -> Value {
    let mut spec = asks("1");
    spec["resourceClaims"] = json!([{"name": "x", "resourceClaimName": name}]);
    spec
}

/// A scheduler that has allocated a device to a pod and has written the allocation into the claim; and the claim's
/// status with the allocation.
fn given() -> (Scene, Value) {
    let mut scene = Scene::new();
    scene.node("n", "4");
    scene.apply_object(Kind::DeviceClass, Key::cluster("gpu"), json!({"spec": {}}));
    let device = json!({"name": "a", "bindingConditions": ["Ready"], "bindingFailureConditions": ["Broken"]});
    scene.apply_object(Kind::ResourceSlice, Key::cluster("s"), slice(device));
    scene.apply_object(
        Kind::ResourceClaim,
        Key::new("default", "c"),
        claim("c", json!({"deviceClassName": "gpu"}), json!({})),
    );
    scene.pod("p", uses("c"));
    scene.run();
    scene.done("patch pods/p/status");
    let request = scene.done("patch resourceclaims.resource.k8s.io/c/status");
    let status = body(&request)["status"].clone();
    scene.done("patch resourceclaims.resource.k8s.io/c ");
    scene.told(&status, json!([]));
    (scene, status)
}

impl Scene {
    fn told(&mut self, status: &Value, conditions: Value) {
        let mut status = status.clone();
        status["devices"] = json!([{"driver": "d.example", "pool": "p", "device": "a", "conditions": conditions}]);
        self.apply_object(
            Kind::ResourceClaim,
            Key::new("default", "c"),
            claim("c", json!({"deviceClassName": "gpu"}), status),
        );
        self.run();
    }

    fn is_bound(&self) -> bool {
        self.shown().iter().any(|request| request.contains("pods/p/binding"))
    }
}

#[test]
fn a_pod_is_bound_when_its_devices_are_ready() {
    let (mut scene, status) = given();
    let result = &status["allocation"]["devices"]["results"][0];
    assert_eq!(result["bindingConditions"], json!(["Ready"]));
    assert_eq!(result["bindingFailureConditions"], json!(["Broken"]));
    assert_eq!(status["allocation"]["allocationTimestamp"], "1970-01-01T00:01:40Z");
    let told = scene.take("BindingConditionsPending");
    assert_eq!(body(&told)["note"], "waiting for binding conditions for device on node n");
    assert!(!scene.is_bound());
    scene.told(&status, json!([{"type": "Ready", "status": "False", "reason": "r", "message": "m"}]));
    assert!(!scene.is_bound());
    scene.told(&status, json!([{"type": "Ready", "status": "True", "reason": "r", "message": "m"}]));
    assert!(scene.is_bound());
}

#[test]
fn failed_devices_are_released() {
    let (mut scene, status) = given();
    scene.told(&status, json!([{"type": "Broken", "status": "True", "reason": "Burnt", "message": "it \"smokes\""}]));
    let told = scene.take("FailedScheduling");
    assert_eq!(
        body(&told)["note"],
        "running PreBind plugin \"DynamicResources\": claim c binding failed: reason=Burnt, message=\"it \\\"smokes\\\"\""
    );
    scene.take(r#"resourceclaims.resource.k8s.io/c/status {"metadata":{"uid":"c-uid"},"status":{"allocation":null"#);
    assert!(!scene.is_bound());
}

#[test]
fn devices_that_are_not_ready_in_time_are_released() {
    let (mut scene, _) = given();
    scene.now += 599 * SECONDS;
    scene.run();
    assert!(!scene.shown().iter().any(|request| request.contains("FailedScheduling")));
    scene.now += 2 * SECONDS;
    scene.run();
    let told = scene.take("FailedScheduling");
    assert_eq!(body(&told)["note"], "running PreBind plugin \"DynamicResources\": claim c binding timeout");
    scene.take(r#"resourceclaims.resource.k8s.io/c/status {"metadata":{"uid":"c-uid"},"status":{"allocation":null"#);
    // The claim's event shows that its devices were released, so the pod is tried again and gets other devices.
    scene.apply_object(
        Kind::ResourceClaim,
        Key::new("default", "c"),
        claim("c", json!({"deviceClassName": "gpu"}), json!({})),
    );
    scene.now += 20 * SECONDS;
    scene.run();
    scene.take("pods/p/status");
}

#[test]
fn claims_share_a_device_while_its_capacity_suffices() {
    let mut scene = Scene::new();
    scene.node("n", "8");
    scene.apply_object(Kind::DeviceClass, Key::cluster("gpu"), json!({"spec": {}}));
    let policy = json!({"default": "2Gi", "validRange": {"min": "2Gi", "step": "2Gi"}});
    let memory = json!({"memory": {"value": "10Gi", "requestPolicy": policy}});
    scene.apply_object(
        Kind::ResourceSlice,
        Key::cluster("s"),
        slice(json!({"name": "a", "allowMultipleAllocations": true, "capacity": memory})),
    );
    let asks = |amount: &str| json!({"deviceClassName": "gpu", "capacity": {"requests": {"memory": amount}}});
    let mut shares = Vec::new();
    for (at, (amount, nomination_change)) in
        [("3Gi", Some("4294967296")), ("5Gi", Some("6442450944")), ("1", None)].into_iter().enumerate()
    {
        let (name, pod) = (format!("c{at}"), format!("p{at}"));
        scene.apply_object(Kind::ResourceClaim, Key::new("default", &name), claim(&name, asks(amount), json!({})));
        scene.pod(&pod, uses(&name));
        scene.run();
        let Some(nomination_change) = nomination_change else { break };
        scene.done(&format!("patch pods/{pod}/status"));
        let request = scene.done(&format!("patch resourceclaims.resource.k8s.io/{name}/status"));
        scene.done(&format!("patch resourceclaims.resource.k8s.io/{name} "));
        let status = body(&request)["status"].clone();
        let result = &status["allocation"]["devices"]["results"][0];
        assert_eq!(result["consumedCapacity"], json!({"memory": nomination_change}));
        shares.push(result["shareID"].as_str().unwrap().to_owned());
        scene.apply_object(Kind::ResourceClaim, Key::new("default", &name), claim(&name, asks(amount), status));
    }
    assert!(shares[0] != shares[1] && shares[0].len() == 36, "{shares:?}");
    let told = scene.take("FailedScheduling");
    assert!(
        body(&told)["note"].as_str().unwrap().starts_with("0/1 nodes are available: 1 cannot allocate all claims.")
    );
}

#[test]
fn a_request_for_a_capacity_selects_devices_with_it() {
    for (asked, found) in
        [(json!({"memory": "8Gi"}), true), (json!({"memory": "9Gi"}), false), (json!({"cores": "1"}), false)]
    {
        let mut scene = Scene::new();
        scene.node("n", "8");
        scene.apply_object(Kind::DeviceClass, Key::cluster("gpu"), json!({"spec": {}}));
        let device = json!({"name": "a", "capacity": {"memory": {"value": "8Gi"}}});
        scene.apply_object(Kind::ResourceSlice, Key::cluster("s"), slice(device));
        let exactly = json!({"deviceClassName": "gpu", "capacity": {"requests": asked}});
        scene.apply_object(Kind::ResourceClaim, Key::new("default", "c"), claim("c", exactly, json!({})));
        scene.pod("p", uses("c"));
        scene.run();
        assert_eq!(!scene.shown().iter().any(|request| request.contains("FailedScheduling")), found, "{asked}");
    }
}

/// A pod spec whose container requests `count` of an extended resource.
fn asks_for(resource: &str, count: &str) -> Value {
    json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": "1", resource: count}}}]})
}

const GPU: &str = "example.com/gpu";

/// A scheduler with the feature gate for extended resources, a DeviceClass, and two nodes, of which one has two
/// devices.
fn extended() -> Scene {
    let mut configuration = Configuration::default();
    configuration.apply_feature_gates(|name| name != "GangScheduling");
    let scheduler = Scheduler::new(Arc::new(configuration));
    let mut scene = Scene { scheduler, requests: Vec::new(), now: 100 * SECONDS };
    scene.node("m", "4");
    scene.node("n", "4");
    scene.apply_object(Kind::DeviceClass, Key::cluster("gpu"), json!({"spec": {"extendedResourceName": GPU}}));
    let mut devices = slice(json!({"name": "a"}));
    devices["spec"]["devices"] = json!([{"name": "a"}, {"name": "b"}]);
    scene.apply_object(Kind::ResourceSlice, Key::cluster("s"), devices);
    scene
}

impl Scene {
    fn made(&mut self, request: &OutgoingRequest, uid: &str, status: Value) -> Key {
        let mut claim = body(request).clone();
        claim["metadata"]["uid"] = uid.into();
        claim["status"] = status;
        let key = action(request).key.clone();
        self.apply_object(Kind::ResourceClaim, key.clone(), claim);
        self.run();
        key
    }
}

#[test]
fn a_claim_is_created_for_extended_resources_that_devices_satisfy() {
    let mut scene = extended();
    scene.pod("p", asks_for(GPU, "2"));
    scene.run();
    assert_eq!(body(&scene.done("patch pods/p/status"))["status"], json!({"nominatedNodeName": "n"}));
    let request = scene.done("create resourceclaims.resource.k8s.io/p-extended-resources-");
    let meta = &body(&request)["metadata"];
    assert_eq!(meta["annotations"], json!({"resource.kubernetes.io/extended-resource-claim": "true"}));
    assert_eq!(
        (&meta["generateName"], &meta["ownerReferences"][0]["uid"]),
        (&json!("p-extended-resources-"), &json!("p-uid"))
    );
    let exactly = json!({"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 2});
    let requests = json!([{"name": "container-0-request-1", "exactly": exactly}]);
    assert_eq!(body(&request)["spec"]["devices"]["requests"], requests);
    assert!(!scene.shown().iter().any(|request| request.contains("pods/p/")), "nothing is written before it is seen");
    // The devices are assumed to be allocated to the first pod, so another pod does not get them.
    scene.pod("q", asks_for(GPU, "1"));
    scene.run();
    let event = scene.take("FailedScheduling");
    let note = body(&event)["note"].as_str().unwrap().to_owned();
    assert!(note.starts_with("0/2 nodes are available: 2 cannot allocate all claims. still not"), "{note}");

    let made = |scene: &mut Scene| {
        let samples = scene.scheduler.take_samples().into_iter();
        samples.filter(|sample| matches!(sample, MetricSample::ClaimCreated { .. })).collect::<Vec<_>>()
    };
    assert_eq!(made(&mut scene), [MetricSample::ClaimCreated { success: true }]);
    let key = scene.made(&request, "claim-uid", json!({}));
    let reserved = scene.done(&format!("patch resourceclaims.resource.k8s.io/{}/status", key.name));
    let status = &body(&reserved)["status"];
    assert_eq!(body(&reserved)["metadata"]["uid"], "claim-uid");
    assert_eq!(status["reservedFor"][0]["uid"], "p-uid");
    assert_eq!(status["allocation"]["devices"]["results"].as_array().map(Vec::len), Some(2));
    assert!(!scene.is_bound());
    let told = scene.done("patch pods/p/status");
    let mapping = json!({"containerName": "c", "resourceName": GPU, "requestName": "container-0-request-1"});
    let nomination_change = json!({"resourceClaimName": &*key.name, "requestMappings": [mapping]});
    assert_eq!(body(&told)["status"], json!({"extendedResourceClaimStatus": nomination_change}));
    let protected = scene.done(&format!("patch resourceclaims.resource.k8s.io/{} ", key.name));
    assert_eq!(body(&protected)["metadata"]["finalizers"], json!(["resource.kubernetes.io/delete-protection"]));
    assert!(scene.is_bound());
    assert_eq!(made(&mut scene), [], "nothing else made a claim");
    scene.pod("r", asks_for("deviceclass.resource.kubernetes.io/gpu", "1"));
    scene.apply_object(Kind::ResourceClaim, key, Value::Null);
    scene.now += 20 * SECONDS;
    scene.run();
    scene.done("patch pods/r/status");
    scene.unschedulable_pods("create resourceclaims.resource.k8s.io/r-extended-resources-", "Forbidden");
    assert_eq!(made(&mut scene), [MetricSample::ClaimCreated { success: false }]);
}

#[test]
fn extended_resources_are_the_nodes_own_if_it_has_them_or_the_gate_is_off() {
    let mut scene = Scene::new();
    scene.node("n", "4");
    scene.apply_object(Kind::DeviceClass, Key::cluster("gpu"), json!({"spec": {"extendedResourceName": GPU}}));
    scene.apply_object(Kind::ResourceSlice, Key::cluster("s"), slice(json!({"name": "a"})));
    scene.pod("p", asks_for(GPU, "1"));
    scene.run();
    let told = scene.take("FailedScheduling");
    assert!(body(&told)["note"].as_str().unwrap().contains("1 Insufficient example.com/gpu"), "{}", body(&told));

    let mut scene = extended();
    let allocatable = json!({"cpu": "4", "pods": "10", GPU: "3"});
    scene.apply_object(
        Kind::Node,
        Key::cluster("m"),
        json!({"metadata": {"name": "m"}, "status": {"allocatable": allocatable}}),
    );
    scene.pod("p", asks_for(GPU, "3"));
    scene.run();
    assert_eq!(body(&scene.done("create pods/p/binding"))["target"]["name"], "m");
}

#[test]
fn the_newest_of_several_classes_serves_an_extended_resource() {
    let mut scene = extended();
    scene.pod("p", asks_for("deviceclass.resource.kubernetes.io/gpu", "1"));
    scene.run();
    scene.take("patch pods/p/status");
    let newer =
        json!({"metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"}, "spec": {"extendedResourceName": GPU}});
    scene.apply_object(Kind::DeviceClass, Key::cluster("newer"), newer);
    assert_eq!(scene.scheduler.snapshot().devices().class_for(GPU).as_deref(), Some("newer"));
    scene.apply_object(Kind::DeviceClass, Key::cluster("newer"), Value::Null);
    assert_eq!(scene.scheduler.snapshot().devices().class_for(GPU).as_deref(), Some("gpu"));
    scene.apply_object(Kind::DeviceClass, Key::cluster("gpu"), json!({"spec": {}}));
    assert_eq!(scene.scheduler.snapshot().devices().class_for(GPU), None);
    assert_eq!(scene.scheduler.snapshot().devices().class_for("cpu"), None);
}

#[test]
fn the_claim_of_a_failed_attempt_is_deleted_before_the_next() {
    let mut scene = extended();
    scene.pod("p", asks_for(GPU, "1"));
    scene.run();
    scene.done("patch pods/p/status");
    let request = scene.done("create resourceclaims.resource.k8s.io/p-extended-resources-");
    let key = scene.made(&request, "claim-uid", json!({}));
    scene.unschedulable_pods(&format!("patch resourceclaims.resource.k8s.io/{}/status", key.name), "InternalError");
    scene.take(&format!("delete resourceclaims.resource.k8s.io/{}", key.name));
    scene.take(r#""$deleteFromPrimitiveList/finalizers":["resource.kubernetes.io/delete-protection"]"#);
    scene.requests.clear();
    // The claim of the earlier attempt still exists, so the pod stays unschedulable.
    scene.now += 20 * SECONDS;
    scene.run();
    let told = scene.take("FailedScheduling");
    let note = body(&told)["note"].as_str().unwrap().to_owned();
    assert!(note.contains("2 cannot schedule extended resource claim. deletion of ResourceClaim completed"), "{note}");
    scene.requests.clear();
    scene.apply_object(Kind::ResourceClaim, key, Value::Null);
    scene.now += 20 * SECONDS;
    scene.run();
    assert_eq!(scene.scheduler.snapshot().assumed_count(), 1, "it has a place again");
}

#[test]
fn a_created_claim_that_never_appears_fails_the_binding_cycle() {
    let mut scene = extended();
    scene.pod("p", asks_for(GPU, "2"));
    scene.run();
    scene.done("patch pods/p/status");
    scene.done("create resourceclaims.resource.k8s.io/p-extended-resources-");
    scene.now += 121 * SECONDS;
    scene.run();
    let told = scene.take("FailedScheduling");
    assert!(body(&told)["note"].as_str().unwrap().contains("did not appear"));
    assert!(!scene.scheduler.snapshot().devices().has_claims(), "what was promised is free");
}

#[test]
fn device_taint_rules_keep_pods_without_tolerations_away() {
    let rule = |selector: Value, effect: &str| json!({"spec": {"deviceSelector": selector, "taint": {"key": "broken", "effect": effect}}});
    let toleration = json!([{"key": "broken", "operator": "Exists"}]);
    for (selector, effect, tolerations, free) in [
        (json!({"driver": "d.example", "pool": "p", "device": "a"}), "NoSchedule", json!([]), false),
        (json!({}), "NoExecute", json!([]), false),
        (json!({"device": "b"}), "NoSchedule", json!([]), true),
        (json!({"device": "a"}), "None", json!([]), true),
        (Value::Null, "NoSchedule", json!([]), true),
        (json!({"pool": "p"}), "NoSchedule", toleration.clone(), true),
    ] {
        let mut scene = Scene::new();
        scene.node("n", "4");
        scene.apply_object(Kind::DeviceClass, Key::cluster("gpu"), json!({"spec": {}}));
        scene.apply_object(Kind::ResourceSlice, Key::cluster("s"), slice(json!({"name": "a"})));
        scene.apply_object(Kind::DeviceTaintRule, Key::cluster("r"), rule(selector.clone(), effect));
        let exactly = json!({"deviceClassName": "gpu", "tolerations": tolerations});
        scene.apply_object(Kind::ResourceClaim, Key::new("default", "c"), claim("c", exactly, json!({})));
        scene.pod("p", uses("c"));
        scene.run();
        let has_place = scene.shown().iter().any(|request| request.contains("nominatedNodeName"));
        assert_eq!(has_place, free, "{selector} {effect}");
        if !free {
            scene.apply_object(Kind::DeviceTaintRule, Key::cluster("r"), Value::Null);
            scene.now += 20 * SECONDS;
            scene.run();
        }
        scene.done("patch pods/p/status");
        if !free {
            scene.done("patch pods/p/status");
        }
        let request = scene.done("patch resourceclaims.resource.k8s.io/c/status");
        let result = &body(&request)["status"]["allocation"]["devices"]["results"][0];
        assert_eq!(result["tolerations"], if tolerations == json!([]) { Value::Null } else { tolerations });
    }
}

/// A slice of a driver's pool, on the node `n`.
fn part(pool: &str, parts: u32, devices: Value) -> Value {
    json!({"spec": {"driver": "d.example", "nodeName": "n",
        "pool": {"name": pool, "generation": 1, "resourceSliceCount": parts}, "devices": devices}})
}

/// A scheduler with a node, these slices, and a pod with the claims `c0`, `c1` and so on.
fn with_claims(parts: &[Value], claims: &[Value], status: &[Value]) -> Scene {
    let mut scene = Scene::new();
    scene.node("n", "4");
    scene.apply_object(Kind::DeviceClass, Key::cluster("gpu"), json!({"spec": {}}));
    for (at, part) in parts.iter().enumerate() {
        scene.apply_object(Kind::ResourceSlice, Key::cluster(&format!("s{at}")), part.clone());
    }
    let (mut spec, mut uses) = (asks("1"), Vec::new());
    for (at, devices) in claims.iter().enumerate() {
        let name = format!("c{at}");
        let status = status.get(at).cloned().unwrap_or(json!({}));
        let claim = json!({"metadata": {"name": name, "uid": format!("{name}-uid")},
            "spec": {"devices": devices}, "status": status});
        scene.apply_object(Kind::ResourceClaim, Key::new("default", &name), claim);
        uses.push(json!({"name": name, "resourceClaimName": name}));
    }
    spec["resourceClaims"] = uses.into();
    scene.pod("p", spec);
    scene.run();
    scene
}

fn exactly(ask: Value) -> Value {
    let mut exactly = json!({"deviceClassName": "gpu"});
    exactly.as_object_mut().unwrap().extend(ask.as_object().cloned().unwrap());
    json!({"requests": [{"name": "r", "exactly": exactly}]})
}

impl Scene {
    /// The names of the devices that were allocated to the first claim.
    fn devices(&mut self) -> Vec<String> {
        self.done("patch pods/p/status");
        let request = self.take("patch resourceclaims.resource.k8s.io/c0/status");
        let results = body(&request)["status"]["allocation"]["devices"]["results"].as_array().unwrap().iter();
        results.map(|one| format!("{}/{}", one["pool"].as_str().unwrap(), one["device"].as_str().unwrap())).collect()
    }

    fn is_told(&mut self, reason: &str, message: &str) {
        let told = self.refusal_of("p");
        assert!(told.0 == reason && told.1.starts_with(message), "{told:?}, not {message}");
    }
}

const NONE_LEFT: &str = "0/1 nodes are available: 1 cannot allocate all claims.";

/// The message if the filter of DynamicResources fails because of the first claim.
fn fails(why: &str) -> String {
    format!("running \"DynamicResources\" filter plugin: claim default/c0{why}")
}

#[test]
fn a_missing_class_is_reported_with_its_alternative() {
    let alternatives = json!([{"name": "a", "deviceClassName": "gpu"}, {"name": "b", "deviceClassName": "ghost"}]);
    let devices = json!({"requests": [{"name": "r", "firstAvailable": alternatives}]});
    let mut scene = with_claims(&[part("p", 1, json!([{"name": "a"}]))], &[devices], &[]);
    scene.is_told("Unschedulable", "0/1 nodes are available: request r/b: device class ghost does not exist. no new");
}

#[test]
fn a_claim_that_no_node_can_satisfy_is_an_error() {
    let model = |model: &str| json!({"model": {"string": model}});
    let unlike =
        part("p", 1, json!([{"name": "a", "attributes": model("x")}, {"name": "b", "attributes": model("y")}]));
    let mut all = exactly(json!({"allocationMode": "All"}));
    all["constraints"] = json!([{"matchAttribute": "d.example/model"}]);
    let apart = ", request r: cannot add device d.example/p/b because a claim constraint would not be satisfied";
    with_claims(&[unlike], &[all], &[]).is_told("SchedulerError", &fails(apart));
    let some = part("p", 1, json!([{"name": "a"}]));
    let many = exactly(json!({"count": 33}));
    let limit = ": number of requested devices 33 exceeds the claim limit of 32";
    with_claims(&[some], &[many], &[]).is_told("SchedulerError", &fails(limit));
}

#[test]
fn an_alternative_with_too_many_devices_is_skipped() {
    let names: Vec<Value> = (0..45).map(|at| json!({"name": format!("d{at}")})).collect();
    let alternative = |name: &str, count: u32| json!({"name": name, "deviceClassName": "gpu", "count": count});
    let mut devices = exactly(json!({"count": 20}));
    let either = json!({"name": "s", "firstAvailable": [alternative("many", 13), alternative("few", 12)]});
    devices["requests"].as_array_mut().unwrap().push(either);
    let mut scene = with_claims(&[part("p", 1, names.into())], &[devices], &[]);
    assert_eq!(scene.devices().len(), 32);
}

#[test]
fn a_failed_expression_is_reported_with_its_owner() {
    let fails_at = |class: Value, own: Value| {
        let mut scene = Scene::new();
        scene.node("n", "4");
        scene.apply_object(Kind::DeviceClass, Key::cluster("gpu"), json!({"spec": {"selectors": class}}));
        scene.apply_object(Kind::ResourceSlice, Key::cluster("s"), slice(json!({"name": "a"})));
        let exactly = json!({"deviceClassName": "gpu", "selectors": own});
        scene.apply_object(Kind::ResourceClaim, Key::new("default", "c"), claim("c", exactly, json!({})));
        scene.pod("p", uses("c"));
        scene.run();
        scene.refusal_of("p").1
    };
    let cel = |expression: &str| json!({"cel": {"expression": expression}});
    let (holds, fails) = (cel("true"), cel("device.attributes['d.example'].model == 'x'"));
    let of_class = fails_at(json!([holds, fails]), json!([]));
    let told = "running \"DynamicResources\" filter plugin: class gpu: selector #1: CEL runtime error: ";
    assert!(of_class.starts_with(told), "{of_class}");
    let own = fails_at(json!([holds, holds]), json!([holds, fails]));
    let told = "running \"DynamicResources\" filter plugin: claim default/c: selector #1: CEL runtime error: ";
    assert!(own.starts_with(told), "{own}");
}

fn given_to_others(device: &str) -> Value {
    json!({"allocation": {"devices": {"results": [
        {"request": "r", "driver": "d.example", "pool": "p", "device": device}]}}})
}

#[test]
fn expressions_are_not_evaluated_for_devices_in_use() {
    let cel = json!([{"cel": {"expression": "device.attributes['d.example'].model == 'x'"}}]);
    let devices = json!([{"name": "a"}, {"name": "b", "attributes": {"model": {"string": "x"}}}]);
    let mut scene = Scene::new();
    scene.node("n", "4");
    scene.apply_object(Kind::DeviceClass, Key::cluster("gpu"), json!({"spec": {}}));
    scene.apply_object(Kind::ResourceSlice, Key::cluster("s"), part("p", 1, devices));
    let others = claim("other", json!({"deviceClassName": "gpu"}), given_to_others("a"));
    scene.apply_object(Kind::ResourceClaim, Key::new("default", "other"), others);
    let own = claim("c0", json!({"deviceClassName": "gpu", "selectors": cel}), json!({}));
    scene.apply_object(Kind::ResourceClaim, Key::new("default", "c0"), own);
    scene.pod("p", uses("c0"));
    scene.run();
    assert_eq!(scene.devices(), ["p/b"]);
}

#[test]
fn counters_used_by_a_claim_are_not_left_for_later_claims() {
    let (looks, has) = (exactly(json!({"adminAccess": true})), exactly(json!({})));
    let one = || [part("p", 1, json!([{"name": "a"}]))];
    with_claims(&one(), &[looks.clone(), has.clone()], &[]).is_told("Unschedulable", NONE_LEFT);
    assert_eq!(with_claims(&one(), &[has, looks], &[]).devices(), ["p/a"]);
}

#[test]
fn a_request_for_all_devices_takes_those_with_the_requested_capacity() {
    let memory = |amount: &str| json!({"memory": {"value": amount}});
    let devices = json!([{"name": "a", "capacity": memory("8Gi")}, {"name": "b", "capacity": memory("16Gi")}]);
    let ask = json!({"allocationMode": "All", "capacity": {"requests": {"memory": "10Gi"}}});
    assert_eq!(with_claims(&[part("p", 1, devices)], &[exactly(ask)], &[]).devices(), ["p/b"]);
}

#[test]
fn incomplete_pools_give_no_devices() {
    let all = || exactly(json!({"allocationMode": "All"}));
    let half = part("p", 2, json!([{"name": "a"}]));
    let updated = ", request r: asks for all devices, but resource pool d.example/p is currently being updated";
    with_claims(std::slice::from_ref(&half), &[all()], &[]).is_told("SchedulerError", &fails(updated));
    with_claims(&[half], &[exactly(json!({}))], &[]).is_told("Unschedulable", NONE_LEFT);
    let too_many = [part("p", 1, json!([{"name": "a"}])), part("p", 1, json!([{"name": "b"}]))];
    with_claims(&too_many, &[exactly(json!({}))], &[]).is_told("Unschedulable", NONE_LEFT);

    let twice = [part("p", 2, json!([{"name": "a"}])), part("p", 2, json!([{"name": "a"}]))];
    let invalid = ", request r: asks for all devices, but resource pool d.example/p is currently invalid";
    with_claims(&twice, &[all()], &[]).is_told("SchedulerError", &fails(invalid));
    let met = "0/1 nodes are available: 1 invalid resource pools were encountered. still not schedulable";
    with_claims(&twice, &[exactly(json!({}))], &[]).is_told("Unschedulable", met);
    let [one, other] = twice;
    let beside = with_claims(&[one, other, part("q", 1, json!([{"name": "a"}]))], &[exactly(json!({}))], &[]).devices();
    assert_eq!(beside, ["q/a"]);
    let consumes = json!([{"counterSet": "none", "counters": {"x": {"value": "1"}}}]);
    let muddled = part("p", 1, json!([{"name": "a", "consumesCounters": consumes}]));
    with_claims(&[muddled], &[exactly(json!({}))], &[]).is_told("Unschedulable", met);
}

/// A device of 40Gi can be allocated as a whole or in partitions. The device and its partitions consume the same
/// counters, of which earlier allocations and earlier choices of the search have consumed a part.
#[test]
fn partitions_of_a_device_share_its_counters() {
    let takes = |name: &str, amount: &str| json!({"name": name, "consumesCounters": [{"counterSet": "card", "counters": {"memory": {"value": amount}}}]});
    let counters = json!({"spec": {"driver": "d.example", "nodeName": "n", "pool": {"name": "p", "generation": 1, "resourceSliceCount": 2},
        "sharedCounters": [{"name": "card", "counters": {"memory": {"value": "40Gi"}}}]}});
    let devices = json!([takes("a", "40Gi"), takes("b", "20Gi"), takes("c", "20Gi"), takes("d", "10Gi")]);
    let parts = [counters, part("p", 2, devices)];
    let of_others = |device: &str| {
        let claim = claim("other", json!({"deviceClassName": "gpu"}), given_to_others(device));
        (Kind::ResourceClaim, Key::new("default", "other"), claim)
    };
    for (others, count, given) in [
        (None, 1, Some(vec!["p/a"])),
        (None, 2, Some(vec!["p/b", "p/c"])),
        (None, 3, None),
        (Some("a"), 1, None),
        (Some("b"), 1, Some(vec!["p/c"])),
        (Some("b"), 2, None),
        (Some("d"), 2, None),
        (Some("d"), 1, Some(vec!["p/b"])),
    ] {
        let mut scene = Scene::new();
        scene.node("n", "4");
        scene.apply_object(Kind::DeviceClass, Key::cluster("gpu"), json!({"spec": {}}));
        for (at, part) in parts.iter().enumerate() {
            scene.apply_object(Kind::ResourceSlice, Key::cluster(&format!("s{at}")), part.clone());
        }
        if let Some((kind, key, claim)) = others.map(of_others) {
            scene.apply_object(kind, key, claim);
        }
        scene.apply_object(
            Kind::ResourceClaim,
            Key::new("default", "c0"),
            claim("c0", json!({"deviceClassName": "gpu", "count": count}), json!({})),
        );
        scene.pod("p", uses("c0"));
        scene.run();
        match given {
            Some(devices) => assert_eq!(scene.devices(), devices, "{others:?} {count}"),
            None => scene.is_told("Unschedulable", NONE_LEFT),
        }
    }
}

#[test]
fn devices_are_allocated_in_order_of_pools_and_without_binding_conditions_first() {
    let (later, sooner) = (part("q", 1, json!([{"name": "a"}])), part("p", 1, json!([{"name": "a"}])));
    assert_eq!(with_claims(&[later.clone(), sooner], &[exactly(json!({}))], &[]).devices(), ["p/a"]);
    let waits = part("p", 1, json!([{"name": "a", "bindingConditions": ["Ready"]}]));
    assert_eq!(with_claims(&[later, waits], &[exactly(json!({}))], &[]).devices(), ["q/a"]);
}

#[test]
fn devices_are_released_only_if_the_other_claims_could_be_satisfied() {
    let mut elsewhere = given_to_others("z");
    elsewhere["allocation"]["nodeSelector"] = json!({"nodeSelectorTerms": [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["m"]}]}]});
    let claims = [exactly(json!({})), exactly(json!({}))];
    let mut scene = with_claims(&[], &claims, &[elsewhere.clone()]);
    scene.is_told("Unschedulable", "0/1 nodes are available: 1 cannot allocate all claims. still not schedulable");
    let mut scene = with_claims(&[part("q", 1, json!([{"name": "a"}]))], &claims, &[elsewhere]);
    let told = "0/1 nodes are available: 1 resourceclaim not available on the node. deallocation of";
    scene.is_told("Unschedulable", told);
}

#[test]
fn devices_of_one_request_differ_even_if_shared() {
    let shared = |name: &str| json!({"name": name, "allowMultipleAllocations": true});
    let two = || exactly(json!({"count": 2}));
    with_claims(&[part("p", 1, json!([shared("a")]))], &[two()], &[]).is_told("Unschedulable", NONE_LEFT);
    let both = part("p", 1, json!([shared("a"), shared("b")]));
    assert_eq!(with_claims(&[both], &[two()], &[]).devices(), ["p/a", "p/b"]);
}

#[test]
fn an_unknown_attribute_domain_is_empty() {
    let devices = json!([{"name": "a"}, {"name": "b", "attributes": {"other.example/x": {"int": 1}}}]);
    let known = |expression: &str, device: &str| {
        let ask = json!({"selectors": [{"cel": {"expression": expression}}]});
        let mut scene = with_claims(&[part("p", 1, devices.clone())], &[exactly(ask)], &[]);
        assert_eq!(scene.devices(), [device], "{expression}");
    };
    known("'other.example' in device.attributes", "p/b");
    known("!('other.example' in device.attributes)", "p/a");
    known("'x' in device.attributes[ \"other.example\" ]", "p/b");
    known("!device.attributes[?'other.example'].x.hasValue()", "p/a");
}
