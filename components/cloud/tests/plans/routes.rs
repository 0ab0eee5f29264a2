//! Tests which routes to pod CIDRs are created, kept and deleted.

use crate::common::{Shared, beside, calls, cloud, node, settings};
use holdfast_cloud::route::Routes;
use holdfast_value::json;
use holdfast_world::Trial;
use holdfast_world::cloud::{ClusterRef, Route};

fn start(text: &str) -> (Shared, Trial) {
    let cloud = cloud(text);
    let mut trial = beside(&cloud).with(Routes::new(&settings()));
    for (name, range) in [("a", "10.1.0.0/24"), ("b", "10.1.1.0/24")] {
        node(&mut trial, name);
        trial.patch("nodes", name, json!({"spec": {"podCIDR": range, "podCIDRs": [range]}}));
    }
    trial.run_for(1);
    (cloud, trial)
}

fn routes(cloud: &Shared) -> Vec<String> {
    let mut routes: Vec<String> =
        cloud.borrow().routes().map(|route| format!("{} {}", route.destination, route.node)).collect();
    routes.sort();
    routes
}

fn condition(trial: &Trial, node: &str) -> String {
    let node = trial.get("nodes", node);
    let found =
        node["status"]["conditions"].as_array().into_iter().flatten().find(|of| of["type"] == "NetworkUnavailable");
    found.map_or_else(String::new, |of| {
        [&of["status"], &of["reason"], &of["message"]].map(|text| text.as_str().unwrap_or_default()).join(" ")
    })
}

#[test]
fn each_range_of_a_node_gets_a_route_and_keeps_it() {
    let (cloud, mut trial) = start("");
    assert_eq!(routes(&cloud), ["10.1.0.0/24 a", "10.1.1.0/24 b"]);
    assert_eq!(condition(&trial, "a"), "False RouteCreated RouteController created a route");
    calls(&cloud);
    trial.run_for(50);
    assert_eq!(calls(&cloud), [("Routes", 5)], "a list a period, and nothing else");
    let uid = trial.get("namespaces", "kube-system")["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
    let (own, now) = (ClusterRef { name: "kubernetes".into(), uid }, trial.now());
    let route = |cluster: &ClusterRef, destination: &str, blackhole| Route {
        cluster: cluster.clone(),
        node: "gone".into(),
        destination: destination.into(),
        blackhole,
        ..Route::default()
    };
    let other = ClusterRef { uid: "other".into(), ..own.clone() };
    for route in [
        route(&own, "10.1.7.0/24", false),
        route(&own, "10.1.8.0/24", true),
        route(&own, "192.168.0.0/24", false),
        route(&other, "10.1.9.0/24", false),
    ] {
        cloud.borrow_mut().put_route(route, now);
    }
    trial.run_for(11);
    let expected = ["10.1.0.0/24 a", "10.1.1.0/24 b", "10.1.9.0/24 gone", "192.168.0.0/24 gone"];
    assert_eq!(routes(&cloud), expected, "only what is this cluster's and within its ranges goes");
    trial.delete("nodes", "b");
    trial.run_for(1);
    assert!(!routes(&cloud).contains(&"10.1.1.0/24 b".to_owned()));
}

#[test]
fn a_node_without_a_range_says_so() {
    let (_, mut trial) = start("");
    node(&mut trial, "c");
    trial.run_for(1);
    assert_eq!(condition(&trial, "c"), "True NoRouteCreated Node has no range of pod addresses");
}

#[test]
fn what_is_in_the_way_is_told_with_its_name() {
    let (cloud, mut trial) = start("");
    let foreign = Route {
        name: "theirs".into(),
        cluster: ClusterRef { name: "other".into(), uid: "u".into() },
        node: "x".into(),
        destination: "10.1.2.0/24".into(),
        blackhole: false,
    };
    cloud.borrow_mut().put_route(foreign, trial.now());
    node(&mut trial, "c");
    trial.patch("nodes", "c", json!({"spec": {"podCIDR": "10.1.2.0/24", "podCIDRs": ["10.1.2.0/24"]}}));
    trial.take_event_texts();
    trial.run_for(2);
    let notes = trial.take_event_texts();
    assert!(
        notes.iter().any(|note| {
            note.starts_with("Warning FailedToCreateRoute Could not create route")
                && note
                    .ends_with("10.1.2.0/24 for node c: route theirs leads there already: to node x of cluster other")
        }),
        "{notes:?}"
    );
    assert_eq!(condition(&trial, "c"), "True NoRouteCreated RouteController failed to create a route");
}

#[test]
fn of_two_nodes_with_one_range_the_older_one_has_the_route() {
    let (cloud, mut trial) = start("");
    trial.run_for(5);
    node(&mut trial, "c");
    trial.patch("nodes", "c", json!({"spec": {"podCIDR": "10.1.0.0/16", "podCIDRs": ["10.1.0.0/16"]}}));
    trial.take_event_texts();
    trial.run_for(20);
    assert_eq!(routes(&cloud).len(), 2);
    let notes = trial.take_event_texts();
    assert!(notes.len() == 1 && notes[0].contains("for node c: it overlaps the range of node"), "{notes:?}");
}

#[test]
fn a_cloud_that_is_late_gets_no_route_twice() {
    let (cloud, mut trial) = start("consistency: 25s");
    trial.run_for(60);
    assert_eq!(routes(&cloud).len(), 2);
    trial.delete("nodes", "a");
    trial.run_for(60);
    assert_eq!(routes(&cloud), ["10.1.1.0/24 b"]);
}
