//! Snapshots that lists and watches in progress go on from: kept for a while, and counted as their readers'.
//!
//! A snapshot shares with the newest state what has not changed since, so what it holds alone are the objects that were
//! replaced after it. The writer tells of each that the newest snapshot has; what was replaced before the next one was kept
//! is counted as the older one's.

use crate::log::Fault;
use crate::read_memory::{Charge, Loss, ReadMemory, Reader};
use holdfast_core::Refusal;
use holdfast_core::event::Offset;
use holdfast_core::state::{Change, Entry, State};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

/// How long a continue token is good for.
pub const LIFETIME: Duration = Duration::from_secs(5 * 60);
/// What a snapshot takes that nothing was replaced after, and what each object takes beside its bytes.
const SNAPSHOT_BYTES: u64 = 16 << 10;
pub(crate) const OBJECT_BYTES: u64 = 2 << 10;
/// How much may be replaced before it is counted as anybody's.
const COUNTED_LATE_BYTES: u64 = 1 << 20;

pub struct Pins {
    kept: Mutex<BTreeMap<Offset, Pin>>,
    /// The newest of them; zero when there is none.
    newest: AtomicU64,
    /// What the newest one has and the newest state has no more, as far as nobody counts it yet.
    replaced: AtomicU64,
    /// How many claims there have been.
    claims: AtomicU64,
    memory: ReadMemory,
}

struct Pin {
    state: Arc<State>,
    /// Those it is kept for, at least one. The first counts what was replaced.
    claims: Vec<Claim>,
    replaced: u64,
}

struct Claim {
    id: u64,
    reader: Reader,
    /// When nobody will come for it any more, unless a watch has it.
    until: Instant,
    watches: usize,
    charge: Charge,
    /// What goes with it.
    cuts: Vec<Weak<dyn Cut>>,
}

/// Something that holds objects of a snapshot, and lets go of them when their memory is needed.
pub trait Cut: Send + Sync {
    fn cut(&self);
}

/// A snapshot that a watch or an answer goes on from. Dropping it lets go.
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

    /// Keeps a snapshot for the pages that follow, or keeps it longer. Where there is no room for it they are read from
    /// the log.
    pub fn pin(self: &Arc<Self>, state: &Arc<State>, reader: &Reader) {
        if let Ok(charge) = self.memory.take(reader, SNAPSHOT_BYTES) {
            self.pin_counted(state, reader, charge);
        }
    }

    /// Keeps a state whose own objects are counted already.
    pub fn pin_counted(self: &Arc<Self>, state: &Arc<State>, reader: &Reader, charge: Charge) {
        self.claim(state, reader, charge, (Instant::now() + LIFETIME, 0, None));
    }

    /// Keeps a snapshot for a watch, or for an answer which is cut when it goes.
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

    /// Takes note of what a commit has replaced.
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

    /// Counts it once it is much.
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
                // Those that have ended are forgotten before they become many.
                if claim.cuts.len() > claim.watches {
                    claim.cuts.retain(|cut| cut.strong_count() > 0);
                }
                claim.cuts.extend(cut);
                // A token is good for so long from the first page on.
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

    /// Lets go of what one reader has of a version.
    fn give_way(&self, offset: Offset, reader: &Reader) {
        let mut kept = self.lock();
        let mut ended = self.count(&mut kept);
        end(&mut kept, offset, |claim| claim.reader != *reader, &mut ended);
        self.note_newest(&kept);
        drop(kept);
        ended.take_apart();
    }

    /// Counts what was replaced as the newest one's, and takes out what nobody will come for.
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

/// What is over.
#[derive(Default)]
struct Ended {
    claims: Vec<Claim>,
    states: Vec<Arc<State>>,
}

impl Ended {
    /// Gives back what was counted. Whoever waits for that, be it the writer, need not wait until all has been taken apart.
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

/// Ends claims on a version, and the snapshot with the last of them. What it alone was counted for the one before it may
/// have as well.
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
    /// The snapshot, or a fault where its memory was needed.
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
        // Nobody waits for the room: what is over is dropped here.
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
        // The greedy one's oldest have gone, with the claim of its watch; the other one's is still there.
        assert_eq!(kept()[0], 1);
        assert!(kept().len() < 5, "{:?}", kept());
        assert!(memory.told().bytes <= 10 << 20);
        assert!(pins.get(Offset(1)).is_some());
        // A watch that lets go takes nobody else's.
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
