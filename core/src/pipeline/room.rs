//! The writes that are accepted while the log's disk is nearly full: the server's own background writes, and writes of
//! clients that free disk space or keep the cluster running. Clients can write only existing objects, and each rarely,
//! so that they cannot fill the reserve.

use super::Write;
use crate::event::Actor;
use crate::kinds::known;
use crate::object::meta;
use crate::state::State;

/// The user of the writes that the server makes in the background.
const SERVER: &str = "system:apiserver";
/// The maximum size of a Lease that may be written, in bytes. Leases of Kubernetes are much smaller.
const LEASE_BYTES_MAX: usize = 8 << 10;
/// The maximum number of bytes by which a new field manager or a deletion timestamp may enlarge an object.
const META_BYTES: usize = 1 << 10;
/// The shortest time between two accepted writes of one object, in milliseconds. It applies to renewals of Leases and
/// to deletions.
const PERIOD_MS: i64 = 1000;

/// Whether the log accepts all these writes while its disk is nearly full.
pub fn makes_room(state: &State, writes: &[Write], actor: &Actor, now_ms: i64) -> bool {
    actor.user == SERVER || writes.iter().all(|write| one_makes_room(state, write, now_ms))
}

fn one_makes_room(state: &State, write: &Write, now_ms: i64) -> bool {
    if write.delete {
        return true;
    }
    let Some(old) = state.get(write.kind, &write.key) else { return false };
    let (before, after) = (old.body().len(), write.draft.len());
    if after <= before / 2 {
        return true;
    }
    let is_due = now_ms.saturating_sub(old.time_ms) >= PERIOD_MS;
    let (kind, lease) = (state.kind(write.kind), known::LEASE);
    if kind.kind == lease.kind && kind.versions[0].group == lease.group {
        return is_due && after <= LEASE_BYTES_MAX;
    }
    // A deletion sets the deletion timestamp once. After that the object's finalizers are removed one by one.
    let begins_to_go = !meta::is_deleting(meta::fields(&old.document()));
    after <= before + META_BYTES && (begins_to_go || is_due) && write.draft.is_deleting()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Offset;
    use crate::kinds::registry;
    use crate::object::encode::Draft;
    use crate::state::{Change, Entry, Index};
    use holdfast_value::json;
    use std::sync::Arc;

    const LEASE: &str = "leases";
    const MAP: &str = "configmaps";

    fn draft(resource: &str, metadata: &str, bytes: usize) -> Draft {
        let metadata: holdfast_value::Value = serde_json::from_str(metadata).expect("JSON");
        let mut document = json!({"metadata": metadata, "data": {"text": "x".repeat(bytes)}});
        document["metadata"]["name"] = "o".into();
        let (api_version, kind) = match resource {
            LEASE => ("coordination.k8s.io/v1", "Lease"),
            _ => ("v1", "ConfigMap"),
        };
        Draft::new(api_version, kind, meta::fields(&document))
    }

    #[test]
    fn what_makes_room_or_renews_goes_through_and_fills_nothing() {
        const PLAIN: &str = r#"{"namespace": "n"}"#;
        const GOING: &str = r#"{"namespace": "n", "deletionTimestamp": "2026-01-01T00:00:00Z"}"#;
        const NOT_GOING: &str = r#"{"namespace": "n", "labels": {"deletionTimestamp": "x"}}"#;
        // The resource; metadata and size of the old object, and of the new object; the milliseconds in between;
        // whether the write is accepted.
        type Row = (&'static str, Option<(&'static str, usize)>, Option<(&'static str, usize)>, i64, bool);
        let rows: [Row; 16] = [
            (MAP, None, Some((PLAIN, 10)), 9000, false),
            (MAP, Some((PLAIN, 9000)), None, 0, true),
            (MAP, Some((PLAIN, 9000)), Some((PLAIN, 9000)), 9000, false),
            (MAP, Some((PLAIN, 9000)), Some((PLAIN, 8999)), 9000, false),
            (MAP, Some((PLAIN, 9000)), Some((PLAIN, 4000)), 0, true),
            (MAP, Some((PLAIN, 9000)), Some((GOING, 9000)), 0, true),
            (MAP, Some((PLAIN, 9000)), Some((GOING, 90_000)), 0, false),
            (MAP, Some((PLAIN, 9000)), Some((NOT_GOING, 9000)), 9000, false),
            (MAP, Some((GOING, 9000)), Some((GOING, 9000)), 999, false),
            (MAP, Some((GOING, 9000)), Some((GOING, 9000)), 1000, true),
            (MAP, Some((GOING, 9000)), Some((GOING, 11_000)), 1000, false),
            (LEASE, None, Some((PLAIN, 10)), 9000, false),
            (LEASE, Some((PLAIN, 10)), Some((PLAIN, 10)), 999, false),
            (LEASE, Some((PLAIN, 10)), Some((PLAIN, 200)), 1000, true),
            (LEASE, Some((PLAIN, 10)), Some((PLAIN, 9000)), 1000, false),
            (LEASE, Some((PLAIN, 10)), None, 0, true),
        ];
        for (resource, old, new, later_ms, expected) in rows {
            let mut state = State::new(Arc::new(registry().clone()));
            let (kind, _) = state.registry.iter().find(|(_, kind)| kind.resource == resource).expect("served");
            let key: Arc<str> = "n/o".into();
            if let Some((metadata, bytes)) = old {
                let draft = draft(resource, metadata, bytes);
                let json = draft.seal(Offset(1));
                let entry = Arc::new(Entry::new(json, draft.head(), Offset(1), 0, Index::default()));
                let change = Change { offset: Offset(1), kind, key: key.clone(), entry, deleted: false };
                crate::apply::apply(&mut state, &change);
            }
            let (metadata, bytes) = new.unwrap_or((PLAIN, 10));
            let write = Write {
                kind,
                key,
                expect: None,
                draft: draft(resource, metadata, bytes),
                index: Index::default(),
                delete: new.is_none(),
                document: None,
            };
            let by = |user: &str| Actor { user: user.into(), ..Actor::default() };
            let told = makes_room(&state, std::slice::from_ref(&write), &by("jane"), later_ms);
            assert_eq!(told, expected, "{resource} {old:?} {new:?} {later_ms}");
            assert!(makes_room(&state, &[write], &by("system:apiserver"), 0));
        }
    }
}
