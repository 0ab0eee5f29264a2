//! `rbac.authorization.k8s.io`: roles, and who has them.

pub mod columns;
mod convert;
pub mod defaults;
mod validate;

use super::Kind;
use crate::authz::escalation;

const GROUP: &str = "rbac.authorization.k8s.io";
const PACKAGE: &str = "io.k8s.api.rbac";

/// The kinds of this group.
pub fn kinds() -> Vec<Kind> {
    vec![
        Kind::cluster("ClusterRole", "clusterroles")
            .versions(GROUP, PACKAGE, ["v1", "v1beta1", "v1alpha1"])
            .columns(columns::of("ClusterRole"))
            .validate(validate::cluster_role)
            .authorize(escalation::cluster_role)
            .create_on_update(),
        Kind::cluster("ClusterRoleBinding", "clusterrolebindings")
            .versions(GROUP, PACKAGE, ["v1", "v1beta1"])
            .converted(GROUP, PACKAGE, "v1alpha1", convert::SUBJECTS)
            .columns(columns::of("ClusterRoleBinding"))
            .validate(validate::cluster_role_binding)
            .authorize(escalation::binding)
            .create_on_update(),
        Kind::namespaced("Role", "roles")
            .versions(GROUP, PACKAGE, ["v1", "v1beta1", "v1alpha1"])
            .columns(columns::of("Role"))
            .validate(validate::role)
            .authorize(escalation::namespaced_role)
            .create_on_update(),
        Kind::namespaced("RoleBinding", "rolebindings")
            .versions(GROUP, PACKAGE, ["v1", "v1beta1"])
            .converted(GROUP, PACKAGE, "v1alpha1", convert::SUBJECTS)
            .columns(columns::of("RoleBinding"))
            .validate(validate::role_binding)
            .authorize(escalation::binding)
            .create_on_update(),
    ]
}
