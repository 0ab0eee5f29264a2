//! The names of the RBAC kinds. A binding names the kind of its role by these names, whatever kinds are served.

/// The group of roles and bindings.
pub const GROUP: &str = "rbac.authorization.k8s.io";
/// The kind of a service account in a binding's subjects.
pub const SERVICE_ACCOUNT: &str = "ServiceAccount";

/// The RBAC kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RoleKind {
    Role,
    ClusterRole,
    RoleBinding,
    ClusterRoleBinding,
}

impl RoleKind {
    /// The kind's name, as in a binding's roleRef.
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

    /// The role kind that a binding refers to; `None` for other kinds.
    pub fn of_reference(kind: &str) -> Option<Self> {
        Self::named(kind).filter(|role| !role.is_binding())
    }

    /// The plural and the singular name of a kind.
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
