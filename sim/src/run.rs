//! The plan and the result of one run of a simulation.

use crate::coverage::Coverage;
use crate::disk::Sabotage;

/// Which simulation is run, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunPlan {
    pub seed: u64,
    pub steps: usize,
    pub clients: usize,
    pub watchers: usize,
    pub sabotage: Sabotage,
    pub scene: SimulatedPart,
    /// The numbers of the steps that are run; `None` means all steps.
    pub only: Option<Vec<u32>>,
    /// Whether the run describes every step in words, which takes time.
    pub trace: bool,
}

/// The part of Holdfast that is simulated. Each part has a simulated world of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SimulatedPart {
    Server,
    Scheduling,
    Controllers,
    Admission,
}

impl RunPlan {
    pub const STEPS: usize = 1000;
    pub const CLIENTS: usize = 6;

    pub fn new(seed: u64) -> RunPlan {
        RunPlan {
            seed,
            steps: Self::STEPS,
            clients: Self::CLIENTS,
            watchers: 8,
            sabotage: Sabotage::None,
            scene: SimulatedPart::Server,
            only: None,
            trace: false,
        }
    }
}

/// The result of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// The description of every step, if the plan requests it.
    pub trace: Vec<String>,
    /// How many requests the clients made, including reads.
    pub commands: u64,
    pub events: u64,
    pub crashes: u64,
    pub coverage: Coverage,
    /// The violation that an oracle found, and the step at which it was found; `None` if there was none.
    pub failure: Option<SimulationFailure>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SimulationFailure {
    pub step: usize,
    pub why: String,
}
