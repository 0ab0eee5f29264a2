//! The controller of DaemonSets, which run one pod on every node where the pod may run.

mod node;
mod rolling;
mod status;
#[cfg(test)]
mod tests;

use crate::back_off::BackOffs;
use crate::claim::{self, ControllerRefManager};
use crate::pods::{self, refusals};
use crate::revisions::{self, POD_REVISION, Revisions};
use crate::subject::{self, Subject};
use holdfast_value::Value;
use holdfast_world::views::{ControllerRevision, DaemonSet, Node, Pod};
use holdfast_world::{
    Action, Change, Controller, Key, Keys, Plan, Refused, Resource, Selector, Stamp, View, Viewed, World,
};
use node::Placement;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// How many pods one plan creates at most, and how many it deletes at most.
const BURST: usize = 250;
/// The annotation with the template's generation, which old clients use.
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";
const POD_GENERATION: &str = "pod-template-generation";

/// How many failed pods on one node are replaced without a wait.
const AT_ONCE: u32 = 1;
/// The longest wait before a further failed pod is replaced, in milliseconds.
const MAX_MILLIS: i64 = 15 * 60 * 1_000;

pub struct DaemonSets {
    back_offs: BackOffs,
    /// The deletions of each DaemonSet's last plan. These deletions are carried out even if the plan's creations are
    /// refused.
    deletions: BTreeMap<Key, Vec<Action>>,
}

impl Default for DaemonSets {
    fn default() -> DaemonSets {
        DaemonSets { back_offs: BackOffs::new(AT_ONCE, MAX_MILLIS), deletions: BTreeMap::new() }
    }
}

impl ControllerRefManager for DaemonSet {
    fn selector(&self) -> &Selector {
        &self.spec.selector
    }
}

impl Controller for DaemonSets {
    fn name(&self) -> &'static str {
        "daemonset-controller"
    }

    fn queue(&self) -> &'static str {
        "daemonset"
    }

    fn account(&self) -> &'static str {
        "daemon-set-controller"
    }

    fn resources(&self) -> Vec<Resource> {
        vec![
            DaemonSet::resource().clone(),
            Pod::resource().clone(),
            Node::resource().clone(),
            ControllerRevision::resource().clone(),
        ]
    }

    fn indexes(&self, world: &mut World) {
        claim::index_orphans::<Pod>(world);
        claim::index_orphans::<ControllerRevision>(world);
        claim::index_selectors::<DaemonSet>(world);
        node::index_pods(world);
    }

    fn concerns(&mut self, world: &World, change: &Change, keys: &mut Keys) {
        if change.is_of::<DaemonSet>() {
            keys.add(change.key.clone());
            if let (Some(gone), None) = (&change.before, &change.after) {
                self.back_offs.forget(&gone.meta.uid);
            }
        } else if change.is_of::<Node>() {
            node::concerned(world, change, keys);
        } else {
            claim::concerned::<DaemonSet>(world, change, keys);
        }
    }

    fn plan(&mut self, world: &World, key: &Key, stamp: Stamp) -> Plan {
        self.deletions.remove(key);
        let Some(set) = world.get::<DaemonSet>(key) else { return Plan::default() };
        let mut plan = Plan::default();
        if set.spec.selector.is_everything() {
            let message = "This daemon set is selecting all pods. A non-empty selector is required.";
            plan.events.push(Subject::from(set).warning("SelectingAll", message.to_owned()));
            return plan;
        }
        if set.meta().is_deleting() {
            return plan;
        }
        let (plan, deletions) = Sync::of(world, set, stamp, plan).run(&mut self.back_offs);
        if !deletions.is_empty() {
            self.deletions.insert(key.clone(), deletions);
        }
        plan
    }

    fn refused(&mut self, world: &World, key: &Key, refused: &[Refused], stamp: Stamp) -> Plan {
        let Some(set) = world.get::<DaemonSet>(key) else { return Plan::default() };
        let (notes, _) = refusals(set.into(), refused);
        let mut sync = Sync::of(world, set, stamp, Plan::default());
        sync.plan = Plan { events: notes, ..Plan::default() };
        if pods::concern_pods(refused) {
            // Surplus pods are deleted even if creations were refused: they may be the pods that fill the quota.
            sync.plan.together(self.deletions.remove(key).unwrap_or_default());
            sync.write_status();
        }
        sync.plan
    }
}

/// The plan for one DaemonSet, while it is being made.
struct Sync<'w> {
    world: &'w World,
    set: Viewed<'w, DaemonSet>,
    stamp: Stamp,
    revisions: Revisions<'w>,
    /// The hash of the present revision. The pods of that revision have the hash as a label.
    hash: String,
    template: Value,
    placement: Placement,
    /// The DaemonSet's pods by node, the oldest pod first. Pods that have ended and are being deleted are left out.
    pods: BTreeMap<&'w str, Vec<Viewed<'w, Pod>>>,
    /// The nodes on which a pod should run and none exists.
    missing: Vec<&'w str>,
    surplus: Vec<Viewed<'w, Pod>>,
    /// The nodes on which the plan has created a pod so far.
    made: BTreeSet<&'w str>,
    plan: Plan,
}

impl<'w> Sync<'w> {
    fn of(world: &'w World, set: Viewed<'w, DaemonSet>, stamp: Stamp, mut plan: Plan) -> Sync<'w> {
        let candidates = claim::candidates::<Pod>(world, set.into(), &set.view.spec.selector);
        let claims = claim::claim(set.into(), candidates, |meta| set.spec.selector.matches(meta));
        plan.together(claims.actions);
        let collisions = set.status.collision_count.unwrap_or(0);
        let revisions =
            revisions::find_or_create(world, set.into(), &set.spec.selector, POD_REVISION, collisions, &mut plan);
        let hash = revisions.present.label(POD_REVISION).to_owned();
        let mut template = subject::part(set.object, &["spec", "template"]);
        node::tolerate(&mut template);
        let placement = Placement::of(&template);
        let mut pods = BTreeMap::<_, Vec<_>>::new();
        // A pod that is neither on a node nor pinned to one is ignored.
        let counts =
            |pod: &Viewed<'_, Pod>| !(node::of(pod.view).is_empty() || pod.is_finished() && pod.meta().is_deleting());
        for pod in claims.mine.into_iter().filter(counts) {
            pods.entry(node::of(pod.view)).or_default().push(pod);
        }
        for pods in pods.values_mut() {
            pods.sort_by_key(|pod| {
                let meta = &pod.object.meta;
                // If two pods were created in the same second, the pod of another revision counts as the older pod.
                let is_updated = meta.label(POD_REVISION) == Some(&hash);
                (Reverse(!pod.spec.node_name.is_empty()), meta.creation_timestamp, is_updated, &meta.name)
            });
        }
        let (missing, surplus, made) = (Vec::new(), Vec::new(), BTreeSet::new());
        Sync { world, set, stamp, revisions, hash, template, placement, pods, missing, surplus, made, plan }
    }

    /// Returns the plan, and the actions of the plan that do not depend on whether pods are created.
    fn run(mut self, back_offs: &mut BackOffs) -> (Plan, Vec<Action>) {
        for node in self.world.all::<Node>() {
            self.settle_node(node, back_offs);
        }
        self.drop_pods_of_absent_nodes();
        if self.missing.is_empty() && self.surplus.is_empty() && self.set.spec.update_strategy.kind != "OnDelete" {
            self.roll();
        }
        let deletions = self.make_and_delete();
        self.forget_revisions();
        self.write_status();
        let running = self.pods.values().flatten().copied();
        if let Some(time) = pods::next_available(running, self.set.spec.min_ready_seconds, self.stamp.time) {
            self.plan.requeue_at(time);
        }
        (self.plan, deletions)
    }

    /// Ensures one pod on a node where the set should run, and none where it must not.
    fn settle_node(&mut self, node: Viewed<'w, Node>, back_offs: &mut BackOffs) {
        let name = node.object.meta.name.as_str();
        let allowed = self.placement.on(node);
        let pods = self.pods.get(name).cloned().unwrap_or_default();
        if !allowed.may_stay {
            self.surplus.extend(pods.iter().filter(|pod| !pod.meta().is_deleting()));
        } else if pods.is_empty() {
            self.missing.extend(allowed.should_run.then_some(name));
        } else {
            let running: Vec<_> = pods
                .into_iter()
                .filter(|pod| !pod.meta().is_deleting() && !self.has_ended(name, *pod, back_offs))
                .collect();
            match self.may_surge() {
                false => self.surplus.extend(running.into_iter().skip(1)),
                true if running.is_empty() => self.missing.extend(allowed.should_run.then_some(name)),
                true => self.keep_two(&running),
            }
        }
    }

    /// Deletes a pod that has ended, so that another pod replaces it; a pod that failed is deleted only after a
    /// back-off. Returns whether the pod has ended.
    fn has_ended(&mut self, node: &str, pod: Viewed<'w, Pod>, back_offs: &mut BackOffs) -> bool {
        let subject = Subject::from(self.set);
        let (namespace, name) = (&pod.meta().namespace, &pod.meta().name);
        let note = match pod.status.phase.as_str() {
            "Failed" => {
                let generation = self.set.status.observed_generation;
                if let Err(again) = back_offs.fail(&self.set.meta().uid, generation, node, self.stamp.time) {
                    self.plan.requeue_at(again);
                    return true;
                }
                let message = format!("Found failed daemon pod {namespace}/{name} on node {node}, will try to kill it");
                subject.warning("FailedDaemonPod", message)
            }
            "Succeeded" => {
                let message =
                    format!("Found succeeded daemon pod {namespace}/{name} on node {node}, will try to delete it");
                subject.normal("SucceededDaemonPod", message)
            }
            _ => return false,
        };
        self.plan.events.push(note);
        self.surplus.push(pod);
        true
    }

    /// If several pods run on a node, keeps the oldest pod of the present revision and the oldest pod of another
    /// revision. The pod of the other revision stays while it is ready and the pod of the present revision is not
    /// available.
    fn keep_two(&mut self, running: &[Viewed<'w, Pod>]) {
        if running.len() < 2 {
            return;
        }
        let (new, old): (Vec<_>, Vec<_>) =
            running.iter().partition(|pod| pod.meta().label(POD_REVISION) == Some(self.hash.as_str()));
        self.surplus.extend(new.iter().skip(1).chain(old.iter().skip(1)));
        if let (Some(new), Some(old)) = (new.first(), old.first())
            && (!old.is_ready() || self.is_available(*new))
        {
            self.surplus.push(*old);
        }
    }

    /// Deletes unbound pods for nodes that no longer exist. No other controller deletes them.
    fn drop_pods_of_absent_nodes(&mut self) {
        let is_absent = |node: &str| self.world.get::<Node>(&Key::cluster(node)).is_none();
        let absent = self.pods.iter().filter(|(node, _)| is_absent(node)).flat_map(|(_, pods)| pods);
        let unbound: Vec<_> =
            absent.filter(|pod| pod.spec.node_name.is_empty() && !pod.meta().is_deleting()).copied().collect();
        self.surplus.extend(unbound);
    }

    fn make_and_delete(&mut self) -> Vec<Action> {
        let owner = Subject::from(self.set);
        self.made = self.missing.drain(..).take(BURST).collect();
        let creations: Vec<Action> = self.made.iter().map(|node| pods::create(owner, self.pod_for(node))).collect();
        let deletions: Vec<Action> = self.surplus.drain(..).take(BURST).map(|pod| pods::delete(owner, pod)).collect();
        let independent = if creations.is_empty() { Vec::new() } else { deletions.clone() };
        self.plan.steps.extend(pods::slow_start(creations));
        self.plan.together(deletions);
        independent
    }

    /// A new pod for a node: only the scheduler binds it, and only to this node.
    fn pod_for(&self, node: &str) -> Value {
        let mut pod = pods::from_template(self.set.into(), &self.template);
        node::pin(&mut pod, node);
        pod["metadata"]["labels"][POD_REVISION] = self.hash.as_str().into();
        if let Some(generation) = self.template_generation() {
            pod["metadata"]["labels"][POD_GENERATION] = generation.to_string().into();
        }
        pod
    }

    fn template_generation(&self) -> Option<i64> {
        self.set.meta().annotation(TEMPLATE_GENERATION)?.parse().ok()
    }

    /// Whether a pod has the present template. The generation label decides only for pods without a hash label, which
    /// were created before the hash label existed. On a pod of an earlier set with the same name, the generation would
    /// be meaningless.
    fn is_updated(&self, pod: Viewed<'_, Pod>) -> bool {
        if let Some(hash) = pod.meta().label(POD_REVISION) {
            return hash == self.hash;
        }
        let number = pod.meta().label(POD_GENERATION);
        self.template_generation().is_some_and(|generation| number == Some(generation.to_string().as_str()))
    }

    fn is_available(&self, pod: Viewed<'_, Pod>) -> bool {
        pod.is_available(self.set.spec.min_ready_seconds, self.stamp.time)
    }

    /// Deletes old revisions beyond the limit, except the revisions that pods have.
    fn forget_revisions(&mut self) {
        let used: BTreeSet<&str> = self
            .pods
            .values()
            .flatten()
            .filter_map(|pod| pod.object.meta.labels.get(POD_REVISION))
            .map(String::as_str)
            .collect();
        let present = self.revisions.present.name();
        let old: Vec<_> = self.revisions.known.iter().filter(|seen| seen.meta().name != present).copied().collect();
        let surplus = old.len().saturating_sub(revisions::limit(self.set.spec.revision_history_limit));
        let unused =
            old.into_iter().filter(|seen| !seen.meta().label(POD_REVISION).is_some_and(|hash| used.contains(hash)));
        revisions::forget(unused, surplus, &mut self.plan);
    }
}
