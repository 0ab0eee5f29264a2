//! The controller of Deployments, which have one ReplicaSet for each template, and roll out from one ReplicaSet to the
//! next.

mod history;
mod recreate;
mod rollback;
mod rolling;
mod scale;
mod set;
mod status;
#[cfg(test)]
mod tests;

use crate::claim::{self, ControllerRefManager};
use crate::conditions::Conditions;
use crate::subject::{self, Subject};
use holdfast_value::Value;
use holdfast_world::views::{Deployment, Pod, ReplicaSet};
use holdfast_world::{
    Action, Change, Controller, Key, Keys, Meta, Plan, Refused, Resource, Selector, Stamp, Verb, View, Viewed, World,
};
use set::Set;
use std::cell::OnceCell;
use std::collections::HashMap;

/// The annotation with the revision number of a template, on Deployments and ReplicaSets.
const REVISION: &str = "deployment.kubernetes.io/revision";
/// The annotation with the revision that `rollbackTo` of old API versions requests.
const ROLLBACK_TO: &str = "deprecated.deployment.rollback.to";

#[derive(Default)]
pub struct Deployments {
    compared: HashMap<Key, Compared>,
}

/// For each ReplicaSet, whether it has the template of its Deployment. Sets that were not compared yet are absent. The
/// results are kept, because templates may be large and old sets may be many.
#[derive(Default)]
struct Compared {
    /// The uid and generation of the Deployment with which the sets were compared.
    of: (String, i64),
    /// Whether the templates are equal, by the uid and generation of the set.
    sets: HashMap<(String, i64), bool>,
}

impl Compared {
    /// The index of the first set that has the Deployment's template.
    fn first(&mut self, deployment: &Meta, sets: &[Set<'_>], has_template: impl Fn(&Set<'_>) -> bool) -> Option<usize> {
        let of = (deployment.uid.clone(), deployment.generation);
        let mut known = std::mem::take(&mut self.sets);
        if self.of != of {
            self.of = of;
            known.clear();
        }
        let mut first = None;
        for (place, set) in sets.iter().enumerate() {
            let meta = set.seen.meta();
            let key = (meta.uid.clone(), meta.generation);
            let known = known.remove(&key).or_else(|| first.is_none().then(|| has_template(set)));
            if let Some(has_template) = known {
                first = first.or(has_template.then_some(place));
                self.sets.insert(key, has_template);
            }
        }
        first
    }
}

impl ControllerRefManager for Deployment {
    fn selector(&self) -> &Selector {
        &self.spec.selector
    }
}

impl Controller for Deployments {
    fn name(&self) -> &'static str {
        "deployment-controller"
    }

    fn queue(&self) -> &'static str {
        "deployment"
    }

    fn resources(&self) -> Vec<Resource> {
        vec![Deployment::resource().clone(), ReplicaSet::resource().clone(), Pod::resource().clone()]
    }

    fn indexes(&self, world: &mut World) {
        claim::index_orphans::<ReplicaSet>(world);
        claim::index_selectors::<Deployment>(world);
    }

    fn concerns(&mut self, world: &World, change: &Change, keys: &mut Keys) {
        if change.is_of::<Deployment>() {
            keys.add(change.key.clone());
        } else if change.is_of::<ReplicaSet>() {
            claim::concerned::<Deployment>(world, change, keys);
        } else if change.after.is_none() {
            recreate::concerned_by_the_end_of_a_pod(world, change, keys);
        }
    }

    fn plan(&mut self, world: &World, key: &Key, stamp: Stamp) -> Plan {
        match world.get::<Deployment>(key) {
            Some(deployment) => {
                let compared = self.compared.entry(key.clone()).or_default();
                Sync::of(world, deployment, stamp, compared).run()
            }
            None => {
                self.compared.remove(key);
                Plan::default()
            }
        }
    }

    fn refused(&mut self, world: &World, key: &Key, refused: &[Refused], stamp: Stamp) -> Plan {
        let Some(deployment) = world.get::<Deployment>(key) else { return Plan::default() };
        let is_creation = |refused: &&Refused| matches!(refused.action.verb, Verb::Create(_));
        match refused.iter().find(is_creation) {
            Some(creation) => {
                let compared = self.compared.entry(key.clone()).or_default();
                history::cannot_create(Sync::of(world, deployment, stamp, compared), creation)
            }
            None => Plan::default(),
        }
    }
}

/// The plan for one Deployment, while it is being made.
struct Sync<'w> {
    world: &'w World,
    deployment: Viewed<'w, Deployment>,
    stamp: Stamp,
    /// The Deployment's template; it is decoded when it is first needed.
    template: OnceCell<Value>,
    /// The ReplicaSet of the present template, if it exists.
    new: Option<Set<'w>>,
    /// All other sets, oldest first.
    old: Vec<Set<'w>>,
    /// Whether the plan already writes the status. A plan may write the status only once: a second write would be based
    /// on a version of the Deployment that the first write replaces.
    wrote_status: bool,
    plan: Plan,
}

/// Whether the rest of the plan is made: it stops after a write on whose result the rest depends.
type Flow = std::ops::ControlFlow<()>;
const GO_ON: Flow = Flow::Continue(());
const STOP: Flow = Flow::Break(());

impl<'w> Sync<'w> {
    fn of(world: &'w World, deployment: Viewed<'w, Deployment>, stamp: Stamp, compared: &mut Compared) -> Sync<'w> {
        let owner = Subject::from(deployment);
        let candidates = claim::candidates::<ReplicaSet>(world, owner, &deployment.view.spec.selector);
        let claims = claim::claim(owner, candidates, |meta| deployment.spec.selector.matches(meta));
        let template = OnceCell::new();
        let mut plan = Plan::default();
        plan.together(claims.actions);
        let mut old: Vec<_> = claims.mine.into_iter().map(Set::of).collect();
        old.sort_by(|one, other| one.age().cmp(&other.age()));
        let wanted = || template.get_or_init(|| subject::part(deployment.object, &["spec", "template"]));
        let new = compared.first(deployment.meta(), &old, |set| set.has_template(wanted()));
        let new = new.map(|index| old.remove(index));
        Sync { world, deployment, stamp, template, new, old, wrote_status: false, plan }
    }

    fn run(mut self) -> Plan {
        let _ = self.steps();
        self.plan
    }

    fn steps(&mut self) -> Flow {
        if self.deployment.spec.selector.is_everything() {
            self.refuse_to_select_all();
            return STOP;
        }
        if self.deployment.meta().is_deleting() {
            return self.tell_numbers();
        }
        self.note_pause();
        if self.deployment.spec.paused {
            return self.keep_size();
        }
        if let Some(revision) = self.rollback_wanted() {
            return self.roll_back(revision);
        }
        if self.is_resized() {
            return self.keep_size();
        }
        match self.is_rolling() {
            true => self.roll(),
            false => self.recreate(),
        }
    }

    /// Only scales the existing sets; no set is created or rolled out.
    fn keep_size(&mut self) -> Flow {
        self.set_revision()?;
        self.scale_all();
        if self.deployment.spec.paused && self.rollback_wanted().is_none() {
            self.forget_old_sets();
        }
        self.write_numbers();
        GO_ON
    }

    fn tell_numbers(&mut self) -> Flow {
        self.set_revision()?;
        self.write_numbers();
        GO_ON
    }

    fn refuse_to_select_all(&mut self) {
        let message = "This deployment is selecting all pods. A non-empty selector is required.";
        self.plan.events.push(self.subject().warning("SelectingAll", message.to_owned()));
        let generation = self.deployment.meta().generation;
        if self.deployment.status.observed_generation < generation {
            self.write_status(|status| _ = status.insert("observedGeneration", generation.into()));
        }
    }

    fn template(&self) -> &Value {
        self.template.get_or_init(|| subject::part(self.deployment.object, &["spec", "template"]))
    }

    fn subject(&self) -> Subject<'w> {
        Subject::from(self.deployment)
    }

    fn replicas(&self) -> i64 {
        self.deployment.spec.replicas.unwrap_or(1)
    }

    fn is_rolling(&self) -> bool {
        self.deployment.spec.strategy.kind != "Recreate"
    }

    /// `maxSurge` and `maxUnavailable` as numbers of pods.
    fn bounds(&self) -> (i64, i64) {
        if !self.is_rolling() {
            return (0, 0);
        }
        let rolling = self.deployment.spec.strategy.rolling_update.as_ref();
        let amount = |amount: Option<holdfast_world::views::workloads::IntOrPercent>, round_up| {
            amount.map_or(0, |amount| amount.of(self.replicas(), round_up)).max(0)
        };
        let surge = amount(rolling.and_then(|rolling| rolling.max_surge), true);
        let missing = amount(rolling.and_then(|rolling| rolling.max_unavailable), false);
        // With both limits at 0 a rollout could neither add nor remove a pod, so one pod may be missing.
        let missing = if surge == 0 && missing == 0 { 1 } else { missing };
        (surge, missing.min(self.replicas()))
    }

    fn surge(&self) -> i64 {
        self.bounds().0
    }

    fn min_available(&self) -> i64 {
        self.replicas() - self.bounds().1
    }

    /// How many pods all sets together may have during a rollout.
    fn max_replicas(&self) -> i64 {
        self.replicas().saturating_add(self.surge())
    }

    fn sets(&self) -> impl Iterator<Item = &Set<'w>> {
        self.old.iter().chain(&self.new)
    }

    /// The sum of the replicas that all sets should have.
    fn asked(&self) -> i64 {
        self.sets().map(|set| set.replicas).sum()
    }

    fn available(&self) -> i64 {
        self.sets().map(|set| set.seen.status.available_replicas).sum()
    }

    /// Writes the changed status, unless nothing changes or the plan already writes the status.
    fn write_status(&mut self, change: impl FnOnce(&mut holdfast_value::Map)) {
        if !self.wrote_status
            && let Some(action) = self.subject().status(change)
        {
            self.wrote_status = true;
            self.plan.then(action);
        }
    }

    /// Writes the conditions alone.
    fn write_conditions(&mut self, change: impl FnOnce(&mut Conditions)) {
        self.write_status(|status| {
            let mut conditions = Conditions::take(status);
            change(&mut conditions);
            conditions.put(status);
        });
    }

    fn then(&mut self, action: Action) {
        self.plan.then(action);
    }
}
