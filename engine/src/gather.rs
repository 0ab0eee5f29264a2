//! Group commit, by which writes that arrive at the same time share one write to the disk.
//!
//! Making a batch durable costs about the same for one event as for many. So the writer waits a moment for requests
//! that are on their way to the writer, that is, requests that have begun and have not yet waited for anything. If no
//! request is on its way, the writer does not wait. A request that waits for something else, such as a webhook or the
//! rest of a body, is no longer on its way.

use pin_project_lite::pin_project;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// The maximum time that the writer waits for requests on their way. A disk takes at least this long to make a batch
/// durable.
pub const PATIENCE: Duration = Duration::from_micros(500);

/// Counts the requests on their way to the writer.
#[derive(Debug, Default)]
pub struct Gathering {
    coming: AtomicUsize,
    /// Whether the writer waits at this moment for requests on their way.
    waits: AtomicBool,
    writer: OnceLock<Thread>,
}

impl Gathering {
    /// Called on the writer's thread. Waits until no request is on its way; returns false if `patience` ends first.
    pub fn wait(&self, patience: Duration) -> bool {
        if self.coming.load(Ordering::SeqCst) == 0 {
            return true;
        }
        self.writer.get_or_init(std::thread::current);
        let end = Instant::now() + patience;
        loop {
            // The flag is set before the writer reads the count. The last request to arrive lowers the count and then
            // reads the flag. So either the request sees that the writer waits and wakes it, or the writer sees the
            // lowered count.
            self.waits.store(true, Ordering::SeqCst);
            let left = end.saturating_duration_since(Instant::now());
            let all_here = self.coming.load(Ordering::SeqCst) == 0;
            if all_here || left.is_zero() {
                self.waits.store(false, Ordering::SeqCst);
                return all_here;
            }
            std::thread::park_timeout(left);
        }
    }

    /// Whether the writer waits at this moment for requests on their way.
    pub fn is_waiting(&self) -> bool {
        self.waits.load(Ordering::SeqCst)
    }

    fn arrive(&self) {
        if self.coming.fetch_sub(1, Ordering::SeqCst) == 1
            && self.waits.swap(false, Ordering::SeqCst)
            && let Some(writer) = self.writer.get()
        {
            writer.unpark();
        }
    }
}

/// Counts a request as on its way until this value is dropped.
#[derive(Debug)]
struct Coming(Arc<Gathering>);

impl Coming {
    fn begin(gathering: &Arc<Gathering>) -> Coming {
        gathering.coming.fetch_add(1, Ordering::SeqCst);
        Coming(gathering.clone())
    }
}

impl Drop for Coming {
    fn drop(&mut self) {
        self.0.arrive();
    }
}

pin_project! {
    /// A request that may send a decision to the writer. It is on its way from its creation until it first waits.
    #[derive(Debug)]
    pub struct Expected<F> {
        coming: Option<Coming>,
        #[pin]
        request: F,
    }
}

impl<F> Expected<F> {
    pub(crate) fn new(gathering: &Arc<Gathering>, request: F) -> Expected<F> {
        Expected { coming: Some(Coming::begin(gathering)), request }
    }

    /// Wraps a request that sends nothing to the writer.
    pub fn nothing(request: F) -> Expected<F> {
        Expected { coming: None, request }
    }
}

impl<F: Future> Future for Expected<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let outcome = this.request.poll(context);
        *this.coming = None;
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::pin::pin;
    use std::task::Waker;

    const LONG: Duration = Duration::from_secs(3600);

    #[test]
    fn nobody_is_waited_for_who_is_not_on_the_way() {
        let gathering = Arc::<Gathering>::default();
        assert!(gathering.wait(LONG));
        let mut context = Context::from_waker(Waker::noop());
        let mut waits = pin!(Expected::new(&gathering, std::future::pending::<()>()));
        assert!(!gathering.wait(Duration::ZERO), "it was begun");
        assert!(waits.as_mut().poll(&mut context).is_pending());
        assert!(gathering.wait(LONG), "it waits for something");
        let mut ends = pin!(Expected::new(&gathering, std::future::ready(())));
        assert!(ends.as_mut().poll(&mut context).is_ready());
        let mut fails = Box::pin(Expected::new(&gathering, async { panic!("planned") }));
        assert!(catch_unwind(AssertUnwindSafe(|| fails.as_mut().poll(&mut context))).is_err());
        drop(fails);
        drop(Expected::new(&gathering, std::future::pending::<()>()));
        drop(Expected::nothing(std::future::pending::<()>()));
        assert!(gathering.wait(LONG));
    }

    #[test]
    fn the_last_to_come_ends_the_wait() {
        for _ in 0..200 {
            let gathering = Arc::<Gathering>::default();
            let requests: Vec<_> = (0..3).map(|_| Expected::new(&gathering, std::future::ready(()))).collect();
            std::thread::scope(|scope| {
                let writer = scope.spawn(|| gathering.wait(LONG));
                requests.into_iter().for_each(|request| _ = scope.spawn(|| drop(request)));
                assert!(writer.join().expect("no panic"));
            });
        }
    }
}
