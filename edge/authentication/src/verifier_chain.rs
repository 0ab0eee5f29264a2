//! Calls all verifiers of tokens outside the server, one after another.

use crate::metrics::Metrics;
use futures_util::future::BoxFuture;
use holdfast_edge::Cache;
use holdfast_service::{Elsewhere, Reviewed};
use sha2::{Digest, Sha256};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The time for which a verified token is cached. An unknown token is not cached, because it may become valid at any
/// moment.
const KNOWN: Duration = Duration::from_secs(10);

/// The verifiers in the order in which they are called.
pub struct VerifierChain {
    all: Vec<Arc<dyn Elsewhere>>,
    known: Cache<[u8; 32], Reviewed>,
    metrics: Metrics,
}

impl VerifierChain {
    pub fn new(all: Vec<Arc<dyn Elsewhere>>, metrics: Metrics) -> VerifierChain {
        VerifierChain { all, known: Cache::default(), metrics }
    }

    async fn ask(&self, token: &str, audiences: &[String]) -> Result<Option<Reviewed>, String> {
        let (key, began) = (key(token, audiences), Instant::now());
        let known = self.known.get(&key, began);
        let remembered = known.is_some();
        let reviewed = match known {
            Some(reviewed) => Ok(Some(reviewed)),
            None => self.find(token, audiences).await,
        };
        self.metrics.looked_up(remembered, began.elapsed());
        if let (Ok(Some(reviewed)), false) = (&reviewed, remembered) {
            self.known.put(key, &reviewed.user.name, reviewed.clone(), Instant::now(), KNOWN);
        }
        reviewed
    }

    async fn find(&self, token: &str, audiences: &[String]) -> Result<Option<Reviewed>, String> {
        let _asking = self.metrics.asking();
        // After an error of one verifier, the next verifier may still verify the token.
        let mut errors = Vec::new();
        for one in &self.all {
            match one.review(token, audiences).await {
                Ok(Some(reviewed)) => {
                    self.metrics.asked(true);
                    return Ok(Some(reviewed));
                }
                Ok(None) => {}
                Err(why) => errors.push(why),
            }
        }
        self.metrics.asked(errors.is_empty());
        if errors.is_empty() { Ok(None) } else { Err(errors.join(", ")) }
    }
}

impl Elsewhere for VerifierChain {
    fn review<'a>(
        &'a self,
        token: &'a str,
        audiences: &'a [String],
    ) -> BoxFuture<'a, Result<Option<Reviewed>, String>> {
        Box::pin(self.ask(token, audiences))
    }
}

/// A verifier that does not check audiences. Its tokens are valid for this server, whose audiences are `own`.
pub struct Agnostic {
    pub inner: Arc<dyn Elsewhere>,
    pub own: Vec<String>,
}

impl Agnostic {
    async fn ask(&self, token: &str, audiences: &[String]) -> Result<Option<Reviewed>, String> {
        let meant: Vec<String> = audiences.iter().filter(|asked| self.own.contains(asked)).cloned().collect();
        if meant.is_empty() && !audiences.is_empty() {
            return Ok(None);
        }
        let reviewed = self.inner.review(token, &meant).await?;
        Ok(reviewed.map(|reviewed| Reviewed { audiences: meant, ..reviewed }))
    }
}

impl Elsewhere for Agnostic {
    fn review<'a>(
        &'a self,
        token: &'a str,
        audiences: &'a [String],
    ) -> BoxFuture<'a, Result<Option<Reviewed>, String>> {
        Box::pin(self.ask(token, audiences))
    }
}

/// The cache key of a token and its audiences. The key is a digest, so that the cache contains no tokens.
pub(crate) fn key(token: &str, audiences: &[String]) -> [u8; 32] {
    let mut digest = Sha256::new();
    for text in [token].into_iter().chain(audiences.iter().map(String::as_str)) {
        digest.update(text.len().to_le_bytes());
        digest.update(text);
    }
    digest.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_core::authz::User;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// A verifier that recognizes one token, and counts the calls.
    #[derive(Default)]
    struct One {
        asked: AtomicUsize,
    }

    impl Elsewhere for One {
        fn review<'a>(
            &'a self,
            token: &'a str,
            audiences: &'a [String],
        ) -> BoxFuture<'a, Result<Option<Reviewed>, String>> {
            self.asked.fetch_add(1, Ordering::Relaxed);
            Box::pin(async move {
                match token {
                    "good" => Ok(Some(Reviewed { user: Arc::new(User::new("u", &[])), audiences: audiences.to_vec() })),
                    "bad" => Err("why".into()),
                    _ => Ok(None),
                }
            })
        }
    }

    #[tokio::test]
    async fn what_is_known_is_asked_once_and_what_is_not_each_time() {
        let one = Arc::new(One::default());
        let others = VerifierChain::new(vec![one.clone() as Arc<dyn Elsewhere>], Metrics::default());
        let audiences = ["a".to_owned()];
        for (token, times) in [("good", 1), ("bad", 2), ("other", 2)] {
            let before = one.asked.load(Ordering::Relaxed);
            let answers = [others.ask(token, &audiences).await, others.ask(token, &audiences).await];
            assert_eq!(answers[0], answers[1], "{token}");
            assert_eq!(one.asked.load(Ordering::Relaxed) - before, times, "{token}");
        }
        let mut registry = Default::default();
        others.metrics.register(&mut registry, String::new());
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).expect("text");
        for line in [
            "authentication_token_cache_request_total{status=\"hit\"} 1",
            "authentication_token_cache_request_total{status=\"miss\"} 5",
            "authentication_token_cache_fetch_total{status=\"error\"} 2",
            "authentication_token_cache_active_fetch_count{status=\"in_flight\"} 0",
        ] {
            assert!(text.contains(line), "{line} is not in {text}");
        }
    }

    #[tokio::test]
    async fn who_knows_no_audiences_speaks_for_the_servers_own() {
        let agnostic = Agnostic { inner: Arc::new(One::default()), own: vec!["api".into()] };
        for (audiences, expected) in [(vec!["api", "x"], Some(vec!["api".to_owned()])), (vec!["x"], None)] {
            let audiences: Vec<String> = audiences.into_iter().map(str::to_owned).collect();
            let found = agnostic.ask("good", &audiences).await.expect("an answer");
            assert_eq!(found.map(|found| found.audiences), expected);
        }
    }
}
