//! `apps`: long-running workloads.

pub mod columns;
mod convert;
mod daemon_set;
pub mod defaults;
pub(in crate::kinds) mod status;
pub(in crate::kinds) mod validate;

use super::build::text_or;
use super::core::warnings;
use super::{ApiGroup, Gated, Kind};
use crate::object::names::NameRule;

pub const GROUP: &str = "apps";
const PACKAGE: &str = "io.k8s.api.apps";
const EXTENSIONS: &str = "io.k8s.api.extensions";

/// The definition of this group, for the list of all built-in groups.
pub const API_GROUP: ApiGroup = ApiGroup {
    bodies: &[
        ["v1beta2", "Scale", "io.k8s.api.apps.v1beta2.Scale"],
        ["v1beta1", "Scale", "io.k8s.api.apps.v1beta1.Scale"],
    ],
    ..ApiGroup::new(GROUP, kinds, defaults::rules).prioritized(17_800, &[("v1", 15), ("v1beta2", 9), ("v1beta1", 1)])
};

/// The gated field of a StatefulSet: the number of its pods that may be unavailable during an update.
const STATEFUL_SET_GATED: &[Gated] =
    &[Gated::fields("MaxUnavailableStatefulSet", &["spec.updateStrategy.rollingUpdate.maxUnavailable"])];

/// The kinds of this group.
pub fn kinds() -> Vec<Kind> {
    vec![
        Kind::namespaced("Deployment", "deployments")
            .versions(GROUP, PACKAGE, ["v1", "v1beta2"])
            .converted(GROUP, PACKAGE, "v1beta1", convert::ROLLBACK)
            .converted("extensions", EXTENSIONS, "v1beta1", convert::ROLLBACK)
            .short(["deploy"])
            .category("all")
            .columns(columns::of("Deployment"))
            .pods_at("/spec/template/spec")
            .orphan_dependents(["apps/v1beta2", "apps/v1beta1", "extensions/v1beta1"])
            .validate(validate::deployment)
            .warnings(|_, object, old| warnings::workload(object, old, "spec.template"))
            .scale()
            .status()
            .status_resets(&[&["spec"], &["metadata", "labels"]])
            .validate_part("status", status::deployment)
            .generation_with(&["annotations"]),
        Kind::namespaced("DaemonSet", "daemonsets")
            .versions(GROUP, PACKAGE, ["v1", "v1beta2"])
            .converted("extensions", EXTENSIONS, "v1beta1", convert::TEMPLATE)
            .short(["ds"])
            .category("all")
            .columns(columns::of("DaemonSet"))
            .pods_at("/spec/template/spec")
            .orphan_dependents(["apps/v1beta2", "extensions/v1beta1"])
            .validate(validate::daemon_set)
            .warnings(|_, object, old| warnings::template(object, old, "spec.template"))
            .status()
            .validate_part("status", status::daemon_set)
            .generation()
            .agree(daemon_set::show_template_generation)
            .left_out_of_metadata(daemon_set::TEMPLATE_GENERATION)
            .prepare_create(daemon_set::prepare_create)
            .prepare_update(daemon_set::prepare_update)
            .note(daemon_set::keep_template_generation),
        Kind::namespaced("ReplicaSet", "replicasets")
            .versions(GROUP, PACKAGE, ["v1", "v1beta2"])
            .versions("extensions", EXTENSIONS, ["v1beta1"])
            .short(["rs"])
            .category("all")
            .columns(columns::of("ReplicaSet"))
            .pods_at("/spec/template/spec")
            .orphan_dependents(["apps/v1beta2", "extensions/v1beta1"])
            .validate(validate::replica_set)
            .warnings(|_, object, old| warnings::workload(object, old, "spec.template"))
            .scale()
            .status()
            .validate_part("status", status::replica_set)
            .generation()
            .select_with(Some("extensions"), "status.replicas", &["status.replicas"], |set| {
                text_or(set, "/status/replicas", "0")
            }),
        Kind::namespaced("StatefulSet", "statefulsets")
            .versions(GROUP, PACKAGE, ["v1", "v1beta2", "v1beta1"])
            .short(["sts"])
            .category("all")
            .columns(columns::of("StatefulSet"))
            .pods_at("/spec/template/spec")
            .orphan_dependents(["apps/v1beta2", "apps/v1beta1"])
            .names(NameRule::Label)
            .validate(validate::stateful_set)
            .warnings(warnings::stateful_set)
            .gated(STATEFUL_SET_GATED)
            .scale()
            .status()
            .validate_part("status", status::stateful_set)
            .generation(),
        Kind::namespaced("ControllerRevision", "controllerrevisions")
            .versions(GROUP, PACKAGE, ["v1", "v1beta2", "v1beta1"])
            .columns(columns::of("ControllerRevision"))
            .validate(validate::controller_revision),
    ]
}
