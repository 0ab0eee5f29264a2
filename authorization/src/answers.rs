//! A cache of a webhook's answers.

use holdfast_core::authz::webhook::{Opinion, Question};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The most answers that are kept.
const ANSWERS_MAX: usize = 8192;
/// The most of them about one user, so that no user can displace the answers about all others.
const OF_USER_MAX: usize = ANSWERS_MAX / 8;

type Key = [u8; 32];

/// The most recently used answers.
#[derive(Default)]
pub struct Answers(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    answers: HashMap<Key, Answer>,
    /// Keys by the number of their last use.
    by_use: BTreeMap<u64, Key>,
    of_users: HashMap<String, BTreeSet<u64>>,
    uses: u64,
}

struct Answer {
    opinion: Opinion,
    until: Instant,
    user: String,
    used: u64,
}

fn key(question: &Question) -> Key {
    Sha256::digest(&question.spec).into()
}

impl Answers {
    pub fn get(&self, question: &Question, now: Instant) -> Option<Opinion> {
        let (mut kept, key) = (self.lock(), key(question));
        if kept.answers.get(&key)?.until <= now {
            kept.forget(&key);
            return None;
        }
        let answer = kept.forget(&key)?;
        let opinion = answer.opinion.clone();
        kept.keep(key, answer);
        Some(opinion)
    }

    /// Keeps an answer for `time`.
    pub fn put(&self, question: &Question, opinion: Opinion, now: Instant, time: Duration) {
        let Some(until) = now.checked_add(time).filter(|_| !time.is_zero() && question.may_be_kept) else { return };
        let (mut kept, key) = (self.lock(), key(question));
        kept.forget(&key);
        let full = kept.of_users.get(&question.user).is_some_and(|own| own.len() >= OF_USER_MAX);
        let oldest = match full {
            true => kept.of_users[&question.user].first().copied(),
            false if kept.answers.len() >= ANSWERS_MAX => kept.by_use.first_key_value().map(|(used, _)| *used),
            false => None,
        };
        if let Some(oldest) = oldest.and_then(|oldest| kept.by_use.get(&oldest).copied()) {
            kept.forget(&oldest);
        }
        kept.keep(key, Answer { opinion, until, user: question.user.clone(), used: 0 });
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn keep(&mut self, key: Key, answer: Answer) {
        self.uses += 1;
        let answer = Answer { used: self.uses, ..answer };
        self.by_use.insert(answer.used, key);
        self.of_users.entry(answer.user.clone()).or_default().insert(answer.used);
        self.answers.insert(key, answer);
    }

    fn forget(&mut self, key: &Key) -> Option<Answer> {
        let answer = self.answers.remove(key)?;
        self.by_use.remove(&answer.used);
        if let Some(own) = self.of_users.get_mut(&answer.user) {
            own.remove(&answer.used);
            if own.is_empty() {
                self.of_users.remove(&answer.user);
            }
        }
        Some(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn about(user: &str, number: usize) -> Question {
        let (webhook, user) = (String::new(), user.to_owned());
        Question { webhook, spec: format!("{user} {number}"), user, may_be_kept: true }
    }

    #[test]
    fn answers_end_and_nobody_fills_the_place_of_others() {
        let (answers, now, second) = (Answers::default(), Instant::now(), Duration::from_secs(1));
        let yes = || Opinion { allowed: true, ..Opinion::default() };
        answers.put(&about("jane", 0), yes(), now, second);
        answers.put(&about("jane", 1), yes(), now, Duration::ZERO);
        answers.put(&Question { may_be_kept: false, ..about("jane", 2) }, yes(), now, second);
        let is_kept = |user: &str, number, at| answers.get(&about(user, number), at).is_some();
        assert!(is_kept("jane", 0, now) && !is_kept("jane", 1, now) && !is_kept("jane", 2, now));
        for number in 0..2 * ANSWERS_MAX {
            answers.put(&about("eve", number), yes(), now, second);
        }
        assert!(is_kept("jane", 0, now) && is_kept("eve", 2 * ANSWERS_MAX - 1, now) && !is_kept("eve", 0, now));
        assert_eq!(answers.lock().of_users["eve"].len(), OF_USER_MAX);
        for number in 0..2 * ANSWERS_MAX {
            answers.put(&about(&format!("user{}", number % 100), number), yes(), now, second);
        }
        let kept = answers.lock();
        assert!(kept.answers.len() <= ANSWERS_MAX && kept.by_use.len() == kept.answers.len());
        drop(kept);
        let last = 2 * ANSWERS_MAX - 1;
        let user = format!("user{}", last % 100);
        assert!(is_kept(&user, last, now) && !is_kept(&user, last, now + second));
    }
}
