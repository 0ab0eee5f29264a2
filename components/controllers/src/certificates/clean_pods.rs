//! Deletes PodCertificateRequests some time after they were created, whether they were issued or not: a kubelet that
//! still waits for a certificate makes a new request.

use crate::subject::Subject;
use holdfast_world::views::PodCertificateRequest;
use holdfast_world::{Change, Controller, Key, Keys, Plan, Resource, Stamp, View, World};

/// The age in seconds at which a request is deleted.
const AGE_SECONDS: i64 = 15 * 60;

/// Each plan is for one PodCertificateRequest.
pub struct PodRequestCleaner;

impl Controller for PodRequestCleaner {
    fn name(&self) -> &'static str {
        "podcertificaterequest-cleaner-controller"
    }

    fn account(&self) -> &'static str {
        "podcertificaterequestcleaner"
    }

    fn resources(&self) -> Vec<Resource> {
        vec![PodCertificateRequest::resource().clone()]
    }

    fn concerns(&mut self, _: &World, change: &Change, keys: &mut Keys) {
        keys.add(change.key.clone());
    }

    fn plan(&mut self, world: &World, key: &Key, stamp: Stamp) -> Plan {
        let mut plan = Plan::default();
        let Some(found) = world.get::<PodCertificateRequest>(key) else { return plan };
        let Some(created) = found.meta().creation_timestamp else { return plan };
        let end = created.plus_seconds(AGE_SECONDS);
        if end <= stamp.time {
            plan.then(Subject::from(found).delete());
        } else {
            plan.requeue_at(end);
        }
        plan
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_value::{Value, json};
    use holdfast_world::trial::Trial;

    #[test]
    fn a_request_is_deleted_after_a_quarter_of_an_hour() {
        let mut trial = Trial::new().with(PodRequestCleaner);
        trial.create(json!({
            "apiVersion": "certificates.k8s.io/v1beta1", "kind": "PodCertificateRequest", "metadata": {"name": "r"},
            "spec": {"signerName": "example.com/signer", "podName": "p", "podUID": "u", "serviceAccountName": "default",
                "serviceAccountUID": "s", "nodeName": "n", "nodeUID": "n", "maxExpirationSeconds": 86_400,
                "pkixPublicKey": "AAAA", "proofOfPossession": "AAAA"},
        }));
        trial.run_for(AGE_SECONDS - 1);
        assert_eq!(trial.get("podcertificaterequests", "r")["metadata"]["name"], "r");
        trial.run_for(1);
        assert_eq!(trial.get("podcertificaterequests", "r"), Value::Null);
    }
}
