//! `node.k8s.io`: ways to run containers.

pub mod columns;
mod convert;
pub mod defaults;
mod validate;

use super::{ApiGroup, Gated, Kind};

pub const GROUP: &str = "node.k8s.io";
const PACKAGE: &str = "io.k8s.api.node";

/// This group, for the list of all.
pub const API_GROUP: ApiGroup =
    ApiGroup::new(GROUP, kinds, defaults::rules).prioritized(16_300, &[("v1", 15), ("v1beta1", 9), ("v1alpha1", 1)]);

/// The kinds of this group.
pub fn kinds() -> Vec<Kind> {
    vec![
        Kind::cluster("RuntimeClass", "runtimeclasses")
            .versions(GROUP, PACKAGE, ["v1", "v1beta1"])
            .converted(GROUP, PACKAGE, "v1alpha1", convert::SPEC)
            .columns(columns::of("RuntimeClass"))
            .gated(const { &[Gated::fields("PodOverhead", &["overhead"])] })
            .validate(validate::runtime_class)
            .create_on_update()
            .conditional_update(),
    ]
}
