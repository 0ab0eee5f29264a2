//! Finds the owners that an object's owner references name.

use super::{PlannedEvent, is_deleting_dependents};
use holdfast_world::{Key, Object, OwnerReference, Resource, Text, World};
use std::collections::BTreeSet;

/// The owner references of one object, each with the state of its owner.
pub(super) struct References<'a>(Vec<Reference<'a>>);

struct Reference<'a> {
    owner: &'a OwnerReference,
    found: OwnerState,
    /// The resource and key of the owner; `None` if no resource of the owner's kind is known.
    place: Option<(Resource, Key)>,
}

pub(super) enum OwnerState {
    /// The owner exists.
    Solid,
    /// The owner is being deleted and waits until its dependents are deleted.
    Waiting,
    /// The owner does not exist, or another object has its name.
    Absent,
    UnknownKind,
    /// The owner's kind is namespaced, but the object with the reference is cluster-scoped, so the reference is
    /// invalid.
    OtherScope,
}

impl<'a> References<'a> {
    pub fn of(world: &World, resource: &Resource, object: &'a Object) -> References<'a> {
        References(object.meta.owner_references.iter().map(|owner| find(world, resource, object, owner)).collect())
    }

    pub fn is_there(&self, is_meant: impl Fn(&OwnerState) -> bool) -> bool {
        self.0.iter().any(|reference| is_meant(&reference.found))
    }

    pub fn are_all_solid(&self) -> bool {
        self.0.iter().all(|reference| matches!(reference.found, OwnerState::Solid))
    }

    /// The uids of owners that are absent or wait for their dependents. If the object has another owner, its references
    /// to these owners are removed.
    pub fn lost(&self) -> BTreeSet<&'a str> {
        let lost =
            self.0.iter().filter(|reference| matches!(reference.found, OwnerState::Absent | OwnerState::Waiting));
        lost.map(|reference| reference.owner.uid.as_str()).collect()
    }

    /// The absent owners whose kind is known: the resource, key and uid of each.
    pub fn absent(&self) -> Vec<(Resource, Key, Text)> {
        let absent = self.0.iter().filter(|reference| matches!(reference.found, OwnerState::Absent));
        let place = |reference: &Reference| {
            let (resource, key) = reference.place.clone()?;
            Some((resource, key, reference.owner.uid.as_str().into()))
        };
        absent.filter_map(place).collect()
    }

    /// Events about owners in another namespace. Such a reference does not count, and a user may have set it by
    /// mistake.
    pub fn notes(&self, world: &World, resource: &Resource, object: &Object) -> Vec<PlannedEvent> {
        let elsewhere = |reference: &&Reference| {
            let there = world.by_uid(&reference.owner.uid);
            there
                .is_some_and(|(resource, owner)| resource.namespaced() && owner.meta.namespace != object.meta.namespace)
        };
        let note = |reference: &Reference| {
            let OwnerReference { api_version, kind, name, uid, .. } = reference.owner;
            let namespace = &object.meta.namespace;
            PlannedEvent {
                resource: resource.clone(),
                key: object.key(),
                uid: object.meta.uid.as_str().into(),
                version: object.meta.resource_version.as_str().into(),
                warning: true,
                reason: "OwnerRefInvalidNamespace",
                message: format!(
                    "ownerRef [{api_version}/{kind}, namespace: {namespace}, name: {name}, uid: {uid}] does not exist in \
                     namespace {namespace:?}"
                ),
                part: String::new(),
                host: String::new(),
            }
        };
        self.0.iter().filter(elsewhere).map(note).collect()
    }
}

fn find<'a>(world: &World, resource: &Resource, object: &Object, owner: &'a OwnerReference) -> Reference<'a> {
    let (group, version) = owner.api_version.split_once('/').unwrap_or(("", &owner.api_version));
    let Some(kind) = world.find_kind(group, version, &owner.kind) else {
        return Reference { owner, found: OwnerState::UnknownKind, place: None };
    };
    if kind.namespaced() && !resource.namespaced() {
        return Reference { owner, found: OwnerState::OtherScope, place: None };
    }
    let key = if kind.namespaced() { Key::new(&object.meta.namespace, &owner.name) } else { Key::cluster(&owner.name) };
    let found = match world.object(kind, &key) {
        Some(there) if there.meta.uid != owner.uid => OwnerState::Absent,
        Some(there) if is_deleting_dependents(&there.meta) => OwnerState::Waiting,
        Some(_) => OwnerState::Solid,
        None => OwnerState::Absent,
    };
    Reference { owner, found, place: Some((kind.clone(), key)) }
}
