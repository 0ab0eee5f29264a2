//! Deletes objects of expiring kinds (Events) some time after their last change.

use crate::authz::{PRIVILEGED_GROUP, User};
use crate::event::Offset;
use crate::kinds::KindId;
use crate::namespace::Step;
use crate::object::meta;
use crate::request::{Body, DeleteOptions, Options, Request, Target, Verb};
use crate::state::State;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

/// The name of the user as whom the server deletes expired objects.
pub const USER: &str = "system:apiserver";
/// The maximum number of deletions in one plan.
const STEPS_MAX: usize = 512;

/// The time of an object's last change, in milliseconds since 1970, and the offset of the event of this change.
pub type Place = (i64, Offset);

/// One batch of the deletions that are due.
pub struct Due {
    pub steps: Vec<Step>,
    /// The object after which the next batch begins; `None` for the last batch.
    pub rest: Option<Place>,
}

/// Plans the deletion of objects after `after` that were last changed at least `ttl` ago, in the order of their last
/// change. Objects whose deletion is not due are not read.
pub fn plan(state: &State, ttl: Duration, now_ms: i64, after: Option<Place>) -> Due {
    let ttl_ms = i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX);
    let user = Arc::new(User::new(USER, &[PRIVILEGED_GROUP]));
    let first = after.map_or(Bound::Unbounded, Bound::Excluded);
    let due = state.expiring.range((first, Bound::Unbounded));
    let due = due.take_while(|((time_ms, _), _)| now_ms.saturating_sub(*time_ms) >= ttl_ms).take(STEPS_MAX);
    let mut last = None;
    let steps: Vec<Step> = due
        .map(|(place, (kind, key))| {
            last = Some(*place);
            deletion(&user, *kind, key, place.1)
        })
        .collect();
    Due { rest: last.filter(|_| steps.len() == STEPS_MAX), steps }
}

fn deletion(user: &Arc<User>, kind: KindId, key: &str, version_seen: Offset) -> Step {
    let (namespace, name) = meta::split_key(key);
    let target = Target {
        kind,
        version: 0,
        namespace: namespace.map(str::to_owned),
        name: Some(name.to_owned()),
        subresource: None,
    };
    // With the precondition, an Event that changes in the meantime is not deleted.
    let precondition_resource_version = Some(version_seen.to_string());
    let delete = DeleteOptions { precondition_resource_version, ..DeleteOptions::default() };
    let options = Options { delete, ..Options::default() };
    let (user, id) = (user.clone(), "expiry".into());
    Step { request: Request { user, verb: Verb::Delete, target, options, body: Body::default(), id } }
}
