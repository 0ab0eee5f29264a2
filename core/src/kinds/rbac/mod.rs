//! `rbac.authorization.k8s.io`: roles and their bindings.

pub mod columns;
mod convert;
pub mod defaults;
mod validate;

pub use crate::authz::role::GROUP;

use super::{ApiGroup, Kind};
use crate::authz::escalation;
use crate::authz::role::RoleKind;
use crate::object::names::NameRule;

const PACKAGE: &str = "io.k8s.api.rbac";

/// The definition of this group, for the list of all built-in groups.
pub const API_GROUP: ApiGroup =
    ApiGroup::new(GROUP, kinds, defaults::rules).prioritized(17_000, &[("v1", 15), ("v1beta1", 12), ("v1alpha1", 9)]);

/// The kinds of this group.
pub fn kinds() -> Vec<Kind> {
    vec![
        Kind::cluster("ClusterRole", "clusterroles")
            .versions(GROUP, PACKAGE, ["v1", "v1beta1", "v1alpha1"])
            .columns(columns::of("ClusterRole"))
            .role(RoleKind::ClusterRole)
            .names(NameRule::PathSegment)
            .validate(validate::cluster_role)
            .authorize(escalation::cluster_role)
            .create_on_update(),
        Kind::cluster("ClusterRoleBinding", "clusterrolebindings")
            .versions(GROUP, PACKAGE, ["v1", "v1beta1"])
            .converted(GROUP, PACKAGE, "v1alpha1", convert::SUBJECTS)
            .columns(columns::of("ClusterRoleBinding"))
            .role(RoleKind::ClusterRoleBinding)
            .names(NameRule::PathSegment)
            .validate(validate::cluster_role_binding)
            .authorize(escalation::binding)
            .create_on_update(),
        Kind::namespaced("Role", "roles")
            .versions(GROUP, PACKAGE, ["v1", "v1beta1", "v1alpha1"])
            .columns(columns::of("Role"))
            .role(RoleKind::Role)
            .names(NameRule::PathSegment)
            .validate(validate::role)
            .authorize(escalation::namespaced_role)
            .create_on_update(),
        Kind::namespaced("RoleBinding", "rolebindings")
            .versions(GROUP, PACKAGE, ["v1", "v1beta1"])
            .converted(GROUP, PACKAGE, "v1alpha1", convert::SUBJECTS)
            .columns(columns::of("RoleBinding"))
            .role(RoleKind::RoleBinding)
            .names(NameRule::PathSegment)
            .validate(validate::role_binding)
            .authorize(escalation::binding)
            .create_on_update(),
    ]
}
