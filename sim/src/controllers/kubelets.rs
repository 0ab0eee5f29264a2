//! The kubelets of the simulated nodes. They renew the leases of their nodes, and some of them are silent for a while.

use super::cluster::{
    self, Cluster, controller, has_condition, is_available, is_leaving, items, name, number, text, uid,
};
use super::deed::UserRequest;
use super::namespaces;
use super::people::NODES;
use crate::oracle::{CheckResult, ensure};
use crate::random::Dice;
use holdfast_value::{Value, json};
use holdfast_world::{Action, Key, Time, Verb};
use std::collections::BTreeSet;

const LEASES: &str = "kube-node-lease";
const RENEWED_SECONDS: i64 = 10;
/// How many of the four nodes may be silent at a time. With more, controllers could not distinguish a lost node from a
/// lost zone.
const SILENT_MAX: usize = 2;
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";

/// The kubelets of one cluster. If `speak` is false, no node reports anything, and the controllers do not wait for
/// reports.
pub struct Kubelets {
    speak: bool,
    silent: BTreeSet<String>,
}

impl Kubelets {
    pub fn new(speak: bool) -> Kubelets {
        Kubelets { speak, silent: BTreeSet::new() }
    }

    pub fn speak(&self) -> bool {
        self.speak
    }

    pub fn is_silent(&self, node: &str) -> bool {
        self.silent.contains(node)
    }

    /// Makes a random kubelet silent, or lets a silent kubelet report again. The kubelet of node `n0` is never silent,
    /// so there is always a healthy node for pods.
    pub fn turn(&mut self, dice: &mut Dice) -> String {
        let node = format!("n{}", 1 + dice.below(NODES - 1));
        if self.silent.remove(&node) {
            return format!("node {node} speaks again");
        }
        if self.silent.len() < SILENT_MAX {
            self.silent.insert(node.clone());
        }
        format!("node {node} falls silent")
    }

    pub fn all_speak(&mut self) {
        self.silent.clear();
    }

    /// The updates of leases and conditions that the kubelets have to write by now. Silent kubelets write nothing.
    pub fn due(&self, cluster: &Cluster) -> Vec<UserRequest> {
        let nodes = cluster.all("nodes").filter(|node| self.speak && !self.is_silent(name(node)));
        nodes.flat_map(|node| renewal(cluster, node).into_iter().chain(conditions(cluster, node))).collect()
    }

    /// Checks that the pods of ReplicaSets on silent nodes have been replaced by pods on other nodes.
    pub fn check_replaced(&self, cluster: &Cluster) -> CheckResult {
        for node in cluster.all("nodes").filter(|node| self.is_silent(name(node))) {
            let repels = items(&node["spec"]["taints"]).any(|taint| taint["key"] == UNREACHABLE);
            ensure(repels, || format!("a silent node repels nobody: {}", name(node)))?;
        }
        // In a namespace that is being deleted no pods are created, even while the namespace waits for a pod on a
        // silent node.
        let takes_pods = |set: &&Value| !is_leaving(set) && !namespaces::is_leaving_with(cluster, set);
        for set in cluster.all("replicasets").filter(takes_pods) {
            let wanted = number(&set["spec"]["replicas"], 1) as usize;
            let elsewhere = cluster.controlled("pods", uid(set)).filter(|pod| self.is_safe(pod)).count();
            ensure(elsewhere == wanted, || {
                format!("pods of silent nodes are not replaced: {elsewhere} of {wanted} of {}", name(set))
            })?;
        }
        Ok(())
    }

    /// The UIDs of the available pods of ReplicaSets that are on no silent node.
    pub fn safe(&self, cluster: &Cluster) -> Vec<String> {
        let of_sets = |pod: &&Value| controller(pod).is_some_and(|owner| owner["kind"] == "ReplicaSet");
        let safe = cluster.all("pods").filter(of_sets).filter(|pod| self.is_safe(pod));
        safe.map(|pod| uid(pod).to_owned()).collect()
    }

    fn is_safe(&self, pod: &Value) -> bool {
        is_available(pod) && !self.is_silent(text(&pod["spec"]["nodeName"]))
    }
}

/// Checks that the pods in `safe`, which were available before the silent nodes reported again, are still available.
pub fn check_kept(cluster: &Cluster, safe: &[String]) -> CheckResult {
    let lost = safe.iter().find(|uid| !cluster.by_uid(uid).is_some_and(is_available));
    ensure(lost.is_none(), || format!("a pod breaks because a node comes back: {lost:?}"))
}

fn renewal(cluster: &Cluster, node: &Value) -> Option<UserRequest> {
    let (key, now) = (Key::new(LEASES, name(node)), cluster.trial.now());
    let Some(lease) = cluster.get("leases", &key) else {
        let metadata = json!({"name": name(node), "namespace": LEASES});
        let spec = json!({"holderIdentity": name(node), "leaseDurationSeconds": 40, "renewTime": now.micros()});
        return Some(UserRequest::Create(json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec,
        })));
    };
    let renewed = Time::parse(text(&lease["spec"]["renewTime"]))?;
    let patch = json!({"spec": {"renewTime": now.micros()}});
    let action = || Action::new(&cluster::resource("leases"), key, Verb::MergePatch(patch));
    (renewed.plus_seconds(RENEWED_SECONDS) <= now).then(|| UserRequest::Act(Box::new(action())))
}

/// The update that sets the node's conditions to healthy; `None` if they are healthy already.
fn conditions(cluster: &Cluster, node: &Value) -> Option<UserRequest> {
    if has_condition(node, "Ready") {
        return None;
    }
    let now = cluster.trial.now();
    let told = |kind: &str| {
        let status = if kind == "Ready" { "True" } else { "False" };
        json!({"type": kind, "status": status, "lastHeartbeatTime": now, "lastTransitionTime": now})
    };
    let kinds = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];
    let patch = json!({"status": {"conditions": kinds.map(told)}});
    let action = Action::new(&cluster::resource("nodes"), Key::cluster(name(node)), Verb::StrategicPatch(patch));
    Some(UserRequest::Act(Box::new(action.subresource("status"))))
}
