//! Detects lost nodes, and keeps the taints of nodes in line with their conditions.
//!
//! A node counts as healthy while its lease is renewed or its Ready condition gets new heartbeats. Deadlines count from
//! the time at which this controller received the last renewal or heartbeat. If neither arrives before the deadline,
//! the node's conditions become Unknown, and its pods become not ready. NoSchedule taints follow the conditions at
//! once; NoExecute taints, which evict pods, are added slowly, zone by zone.

mod conditions;
mod taints;
mod zones;

#[cfg(test)]
mod tests;

use crate::Settings;
use crate::planted::{Bug, planted};
use crate::pod_gc::{index_by_node, pods_on};
use crate::settings::NodeSettings;
use crate::subject::Subject;
use holdfast_value::{Map, Value, json};
use holdfast_world::views::Condition;
use holdfast_world::views::{Lease, Node, Pod};
use holdfast_world::{
    Action, Change, Controller, Key, Keys, Plan, PlannedEvent, Resource, Stamp, Time, View, Viewed, World,
};
use std::collections::BTreeMap;
use zones::Zones;

const LEASES: &str = "kube-node-lease";
/// Labels that nodes also have under an older name: the present name and the older name.
const MIRRORED: [(&str, &str); 2] =
    [("kubernetes.io/arch", "beta.kubernetes.io/arch"), ("kubernetes.io/os", "beta.kubernetes.io/os")];

/// Each plan is for one node.
pub struct NodeLifecycle {
    settings: NodeSettings,
    health: BTreeMap<Key, Health>,
    zones: Zones,
}

/// What this controller knows about the health of one node.
struct Health {
    uid: String,
    /// The wait for the node's next heartbeat or lease renewal counts from this time.
    seen: Time,
    /// The time at which a renewal of the node's lease was last received.
    renewed: Option<Time>,
    /// Whether the Event that the node was registered has been written.
    told: bool,
}

impl Health {
    fn of(node: Viewed<'_, Node>) -> Health {
        Health { uid: node.meta().uid.clone(), seen: node.object.received_at, renewed: None, told: false }
    }
}

impl NodeLifecycle {
    pub fn new(settings: &Settings) -> NodeLifecycle {
        let settings = settings.nodes.clone();
        NodeLifecycle { zones: Zones::new(settings.clone()), settings, health: BTreeMap::new() }
    }
}

impl Controller for NodeLifecycle {
    fn name(&self) -> &'static str {
        "node-lifecycle-controller"
    }

    fn queue(&self) -> &'static str {
        "node_lifecycle_controller"
    }

    fn account(&self) -> &'static str {
        "node-controller"
    }

    fn component(&self) -> &'static str {
        "node-controller"
    }

    fn resources(&self) -> Vec<Resource> {
        vec![Node::resource().clone(), Pod::resource().clone(), Lease::resource().clone()]
    }

    fn indexes(&self, world: &mut World) {
        index_by_node(world);
    }

    fn concerns(&mut self, world: &World, change: &Change, keys: &mut Keys) {
        if change.is_of::<Lease>() {
            return self.see_lease(change);
        }
        if !change.is_of::<Node>() {
            return;
        }
        keys.add(change.key.clone());
        let before = change.before::<Node>();
        if let Some(node) = change.after::<Node>() {
            let alive = before.is_none_or(|before| before.meta().uid != node.meta().uid)
                || before.and_then(heartbeat) != heartbeat(node);
            let health = self.health.entry(change.key.clone()).or_insert_with(|| Health::of(node));
            if alive {
                health.seen = health.seen.max(node.object.received_at);
            }
            if health.uid != node.meta().uid {
                *health = Health::of(node);
            }
        }
        let effect = self.zones.update_node(&change.key.name, change.after::<Node>());
        if let zones::Effect::Recovered = effect
            && let Some(now) = change.newest().map(|node| node.received_at)
        {
            // While this controller was cut off from all nodes, it could not know which nodes were healthy, so all
            // waits start again.
            self.health.values_mut().for_each(|health| health.seen = health.seen.max(now));
        }
        if effect != zones::Effect::None {
            world.all::<Node>().for_each(|node| keys.add(node.object.key()));
        }
    }

    fn plan(&mut self, world: &World, key: &Key, stamp: Stamp) -> Plan {
        let mut plan = Plan::default();
        let Some(node) = world.get::<Node>(key) else {
            self.zones.forget(&key.name);
            plan.events.extend(self.health.remove(key).map(|health| removed(key, &health.uid)));
            return plan;
        };
        let Some(health) = self.health.get_mut(key) else { return plan };
        if !std::mem::replace(&mut health.told, true) {
            let message = format!("Node {0} event: Registered Node {0} in Controller", key.name);
            plan.events.push(Subject::from(node).normal("RegisteredNode", message));
        }
        let deadline = self.deadline(node, key);
        if deadline > stamp.time {
            plan.requeue_at(deadline);
        } else if let Some(action) = conditions::unknown(node, stamp.time) {
            let was_ready = Condition::is_true(&node.status.conditions, "Ready");
            let message = format!("Node {} status is now: NodeNotReady", key.name);
            let note = was_ready.then(|| Subject::from(node).normal("NodeNotReady", message));
            plan.then(Action { event: note, ..action });
            if was_ready {
                plan.together(pods_on(world, &key.name).filter_map(|pod| not_ready(pod, stamp.time)).collect());
            }
            return plan;
        }
        let mut patch = Map::new();
        let labels = mirrored_labels(node);
        if !labels.is_empty() {
            patch.insert("metadata", json!({"labels": labels}));
        }
        let desired = taints::desired(node, stamp.time, &mut self.zones, &mut plan);
        if let Some(taints) = desired {
            patch.insert("spec", json!({"taints": taints}));
            // The patch replaces the whole list of taints, so it has the version of the node that was read as a
            // precondition.
            patch.entry("metadata").or_insert_with(|| json!({}))["resourceVersion"] =
                node.meta().resource_version.as_str().into();
        }
        if !patch.is_empty() {
            plan.then(Subject::from(node).strategic_patch(Value::Object(patch)));
        }
        plan
    }
}

impl NodeLifecycle {
    fn see_lease(&mut self, change: &Change) {
        let renewed = |side: Option<Viewed<'_, Lease>>| side.and_then(|lease| lease.spec.renew_time);
        if planted(Bug::LeasesIgnored)
            || &*change.key.namespace != LEASES
            || renewed(change.before()) == renewed(change.after())
        {
            return;
        }
        if let Some(health) = self.health.get_mut(&Key::cluster(&change.key.name))
            && let Some(lease) = &change.after
        {
            health.seen = health.seen.max(lease.received_at);
            health.renewed = Some(lease.received_at);
        }
    }

    /// The time at which a node counts as lost if no further heartbeat or renewal is received until then.
    fn deadline(&self, node: Viewed<'_, Node>, key: &Key) -> Time {
        let health = self.health.get(key);
        let seen = health.map_or(node.object.received_at, |health| health.seen);
        match Condition::find(&node.status.conditions, "Ready") {
            Some(_) => seen.plus_seconds(self.settings.monitor_grace_seconds),
            // For a node without the Ready condition the wait starts at the node's creation, and again at each renewal
            // of the node's lease.
            None => {
                let renewed = health.and_then(|health| health.renewed);
                let alive = node.meta().creation_timestamp.unwrap_or(seen).max(renewed.unwrap_or(Time::from_second(0)));
                alive.plus_seconds(self.settings.startup_grace_seconds)
            }
        }
    }
}

/// The part of the Ready condition that changes with each heartbeat of the node: its status and the heartbeat's time.
fn heartbeat(node: Viewed<'_, Node>) -> Option<(String, Option<Time>)> {
    let ready = Condition::find(&node.view.status.conditions, "Ready")?;
    // This controller itself sets the status Unknown, so that status is no heartbeat.
    (ready.status != "Unknown").then(|| (ready.status.clone(), ready.last_heartbeat_time))
}

fn removed(key: &Key, uid: &str) -> PlannedEvent {
    PlannedEvent {
        resource: Node::resource().clone(),
        key: key.clone(),
        uid: uid.into(),
        version: "".into(),
        warning: false,
        reason: "RemovingNode",
        message: format!("Node {0} event: Removing Node {0} from Controller", key.name),
        part: String::new(),
        host: String::new(),
    }
}

fn not_ready(pod: Viewed<'_, Pod>, now: Time) -> Option<Action> {
    Condition::find(&pod.status.conditions, "Ready").filter(|ready| ready.status != "False")?;
    let note = Subject::from(pod).warning("NodeNotReady", "Node is not ready".into());
    let condition = json!({"type": "Ready", "status": "False", "lastTransitionTime": now});
    let patch = json!({"status": {"conditions": [condition]}});
    Some(Subject::from(pod).strategic_patch(patch).subresource("status").with_event(note))
}

fn mirrored_labels(node: Viewed<'_, Node>) -> Map {
    let meta = node.meta();
    let mirrored = MIRRORED.iter().filter_map(|(label, older)| Some((older, meta.label(label)?)));
    mirrored
        .filter(|(older, value)| meta.label(older) != Some(value))
        .map(|(older, value)| ((*older).to_owned(), value.into()))
        .collect()
}
