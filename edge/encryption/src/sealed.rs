//! A log whose values are encrypted before another log stores them, and decrypted when they are read.

use crate::keyring::Keyring;
use crate::live::Live;
use holdfast_core::event::{Actor, Offset, Record};
use holdfast_engine::log::sealing::{Prepared, Sealing, Values};
use holdfast_engine::log::{Identity, Lack, LastFound, Proposal, Unreadable, Wake};
use holdfast_engine::{Append, AsOf, Changed, Changes, Fault, Log, LogRead, Size};
use std::ops::ControlFlow;
use std::sync::Arc;

/// Readers of this log receive decrypted values; the log below stores the encrypted values.
pub struct SealedLog<L: ?Sized> {
    live: Arc<Live>,
    log: Arc<L>,
}

impl<L: ?Sized> SealedLog<L> {
    pub fn new(log: Arc<L>, live: Arc<Live>) -> SealedLog<L> {
        SealedLog { live, log }
    }

    /// The wrapped log, which stores the encrypted values.
    pub fn inner(&self) -> &Arc<L> {
        &self.log
    }

    fn open(&self, record: Record) -> Result<Record, Fault> {
        self.live.keyring().open(record)
    }

    fn open_all(&self, mut records: Vec<Record>) -> Result<Vec<Record>, Fault> {
        let keyring = self.live.keyring();
        for record in &mut records {
            *record = keyring.open(std::mem::take(record))?;
        }
        Ok(records)
    }
}

impl<L: LogRead + ?Sized> LogRead for SealedLog<L> {
    fn last(&self) -> Result<Offset, Fault> {
        self.log.last()
    }

    fn read(&self, offset: Offset) -> Result<Option<Record>, Fault> {
        self.log.read(offset)?.map(|record| self.open(record)).transpose()
    }

    fn current(&self, visit: &mut dyn FnMut(Record) -> Result<(), Fault>) -> Result<(), Fault> {
        let keyring = self.live.keyring();
        self.log.current(&mut |record| visit(keyring.open(record)?))
    }

    fn scan(&self, resource: Option<&str>, after: Offset, limit: usize) -> Result<Vec<Record>, Fault> {
        self.open_all(self.log.scan(resource, after, limit)?)
    }

    fn next_time(&self, after: Offset) -> Result<Option<(Offset, i64)>, Fault> {
        self.log.next_time(after)
    }

    fn each(&self, after: Offset, visit: &mut dyn FnMut(&Record) -> ControlFlow<()>) -> Result<(), Fault> {
        let (keyring, mut fault) = (self.live.keyring(), None);
        self.log.each(after, &mut |record| {
            // A plain value needs no decryption and no copy.
            if !keyring.is_configured() && !Keyring::is_sealed(record) {
                return visit(record);
            }
            match keyring.open(record.clone()) {
                Ok(record) => visit(&record),
                Err(closed) => {
                    fault = Some(closed);
                    ControlFlow::Break(())
                }
            }
        })?;
        fault.map_or(Ok(()), Err)
    }

    fn changes(&self, asked: &Changes, limit: usize) -> Result<Changed, Fault> {
        self.log.changes(asked, limit)
    }

    fn versions(&self, resource: &str, key: &str) -> Result<Vec<Offset>, Fault> {
        self.log.versions(resource, key)
    }

    fn version_at(&self, resource: &str, key: &str, at: Offset) -> Result<Option<Offset>, Fault> {
        self.log.version_at(resource, key, at)
    }

    fn as_of(&self, asked: &AsOf, visit: &mut dyn FnMut(&str, Offset) -> ControlFlow<()>) -> Result<(), Fault> {
        self.log.as_of(asked, visit)
    }

    fn oldest(&self) -> Result<Offset, Fault> {
        self.log.oldest()
    }

    fn size(&self) -> Result<Size, Fault> {
        self.log.size()
    }

    fn identity(&self) -> Result<Identity, Fault> {
        self.log.identity()
    }

    fn repaired(&self) -> Result<Offset, Fault> {
        self.log.repaired()
    }
}

impl<L: Log + ?Sized> Log for SealedLog<L> {
    fn commit(&self, proposal: &Proposal) -> Result<Append, Fault> {
        let keyring = self.live.keyring();
        if !keyring.is_configured() {
            return self.log.commit(proposal);
        }
        let sealed = proposal.records.iter().map(|record| keyring.seal(record.clone()));
        let sealed: Vec<Record> = sealed.collect::<Result<_, _>>()?;
        self.log.commit(&proposal.with(&sealed))
    }

    fn is_shared(&self) -> bool {
        self.log.is_shared()
    }

    fn find_last(&self, done: LastFound) {
        self.log.find_last(done);
    }

    fn tail(&self, after: Offset) -> Result<Vec<Record>, Fault> {
        self.open_all(self.log.tail(after)?)
    }

    fn unreadable(&self, resource: &str, prefix: &str, limit: usize) -> Vec<Unreadable> {
        self.log.unreadable(resource, prefix, limit)
    }

    fn delete_unreadable(&self, object: &Unreadable, actor: Actor, time_ms: i64) -> Result<bool, Fault> {
        self.log.delete_unreadable(object, actor, time_ms)
    }

    fn newly_unreadable(&self) -> Vec<String> {
        self.log.newly_unreadable()
    }

    fn wake_by(&self, wake: Wake) {
        self.log.wake_by(wake);
    }

    fn secret(&self) -> Result<[u8; 32], Fault> {
        self.log.secret()
    }

    fn forget(&self, through: Offset) -> Result<(), Fault> {
        self.log.forget(through)
    }

    fn compact(&self, always: bool) -> Result<(), Fault> {
        self.log.compact(always)
    }

    fn lacks_room(&self, bytes: u64) -> Option<Lack> {
        self.log.lacks_room(bytes)
    }

    fn take_reserve(&self, bytes: u64) -> Result<(), Fault> {
        self.log.take_reserve(bytes)
    }

    fn is_short_of_room(&self) -> bool {
        self.log.is_short_of_room()
    }

    fn make_room(&self) -> Result<(), Fault> {
        self.log.make_room()
    }

    fn recover(&self) -> Result<(), Fault> {
        self.log.recover()
    }
}

impl<L: LogRead + ?Sized> Sealing for SealedLog<L> {
    fn encrypts(&self) -> bool {
        self.live.keyring().is_configured()
    }

    fn prepare(&self, resource: &str) -> Option<Prepared> {
        self.live.keyring().prepare(resource)
    }

    fn is_outdated(&self, offset: Offset) -> Result<bool, Fault> {
        let kept = self.log.read(offset)?;
        Ok(kept.is_some_and(|kept| self.live.keyring().is_outdated(&kept)))
    }
}
