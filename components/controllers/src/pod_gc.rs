//! Deletes pods that no other controller deletes: pods of nodes that no longer exist, deleted pods that never had a
//! node, and the oldest finished pods beyond a limit.

use crate::Settings;
use crate::planted::{Bug, planted};
use crate::subject::Subject;
use holdfast_value::{Value, json};
use holdfast_world::views::{Condition, Node, Pod};
use holdfast_world::{
    Action, Change, Controller, Key, Keys, Plan, Resource, Stamp, Text, Time, Verb, View, Viewed, World,
};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// How long a node may be missing before its pods are deleted: a node that registers again within this time keeps its
/// pods.
const QUARANTINE_SECONDS: i64 = 40;
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";
/// The name of the index of pods by their node.
const BY_NODE: &str = "node";
/// The name of the index of pods that have ended, all under one value.
const ENDED: &str = "ended";

/// Each plan is for one pod; the plan for the empty key is for the finished pods.
pub struct PodCollector {
    /// How many finished pods are kept in the cluster; all of them if the number is 0 or less.
    threshold: i64,
    /// How many finished pods the cluster has.
    ended: i64,
    /// The names of nodes that do not exist although pods are bound to them, and since when each node has been missing.
    missing_nodes: BTreeMap<String, Time>,
}

impl PodCollector {
    pub fn new(settings: &Settings) -> PodCollector {
        PodCollector { threshold: settings.terminated_pod_threshold, ended: 0, missing_nodes: BTreeMap::new() }
    }
}

impl Controller for PodCollector {
    fn name(&self) -> &'static str {
        "pod-garbage-collector-controller"
    }

    fn account(&self) -> &'static str {
        "pod-garbage-collector"
    }

    fn resources(&self) -> Vec<Resource> {
        vec![Pod::resource().clone(), Node::resource().clone()]
    }

    fn indexes(&self, world: &mut World) {
        index_by_node(world);
        world.index::<Pod>(ENDED, |object| {
            let ended = object.view::<Pod>().is_some_and(Pod::is_finished);
            if ended { vec![Text::from("")] } else { Vec::new() }
        });
    }

    fn concerns(&mut self, world: &World, change: &Change, keys: &mut Keys) {
        if change.is_of::<Node>() {
            if change.after.is_some() {
                self.missing_nodes.remove(&*change.key.name);
            }
            // A node that exists and is in service loses no pods.
            if change.after::<Node>().is_none_or(is_out_of_service) {
                pods_on(world, &change.key.name).for_each(|pod| keys.add(pod.object.key()));
            }
            return;
        }
        let [before, after] = [change.before::<Pod>(), change.after::<Pod>()];
        let ended = |side: &Option<Viewed<'_, Pod>>| i64::from(side.is_some_and(|pod| pod.is_finished()));
        self.ended += ended(&after) - ended(&before);
        if self.threshold > 0 && self.ended > self.threshold {
            keys.add(Key::cluster(""));
        }
        if let (Some(gone), None) = (before, after) {
            let node = &gone.spec.node_name;
            if self.missing_nodes.contains_key(node) && pods_on(world, node).next().is_none() {
                self.missing_nodes.remove(node);
            }
        }
        if after.is_some_and(|pod| pod.meta().is_deleting() || is_bound_to_nothing(world, &pod)) {
            keys.add(change.key.clone());
        }
    }

    fn plan(&mut self, world: &World, key: &Key, stamp: Stamp) -> Plan {
        let mut plan = Plan::default();
        if key.name.is_empty() {
            self.plan_ended(world, &mut plan);
        } else if let Some(pod) = world.get::<Pod>(key) {
            self.plan_pod(world, pod, stamp, &mut plan);
        }
        plan
    }
}

/// Whether the node to which the pod is bound does not exist.
fn is_bound_to_nothing(world: &World, pod: &Pod) -> bool {
    let node = &pod.spec.node_name;
    !node.is_empty() && world.get::<Node>(&Key::cluster(node)).is_none()
}

impl PodCollector {
    /// Deletes finished pods beyond the threshold, first pods of the namespaces with the most finished pods, so that
    /// one user's many pods do not displace the pods of another user. Within a namespace evicted pods are deleted
    /// first, then the oldest pods.
    fn plan_ended(&self, world: &World, plan: &mut Plan) {
        let mut ended: Vec<Viewed<'_, Pod>> = world.indexed::<Pod>(ENDED, "").collect();
        let surplus = usize::try_from(self.threshold).map_or(0, |kept| ended.len().saturating_sub(kept));
        if self.threshold <= 0 || surplus == 0 {
            return;
        }
        ended.sort_by_cached_key(|pod| {
            let evicted = pod.status.phase == "Failed" && pod.status.reason == "Evicted";
            (!evicted, pod.meta().creation_timestamp, pod.object.key())
        });
        let mut left: BTreeMap<&str, usize> = BTreeMap::new();
        for pod in &ended {
            *left.entry(&pod.object.meta.namespace).or_default() += 1;
        }
        // Each pod, with the number of finished pods that its namespace has left before the pod is deleted.
        let mut ranked = Vec::with_capacity(ended.len());
        for pod in &ended {
            let left = left.entry(&pod.object.meta.namespace).or_default();
            ranked.push((*left, *pod));
            *left -= 1;
        }
        ranked.sort_by_key(|(left, _)| Reverse(*left));
        plan.together(ranked[..surplus].iter().map(|(_, pod)| remove(*pod)).collect());
    }

    fn plan_pod(&mut self, world: &World, pod: Viewed<'_, Pod>, stamp: Stamp, plan: &mut Plan) {
        let (meta, node) = (pod.meta(), &pod.spec.node_name);
        if node.is_empty() {
            if meta.is_deleting() {
                fail_and_remove(pod, None, stamp, plan);
            }
            return;
        }
        match world.get::<Node>(&Key::cluster(node)) {
            Some(node) if meta.is_deleting() && is_out_of_service(node) => fail_and_remove(pod, None, stamp, plan),
            Some(_) => {}
            None => {
                // A pod that was created for a node that was already gone also waits for the quarantine to end, because
                // its owner would replace it at once.
                let away = *self.missing_nodes.entry(node.clone()).or_insert(stamp.time);
                let since = meta.creation_timestamp.map_or(away, |made| made.max(away));
                let until = since.plus_seconds(QUARANTINE_SECONDS);
                if stamp.time < until || planted(Bug::LostPodsStay) {
                    plan.requeue_at(until);
                } else {
                    fail_and_remove(pod, Some("PodGC: node no longer exists"), stamp, plan);
                }
            }
        }
    }
}

fn is_out_of_service(node: Viewed<'_, Node>) -> bool {
    node.spec.taints.iter().any(|taint| taint.key == OUT_OF_SERVICE)
        && !Condition::is_true(&node.status.conditions, "Ready")
}

/// Makes the index that [`pods_on`] reads.
pub fn index_by_node(world: &mut World) {
    world.index::<Pod>(BY_NODE, |object| {
        let node = object.view::<Pod>().map(|pod| pod.spec.node_name.as_str());
        node.filter(|node| !node.is_empty()).map(Text::from).into_iter().collect()
    });
}

/// The pods that are bound to a node.
pub fn pods_on<'a>(world: &'a World, node: &str) -> impl Iterator<Item = Viewed<'a, Pod>> + use<'a> {
    world.indexed::<Pod>(BY_NODE, node)
}

/// Sets the pod's phase to Failed before deleting the pod, so that watches show the failure.
fn fail_and_remove(pod: Viewed<'_, Pod>, disruption: Option<&str>, stamp: Stamp, plan: &mut Plan) {
    if !pod.is_finished() {
        plan.together(pod_status(pod, stamp.time, Some("Failed"), disruption.map(|why| ("DeletionByPodGC", why))));
    }
    if !(pod.meta().is_deleting() && pod.meta().deletion_grace_period_seconds == Some(0)) {
        plan.then(remove(pod));
    }
}

/// The patches of a pod's status: its phase, and the condition `DisruptionTarget` with reason and message.
pub fn pod_status(
    pod: Viewed<'_, Pod>,
    now: Time,
    phase: Option<&str>,
    disruption: Option<(&str, &str)>,
) -> Vec<Action> {
    let mut status = json!({});
    if let Some(phase) = phase {
        status["phase"] = phase.into();
    }
    if let Some((reason, message)) = disruption {
        let known = Condition::find(&pod.status.conditions, "DisruptionTarget");
        let is_said =
            known.is_some_and(|known| known.status == "True" && known.reason == reason && known.message == message);
        if !is_said {
            let since = known.filter(|known| known.status == "True").and_then(|known| known.last_transition_time);
            status["conditions"] = json!([{"type": "DisruptionTarget", "status": "True", "reason": reason,
                "message": message, "observedGeneration": pod.meta().generation,
                "lastTransitionTime": since.unwrap_or(now)}]);
        }
    }
    if status == json!({}) {
        return Vec::new();
    }
    let patch: Value = json!({"metadata": {"uid": pod.meta().uid}, "status": status});
    vec![Action::new(Pod::resource(), pod.object.key(), Verb::StrategicPatch(patch)).subresource("status")]
}

fn remove(pod: Viewed<'_, Pod>) -> Action {
    let mut action = Subject::from(pod).delete();
    if let Verb::Delete { grace_seconds, .. } = &mut action.verb {
        *grace_seconds = Some(0);
    }
    action
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_world::Trial;

    fn pod(name: &str, node: &str) -> Value {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]}})
    }

    fn node() -> Value {
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}})
    }

    fn trial() -> Trial {
        Trial::new().with(PodCollector::new(&Settings { terminated_pod_threshold: 2, ..Settings::default() }))
    }

    #[test]
    fn pods_of_a_node_that_is_gone_go_after_a_while() {
        let mut trial = trial();
        trial.create(node());
        let mut held = pod("p", "n");
        held["metadata"]["finalizers"] = json!(["example.com/hold"]);
        trial.create(held);
        trial.run();
        trial.delete("nodes", "n");
        trial.run_for(39);
        assert_eq!(trial.get("pods", "p")["status"]["phase"], "Pending");
        trial.run_for(1);
        let pod = trial.get("pods", "p");
        assert_eq!(
            (&pod["status"]["phase"], &pod["metadata"]["deletionGracePeriodSeconds"]),
            (&json!("Failed"), &json!(0))
        );
        let condition = pod["status"]["conditions"]
            .as_array()
            .expect("conditions")
            .iter()
            .find(|one| one["type"] == "DisruptionTarget");
        assert_eq!(condition.expect("it says why")["reason"], "DeletionByPodGC");
    }

    #[test]
    fn a_pod_for_a_node_that_went_long_ago_waits_as_well() {
        let mut trial = trial();
        let mut held = pod("first", "n");
        held["metadata"]["finalizers"] = json!(["example.com/hold"]);
        trial.create(held);
        trial.run_for(40);
        trial.create(pod("second", "n"));
        trial.run_for(39);
        assert_eq!(trial.names("pods"), ["first", "second"]);
        trial.run_for(1);
        assert_eq!(trial.names("pods"), ["first"]);
    }

    /// The controller remembers a missing node only as long as pods are bound to it.
    #[test]
    fn of_a_node_that_no_pod_is_for_nothing_is_remembered() {
        let mut world = World::default();
        world.track::<Pod>();
        world.track::<Node>();
        let mut collector = PodCollector::new(&Settings::default());
        collector.indexes(&mut world);
        let key = Key::new("default", "p");
        let now = Time::from_second(1_795_255_200);
        for (version, body) in [(1, Some(pod("p", "n").to_string().into())), (2, None)] {
            let change = world.apply(Pod::resource(), key.clone(), body, version, now);
            collector.concerns(&world, &change, &mut Keys::default());
            let plan = collector.plan(&world, &key, Stamp { time: now, seed: 1 });
            assert_eq!(
                (collector.missing_nodes.len(), plan.requeue_at.is_some()),
                (usize::from(version == 1), version == 1)
            );
        }
    }

    #[test]
    fn a_node_that_comes_back_in_time_keeps_its_pods() {
        let mut trial = trial();
        trial.create(pod("p", "n"));
        trial.run_for(30);
        trial.create(node());
        trial.run_for(30);
        trial.delete("nodes", "n");
        trial.run_for(30);
        assert_eq!(trial.names("pods"), ["p"]);
        trial.run_for(10);
        assert!(trial.list("pods").is_empty());
    }

    #[test]
    fn pods_that_wait_for_a_node_that_is_out_of_service_go() {
        let mut trial = trial();
        trial.create(node());
        trial.create(pod("p", "n"));
        trial.delete("pods", "p");
        trial.run();
        assert_eq!(trial.names("pods"), ["p"]);
        trial.patch("nodes", "n", json!({"spec": {"taints": [{"key": OUT_OF_SERVICE, "effect": "NoExecute"}]}}));
        trial.run();
        assert!(trial.list("pods").is_empty());
    }

    #[test]
    fn of_many_that_have_ended_the_evicted_and_the_oldest_go() {
        let mut trial = trial();
        trial.create(node());
        for (name, phase, reason) in
            [("a", "Succeeded", ""), ("b", "Failed", ""), ("c", "Failed", "Evicted"), ("d", "Running", "")]
        {
            trial.create(pod(name, "n"));
            trial.patch_status("pods", name, json!({"phase": phase, "reason": reason}));
            trial.pass_millis(2_000);
        }
        trial.run();
        assert_eq!(trial.names("pods"), ["a", "b", "d"]);
        trial.patch_status("pods", "d", json!({"phase": "Failed"}));
        trial.run();
        assert_eq!(trial.names("pods"), ["b", "d"]);
    }

    #[test]
    fn of_many_that_have_ended_those_go_whose_namespace_has_most() {
        let mut trial = trial();
        trial.create(node());
        let mut end = |namespace: &str, name: &str, reason: &str| {
            let mut pod = pod(name, "n");
            pod["metadata"]["namespace"] = json!(namespace);
            trial.create(pod);
            trial.patch_status("pods", &format!("{namespace}/{name}"), json!({"phase": "Failed", "reason": reason}));
            trial.pass_millis(2_000);
        };
        end("kube-system", "old", "Evicted");
        for (name, reason) in [("a", ""), ("b", ""), ("c", "Evicted"), ("d", "")] {
            end("default", name, reason);
        }
        trial.run();
        assert_eq!(trial.names("pods"), ["d", "old"]);
        // Two namespaces have equally many finished pods, so the older of their evicted pods is deleted.
        trial.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "third"}}));
        let mut pod = pod("e", "n");
        pod["metadata"]["namespace"] = json!("third");
        trial.create(pod);
        trial.patch_status("pods", "third/e", json!({"phase": "Succeeded"}));
        trial.run();
        assert_eq!(trial.names("pods"), ["d", "e"]);
    }

    #[test]
    fn a_node_in_service_has_none_of_its_pods_looked_at() {
        let mut trial = trial();
        trial.create(node());
        trial.create(pod("p", "n"));
        trial.run();
        let world = trial.world("pod-garbage-collector-controller");
        let key = Key::cluster("n");
        let node = world.get::<Node>(&key).expect("the node").object.clone();
        let concerned = |after| {
            let (before, mut keys) = (Some(node.clone()), Keys::default());
            let change = Change { resource: Node::resource().clone(), key: key.clone(), before, after };
            PodCollector::new(&Settings::default()).concerns(world, &change, &mut keys);
            keys.now.len()
        };
        assert_eq!((concerned(Some(node.clone())), concerned(None)), (0, 1));
    }
}
