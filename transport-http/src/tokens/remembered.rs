//! Tokens whose signature was verified, so that it is not verified again at every request.

use super::Claims;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The maximum number of tokens that are remembered.
const TOKENS_MAX: usize = 4096;
/// The maximum number of remembered tokens of one account, so that an account with many tokens does not displace the
/// tokens of all other accounts.
const OF_ACCOUNT_MAX: usize = TOKENS_MAX / 16;

#[derive(Default)]
pub struct Remembered(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    tokens: HashMap<Arc<str>, Arc<Claims>>,
    /// The remembered tokens of each account, the oldest first.
    of_accounts: HashMap<String, VecDeque<Arc<str>>>,
}

impl Remembered {
    pub fn get(&self, token: &str) -> Option<Arc<Claims>> {
        self.lock().tokens.get(token).cloned()
    }

    pub fn put(&self, token: &str, claims: Arc<Claims>) {
        let (mut guard, token) = (self.lock(), Arc::<str>::from(token));
        let kept = &mut *guard;
        if kept.tokens.contains_key(&token) {
            return;
        }
        if kept.tokens.len() >= TOKENS_MAX {
            *kept = Kept::default();
        }
        let own = kept.of_accounts.entry(claims.sub.clone()).or_default();
        if own.len() >= OF_ACCOUNT_MAX
            && let Some(oldest) = own.pop_front()
        {
            kept.tokens.remove(&oldest);
        }
        own.push_back(token.clone());
        kept.tokens.insert(token, claims);
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokens::{Audience, Kubernetes};

    fn put(remembered: &Remembered, account: &str, number: usize) {
        let claims = Claims {
            aud: Audience::One("x".into()),
            exp: 0,
            iat: 0,
            iss: "x".into(),
            jti: String::new(),
            fork: None,
            kubernetes: Kubernetes::default(),
            nbf: 0,
            sub: account.into(),
        };
        remembered.put(&format!("{account} {number}"), Arc::new(claims));
    }

    #[test]
    fn no_account_has_the_tokens_of_others_forgotten() {
        let remembered = Remembered::default();
        put(&remembered, "jane", 0);
        for number in 0..2 * TOKENS_MAX {
            put(&remembered, "eve", number);
        }
        let last = format!("eve {}", 2 * TOKENS_MAX - 1);
        assert!(remembered.get("jane 0").is_some() && remembered.get(&last).is_some());
        assert!(remembered.get("eve 0").is_none());
        assert_eq!(remembered.lock().tokens.len(), OF_ACCOUNT_MAX + 1);
        for number in 0..2 * TOKENS_MAX {
            put(&remembered, &format!("user{}", number % 100), number);
        }
        let kept = remembered.lock();
        assert!(kept.tokens.len() <= TOKENS_MAX);
        assert_eq!(kept.of_accounts.values().map(VecDeque::len).sum::<usize>(), kept.tokens.len());
    }
}
