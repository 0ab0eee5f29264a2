//! Tests forks of the log in a data folder that no server uses, and forks of the log of a running server. A fork is
//! made completely, or not at all.

use holdfast_core::event::{Offset, Record};
use holdfast_engine::{Log, LogRead};
use holdfast_storage_rocks::{Fork, RocksLog};
use holdfast_tests::large;
use holdfast_tests::records::{current, delete, everything, put};
use holdfast_tests::server::{Refused, fails, holdfast, succeeds};
use holdfast_tests::wire::HttpClient;
use holdfast_tests::{Folder, Server};
use http::Method;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn fork(from: &Path, to: &Path, more: &[&str]) -> Output {
    let path = |path: &Path| path.to_str().expect("UTF-8").to_owned();
    let own = ["fork".to_owned(), "--from".into(), path(from), "--data-dir".into(), path(to)];
    holdfast(own.into_iter().chain(more.iter().map(|argument| (*argument).to_owned())))
}

/// The report of `holdfast log verify` for an intact log.
#[track_caller]
fn intact(folder: &Path) -> Value {
    verify(folder, &[])
}

/// The report of `holdfast log verify`, with the digest of the state after every event.
#[track_caller]
fn verified(folder: &Path) -> Value {
    verify(folder, &["--every", "1"])
}

#[track_caller]
fn verify(folder: &Path, more: &[&str]) -> Value {
    let folder = folder.to_str().expect("UTF-8");
    let output = holdfast(["log", "verify", "--json", "--data-dir", folder].iter().chain(more));
    let verdict: Value = serde_json::from_str(&succeeds(output)).expect("JSON");
    assert_eq!(verdict["intact"], true, "{verdict}");
    verdict
}

fn digest_at(verdict: &Value, version: u64) -> &Value {
    let checkpoints = verdict["checkpoints"].as_array().expect("checkpoints");
    let found = checkpoints.iter().find(|checkpoint| checkpoint["offset"] == version);
    &found.unwrap_or_else(|| panic!("no checkpoint at {version}"))["digest"]
}

async fn put_map(admin: &HttpClient, name: &str, text: &str) -> u64 {
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"text": text}});
    let answer = match admin.get(&format!("{MAPS}/{name}")).await.code {
        200 => admin.send(Method::PUT, &format!("{MAPS}/{name}"), &[], map.to_string()).await.expect(200),
        _ => admin.post(MAPS, &map).await.expect(201),
    };
    answer.json()["metadata"]["resourceVersion"].as_str().expect("a version").parse().expect("a number")
}

#[test]
fn a_fork_is_what_the_log_was() {
    let folders = Folder::new();
    let source = folders.join("source");
    let mut newest: BTreeMap<String, u64> = BTreeMap::new();
    let mut records: Vec<Record> = Vec::new();
    for offset in 1..=600u64 {
        let (resource, key) =
            (["pods", "nodes", "podspecs"][offset as usize % 3], format!("a/{}", offset * offset % 37));
        let before = newest.get(&format!("{resource}/{key}")).copied().unwrap_or(0);
        if before > 0 && offset % 5 == 0 {
            newest.remove(&format!("{resource}/{key}"));
            records.push(delete(offset, resource, &key, before));
        } else {
            newest.insert(format!("{resource}/{key}"), offset);
            records.push(put(offset, resource, &key, before));
        }
    }
    let log = RocksLog::open(&source).expect("a log");
    // Some events are in tables, and some only in the write-ahead log.
    log.append(&records[..300]).expect("written");
    drop(log);
    let log = RocksLog::open(&source).expect("a log");
    log.append(&records[300..]).expect("written");
    let parent = log.identity().expect("its id").id.expect("an id");
    let check = |name: String, made: Fork, at: u64, beginning: u64| {
        let folder = folders.join(&name);
        assert_eq!(everything(made.log()).last(), records.last(), "a copy of all until it is cut");
        assert!(RocksLog::open(&folder).is_err(), "nobody else takes it for a log before it is whole");
        let forked = made.finish(Offset(at)).expect("a fork");
        let log = RocksLog::open(&folder).expect("a log");
        let identity = log.identity().expect("its id");
        assert_eq!(identity.id, Some(forked.id.clone()));
        let origin = identity.origin.expect("an origin");
        assert_eq!((origin.id.as_ref(), origin.version), (Some(&parent), Offset(at)), "{name}");
        assert_ne!(forked.id, parent);
        let mut expected: BTreeMap<(String, String), Record> = BTreeMap::new();
        for record in &records[..at as usize] {
            let key = (record.resource.clone(), record.key.clone());
            match record.is_delete() {
                true => expected.remove(&key),
                false => expected.insert(key, record.clone()),
            };
        }
        assert_eq!(current(&log), expected, "{name}");
        let whole: Vec<Record> = records[..at as usize].to_vec();
        if beginning == 0 {
            assert_eq!(everything(&log), whole, "{name}");
            let nodes: Vec<&Record> = whole.iter().filter(|record| record.resource == "nodes").collect();
            assert_eq!(log.scan(Some("nodes"), Offset::ZERO, 999).expect("nodes").iter().collect::<Vec<_>>(), nodes);
            for key in ["a/0", "a/1", "a/4"] {
                let of_key = whole.iter().filter(|record| record.resource == "pods" && record.key == key);
                let of_key: Vec<Offset> = of_key.map(Record::offset).collect();
                assert_eq!(log.versions("pods", key).expect("versions"), of_key, "{name} {key}");
            }
        }
        // A write to the fork does not change the parent.
        let next = put(at + 1, "pods", "a/new", 0);
        log.append(std::slice::from_ref(&next)).expect("written");
        drop(log);
        let log = RocksLog::open(&folder).expect("a log");
        assert_eq!(log.last().expect("the last"), Offset(at + 1));
        assert_eq!(log.scan(None, Offset(at), 9).expect("the new one"), [next]);
        assert_eq!(log.secret().expect("a secret").len(), 32);
        log.secret().expect("a secret")
    };
    let mut secrets = vec![log.secret().expect("a secret")];
    for at in [0, 1, 7, 299, 300, 301, 595, 600] {
        let name = format!("beside-{at}");
        secrets.push(check(name.clone(), Fork::of_folder(&source, &folders.join(&name)).expect("a copy"), at, 0));
        let name = format!("within-{at}");
        secrets.push(check(name.clone(), Fork::of_log(&log, &folders.join(&name)).expect("a copy"), at, 0));
    }
    assert_eq!(everything(&log), records);
    // A log with forgotten history can be forked at every version from its oldest version on.
    log.forget(Offset(450)).expect("let go");
    for at in [450, 451, 600] {
        let name = format!("forgetful-{at}");
        let made = Fork::of_log(&log, &folders.join(&name)).expect("a copy");
        secrets.push(check(name, made, at, 450));
    }
    drop(log);
    let made = Fork::of_folder(&source, &folders.join("closed")).expect("a copy");
    secrets.push(check("closed".into(), made, 520, 450));
    let count = secrets.len();
    secrets.sort_unstable();
    secrets.dedup();
    assert_eq!(secrets.len(), count, "what one log seals no other one opens");
}

#[tokio::test]
async fn a_fork_of_a_closed_folder_is_a_cluster_of_its_own() {
    let folders = Folder::new();
    let source = folders.join("source");
    let server = Server::start(&source, &[]);
    let admin = HttpClient::admin(&server);
    for nth in 0..10 {
        put_map(&admin, &format!("m{nth}"), "first").await;
    }
    let page = admin.get(&format!("{MAPS}?limit=2")).await.expect(200).json();
    let token = page["metadata"]["continue"].as_str().expect("a token").to_owned();
    let version = put_map(&admin, "m0", "second").await;
    admin.send(Method::DELETE, &format!("{MAPS}/m1"), &[], "").await.expect(200);
    put_map(&admin, "m2", "second").await;
    put_map(&admin, "later", "first").await;
    server.stop();
    let parent = verified(&source);

    let past = folders.join("past");
    let told = succeeds(fork(&source, &past, &["--at", &version.to_string()]));
    assert!(told.contains(&format!("from version {version} on")), "{told}");
    let before = verified(&past);
    assert_eq!(&before["digest"], digest_at(&parent, version));
    assert_eq!(before["last"], version);
    assert_eq!(before["origin"], json!({"id": parent["id"], "version": version}));
    assert_ne!(before["id"], parent["id"]);
    assert!(before["id"].is_string() && parent["id"].is_string() && parent["origin"].is_null());

    // Credentials of the parent work in the fork; values that the parent's log has sealed do not.
    let mode = |file: &str| std::os::unix::fs::PermissionsExt::mode(&past.join(file).metadata().unwrap().permissions());
    assert_eq!(mode("pki/ca.key") & 0o777, 0o600);
    let forked = Server::start(&past, &[]);
    let same = HttpClient { address: forked.url().trim_start_matches("https://").into(), ..admin.clone() };
    let texts = |list: Value| -> Vec<String> {
        let items = list["items"].as_array().expect("items").iter();
        let maps = items.filter(|map| map["metadata"]["name"] != "kube-root-ca.crt");
        maps.map(|map| format!("{} {}", map["metadata"]["name"], map["data"]["text"]).replace('"', "")).collect()
    };
    let expected: Vec<String> =
        (0..10).map(|nth| format!("m{nth} {}", if nth == 0 { "second" } else { "first" })).collect();
    assert_eq!(texts(same.get(MAPS).await.expect(200).json()), expected);
    let foreign = same.get(&format!("{MAPS}?limit=2&continue={token}")).await;
    assert!(matches!(foreign.code, 400 | 410), "{}", foreign.text());
    assert_eq!(put_map(&same, "new", "first").await, {
        let list = same.get(&format!("{MAPS}/new")).await.expect(200).json();
        list["metadata"]["resourceVersion"].as_str().unwrap().parse::<u64>().unwrap()
    });
    forked.stop();
    assert!(verified(&past)["last"].as_u64() > Some(version));
    assert_eq!(verified(&source)["digest"], parent["digest"], "the other one is as it was");

    // A fork at the newest version, which is the default; a fork at a point in time; and a fork of a fork.
    let now = folders.join("now");
    succeeds(fork(&source, &now, &[]));
    assert_eq!(verified(&now)["digest"], parent["digest"]);
    let long_ago = folders.join("long-ago");
    succeeds(fork(&source, &long_ago, &["--at", "2020-01-01T00:00:00Z"]));
    assert_eq!(verified(&long_ago)["last"], 0);
    let again = folders.join("again");
    succeeds(fork(&past, &again, &["--at", &(version - 1).to_string()]));
    let grandchild = verified(&again);
    assert_eq!(&grandchild["digest"], digest_at(&parent, version - 1));
    assert_eq!(grandchild["origin"]["id"], before["id"]);
    Server::start(&long_ago, &[]).stop();
    let stats = succeeds(holdfast(["log", "stats", "--data-dir", again.to_str().unwrap()]));
    assert!(stats.contains(&format!("forked from {}", before["id"].as_str().unwrap())), "{stats}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forks_beside_a_server_that_writes_are_moments_of_it() {
    let folders = Folder::new();
    let source = folders.join("source");
    let server = Server::start(&source, &[]);
    let stop = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..4)
        .map(|writer| {
            let (admin, stop) = (HttpClient::admin(&server), stop.clone());
            tokio::spawn(async move {
                let mut written = 0;
                while !stop.load(Ordering::Relaxed) {
                    // The objects are large enough that tables are created and deleted during the test.
                    put_map(&admin, &format!("w{writer}-{}", written % 3), &"x".repeat(100_000)).await;
                    written += 1;
                }
                written
            })
        })
        .collect();
    let kubeconfig = server.kubeconfig().to_str().expect("UTF-8").to_owned();
    let (mut forks, mut newest) = (Vec::new(), 0);
    for nth in 0..6 {
        let (beside, by_server) = (folders.join(&format!("beside-{nth}")), folders.join(&format!("server-{nth}")));
        let (from, to) = (source.clone(), beside.clone());
        let made = tokio::task::spawn_blocking(move || fork(&from, &to, &[])).await.expect("a fork");
        succeeds(made);
        let (to, kubeconfig) = (by_server.to_str().unwrap().to_owned(), kubeconfig.clone());
        let arguments = ["fork", "--server", "--kubeconfig", &kubeconfig, "--data-dir", &to].map(str::to_owned);
        succeeds(tokio::task::spawn_blocking(move || holdfast(arguments)).await.expect("a fork"));
        for folder in [beside, by_server] {
            let verdict = tokio::task::spawn_blocking(move || intact(&folder)).await.expect("a verdict");
            let last = verdict["last"].as_u64().expect("an offset");
            assert!(last >= newest, "a fork of now goes at least as far as the one before: {last} and {newest}");
            newest = last;
            forks.push((last, verdict["digest"].clone()));
        }
    }
    stop.store(true, Ordering::Relaxed);
    let mut written = 0;
    for writer in writers {
        written += writer.await.expect("a writer");
    }
    assert!(written > 20, "only {written} writes");
    server.stop();
    let parent = verified(&source);
    for (last, digest) in forks {
        assert_eq!(&digest, digest_at(&parent, last), "the fork at {last}");
    }
}

#[tokio::test]
async fn a_server_forks_for_its_administrators_alone() {
    const FORKS: &str = "/holdfast/v1/forks";
    let folders = Folder::new();
    let server = Server::start(&folders.join("source"), &[]);
    let admin = HttpClient::admin(&server);
    let version = put_map(&admin, "m", "first").await;
    put_map(&admin, "m", "second").await;
    let target = folders.join("target");
    let wanted = json!({"folder": target, "at": version.to_string()});
    let stranger = HttpClient::anonymous(&server).post(FORKS, &wanted).await;
    stranger.refused(403, "Forbidden");
    let full = folders.join("full");
    std::fs::create_dir(&full).unwrap();
    std::fs::write(full.join("file"), "text").unwrap();
    for (body, code, reason) in [
        (json!({"folder": "relative"}), 400, "BadRequest"),
        (json!({"folder": target, "when": "1"}), 400, "BadRequest"),
        (json!({"folder": target, "at": "yesterday"}), 400, "BadRequest"),
        (json!({"folder": target, "at": "999999"}), 400, "BadRequest"),
        (json!({"folder": full}), 400, "BadRequest"),
    ] {
        admin.post(FORKS, &body).await.refused(code, reason);
        assert!(!target.exists(), "{body}");
    }
    assert_eq!(std::fs::read_dir(&full).unwrap().count(), 1);
    let made = admin.post(FORKS, &wanted).await.expect(201).json();
    assert_eq!((&made["version"], made["folder"].as_str()), (&json!(version), target.to_str()), "{made}");
    let verdict = verified(&target);
    assert_eq!((&verdict["last"], &verdict["id"]), (&json!(version), &made["id"]));
    let kubeconfig = server.kubeconfig().to_str().unwrap();
    let arguments = ["fork", "--server", "--kubeconfig", kubeconfig, "--data-dir", target.to_str().unwrap()];
    fails(holdfast(arguments), &["is not empty", "a new log cannot be made there"]);
    server.stop();
}

#[test]
fn what_cannot_be_forked_is_named_and_nothing_is_left() {
    let folders = Folder::new();
    let source = folders.join("source");
    let log = RocksLog::open(&source).expect("a log");
    log.append(&(1..=20).map(|offset| put(offset, "configmaps", "a/b", offset - 1)).collect::<Vec<_>>()).unwrap();
    log.forget(Offset(10)).unwrap();
    drop(log);
    let (target, empty) = (folders.join("target"), folders.join("empty"));
    std::fs::create_dir(&empty).unwrap();
    for (at, parts) in [
        ("21", vec!["version 21 is in the future", "newest one is 20"]),
        ("2999-01-01T00:00:00Z", vec!["is in the future"]),
        ("9", vec!["version 9 is no longer in the history", "the oldest one is 10"]),
        ("2020-01-01T00:00:00Z", vec!["is no longer in the history", "is 10"]),
        ("yesterday", vec!["is not a moment", "2026-11-21T10:00:00Z"]),
        ("99999999999999999999", vec!["too large"]),
        ("-15", vec!["is not a moment"]),
    ] {
        for folder in [&target, &empty] {
            fails(fork(&source, folder, &["--at", at]), &parts);
        }
        assert!(!target.exists(), "{at}");
        assert_eq!(std::fs::read_dir(&empty).unwrap().count(), 0, "{at}");
    }
    fails(fork(&folders.join("none"), &target, &[]), &["none holds no Holdfast log"]);
    fails(fork(&source, &folders.join("made/for/it"), &["--at", "21"]), &["is in the future"]);
    assert!(!folders.join("made").exists());
    fails(fork(&source, &source, &[]), &["is not empty", "Name a new folder"]);
    fails(fork(&source, &source.join("holder"), &[]), &["holder is a file"]);
    let path = target.to_str().unwrap();
    fails(holdfast(["fork", "--data-dir", path]), &["--from", "--server"]);
    let both = ["fork", "--from", source.to_str().unwrap(), "--server", "--data-dir", path];
    fails(holdfast(both), &["cannot be used with"]);

    // A folder in which a fork was not finished is refused by a server, by another fork, and by `holdfast log verify`.
    let half = folders.join("half");
    succeeds(fork(&source, &half, &[]));
    std::fs::write(half.join("fork-in-progress"), "").unwrap();
    let Refused { stderr, .. } = Server::try_start(&half, &[]).err().expect("a refusal");
    assert!(stderr.contains("was interrupted") && stderr.contains("fork again"), "{stderr}");
    fails(fork(&half, &target, &[]), &["half was interrupted"]);
    fails(holdfast(["log", "verify", "--data-dir", half.to_str().unwrap()]), &["was interrupted"]);

    // A log that a newer release has written is refused.
    let newer = folders.join("newer");
    succeeds(fork(&source, &newer, &[]));
    {
        let options = rocksdb::Options::default();
        let names = rocksdb::DB::list_cf(&options, newer.join("log")).unwrap();
        let db = rocksdb::DB::open_cf(&options, newer.join("log"), names).unwrap();
        db.put_cf(db.cf_handle("meta").unwrap(), b"format", [9]).unwrap();
    }
    for has_more in [false, true] {
        if has_more {
            let options = rocksdb::Options::default();
            let names = rocksdb::DB::list_cf(&options, newer.join("log")).unwrap();
            let mut db = rocksdb::DB::open_cf(&options, newer.join("log"), names).unwrap();
            db.create_cf("invented-later", &options).unwrap();
        }
        let parts = ["newer has format 9", "newer release"];
        fails(fork(&newer, &target, &[]), &parts);
        assert!(!target.exists());
        let Refused { stderr, .. } = Server::try_start(&newer, &[]).err().expect("a refusal");
        assert!(parts.iter().all(|part| stderr.contains(part)), "{stderr}");
        let path = newer.to_str().unwrap();
        for command in ["verify", "export", "stats", "tail", "repair"] {
            fails(holdfast(["log", command, "--data-dir", path]), &parts);
        }
        fails(holdfast(["log", "compact", "--history-retention", "1s", "--data-dir", path]), &parts);
    }
}

/// This function is no test: it measures a fork of a large log. `cargo test --release -p holdfast-tests --test forks --
/// --ignored --nocapture million` runs it. `HOLDFAST_MILLION` may name a folder made by `write_large_log`.
#[test]
#[ignore = "measures, and takes a minute to fill a log"]
fn a_fork_of_a_million_objects() {
    let folders = Folder::new();
    let source = match std::env::var_os("HOLDFAST_MILLION") {
        Some(kept) => kept.into(),
        None => {
            let source = folders.join("source");
            large::write(&source, 1_000_000, 0);
            source
        }
    };
    let log = RocksLog::open(&source).expect("a log");
    let last = log.last().unwrap().0;
    println!("a log of {last} events, {} MB", log.size().unwrap().bytes >> 20);
    for back in [0, 1_000, last / 2] {
        for (how, within) in [("beside", false), ("within", true)] {
            let target = folders.join(&format!("{how}-{back}"));
            let began = Instant::now();
            let made = match within {
                false => Fork::of_folder(&source, &target),
                true => Fork::of_log(&log, &target),
            };
            let copied = began.elapsed();
            made.expect("a copy").finish(Offset(last - back)).expect("a fork");
            println!("{back} events back, {how} the server: {:?}, of which the copy {copied:?}", began.elapsed());
        }
    }
}
