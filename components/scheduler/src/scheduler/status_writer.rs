//! Writes pods' statuses: the condition `PodScheduled` and the nominated node.
//!
//! At most one write of a pod's status is pending at a time, so an older write never overtakes a newer write. A pod is
//! bound only while no write of its status is pending.
//!
//! The write of the status of a pod with victims may be delayed by up to `DELAY_MAX`: after the evictions the pod may
//! be bound so soon that the write is no longer needed. The write is delayed only while the scheduler has many pods to
//! handle, which need the API server's time more.

use super::requests::{Purpose, status_patch};
use super::{Scheduler, nomination_change};
use crate::object::pod::Pod;
use crate::object::{Key, Text};
use crate::queue::{SECOND, Time};
use crate::status::Nomination;
use holdfast_value::{Value, json};
use jiff::Timestamp;
use std::collections::{HashMap, VecDeque};

/// How long the status of a pod with victims waits at most. By default the pod's first back-off takes one second.
const DELAY_MAX: Time = 2 * SECOND;

/// The writes of statuses that are pending, and the statuses that wait to be written.
#[derive(Debug, Default)]
pub(super) struct StatusWriter {
    pending: HashMap<Key, PendingStatus>,
    /// The pods whose status waits, oldest first, and since when. Some of these pods may be bound by now, or their
    /// statuses written.
    delayed: VecDeque<(Time, Key)>,
}

#[derive(Debug)]
struct PendingStatus {
    uid: Text,
    /// The number of the pending request that writes the status; `None` while no write is pending.
    request: Option<u64>,
    /// The nomination that the status will show after the write; `None` if the write does not change it.
    nomination: Option<Option<Text>>,
    /// The change of the status that is written next; `None` if nothing waits.
    next: Option<Value>,
}

impl StatusWriter {
    /// The nomination that a pod's status will show once pending writes are done; `None` if no write changes it.
    pub fn nomination(&self, key: &Key) -> Option<Option<Text>> {
        self.pending.get(key).and_then(|pending| pending.nomination.clone())
    }

    /// Whether no write of the pod's status is pending.
    pub fn is_idle(&self, key: &Key) -> bool {
        self.pending.get(key).is_none_or(|pending| pending.request.is_none())
    }

    /// Drops the waiting status of a pod that is bound, is being bound or was deleted.
    pub fn forget(&mut self, key: &Key) {
        if self.is_idle(key) {
            self.pending.remove(key);
        }
    }

    /// The time at which the status that has waited longest must be written.
    pub fn due(&self) -> Option<Time> {
        self.delayed.front().map(|(since, _)| since.saturating_add(DELAY_MAX))
    }

    fn next_due(&mut self, is_lightly_loaded: bool, now: Time) -> Option<Key> {
        let is_due = is_lightly_loaded || self.due().is_some_and(|due| due <= now);
        self.delayed.pop_front_if(|_| is_due).map(|(_, key)| key)
    }
}

impl Scheduler {
    /// Writes a pod's status, unless the pod has this status already.
    pub(super) fn write_status(
        &mut self,
        pod: &Pod,
        condition: Option<(&'static str, String)>,
        nomination: Nomination,
        now: Time,
    ) {
        self.update_status(pod, condition, nomination, now);
        self.send_status(&pod.key);
    }

    /// Like `write_status`, for a pod with victims: the write may be delayed.
    pub(super) fn delay_status(
        &mut self,
        pod: &Pod,
        condition: Option<(&'static str, String)>,
        nomination: Nomination,
        now: Time,
    ) {
        self.update_status(pod, condition, nomination, now);
        match self.is_lightly_loaded() {
            true => self.send_status(&pod.key),
            false => self.statuses.delayed.push_back((now, pod.key.clone())),
        }
    }

    /// Sends the waiting statuses that are due.
    pub(super) fn send_due_statuses(&mut self, is_lightly_loaded: bool, now: Time) {
        while let Some(key) = self.statuses.next_due(is_lightly_loaded, now) {
            self.send_status(&key);
        }
    }

    fn update_status(
        &mut self,
        pod: &Pod,
        condition: Option<(&'static str, String)>,
        nomination: Nomination,
        now: Time,
    ) {
        let nomination = nomination_change(nomination).filter(|nomination| pod.nominated != *nomination);
        let changed = condition.filter(|(reason, message)| !has_condition(pod, reason, message));
        let mut status = json!({});
        if let Some((reason, message)) = changed {
            status["conditions"] = json!([unschedulable_condition(pod, reason, &message, now)]);
        }
        if let Some(node) = &nomination {
            status["nominatedNodeName"] = json!(node.as_deref());
            self.snapshot.nominate(&pod.key, node.clone());
        }
        if status.as_object().is_some_and(|status| !status.is_empty()) {
            self.merge_status(&pod.key, &pod.uid, status, nomination);
        }
    }

    /// Merges a change of a pod's status into the change that already waits.
    fn merge_status(&mut self, key: &Key, uid: &Text, status: Value, nomination: Option<Option<Text>>) {
        if let Some(pending) = self.statuses.pending.get_mut(key).filter(|pending| pending.uid == *uid) {
            pending.nomination = nomination.or(pending.nomination.take());
            let next = pending.next.get_or_insert_with(|| json!({}));
            for (field, value) in status.as_object().into_iter().flatten() {
                next[field] = value.clone();
            }
            return;
        }
        let pending = PendingStatus { uid: uid.clone(), request: None, nomination, next: Some(status) };
        self.statuses.pending.insert(key.clone(), pending);
    }

    /// Sends the waiting write, unless another write of the status is in progress. In that case the waiting write is
    /// sent when the other write has ended.
    fn send_status(&mut self, key: &Key) {
        let Some(pending) = self.statuses.pending.get_mut(key).filter(|pending| pending.request.is_none()) else {
            return;
        };
        let Some(status) = pending.next.take() else { return };
        let action = status_patch(key, &pending.uid, status);
        let request = self.requests.send_action(action, Purpose::Status(key.clone()));
        if let Some(pending) = self.statuses.pending.get_mut(key) {
            pending.request = Some(request);
        }
    }

    /// Handles the end of a write, which succeeded or was refused. A refused write is not repeated: the next change
    /// compares the pod's status with the new status.
    pub(super) fn handle_status_outcome(&mut self, key: &Key, number: u64, now: Time) {
        let Some(pending) = self.statuses.pending.get_mut(key).filter(|pending| pending.request == Some(number)) else {
            return;
        };
        pending.request = None;
        if pending.next.is_some() {
            return self.send_status(key);
        }
        self.statuses.pending.remove(key);
        self.continue_binding_cycle(key, now);
    }
}

/// Whether the pod's condition `PodScheduled` already is false with this reason and message.
fn has_condition(pod: &Pod, reason: &str, message: &str) -> bool {
    let condition = pod.scheduled.as_ref();
    condition.is_some_and(|(scheduled, r, m)| !scheduled && **r == *reason && **m == *message)
}

fn unschedulable_condition(pod: &Pod, reason: &str, message: &str, now: Time) -> Value {
    let mut condition = json!({
        "type": "PodScheduled",
        "status": "False",
        "reason": reason,
        "message": message,
    });
    if pod.generation > 0 {
        condition["observedGeneration"] = pod.generation.into();
    }
    // `lastTransitionTime` changes only when the condition changes between true and false.
    if pod.scheduled.as_ref().is_none_or(|(scheduled, ..)| *scheduled) {
        condition["lastTransitionTime"] = timestamp(now).into();
    }
    condition
}

/// A time as conditions show it.
pub(super) fn timestamp(now: Time) -> String {
    let moment = Timestamp::from_nanosecond(now).unwrap_or_default();
    holdfast_world::Time(moment).to_string()
}
