//! Compares admission, authentication and authorization with Kubernetes 1.36.2: verdicts, messages, objects, warnings,
//! headers and webhook calls.
//!
//! `HOLDFAST_FACTS=NAME cargo test --test facts_admission -- --nocapture` plays one setup, or one scenario by its id,
//! and prints the differences; `HOLDFAST_FACTS=all` prints all differences.

use holdfast_tests::recorded::{RecordedSetup, Recording};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;

/// How many scenarios of each setup agree completely: the numbers may only grow. A setup whose options the server does
/// not have yet counts as not started.
const AGREED: &[(&str, usize)] = &[
    ("abac", 1),
    ("alwayspull", 2),
    ("authn-basic", 39),
    ("authn-short", 3),
    ("authn-structured", 9),
    ("authn-webhook-oidc", 18),
    ("authz-webhook-flags", 1),
    ("authz-webhooks", 10),
    ("default", 445),
    ("default2", 6),
    ("default3", 1),
    ("eventrate", 2),
    ("node", 11),
    ("plugins1", 11),
    ("psa-config", 6),
    ("quota-config", 4),
    ("tokens", 0),
    ("typecheck", 5),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenarios_end_as_in_kubernetes() {
    let recording = Recording::open();
    let asked = std::env::var("HOLDFAST_FACTS").ok();
    let all = asked.as_deref().is_none_or(|asked| asked == "all");
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("facts-admission.jsonl");
    let mut differences = std::io::BufWriter::new(std::fs::File::create(&path).expect("a file for differences"));
    let (mut fewer, mut sum, mut count) = (Vec::new(), 0, 0);
    for name in recording.names() {
        let chosen =
            |scenario: &&Value| all || asked.as_deref().is_some_and(|asked| asked == name || scenario["id"] == asked);
        let scenarios: Vec<&Value> = recording.scenarios(name).filter(chosen).collect();
        if scenarios.is_empty() {
            continue;
        }
        let outcome = play(&recording, name, &scenarios).await;
        for difference in &outcome.differences {
            writeln!(differences, "{difference}").expect("write a difference");
            if asked.is_some() {
                println!("{difference:#}");
            }
        }
        println!("{name}: {} of {} scenarios agree{}", outcome.agreed, scenarios.len(), outcome.remark());
        (sum, count) = (sum + outcome.agreed, count + scenarios.len());
        let wanted =
            AGREED.iter().find(|(known, _)| *known == name).unwrap_or_else(|| panic!("no number for {name}")).1;
        if outcome.agreed < wanted {
            fewer.push(format!("{name}: {} agree, not {wanted}", outcome.agreed));
        }
    }
    println!("{sum} of {count} scenarios agree; differences: {}", path.display());
    assert!(asked.is_some() || fewer.is_empty(), "{fewer:?}: see {}", path.display());
}

struct Outcome {
    agreed: usize,
    differences: Vec<Value>,
    /// Why the server did not start.
    refused: Option<String>,
}

impl Outcome {
    fn remark(&self) -> String {
        if let Some(why) = &self.refused {
            return format!("; not started: {why}");
        }
        let mut parts: BTreeMap<&str, usize> = BTreeMap::new();
        for difference in &self.differences {
            *parts.entry(difference["part"].as_str().unwrap_or_default()).or_default() += 1;
        }
        if parts.is_empty() { String::new() } else { format!("; steps that differ, by what: {parts:?}") }
    }
}

async fn play(recording: &Recording, name: &str, scenarios: &[&Value]) -> Outcome {
    let mut stage = match RecordedSetup::start(recording, name).await {
        Ok(stage) => stage,
        Err(refused) => {
            let why = refused.stderr.lines().next().unwrap_or_default().to_owned();
            return Outcome { agreed: 0, differences: Vec::new(), refused: Some(why) };
        }
    };
    let (mut agreed, mut differences) = (0, Vec::new());
    for scenario in scenarios {
        let found = stage.play(scenario).await;
        agreed += usize::from(found.is_empty());
        differences.extend(found);
    }
    stage.stop();
    Outcome { agreed, differences, refused: None }
}
