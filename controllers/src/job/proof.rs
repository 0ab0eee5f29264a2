//! Which pods are yet to be counted, where it is not enough to look at the world.
//!
//! The status and the finalizers of pods tell together what is counted, and a world shows each kind by itself: pods may be
//! older there than the job. Of a pod that is still held there, another manager may have let go and counted it; of one that
//! is not there yet, nobody may have let go. Where the world's pods have not come as far as the job, the server is asked.
//! What it says then is good for a status that replaces this version of the job's, and for no other.

use super::members::{Member, TRACKING};
use crate::answers::{Ask, Read, pods_path};
use crate::planted::{Bug, planted};
use holdfast_world::views::{Job, Pod};
use holdfast_world::{Refusal, Seen, View, World};
use serde_json::Value;
use std::collections::BTreeSet;

/// The pods that are held until they are counted, by their uids; members that are not are told so.
pub fn held<'r>(
    world: &World,
    job: Seen<'_, Job>,
    members: &mut [Member<'_>],
    read: Read<'r>,
) -> Result<Result<BTreeSet<String>, &'r Refusal>, Ask> {
    let uncounted = job.view.status.uncounted_terminated_pods.as_ref();
    let is_counting = uncounted
        .is_some_and(|uncounted| !uncounted.succeeded.is_empty() || !uncounted.failed.is_empty())
        || members.iter().any(|member| member.is_tracked && (member.is_succeeded || member.is_failed));
    let version = job.meta().resource_version.parse().unwrap_or(u64::MAX);
    if !is_counting || world.version(Pod::resource()) >= version || planted(Bug::OldNewsCounted) {
        let held = members.iter().filter(|member| member.is_tracked);
        return Ok(Ok(held.map(|member| member.uid().to_owned()).collect()));
    }
    let path = pods_path(&job.meta().namespace, &job.view.spec.selector.to_string());
    let list = match read.get(&path)? {
        Ok(list) => list,
        Err(refusal) => return Ok(Err(refusal)),
    };
    let items = list["items"].as_array().into_iter().flatten();
    let held = items.map(|pod| &pod["metadata"]).filter(|meta| is_held(meta));
    let held: BTreeSet<String> = held.filter_map(|meta| Some(meta["uid"].as_str()?.to_owned())).collect();
    members.iter_mut().for_each(|member| member.is_tracked &= held.contains(member.uid()));
    Ok(Ok(held))
}

fn is_held(meta: &Value) -> bool {
    meta["finalizers"].as_array().is_some_and(|finalizers| finalizers.iter().any(|finalizer| finalizer == TRACKING))
}
