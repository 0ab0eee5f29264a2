//! A decision on its way into the log, its outcome, and the steps of a commit. The writer determines their order.

use holdfast_core::event::Actor;
use holdfast_core::kinds::KindId;
use holdfast_core::object::meta::split_key;
use holdfast_core::pipeline::{Expectation, Write};
use holdfast_core::state::Entry;
use std::sync::Arc;
use tokio::sync::oneshot;

/// A decision on its way into the log. The decision is valid as long as the versions that it expects are current.
pub struct Command {
    pub writes: Vec<Write>,
    pub expects: Vec<Expectation>,
    pub actor: Actor,
    pub time_ms: i64,
    pub answer: oneshot::Sender<Outcome>,
}

/// The outcome of a decision: the written objects, or the reason why the decision is not in the log.
pub type Outcome = Result<Vec<Arc<Entry>>, Rejection>;

/// The reason why a decision is not in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rejection {
    /// A version or claim that the decision required has changed. The request must be judged again.
    Stale(Contested),
    /// The disk is full, so nothing was written.
    Full(String),
    /// The log failed, and it is unknown whether the write is durable.
    Failed(String),
    /// The log failed at an earlier write. All writes are refused until the log works again.
    Poisoned(String),
}

/// The object, claim or kind for which a decision lost a race.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Contested {
    /// The object no longer has the version that the decision requires.
    Object { kind: KindId, key: Arc<str> },
    /// Another object holds the claim that the decision makes.
    Claim(Arc<str>),
    /// The kind was redefined or deleted after the decision was judged.
    Kind(KindId),
}

impl Contested {
    pub(crate) fn is_redefined(&self) -> bool {
        matches!(self, Contested::Kind(_))
    }
}

/// A step of a commit, after its batch is numbered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    Append,
    Publish,
    Deliver,
    Answer,
}

impl Command {
    pub(crate) fn bytes(&self) -> usize {
        self.writes.iter().map(|write| write.draft.len()).sum()
    }

    /// The namespace of the command's first object; empty for cluster-scoped objects.
    pub(crate) fn namespace(&self) -> &str {
        self.writes.first().and_then(|write| split_key(&write.key).0).unwrap_or_default()
    }

    /// The command in the form that the caller sent: its writes get back their indexes, which numbering moved into the
    /// entries.
    pub(crate) fn taken_back(mut self, outcome: Outcome) -> Command {
        for (write, entry) in self.writes.iter_mut().zip(outcome.unwrap_or_default()) {
            write.index = entry.index.clone();
        }
        self
    }

    pub(crate) fn answer(self, outcome: Outcome) {
        // The client may have disconnected, so that nobody receives the outcome.
        let _ = self.answer.send(outcome);
    }
}
