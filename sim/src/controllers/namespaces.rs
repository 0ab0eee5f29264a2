//! A namespace that is created and deleted with its content. While the server deletes the content, controllers may try
//! to create new objects in it.

use super::cluster::{self, Cluster, is_leaving, text};
use super::deed::{UserRequest, workload};
use crate::oracle::{CheckResult, ensure};
use crate::random::Dice;
use holdfast_core::namespace::Emptying;
use holdfast_core::request::Request;
use holdfast_core::stamp::Stamp;
use holdfast_core::state::State;
use holdfast_value::{Value, json};
use holdfast_world::{Action, Key, Time, Verb};
use std::collections::VecDeque;

const SPACE: &str = "shop";

/// The part of the server that empties namespaces. Its requests are carried out one at a time, with other changes in
/// between.
#[derive(Default)]
pub struct Sweeper {
    emptying: Emptying,
    steps: VecDeque<Request>,
    again_ms: Option<i64>,
}

impl Sweeper {
    pub fn next(&mut self, state: &State, now: Time, seed: u64) -> Option<Request> {
        while self.steps.is_empty() && !state.terminating.is_empty() {
            let plan = self.emptying.plan(state, Stamp { time: now.0, seed });
            self.again_ms = plan.again_ms;
            self.steps.extend(plan.steps.into_iter().map(|step| step.request));
            if plan.again_ms.is_none_or(|again_ms| again_ms > now.millis()) {
                break;
            }
        }
        self.steps.pop_front()
    }

    /// The time at which the sweeper continues even if nothing is written in the meantime; `None` if there is no such
    /// time.
    pub fn next_time(&self, state: &State, now: Time) -> Option<Time> {
        let again_ms = self.again_ms.filter(|_| !state.terminating.is_empty())?;
        Some(now.plus_millis(again_ms.saturating_sub(now.millis()).max(1)))
    }
}

/// Whether an object is in the namespace that this module creates and deletes.
pub fn holds(object: &Value) -> bool {
    text(&object["metadata"]["namespace"]) == SPACE
}

/// Whether an object is in a namespace that is being deleted, so that no object can be created beside it.
pub fn is_leaving_with(cluster: &Cluster, object: &Value) -> bool {
    holds(object) && cluster.get("namespaces", &Key::cluster(SPACE)).is_some_and(is_leaving)
}

/// A request of a user to create the namespace, to create an object in it, or to delete it.
pub fn draw(cluster: &Cluster, dice: &mut Dice, number: usize, claims: bool) -> Option<UserRequest> {
    let Some(space) = cluster.get("namespaces", &Key::cluster(SPACE)) else {
        return Some(UserRequest::Create(
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}}),
        ));
    };
    let mut object = match dice.below(6) {
        0 => return (!is_leaving(space)).then(|| deletion(space)),
        1 | 2 => workload("Deployment", &format!("d{number}"), json!({"replicas": 1 + dice.below(3)}), 0),
        3 => {
            let template = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
            json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": format!("j{number}")},
                "spec": {"completions": 2, "template": template}})
        }
        4 if claims => json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": format!("v{number}")},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}),
        _ => json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("m{number}")}}),
    };
    object["metadata"]["namespace"] = SPACE.into();
    Some(UserRequest::Create(object))
}

fn deletion(space: &Value) -> UserRequest {
    let verb = Verb::Delete { uid: None, version: None, propagation: None, grace_seconds: None };
    UserRequest::Act(Box::new(Action::new(&cluster::resource("namespaces"), cluster::key(space), verb)))
}

/// The request that deletes the namespace for the last time; `None` if the namespace is already being deleted.
pub fn settle(cluster: &Cluster) -> Option<UserRequest> {
    cluster.get("namespaces", &Key::cluster(SPACE)).filter(|space| !is_leaving(space)).map(deletion)
}

/// Checks that at rest neither the namespace nor an object in it is left.
pub fn check(cluster: &Cluster) -> CheckResult {
    let left = cluster.everything().find(|(_, object)| holds(object) || cluster::name(object) == SPACE);
    ensure(left.is_none(), || {
        let left = left.map(|(plural, object)| format!("{plural} {}", cluster::key(object)));
        format!("something is left of a namespace that is gone: {}", left.unwrap_or_default())
    })
}
