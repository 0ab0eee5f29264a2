//! Validation of runtime classes.

use crate::kinds::core::validate::{container_amounts, tolerations};
use crate::kinds::rules::{At, Seen, immutable, labels, need_name};
use crate::object::names;
use crate::refusal::Causes;
use holdfast_value::{Value, json};

pub fn runtime_class(new: &Value, old: Option<&Value>) -> Causes {
    let mut causes = Causes::default();
    let root = At::root(new);
    let handler = root.get("handler");
    need_name(handler, names::label, &mut causes);
    let overhead = root.get("overhead");
    // Kubernetes validates and reports the overhead as if it were a container's limits.
    container_amounts(overhead.get("limits").holding(&overhead.value["podFixed"]), &mut causes);
    let scheduling = root.get("scheduling");
    labels(scheduling.get("nodeSelector"), &mut causes);
    let tolerated = scheduling.get("tolerations");
    tolerations(tolerated, &mut causes);
    let mut seen = Seen::default();
    for toleration in tolerated.items() {
        let said = ["key", "operator", "value", "effect"].map(|field| toleration.get(field).text());
        if seen.again(&json!(said)) {
            causes.push(toleration.duplicate());
        }
    }
    if let Some(old) = old {
        immutable(handler, &old["handler"], &mut causes);
    }
    causes
}

#[cfg(test)]
mod tests {
    use crate::kinds::rules::testing::{check_rows, check_updates};
    use holdfast_value::json;

    #[test]
    fn each_rule() {
        let good = json!({
            "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "a"}, "handler": "runc",
            "overhead": {"podFixed": {"cpu": "10m"}},
            "scheduling": {"nodeSelector": {"a": "b"}, "tolerations": [{"key": "a", "operator": "Exists"}]},
        });
        check_rows(
            &good,
            &[
                ("/handler", json!(""), "handler: Required value"),
                (
                    "/handler",
                    json!("Run"),
                    "handler: Invalid value: \"Run\": a lowercase RFC 1123 label must consist of",
                ),
                ("/overhead/podFixed/cpu", json!("-1"), "overhead.limits[cpu]: Invalid value: \"-1\": must be greater"),
                (
                    "/scheduling/nodeSelector/a",
                    json!("b c"),
                    "scheduling.nodeSelector: Invalid value: \"b c\": a valid",
                ),
                (
                    "/scheduling/tolerations/1",
                    json!({"key": "a", "operator": "Exists"}),
                    "scheduling.tolerations[1]: Duplicate value: {",
                ),
                ("/scheduling/tolerations/0/operator", json!("Is"), "scheduling.tolerations[0].operator: Unsupported"),
            ],
        );
        check_updates(
            &good,
            &[
                ("/overhead/podFixed/cpu", json!("20m"), ""),
                ("/handler", json!("other"), "handler: Invalid value: \"other\": field is immutable"),
            ],
        );
    }
}
