//! Acknowledged writes survive a kill, a full disk, and repaired damage.

use futures_util::future::join_all;
use holdfast_core::object::yaml;
use holdfast_tests::server::{Refused, holdfast};
use holdfast_tests::wire::HttpClient;
use holdfast_tests::{Folder, Server, eventually};
use http::Method;
use http_body_util::BodyExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use kube::{Client, ResourceExt};
use rand::Rng;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// An object's state in a writer's view: its version and text; `None` if it is deleted.
type Known = Option<(String, String)>;

/// The answers to one writer, by name of the object.
#[derive(Default, Clone)]
struct Ledger {
    acknowledged: BTreeMap<String, Known>,
    /// The request without an answer, if any: the object's name, and the text to write; no text if the request deletes
    /// the object.
    open: Option<(String, Option<String>)>,
    answers: u64,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_writes_survive_kill_9() {
    const ROUNDS: u64 = 15;
    const WRITERS: u64 = 4;
    let folder = Folder::new();
    let mut ledgers = vec![Ledger::default(); WRITERS as usize];
    let mut ready = Vec::new();
    for round in 0..ROUNDS {
        let server = Server::start(folder.path(), &[]);
        ready.push(server.ready_in());
        check(&server.client().await, &mut ledgers).await;
        let stop = Arc::new(AtomicBool::new(false));
        let before: u64 = ledgers.iter().map(|ledger| ledger.answers).sum();
        let mut writers = Vec::new();
        for (index, ledger) in ledgers.into_iter().enumerate() {
            let client = server.client().await;
            writers.push(tokio::spawn(write(client, index, round, ledger, stop.clone())));
        }
        tokio::time::sleep(Duration::from_millis(rand::rng().random_range(100..700))).await;
        server.kill();
        stop.store(true, Ordering::Relaxed);
        ledgers = join_all(writers).await.into_iter().collect::<Result<_, _>>().expect("the writers");
        let answers = ledgers.iter().map(|ledger| ledger.answers).sum::<u64>() - before;
        assert!(answers > 0, "round {round}: nothing was acknowledged before the kill");
    }
    let server = Server::start(folder.path(), &[]);
    ready.push(server.ready_in());
    check(&server.client().await, &mut ledgers).await;
    server.stop();
    let answers: u64 = ledgers.iter().map(|ledger| ledger.answers).sum();
    ready.sort();
    let (first, last) = (ready[0], ready[ready.len() - 1]);
    println!("{ROUNDS} kills, {answers} acknowledged writes, none lost; ready in {first:?} to {last:?}");
}

/// Creates, replaces and deletes its own objects until the server no longer answers.
async fn write(client: Client, writer: usize, round: u64, mut ledger: Ledger, stop: Arc<AtomicBool>) -> Ledger {
    let api: Api<ConfigMap> = Api::default_namespaced(client);
    let mut serial = 0;
    while !stop.load(Ordering::Relaxed) {
        let name = format!("w{writer}-{}", rand::rng().random_range(0..20));
        let text = format!("round {round}, write {serial}");
        serial += 1;
        let known = ledger.acknowledged.get(&name).cloned().flatten();
        let delete = known.is_some() && rand::rng().random_bool(0.2);
        ledger.open = Some((name.clone(), (!delete).then(|| text.clone())));
        let now: Result<Known, kube::Error> = if delete {
            api.delete(&name, &DeleteParams::default()).await.map(|_| None)
        } else {
            let object = json!({"apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": name, "resourceVersion": known.as_ref().map(|(version, _)| version)},
                "data": {"text": text}});
            let object = serde_json::from_value(object).expect("a config map");
            let done = match known {
                None => api.create(&PostParams::default(), &object).await,
                Some(_) => api.replace(&name, &PostParams::default(), &object).await,
            };
            done.map(|object| object.resource_version().map(|version| (version, text)))
        };
        match now {
            Ok(known) => {
                ledger.acknowledged.insert(name, known);
                ledger.open = None;
                ledger.answers += 1;
            }
            Err(kube::Error::Api(status)) => panic!("{name} was refused: {status:?}"),
            // The connection is lost: the outcome of this request is unknown.
            Err(_) => return ledger,
        }
    }
    ledger.open = None;
    ledger
}

/// Compares the server's objects with the writers' ledgers, and resolves unknown outcomes.
async fn check(client: &Client, ledgers: &mut [Ledger]) {
    let api: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let list = api.list(&ListParams::default()).await.expect("a list");
    let mut found: BTreeMap<String, Known> = BTreeMap::new();
    for map in list.items.iter().filter(|map| map.name_any().starts_with('w')) {
        let text = map.data.as_ref().and_then(|data| data.get("text")).cloned().unwrap_or_default();
        found.insert(map.name_any(), map.resource_version().map(|version| (version, text)));
    }
    let end: u64 = list.metadata.resource_version.and_then(|version| version.parse().ok()).expect("the list's version");
    for ledger in ledgers {
        if let Some((name, written)) = ledger.open.take() {
            let is = found.get(&name).cloned().flatten();
            let was = ledger.acknowledged.get(&name).cloned().flatten();
            let carried_out = is.as_ref().map(|(_, text)| text) == written.as_ref();
            assert!(is == was || carried_out, "{name} is {is:?}, was {was:?}, was to become {written:?}");
            ledger.acknowledged.insert(name, is);
        }
        for (name, known) in &ledger.acknowledged {
            assert_eq!(&found.remove(name).flatten(), known, "{name}");
            let version = known.as_ref().map_or(0, |(version, _)| version.parse().expect("a number"));
            assert!(version <= end, "{name} has version {version}, the list {end}");
        }
    }
    assert_eq!(found, BTreeMap::new(), "nobody wrote these");
}

#[test]
fn a_second_server_on_the_folder_is_refused() {
    let folder = Folder::new();
    let server = Server::start(folder.path(), &[]);
    let Refused { status, stderr } = Server::try_start(folder.path(), &[]).err().expect("a refusal");
    assert_ne!(status.code(), Some(0));
    let holder = format!("is in use by process {}", server.pid());
    assert!(stderr.contains(&holder) && stderr.contains(&folder.path().display().to_string()), "{stderr}");
    let repair = holdfast(["log".as_ref(), "repair".as_ref(), "--data-dir".as_ref(), folder.path().as_os_str()]);
    assert_ne!(repair.status.code(), Some(0), "repair must not touch a folder that is in use");
    assert!(String::from_utf8_lossy(&repair.stderr).contains(&holder), "{repair:?}");
    // The first server still works after the refused server and the refused repair: it stops cleanly, and another
    // server can start on its folder.
    server.stop();
    Server::start(folder.path(), &[]).stop();
}

/// A folder with one object in two versions, and the offsets of both.
async fn two_versions(folder: &Folder) -> (u64, u64) {
    let server = Server::start(folder.path(), &[]);
    let admin = HttpClient::admin(&server);
    let version = |object: Value| object["metadata"]["resourceVersion"].as_str().unwrap().parse::<u64>().unwrap();
    let first = admin.post(MAPS, &config_map("damaged", "the first text")).await.expect(201).json();
    let body = config_map("damaged", "the second text").to_string();
    let json = [("content-type", "application/json")];
    let second = admin.send(Method::PUT, &format!("{MAPS}/damaged"), &json, body).await.expect(200).json();
    admin.post(MAPS, &config_map("intact", "another text")).await.expect(201);
    server.stop();
    (version(first), version(second))
}

/// Expects that a server refuses to start, with a message that contains all of these parts.
fn refused_naming(folder: &Folder, parts: &[&str]) {
    let Refused { status, stderr } = Server::try_start(folder.path(), &[]).err().expect("a refusal");
    assert_ne!(status.code(), Some(0));
    for part in parts {
        assert!(stderr.contains(part), "{part:?} is not in: {stderr}");
    }
}

fn repair(folder: &Folder) -> String {
    let output = holdfast(["log".as_ref(), "repair".as_ref(), "--data-dir".as_ref(), folder.path().as_os_str()]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{output:?}");
    text
}

/// After a repair: the damaged object has its first text again, the other object is unchanged, and writes work.
async fn served_as_before(folder: &Folder, second: u64) {
    let server = Server::start(folder.path(), &[]);
    let admin = HttpClient::admin(&server);
    let damaged = admin.get(&format!("{MAPS}/damaged")).await.expect(200).json();
    assert_eq!(damaged["data"]["text"], "the first text");
    let version: u64 = damaged["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
    assert!(version > second, "caches must notice: {version} after {second}");
    assert_eq!(admin.get(&format!("{MAPS}/intact")).await.expect(200).json()["data"]["text"], "another text");
    admin.post(MAPS, &config_map("new", "after the repair")).await.expect(201);
    server.stop();
}

#[tokio::test]
async fn a_damaged_event_is_named_and_can_be_repaired() {
    let folder = Folder::new();
    let (first, second) = two_versions(&folder).await;
    {
        let db = open(&folder);
        let events = db.cf_handle("events").unwrap();
        let mut value = db.get_cf(events, second.to_be_bytes()).unwrap().expect("the event");
        let middle = value.len() / 2;
        value[middle] ^= 0x10;
        db.put_cf(events, second.to_be_bytes(), value).unwrap();
    }
    let event = format!("event {second} is damaged");
    refused_naming(&folder, &[&event, "checksum", "holdfast log repair --data-dir", "backup"]);
    let told = repair(&folder);
    assert!(told.contains(&event), "{told}");
    assert!(
        told.contains(&format!("/registry/configmaps/default/damaged is put back to its version {first}")),
        "{told}"
    );
    served_as_before(&folder, second).await;
    assert_eq!(repair(&folder), "the log is intact\n");
}

#[tokio::test]
async fn a_damaged_file_is_named_and_can_be_repaired() {
    let folder = Folder::new();
    let (_, second) = two_versions(&folder).await;
    {
        // The flush moves everything from the write-ahead log into tables, because the test damages a table.
        let db = open(&folder);
        for family in ["events", "current", "history", "by_resource", "meta"] {
            db.flush_cf(db.cf_handle(family).unwrap()).unwrap();
        }
    }
    let mut flipped = 0;
    for entry in std::fs::read_dir(folder.join("log")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "sst") {
            continue;
        }
        let mut bytes = std::fs::read(&path).unwrap();
        let text = b"the second text";
        if let Some(at) = bytes.windows(text.len()).position(|window| window == text) {
            bytes[at] ^= 0x01;
            std::fs::write(&path, bytes).unwrap();
            flipped += 1;
        }
    }
    assert_eq!(flipped, 1, "the event is in one table");
    refused_naming(&folder, &["the log is damaged after its event", "checksum", "holdfast log repair --data-dir"]);
    let told = repair(&folder);
    assert!(told.contains(&second.to_string()), "it tells which event was lost: {told}");
    assert!(told.contains("default/damaged"), "it tells which object is concerned: {told}");
    // The damaged block contained older events, too. Objects that only this block contained are lost; the server still
    // serves all other objects.
    let server = Server::start(folder.path(), &[]);
    let admin = HttpClient::admin(&server);
    admin.post(MAPS, &config_map("new", "after the repair")).await.expect(201);
    assert_ne!(admin.get(&format!("{MAPS}/damaged")).await.json()["data"]["text"], "the second text");
    server.stop();
}

fn open(folder: &Folder) -> rocksdb::DB {
    let options = rocksdb::Options::default();
    let names = rocksdb::DB::list_cf(&options, folder.join("log")).unwrap();
    rocksdb::DB::open_cf(&options, folder.join("log"), names).unwrap()
}

/// A file system of a few megabytes; unmounted with the test.
struct SmallDisk(Folder);

impl SmallDisk {
    fn mount(size: &str) -> Option<SmallDisk> {
        let folder = Folder::new();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"]).arg(folder.path()).stderr(Stdio::null());
        mount.status().is_ok_and(|status| status.success()).then_some(SmallDisk(folder))
    }

    fn resize(&self, size: &str) {
        let mut mount = Command::new("mount");
        mount.args(["-o", &format!("remount,size={size}")]).arg(self.0.path());
        assert!(mount.status().expect("mount runs").success());
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_stops_writes_and_nothing_else() {
    let Some(disk) = SmallDisk::mount("96m") else {
        return eprintln!("skipped: only root can mount a small file system here");
    };
    let data = disk.0.join("data");
    let server = Server::start(&data, &[]);
    let admin = HttpClient::admin(&server);
    let watching = format!("{MAPS}?watch=1&labelSelector=seen=yes");
    let mut watch = admin.open(Method::GET, &watching, &[], Default::default()).await.expect("a watch").into_body();
    let mut acknowledged = BTreeMap::new();
    for index in 0..20 {
        let name = format!("before-{index}");
        let made = admin.post(MAPS, &config_map(&name, &name.repeat(100))).await.expect(201).json();
        acknowledged.insert(name, made["metadata"]["resourceVersion"].clone());
    }

    let filler = disk.0.join("filler");
    fill(&filler);
    let mut refusals = 0;
    for index in 0..400 {
        let name = format!("during-{index}");
        let answer = admin.post(MAPS, &config_map(&name, &name.repeat(20_000))).await;
        if answer.code == 201 {
            acknowledged.insert(name, answer.json()["metadata"]["resourceVersion"].clone());
            continue;
        }
        let status = answer.refused(507, "InternalError");
        assert!(status["message"].as_str().unwrap().contains("disk under the log is full"), "{status}");
        refusals += 1;
        if refusals == 5 {
            break;
        }
    }
    assert_eq!(refusals, 5, "the disk never became full");
    same(&admin, &acknowledged).await;
    admin.get("/readyz").await;
    admin.get("/api/v1/namespaces/default").await.expect(200);

    std::fs::remove_file(&filler).unwrap();
    eventually(Duration::from_secs(15), || async {
        let mut map = config_map("after", "there is room again");
        map["metadata"]["labels"] = json!({"seen": "yes"});
        let answer = admin.post(MAPS, &map).await;
        if answer.code != 201 {
            return Err(answer.text());
        }
        Ok(())
    })
    .await;
    let frame = tokio::time::timeout(Duration::from_secs(10), watch.frame()).await.expect("an event in time");
    let event = frame.expect("the watch goes on").expect("a frame").into_data().expect("data");
    let event: Value = serde_json::from_slice(&event).expect("an event");
    assert_eq!((&event["type"], &event["object"]["metadata"]["name"]), (&json!("ADDED"), &json!("after")));
    same(&admin, &acknowledged).await;
    drop(watch);
    server.stop();

    let server = Server::start(&data, &[]);
    let admin = HttpClient::admin(&server);
    same(&admin, &acknowledged).await;
    admin.get(&format!("{MAPS}/after")).await.expect(200);
    admin.post(MAPS, &config_map("last", "x")).await.expect(201);
    server.stop();
}

/// Creates maps with `bytes` bytes of incompressible text until the disk is full; returns their names.
async fn fill_with_maps(admin: &HttpClient, prefix: &str, bytes: usize) -> Vec<String> {
    let (mut made, mut refused) = (Vec::new(), 0);
    while refused < 30 {
        let name = format!("{prefix}-{}", made.len());
        let text: String = rand::rng().sample_iter(rand::distr::Alphanumeric).take(bytes).map(char::from).collect();
        let answer = admin.post(MAPS, &config_map(&name, &text)).await;
        if answer.code == 201 {
            made.push(name);
            continue;
        }
        let status = answer.refused(507, "InternalError");
        let message = status["message"].as_str().unwrap_or_default();
        assert!(message.contains("disk under the log is full") && message.contains("--disk-reserve"), "{message}");
        refused += 1;
    }
    made
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_takes_deletes_and_has_room_again() {
    let Some(disk) = SmallDisk::mount("256m") else {
        return eprintln!("skipped: only root can mount a small file system here");
    };
    let data = disk.0.join("data");
    let server = Server::start(&data, &[]);
    let mut admin = HttpClient::admin(&server);
    let leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    let lease = json!({"metadata": {"name": "leader"}, "spec": {"holderIdentity": "a"}});
    admin.post(leases, &lease).await.expect(201);
    admin.get("/readyz/disk-room").await.expect(200);
    // RocksDB frees space when it has moved its write-ahead log into tables. The test fills that space as well, until
    // the disk stays full and the server reports this.
    let (mut maps, mut tries) = (Vec::new(), 0);
    let refused = loop {
        maps.extend(fill_with_maps(&admin, &format!("map-{tries}"), 400_000).await);
        let answer = admin.post(MAPS, &config_map(&format!("one-more-{tries}"), "x")).await;
        let is_reported = admin.get("/readyz?verbose").await.text().contains("[-]disk-room failed")
            && admin.get("/metrics").await.text().contains("\nholdfast_disk_writes_refused 1\n");
        if answer.code != 201 && is_reported {
            break answer.refused(507, "InternalError");
        }
        tries += 1;
        assert!(tries < 30, "{}", answer.text());
    };
    // The server refuses writes to the namespace that has filled the disk, and still accepts writes to other
    // namespaces.
    assert!(refused["message"].as_str().is_some_and(|why| why.contains("and namespace default wrote ")), "{refused}");
    admin.post("/api/v1/namespaces", &json!({"metadata": {"name": "another"}})).await.expect(201);
    admin.post("/api/v1/namespaces/another/configmaps", &config_map("small", "x")).await.expect(201);

    // While the disk is full, reads and lease renewals still work.
    admin.get("/livez").await.expect(200);
    admin.get(&format!("{MAPS}/{}", maps[0])).await.expect(200);
    let merge = [("content-type", "application/merge-patch+json")];
    let renewal = json!({"spec": {"renewTime": "2026-01-01T00:00:00.000000Z"}}).to_string();
    admin.send(Method::PATCH, &format!("{leases}/leader"), &merge, renewal).await.expect(200);

    let delete = async |admin: &HttpClient, name: &str| {
        // A delete that finds no room at all is refused, and the server frees room for the next try.
        eventually(Duration::from_secs(20), async || {
            let answer = admin.send(Method::DELETE, &format!("{MAPS}/{name}"), &[], "").await;
            if matches!(answer.code, 200 | 404) { Ok(()) } else { Err(answer.text()) }
        })
        .await;
        // Deletes are sent as slowly as by an interactive user or by a loop over a command, so that the server frees
        // room meanwhile.
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    let (gone, left) = maps.split_at(maps.len() / 2);
    for name in gone {
        delete(&admin, name).await;
    }

    // Other files use the remaining room: the next start still serves reads and deletes.
    fill(&disk.0.join("filler"));
    server.kill();
    let server = Server::start(&data, &[]);
    admin = HttpClient::admin(&server);
    for name in left {
        admin.get(&format!("{MAPS}/{name}")).await.expect(200);
    }
    delete(&admin, &left[0]).await;

    disk.resize("768m");
    eventually(Duration::from_secs(20), || async {
        let answer = admin.post(MAPS, &config_map("after", "x")).await;
        if answer.code == 201 { Ok(()) } else { Err(answer.text()) }
    })
    .await;
    let metrics = admin.get("/metrics").await.text();
    assert!(metrics.contains("\nholdfast_disk_writes_refused 0\n"), "{metrics}");
    server.stop();
}

/// Other files use up a disk, and a client deletes objects as fast as it can.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_takes_deletes_however_quickly_they_come() {
    for (bytes, at_once) in [(400_000, 8), (40_000, 16)] {
        delete_quickly(bytes, at_once).await;
    }
}

async fn delete_quickly(bytes: usize, at_once: usize) {
    let Some(disk) = SmallDisk::mount("256m") else {
        return eprintln!("skipped: only root can mount a small file system here");
    };
    let server = Server::start(&disk.0.join("data"), &[]);
    let admin = HttpClient::admin(&server);
    let maps = fill_with_maps(&admin, "map", bytes).await;
    fill(&disk.0.join("filler"));
    for names in maps.chunks(at_once) {
        // The server frees room in the background, so a request that comes too early is retried.
        let deletes = names.iter().map(|name| {
            let (admin, path) = (&admin, format!("{MAPS}/{name}"));
            eventually(Duration::from_secs(60), move || {
                let path = path.clone();
                async move {
                    let answer = admin.send(Method::DELETE, &path, &[], "").await;
                    if answer.code == 200 { Ok(()) } else { Err(answer.text()) }
                }
            })
        });
        join_all(deletes).await;
    }
    eventually(Duration::from_secs(60), || async {
        let answer = admin.post(MAPS, &config_map("after", "x")).await;
        if answer.code == 201 { Ok(()) } else { Err(answer.text()) }
    })
    .await;
    server.stop();
}

/// Writes a file that uses all free room of the disk.
fn fill(path: &Path) {
    use std::io::Write;
    let mut file = std::fs::File::create(path).unwrap();
    for size in [1 << 20, 4096, 1] {
        let piece = vec![0u8; size];
        while file.write_all(&piece).is_ok() {}
    }
}

/// The server must have exactly these objects in these versions.
async fn same(admin: &HttpClient, acknowledged: &BTreeMap<String, Value>) {
    let list = admin.get(MAPS).await.expect(200).json();
    let mut found = BTreeMap::new();
    for item in list["items"].as_array().unwrap() {
        let name = item["metadata"]["name"].as_str().unwrap();
        if name.starts_with("before-") || name.starts_with("during-") {
            found.insert(name.to_owned(), item["metadata"]["resourceVersion"].clone());
        }
    }
    assert_eq!(&found, acknowledged);
}

// The test needs two threads: one waits for the server to stop, and the other closes the test's connections.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_signal_ends_watches_and_the_server() {
    let folder = Folder::new();
    for signal in ["TERM", "INT"] {
        let mut server = Server::start(folder.path(), &[]);
        let admin = HttpClient::admin(&server);
        let mut watches = Vec::new();
        for http2 in [true, false] {
            let admin = HttpClient { http2, ..admin.clone() };
            let answer = admin.open(Method::GET, &format!("{MAPS}?watch=1"), &[], Default::default()).await;
            watches.push(answer.expect("a watch").into_body());
        }
        server.signal(signal);
        for watch in watches {
            let end = tokio::time::timeout(Duration::from_secs(5), watch.collect()).await.expect("the watch ends");
            end.expect("it ends in order, not by a broken connection");
        }
        assert_eq!(server.wait().code(), Some(0), "{signal}: {}", server.stderr());
    }
}

#[tokio::test]
async fn identity_stays_across_restarts() {
    let folder = Folder::new();
    let files = ["pki/ca.crt", "pki/ca.key", "pki/server.crt", "pki/admin.crt", "pki/sa.key"];
    let read = || files.map(|file| std::fs::read_to_string(folder.join(file)).expect(file));
    let users = |kubeconfig: &Path| {
        let config: Value = yaml::read(&std::fs::read_to_string(kubeconfig).unwrap()).unwrap();
        (config["users"].clone(), config["clusters"][0]["cluster"]["certificate-authority-data"].clone())
    };
    let server = Server::start(folder.path(), &[]);
    let (before, identities) = (read(), users(server.kubeconfig()));
    let admin = HttpClient::admin(&server);
    let kubernetes = admin.get("/api/v1/namespaces/default").await.expect(200).json();
    let path = "/api/v1/namespaces/default/serviceaccounts";
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}});
    admin.post(path, &account).await.expect(201);
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let token = admin.post(&format!("{path}/robot/token"), &request).await.expect(201).json();
    server.stop();

    let server = Server::start(folder.path(), &[]);
    assert_eq!(read(), before);
    assert_eq!(users(server.kubeconfig()), identities);
    let again = HttpClient::admin(&server).get("/api/v1/namespaces/default").await.expect(200).json();
    assert_eq!(again, kubernetes, "what every cluster has is made once");
    let robot = HttpClient::anonymous(&server).with_token(token["status"]["token"].as_str().unwrap());
    robot.get("/version").await.expect(200);
    robot.get(path).await.refused(403, "Forbidden");
    server.stop();
}

#[tokio::test]
async fn log_tail_follows_a_running_server() {
    let folder = Folder::new();
    let server = Server::start(folder.path(), &[]);
    let admin = HttpClient::admin(&server);
    let mut tail = Command::new(holdfast_tests::server::binary())
        .args(["log", "tail", "-f", "-n", "1", "--data-dir"])
        .arg(folder.path())
        .stdout(Stdio::piped())
        .spawn()
        .expect("run holdfast log tail");
    let mut lines = BufReader::new(tail.stdout.take().unwrap()).lines().map(|line| line.expect("a line"));
    lines.next().expect("the last event so far");
    let made = admin.post(MAPS, &config_map("tailed", "a")).await.expect(201).json();
    let line = lines.next().expect("the event");
    let offset = made["metadata"]["resourceVersion"].as_str().unwrap();
    assert!(line.starts_with(&format!("{offset} 20")), "{line}");
    assert!(line.contains(" created configmaps/default/tailed by kubernetes-admin "), "{line}");
    let patch = [("content-type", "application/merge-patch+json"), ("user-agent", "tester/1")];
    admin.send(Method::PATCH, &format!("{MAPS}/tailed"), &patch, r#"{"data":{"text":"b"}}"#).await.expect(200);
    let line = lines.next().expect("the event");
    assert!(line.contains(" changed configmaps/default/tailed by kubernetes-admin (tester, patch)"), "{line}");
    admin.send(Method::DELETE, &format!("{MAPS}/tailed"), &[], "").await.expect(200);
    assert!(lines.next().expect("the event").contains(" deleted configmaps/default/tailed "));
    tail.kill().unwrap();
    tail.wait().unwrap();
    server.stop();

    // While no server runs, `holdfast log tail` prints all events of the folder's log.
    let all = holdfast(["log".as_ref(), "tail".as_ref(), "--data-dir".as_ref(), folder.path().as_os_str()]);
    assert!(all.status.success(), "{all:?}");
    let text = String::from_utf8(all.stdout).unwrap();
    let last: u64 = offset.parse::<u64>().unwrap() + 2;
    assert_eq!(text.lines().count() as u64, last);
    assert!(text.starts_with("1 20"), "{}", &text[..200]);
}

fn config_map(name: &str, text: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"text": text}})
}
