//! The Common Expression Language in the dialect of Kubernetes. An expression is parsed and type-checked once, and
//! evaluated often.
//!
//! Start at [`compile`]. `types` and `value` are the types and values of expressions, `functions` has tables. An
//! expression passes these modules: `lex` and `parse` (with `chain` and `macros`) build a tree (`ast`); `check` (with
//! `unify`) infers its types; `validate` checks its literals; `estimate` bounds its cost; `constants` computes constant
//! parts; `eval` (with `follow`) evaluates it, and `work` counts work that `cost` leaves out. `document` and `compare`
//! read values; `written` converts values to documents. This module does not depend on Kubernetes' kinds: the caller
//! declares the variables and their types.

mod ast;
mod build;
mod chain;
mod check;
mod compare;
mod constants;
pub mod cost;
mod document;
mod estimate;
mod eval;
mod follow;
pub mod functions;
mod lex;
mod macros;
mod message;
pub mod names;
mod parse;
#[cfg(test)]
mod tests;
pub mod types;
mod unify;
mod validate;
pub mod value;
mod work;
mod written;

pub use compare::{Fuel, equal};
pub use cost::{Budget, Range};
pub use types::Type;
pub use value::{EvalError, Value};

use ast::{Kind, Node, Place};
use std::fmt;

/// The variables that an expression can use, in the order of the values that [`Program::eval`] gets. Expressions have
/// the functions and literals of Kubernetes.
#[derive(Debug, Clone, Default)]
pub struct Environment {
    variables: Vec<(String, Type)>,
    computed_like: Option<Type>,
    makes_changes: bool,
}

impl Environment {
    pub fn kubernetes() -> Self {
        Environment::default()
    }

    pub fn variable(mut self, name: &str, ty: Type) -> Self {
        self.variables.push((name.to_owned(), ty));
        self
    }

    /// Lets expressions construct the results of mutations: partial objects (`Object` and types below it) and
    /// operations of type `JSONPatch`.
    pub fn with_changes(self) -> Self {
        Environment { makes_changes: true, ..self }
    }

    /// Makes estimates assume this type for each variable, and for values inside computed values, such as an item of
    /// `text.split(',')`. Kubernetes estimates the rules of custom resources in this way. Without this call the size of
    /// values inside computed values is unknown.
    pub fn computed_like(mut self, ty: Type) -> Self {
        self.computed_like = Some(ty);
        self
    }
}

/// An expression that was parsed and type-checked, ready for evaluation.
#[derive(Debug)]
pub struct Program {
    root: Box<Node>,
    cost: Range,
    // The environment's variables that the expression uses, sorted by name.
    used: Vec<String>,
    variables: usize,
}

/// The maximum number of faults that are reported for one expression, as in cel-go. Each fault repeats a line of the
/// source.
const MAX_FAULTS: usize = 100;

/// Parses and type-checks an expression. All type errors are returned together.
pub fn compile(source: &str, environment: &Environment) -> Result<Program, Vec<Fault>> {
    let fault = |(message, at): lex::Complaint| Fault::new(message, source, at);
    let faults = |complaints: Vec<lex::Complaint>| -> Vec<Fault> {
        complaints.into_iter().take(MAX_FAULTS).map(fault).collect()
    };
    let mut root = parse::parse(source).map_err(faults)?;
    let agreed = |complaints: Vec<lex::Complaint>| if complaints.is_empty() { Ok(()) } else { Err(faults(complaints)) };
    agreed(check::check(&mut root, &environment.variables, environment.makes_changes))?;
    agreed(validate::validate(&mut root))?;
    let cost = estimate::estimate(&root, &environment.variables, environment.computed_like.as_ref());
    let mut used = Vec::new();
    collect_variables(&mut root, &mut used);
    used.sort_unstable();
    used.dedup();
    constants::compute(&mut root).map_err(|message| vec![Fault::of_program(message)])?;
    Ok(Program { root, cost, used, variables: environment.variables.len() })
}

fn collect_variables(node: &mut Node, used: &mut Vec<String>) {
    if let Kind::Name { name, place: Place::Variable(_) } = &node.kind {
        used.push(name.clone());
    }
    node.each_child(&mut |child| collect_variables(child, used));
}

impl Program {
    pub fn result(&self) -> &Type {
        &self.root.ty
    }

    /// Whether the expression uses the environment's variable with this name.
    pub fn uses(&self, variable: &str) -> bool {
        self.used.binary_search_by(|used| used.as_str().cmp(variable)).is_ok()
    }

    /// The range of possible costs of an evaluation. Sizes come from the variables' types
    /// ([`types::Declared::max_size`]).
    pub fn estimate(&self) -> Range {
        self.cost
    }

    /// Evaluates the expression. `variables` has the values of the environment's variables, in the environment's order.
    pub fn eval<'a>(&'a self, variables: &[Value<'a>], budget: &mut Budget) -> Result<Value<'a>, EvalError> {
        assert_eq!(variables.len(), self.variables, "a value for each variable of the environment");
        eval::Machine { variables, locals: Vec::new(), budget }.eval(&self.root)
    }
}

/// An error in an expression and its position. Line and column count from 1; the column counts characters. `Display`
/// formats the error as cel-go does, with the line and a caret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The stage that failed. Only errors of the stage `Compilation` have a position.
    pub stage: Stage,
    pub message: String,
    pub line: u32,
    pub column: u32,
    /// The line of the source that contains the error.
    pub excerpt: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    Compilation,
    /// Making a program from the checked tree, which includes computing constants.
    Instantiation,
}

impl Fault {
    fn of_program(message: String) -> Self {
        Fault { stage: Stage::Instantiation, message, line: 0, column: 0, excerpt: String::new() }
    }

    fn new(message: String, source: &str, at: usize) -> Self {
        if at == lex::NOWHERE {
            return Fault { stage: Stage::Compilation, message, line: 0, column: 0, excerpt: String::new() };
        }
        if source.is_empty() {
            // As in cel-go, an error in an empty source has column 0 and no line.
            return Fault { stage: Stage::Compilation, message, line: 1, column: 0, excerpt: String::new() };
        }
        let before = &source[..at];
        let start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let excerpt = source[start..].split('\n').next().unwrap_or_default().to_owned();
        let line = before.matches('\n').count() as u32 + 1;
        Fault { stage: Stage::Compilation, message, line, column: before[start..].chars().count() as u32 + 1, excerpt }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.stage == Stage::Instantiation {
            return f.write_str(&self.message);
        }
        if self.line == 0 {
            return write!(f, "ERROR: <input>:-1:0: {}", self.message);
        }
        write!(f, "ERROR: <input>:{}:{}: {}", self.line, self.column, self.message)?;
        if self.column == 0 {
            return Ok(());
        }
        // cel-go counts non-ASCII characters as wide, so it writes a wide dot below each in the line with the caret.
        write!(f, "\n | {}\n | ", self.excerpt.replace('\t', " "))?;
        for character in self.excerpt.chars().take(self.column as usize - 1) {
            f.write_str(if character.is_ascii() { "." } else { "．" })?;
        }
        let caret = match self.excerpt.chars().nth(self.column as usize - 1) {
            Some(character) if !character.is_ascii() => "＾",
            _ => "^",
        };
        f.write_str(caret)
    }
}
