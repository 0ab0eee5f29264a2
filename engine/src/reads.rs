//! Reads of the log, away from the async workers: several at once, and a bound to how many.
//!
//! A read may wait for a disk. On a worker of the runtime it would hold up every request that the worker has; so each
//! goes to a thread of its own, and who comes when as many as may are under way waits without one.

use std::sync::Arc;
use tokio::sync::Semaphore;

/// How many reads of the log are under way at once.
const READS_MAX: usize = 16;

/// Where reads of the log are made.
#[derive(Clone)]
pub enum Reads {
    /// On threads for what blocks, so many at a time.
    Pool(Arc<Semaphore>),
    /// Where they are asked for: for simulation and tests, which have one thread and no runtime.
    Here,
}

impl Default for Reads {
    fn default() -> Reads {
        Reads::Pool(Arc::new(Semaphore::new(READS_MAX)))
    }
}

impl Reads {
    /// Has the work done, and resolves to what comes of it. Work that was begun is finished, and counted until then, also
    /// where nobody waits any more.
    pub fn run<T, W>(&self, work: W) -> impl Future<Output = T> + Send + use<T, W>
    where
        T: Send + 'static,
        W: FnOnce() -> T + Send + 'static,
    {
        let reads = self.clone();
        async move { reads.make(work).await }
    }

    async fn make<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        let Reads::Pool(places) = self else { return work() };
        let place = places.clone().acquire_owned().await;
        let counted = move || {
            let done = work();
            drop(place);
            done
        };
        match tokio::task::spawn_blocking(counted).await {
            Ok(done) => done,
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            // The runtime ends, and who waits here ends with it.
            Err(_) => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[tokio::test]
    async fn many_are_under_way_at_once_and_no_more() {
        let reads = Arc::new(Reads::default());
        let (meeting, count) = (Arc::new(Barrier::new(READS_MAX)), Arc::new(AtomicUsize::new(0)));
        let tasks: Vec<_> = (0..READS_MAX * 3)
            .map(|_| {
                let (reads, meeting, count) = (reads.clone(), meeting.clone(), count.clone());
                tokio::spawn(async move {
                    let read = move || {
                        let most = count.fetch_add(1, Ordering::SeqCst) + 1;
                        // Goes on only with as many others.
                        meeting.wait();
                        count.fetch_sub(1, Ordering::SeqCst);
                        most
                    };
                    reads.run(read).await
                })
            })
            .collect();
        for task in tasks {
            assert!(task.await.expect("it is read") <= READS_MAX);
        }
    }

    #[tokio::test]
    async fn a_panic_is_the_askers() {
        let reads = Arc::new(Reads::default());
        let asked = tokio::spawn(async move { reads.run(|| panic!("a broken read")).await });
        assert!(asked.await.expect_err("it panicked").is_panic());
    }
}
