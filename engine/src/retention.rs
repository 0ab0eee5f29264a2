//! Removes old history, by age and by size, while requests are served.
//!
//! The state at the new beginning of the history and all later events stay; see [`Log::forget`]. A pass runs on a
//! thread of its own, in steps, so that neither writers nor readers wait for it.

use crate::engine::Engine;
use crate::forked::Holds;
use crate::log::{Fault, Log, Size};
use crate::moment::at_time;
use holdfast_core::event::Offset;
use std::sync::Weak;
use std::time::{Duration, Instant};

/// How much history stays. The oldest history is removed while a limit is exceeded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Retention {
    /// The maximum age of a version; older versions are removed.
    pub age: Option<Duration>,
    /// The maximum size of the log in bytes; if the log is larger, its oldest versions are removed. Current objects
    /// stay, even if they exceed the limit.
    pub bytes: Option<u64>,
}

/// The minimum time between two passes of the retention.
const PERIOD_MIN: Duration = Duration::from_millis(100);
/// The maximum time between two passes of the retention.
const PERIOD_MAX: Duration = Duration::from_secs(60);
/// The interval at which the loop checks whether a pass must run early: because the log is too large, or because it has
/// `MUCH_EVENTS` new events.
const GLANCE: Duration = Duration::from_secs(1);
/// The number of new events in the log that cause an early pass.
const MUCH_EVENTS: u64 = 50_000;
/// The interval at which the disk is checked again while it has little room.
const SHORT_GLANCE: Duration = Duration::from_millis(100);
/// When the disk is short of room, one step removes the oldest 1/`SHORT_STEPS` of the versions, but at least
/// `SHORT_STEP_EVENTS` versions.
const SHORT_STEPS: u64 = 16;
const SHORT_STEP_EVENTS: u64 = 64;
/// The number of versions that one step removes if it is not known how many must be removed.
const STEP_EVENTS: u64 = 4096;

/// Applies the retention for as long as the engine exists.
pub async fn run(engine: Weak<Engine>, retention: Retention) {
    let period = retention.age.map_or(PERIOD_MAX, |age| (age / 20).clamp(PERIOD_MIN, PERIOD_MAX));
    let (mut looked, mut seen) = (Instant::now(), Offset::ZERO);
    let (mut too_large, mut is_short) = (false, false);
    loop {
        tokio::time::sleep(if is_short { SHORT_GLANCE } else { period.min(GLANCE) }).await;
        let Some(engine) = engine.upgrade() else { return };
        let newest = engine.own_snapshot().offset;
        let log = engine.log().clone();
        let was_short = is_short;
        is_short = engine.reads().run(move || log.is_short_of_room()).await;
        if is_short {
            if !was_short {
                tracing::warn!("the disk is nearly full: old history is removed, and most writes are refused");
            }
            let (log, holds) = (engine.log().clone(), engine.holds().clone());
            drop(engine);
            match tokio::task::spawn_blocking(move || make_room(log.as_ref(), &holds)).await {
                Ok(Ok(())) => {}
                Ok(Err(fault)) => tracing::warn!(%fault, "no room could be made; it is tried again"),
                Err(_) => return,
            }
            continue;
        }
        if was_short {
            tracing::info!("the disk has room again");
        }
        if retention == Retention::default() {
            continue;
        }
        // If the current objects alone exceed the limit, checking more often does not help.
        let is_full = match retention.bytes {
            Some(most) if !too_large => {
                let log = engine.log().clone();
                engine.reads().run(move || log.size().is_ok_and(|size| size.bytes > most)).await
            }
            _ => false,
        };
        if looked.elapsed() < period && newest.0.saturating_sub(seen.0) < MUCH_EVENTS && !is_full {
            continue;
        }
        (looked, seen) = (Instant::now(), newest);
        let (log, now_ms) = (engine.log().clone(), engine.stamp().time.as_millisecond());
        let holds = engine.holds().clone();
        // The engine may end during the pass. The log exists until the pass is done.
        drop(engine);
        let passed = tokio::task::spawn_blocking(move || {
            let pass = pass(log.as_ref(), retention, now_ms, &holds)?;
            log.compact(false)?;
            Ok::<_, Fault>(pass)
        });
        match passed.await {
            Ok(Ok(pass)) => {
                if pass.let_go.let_go_events > 0 {
                    let Size { bytes, let_go_events, let_go_bytes } = pass.let_go;
                    tracing::info!(
                        events = let_go_events,
                        bytes = let_go_bytes,
                        left_bytes = bytes,
                        oldest = %pass.oldest,
                        "old history was removed from the log"
                    );
                }
                // The warning is logged once, not at every pass.
                if pass.too_large && !too_large {
                    tracing::warn!(
                        bytes = pass.let_go.bytes,
                        "the current objects alone take more than --history-max-bytes: no history is kept"
                    );
                }
                too_large = pass.too_large;
            }
            Ok(Err(fault)) => tracing::warn!(%fault, "old history could not be removed; the next round tries again"),
            // The pass was cancelled, because the async runtime is shutting down.
            Err(_) => return,
        }
    }
}

/// Removes history, the oldest first, until the disk has room. The history that forks need stays.
pub fn make_room(log: &dyn Log, holds: &Holds) -> Result<(), Fault> {
    loop {
        let (oldest, newest) = (log.oldest()?, holds.limit(log.last()?));
        if oldest < newest {
            let step = (newest.0 - oldest.0).div_ceil(SHORT_STEPS).max(SHORT_STEP_EVENTS);
            log.forget(Offset(oldest.0 + step).min(newest))?;
        }
        log.make_room()?;
        if oldest >= newest || !log.is_short_of_room() {
            return Ok(());
        }
    }
}

/// The result of a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pass {
    /// The number of events and bytes that the pass removed, and the bytes that are left.
    pub let_go: Size,
    /// The version from which on the log has all events after the pass.
    pub oldest: Offset,
    /// The log is still too large, but no more history can be removed.
    pub too_large: bool,
}

/// Removes the history that neither the retention nor a fork needs.
pub fn pass(log: &dyn Log, retention: Retention, now_ms: i64, holds: &Holds) -> Result<Pass, Fault> {
    let before = log.size()?;
    let newest = log.last()?;
    if let Some(age) = retention.age {
        let age_ms = i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
        let horizon = holds.limit(at_time(log, now_ms.saturating_sub(age_ms), newest)?);
        if horizon > log.oldest()? {
            log.forget(horizon)?;
        }
    }
    let is_too_large = |size: Size| retention.bytes.is_some_and(|most| size.bytes > most);
    let (mut size, mut oldest) = (log.size()?, log.oldest()?);
    while is_too_large(size) && oldest < holds.limit(newest) {
        log.forget(holds.limit(Offset(oldest.0 + STEP_EVENTS).min(newest)))?;
        (size, oldest) = (log.size()?, log.oldest()?);
    }
    let let_go = Size {
        bytes: size.bytes,
        let_go_events: size.let_go_events - before.let_go_events,
        let_go_bytes: size.let_go_bytes - before.let_go_bytes,
    };
    Ok(Pass { let_go, oldest, too_large: is_too_large(size) && oldest >= newest })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::{Append, LogRead, Proposal};
    use crate::memory::MemoryLog;
    use holdfast_core::event::{Operation, Record};

    fn free() -> Holds {
        Holds::default()
    }

    /// A log with one event per second, on three objects in turn.
    fn log() -> MemoryLog {
        let log = MemoryLog::default();
        let record = |offset: u64| Record {
            offset,
            time_ms: offset as i64 * 1000,
            resource: "pods".into(),
            key: format!("default/{}", offset % 3),
            replaces: offset.saturating_sub(3),
            operation: Operation::Put as i32,
            object: vec![b'x'; 100].into(),
            ..Record::default()
        };
        assert!(log.append(&(1..=10_000).map(record).collect::<Vec<_>>()).expect("written").is_appended());
        log
    }

    #[test]
    fn what_is_too_old_goes() {
        let log = log();
        let retention = Retention { age: Some(Duration::from_secs(1000)), bytes: None };
        let first = pass(&log, retention, 10_000_000, &free()).expect("a pass");
        assert_eq!((first.oldest, first.let_go.let_go_events, first.too_large), (Offset(9000), 8997, false));
        let again = pass(&log, retention, 10_000_000, &free()).expect("a pass");
        assert_eq!((again.oldest, again.let_go.let_go_events), (Offset(9000), 0));
        // The clock was set back, so no event is old enough to be removed.
        assert_eq!(pass(&log, retention, 5_000_000, &free()).expect("a pass").oldest, Offset(9000));
        let all = pass(&log, retention, i64::MAX, &free()).expect("a pass");
        assert_eq!((all.oldest, log.last().expect("the last")), (Offset(10_000), Offset(10_000)));
        assert_eq!(log.scan(None, Offset::ZERO, 99).expect("the rest").len(), 3);
    }

    #[test]
    fn what_is_too_much_goes_and_no_more() {
        let log = log();
        let whole = log.size().expect("its size").bytes;
        let most = whole / 2;
        let retention = Retention { age: None, bytes: Some(most) };
        let half = pass(&log, retention, 0, &free()).expect("a pass");
        let step = whole * STEP_EVENTS / 10_000;
        assert!(half.let_go.bytes <= most && half.let_go.bytes + step > most, "{half:?} of {whole}");
        assert!(!half.too_large);
        let nothing = pass(&log, Retention { age: None, bytes: Some(1) }, 0, &free()).expect("a pass");
        assert!(nothing.too_large, "three objects are more than a byte");
        assert_eq!(nothing.oldest, Offset(10_000));
        assert_eq!(log.scan(None, Offset::ZERO, 99).expect("the rest").len(), 3);
    }

    #[test]
    fn what_forks_began_at_stays() {
        let (log, holds) = (log(), free());
        let held = holds.hold(Offset(400));
        let whole = log.size().expect("its size").bytes;
        for retention in [
            Retention { age: Some(Duration::from_secs(1000)), bytes: None },
            Retention { age: None, bytes: Some(whole / 100) },
        ] {
            let pass = pass(&log, retention, 10_000_000, &holds).expect("a pass");
            assert_eq!((pass.oldest, pass.too_large), (Offset(400), false));
        }
        drop(held);
        let retention = Retention { age: Some(Duration::from_secs(1000)), bytes: None };
        assert_eq!(pass(&log, retention, 10_000_000, &holds).expect("a pass").oldest, Offset(9000));
    }

    /// A log on a disk that has room again when the log takes at most `bytes` bytes.
    struct Small {
        log: MemoryLog,
        bytes: u64,
        compactions: std::sync::atomic::AtomicUsize,
    }

    impl LogRead for Small {
        fn last(&self) -> Result<Offset, Fault> {
            self.log.last()
        }

        fn read(&self, offset: Offset) -> Result<Option<Record>, Fault> {
            self.log.read(offset)
        }

        fn current(&self, visit: &mut dyn FnMut(Record) -> Result<(), Fault>) -> Result<(), Fault> {
            self.log.current(visit)
        }

        fn scan(&self, resource: Option<&str>, after: Offset, limit: usize) -> Result<Vec<Record>, Fault> {
            self.log.scan(resource, after, limit)
        }

        fn oldest(&self) -> Result<Offset, Fault> {
            self.log.oldest()
        }
    }

    impl Log for Small {
        fn commit(&self, proposal: &Proposal) -> Result<Append, Fault> {
            self.log.commit(proposal)
        }

        fn secret(&self) -> Result<[u8; 32], Fault> {
            self.log.secret()
        }

        fn forget(&self, through: Offset) -> Result<(), Fault> {
            self.log.forget(through)
        }

        fn recover(&self) -> Result<(), Fault> {
            self.log.recover()
        }

        fn is_short_of_room(&self) -> bool {
            self.log.size().is_ok_and(|size| size.bytes > self.bytes)
        }

        fn make_room(&self) -> Result<(), Fault> {
            self.compactions.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            Ok(())
        }
    }

    #[test]
    fn the_oldest_history_goes_until_there_is_room() {
        let whole = log().size().expect("its size").bytes;
        let small = |bytes| Small { log: log(), bytes, compactions: Default::default() };
        let (half, held) = (small(whole / 2), free());
        make_room(&half, &held).expect("made");
        let oldest = half.oldest().expect("its beginning");
        assert!(!half.is_short_of_room() && oldest > Offset(4_000) && oldest < Offset(7_000), "{oldest}");

        // History that a fork needs stays. The loop ends when it cannot free more.
        let none = small(0);
        let _held = held.hold(Offset(400));
        make_room(&none, &held).expect("made");
        assert_eq!(none.oldest().expect("its beginning"), Offset(400));
        make_room(&none, &free()).expect("made");
        assert_eq!(none.oldest().expect("its beginning"), Offset(10_000));
        assert!(none.compactions.load(std::sync::atomic::Ordering::Relaxed) > 2);
    }

    #[test]
    fn nothing_goes_unasked() {
        let log = log();
        let pass = pass(&log, Retention::default(), i64::MAX, &free()).expect("a pass");
        assert_eq!((pass.oldest, pass.let_go.let_go_events), (Offset::ZERO, 0));
    }
}
