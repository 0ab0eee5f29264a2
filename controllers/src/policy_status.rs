//! Says in the status of admission policies how their expressions fit the objects that they are about.

use holdfast_core::kinds::admissionregistration::type_checks;
use holdfast_core::kinds::registry;
use holdfast_world::views::ValidatingAdmissionPolicy;
use holdfast_world::{Action, Change, Controller, Key, Keys, Plan, Resource, Stamp, Verb, View, World};
use serde_json::{Value, json};

const MANAGER: &str = "validatingadmissionpolicy-status";

/// Plans a policy at a time.
pub struct PolicyStatus;

impl Controller for PolicyStatus {
    fn name(&self) -> &'static str {
        "validatingadmissionpolicy-status-controller"
    }

    fn resources(&self) -> Vec<Resource> {
        vec![ValidatingAdmissionPolicy::resource().clone()]
    }

    fn concerns(&mut self, _: &World, change: &Change, keys: &mut Keys) {
        keys.add(change.key.clone());
    }

    fn plan(&mut self, world: &World, key: &Key, _: Stamp) -> Plan {
        let mut plan = Plan::default();
        let Some(found) = world.get::<ValidatingAdmissionPolicy>(key) else { return plan };
        if found.status.observed_generation >= found.meta().generation {
            return plan;
        }
        let warnings = type_checks::check(&found.object.document(), registry());
        let told = |warning: &type_checks::Warning| json!({"fieldRef": warning.field, "warning": warning.text});
        let mut checking = json!({});
        if !warnings.is_empty() {
            checking["expressionWarnings"] = warnings.iter().map(told).collect::<Vec<Value>>().into();
        }
        let resource = ValidatingAdmissionPolicy::resource();
        let body = json!({
            "apiVersion": resource.api_version(),
            "kind": resource.kind(),
            "metadata": {"name": found.meta().name, "uid": found.meta().uid},
            "status": {"observedGeneration": found.meta().generation, "typeChecking": checking},
        });
        plan.then(Action::new(resource, key.clone(), Verb::Apply(body)).subresource("status").manager(MANAGER));
        plan
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_world::Trial;

    #[test]
    fn each_generation_is_checked_once() {
        let mut trial = Trial::new().with(PolicyStatus);
        let rules = json!([{"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["deployments"]}]);
        trial.create(json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": "p"}, "spec": {"matchConstraints": {"resourceRules": rules},
            "validations": [{"expression": "object.spec.nothing > 1"}]}}));
        trial.run();
        let status = trial.get("validatingadmissionpolicies", "p")["status"].clone();
        assert_eq!(status["observedGeneration"], 1);
        assert_eq!(status["typeChecking"]["expressionWarnings"][0]["fieldRef"], "spec.validations[0].expression");
        trial.patch("validatingadmissionpolicies", "p", json!({"spec": {"validations": [{"expression": "true"}]}}));
        trial.run();
        let status = trial.get("validatingadmissionpolicies", "p")["status"].clone();
        assert_eq!(
            (&status["observedGeneration"], &status["typeChecking"]["expressionWarnings"]),
            (&json!(2), &Value::Null)
        );
    }
}
