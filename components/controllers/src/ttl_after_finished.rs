//! Deletes finished Jobs when their time to live is over.

use crate::planted::{Bug, planted};
use crate::subject::Subject;
use holdfast_world::views::Job;
use holdfast_world::{Action, Change, Controller, Key, Keys, Plan, Propagation, Resource, Stamp, Verb, View, World};

#[derive(Default)]
pub struct TtlAfterFinished;

impl Controller for TtlAfterFinished {
    fn name(&self) -> &'static str {
        "ttl-after-finished-controller"
    }

    fn queue(&self) -> &'static str {
        "ttl_jobs_to_delete"
    }

    fn resources(&self) -> Vec<Resource> {
        vec![Job::resource().clone()]
    }

    fn concerns(&mut self, _: &World, change: &Change, keys: &mut Keys) {
        let is_due = |job: &Job| job.spec.ttl_seconds_after_finished.is_some() && job.is_finished();
        if change.after::<Job>().is_some_and(|job| is_due(&job)) {
            keys.add(change.key.clone());
        }
    }

    fn plan(&mut self, world: &World, key: &Key, stamp: Stamp) -> Plan {
        let mut plan = Plan::default();
        let Some(job) = world.get::<Job>(key).filter(|job| !job.meta().is_deleting()) else { return plan };
        let finished = job.end().and_then(|end| end.last_transition_time);
        let (Some(finished), Some(seconds)) = (finished, job.spec.ttl_seconds_after_finished) else { return plan };
        let expiry = finished.plus_seconds(seconds);
        if stamp.time < expiry && !planted(Bug::TimeIgnored) {
            plan.requeue_at(expiry);
            return plan;
        }
        let owner = Subject::from(job);
        let verb = Verb::Delete {
            uid: Some(job.meta().uid.as_str().into()),
            // The delete request has the Job's version as a precondition: if a user has just extended the time to live,
            // the Job stays.
            version: Some(job.meta().resource_version.as_str().into()),
            propagation: Some(Propagation::Foreground),
            grace_seconds: None,
        };
        plan.then(Action::new(owner.resource, key.clone(), verb));
        plan
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_value::{Value, json};
    use holdfast_world::trial::Trial;

    #[test]
    fn a_finished_job_goes_when_its_time_has_come() {
        let mut trial = Trial::new().with(TtlAfterFinished);
        trial.create(json!({
            "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"},
            "spec": {"completions": 0, "template": {
                "spec": {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"},
            }},
        }));
        trial.run_for(1000);
        let now = trial.now();
        let condition = |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": now});
        let status = json!({"startTime": now, "completionTime": now, "uncountedTerminatedPods": {},
            "conditions": [condition("SuccessCriteriaMet"), condition("Complete")]});
        trial.patch_status("jobs", "j", status);
        trial.patch("jobs", "j", json!({"spec": {"ttlSecondsAfterFinished": 60}}));
        trial.run_for(59);
        assert_eq!(trial.get("jobs", "j")["metadata"]["deletionTimestamp"], Value::Null);
        trial.run_for(1);
        let job = trial.get("jobs", "j");
        assert_eq!(job["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    }
}
