//! Forks in memory. Each fork is a cluster of its own behind this socket, below `/forks/NAME`.
//!
//! A fork shares the state and the history up to its beginning, and keeps later writes to itself. Making a fork needs
//! no file, no port and no handshake. It begins with the users, keys and roles of its first version, which can then
//! change in the fork. Its requests use the places, the body memory and the response memory of its server, so forks do
//! not multiply these limits. A fork ends when it is deleted, when it was idle for long enough, or when the fork from
//! which it was made ends.

use super::Transport;
use holdfast_core::Refusal;
use holdfast_core::authz::User;
use holdfast_core::event::Offset;
use holdfast_core::refusal::{BadRequest, Expired, ForkFault, Plenty};
use holdfast_engine::forked::Room;
use holdfast_engine::{Engine, Fault};
use holdfast_service::{Share, Shares};
use holdfast_value::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// The maximum number of bytes of events that all forks together have in memory.
const BYTES_MAX: u64 = 1 << 30;
/// The maximum length of a chain of forks made of forks. Reads of the past pass through all forks of the chain.
const DEPTH_MAX: usize = 32;
/// How long a fork may be idle by default.
const IDLE_DEFAULT: Duration = Duration::from_secs(5 * 60);
/// The longest time for which a fork may be idle.
const IDLE_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// How often idle forks are searched for and ended.
const GLANCE: Duration = Duration::from_secs(1);
/// How many characters of a name are logged. The whole name is a secret, because a client that has it can address the
/// fork.
const SHOWN: usize = 6;

/// The forks in memory of one server and of all its forks.
pub struct Live {
    places: Shares,
    forks_max: u32,
    room: Room,
    forks: Mutex<BTreeMap<Arc<str>, Arc<Fork>>>,
}

struct Fork {
    transport: Arc<Transport>,
    user: String,
    version: Offset,
    idle: Duration,
    used: Mutex<Instant>,
    /// The tasks of the fork, which end when the fork ends.
    _tasks: JoinSet<()>,
    _place: Share,
}

/// The options with which a fork is requested.
pub struct Wanted {
    pub at: Option<Offset>,
    pub idle_seconds: Option<u32>,
}

impl Live {
    /// An empty set with room for `forks_max` forks, which may be zero.
    pub fn new(forks_max: u32) -> Live {
        Live { places: Shares::new(forks_max.into()), forks_max, room: Room::new(BYTES_MAX), forks: Mutex::default() }
    }

    /// Removes the fork's prefix from the path, and returns the transport of that fork.
    pub fn find(&self, path: &mut String) -> Option<Arc<Transport>> {
        let (name, rest) = crate::route::fork(path)?;
        let fork = self.lock().get(name)?.clone();
        *fork.used.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        *path = if rest.is_empty() { "/".to_owned() } else { rest.to_owned() };
        Some(fork.transport.clone())
    }

    /// Makes a fork of this server, which may be a fork itself.
    pub async fn make(self: &Arc<Self>, of: &Arc<Transport>, user: &User, wanted: Wanted) -> Result<Value, Refusal> {
        if self.forks_max == 0 {
            return Err(Refusal::BadRequest(BadRequest::Fork(ForkFault::NoneInMemory)));
        }
        let depth = of.forks.lineage().len();
        if depth >= DEPTH_MAX {
            return Err(Refusal::BadRequest(BadRequest::Fork(ForkFault::TooDeep { depth_max: DEPTH_MAX })));
        }
        let plenty = || Refusal::TooManyRequests { what: Plenty::Forks, retry_after_seconds: 1 };
        let place = self.places.take(user, 1).ok_or_else(plenty)?;
        let idle = wanted.idle_seconds.map_or(IDLE_DEFAULT, |seconds| Duration::from_secs(seconds.into()));
        let (name, transport) = of.fork(wanted.at, &self.room).await.map_err(unmade)?;
        let version = transport.engine().snapshot().offset;
        let mut tasks = JoinSet::new();
        transport.keep_fork(&mut tasks);
        let fork = Fork {
            transport,
            user: user.name.clone(),
            version,
            idle: idle.clamp(GLANCE, IDLE_MAX),
            used: Mutex::new(Instant::now()),
            _tasks: tasks,
            _place: place,
        };
        let told = fork.told(&name);
        let is_first = {
            let mut forks = self.lock();
            forks.insert(name.clone(), Arc::new(fork));
            forks.len() == 1
        };
        tracing::debug!(%version, fork = &name[..SHOWN], "a fork in memory was made");
        if is_first {
            tokio::spawn(end_idle(Arc::downgrade(self)));
        }
        Ok(told)
    }

    /// The forks that were made of this server, without the forks that were made of its forks.
    pub fn list(&self, of: &Transport) -> Value {
        let forks: Vec<Value> =
            self.lock().iter().filter(|(_, fork)| fork.is_made_of(of)).map(|(name, fork)| fork.told(name)).collect();
        json!({ "forks": forks })
    }

    /// The description of one fork that was made of this server.
    pub fn get(&self, of: &Transport, name: &str) -> Option<Value> {
        self.lock().get(name).filter(|fork| fork.is_made_of(of)).map(|fork| fork.told(name))
    }

    /// Ends one fork that was made of this server. Returns whether it existed.
    pub fn delete(&self, of: &Transport, name: &str) -> bool {
        let found = self.lock().get(name).is_some_and(|fork| fork.is_made_of(of));
        found && self.end(name)
    }

    /// Ends a fork and all forks that were made of this fork. The watches of these forks end, and their paths no longer
    /// exist.
    fn end(&self, name: &str) -> bool {
        let is_gone = |key: &Arc<str>, fork: &Fork| &**key == name || fork.is_below(name);
        let ended: Vec<(Arc<str>, Arc<Fork>)> = self.lock().extract_if(.., |key, fork| is_gone(key, fork)).collect();
        for (name, fork) in &ended {
            fork.transport.stop();
            tracing::debug!(fork = &name[..SHOWN], "a fork in memory has ended");
        }
        !ended.is_empty()
    }

    /// Ends all forks of all servers in the set.
    pub fn end_all(&self) {
        let ended = std::mem::take(&mut *self.lock());
        ended.values().for_each(|fork| fork.transport.stop());
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, Arc<Fork>>> {
        self.forks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Fork {
    fn ancestors(&self) -> &[Arc<str>] {
        self.transport.forks.identity.as_ref().map_or(&[], |identity| &identity.ancestors)
    }

    fn is_made_of(&self, other: &Transport) -> bool {
        self.ancestors().last() == other.forks.identity.as_ref().map(|identity| &identity.name)
    }

    fn is_below(&self, name: &str) -> bool {
        self.ancestors().iter().any(|above| &**above == name)
    }

    /// Whether the fork is idle. A fork with watches is not idle, even without events, because a watch ends when its
    /// client disconnects.
    fn is_idle(&self) -> bool {
        let used = *self.used.lock().unwrap_or_else(PoisonError::into_inner);
        used.elapsed() > self.idle && self.transport.service().watches() == 0
    }

    fn told(&self, name: &str) -> Value {
        json!({
            "name": name,
            "path": format!("{}{name}", crate::route::FORK),
            "version": self.version.0,
            "user": self.user,
            "idleSeconds": self.idle.as_secs(),
        })
    }
}

/// The identity of a server that is a fork.
#[derive(Clone)]
pub(crate) struct ForkIdentity {
    pub name: Arc<str>,
    /// The names of the forks from which the fork was made, the oldest first.
    pub ancestors: Vec<Arc<str>>,
}

impl Transport {
    /// The name and the transport of a fork of this server's cluster, at the newest or at an earlier version. The fork
    /// runs no tasks yet, and its watches end only when it is [stopped](Transport::stop).
    pub async fn fork(&self, at: Option<Offset>, room: &Room) -> Result<(Arc<str>, Arc<Transport>), Fault> {
        let engine = self.engine().fork(at, room).await?;
        let name = name(&engine);
        let fork = self.beside(engine, ForkIdentity { name: name.clone(), ancestors: self.forks.lineage() })?;
        fork.set_ready();
        Ok((name, fork))
    }
}

/// A name that cannot be guessed. A client that knows the name has received it from a user who may read everything.
fn name(engine: &Engine) -> Arc<str> {
    let bytes = engine.token_key().derived("name").0;
    bytes[..16].iter().map(|byte| format!("{byte:02x}")).collect::<String>().into()
}

fn unmade(fault: Fault) -> Refusal {
    match fault {
        Fault::Forgotten { .. } => Refusal::Expired(Expired::Forgotten(fault.to_string())),
        fault => Refusal::fault(fault),
    }
}

/// Ends idle forks at regular intervals, until no fork is left or the server ends. The first fork of an empty set
/// starts this task again.
async fn end_idle(live: std::sync::Weak<Live>) {
    loop {
        tokio::time::sleep(GLANCE).await;
        let Some(live) = live.upgrade() else { return };
        let idle: Vec<Arc<str>> = {
            let forks = live.lock();
            if forks.is_empty() {
                return;
            }
            forks.iter().filter(|(_, fork)| fork.is_idle()).map(|(name, _)| name.clone()).collect()
        };
        for name in idle {
            live.end(&name);
        }
    }
}
