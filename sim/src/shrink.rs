//! Finds the steps of a failed simulation that its failure needs, by removing the other steps.

use crate::run::{RunPlan, SimulationFailure};
use crate::simulate::simulate;
use std::time::Instant;

/// The start of the oracle's message, without values. If two messages have the same start, they count as the same
/// failure.
pub fn signature(failure: &SimulationFailure) -> String {
    let line = failure.why.lines().next().unwrap_or_default();
    let line = line.split(['{', '[', '(', '"']).next().unwrap_or_default();
    let plain = |word: &&str| word.trim_end_matches([',', ':', ';']).chars().all(|letter| letter.is_ascii_lowercase());
    line.split(' ').filter(plain).take(8).collect::<Vec<_>>().join(" ")
}

/// The smallest set of steps that fails in the same way and was found before the deadline, and the failure of these
/// steps.
pub fn shrink(plan: &RunPlan, failure: &SimulationFailure, deadline: Instant) -> (Vec<u32>, SimulationFailure) {
    let wanted = signature(failure);
    let fails = |steps: &[u32]| {
        let only = Some(steps.to_vec());
        let report = simulate(&RunPlan { only, trace: false, ..plan.clone() });
        report.failure.filter(|failure| signature(failure) == wanted)
    };
    let last = failure.step.min(plan.steps) as u32;
    let all = || (1..=plan.steps as u32).collect();
    let mut steps: Vec<u32> = plan.only.clone().unwrap_or_else(all);
    steps.retain(|step| *step <= last);
    let mut failure = match fails(&steps) {
        Some(failure) => failure,
        // The failure also needs later steps: the end of the simulation, or the steps that lead to the end.
        None => {
            steps = plan.only.clone().unwrap_or_else(all);
            failure.clone()
        }
    };
    let mut piece = steps.len().div_ceil(2);
    while piece > 0 {
        let mut at = 0;
        let mut shorter = false;
        while at < steps.len() {
            if Instant::now() > deadline {
                return (steps, failure);
            }
            let end = (at + piece).min(steps.len());
            let fewer = [&steps[..at], &steps[end..]].concat();
            match fails(&fewer) {
                Some(found) => {
                    (steps, failure, shorter) = (fewer, found, true);
                }
                None => at = end,
            }
        }
        // When fewer steps are left, some steps may be removable that could not be removed before.
        piece = if shorter && piece == 1 { 1 } else { piece / 2 };
    }
    (steps, failure)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_known_by_what_its_oracle_says() {
        let of = |why: &str| signature(&SimulationFailure { step: 1, why: why.into() });
        assert_eq!(of("event 17 was durable and is lost"), of("event 4 was durable and is lost"));
        assert_ne!(of("event 17 was durable and is lost"), of("event 17 was refused"));
        assert_eq!(
            of("a watcher of Pod All at 3: MODIFIED n1/a at 5, where [\"x\"] should"),
            "a watcher of at at where "
        );
    }
}
