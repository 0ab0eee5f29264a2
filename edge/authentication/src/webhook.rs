//! The token webhook of `--authentication-token-webhook-config-file`.

use crate::verifier_chain::key;
use anyhow::{Result, anyhow};
use futures_util::future::BoxFuture;
use holdfast_component::authentication::user_of;
use holdfast_edge::Cache;
use holdfast_outbound::Dialer;
use holdfast_outbound::reviews::{ReviewVersion, Reviewer};
use holdfast_service::{Elsewhere, Reviewed};
use holdfast_value::{Value, json};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;

/// How long the webhook may take to answer a review.
const ANSWER_MAX: Duration = Duration::from_secs(30);
/// The maximum number of tokens under review at a time, because any client can send unknown tokens. Further tokens wait
/// for at most the time limit of an answer.
const ASKED_MAX: usize = 256;

/// The time for which a review's result from another API server is cached.
const DELEGATED: Duration = Duration::from_secs(10);
const REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";

pub struct Webhook {
    reviewer: Reviewer,
    cache_time: Duration,
    /// The audiences of a token if the webhook returns none.
    audiences: Vec<String>,
    answers: Answers,
    room: Semaphore,
}

/// Recent answers. Any client can make unknown tokens, so all answers about unknown tokens count as the answers of one
/// user.
#[derive(Default)]
struct Answers(Cache<[u8; 32], Option<Reviewed>>);

impl Answers {
    fn get(&self, key: &[u8; 32]) -> Option<Option<Reviewed>> {
        self.0.get(key, Instant::now())
    }

    fn put(&self, key: [u8; 32], answer: Option<Reviewed>, time: Duration) {
        let user = answer.as_ref().map_or("", |reviewed| &reviewed.user.name).to_owned();
        self.0.put(key, &user, answer, Instant::now(), time);
    }
}

impl Webhook {
    /// The webhook is the server in the current context of a kubeconfig. `audiences` are the API's own audiences.
    pub fn new(
        kubeconfig: &Path,
        version: ReviewVersion,
        cache_time: Duration,
        dialer: &Dialer,
        audiences: Vec<String>,
    ) -> Result<Webhook> {
        Webhook::at(kubeconfig, "", version, cache_time, dialer, audiences)
    }

    /// Uses another API server as the webhook. Components authenticate their clients in this way.
    pub fn of_api_server(kubeconfig: &Path, dialer: &Dialer, audiences: Vec<String>) -> Result<Webhook> {
        Webhook::at(kubeconfig, REVIEWS, ReviewVersion::V1, DELEGATED, dialer, audiences)
    }

    fn at(
        file: &Path,
        path: &str,
        version: ReviewVersion,
        cache_time: Duration,
        dialer: &Dialer,
        audiences: Vec<String>,
    ) -> Result<Webhook> {
        let review = ("authentication.k8s.io", "TokenReview");
        let reviewer = Reviewer::new(review, version, (file, path), ANSWER_MAX, dialer).map_err(|why| anyhow!(why))?;
        let (answers, room) = (Answers::default(), Semaphore::new(ASKED_MAX));
        Ok(Webhook { reviewer, cache_time, audiences, answers, room })
    }

    async fn ask(&self, token: &str, audiences: &[String]) -> Result<Option<Reviewed>, String> {
        let key = key(token, audiences);
        if let Some(answer) = self.answers.get(&key) {
            return Ok(answer);
        }
        let room = tokio::time::timeout(ANSWER_MAX, self.room.acquire()).await;
        let Ok(Ok(_room)) = room else { return Err("too many tokens wait for the webhook".into()) };
        // Another request may have received the answer in the meantime.
        if let Some(answer) = self.answers.get(&key) {
            return Ok(answer);
        }
        let mut spec = json!({"token": token});
        if !audiences.is_empty() {
            spec["audiences"] = json!(audiences);
        }
        let answer = self.post(spec).await?;
        let answer = understand(&answer["status"], audiences, &self.audiences)?;
        self.answers.put(key, answer.clone(), self.cache_time);
        Ok(answer)
    }

    async fn post(&self, spec: Value) -> Result<Value, String> {
        let answer = self.reviewer.post(spec, json!({"user": {}})).await.map_err(|fault| {
            tracing::warn!(error = %fault, "the webhook for tokens did not answer");
            fault.to_string()
        })?;
        serde_json::from_slice(&answer).map_err(|error| format!("the webhook's answer is not JSON: {error}"))
    }
}

/// The result of a review for these audiences. If the webhook returns no audiences, the token is valid for `own` only,
/// and proves nothing to other audiences.
fn understand(status: &Value, asked: &[String], own: &[String]) -> Result<Option<Reviewed>, String> {
    if status["authenticated"] != true {
        return match status["error"].as_str().filter(|error| !error.is_empty()) {
            Some(error) => Err(error.to_owned()),
            None => Ok(None),
        };
    }
    let told = status["audiences"].as_array().filter(|told| !told.is_empty());
    let is_good_for = |audience: &String| match told {
        None => own.contains(audience),
        Some(told) => told.iter().any(|one| one == audience.as_str()),
    };
    let audiences: Vec<String> = asked.iter().filter(|asked| is_good_for(asked)).cloned().collect();
    if audiences.is_empty() && !asked.is_empty() {
        return Ok(None);
    }
    Ok(Some(Reviewed { user: Arc::new(user_of(&status["user"])), audiences }))
}

impl Elsewhere for Webhook {
    fn review<'a>(
        &'a self,
        token: &'a str,
        audiences: &'a [String],
    ) -> BoxFuture<'a, Result<Option<Reviewed>, String>> {
        Box::pin(self.ask(token, audiences))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invented_tokens_have_nothing_forgotten() {
        let (answers, hour) = (Answers::default(), Duration::from_secs(3600));
        let user = Arc::new(holdfast_core::authz::User::new("jane", &[]));
        let good = key("good", &[]);
        answers.put(good, Some(Reviewed { user, audiences: Vec::new() }), hour);
        for number in 0..10_000 {
            answers.put(key(&format!("invented {number}"), &[]), None, hour);
        }
        assert_eq!(answers.get(&key("invented 9999", &[])), Some(None));
        assert!(matches!(answers.get(&good), Some(Some(jane)) if jane.user.name == "jane"));
    }

    #[test]
    fn answers_are_understood() {
        let own = ["api".to_owned(), "api2".to_owned()];
        let told = |status: Value, asked: &[&str]| {
            let asked: Vec<String> = asked.iter().map(|audience| (*audience).to_owned()).collect();
            understand(&status, &asked, &own).map(|reviewed| reviewed.map(|reviewed| reviewed.audiences))
        };
        let good = || json!({"authenticated": true, "user": {"username": "a"}});
        let of = |audiences: &[&str]| json!({"authenticated": true, "audiences": audiences});
        let audiences = |names: &[&str]| Ok(Some(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()));
        assert_eq!(told(good(), &["api"]), audiences(&["api"]));
        assert_eq!(told(good(), &["other", "api2"]), audiences(&["api2"]));
        assert_eq!(told(good(), &["other"]), Ok(None));
        assert_eq!(told(of(&[]), &["other"]), Ok(None));
        assert_eq!(told(good(), &[]), audiences(&[]));
        assert_eq!(told(of(&["api", "b"]), &["api"]), audiences(&["api"]));
        assert_eq!(told(of(&["b"]), &["api"]), Ok(None));
        assert_eq!(told(json!({"authenticated": false}), &["api"]), Ok(None));
        assert_eq!(told(json!({"error": "why"}), &["api"]), Err("why".into()));
        assert_eq!(told(json!(null), &["api"]), Ok(None));
    }
}
