//! Decides on which nodes a DaemonSet's pods run, by the scheduler's rules without resources.

use crate::claim;
use crate::planted::{Bug, planted};
use crate::subject;
use holdfast_scheduler::object::StringPool;
use holdfast_scheduler::object::labels::Labels;
use holdfast_scheduler::object::selector::Selector;
use holdfast_scheduler::object::terms::{NodeSelector, Taint, Toleration, tolerated};
use holdfast_value::{Value, json};
use holdfast_world::views::{DaemonSet, Node, Pod};
use holdfast_world::{Change, Keys, Viewed, World};

/// The taints that every daemon tolerates: the end of the key after `node.kubernetes.io/`, and the effect.
const TOLERATED: [(&str, &str); 6] = [
    ("not-ready", "NoExecute"),
    ("unreachable", "NoExecute"),
    ("disk-pressure", "NoSchedule"),
    ("memory-pressure", "NoSchedule"),
    ("pid-pressure", "NoSchedule"),
    ("unschedulable", "NoSchedule"),
];

/// An index of daemon pods by the node that a pod is bound to, or else pinned to by its affinity.
const PODS: &str = "daemon-pods";

pub fn index_pods(world: &mut World) {
    world.index::<Pod>(PODS, |object| {
        let is_daemon = object.meta.controller().is_some_and(claim::names_kind::<DaemonSet>);
        let node = object.view::<Pod>().filter(|_| is_daemon).map(of).unwrap_or_default();
        if node.is_empty() { Vec::new() } else { vec![node.into()] }
    });
}

/// The node that a pod is bound to, or else pinned to by its affinity; empty if the pod has neither.
pub fn of(pod: &Pod) -> &str {
    if pod.spec.node_name.is_empty() { &pod.spec.affine_node } else { &pod.spec.node_name }
}

/// Decides where pods of a template may run.
pub struct Placement {
    node_name: String,
    labels: Selector,
    affinity: Option<NodeSelector>,
    tolerations: Vec<Toleration>,
}

/// Whether a pod of the DaemonSet should run on a node, and whether an existing pod may stay there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allowed {
    pub should_run: bool,
    /// Whether a pod of the DaemonSet that is on the node already may stay there.
    pub may_stay: bool,
}

impl Placement {
    pub fn of_set(set: Viewed<'_, DaemonSet>) -> Placement {
        let mut template = subject::part(set.object, &["spec", "template"]);
        tolerate(&mut template);
        Placement::of(&template)
    }

    pub fn of(template: &Value) -> Placement {
        let (mut pool, spec) = (StringPool::default(), &template["spec"]);
        let affinity = &spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
        Placement {
            node_name: spec["nodeName"].as_str().unwrap_or_default().to_owned(),
            labels: Selector::of_labels(&Labels::decode(&mut pool, &spec["nodeSelector"])),
            affinity: NodeSelector::decode(&mut pool, affinity),
            tolerations: Toleration::decode_all(&mut pool, &spec["tolerations"]),
        }
    }

    pub fn on(&self, node: Viewed<'_, Node>) -> Allowed {
        let fits = self.fits(node);
        let taints = node.spec.taints.iter().map(|taint| Taint {
            key: taint.key.as_str().into(),
            value: taint.value.as_str().into(),
            effect: taint.effect.as_str().into(),
        });
        let repelling: Vec<Taint> = taints.filter(|taint| self.is_repelled(taint)).collect();
        Allowed {
            should_run: fits && repelling.is_empty(),
            may_stay: fits && repelling.iter().all(|taint| &*taint.effect != "NoExecute"),
        }
    }
}

impl Placement {
    fn is_repelled(&self, taint: &Taint) -> bool {
        taint.repels() && !tolerated(taint, &self.tolerations) && !planted(Bug::TaintsIgnored)
    }

    fn fits(&self, node: Viewed<'_, Node>) -> bool {
        let name = node.meta().name.as_str();
        if !self.node_name.is_empty() && self.node_name != name {
            return false;
        }
        if self.labels.is_everything() && self.affinity.is_none() {
            return true;
        }
        let labels: Labels =
            node.meta().labels.iter().map(|(key, value)| (key.as_str().into(), value.as_str().into())).collect();
        let affinity = self.affinity.as_ref();
        self.labels.matches(&labels) && affinity.is_none_or(|affinity| affinity.matches(&name.into(), &labels))
    }
}

/// Adds the tolerations that every daemon has.
pub fn tolerate(template: &mut Value) {
    let on_host = template["spec"]["hostNetwork"] == true;
    let network = on_host.then_some(("network-unavailable", "NoSchedule"));
    let mut tolerations = template["spec"]["tolerations"].as_array().cloned().unwrap_or_default();
    for (condition, effect) in TOLERATED.into_iter().chain(network) {
        let key = format!("node.kubernetes.io/{condition}");
        let toleration = json!({"key": key, "operator": "Exists", "effect": effect});
        let names = ["key", "operator", "effect", "value"];
        let is_same = |known: &&mut Value| names.iter().all(|name| known.get(name) == toleration.get(name));
        match tolerations.iter_mut().find(is_same) {
            Some(known) => *known = toleration,
            None => tolerations.push(toleration),
        }
    }
    template["spec"]["tolerations"] = tolerations.into();
}

/// Makes a pod's required node affinity one node's name, instead of any other required node affinity.
pub fn pin(pod: &mut Value, node: &str) {
    let by_name = json!({"key": "metadata.name", "operator": "In", "values": [node]});
    pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] =
        json!({"nodeSelectorTerms": [{"matchFields": [by_name]}]});
}

/// Adds the DaemonSets that a change of a node concerns: sets that should run on the node and do not, sets that run
/// there and must not, and, if the node was deleted, sets with a pod for the node. As in Kubernetes, a new taint that
/// repels only new pods does not concern a set whose pod on the node is ready. The taint does concern a set whose pod
/// is not ready, because an update need no longer wait for that pod.
pub fn concerned(world: &World, change: &Change, keys: &mut Keys) {
    let (before, after) = (change.before::<Node>(), change.after::<Node>());
    let is_same = |before: Viewed<'_, Node>, after: Viewed<'_, Node>| {
        before.meta().labels == after.meta().labels && before.spec.taints == after.spec.taints
    };
    if before.zip(after).is_some_and(|(before, after)| is_same(before, after)) {
        return;
    }
    for set in world.all::<DaemonSet>() {
        let pods = world.indexed::<Pod>(PODS, &change.key.name);
        let ready = pods.filter(|pod| pod.meta().is_controlled_by(&set.meta().uid)).map(|pod| pod.is_ready());
        let all_ready = ready.reduce(|one, other| one && other);
        let allowed = after.map(|node| Placement::of_set(set).on(node));
        let concerns = match allowed {
            None => all_ready.is_some(),
            Some(allowed) => match all_ready {
                Some(all_ready) => {
                    let updates = set.status.updated_number_scheduled < set.status.desired_number_scheduled;
                    let waits = updates && !allowed.should_run && !all_ready;
                    !allowed.may_stay || waits || set.status.number_misscheduled > 0
                }
                None => allowed.should_run,
            },
        };
        if concerns {
            keys.add(set.object.key());
        }
    }
}
