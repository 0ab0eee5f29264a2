//! The last offset of a log that other servers append to: one question serves all requests that wait for it.

use crate::log::{Fault, Found};
use holdfast_core::event::Offset;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// Asks a log for its last offset. Requests that come while a question is under way wait for the next one, which begins
/// when the first is answered: an answer may be older than a request that came after its question.
#[derive(Default)]
pub(crate) struct Newest(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    is_asking: bool,
    /// The requests that came since the question under way began.
    requests: Vec<oneshot::Sender<Answer>>,
}

/// The offset, or why there is none.
type Answer = Result<Offset, String>;

/// A question under way. If the log drops it, as when it is closed, all requests fail, and the next one asks again.
struct Question {
    /// `None` once it is answered.
    newest: Option<Arc<Newest>>,
    requests: Vec<oneshot::Sender<Answer>>,
}

impl Newest {
    /// An offset at least as new as the log's last one at the time of this call. `find` asks for that without blocking.
    pub async fn ask(
        self: &Arc<Self>,
        find: impl Fn(Found) + Send + Sync + Clone + 'static,
    ) -> Result<Offset, Fault> {
        let (request, answer) = oneshot::channel();
        let is_first = {
            let mut waiting = self.lock();
            waiting.requests.push(request);
            !std::mem::replace(&mut waiting.is_asking, true)
        };
        if is_first {
            self.clone().begin(find);
        }
        match answer.await {
            Ok(answer) => answer.map_err(|why| Fault::Unreachable { why }),
            Err(_) => Err(Fault::Unreachable { why: "the log is closed".into() }),
        }
    }

    /// Asks for all requests that wait now, and then for those that came meanwhile.
    fn begin(self: Arc<Self>, find: impl Fn(Found) + Send + Sync + Clone + 'static) {
        let requests = std::mem::take(&mut self.lock().requests);
        let question = Question { newest: Some(self), requests };
        let again = find.clone();
        find(Box::new(move |found| {
            if let Some(newest) = question.answer(found) {
                newest.begin(again);
            }
        }));
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Question {
    /// Answers the requests. A failed question is an answer as well: else each waiting request would ask again, one
    /// after the other, for as long as a store takes that does not answer. Returns what has to ask again at once.
    fn answer(mut self, found: Result<Offset, Fault>) -> Option<Arc<Newest>> {
        let answer = found.map_err(|fault| match fault {
            Fault::Unreachable { why } => why,
            other => other.to_string(),
        });
        for request in self.requests.drain(..) {
            // The request may have been given up.
            let _ = request.send(answer.clone());
        }
        let newest = self.newest.take()?;
        let mut waiting = newest.lock();
        waiting.requests.retain(|request| !request.is_closed());
        waiting.is_asking = !waiting.requests.is_empty();
        let is_asking = waiting.is_asking;
        drop(waiting);
        is_asking.then_some(newest)
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        if let Some(newest) = self.newest.take() {
            // Requests whose senders are dropped fail.
            *newest.lock() = Waiting::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A log whose questions wait for their answers.
    #[derive(Default, Clone)]
    struct Slow(Arc<Mutex<Vec<Found>>>);

    impl Slow {
        fn find(&self) -> impl Fn(Found) + Send + Sync + Clone + use<> {
            let questions = self.0.clone();
            move |done| questions.lock().expect("nobody panics here").push(done)
        }

        fn take(&self) -> Vec<Found> {
            std::mem::take(&mut *self.0.lock().expect("nobody panics here"))
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
            tokio::task::yield_now().await;
            let answer = || expected.clone().map_err(|why| Fault::Unreachable { why });
            // The first asks for itself, and the second question is for all who came while it was under way.
            for _ in 0..2 {
                let mut questions = log.take();
                assert_eq!(questions.len(), 1);
                questions.remove(0)(answer());
            }
            for waits in waiting {
                assert_eq!(waits.await.expect("no panic"), expected);
            }
            assert!(log.take().is_empty(), "nobody waits any more");
            // Who comes later is not answered by an old question.
            let later = ask();
            tokio::task::yield_now().await;
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
        tokio::task::yield_now().await;
        drop(log.take());
        for waits in waiting {
            waits.await.expect("no panic").expect_err("the log is closed");
        }
        let later = ask();
        tokio::task::yield_now().await;
        log.take().remove(0)(Ok(Offset(9)));
        assert_eq!(later.await.expect("no panic"), Ok(Offset(9)));
    }
}
