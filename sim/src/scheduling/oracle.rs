//! The invariants of the placement of pods, checked in a simple way on the objects themselves.

use crate::oracle::{CheckResult, ensure};
use holdfast_scheduler::plan::{PlanOutcome, plan};
use holdfast_scheduler::{Key, Scheduler, Snapshot};
use holdfast_value::Value;
use holdfast_world::trial::Trial;
use std::collections::BTreeMap;

pub const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";

/// Checks that no pod was bound twice. If there is a single scheduler, also checks that no node has more pods than it
/// has room for, that no host port is used twice on a node, and that no anti-affinity is violated.
pub fn check(trial: &Trial, bound: &mut BTreeMap<String, String>, rivals: bool) -> CheckResult {
    let pods = trial.list("pods");
    for pod in &pods {
        let (uid, node) = (text(&pod["metadata"]["uid"]), text(&pod["spec"]["nodeName"]));
        if !node.is_empty() {
            let first = bound.entry(uid.to_owned()).or_insert_with(|| node.to_owned());
            ensure(first == node, || format!("{} was bound to {first} and is bound to {node}", name(pod)))?;
        }
    }
    if rivals {
        return Ok(());
    }
    for node in trial.list("nodes") {
        let here: Vec<&Value> = pods.iter().filter(|pod| text(&pod["spec"]["nodeName"]) == name(&node)).collect();
        fits(&node, &here)?;
        for (at, one) in here.iter().enumerate() {
            for other in &here[at + 1..] {
                let port = |pod: &Value| pod["spec"]["containers"][0]["ports"][0]["hostPort"].as_i64();
                let clash = port(one).is_some() && port(one) == port(other);
                ensure(!clash, || format!("{} and {} have one port of {}", name(one), name(other), name(&node)))?;
                let apart = !(avoids(one, other) || avoids(other, one));
                ensure(apart, || format!("{} and {} lie together on {}", name(one), name(other), name(&node)))?;
            }
        }
    }
    Ok(())
}

/// Whether the anti-affinity of `pod` forbids a node on which `other` is.
fn avoids(pod: &Value, other: &Value) -> bool {
    let terms = pod["spec"]["affinity"]["podAntiAffinity"][REQUIRED].as_array().into_iter().flatten();
    let mut by_node = terms.filter(|term| term["topologyKey"] == "kubernetes.io/hostname");
    by_node.any(|term| term["labelSelector"]["matchLabels"]["app"] == other["metadata"]["labels"]["app"])
}

fn fits(node: &Value, pods: &[&Value]) -> CheckResult {
    let cpu = |value: &Value| {
        let text = text(value);
        match text.strip_suffix('m') {
            Some(thousandths) => thousandths.parse().unwrap_or(0),
            None => text.parse::<i64>().unwrap_or(0) * 1000,
        }
    };
    let asked: i64 = pods.iter().map(|pod| cpu(&pod["spec"]["containers"][0]["resources"]["requests"]["cpu"])).sum();
    let there = &node["status"]["allocatable"];
    ensure(asked <= cpu(&there["cpu"]), || format!("{} is to give {asked}m of {}", name(node), there["cpu"]))?;
    let most = text(&there["pods"]).parse().unwrap_or(0);
    ensure(pods.len() <= most, || format!("{} pods lie on {}", pods.len(), name(node)))
}

/// Checks that at rest every pod that fits on some node is bound, and that the scheduler keeps no state about work that
/// has ended.
pub fn at_rest(trial: &Trial, scheduler: &Scheduler, rivals: bool) -> CheckResult {
    let pending = scheduler.pending_pods();
    ensure(scheduler.pending_requests() == 0, || format!("{} requests have no outcome", scheduler.pending_requests()))?;
    let assumed = scheduler.snapshot().assumed_count();
    ensure(assumed == 0, || format!("{assumed} placements are taken for granted for ever"))?;
    ensure(pending.in_flight == 0 && pending.active == 0, || format!("pods are stuck: {pending:?}"))?;
    let mut snapshot = Snapshot::new();
    for (kind, plural) in super::KINDS {
        for object in trial.list(plural) {
            let key = Key::new(text(&object["metadata"]["namespace"]), name(&object));
            snapshot.apply(kind, &key, Some(&object));
        }
    }
    for pod in trial.list("pods").iter().filter(|pod| !text(&pod["spec"]["nodeName"]).is_empty()) {
        let mut conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
        let scheduled = conditions.find(|condition| condition["type"] == "PodScheduled");
        let says = scheduled.map_or("nothing", |condition| text(&condition["status"]));
        // If there are two schedulers, one of them may write that no node has room just after the other has bound the
        // pod.
        ensure(says == "True" || rivals, || format!("{} is bound, and its condition says {says}", name(pod)))?;
    }
    let profile = &scheduler.configuration().profiles[0];
    let mut waits = 0;
    for pod in snapshot.pods().filter(|pod| pod.node_name.is_none()) {
        waits += 1;
        match plan(&snapshot, profile, pod).outcome {
            PlanOutcome::Bind { node, .. } => return Err(format!("{} could lie on {node}, and waits", pod.key)),
            PlanOutcome::Unschedulable(why) if why.victims.is_some() => {
                return Err(format!("{} could make room for itself, and waits", pod.key));
            }
            PlanOutcome::Unschedulable(_) => {}
        }
    }
    let queued = pending.backoff + pending.unschedulable;
    ensure(queued == waits, || format!("{waits} pods wait, and the queue has {pending:?}"))?;
    let (seen, there) = (scheduler.snapshot().pod_count(), trial.list("pods").len());
    ensure(seen == there, || format!("{seen} of {there} pods are known"))?;
    Ok(())
}

fn name(object: &Value) -> &str {
    text(&object["metadata"]["name"])
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
