//! Simulated webhooks. The simulation decides when each call is answered, and with which answer.

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use holdfast_core::Refusal;
use holdfast_core::admission::Call;
use holdfast_core::authz::webhook::{Answer, Question};
use holdfast_core::kinds::Kind;
use holdfast_core::object::meta::Document;
use holdfast_core::pipeline::{SignedToken, TokenClaims};
use holdfast_core::refusal::Internal;
use holdfast_engine::Outside;
use holdfast_value::{Value, json};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// How a webhook answers a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Temper {
    /// The webhook allows the request. A mutating webhook also sets its mark on the object.
    Agrees,
    Refuses,
    /// The call times out, or the webhook cannot be reached.
    Fails,
    Rubbish,
    /// The answer of the webhook has the UID of another request.
    AnotherUid,
}

impl Temper {
    pub fn is_failure(self) -> bool {
        matches!(self, Temper::Fails | Temper::Rubbish | Temper::AnotherUid)
    }
}

/// A call that waits for its answer.
struct WaitingCall {
    call: Call,
    answer: oneshot::Sender<Result<Vec<u8>, String>>,
}

/// A call to a webhook, and the answer to this call.
pub struct Said {
    /// The id of the request that caused the call. The object in the call contains this id.
    pub request: String,
    pub webhook: String,
    pub temper: Temper,
    /// The mark of this answer. A mutating webhook that agrees sets it on the object.
    pub mark: String,
    pub object: Value,
}

/// The webhooks of the simulated server.
#[derive(Default)]
pub struct Hooks {
    waiting: Mutex<Vec<WaitingCall>>,
    said: Mutex<Vec<Said>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Hooks {
    /// The number of calls that wait for an answer and whose callers have not given up.
    pub fn waiting(&self) -> usize {
        let mut waiting = lock(&self.waiting);
        waiting.retain(|waiting| !waiting.answer.is_closed());
        waiting.len()
    }

    /// Answers the waiting call at this index, and returns a description of the call and the answer.
    pub fn answer(&self, at: usize, temper: Temper) -> String {
        let WaitingCall { call, answer } = lock(&self.waiting).swap_remove(at);
        let mut said = lock(&self.said);
        let mark = format!("{}", said.len());
        let uid = match temper {
            Temper::AnotherUid => json!("another"),
            _ => call.request["uid"].clone(),
        };
        let mut response = json!({"uid": uid, "allowed": temper != Temper::Refuses});
        if !call.is_validating && temper == Temper::Agrees {
            let path = format!("/metadata/annotations/{}", call.webhook);
            let patch = json!([{"op": "add", "path": path, "value": mark}]);
            response["patch"] = STANDARD.encode(patch.to_string()).into();
            response["patchType"] = "JSONPatch".into();
        }
        let review = json!({"apiVersion": call.api_version, "kind": "AdmissionReview", "response": response});
        let sent = match temper {
            Temper::Fails => Err("context deadline exceeded".into()),
            Temper::Rubbish => Ok(b"<html>".to_vec()),
            _ => Ok(review.to_string().into_bytes()),
        };
        let object: Value = serde_json::from_slice(&call.object).unwrap_or_default();
        let request = object["metadata"]["annotations"]["request"].as_str().unwrap_or_default().to_owned();
        let told = format!("{} {temper:?} about {request}", call.webhook);
        said.push(Said { request, webhook: call.webhook, temper, mark, object });
        // Sending fails if the caller has stopped waiting, which is no error.
        let _ = answer.send(sent);
        told
    }

    /// Calls `look` with the webhooks' answers for a request.
    pub fn of_request<T>(&self, request: &str, look: impl FnOnce(&[&Said]) -> T) -> T {
        let said = lock(&self.said);
        let own: Vec<&Said> = said.iter().filter(|said| said.request == request).collect();
        look(&own)
    }
}

#[async_trait]
impl Outside for Hooks {
    async fn convert(&self, _: &Kind, _: &Value, _: &str, _: Vec<Value>) -> Result<Vec<Document>, Refusal> {
        Err(Refusal::Internal(Internal::NothingConverted))
    }

    async fn review(&self, call: &Call) -> Result<Vec<u8>, String> {
        let (answer, answered) = oneshot::channel();
        lock(&self.waiting).push(WaitingCall { call: call.clone(), answer });
        answered.await.unwrap_or_else(|_| Err("nobody answers".into()))
    }

    async fn authorize(&self, _: &Question) -> Answer {
        Err("no authorization webhook is configured".into())
    }

    async fn sign(&self, _: &TokenClaims) -> Result<SignedToken, Refusal> {
        Err(Refusal::Internal(Internal::NoSigningKey))
    }
}
