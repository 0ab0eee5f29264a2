//! Devices that are made ready after they were given, and devices that several claims share.

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

/// A scheduler that knows of one device and has given it to a pod, which is written down.
fn given() -> (Scene, Value) {
    let mut scene = Scene::new();
    scene.node("n", "4");
    scene.see(Kind::DeviceClass, Key::cluster("gpu"), json!({"spec": {}}));
    let device = json!({"name": "a", "bindingConditions": ["Ready"], "bindingFailureConditions": ["Broken"]});
    scene.see(Kind::ResourceSlice, Key::cluster("s"), slice(device));
    scene.see(Kind::ResourceClaim, Key::new("default", "c"), claim("c", json!({"deviceClassName": "gpu"}), json!({})));
    scene.pod("p", uses("c"));
    scene.turn();
    scene.done("patch pods/p/status");
    let order = scene.done("patch resourceclaims.resource.k8s.io/c/status");
    let status = body(&order)["status"].clone();
    scene.done("patch resourceclaims.resource.k8s.io/c ");
    scene.told(&status, json!([]));
    (scene, status)
}

impl Scene {
    fn told(&mut self, status: &Value, conditions: Value) {
        let mut status = status.clone();
        status["devices"] = json!([{"driver": "d.example", "pool": "p", "device": "a", "conditions": conditions}]);
        self.see(Kind::ResourceClaim, Key::new("default", "c"), claim("c", json!({"deviceClassName": "gpu"}), status));
        self.turn();
    }

    fn is_bound(&self) -> bool {
        self.shown().iter().any(|order| order.contains("pods/p/binding"))
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
fn devices_that_fail_are_given_back() {
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
fn devices_that_are_not_ready_in_time_are_given_back() {
    let (mut scene, _) = given();
    scene.now += 599 * SECONDS;
    scene.turn();
    assert!(!scene.shown().iter().any(|order| order.contains("FailedScheduling")));
    scene.now += 2 * SECONDS;
    scene.turn();
    let told = scene.take("FailedScheduling");
    assert_eq!(body(&told)["note"], "running PreBind plugin \"DynamicResources\": claim c binding timeout");
    scene.take(r#"resourceclaims.resource.k8s.io/c/status {"metadata":{"uid":"c-uid"},"status":{"allocation":null"#);
    // Once they are free, others are looked for.
    scene.see(Kind::ResourceClaim, Key::new("default", "c"), claim("c", json!({"deviceClassName": "gpu"}), json!({})));
    scene.now += 20 * SECONDS;
    scene.turn();
    scene.take("pods/p/status");
}

#[test]
fn claims_share_a_device_as_long_as_it_has_enough() {
    let mut scene = Scene::new();
    scene.node("n", "8");
    scene.see(Kind::DeviceClass, Key::cluster("gpu"), json!({"spec": {}}));
    let policy = json!({"default": "2Gi", "validRange": {"min": "2Gi", "step": "2Gi"}});
    let memory = json!({"memory": {"value": "10Gi", "requestPolicy": policy}});
    scene.see(
        Kind::ResourceSlice,
        Key::cluster("s"),
        slice(json!({"name": "a", "allowMultipleAllocations": true, "capacity": memory})),
    );
    let asks = |amount: &str| json!({"deviceClassName": "gpu", "capacity": {"requests": {"memory": amount}}});
    let mut shares = Vec::new();
    for (at, (amount, wanted)) in
        [("3Gi", Some("4294967296")), ("5Gi", Some("6442450944")), ("1", None)].into_iter().enumerate()
    {
        let (name, pod) = (format!("c{at}"), format!("p{at}"));
        scene.see(Kind::ResourceClaim, Key::new("default", &name), claim(&name, asks(amount), json!({})));
        scene.pod(&pod, uses(&name));
        scene.turn();
        let Some(wanted) = wanted else { break };
        scene.done(&format!("patch pods/{pod}/status"));
        let order = scene.done(&format!("patch resourceclaims.resource.k8s.io/{name}/status"));
        scene.done(&format!("patch resourceclaims.resource.k8s.io/{name} "));
        let status = body(&order)["status"].clone();
        let result = &status["allocation"]["devices"]["results"][0];
        assert_eq!(result["consumedCapacity"], json!({"memory": wanted}));
        shares.push(result["shareID"].as_str().unwrap().to_owned());
        scene.see(Kind::ResourceClaim, Key::new("default", &name), claim(&name, asks(amount), status));
    }
    assert!(shares[0] != shares[1] && shares[0].len() == 36, "{shares:?}");
    let told = scene.take("FailedScheduling");
    assert!(
        body(&told)["note"].as_str().unwrap().starts_with("0/1 nodes are available: 1 cannot allocate all claims.")
    );
}

#[test]
fn a_request_for_a_capacity_is_for_devices_that_have_it() {
    for (asked, found) in
        [(json!({"memory": "8Gi"}), true), (json!({"memory": "9Gi"}), false), (json!({"cores": "1"}), false)]
    {
        let mut scene = Scene::new();
        scene.node("n", "8");
        scene.see(Kind::DeviceClass, Key::cluster("gpu"), json!({"spec": {}}));
        let device = json!({"name": "a", "capacity": {"memory": {"value": "8Gi"}}});
        scene.see(Kind::ResourceSlice, Key::cluster("s"), slice(device));
        let exactly = json!({"deviceClassName": "gpu", "capacity": {"requests": asked}});
        scene.see(Kind::ResourceClaim, Key::new("default", "c"), claim("c", exactly, json!({})));
        scene.pod("p", uses("c"));
        scene.turn();
        assert_eq!(!scene.shown().iter().any(|order| order.contains("FailedScheduling")), found, "{asked}");
    }
}

/// Asks for so many of an extended resource.
fn asks_for(resource: &str, count: &str) -> Value {
    json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": "1", resource: count}}}]})
}

const GPU: &str = "example.com/gpu";

/// A scheduler that finds devices for extended resources, with a class and two devices on one of two nodes.
fn extended() -> Scene {
    let mut configuration = Configuration::default();
    configuration.take_gates(|name| name != "GangScheduling");
    let scheduler = Scheduler::new(Arc::new(configuration));
    let mut scene = Scene { scheduler, orders: Vec::new(), now: 100 * SECONDS };
    scene.node("m", "4");
    scene.node("n", "4");
    scene.see(Kind::DeviceClass, Key::cluster("gpu"), json!({"spec": {"extendedResourceName": GPU}}));
    let mut devices = slice(json!({"name": "a"}));
    devices["spec"]["devices"] = json!([{"name": "a"}, {"name": "b"}]);
    scene.see(Kind::ResourceSlice, Key::cluster("s"), devices);
    scene
}

impl Scene {
    fn made(&mut self, order: &Order, uid: &str, status: Value) -> Key {
        let mut claim = body(order).clone();
        claim["metadata"]["uid"] = uid.into();
        claim["status"] = status;
        let key = action(order).key.clone();
        self.see(Kind::ResourceClaim, key.clone(), claim);
        self.turn();
        key
    }
}

#[test]
fn a_claim_is_made_for_extended_resources_that_are_devices() {
    let mut scene = extended();
    scene.pod("p", asks_for(GPU, "2"));
    scene.turn();
    assert_eq!(body(&scene.done("patch pods/p/status"))["status"], json!({"nominatedNodeName": "n"}));
    let order = scene.done("create resourceclaims.resource.k8s.io/p-extended-resources-");
    let meta = &body(&order)["metadata"];
    assert_eq!(meta["annotations"], json!({"resource.kubernetes.io/extended-resource-claim": "true"}));
    assert_eq!(
        (&meta["generateName"], &meta["ownerReferences"][0]["uid"]),
        (&json!("p-extended-resources-"), &json!("p-uid"))
    );
    let exactly = json!({"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 2});
    let request = json!([{"name": "container-0-request-1", "exactly": exactly}]);
    assert_eq!(body(&order)["spec"]["devices"]["requests"], request);
    assert!(!scene.shown().iter().any(|order| order.contains("pods/p/")), "nothing is written before it is seen");
    // What is promised is nobody else's.
    scene.pod("q", asks_for(GPU, "1"));
    scene.turn();
    let told = scene.take("FailedScheduling");
    let note = body(&told)["note"].as_str().unwrap().to_owned();
    assert!(note.starts_with("0/2 nodes are available: 2 cannot allocate all claims. still not"), "{note}");

    let made = |scene: &mut Scene| {
        let told = scene.scheduler.observed().into_iter();
        told.filter(|told| matches!(told, Observed::ClaimMade { .. })).collect::<Vec<_>>()
    };
    assert_eq!(made(&mut scene), [Observed::ClaimMade { success: true }]);
    let key = scene.made(&order, "claim-uid", json!({}));
    let reserved = scene.done(&format!("patch resourceclaims.resource.k8s.io/{}/status", key.name));
    let status = &body(&reserved)["status"];
    assert_eq!(body(&reserved)["metadata"]["uid"], "claim-uid");
    assert_eq!(status["reservedFor"][0]["uid"], "p-uid");
    assert_eq!(status["allocation"]["devices"]["results"].as_array().map(Vec::len), Some(2));
    assert!(!scene.is_bound());
    let told = scene.done("patch pods/p/status");
    let mapping = json!({"containerName": "c", "resourceName": GPU, "requestName": "container-0-request-1"});
    let wanted = json!({"resourceClaimName": &*key.name, "requestMappings": [mapping]});
    assert_eq!(body(&told)["status"], json!({"extendedResourceClaimStatus": wanted}));
    let protected = scene.done(&format!("patch resourceclaims.resource.k8s.io/{} ", key.name));
    assert_eq!(body(&protected)["metadata"]["finalizers"], json!(["resource.kubernetes.io/delete-protection"]));
    assert!(scene.is_bound());
    assert_eq!(made(&mut scene), [], "nothing else made a claim");
    scene.pod("r", asks_for("deviceclass.resource.kubernetes.io/gpu", "1"));
    scene.see(Kind::ResourceClaim, key, Value::Null);
    scene.now += 20 * SECONDS;
    scene.turn();
    scene.done("patch pods/r/status");
    scene.refused("create resourceclaims.resource.k8s.io/r-extended-resources-", 403, "Forbidden");
    assert_eq!(made(&mut scene), [Observed::ClaimMade { success: false }]);
}

#[test]
fn without_the_gate_and_where_nodes_have_them_extended_resources_are_those_of_nodes() {
    let mut scene = Scene::new();
    scene.node("n", "4");
    scene.see(Kind::DeviceClass, Key::cluster("gpu"), json!({"spec": {"extendedResourceName": GPU}}));
    scene.see(Kind::ResourceSlice, Key::cluster("s"), slice(json!({"name": "a"})));
    scene.pod("p", asks_for(GPU, "1"));
    scene.turn();
    let told = scene.take("FailedScheduling");
    assert!(body(&told)["note"].as_str().unwrap().contains("1 Insufficient example.com/gpu"), "{}", body(&told));

    let mut scene = extended();
    let allocatable = json!({"cpu": "4", "pods": "10", GPU: "3"});
    scene.see(
        Kind::Node,
        Key::cluster("m"),
        json!({"metadata": {"name": "m"}, "status": {"allocatable": allocatable}}),
    );
    scene.pod("p", asks_for(GPU, "3"));
    scene.turn();
    assert_eq!(body(&scene.done("create pods/p/binding"))["target"]["name"], "m");
}

#[test]
fn a_class_stands_for_a_resource_of_its_own_and_the_newest_for_one_that_several_name() {
    let mut scene = extended();
    scene.pod("p", asks_for("deviceclass.resource.kubernetes.io/gpu", "1"));
    scene.turn();
    scene.take("patch pods/p/status");
    let newer =
        json!({"metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"}, "spec": {"extendedResourceName": GPU}});
    scene.see(Kind::DeviceClass, Key::cluster("newer"), newer);
    assert_eq!(scene.scheduler.snapshot().class_for(GPU).as_deref(), Some("newer"));
    scene.see(Kind::DeviceClass, Key::cluster("newer"), Value::Null);
    assert_eq!(scene.scheduler.snapshot().class_for(GPU).as_deref(), Some("gpu"));
    scene.see(Kind::DeviceClass, Key::cluster("gpu"), json!({"spec": {}}));
    assert_eq!(scene.scheduler.snapshot().class_for(GPU), None);
    assert_eq!(scene.scheduler.snapshot().class_for("cpu"), None);
}

#[test]
fn a_claim_of_an_attempt_that_failed_goes_before_the_next() {
    let mut scene = extended();
    scene.pod("p", asks_for(GPU, "1"));
    scene.turn();
    scene.done("patch pods/p/status");
    let order = scene.done("create resourceclaims.resource.k8s.io/p-extended-resources-");
    let key = scene.made(&order, "claim-uid", json!({}));
    scene.refused(&format!("patch resourceclaims.resource.k8s.io/{}/status", key.name), 500, "InternalError");
    scene.take(&format!("delete resourceclaims.resource.k8s.io/{}", key.name));
    scene.take(r#""$deleteFromPrimitiveList/finalizers":["resource.kubernetes.io/delete-protection"]"#);
    scene.orders.clear();
    // As long as it is there, the pod has no place.
    scene.now += 20 * SECONDS;
    scene.turn();
    let told = scene.take("FailedScheduling");
    let note = body(&told)["note"].as_str().unwrap().to_owned();
    assert!(note.contains("2 cannot schedule extended resource claim. deletion of ResourceClaim completed"), "{note}");
    scene.orders.clear();
    scene.see(Kind::ResourceClaim, key, Value::Null);
    scene.now += 20 * SECONDS;
    scene.turn();
    assert_eq!(scene.scheduler.snapshot().assumed_count(), 1, "it has a place again");
}

#[test]
fn a_claim_that_never_appears_is_not_waited_for_forever() {
    let mut scene = extended();
    scene.pod("p", asks_for(GPU, "2"));
    scene.turn();
    scene.done("patch pods/p/status");
    scene.done("create resourceclaims.resource.k8s.io/p-extended-resources-");
    scene.now += 121 * SECONDS;
    scene.turn();
    let told = scene.take("FailedScheduling");
    assert!(body(&told)["note"].as_str().unwrap().contains("did not appear"));
    assert!(scene.scheduler.snapshot().device_claims.is_empty(), "what was promised is free");
}

#[test]
fn a_rule_keeps_pods_from_devices_that_do_not_tolerate_it() {
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
        scene.see(Kind::DeviceClass, Key::cluster("gpu"), json!({"spec": {}}));
        scene.see(Kind::ResourceSlice, Key::cluster("s"), slice(json!({"name": "a"})));
        scene.see(Kind::DeviceTaintRule, Key::cluster("r"), rule(selector.clone(), effect));
        let exactly = json!({"deviceClassName": "gpu", "tolerations": tolerations});
        scene.see(Kind::ResourceClaim, Key::new("default", "c"), claim("c", exactly, json!({})));
        scene.pod("p", uses("c"));
        scene.turn();
        let has_place = scene.shown().iter().any(|order| order.contains("nominatedNodeName"));
        assert_eq!(has_place, free, "{selector} {effect}");
        if !free {
            scene.see(Kind::DeviceTaintRule, Key::cluster("r"), Value::Null);
            scene.now += 20 * SECONDS;
            scene.turn();
        }
        scene.done("patch pods/p/status");
        if !free {
            scene.done("patch pods/p/status");
        }
        let order = scene.done("patch resourceclaims.resource.k8s.io/c/status");
        let result = &body(&order)["status"]["allocation"]["devices"]["results"][0];
        assert_eq!(result["tolerations"], if tolerations == json!([]) { Value::Null } else { tolerations });
    }
}
