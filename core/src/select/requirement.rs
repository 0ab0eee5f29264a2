//! One requirement of a label selector, such as `tier in (front,back)`.

use crate::object::names;
use crate::refusal::Cause;
use holdfast_value::Value;
use std::fmt;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Requirement {
    pub key: String,
    pub operator: Operator,
    /// The values that the operator compares, sorted and without duplicates.
    pub values: Vec<String>,
}

/// The operators of requirements. `==` is parsed as `=`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operator {
    Equals,
    NotEquals,
    In,
    NotIn,
    Exists,
    DoesNotExist,
    GreaterThan,
    LessThan,
}

impl Requirement {
    /// Makes a requirement. Checks the key, and the number and the form of the values.
    pub fn new(key: &str, operator: Operator, mut values: Vec<String>) -> Result<Self, String> {
        let mut causes = Vec::new();
        let messages = names::qualified_name(key);
        if !messages.is_empty() {
            causes.push(Cause::invalid("key", &Value::from(key), &messages.join("; ")));
        }
        let mut miscounted = |wrong: bool, message: &str| {
            if wrong {
                causes.push(Cause::invalid("values", &Value::from(values.clone()), message));
            }
        };
        match operator {
            Operator::In | Operator::NotIn => {
                miscounted(values.is_empty(), "for 'in', 'notin' operators, values set can't be empty");
            }
            Operator::Equals | Operator::NotEquals => {
                miscounted(values.len() != 1, "exact-match compatibility requires one single value");
            }
            Operator::Exists | Operator::DoesNotExist => {
                miscounted(!values.is_empty(), "values set must be empty for exists and does not exist");
            }
            Operator::GreaterThan | Operator::LessThan => {
                miscounted(values.len() != 1, "for 'Gt', 'Lt' operators, exactly one value is required");
                for (at, value) in values.iter().enumerate().filter(|(_, value)| value.parse::<i64>().is_err()) {
                    let message = "for 'Gt', 'Lt' operators, the value must be an integer";
                    causes.push(Cause::invalid(format!("values[{at}]"), &Value::from(value.as_str()), message));
                }
            }
        }
        for (at, value) in values.iter().enumerate() {
            let messages = names::label_value(value);
            if !messages.is_empty() {
                let path = format!("values[{at}][{key}]");
                causes.push(Cause::invalid(path, &Value::from(value.as_str()), &messages.join("; ")));
            }
        }
        match causes.as_slice() {
            [] => {
                values.sort();
                values.dedup();
                Ok(Self { key: key.to_owned(), operator, values })
            }
            [cause] => Err(cause.to_string()),
            several => Err(format!("[{}]", several.iter().map(Cause::to_string).collect::<Vec<_>>().join(", "))),
        }
    }

    /// Whether an object satisfies the requirement. `label` is the value of the object's label with the requirement's
    /// key, or `None` if the object lacks this label.
    pub fn matches(&self, label: Option<&str>) -> bool {
        let listed = |value: &str| self.values.binary_search_by(|listed| listed.as_str().cmp(value)).is_ok();
        match self.operator {
            Operator::Equals | Operator::In => label.is_some_and(listed),
            Operator::NotEquals | Operator::NotIn => !label.is_some_and(listed),
            Operator::Exists => label.is_some(),
            Operator::DoesNotExist => label.is_none(),
            Operator::GreaterThan | Operator::LessThan => {
                let number = |text: &str| text.parse::<i64>().ok();
                match (label.and_then(number), self.values.first().and_then(|value| number(value))) {
                    (Some(label), Some(limit)) if self.operator == Operator::GreaterThan => label > limit,
                    (Some(label), Some(limit)) => label < limit,
                    _ => false,
                }
            }
        }
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (key, values) = (&self.key, self.values.join(","));
        match self.operator {
            Operator::Equals => write!(f, "{key}={values}"),
            Operator::NotEquals => write!(f, "{key}!={values}"),
            Operator::In => write!(f, "{key} in ({values})"),
            Operator::NotIn => write!(f, "{key} notin ({values})"),
            Operator::Exists => write!(f, "{key}"),
            Operator::DoesNotExist => write!(f, "!{key}"),
            Operator::GreaterThan => write!(f, "{key}>{values}"),
            Operator::LessThan => write!(f, "{key}<{values}"),
        }
    }
}

/// The value of the label with this key. `labels` must be sorted by key.
pub fn find_label<'a>(labels: &'a [(Box<str>, Box<str>)], key: &str) -> Option<&'a str> {
    let at = labels.binary_search_by(|(own, _)| (**own).cmp(key)).ok()?;
    Some(&labels[at].1)
}
