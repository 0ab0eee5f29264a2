//! The requests with which simulated users change the cluster.

use super::cluster::{self, Cluster};
use super::deed::{UserRequest, workload};
use super::machine::SICK;
use super::namespaces;
use super::volumes;
use crate::random::Dice;
use holdfast_value::{Value, json};
use holdfast_world::{Action, Key, Propagation, Verb};

/// The name of a Deployment that users do not change. It has a PodDisruptionBudget, so only evictions remove its pods.
pub const KEPT: &str = "kept";
pub const KEPT_REPLICAS: i64 = 4;
pub const NODES: usize = 4;
const JOBS: usize = 4;

/// The objects that exist at the start of a simulation.
pub fn founded(dice: &mut Dice) -> Vec<Value> {
    let mut all: Vec<Value> = (0..NODES).map(|number| node(number, dice.chance(25))).collect();
    all[0]["spec"]["taints"] = json!([]);
    let mut kept = workload("Deployment", KEPT, json!({"replicas": KEPT_REPLICAS}), 1);
    kept["spec"]["strategy"] = json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 1}});
    all.push(kept);
    let amount = if dice.chance(50) { json!({"minAvailable": 3}) } else { json!({"maxUnavailable": 1}) };
    let mut budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": KEPT},
        "spec": amount});
    budget["spec"]["selector"] = json!({"matchLabels": {"app": KEPT}});
    all.push(budget);
    all.push(json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "all"},
        "spec": {"clusterIP": "None", "selector": {"service": "all"}, "ports": [{"port": 80}]}}));
    all.push(json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "all"},
        "spec": {"hard": {"pods": "500", "count/jobs.batch": "500", "count/configmaps": "3"}}}));
    all.push(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": SICK, "labels": {"service": "all"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]}}));
    all
}

fn node(number: usize, tainted: bool) -> Value {
    let there = json!({"cpu": "64", "memory": "64Gi", "pods": "110"});
    let taints = if tainted { json!([{"key": "t", "effect": "NoSchedule"}]) } else { json!([]) };
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": format!("n{number}")}, "spec": {"taints": taints},
        "status": {"capacity": there, "allocatable": there}})
}

/// Ranges of the numbers by which [`draw`] chooses requests. Each seed has one of these ranges: its users draw half of
/// their requests from the range, and the other half from all requests.
const THEMES: [std::ops::Range<usize>; 6] = [0..7, 7..11, 11..13, 13..17, 17..20, 20..24];

/// Draws a request of a user. If `calm` is true, users delete no pods of controllers and do not change nodes.
pub fn draw(cluster: &Cluster, dice: &mut Dice, seed: u64, number: usize, calm: bool) -> Option<UserRequest> {
    let theme = THEMES[(seed / 2) as usize % THEMES.len()].clone();
    let deed = match dice.chance(50) {
        true => theme.start + dice.below(theme.len()),
        false => dice.below(if calm { 24 } else { 32 }),
    };
    match deed {
        0..=4 => deployment(cluster, dice),
        5 | 6 => replica_set(cluster, dice),
        7..=10 => stateful_set(cluster, dice),
        11 | 12 => daemon_set(cluster, dice),
        13..=15 => job(cluster, dice, number),
        16 => cron_job(cluster, dice),
        17..=19 => evict(cluster, dice, calm),
        20 => config_map(cluster, dice, number),
        21 | 22 => delete(cluster, dice),
        23 => tidy(cluster, dice),
        24..=27 => delete_pod(cluster, dice),
        28 => delete_node(cluster, dice),
        29 => new_node(cluster, dice),
        _ => taint(cluster, dice),
    }
}

fn deployment(cluster: &Cluster, dice: &mut Dice) -> Option<UserRequest> {
    let name = dice.pick(&["d0", "d1"]);
    let replicas = dice.below(6);
    let (surge, unavailable) = dice.pick(&[(1, 0), (0, 1), (1, 1), (2, 1), (3, 2)]);
    let mut strategy =
        json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}});
    if dice.chance(20) {
        strategy = json!({"type": "Recreate"});
    }
    if cluster.named("deployments", name).is_none() {
        let spec = json!({"replicas": replicas, "strategy": strategy, "revisionHistoryLimit": dice.below(3)});
        return Some(UserRequest::Create(workload("Deployment", name, spec, dice.below(4))));
    }
    change("deployments", name, dice, replicas)
}

/// A request that changes the number of pods of a workload, or its pod template.
fn change(plural: &str, name: &str, dice: &mut Dice, replicas: usize) -> Option<UserRequest> {
    let image = format!("i{}", dice.below(4));
    let template = json!({"template": {"spec": {"containers": [{"name": "c", "image": image}]}}});
    let spec = if dice.chance(40) { json!({"replicas": replicas}) } else { template };
    Some(UserRequest::Act(Box::new(patch(plural, name, json!({"spec": spec})))))
}

fn patch(plural: &str, name: &str, patch: Value) -> Action {
    let resource = cluster::resource(plural);
    let key = if resource.namespaced() { Key::new("default", name) } else { Key::cluster(name) };
    Action::new(&resource, key, Verb::StrategicPatch(patch))
}

fn replica_set(cluster: &Cluster, dice: &mut Dice) -> Option<UserRequest> {
    let replicas = dice.below(6);
    match cluster.named("replicasets", "r0") {
        None => Some(UserRequest::Create(workload("ReplicaSet", "r0", json!({"replicas": replicas}), 1))),
        Some(_) => {
            Some(UserRequest::Act(Box::new(patch("replicasets", "r0", json!({"spec": {"replicas": replicas}})))))
        }
    }
}

fn stateful_set(cluster: &Cluster, dice: &mut Dice) -> Option<UserRequest> {
    let name = dice.pick(&["s0", "s1"]);
    let replicas = 1 + dice.below(4);
    let partition = if name == "s0" { 0 } else { 1 + dice.below(2) };
    if cluster.named("statefulsets", name).is_none() {
        let policy = if dice.chance(70) { "OrderedReady" } else { "Parallel" };
        let strategy = json!({"type": "RollingUpdate", "rollingUpdate": {"partition": partition}});
        let spec = json!({"replicas": replicas, "serviceName": "all", "podManagementPolicy": policy,
            "updateStrategy": strategy});
        return Some(UserRequest::Create(workload("StatefulSet", name, spec, dice.below(4))));
    }
    change("statefulsets", name, dice, replicas)
}

fn daemon_set(cluster: &Cluster, dice: &mut Dice) -> Option<UserRequest> {
    if cluster.named("daemonsets", "a0").is_none() {
        let spec = json!({"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}}});
        return Some(UserRequest::Create(workload("DaemonSet", "a0", spec, dice.below(4))));
    }
    let image = format!("i{}", dice.below(4));
    let template = json!({"template": {"spec": {"containers": [{"name": "c", "image": image}]}}});
    Some(UserRequest::Act(Box::new(patch("daemonsets", "a0", json!({ "spec": template })))))
}

fn job_spec(dice: &mut Dice) -> Value {
    let mut spec = json!({"parallelism": 1 + dice.below(3), "backoffLimit": dice.below(4), "template": {
        "metadata": {"labels": {"service": "none"}},
        "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 5, "containers": [{"name": "c", "image": "i"}]},
    }});
    if dice.chance(80) {
        spec["completions"] = (1 + dice.below(5)).into();
        if dice.chance(40) {
            spec["completionMode"] = "Indexed".into();
        }
    }
    if dice.chance(30) {
        spec["ttlSecondsAfterFinished"] = dice.pick(&[5, 60]).into();
    }
    spec
}

fn job(cluster: &Cluster, dice: &mut Dice, number: usize) -> Option<UserRequest> {
    if cluster.all("jobs").count() >= JOBS {
        return None;
    }
    let metadata = json!({"name": format!("j{number}")});
    Some(UserRequest::Create(
        json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": job_spec(dice)}),
    ))
}

fn cron_job(cluster: &Cluster, dice: &mut Dice) -> Option<UserRequest> {
    if cluster.named("cronjobs", "c0").is_some() {
        return None;
    }
    let policy = dice.pick(&["Forbid", "Forbid", "Replace", "Allow"]);
    Some(UserRequest::Create(json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "c0"},
        "spec": {"schedule": "* * * * *", "concurrencyPolicy": policy, "successfulJobsHistoryLimit": 1,
            "failedJobsHistoryLimit": 1, "jobTemplate": {"spec": job_spec(dice)}}})))
}

fn any<'a>(dice: &mut Dice, objects: impl Iterator<Item = &'a Value>) -> Option<&'a Value> {
    let objects: Vec<&Value> = objects.filter(|object| !cluster::is_leaving(object)).collect();
    if objects.is_empty() { None } else { Some(objects[dice.below(objects.len())]) }
}

fn evict(cluster: &Cluster, dice: &mut Dice, calm: bool) -> Option<UserRequest> {
    let is_kept = |pod: &&Value| !calm && !namespaces::holds(pod) || pod["metadata"]["labels"]["app"] == KEPT;
    let pod = any(dice, cluster.all("pods").filter(is_kept))?;
    let metadata = json!({"name": cluster::name(pod), "namespace": "default"});
    let body = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata});
    let action = Action::new(&cluster::resource("pods"), cluster::key(pod), Verb::Create(body));
    Some(UserRequest::Act(Box::new(action.subresource("eviction"))))
}

/// Creates a ConfigMap with several owners. The ConfigMap must stay as long as one of its owners exists.
fn config_map(cluster: &Cluster, dice: &mut Dice, number: usize) -> Option<UserRequest> {
    let owners: Vec<Value> = ["deployments", "statefulsets"]
        .into_iter()
        .filter_map(|plural| Some((plural, any(dice, cluster.all(plural).filter(|owner| !namespaces::holds(owner)))?)))
        .map(|(plural, owner)| {
            let kind = if plural == "deployments" { "Deployment" } else { "StatefulSet" };
            json!({"apiVersion": "apps/v1", "kind": kind, "name": cluster::name(owner), "uid": cluster::uid(owner)})
        })
        .collect();
    let metadata = json!({"name": format!("m{number}"), "ownerReferences": owners});
    Some(UserRequest::Create(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})))
}

fn delete(cluster: &Cluster, dice: &mut Dice) -> Option<UserRequest> {
    let plural =
        dice.pick(&["deployments", "deployments", "statefulsets", "replicasets", "daemonsets", "jobs", "cronjobs"]);
    let is_free = |object: &&Value| cluster::name(object) != KEPT && cluster::controller(object).is_none();
    let object = any(dice, cluster.all(plural).filter(is_free))?;
    let propagation = dice.pick(&[Propagation::Background, Propagation::Foreground, Propagation::Orphan]);
    let verb = Verb::Delete { uid: None, version: None, propagation: Some(propagation), grace_seconds: None };
    Some(UserRequest::Act(Box::new(Action::new(&cluster::resource(plural), cluster::key(object), verb))))
}

/// Deletes a pod that no controller owns, because nobody needs it any more.
fn tidy(cluster: &Cluster, dice: &mut Dice) -> Option<UserRequest> {
    let is_free = |pod: &&Value| cluster::name(pod) != SICK && cluster::controller(pod).is_none();
    Some(UserRequest::Act(Box::new(deletion("pods", any(dice, cluster.all("pods").filter(is_free))?))))
}

fn deletion(plural: &str, object: &Value) -> Action {
    let verb = Verb::Delete { uid: None, version: None, propagation: None, grace_seconds: None };
    Action::new(&cluster::resource(plural), cluster::key(object), verb)
}

fn delete_pod(cluster: &Cluster, dice: &mut Dice) -> Option<UserRequest> {
    Some(UserRequest::Act(Box::new(deletion("pods", any(dice, cluster.all("pods"))?))))
}

fn delete_node(cluster: &Cluster, dice: &mut Dice) -> Option<UserRequest> {
    Some(UserRequest::Act(Box::new(deletion("nodes", any(dice, cluster.all("nodes"))?))))
}

fn new_node(cluster: &Cluster, dice: &mut Dice) -> Option<UserRequest> {
    let number = dice.below(NODES);
    let is_there = cluster.named("nodes", &format!("n{number}")).is_some();
    (!is_there).then(|| UserRequest::Create(node(number, dice.chance(25))))
}

fn taint(cluster: &Cluster, dice: &mut Dice) -> Option<UserRequest> {
    let node = any(dice, cluster.all("nodes"))?;
    let effect = dice.pick(&["NoSchedule", "NoExecute"]);
    let taints = if dice.chance(50) { json!([{"key": "t", "effect": effect}]) } else { json!([]) };
    let action = Action::new(
        &cluster::resource("nodes"),
        cluster::key(node),
        Verb::MergePatch(json!({"spec": {"taints": taints}})),
    );
    Some(UserRequest::Act(Box::new(action)))
}

/// The requests that let everything come to rest. After them no more Jobs are started, and one node without taints can
/// run pods.
pub fn settle(cluster: &Cluster) -> Vec<UserRequest> {
    let mut deeds = Vec::new();
    for cron_job in cluster.all("cronjobs") {
        deeds.push(UserRequest::Act(Box::new(patch(
            "cronjobs",
            cluster::name(cron_job),
            json!({"spec": {"suspend": true}}),
        ))));
    }
    deeds.extend(volumes::users(cluster).map(|pod| UserRequest::Act(Box::new(deletion("pods", pod)))));
    match cluster.named("nodes", "n0") {
        None => deeds.push(UserRequest::Create(node(0, false))),
        Some(node) => {
            let verb = Verb::MergePatch(json!({"spec": {"taints": []}}));
            deeds.push(UserRequest::Act(Box::new(Action::new(&cluster::resource("nodes"), cluster::key(node), verb))));
        }
    }
    deeds
}
