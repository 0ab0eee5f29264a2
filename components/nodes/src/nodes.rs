//! The controller that registers nodes, updates their status, and renews their leases.

use crate::node::{KWOK_NODE, SIMULATED, Template, heartbeat, host_address};
use crate::stage::About;
use crate::stages::{Script, StageDecision, StagedObject};
use crate::template::Surroundings;
use holdfast_value::{Value, json};
use holdfast_world::views::Condition;
use holdfast_world::views::Node;
use holdfast_world::{
    Action, Change, Controller, Key, Keys, Meta, Plan, PlannedEvent, Refused, Resource, Stamp, Text, Time, Verb, View,
    Viewed, World,
};
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

/// The duration of a node's lease in seconds, the same as in kubelets.
const LEASE_SECONDS: i64 = 40;
/// How often a node's lease is renewed, in milliseconds.
const RENEWAL_MS: i64 = 10_000;
/// How often the status of a node that does not change is updated, in milliseconds.
const STATUS_MS: i64 = 300_000;
/// Heartbeats that are due within this time, in milliseconds, are sent together, so that one fsync is enough for all of
/// them.
const TOGETHER_MS: i64 = 250;
const LEASES: &str = "kube-node-lease";

static LEASE: LazyLock<Resource> =
    LazyLock::new(|| Resource::new("coordination.k8s.io", "v1", "leases", "Lease", true));

/// The controller of the nodes that this process simulates.
pub struct Nodes {
    template: Arc<Template>,
    count: u32,
    beats: HashMap<Text, Heartbeat>,
    script: Script,
}

/// The state of the heartbeats of one node.
struct Heartbeat {
    registered: bool,
    /// Whether the Events of the node's start must still be written.
    is_news: bool,
    lease_due: Time,
    /// The time at which the node's status was last updated; `None` if this process has not updated it.
    status_updated: Option<Time>,
}

/// Whether a Node is simulated: this process made the Node, or a user made it and marked it as simulated.
pub fn is_simulated(meta: &Meta) -> bool {
    meta.annotation(SIMULATED) == Some("true") || meta.annotation(KWOK_NODE.0) == Some(KWOK_NODE.1)
}

impl Nodes {
    pub fn new(template: Arc<Template>, count: u32) -> Nodes {
        Nodes { template, count, beats: HashMap::new(), script: Script::new(About::new("v1", "Node")) }
    }

    /// Decides by the Stages of the kind Node what happens to a node.
    fn staged(&mut self, key: &Key, node: Viewed<Node>, stamp: Stamp) -> StageDecision {
        if self.script.is_empty() {
            return StageDecision::Nobodys;
        }
        let (meta, document) = (node.meta(), node.object.document());
        let subject =
            StagedObject { resource: Node::resource(), key: key.clone(), object: node.object, document: &document };
        let around = TemplateData { name: &meta.name, number: self.number(&meta.name), stamp };
        self.script.decide(&subject, !node.status.conditions.is_empty(), stamp, &around)
    }

    /// The number of the node with this name; `None` if the number is not below the number of nodes.
    fn number(&self, name: &str) -> Option<u32> {
        self.template.number(name).filter(|number| *number < self.count)
    }

    fn is_ours(&self, meta: &Meta) -> bool {
        let kwok = meta.annotation(KWOK_NODE.0) == Some(KWOK_NODE.1);
        kwok || (is_simulated(meta) && self.number(&meta.name).is_some())
    }

    fn lease(&mut self, world: &World, key: &Key, meta: &Meta, stamp: Stamp) -> Option<Action> {
        let beat = self.beats.get_mut(&key.name)?;
        if beat.lease_due > stamp.time {
            return None;
        }
        let place = Key::new(LEASES, &meta.name);
        let spec = json!({"holderIdentity": meta.name, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": stamp.time.micros()});
        beat.lease_due = next_beat(&meta.name, stamp.time, RENEWAL_MS);
        let verb = if world.object(&LEASE, &place).is_some() {
            Verb::MergePatch(json!({"spec": spec}))
        } else {
            Verb::Create(json!({
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                "metadata": {"name": meta.name, "namespace": LEASES, "ownerReferences": [
                    {"apiVersion": "v1", "kind": "Node", "name": meta.name, "uid": meta.uid}]},
                "spec": spec,
            }))
        };
        Some(Action::new(&LEASE, place, verb))
    }

    /// The update of a node's status; `None` if the update is not due and the status is complete.
    fn status(&mut self, node: Viewed<Node>, now: Time) -> Option<Action> {
        let (due, meta) = (self.status_due(node, now), node.meta());
        let beat = self.beats.get_mut(meta.name.as_str())?;
        if due > now {
            return None;
        }
        beat.status_updated = Some(now);
        let document = node.object.document();
        let old = &document["status"];
        let status = if is_complete(old, self.template.port) && !node.status.conditions.is_empty() {
            json!({"conditions": heartbeat(old, now)})
        } else {
            let number = self.number(&meta.name).unwrap_or_else(|| number_of_stranger(&meta.name));
            self.template.status(old, &meta.name, &host_address(number).to_string(), now)
        };
        let patch = json!({"metadata": {"uid": meta.uid}, "status": status});
        Some(Action::new(Node::resource(), node.object.key(), Verb::StrategicPatch(patch)).subresource("status"))
    }

    /// The time at which the next update of the node's status is due.
    fn status_due(&self, node: Viewed<Node>, now: Time) -> Time {
        let name = node.meta().name.as_str();
        let Some(said) = self.beats.get(name).and_then(|beat| beat.status_updated) else { return now };
        let ready = Condition::is_true(&node.status.conditions, "Ready");
        if ready { next_beat(name, said, STATUS_MS) } else { said.plus_millis(RENEWAL_MS) }
    }
}

impl Controller for Nodes {
    acts_as_kubelet!("simulated-nodes");

    fn resources(&self) -> Vec<Resource> {
        vec![Node::resource().clone(), LEASE.clone(), crate::stages::resource()]
    }

    fn begin(&mut self, _: &World, keys: &mut Keys) {
        for number in 0..self.count {
            keys.add(Key::cluster(&self.template.name(number)));
        }
    }

    fn concerns(&mut self, world: &World, change: &Change, keys: &mut Keys) {
        if self.script.apply_change(change) {
            world.all::<Node>().filter(|node| self.is_ours(node.meta())).for_each(|node| keys.add(node.object.key()));
        }
        if !change.is_of::<Node>() {
            return;
        }
        match &change.after {
            Some(node) if self.is_ours(&node.meta) => keys.add(change.key.clone()),
            Some(_) => {}
            None => {
                self.script.forget(&change.key);
                if let Some(beat) = self.beats.get_mut(&change.key.name) {
                    // If the Node was deleted and somebody created it again under its name, its heartbeats start from
                    // the beginning. This controller does not create a deleted Node again.
                    (beat.status_updated, beat.lease_due) = (None, Time::from_second(0));
                }
            }
        }
    }

    fn plan(&mut self, world: &World, key: &Key, stamp: Stamp) -> Plan {
        let mut plan = Plan::default();
        let now = stamp.time;
        let new = || Heartbeat {
            registered: false,
            is_news: false,
            lease_due: lease_due(world, &key.name, now),
            status_updated: None,
        };
        let beat = self.beats.entry(key.name.clone()).or_insert_with(new);
        let registered = std::mem::replace(&mut beat.registered, true);
        let Some(node) = world.get::<Node>(key) else {
            if let Some(number) = self.number(&key.name).filter(|_| !registered) {
                plan.then(Action::new(Node::resource(), key.clone(), Verb::Create(self.template.node(number, now))));
                if let Some(beat) = self.beats.get_mut(&key.name) {
                    (beat.status_updated, beat.is_news) = (Some(now), true);
                }
            }
            return plan;
        };
        if !self.is_ours(node.meta()) {
            return plan;
        }
        if !registered && let Some(beat) = self.beats.get_mut(&key.name) {
            beat.status_updated = last_status_update(node, now, self.template.port);
        }
        let is_news = self.beats.get_mut(&key.name).is_some_and(|beat| std::mem::take(&mut beat.is_news));
        let notes = if is_news && self.template.writes_all_events(self.count as usize) {
            registration_events(node)
        } else {
            Vec::new()
        };
        match self.staged(key, node, stamp) {
            StageDecision::Stages(staged) => plan = staged,
            StageDecision::Nobodys => {
                plan.together(self.status(node, now).into_iter().collect());
                plan.requeue_at(self.status_due(node, now));
            }
        }
        plan.events.extend(notes);
        plan.events.extend(self.script.take_events());
        plan.together(self.lease(world, key, node.meta(), stamp).into_iter().collect());
        if let Some(beat) = self.beats.get(&key.name) {
            plan.requeue_at(beat.lease_due);
        }
        plan
    }

    fn refused(&mut self, world: &World, key: &Key, refused: &[Refused], stamp: Stamp) -> Plan {
        // A refused action has not written anything, so the next plan makes it again.
        for Refused { action, refusal } in refused {
            let Some(beat) = self.beats.get_mut(&key.name) else { continue };
            if action.resource == *LEASE {
                beat.lease_due = stamp.time;
            } else if matches!(action.verb, Verb::Create(_)) {
                beat.registered = refusal.is("AlreadyExists");
            } else {
                beat.status_updated = None;
            }
        }
        let Some(node) = world.object(Node::resource(), key).filter(|_| !self.script.is_empty()) else {
            return Plan::default();
        };
        let staged: Vec<Refused> =
            refused.iter().filter(|refused| refused.action.resource != *LEASE).cloned().collect();
        if staged.is_empty() {
            Plan::default()
        } else {
            self.script.refused(key, Node::resource(), &node.meta, &staged)
        }
    }
}

/// The Events which report that a node has registered.
fn registration_events(node: Viewed<Node>) -> Vec<PlannedEvent> {
    let name = &node.meta().name;
    let states = ["NodeHasSufficientMemory", "NodeHasNoDiskPressure", "NodeHasSufficientPID", "NodeReady"];
    let states = states.map(|state| (state, format!("Node {name} status is now: {state}")));
    let told = [("Starting", "Starting kubelet.".to_owned())].into_iter().chain(states);
    let note = |(reason, message)| {
        let note = crate::stages::note(Node::resource(), node.meta(), reason, message);
        PlannedEvent { warning: false, host: name.clone(), ..note }
    };
    told.map(note).collect()
}

/// The time of a node's next heartbeat with this period. Each node has fixed times within the period, independent of
/// the start of the process, so that the heartbeats of many nodes are spread evenly.
fn next_beat(name: &str, after: Time, period_ms: i64) -> Time {
    let own = spread(name, period_ms / TOGETHER_MS) * TOGETHER_MS;
    let since = (after.millis() - own).rem_euclid(period_ms);
    after.plus_millis(period_ms - since)
}

/// The time at which this process first renews a node's lease. If an earlier process has just renewed the lease, the
/// time is when the earlier process would have renewed the lease again.
fn lease_due(world: &World, name: &str, now: Time) -> Time {
    let lease = world.object(&LEASE, &Key::new(LEASES, name)).map(|lease| lease.document());
    let renewed = lease.and_then(|lease| Time::parse(lease["spec"]["renewTime"].as_str()?));
    let due = renewed.map(|renewed| next_beat(name, renewed, RENEWAL_MS));
    due.filter(|due| *due <= now.plus_millis(RENEWAL_MS)).map_or(now, |due| due.max(now))
}

/// The time at which the status of a ready node was last updated, by this process or an earlier process.
fn last_status_update(node: Viewed<Node>, now: Time, port: u16) -> Option<Time> {
    let ready = Condition::find(&node.status.conditions, "Ready").filter(|ready| ready.status == "True")?;
    ready.last_heartbeat_time.filter(|heard| *heard <= now && is_complete(&node.object.document()["status"], port))
}

/// Whether the status contains the node's software and its port, in addition to conditions.
fn is_complete(status: &Value, port: u16) -> bool {
    status["daemonEndpoints"]["kubeletEndpoint"]["Port"] == port
        && status["nodeInfo"]["kubeletVersion"].as_str().is_some_and(|version| !version.is_empty())
}

/// A hash of the name, from 0 to `bound` - 1.
fn spread(name: &str, bound: i64) -> i64 {
    let hash = name
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    i64::try_from((hash >> 16) % u64::try_from(bound.max(1)).unwrap_or(1)).unwrap_or(0)
}

/// A number for a Node that a user made. It is greater than the numbers of this process's own nodes.
fn number_of_stranger(name: &str) -> u32 {
    crate::node::NODES_MAX + u32::try_from(spread(name, 1 << 19)).unwrap_or(0)
}

/// The data that templates of a Node's Stages can read.
struct TemplateData<'a> {
    name: &'a str,
    number: Option<u32>,
    stamp: Stamp,
}

impl Surroundings for TemplateData<'_> {
    fn now(&self) -> String {
        self.stamp.time.0.to_string()
    }

    fn start_time(&self) -> String {
        self.stamp.time.to_string()
    }

    fn node_ip(&self, _: Option<&str>) -> String {
        host_address(self.number.unwrap_or_else(|| number_of_stranger(self.name))).to_string()
    }

    fn node_name(&self) -> String {
        self.name.to_owned()
    }

    fn pod_ip(&self, _: Option<&str>, _: bool, _: &str) -> String {
        String::new()
    }

    fn chance(&self) -> u64 {
        self.stamp.seed
    }
}
