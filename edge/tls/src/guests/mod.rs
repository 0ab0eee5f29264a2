//! Limits connections: their number from each address and of each user, and the number of handshakes at once.
//!
//! A connection is anonymous until a request on it has identified its user. Anonymous connections are counted by
//! address. If there is no room, the newest connection replaces the oldest, so clients that identify themselves soon
//! stay connected. Identified connections are counted by user. If users together have the maximum number of
//! connections, the user with the most connections loses one to a user with fewer connections.

mod count;
#[cfg(test)]
mod tests;

use crate::bounds::Bounds;
use count::Count;
use holdfast_core::authz::User;
use std::fmt::Write;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::task::{Context, Poll, Waker};

/// The open connections of a server, with the bounds on their number.
pub struct Guests {
    pub bounds: Bounds,
    count: Mutex<Count>,
}

/// One of the connections that are counted. The connection no longer counts when this value is dropped.
pub struct ConnectionSlot {
    guests: Arc<Guests>,
    address: IpAddr,
    number: u64,
    user: OnceLock<Arc<str>>,
}

/// Why a connection cannot be counted as a connection of a user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Full {
    /// The user already has the maximum number of connections.
    User { most: usize },
    /// All connections for users are in use.
    All { most: usize },
}

/// Ends a connection that another connection replaces.
type GiveWay = Box<dyn FnOnce() + Send>;

impl Guests {
    pub fn new(bounds: Bounds) -> Arc<Guests> {
        Arc::new(Guests { bounds, count: Mutex::default() })
    }

    /// Admits a connection that is about to begin its handshake; `None` if the connections of users leave no room.
    pub fn admit(self: &Arc<Self>, address: IpAddr) -> Option<ConnectionSlot> {
        let address = neighbourhood(address);
        let mut count = self.lock();
        let from = if count.strangers_of(address) >= self.bounds.strangers_of_one_max {
            Some(address)
        } else if count.connections >= self.bounds.connections_max {
            // The address with the most anonymous connections loses its oldest connection.
            match count.largest() {
                Some(largest) => Some(largest),
                None => {
                    count.refused_all += 1;
                    return None;
                }
            }
        } else {
            None
        };
        let gives_way = from.and_then(|from| count.take_oldest(from));
        let number = count.add(address);
        let woken = count.grant(&self.bounds);
        drop(count);
        woken.into_iter().for_each(Waker::wake);
        if let Some(give_way) = gives_way {
            give_way();
        }
        Some(ConnectionSlot { guests: self.clone(), address, number, user: OnceLock::new() })
    }

    /// The metrics about connections and handshakes, in Prometheus' text form.
    pub fn metrics(&self) -> String {
        let (count, bounds) = (self.lock(), &self.bounds);
        let mut text = String::new();
        let mut tell = |name: &str, kind: &str, help: &str, rows: &[(&str, u64)]| {
            // Writing to a String cannot fail.
            _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
            for (labels, value) in rows {
                _ = writeln!(text, "{name}{labels} {value}");
            }
        };
        let strangers = count.connections - count.known;
        tell(
            "holdfast_connections",
            "gauge",
            "Open connections: of users, and of nobody yet",
            &[("{of=\"nobody\"}", strangers as u64), ("{of=\"users\"}", count.known as u64)],
        );
        tell(
            "holdfast_connections_limit",
            "gauge",
            "How many connections there may be: in all, kept for those of nobody, of nobody from one address, of one user",
            &[
                ("{of=\"all\"}", bounds.connections_max as u64),
                ("{of=\"reserve\"}", bounds.reserve as u64),
                ("{of=\"address\"}", bounds.strangers_of_one_max as u64),
                ("{of=\"user\"}", bounds.connections_of_user_max as u64),
            ],
        );
        tell(
            "holdfast_connections_refused_total",
            "counter",
            "Connections that found no place, or lost it to another one",
            &[
                ("{why=\"gave_way\"}", count.gave_way),
                ("{why=\"user\"}", count.refused_user),
                ("{why=\"all\"}", count.refused_all),
            ],
        );
        tell(
            "holdfast_handshakes",
            "gauge",
            "TLS handshakes that are worked on, and those that wait for their turn",
            &[("{state=\"running\"}", count.shaking as u64), ("{state=\"waiting\"}", count.waiting as u64)],
        );
        tell(
            "holdfast_handshakes_limit",
            "gauge",
            "How many TLS handshakes may be worked on at once",
            &[("", bounds.handshakes_max as u64)],
        );
        text
    }

    fn lock(&self) -> MutexGuard<'_, Count> {
        self.count.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl ConnectionSlot {
    /// Sets the function that ends this connection if another connection replaces it.
    pub fn gives_way_by(&self, give_way: impl FnOnce() + Send + 'static) {
        let give_way: GiveWay = Box::new(give_way);
        let lost = self.guests.lock().gives_way_by(self.address, self.number, self.user.get(), give_way);
        if let Some(give_way) = lost {
            give_way();
        }
    }

    /// Returns `Ready` once this connection may do one step of its handshake.
    pub fn poll_turn(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut count = self.guests.lock();
        count.ask(self.address, self.number, context.waker());
        let woken = count.grant(&self.guests.bounds);
        let has_turn = count.has_turn(self.address, self.number);
        drop(count);
        woken.into_iter().filter(|waker| !waker.will_wake(context.waker())).for_each(Waker::wake);
        if has_turn { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Passes the turn to the next connection after a step.
    pub fn end_turn(&self) {
        let mut count = self.guests.lock();
        count.end_turn(self.address, self.number);
        let woken = count.grant(&self.guests.bounds);
        drop(count);
        woken.into_iter().for_each(Waker::wake);
    }

    /// Counts the connection as a connection of the user of its first request. Members of `system:masters` are never
    /// refused.
    pub fn belongs_to(&self, user: &User) -> Result<(), Full> {
        if self.user.get().is_some() {
            return Ok(());
        }
        let bounds = &self.guests.bounds;
        let mut count = self.guests.lock();
        if self.user.get().is_some() {
            return Ok(());
        }
        let (name, is_privileged) = (user.name.as_str(), user.is_privileged());
        let known_max = bounds.connections_max.saturating_sub(bounds.reserve);
        if !is_privileged && count.of_user(name) >= bounds.connections_of_user_max {
            count.refused_user += 1;
            return Err(Full::User { most: bounds.connections_of_user_max });
        }
        let mut gives_way = None;
        if !is_privileged && count.known >= known_max {
            let own = count.of_user(name);
            let Some((_, largest)) = count.largest_user().filter(|(size, _)| *size > own + 1) else {
                count.refused_all += 1;
                return Err(Full::All { most: known_max });
            };
            gives_way = count.take_newest(&largest);
        }
        // A connection that another connection has replaced is about to be closed, and does not count any more.
        if let Some(user) = count.identify(self.address, self.number, name, is_privileged) {
            _ = self.user.set(user);
        }
        drop(count);
        if let Some(give_way) = gives_way {
            give_way();
        }
        Ok(())
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut count = self.guests.lock();
        count.leave(self.address, self.number, self.user.get());
        let woken = count.grant(&self.guests.bounds);
        drop(count);
        woken.into_iter().for_each(Waker::wake);
    }
}

/// The network of an address. The owner of one IPv6 address owns the 2^64 addresses around it.
fn neighbourhood(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(address) => match address.to_ipv4_mapped() {
            Some(address) => address.into(),
            None => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
        },
        IpAddr::V4(_) => address,
    }
}
