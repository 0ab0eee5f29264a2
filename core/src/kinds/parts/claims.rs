//! The values that only one object of the cluster may hold.

use crate::kinds::Allocate;
use holdfast_value::Value;

/// The claims of a kind's objects. The state reads the claims of every stored object, the writer refuses a claim that
/// another object holds, and the stage `allocate` completes an object with free values.
#[derive(Default)]
pub struct ClaimRules {
    /// The claims of an object, as text: `ip/10.0.0.1`. `None` means that objects of the kind claim nothing.
    pub(in crate::kinds) held: Option<fn(&Value) -> Vec<String>>,
    /// Allocates claims for an object. It runs before every write except a deletion.
    pub allocate: Option<Allocate>,
}

impl ClaimRules {
    /// Whether objects of the kind may hold claims.
    pub fn are_possible(&self) -> bool {
        self.held.is_some()
    }

    /// The claims that an object holds.
    pub fn of(&self, object: &Value) -> Vec<String> {
        self.held.map(|held| held(object)).unwrap_or_default()
    }
}
