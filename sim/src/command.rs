//! `holdfast sim`: runs simulations by seed, and prints how to run a failed one again.

use crate::run::{Report, RunPlan, SimulatedPart, SimulationFailure};
use crate::shrink::shrink;
use crate::simulate::simulate;
use anyhow::{Context, Result, bail, ensure};
use std::ops::RangeInclusive;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The number of seeds that are run if the command names none.
const SEEDS: u64 = 100;
/// The maximum number of failures for which a smallest set of steps is searched.
const SHRUNK_MAX: u64 = 3;
/// The time limit, for each failure, of the search for the smallest set of steps that still causes the failure.
const SHRINK_TIME: Duration = Duration::from_secs(20);

/// The scope of a simulation, and the part of Holdfast to simulate.
#[derive(Debug, Clone, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct SimulationArgs {
    #[command(flatten)]
    scope: Scope,
    #[command(subcommand)]
    mode: Option<RunMode>,
}

#[derive(Debug, Clone, clap::Subcommand)]
enum RunMode {
    /// Run every seed twice, and check that both runs do the same, step by step.
    Meta(Scope),
    /// Simulate the scheduler instead: pods and nodes are added and removed, schedulers crash, and two schedulers run
    /// at once.
    Scheduling(Scope),
    /// Simulate the controllers instead: users, nodes and pods change the cluster, while a controller manager receives
    /// events late, has requests refused, and crashes.
    Controllers(Scope),
    /// Simulate admission instead: quotas, policies, and webhooks that refuse, fail and answer late.
    Admission(Scope),
}

#[derive(Debug, Clone, clap::Args)]
struct Scope {
    /// The seeds to run: one seed, or a range such as 1..1000, including its end [default: 1..100; with --minutes, all
    /// seeds from 1 on].
    #[arg(long, value_parser = seeds)]
    seeds: Option<RangeInclusive<u64>>,
    /// Stop after this number of minutes, even if seeds are left. Fractions are allowed.
    #[arg(long, value_parser = minutes)]
    minutes: Option<Duration>,
    /// Number of steps of each simulation.
    #[arg(long, default_value_t = RunPlan::STEPS as u32, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    steps: u32,
    /// Maximum number of requests at the same time.
    #[arg(long, default_value_t = RunPlan::CLIENTS as u16, value_parser = clap::value_parser!(u16).range(1..=1000))]
    clients: u16,
    /// Number of simulations that run in parallel.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: u16,
    /// Run only these steps of a single seed, as a failure prints them: 3,17,25.
    #[arg(long, value_delimiter = ',', requires = "seeds", value_parser = clap::value_parser!(u32).range(1..))]
    only: Option<Vec<u32>>,
    /// Print every step.
    #[arg(long)]
    trace: bool,
}

fn seeds(text: &str) -> Result<RangeInclusive<u64>> {
    let (first, last) = text.split_once("..").unwrap_or((text, text));
    let last = last.strip_prefix('=').unwrap_or(last);
    let number = |text: &str| text.parse::<u64>().with_context(|| format!("{text:?} is not a seed; say 7, or 1..1000"));
    let (first, last) = (number(first)?, number(last)?);
    ensure!(last < u64::MAX, "seeds go up to {}", u64::MAX - 1);
    ensure!(first <= last, "the range {text} is empty: its first seed is to be no larger than its last");
    Ok(first..=last)
}

fn minutes(text: &str) -> Result<Duration> {
    let minutes: f64 = text.parse().with_context(|| format!("{text:?} is not a number of minutes; say 10, or 0.5"))?;
    ensure!(minutes > 0.0 && minutes <= 1e6, "{text} minutes are too few or too many; say 10, or 0.5");
    Ok(Duration::from_secs_f64(minutes * 60.0))
}

/// Runs the simulations and prints the results. Returns an error if a simulation failed.
pub fn run(args: SimulationArgs) -> Result<()> {
    let (scope, twice, scene) = match args.mode {
        Some(RunMode::Meta(scope)) => (scope, true, SimulatedPart::Server),
        Some(RunMode::Scheduling(scope)) => (scope, false, SimulatedPart::Scheduling),
        Some(RunMode::Controllers(scope)) => (scope, false, SimulatedPart::Controllers),
        Some(RunMode::Admission(scope)) => (scope, false, SimulatedPart::Admission),
        None => (args.scope, false, SimulatedPart::Server),
    };
    if let (Some(only), Some(seeds)) = (&scope.only, &scope.seeds) {
        ensure!(seeds.start() == seeds.end(), "--only is for a single seed: say --seeds {}", seeds.start());
        let late = only.iter().find(|step| **step > scope.steps);
        ensure!(late.is_none(), "step {} is not among the {} of --steps", late.copied().unwrap_or(0), scope.steps);
    }
    // A panic within the engine is reported as a failure of its seed, so the message of the panic is not printed.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let runner = Runner::new(scope, twice, scene);
    let outcome = runner.run();
    std::panic::set_hook(hook);
    outcome
}

struct Runner {
    scope: Scope,
    twice: bool,
    scene: SimulatedPart,
    started: Instant,
    next: AtomicU64,
    last: u64,
    stop: AtomicBool,
    totals: Mutex<Totals>,
}

#[derive(Default)]
struct Totals {
    seeds: u64,
    commands: u64,
    events: u64,
    crashes: u64,
    failures: u64,
}

impl Runner {
    fn new(scope: Scope, twice: bool, scene: SimulatedPart) -> Runner {
        let seeds = scope.seeds.clone().unwrap_or(match scope.minutes {
            Some(_) => 1..=u64::MAX - 1,
            None => 1..=SEEDS,
        });
        Runner {
            scope,
            twice,
            scene,
            started: Instant::now(),
            next: AtomicU64::new(*seeds.start()),
            last: *seeds.end(),
            stop: AtomicBool::new(false),
            totals: Mutex::default(),
        }
    }

    fn run(&self) -> Result<()> {
        std::thread::scope(|threads| {
            for _ in 1..self.scope.jobs {
                threads.spawn(|| self.work());
            }
            self.work();
        });
        let totals = self.totals.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let Totals { seeds, commands, events, crashes, failures } = *totals;
        let (wall, cpu) = (self.started.elapsed().as_secs_f64(), cpu_seconds());
        let rate = commands as f64 / cpu.unwrap_or(wall * f64::from(self.scope.jobs)).max(1e-3);
        println!(
            "{seeds} seeds, {commands} commands, {events} events, {crashes} crashes, {failures} failures in {wall:.1} s: \
             {rate:.0} commands per CPU second"
        );
        if failures > 0 {
            bail!("{failures} of {seeds} simulations failed");
        }
        Ok(())
    }

    /// Runs one seed after another, until no seeds or no time is left.
    fn work(&self) {
        let late = || self.scope.minutes.is_some_and(|bound| self.started.elapsed() >= bound);
        while !self.stop.load(Ordering::Relaxed) && !late() {
            let seed = self.next.fetch_add(1, Ordering::Relaxed);
            if seed > self.last {
                return;
            }
            self.one(seed);
        }
    }

    fn plan(&self, seed: u64) -> RunPlan {
        let Scope { steps, clients, only, trace, .. } = self.scope.clone();
        let trace = trace || self.twice;
        let scene = self.scene;
        RunPlan { steps: steps as usize, clients: clients.into(), only, trace, scene, ..RunPlan::new(seed) }
    }

    fn one(&self, seed: u64) {
        let plan = self.plan(seed);
        let report = simulate(&plan);
        let again = self.twice.then(|| simulate(&plan));
        let failed = report.failure.is_some() || again.as_ref().is_some_and(|again| *again != report);
        let nth = {
            let mut totals = self.totals.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            totals.seeds += 1;
            for report in [Some(&report), again.as_ref()].into_iter().flatten() {
                totals.commands += report.commands;
                totals.events += report.events;
                totals.crashes += report.crashes;
            }
            totals.failures += u64::from(failed);
            totals.failures
        };
        if self.scope.trace {
            report.trace.iter().for_each(|line| println!("{line}"));
        }
        if let Some(again) = again.filter(|again| *again != report) {
            println!("{}", self.differs(seed, &report, &again));
        }
        if let Some(failure) = &report.failure {
            println!("{}", account(&plan, failure, nth <= SHRUNK_MAX));
        }
    }

    /// The text that shows the first step at which two runs of one seed differ.
    fn differs(&self, seed: u64, first: &Report, second: &Report) -> String {
        let lines = first.trace.iter().zip(&second.trace);
        let parted = lines.into_iter().find(|(first, second)| first != second);
        let (one, other) = parted.map_or(("the end", "the end"), |(one, other)| (one.as_str(), other.as_str()));
        format!("seed {seed} does not do the same twice:\n  first  {one}\n  second {other}")
    }
}

/// The text that describes a failure and contains the command that runs it again. With `shrinks`, the text also has the
/// steps that the failure needs.
pub fn account(plan: &RunPlan, failure: &SimulationFailure, shrinks: bool) -> String {
    let SimulationFailure { step, why } = failure;
    let mut told = format!("seed {} fails at step {step}: {why}\n", plan.seed);
    let (what, clients) = match plan.scene {
        SimulatedPart::Scheduling => (" scheduling", String::new()),
        SimulatedPart::Controllers => (" controllers", String::new()),
        SimulatedPart::Admission => (" admission", format!(" --clients {}", plan.clients)),
        SimulatedPart::Server => ("", format!(" --clients {}", plan.clients)),
    };
    let again = format!("holdfast sim{what} --seeds {} --steps {}{clients}", plan.seed, plan.steps);
    if !shrinks || plan.only.is_some() {
        let only = plan.only.as_deref().map(|only| format!(" --only {}", list(only))).unwrap_or_default();
        return told + &format!("  rerun: {again}{only} --trace");
    }
    let (steps, failure) = shrink(plan, failure, Instant::now() + SHRINK_TIME);
    let report = simulate(&RunPlan { only: Some(steps.clone()), trace: true, ..plan.clone() });
    told += &format!("  {} of {} steps are enough for: {}\n", steps.len(), plan.steps, failure.why);
    // The lines of step 0 are omitted, because they are the same for all seeds.
    let lines = report.trace.iter().filter(|line| !line.starts_with("    0 "));
    lines.for_each(|line| told += &format!("    {line}\n"));
    told + &format!("  rerun: {again} --only {} --trace", list(&steps))
}

fn list(steps: &[u32]) -> String {
    steps.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
}

/// The CPU time of this process so far, in seconds; `None` if the system does not report it.
fn cpu_seconds() -> Option<f64> {
    /// The number of units per second in the CPU times in `/proc/self/stat`. It is the same on every architecture of
    /// Linux.
    const TICKS_PER_SECOND: f64 = 100.0;
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The process's name in parentheses may contain any character, even spaces.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(11).map_while(|field| field.parse::<f64>().ok());
    Some((fields.next()? + fields.next()?) / TICKS_PER_SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Args as _, FromArgMatches};

    #[test]
    fn seeds_are_one_or_a_range() {
        assert_eq!(seeds("7").unwrap(), 7..=7);
        assert_eq!(seeds("1..20").unwrap(), 1..=20);
        assert_eq!(seeds("1..=20").unwrap(), 1..=20);
        for bad in ["", "1..", "..4", "9..3", "x", "-1", "1.5", "18446744073709551615"] {
            assert!(seeds(bad).is_err(), "{bad}");
        }
    }

    fn parse(line: &str) -> Result<SimulationArgs, clap::Error> {
        let command = SimulationArgs::augment_args(clap::Command::new("sim"));
        let matches = command.try_get_matches_from(["sim"].into_iter().chain(line.split_whitespace()))?;
        SimulationArgs::from_arg_matches(&matches)
    }

    #[test]
    fn what_cannot_be_run_is_refused_and_told_why() {
        for (line, why) in [
            ("--seeds 9..3", "its first seed is to be no larger than its last"),
            ("--seeds x", "is not a seed; say 7, or 1..1000"),
            ("--steps 0", "0 is not in 1.."),
            ("--jobs 0", "0 is not in 1.."),
            ("--clients 0", "0 is not in 1.."),
            ("--minutes 0", "too few or too many"),
            ("--only 3", "--seeds"),
            ("--seeds 1 --only x", "invalid value 'x'"),
        ] {
            let refused = parse(line).expect_err(line).to_string();
            assert!(refused.contains(why), "{line}: {refused}");
        }
        for (line, why) in [
            ("--seeds 1..2 --only 3", "--only is for a single seed"),
            ("--seeds 1 --steps 10 --only 11", "step 11 is not among the 10"),
        ] {
            let refused = run(parse(line).expect(line)).expect_err(line).to_string();
            assert!(refused.contains(why), "{line}: {refused}");
        }
    }

    #[test]
    fn what_can_be_run_is() {
        for line in [
            "--seeds 5 --steps 100",
            "--seeds 1..4 --jobs 2 --steps 50",
            "meta --seeds 1..2 --steps 50",
            "controllers --seeds 1 --steps 50",
        ] {
            run(parse(line).expect(line)).expect(line);
        }
        run(parse("--minutes 0.001 --steps 50").expect("an end")).expect("an end");
        run(parse("--seeds 3 --only 1,5,9").expect("steps")).expect("steps");
    }

    #[test]
    fn minutes_are_a_number_that_is_not_nothing() {
        assert_eq!(minutes("0.5").unwrap(), Duration::from_secs(30));
        for bad in ["0", "-1", "ten", "NaN", "inf", ""] {
            assert!(minutes(bad).is_err(), "{bad}");
        }
    }
}
