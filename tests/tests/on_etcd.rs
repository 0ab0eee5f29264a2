//! Servers whose objects are in a real etcd.

use base64::{Engine, engine::general_purpose::STANDARD};
use holdfast_storage_etcd::client::{Etcd, Operation, Txn};
use holdfast_storage_etcd::grpc::{Address, Cluster as Client};
use holdfast_tests::etcd::Cluster;
use holdfast_tests::server::{holdfast, succeeds};
use holdfast_tests::{Folder, Server, eventually, facts};
use http::{Method, Request};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn start(etcd: &Cluster, folder: &Path) -> Server {
    Server::start(folder, &["--etcd-servers", &etcd.urls()])
}

/// Sends a request. Returns the body of a successful answer, or the status code of another answer.
async fn ask(client: &kube::Client, method: Method, path: &str, body: Option<Value>) -> Result<Value, u16> {
    let body = body.map_or_else(Vec::new, |body| body.to_string().into_bytes());
    let kind = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
    let request = Request::builder().method(method).uri(path).header("content-type", kind).body(body);
    match client.request::<Value>(request.expect("a request")).await {
        Ok(answer) => Ok(answer),
        Err(kube::Error::Api(status)) => Err(status.code),
        Err(other) => panic!("{path}: {other}"),
    }
}

fn config_map(name: &str, value: &str) -> Option<Value> {
    Some(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"x": value}}))
}

async fn names(client: &kube::Client) -> Vec<String> {
    let list = ask(client, Method::GET, MAPS, None).await.expect("a list");
    let names = list["items"].as_array().into_iter().flatten().map(|item| item["metadata"]["name"].to_string());
    names.map(|name| name.trim_matches('"').to_owned()).filter(|name| name != "kube-root-ca.crt").collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_on_one_etcd_see_each_others_writes_at_once() {
    let (etcd, folders) = (Cluster::single(), [Folder::new(), Folder::new()]);
    let servers = [start(&etcd, folders[0].path()), start(&etcd, folders[1].path())];
    let clients = [servers[0].client().await, servers[1].client().await];
    for nth in 0..40 {
        let (writer, reader) = (&clients[nth % 2], &clients[(nth + 1) % 2]);
        let (name, path) = (format!("c{nth}"), format!("{MAPS}/c{nth}"));
        let written = ask(writer, Method::POST, MAPS, config_map(&name, "1")).await.expect("a create");
        let read = ask(reader, Method::GET, &path, None).await.expect("what another server has acknowledged");
        assert_eq!(read, written);
        assert!(names(reader).await.contains(&name));
        // A write with a stale version gets a conflict, even if another server wrote the newer version.
        let patched = ask(reader, Method::PATCH, &path, Some(json!({"data": {"x": "2"}}))).await.expect("a patch");
        let mut stale = written.clone();
        stale["data"]["x"] = "3".into();
        assert_eq!(ask(writer, Method::PUT, &path, Some(stale)).await, Err(409));
        assert_eq!(ask(writer, Method::GET, &path, None).await.expect("a read"), patched);
        assert_eq!(ask(writer, Method::POST, MAPS, config_map(&name, "1")).await, Err(409));
        ask(writer, Method::DELETE, &path, None).await.expect("a delete");
        assert_eq!(ask(reader, Method::GET, &path, None).await, Err(404));
    }
    // Services are created on both servers at the same time: no address is allocated twice.
    let mut addresses = Vec::new();
    for round in 0..10 {
        let service = |nth: usize| {
            let name = format!("s{round}-{nth}");
            let client = &clients[nth % 2];
            async move {
                let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
                    "spec": {"type": "NodePort", "ports": [{"port": 80}]}});
                ask(client, Method::POST, "/api/v1/namespaces/default/services", Some(service))
                    .await
                    .expect("a service")
            }
        };
        for made in futures_util::future::join_all((0..6).map(service)).await {
            addresses.push(made["spec"]["clusterIP"].to_string());
            addresses.push(made["spec"]["ports"][0]["nodePort"].to_string());
        }
    }
    let count = addresses.len();
    addresses.sort();
    addresses.dedup();
    assert_eq!((count, addresses.len()), (120, 120));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_are_there_after_a_restart_with_the_folder_and_without() {
    let (etcd, folder) = (Cluster::single(), Folder::new());
    let server = start(&etcd, folder.path());
    let client = server.client().await;
    let written = ask(&client, Method::POST, MAPS, config_map("kept", "1")).await.expect("a create");
    let path = format!("{MAPS}/kept");
    let patched = ask(&client, Method::PATCH, &path, Some(json!({"data": {"x": "2"}}))).await.expect("a patch");
    server.kill();
    let server = start(&etcd, folder.path());
    assert_eq!(ask(&server.client().await, Method::GET, &path, None).await.expect("a read"), patched);
    server.stop();
    // The data folder of a server on etcd keeps the history, with the version of each write.
    let data = folder.path().to_str().expect("a path");
    let told = succeeds(holdfast(["history", "configmaps", "kept", "-n", "default", "--data-dir", data]));
    let version = |object: &Value| object["metadata"]["resourceVersion"].as_str().expect("a version").to_owned();
    assert!(told.contains(&version(&written)) && told.contains(&version(&patched)), "{told}");
    let other = Folder::new();
    let server = start(&etcd, other.path());
    assert_eq!(ask(&server.client().await, Method::GET, &path, None).await.expect("a read"), patched);
}

/// A server on etcd serves values that kube-apiserver has stored as kube-apiserver served them. The values and answers
/// are in `tests/data/etcd.jsonl.gz`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_of_kube_apiserver_is_served() {
    /// The number of cases served as recorded; it must not fall.
    const SERVED: usize = 130;
    let (etcd, folder) = (Cluster::single(), Folder::new());
    let client = Client::new(vec![Address::parse(&etcd.urls()).expect("an address")], None).expect("a client");
    let mut cases = facts::lines::<Value>("etcd");
    cases.remove(0);
    let mut revisions = BTreeMap::new();
    for case in &cases {
        let key = case["key"].as_str().expect("a key").to_owned();
        let value = STANDARD.decode(case["value"].as_str().expect("a value")).expect("base64");
        let put = Operation::Put { key: key.clone().into(), value: value.into(), lease: 0 };
        let answer = client.transact(vec![Txn { operations: vec![put], ..Txn::default() }]).remove(0);
        revisions.insert(key, answer.expect("a put").header.revision.to_string());
    }
    let server = start(&etcd, folder.path());
    let api = server.client().await;
    let (mut served, mut changed, mut wrong) = (0, 0, Vec::new());
    for case in &cases {
        let (Some(path), Some(key)) = (case["path"].as_str(), case["key"].as_str()) else { continue };
        let answer = match ask(&api, Method::GET, path, None).await {
            Ok(answer) => answer,
            Err(code) => {
                wrong.push(format!("{path}: {code}"));
                continue;
            }
        };
        let mut expected = case["object"].clone();
        if answer["metadata"]["resourceVersion"] != revisions[key].as_str() {
            // The server has updated this object, because it is a bootstrap object.
            changed += 1;
            continue;
        }
        expected["metadata"]["resourceVersion"] = revisions[key].as_str().into();
        match answer == expected {
            true => served += 1,
            false => wrong.push(format!("{path}:\n  {answer}\ninstead of\n  {expected}")),
        }
    }
    println!("{served} are served as recorded, {changed} were changed by the start");
    assert!(served >= SERVED, "{served} of {}, {changed} changed:\n{}", cases.len(), wrong.join("\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_is_there_when_etcd_was_killed_again_and_again() {
    const ROUNDS: usize = 6;
    let (mut etcd, folder) = (Cluster::single(), Folder::new());
    let server = start(&etcd, folder.path());
    let client = server.client().await;
    let mut acknowledged: Vec<String> = Vec::new();
    for round in 0..ROUNDS {
        let writers: Vec<_> = (0..8)
            .map(|writer| {
                let client = client.clone();
                tokio::spawn(async move {
                    let mut written = Vec::new();
                    for nth in 0..30 {
                        let name = format!("r{round}-{writer}-{nth}");
                        if ask(&client, Method::POST, MAPS, config_map(&name, "1")).await.is_ok() {
                            written.push(name);
                        }
                    }
                    written
                })
            })
            .collect();
        tokio::time::sleep(Duration::from_millis(30 + 25 * round as u64)).await;
        etcd.member(0).kill();
        tokio::time::sleep(Duration::from_millis(100)).await;
        etcd.member(0).restart();
        for writer in writers {
            acknowledged.extend(writer.await.expect("a writer"));
        }
    }
    eventually(PATIENCE, || ask(&client, Method::GET, MAPS, None)).await;
    let found = names(&client).await;
    assert!(acknowledged.len() > 100, "only {} were written", acknowledged.len());
    for name in &acknowledged {
        assert!(found.contains(name), "{name} was acknowledged");
    }
    // The server shows neither more nor fewer objects than etcd has.
    let stored = etcd.ctl(&["get", "/registry/configmaps/default/", "--prefix", "--keys-only"]);
    let stored = stored.lines().filter(|line| line.contains("/r")).count();
    assert_eq!(found.len(), stored);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_etcd_takes_no_writes_says_so_and_goes_on_when_there_is_room() {
    let etcd = Cluster::start("3.6", 1, &["--quota-backend-bytes=16777216"]);
    let folder = Folder::new();
    let server = start(&etcd, folder.path());
    let client = server.client().await;
    let large = "x".repeat(900_000);
    let mut full = None;
    for nth in 0..60 {
        if let Err(code) = ask(&client, Method::POST, MAPS, config_map(&format!("c{nth}"), &large)).await {
            full = Some(code);
            break;
        }
    }
    assert_eq!(full, Some(507));
    assert!(!names(&client).await.is_empty(), "reads go on");
    ask(&client, Method::DELETE, &format!("{MAPS}/c0"), None).await.expect("what is deleted makes room");
    // Deletions free room only after a compaction; after that, etcd's alarm about missing space can be disarmed.
    etcd.ctl(&["del", "/registry/configmaps/default/c", "--prefix"]);
    let now = etcd.ctl(&["get", "/x", "-w", "json"]);
    let now = now.split("\"revision\":").nth(1).expect("a revision").split([',', '}']).next().expect("one").to_owned();
    etcd.ctl(&["compact", &now]);
    etcd.ctl(&["defrag"]);
    etcd.ctl(&["alarm", "disarm"]);
    eventually(PATIENCE, || ask(&client, Method::POST, MAPS, config_map("after", "1"))).await;
    assert_eq!(names(&client).await, ["after"]);
}
