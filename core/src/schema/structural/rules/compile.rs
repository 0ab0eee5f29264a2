//! Compiles the validation rules of a schema.

use super::Rule;
use super::declared::{REQUEST_BYTES_MAX, declared};
use crate::cel::{self, Environment, Fault, Program, Stage, Type};
use crate::schema::structural::Structural;
use crate::schema::structural::field_path::FieldPath;

#[derive(Debug)]
pub struct Compiled {
    /// The type of `self` in the rules' expressions.
    pub ty: Type,
    pub rules: Vec<CompiledRule>,
    /// The maximum number of values in one object that this schema describes.
    pub count_max: u64,
}

#[derive(Debug)]
pub struct CompiledRule {
    /// The compiled program, or the message of the compiler; `None` if the rule is empty.
    pub program: Option<Result<Program, String>>,
    pub uses_old_self: bool,
    /// The program of the message expression, or its compile error; `None` if the rule has no message expression or if
    /// the rule's program failed to compile.
    pub message: Option<Result<Program, String>>,
    /// The path of the field about which failures are reported, relative to the validated value.
    pub field: String,
}

pub const OLD_SELF: &str = "oldSelf";

/// Compiles the rules of a schema; `None` if expressions cannot access values of the schema.
pub fn compile(schema: &Structural, is_resource: bool) -> Option<Compiled> {
    let sized = declared(schema, is_resource)?;
    let this = Environment::kubernetes().variable("self", sized.ty.clone()).computed_like(sized.ty.clone());
    let environment = |old: Type| this.clone().variable(OLD_SELF, old);
    let plain = environment(sized.ty.clone());
    let optional = environment(Type::optional(sized.ty.clone()));
    let rules = schema.rules.iter().flat_map(|rules| &rules.all);
    let rules = rules.map(|rule| compile_rule(schema, rule, if rule.optional_old_self { &optional } else { &plain }));
    Some(Compiled { rules: rules.collect(), ty: sized.ty, count_max: REQUEST_BYTES_MAX / (sized.bytes_min + 1) })
}

fn compile_rule(schema: &Structural, rule: &Rule, environment: &Environment) -> CompiledRule {
    let mut compiled = CompiledRule { program: None, uses_old_self: false, message: None, field: String::new() };
    if rule.rule.trim().is_empty() {
        return compiled;
    }
    let program = typed(&rule.rule, environment, &Type::Bool, "", "cel expression must evaluate to a bool");
    if let Ok(program) = &program {
        compiled.uses_old_self = program.uses(OLD_SELF);
        if !rule.message_expression.is_empty() {
            let failed = "messageExpression must evaluate to a string";
            compiled.message =
                Some(typed(&rule.message_expression, environment, &Type::String, "messageExpression ", failed));
        }
        if !rule.field_path.is_empty()
            && let Ok(path) = FieldPath::parse(&rule.field_path, schema, true)
        {
            compiled.field = path.text;
        }
    }
    compiled.program = Some(program);
    compiled
}

fn typed(source: &str, environment: &Environment, ty: &Type, what: &str, failed: &str) -> Result<Program, String> {
    let words = |faults: Vec<Fault>| {
        let stage = match faults.first().map(|fault| fault.stage) {
            Some(Stage::Instantiation) if what.is_empty() => "program instantiation",
            Some(Stage::Instantiation) => "instantiation",
            _ => "compilation",
        };
        let faults: Vec<String> = faults.iter().map(Fault::to_string).collect();
        format!("{what}{stage} failed: {}", faults.join("\n"))
    };
    let program = cel::compile(source, environment).map_err(words)?;
    if program.result() == ty { Ok(program) } else { Err(failed.to_owned()) }
}
