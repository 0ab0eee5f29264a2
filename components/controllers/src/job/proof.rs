//! Decides which pods are not counted yet, also in cases that the world alone cannot decide.
//!
//! The status of a Job and the finalizers of its pods together show which pods are counted, but the world updates each
//! resource separately: the world's pods may be older than the world's Job. A pod with the finalizer in the world may
//! have been released and counted by another manager; a pod that the world does not have yet may still have its
//! finalizer. If the world's pods are older than the Job, the server is asked. Its answer may be used only for a write
//! of the status with the `resourceVersion` of the world's Job: the write fails if another manager has changed the
//! status since.

use super::job_pods::{JobPod, TRACKING};
use crate::get_answers::{NeedsGet, PlanInput, pods_path};
use crate::planted::{Bug, planted};
use holdfast_value::Value;
use holdfast_world::views::{Job, Pod};
use holdfast_world::{Refusal, View, Viewed, World};
use std::collections::BTreeSet;

/// The uids of the pods that have the finalizer. If the server was asked, this function sets `is_tracked` to false for
/// each of the `members` that has no finalizer in the server's answer.
pub fn with_finalizer<'r>(
    world: &World,
    job: Viewed<'_, Job>,
    members: &mut [JobPod<'_>],
    read: PlanInput<'r>,
) -> Result<Result<BTreeSet<String>, &'r Refusal>, NeedsGet> {
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
    let tracked = items.map(|pod| &pod["metadata"]).filter(|meta| is_held(meta));
    let held: BTreeSet<String> = tracked.filter_map(|meta| Some(meta["uid"].as_str()?.to_owned())).collect();
    members.iter_mut().for_each(|member| member.is_tracked &= held.contains(member.uid()));
    Ok(Ok(held))
}

fn is_held(meta: &Value) -> bool {
    meta["finalizers"].as_array().is_some_and(|finalizers| finalizers.iter().any(|finalizer| finalizer == TRACKING))
}

#[cfg(test)]
mod tests {
    use crate::job::Jobs;
    use holdfast_value::{Value, json};
    use holdfast_world::views::{Job, Pod};
    use holdfast_world::{BackOff, Driver, Key, Plan, Resource, Stamp, TaskOutcome, Time, View};

    fn pod(held: bool) -> Value {
        let finalizers = if held { json!([super::TRACKING]) } else { json!([]) };
        json!({"metadata": {"name": "p", "namespace": "default", "uid": "p", "labels": {"job": "j"}, "finalizers": finalizers,
            "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j", "controller": true}]},
            "status": {"phase": "Succeeded"}})
    }

    /// A driver with a Job at version 10 and this status. The driver's pods are at version `pods_at`, and its one pod
    /// has the finalizer if `held` is true.
    fn driver(pods_at: u64, held: bool, status: &Value) -> Driver {
        let (mut driver, now) = (Driver::new(), Time::from_second(1_795_255_200));
        driver.add(Box::new(Jobs::default()), 1, BackOff::default());
        let mut see = |resource: &Resource, name: &str, object: Value, version: u64| {
            let mut object = object;
            object["metadata"]["resourceVersion"] = json!(version.to_string());
            driver.apply(resource, Key::new("default", name), Some(object.to_string().into()), version, now);
        };
        let job = json!({"metadata": {"name": "j", "namespace": "default", "uid": "j", "generation": 1},
            "spec": {"completions": 2, "parallelism": 1, "selector": {"matchLabels": {"job": "j"}},
                "template": {"spec": {"restartPolicy": "Never"}}},
            "status": status});
        see(Pod::resource(), "p", pod(held), pods_at);
        see(Job::resource(), "j", job, 10);
        driver.complete();
        driver
    }

    /// Whether the plan asks the server for the Job's pods, and the final plan. If the server is asked, its answer
    /// contains a pod with the finalizer if `held` is true.
    fn planned(driver: &mut Driver, held: bool) -> (bool, Plan) {
        let stamp = || Stamp { time: Time::from_second(1_795_255_200), seed: 1 };
        let task = driver.next_task(stamp).expect("a plan");
        let Some(path) = task.plan.gets.first() else { return (false, task.plan) };
        assert_eq!(path, "/api/v1/namespaces/default/pods?labelSelector=job%3Dj");
        driver.answered(task.controller_index, &task.key, path, Ok(json!({"items": [pod(held)]})));
        let again = TaskOutcome { requeue_at: Some(stamp().time), ..TaskOutcome::default() };
        driver.finish(task.controller_index, task.key, again, stamp().time);
        (true, driver.next_task(stamp).expect("the plan that was asked for").plan)
    }

    fn status_of(plan: &Plan) -> Value {
        let action = plan.steps.iter().flatten().find(|action| action.subresource == "status").expect("a status");
        let document = action.verb.document().expect("a status is replaced");
        document["status"].clone()
    }

    #[test]
    fn old_news_of_pods_are_checked_before_anything_is_counted() {
        let counted = json!({"succeeded": 1, "uncountedTerminatedPods": {}});
        let waits = json!({"uncountedTerminatedPods": {"succeeded": ["p"]}});
        for (pods_at, in_world, status, on_server, asks, succeeded, uncounted) in [
            // The world's pods are newer than the Job, so the server is not asked.
            (11, true, &counted, true, false, 1, 1),
            // The status counts the pod already, but in the world the pod still has the finalizer. If the server's pod
            // has no finalizer, the pod is not counted again.
            (9, true, &counted, false, true, 1, 0),
            (9, true, &counted, true, true, 1, 1),
            // The status lists the pod as uncounted. In the first case the server's pod has lost its finalizer, so the
            // pod may be counted; in the second case it still has the finalizer.
            (9, true, &waits, false, true, 1, 0),
            (9, false, &waits, true, true, 0, 1),
        ] {
            let mut driver = driver(pods_at, in_world, status);
            let (asked, plan) = planned(&mut driver, on_server);
            let status = status_of(&plan);
            let left = status["uncountedTerminatedPods"]["succeeded"].as_array().map_or(0, Vec::len);
            let found = (asked, status["succeeded"].as_i64().unwrap_or(0), left);
            assert_eq!(found, (asks, succeeded, uncounted), "pods at {pods_at}: {status}");
        }
    }
}
