//! One run of a simulation: its plan and its result.

use crate::coverage::Coverage;
use crate::disk::Sabotage;

/// The plan of a simulation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunPlan {
    pub seed: u64,
    pub steps: usize,
    pub clients: usize,
    pub watchers: usize,
    pub sabotage: Sabotage,
    pub scene: SimulatedPart,
    /// The steps to run; `None` means all steps.
    pub only: Option<Vec<u32>>,
    /// Whether to describe every step in words, which takes time.
    pub trace: bool,
}

/// The subject of a simulation; each has a world of its own.
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

/// The result of a simulation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Every step, in words.
    pub trace: Vec<String>,
    /// The clients' requests, including reads.
    pub commands: u64,
    pub events: u64,
    pub crashes: u64,
    pub coverage: Coverage,
    /// The violation that an oracle found, and the step.
    pub failure: Option<SimulationFailure>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SimulationFailure {
    pub step: usize,
    pub why: String,
}
