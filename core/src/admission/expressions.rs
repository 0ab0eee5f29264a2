//! Expressions about a write: compiled once for whoever registered them, evaluated for each write.

use crate::cel::functions::kubernetes::authorizer::{AUTHORIZER, RESOURCE_CHECK};
use crate::cel::types::{Field, ObjectType};
use crate::cel::{Budget, Environment, EvalError, Program, Type, Value, compile, names};
use crate::kinds::expressions;
use std::fmt;
use std::sync::{Arc, LazyLock, OnceLock};

/// What one evaluation of an expression may cost.
pub const CALL_COST_MAX: u64 = 1_000_000;

/// An expression, compiled on first use.
pub struct Expression {
    pub text: String,
    program: OnceLock<Result<Program, String>>,
}

pub static REQUEST: LazyLock<Type> = LazyLock::new(expressions::request);
pub static NAMESPACE: LazyLock<Type> = LazyLock::new(expressions::namespace);
pub static ANY: Type = Type::Dyn;

/// What an expression may use beside the object.
#[derive(Default)]
pub struct Known {
    pub has_parameters: bool,
    pub variables: Option<Vec<Field>>,
    /// It may write out changes of the object.
    pub makes_changes: bool,
}

impl Known {
    /// The variables in the order in which [`Scope`] has their values.
    fn environment(self) -> Environment {
        let environment = Environment::kubernetes()
            .variable("object", Type::Dyn)
            .variable("oldObject", Type::Dyn)
            .variable("request", REQUEST.clone())
            .variable("namespaceObject", NAMESPACE.clone())
            .variable("authorizer", Type::Opaque(AUTHORIZER))
            .variable("authorizer.requestResource", Type::Opaque(RESOURCE_CHECK));
        let environment = match self.has_parameters {
            true => environment.variable("params", Type::Dyn),
            false => environment,
        };
        let environment = if self.makes_changes { environment.with_changes() } else { environment };
        match self.variables {
            Some(fields) => {
                let variables = ObjectType::new("kubernetes.variables", fields);
                environment.variable("variables", Type::Object(Arc::new(variables)))
            }
            None => environment,
        }
    }
}

/// The values that an expression sees.
#[derive(Clone)]
pub struct Scope<'a> {
    /// Object, old object, request, namespace, authorizer, its check of the request.
    pub fixed: [Value<'a>; 6],
    pub parameters: Option<Value<'a>>,
    pub variables: Option<Value<'a>>,
}

impl Scope<'_> {
    /// Conditions are asked before it is looked at where a write belongs.
    pub fn hide_namespace(&mut self) {
        self.fixed[3] = Value::Null;
    }
}

impl Expression {
    pub fn new(text: &str) -> Expression {
        Expression { text: text.to_owned(), program: OnceLock::new() }
    }

    /// `known` is asked once, and must say the same as the scopes of evaluations.
    pub fn program(&self, known: impl FnOnce() -> Known) -> Result<&Program, &str> {
        let compiled = self.program.get_or_init(|| {
            compile(&self.text, &known().environment()).map_err(|faults| {
                let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
                format!("compilation error: compilation failed: {}", faults.join("\n"))
            })
        });
        compiled.as_ref().map_err(String::as_str)
    }

    /// The value, or what went wrong. What it cost is taken from the budget.
    pub fn eval<'a>(
        &'a self,
        known: impl FnOnce() -> Known,
        scope: &Scope<'a>,
        budget: &mut Budget,
    ) -> Result<Value<'a>, Fault> {
        let program = self.program(known).map_err(|why| Fault::Compilation(why.to_owned()))?;
        let values: Vec<Value<'a>> =
            scope.fixed.iter().chain(&scope.parameters).chain(&scope.variables).cloned().collect();
        let mut own = Budget::new(CALL_COST_MAX.min(budget.left));
        let before = own.left;
        let outcome = program.eval(&values, &mut own);
        let spent = before.saturating_sub(own.left);
        budget.left = budget.left.saturating_sub(spent);
        outcome.map_err(|error| match error {
            EvalError::Cost if budget.left == 0 => Fault::OutOfBudget,
            error => Fault::Evaluation { expression: self.text.clone(), error },
        })
    }
}

/// Why an expression gave no value, in the words that people get.
#[derive(Debug)]
pub enum Fault {
    Compilation(String),
    OutOfBudget,
    Evaluation { expression: String, error: EvalError },
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Compilation(why) => f.write_str(why),
            Self::OutOfBudget => f.write_str(OUT_OF_BUDGET),
            Self::Evaluation { expression, error } => {
                write!(f, "expression '{expression}' resulted in error: {error}")
            }
        }
    }
}

impl Fault {
    /// What went wrong, without the expression that it went wrong in.
    pub fn cause(&self) -> String {
        match self {
            Self::Evaluation { error, .. } => error.to_string(),
            other => other.to_string(),
        }
    }
}

const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// A variable of a policy as expressions spell it.
pub fn variable(name: &str, ty: Type) -> Option<Field> {
    Some(Field { name: names::escape(name)?, json: name.to_owned(), ty })
}
