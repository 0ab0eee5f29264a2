use serde_json::{Map, Value};

/// Defaults by message name (below `io.k8s.`): run on every value of that message, inner ones first.
pub fn rules() -> Vec<(&'static str, fn(&mut Map<String, Value>))> {
    Vec::new()
}
