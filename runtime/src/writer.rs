//! Writes Events: beside the work that they tell of, which does not wait for them. What is more than may wait is dropped.

use crate::Act;
use crate::recorder::{Recorder, Writing};
use holdfast_world::{Action, Actor, Key, Note, Refusal, Resource, Time, Verb};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use tokio::sync::mpsc;

/// How many writers there are; those of one Event are made by one of them, in order.
const LANES: usize = 8;
/// How many Events may wait for each.
const WAITING_MAX: usize = 128;
/// How often a write is tried that the server could not take, and how long it waits before each.
const TRIES_MAX: usize = 12;
const TRY_AGAIN: Duration = Duration::from_secs(10);

static EVENTS: LazyLock<Resource> = LazyLock::new(|| Resource::new("", "v1", "events", "Event", true));

pub(crate) struct EventWriter {
    recorder: Recorder,
    lanes: Vec<mpsc::Sender<(Actor, Writing)>>,
}

impl EventWriter {
    /// Its writers end with it.
    pub(crate) fn start(act: Arc<dyn Act>) -> EventWriter {
        let lane = |_| {
            let (sender, receiver) = mpsc::channel(WAITING_MAX);
            tokio::spawn(write_all(act.clone(), receiver));
            sender
        };
        EventWriter { recorder: Recorder::default(), lanes: (0..LANES).map(lane).collect() }
    }

    pub(crate) fn tell_all(&mut self, actor: &Actor, component: &'static str, notes: &[Note], now: Time) {
        for note in notes {
            let Some(writing) = self.recorder.record(component, note, now) else { continue };
            let lane = BuildHasherDefault::<DefaultHasher>::new().hash_one(&writing.name) as usize % LANES;
            if self.lanes[lane].try_send((actor.clone(), writing)).is_err() {
                tracing::debug!(reason = note.reason, "too many Events wait to be written: one is dropped");
            }
        }
    }
}

async fn write_all(act: Arc<dyn Act>, mut waiting: mpsc::Receiver<(Actor, Writing)>) {
    while let Some((actor, writing)) = waiting.recv().await {
        for _ in 0..TRIES_MAX {
            match write(&act, &actor, &writing).await {
                // What the server does not take now it may take later; what it refuses it will refuse again.
                Err(refusal) if refusal.code == 0 || refusal.code == 429 || refusal.code >= 500 => {
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

async fn write(act: &Arc<dyn Act>, actor: &Actor, writing: &Writing) -> Result<(), Refusal> {
    let Writing { namespace, name, event, patch } = writing;
    if let Some(patch) = patch {
        let action = Action::new(&EVENTS, Key::new(namespace, name), Verb::StrategicPatch(patch.clone()));
        match act.act(actor, &action).await {
            // It has expired, or was never taken.
            Err(refusal) if refusal.is_not_found() => {}
            done => return done.map(drop),
        }
    }
    let action = Action::new(&EVENTS, Key::new(namespace, ""), Verb::Create(event.clone()));
    act.act(actor, &action).await.map(drop)
}
