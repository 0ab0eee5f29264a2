//! Node data from the cloud: provider IDs, types, zones and addresses.
//!
//! A kubelet with an external cloud provider registers its node with a taint, which keeps pods away until the data from
//! the cloud is in the node. The addresses in the node are compared with the cloud's every
//! `--node-status-update-frequency`.

use crate::lifecycle::{UNINITIALIZED, taints};
use crate::{NAMESPACES, Settings, cluster, names};
use holdfast_controllers::subject::Subject;
use holdfast_value::{Map, json};
use holdfast_world::cloud::{CloudAnswer, CloudCall, Fault, FaultReason, Instance, NodeAddress, NodeRef, Zone};
use holdfast_world::views::Node;
use holdfast_world::{
    Action, BackOff, Change, Controller, Key, Keys, Plan, Resource, Stamp, Time, Verb, View, Viewed, World,
};
use std::collections::BTreeMap;

/// The annotation that contains the kubelet's `--node-ip`: one address, or one address of each IP family.
const PROVIDED_IP: &str = "alpha.kubernetes.io/provided-node-ip";
const INSTANCE_TYPE: &str = "node.kubernetes.io/instance-type";
const ZONE: &str = "topology.kubernetes.io/zone";
const REGION: &str = "topology.kubernetes.io/region";
/// Labels of nodes, each with the deprecated label that has the same value.
const MIRRORED: [(&str, &str); 5] = [
    (ZONE, "failure-domain.beta.kubernetes.io/zone"),
    (REGION, "failure-domain.beta.kubernetes.io/region"),
    (INSTANCE_TYPE, "beta.kubernetes.io/instance-type"),
    ("kubernetes.io/os", "beta.kubernetes.io/os"),
    ("kubernetes.io/arch", "beta.kubernetes.io/arch"),
];

/// The controller that writes the cloud's data into nodes. It plans one node per key.
pub struct CloudNodes {
    settings: Settings,
    known: BTreeMap<Key, NodeAnswers>,
}

/// The cloud's last answers about a node.
#[derive(Default)]
struct NodeAnswers {
    provider_id: String,
    asked: Option<Time>,
    instance: Option<Instance>,
    zone: Option<Zone>,
    /// The failure of the last call about the node, until an Event has reported it and the key is queued again.
    failed: Option<Fault>,
}

impl CloudNodes {
    pub fn new(settings: &Settings) -> CloudNodes {
        CloudNodes { settings: settings.clone(), known: BTreeMap::new() }
    }
}

impl Controller for CloudNodes {
    fn name(&self) -> &'static str {
        names::NODE
    }

    fn account(&self) -> &'static str {
        "node-controller"
    }

    fn manager(&self) -> &'static str {
        self.name()
    }

    fn back_off(&self) -> BackOff {
        BackOff { first_ms: 100, last_ms: 300_000 }
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
        let is_new = node.spec.taints.iter().any(|taint| taint.key == UNINITIALIZED);
        let known = self.known.entry(key.clone()).or_default();
        if known.provider_id != node.spec.provider_id {
            // The answer from the time at which the node had no provider ID is kept if it is about the instance with
            // this ID.
            let same = known.instance.as_ref().is_some_and(|instance| instance.provider_id == node.spec.provider_id);
            if !same {
                *known = NodeAnswers::default();
            }
            known.provider_id = node.spec.provider_id.clone();
        }
        let next = known.asked.map(|asked| asked.plus_millis(self.settings.addresses_millis));
        if let Some(fault) = known.failed.take() {
            return self.failed(node, is_new, &fault, next);
        }
        let node_ref = || NodeRef { name: key.name.to_string(), provider_id: node.spec.provider_id.clone() };
        let is_due = next.is_none_or(|next| stamp.time >= next) || is_new && known.instance.is_none();
        if is_due {
            plan.calls.push(CloudCall::Instance { cluster, node: node_ref() });
            return plan;
        }
        next.into_iter().for_each(|next| plan.requeue_at(next));
        // The cloud has no instance for the node, so only the deprecated labels are updated.
        let Some(instance) = &known.instance else {
            plan.together(labelled(node, Map::new()).into_iter().collect());
            return plan;
        };
        if instance.zone == Zone::default() && known.zone.is_none() && is_new {
            plan.calls.push(CloudCall::Zone { cluster, node: node_ref() });
            return plan;
        }
        let addresses = match addresses(node, instance) {
            Ok(addresses) => addresses,
            Err(why) => {
                let fault = Fault::new(FaultReason::Invalid, why);
                return self.failed(node, is_new, &fault, next);
            }
        };
        if is_new {
            let zone = known.zone.as_ref().unwrap_or(&instance.zone);
            plan.then(initialized(node, instance, zone));
        } else {
            plan.together(labelled(node, Map::new()).into_iter().collect());
        }
        plan.together(addressed(node, &addresses).into_iter().collect());
        if is_new && let Some(last) = plan.steps.last_mut().and_then(|step| step.last_mut()) {
            last.event = Some(Subject::from(node).normal("Synced", "Node synced successfully".into()));
        }
        plan
    }

    fn called(&mut self, key: &Key, call: &CloudCall, answer: Result<CloudAnswer, Fault>, now: Time) {
        let Some(known) = self.known.get_mut(key) else { return };
        match (call, answer) {
            (CloudCall::Instance { .. }, answer) => {
                known.asked = Some(now);
                match answer {
                    Ok(CloudAnswer::Instance(instance)) => known.instance = Some(instance),
                    Ok(_) => known.failed = Some(Fault::unavailable("the cloud answers with something else")),
                    Err(fault) => known.failed = Some(fault),
                }
            }
            (_, Ok(CloudAnswer::Zone(zone))) => known.zone = Some(zone),
            // The cloud has no zone for the node.
            (_, Err(fault)) if matches!(fault.reason, FaultReason::NotOffered | FaultReason::NotFound) => {
                known.zone = Some(Zone::default());
            }
            (_, Err(fault)) => known.failed = Some(fault),
            _ => {}
        }
    }
}

impl CloudNodes {
    /// Plans a node about which the cloud did not answer, and reports that in an Event. An initialized node waits until
    /// the next comparison. If the cloud has no instance for the node, the node may belong to another cloud, and
    /// nothing is reported.
    fn failed(&self, node: Viewed<'_, Node>, is_new: bool, fault: &Fault, next: Option<Time>) -> Plan {
        let mut plan = Plan::default();
        plan.skipped.push(format!("node {}: {fault}", node.meta().name));
        if !is_new {
            next.into_iter().for_each(|next| plan.requeue_at(next));
            if fault.is(FaultReason::NotFound) {
                return plan;
            }
        }
        let message = format!("Error asking cloud provider {} for its instance: {fault}", self.settings.provider);
        plan.events.push(Subject::from(node).warning("CloudProviderFailed", message));
        plan.unready = is_new;
        plan
    }
}

/// Writes all the cloud's data into the node and removes the taint with which the node was registered.
fn initialized(node: Viewed<'_, Node>, instance: &Instance, zone: &Zone) -> Action {
    let mut labels = Map::new();
    for (label, value) in [(INSTANCE_TYPE, &instance.kind), (ZONE, &zone.zone), (REGION, &zone.region)] {
        if !value.is_empty() {
            labels.insert(label, value.as_str().into());
            let beta = MIRRORED.iter().find(|(stable, _)| *stable == label);
            beta.into_iter().for_each(|(_, beta)| _ = labels.insert(*beta, value.as_str().into()));
        }
    }
    for (label, value) in &instance.labels {
        if !is_reserved(label) && node.meta().label(label).is_none() {
            labels.insert(label.as_str(), value.as_str().into());
        }
    }
    let mut spec = json!({"taints": taints(node, |taint| taint.key != UNINITIALIZED, None)});
    if node.spec.provider_id.is_empty() && !instance.provider_id.is_empty() {
        spec["providerID"] = instance.provider_id.as_str().into();
    }
    let metadata = json!({"resourceVersion": node.meta().resource_version, "uid": node.meta().uid, "labels": labels});
    let patch = Verb::StrategicPatch(json!({"metadata": metadata, "spec": spec}));
    Action::new(Node::resource(), node.object.key(), patch)
}

/// Whether the prefix of a label is a domain that Kubernetes reserves for itself.
fn is_reserved(label: &str) -> bool {
    let domain = label.split_once('/').map_or("", |(domain, _)| domain);
    ["kubernetes.io", "k8s.io"].iter().any(|own| domain == *own || domain.ends_with(&format!(".{own}")))
}

/// Gives deprecated labels the values of the labels that replaced them; `None` if no label changes.
fn labelled(node: Viewed<'_, Node>, mut labels: Map) -> Option<Action> {
    let meta = node.meta();
    for (label, older) in MIRRORED {
        if let Some(value) = meta.label(label)
            && meta.label(older) != Some(value)
        {
            labels.insert(older, value.into());
        }
    }
    (!labels.is_empty()).then(|| Subject::from(node).strategic_patch(json!({"metadata": {"labels": labels}})))
}

fn addressed(node: Viewed<'_, Node>, addresses: &[NodeAddress]) -> Option<Action> {
    if addresses.is_empty() || node.status.addresses[..] == *addresses {
        return None;
    }
    let patch = json!({"metadata": {"uid": node.meta().uid}, "status": {"addresses": json!(addresses)}});
    let action = Action::new(Node::resource(), node.object.key(), Verb::MergePatch(patch));
    Some(action.subresource("status"))
}

/// The addresses of a node, from the cloud's data and the kubelet's `--node-ip`.
fn addresses(node: Viewed<'_, Node>, instance: &Instance) -> Result<Vec<NodeAddress>, String> {
    let mut addresses = instance.addresses.clone();
    if addresses.is_empty() {
        return Ok(addresses);
    }
    if !addresses.iter().any(|address| address.kind == "Hostname") {
        addresses.extend(node.view.status.addresses.iter().find(|address| address.kind == "Hostname").cloned());
    }
    let provided = node.meta().annotation(PROVIDED_IP).unwrap_or_default();
    // Each address of the annotation is moved in front of all other addresses of its type. The addresses are moved in
    // reverse order, so that the annotation's first address comes first.
    for ip in provided.split(',').map(str::trim).filter(|ip| !ip.is_empty()).rev() {
        let place = addresses.iter().position(|address| address.address == ip);
        let place = place.ok_or_else(|| {
            format!("failed to get node address from cloud provider that matches ip: {ip}, of annotation {PROVIDED_IP}")
        })?;
        let kind = addresses[place].kind.clone();
        let first = addresses.iter().position(|address| address.kind == kind).unwrap_or(place);
        addresses[first..=place].rotate_right(1);
    }
    Ok(addresses)
}
