//! The memory that reads use. It is counted in bytes for each user, and limited.
//!
//! The count includes the states from which pages and watches read, objects and states of the past, events of the past
//! on their way to a watcher, answers that the client has not received yet, and documents about past kinds. While less
//! than half of the memory is used, every request gets the memory that it needs. When more is used, each unprivileged
//! user may use no more than an equal share of the whole memory. If a user within its share needs memory and none is
//! free, charges of the user with the most memory are released: first objects that can be read again, beginning with
//! the oldest, then answers and watches.

use holdfast_core::Refusal;
use holdfast_core::authz::User;
use holdfast_core::refusal::Plenty;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The maximum number of bytes for all users, unless the operator sets another limit.
pub const BYTES_DEFAULT: u64 = 512 << 20;
/// The smallest limit that the operator can set. With less memory, not even a few large objects could be read at the
/// same time.
pub const BYTES_MIN: u64 = 64 << 20;
/// The interval at which a stream checks whether there is room for its next part.
const ROOM_PERIOD: Duration = Duration::from_millis(100);
/// The maximum number of charges that are released for one request.
const GIVE_WAY_MAX: usize = 256;

/// The prefix of service accounts' user names.
const ACCOUNTS: &str = "system:serviceaccount:";

/// The user on whose behalf a read runs. The read uses this user's turns and memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reader {
    /// The name of the user, by which memory is counted; `None` for the server itself.
    name: Name,
    is_privileged: bool,
}

pub(crate) type Name = Option<Arc<str>>;

impl Reader {
    /// The server itself. Like privileged users, it gets memory even if there is no room.
    pub const SERVER: Reader = Reader { name: None, is_privileged: true };

    /// A user. The service accounts of one namespace count as one reader, because an owner of the namespace can create
    /// any number of service accounts.
    pub fn of(user: &User) -> Reader {
        let account = user.name.strip_prefix(ACCOUNTS).and_then(|account| account.split_once(':'));
        let length = account.map_or(user.name.len(), |(namespace, _)| ACCOUNTS.len() + namespace.len());
        Reader { name: Some(user.name[..length].into()), is_privileged: user.is_privileged() }
    }

    pub(crate) fn name(&self) -> &Name {
        &self.name
    }
}

/// The memory of all readers. Clones share it.
#[derive(Clone)]
pub struct ReadMemory {
    inner: Arc<Inner>,
}

struct Inner {
    bytes_max: AtomicU64,
    book: Mutex<Book>,
}

#[derive(Default)]
struct Book {
    bytes: u64,
    /// The readers that use memory now.
    holders: HashMap<Name, Holder>,
    next_place: u64,
    refused: u64,
    gave_way: u64,
}

#[derive(Default)]
struct Holder {
    bytes: u64,
    /// Functions that release the reader's charges, in the order in which they are called. Charges with the smaller
    /// loss are released first; among charges with the same loss, the oldest charge is released first.
    yielding: BTreeMap<(Loss, u64), GiveWay>,
}

/// What the reader loses when a charge is released.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Loss {
    /// The released objects must be read again.
    Time,
    /// A watch or an answer ends. Such charges are released only for other users, never for another request of the same
    /// user.
    Reply,
}

/// Releases a charge. It is called and dropped while no lock is held.
type GiveWay = Box<dyn FnOnce() + Send>;

/// How much memory reads use, for metrics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Told {
    pub bytes_max: u64,
    pub bytes: u64,
    pub holders: u64,
    /// The number of bytes that the user with the most memory uses.
    pub largest: u64,
    /// The number of times that a reader got no memory, because there was no room.
    pub refused: u64,
    /// The number of charges that were released for other reads.
    pub gave_way: u64,
}

/// The answer to a request for bytes of memory.
enum Room {
    There,
    /// There may be room after the caller has called this function, which releases a charge.
    After(GiveWay),
    Nowhere {
        own: u64,
    },
}

impl Default for ReadMemory {
    fn default() -> ReadMemory {
        ReadMemory::new(BYTES_DEFAULT)
    }
}

impl ReadMemory {
    pub fn new(bytes_max: u64) -> ReadMemory {
        ReadMemory { inner: Arc::new(Inner { bytes_max: bytes_max.into(), book: Mutex::default() }) }
    }

    pub fn set_bytes_max(&self, bytes_max: u64) {
        self.inner.bytes_max.store(bytes_max, Ordering::Relaxed);
    }

    /// Counts `bytes` as memory of the reader until the result is dropped. Refuses if there is no room.
    pub fn take(&self, reader: &Reader, bytes: u64) -> Result<Charge, Refusal> {
        let mut charge = self.nothing(reader);
        charge.grow(bytes)?;
        Ok(charge)
    }

    /// Like [`Self::take`], for a stream. Waits until there is room.
    pub async fn room(&self, reader: &Reader, bytes: u64) -> Charge {
        let mut charge = self.nothing(reader);
        while !charge.fits(bytes) {
            tokio::time::sleep(ROOM_PERIOD).await;
        }
        charge
    }

    /// Makes a charge of zero bytes, which may grow.
    pub fn nothing(&self, reader: &Reader) -> Charge {
        Charge { memory: self.clone(), reader: reader.clone(), bytes: 0, place: None }
    }

    pub fn told(&self) -> Told {
        let book = self.book();
        Told {
            bytes_max: self.bytes_max(),
            bytes: book.bytes,
            holders: book.holders.len() as u64,
            largest: book.holders.values().map(|holder| holder.bytes).max().unwrap_or_default(),
            refused: book.refused,
            gave_way: book.gave_way,
        }
    }

    fn bytes_max(&self) -> u64 {
        self.inner.bytes_max.load(Ordering::Relaxed)
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.inner.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts the bytes if there is room; otherwise returns the bytes that the reader already uses.
    fn reserve(&self, reader: &Reader, bytes: u64) -> Result<(), u64> {
        for _ in 0..GIVE_WAY_MAX {
            let room = {
                let mut book = self.book();
                let room = book.room(reader, bytes, self.bytes_max());
                if let Room::There = room {
                    book.add(reader.name(), bytes);
                }
                room
            };
            match room {
                Room::There => return Ok(()),
                Room::After(give_way) => give_way(),
                Room::Nowhere { own } => return Err(own),
            }
        }
        Err(self.book().own(reader.name()))
    }

    /// Called after a charge grew without a check. Releases charges of readers that are above their share.
    pub(crate) fn settle(&self) {
        for _ in 0..GIVE_WAY_MAX {
            let excess = self.book().excess(self.bytes_max());
            match excess {
                Some(give_way) => give_way(),
                None => return,
            }
        }
    }
}

impl Book {
    fn own(&self, name: &Name) -> u64 {
        self.holders.get(name).map_or(0, |holder| holder.bytes)
    }

    fn room(&mut self, reader: &Reader, bytes: u64, bytes_max: u64) -> Room {
        if self.has_room(reader, bytes, bytes_max) {
            return Room::There;
        }
        let found = match self.is_fair(reader, bytes, bytes_max) {
            true => self.largest().and_then(|name| self.give_way(&name, Loss::Reply)),
            false => self.give_way(reader.name(), Loss::Time),
        };
        match found {
            Some(give_way) => Room::After(give_way),
            None => Room::Nowhere { own: self.own(reader.name()) },
        }
    }

    /// Whether `bytes` more bytes can be counted for the reader without the release of any charge.
    fn has_room(&self, reader: &Reader, bytes: u64, bytes_max: u64) -> bool {
        let together = self.bytes + bytes;
        let is_free = || together <= bytes_max && self.is_fair(reader, bytes, bytes_max);
        together <= bytes_max / 2 || reader.is_privileged || is_free()
    }

    /// Whether the reader stays within its share if it gets `bytes` more bytes. A reader without any charge may have
    /// one charge of any size.
    fn is_fair(&self, reader: &Reader, bytes: u64, bytes_max: u64) -> bool {
        let own = self.own(reader.name());
        let others = self.holders.len() - usize::from(self.holders.contains_key(reader.name()));
        own == 0 || own + bytes <= share(others, bytes_max)
    }

    /// The reader with the most memory among the readers that have a releasable charge.
    fn largest(&self) -> Option<Name> {
        let yielding = self.holders.iter().filter(|(_, holder)| !holder.yielding.is_empty());
        yielding.max_by_key(|(_, holder)| holder.bytes).map(|(name, _)| name.clone())
    }

    /// The next of this reader's charges to be released; `None` if its loss would be greater than `loss_max`.
    fn give_way(&mut self, name: &Name, loss_max: Loss) -> Option<GiveWay> {
        let first = self.holders.get_mut(name)?.yielding.first_entry()?;
        if first.key().0 > loss_max {
            return None;
        }
        let give_way = first.remove();
        self.gave_way += 1;
        Some(give_way)
    }

    fn excess(&mut self, bytes_max: u64) -> Option<GiveWay> {
        let name = self.largest()?;
        let share = share(self.holders.len().saturating_sub(1), bytes_max);
        let is_too_much = self.bytes > bytes_max || (self.bytes > bytes_max / 2 && self.own(&name) > share);
        if is_too_much { self.give_way(&name, Loss::Reply) } else { None }
    }

    fn add(&mut self, name: &Name, bytes: u64) {
        if bytes > 0 {
            self.bytes += bytes;
            self.holders.entry(name.clone()).or_default().bytes += bytes;
        }
    }
}

/// The maximum number of bytes of one user, if more than half of the memory is used and `others` other users use
/// memory.
fn share(others: usize, bytes_max: u64) -> u64 {
    // The share of one more user stays free even if there are no other users.
    bytes_max / (others + 1).max(2) as u64
}

/// Bytes that count as memory of a reader until the charge is dropped.
pub struct Charge {
    memory: ReadMemory,
    reader: Reader,
    bytes: u64,
    /// The charge's key among the releasable charges of its reader.
    place: Option<(Loss, u64)>,
}

impl Charge {
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Counts more bytes. If there is no room, refuses and leaves the charge unchanged.
    pub fn grow(&mut self, bytes: u64) -> Result<(), Refusal> {
        if bytes == 0 {
            return Ok(());
        }
        let Err(own) = self.memory.reserve(&self.reader, bytes) else {
            self.bytes += bytes;
            return Ok(());
        };
        let mut book = self.memory.book();
        book.refused += 1;
        let what = Plenty::Memory { bytes_max: self.memory.bytes_max(), bytes: book.bytes, own };
        Err(Refusal::TooManyRequests { what, retry_after_seconds: 1 })
    }

    /// Sets the charge to `bytes`, and returns true, if there is room for them.
    pub(crate) fn fits(&mut self, bytes: u64) -> bool {
        if bytes <= self.bytes {
            self.give_back(self.bytes - bytes);
            return true;
        }
        let more = bytes - self.bytes;
        let fits = self.memory.reserve(&self.reader, more).is_ok();
        self.bytes += if fits { more } else { 0 };
        fits
    }

    /// Like [`Self::fits`], but releases no other charges. For callers that hold locks which releasing a charge may
    /// need.
    pub(crate) fn fits_now(&mut self, bytes: u64) -> bool {
        if bytes <= self.bytes {
            self.give_back(self.bytes - bytes);
            return true;
        }
        let more = bytes - self.bytes;
        let mut book = self.memory.book();
        let fits = book.has_room(&self.reader, more, self.memory.bytes_max());
        if fits {
            book.add(self.reader.name(), more);
            drop(book);
            self.bytes = bytes;
        }
        fits
    }

    /// Counts bytes that are already in use. [`settle`](ReadMemory::settle) later releases charges of readers above
    /// their share, possibly this charge.
    pub(crate) fn add(&mut self, bytes: u64) {
        self.memory.book().add(self.reader.name(), bytes);
        self.bytes += bytes;
    }

    /// Sets the function that releases this charge when other readers need the memory, and the reader's loss.
    /// `give_way` must not own the charge.
    pub fn give_way_by(&mut self, loss: Loss, give_way: impl FnOnce() + Send + 'static) {
        let mut book = self.memory.book();
        book.next_place += 1;
        let place = (loss, book.next_place);
        book.holders.entry(self.reader.name().clone()).or_default().yielding.insert(place, Box::new(give_way));
        drop(book);
        self.place = Some(place);
    }

    fn give_back(&mut self, bytes: u64) {
        self.bytes -= bytes;
        let mut book = self.memory.book();
        book.bytes -= bytes;
        if let Some(holder) = book.holders.get_mut(self.reader.name()) {
            holder.bytes -= bytes;
            if holder.bytes == 0 && holder.yielding.is_empty() {
                book.holders.remove(self.reader.name());
            }
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let place = self.place.take();
        // The function that releases the charge is dropped after the lock is released.
        let _given_up = place.and_then(|place| {
            let mut book = self.memory.book();
            book.holders.get_mut(self.reader.name()).and_then(|holder| holder.yielding.remove(&place))
        });
        if self.bytes > 0 || place.is_some() {
            self.give_back(self.bytes);
        }
    }
}

impl std::fmt::Debug for Charge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Charge({})", self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(name: &str) -> Reader {
        Reader::of(&User::new(name, &[]))
    }

    /// Each user in turn takes hundredths of the memory until it is refused. Returns how many hundredths each user got.
    fn greedy(names: &[&str]) -> Vec<usize> {
        let memory = ReadMemory::new(100);
        let mut held = Vec::new();
        let mut take_all = |name: &&str| {
            let before = held.len();
            held.extend(std::iter::from_fn(|| memory.take(&user(name), 1).ok()).take(1000));
            held.len() - before
        };
        let counts = names.iter().map(&mut take_all).collect();
        drop(held);
        assert_eq!((memory.told().bytes, memory.told().holders), (0, 0));
        counts
    }

    #[test]
    fn nobody_holds_all() {
        assert_eq!(greedy(&["a"]), [50]);
        assert_eq!(greedy(&["a", "b", "a"]), [50, 50, 0]);
        let memory = ReadMemory::new(100);
        let _held = memory.take(&user("a"), 50).expect("half of it");
        let Err(Refusal::TooManyRequests { what, .. }) = memory.take(&user("a"), 1) else { panic!("it is refused") };
        assert_eq!(what, Plenty::Memory { bytes_max: 100, bytes: 50, own: 50 });
        assert!(memory.take(&Reader::SERVER, 1000).is_ok());
        assert!(memory.take(&Reader::of(&User::new("root", &["system:masters"])), 1000).is_ok());
        assert_eq!(memory.told().refused, 1);
    }

    #[test]
    fn the_largest_holder_gives_way_first_and_the_oldest_of_what_it_has() {
        let memory = ReadMemory::new(100);
        let kept: Arc<Mutex<BTreeMap<u32, Charge>>> = Arc::default();
        let keep = |name: &str, number: u32, bytes: u64| {
            let mut charge = memory.take(&user(name), bytes).expect("room");
            let all = Arc::downgrade(&kept);
            charge.give_way_by(Loss::Time, move || {
                let gone = all.upgrade().and_then(|all| all.lock().unwrap().remove(&number));
                drop(gone);
            });
            kept.lock().unwrap().insert(number, charge);
        };
        let left = || kept.lock().unwrap().keys().copied().collect::<Vec<u32>>();
        for (name, number, bytes) in [("small", 1, 10), ("large", 2, 20), ("large", 3, 25)] {
            keep(name, number, bytes);
        }
        // A reader above its share loses its own charges, not the charges of other readers.
        keep("large", 4, 10);
        assert_eq!(left(), [1, 3, 4]);
        keep("other", 5, 33);
        keep("fourth", 6, 25);
        assert_eq!(left(), [1, 4, 5, 6]);
        // A reply is ended to release memory for other users, but not for further requests of the reply's own user.
        let (memory, user) = (ReadMemory::new(100), user);
        let mut answer = memory.take(&user("a"), 50).expect("room");
        let ended = Arc::new(AtomicU64::new(0));
        let end = ended.clone();
        answer.give_way_by(Loss::Reply, move || end.store(1, Ordering::Relaxed));
        assert!(memory.take(&user("a"), 1).is_err() && ended.load(Ordering::Relaxed) == 0);
        let _other = memory.take(&user("b"), 40).expect("room");
        assert!(memory.take(&user("c"), 20).is_err(), "what was ended is still held");
        assert_eq!(ended.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn what_grows_by_itself_makes_its_holder_give_way() {
        let memory = ReadMemory::new(100);
        let kept = Arc::new(Mutex::new(Some(memory.take(&user("a"), 10).expect("room"))));
        let mut other = memory.take(&user("b"), 30).expect("room");
        let gone = Arc::downgrade(&kept);
        if let Some(charge) = &mut *kept.lock().unwrap() {
            charge.give_way_by(Loss::Reply, move || {
                let gone = gone.upgrade().and_then(|kept| kept.lock().unwrap().take());
                drop(gone);
            });
            charge.add(30);
        }
        memory.settle();
        assert_eq!(memory.told().bytes, 70, "nobody holds more than its share");
        other.add(31);
        memory.settle();
        assert_eq!((memory.told().bytes, memory.told().gave_way), (61, 1));
    }

    #[test]
    fn accounts_of_one_namespace_are_one() {
        let account = |namespace, name| Reader::of(&User::service_account(namespace, name, ""));
        assert_eq!(account("a", "x"), account("a", "y"));
        assert_ne!(account("a", "x"), account("b", "x"));
        assert_eq!(account("a", "x").name().as_deref(), Some("system:serviceaccount:a"));
        assert_eq!(user("system:serviceaccount:a").name().as_deref(), Some("system:serviceaccount:a"));
    }

    #[tokio::test]
    async fn a_stream_waits_until_there_is_room() {
        let memory = ReadMemory::new(100);
        let first = memory.take(&user("a"), 50).expect("room");
        let waiting = tokio::spawn({
            let memory = memory.clone();
            async move { memory.room(&user("a"), 1).await }
        });
        assert_eq!(memory.room(&user("b"), 1).await.bytes(), 1);
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop(first);
        assert_eq!(waiting.await.expect("no panic").bytes(), 1);
    }
}
