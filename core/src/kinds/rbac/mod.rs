//! `rbac.authorization.k8s.io`: roles, and who has them.

pub mod columns;
mod convert;
pub mod defaults;
mod validate;

use super::{ApiGroup, Kind};
use crate::authz::escalation;
use crate::object::names::NameRule;

pub const GROUP: &str = "rbac.authorization.k8s.io";
const PACKAGE: &str = "io.k8s.api.rbac";

/// What a kind of this group is to the authorizer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RoleKind {
    Role,
    ClusterRole,
    RoleBinding,
    ClusterRoleBinding,
}

impl RoleKind {
    /// The kind, as a binding names the kind of its role.
    pub fn name(self) -> &'static str {
        match self {
            Self::Role => "Role",
            Self::ClusterRole => "ClusterRole",
            Self::RoleBinding => "RoleBinding",
            Self::ClusterRoleBinding => "ClusterRoleBinding",
        }
    }

    pub fn named(kind: &str) -> Option<Self> {
        let all = [Self::Role, Self::ClusterRole, Self::RoleBinding, Self::ClusterRoleBinding];
        all.into_iter().find(|role| role.name() == kind)
    }

    /// The kind of role that a binding names; `None` for what is no role.
    pub fn of_reference(kind: &str) -> Option<Self> {
        Self::named(kind).filter(|role| !role.is_binding())
    }

    /// The plural name of a kind of roles, and the singular one.
    pub fn resource(self) -> (&'static str, &'static str) {
        match self {
            Self::Role => ("roles", "role"),
            Self::ClusterRole => ("clusterroles", "clusterrole"),
            Self::RoleBinding => ("rolebindings", "rolebinding"),
            Self::ClusterRoleBinding => ("clusterrolebindings", "clusterrolebinding"),
        }
    }

    pub fn is_binding(self) -> bool {
        matches!(self, Self::RoleBinding | Self::ClusterRoleBinding)
    }
}

/// This group, for the list of all.
pub const API_GROUP: ApiGroup = ApiGroup::new(GROUP, kinds, defaults::rules);

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
