//! Compares a state with the twin, byte by byte, for all kinds.

use super::{CheckResult, ensure};
use crate::custom;
use crate::twin::{ObjectVersion, Twin};
use holdfast_core::state::{Index, State};
use std::collections::BTreeMap;

/// Checks that the state is the result of the events up to its offset.
pub fn check(twin: &Twin, state: &State) -> CheckResult {
    let mut expected: BTreeMap<(&str, &str), &ObjectVersion> =
        twin.all_at(state.offset.0).map(|(storage, key, version)| ((storage, key), version)).collect();
    let mut claims: BTreeMap<String, String> = BTreeMap::new();
    let blame = |storage: &str, key: &str, why: &str| format!("at {}, {storage} {key} {why}", state.offset);
    for (storage, collection) in state.collections() {
        let kind = state.registry.by_storage(storage);
        for (key, entry) in collection.iter() {
            let Some(version) = expected.remove(&(storage, &**key)) else {
                return Err(blame(storage, key, "is there, but should not be"));
            };
            ensure(version.offset == entry.offset.0, || {
                blame(storage, key, &format!("is at version {} and not {}", entry.offset, version.offset))
            })?;
            ensure(version.record.object == entry.json(), || {
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                let (log, shown) = (text(&version.record.object), text(&entry.json()));
                blame(storage, key, &format!("differs:\n  log   {log}\n  state {shown}"))
            })?;
            let Some(id) = kind else { return Err(blame(storage, key, "has no kind")) };
            let index = Index::new(state.kind(id), &version.document);
            ensure(index == entry.index, || {
                blame(storage, key, &format!("is indexed as {:?} and not {index:?}", entry.index))
            })?;
            for claim in &index.claims {
                let owner = format!("{storage}/{key}");
                let holder = state.claimant(claim).map(|holder| holder.to_string());
                ensure(holder.as_ref() == Some(&owner), || {
                    blame(storage, key, &format!("claims {claim}, which {holder:?} holds"))
                })?;
                claims.insert(claim.to_string(), owner);
            }
        }
        if let Some(id) = kind {
            ensure(state.count(id) == collection.len(), || format!("{storage} are counted wrong"))?;
        }
    }
    if let Some((storage, key)) = expected.into_keys().next() {
        return Err(blame(storage, key, "is missing"));
    }
    let named = |name: &str| format!("custom-{name}");
    let free = (0..=7).map(|last| format!("ip/10.0.0.{last}")).chain([
        named(&format!("resource/{}/{}", custom::GROUP, custom::PLURAL)),
        named(&format!("kind/{}/{}", custom::GROUP, custom::KIND)),
    ]);
    for claim in free {
        let holder = state.claimant(&claim).map(|holder| holder.to_string());
        ensure(holder.as_ref() == claims.get(&claim), || format!("nobody holds {claim}, but {holder:?} is noted"))?;
    }
    let defined = twin.law(state.offset.0).is_some();
    let served = state.registry.by_storage(custom::STORAGE).is_some();
    ensure(defined == served, || {
        format!("at {}, the custom kind is served: {served}, and defined: {defined}", state.offset)
    })
}
