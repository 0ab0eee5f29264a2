//! Checks whether some rules grant everything that other rules grant, in about linear time.

use super::rule::{Part, PolicyRule};
use super::rule_index::RuleIndex;
use std::ops::ControlFlow;

/// A rule grants each combination of its verbs, groups, resources and names; one combination is a part. At most this
/// many parts of all rules together are checked, plus `PARTS_A_TEXT` for each text in the rules. Unchecked parts count
/// as not granted.
const PARTS_MIN: usize = 50_000;
/// The number of additional parts that are checked for each text in the rules.
const PARTS_A_TEXT: usize = 4;
/// The maximum number of missing parts that are reported.
const MISSING_MAX: usize = 1_000;

/// The parts that a check found not to be granted.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Missing {
    /// The missing parts, each as a rule that grants only this part.
    pub rules: Vec<PolicyRule>,
    /// Whether the check or the report was cut, so that further parts may be missing.
    pub is_cut: bool,
}

impl Missing {
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty() && !self.is_cut
    }
}

/// The parts of `servant`'s rules for which `holds` is false.
pub fn missing<'a>(holds: impl Fn(&Part<'_>) -> bool, servant: impl IntoIterator<Item = &'a PolicyRule>) -> Missing {
    let mut missing = Missing::default();
    let mut left = PARTS_MIN;
    let looked = servant.into_iter().try_for_each(|rule| {
        left += PARTS_A_TEXT * rule.texts().count();
        rule.each_part(|part| {
            if left == 0 || missing.rules.len() == MISSING_MAX {
                return ControlFlow::Break(());
            }
            left -= 1;
            if !holds(&part) {
                missing.rules.push(part.to_rule());
            }
            ControlFlow::Continue(())
        })
    });
    Missing { is_cut: looked.is_break(), ..missing }
}

/// The parts of `servant`'s rules that no rule of `owner` grants; empty if all are covered.
pub fn uncovered(owner: &[PolicyRule], servant: &[PolicyRule]) -> Missing {
    let index = RuleIndex::new(owner.iter());
    missing(|part| index.find(part, |number| &owner[number as usize], |_| Ok(())).is_some(), servant)
}

/// Whether `owner`'s rules grant everything that `servant`'s rules grant.
pub fn covers(owner: &[PolicyRule], servant: &[PolicyRule]) -> bool {
    uncovered(owner, servant).is_empty()
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

    /// Comparing each rule with every other rule would take too long, so the check must find rules by an index.
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
        assert!(covers(&one_each, &one_each));
        // Unchecked parts count as not granted.
        let product = PolicyRule { verbs: numbers(300), resources: numbers(300), ..about("", numbers(2)) };
        let product = [product];
        assert!(!covers(&product, &product));
        assert_eq!(uncovered(&[], &each), Missing { rules: uncovered(&[], &each[..1_000]).rules, is_cut: true });
        let urls = [PolicyRule { non_resource_urls: numbers(50_000), ..paths("get", "/x*") }];
        assert!(covers(&urls, &urls));
    }
}
