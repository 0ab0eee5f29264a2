//! Approves kubelets' requests for client certificates, if the requestor is authorized to request them.

use super::request::Requested;
use super::{APPROVED, DENIED, KUBELET_CLIENT, is};
use crate::subject::Subject;
use holdfast_value::{Value, json};
use holdfast_world::views::CertificateSigningRequest;
use holdfast_world::{BackOff, Change, Controller, Key, Keys, Plan, Refusal, Resource, Stamp, View, Viewed, World};
use std::collections::BTreeMap;

/// For each kind of approval, the subresource of CertificateSigningRequest that the requestor must be allowed to
/// create, and the message of the approval. The first row is for a request by the node itself, the second row for a
/// request on behalf of any node.
const WAYS: [(&str, &str); 2] = [
    ("selfnodeclient", "Auto approving self kubelet client certificate after SubjectAccessReview."),
    ("nodeclient", "Auto approving kubelet client certificate after SubjectAccessReview."),
];

/// Each plan is for one CertificateSigningRequest.
#[derive(Default)]
pub struct Approver {
    /// For each CertificateSigningRequest, the access reviews that were made, as texts, and whether each review allowed
    /// the request. The entry stays until the request is approved.
    allowed: BTreeMap<Key, BTreeMap<String, bool>>,
}

impl Controller for Approver {
    fn name(&self) -> &'static str {
        "certificatesigningrequest-approving-controller"
    }

    fn queue(&self) -> &'static str {
        "certificate"
    }

    fn account(&self) -> &'static str {
        "certificate-controller"
    }

    fn back_off(&self) -> BackOff {
        BackOff { first_ms: 200, last_ms: 1_000_000 }
    }

    fn resources(&self) -> Vec<Resource> {
        vec![CertificateSigningRequest::resource().clone()]
    }

    fn concerns(&mut self, _: &World, change: &Change, keys: &mut Keys) {
        keys.add(change.key.clone());
    }

    fn plan(&mut self, world: &World, key: &Key, _: Stamp) -> Plan {
        let mut plan = Plan::default();
        let answers = self.allowed.remove(key).unwrap_or_default();
        let Some(found) = world.get::<CertificateSigningRequest>(key) else { return plan };
        let is_settled = !found.status.certificate.is_empty() || is(&found, APPROVED) || is(&found, DENIED);
        if is_settled || found.spec.signer_name != KUBELET_CLIENT {
            return plan;
        }
        let requested = match Requested::decode(&found.spec.request) {
            Ok(requested) => requested,
            Err(why) => {
                plan.skipped.push(format!("unable to parse csr {:?}: {why}", key.name));
                return plan;
            }
        };
        if let Err(why) = requested.kubelet_client(&found.spec.usages) {
            plan.skipped.push(why);
            return plan;
        }
        let own = requested.common_name == found.spec.username;
        let ways = WAYS.iter().filter(|(way, _)| own || *way != "selfnodeclient");
        for (way, message) in ways {
            let review = review(found, way);
            match answers.get(&review.to_string()) {
                None => {
                    self.allowed.insert(key.clone(), answers);
                    plan.reviews.push(review);
                    return plan;
                }
                Some(true) => {
                    plan.then(approve(found, message));
                    return plan;
                }
                Some(false) => {}
            }
        }
        // The requestor may get the right later, so the plan is tried again after a back-off.
        plan.skipped.push("subject access review was not approved".into());
        plan.unready = true;
        plan
    }

    fn reviewed(&mut self, key: &Key, review: &Value, answer: Result<Value, Refusal>) {
        // A review that the server refused counts as not allowed; the same review is made again with a later plan.
        let allowed = answer.is_ok_and(|answer| answer["status"]["allowed"] == true);
        self.allowed.entry(key.clone()).or_default().insert(review.to_string(), allowed);
    }
}

fn review(found: Viewed<'_, CertificateSigningRequest>, way: &str) -> Value {
    let spec = &found.object.document()["spec"];
    json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": spec["username"],
            "uid": spec["uid"],
            "groups": spec["groups"],
            "extra": spec["extra"],
            "resourceAttributes": {
                "group": "certificates.k8s.io", "resource": "certificatesigningrequests", "verb": "create",
                "subresource": way, "version": "*",
            },
        },
    })
}

fn approve(found: Viewed<'_, CertificateSigningRequest>, message: &str) -> holdfast_world::Action {
    let mut document = found.object.document();
    let condition = json!({"type": APPROVED, "status": "True", "reason": "AutoApproved", "message": message});
    match document["status"]["conditions"].as_array_mut() {
        Some(conditions) => conditions.push(condition),
        None => document["status"] = json!({"conditions": [condition]}),
    }
    Subject::from(found).update(document).subresource("approval")
}
