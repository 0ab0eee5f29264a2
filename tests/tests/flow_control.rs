//! Priority and fairness from outside: floods, cancelled requests, slow watches and readers.

use bytes::Bytes;
use futures_util::future::join_all;
use holdfast_core::flowcontrol::deal;
use holdfast_tests::hooks::Hooks;
use holdfast_tests::wire::{Answer, HttpClient};
use holdfast_tests::{Folder, Server, eventually};
use http::{Method, Request};
use http_body_util::Full;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const FLOWS: &str = "/apis/flowcontrol.apiserver.k8s.io/v1";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const DUMP: &str = "/debug/api_priority_and_fairness";
const SCHEMA_UID: &str = "x-kubernetes-pf-flowschema-uid";
const LEVEL_UID: &str = "x-kubernetes-pf-prioritylevel-uid";
const PATIENCE: Duration = Duration::from_secs(20);
/// The length of each queue of the priority level `people`.
const QUEUE_LENGTH: usize = 3;
const QUEUES: u32 = 61;

/// A server whose level `people` has one seat, for all users but the administrator.
struct Cluster {
    server: Server,
    admin: HttpClient,
    jane: HttpClient,
    joe: HttpClient,
    hooks: Hooks,
    _folder: Folder,
}

impl Cluster {
    async fn start() -> Cluster {
        let folder = Folder::new();
        let tokens = folder.join("tokens.csv");
        std::fs::write(&tokens, "j,jane,1\nk,joe,2\nm,max,3,system:masters\n").unwrap();
        let flags = ["--max-requests-inflight=30", "--max-mutating-requests-inflight=20", "--token-auth-file"];
        let server = Server::start(&folder.join("data"), &[&flags[..], &[tokens.to_str().unwrap()]].concat());
        let [jane, joe] = ["j", "k"].map(|token| HttpClient::anonymous(&server).with_token(token));
        let admin = HttpClient::admin(&server);
        let hooks = Hooks::start().await;
        let cluster = Cluster { server, admin, jane, joe, hooks, _folder: folder };
        cluster.prepare().await;
        cluster
    }

    async fn prepare(&self) {
        let rule = json!({"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]});
        let role = json!({"metadata": {"name": "maps"}, "rules": [rule]});
        self.admin.post(&format!("{RBAC}/clusterroles"), &role).await.expect(201);
        let api_group = "rbac.authorization.k8s.io";
        let everybody = json!({"apiGroup": api_group, "kind": "Group", "name": "system:authenticated"});
        let binding = json!({"metadata": {"name": "maps"}, "subjects": [everybody],
            "roleRef": {"apiGroup": api_group, "kind": "ClusterRole", "name": "maps"}});
        self.admin.post(&format!("{RBAC}/clusterrolebindings"), &binding).await.expect(201);
        let name = |name: &str| self.hooks.names.iter().find(|known| known.0 == name).unwrap().1.clone();
        let hook = json!({
            "name": "slow.example.com",
            "clientConfig": {"url": format!("https://{}/slow", name("<hook>")), "caBundle": name("<ca>")},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}],
            "objectSelector": {"matchLabels": {"slow": "yes"}},
            "sideEffects": "None", "admissionReviewVersions": ["v1"],
        });
        let hooks = json!({"metadata": {"name": "slow"}, "webhooks": [hook]});
        let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
        self.admin.post(path, &hooks).await.expect(201);
        let queuing = json!({"queues": QUEUES, "handSize": 1, "queueLengthLimit": QUEUE_LENGTH});
        let limited = json!({"nominalConcurrencyShares": 5, "lendablePercent": 0, "borrowingLimitPercent": 0,
            "limitResponse": {"type": "Queue", "queuing": queuing}});
        let level = json!({"metadata": {"name": "people"}, "spec": {"type": "Limited", "limited": limited}});
        self.admin.post(&format!("{FLOWS}/prioritylevelconfigurations"), &level).await.expect(201);
        let resources = json!({"verbs": ["*"], "apiGroups": [""], "resources": ["configmaps"], "namespaces": ["*"]});
        let subject = json!({"kind": "Group", "group": {"name": "system:authenticated"}});
        let schema = json!({"metadata": {"name": "people"}, "spec": {
            "priorityLevelConfiguration": {"name": "people"}, "matchingPrecedence": 700,
            "distinguisherMethod": {"type": "ByUser"},
            "rules": [{"subjects": [subject], "resourceRules": [resources]}]}});
        let schema = self.admin.post(&format!("{FLOWS}/flowschemas"), &schema).await.expect(201).json();
        let uid = schema["metadata"]["uid"].as_str().unwrap().to_owned();
        eventually(PATIENCE, || async {
            let answer = self.jane.get(MAPS).await.expect(200);
            if answer.header(SCHEMA_UID) == uid { Ok(()) } else { Err("the schema is not heeded yet") }
        })
        .await;
    }

    /// The state of the level `people`, by column.
    async fn level(&self) -> BTreeMap<String, String> {
        let rows = self.rows("dump_priority_levels").await;
        rows.into_iter().find(|row| row["PriorityLevelName"] == "people").expect("the level")
    }

    async fn rows(&self, table: &str) -> Vec<BTreeMap<String, String>> {
        let text = self.admin.get(&format!("{DUMP}/{table}")).await.expect(200).text();
        let cells = |line: &str| line.split(',').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
        let mut lines = text.lines();
        let names = cells(lines.next().expect("names"));
        lines.map(|line| names.iter().cloned().zip(cells(line)).collect()).collect()
    }

    /// Waits until the level `people` has the wanted numbers of waiting and running requests, and returns its state.
    async fn settle(&self, wanted: (&str, &str)) -> BTreeMap<String, String> {
        eventually(PATIENCE, || async {
            let level = self.level().await;
            let found = (&*level["WaitingRequests"], &*level["ExecutingRequests"]);
            if found == wanted { Ok(level.clone()) } else { Err(format!("{found:?}")) }
        })
        .await
    }
}

/// A ConfigMap. For the ConfigMap of [`slow_map`] a webhook is slow.
fn map() -> Value {
    json!({"metadata": {"generateName": "m-"}})
}

fn slow_map() -> Value {
    json!({"metadata": {"generateName": "slow-", "labels": {"slow": "yes"}}})
}

/// Posts the same body `count` times over one connection; the streams end when the result is dropped.
async fn streams(wire: &HttpClient, count: usize, body: &Value) -> Vec<tokio::task::JoinHandle<Option<u16>>> {
    let io = TokioIo::new(wire.connect().await.expect("a connection"));
    let (sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.expect("a handshake");
    tokio::spawn(connection);
    let mut sent = Vec::new();
    for _ in 0..count {
        let request = Request::post(format!("https://{}{MAPS}", wire.address))
            .header("authorization", format!("Bearer {}", wire.token.as_deref().unwrap_or_default()))
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(body.to_string())))
            .unwrap();
        let mut sender = sender.clone();
        sent.push(tokio::spawn(async move {
            sender.ready().await.ok()?;
            Some(sender.send_request(request).await.ok()?.status().as_u16())
        }));
    }
    sent
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_floods_hurts_nobody_else() {
    let cluster = Arc::new(Cluster::start().await);
    let queue = |user: &str| deal::Hand::deal(deal::flow("people", user), QUEUES, 1).queues()[0];
    assert_ne!(queue("jane"), queue("joe"), "they meet in a queue: name them otherwise");
    cluster.hooks.behave("/slow", json!({"delay": 0.02}));
    let (over, answered, refused) = (Arc::new(AtomicBool::new(false)), AtomicUsize::new(0), AtomicUsize::new(0));
    let (answered, refused) = (Arc::new(answered), Arc::new(refused));
    let mut flood = tokio::task::JoinSet::new();
    for connection in 0..6 {
        let (cluster, over, answered, refused) = (cluster.clone(), over.clone(), answered.clone(), refused.clone());
        flood.spawn(async move {
            let jane = HttpClient { http2: connection % 2 == 0, ..cluster.jane.clone() };
            while !over.load(Ordering::Relaxed) {
                let codes: Vec<u16> = match jane.http2 {
                    true => {
                        let sent = streams(&jane, 12, &slow_map()).await;
                        join_all(sent).await.into_iter().filter_map(|code| code.ok().flatten()).collect()
                    }
                    false => vec![told_to_wait(jane.post(MAPS, &slow_map()).await)],
                };
                for code in codes {
                    assert!(matches!(code, 201 | 429), "{code}");
                    let count = if code == 201 { &answered } else { &refused };
                    count.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
    }
    eventually(PATIENCE, || async {
        if refused.load(Ordering::Relaxed) > 20 { Ok(()) } else { Err("nobody is refused") }
    })
    .await;
    // During the flood, the reads and writes of a user with few requests are served, and so are the administrator's
    // requests.
    for _ in 0..10 {
        cluster.joe.post(MAPS, &map()).await.expect(201);
        cluster.joe.get(&format!("{MAPS}?limit=1")).await.expect(200);
        cluster.admin.get(&format!("{MAPS}?limit=1")).await.expect(200);
    }
    over.store(true, Ordering::Relaxed);
    while let Some(done) = flood.join_next().await {
        done.expect("the flood is answered");
    }
    assert!(answered.load(Ordering::Relaxed) > 0);
    // After the flood has ended, all seats are free again.
    let level = cluster.settle(("0", "0")).await;
    assert_eq!((&*level["IsIdle"], &*level["ActiveQueues"]), ("true", "0"));
    let metrics = cluster.admin.get("/metrics").await.expect(200).text();
    for (metric, value) in
        [("current_executing_seats", "0"), ("current_inqueue_requests", "0"), ("nominal_limit_seats", "1")]
    {
        let line = metrics.lines().find(|line| {
            line.starts_with(&format!("apiserver_flowcontrol_{metric}{{")) && line.contains("priority_level=\"people\"")
        });
        let line = line.unwrap_or_else(|| panic!("no {metric}"));
        assert!(line.ends_with(&format!(" {value}")), "{line}");
    }
    let Ok(cluster) = Arc::try_unwrap(cluster) else { panic!("nobody else has it") };
    cluster.server.stop();
}

/// Returns the code of an answer. An answer with the code 429 must have Kubernetes' text and headers.
fn told_to_wait(answer: Answer) -> u16 {
    if answer.code == 429 {
        assert_eq!(answer.text(), "Too many requests, please try again later.\n");
        assert!(answer.header("content-type").starts_with("text/plain"));
        assert!(answer.header("retry-after").parse::<u32>().unwrap() >= 1);
        assert_eq!((answer.header(SCHEMA_UID).len(), answer.header(LEVEL_UID).len()), (36, 36));
    }
    answer.code
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_goes_away_gives_back_what_it_had() {
    let cluster = Cluster::start().await;
    cluster.hooks.behave("/slow", json!({"delay": 30}));
    let number = |level: &BTreeMap<String, String>, name: &str| level[name].parse::<usize>().unwrap();
    let before = cluster.level().await;
    // One request runs and the others wait, all on one connection, which then breaks.
    let wire = cluster.jane.clone();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let sent = runtime.spawn(async move { join_all(streams(&wire, 1 + QUEUE_LENGTH, &slow_map()).await).await });
    let level = cluster.settle(("3", "1")).await;
    assert_eq!((&*level["ActiveQueues"], &*level["IsIdle"]), ("1", "false"));
    // The requests are listed, and waiting requests have their places in the queue.
    let rows = cluster.rows("dump_requests?includeRequestDetails=1").await;
    let people: Vec<_> = rows.iter().filter(|row| row["FlowSchemaName"] == "people").collect();
    assert_eq!(people.len(), 1 + QUEUE_LENGTH);
    let mut places: Vec<&str> = people.iter().map(|row| row["RequestIndexInQueue"].as_str()).collect();
    places.sort_unstable();
    assert_eq!(places, ["-1", "0", "1", "2"]);
    for row in &people {
        let told = ["FlowDistingsher", "UserName", "Verb", "APIPath", "Namespace", "APIVersion", "Resource"];
        assert_eq!(told.map(|name| &*row[name]), ["jane", "jane", "create", MAPS, "default", "v1", "configmaps"]);
        assert_eq!(row["StartTime"].starts_with("0001-01-01"), row["RequestIndexInQueue"] != "-1");
    }
    let queues = cluster.rows("dump_queues").await;
    let used: Vec<_> = queues.iter().filter(|row| row["PriorityLevelName"] == "people").collect();
    assert_eq!(used.len(), QUEUES as usize);
    let used = used.iter().find(|row| row["PendingRequests"] != "0").expect("a queue");
    let seen = ["PendingRequests", "ExecutingRequests", "SeatsInUse", "MaxSeatsSum"].map(|name| &*used[name]);
    assert_eq!(seen, ["3", "1", "1", "3"]);
    runtime.shutdown_background();
    drop(sent);
    let level = cluster.settle(("0", "0")).await;
    // Some requests may have begun while the others were cancelled.
    let [begun, cancelled, rejected] = ["DispatchedRequests", "CancelledRequests", "RejectedRequests"]
        .map(|name| number(&level, name) - number(&before, name));
    assert_eq!((begun + cancelled, cancelled), (1 + QUEUE_LENGTH, rejected));
    // After the connection broke, a seat is free for the next request of the user.
    cluster.jane.post(MAPS, &map()).await.expect(201);
    cluster.server.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_and_slow_readers_keep_no_seat() {
    let cluster = Cluster::start().await;
    let mut large = map();
    large["data"] = json!({"x": "y".repeat(700_000)});
    for _ in 0..4 {
        cluster.joe.post(MAPS, &large).await.expect(201);
    }
    let mut held = Vec::new();
    for query in ["?watch=1&resourceVersion=1", "?watch=1&timeoutSeconds=60"] {
        for _ in 0..2 {
            let path = format!("{MAPS}{query}");
            held.push(cluster.jane.open(Method::GET, &path, &[], Bytes::new()).await.expect("a watch"));
        }
    }
    // The client does not read the body of this list either.
    held.push(cluster.jane.open(Method::GET, MAPS, &[], Bytes::new()).await.expect("a list"));
    assert!(held.iter().all(|answer| answer.status() == 200));
    // The watches and the list release their seats, although no client has read their bodies.
    cluster.settle(("0", "0")).await;
    cluster.jane.get(&format!("{MAPS}?limit=1")).await.expect(200);
    drop(held);
    cluster.server.stop();
}

/// A watch that is far behind uses all seats of its level while it catches up. A watch whose client does not read it
/// never catches up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unread_watches_of_the_past_keep_no_seat() {
    let cluster = Cluster::start().await;
    let mut large = map();
    large["data"] = json!({"x": "y".repeat(700_000)});
    let first = cluster.joe.post(MAPS, &large).await.expect(201).json();
    let before = first["metadata"]["resourceVersion"].as_str().unwrap().parse::<u64>().unwrap() - 1;
    for _ in 0..3 {
        cluster.joe.post(MAPS, &large).await.expect(201);
    }
    let max = HttpClient::anonymous(&cluster.server).with_token("m");
    for _ in 0..6 {
        for code in join_all(streams(&max, 200, &map()).await).await {
            assert_eq!(code.expect("no panic"), Some(201));
        }
    }
    let path = format!("{MAPS}?watch=1&resourceVersion={before}");
    let watch = async || cluster.jane.open(Method::GET, &path, &[], Bytes::new()).await.expect("a watch");
    let held = [watch().await, watch().await];
    assert!(held.iter().all(|answer| answer.status() == 200));
    cluster.joe.get(&format!("{MAPS}?limit=1")).await.expect(200);
    cluster.settle(("0", "0")).await;
    drop(held);
    cluster.server.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invented_users_are_told_apart_and_leave_nothing() {
    let cluster = Cluster::start().await;
    let lines = async || cluster.admin.get("/metrics").await.expect(200).text();
    let uid = |answer: &Answer| answer.header(SCHEMA_UID).to_owned();
    let ours = uid(&cluster.joe.get(MAPS).await);
    for number in 0..100 {
        let name = format!("invented-{number}");
        let answer = cluster.admin.send(Method::GET, MAPS, &[("impersonate-user", &name)], "").await.expect(200);
        // The impersonated user, and not the administrator, decides which flow schema applies.
        assert_eq!(uid(&answer), ours);
    }
    assert!(!lines().await.contains("invented"));
    assert!(cluster.rows("dump_requests").await.iter().all(|row| !row["FlowDistingsher"].contains("invented")));
    let level = cluster.level().await;
    assert_eq!((&*level["IsIdle"], &*level["RejectedRequests"]), ("true", "0"));
    cluster.server.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn levels_and_schemas_come_and_go() {
    let cluster = Cluster::start().await;
    let (schemas, levels) = (format!("{FLOWS}/flowschemas"), format!("{FLOWS}/prioritylevelconfigurations"));
    let condition = async || {
        let schema = cluster.admin.get(&format!("{schemas}/people")).await.expect(200).json();
        schema["status"]["conditions"][0]["status"].as_str().map(str::to_owned)
    };
    let found = eventually(PATIENCE, || async { condition().await.ok_or("nothing is said yet") }).await;
    assert_eq!(found, "False");
    let ours = cluster.jane.get(MAPS).await.header(SCHEMA_UID).to_owned();
    // A schema whose level is missing is not used.
    cluster.admin.send(Method::DELETE, &format!("{levels}/people"), &[], "").await.expect(200);
    eventually(PATIENCE, || async {
        let other = cluster.jane.get(MAPS).await.expect(200).header(SCHEMA_UID) != ours;
        let dangling = condition().await.as_deref() == Some("True");
        if other && dangling { Ok(()) } else { Err(format!("{other} {dangling}")) }
    })
    .await;
    // A mandatory flow schema is created again after its deletion, and a changed spec of a suggested priority level is
    // restored.
    let exempt = format!("{schemas}/exempt");
    cluster.admin.send(Method::DELETE, &exempt, &[], "").await.expect(200);
    eventually(PATIENCE, || async {
        let found = cluster.admin.get(&exempt).await.code;
        if found == 200 { Ok(()) } else { Err(found) }
    })
    .await;
    let low = format!("{levels}/workload-low");
    let patch = json!({"spec": {"limited": {"nominalConcurrencyShares": 1}}}).to_string();
    let merge = [("content-type", "application/merge-patch+json")];
    cluster.admin.send(Method::PATCH, &low, &merge, patch).await.expect(200);
    eventually(PATIENCE, || async {
        let shares =
            cluster.admin.get(&low).await.expect(200).json()["spec"]["limited"]["nominalConcurrencyShares"].clone();
        if shares == 100 { Ok(()) } else { Err(shares) }
    })
    .await;
    cluster.server.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_shows_what_is_in_progress() {
    let cluster = Cluster::start().await;
    let kubectl = |path: &str| {
        let mut command = Command::new(holdfast_tests::clients().join("kubectl-1.20"));
        command.arg("--kubeconfig").arg(cluster.server.kubeconfig()).args(["get", "--raw", path]);
        let output = command.output().expect("kubectl");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    };
    let levels = kubectl(&format!("{DUMP}/dump_priority_levels"));
    let names: Vec<&str> = levels.lines().map(|line| line.split(',').next().unwrap()).collect();
    let expected =
        ["PriorityLevelName", "catch-all", "exempt", "global-default", "leader-election", "node-high", "people"];
    assert_eq!(names[..7], expected);
    assert_eq!(kubectl(&format!("{DUMP}/dump_requests")).lines().count(), 2);
    cluster.jane.get(&format!("{DUMP}/dump_queues")).await.refused(403, "Forbidden");
    assert_eq!(cluster.admin.get(&format!("{DUMP}/dump_nothing")).await.code, 404);
    cluster.server.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_fairness_who_is_over_the_limit_is_refused() {
    let folder = Folder::new();
    let options = ["--enable-priority-and-fairness=false"];
    let server = Server::start(&folder.join("data"), &options);
    let admin = HttpClient::admin(&server);
    let answer = admin.get(MAPS).await.expect(200);
    assert_eq!((answer.header(SCHEMA_UID), answer.header(LEVEL_UID)), ("", ""));
    assert_eq!(admin.get(&format!("{DUMP}/dump_priority_levels")).await.code, 404);
    server.stop();
    let none = ["--max-requests-inflight=0", "--max-mutating-requests-inflight=0"];
    let refused = Server::try_start(&folder.join("data"), &none).err().expect("it does not start");
    let why = format!("{refused:?}");
    assert!(why.contains("--enable-priority-and-fairness") && why.contains("something positive"), "{why}");
    Server::start(&folder.join("data"), &[&none[..], &options].concat()).stop();
}
