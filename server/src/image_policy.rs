//! The webhook of ImagePolicyWebhook. Its answers about images are cached as long as its configuration allows.

use anyhow::{Result, anyhow};
use async_trait::async_trait;
use holdfast_core::admission::ImagePolicy;
use holdfast_edge::Cache;
use holdfast_outbound::Dialer;
use holdfast_outbound::kubeconfig::Posting;
use holdfast_transport_http::Images;
use holdfast_value::Value;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The timeout of a request to the webhook.
const ANSWER_MAX: Duration = Duration::from_secs(30);

pub struct Webhook {
    posting: Posting,
    policy: ImagePolicy,
    answers: Cache<String, Value>,
}

impl Webhook {
    /// The webhook at the current context of the policy's kubeconfig.
    pub fn open(policy: ImagePolicy) -> Result<Arc<dyn Images>> {
        let posting = Posting::from_file(Path::new(&policy.kubeconfig), "", &Dialer::Direct)
            .map_err(|why| anyhow!("couldn't init admission plugin \"ImagePolicyWebhook\": {why}"))?;
        Ok(Arc::new(Webhook { posting, policy, answers: Cache::default() }))
    }
}

#[async_trait]
impl Images for Webhook {
    async fn judge(&self, review: &Value) -> Result<Value, String> {
        let key = review["spec"].to_string();
        if let Some(status) = self.answers.get(&key, Instant::now()) {
            return Ok(status);
        }
        let body = review.to_string().into();
        let answer = self.posting.post_again("", &body, ANSWER_MAX, self.policy.retry_backoff).await;
        let answer = answer.map_err(|fault| fault.to_string())?;
        let answer: Value =
            serde_json::from_slice(&answer).map_err(|error| format!("the answer is not JSON: {error}"))?;
        if answer["kind"] != review["kind"] {
            return Err(format!("the webhook answered with the kind {} instead of an ImageReview", answer["kind"]));
        }
        let status = answer["status"].clone();
        let time = if status["allowed"] == true { self.policy.allow_time } else { self.policy.deny_time };
        let namespace = review["spec"]["namespace"].as_str().unwrap_or_default();
        self.answers.put(key, namespace, status.clone(), Instant::now(), time);
        Ok(status)
    }
}
