//! Binds claims to volumes, and reclaims volumes whose claim was deleted.
//!
//! A binding takes four writes: the claim's name into the volume, the volume's phase, the volume's name into the claim,
//! the claim's phase. The process may end after any of these writes; after a restart this controller completes the
//! binding.

mod claim;
mod matching;
mod migration;
mod provision;
mod volume;

#[cfg(test)]
mod tests;

pub use provision::HOST_PATH;

use super::{claim_key, index_pods};
use crate::Settings;
use crate::subject::Subject;
use holdfast_value::{Value, json};
use holdfast_world::views::{PersistentVolume, PersistentVolumeClaim, Pod, StorageClass};
use holdfast_world::{Action, Change, Controller, Key, Keys, Plan, Resource, Stamp, Text, View, Viewed, World};
use std::collections::BTreeMap;

const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
const PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";
const BETA_PROVISIONER: &str = "volume.beta.kubernetes.io/storage-provisioner";
const MIGRATED_TO: &str = "pv.kubernetes.io/migrated-to";
pub const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";
const BETA_DEFAULT_CLASS: &str = "storageclass.beta.kubernetes.io/is-default-class";

/// An index of claims without a volume, by their class; a claim without a class has the value `*`.
const UNBOUND: &str = "unbound";
/// An index of claims by the volume that they name.
const NAMING: &str = "naming";
/// An index of volumes by the claim that their `claimRef` names.
const OF_CLAIM: &str = "of-claim";
/// An index of volumes that any claim may take, by their class; a volume without a class has the value `*`.
const FREE: &str = "free";
const NO_CLASS: &str = "*";

/// Binds claims and volumes. Each plan is for one volume or one claim; the key of a claim has a namespace, and the key
/// of a volume has none.
pub struct Binder {
    /// After this many seconds an unbound claim is planned again, which writes its Event again.
    period_seconds: i64,
    provisioning: bool,
    host_path: bool,
    /// For each claim, the free volume because of which the claim was planned last. So a further free volume causes a
    /// plan for another claim.
    offered: BTreeMap<Key, Key>,
}

impl Binder {
    pub fn new(settings: &Settings) -> Binder {
        Binder {
            period_seconds: settings.claim_binder_period_seconds,
            provisioning: settings.dynamic_provisioning,
            host_path: settings.host_path_provisioner,
            offered: BTreeMap::new(),
        }
    }
}

impl Controller for Binder {
    fn name(&self) -> &'static str {
        "persistentvolume-binder-controller"
    }

    fn queue(&self) -> &'static str {
        "claims"
    }

    fn account(&self) -> &'static str {
        "persistent-volume-binder"
    }

    fn component(&self) -> &'static str {
        "persistentvolume-controller"
    }

    fn resources(&self) -> Vec<Resource> {
        vec![
            PersistentVolume::resource().clone(),
            PersistentVolumeClaim::resource().clone(),
            StorageClass::resource().clone(),
            Pod::resource().clone(),
        ]
    }

    fn indexes(&self, world: &mut World) {
        index_pods(world);
        world.index::<PersistentVolume>(OF_CLAIM, |object| {
            let claim = object.view::<PersistentVolume>().and_then(claim_key);
            claim.map(|key| key.to_string().as_str().into()).into_iter().collect()
        });
        world.index::<PersistentVolume>(FREE, |object| {
            let volume = object.view::<PersistentVolume>().filter(|volume| matching::is_free(volume));
            volume.map(|volume| volume.class(&object.meta).into()).into_iter().collect()
        });
        world.index::<PersistentVolumeClaim>(NAMING, |object| {
            let claim = object.view::<PersistentVolumeClaim>();
            let named = claim.map(|claim| &claim.spec.volume_name).filter(|name| !name.is_empty());
            named.map(|name| Text::from(name.as_str())).into_iter().collect()
        });
        world.index::<PersistentVolumeClaim>(UNBOUND, |object| {
            let Some(claim) = object.view::<PersistentVolumeClaim>() else { return Vec::new() };
            let is_bound = object.meta.annotation(BIND_COMPLETED).is_some();
            if is_bound { Vec::new() } else { vec![Text::from(claim.class(&object.meta).unwrap_or(NO_CLASS))] }
        });
    }

    fn concerns(&mut self, world: &World, change: &Change, keys: &mut Keys) {
        if change.is_of::<PersistentVolumeClaim>() {
            keys.add(change.key.clone());
            let sides = [change.before::<PersistentVolumeClaim>(), change.after()];
            let volumes = sides.iter().flatten().map(|claim| &claim.spec.volume_name);
            volumes.filter(|name| !name.is_empty()).for_each(|name| keys.add(Key::cluster(name)));
            // The claim may have been deleted before it named the volume that was provisioned for it, so the volumes
            // whose `claimRef` names the claim are planned, too.
            let volumes = world.indexed::<PersistentVolume>(OF_CLAIM, &change.key.to_string());
            volumes.for_each(|volume| keys.add(volume.object.key()));
            let decided = change.after::<PersistentVolumeClaim>().is_none_or(|claim| !is_open(world, claim));
            if decided && let Some(offered) = self.offered.remove(&change.key) {
                // The claim no longer needs the free volume because of which it was planned, so that volume is offered
                // to another claim.
                world.get::<PersistentVolume>(&offered).into_iter().for_each(|volume| self.offer(world, volume, keys));
            }
        } else if change.is_of::<PersistentVolume>() {
            keys.add(change.key.clone());
            let sides = [change.before::<PersistentVolume>(), change.after()];
            sides.iter().flatten().filter_map(|volume| claim_key(volume)).for_each(|key| keys.add(key));
            // Claims may have named this volume before it was created.
            let naming = world.indexed::<PersistentVolumeClaim>(NAMING, &change.key.name);
            naming.for_each(|claim| keys.add(claim.object.key()));
            change.after::<PersistentVolume>().into_iter().for_each(|volume| self.offer(world, volume, keys));
        } else if change.is_of::<StorageClass>() {
            wake(world, &change.key.name, keys);
            let sides = [change.before::<StorageClass>(), change.after()];
            if sides.iter().flatten().any(claim::is_default) {
                wake(world, NO_CLASS, keys);
            }
        }
    }

    fn plan(&mut self, world: &World, key: &Key, stamp: Stamp) -> Plan {
        let mut plan = Plan::default();
        if key.namespace.is_empty() {
            if let Some(volume) = world.get::<PersistentVolume>(key) {
                self.plan_volume(world, volume, &mut plan);
            }
        } else if let Some(claim) = world.get::<PersistentVolumeClaim>(key) {
            self.plan_claim(world, claim, &mut plan);
            if claim.status.phase != "Bound" && !plan.events.is_empty() {
                plan.requeue_at(stamp.time.plus_seconds(self.period_seconds));
            }
        }
        plan
    }
}

impl Binder {
    /// Plans one claim that could be bound to a free volume. Other claims need no plan, because only one claim can get
    /// the volume.
    fn offer(&mut self, world: &World, volume: Viewed<'_, PersistentVolume>, keys: &mut Keys) {
        if !matching::is_free(&volume) {
            return;
        }
        let class = volume.class(volume.meta());
        let unnamed = class.is_empty().then(|| world.indexed::<PersistentVolumeClaim>(UNBOUND, NO_CLASS));
        let mut claims = world.indexed::<PersistentVolumeClaim>(UNBOUND, class).chain(unnamed.into_iter().flatten());
        let found = claims.find(|claim| {
            let known = self.offered.get(&claim.object.key()).filter(|known| **known != volume.object.key());
            let known = known.and_then(|known| world.get::<PersistentVolume>(known));
            known.is_none_or(|known| !matching::is_free(&known))
                && is_open(world, *claim)
                && matching::could_take(volume, *claim)
        });
        if let Some(claim) = found {
            keys.add(claim.object.key());
            self.offered.insert(claim.object.key(), volume.object.key());
        }
    }
}

/// Whether a claim is unbound and may be bound to a free volume now.
fn is_open(world: &World, claim: Viewed<'_, PersistentVolumeClaim>) -> bool {
    let is_bound = claim.meta().annotation(BIND_COMPLETED).is_some() || !claim.spec.volume_name.is_empty();
    !is_bound && !claim::is_delayed(world, claim)
}

/// Whether the annotations of a StorageClass make it the default class.
pub fn is_default_class(annotations: &Value) -> bool {
    [DEFAULT_CLASS, BETA_DEFAULT_CLASS].iter().any(|name| annotations[*name] == "true")
}

fn wake(world: &World, class: &str, keys: &mut Keys) {
    world.indexed::<PersistentVolumeClaim>(UNBOUND, class).for_each(|claim| keys.add(claim.object.key()));
}

/// The write that sets a volume's phase; `None` if the volume has this phase already.
fn volume_phase(volume: Viewed<'_, PersistentVolume>, phase: &str, message: &str) -> Option<Action> {
    if volume.status.phase == phase {
        return None;
    }
    Subject::from(volume).status(|status| {
        status.insert("phase", phase.into());
        match message {
            "" => drop(status.remove("message")),
            message => drop(status.insert("message", message.into())),
        }
    })
}

/// Sets an annotation in an object's document.
fn annotate(document: &mut Value, name: &str, value: &str) {
    if !document["metadata"]["annotations"].is_object() {
        document["metadata"]["annotations"] = json!({});
    }
    document["metadata"]["annotations"][name] = value.into();
}

fn drop_annotation(document: &mut Value, name: &str) {
    if let Some(annotations) = document["metadata"]["annotations"].as_object_mut() {
        annotations.remove(name);
    }
}
