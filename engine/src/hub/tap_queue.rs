//! The queue of one tap. The hub fills the queue, and [`crate::Tap`] empties it.

use holdfast_core::event::Offset;
use holdfast_core::kinds::Registry;
use holdfast_core::object::glance::Glance;
use holdfast_core::state::{Change, State};
use std::collections::VecDeque;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// The maximum number of changes that wait for a tap.
const CHANGES_MAX: usize = 16 << 10;
/// The maximum number of bytes of objects in the waiting changes.
const BYTES_MAX: usize = 64 << 20;

/// The next output of a tap: changes, or the report that the tap is behind.
pub enum TapOutput {
    /// The changes up to an offset, and the kinds at that offset.
    Changes { changes: Vec<Change>, through: Offset, registry: Arc<Registry> },
    /// Too many changes were queued. The component must make a new tap and begin with its state.
    Behind,
}

/// The queue of changes of one tap.
#[derive(Default)]
pub(crate) struct TapQueue {
    queued: Mutex<QueuedChanges>,
    filled: Notify,
}

#[derive(Default)]
struct QueuedChanges {
    changes: VecDeque<Change>,
    bytes: usize,
    /// The version and the kinds of the newest state; `None` before the first change.
    newest: Option<(Offset, Arc<Registry>)>,
    behind: bool,
}

impl TapQueue {
    fn lock(&self) -> MutexGuard<'_, QueuedChanges> {
        self.queued.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the changes that were committed up to this state.
    pub(crate) fn fill<'a>(&self, state: &State, changes: impl Iterator<Item = &'a Change>) {
        let mut queued = self.lock();
        if queued.behind {
            return;
        }
        let older = queued.changes.len();
        for change in changes {
            if queued.changes.len() > older
                && let Some(mark) = queued.changes.pop_back_if(|last| is_mark(last, change))
            {
                queued.bytes = queued.bytes.saturating_sub(mark.entry.size());
            }
            queued.bytes += change.entry.size();
            queued.changes.push_back(change.clone());
        }
        queued.newest = Some((state.offset, state.registry.clone()));
        if queued.changes.len() > CHANGES_MAX || queued.bytes > BYTES_MAX {
            *queued = QueuedChanges { behind: true, ..QueuedChanges::default() };
        }
        drop(queued);
        self.filled.notify_one();
    }

    /// Takes the changes after `begin`; `None` if there was no commit since the last call.
    pub(crate) fn take(&self, begin: Offset) -> Option<TapOutput> {
        let mut queued = self.lock();
        if queued.behind {
            return Some(TapOutput::Behind);
        }
        let (through, registry) = queued.newest.take()?;
        let changes = std::mem::take(&mut queued.changes);
        queued.bytes = 0;
        drop(queued);
        let changes = changes.into_iter().filter(|change| change.offset > begin).collect();
        Some(TapOutput::Changes { changes, through, registry })
    }

    /// Returns a future that resolves after the next commit.
    pub(crate) fn filled(&self) -> Notified<'_> {
        self.filled.notified()
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
