//! Counts connections, and queues handshakes. Each address has a queue, and addresses take turns.

use super::GiveWay;
use crate::bounds::Bounds;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::task::Waker;

#[derive(Default)]
pub struct Count {
    /// The number of all open connections.
    pub connections: usize,
    /// The number of connections whose users are identified.
    pub known: usize,
    users: HashMap<Arc<str>, Connections>,
    /// The users by their number of connections. Privileged users are missing, because their connections are never
    /// closed to make room for other connections.
    users_by_size: BTreeSet<(usize, Arc<str>)>,
    addresses: HashMap<IpAddr, AddressCount>,
    /// The addresses, sorted by their number of anonymous connections.
    sizes: BTreeSet<(usize, IpAddr)>,
    /// A counter that numbers the connections and the entries in the rotation.
    next: u64,
    pub shaking: usize,
    pub waiting: usize,
    /// Addresses with connections that wait for a turn, the longest waiting first.
    rotation: BTreeMap<u64, IpAddr>,
    pub gave_way: u64,
    pub refused_user: u64,
    pub refused_all: u64,
}

/// The connections of one user by number, each with a function that ends it.
#[derive(Default)]
struct Connections {
    all: BTreeMap<u64, Option<GiveWay>>,
    is_privileged: bool,
}

/// The anonymous connections from one address.
#[derive(Default)]
struct AddressCount {
    /// The connections by number, the oldest first.
    strangers: BTreeMap<u64, Stranger>,
    shaking: usize,
    /// The connections that wait for a turn, by number.
    line: BTreeSet<u64>,
    /// The number of the address in the rotation; `None` if the address is not in the rotation.
    entered: Option<u64>,
}

#[derive(Default)]
struct Stranger {
    stage: ConnectionStage,
    give_way: Option<GiveWay>,
}

#[derive(Default)]
enum ConnectionStage {
    /// The connection has sent nothing yet, or its handshake is complete.
    #[default]
    Silent,
    Waiting(Waker),
    Shaking,
}

impl Count {
    pub fn strangers_of(&self, address: IpAddr) -> usize {
        self.addresses.get(&address).map_or(0, |address| address.strangers.len())
    }

    pub fn of_user(&self, user: &str) -> usize {
        self.users.get(user).map_or(0, |connections| connections.all.len())
    }

    /// The user with the most connections, and the number of these connections.
    pub fn largest_user(&self) -> Option<(usize, Arc<str>)> {
        self.users_by_size.last().cloned()
    }

    /// Removes a user's newest connection. Returns the function that ends the connection.
    pub fn take_newest(&mut self, user: &Arc<str>) -> Option<GiveWay> {
        let newest = *self.users.get(user)?.all.last_key_value()?.0;
        let give_way = self.remove_known(user, newest)?;
        self.gave_way += 1;
        give_way
    }

    /// The address with the most anonymous connections.
    pub fn largest(&self) -> Option<IpAddr> {
        self.sizes.last().map(|(_, address)| *address)
    }

    pub fn add(&mut self, address: IpAddr) -> u64 {
        let number = self.number();
        self.connections += 1;
        self.change(address, |strangers| strangers.insert(number, Stranger::default()));
        number
    }

    /// Removes the oldest anonymous connection of the address. Returns the function that ends the connection.
    pub fn take_oldest(&mut self, address: IpAddr) -> Option<GiveWay> {
        let oldest = *self.addresses.get(&address)?.strangers.first_key_value()?.0;
        let stranger = self.remove(address, oldest)?;
        self.connections -= 1;
        self.gave_way += 1;
        stranger.give_way
    }

    /// Stores the function that ends a connection. Returns the function if another connection has already replaced the
    /// connection.
    pub fn gives_way_by(
        &mut self,
        address: IpAddr,
        number: u64,
        user: Option<&Arc<str>>,
        give_way: GiveWay,
    ) -> Option<GiveWay> {
        let known = user.and_then(|user| self.users.get_mut(user)?.all.get_mut(&number));
        let place = match known {
            Some(known) => Some(known),
            None => self.stranger(address, number).map(|stranger| &mut stranger.give_way),
        };
        match place {
            Some(place) => {
                *place = Some(give_way);
                None
            }
            None => Some(give_way),
        }
    }

    /// Counts an anonymous connection as a connection of this user. Returns the stored name of the user.
    pub fn identify(&mut self, address: IpAddr, number: u64, user: &str, is_privileged: bool) -> Option<Arc<str>> {
        let stranger = self.remove(address, number)?;
        self.known += 1;
        let user = match self.users.get_key_value(user) {
            Some((user, _)) => user.clone(),
            None => user.into(),
        };
        self.change_user(&user, |connections| {
            connections.is_privileged = is_privileged;
            connections.all.insert(number, stranger.give_way);
        });
        Some(user)
    }

    pub fn leave(&mut self, address: IpAddr, number: u64, user: Option<&Arc<str>>) {
        if let Some(user) = user {
            self.remove_known(user, number);
        } else if self.remove(address, number).is_some() {
            self.connections -= 1;
        }
    }

    /// Removes a connection of a user, and returns the function that ends the connection. Returns `None` if another
    /// connection has already replaced this connection.
    fn remove_known(&mut self, user: &Arc<str>, number: u64) -> Option<Option<GiveWay>> {
        self.users.get(user)?.all.get(&number)?;
        let give_way = self.change_user(user, |connections| connections.all.remove(&number))?;
        self.connections -= 1;
        self.known -= 1;
        if self.of_user(user) == 0 {
            self.users.remove(user);
        }
        Some(give_way)
    }

    fn change_user<T>(&mut self, user: &Arc<str>, change: impl FnOnce(&mut Connections) -> T) -> T {
        let connections = self.users.entry(user.clone()).or_default();
        self.users_by_size.remove(&(connections.all.len(), user.clone()));
        let changed = change(connections);
        if !connections.all.is_empty() && !connections.is_privileged {
            self.users_by_size.insert((connections.all.len(), user.clone()));
        }
        changed
    }

    /// Records that a connection waits for its turn.
    pub fn ask(&mut self, address: IpAddr, number: u64, waker: &Waker) {
        let Some(stranger) = self.stranger(address, number) else { return };
        match &mut stranger.stage {
            ConnectionStage::Silent => stranger.stage = ConnectionStage::Waiting(waker.clone()),
            ConnectionStage::Waiting(known) => return known.clone_from(waker),
            ConnectionStage::Shaking => return,
        }
        self.waiting += 1;
        if let Some(of) = self.addresses.get_mut(&address) {
            of.line.insert(number);
        }
        self.enter(address);
    }

    pub fn has_turn(&mut self, address: IpAddr, number: u64) -> bool {
        self.stranger(address, number).is_some_and(|stranger| matches!(stranger.stage, ConnectionStage::Shaking))
    }

    pub fn end_turn(&mut self, address: IpAddr, number: u64) {
        let Some(stranger) = self.stranger(address, number) else { return };
        if matches!(stranger.stage, ConnectionStage::Shaking) {
            stranger.stage = ConnectionStage::Silent;
            self.shaken(address);
        }
    }

    /// Gives free turns to waiting connections. Returns the wakers of these connections.
    pub fn grant(&mut self, bounds: &Bounds) -> Vec<Waker> {
        let of_one_max = bounds.handshakes_max.div_ceil(2);
        let mut woken = Vec::new();
        while self.shaking < bounds.handshakes_max
            && let Some((_, address)) = self.rotation.pop_first()
        {
            let Some(of) = self.addresses.get_mut(&address) else { continue };
            of.entered = None;
            if of.shaking >= of_one_max {
                // The address enters the rotation again when one of its handshakes has ended.
                continue;
            }
            let stranger = of.line.pop_first().and_then(|number| of.strangers.get_mut(&number));
            if let Some(stranger) = stranger
                && let ConnectionStage::Waiting(waker) =
                    std::mem::replace(&mut stranger.stage, ConnectionStage::Shaking)
            {
                woken.push(waker);
                (of.shaking, self.shaking, self.waiting) = (of.shaking + 1, self.shaking + 1, self.waiting - 1);
            }
            self.enter(address);
        }
        woken
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Adds an address to the rotation if any of its connections wait.
    fn enter(&mut self, address: IpAddr) {
        let number = self.number();
        if let Some(of) = self.addresses.get_mut(&address)
            && !of.line.is_empty()
            && of.entered.is_none()
        {
            of.entered = Some(number);
            self.rotation.insert(number, address);
        }
    }

    fn shaken(&mut self, address: IpAddr) {
        self.shaking -= 1;
        if let Some(of) = self.addresses.get_mut(&address) {
            of.shaking -= 1;
        }
        self.enter(address);
    }

    fn stranger(&mut self, address: IpAddr, number: u64) -> Option<&mut Stranger> {
        self.addresses.get_mut(&address)?.strangers.get_mut(&number)
    }

    fn remove(&mut self, address: IpAddr, number: u64) -> Option<Stranger> {
        self.addresses.get(&address)?.strangers.get(&number)?;
        let stranger = self.change(address, |strangers| strangers.remove(&number))?;
        match stranger.stage {
            ConnectionStage::Waiting(_) => {
                self.waiting -= 1;
                if let Some(of) = self.addresses.get_mut(&address) {
                    of.line.remove(&number);
                }
            }
            ConnectionStage::Shaking => self.shaken(address),
            ConnectionStage::Silent => {}
        }
        if self.addresses.get(&address).is_some_and(|of| of.strangers.is_empty())
            && let Some(of) = self.addresses.remove(&address)
            && let Some(entered) = of.entered
        {
            self.rotation.remove(&entered);
        }
        Some(stranger)
    }

    fn change<T>(&mut self, address: IpAddr, change: impl FnOnce(&mut BTreeMap<u64, Stranger>) -> T) -> T {
        let of = self.addresses.entry(address).or_default();
        self.sizes.remove(&(of.strangers.len(), address));
        let changed = change(&mut of.strangers);
        if !of.strangers.is_empty() {
            self.sizes.insert((of.strangers.len(), address));
        }
        changed
    }

    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        let none = [self.connections, self.known, self.shaking, self.waiting].iter().all(|count| *count == 0);
        none && self.users.is_empty()
            && self.users_by_size.is_empty()
            && self.addresses.is_empty()
            && self.sizes.is_empty()
            && self.rotation.is_empty()
    }
}
