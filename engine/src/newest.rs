//! The last offset of a log that other servers append to: one question serves all requests that wait for it.

use crate::log::Fault;
use crate::reads::Reads;
use holdfast_core::event::Offset;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::Mutex;

pub(crate) struct Newest {
    /// The number of questions that were begun.
    begun: AtomicU64,
    /// The number of the last question that was answered, and its answer, or why there was none. Locked while a question
    /// is under way.
    answered: Mutex<(u64, Result<Offset, String>)>,
}

impl Default for Newest {
    fn default() -> Newest {
        Newest { begun: AtomicU64::new(0), answered: Mutex::new((0, Ok(Offset::ZERO))) }
    }
}

impl Newest {
    /// An offset at least as new as the log's last one at the time of this call. `question` asks for that.
    pub async fn ask(
        &self,
        reads: &Reads,
        question: impl FnOnce() -> Result<Offset, Fault> + Send + 'static,
    ) -> Result<Offset, Fault> {
        let before = self.begun.load(Ordering::Acquire);
        let mut answered = self.answered.lock().await;
        // Another request began this question after this call, so its answer is new enough. Its failure counts as well:
        // else all who wait would ask one after the other, each for as long as a store takes that does not answer.
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
                        // The first is answered once all have come.
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
            // The first asks for itself, and the second for all who came while it did.
            assert_eq!(asked.load(Ordering::Relaxed), 2);
        }
    }
}
