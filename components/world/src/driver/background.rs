//! Plans that are made in the background, each on a copy of the world.

use super::PLAN_MAX;
use crate::work::{self, WorkAborted};
use crate::{Change, Controller, Key, Keys, Plan, Resource, Stamp, World};

/// A plan that is to be made in the background. It has a copy of the world as the world was when this value was made.
pub struct BackgroundPlan {
    pub(super) controller_index: usize,
    pub(super) key: Key,
    pub(super) controller: Box<dyn Controller>,
    pub(super) world: World,
    pub(super) stamp: Stamp,
    pub(super) waited_ms: i64,
}

/// The result of a plan that was made in the background.
pub struct FinishedPlan {
    pub(super) controller_index: usize,
    pub(super) key: Key,
    pub(super) controller: Box<dyn Controller>,
    pub(super) planned: (Result<Plan, WorkAborted>, u64),
    pub(super) waited_ms: i64,
}

impl BackgroundPlan {
    /// Makes the plan. The caller may call this function on any thread.
    pub fn run(self) -> FinishedPlan {
        let BackgroundPlan { controller_index, key, mut controller, world, stamp, waited_ms } = self;
        let planned = work::limited(PLAN_MAX, || controller.plan(&world, &key, stamp));
        FinishedPlan { controller_index, key, controller, planned, waited_ms }
    }
}

/// The controller that takes the place of another controller while the other makes a plan in the background.
pub(super) struct Placeholder;

impl Controller for Placeholder {
    fn name(&self) -> &'static str {
        "away"
    }

    fn resources(&self) -> Vec<Resource> {
        Vec::new()
    }

    fn concerns(&mut self, _: &World, _: &Change, _: &mut Keys) {}

    fn plan(&mut self, _: &World, _: &Key, _: Stamp) -> Plan {
        Plan::default()
    }
}
