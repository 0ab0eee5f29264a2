//! Renders a template for a document.

use super::Template;
use super::functions::{self, Function, Surroundings, TEXT_MAX};
use super::parse::{Node, Operand, Pipeline, PipelineCommand};
use crate::budget::{Budget, Spent};
use holdfast_value::Value;

/// The maximum number of steps of a template. `BYTES_MAX` is the maximum number of bytes of the values that it makes.
const STEPS_MAX: usize = 200_000;
const BYTES_MAX: usize = 16 << 20;
/// The maximum depth of calls of `template` within each other.
const CALLS_MAX: usize = 32;

/// Why rendering a template failed.
#[derive(Debug, PartialEq)]
pub enum RenderFailure {
    /// The template exceeds its budget.
    Spent,
    /// The template or its data has the fault that the text describes.
    Fault(String),
}

impl From<Spent> for RenderFailure {
    fn from(_: Spent) -> RenderFailure {
        RenderFailure::Spent
    }
}

impl From<String> for RenderFailure {
    fn from(why: String) -> RenderFailure {
        RenderFailure::Fault(why)
    }
}

impl From<&str> for RenderFailure {
    fn from(why: &str) -> RenderFailure {
        RenderFailure::Fault(why.to_owned())
    }
}

impl std::fmt::Display for RenderFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            RenderFailure::Spent => write!(
                f,
                "the template does more than {STEPS_MAX} steps or makes more than {BYTES_MAX} bytes of values"
            ),
            RenderFailure::Fault(why) => f.write_str(why),
        }
    }
}

pub fn render(template: &Template, document: &Value, surroundings: &dyn Surroundings) -> Result<String, RenderFailure> {
    let budget = Budget::new(STEPS_MAX, BYTES_MAX);
    let mut run = Run { template, surroundings, text: String::new(), budget, calls: 0 };
    let mut scope = TemplateScope { root: document.clone(), dot: document.clone(), variables: Vec::new() };
    run.nodes(&template.body, &mut scope)?;
    Ok(run.text)
}

struct Run<'a> {
    template: &'a Template,
    surroundings: &'a dyn Surroundings,
    text: String,
    budget: Budget,
    calls: usize,
}

struct TemplateScope {
    /// The value of `$`: the data with which the template was called.
    root: Value,
    dot: Value,
    variables: Vec<(String, Value)>,
}

#[derive(PartialEq)]
enum Flow {
    On,
    Break,
    Continue,
}

impl Run<'_> {
    fn step(&mut self) -> Result<(), RenderFailure> {
        Ok(self.budget.step(1)?)
    }

    /// Copies a value, within the budget.
    fn copy(&self, value: &Value) -> Result<Value, RenderFailure> {
        self.budget.whole(value)?;
        Ok(value.clone())
    }

    fn nodes(&mut self, nodes: &[Node], scope: &mut TemplateScope) -> Result<Flow, RenderFailure> {
        let known = scope.variables.len();
        let mut flow = Flow::On;
        for node in nodes {
            flow = self.node(node, scope)?;
            if flow != Flow::On {
                break;
            }
        }
        scope.variables.truncate(known);
        Ok(flow)
    }

    fn node(&mut self, node: &Node, scope: &mut TemplateScope) -> Result<Flow, RenderFailure> {
        self.step()?;
        match node {
            Node::Text(text) => self.write(text)?,
            Node::Print(pipeline) => {
                let value = self.pipeline(pipeline, scope)?;
                if pipeline.variables.is_empty() {
                    let text = functions::shown(&value);
                    self.write(&text)?;
                }
            }
            Node::Break => return Ok(Flow::Break),
            Node::Continue => return Ok(Flow::Continue),
            Node::If { arms, otherwise } => return self.arms(arms, otherwise, false, scope),
            Node::With { arms, otherwise } => return self.arms(arms, otherwise, true, scope),
            Node::Range { pipeline, body, otherwise } => self.range(pipeline, body, otherwise, scope)?,
            Node::Template { name, argument } => {
                let dot = match argument {
                    Some(argument) => self.pipeline(argument, scope)?,
                    None => Value::Null,
                };
                let body = self.template.defined.get(name).ok_or("a template is not defined")?;
                self.calls += 1;
                if self.calls > CALLS_MAX {
                    return Err(format!("templates call each other more than {CALLS_MAX} deep").into());
                }
                self.nodes(body, &mut TemplateScope { root: self.copy(&dot)?, dot, variables: Vec::new() })?;
                self.calls -= 1;
            }
        }
        Ok(Flow::On)
    }

    fn write(&mut self, text: &str) -> Result<(), RenderFailure> {
        if self.text.len() + text.len() > TEXT_MAX {
            return Err(format!("the template gives more than {TEXT_MAX} bytes").into());
        }
        self.text.push_str(text);
        Ok(())
    }

    fn arms(
        &mut self,
        arms: &[(Pipeline, Vec<Node>)],
        otherwise: &[Node],
        with: bool,
        scope: &mut TemplateScope,
    ) -> Result<Flow, RenderFailure> {
        let known = scope.variables.len();
        let mut chosen = None;
        for (condition, body) in arms {
            let value = self.pipeline(condition, scope)?;
            if functions::truth(&value) {
                chosen = Some((value, body));
                break;
            }
        }
        let flow = match chosen {
            Some((value, body)) if with => {
                let dot = std::mem::replace(&mut scope.dot, value);
                let flow = self.nodes(body, scope);
                scope.dot = dot;
                flow
            }
            Some((_, body)) => self.nodes(body, scope),
            None => self.nodes(otherwise, scope),
        };
        scope.variables.truncate(known);
        flow
    }

    fn range(
        &mut self,
        pipeline: &Pipeline,
        body: &[Node],
        otherwise: &[Node],
        scope: &mut TemplateScope,
    ) -> Result<(), RenderFailure> {
        let known = scope.variables.len();
        let items: Vec<(Value, Value)> = match self.value(pipeline, scope)? {
            Value::Array(items) => items.into_iter().enumerate().map(|(place, item)| (place.into(), item)).collect(),
            Value::Object(fields) => {
                let mut fields: Vec<_> = fields.into_iter().map(|(name, item)| (Value::from(name), item)).collect();
                fields.sort_by(|one, other| one.0.as_str().cmp(&other.0.as_str()));
                fields
            }
            Value::Number(count) => {
                let count = count.as_i64().unwrap_or(0).clamp(0, STEPS_MAX as i64);
                self.budget.values(usize::try_from(count).unwrap_or(0))?;
                (0..count).map(|place| (place.into(), place.into())).collect()
            }
            Value::Null => Vec::new(),
            _ => return Err("range needs a list or a map".into()),
        };
        if items.is_empty() {
            self.nodes(otherwise, scope)?;
            return Ok(());
        }
        for (place, item) in items {
            self.step()?;
            match pipeline.variables.as_slice() {
                [one] => scope.variables.push((one.clone(), self.copy(&item)?)),
                [one, other] => {
                    scope.variables.push((one.clone(), place));
                    scope.variables.push((other.clone(), self.copy(&item)?));
                }
                _ => {}
            }
            let dot = std::mem::replace(&mut scope.dot, item);
            let flow = self.nodes(body, scope);
            scope.dot = dot;
            scope.variables.truncate(known);
            if flow? == Flow::Break {
                break;
            }
        }
        Ok(())
    }

    fn pipeline(&mut self, pipeline: &Pipeline, scope: &mut TemplateScope) -> Result<Value, RenderFailure> {
        let value = self.value(pipeline, scope)?;
        for name in &pipeline.variables {
            let value = self.copy(&value)?;
            if pipeline.assigns {
                let known = scope.variables.iter_mut().rev().find(|(known, _)| known == name);
                known.ok_or_else(|| format!("${name} is not there"))?.1 = value;
            } else {
                scope.variables.push((name.clone(), value));
            }
        }
        Ok(value)
    }

    /// The value that a pipeline gives.
    fn value(&mut self, pipeline: &Pipeline, scope: &mut TemplateScope) -> Result<Value, RenderFailure> {
        let mut value = None;
        for command in &pipeline.commands {
            self.step()?;
            value = Some(match command {
                PipelineCommand::Value(operand) => self.operand(operand, scope)?,
                PipelineCommand::Call(function, operands) => self.call(*function, operands, value, scope)?,
            });
        }
        Ok(value.unwrap_or_default())
    }

    fn call(
        &mut self,
        function: Function,
        operands: &[Operand],
        last: Option<Value>,
        scope: &mut TemplateScope,
    ) -> Result<Value, RenderFailure> {
        // `and` and `or` stop at the operand that decides their result.
        if let Some(decides) = functions::decides(function) {
            let mut value = Value::Null;
            for operand in operands {
                value = self.operand(operand, scope)?;
                if functions::truth(&value) == decides {
                    return Ok(value);
                }
            }
            return Ok(last.unwrap_or(value));
        }
        let mut arguments = Vec::with_capacity(operands.len() + 1);
        for operand in operands {
            arguments.push(self.operand(operand, scope)?);
        }
        arguments.extend(last);
        self.budget.bytes(functions::grows_by(function, &arguments))?;
        let value = functions::call(function, arguments, self.surroundings)
            .map_err(|why| format!("{}: {why}", functions::name(function)))?;
        self.budget.whole(&value)?;
        Ok(value)
    }

    fn operand(&mut self, operand: &Operand, scope: &mut TemplateScope) -> Result<Value, RenderFailure> {
        self.step()?;
        Ok(match operand {
            Operand::Literal(value) => self.copy(value)?,
            Operand::Dot(path) => self.copy(field(&scope.dot, path))?,
            Operand::Variable(name, path) if name.is_empty() => self.copy(field(&scope.root, path))?,
            Operand::Variable(name, path) => {
                let known = scope.variables.iter().rev().find(|(known, _)| known == name);
                self.copy(field(&known.ok_or_else(|| format!("${name} is not there"))?.1, path))?
            }
            Operand::Function(function) => self.call(*function, &[], None, scope)?,
            Operand::Nested(pipeline, path) => {
                let known = scope.variables.len();
                let value = self.pipeline(pipeline, scope)?;
                scope.variables.truncate(known);
                if path.is_empty() { value } else { self.copy(field(&value, path))? }
            }
        })
    }
}

/// The value at a path within a value; null if there is no value at the path.
fn field<'v>(value: &'v Value, path: &[String]) -> &'v Value {
    path.iter().fold(value, |value, name| value.get(name).unwrap_or(&Value::Null))
}
