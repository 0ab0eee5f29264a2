//! The log on a real etcd: its writes, the events that it receives from other servers, and the suite that every log
//! must pass.

use holdfast_core::etcd::Media;
use holdfast_core::event::{Actor, Offset, Operation, Record};
use holdfast_encryption::Live;
use holdfast_engine::log::{Decision, Expected, Receipt};
use holdfast_engine::{Log, LogRead, Proposal};
use holdfast_storage_etcd::client::{
    Decided, Etcd, Fault, Header, KeyRange, Lease, Range, Ranged, Status, Txn, Watch, Watched,
};
use holdfast_storage_etcd::grpc::{Address, Cluster as Client};
use holdfast_storage_etcd::{EtcdLog, Kinds, Parts, Storing, Transactions};
use holdfast_storage_rocks::RocksLog;
use holdfast_tests::etcd::Cluster;
use holdfast_tests::etcd::receipts::{at, numbered};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

fn open(etcd: &Cluster, folder: &Path) -> EtcdLog {
    try_open(etcd, folder).expect("open the log")
}

fn client(etcd: &Cluster) -> Client {
    let addresses = etcd.urls().split(',').map(|url| Address::parse(url).expect("an address")).collect();
    Client::new(addresses, None).expect("a client")
}

fn try_open(etcd: &Cluster, folder: &Path) -> Result<EtcdLog, String> {
    open_on(Arc::new(client(etcd)), folder)
}

fn open_on(etcd: Arc<dyn Etcd>, folder: &Path) -> Result<EtcdLog, String> {
    EtcdLog::open(parts(etcd, folder, "/registry")).map_err(|fault| fault.to_string())
}

fn parts(etcd: Arc<dyn Etcd>, folder: &Path, prefix: &str) -> Parts {
    Parts {
        etcd,
        local: Arc::new(RocksLog::open(folder).expect("a local log")),
        prefix: prefix.into(),
        kinds: Kinds::All,
        storing: storing(),
        keys: Live::none(),
        transactions: Transactions::Full,
        claims: None,
        tells_progress: true,
        accepts_restored: false,
    }
}

fn storing() -> Storing {
    Storing { media: Media::Protobuf, release: 36, news_ttl: None, lease_reuse: Duration::from_secs(60) }
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder")
}

fn config_map(offset: u64, name: &str, value: &str, replaces: u64) -> Record {
    let object = format!(
        "{{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{{\"creationTimestamp\":\"2026-01-02T03:04:05Z\",\
         \"name\":\"{name}\",\"namespace\":\"a\",\"resourceVersion\":\"{offset}\",\"uid\":\"u-{name}\"}},\
         \"data\":{{\"x\":\"{value}\"}}}}\n"
    );
    Record {
        offset,
        time_ms: 1_795_000_000_000 + offset as i64,
        resource: "configmaps".into(),
        key: format!("a/{name}"),
        replaces,
        operation: Operation::Put as i32,
        actor: Actor { user: "jane".into(), manager: "kubectl".into(), verb: "update".into(), ..Actor::default() },
        object: object.into(),
    }
}

fn deleted(record: Record) -> Record {
    Record { operation: Operation::Delete as i32, ..record }
}

/// Commits records, each as a decision of its own.
fn commit(log: &dyn Log, records: &[Record]) -> Vec<Receipt> {
    let each = || (0..records.len()).map(|nth| decision(nth..nth + 1)).collect();
    numbered(log.commit(&Proposal::new(records, &each)).expect("commit"))
}

fn decision(records: std::ops::Range<usize>) -> Decision {
    Decision { records, expects: Vec::new(), claims: Vec::new(), had: Vec::new() }
}

/// The record without values that etcd sets.
fn bare(record: &Record) -> (String, String, bool, Actor, i64, String) {
    let object = String::from_utf8_lossy(&record.object).into_owned();
    let object = object.replace(&format!("\"resourceVersion\":\"{}\"", record.offset), "");
    (record.resource.clone(), record.key.clone(), record.is_delete(), record.actor.clone(), record.time_ms, object)
}

fn await_events(log: &dyn Log, after: u64, count: usize) -> Vec<Record> {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let found = log.tail(Offset(after)).expect("the tail");
        if found.len() >= count {
            return found;
        }
        assert!(Instant::now() < deadline, "{} of {count} events came", found.len());
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn decisions_are_transactions_and_every_server_has_their_events() {
    let (etcd, folders) = (Cluster::single(), [folder(), folder()]);
    let logs = folders.each_ref().map(|folder| open(&etcd, folder.path()));
    logs.iter().for_each(|log| log.wake_by(Arc::new(|| {})));
    assert_eq!(logs[0].secret().unwrap(), logs[1].secret().unwrap());
    let many: Vec<Record> = (1..=200).map(|nth| config_map(nth, &format!("c{nth}"), "1", 0)).collect();
    let receipts = commit(&logs[0], &many);
    for (nth, record) in many.iter().enumerate() {
        let offset = at(&receipts, nth);
        for log in &logs {
            // A caller that reads the log's end gets all events that were acknowledged earlier.
            assert!(log.last().unwrap() >= Offset(offset));
            let found = log.read(Offset(offset)).unwrap().expect("the event");
            assert_eq!(bare(&found), bare(record));
            assert!(String::from_utf8_lossy(&found.object).contains(&format!("\"resourceVersion\":\"{offset}\"")));
        }
    }
    // Both logs update the same version of an object, and etcd accepts only one of the two updates.
    let first = at(&receipts, 0);
    let updates = logs.each_ref().map(|log| commit(log, &[config_map(900, "c1", "2", first)]));
    assert_eq!(updates.iter().filter(|receipts| matches!(receipts[0], Receipt::At(_))).count(), 1, "{updates:?}");
    assert_eq!(updates.iter().filter(|receipts| matches!(receipts[0], Receipt::Overtaken)).count(), 1, "{updates:?}");
    // The decision relies on version 7 of a namespace. No namespace has this version, so the decision is refused as
    // overtaken.
    let expected = Expected { resource: "namespaces".into(), key: "a".into(), version: Some(Offset(7)) };
    let counts = || vec![Decision { expects: vec![expected.clone()], ..decision(0..1) }];
    let refused = logs[0].commit(&Proposal::new(&[config_map(901, "new", "1", 0)], &counts)).unwrap();
    assert!(matches!(numbered(refused)[0], Receipt::Overtaken));
    // The object is stored in kube-apiserver's format and under its key, so kube-apiserver can read the object.
    let raw = client(&etcd).range(&Range::of(KeyRange::one("/registry/configmaps/a/c2"))).expect("a range").found;
    let (value, text) = (&raw[0].value, String::from_utf8_lossy(&raw[0].value).into_owned());
    assert!(value.starts_with(b"k8s\0") && text.contains("ConfigMap") && !text.contains("kubectl"), "{text}");
}

/// An etcd whose first watch delivers nothing, as over a connection that was cut silently.
struct Silent {
    etcd: Client,
    watches: AtomicUsize,
}

struct SilentWatch;

impl Watch for SilentWatch {
    fn next(&mut self, patience: Duration) -> Result<Option<Watched>, Fault> {
        std::thread::sleep(patience);
        Ok(None)
    }

    fn ask_progress(&mut self) -> Result<(), Fault> {
        Ok(())
    }
}

impl Etcd for Silent {
    fn range(&self, asked: &Range) -> Result<Ranged, Fault> {
        self.etcd.range(asked)
    }

    fn transact(&self, transactions: Vec<Txn>) -> Vec<Result<Decided, Fault>> {
        self.etcd.transact(transactions)
    }

    fn watch(&self, keys: &KeyRange, from_revision: u64) -> Result<Box<dyn Watch>, Fault> {
        match self.watches.fetch_add(1, Ordering::SeqCst) {
            0 => Ok(Box::new(SilentWatch)),
            _ => self.etcd.watch(keys, from_revision),
        }
    }

    fn compact(&self, revision: u64) -> Result<Header, Fault> {
        self.etcd.compact(revision)
    }

    fn grant(&self, seconds: u64) -> Result<Lease, Fault> {
        self.etcd.grant(seconds)
    }

    fn status(&self) -> Vec<(String, Result<Status, Fault>)> {
        self.etcd.status()
    }
}

#[test]
fn a_watch_that_says_nothing_is_opened_anew_before_anybody_is_refused() {
    let (etcd, folders) = (Cluster::single(), [folder(), folder()]);
    let silent = Arc::new(Silent { etcd: client(&etcd), watches: AtomicUsize::new(0) });
    let (log, other) = (open_on(silent.clone(), folders[0].path()).expect("open"), open(&etcd, folders[1].path()));
    [&log, &other].iter().for_each(|log| log.wake_by(Arc::new(|| {})));
    let written = at(&commit(&other, &[config_map(1, "c", "1", 0)]), 0);
    assert!(log.last().expect("the newest version") >= Offset(written));
    assert!(silent.watches.load(Ordering::SeqCst) >= 2);
}

#[test]
fn an_object_is_marked_and_deleted_by_one_decision_and_what_it_counts_on_comes_first() {
    let (etcd, own) = (Cluster::single(), folder());
    let log = open(&etcd, own.path());
    let created = at(&commit(&log, &[config_map(1, "c", "1", 0)]), 0);
    let records = [
        config_map(created + 1, "c", "going", created),
        deleted(config_map(created + 2, "c", "going", created + 1)),
        config_map(created + 3, "quota", "1", 0),
    ];
    let receipts = numbered(log.commit(&Proposal::new(&records, &|| vec![decision(0..3)])).unwrap());
    let Receipt::At(offsets) = &receipts[0] else { panic!("{receipts:?}") };
    assert!(offsets[2] < offsets[0] && offsets[0] < offsets[1], "{offsets:?}");
    let told: Vec<(String, bool)> =
        log.tail(Offset(created)).unwrap().iter().map(|record| (record.key.clone(), record.is_delete())).collect();
    assert_eq!(told, [("a/quota".into(), false), ("a/c".into(), false), ("a/c".into(), true)]);
}

#[test]
fn a_restart_asks_for_what_came_since_and_without_the_folder_for_everything() {
    let (etcd, own) = (Cluster::single(), folder());
    let log = open(&etcd, own.path());
    let receipts = commit(&log, &[config_map(1, "kept", "1", 0), config_map(2, "gone", "1", 0)]);
    drop(log);
    // While this log is closed, another server changes objects in etcd.
    etcd.ctl(&["put", "/registry/configmaps/a/theirs", r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"theirs","namespace":"a","managedFields":[{"manager":"helm","time":"2026-01-02T03:04:05Z"}]}}"#]);
    etcd.ctl(&["del", "/registry/configmaps/a/gone"]);
    etcd.ctl(&["put", "/registry/configmaps/a/broken", "{"]);
    let log = open(&etcd, own.path());
    // The two writes were concurrent, so either may be the first.
    let last = at(&receipts, 0).max(at(&receipts, 1));
    let found = log.tail(Offset(last)).unwrap();
    assert_eq!(found.iter().map(|record| record.key.as_str()).collect::<Vec<_>>(), ["a/theirs", "a/gone"]);
    assert_eq!((found[0].actor.manager.as_str(), found[1].is_delete()), ("helm", true));
    drop(log);
    let (other, fresh) = (folder(), |log: &EtcdLog| {
        let mut found = Vec::new();
        log.current(&mut |record| {
            found.push((record.key, record.offset));
            Ok(())
        })
        .unwrap();
        found.sort();
        found
    });
    let log = open(&etcd, other.path());
    assert_eq!(fresh(&log).iter().map(|(key, _)| key.as_str()).collect::<Vec<_>>(), ["a/kept", "a/theirs"]);
    assert!(log.oldest().unwrap() > Offset(fresh(&log)[1].1), "what was before is not there, and it says so");
    // After a compaction all objects are read at one revision: objects deleted in etcd are deleted here, too.
    drop(log);
    etcd.ctl(&["del", "/registry/configmaps/a/kept"]);
    etcd.ctl(&[
        "put",
        "/registry/configmaps/a/late",
        r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"late","namespace":"a"}}"#,
    ]);
    let revision = etcd.ctl(&["get", "/x", "-w", "json"]);
    let revision = revision.split("\"revision\":").nth(1).unwrap().split(',').next().unwrap().to_owned();
    etcd.ctl(&["compact", &revision]);
    for folder in [&own, &other] {
        let log = open(&etcd, folder.path());
        assert_eq!(fresh(&log).iter().map(|(key, _)| key.as_str()).collect::<Vec<_>>(), ["a/late", "a/theirs"]);
        assert!(log.oldest().unwrap().0.to_string() >= revision, "{} and {revision}", log.oldest().unwrap());
    }
    // A folder with events of one etcd cluster is refused on another etcd cluster.
    let refusal = try_open(&Cluster::single(), own.path()).err().expect("another cluster");
    assert!(refusal.contains("the etcd cluster has the id"), "{refusal}");
}

#[test]
fn events_of_one_revision_come_one_after_the_other() {
    let (etcd, own) = (Cluster::single(), folder());
    let log = open(&etcd, own.path());
    log.wake_by(Arc::new(|| {}));
    let last = log.last().unwrap().0;
    let lease = etcd.ctl(&["lease", "grant", "600"]);
    let lease = lease.split_whitespace().nth(1).unwrap();
    for nth in 0..5 {
        let event = format!(
            r#"{{"apiVersion":"v1","kind":"Event","metadata":{{"name":"e{nth}","namespace":"a"}},"involvedObject":{{}}}}"#
        );
        etcd.ctl(&["put", &format!("/registry/events/a/e{nth}"), &event, &format!("--lease={lease}")]);
    }
    etcd.ctl(&["lease", "revoke", lease]);
    let found = await_events(&log, last, 10);
    assert!(found[..5].iter().all(|record| !record.is_delete()) && found[5..].iter().all(Record::is_delete));
    assert!(found.windows(2).all(|pair| pair[0].offset < pair[1].offset));
    let mut gone: Vec<&str> = found[5..].iter().map(|record| record.key.as_str()).collect();
    gone.sort_unstable();
    assert_eq!(gone, ["a/e0", "a/e1", "a/e2", "a/e3", "a/e4"]);
    // After the lease was revoked, which deleted the Events, the log still accepts writes.
    let written = at(&commit(&log, &[config_map(1, "after", "1", 0)]), 0);
    assert!(log.last().unwrap() >= Offset(written));
}

#[test]
fn what_came_of_a_write_is_read_back_when_etcd_was_killed() {
    let (mut etcd, own) = (Cluster::single(), folder());
    let log = Arc::new(open(&etcd, own.path()));
    log.wake_by(Arc::new(|| {}));
    let mut written = 0;
    for round in 0..5 {
        let writer = std::thread::spawn({
            let log = log.clone();
            move || {
                let many: Vec<Record> =
                    (1..=400).map(|nth| config_map(nth, &format!("r{round}-{nth}"), "1", 0)).collect();
                log.commit(&Proposal::new(&many, &|| (0..many.len()).map(|nth| decision(nth..nth + 1)).collect()))
            }
        });
        std::thread::sleep(Duration::from_millis(15));
        etcd.member(0).kill();
        let outcome = writer.join().expect("the writer");
        etcd.member(0).restart();
        etcd.await_ready(0);
        let deadline = Instant::now() + Duration::from_secs(60);
        while let Err(fault) = log.recover() {
            assert!(Instant::now() < deadline, "{fault}");
            std::thread::sleep(Duration::from_millis(50));
        }
        // After the recovery, the log has as many objects as etcd.
        let stored = etcd.ctl(&["get", "/registry/configmaps/", "--prefix", "--keys-only"]);
        let stored: Vec<&str> = stored.lines().filter(|line| !line.is_empty()).collect();
        let mut current = 0;
        log.current(&mut |_| {
            current += 1;
            Ok(())
        })
        .unwrap();
        assert_eq!(current, stored.len());
        let receipts = outcome.map(numbered).unwrap_or_default();
        written += receipts.iter().filter(|receipt| matches!(receipt, Receipt::At(_))).count();
        assert!(stored.len() >= written, "{} of {written} acknowledged", stored.len());
    }
}

mod suite {
    use super::{client, folder, parts};
    use holdfast_engine::Log;
    use holdfast_engine::log::suite::shared::Backend;
    use holdfast_storage_etcd::EtcdLog;
    use holdfast_tests::etcd::shared::cluster;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tempfile::TempDir;

    /// Two servers that share one prefix of the etcd of all tests.
    struct Servers {
        prefix: String,
        folders: [TempDir; 2],
        logs: [Option<EtcdLog>; 2],
    }

    impl Backend for Servers {
        fn fresh() -> Self {
            static MADE: AtomicUsize = AtomicUsize::new(0);
            let prefix = format!("/suite-{}", MADE.fetch_add(1, Ordering::Relaxed));
            let mut servers = Servers { prefix, folders: [folder(), folder()], logs: [None, None] };
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
            let parts = parts(Arc::new(client(cluster())), self.folders[nth].path(), &self.prefix);
            self.logs[nth] = Some(EtcdLog::open(parts).expect("open the log"));
        }
    }

    holdfast_engine::shared_storage_suite!(Servers);
}
