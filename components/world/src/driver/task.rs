//! A plan that is to be carried out, and the results that its caller reports.

use crate::{Key, Plan, Resource, Text, Time, World};

/// A plan that is to be carried out.
#[derive(Debug)]
pub struct Task {
    pub controller_index: usize,
    pub key: Key,
    pub plan: Plan,
    /// For how many milliseconds the key had waited.
    pub waited_ms: i64,
    /// The work of making the plan.
    pub work: u64,
}

/// The result of carrying out a plan.
#[derive(Debug, Default)]
pub struct TaskOutcome {
    pub written: Vec<ActionResult>,
    /// Whether an action was refused or the plan was not ready: the key is planned again without a change.
    pub failed: bool,
    /// Whether the failure has a reason that also affects a newer plan: the server forbids the action, or does not
    /// answer.
    pub refused: bool,
    /// Whether the plan only made requests for answers. Then the key's count of failures stays as it is, and the next
    /// plan shows whether it succeeds.
    pub awaits_answers: bool,
    /// The time at which the plan requests that the key is planned again.
    pub requeue_at: Option<Time>,
}

/// The result of an action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActionResult {
    pub resource: Resource,
    pub key: Key,
    pub result: WriteResult,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WriteResult {
    /// The object has this version after the action.
    Version(u64),
    /// The object was deleted. The text is its uid, or empty if the uid is unknown.
    Gone(Text),
    /// The action changed nothing that a world contains.
    Nothing,
}

impl ActionResult {
    /// Whether the world contains the write. A world without the resource never gets the write, so the write counts as
    /// contained and no key waits for it.
    pub(super) fn is_in(&self, world: &World) -> bool {
        if !world.tracks(&self.resource) {
            return true;
        }
        match &self.result {
            WriteResult::Version(version) => world.version(&self.resource) >= *version,
            WriteResult::Gone(uid) => match world.object(&self.resource, &self.key) {
                Some(object) => !uid.is_empty() && *object.meta.uid != **uid,
                None => true,
            },
            WriteResult::Nothing => true,
        }
    }
}
