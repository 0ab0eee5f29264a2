//! Compares the outcome of pods in recorded small clusters with the outcome in Kubernetes' scheduler, over HTTP,
//! against running servers. `components/scheduler/tests/facts` compares every decision; this test compares what clients
//! see.
//!
//! By default only some scenarios are played. `SCENARIOS=all` plays all scenarios of the default configuration, and
//! `SCENARIOS=TEXT` plays the scenarios whose names contain the text.

use holdfast_tests::facts;
use holdfast_tests::scheduling::Player;
use holdfast_tests::{Folder, Server};
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const SERVERS: usize = 4;
/// By default, one in this many scenarios is played.
const ONE_OF: usize = 9;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_fare_as_with_kubernetes() {
    let lines = facts::lines::<Value>("scheduling");
    let only = std::env::var("SCENARIOS").unwrap_or_default();
    let usual = lines[1..].iter().filter(|scenario| scenario["config"].is_null());
    let chosen = usual.enumerate().filter(|(at, scenario)| match only.as_str() {
        "" => at % ONE_OF == 0,
        "all" => true,
        text => scenario["name"].as_str().is_some_and(|name| name.contains(text)),
    });
    let chosen: Arc<Vec<Value>> = Arc::new(chosen.map(|(_, scenario)| scenario.clone()).collect());
    let next = Arc::new(AtomicUsize::new(0));
    let folder = Arc::new(Folder::new());
    let play = |number: usize| {
        let (chosen, next, folder, fixtures) =
            (chosen.clone(), next.clone(), folder.clone(), lines[0]["fixtures"].clone());
        tokio::spawn(async move {
            // The server runs the scheduler only if it runs some controller, so the option names a controller that has
            // nothing to do here. The nodes come only from the scenarios.
            let options = [
                "--controllers=ttl-after-finished-controller",
                "--nodes=0",
                "--disable-admission-plugins=TaintNodesByCondition",
            ];
            let server = Server::start(&folder.join(&number.to_string()), &options);
            let mut player = Player::new(server.client().await, &fixtures).await;
            let mut differing = Vec::new();
            while let Some(scenario) = chosen.get(next.fetch_add(1, Ordering::Relaxed)) {
                let differences = player.play(scenario).await;
                if !differences.is_empty() {
                    differing.push(format!("{}: {}", scenario["name"], differences.join("; ")));
                }
            }
            server.stop();
            differing
        })
    };
    let mut differing = Vec::new();
    for player in (0..SERVERS).map(play).collect::<Vec<_>>() {
        differing.extend(player.await.expect("a player that ends"));
    }
    println!("{} of {} agree", chosen.len() - differing.len(), chosen.len());
    assert!(!chosen.is_empty() && differing.is_empty(), "{}", differing.join("\n"));
}
