//! Reads the objects of a data folder.

use super::{Movable, Source, SourceObject, Stopped};
use crate::local::Local;
use holdfast_engine::LogRead;
use holdfast_engine::log::sealing::Values;
use holdfast_storage_rocks::{LogReader, RocksLog};
use std::path::Path;

/// The log of a data folder, locked so that no server can use the folder.
pub struct FromFolder {
    log: RocksLog,
    id: String,
    version: u64,
    /// Decrypts the encrypted values of the folder.
    values: Box<dyn Values + Sync>,
}

impl FromFolder {
    pub fn open(folder: &Path, values: Box<dyn Values + Sync>) -> Result<FromFolder, Stopped> {
        // The folder is first opened as a reader, which fails if the folder has no log. Without this check,
        // `RocksLog::open` would create a log.
        drop(LogReader::open(folder)?);
        let log = RocksLog::open(folder)?;
        if log.source()?.is_partial {
            return Err(Stopped::Refused(format!(
                "{} has a part of the objects of an etcd: start a server with that etcd once more, or move them from \
                 there",
                folder.display()
            )));
        }
        let id = format!("the log {}", log.identity()?.id.unwrap_or_default());
        let version = log.last()?.0;
        Ok(FromFolder { log, id, version, values })
    }
}

impl Source for FromFolder {
    fn id(&self) -> String {
        self.id.clone()
    }

    fn version(&self) -> u64 {
        self.version
    }

    /// Checks nothing, because the lock of the folder already prevents servers from using the folder.
    fn check_unused(&self) -> Result<(), Stopped> {
        Ok(())
    }

    fn read_at(&mut self, version: u64) -> Result<(), Stopped> {
        if version == self.version {
            return Ok(());
        }
        Err(Stopped::Refused(format!(
            "the source has changed since the migration began: it was at version {version}, and is at {} now. Empty \
             the target, and start the migration again",
            self.version
        )))
    }

    /// Visits the objects in the order of their versions.
    fn each(&self, after: &str, visit: &mut dyn FnMut(SourceObject) -> Result<(), Stopped>) -> Result<(), Stopped> {
        let after: u64 = after.parse().unwrap_or(0);
        let mut stopped = None;
        let read = self.log.current(&mut |record| {
            if record.offset <= after || stopped.is_some() {
                return Ok(());
            }
            let found = SourceObject {
                place: record.offset.to_string(),
                part: record.offset as f64 / self.version.max(1) as f64,
                resource: record.resource.clone(),
                object: self.values.open(record).map(Movable::Event).map_err(Into::into),
            };
            visit(found).map_err(|why| {
                stopped = Some(why);
                // The visit ends only with a fault, so this one is returned; the caller takes the reason from
                // `stopped`.
                holdfast_engine::Fault::Redefined
            })
        });
        match stopped {
            Some(why) => Err(why),
            None => Ok(read?),
        }
    }

    fn check_unchanged(&self) -> Result<(), Stopped> {
        Ok(())
    }
}
