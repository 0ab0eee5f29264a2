//! Objects of some kinds (Events) are news: they go some time after their last change.

use crate::authz::{PRIVILEGED_GROUP, User};
use crate::kinds::KindId;
use crate::namespace::Step;
use crate::object::meta;
use crate::request::{Body, DeleteOptions, Options, Request, Target, Verb};
use crate::state::{Entry, State};
use std::sync::Arc;
use std::time::Duration;

/// The user in whose name they are deleted.
pub const USER: &str = "system:apiserver";
/// How many deletions are planned at a time.
const STEPS_MAX: usize = 512;

/// The deletions that are due.
pub fn plan(state: &State, ttl: Duration, now_ms: i64) -> Vec<Step> {
    let ttl_ms = i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX);
    let user = Arc::new(User::new(USER, &[PRIVILEGED_GROUP]));
    let is_due = |entry: &Entry| now_ms.saturating_sub(entry.time_ms) >= ttl_ms;
    let kinds = state.registry.iter().filter(|(_, kind)| kind.expires);
    let due = kinds.flat_map(|(id, _)| {
        state.scan(id, "", None).filter(|(_, entry)| is_due(entry)).map(move |(key, entry)| (id, key, entry))
    });
    let deletion = |kind: KindId, key: &str, version_seen: String| {
        let (namespace, name) = meta::split_key(key);
        let target = Target {
            kind,
            version: 0,
            namespace: namespace.map(str::to_owned),
            name: Some(name.to_owned()),
            subresource: None,
        };
        // One that changes meanwhile is news again.
        let delete = DeleteOptions { precondition_resource_version: Some(version_seen), ..DeleteOptions::default() };
        let options = Options { delete, ..Options::default() };
        let user = user.clone();
        Step {
            request: Request { user, verb: Verb::Delete, target, options, body: Body::default(), id: "expiry".into() },
        }
    };
    due.take(STEPS_MAX).map(|(kind, key, entry)| deletion(kind, key, entry.offset.to_string())).collect()
}
