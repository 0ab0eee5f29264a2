//! The unique name of the log, and the log from which it was forked.

use crate::fault::fault;
use crate::key::{self, META, META_ID, META_ORIGIN, META_SECRET};
use crate::store::family;
use holdfast_engine::Fault;
use holdfast_engine::log::{Identity, Origin};
use rocksdb::{DB, WriteBatch};

pub(crate) fn read(db: &DB) -> Result<Identity, Fault> {
    let meta = family(db, META)?;
    let get = |name: &[u8]| db.get_cf(meta, name).map_err(|error| fault("read its id", error));
    let text = |bytes: &[u8]| std::str::from_utf8(bytes).ok().filter(|id| !id.is_empty()).map(str::to_owned);
    let origin = get(META_ORIGIN)?.and_then(|bytes| {
        let (version, id) = bytes.split_at_checked(8)?;
        Some(Origin { version: key::parse_offset(version)?, id: text(id) })
    });
    Ok(Identity { id: get(META_ID)?.and_then(|id| text(&id)), origin })
}

pub(crate) fn stage(identity: &Identity, db: &DB, batch: &mut WriteBatch) -> Result<(), Fault> {
    let meta = family(db, META)?;
    if let Some(id) = &identity.id {
        batch.put_cf(meta, META_ID, id);
    }
    if let Some(Origin { id, version }) = &identity.origin {
        let mut value = key::offset(*version).to_vec();
        value.extend_from_slice(id.as_deref().unwrap_or_default().as_bytes());
        batch.put_cf(meta, META_ORIGIN, value);
    }
    Ok(())
}

/// Makes a random (version 4) UUID.
pub(crate) fn new_id() -> Result<String, Fault> {
    let [mut high, mut low] = [0, 8].map({
        let bytes = random::<16>()?;
        move |from: usize| bytes[from..from + 8].iter().fold(0u64, |number, byte| number << 8 | u64::from(*byte))
    });
    high = high & !0xf000 | 0x4000;
    low = low & !(0b11 << 62) | 0b10 << 62;
    let (time, node) = (high >> 32, low & 0xffff_ffff_ffff);
    Ok(format!("{time:08x}-{:04x}-{:04x}-{:04x}-{node:012x}", high >> 16 & 0xffff, high & 0xffff, low >> 48))
}

/// Makes a new secret for the log, and adds it to the batch.
pub(crate) fn stage_secret(db: &DB, batch: &mut WriteBatch) -> Result<[u8; 32], Fault> {
    let secret = random()?;
    batch.put_cf(family(db, META)?, META_SECRET, secret);
    Ok(secret)
}

fn random<const N: usize>() -> Result<[u8; N], Fault> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| Fault::io("find randomness", std::io::Error::from(error)))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_random_uuids() {
        let (one, other) = (new_id().unwrap(), new_id().unwrap());
        assert_ne!(one, other);
        for id in [one, other] {
            let lengths: Vec<usize> = id.split('-').map(str::len).collect();
            assert_eq!(lengths, [8, 4, 4, 4, 12], "{id}");
            assert!(id[14..].starts_with('4') && "89ab".contains(&id[19..20]), "{id}");
        }
    }
}
