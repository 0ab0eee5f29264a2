//! What pods are told in their status: the condition `PodScheduled`, and the node that they are nominated to.
//!
//! One write of a pod's status is under way at a time, so that an older one never overtakes a newer one, and a pod is
//! bound only when none is.

use super::order::{Purpose, patch_status};
use super::{Scheduler, wanted};
use crate::object::pod::Pod;
use crate::object::{Key, Text};
use crate::plan::Nomination;
use crate::queue::Time;
use holdfast_value::{Value, json};
use jiff::Timestamp;

#[derive(Debug)]
pub(super) struct Writing {
    uid: Text,
    order: u64,
    /// The nomination that the status will show.
    nomination: Option<Option<Text>>,
    /// What is to be written next.
    next: Option<Value>,
}

impl Writing {
    pub fn nomination(&self) -> Option<Option<Text>> {
        self.nomination.clone()
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
            self.patch(&pod.key, &pod.uid, status, nomination);
        }
    }

    fn patch(&mut self, key: &Key, uid: &Text, status: Value, nomination: Option<Option<Text>>) {
        if let Some(writing) = self.writing.get_mut(key).filter(|writing| writing.uid == *uid) {
            writing.nomination = nomination.or(writing.nomination.take());
            let next = writing.next.get_or_insert_with(|| json!({}));
            for (field, value) in status.as_object().into_iter().flatten() {
                next[field] = value.clone();
            }
            return;
        }
        let order = self.order(patch_status(key, uid, status), Purpose::Status(key.clone()));
        self.writing.insert(key.clone(), Writing { uid: uid.clone(), order, nomination, next: None });
    }

    /// Whether nothing is being written to a pod's status.
    pub(super) fn is_quiet(&self, key: &Key) -> bool {
        !self.writing.contains_key(key)
    }

    /// Whether it was written or refused: what it says is compared with what it should say when there is more to say.
    pub(super) fn status_answered(&mut self, key: &Key, number: u64, now: Time) {
        let Some(writing) = self.writing.get_mut(key).filter(|writing| writing.order == number) else { return };
        if let Some(status) = writing.next.take() {
            let (uid, nomination) = (writing.uid.clone(), writing.nomination.take());
            self.writing.remove(key);
            return self.patch(key, &uid, status, nomination);
        }
        self.writing.remove(key);
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
