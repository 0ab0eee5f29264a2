//! One priority level: its seats, and the queues in which requests wait for them.
//!
//! Virtual time makes the queuing fair. The level's progress is the seat time, in nanoseconds of one seat, to which
//! each queue in use has been entitled since the start. A queue's next request virtually begins at the queue's own
//! progress, and virtually ends after the seat time that the request takes. The request with the earliest virtual end
//! starts first. A request's duration is unknown until it ends. Until then a short duration is assumed, and the
//! difference is charged to the queue afterwards.
//!
//! A queue is dropped when none of its requests waits or holds seats, so that memory grows with the requests in
//! progress, not with the configuration or the number of flows.

use super::deal::Hand;
use super::seats::Demand;
use super::{Moment, Work};
use std::collections::{BTreeMap, BTreeSet};

/// The configuration of a level's queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Queuing {
    pub queues: u32,
    pub hand_size: u32,
    /// The maximum number of requests that wait in one queue.
    pub length_max: u32,
}

/// The configuration of a priority level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// The number of seats; `None` if every request starts at once.
    pub seats: Option<u32>,
    /// How the level queues requests; `None` if it refuses requests that find no free seat.
    pub queuing: Option<Queuing>,
}

/// Identifies a request of a level while it waits or holds seats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket {
    /// The request's queue; `None` if it arrived while the level had no queues.
    pub queue: Option<u32>,
    /// Numbers the requests in the order of arrival.
    number: u64,
}

/// The result of a request's arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    Started(Ticket),
    /// The request waits. When it has started, [`Queues::take_started`] returns its ticket.
    Waiting(Ticket),
    Refused(Full),
}

/// Why a request was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Full {
    Level,
    Queue,
}

/// Why a request leaves its queue before it starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leave {
    TimedOut,
    Cancelled,
}

/// Counts of the level's requests since the level was created.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    pub dispatched: u64,
    /// The number of rejected requests, including requests that left their queue.
    pub rejected: u64,
    pub timed_out: u64,
    pub cancelled: u64,
    /// The number of times that some seats were free, but too few for the next request.
    pub no_room: u64,
}

/// A priority level. `T` is the caller's own data about a request.
pub struct Queues<T> {
    shape: Shape,
    /// Queues with a request that waits or holds seats.
    queues: BTreeMap<u32, Queue<T>>,
    /// Queues with waiting requests, by the virtual end of their first request and then by its arrival.
    order: BTreeSet<(i128, u64, u32)>,
    running: BTreeMap<Ticket, Request<T>>,
    /// Finished requests that still hold seats for a while, with the number of these seats.
    lingering: BTreeMap<Ticket, u32>,
    started: Vec<Ticket>,
    /// The virtual time: the progress of each queue in use, from the start to `last`.
    progress: i128,
    last: Moment,
    next_number: u64,
    // Invariant: `seats_taken` is the sum of the seats in `running` and `lingering`, and `seats_wanted` is the sum of
    // the seats of the waiting requests.
    seats_taken: u64,
    seats_wanted: u64,
    waiting: usize,
    demand: Demand,
    counts: Counts,
}

struct Queue<T> {
    waiting: BTreeMap<u64, Request<T>>,
    /// The expected seat time of all waiting requests, in nanoseconds of one seat.
    work: i128,
    /// The number of the queue's requests that hold seats.
    seated: u32,
    seats: u64,
    /// The progress at which the queue's next request virtually begins.
    next_start: i128,
    /// The queue's entry in `order`: the virtual end and the arrival number of the queue's first waiting request.
    place: Option<(i128, u64)>,
}

/// A request in a level.
pub struct Request<T> {
    pub work: Work,
    pub came: Moment,
    /// The time at which the request started. While the request waits, `began` equals `came`.
    pub began: Moment,
    progress: i128,
    pub about: T,
}

impl<T> Queues<T> {
    pub fn new(now: Moment, shape: Shape) -> Queues<T> {
        Queues {
            shape,
            queues: BTreeMap::new(),
            order: BTreeSet::new(),
            running: BTreeMap::new(),
            lingering: BTreeMap::new(),
            started: Vec::new(),
            progress: 0,
            last: now,
            next_number: 0,
            seats_taken: 0,
            seats_wanted: 0,
            waiting: 0,
            demand: Demand::new(now),
            counts: Counts::default(),
        }
    }

    /// Changes the configuration of the level. If the level gets fewer queues, the dropped queues receive no further
    /// requests, and their waiting requests still start in order.
    pub fn reshape(&mut self, now: Moment, shape: Shape) {
        self.pass(now);
        self.shape = shape;
        self.dispatch(now);
    }

    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Adds a request: it starts, waits or is refused.
    pub fn arrive(&mut self, now: Moment, flow: u64, work: Work, about: T) -> Arrival {
        self.pass(now);
        let request = Request { work, came: now, began: now, progress: self.progress, about };
        let number = self.next_number;
        self.next_number += 1;
        let Some(queuing) = self.shape.queuing else {
            let ticket = Ticket { queue: None, number };
            if !self.has_room(work.seats()) {
                self.counts.rejected += 1;
                return Arrival::Refused(Full::Level);
            }
            self.run(ticket, request);
            self.note_demand(now);
            return Arrival::Started(ticket);
        };
        let index = self.choose(flow, queuing, number);
        let length = self.queues.get(&index).map_or(0, |queue| queue.waiting.len());
        // A full queue refuses the request even if seats are free: the first waiting request may need more seats than
        // are free, and later requests do not overtake it.
        if length >= queuing.length_max.max(1) as usize {
            self.counts.rejected += 1;
            return Arrival::Refused(Full::Queue);
        }
        let ticket = Ticket { queue: Some(index), number };
        let progress = self.progress;
        let queue = self.queues.entry(index).or_insert_with(|| Queue::new(progress));
        queue.work += work.expected();
        queue.waiting.insert(number, request);
        self.waiting += 1;
        self.seats_wanted += u64::from(work.seats());
        self.place(index);
        self.dispatch(now);
        self.note_demand(now);
        // The result already reports that the request has started, so `take_started` must not return it as well.
        match self.started.iter().position(|started| *started == ticket) {
            Some(at) => {
                self.started.remove(at);
                Arrival::Started(ticket)
            }
            None => Arrival::Waiting(ticket),
        }
    }

    /// Removes a waiting request from its queue. Returns false if the request has started in the meantime; the caller
    /// must then end the request.
    pub fn leave(&mut self, now: Moment, ticket: Ticket, why: Leave) -> bool {
        self.pass(now);
        let Some(index) = ticket.queue else { return false };
        let Some(queue) = self.queues.get_mut(&index) else { return false };
        let Some(request) = queue.waiting.remove(&ticket.number) else { return false };
        queue.work -= request.work.expected();
        self.waiting -= 1;
        self.seats_wanted -= u64::from(request.work.seats());
        self.counts.rejected += 1;
        match why {
            Leave::TimedOut => self.counts.timed_out += 1,
            Leave::Cancelled => self.counts.cancelled += 1,
        }
        self.place(index);
        self.dispatch(now);
        self.note_demand(now);
        true
    }

    /// Ends an executed request. If the request keeps some seats, returns the time for which it keeps them; the caller
    /// must [release](Self::release) them afterwards.
    pub fn end(&mut self, now: Moment, ticket: Ticket) -> Option<Moment> {
        self.pass(now);
        let request = self.running.remove(&ticket)?;
        let work = request.work;
        if let Some(queue) = ticket.queue.and_then(|index| self.queues.get_mut(&index)) {
            queue.next_start += work.total(now.saturating_sub(request.began)) - work.expected();
        }
        let kept = if work.lingering > 0 { work.final_seats } else { 0 };
        if kept > 0 {
            self.lingering.insert(ticket, kept);
        }
        self.free(ticket, work.seats() - kept, kept == 0);
        self.dispatch(now);
        self.note_demand(now);
        (kept > 0).then_some(work.lingering)
    }

    /// Frees the seats that a finished request kept.
    pub fn release(&mut self, now: Moment, ticket: Ticket) {
        self.pass(now);
        let Some(seats) = self.lingering.remove(&ticket) else { return };
        self.free(ticket, seats, true);
        self.dispatch(now);
        self.note_demand(now);
    }

    /// Returns the tickets of waiting requests that have started since the last call.
    pub fn take_started(&mut self) -> Vec<Ticket> {
        std::mem::take(&mut self.started)
    }

    /// The request with this ticket, if it waits or runs.
    pub fn request_mut(&mut self, ticket: Ticket) -> Option<&mut Request<T>> {
        if self.running.contains_key(&ticket) {
            return self.running.get_mut(&ticket);
        }
        self.queues.get_mut(&ticket.queue?)?.waiting.get_mut(&ticket.number)
    }

    /// The queue with the least expected work in the flow's hand.
    fn choose(&self, flow: u64, queuing: Queuing, number: u64) -> u32 {
        let hand = Hand::deal(flow, queuing.queues, queuing.hand_size);
        let hand = hand.queues();
        // The first queue that is compared rotates, so that flows with overlapping hands do not always choose the same
        // one of several equal queues.
        let first = (number % hand.len() as u64) as usize;
        let turned = hand[first..].iter().chain(&hand[..first]);
        let work = |index: &u32| self.queues.get(index).map_or(0, |queue| queue.work);
        turned.copied().min_by_key(work).unwrap_or_default()
    }

    /// Advances the virtual time to the moment `now`.
    fn pass(&mut self, now: Moment) {
        let elapsed = now.saturating_sub(self.last);
        self.last = self.last.max(now);
        if let (true, in_use @ 1..) = (elapsed > 0, self.queues.len()) {
            let wanted = self.seats_taken + self.seats_wanted;
            let seats = self.shape.seats.map_or(wanted, |seats| wanted.min(seats.into()));
            self.progress += i128::from(elapsed) * i128::from(seats) / in_use as i128;
        }
    }

    fn has_seats(&self) -> bool {
        self.shape.seats.is_none_or(|seats| self.seats_taken < seats.into())
    }

    /// Whether a request that takes this many seats may start. A request wider than the level starts when no seats are
    /// taken.
    fn has_room(&self, wanted: u32) -> bool {
        let Some(seats) = self.shape.seats else { return true };
        self.seats_taken + u64::from(wanted) <= seats.into() || (self.seats_taken == 0 && seats > 0)
    }

    /// Starts waiting requests, in the order of their virtual ends, while seats are free.
    fn dispatch(&mut self, now: Moment) {
        while let Some((_, number, index)) = self.order.first().copied() {
            let Some(queue) = self.queues.get(&index) else { break };
            let Some(seats) = queue.waiting.get(&number).map(|request| request.work.seats()) else { break };
            if !self.has_room(seats) {
                self.counts.no_room += u64::from(self.has_seats());
                break;
            }
            let Some(queue) = self.queues.get_mut(&index) else { break };
            let Some(mut request) = queue.waiting.remove(&number) else { break };
            request.began = now;
            let expected = request.work.expected();
            queue.work -= expected;
            queue.next_start += expected;
            queue.seated += 1;
            queue.seats += u64::from(seats);
            self.waiting -= 1;
            self.seats_wanted -= u64::from(seats);
            let ticket = Ticket { queue: Some(index), number };
            self.run(ticket, request);
            self.started.push(ticket);
            self.place(index);
        }
    }

    fn run(&mut self, ticket: Ticket, request: Request<T>) {
        self.seats_taken += u64::from(request.work.seats());
        self.counts.dispatched += 1;
        self.running.insert(ticket, request);
    }

    /// Frees seats of a request. `over` says that the request then holds no seats.
    fn free(&mut self, ticket: Ticket, seats: u32, over: bool) {
        self.seats_taken -= u64::from(seats);
        let Some(index) = ticket.queue else { return };
        let Some(queue) = self.queues.get_mut(&index) else { return };
        queue.seats -= u64::from(seats);
        queue.seated -= u32::from(over);
        self.place(index);
    }

    /// Updates the queue's entry in `order`. Drops the queue if it has no requests.
    fn place(&mut self, index: u32) {
        let Some(queue) = self.queues.get_mut(&index) else { return };
        if let Some((end, number)) = queue.place.take() {
            self.order.remove(&(end, number, index));
        }
        match queue.waiting.first_key_value() {
            Some((number, request)) => {
                // A queue gets no credit for the time before its first waiting request arrived.
                queue.next_start = queue.next_start.max(request.progress);
                let place = (queue.next_start + request.work.expected(), *number);
                queue.place = Some(place);
                self.order.insert((place.0, place.1, index));
            }
            None if queue.seated == 0 => drop(self.queues.remove(&index)),
            None => {}
        }
    }

    fn note_demand(&mut self, now: Moment) {
        self.demand.note(now, self.seats_taken + self.seats_wanted);
    }
}

/// The numbers for metrics and debug pages.
impl<T> Queues<T> {
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// The number of requests being executed.
    pub fn executing(&self) -> usize {
        self.running.len()
    }

    pub fn seats_taken(&self) -> u64 {
        self.seats_taken
    }

    pub fn seats_wanted(&self) -> u64 {
        self.seats_wanted
    }

    pub fn is_idle(&self) -> bool {
        self.waiting == 0 && self.running.is_empty()
    }

    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// The demand for seats since the last call, from which the seats of the levels are computed.
    pub fn take_demand(&mut self, now: Moment) -> Demand {
        self.note_demand(now);
        let next = self.demand.next(now);
        std::mem::replace(&mut self.demand, next)
    }

    /// The queues that have requests, each with its number.
    pub fn in_use(&self) -> impl Iterator<Item = (u32, Shown<'_, T>)> {
        self.queues.iter().map(|(index, queue)| (*index, Shown { queue, of: self, index: *index }))
    }

    /// Running requests that arrived while the level had no queues.
    pub fn unqueued(&self) -> impl Iterator<Item = &Request<T>> {
        // Tickets without a queue come before all others.
        self.running.iter().take_while(|(ticket, _)| ticket.queue.is_none()).map(|(_, request)| request)
    }
}

/// A read-only view of one queue.
pub struct Shown<'a, T> {
    queue: &'a Queue<T>,
    of: &'a Queues<T>,
    index: u32,
}

impl<'a, T> Shown<'a, T> {
    /// The waiting requests, in the order of arrival.
    pub fn waiting(&self) -> impl ExactSizeIterator<Item = &'a Request<T>> + use<'a, T> {
        self.queue.waiting.values()
    }

    pub fn executing(&self) -> impl Iterator<Item = &'a Request<T>> + use<'a, T> {
        let from = |number| Ticket { queue: Some(self.index), number };
        self.of.running.range(from(0)..=from(u64::MAX)).map(|(_, request)| request)
    }

    pub fn seats(&self) -> u64 {
        self.queue.seats
    }

    /// The virtual start of the next request, in seconds of one seat.
    pub fn next_start(&self) -> f64 {
        seat_seconds(self.queue.next_start)
    }

    pub fn work(&self) -> f64 {
        seat_seconds(self.queue.work)
    }
}

fn seat_seconds(nanoseconds: i128) -> f64 {
    nanoseconds as f64 / 1e9
}

impl<T> Queue<T> {
    fn new(next_start: i128) -> Queue<T> {
        Queue { waiting: BTreeMap::new(), work: 0, seated: 0, seats: 0, next_start, place: None }
    }
}
