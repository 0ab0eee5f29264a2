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
    scene.done("patch resourceclaims.resource.k8s.io/c ");
    let order = scene.done("patch resourceclaims.resource.k8s.io/c/status");
    let status = body(&order)["status"].clone();
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
        scene.done(&format!("patch resourceclaims.resource.k8s.io/{name} "));
        let order = scene.done(&format!("patch resourceclaims.resource.k8s.io/{name}/status"));
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
