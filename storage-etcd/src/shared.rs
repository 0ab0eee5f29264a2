//! What the parts of a log on etcd share.

use crate::claims::{Allocations, Share};
use crate::client::{self, Etcd, Header, Transactions};
use crate::leases::Leases;
use crate::local::Local;
use crate::places::{Found, Places};
use crate::sent::PendingWrites;
use crate::strays::{Stray, Strays};
use crate::unread::Unread;
use bytes::Bytes;
use holdfast_core::etcd::{Author, Media, read_event, write_event};
use holdfast_core::event::{Actor, Offset, Operation, Record};
use holdfast_core::kinds::networking::AddressOwner;
use holdfast_core::kinds::{Kind, registry};
use holdfast_encryption::{Live, Locked, SealedLog};
use holdfast_engine::log::{Flaw, Unreadable, Wake};
use holdfast_engine::{Fault, Log};
use jiff::Timestamp;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// How objects are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Storing {
    pub media: Media,
    /// Objects are stored in the versions that servers of this minor release use.
    pub release: u32,
    /// How long Events are kept after their last change; `None`: for ever.
    pub news_ttl: Option<Duration>,
    /// How long one lease is used for further Events.
    pub lease_reuse: Duration,
}

pub struct Shared {
    pub etcd: Arc<dyn Etcd>,
    /// The log on the server's own disk. Its values are as they are on the disk.
    pub local: Arc<dyn Local>,
    /// The same with its values in plain.
    pub log: SealedLog<dyn Local>,
    pub keys: Arc<Live>,
    pub unread: Unread,
    pub strays: Arc<Strays>,
    pub places: Places,
    pub storing: Storing,
    pub transactions: Transactions,
    pub sent: PendingWrites,
    /// `None` in a store where no API server gives out addresses and ports.
    pub claims: Option<Arc<Allocations>>,
    unsure: Mutex<Vec<Unsure>>,
    /// The server's name among the servers.
    pub server: String,
    /// The id of etcd's cluster.
    pub cluster: u64,
    /// The revision of the last write of the fence.
    pub fence: AtomicU64,
    /// The revision of the last write of the claims key.
    pub claimed: AtomicU64,
    /// Whether etcd's progress notifications can be trusted.
    pub tells_progress: bool,
    leases: Mutex<Leases>,
    began: Instant,
    progress: Mutex<Progress>,
    moved: Condvar,
    wake: Mutex<Option<Wake>>,
    /// Set for good once etcd was certainly restored from a backup under this server, and what says so.
    restored: OnceLock<String>,
    pub closing: AtomicBool,
}

/// What was taken for a Service of which nobody said whether it was written.
pub struct Unsure {
    pub key: Bytes,
    pub value: Bytes,
    pub holder: AddressOwner,
    pub got: Share,
}

#[derive(Default)]
struct Progress {
    /// The local log has all events up to this revision.
    through: u64,
    /// The revisions that callers wait for.
    wanted: Vec<u64>,
    /// Why following has stopped, if it has.
    trouble: Option<String>,
}

impl Shared {
    pub fn new(
        etcd: Arc<dyn Etcd>,
        local: Arc<dyn Local>,
        keys: Arc<Live>,
        places: Places,
        (storing, transactions, claims): (Storing, Transactions, Option<Arc<Allocations>>),
        (server, cluster): (String, u64),
        tells_progress: bool,
    ) -> Shared {
        Shared {
            tells_progress,
            leases: Mutex::new(Leases::new(storing.lease_reuse)),
            began: Instant::now(),
            etcd,
            log: SealedLog::new(local.clone(), keys.clone()),
            local,
            keys,
            unread: Unread::default(),
            strays: Arc::default(),
            places,
            storing,
            transactions,
            sent: PendingWrites::default(),
            claims,
            unsure: Mutex::default(),
            server,
            cluster,
            fence: AtomicU64::new(0),
            claimed: AtomicU64::new(0),
            progress: Mutex::default(),
            moved: Condvar::new(),
            wake: Mutex::default(),
            restored: OnceLock::new(),
            closing: AtomicBool::new(false),
        }
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn unsure(&self) -> MutexGuard<'_, Vec<Unsure>> {
        self.unsure.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn through(&self) -> u64 {
        self.progress().through
    }

    /// Whether a caller waits for events beyond the last one.
    pub fn is_wanted(&self) -> bool {
        let progress = self.progress();
        progress.wanted.iter().any(|wanted| *wanted > progress.through)
    }

    /// Reports that the local log has all events up to a revision.
    pub fn come_to(&self, revision: u64) {
        let mut progress = self.progress();
        progress.through = progress.through.max(revision);
        progress.trouble = None;
        let is_wanted = progress.wanted.iter().any(|wanted| *wanted <= progress.through);
        drop(progress);
        if is_wanted {
            self.moved.notify_all();
        }
    }

    pub fn in_trouble(&self, why: String) {
        self.progress().trouble = Some(why);
    }

    pub fn wake_by(&self, wake: Wake) {
        *self.wake.lock().unwrap_or_else(PoisonError::into_inner) = Some(wake);
    }

    /// Tells the reader of the tail that there are new events.
    pub fn wake(&self) {
        let wake = self.wake.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(wake) = wake {
            wake();
        }
    }

    /// Waits until the follower has brought the local log up to a revision.
    pub fn wait_through(&self, revision: u64, patience: Duration) -> Result<(), Fault> {
        let deadline = Instant::now() + patience;
        let mut progress = self.progress();
        if progress.through >= revision {
            return Ok(());
        }
        progress.wanted.push(revision);
        let outcome = loop {
            if progress.through >= revision {
                break Ok(());
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || self.closing.load(Ordering::Relaxed) {
                let why = progress.trouble.clone().unwrap_or_else(|| "its events do not come".into());
                break Err(Fault::Unreachable { why });
            }
            progress = self.moved.wait_timeout(progress, left).unwrap_or_else(PoisonError::into_inner).0;
        };
        if let Some(at) = progress.wanted.iter().position(|wanted| *wanted == revision) {
            progress.wanted.swap_remove(at);
        }
        outcome
    }

    /// Refuses answers of another cluster than the one whose events are in the local log.
    pub fn check(&self, header: &Header) -> Result<(), Fault> {
        self.check_cluster(header.cluster)
    }

    pub fn check_cluster(&self, found: u64) -> Result<(), Fault> {
        if found == self.cluster {
            return Ok(());
        }
        Err(Fault::Unreachable { why: wrong_cluster(found, self.cluster) })
    }

    /// From now on nothing is written, and no event is followed, until this server is started again: etcd is not the one
    /// any more whose events the local log has, even when its revision has grown again.
    pub fn end_epoch(&self, why: String) {
        if self.restored.set(why.clone()).is_ok() {
            tracing::error!("{why}");
        }
    }

    pub fn check_epoch(&self) -> Result<(), Fault> {
        match self.restored.get() {
            Some(why) => Err(Fault::Unreachable { why: why.clone() }),
            None => Ok(()),
        }
    }

    /// The value in etcd for a record's object.
    pub fn value(&self, record: &Record) -> Result<Bytes, Fault> {
        let kind = registry().by_storage(&record.resource).map(|id| registry().get(id));
        let key = self.places.keys.at(&record.resource, &record.key);
        let written = write_event(kind, &key, &record.object, self.storing.media, self.storing.release);
        let plain = written.map_err(|fault| Fault::Unreadable { what: fault.to_string() })?;
        let sealed = self.keys.keyring().seal_value(&record.resource, &key, plain);
        sealed.map(Bytes::from).map_err(|why| why.fault(record.offset(), key))
    }

    /// Appends to the local log. If a plug-in keeps the key for the disk and has given none yet, it is waited for.
    pub fn append(&self, records: &[Record]) -> Result<(), Fault> {
        let keyring = self.keys.keyring();
        for record in records {
            keyring.await_key(&record.resource)?;
        }
        self.log.append(records).map(drop)
    }

    /// The lease of a record's object; zero if it does not expire.
    pub fn lease(&self, record: &Record) -> Result<u64, Fault> {
        let kind = registry().by_storage(&record.resource).map(|id| registry().get(id));
        let is_news = !record.is_delete() && kind.is_some_and(|kind| kind.expires);
        let Some(ttl) = self.storing.news_ttl.filter(|_| is_news) else { return Ok(0) };
        self.leases().lease(self.etcd.as_ref(), ttl, self.began.elapsed()).map_err(fault)
    }

    /// Forgets leases that etcd does not know any more.
    pub fn forget_leases(&self, operations: &[client::Operation]) {
        for operation in operations {
            if let client::Operation::Put { lease, .. } = operation {
                self.leases().forget(*lease);
            }
        }
    }

    fn leases(&self) -> MutexGuard<'_, Leases> {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The record of a put; `None` for keys that the log does not keep. A value that cannot be read is noted.
    pub fn put(&self, now: &client::KeyValue, before: u64, who: Option<&Record>, seen: Seen) -> Option<Record> {
        let Some(placed) = self.placed(&now.key) else {
            self.note_stray(&now.key);
            return None;
        };
        match self.read(&placed, now) {
            Ok(_) if placed.is_stray => {
                self.unread.forget(&placed.resource, &placed.key);
                self.strays.note(self.places.keys.root(), &now.key, Stray::Depth);
                None
            }
            Ok((object, author)) => {
                self.unread.forget(&placed.resource, &placed.key);
                let (actor, time_ms) = match who {
                    Some(who) => (who.actor.clone(), who.time_ms),
                    None => {
                        let told = author.time.parse::<Timestamp>().ok().map(|time| time.as_millisecond());
                        let time_ms = match seen {
                            Seen::Now(now_ms) => now_ms,
                            Seen::Later(now_ms) => told.unwrap_or(now_ms).min(now_ms),
                        };
                        (Actor { manager: author.manager, ..Actor::default() }, time_ms)
                    }
                };
                Some(Record {
                    offset: now.mod_revision,
                    time_ms,
                    resource: placed.resource,
                    key: placed.key,
                    replaces: before,
                    operation: Operation::Put as i32,
                    actor,
                    object,
                })
            }
            Err((flaw, may_pass)) => {
                self.unread.note(
                    Unreadable {
                        resource: placed.resource,
                        key: placed.key,
                        place: String::from_utf8_lossy(&now.key).into_owned(),
                        version: Offset(now.mod_revision),
                        flaw,
                    },
                    may_pass,
                );
                None
            }
        }
    }

    /// The object in a value, and its last author; or why there is none, and whether that may pass.
    pub fn read(&self, placed: &Placed, now: &client::KeyValue) -> Result<(Bytes, Author), (Flaw, bool)> {
        let key = String::from_utf8_lossy(&now.key);
        let plain = self.keys.keyring().open_value(&placed.resource, &key, &now.value).map_err(|why| locked(&why))?;
        let read = read_event(placed.kind, &key, &plain, Offset(now.mod_revision));
        read.map_err(|fault| (Flaw::Malformed(fault.problem), false))
    }

    /// Where the key of an object is, or a key beside those of objects of a kind.
    pub fn placed(&self, key: &[u8]) -> Option<Placed> {
        match self.places.find(registry(), key) {
            Ok(Found::Object { kind, resource, key }) => {
                Some(Placed { kind, resource: resource.to_owned(), key: key.to_owned(), is_stray: false })
            }
            Ok(Found::Who | Found::Other | Found::Stray(_)) => None,
            Err(_) => {
                let (kind, key) = self.places.keys.under(registry(), key)?;
                let kind = Some(registry().get(kind)).filter(|kind| self.places.kinds.have(&kind.storage))?;
                Some(Placed { kind: Some(kind), resource: kind.storage.to_string(), key, is_stray: true })
            }
        }
    }

    /// Tells of a key that has no place, if it should have one.
    pub fn note_stray(&self, key: &[u8]) {
        if let Ok(Found::Stray(stray)) = self.places.find(registry(), key) {
            self.strays.note(self.places.keys.root(), key, stray);
        }
    }

    /// Notes that the newest value of an object cannot be read from the local log.
    pub fn note_locked(&self, record: &Record, why: &Locked) {
        let (flaw, may_pass) = locked(why);
        let place = self.places.keys.at(&record.resource, &record.key);
        let (resource, key) = (record.resource.clone(), record.key.clone());
        self.unread.note(Unreadable { resource, key, place, version: record.offset(), flaw }, may_pass);
    }
}

/// Which object a key belongs to.
pub struct Placed {
    /// `None` for custom kinds.
    pub kind: Option<&'static Kind>,
    pub resource: String,
    pub key: String,
    /// It is too deep, or not deep enough, for an object of its kind.
    pub is_stray: bool,
}

/// A value that cannot be decrypted, and whether that may pass: a plug-in that has the key may answer later.
fn locked(why: &Locked) -> (Flaw, bool) {
    (Flaw::Locked(why.to_string()), matches!(why, Locked::Unreachable(_)))
}

pub fn wrong_cluster(found: u64, known: u64) -> String {
    format!(
        "the etcd cluster has the id {found:x}, and the events in the data folder are of the cluster {known:x}: connect \
         to that one, or accept it if it was restored from a backup"
    )
}

pub fn went_back(found: u64, known: u64) -> String {
    format!(
        "etcd is at revision {found}, and has been at {known}: it was restored from a backup. Start this server again, \
         with --etcd-accept-restored if that is meant"
    )
}

/// The time of an event, in milliseconds since 1970.
#[derive(Debug, Clone, Copy)]
pub enum Seen {
    /// The event was received when it happened.
    Now(i64),
    /// The event was received later; the object says when it was changed.
    Later(i64),
}

pub fn now_ms() -> i64 {
    Timestamp::now().as_millisecond()
}

/// Converts a fault of etcd to one of the log.
pub fn fault(fault: client::Fault) -> Fault {
    match fault {
        client::Fault::Unreachable(why) => Fault::Unreachable { why: format!("etcd: {why}") },
        client::Fault::Unknown(why) => Fault::Unknown { why },
        client::Fault::NoSpace(_) => Fault::Full { operation: FULL },
        other => Fault::Unreadable { what: other.to_string() },
    }
}

pub const FULL: &str = "etcd: mvcc: database space exceeded: compact etcd, defragment each member, then run `etcdctl \
                        alarm disarm`";
