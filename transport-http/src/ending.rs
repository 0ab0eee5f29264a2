//! How a server stops: it becomes unready, lets requests in progress finish and watches end, and closes its socket.

use crate::transport::Transport;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How often the number of watches is checked.
const WATCHES_PERIOD: Duration = Duration::from_millis(20);

impl Transport {
    /// Makes the server unready, so that load balancers send it no new clients. Until it stops it serves as before.
    pub fn leave(&self) {
        self.leaving.store(true, Ordering::Relaxed);
    }

    /// Stops in the order that the operator chose. Returns when only connections are left to end.
    pub async fn end(&self) {
        self.leave();
        if self.manners.send_retry_after {
            self.refusing.store(true, Ordering::Relaxed);
            self.stopping.send_replace(true);
            self.wait_for_requests().await;
            let watches = async {
                while self.service.watches() > 0 {
                    tokio::time::sleep(WATCHES_PERIOD).await;
                }
            };
            let _ = tokio::time::timeout(self.manners.watch_grace, watches).await;
        }
        self.stop();
    }

    /// Waits until requests in progress have their responses, at most as long as a request may take.
    pub(crate) async fn wait_for_requests(&self) {
        self.requests.close();
        match self.manners.request_timeout {
            Duration::ZERO => self.requests.wait().await,
            longest => _ = tokio::time::timeout(longest, self.requests.wait()).await,
        }
    }

    /// Ends watches, and then the server, with all its forks.
    pub fn stop(&self) {
        self.leave();
        self.stopping.send_replace(true);
        self.closing.send_replace(true);
        if self.place.is_none() {
            self.live.end_all();
        }
    }

    /// Resolves when this watch is to end after the server stops: watches end one after another, spread evenly over the
    /// grace period.
    pub(crate) fn watch_ends(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut stopping = self.stopping.subscribe();
        // The fractional parts of multiples of the golden ratio are spread evenly for any number of watches.
        let nth = self.watches_begun.fetch_add(1, Ordering::Relaxed) as f64;
        let wait = self.manners.watch_grace.mul_f64((nth * 0.618_033_988_749_895).fract());
        async move {
            drop(stopping.wait_for(|stopping| *stopping).await);
            tokio::time::sleep(wait).await;
        }
    }
}
