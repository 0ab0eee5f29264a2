//! Faults of a folder and its log: RocksDB's errors as faults of the engine, and faults that occur before there is a
//! log.

use crate::making::Making;
use holdfast_core::event::{Damage, Offset, Record};
use holdfast_engine::Fault;
use holdfast_engine::log::DamagedEvent;
use std::path::{Path, PathBuf};

/// Why a folder's log cannot be opened, made, copied or repaired.
#[derive(Debug, thiserror::Error)]
pub enum FolderFault {
    /// A command has begun to make the log in this folder, and has not finished.
    #[error("{}", making.description(path))]
    Unfinished { making: Making, path: PathBuf },
    /// A new log was to be made in a folder that is not empty.
    #[error("{} {why}: a new log cannot be made there", path.display())]
    Occupied { path: PathBuf, why: &'static str },
    #[error("{} holds no Holdfast log", path.display())]
    NoLog { path: PathBuf },
    #[error("no import into {} was begun", path.display())]
    NotBegun { path: PathBuf },
    /// Another process changes the log so often that no consistent copy of its files could be made.
    #[error("the server changes the files of its log all the time: they cannot be copied beside it")]
    Restless,
    #[error("the data folder {path} is in use by {holder}: only one server may write to it")]
    InUse { path: String, holder: String },
    #[error(transparent)]
    Log(#[from] Fault),
}

impl FolderFault {
    pub(crate) fn io(operation: &'static str, cause: std::io::Error) -> FolderFault {
        FolderFault::Log(Fault::io(operation, cause))
    }
}

/// Damage in the log of a data folder.
#[derive(Debug, thiserror::Error)]
pub enum FolderDamage {
    #[error("{event}")]
    Event { folder: PathBuf, event: DamagedEvent },
    #[error("the log is damaged after its event {after}: {what}")]
    Store { folder: PathBuf, after: Offset, what: String },
}

impl FolderDamage {
    /// The damage that a fault describes; `None` if the fault is of another kind.
    pub fn of(fault: &Fault) -> Option<&FolderDamage> {
        match fault {
            Fault::Damaged(cause) => cause.downcast_ref(),
            _ => None,
        }
    }

    pub fn folder(&self) -> &Path {
        match self {
            Self::Event { folder, .. } | Self::Store { folder, .. } => folder,
        }
    }

    /// Whether the only problem is that a newer release wrote the event.
    pub fn is_newer_format(&self) -> bool {
        matches!(self, Self::Event { event: DamagedEvent { damage: Damage::NewerFormat { .. }, .. }, .. })
    }
}

impl From<FolderDamage> for Fault {
    fn from(damage: FolderDamage) -> Fault {
        Fault::Damaged(Box::new(damage))
    }
}

pub fn fault(operation: &'static str, error: rocksdb::Error) -> Fault {
    let text = error.to_string();
    let full = ["No space left on device", "Disk quota exceeded", "File too large", "Max allowed space"];
    if full.iter().any(|sign| text.contains(sign)) {
        return Fault::Full { operation };
    }
    Fault::io(operation, error)
}

/// Converts an error of RocksDB like [`fault`], but reports a corruption with the last event that could still be read.
pub fn damage(operation: &'static str, folder: &Path, after: Offset, error: rocksdb::Error) -> Fault {
    match error.kind() {
        rocksdb::ErrorKind::Corruption => {
            FolderDamage::Store { after, what: error.to_string(), folder: folder.to_owned() }.into()
        }
        _ => fault(operation, error),
    }
}

pub fn record(folder: &Path, offset: Offset, bytes: &[u8]) -> Result<Record, Fault> {
    let mut record = Record::default();
    record_again(folder, offset, bytes, &mut record)?;
    Ok(record)
}

/// Decodes an event into an existing record, to reuse the record's memory.
pub fn record_again(folder: &Path, offset: Offset, bytes: &[u8], record: &mut Record) -> Result<(), Fault> {
    record.decode_again(bytes).and_then(|()| check_offset(offset, record)).map_err(|damage| {
        FolderDamage::Event { folder: folder.to_owned(), event: DamagedEvent { offset, damage } }.into()
    })
}

/// Checks that a record is stored under its own key. A record under the key of another event counts as damage, like a
/// flipped bit.
fn check_offset(offset: Offset, record: &Record) -> Result<(), Damage> {
    if record.offset() == offset { Ok(()) } else { Err(Damage::Body(format!("it says it is event {}", record.offset))) }
}
