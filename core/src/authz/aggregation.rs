//! Aggregated ClusterRoles: roles that combine the rules of other ClusterRoles selected by labels.

use super::rule::PolicyRule;
use crate::select::LabelSelector;
use holdfast_value::Value;
use imbl::OrdMap;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The rules of one ClusterRole document.
pub type RuleBlock = Arc<[PolicyRule]>;

/// A ClusterRole, as the RBAC index stores it.
#[derive(Debug, Clone)]
pub struct ClusterRole {
    pub labels: BTreeMap<String, String>,
    /// The rules in the ClusterRole's document.
    pub written: RuleBlock,
    /// The selectors of the roles that this role aggregates, if it aggregates roles; `written` is then only a copy of
    /// the aggregated rules.
    pub selectors: Option<Vec<LabelSelector>>,
}

impl ClusterRole {
    pub fn from_value(document: &Value) -> Self {
        let labels = document.pointer("/metadata/labels").and_then(Value::as_object).into_iter().flatten();
        let labels =
            labels.map(|(key, value)| (key.to_string(), value.as_str().unwrap_or_default().to_owned())).collect();
        let written: RuleBlock = PolicyRule::list_from(document).into();
        Self { labels, written, selectors: selectors_of(document) }
    }

    pub(super) fn is_selected(&self, selector: &LabelSelector) -> bool {
        selector.matches_by(|key| self.labels.get(key).map(String::as_str))
    }
}

/// The rules that the role called `name` aggregates: for each selector, the matching roles by name.
///
/// An aggregated role may aggregate others. Each role is visited once, so that roles which aggregate each other get the
/// rules of all of them instead of looping forever.
pub fn gathered(name: &str, roles: &OrdMap<Arc<str>, Arc<ClusterRole>>) -> Vec<RuleBlock> {
    fn visit<'a>(
        role: &'a ClusterRole,
        roles: &'a OrdMap<Arc<str>, Arc<ClusterRole>>,
        seen: &mut BTreeSet<&'a str>,
        out: &mut Vec<RuleBlock>,
    ) {
        let Some(selectors) = &role.selectors else {
            out.push(role.written.clone());
            return;
        };
        for selector in selectors {
            for (name, member) in roles.iter().filter(|(_, member)| member.is_selected(selector)) {
                if seen.insert(name) {
                    visit(member, roles, seen, out);
                }
            }
        }
    }
    let mut out = Vec::new();
    if let Some((name, role)) = roles.get_key_value(name) {
        visit(role, roles, &mut BTreeSet::from([&**name]), &mut out);
    }
    out
}

/// The rules of `blocks` in order without duplicates, which the aggregation controller writes into the role.
pub fn flattened(blocks: &[RuleBlock]) -> Vec<PolicyRule> {
    let mut seen = BTreeSet::new();
    blocks.iter().flat_map(|block| block.iter()).filter(|rule| seen.insert(*rule)).cloned().collect()
}

/// The selectors of a ClusterRole document; `None` if it does not aggregate.
fn selectors_of(role: &Value) -> Option<Vec<LabelSelector>> {
    let rule = role.get("aggregationRule").filter(|rule| rule.is_object())?;
    let selectors = rule.get("clusterRoleSelectors").and_then(Value::as_array).into_iter().flatten();
    Some(selectors.map(selector_of).collect())
}

/// Parses a selector. An invalid selector selects nothing, and null is an empty object, which selects everything.
fn selector_of(selector: &Value) -> LabelSelector {
    match selector {
        Value::Null => LabelSelector::everything(),
        selector => LabelSelector::from_object(selector).unwrap_or_else(|_| LabelSelector::nothing()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_value::json;

    #[test]
    fn selectors() {
        let rows = [
            (json!({}), true),
            (json!(null), true),
            (json!({"matchLabels": {"a": "1"}}), true),
            (json!({"matchLabels": {"a": "1", "b": "3"}}), false),
            (json!({"matchExpressions": [{"key": "a", "operator": "In", "values": ["0", "1"]}]}), true),
            (json!({"matchExpressions": [{"key": "c", "operator": "In", "values": ["1"]}]}), false),
            (json!({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["1"]}]}), false),
            (json!({"matchExpressions": [{"key": "c", "operator": "NotIn", "values": ["1"]}]}), true),
            (json!({"matchExpressions": [{"key": "b", "operator": "Exists"}]}), true),
            (json!({"matchExpressions": [{"key": "b", "operator": "DoesNotExist"}]}), false),
            (json!({"matchExpressions": [{"key": "b", "operator": "Sideways"}]}), false),
        ];
        for (selector, wanted) in rows {
            let role = ClusterRole::from_value(&json!({"metadata": {"labels": {"a": "1", "b": "2"}}}));
            assert_eq!(role.is_selected(&selector_of(&selector)), wanted, "{selector}");
        }
    }

    fn roles(documents: &[(&str, Value)]) -> OrdMap<Arc<str>, Arc<ClusterRole>> {
        documents
            .iter()
            .map(|(name, document)| (Arc::from(*name), Arc::new(ClusterRole::from_value(document))))
            .collect()
    }

    /// The first verb of each rule that `name` aggregates.
    fn verbs(name: &str, roles: &OrdMap<Arc<str>, Arc<ClusterRole>>) -> Vec<String> {
        flattened(&gathered(name, roles)).into_iter().map(|rule| rule.verbs[0].clone()).collect()
    }

    fn role(label: &str, verbs: &[&str]) -> Value {
        let rules: Vec<Value> = verbs.iter().map(|verb| json!({"verbs": [verb]})).collect();
        json!({"metadata": {"labels": {label: "true"}}, "rules": rules})
    }

    fn gathering(label: &str, wanted: &str) -> Value {
        let mut document = role(label, &["stale"]);
        document["aggregationRule"] = json!({"clusterRoleSelectors": [{"matchLabels": {wanted: "true"}}]});
        document
    }

    #[test]
    fn rules_are_gathered_in_order_of_names_and_once() {
        let roles = roles(&[
            ("b", role("to-x", &["list", "watch"])),
            ("a", role("to-x", &["get", "list"])),
            ("c", role("other", &["delete"])),
            ("x", gathering("to-x", "to-x")),
        ]);
        assert_eq!(verbs("x", &roles), ["get", "list", "watch"]);
        assert_eq!(verbs("absent", &roles), [""; 0]);
    }

    #[test]
    fn a_gathered_role_may_gather_and_a_circle_ends() {
        let nested = roles(&[
            ("edit", gathering("to-admin", "to-edit")),
            ("admin", gathering("none", "to-admin")),
            ("e", role("to-edit", &["update"])),
            ("z", role("to-admin", &["bind"])),
        ]);
        assert_eq!(verbs("admin", &nested), ["update", "bind"]);
        let circle = roles(&[
            ("one", gathering("to-two", "to-one")),
            ("two", gathering("to-one", "to-two")),
            ("p", role("to-one", &["get"])),
            ("q", role("to-two", &["put"])),
        ]);
        assert_eq!(verbs("one", &circle), ["get", "put"]);
        assert_eq!(verbs("two", &circle), ["get", "put"]);
    }
}
