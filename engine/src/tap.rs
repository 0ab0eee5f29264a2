//! Sends all committed changes, in order, to a component in the same process.
//!
//! A tap begins with a snapshot and receives every change after it. There is one exception: if one commit marks an
//! object as being deleted and then removes it, the mark is omitted. The number of a tap's waiting changes is limited.
//! A component that is too slow gets an error, and begins again with a newer snapshot. A tap costs nothing while
//! nothing is committed.

use crate::engine::Engine;
use crate::hub::Hub;
use holdfast_core::event::Offset;
use holdfast_core::kinds::Registry;
use holdfast_core::object::glance::Glance;
use holdfast_core::state::{Change, State};
use std::collections::VecDeque;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// The maximum number of changes that wait for a tap.
const CHANGES_MAX: usize = 16 << 10;
/// The maximum number of bytes of objects in the waiting changes.
const BYTES_MAX: usize = 64 << 20;

/// The changes after a snapshot. The hub drops the tap when this value is dropped.
pub struct Tap {
    basin: Arc<Basin>,
    begin: Arc<State>,
}

/// The next changes.
pub enum Drawn {
    /// The changes up to an offset, and the kinds at that offset.
    Changes { changes: Vec<Change>, through: Offset, registry: Arc<Registry> },
    /// Too many changes were waiting. The component must make a new tap and begin with its state.
    Behind,
}

/// The queue of changes of one tap.
#[derive(Default)]
pub(crate) struct Basin {
    waiting: Mutex<Waiting>,
    filled: Notify,
}

#[derive(Default)]
struct Waiting {
    changes: VecDeque<Change>,
    bytes: usize,
    /// The version and the kinds of the newest state; `None` before the first change.
    newest: Option<(Offset, Arc<Registry>)>,
    behind: bool,
}

impl Tap {
    /// A tap that receives all later changes.
    pub fn new(engine: &Engine) -> Tap {
        // The tap joins before the snapshot is taken, so that no change between the two is lost. Changes that the
        // snapshot already contains are skipped when they are read.
        let basin = engine.hub().tap();
        Tap { basin, begin: engine.own_snapshot() }
    }

    /// The state that the changes follow.
    pub fn begin(&self) -> &Arc<State> {
        &self.begin
    }

    /// Waits for the changes since the last call.
    pub async fn next(&mut self) -> Drawn {
        loop {
            let filled = self.basin.filled.notified();
            if let Some(drawn) = self.draw() {
                return drawn;
            }
            filled.await;
        }
    }

    fn draw(&self) -> Option<Drawn> {
        let mut waiting = self.basin.lock();
        if waiting.behind {
            return Some(Drawn::Behind);
        }
        let (through, registry) = waiting.newest.take()?;
        let changes = std::mem::take(&mut waiting.changes);
        waiting.bytes = 0;
        drop(waiting);
        let began = self.begin.offset;
        let changes = changes.into_iter().filter(|change| change.offset > began).collect();
        Some(Drawn::Changes { changes, through, registry })
    }
}

impl Basin {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the changes that were committed up to this state.
    pub(crate) fn fill<'a>(&self, state: &State, changes: impl Iterator<Item = &'a Change>) {
        let mut waiting = self.lock();
        if waiting.behind {
            return;
        }
        let older = waiting.changes.len();
        for change in changes {
            if waiting.changes.len() > older
                && let Some(mark) = waiting.changes.pop_back_if(|last| is_mark(last, change))
            {
                waiting.bytes = waiting.bytes.saturating_sub(mark.entry.size());
            }
            waiting.bytes += change.entry.size();
            waiting.changes.push_back(change.clone());
        }
        waiting.newest = Some((state.offset, state.registry.clone()));
        if waiting.changes.len() > CHANGES_MAX || waiting.bytes > BYTES_MAX {
            *waiting = Waiting { behind: true, ..Waiting::default() };
        }
        drop(waiting);
        self.filled.notify_one();
    }
}

/// Whether `last` only marked the object as being deleted, and `change` of the same commit removes it. The two changes
/// must be adjacent.
fn is_mark(last: &Change, change: &Change) -> bool {
    static GOING: LazyLock<Glance> = LazyLock::new(|| Glance::only_at(&["metadata.deletionTimestamp"]));
    change.deleted
        && !last.deleted
        && last.kind == change.kind
        && last.key == change.key
        && last.entry.time_ms == change.entry.time_ms
        && GOING.look(&last.entry.json()).document["metadata"]["deletionTimestamp"].is_string()
}

impl Hub {
    /// Adds a tap, which gets all changes that are committed after this call.
    pub(crate) fn tap(&self) -> Arc<Basin> {
        let basin = Arc::new(Basin::default());
        self.taps().push(Arc::downgrade(&basin));
        basin
    }
}
