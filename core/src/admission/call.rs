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
    /// The `apiVersion` of the AdmissionReview, which ends with `/v1` or `/v1beta1`.
    pub api_version: String,
    /// The review's `request` without the objects. All webhooks that are called for one write share the objects' JSON.
    pub request: Value,
    pub object: Bytes,
    pub old: Bytes,
}

impl Call {
    /// The body of the AdmissionReview, in pieces that follow one another. Hundreds of calls may be in flight at once.
    /// They share the pieces with the objects, so that memory contains only one copy of the objects.
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
    /// The number of tokens that are added per second.
    pub per_second: u32,
    /// The maximum number of tokens that the rate limiter has at one time.
    pub burst: u32,
    /// The maximum number of rate limiters that the engine stores for this limit.
    pub keys_max: usize,
}
