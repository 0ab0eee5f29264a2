//! Writes pods' statuses: the condition `PodScheduled` and the nominated node.
//!
//! At most one write of a pod's status is under way at a time, so an older write never overtakes a newer one. A pod is
//! bound only while no write is under way.
//!
//! The status of a pod with victims may wait for the evictions, but only for seconds: by then the pod may be bound, and
//! the write is no longer needed. It waits only while many pods are under way, so that other pods need the API server's
//! time.

use super::order::{Purpose, patch_status};
use super::{Scheduler, wanted};
use crate::object::pod::Pod;
use crate::object::{Key, Text};
use crate::plan::Nomination;
use crate::queue::{SECOND, Time};
use holdfast_value::{Value, json};
use jiff::Timestamp;
use std::collections::{HashMap, VecDeque};

/// How long the status of a pod with victims may wait: the pod is tried again after a second at the earliest.
const WAITS_AT_MOST: Time = 2 * SECOND;

/// Writes of statuses under way, and those that wait.
#[derive(Debug, Default)]
pub(super) struct Statuses {
    writing: HashMap<Key, Writing>,
    /// Pods whose status waits, and since when, oldest first. Some may have been bound or written since.
    waiting: VecDeque<(Time, Key)>,
}

#[derive(Debug)]
struct Writing {
    uid: Text,
    /// The order of the write under way; `None`: the status waits.
    order: Option<u64>,
    /// The nomination that the status will show.
    nomination: Option<Option<Text>>,
    /// What is to be written next.
    next: Option<Value>,
}

impl Statuses {
    /// The nomination that a pod's status will show once pending writes are done; `None`: no write changes it.
    pub fn nomination(&self, key: &Key) -> Option<Option<Text>> {
        self.writing.get(key).and_then(|writing| writing.nomination.clone())
    }

    /// Whether no write of the pod's status is under way.
    pub fn is_quiet(&self, key: &Key) -> bool {
        self.writing.get(key).is_none_or(|writing| writing.order.is_none())
    }

    /// The pod is being bound, is bound or is gone: drops its waiting status.
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
    /// Writes a pod's status, unless it has this content already.
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

    /// As `write_status`, for a pod with victims: the write may wait.
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

    /// Merges a change of a status into what waits already.
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

    /// Orders the waiting write, unless a write is under way: then it follows that one.
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

    /// A write succeeded or was refused. A refused write is not repeated: the next change compares the status with what
    /// it should be.
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

/// Whether the pod's condition has this content already.
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
    // The API's `lastTransitionTime` changes only between true and false.
    if pod.scheduled.as_ref().is_none_or(|(scheduled, ..)| *scheduled) {
        condition["lastTransitionTime"] = seconds(now).into();
    }
    condition
}

/// A time as conditions show it.
pub(super) fn seconds(now: Time) -> String {
    let moment = Timestamp::from_nanosecond(now).unwrap_or_default();
    holdfast_world::Time(moment).to_string()
}
