//! `policy`: how much disruption a workload bears. An Eviction is only the body of a pod's subresource.

pub mod columns;
mod convert;
pub mod defaults;
mod validate;

use super::Kind;

const GROUP: &str = "policy";
const PACKAGE: &str = "io.k8s.api.policy";

/// The kinds of this group.
pub fn kinds() -> Vec<Kind> {
    vec![
        Kind::namespaced("PodDisruptionBudget", "poddisruptionbudgets")
            .versions(GROUP, PACKAGE, ["v1"])
            .converted(GROUP, PACKAGE, "v1beta1", convert::EMPTY_SELECTOR)
            .short(["pdb"])
            .columns(columns::of("PodDisruptionBudget"))
            .validate(validate::budget)
            .conditional_update()
            .status()
            .validate_part("status", validate::status)
            .generation(),
    ]
}
