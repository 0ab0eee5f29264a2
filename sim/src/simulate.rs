//! Chooses the simulated world for the part of Holdfast that is simulated.

use crate::run::{Report, RunPlan, SimulatedPart};
use crate::{admission, controllers, coverage, scheduling, world};

/// Runs one simulation to its end, or to the first violation.
pub fn simulate(plan: &RunPlan) -> Report {
    coverage::take();
    match plan.scene {
        SimulatedPart::Server => world::simulate(plan),
        SimulatedPart::Scheduling => scheduling::simulate(plan),
        SimulatedPart::Controllers => controllers::simulate(plan),
        SimulatedPart::Admission => admission::simulate(plan),
    }
}
