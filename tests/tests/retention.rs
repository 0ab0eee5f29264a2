//! Retention during traffic: kept versions are complete, and requests for forgotten versions are refused.

use holdfast_core::event::Offset;
use holdfast_engine::{Log, LogRead};
use holdfast_storage_rocks::RocksLog;
use holdfast_tests::records::put;
use holdfast_tests::server::holdfast;
use holdfast_tests::wire::HttpClient;
use holdfast_tests::{Folder, Server, eventually};
use http::Method;
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PATIENCE: Duration = Duration::from_secs(60);

#[track_caller]
fn verified(folder: &Path) -> Value {
    let output = holdfast(["log", "verify", "--json", "--data-dir", folder.to_str().expect("UTF-8")]);
    assert!(output.status.success(), "{output:?}");
    let verdict: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(verdict["intact"], true, "{verdict}");
    verdict
}

/// The value of a metric of the server.
async fn metric(admin: &HttpClient, name: &str) -> u64 {
    let text = admin.get("/metrics").await.expect(200).text();
    let line = text.lines().find(|line| line.starts_with(&format!("{name} ")));
    let line = line.unwrap_or_else(|| panic!("no {name} in: {text}"));
    line.rsplit(' ').next().unwrap().parse().expect("a number")
}

async fn patch(admin: &HttpClient, name: &str, text: &str) -> u64 {
    let body = json!({"data": {"text": text}}).to_string();
    let headers = [("content-type", "application/merge-patch+json")];
    let answer = admin.send(Method::PATCH, &format!("{MAPS}/{name}"), &headers, body).await.expect(200).json();
    answer["metadata"]["resourceVersion"].as_str().expect("a version").parse().expect("a number")
}

async fn fill(admin: &HttpClient, maps: usize) -> u64 {
    for nth in 0..maps {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("m{nth}")}});
        admin.post(MAPS, &map).await.expect(201);
    }
    let list = admin.get(MAPS).await.expect(200).json();
    list["metadata"]["resourceVersion"].as_str().expect("a version").parse().expect("a number")
}

/// The first event of a watch from this version.
async fn watched(admin: &HttpClient, from: u64) -> Value {
    let path = format!("{MAPS}?watch=1&resourceVersion={from}&timeoutSeconds=1");
    let text = admin.get(&path).await.expect(200).text();
    text.lines().next().map_or(Value::Null, |line| serde_json::from_str(line).expect("JSON"))
}

#[tokio::test]
async fn versions_that_are_too_old_go_beside_traffic() {
    let folder = Folder::new();
    let server = Server::start(folder.path(), &["--history-retention", "2s"]);
    let admin = HttpClient::admin(&server);
    let begin = fill(&admin, 5).await;
    admin.send(Method::DELETE, &format!("{MAPS}/m4"), &[], "").await.expect(200);
    let oldest = eventually(PATIENCE, || async {
        for nth in 0..4 {
            patch(&admin, &format!("m{nth}"), &format!("{begin} {nth} {:?}", std::time::Instant::now())).await;
        }
        let oldest = metric(&admin, "holdfast_log_oldest").await;
        if oldest > begin + 8 { Ok(oldest) } else { Err(format!("it still begins at {oldest}")) }
    })
    .await;
    assert!(metric(&admin, "holdfast_log_let_go_events").await > 8);
    let gone = watched(&admin, begin).await;
    assert_eq!((&gone["type"], &gone["object"]["code"]), (&json!("ERROR"), &json!(410)), "{gone}");
    let newest = patch(&admin, "m0", "newest").await;
    let seen = watched(&admin, newest - 1).await;
    assert_eq!((&seen["type"], &seen["object"]["data"]["text"]), (&json!("MODIFIED"), &json!("newest")), "{seen}");
    let listed = admin.get(MAPS).await.expect(200).json()["items"].clone();
    server.stop();
    let verdict = verified(folder.path());
    assert!(verdict["oldest"].as_u64() >= Some(oldest), "{verdict}");

    // A log with forgotten history can be exported and imported, forked, and served.
    let files = Folder::new();
    let (export, copy, fork) = (files.join("export"), files.join("copy"), files.join("fork"));
    let [path, export, copy_name, fork_name] =
        [folder.path(), &export, &copy, &fork].map(|path| path.to_str().expect("UTF-8"));
    for arguments in [
        &["log", "export", "--data-dir", path, "-o", export][..],
        &["log", "import", "--data-dir", copy_name, export],
        &["fork", "--from", path, "--data-dir", fork_name],
    ] {
        let output = holdfast(arguments);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
    }
    for other in [folder.path(), &copy, &fork] {
        assert_eq!(verified(other)["digest"], verdict["digest"]);
        let server = Server::start(other, &[]);
        assert_eq!(HttpClient::admin(&server).get(MAPS).await.expect(200).json()["items"], listed);
        server.stop();
    }
}

#[tokio::test]
async fn a_log_that_takes_too_much_gives_room_back() {
    const MOST: u64 = 6 << 20;
    let folder = Folder::new();
    let server = Server::start(folder.path(), &["--history-max-bytes", "6Mi"]);
    let admin = HttpClient::admin(&server);
    let begin = fill(&admin, 4).await;
    // The writes take many times the log's size limit.
    for round in 0..60 {
        for nth in 0..4 {
            patch(&admin, &format!("m{nth}"), &format!("{round}{}", "x".repeat(100_000))).await;
        }
    }
    eventually(PATIENCE, || async {
        let bytes = metric(&admin, "holdfast_log_bytes").await;
        if bytes <= MOST { Ok(()) } else { Err(format!("it takes {bytes} bytes")) }
    })
    .await;
    assert!(metric(&admin, "holdfast_log_let_go_bytes").await > MOST);
    let gone = watched(&admin, begin).await;
    assert_eq!(gone["object"]["code"], 410, "{gone}");
    let texts: Vec<String> = admin.get(MAPS).await.expect(200).json()["items"]
        .as_array()
        .expect("items")
        .iter()
        .filter_map(|map| map["data"]["text"].as_str().map(|text| text[..2].to_owned()))
        .collect();
    assert_eq!(texts, ["59"; 4], "what is current stays");
    server.stop();
    verified(folder.path());
}

#[test]
fn a_closed_folder_is_compacted() {
    let folder = Folder::new();
    let log = RocksLog::open(folder.path()).expect("a log");
    let text = "x".repeat(2_000);
    for begin in (0..10_000u64).step_by(1_000) {
        let record = |offset: u64| {
            let object =
                format!("{{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"data\":{{\"text\":\"{offset} {text}\"}}}}\n");
            let key = format!("default/m{}", offset % 10);
            holdfast_core::event::Record {
                object: object.into(),
                ..put(offset, "configmaps", &key, offset.saturating_sub(10))
            }
        };
        log.append(&(begin + 1..=begin + 1_000).map(record).collect::<Vec<_>>()).expect("written");
    }
    let path = folder.path().to_str().expect("UTF-8");
    let busy = holdfast(["log", "compact", "--history-max-bytes", "8Mi", "--data-dir", path]);
    assert!(!busy.status.success() && String::from_utf8_lossy(&busy.stderr).contains("in use"), "{busy:?}");
    drop(log);
    let digest = verified(folder.path())["digest"].clone();
    let before = on_disk(folder.path());
    for (arguments, complaint) in [
        (&[][..], "--history-retention (such as 168h)"),
        (&["--history-max-bytes", "many"], "is not a size"),
        (&["--history-retention", "soon"], "duration"),
    ] {
        let refused = holdfast([&["log", "compact", "--data-dir", path], arguments].concat());
        assert!(!refused.status.success(), "{arguments:?}");
        assert!(String::from_utf8_lossy(&refused.stderr).contains(complaint), "{refused:?}");
    }
    let output = holdfast(["log", "compact", "--history-max-bytes", "8Mi", "--data-dir", path]);
    assert!(output.status.success(), "{output:?}");
    let after = on_disk(folder.path());
    assert!(after < before * 6 / 10, "{after} bytes of {before}: {output:?}");
    let verdict = verified(folder.path());
    assert_eq!(verdict["digest"], digest);
    assert_eq!(verdict["last"], 10_000);
    let oldest = verdict["oldest"].as_u64().expect("an offset");
    assert!((3_000..9_500).contains(&oldest), "{oldest}");
    // Everything is older than a second, so only current versions are kept.
    let output = holdfast(["log", "compact", "--history-retention", "1s", "--data-dir", path]);
    assert!(output.status.success(), "{output:?}");
    let log = RocksLog::open(folder.path()).expect("a log");
    assert_eq!(log.scan(None, Offset::ZERO, 99).expect("events").len(), 10);
    assert_eq!((log.oldest().unwrap(), log.last().unwrap()), (Offset(10_000), Offset(10_000)));
    drop(log);
    assert_eq!(verified(folder.path())["digest"], digest);
    let none = holdfast(["log", "compact", "--history-retention", "1s", "--data-dir", &format!("{path}/none")]);
    assert!(
        !none.status.success() && String::from_utf8_lossy(&none.stderr).contains("holds no Holdfast log"),
        "{none:?}"
    );
}

/// The number of bytes of all files of the log on the disk.
fn on_disk(folder: &Path) -> u64 {
    let files = std::fs::read_dir(folder.join("log")).expect("the log's files");
    files.map(|file| file.expect("a file").metadata().map_or(0, |metadata| metadata.len())).sum()
}
