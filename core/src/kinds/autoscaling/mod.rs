//! `autoscaling`: autoscalers, and Scale, which is only the body of the `scale` subresource.

pub mod columns;
mod convert;
pub mod defaults;
pub mod scale;
mod validate;

use super::{ApiGroup, Gated, GatedRule, Kind};

pub const GROUP: &str = "autoscaling";
const PACKAGE: &str = "io.k8s.api.autoscaling";
const TOLERANCE: &[Gated] = &[Gated::fields(
    "HPAConfigurableTolerance",
    &["spec.behavior.scaleUp.tolerance", "spec.behavior.scaleDown.tolerance"],
)];

/// The definition of this group, for the list of all built-in groups.
pub const API_GROUP: ApiGroup = ApiGroup {
    bodies: &[["v1", "Scale", "io.k8s.api.autoscaling.v1.Scale"]],
    ..ApiGroup::new(GROUP, kinds, defaults::rules)
        .prioritized(17_500, &[("v2", 30), ("v1", 15), ("v2beta1", 9), ("v2beta2", 1)])
};

/// The kinds of this group.
pub fn kinds() -> Vec<Kind> {
    vec![
        Kind::namespaced("HorizontalPodAutoscaler", "horizontalpodautoscalers")
            .versions(GROUP, PACKAGE, ["v2"])
            .converted(GROUP, PACKAGE, "v1", convert::V1)
            .versions(GROUP, PACKAGE, ["v2beta2"])
            .converted(GROUP, PACKAGE, "v2beta1", convert::V2BETA1)
            .short(["hpa"])
            .category("all")
            .columns(columns::of("HorizontalPodAutoscaler"))
            .gated(TOLERANCE)
            .gated_rules(const { &[GatedRule { gates: &["HPAScaleToZero"], judge: validate::to_zero }] })
            .validate(validate::autoscaler)
            .status()
            .validate_part("status", validate::status),
    ]
}
