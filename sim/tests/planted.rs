//! Tests that the simulation finds every planted bug of the engine, and that the same seeds find nothing without a bug.

use clap::{Args as _, Command, FromArgMatches};
use holdfast_engine::planted::{Bug, plant};
use holdfast_sim::{RunPlan, SimulatedPart, SimulationArgs, account, run, simulate};

/// The maximum number of seeds that the simulation may need to find a bug.
const SEEDS: u64 = 300;

const SCHEDULING_SEEDS: u64 = 300;

const ADMISSION_SEEDS: u64 = 60;

fn admission(seed: u64) -> RunPlan {
    RunPlan { scene: SimulatedPart::Admission, ..RunPlan::new(seed) }
}

fn scheduling(seed: u64) -> RunPlan {
    RunPlan { scene: SimulatedPart::Scheduling, steps: 400, ..RunPlan::new(seed) }
}

/// Bugs that show only while two managers act at the same time are rare, so more seeds may be needed. The search ends
/// at the first seed that shows the bug.
const CONTROLLERS_SEEDS: u64 = 1000;

fn controllers(seed: u64) -> RunPlan {
    RunPlan { scene: SimulatedPart::Controllers, steps: 1000, ..RunPlan::new(seed) }
}

#[test]
fn every_planted_bug_is_found() {
    let mut unseen = Vec::new();
    for bug in Bug::ALL.into_iter().filter(|bug| !Bug::SHARED.contains(bug)) {
        plant(Some(bug));
        // Bugs that only clients of webhooks can see are searched in the simulation of admission.
        let plans: Box<dyn Iterator<Item = RunPlan>> = match bug {
            Bug::WebhookUnasked | Bug::ChangesUntold => Box::new((1..=ADMISSION_SEEDS).map(admission)),
            _ => Box::new((1..=SEEDS).map(RunPlan::new)),
        };
        let found = { plans }.find_map(|plan| Some((plan.seed, simulate(&plan).failure?)));
        plant(None);
        match found {
            None => unseen.push(bug),
            Some((seed, failure)) => {
                let why = failure.why.lines().next().unwrap_or_default();
                println!("{bug:?} is found at seed {seed}, step {}: {why}", failure.step);
            }
        }
    }
    assert!(unseen.is_empty(), "nothing finds {unseen:?}");
}

#[test]
fn every_planted_bug_of_the_scheduler_is_found() {
    use holdfast_scheduler::planted::{Bug, plant};
    let mut unseen = Vec::new();
    for bug in Bug::ALL {
        plant(Some(bug));
        let found = (1..=SCHEDULING_SEEDS).find_map(|seed| Some((seed, simulate(&scheduling(seed)).failure?)));
        plant(None);
        match found {
            None => unseen.push(bug),
            Some((seed, failure)) => {
                println!("{bug:?} is found at seed {seed}, step {}: {}", failure.step, failure.why)
            }
        }
    }
    assert!(unseen.is_empty(), "nothing finds {unseen:?}");
}

#[test]
fn every_planted_bug_of_the_controllers_is_found() {
    use holdfast_controllers::planted::{Bug, plant};
    let mut unseen = Vec::new();
    for bug in Bug::ALL {
        plant(Some(bug));
        let found = (1..=CONTROLLERS_SEEDS).find_map(|seed| Some((seed, simulate(&controllers(seed)).failure?)));
        plant(None);
        match found {
            None => unseen.push(bug),
            Some((seed, failure)) => {
                println!("{bug:?} is found at seed {seed}, step {}: {}", failure.step, failure.why)
            }
        }
    }
    assert!(unseen.is_empty(), "nothing finds {unseen:?}");
}

/// The report of a failure contains the seed and the few steps that the failure needs, and the command in the report
/// fails again.
#[test]
fn a_failure_can_be_run_again_as_told() {
    plant(Some(Bug::LostUpdate));
    let plans = (1..=SEEDS).map(RunPlan::new);
    let (plan, failure) =
        plans.into_iter().find_map(|plan| Some((plan.clone(), simulate(&plan).failure?))).expect("a failure");
    let told = account(&plan, &failure, true);
    assert!(told.starts_with(&format!("seed {} fails at step {}: ", plan.seed, failure.step)), "{told}");
    let (_, shrunk) = told.split_once('\n').expect("more lines");
    let enough = shrunk.lines().find_map(|line| line.split_once(" of 1000 steps are enough for: ")).expect("a count");
    assert!(enough.0.trim().parse::<usize>().expect("a number") < 100, "{told}");
    let again = told.lines().last().and_then(|line| line.split_once("rerun: holdfast ")).expect("a command").1;
    let parse = |line: &str| {
        let matches =
            SimulationArgs::augment_args(Command::new("sim")).try_get_matches_from(line.split_whitespace())?;
        SimulationArgs::from_arg_matches(&matches)
    };
    assert!(run(parse(again).expect("it can be run")).is_err(), "{again}");
    plant(None);
    run(parse(again).expect("it can be run")).expect("nothing is found without the bug");
}

#[test]
fn without_a_bug_nothing_is_found() {
    for seed in 1..=SEEDS {
        let failure = simulate(&RunPlan::new(seed)).failure;
        assert!(failure.is_none(), "seed {seed}: {failure:?}");
    }
}
