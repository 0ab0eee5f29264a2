//! The call of a webhook, as the outside is asked for it.

use bytes::Bytes;
use holdfast_value::Value;

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
    /// Of the AdmissionReview.
    pub api_version: String,
    /// All of the review's `request` but the objects, of which all who are asked about one write share the JSON.
    pub request: Value,
    pub object: Bytes,
    pub old: Bytes,
}

impl Call {
    /// The AdmissionReview as it is sent, in pieces: hundreds may be on their way at once, and the objects among them are
    /// there once.
    pub fn review(&self) -> Vec<Bytes> {
        let Self { api_version, request, .. } = self;
        let about = request.to_string();
        // A request says something always, its uid at least.
        let about = about.strip_suffix('}').unwrap_or_default();
        let api_version = Value::from(api_version.as_str());
        let head =
            format!("{{\"kind\":\"AdmissionReview\",\"apiVersion\":{api_version},\"request\":{about},\"object\":");
        let between = Bytes::from_static(b",\"oldObject\":");
        vec![head.into(), self.object.clone(), between, self.old.clone(), Bytes::from_static(b"}}")]
    }
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
