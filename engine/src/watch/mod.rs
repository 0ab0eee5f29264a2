//! One watcher. It catches up from the log, then follows the hub, and reads the log again when it falls behind.
//!
//! The watcher has received all events up to its position that concern it. Joining the hub returns an offset: the hub
//! delivers later events, and the log fills the gap between the position and that offset.

use crate::engine::Engine;
use crate::hub::{ChangeType, Delivery, Event, Place, Subscription};
use crate::log::Fault;
use crate::missed::{Ahead, Ask, NEAR, Reading};
use crate::past::View;
use crate::pins::Kept;
use crate::planted::{Bug, planted};
use crate::read_memory::{Charge, Reader};
use holdfast_core::Refusal;
use holdfast_core::authz::User;
use holdfast_core::event::Offset;
use holdfast_core::kinds::KindId;
use holdfast_core::list::Selection;
use holdfast_core::object::meta;
use holdfast_core::state::{Change, Entry, State};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use tokio::sync::mpsc::error::TryRecvError;

/// The point at which a watch begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatchStart {
    /// The watch begins with the current objects, as ADDED events.
    Now,
    /// The watch begins with the first event after this version.
    After(Offset),
}

pub struct Watch {
    engine: Arc<Engine>,
    selection: Selection,
    source: Source,
    /// Events from the log or the snapshot that the watch has not returned yet.
    pending: VecDeque<Delivery>,
    position: Offset,
    /// The current read of the log. While it runs, nothing is pending and the position does not change.
    reading: Option<Reading>,
    /// The offsets that earlier look-ups found and that must still be read.
    ahead: Ahead,
    /// The user whose turns and memory the watch uses.
    reader: Reader,
    /// Counts, as the reader's memory, the pending events that were made only for this watcher.
    charge: Option<Charge>,
    /// The version whose objects are the initial events; `None` after the end of these events was reported.
    initial: Option<Offset>,
    /// The initial events that must still be made.
    beginning: Option<Beginning>,
    /// This watch's slot among the watches of its user; `None` for a watch of the server itself.
    place: Option<Place>,
}

/// The objects with which a watch begins. Their events are made a few at a time, so that a watcher that does not read
/// has only few of these events in memory.
enum Beginning {
    /// The selected objects of a state, after this key.
    Picked(Begun, Option<Arc<str>>),
    Listed(std::vec::IntoIter<Arc<Entry>>),
}

/// The state with which a watch begins.
enum Begun {
    Own(Arc<State>),
    /// A state that is dropped when its memory is needed.
    Kept(Kept),
}

/// The number of initial events that are made at a time.
const BEGINNING_EVENTS_MAX: usize = 64;

impl Beginning {
    /// The next events; empty after the last event. Returns a fault if the state was dropped.
    fn next(&mut self, selection: &Selection) -> Result<VecDeque<Delivery>, Fault> {
        let kind = selection.kind;
        Ok(match self {
            Beginning::Picked(begun, after) => {
                let state = &begun.state()?;
                let picks = |(key, entry): &(&Arc<str>, &Arc<Entry>)| selection.matches(state.kind(kind), key, entry);
                // If the selection names an object, only its key is scanned.
                let prefix = selection.key.as_deref().unwrap_or(&selection.prefix);
                let picked = state.scan(kind, prefix, after.as_deref()).filter(picks);
                let picked: VecDeque<Delivery> = picked
                    .take(BEGINNING_EVENTS_MAX)
                    .map(|(key, entry)| added(kind, key.clone(), entry.clone()))
                    .collect();
                *after = picked.back().map(|last| last.event.change.key.clone());
                picked
            }
            Beginning::Listed(entries) => {
                entries.take(BEGINNING_EVENTS_MAX).map(|entry| added(kind, key_of(&entry), entry)).collect()
            }
        })
    }
}

impl Begun {
    fn state(&self) -> Result<Arc<State>, Fault> {
        match self {
            Begun::Own(state) => Ok(state.clone()),
            Begun::Kept(kept) => kept.state(),
        }
    }
}

/// The source of the events that follow the events from the log.
enum Source {
    Hub(Subscription),
    /// There is no source, because a watch of a past version ends at that version.
    Still(Arc<State>),
    /// There is no source, because the kind was redefined after the selection was made, or an object can no longer be
    /// read. A client that watches again gets the reason.
    Redefined,
}

impl Source {
    /// Events up to this offset must be read from the log, and later events come from the source.
    fn since(&self) -> Offset {
        match self {
            Source::Hub(subscription) => subscription.since,
            Source::Still(state) => state.offset,
            Source::Redefined => Offset::ZERO,
        }
    }

    /// Joins the hub. If the kind is deleted after the watcher joined, the hub drops the watcher. If the kind was
    /// deleted before the watcher joined, the hub does not drop the watcher, which would then wait without an end.
    /// Therefore a snapshot is taken after joining; it shows whether the kind still exists.
    fn join(engine: &Arc<Engine>, selection: &Selection, before: &State) -> (Source, Arc<State>) {
        let Some(kind) = before.registry.serves(selection.kind).then(|| before.kind(selection.kind)) else {
            return (Source::Redefined, engine.own_snapshot());
        };
        let subscription = engine.hub().subscribe(kind, selection);
        let after = engine.own_snapshot();
        match after.registry.serves(selection.kind) {
            true => (Source::Hub(subscription), after),
            false => (Source::Redefined, after),
        }
    }
}

impl Watch {
    pub(crate) fn new(engine: Arc<Engine>, selection: Selection, start: WatchStart) -> Watch {
        let before = engine.own_snapshot();
        Watch::join(engine, selection, start, &before)
    }

    /// Makes a watch and joins the hub. `before` is the state in which the kind was found.
    fn join(engine: Arc<Engine>, selection: Selection, start: WatchStart, before: &State) -> Watch {
        let (source, snapshot) = Source::join(&engine, &selection, before);
        let selection = match &source {
            Source::Hub(subscription) => subscription.selection().clone(),
            Source::Still(_) | Source::Redefined => selection,
        };
        let mut watch = Watch::begin(engine, selection, source);
        match start {
            _ if matches!(watch.source, Source::Redefined) => {}
            WatchStart::After(offset) if planted(Bug::ResumeSkips) => watch.position = offset.next(),
            WatchStart::After(offset) if planted(Bug::ResumeRepeats) => {
                watch.position = Offset(offset.0.saturating_sub(1));
            }
            WatchStart::After(offset) => watch.position = offset,
            WatchStart::Now => {
                // The snapshot is taken after joining, so it contains every event that was delivered before the join.
                watch.position = snapshot.offset;
                watch.initial = Some(snapshot.offset);
                watch.beginning = Some(Beginning::Picked(Begun::Own(snapshot), None));
                // The state was taken just now, so it cannot have been dropped.
                let _ = watch.begin_on();
            }
        }
        watch
    }

    /// Makes a watch of a view of the past, which ends at the version of the view.
    pub(crate) async fn still(
        engine: Arc<Engine>,
        view: View,
        selection: Selection,
        start: WatchStart,
    ) -> Result<Watch, Refusal> {
        let mut watch = Watch::begin(engine, selection, Source::Still(view.state().clone()));
        match start {
            WatchStart::After(offset) => watch.position = offset,
            WatchStart::Now => {
                let (page, charge) = view.counted_page(&watch.selection, None, None).await?;
                watch.charge = charge;
                watch.position = view.offset();
                watch.initial = Some(view.offset());
                watch.beginning = Some(Beginning::Listed(page.entries.into_iter()));
                let _ = watch.begin_on();
            }
        }
        Ok(watch)
    }

    fn begin(engine: Arc<Engine>, selection: Selection, source: Source) -> Watch {
        Watch {
            engine,
            selection,
            source,
            pending: VecDeque::new(),
            position: Offset::ZERO,
            reading: None,
            ahead: Ahead::default(),
            reader: Reader::SERVER,
            charge: None,
            initial: None,
            beginning: None,
            place: None,
        }
    }

    /// Counts this watch against the user's limit, and its objects as the user's memory.
    pub fn of_user(mut self, user: &User) -> Result<Watch, Refusal> {
        let Selection { labels, fields, .. } = &self.selection;
        let place = self.engine.hub().place(&user.name, labels.bytes() + fields.bytes());
        let place = place.map_err(|what| Refusal::TooManyRequests { what, retry_after_seconds: 10 })?;
        self.place = Some(place);
        self.reader = Reader::of(user);
        self.count_waiting();
        if let Some(Beginning::Picked(begun, _)) = &mut self.beginning
            && let Begun::Own(state) = begun
        {
            *begun = Begun::Kept(self.engine.pins().keep(state, &self.reader, None)?);
        }
        Ok(self)
    }

    /// Counts, as memory of the user, the events that wait in the hub's queue for this watch.
    fn count_waiting(&self) {
        if let (Source::Hub(subscription), Some(_)) = (&self.source, &self.place) {
            subscription.count_with(self.engine.reads().memory().nothing(&self.reader));
        }
    }

    /// Whether the watch must read much of the log before it has caught up.
    pub fn is_far_behind(&self) -> bool {
        self.source.since().0.saturating_sub(self.position.0) > NEAR
    }

    /// Whether the memory of the last returned event already counts as memory of the reader.
    pub fn is_counted(&self) -> bool {
        self.charge.is_some()
    }

    /// Whether the watch is still returning its initial objects.
    pub fn is_beginning(&self) -> bool {
        self.initial.is_some()
    }

    /// The version of the initial state. The version is returned once, after all events of the initial state.
    pub fn initial_events_ended(&mut self) -> Option<Offset> {
        if self.pending.is_empty() && self.beginning.is_none() { self.initial.take() } else { None }
    }

    /// Waits for the next event that concerns the watcher.
    pub async fn next(&mut self) -> Result<Delivery, Fault> {
        loop {
            if let Some(delivery) = self.next_ready()? {
                return Ok(delivery);
            }
            if self.reading.is_some() {
                poll_fn(|context| self.poll_catch_up(context)).await?;
                continue;
            }
            let subscription = match &mut self.source {
                Source::Hub(subscription) => subscription,
                Source::Still(_) => return std::future::pending().await,
                Source::Redefined => return Err(Fault::Redefined),
            };
            match subscription.recv().await {
                Some(delivery) => {
                    if let Some(delivery) = self.accept(delivery) {
                        return Ok(delivery);
                    }
                }
                None => self.rejoin(),
            }
        }
    }

    /// The next event if it is available without reading the log.
    pub fn next_ready(&mut self) -> Result<Option<Delivery>, Fault> {
        loop {
            if let Some(delivery) = self.pending.pop_front() {
                if self.pending.is_empty() {
                    // A fault is not returned here, because the next call, when nothing is pending, returns it.
                    let _ = self.begin_on();
                }
                return Ok(Some(delivery));
            }
            if self.beginning.is_some() {
                self.begin_on()?;
                continue;
            }
            // The caller asks for the next event only after it has handled the last event, so the last event no longer
            // counts as memory.
            self.charge = None;
            if self.position < self.source.since() {
                match self.poll_catch_up(&mut Context::from_waker(Waker::noop())) {
                    Poll::Ready(read) => read?,
                    Poll::Pending => return Ok(None),
                }
                continue;
            }
            let subscription = match &mut self.source {
                Source::Hub(subscription) => subscription,
                Source::Still(_) => return Ok(None),
                Source::Redefined => return Err(Fault::Redefined),
            };
            match subscription.try_recv() {
                Ok(delivery) => {
                    if let Some(delivery) = self.accept(delivery) {
                        return Ok(Some(delivery));
                    }
                }
                Err(TryRecvError::Empty) => return Ok(None),
                Err(TryRecvError::Disconnected) => self.rejoin(),
            }
        }
    }

    /// Puts the last returned event back. The next call returns it again.
    pub fn put_back(&mut self, delivery: Delivery) {
        self.pending.push_front(delivery);
    }

    /// Makes the next few initial events, and adds them to the pending events.
    fn begin_on(&mut self) -> Result<(), Fault> {
        if let Some(beginning) = &mut self.beginning {
            self.pending = beginning.next(&self.selection)?;
            if self.pending.len() < BEGINNING_EVENTS_MAX {
                self.beginning = None;
            }
        }
        Ok(())
    }

    /// A version up to which this watcher has seen all events; `None` while an event waits for the watcher.
    pub fn bookmark(&mut self) -> Result<Option<Offset>, Fault> {
        let delivered = match &self.source {
            Source::Hub(_) => self.engine.hub().delivered(),
            Source::Still(state) => state.offset,
            Source::Redefined => return Err(Fault::Redefined),
        };
        // A watch that starts at a future version has not seen the events before that version.
        if self.position > delivered && self.position > self.engine.own_snapshot().offset {
            return Ok(None);
        }
        if planted(Bug::BookmarkTooEarly) && self.pending.is_empty() {
            return Ok(Some(self.position.max(delivered)));
        }
        // Events up to `delivered` are queued now, so an empty queue means that the watcher has seen all of them.
        match self.next_ready()? {
            Some(delivery) => {
                self.put_back(delivery);
                Ok(None)
            }
            None if self.reading.is_some() => Ok(None),
            None => {
                self.position = self.position.max(delivered);
                Ok(Some(self.position))
            }
        }
    }

    /// Skips events that the snapshot already contained.
    fn accept(&mut self, delivery: Delivery) -> Option<Delivery> {
        let offset = delivery.event.change.offset;
        if offset <= self.position {
            return None;
        }
        self.position = offset;
        Some(delivery)
    }

    /// Joins the hub again after the hub dropped this watcher. The watcher reads the events that it missed from the
    /// log.
    fn rejoin(&mut self) {
        let before = self.engine.own_snapshot();
        self.source = Source::join(&self.engine, &self.selection, &before).0;
        let Selection { kind, key, prefix, .. } = &self.selection;
        if before.registry.serves(*kind) {
            let prefix = key.as_ref().unwrap_or(prefix);
            let unreadable = self.engine.unreadable(&before.kind(*kind).storage.path, prefix, 1);
            if unreadable.iter().any(|one| key.as_ref().is_none_or(|key| *key == one.key)) {
                self.source = Source::Redefined;
            }
        }
        self.count_waiting();
    }

    /// Takes the next events of the gap, once they were read from the log.
    fn poll_catch_up(&mut self, context: &mut Context) -> Poll<Result<(), Fault>> {
        if self.reading.is_none() {
            self.reading = Some(self.begin_reading()?);
        }
        let Some(reading) = &mut self.reading else { return Poll::Pending };
        let read = ready!(reading.as_mut().poll(context));
        self.reading = None;
        let missed = read?;
        self.pending.extend(missed.deliveries);
        self.position = missed.position;
        self.ahead = missed.ahead;
        self.charge = Some(missed.charge).filter(|charge| charge.bytes() > 0);
        Poll::Ready(Ok(()))
    }

    fn begin_reading(&mut self) -> Result<Reading, Fault> {
        let state = match &self.source {
            Source::Hub(_) => self.engine.own_snapshot(),
            Source::Still(state) => state.clone(),
            Source::Redefined => return Err(Fault::Redefined),
        };
        if !state.registry.serves(self.selection.kind) {
            return Err(Fault::Redefined);
        }
        let (began, until) = (self.position, self.source.since());
        let (selection, reader) = (self.selection.clone(), self.reader.clone());
        let ask = Ask { selection, state, began, until, reader, ahead: std::mem::take(&mut self.ahead) };
        Ok(ask.begin(self.engine.log().clone(), self.engine.reads()))
    }
}

impl Engine {
    /// Begins a watch of the objects that `selection` selects.
    pub fn watch(self: &Arc<Self>, selection: Selection, start: WatchStart) -> Watch {
        Watch::new(self.clone(), selection, start)
    }

    /// Watches the selection up to the version of the view. No event follows after that version.
    pub async fn watch_past(
        self: &Arc<Self>,
        view: View,
        selection: Selection,
        start: WatchStart,
    ) -> Result<Watch, Refusal> {
        Watch::still(self.clone(), view, selection, start).await
    }
}

/// An ADDED event for an object of the initial state.
fn added(kind: KindId, key: Arc<str>, entry: Arc<Entry>) -> Delivery {
    let change = Change { offset: entry.offset, kind, key, entry, deleted: false };
    Delivery { event: Arc::new(Event::new(change, None)), change_type: ChangeType::Added }
}

fn key_of(entry: &Entry) -> Arc<str> {
    let document = entry.document();
    let text = |field: &str| document["metadata"][field].as_str();
    meta::key(text("namespace"), text("name").unwrap_or_default()).into()
}

#[cfg(test)]
mod tests;
