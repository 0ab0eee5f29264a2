//! A simulated watcher. It lists, watches at its own pace, resumes after interruptions, and notices every missing
//! event.

use crate::coverage::{Mark, saw};
use crate::custom::DEFINITIONS;
use crate::door;
use crate::oracle::CheckResult;
use crate::pick::{Pick, picked};
use crate::random::Dice;
use crate::reader::{Reading, Sight, past};
use crate::rights;
use crate::server::QUEUE_EVENTS;
use crate::shape::{SORTS, Sort};
use crate::twin::{ObjectVersion, Twin};
use holdfast_core::Refusal;
use holdfast_core::authz::User;
use holdfast_core::request::Verb;
use holdfast_engine::{ChangeType, Delivery, Fault, Watch};
use holdfast_service::{Call, Reply};
use holdfast_value::Value;
use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

pub struct Follower {
    user: Arc<User>,
    pub sort: Sort,
    pub pick: Pick,
    watch: Option<Watch>,
    /// Whether the watcher must list, because it has no state, or because the server has forgotten the version of its
    /// state.
    blank: bool,
    /// The initial objects that a watch has sent so far, before the bookmark that ends them; `None` after this
    /// bookmark.
    initial: Option<BTreeMap<String, u64>>,
    /// The watcher has received every event up to this version that concerns it.
    position: u64,
    /// Whether a bookmark, and not an event, has set `position`.
    bookmarked: bool,
    /// The offset of the newest event when the watch was opened.
    opened: u64,
    /// The objects that the watcher knows, each with its version.
    held: BTreeMap<String, u64>,
    /// Events that a server sent before it crashed, and that the watcher has not processed yet.
    last_words: Vec<Delivery>,
    /// The fault with which the watch ended before the server crashed; `None` if the watch had not ended.
    ended: Option<Fault>,
}

/// How an event should look for a watcher.
struct ExpectedEvent<'a> {
    what: &'static str,
    version: &'a ObjectVersion,
    /// If the event takes the object out of the selection, the last state that the object had in the selection.
    left: Option<&'a ObjectVersion>,
}

impl Follower {
    fn new(dice: &mut Dice) -> Follower {
        let (user, sort) = (rights::draw(dice), dice.pick(&SORTS));
        Follower {
            user,
            sort,
            pick: Pick::draw(dice, sort),
            watch: None,
            blank: true,
            initial: None,
            position: 0,
            bookmarked: false,
            opened: 0,
            held: BTreeMap::new(),
            last_words: Vec::new(),
            ended: None,
        }
    }

    pub fn draw(dice: &mut Dice, sight: Sight) -> Result<Follower, String> {
        let mut follower = Follower::new(dice);
        let newest = sight.newest();
        if dice.chance(15) && newest > 0 {
            // Some watchers begin as if they resumed after a long interruption.
            follower.remembers(sight.twin, past(dice, newest));
            follower.resume(sight)?;
            saw(Mark::WatchStartedInThePast);
        } else {
            follower.start(dice.chance(40), sight)?;
        }
        Ok(follower)
    }

    /// Sets the watcher's state to the state at a past version.
    fn remembers(&mut self, twin: &Twin, offset: u64) {
        self.held = picked(twin, self.sort, &self.pick, offset)
            .map(|(key, version)| (key.to_owned(), version.offset))
            .collect();
        (self.blank, self.position) = (false, offset);
    }

    /// A watch that ends at a past version, and that begins at the start of the log or at an earlier version. Returns
    /// `None` if the kind did not exist at that version, or if this user may not watch it.
    pub fn of_past(dice: &mut Dice, sight: Sight, at: u64) -> Result<Result<Option<Follower>, Refusal>, String> {
        let mut follower = Follower::new(dice);
        let from = if dice.chance(50) {
            (follower.blank, follower.position, follower.initial) = (false, at, Some(BTreeMap::new()));
            None
        } else {
            follower.remembers(sight.twin, at.saturating_sub(dice.below(30) as u64).max(1));
            Some(follower.position)
        };
        follower.opened = at;
        let asked = from.unwrap_or(at);
        let call = Call { at: Some(at.to_string()), ..follower.call(Verb::Watch, from) };
        match door::ask(sight.service, call) {
            Err(refusal) if follower.explains(sight, Verb::Watch, Some(asked.min(at)), &refusal)? => Ok(Ok(None)),
            // The server refuses the watch because the kind did not exist at that version.
            Err(Refusal::NoSuchPath) if follower.sort.is_custom() && sight.twin.law(at).is_none() => Ok(Ok(None)),
            Err(refusal) => Ok(Err(refusal)),
            Ok(reply) => {
                follower.watch = Some(follower.opened(sight, Some(asked), reply)?);
                Ok(Ok(Some(follower)))
            }
        }
    }

    /// The call that reads the watcher's selection. If `from` names a version, the call begins at this version.
    fn call(&self, verb: Verb, from: Option<u64>) -> Call {
        let (mut options, namespace) = self.pick.terms();
        options.watch = verb == Verb::Watch;
        options.allow_watch_bookmarks = options.watch;
        options.resource_version = from.map(|from| from.to_string());
        door::read(&self.user, self.sort, verb, (namespace.as_deref(), None), options)
    }

    /// Whether a refusal is right because the user lacks a right or because the kind is not served.
    fn explains(&self, sight: Sight, verb: Verb, asked: Option<u64>, refusal: &Refusal) -> Result<bool, String> {
        let (_, namespace) = self.pick.terms();
        let namespace = namespace.as_deref().unwrap_or("");
        let reading = Reading { user: &self.user, verb, sort: self.sort, namespace, asked };
        reading.explains(sight, refusal).map_err(|why| self.blame(&why))
    }

    /// Takes the watch out of a reply, and checks that the user has the right to watch.
    fn opened(&self, sight: Sight, asked: Option<u64>, reply: Reply) -> Result<Watch, String> {
        let (_, namespace) = self.pick.terms();
        let namespace = namespace.as_deref().unwrap_or("");
        let reading = Reading { user: &self.user, verb: Verb::Watch, sort: self.sort, namespace, asked };
        reading.check_right(sight).and_then(|()| reading.check_shown(sight)).map_err(|why| self.blame(&why))?;
        match reply {
            Reply::Watch(watched) => Ok(watched.watch),
            other => Err(self.blame(&format!("it is answered with {other:?}"))),
        }
    }

    /// Opens the watch. Returns false if the user has no right to watch at present, or if the kind is not defined at
    /// present. The user may get the right later, and the kind may be defined again.
    fn open(&mut self, sight: Sight, from: Option<u64>) -> Result<bool, String> {
        match door::ask(sight.service, self.call(Verb::Watch, from)) {
            Ok(reply) => {
                self.opened = sight.newest();
                self.watch = Some(self.opened(sight, from, reply)?);
                Ok(true)
            }
            Err(refusal) if self.explains(sight, Verb::Watch, from, &refusal)? => {
                // The version may be a version of an earlier namespace that had this name. If so, the server answers
                // that the version has expired, and the watcher must list the current namespace.
                self.blank |= matches!(refusal, Refusal::Expired { .. });
                Ok(false)
            }
            Err(refusal) => Err(self.blame(&format!("it cannot be opened: {refusal:?}"))),
        }
    }

    /// Lists the objects and then watches them, or opens a watch that sends the initial objects.
    fn start(&mut self, now: bool, sight: Sight) -> CheckResult {
        let mut held = BTreeMap::new();
        let mut from = None;
        if !now {
            let listed = match door::ask(sight.service, self.call(Verb::List, None)) {
                Ok(Reply::List(listed)) => listed,
                Err(refusal) if self.explains(sight, Verb::List, None, &refusal)? => return Ok(()),
                other => return Err(self.blame(&format!("it cannot list: {other:?}"))),
            };
            held.extend(listed.page.entries.iter().map(|entry| (key_of(&entry.document()), entry.offset.0)));
            from = Some(listed.page.offset.0);
        }
        if !self.open(sight, from)? {
            return Ok(());
        }
        saw(if now { Mark::WatchTold } else { Mark::WatchStarted });
        self.held = held;
        self.bookmarked = false;
        self.blank = false;
        self.initial = now.then(BTreeMap::new);
        self.position = from.unwrap_or(self.opened);
        Ok(())
    }

    /// Breaks the watcher's connection.
    pub fn cut(&mut self) {
        saw(Mark::WatchCut);
        (self.watch, self.ended) = (None, None);
        self.last_words.clear();
    }

    /// Resumes at the last version that the watcher knows, if the kind is served and the user has the right.
    pub fn resume(&mut self, sight: Sight) -> CheckResult {
        if self.blank || self.initial.is_some() {
            return self.start(self.initial.is_some(), sight);
        }
        let bookmarked = self.bookmarked;
        if self.open(sight, Some(self.position))? {
            saw(if bookmarked { Mark::WatchResumedFromBookmark } else { Mark::WatchResumed });
        }
        Ok(())
    }

    /// Whether the watcher has no watch, and has already handled the end of its last watch.
    pub fn is_cut(&self) -> bool {
        self.watch.is_none() && self.ended.is_none()
    }

    /// Registers `waker`, which is woken when the next event arrives.
    pub fn wait(&mut self, waker: &Waker) {
        if let Some(watch) = &mut self.watch
            && self.initial.is_none()
        {
            let polled = pin!(watch.next()).poll(&mut Context::from_waker(waker));
            match polled {
                Poll::Ready(Ok(delivery)) => self.last_words.push(delivery),
                Poll::Ready(Err(fault)) => (self.watch, self.ended) = (None, Some(fault)),
                Poll::Pending => {}
            }
        }
    }

    /// Keeps the events that the server sent before it crashed, so that the watcher can process them later.
    pub fn outlive(&mut self) {
        if let Some(mut watch) = self.watch.take()
            && self.initial.is_none()
        {
            while let Ok(Some(delivery)) = watch.next_ready() {
                self.last_words.push(delivery);
            }
        }
    }

    /// Processes the events that the server sent before it crashed. The twin already contains the events that became
    /// durable.
    pub fn remember(&mut self, twin: &Twin) -> CheckResult {
        for delivery in std::mem::take(&mut self.last_words) {
            let why = self.take(twin, &delivery);
            why.map_err(|why| self.blame(&format!("it was told before what is not so: {why}")))?;
        }
        self.ended.take().map_or(Ok(()), |fault| self.end(twin, &fault))
    }

    /// Reads up to `count` events. Returns true if no event is left.
    pub fn read(&mut self, twin: &Twin, count: usize) -> Result<bool, String> {
        self.remember(twin)?;
        let mut later = 0;
        for _ in 0..count {
            let Some(watch) = &mut self.watch else { return Ok(true) };
            if self.initial.is_some()
                && let Some(end) = watch.initial_events_ended()
            {
                self.begin(twin, end.0)?;
                continue;
            }
            match watch.next_ready() {
                Ok(Some(delivery)) => {
                    self.take(twin, &delivery).map_err(|why| self.blame(&why))?;
                    later += usize::from(self.position > self.opened && self.initial.is_none());
                    // The watch has sent more events than its queue can hold, so the server has read some of them from
                    // the log.
                    if later == QUEUE_EVENTS + 1 {
                        saw(Mark::WatchFellBehind);
                    }
                }
                Ok(None) => return Ok(true),
                Err(fault) => return self.end(twin, &fault).map(|()| true),
            }
        }
        Ok(false)
    }

    /// Checks that a watch ends only because its kind was redefined, or because its version has expired.
    fn end(&mut self, twin: &Twin, fault: &Fault) -> CheckResult {
        self.watch = None;
        match fault {
            Fault::Redefined if self.sort.is_custom() => {
                saw(Mark::WatchRedefined);
                let changed = twin.of_storage(DEFINITIONS, self.opened, u64::MAX).next().is_some();
                if changed { Ok(()) } else { Err(self.blame("its kind is said to be redefined, and is not")) }
            }
            Fault::Forgotten { asked, .. } if self.position < twin.forgotten && asked.0 < twin.forgotten => {
                saw(Mark::WatchForgotten);
                self.blank = true;
                Ok(())
            }
            fault => Err(self.blame(&format!("it ends: {fault}"))),
        }
    }

    /// All initial events of the watch have arrived. Checks that they are the state at the version `end`.
    fn begin(&mut self, twin: &Twin, end: u64) -> CheckResult {
        let found = self.initial.take().unwrap_or_default();
        self.agree(twin, end, &found, "the first events tell of")?;
        self.held = found;
        self.position = end;
        Ok(())
    }

    fn agree(&self, twin: &Twin, at: u64, found: &BTreeMap<String, u64>, what: &str) -> CheckResult {
        let expected = || picked(twin, self.sort, &self.pick, at).map(|(key, version)| (key, version.offset));
        if expected().eq(found.iter().map(|(key, offset)| (key.as_str(), *offset))) {
            return Ok(());
        }
        let expected: BTreeMap<_, _> = expected().collect();
        Err(self.blame(&format!("{what} {found:?} and not {expected:?} at {at}")))
    }

    fn take(&mut self, twin: &Twin, delivery: &Delivery) -> CheckResult {
        let change = &delivery.event.change;
        let what = delivery.change_type.as_str();
        let offset = change.offset.0;
        if let Some(initial) = &mut self.initial {
            if what != "ADDED" || initial.insert(change.key.to_string(), offset).is_some() {
                return Err(format!("{what} {} at {offset} among the first events", change.key));
            }
            return Ok(());
        }
        let mut expected = self.expected(twin, offset);
        let next = expected.next();
        let matching = |next: &ExpectedEvent| next.version.offset == offset && next.what == what;
        let Some(next) = next.filter(matching).filter(|next| next.version.record.key == *change.key) else {
            let list: Vec<_> = self.expected(twin, offset).map(|next| next.to_string()).collect();
            return Err(format!("{what} {} at {offset}, where {list:?} should come", change.key));
        };
        if let Some(left) = next.left {
            let shown = delivery.event.shown(ChangeType::Deleted).document();
            // The object has left the selection. The event must contain the last state that the object had in the
            // selection, with the version of the event.
            let mut last = left.document.clone();
            last["metadata"]["resourceVersion"] = offset.to_string().into();
            if shown != last {
                return Err(format!("{next} shows\n  {shown}\n  in place of\n  {last}"));
            }
        } else if change.entry.json() != next.version.record.object {
            let (shown, stored) = (change.entry.document(), &next.version.document);
            return Err(format!("{next} shows\n  {shown}\n  in place of\n  {stored}"));
        }
        saw(match (what, next.left) {
            ("ADDED", _) if next.version.record.replaces > 0 => Mark::WatchEntered,
            ("ADDED", _) => Mark::WatchAdded,
            ("MODIFIED", _) => Mark::WatchModified,
            (_, Some(_)) => Mark::WatchLeft,
            (_, None) => Mark::WatchDeleted,
        });
        drop(expected);
        match what {
            "DELETED" => drop(self.held.remove(&*change.key)),
            _ => drop(self.held.insert(change.key.to_string(), offset)),
        }
        (self.position, self.bookmarked) = (offset, false);
        Ok(())
    }

    /// The events that the watcher should get after its position and up to the version `to`.
    fn expected<'a>(&self, twin: &'a Twin, to: u64) -> impl Iterator<Item = ExpectedEvent<'a>> + use<'a> {
        let (storage, pick) = (self.sort.storage(), self.pick);
        twin.of_storage(storage, self.position, to).filter_map(move |version| {
            let record = &version.record;
            let before = twin.version_at(storage, &record.key, version.offset - 1);
            let was = before.filter(|before| pick.matches(&record.key, before));
            let is = !version.deleted && pick.matches(&record.key, version);
            let (what, left) = match (was, is) {
                (None, false) => return None,
                (None, true) => ("ADDED", None),
                (Some(_), true) => ("MODIFIED", None),
                (Some(_), false) if version.deleted => ("DELETED", None),
                (Some(before), false) => ("DELETED", Some(before)),
            };
            Some(ExpectedEvent { what, version, left })
        })
    }

    /// Requests a bookmark, and checks that its version is not ahead of the events that the watcher has received.
    pub fn bookmark(&mut self, twin: &Twin) -> CheckResult {
        self.remember(twin)?;
        if self.initial.is_some() {
            return Ok(());
        }
        let Some(watch) = &mut self.watch else { return Ok(()) };
        let bookmark = match watch.bookmark() {
            Ok(Some(bookmark)) => bookmark,
            Ok(None) => return Ok(()),
            Err(fault) => return self.end(twin, &fault),
        };
        let missing: Vec<String> = self.expected(twin, bookmark.0).map(|event| event.to_string()).collect();
        if bookmark.0 < self.position || bookmark.0 > twin.last() || !missing.is_empty() {
            return Err(self.blame(&format!("bookmark {bookmark} passes over {missing:?} of {}", twin.last())));
        }
        saw(Mark::Bookmarked);
        (self.position, self.bookmarked) = (bookmark.0, true);
        Ok(())
    }

    /// Checks, after the watcher has read everything, that the objects which it knows are the current objects.
    pub fn check(&self, twin: &Twin, published: u64) -> CheckResult {
        if self.watch.is_none() || self.initial.is_some() {
            return Ok(());
        }
        let missing: Vec<String> = self.expected(twin, published).map(|event| event.to_string()).collect();
        if !missing.is_empty() {
            return Err(self.blame(&format!("it was never told of {missing:?}")));
        }
        self.agree(twin, published, &self.held, "it believes in")
    }

    fn blame(&self, why: &str) -> String {
        format!("a watcher of {:?} {:?} at {}: {why}", self.sort, self.pick, self.position)
    }
}

impl std::fmt::Display for ExpectedEvent<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} {}", self.version.offset, self.what, self.version.record.key)
    }
}

pub fn key_of(object: &Value) -> String {
    let text = |field: &str| object["metadata"][field].as_str();
    holdfast_core::object::meta::key(text("namespace"), text("name").unwrap_or(""))
}
