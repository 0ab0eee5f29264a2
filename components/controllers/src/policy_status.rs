//! Checks the types in the expressions of ValidatingAdmissionPolicies against the kinds that the policies match, and
//! writes the errors into the policies' status.

use holdfast_core::event::Offset;
use holdfast_core::kinds::admissionregistration::type_checks;
use holdfast_core::kinds::{Registry, custom, registry};
use holdfast_value::{Value, json};
use holdfast_world::views::{Definition, ValidatingAdmissionPolicy};
use holdfast_world::{Action, Change, Controller, Key, Keys, Plan, Resource, Stamp, Verb, View, World};

const MANAGER: &str = "validatingadmissionpolicy-status";

/// The index of CustomResourceDefinitions by the group of their kind.
const GROUP: &str = "policies/group";

/// Each plan is for one ValidatingAdmissionPolicy.
pub struct PolicyStatus;

impl Controller for PolicyStatus {
    fn name(&self) -> &'static str {
        "validatingadmissionpolicy-status-controller"
    }

    fn resources(&self) -> Vec<Resource> {
        vec![ValidatingAdmissionPolicy::resource().clone(), Definition::resource().clone()]
    }

    fn indexes(&self, world: &mut World) {
        world.index::<Definition>(GROUP, |object| {
            object.view::<Definition>().into_iter().map(|found| found.spec.group.as_str().into()).collect()
        });
    }

    /// A policy is checked when it changes, against the kinds that exist at that time; a later change of a kind causes
    /// no check.
    fn concerns(&mut self, _: &World, change: &Change, keys: &mut Keys) {
        if change.is_of::<ValidatingAdmissionPolicy>() {
            keys.add(change.key.clone());
        }
    }

    fn plan(&mut self, world: &World, key: &Key, _: Stamp) -> Plan {
        let mut plan = Plan::default();
        let Some(found) = world.get::<ValidatingAdmissionPolicy>(key) else { return plan };
        if found.status.observed_generation >= found.meta().generation {
            return plan;
        }
        let policy = found.object.document();
        let warnings = type_checks::check(&policy, &kinds(world, &policy));
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

/// The built-in kinds, and the custom kinds of the groups that a policy's rules name.
fn kinds(world: &World, policy: &Value) -> Registry {
    let mut kinds = registry().clone();
    for group in type_checks::groups(policy) {
        for definition in world.indexed::<Definition>(GROUP, &group) {
            let document = definition.object.document();
            let stored = document.to_string().into();
            if let Some(kind) = custom::kind_of(&stored, Offset::ZERO, &document) {
                kinds.add(kind);
            }
        }
    }
    kinds
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
    /// In expressions, objects of custom kinds have the types of their schema, and metadata with all of its fields.
    #[test]
    fn custom_kinds_are_known_by_their_definitions() {
        let mut trial = Trial::new().with(PolicyStatus);
        let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "size": {"type": "integer"}, "free": {"x-kubernetes-preserve-unknown-fields": true}}}}});
        let version = json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}});
        trial.create(json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "widgets.shop.example.com"},
            "spec": {"group": "shop.example.com", "scope": "Namespaced", "versions": [version],
                "names": {"plural": "widgets", "kind": "Widget"}}}));
        trial.run();
        let rules = json!([{"apiGroups": ["shop.example.com"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["widgets"]}]);
        for (name, expression, fault) in [
            (
                "a",
                "object.spec.nothing > 1",
                "shop.example.com/v1, Kind=Widget: ERROR: <input>:1:12: undefined field 'nothing'",
            ),
            ("b", "object.spec.size == 'x'", "found no matching overload for '_==_'"),
            ("c", "object.spec.size > 1 && object.metadata.labels['a'] == 'b' && object.metadata.generation > 1", ""),
            ("d", "params.spec.nothing > 1", "undefined field 'nothing'"),
        ] {
            let mut spec =
                json!({"matchConstraints": {"resourceRules": rules}, "validations": [{"expression": expression}]});
            if name == "d" {
                spec["paramKind"] = json!({"apiVersion": "shop.example.com/v1", "kind": "Widget"});
            }
            trial.create(json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
                "metadata": {"name": name}, "spec": spec}));
            trial.run();
            let checking = trial.get("validatingadmissionpolicies", name)["status"]["typeChecking"].clone();
            let warning = checking["expressionWarnings"][0]["warning"].as_str().unwrap_or_default();
            assert_eq!(
                (warning.contains(fault), warning.is_empty()),
                (true, fault.is_empty()),
                "{expression}: {warning}"
            );
        }
    }
}
