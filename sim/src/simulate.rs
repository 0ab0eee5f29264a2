//! Chooses the world of a simulation.

use crate::run::{Plan, Report, Scene};
use crate::{admission, controllers, coverage, scheduling, world};

/// Runs one simulation to its end, or to the first violation.
pub fn simulate(plan: &Plan) -> Report {
    coverage::take();
    match plan.scene {
        Scene::Server => world::simulate(plan),
        Scene::Scheduling => scheduling::simulate(plan),
        Scene::Controllers => controllers::simulate(plan),
        Scene::Admission => admission::simulate(plan),
    }
}
