//! Threads of their own for what has much to do: those who share a thread with it would wait for it, and it for them.

use tokio::sync::oneshot;

/// Has work done on a thread of its own, until it ends or what is returned is dropped. It knows no sockets.
pub async fn apart<W: Future<Output = ()>>(name: &'static str, work: impl FnOnce() -> W + Send + 'static) {
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
        Ok(_) => match ended.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::error!(%error, "what is called {name} does not run"),
            Err(_) => tracing::error!("what is called {name} has ended"),
        },
        Err(error) => tracing::error!(%error, "the machine gives no thread for what is called {name}"),
    }
    drop(alive);
}
