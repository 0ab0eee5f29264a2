//! The status of a node whose heartbeats have stopped.

use crate::subject::Subject;
use holdfast_value::{Value, json};
use holdfast_world::views::Node;
use holdfast_world::{Action, Time, Viewed};

const TYPES: [&str; 4] = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];
const UNKNOWN: &str = "Unknown";

/// The write that gives the status Unknown to all conditions that kubelets report; `None` if all have it already.
pub fn unknown(node: Viewed<'_, Node>, now: Time) -> Option<Action> {
    let created = node.meta().creation_timestamp;
    Subject::from(node).status(|status| {
        let conditions = status.entry("conditions").or_insert_with(|| json!([]));
        let Some(conditions) = conditions.as_array_mut() else { return };
        for kind in TYPES {
            match conditions.iter_mut().find(|condition| condition["type"] == kind) {
                None => conditions.push(json!({"type": kind, "status": UNKNOWN, "reason": "NodeStatusNeverUpdated",
                    "message": "Kubelet never posted node status.", "lastHeartbeatTime": created,
                    "lastTransitionTime": now})),
                Some(known) if known["status"] == UNKNOWN => {}
                Some(known) => {
                    known["status"] = UNKNOWN.into();
                    known["reason"] = "NodeStatusUnknown".into();
                    known["message"] = "Kubelet stopped posting node status.".into();
                    known["lastTransitionTime"] = Value::from(now.to_string());
                }
            }
        }
    })
}
