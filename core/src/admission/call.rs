//! The call of a webhook, as the outside is asked for it.

use serde_json::Value;

/// A call of a webhook: the effect that the outside carries out.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    pub configuration: String,
    pub webhook: String,
    /// Which half of admission calls.
    pub is_validating: bool,
    /// The webhook's `clientConfig`.
    pub client: Value,
    pub timeout_seconds: u64,
    pub review: Value,
}

/// A bucket that a write takes a token of, if there is one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bucket {
    /// Which of the configured limits it belongs to.
    pub limit: usize,
    pub key: String,
    /// How many tokens come in a second, and how many it holds.
    pub per_second: u32,
    pub burst: u32,
    /// How many buckets of its limit are kept.
    pub keys_max: usize,
}
