//! Pinned snapshots, from which later pages of lists and watches read. A pin exists for a limited time, and its memory
//! counts as memory of its readers.
//!
//! A snapshot shares the unchanged objects with the newest state. So a pin additionally keeps in memory only the
//! objects that were replaced after the snapshot was taken. The writer reports each replaced object that the newest pin
//! contains. Objects that were replaced before the next pin was made count as memory of the older pin.

use crate::log::Fault;
use crate::read_memory::{Charge, Loss, ReadMemory, Reader};
use holdfast_core::Refusal;
use holdfast_core::event::Offset;
use holdfast_core::state::{Change, Entry, State};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

/// How long a continue token is valid after the first page of its list.
pub const LIFETIME: Duration = Duration::from_secs(5 * 60);
/// The number of bytes that are counted for a pinned snapshot before any of its objects is replaced.
const SNAPSHOT_BYTES: u64 = 16 << 10;
/// The number of bytes that are counted for each replaced object in addition to its own bytes.
pub(crate) const OBJECT_BYTES: u64 = 2 << 10;
/// The maximum number of bytes of replaced objects that may stay uncounted.
const COUNTED_LATE_BYTES: u64 = 1 << 20;

pub struct Pins {
    kept: Mutex<BTreeMap<Offset, Pin>>,
    /// The offset of the newest pin; zero if there is none.
    newest: AtomicU64,
    /// The bytes of objects that are in the newest pin, but no longer in the newest state, and that are not charged to
    /// a claim yet.
    replaced: AtomicU64,
    /// The number of claims made so far. The next claim gets this number.
    claims: AtomicU64,
    memory: ReadMemory,
}

struct Pin {
    state: Arc<State>,
    /// The claims of the readers that use the pin. There is at least one claim. The replaced bytes are charged to the
    /// first claim.
    claims: Vec<Claim>,
    replaced: u64,
}

struct Claim {
    id: u64,
    reader: Reader,
    /// The time until which the reader can request a further page. The claim ends at that time, unless a watch uses the
    /// claim.
    until: Instant,
    watches: usize,
    charge: Charge,
    /// The answers and watches that are ended when the claim is ended for lack of memory.
    cuts: Vec<Weak<dyn Cut>>,
}

/// An answer or a watch that references a snapshot's objects, and drops them when their memory is needed.
pub trait Cut: Send + Sync {
    fn cut(&self);
}

/// A pinned snapshot that a watch or an answer reads from. The pin is released when this value is dropped.
pub struct Kept {
    pins: Arc<Pins>,
    offset: Offset,
    claim: u64,
}

impl Pins {
    pub fn new(memory: ReadMemory) -> Arc<Pins> {
        let (newest, replaced, claims) = Default::default();
        Arc::new(Pins { kept: Mutex::default(), newest, replaced, claims, memory })
    }

    /// Pins a snapshot for the next pages of a list. If the reader has already pinned the snapshot, its time is
    /// extended only after it has passed. If there is no room for the snapshot, the pages are read from the log.
    pub fn pin(self: &Arc<Self>, state: &Arc<State>, reader: &Reader) {
        if let Ok(charge) = self.memory.take(reader, SNAPSHOT_BYTES) {
            self.pin_counted(state, reader, charge);
        }
    }

    /// Pins a state whose objects are already counted by `charge`.
    pub fn pin_counted(self: &Arc<Self>, state: &Arc<State>, reader: &Reader, charge: Charge) {
        self.claim(state, reader, charge, (Instant::now() + LIFETIME, 0, None));
    }

    /// Pins a snapshot for a watch or an answer. `cut` ends the watch or answer if the pin must be released.
    pub fn keep(
        self: &Arc<Self>,
        state: &Arc<State>,
        reader: &Reader,
        cut: Option<Weak<dyn Cut>>,
    ) -> Result<Kept, Refusal> {
        let charge = self.memory.take(reader, SNAPSHOT_BYTES)?;
        let claim = self.claim(state, reader, charge, (Instant::now(), 1, cut));
        Ok(Kept { pins: self.clone(), offset: state.offset, claim })
    }

    pub fn get(&self, offset: Offset) -> Option<Arc<State>> {
        let (kept, now) = (self.lock(), Instant::now());
        let pin = kept.get(&offset)?;
        pin.claims.iter().any(|claim| claim.holds(now)).then(|| pin.state.clone())
    }

    /// Adds the bytes that a commit has replaced in the newest pin.
    pub(crate) fn replaced(&self, changes: &[(Change, Option<Arc<Entry>>)]) {
        let newest = self.newest.load(Ordering::Relaxed);
        if newest == 0 {
            return;
        }
        let gone = changes.iter().filter_map(|(_, previous)| previous.as_ref());
        let gone = gone.filter(|previous| previous.offset.0 <= newest);
        let bytes: u64 = gone.map(|previous| previous.size() as u64 + OBJECT_BYTES).sum();
        self.replaced.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Charges the replaced bytes if there are more than [`COUNTED_LATE_BYTES`].
    pub(crate) fn count_late(&self) {
        if self.replaced.load(Ordering::Relaxed) > COUNTED_LATE_BYTES {
            let ended = self.count(&mut self.lock());
            ended.take_apart();
            self.memory.settle();
        }
    }

    fn claim(
        self: &Arc<Self>,
        state: &Arc<State>,
        reader: &Reader,
        mut charge: Charge,
        (until, watches, cut): (Instant, usize, Option<Weak<dyn Cut>>),
    ) -> u64 {
        let (now, offset) = (Instant::now(), state.offset);
        let mut kept = self.lock();
        let ended = self.count(&mut kept);
        let fresh = || Pin { state: state.clone(), claims: Vec::new(), replaced: 0 };
        let pin = kept.entry(offset).or_insert_with(fresh);
        let id = match pin.claims.iter_mut().find(|claim| claim.reader == *reader) {
            Some(claim) => {
                claim.watches += watches;
                // Cuts whose answer has ended are removed before they accumulate.
                if claim.cuts.len() > claim.watches {
                    claim.cuts.retain(|cut| cut.strong_count() > 0);
                }
                claim.cuts.extend(cut);
                // A token's lifetime begins with the first page, so a claim that has not expired is not extended.
                claim.until = if claim.until <= now { until } else { claim.until };
                claim.id
            }
            None => {
                let (pins, of) = (Arc::downgrade(self), reader.clone());
                let loss = if watches > 0 { Loss::Reply } else { Loss::Time };
                charge.give_way_by(loss, move || {
                    if let Some(pins) = pins.upgrade() {
                        pins.give_way(offset, &of);
                    }
                });
                let cuts = cut.into_iter().collect();
                let id = self.claims.fetch_add(1, Ordering::Relaxed);
                pin.claims.push(Claim { id, reader: reader.clone(), until, watches, charge, cuts });
                id
            }
        };
        self.note_newest(&kept);
        drop(kept);
        ended.take_apart();
        self.memory.settle();
        id
    }

    /// Ends one reader's claim on the pin of a version.
    fn give_way(&self, offset: Offset, reader: &Reader) {
        let mut kept = self.lock();
        let mut ended = self.count(&mut kept);
        end(&mut kept, offset, |claim| claim.reader != *reader, &mut ended);
        self.note_newest(&kept);
        drop(kept);
        ended.take_apart();
    }

    /// Charges the replaced bytes to the newest pin, and removes the claims that have expired.
    fn count(&self, kept: &mut BTreeMap<Offset, Pin>) -> Ended {
        let replaced = self.replaced.swap(0, Ordering::Relaxed);
        if let Some(newest) = kept.values_mut().next_back() {
            newest.count(replaced);
        }
        let now = Instant::now();
        let is_over = |pin: &Pin| pin.claims.iter().any(|claim| !claim.holds(now));
        let over: Vec<Offset> = kept.iter().filter(|(_, pin)| is_over(pin)).map(|(offset, _)| *offset).collect();
        let mut ended = Ended::default();
        over.into_iter().for_each(|offset| end(kept, offset, |claim| claim.holds(now), &mut ended));
        self.note_newest(kept);
        ended
    }

    fn note_newest(&self, kept: &BTreeMap<Offset, Pin>) {
        self.newest.store(kept.last_key_value().map_or(0, |(offset, _)| offset.0), Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Offset, Pin>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The claims that have ended, and the states of the pins that have ended. They are dropped after the lock is released.
#[derive(Default)]
struct Ended {
    claims: Vec<Claim>,
    states: Vec<Arc<State>>,
}

impl Ended {
    /// Frees the charges. Another thread ends the answers and watches and drops the states, because dropping a state
    /// takes long and the caller may be the writer.
    fn take_apart(self) {
        let Ended { claims, states } = self;
        let cuts: Arc<[Weak<dyn Cut>]> = claims.into_iter().flat_map(|claim| claim.cuts).collect();
        if states.is_empty() && cuts.is_empty() {
            return;
        }
        let cut_all = |cuts: &[Weak<dyn Cut>]| cuts.iter().filter_map(Weak::upgrade).for_each(|cut| cut.cut());
        let of_thread = cuts.clone();
        let spawned = std::thread::Builder::new().spawn(move || {
            cut_all(&of_thread);
            drop(states);
        });
        if spawned.is_err() {
            cut_all(&cuts);
        }
    }
}

/// Ends claims on a version, and the pin with its last claim. The replaced bytes of that pin then count for the next
/// older pin, which may contain the same objects.
fn end(kept: &mut BTreeMap<Offset, Pin>, offset: Offset, stays: impl Fn(&Claim) -> bool, ended: &mut Ended) {
    let Some(pin) = kept.get_mut(&offset) else { return };
    let counted = match pin.claims.first() {
        Some(first) if !stays(first) => std::mem::take(&mut pin.replaced),
        _ => 0,
    };
    let (staying, going) = std::mem::take(&mut pin.claims).into_iter().partition(|claim| stays(claim));
    pin.claims = staying;
    ended.claims.extend::<Vec<Claim>>(going);
    if !pin.claims.is_empty() {
        return pin.count(counted);
    }
    if let Some((_, older)) = kept.range_mut(..offset).next_back() {
        older.count(counted);
    }
    ended.states.extend(kept.remove(&offset).map(|pin| pin.state));
}

impl Pin {
    fn count(&mut self, bytes: u64) {
        self.replaced += bytes;
        if let Some(first) = self.claims.first_mut() {
            first.charge.add(bytes);
        }
    }
}

impl Claim {
    fn holds(&self, now: Instant) -> bool {
        self.watches > 0 || self.until > now
    }
}

impl Kept {
    /// The snapshot, or a fault if it was dropped because its memory was needed.
    pub fn state(&self) -> Result<Arc<State>, Fault> {
        let kept = self.pins.get(self.offset);
        kept.ok_or(Fault::Forgotten { asked: self.offset, oldest: self.offset.next() })
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let mut ended = Ended::default();
        let mut kept = self.pins.lock();
        let pin = kept.get_mut(&self.offset);
        let claim = pin.and_then(|pin| pin.claims.iter_mut().find(|claim| claim.id == self.claim));
        let Some(claim) = claim else { return };
        claim.watches = claim.watches.saturating_sub(1);
        if claim.watches == 0 && claim.until <= Instant::now() {
            end(&mut kept, self.offset, |claim| claim.id != self.claim, &mut ended);
        }
        self.pins.note_newest(&kept);
        drop(kept);
        // `ended` is dropped on this thread, because no request waits for its memory.
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_core::authz::User;
    use holdfast_core::kinds::registry;

    fn state(offset: u64) -> Arc<State> {
        let mut state = State::new(Arc::new(registry().clone()));
        state.offset = Offset(offset);
        Arc::new(state)
    }

    #[test]
    fn what_was_replaced_is_counted_and_makes_its_reader_give_way() {
        let memory = ReadMemory::new(10 << 20);
        let pins = Pins::new(memory.clone());
        let (greedy, other) = (Reader::of(&User::new("greedy", &[])), Reader::of(&User::new("other", &[])));
        let grow = |bytes: u64| {
            drop(pins.count(&mut pins.lock()));
            pins.lock().values_mut().next_back().expect("a snapshot").count(bytes);
            memory.settle();
        };
        let kept = || pins.lock().keys().map(|offset| offset.0).collect::<Vec<u64>>();
        pins.pin(&state(1), &other);
        let watch = pins.keep(&state(1), &greedy, None).expect("room");
        for offset in 2..6 {
            pins.pin(&state(offset), &greedy);
            grow(2 << 20);
        }
        // The oldest pins of the greedy reader were released, with its watch's claim. The other reader's claim still
        // exists.
        assert_eq!(kept()[0], 1);
        assert!(kept().len() < 5, "{:?}", kept());
        assert!(memory.told().bytes <= 10 << 20);
        assert!(pins.get(Offset(1)).is_some());
        // The end of the watch releases only the claim of the watch's own reader, so the pin stays for the other
        // reader.
        drop(watch);
        assert!(pins.get(Offset(1)).is_some());
    }

    #[test]
    fn what_a_newer_snapshot_was_counted_the_older_one_may_have() {
        let memory = ReadMemory::new(100 << 20);
        let pins = Pins::new(memory.clone());
        let (first, second) = (Reader::of(&User::new("a", &[])), Reader::of(&User::new("b", &[])));
        pins.pin(&state(1), &first);
        pins.pin(&state(2), &second);
        pins.lock().values_mut().next_back().expect("a snapshot").count(1 << 20);
        pins.give_way(Offset(2), &second);
        assert_eq!(pins.lock()[&Offset(1)].replaced, 1 << 20);
        pins.give_way(Offset(1), &first);
        assert!(pins.get(Offset(1)).is_none() && pins.get(Offset(2)).is_none());
    }
}
