//! Validation of the status of workloads: counts must be consistent.

use crate::kinds::rules::{At, none_negative};
use crate::kinds::shapes::{not_decremented, parts_of};
use crate::refusal::Causes;
use holdfast_value::Value;

const OF_REPLICAS: &str = "cannot be greater than status.replicas";

pub fn deployment(new: &Value, old: Option<&Value>) -> Causes {
    let parts = ["updatedReplicas", "readyReplicas", "availableReplicas"];
    replicas(new, old, &parts, &["unavailableReplicas", "terminatingReplicas"], "cannot be greater than readyReplicas")
}

/// Validates the status of a ReplicaSet and of a ReplicationController.
pub fn replica_set(new: &Value, _: Option<&Value>) -> Causes {
    let parts = ["fullyLabeledReplicas", "readyReplicas", "availableReplicas"];
    replicas(new, None, &parts, &["terminatingReplicas"], "cannot be greater than readyReplicas")
}

pub fn stateful_set(new: &Value, old: Option<&Value>) -> Causes {
    let parts = ["readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"];
    replicas(new, old, &parts, &[], "cannot be greater than status.readyReplicas")
}

fn replicas(new: &Value, old: Option<&Value>, parts: &[&str], others: &[&str], ready: &str) -> Causes {
    let mut causes = Causes::default();
    let root = At::root(new);
    let status = root.get("status");
    none_negative(status, &["observedGeneration", "replicas"], &mut causes);
    none_negative(status, parts, &mut causes);
    none_negative(status, others, &mut causes);
    none_negative(status, &["collisionCount"], &mut causes);
    parts_of(status, "replicas", parts, OF_REPLICAS, &mut causes);
    parts_of(status, "readyReplicas", &["availableReplicas"], ready, &mut causes);
    if let Some(old) = old {
        not_decremented(status.get("collisionCount"), &old["status"]["collisionCount"], &mut causes);
    }
    causes
}

pub fn daemon_set(new: &Value, old: Option<&Value>) -> Causes {
    let mut causes = Causes::default();
    let root = At::root(new);
    let status = root.get("status");
    let counts = [
        "currentNumberScheduled",
        "numberMisscheduled",
        "desiredNumberScheduled",
        "numberReady",
        "observedGeneration",
        "updatedNumberScheduled",
        "numberAvailable",
        "numberUnavailable",
        "collisionCount",
    ];
    none_negative(status, &counts, &mut causes);
    if let Some(old) = old {
        not_decremented(status.get("collisionCount"), &old["status"]["collisionCount"], &mut causes);
    }
    causes
}

#[cfg(test)]
mod tests {
    use crate::kinds::rules::testing::check_part;
    use holdfast_value::{Value, json};

    fn workload(kind: &str, status: &Value) -> Value {
        json!({
            "apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "web"}, "status": status,
            "spec": {"selector": {"matchLabels": {"app": "web"}}},
        })
    }

    #[test]
    fn counts_go_together() {
        let status = json!({"replicas": 3, "readyReplicas": 2, "availableReplicas": 1, "collisionCount": 2});
        for (kind, part) in [
            ("Deployment", "updatedReplicas"),
            ("ReplicaSet", "fullyLabeledReplicas"),
            ("StatefulSet", "currentReplicas"),
        ] {
            check_part(
                &workload(kind, &status),
                "status",
                &[
                    (&format!("/status/{part}"), json!(3), ""),
                    (
                        &format!("/status/{part}"),
                        json!(4),
                        &format!("status.{part}: Invalid value: 4: cannot be greater than status.replicas"),
                    ),
                    (
                        "/status/replicas",
                        json!(-1),
                        "status.replicas: Invalid value: -1: must be greater than or equal",
                    ),
                    (
                        "/status/readyReplicas",
                        json!(4),
                        "status.readyReplicas: Invalid value: 4: cannot be greater than",
                    ),
                    (
                        "/status/availableReplicas",
                        json!(3),
                        "status.availableReplicas: Invalid value: 3: cannot be gre",
                    ),
                ],
            );
        }
        for kind in ["Deployment", "StatefulSet", "DaemonSet"] {
            let lower = "status.collisionCount: Invalid value: 1: cannot be decremented";
            let none = "status.collisionCount: Invalid value: 0: cannot be decremented";
            check_part(
                &workload(kind, &status),
                "status",
                &[
                    ("/status/collisionCount", json!(3), ""),
                    ("/status/collisionCount", json!(1), lower),
                    ("/status/collisionCount", Value::Null, none),
                ],
            );
        }
        for kind in ["Deployment", "ReplicaSet"] {
            let less = "status.terminatingReplicas: Invalid value: -1: must be greater than or equal to 0";
            check_part(&workload(kind, &status), "status", &[("/status/terminatingReplicas", json!(-1), less)]);
        }
        check_part(
            &workload("DaemonSet", &json!({})),
            "status",
            &[(
                "/status/numberReady",
                json!(-1),
                "status.numberReady: Invalid value: -1: must be greater than or equa",
            )],
        );
    }
}
