//! Checks that logs with encrypted values pass the suite of every log, over each log that stores them.

const CONFIGURATION: &str = "{apiVersion: apiserver.config.k8s.io/v1, kind: EncryptionConfiguration, resources: [
    {resources: [pods], providers: [
        {aescbc: {keys: [{name: a, secret: YWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWE=}]}}]},
    {resources: ['*.*'], providers: [
        {aesgcm: {keys: [{name: b, secret: YmJiYmJiYmJiYmJiYmJiYmJiYmJiYmJiYmJiYmJiYmI=}]}}]}]}";

mod on_disk {
    use holdfast_encryption::{Live, SealedLog};
    use holdfast_engine::Log;
    use holdfast_engine::log::suite::Backend;
    use holdfast_storage_rocks::RocksLog;
    use std::sync::Arc;
    use tempfile::TempDir;

    struct OnDisk {
        log: SealedLog<RocksLog>,
        folder: TempDir,
    }

    impl OnDisk {
        fn open(folder: TempDir) -> OnDisk {
            let live = Live::of_text(super::CONFIGURATION, false, false).expect("a configuration");
            let log = Arc::new(RocksLog::open(folder.path()).expect("open the log"));
            OnDisk { log: SealedLog::new(log, live), folder }
        }
    }

    impl Backend for OnDisk {
        fn fresh() -> Self {
            OnDisk::open(tempfile::tempdir().expect("a folder"))
        }

        fn log(&self) -> &dyn Log {
            &self.log
        }

        fn reopened(self) -> Self {
            let OnDisk { log, folder } = self;
            drop(log);
            OnDisk::open(folder)
        }
    }

    holdfast_engine::storage_suite!(OnDisk);
}

mod in_memory {
    use holdfast_core::event::Record;
    use holdfast_encryption::{Live, SealedLog};
    use holdfast_engine::Log;
    use holdfast_engine::log::sealing::Values;
    use holdfast_engine::log::suite::Backend;
    use holdfast_engine::memory::MemoryLog;
    use std::sync::Arc;

    /// A log in memory, to which other servers write values that they encrypt with the same keys.
    struct InMemory(SealedLog<MemoryLog>, Arc<Live>);

    impl InMemory {
        fn over(log: MemoryLog) -> InMemory {
            let live = Live::of_text(super::CONFIGURATION, false, false).expect("a configuration");
            InMemory(SealedLog::new(Arc::new(log), live.clone()), live)
        }
    }

    impl Backend for InMemory {
        fn fresh() -> Self {
            InMemory::over(MemoryLog::default())
        }

        fn log(&self) -> &dyn Log {
            &self.0
        }

        fn reopened(self) -> Self {
            InMemory::over(self.0.inner().survivor())
        }

        fn append_as_other(&self, records: &[Record]) -> bool {
            let seal = |record: &Record| self.1.keyring().seal(record.clone()).expect("it is encrypted");
            self.0.inner().append_as_other(&records.iter().map(seal).collect::<Vec<_>>());
            true
        }
    }

    holdfast_engine::storage_suite!(InMemory);
}
