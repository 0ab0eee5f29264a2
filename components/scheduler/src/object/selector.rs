//! Label selectors, as the scheduler reads them.

use super::labels::Labels;
use super::{StringPool, Text, items};
use holdfast_core::object::names;
use holdfast_value::{Value, json};

/// A label selector: all of its requirements must hold.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Selector {
    /// The requirements, all of which must hold. `None` selects no object, an empty list selects every object.
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
    /// The operator is unknown, so the requirement never holds.
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

impl Operator {
    pub fn named(name: &str) -> Self {
        OPERATORS.iter().find(|(_, own)| *own == name).map_or(Operator::Unknown, |(one, _)| *one)
    }
}

const NO_NUMBER: &str = "for 'Gt', 'Lt' operators, the value must be an integer";

impl Selector {
    pub fn nothing() -> Self {
        Selector { requirements: None }
    }

    pub fn everything() -> Self {
        Selector { requirements: Some(Vec::new()) }
    }

    /// Decodes a `LabelSelector`. An absent selector selects no object, an empty selector selects every object.
    pub fn decode(pool: &mut StringPool, value: &Value) -> Self {
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

    /// The selector with the requirements of both selectors.
    pub fn and(self, other: &Selector) -> Self {
        let both = self.requirements.zip(other.requirements.clone());
        Selector { requirements: both.map(|(one, other)| one.into_iter().chain(other).collect()) }
    }

    /// The selector with this requirement added, unless the selector already has it.
    pub fn with(mut self, requirement: Requirement) -> Self {
        if let Some(own) = &mut self.requirements
            && !own.contains(&requirement)
        {
            own.push(requirement);
        }
        self
    }

    /// Whether the selector has no requirement, so it selects every object.
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
    pub fn decode(pool: &mut StringPool, value: &Value) -> Self {
        let operator = Operator::named(super::text(&value["operator"]));
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

    /// Whether a label with this value satisfies the requirement; `None` stands for an absent label.
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

    /// The errors in the requirement's values, each with its path: `Gt` and `Lt` need integers, and all values must be
    /// valid label values.
    pub fn faults(&self) -> impl Iterator<Item = (String, String)> + '_ {
        let error = |path: String, value: &Text, why: &str| (path, format!("Invalid value: \"{value}\": {why}"));
        let compares = matches!(self.operator, Operator::Gt | Operator::Lt);
        let values = || self.values.iter().enumerate();
        let no_numbers = values().filter(move |(_, value)| compares && value.parse::<i64>().is_err());
        let no_numbers = no_numbers.map(move |(at, value)| error(format!("values[{at}]"), value, NO_NUMBER));
        let no_labels = values().map(|(at, value)| (at, value, names::label_value(value)));
        let no_labels = no_labels.filter(|(.., why)| !why.is_empty());
        let no_labels =
            no_labels.map(move |(at, value, why)| error(format!("values[{at}][{}]", self.key), value, &why.join("; ")));
        no_numbers.chain(no_labels)
    }

    fn compares(&self, value: Option<&Text>, holds: impl Fn(i64, i64) -> bool) -> bool {
        let [bound] = &self.values[..] else { return false };
        value
            .and_then(|value| value.parse().ok())
            .zip(bound.parse().ok())
            .is_some_and(|(label, bound)| holds(label, bound))
    }
}
