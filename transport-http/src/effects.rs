//! Carries out the effects of decisions: calls to webhooks that convert, admit and authorize, and signing of tokens.

use crate::tokens::ServiceAccountTokens;
use async_trait::async_trait;
use holdfast_core::Refusal;
use holdfast_core::admission::Call;
use holdfast_core::authz::webhook::{Answer, Question};
use holdfast_core::kinds::Kind;
use holdfast_core::object::meta::Document;
use holdfast_core::pipeline::{SignedToken, TokenClaims};
use holdfast_core::refusal::Internal;
use holdfast_engine::Outside;
use holdfast_outbound::conversion::Webhooks;
use holdfast_service::Authorities;
use holdfast_value::Value;
use std::sync::Arc;

pub struct Effects {
    pub webhooks: Webhooks,
    /// The signer of service account tokens; `None` if the server has no key to sign with.
    pub tokens: Option<Arc<ServiceAccountTokens>>,
    /// The webhooks of the authorizer chain; `None` if the chain has none.
    pub authorities: Option<Arc<dyn Authorities>>,
    /// The client of the image review webhook; `None` if images are not reviewed.
    pub images: Option<Arc<dyn Images>>,
}

/// A server that decides, by an ImageReview, whether images may run.
#[async_trait]
pub trait Images: Send + Sync + 'static {
    /// The status of the server's answer to an ImageReview, or the reason why there is none.
    async fn judge(&self, review: &Value) -> Result<Value, String>;
}

#[async_trait]
impl Outside for Effects {
    async fn convert(
        &self,
        kind: &Kind,
        webhook: &Value,
        to: &str,
        objects: Vec<Value>,
    ) -> Result<Vec<Document>, Refusal> {
        self.webhooks.convert(kind, webhook, to, &objects).await
    }

    async fn review(&self, call: &Call) -> Result<Vec<u8>, String> {
        self.webhooks.review(call).await
    }

    async fn authorize(&self, question: &Question) -> Answer {
        match &self.authorities {
            Some(authorities) => authorities.ask(question).await,
            None => Err("no authorization webhook is configured".into()),
        }
    }

    async fn judge_images(&self, review: &Value) -> Result<Value, String> {
        match &self.images {
            Some(images) => images.judge(review).await,
            None => Err("no image policy webhook is configured".into()),
        }
    }

    async fn sign(&self, claims: &TokenClaims) -> Result<SignedToken, Refusal> {
        let signed = self.tokens.as_ref().and_then(|tokens| tokens.issue(claims));
        let signed = signed.ok_or(Refusal::Internal(Internal::NoSigningKey))?;
        signed.map_err(Refusal::fault)
    }
}
