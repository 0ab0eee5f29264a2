//! Validation of claims of persistent volumes.

use super::resources::{amount, positive, text};
use crate::kinds::rules::{
    At, compare, immutable, is_less, known, labels, named_if_any, need, need_one_of, same, selector,
};
use crate::object::{names, validate};
use crate::refusal::{Cause, CauseReason, Causes};
use crate::schema::quantity;
use holdfast_value::{Value, json};
use std::cmp::Ordering;

const ACCESS_MODES: &[&str] = &["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
const CLAIM_FIXED: &str = "spec is immutable after creation except resources.requests and volumeAttributesClassName \
                           for bound claims";
const OLD_CLASS: &str = "volume.beta.kubernetes.io/storage-class";
const RESIZE_STATES: &[&str] = &[
    "ControllerResizeInProgress",
    "ControllerResizeInfeasible",
    "NodeResizeInProgress",
    "NodeResizeInfeasible",
    "NodeResizePending",
];

/// Reports a negative amount. Kubernetes shows it as an integer.
pub(super) fn not_less_than_nothing(size: At, causes: &mut Causes) {
    if let Some(nanos) = quantity::nanos(&text(size.value)).filter(|nanos| *nanos < 0) {
        let shown = i64::try_from(nanos / 1_000_000_000).unwrap_or(i64::MIN);
        if shown < 0 {
            causes.push(size.invalid_as(shown, "must be a valid resource quantity"));
        }
    }
}

/// Validates access modes. Kubernetes reports a wrong mode at the path of the list.
pub(super) fn access_modes(list: At, detail: &str, causes: &mut Causes) {
    if list.is_empty() {
        causes.push(list.required(detail));
    }
    let (mut alone, mut shared) = (false, false);
    for mode in list.items() {
        need_one_of(list.holding(mode.value), ACCESS_MODES, causes);
        alone |= mode.text() == "ReadWriteOncePod";
        shared |= mode.text() != "ReadWriteOncePod" && ACCESS_MODES.contains(&mode.text());
    }
    if alone && shared {
        causes.push(list.forbidden("may not use ReadWriteOncePod with other access modes"));
    }
}

pub fn claim(new: &Value, old: Option<&Value>) -> Causes {
    let mut causes = Causes::default();
    let root = At::root(new);
    claim_spec(root.get("spec"), &mut causes);
    if let Some(old) = old {
        claim_update(root, old, &mut causes);
    }
    causes
}

/// Validates `volumeClaimTemplate` of a pod: its metadata may have only labels and annotations.
pub(super) fn claim_template(template: At, causes: &mut Causes) {
    let metadata = template.get("metadata");
    let annotations = metadata.get("annotations");
    if let Value::Object(map) = annotations.value {
        validate::annotations(map, &annotations.path(), causes);
    }
    labels(metadata.get("labels"), causes);
    for (field, value) in metadata.value.as_object().into_iter().flatten() {
        let at = metadata.get(field);
        if !matches!(field.as_str(), "annotations" | "labels") && !same(value, &Value::Null) {
            causes.push(at.forbidden("cannot be set"));
        }
    }
    claim_spec(template.get("spec"), causes);
}

pub fn claim_spec(spec: At, causes: &mut Causes) {
    access_modes(spec.get("accessModes"), "at least 1 access mode is required", causes);
    selector(spec.get("selector"), causes);
    let resources = spec.get("resources");
    let size = resources.key("storage").holding(&resources.value["requests"]["storage"]);
    if size.is_set() {
        positive(size, causes);
    } else {
        causes.push(size.required(""));
    }
    named_if_any(spec.get("storageClassName"), names::subdomain, causes);
    known(spec.get("volumeMode"), &["Block", "Filesystem"], causes);
    let (source, reference) = (spec.get("dataSource"), spec.get("dataSourceRef"));
    for source in [source, reference] {
        if source.is_set() {
            data_source(source, causes);
        }
    }
    let namespace = reference.get("namespace");
    named_if_any(namespace, names::label, causes);
    // Kubernetes' message shows `{}` instead of a value.
    let elsewhere =
        |detail: &str| Cause::told(CauseReason::Invalid, spec.path(), format!("Invalid value: {{}}: {detail}"));
    if source.is_set() && !namespace.is_empty() {
        causes.push(elsewhere("may not be specified when dataSourceRef.namespace is specified"));
    } else if source.is_set() && reference.is_set() && !same(source.value, reference.value) {
        causes.push(elsewhere("must match dataSourceRef"));
    }
    named_if_any(spec.get("volumeAttributesClassName"), names::subdomain, causes);
}

fn data_source(source: At, causes: &mut Causes) {
    need(source.get("name"), causes);
    let (kind, group) = (source.get("kind"), source.get("apiGroup"));
    need(kind, causes);
    if group.is_empty() && kind.text() != "PersistentVolumeClaim" {
        let detail = "must be 'PersistentVolumeClaim' when referencing the default apiGroup";
        causes.push(source.invalid_as(kind.text(), detail));
    }
    named_if_any(group, names::subdomain, causes);
}

/// Validates an update. The spec of a claim is immutable, with these exceptions: the volume and the storage class may
/// be set once, and a bound claim may change its storage request and its VolumeAttributesClass.
fn claim_update(root: At, old: &Value, causes: &mut Causes) {
    let (spec, old_spec) = (root.get("spec"), &old["spec"]);
    let (mut was, mut kept) = (old_spec.clone(), spec.value.clone());
    if old_spec["volumeName"].as_str().is_none_or(str::is_empty) {
        was["volumeName"] = kept["volumeName"].clone();
    }
    let annotation = |claim: &Value| claim["metadata"]["annotations"][OLD_CLASS].clone();
    let (new_class, old_class) = (&spec.value["storageClassName"], annotation(old));
    let named_late = old_spec["storageClassName"].is_null() && !new_class.is_null();
    if named_late && (old_class.is_null() || old_class == *new_class) {
        kept["storageClassName"] = Value::Null;
    }
    let moved = named_late && old_class == *new_class && annotation(root.value).is_null();
    if annotation(root.value) != old_class && !moved {
        let metadata = root.get("metadata");
        let annotations = metadata.get("annotations");
        let shown = annotation(root.value).as_str().unwrap_or_default().to_owned();
        causes.push(annotations.get(OLD_CLASS).invalid_as(shown, "field is immutable"));
    }
    let class = spec.get("volumeAttributesClassName");
    let (size, old_size) =
        (&spec.value["resources"]["requests"]["storage"], &old_spec["resources"]["requests"]["storage"]);
    if root.value["status"]["phase"] == "Bound" {
        if kept["resources"]["requests"].is_object() {
            kept["resources"]["requests"]["storage"] = old_size.clone();
        }
        if class.is_set() {
            kept["volumeAttributesClassName"] = old_spec["volumeAttributesClassName"].clone();
        }
    }
    if !same(&kept, &was) {
        causes.push(Cause::changed(spec.path(), CLAIM_FIXED, &was, &kept));
    }
    let nothing = json!("0");
    let size = if size.is_null() { &nothing } else { size };
    if is_less(size, old_size) {
        // A failed expansion may be retried with a smaller request, which must exceed the present capacity.
        let there = &old["status"]["capacity"]["storage"];
        let there = if there.is_null() { &json!("0") } else { there };
        if compare(size, there) != Some(Ordering::Greater) {
            let resources = spec.get("resources");
            let requests = resources.get("requests");
            causes.push(requests.get("storage").forbidden("field can not be less than status.capacity"));
        }
    }
    immutable(root.get("volumeMode").holding(&spec.value["volumeMode"]), &old_spec["volumeMode"], causes);
    if !old_spec["volumeAttributesClassName"].is_null() && class.is_set() && class.is_empty() {
        causes.push(class.forbidden("update from non-nil value to an empty string is forbidden"));
    }
}

pub fn claim_status(new: &Value, _: Option<&Value>) -> Causes {
    let mut causes = Causes::default();
    let root = At::root(new);
    let status = root.get("status");
    for (_, size) in status.get("capacity").entries() {
        not_less_than_nothing(size, &mut causes);
    }
    let states = status.get("allocatedResourceStatus");
    for (resource, state) in status.get("allocatedResourceStatuses").entries() {
        claim_resource(resource, states, &mut causes);
        if !RESIZE_STATES.contains(&state.text()) {
            let shown = Value::from(resource);
            causes.push(states.holding(&shown).not_supported(RESIZE_STATES));
        }
    }
    let allocated = status.get("allocatedResources");
    for (resource, size) in allocated.entries() {
        claim_resource(resource, allocated, &mut causes);
        amount("storage", size, &mut causes);
    }
    causes
}

/// Validates the name of a claim's resource. Among native resources, only `storage` is allowed.
fn claim_resource(name: &str, at: At, causes: &mut Causes) {
    let messages = names::qualified_name(name);
    let is_native = !name.contains('/') || name.contains("kubernetes.io/");
    if messages.is_empty() && is_native && name != "storage" {
        let shown = Value::from(name);
        causes.push(at.holding(&shown).not_supported(&["storage"]));
    }
    causes.extend(messages.iter().map(|message| at.invalid_as(name, message)));
}

#[cfg(test)]
mod tests {
    use super::claim_update;
    use crate::kinds::rules::testing::{check_part, check_rows, check_updates};
    use crate::object::at::At;
    use crate::refusal::Causes;
    use holdfast_value::{Value, json};

    fn claim() -> Value {
        json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "a"},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        })
    }

    #[test]
    fn each_rule_of_a_claim() {
        check_rows(
            &claim(),
            &[
                ("/spec/accessModes", json!([]), "spec.accessModes: Required value: at least 1 access mode"),
                ("/spec/accessModes/0", json!("Write"), "spec.accessModes: Unsupported value: \"Write\""),
                (
                    "/spec/accessModes",
                    json!(["ReadWriteOnce", "ReadWriteOncePod"]),
                    "spec.accessModes: Forbidden: may not use ReadWriteOncePod with other access modes",
                ),
                ("/spec/resources", Value::Null, "spec.resources[storage]: Required value"),
                ("/spec/resources/requests/storage", json!("0"), "spec.resources[storage]: Invalid value: \"0\""),
                ("/spec/volumeMode", json!("Tape"), "spec.volumeMode: Unsupported value: \"Tape\""),
                ("/spec/storageClassName", json!("A"), "spec.storageClassName: Invalid value: \"A\""),
                ("/spec/storageClassName", json!(""), ""),
                (
                    "/spec/dataSource",
                    json!({"kind": "VolumeSnapshot", "name": "a"}),
                    "spec.dataSource: Invalid value: \"VolumeSnapshot\": must be 'PersistentVolumeClaim' when",
                ),
                ("/spec/dataSource", json!({"kind": "PersistentVolumeClaim"}), "spec.dataSource.name: Required value"),
                (
                    "/spec",
                    json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
                        "dataSource": {"kind": "PersistentVolumeClaim", "name": "a"},
                        "dataSourceRef": {"kind": "PersistentVolumeClaim", "name": "b"}}),
                    "spec: Invalid value: {}: must match dataSourceRef",
                ),
            ],
        );
    }

    /// The change that the message shows omits the permitted binding. It shows only the removed class.
    #[test]
    fn a_claim_may_be_bound_beside_what_is_refused() {
        let mut old = claim();
        old["spec"]["storageClassName"] = json!("x");
        let mut new = claim();
        new["spec"]["volumeName"] = json!("v");
        let mut causes = Causes::default();
        claim_update(At::root(&new), &old, &mut causes);
        let (was, kept) = *causes[0].take_change().expect("what has changed");
        assert_eq!((&was["volumeName"], &kept["volumeName"]), (&json!("v"), &json!("v")));
        assert_eq!((&was["storageClassName"], &kept["storageClassName"]), (&json!("x"), &Value::Null));
    }

    #[test]
    fn a_claim_keeps_its_spec_and_grows() {
        check_updates(
            &claim(),
            &[
                ("/spec/volumeName", json!("v"), ""),
                ("/spec/storageClassName", json!("fast"), ""),
                ("/spec/accessModes/0", json!("ReadOnlyMany"), "spec: Forbidden: spec is immutable after creation"),
                ("/spec/resources/requests/storage", json!("2Gi"), "spec: Forbidden: spec is immutable after creation"),
                ("/spec/volumeMode", json!("Block"), "volumeMode: Invalid value: \"Block\": field is immutable"),
            ],
        );
        let mut bound = claim();
        bound["status"] = json!({"phase": "Bound", "capacity": {"storage": "1Gi"}});
        bound["spec"]["volumeName"] = json!("v");
        bound["spec"]["volumeAttributesClassName"] = json!("gold");
        check_updates(
            &bound,
            &[
                ("/spec/resources/requests/storage", json!("2Gi"), ""),
                (
                    "/spec/resources/requests/storage",
                    json!("512Mi"),
                    "spec.resources.requests.storage: Forbidden: field can not be less than status.capacity",
                ),
                ("/spec/volumeName", json!("w"), "spec: Forbidden: spec is immutable after creation"),
                ("/spec/volumeAttributesClassName", json!("silver"), ""),
                (
                    "/spec/volumeAttributesClassName",
                    json!(""),
                    "spec.volumeAttributesClassName: Forbidden: update from non-nil value to an empty string",
                ),
            ],
        );
        check_part(
            &bound,
            "status",
            &[
                ("/status/capacity/storage", json!("2Gi"), ""),
                ("/status/capacity/storage", json!("-1"), "status.capacity[storage]: Invalid value: -1: must be a val"),
                (
                    "/status/allocatedResources",
                    json!({"cpu": "1"}),
                    "status.allocatedResources: Unsupported value: \"cpu\": supported values: \"storage\"",
                ),
                (
                    "/status/allocatedResourceStatuses",
                    json!({"storage": "Soon"}),
                    "status.allocatedResourceStatus: Unsupported value: \"storage\": supported values: \"Controll",
                ),
            ],
        );
    }
}
