//! Decides which Events are written for planned Events, like client-go's recorder: equal Events are counted, many
//! similar Events are combined, and Events beyond a rate are dropped. The recorder is pure: it returns the write for a
//! planned Event.

use holdfast_value::{Value, json};
use holdfast_world::{PlannedEvent, Time};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::hash::Hash;

/// If a component gives this many different messages for one reason and one object, the last of these messages and
/// further messages are counted in one combined Event.
const SIMILAR_MAX: usize = 10;
/// After this time without a similar Event, in milliseconds, the different messages are counted from 0 again.
const SIMILAR_MS: i64 = 600_000;
/// How many Events about one object a component may write at once.
const BURST: i64 = 25;
/// The time, in milliseconds, after which a component may write one more Event about the object.
const REFILL_MS: i64 = 300_000;
/// The maximum number of entries that the recorder remembers of each kind.
const REMEMBERED_MAX: usize = 4096;
const COMBINED: &str = "(combined from similar events): ";

/// The write that the recorder returns for a planned Event.
#[derive(Debug, PartialEq)]
pub struct EventWrite {
    pub namespace: String,
    pub name: String,
    /// The whole Event. It is created if no Event of this name exists.
    pub event: Value,
    /// The patch of the Event if the recorder has written the Event before. If the patch finds no Event, `event` is
    /// created.
    pub patch: Option<Value>,
}

#[derive(Default)]
pub struct Recorder {
    similar: RecentValues<EventGroup, Similar>,
    /// The Events that were written, by source and reason, by the part of the object, and by the message.
    written: RecentValues<(EventGroup, String, String), WrittenEvent>,
    floods: RecentValues<EventSource, Bucket>,
    /// A counter that makes the names of Events unique if they are written at the same time.
    count: i64,
}

/// A component and the object about which it reports.
#[derive(Clone, PartialEq, Eq, Hash)]
struct EventSource {
    component: &'static str,
    api_version: String,
    kind: String,
    namespace: String,
    name: String,
    uid: String,
    warning: bool,
}

/// An [`EventSource`] together with the reason of an Event.
#[derive(Clone, PartialEq, Eq, Hash)]
struct EventGroup {
    source: EventSource,
    reason: &'static str,
}

struct Similar {
    messages: BTreeSet<String>,
    last: Time,
}

#[derive(Clone)]
struct WrittenEvent {
    name: String,
    count: i64,
    first: Time,
}

struct Bucket {
    tokens: i64,
    since: Time,
}

impl Recorder {
    /// The write for a planned Event; `None` if the component has written too many Events about the object.
    pub fn record(&mut self, component: &'static str, planned: &PlannedEvent, now: Time) -> Option<EventWrite> {
        let source = EventSource {
            component,
            api_version: planned.resource.api_version(),
            kind: planned.resource.kind().to_owned(),
            namespace: planned.key.namespace.to_string(),
            name: planned.key.name.to_string(),
            uid: planned.uid.to_string(),
            warning: planned.warning,
        };
        let about = EventGroup { source: source.clone(), reason: planned.reason };
        let (message, known_by) = self.combine(&about, &planned.message, now);
        let known = self.observe((about, planned.part.clone(), known_by), planned, now);
        self.admit(source, now).then(|| writing(component, planned, &message, &known, now))
    }

    /// The message to write, and the message under which the Event is counted. Similar Events are counted under one
    /// message.
    fn combine(&mut self, about: &EventGroup, message: &str, now: Time) -> (String, String) {
        let similar = self.similar.entry(about, || Similar { messages: BTreeSet::new(), last: now });
        if now.millis_since(similar.last) > SIMILAR_MS {
            similar.messages.clear();
        }
        similar.last = now;
        similar.messages.insert(message.to_owned());
        if similar.messages.len() < SIMILAR_MAX {
            return (message.to_owned(), message.to_owned());
        }
        similar.messages.pop_first();
        (format!("{COMBINED}{message}"), String::new())
    }

    fn observe(&mut self, known_by: (EventGroup, String, String), planned: &PlannedEvent, now: Time) -> WrittenEvent {
        self.count += 1;
        let nanos = now.0.as_nanosecond().saturating_add(i128::from(self.count % 1_000_000));
        let name = || format!("{}.{:x}", planned.key.name, nanos);
        let known = self.written.entry(&known_by, || WrittenEvent { name: name(), count: 0, first: now });
        known.count += 1;
        known.clone()
    }

    /// Whether the component may write one more Event about the object.
    fn admit(&mut self, source: EventSource, now: Time) -> bool {
        let bucket = self.floods.entry(&source, || Bucket { tokens: BURST, since: now });
        let refilled = (now.millis_since(bucket.since) / REFILL_MS).max(0);
        if refilled > 0 {
            bucket.tokens = bucket.tokens.saturating_add(refilled).min(BURST);
            bucket.since = bucket.since.plus_millis(refilled * REFILL_MS);
        }
        let admitted = bucket.tokens > 0;
        bucket.tokens -= i64::from(admitted);
        admitted
    }
}

fn writing(component: &str, planned: &PlannedEvent, message: &str, known: &WrittenEvent, now: Time) -> EventWrite {
    // As in Kubernetes, Events about cluster-scoped objects are in the namespace `default`.
    let namespace = if planned.key.namespace.is_empty() { "default" } else { &planned.key.namespace };
    let mut involved = json!({
        "kind": planned.resource.kind(),
        "name": &*planned.key.name,
        "uid": &*planned.uid,
        "apiVersion": planned.resource.api_version(),
        "resourceVersion": &*planned.version,
    });
    if !planned.key.namespace.is_empty() {
        involved["namespace"] = (*planned.key.namespace).into();
    }
    if !planned.part.is_empty() {
        involved["fieldPath"] = planned.part.as_str().into();
    }
    let mut source = json!({"component": component});
    if !planned.host.is_empty() {
        source["host"] = planned.host.as_str().into();
    }
    let last = now.to_string();
    let event = json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": known.name, "namespace": namespace},
        "involvedObject": involved,
        "reason": planned.reason,
        "message": message,
        "source": source,
        "firstTimestamp": known.first.to_string(),
        "lastTimestamp": last,
        "count": known.count,
        "type": if planned.warning { "Warning" } else { "Normal" },
        "reportingComponent": component,
        "reportingInstance": planned.host,
    });
    let patch = (known.count > 1).then(|| json!({"count": known.count, "lastTimestamp": last, "message": message}));
    EventWrite { namespace: namespace.to_owned(), name: known.name.clone(), event, patch }
}

/// The values of the keys that were used most recently.
struct RecentValues<K, V> {
    values: HashMap<K, (V, u64)>,
    /// The keys in the order of their uses. If a key was used again later, its earlier entry is skipped when it becomes
    /// the oldest.
    used: VecDeque<(K, u64)>,
    clock: u64,
}

impl<K, V> Default for RecentValues<K, V> {
    fn default() -> RecentValues<K, V> {
        RecentValues { values: HashMap::new(), used: VecDeque::new(), clock: 0 }
    }
}

impl<K: Clone + Eq + Hash, V> RecentValues<K, V> {
    fn entry(&mut self, key: &K, new: impl FnOnce() -> V) -> &mut V {
        self.clock += 1;
        let clock = self.clock;
        self.used.push_back((key.clone(), clock));
        while self.values.len() >= REMEMBERED_MAX || self.used.len() > 2 * REMEMBERED_MAX {
            let Some((oldest, used)) = self.used.pop_front() else { break };
            if oldest != *key && self.values.get(&oldest).is_some_and(|(_, last)| *last == used) {
                self.values.remove(&oldest);
            }
        }
        let (value, used) = self.values.entry(key.clone()).or_insert_with(|| (new(), clock));
        *used = clock;
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_world::{Key, Resource};

    fn planned(name: &str, message: &str) -> PlannedEvent {
        PlannedEvent {
            resource: Resource::new("apps", "v1", "replicasets", "ReplicaSet", true),
            key: Key::new("shop", name),
            uid: "u1".into(),
            version: "7".into(),
            warning: false,
            reason: "SuccessfulCreate",
            message: message.to_owned(),
            part: String::new(),
            host: String::new(),
        }
    }

    fn at(second: i64) -> Time {
        Time::from_second(1_795_255_200 + second)
    }

    #[test]
    fn equal_notes_are_counted() {
        let mut recorder = Recorder::default();
        let first = recorder.record("replicaset-controller", &planned("web", "Created"), at(0)).expect("an Event");
        assert_eq!((first.event["count"].as_i64(), &first.patch), (Some(1), &None));
        assert_eq!(first.event["involvedObject"]["resourceVersion"], "7");
        let second = recorder.record("replicaset-controller", &planned("web", "Created"), at(5)).expect("an Event");
        assert_eq!(second.name, first.name);
        let patch = json!({"count": 2, "lastTimestamp": at(5).to_string(), "message": "Created"});
        assert_eq!(second.patch, Some(patch));
        assert_eq!(second.event["firstTimestamp"], at(0).to_string());
        let other = recorder.record("replicaset-controller", &planned("web", "Deleted"), at(5)).expect("an Event");
        assert_ne!(other.name, first.name);
    }

    #[test]
    fn parts_of_an_object_are_told_apart_and_nodes_named() {
        let mut recorder = Recorder::default();
        let of =
            |part: &str| PlannedEvent { part: part.to_owned(), host: "node-0".into(), ..planned("web", "Started") };
        let [first, second] = ["spec.containers{a}", "spec.containers{b}"]
            .map(|part| recorder.record("kubelet", &of(part), at(0)).expect("an Event"));
        assert_ne!(first.name, second.name);
        assert_eq!(second.event["involvedObject"]["fieldPath"], "spec.containers{b}");
        assert_eq!(second.event["source"], json!({"component": "kubelet", "host": "node-0"}));
        assert_eq!(second.event["reportingInstance"], "node-0");
    }

    #[test]
    fn many_alike_are_combined() {
        let mut recorder = Recorder::default();
        let messages: Vec<String> = (0..12)
            .filter_map(|number| recorder.record("c", &planned("web", &format!("Created pod: {number}")), at(0)))
            .map(|writing| format!("{} {}", writing.event["count"], writing.event["message"].as_str().expect("text")))
            .collect();
        assert_eq!(messages[8], "1 Created pod: 8");
        assert_eq!(messages[9], "1 (combined from similar events): Created pod: 9");
        assert_eq!(messages[11], "3 (combined from similar events): Created pod: 11");
        let later = recorder.record("c", &planned("web", "Created pod: 12"), at(601)).expect("an Event");
        assert_eq!(later.event["message"], "Created pod: 12");
    }

    #[test]
    fn a_flood_is_cut_off_and_trickles_on() {
        let mut recorder = Recorder::default();
        let mut written = |count: usize, second: i64| {
            let planned = |_: &usize| recorder.record("c", &planned("web", "again"), at(second)).is_some();
            (0..count).filter(planned).count()
        };
        assert_eq!(written(40, 0), 25);
        assert_eq!(written(5, 299), 0);
        assert_eq!(written(5, 600), 2);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut memory: RecentValues<usize, usize> = RecentValues::default();
        for number in 0..3 * REMEMBERED_MAX {
            *memory.entry(&number, || 0) += 1;
            *memory.entry(&0, || 0) += 1;
        }
        assert!(memory.values.len() <= REMEMBERED_MAX && memory.used.len() <= 2 * REMEMBERED_MAX + 1);
        assert_eq!(*memory.entry(&0, || 0), 3 * REMEMBERED_MAX + 1, "what is used stays");
    }
}
