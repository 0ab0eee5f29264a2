//! Conditions of a status, as documents: those of types that nobody here knows stay as they are.

use holdfast_value::{Map, Value, json};
use holdfast_world::Time;
use holdfast_world::views::pod::Condition;

/// The conditions of a status that is about to be written.
#[derive(Debug, Clone, Default)]
pub struct Conditions(Vec<Value>);

impl Conditions {
    /// Takes them out of a status.
    pub fn take(status: &mut Map) -> Conditions {
        match status.remove("conditions") {
            Some(Value::Array(conditions)) => Conditions(conditions),
            _ => Conditions::default(),
        }
    }

    /// Puts them back.
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

    /// Sets a condition of a Deployment; one of the same status for the same reason stays as it is, whatever it says.
    pub fn set(&mut self, kind: &str, state: &str, reason: &str, message: String, now: Time) {
        if !self.get(kind).is_some_and(|known| known.status == state && known.reason == reason) {
            self.renew(kind, state, reason, message, now);
        }
    }

    /// The same though nothing is new, which shows in the time of its last update alone.
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
