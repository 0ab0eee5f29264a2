//! Runs long computations where they block no other task, and on threads of lower priority than the threads that answer
//! requests.
//!
//! One user may cause much work, by a large request or by a list that must be converted. On an ordinary thread such
//! work gets as much processor time as the answers to all other requests together. A thread of lower priority works in
//! the processor time that the other threads leave. A process without root's rights can never raise a thread's priority
//! again, so each such computation gets a thread of its own.

use std::panic::resume_unwind;
use std::sync::{Mutex, PoisonError};
use tokio::runtime::{Handle, Runtime, RuntimeFlavor};

/// The number by which the niceness of a thread is increased. Such a thread gets about a third of the time of an
/// ordinary thread on the same processor.
const NICER: i32 = 5;

/// Runs work that may take long. Other tasks of this thread meanwhile move to another thread.
pub fn heavy<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        // A runtime with one thread has no other thread to move tasks to.
        _ => work(),
    }
}

/// Runs work that may take long, as [`heavy`] does, but on a thread of lower priority.
pub fn run_low_priority<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(|| on_another_thread(work)),
        _ => work(),
    }
}

/// A runtime whose threads all have lower priority, for work that no request waits for.
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
        // The system cannot start a thread, so this thread does the work.
        None => take().map(|work| work()).expect("the work is done once"),
    }
}

/// Lowers the priority of this thread and of the threads that it starts later. A thread whose priority is already lower
/// stays unchanged.
fn give_way() {
    // The niceness of the first thread of the process. The first thread's niceness never changes, so repeated calls do
    // not add up.
    let niceness = rustix::process::getpriority_process(Some(rustix::process::getpid())).unwrap_or(0);
    // If the system does not allow the change, the thread keeps its priority.
    let _ = rustix::process::setpriority_process(None, niceness + NICER);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    /// Checks that a computation which waits for another task ends, although both share one worker thread.
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
        ends_after_another_task(run_low_priority);
    }

    #[tokio::test]
    async fn it_is_done_where_there_is_one_thread_alone() {
        assert_eq!((heavy(|| 7), run_low_priority(|| 8)), (7, 8));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn a_thread_that_gives_way_is_nicer_and_no_other_is() {
        let niceness = || rustix::process::getpriority_process(None).expect("it can be asked");
        let before = niceness();
        let nicer = (before + NICER).min(19);
        assert_eq!((run_low_priority(niceness), niceness()), (nicer, before));
    }

    /// A thread inherits the niceness of the thread that starts it, and a second call must not lower its priority
    /// further.
    #[test]
    fn threads_of_threads_that_give_way_are_no_nicer() {
        let niceness = || rustix::process::getpriority_process(None).expect("it can be asked");
        let nicer = (niceness() + NICER).min(19);
        let background = runtime().expect("a runtime");
        let asked = background.spawn(async move { (niceness(), run_low_priority(niceness), heavy(niceness)) });
        assert_eq!(background.block_on(asked).expect("no panic"), (nicer, nicer, nicer));
        let blocking =
            background.block_on(background.spawn(async move { tokio::task::spawn_blocking(niceness).await }));
        assert_eq!(blocking.expect("no panic").expect("no panic"), nicer);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn a_panic_is_the_askers() {
        let asked = tokio::spawn(async { run_low_priority(|| panic!("broken work")) });
        assert!(asked.await.expect_err("it panicked").is_panic());
    }
}
