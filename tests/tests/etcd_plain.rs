//! Stores that speak etcd's protocol and accept only Kubernetes' own transactions, such as kine.

use holdfast_core::etcd::Media;
use holdfast_core::event::{Actor, Offset, Operation, Record};
use holdfast_encryption::Live;
use holdfast_engine::log::{Decision, Expected, Receipt};
use holdfast_engine::{Log, LogRead, Proposal};
use holdfast_storage_etcd::client::{Etcd, KeyRange, Range};
use holdfast_storage_etcd::grpc::{Address, Cluster as Client};
use holdfast_storage_etcd::{EtcdLog, Kinds, Parts, Storing, Transactions};
use holdfast_storage_rocks::RocksLog;
use holdfast_tests::etcd::receipts::{at, numbered};
use holdfast_tests::etcd::{Cluster, Kine, Proxy};
use holdfast_tests::server::{fails, holdfast, succeeds};
use holdfast_tests::wire::HttpClient;
use holdfast_tests::{Folder, Server, eventually};
use http::Method;
use k8s_openapi::api::core::v1::{ConfigMap, Event};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn client(url: &str) -> Client {
    Client::new(vec![Address::parse(url).expect("an address")], None).expect("a client")
}

fn open(url: &str, folder: &Path) -> EtcdLog {
    open_at(url, folder, "/registry")
}

fn open_at(url: &str, folder: &Path, prefix: &str) -> EtcdLog {
    let etcd = client(url);
    EtcdLog::open(Parts {
        transactions: Transactions::of(&etcd, prefix).expect("an answer"),
        etcd: Arc::new(etcd),
        local: Arc::new(RocksLog::open(folder).expect("a local log")),
        prefix: prefix.into(),
        kinds: Kinds::All,
        keys: Live::none(),
        storing: Storing { media: Media::Protobuf, release: 36, news_ttl: None, lease_reuse: Duration::from_secs(60) },
        claims: None,
        accepts_restored: false,
        tells_progress: true,
    })
    .unwrap_or_else(|fault| panic!("open the log: {fault}"))
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder")
}

fn record(offset: u64, name: &str, value: &str, replaces: u64) -> Record {
    let object = format!(
        "{{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{{\"creationTimestamp\":\"2026-01-02T03:04:05Z\",\
         \"managedFields\":[{{\"apiVersion\":\"v1\",\"fieldsType\":\"FieldsV1\",\"fieldsV1\":{{\"f:data\":{{}}}},\
         \"manager\":\"helm\",\"operation\":\"Update\",\"time\":\"2026-01-02T03:04:05Z\"}}],\"name\":\"{name}\",\
         \"namespace\":\"a\",\"resourceVersion\":\"{offset}\",\"uid\":\"u-{name}\"}},\"data\":{{\"x\":\"{value}\"}}}}\n"
    );
    Record {
        offset,
        time_ms: 1_795_000_000_000,
        resource: "configmaps".into(),
        key: format!("a/{name}"),
        replaces,
        operation: Operation::Put as i32,
        actor: Actor { user: "jane".into(), manager: "kubectl".into(), ..Actor::default() },
        object: object.into(),
    }
}

fn decision(nth: usize) -> Decision {
    Decision { records: nth..nth + 1, expects: Vec::new(), claims: Vec::new(), had: Vec::new() }
}

fn commit(log: &dyn Log, records: &[Record]) -> Vec<Receipt> {
    commit_all(log, records, &|| (0..records.len()).map(decision).collect())
}

fn commit_all(log: &dyn Log, records: &[Record], decisions: &dyn Fn() -> Vec<Decision>) -> Vec<Receipt> {
    numbered(log.commit(&Proposal::new(records, decisions)).expect("commit"))
}

fn current(log: &EtcdLog) -> Vec<String> {
    let mut found = Vec::new();
    let mut visit = |record: Record| {
        found.push(record.key);
        Ok(())
    };
    log.current(&mut visit).expect("the objects");
    found.sort();
    found
}

#[test]
fn a_store_is_told_from_etcd_by_the_transactions_that_it_takes() {
    let (etcd, kine) = (Cluster::single(), Kine::start());
    assert_eq!(Transactions::of(&client(&etcd.urls()), "/registry"), Ok(Transactions::Full));
    assert_eq!(etcd.ctl(&["get", "", "--from-key", "--keys-only"]).trim(), "", "asking writes nothing");
    assert_eq!(Transactions::of(&client(&kine.url()), "/registry"), Ok(Transactions::Plain));
}

#[test]
fn nothing_is_migrated_into_a_store_that_takes_plain_transactions() {
    let (kine, data) = (Kine::start(), Folder::new());
    Server::start(data.path(), &[]).stop();
    let (from, to) = (data.path().to_str().expect("text"), kine.url());
    let migrated = holdfast(["migrate", "--from", from, "--to", &to]);
    fails(migrated, &["--to=", "takes only Kubernetes' own transactions"]);
    // The refused migration has left no note. The search for a note leaves out `/registry/health`, which is a key of
    // kine itself.
    let note = KeyRange::between("/registry.", "/registry/");
    assert!(client(&kine.url()).range(&Range::of(note)).expect("keys").found.is_empty(), "no note is left");
}

#[test]
fn logs_share_a_kine_and_each_knows_who_made_its_own_writes() {
    let (kine, folders) = (Kine::start(), [folder(), folder()]);
    let logs = folders.each_ref().map(|folder| open(&kine.url(), folder.path()));
    logs.iter().for_each(|log| log.wake_by(Arc::new(|| {})));
    assert_eq!(logs[0].secret().unwrap(), logs[1].secret().unwrap());
    let many: Vec<Record> = (1..=50).map(|nth| record(nth, &format!("c{nth}"), "1", 0)).collect();
    let receipts = commit(&logs[0], &many);
    for nth in 0..many.len() {
        let offset = at(&receipts, nth);
        let shown = logs.each_ref().map(|log| {
            assert!(log.last().unwrap() >= Offset(offset));
            log.read(Offset(offset)).unwrap().expect("the event")
        });
        let [own, others] = shown.each_ref().map(|record| (record.actor.user.as_str(), record.actor.manager.as_str()));
        assert_eq!((own, others), (("jane", "kubectl"), ("", "helm")), "others know what managed fields say");
        assert_eq!(shown[0].object, shown[1].object);
    }
    // The store decides which write is first; it compares only the object itself.
    let first = at(&receipts, 0);
    let updates = logs.each_ref().map(|log| commit(log, &[record(900, "c1", "2", first)]));
    assert_eq!(updates.iter().filter(|receipts| matches!(receipts[0], Receipt::At(_))).count(), 1, "{updates:?}");
    assert_eq!(updates.iter().filter(|receipts| matches!(receipts[0], Receipt::Overtaken)).count(), 1, "{updates:?}");
    let expected = Expected { resource: "namespaces".into(), key: "a".into(), version: Some(Offset(7)) };
    let counts = || vec![Decision { expects: vec![expected.clone()], ..decision(0) }];
    at(&commit_all(&logs[1], &[record(901, "new", "1", 0)], &counts), 0);
    // Both logs receive the deletion, and only the log that made the deletion knows its user.
    let second = at(&receipts, 1);
    let gone = Record { operation: Operation::Delete as i32, ..record(902, "c2", "1", second) };
    let offset = at(&commit(&logs[1], &[gone]), 0);
    for (log, user) in logs.iter().zip(["", "jane"]) {
        assert!(log.last().unwrap() >= Offset(offset));
        let event = log.read(Offset(offset)).unwrap().expect("the event");
        assert_eq!((event.is_delete(), event.actor.user.as_str()), (true, user));
    }
    // Besides the objects, the logs have written only the cluster's secret. The key `/registry/health` belongs to kine.
    let keys = kine.ctl(&["get", "/registry", "--prefix", "--keys-only"]);
    let besides: Vec<&str> =
        keys.lines().filter(|key| !key.is_empty() && !key.starts_with("/registry/configmaps/a/")).collect();
    assert_eq!(besides, ["/registry/health", "/registry/holdfast/secret"]);
}

#[test]
fn a_restart_catches_up_after_a_compaction_too() {
    let (kine, own, other) = (Kine::start(), folder(), folder());
    let log = open(&kine.url(), own.path());
    let receipts = commit(&log, &[record(1, "kept", "1", 0), record(2, "gone", "1", 0)]);
    drop(log);
    kine.ctl(&[
        "put",
        "/registry/configmaps/a/theirs",
        r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"theirs","namespace":"a"}}"#,
    ]);
    let log = open(&kine.url(), own.path());
    assert_eq!(current(&log), ["a/gone", "a/kept", "a/theirs"]);
    drop(log);
    let beside = open(&kine.url(), other.path());
    let gone = Record { operation: Operation::Delete as i32, ..record(3, "gone", "1", at(&receipts, 1)) };
    at(&commit(&beside, &[gone]), 0);
    at(&commit(&beside, &[record(4, "late", "1", 0)]), 0);
    let revision = beside.last().unwrap().0;
    client(&kine.url()).compact(revision).expect("compacted");
    let log = open(&kine.url(), own.path());
    assert_eq!(current(&log), ["a/kept", "a/late", "a/theirs"]);
    at(&commit(&log, &[record(5, "more", "1", 0)]), 0);
}

#[test]
fn what_came_of_writes_without_an_answer_is_known_after_recovery() {
    let (kine, own) = (Kine::start(), folder());
    let proxy = Proxy::to(kine.port());
    let log = Arc::new(open(&proxy.url(), own.path()));
    log.wake_by(Arc::new(|| {}));
    let mut unknown = 0;
    for round in 0..5 {
        let many: Vec<Record> = (1..=200).map(|nth| record(nth, &format!("r{round}-{nth}"), "1", 0)).collect();
        let writer = std::thread::spawn({
            let (log, many) = (log.clone(), many.clone());
            move || commit(log.as_ref(), &many)
        });
        std::thread::sleep(Duration::from_millis(4 + 2 * round));
        proxy.close();
        let receipts = writer.join().expect("the writer");
        proxy.heal();
        let deadline = Instant::now() + PATIENCE;
        while let Err(fault) = log.recover() {
            assert!(Instant::now() < deadline, "{fault}");
            std::thread::sleep(Duration::from_millis(50));
        }
        unknown += receipts.iter().filter(|receipt| matches!(receipt, Receipt::Unknown)).count();
        let found = current(&log);
        for (record, receipt) in many.iter().zip(&receipts) {
            let is_there = found.contains(&record.key);
            match receipt {
                Receipt::At(_) => assert!(is_there, "{} was acknowledged", record.key),
                Receipt::Refused(fault) => assert!(!is_there, "{} was refused: {fault}", record.key),
                // The log has sent the write again during recovery, so it is stored now.
                Receipt::Unknown => assert!(is_there, "{} was read back", record.key),
                Receipt::Overtaken | Receipt::Taken(_) => panic!("nobody else writes {}", record.key),
            }
        }
        let stored =
            client(&kine.url()).range(&Range::of(KeyRange::between("/registry/configmaps/", "/registry/configmaps0")));
        assert_eq!(stored.expect("a range").found.len(), found.len());
        let events = log.tail(Offset(0)).unwrap();
        assert!(events.iter().all(|event| event.actor.user == "jane"), "each is this server's");
    }
    assert!(unknown > 0, "no answer got lost, so nothing was tested");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_share_a_kine() {
    let (kine, folders) = (Kine::start(), [Folder::new(), Folder::new()]);
    let etcd = format!("--etcd-servers={}", kine.url());
    let start = |nth: usize, address: &str| {
        let address = format!("--advertise-address={address}");
        Server::start(folders[nth].path(), &[&etcd, &address, "--event-ttl=3s", "--lease-reuse-duration-seconds=0"])
    };
    let servers = [start(0, "10.1.1.1"), start(1, "10.1.1.2")];
    assert!(servers[0].stderr().contains("transactions of one key"), "{}", servers[0].stderr());
    let apis = [servers[0].client().await, servers[1].client().await].map(Api::<ConfigMap>::default_namespaced);
    let map: ConfigMap = serde_json::from_value(json!({"metadata": {"name": "own"}})).expect("a map");
    apis[0]
        .create(&PostParams { field_manager: Some("maker".into()), ..PostParams::default() }, &map)
        .await
        .expect("created");
    assert!(apis[1].get_opt("own").await.expect("an answer").is_some(), "the other server has it at once");
    // Both servers change the object concurrently, many times, and no change is lost.
    let change = async |nth: usize| {
        for count in 0..10 {
            let patch = json!({"data": {format!("k{nth}-{count}"): "v"}});
            apis[nth].patch("own", &PatchParams::default(), &Patch::Merge(patch)).await.expect("patched");
        }
    };
    tokio::join!(change(0), change(1));
    for api in &apis {
        let data = api.get("own").await.expect("the map").data.expect("data");
        assert_eq!(data.len(), 20, "{data:?}");
    }
    // The servers write Events with a lease of 3 seconds, after which kine deletes the Events.
    let news = json!({"metadata": {"name": "news"}, "involvedObject": {"namespace": "default"}, "reason": "x"});
    let events: Api<Event> = Api::default_namespaced(servers[0].client().await);
    events.create(&PostParams::default(), &serde_json::from_value(news).expect("news")).await.expect("created");
    let elsewhere: Api<Event> = Api::default_namespaced(servers[1].client().await);
    eventually(PATIENCE, async || match elsewhere.get_opt("news").await.expect("an answer") {
        None => Ok(()),
        Some(_) => Err("it is still there"),
    })
    .await;
    let second: ConfigMap =
        serde_json::from_value(json!({"metadata": {"name": "second"}, "data": {"a": "b"}})).expect("a map");
    apis[1]
        .create(&PostParams { field_manager: Some("maker".into()), ..PostParams::default() }, &second)
        .await
        .expect("created");
    apis[0].delete("own", &DeleteParams::default()).await.expect("deleted");
    let left = apis[1].list(&ListParams::default()).await.expect("a list").items;
    assert!(left.iter().all(|map| map.metadata.name.as_deref() != Some("own")));
    for server in servers {
        server.stop();
    }
    // The server that wrote the object knows the user. The other server reports that it does not know the user.
    let blamed = folders.each_ref().map(|folder| {
        let path = folder.path().display().to_string();
        succeeds(holdfast(["blame", "--data-dir", &path, "configmap", "second", "-n", "default"]))
    });
    assert!(blamed[1].contains("maker") && !blamed[1].contains("another API server"), "{}", blamed[1]);
    assert!(blamed[0].contains("maker") && blamed[0].contains("another API server"), "{}", blamed[0]);
}

/// Most users of kine use SQLite. The data in SQLite is still there after kine and the server have ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_works_on_a_kine_with_sqlite() {
    let folder = Folder::new();
    let mut kine = Kine::on(&folder.join("kine.db"));
    let etcd = format!("--etcd-servers={}", kine.url());
    let options = [etcd.as_str(), "--etcd-compaction-interval=500ms"];
    let server = Server::start(&folder.join("own"), &options);
    let wire = HttpClient::admin(&server);
    let map = |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
    let patch = async |wire: &HttpClient, name: &str, value: usize| {
        let patch = json!({"data": {"x": value.to_string()}}).to_string();
        let kind = [("content-type", "application/merge-patch+json")];
        wire.send(Method::PATCH, &format!("{MAPS}/{name}"), &kind, patch).await.expect(200).json()
    };
    let version = |object: &Value| object["metadata"]["resourceVersion"].as_str().expect("a version").to_owned();
    let first = version(&wire.post(MAPS, &map("own-a")).await.expect(201).json());
    wire.post(MAPS, &map("own-b")).await.expect(201);
    wire.post(MAPS, &map("own-a")).await.refused(409, "AlreadyExists");
    let mut stale = wire.get(&format!("{MAPS}/own-a")).await.expect(200).json();
    for value in 0..50 {
        patch(&wire, "own-a", value).await;
    }
    stale["data"] = json!({"x": "stale"});
    let json = [("content-type", "application/json")];
    wire.send(Method::PUT, &format!("{MAPS}/own-a"), &json, stale.to_string()).await.refused(409, "Conflict");
    wire.send(Method::DELETE, &format!("{MAPS}/own-b"), &[], "").await.expect(200);
    let seen =
        wire.get(&format!("{MAPS}?watch=true&timeoutSeconds=1&resourceVersion={first}")).await.expect(200).text();
    let types = ["ADDED", "MODIFIED", "DELETED"];
    let counts = types.map(|kind| seen.matches(&format!("\"type\":\"{kind}\"")).count());
    assert_eq!(counts, [1, 50, 1], "{seen}");

    // Compaction leaves the newest version in kine. The server's own log still has the older versions.
    let own = Range::of(KeyRange::one("/registry/configmaps/default/own-a")).at(first.parse().expect("a number"));
    eventually(PATIENCE, async || match client(&kine.url()).range(&own) {
        Err(why) if why.to_string().contains("compacted") => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
    let then = wire.get(&format!("{MAPS}/own-a?at={first}")).await.expect(200).json();
    assert_eq!(then["data"], Value::Null);

    // kine ends and starts again: writes fail in between, and none is lost.
    kine.restart();
    eventually(PATIENCE, async || match wire.post(MAPS, &map("own-c")).await {
        answer if answer.code == 201 || answer.code == 409 => Ok(()),
        answer => Err(answer.text()),
    })
    .await;
    let last = version(&patch(&wire, "own-a", 99).await);
    server.stop();
    // Starts a server on the same folder, and one on an empty folder.
    for data in ["own", "other"] {
        let server = Server::start(&folder.join(data), &options);
        let wire = HttpClient::admin(&server);
        let found = wire.get(&format!("{MAPS}/own-a")).await.expect(200).json();
        assert_eq!((found["data"]["x"].as_str(), version(&found)), (Some("99"), last.clone()), "{data}");
        wire.get(&format!("{MAPS}/own-b")).await.refused(404, "NotFound");
        wire.get(&format!("{MAPS}/own-c")).await.expect(200);
        let now = version(&wire.get(MAPS).await.expect(200).json());
        wire.post(MAPS, &map(&format!("own-{data}"))).await.expect(201);
        let seen =
            wire.get(&format!("{MAPS}?watch=true&timeoutSeconds=1&resourceVersion={now}")).await.expect(200).text();
        assert!(seen.contains(&format!("own-{data}")) && !seen.contains("own-a"), "{seen}");
        server.stop();
    }
}

/// The engine's suite without the tests that need a second key in a transaction: decisions that depend on other
/// objects, and claims that are made only once.
mod suite {
    use super::{folder, open_at};
    use holdfast_engine::Log;
    use holdfast_engine::log::suite::shared::Backend;
    use holdfast_storage_etcd::EtcdLog;
    use holdfast_tests::etcd::Kine;
    use tempfile::TempDir;

    /// Two servers on a kine with SQLite.
    struct Servers {
        kine: Kine,
        folders: [TempDir; 2],
        logs: [Option<EtcdLog>; 2],
        _database: TempDir,
    }

    impl Backend for Servers {
        const TELLS_WHO: bool = false;

        fn fresh() -> Self {
            let database = folder();
            let kine = Kine::on(&database.path().join("kine.db"));
            let mut servers = Servers { kine, folders: [folder(), folder()], logs: [None, None], _database: database };
            (0..2).for_each(|nth| servers.start(nth, true));
            servers
        }

        fn server(&self, nth: usize) -> &dyn Log {
            self.logs[nth].as_ref().expect("a server that runs")
        }

        fn stop(&mut self, nth: usize) {
            self.logs[nth] = None;
        }

        fn start(&mut self, nth: usize, with_its_own: bool) {
            if !with_its_own {
                self.folders[nth] = folder();
            }
            self.logs[nth] = Some(open_at(&self.kine.url(), self.folders[nth].path(), "/suite"));
        }
    }

    holdfast_engine::shared_storage_suite!(Servers:
        is_empty_at_first, all_servers_read_what_one_has_written, decisions_of_a_batch_stand_alone, one_of_two_is_first,
        several_objects_of_a_decision, events_of_others_come_by_themselves, the_last_has_all_that_was_answered,
        all_servers_tell_one_history, a_restart_misses_nothing, a_lost_folder_loses_no_object,
        recovers_where_nothing_is_unknown, has_one_secret, forgets_on_one_server_alone, takes_large_objects);
}
