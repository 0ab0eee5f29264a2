//! Validation of Events, in both groups.

use crate::kinds::rules::{At, immutable, named, same};
use crate::kinds::shapes::qualified;
use crate::object::names::{self, NameRule};
use crate::object::validate;
use crate::refusal::{Cause, Causes};
use holdfast_value::{Map, Value};

const WORD_BYTES_MAX: usize = 128;
const MESSAGE_BYTES_MAX: usize = 1024;

/// The fields of an Event that cannot change.
const FIXED: [&str; 12] = [
    "involvedObject",
    "reason",
    "message",
    "source",
    "firstTimestamp",
    "lastTimestamp",
    "count",
    "type",
    "eventTime",
    "action",
    "related",
    "reportingInstance",
];

/// Validates an Event of the core group. Only newer Events, which have an `eventTime`, have required fields.
pub fn event(new: &Value, _: Option<&Value>) -> Causes {
    of_any_version(new, "reportingComponent")
}

/// Validates an Event written through `events.k8s.io`. This group has no fields for the data of older clients.
pub fn newer_event(new: &Value, old: Option<&Value>) -> Causes {
    let mut causes = of_any_version(new, "reportingController");
    let root = At::root(new);
    let empty = Map::new();
    let meta = |event: &Value| event["metadata"].as_object().cloned().unwrap_or_default();
    let Some(old) = old else {
        causes.append(validate::object_names(&meta(new), NameRule::Subdomain));
        causes.append(validate::standard_finalizers(new["metadata"].as_object().unwrap_or(&empty)));
        series(root.get("series"), &mut causes);
        newly_said(root, &mut causes);
        return causes;
    };
    causes.append(validate::metadata_update(&meta(new), &meta(old)));
    if !same(&new["series"], &old["series"]) {
        series(root.get("series"), &mut causes);
    }
    for field in FIXED {
        immutable(root.get(field), &old[field], &mut causes);
    }
    // As in Kubernetes, `reason` is checked twice.
    immutable(root.get("reason"), &old["reason"], &mut causes);
    let reporter = root.get("reportingController");
    immutable(reporter.holding(&new["reportingComponent"]), &old["reportingComponent"], &mut causes);
    causes
}

fn newly_said(root: At, causes: &mut Causes) {
    if root.get("eventTime").is_empty() {
        causes.push(root.get("eventTime").required(""));
    }
    let ty = root.get("type");
    if !matches!(ty.text(), "Normal" | "Warning") {
        causes.push(ty.invalid_unshown(&format!("has invalid value: {}", ty.text())));
    }
    for field in ["firstTimestamp", "lastTimestamp", "count", "source"] {
        if !same(root.get(field).value, &Value::Null) {
            causes.push(root.get(field).invalid_unshown("needs to be unset"));
        }
    }
}

fn series(series: At, causes: &mut Causes) {
    if !series.is_set() {
        return;
    }
    if series.get("count").number_or_zero() < 2 {
        causes.push(series.get("count").invalid_unshown("should be at least 2"));
    }
    if series.get("lastObservedTime").is_empty() {
        causes.push(series.get("lastObservedTime").required(""));
    }
}

fn of_any_version(new: &Value, reporting: &str) -> Causes {
    let mut causes = Causes::default();
    let root = At::root(new);
    let metadata = root.get("metadata");
    let namespace = metadata.get("namespace").text();
    let object = root.get("involvedObject");
    let about = object.get("namespace");
    let newer = !root.get("eventTime").is_empty();
    // Events about cluster-scoped objects must be in `default`; with `eventTime` set, `kube-system` is accepted too.
    let placed = match about.text() {
        "" => matches!(namespace, "" | "default") || (newer && namespace == "kube-system"),
        about => newer || about == namespace,
    };
    if !placed {
        causes.push(Cause::invalid(about.path(), &Value::from(about.text()), "does not match event.namespace"));
    }
    if newer {
        let reporter = root.get(reporting).holding(&new["reportingComponent"]);
        if reporter.is_empty() {
            causes.push(reporter.required(""));
        }
        let text = Value::from(reporter.text());
        qualified(reporter.holding(&text), &mut causes);
        // If this field is too long, Kubernetes' message misspells the name of the field.
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

fn at_most_characters(field: At, shown: At, bytes_max: usize, causes: &mut Causes) {
    if field.text().len() > bytes_max {
        causes.push(shown.invalid_unshown(&format!("can have at most {bytes_max} characters")));
    }
}

#[cfg(test)]
mod tests {
    use crate::kinds::rules::testing::check_rows;
    use holdfast_value::json;

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
                ("/reportingController", json!(""), "reportingController: Required value"),
                (
                    "/reportingController",
                    json!("a b"),
                    "reportingController: Invalid value: \"a b\": name part must cons",
                ),
                ("/reportingInstance", json!(""), "reportingInstance: Required value"),
                (
                    "/reportingInstance",
                    json!("a".repeat(129)),
                    "repotingIntance: Invalid value: \"\": can have at most 12",
                ),
                ("/action", json!(""), "action: Required value"),
                ("/reason", json!("a".repeat(129)), "reason: Invalid value: \"\": can have at most 128 characters"),
                ("/type", json!("Odd"), "type: Invalid value: \"\": has invalid value: Odd"),
                ("/series", json!({"count": 1}), "series.count: Invalid value: \"\": should be at least 2"),
                ("/deprecatedCount", json!(1), "count: Invalid value: \"\": needs to be unset"),
                ("/note", json!("m".repeat(1025)), "message: Invalid value: \"\": can have at most 1024 characters"),
            ],
        );
    }
}
