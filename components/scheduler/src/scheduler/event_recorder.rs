//! Writes Events, which are for people. If an Event repeats within `SERIES_WINDOW`, its count is raised instead of a
//! new Event being written.
//!
//! Requests for pods come before Events: while pods are tried, bound or evicted, Events wait, but only for some seconds
//! and only up to a limit of memory. Otherwise the API server would spend time on Events while pods wait.

use super::Scheduler;
use super::requests::{EVENTS, Purpose};
use crate::object::pod::Pod;
use crate::object::{Key, Text};
use crate::queue::{SECOND, Time};
use holdfast_value::{Value, json};
use holdfast_world::{Action, Verb};
use jiff::Timestamp;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

/// How many bytes the note of an Event may have; the API accepts no more.
const NOTE_BYTES_MAX: usize = 1024;
/// The end of a note that was cut because it was too long.
const TRUNCATED: &str = " ...";
/// If an Event repeats within this time, the repetition is counted in the Event that was written first.
const SERIES_WINDOW: Time = 360 * SECOND;
/// How many Events are kept to find their repetitions.
const RECORDED_MAX: usize = 4096;
/// How long an Event waits at most while requests for pods are pending.
const DELAY_MAX: Time = 5 * SECOND;
/// How many bytes waiting Events may take; beyond that, the oldest Events are written at once.
pub(super) const WAITING_BYTES_MAX: usize = 32 << 20;
/// While the scheduler is lightly loaded, at most this many writes of Events are pending, so that requests for pods do
/// not queue behind Events.
const UNANSWERED_MAX: usize = 64;
/// If Events have waited for too long, at most this many writes of Events are pending.
const LATE_UNANSWERED_MAX: usize = 256;

#[derive(Debug, Default)]
pub(super) struct EventRecorder {
    /// The name of the machine that the scheduler runs on.
    pub host: String,
    /// The recent Events by pod, reason and note.
    recorded: HashMap<(Text, &'static str, String), RecordedEvent>,
    /// The keys of `recorded` by the time of the Event's last repetition, for dropping the oldest Events.
    by_time: BTreeMap<(Time, u64), (Text, &'static str, String)>,
    number: u64,
    /// The Events that wait to be written, the oldest first, each with the time at which it was made.
    pub waiting: VecDeque<(Time, PodEvent)>,
    /// How many bytes of memory the waiting Events take.
    pub waiting_bytes: usize,
    /// How many requests that write Events are pending.
    pub unanswered: usize,
}

#[derive(Debug)]
struct RecordedEvent {
    key: Key,
    count: u64,
    at: (Time, u64),
}

/// The content of an Event.
#[derive(Debug)]
pub(super) struct PodEvent {
    pub pod: Arc<Pod>,
    pub warning: bool,
    pub reason: &'static str,
    pub action: &'static str,
    pub note: String,
    pub related: Option<Arc<Pod>>,
    pub reporter: Text,
}

impl PodEvent {
    /// How many bytes of memory a waiting Event takes. The pod counts, too, because the Event may hold the only copy of
    /// the pod.
    fn bytes(&self) -> usize {
        size_of::<(Time, Self)>() + size_of::<Pod>() + self.note.len()
    }
}

impl Scheduler {
    pub(super) fn record_failure(&mut self, pod: &Arc<Pod>, profile: usize, message: &str, now: Time) {
        let reporter = self.profile(profile).scheduler_name.clone();
        let (reason, action) = ("FailedScheduling", "Scheduling");
        let note = message.to_owned();
        self.record_event(
            PodEvent { pod: pod.clone(), warning: true, reason, action, note, related: None, reporter },
            now,
        );
    }

    pub(super) fn record_event(&mut self, mut event: PodEvent, now: Time) {
        truncate_note(&mut event.note);
        self.events.waiting_bytes += event.bytes();
        self.events.waiting.push_back((now, event));
    }

    /// Sends the Events that are due, as far as limits allow.
    pub(super) fn send_due_events(&mut self, is_lightly_loaded: bool, now: Time) {
        while let Some(action) = self.events.next_write(is_lightly_loaded, now) {
            self.events.unanswered += 1;
            self.requests.send_action(action, Purpose::Event);
        }
    }

    /// The time at which the oldest waiting Event must be written.
    pub(super) fn next_event_due(&self) -> Option<Time> {
        self.events.waiting.front().map(|(at, _)| at.saturating_add(DELAY_MAX))
    }
}

impl EventRecorder {
    /// The request that writes the oldest waiting Event; `None` if no Event is to be written now.
    fn next_write(&mut self, is_lightly_loaded: bool, now: Time) -> Option<Action> {
        let (at, _) = self.waiting.front()?;
        let is_late = *at <= now.saturating_sub(DELAY_MAX);
        let is_due = self.waiting_bytes > WAITING_BYTES_MAX
            || is_lightly_loaded && self.unanswered < UNANSWERED_MAX
            || is_late && self.unanswered < LATE_UNANSWERED_MAX;
        let (at, event) = self.waiting.pop_front_if(|_| is_due)?;
        self.waiting_bytes -= event.bytes();
        Some(match event.reason {
            // Each pod is bound only once, so its Event `Scheduled` never repeats and is not kept for counting.
            "Scheduled" => {
                self.number += 1;
                self.create_action(&event_key(&event.pod.key, at, self.number), &event, at)
            }
            _ => self.create_or_count(&event, at),
        })
    }

    fn create_or_count(&mut self, event: &PodEvent, now: Time) -> Action {
        self.forget_old(now);
        self.number += 1;
        let identity = (event.pod.uid.clone(), event.reason, event.note.clone());
        let at = (now, self.number);
        if let Some(recorded) = self.recorded.get_mut(&identity) {
            self.by_time.remove(&recorded.at);
            recorded.count += 1;
            recorded.at = at;
            let series = json!({"series": {"count": recorded.count, "lastObservedTime": micro_time(now)}});
            let action = Action::new(&EVENTS, recorded.key.clone(), Verb::MergePatch(series));
            self.by_time.insert(at, identity);
            return action;
        }
        let key = event_key(&event.pod.key, now, self.number);
        self.recorded.insert(identity.clone(), RecordedEvent { key: key.clone(), count: 1, at });
        self.by_time.insert(at, identity);
        self.create_action(&key, event, now)
    }

    fn create_action(&self, key: &Key, event: &PodEvent, now: Time) -> Action {
        let instance = match self.host.is_empty() {
            true => event.reporter.to_string(),
            false => format!("{}-{}", event.reporter, self.host),
        };
        let mut object = json!({
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"namespace": &*key.namespace, "name": &*key.name},
            "eventTime": micro_time(now),
            "type": if event.warning { "Warning" } else { "Normal" },
            "reason": event.reason,
            "action": event.action,
            "note": event.note,
            "regarding": reference(&event.pod),
            "reportingController": &*event.reporter,
            "reportingInstance": instance,
        });
        if let Some(related) = &event.related {
            object["related"] = reference(related);
        }
        Action::new(&EVENTS, key.clone(), Verb::Create(object))
    }

    fn forget_old(&mut self, now: Time) {
        while let Some(first) = self.by_time.first_entry() {
            if first.key().0 > now - SERIES_WINDOW && self.recorded.len() < RECORDED_MAX {
                return;
            }
            self.recorded.remove(&first.remove());
        }
    }
}

/// A name for an Event of a pod that no other Event of the pod has.
fn event_key(pod: &Key, now: Time, number: u64) -> Key {
    let moment = now.wrapping_add(number.into()) & i128::from(u64::MAX);
    Key { namespace: pod.namespace.clone(), name: format!("{}.{moment:016x}", pod.name).into() }
}

fn reference(pod: &Pod) -> Value {
    let mut reference = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "namespace": &*pod.key.namespace,
        "name": &*pod.key.name,
        "uid": &*pod.uid,
    });
    if let Some(version) = pod.version {
        reference["resourceVersion"] = version.to_string().into();
    }
    reference
}

fn truncate_note(note: &mut String) {
    if note.len() > NOTE_BYTES_MAX {
        let mut end = NOTE_BYTES_MAX - TRUNCATED.len();
        while !note.is_char_boundary(end) {
            end -= 1;
        }
        note.truncate(end);
        note.push_str(TRUNCATED);
    }
}

fn micro_time(now: Time) -> String {
    holdfast_world::Time(Timestamp::from_nanosecond(now).unwrap_or_default()).micros()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_notes_are_truncated_between_characters() {
        let mut note = "ä".repeat(600);
        truncate_note(&mut note);
        assert!(note.len() <= NOTE_BYTES_MAX && note.ends_with(TRUNCATED), "{}", note.len());
    }
}
