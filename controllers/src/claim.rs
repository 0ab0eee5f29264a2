//! Whose an object is: adopting what is selected and nobody's, letting go of what is no longer selected.

use crate::subject::Subject;
use holdfast_world::{Action, Change, Key, Keys, Meta, Owner, Seen, Selector, Verb, View, World};
use serde_json::json;

/// The index of objects that nobody manages, by namespace.
const ORPHANS: &str = "orphans";

pub fn index_orphans<V: View>(world: &mut World) {
    world.index::<V>(ORPHANS, |object| match object.meta.controller() {
        Some(_) => Vec::new(),
        None => vec![object.meta.namespace.as_str().into()],
    });
}

/// A kind that manages what its selector selects.
pub trait Managing: View {
    fn selector(&self) -> &Selector;
}

/// What an owner manages of one kind.
pub struct Claims<'w, V> {
    /// Also those that the actions adopt.
    pub mine: Vec<Seen<'w, V>>,
    /// Adopt and release.
    pub actions: Vec<Action>,
}

/// Claims what `selects` selects of `candidates`, which are the owner's or nobody's.
pub fn claim<'w, V: View>(
    owner: Subject<'_>,
    candidates: impl Iterator<Item = Seen<'w, V>>,
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

/// What an owner has of a kind, and what nobody has in its namespace.
pub fn candidates<'w, V: View>(world: &'w World, owner: Subject<'_>) -> impl Iterator<Item = Seen<'w, V>> {
    let meta = &owner.object.meta;
    owned(world, &meta.uid).chain(world.indexed::<V>(ORPHANS, &meta.namespace))
}

/// What the object with this uid manages of a kind.
pub fn owned<'w, V: View>(world: &'w World, uid: &str) -> impl Iterator<Item = Seen<'w, V>> {
    world.owned::<V>(uid).filter(move |seen| seen.meta().is_controlled_by(uid))
}

fn adopt<V: View>(owner: Subject<'_>, seen: Seen<'_, V>) -> Action {
    let meta = seen.meta();
    let patch = json!({"metadata": {
        "uid": meta.uid,
        "resourceVersion": meta.resource_version,
        "ownerReferences": [owner.reference()],
    }});
    Action::new(V::resource(), seen.object.key(), Verb::StrategicPatch(patch))
}

fn release<V: View>(owner: Subject<'_>, seen: Seen<'_, V>) -> Action {
    let patch = json!({"metadata": {
        "uid": seen.meta().uid,
        "ownerReferences": [{"$patch": "delete", "uid": owner.object.meta.uid}],
    }});
    Action::new(V::resource(), seen.object.key(), Verb::StrategicPatch(patch))
}

/// Whether a reference is to an object of this kind, in whatever version.
pub fn names_kind<V: View>(owner: &Owner) -> bool {
    let group = owner.api_version.rsplit_once('/').map_or("", |(group, _)| group);
    owner.kind == V::resource().kind() && group == V::resource().group()
}

/// The managers of kind `V` that a change of what they manage concerns: whose it was, whose it is, and, where it is
/// nobody's, all that select it now.
pub fn concerned<V: Managing>(world: &World, change: &Change, keys: &mut Keys) {
    let metas = [&change.before, &change.after].map(|object| object.as_ref().map(|object| &object.meta));
    for owner in metas.into_iter().flatten().filter_map(Meta::controller).filter(|owner| names_kind::<V>(owner)) {
        keys.add(Key::new(&change.key.namespace, &owner.name));
    }
    let [before, after] = metas;
    let Some(after) = after.filter(|meta| meta.controller().is_none() && !meta.is_deleting()) else { return };
    let is_new = before.is_none_or(|before| before.labels != after.labels || before.controller().is_some());
    if is_new {
        let selecting = world.in_namespace::<V>(&change.key.namespace).filter(|seen| seen.selector().matches(after));
        selecting.for_each(|seen| keys.add(seen.object.key()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_world::Time;
    use holdfast_world::views::{Pod, ReplicaSet};
    use serde_json::Value;

    fn show<V: View>(world: &mut World, name: &str, owner: Option<&str>) {
        let owners: Vec<Value> = owner
            .map(|uid| json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": uid, "controller": true}))
            .into_iter()
            .collect();
        let metadata = json!({"name": name, "namespace": "n", "uid": name, "ownerReferences": owners});
        let json = json!({"metadata": metadata}).to_string();
        world.apply(V::resource(), Key::new("n", name), Some(json.into()), 1, Time::from_second(0));
    }

    #[test]
    fn an_owner_looks_at_its_own_and_at_orphans_alone() {
        let mut world = World::default();
        world.show::<Pod>();
        world.show::<ReplicaSet>();
        index_orphans::<Pod>(&mut world);
        for set in 0..100 {
            show::<ReplicaSet>(&mut world, &format!("r{set}"), None);
            for pod in 0..10 {
                show::<Pod>(&mut world, &format!("p{set}-{pod}"), Some(&format!("r{set}")));
            }
        }
        show::<Pod>(&mut world, "orphan", None);
        let set = world.get::<ReplicaSet>(&Key::new("n", "r7")).expect("a set");
        assert_eq!(candidates::<Pod>(&world, set.into()).count(), 11, "of 1,001 pods");
    }
}
