//! The garbage collector, which deletes objects whose owners no longer exist, and finishes the deletion of owners that
//! wait for their dependents.
//!
//! A key is the uid of an object of any kind. The world's index of owners has the dependents of an object, so the
//! garbage collector keeps no graph of its own. An owner that is missing in the world counts as absent only if the
//! server does not find the owner either, because the world may be older than the server's state.

mod references;

#[cfg(test)]
mod tests;

use crate::planted::{Bug, planted};
use holdfast_value::{Value, json};
use holdfast_world::{
    Action, Change, Controller, ExtraKinds, Key, Keys, Meta, Object, Plan, PlannedEvent, Propagation, Resource, Stamp,
    Verb, World,
};
use references::{OwnerState, References};

pub const FOREGROUND: &str = "foregroundDeletion";
pub const ORPHAN: &str = "orphan";
/// How many objects one plan writes at the same time at most.
const TOGETHER_MAX: usize = 500;

#[derive(Debug, Default)]
pub struct GarbageCollector;

impl Controller for GarbageCollector {
    fn name(&self) -> &'static str {
        "garbage-collector-controller"
    }

    fn queue(&self) -> &'static str {
        "garbage_collector_attempt_to_delete"
    }

    fn account(&self) -> &'static str {
        "generic-garbage-collector"
    }

    fn resources(&self) -> Vec<Resource> {
        Vec::new()
    }

    fn extra_kinds(&self) -> ExtraKinds {
        ExtraKinds::Everything
    }

    fn concerns(&mut self, world: &World, change: &Change, keys: &mut Keys) {
        let (before, after) = (change.before.as_deref(), change.after.as_deref());
        if let Some(before) = before.filter(|before| after.is_none_or(|after| after.meta.uid != before.meta.uid)) {
            dependents(world, before).for_each(|(_, dependent)| keys.add(key(dependent)));
            waiting_owners(world, &before.meta).for_each(|owner| keys.add(key(owner)));
        }
        let Some(after) = after else { return };
        let before = before.filter(|before| before.meta.uid == after.meta.uid);
        if is_deleting_dependents(&after.meta) {
            keys.add(key(after));
            if before.is_none_or(|before| !is_deleting_dependents(&before.meta)) {
                dependents(world, after).for_each(|(_, dependent)| keys.add(key(dependent)));
            }
        } else if is_orphaning(&after.meta) {
            keys.add(key(after));
        }
        if let Some(before) = before.filter(|before| before.meta.owner_references != after.meta.owner_references) {
            waiting_owners(world, &before.meta).for_each(|owner| keys.add(key(owner)));
        }
        if !References::of(world, &change.resource, after).are_all_solid() {
            keys.add(key(after));
        }
    }

    fn plan(&mut self, world: &World, key: &Key, _: Stamp) -> Plan {
        let Some((resource, object)) = world.by_uid(&key.name) else { return Plan::default() };
        let meta = &object.meta;
        if is_orphaning(meta) {
            return orphan(world, resource, object);
        }
        if is_deleting_dependents(meta) {
            return finish_foreground(world, resource, object);
        }
        match meta.is_deleting() {
            true => Plan::default(),
            false => collect(world, resource, object),
        }
    }
}

/// The plan for an object, from the state of its owners.
fn collect(world: &World, resource: &Resource, object: &Object) -> Plan {
    let references = References::of(world, resource, object);
    let mut plan = Plan { events: references.notes(world, resource, object), ..Plan::default() };
    if references.is_there(|found| matches!(found, OwnerState::OtherScope)) {
        plan.skipped.push("an object of the whole cluster cannot be owned by one of a namespace".to_owned());
        return plan;
    }
    if references.is_there(|found| matches!(found, OwnerState::UnknownKind)) {
        plan.skipped.push("nobody knows the kind of an owner".to_owned());
        plan.unready = true;
        return plan;
    }
    let absent = references.absent();
    let is_kept = references.is_there(|found| matches!(found, OwnerState::Solid));
    if is_kept && (references.are_all_solid() || !planted(Bug::OneOwnerIsEnough)) {
        let lost = references.lost();
        if !lost.is_empty() {
            let patch = without_owners(object, |owner| owner["uid"].as_str().is_some_and(|uid| lost.contains(uid)));
            plan.then(Action::new(resource, object.key(), patch).unless(absent));
        }
        return plan;
    }
    if object.meta.owner_references.is_empty() {
        return plan;
    }
    let waits = references.is_there(|found| matches!(found, OwnerState::Waiting));
    let owned: Vec<&Object> = dependents(world, object).map(|(_, owned)| owned).collect();
    let propagation = if waits && !owned.is_empty() {
        let is_blocking = object.meta.owner_references.iter().any(|owner| owner.block_owner_deletion);
        if is_blocking && owned.iter().any(|owned| is_deleting_dependents(&owned.meta)) {
            // If objects own each other, each waits for the other to be deleted first. So the references of this object
            // are changed so that they no longer block the deletion of its owners.
            plan.then(Action::new(resource, object.key(), unblocking(object)));
            return plan;
        }
        Propagation::Foreground
    } else if object.meta.has_finalizer(ORPHAN) {
        Propagation::Orphan
    } else if object.meta.has_finalizer(FOREGROUND) {
        Propagation::Foreground
    } else {
        Propagation::Background
    };
    let delete = Verb::Delete {
        uid: Some(object.meta.uid.as_str().into()),
        version: Some(object.meta.resource_version.as_str().into()),
        propagation: Some(propagation),
        grace_seconds: None,
    };
    plan.then(Action::new(resource, object.key(), delete).unless(absent));
    plan
}

/// Removes the reference to the owner from all of its dependents, and then the finalizer `orphan` from the owner.
fn orphan(world: &World, resource: &Resource, object: &Object) -> Plan {
    let mut plan = Plan::default();
    let release = |(resource, owned): (&Resource, &Object)| {
        let patch = without_owners(owned, |owner| owner["uid"] == *object.meta.uid);
        Action::new(resource, owned.key(), patch)
    };
    let owned = dependents(world, object).filter(|_| !planted(Bug::OrphansForgotten));
    let mut actions: Vec<Action> = owned.map(release).collect();
    while !actions.is_empty() {
        let rest = actions.split_off(actions.len().min(TOGETHER_MAX));
        plan.together(std::mem::replace(&mut actions, rest));
    }
    plan.then(Action::new(resource, object.key(), without_finalizer(object, ORPHAN)));
    plan
}

/// Removes the finalizer `foregroundDeletion` of an object that has no blocking dependents any more.
fn finish_foreground(world: &World, resource: &Resource, object: &Object) -> Plan {
    let mut plan = Plan::default();
    let uid = &object.meta.uid;
    let is_blocking = |owned: &Object| {
        owned.meta.owner_references.iter().any(|owner| owner.uid == *uid && owner.block_owner_deletion)
    };
    let owned = dependents(world, object).map(|(_, owned)| owned);
    match owned.filter(|owned| is_blocking(owned) && !planted(Bug::OwnersGoFirst)).count() {
        0 => plan.then(Action::new(resource, object.key(), without_finalizer(object, FOREGROUND))),
        count => plan.skipped.push(format!("{count} objects that it owns have to go first")),
    }
    plan
}

/// The key of an object: its namespace and its uid. The key has the namespace because the queue treats namespaces
/// fairly.
fn key(object: &Object) -> Key {
    Key::new(&object.meta.namespace, &object.meta.uid)
}

/// The dependents of an object, except for the object itself. A dependent in another namespace does not count:
/// otherwise a user who knows a uid could block the deletion of an object in another namespace.
fn dependents<'a>(world: &'a World, object: &'a Object) -> impl Iterator<Item = (&'a Resource, &'a Object)> {
    let Meta { uid, namespace, .. } = &object.meta;
    let owned = world.owned_by(uid).map(|(resource, owned)| (resource, &**owned));
    owned.filter(move |(_, owned)| {
        owned.meta.uid != *uid && (namespace.is_empty() || owned.meta.namespace == *namespace)
    })
}

/// The owners of an object that are being deleted and wait for their dependents.
fn waiting_owners<'a>(world: &'a World, meta: &'a Meta) -> impl Iterator<Item = &'a Object> {
    let owners = meta.owner_references.iter().filter_map(|owner| Some(&**world.by_uid(&owner.uid)?.1));
    owners.filter(|owner| is_deleting_dependents(&owner.meta) || is_orphaning(&owner.meta))
}

fn is_deleting_dependents(meta: &Meta) -> bool {
    meta.is_deleting() && meta.has_finalizer(FOREGROUND)
}

fn is_orphaning(meta: &Meta) -> bool {
    meta.is_deleting() && meta.has_finalizer(ORPHAN)
}

/// Removes the owner references for which `lost` is true. The patch has the object's version as a precondition, so that
/// it does not remove a reference that another writer has just added.
fn without_owners(object: &Object, lost: impl Fn(&Value) -> bool) -> Verb {
    let document = object.document();
    let owners = document["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
    let kept: Vec<Value> = owners.into_iter().filter(|owner| !lost(owner)).collect();
    patching(object, "ownerReferences", kept.into())
}

/// Sets `blockOwnerDeletion` to `false` in all owner references of an object.
fn unblocking(object: &Object) -> Verb {
    let mut owners = object.document()["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
    owners.iter_mut().for_each(|owner| owner["blockOwnerDeletion"] = false.into());
    patching(object, "ownerReferences", owners.into())
}

fn without_finalizer(object: &Object, finalizer: &str) -> Verb {
    let kept: Vec<&String> = object.meta.finalizers.iter().filter(|known| *known != finalizer).collect();
    patching(object, "finalizers", json!(kept))
}

fn patching(object: &Object, field: &str, value: Value) -> Verb {
    let Meta { uid, resource_version, .. } = &object.meta;
    let mut metadata = json!({"uid": uid, "resourceVersion": resource_version});
    metadata[field] = value;
    Verb::MergePatch(json!({ "metadata": metadata }))
}
