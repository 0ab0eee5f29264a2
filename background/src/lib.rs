//! Work that takes long: where no task waits for its thread, and on threads that give way to those that answer requests.
//!
//! Somebody may have much work done, by a large request or by a list in another form. On a thread like all others that
//! work has as much of the processors as everybody's answers have together. A thread of lower priority does it with what
//! they leave. A thread that is not root's can never get its priority back: so each such work has a thread of its own.

use std::panic::resume_unwind;
use std::sync::{Mutex, PoisonError};
use tokio::runtime::{Handle, Runtime, RuntimeFlavor};

/// How much nicer such a thread is: it has a third of the time of another one that wants the same processor.
const NICER: i32 = 5;

/// Does work that may take long. The tasks that share its thread go on meanwhile, on another one.
pub fn heavy<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        // There is only this thread.
        _ => work(),
    }
}

/// The same, with a thread that gives way.
pub fn aside<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(|| on_another_thread(work)),
        _ => work(),
    }
}

/// A runtime all of whose threads give way: for what nobody's request waits for.
pub fn runtime() -> std::io::Result<Runtime> {
    tokio::runtime::Builder::new_multi_thread().thread_name("background").on_thread_start(give_way).enable_all().build()
}

fn on_another_thread<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let work = Mutex::new(Some(work));
    let take = || work.lock().unwrap_or_else(PoisonError::into_inner).take();
    let done = std::thread::scope(|scope| {
        let give_way_and_work = || {
            give_way();
            take().map(|work| work())
        };
        let thread =
            std::thread::Builder::new().name("aside".to_owned()).spawn_scoped(scope, give_way_and_work).ok()?;
        thread.join().unwrap_or_else(|panic| resume_unwind(panic))
    });
    match done {
        Some(done) => done,
        // The machine gives no thread.
        None => take().map(|work| work()).expect("the work is done once"),
    }
}

/// Has this thread, and those that it starts from now on, give way to others. One that does so already goes on as it is.
fn give_way() {
    // That of the first thread, which is nobody's to change.
    let niceness = rustix::process::getpriority_process(Some(rustix::process::getpid())).unwrap_or(0);
    // A system that does not let a thread be nicer has it go on as it is.
    let _ = rustix::process::setpriority_process(None, niceness + NICER);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    /// Work that ends only when another task has run, on the one worker that there is for both.
    fn ends_after_another_task(runtime: impl Fn(Box<dyn FnOnce() -> bool + Send>) -> bool + Send + 'static) {
        let workers = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().expect("a runtime");
        let ((began, begun), (done, waits)) = (channel(), channel());
        let work = workers.spawn(async move {
            runtime(Box::new(move || {
                began.send(()).expect("somebody waits");
                waits.recv_timeout(Duration::from_secs(60)).is_ok()
            }))
        });
        begun.recv().expect("it begins");
        workers.spawn(async move { done.send(()) });
        assert!(workers.block_on(work).expect("no panic"));
    }

    #[test]
    fn others_go_on_meanwhile() {
        ends_after_another_task(heavy);
        ends_after_another_task(aside);
    }

    #[tokio::test]
    async fn it_is_done_where_there_is_one_thread_alone() {
        assert_eq!((heavy(|| 7), aside(|| 8)), (7, 8));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn a_thread_that_gives_way_is_nicer_and_no_other_is() {
        let niceness = || rustix::process::getpriority_process(None).expect("it can be asked");
        let before = niceness();
        let nicer = (before + NICER).min(19);
        assert_eq!((aside(niceness), niceness()), (nicer, before));
    }

    /// Threads have the niceness of those that start them.
    #[test]
    fn threads_of_threads_that_give_way_are_no_nicer() {
        let niceness = || rustix::process::getpriority_process(None).expect("it can be asked");
        let nicer = (niceness() + NICER).min(19);
        let background = runtime().expect("a runtime");
        let asked = background.spawn(async move { (niceness(), aside(niceness), heavy(niceness)) });
        assert_eq!(background.block_on(asked).expect("no panic"), (nicer, nicer, nicer));
        let blocking =
            background.block_on(background.spawn(async move { tokio::task::spawn_blocking(niceness).await }));
        assert_eq!(blocking.expect("no panic").expect("no panic"), nicer);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn a_panic_is_the_askers() {
        let asked = tokio::spawn(async { aside(|| panic!("broken work")) });
        assert!(asked.await.expect_err("it panicked").is_panic());
    }
}
