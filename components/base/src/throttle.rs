//! Two layers between a client and its connection: one limits the rate of requests, and one counts requests.

use crate::metrics::Metrics;
use http::{Request, Response};
use kube::client::Body;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tower::{Layer, Service};

/// A client's rate limit: the number of requests a second, and the number of requests in a burst.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    pub qps: f64,
    pub burst: i64,
}

/// Delays requests so that they keep to a rate.
pub struct Throttle {
    interval: Duration,
    burst: u32,
    /// When the last request would have been made if requests were made at exactly one request per interval; `None`
    /// before the first request.
    paid_until: Mutex<Option<Instant>>,
}

impl Throttle {
    pub fn new(rate: Rate) -> Option<Throttle> {
        let interval = Duration::try_from_secs_f64(1.0 / rate.qps).ok().filter(|interval| !interval.is_zero())?;
        let burst = u32::try_from(rate.burst.max(1)).unwrap_or(u32::MAX);
        Some(Throttle { interval, burst, paid_until: Mutex::new(None) })
    }

    /// How long the next request has to wait. The request then counts as made.
    fn next(&self, now: Instant) -> Duration {
        let mut paid_until = self.paid_until.lock().unwrap_or_else(PoisonError::into_inner);
        let until = paid_until.unwrap_or(now).max(now) + self.interval;
        *paid_until = Some(until);
        until.duration_since(now).saturating_sub(self.interval.saturating_mul(self.burst))
    }
}

/// Counts the requests of a client to one host in metrics. If there is a [`Throttle`], it also limits their rate.
#[derive(Clone)]
pub struct Watched {
    pub host: Arc<str>,
    pub metrics: Arc<Metrics>,
    pub throttle: Option<Arc<Throttle>>,
}

impl<S> Layer<S> for Watched {
    type Service = WatchedService<S>;

    fn layer(&self, inner: S) -> WatchedService<S> {
        WatchedService { inner, watched: self.clone() }
    }
}

pub struct WatchedService<S> {
    inner: S,
    watched: Watched,
}

impl<S, B> Service<Request<Body>> for WatchedService<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Future: Send + 'static,
{
    type Response = Response<B>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<B>, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let wait = self.watched.throttle.as_ref().map_or(Duration::ZERO, |throttle| throttle.next(Instant::now()));
        let method = request.method().clone();
        let answer = self.inner.call(request);
        let Watched { host, metrics, .. } = self.watched.clone();
        Box::pin(async move {
            if !wait.is_zero() {
                tokio::time::sleep(wait).await;
            }
            let began = Instant::now();
            let answer = answer.await;
            let code = answer.as_ref().ok().map(|answer| answer.status().as_u16());
            metrics.answered(&host, method.as_str(), code, began.elapsed());
            answer
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_free_and_the_rest_waits() {
        let throttle = Throttle::new(Rate { qps: 10.0, burst: 3 }).unwrap();
        let (now, tenth) = (Instant::now(), Duration::from_millis(100));
        let waits: Vec<Duration> = (0..5).map(|_| throttle.next(now)).collect();
        assert_eq!(waits, [Duration::ZERO, Duration::ZERO, Duration::ZERO, tenth, 2 * tenth]);
        assert_eq!(throttle.next(now + 10 * tenth), Duration::ZERO);
        assert!(
            Throttle::new(Rate { qps: 0.0, burst: 3 }).is_none()
                && Throttle::new(Rate { qps: -1.0, burst: 3 }).is_none()
        );
    }
}
