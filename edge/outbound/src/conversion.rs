//! Calls conversion webhooks and admission webhooks.

use crate::{CallTarget, Credentials, Outbound, ServerAddress, TlsTrust, Users, cleaned, cleaned_url, deadline};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use holdfast_core::Refusal;
use holdfast_core::admission::Call;
use holdfast_core::kinds::Kind;
use holdfast_core::kinds::conversion::{converted, review};
use holdfast_core::object::meta::Document;
use holdfast_core::refusal::{Unreasoned, WebhookFault};
use holdfast_engine::Engine;
use holdfast_value::Value;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// The time limit of a conversion webhook.
const PATIENCE: Duration = Duration::from_secs(30);
/// The port of a webhook's Service if the configuration gives none.
const PORT: u16 = 443;

/// The credentials for mutating and for validating webhooks; `None` without a kubeconfig.
#[derive(Clone, Default)]
pub struct WebhookCredentials {
    pub mutating: Option<Arc<Users>>,
    pub validating: Option<Arc<Users>>,
}

/// Calls webhooks for an engine. The references are weak, because the engine owns this value, and the client owns a
/// reference to the engine.
pub struct Webhooks {
    engine: Weak<Engine>,
    outbound: Weak<Outbound>,
    speakers: WebhookCredentials,
}

impl Webhooks {
    pub fn new(engine: &Arc<Engine>, outbound: &Arc<Outbound>, speakers: WebhookCredentials) -> Webhooks {
        Webhooks { engine: Arc::downgrade(engine), outbound: Arc::downgrade(outbound), speakers }
    }

    async fn call(&self, webhook: &Value, to: &str, objects: &[Value]) -> Result<Vec<Document>, WebhookFault> {
        let (Some(engine), Some(outbound)) = (self.engine.upgrade(), self.outbound.upgrade()) else {
            return Err(WebhookFault::Call("the server is stopping".into()));
        };
        let asked = review(webhook, &engine.stamp().uid(0), to, objects).map_err(WebhookFault::Call)?;
        let target = endpoint(&webhook["clientConfig"]).map_err(WebhookFault::Call)?;
        let answer = outbound.post_json(&target, None, vec![asked.to_string().into()], PATIENCE).await;
        let answer = answer.map_err(|error| WebhookFault::Call(error.to_string()))?;
        let answer: Value = serde_json::from_slice(&answer)
            .map_err(|error| WebhookFault::Call(format!("the answer is not JSON: {error}")))?;
        converted(&asked, &answer, to, objects)
    }
}

/// The target of the calls of a webhook, from its `clientConfig`.
fn endpoint(config: &Value) -> Result<CallTarget, String> {
    let bundle = config["caBundle"].as_str().unwrap_or_default();
    let authorities = STANDARD.decode(bundle).map_err(|error| format!("the caBundle is not base64: {error}"))?;
    let trust = TlsTrust { authorities, insecure: false, identified: false };
    if let Some(url) = config["url"].as_str() {
        return Ok(CallTarget { place: ServerAddress::Url(cleaned_url(url)?), trust });
    }
    let service = &config["service"];
    let text = |field: &str| service[field].as_str().unwrap_or_default();
    let port = service["port"].as_u64().and_then(|port| u16::try_from(port).ok()).unwrap_or(PORT);
    Ok(CallTarget::service(text("namespace"), text("name"), port, &cleaned(text("path")), trust))
}

/// The value of the timeout in the query of a webhook's URL: seconds, rounded up.
fn whole_seconds(patience: Duration) -> u64 {
    patience.as_secs() + u64::from(patience.subsec_nanos() > 0)
}

/// The credentials for the server of an endpoint.
fn speaker<'a>(users: &'a Users, target: &CallTarget) -> Option<&'a Credentials> {
    let found = match &target.place {
        ServerAddress::Url(url) => users.speaking_to(url.host().unwrap_or_default(), url.port_u16().unwrap_or(PORT)),
        ServerAddress::Service { port, .. } => users.speaking_to(&target.server_name(), *port),
    };
    found.map(|user| &**user)
}

impl Webhooks {
    /// Posts a review of a write to an admission webhook. Returns the body of the answer, or the reason why there is
    /// none.
    pub async fn review(&self, call: &Call) -> Result<Vec<u8>, String> {
        let Some(outbound) = self.outbound.upgrade() else { return Err("the server is stopping".into()) };
        let (own, left) = (Duration::from_secs(call.timeout_seconds), deadline::left());
        let patience = left.map_or(own, |left| left.min(own));
        let target = endpoint(&call.client)?.asking(&format!("timeout={}s", whole_seconds(patience)))?;
        let body = call.review();
        let users = if call.is_validating { &self.speakers.validating } else { &self.speakers.mutating };
        let user = users.as_deref().and_then(|users| speaker(users, &target));
        let answer = outbound.post_json(&target, user, body, patience).await;
        if answer.is_err() && deadline::left().is_some_and(|left| left.is_zero()) {
            // The request has timed out, so the call never returns. If failures of the webhook are ignored, returning
            // an error would let the write continue.
            std::future::pending::<()>().await;
        }
        answer.map(|body| body.to_vec()).map_err(|error| error.to_string())
    }

    /// Converts the objects, and returns them in the same order. `webhook` is the definition's
    /// `spec.conversion.webhook`.
    pub async fn convert(
        &self,
        kind: &Kind,
        webhook: &Value,
        to: &str,
        objects: &[Value],
    ) -> Result<Vec<Document>, Refusal> {
        let converted = self.call(webhook, to, objects).await;
        converted.map_err(|why| {
            let from = objects.first().and_then(|object| object["apiVersion"].as_str()).unwrap_or_default();
            Refusal::Unreasoned(Unreasoned::Webhook { api_version: from.to_owned(), kind: kind.kind.clone(), why })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_value::json;

    #[test]
    fn webhooks_are_found_by_url_or_service() {
        let service = json!({"service": {"namespace": "a", "name": "b", "path": "c/d", "port": 8443}});
        for (config, expected) in [
            (json!({"url": "https://example.com/convert"}), Ok("https://example.com/convert")),
            (json!({"url": "https://127.0.0.1:9443//mutate"}), Ok("https://127.0.0.1:9443/mutate")),
            (json!({"service": {"namespace": "a", "name": "b", "path": "//c//d/"}}), Ok("https://b.a.svc:443/c/d")),
            (service, Ok("https://b.a.svc:8443/c/d")),
            (json!({"service": {"namespace": "a", "name": "b"}}), Ok("https://b.a.svc:443/")),
            (json!({"url": "a b"}), Err("the URL \"a b\" cannot be read: invalid uri character")),
        ] {
            let found = endpoint(&config).map(|endpoint| endpoint.url());
            assert_eq!(found, expected.map(str::to_owned).map_err(str::to_owned), "{config}");
        }
        assert!(endpoint(&json!({"caBundle": "%"})).is_err());
    }
}
