//! Nodes that register, say how they are, and renew their leases.

use crate::node::{KWOK_NODE, SIMULATED, Template, heartbeat, host_address};
use crate::stages::{Script, Subject, Turn};
use crate::template::Surroundings;
use holdfast_world::views::Node;
use holdfast_world::{Action, Change, Controller, Key, Keys, Meta, Plan, Refused, Resource, Stamp, Text, Time, Verb, View, World};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

/// How long a lease counts, and after how long it is renewed, as kubelets do.
const LEASE_SECONDS: i64 = 40;
const RENEWAL_MS: i64 = 10_000;
/// How often a node says how it is though nothing changed.
const STATUS_MS: i64 = 300_000;
const LEASES: &str = "kube-node-lease";

static LEASE: LazyLock<Resource> =
    LazyLock::new(|| Resource::new("coordination.k8s.io", "v1", "leases", "Lease", true));

/// The nodes of one process.
pub struct Nodes {
    template: Arc<Template>,
    count: u32,
    beats: HashMap<Text, Beat>,
    script: Script,
}

/// What is known of one node's signs of life.
struct Beat {
    registered: bool,
    leased: bool,
    lease_due: Time,
    status_due: Time,
}

/// Whether a Node stands for a simulated one: made here, or by others who ask for it.
pub fn is_simulated(meta: &Meta) -> bool {
    meta.annotation(SIMULATED) == Some("true") || meta.annotation(KWOK_NODE.0) == Some(KWOK_NODE.1)
}

impl Nodes {
    pub fn new(template: Arc<Template>, count: u32) -> Nodes {
        Nodes { template, count, beats: HashMap::new(), script: Script::new("Node") }
    }

    /// The number of a node that is to be there.
    fn number(&self, name: &str) -> Option<u32> {
        self.template.number(name).filter(|number| *number < self.count)
    }

    fn is_ours(&self, meta: &Meta) -> bool {
        let kwok = meta.annotation(KWOK_NODE.0) == Some(KWOK_NODE.1);
        kwok || (is_simulated(meta) && self.number(&meta.name).is_some())
    }

    fn lease(&mut self, key: &Key, meta: &Meta, stamp: Stamp) -> Option<Action> {
        let beat = self.beats.get_mut(&key.name)?;
        if beat.lease_due > stamp.time {
            return None;
        }
        // The first renewals are spread, so that those of many nodes do not come together for ever.
        let period = if beat.leased { RENEWAL_MS - spread(&meta.name, 400) } else { RENEWAL_MS - spread(&meta.name, RENEWAL_MS - 1) };
        beat.lease_due = stamp.time.plus_millis(period);
        let spec = json!({"holderIdentity": meta.name, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": stamp.time.micros()});
        let verb = if beat.leased {
            Verb::MergePatch(json!({"spec": spec}))
        } else {
            Verb::Create(json!({
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                "metadata": {"name": meta.name, "namespace": LEASES, "ownerReferences": [
                    {"apiVersion": "v1", "kind": "Node", "name": meta.name, "uid": meta.uid}]},
                "spec": spec,
            }))
        };
        beat.leased = true;
        Some(Action::new(&LEASE, Key::new(LEASES, &meta.name), verb))
    }

    /// What the node says of itself, where it is time to or something lacks.
    fn status(&mut self, key: &Key, meta: &Meta, document: &dyn Fn() -> Value, now: Time) -> Option<Action> {
        let beat = self.beats.get_mut(&key.name)?;
        if beat.status_due > now {
            return None;
        }
        beat.status_due = now.plus_millis(STATUS_MS - spread(&meta.name, 10_000));
        let node = document();
        let old = &node["status"];
        let complete = old["nodeInfo"]["kubeletVersion"].as_str().is_some_and(|version| !version.is_empty())
            && old["conditions"].as_array().is_some_and(|conditions| !conditions.is_empty());
        let status = if complete {
            json!({"conditions": heartbeat(old, now)})
        } else {
            let number = self.number(&meta.name).unwrap_or_else(|| number_of_stranger(&meta.name));
            self.template.status(old, &meta.name, &host_address(number).to_string(), now)
        };
        let patch = json!({"metadata": {"uid": meta.uid}, "status": status});
        Some(Action::new(Node::resource(), key.clone(), Verb::StrategicPatch(patch)).subresource("status"))
    }
}

impl Controller for Nodes {
    fn name(&self) -> &'static str {
        "simulated-nodes"
    }

    fn account(&self) -> &'static str {
        crate::ACCOUNT
    }

    fn manager(&self) -> &'static str {
        crate::MANAGER
    }

    fn component(&self) -> &'static str {
        crate::MANAGER
    }

    fn resources(&self) -> Vec<Resource> {
        vec![Node::resource().clone(), crate::stages::resource()]
    }

    fn begin(&mut self, _: &World, keys: &mut Keys) {
        for number in 0..self.count {
            keys.add(Key::cluster(&self.template.name(number)));
        }
    }

    fn concerns(&mut self, world: &World, change: &Change, keys: &mut Keys) {
        if self.script.learn(change) {
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
                    // Its lease goes with it; a node that was deleted does not come back by itself.
                    beat.leased = false;
                }
            }
        }
    }

    fn plan(&mut self, world: &World, key: &Key, stamp: Stamp) -> Plan {
        let mut plan = Plan::default();
        let now = stamp.time;
        let beat = self.beats.entry(key.name.clone()).or_insert(Beat {
            registered: false,
            leased: false,
            lease_due: now,
            status_due: now,
        });
        let Some(node) = world.get::<Node>(key) else {
            if !std::mem::replace(&mut beat.registered, true)
                && let Some(number) = self.number(&key.name)
            {
                plan.then(Action::new(Node::resource(), Key::cluster(&key.name), Verb::Create(self.template.node(number, now))));
                if let Some(beat) = self.beats.get_mut(&key.name) {
                    beat.status_due = now.plus_millis(STATUS_MS - spread(&key.name, 10_000));
                }
            }
            return plan;
        };
        beat.registered = true;
        let meta = node.meta();
        if !self.is_ours(meta) {
            return plan;
        }
        if !self.script.is_empty() {
            let document = node.object.document();
            let subject = Subject { resource: Node::resource(), key: key.clone(), object: node.object, document: &document };
            let begun = document["status"]["nodeInfo"]["kubeletVersion"].as_str().is_some_and(|version| !version.is_empty());
            let around = Around { name: &meta.name, number: self.number(&meta.name), stamp };
            if let Turn::Stages(staged) = self.script.turn(&subject, begun, stamp, &around) {
                plan = staged;
                plan.together(self.lease(key, meta, stamp).into_iter().collect());
                if let Some(beat) = self.beats.get(&key.name) {
                    plan.again_at(beat.lease_due);
                }
                return plan;
            }
        }
        let status = self.status(key, meta, &|| node.object.document(), now);
        plan.together(status.into_iter().chain(self.lease(key, meta, stamp)).collect());
        if let Some(beat) = self.beats.get(&key.name) {
            plan.again_at(beat.lease_due.min(beat.status_due));
        }
        plan
    }

    fn refused(&mut self, _: &World, key: &Key, refused: &[Refused], stamp: Stamp) -> Plan {
        for Refused { action, refusal } in refused {
            let Some(beat) = self.beats.get_mut(&key.name) else { continue };
            if action.resource == *LEASE {
                beat.leased = refusal.is("AlreadyExists");
                beat.lease_due = stamp.time;
            } else if matches!(action.verb, Verb::Create(_)) {
                beat.registered = refusal.is("AlreadyExists");
            } else {
                beat.status_due = stamp.time;
            }
        }
        Plan::default()
    }
}

/// A number below `bound` that differs from name to name.
fn spread(name: &str, bound: i64) -> i64 {
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    i64::try_from((hash >> 16) % u64::try_from(bound.max(1)).unwrap_or(1)).unwrap_or(0)
}

/// For nodes that others made: beyond the numbers of ours.
fn number_of_stranger(name: &str) -> u32 {
    crate::node::NODES_MAX + u32::try_from(spread(name, 1 << 19)).unwrap_or(0)
}

/// What templates of a Node's stages may ask.
struct Around<'a> {
    name: &'a str,
    number: Option<u32>,
    stamp: Stamp,
}

impl Surroundings for Around<'_> {
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
