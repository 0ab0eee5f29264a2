//! What waits for one watcher: a little is counted as nobody's, more as the watcher's, and there is a most.

use crate::read_memory::Charge;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How many bytes of objects events may hold on to that wait for one watcher.
pub(super) const BYTES_MAX: usize = 4 << 20;
/// Whoever reads what comes seldom has more than this waiting, which is not worth a lock.
const UNCOUNTED_BYTES: usize = 16 << 10;

/// Shared by the watcher and those who put something into its queue.
#[derive(Default)]
pub(super) struct Waiting {
    bytes: AtomicUsize,
    /// Up to so many bytes there is room.
    counted: AtomicUsize,
    /// What they are counted with; `None` for the server's own watches.
    charge: Mutex<Option<Charge>>,
}

impl Waiting {
    /// Counts what waits with this from now on.
    pub fn count_with(&self, charge: Charge) {
        *self.charge() = Some(charge);
    }

    /// Takes note of one more event; false where there is no room for it.
    pub fn add(&self, bytes: usize) -> bool {
        let before = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let together = before + bytes;
        let known = self.counted.load(Ordering::Relaxed).max(UNCOUNTED_BYTES);
        before < BYTES_MAX && (together <= known || self.count(together))
    }

    /// Takes note that the watcher has one event.
    pub fn take(&self, bytes: usize) {
        let before = self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        if before == bytes && self.counted.load(Ordering::Relaxed) > 0 {
            let mut charge = self.charge();
            // Something may have come meanwhile: it is counted on, or with what comes next.
            if self.bytes.load(Ordering::Relaxed) == 0 {
                self.counted.store(0, Ordering::Relaxed);
                if let Some(charge) = charge.as_mut() {
                    charge.fits_now(0);
                }
            }
        }
    }

    /// Counts more at once than there is, so that this is seldom done.
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
            let waiting = Waiting::default();
            waiting.count_with(memory.nothing(reader));
            waiting
        };
        let idle = waiting(&jane);
        assert!(idle.add(UNCOUNTED_BYTES));
        assert_eq!(memory.told().bytes, 0, "what is little is not counted");
        let many: Vec<Waiting> = (0..100).map(|_| waiting(&jane)).collect();
        let queued = many.iter().filter(|one| one.add(100 << 10)).count();
        assert_eq!((queued, memory.told().bytes), (4, 512 << 10), "one reader has half of the memory");
        assert!(waiting(&joe).add(100 << 10), "the other half is for others");
        many.iter().take(4).for_each(|one| one.take(100 << 10));
        assert_eq!(memory.told().bytes, 0);
        assert!(many[0].add(1) && many[0].add(100 << 10));
        drop(many);
        assert_eq!((memory.told().bytes, memory.told().holders), (0, 0));
        // Nobody is asked to pay for the server's own watches, and they have a bound all the same.
        let own = Waiting::default();
        assert!(own.add(BYTES_MAX) && !own.add(1));
    }
}
