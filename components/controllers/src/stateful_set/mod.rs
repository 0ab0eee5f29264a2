//! The controller of StatefulSets, whose pods have fixed names and claims, and are created and replaced in the order of
//! their ordinals.

mod claims;
mod identity;
mod names;
mod status;
#[cfg(test)]
mod tests;
mod update;

use crate::back_off::BackOffs;
use crate::claim::{self, ControllerRefManager};
use crate::pace::Paces;
use crate::planted::{Bug, planted};
use crate::revisions::{self, Revisions};
use crate::subject::Subject;
use crate::{pods, subject};
use holdfast_value::Value;
use holdfast_world::views::{ControllerRevision, PersistentVolumeClaim, Pod, StatefulSet};
use holdfast_world::{
    Action, Change, Controller, Key, Keys, Plan, PlannedEvent, Refused, Resource, Selector, Stamp, Verb, View, Viewed,
    World,
};
use std::cell::OnceCell;
use std::collections::BTreeMap;

/// How many pods one plan creates at most.
const BURST: usize = 500;
const HASH_LABEL: &str = "controller.kubernetes.io/hash";

/// How many failed pods with one ordinal are replaced without a wait.
const AT_ONCE: u32 = 3;
/// The longest wait before a further failed pod is replaced, in milliseconds.
const MAX_MILLIS: i64 = 5 * 60 * 1_000;

pub struct StatefulSets {
    back_offs: BackOffs,
    paces: Paces,
}

impl Default for StatefulSets {
    fn default() -> StatefulSets {
        StatefulSets { back_offs: BackOffs::new(AT_ONCE, MAX_MILLIS), paces: Paces::default() }
    }
}

impl ControllerRefManager for StatefulSet {
    fn selector(&self) -> &Selector {
        &self.spec.selector
    }
}

impl Controller for StatefulSets {
    fn name(&self) -> &'static str {
        "statefulset-controller"
    }

    fn queue(&self) -> &'static str {
        "statefulset"
    }

    fn resources(&self) -> Vec<Resource> {
        vec![
            StatefulSet::resource().clone(),
            Pod::resource().clone(),
            ControllerRevision::resource().clone(),
            PersistentVolumeClaim::resource().clone(),
        ]
    }

    fn indexes(&self, world: &mut World) {
        claim::index_orphans::<Pod>(world);
        claim::index_orphans::<ControllerRevision>(world);
        claim::index_selectors::<StatefulSet>(world);
    }

    fn concerns(&mut self, world: &World, change: &Change, keys: &mut Keys) {
        if change.is_of::<StatefulSet>() {
            keys.add(change.key.clone());
            if let (Some(gone), None) = (&change.before, &change.after) {
                self.back_offs.forget(&gone.meta.uid);
                self.paces.forget(&gone.meta.uid);
            }
        } else if change.is_of::<PersistentVolumeClaim>() {
            claims::concerned(world, change, keys);
        } else {
            claim::concerned::<StatefulSet>(world, change, keys);
        }
    }

    fn plan(&mut self, world: &World, key: &Key, stamp: Stamp) -> Plan {
        let Some(set) = world.get::<StatefulSet>(key) else { return Plan::default() };
        if set.meta().is_deleting() {
            return leave(world, set, stamp);
        }
        let mut sync = Sync::of(world, set, stamp);
        let _ = sync.steps(self);
        sync.finish()
    }

    fn refused(&mut self, world: &World, key: &Key, refused: &[Refused], stamp: Stamp) -> Plan {
        let Some(set) = world.get::<StatefulSet>(key) else { return Plan::default() };
        let mut notes: Vec<PlannedEvent> = refused.iter().flat_map(|refused| tell(set, refused)).collect();
        notes.extend(claims::pod_failure_events(world, set, refused));
        let mut plan = Plan { events: notes, ..Plan::default() };
        let is_made = |refused: &Refused| {
            let resource = &refused.action.resource;
            resource == Pod::resource() || resource == PersistentVolumeClaim::resource()
        };
        // The status is written although creations were refused: the next plan may be refused, too, before it writes
        // the status.
        if !set.meta().is_deleting() && refused.iter().any(is_made) {
            plan.together(Sync::of(world, set, stamp).status().into_iter().collect());
        }
        plan
    }
}

/// The plan for a set that is being deleted, which only updates the status.
fn leave(world: &World, set: Viewed<'_, StatefulSet>, stamp: Stamp) -> Plan {
    let mut plan = Plan::default();
    let pods = Members::of(world, set, &mut plan);
    plan.together(status::leaving(set, &pods, stamp.time).into_iter().collect());
    plan
}

/// The Event that reports a refused request; `None` if the refusal is expected.
fn tell(set: Viewed<'_, StatefulSet>, Refused { action, refusal }: &Refused) -> Option<PlannedEvent> {
    let (subject, message) = (Subject::from(set), &refusal.message);
    let name = &*action.key.name;
    let (reason, doing) = match action.verb {
        Verb::Create(_) if refusal.is("AlreadyExists") => return None,
        Verb::Create(_) => ("FailedCreate", "Create"),
        Verb::Delete { .. } if refusal.is_not_found() => return None,
        Verb::Delete { .. } => ("FailedDelete", "Delete"),
        _ => ("FailedUpdate", "Update"),
    };
    let of_pod =
        |pod: &str, why: &str| format!("{doing} Pod {pod} in StatefulSet {} failed error: {why}", set.meta().name);
    if action.resource == *Pod::resource() {
        return Some(subject.warning(reason, of_pod(name, message)));
    }
    let pod = names::pod_of(name, &set.meta().name).unwrap_or_default();
    if action.resource != *PersistentVolumeClaim::resource() {
        return None;
    }
    if doing == "Update" {
        let why = format!("could not update claim {name} for delete policy ownerRefs: {message}");
        return Some(subject.warning(reason, of_pod(&pod, &why)));
    }
    let of_claim =
        format!("Create Claim {name} for Pod {pod} in StatefulSet {} failed error: {message}", set.meta().name);
    Some(subject.warning(reason, of_claim))
}

/// The pods of a set by their ordinals.
struct Members<'w> {
    /// The pods whose ordinal the set wants.
    wanted: BTreeMap<i64, Viewed<'w, Pod>>,
    /// The pods whose ordinal the set does not want; they are to be deleted.
    condemned: BTreeMap<i64, Viewed<'w, Pod>>,
    /// The first wanted ordinal.
    start: i64,
    /// How many ordinals are wanted, beginning with `start`.
    replicas: i64,
}

impl<'w> Members<'w> {
    fn of(world: &'w World, set: Viewed<'w, StatefulSet>, plan: &mut Plan) -> Members<'w> {
        let name = &set.meta().name;
        let candidates = claim::candidates::<Pod>(world, set.into(), &set.view.spec.selector);
        let claims = claim::claim(set.into(), candidates, |meta| {
            set.spec.selector.matches(meta) && names::ordinal_of(&meta.name, name).is_some()
        });
        plan.together(claims.actions);
        let start = set.spec.ordinals.as_ref().map_or(0, |ordinals| ordinals.start);
        let replicas = set.spec.replicas.unwrap_or(1).max(0);
        let ordinals = start..start.saturating_add(replicas);
        let numbered =
            claims.mine.into_iter().filter_map(|pod| Some((names::ordinal_of(&pod.meta().name, name)?, pod)));
        let (wanted, condemned) = numbered.partition(|(ordinal, _)| ordinals.contains(ordinal));
        Members { wanted, condemned, start, replicas }
    }

    fn ordinals(&self) -> std::ops::Range<i64> {
        self.start..self.start.saturating_add(self.replicas)
    }

    fn all(&self) -> impl Iterator<Item = Viewed<'w, Pod>> {
        self.wanted.values().chain(self.condemned.values()).copied()
    }
}

/// The plan for one StatefulSet, while it is being made.
struct Sync<'w> {
    world: &'w World,
    set: Viewed<'w, StatefulSet>,
    stamp: Stamp,
    pods: Members<'w>,
    revisions: Revisions<'w>,
    claim_templates: Vec<Value>,
    /// The labels that the claims get because the set's selector names them; decoded when the first claim is created.
    claim_labels: OnceCell<Value>,
    plan: Plan,
    /// The name of the revision of each pod that the plan creates.
    made: Vec<String>,
}

/// Whether the rest of the plan is made: it stops at a pod for which the later ordinals must wait.
type Flow = std::ops::ControlFlow<()>;
const GO_ON: Flow = Flow::Continue(());
const STOP: Flow = Flow::Break(());

impl<'w> Sync<'w> {
    fn of(world: &'w World, set: Viewed<'w, StatefulSet>, stamp: Stamp) -> Sync<'w> {
        let mut plan = Plan::default();
        let pods = Members::of(world, set, &mut plan);
        let collisions = set.status.collision_count.unwrap_or(0);
        let revisions =
            revisions::find_or_create(world, set.into(), &set.spec.selector, HASH_LABEL, collisions, &mut plan);
        let claim_templates = claims::templates(set);
        Sync {
            world,
            set,
            stamp,
            pods,
            revisions,
            claim_templates,
            claim_labels: OnceCell::new(),
            plan,
            made: Vec::new(),
        }
    }

    /// Creates missing pods, deletes surplus pods, and replaces old pods.
    fn steps(&mut self, kept: &mut StatefulSets) -> Flow {
        match self.is_ordered() {
            true => self.make_in_order(kept)?,
            false => self.make_at_once(kept),
        }
        self.end_condemned()?;
        self.replace_old()
    }

    /// Whether the pod of each ordinal is created only after the pod of the ordinal below is available.
    fn is_ordered(&self) -> bool {
        self.set.spec.pod_management_policy != "Parallel"
    }

    /// Handles the ordinals in ascending order, up to the first pod that is created or for which the later ordinals
    /// must wait.
    fn make_in_order(&mut self, kept: &mut StatefulSets) -> Flow {
        for ordinal in self.pods.ordinals() {
            let Some(pod) = self.pods.wanted.get(&ordinal).copied() else {
                self.make(&[ordinal], kept);
                return STOP;
            };
            self.keep(ordinal, pod, kept)?;
            if !self.is_healthy(pod) && !planted(Bug::OrderIgnored) {
                return STOP;
            }
            self.correct(ordinal, pod);
        }
        GO_ON
    }

    /// Handles all ordinals in one plan, because no pod waits for another pod.
    fn make_at_once(&mut self, kept: &mut StatefulSets) {
        let mut missing = Vec::new();
        for ordinal in self.pods.ordinals() {
            let Some(pod) = self.pods.wanted.get(&ordinal).copied() else {
                missing.push(ordinal);
                if missing.len() == BURST {
                    break;
                }
                continue;
            };
            if self.keep(ordinal, pod, kept).is_continue() {
                self.correct(ordinal, pod);
            }
        }
        self.make(&missing, kept);
    }

    /// Handles an existing pod with a wanted ordinal. A pod that has ended is deleted, after a back-off, and is created
    /// again once it is removed. For any other pod the missing claims are created.
    fn keep(&mut self, ordinal: i64, pod: Viewed<'w, Pod>, kept: &mut StatefulSets) -> Flow {
        if pod.is_finished() {
            if !pod.meta().is_deleting() {
                let set = self.set.meta();
                match kept.back_offs.fail(&set.uid, set.generation, &pod.meta().name, self.stamp.time) {
                    Ok(()) => self.delete(pod),
                    Err(again) => self.plan.requeue_at(again),
                }
            }
            return STOP;
        }
        if pod.status.phase == "Pending" {
            let (missing, _) = self.missing_claims(ordinal);
            self.plan.together(missing);
            self.set_claim_owners(ordinal, pod, None);
        }
        GO_ON
    }

    /// Creates the pods with these ordinals, each after its claims.
    fn make(&mut self, ordinals: &[i64], kept: &mut StatefulSets) {
        let wanted = usize::try_from(self.pods.replicas).unwrap_or(0);
        let (now, uid) = (self.stamp.time, &self.set.meta().uid);
        let (made, again) = kept.paces.take(uid, wanted, ordinals.len(), now);
        again.into_iter().for_each(|time| self.plan.requeue_at(time));
        let ready: Vec<_> = ordinals[..made].iter().filter_map(|ordinal| self.with_claims(*ordinal)).collect();
        for group in pods::slow_start(ready) {
            let (claims, pods): (Vec<_>, Vec<_>) = group.into_iter().unzip();
            self.plan.together(claims.into_iter().flatten().collect());
            self.plan.together(pods);
        }
    }

    /// The creations of a pod and of its missing claims; `None` while a claim of an earlier pod is being deleted.
    fn with_claims(&mut self, ordinal: i64) -> Option<(Vec<Action>, Action)> {
        if self.has_stale_claims(ordinal) {
            self.plan.skipped.push(format!("claims of the former pod {ordinal} are not gone yet"));
            return None;
        }
        let (claims, leaving) = self.missing_claims(ordinal);
        if !leaving.is_empty() {
            let faults = leaving.iter().map(|claim| format!("pvc {claim} is being deleted")).collect();
            self.plan.events.push(claims::cannot_create(self.set, &self.pod_name(ordinal), faults));
            self.plan.together(claims);
            return None;
        }
        let (revision, template) = self.revision_of(ordinal);
        let pod = self.pod(&template, &revision, ordinal);
        self.made.push(revision);
        let key = Key::new(&self.set.meta().namespace, &self.pod_name(ordinal));
        let message = format!("Create Pod {} in StatefulSet {} successful", key.name, self.set.meta().name);
        let action = Action::new(Pod::resource(), key, Verb::Create(pod));
        Some((claims, action.with_event(self.subject().normal("SuccessfulCreate", message))))
    }

    /// The revision and template of a new pod with this ordinal. Pods with an ordinal below the partition get the
    /// revision that the update replaces.
    fn revision_of(&self, ordinal: i64) -> (String, Value) {
        let strategy = &self.set.spec.update_strategy;
        let kept = match (strategy.kind.as_str(), &strategy.rolling_update) {
            ("OnDelete", _) => 0,
            (_, None) => self.set.status.current_replicas,
            (_, Some(rolling)) => rolling.partition.unwrap_or(0),
        };
        match self.current().filter(|_| ordinal < self.pods.start.saturating_add(kept)) {
            Some(current) => (current.meta().name.clone(), revisions::template_of(&current)),
            None => {
                let template = subject::part(self.set.object, &["spec", "template"]);
                (self.revisions.present.name().to_owned(), template)
            }
        }
    }

    /// The revision that an update in progress replaces, if that revision still exists.
    fn current(&self) -> Option<Viewed<'w, ControllerRevision>> {
        self.revisions.known.iter().copied().find(|seen| seen.meta().name == self.set.status.current_revision)
    }

    /// Deletes the pods that are not wanted, highest ordinal first. With ordered management, deletes one pod at a time,
    /// and only a pod that is available or is the unhealthy pod with the lowest ordinal.
    fn end_condemned(&mut self) -> Flow {
        let condemned: Vec<_> = self.pods.condemned.iter().rev().map(|(ordinal, pod)| (*ordinal, *pod)).collect();
        for (ordinal, pod) in &condemned {
            self.set_claim_owners(*ordinal, *pod, None);
        }
        let first_unhealthy = condemned.iter().rev().find(|(_, pod)| !self.is_healthy(*pod));
        let first_unhealthy = first_unhealthy.map(|(ordinal, _)| *ordinal);
        for (ordinal, pod) in condemned {
            let waits = !self.is_available(pod) && first_unhealthy != Some(ordinal);
            if self.is_ordered() && (pod.meta().is_deleting() || waits) {
                return STOP;
            }
            if !pod.meta().is_deleting() {
                self.delete(pod);
            }
            if self.is_ordered() {
                return STOP;
            }
        }
        GO_ON
    }

    fn delete(&mut self, pod: Viewed<'w, Pod>) {
        let message = format!("Delete Pod {} in StatefulSet {} successful", pod.meta().name, self.set.meta().name);
        let deletion = Subject::from(pod).delete();
        self.plan.then(deletion.with_event(self.subject().normal("SuccessfulDelete", message)));
    }

    fn is_running(&self, pod: Viewed<'w, Pod>) -> bool {
        pod.status.phase == "Running" && pod.is_ready()
    }

    fn is_available(&self, pod: Viewed<'w, Pod>) -> bool {
        self.is_running(pod) && pod.is_available(self.set.spec.min_ready_seconds, self.stamp.time)
    }

    fn is_healthy(&self, pod: Viewed<'w, Pod>) -> bool {
        self.is_available(pod) && !pod.meta().is_deleting()
    }

    fn pod_name(&self, ordinal: i64) -> String {
        names::pod(&self.set.meta().name, ordinal)
    }

    fn subject(&self) -> Subject<'w> {
        Subject::from(self.set)
    }

    fn finish(mut self) -> Plan {
        let status = self.status();
        self.plan.together(status.into_iter().collect());
        self.forget_revisions();
        let min_ready_seconds = self.set.spec.min_ready_seconds;
        if let Some(time) = pods::next_available(self.pods.all(), min_ready_seconds, self.stamp.time) {
            self.plan.requeue_at(time);
        }
        self.plan
    }
}
