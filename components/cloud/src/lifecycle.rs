//! Handles nodes whose instances are shut down or gone.
//!
//! While a node is ready, the controller makes no calls about the node, because its kubelet answers. While the node is
//! not ready, the controller asks the cloud about the instance every `--node-monitor-period`. The controller deletes
//! the node only after the cloud has answered twice, a period apart, that the instance does not exist, because some
//! clouds show new instances with a delay.

use crate::planted::{Bug, planted};
use crate::{NAMESPACES, Settings, cluster, is_of_provider, names};
use holdfast_controllers::subject::Subject;
use holdfast_value::{Value, json};
use holdfast_world::cloud::{CloudAnswer, CloudCall, Fault, FaultReason, NodeRef};
use holdfast_world::views::Node;
use holdfast_world::views::node::Taint;
use holdfast_world::{Action, Change, Controller, Key, Keys, Plan, Resource, Stamp, Time, View, Viewed, World};
use std::collections::BTreeMap;

pub const SHUTDOWN: &str = "node.cloudprovider.kubernetes.io/shutdown";
pub const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";

/// The controller of nodes whose instances may be gone. It plans one node per key.
pub struct Lifecycle {
    settings: Settings,
    known: BTreeMap<Key, InstanceAnswer>,
}

/// The cloud's last answer about a node's instance.
struct InstanceAnswer {
    /// The provider ID in the call to which the cloud gave this answer.
    provider_id: String,
    asked: Time,
    state: InstanceState,
    /// How many times in a row the cloud has answered that the instance does not exist.
    missed: u32,
    /// The message of the last Event about calls to the cloud.
    last_event: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum InstanceState {
    Runs,
    IsShutDown,
    Gone,
    Unknown(Fault),
}

impl Lifecycle {
    pub fn new(settings: &Settings) -> Lifecycle {
        Lifecycle { settings: settings.clone(), known: BTreeMap::new() }
    }
}

impl Controller for Lifecycle {
    fn name(&self) -> &'static str {
        names::LIFECYCLE
    }

    fn account(&self) -> &'static str {
        "node-controller"
    }

    fn manager(&self) -> &'static str {
        self.name()
    }

    fn resources(&self) -> Vec<Resource> {
        vec![Node::resource().clone(), NAMESPACES.clone()]
    }

    fn concerns(&mut self, _: &World, change: &Change, keys: &mut Keys) {
        if change.is_of::<Node>() {
            keys.add(change.key.clone());
        }
    }

    fn plan(&mut self, world: &World, key: &Key, stamp: Stamp) -> Plan {
        let mut plan = Plan::default();
        let (Some(node), Some(cluster)) = (world.get::<Node>(key), cluster(world, &self.settings)) else {
            self.known.remove(key);
            return plan;
        };
        let has_taint = node.spec.taints.iter().any(|taint| taint.key == SHUTDOWN);
        if node.is_ready() {
            self.known.remove(key);
            if has_taint {
                plan.then(with_taints(node, |taint| taint.key != SHUTDOWN, None));
            }
            return plan;
        }
        let provider_id = &node.spec.provider_id;
        if let Some(why) = self.doubt(node) {
            self.known.remove(key);
            plan.skipped.push(why);
            return plan;
        }
        let known = self.known.get_mut(key).filter(|known| known.provider_id == *provider_id);
        let due = known.as_ref().map_or(stamp.time, |known| known.asked.plus_millis(self.settings.monitor_millis));
        if stamp.time >= due {
            let node = NodeRef { name: key.name.to_string(), provider_id: provider_id.clone() };
            plan.calls.push(CloudCall::Instance { cluster, node });
            return plan;
        }
        plan.requeue_at(due);
        let Some(known) = known else { return plan };
        match &known.state {
            InstanceState::Gone if known.missed >= 2 || planted(Bug::OnceIsEnough) => {
                let message = format!("Deleting node {} because it does not exist in the cloud provider", key.name);
                plan.events.push(Subject::from(node).normal("DeletingNode", message));
                plan.then(Subject::from(node).delete());
            }
            InstanceState::IsShutDown if !has_taint => plan.then(with_taints(node, |_| true, Some(SHUTDOWN))),
            InstanceState::Unknown(fault) => {
                let message =
                    format!("Error asking cloud provider {} for its instance: {fault}", self.settings.provider);
                if known.last_event.as_ref() != Some(&message) {
                    plan.events.push(Subject::from(node).warning("CloudProviderFailed", message.clone()));
                    known.last_event = Some(message);
                }
            }
            _ => {}
        }
        plan
    }

    fn called(&mut self, key: &Key, call: &CloudCall, answer: Result<CloudAnswer, Fault>, now: Time) {
        let CloudCall::Instance { node, .. } = call else { return };
        let state = match answer {
            Ok(CloudAnswer::Instance(instance)) if instance.is_shut_down => InstanceState::IsShutDown,
            Ok(CloudAnswer::Instance(_)) => InstanceState::Runs,
            Ok(_) => InstanceState::Unknown(Fault::unavailable("the cloud answers with something else")),
            Err(fault) if fault.is(FaultReason::NotFound) => InstanceState::Gone,
            Err(_) if planted(Bug::DoubtDeletesNodes) => InstanceState::Gone,
            Err(fault) => InstanceState::Unknown(fault),
        };
        let before = self.known.remove(key).filter(|before| before.provider_id == node.provider_id);
        let missed = before.as_ref().map_or(0, |before| before.missed);
        let missed = if state == InstanceState::Gone { missed.saturating_add(1) } else { 0 };
        let told = before.and_then(|before| before.last_event);
        let known =
            InstanceAnswer { provider_id: node.provider_id.clone(), asked: now, state, missed, last_event: told };
        self.known.insert(key.clone(), known);
    }

    fn refused(&mut self, world: &World, key: &Key, refused: &[holdfast_world::Refused], _: Stamp) -> Plan {
        let mut plan = Plan::default();
        let delete = refused.iter().find(|refused| matches!(refused.action.verb, holdfast_world::Verb::Delete { .. }));
        if let (Some(delete), Some(node)) = (delete, world.get::<Node>(key)) {
            plan.events.push(Subject::from(node).warning("DeletingNodeFailed", delete.refusal.message.clone()));
        }
        plan
    }
}

impl Lifecycle {
    /// Why this controller makes no call about a node's instance; `None` if it makes calls.
    fn doubt(&self, node: Viewed<'_, Node>) -> Option<String> {
        let (name, id) = (&node.meta().name, &node.view.spec.provider_id);
        if node.meta().is_deleting() {
            return Some(format!("node {name} is being deleted"));
        }
        if id.is_empty() || node.spec.taints.iter().any(|taint| taint.key == UNINITIALIZED) {
            return Some(format!("node {name} was never seen in the cloud"));
        }
        (!is_of_provider(id, &self.settings.provider)).then(|| format!("node {name} is of another cloud: {id}"))
    }
}

/// Keeps some of a node's taints and adds one. The patch replaces the whole list, so it contains the resource version
/// of the node from which the list was read. If the node has changed since, the server refuses the patch.
pub(crate) fn with_taints(node: Viewed<'_, Node>, keep: impl Fn(&Taint) -> bool, add: Option<&str>) -> Action {
    Subject::from(node).strategic_patch(json!({
        "metadata": {"resourceVersion": node.meta().resource_version},
        "spec": {"taints": taints(node, keep, add)},
    }))
}

pub(crate) fn taints(node: Viewed<'_, Node>, keep: impl Fn(&Taint) -> bool, add: Option<&str>) -> Value {
    let kept = node.view.spec.taints.iter().filter(|taint| keep(taint)).map(|taint| {
        let mut kept = json!({"key": taint.key, "effect": taint.effect});
        if !taint.value.is_empty() {
            kept["value"] = taint.value.as_str().into();
        }
        if let Some(time) = taint.time_added {
            kept["timeAdded"] = json!(time);
        }
        kept
    });
    let taints: Vec<Value> = kept.chain(add.map(|key| json!({"key": key, "effect": "NoSchedule"}))).collect();
    match taints.is_empty() {
        true => Value::Null,
        false => taints.into(),
    }
}
