//! The watch hub: hands each event to the watchers that it concerns, and to no other.
//!
//! Watchers with equal selections form a group, so a selection is evaluated once an event. Groups are found by
//! hash of what they pin down: one object, one value of an indexed field, one namespace, or nothing. A watcher
//! has a bounded queue; when it is full the watcher is let go, reads on from the log, and comes back.

#[cfg(feature = "planted")]
use crate::planted::{Bug, is};
use bytes::Bytes;
use holdfast_core::event::Offset;
use holdfast_core::kinds::{Kind, KindId};
use holdfast_core::list::Selection;
use holdfast_core::object::meta;
use holdfast_core::state::{Change, Entry, State};
use holdfast_core::wire::protobuf;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use tokio::sync::{Notify, mpsc};

/// Events that may wait for one watcher before it has to read from the log.
const QUEUE_EVENTS_MAX: usize = 256;

/// A committed event as watchers get it, with its wire form made once.
pub struct Event {
    pub change: Change,
    /// The object before the event.
    pub previous: Option<Arc<Entry>>,
    frames: [OnceLock<Bytes>; 3],
    protobuf_frames: [OnceLock<Option<Bytes>>; 3],
}

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
        Event {
            change,
            previous,
            frames: [const { OnceLock::new() }; 3],
            protobuf_frames: [const { OnceLock::new() }; 3],
        }
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
            #[cfg(feature = "planted")]
            (true, false) if is(Bug::LeavingIsModified) && !change.deleted => Some(ChangeType::Modified),
            (true, false) => Some(ChangeType::Deleted),
        }
    }

    /// The newline-ended JSON frame in the given version of the kind; the hub's is made once for all watchers.
    pub fn frame(&self, kind: &Kind, version: usize, change_type: ChangeType) -> Bytes {
        let make = || frame(change_type.as_str(), &self.shown(change_type).json_in(kind, version));
        if version == 0 { self.frames[change_type as usize].get_or_init(make).clone() } else { make() }
    }

    /// The same in Protobuf, its length before it; `None` where the object has no such form.
    pub fn protobuf_frame(&self, kind: &Kind, version: usize, change_type: ChangeType) -> Option<Bytes> {
        let make = || {
            let message = self.shown(change_type).message_in(kind, version)?;
            let object = protobuf::wrap(&kind.versions[version].api_version(), &kind.kind, &message);
            Some(protobuf::watch_frame(change_type.as_str(), &object).into())
        };
        if version == 0 { self.protobuf_frames[change_type as usize].get_or_init(make).clone() } else { make() }
    }

    /// The object as the event shows it. One that left a selection shows its last state there, with the
    /// event's version.
    pub fn shown(&self, change_type: ChangeType) -> Arc<Entry> {
        match &self.previous {
            Some(previous) if change_type == ChangeType::Deleted && !self.change.deleted => {
                Arc::new(previous.at_version(self.change.offset))
            }
            _ => self.change.entry.clone(),
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
    /// Of the registry that the topics were last compared with.
    revision: AtomicU64,
    /// Told of every commit.
    committed: Notify,
}

/// The watchers of one kind.
#[derive(Default)]
struct Topic {
    groups: HashMap<Scope, Vec<Group>>,
    next_id: u64,
}

/// What a selection pins down, for finding it by hash.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Scope {
    Object(String),
    Field(usize, String),
    Namespace(String),
    All,
}

struct Group {
    /// Equal text, equal selection.
    text: String,
    selection: Selection,
    members: Vec<Member>,
}

struct Member {
    id: u64,
    queue: mpsc::Sender<Delivery>,
}

/// A place in the hub. Dropping it leaves.
pub struct Subscription {
    hub: Arc<Hub>,
    kind: KindId,
    scope: Scope,
    id: u64,
    pub queue: mpsc::Receiver<Delivery>,
    /// Events up to this one were delivered before; the queue holds all later ones.
    pub since: Offset,
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
            revision: AtomicU64::default(),
            committed: Notify::default(),
        }
    }

    /// Joins the watchers. From here on every event that concerns the selection is queued.
    pub fn subscribe(self: &Arc<Self>, kind: &Kind, selection: &Selection) -> Subscription {
        let (sender, queue) = mpsc::channel(self.queue_events_max);
        let scope = Scope::of(kind, selection);
        let text = format!("{}|{}|{}|{:?}", selection.prefix, selection.labels, selection.fields, selection.key);
        let mut topics = self.lock();
        let topic = topics.entry(selection.kind).or_default();
        topic.next_id += 1;
        let id = topic.next_id;
        let groups = topic.groups.entry(scope.clone()).or_default();
        let member = Member { id, queue: sender };
        match groups.iter_mut().find(|group| group.text == text) {
            Some(group) => group.members.push(member),
            None => groups.push(Group { text, selection: selection.clone(), members: vec![member] }),
        }
        self.watchers.fetch_add(1, Ordering::Relaxed);
        let since = self.delivered();
        Subscription { hub: self.clone(), kind: selection.kind, scope, id, queue, since }
    }

    /// Queues the events of a commit, in order. Called by the writer alone, after the state was published.
    pub fn deliver(&self, state: &State, changes: Vec<(Change, Option<Arc<Entry>>)>) {
        let mut topics = self.lock();
        // A kind that changed has another number now: its watchers are let go, and find out.
        let revision = state.registry.revision();
        let redefined = self.revision.swap(revision, Ordering::Relaxed) != revision;
        #[cfg(feature = "planted")]
        let redefined = redefined && !is(Bug::RedefinedWatchStays);
        if redefined {
            topics.retain(|kind, _| state.registry.serves(*kind));
        }
        for (change, previous) in changes {
            let Some(topic) = topics.get_mut(&change.kind) else { continue };
            if !topic.groups.is_empty() {
                topic.deliver(state.kind(change.kind), &Arc::new(Event::new(change, previous)));
            }
        }
        self.delivered.store(state.offset.0, Ordering::Release);
        drop(topics);
        self.committed.notify_waiters();
    }

    /// All events up to this one are queued wherever they belong.
    pub fn delivered(&self) -> Offset {
        Offset(self.delivered.load(Ordering::Acquire))
    }

    pub(crate) fn start_at(&self, offset: Offset) {
        self.delivered.store(offset.0, Ordering::Release);
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
    fn deliver(&mut self, kind: &Kind, event: &Arc<Event>) {
        let key = &event.change.key;
        self.deliver_to(kind, event, &Scope::All);
        self.deliver_to(kind, event, &Scope::Object(key.to_string()));
        if let (Some(namespace), _) = meta::split_key(key) {
            self.deliver_to(kind, event, &Scope::Namespace(namespace.to_owned()));
        }
        for field in 0..kind.selectable.len() {
            let after = &event.change.entry.index.fields[field];
            self.deliver_to(kind, event, &Scope::Field(field, after.to_string()));
            let before = event.previous.as_ref().map(|entry| &entry.index.fields[field]);
            if let Some(before) = before.filter(|before| *before != after) {
                self.deliver_to(kind, event, &Scope::Field(field, before.to_string()));
            }
        }
    }

    fn deliver_to(&mut self, kind: &Kind, event: &Arc<Event>, scope: &Scope) {
        let Some(groups) = self.groups.get_mut(scope) else { return };
        for group in groups {
            let Some(change_type) = event.seen_by(kind, &group.selection) else { continue };
            #[cfg(feature = "planted")]
            if is(Bug::FullQueueDrops) {
                for member in &group.members {
                    let _ = member.queue.try_send(Delivery { event: event.clone(), change_type });
                }
                continue;
            }
            // A member whose queue is full is let go: its sender is dropped, so it will notice after the last
            // event that it did get, and read on from the log.
            group
                .members
                .retain(|member| member.queue.try_send(Delivery { event: event.clone(), change_type }).is_ok());
        }
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

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut topics = self.hub.lock();
        self.hub.watchers.fetch_sub(1, Ordering::Relaxed);
        let Some(topic) = topics.get_mut(&self.kind) else { return };
        let Some(groups) = topic.groups.get_mut(&self.scope) else { return };
        for group in groups.iter_mut() {
            group.members.retain(|member| member.id != self.id);
        }
        groups.retain(|group| !group.members.is_empty());
        if groups.is_empty() {
            topic.groups.remove(&self.scope);
        }
    }
}
