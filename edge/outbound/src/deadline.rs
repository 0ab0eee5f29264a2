//! The deadline of the request on whose behalf calls are made.
//!
//! All work in the task of a request can read the deadline ([`within`]). So a webhook receives the remaining time as
//! its timeout, and no call continues after the end of the request.

use std::time::Duration;
use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout_at};

tokio::task_local! {
    static DEADLINE: Instant;
}

/// Runs work for at most this time.
pub async fn within<F: Future>(patience: Duration, work: F) -> Result<F::Output, Elapsed> {
    let deadline = Instant::now() + patience;
    timeout_at(deadline, DEADLINE.scope(deadline, work)).await
}

/// The time that the request has left; `None` without a limit.
pub(crate) fn left() -> Option<Duration> {
    DEADLINE.try_with(|deadline| deadline.saturating_duration_since(Instant::now())).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_left_becomes_less() {
        assert_eq!(left(), None);
        let (whole, part) = (Duration::from_secs(60), Duration::from_millis(20));
        let work = async {
            tokio::time::sleep(part).await;
            left()
        };
        assert!(within(whole, work).await.is_ok_and(|left| left.is_some_and(|left| left <= whole - part)));
        assert!(within(part, std::future::pending::<()>()).await.is_err());
    }
}
