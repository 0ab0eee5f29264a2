//! Validation of storage classes, attachments and drivers.

use crate::kinds::core::validate::inline_volume;
use crate::kinds::rules::{At, Seen, distinct, immutable, is_less, named, not_negative, one_of, same, selector};
use crate::kinds::shapes::{
    at_least, count, distinct_items, driver_name, entries_fit, exactly_one_of, no_more_than, not_longer, parameters,
    qualified, texts,
};
use crate::object::names;
use crate::refusal::{Cause, Causes};
use holdfast_value::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

const NODE_ID_BYTES_MAX: usize = 256;
const ERROR_BYTES_MAX: usize = 1024;
const TOKEN_SECONDS_MIN: i64 = 600;
const TOKEN_SECONDS_MAX: i64 = 1 << 32;

pub fn storage_class(new: &Value, old: Option<&Value>) -> Causes {
    let mut causes = Causes::default();
    let root = At::root(new);
    if let Some(old) = old {
        for field in ["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"] {
            immutable(root.get(field), &old[field], &mut causes);
        }
    }
    provisioner(root.get("provisioner"), &mut causes);
    parameters(root.get("parameters"), &mut causes);
    one_of(root.get("reclaimPolicy"), &["Delete", "Retain"], &mut causes);
    exactly_one_of(root.get("volumeBindingMode"), &["Immediate", "WaitForFirstConsumer"], &mut causes);
    topologies(root.get("allowedTopologies"), &mut causes);
    causes
}

fn provisioner(at: At, causes: &mut Causes) {
    if at.is_empty() {
        causes.push(at.required(""));
        return;
    }
    let lower = Value::from(at.text().to_lowercase());
    qualified(at.holding(&lower), causes);
}

fn topologies(list: At, causes: &mut Causes) {
    let mut seen = Seen::default();
    // As in Kubernetes, an empty term is reported as a repeated term.
    seen.again(&json!({}));
    for term in list.items() {
        let expressions = term.get("matchLabelExpressions");
        // The content of the term, independent of the order of its expressions.
        let mut said = BTreeMap::new();
        for expression in expressions.items() {
            let (key, values) = (expression.get("key"), expression.get("values"));
            if values.is_empty() {
                causes.push(values.required(""));
            }
            distinct_items(values, causes);
            let sorted: BTreeSet<String> = texts(values).into_iter().map(str::to_owned).collect();
            if said.insert(key.text().to_owned(), sorted).is_some() {
                causes.push(key.duplicate());
            }
            qualified(key, causes);
        }
        if seen.again(&json!(said)) {
            causes.push(Cause::duplicate(expressions.path(), &Value::from("")));
        }
    }
}

pub fn volume_attachment(new: &Value, old: Option<&Value>) -> Causes {
    let mut causes = Causes::default();
    let root = At::root(new);
    let spec = root.get("spec");
    driver_name(spec.get("attacher"), &mut causes);
    let source = spec.get("source");
    let (inline, volume) = (source.get("inlineVolumeSpec"), source.get("persistentVolumeName"));
    let detail = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
    match (inline.is_set(), volume.is_set()) {
        (false, false) => causes.push(source.required(detail)),
        (true, true) => causes.push(source.forbidden(detail)),
        (false, true) if volume.is_empty() => {
            causes.push(volume.required("must specify non empty persistentVolumeName"));
        }
        (false, true) => named(volume, names::subdomain, &mut causes),
        (true, false) => inline_volume(inline, &mut causes),
    }
    named(spec.get("nodeName"), names::subdomain, &mut causes);
    if let Some(old) = old {
        immutable(spec, &old["spec"], &mut causes);
    }
    causes
}

pub fn attachment_status(new: &Value, _: Option<&Value>) -> Causes {
    let mut causes = Causes::default();
    let root = At::root(new);
    let status = root.get("status");
    entries_fit(status.get("attachmentMetadata"), &mut causes);
    for field in ["attachError", "detachError"] {
        let error = status.get(field);
        not_longer(error.get("message"), ERROR_BYTES_MAX, &mut causes);
        at_least(error.get("errorCode"), 0, "must be between 0 and 2147483647, inclusive", &mut causes);
    }
    causes
}

pub fn driver(new: &Value, old: Option<&Value>) -> Causes {
    let mut causes = Causes::default();
    let root = At::root(new);
    let spec = root.get("spec");
    let policy = spec.get("fsGroupPolicy");
    if policy.is_set() {
        exactly_one_of(policy, &["File", "None", "ReadWriteOnceWithFSType"], &mut causes);
    }
    let tokens = spec.get("tokenRequests");
    let mut audiences = Seen::default();
    for token in tokens.items() {
        let (audience, seconds) = (token.get("audience"), token.get("expirationSeconds"));
        if audiences.again(&Value::from(audience.text())) {
            causes.push(Cause::duplicate(audience.path(), &Value::from(audience.text())));
            continue;
        }
        let short = "may not specify a duration less than 10 minutes";
        at_least(seconds, TOKEN_SECONDS_MIN, short, &mut causes);
        let long = "may not specify a duration larger than 2^32 seconds";
        no_more_than(seconds, TOKEN_SECONDS_MAX, long, &mut causes);
    }
    let modes = spec.get("volumeLifecycleModes");
    for mode in modes.items() {
        if !matches!(mode.text(), "Persistent" | "Ephemeral") {
            causes.push(Cause::not_supported(modes.path(), mode.value, &["Persistent", "Ephemeral"]));
        }
    }
    let period = spec.get("nodeAllocatableUpdatePeriodSeconds");
    at_least(period, 10, "must be greater than or equal to 10 seconds", &mut causes);
    let secret = spec.get("serviceAccountTokenInSecrets");
    if secret.is_set() && tokens.is_empty() {
        causes.push(secret.invalid("serviceAccountTokenInSecrets is set but no tokenRequests are specified"));
    }
    if let Some(old) = old {
        // Kubernetes' message misspells the name of this field as `attachedRequired`.
        let attach = spec.get("attachRequired");
        immutable(spec.get("attachedRequired").holding(attach.value), &old["spec"]["attachRequired"], &mut causes);
        immutable(modes, &old["spec"]["volumeLifecycleModes"], &mut causes);
    }
    causes
}

pub fn node(new: &Value, old: Option<&Value>) -> Causes {
    let mut causes = Causes::default();
    let root = At::root(new);
    let spec = root.get("spec");
    let list = spec.get("drivers");
    distinct(list, "name", &mut causes);
    let before: BTreeMap<&str, &Value> = old
        .and_then(|old| old["spec"]["drivers"].as_array())
        .into_iter()
        .flatten()
        .filter_map(|driver| driver["name"].as_str().map(|name| (name, driver)))
        .collect();
    for driver in list.items() {
        driver_name(driver.get("name"), &mut causes);
        let id = driver.get("nodeID");
        if id.is_empty() {
            causes.push(id.required(""));
        } else if id.text().len() > NODE_ID_BYTES_MAX {
            causes.push(id.invalid(&format!("must be {NODE_ID_BYTES_MAX} characters or less")));
        }
        not_negative(driver.get("allocatable").get("count"), &mut causes);
        let mut keys = Seen::default();
        for key in driver.get("topologyKeys").items() {
            if key.is_empty() {
                causes.push(driver.required(""));
            }
            if keys.again(key.value) {
                causes.push(Cause::duplicate(driver.path(), key.value));
            }
            qualified(driver.holding(key.value), &mut causes);
        }
        let fixed = |driver: &Value| {
            let mut fixed = driver.clone();
            fixed["allocatable"] = Value::Null;
            fixed
        };
        if let Some(before) = before.get(driver.get("name").text())
            && !same(&fixed(driver.value), &fixed(before))
        {
            let shown = fixed(driver.value);
            causes.push(Cause::invalid(list.path(), &shown, crate::kinds::rules::IMMUTABLE));
        }
    }
    causes
}

pub fn capacity(new: &Value, old: Option<&Value>) -> Causes {
    let mut causes = Causes::default();
    let root = At::root(new);
    selector(root.get("nodeTopology"), &mut causes);
    named(root.get("storageClassName"), names::subdomain, &mut causes);
    let capacity = root.get("capacity");
    if is_less(capacity.value, &Value::from("0")) {
        causes.push(capacity.invalid("must be greater than or equal to 0"));
    }
    if let Some(old) = old {
        for field in ["nodeTopology", "storageClassName"] {
            immutable(root.get(field), &old[field], &mut causes);
        }
    }
    causes
}

pub fn attributes_class(new: &Value, old: Option<&Value>) -> Causes {
    let mut causes = Causes::default();
    let root = At::root(new);
    provisioner(root.get("driverName"), &mut causes);
    let settings = root.get("parameters");
    parameters(settings, &mut causes);
    if count(settings) == 0 {
        causes.push(settings.required("must contain at least one key/value pair"));
    }
    if let Some(old) = old {
        for field in ["driverName", "parameters"] {
            if !same(&new[field], &old[field]) {
                causes.push(root.get(field).forbidden(&format!("updates to {field} are forbidden.")));
            }
        }
    }
    causes
}

#[cfg(test)]
mod tests {
    use crate::kinds::rules::testing::{check_part, check_rows, check_updates};
    use holdfast_value::{Value, json};

    fn of(kind: &str, mut rest: Value) -> Value {
        rest["apiVersion"] = json!("storage.k8s.io/v1");
        rest["kind"] = json!(kind);
        rest["metadata"] = json!({"name": "a"});
        rest
    }

    #[test]
    fn classes() {
        let class = of("StorageClass", json!({"provisioner": "example.com/Disk", "parameters": {"type": "fast"}}));
        let zone = |values: Value| json!({"matchLabelExpressions": [{"key": "zone", "values": values}]});
        check_rows(
            &class,
            &[
                ("/provisioner", json!(""), "provisioner: Required value"),
                ("/provisioner", json!("a b"), "provisioner: Invalid value: \"a b\": name part must consist of"),
                ("/parameters", json!({"": "a"}), "parameters: Invalid value: \"\": field can not be empty."),
                (
                    "/parameters/a",
                    json!("b".repeat(300_000)),
                    "parameters: Too long: may not be more than 262144 bytes",
                ),
                (
                    "/reclaimPolicy",
                    json!("Recycle"),
                    "reclaimPolicy: Unsupported value: \"Recycle\": supported values:",
                ),
                ("/volumeBindingMode", json!("Later"), "volumeBindingMode: Unsupported value: \"Later\""),
                ("/allowedTopologies", json!([zone(json!(["a", "b"])), zone(json!(["c"]))]), ""),
                (
                    "/allowedTopologies",
                    json!([zone(json!(["a", "b"])), zone(json!(["b", "a"]))]),
                    "allowedTopologies[1].matchLabelExpressions: Duplicate value: \"\"",
                ),
                (
                    "/allowedTopologies",
                    json!([zone(json!([]))]),
                    "allowedTopologies[0].matchLabelExpressions[0].values: Required value",
                ),
                (
                    "/allowedTopologies",
                    json!([{}]),
                    "allowedTopologies[0].matchLabelExpressions: Duplicate value: \"\"",
                ),
            ],
        );
        check_updates(
            &class,
            &[
                ("/allowVolumeExpansion", json!(true), ""),
                ("/mountOptions", json!(["ro"]), ""),
                ("/provisioner", json!("b"), "provisioner: Invalid value: \"b\": field is immutable"),
                (
                    "/parameters/type",
                    json!("slow"),
                    "parameters: Invalid value: {\"type\":\"slow\"}: field is immutable",
                ),
                ("/reclaimPolicy", json!("Retain"), "reclaimPolicy: Invalid value: \"Retain\": field is immutable"),
                ("/volumeBindingMode", json!("WaitForFirstConsumer"), "volumeBindingMode: Invalid value: \"WaitForFir"),
            ],
        );
        let attributes = of("VolumeAttributesClass", json!({"driverName": "a.b", "parameters": {"iops": "1"}}));
        check_rows(
            &attributes,
            &[
                ("/driverName", json!(""), "driverName: Required value"),
                ("/parameters", json!({}), "parameters: Required value: must contain at least one key/value pair"),
            ],
        );
        check_updates(
            &attributes,
            &[
                ("/driverName", json!("c"), "driverName: Forbidden: updates to driverName are forbidden."),
                ("/parameters/iops", json!("2"), "parameters: Forbidden: updates to parameters are forbidden."),
            ],
        );
        let capacity = of("CSIStorageCapacity", json!({"storageClassName": "a", "capacity": "1Gi"}));
        check_rows(
            &capacity,
            &[
                ("/storageClassName", json!("A"), "storageClassName: Invalid value: \"A\": a lowercase RFC 1123"),
                ("/capacity", json!("-1"), "capacity: Invalid value: \"-1\": must be greater than or equal to 0"),
            ],
        );
        check_updates(
            &capacity,
            &[
                ("/capacity", json!("2Gi"), ""),
                ("/storageClassName", json!("b"), "storageClassName: Invalid value: \"b\": field is immutable"),
                ("/storageClassName", Value::Null, "storageClassName: Invalid value: \"\": a lowercase RFC 1123"),
                ("/nodeTopology", json!({"matchLabels": {"a": "b"}}), "nodeTopology: Invalid value: {\"matchLabels\""),
            ],
        );
    }

    #[test]
    fn attachments() {
        let spec = json!({"attacher": "csi.example.com", "nodeName": "n", "source": {"persistentVolumeName": "v"}});
        let good = of("VolumeAttachment", json!({"spec": spec}));
        check_rows(
            &good,
            &[
                ("/spec/attacher", json!(""), "spec.attacher: Required value"),
                ("/spec/nodeName", json!("A"), "spec.nodeName: Invalid value: \"A\": a lowercase RFC 1123 subdomain"),
                (
                    "/spec/source",
                    json!({}),
                    "spec.source: Required value: must specify exactly one of inlineVolumeSpec",
                ),
                ("/spec/source/inlineVolumeSpec", json!({}), "spec.source: Forbidden: must specify exactly one of inl"),
                (
                    "/spec/source/persistentVolumeName",
                    json!(""),
                    "spec.source.persistentVolumeName: Required value: mus",
                ),
            ],
        );
        check_updates(
            &good,
            &[("/spec/nodeName", json!("m"), "spec: Invalid value: {\"attacher\":\"csi.example.com\"")],
        );
        check_part(
            &good,
            "status",
            &[
                ("/status/attached", json!(true), ""),
                (
                    "/status/attachError/message",
                    json!("a".repeat(1025)),
                    "status.attachError.message: Too long: may no",
                ),
                (
                    "/status/detachError/errorCode",
                    json!(-1),
                    "status.detachError.errorCode: Invalid value: -1: must be",
                ),
            ],
        );
    }

    #[test]
    fn drivers() {
        let good = of("CSIDriver", json!({"spec": {"tokenRequests": [{"audience": "a"}]}}));
        let request = |seconds: i64| json!([{"audience": "a", "expirationSeconds": seconds}]);
        check_rows(
            &good,
            &[
                (
                    "/spec/fsGroupPolicy",
                    json!("All"),
                    "spec.fsGroupPolicy: Unsupported value: \"All\": supported values",
                ),
                (
                    "/spec/tokenRequests",
                    json!([{"audience": "a"}, {"audience": "a"}]),
                    "spec.tokenRequests[1].audience: Duplicate value: \"a\"",
                ),
                (
                    "/spec/tokenRequests",
                    request(599),
                    "spec.tokenRequests[0].expirationSeconds: Invalid value: 599: may",
                ),
                (
                    "/spec/tokenRequests",
                    request(1 << 33),
                    "spec.tokenRequests[0].expirationSeconds: Invalid value: 858",
                ),
                ("/spec/volumeLifecycleModes", json!(["Short"]), "spec.volumeLifecycleModes: Unsupported value: \"Sho"),
                (
                    "/spec/nodeAllocatableUpdatePeriodSeconds",
                    json!(9),
                    "spec.nodeAllocatableUpdatePeriodSeconds: Inval",
                ),
            ],
        );
        check_updates(
            &good,
            &[
                ("/spec/podInfoOnMount", json!(true), ""),
                (
                    "/spec/attachRequired",
                    json!(false),
                    "spec.attachedRequired: Invalid value: false: field is immutable",
                ),
                ("/spec/volumeLifecycleModes", json!(["Ephemeral"]), "spec.volumeLifecycleModes: Invalid value: [\"Ep"),
            ],
        );
        let drivers = json!([{"name": "d", "nodeID": "n", "topologyKeys": ["zone"], "allocatable": {"count": 1}}]);
        let node = of("CSINode", json!({"spec": {"drivers": drivers}}));
        check_rows(
            &node,
            &[
                ("/spec/drivers/0/nodeID", json!(""), "spec.drivers[0].nodeID: Required value"),
                ("/spec/drivers/0/nodeID", json!("a".repeat(257)), "spec.drivers[0].nodeID: Invalid value: \"aaa"),
                ("/spec/drivers/0/name", json!("a_b"), "spec.drivers[0].name: Invalid value: \"a_b\": a lowercase RFC"),
                (
                    "/spec/drivers/1",
                    json!({"name": "d", "nodeID": "m"}),
                    "spec.drivers[1].name: Duplicate value: \"d\"",
                ),
                ("/spec/drivers/0/topologyKeys", json!(["a", "a"]), "spec.drivers[0]: Duplicate value: \"a\""),
                (
                    "/spec/drivers/0/allocatable/count",
                    json!(-1),
                    "spec.drivers[0].allocatable.count: Invalid value: -1",
                ),
            ],
        );
        check_updates(
            &node,
            &[
                ("/spec/drivers/0/allocatable/count", json!(2), ""),
                ("/spec/drivers", json!([]), ""),
                ("/spec/drivers/0/nodeID", json!("m"), "spec.drivers: Invalid value: {"),
            ],
        );
    }
}
