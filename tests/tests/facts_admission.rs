//! Compares admission, authentication and authorization with Kubernetes 1.36.2: verdicts, messages, objects, warnings,
//! headers and webhook calls.
//!
//! `HOLDFAST_FACTS=NAME cargo test --test facts_admission -- --nocapture` plays one setup, or one scenario by its id,
//! and prints the differences; `HOLDFAST_FACTS=all` prints all differences.

use holdfast_tests::differences::{Differences, Parts};
use holdfast_tests::recorded::{RecordedSetup, Recording};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::PathBuf;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenarios_end_as_in_kubernetes() {
    let recording = Recording::open();
    let asked = std::env::var("HOLDFAST_FACTS").ok();
    let all = asked.as_deref().is_none_or(|asked| asked == "all");
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("facts-admission.jsonl");
    let mut details = std::io::BufWriter::new(std::fs::File::create(&path).expect("a file for differences"));
    let (mut played, mut differing) = (BTreeSet::new(), Parts::new());
    for name in recording.names() {
        let chosen =
            |scenario: &&Value| all || asked.as_deref().is_some_and(|asked| asked == name || scenario["id"] == asked);
        let scenarios: Vec<&Value> = recording.scenarios(name).filter(chosen).collect();
        if scenarios.is_empty() {
            continue;
        }
        let outcome = play(&recording, name, &scenarios).await;
        for difference in &outcome.differences {
            writeln!(details, "{difference}").expect("write a difference");
            if asked.is_some() {
                println!("{difference:#}");
            }
            let text = |field: &str| difference[field].as_str().expect("text").to_owned();
            differing.entry(text("scenario")).or_default().insert(text("part"));
        }
        println!("{name}: {} of {} scenarios agree{}", outcome.agreed, scenarios.len(), outcome.remark());
        played.extend(scenarios.iter().map(|scenario| scenario["id"].as_str().expect("an id").to_owned()));
    }
    details.flush().expect("write the differences");
    println!("{} of {} scenarios agree; differences: {}", played.len() - differing.len(), played.len(), path.display());
    Differences::of("admission").check(&played, &differing, &path);
}

struct Outcome {
    agreed: usize,
    differences: Vec<Value>,
}

impl Outcome {
    fn remark(&self) -> String {
        let mut parts: BTreeMap<&str, usize> = BTreeMap::new();
        for difference in &self.differences {
            *parts.entry(difference["part"].as_str().unwrap_or_default()).or_default() += 1;
        }
        if parts.is_empty() { String::new() } else { format!("; steps that differ, by what: {parts:?}") }
    }
}

async fn play(recording: &Recording, name: &str, scenarios: &[&Value]) -> Outcome {
    let mut stage = RecordedSetup::start(recording, name)
        .await
        .unwrap_or_else(|refused| panic!("the server of {name} did not start: {}", refused.stderr));
    let (mut agreed, mut differences) = (0, Vec::new());
    for scenario in scenarios {
        let found = stage.play(scenario).await;
        agreed += usize::from(found.is_empty());
        differences.extend(found);
    }
    stage.stop();
    Outcome { agreed, differences }
}
