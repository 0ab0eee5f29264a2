//! What admission does, beside what it does in Kubernetes 1.36.2: verdicts, words, warnings and calls of webhooks.

use holdfast_tests::hooks::Hooks;
use holdfast_tests::scripts::{Client, Sent};
use holdfast_tests::wire::Wire;
use holdfast_tests::{Folder, Server, facts};
use regex::Regex;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::sync::LazyLock;

/// How many scenarios agree in all that is looked at: the number may only grow.
const AGREED: usize = 400;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenarios_end_as_in_kubernetes() {
    let folder = Folder::new();
    let tokens = folder.join("tokens.csv");
    std::fs::write(&tokens, "tok,admin,admin,\"system:masters\"\n").expect("write the tokens");
    let options = [
        "--token-auth-file",
        tokens.to_str().expect("UTF-8"),
        "--service-cluster-ip-range=10.0.0.0/16",
        // No controllers ran: scenarios make the accounts that they need.
        "--controllers=-*",
        "--enable-admission-plugins=ServiceAccount,StorageObjectInUseProtection",
    ];
    let server = Server::start(&folder.join("data"), &options);
    let hooks = Hooks::start().await;
    let mut client = Client::new(Wire::anonymous(&server), "tok");
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("facts-admission.jsonl");
    let mut differences = std::io::BufWriter::new(std::fs::File::create(&path).expect("a file for differences"));
    let (mut agreed, mut all) = (0, 0);
    for scenario in facts::lines("admission") {
        let found = play(&mut client, &hooks, &scenario).await;
        all += 1;
        agreed += usize::from(found.is_empty());
        for difference in found {
            writeln!(differences, "{difference}").expect("write a difference");
        }
    }
    println!("{agreed} of {all} scenarios agree; differences: {}", path.display());
    assert!(agreed >= AGREED, "only {agreed} agree, not {AGREED}: see {}", path.display());
    server.stop();
}

/// Plays one scenario; gives back what differs.
async fn play(client: &mut Client, hooks: &Hooks, scenario: &Value) -> Vec<Value> {
    let mut variables: Vec<(String, String)> =
        hooks.names.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
    for (path, behaviour) in scenario["hooks"].as_object().into_iter().flatten() {
        hooks.behave(path, behaviour.clone());
    }
    for prior in list(&scenario["prior"]).filter(|prior| prior["path"].is_string()) {
        let answer = ask(client, prior, &variables).await;
        save(prior, &answer.document, &mut variables);
    }
    let mut differences = Vec::new();
    for step in list(&scenario["steps"]).filter(|step| step["answer"].is_object()) {
        for (path, behaviour) in step["rebeh"].as_object().into_iter().flatten() {
            hooks.behave(path, behaviour.clone());
        }
        hooks.take_calls();
        let answer = ask(client, step, &variables).await;
        save(step, &answer.document, &mut variables);
        let calls = called(hooks.take_calls().iter(), |call| &call["request"]);
        let got = looked_at(&answer, &variables);
        let recorded = [&step["answer"], &step["alsoSeen"]["answer"]];
        let wanted: Vec<Value> = recorded.into_iter().filter(|answer| answer.is_object()).map(recorded_as).collect();
        let wanted_calls = called(list(&step["webhookCalls"]), |call| &call["body"]["request"]);
        if !wanted.contains(&got) || (scenario["hooks"].is_object() && calls != wanted_calls) {
            differences.push(json!({"scenario": scenario["id"], "area": scenario["area"], "title": scenario["title"],
                "path": step["path"], "want": wanted, "got": got, "calls": calls, "wantedCalls": wanted_calls}));
        }
    }
    for path in list(&scenario["cleanup"]).filter_map(Value::as_str) {
        ask(client, &json!({"method": "DELETE", "path": path}), &variables).await;
    }
    differences
}

struct Answered {
    code: u16,
    document: Value,
    warnings: Vec<String>,
    /// What a generated name begins with.
    base: Option<String>,
}

async fn ask(client: &mut Client, step: &Value, variables: &[(String, String)]) -> Answered {
    let filled = |text: String| {
        let known = variables.iter();
        known.fold(text, |text, (name, value)| text.replace(name.as_str(), value))
    };
    let mut headers: BTreeMap<String, Option<String>> = BTreeMap::new();
    headers.insert("user-agent".into(), Some("admf".into()));
    let content_type = step["ctype"].as_str().unwrap_or("application/json");
    headers.insert("content-type".into(), Some(content_type.to_owned()));
    if let Some(name) = step["user"]["as"].as_str() {
        headers.insert("impersonate-user".into(), Some(filled(name.to_owned())));
        let groups: Vec<&str> = list(&step["user"]["groups"]).filter_map(Value::as_str).collect();
        // The first of several is the one that counts in what is recorded.
        headers.extend(groups.first().map(|group| ("impersonate-group".to_owned(), Some((*group).to_owned()))));
    }
    let raw = step["raw"].as_str().map(str::to_owned);
    let body = raw.or_else(|| step.get("body").filter(|body| !body.is_null()).map(Value::to_string));
    let path = filled(step["path"].as_str().expect("a path").to_owned());
    let sent = Sent {
        method: step["method"].as_str().expect("a method"),
        path: &path,
        headers: &headers,
        body: body.map(|body| filled(body).into()),
        events: None,
    };
    let received = client.send(&sent).await;
    let warnings = received.headers.get_all("warning").iter();
    Answered {
        code: received.code,
        document: serde_json::from_slice(&received.body).unwrap_or_default(),
        warnings: warnings.map(|warning| String::from_utf8_lossy(warning.as_bytes()).into_owned()).collect(),
        base: step["body"]["metadata"]["generateName"].as_str().map(str::to_owned),
    }
}

/// Keeps what later steps refer to.
fn save(step: &Value, document: &Value, variables: &mut Vec<(String, String)>) {
    for (name, pointer) in step["save"].as_object().into_iter().flatten() {
        let value = document.pointer(pointer.as_str().unwrap_or_default());
        if let Some(value) = value.and_then(Value::as_str) {
            variables.push((format!("<{name}>"), value.to_owned()));
        }
    }
}

/// What is compared of an answer.
fn looked_at(answer: &Answered, variables: &[(String, String)]) -> Value {
    let text = |text: &str| {
        let names = variables.iter().filter(|(name, _)| !name.contains("uid"));
        let masked = names.fold(text.to_owned(), |text, (name, value)| text.replace(value.as_str(), name));
        let masked = UID.replace_all(&masked, "<uid>").into_owned();
        let masked = TIME.replace_all(&masked, "<time>").into_owned();
        match &answer.base {
            Some(base) => {
                let generated = Regex::new(&format!("{}[a-z0-9]{{5}}", regex::escape(base))).expect("a pattern");
                generated.replace_all(&masked, format!("{base}<gen>")).into_owned()
            }
            None => masked,
        }
    };
    let refused = answer.code >= 400;
    let told = |field: &str| answer.document[field].as_str().filter(|_| refused).map(text);
    json!({"code": answer.code, "reason": told("reason"), "message": told("message"),
        "warnings": answer.warnings.iter().map(|warning| text(warning)).collect::<Vec<_>>()})
}

fn recorded_as(answer: &Value) -> Value {
    let text = |text: &str| UID_MASK.replace_all(text, "<uid>").into_owned();
    let told = |field: &str| answer[field].as_str().map(text);
    let warnings: Vec<String> = list(&answer["warnings"]).filter_map(Value::as_str).map(text).collect();
    json!({"code": answer["code"], "reason": told("reason"), "message": told("message"), "warnings": warnings})
}

static UID: LazyLock<Regex> =
    LazyLock::new(|| Regex::new("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}").expect("a pattern"));
static UID_MASK: LazyLock<Regex> = LazyLock::new(|| Regex::new("<uid-[0-9]+>").expect("a pattern"));
static TIME: LazyLock<Regex> =
    LazyLock::new(|| Regex::new("20[0-9]{2}-[0-9]{2}-[0-9]{2}T[0-9:.]+Z").expect("a pattern"));

/// Which webhooks were asked about what, in no order.
fn called<'a>(calls: impl Iterator<Item = &'a Value>, request: impl Fn(&'a Value) -> &'a Value) -> Vec<String> {
    let mut calls: Vec<String> = calls
        .map(|call| {
            let request = request(call);
            format!(
                "{} {} {} {} {}",
                call["path"], call["query"], request["operation"], request["kind"], request["subResource"]
            )
        })
        .collect();
    calls.sort();
    calls
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}
