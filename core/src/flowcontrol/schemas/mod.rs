//! FlowSchemas determine the flow that a request belongs to.
//!
//! A request belongs to the matching schema with the lowest precedence. The rules of schemas are indexed by the
//! subjects that they name, so that a request is compared only with rules that could match its user.

use crate::authz::{Attributes, ResourceTarget, Target, User, service_account_user};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::Arc;

pub const EXEMPT: &str = "exempt";
pub const CATCH_ALL: &str = "catch-all";

#[derive(Deserialize)]
pub(super) struct Metadata {
    pub name: String,
    #[serde(default)]
    pub uid: String,
}

const ANY: &str = "*";
const SERVICE_ACCOUNT_PREFIX: &str = "system:serviceaccount:";

/// All schemas in the order of matching.
#[derive(Debug)]
pub struct Schemas {
    ordered: Vec<Schema>,
    // The rules' positions in `ordered`, ascending, by the user that a rule names.
    by_user: Places,
    // The rules' positions in `ordered`, ascending, by the group that a rule names.
    by_group: Places,
    /// The rules' positions by the namespace whose service accounts a rule names.
    by_namespace: Places,
    /// The positions of the rules that apply to all users.
    everybody: Vec<Place>,
    /// The index in `ordered` of the schema for requests that match no rule.
    rest: usize,
}

/// The position of a rule: the index of its schema, and its index within the schema.
type Place = (usize, usize);
type Places = BTreeMap<String, Vec<Place>>;

#[derive(Debug)]
pub struct Schema {
    pub name: String,
    pub uid: Arc<str>,
    pub level: String,
    pub distinguisher: Distinguisher,
    precedence: i64,
    rules: Vec<Rule>,
}

/// How a schema distinguishes its flows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Distinguisher {
    #[default]
    None,
    User,
    Namespace,
}

impl Distinguisher {
    /// The value that distinguishes the request's flow from other flows of its schema.
    pub fn of<'a>(self, user: &'a User, attributes: &Attributes<'a>) -> &'a str {
        match (self, attributes.target) {
            (Distinguisher::User, _) => &user.name,
            (Distinguisher::Namespace, Target::Resource(target)) => target.namespace,
            (Distinguisher::Namespace, Target::Path(_)) | (Distinguisher::None, _) => "",
        }
    }
}

impl Schemas {
    pub fn new(mut ordered: Vec<Schema>) -> Schemas {
        ordered.sort_by(|one, other| (one.precedence, &one.name).cmp(&(other.precedence, &other.name)));
        let rest =
            ordered.iter().position(|schema| schema.name == CATCH_ALL).unwrap_or(ordered.len().saturating_sub(1));
        let mut schemas = Schemas {
            ordered: Vec::new(),
            by_user: Places::new(),
            by_group: Places::new(),
            by_namespace: Places::new(),
            everybody: Vec::new(),
            rest,
        };
        for (place, schema) in ordered.iter().enumerate() {
            for (rule_place, rule) in schema.rules.iter().enumerate() {
                rule.subjects.iter().for_each(|subject| schemas.note(subject, (place, rule_place)));
            }
        }
        schemas.ordered = ordered;
        schemas
    }

    fn note(&mut self, subject: &Subject, place: Place) {
        let (places, key) = match subject {
            Subject::User { user } if user.name == ANY => return self.everybody.push(place),
            Subject::Group { group } if group.name == ANY => return self.everybody.push(place),
            Subject::User { user } => (&mut self.by_user, user.name.clone()),
            Subject::Group { group } => (&mut self.by_group, group.name.clone()),
            Subject::ServiceAccount { account } if account.name == ANY => {
                (&mut self.by_namespace, account.namespace.clone())
            }
            Subject::ServiceAccount { account } => {
                (&mut self.by_user, service_account_user(&account.namespace, &account.name))
            }
        };
        places.entry(key).or_default().push(place);
    }

    pub fn iter(&self) -> impl Iterator<Item = &Schema> {
        self.ordered.iter()
    }

    /// The index of the schema that a request belongs to.
    pub fn find(&self, user: &User, attributes: &Attributes<'_>) -> usize {
        let namespace = service_account_namespace(&user.name);
        let lists = [
            Some(&self.everybody),
            self.by_user.get(&user.name),
            namespace.and_then(|namespace| self.by_namespace.get(namespace)),
        ];
        let groups = user.groups.iter().map(|group| self.by_group.get(group));
        let mut best = usize::MAX;
        for places in lists.into_iter().chain(groups).flatten() {
            let better = places.iter().take_while(|(schema, _)| *schema < best);
            let mut matching = better.filter(|(schema, rule)| self.ordered[*schema].rules[*rule].covers(attributes));
            best = matching.next().map_or(best, |(schema, _)| *schema);
        }
        if best == usize::MAX { self.rest } else { best }
    }
}

/// The namespace in the user name `system:serviceaccount:NAMESPACE:NAME`; `None` for other user names.
fn service_account_namespace(user: &str) -> Option<&str> {
    let (namespace, name) = user.strip_prefix(SERVICE_ACCOUNT_PREFIX)?.split_once(':')?;
    (!namespace.is_empty() && !name.is_empty() && !name.contains(':')).then_some(namespace)
}

/// The `spec` of a FlowSchema.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Spec {
    priority_level_configuration: Name,
    #[serde(default)]
    matching_precedence: i64,
    distinguisher_method: Option<Method>,
    #[serde(default)]
    rules: Vec<Rule>,
}

impl Schema {
    pub(super) fn new(metadata: &Metadata, spec: Spec) -> Schema {
        let distinguisher = match spec.distinguisher_method.as_ref().map(|method| method.r#type.as_str()) {
            Some("ByUser") => Distinguisher::User,
            Some("ByNamespace") => Distinguisher::Namespace,
            _ => Distinguisher::None,
        };
        Schema {
            name: metadata.name.clone(),
            uid: metadata.uid.as_str().into(),
            level: spec.priority_level_configuration.name,
            distinguisher,
            precedence: spec.matching_precedence,
            rules: spec.rules,
        }
    }
}

#[derive(Debug, Clone, Default, Deserialize)]
struct Name {
    #[serde(default)]
    name: String,
}

#[derive(Deserialize)]
struct Method {
    r#type: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Rule {
    #[serde(default)]
    subjects: Vec<Subject>,
    #[serde(default)]
    resource_rules: Vec<ResourceRule>,
    #[serde(default)]
    non_resource_rules: Vec<PathRule>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "kind")]
enum Subject {
    User {
        user: Name,
    },
    Group {
        group: Name,
    },
    ServiceAccount {
        #[serde(rename = "serviceAccount")]
        account: Account,
    },
}

#[derive(Debug, Clone, Deserialize)]
struct Account {
    namespace: String,
    name: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ResourceRule {
    verbs: Words,
    api_groups: Words,
    resources: Words,
    #[serde(default)]
    cluster_scope: bool,
    #[serde(default)]
    namespaces: Words,
}

#[derive(Debug, Deserialize)]
struct PathRule {
    verbs: Words,
    #[serde(rename = "nonResourceURLs")]
    paths: Vec<String>,
}

/// A list of words in which `*` matches everything.
#[derive(Debug, Default, Deserialize)]
struct Words(Vec<String>);

impl Words {
    fn have(&self, word: &str) -> bool {
        self.0.iter().any(|known| known == word || known == ANY)
    }

    /// Like `have`, for `resource/subresource`, without building that text.
    fn have_resource(&self, target: &ResourceTarget<'_>) -> bool {
        let ResourceTarget { resource, subresource, .. } = *target;
        self.0.iter().any(|known| {
            let (first, second) = known.split_once('/').unwrap_or((known, ""));
            known == ANY || (first == resource && second == subresource)
        })
    }
}

impl Rule {
    /// Whether the rule matches the request, for any user.
    fn covers(&self, attributes: &Attributes<'_>) -> bool {
        match &attributes.target {
            Target::Resource(target) => self.resource_rules.iter().any(|rule| rule.covers(attributes.verb, target)),
            Target::Path(path) => self.non_resource_rules.iter().any(|rule| rule.covers(attributes.verb, path)),
        }
    }
}

impl ResourceRule {
    fn covers(&self, verb: &str, target: &ResourceTarget<'_>) -> bool {
        let scope = match target.namespace {
            "" => self.cluster_scope,
            namespace => self.namespaces.have(namespace),
        };
        scope && self.verbs.have(verb) && self.api_groups.have(target.group) && self.resources.have_resource(target)
    }
}

impl PathRule {
    fn covers(&self, verb: &str, path: &str) -> bool {
        self.verbs.have(verb) && self.paths.iter().any(|known| leads_to(known, path))
    }
}

/// Whether the path is `known` or below it. If `known` ends in `*`, whether the path starts with the part before the
/// `*`.
fn leads_to(known: &str, path: &str) -> bool {
    if let Some(begin) = known.strip_suffix('*') {
        return path.starts_with(begin);
    }
    let rest = path.strip_prefix(known);
    rest.is_some_and(|rest| rest.is_empty() || known.ends_with('/') || rest.starts_with('/'))
}

#[cfg(test)]
mod tests;
