//! Quota scopes, which select the objects that a quota covers.

use holdfast_value::Value;
use std::collections::BTreeSet;

/// A condition that a quota sets on the scope of the objects that it counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selector {
    /// The name of the scope, such as `BestEffort` or `PriorityClass`.
    pub scope: String,
    pub operator: Operator,
    pub values: BTreeSet<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
}

impl Selector {
    /// All scope selectors in a quota's spec, from `scopes` and `scopeSelector`. An unknown scope covers no object.
    pub fn all(spec: &Value) -> Vec<Selector> {
        let named = spec["scopes"].as_array().into_iter().flatten();
        let named = named.filter_map(Value::as_str).map(|scope| Selector {
            scope: scope.to_owned(),
            operator: Operator::Exists,
            values: BTreeSet::new(),
        });
        let selected = spec["scopeSelector"]["matchExpressions"].as_array().into_iter().flatten();
        named.chain(selected.map(Selector::of)).collect()
    }

    fn of(expression: &Value) -> Selector {
        let values = expression["values"].as_array().into_iter().flatten();
        Selector {
            scope: expression["scopeName"].as_str().unwrap_or_default().to_owned(),
            operator: match expression["operator"].as_str() {
                Some("NotIn") => Operator::NotIn,
                Some("Exists") => Operator::Exists,
                Some("DoesNotExist") => Operator::DoesNotExist,
                _ => Operator::In,
            },
            values: values.filter_map(Value::as_str).map(str::to_owned).collect(),
        }
    }

    /// Whether the selector matches an object. `value` is the object's value for the scope, or `None` if it has none.
    pub fn selects(&self, value: Option<&str>) -> bool {
        match self.operator {
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::In => value.is_some_and(|value| self.values.contains(value)),
            Operator::NotIn => value.is_none_or(|value| !self.values.contains(value)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_value::json;

    #[test]
    fn what_each_operator_selects() {
        for (operator, of_none, of_a, of_b) in [
            ("In", false, true, false),
            ("NotIn", true, false, true),
            ("Exists", false, true, true),
            ("DoesNotExist", true, false, false),
        ] {
            let spec = json!({"scopeSelector": {"matchExpressions": [
                {"scopeName": "PriorityClass", "operator": operator, "values": ["a"]}]}});
            let selectors = Selector::all(&spec);
            let found = [None, Some("a"), Some("b")].map(|value| selectors[0].selects(value));
            assert_eq!(found, [of_none, of_a, of_b], "{operator}");
        }
    }
}
