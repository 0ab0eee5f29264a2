//! Ownership by selector: an owner adopts the objects that it selects and that have no owner, and releases the objects
//! that it no longer selects.

use crate::subject::Subject;
use holdfast_value::json;
use holdfast_world::selector::{labelled_places, selected_places};
use holdfast_world::{Action, Change, Key, Keys, Meta, OwnerReference, Selector, Verb, View, Viewed, World};

/// An index of objects without a controller, by the values under which selectors look the objects up.
const ORPHANS: &str = "orphans";
/// The index of owners by the labels that they select.
const SELECTORS: &str = "selectors";

/// Indexes objects without a controller, so that an owner finds the objects that its selector selects.
pub fn index_orphans<V: View>(world: &mut World) {
    world.index::<V>(ORPHANS, |object| match object.meta.controller() {
        Some(_) => Vec::new(),
        None => labelled_places(&object.meta),
    });
}

/// Indexes owners by the labels that they select, so that the owners that select an object are found.
pub fn index_selectors<K: ControllerRefManager>(world: &mut World) {
    world.index::<K>(SELECTORS, |object| match object.view::<K>() {
        Some(manager) => selected_places(&object.meta.namespace, manager.selector()),
        None => Vec::new(),
    });
}

/// A kind whose objects own the objects that their selector selects.
pub trait ControllerRefManager: View {
    fn selector(&self) -> &Selector;
}

/// The objects of one kind that belong to an owner after its plan is carried out.
pub struct Claims<'w, V> {
    /// The objects of the owner, including the objects that `actions` adopt.
    pub mine: Vec<Viewed<'w, V>>,
    /// The writes that adopt or release objects.
    pub actions: Vec<Action>,
}

/// Claims the candidates that `selects` selects. Candidates belong to the owner or have no controller.
pub fn claim<'w, V: View>(
    owner: Subject<'_>,
    candidates: impl Iterator<Item = Viewed<'w, V>>,
    selects: impl Fn(&Meta) -> bool,
) -> Claims<'w, V> {
    let mut claims = Claims { mine: Vec::new(), actions: Vec::new() };
    let is_leaving = owner.object.meta.is_deleting();
    for seen in candidates {
        let meta = seen.meta();
        match (meta.controller(), selects(meta)) {
            (Some(controller), true) if controller.uid == owner.object.meta.uid => claims.mine.push(seen),
            (Some(controller), false) if controller.uid == owner.object.meta.uid && !is_leaving => {
                claims.actions.push(release(owner, seen));
            }
            (None, true) if !is_leaving && !meta.is_deleting() => {
                claims.actions.push(adopt(owner, seen));
                claims.mine.push(seen);
            }
            _ => {}
        }
    }
    claims
}

/// The objects of a kind that an owner controls, and the objects without a controller that its selector may select.
pub fn candidates<'w, V: View>(
    world: &'w World,
    owner: Subject<'_>,
    selector: &Selector,
) -> impl Iterator<Item = Viewed<'w, V>> {
    let meta = &owner.object.meta;
    owned(world, &meta.uid).chain(world.selectable::<V>(ORPHANS, &meta.namespace, selector))
}

/// The objects of a kind whose controller is the object with this uid.
pub fn owned<'w, V: View>(world: &'w World, uid: &str) -> impl Iterator<Item = Viewed<'w, V>> {
    world.owned::<V>(uid).filter(move |seen| seen.meta().is_controlled_by(uid))
}

fn adopt<V: View>(owner: Subject<'_>, seen: Viewed<'_, V>) -> Action {
    let meta = seen.meta();
    let patch = json!({"metadata": {
        "uid": meta.uid,
        "resourceVersion": meta.resource_version,
        "ownerReferences": [owner.reference()],
    }});
    Action::new(V::resource(), seen.object.key(), Verb::StrategicPatch(patch))
}

fn release<V: View>(owner: Subject<'_>, seen: Viewed<'_, V>) -> Action {
    let patch = json!({"metadata": {
        "uid": seen.meta().uid,
        "ownerReferences": [{"$patch": "delete", "uid": owner.object.meta.uid}],
    }});
    Action::new(V::resource(), seen.object.key(), Verb::StrategicPatch(patch))
}

/// Whether a reference names this kind, in any version.
pub fn names_kind<V: View>(owner: &OwnerReference) -> bool {
    V::resource().is_named(&owner.api_version, &owner.kind)
}

/// Adds the owners of kind `V` that a change of an object concerns: its controllers before and after the change, and,
/// if the object has no controller now, all owners that select it.
pub fn concerned<V: ControllerRefManager>(world: &World, change: &Change, keys: &mut Keys) {
    let metas = [&change.before, &change.after].map(|object| object.as_ref().map(|object| &object.meta));
    for owner in metas.into_iter().flatten().filter_map(Meta::controller).filter(|owner| names_kind::<V>(owner)) {
        keys.add(Key::new(&change.key.namespace, &owner.name));
    }
    let [before, after] = metas;
    let Some(after) = after.filter(|meta| meta.controller().is_none() && !meta.is_deleting()) else { return };
    let is_new = before.is_none_or(|before| before.labels != after.labels || before.controller().is_some());
    if is_new {
        let selecting = world.selecting::<V>(SELECTORS, after, V::selector);
        selecting.iter().for_each(|seen| keys.add(seen.object.key()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_value::Value;
    use holdfast_world::Time;
    use holdfast_world::views::{Pod, ReplicaSet};

    fn show<V: View>(world: &mut World, name: &str, owner: Option<&str>, labels: Value) {
        let owners: Vec<Value> = owner
            .map(|uid| json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": uid, "controller": true}))
            .into_iter()
            .collect();
        let metadata =
            json!({"name": name, "namespace": "n", "uid": name, "labels": labels, "ownerReferences": owners});
        let json = json!({"metadata": metadata, "spec": {"selector": {"matchLabels": labels}}}).to_string();
        world.apply(V::resource(), Key::new("n", name), Some(json.into()), 1, Time::from_second(0));
    }

    #[test]
    fn an_owner_looks_at_its_own_and_at_orphans_that_it_may_select() {
        let mut world = World::default();
        world.track::<Pod>();
        world.track::<ReplicaSet>();
        index_orphans::<Pod>(&mut world);
        index_selectors::<ReplicaSet>(&mut world);
        for set in 0..100 {
            let labels = json!({"set": set.to_string()});
            show::<ReplicaSet>(&mut world, &format!("r{set}"), None, labels.clone());
            for pod in 0..10 {
                show::<Pod>(&mut world, &format!("p{set}-{pod}"), Some(&format!("r{set}")), labels.clone());
            }
            show::<Pod>(&mut world, &format!("orphan-{set}"), None, labels);
        }
        let set = world.get::<ReplicaSet>(&Key::new("n", "r7")).expect("a set");
        let of = |selector: &Selector| candidates::<Pod>(&world, set.into(), selector).count();
        assert_eq!(of(set.selector()), 11, "of 1,100 pods");
        assert_eq!(of(&Selector::parse("set!=7")), 110, "nothing tells where such pods are");
        assert_eq!(of(&Selector::nothing()), 10);
    }

    #[test]
    fn what_is_nobodys_concerns_those_that_select_it() {
        let mut world = World::default();
        world.track::<Pod>();
        world.track::<ReplicaSet>();
        index_selectors::<ReplicaSet>(&mut world);
        for set in 0..100 {
            show::<ReplicaSet>(&mut world, &format!("r{set}"), None, json!({"set": set.to_string()}));
        }
        let labels = json!({"set": "7", "more": "x"});
        let json = json!({"metadata": {"name": "p", "namespace": "n", "uid": "p", "labels": labels}}).to_string();
        let change = world.apply(Pod::resource(), Key::new("n", "p"), Some(json.into()), 1, Time::from_second(0));
        let (mut keys, before) = (Keys::default(), world.reads());
        concerned::<ReplicaSet>(&world, &change, &mut keys);
        assert_eq!(keys.now.iter().map(Key::to_string).collect::<Vec<_>>(), ["n/r7"]);
        assert!(world.reads() - before <= 2, "of 100 sets {} are looked at", world.reads() - before);
    }
}
