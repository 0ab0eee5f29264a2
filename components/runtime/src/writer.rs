//! Writes Events concurrently with the work that they report. The work does not wait for the Events. If more Events
//! wait than a limit allows, further Events are dropped. A namespace may have at most as many waiting Events as the
//! limit leaves free, so that one namespace cannot use up the limit.

use crate::Act;
use crate::recorder::{EventWrite, Recorder};
use holdfast_world::{Action, Actor, Key, PlannedEvent, Refusal, Resource, Time, Verb};
use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::mpsc;

/// How many tasks write Events. One and the same task makes all writes of one Event, in order.
const LANES: usize = 8;
/// How many Events of all namespaces together may wait.
const WAITING_MAX: usize = 1024;
/// How many times a write is tried if the server cannot handle it. `TRY_AGAIN` is the pause before each further try.
const TRIES_MAX: usize = 12;
const TRY_AGAIN: Duration = Duration::from_secs(10);

static EVENTS: LazyLock<Resource> = LazyLock::new(|| Resource::new("", "v1", "events", "Event", true));

pub(crate) struct EventWriter {
    recorder: Recorder,
    lanes: Vec<mpsc::Sender<(Actor, EventWrite)>>,
    waiting: Arc<Mutex<PendingEvents>>,
}

/// How many Events wait to be written.
#[derive(Default)]
struct PendingEvents {
    all: usize,
    by_namespace: HashMap<String, usize>,
}

impl PendingEvents {
    /// Reserves room for one more waiting Event of a namespace. Returns `false` if there is no room.
    fn begin(&mut self, namespace: &str) -> bool {
        let of = self.by_namespace.get(namespace).copied().unwrap_or(0);
        if self.all >= WAITING_MAX || of > WAITING_MAX - self.all {
            return false;
        }
        self.all += 1;
        self.by_namespace.insert(namespace.to_owned(), of + 1);
        true
    }

    fn end(&mut self, namespace: &str) {
        self.all -= 1;
        match self.by_namespace.get_mut(namespace) {
            Some(of) if *of > 1 => *of -= 1,
            _ => _ = self.by_namespace.remove(namespace),
        }
    }
}

fn lock(waiting: &Mutex<PendingEvents>) -> MutexGuard<'_, PendingEvents> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

impl EventWriter {
    /// Starts the tasks that write Events. They end when the writer is dropped.
    pub(crate) fn start(act: Arc<dyn Act>, hands: &Handle) -> EventWriter {
        let waiting = Arc::default();
        let lane = |_| {
            let (sender, receiver) = mpsc::channel(WAITING_MAX);
            hands.spawn(write_all(act.clone(), receiver, Arc::clone(&waiting)));
            sender
        };
        let lanes = (0..LANES).map(lane).collect();
        EventWriter { recorder: Recorder::default(), lanes, waiting }
    }

    pub(crate) fn write_all(&mut self, actor: &Actor, component: &'static str, events: &[PlannedEvent], now: Time) {
        for planned in events {
            let Some(writing) = self.recorder.record(component, planned, now) else { continue };
            let lane = BuildHasherDefault::<DefaultHasher>::new().hash_one(&writing.name) as usize % LANES;
            let namespace = writing.namespace.clone();
            let has_room = lock(&self.waiting).begin(&namespace);
            let is_sent = has_room && self.lanes[lane].try_send((actor.clone(), writing)).is_ok();
            if has_room && !is_sent {
                lock(&self.waiting).end(&namespace);
            }
            if !is_sent {
                tracing::debug!(reason = planned.reason, "too many Events wait to be written: one is dropped");
            }
        }
    }
}

async fn write_all(
    act: Arc<dyn Act>,
    mut events: mpsc::Receiver<(Actor, EventWrite)>,
    waiting: Arc<Mutex<PendingEvents>>,
) {
    while let Some((actor, writing)) = events.recv().await {
        lock(&waiting).end(&writing.namespace);
        for _ in 0..TRIES_MAX {
            match write(&act, &actor, &writing).await {
                // If the server is overloaded or cannot be reached, it may accept the write later. If it has refused
                // the write, it would refuse the write again.
                Err(refusal) if refusal.is_temporary() => {
                    tokio::time::sleep(TRY_AGAIN).await;
                }
                Err(refusal) => {
                    tracing::debug!(refusal = %refusal.message, "an Event was refused");
                    break;
                }
                Ok(()) => break,
            }
        }
    }
}

async fn write(act: &Arc<dyn Act>, actor: &Actor, writing: &EventWrite) -> Result<(), Refusal> {
    let EventWrite { namespace, name, event, patch } = writing;
    if let Some(patch) = patch {
        let action = Action::new(&EVENTS, Key::new(namespace, name), Verb::StrategicPatch(patch.clone()));
        match act.act(actor, &action).await {
            // The Event to patch has expired, or it was never created. So the Event is created.
            Err(refusal) if refusal.is_not_found() => {}
            done => return done.map(drop),
        }
    }
    let action = Action::new(&EVENTS, Key::new(namespace, ""), Verb::Create(event.clone()));
    act.act(actor, &action).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_one_namespace_leave_room_for_those_of_others() {
        let mut waiting = PendingEvents::default();
        let taken = (0..10 * WAITING_MAX).filter(|_| waiting.begin("many")).count();
        assert_eq!(taken, WAITING_MAX / 2 + 1);
        assert!(waiting.begin("few") && waiting.begin("few"));
        (0..taken).for_each(|_| waiting.end("many"));
        (0..2).for_each(|_| waiting.end("few"));
        assert!(waiting.all == 0 && waiting.by_namespace.is_empty());
    }
}
