//! The watch hub: hands each event to the watchers that it concerns, and to no other.
//!
//! Watchers with equal selections form a group, so a selection is evaluated once an event. Groups are found by
//! hash of what they pin down: one object, one value of an indexed field, one namespace, or nothing. A watcher
//! has a bounded queue; when it is full the watcher is let go, reads on from the log, and comes back.

use crate::planted::{Bug, planted};
use crate::tap::Basin;
use crate::wakes;
use bytes::Bytes;
use holdfast_core::event::Offset;
use holdfast_core::kinds::{Kind, KindId};
use holdfast_core::list::Selection;
use holdfast_core::object::meta;
use holdfast_core::state::{Change, Entry, State};
use holdfast_core::wire::protobuf;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use tokio::sync::mpsc::error::TryRecvError;
use tokio::sync::{Notify, mpsc};

/// Events that may wait for one watcher before it has to read from the log.
const QUEUE_EVENTS_MAX: usize = 256;
/// How many bytes of objects such events may hold on to.
const QUEUE_BYTES_MAX: usize = 4 << 20;
/// How many watches one user may have.
const WATCHES_OF_ONE_MAX: usize = 10_000;

/// A committed event as watchers get it, with its wire forms, each made once for all of them.
pub struct Event {
    pub change: Change,
    /// The object before the event.
    pub previous: Option<Arc<Entry>>,
    /// What the event holds on to, about.
    bytes: usize,
    /// A place for the frame of each version, type of change and encoding; `None` where there is no such form.
    frames: OnceLock<Box<[OnceLock<Option<Bytes>>]>>,
    /// What those see from whose selection the object went.
    left: OnceLock<Arc<Entry>>,
}

/// In how many ways an event of one version is told: types of change, in JSON and in Protobuf.
const FRAMES_A_VERSION: usize = 6;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeType {
    Added = 0,
    Modified = 1,
    Deleted = 2,
}

impl ChangeType {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

/// One event as one selection sees it: an object that leaves the selection is deleted to it.
#[derive(Clone)]
pub struct Delivery {
    pub event: Arc<Event>,
    pub change_type: ChangeType,
}

impl Event {
    pub fn new(change: Change, previous: Option<Arc<Entry>>) -> Event {
        let bytes = change.entry.size() + previous.as_ref().map_or(0, |previous| previous.size());
        Event { change, previous, bytes, frames: OnceLock::new(), left: OnceLock::new() }
    }

    /// How a selection sees this event; `None`: not at all.
    pub fn seen_by(&self, kind: &Kind, selection: &Selection) -> Option<ChangeType> {
        let change = &self.change;
        let before = self.previous.as_ref().is_some_and(|entry| selection.matches(kind, &change.key, entry));
        let after = !change.deleted && selection.matches(kind, &change.key, &change.entry);
        match (before, after) {
            (false, false) => None,
            (false, true) => Some(ChangeType::Added),
            (true, true) => Some(ChangeType::Modified),
            (true, false) if planted(Bug::LeavingIsModified) && !change.deleted => Some(ChangeType::Modified),
            (true, false) => Some(ChangeType::Deleted),
        }
    }

    /// The newline-ended JSON frame in the given version of the kind.
    pub fn frame(&self, kind: &Kind, version: usize, change_type: ChangeType) -> Bytes {
        let make = || Some(frame(change_type.as_str(), &self.shown(change_type).json_in(kind, version)));
        self.once(kind, version, change_type as usize, make).unwrap_or_default()
    }

    /// The same in Protobuf, its length before it; `None` where the object has no such form.
    pub fn protobuf_frame(&self, kind: &Kind, version: usize, change_type: ChangeType) -> Option<Bytes> {
        let make = || {
            let message = self.shown(change_type).message_in(kind, version)?;
            let object = protobuf::wrap(&kind.versions[version].api_version(), &kind.kind, &message);
            Some(protobuf::watch_frame(change_type.as_str(), &object).into())
        };
        self.once(kind, version, 3 + change_type as usize, make)
    }

    /// Of the frames of one version, this one.
    fn once(&self, kind: &Kind, version: usize, form: usize, make: impl FnOnce() -> Option<Bytes>) -> Option<Bytes> {
        let places = || (0..kind.versions.len() * FRAMES_A_VERSION).map(|_| OnceLock::new()).collect();
        match self.frames.get_or_init(places).get(version * FRAMES_A_VERSION + form) {
            Some(place) => place.get_or_init(make).clone(),
            None => make(),
        }
    }

    /// The object as the event shows it. One that left a selection shows its last state there, with the
    /// event's version.
    pub fn shown(&self, change_type: ChangeType) -> &Arc<Entry> {
        match &self.previous {
            Some(previous) if change_type == ChangeType::Deleted && !self.change.deleted => {
                self.left.get_or_init(|| Arc::new(previous.at_version(self.change.offset)))
            }
            _ => &self.change.entry,
        }
    }
}

/// `{"type":…,"object":…}` and a newline.
pub fn frame(change_type: &str, json: &Bytes) -> Bytes {
    let object = json.strip_suffix(b"\n").unwrap_or(json);
    let mut frame = Vec::with_capacity(object.len() + 40);
    frame.extend_from_slice(b"{\"type\":\"");
    frame.extend_from_slice(change_type.as_bytes());
    frame.extend_from_slice(b"\",\"object\":");
    frame.extend_from_slice(object);
    frame.extend_from_slice(b"}\n");
    frame.into()
}

pub struct Hub {
    /// How many events may wait for one watcher.
    queue_events_max: usize,
    topics: Mutex<HashMap<KindId, Topic>>,
    /// Every event up to this one is in the queues of the watchers that it concerns.
    delivered: AtomicU64,
    watchers: AtomicUsize,
    /// How many watches each user has, with those at forks.
    users: Arc<Mutex<HashMap<Arc<str>, usize>>>,
    /// Of the registry that the topics were last compared with.
    revision: AtomicU64,
    /// Told of every commit.
    committed: Notify,
    taps: Mutex<Vec<Weak<Basin>>>,
}

/// The watchers of one kind, by what their selections pin down.
#[derive(Default)]
struct Topic {
    all: Groups,
    by_namespace: HashMap<String, Groups>,
    by_object: HashMap<String, Groups>,
    /// By the place of the field among the kind's selectable ones, and its value.
    by_field: HashMap<usize, HashMap<String, Groups>>,
    next_id: u64,
}

/// What a selection pins down, for finding it by hash.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Scope {
    Object(String),
    Field(usize, String),
    Namespace(String),
    All,
}

/// Watchers by the text of their selection: equal text, equal selection.
type Groups = BTreeMap<Arc<str>, Group>;

struct Group {
    selection: Selection,
    /// By the number of their subscription, so that leaving costs little however many stay.
    members: BTreeMap<u64, Member>,
}

struct Member {
    queue: mpsc::Sender<Delivery>,
    /// Of the objects in the queue.
    bytes: Arc<AtomicUsize>,
}

/// A place in the hub. Dropping it leaves.
pub struct Subscription {
    hub: Arc<Hub>,
    kind: KindId,
    scope: Scope,
    text: Arc<str>,
    id: u64,
    queue: mpsc::Receiver<Delivery>,
    bytes: Arc<AtomicUsize>,
    /// Events up to this one were delivered before; the queue holds all later ones.
    pub since: Offset,
}

/// One watch among those that its user may have. Dropping it makes room for another.
pub struct Place {
    hub: Arc<Hub>,
    user: Arc<str>,
}

impl Default for Hub {
    fn default() -> Hub {
        Hub::with_queues(QUEUE_EVENTS_MAX)
    }
}

impl Hub {
    /// A hub in which so many events may wait for one watcher.
    pub fn with_queues(queue_events_max: usize) -> Hub {
        Hub {
            queue_events_max,
            topics: Mutex::default(),
            delivered: AtomicU64::default(),
            watchers: AtomicUsize::default(),
            users: Arc::default(),
            revision: AtomicU64::default(),
            committed: Notify::default(),
            taps: Mutex::default(),
        }
    }

    /// The hub of a fork: it has its own watchers, who count as their users' here.
    pub(crate) fn beside(other: &Hub) -> Hub {
        Hub { users: other.users.clone(), ..Hub::with_queues(other.queue_events_max) }
    }

    /// A place for one more watch of this user; `None` when there are as many as one may have.
    pub fn place(self: &Arc<Self>, user: &str) -> Option<Place> {
        let mut users = self.users();
        let (user, count) = match users.get_key_value(user) {
            Some((user, count)) => (user.clone(), *count),
            None => (Arc::from(user), 0),
        };
        if count >= WATCHES_OF_ONE_MAX {
            return None;
        }
        users.insert(user.clone(), count + 1);
        Some(Place { hub: self.clone(), user })
    }

    fn users(&self) -> MutexGuard<'_, HashMap<Arc<str>, usize>> {
        self.users.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Joins the watchers. From here on every event that concerns the selection is queued.
    pub fn subscribe(self: &Arc<Self>, kind: &Kind, selection: &Selection) -> Subscription {
        let (sender, queue) = mpsc::channel(self.queue_events_max);
        let scope = Scope::of(kind, selection);
        let Selection { prefix, labels, fields, key, version, .. } = selection;
        let text: Arc<str> = format!("{version}|{prefix}|{labels}|{fields}|{key:?}").into();
        let mut topics = self.lock();
        let topic = topics.entry(selection.kind).or_default();
        topic.next_id += 1;
        let id = topic.next_id;
        let group = topic.groups(&scope).entry(text.clone());
        let group = group.or_insert_with(|| Group { selection: selection.clone(), members: BTreeMap::new() });
        let bytes = Arc::<AtomicUsize>::default();
        group.members.insert(id, Member { queue: sender, bytes: bytes.clone() });
        self.watchers.fetch_add(1, Ordering::Relaxed);
        let since = self.delivered();
        Subscription { hub: self.clone(), kind: selection.kind, scope, text, id, queue, bytes, since }
    }

    /// Queues the events of a commit, in order. Called by the writer alone, after the state was published.
    pub fn deliver(&self, state: &State, changes: Vec<(Change, Option<Arc<Entry>>)>) {
        self.fill_taps(state, &changes);
        wakes::together(|| self.queue(state, changes));
        self.committed.notify_waiters();
    }

    fn fill_taps(&self, state: &State, changes: &[(Change, Option<Arc<Entry>>)]) {
        self.taps().retain(|tap| {
            let tap = tap.upgrade();
            tap.inspect(|tap| tap.fill(state, changes.iter().map(|(change, _)| change))).is_some()
        });
    }

    pub(crate) fn taps(&self) -> MutexGuard<'_, Vec<Weak<Basin>>> {
        self.taps.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn queue(&self, state: &State, changes: Vec<(Change, Option<Arc<Entry>>)>) {
        let mut topics = self.lock();
        // A kind that changed has another number now: its watchers are let go, and find out.
        let revision = state.registry.revision();
        let redefined = self.revision.swap(revision, Ordering::Relaxed) != revision;
        if redefined && !planted(Bug::RedefinedWatchStays) {
            topics.retain(|kind, _| state.registry.serves(*kind));
        }
        for (change, previous) in changes {
            let Some(topic) = topics.get_mut(&change.kind) else { continue };
            topic.deliver(state.kind(change.kind), &Arc::new(Event::new(change, previous)));
        }
        self.delivered.store(state.offset.0, Ordering::Release);
    }

    /// All events up to this one are queued wherever they belong.
    pub fn delivered(&self) -> Offset {
        Offset(self.delivered.load(Ordering::Acquire))
    }

    pub(crate) fn start_at(&self, offset: Offset) {
        self.delivered.store(offset.0, Ordering::Release);
    }

    /// Whether anybody watches this one object, and not many by a selection that it is in.
    pub fn is_object_watched(&self, kind: KindId, key: &str) -> bool {
        self.lock().get(&kind).is_some_and(|topic| topic.by_object.contains_key(key))
    }

    /// How many watchers will be told of a write to this object, whatever they select by labels and fields; those who
    /// pin down a field are not counted. With an empty name, of an object that has none yet.
    pub fn watchers_of(&self, kind: KindId, namespace: Option<&str>, name: &str) -> usize {
        let topics = self.lock();
        let Some(topic) = topics.get(&kind) else { return 0 };
        let members = |groups: &Groups| groups.values().map(|group| group.members.len()).sum::<usize>();
        let by_namespace = namespace.and_then(|namespace| topic.by_namespace.get(namespace)).map_or(0, members);
        let by_object = match topic.by_object.is_empty() || name.is_empty() {
            true => 0,
            false => topic.by_object.get(&meta::key(namespace, name)).map_or(0, members),
        };
        members(&topic.all) + by_namespace + by_object
    }

    /// How many watchers there are.
    pub fn watchers(&self) -> usize {
        self.watchers.load(Ordering::Relaxed)
    }

    /// Resolves at the next commit.
    pub fn committed(&self) -> &Notify {
        &self.committed
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<KindId, Topic>> {
        self.topics.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Topic {
    /// The groups of a scope, which the caller fills.
    fn groups(&mut self, scope: &Scope) -> &mut Groups {
        match scope {
            Scope::All => &mut self.all,
            Scope::Object(key) => self.by_object.entry(key.clone()).or_default(),
            Scope::Namespace(name) => self.by_namespace.entry(name.clone()).or_default(),
            Scope::Field(field, value) => self.by_field.entry(*field).or_default().entry(value.clone()).or_default(),
        }
    }

    /// Forgets a scope that nobody watches.
    fn drop_scope(&mut self, scope: &Scope) {
        match scope {
            Scope::All => {}
            Scope::Object(key) => drop(self.by_object.remove(key)),
            Scope::Namespace(name) => drop(self.by_namespace.remove(name)),
            Scope::Field(field, value) => {
                if let Some(values) = self.by_field.get_mut(field) {
                    values.remove(value);
                }
            }
        }
    }

    fn deliver(&mut self, kind: &Kind, event: &Arc<Event>) {
        let key = &*event.change.key;
        deliver_to(Some(&mut self.all), kind, event);
        deliver_to(self.by_object.get_mut(key), kind, event);
        if let (Some(namespace), _) = meta::split_key(key) {
            deliver_to(self.by_namespace.get_mut(namespace), kind, event);
        }
        for (field, watched) in &mut self.by_field {
            let after = value_of(&event.change.entry, *field);
            let before = event.previous.as_ref().and_then(|entry| value_of(entry, *field));
            let before = before.filter(|before| Some(*before) != after);
            for value in after.into_iter().chain(before) {
                deliver_to(watched.get_mut(value), kind, event);
            }
        }
    }
}

/// The value of one of the kind's selectable fields.
fn value_of(entry: &Entry, field: usize) -> Option<&str> {
    entry.index.fields.get(field).map(|value| &**value)
}

fn deliver_to(groups: Option<&mut Groups>, kind: &Kind, event: &Arc<Event>) {
    for group in groups.into_iter().flat_map(BTreeMap::values_mut) {
        let Some(change_type) = event.seen_by(kind, &group.selection) else { continue };
        // A member whose queue is full is let go: its sender is dropped, so it will notice after the last
        // event that it did get, and read on from the log.
        let bytes = event.bytes;
        group.members.retain(|_, member| {
            let delivery = Delivery { event: event.clone(), change_type };
            let waiting = member.bytes.fetch_add(bytes, Ordering::Relaxed);
            let queued = waiting < QUEUE_BYTES_MAX && member.queue.try_send(delivery).is_ok();
            queued || planted(Bug::FullQueueDrops)
        });
    }
}

impl Subscription {
    /// The next event, waiting for it; `None` when the hub let the watcher go, and for ever after.
    pub async fn recv(&mut self) -> Option<Delivery> {
        let delivery = self.queue.recv().await;
        delivery.inspect(|delivery| self.took(delivery))
    }

    /// The next event if there is one already.
    pub fn try_recv(&mut self) -> Result<Delivery, TryRecvError> {
        self.queue.try_recv().inspect(|delivery| self.took(delivery))
    }

    fn took(&self, delivery: &Delivery) {
        self.bytes.fetch_sub(delivery.event.bytes, Ordering::Relaxed);
    }
}

impl Scope {
    fn of(kind: &Kind, selection: &Selection) -> Scope {
        if let Some(key) = &selection.key {
            return Scope::Object(key.clone());
        }
        let pinned = kind.selectable.iter().enumerate().find_map(|(index, selectable)| {
            Some(Scope::Field(index, selection.fields.exact(&selectable.field)?.to_owned()))
        });
        match (pinned, selection.prefix.strip_suffix('/')) {
            (Some(scope), _) => scope,
            (None, Some(namespace)) => Scope::Namespace(namespace.to_owned()),
            (None, None) => Scope::All,
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut users = self.hub.users();
        match users.get_mut(&self.user) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(users.remove(&self.user)),
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut topics = self.hub.lock();
        self.hub.watchers.fetch_sub(1, Ordering::Relaxed);
        let Some(topic) = topics.get_mut(&self.kind) else { return };
        let groups = topic.groups(&self.scope);
        if let Some(group) = groups.get_mut(&self.text) {
            group.members.remove(&self.id);
            if group.members.is_empty() {
                groups.remove(&self.text);
            }
        }
        if groups.is_empty() {
            topic.drop_scope(&self.scope);
        }
    }
}

#[cfg(test)]
mod tests;
