//! The audit log: compares its events with the events of Kubernetes 1.36.2 for the same requests, and tests its
//! backends.

use holdfast_tests::differences::{Differences, Parts};
use holdfast_tests::hooks::Hooks;
use holdfast_tests::recorded::prepare;
use holdfast_tests::server::{fails, holdfast};
use holdfast_tests::wire::HttpClient;
use holdfast_tests::{Folder, Server, eventually, facts};
use http::Method;
use serde_json::{Value, json};
use std::collections::{BTreeSet, HashMap};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// With `HOLDFAST_FACTS=all` the test prints the differences.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_are_told_of_as_kubernetes_tells_of_them() {
    let mut lines = facts::lines::<Value>("audit").into_iter();
    let setups = lines.next().expect("the set-ups")["setups"].clone();
    let scenarios: Vec<Value> = lines.collect();
    let (mut played, mut differing) = (BTreeSet::new(), Parts::new());
    for (name, setup) in setups.as_object().expect("set-ups") {
        let folder = Folder::new();
        let server = start(&folder, setup);
        for scenario in scenarios.iter().filter(|scenario| scenario["setup"] == *name) {
            play(&server, scenario).await;
            let ids: Vec<String> = (0..array(&scenario["steps"]).len()).map(|index| id_of(scenario, index)).collect();
            let (mut ours, mut theirs) = (HashMap::new(), HashMap::new());
            for (step, id) in array(&scenario["steps"]).iter().zip(ids) {
                if step["audit"].is_null() {
                    continue;
                }
                let expected = normalised(&step["audit"], &mut theirs);
                let patience = Duration::from_secs(3);
                let count = array(&expected).len();
                let told = || async {
                    let told = told(&folder.join("audit.log"), &id);
                    if told.len() >= count { Ok(told) } else { Err(told.len()) }
                };
                let told = match tokio::time::timeout(patience, eventually(patience * 4, told)).await {
                    Ok(told) => told,
                    Err(_) => self::told(&folder.join("audit.log"), &id),
                };
                let told = normalised(&told.into(), &mut ours);
                if told != expected {
                    if std::env::var("HOLDFAST_FACTS").is_ok() {
                        println!("{id}\n  theirs {expected}\n  ours   {told}");
                    }
                    differing.insert(id.clone(), ["events".to_owned()].into());
                }
                played.insert(id);
            }
        }
        server.stop();
    }
    println!("{} of {} agree", played.len() - differing.len(), played.len());
    let faults = Differences::of("audit").faults(&played, &differing);
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

fn array(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn id_of(scenario: &Value, index: usize) -> String {
    format!("a-{}-{index}", scenario["id"].as_str().expect("an id"))
}

/// A server with a setup's options and files.
fn start(folder: &Folder, setup: &Value) -> Server {
    let options = prepare(folder, &["--token-auth-file=<dir>/tokens.csv"], setup, &[]);
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    Server::start(&folder.join("data"), &options)
}

async fn play(server: &Server, scenario: &Value) {
    for step in array(&scenario["prior"]) {
        send(server, step, None).await;
    }
    for (index, step) in array(&scenario["steps"]).iter().enumerate() {
        send(server, step, Some(&id_of(scenario, index))).await;
    }
}

async fn send(server: &Server, step: &Value, id: Option<&str>) {
    let Some(method) = step["method"].as_str() else { return };
    let (user, mut headers) = (&step["user"], vec![("user-agent".to_owned(), "admf".to_owned())]);
    let kind = step["ctype"].as_str().unwrap_or("application/json");
    headers.push(("content-type".into(), kind.into()));
    headers.extend(id.map(|id| ("audit-id".to_owned(), id.to_owned())));
    if let Some(name) = user["as"].as_str() {
        headers.push(("impersonate-user".into(), name.into()));
        headers.extend(user["uid"].as_str().map(|uid| ("impersonate-uid".to_owned(), uid.to_owned())));
        for group in array(&user["groups"]) {
            headers.push(("impersonate-group".into(), group.as_str().unwrap_or("").into()));
        }
        for (key, values) in user["extra"].as_object().into_iter().flatten() {
            for value in array(values) {
                headers.push((format!("impersonate-extra-{key}"), value.as_str().unwrap_or("").into()));
            }
        }
    }
    for (name, value) in step["headers"].as_object().into_iter().flatten() {
        let name = name.to_lowercase();
        headers.retain(|(known, _)| *known != name);
        headers.push((name, value.as_str().unwrap_or("").into()));
    }
    let body = match (&step["body"], step["raw"].as_str()) {
        (Value::Null, raw) => raw.unwrap_or("").to_owned(),
        (body, _) => body.to_string(),
    };
    let mut wire = HttpClient::anonymous(server);
    if user["anonymous"] != json!(true) {
        wire = wire.with_token(user["token"].as_str().unwrap_or("tok"));
    }
    let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let method = Method::from_bytes(method.as_bytes()).expect("a method");
    wire.send(method, step["path"].as_str().expect("a path"), &headers, body).await;
}

/// The events of the request with this audit id.
fn told(file: &Path, id: &str) -> Vec<Value> {
    let lines = BufReader::new(std::fs::File::open(file).expect("the audit log")).lines();
    let events = lines.map(|line| serde_json::from_str::<Value>(&line.expect("text")).expect("a line of JSON"));
    events.filter(|event| event["auditID"] == id).collect()
}

/// The value without parts that differ from run to run. UIDs are numbered in their order.
fn normalised(value: &Value, uids: &mut HashMap<String, String>) -> Value {
    match value {
        Value::Array(items) => items.iter().map(|item| normalised(item, uids)).collect(),
        Value::Object(fields) => {
            let kept = fields.iter().filter(|(name, _)| *name != "managedFields").map(|(name, value)| {
                let value = match (name.as_str(), value.as_str()) {
                    ("resourceVersion", _) => "<rv>".into(),
                    ("creationTimestamp" | "time" | "requestReceivedTimestamp" | "stageTimestamp", Some(_)) => {
                        "<time>".into()
                    }
                    ("lastTransitionTime", Some(_)) => "<time>".into(),
                    // The age of an object is zero or one second, depending on the run, so ages are masked.
                    ("cells", _) => array(value)
                        .iter()
                        .map(|cell| if is_age(cell) { "<age>".into() } else { cell.clone() })
                        .collect(),
                    ("clusterIP", Some(_)) => "<ip>".into(),
                    ("clusterIPs", _) => "<ips>".into(),
                    ("name", Some(name)) if name.starts_with("kube-api-access-") => "kube-api-access-<gen>".into(),
                    ("uid", Some(uid)) if uid.len() == 36 || uid.starts_with("<uid") => {
                        let next = format!("<uid-{}>", uids.len() + 1);
                        uids.entry(uid.to_owned()).or_insert(next).as_str().into()
                    }
                    ("annotations", _) => {
                        let mut annotations = value.clone();
                        if let Some(annotations) = annotations.as_object_mut() {
                            annotations.retain(|name, _| !name.starts_with("apiserver.latency"));
                            let ids = annotations
                                .values_mut()
                                .filter(|value| value.as_str().is_some_and(|value| value.starts_with("JTI=")));
                            ids.for_each(|id| *id = "JTI=<uid>".into());
                        }
                        annotations
                    }
                    _ => normalised(value, uids),
                };
                (name.clone(), value)
            });
            Value::Object(kept.collect())
        }
        other => other.clone(),
    }
}

fn is_age(cell: &Value) -> bool {
    cell.as_str().and_then(|cell| cell.strip_suffix('s')).is_some_and(|seconds| seconds.parse::<u32>().is_ok())
}

const EVERYTHING: &str = "{apiVersion: audit.k8s.io/v1, kind: Policy, omitStages: [RequestReceived], rules: [{level: None, \
                          users: ['system:apiserver']}, {level: Metadata, verbs: [create]}]}";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_go_to_a_webhook_in_batches_and_all_of_them_before_the_end() {
    let folder = Folder::new();
    std::fs::write(folder.join("policy.yaml"), EVERYTHING).expect("write");
    let (port, lists) = receiver(2);
    std::fs::write(folder.join("webhook.yaml"), webhook_at(port)).expect("write");
    let option = |name: &str, file: &str| format!("--audit-{name}={}", folder.join(file).display());
    let server = Server::start(
        &folder.join("data"),
        &[
            &option("policy-file", "policy.yaml"),
            &option("webhook-config-file", "webhook.yaml"),
            "--audit-webhook-batch-max-size=10",
            "--audit-webhook-batch-max-wait=1h",
            "--audit-webhook-initial-backoff=10ms",
            "--controllers=-*",
        ],
    );
    let admin = HttpClient::admin(&server);
    for number in 0..25 {
        let body = json!({"metadata": {"name": format!("c-{number}")}});
        admin.post("/api/v1/namespaces/default/configmaps", &body).await.expect(201);
    }
    server.stop();
    let lists = lists.lock().expect("lists").clone();
    assert!(lists.iter().all(|(path, list)| path == "/events" && list["kind"] == "EventList"), "{lists:?}");
    let sizes: Vec<usize> = lists.iter().map(|(_, list)| array(&list["items"]).len()).collect();
    assert!(sizes.iter().all(|size| *size <= 10), "{sizes:?}");
    let mut names: Vec<&str> = lists
        .iter()
        .flat_map(|(_, list)| array(&list["items"]))
        .filter_map(|event| event["objectRef"]["name"].as_str())
        .filter(|name| name.starts_with("c-"))
        .collect();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 25, "{names:?}");
}

/// A kubeconfig for a webhook backend.
fn webhook_at(port: u16) -> String {
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "a",
        "clusters": [{"name": "a", "cluster": {"server": format!("http://127.0.0.1:{port}/events?key=1")}}],
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
        "users": [{"name": "a", "user": {}}],
    });
    kubeconfig.to_string()
}

/// A webhook backend that never answers does not block the server's shutdown, and the lost events are counted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_webhook_that_hangs_does_not_hold_up_the_end() {
    let folder = Folder::new();
    std::fs::write(folder.join("policy.yaml"), EVERYTHING).expect("write");
    // The operating system accepts connections to this port, and no program reads from them.
    let hanging = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = hanging.local_addr().expect("an address").port();
    std::fs::write(folder.join("webhook.yaml"), webhook_at(port)).expect("write");
    let option = |name: &str, file: &str| format!("--audit-{name}={}", folder.join(file).display());
    let options = [option("policy-file", "policy.yaml"), option("webhook-config-file", "webhook.yaml")];
    let mut server = Server::start(&folder.join("data"), &[&options[0], &options[1], "--controllers=-*"]);
    let admin = HttpClient::admin(&server);
    for number in 0..5 {
        let body = json!({"metadata": {"name": format!("c-{number}")}});
        admin.post("/api/v1/namespaces/default/configmaps", &body).await.expect(201);
    }
    server.signal("TERM");
    assert_eq!(server.wait().code(), Some(0), "{}", server.stderr());
    let told = server.stderr();
    let lost = told.lines().find(|line| line.contains("audit events are lost: the server stops"));
    assert!(lost.is_some_and(|line| line.contains("events=")), "{told}");
}

type Lists = Arc<Mutex<Vec<(String, Value)>>>;

/// Starts a webhook backend that fails `failures` times, and then stores the lists of events that it receives.
fn receiver(mut failures: usize) -> (u16, Lists) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let (port, lists) = (listener.local_addr().expect("an address").port(), Lists::default());
    let kept = lists.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut reader = BufReader::new(stream.expect("a connection"));
            let (mut first, mut length) = (String::new(), 0);
            _ = reader.read_line(&mut first);
            loop {
                let mut header = String::new();
                if reader.read_line(&mut header).unwrap_or(0) <= 2 {
                    break;
                }
                if let Some(value) = header.to_lowercase().strip_prefix("content-length:") {
                    length = value.trim().parse().expect("a length");
                }
            }
            let mut body = vec![0; length];
            _ = reader.read_exact(&mut body);
            let code = if failures > 0 { "503 Service Unavailable" } else { "200 OK" };
            if failures == 0 {
                let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
                kept.lock().expect("lists").push((path, serde_json::from_slice(&body).expect("JSON")));
            }
            failures = failures.saturating_sub(1);
            let answer = format!("HTTP/1.1 {code}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
            _ = reader.get_mut().write_all(answer.as_bytes());
        }
    });
    (port, lists)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trail_that_must_be_whole_refuses_what_it_cannot_tell_of() {
    let folder = Folder::new();
    std::fs::write(folder.join("policy.yaml"), EVERYTHING.replace("[RequestReceived]", "[]")).expect("write");
    // Writes to `/dev/full` fail, so no audit event can be stored.
    let options = [
        format!("--audit-policy-file={}", folder.join("policy.yaml").display()),
        "--audit-log-path=/dev/full".to_owned(),
        "--audit-log-mode=blocking-strict".to_owned(),
        "--controllers=-*".to_owned(),
    ];
    let server = Server::start(&folder.join("data"), &options.iter().map(String::as_str).collect::<Vec<_>>());
    let admin = HttpClient::admin(&server);
    let body = json!({"metadata": {"name": "c"}});
    let refused = admin.post("/api/v1/namespaces/default/configmaps", &body).await.refused(500, "InternalError");
    assert_eq!(refused["message"], "Internal error occurred: failed to store audit event");
    admin.get("/api/v1/namespaces/default/configmaps/c").await.expect(404);
    let metrics = admin.get("/metrics").await.text();
    assert!(metrics.contains("apiserver_audit_requests_rejected_total 1\n"), "{metrics}");
    server.stop();
}

/// A server with an audit log of every create.
fn start_telling_everything(folder: &Folder) -> (Server, PathBuf) {
    let (policy, log) = (folder.join("policy.yaml"), folder.join("audit.log"));
    std::fs::write(&policy, EVERYTHING).expect("write");
    let options = [
        format!("--audit-policy-file={}", policy.display()),
        format!("--audit-log-path={}", log.display()),
        "--controllers=-*".to_owned(),
    ];
    let server = Server::start(&folder.join("data"), &options.iter().map(String::as_str).collect::<Vec<_>>());
    (server, log)
}

/// The event has the name of the created object from the answer, or from the request if none was created.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_create_is_told_of_by_the_name_of_its_object() {
    let folder = Folder::new();
    let (server, log) = start_telling_everything(&folder);
    let (admin, stranger) = (HttpClient::admin(&server), HttpClient::anonymous(&server));
    let labelled = "metadata: {annotations: {name: '}'}, generateName: made-, labels: {name: label}}\n";
    let yaml = "metadata: {name: refused}\ndata: {a b: c}\n";
    for (id, wire, kind, body, code) in [
        ("json", &admin, "json", r#"{"metadata": {"name": "json"}}"#, 201),
        ("made", &admin, "yaml", labelled, 201),
        ("refused", &admin, "json", r#"{"metadata": {"name": "refused"}, "data": {"a b": "c"}}"#, 422),
        ("refused-yaml", &admin, "yaml", yaml, 422),
        ("forbidden", &stranger, "json", r#"{"metadata": {"name": "json"}}"#, 403),
    ] {
        let kind = format!("application/{kind}");
        let headers = [("content-type", kind.as_str()), ("audit-id", id)];
        let path = "/api/v1/namespaces/default/configmaps";
        let answer = wire.send(Method::POST, path, &headers, body.to_owned()).await.expect(code).json();
        let event = eventually(Duration::from_secs(5), || async { told(&log, id).pop().ok_or("no event") }).await;
        let expected = match (id, code) {
            (_, 201) => answer["metadata"]["name"].clone(),
            ("forbidden", _) => Value::Null,
            _ => "refused".into(),
        };
        assert_eq!(event["objectRef"]["name"], expected, "{id}: {event}");
    }
    server.stop();
}

/// A request that times out keeps the audit id given by its client, and its event has the status of the timeout. A
/// webhook has no more time than the request; if the webhook answers later, nothing is written.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_whose_time_is_over() {
    let hooks = Hooks::start().await;
    let folder = Folder::new();
    let (server, log) = start_telling_everything(&folder);
    let admin = HttpClient::admin(&server);
    let name = |wanted: &str| hooks.names.iter().find(|(name, _)| *name == wanted).expect("a name").1.clone();
    hooks.behave("/slow", json!({"delay": 0.7}));
    let url = format!("https://{}/slow", name("<hook>"));
    let configuration = json!({"metadata": {"name": "slow"}, "webhooks": [{"name": "slow.example.com",
        "clientConfig": {"url": url, "caBundle": name("<ca>")}, "failurePolicy": "Ignore", "timeoutSeconds": 5,
        "rules": [{"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}],
        "admissionReviewVersions": ["v1"], "sideEffects": "None"}]});
    let configurations = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    admin.post(configurations, &configuration).await.expect(201);
    let maps = "/api/v1/namespaces/default/configmaps";
    for (id, query, code) in [("good", "", 201), ("bad", "?timeout=bad", 400), ("over", "?timeout=300ms", 504)] {
        let body = json!({"metadata": {"name": id}}).to_string();
        let headers = [("content-type", "application/json"), ("audit-id", id)];
        let answer = admin.send(Method::POST, &format!("{maps}{query}"), &headers, body).await.expect(code);
        assert_eq!(answer.header("audit-id"), id);
        let message = answer.json()["message"].clone();
        let event = eventually(Duration::from_secs(5), || async { told(&log, id).pop().ok_or("no event") }).await;
        assert_eq!(event["responseStatus"]["code"], code, "{event}");
        let latencies: Vec<&str> = match event["annotations"].as_object() {
            Some(all) => all.keys().filter_map(|key| key.strip_prefix("apiserver.latency.k8s.io/")).collect(),
            None => Vec::new(),
        };
        match id {
            "good" => {
                for part in ["authentication", "authorization", "etcd", "total", "validating-webhook"] {
                    assert!(latencies.contains(&part), "no {part}: {event}");
                }
            }
            _ => {
                assert_eq!(event["responseStatus"]["message"], message, "{event}");
                admin.get(&format!("{maps}/{id}")).await.expect(404);
            }
        }
    }
    let queries: Vec<Value> = hooks.take_calls().iter().map(|call| call["query"].clone()).collect();
    assert_eq!(queries, ["timeout=5s", "timeout=1s"]);
    server.stop();
}

#[test]
fn what_is_wrong_with_the_options_is_told_at_once() {
    let folder = Folder::new();
    let policy = folder.join("policy.yaml");
    std::fs::write(&policy, "{apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{level: Much}]}").expect("write");
    let data = folder.join("data");
    let arguments = [
        "apiserver".to_owned(),
        format!("--data-dir={}", data.display()),
        format!("--cert-dir={}", folder.join("pki").display()),
        "--bind-address=127.0.0.1".into(),
        "--secure-port=0".into(),
        format!("--audit-policy-file={}", policy.display()),
        "--audit-log-path=-".into(),
        "--audit-log-maxage=-1".into(),
        "--audit-log-format=xml".into(),
        "--audit-webhook-mode=later".into(),
        "--audit-webhook-config-file=/nowhere".into(),
    ];
    let expected = [
        "rules[0].level: Unsupported value: \"Much\"",
        "--audit-log-maxage -1 can't be a negative number",
        "invalid audit log format xml, allowed formats are \"legacy,json\"",
        "invalid audit webhook mode later, allowed modes are \"batch,blocking,blocking-strict\"",
    ];
    fails(holdfast(arguments), &expected);
}
