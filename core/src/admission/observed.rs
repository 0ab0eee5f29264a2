//! Records the work of admission for metrics. No decision depends on these records.

use super::Attributes;
use super::outcome::{Half, Observation, Timing};
use crate::pipeline::effect::Stop;

/// The metric label for the error of an expression.
pub fn error_type(why: &str) -> &'static str {
    if why.starts_with("compilation") {
        "compile_error"
    } else if why.starts_with("validation failed due to running out of cost budget") {
        "out_of_budget"
    } else {
        "invalid_error"
    }
}

impl Attributes<'_> {
    pub(super) fn half(&self) -> Half {
        if self.is_validating { Half::Validating } else { Half::Mutating }
    }

    pub(crate) fn observe(&mut self, observation: Observation) {
        self.admitted.told.observations.push(observation);
    }

    /// Runs `work` (one plug-in or a whole half) and records its duration. Returns the end time, which is the next
    /// plug-in's start, so that a chain of thirty plug-ins reads the clock thirty times, not sixty.
    pub(super) fn timed(
        &mut self,
        plugin: Option<u8>,
        began: u64,
        work: impl FnOnce(&mut Self) -> Result<(), Stop>,
    ) -> Result<u64, Stop> {
        let outcome = work(self);
        let ended = (self.ticks)();
        let nanos = ended.saturating_sub(began);
        let timing = Timing { plugin, half: self.half(), is_rejected: outcome.is_err(), nanos };
        self.admitted.told.operation = Some(self.operation);
        self.admitted.told.timings.push(timing);
        outcome.map(|()| ended)
    }
}
