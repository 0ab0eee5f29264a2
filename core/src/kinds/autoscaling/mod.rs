//! `autoscaling`: workloads that follow their load. A Scale is only the body of a subresource.

pub mod columns;
pub mod defaults;

use super::Kind;

const GROUP: &str = "autoscaling";
const PACKAGE: &str = "io.k8s.api.autoscaling";

/// The kinds of this group.
pub fn kinds() -> Vec<Kind> {
    vec![
        Kind::namespaced("HorizontalPodAutoscaler", "horizontalpodautoscalers")
            .versions(GROUP, PACKAGE, ["v2", "v1", "v2beta2", "v2beta1"])
            .short(["hpa"])
            .category("all")
            .columns(columns::of("HorizontalPodAutoscaler"))
            .status(),
    ]
}
