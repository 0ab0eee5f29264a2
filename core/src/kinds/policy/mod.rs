//! `policy`: how much disruption a workload bears. An Eviction is only the body of a pod's subresource.

pub mod columns;
pub mod defaults;

use super::Kind;

/// The kinds of this group.
pub fn kinds() -> Vec<Kind> {
    vec![
        Kind::namespaced("PodDisruptionBudget", "poddisruptionbudgets")
            .versions("policy", "io.k8s.api.policy", ["v1", "v1beta1"])
            .short(["pdb"])
            .columns(columns::of("PodDisruptionBudget"))
            .status()
            .generation(),
    ]
}
