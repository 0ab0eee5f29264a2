//! The invariants that must hold when the cluster is at rest.

use super::cluster::{
    self, Cluster, controller, has_condition, has_ended, image, is_active, is_available, is_leaving, is_observed,
    items, name, number, ordinal, text, uid,
};
use super::load;
use super::manager::Manager;
use super::namespaces;
use super::oracle::node_of;
use super::volumes;
use crate::oracle::{CheckResult, ensure};
use holdfast_value::Value;
use holdfast_world::Stamp;
use std::collections::BTreeSet;

pub fn check(cluster: &Cluster, manager: &mut Manager) -> CheckResult {
    for (plural, object) in cluster.everything() {
        let shown = || format!("{plural} {}", cluster::key(object));
        ensure(!is_leaving(object), || format!("something never goes: {}", shown()))?;
        for owner in items(&object["metadata"]["ownerReferences"]) {
            let is_there = cluster.by_uid(text(&owner["uid"])).is_some();
            ensure(is_there, || format!("something is left without its owner {}: {}", owner["name"], shown()))?;
        }
        let kind = match plural {
            "nodes" => node(object),
            "pods" => pod(cluster, object),
            "deployments" => deployment(cluster, object),
            "replicasets" => replica_set(cluster, object),
            "statefulsets" => stateful_set(cluster, object),
            "daemonsets" => daemon_set(cluster, object),
            "jobs" => job(cluster, object),
            "resourcequotas" => quota(cluster, object),
            "poddisruptionbudgets" => budget(cluster, object),
            _ => Ok(()),
        };
        kind.map_err(|why| format!("{why}: {}: {}", shown(), object["status"]))?;
    }
    endpoints(cluster)?;
    volumes::check(cluster)?;
    namespaces::check(cluster)?;
    load::check(cluster)?;
    quiet(cluster, manager)
}

/// Checks that no plan has any actions if every key is planned again.
fn quiet(cluster: &Cluster, manager: &mut Manager) -> CheckResult {
    let stamp = Stamp { time: cluster.trial.now(), seed: 0 };
    for (member, key) in std::mem::take(&mut manager.known) {
        let controller = manager.driver.controller(member).name();
        let fails = manager.driver.queue(member).is_failing(&key);
        ensure(!fails, || format!("a controller never succeeds: {controller} with {key}"))?;
        let plan = manager.driver.preview(member, &key, stamp);
        let step = plan.steps.into_iter().flatten().next();
        ensure(step.is_none(), || format!("a controller is not done: {controller} with {key}: {step:?}"))?;
    }
    Ok(())
}

fn tells(object: &Value, field: &str, count: usize) -> CheckResult {
    let told = number(&object["status"][field], 0);
    ensure(told == count as i64, || format!("a status is wrong: {field} is {told}, not {count}"))
}

/// Checks that a node is healthy.
fn node(node: &Value) -> CheckResult {
    let taint = items(&node["spec"]["taints"]).find(|taint| text(&taint["key"]).starts_with("node.kubernetes.io/"));
    ensure(taint.is_none(), || format!("a node that is well repels pods: {taint:?}"))
}

/// Checks that a pod is not on a node that was deleted.
fn pod(cluster: &Cluster, pod: &Value) -> CheckResult {
    let node = text(&pod["spec"]["nodeName"]);
    let is_there = node.is_empty() || cluster.named("nodes", node).is_some();
    ensure(is_there, || format!("a pod stays on a node that is gone: {node}"))
}

fn observed(object: &Value) -> CheckResult {
    ensure(is_observed(object), || "the newest spec was never acted on".to_owned())
}

fn deployment(cluster: &Cluster, deployment: &Value) -> CheckResult {
    observed(deployment)?;
    let wanted = number(&deployment["spec"]["replicas"], 1) as usize;
    let sets = cluster.controlled("replicasets", uid(deployment));
    let pods: Vec<&Value> =
        sets.flat_map(|set| cluster.controlled("pods", uid(set))).filter(|pod| is_active(pod)).collect();
    ensure(pods.len() == wanted, || format!("a deployment has the wrong number of pods: {} of {wanted}", pods.len()))?;
    let newest = image(&deployment["spec"]["template"]["spec"]);
    let old = pods.iter().find(|pod| image(&pod["spec"]) != newest);
    ensure(old.is_none(), || "a rollout never ends".to_owned())?;
    for field in ["replicas", "updatedReplicas", "readyReplicas", "availableReplicas"] {
        tells(deployment, field, wanted)?;
    }
    let kept = number(&deployment["spec"]["revisionHistoryLimit"], 10) as usize;
    let old = cluster.controlled("replicasets", uid(deployment)).filter(|set| set["spec"]["replicas"] == 0).count();
    ensure(old <= kept + 1, || format!("old sets are never forgotten: {old} of {kept}"))
}

fn replica_set(cluster: &Cluster, set: &Value) -> CheckResult {
    observed(set)?;
    let wanted = number(&set["spec"]["replicas"], 1) as usize;
    let pods = cluster.controlled("pods", uid(set)).filter(|pod| is_available(pod)).count();
    ensure(pods == wanted, || format!("a set has the wrong number of pods: {pods} of {wanted}"))?;
    ["replicas", "readyReplicas", "availableReplicas"].into_iter().try_for_each(|field| tells(set, field, wanted))
}

fn stateful_set(cluster: &Cluster, set: &Value) -> CheckResult {
    observed(set)?;
    let wanted = number(&set["spec"]["replicas"], 1);
    let mut pods: Vec<&Value> = cluster.controlled("pods", uid(set)).filter(|pod| is_available(pod)).collect();
    pods.sort_by_key(|pod| ordinal(pod));
    let are_all = pods.iter().map(|pod| ordinal(pod)).eq(0..wanted);
    ensure(are_all, || format!("a set has the wrong pods: {} of {wanted}", pods.len()))?;
    let partition = number(&set["spec"]["updateStrategy"]["rollingUpdate"]["partition"], 0);
    let newest = image(&set["spec"]["template"]["spec"]);
    let old = pods.iter().find(|pod| ordinal(pod) >= partition && image(&pod["spec"]) != newest);
    ensure(old.is_none(), || "an update never ends".to_owned())?;
    ["replicas", "readyReplicas"].into_iter().try_for_each(|field| tells(set, field, wanted as usize))
}

fn daemon_set(cluster: &Cluster, set: &Value) -> CheckResult {
    observed(set)?;
    let is_free = |node: &&Value| items(&node["spec"]["taints"]).next().is_none();
    let nodes: BTreeSet<&str> = cluster.all("nodes").filter(is_free).map(name).collect();
    let newest = image(&set["spec"]["template"]["spec"]);
    let pods: Vec<&Value> = cluster.controlled("pods", uid(set)).filter(|pod| is_active(pod)).collect();
    let placed: BTreeSet<&str> = pods.iter().map(|pod| node_of(pod)).collect();
    // A pod that already runs on a node may stay there after the node gets a taint, so only missing pods are checked.
    let missing = nodes.difference(&placed).next();
    ensure(missing.is_none(), || format!("a node has no daemon: {missing:?}"))?;
    ensure(pods.len() == placed.len(), || "a node has several daemons".to_owned())?;
    let old = pods.iter().find(|pod| nodes.contains(node_of(pod)) && image(&pod["spec"]) != newest);
    ensure(old.is_none(), || "an update never ends".to_owned())?;
    tells(set, "desiredNumberScheduled", nodes.len())
}

fn job(cluster: &Cluster, job: &Value) -> CheckResult {
    let is_over = has_condition(job, "Complete") || has_condition(job, "Failed");
    ensure(is_over, || "a job never ends".to_owned())?;
    let active = cluster.controlled("pods", uid(job)).filter(|pod| is_active(pod)).count();
    ensure(active == 0, || format!("pods of a job that has ended run on: {active}"))?;
    let waits = items(&job["status"]["uncountedTerminatedPods"]["succeeded"]).count();
    ensure(waits == 0, || format!("pods are never counted: {waits}"))?;
    let is_kept = job["spec"]["ttlSecondsAfterFinished"].is_null();
    ensure(is_kept, || "a job outlives its time".to_owned())
}

fn quota(cluster: &Cluster, quota: &Value) -> CheckResult {
    let pods = cluster.all("pods").filter(|pod| !has_ended(pod)).count();
    let (jobs, maps) = (cluster.all("jobs").count(), cluster.all("configmaps").count());
    ensure(quota["status"]["hard"] == quota["spec"]["hard"], || "a quota forgets its limits".to_owned())?;
    for (name, there) in [("pods", pods), ("count/jobs.batch", jobs), ("count/configmaps", maps)] {
        let used = text(&quota["status"]["used"][name]);
        ensure(used == there.to_string(), || format!("a quota counts wrong: {used} of {name}, not {there}"))?;
    }
    Ok(())
}

fn budget(cluster: &Cluster, budget: &Value) -> CheckResult {
    observed(budget)?;
    let labels = &budget["spec"]["selector"]["matchLabels"]["app"];
    let is_meant = |pod: &&Value| pod["metadata"]["labels"]["app"] == *labels && is_available(pod);
    tells(budget, "currentHealthy", cluster.all("pods").filter(is_meant).count())
}

/// Checks that the endpoints of a Service are its ready pods.
fn endpoints(cluster: &Cluster) -> CheckResult {
    let is_meant = |pod: &&Value| pod["metadata"]["labels"]["service"] == "all" && is_available(pod);
    let wanted: BTreeSet<&str> =
        cluster.all("pods").filter(is_meant).map(|pod| text(&pod["status"]["podIP"])).collect();
    let slices = cluster.all("endpointslices").filter(|slice| controller(slice).is_some());
    let endpoints = slices.flat_map(|slice| items(&slice["endpoints"]));
    let ready = endpoints.filter(|endpoint| endpoint["conditions"]["ready"] == true);
    let told: BTreeSet<&str> = ready.map(|endpoint| text(&endpoint["addresses"][0])).collect();
    ensure(told == wanted, || format!("a service leads elsewhere than to its pods: {told:?}, not {wanted:?}"))
}
