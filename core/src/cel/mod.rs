//! The Common Expression Language in the dialect of Kubernetes: parse and type check once, evaluate often.
//!
//! Start at [`compile`]. `types` and `value` say what expressions have and give, `functions` are tables.
//! Nothing here knows a kind of Kubernetes: who uses it declares the variables and their types.

pub mod cost;
pub mod functions;
pub mod types;
pub mod value;

pub use cost::{Budget, Range};
pub use types::Type;
pub use value::{EvalError, Value};

/// The variables that an expression may use, in the order in which [`Program::eval`] is given their values.
/// Functions and literals are those of Kubernetes.
#[derive(Debug, Clone, Default)]
pub struct Environment {
    variables: Vec<(String, Type)>,
}

impl Environment {
    pub fn kubernetes() -> Self {
        Environment::default()
    }

    pub fn variable(mut self, name: &str, ty: Type) -> Self {
        self.variables.push((name.to_owned(), ty));
        self
    }
}

/// What is wrong with an expression, and where: line and column count from 1, the column in characters.
/// `Display` words it as cel-go does, with the line and a caret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    pub message: String,
    pub line: u32,
    pub column: u32,
    /// The line's text.
    pub excerpt: String,
}

/// A compiled expression.
#[derive(Debug)]
pub struct Program {}

pub fn compile(_source: &str, _environment: &Environment) -> Result<Program, Vec<Fault>> {
    unimplemented!()
}

impl Program {
    pub fn result(&self) -> &Type {
        unimplemented!()
    }

    /// Whether the expression mentions the variable.
    pub fn uses(&self, _variable: &str) -> bool {
        unimplemented!()
    }

    /// What an evaluation can cost. Sizes come from the variables' types ([`types::Declared::max_size`]).
    pub fn estimate(&self) -> Range {
        unimplemented!()
    }

    /// `variables` in the order of the environment.
    pub fn eval<'a>(&'a self, _variables: &[Value<'a>], _budget: &mut Budget) -> Result<Value<'a>, EvalError> {
        unimplemented!()
    }
}
