//! Compares the results of controllers' scenarios with the results of Kubernetes 1.36.2 for the same steps.

use holdfast_tests::controllers::{Cluster, Difference, Scenario, compare, play};
use holdfast_tests::differences::{Differences, Parts};
use holdfast_tests::facts;
use holdfast_tests::wire::HttpClient;
use holdfast_tests::{Folder, Server};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How many scenarios play at a time; they mostly wait.
const PLAYERS: usize = 48;

/// How many scenarios play at a time when they are played again.
const PLAYERS_AGAIN: usize = 4;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenarios_come_to_what_kubernetes_makes_of_them() {
    let folder = Folder::new();
    let tokens = folder.join("tokens.csv");
    std::fs::write(&tokens, "tok,admin,admin,\"system:masters\"\n").expect("write the tokens");
    let tokens = tokens.to_str().expect("UTF-8");
    let options =
        ["--token-auth-file", tokens, "--service-cluster-ip-range", "10.0.0.0/16", "--nodes", "3", "--controllers=*"];
    let server = Server::start(&folder.join("data"), &options);
    let wire = HttpClient { http2: true, ..HttpClient::anonymous(&server).with_token("tok") };
    let cluster = Cluster::watch(wire).await;

    let known = Differences::of("controllers");
    let mut played = play_all(&cluster, scenarios(), "c", PLAYERS).await;
    // On a busy machine a step can be late. So scenarios that differ and are not listed are played again, a few at a
    // time.
    let is_new = |id: &str, outcome: &Outcome| !known.explains(id, &differing(outcome));
    let again = played.iter().filter(|(id, (_, outcome))| is_new(id, outcome)).map(|(id, _)| id.clone());
    let again: BTreeSet<String> = again.collect();
    if !again.is_empty() {
        println!("played again: {again:?}");
        let again = scenarios().into_iter().filter(|scenario| again.contains(&scenario.id)).collect();
        played.extend(play_all(&cluster, again, "again", PLAYERS_AGAIN).await);
    }

    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("facts-controllers.jsonl");
    let mut file = std::io::BufWriter::new(std::fs::File::create(&path).expect("a file for differences"));
    let mut counts: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    let mut found = Parts::new();
    for (id, (scenario, outcome)) in &played {
        let count = counts.entry(&scenario.controller).or_default();
        count.1 += 1;
        let line = match outcome {
            Ok(differences) if differences.is_empty() => {
                count.0 += 1;
                continue;
            }
            Ok(differences) => {
                json!({"id": scenario.id, "controller": scenario.controller, "differences": differences})
            }
            Err(failed) => json!({"id": scenario.id, "controller": scenario.controller, "failed": failed}),
        };
        writeln!(file, "{line}").expect("write a difference");
        found.insert(id.clone(), differing(outcome));
    }
    file.flush().expect("write the differences");
    for (controller, (agreed, all)) in &counts {
        println!("{controller:28} {agreed:3} of {all}");
    }
    println!("{} of {} agree; differences: {}", played.len() - found.len(), played.len(), path.display());
    known.check(&played.into_keys().collect(), &found, &path);
    server.stop();
}

/// The parts that differ; `failed` if the scenario could not be played to its end.
fn differing(outcome: &Outcome) -> BTreeSet<String> {
    match outcome {
        Ok(differences) => differences.iter().map(|difference| difference.part.to_string()).collect(),
        Err(_) => ["failed".to_owned()].into(),
    }
}

/// The scenarios whose name or controller matches `$SCENARIOS`, or all; long ones first, so that none of them runs
/// alone at the end.
fn scenarios() -> Vec<Scenario> {
    let lines = facts::lines::<serde_json::Value>("controllers").into_iter().filter(|line| line["id"].is_string());
    let mut scenarios: Vec<Scenario> = lines.map(|line| serde_json::from_value(line).expect("a scenario")).collect();
    if let Ok(pattern) = std::env::var("SCENARIOS") {
        let pattern = regex::Regex::new(&pattern).expect("a pattern");
        scenarios.retain(|scenario| pattern.is_match(&scenario.id) || pattern.is_match(&scenario.controller));
    }
    scenarios.sort_by_key(|scenario| std::cmp::Reverse(scenario.seconds));
    scenarios
}

/// The differences of a scenario, or why it could not be played.
type Outcome = Result<Vec<Difference>, String>;

/// Plays scenarios, each in a namespace whose name begins with `prefix`. Returns the outcomes by the scenarios' ids.
async fn play_all(
    cluster: &Arc<Cluster>,
    scenarios: Vec<Scenario>,
    prefix: &'static str,
    players: usize,
) -> BTreeMap<String, (Arc<Scenario>, Outcome)> {
    let scenarios: Arc<Vec<Arc<Scenario>>> = Arc::new(scenarios.into_iter().map(Arc::new).collect());
    let next = Arc::new(AtomicUsize::new(0));
    let player = |_| {
        let (cluster, scenarios, next) = (cluster.clone(), scenarios.clone(), next.clone());
        tokio::spawn(async move {
            let mut played: Vec<(Arc<Scenario>, Outcome)> = Vec::new();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let Some(scenario) = scenarios.get(number) else { return played };
                let short: String =
                    scenario.id.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').take(24).collect();
                let namespace = format!("{prefix}{number:x}-{}", short.trim_matches('-'));
                let got = play(&cluster, scenario, &namespace).await;
                played.push((scenario.clone(), got.map(|got| compare(scenario, &got))));
            }
        })
    };
    let mut played = BTreeMap::new();
    for player in (0..players).map(player).collect::<Vec<_>>() {
        let ended = player.await.expect("a player that ends");
        played.extend(ended.into_iter().map(|(scenario, outcome)| (scenario.id.clone(), (scenario, outcome))));
    }
    played
}
