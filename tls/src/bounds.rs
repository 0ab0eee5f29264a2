//! What those who connect can hold of this server at most, and for how long.
//!
//! The table in docs/SECURITY.md says which test holds which bound.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// Bounds of connections. Kubernetes has an option for the streams alone; the others are far above what a cluster uses.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Of those that are still shaking hands too.
    pub connections_max: usize,
    /// How many of them one address may have: what is left serves the others.
    pub connections_of_one_max: usize,
    /// Handshakes in progress, which cost a signature each.
    pub handshakes_max: usize,
    pub handshakes_of_one_max: usize,
    /// How long a client may take to shake hands.
    pub handshake: Duration,
    /// How long it may take to send the head of a request, or to begin with HTTP/2.
    pub head: Duration,
    /// How many bytes the head of a request may have.
    pub head_bytes_max: u32,
    /// Requests in progress on one HTTP/2 connection.
    pub streams_max: u32,
    /// How long an HTTP/2 connection may be open without a request.
    pub idle: Duration,
    /// How often an HTTP/2 client is asked whether it is there, and how long it has to say so.
    pub ping_period: Duration,
    pub pong: Duration,
    /// How long a client may leave an answer unread.
    pub unread: Duration,
}

/// An HTTP/2 client may have this many requests in progress on one connection.
pub const STREAMS_MAX: u32 = 250;

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds {
            connections_max: 10_000,
            connections_of_one_max: 5_000,
            handshakes_max: 1_024,
            handshakes_of_one_max: 512,
            handshake: Duration::from_secs(10),
            head: Duration::from_secs(32),
            head_bytes_max: 256 << 10,
            streams_max: STREAMS_MAX,
            idle: Duration::from_secs(90),
            ping_period: Duration::from_secs(30),
            pong: Duration::from_secs(15),
            unread: Duration::from_secs(60),
        }
    }
}

/// Who is connected.
pub struct Guests {
    bounds: Bounds,
    counts: Mutex<Counts>,
}

#[derive(Default)]
struct Counts {
    all: Count,
    by_address: HashMap<IpAddr, Count>,
}

#[derive(Default, Clone, Copy)]
struct Count {
    connections: usize,
    handshakes: usize,
}

/// One connection's place. Dropping it leaves.
pub struct Place {
    guests: Arc<Guests>,
    address: IpAddr,
    shaking_hands: bool,
}

impl Guests {
    pub fn new(bounds: Bounds) -> Arc<Guests> {
        Arc::new(Guests { bounds, counts: Mutex::default() })
    }

    /// A place for a connection that is about to shake hands; `None` where there is none left.
    pub fn admit(self: &Arc<Self>, address: IpAddr) -> Option<Place> {
        let address = neighbourhood(address);
        let bounds = &self.bounds;
        let mut counts = self.lock();
        let (all, own) = (counts.all, counts.by_address.get(&address).copied().unwrap_or_default());
        let full = all.connections >= bounds.connections_max
            || all.handshakes >= bounds.handshakes_max
            || own.connections >= bounds.connections_of_one_max
            || own.handshakes >= bounds.handshakes_of_one_max;
        if full {
            return None;
        }
        counts.each(address, |count| {
            count.connections += 1;
            count.handshakes += 1;
        });
        Some(Place { guests: self.clone(), address, shaking_hands: true })
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Counts {
    fn each(&mut self, address: IpAddr, change: impl Fn(&mut Count)) {
        change(&mut self.all);
        change(self.by_address.entry(address).or_default());
    }
}

impl Place {
    /// The handshake is over.
    pub fn shook_hands(&mut self) {
        if std::mem::take(&mut self.shaking_hands) {
            self.guests.lock().each(self.address, |count| count.handshakes -= 1);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.shook_hands();
        let mut counts = self.guests.lock();
        counts.each(self.address, |count| count.connections -= 1);
        if counts.by_address.get(&self.address).is_some_and(|count| count.connections == 0) {
            counts.by_address.remove(&self.address);
        }
    }
}

/// Whoever has one IPv6 address has the 2^64 around it.
fn neighbourhood(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(address) => match address.to_ipv4_mapped() {
            Some(address) => address.into(),
            None => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
        },
        IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "192.0.2.1";
    const OTHER: &str = "192.0.2.2";

    fn guests() -> Arc<Guests> {
        Guests::new(Bounds {
            connections_max: 5,
            connections_of_one_max: 3,
            handshakes_max: 3,
            handshakes_of_one_max: 2,
            ..Bounds::default()
        })
    }

    fn admit(guests: &Arc<Guests>, address: &str) -> Option<Place> {
        guests.admit(address.parse().unwrap())
    }

    #[test]
    fn one_address_leaves_room_for_others() {
        let guests = guests();
        let mut connected = Vec::new();
        for _ in 0..3 {
            let mut place = admit(&guests, ONE).expect("room");
            place.shook_hands();
            connected.push(place);
        }
        assert!(admit(&guests, ONE).is_none());
        connected.push(admit(&guests, OTHER).expect("room"));
        connected.push(admit(&guests, OTHER).expect("room"));
        assert!(admit(&guests, "192.0.2.3").is_none(), "the house is full");
        connected.clear();
        assert!(guests.lock().by_address.is_empty());
        assert!(admit(&guests, ONE).is_some());
    }

    #[test]
    fn handshakes_are_counted_until_they_are_over() {
        let guests = guests();
        let mut first = admit(&guests, ONE).expect("room");
        let _second = admit(&guests, ONE).expect("room");
        assert!(admit(&guests, ONE).is_none());
        let other = admit(&guests, OTHER).expect("room");
        assert!(admit(&guests, OTHER).is_none(), "all handshakes are taken");
        drop(other);
        first.shook_hands();
        assert!(admit(&guests, ONE).is_some());
    }

    #[test]
    fn neighbours_in_ipv6_are_one() {
        let of = |address: &str| neighbourhood(address.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
    }
}
