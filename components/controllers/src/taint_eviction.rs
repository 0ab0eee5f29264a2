//! Deletes pods from nodes whose NoExecute taints they do not tolerate, or no longer tolerate.

use crate::planted::{Bug, planted};
use crate::pod_gc::{index_by_node, pod_status, pods_on};
use crate::subject::Subject;
use holdfast_world::views::Condition;
use holdfast_world::views::node::Taint;
use holdfast_world::views::{Node, Pod};
use holdfast_world::{Change, Controller, Key, Keys, Plan, PlannedEvent, Resource, Stamp, Time, View, Viewed, World};
use std::collections::BTreeMap;

const NO_EXECUTE: &str = "NoExecute";
const REASON: &str = "TaintManagerEviction";
const DISRUPTION: (&str, &str) = ("DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint");

/// Each plan is for one pod.
#[derive(Default)]
pub struct TaintEviction {
    /// The pods that tolerate the taints of their node only for a limited time, each with its deadline.
    waiting: BTreeMap<Key, EvictionDeadline>,
}

/// The time at which a pod must be deleted. This time is set once, does not change when further taints are added or
/// removed, and is removed if the pod may stay.
struct EvictionDeadline {
    uid: String,
    until: Time,
    /// Whether the deletion of the pod was requested. A requested deletion cannot be cancelled any more.
    is_over: bool,
}

/// How long a pod tolerates the NoExecute taints of its node.
#[derive(Debug, PartialEq, Eq)]
enum TolerationTime {
    None,
    Seconds(i64),
    Endless,
}

impl Controller for TaintEviction {
    fn name(&self) -> &'static str {
        "taint-eviction-controller"
    }

    fn queue(&self) -> &'static str {
        "noexec_taint_pod"
    }

    fn account(&self) -> &'static str {
        "node-controller"
    }

    fn resources(&self) -> Vec<Resource> {
        vec![Pod::resource().clone(), Node::resource().clone()]
    }

    fn indexes(&self, world: &mut World) {
        index_by_node(world);
    }

    fn concerns(&mut self, world: &World, change: &Change, keys: &mut Keys) {
        if change.is_of::<Pod>() {
            if self.waiting.contains_key(&change.key) || change.after().is_some_and(|pod| is_troubled(world, &pod)) {
                keys.add(change.key.clone());
            }
            return;
        }
        let taints = |side: Option<Viewed<'_, Node>>| -> Vec<Taint> {
            side.map_or_else(Vec::new, |node| unbearable(&node).cloned().collect())
        };
        if taints(change.before()) != taints(change.after()) {
            pods_on(world, &change.key.name).for_each(|pod| keys.add(pod.object.key()));
        }
    }

    fn plan(&mut self, world: &World, key: &Key, stamp: Stamp) -> Plan {
        let mut plan = Plan::default();
        let Some(pod) = world.get::<Pod>(key) else {
            plan.events.extend(self.cancel(key, ""));
            return plan;
        };
        let meta = pod.meta();
        if self.waiting.get(key).is_some_and(|waiting| waiting.uid != meta.uid) {
            plan.events.extend(self.cancel(key, ""));
        }
        if is_marked(pod) {
            self.waiting.remove(key);
            return plan;
        }
        let node = world.get::<Node>(&Key::cluster(&pod.spec.node_name)).filter(|_| !pod.spec.node_name.is_empty());
        match node.map(|node| patience(&pod, &node)) {
            // If the pod's node is deleted, the pod's deadline stays as it is.
            None => {}
            Some(TolerationTime::Endless) => plan.events.extend(self.cancel(key, &meta.resource_version)),
            Some(TolerationTime::None) => {
                plan.events.extend(self.cancel(key, &meta.resource_version));
                mark(pod, stamp.time, &mut plan);
                return plan;
            }
            Some(TolerationTime::Seconds(seconds)) => {
                let until = stamp.time.plus_seconds(seconds);
                let waiting = || EvictionDeadline { uid: meta.uid.clone(), until, is_over: false };
                self.waiting.entry(key.clone()).or_insert_with(waiting);
            }
        }
        match self.waiting.get_mut(key) {
            Some(waiting) if waiting.until > stamp.time => plan.requeue_at(waiting.until),
            Some(waiting) => {
                // The entry stays until the pod shows that it is being deleted. If the deletion is refused, the next
                // plan repeats it without a new deadline.
                waiting.is_over = true;
                mark(pod, stamp.time, &mut plan);
            }
            None => {}
        }
        plan
    }
}

impl TaintEviction {
    /// Removes the deadline of a pod. Returns the Event that reports the cancelled deletion, if the pod had a deadline
    /// and its deletion was not requested yet.
    fn cancel(&mut self, key: &Key, version: &str) -> Option<PlannedEvent> {
        let waiting = self.waiting.remove(key).filter(|waiting| !waiting.is_over)?;
        Some(cancelled(key, &waiting.uid, version))
    }
}

/// Sets the condition `DisruptionTarget` on the pod, and deletes the pod.
fn mark(pod: Viewed<'_, Pod>, now: Time, plan: &mut Plan) {
    plan.together(pod_status(pod, now, None, Some(DISRUPTION)));
    let told = Subject::from(pod).normal(REASON, format!("Marking for deletion Pod {}", pod.object.key()));
    plan.then(Subject::from(pod).delete().with_event(told));
}

/// Whether the pod is already being deleted because of its node's taints.
fn is_marked(pod: Viewed<'_, Pod>) -> bool {
    let said = Condition::find(&pod.view.status.conditions, "DisruptionTarget");
    pod.meta().is_deleting() && said.is_some_and(|said| said.status == "True" && said.reason == DISRUPTION.0)
}

fn cancelled(key: &Key, uid: &str, version: &str) -> PlannedEvent {
    PlannedEvent {
        resource: Pod::resource().clone(),
        key: key.clone(),
        uid: uid.into(),
        version: version.into(),
        warning: false,
        reason: REASON,
        message: format!("Cancelling deletion of Pod {key}"),
        part: String::new(),
        host: String::new(),
    }
}

fn unbearable(node: &Node) -> impl Iterator<Item = &Taint> {
    node.spec.taints.iter().filter(|taint| taint.effect == NO_EXECUTE)
}

/// Whether the pod's node has NoExecute taints.
fn is_troubled(world: &World, pod: &Pod) -> bool {
    let node = world.get::<Node>(&Key::cluster(&pod.spec.node_name));
    node.is_some_and(|node| unbearable(&node).next().is_some())
}

/// How long the pod tolerates all NoExecute taints of the node: the shortest of the times in the matching tolerations.
fn patience(pod: &Pod, node: &Node) -> TolerationTime {
    if planted(Bug::SilenceIsBorne) {
        return TolerationTime::Endless;
    }
    let mut shortest: Option<i64> = None;
    for taint in unbearable(node) {
        let Some(toleration) = pod.spec.tolerations.iter().find(|toleration| toleration.tolerates(taint)) else {
            return TolerationTime::None;
        };
        if let Some(seconds) = toleration.toleration_seconds {
            shortest = Some(shortest.map_or(seconds, |known| known.min(seconds)));
        }
    }
    match shortest {
        None => TolerationTime::Endless,
        Some(seconds) if seconds <= 0 => TolerationTime::None,
        Some(seconds) => TolerationTime::Seconds(seconds),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_value::{Value, json};
    use holdfast_world::Trial;

    fn trial(tolerations: Value) -> Trial {
        let mut trial = Trial::new().with(TaintEviction::default());
        trial.create(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}));
        trial.create(json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "p", "finalizers": ["example.com/hold"]},
            "spec": {"nodeName": "n", "tolerations": tolerations, "containers": [{"name": "c", "image": "i"}]}}));
        trial.run();
        trial
    }

    fn taint(trial: &mut Trial, taints: &[(&str, &str)]) {
        let taints: Vec<Value> =
            taints.iter().map(|(key, effect)| json!({"key": key, "value": "v", "effect": effect})).collect();
        trial.patch("nodes", "n", json!({"spec": {"taints": taints}}));
        trial.run();
    }

    fn is_evicted(trial: &Trial) -> bool {
        !trial.get("pods", "p")["metadata"]["deletionTimestamp"].is_null()
    }

    #[test]
    fn a_pod_that_does_not_tolerate_goes_at_once() {
        let mut trial = trial(json!([]));
        taint(&mut trial, &[("k", "NoSchedule")]);
        assert!(!is_evicted(&trial));
        taint(&mut trial, &[("k", "NoExecute")]);
        assert!(is_evicted(&trial));
        let pod = trial.get("pods", "p");
        let conditions = pod["status"]["conditions"].as_array().expect("conditions").clone();
        let disrupted = conditions.iter().find(|one| one["type"] == "DisruptionTarget").expect("it is said why");
        assert_eq!((&disrupted["reason"], &disrupted["message"]), (&json!(DISRUPTION.0), &json!(DISRUPTION.1)));
        assert_eq!(trial.take_event_texts(), ["Normal TaintManagerEviction Marking for deletion Pod default/p"]);
    }

    #[test]
    fn a_toleration_may_be_for_a_time() {
        let seconds = |key: &str, seconds: i64| json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds});
        let mut trial = trial(json!([seconds("k", 40), seconds("l", 20), {"key": "m", "operator": "Exists"}]));
        taint(&mut trial, &[("k", "NoExecute"), ("m", "NoExecute")]);
        trial.run_for(30);
        assert!(!is_evicted(&trial));
        taint(&mut trial, &[("m", "NoExecute")]);
        assert_eq!(trial.take_event_texts(), ["Normal TaintManagerEviction Cancelling deletion of Pod default/p"]);
        trial.run_for(100);
        assert!(!is_evicted(&trial));
        taint(&mut trial, &[("k", "NoExecute"), ("l", "NoExecute")]);
        trial.run_for(19);
        assert!(!is_evicted(&trial));
        trial.run_for(1);
        assert!(is_evicted(&trial));
    }

    #[test]
    fn a_pod_that_goes_by_itself_is_no_longer_waited_for() {
        let mut trial = trial(json!([{"operator": "Exists", "tolerationSeconds": 5, "effect": "NoExecute"}]));
        taint(&mut trial, &[("k", "NoExecute")]);
        trial.patch("pods", "p", json!({"metadata": {"finalizers": null}}));
        trial.delete_as("pods", "p", None, Some(0));
        trial.run_for(10);
        assert_eq!(trial.take_event_texts(), ["Normal TaintManagerEviction Cancelling deletion of Pod default/p"]);
    }

    #[test]
    fn a_pod_that_is_gone_at_its_time_is_told_of_once() {
        let mut trial = trial(json!([{"operator": "Exists"}]));
        trial.create(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "q"}, "spec": {
            "nodeName": "n", "terminationGracePeriodSeconds": 0, "containers": [{"name": "c", "image": "i"}],
            "tolerations": [{"operator": "Exists", "tolerationSeconds": 2, "effect": "NoExecute"}]}}));
        taint(&mut trial, &[("k", "NoExecute")]);
        trial.run_for(2);
        assert_eq!(trial.names("pods"), ["p"]);
        assert_eq!(trial.take_event_texts(), ["Normal TaintManagerEviction Marking for deletion Pod default/q"]);
    }

    #[test]
    fn a_taint_that_comes_on_top_ends_the_time_and_both_are_told() {
        let mut trial =
            trial(json!([{"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}]));
        taint(&mut trial, &[("k", "NoExecute")]);
        taint(&mut trial, &[("k", "NoExecute"), ("l", "NoExecute")]);
        assert!(is_evicted(&trial));
        assert_eq!(
            trial.take_event_texts(),
            [
                "Normal TaintManagerEviction Cancelling deletion of Pod default/p",
                "Normal TaintManagerEviction Marking for deletion Pod default/p"
            ]
        );
        trial.patch("pods", "p", json!({"metadata": {"finalizers": null}}));
        trial.run();
        assert!(trial.take_event_texts().is_empty(), "its time was over");
    }

    #[test]
    fn a_time_that_runs_is_neither_shortened_nor_lengthened_and_outlives_the_node() {
        let mut trial = trial(json!([
            {"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60},
            {"key": "l", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 20}
        ]));
        taint(&mut trial, &[("k", "NoExecute")]);
        trial.run_for(10);
        taint(&mut trial, &[("k", "NoExecute"), ("l", "NoExecute")]);
        trial.run_for(45);
        assert!(!is_evicted(&trial));
        trial.delete("nodes", "n");
        trial.run_for(4);
        assert!(!is_evicted(&trial) && trial.take_event_texts().is_empty());
        trial.run_for(1);
        assert!(is_evicted(&trial));
    }

    #[test]
    fn a_pod_that_is_being_deleted_is_marked_too() {
        let mut trial =
            trial(json!([{"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}]));
        trial.delete("pods", "p");
        taint(&mut trial, &[("k", "NoExecute")]);
        assert!(trial.take_event_texts().is_empty());
        trial.run_for(5);
        assert_eq!(trial.take_event_texts(), ["Normal TaintManagerEviction Marking for deletion Pod default/p"]);
        let conditions = trial.get("pods", "p")["status"]["conditions"].clone();
        assert_eq!(conditions[0]["reason"], DISRUPTION.0);
    }
}
