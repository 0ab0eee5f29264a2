//! Keeps the conditions of a status as documents, so that conditions of unknown types are preserved.

use holdfast_value::{Map, Value, json};
use holdfast_world::Time;
use holdfast_world::views::Condition;

/// The conditions of a status that is about to be written.
#[derive(Debug, Clone, Default)]
pub struct Conditions(Vec<Value>);

impl Conditions {
    /// Takes the conditions out of a status.
    pub fn take(status: &mut Map) -> Conditions {
        match status.remove("conditions") {
            Some(Value::Array(conditions)) => Conditions(conditions),
            _ => Conditions::default(),
        }
    }

    /// Puts the conditions back into a status.
    pub fn put(self, status: &mut Map) {
        if !self.0.is_empty() {
            status.insert("conditions", self.0.into());
        }
    }

    pub fn get(&self, kind: &str) -> Option<Condition> {
        let found = self.0.iter().find(|condition| condition["type"] == kind)?;
        holdfast_value::from_value(found.clone()).ok()
    }

    pub fn remove(&mut self, kind: &str) {
        self.0.retain(|condition| condition["type"] != kind);
    }

    pub fn push(&mut self, condition: Value) {
        self.0.push(condition);
    }

    /// Sets a condition of a Deployment. A condition with the same status and reason stays as it is, even with another
    /// message.
    pub fn set(&mut self, kind: &str, state: &str, reason: &str, message: String, now: Time) {
        if !self.get(kind).is_some_and(|known| known.status == state && known.reason == reason) {
            self.renew(kind, state, reason, message, now);
        }
    }

    /// Sets a condition, also if the present condition has the same status and reason. In that case only its message
    /// and the time of its last update change.
    pub fn renew(&mut self, kind: &str, state: &str, reason: &str, message: String, now: Time) {
        let since = self.get(kind).filter(|known| known.status == state).and_then(|known| known.last_transition_time);
        self.remove(kind);
        self.push(json!({
            "type": kind,
            "status": state,
            "reason": reason,
            "message": message,
            "lastUpdateTime": now,
            "lastTransitionTime": since.unwrap_or(now),
        }));
    }
}
