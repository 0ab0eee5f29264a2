//! One watcher: catches up from the log, then follows the hub, and goes back to the log when it fell behind.
//!
//! The position is the last event that the watcher has been given or that did not concern it. Joining the hub
//! yields an offset up to which everything was delivered before; the log fills the gap between the two.

use crate::engine::Engine;
use crate::hub::{ChangeType, Delivery, Event, Subscription};
use crate::log::Fault;
use crate::past::View;
use crate::planted::{Bug, planted};
use holdfast_core::Refusal;
use holdfast_core::event::Offset;
use holdfast_core::kinds::KindId;
use holdfast_core::list::Selection;
use holdfast_core::object::meta;
use holdfast_core::state::{Change, Entry, State};
use std::collections::VecDeque;
use std::sync::Arc;
use tokio::sync::mpsc::error::TryRecvError;

/// How many records are read from the log at a time.
const CATCH_UP_RECORDS: usize = 256;

/// Where a watch begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatchStart {
    /// With what is there now, as ADDED events.
    Now,
    /// After this version.
    After(Offset),
}

pub struct Watch {
    engine: Arc<Engine>,
    selection: Selection,
    source: Source,
    /// Read from the log or the snapshot, not given out yet.
    pending: VecDeque<Delivery>,
    position: Offset,
    /// The version whose objects are the first events; `None` once they are given out.
    initial: Option<Offset>,
}

/// Where events come from once the log has been read.
enum Source {
    Hub(Subscription),
    /// Nowhere: a past version is followed up to itself.
    Still(Arc<State>),
    /// Nowhere any more: the kind is no longer what the selection was made for.
    Redefined,
}

impl Source {
    /// Events up to this one are in the log.
    fn since(&self) -> Offset {
        match self {
            Source::Hub(subscription) => subscription.since,
            Source::Still(state) => state.offset,
            Source::Redefined => Offset::ZERO,
        }
    }

    /// Joins the hub. Of a kind that goes before that the hub would never tell, of one that goes later it does: so
    /// whether the kind is still there is looked up in a snapshot taken after joining.
    fn join(engine: &Arc<Engine>, selection: &Selection, before: &State) -> (Source, Arc<State>) {
        let Some(kind) = before.registry.serves(selection.kind).then(|| before.kind(selection.kind)) else {
            return (Source::Redefined, engine.snapshot());
        };
        let subscription = engine.hub().subscribe(kind, selection);
        let after = engine.snapshot();
        match after.registry.serves(selection.kind) {
            true => (Source::Hub(subscription), after),
            false => (Source::Redefined, after),
        }
    }
}

impl Watch {
    pub(crate) fn new(engine: Arc<Engine>, selection: Selection, start: WatchStart) -> Watch {
        let before = engine.snapshot();
        Watch::join(engine, selection, start, &before)
    }

    /// `before`: the state in which the kind was found.
    fn join(engine: Arc<Engine>, selection: Selection, start: WatchStart, before: &State) -> Watch {
        let (source, snapshot) = Source::join(&engine, &selection, before);
        let mut watch = Watch::begin(engine, selection, source);
        match start {
            _ if matches!(watch.source, Source::Redefined) => {}
            WatchStart::After(offset) if planted(Bug::ResumeSkips) => watch.position = offset.next(),
            WatchStart::After(offset) if planted(Bug::ResumeRepeats) => {
                watch.position = Offset(offset.0.saturating_sub(1));
            }
            WatchStart::After(offset) => watch.position = offset,
            WatchStart::Now => {
                // Taken after joining: it holds everything that was delivered before.
                watch.position = snapshot.offset;
                let kind = snapshot.kind(watch.selection.kind);
                let objects = snapshot.scan(watch.selection.kind, &watch.selection.prefix, None);
                let picked = objects.filter(|(key, entry)| watch.selection.matches(kind, key, entry));
                watch.pending =
                    picked.map(|(key, entry)| added(watch.selection.kind, key.clone(), entry.clone())).collect();
                watch.initial = Some(snapshot.offset);
            }
        }
        watch
    }

    /// A watch in which nothing comes behind the version of the view.
    pub(crate) fn still(
        engine: Arc<Engine>,
        view: View,
        selection: Selection,
        start: WatchStart,
    ) -> Result<Watch, Refusal> {
        let mut watch = Watch::begin(engine, selection, Source::Still(view.state().clone()));
        match start {
            WatchStart::After(offset) => watch.position = offset,
            WatchStart::Now => {
                let page = view.page(&watch.selection, None, None)?;
                watch.position = view.offset();
                let kind = watch.selection.kind;
                watch.pending = page.entries.into_iter().map(|entry| added(kind, key_of(&entry), entry)).collect();
                watch.initial = Some(view.offset());
            }
        }
        Ok(watch)
    }

    fn begin(engine: Arc<Engine>, selection: Selection, source: Source) -> Watch {
        Watch { engine, selection, source, pending: VecDeque::new(), position: Offset::ZERO, initial: None }
    }

    /// Whether the events that tell what was there at the beginning have all been given out; true once.
    pub fn initial_events_ended(&mut self) -> Option<Offset> {
        if self.pending.is_empty() { self.initial.take() } else { None }
    }

    /// The next event, waiting for it.
    pub async fn next(&mut self) -> Result<Delivery, Fault> {
        loop {
            if let Some(delivery) = self.next_ready()? {
                return Ok(delivery);
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

    /// The next event if there is one already.
    pub fn next_ready(&mut self) -> Result<Option<Delivery>, Fault> {
        loop {
            if let Some(delivery) = self.pending.pop_front() {
                return Ok(Some(delivery));
            }
            if self.position < self.source.since() {
                self.catch_up()?;
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

    /// A version up to which this watcher has seen everything, when nothing waits for it.
    pub fn bookmark(&mut self) -> Result<Option<Offset>, Fault> {
        let delivered = match &self.source {
            Source::Hub(_) => self.engine.hub().delivered(),
            Source::Still(state) => state.offset,
            Source::Redefined => return Err(Fault::Redefined),
        };
        if planted(Bug::BookmarkTooEarly) && self.pending.is_empty() {
            return Ok(Some(self.position.max(delivered)));
        }
        // What the hub had delivered by then is queued already: an empty queue now means all of it was seen.
        match self.next_ready()? {
            Some(delivery) => {
                self.pending.push_front(delivery);
                Ok(None)
            }
            None => {
                self.position = self.position.max(delivered);
                Ok(Some(self.position))
            }
        }
    }

    /// Skips what the snapshot held already.
    fn accept(&mut self, delivery: Delivery) -> Option<Delivery> {
        let offset = delivery.event.change.offset;
        if offset <= self.position {
            return None;
        }
        self.position = offset;
        Some(delivery)
    }

    /// The hub let this watcher go: it joins anew, and the log has what it missed.
    fn rejoin(&mut self) {
        let before = self.engine.snapshot();
        self.source = Source::join(&self.engine, &self.selection, &before).0;
    }

    fn catch_up(&mut self) -> Result<(), Fault> {
        let snapshot = match &self.source {
            Source::Hub(_) => self.engine.snapshot(),
            Source::Still(state) => state.clone(),
            Source::Redefined => return Err(Fault::Redefined),
        };
        let since = self.source.since();
        if !snapshot.registry.serves(self.selection.kind) {
            return Err(Fault::Redefined);
        }
        let kind = snapshot.kind(self.selection.kind);
        let log = self.engine.log();
        let began = self.position;
        let records = log.scan(Some(&kind.storage), began, CATCH_UP_RECORDS)?;
        let more = records.len() == CATCH_UP_RECORDS;
        for record in &records {
            if record.offset() > since {
                break;
            }
            self.position = record.offset();
            if !record.key.starts_with(&self.selection.prefix) {
                continue;
            }
            let read = |record: &_| {
                Change::from_record(&snapshot.registry, record)
                    .map_err(|unknown| Fault::Unreadable { what: unknown.to_string() })
            };
            let previous = match record.replaces {
                0 => None,
                replaces => match log.read(Offset(replaces))? {
                    Some(previous) if !previous.is_delete() => Some(read(&previous)?.entry),
                    _ => None,
                },
            };
            let event = Arc::new(Event::new(read(record)?, previous));
            if let Some(change_type) = event.seen_by(kind, &self.selection) {
                self.pending.push_back(Delivery { event, change_type });
            }
        }
        // Asked after all was read, for events are let go meanwhile.
        let oldest = log.oldest()?;
        if began < oldest && !planted(Bug::ForgottenIgnored) {
            self.pending.clear();
            return Err(Fault::Forgotten { asked: began, oldest });
        }
        let behind = records.last().is_some_and(|last| last.offset() <= since);
        if !(more && behind) {
            self.position = self.position.max(since);
        }
        Ok(())
    }
}

/// An object that was there at the beginning, as if it had just been added.
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
