//! Authenticated users.

use std::collections::BTreeMap;

/// Members of this group may do everything. The authorizers are not asked.
pub const PRIVILEGED_GROUP: &str = "system:masters";

/// An authenticated user. The requests of a connection share their user in an `Arc`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct User {
    pub name: String,
    pub uid: String,
    pub groups: Vec<String>,
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    pub fn new(name: impl Into<String>, groups: &[&str]) -> Self {
        Self { name: name.into(), groups: groups.iter().map(|group| group.to_string()).collect(), ..Self::default() }
    }

    /// The user of a service account, with the groups of all service accounts.
    pub fn service_account(namespace: &str, name: &str, uid: &str) -> Self {
        let groups = vec![
            "system:serviceaccounts".to_owned(),
            format!("system:serviceaccounts:{namespace}"),
            "system:authenticated".to_owned(),
        ];
        Self { name: service_account_user(namespace, name), uid: uid.to_owned(), groups, extra: BTreeMap::new() }
    }

    pub fn is_privileged(&self) -> bool {
        self.groups.iter().any(|group| group == PRIVILEGED_GROUP)
    }
}

/// The user name of a service account: `system:serviceaccount:default:builder`.
pub fn service_account_user(namespace: &str, name: &str) -> String {
    format!("system:serviceaccount:{namespace}:{name}")
}
