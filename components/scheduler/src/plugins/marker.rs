//! Plug-ins that have no code of their own. Their names stand for what the scheduler itself does: sorting the queue,
//! binding, preempting.

use crate::plugin::{Plugin, QueueingHint, SchedulingCycle};
use crate::snapshot::ClusterEvent;

pub const PRIORITY_SORT: &str = "PrioritySort";
pub const DEFAULT_BINDER: &str = "DefaultBinder";

#[derive(Debug)]
pub struct PlaceholderPlugin(pub &'static str);

impl Plugin for PlaceholderPlugin {
    fn name(&self) -> &'static str {
        self.0
    }

    fn queueing_hint(&self, _: SchedulingCycle<'_>, _: &ClusterEvent) -> QueueingHint {
        QueueingHint::Skip
    }
}
