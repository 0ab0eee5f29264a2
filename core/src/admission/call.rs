//! The call of an admission webhook, as an effect.

use bytes::Bytes;
use holdfast_value::Value;

/// A call of a webhook. The engine makes the call.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    pub configuration: String,
    pub webhook: String,
    /// Whether the webhook is a validating webhook.
    pub is_validating: bool,
    /// The webhook's `clientConfig`.
    pub client: Value,
    pub timeout_seconds: u64,
    /// The version of the AdmissionReview.
    pub api_version: String,
    /// The review's `request` without the objects. All webhooks that are called for one write share the objects' JSON.
    pub request: Value,
    pub object: Bytes,
    pub old: Bytes,
}

impl Call {
    /// The AdmissionReview in pieces. Hundreds may be in flight at once; sharing keeps one copy of the objects in
    /// memory.
    pub fn review(&self) -> Vec<Bytes> {
        let Self { api_version, request, .. } = self;
        let about = request.to_string();
        // The text ends with `}` after at least one field, because every request has a UID.
        let about = about.strip_suffix('}').unwrap_or_default();
        let api_version = Value::from(api_version.as_str());
        let head =
            format!("{{\"kind\":\"AdmissionReview\",\"apiVersion\":{api_version},\"request\":{about},\"object\":");
        let between = Bytes::from_static(b",\"oldObject\":");
        vec![head.into(), self.object.clone(), between, self.old.clone(), Bytes::from_static(b"}}")]
    }
}

/// A rate limiter. The write takes one token from it, and is refused if the limiter has no token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bucket {
    /// The index of the limit in the plug-in's configuration.
    pub limit: usize,
    pub key: String,
    /// Tokens that are added per second, and the maximum number of tokens.
    pub per_second: u32,
    pub burst: u32,
    /// The maximum number of rate limiters that the engine stores for this limit.
    pub keys_max: usize,
}
