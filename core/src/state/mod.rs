//! The current state, a projection of the log. Its maps are persistent, so taking a snapshot copies only a pointer.

mod recent;

pub use recent::Recent;

use crate::admission::registered::Registered;
use crate::authz::rbac::RbacIndex;
use crate::authz::{Authorizer, Chain, Consulted, NodeGraph};
use crate::cached::Cached;
use crate::event::{Offset, Record};
use crate::kinds::custom::{self, Conversion};
use crate::kinds::{Claims, Kind, KindId, Registry};
use crate::object::meta::Document;
use crate::object::{Body, Draft, encode, meta, stored};
use crate::quota::Room;
use crate::ranked::RankedMap;
use crate::schema::schema;
use crate::select::find_label;
use crate::wire::protobuf;
use bytes::Bytes;
use holdfast_value::{CompactString, Map, Value};
use imbl::{OrdMap, OrdSet};
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// All objects of the server after the event at one offset. A clone is cheap, because it shares the content.
#[derive(Clone)]
pub struct State {
    /// The offset of the last event that was folded into this state.
    pub offset: Offset,
    pub registry: Arc<Registry>,
    pub rbac: RbacIndex,
    /// The webhooks and policies that are registered for writes.
    pub registered: Registered,
    /// The offset of the last event on a role or binding.
    pub rbac_offset: Offset,
    /// The node authorizer's graph; `None` if that authorizer is off.
    pub nodes: Option<NodeGraph>,
    pub definitions: Definitions,
    /// The names of the namespaces that are being deleted.
    pub terminating: OrdSet<Arc<str>>,
    /// The objects that expire some time after their last change. The key is the time of that change in milliseconds
    /// and its offset.
    pub(crate) expiring: OrdMap<(i64, Offset), (KindId, Arc<str>)>,
    collections: OrdMap<KindId, Collection>,
    /// Objects whose kind nothing defines, by storage path. A new CustomResourceDefinition with that storage path
    /// adopts them.
    orphans: OrdMap<Arc<str>, Collection>,
    /// Maps each claim (a value that only one object may hold, such as `ip/10.0.0.1`) to its holder, `resource/key`.
    claims: OrdMap<Arc<str>, Arc<str>>,
    /// The number of bytes that the objects of each namespace take, and the limits.
    pub room: Room,
    /// The parsed documents of the objects that were written last.
    pub recent: Arc<Recent>,
    /// The kinds whose objects are in other logs. Each has the offset of the last event of its log that was folded into
    /// this state.
    apart: OrdMap<KindId, Offset>,
}

/// The CustomResourceDefinitions with which the server is not finished.
#[derive(Clone, Default)]
pub struct Definitions {
    /// The offset of the last event on a CustomResourceDefinition.
    pub offset: Offset,
    /// The names of definitions that are being deleted, and of definitions that want the names of another definition.
    pub unsettled: OrdSet<Arc<str>>,
}

/// All objects of one kind, by key (`namespace/name`, or the name alone).
#[derive(Clone, Default)]
pub struct Collection {
    objects: RankedMap<Arc<str>, Arc<Entry>>,
}

/// An object at one version.
pub struct Entry {
    /// The object's canonical JSON in the hub version, with its `resourceVersion`, ended by a newline.
    body: Body,
    pub offset: Offset,
    /// The time at which the entry's event was accepted, in milliseconds since 1970.
    pub time_ms: i64,
    /// The number of bytes before `"metadata"`, which list items omit.
    head: u32,
    pub index: Index,
    forms: Cached<Option<Arc<Forms>>>,
}

/// Forms into which an object was converted. Each is made when it is first used, for one definition of the kind. It
/// depends only on the object and on this definition, and not on when it is made.
struct Forms {
    /// The offset since which the kind has this definition.
    since: Offset,
    /// The JSON in each version of the kind, then the Protobuf message of each version. Like objects, they are stored
    /// whole or packed.
    made: Box<[OnceLock<Body>]>,
}

/// The values of an object that selectors and claims read. They are extracted once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Index {
    /// The labels, sorted by key.
    pub labels: Box<[(Box<str>, Box<str>)]>,
    /// The values of the fields that field selectors can use, in the order in which the kind lists these fields.
    pub fields: Box<[Box<str>]>,
    pub claims: Box<[Arc<str>]>,
}

/// An event that was prepared for folding into a state.
#[derive(Clone)]
pub struct Change {
    pub offset: Offset,
    pub kind: KindId,
    pub key: Arc<str>,
    /// The object after the event; for a deletion, its last state.
    pub entry: Arc<Entry>,
    pub deleted: bool,
}

impl State {
    pub fn new(registry: Arc<Registry>) -> State {
        State {
            offset: Offset::ZERO,
            registry,
            rbac: RbacIndex::default(),
            registered: Registered::default(),
            rbac_offset: Offset::ZERO,
            nodes: None,
            definitions: Definitions::default(),
            terminating: OrdSet::new(),
            expiring: OrdMap::new(),
            collections: OrdMap::new(),
            orphans: OrdMap::new(),
            claims: OrdMap::new(),
            room: Room::default(),
            recent: Arc::default(),
            apart: OrdMap::new(),
        }
    }

    /// Adds the objects of `kinds` from the state of another log. These must be kinds from whose objects no other part
    /// of a state is derived: see [`Registry::apart`].
    pub fn join(&mut self, other: &State, kinds: &[KindId]) {
        for id in kinds {
            match other.collections.get(id) {
                Some(objects) => _ = self.collections.insert(*id, objects.clone()),
                None => _ = self.collections.remove(id),
            }
            self.apart.insert(*id, other.offset);
            if self.kind(*id).deletion.expires {
                self.expiring = other.expiring.clone();
            }
        }
        self.room.join(&other.room);
    }

    /// The offset of the last folded event of the log that contains the objects of this kind.
    pub fn offset_of(&self, kind: KindId) -> Offset {
        self.apart.get(&kind).copied().unwrap_or(self.offset)
    }

    /// Whether the objects of this kind are in another log than the main log.
    pub fn is_apart(&self, kind: KindId) -> bool {
        self.apart.contains_key(&kind)
    }

    /// Builds the graph of the node authorizer from the objects of this state. Later events keep the graph up to date.
    pub fn follow_nodes(&mut self) {
        let mut graph = NodeGraph::default();
        for (id, objects) in &self.collections {
            let Some(relation) = self.kind(*id).influence.relation else { continue };
            for (key, entry) in objects.iter() {
                graph.note(relation, key, None, Some(&entry.document()));
            }
        }
        self.nodes = Some(graph);
    }

    /// Combines the authorizers of `chain` with the roles, bindings and nodes of this state.
    pub fn authorizer<'a>(&'a self, chain: &'a Arc<Chain>, consulted: &'a Consulted) -> Authorizer<'a> {
        Authorizer { chain, rbac: &self.rbac, nodes: self.nodes.as_ref(), consulted }
    }

    pub fn kind(&self, id: KindId) -> &Kind {
        self.registry.get(id)
    }

    pub fn get(&self, kind: KindId, key: &str) -> Option<&Arc<Entry>> {
        self.collections.get(&kind)?.objects.get(key)
    }

    /// The objects whose keys start with `prefix` and come after `after`, in key order.
    pub fn scan<'a>(
        &'a self,
        kind: KindId,
        prefix: &'a str,
        after: Option<&str>,
    ) -> impl Iterator<Item = (&'a Arc<str>, &'a Arc<Entry>)> + 'a {
        let after = after.filter(|after| *after >= prefix);
        self.collections
            .get(&kind)
            .map(|collection| collection.objects.iter_from(|key| precedes(key, prefix, after)))
            .into_iter()
            .flatten()
            .take_while(move |(key, _)| key.starts_with(prefix))
    }

    /// The number of objects of this kind, in all namespaces.
    pub fn count(&self, kind: KindId) -> usize {
        self.collections.get(&kind).map_or(0, Collection::len)
    }

    /// The number of objects that [`Self::scan`] would return. Counting takes about the same time for any number.
    pub fn count_of(&self, kind: KindId, prefix: &str, after: Option<&str>) -> usize {
        let Some(Collection { objects }) = self.collections.get(&kind) else { return 0 };
        let after = after.filter(|after| *after >= prefix);
        let end = objects.rank(|key| **key < *prefix || key.starts_with(prefix));
        end.saturating_sub(objects.rank(|key| precedes(key, prefix, after)))
    }

    /// The offset of the newest event on an object. A decision that writes the object must rely on this offset.
    pub fn version_of(&self, kind: KindId, key: &str) -> Option<Offset> {
        self.get(kind, key).map(|entry| entry.offset)
    }

    /// The object that holds `claim`, as `resource/key`; `None` if the claim is free.
    pub fn claimant(&self, claim: &str) -> Option<&Arc<str>> {
        self.claims.get(claim)
    }

    /// Inserts an object, or replaces its version. Returns the version that was replaced.
    pub(crate) fn put(&mut self, kind: KindId, key: Arc<str>, entry: Arc<Entry>) -> Option<Arc<Entry>> {
        let objects = &mut self.collections.entry(kind).or_default().objects;
        let owner = (!entry.index.claims.is_empty()).then(|| key.clone());
        let before = objects.insert(key.clone(), entry.clone());
        self.room.note(&key, before.as_ref().map(|before| before.size()), Some(entry.size()));
        self.release(before.as_deref());
        if let Some(key) = owner {
            let owner = self.owner(kind, &key);
            for claim in entry.index.claims.iter() {
                self.claims.insert(claim.clone(), owner.clone());
            }
        }
        before
    }

    /// Removes an object. Returns the last version of the object.
    pub(crate) fn remove(&mut self, kind: KindId, key: &str) -> Option<Arc<Entry>> {
        let before = self.collections.get_mut(&kind)?.objects.remove(key);
        self.room.note(key, before.as_ref().map(|before| before.size()), None);
        self.release(before.as_deref());
        before
    }

    /// Stores an object whose kind nothing defines. Returns the version that it replaces.
    pub fn hold_orphan(&mut self, record: &Record) -> Option<Arc<Entry>> {
        let head = head_length(&record.object);
        let entry = Entry::new(record.object.clone(), head, record.offset(), record.time_ms, Index::default());
        let objects = &mut self.orphans.entry(record.resource.as_str().into()).or_default().objects;
        let size = entry.size();
        let before = objects.insert(record.key.as_str().into(), Arc::new(entry));
        self.room.note(&record.key, before.as_ref().map(|before| before.size()), Some(size));
        before
    }

    /// Removes an object whose kind nothing defines. Returns the last version of the object.
    pub(crate) fn drop_orphan(&mut self, resource: &str, key: &str) -> Option<Arc<Entry>> {
        let before = self.orphans.get_mut(resource)?.objects.remove(key);
        self.room.note(key, before.as_ref().map(|before| before.size()), None);
        before
    }

    /// The collections that have objects, each with the storage path of its kind, including kinds that nothing defines.
    pub fn collections(&self) -> impl Iterator<Item = (&str, &Collection)> {
        let served = self.collections.iter().map(|(id, objects)| (self.kind(*id).storage.path.as_str(), objects));
        let orphans = self.orphans.iter().map(|(storage, objects)| (&**storage, objects));
        served.chain(orphans).filter(|(_, objects)| !objects.is_empty())
    }

    /// Replaces one definition of a kind by another; the kind's objects stay. If there is no new definition, they
    /// become orphans.
    pub(crate) fn redefine(&mut self, old: Option<KindId>, kind: Option<Kind>) {
        let registry = Arc::make_mut(&mut self.registry);
        let before = old.map(|old| registry.share(old));
        let objects = match (old, &kind) {
            (Some(old), _) => self.collections.remove(&old),
            (None, Some(kind)) => self.orphans.remove(kind.storage.path.as_str()),
            (None, None) => None,
        };
        let objects = objects.unwrap_or_default();
        let new = match (old, kind) {
            (Some(old), Some(kind)) => Some(registry.replace(old, kind)),
            (None, Some(kind)) => Some(registry.add(kind)),
            (Some(old), None) => {
                registry.remove(old);
                None
            }
            (None, None) => None,
        };
        let Some(new) = new else {
            if let Some(before) = before.filter(|_| !objects.is_empty()) {
                self.orphans.insert(before.storage.path.as_str().into(), objects);
            }
            return;
        };
        let kind = registry.share(new);
        // The indexes may change even if the selectable fields are the same, because the definition may give them other
        // defaults.
        let selects =
            before.is_none_or(|before| !before.selectors.fields.is_empty()) || !kind.selectors.fields.is_empty();
        let objects = if selects { objects.indexed_for(&kind) } else { objects };
        if !objects.is_empty() {
            self.collections.insert(new, objects);
        }
    }

    /// Releases the claims of a version of an object that was replaced or removed.
    fn release(&mut self, entry: Option<&Entry>) {
        for claim in entry.into_iter().flat_map(|entry| entry.index.claims.iter()) {
            self.claims.remove(claim);
        }
    }

    /// The name by which this object holds claims: `resource/key`.
    pub fn owner(&self, kind: KindId, key: &str) -> Arc<str> {
        format!("{}/{key}", self.kind(kind).storage.path).into()
    }
}

impl Claims for State {
    fn claimant(&self, claim: &str) -> Option<&Arc<str>> {
        State::claimant(self, claim)
    }
}

impl Definitions {
    pub(crate) fn note(&mut self, change: &Change, definition: &Value) {
        self.offset = change.offset;
        let settled =
            definition["metadata"].get("deletionTimestamp").is_none() && custom::holds(definition, "NamesAccepted");
        if change.deleted || settled {
            self.unsettled.remove(&change.key);
        } else {
            self.unsettled.insert(change.key.clone());
        }
    }
}

impl Collection {
    /// The same objects, with the indexes that they have under the definition `kind`.
    fn indexed_for(&self, kind: &Kind) -> Collection {
        let indexed = |entry: &Entry| {
            let index = Index::of_stored(kind, entry.offset, &entry.json());
            Entry { body: entry.body.clone(), index, forms: Cached::default(), ..*entry }
        };
        Collection {
            objects: self.objects.iter().map(|(key, entry)| (key.clone(), Arc::new(indexed(entry)))).collect(),
        }
    }

    pub fn len(&self) -> usize {
        self.objects.len()
    }

    pub fn get(&self, key: &str) -> Option<&Arc<Entry>> {
        self.objects.get(key)
    }

    /// The keys and the entries, in key order.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<Entry>)> {
        self.objects.iter()
    }

    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }
}

impl Index {
    pub fn new(kind: &Kind, document: &Value) -> Index {
        let labels = document.get("metadata").and_then(|metadata| metadata.get("labels")).and_then(Value::as_object);
        let text =
            |(key, value): (&CompactString, &Value)| (key.as_str().into(), value.as_str().unwrap_or_default().into());
        let mut labels: Box<[(Box<str>, Box<str>)]> = labels.into_iter().flatten().map(text).collect();
        labels.sort_unstable();
        let claims = kind.claims.of(document).into_iter().map(Arc::from).collect();
        Index { labels, fields: kind.selectors.values(document), claims }
    }

    /// Extracts the index from a stored object, which may have been written under an older definition of its kind.
    fn of_stored(kind: &Kind, offset: Offset, json: &[u8]) -> Index {
        let document = match kind.is_stale(offset) && !kind.selectors.fields.is_empty() {
            true => custom::as_stored(kind, parse(json)).1,
            false => kind.selectors.indexed.look(json).document,
        };
        Index::new(kind, &document)
    }

    pub fn label(&self, key: &str) -> Option<&str> {
        find_label(&self.labels, key)
    }
}

impl Entry {
    pub fn new(json: Bytes, head: usize, offset: Offset, time_ms: i64, index: Index) -> Entry {
        Entry { body: json.into(), offset, time_ms, head: head as u32, index, forms: Cached::default() }
    }

    /// The object's stored bytes. If the object is packed, this is a copy.
    pub fn json(&self) -> Bytes {
        self.body.bytes()
    }

    /// The number of the object's stored bytes.
    pub fn size(&self) -> usize {
        self.body.len()
    }

    /// The object's stored bytes, whole or packed, for callers that keep them as long as the state does.
    pub fn body(&self) -> &Body {
        &self.body
    }

    /// The object as a document.
    pub fn document(&self) -> Value {
        parse(&self.json())
    }

    /// The object's name. Only the name is read, and other fields are not parsed.
    pub fn name(&self) -> String {
        self.json().get(self.head as usize..).and_then(encode::name).unwrap_or_default()
    }

    /// The part of an object's JSON that a list item shows: from `"metadata"` on, without the opening brace,
    /// `apiVersion`, `kind`, and the newline at the end.
    pub fn item(json: &Bytes) -> &[u8] {
        let head = head_length(json);
        &json[head..json.len() - 1]
    }

    /// The object's JSON in the given version of its kind. In the hub version this is the stored text. For another
    /// version the object is converted once. If only a webhook can convert the object, the result must be stored
    /// already: see [`Self::awaits`].
    pub fn json_in(&self, kind: &Kind, version: usize) -> Bytes {
        self.body_in(kind, version).bytes()
    }

    /// Like [`Self::json_in`], but whole or packed, as the state stores it. In the hub version, the result shares the
    /// stored bytes.
    pub fn body_in(&self, kind: &Kind, version: usize) -> Body {
        if version == 0 && !kind.is_stale(self.offset) {
            return self.body.clone();
        }
        self.forms(kind).made[version].get_or_init(|| self.convert(kind, version)).clone()
    }

    /// The conversion that a webhook must make before the object can be shown in this version; `None` if none is
    /// needed.
    pub fn awaits(&self, kind: &Kind, version: usize) -> Option<Conversion> {
        let is_kept = || self.forms(kind).made[version].get().is_some();
        if !self.is_converted(kind, version) || is_kept() {
            return None;
        }
        self.conversion(kind, version)
    }

    /// The webhook's conversion that results in this version, even if it was made already; `None` if no webhook is
    /// needed.
    pub fn conversion(&self, kind: &Kind, version: usize) -> Option<Conversion> {
        if !self.is_converted(kind, version) {
            return None;
        }
        let (stored, object) = custom::as_stored(kind, self.document());
        let to = kind.versions[version].api_version();
        (stored != version).then_some(Conversion { to, object })
    }

    /// Whether a conversion webhook makes this version. This may also be true of the version in which the object is
    /// stored, for which no webhook is needed.
    fn is_converted(&self, kind: &Kind, version: usize) -> bool {
        kind.converts_elsewhere() && (version != 0 || kind.is_stale(self.offset))
    }

    /// Stores the object that a conversion webhook returned.
    pub fn keep(&self, kind: &Kind, version: usize, converted: &Document) {
        let draft = Draft::new(&kind.versions[version].api_version(), &kind.kind, converted);
        // If two requests converted the object at the same time, the result that was stored first stays. Both are
        // valid.
        let _ = self.forms(kind).made[version].set(kind.storage.keep(draft.seal(self.offset)));
    }

    /// The object's Protobuf message in the given version, without its envelope; `None` if the kind has no Protobuf
    /// form. The message is made once.
    pub fn message_in(&self, kind: &Kind, version: usize) -> Option<Body> {
        if kind.custom.is_some() {
            return None;
        }
        let forms = self.forms(kind);
        let message = forms.made[kind.versions.len() + version].get_or_init(|| {
            let message = schema().id(&kind.versions[version].message);
            let encode = |message| protobuf::codec().encode(message, &self.document_in(kind, version)).ok();
            kind.storage.keep(message.and_then(encode).unwrap_or_default().into())
        });
        // An object always has a name, so a message without bytes means that encoding failed.
        Some(message.clone()).filter(|message| !message.is_empty())
    }

    fn forms(&self, kind: &Kind) -> Arc<Forms> {
        let mut forms = self.forms.lock();
        match &*forms {
            Some(made) if made.since == kind.since() => made.clone(),
            _ => {
                let made = (0..2 * kind.versions.len()).map(|_| OnceLock::new()).collect();
                forms.insert(Arc::new(Forms { since: kind.since(), made })).clone()
            }
        }
    }

    /// The object as a document in the given version of its kind.
    pub fn document_in(&self, kind: &Kind, version: usize) -> Value {
        if kind.custom.is_some() {
            return parse(&self.json_in(kind, version));
        }
        let mut value = self.document();
        if version != 0
            && let Value::Object(document) = &mut value
        {
            kind.from_hub(version, document);
        }
        value
    }

    fn convert(&self, kind: &Kind, version: usize) -> Body {
        if kind.custom.is_some() {
            let (stored, object) = custom::as_stored(kind, self.document());
            let shown = custom::relabelled(kind, stored, version, object);
            let shown = shown
                .as_object()
                .map(|shown| Draft::new(&kind.versions[version].api_version(), &kind.kind, shown).seal(self.offset));
            // Most objects look the same in this version, so they share the stored bytes.
            return shown
                .filter(|shown| *shown != self.json())
                .map_or_else(|| self.body.clone(), |shown| kind.storage.keep(shown));
        }
        match self.document_in(kind, version) {
            Value::Object(document) => {
                let draft = Draft::new(&kind.versions[version].api_version(), &kind.kind, &document);
                kind.storage.keep(draft.seal(self.offset))
            }
            _ => self.body.clone(),
        }
    }

    /// The object with another `resourceVersion`. A watch sends it when the object leaves the selection of the watch.
    pub fn at_version(&self, version: Offset) -> Entry {
        // A search for the text `resourceVersion` could find a label or another field, so the object is parsed.
        let document = self.document();
        let text = |field: &str| document.get(field).and_then(Value::as_str).unwrap_or_default();
        let draft = Draft::new(text("apiVersion"), text("kind"), document.as_object().unwrap_or(&Map::new()));
        Entry::new(draft.seal(version), draft.head(), version, self.time_ms, self.index.clone())
    }

    /// The range of the stored JSON that a list item in the hub version shows.
    pub fn hub_item(&self) -> Range<usize> {
        self.head as usize..self.size() - 1
    }
}

impl Change {
    /// Reads a record of the log, as replay does.
    pub fn from_record(registry: &Registry, record: &Record) -> Result<Change, UnknownResource> {
        Change::read(registry, record, |kind| Index::of_stored(kind, record.offset(), &record.object))
    }

    /// Like [`Self::from_record`], but without extracting the index, which is most of the work. This is enough for a
    /// state that serves no requests.
    pub fn unindexed(registry: &Registry, record: &Record) -> Result<Change, UnknownResource> {
        Change::read(registry, record, |_| Index::default())
    }

    fn read(
        registry: &Registry,
        record: &Record,
        index: impl FnOnce(&Kind) -> Index,
    ) -> Result<Change, UnknownResource> {
        let kind = registry
            .by_storage(&record.resource)
            .ok_or_else(|| UnknownResource { resource: record.resource.clone(), offset: record.offset() })?;
        let index = index(registry.get(kind));
        let head = head_length(&record.object);
        Ok(Change {
            offset: record.offset(),
            kind,
            key: record.key.as_str().into(),
            entry: Arc::new(Entry::new(record.object.clone(), head, record.offset(), record.time_ms, index)),
            deleted: record.is_delete(),
        })
    }
}

/// An error: the log contains an object of a kind that this release does not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownResource {
    pub resource: String,
    pub offset: Offset,
}

impl std::fmt::Display for UnknownResource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "the log's event {} is on {:?}, a resource that this release does not know",
            self.offset, self.resource
        )
    }
}

impl std::error::Error for UnknownResource {}

/// Parses stored JSON. Its syntax is right, because Holdfast wrote it, and the checksum of its record shows that it has
/// not changed since.
fn parse(json: &[u8]) -> Value {
    stored::document(json).unwrap_or_else(|_| {
        serde_json::from_slice(json).unwrap_or_else(|error| panic!("stored object is not JSON: {error}"))
    })
}

/// The index of `"metadata":` in an object's JSON. Only `apiVersion` and `kind` come before it, and they never need an
/// escape.
fn head_length(json: &[u8]) -> usize {
    const METADATA: &[u8] = b"\"metadata\":";
    json.windows(METADATA.len()).position(|window| window[1] == b'm' && window == METADATA).unwrap_or(1)
}

/// Whether a key comes before a range: it is `after` or before it, or if there is no `after`, before the prefix.
fn precedes(key: &str, prefix: &str, after: Option<&str>) -> bool {
    match after {
        Some(after) => key <= after,
        None => key < prefix,
    }
}

/// The prefix of the keys of all objects in a namespace; empty for all namespaces together.
pub fn prefix(namespace: Option<&str>) -> String {
    match namespace {
        Some(namespace) if !namespace.is_empty() => format!("{namespace}/"),
        _ => String::new(),
    }
}

/// Whether the namespace is terminating; `None` if it does not exist.
pub fn namespace_phase(state: &State, name: &str) -> Option<bool> {
    let entry = state.get(state.registry.namespaces(), name)?;
    // Most namespaces are not terminating, and a text search finds that out without parsing them.
    if memchr::memmem::find(&entry.json(), b"\"deletionTimestamp\"").is_none() {
        return Some(false);
    }
    Some(meta::is_deleting(meta::fields(&entry.document())))
}
