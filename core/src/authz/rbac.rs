//! The index of roles and bindings, and its verdicts.
//!
//! The index is persistent: it is cloned with the state in constant time and follows it document by document.
//! A question touches only the bindings that name the user or one of its groups.

use super::aggregation::{ClusterRole, RuleBlock, flattened, gathered};
use super::role::{GROUP, RoleKind, SERVICE_ACCOUNT};
use super::rule::PolicyRule;
use super::{Attributes, Target, User, Verdict, quoted, service_account_user};
use holdfast_value::Value;
use imbl::{OrdMap, OrdSet};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Every role and binding of the cluster, found by subject.
#[derive(Debug, Clone, Default)]
pub struct RbacIndex {
    cluster_roles: OrdMap<Arc<str>, Arc<ClusterRole>>,
    /// Names of the ClusterRoles that gather others.
    gathering: OrdSet<Arc<str>>,
    /// Roles by namespace, then name.
    roles: OrdMap<Arc<str>, Roles>,
    /// Bindings by namespace. ClusterRoleBindings stand under the empty name.
    scopes: OrdMap<Arc<str>, Scope>,
}

type Roles = OrdMap<Arc<str>, Arc<[RuleBlock]>>;
type Bindings = OrdMap<Arc<str>, Arc<Binding>>;

#[derive(Debug, Clone, Default)]
struct Scope {
    bindings: Bindings,
    /// Service accounts stand here too, under the name of their user.
    by_user: OrdMap<Arc<str>, Bindings>,
    by_group: OrdMap<Arc<str>, Bindings>,
}

#[derive(Debug)]
struct Binding {
    name: Arc<str>,
    /// Empty for a ClusterRoleBinding.
    namespace: Arc<str>,
    role_kind: String,
    role_name: String,
    subjects: Vec<Subject>,
}

#[derive(Debug)]
enum Subject {
    User(String),
    Group(String),
    ServiceAccount { namespace: String, name: String, user: String },
}

/// The rules that a user has in a namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RulesForUser {
    pub rules: Vec<PolicyRule>,
    /// Bindings whose roles are missing, as messages.
    pub errors: Vec<String>,
}

impl RbacIndex {
    /// What roles and bindings say of `user` doing `attributes`. They only ever allow.
    pub fn authorize(&self, user: &User, attributes: &Attributes<'_>) -> Verdict {
        let namespace = match &attributes.target {
            Target::Resource(target) => target.namespace,
            Target::Path(_) => "",
        };
        let mut errors = BTreeSet::new();
        let mut allowed_by = None;
        self.each_binding(user, namespace, |binding| {
            match self.granted(binding) {
                Ok(blocks) if blocks.iter().flat_map(|block| block.iter()).any(|rule| rule.allows(attributes)) => {
                    allowed_by = Some(binding.grant_reason(user));
                }
                Ok(_) => {}
                Err(error) => {
                    errors.insert(error);
                }
            }
            allowed_by.is_some()
        });
        match allowed_by {
            Some(reason) => Verdict::Allow { reason },
            None if errors.is_empty() => Verdict::NoOpinion { reason: String::new() },
            None => Verdict::NoOpinion { reason: format!("RBAC: {}", joined_errors(errors)) },
        }
    }

    /// Every rule that `user` has in `namespace` (or, if that is empty, in the cluster).
    pub fn rules_for(&self, user: &User, namespace: &str) -> RulesForUser {
        let mut found = BTreeMap::new();
        self.each_binding(user, namespace, |binding| {
            found.insert((binding.namespace.clone(), binding.name.clone()), self.granted(binding));
            false
        });
        let mut out = RulesForUser::default();
        let mut errors = BTreeSet::new();
        for granted in found.into_values() {
            match granted {
                Ok(blocks) => out.rules.extend(flattened_if_many(blocks)),
                Err(error) => {
                    errors.insert(error);
                }
            }
        }
        out.errors = errors.into_iter().collect();
        out
    }

    /// The rules behind a role reference in `namespace`, or the message that there is no such role.
    pub fn role_rules(&self, role_kind: &str, role_name: &str, namespace: &str) -> Result<Vec<PolicyRule>, String> {
        self.referenced(role_kind, role_name, namespace).map(flattened_if_many)
    }

    /// The rules that a gathering ClusterRole should hold now: `None` when it holds them, or gathers nothing.
    pub fn aggregate(&self, name: &str) -> Option<Value> {
        let role = self.cluster_roles.get(name).filter(|role| role.selectors.is_some())?;
        let wanted = flattened(&role.granted);
        let differs = wanted[..] != role.written[..];
        differs.then(|| wanted.iter().map(PolicyRule::to_value).collect())
    }

    /// The gathering ClusterRoles for which [`aggregate`](Self::aggregate) has new rules.
    pub fn stale_aggregates(&self) -> Vec<String> {
        self.gathering.iter().filter(|name| self.aggregate(name).is_some()).map(|name| name.to_string()).collect()
    }

    /// Takes in a role or binding.
    pub fn put(&mut self, kind: RoleKind, namespace: &str, name: &str, document: &Value) {
        match kind {
            RoleKind::ClusterRole => self.change_cluster_role(name, Some(ClusterRole::from_value(document))),
            RoleKind::Role => {
                let blocks = Arc::from([RuleBlock::from(PolicyRule::list_from(document))]);
                self.roles.entry(namespace.into()).or_default().insert(name.into(), blocks);
            }
            RoleKind::ClusterRoleBinding => self.put_binding(Binding::from_value("", name, document)),
            RoleKind::RoleBinding => self.put_binding(Binding::from_value(namespace, name, document)),
        }
    }

    pub fn delete(&mut self, kind: RoleKind, namespace: &str, name: &str) {
        match kind {
            RoleKind::ClusterRole => self.change_cluster_role(name, None),
            RoleKind::Role => remove_nested(&mut self.roles, namespace, name),
            RoleKind::ClusterRoleBinding => self.delete_binding("", name),
            RoleKind::RoleBinding => self.delete_binding(namespace, name),
        }
    }

    /// Calls `visit` with the bindings that name the user or its groups until it returns true: those of the
    /// cluster, then those of the namespace. A binding that names both comes more than once.
    fn each_binding<'a>(&'a self, user: &User, namespace: &str, mut visit: impl FnMut(&'a Binding) -> bool) {
        let own = (!namespace.is_empty()).then(|| self.scopes.get(namespace)).flatten();
        for scope in self.scopes.get("").into_iter().chain(own) {
            let of_user = scope.by_user.get(user.name.as_str());
            let of_groups = user.groups.iter().filter_map(|group| scope.by_group.get(group.as_str()));
            for binding in of_user.into_iter().chain(of_groups).flat_map(|bindings| bindings.values()) {
                if visit(binding) {
                    return;
                }
            }
        }
    }

    fn granted(&self, binding: &Binding) -> Result<&Arc<[RuleBlock]>, String> {
        self.referenced(&binding.role_kind, &binding.role_name, &binding.namespace)
    }

    fn referenced(&self, kind: &str, name: &str, namespace: &str) -> Result<&Arc<[RuleBlock]>, String> {
        let unsupported = || format!("unsupported role reference kind: {}", quoted(kind));
        let kind = RoleKind::of_reference(kind).ok_or_else(unsupported)?;
        let found = match kind {
            RoleKind::ClusterRole => self.cluster_roles.get(name).map(|role| &role.granted),
            _ => self.roles.get(namespace).and_then(|roles| roles.get(name)),
        };
        let (_, singular) = kind.resource();
        found.ok_or_else(|| format!("{singular}.{GROUP} {} not found", quoted(name)))
    }

    /// Puts or deletes a ClusterRole and, where some role gathers it, works out anew what is gathered.
    fn change_cluster_role(&mut self, name: &str, new: Option<ClusterRole>) {
        let key: Arc<str> = name.into();
        let new = new.map(Arc::new);
        let old = match &new {
            Some(role) => self.cluster_roles.insert(key.clone(), role.clone()),
            None => self.cluster_roles.remove(name),
        };
        match &new {
            Some(role) if role.selectors.is_some() => {
                self.gathering.insert(key);
            }
            _ => {
                self.gathering.remove(name);
            }
        }
        let changed = [old, new];
        let is_gathered = |gathering: &Arc<str>| {
            let selectors = self.cluster_roles.get(&**gathering).and_then(|role| role.selectors.as_ref());
            let mut labels = changed.iter().flatten().map(|role| &role.labels);
            labels.any(|labels| selectors.into_iter().flatten().any(|selector| selector.matches(labels)))
        };
        let gathers = changed.iter().flatten().any(|role| role.selectors.is_some());
        if gathers || self.gathering.iter().any(is_gathered) {
            self.gather();
        }
    }

    fn gather(&mut self) {
        for name in self.gathering.clone() {
            let granted: Arc<[RuleBlock]> = gathered(&name, &self.cluster_roles).into();
            if let Some(role) = self.cluster_roles.get_mut(&name) {
                *role = Arc::new(ClusterRole { granted, ..ClusterRole::clone(role) });
            }
        }
    }

    fn put_binding(&mut self, binding: Binding) {
        self.delete_binding(&binding.namespace, &binding.name);
        let binding = Arc::new(binding);
        let scope = self.scopes.entry(binding.namespace.clone()).or_default();
        for subject in &binding.subjects {
            let (map, key) = scope.subject_map(subject);
            map.entry(key.into()).or_default().insert(binding.name.clone(), binding.clone());
        }
        scope.bindings.insert(binding.name.clone(), binding);
    }

    fn delete_binding(&mut self, namespace: &str, name: &str) {
        let Some(scope) = self.scopes.get_mut(namespace) else { return };
        let Some(old) = scope.bindings.remove(name) else { return };
        for subject in &old.subjects {
            let (map, key) = scope.subject_map(subject);
            remove_nested(map, key, name);
        }
        if scope.bindings.is_empty() {
            self.scopes.remove(namespace);
        }
    }
}

impl Scope {
    fn subject_map<'s, 'k>(&'s mut self, subject: &'k Subject) -> (&'s mut OrdMap<Arc<str>, Bindings>, &'k str) {
        match subject {
            Subject::Group(name) => (&mut self.by_group, name),
            Subject::User(user) | Subject::ServiceAccount { user, .. } => (&mut self.by_user, user),
        }
    }
}

impl Binding {
    fn from_value(namespace: &str, name: &str, document: &Value) -> Self {
        let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let role = document.get("roleRef").unwrap_or(&Value::Null);
        let subjects = document.get("subjects").and_then(Value::as_array).into_iter().flatten();
        let subjects = subjects.filter_map(|subject| {
            let name = text(subject, "name");
            match subject.get("kind")?.as_str()? {
                "User" => Some(Subject::User(name)),
                "Group" => Some(Subject::Group(name)),
                SERVICE_ACCOUNT => {
                    let own = text(subject, "namespace");
                    let namespace = if own.is_empty() { namespace.to_owned() } else { own };
                    // Without a namespace, in a ClusterRoleBinding, nobody is meant.
                    let user = service_account_user(&namespace, &name);
                    (!namespace.is_empty()).then_some(Subject::ServiceAccount { namespace, name, user })
                }
                _ => None,
            }
        });
        Self {
            name: name.into(),
            namespace: namespace.into(),
            role_kind: text(role, "kind"),
            role_name: text(role, "name"),
            subjects: subjects.collect(),
        }
    }

    fn grant_reason(&self, user: &User) -> String {
        let (kind, name) = match &*self.namespace {
            "" => (RoleKind::ClusterRoleBinding.name(), self.name.to_string()),
            namespace => (RoleKind::RoleBinding.name(), format!("{}/{namespace}", self.name)),
        };
        let subject = self.subjects.iter().find(|subject| subject.applies_to(user)).map(Subject::text);
        // Told of every request, of those too whose reason nobody reads.
        let (name, role_name) = (quoted(&name), quoted(&self.role_name));
        let subject = subject.unwrap_or_default();
        ["RBAC: allowed by ", kind, " ", &name, " of ", &self.role_kind, " ", &role_name, " to ", &subject].concat()
    }
}

impl Subject {
    fn applies_to(&self, user: &User) -> bool {
        match self {
            Self::User(name) | Self::ServiceAccount { user: name, .. } => *name == user.name,
            Self::Group(name) => user.groups.contains(name),
        }
    }

    fn text(&self) -> String {
        match self {
            Self::User(name) => ["User ", &quoted(name)].concat(),
            Self::Group(name) => ["Group ", &quoted(name)].concat(),
            Self::ServiceAccount { namespace, name, .. } => {
                ["ServiceAccount ", &quoted(&[name.as_str(), "/", namespace].concat())].concat()
            }
        }
    }
}

/// Several messages as one: bare when there is one, bracketed otherwise.
pub(crate) fn joined_errors(errors: impl IntoIterator<Item = String>) -> String {
    let errors: Vec<String> = errors.into_iter().collect();
    match &errors[..] {
        [only] => only.clone(),
        _ => format!("[{}]", errors.join(", ")),
    }
}

/// Rules gathered from many roles are each named once; a single document's rules stay as written.
fn flattened_if_many(blocks: &Arc<[RuleBlock]>) -> Vec<PolicyRule> {
    match &blocks[..] {
        [only] => only.to_vec(),
        _ => flattened(blocks),
    }
}

fn remove_nested<V: Clone>(outer: &mut OrdMap<Arc<str>, OrdMap<Arc<str>, V>>, outer_key: &str, key: &str) {
    let Some(inner) = outer.get_mut(outer_key) else { return };
    inner.remove(key);
    if inner.is_empty() {
        outer.remove(outer_key);
    }
}

#[cfg(test)]
#[path = "rbac_tests.rs"]
mod tests;
