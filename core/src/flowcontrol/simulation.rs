//! Levels under load, on one thread with a simulated clock. Invariants must always hold, and a flood must delay only
//! the user that causes it.

use super::deal::flow;
use super::queues::{Full, Leave, Queuing};
use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

const MS: Moment = 1_000_000;

fn queued(seats: u32, queues: u32, hand_size: u32, length_max: u32) -> Shape {
    Shape { seats: Some(seats), queuing: Some(Queuing { queues, hand_size, length_max }) }
}

/// One event that happens to a level in the simulation.
#[derive(Debug, Clone)]
enum Event {
    Arrive {
        flow: u64,
        initial: u32,
        last: u32,
    },
    /// Ends the running request with this index.
    End(usize),
    /// Removes the waiting request with this index from its queue.
    Leave(usize),
    /// Releases the seats of the lingering request with this index.
    Release(usize),
    Reshape(u32, Option<(u32, u32, u32)>),
    Pass(u64),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => (0..9_u64, 1..5_u32, 0..5_u32).prop_map(|(flow, initial, last)| Event::Arrive { flow, initial, last }),
        4 => any::<usize>().prop_map(Event::End),
        2 => any::<usize>().prop_map(Event::Leave),
        2 => any::<usize>().prop_map(Event::Release),
        1 => (1..9_u32, prop::option::of((1..9_u32, 1..4_u32, 1..4_u32))).prop_map(|(seats, queues)| Event::Reshape(seats, queues)),
        2 => (0..50 * MS).prop_map(Event::Pass),
    ]
}

/// A level, and the test's own records about the level's requests.
struct SimulatedLevel {
    level: Queues<u64>,
    now: Moment,
    shape: Shape,
    waiting: Vec<(Ticket, Work)>,
    running: Vec<(Ticket, Work)>,
    lingering: Vec<(Ticket, Work)>,
    came: u64,
    ended: u64,
    refused: u64,
}

impl SimulatedLevel {
    fn new(shape: Shape) -> SimulatedLevel {
        let (waiting, running, lingering) = Default::default();
        SimulatedLevel {
            level: Queues::new(0, shape),
            now: 0,
            shape,
            waiting,
            running,
            lingering,
            came: 0,
            ended: 0,
            refused: 0,
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Arrive { flow, initial, last } => self.arrive(flow, initial, last),
            Event::End(which) if !self.running.is_empty() => {
                let (ticket, work) = self.running.remove(which % self.running.len());
                let lingering = self.level.end(self.now, ticket);
                assert_eq!(lingering.is_some(), work.final_seats > 0);
                self.ended += 1;
                self.lingering.extend(lingering.map(|_| (ticket, work)));
            }
            Event::Leave(which) if !self.waiting.is_empty() => {
                let (ticket, _) = self.waiting.remove(which % self.waiting.len());
                assert!(self.level.leave(self.now, ticket, Leave::Cancelled), "it waited");
                assert!(!self.level.leave(self.now, ticket, Leave::Cancelled), "it has left");
                self.refused += 1;
            }
            Event::Release(which) if !self.lingering.is_empty() => {
                let (ticket, _) = self.lingering.remove(which % self.lingering.len());
                self.level.release(self.now, ticket);
            }
            Event::Reshape(seats, queues) => {
                let queuing = queues.map(|(queues, hand_size, length_max)| Queuing { queues, hand_size, length_max });
                self.shape = Shape { seats: Some(seats), queuing };
                self.level.reshape(self.now, self.shape);
            }
            Event::Pass(time) => self.now += time,
            Event::End(_) | Event::Leave(_) | Event::Release(_) => {}
        }
        self.settle();
    }

    fn arrive(&mut self, flow: u64, initial: u32, last: u32) {
        let lingering = if last > 0 { 5 * MS } else { 0 };
        let work = Work { initial_seats: initial, final_seats: last, lingering };
        self.came += 1;
        let free = self.seats_of_all() + work.seats() <= self.shape.seats.unwrap_or(u32::MAX);
        match self.level.arrive(self.now, flow, work, self.came) {
            Arrival::Started(ticket) => self.running.push((ticket, work)),
            Arrival::Waiting(ticket) => self.waiting.push((ticket, work)),
            Arrival::Refused(full) => {
                assert_eq!(full == Full::Queue, self.shape.queuing.is_some());
                assert!(!free || !self.waiting.is_empty(), "refused with seats free and nobody before it");
                self.refused += 1;
            }
        }
    }

    /// Moves waiting requests that have started to the running requests.
    fn settle(&mut self) {
        for ticket in self.level.take_started() {
            let place = self.waiting.iter().position(|(waiting, _)| *waiting == ticket).expect("it waits");
            self.running.push(self.waiting.remove(place));
        }
    }

    fn seats_of_all(&self) -> u32 {
        let running = self.running.iter().map(|(_, work)| work.seats());
        running.chain(self.lingering.iter().map(|(_, work)| work.final_seats)).sum()
    }

    /// Checks the invariants. `limit` is the largest number of seats that the level had since all its seats were last
    /// free.
    fn check(&self, limit: u32) {
        let level = &self.level;
        assert_eq!(level.seats_taken(), u64::from(self.seats_of_all()));
        assert_eq!(level.seats_wanted(), self.waiting.iter().map(|(_, work)| u64::from(work.seats())).sum::<u64>());
        assert_eq!((level.waiting(), level.executing()), (self.waiting.len(), self.running.len()));
        assert_eq!(self.came, self.ended + self.refused + (self.waiting.len() + self.running.len()) as u64);
        let counts = level.counts();
        assert_eq!((counts.dispatched, counts.rejected), (self.ended + self.running.len() as u64, self.refused));
        let shown: usize = level.in_use().map(|(_, queue)| queue.waiting().len() + queue.executing().count()).sum();
        assert_eq!(shown + level.unqueued().count(), self.waiting.len() + self.running.len());
        // The seats in use never exceed the limit. Only a request that is wider than the level may exceed it, and then
        // it runs alone.
        let alone = self.running.len() + self.lingering.len() <= 1;
        assert!(self.seats_of_all() <= limit || alone, "{} seats of {limit}", self.seats_of_all());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn no_request_is_lost_and_no_seat(events in prop::collection::vec(event(), 1..200)) {
        let mut world = SimulatedLevel::new(queued(4, 4, 2, 3));
        let mut limit = 4;
        for event in events {
            world.happen(event);
            limit = limit.max(world.shape.seats.unwrap_or(0));
            world.check(limit);
        }
        // When all requests have ended, all seats are free.
        while !world.running.is_empty() || !world.lingering.is_empty() || !world.waiting.is_empty() {
            let before = world.waiting.len() + world.running.len() + world.lingering.len();
            world.happen(Event::End(0));
            world.happen(Event::Release(0));
            let after = world.waiting.len() + world.running.len() + world.lingering.len();
            prop_assert!(after < before, "somebody waits though nobody runs");
        }
        prop_assert_eq!((world.level.seats_taken(), world.level.seats_wanted(), world.level.in_use().count()), (0, 0, 0));
    }
}

/// A user that always has further requests: it keeps `outstanding` requests in the level, each of which takes
/// `duration`.
struct User {
    flow: u64,
    outstanding: usize,
    duration: Moment,
    width: u32,
}

/// What a user got from the level.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
struct Served {
    count: u64,
    /// The seat time of the user's requests, in nanoseconds of one seat.
    work: u64,
    refused: u64,
    longest_wait: Moment,
}

/// Lets users send requests to a level for `time`. Returns the results of each user.
fn overload(shape: Shape, users: &[User], time: Moment) -> Vec<Served> {
    let mut level: Queues<(usize, Moment)> = Queues::new(0, shape);
    let mut served = vec![Served::default(); users.len()];
    let mut inside = vec![0; users.len()];
    // The running requests by the time at which they end.
    let mut ends: BTreeMap<(Moment, Ticket), usize> = BTreeMap::new();
    let mut now = 0;
    while now < time {
        for (index, user) in users.iter().enumerate() {
            for _ in inside[index]..user.outstanding {
                let work = Work { initial_seats: user.width, ..Work::LEAST };
                match level.arrive(now, user.flow, work, (index, now)) {
                    Arrival::Started(ticket) => {
                        ends.insert((now + user.duration, ticket), index);
                        inside[index] += 1;
                    }
                    Arrival::Waiting(_) => inside[index] += 1,
                    Arrival::Refused(_) => {
                        served[index].refused += 1;
                        break;
                    }
                }
            }
        }
        let ((end, ticket), index) = ends.pop_first().expect("somebody runs");
        now = end;
        level.end(now, ticket);
        inside[index] -= 1;
        served[index].count += 1;
        served[index].work += users[index].duration * u64::from(users[index].width);
        for ticket in level.take_started() {
            let (index, came) = level.request_mut(ticket).expect("it runs").about;
            ends.insert((now + users[index].duration, ticket), index);
            served[index].longest_wait = served[index].longest_wait.max(now - came);
        }
    }
    served
}

fn user(name: &str, outstanding: usize, duration: Moment, width: u32) -> User {
    User { flow: flow("schema", name), outstanding, duration, width }
}

#[test]
fn who_floods_hurts_nobody_else() {
    let shape = queued(10, 128, 6, 50);
    let alone = overload(shape, &[user("quiet", 1, 10 * MS, 1)], 10_000 * MS)[0];
    let [quiet, flood] =
        overload(shape, &[user("quiet", 1, 10 * MS, 1), user("flood", 1000, 10 * MS, 1)], 10_000 * MS)[..]
    else {
        panic!("two users")
    };
    assert_eq!(quiet.refused, 0);
    // The quiet user waits for a seat, not for a queue: at most for the duration of one request.
    assert!(quiet.longest_wait <= 10 * MS, "{quiet:?}");
    assert!(quiet.count * 2 >= alone.count, "{quiet:?} beside {flood:?}, {alone:?} alone");
    // The flood gets the rest of the seats, as far as its queues have room for its requests.
    assert!(flood.refused > 0 && flood.count > 8 * quiet.count, "{flood:?}");
}

#[test]
fn without_queues_a_flood_takes_everything() {
    // In a level without queues, the same flood takes all seats, so that no request of the quiet user starts.
    let shape = Shape { seats: Some(10), queuing: None };
    let served = overload(shape, &[user("flood", 1000, 10 * MS, 1), user("quiet", 1, 10 * MS, 1)], 1000 * MS);
    assert_eq!(served[1].count, 0);
}

#[test]
fn equal_wants_get_equal_seats() {
    // One user has short requests, one has long requests, and one has wide requests. Each gets the same seat time.
    let users = [user("short", 40, 2 * MS, 1), user("long", 40, 50 * MS, 1), user("wide", 40, 5 * MS, 5)];
    let served = overload(queued(12, 64, 1, 100), &users, 60_000 * MS);
    let total: u64 = served.iter().map(|served| served.work).sum();
    for (user, served) in ["short", "long", "wide"].iter().zip(&served) {
        let share = served.work as f64 / total as f64;
        assert!((0.25..0.42).contains(&share), "{user}: {share} of {total}: {served:?}");
    }
}

/// Compares with a simple implementation, for requests of equal duration: users get seats in turn, one request each.
#[test]
fn one_after_the_other_in_turn() {
    for count in 2..8 {
        let users: Vec<User> = (0..count).map(|number| user(&format!("u{number}"), 20, 10 * MS, 1)).collect();
        let time = 10_000 * MS;
        let served = overload(queued(4, 1024, 1, 100), &users, time);
        let in_turn = (time / (10 * MS)) as f64 * 4.0 / count as f64;
        for served in &served {
            assert!((served.count as f64 - in_turn).abs() <= in_turn * 0.05, "{count}: {served:?}, not {in_turn}");
        }
    }
}

#[test]
fn a_wide_request_has_its_turn() {
    // Narrow requests do not overtake a wide request forever.
    let users = [user("narrow", 30, 10 * MS, 1), user("wide", 1, 10 * MS, 10)];
    let served = overload(queued(10, 64, 1, 100), &users, 10_000 * MS);
    assert!(served[1].count > 100 && served[1].longest_wait < 200 * MS, "{served:?}");
}

#[test]
fn invented_users_leave_nothing_behind() {
    let mut level = Queues::new(0, queued(1, u32::MAX, 1, 50));
    for number in 0..10_000_u64 {
        let name = flow("schema", &format!("user-{number}"));
        match level.arrive(number, name, Work::LEAST, ()) {
            Arrival::Started(ticket) => drop(level.end(number, ticket)),
            other => panic!("{other:?}"),
        }
        assert_eq!(level.in_use().count(), 0);
    }
}

#[test]
fn a_shrunk_level_empties_its_queues() {
    let mut world = SimulatedLevel::new(queued(2, 8, 2, 9));
    (0..12).for_each(|flow| world.happen(Event::Arrive { flow, initial: 1, last: 0 }));
    assert_eq!((world.running.len(), world.waiting.len()), (2, 10));
    world.happen(Event::Reshape(1, None));
    world.happen(Event::Arrive { flow: 1, initial: 1, last: 0 });
    assert_eq!(world.refused, 1);
    for _ in 0..12 {
        world.happen(Event::End(0));
    }
    assert_eq!((world.running.len(), world.waiting.len(), world.ended), (0, 0, 12));
}

#[test]
fn an_exempt_level_takes_all() {
    let mut world = SimulatedLevel::new(Shape { seats: None, queuing: None });
    (0..1000).for_each(|flow| world.happen(Event::Arrive { flow, initial: 1, last: 2 }));
    assert_eq!((world.running.len(), world.level.unqueued().count()), (1000, 1000));
    (0..1000).for_each(|_| world.happen(Event::End(0)));
    assert_eq!((world.level.is_idle(), world.level.seats_taken()), (true, 2000));
    (0..1000).for_each(|_| world.happen(Event::Release(0)));
    assert_eq!(world.level.seats_taken(), 0);
}

#[test]
fn a_flow_fills_its_hand_and_no_more() {
    let mut world = SimulatedLevel::new(queued(1, 8, 3, 2));
    (0..10).for_each(|_| world.happen(Event::Arrive { flow: 7, initial: 1, last: 0 }));
    assert_eq!((world.running.len(), world.waiting.len(), world.refused), (1, 3 * 2, 3));
    let queues: std::collections::BTreeSet<_> = world.waiting.iter().map(|(ticket, _)| ticket.queue).collect();
    assert_eq!(queues.len(), 3);
}

#[test]
fn a_long_request_earns_no_credit_while_it_runs() {
    let mut world = SimulatedLevel::new(queued(2, 64, 1, 100));
    let (long, other) = (1, 2);
    let arrive = |flow| Event::Arrive { flow, initial: 1, last: 0 };
    world.happen(arrive(long));
    for _ in 0..100 {
        world.happen(arrive(other));
        world.happen(Event::Pass(10 * MS));
        world.happen(Event::End(1));
    }
    // Now both flows demand more seats than exist, and get the remaining seat alternately.
    (0..20).for_each(|_| world.happen(arrive(long)));
    (0..20).for_each(|_| world.happen(arrive(other)));
    let mut turns = 0;
    for _ in 0..20 {
        turns += usize::from(world.running[1].0.queue == Some(other as u32));
        world.happen(Event::Pass(10 * MS));
        world.happen(Event::End(1));
    }
    assert!((8..=12).contains(&turns), "{turns} of 20");
}
