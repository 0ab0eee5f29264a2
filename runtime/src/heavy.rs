//! Work that takes so long that others must not wait for it.

use tokio::runtime::{Handle, RuntimeFlavor};

/// Does work that may take seconds. The tasks that share its thread go on meanwhile, on another one: requests are
/// answered while controllers come to know a large cluster.
pub fn heavy<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        // There is only this thread.
        _ => work(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    /// Heavy work that ends only when another task has run, on the one thread that there is for both.
    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn others_go_on_meanwhile() {
        let ((began, begun), (done, waits)) = (channel(), channel());
        let work = tokio::spawn(async move {
            heavy(|| {
                began.send(()).expect("somebody waits");
                waits.recv_timeout(Duration::from_secs(60))
            })
        });
        begun.recv().expect("it begins");
        tokio::spawn(async move { done.send(()) }).await.expect("no panic").expect("somebody waits");
        assert_eq!(work.await.expect("no panic"), Ok(()));
    }

    #[tokio::test]
    async fn it_is_done_where_there_is_one_thread_alone() {
        assert_eq!(heavy(|| 7), 7);
    }
}
