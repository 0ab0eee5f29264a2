//! The disk under the simulated server: a log in memory, which can be told to betray the engine's trust.
//!
//! A sabotaged disk exists to prove that the oracles see what they are there to see.

use holdfast_core::event::{Offset, Record};
use holdfast_engine::memory::MemoryLog;
use holdfast_engine::{EventLog, Fault};

/// How a disk breaks its contract, if at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sabotage {
    None,
    /// A crash loses the last event, acknowledged or not.
    ForgetLast,
    /// Every seventh event is left out when the log is read on.
    SkipOnScan,
    /// What is read back after a crash still has objects that were deleted.
    KeepDeleted,
    /// Objects lose a byte on their way to the disk.
    DropByte,
}

pub struct Disk {
    pub log: MemoryLog,
    sabotage: Sabotage,
}

impl Disk {
    pub fn new(sabotage: Sabotage) -> Disk {
        Disk { log: MemoryLog::default(), sabotage }
    }

    /// What is there after a crash.
    pub fn survivor(&self) -> Result<Disk, Fault> {
        let log = self.log.survivor();
        if self.sabotage != Sabotage::ForgetLast {
            return Ok(Disk { log, sabotage: self.sabotage });
        }
        let mut records = log.scan(None, Offset::ZERO, usize::MAX)?;
        records.pop();
        let shorter = MemoryLog::default();
        shorter.append(&records)?;
        Ok(Disk { log: shorter, sabotage: self.sabotage })
    }
}

impl EventLog for Disk {
    fn append(&self, batch: &[Record]) -> Result<(), Fault> {
        if self.sabotage != Sabotage::DropByte {
            return self.log.append(batch);
        }
        let mut batch = batch.to_vec();
        for record in &mut batch {
            let text = String::from_utf8_lossy(&record.object).replacen("\"v1\"", "\"v\"", 2);
            record.object = text.into_bytes().into();
        }
        self.log.append(&batch)
    }

    fn last(&self) -> Result<Offset, Fault> {
        self.log.last()
    }

    fn read(&self, offset: Offset) -> Result<Option<Record>, Fault> {
        self.log.read(offset)
    }

    fn current(&self, visit: &mut dyn FnMut(Record) -> Result<(), Fault>) -> Result<(), Fault> {
        if self.sabotage != Sabotage::KeepDeleted {
            return self.log.current(visit);
        }
        let mut newest = std::collections::BTreeMap::new();
        for record in self.log.scan(None, Offset::ZERO, usize::MAX)? {
            if !record.is_delete() {
                newest.insert((record.resource.clone(), record.key.clone()), record);
            }
        }
        newest.into_values().try_for_each(visit)
    }

    fn scan(&self, resource: Option<&str>, after: Offset, limit: usize) -> Result<Vec<Record>, Fault> {
        let mut records = self.log.scan(resource, after, limit)?;
        if self.sabotage == Sabotage::SkipOnScan && resource.is_some() {
            records.retain(|record| record.offset % 7 != 0);
        }
        Ok(records)
    }

    fn forget(&self, through: Offset) -> Result<(), Fault> {
        self.log.forget(through)
    }

    fn oldest(&self) -> Result<Offset, Fault> {
        self.log.oldest()
    }

    fn recover(&self) -> Result<(), Fault> {
        self.log.recover()
    }
}
