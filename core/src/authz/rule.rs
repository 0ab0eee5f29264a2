//! One policy rule: what it matches, what it covers, how it is written.

use super::{Attributes, Target, quoted_list};
use holdfast_value::{Map, Value};
use std::collections::BTreeMap;

/// A rule of a role. Either of resources or of paths; an empty list matches nothing, save `resource_names`,
/// where empty means every name.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PolicyRule {
    pub verbs: Vec<String>,
    pub api_groups: Vec<String>,
    pub resources: Vec<String>,
    pub resource_names: Vec<String>,
    pub non_resource_urls: Vec<String>,
}

impl PolicyRule {
    /// Reads one entry of `rules`. What is not a list of text reads as empty, and so grants nothing.
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

    pub fn allows(&self, attributes: &Attributes<'_>) -> bool {
        if !has_or_all(&self.verbs, attributes.verb) {
            return false;
        }
        match &attributes.target {
            Target::Path(path) => self.non_resource_urls.iter().any(|url| path_covers(url, path)),
            Target::Resource(target) => {
                has_or_all(&self.api_groups, target.group)
                    && self.resources.iter().any(|rule| resource_matches(rule, target.resource, target.subresource))
                    && (self.resource_names.is_empty() || self.resource_names.iter().any(|name| name == target.name))
            }
        }
    }

    /// How many rules [`broken_down`](Self::broken_down) makes.
    pub(super) fn part_count(&self) -> usize {
        let names = self.resource_names.len().max(1);
        let things = [self.api_groups.len(), self.resources.len(), names].into_iter().fold(1, usize::saturating_mul);
        things.saturating_add(self.non_resource_urls.len()).saturating_mul(self.verbs.len())
    }

    /// The rule as many rules that each grant one verb on one thing.
    pub(super) fn broken_down(&self) -> Vec<Self> {
        let mut parts = Vec::new();
        for group in &self.api_groups {
            for resource in &self.resources {
                for verb in &self.verbs {
                    let part = Self {
                        verbs: vec![verb.clone()],
                        api_groups: vec![group.clone()],
                        resources: vec![resource.clone()],
                        ..Self::default()
                    };
                    if self.resource_names.is_empty() {
                        parts.push(part.clone());
                    }
                    for name in &self.resource_names {
                        parts.push(Self { resource_names: vec![name.clone()], ..part.clone() });
                    }
                }
            }
        }
        for url in &self.non_resource_urls {
            for verb in &self.verbs {
                let (verbs, non_resource_urls) = (vec![verb.clone()], vec![url.clone()]);
                parts.push(Self { verbs, non_resource_urls, ..Self::default() });
            }
        }
        parts
    }

    /// `{APIGroups:[""], Resources:["pods"], Verbs:["get"]}`, as messages show a rule.
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

/// Joins the verbs of broken-down rules that speak of the same resource (and name), for messages.
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

/// Whether the `*`-tailed or plain `url` of a rule matches `path`.
fn path_covers(url: &str, path: &str) -> bool {
    url == path || (url.ends_with('*') && path.starts_with(url.trim_end_matches('*')))
}

/// `*` is every resource and subresource, `*/scale` that subresource of every resource.
fn resource_matches(rule: &str, resource: &str, subresource: &str) -> bool {
    if rule == "*" {
        return true;
    }
    if subresource.is_empty() {
        return rule == resource;
    }
    // The subresource may hold slashes itself, so the split goes by the resource's length.
    let Some(head) = rule.strip_suffix(subresource).and_then(|head| head.strip_suffix('/')) else { return false };
    head == "*" || head == resource
}

fn has_or_all(list: &[String], item: &str) -> bool {
    list.iter().any(|own| own == "*" || own == item)
}

fn texts(value: Option<&Value>) -> Vec<String> {
    let items = value.and_then(Value::as_array).into_iter().flatten();
    items.filter_map(|item| item.as_str().map(str::to_owned)).collect()
}

/// An entry that is no text becomes an empty name, because dropping it could widen the rule to every name.
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
            assert_eq!(rule.allows(&Attributes::resource(verb, target)), allowed, "{rule:?} {verb} {target:?}");
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
            assert_eq!(paths("get", url).allows(&Attributes::path("get", path)), allowed, "{url} {path}");
            assert!(!paths("post", url).allows(&Attributes::path("get", path)));
            assert!(!rule("*", "*", "*", "").allows(&Attributes::path("get", path)), "a resource rule grants no path");
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
