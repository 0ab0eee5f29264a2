//! The objects that a component sees, at one version of the cluster, with indexes.

use crate::resource::Decode;
use crate::view::Viewed;
use crate::{Key, Object, Resource, Text, Time, View, view, work};
use holdfast_core::object::Body;
use imbl::{OrdMap, OrdSet};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::num::NonZero;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread;

/// The objects that a component sees. The only owner of a world applies changes between plans, so a plan sees one
/// version. A copy shares all data with the original. A plan that takes long uses a copy, so that changes need not wait
/// for the plan.
#[derive(Default, Clone)]
pub struct World {
    collections: BTreeMap<Resource, Collection>,
    /// The resource and the key of each object, by the object's UID.
    uids: OrdMap<Text, (Resource, Key)>,
    /// The objects that have an owner, by the UID of the owner.
    owned: OrdMap<Text, OrdMap<(Resource, Key), Arc<Object>>>,
    indexes: HashMap<Resource, Vec<Index>>,
    decoders: HashMap<Resource, Decode>,
    served: Option<Arc<Served>>,
    /// A version up to which the world contains all changes, whatever their resource is.
    reached: u64,
    /// How many objects were read. Tests use this number to measure the cost of a change.
    reads: Cell<u64>,
}

/// The kinds that the server serves, each with its group and version: group, version, kind.
pub type Served = BTreeSet<(Text, Text, Text)>;

/// Returns the values under which an object is found in an index.
pub type Indexer = fn(&Object) -> Vec<Text>;

/// The objects of a resource by the values that the index's indexer returns for them.
#[derive(Clone)]
struct Index {
    name: &'static str,
    indexer: Indexer,
    found: OrdMap<Text, OrdSet<Key>>,
}

#[derive(Default, Clone)]
struct Collection {
    objects: OrdMap<Key, Arc<Object>>,
    version: u64,
}

/// One object before and after a change. If the object exists neither before nor after the change, both fields are
/// `None`.
#[derive(Clone)]
pub struct Change {
    pub resource: Resource,
    pub key: Key,
    pub before: Option<Arc<Object>>,
    pub after: Option<Arc<Object>>,
}

impl Change {
    /// The object before the change; `None` if it did not exist, or if it is of another kind.
    pub fn before<V: View>(&self) -> Option<Viewed<'_, V>> {
        Viewed::of(self.before.as_ref()?)
    }

    pub fn after<V: View>(&self) -> Option<Viewed<'_, V>> {
        Viewed::of(self.after.as_ref()?)
    }

    /// The newest state of the object: its state after the change. If the object was deleted, its state before the
    /// change.
    pub fn newest(&self) -> Option<&Arc<Object>> {
        self.after.as_ref().or(self.before.as_ref())
    }

    pub fn is_of<V: View>(&self) -> bool {
        self.resource == *V::resource()
    }
}

/// Decodes an object with its view; `None` if its metadata cannot be decoded.
fn decode(view: Option<Decode>, body: Body, seen: Time) -> Option<Object> {
    let bytes = body.bytes();
    let (meta, view) = match view {
        Some(decode) => decode(&bytes)?,
        None => view::decode_meta_only(&bytes)?,
    };
    Some(Object { meta, received_at: seen, body, view })
}

/// If there are at least this many objects for each thread, further threads decode them.
const SHARE_MIN: usize = 1 << 12;

/// Decodes many objects on all processors, because decoding the pods of a cluster takes most of the time that
/// controllers need to start.
fn decode_all(view: Option<Decode>, objects: &[(Key, Body, u64)], seen: Time) -> Vec<Option<Arc<Object>>> {
    let decode_some = move |objects: &[(Key, Body, u64)]| -> Vec<_> {
        objects.iter().map(|(_, body, _)| decode(view, body.clone(), seen).map(Arc::new)).collect()
    };
    let processors = thread::available_parallelism().map_or(1, NonZero::get);
    let share = objects.len().div_ceil(processors).max(SHARE_MIN);
    let (own, others) = objects.split_at(share.min(objects.len()));
    thread::scope(|scope| {
        let start = |some| (some, thread::Builder::new().spawn_scoped(scope, move || decode_some(some)));
        let others: Vec<_> = others.chunks(share).map(start).collect();
        let mut all = decode_some(own);
        for (some, thread) in others {
            all.append(&mut match thread {
                Ok(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
                // The operating system provides no further thread, so this thread decodes the objects of that thread.
                Err(_) => decode_some(some),
            });
        }
        all
    })
}

impl World {
    /// Makes the world contain the objects of this kind, with their view. The caller must call this function before it
    /// applies any object.
    pub fn track<V: View>(&mut self) {
        self.track_resource(V::resource());
    }

    /// Like [`World::track`], for a resource. If the resource has a view, its objects have this view; otherwise they
    /// have only their metadata.
    pub fn track_resource(&mut self, resource: &Resource) {
        if let Some(decode) = resource.decode() {
            self.decoders.insert(resource.clone(), decode);
        }
        self.collections.entry(resource.clone()).or_default();
    }

    /// Whether the world contains objects of this resource.
    pub fn tracks(&self, resource: &Resource) -> bool {
        self.collections.contains_key(resource)
    }

    /// Indexes the objects of a kind by the values that `indexer` returns for them. The caller must call this function
    /// before it applies any object.
    pub fn index<V: View>(&mut self, name: &'static str, indexer: Indexer) {
        let indexes = self.indexes.entry(V::resource().clone()).or_default();
        if indexes.iter().all(|known| known.name != name) {
            indexes.push(Index { name, indexer, found: OrdMap::new() });
        }
    }

    /// Applies one version of an object. `body` is `None` if the object was deleted. `version` is the version of this
    /// change; a deletion has a version, too.
    pub fn apply(&mut self, resource: &Resource, key: Key, body: Option<Body>, version: u64, seen: Time) -> Change {
        let after = body.and_then(|body| decode(self.decoders.get(resource).copied(), body, seen)).map(Arc::new);
        let before = self.collection(resource).objects.get(&key).cloned();
        self.update_indexes(resource, &key, before.as_ref(), after.as_ref());
        let collection = self.collection(resource);
        collection.version = collection.version.max(version);
        match &after {
            Some(after) => collection.objects.insert(key.clone(), after.clone()),
            None => collection.objects.remove(&key),
        };
        Change { resource: resource.clone(), key, before, after }
    }

    /// Replaces all objects of a resource by a list, in which each object has its version. The objects that are not in
    /// the list were deleted. Returns the changes.
    pub fn replace(
        &mut self,
        resource: &Resource,
        objects: Vec<(Key, Body, u64)>,
        version: u64,
        seen: Time,
    ) -> Vec<Change> {
        self.reach(resource, version);
        if self.collection(resource).objects.is_empty() {
            return self.fill(resource, objects, seen);
        }
        let stays: BTreeSet<&Key> = objects.iter().map(|(key, ..)| key).collect();
        let collection = self.collection(resource);
        let gone: Vec<Key> = collection.objects.keys().filter(|key| !stays.contains(key)).cloned().collect();
        let mut changes: Vec<Change> =
            gone.into_iter().map(|key| self.apply(resource, key, None, version, seen)).collect();
        for (key, body, version) in objects {
            let known = self.object(resource, &key);
            if known.is_none_or(|known| known.body != body) {
                changes.push(self.apply(resource, key, Some(body), version, seen));
            }
        }
        changes
    }

    /// Like [`World::replace`], for a resource that has no objects yet: nothing is compared, and all objects are
    /// inserted at once.
    fn fill(&mut self, resource: &Resource, objects: Vec<(Key, Body, u64)>, seen: Time) -> Vec<Change> {
        let decoded = decode_all(self.decoders.get(resource).copied(), &objects, seen);
        let mut changes = Vec::with_capacity(objects.len());
        for ((key, ..), after) in objects.into_iter().zip(decoded) {
            self.update_indexes(resource, &key, None, after.as_ref());
            changes.push(Change { resource: resource.clone(), key, before: None, after });
        }
        let there = changes.iter().filter_map(|change| Some((change.key.clone(), change.after.clone()?)));
        self.collection(resource).objects = there.collect();
        changes
    }

    /// Removes a resource whose objects do not exist any more.
    pub fn untrack(&mut self, resource: &Resource) {
        self.collections.remove(resource);
    }

    /// Sets which kinds the server serves, and in which versions. Until the first call, every kind counts as served in
    /// all versions.
    pub fn set_served(&mut self, served: Served) {
        self.served = Some(Arc::new(served));
    }

    /// The resource of a kind in the world, in any version; `None` if the server does not serve the kind in the named
    /// version.
    pub fn find_kind(&self, group: &str, version: &str, kind: &str) -> Option<&Resource> {
        let named = || (group.into(), version.into(), kind.into());
        if self.served.as_ref().is_some_and(|served| !served.contains(&named())) {
            return None;
        }
        self.collections.keys().find(|resource| resource.group() == group && resource.kind() == kind)
    }

    fn collection(&mut self, resource: &Resource) -> &mut Collection {
        self.collections.entry(resource.clone()).or_default()
    }

    /// Updates the indexes after a change of an object. Most changes change only a status, so index values that are
    /// equal before and after the change are not touched.
    fn update_indexes(
        &mut self,
        resource: &Resource,
        key: &Key,
        before: Option<&Arc<Object>>,
        after: Option<&Arc<Object>>,
    ) {
        let here = || (resource.clone(), key.clone());
        let uid = |side: Option<&Arc<Object>>| side.map(|object| Text::from(object.meta.uid.as_str()));
        report_changed(uid(before), uid(after), |uid, is_there| match is_there {
            true => _ = self.uids.insert(uid, here()),
            false if self.uids.get(&uid) == Some(&here()) => _ = self.uids.remove(&uid),
            false => {}
        });
        let owners = |side: Option<&Arc<Object>>| side.map(|object| object.meta.owner_references.clone());
        let (was, is) = (owners(before), owners(after));
        if was != is {
            for owner in was.iter().flatten() {
                if let Some(owned) = self.owned.get_mut(owner.uid.as_str()) {
                    owned.remove(&here());
                    if owned.is_empty() {
                        self.owned.remove(owner.uid.as_str());
                    }
                }
            }
        }
        // The index of owners contains the objects themselves, so that the dependents of an owner need not be looked up
        // one by one.
        for (owner, object) in is.iter().flatten().zip(after.into_iter().cycle()) {
            match self.owned.get_mut(owner.uid.as_str()) {
                Some(owned) => _ = owned.insert(here(), object.clone()),
                None => _ = self.owned.entry(owner.uid.as_str().into()).or_default().insert(here(), object.clone()),
            }
        }
        for Index { indexer, found, .. } in self.indexes.get_mut(resource).into_iter().flatten() {
            let values = |side: Option<&Arc<Object>>| side.map_or_else(Vec::new, |object| indexer(object));
            report_changed(values(before), values(after), |value, is_there| {
                update_index(found, value, key.clone(), is_there)
            });
        }
    }

    /// The version that the world has reached for a resource. The world contains all changes of the resource up to this
    /// version.
    pub fn version(&self, resource: &Resource) -> u64 {
        self.collections.get(resource).map_or(0, |collection| collection.version).max(self.reached)
    }

    /// Records that the world contains all changes up to this version, whatever the resource.
    pub fn reach_all(&mut self, version: u64) {
        self.reached = self.reached.max(version);
    }

    /// Records that the world contains all changes of the resource up to this version. The version may belong to a
    /// change of another resource.
    pub fn reach(&mut self, resource: &Resource, version: u64) {
        let collection = self.collection(resource);
        collection.version = collection.version.max(version);
    }

    pub fn get<V: View>(&self, key: &Key) -> Option<Viewed<'_, V>> {
        Viewed::of(self.object(V::resource(), key)?)
    }

    pub fn object(&self, resource: &Resource, key: &Key) -> Option<&Arc<Object>> {
        self.count_read();
        self.collections.get(resource)?.objects.get(key)
    }

    /// The number of objects that were read since the world was created.
    pub fn reads(&self) -> u64 {
        self.reads.get()
    }

    fn count_read(&self) {
        self.reads.set(self.reads.get().wrapping_add(1));
        work::count(1);
    }

    /// All objects of a kind, sorted by key.
    pub fn all<V: View>(&self) -> impl Iterator<Item = Viewed<'_, V>> {
        self.objects(V::resource()).filter_map(Viewed::of)
    }

    pub fn objects(&self, resource: &Resource) -> impl Iterator<Item = &Arc<Object>> {
        let objects = self.collections.get(resource).into_iter().flat_map(|collection| collection.objects.values());
        objects.inspect(|_| self.count_read())
    }

    /// The objects of a kind in one namespace, sorted by name.
    pub fn in_namespace<V: View>(&self, namespace: &str) -> impl Iterator<Item = Viewed<'_, V>> {
        self.objects_in(V::resource(), namespace).filter_map(Viewed::of)
    }

    /// The objects of a resource in one namespace, sorted by name.
    pub fn objects_in(&self, resource: &Resource, namespace: &str) -> impl Iterator<Item = &Arc<Object>> {
        let first = Key::new(namespace, "");
        let collection = self.collections.get(resource);
        let objects = collection.into_iter().flat_map(move |collection| collection.objects.range(first.clone()..));
        let namespace: Text = namespace.into();
        let objects = objects.take_while(move |(key, _)| key.namespace == namespace).map(|(_, object)| object);
        objects.inspect(|_| self.count_read())
    }

    /// The resources whose objects the world contains, even if no object exists at present.
    pub fn resources(&self) -> impl Iterator<Item = &Resource> {
        self.collections.keys()
    }

    /// The object with this uid, and its resource.
    pub fn by_uid(&self, uid: &str) -> Option<(&Resource, &Arc<Object>)> {
        let (resource, key) = self.uids.get(uid)?;
        Some((resource, self.object(resource, key)?))
    }

    /// The objects of all kinds whose owner has this UID.
    pub fn owned_by(&self, uid: &str) -> impl Iterator<Item = (&Resource, &Arc<Object>)> {
        let owned = self.owned.get(uid).into_iter().flatten();
        owned.map(|((resource, _), object)| (resource, object)).inspect(|_| self.count_read())
    }

    /// The objects of a kind whose owner has this UID.
    pub fn owned<V: View>(&self, uid: &str) -> impl Iterator<Item = Viewed<'_, V>> {
        self.owned_by(uid).filter_map(|(_, object)| Viewed::of(object))
    }

    /// The objects of a kind that an index contains under a value.
    pub fn indexed<V: View>(
        &self,
        index: &'static str,
        value: &str,
    ) -> impl Iterator<Item = Viewed<'_, V>> + use<'_, V> {
        let keys = self.index_of::<V>(index).and_then(|index| index.found.get(value));
        keys.into_iter().flatten().filter_map(|key| self.get(key))
    }

    /// Whether an index contains no objects.
    pub(crate) fn index_is_empty<V: View>(&self, index: &'static str) -> bool {
        self.index_of::<V>(index).is_none_or(|index| index.found.is_empty())
    }

    fn index_of<V: View>(&self, name: &'static str) -> Option<&Index> {
        self.indexes.get(V::resource())?.iter().find(|index| index.name == name)
    }
}

/// If `before` and `after` differ, reports each value of `before` as removed and then each value of `after` as added.
fn report_changed<I: IntoIterator<Item = Text> + PartialEq>(before: I, after: I, mut tell: impl FnMut(Text, bool)) {
    if before != after {
        before.into_iter().for_each(|was| tell(was, false));
        after.into_iter().for_each(|is| tell(is, true));
    }
}

fn update_index(found: &mut OrdMap<Text, OrdSet<Key>>, value: Text, key: Key, is_there: bool) {
    if is_there {
        found.entry(value).or_default().insert(key);
    } else if let Some(keys) = found.get_mut(&value) {
        keys.remove(&key);
        if keys.is_empty() {
            found.remove(&value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::views::Pod;
    use holdfast_value::json;

    fn pod(number: usize) -> (Key, Body, u64) {
        let name = format!("pod-{number:06}");
        let labels = json!({"app": format!("app-{}", number % 3)});
        let pod = json!({"metadata": {"name": name, "uid": name, "labels": labels}, "spec": {"nodeName": format!("n-{number}")}});
        (Key::new("default", &name), Body::new(pod.to_string().into()), number as u64)
    }

    /// Decoding a list gives the same result with any number of threads.
    #[test]
    fn a_long_list_is_taken_in_as_one_object_after_the_other() {
        for count in [0, 1, SHARE_MIN - 1, SHARE_MIN, SHARE_MIN + 1, 2 * SHARE_MIN + 7] {
            let (resource, now) = (Pod::resource(), Time::from_second(0));
            let (mut whole, mut single) = (World::default(), World::default());
            whole.track::<Pod>();
            single.track::<Pod>();
            let news = whole.replace(resource, (0..count).map(pod).collect(), 7, now);
            let twin: Vec<_> = (0..count)
                .map(pod)
                .map(|(key, body, version)| single.apply(resource, key, Some(body), version, now))
                .collect();
            assert_eq!(news.len(), count);
            for (one, other) in news.iter().zip(&twin) {
                let (after, expected) = (one.after::<Pod>().expect("a pod"), other.after::<Pod>().expect("a pod"));
                assert_eq!((&one.key, &after.meta().name), (&other.key, &expected.meta().name));
                assert_eq!(&*after.meta().labels, &*expected.meta().labels);
                assert_eq!(after.spec.node_name, expected.spec.node_name);
                let found = whole.get::<Pod>(&one.key).expect("it is there");
                assert!(Arc::ptr_eq(found.object, after.object));
            }
        }
    }
}
