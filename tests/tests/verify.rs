//! `holdfast log verify` finds faults: each is made in an intact log, and must be named.

use holdfast_core::event::{Offset, Operation, Record};
use holdfast_engine::{Log, LogRead};
use holdfast_storage_rocks::RocksLog;
use holdfast_tests::Folder;
use holdfast_tests::server::holdfast;
use rocksdb::{DB, Options};
use serde_json::Value;
use std::path::Path;

fn event(offset: u64, name: &str, replaces: u64, operation: Operation) -> Record {
    let object = format!(
        "{{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{{\"name\":\"{name}\",\"namespace\":\"default\",\
         \"resourceVersion\":\"{offset}\"}}}}\n"
    );
    Record {
        offset,
        time_ms: 1_795_000_000_000 + offset as i64,
        resource: "configmaps".into(),
        key: format!("default/{name}"),
        replaces,
        operation: operation as i32,
        object: object.into(),
        ..Record::default()
    }
}

fn log() -> Vec<Record> {
    use Operation::{Delete, Put};
    vec![
        event(1, "a", 0, Put),
        event(2, "b", 0, Put),
        event(3, "a", 1, Put),
        event(4, "c", 0, Put),
        event(5, "c", 4, Delete),
        event(6, "a", 3, Put),
        event(7, "c", 0, Put),
        event(8, "b", 2, Delete),
    ]
}

fn written(folder: &Path, records: &[Record]) {
    RocksLog::open(folder).expect("a log").append(records).expect("written");
}

/// Changes the RocksDB store of a log in a way in which no release changes it.
fn tamper(folder: &Path, work: impl FnOnce(&DB)) {
    let options = Options::default();
    let names = DB::list_cf(&options, folder.join("log")).expect("families");
    work(&DB::open_cf(&options, folder.join("log"), names).expect("the store"));
}

fn verify(folder: &Path) -> (bool, Value, String) {
    let output = holdfast(["log", "verify", "--json", "--data-dir", folder.to_str().expect("UTF-8")]);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.success(), serde_json::from_slice(&output.stdout).unwrap_or_default(), stderr)
}

#[track_caller]
fn finds(folder: &Path, problem: &str) {
    let (intact, verdict, stderr) = verify(folder);
    assert!(!intact, "{verdict}");
    assert!(stderr.contains(problem), "{problem:?} is not in: {stderr}");
    assert!(stderr.contains("from a backup") || stderr.contains("newer one"), "{stderr}");
    if !verdict.is_null() {
        assert_eq!(verdict["intact"], false, "{verdict}");
        assert!(verdict["problems"].to_string().contains(&problem.replace('"', "\\\"")), "{verdict}");
    }
}

#[test]
fn an_intact_log_is_intact_with_all_that_was_let_go() {
    let folder = Folder::new();
    written(folder.path(), &log());
    let (intact, whole, stderr) = verify(folder.path());
    assert!(intact, "{stderr}");
    assert_eq!((&whole["events"], &whole["objects"], &whole["oldest"]), (&8.into(), &2.into(), &0.into()));
    for through in 1..=8 {
        RocksLog::open(folder.path()).expect("a log").forget(Offset(through)).expect("let go");
        let (intact, verdict, stderr) = verify(folder.path());
        assert!(intact, "{through}: {stderr}");
        assert_eq!((&verdict["digest"], &verdict["oldest"]), (&whole["digest"], &through.into()));
        assert_eq!(verdict["last"], 8);
    }
    let (_, verdict, _) = verify(folder.path());
    assert_eq!(verdict["events"], 3, "two objects, and the deletion that the log begins with: {verdict}");
    let text = holdfast(["log", "verify", "--data-dir", folder.path().to_str().unwrap()]);
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(text.contains("old history up to event 8 was removed") && text.contains("the log is intact"), "{text}");
}

#[test]
fn gaps_are_found() {
    let folder = Folder::new();
    written(folder.path(), &log());
    tamper(folder.path(), |db| db.delete_cf(db.cf_handle("events").unwrap(), 4u64.to_be_bytes()).unwrap());
    finds(folder.path(), "events 4 to 4 are missing");
    // A missing event after the beginning of the kept history is reported as well. A missing event before that
    // beginning is not reported.
    let folder = Folder::new();
    written(folder.path(), &log());
    RocksLog::open(folder.path()).expect("a log").forget(Offset(5)).expect("let go");
    assert!(verify(folder.path()).0);
    tamper(folder.path(), |db| db.delete_cf(db.cf_handle("events").unwrap(), 7u64.to_be_bytes()).unwrap());
    finds(folder.path(), "events 7 to 7 are missing");
}

#[test]
fn damaged_records_are_found() {
    for (nth, change) in [(4usize, b'x'), (9, b'\0'), (40, b'~')] {
        let folder = Folder::new();
        written(folder.path(), &log());
        tamper(folder.path(), |db| {
            let events = db.cf_handle("events").unwrap();
            let mut bytes = db.get_cf(events, 6u64.to_be_bytes()).unwrap().unwrap();
            bytes[nth] = change;
            db.put_cf(events, 6u64.to_be_bytes(), bytes).unwrap();
        });
        finds(folder.path(), "the log's event 6 is damaged: its checksum is");
    }
    let folder = Folder::new();
    written(folder.path(), &log());
    tamper(folder.path(), |db| {
        let events = db.cf_handle("events").unwrap();
        let other = db.get_cf(events, 3u64.to_be_bytes()).unwrap().unwrap();
        db.put_cf(events, 6u64.to_be_bytes(), other).unwrap();
    });
    finds(folder.path(), "event 6 is damaged: its body cannot be read: it says it is event 3");
    let folder = Folder::new();
    written(folder.path(), &log());
    tamper(folder.path(), |db| {
        let events = db.cf_handle("events").unwrap();
        let mut bytes = db.get_cf(events, 6u64.to_be_bytes()).unwrap().unwrap();
        bytes[0] = 9;
        db.put_cf(events, 6u64.to_be_bytes(), bytes).unwrap();
    });
    finds(folder.path(), "the record has format 9, which a newer release wrote");
    // No command may drop an event of a newer format, so each command fails.
    for command in [&["log", "repair"][..], &["log", "export"], &["up", "--port", "0"]] {
        let output = holdfast([command, &["--data-dir", folder.path().to_str().unwrap()]].concat());
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && stderr.contains("has format 9, which a newer release wrote"), "{stderr}");
    }
    let repaired = holdfast(["log", "repair", "--data-dir", folder.join("none").to_str().unwrap()]);
    assert!(String::from_utf8_lossy(&repaired.stderr).contains("holds no Holdfast log"), "{repaired:?}");
    assert!(!folder.join("none").exists());
}

#[test]
fn events_that_do_not_follow_are_found() {
    for (offset, replaces, problem) in [
        (6, 1, "event 6 replaces event 1 of configmaps/default/a, whose newest was 3"),
        (6, 0, "event 6 replaces event 0 of configmaps/default/a, whose newest was 3"),
        (7, 5, "event 7 replaces event 5 of configmaps/default/c, whose newest was 0"),
    ] {
        let folder = Folder::new();
        let mut records = log();
        records[offset - 1].replaces = replaces;
        written(folder.path(), &records);
        finds(folder.path(), problem);
    }
    for (object, problem) in [("{\"kind\":", "event 6 is not JSON"), ("", "event 6 is not JSON")] {
        let folder = Folder::new();
        let mut records = log();
        records[5].object = object.into();
        written(folder.path(), &records);
        let (intact, _, stderr) = verify(folder.path());
        assert!(!intact && stderr.contains(problem), "{stderr}");
    }
}

#[test]
fn what_is_served_and_does_not_follow_is_found() {
    let current = |name: &str| format!("/registry/configmaps/default/{name}");
    for (name, offset, problem) in [
        ("a", Some(3u64), "configmaps/default/a is version 6 in the log and is served as version 3"),
        ("c", None, "configmaps/default/c is in the log, and not served"),
        ("b", Some(2), "configmaps/default/b is served, and the log does not lead to it"),
    ] {
        let folder = Folder::new();
        written(folder.path(), &log());
        tamper(folder.path(), |db| {
            let family = db.cf_handle("current").unwrap();
            match offset {
                Some(offset) => db.put_cf(family, current(name), offset.to_be_bytes()).unwrap(),
                None => db.delete_cf(family, current(name)).unwrap(),
            }
        });
        finds(folder.path(), problem);
    }
    let folder = Folder::new();
    written(folder.path(), &log());
    tamper(folder.path(), |db| {
        db.put_cf(db.cf_handle("current").unwrap(), current("a"), 99u64.to_be_bytes()).unwrap();
    });
    let (intact, _, stderr) = verify(folder.path());
    assert!(!intact && stderr.contains("event 99 is pointed at, and is not there"), "{stderr}");
}

#[test]
fn a_repaired_log_is_the_same_log() {
    let folder = Folder::new();
    let log = RocksLog::open(folder.path()).expect("a log");
    log.append(&self::log()).expect("written");
    log.forget(Offset(3)).expect("let go");
    let (identity, secret) = (log.identity().expect("its id"), log.secret().expect("its secret"));
    drop(log);
    tamper(folder.path(), |db| {
        let events = db.cf_handle("events").unwrap();
        let mut bytes = db.get_cf(events, 6u64.to_be_bytes()).unwrap().unwrap();
        bytes[40] = b'~';
        db.put_cf(events, 6u64.to_be_bytes(), bytes).unwrap();
    });
    let repaired = holdfast(["log", "repair", "--data-dir", folder.path().to_str().unwrap()]);
    assert!(repaired.status.success(), "{repaired:?}");
    let log = RocksLog::open(folder.path()).expect("a log");
    assert_eq!((log.identity().expect("its id"), log.secret().expect("its secret")), (identity, secret));
    assert_eq!(log.oldest().expect("its beginning"), Offset(3), "what was let go is not there again");
    drop(log);
    let (intact, verdict, stderr) = verify(folder.path());
    assert!(intact, "{verdict} {stderr}");
}
