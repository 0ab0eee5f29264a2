use super::mirroring::Mirroring;
use super::*;
use holdfast_value::{Value, json};
use holdfast_world::trial::Trial;

fn node(name: &str, zone: &str, cpu: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {ZONE: zone}},
        "status": {"allocatable": {"cpu": cpu}, "conditions": [{"type": "Ready", "status": "True"}]}})
}

fn add(trial: &mut Trial, name: &str, node: &str, ips: &[&str], ready: bool) {
    trial.create(json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "a"}},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]},
    }));
    let all: Vec<Value> = ips.iter().map(|ip| json!({"ip": ip})).collect();
    let ready = if ready { "True" } else { "False" };
    let conditions = json!([{"type": "Ready", "status": ready, "lastTransitionTime": "2026-11-21T09:00:00Z"}]);
    let status = json!({"phase": "Running", "podIP": ips[0], "podIPs": all, "conditions": conditions});
    trial.patch_status("pods", name, status);
}

fn service(name: &str, mut spec: Value) -> Value {
    spec["selector"] = json!({"app": "a"});
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec})
}

fn started(max: usize) -> Trial {
    let mut settings = Settings::default();
    settings.services.endpoints_per_slice = max;
    let mut trial = Trial::new().with(EndpointSlices::new(&settings));
    for (name, zone) in [("n1", "z1"), ("n2", "z2")] {
        let object = node(name, zone, "4");
        let status = object["status"].clone();
        trial.create(object);
        trial.patch_status("nodes", name, status);
    }
    trial
}

/// Each slice by its name, with its pods in the order in which the slice lists them.
fn shown(trial: &Trial) -> Vec<(String, Vec<String>)> {
    let mut slices = trial.list("endpointslices");
    slices.sort_by_key(|slice| slice["metadata"]["creationTimestamp"].as_str().map(str::to_owned));
    let pods = |slice: &Value| {
        let endpoints = slice["endpoints"].as_array().into_iter().flatten();
        let name = |endpoint: &Value| endpoint["targetRef"]["name"].as_str().unwrap_or("?").to_owned();
        endpoints.map(name).collect()
    };
    slices.iter().map(|slice| (slice["metadata"]["name"].as_str().expect("a name").to_owned(), pods(slice))).collect()
}

fn pods(trial: &Trial) -> Vec<Vec<String>> {
    let mut pods: Vec<_> = shown(trial).into_iter().map(|(_, pods)| pods).collect();
    pods.sort_by_key(|pods| std::cmp::Reverse(pods.len()));
    pods
}

#[test]
fn an_endpoint_tells_of_its_pod() {
    let mut trial = started(100);
    add(&mut trial, "p1", "n1", &["10.9.0.1"], true);
    trial.create(service("s", json!({"ports": [{"port": 80, "targetPort": 8080}]})));
    trial.run();
    let slice = &trial.list("endpointslices")[0];
    assert_eq!(slice["addressType"], "IPv4");
    assert_eq!(slice["ports"], json!([{"name": "", "port": 8080, "protocol": "TCP"}]));
    assert_eq!(slice["metadata"]["generateName"], "s-");
    assert_eq!(slice["metadata"]["ownerReferences"][0]["kind"], "Service");
    let endpoint = &slice["endpoints"][0];
    assert_eq!(endpoint["conditions"], json!({"ready": true, "serving": true, "terminating": false}));
    assert_eq!((&endpoint["nodeName"], &endpoint["zone"]), (&json!("n1"), &json!("z1")));
    trial.delete("pods", "p1");
    trial.run();
    let slice = &trial.list("endpointslices")[0];
    assert_eq!(slice["endpoints"][0]["conditions"], json!({"ready": false, "serving": true, "terminating": true}));
    trial.delete_as("pods", "p1", None, Some(0));
    trial.run();
    let slices = trial.list("endpointslices");
    assert_eq!(slices.len(), 1, "an empty slice stays");
    assert_eq!(slices[0]["metadata"]["name"], slice["metadata"]["name"]);
}

#[test]
fn slices_are_filled_and_left_alone() {
    let mut trial = started(3);
    for number in 1..=7 {
        add(&mut trial, &format!("p{number}"), "n1", &[&format!("10.9.0.{number}")], true);
    }
    trial.create(service("s", json!({"ports": [{"port": 80}]})));
    trial.run();
    assert_eq!(pods(&trial).iter().map(Vec::len).collect::<Vec<_>>(), [3, 3, 1]);
    let versions = |trial: &Trial| -> Vec<Value> {
        trial.list("endpointslices").iter().map(|slice| slice["metadata"]["resourceVersion"].clone()).collect()
    };
    let before = versions(&trial);
    add(&mut trial, "p8", "n1", &["10.9.0.8"], true);
    trial.run();
    assert_eq!(pods(&trial).iter().map(Vec::len).collect::<Vec<_>>(), [3, 3, 2], "the one with space takes it");
    let after = versions(&trial);
    assert_eq!(before.iter().zip(&after).filter(|(a, b)| a != b).count(), 1);
    for name in ["p1", "p2"] {
        trial.delete_as("pods", name, None, Some(0));
    }
    trial.run();
    let counts = pods(&trial).iter().map(Vec::len).sum::<usize>();
    assert_eq!((counts, trial.list("endpointslices").len()), (6, 3), "nothing moves between slices");
}

#[test]
fn each_family_has_its_slices() {
    let mut trial = started(100);
    trial.settings.service_ranges = "10.0.0.0/24,fd00:1::/112".parse().expect("two ranges");
    add(&mut trial, "p1", "n1", &["10.9.0.1", "fd00::1"], true);
    trial.create(service(
        "s",
        json!({"clusterIP": "None", "ipFamilyPolicy": "PreferDualStack",
        "ipFamilies": ["IPv4", "IPv6"]}),
    ));
    trial.run();
    let types: Vec<Value> = trial.list("endpointslices").iter().map(|slice| slice["addressType"].clone()).collect();
    assert!(types.contains(&json!("IPv4")) && types.contains(&json!("IPv6")), "{types:?}");
    assert_eq!(trial.list("endpointslices")[0]["metadata"]["labels"]["service.kubernetes.io/headless"], "");
}

#[test]
fn a_pod_on_an_unknown_node_waits_for_it() {
    let mut trial = started(100);
    add(&mut trial, "p1", "n3", &["10.9.0.1"], true);
    trial.create(service("s", json!({"ports": [{"port": 80}]})));
    trial.run();
    assert_eq!(pods(&trial), [Vec::<String>::new()]);
    let skipped = "Warning FailedToUpdateEndpointSlices Error updating Endpoint Slices for Service default/s: skipping \
                   Pod p1 for Service default/s: Node n3 Not Found";
    assert_eq!(trial.take_event_texts()[0], skipped);
    trial.create(node("n3", "z3", "1"));
    trial.run();
    assert_eq!(pods(&trial), [["p1"]]);
}

#[test]
fn who_should_use_which() {
    let mut trial = started(100);
    for (name, node, ip) in [("p1", "n1", "10.9.0.1"), ("p2", "n1", "10.9.0.2"), ("p3", "n1", "10.9.0.3")] {
        add(&mut trial, name, node, &[ip], true);
    }
    trial.create(service("s", json!({"ports": [{"port": 80}], "trafficDistribution": "PreferClose"})));
    trial.run();
    let zones = |trial: &Trial| -> Vec<String> {
        let slice = trial.list("endpointslices").remove(0);
        let endpoints = slice["endpoints"].as_array().into_iter().flatten().cloned().collect::<Vec<_>>();
        endpoints
            .iter()
            .map(|endpoint| endpoint["hints"]["forZones"][0]["name"].as_str().unwrap_or("").into())
            .collect()
    };
    assert_eq!(zones(&trial), ["z1", "z1", "z1"]);
    trial.patch("services", "s", json!({"spec": {"trafficDistribution": null}}));
    trial.run();
    assert_eq!(zones(&trial), ["", "", ""]);
    trial.patch("services", "s", json!({"metadata": {"annotations": {"service.kubernetes.io/topology-mode": "Auto"}}}));
    trial.run();
    // Both zones have equal processors, so each needs at least two of three endpoints, even with the allowed overload.
    let warning = "Warning TopologyAwareHintsDisabled Unable to allocate minimum required endpoints to each zone without \
                   exceeding overload threshold (3 endpoints, 2 zones), addressType: IPv4";
    assert_eq!(trial.take_event_texts(), [warning]);
    add(&mut trial, "p4", "n1", &["10.9.0.4"], true);
    trial.run();
    let mut found = zones(&trial);
    found.sort();
    assert_eq!(found, ["z1", "z1", "z2", "z2"]);
    assert_eq!(
        trial.take_event_texts(),
        ["Normal TopologyAwareHintsEnabled Topology Aware Hints has been enabled, addressType: IPv4"]
    );
    // A node that reports more processors than the sum of all nodes can represent does not stop the allocation.
    trial.patch_status("nodes", "n1", json!({"allocatable": {"cpu": format!("{}n", i128::MAX)}}));
    trial.run();
    assert_eq!(trial.take_event_texts(), [warning.replace("(3 endpoints", "(4 endpoints")]);
}

#[test]
fn why_endpoints_are_not_shared_out_is_told_once_for_each_change() {
    let mut trial = started(100);
    let told = |why: &str| format!("Warning TopologyAwareHintsDisabled {why}, addressType: IPv4");
    let mut shared = service("s", json!({"ports": [{"port": 80}]}));
    shared["metadata"]["annotations"] = json!({"service.kubernetes.io/topology-mode": "Auto"});
    trial.create(shared);
    trial.run_for(60);
    let none = told("Insufficient number of endpoints (0 endpoints, 2 zones)");
    assert_eq!(trial.take_event_texts(), std::slice::from_ref(&none), "its own slice is no change");
    let ready = |ready: &str| json!({"conditions": [{"type": "Ready", "status": ready}]});
    for status in [json!({"allocatable": {"cpu": "8"}}), ready("False"), ready("True")] {
        trial.patch_status("nodes", "n1", status);
        trial.run_for(60);
        assert!(trial.take_event_texts().is_empty(), "nodes take nothing from who has no hints");
    }
    trial.patch("services", "s", json!({"metadata": {"annotations": {"x": "y"}}}));
    trial.run_for(60);
    assert_eq!(trial.take_event_texts(), [none]);
    for (name, node, ip) in [("p1", "n1", "10.9.0.1"), ("p2", "n2", "10.9.0.2"), ("p3", "n1", "10.9.0.3")] {
        add(&mut trial, name, node, &[ip], true);
    }
    trial.run_for(60);
    assert_eq!(
        trial.take_event_texts(),
        ["Normal TopologyAwareHintsEnabled Topology Aware Hints has been enabled, addressType: IPv4"]
    );
    trial.patch_status("nodes", "n1", ready("False"));
    trial.run_for(60);
    let one_zone = told("Insufficient Node information: allocatable CPU or zone not specified on one or more nodes");
    assert_eq!(trial.take_event_texts(), [one_zone], "hints are taken away");
    assert!(trial.list("endpointslices")[0]["endpoints"][0]["hints"].is_null());
    trial.patch_status("nodes", "n1", ready("True"));
    trial.run_for(60);
    assert_eq!(trial.list("endpointslices")[0]["endpoints"][0]["hints"]["forZones"][0]["name"], "z1");
}

#[test]
fn a_slice_that_somebody_changed_is_put_right() {
    let mut trial = started(100);
    add(&mut trial, "p1", "n1", &["10.9.0.1"], true);
    trial.create(service("s", json!({"ports": [{"port": 80}]})));
    trial.run();
    let name = shown(&trial)[0].0.clone();
    trial.patch("endpointslices", &name, json!({"endpoints": [], "ports": []}));
    trial.run();
    assert_eq!(pods(&trial), [["p1"]]);
    trial.patch("endpointslices", &name, json!({"metadata": {"labels": {"other": "x"}}}));
    trial.run();
    assert_eq!(trial.list("endpointslices")[0]["metadata"]["labels"]["other"], Value::Null);
    trial.patch("services", "s", json!({"spec": {"selector": null}}));
    trial.run();
    assert_eq!(pods(&trial), [["p1"]], "what was stays");
}

#[test]
fn endpoints_of_people_are_mirrored() {
    let mut trial = Trial::new().with(Mirroring::new(&Settings::default()));
    trial.create(json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"},
        "spec": {"ports": [{"port": 80}]}}));
    trial.create(json!({
        "apiVersion": "v1", "kind": "Endpoints",
        "metadata": {"name": "s", "labels": {"x": "y"}, "annotations": {"note": "z"}},
        "subsets": [{"addresses": [{"ip": "10.9.0.1"}, {"ip": "fd00::1", "hostname": "h"}],
            "notReadyAddresses": [{"ip": "10.9.0.3"}], "ports": [{"port": 80, "name": "http"}]}],
    }));
    trial.run();
    let slices = trial.list("endpointslices");
    assert_eq!(slices.len(), 2);
    let ipv4 = slices.iter().find(|slice| slice["addressType"] == "IPv4").expect("a slice");
    assert_eq!(
        ipv4["endpoints"],
        json!([{"addresses": ["10.9.0.1"], "conditions": {"ready": true}},
        {"addresses": ["10.9.0.3"], "conditions": {"ready": false}}])
    );
    assert_eq!(ipv4["metadata"]["annotations"], json!({"note": "z"}));
    assert_eq!(ipv4["metadata"]["labels"]["x"], "y");
    trial.patch("endpoints", "s", json!({"subsets": [{"addresses": [{"ip": "10.9.0.7"}], "ports": [{"port": 81}]}]}));
    trial.run();
    let slices = trial.list("endpointslices");
    assert_eq!((slices.len(), &slices[0]["ports"][0]["port"]), (1, &json!(81)));
    trial.patch("endpoints", "s", json!({"metadata": {"labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}}}));
    trial.run();
    assert!(trial.list("endpointslices").is_empty());
}

fn mirrored(subsets: Value) -> Trial {
    let mut trial = Trial::new().with(Mirroring::new(&Settings::default()));
    trial.create(json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"},
        "spec": {"ports": [{"port": 80}]}}));
    trial.create(json!({"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "s"}, "subsets": subsets}));
    trial.run();
    trial
}

#[test]
fn a_subset_is_mirrored_into_one_slice() {
    let ips: Vec<Value> =
        (0..1100).map(|number| json!({"ip": format!("10.9.{}.{}", number / 200, number % 200)})).collect();
    let mut trial = mirrored(json!([{"addresses": ips[..150], "ports": [{"port": 80}]}]));
    let counts = |trial: &Trial| -> Vec<usize> {
        trial.list("endpointslices").iter().map(|slice| slice["endpoints"].as_array().map_or(0, Vec::len)).collect()
    };
    assert_eq!(counts(&trial), [150]);
    trial.patch("endpoints", "s", json!({"subsets": [{"addresses": ips, "ports": [{"port": 80}]}]}));
    trial.run();
    assert_eq!(counts(&trial), [1000]);
    let told = "Warning TooManyAddressesToMirror A max of 1000 addresses can be mirrored to EndpointSlices per Endpoints \
                subset. 100 addresses were skipped";
    assert_eq!(trial.take_event_texts(), [told]);
    // Earlier releases may have left a second slice with the same ports; this test creates such a slice.
    let mut second = trial.list("endpointslices").remove(0);
    second["metadata"]["name"] = json!("z");
    for field in ["uid", "resourceVersion", "generateName", "creationTimestamp", "managedFields", "generation"] {
        second["metadata"].as_object_mut().expect("metadata").remove(field);
    }
    trial.create(second);
    trial.run();
    assert_eq!(counts(&trial), [1000]);
}

#[test]
fn subsets_of_the_same_addresses_are_mirrored_as_one() {
    let trial = mirrored(json!([
        {"addresses": [{"ip": "10.9.0.1"}], "ports": [{"port": 80, "name": "a"}]},
        {"addresses": [{"ip": "10.9.0.1"}], "ports": [{"port": 81, "name": "b"}]}
    ]));
    let slices = trial.list("endpointslices");
    assert_eq!((slices.len(), slices[0]["ports"].as_array().map(Vec::len)), (1, Some(2)));
}

#[test]
fn what_takes_no_traffic_has_no_hints() {
    let mut trial = started(100);
    add(&mut trial, "p1", "n1", &["10.9.0.1"], false);
    add(&mut trial, "p2", "n1", &["10.9.0.2"], true);
    trial.create(service("s", json!({"ports": [{"port": 80}], "trafficDistribution": "PreferSameNode"})));
    trial.run();
    let slice = trial.list("endpointslices").remove(0);
    let of = |name: &str| {
        let endpoints = slice["endpoints"].as_array().into_iter().flatten();
        endpoints.into_iter().find(|endpoint| endpoint["targetRef"]["name"] == name).expect(name)["hints"].clone()
    };
    assert_eq!((of("p1"), of("p2")["forNodes"][0]["name"].clone()), (Value::Null, json!("n1")));
}

#[test]
fn that_endpoints_are_no_longer_shared_out_is_told() {
    let mut trial = started(100);
    for (name, node, ip) in [("p1", "n1", "10.9.0.1"), ("p2", "n2", "10.9.0.2")] {
        add(&mut trial, name, node, &[ip], true);
    }
    let mut shared = service("s", json!({"ports": [{"port": 80}]}));
    shared["metadata"]["annotations"] = json!({"service.kubernetes.io/topology-mode": "Auto"});
    trial.create(shared);
    trial.run();
    assert_eq!(
        trial.take_event_texts(),
        ["Normal TopologyAwareHintsEnabled Topology Aware Hints has been enabled, addressType: IPv4"]
    );
    trial.patch("services", "s", json!({"metadata": {"annotations": null}}));
    trial.run();
    assert_eq!(
        trial.take_event_texts(),
        ["Warning TopologyAwareHintsDisabled Topology Aware Hints has been disabled, addressType: IPv4"]
    );
}

#[test]
fn slices_that_cannot_be_made_are_told_of() {
    let mut trial = started(100);
    crate::testing::allow(&mut trial, "count/endpointslices.discovery.k8s.io", 0);
    trial.create(service("s", json!({"ports": [{"port": 80}]})));
    trial.run_for(1);
    let notes = trial.take_event_texts();
    let told = "Warning FailedToUpdateEndpointSlices Error updating Endpoint Slices for Service default/s: failed to create \
                EndpointSlice for Service default/s: endpointslices.discovery.k8s.io \"s-";
    assert!(notes[0].starts_with(told), "{notes:?}");
}
