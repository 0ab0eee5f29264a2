//! Every log behind the engine passes the same suite; and what older releases wrote is still read.

use holdfast_core::event::Offset;
use holdfast_engine::LogRead;
use holdfast_storage_rocks::RocksLog;
use holdfast_tests::storage_suite::{current, everything};
use holdfast_tests::wire::Wire;
use holdfast_tests::{Folder, Server, fixture};
use std::path::Path;

mod memory {
    use holdfast_core::event::Record;
    use holdfast_engine::Log;
    use holdfast_engine::memory::MemoryLog;
    use holdfast_tests::storage_suite::Backend;

    #[derive(Default)]
    struct Memory(MemoryLog);

    impl Backend for Memory {
        fn fresh() -> Self {
            Memory::default()
        }

        fn log(&self) -> &dyn Log {
            &self.0
        }

        fn reopened(self) -> Self {
            Memory(self.0.survivor())
        }

        fn append_as_other(&self, records: &[Record]) -> bool {
            self.0.append_as_other(records);
            true
        }
    }

    holdfast_tests::storage_suite!(Memory);
}

mod volatile {
    use holdfast_engine::Log;
    use holdfast_engine::volatile::VolatileLog;
    use holdfast_tests::storage_suite::Backend;

    /// Nothing survives its process, so that to reopen it is to go on with it.
    #[derive(Default)]
    struct Volatile(VolatileLog);

    impl Backend for Volatile {
        fn fresh() -> Self {
            Volatile::default()
        }

        fn log(&self) -> &dyn Log {
            &self.0
        }

        fn reopened(self) -> Self {
            self
        }
    }

    holdfast_tests::storage_suite!(Volatile);
}

mod forked {
    use holdfast_core::event::Offset;
    use holdfast_engine::Log;
    use holdfast_engine::forked::{ForkedLog, Room};
    use holdfast_engine::volatile::VolatileLog;
    use holdfast_tests::storage_suite::Backend;
    use std::sync::Arc;

    /// A fork of a log without events. It goes with its process, too.
    struct Forked(ForkedLog);

    impl Backend for Forked {
        fn fresh() -> Self {
            let name = ("a fork".to_owned(), rand::random());
            Forked(ForkedLog::new(Arc::new(VolatileLog::default()), Offset::ZERO, None, name, Room::new(u64::MAX)))
        }

        fn log(&self) -> &dyn Log {
            &self.0
        }

        fn reopened(self) -> Self {
            self
        }
    }

    holdfast_tests::storage_suite!(Forked);
}

mod rocks {
    use holdfast_engine::Log;
    use holdfast_storage_rocks::RocksLog;
    use holdfast_tests::Folder;
    use holdfast_tests::storage_suite::Backend;

    struct Rocks {
        log: RocksLog,
        folder: Folder,
    }

    impl Rocks {
        fn open(folder: Folder) -> Rocks {
            Rocks { log: RocksLog::open(folder.path()).expect("open the log"), folder }
        }
    }

    impl Backend for Rocks {
        fn fresh() -> Self {
            Rocks::open(Folder::new())
        }

        fn log(&self) -> &dyn Log {
            &self.log
        }

        fn reopened(self) -> Self {
            let Rocks { log, folder } = self;
            drop(log);
            Rocks::open(folder)
        }
    }

    holdfast_tests::storage_suite!(Rocks);
}

mod sealed {
    use holdfast_encryption::{Live, SealedLog};
    use holdfast_engine::Log;
    use holdfast_storage_rocks::RocksLog;
    use holdfast_tests::Folder;
    use holdfast_tests::storage_suite::Backend;
    use std::sync::Arc;

    /// A log on the disk whose values are encrypted.
    struct Sealed {
        log: SealedLog<RocksLog>,
        folder: Folder,
    }

    const CONFIGURATION: &str = "{apiVersion: apiserver.config.k8s.io/v1, kind: EncryptionConfiguration, resources: [
        {resources: [pods], providers: [
            {aescbc: {keys: [{name: a, secret: YWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWE=}]}}]},
        {resources: ['*.*'], providers: [
            {aesgcm: {keys: [{name: b, secret: YmJiYmJiYmJiYmJiYmJiYmJiYmJiYmJiYmJiYmJiYmI=}]}}]}]}";

    impl Sealed {
        fn open(folder: Folder) -> Sealed {
            let live = Live::of_text(CONFIGURATION, false, false).expect("a configuration");
            let log = Arc::new(RocksLog::open(folder.path()).expect("open the log"));
            Sealed { log: SealedLog::new(log, live), folder }
        }
    }

    impl Backend for Sealed {
        fn fresh() -> Self {
            Sealed::open(Folder::new())
        }

        fn log(&self) -> &dyn Log {
            &self.log
        }

        fn reopened(self) -> Self {
            let Sealed { log, folder } = self;
            drop(log);
            Sealed::open(folder)
        }
    }

    holdfast_tests::storage_suite!(Sealed);
}

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
    let admin = Wire::admin(&server);
    let kept = admin.get("/api/v1/namespaces/old/configmaps/kept").await.expect(200).json();
    assert_eq!(kept, serde_json::from_slice::<serde_json::Value>(&fixture::records()[3].object).unwrap());
    admin.get("/api/v1/namespaces/old/configmaps/gone").await.refused(404, "NotFound");
    // The log goes on where it ended.
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
