//! Conversion of older fields of workloads, which newer versions keep in annotations.

use super::daemon_set::TEMPLATE_GENERATION;
use crate::kinds::Convert;
use crate::kinds::convert::{Fields, ensure, put_annotation, take_annotation, within};
use holdfast_value::Value;

/// Converts the rollback, which Deployments of `apps/v1beta1` and `extensions/v1beta1` have in their spec.
pub const ROLLBACK: Convert = Convert { to_hub: rollback_to_hub, from_hub: rollback_from_hub };

/// Converts the template generation, which DaemonSets of `extensions/v1beta1` have in their spec.
pub const TEMPLATE: Convert = Convert { to_hub: template_to_hub, from_hub: template_from_hub };

const ROLLBACK_TO: &str = "deprecated.deployment.rollback.to";

fn rollback_to_hub(deployment: &mut Fields) {
    take_annotation(deployment, ROLLBACK_TO);
    let rollback = within(deployment, &["spec"]).and_then(|spec| spec.remove("rollbackTo"));
    if let Some(Value::Object(rollback)) = rollback {
        let revision = rollback.get("revision").and_then(Value::as_i64).unwrap_or(0);
        put_annotation(deployment, ROLLBACK_TO, revision.to_string());
    }
}

fn rollback_from_hub(deployment: &mut Fields) {
    let Some(text) = take_annotation(deployment, ROLLBACK_TO) else { return };
    let Ok(revision) = text.parse::<i64>() else { return };
    let rollback = ensure(ensure(deployment, "spec"), "rollbackTo");
    // Zero means the previous revision, and is omitted.
    if revision != 0 {
        rollback.insert("revision", revision.into());
    }
}

fn template_to_hub(set: &mut Fields) {
    take_annotation(set, TEMPLATE_GENERATION);
    let generation = within(set, &["spec"]).and_then(|spec| spec.remove("templateGeneration"));
    if let Some(generation) = generation.and_then(|number| number.as_i64()) {
        put_annotation(set, TEMPLATE_GENERATION, generation.to_string());
    }
}

fn template_from_hub(set: &mut Fields) {
    let generation = take_annotation(set, TEMPLATE_GENERATION).and_then(|text| text.parse::<i64>().ok());
    if let Some(generation) = generation {
        ensure(set, "spec").insert("templateGeneration", generation.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::convert::check_both_ways;
    use holdfast_value::json;

    #[test]
    fn a_rollback_is_an_annotation() {
        check_both_ways(
            ROLLBACK,
            &json!({ "metadata": { "name": "a" }, "spec": { "replicas": 1, "rollbackTo": { "revision": 3 } } }),
            &json!({
                "metadata": { "name": "a", "annotations": { ROLLBACK_TO: "3" } },
                "spec": { "replicas": 1 },
            }),
        );
        check_both_ways(
            ROLLBACK,
            &json!({ "metadata": {}, "spec": { "rollbackTo": {} } }),
            &json!({ "metadata": { "annotations": { ROLLBACK_TO: "0" } }, "spec": {} }),
        );
        let plain = json!({ "metadata": { "annotations": { "a": "b" } }, "spec": { "replicas": 2 } });
        check_both_ways(ROLLBACK, &plain, &plain);
    }

    #[test]
    fn the_number_of_a_template_is_an_annotation() {
        check_both_ways(
            TEMPLATE,
            &json!({ "metadata": { "annotations": { "a": "b" } }, "spec": { "templateGeneration": 2 } }),
            &json!({ "metadata": { "annotations": { "a": "b", TEMPLATE_GENERATION: "2" } }, "spec": {} }),
        );
    }
}
