//! The audit policy. The first rule that matches a request decides whether the request is recorded, and how much of the
//! request.

use crate::{Level, Stage};
use holdfast_core::authz::User;
use holdfast_core::object::yaml;
use holdfast_value::{Map, Value};
use serde::Deserialize;

const KNOWN_VERSIONS: [&str; 3] = ["audit.k8s.io/v1", "audit.k8s.io/v1beta1", "audit.k8s.io/v1alpha1"];

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Policy {
    rules: Vec<Rule>,
    omit_stages: Vec<Stage>,
    omit_managed_fields: bool,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Rule {
    level: Level,
    #[serde(default, deserialize_with = "list")]
    users: Vec<String>,
    #[serde(default, deserialize_with = "list")]
    user_groups: Vec<String>,
    #[serde(default, deserialize_with = "list")]
    verbs: Vec<String>,
    #[serde(default, deserialize_with = "list")]
    resources: Vec<ResourceRule>,
    #[serde(default, deserialize_with = "list")]
    namespaces: Vec<String>,
    #[serde(default, rename = "nonResourceURLs", deserialize_with = "list")]
    non_resource_urls: Vec<String>,
    #[serde(default, deserialize_with = "list")]
    omit_stages: Vec<Stage>,
    #[serde(default)]
    omit_managed_fields: Option<bool>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ResourceRule {
    group: String,
    #[serde(deserialize_with = "list")]
    resources: Vec<String>,
    #[serde(deserialize_with = "list")]
    resource_names: Vec<String>,
}

/// Reads a list; null counts as an empty list.
fn list<'de, D: serde::Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// The properties of a request that rules read.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    pub user: &'a User,
    pub verb: &'a str,
    pub asked: RequestTarget<'a>,
}

#[derive(Debug, Clone, Copy)]
pub enum RequestTarget<'a> {
    Resource { group: &'a str, resource: &'a str, subresource: &'a str, namespace: &'a str, name: &'a str },
    Path(&'a str),
}

/// A policy's decision about a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ruling {
    pub level: Level,
    pub omitted: Vec<Stage>,
    pub omit_managed_fields: bool,
}

impl Ruling {
    const NOTHING: Ruling = Ruling { level: Level::None, omitted: Vec::new(), omit_managed_fields: false };

    pub fn records(&self, stage: Stage) -> bool {
        self.level != Level::None && !self.omitted.contains(&stage)
    }
}

impl Policy {
    /// Parses a policy file. All errors are returned at once. Unknown fields are ignored and returned as warnings in
    /// the second part of the result.
    pub fn read(text: &str) -> Result<(Policy, Vec<String>), Vec<String>> {
        let document: Value = yaml::read(text).map_err(|error| vec![format!("failed decoding: {error}")])?;
        let Value::Object(fields) = &document else {
            return Err(vec!["failed decoding: the file holds no object".into()]);
        };
        let version = fields.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
        let kind = fields.get("kind").and_then(Value::as_str).unwrap_or_default();
        if !KNOWN_VERSIONS.contains(&version) || kind != "Policy" {
            let allowed = KNOWN_VERSIONS.join(", ");
            return Err(vec![format!(
                "unknown group version field {version} or kind {kind:?} in policy: a Policy of {allowed} is expected"
            )]);
        }
        let mut strange = Vec::new();
        unknown(
            fields,
            &["apiVersion", "kind", "metadata", "rules", "omitStages", "omitManagedFields"],
            "",
            &mut strange,
        );
        let mut faults = Vec::new();
        let omit_stages = stages(fields.get("omitStages"), "omitStages", &mut faults);
        let omit_managed_fields = fields.get("omitManagedFields").and_then(Value::as_bool).unwrap_or(false);
        let listed = fields.get("rules").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let mut rules = Vec::new();
        for (index, document) in listed.iter().enumerate() {
            let at = format!("rules[{index}]");
            if let Some(fields) = document.as_object() {
                unknown(fields, RULE_FIELDS, &format!("{at}."), &mut strange);
                let resources = fields.get("resources").and_then(Value::as_array).into_iter().flatten();
                for (index, fields) in resources.enumerate() {
                    let Some(fields) = fields.as_object() else { continue };
                    unknown(fields, RESOURCES_FIELDS, &format!("{at}.resources[{index}]."), &mut strange);
                }
            }
            match read_rule(document, &at, &mut faults) {
                Some(rule) => rules.push(rule),
                None => continue,
            }
        }
        if !faults.is_empty() {
            return Err(faults);
        }
        if rules.is_empty() {
            return Err(vec!["loaded illegal policy with 0 rules".into()]);
        }
        Ok((Policy { rules, omit_stages, omit_managed_fields }, strange))
    }

    pub fn judge(&self, subject: Subject<'_>) -> Ruling {
        let Some(rule) = self.rules.iter().find(|rule| rule.matches(subject)) else { return Ruling::NOTHING };
        let mut omitted = self.omit_stages.clone();
        omitted.extend(&rule.omit_stages);
        let omit_managed_fields = rule.omit_managed_fields.unwrap_or(self.omit_managed_fields);
        Ruling { level: rule.level, omitted, omit_managed_fields }
    }
}

const RULE_FIELDS: &[&str] = &[
    "level",
    "users",
    "userGroups",
    "verbs",
    "resources",
    "namespaces",
    "nonResourceURLs",
    "omitStages",
    "omitManagedFields",
];

const RESOURCES_FIELDS: &[&str] = &["group", "resources", "resourceNames"];

fn unknown(fields: &Map, known: &[&str], at: &str, strange: &mut Vec<String>) {
    let others = fields.keys().filter(|field| !known.contains(&field.as_str()));
    strange.extend(others.map(|field| format!("unknown field \"{at}{field}\"")));
}

fn stages(value: Option<&Value>, at: &str, faults: &mut Vec<String>) -> Vec<Stage> {
    let mut found = Vec::new();
    for (index, stage) in value.and_then(Value::as_array).into_iter().flatten().enumerate() {
        match Stage::deserialize(stage) {
            Ok(stage) => found.push(stage),
            Err(_) => faults.push(format!("{at}[{index}]: Invalid value: {stage}: unknown audit stage")),
        }
    }
    found
}

fn read_rule(document: &Value, at: &str, faults: &mut Vec<String>) -> Option<Rule> {
    let before = faults.len();
    match document.get("level").and_then(Value::as_str) {
        None | Some("") => faults.push(format!("{at}.level: Required value")),
        Some(level) if Level::deserialize(&Value::from(level)).is_err() => faults.push(format!(
            "{at}.level: Unsupported value: {level:?}: supported values: \"Metadata\", \"None\", \"Request\", \
             \"RequestResponse\""
        )),
        Some(_) => {}
    }
    stages(document.get("omitStages"), &format!("{at}.omitStages"), faults);
    if faults.len() > before {
        return None;
    }
    let rule = match Rule::deserialize(document) {
        Ok(rule) => rule,
        Err(error) => {
            faults.push(format!("{at}: {error}"));
            return None;
        }
    };
    let about_paths = !rule.non_resource_urls.is_empty();
    if about_paths && !(rule.resources.is_empty() && rule.namespaces.is_empty()) {
        let urls = serde_json::to_string(&rule.non_resource_urls).unwrap_or_default();
        faults.push(format!(
            "{at}.nonResourceURLs: Invalid value: {urls}: rules cannot apply to both regular resources and non-resource URLs"
        ));
    }
    for (index, url) in rule.non_resource_urls.iter().enumerate() {
        let at = format!("{at}.nonResourceURLs[{index}]");
        if url == "*" {
            continue;
        }
        if !url.starts_with('/') {
            faults
                .push(format!("{at}: Invalid value: {url:?}: non-resource URL rules must begin with a '/' character"));
        }
        if url.find('*').is_some_and(|star| star + 1 < url.len()) {
            faults.push(format!(
                "{at}: Invalid value: {url:?}: non-resource URL wildcards '*' must be the final character of the rule"
            ));
        }
    }
    for (index, resources) in rule.resources.iter().enumerate() {
        let group = &resources.group;
        let at = format!("{at}.resources[{index}]");
        let label = |part: &str| {
            !part.is_empty()
                && part.len() <= 63
                && part.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
        };
        if !group.is_empty() && group != "*" && !group.split('.').all(label) {
            faults.push(format!("{at}.group: Invalid value: {group:?}: a lowercase RFC 1123 subdomain is expected"));
        }
        if !resources.resource_names.is_empty() && resources.resources.is_empty() {
            faults.push(format!(
                "{at}.resourceNames: Invalid value: {}: using resourceNames requires at least one resource",
                serde_json::to_string(&resources.resource_names).unwrap_or_default()
            ));
        }
    }
    Some(rule)
}

impl Rule {
    fn matches(&self, subject: Subject<'_>) -> bool {
        let holds = |list: &[String], value: &str| list.is_empty() || list.iter().any(|item| item == value);
        let grouped = || subject.user.groups.iter().any(|group| self.user_groups.contains(group));
        holds(&self.users, &subject.user.name)
            && (self.user_groups.is_empty() || grouped())
            && holds(&self.verbs, subject.verb)
            && self.is_about(subject.asked)
    }

    fn is_about(&self, asked: RequestTarget<'_>) -> bool {
        let about_resources = !self.resources.is_empty() || !self.namespaces.is_empty();
        let about_paths = !self.non_resource_urls.is_empty();
        match asked {
            _ if !about_resources && !about_paths => true,
            RequestTarget::Resource { namespace, .. } => {
                let within = self.namespaces.is_empty() || self.namespaces.iter().any(|known| known == namespace);
                let listed = self.resources.is_empty() || self.resources.iter().any(|entry| entry.holds(asked));
                about_resources && within && listed
            }
            RequestTarget::Path(path) => self.non_resource_urls.iter().any(|url| match url.strip_suffix('*') {
                Some(prefix) => path.starts_with(prefix),
                None => path == url,
            }),
        }
    }
}

impl ResourceRule {
    fn holds(&self, asked: RequestTarget<'_>) -> bool {
        let RequestTarget::Resource { group, resource, subresource, name, .. } = asked else { return false };
        if self.group != group && self.group != "*" {
            return false;
        }
        if self.resources.is_empty() {
            return true;
        }
        if !self.resource_names.is_empty() && !self.resource_names.iter().any(|known| known == name) {
            return false;
        }
        self.resources.iter().any(|entry| match entry.split_once('/') {
            None => entry == "*" || subresource.is_empty() && entry == resource,
            Some(("*", sub)) => sub == subresource,
            Some((of, "*")) => of == resource,
            Some((of, sub)) => of == resource && sub == subresource,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ruling(policy: &str, user: &User, verb: &str, asked: RequestTarget<'_>) -> Level {
        let (policy, strange) = Policy::read(policy).expect("a policy");
        assert_eq!(strange, Vec::<String>::new());
        policy.judge(Subject { user, verb, asked }).level
    }

    fn of<'a>(group: &'a str, path: &'a str, namespace: &'a str, name: &'a str) -> RequestTarget<'a> {
        let (resource, subresource) = path.split_once('/').unwrap_or((path, ""));
        RequestTarget::Resource { group, resource, subresource, namespace, name }
    }

    #[test]
    fn the_first_rule_that_matches_speaks() {
        let policy = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n\
            - {level: None, users: [bob], verbs: [get]}\n\
            - {level: Request, userGroups: [ops], resources: [{group: '', resources: [pods, '*/status', 'nodes/*']}]}\n\
            - {level: Metadata, resources: [{group: apps, resources: [deployments], resourceNames: [web]}]}\n\
            - {level: RequestResponse, namespaces: [a, '']}\n\
            - {level: Metadata, nonResourceURLs: ['/api*', /version]}\n";
        let (bob, ann) = (User::new("bob", &["ops"]), User::new("ann", &[]));
        let level = |user: &User, verb: &str, asked: RequestTarget<'_>| ruling(policy, user, verb, asked);
        assert_eq!(level(&bob, "get", of("", "pods", "b", "p")), Level::None);
        assert_eq!(level(&bob, "list", of("", "pods", "b", "")), Level::Request);
        assert_eq!(level(&bob, "list", of("", "pods/log", "b", "")), Level::None);
        assert_eq!(level(&bob, "list", of("", "services/status", "b", "")), Level::Request);
        assert_eq!(level(&bob, "list", of("", "nodes", "", "")), Level::Request);
        assert_eq!(level(&bob, "list", of("", "nodes/proxy", "", "")), Level::Request);
        assert_eq!(level(&ann, "list", of("", "pods", "b", "")), Level::None);
        assert_eq!(level(&ann, "get", of("apps", "deployments", "b", "web")), Level::Metadata);
        assert_eq!(level(&ann, "get", of("apps", "deployments", "b", "db")), Level::None);
        assert_eq!(level(&ann, "get", of("", "nodes", "", "n")), Level::RequestResponse);
        assert_eq!(level(&ann, "get", RequestTarget::Path("/apis/apps")), Level::Metadata);
        assert_eq!(level(&ann, "get", RequestTarget::Path("/version")), Level::Metadata);
        assert_eq!(level(&ann, "get", RequestTarget::Path("/version/")), Level::None);
    }

    #[test]
    fn stages_of_policy_and_rule_are_left_out_together() {
        let text = "{apiVersion: audit.k8s.io/v1beta1, kind: Policy, omitStages: [RequestReceived], omitManagedFields: true, \
                    rules: [{level: Metadata, omitStages: [Panic], omitManagedFields: false}]}";
        let (policy, _) = Policy::read(text).expect("a policy");
        let user = User::new("a", &[]);
        let ruling = policy.judge(Subject { user: &user, verb: "get", asked: RequestTarget::Path("/") });
        assert!(!ruling.records(Stage::RequestReceived) && !ruling.records(Stage::Panic));
        assert!(ruling.records(Stage::ResponseComplete) && !ruling.omit_managed_fields);
    }

    #[test]
    fn everything_wrong_with_a_policy_is_told_at_once() {
        for (text, expected) in [
            ("a: [", vec!["failed decoding"]),
            ("apiVersion: v1\nkind: Policy", vec!["unknown group version field v1"]),
            ("{apiVersion: audit.k8s.io/v1, kind: Policy, rules: []}", vec!["loaded illegal policy with 0 rules"]),
            (
                "{apiVersion: audit.k8s.io/v1, kind: Policy, omitStages: [Later], rules: [{verbs: [get]}, {level: Much}, \
                 {level: None, omitStages: [x]}, {level: None, nonResourceURLs: [a, '/a*b'], namespaces: [n]}, \
                 {level: None, resources: [{group: 'A B', resourceNames: [n]}]}]}",
                vec![
                    "omitStages[0]: Invalid value: \"Later\"",
                    "rules[0].level: Required value",
                    "rules[1].level: Unsupported value: \"Much\"",
                    "rules[2].omitStages[0]",
                    "rules[3].nonResourceURLs: Invalid value: [\"a\",\"/a*b\"]: rules cannot apply to both",
                    "rules[3].nonResourceURLs[0]",
                    "rules[3].nonResourceURLs[1]",
                    "rules[4].resources[0].group",
                    "rules[4].resources[0].resourceNames",
                ],
            ),
        ] {
            let faults = Policy::read(text).expect_err(text);
            assert_eq!(faults.len(), expected.len(), "{faults:#?}");
            for (fault, expected) in faults.iter().zip(expected) {
                assert!(fault.starts_with(expected), "{fault}");
            }
        }
        let strange = "{apiVersion: audit.k8s.io/v1, kind: Policy, more: 1, rules: [{level: None, extra: 2, \
                       resources: [{group: ''}, {group: '', names: [a]}]}]}";
        let (_, strange) = Policy::read(strange).expect("a policy all the same");
        assert_eq!(
            strange,
            [
                "unknown field \"more\"",
                "unknown field \"rules[0].extra\"",
                "unknown field \"rules[0].resources[1].names\""
            ]
        );
    }
}
