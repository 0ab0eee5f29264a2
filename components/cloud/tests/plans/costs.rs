//! How many calls to the cloud the changes in a large cluster cause.

use crate::common::{beside, cloud, node, ready, service, settings};
use holdfast_cloud::service::Services;
use holdfast_value::json;
use holdfast_world::cloud::{Balancer, CloudAnswer, CloudCall};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

const SERVICES: usize = 1_000;
const NODES: usize = 5_000;

/// The test has a thousand balancers and five thousand nodes.
#[test]
fn a_change_costs_calls_for_the_balancers_that_it_concerns() {
    let counted: Rc<RefCell<BTreeMap<&'static str, u64>>> = Rc::default();
    let mut trial = beside(&cloud(""));
    trial.settings.service_ranges = "10.64.0.0/16".parse().expect("a range");
    trial.settings.node_ports = (20_000, 40_000);
    let counts = counted.clone();
    trial.cloud = Some(Box::new(move |call, _| {
        *counts.borrow_mut().entry(call.method()).or_default() += 1;
        Ok(match call {
            CloudCall::EnsureBalancer { cluster, wanted, .. } => CloudAnswer::Balancer(Balancer {
                name: wanted.name.clone(),
                cluster: cluster.clone(),
                ingress: Vec::new(),
            }),
            _ => CloudAnswer::Done,
        })
    }));
    for number in 0..NODES {
        trial.create(json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": format!("n{number}")},
            "spec": {"providerID": format!("simulated://n{number}")},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        }));
    }
    for number in 0..SERVICES {
        let mut object = service(&format!("s{number}"));
        object["metadata"]["finalizers"] = json!([holdfast_cloud::service::FINALIZER]);
        object["spec"]["allocateLoadBalancerNodePorts"] = false.into();
        trial.create(object);
    }
    trial.is_level = false;
    let mut trial = trial.with(Services::new(&settings()));
    let settle = |trial: &mut holdfast_world::Trial, seconds: i64| {
        counted.borrow_mut().clear();
        let end = trial.now().plus_seconds(seconds);
        loop {
            while trial.step() {}
            match trial.next_time().filter(|next| *next <= end) {
                Some(next) => trial.pass_millis(next.millis_since(trial.now()).max(0)),
                None => break,
            }
        }
        counted.borrow().clone()
    };
    let all = SERVICES as u64;
    assert_eq!(settle(&mut trial, 2), BTreeMap::from([("EnsureBalancer", all)]));
    assert_eq!(settle(&mut trial, 3600), BTreeMap::new(), "idle costs nothing");
    // After a change of one Service, the controller makes a call only for the balancer of this Service.
    trial.patch("services", "s7", json!({"spec": {"sessionAffinity": "ClientIP"}}));
    assert_eq!(settle(&mut trial, 2), BTreeMap::from([("EnsureBalancer", 1)]));
    // After a change that does not concern balancers, the controller makes no calls.
    trial.patch("nodes", "n7", json!({"metadata": {"labels": {"any": "label"}}, "spec": {"unschedulable": true}}));
    ready(&mut trial, "n8", "Unknown");
    assert_eq!(settle(&mut trial, 2), BTreeMap::new());
    // After several nodes were added and removed together, the controller updates each balancer once and makes no other
    // calls.
    for number in 0..3 {
        node(&mut trial, &format!("new{number}"));
        trial.delete("nodes", &format!("n{number}"));
    }
    assert_eq!(settle(&mut trial, 2), BTreeMap::from([("UpdateHosts", all)]));
}
