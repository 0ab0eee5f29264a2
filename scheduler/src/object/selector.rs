//! Selectors of labels.

use super::labels::Labels;
use super::{Pool, Text, items};
use holdfast_value::{Value, json};

/// A selector of labels: all of its requirements hold.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Selector {
    /// `None` selects nothing, an empty list everything.
    requirements: Option<Vec<Requirement>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Requirement {
    pub key: Text,
    pub operator: Operator,
    pub values: Vec<Text>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
    Gt,
    Lt,
    /// An operator that nobody knows: the requirement never holds.
    Unknown,
}

const OPERATORS: [(Operator, &str); 6] = [
    (Operator::In, "In"),
    (Operator::NotIn, "NotIn"),
    (Operator::Exists, "Exists"),
    (Operator::DoesNotExist, "DoesNotExist"),
    (Operator::Gt, "Gt"),
    (Operator::Lt, "Lt"),
];

impl Selector {
    pub fn nothing() -> Self {
        Selector { requirements: None }
    }

    pub fn everything() -> Self {
        Selector { requirements: Some(Vec::new()) }
    }

    /// A `LabelSelector`: nothing where there is none, everything where it is empty.
    pub fn decode(pool: &mut Pool, value: &Value) -> Self {
        if !value.is_object() {
            return Selector::nothing();
        }
        let mut requirements = equalities(&Labels::decode(pool, &value["matchLabels"]));
        requirements.extend(items(&value["matchExpressions"]).map(|one| Requirement::decode(pool, one)));
        Selector { requirements: Some(requirements) }
    }

    pub fn of_labels(labels: &Labels) -> Self {
        Selector { requirements: Some(equalities(labels)) }
    }

    /// Both selectors at once.
    pub fn and(self, other: &Selector) -> Self {
        let both = self.requirements.zip(other.requirements.clone());
        Selector { requirements: both.map(|(one, other)| one.into_iter().chain(other).collect()) }
    }

    /// The selector with one more requirement, unless it has it.
    pub fn with(mut self, requirement: Requirement) -> Self {
        if let Some(own) = &mut self.requirements
            && !own.contains(&requirement)
        {
            own.push(requirement);
        }
        self
    }

    /// Whether there is no requirement: of labels, all are selected.
    pub fn is_everything(&self) -> bool {
        self.requirements.as_ref().is_some_and(Vec::is_empty)
    }

    pub fn is_nothing(&self) -> bool {
        self.requirements.is_none()
    }

    pub fn matches(&self, labels: &Labels) -> bool {
        self.requirements.as_ref().is_some_and(|all| all.iter().all(|one| one.matches(labels.get(&one.key))))
    }
}

fn equalities(labels: &Labels) -> Vec<Requirement> {
    let equal = |(key, value): (&Text, &Text)| Requirement {
        key: key.clone(),
        operator: Operator::In,
        values: vec![value.clone()],
    };
    labels.iter().map(equal).collect()
}

impl Requirement {
    pub fn decode(pool: &mut Pool, value: &Value) -> Self {
        let name = super::text(&value["operator"]);
        let operator = OPERATORS.iter().find(|(_, own)| *own == name).map_or(Operator::Unknown, |(one, _)| *one);
        Requirement { key: pool.field(&value["key"]), operator, values: pool.list(&value["values"]) }
    }

    pub fn encode(&self) -> Value {
        let operator = OPERATORS.iter().find(|(one, _)| *one == self.operator).map_or("", |(_, name)| name);
        let mut requirement = json!({"key": &*self.key, "operator": operator});
        if !self.values.is_empty() {
            requirement["values"] = self.values.iter().map(|value| &**value).collect();
        }
        requirement
    }

    /// Whether a label with this value (`None`: no such label) is what is required.
    pub fn matches(&self, value: Option<&Text>) -> bool {
        match self.operator {
            Operator::In => value.is_some_and(|value| self.values.contains(value)),
            Operator::NotIn => value.is_none_or(|value| !self.values.contains(value)),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::Gt => self.compares(value, |label, bound| label > bound),
            Operator::Lt => self.compares(value, |label, bound| label < bound),
            Operator::Unknown => false,
        }
    }

    /// Values that must be numbers and are none, each with its place.
    pub fn numbers_that_are_none(&self) -> impl Iterator<Item = (usize, &Text)> {
        let compares = matches!(self.operator, Operator::Gt | Operator::Lt);
        let values = self.values.iter().enumerate().filter(move |_| compares);
        values.filter(|(_, value)| value.parse::<i64>().is_err())
    }

    fn compares(&self, value: Option<&Text>, holds: impl Fn(i64, i64) -> bool) -> bool {
        let [bound] = &self.values[..] else { return false };
        value
            .and_then(|value| value.parse().ok())
            .zip(bound.parse().ok())
            .is_some_and(|(label, bound)| holds(label, bound))
    }
}
