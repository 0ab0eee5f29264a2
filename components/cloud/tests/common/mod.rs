//! A trial cluster with a simulated cloud.

// Each test binary uses only some functions of this module.
#![allow(dead_code)]

use holdfast_cloud::Settings;
use holdfast_cloud::simulated::{Description, NAME, Simulated};
use holdfast_value::{Value, json};
use holdfast_world::Trial;
use std::cell::RefCell;
use std::rc::Rc;

pub type Shared = Rc<RefCell<Simulated>>;

/// A simulated cloud with this description.
pub fn cloud(text: &str) -> Shared {
    Rc::new(RefCell::new(Simulated::new(Description::parse(text).expect("a description"))))
}

/// A trial cluster whose controllers make their calls to this cloud.
pub fn beside(cloud: &Shared) -> Trial {
    let (mut trial, cloud) = (Trial::new(), cloud.clone());
    trial.cloud = Some(Box::new(move |call, now| cloud.borrow_mut().call(call, now).answer));
    trial
}

pub fn settings() -> Settings {
    Settings {
        provider: NAME.into(),
        allocate_ranges: true,
        cluster_ranges: vec!["10.0.0.0/8".into()],
        ..Settings::default()
    }
}

/// Creates a node with the taint of an external cloud provider.
pub fn new_node(trial: &mut Trial, name: &str) {
    let taint =
        json!({"key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule"});
    trial.create(json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/os": "linux"}}, "spec": {"taints": [taint]},
    }));
    let hostname = json!({"type": "Hostname", "address": name});
    trial.patch_status("nodes", name, json!({"addresses": [hostname]}));
    ready(trial, name, "True");
}

/// Creates a node that the cloud controllers have already initialized.
pub fn node(trial: &mut Trial, name: &str) {
    trial.create(json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
        "spec": {"providerID": format!("{NAME}://{name}")},
    }));
    ready(trial, name, "True");
}

pub fn ready(trial: &mut Trial, name: &str, state: &str) {
    let now = trial.now();
    let condition = json!({"type": "Ready", "status": state, "lastTransitionTime": now});
    let mut conditions = trial.get("nodes", name)["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.retain(|condition| condition["type"] != "Ready");
    conditions.push(condition);
    trial.patch_status("nodes", name, json!({"conditions": conditions}));
}

pub fn service(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
        "spec": {"type": "LoadBalancer", "selector": {"app": name}, "ports": [{"port": 80, "protocol": "TCP"}]},
    })
}

/// The number of calls by method since the last call of this function, which resets the numbers.
pub fn calls(cloud: &Shared) -> Vec<(&'static str, u64)> {
    std::mem::take(&mut cloud.borrow_mut().calls).into_iter().collect()
}
