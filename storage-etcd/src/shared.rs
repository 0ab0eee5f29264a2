//! State that the parts of a log on etcd share.

use crate::claims::{Allocations, Share};
use crate::client::{self, Etcd, Header, Transactions};
use crate::key_space::{KeyMeaning, KeySpace};
use crate::leases::Leases;
use crate::local::Local;
use crate::pending_writes::PendingWrites;
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
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// How objects are stored in etcd.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Storing {
    pub media: Media,
    /// The minor release that determines the API versions of stored objects.
    pub release: u32,
    /// How long Events are kept after their last change; `None` means for ever.
    pub news_ttl: Option<Duration>,
    /// How long one lease is used for new Events, before another lease is granted.
    pub lease_reuse: Duration,
}

pub struct Shared {
    pub etcd: Arc<dyn Etcd>,
    /// The log on the server's own disk. Its values may be encrypted.
    pub local: Arc<dyn Local>,
    /// The log on the server's own disk, with decrypted values.
    pub log: SealedLog<dyn Local>,
    pub keys: Arc<Live>,
    pub unread: Unread,
    pub strays: Arc<Strays>,
    pub places: KeySpace,
    pub storing: Storing,
    pub transactions: Transactions,
    pub sent: PendingWrites,
    /// Reserves addresses and node ports; `None` if the servers reserve addresses and node ports only by the claims
    /// key.
    pub claims: Option<Arc<Allocations>>,
    unsure: Mutex<Vec<Unsure>>,
    /// The name that distinguishes this server from the other servers.
    pub server: String,
    /// The id of the etcd cluster whose events the local log has.
    pub cluster: u64,
    /// The revision of the last write of this server's fence.
    pub fence: AtomicU64,
    /// The revision of the last write of the claims key.
    pub claimed: AtomicU64,
    /// Whether etcd's progress notifications can be trusted.
    pub tells_progress: bool,
    leases: Mutex<Leases>,
    began: Instant,
    progress: Mutex<Progress>,
    /// A revision, and the last offset of the local log when it had all events up to this revision.
    last: Mutex<(u64, Offset)>,
    wake: Mutex<Option<Wake>>,
    /// The sign that proved that etcd was restored from a backup while this server ran. It is never reset.
    restored: OnceLock<String>,
    pub closing: AtomicBool,
}

fn not_reached(trouble: Option<String>) -> Fault {
    Fault::Unreachable { why: trouble.unwrap_or_else(|| "its events do not come".into()) }
}

/// The addresses and ports reserved for a Service whose write has an unknown outcome.
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
    /// The revisions beyond `through` that callers wait for.
    wanted: Vec<WantedRevision>,
    /// The reason why following etcd has stopped; `None` while the server follows etcd.
    trouble: Option<String>,
}

/// A caller that waits until the local log has all events up to a revision.
struct WantedRevision {
    revision: u64,
    deadline: Instant,
    done: Reached,
}

/// A function that is called when the local log has the events, or with a fault if the events do not arrive in time.
/// The function must not block.
pub type Reached = Box<dyn FnOnce(Result<(), Fault>) + Send>;

impl Shared {
    pub fn new(
        etcd: Arc<dyn Etcd>,
        local: Arc<dyn Local>,
        keys: Arc<Live>,
        places: KeySpace,
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
            last: Mutex::new((u64::MAX, Offset::ZERO)),
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

    /// The last offset of the local log. It is read only if there may be events since the last call.
    pub fn last(&self) -> Result<Offset, Fault> {
        let through = self.through();
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.0 != through {
            *last = (through, self.local.last()?);
        }
        Ok(last.1)
    }

    /// Whether a caller waits for events that the local log does not have yet.
    pub fn is_wanted(&self) -> bool {
        !self.progress().wanted.is_empty()
    }

    /// Records that the local log has all events up to a revision, and answers the callers that wait for this revision.
    pub fn reach(&self, revision: u64) {
        let mut progress = self.progress();
        progress.through = progress.through.max(revision);
        progress.trouble = None;
        let through = progress.through;
        let reached: Vec<WantedRevision> =
            progress.wanted.extract_if(.., |wanted| wanted.revision <= through).collect();
        drop(progress);
        reached.into_iter().for_each(|wanted| (wanted.done)(Ok(())));
    }

    /// Answers the callers whose time limit is reached, or all callers if the log is being closed. The follower calls
    /// this often.
    pub fn end_waiting(&self) {
        let (now, is_closing) = (Instant::now(), self.closing.load(Ordering::Relaxed));
        let mut progress = self.progress();
        let late: Vec<WantedRevision> =
            progress.wanted.extract_if(.., |wanted| is_closing || wanted.deadline <= now).collect();
        let why = progress.trouble.clone();
        drop(progress);
        for wanted in late {
            (wanted.done)(Err(not_reached(why.clone())));
        }
    }

    pub fn report_failure(&self, why: String) {
        self.progress().trouble = Some(why);
    }

    pub fn wake_by(&self, wake: Wake) {
        *self.wake.lock().unwrap_or_else(PoisonError::into_inner) = Some(wake);
    }

    /// Wakes the writer, which reads new events from the log.
    pub fn wake(&self) {
        let wake = self.wake.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(wake) = wake {
            wake();
        }
    }

    /// Calls `done` once the follower has copied all events up to a revision, immediately if the follower already has
    /// copied them.
    pub fn when_through(&self, revision: u64, patience: Duration, done: Reached) {
        let mut progress = self.progress();
        if progress.through < revision && !self.closing.load(Ordering::Relaxed) {
            progress.wanted.push(WantedRevision { revision, deadline: Instant::now() + patience, done });
            return;
        }
        let outcome = if progress.through < revision { Err(not_reached(progress.trouble.clone())) } else { Ok(()) };
        drop(progress);
        done(outcome);
    }

    /// Waits until the follower has copied all events up to a revision.
    pub fn wait_through(&self, revision: u64, patience: Duration) -> Result<(), Fault> {
        if self.through() >= revision {
            return Ok(());
        }
        let (sender, reached) = std::sync::mpsc::sync_channel(1);
        // The receiver no longer exists if its own time limit was reached first.
        self.when_through(revision, patience, Box::new(move |outcome| _ = sender.send(outcome)));
        let late = |_| Err(not_reached(self.progress().trouble.clone()));
        reached.recv_timeout(patience).unwrap_or_else(late)
    }

    /// Refuses answers of another cluster than the cluster whose events the local log has.
    pub fn check(&self, header: &Header) -> Result<(), Fault> {
        self.check_cluster(header.cluster)
    }

    pub fn check_cluster(&self, found: u64) -> Result<(), Fault> {
        if found == self.cluster {
            return Ok(());
        }
        Err(Fault::Unreachable { why: wrong_cluster(found, self.cluster) })
    }

    /// Stops all writes of this server, and the copying of events, until the server is restarted. Called when etcd was
    /// replaced: it is no longer the etcd whose events the local log has, even if its revision grows beyond the
    /// revision of the log again.
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

    /// The value that etcd stores for a record's object.
    pub fn value(&self, record: &Record) -> Result<Bytes, Fault> {
        let kind = registry().by_storage(&record.resource).map(|id| registry().get(id));
        let key = self.places.keys.at(&record.resource, &record.key);
        let written = write_event(kind, &key, &record.object, self.storing.media, self.storing.release);
        let plain = written.map_err(|fault| Fault::Unreadable { what: fault.to_string() })?;
        let sealed = self.keys.keyring().seal_value(&record.resource, &key, plain);
        sealed.map(Bytes::from).map_err(|why| why.fault(record.offset(), key))
    }

    /// Appends to the local log. If a KMS plug-in has not provided the encryption key yet, this function waits for the
    /// key.
    pub fn append(&self, records: &[Record]) -> Result<(), Fault> {
        let keyring = self.keys.keyring();
        for record in records {
            keyring.await_key(&record.resource)?;
        }
        self.log.append(records).map(drop)
    }

    /// The lease of a record's object; zero if the object does not expire.
    pub fn lease(&self, record: &Record) -> Result<u64, Fault> {
        let kind = registry().by_storage(&record.resource).map(|id| registry().get(id));
        let is_news = !record.is_delete() && kind.is_some_and(|kind| kind.deletion.expires);
        let Some(ttl) = self.storing.news_ttl.filter(|_| is_news) else { return Ok(0) };
        self.leases().lease(self.etcd.as_ref(), ttl, self.began.elapsed()).map_err(fault)
    }

    /// Stops using the leases of these puts, because etcd no longer has them.
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

    /// The record of a put; `None` for keys that the log ignores. A value that cannot be read is recorded as
    /// unreadable.
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

    /// The object in a value, and its last author. The error contains the reason, and whether a retry may succeed.
    pub fn read(&self, placed: &Placed, now: &client::KeyValue) -> Result<(Bytes, Author), (Flaw, bool)> {
        let key = String::from_utf8_lossy(&now.key);
        let plain = self.keys.keyring().open_value(&placed.resource, &key, &now.value).map_err(|why| locked(&why))?;
        let read = read_event(placed.kind, &key, &plain, Offset(now.mod_revision));
        read.map_err(|fault| (Flaw::Malformed(fault.problem), false))
    }

    /// The object to which a key belongs, or a stray key below a kind's prefix.
    pub fn placed(&self, key: &[u8]) -> Option<Placed> {
        match self.places.find(registry(), key) {
            Ok(KeyMeaning::Object { kind, resource, key }) => {
                Some(Placed { kind, resource: resource.to_owned(), key: key.to_owned(), is_stray: false })
            }
            Ok(KeyMeaning::Who | KeyMeaning::Other | KeyMeaning::Stray(_)) => None,
            Err(_) => {
                let (kind, key) = self.places.keys.under(registry(), key)?;
                let kind = Some(registry().get(kind)).filter(|kind| self.places.kinds.have(&kind.storage.path))?;
                Some(Placed { kind: Some(kind), resource: kind.storage.path.to_string(), key, is_stray: true })
            }
        }
    }

    /// Counts a key if the log ignores it although it is below etcd's prefix.
    pub fn note_stray(&self, key: &[u8]) {
        if let Ok(KeyMeaning::Stray(stray)) = self.places.find(registry(), key) {
            self.strays.note(self.places.keys.root(), key, stray);
        }
    }

    /// Records that the newest value of an object in the local log cannot be decrypted.
    pub fn note_locked(&self, record: &Record, why: &Locked) {
        let (flaw, may_pass) = locked(why);
        let place = self.places.keys.at(&record.resource, &record.key);
        let (resource, key) = (record.resource.clone(), record.key.clone());
        self.unread.note(Unreadable { resource, key, place, version: record.offset(), flaw }, may_pass);
    }
}

/// The object to which a key belongs.
pub struct Placed {
    /// The object's kind; `None` for custom kinds.
    pub kind: Option<&'static Kind>,
    pub resource: String,
    pub key: String,
    /// Whether the key has too many or too few parts for an object of its kind.
    pub is_stray: bool,
}

/// The reason why a value cannot be decrypted, and whether a retry may succeed because a KMS plug-in may answer later.
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

/// The time of an event, in milliseconds since 1970, and what it is known from.
#[derive(Debug, Clone, Copy)]
pub enum Seen {
    /// The event was received at the time when it happened.
    Now(i64),
    /// The event was received later; the object contains the time of its change.
    Later(i64),
}

pub fn now_ms() -> i64 {
    Timestamp::now().as_millisecond()
}

/// Converts a fault of etcd to a fault of the log.
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
