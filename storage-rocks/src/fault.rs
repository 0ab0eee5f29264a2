//! RocksDB's errors as the engine knows them.

use holdfast_core::event::{Damage, Offset, Record};
use holdfast_engine::Fault;
use std::path::Path;

pub fn fault(operation: &'static str, error: rocksdb::Error) -> Fault {
    let text = error.to_string();
    let full = ["No space left on device", "Disk quota exceeded", "File too large", "Max allowed space"];
    if full.iter().any(|sign| text.contains(sign)) {
        return Fault::Full { operation };
    }
    Fault::io(operation, error)
}

/// The same where a corruption is reported with the last event that could still be read.
pub fn damage(operation: &'static str, folder: &Path, after: Offset, error: rocksdb::Error) -> Fault {
    match error.kind() {
        rocksdb::ErrorKind::Corruption => {
            Fault::DamagedStore { after, what: error.to_string(), path: folder.to_owned() }
        }
        _ => fault(operation, error),
    }
}

pub fn record(folder: &Path, offset: Offset, bytes: &[u8]) -> Result<Record, Fault> {
    let mut record = Record::default();
    record_again(folder, offset, bytes, &mut record)?;
    Ok(record)
}

/// The same into a record that was read before.
pub fn record_again(folder: &Path, offset: Offset, bytes: &[u8], record: &mut Record) -> Result<(), Fault> {
    record.decode_again(bytes).and_then(|()| check_offset(offset, record)).map_err(|damage| Fault::Damaged {
        offset,
        damage,
        path: Some(folder.to_owned()),
    })
}

/// A record under another's key is as wrong as a flipped bit.
fn check_offset(offset: Offset, record: &Record) -> Result<(), Damage> {
    if record.offset() == offset { Ok(()) } else { Err(Damage::Body(format!("it says it is event {}", record.offset))) }
}
