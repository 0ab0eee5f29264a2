//! Turns. A request that lost several races for an object queues for the right to write the object alone, and other
//! writers queue behind the request.
//!
//! A decision that another write overtook is made again. Under a steady stream of other writers, a request could lose
//! every race and never succeed. So after a few lost races a request takes a turn on the objects and claims for which
//! it lost. Each of these objects and claims has a queue (a line), first in, first out. While the queue exists, each
//! request that is about to write the same object or claim joins it, and is judged again when it has its turn. No other
//! request writes during a turn, so the next attempt of the turn's owner succeeds. If no queue exists, which is almost
//! always so, the check for queues costs a request one load of a counter.
//!
//! A turn ends when it is dropped: at the end of the attempt, by a panic, or when the client disconnects. The owner
//! limits the duration of its turn, so that a slow webhook delays only writers of the same object, and only for a short
//! time.

use crate::commit::Contested;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::sync::oneshot;

const SHARDS: usize = 16;

#[derive(Default)]
pub(crate) struct Turns {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// The number of queues in all shards.
    lines: AtomicUsize,
    shards: [Mutex<HashMap<Contested, Line>>; SHARDS],
    hashing: RandomState,
}

/// The requests that wait for the turn of another request to end.
#[derive(Default)]
struct Line(VecDeque<oneshot::Sender<Place>>);

/// The right of one request to be the only request that writes some objects and claims.
pub(crate) struct Turn {
    _places: Vec<Place>,
}

/// The turn on one object or claim. When this value is dropped, the next request in the queue gets the turn.
struct Place {
    shared: Arc<Shared>,
    contested: Contested,
    /// Whether this request has the turn; false after the queue has ended because no request waits.
    is_held: bool,
}

impl Turns {
    /// The first object or claim of `wanted` that has a queue.
    pub fn contested(&self, wanted: impl Iterator<Item = Contested>) -> Option<Contested> {
        if self.shared.lines.load(Ordering::Acquire) == 0 {
            return None;
        }
        let mut wanted = wanted;
        wanted.find(|wanted| self.shared.shard(wanted).contains_key(wanted))
    }

    /// Waits for a turn on all objects and claims of `wanted`. All requests take turns on objects and claims in one
    /// order, the order of the set, so no two requests wait for each other.
    pub async fn take(&self, wanted: &BTreeSet<Contested>) -> Turn {
        let mut places = Vec::with_capacity(wanted.len());
        for contested in wanted {
            places.push(self.shared.clone().queue(contested).await);
        }
        Turn { _places: places }
    }
}

impl Shared {
    fn shard(&self, contested: &Contested) -> MutexGuard<'_, HashMap<Contested, Line>> {
        let mut hasher = self.hashing.build_hasher();
        std::hash::Hash::hash(contested, &mut hasher);
        let shard = &self.shards[hasher.finish() as usize % SHARDS];
        shard.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    async fn queue(self: Arc<Shared>, contested: &Contested) -> Place {
        loop {
            let next = {
                let mut shard = self.shard(contested);
                let Some(line) = shard.get_mut(contested) else {
                    shard.insert(contested.clone(), Line::default());
                    self.lines.fetch_add(1, Ordering::AcqRel);
                    drop(shard);
                    return Place { shared: self, contested: contested.clone(), is_held: true };
                };
                let (sender, receiver) = oneshot::channel();
                line.0.push_back(sender);
                receiver
            };
            // A sender is dropped only together with its queue. The request then joins a new queue.
            if let Ok(place) = next.await {
                return place;
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !self.is_held {
            return;
        }
        let shared = self.shared.clone();
        let mut shard = shared.shard(&self.contested);
        let mut place = Place { shared: self.shared.clone(), contested: self.contested.clone(), is_held: true };
        // A request that was cancelled while it waited is skipped. If a request is cancelled just after it got the
        // place, it drops the place itself.
        while let Some(next) = shard.get_mut(&self.contested).and_then(|line| line.0.pop_front()) {
            match next.send(place) {
                Ok(()) => return,
                Err(back) => place = back,
            }
        }
        place.is_held = false;
        shard.remove(&self.contested);
        shared.lines.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::pin::{Pin, pin};
    use std::task::{Context, Poll, Waker};

    fn wanted(names: &[&str]) -> BTreeSet<Contested> {
        names.iter().map(|name| Contested::Claim((*name).into())).collect()
    }

    fn poll<T>(future: Pin<&mut impl Future<Output = T>>) -> Option<T> {
        match future.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(done) => Some(done),
            Poll::Pending => None,
        }
    }

    fn lines(turns: &Turns) -> usize {
        turns.shared.lines.load(Ordering::Acquire)
    }

    #[test]
    fn first_come_first_served() {
        let turns = Turns::default();
        let one = wanted(&["a"]);
        let mut first = pin!(turns.take(&one));
        let mut second = pin!(turns.take(&one));
        let mut third = pin!(turns.take(&one));
        let held = poll(first.as_mut()).expect("nobody else is there");
        assert!(poll(second.as_mut()).is_none() && poll(third.as_mut()).is_none());
        assert_eq!(turns.contested(one.iter().cloned()), one.first().cloned());
        assert_eq!(turns.contested(wanted(&["b"]).into_iter()), None);
        drop(held);
        assert!(poll(third.as_mut()).is_none());
        let held = poll(second.as_mut()).expect("its turn");
        drop(held);
        drop(poll(third.as_mut()).expect("its turn"));
        assert_eq!(lines(&turns), 0);
        assert_eq!(turns.contested(one.iter().cloned()), None);
    }

    #[test]
    fn who_goes_away_is_passed_over() {
        let turns = Turns::default();
        let one = wanted(&["a"]);
        let held = poll(pin!(turns.take(&one))).expect("nobody else is there");
        let mut waiting: Vec<_> = (0..3).map(|_| Box::pin(turns.take(&one))).collect();
        waiting.iter_mut().for_each(|waiting| assert!(poll(waiting.as_mut()).is_none()));
        // One request is cancelled while it waits, and another request is cancelled just after it got its turn. The
        // last request must get its turn nevertheless.
        let mut last = waiting.pop().expect("three");
        let served = waiting.pop().expect("two");
        drop(waiting);
        drop(held);
        drop(served);
        drop(poll(last.as_mut()).expect("its turn"));
        assert_eq!(lines(&turns), 0);
    }

    #[test]
    fn a_panic_ends_a_turn() {
        let turns = Turns::default();
        let one = wanted(&["a", "b"]);
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _held = poll(pin!(turns.take(&one))).expect("nobody else is there");
            panic!("in its turn");
        }));
        assert!(panicked.is_err());
        assert_eq!(lines(&turns), 0);
    }
}
