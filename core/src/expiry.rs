//! Events are news: they go some time after their last change.

use crate::authz::{PRIVILEGED_GROUP, User};
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
    /// The key behind which the next part begins; `None`: this was the last.
    pub rest: Option<Arc<str>>,
}

/// The deletions that are due, of Events behind the key `after`.
///
/// Only the time of each Event is looked at, once a pass: the parts of a pass go on one behind the other.
pub fn plan(state: &State, ttl: Duration, now_ms: i64, after: Option<&str>) -> Due {
    let mut due = Due { steps: Vec::new(), rest: None };
    let Some((kind, version)) = state.registry.find("", "v1", "events") else { return due };
    let ttl_ms = i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX);
    let user = Arc::new(User::new(USER, &[PRIVILEGED_GROUP]));
    let deletion = |key: &str, version_seen: String| {
        let (namespace, name) = meta::split_key(key);
        let target = Target {
            kind,
            version,
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
    for (key, entry) in state.scan(kind, "", after) {
        if now_ms.saturating_sub(entry.time_ms) < ttl_ms {
            continue;
        }
        due.steps.push(deletion(key, entry.offset.to_string()));
        if due.steps.len() == STEPS_MAX {
            due.rest = Some(key.clone());
            break;
        }
    }
    due
}
