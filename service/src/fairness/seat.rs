//! What a request has of its level, given back when it is dropped: at any time, and whatever becomes of the request.

use super::measures::Reason;
use super::{Fairness, Flow, Kind};
use holdfast_core::Refusal;
use holdfast_core::flowcontrol::queues::Leave;
use holdfast_core::flowcontrol::{Moment, Ticket, Work};
use holdfast_core::refusal::Plenty;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// The seats of one request, or its place in a queue.
pub struct Seat {
    fairness: Arc<Fairness>,
    flow: Arc<Flow>,
    ticket: Ticket,
    work: Work,
    kind: Kind,
    /// When it began; while it waits, when it came.
    began: Moment,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Waiting,
    Running,
    /// It has left its queue, and has nothing to give back.
    Left,
}

impl Seat {
    pub(super) fn new(
        fairness: Arc<Fairness>,
        flow: Arc<Flow>,
        ticket: Ticket,
        work: Work,
        kind: Kind,
        began: Moment,
    ) -> Seat {
        Seat { fairness, flow, ticket, work, kind, began, state: State::Waiting }
    }

    /// The same, from the moment on at which the request began.
    pub(super) fn begun(mut self, now: Moment) -> Seat {
        (self.state, self.began) = (State::Running, now);
        self.count(1);
        self
    }

    fn count(&self, by: i64) {
        self.fairness.in_progress[self.kind as usize].fetch_add(by, Ordering::Relaxed);
    }

    /// Leaves the queue; false when its turn has come meanwhile.
    fn leave(&mut self, why: Leave) -> bool {
        let now = self.fairness.now();
        let mut inside = self.flow.level.lock();
        if !inside.queues.leave(now, self.ticket, why) {
            return false;
        }
        self.state = State::Left;
        inside.wake_started(now);
        let measures = &self.flow.measures;
        measures.stops_waiting(&self.work);
        measures.gives_up(Duration::from_nanos(now.saturating_sub(self.began)));
        measures.rejected(match why {
            Leave::TimedOut => Reason::TimeOut,
            Leave::Cancelled => Reason::Cancelled,
        });
        true
    }

    fn end(&mut self) {
        if self.state == State::Running {
            self.count(-1);
        }
        let now = self.fairness.now();
        let measures = &self.flow.measures;
        measures.ends(self.kind, Duration::from_nanos(now.saturating_sub(self.began)));
        let lingering = {
            let mut inside = self.flow.level.lock();
            let lingering = inside.queues.end(now, self.ticket);
            inside.wake_started(now);
            lingering
        };
        let Some(lingering) = lingering else { return measures.released(self.work.seats()) };
        measures.released(self.work.seats() - self.work.final_seats);
        let (fairness, flow, ticket, seats) =
            (self.fairness.clone(), self.flow.clone(), self.ticket, self.work.final_seats);
        let release = move || {
            let now = fairness.now();
            let mut inside = flow.level.lock();
            inside.queues.release(now, ticket);
            inside.wake_started(now);
            flow.measures.released(seats);
        };
        match Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn(async move {
                tokio::time::sleep(Duration::from_nanos(lingering)).await;
                release();
            })),
            // The process ends.
            Err(_) => release(),
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let over = match self.state {
            State::Left => true,
            State::Waiting => self.leave(Leave::Cancelled),
            State::Running => false,
        };
        if !over {
            self.end();
        }
    }
}

/// A request in a queue.
pub(crate) struct Waiting {
    seat: Seat,
    told: oneshot::Receiver<()>,
    at_most: Duration,
}

impl Waiting {
    pub(super) fn new(seat: Seat, told: oneshot::Receiver<()>, at_most: Duration) -> Waiting {
        Waiting { seat, told, at_most }
    }

    /// Waits for the request's turn.
    pub async fn turn(self) -> Result<Seat, Refusal> {
        let Waiting { mut seat, told, at_most } = self;
        let in_time = tokio::time::timeout(at_most, told).await.is_ok();
        let now = seat.fairness.now();
        if !in_time && seat.leave(Leave::TimedOut) {
            let retry_after_seconds = seat.flow.level.lock().retry.refuse(now);
            return Err(Refusal::TooManyRequests { what: Plenty::Requests, retry_after_seconds });
        }
        Ok(seat.begun(now))
    }
}
