//! A simulated reader of a long list, page by page, while the world goes on.

use crate::follower::{Pick, key_of, picked};
use crate::oracle::Verdict;
use crate::random::Dice;
use crate::shape::{SORTS, Sort};
use crate::twin::Twin;
use holdfast_core::Refusal;
use holdfast_core::list::{Continue, Freshness, TokenKey};
use holdfast_engine::Engine;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// How long a continue token is good for, in simulated milliseconds.
const TOKEN_LIFETIME_MS: i64 = 5 * 60 * 1000;

pub struct Lister {
    sort: Sort,
    pick: Pick,
    limit: u64,
    /// The version of the first page.
    offset: u64,
    token: String,
    found: BTreeMap<String, u64>,
}

impl Lister {
    pub fn draw(dice: &mut Dice) -> Lister {
        let sort = dice.pick(&SORTS);
        let pick = Pick::draw(dice, sort);
        let limit = 1 + dice.below(4) as u64;
        Lister { sort, pick, limit, offset: 0, token: String::new(), found: BTreeMap::new() }
    }

    /// Reads one page. True when the list is complete, and was right.
    pub fn turn(&mut self, engine: &Arc<Engine>, twin: &Twin, now_ms: i64) -> Result<bool, String> {
        let from = match self.token.as_str() {
            "" => None,
            token => Some(
                Continue::open(token, &TokenKey::default()).map_err(|refusal| self.blame(&format!("{refusal:?}")))?,
            ),
        };
        let view = match at_once(engine.view_for(Freshness::Newest, from.as_ref())) {
            Ok(view) => view,
            Err(Refusal::Expired { .. }) => {
                let age = twin.record(self.offset + 1).map_or(0, |record| now_ms - record.time_ms);
                let old = age >= TOKEN_LIFETIME_MS - 1000;
                return if old { Ok(true) } else { Err(self.blame(&format!("expired after {age} ms"))) };
            }
            Err(refusal) => return Err(self.blame(&format!("{refusal:?}"))),
        };
        if self.token.is_empty() {
            self.offset = view.offset().0;
            engine.pin(view.state());
        }
        let page = view
            .page(&self.pick.selection(self.sort, view.state()), Some(self.limit), from.as_ref())
            .map_err(|refusal| self.blame(&format!("{refusal:?}")))?;
        if page.offset.0 != self.offset || page.entries.len() as u64 > self.limit {
            return Err(self.blame(&format!("a page of {} at {}", page.entries.len(), page.offset)));
        }
        for entry in &page.entries {
            let key = key_of(&entry.document());
            let last = self.found.last_key_value().map(|(key, _)| key);
            if last.is_some_and(|last| *last >= key) {
                return Err(self.blame(&format!("{key} comes after {last:?}")));
            }
            self.found.insert(key, entry.offset.0);
        }
        let expected = picked(twin, self.sort, &self.pick, self.offset);
        if let Some(remaining) = page.remaining
            && remaining != (expected.len() - self.found.len()) as u64
        {
            return Err(self.blame(&format!("{remaining} are said to remain of {}", expected.len())));
        }
        if let Some(next) = page.next {
            self.token = next.seal(&TokenKey::default());
            return Ok(false);
        }
        if self.found != expected {
            return Err(self.blame(&format!("it lists {:?} and not {expected:?}", self.found)));
        }
        Ok(true)
    }

    fn blame(&self, why: &str) -> String {
        format!("a list of {:?} {:?} at {} by {}: {why}", self.sort, self.pick, self.offset, self.limit)
    }
}

/// A past state, whole, is what it was.
pub fn check_past(engine: &Arc<Engine>, twin: &Twin, offset: u64) -> Verdict {
    match engine.state_at(holdfast_core::event::Offset(offset)) {
        Ok(state) => crate::oracle::check_state(twin, &state),
        Err(refusal) => Err(format!("version {offset} cannot be read: {refusal:?}")),
    }
}

/// The outcome of a future that has no reason to wait.
fn at_once<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => outcome,
        Poll::Pending => panic!("a read of what is there does not wait"),
    }
}
