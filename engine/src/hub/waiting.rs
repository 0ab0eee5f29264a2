//! The bytes that wait for one watcher. A few bytes are not counted; more bytes count as memory of the watcher's user,
//! up to a limit.

use crate::read_memory::Charge;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The maximum number of bytes of objects in the events that wait for one watcher.
pub(super) const BYTES_MAX: usize = 4 << 20;
/// Waiting bytes are not counted below this number, because counting takes a lock, and a watcher that reads promptly
/// seldom has more waiting bytes.
const UNCOUNTED_BYTES: usize = 16 << 10;

/// The count of waiting bytes. The watcher shares it with the hub, which fills the watcher's queue.
#[derive(Default)]
pub(super) struct WaitingBytes {
    bytes: AtomicUsize,
    /// The bytes that the charge covers now. While at most this many bytes wait, no lock is needed.
    counted: AtomicUsize,
    /// The charge that counts the bytes; `None` for the server's own watches.
    charge: Mutex<Option<Charge>>,
}

impl WaitingBytes {
    /// Counts the bytes of later events with this charge.
    pub fn count_with(&self, charge: Charge) {
        *self.charge() = Some(charge);
    }

    /// Adds an event's bytes. Returns false if there is no room for them.
    pub fn add(&self, bytes: usize) -> bool {
        let before = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let together = before + bytes;
        let known = self.counted.load(Ordering::Relaxed).max(UNCOUNTED_BYTES);
        before < BYTES_MAX && (together <= known || self.count(together))
    }

    /// Subtracts the bytes of an event that the watcher has received.
    pub fn take(&self, bytes: usize) {
        let before = self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        if before == bytes && self.counted.load(Ordering::Relaxed) > 0 {
            let mut charge = self.charge();
            // An event may have arrived between the subtraction and the next load. The bytes of that event then stay
            // counted, or are counted with the next event.
            if self.bytes.load(Ordering::Relaxed) == 0 {
                self.counted.store(0, Ordering::Relaxed);
                if let Some(charge) = charge.as_mut() {
                    charge.fits_now(0);
                }
            }
        }
    }

    /// Counts `bytes`, rounded up to the next power of two, so that this function seldom runs. Returns false if there
    /// is no room.
    fn count(&self, bytes: usize) -> bool {
        let most = bytes.next_power_of_two();
        let fits = self.charge().as_mut().is_none_or(|charge| charge.fits_now(most as u64));
        if fits {
            self.counted.store(most, Ordering::Relaxed);
        }
        fits
    }

    fn charge(&self) -> MutexGuard<'_, Option<Charge>> {
        self.charge.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read_memory::{ReadMemory, Reader};
    use holdfast_core::authz::User;

    #[test]
    fn what_waits_is_its_readers_and_ends_where_the_reader_holds_enough() {
        let memory = ReadMemory::new(1 << 20);
        let (jane, joe) = (Reader::of(&User::new("jane", &[])), Reader::of(&User::new("joe", &[])));
        let waiting = |reader: &Reader| {
            let waiting = WaitingBytes::default();
            waiting.count_with(memory.nothing(reader));
            waiting
        };
        let idle = waiting(&jane);
        assert!(idle.add(UNCOUNTED_BYTES));
        assert_eq!(memory.told().bytes, 0, "what is little is not counted");
        let many: Vec<WaitingBytes> = (0..100).map(|_| waiting(&jane)).collect();
        let queued = many.iter().filter(|one| one.add(100 << 10)).count();
        assert_eq!((queued, memory.told().bytes), (4, 512 << 10), "one reader has half of the memory");
        assert!(waiting(&joe).add(100 << 10), "the other half is for others");
        many.iter().take(4).for_each(|one| one.take(100 << 10));
        assert_eq!(memory.told().bytes, 0);
        assert!(many[0].add(1) && many[0].add(100 << 10));
        drop(many);
        assert_eq!((memory.told().bytes, memory.told().holders), (0, 0));
        // The bytes of the server's own watches count against no user, but `BYTES_MAX` limits them too.
        let own = WaitingBytes::default();
        assert!(own.add(BYTES_MAX) && !own.add(1));
    }
}
