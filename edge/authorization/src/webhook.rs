//! Authorization webhooks: servers that decide which requests users may make.

use crate::metrics::{CallResult, Metrics};
use arc_swap::ArcSwap;
use futures_util::future::BoxFuture;
use holdfast_core::authz::webhook::{Answer, OnFailure, Opinion, Question};
use holdfast_edge::{Cache, Trouble};
use holdfast_outbound::Dialer;
use holdfast_outbound::reviews::{ReviewVersion, Reviewer};
use holdfast_service::Authorities;
use holdfast_value::{Value, json};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

const KIND: &str = "SubjectAccessReview";
/// The maximum number of cached answers of a webhook.
const ANSWERS_MAX: usize = 8192;
/// The minimum time between two log lines about the failures of a webhook.
const TOLD_EACH: Duration = Duration::from_secs(1);

/// How a webhook is reached and called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connection {
    pub kubeconfig: PathBuf,
    /// The path after the URL in the kubeconfig.
    pub path: &'static str,
    pub version: ReviewVersion,
    pub timeout: Duration,
    /// How long an allowing answer is cached; zero for not at all.
    pub allowed_time: Duration,
    /// How long any other answer is cached; zero for not at all.
    pub other_time: Duration,
    pub on_failure: OnFailure,
}

/// One authorization webhook, with its cached answers.
pub struct Webhook {
    name: String,
    reviewer: Reviewer,
    connection: Connection,
    /// The webhook's answers by the hash of the request.
    answers: Cache<[u8; 32], Opinion>,
    /// The time at which the webhook's last failure was logged.
    told: Mutex<Option<Instant>>,
}

impl Webhook {
    pub fn new(name: &str, connection: &Connection, dialer: &Dialer) -> Result<Webhook, String> {
        let Connection { kubeconfig, path, version, timeout, .. } = connection;
        let review = ("authorization.k8s.io", KIND);
        Ok(Webhook {
            name: name.to_owned(),
            reviewer: Reviewer::new(review, *version, (kubeconfig, path), *timeout, dialer)?,
            connection: connection.clone(),
            answers: Cache::of(ANSWERS_MAX),
            told: Mutex::default(),
        })
    }

    async fn ask(&self, question: &Question, metrics: &Metrics) -> Answer {
        let (asked, key) = (Instant::now(), <[u8; 32]>::from(Sha256::digest(&question.spec)));
        if let Some(opinion) = self.answers.get(&key, asked) {
            return Ok(opinion);
        }
        let spec = self.spec(&question.spec)?;
        let answer = self.reviewer.post(spec, json!({"allowed": false})).await;
        let answer = answer.map_err(|fault| fault.to_string()).and_then(|body| understand(&body));
        let outcome = match &answer {
            Ok(_) => CallResult::Success,
            Err(_) if self.connection.on_failure == OnFailure::NoOpinion => CallResult::FailedOpen,
            Err(_) => CallResult::Failed,
        };
        metrics.count_call(&self.name, outcome, asked.elapsed());
        match &answer {
            Ok(opinion) => {
                let times = &self.connection;
                let time = if opinion.allowed { times.allowed_time } else { times.other_time };
                if question.may_be_kept {
                    self.answers.put(key, &question.user, opinion.clone(), Instant::now(), time);
                }
            }
            Err(why) => self.tell(why),
        }
        answer
    }

    /// Logs a failure, at most once per [`TOLD_EACH`], because every request may fail.
    fn tell(&self, why: &str) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.is_none_or(|told| told.elapsed() >= TOLD_EACH) {
            *told = Some(Instant::now());
            tracing::warn!(webhook = self.name, why, "an authorization webhook did not answer");
        }
    }

    /// Converts the spec of a SubjectAccessReview to the webhook's version.
    fn spec(&self, spec: &str) -> Result<Value, String> {
        let mut spec: Value = serde_json::from_str(spec).map_err(|error| error.to_string())?;
        if self.reviewer.version() == ReviewVersion::V1Beta1
            && let Some(groups) = spec.as_object_mut().and_then(|spec| spec.remove("groups"))
        {
            // The older version uses another name for the field with the groups.
            spec["group"] = groups;
        }
        Ok(spec)
    }
}

/// The opinion in an answer. An answer contains no id of the request, so it counts as the answer to the request on the
/// same connection.
fn understand(body: &[u8]) -> Answer {
    let review: Value = serde_json::from_slice(body).map_err(|error| format!("the answer is not JSON: {error}"))?;
    if review["kind"] != KIND || !review["status"].is_object() {
        return Err("the answer is not a SubjectAccessReview with a status".into());
    }
    let status = &review["status"];
    let flag = |field: &str| match &status[field] {
        Value::Null => Ok(false),
        Value::Bool(flag) => Ok(*flag),
        _ => Err(format!("the answer's status.{field} is not a boolean")),
    };
    let reason = status["reason"].as_str().unwrap_or_default().to_owned();
    Ok(Opinion { allowed: flag("allowed")?, denied: flag("denied")?, reason })
}

/// All webhooks of the chain, by name.
pub struct Webhooks {
    all: ArcSwap<BTreeMap<String, Arc<Webhook>>>,
    pub(crate) metrics: Metrics,
}

impl Webhooks {
    /// `server` is the hash of this server's id, a label in metrics.
    pub fn new(webhooks: Vec<Webhook>, server: String) -> Arc<Webhooks> {
        let all = Arc::new(Webhooks { all: ArcSwap::default(), metrics: Metrics::new(server) });
        all.replace(webhooks);
        all
    }

    /// The error if the current content of the file with the webhooks is not in effect.
    pub fn trouble(&self) -> Trouble {
        self.metrics.reloads.trouble()
    }

    /// Replaces the webhooks. Cached answers of the old webhooks are dropped.
    pub fn replace(&self, webhooks: Vec<Webhook>) {
        let webhooks = webhooks.into_iter().map(|webhook| (webhook.name.clone(), Arc::new(webhook)));
        self.all.store(Arc::new(webhooks.collect()));
    }
}

impl Authorities for Webhooks {
    fn ask<'a>(&'a self, question: &'a Question) -> BoxFuture<'a, Answer> {
        Box::pin(async move {
            match self.all.load().get(&question.webhook).cloned() {
                Some(webhook) => webhook.ask(question, &self.metrics).await,
                None => Err(format!("the webhook {:?} is no longer configured", question.webhook)),
            }
        })
    }

    fn metrics(&self) -> String {
        self.metrics.text()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_understood() {
        let told = |status: Value| {
            let answer = understand(json!({"kind": "SubjectAccessReview", "status": status}).to_string().as_bytes());
            answer.map(|opinion| (opinion.allowed, opinion.denied, opinion.reason))
        };
        assert_eq!(told(json!({"allowed": true, "reason": "r"})), Ok((true, false, "r".into())));
        assert_eq!(told(json!({"denied": true})), Ok((false, true, String::new())));
        assert_eq!(told(json!({})), Ok((false, false, String::new())));
        assert_eq!(told(json!({"allowed": "true"})), Err("the answer's status.allowed is not a boolean".into()));
        for rubbish in ["", "[]", "{\"kind\":\"TokenReview\",\"status\":{}}", "{\"kind\":\"SubjectAccessReview\"}"] {
            assert!(understand(rubbish.as_bytes()).is_err(), "{rubbish}");
        }
    }
}
