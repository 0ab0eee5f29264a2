//! Runs long work on threads of its own, so that the work and the tasks on the caller's thread do not delay each other.

use std::thread::JoinHandle;
use tokio::sync::oneshot;

/// Runs work on a thread of its own until the work ends or the returned future is dropped. The thread's runtime has no
/// I/O driver, so the work must not use sockets.
pub async fn run_on_own_thread<W: Future<Output = ()>>(name: &'static str, work: impl FnOnce() -> W + Send + 'static) {
    let (alive, mut dropped) = oneshot::channel::<()>();
    let (end, ended) = oneshot::channel();
    let worked = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        let worked = runtime.map(|runtime| {
            runtime.block_on(async {
                tokio::select! {
                    () = work() => {}
                    _ = &mut dropped => {}
                }
            });
        });
        let _ = end.send(worked);
    };
    match std::thread::Builder::new().name(name.to_owned()).spawn(worked) {
        Ok(thread) => {
            let _thread = JoinOnDrop { alive: Some(alive), thread: Some(thread) };
            match ended.await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::error!(%error, "the background work {name} does not run"),
                Err(_) => tracing::error!("the background work {name} has ended"),
            }
        }
        Err(error) => tracing::error!(%error, "no thread could be started for the background work {name}"),
    }
}

/// When this value is dropped, it ends the thread and waits for its end, because resources of the work, such as a log,
/// must not exist longer than the server.
struct JoinOnDrop {
    alive: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for JoinOnDrop {
    fn drop(&mut self) {
        drop(self.alive.take());
        // The thread may have panicked. Then it has ended, too, and the panic is ignored.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn what_it_holds_is_let_go_of_before_it_is_gone() {
        let held = Arc::new(());
        let (begun, begins) = oneshot::channel();
        let of_thread = held.clone();
        let running = tokio::spawn(run_on_own_thread("test", move || async move {
            let _held = of_thread;
            begun.send(()).expect("somebody waits");
            std::future::pending::<()>().await;
        }));
        begins.await.expect("it runs");
        running.abort();
        assert!(running.await.expect_err("it was ended").is_cancelled());
        assert_eq!(Arc::strong_count(&held), 1);
    }
}
