//! Reads the last offset of a log that other servers append to. One question serves all requests that wait for it.

use crate::log::Fault;
use crate::reads::Reads;
use holdfast_core::event::Offset;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::Mutex;

pub(crate) struct Newest {
    /// The number of questions that were sent.
    begun: AtomicU64,
    /// The number of the last answered question, and its answer or failure. Locked while a question is in progress.
    answered: Mutex<(u64, Result<Offset, String>)>,
}

impl Default for Newest {
    fn default() -> Newest {
        Newest { begun: AtomicU64::new(0), answered: Mutex::new((0, Ok(Offset::ZERO))) }
    }
}

impl Newest {
    /// An offset at least as new as the log's last one at the time of this call. `question` reads the last one.
    pub async fn ask(
        &self,
        reads: &Reads,
        question: impl FnOnce() -> Result<Offset, Fault> + Send + 'static,
    ) -> Result<Offset, Fault> {
        let before = self.begun.load(Ordering::Acquire);
        let mut answered = self.answered.lock().await;
        // Another request sent this question after this call, so its answer is new enough. Its failure counts as well:
        // otherwise all waiting requests would ask one after the other, each until a store that does not answer times
        // out.
        if answered.0 > before {
            return answered.1.clone().map_err(|why| Fault::Unreachable { why });
        }
        let number = self.begun.fetch_add(1, Ordering::AcqRel) + 1;
        let found = reads.run(question).await;
        let why = |fault: &Fault| match fault {
            Fault::Unreachable { why } => why.clone(),
            other => other.to_string(),
        };
        *answered = (number, found.as_ref().copied().map_err(why));
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex, mpsc};

    #[tokio::test]
    async fn one_question_answers_all_who_wait_also_by_its_failure() {
        for expected in [Ok(Offset(7)), Err("there is no answer".to_owned())] {
            let newest = Arc::new(Newest::default());
            let asked = Arc::new(AtomicU64::new(0));
            let (go, gone) = mpsc::channel::<()>();
            let gone = Arc::new(Mutex::new(gone));
            let waiting: Vec<_> = (0..50)
                .map(|_| {
                    let (newest, asked, gone) = (newest.clone(), asked.clone(), gone.clone());
                    let answer = expected.clone();
                    let question = move || {
                        asked.fetch_add(1, Ordering::Relaxed);
                        // The first question is answered once all requests have arrived.
                        let _ = gone.lock().expect("nobody panics here").recv();
                        answer.map_err(|why| Fault::Unreachable { why })
                    };
                    tokio::spawn(async move { newest.ask(&Reads::default(), question).await })
                })
                .collect();
            tokio::task::yield_now().await;
            drop(go);
            for waits in waiting {
                let answer = waits.await.expect("no panic").map_err(|fault| match fault {
                    Fault::Unreachable { why } => why,
                    other => panic!("{other}"),
                });
                assert_eq!(answer, expected);
            }
            // The first request gets the first answer, and all others, which arrived meanwhile, the second.
            assert_eq!(asked.load(Ordering::Relaxed), 2);
        }
    }
}
