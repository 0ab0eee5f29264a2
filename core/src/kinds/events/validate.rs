//! The rules of events, whichever group they come through.

use crate::kinds::rules::{At, named};
use crate::kinds::shapes::qualified;
use crate::object::names;
use crate::refusal::Cause;
use serde_json::Value;

const WORD_BYTES_MAX: usize = 128;
const MESSAGE_BYTES_MAX: usize = 1024;

/// Only events of the newer form, which have a time of their own, must say everything.
pub fn event(new: &Value, _: Option<&Value>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let root = At::root(new);
    let metadata = root.get("metadata");
    let namespace = metadata.get("namespace").text();
    let object = root.get("involvedObject");
    let about = object.get("namespace");
    let newer = !root.get("eventTime").is_empty();
    // What has no namespace is told of in the default one, by newer clients also in that of the system.
    let placed = match about.text() {
        "" => matches!(namespace, "" | "default") || (newer && namespace == "kube-system"),
        about => newer || about == namespace,
    };
    if !placed {
        causes.push(Cause::invalid(about.path(), &Value::from(about.text()), "does not match event.namespace"));
    }
    if newer {
        let reporter = root.get("reportingComponent");
        if reporter.is_empty() {
            causes.push(reporter.required(""));
        }
        let text = Value::from(reporter.text());
        qualified(reporter.holding(&text), &mut causes);
        // Kubernetes misspells the name of a field that is too long.
        let misspelt = root.get("repotingIntance");
        for (field, shown) in [
            (root.get("reportingInstance"), misspelt),
            (root.get("action"), root.get("action")),
            (root.get("reason"), root.get("reason")),
        ] {
            if field.is_empty() {
                causes.push(field.required(""));
            }
            at_most_characters(field, shown, WORD_BYTES_MAX, &mut causes);
        }
        let message = root.get("message");
        at_most_characters(message, message, MESSAGE_BYTES_MAX, &mut causes);
    }
    let place = root.get("namespace");
    let text = Value::from(namespace);
    if !namespace.is_empty() {
        named(place.holding(&text), names::subdomain, &mut causes);
    }
    causes
}

fn at_most_characters(field: At, shown: At, bytes_max: usize, causes: &mut Vec<Cause>) {
    if field.text().len() > bytes_max {
        causes.push(shown.invalid_unshown(&format!("can have at most {bytes_max} characters")));
    }
}

#[cfg(test)]
mod tests {
    use crate::kinds::rules::testing::check_rows;
    use serde_json::json;

    #[test]
    fn each_rule() {
        let old = json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": "a", "namespace": "n"},
            "involvedObject": {"kind": "Pod", "name": "p", "namespace": "n"}, "message": "m",
        });
        let elsewhere = "involvedObject.namespace: Invalid value: ";
        check_rows(
            &old,
            &[
                ("/involvedObject/namespace", json!("m"), &format!("{elsewhere}\"m\": does not match event.namespace")),
                ("/involvedObject/namespace", json!(""), &format!("{elsewhere}\"\": does not match event.namespace")),
                ("/message", json!("m".repeat(2000)), ""),
            ],
        );
        let mut node = old.clone();
        node["metadata"]["namespace"] = json!("default");
        node["involvedObject"] = json!({"kind": "Node", "name": "n"});
        check_rows(&node, &[]);
        let new = json!({
            "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "a", "namespace": "n"},
            "regarding": {"kind": "Pod", "name": "p", "namespace": "n"}, "eventTime": "2024-01-01T00:00:00.000000Z",
            "reportingController": "example.com/c", "reportingInstance": "c-1", "action": "Go", "reason": "Because",
            "type": "Normal",
        });
        check_rows(
            &new,
            &[
                ("/reportingController", json!(""), "reportingComponent: Required value"),
                (
                    "/reportingController",
                    json!("a b"),
                    "reportingComponent: Invalid value: \"a b\": name part must cons",
                ),
                ("/reportingInstance", json!(""), "reportingInstance: Required value"),
                (
                    "/reportingInstance",
                    json!("a".repeat(129)),
                    "repotingIntance: Invalid value: \"\": can have at most 12",
                ),
                ("/action", json!(""), "action: Required value"),
                ("/reason", json!("a".repeat(129)), "reason: Invalid value: \"\": can have at most 128 characters"),
                ("/note", json!("m".repeat(1025)), "message: Invalid value: \"\": can have at most 1024 characters"),
            ],
        );
    }
}
