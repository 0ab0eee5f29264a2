use super::*;
use std::sync::atomic::{AtomicUsize, Ordering};

const ONE: &str = "192.0.2.1";
const OTHER: &str = "192.0.2.2";

fn guests() -> Arc<Guests> {
    Guests::new(Bounds {
        connections_max: 6,
        reserve: 2,
        strangers_of_one_max: 4,
        connections_of_user_max: 3,
        handshakes_max: 4,
        ..Bounds::default()
    })
}

fn admit(guests: &Arc<Guests>, address: &str) -> ConnectionSlot {
    try_admit(guests, address).expect("a place")
}

fn try_admit(guests: &Arc<Guests>, address: &str) -> Option<ConnectionSlot> {
    guests.admit(address.parse().unwrap())
}

fn user(name: &str) -> User {
    User::new(name, if name == "root" { &["system:masters"] } else { &[] })
}

fn has_turn(place: &ConnectionSlot) -> bool {
    place.poll_turn(&mut Context::from_waker(Waker::noop())).is_ready()
}

fn shaking_and_waiting(guests: &Guests) -> (usize, usize) {
    let count = guests.lock();
    (count.shaking, count.waiting)
}

/// Counts how many of these connections are replaced by other connections.
fn given_away(places: &[ConnectionSlot]) -> Arc<AtomicUsize> {
    let count = Arc::new(AtomicUsize::new(0));
    for place in places {
        let count = count.clone();
        place.gives_way_by(move || _ = count.fetch_add(1, Ordering::Relaxed));
    }
    count
}

#[test]
fn the_newest_of_nobody_takes_the_place_of_the_oldest() {
    let guests = guests();
    let places: Vec<ConnectionSlot> = (0..4).map(|_| admit(&guests, ONE)).collect();
    let gone = given_away(&places);
    let others = [admit(&guests, OTHER), admit(&guests, OTHER)];
    let others_gone = given_away(&others);
    assert_eq!(gone.load(Ordering::Relaxed), 0);
    // The fifth connection replaces the oldest connection of its own address. When there are as many connections as
    // allowed, a new connection replaces a connection of the address with the most connections.
    let fifth = admit(&guests, ONE);
    assert_eq!(gone.load(Ordering::Relaxed), 1);
    let third = admit(&guests, OTHER);
    assert_eq!((gone.load(Ordering::Relaxed), others_gone.load(Ordering::Relaxed)), (2, 0));
    // A connection that was replaced before `gives_way_by` is ended nevertheless.
    let late: Vec<ConnectionSlot> = (0..4).map(|_| admit(&guests, ONE)).collect();
    let newer: Vec<ConnectionSlot> = (0..4).map(|_| admit(&guests, ONE)).collect();
    assert_eq!(given_away(&late).load(Ordering::Relaxed), 4);
    drop((places, others, fifth, third, late, newer));
    assert!(guests.lock().is_empty());
}

#[test]
fn users_have_as_many_as_one_may_have_and_the_largest_gives_way_to_the_others() {
    let guests = guests();
    let of = |name: &str| {
        let place = admit(&guests, ONE);
        let counted = place.belongs_to(&user(name));
        (place, counted)
    };
    let (jane, bob) = ([of("jane"), of("jane"), of("jane")], of("bob"));
    assert!(jane.iter().chain([&bob]).all(|(_, counted)| counted.is_ok()));
    assert!(jane[0].0.belongs_to(&user("jane")).is_ok(), "it is hers already");
    assert_eq!(of("jane").1, Err(Full::User { most: 3 }));
    let jane = jane.map(|(place, _)| place);
    let gone = given_away(&jane);
    let second = of("bob");
    assert_eq!((second.1, gone.load(Ordering::Relaxed)), (Ok(()), 1));
    assert_eq!(of("bob").1, Err(Full::All { most: 4 }), "both have two");
    let third = of("eve");
    assert_eq!(third.1, Ok(()), "and one of them gives way to who has none");
    let root = [of("root"), of("root")];
    assert!(root.iter().all(|(_, counted)| counted.is_ok()));
    assert!(try_admit(&guests, OTHER).is_none(), "users have them all");
    drop((jane, bob, second, third, root));
    assert!(guests.lock().is_empty());
}

#[test]
fn some_places_are_kept_for_those_of_nobody() {
    let guests = guests();
    let known: Vec<ConnectionSlot> = (0..4).map(|_| admit(&guests, ONE)).collect();
    for (place, name) in known.iter().zip(["a", "b", "c", "d"]) {
        assert_eq!(place.belongs_to(&user(name)), Ok(()));
    }
    let newcomer = admit(&guests, OTHER);
    assert_eq!(newcomer.belongs_to(&user("e")), Err(Full::All { most: 4 }));
    let others: Vec<ConnectionSlot> = (0..3).map(|_| admit(&guests, OTHER)).collect();
    assert_eq!(given_away(&others).load(Ordering::Relaxed), 1, "two are theirs, with the newcomer's");
    assert_eq!(given_away(&known).load(Ordering::Relaxed), 0);
}

#[test]
fn addresses_take_turns_and_each_has_half_of_them() {
    let guests = guests();
    let ones: Vec<ConnectionSlot> = (0..3).map(|_| admit(&guests, ONE)).collect();
    let others: Vec<ConnectionSlot> = (0..3).map(|_| admit(&guests, OTHER)).collect();
    let turns = |places: &[ConnectionSlot]| places.iter().map(has_turn).collect::<Vec<_>>();
    assert_eq!(turns(&ones), [true, true, false]);
    assert_eq!(turns(&others), [true, true, false]);
    ones[1].end_turn();
    assert!(has_turn(&ones[2]), "it has waited longer than the other's next step");
    assert_eq!((turns(&ones), turns(&others)), (vec![true, false, true], vec![true, true, false]));
    // When a connection is closed, whether it waits or has a turn, another connection may have its turn.
    let mut others = others;
    others.remove(0);
    assert_eq!(turns(&others), [true, true]);
    assert_eq!(shaking_and_waiting(&guests), (4, 1));
    let waiting = admit(&guests, ONE);
    assert!(!has_turn(&waiting));
    assert_eq!(shaking_and_waiting(&guests), (4, 2));
    drop(waiting);
    assert_eq!(shaking_and_waiting(&guests), (4, 1));
    drop((ones, others));
    assert!(guests.lock().is_empty());
}

#[test]
fn who_waits_is_woken() {
    struct Count(AtomicUsize);
    impl std::task::Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let guests = guests();
    let places: Vec<ConnectionSlot> = (0..3).map(|_| admit(&guests, ONE)).collect();
    assert!(has_turn(&places[0]) && has_turn(&places[1]));
    let count = Arc::new(Count(AtomicUsize::new(0)));
    let waker = Waker::from(count.clone());
    assert!(places[2].poll_turn(&mut Context::from_waker(&waker)).is_pending());
    assert_eq!(count.0.load(Ordering::Relaxed), 0);
    places[0].end_turn();
    assert_eq!(count.0.load(Ordering::Relaxed), 1);
    assert!(has_turn(&places[2]));
}

#[test]
fn metrics_tell_what_there_is() {
    let guests = guests();
    let place = admit(&guests, ONE);
    let _other = admit(&guests, ONE);
    assert!(has_turn(&place));
    place.belongs_to(&user("jane")).expect("room");
    let metrics = guests.metrics();
    for line in [
        "holdfast_connections{of=\"nobody\"} 1",
        "holdfast_connections{of=\"users\"} 1",
        "holdfast_connections_limit{of=\"all\"} 6",
        "holdfast_handshakes{state=\"running\"} 0",
        "holdfast_connections_refused_total{why=\"gave_way\"} 0",
        "holdfast_handshakes_limit 4",
    ] {
        assert!(metrics.lines().any(|other| other == line), "{line}: {metrics}");
    }
}

#[test]
fn neighbours_in_ipv6_are_one() {
    let of = |address: &str| neighbourhood(address.parse().unwrap());
    assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
    assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
    assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
}
