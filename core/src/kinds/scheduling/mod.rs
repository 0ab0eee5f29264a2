//! `scheduling.k8s.io`: the priority of pods, and pods that are scheduled together.

pub mod columns;
pub mod defaults;
mod validate;

use super::{ApiGroup, Gated, Kind};
use holdfast_value::Value;

pub const GROUP: &str = "scheduling.k8s.io";
const PACKAGE: &str = "io.k8s.api.scheduling";

/// The definition of this group, for the list of all built-in groups.
pub const API_GROUP: ApiGroup =
    ApiGroup::new(GROUP, kinds, defaults::rules).prioritized(16_600, &[("v1", 15), ("v1beta1", 12), ("v1alpha1", 9)]);

/// While the gate `NonPreemptingPriority` is off, all priority classes preempt, except existing classes that do not
/// preempt.
fn always_preempt(class: &mut Value, old: Option<&Value>) {
    let policy = old.map_or(Value::Null, |old| old["preemptionPolicy"].clone());
    class["preemptionPolicy"] = if policy.is_null() { "PreemptLowerPriority".into() } else { policy };
}

/// The kinds of this group.
pub fn kinds() -> Vec<Kind> {
    vec![
        Kind::cluster("PriorityClass", "priorityclasses")
            .versions(GROUP, PACKAGE, ["v1", "v1beta1", "v1alpha1"])
            .short(["pc"])
            .columns(columns::of("PriorityClass"))
            .gated(const { &[Gated::by("NonPreemptingPriority", always_preempt)] })
            .validate(validate::priority_class)
            .system("system priority class", &["system-node-critical", "system-cluster-critical"])
            // As in Kubernetes, the generation is always 1, because the value of a class never changes.
            .prepare_create(|class| class["metadata"]["generation"] = 1.into()),
        Kind::namespaced("Workload", "workloads")
            .versions(GROUP, PACKAGE, ["v1alpha1"])
            .columns(columns::of("Workload"))
            .validate(validate::workload),
    ]
}
