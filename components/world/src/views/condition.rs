//! The conditions in the status of objects.

use crate::Time;
use serde::Deserialize;

/// A condition in a status, with the fields that most kinds have.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Condition {
    #[serde(rename = "type")]
    pub kind: String,
    pub status: String,
    pub reason: String,
    pub message: String,
    pub last_transition_time: Option<Time>,
    pub last_update_time: Option<Time>,
    pub last_probe_time: Option<Time>,
    pub last_heartbeat_time: Option<Time>,
}

impl Condition {
    pub fn find<'a>(conditions: &'a [Condition], kind: &str) -> Option<&'a Condition> {
        conditions.iter().find(|condition| condition.kind == kind)
    }

    pub fn is_true(conditions: &[Condition], kind: &str) -> bool {
        Condition::find(conditions, kind).is_some_and(|condition| condition.status == "True")
    }
}
