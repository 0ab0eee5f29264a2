//! The controller of pods on simulated nodes. The nodes' kubelets, or Stages instead of them, determine the statuses of
//! the pods.

use crate::addresses::Addresses;
use crate::course::Courses;
use crate::kubelet::admission::{self, NodeCapacity, PodUsage, Rejection};
use crate::kubelet::{self, Life, NodeSide, Notice};
use crate::node::Template;
use crate::nodes::is_simulated;
use crate::stage::About;
use crate::stages::{self, Script, StageDecision, StagedObject};
use crate::template::Surroundings;
use holdfast_value::Value;
use holdfast_world::views::{Node, Pod};
use holdfast_world::{
    Action, Change, Controller, Interned, Key, Keys, Object, Plan, PlannedEvent, Refused, Resource, Stamp, Text, Time,
    Verb, View, Viewed, World,
};
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Plans the pods of all simulated nodes.
pub struct Pods {
    template: Arc<Template>,
    machines: HashMap<Text, Machine>,
    /// The pods that are bound to each node, whether the node is simulated or not.
    bound: HashMap<Text, BTreeMap<Key, Bound>>,
    addresses: RefCell<Addresses>,
    script: Script,
    courses: Courses,
    /// The time up to which Events about failures of a pod's containers were written, by the pod's UID.
    events_until: HashMap<Text, Time>,
    /// The time at which this process started, which templates can read.
    began: Option<Time>,
}

/// What a node has done with one of its pods.
#[derive(Clone)]
enum Bound {
    /// The node has not admitted the pod yet.
    New,
    /// The node has admitted the pod. The pod uses these resources of the node; `None` if they are not computed yet.
    Taken(Option<Interned<PodUsage>>),
    /// The pod has ended, so it uses no resources of the node.
    Over,
}

/// The data of a node on which the statuses of its pods depend.
struct Machine {
    address: String,
    range: Option<String>,
    allocatable: Value,
    room: NodeCapacity,
}

impl Machine {
    fn of(node: &Object) -> Machine {
        let document = node.document();
        let addresses = document["status"]["addresses"].as_array().into_iter().flatten();
        let mut internal = addresses.filter(|address| address["type"] == "InternalIP");
        Machine {
            address: internal.next().and_then(|found| found["address"].as_str()).unwrap_or_default().to_owned(),
            range: document["spec"]["podCIDR"].as_str().map(str::to_owned),
            allocatable: document["status"]["allocatable"].clone(),
            room: NodeCapacity::of(&document),
        }
    }
}

impl Pods {
    pub fn new(template: Arc<Template>) -> Pods {
        Pods {
            template,
            machines: HashMap::new(),
            bound: HashMap::new(),
            addresses: RefCell::default(),
            script: Script::new(About::new("v1", "Pod")),
            courses: Courses::default(),
            events_until: HashMap::new(),
            began: None,
        }
    }

    /// Whether the pod needs no work at any time, whichever node it is on.
    fn is_at_rest(&self, pod: Viewed<Pod>) -> bool {
        let is_over = pod.is_finished() && !pod.meta().is_deleting();
        self.script.is_empty() && (is_over || kubelet::is_settled(pod, &self.template.pods))
    }

    fn node_changed(&mut self, world: &World, change: &Change, keys: &mut Keys) {
        let name = &change.key.name;
        let known = self.machines.remove(name);
        let Some(node) = change.after.as_ref().filter(|node| is_simulated(&node.meta)) else { return };
        let machine = Machine::of(node);
        let news =
            known.is_none_or(|known| known.address != machine.address || known.allocatable != machine.allocatable);
        self.machines.insert(name.clone(), machine);
        if news {
            let bound = self.bound.get(name).into_iter().flat_map(BTreeMap::keys);
            let restless = bound.filter(|key| world.get::<Pod>(key).is_some_and(|pod| !self.is_at_rest(pod)));
            restless.for_each(|key| keys.add(key.clone()));
        }
    }

    fn pod_changed(&mut self, change: &Change, keys: &mut Keys) {
        if let Some(before) = change.before::<Pod>() {
            let gone = change.after.as_ref().is_none_or(|after| after.meta.uid != before.meta().uid);
            if gone {
                self.addresses.get_mut().forget(&before.status.pod_ip, &before.meta().uid);
                self.script.forget(&change.key);
                self.events_until.remove(before.meta().uid.as_str());
                let node: Text = before.spec.node_name.as_str().into();
                if let Some(bound) = self.bound.get_mut(&node) {
                    bound.remove(&change.key);
                    if bound.is_empty() {
                        self.bound.remove(&node);
                    }
                }
            }
        }
        let Some(pod) = change.after::<Pod>().filter(|pod| !pod.spec.node_name.is_empty()) else { return };
        if pod.is_finished() {
            self.addresses.get_mut().forget(&pod.status.pod_ip, &pod.meta().uid);
        } else if !pod.status.pod_ip.is_empty() {
            self.addresses.get_mut().record(&pod.status.pod_ip, &pod.meta().uid);
        }
        let node: Text = pod.spec.node_name.as_str().into();
        if self.machines.contains_key(&node) && !self.is_at_rest(pod) {
            keys.add(change.key.clone());
        }
        let resized = change.before::<Pod>().is_some_and(|before| before.meta().generation != pod.meta().generation);
        let bound = self.bound.entry(node).or_default().entry(change.key.clone()).or_insert(Bound::New);
        // A pod that has a start time was already admitted, maybe by an earlier process. If the pod was resized, its
        // resources are computed again.
        *bound = match std::mem::replace(bound, Bound::New) {
            _ if pod.is_finished() => Bound::Over,
            Bound::Taken(_) if resized => Bound::Taken(None),
            Bound::New if pod.status.start_time.is_some() => Bound::Taken(None),
            known => known,
        };
    }

    /// Admits a new pod to its node, or returns why the node rejects it. From then on, an admitted pod counts as one of
    /// the node's pods.
    fn admit(&mut self, world: &World, pod: &Value, key: &Key, node: &str) -> Option<Rejection> {
        let Pods { machines, bound, .. } = self;
        let (machine, bound) = (machines.get(node)?, bound.get_mut(node)?);
        if !matches!(bound.get(key), Some(Bound::New)) {
            return None;
        }
        let known = |(key, bound): (&Key, &mut Bound)| {
            let Bound::Taken(taken) = bound else { return None };
            let document = || world.object(Pod::resource(), key).map(|pod| pod.document()).unwrap_or_default();
            Some(taken.get_or_insert_with(|| PodUsage::by(&document())).clone())
        };
        let others: Vec<Interned<PodUsage>> = bound.iter_mut().filter_map(known).collect();
        let wanted = PodUsage::by(pod);
        let rejection = machine.room.rejects(pod, &wanted, &others);
        if rejection.is_none() {
            bound.insert(key.clone(), Bound::Taken(Some(wanted)));
        }
        rejection
    }

    /// The plan that a simulated kubelet makes for a pod.
    fn live(&self, pod: &Value, machine: &Machine, seen: &StagedObject, stamp: Stamp) -> Plan {
        let uid = &seen.object.meta.uid;
        let place = NodeSide {
            host_ip: &machine.address,
            allocatable: &machine.allocatable,
            told: &self.template.pods,
            tells_all: self.template.writes_all_events(self.machines.len()),
            courses: &self.courses,
            // An earlier process has reported the failures that happened before this process began. Times in statuses
            // have whole seconds, so a container that this process starts may seem to have started up to a second
            // before the process.
            told_until: match (self.events_until.get(uid.as_str()), self.began) {
                (Some(until), _) => *until,
                (None, Some(began)) => began.plus_millis(-1000),
                (None, None) => stamp.time,
            },
        };
        let mut address = || self.addresses.borrow_mut().hand_out(machine.range.as_deref(), uid);
        let Life { status, gone, again, notices } = kubelet::live(pod, &place, stamp.time, &mut address);
        let mut plan = Plan { requeue_at: again, ..Plan::default() };
        if let Some(patch) = status {
            plan.then(Action::new(seen.resource, seen.key.clone(), Verb::StrategicPatch(patch)).subresource("status"));
        }
        if gone {
            let uid = Some(uid.as_str().into());
            let verb = Verb::Delete { uid, version: None, propagation: None, grace_seconds: Some(0) };
            plan.then(Action::new(seen.resource, seen.key.clone(), verb));
        }
        let host = pod["spec"]["nodeName"].as_str().unwrap_or_default();
        let note = |Notice { warning, reason, message, part }| PlannedEvent {
            part,
            host: host.to_owned(),
            ..seen.note(warning, reason, message)
        };
        plan.events = notices.into_iter().map(note).collect();
        plan
    }
}

impl Controller for Pods {
    acts_as_kubelet!("simulated-pods");

    fn resources(&self) -> Vec<Resource> {
        vec![Node::resource().clone(), Pod::resource().clone(), crate::stages::resource()]
    }

    fn concerns(&mut self, world: &World, change: &Change, keys: &mut Keys) {
        if self.script.apply_change(change) {
            let ours = self.bound.iter().filter(|(node, _)| self.machines.contains_key(*node));
            ours.flat_map(|(_, bound)| bound.keys()).for_each(|key| keys.add(key.clone()));
        } else if change.is_of::<Node>() {
            self.node_changed(world, change, keys);
        } else if change.is_of::<Pod>() {
            self.pod_changed(change, keys);
        }
    }

    fn plan(&mut self, world: &World, key: &Key, stamp: Stamp) -> Plan {
        let mut plan = self.planned(world, key, stamp);
        plan.events.extend(self.script.take_events());
        plan
    }

    fn refused(&mut self, world: &World, key: &Key, refused: &[Refused], _: Stamp) -> Plan {
        match world.object(Pod::resource(), key) {
            Some(pod) => self.script.refused(key, Pod::resource(), &pod.meta, refused),
            None => Plan::default(),
        }
    }
}

impl Pods {
    /// Plans a pod's next step, by Stages or by its kubelet.
    fn planned(&mut self, world: &World, key: &Key, stamp: Stamp) -> Plan {
        let began = *self.began.get_or_insert(stamp.time);
        let Some(pod) = world.get::<Pod>(key) else { return Plan::default() };
        let node = pod.spec.node_name.as_str();
        if !self.machines.contains_key(node) || self.is_at_rest(pod) {
            return Plan::default();
        }
        let deleting = pod.meta().is_deleting();
        let document = pod.object.document();
        let seen =
            StagedObject { resource: Pod::resource(), key: key.clone(), object: pod.object, document: &document };
        let around = TemplateData {
            machines: &self.machines,
            addresses: &self.addresses,
            node: &pod.spec.node_name,
            uid: &pod.meta().uid,
            known: &pod.status.pod_ip,
            began,
            stamp,
        };
        match self.script.decide(&seen, pod.status.start_time.is_some(), stamp, &around) {
            // If no Stage ends a pod that is being deleted, the kubelet ends it.
            StageDecision::Stages(plan) if !deleting || !plan.is_empty() || plan.requeue_at.is_some() => return plan,
            _ => {}
        }
        if !deleting && let Some(rejection) = self.admit(world, &document, key, node) {
            return reject(&seen, &rejection, stamp);
        }
        match self.machines.get(node) {
            Some(machine) => {
                let plan = self.live(&document, machine, &seen, stamp);
                if !plan.events.is_empty() {
                    self.events_until.insert(seen.object.meta.uid.as_str().into(), stamp.time);
                }
                plan
            }
            None => Plan::default(),
        }
    }
}

/// Sets a pod that its node has rejected to the phase Failed, and writes an Event.
fn reject(seen: &StagedObject, rejection: &Rejection, stamp: Stamp) -> Plan {
    let Rejection { reason, message } = rejection;
    let host = seen.document["spec"]["nodeName"].as_str().unwrap_or_default();
    let patch = Verb::StrategicPatch(admission::rejected(seen.document, rejection, stamp.time));
    let mut plan = Plan::default();
    plan.then(Action::new(seen.resource, seen.key.clone(), patch).subresource("status"));
    plan.then(stages::event(seen, host, true, reason, message, stamp, 0));
    plan
}

/// The data that templates of a Pod's Stages can read.
struct TemplateData<'a> {
    machines: &'a HashMap<Text, Machine>,
    addresses: &'a RefCell<Addresses>,
    node: &'a str,
    uid: &'a str,
    known: &'a str,
    began: Time,
    stamp: Stamp,
}

impl Surroundings for TemplateData<'_> {
    fn now(&self) -> String {
        self.stamp.time.0.to_string()
    }

    fn start_time(&self) -> String {
        self.began.to_string()
    }

    fn node_ip(&self, node: Option<&str>) -> String {
        self.machines.get(node.unwrap_or(self.node)).map_or_else(String::new, |machine| machine.address.clone())
    }

    fn node_name(&self) -> String {
        self.node.to_owned()
    }

    fn pod_ip(&self, node: Option<&str>, host_network: bool, _: &str) -> String {
        let node = node.unwrap_or(self.node);
        if host_network {
            return self.node_ip(Some(node));
        }
        if !self.known.is_empty() {
            return self.known.to_owned();
        }
        let range = self.machines.get(node).and_then(|machine| machine.range.as_deref());
        self.addresses.borrow_mut().hand_out(range, self.uid)
    }

    fn chance(&self) -> u64 {
        self.stamp.seed
    }
}
