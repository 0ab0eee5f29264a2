//! The plan for one Job.

use super::job_pods::{JobPod, TRACKING};
use super::proof;
use super::sync::{Manage, Sync};
use super::tracking::Tracking;
use crate::claim::{self, Claims};
use crate::get_answers::{NeedsGet, PlanInput};
use crate::subject::Subject;
use holdfast_value::json;
use holdfast_world::views::{Job, Pod};
use holdfast_world::{Action, Plan, Time, Verb, Viewed, World};
use std::collections::BTreeSet;

/// The plan for a Job. `let_go` contains the uids of pods that the Job released and that still exist. This function
/// adds the uids of the pods that the plan releases.
pub fn plan(
    world: &World,
    job: Viewed<'_, Job>,
    read: PlanInput<'_>,
    let_go: &mut BTreeSet<String>,
    now: Time,
    manage: Manage,
) -> Result<Plan, NeedsGet> {
    let owner = Subject::from(job);
    if !matches!(job.spec.completion_mode.as_str(), "" | "NonIndexed" | "Indexed") {
        let message = "Skipped Job sync because completion mode is unknown";
        return Ok(Plan { events: vec![owner.warning("UnknownCompletionMode", message.into())], ..Plan::default() });
    }
    let Claims { mine, actions } =
        claim::claim(owner, claim::candidates::<Pod>(world, owner, &job.spec.selector), |meta| {
            job.spec.selector.matches(meta)
        });
    // Pods that this plan adopts are counted by a later plan, once the world shows the pods with their owner and the
    // finalizer.
    if !actions.is_empty() {
        let mut plan = Plan::default();
        plan.together(actions.into_iter().map(tracked).collect());
        return Ok(plan);
    }
    let mut members: Vec<JobPod<'_>> = mine.into_iter().map(|pod| JobPod::of(&job, pod)).collect();
    members.iter_mut().for_each(|member| member.is_released = let_go.contains(member.uid()));
    *let_go = members.iter().filter(|member| member.is_released).map(|member| member.uid().to_owned()).collect();
    let Ok(held) = proof::with_finalizer(world, job, &mut members, read)? else {
        return Ok(Plan { unready: true, ..Plan::default() });
    };
    let mut sync = Sync::new(owner, job, members, held, now);
    sync.decide();
    sync.act(manage);
    let_go.append(&mut sync.released);
    Ok(Tracking::finish(sync))
}

/// Adds the finalizer to the write that adopts a pod, and its removal to the write that releases a pod.
fn tracked(mut action: Action) -> Action {
    if let Verb::StrategicPatch(patch) = &mut action.verb {
        match patch["metadata"]["ownerReferences"][0]["controller"] == true {
            true => patch["metadata"]["finalizers"] = json!([TRACKING]),
            false => patch["metadata"]["$deleteFromPrimitiveList/finalizers"] = json!([TRACKING]),
        }
    }
    action
}
