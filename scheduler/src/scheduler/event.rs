//! Events for people. An Event that repeats within some minutes becomes a count.
//!
//! Orders for pods come before Events: while pods are tried, bound or evicted, Events wait, but only for some seconds,
//! and only so many. Otherwise the API server would spend time on Events that waiting pods need.

use super::Scheduler;
use super::order::{EVENTS, Purpose};
use crate::object::pod::Pod;
use crate::object::{Key, Text};
use crate::queue::{SECOND, Time};
use holdfast_value::{Value, json};
use holdfast_world::{Action, Verb};
use jiff::Timestamp;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

/// The longest note that the API accepts, and the end of a note that was cut.
const NOTE_BYTES_MAX: usize = 1024;
const CUT: &str = " ...";
/// An Event that repeats within this time counts as the same.
const SERIES: Time = 360 * SECOND;
/// How many Events are remembered.
const REMEMBERED: usize = 4096;
/// How long an Event may wait for pods, and how much memory waiting Events may take.
const WAITS_AT_MOST: Time = 5 * SECOND;
pub(super) const WAITING_BYTES_MAX: usize = 32 << 20;
/// How many Events may be written without an answer yet, so that orders for pods do not queue behind many Events: while
/// few pods are under way, and for Events that have waited too long.
const WRITTEN_AT_ONCE: usize = 64;
const LATE_AT_ONCE: usize = 256;

#[derive(Debug, Default)]
pub(super) struct Events {
    /// The name of the machine that the scheduler runs on.
    pub host: String,
    /// Recent Events, by pod, reason and note.
    told: HashMap<(Text, &'static str, String), Told>,
    /// The same Events, by the time of the last repetition.
    by_time: BTreeMap<(Time, u64), (Text, &'static str, String)>,
    number: u64,
    /// Events to be written and when they were made, oldest first.
    pub waiting: VecDeque<(Time, Saying)>,
    /// How much memory the waiting Events take.
    pub waiting_bytes: usize,
    /// How many Events are being written.
    pub unanswered: usize,
}

#[derive(Debug)]
struct Told {
    key: Key,
    count: u64,
    at: (Time, u64),
}

/// The content of an Event.
#[derive(Debug)]
pub(super) struct Saying {
    pub pod: Arc<Pod>,
    pub warning: bool,
    pub reason: &'static str,
    pub action: &'static str,
    pub note: String,
    pub related: Option<Arc<Pod>>,
    pub reporter: Text,
}

impl Saying {
    /// The memory that a waiting Event takes, including a pod that may exist only here.
    fn bytes(&self) -> usize {
        size_of::<(Time, Self)>() + size_of::<Pod>() + self.note.len()
    }
}

impl Scheduler {
    pub(super) fn tell_failure(&mut self, pod: &Arc<Pod>, profile: usize, message: &str, now: Time) {
        let reporter = self.profile(profile).scheduler_name.clone();
        let (reason, action) = ("FailedScheduling", "Scheduling");
        let note = message.to_owned();
        self.tell(Saying { pod: pod.clone(), warning: true, reason, action, note, related: None, reporter }, now);
    }

    pub(super) fn tell(&mut self, mut saying: Saying, now: Time) {
        cut(&mut saying.note);
        self.events.waiting_bytes += saying.bytes();
        self.events.waiting.push_back((now, saying));
    }

    /// Orders the Events that need not wait any more.
    pub(super) fn order_events(&mut self, is_calm: bool, now: Time) {
        while let Some(action) = self.events.next(is_calm, now) {
            self.events.unanswered += 1;
            self.order(action, Purpose::Event);
        }
    }

    /// When the oldest Event has waited too long.
    pub(super) fn event_due(&self) -> Option<Time> {
        self.events.waiting.front().map(|(at, _)| at.saturating_add(WAITS_AT_MOST))
    }
}

impl Events {
    /// The order to write the oldest waiting Event, if it need not wait any more.
    fn next(&mut self, is_calm: bool, now: Time) -> Option<Action> {
        let (at, _) = self.waiting.front()?;
        let is_late = *at <= now.saturating_sub(WAITS_AT_MOST);
        let goes = self.waiting_bytes > WAITING_BYTES_MAX
            || is_calm && self.unanswered < WRITTEN_AT_ONCE
            || is_late && self.unanswered < LATE_AT_ONCE;
        let (at, saying) = self.waiting.pop_front_if(|_| goes)?;
        self.waiting_bytes -= saying.bytes();
        Some(match saying.reason {
            // A pod is bound once, so this Event never repeats and is not remembered.
            "Scheduled" => {
                self.number += 1;
                self.create(&event_key(&saying.pod.key, at, self.number), &saying, at)
            }
            _ => self.note(&saying, at),
        })
    }

    fn note(&mut self, saying: &Saying, now: Time) -> Action {
        self.forget(now);
        self.number += 1;
        let what = (saying.pod.uid.clone(), saying.reason, saying.note.clone());
        let at = (now, self.number);
        if let Some(told) = self.told.get_mut(&what) {
            self.by_time.remove(&told.at);
            told.count += 1;
            told.at = at;
            let series = json!({"series": {"count": told.count, "lastObservedTime": micros(now)}});
            let action = Action::new(&EVENTS, told.key.clone(), Verb::MergePatch(series));
            self.by_time.insert(at, what);
            return action;
        }
        let key = event_key(&saying.pod.key, now, self.number);
        self.told.insert(what.clone(), Told { key: key.clone(), count: 1, at });
        self.by_time.insert(at, what);
        self.create(&key, saying, now)
    }

    fn create(&self, key: &Key, saying: &Saying, now: Time) -> Action {
        let instance = match self.host.is_empty() {
            true => saying.reporter.to_string(),
            false => format!("{}-{}", saying.reporter, self.host),
        };
        let mut event = json!({
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"namespace": &*key.namespace, "name": &*key.name},
            "eventTime": micros(now),
            "type": if saying.warning { "Warning" } else { "Normal" },
            "reason": saying.reason,
            "action": saying.action,
            "note": saying.note,
            "regarding": reference(&saying.pod),
            "reportingController": &*saying.reporter,
            "reportingInstance": instance,
        });
        if let Some(related) = &saying.related {
            event["related"] = reference(related);
        }
        Action::new(&EVENTS, key.clone(), Verb::Create(event))
    }

    fn forget(&mut self, now: Time) {
        while let Some(first) = self.by_time.first_entry() {
            if first.key().0 > now - SERIES && self.told.len() < REMEMBERED {
                return;
            }
            self.told.remove(&first.remove());
        }
    }
}

/// A name that no other Event of the pod has.
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

fn cut(note: &mut String) {
    if note.len() > NOTE_BYTES_MAX {
        let mut end = NOTE_BYTES_MAX - CUT.len();
        while !note.is_char_boundary(end) {
            end -= 1;
        }
        note.truncate(end);
        note.push_str(CUT);
    }
}

fn micros(now: Time) -> String {
    holdfast_world::Time(Timestamp::from_nanosecond(now).unwrap_or_default()).micros()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_notes_are_cut_between_characters() {
        let mut note = "ä".repeat(600);
        cut(&mut note);
        assert!(note.len() <= NOTE_BYTES_MAX && note.ends_with(CUT), "{}", note.len());
    }
}
