//! Reads of the past, apart from lists and gets: whole states, moments named by a time, and watches that end at a
//! version.

use crate::coverage::{Mark, saw};
use crate::door;
use crate::door::at_once;
use crate::follower::Follower;
use crate::oracle::{self, CheckResult, ensure};
use crate::random::Dice;
use crate::reader::{Sight, past};
use crate::rights;
use crate::shape::Sort;
use crate::twin::{ObjectVersion, Twin};
use holdfast_core::Refusal;
use holdfast_core::event::Offset;
use holdfast_core::history::moment::DISORDER_MS;
use holdfast_core::request::{Options, Verb};
use holdfast_service::Reply;
use jiff::Timestamp;

/// Checks that a whole state of the past is read as it was.
pub fn check_whole(dice: &mut Dice, sight: Sight) -> CheckResult {
    let Sight { engine, twin, .. } = sight;
    let user = rights::draw(dice);
    let offset = past(dice, sight.newest());
    let granted = match door::ask(sight.service, door::everything(&user)) {
        Ok(Reply::Granted(_)) => true,
        Err(Refusal::Forbidden { .. }) => false,
        other => return Err(format!("{} asks for everything: {other:?}", user.name)),
    };
    ensure(granted == rights::sees_all(&user), || format!("everything is granted to {}: {granted}", user.name))?;
    if !granted {
        saw(Mark::EverythingDenied);
        return Ok(());
    }
    match at_once(engine.state_at(Offset(offset))) {
        Ok(state) => {
            saw(Mark::PastWhole);
            ensure(state.offset.0 == offset, || format!("version {offset} was asked for, and not {}", state.offset))?;
            oracle::check_state(twin, &state)
        }
        Err(Refusal::Expired { .. }) => {
            saw(Mark::PastExpired);
            ensure(offset < twin.forgotten, || format!("version {offset} expired"))
        }
        Err(refusal) => Err(format!("version {offset} cannot be read: {refusal:?}")),
    }
}

/// Checks that a time stands for the version before the first event that is later than the time.
pub fn check_time(dice: &mut Dice, sight: Sight) -> CheckResult {
    let Sight { twin, now_ms, .. } = sight;
    let newest = sight.newest();
    // Each call to the service advances the simulated time by a millisecond.
    let now_ms = now_ms + 1;
    let (text, time_ms) = if dice.chance(30) {
        let seconds = dice.below(900) as i64;
        (format!("-{seconds}s"), now_ms - seconds * 1000)
    } else {
        let near = twin.event(past(dice, newest)).map_or(now_ms, |version| version.record.time_ms);
        let time_ms = near + dice.below(5) as i64 - 2;
        (Timestamp::from_millisecond(time_ms).unwrap_or_default().to_string(), time_ms)
    };
    let blame = |why: String| format!("the moment {text} of {newest}: {why}");
    let list = door::read(&rights::admin(), Sort::Namespace, Verb::List, (None, None), Options::default());
    match door::ask(sight.service, door::at(list, text.clone())) {
        Ok(Reply::List(listed)) => {
            let found = listed.page.offset;
            saw(Mark::ReadAtTime);
            ensure(time_ms <= now_ms, || blame("it is of the future".into()))?;
            ensure(found.0 <= newest && found.0 >= twin.forgotten, || blame(format!("it is said to be {found}")))?;
            is_moment(twin, time_ms, found.0).map_err(blame)
        }
        Err(Refusal::Expired { .. }) => {
            let there = (1..=twin.forgotten).filter_map(|offset| twin.event(offset));
            let later = there.into_iter().any(|version| version.record.time_ms > time_ms);
            ensure(later, || blame("it is said to be let go".into()))
        }
        Err(Refusal::BadRequest(_)) => ensure(time_ms > now_ms || found_unpublished(twin, newest), || {
            blame("it is said to be of the future".into())
        }),
        Ok(other) => Err(blame(format!("{other:?}"))),
        Err(refusal) => Err(blame(format!("{refusal:?}"))),
    }
}

/// Whether the log contains events that became durable in spite of a fault. Such events are not published until the log
/// has recovered.
fn found_unpublished(twin: &Twin, newest: u64) -> bool {
    twin.last() > newest
}

/// Checks that the version `found` belongs to this time. If the clock was set back, several versions may be right.
pub fn is_moment(twin: &Twin, time_ms: i64, found: u64) -> CheckResult {
    let later = |version: &ObjectVersion| version.record.time_ms > time_ms;
    let events = || (1..=twin.last()).filter_map(|offset| twin.event(offset));
    let mut highest = i64::MIN;
    let in_order = events().all(|version| {
        highest = highest.max(version.record.time_ms);
        version.record.time_ms >= highest - DISORDER_MS
    });
    let expected = events().find(|version| later(version)).map_or(twin.last(), |version| version.offset - 1);
    if in_order {
        return ensure(found == expected, || format!("it is said to be {found}, and is {expected}"));
    }
    // If the clock was set back, several versions may be followed by an event that is later than the time. `found` must
    // be one of these versions.
    let next = twin.event(found + 1).filter(|version| !twin.may_be_gone(version));
    ensure(next.is_none_or(later), || format!("it is said to be {found}, and the event after it is no later"))
}

/// Checks that a watch which ends at a past version sends the events up to this version, and no later event.
pub fn check_watch(dice: &mut Dice, sight: Sight) -> CheckResult {
    let twin = sight.twin;
    let at = past(dice, sight.newest());
    let forgotten = |from: u64| ensure(from < twin.forgotten, || format!("a watch up to {at} from {from} expired"));
    match Follower::of_past(dice, sight, at)? {
        Ok(Some(mut follower)) => {
            while !follower.read(twin, 16)? {}
            follower.bookmark(twin)?;
            saw(Mark::PastWatched);
            follower.check(twin, at)
        }
        Ok(None) => Ok(()),
        Err(Refusal::Expired { .. }) => forgotten(at),
        Err(refusal) => Err(format!("version {at} cannot be watched: {refusal:?}")),
    }
}
