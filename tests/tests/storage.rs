//! Data of older releases can be read.

use holdfast_core::event::Offset;
use holdfast_engine::LogRead;
use holdfast_storage_rocks::RocksLog;
use holdfast_tests::records::{current, everything};
use holdfast_tests::wire::HttpClient;
use holdfast_tests::{Folder, Server, fixture};
use std::path::Path;

#[test]
fn a_folder_of_format_1_reads_as_it_was_written() {
    let folder = Folder::new();
    copy(&fixture::folder(), folder.path());
    let log = RocksLog::open(folder.path()).unwrap();
    let records = fixture::records();
    assert_eq!(everything(&log), records);
    assert_eq!(log.last().unwrap(), Offset(6));
    let found: Vec<u64> = current(&log).into_values().map(|record| record.offset).collect();
    assert_eq!(found, [4, 6, 1]);
    let maps: Vec<u64> = log.scan(Some("configmaps"), Offset(2), 10).unwrap().iter().map(|r| r.offset).collect();
    assert_eq!(maps, [3, 4, 5, 6]);
}

#[tokio::test]
async fn a_server_starts_on_a_folder_of_format_1() {
    let folder = Folder::new();
    copy(&fixture::folder(), folder.path());
    let server = Server::start(folder.path(), &[]);
    let admin = HttpClient::admin(&server);
    let kept = admin.get("/api/v1/namespaces/old/configmaps/kept").await.expect(200).json();
    assert_eq!(kept, serde_json::from_slice::<serde_json::Value>(&fixture::records()[3].object).unwrap());
    admin.get("/api/v1/namespaces/old/configmaps/gone").await.refused(404, "NotFound");
    // A watch from version 1 shows all later events of the old log.
    let path = "/api/v1/namespaces/old/configmaps?watch=1&resourceVersion=1&timeoutSeconds=1";
    let events = admin.get(path).await.expect(200).text();
    let types: Vec<String> = events
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .filter(|event| event["object"]["metadata"]["name"] != "kube-root-ca.crt")
        .map(|event| format!("{} {}", event["type"], event["object"]["metadata"]["name"]).replace('"', ""))
        .collect();
    assert_eq!(types, ["ADDED kept", "ADDED gone", "MODIFIED kept", "DELETED gone", "ADDED other"]);
    server.stop();
}

#[test]
fn a_folder_of_a_newer_format_is_refused() {
    let folder = Folder::new();
    copy(&fixture::folder(), folder.path());
    {
        let mut options = rocksdb::Options::default();
        options.create_missing_column_families(true);
        let names = rocksdb::DB::list_cf(&options, folder.join("log")).unwrap();
        let db = rocksdb::DB::open_cf(&options, folder.join("log"), names).unwrap();
        db.put_cf(db.cf_handle("meta").unwrap(), b"format", [2]).unwrap();
    }
    let refused = Server::try_start(folder.path(), &[]).err().expect("a refusal");
    assert_ne!(refused.status.code(), Some(0));
    assert!(refused.stderr.contains("has format 2, which a newer release wrote"), "{}", refused.stderr);
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}
