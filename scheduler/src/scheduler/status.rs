//! What pods are told in their status: the condition `PodScheduled`, and the node that they are nominated to.
//!
//! One write of a pod's status is under way at a time, so that an older one never overtakes a newer one, and a pod is
//! bound only when none is.
//!
//! What a pod is told for which others go may wait for them, though not for long: by then it may be bound, and what it
//! would have been told is past. Only where many pods are under way, so that somebody waits for the work that it makes.

use super::order::{Purpose, patch_status};
use super::{Scheduler, wanted};
use crate::object::pod::Pod;
use crate::object::{Key, Text};
use crate::plan::Nomination;
use crate::queue::{SECOND, Time};
use holdfast_value::{Value, json};
use jiff::Timestamp;
use std::collections::{HashMap, VecDeque};

/// How long what a pod is told may wait for its place: it is tried again after a second at the earliest.
const WAITS_AT_MOST: Time = 2 * SECOND;

/// What is written to pods' statuses, and what waits to be.
#[derive(Debug, Default)]
pub(super) struct Statuses {
    writing: HashMap<Key, Writing>,
    /// Pods whose status waits, since when, the oldest first. Some were bound or told meanwhile.
    waiting: VecDeque<(Time, Key)>,
}

#[derive(Debug)]
struct Writing {
    uid: Text,
    /// The write under way; without one, the status waits.
    order: Option<u64>,
    /// The nomination that the status will show.
    nomination: Option<Option<Text>>,
    /// What is to be written next.
    next: Option<Value>,
}

impl Statuses {
    /// The nomination that a pod's status will show, where one is being written or waits to be.
    pub fn nomination(&self, key: &Key) -> Option<Option<Text>> {
        self.writing.get(key).and_then(|writing| writing.nomination.clone())
    }

    /// Whether nothing is being written to a pod's status.
    pub fn is_quiet(&self, key: &Key) -> bool {
        self.writing.get(key).is_none_or(|writing| writing.order.is_none())
    }

    /// The pod is being bound, lies somewhere or is gone: what waits to be told is past.
    pub fn forget(&mut self, key: &Key) {
        if self.is_quiet(key) {
            self.writing.remove(key);
        }
    }

    /// When the status that has waited longest must be written.
    pub fn due(&self) -> Option<Time> {
        self.waiting.front().map(|(since, _)| since.saturating_add(WAITS_AT_MOST))
    }

    fn next_due(&mut self, is_calm: bool, now: Time) -> Option<Key> {
        let goes = is_calm || self.due().is_some_and(|due| due <= now);
        self.waiting.pop_front_if(|_| goes).map(|(_, key)| key)
    }
}

impl Scheduler {
    /// Has a pod's status say this, unless it says so already.
    pub(super) fn write_status(
        &mut self,
        pod: &Pod,
        condition: Option<(&'static str, String)>,
        nomination: Nomination,
        now: Time,
    ) {
        self.say(pod, condition, nomination, now);
        self.write_waiting(&pod.key);
    }

    /// The same for a pod for which others go.
    pub(super) fn write_status_in_time(
        &mut self,
        pod: &Pod,
        condition: Option<(&'static str, String)>,
        nomination: Nomination,
        now: Time,
    ) {
        self.say(pod, condition, nomination, now);
        match self.is_calm() {
            true => self.write_waiting(&pod.key),
            false => self.statuses.waiting.push_back((now, pod.key.clone())),
        }
    }

    /// Orders the statuses that need not wait any more.
    pub(super) fn order_statuses(&mut self, is_calm: bool, now: Time) {
        while let Some(key) = self.statuses.next_due(is_calm, now) {
            self.write_waiting(&key);
        }
    }

    fn say(&mut self, pod: &Pod, condition: Option<(&'static str, String)>, nomination: Nomination, now: Time) {
        let nomination = wanted(nomination).filter(|wanted| pod.nominated != *wanted);
        let news = condition.filter(|(reason, message)| !says(pod, reason, message));
        let mut status = json!({});
        if let Some((reason, message)) = news {
            status["conditions"] = json!([unscheduled(pod, reason, &message, now)]);
        }
        if let Some(node) = &nomination {
            status["nominatedNodeName"] = json!(node.as_deref());
            self.snapshot.nominate(&pod.key, node.clone());
        }
        if status.as_object().is_some_and(|status| !status.is_empty()) {
            self.keep_status(&pod.key, &pod.uid, status, nomination);
        }
    }

    /// Keeps what is to be written, with what waits already.
    fn keep_status(&mut self, key: &Key, uid: &Text, status: Value, nomination: Option<Option<Text>>) {
        if let Some(writing) = self.statuses.writing.get_mut(key).filter(|writing| writing.uid == *uid) {
            writing.nomination = nomination.or(writing.nomination.take());
            let next = writing.next.get_or_insert_with(|| json!({}));
            for (field, value) in status.as_object().into_iter().flatten() {
                next[field] = value.clone();
            }
            return;
        }
        let writing = Writing { uid: uid.clone(), order: None, nomination, next: Some(status) };
        self.statuses.writing.insert(key.clone(), writing);
    }

    /// Orders what waits, unless a write is under way: it follows that one then.
    fn write_waiting(&mut self, key: &Key) {
        let Some(writing) = self.statuses.writing.get_mut(key).filter(|writing| writing.order.is_none()) else {
            return;
        };
        let Some(status) = writing.next.take() else { return };
        let action = patch_status(key, &writing.uid, status);
        let order = self.order(action, Purpose::Status(key.clone()));
        if let Some(writing) = self.statuses.writing.get_mut(key) {
            writing.order = Some(order);
        }
    }

    /// Whether it was written or refused: what it says is compared with what it should say when there is more to say.
    pub(super) fn status_answered(&mut self, key: &Key, number: u64, now: Time) {
        let Some(writing) = self.statuses.writing.get_mut(key).filter(|writing| writing.order == Some(number)) else {
            return;
        };
        writing.order = None;
        if writing.next.is_some() {
            return self.write_waiting(key);
        }
        self.statuses.writing.remove(key);
        self.go_on(key, now);
    }
}

/// Whether the pod's condition says this already.
fn says(pod: &Pod, reason: &str, message: &str) -> bool {
    let condition = pod.scheduled.as_ref();
    condition.is_some_and(|(scheduled, r, m)| !scheduled && **r == *reason && **m == *message)
}

fn unscheduled(pod: &Pod, reason: &str, message: &str, now: Time) -> Value {
    let mut condition = json!({
        "type": "PodScheduled",
        "status": "False",
        "reason": reason,
        "message": message,
    });
    if pod.generation > 0 {
        condition["observedGeneration"] = pod.generation.into();
    }
    // The time is that of the last change between true and false.
    if pod.scheduled.as_ref().is_none_or(|(scheduled, ..)| *scheduled) {
        condition["lastTransitionTime"] = seconds(now).into();
    }
    condition
}

/// A moment as conditions tell it.
pub(super) fn seconds(now: Time) -> String {
    let moment = Timestamp::from_nanosecond(now).unwrap_or_default();
    holdfast_world::Time(moment).to_string()
}
