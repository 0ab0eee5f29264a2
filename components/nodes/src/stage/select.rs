//! The selectors of Stages, which decide for which objects a Stage can be played.

use crate::budget::{self, Spent};
use crate::jq::Query;
use holdfast_core::cel::cost::Budget;
use holdfast_core::cel::types::Type;
use holdfast_core::cel::value::{EvalError, Value as CelValue};
use holdfast_core::cel::{Environment, Program, compile};
use holdfast_value::Value;
use serde::Deserialize;
use std::collections::BTreeMap;

/// The maximum cost of a CEL expression.
const COST_MAX: u64 = 1_000_000;

#[derive(Debug)]
pub enum StageSelector {
    /// A Stage that has no selector matches no object.
    Nothing,
    Where {
        labels: BTreeMap<String, String>,
        annotations: BTreeMap<String, String>,
        requirements: Vec<Requirement>,
    },
}

#[derive(Debug)]
pub enum Requirement {
    Jq { query: Query, test: Test },
    Cel(Box<Program>),
}

#[derive(Debug)]
pub enum Test {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    DoesNotExist,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Spec {
    match_labels: BTreeMap<String, String>,
    match_annotations: BTreeMap<String, String>,
    match_expressions: Vec<QueryExpression>,
}

/// A requirement of a selector, in the form of old releases of KWOK (all fields at the top), or in the form of newer
/// releases (below `jq` or `cel`).
#[derive(Deserialize)]
struct QueryExpression {
    #[serde(flatten)]
    flat: Jq,
    expression: Option<String>,
    jq: Option<Jq>,
    cel: Option<Cel>,
}

#[derive(Deserialize)]
struct Jq {
    key: Option<String>,
    operator: Option<String>,
    #[serde(default)]
    values: Vec<String>,
}

#[derive(Deserialize)]
struct Cel {
    expression: String,
}

impl StageSelector {
    pub fn parse(spec: Spec) -> Result<StageSelector, String> {
        let mut requirements = Vec::new();
        for (place, expression) in spec.match_expressions.into_iter().enumerate() {
            let requirement = Requirement::parse(expression);
            requirements.push(requirement.map_err(|why| format!("matchExpressions[{place}]: {why}"))?);
        }
        Ok(StageSelector::Where { labels: spec.match_labels, annotations: spec.match_annotations, requirements })
    }

    pub fn matches(&self, object: &Value, budget: &budget::Budget) -> Result<bool, Spent> {
        let StageSelector::Where { requirements, .. } = self else { return Ok(false) };
        self.hold(object, requirements.iter(), budget)
    }

    /// Whether the labels, the annotations and the other fields that only users change match the selector.
    pub fn may_match(&self, object: &Value, budget: &budget::Budget) -> Result<bool, Spent> {
        let StageSelector::Where { requirements, .. } = self else { return Ok(false) };
        self.hold(object, requirements.iter().filter(|requirement| requirement.is_lasting()), budget)
    }

    fn hold<'a>(
        &self,
        object: &Value,
        requirements: impl Iterator<Item = &'a Requirement>,
        budget: &budget::Budget,
    ) -> Result<bool, Spent> {
        if !self.names(object) {
            return Ok(false);
        }
        for requirement in requirements {
            if !requirement.holds(object, budget)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether the object's labels and annotations match the selector.
    pub fn names(&self, object: &Value) -> bool {
        let StageSelector::Where { labels, annotations, .. } = self else { return false };
        let has = |field: &str, wanted: &BTreeMap<String, String>| {
            wanted.iter().all(|(name, value)| object["metadata"][field][name] == value.as_str())
        };
        has("labels", labels) && has("annotations", annotations)
    }
}

impl Requirement {
    fn parse(expression: QueryExpression) -> Result<Requirement, String> {
        if let Some(source) = expression.expression.or(expression.cel.map(|cel| cel.expression)) {
            let environment = Environment::kubernetes().variable("self", Type::Dyn);
            return match compile(&source, &environment) {
                Ok(program) => Ok(Requirement::Cel(Box::new(program))),
                Err(faults) => Err(faults.first().map_or_else(String::new, |fault| fault.message.clone())),
            };
        }
        let Jq { key, operator, values } = expression.jq.unwrap_or(expression.flat);
        let key = key.ok_or("neither a key nor an expression is given")?;
        let query = Query::parse(&key)?;
        let test = match operator.as_deref().unwrap_or_default() {
            "In" | "NotIn" if values.is_empty() => return Err("values: must not be empty".into()),
            "In" => Test::In(values),
            "NotIn" => Test::NotIn(values),
            "Exists" | "DoesNotExist" if !values.is_empty() => return Err("values: must be empty".into()),
            "Exists" => Test::Exists,
            "DoesNotExist" => Test::DoesNotExist,
            other => return Err(format!("operator {other:?} is not supported")),
        };
        Ok(Requirement::Jq { query, test })
    }

    fn holds(&self, object: &Value, budget: &budget::Budget) -> Result<bool, Spent> {
        Ok(match self {
            Requirement::Jq { query, test } => {
                let values = query.values(object, budget)?;
                let among = |wanted: &[String]| {
                    values.iter().any(|value| match value.as_ref() {
                        Value::String(text) => wanted.iter().any(|wanted| wanted == text),
                        scalar @ (Value::Bool(_) | Value::Number(_)) => wanted.contains(&scalar.to_string()),
                        _ => false,
                    })
                };
                let exists = values.iter().any(|value| !value.is_null());
                match test {
                    Test::In(wanted) => among(wanted),
                    Test::NotIn(wanted) => !among(wanted),
                    Test::Exists => exists,
                    Test::DoesNotExist => !exists,
                }
            }
            Requirement::Cel(program) => {
                let Ok(value) = CelValue::json(object, &Type::Dyn) else { return Ok(false) };
                match program.eval(&[value], &mut Budget::new(COST_MAX)) {
                    Err(EvalError::Cost) => return Err(budget.end()),
                    found => matches!(found, Ok(CelValue::Bool(true))),
                }
            }
        })
    }

    /// Whether the requirement reads only fields that only users change.
    fn is_lasting(&self) -> bool {
        let Requirement::Jq { query, .. } = self else { return false };
        match query.path().as_slice() {
            ["metadata", field, ..] => *field != "deletionTimestamp" && *field != "finalizers",
            ["spec", ..] => true,
            _ => false,
        }
    }
}
