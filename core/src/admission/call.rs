//! The call of a webhook, as the outside is asked for it.

use serde_json::Value;

/// A call of a webhook: the effect that the outside carries out.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    pub configuration: String,
    pub webhook: String,
    /// The webhook's `clientConfig`.
    pub client: Value,
    pub timeout_seconds: u64,
    pub review: Value,
}
