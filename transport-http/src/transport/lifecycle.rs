//! The start and the stop of a server. This module determines when the server is ready, counts the requests in
//! progress, and ends them in order.
//!
//! When a server stops, it becomes unready first, and still serves as before. Then it may refuse new requests, it ends
//! watches, and in the end it accepts no more connections.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::watch as signal;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

/// The operator's settings of the start and the end of a server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LifecycleSettings {
    /// How long `/livez` succeeds although the start is not finished.
    pub livez_grace: Duration,
    /// The time over which the ends of watches are spread when the server stops.
    pub watch_grace: Duration,
    /// Whether clients get a response with `Retry-After` instead of a closed socket while the server shuts down.
    pub send_retry_after: bool,
}

/// The state of a server between its start and its end, which all parts of the server observe.
pub(crate) struct Lifecycle {
    pub settings: LifecycleSettings,
    started: Instant,
    /// Becomes true when all objects exist that a new server makes.
    ready: signal::Sender<bool>,
    /// Whether the server will stop soon; it still serves as before.
    shutting_down: AtomicBool,
    /// Whether new requests are refused.
    refusing: AtomicBool,
    /// Becomes true when watches and other long-running requests are to end.
    stopping: signal::Sender<bool>,
    /// Becomes true when no more connections are accepted.
    closing: signal::Sender<bool>,
    /// The number of watches that have begun so far.
    watches_begun: AtomicU64,
    /// The requests in progress that are not long-running.
    requests: TaskTracker,
    /// Upgraded connections. When the server stops, it waits for their end.
    upgraded: TaskTracker,
}

impl Lifecycle {
    /// The lifecycle of a server that starts now.
    pub fn new(settings: LifecycleSettings) -> Lifecycle {
        Lifecycle {
            settings,
            started: Instant::now(),
            ready: signal::Sender::new(false),
            shutting_down: AtomicBool::default(),
            refusing: AtomicBool::default(),
            stopping: signal::Sender::new(false),
            closing: signal::Sender::new(false),
            watches_begun: AtomicU64::default(),
            requests: TaskTracker::new(),
            upgraded: TaskTracker::new(),
        }
    }

    /// Marks the server as ready. The caller has created all objects on which clients rely.
    pub fn set_ready(&self) {
        self.ready.send_replace(true);
    }

    pub fn is_ready(&self) -> bool {
        *self.ready.borrow()
    }

    /// Whether `/livez` still succeeds although the start is not finished.
    pub fn is_within_livez_grace(&self) -> bool {
        self.started.elapsed() < self.settings.livez_grace
    }

    /// Makes the server unready, so that load balancers send it no new clients. Until it stops it serves as before.
    pub fn begin_shutdown(&self) {
        self.shutting_down.store(true, Ordering::Relaxed);
    }

    pub fn is_shutting_down(&self) -> bool {
        self.shutting_down.load(Ordering::Relaxed)
    }

    /// From now on, new requests are refused and long-running requests end.
    pub fn refuse_requests(&self) {
        self.refusing.store(true, Ordering::Relaxed);
        self.stopping.send_replace(true);
    }

    pub fn refuses_requests(&self) -> bool {
        self.refusing.load(Ordering::Relaxed)
    }

    /// Ends long-running requests, and accepts no more connections.
    pub fn stop(&self) {
        self.begin_shutdown();
        self.stopping.send_replace(true);
        self.closing.send_replace(true);
    }

    /// Resolves when long-running requests are to end.
    pub fn stopped(&self) -> impl Future<Output = ()> + Send + Sync + use<> {
        let mut stopping = self.stopping.subscribe();
        // The server has also ended if the sender was dropped.
        async move { drop(stopping.wait_for(|stopping| *stopping).await) }
    }

    /// The signal for a listener to accept no more connections.
    pub fn closing(&self) -> signal::Receiver<bool> {
        self.closing.subscribe()
    }

    /// Resolves when the watch that begins now is to end after the server stops: watches end one after another, spread
    /// evenly over the grace period.
    pub fn watch_ends(&self) -> impl Future<Output = ()> + Send + use<> {
        let stopped = self.stopped();
        // The fractional parts of multiples of the golden ratio are spread evenly for any number of watches.
        let nth = self.watches_begun.fetch_add(1, Ordering::Relaxed) as f64;
        let wait = self.settings.watch_grace.mul_f64((nth * 0.618_033_988_749_895).fract());
        async move {
            stopped.await;
            tokio::time::sleep(wait).await;
        }
    }

    /// Counts a request that is not long-running until the result is dropped. When the server stops, it waits for these
    /// requests.
    pub fn track_request(&self) -> TaskTrackerToken {
        self.requests.token()
    }

    /// Waits until the requests in progress have their responses. `longest` is the longest time of a request, after
    /// which the wait ends; zero for no limit.
    pub async fn wait_for_requests(&self, longest: Duration) {
        self.requests.close();
        match longest {
            Duration::ZERO => self.requests.wait().await,
            longest => _ = tokio::time::timeout(longest, self.requests.wait()).await,
        }
    }

    /// Runs work on an upgraded connection. When the server stops, it waits for the end of the work.
    pub fn spawn_upgraded(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.upgraded.spawn(work);
    }

    /// Waits until all upgraded connections have ended. No more upgraded connections may begin.
    pub async fn wait_for_upgraded(&self) {
        self.upgraded.close();
        self.upgraded.wait().await;
    }
}
