use super::*;
use holdfast_value::Value;
use holdfast_world::trial::Trial;

pub fn pod(name: &str, ip: &str, ready: bool) -> (Value, Value) {
    let object = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "a"}},
        "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i",
            "ports": [{"name": "web", "containerPort": 8080}]}]},
    });
    let ready = if ready { "True" } else { "False" };
    let status = json!({"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}],
        "conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": "2026-11-21T09:00:00Z"}]});
    (object, status)
}

fn add(trial: &mut Trial, name: &str, ip: &str, ready: bool) {
    let (object, status) = pod(name, ip, ready);
    trial.create(object);
    trial.patch_status("pods", name, status);
}

fn service(spec: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s", "labels": {"team": "blue"}}, "spec": spec})
}

fn shown(trial: &Trial) -> Vec<String> {
    let endpoints = trial.get("endpoints", "s");
    let mut lines = Vec::new();
    for subset in endpoints["subsets"].as_array().into_iter().flatten() {
        let ips = |field: &str| {
            let addresses = subset[field].as_array().into_iter().flatten();
            addresses.map(|address| address["ip"].as_str().expect("an address")).collect::<Vec<_>>().join(" ")
        };
        let ports = subset["ports"].as_array().into_iter().flatten().map(|port| port["port"].to_string());
        let ports = ports.collect::<Vec<_>>().join(" ");
        lines.push(format!("{} | {} | {ports}", ips("addresses"), ips("notReadyAddresses")));
    }
    lines
}

#[test]
fn pods_come_become_ready_and_go() {
    let mut trial = Trial::new().with(EndpointsController::default());
    add(&mut trial, "p1", "10.9.0.1", true);
    add(&mut trial, "p2", "10.9.0.2", false);
    let ports = json!([{"name": "a", "port": 80, "targetPort": "web"}, {"name": "b", "port": 81, "targetPort": 90}]);
    trial.create(service(json!({"selector": {"app": "a"}, "ports": ports})));
    trial.run();
    assert_eq!(shown(&trial), ["10.9.0.1 | 10.9.0.2 | 8080 90"]);
    let endpoints = trial.get("endpoints", "s");
    let labels = json!({"endpoints.kubernetes.io/managed-by": "endpoint-controller", "team": "blue",
        "service.kubernetes.io/headless": ""});
    assert_eq!(endpoints["metadata"]["labels"]["team"], labels["team"]);
    assert_eq!(endpoints["metadata"]["annotations"][TRIGGER], "2026-11-21T10:00:00Z");
    let ready = json!([{"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-21T11:00:00Z"}]);
    trial.patch_status("pods", "p2", json!({"conditions": ready}));
    trial.run();
    assert_eq!(shown(&trial), ["10.9.0.1 10.9.0.2 |  | 8080 90"]);
    assert_eq!(trial.get("endpoints", "s")["metadata"]["annotations"][TRIGGER], "2026-11-21T11:00:00Z");
    trial.patch_status("pods", "p1", json!({"phase": "Failed"}));
    trial.patch("services", "s", json!({"metadata": {"labels": {"team": "red"}}}));
    trial.run();
    assert_eq!(shown(&trial), ["10.9.0.2 |  | 8080 90"]);
    let endpoints = trial.get("endpoints", "s");
    assert_eq!(endpoints["metadata"]["labels"]["team"], "red");
    assert_eq!(endpoints["metadata"]["annotations"][TRIGGER], Value::Null, "nothing moved that was not known");
    trial.delete("services", "s");
    trial.run();
    assert_eq!(trial.get("endpoints", "s"), Value::Null);
}

#[test]
fn endpoints_of_others_stay() {
    let mut trial = Trial::new().with(EndpointsController::default());
    let by_hand = json!({"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "s"},
        "subsets": [{"addresses": [{"ip": "10.9.0.1"}], "ports": [{"port": 80}]}]});
    trial.create(by_hand.clone());
    trial.run();
    assert_eq!(shown(&trial), ["10.9.0.1 |  | 80"]);
    trial.create(service(json!({"ports": [{"port": 80}]})));
    trial.run();
    assert_eq!(shown(&trial), ["10.9.0.1 |  | 80"]);
    trial.delete("services", "s");
    trial.run();
    assert!(shown(&trial).is_empty(), "they go with their service");
    trial.create(by_hand);
    trial.run();
    assert_eq!(shown(&trial), ["10.9.0.1 |  | 80"]);
}

#[test]
fn what_is_published_and_what_is_not() {
    let mut trial = Trial::new().with(EndpointsController::default());
    add(&mut trial, "p1", "10.9.0.1", false);
    let spec = json!({"selector": {"app": "a"}, "clusterIP": "None", "publishNotReadyAddresses": true});
    trial.create(service(spec));
    trial.run();
    assert_eq!(shown(&trial), ["10.9.0.1 |  | "]);
    let labels = trial.get("endpoints", "s")["metadata"]["labels"].clone();
    assert_eq!(labels["service.kubernetes.io/headless"], "");
    trial.patch("services", "s", json!({"spec": {"publishNotReadyAddresses": false}}));
    trial.run();
    assert_eq!(shown(&trial), [" | 10.9.0.1 | "]);
    trial.patch("pods", "p1", json!({"metadata": {"labels": {"app": "b"}}}));
    trial.run();
    assert!(shown(&trial).is_empty());
}

#[test]
fn too_many_addresses_are_cut_those_that_are_not_ready_first() {
    let addresses = |from: usize, count: usize| -> Vec<EndpointAddress> {
        (from..from + count)
            .map(|number| EndpointAddress { ip: format!("{number}"), ..EndpointAddress::default() })
            .collect()
    };
    let subset = |ready: usize, waiting: usize| Subset {
        addresses: addresses(0, ready),
        not_ready_addresses: addresses(5000, waiting),
        ports: Vec::new(),
    };
    let counts = |subsets: Vec<Subset>| {
        let (subsets, truncated) = truncate(subsets);
        let counts = subsets.iter().map(|subset| (subset.addresses.len(), subset.not_ready_addresses.len()));
        (counts.collect::<Vec<_>>(), truncated)
    };
    assert_eq!(counts(vec![subset(600, 400)]), (vec![(600, 400)], false));
    assert_eq!(counts(vec![subset(600, 300), subset(0, 300)]), (vec![(600, 200), (0, 200)], true));
    assert_eq!(counts(vec![subset(900, 5), subset(601, 5)]), (vec![(600, 0), (400, 0)], true));
}

#[test]
fn ports_of_the_same_addresses_stand_together() {
    let address = |ip: &str| EndpointAddress { ip: ip.into(), ..EndpointAddress::default() };
    let port = |port: i64| SubsetPort { port, ..SubsetPort::default() };
    let subset = |ready: &[&str], waiting: &[&str], ports: &[i64]| Subset {
        addresses: ready.iter().map(|ip| address(ip)).collect(),
        not_ready_addresses: waiting.iter().map(|ip| address(ip)).collect(),
        ports: ports.iter().map(|number| port(*number)).collect(),
    };
    for (given, expected) in [
        (vec![subset(&["a"], &[], &[80]), subset(&["a"], &[], &[81])], vec![subset(&["a"], &[], &[80, 81])]),
        (
            vec![subset(&["a"], &[], &[80, 81]), subset(&["b"], &[], &[80])],
            vec![subset(&["a"], &[], &[81]), subset(&["a", "b"], &[], &[80])],
        ),
        (vec![subset(&["a"], &[], &[80]), subset(&[], &["a"], &[80])], vec![subset(&[], &["a"], &[80])]),
        (vec![subset(&["b", "a", "a"], &[], &[])], vec![subset(&["a", "b"], &[], &[])]),
        (vec![subset(&[], &[], &[80])], vec![]),
    ] {
        assert_eq!(repacked(&given), expected, "{given:?}");
    }
}

#[test]
fn what_people_write_into_endpoints_stays_until_something_moves() {
    let mut trial = Trial::new().with(EndpointsController::default());
    trial.is_level = false;
    add(&mut trial, "p1", "10.9.0.1", true);
    trial.create(service(json!({"selector": {"app": "a"}, "ports": [{"port": 80}]})));
    trial.run();
    let by_hand = json!([{"addresses": [{"ip": "10.9.0.9"}], "ports": [{"port": 80}]}]);
    trial.patch("endpoints", "s", json!({"subsets": by_hand}));
    trial.run();
    assert_eq!(shown(&trial), ["10.9.0.9 |  | 80"]);
    add(&mut trial, "p2", "10.9.0.2", true);
    trial.run();
    assert_eq!(shown(&trial), ["10.9.0.1 10.9.0.2 |  | 80"]);
    trial.delete("endpoints", "s");
    trial.run();
    assert_eq!(shown(&trial), ["10.9.0.1 10.9.0.2 |  | 80"]);
    let mut others = json!({"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "t"}});
    others["metadata"]["labels"] = json!({MANAGED_BY: MANAGER});
    trial.create(others);
    trial.run();
    assert_eq!(trial.names("endpoints"), ["s", "t"]);
    trial.restart(EndpointsController::default());
    trial.run();
    assert_eq!(trial.names("endpoints"), ["s"], "the next start finds that it has no service");
}

#[test]
fn endpoints_that_cannot_be_made_are_told_of() {
    let mut trial = Trial::new().with(EndpointsController::default());
    crate::testing::allow(&mut trial, "count/endpoints", 0);
    trial.create(service(json!({"selector": {"app": "a"}, "ports": [{"port": 80}]})));
    trial.run_for(1);
    let told = "Warning FailedToCreateEndpoint Failed to create endpoint for service default/s: endpoints \"s\" is forbidden: \
                exceeded quota: q";
    assert!(trial.take_event_texts()[0].starts_with(told));
}
