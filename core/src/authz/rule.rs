//! One policy rule: its grants, its parts, and its text.

use super::{Attributes, Target, quoted_list};
use holdfast_value::{Map, Value};
use std::collections::BTreeMap;
use std::ops::ControlFlow;

/// A rule of a role, for resources or for paths. An empty list matches nothing, except `resource_names`, where empty
/// means every name.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PolicyRule {
    pub verbs: Vec<String>,
    pub api_groups: Vec<String>,
    pub resources: Vec<String>,
    pub resource_names: Vec<String>,
    pub non_resource_urls: Vec<String>,
}

/// The smallest grant of a rule: one verb on one resource or path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part<'a> {
    Resource {
        verb: &'a str,
        group: &'a str,
        /// In `verb`, `group`, `resource` and `subresource`, `*` means everything. Only a rule with `*` grants such a
        /// part.
        resource: &'a str,
        subresource: Option<&'a str>,
        /// `None` for objects of any name, which only a rule without names grants.
        name: Option<&'a str>,
    },
    Path {
        verb: &'a str,
        path: &'a str,
    },
}

impl<'a> Part<'a> {
    /// The part that a rule must grant to allow the request.
    pub fn needed(attributes: &Attributes<'a>) -> Part<'a> {
        let verb = attributes.verb;
        match &attributes.target {
            Target::Path(path) => Part::Path { verb, path },
            Target::Resource(target) => Part::Resource {
                verb,
                group: target.group,
                resource: target.resource,
                subresource: Some(target.subresource).filter(|subresource| !subresource.is_empty()),
                name: Some(target.name),
            },
        }
    }

    /// Whether `own`, an entry of a rule's resources, matches this part: `*` is every resource and subresource,
    /// `*/scale` is the subresource `scale` of every resource.
    pub(super) fn is_resource(&self, own: &str) -> bool {
        let Part::Resource { resource, subresource, .. } = *self else { return false };
        if own == "*" {
            return true;
        }
        let Some(subresource) = subresource else { return own == resource };
        // The subresource may contain slashes, so the entry is not split at a slash.
        let head = own.strip_suffix(subresource).and_then(|head| head.strip_suffix('/'));
        head.is_some_and(|head| head == "*" || head == resource)
    }

    /// A rule that grants exactly this part.
    pub(super) fn to_rule(self) -> PolicyRule {
        let one = |text: &str| vec![text.to_owned()];
        match self {
            Part::Path { verb, path } => {
                PolicyRule { verbs: one(verb), non_resource_urls: one(path), ..PolicyRule::default() }
            }
            Part::Resource { verb, group, resource, subresource, name } => PolicyRule {
                verbs: one(verb),
                api_groups: one(group),
                resources: vec![match subresource {
                    Some(subresource) => format!("{resource}/{subresource}"),
                    None => resource.to_owned(),
                }],
                resource_names: name.map(str::to_owned).into_iter().collect(),
                ..PolicyRule::default()
            },
        }
    }
}

impl PolicyRule {
    /// Reads an entry of `rules`. A field that is not a list reads as an empty list.
    pub fn from_value(value: &Value) -> Self {
        Self {
            verbs: texts(value.get("verbs")),
            api_groups: texts(value.get("apiGroups")),
            resources: texts(value.get("resources")),
            resource_names: names(value.get("resourceNames")),
            non_resource_urls: texts(value.get("nonResourceURLs")),
        }
    }

    /// The `rules` of a role document.
    pub fn list_from(role: &Value) -> Vec<Self> {
        role.get("rules").and_then(Value::as_array).into_iter().flatten().map(Self::from_value).collect()
    }

    pub fn to_value(&self) -> Value {
        let mut map = Map::new();
        map.insert("verbs", self.verbs.clone().into());
        for (key, list) in [
            ("apiGroups", &self.api_groups),
            ("resources", &self.resources),
            ("resourceNames", &self.resource_names),
            ("nonResourceURLs", &self.non_resource_urls),
        ] {
            if !list.is_empty() {
                map.insert(key, list.clone().into());
            }
        }
        Value::Object(map)
    }

    /// Whether the rule grants this part, by a search through its lists.
    pub fn grants(&self, part: &Part<'_>) -> bool {
        let name_matches = |name: &Option<&str>| {
            self.resource_names.is_empty() || name.is_some_and(|name| self.resource_names.iter().any(|own| own == name))
        };
        match part {
            Part::Path { verb, path } => {
                self.has_verb(verb) && self.non_resource_urls.iter().any(|url| path_covers(url, path))
            }
            Part::Resource { verb, group, name, .. } => {
                self.has_verb(verb)
                    && has_or_all(&self.api_groups, group)
                    && self.resources.iter().any(|own| part.is_resource(own))
                    && name_matches(name)
            }
        }
    }

    pub(super) fn has_verb(&self, verb: &str) -> bool {
        has_or_all(&self.verbs, verb)
    }

    /// All texts of the rule.
    pub(super) fn texts(&self) -> impl Iterator<Item = &String> {
        let lists = [&self.verbs, &self.api_groups, &self.resources, &self.resource_names, &self.non_resource_urls];
        lists.into_iter().flatten()
    }

    /// The approximate length of the rule as text.
    pub(super) fn text_bytes(&self) -> usize {
        self.texts().map(|text| text.len() + 3).sum::<usize>() + 16
    }

    /// Calls `visit` with each part that the rule grants until it returns `Break`.
    pub(super) fn each_part<'a, B>(&'a self, mut visit: impl FnMut(Part<'a>) -> ControlFlow<B>) -> ControlFlow<B> {
        let names = || self.resource_names.iter().map(|name| Some(name.as_str()));
        let unnamed = self.resource_names.is_empty().then_some(None);
        for group in &self.api_groups {
            for whole in &self.resources {
                let (resource, subresource) = match whole.split_once('/') {
                    Some((resource, subresource)) => (resource, Some(subresource)),
                    None => (whole.as_str(), None),
                };
                for verb in &self.verbs {
                    for name in names().chain(unnamed) {
                        visit(Part::Resource { verb, group, resource, subresource, name })?;
                    }
                }
            }
        }
        for path in &self.non_resource_urls {
            for verb in &self.verbs {
                visit(Part::Path { verb, path })?;
            }
        }
        ControlFlow::Continue(())
    }

    /// The rule as messages show it: `{APIGroups:[""], Resources:["pods"], Verbs:["get"]}`.
    pub fn compact_text(&self) -> String {
        let parts: Vec<String> = [
            ("APIGroups", &self.api_groups),
            ("Resources", &self.resources),
            ("NonResourceURLs", &self.non_resource_urls),
            ("ResourceNames", &self.resource_names),
            ("Verbs", &self.verbs),
        ]
        .into_iter()
        .filter(|(_, list)| !list.is_empty())
        .map(|(title, list)| format!("{title}:{}", quoted_list(list)))
        .collect();
        format!("{{{}}}", parts.join(", "))
    }
}

/// Combines the verbs of single-part rules about the same resource and name, for messages.
pub fn compacted(rules: Vec<PolicyRule>) -> Vec<PolicyRule> {
    let mut simple: BTreeMap<(String, String, Option<String>), PolicyRule> = BTreeMap::new();
    let mut out = Vec::new();
    for rule in rules {
        let is_simple = rule.api_groups.len() == 1
            && rule.resources.len() == 1
            && rule.resource_names.len() <= 1
            && rule.non_resource_urls.is_empty();
        if !is_simple {
            out.push(rule);
            continue;
        }
        let key = (rule.api_groups[0].clone(), rule.resources[0].clone(), rule.resource_names.first().cloned());
        match simple.get_mut(&key) {
            Some(known) => known.verbs.extend(rule.verbs),
            None => {
                simple.insert(key, rule);
            }
        }
    }
    out.extend(simple.into_values());
    out
}

/// Whether a rule's `url`, possibly ending in `*`, matches `path`.
fn path_covers(url: &str, path: &str) -> bool {
    url == path || (url.ends_with('*') && path.starts_with(url.trim_end_matches('*')))
}

fn has_or_all(list: &[String], item: &str) -> bool {
    list.iter().any(|own| own == "*" || own == item)
}

fn texts(value: Option<&Value>) -> Vec<String> {
    let items = value.and_then(Value::as_array).into_iter().flatten();
    items.filter_map(|item| item.as_str().map(str::to_owned)).collect()
}

/// An entry that is not a string becomes an empty name: without the entry the rule could grant every name.
fn names(value: Option<&Value>) -> Vec<String> {
    let items = value.and_then(Value::as_array).into_iter().flatten();
    items.map(|item| item.as_str().unwrap_or_default().to_owned()).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::authz::ResourceTarget;
    use holdfast_value::json;

    pub(crate) fn rule(verbs: &str, groups: &str, resources: &str, names: &str) -> PolicyRule {
        let list = |text: &str| text.split(',').map(str::to_owned).collect::<Vec<_>>();
        let some = |text: &str| if text.is_empty() { vec![] } else { list(text) };
        PolicyRule {
            verbs: some(verbs),
            api_groups: list(groups),
            resources: some(resources),
            resource_names: some(names),
            non_resource_urls: vec![],
        }
    }

    pub(crate) fn paths(verbs: &str, urls: &str) -> PolicyRule {
        let list = |text: &str| text.split(',').map(str::to_owned).collect::<Vec<_>>();
        PolicyRule { verbs: list(verbs), non_resource_urls: list(urls), ..Default::default() }
    }

    #[test]
    fn resource_rules() {
        // (rule, verb, "group/resource/subresource", name, allowed)
        let pods = rule("get,list", "", "pods", "");
        let rows = [
            (pods.clone(), "get", ("", "pods", ""), "", true),
            (pods.clone(), "delete", ("", "pods", ""), "", false),
            (pods.clone(), "get", ("apps", "pods", ""), "", false),
            (pods.clone(), "get", ("", "pods", "log"), "", false),
            (pods, "get", ("", "pod", "s"), "", false),
            (rule("*", "*", "*", ""), "bind", ("x.io", "anything", "log"), "n", true),
            (rule("get", "", "pods/log", ""), "get", ("", "pods", "log"), "", true),
            (rule("get", "", "pods/log", ""), "get", ("", "pods", ""), "", false),
            (rule("get", "", "pods/log", ""), "get", ("", "jobs", "log"), "", false),
            (rule("get", "", "pods/*", ""), "get", ("", "pods", "log"), "", false),
            (rule("update", "*", "*/scale", ""), "update", ("apps", "deployments", "scale"), "", true),
            (rule("update", "*", "*/scale", ""), "update", ("apps", "deployments", ""), "", false),
            (rule("update", "*", "*/scale", ""), "update", ("apps", "deployments", "upscale"), "", false),
            (rule("get", "", "pods", "a,b"), "get", ("", "pods", ""), "b", true),
            (rule("get", "", "pods", "a,b"), "get", ("", "pods", ""), "c", false),
            (rule("list", "", "pods", "a,b"), "list", ("", "pods", ""), "", false),
            (rule("get", "", "services/proxy", ""), "get", ("", "services", "proxy"), "", true),
            (rule("", "", "pods", ""), "get", ("", "pods", ""), "", false),
        ];
        for (rule, verb, (group, resource, subresource), name, allowed) in rows {
            let target = ResourceTarget { group, resource, subresource, name, ..Default::default() };
            let part = Part::needed(&Attributes::resource(verb, target));
            assert_eq!(rule.grants(&part), allowed, "{rule:?} {verb} {target:?}");
        }
    }

    #[test]
    fn path_rules() {
        let rows = [
            ("/healthz", "/healthz", true),
            ("/healthz", "/healthz/ping", false),
            ("/healthz/*", "/healthz/ping", true),
            ("/healthz/*", "/healthz", false),
            ("/api*", "/apis/apps", true),
            ("*", "/metrics", true),
            ("/a*b", "/axb", false),
        ];
        for (url, path, allowed) in rows {
            let part = Part::Path { verb: "get", path };
            assert_eq!(paths("get", url).grants(&part), allowed, "{url} {path}");
            assert!(!paths("post", url).grants(&part));
            assert!(!rule("*", "*", "*", "").grants(&part), "a resource rule grants no path");
        }
    }

    #[test]
    fn a_rule_survives_its_document_and_reads_compactly() {
        let document = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["a"]});
        let rule = PolicyRule::from_value(&document);
        assert_eq!(rule.to_value(), document);
        assert_eq!(rule.compact_text(), r#"{APIGroups:[""], Resources:["pods"], ResourceNames:["a"], Verbs:["get"]}"#);
        assert_eq!(paths("get,put", "/x").compact_text(), r#"{NonResourceURLs:["/x"], Verbs:["get" "put"]}"#);
    }
}
