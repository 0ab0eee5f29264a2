//! CEL expressions about a write: compiled once per registration, evaluated for each write.

use crate::cel::functions::kubernetes::authorizer::{AUTHORIZER, RESOURCE_CHECK};
use crate::cel::types::{Field, ObjectType};
use crate::cel::{Budget, Environment, EvalError, Program, Type, Value, compile, names};
use crate::kinds::expressions;
use std::fmt;
use std::sync::{Arc, LazyLock, OnceLock};

/// The cost limit for one evaluation of an expression.
pub const CALL_COST_MAX: u64 = 1_000_000;

/// A CEL expression of a webhook or policy. It is compiled when it is first evaluated.
pub struct Expression {
    pub text: String,
    program: OnceLock<Result<Program, String>>,
}

pub static REQUEST: LazyLock<Type> = LazyLock::new(expressions::request);
pub static NAMESPACE: LazyLock<Type> = LazyLock::new(expressions::namespace);
pub static ANY: Type = Type::Dyn;

/// The variables that an expression may use in addition to the object.
#[derive(Default)]
pub struct Known {
    pub has_parameters: bool,
    pub variables: Option<Vec<Field>>,
    /// The expression may construct changes of the object.
    pub makes_changes: bool,
}

impl Known {
    /// The variables, in the order of the values in [`Scope`].
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

/// The values of the variables of an expression.
#[derive(Clone)]
pub struct Scope<'a> {
    /// The values of `object`, `oldObject`, `request`, `namespaceObject`, `authorizer` and
    /// `authorizer.requestResource`, in this order.
    pub fixed: [Value<'a>; 6],
    pub parameters: Option<Value<'a>>,
    pub variables: Option<Value<'a>>,
}

impl Scope<'_> {
    /// Match conditions cannot use the namespace, because they are evaluated before the namespace is looked up.
    pub fn hide_namespace(&mut self) {
        self.fixed[3] = Value::Null;
    }
}

impl Expression {
    pub fn new(text: &str) -> Expression {
        Expression { text: text.to_owned(), program: OnceLock::new() }
    }

    /// The compiled expression. Only the first call compiles it and calls `known`. `known` must return the variables
    /// that the scopes of all evaluations have.
    pub fn program(&self, known: impl FnOnce() -> Known) -> Result<&Program, &str> {
        let compiled = self.program.get_or_init(|| {
            compile(&self.text, &known().environment()).map_err(|faults| {
                let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
                format!("compilation error: compilation failed: {}", faults.join("\n"))
            })
        });
        compiled.as_ref().map_err(String::as_str)
    }

    /// Evaluates the expression and takes its cost from the budget.
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

/// Why an expression gave no value, in Kubernetes' words.
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
    /// The message of the error. If the evaluation failed, the message does not contain the expression.
    pub fn cause(&self) -> String {
        match self {
            Self::Evaluation { error, .. } => error.to_string(),
            other => other.to_string(),
        }
    }
}

const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// A policy's variable as a field of `variables`; `None` if its name cannot be spelled in CEL.
pub fn variable(name: &str, ty: Type) -> Option<Field> {
    Some(Field { name: names::escape(name)?, json: name.to_owned(), ty })
}
