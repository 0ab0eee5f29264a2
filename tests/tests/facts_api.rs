//! Compares the API's answers with those of Kubernetes 1.36.2 to the same requests.

use holdfast_tests::facts;
use holdfast_tests::scripts::{Agreement, AgreementCounts, Phase, Script, ScriptClient, compare, play};
use holdfast_tests::wire::HttpClient;
use holdfast_tests::{Folder, Server};
use serde_json::{Value, json};
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How many scripts agree: each number may only grow. A few scripts read objects that others change meanwhile, so two
/// or three more may agree in one run than in another.
const AGREED: AgreementCounts = AgreementCounts { codes: 3062, words: 3040, objects: 2991, wholly: 2968 };

/// How many scripts run at a time.
const PLAYERS: usize = 3;

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
    let results = play_all(&server, scripts).await;

    let (mut counts, mut newer, mut all) = (AgreementCounts::default(), AgreementCounts::default(), 0);
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("facts-api.jsonl");
    let mut differences = std::io::BufWriter::new(std::fs::File::create(&path).expect("a file for differences"));
    for (script, agreement, got) in &results {
        if script.since.is_some() {
            newer.add(*agreement);
        } else {
            counts.add(*agreement);
            all += 1;
        }
        if !(agreement.words && agreement.objects) {
            let line = difference(script, got, *agreement);
            writeln!(differences, "{line}").expect("write a difference");
        }
    }
    println!("{all} scripts: {counts}\nof newer versions: {newer}\ndifferences: {}", path.display());
    assert!(counts.reach(&AGREED), "fewer agree than did, see {}:\n{counts}, not\n{AGREED}", path.display());
    if counts != AGREED {
        println!("more agree than did; in {}:\nconst AGREED: Counts = {counts};", file!());
    }
    server.stop();
}

type Played = (Arc<Script>, Agreement, Vec<Value>);

/// Plays the scripts in their phases; those that read or change shared objects run alone.
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
