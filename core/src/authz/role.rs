//! What roles and bindings are called: a binding names the kind of its role, whatever kinds a server has.

/// The group of roles and bindings.
pub const GROUP: &str = "rbac.authorization.k8s.io";
/// How a binding calls a service account.
pub const SERVICE_ACCOUNT: &str = "ServiceAccount";

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
