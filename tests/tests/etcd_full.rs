//! A full etcd: its answer that there is no space does not show whether the write happened, so the key is read back.

use holdfast_core::etcd::Media;
use holdfast_core::event::{Actor, Offset, Operation, Record};
use holdfast_encryption::Live;
use holdfast_engine::log::{Decision, Receipt};
use holdfast_engine::{Fault, Log, LogRead, Proposal};
use holdfast_storage_etcd::client::{
    self, Decided, Etcd, Header, KeyRange, Lease, Operation as Write, Range, RangeContent, Ranged, Status,
    Transactions, Txn, Watch,
};
use holdfast_storage_etcd::grpc::{Address, Cluster as Client};
use holdfast_storage_etcd::{EtcdLog, Kinds, Parts, Storing};
use holdfast_storage_rocks::RocksLog;
use holdfast_tests::etcd::Cluster;
use holdfast_tests::etcd::receipts::numbered;
use holdfast_tests::{Folder, Server};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The size of a large value. A few such values fill the etcd of these tests.
const LARGE: usize = 900_000;
const QUOTA: &str = "--quota-backend-bytes=16777216";

fn client(etcd: &Cluster) -> Client {
    Client::new(vec![Address::parse(&etcd.urls()).expect("an address")], None).expect("a client")
}

/// A real etcd. Some of its answers are replaced by the answers of an etcd without space.
struct Full {
    etcd: Client,
    /// The fate of the next write of an object whose key ends with this text.
    next: Mutex<Option<(&'static str, Fate)>>,
    /// How many writes of objects got the answer that there is no space.
    answered: AtomicUsize,
    cannot_be_read: Mutex<bool>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// The write happens, and the answer says that there is no space.
    Written,
    /// The write happens, and another write replaces it before it is read back.
    WrittenOver,
    /// The write happens, and cannot be read back.
    WrittenUnseen,
    NotWritten,
}

const FULL: &str = "etcdserver: mvcc: database space exceeded";

impl Etcd for Full {
    fn range(&self, asked: &Range) -> Result<Ranged, client::Fault> {
        if asked.content == RangeContent::Everything && *self.cannot_be_read.lock().unwrap() {
            return Err(client::Fault::Unreachable("the line is cut".into()));
        }
        self.etcd.range(asked)
    }

    fn transact(&self, transactions: Vec<Txn>) -> Vec<Result<Decided, client::Fault>> {
        let object = |txn: &Txn| match txn.operations.last() {
            Some(Write::Put { key, .. }) => String::from_utf8_lossy(key).into_owned(),
            _ => String::new(),
        };
        let keys: Vec<String> = transactions.iter().map(object).collect();
        let mut next = self.next.lock().unwrap();
        let fate = next.take_if(|(end, _)| keys.iter().any(|key| key.ends_with(*end)));
        drop(next);
        let Some((_, fate)) = fate else {
            let answers = self.etcd.transact(transactions);
            let full = answers.iter().filter(|answer| matches!(answer, Err(client::Fault::NoSpace(_)))).count();
            self.answered.fetch_add(full, Ordering::SeqCst);
            return answers;
        };
        self.answered.fetch_add(1, Ordering::SeqCst);
        if fate != Fate::NotWritten {
            self.etcd.transact(transactions)[0].as_ref().expect("it is written");
        }
        if fate == Fate::WrittenOver {
            let put = Write::Put { key: keys[0].clone().into(), value: "{}".into(), lease: 0 };
            self.etcd.transact(vec![Txn { operations: vec![put], ..Txn::default() }])[0].as_ref().expect("written");
        }
        *self.cannot_be_read.lock().unwrap() = fate == Fate::WrittenUnseen;
        vec![Err(client::Fault::NoSpace(FULL.into()))]
    }

    fn watch(&self, keys: &KeyRange, from_revision: u64) -> Result<Box<dyn Watch>, client::Fault> {
        self.etcd.watch(keys, from_revision)
    }

    fn compact(&self, revision: u64) -> Result<Header, client::Fault> {
        self.etcd.compact(revision)
    }

    fn grant(&self, seconds: u64) -> Result<Lease, client::Fault> {
        self.etcd.grant(seconds)
    }

    fn status(&self) -> Vec<(String, Result<Status, client::Fault>)> {
        self.etcd.status()
    }
}

fn open(etcd: &Cluster, folder: &Path) -> (EtcdLog, Arc<Full>) {
    let full = Arc::new(Full {
        etcd: client(etcd),
        next: Mutex::default(),
        answered: AtomicUsize::default(),
        cannot_be_read: Mutex::default(),
    });
    let parts = Parts {
        etcd: full.clone(),
        local: Arc::new(RocksLog::open(folder).expect("a local log")),
        prefix: "/registry".into(),
        kinds: Kinds::All,
        transactions: Transactions::Full,
        claims: None,
        keys: Live::none(),
        storing: Storing { media: Media::Protobuf, release: 35, news_ttl: None, lease_reuse: Duration::from_secs(60) },
        tells_progress: true,
        accepts_restored: false,
    };
    let log = EtcdLog::open(parts).expect("open the log");
    log.wake_by(Arc::new(|| {}));
    (log, full)
}

fn config_map(offset: u64, name: &str, value: &str) -> Record {
    let object = format!(
        "{{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{{\"creationTimestamp\":\"2026-01-02T03:04:05Z\",\
         \"name\":\"{name}\",\"namespace\":\"a\",\"resourceVersion\":\"{offset}\",\"uid\":\"u-{name}\"}},\
         \"data\":{{\"x\":\"{value}\"}}}}\n"
    );
    Record {
        offset,
        time_ms: 1_795_000_000_000,
        resource: "configmaps".into(),
        key: format!("a/{name}"),
        replaces: 0,
        operation: Operation::Put as i32,
        actor: Actor { user: "jane".into(), ..Actor::default() },
        object: object.into(),
    }
}

fn commit(log: &dyn Log, records: &[Record]) -> Vec<Receipt> {
    let decision = |nth| Decision { records: nth..nth + 1, expects: Vec::new(), claims: Vec::new(), had: Vec::new() };
    let each = || (0..records.len()).map(decision).collect();
    numbered(log.commit(&Proposal::new(records, &each)).expect("commit"))
}

fn is_full(receipt: &Receipt) -> bool {
    matches!(receipt, Receipt::Refused(Fault::Full { .. }))
}

#[test]
fn what_came_of_a_write_without_room_is_read_back() {
    let (etcd, folder) = (Cluster::single(), Folder::new());
    let (log, full) = open(&etcd, folder.path());
    let answer = |name: &'static str, fate| {
        *full.next.lock().unwrap() = Some((name, fate));
        let mut receipts = commit(&log, &[config_map(1, name, "1")]);
        assert_eq!(*full.next.lock().unwrap(), None, "{name} was sent");
        receipts.remove(0)
    };
    let has = |name: &str| log.tail(Offset(0)).unwrap().iter().any(|record| record.key == format!("a/{name}"));
    match answer("written", Fate::Written) {
        Receipt::At(offsets) => assert_eq!(log.read(offsets[0]).unwrap().expect("its event").key, "a/written"),
        other => panic!("it is written: {other:?}"),
    }
    let refused = answer("refused", Fate::NotWritten);
    assert!(is_full(&refused) && !has("refused"), "{refused:?}");
    // If the value was replaced or cannot be read, a read does not show whether the write happened; only the log's tail
    // shows it.
    for (name, fate) in [("over", Fate::WrittenOver), ("unseen", Fate::WrittenUnseen)] {
        let unknown = answer(name, fate);
        assert!(matches!(unknown, Receipt::Unknown), "{name}: {unknown:?}");
        *full.cannot_be_read.lock().unwrap() = false;
        log.recover().expect("recover");
        assert!(has(name), "{name} is in the log");
    }
}

/// Real answers: of many large writes at once, some are refused before they are written, and some are written although
/// the answer says that there is no space.
#[test]
fn a_real_full_etcd_has_what_was_acknowledged_and_nothing_that_was_refused() {
    const CLUSTERS: usize = 4;
    let (mut read_back, mut refused) = (0, 0);
    for _ in 0..CLUSTERS {
        let (etcd, folder) = (Cluster::start("3.6", 1, &[QUOTA]), Folder::new());
        let (log, full) = open(&etcd, folder.path());
        let large = "x".repeat(LARGE);
        let records: Vec<Record> = (1..=40).map(|nth| config_map(nth, &format!("c{nth}"), &large)).collect();
        let mut receipts = Vec::new();
        for records in records.chunks(20) {
            receipts.extend(commit(&log, records));
        }
        let raw = client(&etcd);
        for (record, receipt) in records.iter().zip(&receipts) {
            let key = format!("/registry/configmaps/{}", record.key);
            let found =
                raw.range(&Range::of(KeyRange::one(key)).only(RangeContent::WithoutValues)).expect("a read").found;
            match receipt {
                Receipt::At(offsets) => assert_eq!(found[0].mod_revision, offsets[0].0, "{}", record.key),
                receipt => {
                    assert!(is_full(receipt), "{receipt:?}");
                    assert!(found.is_empty(), "{} was refused, and is there", record.key);
                }
            }
        }
        let full_ones = receipts.iter().filter(|receipt| is_full(receipt)).count();
        refused += full_ones;
        read_back += full.answered.load(Ordering::SeqCst) - full_ones;
    }
    println!("{refused} were refused; {read_back} were written and answered as if they were not");
    assert!(refused > 0, "etcd was not full");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_of_a_full_etcd_are_told_what_is_so() {
    const WRITERS: usize = 24;
    // etcd checks its size before each write, so all writes of one round may fit.
    const ROUNDS_MAX: usize = 10;
    let (etcd, folder) = (Cluster::start("3.6", 1, &[QUOTA]), Folder::new());
    let server = Server::start(folder.path(), &["--etcd-servers", &etcd.urls()]);
    let client = server.client().await;
    let large = "x".repeat(LARGE);
    let write = |nth: usize| {
        let (client, large) = (client.clone(), large.clone());
        tokio::spawn(async move {
            let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("c{nth}")},
                "data": {"x": large}});
            let request = http::Request::post("/api/v1/namespaces/default/configmaps")
                .header("content-type", "application/json")
                .body(map.to_string().into_bytes());
            match client.request::<Value>(request.expect("a request")).await {
                Ok(_) => 201,
                Err(kube::Error::Api(status)) => status.code,
                Err(other) => panic!("{other}"),
            }
        })
    };
    let mut codes = Vec::new();
    while !codes.contains(&507) && codes.len() < ROUNDS_MAX * WRITERS {
        let round: Vec<_> = (codes.len()..codes.len() + WRITERS).map(write).collect();
        for write in round {
            codes.push(write.await.expect("a writer"));
        }
    }
    assert!(codes.contains(&507) && codes.contains(&201), "{codes:?}");
    let stored = etcd.ctl(&["get", "/registry/configmaps/default/", "--prefix", "--keys-only"]);
    let stored: Vec<&str> = stored.lines().collect();
    for (nth, code) in codes.iter().enumerate() {
        let is_there = stored.contains(&format!("/registry/configmaps/default/c{nth}").as_str());
        assert_eq!((is_there, *code), (*code == 201, if is_there { 201 } else { 507 }), "c{nth}");
    }
}
