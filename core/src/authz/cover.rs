//! Whether rules grant all that other rules do, in about linear time however many and however long they are.

use super::rule::PolicyRule;
use std::collections::{BTreeMap, BTreeSet};

/// The parts of a rule are a product. Rules of more parts than this are compared as they stand, which never grants
/// more: one rule of the owner must then cover all of each.
const PARTS_MAX: usize = 100_000;
/// How many entries of rules are compared. Many rules about one resource could meet many others about it; what is not
/// compared counts as not covered.
const COMPARISONS_MAX: usize = 2_000_000;

/// What `servant` grants and no rule of `owner` does: empty when the owner's rules cover all of it.
pub fn uncovered(owner: &[PolicyRule], servant: &[PolicyRule]) -> Vec<PolicyRule> {
    let owner = Owner::new(owner);
    let mut left = COMPARISONS_MAX;
    let count = servant.iter().fold(0, |sum: usize, rule| sum.saturating_add(rule.part_count()));
    if count > PARTS_MAX {
        return servant.iter().filter(|rule| !owner.covers(rule, &mut left)).cloned().collect();
    }
    let parts = servant.iter().flat_map(PolicyRule::broken_down);
    parts.filter(|part| !owner.covers(part, &mut left)).collect()
}

/// Whether the owner's rules grant all that the servant's do.
pub fn covers(owner: &[PolicyRule], servant: &[PolicyRule]) -> bool {
    uncovered(owner, servant).is_empty()
}

/// The rules that somebody has, made ready to be compared with many.
struct Owner<'a> {
    rules: Vec<Lists<'a>>,
    /// By each resource that they name.
    by_resource: BTreeMap<&'a str, Vec<usize>>,
}

/// The lists of one rule, made ready to be looked into.
struct Lists<'a> {
    verbs: BTreeSet<&'a str>,
    groups: BTreeSet<&'a str>,
    resources: BTreeSet<&'a str>,
    names: BTreeSet<&'a str>,
    urls: BTreeSet<&'a str>,
    /// What stands before the star of a URL. None of them begins with another one, so that whatever begins with one comes
    /// right behind it.
    prefixes: BTreeSet<&'a str>,
}

impl<'a> Owner<'a> {
    fn new(rules: &'a [PolicyRule]) -> Owner<'a> {
        let rules: Vec<Lists> = rules.iter().map(Lists::new).collect();
        let mut by_resource: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (index, rule) in rules.iter().enumerate() {
            for resource in &rule.resources {
                by_resource.entry(resource).or_default().push(index);
            }
        }
        Owner { rules, by_resource }
    }

    /// Whether one rule grants all that `other` grants.
    fn covers(&self, other: &PolicyRule, left: &mut usize) -> bool {
        let lists =
            [&other.verbs, &other.api_groups, &other.resources, &other.resource_names, &other.non_resource_urls];
        let cost = 1 + lists.iter().map(|list| list.len()).sum::<usize>();
        let mut check = |rule: &Lists| match left.checked_sub(cost) {
            Some(rest) => {
                *left = rest;
                rule.covers(other)
            }
            None => false,
        };
        let Some(resource) = other.resources.first() else { return self.rules.iter().any(check) };
        let of_any = subresource(resource).map(|subresource| format!("*/{subresource}"));
        let named = [Some("*"), Some(resource), of_any.as_deref()].into_iter().flatten();
        let indexes = named.filter_map(|name| self.by_resource.get(name)).flatten();
        indexes.copied().any(|index| check(&self.rules[index]))
    }
}

impl<'a> Lists<'a> {
    fn new(rule: &'a PolicyRule) -> Lists<'a> {
        let set = |list: &'a [String]| list.iter().map(String::as_str).collect::<BTreeSet<&str>>();
        let starred = rule.non_resource_urls.iter().filter(|url| url.ends_with('*'));
        let mut prefixes = BTreeSet::new();
        // In order, so that one comes before those that begin with it.
        for prefix in starred.map(|url| url.trim_end_matches('*')).collect::<BTreeSet<&str>>() {
            if !begins_with_one(&prefixes, prefix) {
                prefixes.insert(prefix);
            }
        }
        Lists {
            verbs: set(&rule.verbs),
            groups: set(&rule.api_groups),
            resources: set(&rule.resources),
            names: set(&rule.resource_names),
            urls: set(&rule.non_resource_urls),
            prefixes,
        }
    }

    /// Whether this rule alone grants all that `other` grants.
    fn covers(&self, other: &PolicyRule) -> bool {
        let has_every = |own: &BTreeSet<&str>, others: &[String]| others.iter().all(|other| own.contains(&**other));
        let has_all = |own: &BTreeSet<&str>, others: &[String]| own.contains("*") || has_every(own, others);
        let names_covered = self.names.is_empty()
            || (!other.resource_names.is_empty() && has_every(&self.names, &other.resource_names));
        has_all(&self.verbs, &other.verbs)
            && has_all(&self.groups, &other.api_groups)
            && (self.resources.contains("*") || other.resources.iter().all(|other| self.covers_resource(other)))
            && names_covered
            && other.non_resource_urls.iter().all(|url| self.covers_url(url))
    }

    fn covers_resource(&self, other: &str) -> bool {
        let of_any = |subresource| self.resources.contains(&*format!("*/{subresource}"));
        self.resources.contains(other) || subresource(other).is_some_and(of_any)
    }

    fn covers_url(&self, url: &str) -> bool {
        self.urls.contains(url) || begins_with_one(&self.prefixes, url)
    }
}

fn subresource(resource: &str) -> Option<&str> {
    resource.split_once('/').map(|(_, subresource)| subresource)
}

fn begins_with_one(prefixes: &BTreeSet<&str>, text: &str) -> bool {
    prefixes.range(..=text).next_back().is_some_and(|prefix| text.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::super::rule::tests::{paths, rule};
    use super::*;

    #[test]
    fn covering() {
        let rows = [
            (vec![rule("get,list", "", "pods", "")], vec![rule("get", "", "pods", "")], true),
            (vec![rule("get", "", "pods", "")], vec![rule("get,list", "", "pods", "")], false),
            (vec![rule("*", "*", "*", "")], vec![rule("get", "apps", "deployments/scale", "x")], true),
            (vec![rule("get", "", "pods", "a")], vec![rule("get", "", "pods", "")], false),
            (vec![rule("get", "", "pods", "")], vec![rule("get", "", "pods", "a")], true),
            (
                vec![rule("get", "", "pods", "a"), rule("get", "", "pods", "b")],
                vec![rule("get", "", "pods", "a,b")],
                true,
            ),
            (vec![rule("get", "*", "*/scale", "")], vec![rule("get", "apps", "deployments/scale", "")], true),
            (vec![rule("get", "*", "*/scale", "")], vec![rule("get", "apps", "deployments", "")], false),
            (vec![rule("get", "", "pods", "")], vec![rule("get", "", "pods/log", "")], false),
            (vec![rule("get", "", "pods", "")], vec![rule("*", "", "pods", "")], false),
            (vec![rule("*", "*", "*", "")], vec![paths("get", "/metrics")], false),
            (vec![paths("get", "/api/*")], vec![paths("get", "/api/v1")], true),
            (vec![paths("get", "/api/*")], vec![paths("get", "/api/*")], true),
            (vec![paths("get", "/api/v1/*")], vec![paths("get", "/api/*")], false),
            (vec![paths("get", "/api/v1/*,/api*,/api,/apis/x")], vec![paths("get", "/api/v1/pods,/apis/y")], true),
            (vec![paths("get", "/api,/b*")], vec![paths("get", "/api/v1")], false),
            (vec![rule("get", "", "pods", "")], vec![PolicyRule::default()], true),
            (vec![], vec![], true),
        ];
        for (owner, servant, covered) in rows {
            assert_eq!(covers(&owner, &servant), covered, "{owner:?} covers {servant:?}");
        }
    }

    /// The comparisons of each with each would not end soon.
    #[test]
    fn many_rules_and_long_ones_are_compared_soon() {
        let numbers = |count: usize| (0..count).map(|number| format!("n{number}")).collect::<Vec<_>>();
        let about = |resource: &str, names: Vec<String>| PolicyRule {
            resource_names: names,
            ..rule("get,list", "", resource, "")
        };
        let each: Vec<PolicyRule> = numbers(40_000).iter().map(|resource| about(resource, Vec::new())).collect();
        assert!(covers(&each, &each[10_000..30_000]));
        let long = [about("pods", numbers(50_000))];
        assert!(covers(&long, &long));
        let one_each: Vec<PolicyRule> = numbers(30_000).into_iter().map(|name| about("pods", vec![name])).collect();
        assert!(covers(&long, &one_each));
        // Too many about one resource: nothing is granted that was not compared.
        assert!(!covers(&one_each, &one_each));
        let urls = [PolicyRule { non_resource_urls: numbers(50_000), ..paths("get", "/x*") }];
        assert!(covers(&urls, &urls));
    }
}
