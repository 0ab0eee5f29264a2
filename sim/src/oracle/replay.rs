//! A state against the twin, byte for byte, over all kinds.

use super::{Verdict, ensure};
use crate::twin::Twin;
use holdfast_core::state::{Index, State};
use std::collections::BTreeMap;

/// The state is what the events up to its offset make.
pub fn check(twin: &Twin, state: &State) -> Verdict {
    let expected = twin.at(state.offset.0);
    let mut found = 0;
    let mut claims: BTreeMap<String, String> = BTreeMap::new();
    for (id, kind) in state.registry.iter() {
        for (key, entry) in state.scan(id, "", None) {
            found += 1;
            let place = (kind.storage.clone(), key.to_string());
            let what = || format!("at {}, {} {}", state.offset, place.0, place.1);
            let Some(record) = expected.get(&place) else {
                return Err(format!("{} is there, but should not be", what()));
            };
            ensure(record.offset == entry.offset.0, || {
                format!("{} is at version {} and not {}", what(), entry.offset, record.offset)
            })?;
            ensure(record.object == entry.json, || {
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                format!("{} differs:\n  log   {}\n  state {}", what(), text(&record.object), text(&entry.json))
            })?;
            let index = Index::new(kind, &entry.document());
            ensure(index == entry.index, || format!("{} is indexed as {:?} and not {index:?}", what(), entry.index))?;
            for claim in &index.claims {
                let owner = state.owner(id, key).to_string();
                let holder = state.claimant(claim).map(|holder| holder.to_string());
                ensure(holder.as_deref() == Some(&*owner), || {
                    format!("{} claims {claim}, which {holder:?} holds", what())
                })?;
                claims.insert(claim.to_string(), owner);
            }
        }
        ensure(state.count(id) == state.scan(id, "", None).count(), || format!("{} are counted wrong", kind.storage))?;
    }
    ensure(found == expected.len(), || {
        let missing = expected.keys().find(|(storage, key)| {
            state.registry.by_storage(storage).is_none_or(|kind| state.get(kind, key).is_none())
        });
        format!("at {}, {missing:?} is missing: {found} objects and not {}", state.offset, expected.len())
    })?;
    for last in 0..=7 {
        let claim = format!("ip/10.0.0.{last}");
        let holder = state.claimant(&claim).map(|holder| holder.to_string());
        ensure(holder.as_ref() == claims.get(&claim), || format!("nobody holds {claim}, but {holder:?} is noted"))?;
    }
    Ok(())
}
