//! The configured authorization modes, asked in order.

use super::rbac::RbacIndex;
use super::{Attributes, PolicyRule, User, Verdict};

/// One way to authorize.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    AlwaysAllow,
    AlwaysDeny,
    Rbac,
}

impl Mode {
    pub const NAMES: [&'static str; 3] = ["AlwaysAllow", "AlwaysDeny", "RBAC"];

    pub fn parse(name: &str) -> Result<Self, String> {
        match name {
            "AlwaysAllow" => Ok(Self::AlwaysAllow),
            "AlwaysDeny" => Ok(Self::AlwaysDeny),
            "RBAC" => Ok(Self::Rbac),
            _ => Err(format!("authorization-mode \"{name}\" is not a valid mode")),
        }
    }

    /// Parses `AlwaysDeny,RBAC`. An empty list, and a mode named twice, are mistakes of the operator.
    pub fn parse_list(names: &str) -> Result<Vec<Self>, String> {
        let mut modes = Vec::new();
        for name in names.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            let mode = Self::parse(name)?;
            if modes.contains(&mode) {
                return Err(format!("authorization-mode \"{name}\" is specified more than once"));
            }
            modes.push(mode);
        }
        if modes.is_empty() { Err("at least one authorization-mode must be passed".into()) } else { Ok(modes) }
    }
}

/// The modes over one snapshot of the roles and bindings.
#[derive(Debug, Clone, Copy)]
pub struct Authorizer<'a> {
    pub modes: &'a [Mode],
    pub rbac: &'a RbacIndex,
}

/// Every rule of a user that the modes can name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KnownRules {
    pub rules: Vec<PolicyRule>,
    pub errors: Vec<String>,
}

impl Authorizer<'_> {
    /// The first mode that allows or denies decides. Nobody can lock out the privileged group.
    pub fn authorize(&self, user: &User, attributes: &Attributes<'_>) -> Verdict {
        if user.is_privileged() {
            return Verdict::Allow { reason: String::new() };
        }
        let mut reasons = Vec::new();
        for mode in self.modes {
            let verdict = match mode {
                Mode::AlwaysAllow => Verdict::Allow { reason: String::new() },
                Mode::AlwaysDeny => Verdict::NoOpinion { reason: "Everything is forbidden.".into() },
                Mode::Rbac => self.rbac.authorize(user, attributes),
            };
            match verdict {
                Verdict::NoOpinion { reason } if reason.is_empty() => {}
                Verdict::NoOpinion { reason } => reasons.push(reason),
                decided => return decided,
            }
        }
        Verdict::NoOpinion { reason: reasons.join("\n") }
    }

    pub fn rules_for(&self, user: &User, namespace: &str) -> KnownRules {
        let mut known = KnownRules::default();
        for mode in self.modes {
            match mode {
                Mode::AlwaysAllow => known.rules.extend(all_rules()),
                Mode::AlwaysDeny => {}
                Mode::Rbac => {
                    let found = self.rbac.rules_for(user, namespace);
                    known.rules.extend(found.rules);
                    known.errors.extend(found.errors);
                }
            }
        }
        known
    }
}

/// Everything, as two rules: resources and paths.
pub fn all_rules() -> [PolicyRule; 2] {
    let all = || vec!["*".to_owned()];
    [
        PolicyRule { verbs: all(), api_groups: all(), resources: all(), ..PolicyRule::default() },
        PolicyRule { verbs: all(), non_resource_urls: all(), ..PolicyRule::default() },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::rbac::RoleKind;
    use serde_json::json;

    #[test]
    fn modes_are_asked_in_order() {
        let mut rbac = RbacIndex::default();
        rbac.put(
            RoleKind::ClusterRole,
            "",
            "reader",
            &json!({"rules": [{"verbs": ["get"], "nonResourceURLs": ["/metrics"]}]}),
        );
        rbac.put(
            RoleKind::ClusterRoleBinding,
            "",
            "readers",
            &json!({
                "roleRef": {"kind": "ClusterRole", "name": "reader"},
                "subjects": [{"kind": "User", "name": "jane"}]
            }),
        );
        let (jane, joe) = (User::new("jane", &[]), User::new("joe", &[]));
        let root = User::new("root", &[super::super::PRIVILEGED_GROUP]);
        let rows = [
            ("AlwaysDeny", &jane, false, "Everything is forbidden."),
            ("AlwaysDeny", &root, true, ""),
            ("AlwaysAllow", &joe, true, ""),
            ("RBAC", &joe, false, ""),
            ("AlwaysDeny,RBAC", &joe, false, "Everything is forbidden."),
            (
                "AlwaysDeny,RBAC",
                &jane,
                true,
                r#"RBAC: allowed by ClusterRoleBinding "readers" of ClusterRole "reader" to User "jane""#,
            ),
            ("AlwaysDeny, AlwaysAllow", &joe, true, ""),
        ];
        for (modes, user, allowed, reason) in rows {
            let modes = Mode::parse_list(modes).expect("known modes");
            let authorizer = Authorizer { modes: &modes, rbac: &rbac };
            let verdict = authorizer.authorize(user, &Attributes::path("get", "/metrics"));
            assert_eq!((verdict.is_allowed(), verdict.reason()), (allowed, reason), "{modes:?} {}", user.name);
        }
    }

    #[test]
    fn mode_lists() {
        assert_eq!(Mode::parse_list("RBAC"), Ok(vec![Mode::Rbac]));
        assert_eq!(Mode::parse_list(""), Err("at least one authorization-mode must be passed".into()));
        assert_eq!(Mode::parse_list("ABACUS"), Err("authorization-mode \"ABACUS\" is not a valid mode".into()));
        assert_eq!(
            Mode::parse_list("RBAC,RBAC"),
            Err("authorization-mode \"RBAC\" is specified more than once".into())
        );
        for name in Mode::NAMES {
            assert!(Mode::parse(name).is_ok());
        }
    }
}
