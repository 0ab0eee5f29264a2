//! How long the request has for which calls are made.
//!
//! All that is done for a request in the same task knows when its time is over ([`within`]): a webhook is told how long it
//! has, and one that is forgiven when it takes too long has nothing go on behind the end of the request.

use std::time::Duration;
use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout_at};

tokio::task_local! {
    static DEADLINE: Instant;
}

/// Does work for no longer than that.
pub async fn within<F: Future>(patience: Duration, work: F) -> Result<F::Output, Elapsed> {
    let deadline = Instant::now() + patience;
    timeout_at(deadline, DEADLINE.scope(deadline, work)).await
}

/// How long the request has left, where that is limited.
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
