//! Asks for the last offset of a log that other servers append to. One question serves all requests that wait for the
//! offset.
//!
//! Waking a thread costs more than answering a request. So the answer wakes one request, and this request wakes the
//! other waiting requests from its own thread. The next question begins after other tasks have run, so that it also
//! serves the requests that follow from these answers.

use crate::log::{Fault, LastFound};
use crate::wakes;
use holdfast_core::event::Offset;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// Asks a log for its last offset. Requests that arrive while a question is in progress wait for the next question,
/// because the answer may be older than these requests.
#[derive(Default)]
pub(crate) struct Newest(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    is_asking: bool,
    /// The requests that arrived since the current question began.
    requests: Vec<oneshot::Sender<Answer>>,
}

/// The answer to a request. When the answer is dropped, it also answers the requests in `others`, even if its own
/// request was cancelled.
struct Answer {
    /// The last offset of the log, or the reason why it could not be found.
    found: Result<Offset, String>,
    others: Vec<oneshot::Sender<Answer>>,
    next: Option<NextQuestion>,
}

/// The right to ask the next question. When it is dropped, the next question begins if requests wait.
struct NextQuestion {
    newest: Arc<Newest>,
    find: Arc<Find>,
}

type Find = dyn Fn(LastFound) + Send + Sync;

/// A question in progress. When a log is closed, it drops the question, and the waiting requests fail.
struct Question {
    requests: Vec<oneshot::Sender<Answer>>,
    next: Option<NextQuestion>,
}

impl Newest {
    /// Returns an offset at least as new as the log's last offset at the time of this call. `find` asks for the offset
    /// without blocking.
    pub async fn ask(self: &Arc<Self>, find: impl Fn(LastFound) + Send + Sync + 'static) -> Result<Offset, Fault> {
        let (request, answer) = oneshot::channel();
        let is_first = {
            let mut waiting = self.lock();
            waiting.requests.push(request);
            !std::mem::replace(&mut waiting.is_asking, true)
        };
        if is_first {
            drop(NextQuestion { newest: self.clone(), find: Arc::new(find) });
        }
        let found = match answer.await {
            Ok(mut answer) => {
                let (found, next) = (answer.found.clone(), answer.next.take());
                drop(answer);
                if next.is_some() {
                    tokio::task::yield_now().await;
                }
                found
            }
            Err(_) => Err("the log is closed".to_owned()),
        };
        found.map_err(|why| Fault::Unreachable { why })
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for NextQuestion {
    fn drop(&mut self) {
        let requests = {
            let mut waiting = self.newest.lock();
            // Cancelled requests need no answer, so the log is not asked if only cancelled requests wait.
            waiting.requests.retain(|request| !request.is_closed());
            waiting.is_asking = !waiting.requests.is_empty();
            std::mem::take(&mut waiting.requests)
        };
        if !requests.is_empty() {
            let next = NextQuestion { newest: self.newest.clone(), find: self.find.clone() };
            let question = Question { requests, next: Some(next) };
            (self.find)(Box::new(move |found| question.answer(found)));
        }
    }
}

impl Question {
    /// A failure is also an answer. Otherwise the waiting requests would ask again, one after the other, and each would
    /// wait as long as a silent store takes to fail.
    fn answer(mut self, found: Result<Offset, Fault>) {
        let found = found.map_err(|fault| match fault {
            Fault::Unreachable { why } => why,
            other => other.to_string(),
        });
        let (mut requests, mut next) = (std::mem::take(&mut self.requests), self.next.take());
        while let Some(first) = requests.pop() {
            match first.send(Answer { found: found.clone(), others: requests, next }) {
                Ok(()) => return,
                // The request to which this answer was sent was cancelled, so the next request gets the answer.
                Err(mut answer) => (requests, next) = (std::mem::take(&mut answer.others), answer.next.take()),
            }
        }
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        // The log dropped the question. All requests fail, including the requests that arrived later. The next request
        // asks a new question.
        if let Some(NextQuestion { newest, .. }) = &self.next {
            *newest.lock() = Waiting::default();
        }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        // A connection with several of these requests is woken once, and writes their responses together.
        wakes::together(|| {
            for other in self.others.drain(..) {
                // The request may have been cancelled, and then the answer is dropped.
                let _ = other.send(Answer { found: self.found.clone(), others: Vec::new(), next: None });
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A log whose questions stay unanswered until the test answers them.
    #[derive(Default, Clone)]
    struct Slow(Arc<Mutex<Vec<LastFound>>>);

    impl Slow {
        fn find(&self) -> impl Fn(LastFound) + Send + Sync + Clone + use<> {
            let questions = self.0.clone();
            move |done| questions.lock().expect("nobody panics here").push(done)
        }

        fn take(&self) -> Vec<LastFound> {
            std::mem::take(&mut *self.0.lock().expect("nobody panics here"))
        }
    }

    /// Lets the other tasks run until all of them wait for an answer.
    async fn rest() {
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
    }

    fn why(fault: Fault) -> String {
        match fault {
            Fault::Unreachable { why } => why,
            other => panic!("{other}"),
        }
    }

    #[tokio::test]
    async fn one_question_answers_all_who_wait_also_by_its_failure() {
        for expected in [Ok(Offset(7)), Err("there is no answer".to_owned())] {
            let (newest, log) = (Arc::new(Newest::default()), Slow::default());
            let ask = || {
                let (newest, find) = (newest.clone(), log.find());
                tokio::spawn(async move { newest.ask(find).await.map_err(why) })
            };
            let waiting: Vec<_> = (0..50).map(|_| ask()).collect();
            rest().await;
            let answer = || expected.clone().map_err(|why| Fault::Unreachable { why });
            // The first request asks the first question. The second question serves all requests that arrived during
            // the first.
            for _ in 0..2 {
                rest().await;
                let mut questions = log.take();
                assert_eq!(questions.len(), 1);
                questions.remove(0)(answer());
            }
            for waits in waiting {
                assert_eq!(waits.await.expect("no panic"), expected);
            }
            assert!(log.take().is_empty(), "nobody waits any more");
            // The answer to a question that is already in progress must not answer a later request.
            let later = ask();
            rest().await;
            log.take().remove(0)(Ok(Offset(8)));
            assert_eq!(later.await.expect("no panic"), Ok(Offset(8)));
        }
    }

    #[tokio::test]
    async fn a_dropped_question_fails_all_who_wait_and_the_next_request_asks_again() {
        let (newest, log) = (Arc::new(Newest::default()), Slow::default());
        let ask = || {
            let (newest, find) = (newest.clone(), log.find());
            tokio::spawn(async move { newest.ask(find).await.map_err(why) })
        };
        let waiting = [ask(), ask()];
        rest().await;
        drop(log.take());
        for waits in waiting {
            waits.await.expect("no panic").expect_err("the log is closed");
        }
        let later = ask();
        rest().await;
        log.take().remove(0)(Ok(Offset(9)));
        assert_eq!(later.await.expect("no panic"), Ok(Offset(9)));
    }
}
