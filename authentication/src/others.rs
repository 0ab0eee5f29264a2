//! All who know tokens, asked one after the other.

use futures_util::future::BoxFuture;
use holdfast_component::cache::Cache;
use holdfast_service::{Elsewhere, Reviewed};
use sha2::{Digest, Sha256};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long it is good whose a token is. That it is nobody's is not kept: the next moment it may be somebody's.
const KNOWN: Duration = Duration::from_secs(10);

/// Those who know tokens, in the order in which they are asked.
#[derive(Default)]
pub struct Others {
    all: Vec<Arc<dyn Elsewhere>>,
    known: Cache<[u8; 32], Reviewed>,
}

impl Others {
    pub fn new(all: Vec<Arc<dyn Elsewhere>>) -> Others {
        Others { all, known: Cache::default() }
    }

    async fn ask(&self, token: &str, audiences: &[String]) -> Result<Option<Reviewed>, String> {
        let key = key(token, audiences);
        if let Some(reviewed) = self.known.get(&key, Instant::now()) {
            return Ok(Some(reviewed));
        }
        // Who errs does not keep the next one from knowing it.
        let mut errors = Vec::new();
        for one in &self.all {
            match one.review(token, audiences).await {
                Ok(Some(reviewed)) => {
                    self.known.put(key, reviewed.clone(), Instant::now(), KNOWN);
                    return Ok(Some(reviewed));
                }
                Ok(None) => {}
                Err(why) => errors.push(why),
            }
        }
        if errors.is_empty() { Ok(None) } else { Err(errors.join(", ")) }
    }
}

impl Elsewhere for Others {
    fn review<'a>(
        &'a self,
        token: &'a str,
        audiences: &'a [String],
    ) -> BoxFuture<'a, Result<Option<Reviewed>, String>> {
        Box::pin(self.ask(token, audiences))
    }
}

/// A token for audiences, so that memory holds no tokens.
pub(crate) fn key(token: &str, audiences: &[String]) -> [u8; 32] {
    let mut digest = Sha256::new();
    for text in [token].into_iter().chain(audiences.iter().map(String::as_str)) {
        digest.update(text.len().to_le_bytes());
        digest.update(text);
    }
    digest.finalize().into()
}
