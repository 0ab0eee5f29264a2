//! Schedules and runs pods. At each call, a random pod takes its next step.

use super::cluster::{self, Cluster, items, text};
use super::volumes;
use crate::random::Dice;
use holdfast_value::{Value, json};
use holdfast_world::{Action, Verb};

/// The name of a pod that never becomes ready.
pub const SICK: &str = "sick";

/// How the pods of the simulation behave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mood {
    /// All pods behave at random.
    Wild,
    /// The pods that should keep running keep running; all other pods behave at random.
    Calm,
    /// In addition to `Calm`, the pods that should end end with success.
    Kind,
}

/// The action that is a pod's next step; `None` if the pod takes no step.
pub fn next(cluster: &Cluster, dice: &mut Dice, pod: &Value, mood: Mood) -> Option<Action> {
    let node = text(&pod["spec"]["nodeName"]);
    if node.is_empty() {
        return bind(cluster, dice, pod);
    }
    cluster.named("nodes", node)?;
    let is_sick = cluster::name(pod) == SICK;
    if cluster::is_leaving(pod) {
        // The pod has stopped. If it still exists, its finalizers keep it.
        if pod["metadata"]["deletionGracePeriodSeconds"] == 0 {
            return None;
        }
        let fails = !cluster::has_ended(pod) && dice.chance(50);
        return Some(if fails { status(cluster, pod, "Failed", false) } else { gone(pod) });
    }
    let ends = pod["spec"]["restartPolicy"] == "Never";
    let is_ready = cluster::has_condition(pod, "Ready");
    match text(&pod["status"]["phase"]) {
        "Pending" => Some(status(cluster, pod, "Running", !is_sick && dice.chance(60))),
        "Running" if is_sick => None,
        "Running" if !is_ready => Some(status(cluster, pod, "Running", true)),
        "Running" if ends => {
            let fails = mood != Mood::Kind && dice.chance(30);
            Some(status(cluster, pod, if fails { "Failed" } else { "Succeeded" }, false))
        }
        "Running" if mood == Mood::Wild => match dice.below(40) {
            0 => Some(status(cluster, pod, "Failed", false)),
            1 | 2 => Some(status(cluster, pod, "Running", false)),
            _ => None,
        },
        _ => None,
    }
}

fn bind(cluster: &Cluster, dice: &mut Dice, pod: &Value) -> Option<Action> {
    if cluster::is_leaving(pod) || !volumes::are_bound(cluster, pod) {
        return None;
    }
    let terms =
        &pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"];
    let wanted = terms[0]["matchFields"][0]["values"][0].as_str();
    let fits = |node: &&Value| {
        wanted.is_none_or(|wanted| cluster::name(node) == wanted)
            && !cluster::is_leaving(node)
            && items(&node["spec"]["taints"]).all(|taint| tolerates(pod, taint))
    };
    let nodes: Vec<&Value> = cluster.all("nodes").filter(fits).collect();
    if nodes.is_empty() {
        return None;
    }
    let node = cluster::name(nodes[dice.below(nodes.len())]);
    let target = json!({"apiVersion": "v1", "kind": "Node", "name": node});
    let body =
        json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": cluster::name(pod)}, "target": target});
    Some(of(pod, Verb::Create(body)).subresource("binding"))
}

fn tolerates(pod: &Value, taint: &Value) -> bool {
    let fits = |toleration: &Value| {
        (toleration["key"].is_null() || toleration["key"] == taint["key"])
            && (toleration["effect"].is_null() || toleration["effect"] == taint["effect"])
    };
    items(&pod["spec"]["tolerations"]).any(fits)
}

fn of(pod: &Value, verb: Verb) -> Action {
    Action::new(&cluster::resource("pods"), cluster::key(pod), verb)
}

fn gone(pod: &Value) -> Action {
    let uid = Some(cluster::uid(pod).into());
    of(pod, Verb::Delete { uid, version: None, propagation: None, grace_seconds: Some(0) })
}

fn status(cluster: &Cluster, pod: &Value, phase: &str, ready: bool) -> Action {
    let now = cluster.trial.now();
    let ready = json!({"type": "Ready", "status": if ready { "True" } else { "False" }, "lastTransitionTime": now});
    let mut status = json!({"phase": phase, "conditions": [ready]});
    if pod["status"]["podIP"].is_null() {
        let number = cluster.commands;
        let address = format!("10.{}.{}.{}", 1 + number / 62_500 % 200, number / 250 % 250, 1 + number % 250);
        status["podIP"] = address.as_str().into();
        status["podIPs"] = json!([{"ip": address}]);
        status["startTime"] = json!(now);
    }
    let patch = json!({"metadata": {"uid": cluster::uid(pod)}, "status": status});
    of(pod, Verb::StrategicPatch(patch)).subresource("status")
}
