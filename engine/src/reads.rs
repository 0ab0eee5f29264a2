//! Runs reads of the log on threads of their own, not on the async workers. Several reads run at the same time, up to a
//! limit, and users take turns.
//!
//! A read may wait for a disk. On a worker of the runtime it would delay every request of that worker. So each read
//! runs on a thread of its own, and a request that arrives when the limit is reached waits without a thread. Users take
//! turns, and one user has only a few reads in progress, even if it requests many. Short reads wait only for other
//! short reads. The long reads of users run on threads of low priority.

use crate::read_memory::{Name, ReadMemory, Reader};
use holdfast_background::run_low_priority;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// The maximum number of long reads in progress.
const READS_MAX: usize = 16;
/// The maximum number of short reads in progress.
const SHORT_MAX: usize = 4;
/// The bounds for the maximum number of one user's long reads in progress. Within the bounds, this maximum is the
/// number of processors.
const OF_ONE_MAX: (usize, usize) = (2, READS_MAX / 2);

/// Runs reads of the log, and counts the memory of their results.
#[derive(Clone)]
pub struct Reads {
    way: Way,
    memory: ReadMemory,
}

#[derive(Clone)]
enum Way {
    /// Reads run on threads for blocking work. `long` and `short` limit how many reads run at the same time.
    Pool { long: Arc<Turns>, short: Arc<Turns> },
    /// Reads run on the calling thread. For simulations and tests, which have one thread and no runtime.
    Here,
}

/// The expected duration of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Length {
    /// The read makes a small, bounded number of look-ups.
    Short,
    Long,
}

impl Default for Reads {
    fn default() -> Reads {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let of_one = cores.clamp(OF_ONE_MAX.0, OF_ONE_MAX.1);
        let way = Way::Pool { long: Turns::new(READS_MAX, of_one), short: Turns::new(SHORT_MAX, SHORT_MAX / 2) };
        Reads { way, memory: ReadMemory::default() }
    }
}

impl Reads {
    /// Makes the value for a log in memory, whose reads do not wait for a disk. The reads may use half of the
    /// processors, and users take turns.
    pub fn of_processors(memory: ReadMemory) -> Reads {
        let places = std::thread::available_parallelism().map_or(1, usize::from).div_ceil(2);
        let way = Way::Pool { long: Turns::new(places, places), short: Turns::new(places, places) };
        Reads { way, memory }
    }

    /// Makes a value that runs each read on the calling thread.
    pub fn here() -> Reads {
        Reads { way: Way::Here, memory: ReadMemory::default() }
    }

    pub fn memory(&self) -> &ReadMemory {
        &self.memory
    }

    /// Runs a read of the server itself; see [`Self::run_for`].
    pub fn run<T, W>(&self, work: W) -> impl Future<Output = T> + Send + use<T, W>
    where
        T: Send + 'static,
        W: FnOnce() -> T + Send + 'static,
    {
        self.run_for(&Reader::SERVER, Length::Long, work)
    }

    /// Runs `work` when it is the reader's turn, and resolves to the result. Work that has begun is finished even if
    /// the caller no longer waits for the result, and counts as in progress until it is finished.
    pub fn run_for<T, W>(&self, reader: &Reader, length: Length, work: W) -> impl Future<Output = T> + Send + use<T, W>
    where
        T: Send + 'static,
        W: FnOnce() -> T + Send + 'static,
    {
        let turns = match (&self.way, length) {
            (Way::Here, _) => None,
            (Way::Pool { long, .. }, Length::Long) => Some((long.clone(), reader.name().clone())),
            (Way::Pool { short, .. }, Length::Short) => Some((short.clone(), reader.name().clone())),
        };
        async move {
            let Some((turns, name)) = turns else { return work() };
            let gives_way = length == Length::Long && name.is_some();
            let turn = turns.turn(name).await;
            let counted = move || {
                let done = if gives_way { run_low_priority(work) } else { work() };
                drop(turn);
                done
            };
            match tokio::task::spawn_blocking(counted).await {
                Ok(done) => done,
                Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                // The runtime is shutting down, and ends this task too, so the task waits without an end.
                Err(_) => std::future::pending().await,
            }
        }
    }
}

/// Gives permits for reads to users in turns.
struct Turns {
    lines: Mutex<Lines>,
    of_one_max: usize,
}

#[derive(Default)]
struct Lines {
    free: usize,
    /// The users that have a read which runs or waits.
    lines: HashMap<Name, Line>,
    /// The users with a waiting read, in the order of their turns.
    round: VecDeque<Name>,
}

#[derive(Default)]
struct Line {
    under_way: usize,
    waiting: VecDeque<oneshot::Sender<Turn>>,
}

/// A permit for one read. When a permit is dropped, the next user gets it.
struct Turn(Option<(Arc<Turns>, Name)>);

impl Turns {
    fn new(places: usize, of_one_max: usize) -> Arc<Turns> {
        Arc::new(Turns { lines: Mutex::new(Lines { free: places, ..Lines::default() }), of_one_max })
    }

    async fn turn(self: &Arc<Self>, name: Name) -> Turn {
        let given = {
            let mut lines = self.lock();
            let (free, of_one_max) = (lines.free, self.of_one_max(&name));
            let line = lines.lines.entry(name.clone()).or_default();
            if free > 0 && line.waiting.is_empty() && line.under_way < of_one_max {
                line.under_way += 1;
                lines.free -= 1;
                return Turn(Some((self.clone(), name)));
            }
            let (sender, given) = oneshot::channel();
            line.waiting.push_back(sender);
            if line.waiting.len() == 1 {
                lines.round.push_back(name);
            }
            given
        };
        match given.await {
            Ok(turn) => turn,
            // The sender stays in the queue until its turn, so it is never dropped without an answer, and this case
            // does not occur.
            Err(_) => std::future::pending().await,
        }
    }

    fn give_back(self: &Arc<Self>, name: &Name) {
        let mut lines = self.lock();
        lines.free += 1;
        lines.leave(name);
        // Each waiting user is considered at most once. A user that has as many permits as it may have is skipped.
        for _ in 0..lines.round.len() {
            if lines.free == 0 {
                return;
            }
            self.give_next(&mut lines);
        }
    }

    /// Gives a permit to the next user.
    fn give_next(self: &Arc<Self>, lines: &mut Lines) {
        let Some(name) = lines.round.pop_front() else { return };
        let Some(line) = lines.lines.get_mut(&name) else { return };
        if line.under_way >= self.of_one_max(&name) {
            lines.round.push_back(name);
            return;
        }
        while let Some(sender) = line.waiting.pop_front() {
            line.under_way += 1;
            match sender.send(Turn(Some((self.clone(), name.clone())))) {
                Ok(()) => {
                    lines.free -= 1;
                    break;
                }
                // The request was cancelled. A normal drop of the permit would take the lock again.
                Err(mut turn) => {
                    turn.0 = None;
                    line.under_way -= 1;
                }
            }
        }
        match line.waiting.is_empty() {
            true if line.under_way == 0 => drop(lines.lines.remove(&name)),
            true => {}
            false => lines.round.push_back(name),
        }
    }

    fn of_one_max(&self, name: &Name) -> usize {
        if name.is_some() { self.of_one_max } else { usize::MAX }
    }

    fn lock(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lines {
    fn leave(&mut self, name: &Name) {
        if let Some(line) = self.lines.get_mut(name) {
            line.under_way -= 1;
            if line.under_way == 0 && line.waiting.is_empty() {
                self.lines.remove(name);
            }
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some((turns, name)) = self.0.take() {
            turns.give_back(&name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[tokio::test]
    async fn many_are_under_way_at_once_and_no_more() {
        let reads = Arc::new(Reads::default());
        let (meeting, count) = (Arc::new(Barrier::new(READS_MAX)), Arc::new(AtomicUsize::new(0)));
        let tasks: Vec<_> = (0..READS_MAX * 3)
            .map(|_| {
                let (reads, meeting, count) = (reads.clone(), meeting.clone(), count.clone());
                tokio::spawn(async move {
                    let read = move || {
                        let most = count.fetch_add(1, Ordering::SeqCst) + 1;
                        // The barrier `meeting` lets the reads continue only when the expected number of reads run at
                        // the same time.
                        meeting.wait();
                        count.fetch_sub(1, Ordering::SeqCst);
                        most
                    };
                    reads.run(read).await
                })
            })
            .collect();
        for task in tasks {
            assert!(task.await.expect("it is read") <= READS_MAX);
        }
    }

    #[tokio::test]
    async fn a_panic_is_the_askers() {
        let reads = Arc::new(Reads::default());
        let asked = tokio::spawn(async move { reads.run(|| panic!("a broken read")).await });
        assert!(asked.await.expect_err("it panicked").is_panic());
    }

    /// Asks for a turn without blocking. The returned future is ready if the turn was given at once.
    fn ask(turns: &Arc<Turns>, name: &str) -> std::pin::Pin<Box<impl Future<Output = Turn> + use<>>> {
        let (turns, name) = (turns.clone(), Some(Arc::from(name)));
        let mut asked = Box::pin(async move { turns.turn(name).await });
        // The first poll of the future puts the request into the queue.
        if let Some(turn) = now(&mut asked) {
            return Box::pin(ready(Some(turn), asked));
        }
        Box::pin(ready(None, asked))
    }

    async fn ready(turn: Option<Turn>, asked: std::pin::Pin<Box<impl Future<Output = Turn>>>) -> Turn {
        match turn {
            Some(turn) => turn,
            None => asked.await,
        }
    }

    fn now<T>(future: &mut std::pin::Pin<Box<impl Future<Output = T>>>) -> Option<T> {
        match future.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop())) {
            std::task::Poll::Ready(done) => Some(done),
            std::task::Poll::Pending => None,
        }
    }

    #[test]
    fn users_take_turns_however_many_reads_one_asks_for() {
        let turns = Turns::new(3, 2);
        let mut greedy: Vec<_> = (0..100).map(|_| ask(&turns, "greedy")).collect();
        let mut under_way: Vec<Turn> = greedy.iter_mut().filter_map(now).collect();
        assert_eq!(under_way.len(), 2, "one user does not have all places");
        let mut others = ["b", "c", "d"].map(|name| ask(&turns, name));
        let first = now(&mut others[0]).expect("a place that was left");
        assert!(now(&mut others[1]).is_none() && now(&mut others[2]).is_none());
        // One read has ended. After one of the greedy user's 98 waiting reads, the reads of the other users must run,
        // because users take turns.
        drop(under_way.pop());
        let mut next: Vec<Turn> = greedy.split_off(2).iter_mut().filter_map(now).collect();
        assert_eq!(next.len(), 1);
        drop(next.pop());
        assert!(now(&mut others[1]).is_some(), "they come before the rest of the greedy one's");
        drop(first);
        drop(under_way);
        assert!(now(&mut others[2]).is_some());
    }

    #[test]
    fn who_goes_away_gives_its_place_to_the_next() {
        let turns = Turns::new(1, 1);
        let mut first = ask(&turns, "a");
        let first = now(&mut first).expect("a place");
        let gone = ask(&turns, "b");
        let mut other = ask(&turns, "c");
        drop(gone);
        drop(first);
        let turn = now(&mut other).expect("its turn");
        drop(turn);
        let lines = turns.lock();
        assert_eq!((lines.free, lines.lines.len(), lines.round.len()), (1, 0, 0));
    }
}
