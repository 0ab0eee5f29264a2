//! Matching rules of webhooks and policies: rules on resources, and label selectors.

use crate::select::LabelSelector;
use holdfast_value::Value;
use std::collections::BTreeSet;

/// One combination of operations, groups, versions, resources and scope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    operations: Vec<String>,
    groups: Vec<String>,
    versions: Vec<String>,
    pub(super) resources: Vec<String>,
    scope: String,
    /// The names of the objects that the rule matches; empty if the rule matches objects of every name.
    names: Vec<String>,
}

/// The attributes of a write that a rule is compared with.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    pub operation: &'a str,
    pub group: &'a str,
    pub version: &'a str,
    pub resource: &'a str,
    pub subresource: &'a str,
    pub is_namespaced: bool,
    pub name: &'a str,
}

/// Everything that decides whether a webhook or policy matches a write.
#[derive(Debug, Clone)]
pub struct Matching {
    pub rules: Vec<Rule>,
    pub excluded: Vec<Rule>,
    /// Whether rules also match other versions of the same kind (`matchPolicy: Equivalent`).
    pub is_equivalent: bool,
    pub namespaces: LabelSelector,
    pub objects: LabelSelector,
}

pub(super) fn rules(list: &Value) -> Vec<Rule> {
    let texts = |list: &Value| -> Vec<String> {
        list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let rule = |rule: &Value| Rule {
        operations: texts(&rule["operations"]),
        groups: texts(&rule["apiGroups"]),
        versions: texts(&rule["apiVersions"]),
        resources: texts(&rule["resources"]),
        scope: rule["scope"].as_str().unwrap_or("*").to_owned(),
        names: texts(&rule["resourceNames"]),
    };
    list.as_array().into_iter().flatten().map(rule).collect()
}

impl Rule {
    pub fn matches(&self, asked: &Asked) -> bool {
        let among = |list: &[String], wanted: &str| list.iter().any(|item| item == "*" || item == wanted);
        let in_scope = match self.scope.as_str() {
            "Namespaced" => asked.is_namespaced,
            "Cluster" => !asked.is_namespaced,
            _ => true,
        };
        in_scope
            && among(&self.operations, asked.operation)
            && among(&self.groups, asked.group)
            && among(&self.versions, asked.version)
            && self.resources.iter().any(|resource| {
                let (resource, sub) = resource.split_once('/').unwrap_or((resource, ""));
                (resource == "*" || resource == asked.resource) && (sub == "*" || sub == asked.subresource)
            })
            && (self.names.is_empty() || self.names.iter().any(|name| name == asked.name))
    }
}

impl Matching {
    pub fn new(holder: &Value, rules: Vec<Rule>, excluded: Vec<Rule>) -> Matching {
        let selector = |field: &str| match &holder[field] {
            Value::Null => LabelSelector::everything(),
            // Validation has accepted the selector, so the selector parses.
            selector => LabelSelector::from_object(selector).unwrap_or_else(|_| LabelSelector::everything()),
        };
        Matching {
            rules,
            excluded,
            is_equivalent: holder["matchPolicy"] != "Exact",
            namespaces: selector("namespaceSelector"),
            objects: selector("objectSelector"),
        }
    }

    pub(super) fn resources(&self) -> BTreeSet<String> {
        resources_of(&self.rules)
    }
}

/// The resources that rules name.
pub(super) fn resources_of(rules: &[Rule]) -> BTreeSet<String> {
    rules.iter().flat_map(|rule| rule.resources.iter()).map(|resource| plural(resource)).collect()
}

/// The resource without a subresource: `pods` for `pods/status`.
fn plural(resource: &str) -> String {
    resource.split('/').next().unwrap_or(resource).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_value::json;

    #[test]
    fn a_star_matches_no_subresource() {
        let rows = [
            ("*", "pods", "", true),
            ("*", "pods", "status", false),
            ("*/*", "pods", "status", true),
            ("*/*", "pods", "", true),
            ("*/scale", "deployments", "scale", true),
            ("pods/*", "pods", "", true),
            ("pods", "pods", "exec", false),
        ];
        for (resource, found, subresource, expected) in rows {
            let rule =
                json!([{"operations": ["CREATE"], "apiGroups": ["*"], "apiVersions": ["v1"], "resources": [resource]}]);
            let asked = Asked {
                operation: "CREATE",
                group: "",
                version: "v1",
                resource: found,
                subresource,
                is_namespaced: true,
                name: "",
            };
            assert_eq!(rules(&rule)[0].matches(&asked), expected, "{resource} {found}/{subresource}");
        }
    }
}
