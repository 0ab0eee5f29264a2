//! `holdfast-sim`: runs simulations by seed, and says how to run a failed one again.

use anyhow::{Result, bail};
use clap::Parser;
use holdfast_sim::{Plan, run};
use std::ops::RangeInclusive;

/// Simulates racing clients, crashes and failing disks on one thread, and checks what comes of it.
#[derive(Parser)]
#[command(name = "holdfast-sim")]
struct Arguments {
    /// The seeds to run: one, or a range such as 1..1000 (its end is included).
    #[arg(long, default_value = "1..100")]
    seeds: String,
    /// How many steps each simulation takes.
    #[arg(long, default_value_t = 600)]
    steps: usize,
    /// Print every step.
    #[arg(long)]
    trace: bool,
    /// Run every seed twice and compare the traces.
    #[arg(long)]
    meta: bool,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let (mut failed, mut events, mut crashes) = (0, 0, 0);
    let seeds = seeds(&arguments.seeds)?;
    let count = seeds.clone().count();
    for seed in seeds {
        let plan = Plan { steps: arguments.steps, ..Plan::new(seed) };
        let report = run(plan);
        events += report.events;
        crashes += report.crashes;
        if arguments.trace {
            report.trace.iter().enumerate().for_each(|(step, line)| println!("{step:5} {line}"));
        }
        if let Some(failure) = &report.failure {
            failed += 1;
            let again = format!("holdfast-sim --seeds {seed} --steps {} --trace", arguments.steps);
            println!("seed {seed} fails {failure}\n  rerun: cargo run --release -p holdfast-sim -- {}", &again[13..]);
        }
        if arguments.meta && run(plan) != report {
            bail!("seed {seed} does not do the same twice");
        }
    }
    println!("{count} seeds, {events} events, {crashes} crashes, {failed} failures");
    if failed > 0 {
        bail!("{failed} of {count} seeds failed");
    }
    Ok(())
}

fn seeds(text: &str) -> Result<RangeInclusive<u64>> {
    let (first, last) = text.split_once("..").unwrap_or((text, text));
    let last = last.strip_prefix('=').unwrap_or(last);
    Ok(first.parse()?..=last.parse()?)
}
