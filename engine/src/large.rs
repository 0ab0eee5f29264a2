//! Large requests are judged on threads of their own, not on the workers. Only a few large requests are judged at the
//! same time, and users take turns.
//!
//! Judging takes time in proportion to the request's body and to the object that it changes. A small request is judged
//! on the worker that received it. A large request would occupy the worker for long, so it waits here for its user's
//! turn, and is judged on a thread of low priority. A user that sends many bodies of megabytes thus occupies some of
//! the processors, but no worker. A large request of another user waits for one request of each user before it, not for
//! all their requests.

use std::collections::VecDeque;
use std::num::NonZero;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// A request is large if its body and the object that it changes together have at least this many bytes.
const LARGE_BYTES: usize = 64 << 10;

pub(crate) struct Large {
    shared: Arc<Shared>,
}

struct Shared {
    /// The maximum number of large requests that are judged at the same time.
    most: usize,
    line: Mutex<Line>,
}

#[derive(Default)]
struct Line {
    running: usize,
    /// The waiting requests by user, in the order of the users' turns.
    waiting: VecDeque<(String, VecDeque<oneshot::Sender<Place>>)>,
}

/// The right to judge one large request. When it is dropped, the next waiting request gets it.
pub(crate) struct Place {
    shared: Arc<Shared>,
    /// Whether this request has the place; false after the place was passed to the next request.
    is_held: bool,
}

impl Default for Large {
    fn default() -> Large {
        let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
        Large::of(processors.div_ceil(2))
    }
}

impl Large {
    fn of(most: usize) -> Large {
        Large { shared: Arc::new(Shared { most, line: Mutex::default() }) }
    }

    /// Waits for a place for a request of this size. Returns `None` for a small request, which needs no place.
    pub async fn turn(&self, user: &str, bytes: usize) -> Option<Place> {
        if bytes < LARGE_BYTES {
            return None;
        }
        let next = {
            let mut line = self.shared.line();
            if line.running < self.shared.most {
                line.running += 1;
                return Some(Place { shared: self.shared.clone(), is_held: true });
            }
            let (sender, receiver) = oneshot::channel();
            match line.waiting.iter_mut().find(|(known, _)| known == user) {
                Some((_, own)) => own.push_back(sender),
                None => line.waiting.push_back((user.to_owned(), VecDeque::from([sender]))),
            }
            receiver
        };
        // Every waiting request gets a place, because senders are dropped only with the engine.
        next.await.ok()
    }
}

impl Shared {
    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Line {
    /// Removes and returns the first request of the user whose turn it is, and moves the user behind all others.
    fn next(&mut self) -> Option<oneshot::Sender<Place>> {
        let (user, mut own) = self.waiting.pop_front()?;
        let next = own.pop_front();
        if !own.is_empty() {
            self.waiting.push_back((user, own));
        }
        next
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // A request that was cancelled while it waited is skipped. If a request is cancelled just after it got the
        // place, it drops the place itself.
        while self.is_held {
            let mut line = self.shared.line();
            let next = line.next();
            if next.is_none() {
                line.running -= 1;
            }
            drop(line);
            let place = || Place { shared: self.shared.clone(), is_held: true };
            self.is_held = next.is_some_and(|next| match next.send(place()) {
                Ok(()) => false,
                Err(mut unwanted) => std::mem::take(&mut unwanted.is_held),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use std::pin::Pin;

    type Turn<'a> = Pin<Box<dyn Future<Output = Option<Place>> + 'a>>;

    fn asks<'a>(large: &'a Large, user: &'a str) -> Turn<'a> {
        let mut turn: Turn = Box::pin(large.turn(user, LARGE_BYTES));
        assert!((&mut turn).now_or_never().is_none(), "{user} waits");
        turn
    }

    #[test]
    fn users_have_their_turns_however_much_one_of_them_asks_for() {
        let large = Large::of(1);
        assert!(large.turn("a", LARGE_BYTES - 1).now_or_never().is_some_and(|place| place.is_none()));
        let first = large.turn("a", LARGE_BYTES).now_or_never().flatten().expect("nobody else is there");
        let mut waiting: Vec<(&str, Turn)> =
            ["a", "a", "a", "b", "b", "c"].map(|user| (user, asks(&large, user))).into();
        let (mut held, mut order) = (Some(first), Vec::new());
        while !waiting.is_empty() {
            drop(held.take());
            let served = waiting.iter_mut().position(|(_, turn)| match turn.now_or_never() {
                Some(place) => {
                    held = place;
                    true
                }
                None => false,
            });
            order.push(waiting.remove(served.expect("somebody is served")).0);
        }
        assert_eq!(order, ["a", "b", "c", "a", "b", "a"]);
        drop(held);
        assert!(large.turn("a", LARGE_BYTES).now_or_never().flatten().is_some(), "all places are given back");
    }

    #[test]
    fn who_goes_away_leaves_no_place_behind() {
        let large = Large::of(1);
        let first = large.turn("a", LARGE_BYTES).now_or_never().flatten();
        let (gone, late, next) = (asks(&large, "b"), asks(&large, "c"), asks(&large, "d"));
        drop(gone);
        drop(first);
        // The late request has the place, and is dropped before it uses the place. The next request must then get the
        // place.
        drop(late);
        assert!(next.now_or_never().flatten().is_some());
    }
}
