//! RBAC: the index of roles and bindings, and its decisions.
//!
//! The index is persistent: it is cloned with the state in constant time and updated with each document. A decision
//! checks the roles that are bound to the user or its groups if these roles are few; otherwise it checks the roles that
//! grant the request.

use super::aggregation::{ClusterRole, RuleBlock, flattened, gathered};
use super::role::{GROUP, RoleKind, SERVICE_ACCOUNT};
use super::roles::{RoleSet, Rules};
use super::rule::{Part, PolicyRule};
use super::{Attributes, Target, User, Verdict, quoted, service_account_user};
use equivalent::{Comparable, Equivalent};
use holdfast_value::Value;
use imbl::{OrdMap, OrdSet};
use std::cmp::Ordering;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// If at most this many roles are bound to one subject, they are checked one by one. Otherwise roles are looked up by
/// their grants.
const ROLES_ASKED: usize = 16;
/// The maximum number of bytes of rules in the answer to a request for all rules of a user.
pub const RULES_BYTES_MAX: usize = 256 << 10;
/// The bytes that each role adds to the count for [`RULES_BYTES_MAX`], in addition to the bytes of its rules.
const ROLE_BYTES: usize = 64;
/// The maximum number of a binding's subjects that are searched for the subject that a reason names.
const SUBJECTS_COMPARED: usize = 16;

/// Every role and binding of the cluster, indexed by subject.
#[derive(Debug, Clone, Default)]
pub struct RbacIndex {
    cluster_roles: OrdMap<Arc<str>, Arc<ClusterRole>>,
    /// The rules that each ClusterRole grants: its own, or all that it aggregates.
    granted: RoleSet,
    /// The names of the ClusterRoles that aggregate other ClusterRoles.
    gathering: OrdSet<Arc<str>>,
    /// The Roles of each namespace.
    roles: OrdMap<Arc<str>, RoleSet>,
    /// Bindings by namespace; ClusterRoleBindings have an empty namespace.
    scopes: OrdMap<Arc<str>, Scope>,
}

#[derive(Debug, Clone, Default)]
struct Scope {
    bindings: OrdMap<Arc<str>, Arc<Binding>>,
    /// The bound roles, by subject and then role, so that a role is found once even if many bindings name it.
    bound: OrdSet<Bound>,
}

#[derive(Debug)]
struct Binding {
    name: Arc<str>,
    /// The namespace of the binding; empty for a ClusterRoleBinding.
    namespace: Arc<str>,
    role: RoleRef,
    subjects: Vec<Subject>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct RoleRef {
    kind: String,
    name: String,
}

#[derive(Debug)]
enum Subject {
    User(String),
    Group(String),
    ServiceAccount { namespace: String, name: String, user: String },
}

/// A subject for look-ups. A service account is looked up by its user name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Named<'a> {
    User(&'a str),
    Group(&'a str),
}

/// One subject of a binding.
#[derive(Debug, Clone)]
struct Bound {
    binding: Arc<Binding>,
    subject: u32,
}

/// A position in the ordered set of bound subjects.
struct Place<'a> {
    named: Named<'a>,
    at: Edge<'a>,
}

enum Edge<'a> {
    /// Sorts before all roles of the subject.
    Start,
    Before(&'a RoleRef),
    After(&'a RoleRef),
}

/// The rules of a user in a namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RulesForUser {
    pub rules: Vec<PolicyRule>,
    /// Messages about bindings to missing roles.
    pub errors: Vec<String>,
    /// Whether the rules exceed [`RULES_BYTES_MAX`], so that some of them are left out.
    pub is_cut: bool,
}

impl RbacIndex {
    /// The decision about a request of `user` with these attributes. RBAC only allows, it never denies.
    pub fn authorize(&self, user: &User, attributes: &Attributes<'_>) -> Verdict {
        let namespace = match &attributes.target {
            Target::Resource(target) => target.namespace,
            Target::Path(_) => "",
        };
        let mut errors = BTreeSet::new();
        match self.grantor(user, namespace, &Part::needed(attributes), &mut errors) {
            Some(bound) => Verdict::Allow { reason: bound.grant_reason(user) },
            None if errors.is_empty() => Verdict::NoOpinion { reason: String::new() },
            None => Verdict::NoOpinion { reason: format!("RBAC: {}", joined_errors(errors)) },
        }
    }

    /// Returns a function that says whether a part is granted to `user` in `namespace`.
    pub fn holder<'a>(&'a self, user: &'a User, namespace: &str) -> impl Fn(&Part<'_>) -> bool + use<'a> {
        let (mut few, mut many) = (Vec::new(), Vec::new());
        for scope in self.scopes_of(namespace) {
            for named in subjects_of(user) {
                let mut roles = scope.roles_of(named);
                few.extend(roles.by_ref().take(ROLES_ASKED).filter_map(|bound| self.granted_by(&bound.binding).ok()));
                if let Some(next) = roles.next() {
                    many.push((named, scope, &next.binding));
                }
            }
        }
        move |part| {
            few.iter().any(|rules| rules.grant(part))
                || many.iter().any(|(named, scope, of)| self.found_grantor(*named, scope, of, part).is_some())
        }
    }

    /// Whether a role is bound to `user` in `namespace`, so that the user has all its grants.
    pub fn holds_role(&self, user: &User, namespace: &str, role_kind: &str, role_name: &str) -> bool {
        let role = RoleRef { kind: role_kind.to_owned(), name: role_name.to_owned() };
        self.scopes_of(namespace).any(|scope| {
            // A Role belongs to the namespace of its binding.
            let is_here = role_kind == RoleKind::ClusterRole.name() || scope.is_of(namespace);
            is_here && subjects_of(user).any(|named| scope.bound_to(named, &role).is_some())
        })
    }

    /// The rules of `user` in `namespace`, each role once; if `namespace` is empty, the cluster-scoped rules.
    pub fn rules_for(&self, user: &User, namespace: &str) -> RulesForUser {
        let mut left = RULES_BYTES_MAX;
        let mut is_cut = false;
        let mut take = |bytes: usize| {
            is_cut |= bytes > left;
            left = left.saturating_sub(bytes);
            !is_cut
        };
        let mut roles = BTreeMap::new();
        for scope in self.scopes_of(namespace) {
            for bound in subjects_of(user).flat_map(|named| scope.roles_of(named)) {
                let binding = &*bound.binding;
                let role = match RoleKind::of_reference(&binding.role.kind) {
                    Some(RoleKind::Role) => (&*binding.namespace, &binding.role),
                    _ => ("", &binding.role),
                };
                if let Entry::Vacant(place) = roles.entry(role) {
                    if !take(ROLE_BYTES) {
                        break;
                    }
                    place.insert(binding);
                }
            }
        }
        let mut bindings: Vec<&Binding> = roles.into_values().collect();
        bindings.sort_by_key(|binding| (&binding.namespace, &binding.name));
        let mut out = RulesForUser::default();
        let mut errors = BTreeSet::new();
        for binding in bindings {
            match self.granted_by(binding) {
                Ok(rules) => {
                    let listed = rules.each_listed();
                    out.rules.extend(listed.take_while(|rule| take(rule.text_bytes())).cloned());
                }
                Err(error) if take(error.len()) => {
                    errors.insert(error);
                }
                Err(_) => {}
            }
        }
        RulesForUser { errors: errors.into_iter().collect(), is_cut, ..out }
    }

    /// The rules of a role reference in `namespace`, or a message that the role is missing.
    pub fn role_rules(&self, role_kind: &str, role_name: &str, namespace: &str) -> Result<&Arc<Rules>, String> {
        let unsupported = || format!("unsupported role reference kind: {}", quoted(role_kind));
        let kind = RoleKind::of_reference(role_kind).ok_or_else(unsupported)?;
        let found = match kind {
            RoleKind::ClusterRole => self.granted.get(role_name),
            _ => self.roles.get(namespace).and_then(|roles| roles.get(role_name)),
        };
        let (_, singular) = kind.resource();
        found.ok_or_else(|| format!("{singular}.{GROUP} {} not found", quoted(role_name)))
    }

    /// The rules that an aggregated ClusterRole should contain; `None` if it contains them, or does not aggregate.
    pub fn aggregate(&self, name: &str) -> Option<Value> {
        let role = self.cluster_roles.get(name).filter(|role| role.selectors.is_some())?;
        let wanted = flattened(self.granted.get(name)?.blocks());
        let differs = wanted[..] != role.written[..];
        differs.then(|| wanted.iter().map(PolicyRule::to_value).collect())
    }

    /// The aggregated ClusterRoles whose rules are out of date.
    pub fn stale_aggregates(&self) -> Vec<String> {
        self.gathering.iter().filter(|name| self.aggregate(name).is_some()).map(|name| name.to_string()).collect()
    }

    /// Adds or replaces a role or binding.
    pub fn put(&mut self, kind: RoleKind, namespace: &str, name: &str, document: &Value) {
        match kind {
            RoleKind::ClusterRole => self.change_cluster_role(name, Some(ClusterRole::from_value(document))),
            RoleKind::Role => {
                let rules = Rules::new(vec![RuleBlock::from(PolicyRule::list_from(document))]);
                self.roles.entry(namespace.into()).or_default().put(name, rules);
            }
            RoleKind::ClusterRoleBinding => self.put_binding(Binding::from_value("", name, document)),
            RoleKind::RoleBinding => self.put_binding(Binding::from_value(namespace, name, document)),
        }
    }

    pub fn delete(&mut self, kind: RoleKind, namespace: &str, name: &str) {
        match kind {
            RoleKind::ClusterRole => self.change_cluster_role(name, None),
            RoleKind::Role => {
                let Some(roles) = self.roles.get_mut(namespace) else { return };
                roles.remove(name);
                if roles.is_empty() {
                    self.roles.remove(namespace);
                }
            }
            RoleKind::ClusterRoleBinding => self.delete_binding("", name),
            RoleKind::RoleBinding => self.delete_binding(namespace, name),
        }
    }

    /// The bindings that apply in a namespace: first the ClusterRoleBindings, then the bindings of the namespace.
    fn scopes_of(&self, namespace: &str) -> impl Iterator<Item = &Scope> {
        let own = (!namespace.is_empty()).then(|| self.scopes.get(namespace)).flatten();
        self.scopes.get("").into_iter().chain(own)
    }

    /// A binding by which `user` has `part` in `namespace`. Problems with the roles checked are added to `errors`.
    fn grantor(&self, user: &User, namespace: &str, part: &Part<'_>, errors: &mut BTreeSet<String>) -> Option<&Bound> {
        self.scopes_of(namespace).find_map(|scope| {
            let mut subjects = subjects_of(user);
            subjects.find_map(|named| self.grantor_to(named, scope, part, errors))
        })
    }

    /// Like [`Self::grantor`], among the roles that one scope binds to one subject.
    fn grantor_to<'a>(
        &'a self,
        named: Named<'_>,
        scope: &'a Scope,
        part: &Part<'_>,
        errors: &mut BTreeSet<String>,
    ) -> Option<&'a Bound> {
        let mut roles = scope.roles_of(named);
        for bound in roles.by_ref().take(ROLES_ASKED) {
            match self.granted_by(&bound.binding) {
                Ok(rules) if rules.grant(part) => return Some(bound),
                Ok(_) => {}
                Err(error) => {
                    errors.insert(error);
                }
            }
        }
        self.found_grantor(named, scope, &roles.next()?.binding, part)
    }

    /// Like [`Self::grantor_to`], but begins with the roles: searches the roles that grant `part`, one verb on one
    /// resource or path, for a role that is bound to the subject. `of` is any binding of the scope: the search needs only
    /// its namespace.
    fn found_grantor<'a>(
        &'a self,
        named: Named<'_>,
        scope: &'a Scope,
        of: &Binding,
        part: &Part<'_>,
    ) -> Option<&'a Bound> {
        let of_namespace = self.roles.get(&of.namespace).map(|roles| (RoleKind::Role, roles));
        [Some((RoleKind::ClusterRole, &self.granted)), of_namespace].into_iter().flatten().find_map(|(kind, roles)| {
            let mut found = None;
            let mut role = RoleRef { kind: kind.name().to_owned(), name: String::new() };
            roles.find(part, |name| {
                role.name.clear();
                role.name.push_str(name);
                found = scope.bound_to(named, &role);
                found.is_some()
            });
            found
        })
    }

    fn granted_by(&self, binding: &Binding) -> Result<&Arc<Rules>, String> {
        self.role_rules(&binding.role.kind, &binding.role.name, &binding.namespace)
    }

    /// Replaces or deletes a ClusterRole, and recomputes the roles that aggregate it.
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
        match &new {
            Some(role) if role.selectors.is_some() => self.granted.put(name, Rules::default()),
            Some(role) => self.granted.put(name, Rules::new(vec![role.written.clone()])),
            None => self.granted.remove(name),
        }
        let changed = [old, new];
        let is_gathered = |gathering: &Arc<str>| {
            let selectors = self.cluster_roles.get(&**gathering).and_then(|role| role.selectors.as_ref());
            let mut changed = changed.iter().flatten();
            changed.any(|role| selectors.into_iter().flatten().any(|selector| role.is_selected(selector)))
        };
        let gathers = changed.iter().flatten().any(|role| role.selectors.is_some());
        if gathers || self.gathering.iter().any(is_gathered) {
            self.gather();
        }
    }

    fn gather(&mut self) {
        for name in &self.gathering {
            let blocks = gathered(name, &self.cluster_roles);
            if !self.granted.get(name).is_some_and(|rules| rules.is_of(&blocks)) {
                self.granted.put(name, Rules::new(blocks));
            }
        }
    }

    fn put_binding(&mut self, binding: Binding) {
        self.delete_binding(&binding.namespace, &binding.name);
        let binding = Arc::new(binding);
        let scope = self.scopes.entry(binding.namespace.clone()).or_default();
        for subject in (0_u32..).take(binding.subjects.len()) {
            scope.bound.insert(Bound { binding: binding.clone(), subject });
        }
        scope.bindings.insert(binding.name.clone(), binding);
    }

    fn delete_binding(&mut self, namespace: &str, name: &str) {
        let Some(scope) = self.scopes.get_mut(namespace) else { return };
        let Some(old) = scope.bindings.remove(name) else { return };
        for subject in (0_u32..).take(old.subjects.len()) {
            scope.bound.remove(&Bound { binding: old.clone(), subject });
        }
        if scope.bindings.is_empty() {
            self.scopes.remove(namespace);
        }
    }
}

/// A user's subjects: itself, then its groups.
fn subjects_of(user: &User) -> impl Iterator<Item = Named<'_>> {
    [Named::User(&user.name)].into_iter().chain(user.groups.iter().map(|group| Named::Group(group)))
}

impl Scope {
    /// The first binding of each role bound to a subject.
    fn roles_of<'a, 'n>(&'a self, named: Named<'n>) -> impl Iterator<Item = &'a Bound> + use<'a, 'n> {
        let of_subject = move |bound: &&Bound| bound.named() == named;
        let first = self.bound.get_next(&Place { named, at: Edge::Start }).filter(of_subject);
        std::iter::successors(first, move |last: &&Bound| {
            self.bound.get_next(&Place { named, at: Edge::After(&last.binding.role) }).filter(of_subject)
        })
    }

    /// The first binding of a role to a subject.
    fn bound_to(&self, named: Named<'_>, role: &RoleRef) -> Option<&Bound> {
        let found = self.bound.get_next(&Place { named, at: Edge::Before(role) })?;
        (found.named() == named && found.binding.role == *role).then_some(found)
    }

    fn is_of(&self, namespace: &str) -> bool {
        self.bindings.values().next().is_some_and(|binding| *binding.namespace == *namespace)
    }
}

impl Bound {
    fn subject(&self) -> &Subject {
        &self.binding.subjects[self.subject as usize]
    }

    fn named(&self) -> Named<'_> {
        match self.subject() {
            Subject::Group(name) => Named::Group(name),
            Subject::User(user) | Subject::ServiceAccount { user, .. } => Named::User(user),
        }
    }

    fn grant_reason(&self, user: &User) -> String {
        let binding = &*self.binding;
        let (kind, name) = match &*binding.namespace {
            "" => (RoleKind::ClusterRoleBinding.name(), binding.name.to_string()),
            namespace => (RoleKind::RoleBinding.name(), format!("{}/{namespace}", binding.name)),
        };
        let first = binding.subjects.iter().take(SUBJECTS_COMPARED).find(|subject| subject.applies_to(user));
        let subject = first.unwrap_or_else(|| self.subject()).text();
        // This text is made for every request, even if it is not used, so it must be fast.
        let (name, role_name) = (quoted(&name), quoted(&binding.role.name));
        ["RBAC: allowed by ", kind, " ", &name, " of ", &binding.role.kind, " ", &role_name, " to ", &subject].concat()
    }
}

impl PartialEq for Bound {
    fn eq(&self, other: &Bound) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Bound {}

impl PartialOrd for Bound {
    fn partial_cmp(&self, other: &Bound) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Bound {
    fn cmp(&self, other: &Bound) -> Ordering {
        let (own, others) = (&self.binding, &other.binding);
        let by_binding = || (&own.role, &own.name).cmp(&(&others.role, &others.name));
        self.named().cmp(&other.named()).then_with(by_binding)
    }
}

impl Equivalent<Bound> for Place<'_> {
    fn equivalent(&self, _: &Bound) -> bool {
        // A position is never equal to an element.
        false
    }
}

impl Comparable<Bound> for Place<'_> {
    fn compare(&self, bound: &Bound) -> Ordering {
        let (role, otherwise) = match self.at {
            Edge::Start => (None, Ordering::Less),
            Edge::Before(role) => (Some(role), Ordering::Less),
            Edge::After(role) => (Some(role), Ordering::Greater),
        };
        let by_role = || role.map_or(otherwise, |role| role.cmp(&bound.binding.role));
        self.named.cmp(&bound.named()).then_with(by_role).then(otherwise)
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
                    // A service account without a namespace (in a ClusterRoleBinding) means no user.
                    let user = service_account_user(&namespace, &name);
                    (!namespace.is_empty()).then_some(Subject::ServiceAccount { namespace, name, user })
                }
                _ => None,
            }
        });
        Self {
            name: name.into(),
            namespace: namespace.into(),
            role: RoleRef { kind: text(role, "kind"), name: text(role, "name") },
            subjects: subjects.collect(),
        }
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

/// Joins messages: a single message stays as it is, and several messages are put into brackets.
pub(crate) fn joined_errors(errors: impl IntoIterator<Item = String>) -> String {
    let errors: Vec<String> = errors.into_iter().collect();
    match &errors[..] {
        [only] => only.clone(),
        _ => format!("[{}]", errors.join(", ")),
    }
}

#[cfg(test)]
#[path = "rbac_tests.rs"]
mod tests;
