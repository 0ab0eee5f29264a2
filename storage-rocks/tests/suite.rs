//! Runs the test suite of the requirements on every log against the log on RocksDB.

use holdfast_engine::Log;
use holdfast_engine::log::suite::Backend;
use holdfast_storage_rocks::RocksLog;
use tempfile::TempDir;

struct Rocks {
    log: RocksLog,
    folder: TempDir,
}

impl Rocks {
    fn open(folder: TempDir) -> Rocks {
        Rocks { log: RocksLog::open(folder.path()).expect("open the log"), folder }
    }
}

impl Backend for Rocks {
    fn fresh() -> Self {
        Rocks::open(tempfile::tempdir().expect("a folder"))
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

holdfast_engine::storage_suite!(Rocks);
