//! One watcher: catches up from the log, then follows the hub, and goes back to the log when it fell behind.
//!
//! The position is the last event that the watcher has been given or that did not concern it. Joining the hub
//! yields an offset up to which everything was delivered before; the log fills the gap between the two.

use crate::engine::Engine;
use crate::hub::{ChangeType, Delivery, Event, Subscription};
use crate::log::Fault;
use holdfast_core::event::Offset;
use holdfast_core::list::Selection;
use holdfast_core::state::{Change, State};
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
    subscription: Subscription,
    /// Read from the log or the snapshot, not given out yet.
    pending: VecDeque<Delivery>,
    position: Offset,
    /// The snapshot whose objects are the first events; `None` once they are given out.
    initial: Option<Arc<State>>,
}

impl Watch {
    pub(crate) fn new(engine: Arc<Engine>, selection: Selection, start: WatchStart) -> Watch {
        let snapshot = engine.snapshot();
        let subscription = engine.hub().subscribe(snapshot.kind(selection.kind), &selection);
        let mut watch =
            Watch { engine, selection, subscription, pending: VecDeque::new(), position: Offset::ZERO, initial: None };
        match start {
            WatchStart::After(offset) => watch.position = offset,
            WatchStart::Now => {
                // Taken after joining: it holds everything that was delivered before.
                let snapshot = watch.engine.snapshot();
                watch.position = snapshot.offset;
                watch.pending = initial_events(&snapshot, &watch.selection);
                watch.initial = Some(snapshot);
            }
        }
        watch
    }

    /// Whether the events that tell what was there at the beginning have all been given out; true once.
    pub fn initial_events_ended(&mut self) -> Option<Offset> {
        if self.pending.is_empty() { self.initial.take().map(|snapshot| snapshot.offset) } else { None }
    }

    /// The next event, waiting for it.
    pub async fn next(&mut self) -> Result<Delivery, Fault> {
        loop {
            if let Some(delivery) = self.next_ready()? {
                return Ok(delivery);
            }
            match self.subscription.queue.recv().await {
                Some(delivery) => {
                    if let Some(delivery) = self.accept(delivery) {
                        return Ok(delivery);
                    }
                }
                None => self.rejoin()?,
            }
        }
    }

    /// The next event if there is one already.
    pub fn next_ready(&mut self) -> Result<Option<Delivery>, Fault> {
        loop {
            if let Some(delivery) = self.pending.pop_front() {
                return Ok(Some(delivery));
            }
            if self.position < self.subscription.since {
                self.catch_up()?;
                continue;
            }
            match self.subscription.queue.try_recv() {
                Ok(delivery) => {
                    if let Some(delivery) = self.accept(delivery) {
                        return Ok(Some(delivery));
                    }
                }
                Err(TryRecvError::Empty) => return Ok(None),
                Err(TryRecvError::Disconnected) => self.rejoin()?,
            }
        }
    }

    /// A version up to which this watcher has seen everything, when nothing waits for it.
    pub fn bookmark(&mut self) -> Result<Option<Offset>, Fault> {
        let delivered = self.engine.hub().delivered();
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
    fn rejoin(&mut self) -> Result<(), Fault> {
        let snapshot = self.engine.snapshot();
        if !snapshot.registry.serves(self.selection.kind) {
            return Err(Fault::Redefined);
        }
        self.subscription = self.engine.hub().subscribe(snapshot.kind(self.selection.kind), &self.selection);
        Ok(())
    }

    fn catch_up(&mut self) -> Result<(), Fault> {
        let snapshot = self.engine.snapshot();
        if !snapshot.registry.serves(self.selection.kind) {
            return Err(Fault::Redefined);
        }
        let kind = snapshot.kind(self.selection.kind);
        let log = self.engine.log();
        let began = self.position;
        let records = log.scan(Some(&kind.storage), began, CATCH_UP_RECORDS)?;
        let more = records.len() == CATCH_UP_RECORDS;
        for record in &records {
            if record.offset() > self.subscription.since {
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
        if began < oldest {
            self.pending.clear();
            return Err(Fault::Forgotten { asked: began, oldest });
        }
        let behind = records.last().is_some_and(|last| last.offset() <= self.subscription.since);
        if !(more && behind) {
            self.position = self.position.max(self.subscription.since);
        }
        Ok(())
    }
}

/// What the snapshot holds of the selection, as if it had just been added.
fn initial_events(snapshot: &State, selection: &Selection) -> VecDeque<Delivery> {
    let kind = snapshot.kind(selection.kind);
    snapshot
        .scan(selection.kind, &selection.prefix, None)
        .filter(|(key, entry)| selection.matches(kind, key, entry))
        .map(|(key, entry)| {
            let change = Change {
                offset: entry.offset,
                kind: selection.kind,
                key: key.clone(),
                entry: entry.clone(),
                deleted: false,
            };
            Delivery { event: Arc::new(Event::new(change, None)), change_type: ChangeType::Added }
        })
        .collect()
}
