//! Compares the API's answers with the answers of Kubernetes 1.36.2 to the same requests.

use holdfast_tests::differences::{Differences, Parts};
use holdfast_tests::facts;
use holdfast_tests::scripts::{Agreement, Phase, Script, ScriptClient, compare, play};
use holdfast_tests::wire::HttpClient;
use holdfast_tests::{Folder, Server};
use serde_json::{Value, json};
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How many scripts run at a time.
const PLAYERS: usize = 3;

/// The number of the first script that is played again. A script makes the names of its objects from its number.
const AGAIN: usize = 10_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scripts_are_answered_as_kubernetes_answers_them() {
    let folder = Folder::new();
    let tokens = folder.join("tokens.csv");
    std::fs::write(&tokens, "tok,admin,admin,\"system:masters\"\n").expect("write the tokens");
    let options = [
        "--token-auth-file",
        tokens.to_str().expect("UTF-8"),
        "--service-cluster-ip-range=10.0.0.0/16",
        // Controllers are off, because only the API server's own answers are recorded.
        "--controllers=-*",
        "--disable-admission-plugins=ServiceAccount,LimitRanger,TaintNodesByCondition,PodSecurity,Priority,DefaultTolerationSeconds,\
         DefaultStorageClass,StorageObjectInUseProtection,PersistentVolumeClaimResize,RuntimeClass,DefaultIngressClass,\
         PodTopologyLabels,MutatingAdmissionWebhook,ValidatingAdmissionPolicy,ValidatingAdmissionWebhook,ResourceQuota",
    ];
    let server = Server::start(&folder.join("data"), &options);
    let scripts: Vec<Script> = facts::lines("api");
    let known = Differences::of("api");
    let mut results = play_all(&server, scripts).await;
    // A script may have read what another script changed at the same time. So a script that differs and is not listed
    // is played again, alone.
    let mut client = ScriptClient::new(HttpClient::anonymous(&server), "tok");
    for (number, (script, agreement, got)) in results.iter_mut().enumerate() {
        if !known.explains(&script.name, &agreement.differing()) {
            println!("played again: {}", script.name);
            *got = play(&mut client, script, AGAIN + number).await;
            *agreement = compare(script, got);
        }
    }

    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("facts-api.jsonl");
    let mut details = std::io::BufWriter::new(std::fs::File::create(&path).expect("a file for differences"));
    let mut differing = Parts::new();
    for (script, agreement, got) in &results {
        let parts = agreement.differing();
        if !parts.is_empty() {
            writeln!(details, "{}", difference(script, got, *agreement)).expect("write a difference");
            differing.insert(script.name.clone(), parts);
        }
    }
    details.flush().expect("write the differences");
    println!("{} of {} scripts agree; differences: {}", results.len() - differing.len(), results.len(), path.display());
    let played = results.iter().map(|(script, ..)| script.name.clone()).collect();
    known.check(&played, &differing, &path);
    server.stop();
}

type Played = (Arc<Script>, Agreement, Vec<Value>);

/// Plays the scripts phase by phase; scripts that read or change shared objects run alone.
async fn play_all(server: &Server, scripts: Vec<Script>) -> Vec<Played> {
    let scripts: Arc<Vec<Arc<Script>>> = Arc::new(scripts.into_iter().map(Arc::new).collect());
    let mut played = Vec::new();
    for (phase, players) in [(Phase::First, 1), (Phase::Among, PLAYERS), (Phase::Last, 1)] {
        let next = Arc::new(AtomicUsize::new(0));
        let player = |_| {
            let (scripts, next) = (scripts.clone(), next.clone());
            let mut client = ScriptClient::new(HttpClient::anonymous(server), "tok");
            tokio::spawn(async move {
                let mut played = Vec::new();
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(script) = scripts.get(number) else { return played };
                    if script.phase() == phase {
                        let got = play(&mut client, script, number).await;
                        played.push((script.clone(), compare(script, &got), got));
                    }
                }
            })
        };
        for player in (0..players).map(player).collect::<Vec<_>>() {
            played.extend(player.await.expect("a player that ends"));
        }
    }
    played.sort_by(|one, other| one.0.name.cmp(&other.0.name));
    played
}

fn difference(script: &Script, got: &[Value], agreement: Agreement) -> Value {
    json!({"name": script.name, "want": script.answers, "got": got, "codes": agreement.codes,
        "words": agreement.words, "objects": agreement.objects})
}
