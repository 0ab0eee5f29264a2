//! Tests how the balancers of Services of type LoadBalancer are created, changed and deleted.

use crate::common::{Shared, beside, calls, cloud, node, ready, service, settings};
use holdfast_cloud::service::{FINALIZER, Services};
use holdfast_value::{Value, json};
use holdfast_world::Trial;
use holdfast_world::cloud::{BalancerSpec, CloudCall, ClusterRef, Route};
use std::sync::Arc;

fn start(text: &str) -> (Shared, Trial) {
    let cloud = cloud(text);
    let mut trial = beside(&cloud).with(Services::new(&settings()));
    node(&mut trial, "a");
    node(&mut trial, "b");
    trial.run();
    (cloud, trial)
}

fn wanted(cloud: &Shared) -> Arc<BalancerSpec> {
    cloud.borrow().balancers().next().expect("a balancer").wanted.clone()
}

fn hosts(cloud: &Shared) -> Vec<String> {
    let cloud = cloud.borrow();
    let kept = cloud.balancers().next().expect("a balancer");
    kept.hosts.iter().map(|host| host.node.name.clone()).collect()
}

#[test]
fn a_service_gets_a_balancer_and_loses_it() {
    let (cloud, mut trial) = start("addresses: [192.0.2.0/24]");
    trial.create(service("web"));
    trial.run();
    let made = trial.get("services", "web");
    assert_eq!(made["metadata"]["finalizers"], json!([FINALIZER]));
    let ingress = &made["status"]["loadBalancer"]["ingress"][0];
    assert!(ingress["ip"].as_str().is_some_and(|ip| ip.starts_with("192.0.2.")) && ingress["ipMode"] == "VIP");
    assert_eq!(hosts(&cloud), ["a", "b"]);
    let name = wanted(&cloud).name.clone();
    assert!(name.len() == 32 && name.starts_with('a') && !name.contains('-'), "{name}");
    let told =
        ["Normal EnsuringLoadBalancer Ensuring load balancer", "Normal EnsuredLoadBalancer Ensured load balancer"];
    assert_eq!(trial.take_event_texts(), told);
    assert_eq!(calls(&cloud), [("EnsureBalancer", 1)]);
    trial.run_for(3600);
    assert_eq!(calls(&cloud), [], "nothing happens");
    trial.delete("services", "web");
    trial.run();
    assert_eq!((trial.names("services"), cloud.borrow().balancers().count()), (vec![], 0));
    let told =
        ["Normal DeletingLoadBalancer Deleting load balancer", "Normal DeletedLoadBalancer Deleted load balancer"];
    assert_eq!(trial.take_event_texts(), told);
    assert_eq!(calls(&cloud), [("DeleteBalancer", 1)]);
}

#[test]
fn what_a_service_asks_for_reaches_the_cloud() {
    let (cloud, mut trial) = start("addresses: [192.0.2.0/24, '2001:db8::/120']");
    let mut asked = service("web");
    asked["spec"] = json!({
        "type": "LoadBalancer", "loadBalancerIP": "192.0.2.77",
        "loadBalancerSourceRanges": ["10.0.0.0/8"], "externalTrafficPolicy": "Local", "healthCheckNodePort": 32000,
        "sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 60}},
        "externalIPs": ["203.0.113.1"],
        "ports": [
            {"name": "dns", "port": 53, "protocol": "TCP", "nodePort": 30053},
            {"name": "dns-udp", "port": 53, "protocol": "UDP", "nodePort": 30053, "appProtocol": "example.com/dns"},
        ],
    });
    trial.create(asked);
    trial.run();
    let wanted = wanted(&cloud);
    assert_eq!((wanted.address.as_str(), wanted.affinity_seconds, wanted.local), ("192.0.2.77", 60, true));
    assert_eq!((wanted.health_check_port, wanted.source_ranges.join(",")), (32000, "10.0.0.0/8".into()));
    let ports: Vec<String> =
        wanted.ports.iter().map(|port| format!("{} {}/{}", port.name, port.port, port.protocol)).collect();
    assert_eq!(ports, ["dns 53/TCP", "dns-udp 53/UDP"]);
    assert_eq!(wanted.ports[1].node_port, 30053);
    assert_eq!(trial.get("services", "web")["status"]["loadBalancer"]["ingress"][0]["ip"], "192.0.2.77");
    calls(&cloud);
    // After a change of a field that does not concern balancers, the controller makes no calls.
    trial.patch("services", "web", json!({"spec": {"internalTrafficPolicy": "Local"}}));
    trial.run();
    assert_eq!(calls(&cloud), []);
    trial.take_event_texts();
    let patch = json!({"spec": {"loadBalancerSourceRanges": ["10.0.0.0/8", "172.16.0.0/12"], "externalTrafficPolicy": "Cluster",
        "loadBalancerIP": "192.0.2.78", "externalIPs": null, "healthCheckNodePort": null}});
    trial.patch("services", "web", patch);
    trial.run();
    let notes = trial.take_event_texts();
    for told in [
        "Normal LoadBalancerSourceRanges [10.0.0.0/8] -> [10.0.0.0/8 172.16.0.0/12]",
        "Normal LoadbalancerIP 192.0.2.77 -> 192.0.2.78",
        "Normal ExternalIP [203.0.113.1] -> []",
        "Normal ExternalTrafficPolicy Local -> Cluster",
        "Normal EnsuredLoadBalancer Ensured load balancer",
    ] {
        assert!(notes.iter().any(|note| note == told), "{told} in {notes:#?}");
    }
    assert_eq!(trial.get("services", "web")["status"]["loadBalancer"]["ingress"][0]["ip"], "192.0.2.78");
    assert_eq!(calls(&cloud), [("EnsureBalancer", 1)]);
}

#[test]
fn a_service_of_another_type_lets_its_balancer_go() {
    let (cloud, mut trial) = start("");
    trial.create(service("web"));
    trial.run();
    trial.patch("services", "web", json!({"spec": {"type": "ClusterIP", "ports": [{"port": 80, "nodePort": null}]}}));
    trial.take_event_texts();
    trial.run();
    let left = trial.get("services", "web");
    assert_eq!((&left["status"]["loadBalancer"], &left["metadata"]["finalizers"]), (&json!({}), &Value::Null));
    assert_eq!(cloud.borrow().balancers().count(), 0);
    assert_eq!(trial.take_event_texts()[0], "Normal Type LoadBalancer -> ClusterIP");
    trial.patch("services", "web", json!({"spec": {"type": "LoadBalancer"}}));
    trial.run();
    assert_eq!(cloud.borrow().balancers().count(), 1);
    assert_eq!(trial.take_event_texts()[0], "Normal Type ClusterIP -> LoadBalancer");
}

#[test]
fn one_that_changes_its_type_and_is_deleted_before_anybody_looks_goes() {
    let (cloud, mut trial) = start("");
    trial.create(service("web"));
    trial.run();
    trial.patch("services", "web", json!({"spec": {"type": "ClusterIP", "ports": [{"port": 80, "nodePort": null}]}}));
    trial.delete("services", "web");
    trial.run();
    assert_eq!((trial.names("services"), cloud.borrow().balancers().count()), (vec![], 0));
    assert!(trial.take_refused().is_empty());
}

#[test]
fn one_of_a_class_is_somebody_elses() {
    let (cloud, mut trial) = start("");
    let mut classed = service("web");
    classed["spec"]["loadBalancerClass"] = "example.com/other".into();
    trial.create(classed);
    trial.run();
    assert_eq!(trial.get("services", "web")["metadata"]["finalizers"], Value::Null);
    assert_eq!(calls(&cloud), []);
}

#[test]
fn nodes_join_when_they_are_ready_and_leave_when_they_are_told() {
    let (cloud, mut trial) = start("");
    trial.create(service("web"));
    trial.run();
    trial.take_event_texts();
    let expect = |trial: &mut Trial, names: &[&str], count: u64| {
        calls(&cloud);
        trial.run_for(2);
        assert_eq!(hosts(&cloud), names);
        let expected: &[(&str, u64)] = if count == 0 { &[] } else { &[("UpdateHosts", 1)] };
        assert_eq!(calls(&cloud), expected);
    };
    ready(&mut trial, "a", "False");
    expect(&mut trial, &["a", "b"], 0);
    node(&mut trial, "c");
    expect(&mut trial, &["a", "b", "c"], 1);
    let excluded = "node.kubernetes.io/exclude-from-external-load-balancers";
    trial.patch("nodes", "c", json!({"metadata": {"labels": {excluded: ""}}}));
    expect(&mut trial, &["a", "b"], 1);
    trial.patch("nodes", "c", json!({"metadata": {"labels": {excluded: "false"}}}));
    expect(&mut trial, &["a", "b", "c"], 1);
    trial.patch(
        "nodes",
        "b",
        json!({"spec": {"taints": [{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]}}),
    );
    expect(&mut trial, &["a", "c"], 1);
    trial.patch("nodes", "b", json!({"spec": {"unschedulable": true}}));
    expect(&mut trial, &["a", "c"], 0);
    assert!(
        trial
            .take_event_texts()
            .iter()
            .all(|note| note == "Normal UpdatedLoadBalancer Updated load balancer with new hosts")
    );
    for name in ["a", "b", "c"] {
        trial.delete("nodes", name);
    }
    expect(&mut trial, &[], 1);
    let notes = trial.take_event_texts();
    assert_eq!(notes[0], "Warning UnAvailableLoadBalancer There are no available nodes for LoadBalancer");
}

#[test]
fn a_failure_is_told_and_tried_again_later_each_time() {
    let (cloud, mut trial) = start("addresses: []");
    trial.create(service("web"));
    trial.run_for(4);
    let failed = "Warning SyncLoadBalancerFailed Error syncing load balancer: failed to ensure load balancer: no IPv4 address \
                  is left in the pool of addresses";
    assert_eq!(trial.take_event_texts(), ["Normal EnsuringLoadBalancer Ensuring load balancer", failed]);
    assert_eq!(calls(&cloud), [("EnsureBalancer", 1)]);
    trial.run_for(30);
    assert_eq!(calls(&cloud), [("EnsureBalancer", 2)], "after 5 and 15 seconds");
    let description = holdfast_cloud::simulated::Description::parse("").expect("a description");
    cloud.borrow_mut().describe(description);
    trial.run_for(20);
    assert!(trial.get("services", "web")["status"]["loadBalancer"]["ingress"].is_array());
}

#[test]
fn a_cloud_that_wants_to_be_left_alone_is() {
    let (cloud, mut trial) = start("{throttle: {perSecond: 1, burst: 1}}");
    trial.create(service("a"));
    trial.create(service("b"));
    trial.run();
    assert_eq!(cloud.borrow().balancers().count(), 1);
    trial.run_for(2);
    assert_eq!(cloud.borrow().balancers().count(), 2);
    assert!(trial.take_event_texts().iter().any(|note| note.ends_with("too many calls")));
}

#[test]
fn one_that_comes_after_another_of_its_name_waits_until_that_is_cleaned_up() {
    let (cloud, mut trial) = start("");
    trial.create(service("web"));
    trial.run();
    let before = wanted(&cloud).name.clone();
    // A user removes the finalizer and recreates the Service before the controller plans it.
    trial.patch("services", "web", json!({"metadata": {"finalizers": null}}));
    trial.delete("services", "web");
    trial.create(service("web"));
    trial.run();
    let names: Vec<String> = cloud.borrow().balancers().map(|kept| kept.balancer.name.clone()).collect();
    assert!(names.len() == 1 && names[0] != before, "{names:?}");
}

#[test]
fn another_cluster_of_the_same_name_is_left_alone_and_people_are_told() {
    let (cloud, mut trial) = start("");
    trial.create(service("web"));
    trial.run();
    assert_eq!(cloud.borrow().balancers().count(), 1);
    let (cloud, mut trial) = start("");
    let other = ClusterRef { name: "kubernetes".into(), uid: "another".into() };
    let route = Route { cluster: other.clone(), ..Route::default() };
    cloud
        .borrow_mut()
        .answer(&CloudCall::CreateRoute { cluster: other, route }, trial.now())
        .expect("the first of its name");
    trial.create(service("web"));
    trial.run();
    assert_eq!(cloud.borrow().balancers().count(), 0);
    let notes = trial.take_event_texts();
    assert!(notes.iter().any(|note| note.contains("another") && note.contains("needs a --cluster-name")), "{notes:?}");
}

#[test]
fn a_faulty_annotation_is_told_by_its_name() {
    let (cloud, mut trial) = start("");
    let mut faulty = service("web");
    faulty["metadata"]["annotations"] =
        json!({"service.beta.kubernetes.io/load-balancer-source-ranges": "10.0.0.0/8, x"});
    trial.try_create(faulty).map_or_else(
        |refusal| {
            assert!(
                refusal.message.contains("source-ranges") || refusal.message.contains("SourceRanges"),
                "{refusal:?}"
            )
        },
        |_| {
            trial.run();
            let notes = trial.take_event_texts();
            assert!(
                notes.iter().any(|note| note.contains("load-balancer-source-ranges: \"x\" is not valid")),
                "{notes:?}"
            );
            assert_eq!(calls(&cloud), []);
        },
    );
}

#[test]
fn a_controller_that_has_forgotten_all_changes_nothing() {
    let (cloud, mut trial) = start("");
    trial.create(service("web"));
    trial.run();
    let before = trial.get("services", "web");
    trial.restart(Services::new(&settings()));
    trial.run();
    assert_eq!(trial.get("services", "web"), before);
    trial.restart(Services::new(&settings()));
    trial.delete("services", "web");
    trial.run();
    assert_eq!(cloud.borrow().balancers().count(), 0);
}
