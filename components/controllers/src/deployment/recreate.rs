//! The strategy Recreate, in which all old pods end before the first new pod is created.

use super::{Flow, GO_ON, STOP, Sync};
use crate::claim;
use holdfast_world::views::{Deployment, Pod, ReplicaSet};
use holdfast_world::{Change, Key, Keys, World};

impl Sync<'_> {
    pub fn recreate(&mut self) -> Flow {
        self.set_revision()?;
        let active: Vec<usize> = (0..self.old.len()).filter(|index| self.old[*index].is_active()).collect();
        if !active.is_empty() || self.old_pods_run() {
            active.into_iter().for_each(|index| _ = self.scale_old(index, 0));
            self.write_progress();
            return STOP;
        }
        self.ensure_new_set()?;
        self.scale_new(self.replicas());
        if self.is_complete_as_told() {
            self.forget_old_sets();
        }
        self.write_progress();
        GO_ON
    }

    /// Terminating pods count as running until they are gone or have ended.
    fn old_pods_run(&self) -> bool {
        let runs = |set: &super::Set<'_>| {
            let mut pods = claim::owned::<Pod>(self.world, &set.seen.meta().uid);
            set.seen.status.replicas > 0 || pods.any(|pod| !pod.is_finished())
        };
        self.old.iter().any(runs)
    }
}

/// Adds the Deployment of a deleted pod: with the strategy Recreate it may wait for the end of the last pod of its old
/// sets.
pub fn concerned_by_the_end_of_a_pod(world: &World, change: &Change, keys: &mut Keys) {
    let Some(owner) = change.before.as_ref().and_then(|pod| pod.meta.controller()) else { return };
    let set = world.get::<ReplicaSet>(&Key::new(&change.key.namespace, &owner.name));
    let Some(set) = set.filter(|set| set.meta().uid == owner.uid) else { return };
    let Some(deployment) = set.meta().controller().filter(|owner| claim::names_kind::<Deployment>(owner)) else {
        return;
    };
    let key = Key::new(&change.key.namespace, &deployment.name);
    let waits = world.get::<Deployment>(&key).is_some_and(|found| found.spec.strategy.kind == "Recreate");
    if waits && claim::owned::<Pod>(world, &owner.uid).next().is_none() {
        keys.add(key);
    }
}
