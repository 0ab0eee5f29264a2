//! ImagePolicyWebhook's server: asked about images, and what it says kept for as long as the operator allows.

use anyhow::{Context, Result};
use async_trait::async_trait;
use holdfast_component::api::{Api, Place};
use holdfast_component::cache::Cache;
use holdfast_core::admission::ImagePolicy;
use holdfast_transport_http::Images;
use serde_json::Value;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long an answer may take.
const ANSWER_MAX: Duration = Duration::from_secs(30);

pub struct Webhook {
    api: Api,
    /// Of the URL, whatever it is.
    path: String,
    policy: ImagePolicy,
    answers: Cache<String, Value>,
}

impl Webhook {
    /// The server that the current context of the kubeconfig names.
    pub async fn open(policy: ImagePolicy) -> Result<Arc<dyn Images>> {
        let file = policy.kubeconfig.clone();
        let agent = concat!("holdfast/", env!("CARGO_PKG_VERSION"));
        let place = Place { kubeconfig: Some(Path::new(&file)), agent, ..Place::default() };
        let (api, path) = Api::of_webhook(&place, ANSWER_MAX)
            .await
            .with_context(|| format!("couldn't init admission plugin \"ImagePolicyWebhook\": {file}"))?;
        Ok(Arc::new(Webhook { api, path, policy, answers: Cache::default() }))
    }
}

#[async_trait]
impl Images for Webhook {
    async fn judge(&self, review: &Value) -> Result<Value, String> {
        let key = review["spec"].to_string();
        if let Some(status) = self.answers.get(&key, Instant::now()) {
            return Ok(status);
        }
        let answer =
            self.api.post_again(&self.path, review, self.policy.retry_backoff).await.map_err(|error| error.message)?;
        if answer["kind"] != review["kind"] {
            return Err(format!("no kind {} is what was asked for", answer["kind"]));
        }
        let status = answer["status"].clone();
        let time = if status["allowed"] == true { self.policy.allow_time } else { self.policy.deny_time };
        self.answers.put(key, status.clone(), Instant::now(), time);
        Ok(status)
    }
}
