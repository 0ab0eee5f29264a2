//! Tests how the cloud's data gets into nodes, and what happens to nodes whose instances are shut down or gone.

use crate::common::{beside, calls, cloud, new_node, node, ready, settings};
use holdfast_cloud::lifecycle::Lifecycle;
use holdfast_cloud::node::CloudNodes;
use holdfast_cloud::simulated::InstanceEvent;
use holdfast_value::{Value, json};

const ONE: &str = "
    instances:
    - name: a
      id: i-1
      type: m.large
      zone: z1
      region: r1
      addresses: [{type: InternalIP, address: 10.0.0.1}, {type: InternalIP, address: 10.0.0.2}]
      labels: {example.com/rack: '7', kubernetes.io/os: other}
";

#[test]
fn a_new_node_gets_what_its_cloud_tells() {
    let cloud = cloud(ONE);
    let mut trial = beside(&cloud).with(CloudNodes::new(&settings()));
    new_node(&mut trial, "a");
    trial.run();
    let node = trial.get("nodes", "a");
    assert_eq!(node["spec"], json!({"providerID": "simulated://i-1"}), "the taint is gone");
    for (label, value) in [
        ("node.kubernetes.io/instance-type", "m.large"),
        ("beta.kubernetes.io/instance-type", "m.large"),
        ("topology.kubernetes.io/zone", "z1"),
        ("failure-domain.beta.kubernetes.io/zone", "z1"),
        ("topology.kubernetes.io/region", "r1"),
        ("failure-domain.beta.kubernetes.io/region", "r1"),
        ("example.com/rack", "7"),
        ("kubernetes.io/os", "linux"),
        ("beta.kubernetes.io/os", "linux"),
    ] {
        assert_eq!(node["metadata"]["labels"][label], value, "{label}");
    }
    let kinds: Vec<&str> = node["status"]["addresses"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|address| address["type"].as_str())
        .collect();
    assert_eq!(kinds, ["InternalIP", "InternalIP", "Hostname"], "the node's own name stays");
    assert_eq!(trial.take_event_texts(), ["Normal Synced Node synced successfully"]);
    let manager = &node["metadata"]["managedFields"];
    let managers: Vec<&Value> = manager.as_array().into_iter().flatten().map(|entry| &entry["manager"]).collect();
    assert!(managers.contains(&&json!("cloud-node-controller")), "{managers:?}");
}

#[test]
fn addresses_are_compared_from_time_to_time() {
    let cloud = cloud(ONE);
    let mut trial = beside(&cloud).with(CloudNodes::new(&settings()));
    new_node(&mut trial, "a");
    trial.run();
    calls(&cloud);
    trial.run_for(299);
    assert_eq!(calls(&cloud), []);
    let other = ONE.replace("10.0.0.1}", "10.0.0.9}");
    let description = holdfast_cloud::simulated::Description::parse(&other).expect("a description");
    cloud.borrow_mut().describe(description);
    trial.run_for(2);
    assert_eq!(trial.get("nodes", "a")["status"]["addresses"][0]["address"], "10.0.0.9");
    assert_eq!(calls(&cloud), [("Instance", 1)]);
}

#[test]
fn the_address_that_a_kubelet_was_told_comes_first_or_the_node_waits() {
    let cloud = cloud(ONE);
    let mut trial = beside(&cloud).with(CloudNodes::new(&settings()));
    new_node(&mut trial, "a");
    let told = |ip: &str| json!({"metadata": {"annotations": {"alpha.kubernetes.io/provided-node-ip": ip}}});
    trial.patch("nodes", "a", told("10.0.0.7"));
    trial.run();
    assert!(trial.get("nodes", "a")["spec"]["taints"].is_array());
    let notes = trial.take_event_texts();
    assert!(notes[0].contains("matches ip: 10.0.0.7"), "{notes:?}");
    trial.patch("nodes", "a", told("10.0.0.2"));
    trial.run();
    assert_eq!(trial.get("nodes", "a")["status"]["addresses"][0]["address"], "10.0.0.2");
}

#[test]
fn a_cloud_that_does_not_answer_is_asked_again() {
    let cloud = cloud(ONE);
    cloud.borrow_mut().change("a", InstanceEvent::Fail);
    let mut trial = beside(&cloud).with(CloudNodes::new(&settings()));
    new_node(&mut trial, "a");
    trial.run();
    assert!(trial.get("nodes", "a")["spec"]["taints"].is_array());
    let expected = "Warning CloudProviderFailed Error asking cloud provider simulated for its instance: instance a does not answer";
    assert_eq!(trial.take_event_texts(), [expected]);
    cloud.borrow_mut().change("a", InstanceEvent::Heal);
    trial.run_for(1);
    assert!(trial.get("nodes", "a")["spec"]["taints"].is_null());
}

#[test]
fn a_zone_is_asked_for_where_the_instance_does_not_tell() {
    let cloud = cloud("{instances: [{name: a}]}");
    let mut trial = beside(&cloud).with(CloudNodes::new(&settings()));
    new_node(&mut trial, "a");
    trial.run();
    assert_eq!(calls(&cloud), [("Instance", 1), ("Zone", 1)]);
    assert_eq!(trial.get("nodes", "a")["spec"]["providerID"], "simulated://a");
}

#[test]
fn a_node_that_is_down_gets_its_taint_and_loses_it() {
    let cloud = cloud("{instances: [{name: a}]}");
    let mut trial = beside(&cloud).with(Lifecycle::new(&settings()));
    node(&mut trial, "a");
    trial.run_for(60);
    assert_eq!(calls(&cloud), [], "nobody asks about a node that is ready");
    cloud.borrow_mut().change("a", InstanceEvent::ShutDown);
    ready(&mut trial, "a", "Unknown");
    trial.run();
    let taints = trial.get("nodes", "a")["spec"]["taints"].clone();
    assert_eq!(taints[0]["key"], "node.cloudprovider.kubernetes.io/shutdown");
    trial.run_for(20);
    assert_eq!(calls(&cloud), [("Instance", 5)], "once a period");
    cloud.borrow_mut().change("a", InstanceEvent::Start);
    ready(&mut trial, "a", "True");
    trial.run();
    assert!(trial.get("nodes", "a")["spec"]["taints"].is_null());
}

#[test]
fn a_node_whose_instance_is_gone_goes_away_when_the_cloud_says_so_twice() {
    let cloud = cloud("{instances: [{name: a}, {name: b}]}");
    let mut trial = beside(&cloud).with(Lifecycle::new(&settings()));
    node(&mut trial, "a");
    node(&mut trial, "b");
    cloud.borrow_mut().change("a", InstanceEvent::Vanish);
    trial.run_for(60);
    assert_eq!(trial.names("nodes"), ["a", "b"], "it is ready");
    ready(&mut trial, "a", "Unknown");
    ready(&mut trial, "b", "False");
    trial.run();
    assert_eq!(trial.names("nodes"), ["a", "b"]);
    trial.run_for(5);
    assert_eq!(trial.names("nodes"), ["b"]);
    let told = "Normal DeletingNode Deleting node a because it does not exist in the cloud provider";
    assert_eq!(trial.take_event_texts(), [told]);
}

#[test]
fn nothing_is_deleted_on_doubt() {
    let cloud = cloud("{instances: [{name: failing}]}");
    cloud.borrow_mut().change("failing", InstanceEvent::Fail);
    let mut trial = beside(&cloud).with(Lifecycle::new(&settings()));
    node(&mut trial, "failing");
    for (name, id) in [("other", "aws:///i-7"), ("without", "")] {
        trial.create(
            json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": {"providerID": id}}),
        );
    }
    new_node(&mut trial, "new");
    for name in ["failing", "other", "without", "new"] {
        ready(&mut trial, name, "Unknown");
    }
    trial.run_for(60);
    assert_eq!(trial.names("nodes").len(), 4);
    let notes = trial.take_event_texts();
    assert_eq!(notes.len(), 1, "people are told once: {notes:?}");
    cloud.borrow_mut().change("failing", InstanceEvent::Heal);
    trial.run_for(10);
    assert_eq!(trial.names("nodes").len(), 4);
}
