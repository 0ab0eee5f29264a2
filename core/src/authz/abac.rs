//! ABAC: a policy file with one policy per line. A policy allows some requests to a user or a group.

use super::{Attributes, PolicyRule, Target, User, Verdict};
use holdfast_value::Value;
use std::collections::BTreeMap;

const VERSION: &str = "abac.authorization.kubernetes.io/v1beta1";
const KIND: &str = "Policy";
const EVERYBODY: &str = "system:authenticated";
const READING: [&str; 3] = ["get", "list", "watch"];
/// The maximum number of bytes of one line.
const LINE_BYTES_MAX: usize = 64 << 10;

/// The policy in one line of a policy file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Policy {
    user: String,
    group: String,
    readonly: bool,
    api_group: String,
    resource: String,
    namespace: String,
    path: String,
}

/// All policies of a policy file, indexed by user and group.
#[derive(Debug, Default)]
pub struct Policies {
    lines: Vec<Policy>,
    by_user: BTreeMap<String, Vec<usize>>,
    by_group: BTreeMap<String, Vec<usize>>,
    /// Whether any line of the file lacks an `apiVersion`.
    pub has_unversioned: bool,
}

impl Policies {
    /// Parses a policy file; `name` is the file's name in error messages.
    pub fn read(name: &str, text: &str) -> Result<Policies, String> {
        let (mut policies, mut faults) = (Policies::default(), Vec::new());
        for (at, line) in text.lines().enumerate() {
            let trimmed = line.trim();
            if trimmed.is_empty() || trimmed.starts_with('#') {
                continue;
            }
            if line.len() > LINE_BYTES_MAX {
                faults.push(format!("error reading policy file {name}: line {} is too long", at + 1));
                continue;
            }
            match Policy::read(trimmed) {
                Ok((policy, is_versioned)) => {
                    policies.has_unversioned |= !is_versioned;
                    policies.add(policy);
                }
                Err(why) => faults.push(format!("error reading policy file {name}, line {}: {line}: {why}", at + 1)),
            }
        }
        if faults.is_empty() { Ok(policies) } else { Err(faults.join("; ")) }
    }

    fn add(&mut self, policy: Policy) {
        let at = self.lines.len();
        if !policy.user.is_empty() && policy.user != "*" {
            self.by_user.entry(policy.user.clone()).or_default().push(at);
        } else if !policy.group.is_empty() {
            self.by_group.entry(policy.group.clone()).or_default().push(at);
        }
        self.lines.push(policy);
    }

    /// The policies about a user, in file order.
    fn about(&self, user: &User) -> Vec<&Policy> {
        let by_group = user.groups.iter().filter_map(|group| self.by_group.get(group));
        let mut found: Vec<usize> =
            self.by_user.get(&user.name).into_iter().chain(by_group).flatten().copied().collect();
        found.sort_unstable();
        found.dedup();
        let is_in = |policy: &&Policy| policy.group.is_empty() || user.groups.contains(&policy.group);
        found.into_iter().map(|at| &self.lines[at]).filter(is_in).collect()
    }

    pub(super) fn authorize(&self, user: &User, attributes: &Attributes<'_>) -> Verdict {
        match self.about(user).into_iter().any(|policy| policy.allows(attributes)) {
            true => Verdict::Allow { reason: String::new() },
            false => Verdict::NoOpinion { reason: "No policy matched.".into() },
        }
    }

    pub(super) fn rules_for(&self, user: &User, namespace: &str) -> Vec<PolicyRule> {
        let mut rules = Vec::new();
        for policy in self.about(user) {
            if policy.namespace != "*" && policy.namespace != namespace {
                continue;
            }
            let all = vec!["*".to_owned()];
            let verbs = if policy.readonly { READING.map(str::to_owned).into() } else { all };
            if !policy.resource.is_empty() {
                rules.push(PolicyRule {
                    verbs: verbs.clone(),
                    api_groups: vec![policy.api_group.clone()],
                    resources: vec![policy.resource.clone()],
                    ..PolicyRule::default()
                });
            }
            if !policy.path.is_empty() {
                let non_resource_urls = vec![policy.path.clone()];
                rules.push(PolicyRule { verbs, non_resource_urls, ..PolicyRule::default() });
            }
        }
        rules
    }
}

impl Policy {
    /// Parses a line; returns whether it has a version.
    fn read(line: &str) -> Result<(Policy, bool), String> {
        let document: Value = serde_json::from_str(line).map_err(|error| error.to_string())?;
        if !document.is_object() {
            return Err("a policy must be an object".into());
        }
        let (version, kind) = (text(&document, "apiVersion")?, text(&document, "kind")?);
        match (version.as_str(), kind.as_str()) {
            (VERSION, KIND) => Policy::versioned(&document["spec"]).map(|policy| (policy, true)),
            ("", _) | (_, "") => Policy::unversioned(&document).map(|policy| (policy, false)),
            _ => Err(format!("no kind \"{kind}\" is registered for version \"{version}\"")),
        }
    }

    fn versioned(spec: &Value) -> Result<Policy, String> {
        Ok(Policy {
            user: text(spec, "user")?,
            group: text(spec, "group")?,
            readonly: flag(spec, "readonly")?,
            api_group: text(spec, "apiGroup")?,
            resource: text(spec, "resource")?,
            namespace: text(spec, "namespace")?,
            path: text(spec, "nonResourcePath")?,
        }
        .of_known_users())
    }

    /// Parses a policy in the old format without a version. An absent field matches everything, and the policy applies
    /// to every API group.
    fn unversioned(line: &Value) -> Result<Policy, String> {
        let all = |text: String| if text.is_empty() { "*".to_owned() } else { text };
        let (resource, namespace) = (text(line, "resource")?, text(line, "namespace")?);
        let path = if resource.is_empty() && namespace.is_empty() { "*".to_owned() } else { String::new() };
        let mut policy = Policy {
            user: text(line, "user")?,
            group: text(line, "group")?,
            readonly: flag(line, "readonly")?,
            api_group: "*".into(),
            resource: all(resource),
            namespace: all(namespace),
            path,
        };
        if policy.user.is_empty() && policy.group.is_empty() {
            policy.group = EVERYBODY.into();
        }
        Ok(policy.of_known_users())
    }

    /// Turns a policy for the user `*` or the group `*` into a policy for all authenticated users.
    fn of_known_users(mut self) -> Policy {
        if self.user == "*" || self.group == "*" {
            self.group = EVERYBODY.into();
        }
        self
    }

    fn allows(&self, attributes: &Attributes<'_>) -> bool {
        let fits = |wanted: &str, asked: &str| wanted == "*" || wanted == asked;
        match &attributes.target {
            Target::Resource(target) => {
                (!self.readonly || READING.contains(&attributes.verb))
                    && fits(&self.namespace, target.namespace)
                    && fits(&self.resource, target.resource)
                    && fits(&self.api_group, target.group)
            }
            Target::Path(path) => {
                let begins = self.path.ends_with('*') && path.starts_with(self.path.trim_end_matches('*'));
                (!self.readonly || attributes.verb == "get") && (self.path == *path || begins)
            }
        }
    }
}

fn text(value: &Value, field: &str) -> Result<String, String> {
    match &value[field] {
        Value::Null => Ok(String::new()),
        Value::String(text) => Ok(text.to_string()),
        _ => Err(format!("the field {field:?} must be a string")),
    }
}

fn flag(value: &Value, field: &str) -> Result<bool, String> {
    match &value[field] {
        Value::Null => Ok(false),
        Value::Bool(flag) => Ok(*flag),
        _ => Err(format!("the field {field:?} must be a boolean")),
    }
}

#[cfg(test)]
#[path = "abac_tests.rs"]
mod tests;
