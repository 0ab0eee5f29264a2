//! Objects of some kinds (Events) are news: they go some time after their last change.

use crate::authz::{PRIVILEGED_GROUP, User};
use crate::kinds::KindId;
use crate::namespace::Step;
use crate::object::meta;
use crate::request::{Body, DeleteOptions, Options, Request, Target, Verb};
use crate::state::State;
use std::sync::Arc;
use std::time::Duration;

/// The user in whose name they are deleted.
pub const USER: &str = "system:apiserver";
/// How many deletions are planned at a time.
const STEPS_MAX: usize = 512;

/// A part of the deletions that are due.
pub struct Due {
    pub steps: Vec<Step>,
    /// The object behind which the next part begins; `None`: this was the last.
    pub rest: Option<(KindId, Arc<str>)>,
}

/// The deletions that are due, of objects behind `after`.
///
/// Only the time of each object is looked at, once a pass: the parts of a pass go on one behind the other.
pub fn plan(state: &State, ttl: Duration, now_ms: i64, after: Option<&(KindId, Arc<str>)>) -> Due {
    let mut due = Due { steps: Vec::new(), rest: None };
    let ttl_ms = i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX);
    let user = Arc::new(User::new(USER, &[PRIVILEGED_GROUP]));
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
    let expiring = state.registry.iter().filter(|(_, kind)| kind.expires).map(|(id, _)| id);
    for kind in expiring.skip_while(|id| after.is_some_and(|(first, _)| id < first)) {
        let after = after.filter(|(first, _)| *first == kind).map(|(_, key)| &**key);
        for (key, entry) in state.scan(kind, "", after) {
            if now_ms.saturating_sub(entry.time_ms) < ttl_ms {
                continue;
            }
            due.steps.push(deletion(kind, key, entry.offset.to_string()));
            if due.steps.len() == STEPS_MAX {
                due.rest = Some((kind, key.clone()));
                return due;
            }
        }
    }
    due
}
