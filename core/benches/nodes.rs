//! Measures the Node authorizer in a large cluster: `cargo bench -p holdfast-core --bench nodes`.
//!
//! A decision should take under 2 µs with 5,000 nodes and 150,000 pods, and about as long in a small cluster.

#![allow(clippy::disallowed_methods, reason = "a bench measures time")]

use holdfast_core::authz::chain::{Chain, Way};
use holdfast_core::authz::nodes::{NodeGraph, Relation};
use holdfast_core::authz::{Attributes, Authorizer, Consulted, RbacIndex, ResourceTarget, User};
use holdfast_value::json;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

const PODS_A_NODE: usize = 30;
const NAMESPACES: usize = 500;

fn main() {
    for nodes in [50, 5_000] {
        let pods = nodes * PODS_A_NODE;
        println!("{nodes} nodes, {pods} pods");
        let (mut graph, mut work) = (NodeGraph::default(), std::time::Duration::ZERO);
        for number in 0..pods {
            let pod = json!({"metadata": {"name": format!("pod-{number}")}, "spec": {
                "nodeName": format!("node-{}", number % nodes),
                "serviceAccountName": "default",
                "volumes": [
                    {"name": "s", "secret": {"secretName": format!("secret-{number}")}},
                    {"name": "c", "configMap": {"name": "kube-root-ca.crt"}},
                    {"name": "m", "persistentVolumeClaim": {"claimName": format!("claim-{number}")}},
                ],
            }});
            let (space, secret) =
                (format!("ns-{}", number % NAMESPACES), json!({"namespace": "storage", "name": "all"}));
            let volume = json!({"spec": {
                "claimRef": {"namespace": space, "name": format!("claim-{number}")},
                "csi": {"nodePublishSecretRef": secret},
            }});
            let began = Instant::now();
            graph.note(Relation::Pod, &format!("{space}/pod-{number}"), None, Some(&pod));
            graph.note(Relation::Volume, &format!("volume-{number}"), None, Some(&volume));
            work += began.elapsed();
        }
        println!("  take in a pod with its volume {:>9.3} µs", work.as_secs_f64() * 1e6 / pods as f64);
        let (chain, rbac, consulted) =
            (Arc::new(Chain::new(vec![Way::Node])), RbacIndex::default(), Consulted::default());
        let authorizer = Authorizer { chain: &chain, rbac: &rbac, nodes: Some(&graph), consulted: &consulted };
        let users: Vec<User> =
            (0..nodes).map(|node| User::new(format!("system:node:node-{node}"), &["system:nodes"])).collect();
        // Each number is 7,919 after the number before it, so all pods are visited, but neighbouring pods never one
        // after another.
        let numbers: Vec<usize> = (0..100_000).map(|step| step * 7_919 % pods).collect();
        let of = |number: usize, space: &str, name: &str| {
            let namespace = if space.is_empty() { format!("ns-{}", number % NAMESPACES) } else { space.to_owned() };
            (namespace, name.replace('#', &number.to_string()))
        };
        for (what, resource, space, name, other, allowed) in [
            ("a secret of a pod", "secrets", "", "secret-#", 0, true),
            ("configuration that all have", "configmaps", "", "kube-root-ca.crt", 0, true),
            ("a claim's volume", "persistentvolumes", "-", "volume-#", 0, true),
            ("the secret of all volumes", "secrets", "storage", "all", 0, true),
            ("a secret of another node's pod", "secrets", "", "secret-#", 1, false),
        ] {
            let asked: Vec<_> =
                numbers.iter().map(|number| (&users[(number + other) % nodes], of(*number, space, name))).collect();
            let began = Instant::now();
            for (user, (namespace, name)) in &asked {
                let namespace = if *namespace == "-" { "" } else { namespace };
                let target = ResourceTarget { resource, namespace, name, version: "v1", ..Default::default() };
                let judged = black_box(authorizer.authorize(user, &Attributes::resource("get", target)));
                assert_eq!(judged.is_allowed(), allowed, "{what}");
            }
            println!("  {what:<31} {:>8.3} µs", began.elapsed().as_secs_f64() * 1e6 / asked.len() as f64);
        }
    }
}
