//! The deadlines of a connection, which share one timer.

use crate::connection::wakes::{Cause, Wakes};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use tokio::time::{Instant, Sleep};

/// The event that must have happened by the deadline, or the action that is taken at the deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Deadline {
    /// The client begins with HTTP/2, and acknowledges the server's settings.
    Opening,
    /// A new period begins, in which the protocol counts a client's frames from zero.
    Period,
    /// A client from which nothing has arrived is pinged.
    Ping,
    /// The client answers the last ping.
    Pong,
    /// The client of a connection without requests is asked to end the connection.
    Idle,
    /// The client ends the connection, as it was asked to.
    Farewell,
    /// The client accepts some of the output.
    Taken,
    /// The client reads all waiting data of a response.
    Read,
}

const ALL: [Deadline; 8] = [
    Deadline::Opening,
    Deadline::Period,
    Deadline::Ping,
    Deadline::Pong,
    Deadline::Idle,
    Deadline::Farewell,
    Deadline::Taken,
    Deadline::Read,
];

#[derive(Debug)]
pub struct Deadlines {
    at: [Option<Instant>; ALL.len()],
    timer: Pin<Box<Sleep>>,
    /// The time of the timer, which is no later than the first deadline. When a deadline moves to a later time, the
    /// timer is not changed.
    set_to: Instant,
    waker: Waker,
}

impl Deadlines {
    pub fn new(first: Instant, wakes: &Arc<Wakes>) -> Deadlines {
        let mut deadlines = Deadlines {
            at: [None; ALL.len()],
            timer: Box::pin(tokio::time::sleep_until(first)),
            set_to: first,
            waker: wakes.waker(Cause::Timer),
        };
        deadlines.look();
        deadlines
    }

    pub fn at(&self, deadline: Deadline) -> Option<Instant> {
        self.at[deadline as usize]
    }

    pub fn set(&mut self, deadline: Deadline, at: Instant) {
        self.at[deadline as usize] = Some(at);
        if at < self.set_to {
            self.move_timer(at);
        }
    }

    /// Sets the time of a deadline, unless the deadline is already set.
    pub fn set_first(&mut self, deadline: Deadline, at: Instant) {
        if self.at(deadline).is_none() {
            self.set(deadline, at);
        }
    }

    pub fn clear(&mut self, deadline: Deadline) {
        self.at[deadline as usize] = None;
    }

    /// Removes and returns the passed deadlines. The caller may set them again, and must then call
    /// [`Deadlines::rearm`].
    pub fn take_passed(&mut self, now: Instant) -> impl Iterator<Item = Deadline> + use<> {
        let passed = ALL.map(|deadline| {
            let has_passed = self.at(deadline).is_some_and(|at| at <= now);
            has_passed.then(|| {
                self.clear(deadline);
                deadline
            })
        });
        passed.into_iter().flatten()
    }

    /// Sets the timer to the time of the first deadline.
    pub fn rearm(&mut self) {
        if let Some(first) = self.at.iter().flatten().min() {
            self.move_timer(*first);
        }
    }

    fn move_timer(&mut self, at: Instant) {
        self.set_to = at;
        self.timer.as_mut().reset(at);
        self.look();
    }

    /// Polls the timer, so that it wakes the connection when it fires.
    fn look(&mut self) {
        let mut context = Context::from_waker(&self.waker);
        let mut timer = std::pin::pin!(tokio::task::unconstrained(self.timer.as_mut()));
        if timer.as_mut().poll(&mut context).is_ready() {
            self.waker.wake_by_ref();
        }
    }
}
