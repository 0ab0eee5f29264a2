//! Validation of kinds with few rules: namespaces, events and service accounts.

use crate::kinds::rules::{At, named};
use crate::object::names;
use crate::refusal::Causes;
use holdfast_value::Value;

const STANDARD: [&str; 3] = ["kubernetes", "orphan", "foregroundDeletion"];

/// Validates a create. An update needs no check: it cannot change the finalizers, which have a subresource of their
/// own.
pub fn namespace(new: &Value, old: Option<&Value>) -> Causes {
    let mut causes = Causes::default();
    if old.is_some() {
        return causes;
    }
    let root = At::root(new);
    let spec = root.get("spec");
    let list = spec.get("finalizers");
    for finalizer in list.items() {
        // Kubernetes reports a fault of a new namespace's finalizer at the path of the list.
        finalizer_name(list.holding(finalizer.value), &mut causes);
    }
    causes
}

pub fn namespace_finalize(new: &Value, _: Option<&Value>) -> Causes {
    let mut causes = Causes::default();
    let root = At::root(new);
    let spec = root.get("spec");
    spec.get("finalizers").items().for_each(|finalizer| finalizer_name(finalizer, &mut causes));
    causes
}

fn finalizer_name(at: At, causes: &mut Causes) {
    named(at, names::qualified_name, causes);
    if !at.text().contains('/') && !STANDARD.contains(&at.text()) {
        causes.push(at.invalid("name is neither a standard finalizer name nor is it fully qualified"));
    }
}

/// Validates that the phase matches the deletion timestamp.
pub fn namespace_status(new: &Value, _: Option<&Value>) -> Causes {
    let root = At::root(new);
    let (metadata, status) = (root.get("metadata"), root.get("status"));
    let phase = status.get("phase");
    let (expected, state) =
        if metadata.get("deletionTimestamp").is_empty() { ("Active", "empty") } else { ("Terminating", "not empty") };
    if phase.text() == expected {
        return Causes::default();
    }
    let detail = format!("may only be '{expected}' if `deletionTimestamp` is {state}");
    status.get("Phase").invalid_as(phase.text(), &detail).into()
}

#[cfg(test)]
mod tests {
    use crate::kinds::rules::testing::{check_part, check_rows};
    use holdfast_value::json;

    #[test]
    fn each_rule_of_a_namespace() {
        let good = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"},
            "spec": {"finalizers": ["kubernetes"]}});
        check_rows(
            &good,
            &[
                ("/spec/finalizers/1", json!("example.com/wait"), ""),
                ("/spec/finalizers/1", json!("wait"), "spec.finalizers: Invalid value: \"wait\": name is neither a st"),
                ("/spec/finalizers/1", json!("a/b/c"), "spec.finalizers: Invalid value: \"a/b/c\": a valid label key"),
            ],
        );
        check_part(
            &good,
            "finalize",
            &[
                ("/spec/finalizers", json!([]), ""),
                ("/spec/finalizers/1", json!("wait"), "spec.finalizers[1]: Invalid value: \"wait\": name is neither"),
            ],
        );
        check_part(
            &good,
            "status",
            &[
                ("/status/conditions", json!([]), ""),
                (
                    "/status/phase",
                    json!("Terminating"),
                    "status.Phase: Invalid value: \"Terminating\": may only be 'Active' if `deletionTimestamp` is empty",
                ),
            ],
        );
    }

    #[test]
    fn each_rule_of_an_event() {
        let old = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "a", "namespace": "web"},
            "involvedObject": {"namespace": "web"}});
        let mismatch = "involvedObject.namespace: Invalid value: \"\": does not match event.namespace";
        check_rows(
            &old,
            &[
                ("/involvedObject", json!({}), mismatch),
                ("/involvedObject/namespace", json!("b"), "involvedObject.namespace: Invalid value: \"b\": does not"),
                ("/message", json!("x".repeat(2000)), ""),
            ],
        );
        let new = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "a", "namespace": "web"},
            "involvedObject": {"namespace": "web"}, "eventTime": "2026-01-01T00:00:00.000000Z",
            "reportingComponent": "example.com/c", "reportingInstance": "c-0", "action": "Pulled", "reason": "Ready"});
        check_rows(
            &new,
            &[
                ("/involvedObject", json!({}), mismatch),
                ("/reportingComponent", json!(""), "reportingComponent: Required value"),
                ("/reportingComponent", json!("a b"), "reportingComponent: Invalid value: \"a b\": name part must"),
                ("/reportingInstance", json!(""), "reportingInstance: Required value"),
                ("/action", json!("x".repeat(129)), "action: Invalid value: \"\": can have at most 128 characters"),
                ("/reason", json!(""), "reason: Required value"),
                ("/message", json!("x".repeat(2000)), "message: Invalid value: \"\": can have at most 1024 characters"),
            ],
        );
    }
}
