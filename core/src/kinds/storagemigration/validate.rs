//! Validation of storage version migrations.

use crate::kinds::rules::{At, IMMUTABLE, not_negative};
use crate::kinds::shapes::{conditions, is_condition_true};
use crate::refusal::{Cause, Causes};
use holdfast_value::Value;

const SUCCEEDED: &str = "Succeeded";
const FAILED: &str = "Failed";
const RUNNING: &str = "Running";

pub fn migration(new: &Value, old: Option<&Value>) -> Causes {
    let mut causes = Causes::default();
    let root = At::root(new);
    let spec = root.get("spec");
    let resource = spec.get("resource");
    let name = resource.get("resource");
    if name.is_empty() {
        causes.push(name.required("resource is required"));
    }
    if let Some(old) = old {
        // Kubernetes omits the parents of these fields from the paths.
        for field in ["group", "resource"] {
            let (text, before) = (resource.get(field).text(), &old["spec"]["resource"][field]);
            if text != before.as_str().unwrap_or("") {
                causes.push(Cause::invalid(field, &Value::from(text), IMMUTABLE));
            }
        }
    }
    causes
}

pub fn status(new: &Value, old: Option<&Value>) -> Causes {
    let mut causes = Causes::default();
    let root = At::root(new);
    let status = root.get("status");
    let version = status.get("resourceVersion");
    match version.text().parse::<i64>() {
        _ if version.is_empty() => {}
        Ok(number) => {
            let number = Value::from(number);
            not_negative(version.holding(&number), &mut causes);
        }
        Err(_) => {
            let shown = version.value;
            let why =
                format!("failed to parse resource version {shown}: strconv.ParseInt: parsing {shown}: invalid syntax");
            causes.push(version.invalid(&why));
        }
    }
    let list = status.get("conditions");
    conditions(list, &mut causes);
    let is = |ty: &str| is_condition_true(status, ty);
    let apart = [
        (SUCCEEDED, FAILED, "Both success and failed conditions cannot be true at the same time"),
        (SUCCEEDED, RUNNING, "Running condition cannot be true when success condition is true"),
        (FAILED, RUNNING, "Running condition cannot be true when failed condition is true"),
    ];
    causes.extend(apart.iter().filter(|(one, other, _)| is(one) && is(other)).map(|(.., why)| list.invalid(why)));
    if let Some(old) = old {
        let old = At::root(old);
        let before = old.get("status");
        let known = before.get("resourceVersion");
        if !known.is_empty() && known.text() != version.text() {
            causes.push(version.invalid("resourceVersion cannot be updated"));
        }
        for (ty, what) in [(SUCCEEDED, "Success"), (FAILED, "Failed")] {
            if is_condition_true(before, ty) && !is(ty) {
                causes.push(list.invalid(&format!("{what} condition cannot be set to false once it is true")));
            }
        }
    }
    causes
}

#[cfg(test)]
mod tests {
    use crate::kinds::rules::testing::{check_part, check_rows, check_updates};
    use holdfast_value::{Value, json};

    #[test]
    fn each_rule() {
        let condition = |ty: &str| json!({"type": ty, "status": "True", "reason": "R", "message": "", "lastTransitionTime": "2024-01-01T00:00:00Z"});
        let good = json!({
            "apiVersion": "storagemigration.k8s.io/v1beta1", "kind": "StorageVersionMigration",
            "metadata": {"name": "a"}, "spec": {"resource": {"group": "apps", "resource": "deployments"}},
            "status": {"resourceVersion": "5", "conditions": [condition("Succeeded")]},
        });
        check_rows(
            &good,
            &[("/spec/resource/resource", json!(""), "spec.resource.resource: Required value: resource is")],
        );
        check_updates(
            &good,
            &[("/spec/resource/group", json!("batch"), "group: Invalid value: \"batch\": field is immutab")],
        );
        check_part(
            &good,
            "status",
            &[
                (
                    "/status/resourceVersion",
                    json!("6"),
                    "status.resourceVersion: Invalid value: \"6\": resourceVersion c",
                ),
                (
                    "/status/resourceVersion",
                    json!("x"),
                    "status.resourceVersion: Invalid value: \"x\": failed to parse",
                ),
                ("/status/conditions", json!([]), "status.conditions: Invalid value: "),
                ("/status/conditions/1", condition("Failed"), "status.conditions: Invalid value: ["),
                (
                    "/status/conditions/1",
                    condition("Succeeded"),
                    "status.conditions[1].type: Duplicate value: \"Succeeded",
                ),
                ("/status/conditions/0/reason", Value::Null, "status.conditions[0].reason: Required value"),
            ],
        );
    }
}
