fn main() {
    let arguments: Vec<u64> = std::env::args().skip(1).map(|a| a.parse().unwrap()).collect();
    let (from, to, steps, trace) = (arguments[0], arguments[1], arguments[2], arguments.get(3).is_some());
    let start = std::time::Instant::now();
    let mut known = std::collections::BTreeSet::new();
    let (mut commands, mut events, mut crashes, mut failed) = (0, 0, 0, 0);
    for seed in from..=to {
        let plan = holdfast_sim::Plan { steps: steps as usize, trace, ..holdfast_sim::Plan::new(seed) };
        let report = holdfast_sim::simulate(&plan);
        if trace {
            report.trace.iter().for_each(|line| println!("{line}"));
        }
        commands += report.commands;
        events += report.events;
        crashes += report.crashes;
        if let Some(failure) = report.failure {
            failed += 1;
            let key: String = failure
                .why
                .lines()
                .next()
                .unwrap()
                .split(" ")
                .filter(|w| w.chars().all(|c| c.is_ascii_lowercase()))
                .take(12)
                .collect::<Vec<_>>()
                .join(" ");
            if !known.insert(key) {
                continue;
            }
            println!("seed {seed} step {}: {}", failure.step, failure.why);
            if std::env::var("SHRINK").is_ok() {
                let (steps, _) = holdfast_sim::shrink(
                    &plan,
                    &failure,
                    std::time::Instant::now() + std::time::Duration::from_secs(10),
                );
                let report = holdfast_sim::simulate(&holdfast_sim::Plan { only: Some(steps), trace: true, ..plan });
                report.trace.iter().for_each(|line| println!("    {line}"));
            }
        }
    }
    println!(
        "{commands} commands {events} events {crashes} crashes {failed} failed; {:.0}/s",
        commands as f64 / start.elapsed().as_secs_f64()
    );
}
