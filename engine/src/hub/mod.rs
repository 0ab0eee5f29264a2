//! The watch hub sends each event to the watchers whose selection it concerns, and to no others.
//!
//! Watchers with equal selections form a group, so that a selection is stored once, and evaluated once for each event.
//! The hub finds the groups for an event by the fixed value in their selections: one object, one value of an indexed
//! field, one namespace, or none. Among groups with the same fixed value, the hub finds the groups whose selections
//! require one of a few values of a label by that label. Each watcher has a bounded queue. If the queue is full, or if
//! evaluating the selection would take more work than one event may cost, the hub drops the watcher. The watcher then
//! reads further events from the log, and joins again.

use crate::planted::{Bug, planted};
use crate::read_memory::Charge;
use crate::wakes;
use bytes::Bytes;
use holdfast_core::event::Offset;
use holdfast_core::kinds::{Kind, KindId};
use holdfast_core::list::Selection;
use holdfast_core::object::meta;
use holdfast_core::refusal::Plenty;
use holdfast_core::state::{Change, Entry, State};
use holdfast_core::wire::protobuf;
use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use tokio::sync::mpsc::error::TryRecvError;
use tokio::sync::{Notify, mpsc};
use waiting::WaitingBytes;

mod tap_queue;
mod waiting;

pub use tap_queue::TapOutput;
pub(crate) use tap_queue::TapQueue;

/// The maximum number of events that wait for one watcher. If there are more, the watcher must read from the log.
const QUEUE_EVENTS_MAX: usize = 256;
/// The maximum number of watches of one user.
const WATCHES_OF_ONE_MAX: usize = 10_000;
/// The maximum number of bytes of selectors in the watches of one user.
const SELECTOR_BYTES_OF_ONE_MAX: usize = 64 << 20;
/// The maximum number of bytes of selectors in the watches of all users.
const SELECTOR_BYTES_MAX: usize = 512 << 20;
/// The number of bytes of selectors that each user may have even if the limit for all users is reached.
const SELECTOR_BYTES_OF_EACH: usize = 1 << 20;
/// The maximum number of labels that the writer compares with the selectors of watchers for one event.
const LOOKS_MAX: usize = 200_000;

/// A committed event for watchers. Each of its frames is encoded once for all watchers.
pub struct Event {
    pub change: Change,
    /// The object as it was before the event; `None` if the event created the object.
    pub previous: Option<Arc<Entry>>,
    /// The approximate number of bytes that the event keeps in memory.
    bytes: usize,
    /// A slot for the frame of each version, change type and encoding; `None` if the object has no such encoding.
    frames: OnceLock<Box<[OnceLock<Option<Bytes>>]>>,
    /// The entry that is shown to watchers whose selection the object has left.
    left: OnceLock<Arc<Entry>>,
}

/// The number of frames in one version: three change types, in JSON and in Protobuf.
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

/// An event in the form in which the watchers of one selection get it. An object that leaves the selection is shown to
/// these watchers as deleted.
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

    /// The approximate number of bytes that the event keeps in memory.
    pub(crate) fn held_bytes(&self) -> usize {
        self.bytes
    }

    /// Drops the object before the event, unless it is shown because the object has left the watcher's selection.
    pub(crate) fn keep_shown(&mut self, change_type: ChangeType) {
        if change_type != ChangeType::Deleted || self.change.deleted {
            self.bytes -= self.previous.take().map_or(0, |previous| previous.size());
        }
    }

    /// The change type (added, modified or deleted) that the watchers of a selection get for this event; `None` if the
    /// event does not concern the selection.
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

    /// The frame in JSON, in the given version of the kind, ended by a newline.
    pub fn frame(&self, kind: &Kind, version: usize, change_type: ChangeType) -> Bytes {
        let make = || Some(frame(change_type.as_str(), &self.shown(change_type).json_in(kind, version)));
        self.once(kind, version, change_type as usize, make).unwrap_or_default()
    }

    /// The frame in Protobuf, preceded by its length; `None` if the object has no Protobuf form.
    pub fn protobuf_frame(&self, kind: &Kind, version: usize, change_type: ChangeType) -> Option<Bytes> {
        let make = || {
            let message = self.shown(change_type).message_in(kind, version)?;
            let object = protobuf::wrap(&kind.versions[version].api_version(), &kind.kind, &message.bytes());
            Some(protobuf::watch_frame(change_type.as_str(), &object).into())
        };
        self.once(kind, version, 3 + change_type as usize, make)
    }

    /// The frame of this version with the form `form`. `make` makes the frame when it is first used.
    fn once(&self, kind: &Kind, version: usize, form: usize, make: impl FnOnce() -> Option<Bytes>) -> Option<Bytes> {
        let places = || (0..kind.versions.len() * FRAMES_A_VERSION).map(|_| OnceLock::new()).collect();
        match self.frames.get_or_init(places).get(version * FRAMES_A_VERSION + form) {
            Some(place) => place.get_or_init(make).clone(),
            None => make(),
        }
    }

    /// The object in the form that the event shows. If the object left the selection, this is its last state in the
    /// selection with the event's version.
    pub fn shown(&self, change_type: ChangeType) -> &Arc<Entry> {
        match &self.previous {
            Some(previous) if change_type == ChangeType::Deleted && !self.change.deleted => {
                self.left.get_or_init(|| Arc::new(previous.at_version(self.change.offset)))
            }
            _ => &self.change.entry,
        }
    }
}

/// A frame in JSON: `{"type":…,"object":…}` and a newline.
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
    /// The maximum number of events that wait in the queue of one watcher.
    queue_events_max: usize,
    topics: Mutex<HashMap<KindId, Topic>>,
    /// Every event up to this offset is in the queues of the watchers that it concerns.
    delivered: AtomicU64,
    watchers: AtomicUsize,
    /// The watches of each user, including the user's watches of forks.
    users: Arc<Mutex<Users>>,
    /// The revision of the registry with which the topics were last compared.
    revision: AtomicU64,
    /// Notifies waiting requests of every commit.
    committed: Arc<Notify>,
    taps: Mutex<Vec<Weak<TapQueue>>>,
}

/// All watches, counted by user.
#[derive(Default)]
struct Users {
    by_name: HashMap<Arc<str>, Watches>,
    selector_bytes: usize,
}

/// The number of watches of one user, and the bytes of their selectors.
#[derive(Default)]
struct Watches {
    count: usize,
    selector_bytes: usize,
}

/// The watchers of one kind, by the fixed values in their selections.
#[derive(Default)]
struct Topic {
    all: Groups,
    by_namespace: HashMap<String, Groups>,
    by_object: HashMap<String, Groups>,
    /// The groups of watchers whose field selector names one value. The keys are the index of the field among the
    /// kind's selectable fields, and the field's value.
    by_field: HashMap<usize, HashMap<String, Groups>>,
    next_id: u64,
}

/// The fixed value in a selection by which its group is found.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Scope {
    Object(String),
    Field(usize, String),
    Namespace(String),
    All,
}

/// A selection with its hash. The hash is compared first, so that long selections that differ only near their ends are
/// seldom compared in full.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Wanted {
    hash: u64,
    selection: Selection,
}

/// Groups of watchers, by the selections that their watchers share.
#[derive(Default)]
struct Groups {
    /// Groups whose selection is evaluated for each event.
    others: BTreeMap<Arc<Wanted>, Group>,
    /// Groups whose selection requires one of a few values of a label.
    labelled: BTreeMap<Arc<Wanted>, Group>,
    /// The keys of `labelled`, by label and value. An event looks up only the groups that its object's labels may
    /// match.
    by_label: HashMap<String, HashMap<String, Vec<Arc<Wanted>>>>,
}

/// The members of a group by the numbers of their subscriptions, so that one member can be removed quickly from a large
/// group.
type Group = BTreeMap<u64, Member>;

struct Member {
    queue: mpsc::Sender<Delivery>,
    waiting: Arc<WaitingBytes>,
}

/// A watcher's membership of the hub. The watcher leaves the hub when this value is dropped.
pub struct Subscription {
    hub: Arc<Hub>,
    kind: KindId,
    scope: Scope,
    wanted: Arc<Wanted>,
    id: u64,
    queue: mpsc::Receiver<Delivery>,
    waiting: Arc<WaitingBytes>,
    /// Events up to this offset were delivered before the watcher joined. The queue receives all later events.
    pub since: Offset,
}

/// A watch's slot among the watches of its user. The slot is free when this value is dropped.
pub struct Place {
    hub: Arc<Hub>,
    user: Arc<str>,
    selector_bytes: usize,
}

impl Default for Hub {
    fn default() -> Hub {
        Hub::with_queues(QUEUE_EVENTS_MAX)
    }
}

impl Hub {
    /// A hub in which at most `queue_events_max` events wait for each watcher.
    pub fn with_queues(queue_events_max: usize) -> Hub {
        Hub {
            queue_events_max,
            topics: Mutex::default(),
            delivered: AtomicU64::default(),
            watchers: AtomicUsize::default(),
            users: Arc::default(),
            revision: AtomicU64::default(),
            committed: Arc::default(),
            taps: Mutex::default(),
        }
    }

    /// The hub of a fork. Its watchers are separate, but count against the same users' limits.
    pub(crate) fn beside(other: &Hub) -> Hub {
        Hub { users: other.users.clone(), ..Hub::with_queues(other.queue_events_max) }
    }

    /// The hub of a part of the cluster's kinds. Its watches count against the same limits, and its commits wake the
    /// requests that wait for a commit of either hub.
    pub(crate) fn of_part(main: &Hub) -> Hub {
        Hub { committed: main.committed.clone(), ..Hub::beside(main) }
    }

    /// Counts one more watch of this user, with `selector_bytes` of selectors. Refuses a watch beyond the limits.
    pub fn place(self: &Arc<Self>, user: &str, selector_bytes: usize) -> Result<Place, Plenty> {
        let mut users = self.users();
        let Users { by_name, selector_bytes: of_all } = &mut *users;
        let (user, has) = match by_name.get_key_value(user) {
            Some((user, has)) => (user.clone(), Watches { ..*has }),
            None => (Arc::from(user), Watches::default()),
        };
        if has.count >= WATCHES_OF_ONE_MAX {
            return Err(Plenty::Watches);
        }
        let (own, all) = (has.selector_bytes + selector_bytes, *of_all + selector_bytes);
        let max = if all > SELECTOR_BYTES_MAX { SELECTOR_BYTES_OF_EACH } else { SELECTOR_BYTES_OF_ONE_MAX };
        if own > max && selector_bytes > 0 {
            let max = max as u64;
            return Err(Plenty::Selectors { held: has.selector_bytes as u64, max });
        }
        by_name.insert(user.clone(), Watches { count: has.count + 1, selector_bytes: own });
        *of_all = all;
        Ok(Place { hub: self.clone(), user, selector_bytes })
    }

    /// The number of bytes in the selectors of all watches.
    pub fn selector_bytes(&self) -> usize {
        self.users().selector_bytes
    }

    fn users(&self) -> MutexGuard<'_, Users> {
        self.users.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Adds a watcher. Every later event that concerns the selection is queued for the watcher.
    pub fn subscribe(self: &Arc<Self>, kind: &Kind, selection: &Selection) -> Subscription {
        let (sender, queue) = mpsc::channel(self.queue_events_max);
        let scope = Scope::of(kind, selection);
        let wanted = Arc::new(Wanted::new(selection));
        let mut topics = self.lock();
        let topic = topics.entry(selection.kind).or_default();
        topic.next_id += 1;
        let id = topic.next_id;
        let waiting = Arc::<WaitingBytes>::default();
        let member = Member { queue: sender, waiting: waiting.clone() };
        let wanted = topic.groups(&scope).join(wanted, id, member);
        self.watchers.fetch_add(1, Ordering::Relaxed);
        let since = self.delivered();
        Subscription { hub: self.clone(), kind: selection.kind, scope, wanted, id, queue, waiting, since }
    }

    /// Queues the events of a commit, in order. Called only by the writer, after it published the state.
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

    /// Adds a tap, which gets all changes that are committed after this call.
    pub(crate) fn add_tap(&self) -> Arc<TapQueue> {
        let queue = Arc::new(TapQueue::default());
        self.taps().push(Arc::downgrade(&queue));
        queue
    }

    fn taps(&self) -> MutexGuard<'_, Vec<Weak<TapQueue>>> {
        self.taps.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn queue(&self, state: &State, changes: Vec<(Change, Option<Arc<Entry>>)>) {
        let mut topics = self.lock();
        // A redefined kind has a new number. Watchers of the old number are dropped; when these watchers join again,
        // they get the fault that the kind was redefined.
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

    /// Drops the watchers of a kind. They join again, unless their selection includes an object that cannot be read.
    pub(crate) fn let_go(&self, kind: KindId) {
        self.lock().remove(&kind);
    }

    /// All events up to this offset are in the queues of the watchers that they concern.
    pub fn delivered(&self) -> Offset {
        Offset(self.delivered.load(Ordering::Acquire))
    }

    pub(crate) fn start_at(&self, offset: Offset) {
        self.delivered.store(offset.0, Ordering::Release);
    }

    /// Whether a watch names this one object. Watches with a wider selection do not count, even if it includes the
    /// object.
    pub fn is_object_watched(&self, kind: KindId, key: &str) -> bool {
        self.lock().get(&kind).is_some_and(|topic| topic.by_object.contains_key(key))
    }

    /// The number of watchers that a write to this object may wake, without evaluating label and field selectors.
    /// Watchers that are grouped by a field's value are not counted. An empty `name` means an object that has no name
    /// yet.
    pub fn watchers_of(&self, kind: KindId, namespace: Option<&str>, name: &str) -> usize {
        let topics = self.lock();
        let Some(topic) = topics.get(&kind) else { return 0 };
        let members = |groups: &Groups| groups.all().map(Group::len).sum::<usize>();
        let by_namespace = namespace.and_then(|namespace| topic.by_namespace.get(namespace)).map_or(0, members);
        let by_object = match topic.by_object.is_empty() || name.is_empty() {
            true => 0,
            false => topic.by_object.get(&meta::key(namespace, name)).map_or(0, members),
        };
        members(&topic.all) + by_namespace + by_object
    }

    /// The number of watchers that have joined the hub.
    pub fn watchers(&self) -> usize {
        self.watchers.load(Ordering::Relaxed)
    }

    /// Notifies at every commit.
    pub fn committed(&self) -> &Notify {
        &self.committed
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<KindId, Topic>> {
        self.topics.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Topic {
    /// The groups of a scope. The map of groups is created if the scope has none.
    fn groups(&mut self, scope: &Scope) -> &mut Groups {
        match scope {
            Scope::All => &mut self.all,
            Scope::Object(key) => self.by_object.entry(key.clone()).or_default(),
            Scope::Namespace(name) => self.by_namespace.entry(name.clone()).or_default(),
            Scope::Field(field, value) => self.by_field.entry(*field).or_default().entry(value.clone()).or_default(),
        }
    }

    /// Removes the map of groups of a scope that has no watchers.
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
        let mut looks = LOOKS_MAX;
        let mut deliver_to = |groups: Option<&mut Groups>| {
            if let Some(groups) = groups {
                groups.deliver(kind, event, &mut looks);
            }
        };
        deliver_to(Some(&mut self.all));
        deliver_to(self.by_object.get_mut(key));
        if let (Some(namespace), _) = meta::split_key(key) {
            deliver_to(self.by_namespace.get_mut(namespace));
        }
        for (field, watched) in &mut self.by_field {
            let after = value_of(&event.change.entry, *field);
            let before = event.previous.as_ref().and_then(|entry| value_of(entry, *field));
            let before = before.filter(|before| Some(*before) != after);
            for value in after.into_iter().chain(before) {
                deliver_to(watched.get_mut(value));
            }
        }
    }
}

impl Wanted {
    fn new(selection: &Selection) -> Wanted {
        let mut hasher = DefaultHasher::new();
        selection.hash(&mut hasher);
        Wanted { hash: hasher.finish(), selection: selection.clone() }
    }
}

impl Groups {
    fn all(&self) -> impl Iterator<Item = &Group> {
        self.others.values().chain(self.labelled.values())
    }

    fn is_empty(&self) -> bool {
        self.others.is_empty() && self.labelled.is_empty()
    }

    /// Adds a watcher to the group of its selection. Returns the group's shared copy of the selection.
    fn join(&mut self, wanted: Arc<Wanted>, id: u64, member: Member) -> Arc<Wanted> {
        let named = wanted.selection.labels.names();
        let groups = if named.is_some() { &mut self.labelled } else { &mut self.others };
        if let Some((known, _)) = groups.get_key_value(&wanted) {
            let known = known.clone();
            groups.entry(known.clone()).or_default().insert(id, member);
            return known;
        }
        groups.insert(wanted.clone(), Group::from([(id, member)]));
        if let Some((label, values)) = named {
            let by_value = self.by_label.entry(label.to_owned()).or_default();
            for value in values {
                by_value.entry(value.clone()).or_default().push(wanted.clone());
            }
        }
        wanted
    }

    fn leave(&mut self, wanted: &Arc<Wanted>, id: u64) {
        let named = wanted.selection.labels.names();
        let groups = if named.is_some() { &mut self.labelled } else { &mut self.others };
        let Some(group) = groups.get_mut(wanted) else { return };
        group.remove(&id);
        if !group.is_empty() {
            return;
        }
        groups.remove(wanted);
        let Some((label, values)) = named else { return };
        let Some(by_value) = self.by_label.get_mut(label) else { return };
        for value in values {
            if let Some(those) = by_value.get_mut(value) {
                those.retain(|one| one != wanted);
                if those.is_empty() {
                    by_value.remove(value);
                }
            }
        }
        if by_value.is_empty() {
            self.by_label.remove(label);
        }
    }

    fn deliver(&mut self, kind: &Kind, event: &Arc<Event>, looks: &mut usize) {
        for (wanted, group) in &mut self.others {
            deliver_to(wanted, group, kind, event, looks);
        }
        if self.by_label.is_empty() {
            return;
        }
        let states = [Some(&event.change.entry), event.previous.as_ref()];
        let labels = states.into_iter().flatten().flat_map(|entry| entry.index.labels.iter());
        let found = labels.filter_map(|(label, value)| self.by_label.get(&**label)?.get(&**value));
        // A group that matches both the old and the new labels gets the event once.
        let mut found: Vec<&Arc<Wanted>> = found.flatten().collect();
        found.sort_unstable();
        found.dedup();
        for wanted in found {
            if let Some(group) = self.labelled.get_mut(wanted) {
                deliver_to(wanted, group, kind, event, looks);
            }
        }
    }
}

/// The object's value of one of the kind's selectable fields.
fn value_of(entry: &Entry, field: usize) -> Option<&str> {
    entry.index.fields.get(field).map(|value| &**value)
}

fn deliver_to(wanted: &Wanted, group: &mut Group, kind: &Kind, event: &Arc<Event>, left: &mut usize) {
    let states = [Some(&event.change.entry), event.previous.as_ref()].into_iter().flatten();
    let looks = states.map(|entry| wanted.selection.labels.looks(entry.index.labels.len())).sum();
    let Some(rest) = left.checked_sub(looks) else {
        // Evaluating the selection would be too much work for the writer. The group is dropped, and its watchers read
        // the event from the log, each at its own speed.
        group.clear();
        return;
    };
    *left = rest;
    let Some(change_type) = event.seen_by(kind, &wanted.selection) else { return };
    // A member without room for the event is dropped together with its sender. The watcher reads the events in its
    // queue, then finds the end of the queue, and continues from the log.
    let bytes = event.bytes;
    group.retain(|_, member| {
        let delivery = Delivery { event: event.clone(), change_type };
        let queued = member.waiting.add(bytes) && member.queue.try_send(delivery).is_ok();
        queued || planted(Bug::FullQueueDrops)
    });
}

impl Subscription {
    /// The selection. All watchers with an equal selection share it.
    pub fn selection(&self) -> &Selection {
        &self.wanted.selection
    }

    /// Waits for the next event; `None` after the hub has dropped the watcher.
    pub async fn recv(&mut self) -> Option<Delivery> {
        let delivery = self.queue.recv().await;
        delivery.inspect(|delivery| self.took(delivery))
    }

    /// Returns the next event if it is already in the queue.
    pub fn try_recv(&mut self) -> Result<Delivery, TryRecvError> {
        self.queue.try_recv().inspect(|delivery| self.took(delivery))
    }

    /// Counts the bytes of later events with this charge.
    pub(crate) fn count_with(&self, charge: Charge) {
        self.waiting.count_with(charge);
    }

    fn took(&self, delivery: &Delivery) {
        self.waiting.take(delivery.event.bytes);
    }
}

impl Scope {
    fn of(kind: &Kind, selection: &Selection) -> Scope {
        if let Some(key) = &selection.key {
            return Scope::Object(key.clone());
        }
        let pinned = kind.selectors.fields.iter().enumerate().find_map(|(index, selectable)| {
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
        users.selector_bytes -= self.selector_bytes;
        match users.by_name.get_mut(&self.user) {
            Some(has) if has.count > 1 => {
                has.count -= 1;
                has.selector_bytes -= self.selector_bytes;
            }
            _ => drop(users.by_name.remove(&self.user)),
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut topics = self.hub.lock();
        self.hub.watchers.fetch_sub(1, Ordering::Relaxed);
        let Some(topic) = topics.get_mut(&self.kind) else { return };
        let groups = topic.groups(&self.scope);
        groups.leave(&self.wanted, self.id);
        if groups.is_empty() {
            topic.drop_scope(&self.scope);
        }
    }
}

#[cfg(test)]
mod tests;
