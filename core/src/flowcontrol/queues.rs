//! One level: a number of seats, and queues in which requests wait for them in turn.
//!
//! Fair queuing by virtual time. The level's progress is counted in nanoseconds of one seat that each queue in use has
//! been due. A queue's next request is thought to begin where the queue has got to, and to end when it has had what it
//! takes; the one that would end first begins first. How long a request takes is not known before it has ended: until
//! then it is expected to be short, and the queue is charged the difference afterwards.
//!
//! A queue that nobody waits in and nothing runs from is forgotten, so what is kept grows with the requests in progress,
//! whatever is configured and however many flows there are.

use super::deal::Hand;
use super::seats::Demand;
use super::{Moment, Work};
use std::collections::{BTreeMap, BTreeSet};

/// How requests wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Queuing {
    pub queues: u32,
    pub hand_size: u32,
    /// How many may wait in one queue.
    pub length_max: u32,
}

/// What a level is configured to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// `None`: every request begins at once.
    pub seats: Option<u32>,
    /// `None`: nobody waits.
    pub queuing: Option<Queuing>,
}

/// Names a request of a level for as long as it takes seats or waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket {
    /// `None`: it came when there were no queues.
    pub queue: Option<u32>,
    /// In the order in which they came.
    number: u64,
}

/// What becomes of a request that comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    Started(Ticket),
    /// [`Queues::take_started`] tells when it may begin.
    Waiting(Ticket),
    Refused(Full),
}

/// What there was no room in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Full {
    Level,
    Queue,
}

/// Why a request leaves its queue before its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leave {
    TimedOut,
    Cancelled,
}

/// What has become of all requests so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    pub dispatched: u64,
    /// Those that left their queue are among them.
    pub rejected: u64,
    pub timed_out: u64,
    pub cancelled: u64,
    /// How often the next one took more seats than were free, while some were.
    pub no_room: u64,
}

/// A level. `T` is what its caller knows of a request.
pub struct Queues<T> {
    shape: Shape,
    /// Those with a request that waits or has seats.
    queues: BTreeMap<u32, Queue<T>>,
    /// Queues in which somebody waits, by when their first request would end and then by when it came.
    order: BTreeSet<(i128, u64, u32)>,
    running: BTreeMap<Ticket, Request<T>>,
    /// Requests that have ended, and keep some seats for a while: how many.
    lingering: BTreeMap<Ticket, u32>,
    started: Vec<Ticket>,
    /// The progress of every queue in use since the start, up to `last`.
    progress: i128,
    last: Moment,
    next_number: u64,
    // Invariant: what all requests in `running` and `lingering` have, and what those in queues would take.
    seats_taken: u64,
    seats_wanted: u64,
    waiting: usize,
    demand: Demand,
    counts: Counts,
}

struct Queue<T> {
    waiting: BTreeMap<u64, Request<T>>,
    /// What they are expected to take together.
    work: i128,
    /// How many requests have seats.
    seated: u32,
    seats: u64,
    /// The progress at which its next request begins.
    next_start: i128,
    /// Its place in `order`.
    place: Option<(i128, u64)>,
}

/// A request in a level.
pub struct Request<T> {
    pub work: Work,
    pub came: Moment,
    /// While it waits, the same.
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

    /// Changes what the level is. Queues that are no longer dealt are emptied in their turn.
    pub fn reshape(&mut self, now: Moment, shape: Shape) {
        self.pass(now);
        self.shape = shape;
        self.dispatch(now);
    }

    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// A request comes.
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
        // Whoever waits in it waits because there is no room: a wide request may leave seats free meanwhile.
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
        // Nobody has to be told that it has begun who has not been told to wait.
        match self.started.iter().position(|started| *started == ticket) {
            Some(at) => {
                self.started.remove(at);
                Arrival::Started(ticket)
            }
            None => Arrival::Waiting(ticket),
        }
    }

    /// A request leaves its queue; false when it has begun meanwhile, and has to be ended.
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

    /// A request has been carried out. Answers for how long it keeps some of its seats, if it does: then it is
    /// [released](Self::release).
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

    /// Gives back the seats that a request kept.
    pub fn release(&mut self, now: Moment, ticket: Ticket) {
        self.pass(now);
        let Some(seats) = self.lingering.remove(&ticket) else { return };
        self.free(ticket, seats, true);
        self.dispatch(now);
        self.note_demand(now);
    }

    /// Requests that have waited and may begin.
    pub fn take_started(&mut self) -> Vec<Ticket> {
        std::mem::take(&mut self.started)
    }

    /// What is known of a request that waits or runs.
    pub fn request_mut(&mut self, ticket: Ticket) -> Option<&mut Request<T>> {
        if self.running.contains_key(&ticket) {
            return self.running.get_mut(&ticket);
        }
        self.queues.get_mut(&ticket.queue?)?.waiting.get_mut(&ticket.number)
    }

    /// The queue of the flow in which there is the least work.
    fn choose(&self, flow: u64, queuing: Queuing, number: u64) -> u32 {
        let hand = Hand::deal(flow, queuing.queues, queuing.hand_size);
        let hand = hand.queues();
        // Where hands overlap, no queue comes first for all of them.
        let first = (number % hand.len() as u64) as usize;
        let turned = hand[first..].iter().chain(&hand[..first]);
        let work = |index: &u32| self.queues.get(index).map_or(0, |queue| queue.work);
        turned.copied().min_by_key(work).unwrap_or_default()
    }

    /// Lets time go by: every queue in use has made progress.
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

    /// Whether a request may begin that takes so many seats. One that takes more than there are has them all.
    fn has_room(&self, wanted: u32) -> bool {
        let Some(seats) = self.shape.seats else { return true };
        self.seats_taken + u64::from(wanted) <= seats.into() || (self.seats_taken == 0 && seats > 0)
    }

    /// Has those begin whose turn it is, as long as there are seats.
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

    /// Takes seats back from a request, which is over with its last one.
    fn free(&mut self, ticket: Ticket, seats: u32, over: bool) {
        self.seats_taken -= u64::from(seats);
        let Some(index) = ticket.queue else { return };
        let Some(queue) = self.queues.get_mut(&index) else { return };
        queue.seats -= u64::from(seats);
        queue.seated -= u32::from(over);
        self.place(index);
    }

    /// Puts a queue where it belongs in the order, or forgets it.
    fn place(&mut self, index: u32) {
        let Some(queue) = self.queues.get_mut(&index) else { return };
        if let Some((end, number)) = queue.place.take() {
            self.order.remove(&(end, number, index));
        }
        match queue.waiting.first_key_value() {
            Some((number, request)) => {
                // A queue gathers no credit for a time in which its first request was not there.
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

/// What people and metrics are told.
impl<T> Queues<T> {
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// How many are being carried out.
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

    /// The seats that were wanted since this was asked last.
    pub fn take_demand(&mut self, now: Moment) -> Demand {
        self.note_demand(now);
        let next = self.demand.next(now);
        std::mem::replace(&mut self.demand, next)
    }

    /// The queues that are in use, by their number.
    pub fn in_use(&self) -> impl Iterator<Item = (u32, Shown<'_, T>)> {
        self.queues.iter().map(|(index, queue)| (*index, Shown { queue, of: self, index: *index }))
    }

    /// Those that are carried out and came when there were no queues.
    pub fn unqueued(&self) -> impl Iterator<Item = &Request<T>> {
        // Tickets without a queue come before all others.
        self.running.iter().take_while(|(ticket, _)| ticket.queue.is_none()).map(|(_, request)| request)
    }
}

/// One queue, to look at.
pub struct Shown<'a, T> {
    queue: &'a Queue<T>,
    of: &'a Queues<T>,
    index: u32,
}

impl<'a, T> Shown<'a, T> {
    /// The first comes first.
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

    /// In seconds of one seat.
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
