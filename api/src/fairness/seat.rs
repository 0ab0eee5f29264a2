//! The seats of a request at its priority level. The seats are freed when the [`Seat`] is dropped, however the request
//! ends.

use super::measures::{Phase, Reason};
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
    /// The time at which the request began; for a waiting request, the time at which it arrived.
    began: Moment,
    /// `None` after the request has left its queue and has no seats to free.
    phase: Option<Phase>,
}

impl Seat {
    pub(super) fn new(
        fairness: Arc<Fairness>,
        flow: Arc<Flow>,
        (ticket, phase): (Ticket, Phase),
        work: Work,
        kind: Kind,
        began: Moment,
    ) -> Seat {
        let mut seat = Seat { fairness, flow, ticket, work, kind, began, phase: None };
        seat.enter(began, Some(phase));
        seat
    }

    /// The same value with `now` as the start time of the request.
    pub(super) fn begun(mut self, now: Moment) -> Seat {
        self.began = now;
        self.enter(now, Some(Phase::Executing));
        self
    }

    /// Moves the request to another phase, and updates the counts of requests in each phase.
    fn enter(&mut self, now: Moment, phase: Option<Phase>) {
        let before = std::mem::replace(&mut self.phase, phase);
        for (phase, by) in before.map(|phase| (phase, -1)).into_iter().chain(phase.map(|phase| (phase, 1))) {
            self.fairness.by_kind.add(now, phase, self.kind, by);
            if phase == Phase::Executing {
                self.fairness.in_progress[self.kind as usize].fetch_add(by, Ordering::Relaxed);
            }
        }
    }

    /// Takes the request out of its queue. Returns false if the request has already started.
    fn leave(&mut self, why: Leave) -> bool {
        let now = self.fairness.now();
        let mut inside = self.flow.level.lock();
        if !inside.queues.leave(now, self.ticket, why) {
            return false;
        }
        inside.settle(now);
        drop(inside);
        self.enter(now, None);
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
        let now = self.fairness.now();
        self.enter(now, None);
        let measures = &self.flow.measures;
        measures.ends(self.kind, Duration::from_nanos(now.saturating_sub(self.began)));
        let lingering = {
            let mut inside = self.flow.level.lock();
            let lingering = inside.queues.end(now, self.ticket);
            inside.settle(now);
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
            inside.settle(now);
            flow.measures.released(seats);
        };
        match Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn(async move {
                tokio::time::sleep(Duration::from_nanos(lingering)).await;
                release();
            })),
            // The tokio runtime is shutting down, so no task can wait before it frees the seats, and they are freed at
            // once.
            Err(_) => release(),
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let over = match self.phase {
            None => true,
            Some(Phase::Waiting) => self.leave(Leave::Cancelled),
            Some(Phase::Executing) => false,
        };
        if !over {
            self.end();
        }
    }
}

/// A request that waits in a queue for its seats.
pub(crate) struct Waiting {
    seat: Seat,
    told: oneshot::Receiver<()>,
    at_most: Duration,
}

impl Waiting {
    pub(super) fn new(seat: Seat, told: oneshot::Receiver<()>, at_most: Duration) -> Waiting {
        Waiting { seat, told, at_most }
    }

    /// Waits until it is the request's turn, and returns its seats. Refuses the request if it has waited too long.
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
