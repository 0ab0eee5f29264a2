//! A plan that is to be carried out, and the results that the caller of the driver reports.

use crate::{Key, Plan, Resource, Text, Time, World};

/// A plan that is to be carried out.
#[derive(Debug)]
pub struct Task {
    pub controller_index: usize,
    pub key: Key,
    pub plan: Plan,
    /// How long the key had waited before it was planned, in milliseconds.
    pub waited_ms: i64,
    /// The work of making the plan, in the units of [`crate::work`].
    pub work: u64,
}

/// The result of carrying out the plan of a task.
#[derive(Debug, Default)]
pub struct TaskOutcome {
    pub written: Vec<ActionResult>,
    /// Whether an action was refused or the plan was not ready. If so, the key is planned again even if nothing
    /// changes.
    pub failed: bool,
    /// Whether the cause of the failure would also make a newer plan fail: the server forbids the action, or does not
    /// answer.
    pub refused: bool,
    /// Whether the plan only requested answers. If so, the count of the key's failures does not change, because only
    /// the next plan shows whether the key succeeds.
    pub awaits_answers: bool,
    /// The time at which the plan requests that its key is planned again.
    pub requeue_at: Option<Time>,
}

/// The result of an action that was carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActionResult {
    pub resource: Resource,
    pub key: Key,
    pub result: WriteResult,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WriteResult {
    /// After the action, the object has this version.
    Version(u64),
    /// The action deleted the object. The text is the object's UID, or empty if the UID is unknown.
    Gone(Text),
    /// The action changed nothing that the world contains.
    Nothing,
}

impl ActionResult {
    /// Whether the world contains the write. If the world does not contain the objects of the resource, it never gets
    /// the write, so the write counts as contained and no key waits for it.
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
